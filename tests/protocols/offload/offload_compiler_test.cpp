// SPDX-License-Identifier: Apache-2.0
// Descriptors that are posted to NICs perform the score: of all built-in choreographies. And broken descriptors do not.

#include "protocols/offload/offload_compiler.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "memory/error.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/offload/offload_proof.hpp"
#include "protocols/verify/verifier.hpp"
#include "tests/seed.hpp"

using namespace troupe;
using offload::descriptor;
using offload::rank_program;

namespace {

constexpr int credits = 8;

struct subject {
  score notes;
  verdict verified;
  std::size_t count = 1;
  std::vector<std::size_t> counts{};
  std::vector<offload::endpoint> places{};

  explicit subject(score s, std::size_t elements = 1)
      : notes(std::move(s)), verified(verify(notes, {credits, 1})), count(elements) {}
  call_shape shape() const { return {count, counts, {}, {}, 8}; }
  proof_subject proof() const { return {notes, verified, shape()}; }
  offload::compile_options how() const { return {credits, places, 2}; }
  std::vector<rank_program> programs() const { return offload::compile(notes, shape(), how()); }
  std::string difference() const { return offload::why_not_the_score(proof(), programs(), how().packet_elements); }
};

std::string title(const setup& on, const choreography& who) {
  return std::string{who.name} + ' ' + std::string{name(on.what)} + ", " + std::to_string(on.ranks) + " ranks, root " +
         std::to_string(on.root) + (on.in_place ? ", in place" : "") +
         (on.uniform ? "" : ", blocks of different sizes");
}

/// Every setup of every built-in choreography for so many ranks, for some roots.
void for_each_setup(const layout& on_layout, bool uniform,
                    const std::function<void(const choreography&, const setup&)>& act) {
  const int ranks = on_layout.size();
  for (const choreography* who : all_choreographies())
    for (const collective what : who->collectives)
      for (const rank_t root : std::set<rank_t>{0, ranks / 2, ranks - 1})
        for (const bool in_place : {false, true}) {
          if (root > 0 && !has_root(what)) continue;
          setup on = flat_setup(what, ranks, root, in_place, uniform);
          on.placement = on_layout;
          if ((in_place && !agrees_on_place(what, uniform)) || (!uniform && block_count(what, ranks) < 2)) continue;
          if (refusal(*who, on).empty()) act(*who, on);
        }
}

bool needs_one_address_space(const score& s) {
  for (const part& p : s.players)
    for (const lane& steps : p.lanes)
      for (const step& at : steps)
        for (const place& x : {at.source, at.target})
          if (x.count > 0 && (x.owner != self || x.buffer == buffer_kind::l0 || x.buffer == buffer_kind::l2))
            return true;
  return false;
}

subject made(const char* choreography, collective what, int ranks, std::size_t count = 4, rank_t root = 0) {
  return subject{lower_syncs(write_score(*find_choreography(choreography), flat_setup(what, ranks, root))), count};
}

/// What the descriptors wait for, one behind the other's again.
void renumber(rank_program& p) {
  std::vector<offload::awaited_message> all;
  for (offload::sequence& s : p.sequences)
    for (descriptor& d : s.descriptors) {
      const auto its = p.messages_of(d);
      d.awaited = static_cast<std::uint32_t>(all.size());
      all.insert(all.end(), its.begin(), its.end());
    }
  p.awaited = std::move(all);
}

descriptor& find(rank_program& in, const char* kind, std::size_t skip = 0) {
  for (offload::sequence& s : in.sequences)
    for (descriptor& d : s.descriptors)
      if (kind_of(d) == kind && skip-- == 0) return d;
  FAIL("there is no ", kind);
  return in.sequences.front().descriptors.front();
}

}  // namespace

