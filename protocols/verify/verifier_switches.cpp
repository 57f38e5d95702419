// SPDX-License-Identifier: Apache-2.0
// What a switch is allowed to do, and ranks with its cells: its lanes touch nothing but its own cells, except that at their seat they take from the
// rank's memory; and ranks only take copies of what lies in it.

#include <algorithm>
#include <set>
#include <utility>

#include "protocols/score/seats.hpp"
#include "protocols/verify/verifier_structure.hpp"

namespace troupe::verifying {

namespace {
using std::to_string;

std::string called(const fabric_switch& f) {
  return f.server < 0 ? "the network" : "the switch of server " + to_string(f.server);
}

bool is_member(const fabric_switch& f, rank_t rank) {
  return std::binary_search(f.members.begin(), f.members.end(), rank);
}

std::optional<fault> check_seats(const score& s) {
  std::set<std::pair<rank_t, std::int32_t>> taken;
  std::set<std::int32_t> servers;
  for (const fabric_switch& f : s.switches) {
    const auto wrong = [&](const std::string& what) {
      return fault{-1, -1, -1, 0, "has a fault in " + called(f) + ": " + what};
    };
    if (f.server < -1 || !servers.insert(f.server).second) return wrong("there is another one of that number");
    for (std::size_t i = 0; i < f.members.size(); ++i)
      if (f.members[i] < 0 || f.members[i] >= s.ranks || (i > 0 && f.members[i] <= f.members[i - 1]))
        return wrong("its members must be ranks of 0–" + to_string(s.ranks - 1) + ", ascending");
    for (const fabric_switch::seat& at : f.lanes) {
      if (!is_member(f, at.rank))
        return wrong("a lane is seated at rank " + to_string(at.rank) + ", which is no member");
      if (at.lane < 0 || static_cast<std::size_t>(at.lane) >= s.players[static_cast<std::size_t>(at.rank)].lanes.size())
        return wrong("rank " + to_string(at.rank) + " has no lane " + to_string(at.lane));
      if (!taken.insert({at.rank, at.lane}).second)
        return wrong("lane " + to_string(at.lane) + " of rank " + to_string(at.rank) + " belongs to a switch already");
    }
  }
  return std::nullopt;
}

class switch_check {
public:
  explicit switch_check(const score& s) : score_(s), seats_(s) {}

  std::optional<fault> run() {
    for (rank_t r = 0; r < score_.ranks; ++r) {
      const auto& lanes = score_.players[static_cast<std::size_t>(r)].lanes;
      for (std::size_t l = 0; l < lanes.size(); ++l)
        for (std::size_t i = 0; i < lanes[l].size(); ++i) {
          const std::int32_t which = seats_.of(r, l);
          const std::string why = which < 0 ? of_rank(r, l, lanes[l][i]) : of_switch(r, l, which, lanes[l][i]);
          if (!why.empty()) return fault{r, static_cast<int>(l), static_cast<int>(i), 0, why};
        }
    }
    return std::nullopt;
  }

private:
  const fabric_switch& at(std::int32_t which) const { return score_.switches[static_cast<std::size_t>(which)]; }

  /// In which switch the cells lie; −1: in none. Mixed cells count as those of the first one.
  std::int32_t owner(rank_t r, const place& of, bool* mixed = nullptr) const {
    if (of.buffer != buffer_kind::scratch || of.count == 0) return -1;
    const std::int32_t first = seats_.owner(r, of.cell);
    for (std::int32_t i = 1; mixed != nullptr && i < of.count; ++i)
      *mixed = *mixed || seats_.owner(r, of.cell + i) != first;
    return first;
  }

  std::string of_switch(rank_t r, std::size_t l, std::int32_t which, const step& s) const {
    const fabric_switch& f = at(which);
    for (const rank_t peer : {receives(s.kind) ? s.from : -1, sends(s.kind) ? s.to : -1}) {
      if (peer < 0) continue;
      if (!is_member(f, peer))
        return called(f) + " exchanges with rank " + to_string(peer) + ", which it does not join";
      if (seats_.of(peer, l) >= 0)
        return called(f) + " exchanges with a lane of a switch at rank " + to_string(peer) +
               "; switches speak with ranks alone";
    }
    if (s.kind == step_kind::dma_get || s.kind == step_kind::dma_put)
      return called(f) + " has no DMA engine for a " + std::string{name(s.kind)};
    bool mixed = false;
    if (writes(s.kind) && s.target.count > 0 && (owner(r, s.target, &mixed) != which || mixed))
      return called(f) + " writes " + troupe::to_string(s.target) +
             ", which does not lie in it: it writes scratch cells of its own";
    if (!reads_source(s.kind) || s.source.count == 0) return {};
    const bool own = owner(r, s.source, &mixed) == which && !mixed;
    if (sends(s.kind) && !own)
      return called(f) + " hands out " + troupe::to_string(s.source) +
             ", which does not lie in it: let it copy that first";
    if (s.source.owner != self || s.source.buffer == buffer_kind::l2 || s.source.buffer == buffer_kind::l0)
      return called(f) + " reads " + troupe::to_string(s.source) + "; it reads its own cells and its seat's buffers";
    return {};
  }

  std::string of_rank(rank_t r, std::size_t l, const step& s) const {
    bool mixed = false;
    if (writes(s.kind))
      if (const std::int32_t in = owner(r, s.target, &mixed); in >= 0 || mixed)
        return "writes " + troupe::to_string(s.target) + ", which lies in " + (mixed ? "a switch" : called(at(in))) +
               ": give it what its lanes take";
    if (reads_source(s.kind))
      if (const std::int32_t in = owner(r, s.source, &mixed); (in >= 0 || mixed) && s.kind != step_kind::copy)
        return "reads " + troupe::to_string(s.source) + ", which lies in " + (mixed ? "a switch" : called(at(in))) +
               ": a rank takes it from there by a copy";
    for (const rank_t peer : {receives(s.kind) ? s.from : -1, sends(s.kind) ? s.to : -1}) {
      const std::int32_t which = peer < 0 ? -1 : seats_.of(peer, l);
      if (which >= 0 && !is_member(at(which), r))
        return "exchanges with " + called(at(which)) + ", which does not join it";
    }
    return {};
  }

  const score& score_;
  const seat_map seats_;
};

}  // namespace

std::optional<fault> check_switches(const score& s) {
  if (s.switches.empty()) return std::nullopt;
  if (auto f = check_seats(s)) return f;
  return switch_check{s}.run();
}

}  // namespace troupe::verifying
