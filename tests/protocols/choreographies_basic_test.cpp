// SPDX-License-Identifier: Apache-2.0
// ring, double_binary_tree, binomial, recursive_doubling, halving_doubling: right on every setup, and with
// the steps, messages and order of combining that their sources promise.

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstdint>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/lower/rewriting.hpp"
#include "protocols/verify/verifier.hpp"
#include "tests/protocols/most_ranks.hpp"
#include "tests/seed.hpp"

using namespace troupe;
namespace c = troupe::choreographies;

namespace {

const std::vector<int> rank_counts = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 24, 31, 32, 64};

int floor_log2(int n) { return static_cast<int>(std::bit_width(static_cast<unsigned>(n))) - 1; }
int ceil_log2(int n) { return static_cast<int>(std::bit_width(static_cast<unsigned>(n - 1))); }
bool power_of_two(int n) { return std::has_single_bit(static_cast<unsigned>(n)); }

/// All roots of few ranks; of many the first, the last and a random one.
std::vector<rank_t> roots_of(collective what, int ranks) {
  std::vector<rank_t> roots{0};
  if (!has_root(what)) return roots;
  if (ranks > 17) {
    std::mt19937_64 random{seed() + static_cast<std::uint64_t>(ranks)};
    return {0, std::uniform_int_distribution<rank_t>{1, ranks - 2}(random), ranks - 1};
  }
  for (rank_t r = 1; r < ranks; ++r) roots.push_back(r);
  return roots;
}

std::vector<setup> setups_of(collective what, int ranks) {
  const bool v_form = block_count(what, ranks) == ranks && ranks > 1;
  std::vector<setup> setups;
  for (const rank_t root : roots_of(what, ranks))
    for (const bool in_place : {false, true})
      for (const bool uniform : {true, false})
        if (uniform || v_form) setups.push_back(flat_setup(what, ranks, root, in_place, uniform));
  return setups;
}

std::string describe(const choreography& which, const setup& on) {
  return std::string{which.name} + ' ' + std::string{name(on.what)} + ", " + std::to_string(on.ranks) +
         " ranks, root " + std::to_string(on.root) + (on.in_place ? ", in place" : "") +
         (on.uniform ? "" : ", blocks of different sizes");
}

verdict verified(const choreography& which, const setup& on) {
  const verdict v = verify(write_score(which, on));
  INFO(describe(which, on));
  if (!v.ok()) FAIL_CHECK(to_string(*v.first_fault));
  return v;
}

/// A ring in which everybody has sent needs room for one message more than it has ranks.
bool needs_two_credits(const choreography& which, collective what) {
  const bool goes_round =
      what == collective::all_reduce || what == collective::all_gather || what == collective::reduce_scatter;
  return &which == &c::ring && goes_round;
}

/// Verifies what is performed: whole messages as they are; slices and blocks of different sizes cell by cell, and
/// for a single credit paced.
void check_under_all_limits(const choreography& which, const setup& on, std::size_t& checked) {
  const score whole = write_score(which, on);
  const score cut = one_cell_per_step(whole);
  const score paced = pace_sends(cut, 1);
  for (const int credits : {1, 2, 8})
    for (const int slices : {1, 3}) {
      const bool as_written = slices == 1 && on.uniform && (credits > 1 || !needs_two_credits(which, on.what));
      const verdict v = verify(as_written ? whole : credits == 1 ? paced : cut, {credits, slices});
      ++checked;
      if (v.ok()) continue;
      INFO(describe(which, on), ", ", credits, " credits, ", slices, " slices");
      FAIL_CHECK(to_string(*v.first_fault));
    }
}

void check_everywhere(const choreography& which) {
  std::size_t checked = 0;
  for (const collective what : which.collectives)
    for (const int ranks : rank_counts) {
      if (ranks > most_ranks) break;
      for (const setup& on : setups_of(what, ranks)) check_under_all_limits(which, on, checked);
    }
  MESSAGE(which.name, ": ", checked, " scores verified");
  const auto counts = std::upper_bound(rank_counts.begin(), rank_counts.end(), most_ranks) - rank_counts.begin();
  CHECK(checked >= which.collectives.size() * static_cast<std::size_t>(counts) * 6);
}

