// SPDX-License-Identifier: Apache-2.0
// nvls, nvls_tree, collnet_direct, collnet_chain: right on every setup, performed by the switches they name, refused where none reduces; and what
// the verifier says of switches that do what they must not.

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "memory/error.hpp"
#include "protocols/choreographies/choreographies.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/lower/partition.hpp"
#include "protocols/score/seats.hpp"
#include "protocols/verify/verifier.hpp"
#include "tests/protocols/most_ranks.hpp"

using namespace troupe;
namespace c = troupe::choreographies;

namespace {

setup on_layout(collective what, const std::string& placement, bool in_place = false, bool uniform = true) {
  const layout places = layout::parse(placement);
  setup on = flat_setup(what, places.size(), 0, in_place, uniform);
  on.placement = places;
  return on;
}

std::string with_layout(const choreography& which, const setup& on) {
  return std::string{which.name} + ' ' + std::string{name(on.what)} + " on " + on.placement.to_string() +
         (on.in_place ? ", in place" : "") + (on.uniform ? "" : ", blocks of different sizes");
}

void prove(const choreography& which, const setup& on) {
  const std::string who = with_layout(which, on);
  CAPTURE(who);
  REQUIRE(refusal(which, on).empty());
  const score whole = write_score(which, on);
  const score cut = one_cell_per_step(whole);
  for (const int credits : {1, 2, 8})
    for (const int slices : {1, 3}) {
      const score& as = credits == 1 ? pace_sends(cut, 1) : on.uniform ? whole : cut;
      const verdict v = verify(as, {credits, slices});
      if (!v.ok()) FAIL_CHECK(who, ", ", credits, " credits, ", slices, " slices: ", to_string(*v.first_fault));
    }
  if (!whole.switches.empty())
    CHECK_THROWS_WITH_AS(fold_in_rank_order(whole), doctest::Contains("a switch adds up what passes it"), error);
  if (on.uniform) {
    const verdict pieces = verify(partition(whole, 2), {8, 1});
    if (!pieces.ok()) FAIL_CHECK(who, " in pieces: ", to_string(*pieces.first_fault));
  }
  CHECK(from_json(to_json(whole)) == whole);
}

step made(step_kind kind, const place& source, const place& target, rank_t to = -1) {
  step s;
  s.kind = kind;
  s.to = to;
  s.source = source;
  s.target = target;
  return s;
}

}  // namespace

TEST_CASE("fabric: nvls is right for every number of ranks of a server, in place and not") {
  for (const int ranks : {1, 2, 3, 4, 5, 7, 8, 9, 12, 17})
    for (const bool in_place : {false, true}) {
      if (ranks > most_ranks) continue;
      const std::string places = "1x" + std::to_string(ranks) + ":inside";
      for (const collective what : {collective::all_reduce, collective::reduce_scatter, collective::all_gather})
        prove(c::nvls, on_layout(what, places, in_place));
      for (const collective what : {collective::reduce_scatter, collective::all_gather})
        prove(c::nvls, on_layout(what, places, in_place, false));
    }
  prove(c::nvls, on_layout(collective::all_reduce, "6:inside"));
  prove(c::nvls, on_layout(collective::reduce_scatter, "0.2.0,0.0.0,0.1.0:inside"));
}

TEST_CASE("fabric: those of several servers are right for any number of servers and cards") {
  for (const int servers : {2, 3, 4, 5, 7})
    for (const int cards : {1, 2, 3, 8, 9})
      for (const bool in_place : {false, true}) {
        if (servers * cards > (in_place ? std::min(40, most_ranks) : most_ranks)) continue;
        const std::string places = std::to_string(servers) + "x" + std::to_string(cards) + ":both";
        for (const choreography* which : {&c::nvls, &c::nvls_tree, &c::collnet_chain, &c::collnet_direct})
          if (which != &c::collnet_direct || cards <= 8)
            prove(*which, on_layout(collective::all_reduce, places, in_place));
      }
  prove(c::nvls_tree, on_layout(collective::all_reduce, "1.0.0,0.0.0,1.1.0,0.1.0:inside"));
}

