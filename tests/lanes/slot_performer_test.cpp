// SPDX-License-Identifier: Apache-2.0
// Every collective over slots, many ranks advanced by one thread in random order: results, mismatches, epochs that repeat.

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <utility>

#include "memory/error.hpp"
#include "tests/lanes/slot_helpers.hpp"
#include "tests/seed.hpp"

namespace slot_performer_test {

using namespace slot_test;
using slot_test::operation;  // not the rank's

namespace {

constexpr slot_format formats[] = {slot_format::ll, slot_format::ll128};
constexpr int plenty_of_cores = 1024;

/// Ranks of one board, advanced by this thread in random order.
struct slot_ranks {
  explicit slot_ranks(int ranks, int cores = plenty_of_cores) : board(ranks) {
    board.cores().assume(cores);
    for (rank_t r = 0; r < ranks; ++r) players.push_back(std::make_unique<player>(board, r));
  }

  /// Performs operations first … first + count − 1. Ranks begin the next one as soon as they have ended one, so fast ranks
  /// run ahead as far as the slots let them.
  void perform(const operation& what, std::uint64_t first, std::uint64_t count, std::mt19937_64& random) {
    std::vector<std::uint64_t> begun(players.size(), first);
    for (auto& p : players) p->start(what, first);
    std::size_t left = players.size(), idle_turns = 0;
    while (left > 0 && idle_turns < 100000) {
      const std::size_t r = random() % players.size();
      player& p = *players[r];
      ++idle_turns;
      if (begun[r] == first + count) continue;
      REQUIRE(p.performs.advance() != slot_performer::status::mismatch);
      if (!p.performs.idle()) continue;
      idle_turns = 0;
      wrong += p.wrong(what);
      if (++begun[r] < first + count) p.start(what, begun[r]);
      else --left;
    }
    CHECK(left == 0);
  }

