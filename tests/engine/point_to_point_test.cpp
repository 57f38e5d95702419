// SPDX-License-Identifier: Apache-2.0
// Sends and receives: matched by pair and order, whatever else is under way.

#include <doctest/doctest.h>

#include <atomic>
#include <numeric>
#include <thread>

#include "tests/engine/jobs.hpp"

using namespace engine_tests;

namespace {

std::vector<std::int32_t> numbers(std::size_t count, int first) {
  std::vector<std::int32_t> v(count);
  for (std::size_t i = 0; i < count; ++i) v[i] = first + static_cast<std::int32_t>(i);
  return v;
}

template <class Function>
std::string refused(errc code, Function function) {
  try {
    function();
  } catch (const troupe::error& e) {
    INFO(e.what());
    CHECK(e.code_value() == code);
    return e.what();
  }
  CHECK(code == errc::ok);
  return {};
}

}  // namespace

TEST_CASE("a pair, of many sizes, with the data either way") {
  troupe::engine engine;
  engine.run(2, [](communicator& comm) {
    for (const std::size_t count : {0u, 1u, 3u, 1000u, 300'007u}) {
      std::vector<std::int32_t> data = comm.rank() == 0 ? numbers(count, 7) : std::vector<std::int32_t>(count);
      if (comm.rank() == 0) comm.send(data, 1), comm.recv(data, 1);
      else comm.recv(data, 0), comm.send(data, 0);
      CHECK(data == numbers(count, 7));
    }
  });
}

TEST_CASE("messages of a pair are matched in order, those of different pairs are independent") {
  troupe::engine engine;
  auto comms = engine.communicators(3);
  std::vector<std::vector<std::int32_t>> from_one, from_two, out;
  for (int i = 0; i < 50; ++i) {
    from_one.push_back({0});
    from_two.push_back({0, 0});
  }
  std::vector<troupe::request> requests;
  for (std::size_t i = 0; i < 50; ++i) requests.push_back(comms[0].recv_async(from_two[i], 2));
  for (int i = 0; i < 50; ++i) out.push_back({i}), out.push_back({100 + i, i});
  for (std::size_t i = 0; i < 50; ++i) {
    requests.push_back(comms[1].send_async(out[2 * i], 0));
    requests.push_back(comms[2].send_async(out[2 * i + 1], 0));
  }
  for (std::size_t i = 0; i < 50; ++i) requests.push_back(comms[0].recv_async(from_one[i], 1));
  for (auto& r : requests) r.wait();
  for (int i = 0; i < 50; ++i) {
    CHECK(from_one[static_cast<std::size_t>(i)] == std::vector<std::int32_t>{i});
    CHECK(from_two[static_cast<std::size_t>(i)] == std::vector<std::int32_t>{100 + i, i});
  }
}

TEST_CASE("rings with send_recv, also to oneself") {
  troupe::engine engine;
  for (const int ranks : {1, 2, 3, 8, 17})
    engine.run(ranks, [ranks](communicator& comm) {
      const int next = (comm.rank() + 1) % ranks, before = (comm.rank() + ranks - 1) % ranks;
      std::vector<std::int32_t> token = numbers(100, comm.rank()), incoming(100);
      for (int step = 0; step < ranks; ++step) {
        comm.send_recv(token, next, incoming, before);
        token.swap(incoming);
      }
      CHECK(token == numbers(100, comm.rank()));  // once round
      comm.send_recv(token, comm.rank(), incoming, comm.rank());
      CHECK(incoming == token);
      std::vector<double> small(1, comm.rank()), nothing;
      comm.send_recv(nothing, next, nothing, before);
      comm.send_recv_replace(small, next, before, {});
    });
}

TEST_CASE("sends and receives between collectives, in whatever order each rank makes them") {
  troupe::engine engine;
  engine.run(2, [](communicator& comm) {
    std::vector<std::int32_t> sum(10, 1), data = numbers(10, comm.rank());
    std::vector<std::int32_t> got(10);
    if (comm.rank() == 0) {
      auto sending = comm.send_async(data, 1);
      comm.all_reduce(sum);
      sending.wait();
    } else {
      comm.all_reduce(sum);
      comm.recv(got, 0);
      CHECK(got == numbers(10, 0));
    }
    CHECK(sum == std::vector<std::int32_t>(10, 2));
  });
}

TEST_CASE("another size or type is the same error at both ends, and the pair goes on") {
  troupe::engine_options strict;
  strict.agreement = troupe::agreement_time::strict;
  troupe::engine engine(strict);
  engine.run(2, [](communicator& comm) {
    std::vector<float> data(8, 1), less(7);
    std::vector<std::int32_t> integers(8);
    if (comm.rank() == 0) {
      CHECK(refused(errc::mismatch, [&] { comm.send(data, 1); }).find("another count or type") != std::string::npos);
      refused(errc::mismatch, [&] { comm.send(data, 1); });
      comm.send(data, 1);
    } else {
      refused(errc::mismatch, [&] { comm.recv(less, 0); });
      refused(errc::mismatch, [&] { comm.recv(integers, 0); });
      CHECK(less == std::vector<float>(7, 0));
      std::vector<float> right(8);
      comm.recv(right, 0);
      CHECK(right == data);
    }
  });
}

TEST_CASE("a short send ends before it was received, and its receiver alone hears of what is wrong with it") {
  troupe::engine engine;
  auto comms = engine.communicators(2);
  for (const std::size_t count : {1u, 12u, 13u, 256u}) {  // in the head of its slot, and beside it
    CAPTURE(count);
    std::vector<float> data(count), got(count), more(count + 1);
    for (int round = 0; round < 3; ++round) {
      for (const float value : {1.f, 2.f, 3.f, 4.f}) {  // as many as there are slots
        std::fill(data.begin(), data.end(), value);
        comms[0].send(data, 1);
      }
      comms[1].recv(got, 0);
      CHECK(got == std::vector<float>(count, 1));
      refused(errc::mismatch, [&] { comms[1].recv(more, 0); });
      comms[1].recv(got, 0);
      CHECK(got == std::vector<float>(count, 3));
      comms[1].recv(got, 0);
      CHECK(got == std::vector<float>(count, 4));
    }
  }
  std::vector<float> data(257, 5), got(257);
  refused(errc::timed_out, [&] { comms[0].send(data, 1, {.deadline = std::chrono::milliseconds(10)}); });
  refused(errc::timed_out, [&] { comms[1].recv(got, 0); });
  data.resize(3);
  got.resize(3);
  comms[0].send(data, 1);
  std::vector<communicator> rest;
  rest.push_back(std::move(comms[1]));
  comms.clear();  // the sender leaves
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  rest[0].recv(got, 0);
  CHECK(got == data);
  refused(errc::rank_missing, [&] { rest[0].recv(got, 0); });
}

TEST_CASE("who has left as many sends as there are slots waits for the receiver, whoever is slow") {
  troupe::engine engine;
  engine.run(2, [](communicator& comm) {
    std::vector<std::int32_t> data(3), got(3);
    for (int i = 0; i < 3000; ++i) {
      if (comm.rank() == 0) {
        std::fill(data.begin(), data.end(), i);
        if (i % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(7));
        comm.send(data, 1);
      } else {
        if (i % 700 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(7));
        comm.recv(got, 0);
        if (got != std::vector<std::int32_t>(3, i)) FAIL_CHECK("message " << i << " has " << got[0]);
      }
    }
  });
}

TEST_CASE("a peer that left without the matching call is named") {
  troupe::engine engine;
  SUBCASE("run") {
    engine.run(3, [](communicator& comm) {
      std::vector<float> data(8);
      if (comm.rank() == 0) {
        const auto text = refused(errc::rank_missing, [&] { comm.recv(data, 1); });
        CHECK(text.find("rank 1 left the communicator without the matching call") != std::string::npos);
        refused(errc::rank_missing, [&] { comm.send(data, 2, {.agreement = troupe::agreement_time::strict}); });
      }
    });
  }
  SUBCASE("communicators") {
    auto comms = engine.communicators(2);
    std::vector<float> data(8);
    auto waiting = comms[0].recv_async(data, 1);
    comms.pop_back();
    refused(errc::rank_missing, [&] { waiting.wait(); });
  }
  SUBCASE("what it sent before it left arrives") {
    auto comms = engine.communicators(2);
    std::vector<float> data(8, 3), got(8);
    auto sending = comms[1].send_async(data, 0);
    comms.pop_back();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    comms[0].recv(got, 1);
    CHECK(got == data);
    sending.wait();
  }
}

TEST_CASE("cancel and deadline of one end end the other") {
  troupe::engine engine;
  auto comms = engine.communicators(2);
  std::vector<float> data(8, 1), got(8);
  auto sending = comms[0].send_async(data, 1);
  sending.cancel();
  refused(errc::cancelled, [&] { sending.wait(); });
  refused(errc::cancelled, [&] { comms[1].recv(got, 0); });
  call_options options;
  options.deadline = std::chrono::milliseconds(20);
  refused(errc::timed_out, [&] { comms[1].recv(got, 0, options); });
  refused(errc::timed_out, [&] { comms[0].send(data, 1); });
  // Both had their turn in the order of the pair; what comes now is matched again.
  auto again = comms[0].send_async(data, 1);
  comms[1].recv(got, 0);
  again.wait();
  CHECK(got == data);
}

TEST_CASE("every type, at any address") {
  troupe::engine engine;
  auto comms = engine.communicators(2);
  for (const datatype type : troupe::all_datatypes) {
    std::vector<std::byte> out(1001 * troupe::size_of(type) + 1), in(out.size());
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(mix(i));
    troupe::group together;
    comms[0].send_async(together, out.data() + 1, 1001, type, 1);
    comms[1].recv_async(together, in.data() + 1, 1001, type, 0);
    together.wait();
    in[0] = out[0];
    CHECK(in == out);
  }
}

TEST_CASE("messages with tags are matched by their tags, whatever the order of the others") {
  troupe::engine engine;
  auto comms = engine.communicators(2);
  std::vector<std::vector<std::int32_t>> out, in(30);
  std::vector<troupe::request> requests;
  for (int i = 0; i < 30; ++i) out.push_back({i});
  for (std::size_t i = 0; i < 30; ++i)
    requests.push_back(comms[0].send_async(out[i], 1, {.tag = static_cast<int>(i % 3)}));
  for (auto& v : in) v.resize(1);
  // Tag by tag, the last one first.
  for (const std::size_t tag : {2u, 0u, 1u})
    for (std::size_t i = tag; i < 30; i += 3)
      requests.push_back(comms[1].recv_async(in[i], 0, {.tag = static_cast<int>(tag)}));
  for (auto& r : requests) r.wait();
  CHECK(in == out);
}

TEST_CASE("blocking calls with tags, both ways") {
  troupe::engine engine;
  engine.run(2, [](communicator& comm) {
    const int peer = 1 - comm.rank();
    std::vector<std::int32_t> one = numbers(5, comm.rank()), two = numbers(5, 10 + comm.rank()), got(5);
    auto later = comm.send_async(one, peer, {.tag = 65535});
    comm.send_recv(two, peer, got, peer, {.tag = 7});
    CHECK(got == numbers(5, 10 + peer));
    comm.recv(got, peer, {.tag = 65535});
    CHECK(got == numbers(5, peer));
    later.wait();
  });
}

TEST_CASE("tags that are out of range, or not for a send or receive, are refused") {
  troupe::engine engine;
  auto comms = engine.communicators(1);
  std::vector<float> data(3);
  CHECK(refused(errc::invalid_argument, [&] { comms[0].send(data, 0, {.tag = -1}); }).find("between 0 and 65535") !=
        std::string::npos);
  refused(errc::invalid_argument, [&] { comms[0].recv(data, 0, {.tag = 65536}); });
  CHECK(refused(errc::invalid_argument, [&] {
          comms[0].all_reduce(data, troupe::sum, {.tag = 1});
        }).find("for sends and receives") != std::string::npos);
}

TEST_CASE("proc_null is a peer to whom nothing goes and from whom nothing comes, in every form") {
  troupe::engine engine;
  engine.run(3, [](communicator& comm) {
    // A chain with open ends: what people write proc_null for.
    const int before = comm.rank() > 0 ? comm.rank() - 1 : troupe::proc_null;
    const int after = comm.rank() < 2 ? comm.rank() + 1 : troupe::proc_null;
    std::vector<std::int32_t> mine(4, comm.rank()), got(4, -1);
    comm.send_recv(mine, after, got, before);
    CHECK(got == std::vector<std::int32_t>(4, comm.rank() - 1));
    comm.send(mine, troupe::proc_null);
    comm.recv(got, troupe::proc_null);
    CHECK(got == std::vector<std::int32_t>(4, comm.rank() - 1));
    auto r = comm.send_async(mine, troupe::proc_null);
    CHECK(r.done());
    troupe::group together;
    comm.recv_async(together, got, troupe::proc_null);
    comm.send_async(together, mine, troupe::proc_null);
    together.wait();
    auto again = comm.send_init(mine, troupe::proc_null);
    again.run();
    again.start().wait();
    refused(errc::invalid_argument, [&] { comm.send(mine, 3); });
    refused(errc::null_buffer,
            [&] { comm.send(static_cast<const float*>(nullptr), 3, datatype::f32, troupe::proc_null); });
  });
}

TEST_CASE("send_recv in every form, with one range or two") {
  troupe::engine engine;
  auto comms = engine.communicators(3);
  const auto next = [](std::size_t r) { return static_cast<int>((r + 1) % 3); };
  const auto before = [](std::size_t r) { return static_cast<int>((r + 2) % 3); };
  std::vector<std::vector<std::int32_t>> out, in(3), both;
  const auto fill = [&] {
    out.clear(), both.clear();
    for (int r = 0; r < 3; ++r) out.push_back(numbers(500, r)), both.push_back(numbers(500, r));
    for (auto& v : in) v.assign(500, -1);
  };
  const auto write = [](std::vector<std::int32_t>& where, std::size_t r) {
    std::iota(where.begin(), where.end(), static_cast<std::int32_t>(r));
  };
  const auto check = [&] {
    for (std::size_t r = 0; r < 3; ++r) {
      CHECK(in[r] == numbers(500, before(r)));
      CHECK(both[r] == numbers(500, before(r)));
    }
  };
  fill();
  {
    std::vector<troupe::request> requests;
    for (std::size_t r = 0; r < 3; ++r) {
      requests.push_back(comms[r].send_recv_async(out[r], next(r), in[r], before(r)));
      requests.push_back(comms[r].send_recv_replace_async(both[r], next(r), before(r), {.tag = 3}));
    }
    std::atomic<int> told{0};
    for (auto& r : requests) r.then([&](std::error_code e) { told += e ? 100 : 1; });
    for (auto& r : requests) r.wait();
    while (told.load() < 6) std::this_thread::yield();  // possibly a little later
    CHECK(told.load() == 6);
    check();
  }
  fill();
  {
    troupe::group together;
    for (std::size_t r = 0; r < 3; ++r) {
      comms[r].send_recv_async(together, out[r], next(r), in[r], before(r));
      both[r].assign(500, -5);
      comms[r].send_recv_replace_async(together, both[r], next(r), before(r));
      write(both[r], r);  // read at the launch
    }
    together.wait();
    check();
  }
  std::vector<troupe::persistent> one, two;
  for (std::size_t r = 0; r < 3; ++r) {
    one.push_back(comms[r].send_recv_init(out[r], next(r), in[r], before(r)));
    two.push_back(comms[r].send_recv_replace_init(both[r], next(r), before(r)));
  }
  for (int round = 0; round < 3; ++round) {
    for (std::size_t r = 0; r < 3; ++r) {
      write(out[r], r), write(both[r], r);
      in[r].assign(500, -1);
    }
    troupe::group together;
    for (auto& p : one) p.start(together);
    for (auto& p : two) p.start(together);
    together.wait();
    check();
  }
}

TEST_CASE("persistent send_recv, blocking") {
  troupe::engine engine;
  engine.run(2, [](communicator& comm) {
    const int peer = 1 - comm.rank();
    std::vector<std::int32_t> out = numbers(40, comm.rank()), in(40), both = out;
    auto exchange = comm.send_recv_init(out, peer, in, peer);
    auto replace = comm.send_recv_replace_init(both, peer, peer);
    for (int round = 0; round < 20; ++round) {
      exchange.run();
      CHECK(in == numbers(40, peer));
      replace.run();
      CHECK(both == numbers(40, round % 2 == 0 ? peer : comm.rank()));
    }
  });
}

TEST_CASE("a send_recv that is cancelled, out of time or without its other half fails as a whole") {
  troupe::engine engine;
  auto comms = engine.communicators(2);
  std::vector<std::int32_t> out(9, 1), in(9), got(9);
  auto waiting = comms[0].send_recv_async(out, 1, in, 1);
  comms[1].recv(got, 0);  // its send is performed, its receive never
  CHECK(got == out);
  CHECK_FALSE(waiting.done());
  waiting.cancel();
  refused(errc::cancelled, [&] { waiting.wait(); });
  refused(errc::cancelled, [&] { comms[1].send(out, 0); });
  auto late = comms[0].send_recv_async(out, 1, in, 1, {.deadline = std::chrono::milliseconds(10)});
  refused(errc::timed_out, [&] { late.wait(); });
  refused(errc::buffers_overlap, [&] { static_cast<void>(comms[0].send_recv_async(out, 1, out, 1)); });
  {
    troupe::group never;
    auto given_up = comms[0].send_recv_async(never, out, 1, in, 1);
    given_up.cancel();
    never.launch();
    refused(errc::cancelled, [&] { given_up.wait(); });
  }
}

TEST_CASE("by mailbox and over the board alike: sizes, rings, and more threads than cores") {
  for (const char* protocol : {"auto", "simple"}) {
    CAPTURE(protocol);
    troupe::engine_options options;
    options.protocol = protocol;
    troupe::engine engine(options);
    engine.run(9, [](communicator& comm) {
      const int next = (comm.rank() + 1) % 9, before = (comm.rank() + 8) % 9;
      for (const std::size_t count : {0u, 1u, 24u, 25u, 5000u, 16'384u, 70'001u}) {
        for (int round = 0; round < 20; ++round) {
          std::vector<std::int32_t> out = numbers(count, comm.rank() + round), in(count);
          comm.send_recv(out, next, in, before);
          CHECK(in == numbers(count, before + round));
          if (comm.rank() % 3 == 0) comm.send(out, next);
          if (comm.rank() % 3 == 1) comm.recv(in, before);
          if (comm.rank() % 3 == 1) CHECK(in == numbers(count, before + round));
        }
      }
    });
  }
}