TEST_CASE("offload: what is compiled is the score, for every choreography, collective, root and many rank counts") {
  std::size_t proved = 0, refused = 0;
  std::set<collective> seen;
  const auto prove = [&](const choreography& who, const setup& on) {
    INFO(title(on, who));
    const subject of{lower_syncs(write_score(who, on)), on.ranks % 2 == 0 ? std::size_t{3} : std::size_t{1}};
    REQUIRE_MESSAGE(of.verified.ok(), to_string(*of.verified.first_fault));
    const std::string why = offload::why_not_offloaded(of.notes, of.how());
    CHECK(why.empty() == !needs_one_address_space(of.notes));
    if (!why.empty()) {
      CHECK_THROWS_AS(of.programs(), error);
      ++refused;
      return;
    }
    CHECK(of.difference() == "");
    ++proved;
    seen.insert(on.what);
  };
  for (const int ranks : {2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17}) for_each_setup(layout::flat(ranks), true, prove);
  for (const char* text : {"2x4", "3x2", "2x2x2", "4x4"}) for_each_setup(layout::parse(text), true, prove);
  MESSAGE(proved << " proved, " << refused << " refused");
  CHECK(proved > 1500);
  CHECK(refused > 50);
  CHECK(seen.size() == collective_count);
}

TEST_CASE("offload: blocks of different sizes, some empty, where the sizes are known") {
  std::mt19937_64 random{seed()};
  std::size_t proved = 0;
  for (const int ranks : {2, 3, 5, 8})
    for_each_setup(layout::flat(ranks), false, [&](const choreography& who, const setup& on) {
      INFO(title(on, who));
      subject of{one_cell_per_step(lower_syncs(write_score(who, on)))};
      if (needs_one_address_space(of.notes)) return;
      for (std::int64_t b = 0; b < block_count(on.what, ranks); ++b)
        of.counts.push_back(random() % 4 == 0 ? 0 : random() % 9);
      REQUIRE(of.verified.ok());
      CHECK(of.difference() == "");
      ++proved;
    });
  CHECK(proved > 100);
}

TEST_CASE("offload: with one credit no rank waits for what another sends only afterwards; most blocks empty, or none") {
  std::mt19937_64 random{seed()};
  std::size_t proved = 0;
  for (const int ranks : {4, 8, 16})
    for_each_setup(layout::flat(ranks), false, [&](const choreography& who, const setup& on) {
      if (on.root > 0) return;
      const score s = pace_sends(one_cell_per_step(lower_syncs(write_score(who, on))), 1);
      if (needs_one_address_space(s)) return;
      INFO(title(on, who));
      subject of{s};
      of.verified = verify(of.notes, {1, 1});
      REQUIRE(of.verified.ok());
      offload::compile_options how = of.how();
      how.credits = 1;
      for (int round = 0; round < 5; ++round) {
        of.counts.clear();
        for (std::int64_t b = 0; b < block_count(on.what, ranks); ++b)
          of.counts.push_back(round > 0 && random() % 4 != 0 ? 0 : 1 + random() % 9);
        if (round == 4) std::ranges::fill(of.counts, 2);
        CHECK(offload::why_not_the_score(of.proof(), offload::compile(of.notes, of.shape(), how),
                                         how.packet_elements) == "");
      }
      ++proved;
    });
  CHECK(proved > 60);
}

TEST_CASE("offload: sums folded in rank order, and few credits") {
  std::size_t proved = 0;
  for (const int ranks : {2, 5, 8})
    for_each_setup(layout::flat(ranks), true, [&](const choreography& who, const setup& on) {
      if (!is_reduction(on.what) || on.in_place) return;
      const score s = lower_syncs(write_score(who, on));
      if (needs_one_address_space(s)) return;
      INFO(title(on, who));
      subject of{pace_sends(fold_in_rank_order(s), 2), 2};
      of.verified = verify(of.notes, {2, 1});
      REQUIRE(of.verified.ok());
      offload::compile_options how = of.how();
      how.credits = 2;
      CHECK(offload::why_not_the_score(of.proof(), offload::compile(of.notes, of.shape(), how), how.packet_elements) ==
            "");
      ++proved;
    });
  CHECK(proved > 30);
}

TEST_CASE("offload: one rank alone ends at once") {
  const subject of{lower_syncs(score{"nobody's", collective::barrier, 1, 0, false, true, 1, {part{}}, {}, {}})};
  REQUIRE(of.verified.ok());
  const auto all = of.programs();
  REQUIRE(all.at(0).sequences.size() == 1);
  REQUIRE(all[0].sequences[0].descriptors.size() == 1);
  CHECK(kind_of(all[0].sequences[0].descriptors[0]) == "end");
  CHECK(of.difference() == "");
}

