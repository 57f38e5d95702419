// SPDX-License-Identifier: Apache-2.0
#pragma once
// Programs of a rank's plans, fitted to the sizes of calls. A plan has its programs for one size; operations of other sizes need copies,
// several at once, since several operations may be under way. Copies are kept, and fitted anew once nobody performs them any more, so
// that a size never seen before allocates nothing.
//
// Not synchronised: the holder of the rank's turn uses it.

#include <cstddef>
#include <memory>
#include <vector>

#include "protocols/plan.hpp"

namespace troupe::actors {

class program_shelf {
public:
  /// The program of `rank` for a call of this shape. Throws as fit(). @pre how->mailbox()
  std::shared_ptr<const program> take(const std::shared_ptr<const plan>& how, rank_t rank, const call_shape& shape);

private:
  struct copy {
    std::shared_ptr<const plan> how;
    std::shared_ptr<program> code;
    bool plain = false;  ///< of packed, equal blocks of `count` elements
    std::size_t count = 0;
  };
  /// Then the oldest makes room; what is performed stays with who performs it.
  static constexpr std::size_t most_copies = 32;

  std::vector<copy> copies_;
  std::size_t oldest_ = 0;
};

}  // namespace troupe::actors
