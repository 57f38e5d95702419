// SPDX-License-Identifier: Apache-2.0
// HCCL's fine-grained hierarchical pipeline (spec 2, "The fine-grained pipeline"): both levels work at the same time.
//
//   lane 0        the ring between servers among cards of the same index, n − 1 steps; every step delivers a new block
//   lanes 1 … m   inside the server: card i sends in lane 1 + i, to all others, and receives from card j in lane 1 + j. A block that
//                 the ring has just delivered goes out here while the ring is already busy with the next; the own block goes
//                 first. No send waits for a receive, so a server whose wires are slow to answer pays their latency once.
//   lanes above   all_to_all has no ring between servers but exchanges with every distance, stage::streams of them at once. Nobody
//                 sends in the lane that it receives in (spread, below); a distance sets out when the one `streams` before has
//                 arrived.
//
// Where that is more lanes than a verifier takes, and one lane for both directions is not, each send waits for the receive before it:
// inside lane k goes to the card k ahead, and distances are exchanged one after the other in lane 0.
//
// Every transfer carries exactly one rank's block, straight to its final place: nothing is scattered, nothing rearranged, and
// one transfer inside the server remains after the last ring step. reduce_scatter is the mirror: the server's cards add up
// their blocks for one server while the ring carries the sums of the one before. Only sums and blocks that are on the way to
// somebody else wait in scratch.

#include <algorithm>

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/hierarchy.hpp"
#include "protocols/choreographies/patterns.hpp"

namespace troupe::choreographies {

namespace {
using namespace notation;

struct seat {
  const hierarchy& h;
  rank_t rank;
  int streams;  ///< all_to_all: distances between servers that are under way at once
  bool apart;   ///< receives have lanes of their own
  int here = h.server_of(rank), card = h.index_of(rank);
  int servers = h.servers(), cards = h.size_of(here);