std::vector<step_kind> kinds_of(const score& s, rank_t rank) {
  std::vector<step_kind> kinds;
  for (const lane& steps : s.players[static_cast<std::size_t>(rank)].lanes)
    for (const step& at : steps) kinds.push_back(at.kind);
  return kinds;
}

/// The step table's row for one rank: a first step, `count` of the middle kind …
std::vector<step_kind> row(std::initializer_list<std::pair<step_kind, int>> runs) {
  std::vector<step_kind> kinds;
  for (const auto& [kind, count] : runs) kinds.insert(kinds.end(), static_cast<std::size_t>(std::max(count, 0)), kind);
  return kinds;
}

struct traffic {
  int messages = 0;
  int cells = 0;
};
traffic sent_by(const score& s, rank_t rank) {
  traffic total;
  for (const lane& steps : s.players[static_cast<std::size_t>(rank)].lanes)
    for (const step& at : steps)
      if (sends(at.kind)) {
        ++total.messages;
        total.cells +=
            at.kind == step_kind::send || at.kind == step_kind::recv_reduce_send ? at.source.count : at.target.count;
      }
  return total;
}
int most_messages(const score& s) {
  int most = 0;
  for (rank_t r = 0; r < s.ranks; ++r) most = std::max(most, sent_by(s, r).messages);
  return most;
}
/// When the last of those that get something from `rank`, which has it since round `since`, has it, if a rank
/// sends one message a round.
int rounds_below(const score& s, rank_t rank, int since) {
  int last = since;
  for (const step& at : s.players[static_cast<std::size_t>(rank)].lanes[0])
    if (sends(at.kind)) last = std::max(last, rounds_below(s, at.to, ++since));
  return last;
}
std::size_t count(int n) { return static_cast<std::size_t>(n); }

}  // namespace

TEST_CASE("ring is right on every setup") { check_everywhere(c::ring); }
TEST_CASE("double_binary_tree is right on every setup") { check_everywhere(c::double_binary_tree); }
TEST_CASE("binomial is right on every setup") { check_everywhere(c::binomial); }
TEST_CASE("recursive_doubling is right on every setup") { check_everywhere(c::recursive_doubling); }
TEST_CASE("halving_doubling is right on every setup") { check_everywhere(c::halving_doubling); }

TEST_CASE("ring: the step tables of spec 5") {
  using enum step_kind;
  for (const int k : {2, 3, 4, 7, 8, 16}) {
    CAPTURE(k);
    const score all_reduce = write_score(c::ring, flat_setup(collective::all_reduce, k));
    const score all_gather = write_score(c::ring, flat_setup(collective::all_gather, k, 0, true));
    const score reduce_scatter = write_score(c::ring, flat_setup(collective::reduce_scatter, k));
    for (rank_t r = 0; r < k; ++r) {
      CHECK(
          kinds_of(all_reduce, r) ==
          row({{send, 1}, {recv_reduce_send, k - 2}, {recv_reduce_copy_send, 1}, {recv_copy_send, k - 2}, {recv, 1}}));
      CHECK(kinds_of(all_reduce, r).size() == count(2 * k - 1));
      CHECK(kinds_of(all_gather, r) == row({{send, 1}, {recv_copy_send, k - 2}, {recv, 1}}));
      CHECK(kinds_of(reduce_scatter, r) == row({{send, 1}, {recv_reduce_send, k - 2}, {recv_reduce_copy, 1}}));
    }
    for (rank_t root = 0; root < k; ++root) {
      const score broadcast = write_score(c::ring, flat_setup(collective::broadcast, k, root, true));
      const score reduce = write_score(c::ring, flat_setup(collective::reduce, k, root));
      for (int distance = 0; distance < k; ++distance) {
        const auto down = distance == 0 ? send : distance < k - 1 ? recv_copy_send : recv;
        CHECK(kinds_of(broadcast, (root + distance) % k) == row({{down, 1}}));
        const auto up = distance == 0 ? send : distance < k - 1 ? recv_reduce_send : recv_reduce_copy;
        CHECK(kinds_of(reduce, (root + 1 + distance) % k) == row({{up, 1}}));
      }
    }
  }
}

