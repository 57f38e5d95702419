#include "actors/slot_desk.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <thread>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

#include "memory/error.hpp"
#include "memory/kernels.hpp"

namespace troupe::actors {

namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

/// How long an operation may take before the membership is told of it.
constexpr std::chrono::nanoseconds long_wait = 5ms;
/// Looks of an owner with a yield between, before it sleeps or hands over.
constexpr int most_yields = 32;

/// Looks without a pause, and the least that a caller spins where it may at all.
constexpr int least_spin = 64;

void pause_core() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

thread_local slot_desk::gathering* my_gathering = nullptr;
thread_local int callbacks = 0;

epoch_t epoch_of(std::uint64_t sequence) { return static_cast<epoch_t>(sequence) & ~point_to_point; }

/// Plans and programs are the same for both.
bool alike(const call& a, const call& b) {
  if (a.what != b.what || a.count != b.count || a.type != b.type || a.in_place != b.in_place || a.level != b.level || !b.uniform)
    return false;
  if (is_reduction(a.what) && (a.reduction.kind != b.reduction.kind || a.reduction.commutative != b.reduction.commutative ||
                               a.reduction.associative != b.reduction.associative))
    return false;
  return a.protocol == b.protocol && a.choreography == b.choreography;
}

steady_time expiry(steady_time begun, std::optional<std::chrono::nanoseconds> deadline) {
  return deadline && *deadline < no_deadline - begun ? begun + *deadline : no_deadline;
}

void divide_average(const call& what, int ranks, void* output) {
  if (is_reduction(what.what) && what.reduction.kind == op_kind::avg && what.count > 0)
    divide(what.type, static_cast<std::size_t>(ranks), output, output, what.count);
}

}  // namespace

struct alignas(128) slot_desk::seat {
  rank_t rank = 0;
  std::atomic<bool> locked{false};  ///< a few instructions a time; guards what follows
  bool owned = false;
  bool leaving = false, left = false;
  std::uint64_t next = 0;
  epoch_t followed = 0;               ///< epoch + 1 of the last operation that went to the rank's actor
  epoch_t active = operation::unset;  ///< being performed
  std::deque<operation_ptr> queue;    ///< to be performed, in order
  operation_ptr current;              ///< written by the owner
  std::map<epoch_t, failure_ptr> failures;  ///< not seen by the rank yet
  std::atomic<std::size_t> failure_count{0};

  // The owner's. The last blocking call, so that its repetition needs no plan; also read under the lock by who is not owner.
  call what;
  plan_ptr how;
  std::shared_ptr<const slot_program> code;
  std::uint64_t fingerprint_of_call = 0;
  std::uint64_t sequence = 0;
  int spin = 0;  ///< looks of a blocking caller, see slot_desk::spin()
  std::shared_ptr<const slot_program> running;  ///< of `current`
  std::optional<slot_performer> performer;
  std::vector<std::byte> scratch, l0;
};

class slot_desk::locker {
 public:
  explicit locker(seat& s) : s_(s) {
    for (int i = 0; s_.locked.exchange(true, std::memory_order_acquire); ++i)
      if (i > 16) std::this_thread::yield();
  }
  ~locker() { s_.locked.store(false, std::memory_order_release); }
  locker(const locker&) = delete;
  locker& operator=(const locker&) = delete;

 private:
  seat& s_;
};

/// Ends the wait of a blocking caller.
class slot_desk::patience final : public slot_watch {
 public:
  patience(const slot_desk& desk, seat& s) : desk_(desk), seat_(s) {}
  bool stop() noexcept override {
    return tired_ || desk_.is_broken_.load(std::memory_order_acquire) || desk_.has_failed(seat_, epoch_of(seat_.sequence));
  }
  void impatient() override { tired_ = true; }

 private:
  const slot_desk& desk_;
  seat& seat_;
  bool tired_ = false;
};

slot_desk::slot_desk(int ranks, bool slots, int cores, int spin, std::unique_ptr<outbox> out)
    : out_(std::move(out)), ranks_(ranks), waiting_(slot_waiting_for(ranks, cores)) {
  waiting_.spin = std::min(waiting_.spin, spin);
  if (slots) board_ = std::make_unique<slot_board>(ranks);
  for (rank_t r = 0; r < ranks; ++r) {
    seats_.push_back(std::make_unique<seat>());
    seats_.back()->rank = r;
    seats_.back()->spin = waiting_.spin;
    if (slots) seats_.back()->performer.emplace(*board_, r);
  }
}

