// A program outside the tree: four ranks sum their numbers.
#include <troupe.hpp>

#include "memory/types/types.hpp"  // the layers' headers resolve too

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
  });
  std::printf("%d of 4 ranks have a wrong sum\n", wrong.load());
  return wrong == 0 ? 0 : 1;
}