TEST_CASE("ring: every rank sends 2(k-1)/k of a block") {
  for (const int k : {2, 5, 8}) {
    const score s = write_score(c::ring, flat_setup(collective::all_reduce, k));
    CHECK(s.parts == k);
    for (rank_t r = 0; r < k; ++r) CHECK(sent_by(s, r).cells == 2 * (k - 1));
    CHECK(verified(c::ring, flat_setup(collective::all_reduce, k)).messages == count(2 * k * (k - 1)));
  }
}

TEST_CASE("ring: only the chain to the last rank combines in rank order, and it is the left fold") {
  const int n = 7;
  for (rank_t root = 0; root < n; ++root) {
    const verdict v = verified(c::ring, flat_setup(collective::reduce, n, root));
    CHECK(v.rank_ordered == (root == n - 1));
    CHECK(v.left_fold == (root == n - 1));
  }
  CHECK(tree_of(verified(c::ring, flat_setup(collective::reduce, 4, 3)), 3, 0) == "(((0+1)+2)+3)");
  const verdict all = verified(c::ring, flat_setup(collective::all_reduce, n));
  CHECK_FALSE(all.rank_ordered);
  CHECK_FALSE(all.same_tree_everywhere);
}

TEST_CASE("ring: as written it gets stuck with one credit, the chain does not") {
  for (const collective what : c::ring.collectives)
    CHECK(verify(write_score(c::ring, flat_setup(what, 5)), {1, 1}).ok() != needs_two_credits(c::ring, what));
}

TEST_CASE("ring: ranks of a server are neighbours, wherever the layout puts them") {
  for (const collective what : c::ring.collectives) {
    if (what == collective::scan || what == collective::exscan) continue;  // in rank order
    CAPTURE(name(what));
    setup on = flat_setup(what, 6, has_root(what) ? 3 : 0);
    on.placement = layout::parse("0.0.0,1.0.0,2.0.0,0.1.0,1.1.0,2.1.0");  // rank r on server r mod 3
    const score s = write_score(c::ring, on);
    const verdict v = verify(s);
    if (!v.ok()) FAIL_CHECK(to_string(*v.first_fault));
    std::set<std::pair<rank_t, rank_t>> between_servers;
    for (rank_t r = 0; r < s.ranks; ++r)
      for (const step& at : s.players[static_cast<std::size_t>(r)].lanes[0])
        if (sends(at.kind) && on.placement.server_of(r) != on.placement.server_of(at.to))
          between_servers.insert({r, at.to});
    // A circle enters each of three servers once; a chain may be cut at such a border.
    CHECK(between_servers.size() >= 2);
    CHECK(between_servers.size() <= 3);
  }
}

TEST_CASE("double_binary_tree: messages, and no rank works twice as much") {
  for (const int n : {2, 3, 4, 7, 8, 12, 16, 17}) {
    CAPTURE(n);
    const score s = write_score(c::double_binary_tree, flat_setup(collective::all_reduce, n));
    CHECK(verified(c::double_binary_tree, flat_setup(collective::all_reduce, n)).messages == count(4 * (n - 1)));
    for (rank_t r = 0; r < n; ++r)
      CHECK(sent_by(s, r).cells <= 4);  // of half a block: at most twice the block, up and down
    for (const collective what : {collective::broadcast, collective::reduce})
      for (const rank_t root : {0, n / 2, n - 1})
        CHECK(verified(c::double_binary_tree, flat_setup(what, n, root)).messages == count(2 * (n - 1)));
  }
}

TEST_CASE("double_binary_tree: the step table of spec 5") {
  using enum step_kind;
  const int n = 8;
  const score s = write_score(c::double_binary_tree, flat_setup(collective::all_reduce, n));
  for (rank_t r = 0; r < n; ++r)
    for (std::size_t tree = 0; tree < 2; ++tree) {
      const lane& up = s.players[static_cast<std::size_t>(r)].lanes[tree];
      const lane& down = s.players[static_cast<std::size_t>(r)].lanes[2 + tree];
      const bool root = down.front().kind == send, leaf = up.front().kind == send;
      CHECK(up.back().kind == (leaf ? send : root ? recv_reduce_copy : recv_reduce_send));
      CHECK(down.front().kind == (leaf ? recv : root ? send : recv_copy_send));
      // The phases are joined at the root only: elsewhere the next slice may climb while the last one
      // descends.
      for (const step& at : up) CHECK(at.after.lane == -1);
      CHECK((down.front().after.lane >= 0) == root);
    }
}

