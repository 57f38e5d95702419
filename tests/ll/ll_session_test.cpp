// SPDX-License-Identifier: Apache-2.0
// LL-A2A as users have it, on threads.

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/api/troupe.hpp"
#include "tests/ll/exchanges.hpp"
#include "tests/seed.hpp"

using namespace ll_tests;
using troupe::communicator;
using troupe::engine;
using troupe::errc;
using troupe::ll_handle;
using troupe::ll_session;

namespace {

/// The code and the text of what is thrown.
template <class Call>
std::pair<errc, std::string> thrown(Call&& call) {
  try {
    call();
  } catch (const troupe::error& e) {
    return {e.code_value(), e.what()};
  }
  return {errc::ok, ""};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("random exchanges of LL-A2A, for 1 to 9 ranks") {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    CAPTURE(ranks);
    engine e;
    e.run(ranks, [&](communicator& comm) { random_exchanges(comm, seed() + static_cast<std::uint64_t>(ranks), 60); });
  }
}

TEST_CASE("random exchanges of LL-A2A while epochs wrap, and without threads of the engine's") {
  troupe::engine_options how;
  how.first_operation = 0xffffffff - 25;
  how.workers = 0;
  engine e{how};
  e.run(3, [&](communicator& comm) {
    ll_handle handle{comm, {.elements = 3, .element_bytes = 8}};
    ll_session session{comm, handle};
    expect(session.epoch() == 0xffffffff - 25, "the epoch");
    for (std::uint64_t i = 0; i < 100; ++i) one_exchange(session, comm, i);
    expect(session.epoch() == 2 + 74, "the epoch after the wrap");
  });
}

TEST_CASE("a session goes on where the last one at its block has ended") {
  engine e;
  e.run(2, [](communicator& comm) {
    ll_handle handle{comm, {.elements = 2, .element_bytes = 8, .blocks = 2}};
    expect(ll_handle::bytes(handle.options()) == 2 * (1 + 2 * 2) * 16, "the bytes");
    for (std::uint64_t i = 0; i < 5; ++i) {
      ll_session session{comm, handle, 1};
      expect(session.epoch() == 2 + i, "the epoch");
      one_exchange(session, comm, i);
      ll_session other{comm, handle};
      expect(other.epoch() == 2 + i && other.block() == 0, "the other block's epoch");
      one_exchange(other, comm, i + 100);
    }
  });
}

TEST_CASE("recv_reduce takes elements in their order, and sums may be wider") {
  engine e;
  e.run(3, [](communicator& comm) {
    ll_session session{comm, {.elements = 40, .element_bytes = 4}};
    for (int r = comm.rank(); r < 40; r += 3)
      session.bcast(static_cast<std::size_t>(r), 16777216.0F + static_cast<float>(2 * r));
    const double wide = session.recv_reduce<float>(
        1, 13, 3, [](float x) { return double{x}; }, std::plus<>{});
    double right = 0;
    for (int i = 1; i < 40; i += 3) right += 16777216.0 + 2 * i;
    expect(wide == right, "the wide sum");
    const auto order = session.recv_reduce<float>(
        0, 40, 1, [](float x) { return std::to_string(static_cast<int>(x - 16777216.0F) / 2) + " "; }, std::plus<>{});
    std::string all;
    for (int i = 0; i < 40; ++i) all += std::to_string(i) + " ";
    expect(order == all, "the order");
    session.end_epoch();
  });
}

TEST_CASE("what cannot be is refused") {
  engine e;
  auto comms = e.communicators(1);
  communicator& comm = comms[0];
  const ll_handle handle{comm, {.elements = 4, .element_bytes = 12}};
  ll_session session{comm, handle};
  using wide = std::array<std::uint64_t, 2>;
  struct row {
    std::function<void()> call;
    std::string says;
  };
  const std::vector<row> rows{
      {[&] { session.send(0, 4, 1); }, "element 4; a rank has 4, from 0"},
      {[&] { session.bcast(4, 1); }, "element 4"},
      {[&] { session.recv<int>(17); }, "element 17"},
      {[&] { session.send(1, 0, 1); }, "rank 1; ranks are 0 to 0"},
      {[&] { session.send(-1, 0, 1); }, "rank -1"},
      {[&] { session.send(0, 0, wide{}); }, "16 bytes; the handle's elements have 12"},
      {[&] { session.bcast(0, wide{}); }, "16 bytes"},
      {[&] { session.recv<wide>(0); }, "16 bytes"},
      {[&] {
         std::array<int, 3> into{};
         session.recv_unrolled<int>(1, into, 2);
       },
       "3 elements from 1 on, each 2 further"},
      {[&] {
         std::array<int, 2> into{};
         session.recv_unrolled<int>(1, into, 0);
       },
       "stride of 0"},
      {[&] { session.recv_reduce<int>(0, 0, 1, std::identity{}, std::plus<>{}); }, "recv_reduce of 0 elements"},
      {[&] { session.recv_reduce<int>(0, 5, 1, std::identity{}, std::plus<>{}); }, "5 elements from 0 on"},
      {[&] {
         ll_session{comm, handle};
       },
       "has a session at block 0 already"},
      {[&] {
         ll_session{comm, handle, 1};
       },
       "block 1; the handle has 1"},
      {[&] {
         ll_handle{comm, {.elements = 0}};
       },
       "between 1 and 16777216"},
      {[&] {
         ll_handle{comm, {.element_bytes = 0}};
       },
       "between 1 and 16777216"},
      {[&] {
         ll_handle{comm, {.blocks = 0}};
       },
       "between 1 and 16777216"},
      {[&] {
         ll_handle{comm, {.elements = ~std::size_t{0}}};
       },
       "between 1 and 16777216"},
      {[&] {
         ll_handle{comm, {.elements = 1 << 20, .element_bytes = 1 << 10}};
       },
       "may have"},
  };
  for (const row& each : rows) {
    const auto refused = thrown(each.call);
    const std::string& text = refused.second;
    CAPTURE(text);
    CAPTURE(each.says);
    CHECK(refused.first == errc::invalid_argument);
    CHECK(contains(text, each.says));
  }
  ll_handle gone{comm};
  const ll_handle here = std::move(gone);
  // NOLINTNEXTLINE(bugprone-use-after-move): that is what is tried
  CHECK(thrown([&] { ll_session{comm, gone}; }).first == errc::invalid_argument);
  communicator other = comm.duplicate(), none;
  CHECK(thrown([&] { ll_session{other, handle}; }).first == errc::invalid_argument);
  CHECK(thrown([&] { ll_session{none, handle}; }).first == errc::invalid_argument);
  CHECK(thrown([&] { ll_handle{none}; }).first == errc::invalid_argument);
  session.send(0, 3, 5);
  CHECK(session.recv<int>(3) == 5);
}

TEST_CASE("options that differ, and those of one rank that are none, are told to all") {
  engine e;
  e.run(3, [](communicator& comm) {
    const auto mine = static_cast<std::size_t>(comm.rank());
    const auto differ = thrown([&] { ll_handle{comm, {.elements = mine == 2 ? std::size_t{5} : std::size_t{4}}}; });
    expect(differ.first == errc::mismatch, differ.second);
    const auto refused = thrown([&] { ll_handle{comm, {.elements = mine}}; });
    expect(refused.first == (mine == 0 ? errc::invalid_argument : errc::peer_refused), refused.second);
    expect(mine == 0 || contains(refused.second, "rank 0 refused"), refused.second);
    ll_session session{comm, {.elements = 3, .element_bytes = 8}};
    one_exchange(session, comm, 1);
  });
}

TEST_CASE("a wait ends with its deadline, and says who is elsewhere") {
  engine e;
  e.run(3, [](communicator& comm) {
    ll_session session{comm, {.elements = 3, .element_bytes = 8, .deadline = std::chrono::milliseconds{30}}};
    one_exchange(session, comm, 1);
    if (comm.rank() == 0) {
      const auto late = thrown([&] { session.recv<int>(1); });
      expect(late.first == errc::timed_out, late.second);
      expect(contains(late.second, "rank 0 has waited 30 ms for element 1 in epoch 3 of block 0"), late.second);
    } else if (comm.rank() == 1) {
      session.end_epoch();
    }
    comm.barrier();
    if (comm.rank() == 2) {
      const auto late = thrown([&] { session.recv<int>(1); });
      expect(contains(late.second, "rank 1 (epoch 4)"), late.second);
    }
    comm.barrier();
  });
}

TEST_CASE("who is overtaken hears of it") {
  engine e;
  e.run(2, [](communicator& comm) {
    ll_session session{comm, {.elements = 1, .element_bytes = 8, .deadline = std::chrono::seconds{30}}};
    if (comm.rank() == 1)
      for (int i = 0; i < 3; ++i) {
        session.send(0, 0, i);
        session.end_epoch();
      }
    comm.barrier();
    if (comm.rank() == 0) {
      const auto wrong = thrown([&] { session.recv<int>(0); });
      expect(wrong.first == errc::mismatch, wrong.second);
      session.end_epoch();
      expect(session.recv<int>(0) == 1, "what nobody has written over");
    }
    comm.barrier();
  });
}

TEST_CASE("who waits when all others are gone hears of it; and of an abort, and of the engine's end") {
  engine e;
  e.run(3, [](communicator& comm) {
    ll_session session{comm, {.elements = 1, .element_bytes = 8}};
    if (comm.rank() != 1) return;
    const auto alone = thrown([&] { session.recv<int>(0); });
    expect(alone.first == errc::rank_missing, alone.second);
    expect(contains(alone.second, "rank 0 has let its handle go, rank 2 has let its handle go"), alone.second);
  });
  e.run(3, [](communicator& comm) {
    ll_session session{comm, {.elements = 3, .element_bytes = 8}};
    if (comm.rank() == 1) return;
    const auto circle = thrown([&] { session.recv<int>(static_cast<std::size_t>(comm.rank())); });
    expect(circle.first == errc::rank_missing, circle.second);
  });
  auto ended = std::make_unique<engine>();
  auto comms = ended->communicators(2);
  std::atomic<int> right{0};
  std::atomic<bool> has_ended{false};
  std::latch both{2};  // a rank that lets its handle go, or waits for one that waits for it, is another reason to end
  std::vector<std::thread> threads;
  for (communicator& comm : comms)
    threads.emplace_back([&] {
      ll_session session{comm, {.elements = 1, .element_bytes = 8}};
      ++right;
      while (comm.rank() == 1 && !has_ended.load()) std::this_thread::yield();
      const auto over = thrown([&] { session.recv<int>(0); });
      if (over.first == errc::engine_closed || over.first == errc::communicator_aborted) ++right;
      const auto closed = thrown([&] { session.recv<int>(0); });
      if (closed.first == errc::engine_closed || closed.first == errc::communicator_aborted) ++right;
      both.arrive_and_wait();
    });
  while (right.load() < 2) std::this_thread::yield();
  ended.reset();
  has_ended.store(true);
  for (std::thread& each : threads) each.join();
  CHECK(right.load() == 6);
}

TEST_CASE("ranks that a layout places apart have no LL-A2A, a part of them that is together has") {
  troupe::engine_options how;
  how.layout = "0.0.0,0.0.0,1.0.0,1.0.0";
  engine e{how};
  e.run(4, [](communicator& comm) {
    const auto apart = thrown([&] { ll_handle{comm}; });
    expect(apart.first == errc::unsupported && contains(apart.second, "ranks 0 and 2 are on different servers"),
           apart.second);
    communicator server = comm.split(comm.rank() / 2, comm.rank());
    ll_session session{server, {.elements = 2, .element_bytes = 8}};
    one_exchange(session, server, 7);
  });
}
