// SPDX-License-Identifier: Apache-2.0
#pragma once
// How choreographies speak with a switch that reduces and multicasts (score.hpp, "Switches").
//
// A switch is cut into *planes*, as the fabrics are: each serves some of the shares of a block, beside the others, and each is seated at
// another rank, so that where nobody but ranks can perform the switch's lanes they share its work. A plane has a lane in which it
// takes and reduces, one in which it gives a sum to one rank, if that may be another than its seat, and one in which it multicasts.
// Lanes first and first + 1 are the seats' own: there they take from their plane, by a copy, what others get by a message.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "protocols/choreographies/hierarchy.hpp"
#include "protocols/choreographies/patterns.hpp"
#include "protocols/score/score_builder.hpp"

namespace troupe::choreographies {

/// Cells that a rank gives, once its step `ready` is done (none: at once).
struct gift {
  rank_t from;
  cells what;
  step_ref ready{};
};

/// Cells in the switch, and the step of their plane's seat after which they are there.
struct held {
  int plane;
  cells at;
  step_ref when;
};

/// More would leave a rank with more lanes than they bring.
inline constexpr int most_planes = 8;

class fabric_writer {
public:
  /// @param server of the layout; −1: the network @param seats by plane, all of them members
  /// @param gives_to_others gives sums to ranks other than the seat, by give()
  fabric_writer(score_builder& s, int server, std::vector<rank_t> members, std::vector<rank_t> seats, int first_lane,
                bool gives_to_others)
      : s_(s), seats_(std::move(seats)), first_(first_lane), kinds_(gives_to_others ? 3 : 2) {
    std::sort(members.begin(), members.end());
    fabric_switch added{server, std::move(members), {}};
    for (int p = 0; p < planes(); ++p)
      for (int kind = 0; kind < kinds_; ++kind) added.lanes.push_back({seat(p), lane(kind, p)});
    for (const auto& at : added.lanes) s.lane(at.rank, at.lane);
    s.add_switch(std::move(added));
  }

  /// How many lanes of a rank it takes, from first_lane on.
  int lanes() const { return 2 + kinds_ * planes(); }
  rank_t seat(int plane) const { return seats_[static_cast<std::size_t>(plane)]; }

  /// The switch reduces what the ranks give, each of the same size as `like` of the seat. The seat's own gift begins the sum.
  held reduce(int plane, cells like, std::vector<gift> from) {
    const rank_t home = seat(plane);
    const auto own = std::find_if(from.begin(), from.end(), [home](const gift& g) { return g.from == home; });
    if (own != from.end()) std::rotate(from.begin(), own, own + 1);
    held sum{plane, s_.scratch_like(home, like), {}};
    lane_writer in = s_.lane(home, lane(taking, plane));
    bool begun = false;
    for (const gift& g : from) {
      if (begun) in.fan(next_fan_);  // in the order in which they come, where the caller allows it
      if (g.from != home) s_.lane(g.from, lane(taking, plane)).after(g.ready).to(home).send(g.what);
      if (g.from == home) sum.when = in.after(g.ready).copy(g.what, sum.at);
      else sum.when = begun ? in.from(g.from).recv_reduce(sum.at) : in.from(g.from).recv(sum.at);
      begun = true;
    }
    ++next_fan_;
    return sum;
  }

  /// To one rank alone; returns the step in which it gets it.
  step_ref give(const held& what, rank_t to, cells target) {
    const rank_t home = seat(what.plane);
    if (to == home) return s_.lane(home, first_).after(what.when).copy(what.at, target);
    s_.lane(home, lane(giving, what.plane)).after(what.when).to(to).send(what.at);
    return s_.lane(to, lane(giving, what.plane)).from(home).recv(target);
  }

  /// What a rank stores into the switch, to be multicast.
  held take(int plane, cells like, const gift& g) {
    const rank_t home = seat(plane);
    held stored{plane, s_.scratch_like(home, like), {}};
    lane_writer out = s_.lane(home, lane(spreading, plane));
    if (g.from == home) {
      stored.when = out.after(g.ready).copy(g.what, stored.at);
    } else {
      s_.lane(g.from, lane(spreading, plane)).after(g.ready).to(home).send(g.what);
      stored.when = out.from(g.from).recv(stored.at);
    }
    return stored;
  }

  /// To all of them at once; returns the steps in which they get it.
  std::vector<step_ref> multicast(const held& what, const std::vector<rank_t>& to, cells target) {
    const rank_t home = seat(what.plane);
    const int out = lane(spreading, what.plane);
    step_ref ready = what.when.lane == out ? step_ref{} : what.when;
    std::vector<step_ref> got;
    for (const rank_t r : to) {
      if (r == home) {
        got.push_back(s_.lane(home, first_ + 1).after(what.when).copy(what.at, target));
        continue;
      }
      s_.lane(home, out).after(std::exchange(ready, {})).to(r).send(what.at);
      got.push_back(s_.lane(r, out).from(home).recv(target));
    }
    return got;
  }

private:
  enum kind { taking, spreading, giving };
  int planes() const { return static_cast<int>(seats_.size()); }
  int lane(int kind, int plane) const { return first_ + 2 + kind * planes() + plane; }

  score_builder& s_;
  std::vector<rank_t> seats_;
  int first_, kinds_;
  std::uint16_t next_fan_ = 1;
};

/// The network between servers, of which plane p is seated in one server after the other, at a rank that is no head of the plane's shares, if a
/// server has another one: what a head gave and took as a seat would be copies in its lanes, each slice's a trip over the wire before the next
/// one's could begin, where messages of several slices are under way at once.
inline fabric_writer network_switch(score_builder& s, const hierarchy& where, int planes, int first_lane) {
  std::vector<rank_t> heads, seats;
  for (int server = 0; server < where.servers(); ++server)
    heads.insert(heads.end(), where.members(server).begin(), where.members(server).end());
  for (int p = 0; p < planes; ++p) seats.push_back(where.at(p % where.servers(), p + 1));
  return {s, -1, std::move(heads), std::move(seats), first_lane, false};
}

/// It reduces share c, which the heads have in `source` after the steps `ready` (by server), and multicasts the sum to their output[c]. Returns when they have
/// it.
inline std::vector<step_ref> reduce_between(fabric_writer& network, const hierarchy& where, int c, int plane,
                                            cells source, const std::vector<step_ref>& ready) {
  std::vector<gift> given;
  std::vector<rank_t> heads;
  for (int server = 0; server < where.servers(); ++server) {
    heads.push_back(where.at(server, c));
    given.push_back({heads.back(), source, ready[static_cast<std::size_t>(server)]});
  }
  return network.multicast(network.reduce(plane, source, given), heads, notation::output[c]);
}

/// A sentence about a layout whose switches in servers do not reduce; empty if they do. A single rank needs none.
inline std::string needs_reduction_inside(const setup& on) {
  if (on.placement.reduces_inside() || on.ranks == 1) return {};
  return "it lets the switch inside a server reduce, and no server of the layout " + on.placement.to_string() +
         " has one that does; where there is one, say so behind the layout, as in \"1x8:inside\", or alone, "
         "\":inside\"";
}
/// The same of the network.
inline std::string needs_reduction_between(const setup& on) {
  if (on.placement.reduces_between() || on.ranks == 1) return {};
  return "it lets the network between servers reduce, and that of the layout " + on.placement.to_string() +
         " does not; where it does, say so behind the layout, as in \"2x8:between\", or alone, \":between\"";
}

}  // namespace troupe::choreographies
