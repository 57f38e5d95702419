// SPDX-License-Identifier: Apache-2.0
// The same collectives between processes: start it four times, and the ranks find each other.
//
//   troupe launch -n 4 build/release/examples/08_many_processes
//   mpirun -n 4 build/release/examples/08_many_processes          (or srun, torchrun: docs/hosts.md)
//
// A process that is killed is an error on all others, not a hang: see the end.

#include <cstdio>
#include <exception>
#include <numeric>
#include <vector>

#include <troupe.hpp>

int main() {
  try {
    troupe::engine engine;
    troupe::communicator world = engine.join();  // one rank in this process

    // Everybody's part of a table, in everybody's memory.
    const std::vector<int> mine(2, world.rank() * world.rank());
    std::vector<int> table(2 * static_cast<std::size_t>(world.size()));
    world.all_gather(mine, table);

    // The mean of what each has.
    std::vector<float> gradient(1000, static_cast<float>(world.rank()));
    world.all_reduce(gradient, troupe::average);

    // Even and odd ranks among themselves.
    troupe::communicator part = world.split(world.rank() % 2, world.rank());
    int sum = world.rank();
    part.all_reduce(sum, troupe::sum);

    std::vector<int> sums(static_cast<std::size_t>(world.size()));
    world.gather(sum, sums, 0);
    if (world.rank() == 0) {
      std::printf("%d processes\ntable:", world.size());
      for (const int n : table) std::printf(" %d", n);
      std::printf("\nmean: %g\nsums of the parts:", gradient[999]);
      for (const int n : sums) std::printf(" %d", n);
      std::printf("\n");
    }
  } catch (const std::exception& e) {  // errc::peer_lost names the rank, the process, its host, and how it was noticed
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
