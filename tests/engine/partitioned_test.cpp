// SPDX-License-Identifier: Apache-2.0
// Partitioned operations with real threads and bytes.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/api/troupe.hpp"

using namespace troupe;

namespace {

std::vector<int> shuffled(int count, unsigned seed) {
  std::vector<int> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937{seed});
  return order;
}

/// [begin, end) of part p of `count` elements.
std::pair<std::size_t, std::size_t> part_of(std::size_t count, int parts, int p) {
  const auto k = static_cast<std::size_t>(parts), at = static_cast<std::size_t>(p);
  return {at * count / k, (at + 1) * count / k};
}

}  // namespace

TEST_CASE("an all_gather's parts travel as they get ready, in any order, and arrive whole") {
  constexpr int ranks = 3, parts = 8;
  for (const std::size_t count : {std::size_t{5}, std::size_t{1000}, std::size_t{100'003}}) {
    CAPTURE(count);
    engine e;
    e.run(ranks, [&](communicator& c) {
      const auto me = static_cast<std::size_t>(c.rank());
      std::vector<std::int32_t> in(count), out(count * ranks);
      partitioned gather = c.all_gather_init(in, out, partitions(parts));
      CHECK(gather.input_parts() == parts);
      CHECK(gather.output_parts() == parts * ranks);
      for (unsigned round = 0; round < 3; ++round) {
        std::fill(in.begin(), in.end(), -1);
        std::fill(out.begin(), out.end(), -2);
        gather.start();
        const auto value = [&](std::size_t r, std::size_t i) {
          return static_cast<std::int32_t>(r * 1'000'000 + i + round);
        };
        for (const int p : shuffled(parts, round * 10 + static_cast<unsigned>(me))) {
          const auto [begin, end] = part_of(count, parts, p);
          for (std::size_t i = begin; i < end; ++i) in[i] = value(me, i);
          gather.ready(p);
        }
        std::set<int> seen;
        while (const auto part = gather.next_arrived()) {
          CHECK(gather.arrived(*part));
          CHECK(seen.insert(*part).second);
          const auto r = static_cast<std::size_t>(*part / parts);
          const auto [begin, end] = part_of(count, parts, *part % parts);
          bool right = true;
          for (std::size_t i = begin; i < end; ++i) right = right && out[r * count + i] == value(r, i);
          CHECK(right);
        }
        CHECK(seen.size() == parts * ranks);
        gather.wait();
      }
    });
  }
}

TEST_CASE("a part arrives while others are not ready anywhere") {
  engine e;
  e.run(3, [](communicator& c) {
    std::vector<float> in(64, 1.0F), out(64);
    partitioned all = c.all_reduce_init(in, out, sum, partitions(4));
    all.start();
    all.ready(2);
    const auto first = all.next_arrived();
    REQUIRE(first == 2);
    CHECK(std::all_of(out.begin() + 32, out.begin() + 48, [](float x) { return x == 3.0F; }));
    CHECK_FALSE(all.arrived(0));
    CHECK_FALSE(all.done());
    for (const int p : {0, 1, 3}) all.ready(p);
    all.wait();
    CHECK(std::all_of(out.begin(), out.end(), [](float x) { return x == 3.0F; }));
    while (all.next_arrived()) {}
  });
}

namespace {

void every_collective(const engine_options& o, const char* broadcast_by) {
  constexpr int ranks = 4;
  constexpr std::size_t count = 103;
  const std::vector<partitions> cuts{partitions(1), partitions(7), partitions({3, 0, 90, 10}), partitions(200)};
  engine e{o};
  e.run(ranks, [&](communicator& c) {
    constexpr auto n = static_cast<std::size_t>(ranks);
    const auto me = static_cast<std::size_t>(c.rank());
    std::vector<std::int64_t> small(count), large(count * n), small_out(count), large_out(count * n), wanted;
    for (std::size_t i = 0; i < count * n; ++i) large[i] = static_cast<std::int64_t>(me * 10'000 + i);
    for (std::size_t i = 0; i < count; ++i) small[i] = static_cast<std::int64_t>(me * 10'000 + i);
    const auto check = [&](partitioned& p, std::vector<std::int64_t>& out) {
      for (int again = 0; again < 2; ++again) {
        std::fill(out.begin(), out.end(), -1);
        p.start();
        for (const int part : shuffled(p.input_parts(), static_cast<unsigned>(me))) p.ready(part);
        p.wait();
        CHECK(out == wanted);
        int given = 0;
        while (p.next_arrived()) ++given;
        CHECK(given == p.output_parts());
        for (int part = 0; part < p.output_parts(); ++part) CHECK(p.arrived(part));
      }
    };
    for (const partitions& cut : cuts) {
      wanted.assign(count, -1);
      c.all_reduce(small, wanted);
      partitioned sum_up = c.all_reduce_init(small, small_out, sum, cut);
      check(sum_up, small_out);
      wanted.assign(count * n, -1);
      c.all_gather(small, wanted);
      partitioned gather = c.all_gather_init(small, large_out, cut);
      check(gather, large_out);
      wanted.assign(count, -1);
      c.reduce_scatter(large, wanted, sum);
      partitioned scatter = c.reduce_scatter_init(large, small_out, sum, cut);
      check(scatter, small_out);
      wanted.assign(count * n, -1);
      c.all_to_all(large, wanted);
      partitioned swap = c.all_to_all_init(large, large_out, cut);
      check(swap, large_out);
      wanted.assign(count, -1);
      if (c.rank() == 2) wanted = small;
      c.broadcast(wanted, 2);
      partitioned cast = c.broadcast_init(small, small_out, 2, cut, {.choreography = broadcast_by});
      check(cast, small_out);
      wanted.assign(count, -1);
      c.reduce(small, wanted, maximum, 1);
      partitioned to_one = c.reduce_init(small, small_out, maximum, 1, cut);
      if (c.rank() != 1) wanted.assign(count, -1);
      check(to_one, small_out);
    }
  });
}

}  // namespace

TEST_CASE("every collective that can be partitioned gives what the whole call gives, with parts of any sizes") {
  every_collective({}, "binomial");
}

TEST_CASE("so do parts that ranks work on straight on each other's buffers, over boards and by mailbox") {
  engine_options o;
  for (const collective what : {collective::all_reduce, collective::reduce_scatter, collective::reduce})
    o.choreography_of[std::string{name(what)}] = "fused";
  every_collective(o, "binomial");
  o.faults = {.seed = 5, .delay = 0.05};
  every_collective(o, "binomial");
}

TEST_CASE("threads that the engine does not know make parts ready, and callbacks hear of what arrives") {
  constexpr int parts = 16;
  engine e;
  e.run(2, [](communicator& c) {
    std::vector<float> data(parts * 10), out(parts * 10);
    partitioned all = c.all_reduce_init(data, out, sum, partitions(parts));
    std::atomic<int> told{0};
    for (int p = 0; p < parts; ++p) all.then(p, [&](int) { ++told; });
    for (int round = 1; round <= 20; ++round) {
      all.start();
      std::vector<std::thread> workers;
      for (int w = 0; w < 4; ++w)
        workers.emplace_back([&, w] {
          for (int p = w; p < parts; p += 4) {
            std::fill_n(data.begin() + p * 10, 10, static_cast<float>(round + c.rank()));
            all.ready(p);
          }
        });
      while (const auto p = all.next_arrived())
        CHECK(out[static_cast<std::size_t>(*p) * 10 + 9] == static_cast<float>(2 * round + 1));
      for (std::thread& w : workers) w.join();
      all.wait();
    }
    while (told.load() < 20 * parts) std::this_thread::yield();
    CHECK(told == 20 * parts);
  });
}

namespace {

std::string what_of(const auto& call, errc wanted) {
  try {
    call();
  } catch (const error& x) {
    CHECK(x.code_value() == wanted);
    return x.what();
  }
  FAIL_CHECK("it did not throw");
  return {};
}

bool says(const std::string& text, const std::string& words) {
  const bool found = text.find(words) != std::string::npos;
  if (!found) MESSAGE(text);
  return found;
}

}  // namespace

TEST_CASE("a part that never gets ready ends in a deadline whose error names it") {
  engine e;
  e.run(3, [](communicator& c) {
    std::vector<int> data(32), out(32);
    partitioned all = c.all_reduce_init(data, out, sum, partitions(8), {.deadline = std::chrono::milliseconds{100}});
    all.start();
    for (int p = 0; p < 8; ++p)
      if (p != 3 || c.rank() != 1) all.ready(p);
    const std::string why = what_of(
        [&] {
          while (all.next_arrived()) {}
        },
        errc::timed_out);
    CHECK(says(why, "part 3 of 8 was not made ready"));
    CHECK(says(what_of([&] { all.wait(); }, errc::timed_out), "part 3"));
    if (c.rank() == 1) all.ready(3);  // too late, and harmless
    CHECK_FALSE(all.arrived(3));
  });
}

TEST_CASE("cancel, abort and the end of the handle release every rank") {
  engine e;
  std::atomic<int> begun{0};
  e.run(3, [&](communicator& c) {
    std::vector<int> data(32), out(32);
    partitioned all = c.all_reduce_init(data, out, sum, partitions(4));
    all.start();
    all.ready(0);
    if (c.rank() == 2) all.cancel();
    CHECK(all.try_wait() == make_error_code(errc::cancelled));
    all.start();
    if (c.rank() == 0) all = partitioned{};
    else CHECK(all.try_wait() == make_error_code(errc::cancelled));
    partitioned last = c.all_reduce_init(data, out, sum, partitions(4));
    last.start();
    ++begun;
    if (c.rank() == 1) {
      while (begun < 3) std::this_thread::yield();  // else some would hear of the abort before they start
      c.abort("enough");
    }
    CHECK(last.try_wait() == make_error_code(errc::communicator_aborted));
  });
}

TEST_CASE("calls that make no sense are refused with what would be right") {
  engine e;
  e.run(2, [](communicator& c) {
    std::vector<int> data(32), out(32);
    partitioned all = c.all_reduce_init(data, out, sum, partitions(4));
    CHECK(says(what_of([&] { all.ready(0); }, errc::invalid_argument), "call start() first"));
    all.start();
    CHECK(says(what_of([&] { all.start(); }, errc::invalid_argument), "still under way"));
    CHECK(says(what_of([&] { all.ready(4); }, errc::invalid_argument), "no part 4 of the input; parts are 0 … 3"));
    CHECK(says(what_of([&] { all.ready(-1); }, errc::invalid_argument), "no part -1"));
    all.ready(1);
    CHECK(says(what_of([&] { all.ready(1); }, errc::invalid_argument), "part 1 was made ready before"));
    for (const int p : {0, 2, 3}) all.ready(p);
    all.wait();
    all.ready(1);
    CHECK(says(what_of([&] { static_cast<void>(all.arrived(9)); }, errc::invalid_argument), "no part 9 of the output"));
    CHECK(says(
        what_of([&] { static_cast<void>(c.all_reduce_init(data, out, sum, partitions(0))); }, errc::invalid_argument),
        "there must be 1 … 1024"));
    CHECK(says(what_of(
                   [&] {
                     static_cast<void>(c.all_reduce_init(data, out, sum, partitions({10, 20})));
                   },
                   errc::invalid_argument),
               "their sizes make 30 elements, but a block has 32"));
    CHECK(says(what_of([&] { static_cast<void>(c.scan_init(data, out, sum, partitions(2))); }, errc::unsupported),
               "cannot be partitioned"));
    const auto direct = [&] {
      static_cast<void>(c.all_reduce_init(data, out, sum, partitions(2), {.protocol = message_protocol::direct}));
    };
    CHECK(says(what_of(direct, errc::unsupported), "protocol simple"));
  });
}

TEST_CASE("parts on each other's buffers are for ranks of one process, and in place as apart") {
  engine_options o;
  o.layout = "1x1x2";
  engine routed{o};
  routed.run(2, [](communicator& c) {
    std::vector<int> data(32), out(32);
    const auto fused = [&] {
      static_cast<void>(c.all_reduce_init(data, out, sum, partitions(2), {.choreography = "fused"}));
    };
    CHECK(says(what_of(fused, errc::unsupported), "which parts do where all of them are in one process"));
    const auto copied = [&] { static_cast<void>(c.broadcast_init(data, 0, partitions(2), {.choreography = "fused"})); };
    CHECK(says(what_of(copied, errc::unsupported), "each other's memory"));
  });
  engine e;
  e.run(3, [](communicator& c) {
    std::vector<int> data(300);
    partitioned all = c.all_reduce_init(data, sum, partitions(6), {.choreography = "fused"});
    for (int round = 1; round < 8; ++round) {
      all.start();
      for (const int p : shuffled(6, static_cast<unsigned>(c.rank() + round))) {
        for (int i = p * 50; i < (p + 1) * 50; ++i) data[static_cast<std::size_t>(i)] = round * i + c.rank();
        all.ready(p);
      }
      while (const auto part = all.next_arrived())
        for (int i = *part * 50; i < (*part + 1) * 50; ++i)
          CHECK(data[static_cast<std::size_t>(i)] == 3 * round * i + 3);
      all.wait();
    }
  });
}

TEST_CASE("ranks that cut differently get an error that names both") {
  engine e;
  e.run(2, [](communicator& c) {
    std::vector<int> data(32), out(32);
    partitioned all = c.rank() == 0 ? c.all_reduce_init(data, out, sum, partitions(4))
                                    : c.all_reduce_init(data, out, sum, partitions({16, 16}));
    all.start();
    for (int p = 0; p < all.input_parts(); ++p) all.ready(p);
    const std::string why = what_of([&] { all.wait(); }, errc::mismatch);
    CHECK(says(why, "partitions 4"));
    CHECK(says(why, "partitions of [16, 16]"));
  });
}

TEST_CASE("a callback of its own parts cannot start an operation again, and sizes that are no block's are refused") {
  engine e;
  e.run(1, [](communicator& c) {
    std::vector<int> in(8), out(8);
    partitioned gather = c.all_gather_init(in, out, partitions(2));
    std::atomic<int> refused{0};
    gather.then(1, [&](int) {
      try {
        gather.start();
      } catch (const error& problem) {
        refused += problem.code() == errc::invalid_argument ? 1 : 0;
      }
    });
    gather.start();
    gather.ready(0);
    gather.ready(1);
    gather.wait();
    while (gather.next_arrived()) {}
    while (refused == 0) std::this_thread::yield();
    CHECK(refused == 1);
    constexpr std::size_t huge = ~std::size_t{0};
    CHECK_THROWS_WITH_AS(static_cast<void>(c.all_gather_init(in, out, partitions{huge, 9})),
                         doctest::Contains("more than the 8 elements"), error);
    CHECK_THROWS_WITH_AS(static_cast<void>(c.all_gather_init(in, out, partitions{3, 4})),
                         doctest::Contains("make 7 elements"), error);
  });
}

TEST_CASE("an operation that was never made says so") {
  partitioned empty;
  for (const std::function<void()>& asked : std::initializer_list<std::function<void()>>{
           [&] { empty.start(); }, [&] { empty.ready(0); }, [&] { empty.wait(); }, [&] { empty.next_arrived(); },
           [&] { static_cast<void>(empty.arrived(0)); }, [&] { empty.then(0, [](int) {}); }})
    CHECK(says(what_of(asked, errc::invalid_argument), "this partitioned operation is empty"));
  CHECK(empty.try_wait() == make_error_code(errc::invalid_argument));
  CHECK(empty.done());
  empty.cancel();
}

namespace {

/// Sums and products of T by parts beside those of the whole calls: the same bits.
template <class T>
void check_rounded_once(int ranks) {
  engine_options options;
  options.level = determinism::topology_stable;
  engine e{options};
  e.run(ranks, [&](communicator& c) {
    const auto n = static_cast<std::size_t>(c.size());
    constexpr std::size_t count = 133;
    constexpr int parts = 7;
    const int root = c.size() - 1;
    std::mt19937 random{static_cast<unsigned>(c.rank()) + 1};
    std::uniform_real_distribution<float> values{-2, 2};
    std::vector<T> all(n * count), block(count), whole(count), got(count);
    const auto perform = [&](partitioned& by, int how) {
      for (T& one : all) one = T(values(random));
      std::copy_n(all.begin(), count, block.begin());
      std::fill(got.begin(), got.end(), T(9.0F));
      std::atomic<int> heard{0};
      std::vector<bool> right(parts, true);
      if (how == 2)
        for (int p = 0; p < by.output_parts(); ++p) by.then(p, [&](int) { ++heard; });
      by.start();
      for (const int p : shuffled(parts, 3)) by.ready(p);
      if (how == 1)
        while (by.next_arrived()) {}
      while (how == 2 && heard < by.output_parts()) std::this_thread::yield();
      by.wait();
    };
    const auto same = [&](const std::vector<T>& a, const std::vector<T>& b) {
      return std::memcmp(a.data(), b.data(), count * sizeof(T)) == 0;
    };
    for (const op& reduction : {sum, prod, average}) {
      partitioned scatter = c.reduce_scatter_init(all, got, reduction, partitions(parts));
      partitioned everywhere = c.all_reduce_init(block, got, reduction, partitions({20, 1, 40, 0, 12, 30, 30}));
      partitioned at_one = c.reduce_init(block, got, reduction, root, partitions(parts));
      partitioned in_place = c.all_reduce_init(block, reduction, partitions(parts));
      for (int how = 0; how < 3; ++how) {
        perform(scatter, how);
        c.reduce_scatter(all, whole, reduction);
        CHECK(same(got, whole));
        perform(everywhere, how);
        c.all_reduce(block, whole, reduction);
        CHECK(same(got, whole));
        perform(at_one, how);
        c.reduce(block, whole, reduction, root);
        if (c.rank() == root) CHECK(same(got, whole));
        perform(in_place, how);
        std::copy_n(all.begin(), count, got.begin());
        c.all_reduce(got, whole, reduction);
        CHECK(same(block, whole));
      }
    }
  });
}

}  // namespace

TEST_CASE_TEMPLATE("sums of low-precision types are rounded once, when they are complete", T, bf16, f16) {
  for (const int ranks : {1, 2, 3, 5}) check_rounded_once<T>(ranks);
}

TEST_CASE("a part that was rounded can be read as soon as it is heard of, and the next repetition begins anew") {
  engine e;
  e.run(3, [](communicator& c) {
    std::vector<bf16> in(64), out(64);
    partitioned all = c.all_reduce_init(in, out, sum, partitions(4));
    for (int run = 1; run <= 3; ++run) {
      std::fill(in.begin(), in.end(), bf16(static_cast<float>(run)));
      all.start();
      all.ready(2);
      REQUIRE(all.next_arrived() == 2);  // nobody has another part yet
      CHECK(all.arrived(2));
      for (std::size_t i = 32; i < 48; ++i) CHECK(static_cast<float>(out[i]) == 3.0F * static_cast<float>(run));
      CHECK(says(what_of([&] { all.ready(2); }, errc::invalid_argument), "all_reduce(count 64, bf16, sum"));
      c.barrier();
      for (const int p : {0, 1, 3}) all.ready(p);
      while (!all.done()) std::this_thread::yield();
      for (const bf16 one : out) CHECK(static_cast<float>(one) == 3.0F * static_cast<float>(run));
      all.wait();
    }
  });
}

TEST_CASE("a rank that sums bf16 and one that sums f32 have called different operations") {
  engine e;
  e.run(2, [](communicator& c) {
    std::vector<bf16> narrow(8), narrow_out(8);
    std::vector<float> wide(8), wide_out(8);
    partitioned all = c.rank() == 0 ? c.all_reduce_init(narrow, narrow_out, sum, partitions(2))
                                    : c.all_reduce_init(wide, wide_out, sum, partitions(2));
    all.start();
    for (int p = 0; p < 2; ++p) all.ready(p);
    CHECK(says(what_of([&] { all.wait(); }, errc::mismatch), "different operations"));
  });
}
