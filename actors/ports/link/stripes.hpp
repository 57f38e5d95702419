// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which stripes of a chunk have come (frames.hpp). Stripes lie on a grid, so one bit for each tells that none comes twice, and all have come when
// their bytes are the chunk's. A plain state: no memory of the chunk's own, no lock, one thread at a time.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "actors/ports/link/frames.hpp"

namespace troupe::actors {

class stripe_set {
public:
  /// Allocates a bit for each stripe.
  explicit stripe_set(std::uint64_t bytes)
      : bytes_(bytes), begun_(static_cast<std::size_t>((bytes + stripe_bytes * 64 - 1) / (stripe_bytes * 64))) {}

  /// False: it has come before. @pre why_no_stripe() has nothing against it
  bool begin(std::uint64_t offset) {
    const std::uint64_t which = offset / stripe_bytes, bit = std::uint64_t{1} << which % 64;
    std::uint64_t& word = begun_[static_cast<std::size_t>(which / 64)];
    return (std::exchange(word, word | bit) & bit) == 0;
  }
  /// All of a stripe that has begun is here. True: all of the chunk is.
  bool finish(std::uint64_t offset) {
    done_ += std::min(stripe_bytes, bytes_ - offset);
    return done_ == bytes_;
  }
  std::uint64_t bytes() const { return bytes_; }

private:
  std::uint64_t bytes_;
  std::uint64_t done_ = 0;
  std::vector<std::uint64_t> begun_;
};

}  // namespace troupe::actors
