// SPDX-License-Identifier: Apache-2.0
// pat, nhr, nb, hierarchical_hd, hierarchical_nhr, hierarchical_nb, chained_double_tree, ring_per_nic, tree_per_nic: right on every setup, and who sends what to whom in which round is what their sources say.

#include <algorithm>
#include <bit>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/hierarchy.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/lower/rewriting.hpp"
#include "protocols/verify/verifier.hpp"
#include "tests/protocols/most_ranks.hpp"
#include "tests/seed.hpp"

using namespace troupe;
namespace c = troupe::choreographies;

namespace {

int ceil_log2(int n) { return static_cast<int>(std::bit_width(static_cast<unsigned>(n - 1))); }

std::string describe(const choreography& which, const setup& on) {
  return std::string{which.name} + ' ' + std::string{name(on.what)} + ", " + std::to_string(on.ranks) + " ranks on " +
         on.placement.to_string() + ", root " + std::to_string(on.root) + (on.in_place ? ", in place" : "") +
         (on.uniform ? "" : ", blocks of different sizes");
}

/// As it is performed: whole messages; slices and blocks of different sizes cell by cell, and for one credit paced: nhr and nb have a
/// second message under way.
int prove(const choreography& which, const setup& on) {
  const score whole = write_score(which, on);
  const score cut = one_cell_per_step(whole);
  int proofs = 0;
  for (const int credits : {1, 2, 8})
    for (const int slices : {1, 3}) {
      if (on.ranks > 17 && slices != (on.uniform ? 1 : 3)) continue;  // a sample
      const bool paced = &which != &c::pat && &which != &c::chained_double_tree && &which != &c::tree_per_nic;
      const bool as_written = slices == 1 && on.uniform && (credits > 1 || !paced);
      const verdict v = verify(as_written ? whole : credits == 1 ? pace_sends(cut, 1) : cut, {credits, slices});
      ++proofs;
      if (!v.ok()) FAIL_CHECK(describe(which, on), ", ", credits, " credits: ", to_string(*v.first_fault));
    }
  return proofs;
}

setup on_layout(collective what, const layout& placement, bool in_place = false) {
  setup on = flat_setup(what, placement.size(), 0, in_place);
  on.placement = placement;
  return on;
}

/// Cells that a rank sends to each peer, message by message.
std::vector<std::pair<rank_t, int>> sent(const score& s, rank_t rank) {
  std::vector<std::pair<rank_t, int>> all;
  for (const lane& steps : s.players[static_cast<std::size_t>(rank)].lanes)
    for (const step& at : steps)
      if (at.kind == step_kind::send) all.emplace_back(at.to, at.source.count);
  return all;
}

std::size_t index(rank_t r) { return static_cast<std::size_t>(r); }

}  // namespace

TEST_CASE("pat, nhr and nb are right for 1 … 64 ranks and all roots") {
  int proofs = 0;
  for (const choreography* which : {&c::pat, &c::nhr, &c::nb})
    for (const collective what : which->collectives)
      for (int n = 1; n <= most_ranks; ++n)
        for (rank_t root = 0; root < (has_root(what) ? n : 1); ++root) {
          if (n > 24 && root != 0 && root != n / 3 && root != n - 1) {  // proved once each
            const verdict v = verify(write_score(*which, flat_setup(what, n, root)));
            ++proofs;
            if (!v.ok()) FAIL_CHECK(describe(*which, flat_setup(what, n, root)), ": ", to_string(*v.first_fault));
            continue;
          }
          for (const bool in_place : {false, true})
            for (const bool uniform : {true, false})
              if (uniform || block_count(what, n) == n) {
                if (n > 24 && root != 0 && (in_place || !uniform)) continue;
                proofs += prove(*which, flat_setup(what, n, root, in_place, uniform));
              }
        }
  MESSAGE(proofs, " proofs");
  CHECK(proofs > (most_ranks < 64 ? 500 : 5000));
}