TEST_CASE("double_binary_tree: an even number of ranks is combined in rank order") {
  for (const int n : {2, 4, 6, 10, 14, 16, 24, 64}) {
    CAPTURE(n);
    CHECK(verified(c::double_binary_tree, flat_setup(collective::all_reduce, n)).rank_ordered);
  }
  CHECK_FALSE(verified(c::double_binary_tree, flat_setup(collective::all_reduce, 7)).rank_ordered);
}

TEST_CASE("binomial: n-1 messages in ceil(log2 n) rounds; a barrier twice that") {
  for (const int n : {2, 3, 5, 8, 13, 16, 17})
    for (const collective what : c::binomial.collectives)
      for (rank_t root = 0; root < n; ++root) {
        if (what == collective::scan || what == collective::exscan) continue;
        CAPTURE(name(what));
        CAPTURE(n);
        CAPTURE(root);
        const setup on = flat_setup(what, n, root);
        const int ways = what == collective::barrier ? 2 : 1;  // up and down again
        if (ways == 2 && root > 0) continue;
        CHECK(verified(c::binomial, on).messages == count(ways * (n - 1)));
        CHECK(most_messages(write_score(c::binomial, on)) <= ways * ceil_log2(n));
        if (what == collective::broadcast) CHECK(rounds_below(write_score(c::binomial, on), root, 0) == ceil_log2(n));
      }
}

TEST_CASE("binomial: reduce combines in rank order for every root") {
  for (const int n : {2, 3, 6, 8, 11, 16, 17})
    for (rank_t root = 0; root < n; ++root) {
      CAPTURE(n);
      CAPTURE(root);
      CHECK(verified(c::binomial, flat_setup(collective::reduce, n, root)).rank_ordered);
    }
  CHECK(tree_of(verified(c::binomial, flat_setup(collective::reduce, 6, 2)), 2, 0) == "(((0+1)+(2+3))+(4+5))");
}

TEST_CASE("recursive_doubling: n log2 n messages, and two for each rank beyond a power of two") {
  for (const int n : rank_counts) {
    if (n == 1) continue;
    CAPTURE(n);
    const int rounds = floor_log2(n), corners = 1 << rounds;
    CHECK(verified(c::recursive_doubling, flat_setup(collective::all_reduce, n)).messages ==
          count(corners * rounds + 2 * (n - corners)));
    CHECK(verified(c::recursive_doubling, flat_setup(collective::barrier, n)).messages == count(n * ceil_log2(n)));
    const score gather = write_score(c::recursive_doubling, flat_setup(collective::all_gather, n, 0, true));
    for (rank_t r = 0; r < n; ++r) {
      CHECK(sent_by(gather, r).cells == n - 1);  // as few as possible
      CHECK(sent_by(gather, r).messages <= ceil_log2(n) * (power_of_two(n) ? 1 : 2));
    }
  }
}

TEST_CASE("recursive_doubling: every rank computes the same tree, in rank order") {
  for (const int n : rank_counts)
    for (const bool in_place : {false, true}) {
      CAPTURE(n);
      const verdict v = verified(c::recursive_doubling, flat_setup(collective::all_reduce, n, 0, in_place));
      CHECK(v.rank_ordered);
      CHECK(v.same_tree_everywhere);
    }
  const verdict v = verified(c::recursive_doubling, flat_setup(collective::all_reduce, 6));
  for (rank_t r = 0; r < 6; ++r) CHECK(tree_of(v, r, 0) == "(((0+1)+(2+3))+(4+5))");
}

