// SPDX-License-Identifier: Apache-2.0
// The table of traits: what one row says in two ways must agree.

#include "protocols/collective.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

using namespace troupe;

namespace {

std::vector<std::int64_t> blocks_of(const block_run& run) {
  std::vector<std::int64_t> list;
  for (int i = 0; i < run.count; ++i) list.push_back(run.first + std::int64_t{i} * run.stride);
  return list;
}

/// A block that the rank has at the end, and whose contributions it cannot all have made itself.
int blocks_to_receive(collective what, int n, rank_t root, rank_t r) {
  int blocks = 0;
  for (const std::int64_t b : blocks_of(output_blocks(what, n, root, r)))
    blocks += contributors(what, n, root, r, b) == rank_range{r, 1} ? 0 : 1;
  return blocks;
}

/// Blocks to which the rank contributes at another rank's end.
int blocks_to_send(collective what, int n, rank_t root, rank_t r) {
  std::set<std::int64_t> wanted;
  for (rank_t q = 0; q < n; ++q)
    for (const std::int64_t b : blocks_of(output_blocks(what, n, root, q)))
      if (q != r && contributors(what, n, root, q, b).contains(r)) wanted.insert(b);
  return static_cast<int>(wanted.size());
}

int count_of(least_traffic kind, const block_run& buffer) {
  return kind == least_traffic::nothing ? 0 : kind == least_traffic::block ? 1 : buffer.count - 1;
}

template <class Function>
void for_every_place(Function f) {
  for (const collective what : all_collectives)
    for (int n = 1; n <= 6; ++n)
      for (rank_t root = 0; root < (has_root(what) ? n : 1); ++root)
        for (rank_t r = 0; r < n; ++r) {
          INFO(name(what), ", ", n, " ranks, root ", root, ", rank ", r);
          f(what, n, root, r);
        }
}

}  // namespace

TEST_CASE("collectives: names are unique, and parsed back") {
  std::set<std::string_view> names;
  for (const collective what : all_collectives) {
    CHECK(names.insert(name(what)).second);
    CHECK(parse_collective(name(what)) == what);
  }
  CHECK(names.size() == static_cast<std::size_t>(collective_count));
  CHECK_FALSE(parse_collective("all_reduce_v"));
}

TEST_CASE("collectives: every block that a rank ends with is contributed to by ranks that begin with it") {
  for_every_place([](collective what, int n, rank_t root, rank_t r) {
    for (const std::int64_t b : blocks_of(output_blocks(what, n, root, r))) {
      CHECK(b < block_count(what, n));
      const rank_range from = contributors(what, n, root, r, b);
      CHECK(from.count > 0);
      if (!is_reduction(what)) CHECK(from.count == 1);
      if (is_reduction(what)) CHECK(from.count == contributor_count(what, n, root, r));
      for (rank_t q = from.first; q < from.first + from.count; ++q) {
        const auto has = blocks_of(input_blocks(what, n, root, q));
        CHECK(std::find(has.begin(), has.end(), b) != has.end());
      }
    }
    for (const std::int64_t b : blocks_of(input_blocks(what, n, root, r))) CHECK(b < block_count(what, n));
  });
}

TEST_CASE("collectives: traffic is what follows from who contributes to what") {
  for_every_place([](collective what, int n, rank_t root, rank_t r) {
    if (n == 1) return;
    const collective_traits& t = traits_of(what);
    CHECK(count_of(t.sent(n, root, r), t.input(n, root, r)) == blocks_to_send(what, n, root, r));
    CHECK(count_of(t.received(n, root, r), t.output(n, root, r)) == blocks_to_receive(what, n, root, r));
  });
}

TEST_CASE("collectives: data tell all where everybody's result takes everybody's contribution") {
  for (const collective what : all_collectives) {
    CAPTURE(name(what));
    bool all = true;
    for (rank_t r = 0; r < 4; ++r) {
      std::set<rank_t> heard;
      for (const std::int64_t b : blocks_of(output_blocks(what, 4, 1, r))) {
        const rank_range from = contributors(what, 4, 1, r, b);
        for (rank_t q = from.first; q < from.first + from.count; ++q) heard.insert(q);
      }
      all = all && heard.size() == 4;
    }
    CHECK(traits_of(what).data_tell_all == (all || traits_of(what).synchronizes));
  }
}

TEST_CASE("collectives: the footprint is that of all buffers, a broadcast's root having one") {
  for (const collective what : all_collectives) {
    CAPTURE(name(what));
    for (int n = 1; n <= 5; ++n) {
      int blocks = 0;
      for (rank_t r = 0; r < n; ++r) blocks += input_blocks(what, n, 0, r).count + output_blocks(what, n, 0, r).count;
      CHECK(traits_of(what).footprint(n) == blocks - (what == collective::broadcast ? 1 : 0));
    }
  }
}

TEST_CASE("collectives: what is in place, and who has only one buffer") {
  CHECK(shares_buffers(collective::exscan, 3, 0, 1));
  CHECK_FALSE(shares_buffers(collective::exscan, 3, 0, 0));
  CHECK(shares_buffers(collective::scan, 3, 0, 0));
  CHECK(shares_buffers(collective::reduce, 3, 2, 2));
  CHECK_FALSE(shares_buffers(collective::reduce, 3, 2, 0));
  CHECK(agrees_on_place(collective::all_to_all, true));
  CHECK_FALSE(agrees_on_place(collective::all_to_all, false));
  CHECK(reads_what_it_writes(collective::all_to_all, false));
  CHECK(reads_what_it_writes(collective::reduce, true));
  CHECK_FALSE(reads_what_it_writes(collective::gather, true));
  CHECK_FALSE(reads_what_it_writes(collective::scan, true));
  CHECK_FALSE(reads_what_it_writes(collective::barrier, true));
}
