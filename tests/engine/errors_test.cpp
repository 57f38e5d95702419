// SPDX-License-Identifier: Apache-2.0
// What goes wrong is told: the same on every rank, soon, and without a rank that hangs.

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <functional>
#include <future>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "tests/engine/jobs.hpp"

namespace errors_test {

using namespace engine_tests;
using engine_tests::job;  // files that are compiled together with this one may bring troupe's, too
using namespace std::chrono_literals;

namespace {

using blocks = troupe::block_list;

struct seen {
  errc code = errc::ok;
  std::string text;
};

/// What a function throws as troupe::error.
template <class Function>
seen error_of(Function function) {
  try {
    function();
  } catch (const troupe::error& e) {
    return {e.code_value(), e.what()};
  }
  return {};
}

/// Runs the body on every rank's thread and returns what each of them threw.
template <class Body>
std::vector<seen> errors_of(troupe::engine& engine, int ranks, Body body) {
  std::vector<seen> all(static_cast<std::size_t>(ranks));
  engine.run(ranks,
             [&](communicator& comm) { all[static_cast<std::size_t>(comm.rank())] = error_of([&] { body(comm); }); });
  return all;
}

/// Whose rooted collectives do not run ahead of their agreement: small_ahead_test.cpp has the others.
troupe::engine_options strictly() {
  troupe::engine_options o;
  o.agreement = troupe::agreement_time::strict;
  return o;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void check_same(const std::vector<seen>& all, errc code, const std::vector<std::string>& parts) {
  for (const seen& one : all) {
    INFO(one.text);
    CHECK(one.code == code);
    CHECK(one.text == all[0].text);
    for (const std::string& part : parts) {
      INFO("expected: " << part);
      CHECK(contains(one.text, part));
    }
  }
}

}  // namespace

// -- ranks that disagree ----------------------------------------------------------------------------------------------

TEST_CASE("ranks that call different operations all get the same table") {
  troupe::engine engine{strictly()};
  const auto table = [&](auto body, std::vector<std::string> parts) {
    auto all = errors_of(engine, 4, [&](communicator& comm) {
      std::vector<float> in(64, 1), out(64);
      body(comm, in, out);
    });
    check_same(all, errc::mismatch, parts);
  };
  using floats = std::vector<float>;
  SUBCASE("another collective") {
    table(
        [](communicator& c, floats& in, floats& out) { c.rank() == 2 ? c.all_to_all(in, out) : c.all_reduce(in, out); },
        {"ranks 0–1: all_reduce(count 64, f32, sum)", "rank 2: all_to_all(count 16, f32)",
         "rank 3: all_reduce(count 64, f32, sum)", "operation #0"});
  }
  SUBCASE("another count") {
    table([](communicator& c, floats& in,
             floats& out) { c.all_reduce(in.data(), out.data(), c.rank() == 3 ? 63 : 64, datatype::f32); },
          {"rank 3: all_reduce(count 63, f32, sum)"});
  }
  SUBCASE("another type") {
    table([](communicator& c, floats& in,
             floats& out) { c.all_reduce(in.data(), out.data(), 64, c.rank() == 0 ? datatype::i32 : datatype::f32); },
          {"rank 0: all_reduce(count 64, i32, sum)"});
  }
  SUBCASE("another operation") {
    table([](communicator& c, floats& in,
             floats& out) { c.all_reduce(in, out, c.rank() == 1 ? troupe::prod : troupe::sum); },
          {"rank 1: all_reduce(count 64, f32, prod)"});
  }
  SUBCASE("another root") {
    table([](communicator& c, floats& in, floats&) { c.broadcast(in, c.rank() == 1 ? 1 : 0); },
          {"rank 1: broadcast(count 64, f32, root 1)"});
  }
  SUBCASE("another order") {
    table(
        [](communicator& c, floats& in, floats& out) {
          if (c.rank() == 0) c.barrier(), c.all_reduce(in, out);
          else c.all_reduce(in, out), c.barrier();
        },
        {"rank 0: barrier()", "ranks 1–3: all_reduce"});
  }
  SUBCASE("in place here, out of place there") {
    table([](communicator& c, floats& in, floats& out) { c.rank() == 0 ? c.all_reduce(in) : c.all_reduce(in, out); },
          {"rank 0: all_reduce(count 64, f32, sum, in place)"});
  }
  SUBCASE("another determinism level") {
    table(
        [](communicator& c, floats& in, floats& out) {
          call_options options;
          if (c.rank() == 0) options.level = troupe::determinism::topology_stable;
          c.all_reduce(in, out, troupe::sum, options);
        },
        {"rank 0: all_reduce(count 64, f32, sum, topology_stable)"});
  }
  SUBCASE("another forced choreography") {
    table(
        [](communicator& c, floats& in, floats& out) {
          call_options options;
          options.choreography = c.rank() == 0 ? "ring" : "fused";
          c.all_reduce(in, out, troupe::sum, options);
        },
        {"rank 0: all_reduce(count 64, f32, sum, choreography ring)"});
  }
  SUBCASE("all_to_all_v: what one sends is not what the other expects") {
    table(
        [](communicator& c, floats& in, floats& out) {
          std::vector<std::size_t> receive(4, 4);
          if (c.rank() == 2) receive[1] = 5;
          c.all_to_all_v(in, blocks{{4, 4, 4, 4}}, out, blocks{receive});
        },
        {"rank 1 sends 4 elements to rank 2, which expects 5"});
  }
  SUBCASE("gather_v: the root expects another count") {
    table(
        [](communicator& c, floats& in, floats& out) {
          c.gather_v(in.data(), 4, out.data(), c.rank() == 0 ? troupe::block_list{{4, 4, 9, 4}} : troupe::block_list{},
                     datatype::f32, 0);
        },
        {"the root counts 9 elements for rank 2, which counts 4"});
  }
  SUBCASE("all_gather_v: another list") {
    table(
        [](communicator& c, floats& in, floats& out) {
          c.all_gather_v(in, out, blocks{{4, c.rank() == 3 ? std::size_t{5} : std::size_t{4}, 4, 4}});
        },
        {"rank 3: all_gather_v(counts [4, 5, 4, 4], f32)"});
  }
}

TEST_CASE("the communicator goes on after a mismatch") {
  troupe::engine engine{strictly()};
  engine.run(3, [](communicator& comm) {
    std::vector<float> data(10, 1);
    CHECK(error_of([&] { comm.broadcast(data, comm.rank() == 0 ? 0 : 1); }).code == errc::mismatch);
    comm.all_reduce(data);
    CHECK(data == std::vector<float>(10, 3.0f));
  });
}

TEST_CASE("a mismatch leaves outputs of the wrong size alone") {
  troupe::engine engine;
  engine.run(2, [](communicator& comm) {
    std::vector<std::uint8_t> in(1 << 20, 1);
    std::vector<std::uint8_t> out(comm.rank() == 0 ? 1 << 20 : 16);
    CHECK(error_of([&] { comm.all_reduce(in.data(), out.data(), out.size(), datatype::u8); }).code == errc::mismatch);
  });
}

// -- ranks that never come --------------------------------------------------------------------------------------------

TEST_CASE("run: a rank that waits for something else is named at once, without a deadline") {
  troupe::engine engine;
  auto all = errors_of(engine, 4, [&](communicator& comm) {
    std::vector<float> data(8);
    if (comm.rank() == 3) comm.recv(data, 0);  // never sent
    else comm.all_reduce(data);
  });
  for (int r = 0; r < 3; ++r) {
    const seen& one = all[static_cast<std::size_t>(r)];
    INFO(one.text);
    CHECK(one.code == errc::rank_missing);
    // Its own receive may fail first, and then it leaves.
    CHECK((contains(one.text, "rank 3 has not called it, ") ||
           contains(one.text, "rank 3 left the communicator after 0 operations")));
    CHECK(contains(one.text, "ranks 0–2 wait"));
    CHECK(contains(one.text, "all_reduce(count 8, f32, sum, in place)"));
  }
  INFO(all[3].text);
  CHECK(all[3].code == errc::rank_missing);
}

TEST_CASE("run: a rank that returned is named at once") {
  troupe::engine engine;
  auto all = errors_of(engine, 3, [&](communicator& comm) {
    comm.barrier();
    if (comm.rank() != 1) comm.barrier();
  });
  for (int r : {0, 2}) {
    const seen& one = all[static_cast<std::size_t>(r)];
    INFO(one.text);
    CHECK(one.code == errc::rank_missing);
    CHECK(contains(one.text, "rank 1 left the communicator after 1 operation"));
  }
  CHECK(all[1].code == errc::ok);
}

TEST_CASE("run: a rank that only waits for a while, or for somebody outside, is not given up") {
  troupe::engine engine;
  SUBCASE("wait_for") {
    engine.run(2, [](communicator& comm) {
      std::vector<float> data(4, 1), other(4);
      if (comm.rank() == 0) {
        comm.all_reduce(data);
        comm.send(data, 1);
        return;
      }
      auto late = comm.recv_async(other, 0);
      CHECK_FALSE(late.wait_for(400ms));
      comm.all_reduce(data);
      late.wait();
      CHECK(other == std::vector<float>(4, 2));
    });
  }
  SUBCASE("an operation of another communicator, driven from outside") {
    auto outside = engine.communicators(2);
    std::thread helper;
    engine.run(2, [&](communicator& comm) {
      std::vector<float> data(4, 1), theirs(4), ours(4);
      if (comm.rank() == 1) {
        helper = std::thread([&outside] {
          std::this_thread::sleep_for(400ms);
          std::vector<float> own(4);
          outside[1].all_reduce(own);
        });
        outside[0].all_reduce(theirs);
      }
      comm.all_reduce(data, ours);
      CHECK(ours[0] == 2);
    });
    helper.join();
  }
  SUBCASE("an operation of another engine") {
    troupe::engine second;
    auto outside = second.communicators(2);
    std::thread helper;
    engine.run(2, [&](communicator& comm) {
      std::vector<float> data(4, 1), theirs(4), ours(4);
      if (comm.rank() == 1) {
        helper = std::thread([&outside] {
          std::this_thread::sleep_for(400ms);
          std::vector<float> own(4);
          outside[1].all_reduce(own);
        });
        outside[0].all_reduce(theirs);
      }
      comm.all_reduce(data, ours);
      CHECK(ours[0] == 2);
    });
    helper.join();
  }
}

TEST_CASE("communicators: the deadline names who did not come") {
  troupe::engine engine;
  auto comms = engine.communicators(3);
  std::vector<float> data(8);
  call_options options;
  options.deadline = 30ms;
  auto first = comms[0].all_reduce_async(data, troupe::sum, options);
  std::vector<float> other(8);
  auto second = comms[1].all_reduce_async(other, troupe::sum, options);
  const seen a = error_of([&] { first.wait(); }), b = error_of([&] { second.wait(); });
  INFO(a.text);
  CHECK(a.code == errc::timed_out);
  CHECK(a.text == b.text);
  CHECK(contains(a.text, "rank 2 has not called it"));
  CHECK(contains(a.text, "ranks 0 and 1 wait"));
  CHECK(first.try_wait() == std::errc::timed_out);
  CHECK(first.message() == a.text);
  // A rank that comes too late gets the same.
  const seen c = error_of([&] { comms[2].all_reduce(data); });
  CHECK(c.code == errc::timed_out);
  CHECK(c.text == a.text);
  // And the communicator goes on.
  troupe::group together;
  for (auto& comm : comms) comm.barrier_async(together);
  together.wait();
}

TEST_CASE("deadlines of a call, a communicator and an engine; the closer one wins") {
  troupe::engine_options eo;
  eo.deadline = 20ms;
  troupe::engine engine(eo);
  auto comms = engine.communicators(2);
  std::vector<float> data(4);
  SUBCASE("engine") {
    CHECK(error_of([&] { comms[0].all_reduce(data); }).code == errc::timed_out);
  }
  SUBCASE("communicator") {
    comms[0].set_deadline(35ms);
    const seen e = error_of([&] { comms[0].all_reduce(data); });
    INFO(e.text);
    CHECK(e.code == errc::timed_out);
    CHECK(contains(e.text, "35.0 ms"));
  }
  SUBCASE("call") {
    comms[0].set_deadline(1h);
    call_options options;
    options.deadline = 45ms;
    const seen e = error_of([&] { comms[0].all_reduce(data, troupe::sum, options); });
    CHECK(contains(e.text, "45.0 ms"));
  }
  SUBCASE("none, for this communicator") {
    comms[0].set_deadline(std::nullopt);
    comms[1].set_deadline(std::nullopt);
    auto waiting = comms[0].all_reduce_async(data);
    CHECK_FALSE(waiting.wait_for(150ms));
    std::vector<float> other(4);
    comms[1].all_reduce(other);
    waiting.wait();
  }
  SUBCASE("one that passed already, and one beyond all times") {
    call_options options;
    options.deadline = 0ns;
    CHECK(error_of([&] { comms[0].all_reduce(data, troupe::sum, options); }).code == errc::timed_out);
    options.deadline = -5s;
    CHECK(error_of([&] { comms[0].all_reduce(data, troupe::sum, options); }).code == errc::timed_out);
    CHECK(error_of([&] { comms[1].barrier(); }).code == errc::timed_out);
    CHECK(error_of([&] { comms[1].barrier(); }).code == errc::timed_out);
    options.deadline = std::chrono::nanoseconds::max();
    auto waiting = comms[0].all_reduce_async(data, troupe::sum, options);
    CHECK_FALSE(waiting.wait_for(60ms));
    std::vector<float> other(4);
    comms[1].all_reduce(other, troupe::sum, options);
    waiting.wait();
  }
}

// -- arguments that are wrong on one rank -----------------------------------------------------------------------------

TEST_CASE("wrong arguments are refused with a sentence, and the call takes its place") {
  troupe::engine engine;
  auto comms = engine.communicators(4);
  communicator& c = comms[1];
  std::vector<float> a(64), b(64);
  float* const null = nullptr;
  int collectives = 0;
  const auto refused = [&](errc code, const std::string& part, auto body, bool collective = true) {
    collectives += collective;
    const seen e = error_of(body);
    INFO(e.text);
    CHECK(e.code == code);
    CHECK(contains(e.text, part));
  };
  refused(errc::null_buffer, "input is null", [&] { c.all_reduce(null, a.data(), 1, datatype::f32); });
  refused(errc::null_buffer, "output is null", [&] { c.all_reduce(a.data(), null, 1, datatype::f32); });
  refused(
      errc::null_buffer, "null", [&] { c.send(null, 3, datatype::f32, 0); }, false);
  refused(
      errc::null_buffer, "null", [&] { c.recv(null, 3, datatype::f32, 0); }, false);
  refused(errc::bad_root, "root 4 is not a rank of this communicator (0 … 3)", [&] { c.broadcast(a, 4); });
  refused(errc::bad_root, "root -1", [&] { c.reduce(a, b, troupe::sum, -1); });
  refused(
      errc::invalid_argument, "peer 4 is not a rank", [&] { c.send(a, 4); }, false);
  refused(
      errc::invalid_argument, "peer -1 is not a rank", [&] { c.recv(a, -1); }, false);
  refused(errc::buffers_overlap, "overlap", [&] { c.all_reduce(a.data(), a.data() + 1, 8, datatype::f32); });
  refused(errc::buffers_overlap, "overlap",
          [&] { c.all_gather(a.data(), a.data(), 8, datatype::f32); });  // rank 1's place is a + 8
  refused(errc::buffers_overlap, "overlap", [&] { c.all_to_all(a.data() + 4, a.data(), 4, datatype::f32); });
  refused(errc::buffers_overlap, "output blocks of ranks 0 and 1 overlap", [&] {
    c.all_gather_v(b.data(), a.data(), blocks{{4, 4, 4, 4}, {0, 3, 8, 12}}, datatype::f32);
  });
  for (const std::size_t huge : {std::size_t{1} << 62, std::numeric_limits<std::size_t>::max(), std::size_t{1} << 60}) {
    refused(errc::size_overflow, "address space", [&] { c.all_reduce(a.data(), b.data(), huge, datatype::f32); });
    refused(errc::size_overflow, "address space", [&] { c.all_gather(a.data(), b.data(), huge, datatype::f32); });
    refused(errc::size_overflow, "address space", [&] { c.all_to_all(a.data(), b.data(), huge, datatype::u8); });
    refused(
        errc::size_overflow, "address space", [&] { c.send(a.data(), huge, datatype::f32, 0); }, false);
    refused(errc::size_overflow, "address space", [&] {
      c.all_gather_v(a.data(), b.data(), blocks{{huge, 1, 1, 1}}, datatype::f32);
    });
    refused(errc::size_overflow, "address space", [&] {
      c.all_to_all_v(a.data(), blocks{{1, 1, huge, 1}}, b.data(), blocks{{1, 1, 1, 1}}, datatype::f32);
    });
    refused(errc::size_overflow, "address space", [&] {
      c.all_gather_v(a.data(), b.data(), blocks{{1, 1, 1, 1}, {0, huge, 4, 6}}, datatype::f32);
    });
  }
  refused(errc::unsupported_type, "band", [&] { c.all_reduce(a, b, troupe::band); });
  refused(errc::invalid_argument, "function", [&] { c.all_reduce(a, b, troupe::user_op(nullptr)); });
  refused(errc::invalid_argument, "type", [&] { c.all_reduce(a.data(), b.data(), 1, static_cast<datatype>(99)); });
  refused(errc::invalid_argument, "one count per rank (4), not 3", [&] { c.all_gather_v(a, b, blocks{{1, 2, 3}}); });
  refused(errc::invalid_argument, "one displacement per rank (4), not 2", [&] {
    c.all_gather_v(a, b, blocks{{1, 2, 3, 4}, {0, 9}});
  });
  refused(errc::invalid_argument, "one receive count per rank", [&] {
    c.all_to_all_v(a, blocks{{1, 1, 1, 1}}, b, blocks{{1, 1}});
  });
  std::vector<float> small(3);
  refused(errc::invalid_argument, "same size", [&] { c.all_reduce(a, small); });
  refused(errc::invalid_argument, "output has 3 elements but the call needs 256", [&] { c.all_gather(a, small); });
  refused(errc::invalid_argument, "input has 3 elements but the call needs 256", [&] { c.reduce_scatter(small, a); });
  refused(errc::invalid_argument, "multiple of 4", [&] { c.all_to_all(small, small); });
  refused(errc::invalid_argument, "has 3 elements but", [&] { c.all_gather_v(a, small, blocks{{1, 1, 1, 1}}); });
  refused(errc::unsupported, "there is no choreography rign; did you mean ring?", [&] {
    call_options options;
    options.choreography = "rign";
    c.all_reduce(a, b, troupe::sum, options);
  });
  refused(errc::unsupported, "bruck", [&] {
    call_options options;
    options.choreography = "bruck";
    c.all_reduce(a, b, troupe::sum, options);
  });
  // The others are told of each collective, one by one.
  for (communicator& other : comms)
    for (int i = 0; i < collectives && &other != &c; ++i)
      CHECK(error_of([&] { other.barrier(); }).code == errc::peer_refused);
  troupe::group together;
  for (auto& comm : comms) comm.barrier_async(together);
  together.wait();
}

TEST_CASE("gather_v and scatter_v: the caller's own count must be what the list says") {
  troupe::engine engine;
  auto comms = engine.communicators(4);
  std::vector<float> a(64), b(64);
  const auto refused = [&](const std::string& part, auto body) {
    const seen e = error_of(body);
    INFO(e.text);
    CHECK(e.code == errc::invalid_argument);
    CHECK(contains(e.text, part));
  };
  // At the root: 3 elements to give, 5 according to its own list.
  refused("3", [&] { comms[1].gather_v(a.data(), 3, b.data(), blocks{{1, 5, 1, 1}}, datatype::f32, 1); });
  refused("3", [&] { comms[1].scatter_v(a.data(), blocks{{1, 5, 1, 1}}, b.data(), 3, datatype::f32, 1); });
  // Elsewhere: a list that is too short to have this rank's block, or says something else.
  refused("one count per rank (4), not 3", [&] {
    comms[3].gather_v(a.data(), 2, b.data(), blocks{{1, 1, 1}}, datatype::f32, 0);
  });
  refused("one count per rank (4), not 3", [&] {
    comms[3].scatter_v(a.data(), blocks{{1, 1, 1}}, b.data(), 2, datatype::f32, 0);
  });
  refused("2", [&] { comms[3].gather_v(a.data(), 2, b.data(), blocks{{1, 1, 1, 7}}, datatype::f32, 0); });

  // A full list at every rank is compared with the root's: before anybody succeeds, or by the root, and the others hear of it later.
  for (const auto when : {troupe::agreement_time::strict, troupe::agreement_time::eager}) {
    const bool strict = when == troupe::agreement_time::strict;
    std::vector<seen> all(4);
    const seen whole = error_of([&] {
      engine.run(4, [&](communicator& c) {
        std::vector<float> in(16), out(64);
        std::vector<std::size_t> counts(4, 2);
        if (c.rank() == 3) counts[3] = 9;
        call_options options;
        options.agreement = when;
        const auto me = static_cast<std::size_t>(c.rank());
        all[me] =
            error_of([&] { c.gather_v(in.data(), counts[me], out.data(), blocks{counts}, datatype::f32, 0, options); });
      });
    });
    const std::string sentence = "the root counts 2 elements for rank 3, which counts 9";
    INFO(whole.text);
    if (strict) check_same(all, errc::mismatch, {sentence});
    CHECK(all[0].code == errc::mismatch);
    CHECK(contains(all[0].text, sentence));
    CHECK((whole.code == errc::ok || (!strict && whole.code == errc::mismatch)));
  }
  // And gives the right result, whatever displacements the others pass along.
  engine.run(4, [&](communicator& c) {
    std::vector<float> in(2, static_cast<float>(c.rank())), out(64, -1);
    c.gather_v(in, out,
               blocks{{2, 2, 2, 2}, c.rank() == 0 ? std::vector<std::size_t>{9, 6, 3, 0} : std::vector<std::size_t>{7}},
               0);
    if (c.rank() == 0)
      for (std::size_t r = 0; r < 4; ++r) CHECK(out[9 - 3 * r] == static_cast<float>(r));
  });
}

TEST_CASE("an empty communicator refuses everything") {
  communicator nothing;
  CHECK_FALSE(nothing);
  CHECK(nothing.rank() == -1);
  CHECK(nothing.size() == 0);
  CHECK(error_of([&] { nothing.barrier(); }).code == errc::invalid_argument);
  CHECK(error_of([&] { static_cast<void>(nothing.barrier_async()); }).code == errc::invalid_argument);
  troupe::group together;
  CHECK(error_of([&] { nothing.barrier_async(together); }).code == errc::invalid_argument);
  CHECK(error_of([&] { static_cast<void>(nothing.split(0, 0)); }).code == errc::invalid_argument);
  nothing.abort();
  nothing.set_deadline(1s);
}

TEST_CASE("bad engine options and rank counts") {
  const auto code = [](auto change) {
    troupe::engine_options o;
    change(o);
    return error_of([&] { troupe::engine engine(o); });
  };
  CHECK(code([](auto& o) { o.credits = 0; }).code == errc::bad_config);
  CHECK(code([](auto& o) { o.channels = -1; }).code == errc::bad_config);
  CHECK(code([](auto& o) { o.layout = "2x"; }).code == errc::bad_config);
  CHECK(code([](auto& o) { o.choreography = "rign"; }).code == errc::bad_config);
  CHECK(code([](auto& o) { o.stages = "sometimes"; }).code == errc::bad_config);
  CHECK(code([](auto& o) { o.faults.drop = 2; }).code == errc::bad_config);
  CHECK(code([](auto& o) { o.deadline = 0ns; }).code == errc::bad_config);
  troupe::engine engine;
  CHECK(error_of([&] { static_cast<void>(engine.communicators(0)); }).code == errc::invalid_argument);
  CHECK(error_of([&] { engine.run(-3, [](communicator&) {}); }).code == errc::invalid_argument);
  troupe::engine_options o;
  o.layout = "2x2";
  troupe::engine small(o);
  CHECK(error_of([&] { static_cast<void>(small.communicators(5)); }).code == errc::invalid_argument);
}

// -- abort, cancel, destruction ---------------------------------------------------------------------------------------

TEST_CASE("abort from another thread releases who waits, and refuses everything later with the reason") {
  troupe::engine engine;
  auto comms = engine.communicators(3);
  std::vector<float> data(8), other(8);
  auto waiting = comms[0].all_reduce_async(data);
  auto receiving = comms[1].recv_async(other, 2);
  std::thread elsewhere([&] { comms[2].abort("the power went out"); });
  const seen e = error_of([&] { waiting.wait(); });
  elsewhere.join();
  INFO(e.text);
  CHECK(e.code == errc::communicator_aborted);
  CHECK(contains(e.text, "rank 2"));
  CHECK(contains(e.text, "the power went out"));
  CHECK(error_of([&] { receiving.wait(); }).code == errc::communicator_aborted);
  for (auto& comm : comms) {
    const seen later = error_of([&] { comm.barrier(); });
    CHECK(later.code == errc::communicator_aborted);
    CHECK(contains(later.text, "the power went out"));
    CHECK(error_of([&] { comm.send(data, 0); }).code == errc::communicator_aborted);
  }
  CHECK(error_of([&] { static_cast<void>(comms[0].split(0, 0)); }).code == errc::communicator_aborted);
  // Others are not concerned.
  auto others = engine.communicators(2);
  troupe::group together;
  for (auto& comm : others) comm.barrier_async(together);
  together.wait();
}

TEST_CASE("a body that throws: the first exception comes out of run, and nobody hangs") {
  troupe::engine engine;
  std::atomic<int> aborted{0};
  const auto body = [&](communicator& comm) {
    std::vector<float> data(8);
    if (comm.rank() == 2) throw std::domain_error("rank 2 lost its way");
    try {
      comm.all_reduce(data);
    } catch (const troupe::error& e) {
      if (e.code_value() == errc::communicator_aborted && contains(e.what(), "rank 2 lost its way")) ++aborted;
      throw;
    }
  };
  CHECK_THROWS_WITH_AS(engine.run(4, body), "rank 2 lost its way", std::domain_error);
  CHECK(aborted == 3);
  CHECK_THROWS_AS(engine.run(2,
                             [](communicator& c) {
                               if (c.rank() == 0) throw 42;
                               else c.barrier();
                             }),
                  int);
  // In a part of the ranks, too.
  CHECK_THROWS_AS(engine.run(4,
                             [](communicator& c) {
                               communicator half = c.split(c.rank() / 2, 0);
                               if (c.rank() == 3) throw std::out_of_range("gone");
                               half.barrier();
                               c.barrier();
                             }),
                  std::out_of_range);
  engine.run(2, [](communicator& c) { c.barrier(); });
}

TEST_CASE("cancel ends the operation on every rank") {
  troupe::engine engine;
  auto comms = engine.communicators(3);
  std::vector<std::vector<float>> data(3, std::vector<float>(8));
  auto first = comms[0].all_reduce_async(data[0]);
  auto second = comms[1].all_reduce_async(data[1]);
  second.cancel();
  for (auto* r : {&first, &second}) {
    const seen e = error_of([&] { r->wait(); });
    INFO(e.text);
    CHECK(e.code == errc::cancelled);
    CHECK(contains(e.text, "rank 1 cancelled it"));
    CHECK(contains(e.text, "rank 2 has not called it"));
  }
  CHECK(error_of([&] { comms[2].all_reduce(data[2]); }).code == errc::cancelled);
  troupe::group together;
  for (std::size_t r = 0; r < 3; ++r) comms[r].all_reduce_async(together, data[r]);
  together.wait();
  auto done = comms[0].barrier_async();
  auto others = comms[1].barrier_async();
  comms[2].barrier();
  done.wait();
  done.cancel();  // too late: nothing happens
  CHECK_FALSE(done.status());
  others.wait();
}

TEST_CASE("a request of a group can be cancelled before it is launched") {
  troupe::engine engine;
  auto comms = engine.communicators(2);
  std::vector<float> a(4), b(4);
  troupe::group together;
  troupe::request first = comms[0].all_reduce_async(together, a);
  comms[1].all_reduce_async(together, b);
  first.cancel();
  CHECK(error_of([&] { together.wait(); }).code == errc::cancelled);
  CHECK(first.try_wait() == std::errc::operation_canceled);
}

TEST_CASE("cancels during start-up: every operation ends, right or cancelled, and nothing hangs") {
  troupe::engine_options options;
  SUBCASE("whatever the planner takes") {}
  SUBCASE("actors") { options.protocol = "simple"; }
  SUBCASE("slots") { options.protocol = "ll128"; }
  SUBCASE("direct") { options.protocol = "direct"; }
  troupe::engine engine{options};
  auto comms = engine.communicators(4);
  std::vector<std::vector<std::int32_t>> data(4, std::vector<std::int32_t>(500));
  int succeeded = 0, cancelled = 0;
  for (int round = 0; round < 300; ++round) {
    for (auto& d : data) std::fill(d.begin(), d.end(), 1);
    std::vector<troupe::request> requests;
    std::thread canceller;
    for (std::size_t r = 0; r < 4; ++r) {
      requests.push_back(comms[r].all_reduce_async(data[r]));
      if (r == static_cast<std::size_t>(round) % 4)
        canceller = std::thread([mine = requests.back(), round]() mutable {
          for (int i = 0; i < round % 30; ++i) std::this_thread::yield();
          mine.cancel();
        });
      // Now and then for certain before the last rank has called.
      if (canceller.joinable() && round % 10 == 0) canceller.join();
      for (int i = 0; i < round / 10; ++i) std::this_thread::yield();
    }
    for (std::size_t r = 0; r < 4; ++r) {
      const std::error_code e = requests[r].try_wait();
      if (!e) {
        CHECK(data[r] == std::vector<std::int32_t>(500, 4));
        ++succeeded;
      } else {
        CHECK(e == errc::cancelled);
        ++cancelled;
      }
    }
    if (canceller.joinable()) canceller.join();
  }
  CHECK(succeeded + cancelled == 1200);
  CHECK(cancelled > 0);
}

TEST_CASE("destroying the engine releases who waits") {
  auto engine = std::make_unique<troupe::engine>();
  auto comms = engine->communicators(4);
  std::vector<float> data(8), other(8);
  auto polled = comms[2].recv_async(other, 3);
  std::vector<std::future<seen>> waiting;
  std::atomic<int> started{0};
  for (std::size_t r : {0u, 1u})
    waiting.push_back(std::async(std::launch::async, [&, r] {
      std::vector<float> mine(8);
      ++started;
      return error_of([&] { comms[r].all_reduce(mine); });
    }));
  waiting.push_back(std::async(std::launch::async, [&] {
    ++started;
    return error_of([&] { polled.wait(); });
  }));
  while (started < 3) std::this_thread::yield();
  std::this_thread::sleep_for(20ms);
  engine.reset();
  for (auto& w : waiting) {
    const seen e = w.get();
    INFO(e.text);
    CHECK(e.code == errc::engine_closed);
  }
  CHECK(polled.try_wait() == errc::engine_closed);
  CHECK(error_of([&] { polled.test(); }).code == errc::engine_closed);
  CHECK(error_of([&] { comms[0].all_reduce(data); }).code == errc::engine_closed);
  CHECK(error_of([&] { static_cast<void>(comms[1].barrier_async()); }).code == errc::engine_closed);
  CHECK(error_of([&] { static_cast<void>(comms[1].split(0, 0)); }).code == errc::engine_closed);
  comms[0].abort();
  polled.cancel();
}

TEST_CASE("an engine is destroyed with a group that was never launched; a group keeps its ranks until it is launched") {
  std::vector<float> data(8), other(8);
  {
    auto engine = std::make_unique<troupe::engine>();
    auto comms = engine->communicators(2);
    troupe::group together;
    auto r = comms[0].all_reduce_async(together, data);
    comms[1].all_reduce_async(together, other);
    engine.reset();
    CHECK(error_of([&] { together.wait(); }).code == errc::engine_closed);
    CHECK(r.done());
  }
  {
    troupe::engine engine;
    troupe::group together;
    {
      auto comms = engine.communicators(2);
      comms[0].all_reduce_async(together, data);
      comms[1].all_reduce_async(together, other);
    }
    std::this_thread::sleep_for(30ms);
    together.wait();
  }
}

TEST_CASE("engines come and go without leaving anything behind") {
  for (int i = 0; i < 1000; ++i) {
    std::vector<float> a(4, 1), b(4, 1);  // must outlive the operations
    troupe::engine engine;
    auto comms = engine.communicators(2);
    auto first = comms[0].all_reduce_async(a);
    if (i % 3 == 0) continue;  // destroyed with the operation pending
    auto second = comms[1].all_reduce_async(b);
    if (i % 3 == 1) continue;
    first.wait();
    second.wait();
    REQUIRE(a[3] == 2);
  }
}

// -- waiting where one must not ---------------------------------------------------------------------------------------

TEST_CASE("waiting inside a callback is an error of its own, not a deadlock, and harms nobody") {
  for (const int workers : {-1, 0}) {
    troupe::engine_options options;
    options.workers = workers;
    troupe::engine engine(options);
    auto comms = engine.communicators(2);
    std::vector<float> a(4, 1), b(4, 1), more(4), late(4, 1), later(4, 1);
    auto pending = comms[0].recv_async(more, 1);
    std::atomic<int> refused{0};
    auto first = comms[0].all_reduce_async(a);
    const auto refuse = [&](auto body) {
      try {
        body();
      } catch (const troupe::error& e) {
        if (e.code_value() == troupe::errc::invalid_argument) ++refused;
      }
    };
    std::promise<void> told;
    first.then([&](std::error_code) {
      refuse([&] { pending.wait(); });
      refuse([&] { static_cast<void>(pending.wait_for(1s)); });
      refuse([&] { comms[0].all_reduce(late); });
      told.set_value();
    });
    // Once the operation is done the callback runs at once on this thread, where waiting is allowed: so register before.
    comms[1].all_reduce(b);
    first.wait();
    told.get_future().wait();
    CHECK(refused == 3);
    // The refused call took no place in the order.
    auto last = comms[0].all_reduce_async(late);
    comms[1].all_reduce(later);
    last.wait();
    CHECK(late[0] == 2);
    comms[1].send(a, 0);
    pending.wait();
    CHECK(more == a);
  }
}

TEST_CASE("a callback that throws harms neither the rank nor the other callbacks") {
  troupe::engine engine;
  auto comms = engine.communicators(2);
  std::vector<float> a(4, 1), b(4, 1);
  std::atomic<int> calls{0};
  auto first = comms[0].all_reduce_async(a);
  first.then([&](std::error_code) { throw std::runtime_error("oops"); });
  std::promise<void> told;
  first.then([&](std::error_code) {
    ++calls;
    told.set_value();
  });
  comms[1].all_reduce(b);
  told.get_future().wait();
  CHECK(calls == 1);
  auto next = comms[0].all_reduce_async(a);
  comms[1].all_reduce(b);
  next.wait();
  CHECK(a[0] == 4);
}

// -- values that cannot be asked for ----------------------------------------------------------------------------------

TEST_CASE("a call that asks for the NIC's protocol, or for none that there is, is refused") {
  troupe::engine engine;
  for (const int ranks : {1, 2, 3}) {
    const auto n = static_cast<std::size_t>(ranks);
    const auto refused = [&](const troupe::call_options& o, errc code, const std::string& part) {
      const std::vector<std::function<void(communicator&)>> calls{
          [&](communicator& c) { c.barrier(o); },
          [&](communicator& c) {
            c.run(troupe::calls::all_reduce(nullptr, nullptr, 0, datatype::f32, troupe::sum, o));
          },
          [&](communicator& c) {
            std::vector<float> v(4, 1);
            c.all_reduce(v, troupe::sum, o);
          },
          [&](communicator& c) {
            std::vector<float> v(4, 1);
            c.broadcast(v, 0, o);
          },
          [&](communicator& c) {
            std::vector<float> v(4, 1);
            c.scan(v, troupe::sum, o);
          },
          [&](communicator& c) {
            std::vector<float> in(n), out(n);
            c.all_to_all(in, out, o);
          },
          [&](communicator& c) {
            std::vector<float> in(1), out(n);
            c.all_gather_v(in, out, blocks{std::vector<std::size_t>(n, 1)}, o);
          },
          [&](communicator& c) {
            std::vector<float> v(4, 1);
            c.all_reduce_async(v, troupe::sum, o).wait();
          }};
      for (const auto& call : calls)
        for (const seen& one : errors_of(engine, ranks, [&](communicator& c) { call(c); })) {
          INFO(one.text);
          CHECK(one.code == code);
          CHECK(contains(one.text, part));
        }
    };
    refused({.protocol = troupe::message_protocol::nic}, errc::unsupported, "cannot ask for protocol nic");
    refused({.protocol = static_cast<troupe::message_protocol>(7)}, errc::invalid_argument,
            "7 is not one of troupe::message_protocol");
    refused({.level = static_cast<troupe::determinism>(4)}, errc::invalid_argument,
            "4 is not one of troupe::determinism");
    refused({.agreement = static_cast<troupe::agreement_time>(3)}, errc::invalid_argument,
            "3 is not one of troupe::agreement_time");
  }
}

TEST_CASE("values of other enumerations that are no enumerators are refused") {
  troupe::engine engine;
  std::array<float, 2> a{1, 1}, b{};
  const auto of = [&](auto body) { return errors_of(engine, 2, body)[1].text; };
  CHECK(contains(of([&](communicator& c) { c.all_reduce(a.data(), b.data(), 2, static_cast<datatype>(99)); }),
                 "unknown element type"));
  CHECK(contains(of([&](communicator& c) {
                   std::vector<float> v(2);
                   c.all_reduce(v, troupe::op{.kind = static_cast<troupe::op_kind>(99)});
                 }),
                 "operation 99 is not one of troupe::op_kind"));
  CHECK(contains(of([&](communicator& c) {
                   const troupe::call_options o{.agreement = static_cast<troupe::agreement_time>(3)};
                   std::vector<float> v(2);
                   if (c.rank() == 0) c.recv(v, 1);
                   else c.send(v, 0, o);
                 }),
                 "3 is not one of troupe::agreement_time"));
  CHECK_THROWS_WITH(static_cast<void>(troupe::calls::any(static_cast<troupe::collective>(11), nullptr, nullptr, 0,
                                                         datatype::f32, troupe::sum, 0)),
                    "11 is not one of troupe::collective");
  troupe::engine_options o;
  o.level = static_cast<troupe::determinism>(9);
  CHECK_THROWS_WITH(troupe::engine{o}, "level is 9, which is no value of its type");
  CHECK(name(o.level) == "?");
  o = {};
  o.agreement = static_cast<troupe::agreement_time>(9);
  CHECK_THROWS_WITH(troupe::engine{o}, "agreement is 9, which is no value of its type");
}

// -- faults -----------------------------------------------------------------------------------------------------------

TEST_CASE("lost messages and dead actors are told, never waited for") {
  SUBCASE("every chunk is dropped") {
    troupe::engine_options options;
    options.faults.drop = 1;
    options.choreography = "ring";
    troupe::engine engine(options);
    auto all = errors_of(engine, 3, [](communicator& comm) {
      std::vector<float> data(100, 1);
      comm.all_reduce(data);
    });
    check_same(all, errc::message_lost, {"a message was lost"});
  }
  SUBCASE("an actor dies") {
    troupe::engine_options options;
    options.faults.kill_after = 1;
    options.faults.kill_rank = 2;
    options.choreography = "ring";
    troupe::engine engine(options);
    auto all = errors_of(engine, 4, [](communicator& comm) {
      std::vector<float> data(100, 1);
      comm.all_reduce(data);
      comm.all_reduce(data);
    });
    for (const seen& one : all) {
      INFO(one.text);
      CHECK(one.code == errc::actor_lost);
    }
  }
  SUBCASE("delayed, doubled and overtaken messages change nothing") {
    troupe::engine_options options;
    options.faults.delay = 0.2;
    options.faults.duplicate = 0.2;
    options.faults.reorder = 0.2;
    options.faults.seed = seed();
    options.choreography = "ring";
    options.chunk_bytes = 512;
    troupe::engine engine(options);
    auto comms = engine.communicators(4);
    for (int i = 0; i < 20; ++i) {
      job j;
      j.ranks = 4;
      j.count = 2000;
      j.salt = static_cast<std::uint64_t>(i);
      CHECK(wrong_bytes(comms, j) == 0);
    }
  }
}

}  // namespace errors_test
