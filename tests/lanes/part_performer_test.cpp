// SPDX-License-Identifier: Apache-2.0
// Partitioned operations over boards of links, on threads of the test's own.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "actors/rank/operation_parts.hpp"
#include "protocols/lower/partition.hpp"
#include "tests/lanes/ranks_on_threads.hpp"

using namespace ranks_test;

namespace {

/// Any rank's part of such a call, and what it must give: sums and blocks of small numbers.
struct parted {
  plan_ptr how;
  std::size_t count;
  int pieces;

  parted(const char* choreography, collective what, int ranks, std::size_t elements, int parts, int credits = 8)
      : count(elements), pieces(parts) {
    auto p = std::make_shared<plan>();
    score s = partition(lower_syncs(write_score(*find_choreography(choreography), flat_stage(what, ranks))), parts);
    if (credits == 1) s = pace_sends(s, 1);
    REQUIRE(verify(s, {credits, 1}).ok());
    p->notes = std::make_shared<const score>(std::move(s));
    p->choreography = choreography;
    p->count = elements;
    p->work_type = datatype::i32;
    p->port = mailbox_plan{.credits = credits, .agrees = true};
    how = p;
  }
  int ranks() const { return how->notes->ranks; }
  std::size_t blocks_in() const {
    return how->notes->what == collective::reduce_scatter || how->notes->what == collective::all_to_all
               ? static_cast<std::size_t>(ranks())
               : 1;
  }
  std::size_t blocks_out() const {
    return how->notes->what == collective::all_gather || how->notes->what == collective::all_to_all
               ? static_cast<std::size_t>(ranks())
               : 1;
  }
  static std::int32_t value(rank_t rank, std::size_t block, std::size_t at, int round) {
    return rank * 100'000 + static_cast<std::int32_t>(block * 10'000 + at) + round;
  }
  std::int32_t wanted(rank_t rank, std::size_t block, std::size_t at, int round) const {
    const auto own = static_cast<std::size_t>(rank);
    switch (how->notes->what) {
      case collective::all_gather: return value(static_cast<rank_t>(block), 0, at, round);
      case collective::all_to_all: return value(static_cast<rank_t>(block), own, at, round);
      case collective::reduce_scatter:
      case collective::all_reduce: {
        std::int32_t sum = 0;
        for (rank_t r = 0; r < ranks(); ++r)
          sum += value(r, how->notes->what == collective::reduce_scatter ? own : 0, at, round);
        return sum;
      }
      default: return value(how->notes->root, 0, at, round);
    }
  }
  std::shared_ptr<operation_parts> parts_of(rank_t rank) const {
    const bool has_input = input_blocks(how->notes->what, ranks(), how->notes->root, rank).count > 0;
    return std::make_shared<operation_parts>(has_input ? pieces : 0, how->program_of(rank)->arrivals_needed);
  }
};

/// One rank's repetitions.
class member {
public:
  member(house& of, const parted& what, rank_t rank)
      : cell_(of.table().at(rank)),
        what_(what),
        rank_(rank),
        parts_(what.parts_of(rank)),
        in_(what.count * what.blocks_in()),
        out_(what.count * what.blocks_out()) {}

  const std::shared_ptr<operation_parts>& parts() const { return parts_; }
  operation_ptr start(std::optional<std::chrono::nanoseconds> deadline = std::nullopt) {
    parts_->begin_again();
    std::fill(out_.begin(), out_.end(), -1);
    auto made = make_operation(what_.how, in_.data(), out_.data(), deadline, sum);
    partition_call(made->what, static_cast<std::uint32_t>(what_.pieces), {});
    made->parts = parts_;
    cell_.submit(made);
    return made;
  }
  void ready(int piece, int round) {
    const auto [begin, end] = part(piece);
    for (std::size_t b = 0; b < what_.blocks_in(); ++b)
      for (std::size_t i = begin; i < end; ++i) in_[b * what_.count + i] = parted::value(rank_, b, i, round);
    parts_->announce(piece);
    cell_.announce(parts_);
  }
  bool arrived_right(int output, int round) const {
    const auto block = static_cast<std::size_t>(output / what_.pieces);
    const auto [begin, end] = part(output % what_.pieces);
    for (std::size_t i = begin; i < end; ++i)
      if (out_[block * what_.count + i] != what_.wanted(rank_, block, i, round)) return false;
    return true;
  }
  void wait(const operation_ptr& op) {
    cell_.help(*op->done, no_deadline);
    wait_for(op->done);
  }

private:
  std::pair<std::size_t, std::size_t> part(int p) const {
    const auto k = static_cast<std::size_t>(what_.pieces), at = static_cast<std::size_t>(p);
    return {at * what_.count / k, (at + 1) * what_.count / k};
  }