TEST_CASE("offload: a node of a binomial tree gathers its children in one trigger; halving is a sequence") {
  auto tree = made("binomial", collective::reduce, 16).programs();
  CHECK(find(tree[0], "gather").count == 4);
  CHECK(tree[0].sequences[0].descriptors.size() == 2);  // and the end
  CHECK(find(tree[8], "gather").count == 3);
  CHECK(find(tree[8], "gather").triggers);  // the sum goes up with it
  CHECK(tree[8].sequences[0].descriptors.size() == 2);
  auto halving = made("halving_doubling", collective::all_reduce, 16, 16).programs();
  std::vector<int> reducing;
  for (const descriptor& d : halving[0].sequences[0].descriptors)
    if (d.count > 0 && d.reduce) reducing.push_back(d.count);
  CHECK(reducing == std::vector<int>{1, 1, 1, 1});
}

TEST_CASE("offload: a descriptor waits for as many packets as CPCount counts, and not for more") {
  // 71 children of one root: 63 and 8.
  score s{"star", collective::reduce, 72, 0, false, true, 1, {}, {}, {}};
  for (rank_t r = 0; r < s.ranks; ++r) {
    part p;
    p.lanes.resize(1);
    const place mine{buffer_kind::input, self, 0, 1}, sum{buffer_kind::output, self, 0, 1};
    if (r > 0) p.lanes[0].push_back({step_kind::send, false, 0, -1, 0, mine, {}, {}});
    else
      for (rank_t from = 1; from < s.ranks; ++from)
        p.lanes[0].push_back(from == 1 ? step{step_kind::recv_reduce_copy, false, 0, from, -1, mine, sum, {}}
                                       : step{step_kind::recv_reduce, false, 0, from, -1, {}, sum, {}});
    s.players.push_back(p);
  }
  subject of{std::move(s)};
  REQUIRE_MESSAGE(of.verified.ok(), to_string(*of.verified.first_fault));
  auto all = of.programs();
  CHECK(find(all[0], "gather", 0).count == 63);
  CHECK(find(all[0], "gather", 1).count == 8);
  CHECK(of.difference() == "");
}

TEST_CASE("offload: several ranks behind one NIC, in any order of ports") {
  for (const char* name : {"ring", "double_binary_tree", "recursive_doubling"}) {
    subject of = made(name, collective::all_reduce, 6);
    std::size_t lanes = 1;
    for (const part& p : of.notes.players) lanes = std::max(lanes, p.lanes.size());
    for (rank_t r = 0; r < 6; ++r)
      of.places.push_back(
          {static_cast<std::uint32_t>(r % 2), static_cast<std::uint16_t>(100 - r * static_cast<int>(lanes))});
    CHECK(of.difference() == "");
    of.places[2] = of.places[0];
    CHECK(offload::why_not_offloaded(of.notes, of.how()) == "ranks 0 and 2 have a virtual port of node 0 in common");
  }
}

TEST_CASE("offload: what cannot be compiled is refused with a sentence") {
  const auto why = [](const subject& of, offload::compile_options how) {
    return offload::why_not_offloaded(of.notes, how);
  };
  const subject ring = made("ring", collective::all_reduce, 3);
  CHECK(why(ring, {.credits = 32}).find("SeqID tells no more messages apart") != std::string::npos);
  CHECK(why(ring, {.credits = 0}).find("must be 1 to 31") != std::string::npos);
  CHECK(why(ring, {.packet_elements = 0}) == "a packet must have room for an element");
  const std::vector<offload::endpoint> two(2), far{{1u << 24, 0}, {1, 0}, {2, 0}}, high{{0, 2048}, {1, 0}, {2, 0}};
  CHECK(why(ring, {.places = two}) == "there are places for 2 ranks, but the score has 3");
  CHECK(why(ring, {.places = far}) == "rank 0 has node 16777216; there are 16777216 of them, counted from 0");
  CHECK(why(ring, {.places = high}).find("a NIC has 2048") != std::string::npos);
  const subject fused = made("fused", collective::all_reduce, 3);
  CHECK(why(fused, {}).find("a NIC reaches the memory of its own process only") != std::string::npos);
  try {
    static_cast<void>(fused.programs());
    FAIL("was compiled");
  } catch (const error& e) {
    CHECK(e.code_value() == errc::unsupported);
    CHECK(std::string{e.what()}.find("NICs cannot perform fused's all_reduce: rank 0, lane 0, step ") == 0);
  }
}

