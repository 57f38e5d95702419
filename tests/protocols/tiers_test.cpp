// SPDX-License-Identifier: Apache-2.0
// The three stages of a call in tiers are together the collective: on symbols, from its traits alone.

#include "protocols/tiers.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bitset>
#include <stdexcept>
#include <vector>

using namespace troupe;

namespace {

/// What an element is made of: one bit for each element of each rank's input. Two in one sum must have no bit in common.
using symbol = std::bitset<128>;
constexpr datatype as_wide = datatype::c128;
static_assert(sizeof(symbol) == 16);

constexpr std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

struct buffers {
  const symbol* input = nullptr;
  symbol* output = nullptr;
};

/// What the traits say that a collective does, on the buffers of all its ranks. The root is rank 0.
void perform(const call& what, const std::vector<buffers>& of) {
  const int n = static_cast<int>(of.size());
  std::vector<std::vector<symbol>> given;  // before anything is written, since it may be in place
  for (rank_t r = 0; r < n; ++r) {
    const std::size_t elements = index(input_blocks(what.what, n, 0, r).count) * what.count;
    given.emplace_back(of[index(r)].input, of[index(r)].input + elements);
  }
  const auto place_of = [&](rank_t r, std::int64_t block) {
    const block_run run = input_blocks(what.what, n, 0, r);
    return index((block - run.first) / run.stride) * what.count;
  };
  for (rank_t r = 0; r < n; ++r) {
    const block_run run = output_blocks(what.what, n, 0, r);
    for (int i = 0; i < run.count; ++i) {
      const std::int64_t block = run.first + std::int64_t{i} * run.stride;
      const rank_range from = contributors(what.what, n, 0, r, block);
      for (std::size_t e = 0; e < what.count; ++e) {
        symbol sum;
        for (rank_t q = from.first; q < from.first + from.count; ++q) {
          const symbol& one = given[index(q)][place_of(q, block) + e];
          CHECK((sum & one).none());
          sum |= one;
        }
        of[index(r)].output[index(i) * what.count + e] = sum;
      }
    }
  }
}

/// All ranks' memory of a call.
struct job {
  job(const call& what, int hosts, int of_host) : whole(what), hosts_(hosts), of_host_(of_host) {
    const int n = hosts * of_host;
    const tier_memory beside = memory_of_tiers(what, hosts, of_host);
    std::size_t next = 0;
    for (rank_t r = 0; r < n; ++r) {
      const std::size_t in = elements(input_blocks(what.what, n, 0, r)),
                        out = elements(output_blocks(what.what, n, 0, r));
      outputs.emplace_back(std::max(in, out));
      inputs.emplace_back(in);
      collected.emplace_back(r % of_host == 0 ? beside.collected : 0);
      share.emplace_back(r % of_host == 0 ? beside.share : 0);
      symbol* const from = what.in_place ? own_in_place(r, in, out) : inputs.back().data();
      for (std::size_t e = 0; e < in; ++e) from[e].set(next++);
      room.push_back({from, outputs.back().data(), collected.back().data(), share.back().data()});
    }
    REQUIRE(next <= symbol{}.size());
  }

  void perform_whole() {
    std::vector<buffers> all;
    for (const tier_room& r : room) all.push_back(of({r.input, r.output}));
    perform(whole, all);
  }
  void perform_tier(tier which) {
    const auto run = [&](rank_t first, int stride, int count) {
      std::vector<buffers> some;
      for (int i = 0; i < count; ++i) {
        const rank_t r = first + i * stride;
        some.push_back(of(buffers_of_tier(whole, which, of_host_, r, room[index(r)])));
      }
      perform(call_of_tier(whole, which, hosts_, of_host_), some);
    };
    if (which == tier::across) return run(0, of_host_, hosts_);
    for (int host = 0; host < hosts_; ++host) run(host * of_host_, 1, of_host_);
  }

  call whole;
  std::vector<std::vector<symbol>> inputs, outputs, collected, share;  ///< a vector that moves keeps its elements
  std::vector<tier_room> room;

private:
  static buffers of(const tier_buffers& b) {
    return {static_cast<const symbol*>(b.input), static_cast<symbol*>(b.output)};
  }
  std::size_t elements(const block_run& run) const { return index(run.count) * whole.count; }
  symbol* own_in_place(rank_t r, std::size_t in, std::size_t out) {
    return outputs.back().data() + (in < out ? index(r) * in : 0);
  }
  int hosts_, of_host_;
};

}  // namespace

TEST_CASE("tiers: the three stages are together the collective, for every number of hosts and ranks") {
  int proved = 0;
  for (const collective what : all_collectives) {
    call whole;
    whole.what = what;
    whole.type = as_wide;
    if (!why_no_tiers(whole).empty()) continue;
    for (int hosts = 1; hosts <= 4; ++hosts)
      for (int of_host = 1; hosts * of_host <= 8; ++of_host)
        for (const bool in_place : {false, true}) {
          // The smaller buffer of a reduce_scatter in place is its output, which is not where this test has it.
          if (in_place && (!agrees_on_place(what, true) || what == collective::reduce_scatter)) continue;
          INFO(name(what), ", ", hosts, " hosts of ", of_host, in_place ? ", in place" : "");
          whole.count = moves_data(what) ? 2 : 0;
          whole.in_place = in_place;
          job as_one(whole, hosts, of_host), in_tiers(whole, hosts, of_host);
          as_one.perform_whole();
          for (const tier which : {tier::collect, tier::across, tier::spread}) in_tiers.perform_tier(which);
          for (rank_t r = 0; r < hosts * of_host; ++r) {
            const std::size_t out = index(output_blocks(what, hosts * of_host, 0, r).count) * whole.count;
            const auto &expected = as_one.outputs[index(r)], &found = in_tiers.outputs[index(r)];
            CHECK(std::equal(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(out), found.begin()));
          }
          ++proved;
        }
  }
  CHECK(proved >= 4 * 8);
}

TEST_CASE("tiers: between hosts a call is in place only where the first rank reads what it writes") {
  for (const collective what : all_collectives) {
    call whole;
    whole.what = what;
    whole.type = datatype::u8;
    whole.count = 1;
    if (!why_no_tiers(whole).empty()) continue;
    INFO(name(what));
    const tier_memory beside = memory_of_tiers(whole, 2, 2);
    std::vector<std::byte> in(4), out(4), collected(beside.collected), share(beside.share);
    const tier_room room{in.data(), out.data(), collected.data(), share.data()};
    const tier_buffers at = buffers_of_tier(whole, tier::across, 2, 0, room);
    CHECK(call_of_tier(whole, tier::across, 2, 2).in_place == (at.output != nullptr && at.input == at.output));
    CHECK_FALSE(call_of_tier(whole, tier::collect, 2, 2).in_place);
    CHECK_FALSE(call_of_tier(whole, tier::spread, 2, 2).in_place);
  }
}

TEST_CASE("tiers: what has none says which collectives have") {
  call whole;
  whole.what = collective::broadcast;
  CHECK(why_no_tiers(whole) == "only all_reduce, all_gather, reduce_scatter and barrier are performed in tiers");
  CHECK_THROWS_AS(static_cast<void>(stage_of(collective::scan, tier::across)), std::logic_error);
}