slot_desk::~slot_desk() = default;

bool slot_desk::in_callback() noexcept { return callbacks > 0; }

// -- numbers ----------------------------------------------------------------------------------------------------------

void slot_desk::number(rank_t rank, operation& op) {
  seat& s = at(rank);
  const locker lock(s);
  op.sequence = s.next++;
  op.epoch = epoch_of(op.sequence);
  op.follows = std::exchange(s.followed, epoch_of(s.next));
}

void slot_desk::submit(rank_t rank, operation_ptr op) {
  seat& s = at(rank);
  op->begun = clock::now();
  op->expires = expiry(op->begun, op->deadline);
  bool nobody = false;
  {
    const locker lock(s);
    op->sequence = s.next++;
    op->epoch = epoch_of(op->sequence);
    s.queue.push_back(std::move(op));
    nobody = !s.owned;
  }
  if (!nobody) return;
  if (my_gathering != nullptr) my_gathering->queued_.emplace_back(this, rank);
  else ask_attendant(rank, false);
}

// -- blocking callers -------------------------------------------------------------------------------------------------

/// @pre locked
slot_desk::turn slot_desk::take_turn(seat& s) {
  s.owned = true;
  s.sequence = s.next++;
  s.active = epoch_of(s.sequence);
  return {&s};
}

slot_desk::turn slot_desk::begin_again(rank_t rank, const call& what) {
  seat& s = at(rank);
  const locker lock(s);
  if (s.owned || !s.how || !s.queue.empty() || !alike(s.what, what)) return {};
  s.what.reduction = what.reduction;
  return take_turn(s);
}

slot_desk::turn slot_desk::begin(rank_t rank, const call& what, const plan_ptr& how) {
  seat& s = at(rank);
  auto code = how->slot_program_of(rank);
  call same = what;
  plan_ptr before = how;  // the last one is let go outside the lock
  const locker lock(s);
  if (s.owned || !s.queue.empty()) return {};
  std::swap(s.what, same);
  std::swap(s.how, before);
  std::swap(s.code, code);
  s.fingerprint_of_call = fingerprint(s.what, 0);
  return take_turn(s);
}

void slot_desk::set_up(seat& s, const slot_program& code, const plan& how, const op& reduction, const void* input, void* output,
                       std::uint64_t fingerprint) {
  if (s.scratch.size() < code.scratch_bytes) s.scratch.resize(code.scratch_bytes);
  if (s.l0.size() < code.l0_bytes) s.l0.resize(code.l0_bytes);
  memory_map memory;
  memory.input = const_cast<std::byte*>(static_cast<const std::byte*>(input));
  memory.output = static_cast<std::byte*>(output);
  memory.scratch = s.scratch.data();
  memory.l0 = s.l0.data();
  s.performer->start(code, memory, how.work_type, reduction, s.sequence, fingerprint);
}

/// Looks again for as long as that has paid lately: it does not while the peers have no core of their own.
slot_performer::status slot_desk::spin(seat& s) const {
  auto status = s.performer->advance();
  for (int i = 0; i < s.spin && status == slot_performer::status::waiting; ++i) {
    if (i >= least_spin) pause_core();
    status = s.performer->advance();
  }
  s.spin = status == slot_performer::status::waiting ? std::max(s.spin / 4, std::min(waiting_.spin, least_spin))
                                                     : std::min(waiting_.spin, s.spin + s.spin / 4 + 1);
  return status;
}

