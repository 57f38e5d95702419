#pragma once
// Where the ranks of one communicator begin their operations: numbers them, and performs those that go over slots (plan::slots).
// No CAF in here.
//
// Who performs for a rank, one at a time (`owned`):
//   1. the caller of a blocking operation itself, while the others come soon: no allocation, no message;
//   2. the caller of a group's wait, for all its ranks in turn;
//   3. who begins an asynchronous operation, as far as it goes at once, and who waits for it later: the seat is nobody's
//      (*unattended*) in between. Who waits so for one rank also takes others' unattended seats a step further, now and then;
//   4. the *attendant*, a thread that sleeps while nothing is written: it takes seats that were unattended for a while, and those
//      that the others hand over because they take long. Their callers then wait for the completion like for any other.
// A rank's operations on the board are begun in the order of their numbers; later ones queue up behind.
//
// So that starting an operation wakes nobody, the attendant naps instead of sleeping as long as seats were left unattended lately: it
// looks now and then, and takes what it finds for the second time. Who leaves a seat raises its flag, then looks whether the
// attendant sleeps; who falls asleep says so, then looks for flags (both sequentially consistent): one of them sees the other.
//
// Failure. Slots hold copies, so a failed operation is dropped at once; but nobody else knows that it was begun. So whoever has
// waited for long tells the membership (`called`), which finds out as for any other operation: different calls, ranks that left or
// will never come. What it decides comes back through failed(). Who performs the operation after all takes his word back
// (`withdraw`). A rank that comes late finds the failure before it begins. broken() is seen by every operation at once.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/rank/operation.hpp"
#include "actors/waiting/slot_waiting.hpp"

namespace troupe::actors {

/// Thread-safe.
class slot_desk {
public:
  /// What the desk tells. Any thread; must not call the desk.
  class outbox {
  public:
    virtual ~outbox() = default;
    virtual void called(epoch_t epoch, rank_t rank, const call& what) = 0;
    virtual void withdraw(epoch_t epoch, rank_t rank) = 0;
    virtual void fail(epoch_t epoch, const std::string& title, const failure_ptr& why) = 0;
    virtual void leave(rank_t rank, epoch_t operations) = 0;
    /// Have a thread call attend().
    virtual void start_attendant() = 0;
  };
  struct seat;

  /// @param slots false: only numbers. @param cores that the process may use @param spin looks of a waiting caller before it gives
  /// its core away, where every rank can have one @param first number of every rank's first operation
  slot_desk(int ranks, bool slots, int cores, int spin, std::unique_ptr<outbox> out, std::uint64_t first = 0);
  ~slot_desk();
  slot_desk(const slot_desk&) = delete;
  slot_desk& operator=(const slot_desk&) = delete;

  /// Plans may use slots here.
  bool has_slots() const { return board_ != nullptr; }

  // -- callers ----------------------------------------------------------------------------------------------------------

  /// Gives an operation that goes through the rank's actor its number; calls of several threads are submitted in any order.
  void number(rank_t rank, operation& op);
  /// Numbers an operation over slots and begins it: at once, or when the thread's `gathering` ends.
  void submit(rank_t rank, operation_ptr op);
  /// Performs the rank's operations on this thread until `done`, unless somebody else does already or it takes long: wait for its
  /// completion then. Returns soon after `until`. Other ranks' operations, too, may end on this thread.
  void help(rank_t rank, const completion& done, steady_time until);
  /// As far as they go at once.
  void help_briefly(rank_t rank);
  /// Somebody relies on an operation of the rank that nobody waits for.
  void attend_now(rank_t rank);

  struct turn {
    seat* at = nullptr;  ///< null: somebody performs for the rank already
    explicit operator bool() const { return at != nullptr; }
  };
  /// Begins a blocking operation that is like the rank's last one. Null also if it is not.
  turn begin_again(rank_t rank, const call& what);
  /// Begins any other. @pre how->slots
  turn begin(rank_t rank, const call& what, const plan_ptr& how);
  /// The plan of the rank's last call over slots, if this one is like it; null otherwise.
  plan_ptr plan_again(rank_t rank, const call& what) const;
  struct result {
    failure_ptr why;            ///< null: performed
    operation_ptr still_to_do;  ///< handed to the attendant: wait for it
  };
  /// @pre begun, by this thread
  result perform(turn mine, const void* input, void* output, std::optional<std::chrono::nanoseconds> deadline);

  /// While it lives, operations that this thread submits are only queued; drive() performs them here.
  class gathering {
  public:
    gathering();
    ~gathering();  ///< the attendants see to what is left
    gathering(const gathering&) = delete;
    gathering& operator=(const gathering&) = delete;
    void drive();

  private:
    friend class slot_desk;
    struct queued {
      slot_desk* desk;
      rank_t rank;
      bool elsewhere;
    };
    void make_room() {
      if (queued_.size() == queued_.capacity()) queued_.reserve(2 * queued_.size() + 8);
    }
    std::vector<queued> queued_;
    gathering* outer_;
  };

