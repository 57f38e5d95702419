// SPDX-License-Identifier: Apache-2.0
// HCCL's fine-grained hierarchical pipeline (spec 2, "The fine-grained pipeline"): both levels work at the same time.
//
//   lane 0        the ring between servers among cards of the same index, n − 1 steps; every step delivers a new block
//   lanes 1 … m   inside the server: card i sends in lane 1 + i, to all others, and receives from card j in lane 1 + j. A block that
//                 the ring has just delivered goes out here while the ring is already busy with the next; the own block goes
//                 first. No send waits for a receive, so a server whose wires are slow to answer pays their latency once.
//   lanes above   all_to_all has no ring between servers but exchanges with every distance, setup::streams of them at once. Nobody
//                 sends in the lane that it receives in (spread_lane); a distance sets out when the one `streams` before has
//                 arrived.
//
// Where that is more lanes than a verifier takes, and one lane for both directions is not, each send waits for the receive before it:
// inside lane k goes to the card k ahead, and distances are exchanged one after the other in lane 0.
//
// Servers may have different numbers of cards (rings, below): a card of a smaller one has several rings, each in a lane of its own, so
// lanes inside begin after as many as the largest server has times the cards of the smallest.
//
// Servers may be in pods, pods in racks … (nested_groups, hierarchy.hpp). Then each of these levels has a ring, and what one level delivers goes on
// at once in the next further in, in another ring for each block, in a lane of its own as far as lanes suffice. In an all_to_all each of these
// levels exchanges: what is for another pod goes to the rank that is there where its sender is here, and from there at once to the
// servers, then cards, that it is for. Servers of different sizes are one level.
//
// Every transfer carries exactly one rank's block, straight to its final place: nothing is scattered, nothing rearranged, and
// one transfer inside the server remains after the last ring step. reduce_scatter is the mirror: the server's cards add up
// their blocks for one server while the ring carries the sums of the one before. Only sums and blocks that are on the way to
// somebody else wait in scratch.

#include <algorithm>
#include <vector>

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/hierarchy.hpp"
#include "protocols/choreographies/patterns.hpp"

namespace troupe::choreographies {

namespace hierarchical_pipeline_scores {
namespace {
using namespace notation;

/// How the servers' cards meet. Servers of different sizes have a ring for every index that the largest has; where a server has no card
/// of that index, the one that has it modulo the server's cards stands in. So a card may be in several rings.
struct rings {
  explicit rings(const hierarchy& h) {
    smallest = most = h.size_of(0);
    for (int server = 1; server < h.servers(); ++server) {
      smallest = std::min(smallest, h.size_of(server));
      most = std::max(most, h.size_of(server));
    }
  }
  int smallest, most;  ///< cards of a server
  /// Two rings of one card have different lanes, and a ring the same at all its cards.
  int lane(int index) const { return index / smallest; }
  int lanes() const { return lane(most - 1) + 1; }
};

struct standpoint {
  const hierarchy& h;
  const rings& by;
  rank_t rank;
  int streams;  ///< all_to_all: distances between servers that are under way at once
  bool apart;   ///< receives have lanes of their own
  int here = h.server_of(rank), card = h.index_of(rank);
  int servers = h.servers(), cards = h.size_of(here);

