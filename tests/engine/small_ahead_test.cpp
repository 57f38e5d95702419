// SPDX-License-Identifier: Apache-2.0
// Rooted collectives that run ahead of their agreement (agreement eager): how far, and that a disagreement is told all the same.

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/engine/small_operations.hpp"

using namespace engine_tests;
using namespace std::chrono_literals;

namespace {

using words = std::vector<std::int32_t>;

troupe::engine_options with(troupe::agreement_time when) {
  troupe::engine_options o = over("ll128");
  o.agreement = when;
  o.deadline = 20s;  // so that what does not run ahead fails, and does not hang
  return o;
}
constexpr auto eager = troupe::agreement_time::eager, strict = troupe::agreement_time::strict;

/// What every rank gets for the same operation that comes too late.
void check_told(const std::vector<seen>& all, const std::vector<std::string>& parts) {
  for (const seen& one : all) {
    INFO(one.text);
    CHECK(one.code == errc::mismatch);
    CHECK(one.text == all[0].text);
    for (const std::string& part : parts) {
      INFO("expected: " << part);
      CHECK(contains(one.text, part));
    }
  }
}

}  // namespace

TEST_CASE("ahead: one rank's calls succeed before the other has called, and the other gets every one of them") {
  for (const collective what : {collective::broadcast, collective::scatter, collective::reduce, collective::gather}) {
    CAPTURE(name(what));
    const bool from_root = what == collective::broadcast || what == collective::scatter;
    const std::size_t fast = from_root ? 0 : 1, slow = 1 - fast;
    troupe::engine engine{with(eager)};
    auto comms = engine.communicators(2);
    words in[2] = {words(2), words(2)}, out[2] = {words(2), words(2)};
    const auto call = [&](std::size_t r, std::int32_t value) {
      in[r] = {value, value + 100};
      if (what == collective::broadcast) comms[r].broadcast(in[r], out[r], 0);
      if (what == collective::reduce) comms[r].reduce(in[r], out[r], troupe::sum, 0);
      if (what == collective::scatter) comms[r].scatter(in[r].data(), out[r].data(), 1, datatype::i32, 0);
      if (what == collective::gather) comms[r].gather(in[r].data(), out[r].data(), 1, datatype::i32, 0);
    };
    for (std::int32_t i = 0; i < 30; ++i) call(fast, i);
    for (std::int32_t i = 0; i < 30; ++i) {
      call(slow, 1000 + i);
      if (what == collective::broadcast) CHECK(out[1] == words{i, i + 100});
      if (what == collective::scatter) CHECK(out[1][0] == i + 100);
      if (what == collective::reduce) CHECK(out[0] == words{1000 + 2 * i, 1200 + 2 * i});
      if (what == collective::gather) CHECK(out[0] == words{1000 + i, i});
    }
  }
}

TEST_CASE("ahead: a rank runs no further ahead than the slots have room, and every 65th call waits for everybody") {
  troupe::engine engine{with(eager)};
  auto comms = engine.communicators(2);
  words a(2, 1), b(2);
  std::vector<troupe::request> sent;
  for (int i = 0; i < 40; ++i) sent.push_back(comms[0].broadcast_async(a, 0));
  for (int i = 0; i < 5; ++i) static_cast<void>(sent.back().wait_for(1ms));
  CHECK(sent[31].done());
  CHECK_FALSE(sent[32].done());
  for (int i = 0; i < 40; ++i) comms[1].broadcast(b, 0);
  for (troupe::request& r : sent) r.wait();
  // 40 in a row so far.
  for (int i = 40; i < 64; ++i) comms[0].broadcast(a, 0), comms[1].broadcast(b, 0);
  troupe::request last = comms[0].broadcast_async(a, 0);
  CHECK_FALSE(last.wait_for(20ms));
  comms[1].broadcast(b, 0);
  last.wait();
  comms[0].broadcast(a, 0);
  comms[1].broadcast(b, 0);
}

