// SPDX-License-Identifier: Apache-2.0
#include "actors/virtual/state_rank.hpp"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "actors/virtual/recorder.hpp"
#include "memory/error.hpp"
#include "memory/kernels/kernels.hpp"
#include "topology/machine/quantities.hpp"

namespace troupe::actors {

namespace {

constexpr epoch_t the_operation = 0;  ///< a run has one

/// Where no bytes move, only the size of an element counts.
datatype work_type(const virtual_options& o, std::size_t element_size) {
  if (size_of(o.type) == element_size) return o.type;
  return *type_of_size(element_size);
}

plan_ptr make_plan(const lazy_sizes& sizes, const virtual_options& o) {
  const score& notes = sizes.notes();
  const call_shape& shape = sizes.shape();
  const bool moves = o.carry == payload::real;
  auto made = std::make_shared<plan>();
  made->choreography = notes.choreography;
  made->in_place = notes.in_place;
  made->root_in_place = true;  // what is studied is the score as it is, without a copy beside it
  made->notes = std::shared_ptr<const score>{std::shared_ptr<const void>{}, &notes};
  made->count = shape.count;
  mailbox_plan& by = made->port.emplace<mailbox_plan>();
  by.cut = sizes.cut();
  by.credits = o.protocol.slots;
  by.any_order = o.any_order;
  by.work = moves ? step_work::timed : step_work::timed_without_bytes;
  made->work_type = work_type(o, shape.element_size);
  made->scaled = moves && is_reduction(notes.what) && o.reduction.kind == op_kind::pre_mul_sum;
  return made;
}

}  // namespace

std::optional<datatype> type_of_size(std::size_t bytes) {
  for (const datatype type : {datatype::u8, datatype::f16, datatype::f32, datatype::f64, datatype::c128})
    if (size_of(type) == bytes) return type;
  return std::nullopt;
}

// -- what the ranks share ---------------------------------------------------------------------------------------------

state_communicator::state_communicator(const lazy_sizes& sizes, const hardware& h, const virtual_options& o, traffic& w,
                                       std::uint32_t part_of_ways, recorder* r)
    : virtual_communicator(sizes, h, o, w, part_of_ways, r),
      how(make_plan(sizes, o)),
      spaces(notes.ranks),
      membership_(notes.ranks, notes.choreography) {}

state_communicator::~state_communicator() = default;

void state_communicator::settle() {
  while (!due_.empty()) {
    const auto next = std::move(due_.front());
    due_.pop_front();
    if (const auto* order = std::get_if<std::function<void()>>(&next)) {
      (*order)();
      continue;
    }
    const credit_due& c = std::get<credit_due>(next);
    rank(c.to).turn([&c](rank_state& s, rank_outbox& out) { s.on_credit(c.channel, c.what, out); });
  }
}

operation_ptr state_communicator::make_operation(rank_t r) const {
  auto op = std::make_shared<operation>();
  call& c = op->what;
  c.what = notes.what;
  c.uniform = shape.counts.empty();
  c.in_place = notes.in_place;
  c.type = how->work_type;
  c.reduction = options.reduction;
  c.root = notes.root;
  c.count = how->count;
  c.choreography = notes.choreography;
  const auto own = static_cast<std::size_t>(r), n = static_cast<std::size_t>(notes.ranks);
  if (!c.uniform) {
    const std::vector<std::size_t> all(shape.counts.begin(), shape.counts.end());
    op->counts = std::make_shared<const std::vector<std::size_t>>(all);  // before the membership tells them
    switch (traits_of(c.what).v) {
      case v_counts::every_pair:
        for (std::size_t peer = 0; peer < n; ++peer) {
          c.counts.push_back(all[own * n + peer]);
          c.receive_counts.push_back(all[peer * n + own]);
        }
        break;
      case v_counts::rooted:
        if (r == notes.root) c.counts = all;
        else c.counts = {all[own]};
        break;
      case v_counts::none:
      case v_counts::common: c.counts = all; break;
    }
  }
  if (how->work() == step_work::timed) {
    op->input = options.memory[own].input;
    op->output = options.memory[own].output;
  }
  op->input_displacements.assign(shape.input_displacements.begin(), shape.input_displacements.end());
  op->output_displacements.assign(shape.output_displacements.begin(), shape.output_displacements.end());
  op->plan = how;
  return op;
}

void state_communicator::check_failed() const {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const operation_ptr& op = ranks[r]->operation();
    if (!op || ranks[r]->is_lost()) continue;  // lost ones may have been stopped, and heard no more
    // An operation that a loss has stopped ends with that, however far it was.
    const failure_ptr why = op->done->done() ? op->done->why() : nullptr;
    if (has_losses_ && why && why->code == errc::peer_lost) continue;
    if (why) throw error(why->code, why->text);
    if (op->stalled)
      throw error(errc::bad_score, "rank " + std::to_string(r) + " gets a chunk of another size than its step expects");
  }
}