  /// The rank of an index, or who stands in for it, t servers back in the ring.
  rank_t at(int t, int index) const { return h.at(here - t, index); }
  /// The card k ahead in this server.
  rank_t beside(int k) const { return h.at(here, card + k); }
  /// The indices whose rings the card k ahead is in, as far as the server t back has them.
  std::vector<int> indices(int t, int k = 0) const {
    std::vector<int> found;
    for (int index = h.index_of(beside(k)); index < h.size_of(here - t); index += cards) found.push_back(index);
    return found;
  }
  lane_writer ring(score_builder& s, int index) const {
    return s.lane(rank, by.lane(index)).from(at(1, index)).to(at(-1, index));
  }
  lane_writer send_inside(score_builder& s, int k) const {
    return s.lane(rank, apart ? by.lanes() + card : by.lanes() - 1 + k).to(beside(k));
  }
  lane_writer recv_inside(score_builder& s, int k) const {
    const rank_t sender = beside(-k);
    return s.lane(rank, apart ? by.lanes() + h.index_of(sender) : by.lanes() - 1 + k).from(sender);
  }
  /// The lane in which server `from` sends to the server t ahead.
  int between(int from, int t) const {
    return apart ? by.lanes() + by.most + lanes_of_spread * ((t - 1) % streams) + spread_lane(servers, from, t) : 0;
  }
};

/// @param own  where the own block lies, ready when `ready` is performed
void gather(score_builder& s, const standpoint& at, cells own, step_ref ready) {
  std::vector<std::vector<step_ref>> arrived(static_cast<std::size_t>(at.servers));  // by distance back in the ring
  arrived[0].push_back(ready);
  if (at.servers > 1) at.ring(s, at.card).send(own);
  for (int t = 1; t < at.servers; ++t)
    for (const int index : at.indices(t)) {
      auto ring = at.ring(s, index);
      const cells block = output[at.at(t, index)];
      arrived[static_cast<std::size_t>(t)].push_back(t < at.servers - 1 ? ring.recv_copy_send(block)
                                                                        : ring.recv(block));
    }

  for (int t = 0; t < at.servers; ++t)
    for (int k = 1; k < at.cards; ++k) {
      auto there = arrived[static_cast<std::size_t>(t)].begin();
      for (const int index : at.indices(t))
        at.send_inside(s, k).after(*there++).send(t == 0 ? own : output[at.at(t, index)]);
      for (const int index : at.indices(t, -k)) at.recv_inside(s, k).recv(output[at.at(t, index)]);
    }
}

/// Sums up in output[rank]. The sum for a rank sets out at the server after its own and ends, after a trip round the ring, at home.
/// @param sum_of  where the server's sum for a rank is added up
/// @return the step that completes output[rank]
template <class SumOf>
step_ref scatter(score_builder& s, const standpoint& at, SumOf sum_of) {
  step_ref last;
  for (int t = 1; t <= at.servers; ++t) {  // t == servers: the own server
    for (int k = 1; k < at.cards; ++k)
      for (const int index : at.indices(t, k)) at.send_inside(s, k).send(input[at.at(t, index)]);
    for (const int index : at.indices(t)) {
      const rank_t target = at.at(t, index);
      const cells sum = at.cards > 1 ? sum_of(target) : input[target];
      step_ref added;  // the cards' contributions come in one after the other, each in its own lane
      for (int k = 1; k < at.cards; ++k) {
        auto adding = at.recv_inside(s, k).after(added);
        added = k == 1 ? adding.recv_reduce_copy(input[target], sum) : adding.recv_reduce(sum);
      }
      auto ring = at.ring(s, index);
      if (t == at.servers) last = t == 1 ? added : ring.after(added).recv_reduce_copy(sum, output[at.rank]);
      else if (t == 1) ring.after(added).send(sum);
      else ring.after(added).recv_reduce_send(sum);
    }
  }
  return last;
}

/// Blocks for the cards of a server go to its card of the same index, or who stands in for it, which keeps its own and passes the
/// others on.
void exchange(score_builder& s, const standpoint& at) {
  s.stage_input(at.rank);
  const step_ref staged = s.on().in_place ? step_ref{0, 0} : step_ref{};
  s.lane(at.rank).copy_own(input[at.rank], output[at.rank]);
  for (int k = 1; k < at.cards; ++k) {
    at.send_inside(s, k).after(staged).send(s.staged(at.rank, input[at.beside(k)]));
    at.recv_inside(s, k).after(staged).recv(output[at.beside(-k)]);
  }
  std::vector<step_ref> complete;  // by distance − 1
  for (int t = 1; t < at.servers; ++t) {
    auto out = s.lane(at.rank, at.between(at.here, t)).to(at.at(-t, at.card));
    auto in = s.lane(at.rank, at.between(at.here - t, t));
    in.after(staged);
    if (at.apart) out.after(t > at.streams ? complete[static_cast<std::size_t>(t - 1 - at.streams)] : staged);
    step_ref arrived = staged;
    const auto receive = [&](rank_t source, int k) {
      const std::int64_t block = static_cast<std::int64_t>(source) * s.on().ranks + at.beside(k);
      const cells landing = k == 0 ? output[source] : s.scratch_block(at.rank, block);
      arrived = in.from(source).recv(landing);
      if (k > 0) at.send_inside(s, k).after(arrived).send(landing);
    };
    const std::vector<int> sources = at.indices(t);
    const int sent = at.h.size_of(at.here + t), received = static_cast<int>(sources.size()) * at.cards;
    for (int i = 0; i < std::max(sent, received); ++i) {
      if (i < sent) out.send(s.staged(at.rank, input[at.at(-t, at.card + i)]));
      if (i < received) receive(at.at(t, sources[static_cast<std::size_t>(i / at.cards)]), i % at.cards);
    }
    for (int k = 1; k < at.cards; ++k)
      for (const int index : at.indices(t, -k)) at.recv_inside(s, k).recv(output[at.at(t, index)]);
    complete.push_back(arrived);
  }
}

void all_gather(score_builder& s, const standpoint& at) {
  gather(s, at, input[0], {});
  s.lane(at.rank).copy_own(input[0], output[at.rank]);
}

void reduce_scatter(score_builder& s, const standpoint& at) {
  scatter(s, at, [&](rank_t target) { return target == at.rank ? output[0] : s.scratch_block(at.rank, target); });
}

/// The sums are added up where the result will lie.
void all_reduce(score_builder& s, const standpoint& at) {
  const step_ref complete = scatter(s, at, [](rank_t target) { return output[target]; });
  gather(s, at, output[at.rank], complete);
}

// -- several levels between servers -----------------------------------------------------------------------------------

/// How lanes are spent, if there are enough of them.
struct lane_use {
  bool apart = true;  ///< inside a server, as above
  bool wide =
      true;  ///< a ring for every block that the levels further out have delivered goes round in a lane of its own
};

/// A rank's place in all levels: those between servers, and last the server.
struct nested_standpoint {
  const nested_groups& groups;
  rank_t rank;
  lane_use use;
  int rings = groups.between_servers(), cards = groups.group_size(rings - 1);

