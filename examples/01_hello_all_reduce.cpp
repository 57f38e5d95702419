// SPDX-License-Identifier: Apache-2.0
// Four ranks, one thread each, add up what they have: the smallest whole program.
//
// A rank is one participant; here each is a thread. A communicator is a rank's membership in the group. A collective is
// an operation that every rank of the group calls: all_reduce combines everybody's data and gives everybody the result.

#include <cstdio>
#include <span>
#include <vector>

#include <troupe.hpp>

int main() {
  constexpr int ranks = 4;
  std::vector<std::vector<float>> seen(ranks);  // one slot a rank, so that the threads need no lock

  troupe::engine engine;
  engine.run(ranks, [&](troupe::communicator& comm) {
    // Rank r brings {r + 1, 10 (r + 1)}.
    const auto mine = static_cast<float>(comm.rank() + 1);
    std::vector<float> data{mine, 10 * mine};

    comm.all_reduce(data, troupe::sum);  // in place: `data` now holds the sum of all ranks' data

    seen[static_cast<std::size_t>(comm.rank())] = data;
  });

  // The threads have ended: print in the order of the ranks.
  for (int r = 0; r < ranks; ++r) {
    const std::span<const float> data{seen[static_cast<std::size_t>(r)]};
    std::printf("rank %d of %d: sum = {%g, %g}\n", r, ranks, data[0], data[1]);
  }
}