TEST_CASE("pat: log2 messages a rank where n is a power of two, one block far, half of all near; never more than two a "
          "round") {
  for (int n = 2; n <= 33; ++n) {
    CAPTURE(n);
    const score gather = write_score(c::pat, flat_setup(collective::all_gather, n));
    const score scatter = write_score(c::pat, flat_setup(collective::reduce_scatter, n));
    for (rank_t r = 0; r < n; ++r) {
      const auto down = sent(gather, r), up = sent(scatter, r);
      std::map<int, int> rounds;  // distance → messages
      int blocks = 0;
      for (const auto& [to, count] : down) {
        ++rounds[(r - to + n) % n];
        blocks += count;
      }
      CHECK(blocks == n - 1);
      CHECK(static_cast<int>(rounds.size()) == ceil_log2(n));
      for (const auto& [distance, messages] : rounds) {
        CHECK(std::has_single_bit(static_cast<unsigned>(distance)));
        CHECK(messages <= (std::has_single_bit(static_cast<unsigned>(n)) ? 1 : 2));
      }
      // NCCL: far first to r − D, one block; the reduce_scatter is the same backwards, to r + D.
      CHECK(down.front() == std::pair{(r - (1 << (ceil_log2(n) - 1)) + n) % n, 1});
      REQUIRE(up.size() == down.size());
      CHECK(up.back() == std::pair{(r + (1 << (ceil_log2(n) - 1))) % n, 1});
      CHECK(up.front().first == (r + 1) % n);
    }
  }
}

TEST_CASE("nhr and nb: the slices of every round are those of HCCL's step tables") {
  for (int n = 2; n <= 33; ++n) {
    CAPTURE(n);
    const int rounds = ceil_log2(n);
    for (const choreography* which : {&c::nhr, &c::nb}) {
      const int ahead = which == &c::nb ? 1 : -1;
      const score s = write_score(*which, flat_setup(collective::reduce_scatter, n));
      for (rank_t r = 0; r < n; ++r) {
        std::vector<rank_t> expected;
        for (int step = 0; step < rounds; ++step)
          for (int i = 0; i < (n - 1 + (1 << step)) / (1 << (step + 1)); ++i)
            expected.push_back((r + ahead * (1 << step) + n) % n);
        std::vector<rank_t> told;
        for (const auto& [to, count] : sent(s, r)) {
          told.push_back(to);
          CHECK(count == 1);
        }
        CHECK(told == expected);
        CHECK(told.size() == index(n - 1));
      }
    }
    const score far_first = write_score(c::nhr, flat_setup(collective::all_gather, n));
    const score near_first = write_score(c::nb, flat_setup(collective::all_gather, n));
    for (rank_t r = 0; r < n; ++r) {
      std::vector<std::pair<rank_t, int>> expected;  // one message a block
      for (int step = 0; step < rounds; ++step)
        for (int i = 0; i < (n - 1 + (1 << (rounds - 1 - step))) / (1 << (rounds - step)); ++i)
          expected.emplace_back((r + (1 << (rounds - 1 - step))) % n, 1);
      CHECK(sent(far_first, r) == expected);
      std::map<rank_t, int> blocks;
      std::vector<rank_t> order;
      for (const auto& [to, count] : sent(near_first, r)) {
        if (order.empty() || order.back() != to) order.push_back(to);
        blocks[to] += count;
      }
      REQUIRE(order.size() == index(rounds));
      for (int step = 0; step < rounds; ++step) {
        CHECK(order[index(step)] == (r + (1 << step)) % n);
        CHECK(blocks[(r + (1 << step)) % n] == std::min(1 << step, n - (1 << step)));
      }
    }
  }
}