  slot_board board;
  std::vector<std::unique_ptr<player>> players;
  std::size_t wrong = 0;
};

/// Looks whenever a writer is between two halves.
slot_performer* onlooker = nullptr;
std::size_t looks = 0;

void look_between() {
  // It may write in its turn, and must not look at itself then.
  slot_performer* const one = std::exchange(onlooker, nullptr);
  if (one == nullptr) return;
  ++looks;
  REQUIRE(one->advance() != slot_performer::status::mismatch);
  onlooker = one;
}

/// Those in which the data do not tell everybody of everybody.
constexpr collective untold[] = {collective::broadcast, collective::reduce, collective::gather,
                                 collective::scatter,   collective::scan,   collective::exscan};

bool may_be_in_place(collective c) { return c != collective::barrier; }

}  // namespace

TEST_CASE("slots: every collective, format and size gives the right answer") {
  std::mt19937_64 random{seed()};
  int performed = 0;
  for (const int ranks : {1, 2, 3, 4, 7, 8})
    for (const collective c : find_choreography("one_shot")->collectives)
      for (const bool in_place : {false, true}) {
        if (in_place && !may_be_in_place(c)) continue;
        slot_ranks all{ranks};
        std::uint64_t epoch = 0;
        for (const std::size_t count : {0U, 1U, 2U, 7U, 8U, 15U, 16U, 31U, 100U, 1000U})
          for (const slot_format format : formats) {
            const rank_t root = has_root(c) ? static_cast<rank_t>(random() % static_cast<unsigned>(ranks)) : 0;
            const operation what{"one_shot", flat_setup(c, ranks, root, in_place), count, format};
            INFO(describe(what, "one_shot"));
            all.perform(what, epoch, 4, random);
            CHECK(all.wrong == 0);
            epoch += 4 + random() % 3;
            ++performed;
          }
      }
  MESSAGE(performed, " operations, four times each");
}

TEST_CASE(
    "slots: rooted collectives and prefixes with every form of agreement, and nobody ends before the last has begun") {
  std::mt19937_64 random{seed()};
  for (const agreement_form form : agreement_forms)
    for (const std::string_view which : {"one_shot", "binomial"})
      for (const int ranks : {1, 2, 3, 4, 7, 8}) {
        slot_ranks all{ranks};
        std::uint64_t epoch = 0;
        for (const collective c : untold)
          for (const std::size_t count : {0U, 1U, 15U, 16U, 300U})
            for (const slot_format format : formats) {
              // The tree of a prefix has messages both ways.
              if (!has_root(c) && which == "binomial" && form == agreement_form::mirrored) continue;
              const auto root = static_cast<rank_t>(random() % static_cast<unsigned>(ranks));
              const operation what{which, flat_setup(c, ranks, root), count, format,
                                   {},    slot_channel::most_lines,   form};
              INFO(describe(what, which));
              CAPTURE(name(form));
              all.perform(what, epoch, 3, random);
              const std::size_t last = random() % all.players.size();
              for (std::size_t r = 0; r < all.players.size(); ++r)
                if (r != last) all.players[r]->start(what, epoch + 3);
              for (int turn = 0; turn < 12; ++turn)
                for (std::size_t r = 0; r < all.players.size(); ++r)
                  if (r != last) REQUIRE(all.players[r]->performs.advance() == slot_performer::status::waiting);
              all.players[last]->start(what, epoch + 3);
              for (int turn = 0; turn < 12; ++turn)
                for (auto& p : all.players) REQUIRE(p->performs.advance() != slot_performer::status::mismatch);
              for (auto& p : all.players) {
                CHECK(p->performs.idle());
                CHECK(p->wrong(what) == 0);
              }
              CHECK(all.wrong == 0);
              epoch += 4;
            }
      }
}

TEST_CASE(
    "slots: one rank calls something else than the others' rooted collective or prefix, and nobody is given a result") {
  std::mt19937_64 random{seed()};
  for (const int ranks : {2, 3, 5, 8})
    for (const collective c : untold)
      for (const agreement_form form : agreement_forms)
        for (const agreement_form other_form : agreement_forms)
          for (const slot_format format : formats) {
            slot_ranks all{ranks};
            const rank_t root = static_cast<rank_t>(random() % static_cast<unsigned>(ranks)),
                         other_root = (root + 1) % ranks;
            const auto one_shot = [&](collective called, rank_t r, std::size_t count, agreement_form f) {
              const agreement_form agreed = traits_of(called).data_tell_all ? agreement_form::none : f;
              return operation{"one_shot", flat_setup(called, ranks, r), count, format,
                               {},         slot_channel::most_lines,     agreed};
            };
            const operation what = one_shot(c, root, 3, form);
            const operation others[] = {one_shot(c, other_root, 3, other_form), one_shot(c, root, 40, other_form),
                                        one_shot(collective::scatter, root, 3, other_form),
                                        one_shot(collective::barrier, 0, 0, form), one_shot(c, root, 3, form)};
            std::uint64_t epoch = 0;
            for (const operation& other : others) {
              INFO(describe(what, "one_shot"), " against ", describe(other, "one_shot"));
              all.perform(what, epoch, 2, random);
              const std::size_t odd = random() % all.players.size();
              for (std::size_t r = 0; r < all.players.size(); ++r)
                all.players[r]->start(r == odd ? other : what, epoch + 2, r == odd ? 7 : 5);
              bool told = false;
              for (int turn = 0; turn < 10 * ranks; ++turn) {
                const auto status = all.players[random() % all.players.size()]->performs.advance();
                REQUIRE(status != slot_performer::status::performed);
                told = told || status == slot_performer::status::mismatch;
              }
              for (int turn = 0; turn < 3; ++turn)
                for (auto& p : all.players) {
                  const auto status = p->performs.advance();
                  REQUIRE(status != slot_performer::status::performed);
                  told = status == slot_performer::status::mismatch || told;
                }
              // In the other forms they may wait for each other instead, and the membership finds out why.
              if (form == agreement_form::direct && other_form == form) CHECK(told);
              for (auto& p : all.players) p->performs.abandon();
              epoch += 3;
            }
            CHECK(all.wrong == 0);
          }
}

TEST_CASE("slots: programs of other choreographies, with lanes, channels and slices") {
  std::mt19937_64 random{seed()};
  for (const std::string_view name :
       {"ring", "double_binary_tree", "recursive_doubling", "halving_doubling", "direct_full_mesh"})
    for (const int ranks : {2, 3, 5, 8}) {
      slot_ranks all{ranks};
      std::uint64_t epoch = 5;
      for (const bool in_place : {false, true})
        for (const cutting cut : {cutting{1, 1}, cutting{2, 3}})
          for (const slot_format format : formats)
            for (const std::size_t count : {1U, 37U, 900U}) {
              if (refusal(*find_choreography(name), flat_setup(collective::all_reduce, ranks, 0, in_place)) != "")
                continue;
              const operation what{name, flat_setup(collective::all_reduce, ranks, 0, in_place), count, format, cut};
              INFO(describe(what, name));
              all.perform(what, epoch, 3, random);
              CHECK(all.wrong == 0);
              epoch += 3;
            }
    }
}

TEST_CASE("slots: half of the ranks call something else, and nobody is given a result") {
  std::mt19937_64 random{seed()};
  for (const slot_format format : formats)
    for (const slot_format other_format : formats)
      for (const std::size_t other_count : {3U, 4U, 500U}) {
        slot_ranks all{4};
        const operation what{"one_shot", flat_setup(collective::all_reduce, 4), 3, format};
        const operation other{"one_shot", flat_setup(collective::all_reduce, 4), other_count, other_format};
        all.perform(what, 0, 3, random);
        const bool same = format == other_format && other_count == 3;
        // Same program: only the fingerprint tells.
        for (rank_t r = 0; r < 4; ++r)
          all.players[static_cast<std::size_t>(r)]->start(r % 2 == 0 ? what : other, 3, r % 2 == 0 ? 1 : same ? 2 : 1);
        std::vector<bool> told(4, false);
        for (int turn = 0; turn < 10; ++turn)
          for (std::size_t r = 0; r < 4; ++r) {
            const auto status = all.players[r]->performs.advance();
            CHECK(status != slot_performer::status::performed);
            if (status != slot_performer::status::mismatch) continue;
            told[r] = true;
            CHECK((all.players[r]->performs.suspect() - static_cast<rank_t>(r)) % 2 != 0);
          }
        CHECK(std::count(told.begin(), told.end(), true) == 4);
        // Given up, the board serves the next operation.
        for (auto& p : all.players) p->performs.abandon();
        all.perform(what, 4, 5, random);
        CHECK(all.wrong == 0);
      }
}

TEST_CASE("slots: stamps that repeat after the wrap are not taken for new ones") {
  std::mt19937_64 random{seed()};
  for (const slot_format format : formats) {
    slot_ranks all{3};
    const operation small{"one_shot", flat_setup(collective::all_reduce, 3), 1, format};
    const operation large{"one_shot", flat_setup(collective::all_reduce, 3), 700, format};
    const std::uint64_t next = slots::stamps_per_generation;
    all.perform(large, 0, 6, random);
    all.perform(large, next - 7, 4, random);
    all.perform(small, next - 3, 5, random);  // across
    CHECK(all.wrong == 0);
    all.perform(large, next + 2, 3, random);  // the stamps of operations 2 … 4
    CHECK(all.wrong == 0);
    // A whole generation later, a receiver that looks before its source has written must see nothing: neither in the first
    // operation of the new generation nor in later ones, whose stamps were used a generation ago as well.
    const std::uint64_t again = 2 * slots::stamps_per_generation;
    for (std::uint64_t e = again + 2; e <= again + 4; ++e) {
      for (auto& p : all.players) p->start(large, e);
      CHECK(all.players[0]->performs.advance() == slot_performer::status::waiting);
      CHECK(all.players[0]->performs.advance() == slot_performer::status::waiting);
      for (int turn = 0; turn < 3; ++turn)
        for (auto& p : all.players) p->performs.advance();
      for (auto& p : all.players) {
        CHECK(p->performs.idle());
        CHECK(p->wrong(large) == 0);
      }
    }
  }
}

TEST_CASE(
    "slots: a sender that runs ahead fills a ring, where ranks share cores a long one behind it, and goes on when "
    "half of that is free") {
  for (const slot_format format : formats)
    for (const bool share : {false, true})
      for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{7}}) {
        slot_ranks all{2, share ? 1 : plenty_of_cores};
        const operation plain{"one_shot", flat_setup(collective::broadcast, 2), 10, format};
        operation what = plain;
        for (slot_program& code : what.code) code.runs_ahead = true, code.identity += 1'000'000'000;
        player &root = *all.players[0], &other = *all.players[1];
        // The receiver has read nothing of these when the ring is laid down.
        for (std::uint64_t e = first; e < first + 2; ++e) {
          root.start(plain, e);
          CHECK(root.performs.advance() == slot_performer::status::performed);
        }
        const std::uint64_t begin = first + 2;
        const std::uint64_t last_ring = begin + (share ? slot_channel::ring_epochs : 0);
        const std::uint64_t depth = share ? slot_channel::long_ring_epochs : slot_channel::ring_epochs;
        for (std::uint64_t e = begin; e < last_ring + depth; ++e) {
          root.start(what, e);
          REQUIRE(root.performs.advance() == slot_performer::status::performed);
        }
        root.start(what, last_ring + depth);
        for (std::uint64_t e = first; e < last_ring + depth + 1; ++e) {
          other.start(e < begin ? plain : what, e);
          const bool enough = e > last_ring + depth / 2;
          CHECK(root.performs.advance() ==
                (enough ? slot_performer::status::performed : slot_performer::status::waiting));
          slot_board::sleep s{all.board, 0};
          root.performs.announce(s);
          s.fence();
          CHECK(other.performs.advance() == slot_performer::status::performed);
          CHECK(other.wrong(what) == 0);
          if (!enough) CHECK(s.woken() == (e == last_ring + depth / 2));
        }
      }
}