slot_desk::result slot_desk::perform(turn mine, const void* input, void* output,
                                     std::optional<std::chrono::nanoseconds> deadline) {
  seat& s = *mine.at;
  const std::uint64_t sequence = s.sequence;
  failure_ptr why = failure_of(s, epoch_of(sequence));
  std::string problem;
  const auto begun = deadline ? clock::now() : steady_time{};
  auto ended = slot_wait_result::ended::stopped;
  if (!why) {
    try {
      set_up(s, *s.code, *s.how, s.what.reduction, input, output, s.fingerprint_of_call);
      // Most end here, before anything of a wait is set up.
      if (spin(s) == slot_performer::status::performed) {
        ended = slot_wait_result::ended::performed;
      } else {
        patience watch(*this, s);
        slot_wait_options how = waiting_;
        how.spin = 0;
        how.patience = deadline ? std::clamp<std::chrono::nanoseconds>(*deadline, 0ns, long_wait) : long_wait;
        how.watch = &watch;
        ended = wait_slots(*s.performer, how).how;
      }
    } catch (const std::exception& e) {
      problem = e.what();
    }
  }
  if (ended == slot_wait_result::ended::performed) {
    why = failure_of(s, epoch_of(sequence));
    if (!why) divide_average(s.what, ranks_, output);
    release(s);
    return {std::move(why), nullptr};
  }
  if (!why && problem.empty()) why = failure_of(s, epoch_of(sequence));
  if (why) {
    drop(s, sequence);
    release(s);
    return {std::move(why), nullptr};
  }
  operation_ptr op = operation_of(s, input, output, deadline);
  op->begun = deadline ? begun : clock::now() - long_wait;
  op->expires = expiry(op->begun, deadline);
  if (!problem.empty()) stall(*op, problem);
  hand_over(s, op);
  return {nullptr, std::move(op)};
}

operation_ptr slot_desk::operation_of(seat& s, const void* input, void* output,
                                      std::optional<std::chrono::nanoseconds> deadline) const {
  auto op = std::make_shared<operation>();
  op->what = s.what;
  op->plan = s.how;
  op->input = input;
  op->output = output;
  op->deadline = deadline;
  op->sequence = s.sequence;
  op->epoch = epoch_of(s.sequence);
  return op;
}

void slot_desk::hand_over(seat& s, operation_ptr op) {
  s.running = s.code;
  {
    const locker lock(s);
    s.current = std::move(op);
  }
  ask_attendant(s.rank, true);
}

/// The operation is not performed, and peers may reuse its slots.
void slot_desk::drop(seat& s, std::uint64_t sequence) {
  if (s.performer->idle()) board_->finish(s.rank, sequence);
  else s.performer->abandon();
}

void slot_desk::release(seat& s) {
  bool more = false, leaves = false;
  epoch_t operations = 0;
  {
    const locker lock(s);
    s.owned = false;
    s.active = operation::unset;
    more = !s.queue.empty();
    leaves = !more && s.leaving && !s.left;
    s.left = s.left || leaves;
    operations = epoch_of(s.next);
  }
  if (more) [[unlikely]]
    ask_attendant(s.rank, false);
  if (leaves) [[unlikely]]
    out_->leave(s.rank, operations);
}

// -- failure ----------------------------------------------------------------------------------------------------------

/// What ends the operation, if anything does; the rank has seen it then.
failure_ptr slot_desk::failure_of(seat& s, epoch_t epoch) {
  if (is_broken_.load(std::memory_order_acquire)) [[unlikely]] {
    const std::lock_guard lock(mutex_);
    return broken_;
  }
  if (s.failure_count.load(std::memory_order_acquire) == 0) [[likely]]
    return nullptr;
  std::map<epoch_t, failure_ptr> stale;
  failure_ptr why;
  const locker lock(s);
  if (const auto found = s.failures.extract(epoch)) why = found.mapped();
  // Of operations that went through the rank's actor.
  const epoch_t oldest = s.active == operation::unset ? epoch : s.active;
  std::erase_if(s.failures, [&](const auto& entry) { return before(entry.first, oldest); });
  s.failure_count.store(s.failures.size(), std::memory_order_release);
  return why;
}

bool slot_desk::has_failed(seat& s, epoch_t epoch) const {
  if (s.failure_count.load(std::memory_order_acquire) == 0) return false;
  const locker lock(s);
  return s.failures.contains(epoch);
}

void slot_desk::failed(epoch_t epoch, const failure_ptr& why) {
  if (!board_) return;
  for (const auto& s : seats_) {
    const locker lock(*s);
    const bool queued = std::any_of(s->queue.begin(), s->queue.end(), [&](const operation_ptr& op) { return op->epoch == epoch; });
    if (before(epoch, epoch_of(s->next)) && s->active != epoch && !queued) continue;  // over, or not over slots
    s->failures.try_emplace(epoch, why);
    s->failure_count.store(s->failures.size(), std::memory_order_release);
  }
  for (rank_t r = 0; r < ranks_; ++r) board_->wake(r);
  wake_attendant();
}

