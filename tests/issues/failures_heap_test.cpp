// SPDX-License-Identifier: Apache-2.0
// Operations that fail left something behind: 850 bytes each over slots, 250–350 bytes each where a deadline passed and the other rank never
// called. And unmatched sends that nobody waits for were not bounded; later neither were collectives. Where each had a tag of its own, each
// kept its reason at the other end, and each tag a place for reasons.

#include <doctest/doctest.h>

#include <troupe.hpp>

#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/issues/heap_use.hpp"

using namespace troupe;
using namespace std::chrono_literals;

namespace {

constexpr std::ptrdiff_t flat = 16 * 1024;

call_options over(const std::string& protocol, std::chrono::nanoseconds deadline = 20s) {
  call_options o;
  o.protocol = *parse_message_protocol(protocol);
  o.deadline = deadline;
  return o;
}

const op& bad_sum() {
  static const op bad = user_op(
      [](const void*, const void*, void*, std::size_t, datatype, void*) { throw std::runtime_error("no such sum"); });
  return bad;
}

}  // namespace

TEST_CASE("operations that fail leave nothing behind") {
  for (const std::string protocol : {"ll", "direct", "simple"}) {
    CAPTURE(protocol);
    engine e;
    auto comms = e.communicators(2);
    std::vector<float> a(64), b(64);
    int failures = 0;
    const auto grown = issues::growth(400, [&] {
      group both;
      request x = comms[0].all_reduce_async(both, a, bad_sum(), over(protocol));
      request y = comms[1].all_reduce_async(both, b, bad_sum(), over(protocol));
      try {
        both.wait();
      } catch (const error&) {}
      failures += x.try_wait() != std::error_code{};
      failures += y.try_wait() != std::error_code{};
      // Not all fail: what is kept must not depend on the gaps.
      comms[0].all_reduce_async(both, a, sum, over(protocol)), comms[1].all_reduce_async(both, b, sum, over(protocol));
      both.wait();
    });
    CHECK(failures == 2 * 400 * issues::growth_rounds);
    CHECK(grown < flat);
    group both;
    comms[0].all_reduce_async(both, a), comms[1].all_reduce_async(both, b);
    both.wait();
  }
}

TEST_CASE(
    "collectives that time out while another rank does not call: the heap stays flat, and that rank hears of each") {
  for (const std::string protocol : {"ll", "simple"}) {
    CAPTURE(protocol);
    engine e;
    auto comms = e.communicators(2);
    std::vector<float> a(64), b(64);
    constexpr int many = 400;
    int failures = 0;
    const auto grown = issues::growth(many, [&] {
      failures += comms[0].all_reduce_async(a, sum, over(protocol, 1us)).try_wait() == make_error_code(errc::timed_out);
    });
    CHECK(failures == issues::growth_rounds * many);
    CHECK(grown < flat);
    for (int i = 0; i < issues::growth_rounds * many; ++i) {
      request late = comms[1].all_reduce_async(b, sum, over(protocol));
      CHECK(late.try_wait() == make_error_code(errc::timed_out));
      CHECK(late.message().find("deadline") != std::string::npos);
    }
    group both;
    comms[0].all_reduce_async(both, a), comms[1].all_reduce_async(both, b);
    both.wait();
  }
}

TEST_CASE("sends and receives that time out alone: the heap stays flat, and the other end hears of each") {
  engine e;
  auto comms = e.communicators(2);
  std::vector<float> a(64, 1), b(64);
  constexpr int many = 400;
  for (const bool sending : {true, false}) {
    CAPTURE(sending);
    int failures = 0;
    const auto grown = issues::growth(many, [&] {
      request r = sending ? comms[0].send_async(a, 1, over("", 1us)) : comms[1].recv_async(b, 0, over("", 1us));
      failures += r.try_wait() == make_error_code(errc::timed_out);
    });
    CHECK(failures == issues::growth_rounds * many);
    CHECK(grown < flat);
    for (int i = 0; i < issues::growth_rounds * many; ++i) {
      request late = sending ? comms[1].recv_async(b, 0, over("")) : comms[0].send_async(a, 1, over(""));
      CHECK(late.try_wait() == make_error_code(errc::timed_out));
    }
    request s = comms[0].send_async(a, 1), r = comms[1].recv_async(b, 0);
    s.wait(), r.wait();
    CHECK(a == b);
  }
}

TEST_CASE("calls that one rank refuses again and again while the others do nothing: the heap stays flat, and they hear "
          "of each") {
  engine e;
  auto comms = e.communicators(2);
  std::vector<float> a(64), b(64);
  constexpr int many = 400;
  int refused = 0;
  const auto grown = issues::growth(many, [&] {
    try {
      comms[0].all_reduce(static_cast<float*>(nullptr), b.data(), 64, datatype::f32, sum);
    } catch (const error& problem) {
      refused += problem.code_value() == errc::null_buffer;
    }
  });
  CHECK(refused == issues::growth_rounds * many);
  CHECK(grown < flat);
  for (int i = 0; i < refused; ++i) {
    request late = comms[1].all_reduce_async(b, sum);
    CHECK(late.try_wait() == make_error_code(errc::peer_refused));
    CHECK(late.message().find("rank 0 refused its call: rank 0: all_reduce: input is null") != std::string::npos);
    // An operation whose reason is another call's has that in its text.
    if (late.message().find("as many others did, of which the first was") == std::string::npos)
      CHECK(late.message().find("operation #" + std::to_string(i) + ' ') != std::string::npos);
  }
  group both;
  comms[0].all_reduce_async(both, a), comms[1].all_reduce_async(both, b);
  both.wait();
}

