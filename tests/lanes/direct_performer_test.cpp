// The direct port: results under random schedules by one thread, and by threads of which some give up in the middle.

#include <doctest/doctest.h>

#include <atomic>
#include <random>
#include <thread>

#include "protocols/program/direct_program.hpp"
#include "tests/lanes/slot_helpers.hpp"
#include "tests/seed.hpp"

using namespace slot_test;

namespace {

/// A collective compiled for the direct port; `operation` keeps the shapes.
operation direct(std::string_view choreography, stage on, std::size_t elements) {
  operation made{choreography, on, elements, direct_port{}};
  return made;
}

bool may_be_in_place(collective c) {
  return c == collective::all_reduce || c == collective::all_gather || c == collective::reduce_scatter;
}

std::shared_ptr<program> with_lane(std::vector<instruction> lane) {
  auto made = std::make_shared<program>();
  made->lanes = {std::move(lane)};
  made->element_size = 8;
  return made;
}
instruction token(bool send, rank_t peer) {
  instruction i;
  i.kind = send ? step_kind::send : step_kind::recv;
  (send ? i.to : i.from) = peer;
  return i;
}
instruction copying(location from, location to, std::size_t elements) {
  instruction i;
  i.kind = step_kind::copy;
  i.source = from;
  i.target = to;
  i.elements = elements;
  return i;
}

}  // namespace

TEST_CASE("direct: every collective, rank count and size gives the right answer under any schedule") {
  std::mt19937_64 random{seed()};
  for (const int ranks : {2, 3, 4, 7, 8})
    for (const collective c : find_choreography("fused")->collectives)
      for (const bool in_place : {false, true}) {
        if (in_place && !may_be_in_place(c)) continue;
        slot_board board{ranks};
        std::vector<std::unique_ptr<direct_player>> players;
        for (rank_t r = 0; r < ranks; ++r) players.push_back(std::make_unique<direct_player>(board, r));
        std::uint64_t epoch = random() % 3;
        for (const std::size_t count : {0U, 1U, 2U, 63U, 1000U, 70001U}) {
          const rank_t root = has_root(c) ? static_cast<rank_t>(random() % static_cast<unsigned>(ranks)) : 0;
          const operation what = direct("fused", flat_stage(c, ranks, root, in_place), count);
          INFO(describe(what, "fused"));
          std::vector<int> left(players.size(), 3);
          for (auto& p : players) p->start(what, epoch);
          for (std::size_t open = players.size(), idle = 0; open > 0; ++idle) {
            REQUIRE(idle < 10000);
            const std::size_t r = random() % players.size();
            direct_player& p = *players[r];
            if (left[r] == 0) continue;
            REQUIRE(p.performs.advance() != board_performer::status::mismatch);
            if (!p.performs.idle()) continue;
            idle = 0;
            CHECK(p.wrong(what) == 0);
            if (--left[r] > 0) p.start(what, epoch + 3 - static_cast<unsigned>(left[r]));
            else --open;
          }
          epoch += 3 + random() % 3;
        }
      }
}

TEST_CASE("direct: long bodies are cut, unless their steps overlap") {
  const operation what = direct("fused", flat_stage(collective::all_reduce, 2), 1 << 20);
  CHECK(what.over_buffers.units > 16);
  CHECK(what.over_buffers.stores == store_hint::cached);
  CHECK(direct("fused", flat_stage(collective::all_reduce, 2), 1 << 23).over_buffers.stores == store_hint::streamed);

  const auto body = [](location from) {
    const auto first = copying({0, self, buffer_kind::input}, {0, self, buffer_kind::output}, 1 << 20);
    const auto second = copying(from, {0, self, buffer_kind::scratch}, 1 << 20);
    return std::vector{token(true, 1), token(false, 1), first, second, token(true, 1), token(false, 1)};
  };
  const auto little = copying({0, self, buffer_kind::input}, {0, self, buffer_kind::output}, 1);
  const auto peer = with_lane({token(true, 0), token(false, 0), little, token(true, 0), token(false, 0)});
  const direct_setting apart{collective::all_reduce, false, std::size_t{8} << 20};
  const auto units = [&](location from, const direct_setting& setting) {
    return compile_direct(std::vector<std::shared_ptr<const program>>{with_lane(body(from)), peer}, setting)
        .bodies[0]
        .units;
  };
  CHECK(units({0, self, buffer_kind::output}, apart) > 1);
  CHECK(units({8, self, buffer_kind::output}, apart) == 1);
  CHECK(units({8, self, buffer_kind::input}, apart) > 1);
  CHECK(units({8, self, buffer_kind::input}, {collective::all_reduce, true, std::size_t{8} << 20}) == 1);
}

TEST_CASE("direct: local steps that a token orders behind a peer's are refused") {
  const auto work = copying({0, 1, buffer_kind::input}, {0, self, buffer_kind::output}, 4);
  const auto list = [](std::vector<instruction> a, std::vector<instruction> b) {
    return std::vector<std::shared_ptr<const program>>{with_lane(std::move(a)), with_lane(std::move(b))};
  };
  CHECK(why_not_direct(list({token(true, 1), token(false, 1), work}, {token(true, 0), token(false, 0), work})).empty());
  CHECK(why_not_direct(list({token(true, 1), token(false, 1), work, token(true, 1)},
                            {token(false, 0), token(false, 0), token(true, 0), work}))
            .find("begins its local steps after some of rank 0") != std::string::npos);
  CHECK(why_not_direct(list({work, token(true, 1), work}, {token(false, 0), work})).find("between") !=
        std::string::npos);
  CHECK_FALSE(
      why_not_direct(list({work}, {copying({0, self, buffer_kind::l2}, {0, self, buffer_kind::output}, 4)})).empty());
}