TEST_CASE("fabric: it is the switch that reduces, and a share goes up to it but once from every rank") {
  const score s = write_score(c::nvls, on_layout(collective::all_reduce, "1x6:inside"));
  const seat_map seats{s};
  REQUIRE(s.switches.size() == 1);
  CHECK(s.switches[0].server == 0);
  std::vector<int> given(6, 0), taken(6, 0);  // shares that pass each rank's link
  for (rank_t r = 0; r < 6; ++r) {
    const auto& lanes = s.players[static_cast<std::size_t>(r)].lanes;
    for (std::size_t l = 0; l < lanes.size(); ++l)
      for (const step& at : lanes[l]) {
        const bool in_switch = seats.of(r, l) >= 0;
        if (reduces(at.kind)) CHECK(in_switch);
        if (sends(at.kind)) CHECK((in_switch || seats.of(at.to, l) >= 0));
        if (sends(at.kind) && !in_switch) ++given[static_cast<std::size_t>(r)];
        if (receives(at.kind) && !in_switch) ++taken[static_cast<std::size_t>(r)];
        if (at.kind != step_kind::copy) continue;
        const bool from_switch = at.source.buffer == buffer_kind::scratch;
        ++(from_switch ? taken : given)[static_cast<std::size_t>(r)];
      }
  }
  // A block of 6 shares, and the share whose head it is.
  CHECK(given == std::vector<int>(6, 7));
  CHECK(taken == std::vector<int>(6, 6));  // the five of the others, and the sum of the own one
}

TEST_CASE("fabric: of 4 servers with 2 cards, the network gets each share from each server once") {
  for (const choreography* which : {&c::collnet_chain, &c::collnet_direct, &c::nvls}) {
    const score s = write_score(*which, on_layout(collective::all_reduce, "4x2:both"));
    const seat_map seats{s};
    int given = 0;
    for (rank_t r = 0; r < 8; ++r) {
      const auto& lanes = s.players[static_cast<std::size_t>(r)].lanes;
      for (std::size_t l = 0; l < lanes.size(); ++l)
        for (const step& at : lanes[l]) {
          if (seats.of(r, l) < 0 && sends(at.kind)) {
            const int which_switch = seats.of(at.to, l);
            if (which_switch >= 0 && s.switches[static_cast<std::size_t>(which_switch)].server < 0) ++given;
            else CHECK(r / 2 == at.to / 2);  // nothing but the network's joins servers
          }
          if (seats.of(r, l) >= 0 && at.kind == step_kind::copy &&
              s.switches[static_cast<std::size_t>(seats.of(r, l))].server < 0)
            ++given;
        }
    }
    CHECK(given == 4 * 2);
  }
}

TEST_CASE("fabric: refused with a sentence where no switch reduces") {
  const auto why = [](const choreography& which, const std::string& places, collective what = collective::all_reduce) {
    return refusal(which, on_layout(what, places));
  };
  const auto says = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  CHECK(says(why(c::nvls, "1x8"), "no server of the layout 1x8x1 has one that does"));
  CHECK(says(why(c::nvls, "1x8:between"), "\"1x8:inside\""));
  CHECK(says(why(c::nvls, "2x4:inside"), "nvls_tree does without"));
  CHECK(says(why(c::nvls, "2x4:both", collective::all_gather), "offers all_reduce alone"));
  CHECK(says(why(c::nvls_tree, "2x4:between"), "no server of the layout"));
  CHECK(says(why(c::nvls_tree, "1x4:inside"), "there is one server"));
  CHECK(says(why(c::nvls_tree, "4+3:inside"), "different numbers of ranks"));
  CHECK(says(why(c::collnet_chain, "2x4:inside"), "lets the network between servers reduce"));
  CHECK(says(why(c::collnet_direct, "1x4:both"), "there is one server"));
  CHECK(says(why(c::collnet_direct, "2x9:both"), "it is for up to 8"));
  CHECK_THROWS_AS(write_score(c::nvls, on_layout(collective::all_reduce, "1x8")), error);
}

