// SPDX-License-Identifier: Apache-2.0
#include "engine/api/communicator.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <optional>
#include <span>

#include "engine/world/communicator_state.hpp"
#include "memory/error.hpp"
#include "protocols/choreographies/peer_order.hpp"

namespace troupe {

using call_end = actors::rank_cell::call_end;

// -- life -------------------------------------------------------------------------------------------------------------

communicator::communicator() = default;
communicator::communicator(communicator&&) noexcept = default;
communicator& communicator::operator=(communicator&&) noexcept = default;
communicator::~communicator() = default;
communicator::communicator(std::shared_ptr<impl> i) : impl_(std::move(i)) {}

communicator::impl::~impl() {
  if (!of) return;  // it was never a rank of any
  if (const gate::pass inside{of->core->door, doorway()}) {
    try {
      of->shrunk.leave(of, rank);
    } catch (const std::exception&) {}  // no memory to tell those who shrink: they wait for their deadline
    of->cell(rank).leave();
  }
}

int communicator::rank() const noexcept { return impl_ ? impl_->rank : -1; }
int communicator::size() const noexcept { return impl_ ? impl_->of->ranks : 0; }
const std::string& communicator::name() const noexcept {
  static const std::string nothing = "empty communicator";
  return impl_ ? impl_->of->name : nothing;
}

void communicator::set_deadline(std::optional<std::chrono::nanoseconds> deadline) {
  if (!impl_) return;
  impl_->of->callers[static_cast<std::size_t>(impl_->rank)].deadline_ns =
      deadline ? deadline->count() : communicator_state::caller::no_deadline;
}

void communicator::abort(const std::string& reason) {
  if (!impl_) return;
  const communicator_state& of = *impl_->of;
  if (const gate::pass inside{of.core->door, impl_->doorway()})
    of.end(impl_->rank, make_failure(errc::communicator_aborted,
                                     of.name + " was aborted by rank " + std::to_string(impl_->rank) + ": " + reason));
}

// -- operations -------------------------------------------------------------------------------------------------------

actors::operation_ptr communicator_state::prepare(rank_t rank, call_description what, caller_waits waits) {
  auto op = std::make_shared<actors::operation>();
  prepare(*op, rank, what, waits);
  return op;
}

void communicator_state::prepare(actors::operation& op, rank_t rank, call_description& what, caller_waits waits,
                                 const actors::plan_ptr& known, bool checked) {
  try {
    if (!checked) check_call(what, rank, ranks);
    prepare_checked(op, rank, std::move(what), waits, known);
  } catch (...) {
    refuse(rank, what, waits);
  }
}

void communicator_state::describe(actors::operation& op, rank_t rank, call_description& what,
                                  const actors::plan_ptr& known) {
  check_call(what, rank, ranks);
  prepare_checked(op, rank, std::move(what), caller_waits::no, known);
}

/// Counts `op` among those of the rank that are under way. Throws error(out_of_memory): they are too many.
template <class Title>
void communicator_state::open(actors::operation& op, rank_t rank, caller::counter among, const char* what,
                              Title&& title) {
  op.open = std::move(among);
  if (op.open->fetch_add(1) >= caller::most_open)
    throw error(errc::out_of_memory, title() + ": rank " + std::to_string(rank) + " has " +
                                         std::to_string(caller::most_open) + " " + what +
                                         " under way or in groups already; wait for some of them first");
}

void communicator_state::open_collective(actors::operation& op, rank_t rank, const call_description& what) {
  if (what.pair) return;
  open(op, rank, callers[static_cast<std::size_t>(rank)].open_collectives(), "collectives",
       [&] { return to_string(what.what); });
}

void communicator_state::prepare_checked(actors::operation& op, rank_t rank, call_description&& what,
                                         caller_waits waits, const actors::plan_ptr& known) {
  op.input = what.input;
  op.output = what.output;
  op.input_displacements = std::move(what.input_displacements);
  op.output_displacements = std::move(what.output_displacements);
  op.what = std::move(what.what);
  call& c = op.what;
  op.deadline = deadline_for(rank, what.options.deadline).optional();
  if (what.pair) {
    if (what.peer == proc_null)
      throw error(errc::unsupported, "a send or receive with proc_null is nothing to ask an actor for; leave it out");
    op.peer = what.peer;
    op.sending = what.sending;
    op.tag = what.options.tag;
    if (meeting != nullptr)
      op.pair_channel = op.sending ? meeting->channel_between(rank, op.peer) : meeting->channel_between(op.peer, rank);
    // Of one that somebody waits for; others can be cancelled until they are received.
    if (what.sending && waits == caller_waits::yes)
      op.sent = when_sent(op.what.count * size_of(op.what.type), what.options.agreement);
    return open(op, rank, callers[static_cast<std::size_t>(rank)].open_pairs(), "sends and receives",
                [&] { return op.title(); });
  }
  c.level = what.options.level.value_or(core->options.level);
  c.protocol = what.options.protocol;
  c.agreement = agreement_for(c, what.options);
  c.offload = wants_offload(c, waits);
  c.choreography = std::move(what.options.choreography);
  if (c.outcome_of) return;
  // One that does not pay is called as by those who wait in it, which has the same plan.
  const auto give_up_nic = [&] {
    if (c.offload && core->offload == offload_wish::automatic && op.plan && op.plan->nic() == nullptr)
      c.offload = false;
  };
  op.plan = known;
  plan_memo& last = callers[static_cast<std::size_t>(rank)].last_plan;
  if (!op.plan) op.plan = planner::plan_again(c, last);
  if (!op.plan && table->has_boards()) op.plan = cell(rank).plan_again(c);
  if (!op.plan) op.plan = core->plans.plan_for(c, placement, last, table->of_host());
  give_up_nic();
  // Else it depends on blocks of other ranks, which are known when all have called.
  if (!op.plan)
    op.make_plan = [self = shared_from_this(), c](const counts_ptr& counts) {
      return self->core->plans.plan_for(c, self->placement, counts.get());
    };
}

namespace {

/// Of the exception under way.
failure_ptr refusal_by(rank_t rank) {
  const std::string who = "rank " + std::to_string(rank) + ": ";
  try {
    throw;
  } catch (const error& e) {
    return make_failure(e.code_value(), who + e.what());
  } catch (const std::bad_alloc& e) {
    return make_failure(errc::out_of_memory, who + e.what());
  } catch (const std::exception& e) {
    return make_failure(errc::invalid_argument, who + e.what());
  }
}

/// `submit` gives `op` its place. @pre in a handler
template <class Submit>
[[noreturn]] void refuse_as(actors::operation& op, rank_t rank, const call_description& what, Submit&& submit) {
  op.what = what.what;
  op.plan = nullptr;
  const failure_ptr why = op.refusal = refusal_by(rank);
  submit();
  try {
    throw;
  } catch (const error&) {
    throw_failure(why);
  }
}

/// A call that no rank can perform is refused to each of them alike, if each calls the same. @pre in a handler
bool refused_to_all() {
  try {
    throw;
  } catch (const error& e) {
    return e.code_value() == errc::unsupported || e.code_value() == errc::unsupported_type ||
           e.code_value() == errc::bad_score;
  } catch (...) {
    return false;
  }
}

}  // namespace

bool communicator_state::is_no_call(const call_description& what, caller_waits waits) const {
  if (what.pair) return true;
  // A caller that waits, or a thread of a run, has nobody else's call to make. Of any other thread that is not known: whether it is going to
  // call something else for this rank, or nothing, shows only in what it does.
  const bool speaks_for_one = waits == caller_waits::yes || (run && actors::runtime::is_in_run(*run));
  return !speaks_for_one && refused_to_all();
}

void communicator_state::refuse(rank_t rank, const call_description& what, caller_waits waits) {
  if (is_no_call(what, waits)) throw;
  auto op = std::make_shared<actors::operation>();
  refuse_as(*op, rank, what, [&] { cell(rank).submit(op); });
}

inline actors::rank_cell::call_end communicator_state::begin_listed(rank_t rank, listed_call&& what,
                                                                    const call_options& options) {
  if (!may_be_listed(*what.reduction, options) || !look_at_lists(what, rank, ranks)) return call_end::not_begun;
  return cell(rank).perform_listed(what, deadline_for(rank, options.deadline));
}

actors::rank_cell::call_end communicator_state::begin_on_board(rank_t rank, call_description& what,
                                                               actors::plan_ptr& plan) {
  actors::rank_cell& mine = cell(rank);
  call& c = what.what;
  const auto deadline = deadline_for(rank, what.options.deadline);
  if (!c.uniform && !c.outcome_of)
    if (const auto end = begin_listed(rank, listed_call{what}, what.options); end != call_end::not_begun) [[likely]]
      return end;
  auto description = actors::repeatable(what);
  const actors::call_buffers memory{what.input, what.output, what.input_displacements, what.output_displacements};
  if (description)
    if (const auto end = mine.perform_unchecked(*description, c, memory, deadline); end != call_end::not_begun)
        [[likely]]
      return end;
  check_call(what, rank, ranks);
  c.level = what.options.level.value_or(core->options.level);
  c.protocol = what.options.protocol;
  c.agreement = agreement_for(c, what.options);
  c.offload = wants_offload(c, caller_waits::yes);
  std::swap(c.choreography, what.options.choreography);
  const actors::call_buffers checked{what.input, what.output, what.input_displacements, what.output_displacements};
  if (!c.uniform && !c.outcome_of && may_be_listed(c.reduction, what.options))
    description = actors::words_of(listed_call{what});
  auto end = mine.perform_again(c, description, checked, deadline);
  if (end == call_end::not_begun) {
    plan = core->plans.plan_for(c, placement, callers[static_cast<std::size_t>(rank)].last_plan);
    if (plan && plan->on_board()) end = mine.perform(c, plan, checked, deadline);
  }
  if (end == call_end::not_begun) std::swap(c.choreography, what.options.choreography);
  return end;
}

bool communicator_state::end_on_board(rank_t rank, call_description& what, actors::plan_ptr& plan, failure_ptr& why) {
  const auto end = [&] {
    try {
      return begin_on_board(rank, what, plan);
    } catch (...) {
      refuse(rank, what, caller_waits::yes);
    }
  }();
  if (end == call_end::later) [[unlikely]]
    why = end_of_rest(rank);
  return end != call_end::not_begun;
}

bool communicator_state::run_on_board(rank_t rank, call_description& what, actors::plan_ptr& plan) {
  if (what.pair) return run_pairs(rank, {&what});
  if (!table->has_boards()) return false;
  failure_ptr why;
  const bool begun = end_on_board(rank, what, plan, why);
  if (why) [[unlikely]]
    throw_failure(why);
  return begun;
}

bool communicator_state::run_pairs(rank_t rank, std::initializer_list<call_description*> calls) {
  if (!table->has_boards() || (*calls.begin())->options.tag != 0) return false;
  std::array<actors::pair_call, actors::pairs::most_inline> given;
  std::size_t count = 0;
  for (call_description* c : calls) {
    check_call(*c, rank, ranks);
    given[count++] = {c->what.count,
                      c->what.type,
                      c->peer,
                      c->sending,
                      c->input,
                      c->output,
                      when_sent(c->what.count * size_of(c->what.type), c->options.agreement)};
  }
  return perform_pairs(rank, std::span(given).first(count), deadline_for(rank, (*calls.begin())->options.deadline));
}

failure_ptr communicator_state::end_of_rest(rank_t rank) const {
  const auto rest = cell(rank).take_rest();
  if (!rest.still_to_do) return rest.why;
  const actors::completion_ptr done = rest.still_to_do->done;
  wait(rank, done);
  return done->why();
}

/// A call that throws here has not begun: the part that describes it tells the others.
template <class Begin>
actors::rank_cell::call_end begun_by(Begin&& begin) {
  try {
    return begin();
  } catch (...) {
    return call_end::not_begun;
  }
}

bool communicator_state::run_again(rank_t rank, const plain_call& what) {
  if (!table->has_boards()) return false;
  return see_end(
      rank, begun_by([&] { return cell(rank).perform_unchecked(what, deadline_for(rank, what.options.deadline)); }));
}

bool communicator_state::run_again(rank_t rank, const plain_v_call& what) {
  if (!table->has_boards()) return false;
  return see_end(rank, begun_by([&] { return begin_listed(rank, listed_call{what}, what.words.options); }));
}

bool communicator_state::run_messages(rank_t rank, std::span<const detail::message> what) {
  if (!table->has_boards()) return false;
  std::array<actors::pair_call, actors::pairs::most_inline> given;
  std::size_t count = 0;
  auto agreement = agreement_time::unset;
  std::optional<std::chrono::nanoseconds> deadline;
  for (const detail::message& m : what) {
    agreement = m.options->agreement;
    if (m.options->tag != 0 || agreement > agreement_time::eager) return false;
    if (count == 0) deadline = m.options->deadline;
    // check_call() has the sentences for everything that is wrong, or might be.
    constexpr std::size_t most_elements = std::size_t{1} << 56;
    const std::size_t size = size_of(m.type);
    const bool named = m.peer >= 0 && m.peer < ranks, there = (m.sending ? m.input : m.output) != nullptr;
    if (!named || size == 0 || m.count >= most_elements || (!there && m.count > 0)) return false;
    given[count++] = {m.count,
                      m.type,
                      m.peer,
                      m.sending,
                      m.input,
                      m.output,
                      m.sending ? when_sent(m.count * size, agreement) : sent_when::taken};
  }
  return perform_pairs(rank, std::span(given).first(count), deadline_for(rank, deadline));
}

bool communicator_state::perform_pairs(rank_t rank, std::span<const actors::pair_call> calls,
                                       actors::time_limit deadline) {
  using enum actors::rank_cell::pairs_end;
  const auto end = cell(rank).perform_pairs(calls, deadline);
  if (end == later) [[unlikely]]
    wait_for_pairs(rank);
  return end != not_begun;
}

void communicator_state::wait_for_pairs(rank_t rank) {
  actors::rank_cell& mine = cell(rank);
  const auto left = mine.take_pairs();
  const auto begun = std::chrono::steady_clock::now();
  std::size_t bytes = 0;
  for (const actors::operation_ptr& op : left) {
    if (!op) continue;
    bytes += op->what.count * size_of(op->what.type);
    wait(rank, op->done);
  }
  mine.waited_for_pairs(std::chrono::steady_clock::now() - begun, bytes);
  for (const actors::operation_ptr& op : left)
    if (op && op->done->why()) throw_failure(op->done->why());
}

bool communicator_state::is_nothing(rank_t rank, call_description& what) const {
  if (!what.pair || what.peer != proc_null) return false;
  check_call(what, rank, ranks);
  return true;
}

bool communicator_state::wait(rank_t rank, const actors::completion_ptr& done, actors::steady_time deadline) const {
  actors::rank_cell& mine = cell(rank);
  mine.help(*done, deadline);
  const int yields = mine.gives_way() ? actors::runtime::no_looks : table->waiting().yields;
  return core->runtime->wait(done, deadline, run.get(), yields, &mine);
}

void refuse_closed() {
  throw error(errc::engine_closed, "the engine was destroyed; its communicators cannot be used any more");
}
void refuse_empty() {
  throw error(errc::invalid_argument, "this communicator is empty (moved from, or a split with a negative color)");
}

void communicator::run(const call_description& what) { run(call_description{what}); }
void communicator::run(call_description&& what) {
  if (!impl_) refuse_empty();
  communicator_state& of = *impl_->of;
  actors::runtime::check_may_wait();
  const gate::quick_pass inside{of.core->door, impl_->entrance};
  if (!inside) refuse_closed();
  if (of.record) [[unlikely]] {
    const recorded_call noted{of, impl_->rank, {&what}};
    return of.run_now(impl_->rank, std::move(what));
  }
  of.run_now(impl_->rank, std::move(what));
}

namespace {
/// Out of the way of those that need no description.
template <class Call>
[[gnu::noinline]] void run_described(communicator& by, const Call& what) {
  call_description described = what;
  by.run(std::move(described));
}
}  // namespace

void communicator::run(const plain_call& what) {
  if (!impl_) refuse_empty();
  if (impl_->at_once([&](communicator_state& of, rank_t rank) { return of.run_again(rank, what); })) return;
  run_described(*this, what);
}

void communicator::run(const plain_v_call& what) {
  if (!impl_) refuse_empty();
  if (impl_->of->ranks == 1)
    if (const auto count = only_block_of(listed_call{what})) {
      plain_call only = what.words;
      only.count = *count;
      only.input_limit = only.output_limit = plain_call::unknown;
      return run(only);
    }
  if (impl_->at_once([&](communicator_state& of, rank_t rank) { return of.run_again(rank, what); })) return;
  run_described(*this, what);
}

void communicator::run(const detail::message& what) {
  if (!impl_) refuse_empty();
  if (impl_->at_once([&](communicator_state& of, rank_t rank) { return of.run_messages(rank, {&what, 1}); })) return;
  run(what.described());
}

void communicator_state::run_now(rank_t rank, call_description&& what) {
  actors::plan_ptr plan;
  if (is_nothing(rank, what) || run_on_board(rank, what, plan)) return;
  auto op = std::make_shared<actors::operation>();
  prepare(*op, rank, what, caller_waits::yes, plan, plan != nullptr);
  const actors::completion_ptr done = op->done;
  {
    const actors::runtime::submitting mine{*core->runtime};
    cell(rank).submit_and_help({&op, 1});
    wait(rank, done);
  }
  if (done->why()) throw_failure(done->why());
}

request communicator::start(call_description what) {
  if (!impl_) refuse_empty();
  communicator_state& of = *impl_->of;
  const gate::pass inside{of.core->door, impl_->doorway()};
  if (!inside) refuse_closed();
  if (of.is_nothing(impl_->rank, what)) return {};
  const auto made = std::make_shared<request::started>(impl_->of, impl_->rank);
  of.open_collective(made->op, impl_->rank, what);
  of.prepare(made->op, impl_->rank, what, caller_waits::no);
  request r{std::shared_ptr<request::state>(made, &made->caller)};
  r.state_->begin(request::started::share(made));
  return r;
}

request communicator::join(group& in, call_description what) {
  if (!impl_) refuse_empty();
  communicator_state& of = *impl_->of;
  const gate::pass inside{of.core->door, impl_->doorway()};
  if (!inside) refuse_closed();
  if (of.is_nothing(impl_->rank, what)) return {};
  const auto made = std::make_shared<request::started>(impl_->of, impl_->rank);
  of.open_collective(made->op, impl_->rank, what);
  try {
    of.describe(made->op, impl_->rank, what);
  } catch (...) {
    in.refuse(impl_, what);
  }
  return in.add({made, &made->caller}, impl_);
}

/// The refused call keeps its place among the group's.
void group::refuse(const std::shared_ptr<communicator::impl>& member, const call_description& what) {
  if (member->of->is_no_call(what, caller_waits::no)) throw;
  const auto made = std::make_shared<request::started>(member->of, member->rank);
  refuse_as(made->op, member->rank, what, [&] { add({made, &made->caller}, member); });
}

void request::state::begin(actors::operation_ptr op) {
  if (of->record) [[unlikely]]
    note_begin();
  if (pair != nullptr) pair->begin(op);
  else of->cell(rank).submit(std::move(op));
  launched.store(true);
}

void request::state::launch(bool open) {
  actors::operation_ptr op = std::move(to_launch);
  const auto from = std::move(member);
  if (!open) {
    op->close();
    return done->complete(make_failure(errc::engine_closed, "the engine was destroyed before the group was launched"));
  }
  if (cancel_wanted.load()) op->stalled = true;
  if (cancel_wanted.load() && pair != nullptr) pair->out.stalled = true;
  begin(std::move(op));
}

void request::state::give_up() {
  const actors::operation_ptr op = std::move(to_launch);
  member.reset();
  op->close();
  done->complete(
      make_failure(errc::cancelled, "its group was destroyed inside a callback, where nobody can wait for it"));
}

// -- outcome ------------------------------------------------------------------------------------------------------------

namespace {

call_description ask_outcome(std::uint64_t sequence, std::error_code mine, int ranks, operation_outcome& told,
                             call_options options) {
  call_description d;
  d.what.what = collective::barrier;
  d.what.uniform = false;  // what every rank says is known only when all have called
  const errc result = !mine                                  ? errc::ok
                      : mine.category() == troupe_category() ? static_cast<errc>(mine.value())
                                                             : errc::aborted;
  d.what.outcome_of = ended_call{sequence, result};
  told.of_rank.assign(static_cast<std::size_t>(ranks), errc::ok);
  d.output = told.of_rank.data();
  d.options = std::move(options);
  return d;
}

}  // namespace

operation_outcome communicator::outcome(request of, call_options options) {
  if (!impl_) refuse_empty();
  if (!of.state_ || of.state_->of != impl_->of || of.state_->rank != impl_->rank || of.state_->what->peer >= 0)
    throw error(errc::invalid_argument,
                "outcome: the request must be of a collective that this rank has called of this communicator");
  const std::error_code mine = of.try_wait();
  operation_outcome told;
  run(ask_outcome(of.state_->what->epoch, mine, size(), told, std::move(options)));
  return told;
}

operation_outcome communicator::outcome(std::error_code mine, call_options options) {
  operation_outcome told;
  run(ask_outcome(ended_call::unnamed, mine, size(), told, std::move(options)));
  return told;
}

request communicator::outcome_async(std::error_code mine, operation_outcome& told, call_options options) {
  return start(ask_outcome(ended_call::unnamed, mine, size(), told, std::move(options)));
}

request communicator::outcome_async(group& in, std::error_code mine, operation_outcome& told, call_options options) {
  return join(in, ask_outcome(ended_call::unnamed, mine, size(), told, std::move(options)));
}

}  // namespace troupe
