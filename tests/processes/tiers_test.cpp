// SPDX-License-Identifier: Apache-2.0
// Communicators of several hosts with several processes each, whose ranks meet on their hosts first (protocols/tiers.hpp). The hosts are names that
// the processes tell the job.

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <csignal>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include <unistd.h>

#include "tests/processes/processes.hpp"

namespace tiers_test {

using namespace process_tests;
using troupe::communicator;
using troupe::errc;

namespace {

constexpr int hosts = 2, of_host = 2;

troupe::join_options on_hosts(const member& m) {
  troupe::join_options how = m.how();
  how.host = "host" + std::to_string(m.process / of_host);
  how.key = std::string(64, '7');
  return how;
}

void must(bool right, const std::string& what) {
  if (!right) throw std::runtime_error(what);
}

int given(int rank, std::size_t i) { return static_cast<int>(i % 1000) + 7 * rank; }

std::vector<int> input_of(int rank, std::size_t count) {
  std::vector<int> made(count);
  for (std::size_t i = 0; i < count; ++i) made[i] = given(rank, i);
  return made;
}

/// Every rank's result of each of the collectives, however it is called.
void check_all(communicator& c, std::size_t count) {
  const int n = c.size(), me = c.rank();
  const auto ranks = static_cast<std::size_t>(n);
  const std::string at = " of " + std::to_string(count) + " on rank " + std::to_string(me);
  const auto sum_at = [&](std::size_t i) {
    int sum = 0;
    for (int r = 0; r < n; ++r) sum += given(r, i);
    return sum;
  };
  const auto check_sums = [&](const std::vector<int>& out, std::size_t first, const char* what) {
    for (std::size_t i = 0; i < out.size(); ++i) must(out[i] == sum_at(first + i), what + at);
  };
  const std::vector<int> in = input_of(me, count), large = input_of(me, count * ranks);
  std::vector<int> out(count), all(count * ranks);

  c.all_reduce(in, out);
  check_sums(out, 0, "all_reduce");
  out = in;
  c.all_reduce(std::span{out});
  check_sums(out, 0, "all_reduce in place");
  std::vector<int> share(count);
  c.reduce_scatter(large, share);
  check_sums(share, static_cast<std::size_t>(me) * count, "reduce_scatter");
  const auto check_gathered = [&](const char* what) {
    for (std::size_t i = 0; i < all.size(); ++i)
      must(all[i] == given(static_cast<int>(i / count), i % count), what + at);
  };
  c.all_gather(in, all);
  check_gathered("all_gather");
  std::fill(all.begin(), all.end(), -1);
  std::copy(in.begin(), in.end(), all.begin() + static_cast<std::ptrdiff_t>(count) * me);
  c.run(troupe::calls::all_gather(all.data() + count * static_cast<std::size_t>(me), all.data(), count,
                                  troupe::datatype::i32));
  check_gathered("all_gather in place");

  // Several at once, between others that go no such way.
  std::vector<int> again(count), twice(count);
  auto first = c.all_reduce_async(in, again);
  int root_says = me == 1 ? 5 : 0;
  auto other = c.broadcast_async(std::span{&root_says, 1}, 1);
  auto second = c.all_reduce_async(in, twice);
  auto met = c.barrier_async();
  second.wait(), first.wait(), other.wait(), met.wait();
  must(root_says == 5, "a broadcast between them" + at);
  check_sums(again, 0, "the first of two");
  check_sums(twice, 0, "the second of two");
  auto kept = c.all_reduce_init(std::span<const int>{in}, std::span{out});
  for (int round = 0; round < 3; ++round) {
    std::fill(out.begin(), out.end(), 0);
    if (round == 1) kept.start().wait();
    else kept.run();
    check_sums(out, 0, "a persistent one");
  }
}

}  // namespace

TEST_CASE("in tiers: all collectives of two hosts with two processes each, in all forms") {
  for (const int ranks_each : {1, 2}) {
    CAPTURE(ranks_each);
    const auto all = run_processes(hosts * of_host, [&](const member& m) {
      troupe::engine engine;
      engine.join(
          ranks_each,
          [](communicator& c) {
            for (const std::size_t count : {0u, 1u, 5u, 1000u, 40'001u, 300'000u}) check_all(c, count);
          },
          on_hosts(m));
    });
    CHECK(trouble(all) == "");
  }
}

TEST_CASE("in tiers: who calls something else is told, and so are all others; what follows is right") {
  const auto all = run_processes(hosts * of_host, [](const member& m) {
    troupe::engine engine;
    communicator c = engine.join(on_hosts(m));
    const int me = c.rank();
    std::vector<int> in(64, 1), out(64), wide(64 * 4);
    for (const std::size_t count : {std::size_t{8}, std::size_t{200'000}}) {
      in.assign(count, 1), out.assign(count, 0), wide.assign(4 * count, 0);
      for (int odd = 0; odd < 4; ++odd) {
        const auto sizes = code_of([&] {
          c.all_reduce(std::span<const int>{in}.first(me == odd ? count - 1 : count),
                       std::span{out}.first(me == odd ? count - 1 : count));
        });
        must(sizes == errc::mismatch, "another size");
        const auto calls = code_of([&] {
          if (me == odd) c.all_gather(in, wide);
          else c.all_reduce(in, out);
        });
        must(calls == errc::mismatch, "another collective");
        const auto ways = code_of([&] {
          if (me == odd) c.scan(in, out);  // which goes by mailbox alone
          else c.all_reduce(in, out);
        });
        must(ways == errc::mismatch, "one that goes another way");
        c.all_reduce(in, out);
        must(out.front() == 4 && out.back() == 4, "what follows");
      }
    }
  });
  CHECK(trouble(all) == "");
}

TEST_CASE("in tiers: deadlines, cancels and refused calls end everywhere, and leave the boards fit for the next") {
  const auto all = run_processes(hosts * of_host, [](const member& m) {
    troupe::engine engine;
    communicator c = engine.join(on_hosts(m));
    const int me = c.rank();
    for (const std::size_t count : {std::size_t{8}, std::size_t{200'000}}) {
      std::vector<int> in(count, 1), out(count);
      for (int late = 0; late < 4; ++late) {
        troupe::call_options hasty;
        hasty.deadline = std::chrono::milliseconds{me == (late + 1) % 4 ? 20 : 30'000};
        // Much later than the hasty one, which may itself be late on a busy machine.
        if (me == late) std::this_thread::sleep_for(std::chrono::milliseconds{500});
        const auto timed = code_of([&] { c.all_reduce(in, out, troupe::sum, hasty); });
        must(timed == errc::timed_out, "a deadline");
        const auto cancelled = code_of([&] {
          auto r = c.all_reduce_async(in, out);
          if (me == late) {
            r.cancel();
          }
          r.wait();
        });
        must(cancelled == errc::cancelled || cancelled == errc::ok, "a cancel");
        const auto refused =
            code_of([&] { c.all_reduce(me == late ? nullptr : in.data(), out.data(), count, troupe::datatype::i32); });
        must(refused == (me == late ? errc::null_buffer : errc::peer_refused), "a refused call");
        c.all_reduce(in, out);
        must(out.front() == 4 && out.back() == 4, "what follows");
      }
    }
  });
  CHECK(trouble(all) == "");
}

TEST_CASE("in tiers: a process that is killed is told to all survivors, in whatever stage they are") {
  for (const std::size_t count : {std::size_t{4}, std::size_t{1} << 20})
    for (const int victim : {0, 1, 2, 3}) {
      CAPTURE(count);
      CAPTURE(victim);
      const auto all = run_processes(
          hosts * of_host,
          [&](const member& m) {
            troupe::engine_options quiet;
            quiet.log_level = "off";
            troupe::engine engine{quiet};
            communicator c = engine.join(on_hosts(m));
            m.say("joined");
            std::vector<float> in(count, 1.0F), out(count);
            const errc how = code_of([&] {
              while (true) {
                c.all_reduce(in, out);
                must(out.front() == 4.0F && out.back() == 4.0F, "wrong before");
              }
            });
            must(how == errc::peer_lost, "another end");
          },
          [&](job_control& job) {
            job.wait_for_lines(hosts * of_host);
            ::usleep(20'000);
            ::kill(job.pids[static_cast<std::size_t>(victim)], SIGKILL);
          });
      for (int p = 0; p < hosts * of_host; ++p) {
        if (p == victim) continue;
        CAPTURE(all[static_cast<std::size_t>(p)].log);
        CHECK_FALSE(all[static_cast<std::size_t>(p)].late);
        CHECK(all[static_cast<std::size_t>(p)].exit == 0);
      }
    }
}

}  // namespace tiers_test
