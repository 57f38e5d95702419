// SPDX-License-Identifier: Apache-2.0
#pragma once
// A rank as an actor: its state, its inbox, and its *turn*, without which nobody touches the state.
//
// Holders of the turn: (1) the caller of a blocking operation, while the others come soon; (2) the caller of a group's wait, all its
// ranks at once; (3) a thread that begins or waits for an asynchronous operation; (4) a thread of the scheduler, or one that helps it, when
// a message has come and nobody of those is there; (5) the communicator's attendant, for what nobody waits for. A turn is taken
// without waiting; a thread that does not get it leaves a message and goes.
//
// No message is overlooked. Writer: W1 push, W2 read `held_`; if nobody holds the turn, see to it that somebody takes it. Holder:
// H1 give the turn back, H2 look at the inbox, and take the turn again if there is something. All four are sequentially consistent:
// either W2 sees that the turn is free, or H2 sees the message. A holder that sleeps (only on the slot board) announces that before it
// looks at the inbox the last time (S1 `asleep_`, S2 inbox), and a writer that finds the turn held reads `asleep_` after W1.
// One exception, where threads can be made to pass a barrier: a blocking call that has found the rank at rest, and leaves it so, gives the turn
// back by a plain store. A writer of an urgent
// message (below) that finds such a call in the turn has all threads pass a barrier, and does W2 again: either the call's H2 comes after the
// barrier, or its H1 comes before it.
// Another one: a caller that yields gives the turn away meanwhile (rank_cell::yield_turn), and announces that before, by `returning_`. A writer then
// wakes nobody, or takes the turn itself, and a thread that ends a turn then leaves nothing to others: the caller comes back for all of that. It takes
// `returning_` back and then asks for the turn once more; if another thread has it all the same, it marks that something is left. tests/lanes/turn_model_test.cpp
// has these rules, too.
// An idle rank is not turned for a chunk that comes early: the next call finds it in the inbox. Other messages are *urgent*: their
// writer marks that between W1 and W2, and a reader takes that back before it reads the inbox.
//
// Out of memory. A turn is given back whatever happens in it, and what has ended is told. A transition that throws (users' functions are
// caught where they are called) leaves the state in between: the rank ends its communicator everywhere (rank_state::break_down), and if
// there is no memory for that either, tries again at its next turn. The rest of the inbox is still read.

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "actors/rank/inbox.hpp"
#include "actors/rank/rank_state.hpp"
#include "actors/waiting/core_leaver.hpp"
#include "actors/waiting/parking.hpp"
#include "actors/waiting/policy.hpp"
#include "actors/waiting/time_limit.hpp"
#include "memory/process_barrier.hpp"

namespace troupe::actors {

class rank_cell;

/// The event that a caller waits for; unknown: any.
struct awaited {
  std::span<const operation_ptr> ops{};
  const completion* done = nullptr;
  bool is_known() const { return !ops.empty() || done != nullptr; }
};

/// What a rank needs of the threads around it. Any thread.
class rank_host {
public:
  virtual ~rank_host() = default;
  /// Have some thread call rank_cell::run() soon.
  virtual void schedule(rank_cell& which) = 0;
  /// Turns one rank that waits for it, if any; on the calling thread. False: nobody waits.
  virtual bool help_one() = 0;
  /// The rank was left with something under way.
  virtual void unattended(rank_cell& which) = 0;
  /// Like unattended(), but it takes long, or its caller is not coming back to it.
  virtual void attend(rank_cell& which) = 0;
  /// Take steps further for ranks that were left with something under way.
  virtual void help_unattended(rank_cell& except) = 0;
};

class rank_cell {
public:
  /// @param out where the rank's messages go. The others outlive the cell.
  rank_cell(rank_state_options options, arena& memory, shared_spaces& spaces, slot_board* board,
            const waiting_policy& waiting, rank_host& host, std::unique_ptr<rank_outbox> out);
  ~rank_cell();
  rank_cell(const rank_cell&) = delete;
  rank_cell& operator=(const rank_cell&) = delete;

  rank_t rank() const { return state_.rank(); }

  // -- messages; any thread -----------------------------------------------------------------------------------------------