TEST_CASE("offload: broken descriptors are not the score") {
  using breaker = std::function<void(std::vector<rank_program>&)>;
  const auto broken = [](const subject& of, const breaker& how) {
    auto programs = of.programs();
    REQUIRE(offload::why_not_the_score(of.proof(), programs, of.how().packet_elements) == "");
    how(programs);
    return offload::why_not_the_score(of.proof(), programs, of.how().packet_elements);
  };
  const auto has = [](const std::string& text, const char* part) {
    CHECK_MESSAGE(text.find(part) != std::string::npos, text);
  };
  const subject ring = made("ring", collective::all_reduce, 4, 8);
  const subject tree = made("binomial", collective::reduce, 8);
  const subject lanes = made("double_binary_tree", collective::all_reduce, 6);
  const subject barrier = made("recursive_doubling", collective::barrier, 5);

  has(broken(ring, [&](auto& all) { find(all[1], "receive and forward").own.offset += 8; }), "do not belong together");
  has(broken(ring, [&](auto& all) { find(all[1], "receive and forward").reduce = false; }),
      "ReduceFlag is not exactly");
  has(broken(ring, [&](auto& all) { find(all[2], "receive and forward").elements -= 1; }), "meets a message of");
  has(broken(ring, [&](auto& all) { find(all[2], "send").seq_id = 7; }), "never comes to pass");
  has(broken(ring, [&](auto& all) { find(all[2], "send").dest_port = 3; }), "sends to a port that nobody has");
  has(broken(ring, [&](auto& all) { find(all[2], "send").swap_remote_data = false; }), "SwapRemoteData is not");
  has(broken(ring, [&](auto& all) { find(all[2], "receive and forward").swap_local_data = false; }),
      "SwapLocalData is not");
  has(broken(ring, [&](auto& all) { find(all[0], "send").head = false; }), "CH is not on the first");
  has(broken(ring, [&](auto& all) { find(all[0], "end").collective_end = false; }), "CT and CollEndFlag");
  has(broken(ring, [&](auto& all) { find(all[0], "end").dest_port = 1; }), "completes another port's operation");
  has(broken(ring, [&](auto& all) { find(all[0], "send").collective = false; }), "not marked as collective");
  has(broken(ring, [&](auto& all) { all[3].awaited.pop_back(); }), "packets that it does not list");
  has(broken(ring, [&](auto& all) { all[3].sequences.clear(); }), "rank 3 posts no sequence");
  has(broken(ring, [](auto& all) { all[3].sequences.push_back(all[3].sequences[0]); }), "two sequences have port 0");
  has(broken(ring, [](auto& all) { all[3].sequences[0].port = 2048; }), "there is no port 2048");
  has(broken(ring, [](auto& all) { all[3].credits = 0; }), "a channel has 0 credits");
  has(broken(ring, [&](auto& all) { all.pop_back(); }), "not every rank has a program");
  has(broken(ring,
             [&](auto& all) {
               find(all[1], "receive and forward").target = {buffer_kind::l2, 0};
             }),
      "its target is no place");
  has(broken(ring, [&](auto& all) { find(all[1], "receive").target.offset += 8; }), "");
  has(broken(ring,
             [&](auto& all) {
               auto& list = all[1].sequences[0].descriptors;
               std::swap(list[1], list[2]);
               renumber(all[1]);
             }),
      "before an older one of the same channel");
  // The other way round is another tree, and the wrong child's packets do not come.
  has(broken(tree, [&](auto& all) { all[0].awaited[0].swapped ^= true; }), "instead of");
  has(broken(tree, [&](auto& all) { all[0].awaited[0].node = 6; }), "never comes to pass");
  has(broken(tree, [&](auto& all) { find(all[0], "gather").count -= 1, renumber(all[0]); }), "never comes to pass");
  // Sequences of a rank that are not ordered any more.
  CHECK(broken(lanes, [](auto& all) {
          for (rank_program& p : all) {
            for (auto& s : p.sequences) {
              std::erase_if(s.descriptors, [](const descriptor& d) { return kind_of(d) == "token"; });
              s.descriptors.front().head = true;
            }
            renumber(p);
          }
        }) != "");
  has(broken(barrier,
             [](auto& all) {
               for (rank_program& p : all)
                 for (auto& s : p.sequences)
                   s.descriptors.erase(s.descriptors.begin(), s.descriptors.end() - 1),
                       s.descriptors.front().head = true;
             }),
      "may end before it has heard of");
}