TEST_CASE("channel: a long ring is laid down behind a ring that is full, once, and for nothing else that a source "
          "waits for") {
  slot_board board{2};
  slot_channel& channel = board.channel(0, 1);
  channel.reserve(10, board.memory());
  const auto open = [&](std::uint64_t e, std::uint32_t lines) { return channel.open(e, 0, slot_format::ll128, lines); };
  CHECK_FALSE(channel.lengthen(0, board.memory()));  // there is no ring
  channel.deepen(0, board.memory());
  const std::size_t one = channel.ring_bytes();
  REQUIRE(open(0, 10));
  REQUIRE(open(1, 1));
  CHECK_FALSE(open(2, 10));  // the half of epoch 0 is not free, but the cell is
  CHECK_FALSE(channel.lengthen(2, board.memory()));
  CHECK(channel.ring_bytes() == one);
  channel.learn(2);
  const std::uint64_t full = slot_channel::ring_epochs + 2;
  for (std::uint64_t e = 2; e < full; ++e) REQUIRE(open(e, 1));
  CHECK_FALSE(open(full, 1));
  CHECK(channel.lengthen(full, board.memory()));
  CHECK(channel.ring_bytes() > 3 * one);
  REQUIRE(open(full, 1));
  const std::uint64_t again = full + slot_channel::long_ring_epochs;
  for (std::uint64_t e = full + 1; e < again; ++e) REQUIRE(open(e, 1));
  CHECK_FALSE(open(again, 1));
  CHECK_FALSE(channel.lengthen(again, board.memory()));
}