  void post(chunk_message&& what);
  void post(const credit_message& what);
  void post(rank_order&& what);
  /// What an idle rank need not hear before it calls next.
  void leave_word(rank_order&& what);
  /// The same as post(), but on the calling thread where nobody has the turn: for a thread that is about to wait anyway.
  void tell_now(rank_order&& what);
  /// Submits an operation in the order of the calling thread's calls, and begins it if nobody else has the turn.
  void submit(operation_ptr op);
  /// Pieces of an operation that was submitted are ready: what waited for them is done here if nobody has the turn. Allocates nothing. Any thread.
  void announce(const std::shared_ptr<operation_parts>& which) noexcept;
  /// The same from a peer that has left something for the rank on a board: the holder of the turn looks there. From the holder of the peer's turn.
  void hear(const std::shared_ptr<operation_parts>& whose) noexcept;
  /// The caller's handle is gone. @pre nothing is submitted afterwards
  void leave();
  /// Takes the turn if it is free, and does what there is to do.
  void run();

  // -- callers --------------------------------------------------------------------------------------------------------------

  /// How far a blocking operation over the boards has come when the call returns.
  enum class call_end : std::uint8_t {
    not_begun,  ///< something else comes first, or it is not remembered; submit an operation
    performed,
    later,  ///< it takes long, or has failed: take_rest()
  };
  /// What is left of one to its caller.
  struct rest_of_call {
    failure_ptr why;            ///< it has failed
    operation_ptr still_to_do;  ///< wait for it
  };
  /// If it is like one of the rank's last calls. @param checked its words, which were found right, if they are to be known next time
  call_end perform_again(const call& what, const std::optional<checked_call>& checked, const call_buffers& memory,
                         time_limit deadline);
  /// If its words, not checked yet, are those of such a call. @pre of the first: blocks of one size
  call_end perform_unchecked(const checked_call& words, const call& what, const call_buffers& memory,
                             time_limit deadline);
  call_end perform_unchecked(const plain_call& what, time_limit deadline);
  /// If it is of a class that was noted.
  call_end perform_listed(const listed_call& what, time_limit deadline);
  /// @pre how->on_board()
  call_end perform(const call& what, const plan_ptr& how, const call_buffers& memory, time_limit deadline);
  /// @pre such a call has returned `later`. The thread that calls.
  rest_of_call take_rest() noexcept { return std::exchange(left_, {}); }
  /// Its number. @pre one has begun. The thread that calls.
  epoch_t number_of_call() const noexcept { return number_of_call_; }
  /// Blocking sends and receives on the pair board, of different rows; at most as many as pairs::most_inline.
  enum class pairs_end : std::uint8_t {
    not_begun,  ///< something else comes first, or there is no board; submit operations
    performed,
    later,  ///< those that take long are operations now: take_pairs(), and wait for them
  };
  pairs_end perform_pairs(std::span<const pair_call> calls, time_limit deadline);
  /// Null pointers in place of those that are over. The thread that calls.
  std::array<operation_ptr, pairs::most_inline> take_pairs() noexcept { return std::exchange(pairs_to_do_, {}); }
  /// The caller has waited so long for what was still to do, of so many bytes: it will look for as long as that says. The thread that calls.
  void waited_for_pairs(std::chrono::nanoseconds time, std::size_t bytes) noexcept;
  /// The same of what a group has under way. Any thread.
  void waited_for_group(std::chrono::nanoseconds time, std::size_t bytes) noexcept;
  /// The plan of the rank's last such call; null if there is none, or somebody else has the turn.
  plan_ptr plan_again(const call& what);

  /// Submits operations of a caller that waits for all of them, and turns the rank until then, as help() does: without giving the
  /// turn back in between, so that nobody is told of an operation that ends at once.
  void submit_and_help(std::span<const operation_ptr> ops);

  /// Turns the rank until `done`, unless another thread has the turn for more than some looks, or it takes long: wait for the completion then.
  /// Returns soon after `until`.
  void help(const completion& done, steady_time until);
  /// The same until `over()`, which is asked often: a caller here waits for pieces of an operation to arrive, or for something else that
  /// comes of the rank's messages.
  template <class Over>
  void help_until(Over&& over, steady_time until) {
    if (in_callback()) return;
    while (!over() && try_turn() && help_in_turn(until)) {}
  }
  /// A caller turns the rank between other work of its own, until it says that it does not any more: what is not urgent wakes nobody meanwhile, and is the
  /// attendant's if that work takes long.
  void tend(bool on) noexcept;
  /// When the last help() ended, another thread was at work for the rank and needs a core: the NIC's, or the attendant where each rank has one and no
  /// more are there. A caller that waits had better sleep at once.
  bool gives_way() const noexcept {
    return gives_way_.load(std::memory_order_relaxed) || (!waiting_.spare && attended.load(std::memory_order_relaxed));
  }
  /// As far as it goes at once.
  void help_briefly();
  /// A caller is about to sleep at `place` until an operation of this rank has ended: while one does, what there is to do for the rank
  /// wakes a caller and nobody else, since one would have to be woken anyway. @pre leave_wait() follows; the caller looks at
  /// wants_turn() in between, and takes the turn then
  void enter_wait(parker& place);
  void leave_wait(parker& place);
  /// Nobody has the turn, and there is something to do with it: messages, or a board that nobody looks at.
  void leave_to_attendant() noexcept { deserted_.store(false); }
  bool wants_turn() const noexcept { return !is_held() && (!inbox_.empty() || deserted_.load()); }
  /// This thread is telling a caller about the end of an operation: it is inside a callback, and must not wait.
  static bool in_callback() noexcept;

