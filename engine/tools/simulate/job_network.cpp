// SPDX-License-Identifier: Apache-2.0
// A simulated job's clock, its connections, and what happens to them and to processes.

#include <algorithm>
#include <utility>

#include "engine/tools/simulate/job_world.hpp"

namespace troupe::simulate {

namespace {
constexpr nanoseconds_t tick_ns = 300 * ms;
}

// -- clock and network --------------------------------------------------------------------------------------------------

void job_world::at(time_ns when, std::function<void()> what) { events_.push({when, order_++, std::move(what)}); }

nanoseconds_t job_world::latency(int from, int to) {
  dice d(seed_, {0x20, static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(to), line(from, to).frames++});
  if (d.one_in(30)) return static_cast<time_ns>(d.below(100 * ms));
  return 5 * us + static_cast<time_ns>(d.below(100 * us));
}

void job_world::at_process(int number, to_process what) {
  process& p = *all_[static_cast<std::size_t>(number)];
  if (p.dead) return;
  at(now_ + us, [&p, what = std::move(what)] {
    if (p.dead) return;
    if (p.stopped) p.held.push_back([&p, what] { what(p); });
    else what(p);
  });
}

void job_world::send(int from, int to, to_process frame) {
  process& mine = *all_[static_cast<std::size_t>(from)];
  connection& c = line(from, to);
  if (mine.dead || !c.writes || !mine.presence.alive(static_cast<std::uint32_t>(to))) return;
  c.used = true;
  if (all_[static_cast<std::size_t>(to)]->dead) return writer_ends(from, to);  // refused
  // A connection ends when something is not acknowledged for a silence, as when it cannot be opened.
  if ((c.cut || line(to, from).cut) && !std::exchange(c.doomed, true))
    at(now_ + 3000 * ms, [this, from, to] { writer_ends(from, to); });
  if (c.cut) return;
  time_ns when = now_ + latency(from, to);
  when = std::max(when, c.last + 1);
  c.last = when;
  at(when, [this, from, to, &c, frame = std::move(frame)] {
    process& there = *all_[static_cast<std::size_t>(to)];
    if (there.dead || c.reset || c.cut) return;
    const auto arrive = [this, from, &c, &there, frame] {
      if (there.dead || !c.reads) return;
      if (!std::exchange(c.heard, true)) there.presence.hears(static_cast<std::uint32_t>(from), true, clock());
      there.presence.heard(static_cast<std::uint32_t>(from), clock());
      frame(there);
    };
    if (there.stopped) there.held.push_back(arrive);
    else arrive();
  });
}

/// The writer's end is told.
void job_world::writer_ends(int from, int to) {
  at_process(from, [this, from, to](process& p) {
    connection& c = line(from, to);
    if (!std::exchange(c.writes, false) || is(job_mutant::eof_unheard)) return;
    if (p.presence.alive(static_cast<std::uint32_t>(to)))
      p.presence.ended(static_cast<std::uint32_t>(to), "it closed a connection", clock(), *p.says);
  });
}

/// The reader's end, behind what was written.
void job_world::reader_ends(int from, int to) {
  connection& c = line(from, to);
  if (!c.used || c.cut) return;
  c.last = std::max(now_ + latency(from, to), c.last + 1);
  at(c.last, [this, from, to] {
    at_process(to, [this, from, to](process& p) {
      connection& mine = line(from, to);
      if (!std::exchange(mine.reads, false) || !mine.heard) return;
      p.presence.hears(static_cast<std::uint32_t>(from), false, clock());
      if (!is(job_mutant::eof_unheard) && p.presence.alive(static_cast<std::uint32_t>(from)))
        p.presence.ended(static_cast<std::uint32_t>(from), "it closed a connection", clock(), *p.says);
    });
  });
}

void job_world::close_both(int me, int other) {
  connection &out = line(me, other), &in = line(other, me);
  if (std::exchange(out.writes, false)) reader_ends(me, other);
  if (!std::exchange(in.reads, false)) return;
  all_[static_cast<std::size_t>(me)]->presence.hears(static_cast<std::uint32_t>(other), false, clock());
  if (in.used && !out.cut) at(now_ + latency(me, other), [this, me, other] { writer_ends(other, me); });
}

void job_world::tick(int number) {
  process& p = *all_[static_cast<std::size_t>(number)];
  if (p.dead) return;
  at(now_ + tick_ns, [this, number] { tick(number); });
  if (p.stopped) return;
  if (!is(job_mutant::silence_heard)) p.presence.tick(clock(), *p.says);
  for (const auto& m : p.members)
    if (!m->ended)
      for (auto& [rank, s] : m->ranks_here) turn(*m, s, [](rank_state& state, rank_outbox& o) { state.tick(o); });
}

// -- faults ----------------------------------------------------------------------------------------------------------------

void job_world::plan_faults() {
  dice d(seed_, {0x30});
  if (!options_.faults) return;
  happened_ = d.any_of({0, 1, 1, 1, 2, 2});
  for (int i = 0; i < happened_; ++i) plan_fault(d, -1);
  if (!divides() || happened_ == 0) return;
  // While the others are agreeing on who is left: some more, soon behind the first.
  dice later(seed_, {0x31});
  for (int more = later.any_of({0, 0, 1, 1, 2}); more > 0; --more, ++happened_)
    plan_fault(later, first_fault_ + static_cast<time_ns>(later.below(later.one_in(3) ? 4000 * ms : 3 * ms)));
}

/// @param when −1: some time
void job_world::plan_fault(dice& d, time_ns when) {
  const int victim = d.between(0, processes_ - 1);
  int other = d.between(0, processes_ - 2);
  if (other >= victim) ++other;
  if (when < 0) {
    when = static_cast<time_ns>(d.below(d.one_in(3) ? 2000 * ms : 5 * ms));
    first_fault_ = when;
  }
  const auto story = [&](const std::string& what) {
    result_.story += std::to_string(when / us) + " us: process " + std::to_string(victim) + " " + what + "; ";
  };
  switch (d.below(6)) {
    case 0:
    case 1:
      story("is killed");
      disturbed_.insert(victim);
      at(when, [this, victim] { kill(victim); });
      break;
    case 2: {
      const bool briefly = d.one_in(2);
      const time_ns until = when + (briefly ? 2000 * ms : 6000 * ms);
      story(briefly ? "is stopped for 2 s" : "is stopped for 6 s");
      if (!briefly || (divides() && happened_ > 1)) disturbed_.insert(victim);
      at(when, [this, victim, until] { stop(victim, until); });
      break;
    }
    case 3:
      network_fails_ = true;
      story("and process " + std::to_string(other) + " have a connection reset");
      disturbed_.insert({victim, other});
      at(when, [this, victim, other] { reset(victim, other); });
      break;
    case 4: {
      const bool both = d.one_in(2);
      network_fails_ = true;
      story((both ? "is cut off from process " : "does not reach process ") + std::to_string(other));
      disturbed_.insert({victim, other});
      at(when, [this, victim, other, both] {
        line(victim, other).cut = true;
        if (both) line(other, victim).cut = true;
      });
      break;
    }
    default:
      network_fails_ = true;
      story("is cut off");
      disturbed_.insert(victim);
      at(when, [this, victim] {
        for (int q = 0; q < processes_; ++q) line(victim, q).cut = line(q, victim).cut = true;
      });
  }
}

void job_world::kill(int number) {
  process& p = *all_[static_cast<std::size_t>(number)];
  if (p.dead) return;
  tell("process " + std::to_string(number) + " is killed");
  p.dead = true;
  for (int q = 0; q < processes_; ++q) {
    if (q == number) continue;
    connection& out = line(number, q);
    if (mix(seed_ ^ static_cast<std::uint64_t>(q)) % 2 == 0) out.reset = true;
    if (std::exchange(out.writes, false)) reader_ends(number, q);
    connection& in = line(q, number);
    in.reads = false;
    if (in.used && !in.cut && !out.cut) at(now_ + latency(number, q), [this, q, number] { writer_ends(q, number); });
  }
}

void job_world::stop(int number, time_ns until) {
  process& p = *all_[static_cast<std::size_t>(number)];
  if (p.dead || p.stopped) return;
  tell("process " + std::to_string(number) + " is stopped");
  p.stopped = true;
  at(until, [this, &p] {
    if (p.dead) return;
    tell("process " + std::to_string(p.here) + " goes on");
    p.stopped = false;
    p.presence.awake(clock());
    std::vector<std::function<void()>> held;
    held.swap(p.held);
    for (const auto& each : held)
      if (!p.dead) each();
  });
}

void job_world::reset(int from, int to) {
  connection& c = line(from, to);
  if (!c.used || !c.writes) return;
  tell("the connection from process " + std::to_string(from) + " to " + std::to_string(to) + " is reset");
  c.reset = true;
  reader_ends(from, to);
  writer_ends(from, to);
}

}  // namespace troupe::simulate
