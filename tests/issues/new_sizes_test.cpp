// SPDX-License-Identifier: Apache-2.0
// A size that had not been seen before cost a plan's look-up, a program and their memory: 3 to 19 KiB each. Counts of v-forms cost a
// plan each. Now sizes and counts are parameters: whatever they are, the heap stays as it is, and results are right.

#include <doctest/doctest.h>

#include <troupe.hpp>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "tests/issues/heap_use.hpp"

namespace new_sizes_test {

using namespace troupe;

namespace {

/// Programs for operations that happen to be under way at once are kept, but not one a size.
constexpr std::ptrdiff_t flat = 16 * 1024;
constexpr int ranks = 3, sizes = 300;

call_options over(const std::string& protocol) {
  call_options o;
  o.protocol = *parse_message_protocol(protocol);
  return o;
}

/// 1025 … 2048, in an order without neighbours: four classes.
std::size_t size_of_call(int i) { return 1025 + static_cast<std::size_t>(i) * 389 % 1024; }

}  // namespace

TEST_CASE("sizes that were not seen before leave nothing behind, on any port") {
  for (const std::string protocol : {"ll128", "direct", "simple"}) {
    CAPTURE(protocol);
    engine e;
    auto comms = e.communicators(ranks);
    std::vector<std::vector<float>> data(ranks, std::vector<float>(2048));
    int call = 0, wrong = 0;
    const auto grown = issues::growth(sizes, [&] {
      const std::size_t count = size_of_call(call++);
      group all;
      for (int r = 0; r < ranks; ++r) {
        auto& mine = data[static_cast<std::size_t>(r)];
        std::fill(mine.begin(), mine.end(), static_cast<float>(r + 1));
        comms[static_cast<std::size_t>(r)].join(
            all, calls::all_reduce(mine.data(), mine.data(), count, datatype::f32, sum, over(protocol)));
      }
      all.wait();
      for (int r = 0; r < ranks; ++r) {
        const auto& mine = data[static_cast<std::size_t>(r)];
        const auto end = mine.begin() + static_cast<std::ptrdiff_t>(count);
        wrong += !std::all_of(mine.begin(), end, [](float x) { return x == 6; });
        wrong += !std::all_of(end, mine.end(), [&](float x) { return x == static_cast<float>(r + 1); });
      }
    });
    CHECK(wrong == 0);
    CHECK(grown < flat);
  }
}

TEST_CASE("blocks whose sizes differ in every call leave nothing behind, on any port") {
  for (const std::string protocol : {"auto", "direct", "simple"})
    for (const bool everybody : {false, true}) {
      CAPTURE(protocol);
      CAPTURE(everybody);
      engine e;
      auto comms = e.communicators(ranks);
      std::vector<std::vector<float>> in(ranks, std::vector<float>(6200)), out = in;
      int call = 0, wrong = 0;
      const auto grown = issues::growth(sizes, [&] {
        ++call;
        const auto block = [&](int from, int to) { return size_of_call(call * 7 + from * 3 + (everybody ? to : 0)); };
        group all;
        for (int r = 0; r < ranks; ++r) {
          const auto me = static_cast<std::size_t>(r);
          std::fill(in[me].begin(), in[me].end(), static_cast<float>(r + 1));
          std::fill(out[me].begin(), out[me].end(), -1.0f);
          block_list sent, received;
          for (int q = 0; q < ranks; ++q) sent.counts.push_back(block(everybody ? r : q, q));
          for (int q = 0; q < ranks; ++q) received.counts.push_back(block(q, r));
          comms[me].join(
              all, everybody ? calls::all_to_all_v(in[me].data(), sent, out[me].data(), received, datatype::f32,
                                                   over(protocol))
                             : calls::all_gather_v(in[me].data(), out[me].data(), sent, datatype::f32, over(protocol)));
        }
        all.wait();
        for (int r = 0; r < ranks; ++r) {
          auto at = out[static_cast<std::size_t>(r)].begin();
          for (int q = 0; q < ranks; ++q)
            for (std::size_t k = 0; k < block(q, r); ++k) wrong += *at++ != static_cast<float>(q + 1);
          wrong += *at != -1;
        }
      });
      CHECK(wrong == 0);
      CHECK(grown < flat);
    }
}

// A rank wrote for ever, with its turn held: room was made for the largest block only where that had been when the program was first used.
TEST_CASE("the largest block may be another rank's in every call") {
  for (const std::string protocol : {"ll", "ll128", "auto"})
    for (const std::size_t largest : {40u, 300u, 3000u}) {
      CAPTURE(protocol);
      CAPTURE(largest);
      const auto everywhere = [&](auto&& call_one) {
        engine e;
        e.run(ranks, [&](communicator& c) {
          for (int call = 0; call < 4 * ranks; ++call) {
            block_list blocks{std::vector<std::size_t>(ranks, 1)};
            blocks.counts[static_cast<std::size_t>(call % ranks)] = largest;
            const std::size_t mine = blocks.counts[static_cast<std::size_t>(c.rank())];
            call_one(c, call, blocks, std::vector<int>(mine, c.rank() + call),
                     std::vector<int>(largest + ranks - 1, c.rank() + call));
          }
        });
      };
      everywhere([&](communicator& c, int call, const block_list& blocks, std::vector<int> mine, std::vector<int> all) {
        c.reduce_scatter_v(all, mine, blocks, sum, over(protocol));
        REQUIRE(mine == std::vector<int>(mine.size(), 3 + 3 * call));
      });
      everywhere([&](communicator& c, int call, const block_list& blocks, std::vector<int> mine, std::vector<int> all) {
        c.all_gather_v(mine, all, blocks, over(protocol));
        REQUIRE(std::accumulate(all.begin(), all.end(), 0) ==
                (call + call % ranks) * static_cast<int>(largest - 1) + 3 + 3 * call);
      });
    }
}

}  // namespace new_sizes_test