  rank_cell& cell_;
  const parted& what_;
  rank_t rank_;
  std::shared_ptr<operation_parts> parts_;
  std::vector<std::int32_t> in_, out_;
};

/// On a thread for each rank, with a second one that makes half of the pieces ready. @return how much was wrong
int repeat(house& of, const parted& what, int rounds, unsigned seed) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (rank_t r = 0; r < what.ranks(); ++r)
    threads.emplace_back([&, r] {
      member me(of, what, r);
      std::mt19937 random(seed + static_cast<unsigned>(r));
      for (int round = 0; round < rounds; ++round) {
        const operation_ptr op = me.start();
        std::vector<int> order(static_cast<std::size_t>(me.parts()->inputs()));
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), random);
        const auto half = order.begin() + static_cast<std::ptrdiff_t>(order.size() / 2);
        std::thread other([&] { std::for_each(order.begin(), half, [&](int p) { me.ready(p, round); }); });
        std::for_each(half, order.end(), [&](int p) { me.ready(p, round); });
        int seen = 0;
        while (seen < me.parts()->arrivals())
          if (!me.arrived_right(me.parts()->arrival(seen++), round)) ++wrong;
        other.join();
        me.wait(op);
        if (op->done->why()) ++wrong;
        if (me.parts()->arrivals() != me.parts()->outputs()) ++wrong;
        for (int p = 0; p < me.parts()->outputs(); ++p)
          if (!me.parts()->arrived(p) || !me.arrived_right(p, round)) ++wrong;
        if (!me.parts()->performer || me.parts()->performer->under_way()) ++wrong;  // on the board, and off it again
      }
    });
  for (std::thread& t : threads) t.join();
  return wrong;
}

}  // namespace

TEST_CASE("parts travel over boards: every collective, pieces ready in any order on two threads a rank") {
  constexpr unsigned seed = 71;
  CAPTURE(seed);
  for (const int cores : {2, 8}) {  // who hears of something is visited, or woken
    house h(3, cores);
    for (const auto& [by, what] : {std::pair{"one_shot", collective::all_gather},
                                   {"ring", collective::all_gather},
                                   {"one_shot", collective::all_reduce},
                                   {"ring", collective::all_reduce},
                                   {"ring", collective::reduce_scatter},
                                   {"pairwise", collective::all_to_all},
                                   {"ring", collective::broadcast}}) {
      CAPTURE(by);
      CAPTURE(what);
      CHECK(repeat(h, parted(by, what, 3, 1001, 7), 6, seed) == 0);
    }
  }
}

TEST_CASE("a link with room for one message, on which many are sent, waits for what is taken") {
  house h(4);
  const parted ring("ring", collective::all_reduce, 4, 400, 5, 1);
  const part_links links{*ring.how->notes, 0, 1};
  const auto out = links.out(0);
  REQUIRE(out.size() == 1);
  CHECK(out.front().room == 1);
  CHECK(out.front().messages > 1);
  CHECK(repeat(h, ring, 10, 5) == 0);
}