  int levels() const { return rings + 1; }
  bool is_ring(int level) const { return level < rings; }
  int members(int level) const { return is_ring(level) ? groups.extent(level) : cards; }
  int card_of(rank_t other) const { return groups.position(other) % cards; }
  /// The rank that is where `other` is in all levels but one, in which it is `ahead` of this one.
  rank_t beside(rank_t other, int level, int ahead) const {
    if (is_ring(level)) return groups.with_digit(other, level, groups.digit(rank, level) + ahead);
    const int card = ((card_of(rank) + ahead) % cards + cards) % cards;
    return groups.at(groups.position(other) - card_of(other) + card);
  }
  int lanes_of(int level) const {
    if (is_ring(level)) return use.wide ? groups.columns(level) : 1;
    return use.apart ? cards : cards - 1;
  }
  int first_lane(int level) const {
    int lane = 0;
    for (int outer = 0; outer < level; ++outer) lane += lanes_of(outer);
    return lane;
  }
  int ring_lane(int level, int number) const { return first_lane(level) + (use.wide ? number : 0); }
  /// @param number of the block, in the order in which the levels further out deliver them
  lane_writer ring(score_builder& s, int level, int number) const {
    return s.lane(rank, ring_lane(level, number)).from(beside(rank, level, -1)).to(beside(rank, level, 1));
  }
  lane_writer send_inside(score_builder& s, int k) const {
    return s.lane(rank, first_lane(rings) + (use.apart ? card_of(rank) : k - 1)).to(beside(rank, rings, k));
  }
  lane_writer recv_inside(score_builder& s, int k) const {
    const rank_t sender = beside(rank, rings, -k);
    return s.lane(rank, first_lane(rings) + (use.apart ? card_of(sender) : k - 1)).from(sender);
  }
};

/// Cells, and the step that completes them.
struct completed {
  cells what;
  step_ref by;
};

/// From the outside in: every level spreads what has come to this rank so far, in the order in which it has come.
void gather(score_builder& s, const nested_standpoint& at, const completed& own) {
  struct arrival {
    rank_t source;
    completed block;
  };
  std::vector<arrival> come{{at.rank, own}};
  for (int level = 0; level < at.rings; ++level) {
    const int members = at.members(level);
    std::vector<arrival> next;
    for (int number = 0; const arrival& a : come) {
      next.push_back(a);
      auto ring = at.ring(s, level, number);
      if (a.block.by.lane != at.ring_lane(level, number++)) ring.after(a.block.by);
      if (members > 1) ring.send(a.block.what);
      for (int t = 1; t < members; ++t) {
        const rank_t source = at.beside(a.source, level, -t);
        const cells block = output[source];
        next.push_back({source, {block, t < members - 1 ? ring.recv_copy_send(block) : ring.recv(block)}});
      }
    }
    come = std::move(next);
  }
  for (const arrival& a : come)
    for (int k = 1; k < at.cards; ++k) {
      at.send_inside(s, k).after(a.block.by).send(a.block.what);
      at.recv_inside(s, k).recv(output[at.beside(a.source, at.rings, -k)]);
    }
}

/// From the inside out: a level makes the sums that the one around asks for, in the order in which it does.
template <class SumOf>
class summation {
public:
  /// @param sum_of where a server's sum for a rank is added up
  summation(score_builder& s, const nested_standpoint& at, SumOf sum_of)
      : s_(s), at_(at), sum_of_(sum_of), rings_begun_(static_cast<std::size_t>(at.rings)) {}