TEST_CASE("nhr: its map makes one message a round of an all_reduce for a power of two, nb's order does not") {
  for (const int n : {2, 4, 8, 16, 32}) {
    const score mapped = write_score(c::nhr, flat_setup(collective::all_reduce, n));
    const score plain = write_score(c::nb, flat_setup(collective::all_reduce, n));
    for (rank_t r = 0; r < n; ++r) {
      CHECK(sent(mapped, r).size() == index(2 * ceil_log2(n)));
      CHECK(sent(plain, r).size() >= index(n - 1 + ceil_log2(n)));
    }
  }
  for (const int n : {3, 5, 6, 7, 12, 13, 24, 31}) {
    const score mapped = write_score(c::nhr, flat_setup(collective::all_reduce, n));
    int cells = 0;
    for (const auto& [to, count] : sent(mapped, 0)) cells += count;
    CHECK(cells == 2 * (n - 1));  // every slice once each way, whatever the number of ranks
  }
}

TEST_CASE("hierarchical_hd, _nhr and _nb are right on servers and cards, and cross the network in log2 rounds") {
  std::vector<layout> layouts;
  for (int servers = 2; servers <= 17; ++servers)
    for (int cards = 2; servers * cards <= std::min(34, most_ranks); ++cards)
      layouts.push_back(layout::grid(servers, cards));
  if (most_ranks >= 64) layouts.push_back(layout::grid(8, 8));
  for (const char* text : {"2x2x1x1", "2x4x1x1", "3x2x1x1", "2x2x2x1", "2x4x2x1", "4x2x1x2", "2x2x2x1x2", "2x2x2x2",
                           "3x2x2x1", "2x3x2x1", "5x3x2x1", "2x3x3x1"})
    if (const layout deep = layout::parse(text); deep.size() <= most_ranks)
      layouts.push_back(deep);     // rounds at each level
  std::vector<coordinates> dealt;  // ranks of a server are no neighbours by number
  for (int card = 0; card < 2; ++card)
    for (int server = 0; server < 4; ++server) dealt.push_back({server, card, 0});
  layouts.push_back(layout::placed(dealt));
  int proofs = 0;
  for (const choreography* which : {&c::hierarchical_hd, &c::hierarchical_nhr, &c::hierarchical_nb})
    for (const collective what : which->collectives)
      for (const layout& placement : layouts)
        for (const bool in_place : {false, true})
          for (const bool uniform : {true, false}) {
            setup on = on_layout(what, placement, in_place);
            on.uniform = uniform;
            if ((!uniform && what == collective::all_reduce) || !refusal(*which, on).empty()) continue;
            proofs += prove(*which, on);
          }
  CHECK(proofs > 500);

  for (const choreography* which : {&c::hierarchical_hd, &c::hierarchical_nhr, &c::hierarchical_nb}) {
    const layout placement = layout::grid(8, 2);
    const score s = write_score(*which, on_layout(collective::all_reduce, placement));
    const c::hierarchy where{placement};
    for (rank_t r = 0; r < s.ranks; ++r) {
      int cells = 0, rounds = 0;
      rank_t last = -1;
      for (const auto& [to, count] : sent(s, r)) {
        if (where.server_of(to) == where.server_of(r)) continue;
        CHECK(where.index_of(to) == where.index_of(r));
        cells += count;
        rounds += last != to ? 1 : 0;
        last = to;
      }
      CHECK(cells == 2 * 7);  // of 16 in the block, as the ring of servers
      // The last of the reduction and the first of the gathering may have one peer.
      CHECK(rounds <= 6);
      CHECK(rounds >= 5);
    }
  }
  for (const choreography* which : {&c::hierarchical_hd, &c::hierarchical_nhr, &c::hierarchical_nb})
    CHECK(refusal(*which, flat_setup(collective::all_reduce, 8)).find("two levels") != std::string::npos);
}

