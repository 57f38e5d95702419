// SPDX-License-Identifier: Apache-2.0
// Operations that do not block, what happens when they are done, and one thread that drives all ranks.

#include <array>
#include <cstdio>
#include <latch>
#include <numeric>
#include <vector>

#include <troupe.hpp>

constexpr int ranks = 8;

/// A thread per rank. Two operations are under way at once while the rank computes; the buffers must live, and be left
/// alone, until their request is done.
void overlap(troupe::engine& engine, std::latch& called_back) {
  std::array<long, ranks> result{};
  engine.run(ranks, [&](troupe::communicator& comm) {
    std::vector<int> values(1000, comm.rank());
    std::vector<int> everyone(ranks);
    const std::array<int, 1> square{comm.rank() * comm.rank()};

    troupe::request sum = comm.all_reduce_async(values, troupe::sum);
    troupe::request squares = comm.all_gather_async(square, everyone);
    sum.then([&](std::error_code failed) {  // on whichever thread completes it, perhaps after wait() returned: be short
      if (!failed) called_back.count_down();
    });

    long own_work = 0;
    for (int i = 0; i <= 100; ++i) own_work += i;  // meanwhile

    sum.wait();  // performs what is ready on this thread until it is done
    squares.wait();
    result[static_cast<std::size_t>(comm.rank())] =
        own_work + values[999] + std::accumulate(everyone.begin(), everyone.end(), 0);
  });
  // 5050 of its own + (0 + … + 7) + (0² + … + 7²), the same at every rank.
  for (const long r : result)
    if (r != 5050 + 28 + 140) std::printf("wrong: %ld\n", r);
  called_back.wait();
  std::printf("%d ranks in threads of their own: own work + sum + squares = %ld; all have been called back\n", ranks,
              result[0]);
}

/// One thread, eight ranks. Each rank's operation waits for the others', so the first blocking call would wait forever:
/// a group launches them together.
void one_thread(troupe::engine& engine) {
  std::vector<troupe::communicator> comms = engine.communicators(ranks);
  std::array<std::array<double, 2>, ranks> in{}, out{};
  int done = 0;

  troupe::group group;
  for (auto& comm : comms) {
    const auto r = static_cast<std::size_t>(comm.rank());
    in[r] = {static_cast<double>(r), 1.0};
    comm.all_reduce_async(group, in[r], out[r], troupe::maximum);
    comm.barrier_async(group);  // a group may hold several operations of a rank, in the order of its calls
  }
  group.wait();  // launches, performs, and throws the first failure

  for (const auto& o : out) done += o == std::array<double, 2>{7.0, 1.0};
  std::printf("one thread for %d ranks: %d of them have max = {%g, %g}\n", ranks, done, out[0][0], out[0][1]);
}

int main() {
  std::latch called_back{ranks};  // outlives the engine, and so every callback
  troupe::engine engine;
  overlap(engine, called_back);
  one_thread(engine);
}