TEST_CASE("channel: short messages of a source that runs ahead lie four in a cache line, once it has sent in the epoch "
          "before") {
  slot_board board{2};
  slot_channel& channel = board.channel(0, 1);
  const auto open = [&](std::uint64_t e) { return channel.open(e, 0, slot_format::ll128, 1); };
  channel.deepen(5, board.memory());
  REQUIRE(open(5));
  CHECK(channel.message_to_write(5, 8) == channel.lines_to_write(5, 0).first);
  for (std::uint64_t e = 6; e < 20; ++e) {
    REQUIRE(open(e));
    const slots::word* const at = channel.message_to_write(e, 8);
    CHECK(reinterpret_cast<std::uintptr_t>(at) % 64 == e % 4 * 16);
    CHECK(channel.message_to_write(e, 9) == channel.lines_to_write(e, 0).first);
    CHECK(channel.message_to_write(e, 0) == at);
  }
  REQUIRE(open(21));
  CHECK(channel.message_to_write(21, 8) == channel.lines_to_write(21, 0).first);
}

TEST_CASE("slots: a short message is found wherever its source has left it, and another call's is no message") {
  constexpr std::uint64_t enough_looks = 64;
  enum class difference { none, reader_expects_lines, writer_leaves_lines, fingerprint, size, format };
  for (const difference d : {difference::none, difference::reader_expects_lines, difference::writer_leaves_lines,
                             difference::fingerprint, difference::size, difference::format}) {
    CAPTURE(static_cast<int>(d));
    slot_ranks all{2};
    const bool longer = d == difference::size, other_format = d == difference::format;
    operation sent{"one_shot", flat_setup(collective::broadcast, 2), 1, slot_format::ll128};
    operation taken{"one_shot", flat_setup(collective::broadcast, 2), longer ? 40U : 1U,
                    other_format ? slot_format::ll : slot_format::ll128};
    operation same = sent;
    for (operation* what : {&sent, &taken, &same})
      for (slot_program& code : what->code) code.runs_ahead = true, code.identity += 1'000'000'000;
    for (slot_program& code : taken.code) code.runs_ahead = d != difference::reader_expects_lines;
    for (slot_program& code : sent.code) code.runs_ahead = d != difference::writer_leaves_lines;
    player &root = *all.players[0], &other = *all.players[1];
    for (std::uint64_t e = 0; e < 3; ++e) {
      root.start(same, e);
      other.start(same, e);
      REQUIRE(root.performs.advance() == slot_performer::status::performed);
      REQUIRE(other.performs.advance() == slot_performer::status::performed);
    }
    const bool right = d <= difference::writer_leaves_lines;
    const auto wanted = right ? slot_performer::status::performed : slot_performer::status::mismatch;
    auto ended = slot_performer::status::waiting;
    other.start(taken, 3, 1);
    CHECK(other.performs.advance() == slot_performer::status::waiting);
    root.start(sent, 3, d == difference::fingerprint ? 2 : 1);
    REQUIRE(root.performs.advance() == slot_performer::status::performed);
    for (std::uint64_t look = 0; look < enough_looks && ended == slot_performer::status::waiting; ++look)
      ended = other.performs.advance();
    CHECK(ended == wanted);
    if (right) CHECK(other.wrong(taken) == 0);
    else CHECK(other.performs.suspect() == 0);
    // Given up without having seen what came, a reader still finds what comes next; and one that is about to sleep looks everywhere at once.
    other.performs.abandon();
    root.start(same, 4);
    REQUIRE(root.performs.advance() == slot_performer::status::performed);
    root.start(same, 5);
    REQUIRE(root.performs.advance() == slot_performer::status::performed);
    other.start(same, 5);
    slot_board::sleep s{all.board, 1};
    other.performs.announce(s);
    CHECK(other.performs.advance() == slot_performer::status::performed);
    CHECK(other.wrong(same) == 0);
  }
}

