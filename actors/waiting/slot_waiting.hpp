// SPDX-License-Identifier: Apache-2.0
#pragma once
// Advances performers until all are done, without burning a core that somebody else needs: looks again `spin` times, gives the core
// away `yields` times, then sleeps until one of its ranks is written to.

#include <chrono>
#include <span>

#include "actors/ports/board_performer.hpp"
#include "actors/waiting/policy.hpp"

namespace troupe {

/// Questions and reports of a waiting thread, made now and then; never on the way of an operation that ends while it spins.
class slot_watch {
public:
  virtual ~slot_watch() = default;
  /// Give up? (cancelled, aborted.) Asked every few hundred looks and around every sleep. To release a sleeper: make this true, then
  /// slot_board::wake(rank).
  virtual bool stop() noexcept = 0;
  /// `patience` has passed once more since the wait began or since the last time: e.g. ask the membership who has come.
  virtual void impatient() {}
};

struct slot_wait_options {
  int spin = 4096;  ///< looks with a pause between; choose 0 when there are more ranks than cores
  int yields = 32;  ///< then, looks with a yield between
  int beside = 0;   ///< see waiting_policy
  std::chrono::nanoseconds patience = std::chrono::milliseconds{1};
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  slot_watch* watch = nullptr;
};
struct slot_wait_result {
  enum class ended : std::uint8_t { performed, mismatch, stopped, timed_out };
  ended how = ended::performed;
  int index = -1;  ///< of the performer that met the mismatch
};

/// @pre performers of one board and of different ranks, driven by this thread only. Unless all are performed, nothing is given up:
/// call again to go on, or abandon() each.
slot_wait_result wait_slots(std::span<board_performer* const> performers, const slot_wait_options& options = {});
slot_wait_result wait_slots(board_performer& performer, const slot_wait_options& options = {});

}  // namespace troupe