TEST_CASE(
    "hierarchical_hd folds the servers away that exceed a power of two: they send all once and receive all once") {
  for (int servers = 3; servers <= 16; ++servers) {
    if ((servers & (servers - 1)) == 0 || servers * 2 > most_ranks) continue;
    CAPTURE(servers);
    const int corners = 1 << (ceil_log2(servers) - 1), surplus = servers - corners;
    const auto crossings = [&](collective what, rank_t of) {
      const layout placement = layout::grid(servers, 2);
      auto all = sent(write_score(c::hierarchical_hd, on_layout(what, placement)), of);
      std::erase_if(all, [&](const auto& each) { return placement.server_of(each.first) == placement.server_of(of); });
      return all;
    };
    for (int server = 0; server < servers; ++server) {
      const bool folded = server < 2 * surplus && server % 2 == 1;
      const rank_t neighbour = 2 * (server ^ 1);
      const auto reduced = crossings(collective::all_reduce, 2 * server);
      const auto scattered = crossings(collective::reduce_scatter, 2 * server);
      const auto gathered = crossings(collective::all_gather, 2 * server);
      if (folded) {
        CHECK(reduced == std::vector<std::pair<rank_t, int>>{{neighbour, servers}});
        CHECK(scattered == std::vector<std::pair<rank_t, int>>{{neighbour, servers}});
        CHECK(gathered == std::vector<std::pair<rank_t, int>>{{neighbour, 1}});
      } else if (server < 2 * surplus) {
        CHECK(reduced.back() == std::pair<rank_t, int>{neighbour, servers});
        CHECK(scattered.back() == std::pair<rank_t, int>{neighbour, 1});
        CHECK(gathered.back() == std::pair<rank_t, int>{neighbour, servers});
        CHECK(reduced.size() == index(2 * ceil_log2(corners) + 1));
      } else {
        CHECK(reduced.size() == index(2 * ceil_log2(corners)));
        CHECK(scattered.size() == index(ceil_log2(corners)));
        CHECK(gathered.size() == index(ceil_log2(corners)));
      }
    }
  }
}

TEST_CASE("chained_double_tree is right on servers of any size, and refuses what others are for") {
  std::vector<layout> layouts;
  for (int servers = 2; servers <= 12; ++servers)
    for (int cards = 2; cards <= 8 && servers * cards <= most_ranks; ++cards)
      layouts.push_back(layout::grid(servers, cards));
  for (const std::vector<int>& cards : {std::vector{4, 3}, {1, 5}, {5, 1}, {2, 7, 3}, {1, 2, 3, 4}, {3, 1, 1, 2, 1}})
    layouts.push_back(layout::ragged(cards));
  if (most_ranks >= 64) layouts.push_back(layout::grid(32, 2));
  std::erase_if(layouts, [](const layout& l) { return l.size() > most_ranks; });
  int proofs = 0;
  for (const layout& placement : layouts)
    for (const bool in_place : {false, true})
      proofs += prove(c::chained_double_tree, on_layout(collective::all_reduce, placement, in_place));
  CHECK(proofs > 100);
  CHECK(refusal(c::chained_double_tree, flat_setup(collective::all_reduce, 8)).find("two servers") !=
        std::string::npos);
  CHECK(refusal(c::chained_double_tree, on_layout(collective::all_reduce, layout::grid(8, 1))).find("double_binary") !=
        std::string::npos);
}

TEST_CASE("chained_double_tree: every tree crosses the network once up and once down a server, and is a chain inside") {
  for (int servers = 2; servers <= 9; ++servers)
    for (const int cards : {2, 3, 4}) {
      CAPTURE(servers);
      CAPTURE(cards);
      const layout placement = layout::grid(servers, cards);
      const score s = write_score(c::chained_double_tree, on_layout(collective::all_reduce, placement));
      const c::hierarchy where{placement};
      for (int t = 0; t < 2; ++t) {
        int up = 0;
        for (rank_t r = 0; r < s.ranks; ++r)
          for (const step& at : s.players[index(r)].lanes[index(t)]) {
            if (!sends(at.kind)) continue;
            if (where.server_of(at.to) == where.server_of(r)) {
              CHECK(where.index_of(at.to) == where.index_of(r) - 1);
              continue;
            }
            ++up;
            CHECK(where.index_of(r) == 0);      // only the head speaks to the parent server …
            CHECK(where.index_of(at.to) <= 1);  // … to its head or, as a first child, to the second of its chain
          }
        CHECK(up == servers - 1);
      }
    }
  // 4 servers: tree 0 is 0–2–{1, 3}, tree 1 its mirror image 3–1–{2, 0}. First children arrive at the second card.
  const score s = write_score(c::chained_double_tree, on_layout(collective::all_reduce, layout::grid(4, 2)));
  std::set<std::pair<rank_t, rank_t>> crossings[2];
  for (std::size_t t = 0; t < 2; ++t)
    for (rank_t r = 0; r < s.ranks; ++r)
      for (const step& at : s.players[index(r)].lanes[t])
        if (sends(at.kind) && at.to / 2 != r / 2) crossings[t].emplace(r, at.to);
  CHECK(crossings[0] == std::set<std::pair<rank_t, rank_t>>{{4, 0}, {2, 5}, {6, 4}});
  CHECK(crossings[1] == std::set<std::pair<rank_t, rank_t>>{{2, 6}, {4, 3}, {0, 2}});
}

