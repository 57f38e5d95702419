// SPDX-License-Identifier: Apache-2.0
#pragma once
// The communicators that are being made of another one, until each of their ranks has taken its place or will never take it.

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <span>

#include "engine/world/division_state.hpp"
#include "protocols/chunk.hpp"

namespace troupe {

struct communicator_state;

/// A split ends on some ranks with an error, perhaps, and on others not. A rank that got an error never takes its place: the others are told
/// that it has left. A part lives until then though those that took their places have dropped it: only ranks that come and leave again end
/// it. Thread-safe.
class divisions {
public:
  /// @param spins looks before a thread sleeps while another one makes the part
  explicit divisions(int spins) : spins_(spins) {}

  /// The part that `members` (of the whole, in their order in the part) form by operation `which`, for one of them. The first that asks makes it; throws
  /// what `make` throws.
  std::shared_ptr<communicator_state> take(epoch_t which, int color, std::span<const rank_t> members,
                                           const std::function<std::shared_ptr<communicator_state>()>& make);
  /// The operation failed at `rank`.
  void give_up(epoch_t which, rank_t rank);
  /// Parts that not all members have taken or given up.
  std::size_t open() const;

private:
  std::unique_lock<std::mutex> lock() const;

  mutable std::mutex mutex_;  // once a rank and split
  division_state<std::shared_ptr<communicator_state>> parts_;
  int spins_;
};

}  // namespace troupe