TEST_CASE("halving_doubling: log2 n exchanges each way, and as little traffic as the ring") {
  for (const int n : {2, 4, 8, 16, 32}) {
    CAPTURE(n);
    const int rounds = floor_log2(n);
    for (const collective what : {collective::all_reduce, collective::reduce_scatter, collective::all_gather}) {
      CAPTURE(name(what));
      const int ways = what == collective::all_reduce ? 2 : 1;
      const score s = write_score(c::halving_doubling, flat_setup(what, n, 0, true));
      for (rank_t r = 0; r < n; ++r) {
        CHECK(sent_by(s, r).messages == ways * rounds);
        CHECK(sent_by(s, r).cells == ways * (n - 1));  // n parts a block, or n blocks
        CHECK(kinds_of(s, r).size() == count(2 * ways * rounds));
      }
    }
    CHECK(verified(c::halving_doubling, flat_setup(collective::reduce, n, n / 2)).messages ==
          count(n * rounds + n - 1));
  }
}

TEST_CASE("halving_doubling: ranks beyond a power of two take part through a neighbour") {
  for (const int n : {3, 5, 6, 7, 12, 17, 31}) {
    CAPTURE(n);
    const int rounds = floor_log2(n), corners = 1 << rounds, extras = n - corners;
    const auto messages = [&](collective what, rank_t root) {
      return verified(c::halving_doubling, flat_setup(what, n, root)).messages;
    };
    CHECK(messages(collective::all_reduce, 0) == count(2 * corners * rounds + 2 * extras));
    CHECK(messages(collective::reduce_scatter, 0) == count(corners * rounds + 2 * extras));
    CHECK(messages(collective::all_gather, 0) == count(corners * rounds + 2 * extras));
    for (rank_t root = 0; root < n; ++root)  // also of the roots that would be extras for another root
      CHECK(messages(collective::reduce, root) == count(corners * rounds + corners - 1 + extras));
  }
}

TEST_CASE("halving_doubling: all_reduce and reduce combine every part in the same tree, in rank order") {
  for (const int n : rank_counts)
    for (const bool in_place : {false, true}) {
      CAPTURE(n);
      for (const rank_t root : roots_of(collective::reduce, n)) {
        const verdict v = verified(c::halving_doubling, flat_setup(collective::reduce, n, root, in_place));
        CHECK(v.rank_ordered);
        CHECK(v.same_tree_everywhere);
      }
      const verdict v = verified(c::halving_doubling, flat_setup(collective::all_reduce, n, 0, in_place));
      CHECK(v.rank_ordered);
      CHECK(v.same_tree_everywhere);
    }
  CHECK_FALSE(verified(c::halving_doubling, flat_setup(collective::reduce_scatter, 8)).rank_ordered);
}

TEST_CASE("the basic choreographies refuse nothing that they offer") {
  for (const choreography* which :
       {&c::ring, &c::double_binary_tree, &c::binomial, &c::recursive_doubling, &c::halving_doubling}) {
    CHECK(find_choreography(which->name) == which);
    for (const collective what : which->collectives)
      for (const int ranks : rank_counts) CHECK(refusal(*which, flat_setup(what, ranks)) == "");
    CHECK(refusal(*which, flat_setup(collective::all_to_all, 4)) != "");
  }
}

// -- prefixes ---------------------------------------------------------------------------------------------------------

namespace {
/// "((0+1)+2)" for 0, 1, 2.
std::string left_fold_of(int ranks) {
  std::string text = "0";
  for (int r = 1; r < ranks; ++r) text = '(' + text + '+' + std::to_string(r) + ')';
  return text;
}

/// The ranks in a tree, from left to right.
std::vector<int> leaves_of(const std::string& tree) {
  std::vector<int> leaves;
  for (std::size_t i = 0; i < tree.size(); ++i)
    if (std::isdigit(static_cast<unsigned char>(tree[i])) != 0) {
      std::size_t length = 0;
      leaves.push_back(std::stoi(tree.substr(i), &length));
      i += length - 1;
    }
  return leaves;
}

const choreography* const with_prefixes[] = {&c::ring, &c::recursive_doubling, &c::binomial, &c::one_shot};
}  // namespace

