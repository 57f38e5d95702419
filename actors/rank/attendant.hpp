// SPDX-License-Identifier: Apache-2.0
#pragma once
// The thread of a communicator that cares for ranks which nobody turns: it performs what is on their boards, and keeps their time
// (deadlines; telling the membership what takes long). It sleeps while nothing is left to it, and is started when something is.
//
// Starting an operation should wake nobody. So the attendant naps instead of sleeping as long as ranks were left unattended lately
// (nap_course): it looks now and then, and takes what it finds for the second time. A thread that gives a turn back marks the rank as left, then
// checks whether the attendant sleeps; the attendant says that it sleeps, then looks for marks (all sequentially consistent): one of
// them sees the other.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <vector>

#include "actors/ports/slots/slot_board.hpp"
#include "actors/rank/rank_cell.hpp"
#include "memory/placed.hpp"

namespace troupe::actors {

class attendant {
public:
  using cell_list = std::pmr::vector<placed_ptr<rank_cell>>;

  /// @param cells, board, memory outlive it; board may be null. @param start has a thread call work(), and may throw. @param memory of its lists, each
  /// of which gets room for all cells once
  attendant(const cell_list& cells, slot_board* board, int ranks, std::function<void()> start,
            std::pmr::memory_resource& memory);

  // -- any thread --
  /// A rank is marked as left.
  void something_left();
  /// Take this one now. @pre the caller does not have its turn
  void take(rank_cell& which);
  /// work() returns when nothing is left. Thread-safe.
  void close();
  /// Nothing that it cares for moves, and has not since the call before, which asked it to look again.
  bool stands_still();

  // -- its own thread --
  void work();

private:
  struct timer {
    steady_time when;
    rank_cell* cell;
  };

  bool start_if_none();
  void no_thread(const char* reason) noexcept;
  void wake();
  bool any_left() const;
  void care_for(rank_cell& cell);
  bool take_asked();
  void adopt(bool closed, steady_time now);
  void keep_time(steady_time now);
  bool turn_all();
  void let_all_go();
  bool fall_asleep();
  void wait_for_work(std::uint64_t asked);
  void sleep_on_board(steady_time until, std::uint64_t asked);
  steady_time next_timer() const;

  const cell_list& cells_;
  slot_board* board_;
  std::function<void()> start_;

  std::mutex mutex_;  // slow paths only
  std::condition_variable something_;
  std::pmr::vector<rank_cell*> asked_for_;  ///< each once at most, and there is room: asking allocates nothing
  std::pmr::vector<rank_cell*> taken_;      ///< its own: what was in it
  bool started_ = false;
  bool closed_ = false;
  std::atomic<bool> fresh_{false};       ///< asked_for_ or close(): look
  std::atomic<rank_t> sleeping_{-1};     ///< rank on whose ticket it sleeps
  std::atomic<bool> idle_{true};         ///< it sleeps, or there is none
  std::atomic<bool> asleep_{true};       ///< the same, and it has to be woken for a rank that is left
  std::atomic<std::uint64_t> asked_{0};  ///< see stands_still()
  std::atomic<std::uint64_t> answered_{0};

  // Its own.
  std::pmr::vector<rank_cell*> mine_;  ///< whose turns it has: something is on their boards
  std::pmr::vector<rank_cell*> rest_;  ///< room for those it lets go
  std::pmr::vector<timer> timers_;     ///< of ranks whose turns it has given back
  steady_time next_look_{};            ///< at ranks that are left
  nap_course naps_;
};

}  // namespace troupe::actors