  /// What the ranks that are elsewhere than this one in `level` or further in have for `target`, which is elsewhere further out alone.
  completed of(int level, rank_t target) {
    if (!at_.is_ring(level)) return of_server(target);
    const int members = at_.members(level), number = rings_begun_[static_cast<std::size_t>(level)]++;
    const auto share = [&](int back) { return of(level + 1, at_.beside(target, level, -back)); };
    for (int t = 1; t < members; ++t) {
      const completed sum = share(t);
      auto ring = at_.ring(s_, level, number);
      ring.after(sum.by);
      if (t == 1) ring.send(sum.what);
      else ring.recv_reduce_send(sum.what);
    }
    const completed sum = share(0);
    auto ring = at_.ring(s_, level, number);
    return members > 1 ? add(ring, sum, target) : sum;
  }

private:
  completed of_server(rank_t target) {
    for (int k = 1; k < at_.cards; ++k) at_.send_inside(s_, k).send(input[at_.beside(target, at_.rings, k)]);
    completed sum{input[target], {}};
    for (int k = 1; k < at_.cards; ++k) {
      auto lane = at_.recv_inside(s_, k);
      sum = add(lane, sum, target);
    }
    return sum;
  }
  /// The first sum of a rank's own input goes to where it is added up.
  completed add(lane_writer& lane, const completed& to, rank_t target) {
    lane.after(to.by);
    if (to.what.buffer != buffer_kind::input) return {to.what, lane.recv_reduce(to.what)};
    const cells sum = sum_of_(target);
    return {sum, lane.recv_reduce_copy(to.what, sum)};
  }

  score_builder& s_;
  const nested_standpoint& at_;
  SumOf sum_of_;
  std::vector<int> rings_begun_;  // by level
};

void all_gather(score_builder& s, const nested_standpoint& at) {
  gather(s, at, {input[0], {}});
  s.lane(at.rank).copy_own(input[0], output[at.rank]);
}

void reduce_scatter(score_builder& s, const nested_standpoint& at) {
  const auto sum_of = [&](rank_t target) { return target == at.rank ? output[0] : s.scratch_block(at.rank, target); };
  summation{s, at, sum_of}.of(0, at.rank);
}

void all_reduce(score_builder& s, const nested_standpoint& at) {
  gather(s, at, summation{s, at, [](rank_t target) { return output[target]; }}.of(0, at.rank));
}

template <void (*part_of)(score_builder&, const nested_standpoint&)>
score of_levels(const setup& on, const nested_groups& groups) {
  score_builder s{on, "hierarchical_pipeline", block_count(on.what, on.ranks) == 1 ? on.ranks : 1};
  constexpr lane_use uses[] = {{true, true}, {true, false}, {false, false}};
  const auto fits = [&](const lane_use& use) {
    const nested_standpoint first{groups, 0, use};
    return lanes_fit(on, first.first_lane(first.levels()));
  };
  const auto* const best = std::ranges::find_if(uses, fits);
  for (rank_t r = 0; r < on.ranks; ++r) part_of(s, {groups, r, best != std::end(uses) ? *best : uses[0]});
  return s.finish();
}

/// all_to_all, from the outside in. Of the blocks that a rank has of a source, it gives those for another group of a level to the rank that
/// differs from it in that level alone. The pass of one source's blocks over one distance is an exchange; `streams` of a level's are under
/// way at once, those of the sources that come first in front.
class nested_exchange {
public:
  nested_exchange(score_builder& s, const nested_standpoint& at, int streams) : s_(s), at_(at), streams_(streams) {}