void state_communicator::check_ended() const {
  for (std::size_t r = 0; r < ranks.size(); ++r)
    if (!ranks[r]->is_lost() && !ranks[r]->operation()->done->done())
      throw error(errc::message_lost,
                  "rank " + std::to_string(r) + " has performed its steps, but its operation is not over");
}

std::vector<virtual_end> state_communicator::ends() const {
  std::vector<virtual_end> all;
  if (!has_losses_) return all;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    virtual_end e;
    e.lost = ranks[r]->is_lost();
    const operation_ptr& op = ranks[r]->operation();
    if (!e.lost && op && op->done->done() && op->done->why()) {
      e.code = op->done->why()->code;
      e.why = op->done->why()->text;
    }
    all.push_back(std::move(e));
  }
  return all;
}

// -- what is said -------------------------------------------------------------------------------------------------------

std::int64_t state_communicator::delay(rank_t from, rank_t to) const {
  return from == to ? 0 : on.time_alone(from, to, 0, 0).count();
}

void state_communicator::post(rank_t to, std::int64_t at, std::function<void()> what) {
  words_.push_back(std::move(what));
  ways.time().at(at, ways.ranks[first_rank + static_cast<std::size_t>(to)],
                 word_event{static_cast<std::uint32_t>(words_.size() - 1)});
}

void state_communicator::heard(std::uint32_t word) { std::exchange(words_[word], nullptr)(); }

void state_communicator::tell(rank_t from, rank_t to, std::function<void()> what) {
  if (has_losses_) post(to, ways.time().now() + delay(from, to), std::move(what));
  else due_.emplace_back(std::move(what));
}

namespace {

/// As a real run says it, which counts milliseconds; shorter ones are exact.
std::string silence_text(std::int64_t ps) {
  constexpr std::int64_t millisecond = 1'000'000'000;
  return ps % millisecond == 0 ? std::to_string(ps / millisecond) + " ms" : to_text(picoseconds{ps});
}

}  // namespace

void state_communicator::lose(rank_t who) {
  has_losses_ = true;
  const auto loss = std::find_if(on.losses.begin(), on.losses.end(), [&](const rank_loss& l) { return l.rank == who; });
  rank_t home = home_;
  while (home < notes.ranks && rank(home).is_lost()) ++home;
  if (home == notes.ranks)
    return;  // nobody is left to hear of it; what is under way from the last home still comes from there
  home_ = home;
  const bool stopped = loss->silence_ps > 0;
  const std::string text = notes.choreography + ": rank " + std::to_string(who) + " was lost: " +
                           (stopped ? "nothing was heard of it for " + silence_text(loss->silence_ps)
                                    : std::string{"it closed a connection"}) +
                           "; the communicator cannot be used any more";
  post(home_, ways.time().now() + (stopped ? loss->silence_ps : delay(who, home_)),
       [this, who, text] { membership_.lost(who, make_failure(errc::peer_lost, text), *this); });
}

void state_communicator::tell_all(const std::function<void(rank_state&, rank_outbox&)>& what) {
  if (!has_losses_) {
    due_.emplace_back([this, what] {
      for (const auto& r : ranks) r->turn(what);
    });
    return;
  }
  for (rank_t r = 0; r < notes.ranks; ++r) tell(home_, r, [this, r, what] { rank(r).turn(what); });
}

