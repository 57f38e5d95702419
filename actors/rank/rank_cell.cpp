// SPDX-License-Identifier: Apache-2.0
#include "actors/rank/rank_cell.hpp"

#include <algorithm>

#include "actors/rank/operation_parts.hpp"
#include "actors/rank/rank_turn.hpp"
#include "actors/waiting/doorbell.hpp"
#include "actors/waiting/napping.hpp"
#include "actors/waiting/no_waiting.hpp"
#include "memory/error.hpp"

namespace troupe::actors {

namespace {

/// Of all ranks together, which who starts last may have to work on alone: some 10 µs. Starting more than that must not be
/// performing it: the caller has something else to do meanwhile.
constexpr std::size_t long_bytes = 512 * 1024;

bool takes_long(const operation& op, int ranks) {
  const auto& counts = op.what.counts;
  const std::size_t largest = counts.empty() ? op.what.count : *std::max_element(counts.begin(), counts.end());
  return on_board(op) && largest > long_bytes / size_of(op.what.type) / static_cast<std::size_t>(ranks);
}

/// Made with the first rank, as long as there is some.
const failure_ptr& out_of_memory() {
  static const failure_ptr why =
      make_failure(errc::out_of_memory, "a rank had no memory left to go on; the communicator cannot be used any more");
  return why;
}

}  // namespace

__attribute__((tls_model("initial-exec"))) constinit thread_local thread_place calling_thread;

bool rank_cell::in_callback() noexcept { return calling_thread.telling != nullptr; }

rank_cell::rank_cell(rank_state_options options, arena& memory, shared_spaces& spaces, slot_board* board,
                     const waiting_policy& waiting, rank_host& host, std::unique_ptr<rank_outbox> out)
    : state_(std::move(options), memory, spaces, board),
      out_(std::move(out)),
      host_(&host),
      no_memory_(&out_of_memory()),
      waiting_(waiting),
      visits_(state_.crowded()),
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
  notify(urgent);
}

/// A message was left. @pre W1
void rank_cell::notify(bool urgent) {
  if (urgent) urgent_.store(true);
  if (const holder by = held_.load(); by != holder::nobody)
    if (by != holder::call || !urgent || !call_has_ended()) return wake_holder();
  if ((urgent || pending_.load()) && !comes_back()) summon(urgent);
}

/// Whether its caller only yields: it looks at the inbox then, unless this thread does what there is to do before. That pays on the same core only,
/// which the caller cannot have meanwhile, and in whose cache the rank's state is. @pre W1, and nobody has the turn
bool rank_cell::comes_back() noexcept {
  if (returning_.load() == 0) return false;
  if (yields_on_.load(std::memory_order_relaxed) == current_core()) visits::add(*this);
  return true;
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
  {
    const std::lock_guard lock(waiting_mutex_);
    sleepers_.push_back(&place);
    waiters_.fetch_add(1);  // before it looks, as a turn that ends looks for waiters after it has left the NIC here
  }
  if (nic_.load() != nullptr)
    if (doorbell* const nic = nic_.exchange(nullptr)) nic->wake();
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

/// Somebody shall take the turn.
void rank_cell::summon(bool urgent) noexcept {
  if (wake_caller()) return;
  if (!urgent && tenders_.load() > 0) {
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
  return std::chrono::steady_clock::now() + long_wait;
}

void rank_cell::end_turn(care of_rest) noexcept {
  if (!state_.stops_watching()) [[unlikely]]
    transit([&] { state_.leave_watched(*out_); });
  const bool pending = state_.pending();
  if (!pending && !state_.has_ended() && !state_.has_arrivals() && !broke_down_) [[likely]] {
    if (pending_.load(std::memory_order_relaxed)) {
      pending_.store(false);
      nic_.store(nullptr, std::memory_order_relaxed);
    }
    held_.exchange(holder::nobody);
    if (urgent_.load() && !inbox_.empty() && !comes_back() && !visits::add(*this)) summon(true);
    return;
  }
  if (pending_.load(std::memory_order_relaxed) != pending) pending_.store(pending);
  if (!pending) nic_.store(nullptr, std::memory_order_relaxed);
  ended_operations ended;
  if (state_.has_ended()) ended = state_.take_ended();
  std::shared_ptr<operation_parts> arrivals = state_.has_arrivals() ? state_.take_arrivals() : nullptr;
  const bool again = broke_down_;
  if (of_rest == care::left && returning_.load() > 0) of_rest = care::none;
  doorbell* const nic = pending ? out_->take_nic_to_wake() : nullptr;
  if (nic != nullptr) nic_.store(nic);
  if ((pending || again) && of_rest != care::none) unattended.store(of_rest);
  const bool deserted = of_rest == care::left && state_.on_board() != nullptr;
  if (deserted) deserted_.store(true);
  held_.exchange(holder::nobody);
  if (nic != nullptr) waiters_.load() > 0 ? nic->wake() : nic->wake_sleeper();
  if (const bool urgent = urgent_.load(); (urgent || pending) && !inbox_.empty()) {
    // Else this thread is going to look once more; after what callers do in callbacks, for which nothing urgent waits.
    const bool tells = arrivals != nullptr || !ended.empty();
    if (!comes_back() && ((urgent && tells) || !visits::add(*this))) summon(urgent);
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

/// W2 of what it has heard. A thread that tends the rank, sleeps on its board, or only yields takes the news by itself.
void rank_cell::take_news() noexcept {
  if (tenders_.load() == 0) return notify_from_here(urgent_.load());
  if (returning_.load() == 0) notify(urgent_.load());
}

/// As notify(), of a thread that would rather take the turn itself than wake another one for it: the one that had it when the thread wanted it may just
/// have given it back. @pre W1, and the thread is neither in a callback nor gathering
void rank_cell::notify_from_here(bool urgent) {
  while (true) {
    if (try_turn()) {
      turn();
      const visits others{*this};
      return end_turn();
    }
    if (urgent) urgent_.store(true);
    if (const holder by = held_.load(); by != holder::nobody)
      if (by != holder::call || !urgent || !call_has_ended()) return wake_holder();
  }
}

void rank_cell::announce(const std::shared_ptr<operation_parts>& which) noexcept {
  if (calling_thread.gathering == nullptr && !in_callback()) {
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
  if (calling_thread.gathering != nullptr || in_callback()) notify(false);
  else notify_from_here(false);
}

/// Operations that end inside a callback are told after it: else a callback that begins the next operation would call itself.
void rank_cell::tell(ended_operations ended) noexcept {
  thread_place& here = calling_thread;
  if (here.telling != nullptr) return here.telling->append(std::move(ended));
  here.telling = &ended;
  const no_waiting inside;
  while (const operation_ptr op = ended.take()) op->end(std::move(op->why_ended));
  here.telling = nullptr;
}

/// In a callback, too: what it makes ready is told by the thread that reads that.
void rank_cell::tell(std::shared_ptr<operation_parts> arrivals) noexcept {
  ended_operations later;
  thread_place& here = calling_thread;
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
  if (!try_turn()) return;
  turn();
  const visits others{*this};
  end_turn();
}

// -- submitting -------------------------------------------------------------------------------------------------------------

void rank_cell::submit(operation_ptr op) {
  thread_place& here = calling_thread;
  const visits others{*this};
  const bool turn = here.gathering != nullptr ? here.gathering->take(*this) : try_turn();
  if (!turn) {
    const bool elsewhere = here.gathering != nullptr || here.telling != nullptr || takes_long(*op, state_.ranks());
    if (elsewhere) return push(std::move(op), true);
    inbox_.push(std::move(op));
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

}  // namespace troupe::actors
