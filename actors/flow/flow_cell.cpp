// SPDX-License-Identifier: Apache-2.0
#include "actors/flow/flow_cell.hpp"

#include <chrono>
#include <utility>

#include "memory/error.hpp"

namespace troupe::actors {

namespace {

/// How long a thread of the scheduler turns a run before others in its queue get their turn.
constexpr auto slice = std::chrono::microseconds{200};

failure_ptr no_memory() {
  static const failure_ptr why =
      make_failure(errc::out_of_memory, "there was no memory left for what the nodes of a flow have to say");
  return why;
}

std::int32_t arrivals_at(const flow_node& node) { return node.kind == flow_node::kind_of::collective ? node.given : 0; }

/// Each tile that was given is told to each of its readers, or has been given back by it; besides, a node may say that it wants to go on.
std::size_t most_words(const flow_plan& plan) {
  std::size_t most = plan.nodes.size();
  for (const flow_stream& s : plan.streams) most += static_cast<std::size_t>(s.credit) * s.to.size();
  return most;
}

}  // namespace

/// What a node says while it has its turn.
class flow_cell::voice final : public flow_outbox {
public:
  voice(flow_cell& of, std::int32_t node) : of_(of), node_(node) {}
  void give(flow_port to, flow_tile what) override { of_.say({word::kind_of::tile, to.node, to.port, what}); }
  void give_back(std::int32_t stream, std::int32_t slot) override {
    const std::int32_t to = of_.plan_->streams[static_cast<std::size_t>(stream)].from;
    of_.say({word::kind_of::back, to, 0, {0, slot}});
  }
  void again() override { of_.say({word::kind_of::go_on, node_, 0, {}}); }
  flow_progress perform(const std::vector<flow_tile>& in, const flow_tile* out, std::int32_t at) override {
    of_.worked_ = true;
    const failure_ptr why = of_.host_->perform(node_, in, out, at);
    if (why) of_.state_.fail(why, of_);
    return why ? flow_progress::failed : flow_progress::done;
  }
  void ready(std::int32_t part) override {
    if (const failure_ptr why = of_.host_->ready(node_, part)) of_.state_.fail(why, of_);
  }
  void finished() override { of_.state_.finished(of_); }

private:
  flow_cell& of_;
  std::int32_t node_;
};

flow_cell::flow_cell(std::shared_ptr<const flow_plan> plan, std::vector<flow_node_state>& nodes,
                     std::shared_ptr<flow_host> host, std::shared_ptr<flow_threads> threads, int operations,
                     int agreements, bool watched)
    : plan_(std::move(plan)),
      nodes_(nodes),
      host_(std::move(host)),
      threads_(std::move(threads)),
      watched_(watched),
      state_(static_cast<int>(plan_->nodes.size()), operations, agreements),
      queue_(most_words(*plan_)) {
  static_cast<void>(no_memory());  // made while there is some
  for (const flow_node& node : plan_->nodes) {
    arrivals_of_.push_back(ends_at_);
    ends_at_ += arrivals_at(node);
  }
  places_.resize(static_cast<std::size_t>(ends_at_ + operations));
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    nodes_[n].begin();
    say({word::kind_of::go_on, static_cast<std::int32_t>(n), 0, {}});
  }
}

flow_cell::~flow_cell() {
  for (letter* left = letters_.load(); left != nullptr;) {
    letter* const next = left->next;
    if (left->own) delete left;
    left = next;
  }
}

// -- letters ----------------------------------------------------------------------------------------------------------------

void flow_cell::arrived(std::int32_t node, std::int32_t part) noexcept {
  letter& what = places_[static_cast<std::size_t>(arrivals_of_[static_cast<std::size_t>(node)] + part)];
  what.kind = letter::kind_of::arrived;
  what.node = node, what.part = part;
  push(what);
}

void flow_cell::ended(int operation, failure_ptr why) noexcept {
  letter& what = places_[static_cast<std::size_t>(ends_at_ + operation)];
  what.kind = letter::kind_of::ended;
  what.part = operation;
  what.why = std::move(why);
  push(what);
}

void flow_cell::fail(failure_ptr why) { push_new(letter::kind_of::fail, std::move(why)); }
void flow_cell::late() { push_new(letter::kind_of::late, nullptr); }

void flow_cell::push_new(letter::kind_of kind, failure_ptr why) {
  auto* const what = new letter{.kind = kind, .own = true, .why = std::move(why)};
  adopted_.store(true);
  push(*what);
}

void flow_cell::push(letter& what) noexcept {
  letter* newest = letters_.load(std::memory_order_relaxed);
  do what.next = newest;
  while (!letters_.compare_exchange_weak(newest, &what, std::memory_order_seq_cst, std::memory_order_relaxed));
  if (!held_.load()) summon();
}

// -- who turns it -------------------------------------------------------------------------------------------------------------

/// Somebody shall take the turn.
void flow_cell::summon() noexcept {
  {
    const std::lock_guard lock(mutex_);  // a waiter's place goes when it has left
    if (waiter_ != nullptr) return waiter_->wake();
  }
  if (adopted_.load()) threads_->schedule(shared_from_this());
}

