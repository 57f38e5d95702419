// SPDX-License-Identifier: Apache-2.0
#pragma once
// The communicators that are being made of another one, until each of their ranks has taken its place or will never take it.

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "protocols/chunk.hpp"

namespace troupe {

struct communicator_state;

/// A split ends on some ranks with an error, perhaps, and on others not. Who got an error never takes its place: the others are told
/// that it has left. A part lives until then though those that took their places have dropped it: only ranks that come and leave again end
/// it. Thread-safe.
class divisions {
public:
  /// @param spins looks before a thread sleeps while another one makes the part
  explicit divisions(int spins) : spins_(spins) {}

  /// The part that `members` (of the whole, in their order in the part) form by operation `which`. Whoever comes first makes it; throws
  /// what `make` throws.
  std::shared_ptr<communicator_state> take(epoch_t which, int color, rank_t taker, std::span<const rank_t> members,
                                           const std::function<std::shared_ptr<communicator_state>()>& make);
  /// The operation failed at `rank`.
  void give_up(epoch_t which, rank_t rank);
  /// Parts that not all members have taken or given up.
  std::size_t open() const;

private:
  struct part {
    std::shared_ptr<communicator_state> made;
    std::vector<rank_t> members;
    std::vector<rank_t> settled;  ///< of them, those that live in this process: took it, or gave it up
  };
  using parts = std::map<std::pair<epoch_t, int>, part>;

  std::unique_lock<std::mutex> lock() const;
  void settle(parts::iterator which, rank_t rank);

  /// What failed before any rank had its part. Most never come up again, as no rank gets one.
  static constexpr std::size_t most_given_up = 64;

  mutable std::mutex mutex_;  // once a rank and split
  parts parts_;
  std::vector<std::pair<epoch_t, rank_t>> given_up_;  ///< the oldest first
  int spins_;
};

}  // namespace troupe