TEST_CASE("all ranks find the same place for a link, and room for what is under way on it") {
  const score s =
      partition(lower_syncs(write_score(*find_choreography("ring"), flat_stage(collective::all_reduce, 5))), 3);
  std::vector<part_links> of;
  for (rank_t r = 0; r < 5; ++r) of.emplace_back(s, r, 8);
  for (rank_t r = 0; r < 5; ++r) {
    CHECK(of[static_cast<std::size_t>(r)].lines() == of[0].lines());
    for (int l = 0; l < of[0].lanes(); ++l)
      for (const part_links::end& out : of[static_cast<std::size_t>(r)].out(l)) {
        const auto ins = of[static_cast<std::size_t>(out.peer)].in(l);
        const auto in = std::ranges::find(ins, r, &part_links::end::peer);
        REQUIRE(in != ins.end());
        CHECK(in->line == out.line);
        CHECK(in->room == out.room);
        CHECK(in->messages == out.messages);
        CHECK(out.line + (out.room + 1) / 2 <= of[0].lines());
      }
  }
}

TEST_CASE("a piece that never gets ready ends in a deadline on all ranks, and the next repetition is right") {
  const parted gather("one_shot", collective::all_gather, 3, 300, 4);
  house h(3);
  std::atomic<int> wrong{0};
  std::vector<std::string> texts(3);
  std::vector<std::thread> threads;
  for (rank_t r = 0; r < 3; ++r)
    threads.emplace_back([&, r] {
      member me(h, gather, r);
      const operation_ptr lacks =
          me.start(r == 1 ? std::optional{std::chrono::nanoseconds{std::chrono::milliseconds{20}}} : std::nullopt);
      for (int p = 0; p < 4; ++p)
        if (r != 2 || p != 3) me.ready(p, 0);
      me.wait(lacks);
      if (lacks->done->why()) texts[static_cast<std::size_t>(r)] = lacks->done->why()->text;
      for (int n = 0; n < me.parts()->arrivals(); ++n)
        if (!me.arrived_right(me.parts()->arrival(n), 0)) ++wrong;
      const operation_ptr next = me.start();
      for (int p = 0; p < 4; ++p) me.ready(p, 1);
      me.wait(next);
      if (next->done->why()) ++wrong;
      for (int p = 0; p < me.parts()->outputs(); ++p)
        if (!me.arrived_right(p, 1)) ++wrong;
    });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
  for (const std::string& text : texts) CHECK(text.find("part 3 of 4 was not made ready") != std::string::npos);
}

TEST_CASE("ranks that cut differently meet on a board, and all hear of it") {
  const parted three("one_shot", collective::all_gather, 2, 60, 3), four("one_shot", collective::all_gather, 2, 60, 4);
  house h(2);
  std::vector<failure_ptr> why(2);
  std::vector<std::thread> threads;
  for (rank_t r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      member me(h, r == 0 ? three : four, r);
      const operation_ptr op = me.start();
      me.ready(0, 0);
      me.wait(op);
      why[static_cast<std::size_t>(r)] = op->done->why();
    });
  for (std::thread& t : threads) t.join();
  for (const failure_ptr& one : why) {
    REQUIRE(one);
    CHECK(one->code == errc::mismatch);
  }
}

TEST_CASE("a board's stamp wraps, and what was left 2^32 uses ago counts for nothing") {
  const parted what{"ring", collective::all_gather, 2, 8, 2};
  const part_links shape{*what.how->notes, 0, 8};
  link_boards boards{0xfffffffe};
  const auto use = [&](epoch_t epoch) {
    link_board* const board = boards.enter(epoch, 7, 0, shape, what.parts_of(0)).board;
    REQUIRE(boards.enter(epoch, 7, 1, shape, what.parts_of(1)).board == board);
    return board;
  };
  link_board* const first = use(1);
  CHECK(first->stamp() == 0xffffffff);
  first->at(0).sent.store(std::uint64_t{1} << 32 | 5);  // as use 1 could have left it
  boards.leave(*first);
  boards.leave(*first);
  link_board* const next = use(2);
  CHECK(next == first);
  CHECK(next->stamp() == 1);
  CHECK(next->at(0).sent.load() == 0);
  boards.leave(*next);
  boards.leave(*next);
}