  static int lanes(const nested_standpoint& at, int streams) {
    return at.use.apart ? first_lane(at, at.rings, streams) : at.rings - 1 + at.cards;
  }

  void write() {
    s_.stage_input(at_.rank);
    if (s_.on().in_place) staged_ = {0, 0};
    s_.lane(at_.rank).copy_own(input[at_.rank], output[at_.rank]);
    std::vector<holding> come{{at_.rank, {}}};
    for (int i = 0; i < s_.on().ranks; ++i)
      come.front().blocks.push_back({s_.staged(at_.rank, input[ahead(i, 0)]), staged_});
    for (int level = 0; level < at_.rings; ++level) come = exchange(level, come);
    for (const holding& h : come)
      for (int k = 1; k < at_.cards; ++k) {
        const completed& block = h.blocks[static_cast<std::size_t>(k)];
        const rank_t to = at_.beside(at_.rank, at_.rings, k), from = at_.beside(at_.rank, at_.rings, -k);
        inside(k, at_.rank).to(to).after(block.by).send(block.what);
        inside(k, from).from(from).after(staged_).recv(output[at_.beside(h.source, at_.rings, -k)]);
      }
  }

private:
  /// Blocks of one source, for the ranks of this rank's group in the order of ahead(): its own first.
  struct holding {
    rank_t source;
    std::vector<completed> blocks;
  };

  static int group_size(const nested_standpoint& at, int level) {
    return at.is_ring(level) ? at.groups.group_size(level) : 1;
  }
  static int streams_of(const nested_standpoint& at, int level, int streams) {
    return std::min(streams, (at.members(level) - 1) * at.groups.columns(level));
  }
  /// Of exchanges, if lanes are apart. Before them are one for what stays, and one a card.
  static int first_lane(const nested_standpoint& at, int level, int streams) {
    int lane = 1 + at.cards;
    for (int outer = 0; outer < level; ++outer) lane += lanes_of_spread * streams_of(at, outer, streams);
    return lane;
  }
  lane_writer inside(int k, rank_t sender) const {
    return s_.lane(at_.rank, at_.use.apart ? 1 + at_.card_of(sender) : at_.rings - 1 + k);
  }
  /// The lane in which `sender` sends in an exchange of a level; not apart: everybody sends and receives in.
  lane_writer between(int level, int number, rank_t sender, int t) const {
    if (!at_.use.apart) return s_.lane(at_.rank, level);
    const int stream = number % streams_of(at_, level, streams_);
    return s_.lane(at_.rank, first_lane(at_, level, streams_) + lanes_of_spread * stream +
                                 spread_lane(at_.members(level), at_.groups.digit(sender, level), t));
  }
  /// The i-th rank of the group that this one is in outside of `level`; each level counts from this rank's own place on.
  rank_t ahead(int i, int level) const {
    rank_t there = at_.rank;
    for (; level < at_.levels(); ++level)
      there = at_.beside(there, level, i / group_size(at_, level) % at_.members(level));
    return there;
  }

