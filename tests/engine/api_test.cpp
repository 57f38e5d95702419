// SPDX-License-Identifier: Apache-2.0
// Every collective in every form: typed and untyped, blocking, asynchronous and grouped, in and out of place.

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <span>
#include <thread>

#include "memory/large_pages.hpp"
#include "tests/engine/jobs.hpp"

using namespace engine_tests;

namespace {

constexpr std::size_t counts[] = {0, 1, 2, 7, 64, 1009};

job uniform(collective what, int ranks, std::size_t count, datatype type = datatype::f32) {
  job j;
  j.what = what;
  j.ranks = ranks;
  j.count = count;
  j.type = type;
  return j;
}

}  // namespace

// -- all collectives --------------------------------------------------------------------------------------------------

TEST_CASE("options are named in braces, some of them, without a warning of what is left out") {
  const troupe::engine_options few{.workers = 2},
      more{.layout = "2", .deadline = std::chrono::seconds{1}, .faults = {.seed = 3}};
  CHECK(few.workers == 2);
  CHECK(few.tuning.empty());
  CHECK(more.layout == "2");
  CHECK(more.faults.seed == 3);
  const troupe::call_options at_most{.deadline = std::chrono::seconds{1}};
  CHECK(at_most.deadline == std::chrono::seconds{1});
}

TEST_CASE(
    "every collective gives the right bytes for all kinds of rank counts, counts and roots, in and out of place") {
  troupe::engine engine;
  for (const int ranks : {1, 2, 3, 5, 8, 13, 17}) {
    auto comms = engine.communicators(ranks);
    for (const collective what : all_collectives)
      for (const std::size_t count : counts)
        for (const bool in_place : {false, true}) {
          job j = uniform(what, ranks, count);
          j.in_place = in_place;
          j.salt = count;
          const std::vector<rank_t> roots =
              has_root(what) ? std::vector<rank_t>{0, ranks / 2, ranks - 1} : std::vector<rank_t>{0};
          for (const rank_t root : roots) {
            j.root = root;
            INFO(to_string(j));
            CHECK(wrong_bytes(comms, j, count % 2 ? form::grouped : form::asynchronous) == 0);
          }
        }
  }
}

TEST_CASE("every type with every operation that it has") {
  troupe::engine engine;
  auto comms = engine.communicators(5);
  for (const datatype type : troupe::all_datatypes)
    for (const op_kind kind : troupe::all_op_kinds) {
      if (!defined_on(type, kind)) continue;
      for (const collective what : {collective::all_reduce, collective::reduce_scatter, collective::reduce,
                                    collective::scan, collective::exscan})
        for (const bool in_place : {false, true}) {
          job j = uniform(what, 5, 67, type);
          j.reduction = op_of(kind);
          j.in_place = in_place;
          j.root = 3;
          INFO(to_string(j));
          CHECK(wrong_bytes(comms, j) == 0);
        }
    }
}

TEST_CASE("every type is moved by the other collectives, bit by bit") {
  troupe::engine engine;
  auto comms = engine.communicators(4);
  for (const datatype type : troupe::all_datatypes)
    for (const collective what : {collective::all_gather, collective::broadcast, collective::gather,
                                  collective::scatter, collective::all_to_all}) {
      job j = uniform(what, 4, 61, type);
      j.root = 1;
      INFO(to_string(j));
      CHECK(wrong_bytes(comms, j) == 0);
    }
}

TEST_CASE("buffers need no alignment") {
  troupe::engine engine;
  auto comms = engine.communicators(3);
  for (const datatype type : troupe::all_datatypes)
    for (const collective what : all_collectives)
      for (const std::size_t misalignment : {1u, 3u}) {
        job j = uniform(what, 3, 101, type);
        j.misalignment = misalignment;
        INFO(to_string(j));
        CHECK(wrong_bytes(comms, j) == 0);
        j.in_place = true;
        CHECK(wrong_bytes(comms, j) == 0);
      }
}

