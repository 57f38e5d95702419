// SPDX-License-Identifier: Apache-2.0
// LL-A2A on threads of the test's own, also under ThreadSanitizer.

#include "actors/ports/ll/ll_port.hpp"
#include "tests/seed.hpp"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

using clock_type = std::chrono::steady_clock;

#if defined(__SANITIZE_THREAD__)
constexpr int effort = 40;
#else
constexpr int effort = 400;
#endif
constexpr auto hang = 60s;  // turns a lost message into a failure; never reached by a right run

class never final : public slot_watch {
public:
  bool stop() noexcept override { return false; }
};

/// The ranks of a board, each with its buffer.
struct ring {
  ring(int ranks, const ll_shape& what, waiting_policy policy = waiting_for(2, 2), bool membarrier = true)
      : board(ranks, membarrier), shape(what) {
    for (int r = 0; r < ranks; ++r)
      buffers.push_back(static_cast<ll::word*>(board.memory().take(ll_port::bytes_of(shape))));
    for (int r = 0; r < ranks; ++r) ports.push_back(std::make_unique<ll_port>(board, r, shape, buffers, policy));
  }
  ll_port& at(int rank) { return *ports[static_cast<std::size_t>(rank)]; }
  int ranks() const { return static_cast<int>(ports.size()); }

  slot_board board;
  ll_shape shape;
  std::vector<ll::word*> buffers;
  std::vector<std::unique_ptr<ll_port>> ports;
};

ll_port::wanted one_of(std::size_t block, std::uint32_t epoch, std::size_t which, std::size_t bytes) {
  return {block, epoch, which, 1, 1, bytes};
}

/// Waits as a session does. @param rests sleeps at once
ll_port::waited wait(ll_port& port, const ll_port::wanted& what, bool rests = false,
                     clock_type::time_point until = clock_type::now() + hang) {
  if (!rests && port.look(what)) return ll_port::waited::came;
  never watch;
  return port.sleep(what, until, watch, hang);  // nobody comes to the rescue of a wake-up that was lost
}

template <std::size_t Bytes>
using datum = std::array<std::byte, Bytes>;

template <std::size_t Bytes>
datum<Bytes> value(std::uint64_t epoch, int from, int to) {
  std::minstd_rand draw(static_cast<unsigned>(epoch * 977 + static_cast<std::uint64_t>(from * 31 + to) + 1));
  datum<Bytes> made;
  for (std::byte& each : made) each = static_cast<std::byte>(draw());
  return made;
}

/// Every rank, on a thread of its own, sends each rank an element of its own, at all blocks, epoch by epoch.
template <std::size_t Bytes>
void all_to_all(ring& all, int epochs, std::uint32_t first, bool rests) {
  std::atomic<int> wrong{0};
  const auto body = [&](int me) {
    ll_port& port = all.at(me);
    port.begin_at(first);
    std::minstd_rand draw(static_cast<unsigned>(me) + static_cast<unsigned>(seed()));
    std::vector<std::uint32_t> epoch(all.shape.blocks, first);
    for (int e = 0; e < epochs; ++e)
      for (std::size_t b = 0; b < all.shape.blocks; ++b) {
        for (int i = 0; i < all.ranks(); ++i) {
          const int to = (me + i) % all.ranks();
          const auto sent = value<Bytes>(static_cast<std::uint64_t>(e), me, to);
          port.send(b, epoch[b], to, static_cast<std::size_t>(me), &sent, Bytes);
        }
        if (draw() % 8 == 0) std::this_thread::yield();
        for (int from = 0; from < all.ranks(); ++from) {
          const auto what = one_of(b, epoch[b], static_cast<std::size_t>(from), Bytes);
          datum<Bytes> came{};
          if (wait(port, what, rests && draw() % 2 == 0) != ll_port::waited::came ||
              !ll::load_value(port.region(b, epoch[b]) + what.start * ll_shape::slot_words, all.shape.elements,
                              epoch[b], came) ||
              came != value<Bytes>(static_cast<std::uint64_t>(e), from, me)) {
            ++wrong;
            return;
          }
        }
        epoch[b] = port.end_epoch(b, epoch[b]);
      }
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < all.ranks(); ++r) threads.emplace_back(body, r);
  for (std::thread& each : threads) each.join();
  CHECK(wrong.load() == 0);
}

}  // namespace