void state_communicator::agreed(epoch_t epoch, const counts_ptr& counts) {
  tell_all([epoch, counts](rank_state& s, rank_outbox& o) { s.agreed(epoch, counts, o); });
}
void state_communicator::ask(epoch_t epoch) {
  tell_all([epoch](rank_state& s, rank_outbox& o) { s.asked(epoch, o); });
}
void state_communicator::stop(epoch_t epoch) {
  tell_all([epoch](rank_state& s, rank_outbox& o) { s.stop(epoch, o); });
}
void state_communicator::failed(epoch_t epoch, const failure_ptr& why) {
  tell_all([epoch, why](rank_state& s, rank_outbox& o) { s.failed(epoch, why, o); });
}
void state_communicator::broken(const failure_ptr& why) {
  tell_all([why](rank_state& s, rank_outbox& o) { s.broken(why, o); });
}
void state_communicator::peer_left(rank_t who, const sends_ptr& sent) {
  tell_all([who, sent](rank_state& s, rank_outbox& o) { s.peer_left(who, sent, o); });
}
void state_communicator::peer_lost(rank_t who) {
  tell_all([who](rank_state& s, rank_outbox& o) { s.peer_lost(who, o); });
}
void state_communicator::stuck(look_t look, bool nobody_else) {
  tell_all([look, nobody_else](rank_state& s, rank_outbox& o) { s.stuck(look, look, nobody_else, o); });
}
void state_communicator::flush(rank_t who) {
  tell_membership(home_, [who](membership_state& m, membership_outbox& out) { m.flushed(who, out); });
}
void state_communicator::bury(rank_t who, const failure_ptr& why) {
  tell(home_, who, [this, who, why] { rank(who).turn([&](rank_state& s, rank_outbox&) { s.bury(why); }); });
}

// -- a rank -------------------------------------------------------------------------------------------------------------

state_rank::state_rank(state_communicator& with, rank_t rank)
    : virtual_rank(with, rank),
      all_(with),
      state_(
          {.rank = rank, .ranks = with.notes.ranks, .channels = with.channels, .communicator = with.notes.choreography},
          with.memory, with.spaces, nullptr) {}

void state_rank::perform() {
  std::uint64_t steps = 0;
  for (const auto& lane : all_.how->program_of(rank_)->lanes) steps += lane.size();
  has_steps(steps);
  operation_ = all_.make_operation(rank_);
  turn([this](rank_state& s, rank_outbox& out) { s.submit(operation_, out); });
}

void state_rank::arrived(std::uint32_t connection, std::uint32_t message) {
  const int channel = with_.ways.at(connection).lane / with_.lanes;
  turn([&](rank_state& s, rank_outbox& out) { s.on_chunk(channel, std::move(all_.under_way[message]), out); });
}

void state_rank::work_ended(int channel, int lane) {
  turn([&](rank_state& s, rank_outbox& out) { s.transferred({the_operation, -1, false}, channel, lane, out); });
}

void state_rank::complete_ended() {
  ended_operations over = state_.take_ended();
  while (const operation_ptr op = over.take()) {
    const bool fails = op->why_ended != nullptr;
    op->done->complete(std::move(op->why_ended));
    if (fails) end_early();
  }
}

std::vector<std::string> state_rank::waits() {
  stopped_waits_.clear();
  state_.stop(the_operation, *this);
  return std::exchange(stopped_waits_, {});
}

// -- what it says -----------------------------------------------------------------------------------------------------

void state_rank::called(epoch_t epoch, const call& what) {
  all_.tell_membership(rank_, [epoch, rank = rank_, what](membership_state& m, membership_outbox& out) {
    m.called(epoch, rank, what, out);
  });
}
void state_rank::differs(epoch_t epoch) {
  all_.tell_membership(rank_, [epoch](membership_state& m, membership_outbox& out) { m.differs(epoch, out); });
}

