// SPDX-License-Identifier: Apache-2.0
#include "actors/rank/rank_cell.hpp"

#include <algorithm>
#include <exception>
#include <iterator>
#include <new>

#include "actors/rank/operation_parts.hpp"
#include "actors/waiting/crowded_core.hpp"
#include "actors/waiting/doorbell.hpp"
#include "actors/waiting/napping.hpp"
#include "actors/waiting/no_waiting.hpp"
#include "actors/waiting/slot_waiting.hpp"
#include "actors/waiting/yielding.hpp"
#include "memory/error.hpp"
#include "memory/exception_text.hpp"

namespace troupe::actors {

namespace {

using clock = std::chrono::steady_clock;

/// What the calling thread is in. Constant-initialised and of the initial-exec model, so that a look is one load, also in a shared
/// library.
struct thread_place {
  rank_cell::gathering* gathering = nullptr;
  void* visits = nullptr;               ///< see rank_cell::visits
  ended_operations* telling = nullptr;  ///< it is telling callers: in a callback
};
__attribute__((tls_model("initial-exec"))) constinit thread_local thread_place place;

/// Of all ranks together, which who starts last may have to work on alone: some 10 µs. Starting more than that must not be
/// performing it: the caller has something else to do meanwhile.
constexpr std::size_t long_bytes = 512 * 1024;

bool takes_long(const operation& op, int ranks) {
  const auto& counts = op.what.counts;
  const std::size_t largest = counts.empty() ? op.what.count : *std::max_element(counts.begin(), counts.end());
  return on_board(op) && largest > long_bytes / size_of(op.what.type) / static_cast<std::size_t>(ranks);
}

/// As eager_looks, of sends and receives: such a look is one load.
constexpr int eager_pair_looks = 8 * eager_looks;
/// Who never waits says where it is now and then.
constexpr unsigned quick_calls_a_note = 16;
/// About what it takes a line to get to another core and back.
constexpr int pauses_before_answer = 2;
/// Of what a peer copies: waiting for more is worth a look as long as the copy.
constexpr std::size_t much_to_copy = 64 * 1024;
/// For a peer's copy.
constexpr std::chrono::nanoseconds longest_look = std::chrono::milliseconds{1};

/// Made with the first rank, as long as there is some.
const failure_ptr& out_of_memory() {
  static const failure_ptr why =
      make_failure(errc::out_of_memory, "a rank had no memory left to go on; the communicator cannot be used any more");
  return why;
}

/// Looks in a row that find nothing, with a yield between, before a group's wait gives up.
constexpr int most_yields = 32;

}  // namespace

bool rank_cell::in_callback() noexcept { return place.telling != nullptr; }

rank_cell::rank_cell(rank_state_options options, arena& memory, shared_spaces& spaces, slot_board* board,
                     const waiting_policy& waiting, rank_host& host, std::unique_ptr<rank_outbox> out)
    : state_(std::move(options), memory, spaces, board),
      out_(std::move(out)),
      host_(&host),
      no_memory_(&out_of_memory()),
      waiting_(waiting),
      visits_(state_.crowded() && waiting.spin == 0),
      spin_(waiting.spin) {}

rank_cell::~rank_cell() {
  // Nobody else is here any more. What was submitted and never read fails with the rest.
  for (rank_message* m = inbox_.take_all(); m != nullptr;) {
    rank_message* const next = m->next;
    if (auto* op = std::get_if<operation_ptr>(&m->what))
      (*op)->done->complete(make_failure(errc::engine_closed, "the engine was closed before this operation began"));
    inbox::give_back(m);
    m = next;
  }
}

// -- messages -----------------------------------------------------------------------------------------------------------

template <class What>
void rank_cell::push(What&& what, bool urgent) {
  inbox_.push(std::forward<What>(what));
  if (!only_news_.load(std::memory_order_relaxed)) return notify(urgent);
  only_news_.store(false, std::memory_order_relaxed);
  notify(urgent);
}

/// A message was left. @pre W1
void rank_cell::notify(bool urgent) {
  if (urgent) urgent_.store(true);
  if (const holder by = held_.load(); by != holder::nobody)
    if (by != holder::call || !urgent || !call_has_ended()) return wake_holder();
  if (urgent || pending_.load()) summon(urgent);
}

/// Whether the call that has the turn, as this thread saw it, has given it back (end_turn_at_rest()), perhaps before it could see that a message
/// is urgent. @pre W1
bool rank_cell::call_has_ended() noexcept {
  if (!has_barrier_.load(std::memory_order_relaxed)) return false;
  // One that fails has been forbidden meanwhile: stores become visible within microseconds by themselves, and calls do without from now on.
  if (!process_barrier(barrier_of::this_process)) {
    has_barrier_.store(false, std::memory_order_relaxed);
    nap(std::chrono::milliseconds{10});
  }
  return held_.load() == holder::nobody;
}

void rank_cell::enter_wait(parker& place) {
  const std::lock_guard lock(waiting_mutex_);
  sleepers_.push_back(&place);
  waiters_.fetch_add(1);
}

void rank_cell::leave_wait(parker& place) {
  const std::lock_guard lock(waiting_mutex_);
  std::erase(sleepers_, &place);
  waiters_.fetch_sub(1);
}

void rank_cell::tend(bool on) noexcept {
  if (on) {
    tenders_.fetch_add(1);
  } else if (tenders_.fetch_sub(1) == 1 && wants_turn()) {
    run();
  }
}

/// False: none waits. Under the lock: a caller's place goes when it has left.
bool rank_cell::wake_caller() noexcept {
  if (waiters_.load() == 0) return false;
  const std::lock_guard lock(waiting_mutex_);
  if (sleepers_.empty()) return false;
  sleepers_.front()->wake();
  return true;
}

/// Somebody shall take the turn. Without a core to spare nobody is woken for news of parts, as that would take one from those that compute or wait:
/// whoever waits next comes here, or the rank's caller, or the attendant.
void rank_cell::summon(bool urgent) noexcept {
  if (wake_caller()) return;
  const bool later = tenders_.load() > 0 || (!waiting_.spare && only_news_.load(std::memory_order_relaxed));
  if (!urgent && later) {
    if (const care now = unattended.load(); now != care::left && now != care::seen) unattended.store(care::left);
    return host_->unattended(*this);
  }
  try {
    host_->schedule(*this);
  } catch (...) {  // no memory for that; to ask the attendant takes none
    host_->attend(*this);
  }
}

void rank_cell::post(chunk_message&& what) { push(std::move(what), false); }
void rank_cell::post(const credit_message& what) { push(credit_message{what}, false); }
void rank_cell::post(rank_order&& what) { push(std::move(what), true); }
void rank_cell::leave_word(rank_order&& what) { push(std::move(what), false); }

void rank_cell::tell_now(rank_order&& what) {
  if (!try_turn()) return post(std::move(what));
  drain();
  transit([&] { what(state_, *out_); });
  end_turn();
}

void rank_cell::wake_holder() {
  if (asleep_.load()) [[unlikely]]
    state_.port()->board().wake(state_.port()->rank());
}

namespace {
/// True: done. False: it was left in the middle.
template <class Step>
bool within_memory(Step&& step) noexcept {
  try {
    std::forward<Step>(step)();
    return true;
  } catch (...) {
    return false;
  }
}
}  // namespace

/// As within_memory(), and the rank ends its communicator then.
template <class Step>
bool rank_cell::transit(Step&& step) noexcept {
  if (within_memory(std::forward<Step>(step))) return true;
  break_down();
  return false;
}

void rank_cell::break_down() noexcept {
  broke_down_ = true;
  try {
    state_.break_down(*no_memory_, *out_);
    broke_down_ = false;
  } catch (...) {}
}

/// An operation that could not even be queued ends here.
void rank_cell::enter(const operation_ptr& op) noexcept {
  if (transit([&] { state_.enqueue(op, *out_); }) || state_.holds(op)) return;
  op->end(*no_memory_);
}

void rank_cell::read(rank_message& what) noexcept {
  if (what.what.index() == 2) {
    enter(std::get<2>(what.what));
    return begin_queued();
  }
  transit([&] {
    switch (what.what.index()) {
      case 0: {
        auto& c = std::get<0>(what.what);
        return state_.on_chunk(c.channel, std::move(c.what), *out_);
      }
      case 1: {
        auto& c = std::get<1>(what.what);
        return state_.on_credit(c.channel, c.what, *out_);
      }
      default: return std::get<3>(what.what)(state_, *out_);
    }
  });
}

void rank_cell::read_lent(rank_message& what) noexcept {
  const parts_message named =
      inbox::take(what);  // before its board is looked at: what is announced from here on comes with a message
  transit([&] { state_.announced(*named, *out_); });
}

bool rank_cell::drain() noexcept {
  if (urgent_.load(std::memory_order_relaxed)) urgent_.store(false);
  if (!only_news_.load(std::memory_order_relaxed)) only_news_.store(true, std::memory_order_relaxed);
  rank_message* m = inbox_.take_all();
  if (m == nullptr) return false;
  while (m != nullptr) {
    rank_message* const next = m->next;
    if (m->lent) {
      read_lent(*m);
    } else {
      read(*m);
      inbox::give_back(m);
    }
    m = next;
  }
  return true;
}

// -- the turn -------------------------------------------------------------------------------------------------------------

/// While it lives, ranks that hear of something on this thread are visited at its end, by this thread, in place of waking another one for each: where
/// there are more ranks than cores such a thread would only take somebody else's. What is copied then is still in this core's cache.
class rank_cell::visits {
public:
  explicit visits(const rank_cell& from) : outer_(place.visits) {
    if (outer_ == nullptr && from.visits_ && !in_callback()) place.visits = this;
  }
  ~visits() {
    if (place.visits != this) return;
    for (std::size_t i = 0; i < count_; ++i) to_[i]->take_news();  // which may find more
    place.visits = nullptr;
  }
  visits(const visits&) = delete;
  visits& operator=(const visits&) = delete;
  /// False: there are too many.
  static bool add(rank_cell& which) noexcept {
    auto* const here = static_cast<visits*>(place.visits);
    if (here == nullptr || here->count_ == most) return false;
    here->to_[here->count_++] = &which;
    return true;
  }

private:
  static constexpr std::size_t most = 64;
  std::array<rank_cell*, most> to_;
  std::size_t count_ = 0;
  void* outer_;
};

[[gnu::always_inline]] inline bool rank_cell::take_turn(holder by) noexcept {
  holder before = held_.load(std::memory_order_relaxed);
  if (before != holder::nobody || !held_.compare_exchange_strong(before, by)) return false;
  if (unattended.load(std::memory_order_relaxed) != care::none) [[unlikely]]
    unattended.store(care::none);
  if (deserted_.load(std::memory_order_relaxed)) [[unlikely]]
    deserted_.store(false);
  return true;
}

bool rank_cell::try_turn() noexcept {
  if (!take_turn(holder::somebody)) return false;
  at_rest_ = false;
  return true;
}

bool rank_cell::turn() noexcept {
  if (broke_down_) [[unlikely]]
    break_down();
  const visits others{*this};
  bool moved = drain();
  if (state_.watches_pairs()) moved = look_at_watched() || moved;
  if (state_.on_board() != nullptr) moved = advance() || moved;
  return moved;
}

/// To be left in the middle is to move, too.
bool rank_cell::advance() noexcept {
  bool moved = false;
  return !transit([&] { moved = state_.advance(*out_); }) || moved;
}

/// The same. @pre it watches
bool rank_cell::look_at_watched() noexcept {
  bool moved = false;
  return !transit([&] { moved = state_.look_at_watched(*out_); }) || moved;
}

void rank_cell::begin_queued() noexcept {
  transit([&] { state_.begin(*out_); });
}

steady_time rank_cell::tick() noexcept {
  steady_time next = no_deadline;
  if (transit([&] { next = state_.tick(*out_); }) && !broke_down_) return next;
  return clock::now() + long_wait;
}

/// As end_turn(), where this turn has not changed that the rank is at rest: nothing is left, and nobody is to be told. The store is plain where
/// whoever leaves an urgent message orders it (call_has_ended()): a read-modify-write would wait for what the call has written to others.
[[gnu::always_inline]] inline void rank_cell::end_turn_at_rest() noexcept {
  if (has_barrier_.load(std::memory_order_relaxed)) {
    held_.store(holder::nobody, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  } else {
    held_.exchange(holder::nobody);
  }
  if (urgent_.load() && !inbox_.empty()) [[unlikely]]
    summon(true);
}

void rank_cell::end_turn(care of_rest) noexcept {
  if (!state_.stops_watching()) [[unlikely]]
    transit([&] { state_.leave_watched(*out_); });
  const bool pending = state_.pending();
  if (!pending && !state_.has_ended() && !state_.has_arrivals() && !broke_down_) [[likely]] {
    if (pending_.load(std::memory_order_relaxed)) pending_.store(false);
    held_.exchange(holder::nobody);
    if (urgent_.load() && !inbox_.empty() && !visits::add(*this)) summon(true);
    return;
  }
  if (pending_.load(std::memory_order_relaxed) != pending) pending_.store(pending);
  ended_operations ended;
  if (state_.has_ended()) ended = state_.take_ended();
  std::shared_ptr<operation_parts> arrivals = state_.has_arrivals() ? state_.take_arrivals() : nullptr;
  const bool again = broke_down_;
  doorbell* const nic = pending ? out_->take_nic_to_wake() : nullptr;
  if ((pending || again) && of_rest != care::none) unattended.store(of_rest);
  const bool deserted = of_rest == care::left && state_.on_board() != nullptr;
  if (deserted) deserted_.store(true);
  held_.exchange(holder::nobody);
  if (nic != nullptr) nic->wake();
  if (const bool urgent = urgent_.load(); (urgent || pending) && !inbox_.empty()) {
    if (!visits::add(*this)) summon(urgent);  // else this thread is going to look once more
  } else if (deserted) wake_caller();
  if (again && of_rest != care::timed) [[unlikely]]
    host_->attend(*this);
  else if (pending && of_rest == care::left) host_->unattended(*this);
  if (arrivals != nullptr) [[unlikely]]
    tell(std::move(arrivals));
  if (!ended.empty()) tell(std::move(ended));
}

void rank_cell::hear(const std::shared_ptr<operation_parts>& whose) noexcept {
  if (whose->queued.load() || whose->queued.exchange(true)) return;  // who reads it looks afterwards
  whose->wake.what = whose;
  inbox_.add(&whose->wake);
  if (!visits::add(*this)) notify(false);
}

/// W2 of what it has heard. Who turns it now and then, or sleeps on a board, sees to it himself.
void rank_cell::take_news() noexcept {
  if (tenders_.load() > 0) notify(false);
  else notify_from_here(false);
}

/// As notify(), of a thread that would rather take the turn itself than wake another one for it: whoever had it when the thread wanted it may just
/// have given it back. @pre W1, and the thread is neither in a callback nor gathering
void rank_cell::notify_from_here(bool urgent) {
  const visits others{*this};
  while (true) {
    if (try_turn()) {
      turn();
      return end_turn();
    }
    if (urgent) urgent_.store(true);
    if (const holder by = held_.load(); by != holder::nobody)
      if (by != holder::call || !urgent || !call_has_ended()) return wake_holder();
  }
}

void rank_cell::announce(const std::shared_ptr<operation_parts>& which) noexcept {
  if (place.gathering == nullptr && !in_callback()) {
    const visits others{*this};
    if (try_turn()) {
      drain();
      transit([&] { state_.announced(*which, *out_); });
      return end_turn();
    }
  }
  if (which->queued.exchange(true)) return;  // who reads it sees what was ready before
  which->wake.what = which;
  inbox_.add(&which->wake);
  if (place.gathering != nullptr || in_callback()) notify(false);
  else notify_from_here(false);
}

/// What ends inside a callback is told after it: else a callback that begins the next operation would call itself.
void rank_cell::tell(ended_operations ended) noexcept {
  thread_place& here = place;
  if (here.telling != nullptr) return here.telling->append(std::move(ended));
  here.telling = &ended;
  const no_waiting inside;
  while (const operation_ptr op = ended.take()) op->end(std::move(op->why_ended));
  here.telling = nullptr;
}

/// In a callback, too: what it makes ready is told by whoever reads that.
void rank_cell::tell(std::shared_ptr<operation_parts> arrivals) noexcept {
  ended_operations later;
  thread_place& here = place;
  const bool outermost = here.telling == nullptr;
  if (outermost) here.telling = &later;
  {
    const no_waiting inside;
    while (arrivals) {
      const std::shared_ptr<operation_parts> one = std::exchange(arrivals, nullptr);
      arrivals = std::move(one->next_listed);
      one->listed.store(false);  // from here on it may be in the list again
      one->tell();
    }
  }
  if (!outermost) return;
  here.telling = nullptr;
  if (!later.empty()) tell(std::move(later));
}

/// Nearly always nobody else is here, and nobody need be woken.
void rank_cell::leave() {
  if (!try_turn()) return post(rank_order{[](rank_state& s, rank_outbox& out) { s.leave(out); }});
  drain();
  transit([&] { state_.leave(*out_); });
  end_turn();
}

void rank_cell::run() {
  const visits others{*this};
  if (!try_turn()) return;
  turn();
  end_turn();
}

// -- submitting -------------------------------------------------------------------------------------------------------------

void rank_cell::submit(operation_ptr op) {
  thread_place& here = place;
  const visits others{*this};
  const bool turn = here.gathering != nullptr ? here.gathering->take(*this) : try_turn();
  if (!turn) {
    const bool elsewhere = here.gathering != nullptr || here.telling != nullptr || takes_long(*op, state_.ranks());
    if (elsewhere) return push(std::move(op), true);
    inbox_.push(std::move(op));
    only_news_.store(false, std::memory_order_relaxed);
    return notify_from_here(true);
  }
  drain();
  enter(op);
  if (here.gathering != nullptr) return;
  const bool later = takes_long(*op, state_.ranks()) || here.telling != nullptr;
  op.reset();  // a persistent operation is repeated in place only when nobody else refers to it
  if (later) {
    // Begun here inside a callback, it could end here, and its callback begin the next …
    end_turn(care::none);
    return host_->attend(*this);
  }
  begin_queued();
  end_turn();
}

// -- blocking callers ---------------------------------------------------------------------------------------------------------

plan_ptr rank_cell::plan_again(const call& what) {
  if (state_.port() == nullptr || !try_turn()) return nullptr;
  plan_ptr known = state_.port()->plan_of(what);
  end_turn();
  return known;
}

/// The turn, if a call may begin now; else it is given back. What comes first has been read.
[[gnu::always_inline]] inline bool rank_cell::turn_for_call() noexcept {
  if (!take_turn(holder::call)) return false;
  if (at_rest_ && inbox_.empty()) [[likely]]
    return true;
  return may_begin_in_turn();
}

/// As turn_for_call(), whatever has come. @pre the turn is held
bool rank_cell::may_begin_in_turn() noexcept {
  if (!inbox_.empty()) drain();
  at_rest_ = state_.at_rest() && !broke_down_ && !pending_.load(std::memory_order_relaxed);
  if (at_rest_ || state_.may_begin_at_once()) return true;
  end_turn();
  return false;
}

/// Whether the port remembers the call; if not, or if there is no memory for its sizes, the turn is given back.
template <class Recall>
[[gnu::always_inline]] inline bool rank_cell::recalled(Recall&& recall) {
  try {
    if (recall()) [[likely]]
      return true;
  } catch (...) {
    end_turn();
    throw;
  }
  end_turn();
  return false;
}

rank_cell::call_end rank_cell::perform_again(const call& what, const std::optional<checked_call>& checked,
                                             const call_buffers& memory, time_limit deadline) {
  if (!turn_for_call()) return call_end::not_begun;
  board_port& port = *state_.port();
  if (!recalled([&] { return port.recall(what); })) return call_end::not_begun;
  if (checked) port.note_checked(*checked);
  return perform_begun(memory, deadline);
}

/// @param recall whether the port remembers it
template <class Recall>
[[gnu::always_inline]] inline rank_cell::call_end
rank_cell::perform_if(const checked_call& words, Recall&& recall, const call_buffers& memory, time_limit deadline) {
  board_port& port = *state_.port();
  const checked_calls::place* const at = port.where_checked(words);
  if (at == nullptr || !turn_for_call()) return call_end::not_begun;
  if (!recalled([&] { return recall(port, *at); })) return call_end::not_begun;
  return perform_begun(memory, deadline);
}

rank_cell::call_end rank_cell::perform_unchecked(const checked_call& words, const call& what,
                                                 const call_buffers& memory, time_limit deadline) {
  return perform_if(
      words, [&](board_port& port, const auto& at) { return port.recall(at, words, what); }, memory, deadline);
}

rank_cell::call_end rank_cell::perform_unchecked(const plain_call& what, time_limit deadline) {
  const auto words = repeatable(what);
  if (!words) return call_end::not_begun;
  return perform_if(
      *words, [&](board_port& port, const auto& at) { return port.recall(at, *words, what.count); },
      {what.input, what.output}, deadline);
}

rank_cell::call_end rank_cell::perform_listed(const listed_call& what, time_limit deadline) {
  const checked_call words = words_of(what);
  return perform_if(
      words, [&](board_port& port, const auto& at) { return port.recall(at, words, what); },
      {what.input, what.output, what.input_displacements, what.output_displacements}, deadline);
}

rank_cell::call_end rank_cell::perform(const call& what, const plan_ptr& how, const call_buffers& memory,
                                       time_limit deadline) {
  if (!turn_for_call()) return call_end::not_begun;
  try {
    state_.port()->remember(what, how);
  } catch (...) {
    end_turn();
    throw;
  }
  return perform_begun(memory, deadline);
}

/// Ends the wait of a caller that performs for its rank: a message has come, or it takes long.
class rank_cell::watch final : public slot_watch {
public:
  watch(rank_cell& cell, steady_time expires) : cell_(cell), expires_(expires) { cell_.falls_asleep(true); }
  ~watch() override { cell_.falls_asleep(false); }
  watch(const watch&) = delete;
  watch& operator=(const watch&) = delete;
  bool stop() noexcept override { return tired_ || !cell_.inbox_.empty(); }
  /// An operation that all ranks work on ends, or its caller's deadline passes.
  void impatient() override { tired_ = !cell_.state_.port()->performer().together() || clock::now() >= expires_; }
  bool tired() const { return tired_; }

private:
  rank_cell& cell_;
  steady_time expires_;
  bool tired_ = false;
};

void rank_cell::learn(std::chrono::nanoseconds slept) { spin_ = learn_spin(spin_, waiting_, slept); }

/// True: performed. False: it takes long, a message has come, or it does not fit. Most end here, before anything of a wait is set up.
[[gnu::always_inline]] inline bool rank_cell::perform_here(time_limit deadline, steady_time begun) {
  board_port& port = *state_.port();
  const auto status = port.advance();
  if (status != board_performer::status::performed) [[unlikely]]
    return wait_here(status, deadline, begun);
  if (++quick_calls_ % quick_calls_a_note == 0) [[unlikely]]
    port.board().cores().note(rank());
  return true;
}

/// The same of what has not ended at the first look.
bool rank_cell::wait_here(board_performer::status status, time_limit deadline, steady_time begun) {
  board_port& port = *state_.port();
  shared_cores& cores = port.board().cores();
  if (status == board_performer::status::waiting) cores.note(rank());
  for (int i = 0; i < spin_ && status == board_performer::status::waiting; ++i) {
    if (i == eager_looks && cores.is_shared(rank()) && !leaver_.leave(cores, rank())) break;
    if (i >= eager_looks) pause_core();
    status = port.advance();
  }
  if (status == board_performer::status::performed) return true;
  watch tired{*this, deadline.after(begun)};
  slot_wait_options how;
  how.spin = 0;
  how.yields = waiting_.yields;
  how.patience =
      deadline ? std::clamp<std::chrono::nanoseconds>(*deadline, std::chrono::nanoseconds{0}, long_wait) : long_wait;
  how.watch = &tired;
  const auto asleep = clock::now();
  const auto ended = wait_slots(port.performer(), how).how;
  learn(clock::now() - asleep);
  return ended == slot_wait_result::ended::performed;
}

/// @pre turn_for_call(), and the call is the port's last
[[gnu::always_inline]] inline rank_cell::call_end rank_cell::perform_begun(const call_buffers& memory,
                                                                           time_limit deadline) {
  const auto begun = deadline ? clock::now() : steady_time{};
  try {
    state_.begin_inline(memory);
  } catch (...) {
    end_turn();
    throw;
  }
  number_of_call_ = state_.last_called();
  std::exception_ptr problem;  // taking it needs no memory that might be lacking
  try {
    if (perform_here(deadline, begun)) [[likely]] {
      state_.end_inline(memory.output);
      if (at_rest_) end_turn_at_rest();
      else end_turn();
      return call_end::performed;
    }
  } catch (...) {
    problem = std::current_exception();
  }
  return perform_later(memory, deadline, deadline ? begun : clock::now(), problem);
}

/// It becomes an operation. @param problem what a user's function threw; or null
rank_cell::call_end rank_cell::perform_later(const call_buffers& memory, time_limit deadline, steady_time begun,
                                             const std::exception_ptr& problem) {
  at_rest_ = false;
  left_ = {nullptr, nullptr};
  try {
    left_.still_to_do = state_.adopt_inline(memory, deadline, begun);
  } catch (...) {  // peers wait for this rank, and nobody can go on for it
    state_.drop_inline();
    left_.why = *no_memory_;
    break_down();
    end_turn();
    return call_end::later;
  }
  if (problem) transit([&] { state_.stall_on_board(text_of(problem), *out_); });
  turn();
  end_turn();
  return call_end::later;
}

namespace {
/// On a slow machine.
std::chrono::nanoseconds copying_time(std::size_t bytes) {
  constexpr std::size_t bytes_in_us = 4096;
  return std::chrono::microseconds{bytes / bytes_in_us};
}
std::chrono::nanoseconds time_without_copies(std::chrono::nanoseconds time, std::size_t bytes) {
  return std::max(time - copying_time(bytes), std::chrono::nanoseconds{0});
}
std::size_t bytes_of(std::span<const pair_call> calls) {
  std::size_t bytes = 0;
  for (const pair_call& c : calls) bytes += c.count * size_of(c.type);
  return bytes;
}
}  // namespace

rank_cell::pairs_end rank_cell::perform_pairs(std::span<const pair_call> calls, time_limit deadline) {
  if (!try_turn()) return pairs_end::not_begun;
  if (pairs_waited_ != std::chrono::nanoseconds{-1}) learn(std::exchange(pairs_waited_, std::chrono::nanoseconds{-1}));
  if (!inbox_.empty()) drain();
  for (const pair_call& c : calls)
    if (!state_.may_begin_pair_at_once(c.peer, c.sending)) [[unlikely]] {
      end_turn();
      return pairs_end::not_begun;
    }
  const auto begun = deadline ? clock::now() : steady_time{};
  try {
    state_.begin_pairs_inline(calls);
  } catch (...) {
    end_turn();
    throw;
  }
  bool all = false;
  const bool to_be_taken = calls.size() == 1 && calls.front().sending && !state_.left_pairs();
  const bool whole = within_memory([&] { all = look_at_pairs(to_be_taken, bytes_of(calls)); });
  if (all) [[likely]] {
    state_.end_pairs_inline();
    end_turn();
    return pairs_end::performed;
  }
  pairs_to_do_ = state_.adopt_pairs_inline(deadline, deadline ? begun : clock::now(), *out_);
  if (!whole) break_down();
  turn();
  end_turn();
  return pairs_end::later;
}

void rank_cell::waited_for_pairs(std::chrono::nanoseconds time, std::size_t bytes) noexcept {
  // Where much is copied, it has been looked for as long as that takes.
  pairs_waited_ = bytes < much_to_copy ? time_without_copies(time, bytes) : time;
}

/// Looks for as long as that has paid lately. True: all are performed. @param send nothing but a send that is to be taken @param bytes of all
/// @pre begun inline
bool rank_cell::look_at_pairs(bool send, std::size_t bytes) {
  auto status = pair_status::waiting;
  shared_cores& cores = state_.port()->board().cores();
  if (!send) status = state_.look_at_pairs(*out_, false);
  if (status == pair_status::waiting || ++quick_calls_ % quick_calls_a_note == 0) cores.note(rank());
  if (status != pair_status::waiting) [[likely]]
    return status == pair_status::performed;
  // A peer that is looking, too, has taken the message by then. A look at once would take its answer's line away from it.
  for (int i = 0; send && i < pauses_before_answer && spin_ > 0; ++i) pause_core();
  for (int i = 0; i < spin_ && status == pair_status::waiting; ++i) {
    if (i == eager_pair_looks && cores.is_shared(rank()) && !leaver_.leave(cores, rank())) break;
    if (i >= eager_pair_looks) pause_core();
    status = state_.look_at_pairs(*out_, i % eager_looks == eager_looks - 1);
  }
  // A peer that copies much at the moment is soon through. Who sleeps then is told by a message, and copies are the system's.
  if (status == pair_status::waiting && bytes >= much_to_copy && waiting_.spin > 0 && !cores.is_shared(rank()) &&
      long_looks_.due()) {
    const auto until =
        clock::now() + std::min<std::chrono::nanoseconds>(brief_sleep + copying_time(bytes), longest_look);
    do
      for (int i = 0; i < eager_looks && status == pair_status::waiting; ++i) {
        pause_core();
        status = state_.look_at_pairs(*out_);
      }
    while (status == pair_status::waiting && inbox_.empty() && clock::now() < until);
    long_looks_.looked(status != pair_status::waiting);
  }
  if (status != pair_status::waiting) return status == pair_status::performed;
  // Whoever has the core meanwhile may perform it.
  state_.offer_pairs();
  status = state_.look_at_pairs(*out_);
  for (int i = 0; i < waiting_.yields && status == pair_status::waiting && inbox_.empty(); ++i) {
    if (!yield_core()) break;
    status = state_.look_at_pairs(*out_);
  }
  return status == pair_status::performed;
}

// -- helping ------------------------------------------------------------------------------------------------------------------

void rank_cell::help_briefly() {
  if (!in_callback()) run();
}

void rank_cell::help(const completion& done, steady_time until) {
  if (in_callback()) return;
  int looks = 0;  // at the turn of another thread: a peer's, which had news for this rank, soon gives it back
  while (!done.done()) {
    if (try_turn()) {
      if (!help_in_turn(until)) return;
      looks = 0;
    } else {
      if (looks++ == std::min(eager_looks, waiting_.spin)) return;
      pause_core();
    }
  }
}

void rank_cell::submit_and_help(std::span<const operation_ptr> ops) {
  const auto done = [&] {
    return std::all_of(ops.begin(), ops.end(), [](const auto& op) { return op->done->done(); });
  };
  if (in_callback() || place.gathering != nullptr || !try_turn()) {
    for (const operation_ptr& op : ops) submit(op);
    if (in_callback()) return;
  } else {
    drain();
    for (const operation_ptr& op : ops) {
      enter(op);
      begin_queued();
    }
    if (!help_in_turn(no_deadline, ops)) return;
  }
  while (!done() && try_turn() && help_in_turn(no_deadline, ops)) {}
}

/// Until an operation has ended, or all of `ops`; gives the turn back. False: it takes long, or there is nothing to turn. @pre held
bool rank_cell::help_in_turn(steady_time until, std::span<const operation_ptr> ops) {
  bool later = false;
  begin_queued();  // what was to be begun by the attendant, which is only now being woken
  while (true) {
    turn();
    const bool ended = state_.has_arrivals() || (ops.empty() ? state_.has_ended() : state_.have_ended(ops));
    if (ended || !state_.pending() || (until != no_deadline && clock::now() >= until)) break;
    if (look_again()) continue;
    later = state_.on_board() == nullptr || !sleep_on_board(until);
    if (later) break;
  }
  const bool attend = later && state_.on_board() != nullptr, more = state_.pending() || state_.has_ended();
  gives_way_.store(later && !attend && state_.gives_way_to_nic(), std::memory_order_relaxed);
  end_turn(attend ? care::none : care::left);
  if (attend) host_->attend(*this);
  return !later && more && (until == no_deadline || clock::now() < until);
}

/// False also where there is no memory to help with.
bool rank_cell::help_one() noexcept {
  try {
    return host_->help_one();
  } catch (...) {
    return false;
  }
}

/// Looks for as long as that has paid lately. True: something has moved.
bool rank_cell::look_again() noexcept {
  const bool board = state_.on_board() != nullptr && !state_.on_board()->stalled;
  // Threads that look would keep the NIC's from what they wait for, and so would those that yield: its thread is woken, they are not.
  if (!board && state_.gives_way_to_nic()) return !inbox_.empty();
  board_port* const port = state_.port();
  shared_cores* const cores = port != nullptr ? &port->board().cores() : nullptr;
  const rank_t here = port != nullptr ? port->rank() : rank();
  if (cores != nullptr) cores->note(here);
  wait_course course{{board ? std::max(spin_, 1) : spin_, waiting_.yields}};
  const bool watches = state_.watches_pairs();
  bool helped = false;  // right before: there is nothing new
  for (auto step = course.next(); step != wait_course::step::sleep; step = course.next()) {
    if (!inbox_.empty()) return true;
    if (board && advance()) return true;
    if (watches && look_at_watched()) return true;
    // One thread may drive several ranks, so it must not wait for what it has left itself.
    const int i = course.taken() - 1;
    if (i == eager_looks && cores != nullptr && cores->is_shared(here) && !leaver_.leave(*cores, here)) return false;
    if (i % 16 == 0 || step == wait_course::step::yield) {
      if (!helped && help_one()) return true;
      if (i % 64 == 0) host_->help_unattended(*this);
    }
    // What comes in frames may come from a process of which nobody knows that it shares this core.
    const bool gives_way = step == wait_course::step::yield || (!board && i >= eager_looks && core_is_crowded());
    if (gives_way) {
      if (watches) state_.offer_watched();
      if (!yield_core()) return false;
    } else if (step == wait_course::step::pause) {
      pause_core();
    }
    helped = gives_way && !board;
    if (helped && help_one()) return true;
  }
  return false;
}

/// Sleeps until the rank is written to. False: for long.
bool rank_cell::sleep_on_board(steady_time until) {
  const operation* op = state_.on_board();
  if (op->stalled) return false;
  const steady_time expires = std::min(until, op->expires);
  watch tired{*this, expires};
  slot_wait_options how;
  how.spin = how.yields = 0;
  how.patience = std::clamp<std::chrono::nanoseconds>(expires - clock::now(), std::chrono::nanoseconds{0}, long_wait);
  how.watch = &tired;
  const auto asleep = clock::now();
  transit([&] {
    try {
      wait_slots(state_.port()->performer(), how);
      learn(clock::now() - asleep);
    } catch (...) {
      state_.stall_on_board(text_of(std::current_exception()), *out_);
    }
  });
  return !tired.tired() || clock::now() >= until;
}

// -- groups -------------------------------------------------------------------------------------------------------------------

rank_cell::gathering::gathering() : outer_(std::exchange(place.gathering, this)) {}

/// True: the turn is kept here. Else the rank is noted; throws std::bad_alloc before anything is changed.
bool rank_cell::gathering::take(rank_cell& which) {
  if (which.keeper_.load(std::memory_order_relaxed) == this) return true;
  if (which.try_turn()) return keep(which), true;
  add_other(which);
  return false;
}

/// @pre the turn is held
void rank_cell::gathering::keep(rank_cell& which) noexcept {
  which.state_.watch_pairs();  // this thread looks until it gives the turn back
  which.keeper_.store(this, std::memory_order_relaxed);
  which.next_kept_ = nullptr;
  *std::exchange(end_, &which.next_kept_) = &which;
}

/// The first of those that are kept, with its turn; null: none.
rank_cell* rank_cell::gathering::give() noexcept {
  rank_cell* const cell = first_;
  if (cell == nullptr) return nullptr;
  first_ = cell->next_kept_;
  if (first_ == nullptr) end_ = &first_;
  cell->keeper_.store(nullptr, std::memory_order_relaxed);
  return cell;
}

void rank_cell::gathering::add_other(rank_cell& which) {
  if (std::find(others_.begin(), others_.end(), &which) == others_.end()) others_.push_back(&which);
}

/// Of what was only queued, where nobody here takes the turn.
void rank_cell::begin_soon() noexcept {
  try {
    post(rank_order{[](rank_state& s, rank_outbox& out) { s.begin(out); }});
  } catch (...) {
    host_->attend(*this);  // which begins what is queued
  }
}

rank_cell::gathering::~gathering() {
  place.gathering = outer_;
  while (rank_cell* const cell = give()) {
    if (outer_ != nullptr) {
      outer_->keep(*cell);
    } else if (in_callback()) {
      cell->end_turn(care::none);
      cell->begin_soon();
    } else {
      cell->begin_queued();
      cell->turn();
      cell->end_turn();
    }
  }
  for (rank_cell* cell : others_) {
    if (outer_ != nullptr) {
      try {
        outer_->add_other(*cell);
        continue;
      } catch (const std::bad_alloc&) {}
    }
    cell->begin_soon();
    cell->help_briefly();
  }
}

rank_cell* rank_cell::gathering::drive() {
  place.gathering = outer_;  // what callbacks begin is not part of it
  for (rank_cell* cell : others_) {
    if (cell->try_turn()) keep(*cell);
    else cell->begin_soon();
  }
  others_.clear();
  for (rank_cell* cell = first_; cell != nullptr; cell = cell->next_kept_) cell->begin_queued();
  if (first_ != nullptr && first_->next_kept_ == nullptr && first_->state_.watches_pairs()) {
    rank_cell* const alone = give();
    return alone->drive_alone() ? nullptr : alone;
  }
  wait_course course{{first_ == nullptr ? 0 : first_->waiting_.spin / 4, most_yields}};
  for (auto step = wait_course::step::look; first_ != nullptr && step != wait_course::step::sleep;) {
    if (step == wait_course::step::yield) {
      for (rank_cell* cell = first_; cell != nullptr; cell = cell->next_kept_) cell->state_.offer_watched();
      if (!yield_core()) course.stop_yielding();
    }
    if (turn_each()) course.restart();
    step = course.next();
  }
  while (rank_cell* const cell = give()) {
    const bool attend = cell->state_.on_board() != nullptr;
    cell->end_turn(attend ? care::none : care::left);
    if (attend) cell->host_->attend(*cell);
  }
  return nullptr;
}

/// One rank, whose peers are other threads' or processes': it is turned as for a blocking call. False: something is still under way. @pre held
bool rank_cell::drive_alone() noexcept {
  do turn();
  while (state_.pending() && (state_.watches_alone() ? look_at_group() : look_again()));
  const bool attend = state_.on_board() != nullptr, all = !state_.pending();
  end_turn(attend ? care::none : care::left);
  if (attend) host_->attend(*this);
  return all;
}

/// As look_at_pairs(), at what a group has under way. True: something has moved, or may.
bool rank_cell::look_at_group() noexcept {
  if (state_.gives_way_to_nic()) return !inbox_.empty();
  constexpr int looks_a_poll = 64;  // what comes in frames may be a word about one of these
  shared_cores& cores = state_.port()->board().cores();
  cores.note(rank());
  for (int i = 0; i < spin_; ++i) {
    if (!inbox_.empty() || look_at_watched()) return true;
    if (i == eager_pair_looks && cores.is_shared(rank()) && !leaver_.leave(cores, rank())) break;
    if (i >= eager_looks) pause_core();
    if (i % looks_a_poll == looks_a_poll - 1 && help_one()) return true;
  }
  // Whoever has the core meanwhile may perform it.
  state_.offer_watched();
  for (int i = 0; i <= waiting_.yields; ++i) {
    if (!inbox_.empty() || look_at_watched()) return true;
    if (i == waiting_.yields || !yield_core()) break;
  }
  return help_one();
}

void rank_cell::waited_for_group(std::chrono::nanoseconds time, std::size_t bytes) noexcept {
  if (!try_turn()) return;
  learn(time_without_copies(time, bytes));
  end_turn();
}

/// Gives back the turns of ranks that have nothing under way any more. True: something has moved.
bool rank_cell::gathering::turn_each() noexcept {
  bool moved = false;
  rank_cell* cell = std::exchange(first_, nullptr);
  end_ = &first_;
  while (cell != nullptr) {
    rank_cell* const next = cell->next_kept_;
    moved = cell->turn() || moved;
    if (cell->state_.pending()) {
      keep(*cell);
    } else {
      cell->keeper_.store(nullptr, std::memory_order_relaxed);
      cell->end_turn();
    }
    cell = next;
  }
  return moved;
}

}  // namespace troupe::actors