TEST_CASE(
    "ring_per_nic and tree_per_nic are right on servers of any size, for all roots, and refuse what others are for") {
  std::vector<layout> layouts;
  for (int servers = 2; servers <= 6; ++servers)
    for (int cards = 2; cards <= 8 && servers * cards <= most_ranks; ++cards)
      layouts.push_back(layout::grid(servers, cards));
  for (const std::vector<int>& cards : {std::vector{4, 3}, {2, 5}, {2, 7, 3}, {2, 2, 3, 4}})
    layouts.push_back(layout::ragged(cards));
  std::erase_if(layouts, [](const layout& l) { return l.size() > most_ranks; });
  int proofs = 0;
  for (const layout& placement : layouts)
    for (const choreography* which : {&c::ring_per_nic, &c::tree_per_nic})
      for (const collective what : which->collectives)
        for (const bool in_place : {false, true})
          for (const int nics : {0, 1, 2}) {
            setup on = on_layout(what, placement, in_place);
            on.nics = nics;
            for (on.root = 0; on.root < (has_root(what) && on.ranks <= 10 ? on.ranks : 1); ++on.root) {
              on.uniform = true;
              proofs += prove(*which, on);
              on.uniform = false;
              if (block_count(what, on.ranks) > 1 && nics == 0) proofs += prove(*which, on);
            }
          }
  CHECK(proofs > 1000);
  for (const choreography* which : {&c::ring_per_nic, &c::tree_per_nic}) {
    CHECK(refusal(*which, flat_setup(collective::all_reduce, 8)).find("two servers") != std::string::npos);
    CHECK(refusal(*which, on_layout(collective::all_reduce, layout::grid(8, 1))).find("single rank") !=
          std::string::npos);
    CHECK(refusal(*which, on_layout(collective::all_reduce, layout::ragged(std::vector{1, 8}))).find("single rank") !=
          std::string::npos);
  }
  CHECK(refusal(c::ring_per_nic, on_layout(collective::all_reduce, layout::grid(128, 8))).empty());
  CHECK(refusal(c::ring_per_nic, on_layout(collective::all_reduce, layout::grid(129, 8))).find("more lanes") !=
        std::string::npos);
}