void slot_desk::broken(const failure_ptr& why) {
  if (!board_) return;
  {
    const std::lock_guard lock(mutex_);
    if (broken_) return;
    broken_ = why;
  }
  is_broken_.store(true, std::memory_order_release);
  for (rank_t r = 0; r < ranks_; ++r) board_->wake(r);
  wake_attendant();
}

void slot_desk::close() {
  if (!board_) return;
  broken(make_failure(errc::engine_closed, "the communicator ended with this operation under way"));
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  wake_attendant();
}

void slot_desk::end(rank_t rank, epoch_t epoch, const failure_ptr& why) {
  seat& s = at(rank);
  operation_ptr op;
  {
    const locker lock(s);
    if (s.current && s.current->epoch == epoch) op = s.current;
    for (const operation_ptr& queued : s.queue)
      if (queued->epoch == epoch) op = queued;
  }
  if (op) out_->fail(epoch, op->title(), why);
}

std::vector<slot_desk::presence> slot_desk::present(epoch_t epoch) {
  std::vector<presence> found;
  if (!board_) return found;
  bool here = false;
  for (const auto& s : seats_) {
    const locker lock(*s);
    std::optional<call> what;
    if (s->active == epoch) what = s->current ? s->current->what : s->what;
    for (const operation_ptr& op : s->queue)
      if (op->epoch == epoch) what = op->what;
    here = here || what;
    if (what || before(epoch, epoch_of(s->next))) found.push_back({s->rank, std::move(what)});
  }
  return here ? found : std::vector<presence>{};
}

void slot_desk::leave(rank_t rank) {
  seat& s = at(rank);
  epoch_t operations = 0;
  {
    const locker lock(s);
    s.leaving = true;
    if (s.owned || !s.queue.empty() || s.left) return;
    s.left = true;
    operations = epoch_of(s.next);
  }
  out_->leave(rank, operations);
}

/// It cannot be begun or continued here, so nowhere.
void slot_desk::stall(operation& op, const std::string& why) {
  op.stalled = true;
  out_->fail(op.epoch, op.title(), make_failure(errc::aborted, "it cannot be performed: " + why));
}

// -- an owner performs --------------------------------------------------------------------------------------------------

bool slot_desk::claim(seat& s) {
  const locker lock(s);
  if (s.owned || s.queue.empty()) return false;
  return s.owned = true;
}

/// False: nothing is left to do for the rank, which is nobody's any more.
bool slot_desk::drive(seat& s, bool& moved) {
  while (true) {
    if (is_broken_.load(std::memory_order_acquire) || s.failure_count.load(std::memory_order_acquire) > 0) settle_failures(s);
    if (!s.current && !next_operation(s)) return false;
    const progress made = advance(s);
    moved = moved || made != progress::none;
    if (made != progress::done) return true;
  }
}

bool slot_desk::next_operation(seat& s) {
  bool leaves = false, nothing = false;
  epoch_t operations = 0;
  {
    const locker lock(s);
    nothing = s.queue.empty();
    if (!nothing) {
      s.current = std::move(s.queue.front());
      s.queue.pop_front();
      s.active = s.current->epoch;
    } else {
      s.owned = false;
      s.active = operation::unset;
      leaves = s.leaving && !s.left;
      s.left = s.left || leaves;
      operations = epoch_of(s.next);
    }
  }
  if (leaves) out_->leave(s.rank, operations);
  if (nothing) return false;
  operation& op = *s.current;
  s.sequence = op.sequence;
  if (op.stalled) return true;  // cancelled before it was launched
  try {
    s.running = op.plan->slot_program_of(s.rank);
    set_up(s, *s.running, *op.plan, op.what.reduction, op.input, op.output, fingerprint(op.what, 0));
  } catch (const std::exception& e) {
    stall(op, e.what());
  }
  return true;
}

slot_desk::progress slot_desk::advance(seat& s) {
  operation& op = *s.current;
  if (op.stalled) return progress::none;
  auto status = slot_performer::status::waiting;
  const std::size_t before = s.performer->steps_taken();
  try {
    status = s.performer->advance();
  } catch (const std::exception& e) {
    stall(op, e.what());
    return progress::some;
  }
  if (status == slot_performer::status::performed) return finish(s, nullptr), progress::done;
  if (status == slot_performer::status::mismatch) {
    op.stalled = true;  // the membership has seen, or will see, all calls, and tells every rank the same table
    enroll(s, op);
  }
  return s.performer->steps_taken() != before ? progress::some : progress::none;
}