  /// While it lives, operations that this thread submits are only queued (unless a message of another begins them), and the turns of their ranks are kept where they were free;
  /// drive() performs them here. Allocates only for ranks whose turn somebody else has.
  class gathering {
  public:
    gathering();
    ~gathering();  ///< what is left begins, and is left to others
    gathering(const gathering&) = delete;
    gathering& operator=(const gathering&) = delete;
    /// Turns all ranks that were submitted to, until nothing of theirs is under way or it takes long. Returns the rank, if it was one alone and
    /// takes long: waited_for_group().
    rank_cell* drive();

  private:
    friend class rank_cell;
    bool take(rank_cell& which);
    void keep(rank_cell& which) noexcept;
    rank_cell* give() noexcept;
    void add_other(rank_cell& which);
    bool turn_each() noexcept;
    rank_cell* first_ = nullptr;  ///< whose turns it keeps, in the order of their first operations
    rank_cell** end_ = &first_;
    std::vector<rank_cell*> others_;  ///< each once
    gathering* outer_;
  };

  // -- the turn -------------------------------------------------------------------------------------------------------------

  bool try_turn() noexcept;
  /// Everything that can be done now. True: something has moved. @pre the turn is held
  bool turn() noexcept;
  /// Begins what was only queued. @pre held
  void begin_queued() noexcept;
  /// rank_state::advance(). @pre held
  bool advance() noexcept;
  /// rank_state::tick(). @pre held
  steady_time tick() noexcept;
  /// Which thread sees to what is left under way when a turn is given back.
  enum class care : std::uint8_t {
    none,   ///< the thread that gives it back
    left,   ///< the next one that comes
    seen,   ///< and the attendant has seen it so
    timed,  ///< the attendant, at some time
  };
  /// Gives the turn back, tells callers what has ended, and sees to what is left. @pre held
  void end_turn(care of_rest = care::left) noexcept;
  /// @pre held
  rank_state& state() { return state_; }
  rank_outbox& out() { return *out_; }

  bool inbox_empty() const { return inbox_.empty(); }
  /// Something is under way, or was when the turn was given back last.
  bool pending() const { return pending_.load(std::memory_order_relaxed); }
  /// Nobody is at work here, and there is no message that could move anything.
  bool rests() const {
    return (!is_held() || asleep_.load()) && (inbox_.empty() || (!pending_.load() && !urgent_.load()));
  }

  /// Written by the thread that ends a turn, and by the attendant (attendant.hpp).
  std::atomic<care> unattended{care::none};
  /// Written by the attendant: it has the turn, and works on what is on the rank's board.
  std::atomic<bool> attended{false};
  /// Written by rank_threads: a thread is going to call run().
  std::atomic<bool> scheduled{false};
  /// The holder is about to sleep on the board, or has slept. It looks at the inbox in between.
  void falls_asleep(bool asleep) { asleep_.store(asleep); }

private:
  class watch;
  friend class watch;
  /// Of the turn.
  enum class holder : std::uint8_t {
    nobody,
    somebody,
    call,  ///< a blocking one that may give it back by a plain store (end_turn_at_rest())
  };