TEST_CASE("the layout of LL-A2A is the published one") {
  constexpr ll_shape shape{32, 16, 3};
  CHECK(shape.slots() == 64);
  CHECK(shape.bytes_of_block() == 2064);
  CHECK(shape.bytes() == 3 * 2064);
  CHECK(shape.region_at(0, 2) * 8 == 16);
  CHECK(shape.region_at(0, 3) * 8 == 16 + 64 * 16);
  CHECK(shape.region_at(2, 3) * 8 == 2 * 2064 + 16 + 64 * 16);
  CHECK(ll_shape{5, 12, 1}.slots() == 10);
  ring all{1, {4, 16, 2}};
  const std::uint64_t two[2] = {0x1111111122222222, 0x3333333344444444};
  all.at(0).send(1, 7, 0, 3, two, sizeof two);
  // Unit u of element e at slot e + u·elements of region 1 of block 1: [data_lo, epoch, data_hi, epoch].
  const std::size_t at = (1 * (1 + 2 * 8) + 1 + 8 + 3) * 2;
  CHECK(all.buffers[0][at] == 0x0000000722222222);
  CHECK(all.buffers[0][at + 1] == 0x0000000711111111);
  CHECK(all.buffers[0][at + 8] == 0x0000000744444444);
  CHECK(all.buffers[0][at + 9] == 0x0000000733333333);
}

TEST_CASE("epochs of LL-A2A begin at 2, and wrap to 2") {
  ring all{1, {1, 8, 1}};
  CHECK(all.at(0).epoch(0, 0) == 2);
  CHECK(all.at(0).end_epoch(0, 2) == 3);
  CHECK(all.at(0).epoch(0, 0) == 3);
  CHECK(all.at(0).end_epoch(0, 0xffffffff) == 2);
  CHECK(all.at(0).epoch(0, 0) == 2);
}

TEST_CASE("what stands in the slots is cleared before epochs repeat") {
  ring all{1, {2, 8, 1}};
  ll_port& port = all.at(0);
  const std::uint64_t old = 42;
  port.send(0, 2, 0, 0, &old, 8);
  port.send(0, 3, 0, 1, &old, 8);
  CHECK(port.has_come(one_of(0, 2, 0, 8)));
  CHECK(port.end_epoch(0, 0xfffffffe) == 0xffffffff);
  CHECK_FALSE(port.has_come(one_of(0, 2, 0, 8)));
  CHECK(port.has_come(one_of(0, 3, 1, 8)));
  CHECK(port.end_epoch(0, 0xffffffff) == 2);
  CHECK_FALSE(port.has_come(one_of(0, 3, 1, 8)));
}

TEST_CASE("half a slot, and one unit of two, are not there yet") {
  ring all{1, {2, 16, 1}};
  ll_port& port = all.at(0);
  const auto what = one_of(0, 2, 0, 16);
  const std::size_t at = all.shape.region_at(0, 2);
  CHECK_FALSE(port.has_come(what));
  slots::store(all.buffers[0] + at, slots::join(2, 1), std::memory_order_release);
  CHECK_FALSE(port.has_come(what));
  slots::store(all.buffers[0] + at + 1, slots::join(2, 1), std::memory_order_release);
  CHECK(port.has_come(one_of(0, 2, 0, 8)));
  CHECK_FALSE(port.has_come(what));
  const std::uint64_t two[2] = {1, 2};
  port.send(0, 2, 0, 0, two, 16);
  CHECK(port.has_come(what));
}

TEST_CASE("all ranks to all, also while epochs wrap") {
  for (const int ranks : {1, 2, 3, 5}) {
    CAPTURE(ranks);
    ring all{ranks, {static_cast<std::size_t>(ranks), 24, 1}, waiting_for(ranks, 2)};
    all_to_all<24>(all, effort, 2, false);
  }
  ring all{3, {3, 16, 2}, waiting_for(3, 2)};
  all_to_all<13>(all, effort, ll::last_epoch - static_cast<std::uint32_t>(effort) / 2, false);
}

TEST_CASE("ranks that sleep are woken") {
  for (const bool membarrier : {true, false}) {
    ring all{4, {4, 8, 1}, waiting_policy{0, 0}, membarrier};
    all_to_all<8>(all, effort, 2, true);
  }
}

