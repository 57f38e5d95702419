// SPDX-License-Identifier: Apache-2.0
#pragma once
// A partitioned operation's board of pieces, with what its callers and its rank tell each other by it.
//
//   callers, any thread   announce() a piece, then rank_cell::announce(), which wakes the holder of the rank's turn
//   the rank's turn       performs what waited for it; pieces of the output that arrive are noted, and told when the turn is given back
//   tell()                the thread that gave it back: callbacks and a caller that waits
// One for all repetitions of an operation; after it is made nothing allocates but what callbacks do.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "actors/ports/parts/part_performer.hpp"
#include "actors/rank/inbox.hpp"
#include "actors/waiting/completion.hpp"
#include "actors/waiting/napping.hpp"
#include "protocols/perform/part_board.hpp"

namespace troupe::actors {

class operation_parts final : public part_board {
public:
  using callback = std::function<void(int)>;

  operation_parts(int inputs, std::vector<std::int32_t> needed)
      : part_board(inputs, std::move(needed)), callbacks_(static_cast<std::size_t>(outputs())) {
    wake.lent = true;
  }

  /// A callback of a piece runs on this thread.
  bool tells_here() const { return teller_.load() == std::this_thread::get_id(); }
  /// For the next repetition, whose number its rank gives it. @pre the last one has ended, and !tells_here()
  void begin_again() {
    give_way_until([this] { return !telling_.load(); });  // a callback of the last one
    reset();
    told_.store(0);
    for (listener& one : callbacks_) one.called = false;
    unready_then = -1;
    told_late = false;
  }

  // -- to the rank: a message that needs no memory --
  rank_message wake;
  std::atomic<bool> queued{false};  ///< `wake` is in the rank's inbox

  // -- the rank's turn --
  bool awaited = false;  ///< see shared_spaces::await_pieces()
  // How many pieces of the input were not ready, and since when; −1: nobody has looked yet. And whether the log was told of them.
  int unready_then = -1;
  steady_time unready_since{};
  bool told_late = false;
  epoch_t epoch = 0;                             ///< of the repetition under way
  std::unique_ptr<part_performer> performer;     ///< where ranks share their memory: made by the first repetition …
  bool by_mailbox = false;                       ///< … which has found that it needs more than a board has
  std::atomic<bool> listed{false};               ///< in the rank's list of those that have something to tell …
  std::shared_ptr<operation_parts> next_listed;  ///< … and the next there

  /// Nothing here refers to anybody's buffers any more. Any number of times.
  void leave() {
    if (performer) performer->leave();
  }
  std::vector<lane_wait> waits() const { return performer ? performer->waits() : std::vector<lane_wait>{}; }

  // -- to the callers --
  /// Somebody wants to hear of arrivals: a callback was set, or a caller waits for one. Both look at what has arrived after they have set that.
  bool is_listened_to() const noexcept { return has_callbacks_.load() || listens_.load(); }
  /// Something has arrived. Exceptions of callbacks are dropped; they run here, one after the other.
  void tell() noexcept {
    while (told_.load() < arrivals()) {
      if (telling_.exchange(true)) break;  // who tells already looks once more
      teller_.store(std::this_thread::get_id());
      for (int n = told_.load(); n < arrivals(); told_.store(++n)) call_back(arrival(n));
      teller_.store({});
      telling_.store(false);
    }
    news();
  }
  /// The operation is over, and its completion is done.
  void ended() noexcept { news(); }

  /// Waits by `sleep(completion)` until more than `known` pieces have arrived, or the operation has ended. One thread at a time.
  template <class Sleep>
  void wait_for_news(int known, const completion& end, Sleep&& sleep) {
    while (arrivals() <= known && !end.done()) {
      news_.reset();
      listens_.store(true);
      // A thread that has taken the flag is about to complete `news_`; one that has not will find the flag.
      if ((arrivals() > known || end.done()) && listens_.exchange(false)) return;
      sleep(news_);
    }
  }

  /// Called whenever the piece arrives, in this repetition and later ones; at once if it has arrived.
  void then(int piece, callback what) {
    auto kept = std::make_shared<callback>(std::move(what));
    has_callbacks_.store(true);
    {
      const std::lock_guard lock(mutex_);
      callbacks_[static_cast<std::size_t>(piece)] = {kept, false};
    }
    if (arrivals() > 0 && arrived(piece)) call_back(piece);  // the count is what is_listened_to() is in one order with
  }

private:
  struct listener {
    std::shared_ptr<callback> what;
    bool called = false;  ///< in this repetition
  };

  void call_back(int piece) noexcept {
    std::shared_ptr<callback> what;
    {
      const std::lock_guard lock(mutex_);
      listener& one = callbacks_[static_cast<std::size_t>(piece)];
      if (!std::exchange(one.called, true)) what = one.what;
    }
    if (!what) return;
    try {
      (*what)(piece);
    } catch (...) {}
  }

  void news() noexcept {
    if (listens_.exchange(false)) news_.complete(nullptr);
  }

  std::mutex mutex_;  ///< once a piece that arrives
  std::vector<listener> callbacks_;
  std::atomic<bool> has_callbacks_{false};
  std::atomic<int> told_{0};
  std::atomic<bool> telling_{false};
  std::atomic<std::thread::id> teller_{};
  std::atomic<bool> listens_{false};
  completion news_;
};

/// A line for each piece of the input that is not ready; of many, the first ones.
std::vector<std::string> unready_pieces(const operation_parts& of);

inline parts_message inbox::take(rank_message& m) noexcept {
  parts_message named = std::move(std::get<parts_message>(m.what));
  named->queued.store(false);
  return named;
}

}  // namespace troupe::actors