/// The membership compares the calls, and says what becomes of it.
void slot_desk::enroll(seat& s, operation& op) {
  if (op.registered) return;
  op.registered = true;
  out_->called(op.epoch, s.rank, op.what);
}

void slot_desk::settle_failures(seat& s) {
  if (s.current)
    if (failure_ptr why = failure_of(s, s.current->epoch)) finish(s, std::move(why));
  std::vector<std::pair<operation_ptr, failure_ptr>> over;
  failure_ptr broken;
  if (is_broken_.load(std::memory_order_acquire)) {
    const std::lock_guard lock(mutex_);
    broken = broken_;
  }
  {
    const locker lock(s);
    for (const operation_ptr& op : s.queue) {
      const auto found = s.failures.find(op->epoch);
      if (!broken && found == s.failures.end()) continue;
      over.emplace_back(op, broken ? broken : found->second);
      if (found != s.failures.end()) s.failures.erase(found);
    }
    std::erase_if(s.queue, [&](const operation_ptr& op) {
      return std::any_of(over.begin(), over.end(), [&](const auto& entry) { return entry.first == op; });
    });
    s.failure_count.store(s.failures.size(), std::memory_order_release);
  }
  for (auto& [op, why] : over) complete(s, op, std::move(why));
}

/// The current operation is over.
void slot_desk::finish(seat& s, failure_ptr why) {
  operation_ptr op = s.current;
  if (!why) why = failure_of(s, op->epoch);
  else drop(s, op->sequence);
  if (!why) divide_average(op->what, ranks_, op->output);
  {
    const locker lock(s);
    s.current.reset();
  }
  complete(s, op, std::move(why));
}

void slot_desk::complete(seat& s, const operation_ptr& op, failure_ptr why) {
  if (op->registered) out_->withdraw(op->epoch, s.rank);
  ++callbacks;
  op->done->complete(std::move(why));
  --callbacks;
}

// -- groups -----------------------------------------------------------------------------------------------------------

slot_desk::gathering::gathering() : outer_(std::exchange(my_gathering, this)) {}

slot_desk::gathering::~gathering() {
  my_gathering = outer_;
  for (const auto& [desk, rank] : queued_) desk->ask_attendant(rank, false);
}

void slot_desk::gathering::drive() {
  struct rank_here {
    slot_desk* desk;
    seat* at;
  };
  std::vector<rank_here> here;
  my_gathering = outer_;  // what callbacks begin is not part of it
  for (const auto& [desk, rank] : queued_)
    if (desk->claim(desk->at(rank))) here.push_back({desk, &desk->at(rank)});
  queued_.clear();
  for (int idle = 0; !here.empty();) {
    bool moved = false;
    std::erase_if(here, [&](const rank_here& r) { return !r.desk->drive(*r.at, moved); });
    idle = moved ? 0 : idle + 1;
    if (here.empty()) return;
    const int spin = here.front().desk->waiting_.spin / 4;
    if (idle > spin + most_yields) break;
    if (idle > spin) std::this_thread::yield();
  }
  for (const rank_here& r : here) r.desk->ask_attendant(r.at->rank, true);
}

// -- the attendant ----------------------------------------------------------------------------------------------------

void slot_desk::ask_attendant(rank_t rank, bool handed_over) {
  bool start = false, closed = false;
  {
    const std::lock_guard lock(mutex_);
    closed = closed_;
    if (!closed) {
      inbox_.push_back({rank, handed_over});
      start = !std::exchange(started_, true);
    }
  }
  if (closed) {  // everything is failing, and nobody else is here to say so
    seat& s = at(rank);
    bool moved = false;
    if (handed_over || claim(s)) drive(s, moved);
    return;
  }
  if (start) {
    try {
      out_->start_attendant();
    } catch (const std::exception& e) {  // no thread: nobody can go on here, nor anywhere
      broken(make_failure(errc::out_of_memory, std::string{"no thread can be started for small operations: "} + e.what()));
      close();
      attend();
      return;
    }
  }
  wake_attendant();
}

void slot_desk::wake_attendant() {
  fresh_.store(true);
  {
    const std::lock_guard lock(mutex_);  // it does not fall asleep between its look and its wait
  }
  something_.notify_one();
  if (const rank_t rank = sleeping_.load(); rank >= 0) board_->wake(rank);
}