TEST_CASE("sixty-four ranks on however few cores") {
  troupe::engine engine;
  auto comms = engine.communicators(64);
  for (const collective what : all_collectives)
    for (const std::size_t count : {1u, 130u}) {
      job j = uniform(what, 64, count);
      j.root = 63;
      INFO(to_string(j));
      CHECK(wrong_bytes(comms, j) == 0);
    }
  engine.run(64, [](communicator& comm) {
    job j = uniform(collective::all_reduce, 64, 1000);
    CHECK(wrong_bytes(comm, j) == 0);
    comm.barrier();
  });
}

TEST_CASE("messages that are cut into many pieces") {
  troupe::engine_options options;
  options.chunk_bytes = 4096;
  options.channels = 3;
  troupe::engine engine(options);
  auto comms = engine.communicators(4);
  for (const collective what : all_collectives) {
    if (what == collective::barrier) continue;
    job j = uniform(what, 4, 100'003);
    INFO(to_string(j));
    CHECK(wrong_bytes(comms, j) == 0);
    j.in_place = true;
    CHECK(wrong_bytes(comms, j) == 0);
  }
}

TEST_CASE("every choreography that offers a collective gives the same bytes when it is forced") {
  troupe::engine engine;
  std::size_t ran = 0;
  for (const int ranks : {1, 4, 6, 7}) {
    auto comms = engine.communicators(ranks);
    for (const collective what : all_collectives)
      for (const std::string& choreography : offering(what)) {
        job j = uniform(what, ranks, 53, datatype::bf16);
        j.options.choreography = choreography;
        j.root = ranks - 1;
        INFO(to_string(j));
        try {
          CHECK(wrong_bytes(comms, j) == 0);
          ++ran;
        } catch (const troupe::error& e) {
          INFO(e.what());
          CHECK(e.code_value() == errc::unsupported);  // e.g. a hierarchy on a flat layout
        }
      }
  }
  CHECK(ran > 60);
}

TEST_CASE("a layout with servers, cards and core groups changes the ways, not the bytes") {
  for (const char* layout : {"2x4", "2x2x2", "3+5", "8"}) {
    troupe::engine_options options;
    options.layout = layout;
    troupe::engine engine(options);
    auto comms = engine.communicators(8);
    for (const collective what : all_collectives) {
      job j = uniform(what, 8, 333);
      j.root = 5;
      INFO(layout << ": " << to_string(j));
      CHECK(wrong_bytes(comms, j) == 0);
    }
  }
}

// -- forms of the interface -------------------------------------------------------------------------------------------

TEST_CASE("ranges: vectors, spans and arrays, blocking on each rank's own thread") {
  troupe::engine engine;
  engine.run(3, [](communicator& comm) {
    const int me = comm.rank();
    CHECK(comm.size() == 3);
    std::vector<float> data(10, static_cast<float>(me + 1));
    comm.all_reduce(data);
    CHECK(data == std::vector<float>(10, 6.0f));

    const std::array<std::int32_t, 2> mine{me, 10 * me};
    std::vector<std::int32_t> all(6);
    comm.all_gather(mine, all);
    CHECK(all == std::vector<std::int32_t>{0, 0, 1, 10, 2, 20});

    std::int64_t blocks[6], kept[2];
    for (int i = 0; i < 6; ++i) blocks[i] = i + me;
    comm.reduce_scatter(blocks, kept, troupe::maximum);
    CHECK(kept[0] == 2 * me + 2);
    CHECK(kept[1] == 2 * me + 3);

    std::vector<double> word(4, me == 1 ? 2.5 : 0.0);
    comm.broadcast(std::span(word), 1);
    CHECK(word == std::vector<double>(4, 2.5));

    const std::vector<double> two(2, me);
    std::vector<double> total(me == 2 ? 2 : 0);
    comm.reduce(two, total, troupe::sum, 2);
    if (me == 2) CHECK(total == std::vector<double>{3, 3});

    std::vector<std::uint8_t> letters(me == 0 ? 3 : 0);
    comm.gather(std::array{static_cast<std::uint8_t>('a' + me)}, letters, 0);
    if (me == 0) CHECK(letters == std::vector<std::uint8_t>{'a', 'b', 'c'});
    std::array<std::uint8_t, 1> letter{};
    comm.scatter(letters, letter, 0);
    CHECK(letter[0] == 'a' + me);

    std::vector<std::int32_t> out(6), in(6);
    for (int i = 0; i < 6; ++i) out[static_cast<std::size_t>(i)] = 100 * me + i;
    comm.all_to_all(out, in);
    for (int i = 0; i < 3; ++i) CHECK(in[static_cast<std::size_t>(2 * i)] == 100 * i + 2 * me);

    comm.barrier();
  });
}

TEST_CASE("a broadcast from one range into another reads the first at the root only") {
  troupe::engine engine;
  engine.run(3, [](communicator& comm) {
    const bool at_root = comm.rank() == 1;
    const std::vector<float> in(at_root ? 5 : 0, 2.5f);
    std::array<float, 5> out{};
    comm.broadcast(in, out, 1);
    CHECK(out == std::array<float, 5>{2.5f, 2.5f, 2.5f, 2.5f, 2.5f});

    // What other ranks give is not looked at, also where it is their output.
    std::vector<std::int64_t> data(100, comm.rank());
    const std::vector<std::int64_t> unread(100, -1);
    if (at_root) comm.broadcast(data, data, 1);
    else comm.broadcast(unread, data, 1);
    CHECK(data == std::vector<std::int64_t>(100, 1));
  });
  engine.run(1, [](communicator& comm) {
    const std::array<float, 2> in{};
    std::array<float, 3> out{};
    CHECK_THROWS_WITH_AS(comm.broadcast(in, out, 0), doctest::Contains("input has 2 elements but the call needs 3"),
                         troupe::error);
  });
}

TEST_CASE("a type, a pointer and a count say the same as ranges") {
  troupe::engine engine;
  engine.run(4, [](communicator& comm) {
    std::int32_t in = comm.rank(), out = -1;
    comm.all_reduce(&in, &out, 1, datatype::i32, troupe::sum);
    CHECK(out == 6);
    comm.all_reduce(&in, &out, 1, datatype::i32);
    CHECK(out == 6);
    std::int32_t all[4];
    comm.all_gather(&in, all, 1, datatype::i32);
    CHECK(all[3] == 3);
    comm.broadcast(&in, 1, datatype::i32, 2);
    CHECK(in == 2);
  });
}

TEST_CASE("asynchronous forms overlap, in any order of waiting") {
  troupe::engine engine;
  engine.run(3, [](communicator& comm) {
    std::vector<std::vector<std::int64_t>> data;
    std::vector<troupe::request> requests;
    for (int i = 0; i < 100; ++i) data.push_back(std::vector<std::int64_t>(17, i + comm.rank()));
    for (auto& one : data) requests.push_back(comm.all_reduce_async(one));
    for (std::size_t i = requests.size(); i-- > 0;) {
      requests[i].wait();
      CHECK(requests[i].done());
      CHECK(requests[i].test());
      CHECK_FALSE(requests[i].status());
      CHECK(data[i] == std::vector<std::int64_t>(17, 3 * static_cast<std::int64_t>(i) + 3));
    }
  });
}

TEST_CASE("test and wait_for make progress on the calling thread alone") {
  troupe::engine_options options;
  options.workers = 0;
  troupe::engine engine(options);
  auto comms = engine.communicators(2);
  std::vector<float> a(100, 1), b(100, 2);
  troupe::request first = comms[0].all_reduce_async(a);
  for (int i = 0; i < 100; ++i) CHECK_FALSE(first.test());
  CHECK_FALSE(first.wait_for(std::chrono::milliseconds(1)));
  CHECK_FALSE(first.wait_for(std::chrono::nanoseconds(-1)));
  CHECK_FALSE(first.done());
  troupe::request second = comms[1].all_reduce_async(b);
  CHECK(second.wait_for(std::chrono::nanoseconds::max()));
  while (!first.test()) {}
  CHECK(a == b);
  CHECK(a[99] == 3);
}

TEST_CASE("an empty request is done") {
  troupe::request nothing;
  CHECK(nothing.done());
  CHECK(nothing.test());
  CHECK(nothing.wait_for(std::chrono::seconds(0)));
  nothing.wait();
  nothing.cancel();
  CHECK_FALSE(nothing.try_wait());
  CHECK_FALSE(nothing.status());
  CHECK(nothing.message().empty());
  bool called = false;
  nothing.then([&](std::error_code e) { called = !e; });
  CHECK(called);
}

TEST_CASE("a callback hears of the end once, also when it comes late, and may start the next operation") {
  troupe::engine engine;
  auto comms = engine.communicators(2);
  std::vector<std::int32_t> a(8, 1), b(8, 2);
  std::atomic<int> calls{0};
  troupe::request next;
  std::atomic<bool> started{false};
  auto first = comms[0].all_reduce_async(a);
  first.then([&](std::error_code e) {
    if (!e) ++calls;
    next = comms[0].all_reduce_async(a);
    started = true;
  });
  auto second = comms[1].all_reduce_async(b);
  second.wait();
  comms[1].all_reduce(b);
  while (!started) std::this_thread::yield();
  next.wait();
  CHECK(a == std::vector<std::int32_t>(8, 6));
  CHECK(b == a);
  first.then([&](std::error_code e) {
    if (!e) ++calls;
  });
  CHECK(calls == 2);
}

TEST_CASE("a request may be dropped; the operation goes on") {
  troupe::engine engine;
  engine.run(4, [](communicator& comm) {
    std::vector<float> data(1000, 1);
    static_cast<void>(comm.all_reduce_async(data));
    comm.barrier();
    // Operations of a rank complete in any order, so the barrier alone would not do.
    std::vector<float> again(1, 1);
    auto last = comm.all_reduce_async(data);
    last.wait();
    CHECK(data[0] == doctest::Approx(16));
  });
}

// -- special numbers --------------------------------------------------------------------------------------------------

TEST_CASE("infinities, NaN and negative zero come through reductions") {
  troupe::engine engine;
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const std::string& choreography : offering(collective::all_reduce)) {
    auto comms = engine.communicators(4);
    const auto all_reduce = [&](std::vector<std::vector<double>> in, const op& with) {
      troupe::group together;
      call_options options;
      options.choreography = choreography;
      for (std::size_t r = 0; r < 4; ++r) comms[r].all_reduce_async(together, in[r], with, options);
      together.wait();
      for (std::size_t r = 1; r < 4; ++r)
        CHECK(std::memcmp(in[r].data(), in[0].data(), in[0].size() * sizeof(double)) == 0);
      return in[0];
    };
    INFO(choreography);
    std::vector<double> s;
    try {
      s = all_reduce({{infinity, infinity, 1, -0.0}, {1, -infinity, nan, -0.0}, {1, 1, 1, -0.0}, {1, 1, 1, -0.0}},
                     troupe::sum);
    } catch (const troupe::error& e) {
      CHECK(e.code_value() == errc::unsupported);
      continue;
    }
    CHECK(s[0] == infinity);
    CHECK(std::isnan(s[1]));
    CHECK(std::isnan(s[2]));
    CHECK(s[3] == 0);
    CHECK(std::signbit(s[3]));  // nothing was added to an initial +0
    const auto low = all_reduce({{1, 0.0, infinity}, {nan, -0.0, 2}, {1, 0.0, 3}, {1, 0.0, infinity}}, troupe::minimum);
    CHECK(std::isnan(low[0]));
    CHECK(std::signbit(low[1]));
    CHECK(low[2] == 2);
    const auto high =
        all_reduce({{1, 0.0, infinity}, {nan, -0.0, 2}, {1, -0.0, 3}, {1, -0.0, infinity}}, troupe::maximum);
    CHECK(std::isnan(high[0]));
    CHECK_FALSE(std::signbit(high[1]));
    CHECK(high[2] == infinity);
  }
}

