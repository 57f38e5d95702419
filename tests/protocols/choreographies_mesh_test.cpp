// SPDX-License-Identifier: Apache-2.0
// The choreographies for meshes, hierarchies and shared memory: every score is proved right for many setups, and has the
// rounds, messages and cells that its source promises.

#include <doctest/doctest.h>

#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "memory/error.hpp"
#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/patterns.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/lower/rewriting.hpp"
#include "protocols/program/program.hpp"
#include "protocols/verify/verifier.hpp"
#include "tests/protocols/most_ranks.hpp"
#include "topology/machine/shared_segment.hpp"

namespace choreographies_mesh_test {

using namespace troupe;
namespace c = troupe::choreographies;

namespace {

const std::vector<const choreography*> tested = {&c::pairwise,
                                                 &c::direct_full_mesh,
                                                 &c::staged_pairwise,
                                                 &c::bruck,
                                                 &c::hierarchical,
                                                 &c::hierarchical_pipeline,
                                                 &c::csc,
                                                 &c::fused,
                                                 &c::grouped};

std::string describe(const choreography& which, const setup& on) {
  return std::string{which.name} + ' ' + std::string{name(on.what)} + ", " + std::to_string(on.ranks) + " ranks on " +
         on.placement.to_string() + ", root " + std::to_string(on.root) + (on.in_place ? ", in place" : "") +
         (on.uniform ? "" : ", blocks of different sizes") + (on.through_scratch ? ", through scratch" : "") + ", " +
         std::to_string(on.streams) + " streams";
}

int proved = 0;

void prove(const choreography& which, const setup& on, const score& lowered, performing_limits limits) {
  const verdict v = verify(lowered, limits);
  ++proved;
  if (v.ok()) return;
  FAIL_CHECK(describe(which, on), ", ", limits.credits, " credits, ", limits.slices,
             " slices: ", to_string(*v.first_fault));
}

/// Sums and blocks that go round a ring of servers: with one credit nobody can send before somebody receives.
bool needs_two_credits(const choreography& which, const setup& on) {
  return (&which == &c::hierarchical || &which == &c::hierarchical_pipeline) && on.what != collective::all_to_all &&
         on.placement.server_count() > 1;
}

/// Proves what is performed: whole messages as they are; slices and blocks of different sizes cell by cell.
/// A setup that is refused proves nothing; the refusals have their own test.
void prove_all_limits(const choreography& which, const setup& on) {
  if (!refusal(which, on).empty()) return;
  const score whole = lower_syncs(write_score(which, on));
  const score cut = one_cell_per_step(whole);
  for (const int slices : {1, 3}) {
    if (on.ranks > 17 && slices != (on.uniform ? 1 : 3)) continue;  // a sample
    const score& performed = slices > 1 || !on.uniform ? cut : whole;
    if (on.ranks <= 17) {
      const bool pace = &performed == &cut || needs_two_credits(which, on);
      prove(which, on, pace ? pace_sends(performed, 1) : performed, {1, slices});
      prove(which, on, performed, {8, slices});
    }
    prove(which, on, performed, {2, slices});
  }
}

/// in and out of place, uniform or not, both kinds of pairwise, several numbers of streams.
void prove_variants(const choreography& which, setup on) {
  for (const bool in_place : {false, true})
    for (const bool uniform : {true, false}) {
      on.in_place = in_place;
      on.uniform = uniform;
      if (!uniform && (on.what == collective::all_reduce || on.what == collective::broadcast)) continue;
      on.streams = 4;
      on.through_scratch = false;
      prove_all_limits(which, on);
      if (&which == &c::pairwise) {
        on.through_scratch = true;
        prove_all_limits(which, on);
      }
      if (&which == &c::direct_full_mesh)
        for (const auto& [streams, through_scratch] :
             {std::pair{1, false}, {2, false}, {8, false}, {1, true}, {4, true}}) {
          on.streams = streams;
          on.through_scratch = through_scratch;
          prove_all_limits(which, on);
        }
    }
}

setup on_layout(collective what, layout placement, bool in_place = false) {
  setup on = flat_setup(what, placement.size(), 0, in_place);
  on.placement = std::move(placement);
  return on;
}

/// Two ranks of a server are no neighbours by number.
layout scattered(int servers, int cards) {
  std::vector<coordinates> places;
  for (int card = 0; card < cards; ++card)
    for (int server = 0; server < servers; ++server) places.push_back({server, card, 0});
  return layout::placed(std::move(places));
}

layout ragged(std::initializer_list<int> cards) {
  const std::vector<int> of_server{cards};
  return layout::ragged(of_server);
}

const std::vector<const choreography*> layered = {&c::staged_pairwise, &c::hierarchical, &c::hierarchical_pipeline};

/// Messages with data, per rank and lane (−1: all lanes).
int messages(const score& s, rank_t rank, int only_lane = -1) {
  int count = 0;
  const auto& lanes = s.players[static_cast<std::size_t>(rank)].lanes;
  for (std::size_t l = 0; l < lanes.size(); ++l)
    if (only_lane < 0 || static_cast<int>(l) == only_lane)
      for (const step& at : lanes[l])
        if (sends(at.kind) && (at.kind != step_kind::send || at.source.count > 0)) ++count;
  return count;
}

int steps_of(const score& s, rank_t rank, step_kind kind) {
  int count = 0;
  for (const lane& steps : s.players[static_cast<std::size_t>(rank)].lanes)
    count +=
        static_cast<int>(std::count_if(steps.begin(), steps.end(), [&](const step& at) { return at.kind == kind; }));
  return count;
}

const lane& lane_of(const score& s, rank_t rank, int number = 0) {
  return s.players[static_cast<std::size_t>(rank)].lanes[static_cast<std::size_t>(number)];
}

int round_up_log2(int n) {
  int log = 0;
  while ((1 << log) < n) ++log;
  return log;
}

}  // namespace

TEST_CASE("every score on a flat layout is right") {
  proved = 0;
  std::vector<int> counts = {24, 31, 32, 64};
  for (int n = 1; n <= 17; ++n) counts.push_back(n);
  std::erase_if(counts, [](int n) { return n > most_ranks; });
  for (const choreography* which : tested)
    for (const collective what : which->collectives)
      for (const int n : counts) {
        prove_variants(*which, flat_setup(what, n));
        for (rank_t root = 1; has_root(what) && root < n; ++root)
          for (const bool in_place : {false, true}) {
            const setup on = flat_setup(what, n, root, in_place);
            if (!refusal(*which, on).empty()) continue;
            prove(*which, on, lower_syncs(write_score(*which, on)), {1, 1});
          }
      }
  MESSAGE(proved, " proofs");
  CHECK(proved > (most_ranks < 64 ? 100 : 1000));
}

TEST_CASE("every score on servers and cards is right") {
  proved = 0;
  std::vector<layout> layouts;
  for (int servers = 2; servers <= 8; ++servers)
    for (int cards = 1; servers * cards <= 17; ++cards) {
      layouts.push_back(layout::grid(servers, cards));
      if (cards > 1) layouts.push_back(scattered(servers, cards));
    }
  layouts.push_back(layout::grid(2, 2, 3));
  for (const layout& large :
       {layout::grid(4, 6), layout::grid(31, 1), layout::grid(4, 8), layout::grid(8, 8), scattered(4, 6)})
    layouts.push_back(large);
  std::erase_if(layouts, [](const layout& l) { return l.size() > most_ranks; });
  for (const choreography* which : layered)
    for (const collective what : which->collectives) {
      for (const layout& placement : layouts) prove_variants(*which, on_layout(what, placement));
    }
  // Its all_gather and all_reduce have the same exchange.
  for (const layout& placement : layouts)
    if (placement.size() <= 12) prove_variants(c::direct_full_mesh, on_layout(collective::all_to_all, placement));
  MESSAGE(proved, " proofs");
  CHECK(proved > (most_ranks < 64 ? 100 : 500));
}

TEST_CASE(
    "servers of different sizes: staged_pairwise and the pipeline route by index mod size, hierarchical refuses") {
  std::vector<coordinates> mixed;  // 5 + 2 + 3, dealt out in no order
  for (const int server : {0, 1, 0, 2, 2, 0, 1, 0, 2, 0}) mixed.push_back({server, static_cast<int>(mixed.size()), 0});
  for (const layout& placement :
       {ragged({4, 3}), ragged({1, 5}), ragged({5, 1}), ragged({2, 7, 3}), ragged({1, 2, 3, 4}), ragged({4, 3, 2, 1}),
        ragged({8, 1, 8}), layout::placed(mixed)}) {
    prove_variants(c::staged_pairwise, on_layout(collective::all_to_all, placement));
    for (const collective what : c::hierarchical_pipeline.collectives) {
      const setup on = on_layout(what, placement);
      CHECK(refusal(c::hierarchical_pipeline, on).empty());
      prove_variants(c::hierarchical_pipeline, on);
    }
    for (const collective what : c::hierarchical.collectives) {
      const setup on = on_layout(what, placement);
      CHECK(refusal(c::hierarchical, on).find("different numbers of ranks") != std::string::npos);
      CHECK_THROWS_AS(write_score(c::hierarchical, on), error);
    }
  }
}

TEST_CASE("scores stay right when their sums are folded in rank order") {
  for (const choreography* which : tested)
    for (const collective what : which->collectives)
      for (const layout& placement : {layout::flat(6), layout::grid(3, 2), layout::grid(2, 3)})
        for (const bool in_place : {false, true}) {
          const setup on = on_layout(what, placement, in_place);
          if (!refusal(*which, on).empty()) continue;
          const score lowered = lower_syncs(write_score(*which, on));
          if (!is_reduction(what)) continue;
          const verdict v = verify(fold_in_rank_order(lowered));
          CAPTURE(describe(*which, on));
          REQUIRE_MESSAGE(v.ok(), to_string(*v.first_fault));
          CHECK(v.left_fold);
        }
}

TEST_CASE("refusals say what is missing") {
  CHECK(refusal(c::bruck, flat_setup(collective::all_to_all, 4, 0, false, false)).find("one size") !=
        std::string::npos);
  CHECK(refusal(c::fused, flat_setup(collective::all_to_all, 4, 0, true)).find("out of place") != std::string::npos);
  setup on = flat_setup(collective::all_to_all, 8);
  on.placement = layout::grid(2, 3);
  for (const choreography* which : layered) CHECK(refusal(*which, on).find("places for 6 ranks") != std::string::npos);
  CHECK(refusal(c::bruck, flat_setup(collective::all_reduce, 4)).find("does not offer") != std::string::npos);
}

TEST_CASE("grouped: servers of any size, scattered ranks, any number of streams") {
  for (const layout& placement : {layout::flat(7), layout::grid(2, 3), layout::grid(5, 2), layout::grid(7, 1),
                                  layout::grid(2, 9), ragged({3, 1, 2}), ragged({1, 4}), scattered(3, 2)})
    for (const int streams : {1, 2, 4, 16})
      for (const bool in_place : {false, true})
        for (const bool uniform : {true, false}) {
          setup on = on_layout(collective::all_to_all, placement, in_place);
          on.streams = streams;
          on.uniform = uniform;
          prove_all_limits(c::grouped, on);
        }
}

TEST_CASE("grouped: the order of NCCL's schedule, and its channels") {
  using peers = std::vector<rank_t>;
  const auto order = [](const score& s, rank_t r, int lane) {
    std::pair<peers, peers> met;
    const auto& lanes = s.players[static_cast<std::size_t>(r)].lanes;
    if (static_cast<std::size_t>(lane) < lanes.size())
      for (const step& at : lanes[static_cast<std::size_t>(lane)]) {
        if (at.kind == step_kind::send) met.first.push_back(at.to);
        if (at.kind == step_kind::recv) met.second.push_back(at.from);
      }
    return met;
  };
  const auto one_lane = [](const layout& placement) {
    setup on = on_layout(collective::all_to_all, placement);
    on.streams = 1;
    return write_score(c::grouped, on);
  };
  // One server: pairwise. Servers of one rank: the distances 0, n/2, 1, -1, …
  CHECK(order(one_lane(layout::flat(5)), 1, 0) == std::pair{peers{2, 3, 4, 0}, peers{0, 4, 3, 2}});
  CHECK(order(one_lane(layout::grid(4, 1)), 0, 0) == std::pair{peers{2, 1, 3}, peers{2, 3, 1}});
  CHECK(order(one_lane(layout::grid(5, 1)), 0, 0) == std::pair{peers{2, 3, 1, 4}, peers{3, 2, 4, 1}});
  CHECK(order(one_lane(layout::grid(8, 1)), 3, 0) == std::pair{peers{7, 4, 2, 6, 0, 5, 1}, peers{7, 2, 4, 0, 6, 1, 5}});
  // Two servers of three: first one's own, then the other, each from one's own index on.
  CHECK(order(one_lane(layout::grid(2, 3)), 1, 0) == std::pair{peers{2, 0, 4, 5, 3}, peers{0, 2, 4, 3, 5}});
  // Servers of three and one: a rank that has nobody to meet leaves the step out.
  CHECK(order(one_lane(ragged({3, 1})), 1, 0) == std::pair{peers{2, 0, 3}, peers{0, 2, 3}});
  for (const int n : {2, 3, 6, 7, 9, 12, 16, 21}) {
    const auto met = order(one_lane(layout::grid(n, 1)), 0, 0);
    CHECK(std::set<rank_t>(met.first.begin(), met.first.end()).size() == static_cast<std::size_t>(n - 1));
    for (std::size_t i = 0; i < met.first.size(); ++i) CHECK(met.first[i] == (n - met.second[i]) % n);
  }
  // Channels: of a server step by step; of several the distance, and one more for each eight steps.
  setup on = on_layout(collective::all_to_all, layout::flat(6));
  CHECK(order(write_score(c::grouped, on), 0, 1).first == peers{1, 5});
  on = on_layout(collective::all_to_all, layout::grid(2, 9));
  CHECK(order(write_score(c::grouped, on), 0, 0).first == peers{1, 2, 3, 4, 5, 6, 7});
  CHECK(order(write_score(c::grouped, on), 0, 1).first == peers{8, 9, 10, 11, 12, 13, 14, 15, 16});
  CHECK(order(write_score(c::grouped, on), 0, 2).first == peers{17});
}

TEST_CASE("pairwise: in step k to the rank k ahead, from the rank k behind") {
  for (const int n : {2, 5, 8}) {
    const score s = write_score(c::pairwise, flat_setup(collective::all_to_all, n));
    for (rank_t r = 0; r < n; ++r) {
      CHECK(messages(s, r) == n - 1);
      CHECK(s.players[static_cast<std::size_t>(r)].scratch.empty());
      const lane& steps = lane_of(s, r);  // own copy, then send and receive in turn
      for (int k = 1; k < n; ++k) {
        CHECK(steps[static_cast<std::size_t>(2 * k - 1)].to == (r + k) % n);
        CHECK(steps[static_cast<std::size_t>(2 * k)].from == (r - k + n) % n);
      }
    }
  }
}

namespace {
/// Steps of a rank that send or receive such a message.
std::size_t called(const score& s, rank_t r, message_name which) {
  std::size_t found = 0;
  for (const lane& l : s.players[static_cast<std::size_t>(r)].lanes)
    found += static_cast<std::size_t>(std::ranges::count(l, which, &step::called));
  return found;
}
}  // namespace

TEST_CASE("pairwise through scratch: four cells whatever the number of ranks, safe only because of the handshake") {
  setup on = flat_setup(collective::all_to_all, 9);
  on.through_scratch = true;
  const score s = write_score(c::pairwise, on);
  for (const part& player : s.players) {
    CHECK(player.scratch.empty());
    CHECK(player.l0.size() == 4);  // slices use them again
  }
  CHECK(messages(s, 0) == 8);
  CHECK(steps_of(s, 0, step_kind::send) == 4 * 8);  // Ack, data, DataSignal, WaitDone
  for (const message_name which :
       {message_name::ack, message_name::async, message_name::data_signal, message_name::wait_done}) {
    CAPTURE(name(which));
    CHECK(called(s, 0, which) == 2 * 8);  // sent and received
    CHECK(called(one_cell_per_step(s), 0, which) == 2 * 8);
  }
  CHECK(to_text(s).find("send  token → rank 8 (Ack)") != std::string::npos);
  // Names are no part of what ranks agree on.
  score nameless = s;
  for (part& player : nameless.players)
    for (lane& l : player.lanes)
      for (step& at : l) at.called = message_name::none;
  CHECK(digest(nameless) == digest(s));
  REQUIRE(verify(s).ok());
  REQUIRE(verify(one_cell_per_step(s), {2, 3}).ok());

  // In the order of the handshake, for every peer; WaitDone when it is there, in a lane of its own.
  for (int k = 1; k < 9; ++k) {
    const rank_t ahead = (4 + k) % 9, behind = (4 - k + 9) % 9;
    const step* at = &lane_of(s, 4)[static_cast<std::size_t>(1 + 4 * (k - 1))];               // behind the own copy
    CHECK((at[0].kind == step_kind::send && at[0].to == behind && at[0].source.count == 0));  // Ack …
    CHECK((at[1].kind == step_kind::recv && at[1].from == ahead && at[1].target.count == 0));
    CHECK((at[2].kind == step_kind::send && at[2].to == ahead && at[2].source.count == 1));  // Async
    CHECK((at[3].kind == step_kind::recv && at[3].from == behind && at[3].target.count == 1));
    at = &lane_of(s, 4, 4)[static_cast<std::size_t>(2 * (k - 1))];
    CHECK((at[0].kind == step_kind::send && at[0].to == ahead && at[0].source.count == 0));  // DataSignal
    CHECK(at[0].after == step_ref{0, 4 * (k - 1) + 3});
    CHECK((at[1].kind == step_kind::recv && at[1].from == behind && at[1].target.count == 0));
    CHECK(at[1].after == step_ref{0, 4 * k});
    at = &lane_of(s, 4, 3)[static_cast<std::size_t>(2 * (k - 1))];
    CHECK((at[0].kind == step_kind::send && at[0].to == behind));  // WaitDone
    CHECK(at[0].after == step_ref{4, 2 * (k - 1) + 1});
  }

  // Without waiting for WaitDone a cell may be filled again while the peer still reads it.
  score hasty = s;
  for (part& player : hasty.players) {
    int freed = 0;
    for (step& at : player.lanes[1])
      if (at.kind == step_kind::copy && at.after.lane == 3) at.after = {}, ++freed;
    CHECK(freed == 8 - 2);
  }
  const verdict v = verify(hasty);
  REQUIRE(!v.ok());
  CHECK(v.first_fault->what.find("l0[") != std::string::npos);

  // And Ack says that the landing cell has been emptied.
  score rash = s;
  for (part& player : rash.players)
    for (step& at : player.lanes[0])
      if (at.kind == step_kind::send && at.source.count == 0) at.after = {};
  CHECK(!verify(rash).ok());

  // The next piece waits for both.
  for (const std::size_t lane : {0u, 1u}) {
    score early = s;
    for (part& player : early.players) {
      REQUIRE(player.lanes[lane].back().kind == step_kind::wait);
      player.lanes[lane].back().after = {};
    }
    CHECK(verify(early).ok());
    CHECK_FALSE(verify(one_cell_per_step(early), {8, 3}).ok());
  }
}

TEST_CASE("pairwise through scratch: what a rank stages is that of a piece, however large the block is") {
  for (const collective what : {collective::all_to_all, collective::reduce_scatter})
    for (const int n : {2, 3, 9})
      for (const bool in_place : {false, true}) {
        setup on = flat_setup(what, n, 0, in_place);
        on.through_scratch = true;
        const score s = one_cell_per_step(write_score(c::pairwise, on));
        const std::size_t cells = n == 2 ? 2 : 4;
        const std::size_t kept = in_place && what == collective::all_to_all ? static_cast<std::size_t>(n - 1) : 0;
        for (const std::size_t count : {std::size_t{7}, std::size_t{1000}, std::size_t{100'003}})
          for (const int slices : {1, 2, 7, 100}) {
            call_shape shape;
            shape.count = count;
            const program code = compile(s, 1, shape, cutting{1, slices});
            const std::size_t piece = (count + static_cast<std::size_t>(slices) - 1) / static_cast<std::size_t>(slices);
            CHECK(code.scratch_bytes == 0);
            // Long pieces begin on a line, and may be longer by one.
            CHECK(code.l0_bytes <= (cells + kept) * (piece + 64) * shape.element_size);
            if (slices == 1) CHECK(code.l0_bytes == (cells + kept) * count * shape.element_size);
          }
      }
}

TEST_CASE("direct full mesh: ⌈(p−1)/C⌉ rounds, nearest first, both sides at once") {
  for (const collective what : {collective::all_to_all, collective::all_gather})
    for (const int n : {2, 5, 8, 13})
      for (const int streams : {1, 2, 4, 8}) {
        setup on = flat_setup(what, n);
        on.streams = streams;
        const score s = write_score(c::direct_full_mesh, on);
        for (rank_t r = 0; r < n; ++r) {
          CHECK(messages(s, r) == n - 1);
          CHECK(messages(s, r, 0) == 0);  // the main stream moves nothing between ranks
          CHECK(messages(s, r, 1) == (n - 1 + streams - 1) / streams);
          CHECK(s.players[static_cast<std::size_t>(r)].lanes.size() ==
                static_cast<std::size_t>(1 + std::min(streams, n - 1)));
        }
      }
  const score s = write_score(c::direct_full_mesh, flat_setup(collective::all_to_all, 13));
  const auto round = [&](std::size_t number) {
    std::multiset<int> peers;
    for (int stream = 1; stream <= 4; ++stream) peers.insert(lane_of(s, 6, stream)[2 * number].to - 6);
    return peers;
  };
  CHECK(round(0) == std::multiset<int>{-2, -1, 1, 2});
  CHECK(round(1) == std::multiset<int>{-4, -3, 3, 4});
  CHECK(round(2) == std::multiset<int>{-6, -5, 5, 6});
  // Round 2 starts when round 0 has drained: after the main stream has noticed the last of its four exchanges.
  for (int stream = 1; stream <= 4; ++stream) {
    CHECK(lane_of(s, 6, stream)[0].after.lane == -1);
    CHECK(lane_of(s, 6, stream)[2].after.lane == -1);
    const step_ref go = lane_of(s, 6, stream)[4].after;
    CHECK(go == step_ref{0, 4});
    CHECK(lane_of(s, 6, 0)[4].after == step_ref{4, 1});
  }
}

TEST_CASE("direct full mesh: the network has streams of its own, beside those of a server") {
  for (const layout& placement : {layout::grid(4, 5), scattered(4, 5), layout::grid(5, 3), layout::grid(6, 1)}) {
    setup on = on_layout(collective::all_to_all, placement);
    const int servers = placement.servers, cards = placement.size() / servers;
    for (const int streams : {1, 3, 8}) {
      on.streams = streams;
      const score s = write_score(c::direct_full_mesh, on);
      const int sdma = std::min(streams, cards - 1), rdma = std::clamp(streams, 2, 4);
      const int control = cards > 1 ? 1 + sdma : 0;
      for (rank_t r = 0; r < on.ranks; ++r) {
        CAPTURE(r);
        CHECK(s.players[static_cast<std::size_t>(r)].lanes.size() == static_cast<std::size_t>(control + 1 + rdma));
        std::set<int> peers;
        for (int l = 0; l < control + 1 + rdma; ++l)
          for (const step& at : lane_of(s, r, l)) {
            if (!sends(at.kind)) continue;
            CHECK(peers.insert(at.to).second);
            CHECK((placement.server_of(at.to) == placement.server_of(r)) == (l < control));
          }
        CHECK(peers.size() == static_cast<std::size_t>(on.ranks - 1));
        // The servers beside it first, both sides at once.
        const int here = placement.server_of(r);
        std::set<int> first;
        for (int stream = 1; stream <= 2; ++stream)
          first.insert((placement.server_of(lane_of(s, r, control + stream)[0].to) - here + servers) % servers);
        CHECK(first == std::set<int>{1, servers - 1});
      }
    }
  }
  // No partner of the same index in every server: as if there were one.
  CHECK(write_score(c::direct_full_mesh, on_layout(collective::all_to_all, ragged({4, 3}))) ==
        write_score(c::direct_full_mesh, flat_setup(collective::all_to_all, 7)));
}

TEST_CASE("direct full mesh through scratch: of a stream's two halves one is read while the other is filled") {
  setup on = flat_setup(collective::all_to_all, 10);
  on.through_scratch = true;
  on.streams = 4;
  const score s = write_score(c::direct_full_mesh, on);
  const int fill = 5;  // of the first stream, lane 1; a lane for each one more
  for (const part& player : s.players) {
    CHECK(player.scratch.empty());
    CHECK(player.l0.size() == 2 * 4);
    CHECK(player.lanes.size() == 1 + 4 + 4);
  }
  CHECK(messages(s, 0) == 9);
  CHECK(steps_of(s, 0, step_kind::send) == 3 * 9);  // Ack, data, DataSignal
  CHECK(called(s, 0, message_name::ack) == 2 * 9);
  CHECK(called(s, 0, message_name::data_signal) == 2 * 9);
  REQUIRE(verify(s).ok());
  REQUIRE(verify(one_cell_per_step(s), {2, 3}).ok());
  std::vector<int> halves;  // that a round sends from
  for (const step& at : lane_of(s, 3, 1)) {
    if (at.kind == step_kind::send && at.source.count > 0) halves.push_back(at.source.cell);
    if (at.kind == step_kind::recv && at.target.count > 0) CHECK(at.target.buffer == buffer_kind::output);
  }
  REQUIRE(halves.size() == 3);
  CHECK(halves[0] != halves[1]);
  CHECK(halves[0] == halves[2]);

  // Every wait is needed: for the peer to have read what lies in a half, for what is sent to be there, …
  const auto broken = [&](int lane, auto&& is_such) {
    score hasty = s;
    for (part& player : hasty.players)
      for (step& at : player.lanes[static_cast<std::size_t>(lane)])
        if (is_such(at)) at.after = {};
    return hasty;
  };
  const auto after_lane = [](int lane) { return [lane](const step& at) { return at.after.lane == lane; }; };
  CHECK_FALSE(verify(broken(fill, after_lane(1))).ok());
  CHECK_FALSE(verify(broken(1, after_lane(fill))).ok());
  // … and before the next slice begins.
  score hurried = s;
  for (part& player : hurried.players) {
    REQUIRE(player.lanes[fill].back().kind == step_kind::wait);
    player.lanes[fill].back().after = {};
  }
  CHECK(verify(hurried).ok());
  CHECK_FALSE(verify(one_cell_per_step(hurried), {8, 3}).ok());
  // In place, what has not been sent is kept from the next slice's, too.
  on.in_place = true;
  const score in_place = write_score(c::direct_full_mesh, on);
  CHECK(in_place.players[0].l0.size() == 2 * 4 + 9);
  score early = in_place;
  for (part& player : early.players)
    for (step& at : player.lanes[0])
      if (at.kind == step_kind::wait && at.after.lane >= fill) at.after = {};
  CHECK(verify(early).ok());
  CHECK_FALSE(verify(one_cell_per_step(early), {8, 3}).ok());
}

TEST_CASE("direct full mesh and fused fold from the left in rank order, whatever the rank") {
  for (const choreography* which : {&c::direct_full_mesh, &c::fused})
    for (const collective what : {collective::reduce_scatter, collective::all_reduce})
      for (const bool in_place : {false, true})
        for (const int n : {1, 2, 3, 8, 11}) {
          const verdict v = verify(lower_syncs(write_score(*which, flat_setup(what, n, 0, in_place))));
          REQUIRE(v.ok());
          CHECK(v.left_fold);
          CHECK(v.rank_ordered);
          CHECK(v.same_tree_everywhere);
        }
  CHECK_FALSE(verify(write_score(c::pairwise, flat_setup(collective::reduce_scatter, 4))).rank_ordered);

  // What may be taken as it arrives: all contributions but the first and the own one.
  const score s = write_score(c::direct_full_mesh, flat_setup(collective::reduce_scatter, 8));
  for (rank_t r = 0; r < 8; ++r) {
    const lane& steps = lane_of(s, r);
    const auto in_fans = std::count_if(steps.begin(), steps.end(), [](const step& at) { return at.fan != 0; });
    CHECK(in_fans == (r == 0 ? 7 : 6));
  }
}

TEST_CASE("staged pairwise: (p1 − 1) + (p2 − 1) steps, each followed by a barrier of its group") {
  for (const auto& [servers, cards] : {std::pair{2, 4}, {4, 2}, {3, 3}, {1, 5}, {5, 1}}) {
    const score s = write_score(c::staged_pairwise, on_layout(collective::all_to_all, layout::grid(servers, cards)));
    for (rank_t r = 0; r < s.ranks; ++r) {
      CHECK(messages(s, r) == (cards - 1) * servers + (servers - 1));
      const int tokens = steps_of(s, r, step_kind::send) - messages(s, r);
      CHECK(tokens == (cards - 1) * round_up_log2(cards) + (servers - 1) * round_up_log2(servers));
      for (const step& at : lane_of(s, r))
        if (sends(at.kind)) CHECK((at.to / cards == r / cards || at.to % cards == r % cards));
    }
  }
}

TEST_CASE("bruck: ⌈log2 n⌉ messages") {
  for (int n = 1; n <= 33; ++n) {
    const score s = write_score(c::bruck, flat_setup(collective::all_to_all, n));
    for (rank_t r = 0; r < n; ++r) CHECK(messages(s, r) == round_up_log2(n));
  }
}

TEST_CASE("the hierarchical ones talk inside the server or to the card of the same index") {
  for (const choreography* which : layered)
    for (const collective what : which->collectives) {
      const score s = write_score(*which, on_layout(what, layout::grid(3, 4)));
      for (rank_t r = 0; r < 12; ++r)
        for (const lane& steps : s.players[static_cast<std::size_t>(r)].lanes)
          for (const step& at : steps)
            if (sends(at.kind)) CHECK((at.to / 4 == r / 4 || at.to % 4 == r % 4));
    }
}

TEST_CASE("hierarchical and hierarchical_pipeline on layouts of any depth are right, level by level") {
  std::vector<layout> layouts;
  for (const char* text : {"2x2x2", "2x3x4", "3x2x3", "1x3x4", "2x2x2x1", "2x2x3x1", "3x2x2x2", "3x2x1x2", "2x2x1x1",
                           "4x3x1x1", "2x2x2x2x1", "2x1x2x2x2", "2x3x2x1x2", "2x2x2x2x2", "2x2x2x1x1x1",
                           // Levels of groups of different sizes are left out: pods here, cards there.
                           "2+1x2x1", "3+1x2x2x1", "0.0.0,0.0.1,0.1.0,1.0.0,1.1.0,1.2.0",
                           "0.0.0.0,0.1.0.0,0.2.0.0,1.0.0.0,2.0.0.0,2.1.0.0"})
    layouts.push_back(layout::parse(text));
  // Ranks are dealt out in no order.
  layouts.push_back(layout::parse("2x2x3x1").subset(std::vector{5, 0, 11, 3, 8, 1, 10, 2, 7, 6, 9, 4}));
  layouts.push_back(layout::parse("2x2x2x2").subset(std::vector{15, 2, 8, 5, 0, 12, 7, 3, 1, 14, 9, 4, 11, 6, 13, 10}));
  const int before = proved;
  for (const layout& placement : layouts)
    if (placement.size() <= most_ranks)
      for (const choreography* which : {&c::hierarchical, &c::hierarchical_pipeline})
        for (const collective what : which->collectives) {
          const setup on = on_layout(what, placement);
          CAPTURE(describe(*which, on));
          CHECK(refusal(*which, on).empty());
          prove_variants(*which, on);
        }
  CHECK(proved - before > (most_ranks < 64 ? 400 : 800));
}

TEST_CASE("hierarchies: a level is for those who differ in it alone, with the share that the other levels have left") {
  const std::vector<int> extents{3, 2, 4, 2};  // racks, pods, servers, cards
  const int ranks = 48;
  const auto digits = [&](rank_t r) {
    std::vector<int> found;
    for (int level = 3, rest = r; level >= 0; rest /= extents[static_cast<std::size_t>(level--)])
      found.insert(found.begin(), rest % extents[static_cast<std::size_t>(level)]);
    return found;
  };
  for (const choreography* which : {&c::hierarchical, &c::hierarchical_pipeline})
    for (const collective what : which->collectives) {
      const bool pipeline = which == &c::hierarchical_pipeline;
      CAPTURE(which->name);
      CAPTURE(name(what));
      const score s = write_score(*which, on_layout(what, layout::parse("3x2x4x2x1")));
      for (rank_t r = 0; r < ranks; ++r) {
        std::vector<int> cells(4), messages(4);
        for (const lane& steps : s.players[static_cast<std::size_t>(r)].lanes)
          for (const step& at : steps) {
            if (!sends(at.kind)) continue;
            const auto from = digits(r), to = digits(at.to);
            int differ = 0, level = 0;
            for (int l = 0; l < 4; ++l)
              if (from[static_cast<std::size_t>(l)] != to[static_cast<std::size_t>(l)]) ++differ, level = l;
            REQUIRE(differ == 1);
            ++messages[static_cast<std::size_t>(level)];
            cells[static_cast<std::size_t>(level)] += std::max(at.source.count, at.target.count);
          }
        if (pipeline && what == collective::all_gather) CHECK(s.players[static_cast<std::size_t>(r)].scratch.empty());
        int columns = 1;  // ranks that have the same digits from a level on
        for (std::size_t level = 0; level < 4; columns *= extents[level++]) {
          const int others = extents[level] - 1, ways = what == collective::all_reduce ? 2 : 1;
          const int blocks = what == collective::all_to_all ? others * ranks / extents[level] : ways * others * columns;
          CHECK(messages[level] == (pipeline ? blocks : ways * others));
          CHECK(cells[level] == blocks);
        }
      }
    }
}

TEST_CASE("hierarchical pipeline of pods: a block goes on inside as soon as the level outside has delivered it") {
  constexpr int pods = 3, servers = 4, cards = 2;
  const score s = write_score(c::hierarchical_pipeline, on_layout(collective::all_gather, layout::parse("3x4x2x1")));
  for (rank_t r = 0; r < s.ranks; ++r) {
    // A ring between pods, one between the servers of a pod for each block that it delivers, and a lane to or from each card.
    CHECK(messages(s, r, 0) == pods - 1);
    std::vector<step_ref> arrived;
    for (int block = 0; block < pods; ++block) {
      const lane& ring = lane_of(s, r, 1 + block);
      CHECK(messages(s, r, 1 + block) == servers - 1);
      CHECK(ring.front().kind == step_kind::send);
      const step_ref delivered = block == 0 ? step_ref{} : step_ref{0, block};
      CHECK(ring.front().after == delivered);
      arrived.push_back(delivered);
      for (int t = 1; t < servers; ++t) arrived.push_back({1 + block, t});
    }
    const lane& inside = lane_of(s, r, 1 + pods + r % cards);
    REQUIRE(inside.size() == arrived.size());
    for (std::size_t i = 0; i < inside.size(); ++i) {
      CHECK(inside[i].kind == step_kind::send);
      CHECK(inside[i].after == arrived[i]);
    }
  }
}

TEST_CASE(
    "hierarchical pipeline of pods: an all_to_all passes a block on as soon as the level outside has delivered it") {
  constexpr int pods = 2, servers = 3, cards = 2;
  setup on = on_layout(collective::all_to_all, layout::parse("2x3x2x1"));
  on.streams = 8;  // enough for all exchanges of a level
  const score s = write_score(c::hierarchical_pipeline, on);
  for (rank_t r = 0; r < s.ranks; ++r) {
    CAPTURE(r);
    const auto& lanes = s.players[static_cast<std::size_t>(r)].lanes;
    // What has come from the other pod for this one's servers and cards, whose blocks are not in order of the sources, but of their places.
    int from_pod = 0, on_to_servers = 0, on_to_cards = 0, own = 0;
    for (const lane& steps : lanes) {
      bool sent = false, received = false;
      for (const step& at : steps) {
        sent |= sends(at.kind), received |= receives(at.kind);
        if (receives(at.kind) && at.from / (servers * cards) != r / (servers * cards)) ++from_pod;
        if (!sends(at.kind)) continue;
        if (at.source.buffer == buffer_kind::input) {
          CHECK(at.after == step_ref{});
          ++own;
          continue;
        }
        // Exactly the receive of this block is waited for.
        REQUIRE(at.after != step_ref{});
        const step& arrival = lanes[static_cast<std::size_t>(at.after.lane)][static_cast<std::size_t>(at.after.step)];
        CHECK(receives(arrival.kind));
        CHECK(arrival.target == at.source);
        ++(at.to / cards == r / cards ? on_to_cards : on_to_servers);
      }
      CHECK(!(sent && received));  // no send waits for a receive that is not its own block's
    }
    CHECK(own == s.ranks - 1);
    CHECK(from_pod == servers * cards);
    CHECK(on_to_servers == (servers - 1) * cards);
    CHECK(on_to_cards == servers * pods - 1);
  }
  for (const int streams : {1, 2, 3})
    for (const bool in_place : {false, true}) {
      on.streams = streams;
      on.in_place = in_place;
      prove_all_limits(c::hierarchical_pipeline, on);
    }
  // Lanes that do not fit: sends wait for receives, and it is right nevertheless.
  on = on_layout(collective::all_to_all, layout::parse("4x4x16x1"));
  const score close = write_score(c::hierarchical_pipeline, on);
  CHECK(close.players.back().lanes.size() == 1 + 16);
  prove(c::hierarchical_pipeline, on, close, {2, 1});
}

TEST_CASE("hierarchical: a message for every column, rearranged in scratch") {
  const score s = write_score(c::hierarchical, on_layout(collective::all_gather, layout::grid(3, 4)));
  CHECK(messages(s, 0) == (3 - 1) + (4 - 1));
  CHECK(steps_of(s, 0, step_kind::copy) == 1 + 12);
  CHECK(messages(write_score(c::hierarchical, on_layout(collective::reduce_scatter, layout::grid(3, 4))), 0) == 2 + 3);
  CHECK(messages(write_score(c::hierarchical, on_layout(collective::all_to_all, layout::grid(3, 4))), 0) == 2 + 3);
  CHECK(messages(write_score(c::hierarchical, on_layout(collective::all_reduce, layout::grid(3, 4))), 0) ==
        2 * (2 + 3));
}

TEST_CASE("hierarchical pipeline: one block a transfer, straight to its final place") {
  for (const auto& [servers, cards] : {std::pair{2, 4}, {4, 2}, {3, 3}}) {
    const layout grid = layout::grid(servers, cards);
    const score gather = write_score(c::hierarchical_pipeline, on_layout(collective::all_gather, grid, true));
    for (rank_t r = 0; r < gather.ranks; ++r) {
      CHECK(messages(gather, r, 0) == servers - 1);
      const int sending = 1 + r % cards;  // the lane of a card's index is its own, the others' are for what they send
      for (int lane = 1; lane <= cards; ++lane)
        CHECK(messages(gather, r, lane) == (lane == sending ? servers * (cards - 1) : 0));
      CHECK(gather.players[static_cast<std::size_t>(r)].scratch.empty());
      CHECK(steps_of(gather, r, step_kind::copy) == 0);  // LocalCopy only when the buffers differ
      for (const step& at : lane_of(gather, r, sending)) {
        CHECK(at.kind == step_kind::send);  // waits for no receive
        CHECK(at.source.count == 1);
      }
      // The block that ring step t delivers leaves inside the server as soon as it is there.
      for (int t = 1; t < servers; ++t)
        CHECK(lane_of(gather, r, sending)[static_cast<std::size_t>((cards - 1) * t)].after == step_ref{0, t});
    }
    const score scatter = write_score(c::hierarchical_pipeline, on_layout(collective::reduce_scatter, grid));
    CHECK(messages(scatter, 0, 0) == servers - 1);
    CHECK(messages(scatter, 0, 1) == servers * (cards - 1));
    CHECK(scatter.players[0].scratch.size() == static_cast<std::size_t>(servers - 1));
    const score all = write_score(c::hierarchical_pipeline, on_layout(collective::all_reduce, grid));
    CHECK(messages(all, 0) == 2 * messages(scatter, 0));
    CHECK(all.players[0].scratch.empty());
    const score exchange = write_score(c::hierarchical_pipeline, on_layout(collective::all_to_all, grid));
    CHECK(messages(exchange, 0, 1) == servers * (cards - 1));
    CHECK(messages(exchange, 0) == (servers - 1) * cards + servers * (cards - 1));
    for (const part& player : exchange.players)
      for (const lane& steps : player.lanes) {
        const auto sending = std::count_if(steps.begin(), steps.end(), [](const step& at) { return sends(at.kind); });
        const auto receiving =
            std::count_if(steps.begin(), steps.end(), [](const step& at) { return receives(at.kind); });
        CHECK((sending == 0 || receiving == 0));
      }
    CHECK(exchange.players[0].scratch.size() == static_cast<std::size_t>((servers - 1) * (cards - 1)));
  }
}

TEST_CASE("hierarchical pipeline on servers of different sizes: every block comes to a server once, to who has its "
          "index there") {
  const layout placement = ragged({5, 2, 3});
  for (const collective what : {collective::all_gather, collective::reduce_scatter, collective::all_reduce}) {
    const score s = write_score(c::hierarchical_pipeline, on_layout(what, placement));
    std::vector<int> sent(3);  // between servers, by sender
    for (rank_t r = 0; r < s.ranks; ++r)
      for (const lane& steps : s.players[static_cast<std::size_t>(r)].lanes)
        for (const step& at : steps) {
          if (!sends(at.kind) || placement.server_of(at.to) == placement.server_of(r)) continue;
          CHECK(placement.server_of(at.to) == (placement.server_of(r) + 1) % 3);
          CHECK(std::max(at.source.count, at.target.count) == 1);
          ++sent[static_cast<std::size_t>(placement.server_of(r))];
        }
    // A server passes on all blocks but those of the next one, or all sums but those for itself.
    const std::vector<int> gathered{10 - 2, 10 - 3, 10 - 5}, scattered{10 - 5, 10 - 2, 10 - 3};
    std::vector<int> both;
    for (std::size_t i = 0; i < 3; ++i) both.push_back(gathered[i] + scattered[i]);
    CHECK(sent == (what == collective::all_gather ? gathered : what == collective::reduce_scatter ? scattered : both));
  }
  // Lanes that no longer fit: sends wait for receives, and it is right nevertheless.
  const score close = write_score(c::hierarchical_pipeline, on_layout(collective::all_gather, ragged({62, 64})));
  CHECK(close.players.back().lanes.size() == 1 + 64);
}

TEST_CASE("hierarchical pipeline: a distance sets out when the one `streams` before has arrived") {
  setup on = on_layout(collective::all_to_all, layout::grid(7, 2));
  on.streams = 2;
  const score s = write_score(c::hierarchical_pipeline, on);
  int gated = 0;
  for (const lane& steps : s.players[0].lanes)
    for (const step& at : steps) {
      const int servers_ahead = at.to / 2;
      if (at.kind != step_kind::send || at.to % 2 != 0 || at.after.lane < 0) continue;
      const step& awaited = lane_of(s, 0, at.after.lane)[static_cast<std::size_t>(at.after.step)];
      CHECK(awaited.from == (7 - (servers_ahead - 2)) % 7 * 2);
      ++gated;
    }
  CHECK(gated == 4);  // of six distances
}

TEST_CASE("nobody sends in the lane in which it receives from as far behind") {
  for (int n = 2; n <= 60; ++n)
    for (int shift = 1 - n; shift < n; ++shift) {
      if (shift == 0) continue;
      int third = 0;
      for (int from = 0; from < n; ++from) {
        const int lane = c::spread_lane(n, from, shift);
        CHECK((lane >= 0 && lane < c::lanes_of_spread));
        CHECK(lane != c::spread_lane(n, from - shift, shift));
        CHECK(lane == c::spread_lane(n, from + n, shift + n));
        third += lane == 2 ? 1 : 0;
      }
      const int length = n / std::gcd(n, shift);
      CHECK(third == (length % 2 == 0 ? 0 : n / length));  // one of every odd circle
    }
}

TEST_CASE("hierarchical pipeline: lanes of their own only as long as a verifier takes them") {
  const auto lanes_of = [](int servers, int cards, collective what) {
    const score s = write_score(c::hierarchical_pipeline, on_layout(what, layout::grid(servers, cards)));
    return static_cast<int>(s.players.back().lanes.size());
  };
  CHECK(lanes_of(2, 63, collective::all_gather) == 64);  // 126 × 64 = 8064
  CHECK(lanes_of(2, 64, collective::all_gather) == 64);  // 128 × 65 would be 8320: lane k goes to the card k ahead
  CHECK(lanes_of(16, 16, collective::all_to_all) == 1 + 16 + 12 - 1);  // no circle of 16 servers is odd
  CHECK(lanes_of(32, 16, collective::all_to_all) == 16);
  const setup on = on_layout(collective::all_to_all, layout::grid(2, 64));
  CHECK(verify(lower_syncs(write_score(c::hierarchical_pipeline, on))).ok());
}

TEST_CASE("csc: no messages, one sync, reads rotated, small L0") {
  const score gather = write_score(c::csc, flat_setup(collective::all_gather, 4));
  const score scatter = write_score(c::csc, flat_setup(collective::reduce_scatter, 4));
  const score all = write_score(c::csc, flat_setup(collective::all_reduce, 4));
  for (rank_t r = 0; r < 4; ++r) {
    for (const score* s : {&gather, &scatter, &all}) CHECK(messages(*s, r) == 0);
    CHECK(steps_of(gather, r, step_kind::sync) == 1);
    CHECK(steps_of(scatter, r, step_kind::sync) == 1);
    CHECK(steps_of(all, r, step_kind::sync) == 2);
    const auto index = static_cast<std::size_t>(r);
    CHECK(gather.players[index].l0.size() == 1);
    CHECK(scatter.players[index].l0.size() == 2);
    std::vector<int> read;
    for (const step& at : lane_of(gather, r))
      if (at.kind == step_kind::dma_get && at.source.buffer == buffer_kind::l2) read.push_back(at.source.cell);
    CHECK(read == std::vector<int>{(r + 1) % 4, (r + 2) % 4, (r + 3) % 4});
  }
  // The sync is what makes it right.
  score hasty = gather;
  for (part& player : hasty.players)
    std::erase_if(player.lanes[0], [](const step& at) { return at.kind == step_kind::sync; });
  CHECK_FALSE(verify(hasty).ok());
}

TEST_CASE("csc: blocks that lie beside each other are fetched at once, up to three, in the order of the rotation") {
  for (const int ranks : {2, 3, 4, 5, 9}) {
    setup on = flat_setup(collective::all_gather, ranks);
    on.contiguous = true;
    const score s = write_score(c::csc, on);
    CHECK(verify(lower_syncs(s)).ok());
    CHECK(verify(one_cell_per_step(lower_syncs(s))).ok());
    for (rank_t r = 0; r < ranks; ++r) {
      CHECK(s.players[static_cast<std::size_t>(r)].l0.size() == static_cast<std::size_t>(std::min(3, ranks - 1)));
      std::vector<int> read;
      for (const step& at : lane_of(s, r)) {
        if (at.kind != step_kind::dma_get || at.source.buffer != buffer_kind::l2) continue;
        CHECK(at.source.count <= 3);
        for (int i = 0; i < at.source.count; ++i) read.push_back(at.source.cell + i);
      }
      std::vector<int> rotation;
      for (int i = 1; i < ranks; ++i) rotation.push_back((r + i) % ranks);
      CHECK(read == rotation);
      const program code = compile(lower_syncs(s), r, call_shape{7, {}, {}, {}, 1}, {});
      CHECK(code.l0_bytes == 7 * s.players[static_cast<std::size_t>(r)].l0.size());
      for (const instruction& i : code.lane(0, 0)) {
        if (i.kind == step_kind::dma_get) CHECK(i.elements == 7u * static_cast<unsigned>(i.source_cells.count));
        if (i.kind == step_kind::dma_put) CHECK(i.elements == 7u * static_cast<unsigned>(i.target_cells.count));
      }
    }
    // Rank 0's blocks are the most that lie beside each other.
    if (ranks == 4) CHECK(lane_of(s, 0).size() == 6);
    on.uniform = false;
    setup plain = on;
    plain.contiguous = false;
    CHECK(write_score(c::csc, on) == write_score(c::csc, plain));
  }
}

TEST_CASE("csc: what a rank publishes lies in its own share of L2, and everybody fetches from somebody else") {
  for (const collective what : c::csc.collectives)
    for (const int ranks : {2, 4, 5}) {
      const score s = write_score(c::csc, flat_setup(what, ranks));
      const auto home = [&](const place& at) {
        return home_of_shared_cell(at.cell, static_cast<std::int64_t>(s.l2.size()), ranks);
      };
      for (rank_t r = 0; r < ranks; ++r)
        for (const step& at : lane_of(s, r)) {
          if (at.target.buffer == buffer_kind::l2) CHECK(home(at.target) == r);
          if (at.source.buffer == buffer_kind::l2) CHECK(home(at.source) != r);
        }
    }
}

TEST_CASE("fused: no messages but the syncs, and out of the way before anybody may leave") {
  for (const collective what : c::fused.collectives) {
    const score s = write_score(c::fused, flat_setup(what, 5));
    CHECK(messages(s, 3) == 0);
    for (rank_t r = 0; r < 5; ++r) {
      CHECK(lane_of(s, r).front().kind == step_kind::sync);
      CHECK(lane_of(s, r).back().kind == step_kind::sync);
    }
  }
  CHECK(steps_of(write_score(c::fused, flat_setup(collective::all_reduce, 5)), 2, step_kind::reduce) == 4);
}

}  // namespace choreographies_mesh_test