void state_rank::withdraw(epoch_t epoch, const call* ahead) {
  all_.tell_membership(rank_,
                       [epoch, rank = rank_, what = ahead != nullptr ? std::optional<call>{*ahead} : std::nullopt](
                           membership_state& m, membership_outbox& out) { m.withdraw(epoch, rank, what, out); });
}
void state_rank::fail(epoch_t epoch, const std::string& title, failure_ptr why) {
  all_.tell_membership(rank_, [epoch, title, why = std::move(why)](membership_state& m, membership_outbox& out) {
    m.fail(epoch, title, why, out);
  });
}
void state_rank::stopped(epoch_t epoch, std::vector<std::string> waits, presence came) {
  stopped_waits_ = waits;
  all_.tell_membership(rank_,
                       [epoch, rank = rank_, waits = std::move(waits), came = std::move(came)](
                           membership_state& m, membership_outbox& out) { m.stopped(epoch, rank, waits, came, out); });
}
void state_rank::left(epoch_t operations, call last, sends_ptr sent) {
  all_.tell_membership(rank_,
                       [rank = rank_, operations, last = std::move(last), sent = std::move(sent)](
                           membership_state& m, membership_outbox& out) { m.left(rank, operations, last, sent, out); });
}
void state_rank::quiet() {
  all_.tell_membership(rank_, [rank = rank_](membership_state& m, membership_outbox& out) { m.quiet(rank, out); });
}
void state_rank::abort(const failure_ptr& why) {
  all_.tell_membership(rank_, [why](membership_state& m, membership_outbox& out) { m.abort(why, out); });
}
void state_rank::perished() {
  all_.tell_membership(rank_, [rank = rank_](membership_state& m, membership_outbox& out) { m.perished(rank, out); });
}

bool state_rank::deliver(rank_t to, int channel, chunk&& what) {
  const std::uint32_t message = with_.ways.send(outgoing(channel, lane_of(what.lane), to), what.bytes);
  if (message >= all_.under_way.size()) all_.under_way.resize(std::size_t{message} + 1);
  all_.under_way[message] = std::move(what);
  return false;
}

void state_rank::give_back(rank_t to, int channel, const credit& what) {
  const std::uint32_t at = incoming(channel, lane_of(what.lane), to);
  if (with_.record) with_.record->taken(rank_, static_cast<std::int32_t>(what.lane), with_.ways.front(at)->flow);
  with_.ways.consume(at);
  all_.give_back(to, channel, what);
}

void state_rank::revoke(rank_t receiver, epoch_t epoch, const failure_ptr& why) {
  all_.tell(rank_, receiver, [&all = all_, from = rank_, receiver, epoch, why] {
    all.rank(receiver).turn([&](rank_state& s, rank_outbox& o) { s.revoke(from, epoch, why, o); });
  });
}
void state_rank::revoked(rank_t sender, epoch_t epoch, bool received) {
  all_.tell(rank_, sender, [&all = all_, from = rank_, sender, epoch, received] {
    all.rank(sender).turn([&](rank_state& s, rank_outbox& o) { s.revoked(from, epoch, received, o); });
  });
}
void state_rank::refuse(rank_t peer, epoch_t epoch, bool sending, const failure_ptr& why) {
  all_.tell(rank_, peer, [&all = all_, from = rank_, peer, epoch, sending, why] {
    all.rank(peer).turn([&](rank_state& s, rank_outbox& o) { s.refused(from, epoch, sending, why, o); });
  });
}
void state_rank::inquire(rank_t peer, epoch_t epoch, bool sending, look_t look, bool nobody_else) {
  all_.tell(rank_, peer, [&all = all_, from = rank_, peer, epoch, sending, look, nobody_else] {
    all.rank(peer).turn([&](rank_state& s, rank_outbox& o) { s.inquired(from, epoch, sending, look, nobody_else, o); });
  });
}

bool state_rank::transfer(const operation_key&, int, int, std::byte* target, const std::byte* source,
                          std::size_t bytes) {
  troupe::copy(target, source, bytes);  // its time has passed: begin_work() charged it
  return true;
}

bool state_rank::flush(const operation_key&) { return false; }

bool state_rank::begin_work(const operation_key&, int channel, int lane, const instruction& i,
                            lane_wait::reason lacked) {
  if (with_.failure) return false;
  try {
    return virtual_rank::begin_work(channel, lane, brief_instruction{i}, lacked);
  } catch (...) {
    // If the modelled hardware cannot do something, that is no failure of the operation: the run ends.
    if (!with_.failure) with_.failure = std::current_exception();
    return false;
  }
}

steady_time state_rank::now() const {
  return steady_time{} + std::chrono::duration_cast<steady_time::duration>(picoseconds{with_.ways.time().now()});
}

}  // namespace troupe::actors
