// SPDX-License-Identifier: Apache-2.0
// Faults of small and direct operations that were found by reading, one test each.

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include <troupe.hpp>

using namespace troupe;

TEST_CASE(
    "a user's function that throws no std::exception fails the operation on every rank, and the next one succeeds") {
  static std::atomic<bool> failing;
  const op odd = user_op([](const void* left, const void* right, void* out, std::size_t count, datatype, void*) {
    if (failing) throw 42;
    for (std::size_t i = 0; i < count; ++i)
      static_cast<float*>(out)[i] = static_cast<const float*>(left)[i] + static_cast<const float*>(right)[i];
  });
  for (const char* protocol : {"simple", "ll128", "direct"})
    for (const int form : {0, 1, 2})
      for (const std::size_t count : {4U, 100'000U}) {
        CAPTURE(protocol);
        CAPTURE(form);
        CAPTURE(count);
        engine_options o;
        o.protocol = protocol;
        engine e{o};
        std::atomic<int> failed{0}, wrong{0};
        e.run(3, [&](communicator& c) {
          std::vector<float> data(count, 1);
          const auto once = [&] {
            if (form == 0) return c.all_reduce(data, odd);
            if (form == 1) return c.all_reduce_async(data, odd).wait();
            group together;
            c.all_reduce_async(together, data, odd);
            together.wait();
          };
          failing = true;
          try {
            once();
          } catch (const error& why) {
            failed += why.code_value() == errc::aborted;
          }
          c.barrier();
          failing = false;
          std::fill(data.begin(), data.end(), 1.0f);
          c.barrier();
          once();
          wrong += data != std::vector<float>(count, 3);
          c.barrier();
        });
        CHECK(failed == 3);
        CHECK(wrong == 0);
      }
}

TEST_CASE("a request of a group is asked about by one thread while another launches it") {
  engine e;
  for (int round = 0; round < 200; ++round) {
    auto comms = e.communicators(2);
    std::array<int, 2> a{1, 1}, b{1, 1};
    group together;
    request first = comms[0].all_reduce_async(together, a), second = comms[1].all_reduce_async(together, b);
    std::thread other([mine = second]() mutable {
      while (!mine.test()) std::this_thread::yield();
    });
    together.wait();
    other.join();
    CHECK(a == std::array{2, 2});
    CHECK(b == a);
  }
}