TEST_CASE("fabric: the verifier names what a switch must not do") {
  const score right = write_score(c::nvls, on_layout(collective::all_reduce, "1x4:inside"));
  const auto fault_of = [&](const std::function<void(score&)>& spoil) {
    score s = right;
    spoil(s);
    const verdict v = verify(s);
    return v.ok() ? std::string{"none"} : to_string(*v.first_fault);
  };
  const auto is = [&](const std::function<void(score&)>& spoil, const char* part) {
    const std::string said = fault_of(spoil);
    CAPTURE(said);
    CHECK(said.find(part) != std::string::npos);
  };
  const fabric_switch::seat taking = right.switches[0].lanes[0];
  const auto lane_of = [&](score& s) -> lane& {
    return s.players[static_cast<std::size_t>(taking.rank)].lanes[static_cast<std::size_t>(taking.lane)];
  };
  CHECK(fault_of([](score&) {}) == "none");
  is([&](score& s) { s.switches[0].members.pop_back(); }, "which is no member");
  is([&](score& s) { s.switches[0].lanes.push_back(taking); }, "belongs to a switch already");
  is([&](score& s) { s.switches[0].lanes.push_back({0, 99}); }, "has no lane 99");
  is([&](score& s) { s.switches.push_back(s.switches[0]); }, "another one of that number");
  is([&](score& s) { lane_of(s)[0].target = {buffer_kind::output, self, 0, 1}; }, "does not lie in it");
  is(
      [&](score& s) {
        lane_of(s).push_back(made(step_kind::send, {buffer_kind::input, self, 0, 1}, {}, 1));
      },
      "hands out input[0]");
  // A rank that reduces in the switch's place, or sums up with what lies there.
  is(
      [&](score& s) {
        const place in_switch = lane_of(s)[0].target;
        s.players[0].lanes[0].push_back(made(step_kind::reduce, {buffer_kind::input, self, 0, 1}, in_switch));
      },
      "lies in the switch of server 0: give it");
  is(
      [&](score& s) {
        const place in_switch = lane_of(s)[0].target;
        s.players[0].lanes[0].push_back(made(step_kind::reduce, in_switch, {buffer_kind::output, self, 0, 1}));
      },
      "takes it from there by a copy");
  // One contribution is left out, one comes twice.
  is([&](score& s) { lane_of(s).erase(lane_of(s).begin() + 1); }, "");
  CHECK(fault_of([&](score& s) { lane_of(s)[0].source.cell = 1; }) != "none");
  CHECK(fault_of([&](score& s) { lane_of(s).back().kind = step_kind::recv, lane_of(s).back().fan = 0; }) != "none");
  // A switch of another server.
  const score two = write_score(c::nvls_tree, on_layout(collective::all_reduce, "2x2:inside"));
  score crossed = two;
  crossed.switches[0].members = {0};
  crossed.switches[0].lanes.resize(0);
  for (const auto& at : two.switches[0].lanes)
    if (at.rank == 0) crossed.switches[0].lanes.push_back(at);
  const verdict v = verify(crossed);
  REQUIRE_FALSE(v.ok());
  CHECK(to_string(*v.first_fault).find("does not join") != std::string::npos);
}