void flow_cell::enter(parker& place) {
  const std::lock_guard lock(mutex_);
  waiter_ = &place;
  awaited_.store(true);
}

void flow_cell::leave() {
  {
    const std::lock_guard lock(mutex_);
    waiter_ = nullptr;
    awaited_.store(false);
  }
  if (wants_turn()) summon();
}

void flow_cell::adopt() noexcept {
  if (awaited_.load()) return;  // who leaves looks himself
  adopted_.store(true);
  if (wants_turn()) summon();
}

void flow_cell::end_turn() noexcept {
  more_.store(words_ > 0);
  held_.exchange(false);
  if (wants_turn()) summon();
}

void flow_cell::turn_briefly() noexcept {
  if (awaited_.load() || !try_turn()) return;
  const auto until = std::chrono::steady_clock::now() + slice;
  while (advance() != step::nothing && !awaited_.load() && std::chrono::steady_clock::now() < until) {}
  end_turn();
}

void flow_cell::abandon(const failure_ptr& why) noexcept {
  if (!try_turn()) return;
  try {
    if (!is_over()) {
      stop_nodes();
      if (!ends_) over(why);
      tell_end();
    }
  } catch (...) {}
  end_turn();
}

// -- the turn -------------------------------------------------------------------------------------------------------------------

flow_cell::step flow_cell::advance() noexcept {
  step how = step::moved;
  try {
    how = go();
  } catch (...) {  // users' functions are caught where they are called: there is no memory
    try {
      state_.fail(no_memory(), *this);
    } catch (...) {}
  }
  if (ends_ && !is_over()) tell_end();
  return how;
}

flow_cell::step flow_cell::go() {
  worked_ = false;
  bool moved = read_letters();
  while (words_ > 0 && !worked_ && !ends_) {
    const word next = queue_[first_];
    first_ = first_ + 1 == queue_.size() ? 0 : first_ + 1;
    --words_;
    moved = true;
    hear(next);
    moved = read_letters() || moved;  // a part that was made ready may have brought others
  }
  return worked_ ? step::worked : moved ? step::moved : step::nothing;
}

bool flow_cell::read_letters() {
  if (letters_.load() == nullptr) return false;
  letter* newest = letters_.exchange(nullptr, std::memory_order_acquire);
  letter* oldest = nullptr;
  while (newest != nullptr) {
    letter* const before = newest->next;
    newest->next = oldest;
    oldest = newest;
    newest = before;
  }
  std::exception_ptr
      problem;  // no memory for one of them: the others, without which the run does not end, are read all the same
  while (oldest != nullptr) {
    letter* const next = oldest->next;
    const std::unique_ptr<letter> made{oldest->own ? oldest : nullptr};
    try {
      if (!ends_) read(*oldest);
    } catch (...) {
      problem = std::current_exception();
    }
    oldest = next;
  }
  if (problem) std::rethrow_exception(problem);
  return true;
}

void flow_cell::read(letter& what) {
  switch (what.kind) {
    case letter::kind_of::arrived: {
      if (watched_) host_->hears_of(what.node, what.part);
      voice out{*this, what.node};
      nodes_[static_cast<std::size_t>(what.node)].arrived(what.part, out);
      return note(what.node);
    }
    case letter::kind_of::ended: return state_.ended(what.part, what.why, *this);
    case letter::kind_of::fail: return state_.fail(what.why, *this);
    case letter::kind_of::late: {
      std::vector<flow_wait> waits;
      for (const flow_node_state& node : nodes_) waits.push_back(node.waits_for());
      return state_.fail(host_->late(waits), *this);
    }
  }
}

void flow_cell::hear(const word& what) {
  flow_node_state& node = nodes_[static_cast<std::size_t>(what.node)];
  voice out{*this, what.node};
  switch (what.kind) {
    case word::kind_of::go_on: node.go_on(out); break;
    case word::kind_of::tile: node.tile(what.port, what.tile, out); break;
    case word::kind_of::back: node.given_back(what.tile.slot, out); break;
  }
  note(what.node);
}

void flow_cell::say(const word& what) {
  const std::size_t at = first_ + words_;
  queue_[at < queue_.size() ? at : at - queue_.size()] = what;
  ++words_;
}

void flow_cell::note(std::int32_t node) {
  if (watched_ && !ends_) host_->waits(node, nodes_[static_cast<std::size_t>(node)].waits_for());
}

/// They have stopped when this returns: nobody else turns them.
void flow_cell::stop_nodes() {
  for (flow_node_state& node : nodes_) node.stop();
  words_ = 0;
  for (std::size_t n = 0; n < nodes_.size(); ++n) state_.stopped(*this);
}

void flow_cell::over(const failure_ptr& why) {
  ends_ = true;
  why_ends_ = why;
  words_ = 0;
}

/// The flow, and its nodes, may be gone when this returns.
void flow_cell::tell_end() {
  over_.store(true, std::memory_order_release);
  host_->over(why_ends_);
}

}  // namespace troupe::actors