TEST_CASE("slots: calls that run ahead between others, of every size, by ranks that are many epochs apart") {
  std::mt19937_64 random{seed()};
  constexpr std::uint64_t wrap = slots::stamps_per_generation;
  for (const auto& [first, cores] :
       {std::pair{std::uint64_t{0}, plenty_of_cores}, {std::uint64_t{0}, 1}, {wrap - 100, 1}, {wrap - 200, 2}}) {
    slot_ranks all{3, cores};
    std::vector<operation> calls;
    for (const collective c : {collective::broadcast, collective::reduce, collective::gather, collective::scatter})
      for (const std::size_t count : {0U, 1U, 15U, 29U, 31U, 300U})
        for (const slot_format format : formats) {
          calls.emplace_back("binomial", flat_setup(c, 3, static_cast<rank_t>(random() % 3)), count, format);
          for (slot_program& code : calls.back().code) code.runs_ahead = random() % 2 == 0;
        }
    for (const slot_format format : formats)
      calls.emplace_back("one_shot", flat_setup(collective::all_reduce, 3), 5, format);
    std::vector<std::size_t> program;
    for (int i = 0; i < 400; ++i) program.push_back(random() % calls.size());
    std::array<std::size_t, 3> at{};
    std::array<bool, 3> under_way{};
    while (at[0] + at[1] + at[2] < 3 * program.size()) {
      // One rank after the other as far as it goes, so that they drift apart.
      const std::size_t r = random() % 3;
      player& p = *all.players[r];
      for (std::uint64_t steps = random() % 250; steps > 0 && at[r] < program.size(); --steps) {
        const operation& what = calls[program[at[r]]];
        if (!std::exchange(under_way[r], true)) p.start(what, first + at[r], program[at[r]] + 1);
        const auto status = p.performs.advance();
        REQUIRE(status != slot_performer::status::mismatch);
        if (status == slot_performer::status::waiting) break;
        REQUIRE(p.wrong(what) == 0);
        under_way[r] = false;
        ++at[r];
      }
    }
  }
}

