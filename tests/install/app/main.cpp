// SPDX-License-Identifier: Apache-2.0
// A program outside the tree: four ranks sum their numbers, and an error is caught as what it is.
#include <troupe.hpp>

#include <array>
#include <atomic>
#include <cstdio>
#include <span>

int main() {
  std::atomic<int> wrong = 0;
  troupe::engine engine;
  engine.run(4, [&](troupe::communicator& comm) {
    std::array<float, 3> values{1.0F, 2.0F, static_cast<float>(comm.rank())};
    comm.all_reduce(std::span(values), troupe::sum);
    if (values != std::array{4.0F, 8.0F, 6.0F}) ++wrong;
    try {
      comm.broadcast(values, 4);
      ++wrong;
    } catch (const troupe::error& refused) {
      if (refused.code() != troupe::errc::bad_root) ++wrong;
    }
  });
  std::printf("%d things went wrong\n", wrong.load());
  return wrong == 0 ? 0 : 1;
}