TEST_CASE("ring_per_nic: each NIC carries what leaves by one ring and what enters by another, as much as any other") {
  for (const auto& [servers, cards] : {std::pair{2, 4}, {3, 8}, {4, 2}}) {
    const layout placement = layout::grid(servers, cards);
    const c::hierarchy where{placement};
    for (const collective what : {collective::all_reduce, collective::all_gather, collective::reduce_scatter}) {
      const score s = write_score(c::ring_per_nic, on_layout(what, placement));
      std::vector<int> leaves(index(s.ranks)), enters(index(s.ranks));
      for (rank_t r = 0; r < s.ranks; ++r)
        for (int ring = 0; ring < cards; ++ring)
          for (const step& at : s.players[index(r)].lanes[index(ring)]) {
            if (!sends(at.kind) || where.server_of(at.to) == where.server_of(r)) continue;
            CHECK(where.server_of(at.to) == (where.server_of(r) + 1) % servers);
            CHECK(where.index_of(at.to) == ring);
            CHECK(where.index_of(r) == (ring + cards - 1) % cards);
            ++leaves[index(r)], ++enters[index(at.to)];
          }
      const int rounds = (what == collective::all_reduce ? 2 : 1) * (s.ranks - 1);
      for (rank_t r = 0; r < s.ranks; ++r) {
        CHECK(leaves[index(r)] == rounds);
        CHECK(enters[index(r)] == rounds);
      }
    }
    // With fewer NICs, the first ones of each server.
    setup few = on_layout(collective::all_gather, placement);
    few.nics = 2;
    CHECK(write_score(c::ring_per_nic, few).players[0].lanes.size() == 2);
  }
}

TEST_CASE(
    "ring_per_nic, tree_per_nic: where neighbours share a NIC, all NICs of all servers carry messages out and in") {
  struct shared_case {
    layout placement;
    int nics;
  };
  for (const shared_case& each : {shared_case{layout::grid(2, 8), 4},
                                  {layout::grid(3, 8), 2},
                                  {layout::grid(4, 6), 3},
                                  {layout::grid(3, 7), 4},
                                  {layout::ragged(std::vector{4, 12}), 4},
                                  {layout::ragged(std::vector{6, 2, 4}), 2}})
    for (const choreography* which : {&c::ring_per_nic, &c::tree_per_nic}) {
      CAPTURE(which->name);
      CAPTURE(each.placement.to_string());
      const c::hierarchy where{each.placement};
      const auto nic_of = [&](rank_t r) {
        const int server = where.server_of(r);
        return std::pair{server, where.index_of(r) * each.nics / where.size_of(server)};
      };
      setup on = on_layout(collective::all_reduce, each.placement);
      on.nics = each.nics;
      const score s = write_score(*which, on);
      std::map<std::pair<int, int>, int> out, in;
      for (rank_t r = 0; r < s.ranks; ++r)
        for (const lane& l : s.players[index(r)].lanes)
          for (const step& at : l)
            if (sends(at.kind) && where.server_of(at.to) != where.server_of(r)) ++out[nic_of(r)], ++in[nic_of(at.to)];
      const auto all = static_cast<std::size_t>(where.servers() * each.nics);
      CHECK(out.size() == all);
      CHECK(in.size() == all);
      if (which != &c::ring_per_nic) continue;
      for (const auto& [nic, messages] : out) CHECK(messages == 2 * (s.ranks - 1));
      for (const auto& [nic, messages] : in) CHECK(messages == 2 * (s.ranks - 1));
    }
}

TEST_CASE("tree_per_nic: pair c is chained_double_tree with chains that begin at rank c of each server") {
  const layout placement = layout::grid(5, 4);
  const score one = write_score(c::chained_double_tree, on_layout(collective::all_reduce, placement));
  const score all = write_score(c::tree_per_nic, on_layout(collective::all_reduce, placement));
  const c::hierarchy where{placement};
  CHECK(all.parts == 2 * 4);
  for (int pair = 0; pair < 4; ++pair) {
    const auto turned = [&](rank_t r) { return where.at(where.server_of(r), where.index_of(r) + pair); };
    for (rank_t r = 0; r < one.ranks; ++r)
      for (std::size_t l = 0; l < 4; ++l) {
        const lane& plain = one.players[index(r)].lanes[l];
        const lane& own = all.players[index(turned(r))].lanes[index(4 * pair) + l];
        REQUIRE(plain.size() == own.size());
        for (std::size_t i = 0; i < plain.size(); ++i) {
          CHECK(plain[i].kind == own[i].kind);
          if (sends(plain[i].kind)) CHECK(own[i].to == turned(plain[i].to));
          if (receives(plain[i].kind)) CHECK(own[i].from == turned(plain[i].from));
        }
      }
  }
}