TEST_CASE("one rank alone: copies, averages and scales as always") {
  troupe::engine engine;
  auto comms = engine.communicators(1);
  for (const datatype type : {datatype::i32, datatype::bf16, datatype::f64})
    for (const op_kind kind : {op_kind::sum, op_kind::avg, op_kind::pre_mul_sum, op_kind::land})
      for (const collective what : all_collectives)
        for (const bool in_place : {false, true}) {
          job j = uniform(what, 1, 9, type);
          j.reduction = op_of(kind);
          j.in_place = in_place;
          INFO(to_string(j));
          CHECK(wrong_bytes(comms, j) == 0);
        }
}

TEST_CASE("pre_mul_sum: every rank has a factor of its own") {
  troupe::engine engine;
  engine.run(3, [](communicator& comm) {
    std::vector<float> data(5, 1);
    comm.all_reduce(data, troupe::pre_mul_sum(comm.rank() + 0.5));
    CHECK(data == std::vector<float>(5, 4.5f));
  });
  // Some results of scans are one rank's contribution alone: no sum has scaled them.
  for (const int ranks : {2, 3, 8})
    for (const bool exclusive : {true, false}) {
      CAPTURE(ranks);
      CAPTURE(exclusive);
      engine.run(ranks, [&](communicator& comm) {
        std::vector<float> in(5, 1), out(5, -1);
        const auto factor = troupe::pre_mul_sum(comm.rank() + 0.5);
        if (exclusive) comm.exscan(in, out, factor);
        else comm.scan(in, out, factor);
        float wanted = exclusive ? -1 : 0.5f;  // exscan leaves rank 0's output alone
        for (int r = exclusive ? 0 : 1; r < comm.rank() + (exclusive ? 0 : 1); ++r)
          wanted = (r == 0 ? 0 : wanted) + static_cast<float>(r) + 0.5f;
        CHECK(out == std::vector<float>(5, wanted));
      });
    }
}