TEST_CASE("offload: no flag of any descriptor is another one than what it does, whatever it is flipped to") {
  const auto flags = {&descriptor::collective,
                      &descriptor::head,
                      &descriptor::tail,
                      &descriptor::triggers,
                      &descriptor::swap_local_data,
                      &descriptor::swap_local_port,
                      &descriptor::swap_remote_data,
                      &descriptor::swap_remote_address,
                      &descriptor::reduce,
                      &descriptor::collective_end};
  std::size_t flipped = 0;
  for (const subject& of :
       {made("halving_doubling", collective::all_reduce, 4, 16),
        made("double_binary_tree", collective::all_reduce, 6, 5), made("binomial", collective::reduce, 8),
        made("ring", collective::reduce_scatter, 4, 3), made("one_shot", collective::all_reduce, 3, 3),
        made("recursive_doubling", collective::barrier, 5)}) {
    auto programs = of.programs();
    REQUIRE(offload::why_not_the_score(of.proof(), programs, of.how().packet_elements) == "");
    for (rank_program& p : programs)
      for (offload::sequence& s : p.sequences)
        for (descriptor& d : s.descriptors)
          for (bool descriptor::*flag : flags) {
            d.*flag = !(d.*flag);
            CAPTURE(to_string(p, d));
            CHECK(offload::why_not_the_score(of.proof(), programs, of.how().packet_elements) != "");
            d.*flag = !(d.*flag);
            ++flipped;
          }
  }
  CHECK(flipped > 1000);
}

TEST_CASE("offload: messages of several packets, which are passed on packet by packet") {
  for (const std::size_t packet : {1u, 3u, 100u})
    for (const char* choreography : {"ring", "halving_doubling", "double_binary_tree"}) {
      const subject of = made(choreography, collective::all_reduce, 5, 40);
      const offload::compile_options how{credits, {}, packet};
      const auto programs = offload::compile(of.notes, of.shape(), how);
      CHECK(offload::why_not_the_score(of.proof(), programs, packet) == "");
      CHECK(offload::why_not_the_score(of.proof(), programs, packet == 100 ? 3 : 100).find("SwapRemoteAddr") !=
            std::string::npos);
    }
}

TEST_CASE("offload: a slot for results that are passed on is written again only when its message was taken") {
  // Every rank passes 12 results on, with two credits: six times through the same slots.
  subject of = made("ring", collective::reduce_scatter, 14, 4);
  of.notes = pace_sends(of.notes, 2);
  of.verified = verify(of.notes, {2, 1});
  REQUIRE(of.verified.ok());
  offload::compile_options how = of.how();
  how.credits = 2;
  auto programs = offload::compile(of.notes, of.shape(), how);
  CHECK(offload::why_not_the_score(of.proof(), programs, of.how().packet_elements) == "");
  CHECK(programs[0].scratch_bytes == 2 * 64);
  for (rank_program& p : programs)
    for (descriptor& d : p.sequences[0].descriptors)
      if (d.target.buffer == buffer_kind::scratch) d.target.offset = 0;
  CHECK(offload::why_not_the_score(of.proof(), programs, of.how().packet_elements) != "");
}