  /// @return what is here for the group inside, in the order in which it comes
  std::vector<holding> exchange(int level, const std::vector<holding>& come) {
    const std::ptrdiff_t members = group_size(at_, level);  // of a group inside
    std::vector<holding> next;
    std::vector<step_ref> complete;  // by exchange
    for (const holding& h : come) {
      next.push_back({h.source, {h.blocks.begin(), h.blocks.begin() + members}});
      for (int t = 1; t < at_.members(level); ++t) {
        const int number = static_cast<int>(complete.size()), before = number - streams_of(at_, level, streams_);
        const rank_t to = at_.beside(at_.rank, level, t), from = at_.beside(at_.rank, level, -t);
        auto out = between(level, number, at_.rank, t).to(to);
        auto in = between(level, number, from, t).from(from);
        if (at_.use.apart && before >= 0) out.wait(complete[static_cast<std::size_t>(before)]);
        in.after(staged_);
        holding arrived{at_.beside(h.source, level, -t), {}};
        for (int i = 0; i < members; ++i) {
          const completed& block = h.blocks[static_cast<std::size_t>(t * members + i)];
          out.after(block.by).send(block.what);
          arrived.blocks.push_back(receive(in, arrived.source, i == 0 ? at_.rank : ahead(i, level + 1)));
        }
        complete.push_back(arrived.blocks.back().by);
        next.push_back(std::move(arrived));
      }
    }
    return next;
  }

  completed receive(lane_writer& in, rank_t source, rank_t target) {
    const std::int64_t block = static_cast<std::int64_t>(source) * s_.on().ranks + target;
    const cells landing = target == at_.rank ? output[source] : s_.scratch_block(at_.rank, block);
    return {landing, in.recv(landing)};
  }

  score_builder& s_;
  const nested_standpoint& at_;
  int streams_;
  step_ref staged_;  ///< in place: when the input was kept
};

score exchange_of_levels(const setup& on, const nested_groups& groups) {
  score_builder s{on, "hierarchical_pipeline", 1};
  const int streams = std::max(1, on.streams);
  const auto fits = [&](bool apart) {
    return lanes_fit(on, nested_exchange::lanes({groups, 0, {apart, false}}, streams));
  };
  const bool apart = fits(true) || !fits(false);
  for (rank_t r = 0; r < on.ranks; ++r) {
    const nested_standpoint at{groups, r, {apart, false}};
    nested_exchange{s, at, streams}.write();
  }
  return s.finish();
}

// -- both -------------------------------------------------------------------------------------------------------------

template <void (*part_of)(score_builder&, const standpoint&)>
score of_all(const setup& on) {
  const hierarchy h{on.placement};
  const rings by{h};
  score_builder s{on, "hierarchical_pipeline", block_count(on.what, on.ranks) == 1 ? on.ranks : 1};
  const int streams = std::max(1, std::min(on.streams, h.servers() - 1));
  const int apart = by.lanes() + by.most + (on.what == collective::all_to_all ? lanes_of_spread * streams : 0);
  const bool fit = lanes_fit(on, apart) || !lanes_fit(on, by.lanes() - 1 + by.most);
  for (rank_t r = 0; r < on.ranks; ++r) part_of(s, {h, by, r, streams, fit});
  return s.finish();
}

template <void (*of_two)(score_builder&, const standpoint&), score (*of_more)(const setup&, const nested_groups&)>
score of_any(const setup& on) {
  if (on.placement.uniform())
    if (const nested_groups groups{on.placement}; groups.between_servers() > 1) return of_more(on, groups);
  return of_all<of_two>(on);
}

constexpr offer offered[] = {{collective::all_gather, of_any<all_gather, of_levels<all_gather>>},
                             {collective::reduce_scatter, of_any<reduce_scatter, of_levels<reduce_scatter>>},
                             {collective::all_reduce, of_any<all_reduce, of_levels<all_reduce>>},
                             {collective::all_to_all, of_any<exchange, exchange_of_levels>}};

}  // namespace
}  // namespace hierarchical_pipeline_scores

constinit const choreography hierarchical_pipeline{
    "hierarchical_pipeline", "a ring between servers; every block it delivers goes on inside the server at once",
    "HCCL fine-grained hierarchical pipeline (spec 2)", hierarchical_pipeline_scores::offered, needs_places};

}  // namespace troupe::choreographies
