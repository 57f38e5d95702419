// SPDX-License-Identifier: Apache-2.0
// Partitioned operations of ranks that share their memory: repetitions one after the other allocate nothing, and
// an operation that is dropped leaves nothing behind.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "engine/api/troupe.hpp"
#include "tests/issues/heap_use.hpp"

using namespace troupe;

namespace {

constexpr int parts = 6;

/// The fewest allocations of all ranks together in one repetition of both, of many. Some other thread's may fall into one of them, not into all.
std::size_t least_allocations(int ranks) {
  std::atomic<std::size_t> least{~std::size_t{0}};
  engine e;
  e.run(ranks, [&](communicator& c) {
    const auto n = static_cast<std::size_t>(ranks);
    std::vector<float> in(600, 1.0F), all(600 * n), sums(600);
    partitioned gather = c.all_gather_init(in, all, partitions(parts));
    partitioned reduce = c.all_reduce_init(in, sums, sum, partitions(parts));
    for (int round = 0; round < 400; ++round) {
      c.barrier();
      const std::size_t before = issues::allocations();
      gather.start();
      for (int p = 0; p < parts; ++p) gather.ready(p);
      while (gather.next_arrived()) {}
      gather.wait();
      reduce.start();
      for (int p = parts; p-- > 0;) reduce.ready(p);
      reduce.wait();
      c.barrier();
      const std::size_t made = issues::allocations() - before;
      if (round == 0) continue;
      std::size_t known = least.load();
      while (made < known && !least.compare_exchange_weak(known, made)) {}
    }
    CHECK(std::ranges::all_of(sums, [&](float x) { return x == static_cast<float>(ranks); }));
  });
  return least.load();
}

}  // namespace

TEST_CASE("a partitioned operation that is started again allocates nothing") {
  CHECK(least_allocations(2) == 0);
  CHECK(least_allocations(4) == 0);
}

// Each kept its scratch and what performs it for ever: the performer owned the board of pieces that owns the performer.
TEST_CASE("partitioned operations that are made anew, performed or cancelled, leave nothing behind") {
  engine e;
  auto comms = e.communicators(2);
  std::vector<float> a(5000, 1.0F), b(5000, 2.0F);
  for (const bool completes : {true, false}) {
    CAPTURE(completes);
    const auto grown = issues::growth(200, [&] {
      partitioned first = comms[0].all_reduce_init(a, maximum, partitions(2));
      partitioned second = comms[1].all_reduce_init(b, maximum, partitions(2));
      first.start();
      second.start();
      for (partitioned* one : {&first, &second})
        for (int p = 0; p < (completes ? 2 : 1); ++p) one->ready(p);
      if (!completes) first.cancel();
      static_cast<void>(first.try_wait());
      static_cast<void>(second.try_wait());
    });
    CHECK(grown < 200 * 40);
  }
}
