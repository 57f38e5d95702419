// SPDX-License-Identifier: Apache-2.0
// Small collectives, which their callers perform over slots: every form meets every other, in turn with operations that go
// through the actors, and what goes wrong is told as for any other.

#include <doctest/doctest.h>

#include <atomic>
#include <future>
#include <random>
#include <thread>

#include "tests/engine/jobs.hpp"
#include "tests/engine/small_operations.hpp"

using namespace engine_tests;
using namespace std::chrono_literals;

TEST_CASE("blocking, asynchronous and grouped forms, small and large operations, mixed as each rank likes") {
  for (const char* protocol : {"auto", "ll", "ll128"})
    for (const int workers : {-1, 0})
      for (const int ranks : {2, 3, 5}) {
        CAPTURE(protocol);
        CAPTURE(workers);
        CAPTURE(ranks);
        troupe::engine engine(over(protocol, workers));
        std::atomic<int> wrong{0};
        engine.run(ranks, [&](communicator& c) {
          std::mt19937 mine(static_cast<unsigned>(c.rank()) * 7919u + 1), common(42);
          std::vector<std::vector<std::int32_t>> data;
          std::vector<troupe::request> requests;
          std::vector<std::int32_t> expected;
          for (int i = 0; i < 400; ++i) {
            const std::size_t count = common() % 4 == 0 ? 40000 : 1 + common() % 60;
            const auto value = static_cast<std::int32_t>(common() % 1000);
            auto& one = data.emplace_back(count, value + c.rank());
            expected.push_back(value * ranks + ranks * (ranks - 1) / 2);
            switch (mine() % 4) {
              case 0: requests.push_back(c.all_reduce_async(one)); break;
              case 1: {
                troupe::group g;
                c.all_reduce_async(g, one);
                g.wait();
                break;
              }
              default: c.all_reduce(one);
            }
            if (mine() % 50 == 0) {
              for (auto& r : requests) r.wait();
              requests.clear();
            }
            if (mine() % 100 == 0)
              std::this_thread::sleep_for(7ms);  // long enough for the others to tell the membership
          }
          for (auto& r : requests) r.wait();
          for (std::size_t i = 0; i < data.size(); ++i)
            wrong += data[i] != std::vector<std::int32_t>(data[i].size(), expected[i]);
        });
        CHECK(wrong == 0);
      }
}

TEST_CASE("a rank that comes late to a small operation finds that it has failed") {
  troupe::engine engine(over("ll128"));
  auto comms = engine.communicators(3);
  std::vector<std::vector<float>> data(3, std::vector<float>(4, 1));
  call_options soon;
  soon.deadline = 20ms;
  auto other = std::async(std::launch::async, [&] { return error_of([&] { comms[1].all_reduce(data[1]); }); });
  std::this_thread::sleep_for(2ms);
  const seen first = error_of([&] { comms[0].all_reduce(data[0], troupe::sum, soon); });
  const seen second = other.get();
  const seen late = error_of([&] { comms[2].all_reduce(data[2]); });
  INFO(first.text);
  CHECK(first.code == errc::timed_out);
  CHECK(contains(first.text, "rank 2 has not called it, ranks 0 and 1 wait"));
  CHECK(second.text == first.text);
  CHECK(late.text == first.text);
  std::vector<std::future<void>> again;
  for (auto& d : data) std::fill(d.begin(), d.end(), 1.0f);
  for (std::size_t r = 0; r < 3; ++r)
    again.push_back(std::async(std::launch::async, [&, r] { comms[r].all_reduce(data[r]); }));
  for (auto& a : again) a.get();
  CHECK(data[2] == std::vector<float>(4, 3.0f));
}

TEST_CASE("a small operation fails with those that queue behind it unharmed") {
  troupe::engine engine(over("ll128"));
  auto comms = engine.communicators(2);
  std::vector<float> a(4, 1), b(4, 1), c(4, 1), d(4, 1);
  auto first = comms[0].all_reduce_async(a);
  auto second = comms[0].all_reduce_async(b);
  first.cancel();
  CHECK(error_of([&] { first.wait(); }).code == errc::cancelled);
  CHECK(error_of([&] { comms[1].all_reduce(c); }).code == errc::cancelled);
  comms[1].all_reduce(d);
  second.wait();
  CHECK(b == std::vector<float>(4, 2.0f));
  CHECK(d == b);
}

TEST_CASE("one that queues can be cancelled, or run out of time, before its turn") {
  troupe::engine engine(over("ll128"));
  auto comms = engine.communicators(2);
  std::vector<float> a(4, 1), b(4, 1), c(4, 1), d(4, 1);
  auto first = comms[0].all_reduce_async(a);
  auto second = comms[0].all_reduce_async(b);
  call_options soon;
  soon.deadline = 10ms;
  auto third = comms[0].all_reduce_async(c, troupe::sum, soon);
  second.cancel();
  CHECK(error_of([&] { second.wait(); }).code == errc::cancelled);
  CHECK(error_of([&] { third.wait(); }).code == errc::timed_out);
  CHECK_FALSE(first.done());
  comms[1].all_reduce(d);
  first.wait();
  CHECK(a == std::vector<float>(4, 2.0f));
  CHECK(error_of([&] { comms[1].all_reduce(d); }).code == errc::cancelled);
  CHECK(error_of([&] { comms[1].all_reduce(d); }).code == errc::timed_out);
}