  /// Cancel: has the operation failed on all ranks, unless it is done.
  void end(rank_t rank, epoch_t epoch, const failure_ptr& why);
  /// Who is performing `epoch` over slots, or will. A rank that has numbered something later without saying so has performed it.
  struct presence {
    rank_t rank;
    std::optional<call> what;  ///< unknown: it is over
  };
  std::vector<presence> present(epoch_t epoch);
  /// Collectives of the rank before this one went through its actor, which has called them, or over slots.
  /// @param called epoch + 1 of the last one that the actor has called
  epoch_t settled(rank_t rank, epoch_t called) const;
  /// The rank calls nothing more; tells `leave` when its last operation is over.
  void leave(rank_t rank);

  // -- membership ---------------------------------------------------------------------------------------------------------

  void failed(epoch_t epoch, const failure_ptr& why);
  void broken(const failure_ptr& why);
  /// Everything under way fails; the attendant ends. Nothing is begun afterwards.
  void close();

  // -- the attendant --------------------------------------------------------------------------------------------------------

  /// Returns after close().
  void attend();
  /// Nothing over slots moves, and has not since the call before, which asked the attendant to look again.
  bool stands_still();
  /// This thread is completing an operation: it is inside a callback, and must not wait.
  static bool in_callback() noexcept;

private:
  class patience;
  class locker;
  enum class progress : std::uint8_t { none, some, done };

  seat& at(rank_t rank) const { return *seats_[static_cast<std::size_t>(rank)]; }
  turn take_turn(seat& s);
  void remember(seat& s, const call& what, const plan_ptr& how);
  slot_performer::status spin(seat& s) const;
  void learn(seat& s, std::chrono::nanoseconds slept) const;
  void set_up(seat& s, const slot_program& code, const plan& how, const call& what, const void* input, void* output,
              std::uint64_t fingerprint);
  bool perform_here(seat& s, const void* input, void* output, steady_time begun,
                    std::optional<std::chrono::nanoseconds> deadline);
  result give_up(seat& s, failure_ptr why);
  operation_ptr operation_of(seat& s, const void* input, void* output,
                             std::optional<std::chrono::nanoseconds> deadline) const;
  failure_ptr failure_of(seat& s, epoch_t epoch);
  bool has_failed(seat& s, epoch_t epoch) const;
  void stall(operation& op, const std::string& why);
  void drop(seat& s, std::uint64_t sequence);
  void release(seat& s);
  void hand_over(seat& s, operation_ptr op);
  void ask_attendant(rank_t rank, bool handed_over);
  bool have_attendant();
  void wake_attendant();
  bool any_unattended() const;

  // Of the owner:
  bool claim(seat& s);
  void park(seat& s);
  void start_here(rank_t rank);
  void begin_somewhere(rank_t rank, bool elsewhere);
  bool look_again(seat& s, const completion& done);
  void help_others(const seat& own);
  bool sleep_for(seat& s, steady_time until);
  bool drive(seat& s, bool& moved);
  void end_all(seat& s);
  void recall(seat& s, const operation& op);
  bool next_operation(seat& s);
  progress advance(seat& s);
  void settle_failures(seat& s);
  void finish(seat& s, failure_ptr why);
  void complete(seat& s, const operation_ptr& op, failure_ptr why);
  void enroll(seat& s, operation& op);
  steady_time look_after(seat& s, steady_time now);

  bool drive_all(std::vector<seat*>& mine);
  bool advance_all(const std::vector<seat*>& mine);
  bool take_inbox(std::vector<seat*>& mine);
  void adopt(std::vector<seat*>& mine, bool closed, steady_time now);
  bool fall_asleep();
  void wait_for_work(std::uint64_t asked);
  void sleep(std::vector<seat*>& mine, steady_time until, std::uint64_t asked);

  std::unique_ptr<outbox> out_;
  int ranks_;
  slot_wait_options waiting_;
  std::unique_ptr<slot_board> board_;
  std::vector<std::unique_ptr<seat>> seats_;
  std::atomic<bool> is_broken_{false};

  std::mutex mutex_;  // slow paths: asynchronous operations and failures
  std::condition_variable something_;
  struct request_for {
    rank_t rank;
    bool handed_over;
  };
  std::vector<request_for> inbox_;  ///< two a rank at most, for which there is room: asking allocates nothing
  std::vector<request_for> taken_;  ///< the attendant's: what was in it
  failure_ptr broken_;
  const failure_ptr no_memory_;
  bool started_ = false;
  bool closed_ = false;
  std::atomic<bool> fresh_{false};        ///< inbox_, failures or close(): look
  std::atomic<rank_t> sleeping_{-1};      ///< rank on whose ticket the attendant sleeps
  std::atomic<bool> idle_{true};          ///< the attendant sleeps, or there is none
  std::atomic<bool> asleep_{true};        ///< it sleeps, or there is none: who leaves a seat unattended has to wake it
  steady_time next_look_{};               ///< the attendant's: at unattended seats
  int restless_ = 0;                      ///< the attendant's: how many more naps …
  int futile_looks_ = 0;                  ///< … in a row it found nothing to take …
  std::chrono::nanoseconds nap_{50'000};  ///< … and how long the next one is
  std::atomic<std::uint64_t> asked_{0}, answered_{0};  ///< see stands_still()
};

}  // namespace troupe::actors
