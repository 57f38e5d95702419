// SPDX-License-Identifier: Apache-2.0
// The short look at calls with blocks of different sizes says nothing that the long check does not.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <utility>
#include <vector>

#include "engine/api/calls.hpp"
#include "engine/world/communicator_state.hpp"

using namespace troupe;

namespace {

/// Calls as people write them, and with all that may be wrong with them.
class any_listed_call {
public:
  explicit any_listed_call(std::uint64_t seed) : random_(seed), memory_(4096) {}

  /// Of some rank of some number of ranks.
  struct said {
    plain_v_call call;
    rank_t rank;
    int ranks;
  };

  said next() {
    const int ranks = pick({1, 2, 3, 7});
    const auto n = static_cast<std::size_t>(ranks);
    const rank_t rank = static_cast<rank_t>(random_() % n);
    const auto what = pick({collective::all_gather, collective::reduce_scatter, collective::gather, collective::scatter,
                            collective::all_to_all});
    const bool pairs = what == collective::all_to_all;
    const rank_t root = rarely() ? static_cast<rank_t>(n) : static_cast<rank_t>(random_() % n);
    plain_v_call c{calls::any(what, nullptr, nullptr, 0, datatype::f32, sum, root), list(n), {}, {}, {}};
    if (pairs) c.receive_counts = list(n);
    if (const bool ends = what == collective::gather || what == collective::all_gather; random_() % 3 == 0)
      (ends ? c.output_displacements : c.input_displacements) = displacements(c.counts);
    if (pairs && random_() % 3 == 0) c.output_displacements = displacements(c.receive_counts);
    const std::size_t own =
        c.counts.size() > static_cast<std::size_t>(rank) ? c.counts[static_cast<std::size_t>(rank)] : 0;
    if (has_root(what)) {
      (what == collective::gather ? c.words.input_limit : c.words.output_limit) = rarely() ? own + 1 : own;
      if (root != rank && random_() % 2 == 0) c.counts = {own};
    }
    if (random_() % 4 == 0) c.words.input_limit = random_() % 40;
    if (random_() % 4 == 0 && !has_root(what)) c.words.output_limit = random_() % 40;
    float* const in = memory_.data() + 1024;
    c.words.input = rarely() ? nullptr : in;
    c.words.output = rarely() ? nullptr : place_of_output(c, in, static_cast<std::size_t>(rank));
    return {std::move(c), rank, ranks};
  }

private:
  bool rarely() { return random_() % 16 == 0; }
  template <class T>
  T pick(std::initializer_list<T> from) {
    return *(from.begin() + static_cast<std::ptrdiff_t>(random_() % from.size()));
  }
  std::vector<std::size_t> list(std::size_t n) {
    std::vector<std::size_t> counts(rarely() ? n + 1 : n);
    for (auto& k : counts) k = random_() % 3 == 0 ? 0 : random_() % 20;
    if (rarely()) counts.back() = std::size_t{1} << (40 + random_() % 24);
    return counts;
  }
  std::vector<std::size_t> displacements(std::span<const std::size_t> counts) {
    std::vector<std::size_t> begins;
    std::size_t end = 0;
    for (const std::size_t n : counts) {
      begins.push_back(end + random_() % 4);
      end = begins.back() + n;
    }
    if (rarely()) std::reverse(begins.begin(), begins.end());
    if (rarely()) begins.pop_back();
    if (rarely() && !begins.empty()) begins.back() = 0;
    return begins;
  }
  /// Apart, in place, or anywhere near.
  float* place_of_output(const plain_v_call& c, float* in, std::size_t own) {
    if (random_() % 2 == 0) return in + 1024;
    if (random_() % 2 == 0) return in + static_cast<std::ptrdiff_t>(random_() % 64) - 32;
    const bool ends = c.words.what == collective::gather || c.words.what == collective::all_gather;
    const auto& begins = ends ? c.output_displacements : c.input_displacements;
    std::size_t before = 0;
    if (own < begins.size()) before = begins[own];
    else
      for (std::size_t r = 0; r < std::min(own, c.counts.size()); ++r) before += c.counts[r] % 1024;
    before %= 1024;
    return ends ? in - before : in + before;
  }

  std::mt19937_64 random_;
  std::vector<float> memory_;
};

}  // namespace

TEST_CASE("a call with lists that looks right is what the check makes of it") {
  any_listed_call calls{2026};
  int right = 0, left_to_check = 0, in_place = 0, alone = 0;
  constexpr int tried = 200000;
  for (int k = 0; k < tried; ++k) {
    const auto [said, rank, ranks] = calls.next();
    listed_call looked{said};
    const bool looks_right = look_at_lists(looked, rank, ranks);
    call_description checked = said;
    bool refused = false;
    try {
      check_call(checked, rank, ranks);
    } catch (const error&) {
      refused = true;
    }
    if (!looks_right) {
      left_to_check += refused ? 0 : 1;
      continue;
    }
    ++right;
    REQUIRE_FALSE(refused);
    const listed_call found{checked};
    if (checked.what.uniform) {  // of a rank alone
      REQUIRE(ranks == 1);
      REQUIRE(only_block_of(looked) == checked.what.count);
      REQUIRE(looked.counts[0] == checked.what.count);
      ++alone;
      continue;
    }
    REQUIRE(looked.in_place == found.in_place);
    REQUIRE(std::ranges::equal(looked.counts, found.counts));
    REQUIRE(std::ranges::equal(looked.receive_counts, found.receive_counts));
    REQUIRE(std::ranges::equal(looked.input_displacements, found.input_displacements));
    REQUIRE(std::ranges::equal(looked.output_displacements, found.output_displacements));
    in_place += looked.in_place ? 1 : 0;
  }
  // Most that are right need no check, and the cases are not all of one kind.
  CHECK(right > tried / 4);
  CHECK(in_place > tried / 200);
  CHECK(alone > tried / 200);
  CHECK(left_to_check < right / 5);
  CHECK(right + left_to_check < tried * 9 / 10);
}