TEST_CASE(
    "sends of many tags that time out alone: their reasons are bounded, and gone when the other end has heard of all") {
  engine e;
  auto comms = e.communicators(2);
  std::vector<float> a(64, 1), b(64);
  constexpr int tags = 500, each = 8;
  const auto tagged = [](int i, std::chrono::nanoseconds deadline = 20s) {
    call_options o = over("", deadline);
    o.tag = 1 + i % tags;
    return o;
  };
  const auto ends_late = [&](request r) { return r.try_wait() == make_error_code(errc::timed_out); };
  const auto round = [&] {
    int failed = 0;
    for (int i = 0; i < each * tags; ++i) failed += ends_late(comms[0].send_async(a, 1, tagged(i, 1us)));
    CHECK(failed == each * tags);
    const std::size_t kept = issues::heap_use();
    for (int i = 0; i < each * tags; ++i) CHECK(ends_late(comms[1].recv_async(b, 0, tagged(i))));
    return kept;
  };
  round();  // each tag has its numbers now
  const std::size_t before = issues::heap_use();
  const std::size_t kept = round();
  CHECK(static_cast<std::ptrdiff_t>(kept - before) < tags * 200);
  CHECK(static_cast<std::ptrdiff_t>(issues::heap_use() - before) < flat);
  request s = comms[0].send_async(a, 1, tagged(0)), r = comms[1].recv_async(b, 0, tagged(0));
  s.wait(), r.wait();
  CHECK(a == b);
}

TEST_CASE("sends that nobody receives are refused when they are too many, and go on when some were received") {
  engine e;
  auto comms = e.communicators(2);
  std::vector<float> a(4, 1), b(4);
  std::vector<request> sent;
  std::string refusal;
  for (int i = 0; i < 100'000 && refusal.empty(); ++i) {
    try {
      sent.push_back(comms[0].send_async(a, 1));
    } catch (const error& problem) {
      CHECK(problem.code_value() == errc::out_of_memory);
      refusal = problem.what();
    }
  }
  CHECK(refusal.find("wait for some") != std::string::npos);
  CHECK(sent.size() >= 1000);
  for (std::size_t i = 0; i < sent.size(); ++i) comms[1].recv(b, 0);
  for (request& r : sent) r.wait();
  comms[0].send_async(a, 1).wait_for(0s);
  comms[1].recv(b, 0);
  CHECK(b == a);
}

TEST_CASE("splits and duplicates that nobody else calls are refused when they are too many") {
  engine e;
  auto comms = e.communicators(2);
  std::vector<communicator> made(8193);
  std::vector<request> called;
  for (std::size_t i = 0; i + 1 < made.size(); ++i)
    called.push_back(i % 2 == 0 ? comms[0].duplicate_async(made[i]) : comms[0].split_async(made[i], 0, 0));
  CHECK_THROWS_WITH_AS(static_cast<void>(comms[0].duplicate_async(made.back())),
                       doctest::Contains("8192 collectives under way or in groups already; wait for some"), error);
  comms[0].abort("enough");
  for (request& r : called) CHECK_THROWS_AS(r.wait(), error);
}

TEST_CASE("collectives that nobody else calls are refused when they are too many; what was refused is no call, and is "
          "called again") {
  for (const std::string protocol : {"ll", "simple"}) {
    CAPTURE(protocol);
    engine e;
    auto comms = e.communicators(2);
    std::vector<float> a(4, 1), b(4, 2);
    std::vector<request> called;
    std::string refusal;
    for (int i = 0; i < 100'000 && refusal.empty(); ++i) {
      try {
        called.push_back(comms[0].broadcast_async(a, 0, over(protocol)));
      } catch (const error& problem) {
        CHECK(problem.code_value() == errc::out_of_memory);
        refusal = problem.what();
      }
    }
    CAPTURE(refusal);
    CHECK(refusal.find("8192 collectives under way or in groups already; wait for some") != std::string::npos);
    CHECK(called.size() >= 8192);
    CHECK(called.size() < 8400);  // the root of the first ones runs ahead
    group in;
    CHECK_THROWS_WITH_AS(static_cast<void>(comms[0].broadcast_async(in, a, 0)),
                         doctest::Contains("under way or in groups already"), error);
    for (std::size_t i = 0; i < called.size(); ++i) comms[1].broadcast(b, 0, over(protocol));
    for (request& r : called) r.wait();
    a.assign(4, 3);
    request again = comms[0].broadcast_async(a, 0, over(protocol));
    comms[1].broadcast(b, 0, over(protocol));
    again.wait();
    CHECK(b == a);
  }
}