TEST_CASE("slots: a sender is at most two operations ahead of a receiver") {
  for (const slot_format format : formats) {
    slot_ranks all{2};
    const operation what{"one_shot", flat_setup(collective::broadcast, 2), 40, format};
    player &root = *all.players[0], &other = *all.players[1];
    for (std::uint64_t e = 0; e < 2; ++e) {
      root.start(what, e);
      CHECK(root.performs.advance() == slot_performer::status::performed);
    }
    root.start(what, 2);
    CHECK(root.performs.advance() == slot_performer::status::waiting);
    REQUIRE(root.performs.waits().size() == 1);
    CHECK(root.performs.waits()[0].why == lane_wait::reason::credit);
    CHECK(root.performs.waits()[0].peer == 1);
    for (std::uint64_t e = 0; e < 3; ++e) {
      other.start(what, e);
      if (e == 2) CHECK(root.performs.advance() == slot_performer::status::performed);
      CHECK(other.performs.advance() == slot_performer::status::performed);
      CHECK(other.wrong(what) == 0);
      if (e == 0) CHECK(root.performs.advance() == slot_performer::status::performed);
    }
  }
}

TEST_CASE("slots: LL after LL128 does not take a user's data for stamps") {
  std::mt19937_64 random{seed()};
  slot_ranks all{2};
  const operation ll128{"one_shot", flat_setup(collective::all_gather, 2), 60, slot_format::ll128};
  const operation ll{"one_shot", flat_setup(collective::all_gather, 2), 60, slot_format::ll};
  std::uint64_t epoch = 0;
  for (int round = 0; round < 20; ++round) {
    // Data that looks like the stamps of the operation after the next.
    const std::int64_t mark = static_cast<std::int64_t>(slots::join(slots::stamp_of(epoch + 2), 0xdead));
    for (auto& p : all.players) {
      p->start(ll128, epoch);
      std::fill(p->input.begin(), p->input.end(), mark);
    }
    for (int turn = 0; turn < 3; ++turn)
      for (auto& p : all.players) p->performs.advance();
    for (auto& p : all.players) {
      REQUIRE(p->performs.idle());
      for (std::size_t i = 0; i < 120; ++i) CHECK(p->result[i] == mark);
    }
    all.perform(ll128, epoch + 1, 1, random);
    all.perform(ll, epoch + 2, 1, random);
    CHECK(all.wrong == 0);
    epoch += 4;
  }
}

TEST_CASE("slots: a receiver that looks between all halves takes nothing that is not there") {
  std::mt19937_64 random{seed()};
  for (const std::size_t count : {1U, 5U, 60U, 500U}) {
    slot_ranks all{2};
    all.board.tear_writes(&look_between);
    const operation ll128{"one_shot", flat_setup(collective::all_gather, 2), count, slot_format::ll128};
    const operation ll{"one_shot", flat_setup(collective::all_gather, 2), count, slot_format::ll};
    player &first = *all.players[0], &second = *all.players[1];
    for (std::uint64_t e = 0; e < 24; ++e) {
      const operation& what = random() % 2 == 0 ? ll : ll128;
      player& early = e % 2 == 0 ? first : second;
      player& late = e % 2 == 0 ? second : first;
      // Every word looks like a stamp of the operation after the next.
      const auto mark =
          static_cast<std::int64_t>(slots::join(slots::stamp_of(e + 2), 0xdead0000U + static_cast<std::uint32_t>(e)));
      for (player* p : {&first, &second}) {
        p->start(what, e);
        std::fill(p->input.begin(), p->input.end(), mark);
      }
      REQUIRE(early.performs.advance() == slot_performer::status::waiting);
      looks = 0;
      onlooker = &early.performs;
      REQUIRE(late.performs.advance() == slot_performer::status::performed);
      onlooker = nullptr;
      REQUIRE(early.performs.advance() == slot_performer::status::performed);
      CHECK(looks > 0);
      for (player* p : {&first, &second})
        for (std::size_t i = 0; i < 2 * count; ++i) REQUIRE(p->result[i] == mark);
    }
  }
}