TEST_CASE("scan and exscan: every rank ends with the ranks up to it, or below it, in rank order") {
  for (const choreography* which : with_prefixes)
    for (const collective what : {collective::scan, collective::exscan})
      for (int n = 1; n <= 33; ++n)
        for (const bool in_place : {false, true}) {
          const setup on = flat_setup(what, n, 0, in_place);
          INFO(describe(*which, on));
          const verdict v = verified(*which, on);
          CHECK(v.rank_ordered);
          CHECK(v.same_tree_everywhere);
          const bool chain = which == &c::ring || which == &c::one_shot;
          if (chain) CHECK(v.left_fold);
          for (rank_t r = 0; r < n; ++r) {
            const int terms = what == collective::scan ? r + 1 : r;
            const std::string tree = tree_of(v, r, 0);
            if (chain) CHECK(tree == (terms > 0 ? left_fold_of(terms) : "-"));
            std::vector<int> below(static_cast<std::size_t>(terms));
            std::iota(below.begin(), below.end(), 0);
            CHECK(leaves_of(tree) == below);
          }
        }
}

TEST_CASE("scan and exscan: folded in rank order, every prefix is a left fold") {
  for (const choreography* which : with_prefixes)
    for (const collective what : {collective::scan, collective::exscan})
      for (const int n : {1, 2, 3, 6, 8, 13, 16, 33})
        for (const bool in_place : {false, true}) {
          const setup on = flat_setup(what, n, 0, in_place);
          INFO(describe(*which, on));
          const verdict v = verify(fold_in_rank_order(write_score(*which, on)), {2, 3});
          if (!v.ok()) FAIL_CHECK(to_string(*v.first_fault));
          CHECK(v.left_fold);
        }
}

TEST_CASE("scan and exscan: messages and rounds") {
  for (const collective what : {collective::scan, collective::exscan})
    for (int n = 2; n <= 33; ++n) {
      CAPTURE(name(what));
      CAPTURE(n);
      const auto messages = [&](const choreography& which) { return verified(which, flat_setup(what, n)).messages; };
      CHECK(messages(c::ring) == count(n - 1));
      CHECK(messages(c::one_shot) == count(n * (n - 1) / 2));
      int doubling = 0, rounds = 0;
      for (int distance = 1; distance < n; distance *= 2, ++rounds) doubling += n - distance;
      CHECK(messages(c::recursive_doubling) == count(doubling));
      CHECK(most_messages(write_score(c::recursive_doubling, flat_setup(what, n))) <= rounds);
      // Down to every rank but the first; up from all but those whose subtree reaches the last rank.
      int up = 0;
      for (int r = 1; r < n; ++r) up += std::min(r & -r, n - r) + r < n ? 1 : 0;
      CHECK(messages(c::binomial) == count(n - 1 + up));
    }
}

TEST_CASE("exscan: a score that touches rank 0's output, or its input in place, is refused") {
  score s = write_score(c::ring, flat_setup(collective::exscan, 3));
  step writes;
  writes.kind = step_kind::copy;
  writes.source = {buffer_kind::input, self, 0, 1};
  writes.target = {buffer_kind::output, self, 0, 1};
  s.players[0].lanes[0].push_back(writes);
  verdict v = verify(s);
  REQUIRE_FALSE(v.ok());
  CHECK(to_string(*v.first_fault) ==
        "rank 0 lane 0 step 1: the target names 1 cell from output[0] on, which is out of range: there are 0 cells");

  s = write_score(c::binomial, flat_setup(collective::exscan, 3, 0, true));
  writes.kind = step_kind::recv;
  writes.source = {};
  writes.target = {buffer_kind::input, self, 0, 1};
  writes.from = 1;
  s.players[0].lanes[0].push_back(writes);
  v = verify(s);
  REQUIRE_FALSE(v.ok());
  CHECK(v.first_fault->what == "writes input[0], but the rank has no output, so this input must not change");
}

TEST_CASE("scan: a contribution that is missing or does not belong there is named") {
  score s = write_score(c::one_shot, flat_setup(collective::scan, 3));
  s.what = collective::exscan;  // rank 0 now has an output too many
  CHECK_FALSE(verify(s).ok());
  s = write_score(c::one_shot, flat_setup(collective::all_reduce, 3));
  s.what = collective::scan;
  CHECK(to_string(*verify(s).first_fault) ==
        "rank 0: output[0] has the contribution of rank 1, 2 in it, which does not belong there");
  s = write_score(c::one_shot, flat_setup(collective::scan, 3));
  s.what = collective::all_reduce;
  CHECK(to_string(*verify(s).first_fault) == "rank 0: output[0] lacks the contribution of rank 1, 2");
}
