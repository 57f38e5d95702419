// SPDX-License-Identifier: Apache-2.0
// Faults that were found by reading and probing, one test each.

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include <troupe.hpp>

#include "protocols/perform/performer.hpp"
#include "protocols/program/program.hpp"
#include "protocols/score/score_builder.hpp"
#include "protocols/verify/verifier.hpp"

using namespace troupe;
using namespace std::chrono_literals;

namespace {

std::vector<request> barriers(std::vector<communicator>& comms) {
  std::vector<request> all;
  for (communicator& c : comms) all.push_back(c.barrier_async());
  return all;
}

}  // namespace

TEST_CASE("send_recv begins nothing when one of its halves is wrong") {
  engine e;
  auto comms = e.communicators(2);
  std::vector<float> out(100, 7), in(100);
  CHECK_THROWS_AS(comms[0].send_recv(out, 99, in, 1), error);
  // Had the receive been posted, it would take this message's place.
  request sent = comms[1].send_async(out, 0);
  request received = comms[0].recv_async(in, 1);
  received.wait();
  sent.wait();
  CHECK(in == out);
}

TEST_CASE("nothing begins when send_recv or group::wait are called inside a callback") {
  engine e;
  auto comms = e.communicators(2);
  std::vector<float> out(8, 1), in(8);
  std::atomic<int> refused{0};
  std::atomic<bool> called_back{false};
  std::vector<request> all{comms[0].barrier_async()};
  all[0].then([&](std::error_code) {
    try {
      comms[0].send_recv(out, 1, in, 1);
    } catch (const error&) {
      ++refused;
    }
    group together;
    request late = comms[0].send_async(together, out, 1);
    try {
      together.wait();
    } catch (const error&) {
      ++refused;
    }
    called_back = true;
  });
  all.push_back(comms[1].barrier_async());  // only now can the first one end: the callback runs in a handler
  for (request& r : all) r.wait();
  while (!called_back) std::this_thread::yield();
  CHECK(refused == 2);
  request sent = comms[1].send_async(out, 0);
  request received = comms[0].recv_async(in, 1);
  received.wait();
  sent.wait();
  CHECK(in == out);
}

TEST_CASE("one pass is made only of steps on single cells: ranges may overlap in part") {
  // copy a → t, reduce b → t, copy t → x, where x covers a part of b: right step by step, wrong block by block.
  const setup on = flat_setup(collective::reduce_scatter, 2);
  score_builder s{on, "overlap", 2};
  using namespace notation;
  for (rank_t r = 0; r < 2; ++r) {
    auto me = s.lane(r).from(1 - r).to(1 - r);
    s.scratch_blocks(r, {0, 0, 0});
    me.copy(input.cells(0, 2), scratch.cells(0, 2));
    me.copy(input.cells(0, 2), scratch.cells(3, 2));
    me.reduce(scratch.cells(0, 2), scratch.cells(3, 2));
    me.copy(scratch.cells(3, 2), scratch.cells(1, 2));
  }
  const program p = compile(s.draft(), 0, {5000, {}, {}, {}, 4}, {});
  for (const instruction& i : p.lanes[0]) CHECK(i.inputs == 0);
  CHECK(p.lanes[0].size() == 4);
}

TEST_CASE("an engine may be destroyed in a callback") {
  for (const int workers : {1, 0}) {
    engine_options options;
    options.workers = workers;
    auto e = std::make_shared<engine>(options);
    auto comms = e->communicators(2);
    auto all = barriers(comms);
    std::atomic<bool> destroyed{false};
    all[0].then([&destroyed, last = std::move(e)](std::error_code) mutable {
      last.reset();
      destroyed = true;
    });
    for (request& r : all) static_cast<void>(r.try_wait());
    while (!destroyed) std::this_thread::yield();
    CHECK_THROWS_AS(comms[0].barrier(), error);
  }
}

TEST_CASE("an engine is destroyed while a thread waits for a request of a group that is not launched") {
  auto e = std::make_unique<engine>();
  auto comms = e->communicators(2);
  auto together = std::make_unique<group>();
  request never = comms[0].barrier_async(*together);
  std::thread waiter([never]() mutable { CHECK(never.try_wait() == make_error_code(errc::engine_closed)); });
  std::this_thread::sleep_for(20ms);
  e.reset();
  together.reset();  // launches into a closed engine
  waiter.join();
}

TEST_CASE("a user's reduction that throws fails its operation with its text, and the communicator lives") {
  engine e;
  auto comms = e.communicators(3);
  const op bad = user_op(
      [](const void*, const void*, void*, std::size_t, datatype, void*) { throw std::runtime_error("no such sum"); });
  std::vector<std::vector<float>> data(3, std::vector<float>(1000, 1));
  std::vector<request> all;
  for (std::size_t r = 0; r < 3; ++r) all.push_back(comms[r].all_reduce_async(data[r], bad));
  for (request& r : all) {
    CHECK(r.try_wait() == make_error_code(errc::aborted));
    CHECK(r.message().find("no such sum") != std::string::npos);
  }
  all.clear();
  for (std::size_t r = 0; r < 3; ++r) all.push_back(comms[r].all_reduce_async(data[r]));
  for (request& r : all) r.wait();
  CHECK(data[0] == std::vector<float>(1000, 3));
}