TEST_CASE("slots: what does not fit or shares memory is refused with a reason") {
  const call_shape shape{1u << 20, {}, {}, {}, 8};
  const score direct = lower_syncs(write_score(*find_choreography("one_shot"), flat_setup(collective::all_reduce, 2)));
  const program big = compile(direct, 0, shape, {});
  CHECK(why_no_slots(big, slot_format::ll128).find("lines") != std::string::npos);
  CHECK_THROWS_AS(compile_slots(big, slot_format::ll), error);
  const score shared = lower_syncs(write_score(*find_choreography("fused"), flat_setup(collective::all_reduce, 2)));
  CHECK(why_no_slots(compile(shared, 0, {16, {}, {}, {}, 4}, {}), slot_format::ll128).find("memory") !=
        std::string::npos);
  CHECK(why_no_slots(compile(direct, 0, {16, {}, {}, {}, 4}, {}), slot_format::ll128).empty());
}

TEST_CASE("slots: an in-place call over slots keeps no copy that it does not need") {
  const auto copies = [](rank_t r, bool in_place) {
    const operation what{"one_shot", flat_setup(collective::all_reduce, 4, 0, in_place), 8, slot_format::ll128};
    int count = 0;
    for (const slot_step& s : what.code[static_cast<std::size_t>(r)].steps) count += s.kind == step_kind::copy ? 1 : 0;
    return count;
  };
  CHECK(copies(0, true) == 0);
  CHECK(copies(1, true) == 0);
  CHECK(copies(2, true) == 1);  // its contribution comes after those of 0 and 1
  CHECK(copies(2, false) == 0);
}

namespace {

/// Neither commutative nor associative: the value tells the order of combining.
void digits(const void* left, const void* right, void* out, std::size_t count, datatype, void*) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t a, b;
    std::memcpy(&a, static_cast<const std::byte*>(left) + i * 8, 8);
    std::memcpy(&b, static_cast<const std::byte*>(right) + i * 8, 8);
    a = a * 31 + b;
    std::memcpy(static_cast<std::byte*>(out) + i * 8, &a, 8);
  }
}

template <class Real>
void fill_with(std::vector<std::byte>& bytes, std::mt19937_64& random) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(Real)) {
    const auto x = static_cast<Real>(random() % 1000) / Real{7};
    std::memcpy(bytes.data() + at, &x, sizeof x);
  }
}

/// All-reduce over slots against the left fold by the kernels themselves, bit by bit. Rank 0 looks whenever another is between two halves.
std::size_t wrong_bytes(int ranks, std::size_t count, datatype type, const op& reduction, slot_format format,
                        bool in_place, std::mt19937_64& random) {
  const std::size_t bytes = count * size_of(type);
  const score s = write_score(*find_choreography("one_shot"), flat_setup(collective::all_reduce, ranks, 0, in_place));
  slot_board board{ranks};
  board.tear_writes(&look_between);
  std::vector<slot_program> code;
  std::vector<std::vector<std::byte>> in, out, scratch;
  std::vector<slot_performer> performers;
  std::vector<std::byte> expected;
  for (rank_t r = 0; r < ranks; ++r) {
    code.push_back(compile_slots(compile(s, r, {count, {}, {}, {}, size_of(type)}, {}), format));
    std::vector<std::byte> mine(bytes);
    // Small values: nothing overflows, no float is rounded or infinite.
    for (auto& b : mine) b = static_cast<std::byte>(type == datatype::i8 || type == datatype::u64 ? random() % 16 : 0);
    if (part_of(type) == datatype::f32) fill_with<float>(mine, random);
    if (part_of(type) == datatype::f64) fill_with<double>(mine, random);
    in.push_back(mine);
    out.push_back(in_place ? mine : std::vector<std::byte>(bytes));
    scratch.emplace_back(code.back().scratch_bytes + 1);
    performers.emplace_back(board, r);
    if (r == 0) expected = mine;
    else reduce(type, reduction, expected.data(), mine.data(), expected.data(), count);
  }
  for (std::size_t r = 0; r < performers.size(); ++r) {
    memory_map memory;
    memory.input = in_place ? out[r].data() : in[r].data();
    memory.output = out[r].data();
    memory.scratch = scratch[r].data();
    performers[r].start(code[r], memory, type, reduction, 0, 99);
  }
  for (int turn = 0; turn < 2; ++turn)
    for (auto& p : performers) {
      p.advance();
      onlooker = &performers.front();
    }
  onlooker = nullptr;
  std::size_t wrong = 0;
  for (std::size_t r = 0; r < performers.size(); ++r) {
    CHECK(performers[r].idle());
    for (std::size_t i = 0; i < bytes; ++i) wrong += out[r][i] != expected[i] ? 1 : 0;
  }
  return wrong;
}

}  // namespace