TEST_CASE(
    "ahead: in gather_v and scatter_v whoever only gives small blocks does not wait for the other, a few calls long") {
  for (const bool gathers : {false, true}) {
    CAPTURE(gathers);
    troupe::engine engine{with(eager)};
    auto comms = engine.communicators(2);
    const std::size_t fast = gathers ? 1 : 0, slow = 1 - fast;
    // Call i has i + 1 elements for rank 1, or of it; some are too many for a copy.
    const auto counts_of = [](std::size_t i) { return std::vector<std::size_t>{1, i == 6 ? 5000 : i + 1}; };
    std::vector<words> in[2], out[2];
    for (const std::size_t r : {0u, 1u})
      for (std::size_t i = 0; i < 20; ++i) {
        in[r].push_back(words(counts_of(i)[0] + counts_of(i)[1], static_cast<std::int32_t>(100 * i + r)));
        out[r].push_back(words(in[r].back().size(), -1));
      }
    const auto start = [&](std::size_t r, std::size_t i) {
      const troupe::block_list blocks{counts_of(i)};
      if (gathers)
        return comms[r].start(
            troupe::calls::gather_v(in[r][i].data(), blocks.counts[r], out[r][i].data(), blocks, datatype::i32, 0));
      return comms[r].start(
          troupe::calls::scatter_v(in[r][i].data(), blocks, out[r][i].data(), blocks.counts[r], datatype::i32, 0));
    };
    for (std::size_t i = 0; i < 6; ++i) start(fast, i).wait();
    std::vector<troupe::request> later;
    for (std::size_t i = 6; i < 20; ++i) later.push_back(start(fast, i));
    CHECK_FALSE(later.front().wait_for(20ms));
    for (std::size_t i = 0; i < 20; ++i) start(slow, i).wait();
    for (troupe::request& r : later) r.wait();
    for (std::size_t i = 0; i < 20; ++i) {
      const words got = out[slow][i];
      const auto given = static_cast<std::int32_t>(100 * i + fast);
      if (gathers) CHECK(got.front() == static_cast<std::int32_t>(100 * i));
      CHECK(got.back() == (gathers ? given : -1));
      CHECK(got[gathers ? 1 : 0] == given);
    }
  }
}

TEST_CASE("ahead: strict calls do not, by the engine's options or their own") {
  for (const bool own : {false, true}) {
    troupe::engine engine{with(own ? eager : strict)};
    auto comms = engine.communicators(2);
    words a(2, 1), b(2);
    call_options options;
    if (own) options.agreement = strict;
    troupe::request r = comms[0].broadcast_async(a, 0, options);
    CHECK_FALSE(r.wait_for(20ms));
    comms[1].broadcast(b, 0, options);
    r.wait();
    // The other way round: asked for against the engine's options.
    call_options ahead;
    ahead.agreement = eager;
    comms[0].broadcast(a, 0, ahead);
    comms[1].broadcast(b, 0, ahead);
    CHECK(b == a);
  }
}

