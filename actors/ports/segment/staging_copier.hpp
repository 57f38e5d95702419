// SPDX-License-Identifier: Apache-2.0
#pragma once
// Copies to staging buffers. Their lines are in the cache of the core that read them last. A core that shares a cache with that one takes them over for
// next to nothing; to one that does not, each line is a transfer that the copy waits for, and it takes ten times as long as stores past the caches, which
// the reader then waits for a little longer. Which cores these are changes during a job, most of all on virtual machines, so a rank looks at how long its
// own copies take, now and then.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>

#include "actors/ports/segment/copy_costs.hpp"
#include "memory/kernels/kernels.hpp"

namespace troupe {

/// Of copies of similar lengths. Pure: it is told how long they took. Not synchronised.
class staging_choice {
public:
  static constexpr unsigned in_a_row = 32;  ///< copies past the caches, until another is tried through them
  static constexpr unsigned timed_once_in = 4;
  static constexpr double forgetting = 2048;  ///< timed copies, in which about two thirds are forgotten

  bool past_caches() const { return left_ > 0; }
  /// The next copy's time is wanted.
  bool wants_time() const { return tries_ || copies_ % timed_once_in == 0; }
  /// @param nanoseconds a KiB; 0: not timed
  void copied(double nanoseconds) {
    ++copies_;
    if (past_caches()) {
      // One that was interrupted says little.
      if (nanoseconds > 0) past_ += (std::min(nanoseconds, 2 * past_) - past_) / 4;
      tries_ = --left_ == 0;
    } else if (nanoseconds > 0) {
      tries_ = false;
      // Something else may have made those past the caches slow, which would never be tried again: that is forgotten, slowly.
      past_ += (std::min(usual, past_) - past_) / forgetting;
      if (nanoseconds > copy_costs::reader_pays * past_) left_ = in_a_row;
    }
  }

private:
  static constexpr double usual = 40;  ///< nanoseconds a KiB past the caches, about, of a core of today
  double past_ = usual;                ///< the same as timed here
  unsigned left_ = 0, copies_ = 0;
  bool tries_ = true;  ///< the next one shows what copies through the caches cost
};

/// One thread at a time.
class staging_copier {
public:
  /// @param whole bytes that are copied to the buffer, of which this may be a part @pre they do not overlap
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, std::size_t whole) {
    if (bytes < shortest_timed) return troupe::copy(to, from, bytes, store_hint::cached);
    staging_choice& choice = choices_[whole < long_from ? 0 : 1];
    const store_hint hint = choice.past_caches() ? store_hint::streamed : store_hint::cached;
    if (!choice.wants_time()) {
      troupe::copy(to, from, bytes, hint);
      return choice.copied(0);
    }
    const auto begun = std::chrono::steady_clock::now();
    troupe::copy(to, from, bytes, hint);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begun;
    choice.copied(took.count() * 1024 / static_cast<double>(bytes));
  }

private:
  static constexpr std::size_t shortest_timed = 4 * 1024;  ///< less is not long beside two looks at the clock
  static constexpr std::size_t long_from = 256 * 1024;     ///< what its reader's own cache may have lost again
  std::array<staging_choice, 2> choices_;
};

}  // namespace troupe