bool slot_desk::stands_still() {
  if (!board_) return true;
  {
    const std::lock_guard lock(mutex_);
    if (!started_ || closed_) return true;
  }
  const bool still = idle_.load() && !fresh_.load() && answered_.load() == asked_.load();
  asked_.fetch_add(1);
  {
    const std::lock_guard lock(mutex_);
  }
  something_.notify_one();
  if (const rank_t rank = sleeping_.load(); rank >= 0) board_->wake(rank);
  return still;
}

void slot_desk::attend() {
  std::vector<seat*> mine;
  for (int idle = 0;;) {
    const std::uint64_t asked = asked_.load();
    const bool closed = take_inbox(mine);
    const bool moved = drive_all(mine);
    if (closed && mine.empty()) return;
    if (mine.empty()) {
      wait_for_work(asked);
      continue;
    }
    idle = moved ? 0 : idle + 1;
    if (moved) continue;
    const auto now = clock::now();
    steady_time next = no_deadline;
    for (seat* s : mine) next = std::min(next, look_after(*s, now));
    if (idle <= most_yields) std::this_thread::yield();
    else sleep(mine, next, asked);
  }
}

/// True: closed.
bool slot_desk::take_inbox(std::vector<seat*>& mine) {
  if (!fresh_.exchange(false)) return false;
  std::vector<request_for> inbox;
  bool closed = false;
  {
    const std::lock_guard lock(mutex_);
    inbox.swap(inbox_);
    closed = closed_;
  }
  for (const request_for& one : inbox)
    if (seat& s = at(one.rank); one.handed_over || claim(s)) mine.push_back(&s);
  if (closed) fresh_.store(true);
  return closed;
}

/// Every rank's turn; those with nothing left to do are let go. True: something has moved.
bool slot_desk::drive_all(std::vector<seat*>& mine) {
  bool moved = false;
  std::erase_if(mine, [&](seat* s) { return !drive(*s, moved); });
  return moved;
}

/// As drive_all() while the ranks are announced as asleep, which nobody else may be: keeps them all. What has ended is
/// found again.
bool slot_desk::advance_all(const std::vector<seat*>& mine) {
  bool moved = false;
  for (seat* s : mine) {
    if (s->current->stalled) continue;
    const std::size_t before = s->performer->steps_taken();
    try {
      moved = s->performer->advance() != slot_performer::status::waiting || moved;
    } catch (const std::exception& e) {
      stall(*s->current, e.what());
    }
    moved = moved || s->current->stalled || s->performer->steps_taken() != before;
  }
  return moved;
}

/// What has taken long is told to the membership. Returns when to look again.
steady_time slot_desk::look_after(seat& s, steady_time now) {
  std::vector<operation_ptr> late;
  steady_time next = no_deadline;
  const auto look = [&](const operation_ptr& op) {
    if (op->expires <= now) {
      op->expires = no_deadline;
      late.push_back(op);
    }
    next = std::min(next, op->expires);
  };
  look(s.current);
  {
    const locker lock(s);
    for (const operation_ptr& op : s.queue) look(op);
  }
  if (!s.current->registered) {
    if (now >= s.current->begun + long_wait || !late.empty()) enroll(s, *s.current);
    else next = std::min(next, s.current->begun + long_wait);
  }
  for (const operation_ptr& op : late) out_->fail(op->epoch, op->title(), deadline_passed(*op, s.rank));
  return next;
}

void slot_desk::wait_for_work(std::uint64_t asked) {
  std::unique_lock lock(mutex_);
  answered_.store(asked);
  idle_.store(true);
  something_.wait(lock, [&] { return fresh_.load() || asked_.load() != asked; });
  idle_.store(false);
}

void slot_desk::sleep(std::vector<seat*>& mine, steady_time until, std::uint64_t asked) {
  const rank_t leader = mine.front()->rank;
  {
    slot_board::sleep sleep{*board_, leader};
    for (const seat* s : mine) {
      const slot_performer::lack lack = s->current->stalled ? slot_performer::lack{} : s->performer->lacks();
      sleep.announce(s->rank, lack.writer, lack.finishes);
    }
    sleeping_.store(leader);
    sleep.fence();
    if (!advance_all(mine) && !fresh_.load() && asked_.load() == asked) {
      answered_.store(asked);
      idle_.store(true);
      sleep.until(until);
      idle_.store(false);
    }
    sleeping_.store(-1);
  }
}

}  // namespace troupe::actors