TEST_CASE("fabric: a score in words and as JSON says which lanes are a switch's") {
  const score s = write_score(c::collnet_chain, on_layout(collective::all_reduce, "2x2:between"));
  const std::string text = to_text(s);
  CHECK(text.find("the network reduces and multicasts among 4 ranks") != std::string::npos);
  CHECK(text.find(", of the network\n") != std::string::npos);
  CHECK(from_json(to_json(s)) == s);
  score other = s;
  other.switches[0].lanes.pop_back();
  CHECK(digest(other) != digest(s));
  const auto wrong = [](std::string json, const std::string& was, const std::string& now) {
    const auto at = json.find(was);
    REQUIRE(at != std::string::npos);
    return json.replace(at, was.size(), now);
  };
  CHECK_THROWS_WITH_AS(from_json(wrong(to_json(s), "\"members\": [0", "\"members\": [9")),
                       doctest::Contains("switches[0].members[0]"), error);
  CHECK_THROWS_WITH_AS(from_json(wrong(to_json(s), "\"members\"", "\"member\"")), doctest::Contains("did you mean"),
                       error);
}

TEST_CASE(
    "fabric: on a board nvls reads a share where each rank has it, writes it where each wants it, and sends nothing") {
  for (const int ranks : {2, 3, 4, 5, 8, 9, 16, 17, 24})
    for (const collective what : {collective::all_reduce, collective::reduce_scatter, collective::all_gather})
      for (const bool in_place : {false, true}) {
        if (ranks > most_ranks) continue;
        setup on = on_layout(what, std::to_string(ranks) + ":inside", in_place);
        on.on_board = true;
        CAPTURE(with_layout(c::nvls, on));
        const score whole = write_score(c::nvls, on);
        CHECK(whole.switches.empty());
        int read = 0, written = 0;
        for (const part& player : whole.players) {
          REQUIRE(player.lanes.size() == 1);
          CHECK(player.scratch.empty());
          for (const step& at : player.lanes.front()) {
            const bool local = at.kind == step_kind::copy || at.kind == step_kind::reduce;
            CHECK((local || at.kind == step_kind::sync));
            if (local)
              read += at.source.buffer == buffer_kind::input ? 1 : 0, written += at.kind == step_kind::copy ? 1 : 0;
          }
        }
        const int cells = whole.parts * static_cast<int>(block_count(what, ranks));
        // Each rank's cell once, but for the block that an all_gather in place has already.
        if (what != collective::all_gather) CHECK(read == cells * ranks);
        CHECK(written == (what == collective::reduce_scatter           ? cells
                          : what == collective::all_gather && in_place ? cells * (ranks - 1)
                                                                       : cells * ranks));
        const score lowered = lower_syncs(whole);
        for (const int slices : {1, 3}) {
          const verdict v = verify(lowered, {8, slices});
          if (!v.ok()) FAIL_CHECK(to_string(*v.first_fault));
        }
      }
}

TEST_CASE("fabric: a text may say which switches reduce and leave places open") {
  for (const char* text : {"", ":inside", ":both", ":none"}) CHECK(layout::leaves_places_open(text));
  CHECK_FALSE(layout::leaves_places_open("8:inside"));
  CHECK(layout::reduction_of("") == fabric_reduction::none);
  CHECK(layout::reduction_of(":inside") == fabric_reduction::inside);
  CHECK(layout::reduction_of("2x8:both") == fabric_reduction::both);
  CHECK_THROWS_WITH_AS(layout::reduction_of(":outside"), doctest::Contains("'outside'"), error);
  CHECK_THROWS_AS(layout::parse(":inside"), error);
}

TEST_CASE("fabric: layouts say which switches reduce") {
  CHECK(layout::parse("2x8:inside").reduces_inside());
  CHECK_FALSE(layout::parse("2x8:inside").reduces_between());
  CHECK(layout::parse("2x8:both").reduces == fabric_reduction::both);
  CHECK(layout::parse("8:none") == layout::flat(8));
  for (const char* text : {"2x8x1:between", "8:inside", "0.0.0,1.0.0,1.1.0:both"})
    CHECK(layout::parse(text).to_string() == text);
  CHECK(layout::parse("2x4:inside").subset(std::vector<int>{0, 1, 5}).reduces_inside());
  CHECK(layout::parse("2x4:inside") != layout::parse("2x4"));
  CHECK_THROWS_WITH_AS(layout::parse("2x8:outside"), doctest::Contains("'outside'"), error);
}