  /// The rank of the card k ahead, t servers back in the ring.
  rank_t back(int t, int k = 0) const { return h.at(here - t, card + k); }
  lane_writer ring(score_builder& s) const { return s.lane(rank, 0).from(back(1)).to(back(-1)); }
  lane_writer send_inside(score_builder& s, int k) const { return s.lane(rank, apart ? 1 + card : k).to(back(0, k)); }
  lane_writer recv_inside(score_builder& s, int k) const {
    const rank_t sender = back(0, -k);
    return s.lane(rank, apart ? 1 + h.index_of(sender) : k).from(sender);
  }
  /// The lane in which server `from` sends to the server t ahead.
  int between(int from, int t) const {
    return apart ? 1 + cards + lanes_of_spread * ((t - 1) % streams) + spread_lane(servers, from, t) : 0;
  }
};

/// @param own  where the own block lies, ready when `ready` is performed
void gather(score_builder& s, const seat& at, cells own, step_ref ready) {
  auto ring = at.ring(s);
  std::vector<step_ref> arrived{ready};  // by distance back in the ring
  if (at.servers > 1) ring.send(own);
  for (int t = 1; t < at.servers - 1; ++t) arrived.push_back(ring.recv_copy_send(output[at.back(t)]));
  if (at.servers > 1) arrived.push_back(ring.recv(output[at.back(at.servers - 1)]));

  for (int t = 0; t < at.servers; ++t)
    for (int k = 1; k < at.cards; ++k) {
      at.send_inside(s, k).after(arrived[static_cast<std::size_t>(t)]).send(t == 0 ? own : output[at.back(t)]);
      at.recv_inside(s, k).recv(output[at.back(t, -k)]);
    }
}

/// Sums up in output[rank]. The sum for a server sets out at the next one and ends, after a trip round the ring, at home.
/// @param sum_of  where the server's sum for a rank is added up
/// @return the step that completes output[rank]
template <class SumOf>
step_ref scatter(score_builder& s, const seat& at, SumOf sum_of) {
  auto ring = at.ring(s);
  step_ref last;
  for (int t = 1; t <= at.servers; ++t) {
    const rank_t target = at.back(t);  // t == servers: the rank itself
    const cells sum = at.cards > 1 ? sum_of(target) : input[target];
    step_ref added;  // the cards' contributions come in one after the other, each in its own lane
    for (int k = 1; k < at.cards; ++k) {
      at.send_inside(s, k).send(input[at.back(t, k)]);
      auto adding = at.recv_inside(s, k).after(added);
      added = k == 1 ? adding.recv_reduce_copy(input[target], sum) : adding.recv_reduce(sum);
    }
    if (t == at.servers) last = t == 1 ? added : ring.after(added).recv_reduce_copy(sum, output[at.rank]);
    else if (t == 1) ring.after(added).send(sum);
    else ring.after(added).recv_reduce_send(sum);
  }
  return last;
}

/// Blocks for the cards of a server go to its card of the same index, which keeps its own and passes the others on.
void exchange(score_builder& s, const seat& at) {
  s.stage_input(at.rank);
  const step_ref staged = s.on().in_place ? step_ref{0, 0} : step_ref{};
  s.lane(at.rank).copy_own(input[at.rank], output[at.rank]);
  for (int k = 1; k < at.cards; ++k) {
    at.send_inside(s, k).after(staged).send(s.staged(at.rank, input[at.back(0, k)]));
    at.recv_inside(s, k).after(staged).recv(output[at.back(0, -k)]);
  }
  std::vector<step_ref> complete;  // by distance − 1
  for (int t = 1; t < at.servers; ++t) {
    auto out = s.lane(at.rank, at.between(at.here, t)).to(at.back(-t));
    auto in = s.lane(at.rank, at.between(at.here - t, t)).from(at.back(t));
    in.after(staged);
    if (at.apart) out.after(t > at.streams ? complete[static_cast<std::size_t>(t - 1 - at.streams)] : staged);
    step_ref arrived;
    for (int k = 0; k < at.cards; ++k) {
      const rank_t source = at.back(t), target = at.back(0, k);
      const std::int64_t block = static_cast<std::int64_t>(source) * s.on().ranks + target;
      const cells landing = k == 0 ? output[source] : s.scratch_block(at.rank, block);
      out.send(s.staged(at.rank, input[at.back(-t, k)]));
      arrived = in.recv(landing);
      if (k == 0) continue;
      at.send_inside(s, k).after(arrived).send(landing);
      at.recv_inside(s, k).recv(output[at.back(t, -k)]);
    }
    complete.push_back(arrived);
  }
}

void all_gather(score_builder& s, const seat& at) {
  gather(s, at, input[0], {});
  s.lane(at.rank).copy_own(input[0], output[at.rank]);
}

void reduce_scatter(score_builder& s, const seat& at) {
  scatter(s, at, [&](rank_t target) { return target == at.rank ? output[0] : s.scratch_block(at.rank, target); });
}

/// The sums are added up where the result will lie.
void all_reduce(score_builder& s, const seat& at) {
  const step_ref complete = scatter(s, at, [](rank_t target) { return output[target]; });
  gather(s, at, output[at.rank], complete);
}

template <void (*part_of)(score_builder&, const seat&)>
score of_all(const stage& on) {
  const hierarchy h{on.placement};
  score_builder s{on, "hierarchical_pipeline", block_count(on.what, on.ranks) == 1 ? on.ranks : 1};
  const int cards = h.size_of(0), streams = std::max(1, std::min(on.streams, h.servers() - 1));
  const int apart = 1 + cards + (on.what == collective::all_to_all ? lanes_of_spread * streams : 0);
  const bool fit = lanes_fit(on, apart) || !lanes_fit(on, cards);
  for (rank_t r = 0; r < on.ranks; ++r) part_of(s, {h, r, streams, fit});
  return s.finish();
}

constexpr offer offered[] = {{collective::all_gather, of_all<all_gather>},
                             {collective::reduce_scatter, of_all<reduce_scatter>},
                             {collective::all_reduce, of_all<all_reduce>},
                             {collective::all_to_all, of_all<exchange>}};

}  // namespace

constinit const choreography hierarchical_pipeline{
    "hierarchical_pipeline", "a ring between servers; every block it delivers goes on inside the server at once",
    "HCCL fine-grained hierarchical pipeline (spec 2)", offered, needs_equal_servers};

}  // namespace troupe::choreographies