TEST_CASE("small and large meet: the same table on every rank") {
  auto options = over("auto");
  options.agreement = troupe::agreement_time::strict;
  troupe::engine engine(options);
  auto all = std::vector<seen>(3);
  engine.run(3, [&](communicator& c) {
    std::vector<float> data(c.rank() == 1 ? 100'000 : 4);
    all[static_cast<std::size_t>(c.rank())] = error_of([&] { c.all_reduce(data); });
    c.barrier();
    CHECK(error_of([&] { c.rank() == 2 ? c.broadcast(data, 2) : c.barrier(); }).code == errc::mismatch);
  });
  for (const seen& one : all) {
    CHECK(one.code == errc::mismatch);
    CHECK(one.text == all[0].text);
    CHECK(contains(one.text, "rank 1: all_reduce(count 100000"));
  }
}

TEST_CASE("a communicator that is left with small operations under way: they end first") {
  troupe::engine engine(over("ll128"));
  auto comms = engine.communicators(2);
  std::vector<float> a(4, 1), b(4, 1), c(5, 1);
  auto first = comms[0].all_reduce_async(a);
  auto second = comms[0].all_reduce_async(b);
  comms[0] = {};
  std::this_thread::sleep_for(20ms);
  comms[1].all_reduce(c.data(), c.data(), 4, datatype::f32);
  CHECK(error_of([&] { comms[1].all_reduce(c); }).code == errc::mismatch);
  first.wait();
  CHECK(error_of([&] { second.wait(); }).code == errc::mismatch);
  CHECK(error_of([&] { comms[1].barrier(); }).code == errc::rank_missing);
}

TEST_CASE("abort and the engine's end release small operations in every form") {
  for (const bool destroyed : {false, true}) {
    auto engine = std::make_unique<troupe::engine>(over("ll128"));
    auto comms = engine->communicators(3);
    std::vector<float> a(4), b(4);
    std::atomic<bool> called{false};
    auto request = comms[0].all_reduce_async(a);
    request.then([&](std::error_code) { called = true; });
    std::atomic<bool> begun{false};
    auto blocked = std::async(std::launch::async, [&] {
      begun = true;
      return error_of([&] { comms[1].all_reduce(b); });
    });
    while (!begun) std::this_thread::yield();
    if (destroyed) {
      std::this_thread::sleep_for(1ms);
      engine.reset();
    } else {
      comms[2].abort("enough");
      CHECK(error_of([&] { comms[2].barrier(); }).code == errc::communicator_aborted);
    }
    const errc expected = destroyed ? errc::engine_closed : errc::communicator_aborted;
    CHECK(blocked.get().code == expected);
    CHECK(error_of([&] { request.wait(); }).code == expected);
    while (!called) std::this_thread::yield();
  }
}

TEST_CASE("run: ranks that wait for a small operation which cannot come are told, without a deadline") {
  troupe::engine engine(over("ll128"));
  std::vector<seen> all(3);
  engine.run(3, [&](communicator& c) {
    std::vector<float> data(4);
    if (c.rank() == 2) return;
    all[static_cast<std::size_t>(c.rank())] =
        error_of([&] { c.rank() == 0 ? c.all_reduce(data) : c.all_reduce_async(data).wait(); });
  });
  for (int r : {0, 1}) {
    const seen& one = all[static_cast<std::size_t>(r)];
    INFO(one.text);
    CHECK(one.code == errc::rank_missing);
  }
  // Nobody left: each waits in another operation.
  engine.run(3, [&](communicator& c) {
    std::vector<float> data(4);
    all[static_cast<std::size_t>(c.rank())] = error_of([&] {
      if (c.rank() == 2) c.recv(data, 0);
      else c.all_reduce(data);
    });
  });
  for (const seen& one : all) CHECK(one.code == errc::rank_missing);
  // Its own receive may fail first, and then it leaves.
  CHECK((contains(all[0].text, "rank 2 has not called it, ") || contains(all[0].text, "rank 2 left the communicator")));
  CHECK(contains(all[0].text, "ranks 0 and 1 wait"));
}

TEST_CASE("a user's function that throws fails the operation on every rank") {
  troupe::engine engine(over("ll128"));
  troupe::op bad;
  bad.kind = op_kind::user;
  bad.function = [](const void*, const void*, void*, std::size_t, datatype, void*) {
    throw std::runtime_error("no such sum");
  };
  std::atomic<int> failed{0};
  engine.run(2, [&](communicator& c) {
    std::vector<float> data(4);
    const seen e = error_of([&] { c.all_reduce(data, bad); });
    failed += e.code == errc::aborted && contains(e.text, "no such sum");
    c.barrier();
  });
  CHECK(failed == 2);
}