  template <class What>
  void push(What&& what, bool urgent);
  void wake_holder();
  bool wake_caller() noexcept;
  void summon(bool urgent) noexcept;
  void begin_soon() noexcept;
  template <class Step>
  bool transit(Step&& step) noexcept;
  void break_down() noexcept;
  void enter(const operation_ptr& op) noexcept;
  static void tell(ended_operations ended) noexcept;
  static void tell(std::shared_ptr<operation_parts> arrivals) noexcept;
  void read(rank_message& what) noexcept;
  bool drain() noexcept;
  void read_lent(rank_message& what) noexcept;
  void notify(bool urgent);
  bool call_has_ended() noexcept;
  bool is_held() const noexcept { return held_.load() != holder::nobody; }
  class visits;
  void take_news() noexcept;
  void notify_from_here(bool urgent);
  bool take_turn(holder by) noexcept;
  bool turn_for_call() noexcept;
  bool may_begin_in_turn() noexcept;
  void end_turn_at_rest() noexcept;
  template <class Recall>
  bool recalled(Recall&& recall);
  template <class Recall>
  call_end perform_if(const checked_call& words, Recall&& recall, const call_buffers& memory, time_limit deadline);
  bool perform_here(time_limit deadline, steady_time begun);
  bool wait_here(board_performer::status status, time_limit deadline, steady_time begun);
  bool look_at_pairs(bool send, std::size_t bytes);
  bool sleep_for_pairs(std::size_t bytes, time_limit deadline, steady_time begun);
  call_end perform_begun(const call_buffers& memory, time_limit deadline);
  call_end perform_later(const call_buffers& memory, time_limit deadline, steady_time begun,
                         const std::exception_ptr& problem);
  bool drive_alone() noexcept;
  bool look_at_group() noexcept;
  bool look_at_watched() noexcept;
  bool has_ended(const awaited& what) const;
  bool help_in_turn(steady_time until, const awaited& what = {});
  bool help_one() noexcept;
  enum class looked : std::uint8_t { nothing, moved, turn_lost };
  looked look_again(const awaited& what) noexcept;
  bool yield_turn(bool& yielded) noexcept;
  bool comes_back() noexcept;
  bool sleep_on_board(steady_time until);
  void learn(std::chrono::nanoseconds slept);

  // Others' words and the holder's, on lines of their own.
  alignas(128) std::atomic<holder> held_{holder::nobody};
  std::atomic<bool> pending_{false};  ///< something is under way that chunks and credits move
  std::atomic<bool> asleep_{false};   ///< the holder sleeps on the board
  std::atomic<bool> urgent_{false};   ///< there is a message that an idle rank must read, too
  std::atomic<bool> gives_way_{false};
  std::atomic<bool> deserted_{
      false};  ///< the turn was given back with an operation on the board, to the first that comes
  std::atomic<int> waiters_{0};
  std::atomic<int> returning_{0};   ///< callers that have given the turn away for a yield, and see to what is left then
  std::atomic<int> yields_on_{-1};  ///< the core of the last of them
  std::atomic<int> tenders_{0};
  /// Where this rank was the last to leave an operation for a NIC's thread, which may doze: the first caller of the rank that waits wakes it. Null when nothing is
  /// under way.
  std::atomic<doorbell*> nic_{nullptr};
  std::mutex waiting_mutex_;       // next to a sleep or a wake-up
  std::vector<parker*> sleepers_;  ///< callers, the first to come first
  alignas(128) inbox inbox_;
  alignas(128) rank_state state_;
  std::unique_ptr<rank_outbox> out_;
  rank_host* host_;
  const failure_ptr* no_memory_;  ///< made while there was some
  bool broke_down_ = false;       ///< and could not say so
  bool at_rest_ = false;          ///< rank_state::at_rest(), and nothing but performed calls since; false: unknown
  std::atomic<gathering*> keeper_{
      nullptr};  ///< that keeps the turn; others than its thread only learn that it is not theirs
  rank_cell* next_kept_ = nullptr;
  waiting_policy waiting_;
  std::chrono::nanoseconds pairs_waited_{-1};  ///< the caller's own; −1: learned
  core_leaver leaver_;                         ///< of the holder of the turn
  seldom_looks long_looks_;                    ///< see look_at_pairs()
  std::atomic<bool> has_barrier_{process_barrier_works(barrier_of::this_process)};
  const bool visits_;         ///< what others hear of this rank's turn is done by its thread
  int spin_;                  ///< looks of a caller before it does anything else; follows what has paid lately
  unsigned quick_calls_ = 0;  ///< that found at their first look what they waited for
  std::array<operation_ptr, pairs::most_inline> pairs_to_do_;  ///< the caller's own; see take_pairs()
  rest_of_call left_;                                          ///< the caller's own; see take_rest()
  epoch_t number_of_call_ = 0;                                 ///< the caller's own
};

}  // namespace troupe::actors
