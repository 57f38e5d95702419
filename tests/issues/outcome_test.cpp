// SPDX-License-Identifier: Apache-2.0
// Cancels, deadlines and aborts can leave some ranks with a result and others with an error. outcome() tells every rank how an operation
// ended on each of them.

#include <doctest/doctest.h>

#include <troupe.hpp>

#include <chrono>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

template <class Body>
errc code_of(Body body) {
  try {
    body();
  } catch (const error& e) {
    return e.code_value();
  }
  return errc::ok;
}

}  // namespace

TEST_CASE("outcome: all succeeded, or who did not, and the same on every rank") {
  engine e;
  for (const bool cancel : {false, true}) {
    CAPTURE(cancel);
    std::vector<operation_outcome> told(4);
    std::vector<errc> mine(4);
    for (int round = 0; round < 50; ++round) {
      e.run(4, [&](communicator& c) {
        std::vector<float> data(1000, 1);
        const auto r = static_cast<std::size_t>(c.rank());
        request sum_of = c.all_reduce_async(data);
        if (cancel && c.rank() == 2) sum_of.cancel();
        told[r] = c.outcome(sum_of);
        mine[r] = static_cast<errc>(sum_of.status().value());
        c.barrier();
      });
      for (const operation_outcome& one : told) CHECK(one.of_rank == told[0].of_rank);
      CHECK(told[0].of_rank == mine);
      if (!cancel) CHECK(told[0].all_succeeded());
    }
  }
}

TEST_CASE("outcome: of blocking calls, in a group, and of a single rank") {
  engine e;
  auto comms = e.communicators(3);
  operation_outcome told[3];
  group all;
  const std::error_code said[3] = {{}, make_error_code(errc::timed_out), std::make_error_code(std::errc::io_error)};
  for (std::size_t r = 0; r < 3; ++r) comms[r].outcome_async(all, said[r], told[r]);
  all.wait();
  for (const operation_outcome& one : told) {
    CHECK(one.of_rank == std::vector<errc>{errc::ok, errc::timed_out, errc::aborted});
    CHECK_FALSE(one.all_succeeded());
  }
  e.run(2, [](communicator& c) {
    std::vector<int> data(3, 1);
    c.all_reduce(data);
    CHECK(c.outcome(std::error_code{}).all_succeeded());
  });
  auto alone = e.communicators(1);
  CHECK(alone[0].outcome(std::error_code{}).all_succeeded());
}

TEST_CASE("outcome: what nobody can know is the same error on all, in time") {
  engine e;
  SUBCASE("a rank does not ask: the deadline") {
    auto comms = e.communicators(3);
    operation_outcome told[3];
    request one = comms[0].outcome_async({}, told[0], {.deadline = 20ms});
    request two = comms[1].outcome_async({}, told[1]);
    CHECK(one.try_wait() == make_error_code(errc::timed_out));
    CHECK(two.try_wait() == make_error_code(errc::timed_out));
    CHECK(one.message() == two.message());
    CHECK(one.message().find("rank 2 has not called it") != std::string::npos);
    // A rank that asks too late gets the same.
    request late = comms[2].outcome_async({}, told[2]);
    CHECK(late.try_wait() == make_error_code(errc::timed_out));
    CHECK(late.message() == one.message());
  }
  SUBCASE("a rank leaves") {
    auto comms = e.communicators(2);
    operation_outcome told;
    request one = comms[0].outcome_async({}, told);
    comms.pop_back();
    CHECK(one.try_wait() == make_error_code(errc::rank_missing));
  }
  SUBCASE("they ask about different operations, or one asks nothing") {
    std::vector<errc> codes(2), others(2);
    e.run(2, [&](communicator& c) {
      std::vector<int> data(3, 1);
      request a = c.all_reduce_async(data), b = c.barrier_async();
      a.wait(), b.wait();
      const auto r = static_cast<std::size_t>(c.rank());
      codes[r] = code_of([&] { static_cast<void>(c.outcome(r == 0 ? a : b)); });
      others[r] = code_of([&] { r == 0 ? static_cast<void>(c.outcome(a)) : c.barrier(); });
    });
    CHECK(codes == std::vector<errc>(2, errc::mismatch));
    CHECK(others == std::vector<errc>(2, errc::mismatch));
  }
  SUBCASE("of a send, or of another communicator's operation") {
    auto comms = e.communicators(2), more = e.communicators(2);
    std::vector<int> data(1), in(1);
    request sent = comms[0].send_async(data, 1);
    CHECK(code_of([&] { static_cast<void>(comms[0].outcome(sent)); }) == errc::invalid_argument);
    comms[1].recv(in, 0);
    sent.wait();
    request other = more[0].barrier_async();
    CHECK(code_of([&] { static_cast<void>(comms[0].outcome(other)); }) == errc::invalid_argument);
    more[1].barrier();
    other.wait();
  }
}

TEST_CASE("outcome: its place among what waits for the board") {
  engine e;
  auto comms = e.communicators(2);
  std::vector<float> a(4, 1), b(4, 1);
  operation_outcome told[2];
  // The second small operation waits for the first, and the outcome for both: on one rank only.
  request first = comms[0].all_reduce_async(a), second = comms[0].all_reduce_async(a);
  request asked = comms[0].outcome_async({}, told[0]);
  std::this_thread::sleep_for(10ms);
  CHECK_FALSE(asked.done());
  comms[1].all_reduce(b);
  comms[1].all_reduce(b);
  told[1] = comms[1].outcome(std::error_code{});
  asked.wait();
  first.wait(), second.wait();
  CHECK(told[0].of_rank == told[1].of_rank);
  CHECK(a[0] == 4);
}
