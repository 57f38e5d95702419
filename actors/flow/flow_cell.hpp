// SPDX-License-Identifier: Apache-2.0
#pragma once
// One run of a flow on one rank: the states of its nodes and of its end, and the *turn*, without which nobody touches them.
//
// Holders of the turn: (1) the thread that waits for the flow, so that a rank's nodes cost no wake-up and no message between threads; (2) while nobody
// waits, and the keeper has found that, a thread of the scheduler, which gives the turn to the one that comes to wait after the tile at hand. A turn is
// taken without waiting; a thread that does not get it leaves a letter and goes.
//
// The nodes' words to each other stand in one queue, of which the holder of the turn takes the first: so nodes take turns, and a run goes like the other
// but for when letters come. There is room for all that the credits allow. Letters come from outside: a part that has arrived, an operation that has
// ended; each has its place from the beginning. Nothing allocates but failures.
//
// No letter is overlooked. Writer: W1 push, W2 read `held_`; if nobody has the turn, see to it that somebody takes it. Holder: H1 give the turn
// back, H2 look at the letters, and see to it that somebody takes the turn again if there is one. All four are sequentially consistent: either W2 sees that the
// turn is free, or H2 sees the letter. A thread that waits enters (E1) before it looks whether the turn is wanted (E2), and both W2 and H2 come before a look at
// who has entered, under the lock of E1: either E2 sees what there is to do, or the thread is woken. Where nobody waits the same goes for `adopted_`, which the
// keeper sets before it looks.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "actors/flow/flow_host.hpp"
#include "actors/flow/flow_plan.hpp"
#include "actors/flow/flow_run_state.hpp"
#include "actors/waiting/parking.hpp"

namespace troupe::actors {

class flow_cell;

/// The threads for runs that nobody waits for. Any thread.
class flow_threads {
public:
  virtual ~flow_threads() = default;
  /// Have some thread call flow_cell::turn_briefly() soon.
  virtual void schedule(const std::shared_ptr<flow_cell>& which) noexcept = 0;
};

class flow_cell final : public std::enable_shared_from_this<flow_cell>, private flow_run_outbox {
public:
  /// All nodes are ready to begin; nobody is told. @param nodes outlive the run. @param watched the host wants to hear of waits
  flow_cell(std::shared_ptr<const flow_plan> plan, std::vector<flow_node_state>& nodes, std::shared_ptr<flow_host> host,
            std::shared_ptr<flow_threads> threads, int operations, int agreements, bool watched);
  ~flow_cell() override;
  flow_cell(const flow_cell&) = delete;
  flow_cell& operator=(const flow_cell&) = delete;

  // -- letters; any thread ------------------------------------------------------------------------------------------------

  /// A part of the collective's output is there; each once.
  void arrived(std::int32_t node, std::int32_t part) noexcept;
  /// An operation of the run is over; each once.
  void ended(int operation, failure_ptr why) noexcept;
  /// Ends the run, though nobody waits for it. Throws std::bad_alloc.
  void fail(failure_ptr why);
  /// The run's time is over. Throws std::bad_alloc.
  void late();

  // -- who turns it ---------------------------------------------------------------------------------------------------------

  /// A caller is about to wait for the run's end, and to turn it itself. It looks at wants_turn() before it sleeps at `place`. One at a time.
  void enter(parker& place);
  void leave();
  /// Nobody has the turn, and there is something to do with it.
  bool wants_turn() const noexcept {
    return !held_.load() && (more_.load() || letters_.load() != nullptr) && !is_over();
  }
  bool is_over() const noexcept { return over_.load(std::memory_order_acquire); }
  /// By the keeper: if nobody waits for the run, and somebody should turn it, a thread of the scheduler does from now on.
  void adopt() noexcept;

  // -- the turn ---------------------------------------------------------------------------------------------------------------

  enum class step : std::uint8_t {
    nothing,  ///< there was nothing to do
    moved,    ///< everything is done that could be done without work on a tile
    worked    ///< a tile was worked on
  };
  bool try_turn() noexcept { return !held_.load() && !held_.exchange(true); }
  /// Reads the letters, and goes on until a tile was worked on or nothing is left. @pre the turn is held
  step advance() noexcept;
  /// @pre held
  void end_turn() noexcept;
  /// By a thread of the scheduler: some tiles, until a caller comes to wait.
  void turn_briefly() noexcept;
  /// No thread will turn it any more: the run is over with this reason. If somebody has the turn, what it leaves asks for a thread.
  void abandon(const failure_ptr& why) noexcept;

private:
  struct letter {
    enum class kind_of : std::uint8_t { arrived, ended, fail, late };
    kind_of kind = kind_of::arrived;
    bool own = false;  ///< made for this letter; else it has its place in the cell
    std::int32_t node = 0, part = 0;
    failure_ptr why{};
    letter* next = nullptr;
  };
  /// What one node says to another, or to itself.
  struct word {
    enum class kind_of : std::uint8_t { go_on, tile, back };
    kind_of kind = kind_of::go_on;
    std::int32_t node = 0;
    std::int32_t port = 0;
    flow_tile tile{};
  };
  class voice;

  void push(letter& what) noexcept;
  void push_new(letter::kind_of kind, failure_ptr why);
  void summon() noexcept;
  bool read_letters();
  void read(letter& what);
  void hear(const word& what);
  void say(const word& what);
  void note(std::int32_t node);
  step go();

  // -- flow_run_outbox --
  void stop_nodes() override;
  void agree() override { host_->agree(); }
  void end_operations(const failure_ptr& why) override { host_->end_operations(why); }
  void over(const failure_ptr& why) override;
  void tell_end();

  // Others' words and the holder's, on lines of their own.
  alignas(128) std::atomic<letter*> letters_{nullptr};
  std::atomic<bool> held_{false};
  std::atomic<bool> more_{true};  ///< words are left in the queue; of the last holder of the turn
  std::atomic<bool> over_{false};
  std::atomic<bool> adopted_{false};
  std::atomic<bool> awaited_{false};  ///< `waiter_` is set
  std::mutex mutex_;                  ///< next to a sleep or a wake-up
  parker* waiter_ = nullptr;
  alignas(128) const std::shared_ptr<const flow_plan> plan_;
  std::vector<flow_node_state>& nodes_;
  const std::shared_ptr<flow_host> host_;
  const std::shared_ptr<flow_threads> threads_;
  const bool watched_;
  flow_run_state state_;
  std::vector<letter> places_;             ///< of arrivals, node after node, then of ends
  std::vector<std::int32_t> arrivals_of_;  ///< by node: its first place
  std::int32_t ends_at_ = 0;               ///< the first place of ends
  std::vector<word> queue_;                ///< a ring
  std::size_t first_ = 0, words_ = 0;
  bool worked_ = false;  ///< since somebody asked
  bool ends_ = false;    ///< the run is over, and its owner is told as soon as no node is in a transition
  failure_ptr why_ends_;
};

}  // namespace troupe::actors
