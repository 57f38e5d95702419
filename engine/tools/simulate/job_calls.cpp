// SPDX-License-Identifier: Apache-2.0
// What the callers of a simulated job's ranks call: collectives, sends and receives, splits and shrinks, the same in all ranks of a communicator.

#include <algorithm>
#include <cstdint>
#include <utility>

#include "engine/tools/simulate/job_world.hpp"
#include "protocols/choreographies/choreography.hpp"

namespace troupe::simulate {

namespace {
constexpr auto poison = static_cast<std::int32_t>(0xa5a5a5a5);
constexpr int most_depth = 3;  ///< of parts in parts
}  // namespace

void job_world::operation_part::spoil() {
  std::fill(in.begin(), in.end(), poison);
  std::fill(out.begin(), out.end(), poison);
}

bool job_world::operation_part::spoilt() const {
  const auto is = [](const std::vector<std::int32_t>& v) {
    return std::all_of(v.begin(), v.end(), [](std::int32_t each) { return each == poison; });
  };
  return is(in) && is(out);
}

/// Soon: another event.
void job_world::go_on(caller& c) {
  at_process(c.in->here, [this, &c](process&) { call_next(c); });
}

void job_world::call_next(caller& c) {
  if (c.in->dead || c.done() || c.open > 0 || c.waits.of != nullptr) return;
  caller::communicator& now = c.has.back();
  if (now.failed) return after_failure(c);
  if (now.called == now.most) return leave(c);
  const auto number = static_cast<std::uint64_t>(now.called++);
  if (now.in->whole == 0 && !divides()) {
    dice d(seed_, {0x40, number});  // the same at every rank
    if (!(d.percent(60) ? call_collective(c, d) : call_pair(c, d))) go_on(c);
    return;
  }
  dice d(seed_, {0x41, now.in->id, number});
  const auto what = d.below(100);
  const bool may_divide = divides() && now.in->depth < most_depth;
  if (may_divide && what < 8) return shrink(c, false);
  const bool begun = may_divide && what < 35 ? call_split(c, d) : what < 80 ? call_collective(c, d) : call_pair(c, d);
  if (!begun) go_on(c);
}

/// Null: it cannot be performed so.
operation_ptr job_world::planned(const call& what, dice& d, int ranks) {
  simulate::way how;
  how.port = port_kind::mailbox;
  how.credits = d.any_of({1, 2, 8});
  how.channels = d.between(1, 2);
  plan_ptr plan;
  for (int tries = 0; !plan && tries < 30; ++tries) {
    how.choreography = static_cast<int>(d.below(all_choreographies().size()));
    const std::string_view which = all_choreographies()[static_cast<std::size_t>(how.choreography)]->name;
    if (which == "csc" || which == "fused") continue;  // they need one memory
    plan = plans_.plan_for(what, ranks, how);
  }
  if (!plan) return nullptr;
  auto op = std::make_shared<operation>();
  op->what = what;
  op->plan = std::move(plan);
  return op;
}

bool job_world::call_collective(caller& c, dice& d) {
  const member& m = *c.has.back().in;
  const rank_t rank = c.has.back().rank;
  call what;
  what.what = collective::all_reduce;
  what.type = datatype::i32;
  what.count = d.any_of({1u, 5u, 64u, 300u});
  operation_ptr op = planned(what, d, m.ranks());
  if (!op) return false;
  const std::int32_t salt = static_cast<std::int32_t>(d.below(1000));
  auto mine = std::make_unique<operation_part>();
  mine->in.resize(what.count);
  mine->out.resize(what.count);
  mine->right.resize(what.count);
  for (std::size_t i = 0; i < what.count; ++i) {
    for (const int r : m.world_rank) mine->right[i] += salt + r * 7 + static_cast<std::int32_t>(i);
    mine->in[i] = salt + m.world_rank[static_cast<std::size_t>(rank)] * 7 + static_cast<std::int32_t>(i);
  }
  c.parts.push_back(std::move(mine));
  submit(c, std::move(op), *c.parts.back());
  return true;
}

/// Everybody sends to the next, and receives from the one before.
bool job_world::call_pair(caller& c, dice& d) {
  member& m = *c.has.back().in;
  const rank_t rank = c.has.back().rank;
  const int ranks = m.ranks();
  if (ranks < 2) return false;
  const std::size_t count = d.any_of({1u, 40u, 500u});
  const std::int32_t salt = static_cast<std::int32_t>(d.below(1000));
  for (const bool sending : {false, true}) {
    auto mine = std::make_unique<operation_part>();
    const int peer = (rank + (sending ? 1 : ranks - 1)) % ranks;
    const int giver = m.world_rank[static_cast<std::size_t>(sending ? rank : peer)];
    (sending ? mine->in : mine->out).resize(count);
    mine->right.resize(sending ? 0 : count);
    for (std::size_t i = 0; i < count; ++i)
      (sending ? mine->in : mine->right)[i] = salt + giver * 31 + static_cast<std::int32_t>(i);
    auto op = std::make_shared<operation>();
    op->what.type = datatype::i32;
    op->what.count = count;
    op->peer = peer;
    op->sending = sending;
    c.parts.push_back(std::move(mine));
    ++c.open;  // so that the first does not end the call alone
    submit(c, std::move(op), *c.parts.back());
    --c.open;
  }
  if (c.open == 0) go_on(c);
  return true;
}

/// Two or three colors, or none; or a duplicate, which is one for all.
bool job_world::call_split(caller& c, dice& d) {
  member& whole = *c.has.back().in;
  const rank_t rank = c.has.back().rank;
  const bool copies = d.one_in(4);
  const int colors = copies ? 1 : d.between(1, 3);
  const bool reversed = !copies && d.one_in(3);
  call what;
  what.what = collective::all_gather;
  what.type = datatype::i32;
  what.count = 2;
  what.purpose = copies ? call_purpose::duplicate : call_purpose::split;
  operation_ptr op = planned(what, d, whole.ranks());
  if (!op) return false;
  auto mine = std::make_unique<operation_part>();
  mine->out.resize(2 * static_cast<std::size_t>(whole.ranks()));
  for (rank_t r = 0; r < whole.ranks(); ++r) {
    dice of_rank(d.next(), {static_cast<std::uint64_t>(r)});
    const bool none = !copies && of_rank.one_in(8);
    mine->right.push_back(none ? -1 : static_cast<std::int32_t>(of_rank.below(static_cast<std::uint64_t>(colors))));
    mine->right.push_back(reversed ? whole.ranks() - r : r);
  }
  mine->in = {mine->right[2 * static_cast<std::size_t>(rank)], mine->right[2 * static_cast<std::size_t>(rank) + 1]};
  c.parts.push_back(std::move(mine));
  operation_part& part = *c.parts.back();
  op->last_step = [this, &c, &whole, rank, &part](const operation& done, failure_ptr why) {
    return conclude_split(c, whole, rank, done.epoch, std::move(why), part.out, part.in[0]);
  };
  submit(c, std::move(op), part);
  return true;
}

void job_world::submit(caller& c, operation_ptr op, operation_part& what) {
  what.given = what.in;
  op->input = what.in.data();
  op->output = what.out.data();
  ++c.open;
  const completion_ptr done = op->done;
  const bool divides_it = op->last_step != nullptr;
  // Below what it may push on top.
  const std::size_t in = c.has.size() - 1;
  done->then([this, &c, &what, done, in, divides_it] {
    const process& p = *c.in;
    if (p.dead) return;  // and its memory with it
    what.over = true;
    what.why = done->why();
    --c.open;
    ++(what.why ? result_.failed : result_.performed);
    const std::string who = "process " + std::to_string(p.here);
    if (!what.why && what.out != what.right) {
      const auto [got, right] = std::mismatch(what.out.begin(), what.out.end(), what.right.begin(), what.right.end());
      fault(who + ": wrong values: of " + std::to_string(what.right.size()) + " number " +
            std::to_string(got - what.out.begin()) + " is " + std::to_string(*got) + ", not " + std::to_string(*right));
    }
    if (what.in != what.given) fault(who + ": what it gave has changed");
    if (what.why) {
      c.has[in].why = what.why;
      // A rank that could not make its part goes on in the whole, which is as it was.
      c.has[in].failed = !(divides_it && what.why->code == errc::out_of_memory);
      tell(who + ", " + c.has[in].in->name + ": rank " + std::to_string(c.has[in].rank) + " fails: " + what.why->text);
      check_failure(p, *what.why);
    }
    what.spoil();
    if (c.open == 0) go_on(c);
  });
  caller::communicator& now = c.has.back();
  turn(*now.in, now.in->at(now.rank), [&](rank_state& s, rank_outbox& o) { s.submit(std::move(op), o); });
}

/// The handle is gone; its caller goes on in the communicator before.
void job_world::leave(caller& c) {
  member& m = *c.has.back().in;
  const rank_t rank = c.has.back().rank;
  c.has.pop_back();
  tell(m.name + ": rank " + std::to_string(rank) + " leaves");
  leave_part(m, rank);
  if (!c.done()) return go_on(c);
  leave_if_done(*c.in);
}

}  // namespace troupe::simulate