TEST_CASE("a broadcast reaches every rank, for every number of ranks") {
  for (int ranks = 1; ranks <= 19; ++ranks) {
    ring all{ranks, {static_cast<std::size_t>(ranks), 12, 1}};
    for (int r = 0; r < ranks; ++r) {
      const auto sent = value<12>(1, r, 0);
      all.at(r).broadcast(0, 2, static_cast<std::size_t>(r), &sent, sizeof sent);
    }
    for (int r = 0; r < ranks; ++r)
      for (int from = 0; from < ranks; ++from) {
        datum<12> came{};
        const ll::word* const first = all.at(r).region(0, 2) + static_cast<std::size_t>(from) * ll_shape::slot_words;
        REQUIRE(ll::load_value(first, all.shape.elements, 2, came));
        CHECK(came == value<12>(1, from, 0));
      }
  }
}

TEST_CASE("what was written before an element is seen by who has received it") {
  ring all{2, {1, 8, 1}};
  std::vector<int> plain(2);
  std::atomic<int> wrong{0};
  const auto body = [&](int me) {
    std::uint32_t epoch = ll::first_epoch;
    for (int i = 1; i <= effort; ++i) {
      plain[static_cast<std::size_t>(me)] = i;
      const std::uint64_t one = 1;
      all.at(me).send(0, epoch, 1 - me, 0, &one, 8);
      if (wait(all.at(me), one_of(0, epoch, 0, 8)) != ll_port::waited::came) ++wrong;
      if (plain[static_cast<std::size_t>(1 - me)] != i) ++wrong;
      epoch = all.at(me).end_epoch(0, epoch);
      all.at(me).send(0, epoch, 1 - me, 0, &one, 8);  // it has been read
      if (wait(all.at(me), one_of(0, epoch, 0, 8)) != ll_port::waited::came) ++wrong;
      epoch = all.at(me).end_epoch(0, epoch);
    }
  };
  std::thread other(body, 1);
  body(0);
  other.join();
  CHECK(wrong.load() == 0);
}

TEST_CASE("waits of LL-A2A end") {
  ring all{2, {2, 16, 1}, waiting_policy{0, 0}};
  ll_port& port = all.at(0);
  const auto what = one_of(0, 4, 1, 16);
  SUBCASE("when their deadline has passed") {
    CHECK(wait(port, what, true, clock_type::now()) == ll_port::waited::timed_out);
  }
  SUBCASE("when they are told to") {
    class once final : public slot_watch {
    public:
      bool stop() noexcept override { return true; }
    } watch;
    CHECK(port.sleep(what, clock_type::time_point::max(), watch) == ll_port::waited::stopped);
  }
  SUBCASE("when a peer has written over what they wait for") {
    const std::uint64_t two[2] = {1, 2};
    all.at(1).send(0, 6, 0, 1, two, sizeof two);
    CHECK(wait(port, what, true) == ll_port::waited::overtaken);
    CHECK_FALSE(port.has_come(what));
  }
  SUBCASE("when nobody is left, which is certain") {
    CHECK_FALSE(port.is_stuck(what));
    std::thread other([&] { all.at(1).leave(); });
    other.join();
    CHECK(port.is_stuck(what));
    CHECK(port.describe(1) == "has let its handle go");
  }
}

TEST_CASE("ranks that all wait for each other find that out, and only then") {
  class stuck final : public slot_watch {
  public:
    stuck(ll_port& port, const ll_port::wanted& what) : port_(port), what_(what) {}
    bool stop() noexcept override { return port_.is_stuck(what_); }

  private:
    ll_port& port_;
    ll_port::wanted what_;
  };
  // Round the ring, again and again: some rank always has what it waits for. In the end nobody sends any more.
  ring all{3, {1, 8, 1}, waiting_policy{0, 0}};
  std::atomic<int> right{0};
  const auto body = [&](int me) {
    ll_port& port = all.at(me);
    std::uint32_t epoch = ll::first_epoch;
    const std::uint64_t one = 1;
    for (int i = 0; i < effort; ++i) {
      if (me == 0) port.send(0, epoch, 1, 0, &one, 8);
      stuck watch{port, one_of(0, epoch, 0, 8)};
      if (port.sleep(one_of(0, epoch, 0, 8), clock_type::now() + hang, watch, 1us) != ll_port::waited::came) return;
      if (me != 0) port.send(0, epoch, (me + 1) % 3, 0, &one, 8);
      epoch = port.end_epoch(0, epoch);
    }
    ++right;
    if (me == 2) return port.leave();
    stuck watch{port, one_of(0, epoch, 0, 8)};
    if (port.sleep(one_of(0, epoch, 0, 8), clock_type::now() + hang, watch, 1us) == ll_port::waited::stopped) ++right;
    port.leave();
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r) threads.emplace_back(body, r);
  for (std::thread& each : threads) each.join();
  CHECK(right.load() == 5);
}
