// SPDX-License-Identifier: Apache-2.0
// A simulated job's communicators, as job_links and communicator_actors have them: what arrives for which, who is lost for it, and when it ends.

#include <algorithm>
#include <utility>
#include <variant>

#include "actors/ports/link/takeover.hpp"
#include "engine/tools/simulate/job_world.hpp"

namespace troupe::simulate {

job_world::member::member(job_world& of, process& in_process, std::string called, communicator_id number,
                          std::vector<std::uint32_t> process_by_rank, std::vector<int> ranks_of_world)
    : world(of),
      in(in_process),
      name(std::move(called)),
      id(number),
      process_of(std::move(process_by_rank)),
      world_rank(std::move(ranks_of_world)),
      local(of.divides() && std::ranges::count(process_of, process_of.front()) == std::ssize(process_of)),
      home(process_of.front()),
      at_home(home == static_cast<std::uint32_t>(in.here)),
      says(std::make_unique<home_voice>(of, *this)),
      spaces(ranks()) {
  std::vector<rank_t> here;
  for (rank_t r = 0; r < ranks(); ++r) {
    if (process_of[static_cast<std::size_t>(r)] != static_cast<std::uint32_t>(in.here)) continue;
    here.push_back(r);
    rank_state_options o;
    o.rank = r;
    o.ranks = ranks();
    o.channels = 2;
    o.least_placed = 1;
    o.communicator = name;
    ranks_here.emplace(r, local_rank{r, std::make_unique<rank_voice>(of, *this, r),
                                     std::make_unique<rank_state>(o, of.memory_, spaces, nullptr)});
  }
  rounds.prepare(here, ranks());
  if (at_home) membership = std::make_unique<membership_state>(ranks(), name);
}
job_world::member::~member() = default;

bool job_world::member::is_here(rank_t rank) const {
  return process_of[static_cast<std::size_t>(rank)] == static_cast<std::uint32_t>(in.here);
}

// -- what arrives ----------------------------------------------------------------------------------------------------------

/// A frame with the communicator's number in its head.
void job_world::send_to(const member& of, std::uint32_t to, to_member frame) {
  const auto from = static_cast<std::uint32_t>(of.in.here);
  send(of.in.here, static_cast<int>(to), [this, from, id = of.id, frame = std::move(frame)](process& there) {
    if (member* const m = find_or_keep(there, from, id, frame)) frame(*m);
  });
}

/// Once to each process.
void job_world::to_others(const member& of, const to_process& frame) {
  std::set<std::uint32_t> told{static_cast<std::uint32_t>(of.in.here)};
  for (const std::uint32_t q : of.process_of)
    if (told.insert(q).second) send(of.in.here, static_cast<int>(q), frame);
}

/// Null: kept, or dropped because the communicator has ended.
job_world::member* job_world::find_or_keep(process& p, std::uint32_t from, communicator_id of, const to_member& frame) {
  if (const auto at = p.communicators.find(of); at != p.communicators.end()) return at->second;
  if (!is(job_mutant::early_dropped)) p.early.keep(of, from, [&] { return frame; });
  return nullptr;
}

void job_world::enter(member& what) {
  if (what.local) return;
  process& p = what.in;
  if (!p.communicators.emplace(what.id, &what).second || p.early.is_over(what.id))
    return fault(what.name + ": process " + std::to_string(p.here) + " has a communicator of this name already");
  p.agreements.enter(what.id, what.process_of, {what.whole, what.split, what.in_whole});
  for (const auto& [from, frame] : p.early.take(what.id)) frame(what);
  for (const auto& [process, how] : std::map{p.lost}) process_lost(what, process, how);
  for (const rank_t rank : p.given_up.of(what.whole, what.split)) never_comes(what, rank);
}

void job_world::end(member& what) {
  if (std::exchange(what.ended, true)) return;
  process& p = what.in;
  for (const auto& c : p.callers)
    if (c->open > 0 && c->has.back().in == &what)
      fault("process " + std::to_string(p.here) + ": " + what.name + " ends with operations under way");
  if (!what.local) {
    p.agreements.forget(what.id, *p.agreements_say);
    p.communicators.erase(what.id);
    p.early.end(what.id);
  }
  leave_if_done(p);
}

/// A process leaves the job when its communicators have ended, and nobody here is going to make one.
void job_world::leave_if_done(process& p) {
  if (p.leaving || p.dead) return;
  if (std::ranges::any_of(p.members, [](const auto& m) { return !m->ended; })) return;
  if (divides() && std::ranges::any_of(p.callers, [](const auto& c) { return !c->done(); })) return;
  p.leaving = true;
  p.presence.leave();
  for (std::uint32_t q = 0; q < static_cast<std::uint32_t>(processes_); ++q)
    if (q != static_cast<std::uint32_t>(p.here) && p.presence.alive(q)) p.says->tell(q, bye_word{});
}

// -- ranks and their membership --------------------------------------------------------------------------------------------

void job_world::turn(member& m, local_rank& s, const rank_order& what) {
  if (m.in.dead) return;
  what(*s.state, *s.says);
  for (ended_operations over = s.state->take_ended(); !over.empty();) {
    const operation_ptr op = over.take();
    failure_ptr why = std::move(op->why_ended);
    op->end(std::move(why));
  }
}

void job_world::to_rank(member& m, rank_t rank, const rank_order& what) {
  if (!m.ended) turn(m, m.at(rank), what);
}

void job_world::to_ranks(member& m, const rank_order& what) {
  for (auto& [rank, s] : m.ranks_here) to_rank(m, rank, what);
}

void job_world::to_membership(member& m, const home_word& word) {
  static constexpr const char* names[] = {"called", "differs", "withdraw", "fail", "stopped",
                                          "left",   "quiet",   "perished", "abort"};
  if (options_.trace)
    std::visit(
        [&](const auto& w) {
          std::string who;
          if constexpr (requires { w.rank; }) who = " of rank " + std::to_string(w.rank);
          tell(m.name + ": the membership in process " + std::to_string(m.in.here) + " hears `" + names[word.index()] +
               "`" + who);
        },
        word);
  if (m.membership->dissolved()) return;
  membership_state& state = *m.membership;
  membership_outbox& out = *m.says;
  std::visit(
      [&](const auto& w) {
        using kind = std::decay_t<decltype(w)>;
        if constexpr (std::is_same_v<kind, called_message>) state.called(w.epoch, w.rank, w.what, out);
        else if constexpr (std::is_same_v<kind, differs_message>) state.differs(w.epoch, out);
        else if constexpr (std::is_same_v<kind, withdraw_message>) state.withdraw(w.epoch, w.rank, w.ahead, out);
        else if constexpr (std::is_same_v<kind, fail_message>) state.fail(w.epoch, w.title, w.why, out);
        else if constexpr (std::is_same_v<kind, stopped_message>) state.stopped(w.epoch, w.rank, w.waits, w.came, out);
        else if constexpr (std::is_same_v<kind, left_message>) state.left(w.rank, w.operations, w.last, w.sent, out);
        else if constexpr (std::is_same_v<kind, quiet_message>) state.quiet(w.rank, out);
        else if constexpr (std::is_same_v<kind, perished_message>) state.perished(w.rank, out);
        else if constexpr (std::is_same_v<kind, abort_message>) state.abort(w.why, out);
      },
      word);
}

/// What the membership says, in one process.
void job_world::apply(member& m, const ranks_word& what) {
  if (std::holds_alternative<dissolved_message>(what)) return end(m);
  to_ranks(m, [what](rank_state& s, rank_outbox& o) {
    std::visit(
        [&](const auto& w) {
          using word = std::decay_t<decltype(w)>;
          if constexpr (std::is_same_v<word, agreed_message>) s.agreed(w.epoch, w.counts, o);
          else if constexpr (std::is_same_v<word, ask_message>) s.asked(w.epoch, o);
          else if constexpr (std::is_same_v<word, halt_message>) s.stop(w.epoch, o);
          else if constexpr (std::is_same_v<word, failed_message>) s.failed(w.epoch, w.why, o);
          else if constexpr (std::is_same_v<word, broken_message>) s.broken(w.why, o);
          else if constexpr (std::is_same_v<word, peer_left_message>) s.peer_left(w.rank, w.sent, o);
          else if constexpr (std::is_same_v<word, peer_lost_message>) s.peer_lost(w.rank, o);
        },
        what);
  });
}

void job_world::home_voice::dissolve() {
  to_all(dissolved_message{});
  w.at_process(m.in.here, [this](process&) { w.end(m); });
}

/// After a takeover each process is the home of its own ranks alone.
void job_world::home_voice::to_all(const ranks_word& what) {
  if (!m.local && m.home == static_cast<std::uint32_t>(m.in.here)) {
    std::set<std::uint32_t> told{m.home};
    for (const std::uint32_t q : m.process_of)
      if (told.insert(q).second)
        w.send_to(m, q, [what](member& there) {
          if (!there.at_home) there.world.apply(there, what);
        });
  }
  w.at_process(m.in.here, [this, what](process&) { w.apply(m, what); });
}

/// What a caller begins next fails already.
void job_world::abort(member& m, const failure_ptr& why) {
  if (m.ended || std::exchange(m.aborted, true)) return;
  at_process(m.in.here,
             [this, &m, why](process&) { to_ranks(m, [why](rank_state& s, rank_outbox& o) { s.broken(why, o); }); });
  m.kept.emplace_back(abort_message{why});
  const home_word word = abort_message{why};
  if (m.at_home) at_process(m.in.here, [this, &m, word](process&) { to_membership(m, word); });
  else send_to(m, m.home, [word](member& there) { there.world.to_membership(there, word); });
}

/// All its ranks here: they take no part in agreements any more.
void job_world::all_left_if_so(member& m) {
  if (m.local || std::ranges::any_of(m.ranks_here, [](const auto& each) { return !each.second.left; })) return;
  m.in.agreements.all_left(m.id, *m.in.agreements_say);
}

// -- who is lost -----------------------------------------------------------------------------------------------------------

/// As job_links::process_lost().
void job_world::lost(process& p, std::uint32_t process, const std::string& how) {
  tell("process " + std::to_string(p.here) + " loses process " + std::to_string(process) + ": " + how);
  p.lost.emplace(process, how);
  if (!is(job_mutant::loss_unshrunk)) p.agreements.lost(process, *p.agreements_say);
  p.early.drop_from(process);
  for (const auto& [id, m] : std::map{p.communicators}) process_lost(*m, process, how);
}

/// As communicator_actors::process_lost().
void job_world::process_lost(member& m, std::uint32_t process, const std::string& how) {
  if (!is(job_mutant::loss_unshrunk)) m.in.agreements.lost_for(m.id, process, *m.in.agreements_say);
  if (m.ended) return;
  const takeover made = when_lost(process, static_cast<std::uint32_t>(m.in.here), m.home, m.at_home, m.process_of);
  if (is(job_mutant::no_takeover) && made.begins) return;
  const int here = m.in.here;
  if (made.begins) {
    m.at_home = true;
    m.membership = std::make_unique<membership_state>(m.ranks(), m.name);
    for (const home_word& word : m.kept) at_process(here, [this, &m, word](auto&) { to_membership(m, word); });
    at_process(here, [this, &m](auto&) { to_ranks(m, [](rank_state& s, rank_outbox& o) { s.rehomed(o); }); });
  }
  for (const auto& [rank, by_takeover] : made.lost) {
    const auto why =
        make_failure(errc::peer_lost, "rank " + std::to_string(rank) + " was lost with " + name_of(roster_, process) +
                                          ": " + how + (by_takeover ? ", where the membership was" : ""));
    at_process(here, [&m, rank = rank, why](auto&) { m.membership->lost(rank, why, *m.says); });
  }
}

/// As communicator_actors::never_comes().
void job_world::never_comes(member& m, rank_t in_whole) {
  if (m.ended) return;
  if (const auto process = m.empty.add(in_whole, m.in_whole, m.process_of))
    process_lost(m, *process, "it has not got its part of the split");
}

}  // namespace troupe::simulate