// -- size -------------------------------------------------------------------------------------------------------------

TEST_CASE("more than 2^31 elements") {
  [[maybe_unused]] constexpr std::size_t count = (std::size_t{1} << 31) + 17;
  std::size_t available = 0;
  if (std::FILE* f = std::fopen("/proc/meminfo", "r")) {
    char line[256];
    while (std::fgets(line, sizeof line, f))
      if (std::sscanf(line, "MemAvailable: %zu kB", &available) == 1) break;
    std::fclose(f);
  }
#if defined(__SANITIZE_ADDRESS__)
  MESSAGE("skipped: too slow under a sanitizer");
#else
  if (available < std::size_t{12} << 20) {
    MESSAGE("skipped: needs 12 GiB of free memory");
    return;
  }
  troupe::engine engine;
  troupe::large_vector<std::uint8_t> from(count), to(count);  // a million small pages take seconds to come
  for (std::size_t i = 0; i < count; i += 1021) from[i] = static_cast<std::uint8_t>(1 + i % 251);
  from[count - 1] = 77;
  auto comms = engine.communicators(2);
  troupe::group together;
  comms[0].broadcast_async(together, from.data(), from.size(), datatype::u8, 0);
  comms[1].broadcast_async(together, to.data(), to.size(), datatype::u8, 0);
  together.wait();
  CHECK(from == to);
#endif
}