TEST_CASE("ahead: ranks that called different things are told so with a later call of any kind, and all of them") {
  using later_call = std::function<void(communicator&)>;
  const std::vector<std::pair<std::string, later_call>> later = {
      {"over slots", [](communicator& c) { c.barrier(); }},
      {"over the direct board",
       [](communicator& c) {
         std::vector<float> many(100'000);
         call_options o;
         o.protocol = troupe::message_protocol::direct;
         c.all_reduce(many, troupe::sum, o);
       }},
      {"by mailbox",
       [](communicator& c) {
         words few(3);
         call_options o;
         o.protocol = troupe::message_protocol::simple;
         c.all_reduce(few, troupe::sum, o);
       }},
      {"v-form",
       [](communicator& c) {
         words in(1), out(3);
         c.all_gather_v(in, out, troupe::block_list{{1, 1, 1}});
       }},
      {"outcome", [](communicator& c) { static_cast<void>(c.outcome(std::error_code{})); }},
      {"ahead, too",
       [](communicator& c) {
         words data(2);
         for (int i = 0; i < 70; ++i) c.broadcast(data, 1);
       }},
  };
  for (const auto& each : later)
    for (const int kind : {0, 1, 2}) {
      const std::string& how = each.first;
      const later_call& next = each.second;
      CAPTURE(how);
      CAPTURE(kind);
      troupe::engine engine{with(eager)};
      std::vector<seen> all(3), after(3);
      const seen told = error_of([&] {
        engine.run(3, [&](communicator& c) {
          const auto r = static_cast<std::size_t>(c.rank());
          words data(2, c.rank()), all_data(6);
          c.broadcast(data, 0);
          // Nobody expects a message of whoever calls something else, so each of these succeeds or fails by itself.
          try {
            if (c.rank() == 1 && kind == 0) c.broadcast(data, 1);
            else if (c.rank() == 1 && kind == 1) c.gather(data.data(), all_data.data(), 2, datatype::i32, 2);
            else if (c.rank() == 1 && kind == 2) c.reduce(data, data, troupe::sum, 2);
            else c.broadcast(data, 0);
          } catch (const troupe::error&) {}
          all[r] = error_of([&] { next(c); });
          after[r] = error_of([&] { c.barrier(); });
        });
      });
      check_told(all, {"operation #1", "ranks called different operations", "broadcast(count 2, i32, root 0)"});
      check_told(after, {"operation #1"});
      CHECK(told.code == errc::ok);  // each rank has heard of it
    }
}

TEST_CASE("ahead: at the end of a run the last calls are compared, too") {
  troupe::engine engine{with(eager)};
  const seen told = error_of([&] {
    engine.run(2, [](communicator& c) {
      words data(2, c.rank());
      c.broadcast(data, c.rank());
    });
  });
  INFO(told.text);
  CHECK(told.code == errc::mismatch);
  CHECK(contains(told.text, "rank 0: broadcast(count 2, i32, root 0)"));
  CHECK(contains(told.text, "rank 1: broadcast(count 2, i32, root 1)"));
  // Nothing is left of it.
  engine.run(2, [](communicator& c) {
    words data(2, c.rank());
    c.broadcast(data, 1);
    CHECK(data[0] == 1);
  });
}

TEST_CASE("ahead: a rank whose call is refused, when others have performed theirs") {
  troupe::engine engine{with(eager)};
  auto comms = engine.communicators(2);
  words a(2, 7);
  comms[0].broadcast(a, 0);
  const seen mine = error_of([&] { comms[1].broadcast(static_cast<void*>(nullptr), 2, datatype::i32, 0); });
  CHECK(mine.code == errc::null_buffer);
  troupe::request other = comms[1].barrier_async();
  const seen told = error_of([&] { comms[0].barrier(); });
  INFO(told.text);
  CHECK((told.code == errc::peer_refused || told.code == errc::mismatch));
  CHECK(contains(told.text, "rank 1"));
  CHECK(other.try_wait() != std::error_code{});
}

TEST_CASE("ahead: cancels and deadlines are nobody's disagreement") {
  troupe::engine engine{with(eager)};
  auto comms = engine.communicators(2);
  for (int i = 0; i < 40; ++i) {
    words a(2, 7), b(2);
    const bool sender_first = i % 2 == 0;
    if (sender_first) comms[0].broadcast(a, 0);
    call_options hasty;
    if (i % 4 < 2) hasty.deadline = 1us;
    troupe::request given_up = comms[1].broadcast_async(b, 0, hasty);
    if (i % 4 >= 2) given_up.cancel();
    static_cast<void>(given_up.try_wait());
    if (!sender_first) static_cast<void>(comms[0].broadcast_async(a, 0).try_wait());
    troupe::request sum_of = comms[0].all_reduce_async(a);
    b = {1, 1};
    comms[1].all_reduce(b);
    sum_of.wait();
    CHECK(a == words{8, 8});
  }
}