TEST_CASE("direct: another fingerprint is a mismatch, and abandoning leaves the next operation whole") {
  slot_board board{2};
  direct_player a{board, 0}, b{board, 1};
  const operation what = direct("fused", flat_stage(collective::all_reduce, 2), 10);
  a.start(what, 4, 1);
  b.start(what, 4, 2);
  CHECK(a.performs.advance() == board_performer::status::waiting);
  CHECK(b.performs.advance() == board_performer::status::mismatch);
  CHECK(b.performs.suspect() == 0);
  CHECK(a.performs.advance() == board_performer::status::mismatch);
  a.performs.abandon();
  // The other is an operation further before this one notices.
  a.start(what, 5);
  CHECK(a.performs.advance() == board_performer::status::waiting);
  CHECK(b.performs.advance() == board_performer::status::mismatch);
  b.performs.abandon();
  b.start(what, 5);
  CHECK(b.performs.advance() == board_performer::status::performed);
  CHECK(a.performs.advance() == board_performer::status::performed);
  CHECK(a.wrong(what) + b.wrong(what) == 0);
}

// The late one of a round finds it ended by the others, and them on their way to the next, whose call is another.
TEST_CASE("direct: who is late sees no mismatch in the next operation's call") {
  constexpr int ranks = 4;
#if defined(__SANITIZE_THREAD__)
  constexpr std::uint64_t rounds = 5'000;  // a race is reported whether or not it does harm
#else
  constexpr std::uint64_t rounds = 150'000;
#endif
  slot_board board{ranks};
  const operation what = direct("fused", flat_stage(collective::all_reduce, ranks), 10);
  std::atomic<int> mismatches{0};
  std::vector<std::thread> threads;
  for (rank_t r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      direct_player mine{board, r};
      for (std::uint64_t e = 1; e <= rounds && mismatches == 0; ++e) {
        mine.start(what, e, e % 3 + 1);
        auto status = board_performer::status::waiting;
        while ((status = mine.performs.advance()) == board_performer::status::waiting && mismatches == 0)
          std::this_thread::yield();
        if (status != board_performer::status::performed) {
          mismatches += status == board_performer::status::mismatch;
          mine.performs.abandon();
        }
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(mismatches == 0);
}

// Every operation's buffers are new, and are overwritten and freed as soon as the rank has ended it, in whatever way. A peer that still
// reads or writes there is a data race, a use after free, or wrong poison.
TEST_CASE("direct: nobody touches the buffers of a rank that gave up") {
  const std::uint64_t base = seed();
  constexpr std::uint64_t rounds = 400;
  constexpr std::int64_t poison = 0x7a7a7a7a7a7a7a7a;
  for (const int ranks : {2, 3, 5}) {
    const operation what = direct("fused", flat_stage(collective::all_reduce, ranks), 40'000);
    slot_board board{ranks};
    std::vector<std::atomic<bool>> failed(rounds);
    std::atomic<std::size_t> wrong{0}, touched{0}, performed{0}, given_up{0};
    const auto live = [&](rank_t r) {
      std::mt19937_64 random{base + static_cast<std::uint64_t>(r)};
      for (std::uint64_t e = 0; e < rounds; ++e) {
        const std::uint64_t mood = random();
        if (mood % 64 == 0) failed[e] = true;  // before it has begun
        if (failed[e] && mood % 2 == 0) continue;
        direct_player mine{board, r};
        mine.start(what, e);
        const std::uint64_t impatient = mood % 4 == 0 ? (mood >> 8) % 6 : ~std::uint64_t{0};
        for (std::uint64_t turn = 0; !mine.performs.idle(); ++turn) {
          if (turn >= impatient) failed[e] = true;
          if (failed[e]) {
            mine.performs.abandon();
            ++given_up;
            break;
          }
          if (mine.performs.advance() == board_performer::status::performed) {
            wrong += mine.wrong(what);
            ++performed;
          } else {
            std::this_thread::yield();
          }
        }
        for (auto* buffer : {&mine.input, &mine.output}) std::fill(buffer->begin(), buffer->end(), poison);
        if (mood % 3 == 0) std::this_thread::yield();
        for (auto* buffer : {&mine.input, &mine.output})
          for (const std::int64_t x : *buffer) touched += x != poison;
      }
    };
    std::vector<std::thread> threads;
    for (rank_t r = 0; r < ranks; ++r) threads.emplace_back(live, r);
    for (auto& t : threads) t.join();
    INFO(ranks, " ranks: ", performed.load(), " performed, ", given_up.load(), " given up");
    CHECK(wrong == 0);
    CHECK(touched == 0);
    CHECK(performed > 0);
    CHECK(given_up > 0);
  }
}