TEST_CASE("slots: types and operations, the user's included, are combined in rank order") {
  std::mt19937_64 random{seed()};
  op own;
  own.kind = op_kind::user;
  own.function = &digits;
  own.commutative = own.associative = false;
  for (const int ranks : {2, 3, 5})
    for (const slot_format format : formats)
      for (const bool in_place : {false, true})
        for (const std::size_t count : {1U, 3U, 16U, 31U, 333U}) {
          CAPTURE(ranks);
          CAPTURE(count);
          CHECK(wrong_bytes(ranks, count, datatype::u64, own, format, in_place, random) == 0);
          CHECK(wrong_bytes(ranks, count, datatype::f32, sum, format, in_place, random) == 0);
          CHECK(wrong_bytes(ranks, count, datatype::i8, sum, format, in_place, random) == 0);
          op largest;
          largest.kind = op_kind::max;
          CHECK(wrong_bytes(ranks, count, datatype::i8, largest, format, in_place, random) == 0);
        }
}

TEST_CASE("slots: complex numbers, of 16 bytes too, are never torn") {
  std::mt19937_64 random{seed()};
  for (const int ranks : {2, 3, 5})
    for (const bool in_place : {false, true})
      for (const std::size_t count : {1U, 3U, 7U, 8U, 31U, 240U, 241U, 333U}) {
        CAPTURE(ranks);
        CAPTURE(count);
        for (const slot_format format : formats) {
          CHECK(wrong_bytes(ranks, count, datatype::c64, sum, format, in_place, random) == 0);
          CHECK(wrong_bytes(ranks, count, datatype::c64, prod, format, in_place, random) == 0);
          CHECK(wrong_bytes(ranks, count, datatype::c128, sum, format, in_place, random) == 0);
          if (format == slot_format::ll || count <= 7)
            CHECK(wrong_bytes(ranks, count, datatype::c128, prod, format, in_place, random) == 0);
        }
      }
}

TEST_CASE("slots: elements that do not fill a line are combined line by line only where there is one") {
  const auto why = [](collective what, std::size_t count, slot_format format, datatype type, op_kind kind) {
    const score s = lower_syncs(write_score(*find_choreography("one_shot"), flat_setup(what, 2)));
    return why_torn(compile(s, 0, {count, {}, {}, {}, size_of(type)}, {}), format, size_of(unit_of(type, kind)));
  };
  using enum slot_format;
  CHECK(why(collective::all_reduce, 7, ll128, datatype::c128, op_kind::prod).empty());
  CHECK(why(collective::all_reduce, 8, ll128, datatype::c128, op_kind::prod).find("line by line") != std::string::npos);
  CHECK(why(collective::all_reduce, 8, ll128, datatype::c128, op_kind::sum).empty());
  CHECK(why(collective::all_reduce, 8, ll128, datatype::c64, op_kind::prod).empty());
  CHECK(why(collective::all_reduce, 8, ll, datatype::c128, op_kind::prod).empty());
  CHECK(why(collective::all_gather, 8, ll128, datatype::c128, op_kind::prod).empty());
}

TEST_CASE("slots: memory is laid down for pairs that speak, and a row of words for those that do not") {
  slot_board board{1024};
  const std::size_t empty = board.bytes();
  CHECK(empty / 1024 <= 64 * 1024);
  slot_performer one{board, 3};
  const operation what{"one_shot", flat_setup(collective::all_reduce, 4), 1, slot_format::ll128};
  std::int64_t value = 1, result = 0;
  memory_map memory;
  memory.input = reinterpret_cast<std::byte*>(&value);
  memory.output = reinterpret_cast<std::byte*>(&result);
  one.start(what.code[3], memory, datatype::i64, sum, 0, 0);
  one.advance();
  CHECK(board.bytes() - empty <= 6 * 1024);
  one.abandon();
}

}  // namespace slot_performer_test
