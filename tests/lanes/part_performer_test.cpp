// SPDX-License-Identifier: Apache-2.0
// Partitioned operations over boards of links, on threads of the test's own.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <memory>
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
    score s = partition(lower_syncs(write_score(*find_choreography(choreography), flat_setup(what, ranks))), parts);
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
  /// Its caller uses the buffers for something else.
  void reuse_buffers() {
    std::fill(in_.begin(), in_.end(), reused);
    std::fill(out_.begin(), out_.end(), reused);
  }
  bool buffers_untouched() const {
    const auto untouched = [](std::int32_t v) { return v == reused; };
    return std::ranges::all_of(in_, untouched) && std::ranges::all_of(out_, untouched);
  }
  void wait(const operation_ptr& op) {
    cell_.help(*op->done, no_deadline);
    wait_for(op->done);
  }

private:
  static constexpr std::int32_t reused = -777;
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
    for (const auto& each : {std::pair{"one_shot", collective::all_gather},
                             {"ring", collective::all_gather},
                             {"one_shot", collective::all_reduce},
                             {"ring", collective::all_reduce},
                             {"ring", collective::reduce_scatter},
                             {"pairwise", collective::all_to_all},
                             {"ring", collective::broadcast},
                             {"fused", collective::all_gather},
                             {"fused", collective::all_reduce},
                             {"fused", collective::reduce_scatter},
                             {"fused", collective::all_to_all},
                             {"fused", collective::broadcast}}) {
      const char* const by = each.first;
      const collective what = each.second;
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
      partition(lower_syncs(write_score(*find_choreography("ring"), flat_setup(collective::all_reduce, 5))), 3);
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
        CHECK(out.line + (out.room + 1) / 2 <= of[0].lines_of(r));
      }
  }
}

TEST_CASE("ranks that work on each other's buffers find those that each has come with, whichever operation it is") {
  for (const collective what : {collective::all_reduce, collective::all_gather, collective::all_to_all}) {
    CAPTURE(what);
    const parted fused("fused", what, 3, 300, 5);
    house h(3);
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (rank_t r = 0; r < 3; ++r)
      threads.emplace_back([&, r] {
        member one(h, fused, r), other(h, fused, r);
        for (int round = 0; round < 12; ++round) {
          member& me = (round >> r) % 2 == 0 ? one : other;  // an operation of its own is any of the others' alike ones
          const operation_ptr op = me.start();
          for (int p = 0; p < 5; ++p) me.ready((p + r) % 5, round);
          me.wait(op);
          if (op->done->why()) ++wrong;
          for (int p = 0; p < me.parts()->outputs(); ++p)
            if (!me.arrived_right(p, round)) ++wrong;
        }
      });
    for (std::thread& t : threads) t.join();
    CHECK(wrong == 0);
  }
}

TEST_CASE("who works on another rank's buffers has stopped when that rank's operation has failed") {
  const parted fused("fused", collective::all_reduce, 3, 30'000, 6);
  house h(3);
  std::atomic<int> wrong{0}, failed{0};
  std::vector<std::thread> threads;
  std::array<std::vector<std::unique_ptr<member>>, 3> used_again;
  for (rank_t r = 0; r < 3; ++r)
    threads.emplace_back([&, r] {
      std::mt19937 random(static_cast<unsigned>(r) + 7);
      for (int round = 0; round < 40; ++round) {
        auto me = std::make_unique<member>(h, fused, r);
        const bool late = round % 3 == r;
        const operation_ptr op =
            me->start(late ? std::optional{std::chrono::nanoseconds{std::chrono::microseconds{50 + random() % 400}}}
                           : std::nullopt);
        for (int p = 0; p < 6; ++p)
          if (!late || p != 4) me->ready(p, round);  // so it is never performed
        me->wait(op);
        if (op->done->why()) ++failed;
        else ++wrong;
        for (int n = 0; n < me->parts()->arrivals(); ++n)
          if (!me->arrived_right(me->parts()->arrival(n), round)) ++wrong;
        me->reuse_buffers();
        me->parts()->leave();
        if (round % 2 == 0) used_again[static_cast<std::size_t>(r)].push_back(std::move(me));
        else me.reset();  // its buffers are gone, which AddressSanitizer would notice
      }
    });
  for (std::thread& t : threads) t.join();
  for (const auto& of_rank : used_again)
    for (const auto& m : of_rank) CHECK(m->buffers_untouched());
  CHECK(wrong == 0);
  CHECK(failed == 3 * 40);
}

TEST_CASE("a piece that never gets ready ends in a deadline on all ranks, and the next repetition is right") {
  for (const char* const by : {"one_shot", "fused"}) {
    const parted gather(by, collective::all_gather, 3, 300, 4);
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

namespace {

/// Memory that two ranks of two processes have in common, and what each does with the other one's.
class common_memory final : public board_memory, private process_memory {
public:
  bool between_processes() const noexcept override { return true; }
  bool has_membarrier() const noexcept override { return false; }
  void* root(std::size_t bytes) override { return roots_ = roots_ == nullptr ? heap_.root(bytes) : roots_; }
  void* take(std::size_t bytes) noexcept override { return heap_.take(bytes); }
  void give_back(void* what) noexcept override { heap_.give_back(what); }
  process_memory* peers() noexcept override { return this; }

  bool maps = true, ended = false;
  int copies = 0;
  std::function<void()> while_read = [] {};

private:
  bool is_here(rank_t) const noexcept override { return false; }
  std::byte* near(rank_t, std::byte* its) override {
    if (maps) while_read();
    return maps ? its : nullptr;
  }
  bool shares(const std::byte*) const noexcept override { return maps; }
  std::byte* lend(std::size_t) noexcept override { return nullptr; }
  void take_back(std::byte*) noexcept override {}
  bool read(rank_t, std::byte* to, const std::byte* from, std::size_t bytes) override {
    ++copies;
    while_read();
    std::copy_n(from, bytes, to);
    return !ended;
  }
  bool write(rank_t, std::byte*, const std::byte*, std::size_t) override { return false; }
  std::string why_refused(rank_t) const override { return {}; }
  bool has_ended(rank_t) override { return ended; }
  bool is_lost(rank_t) const noexcept override { return false; }
  void end(rank_t) override {}

  heap_memory heap_;
  void* roots_ = nullptr;  ///< the same for both
};

/// One of them, whose turn is the test's.
struct of_a_process final : part_outbox {
  of_a_process(common_memory& in, const parted& how, rank_t r)
      : areas(how.ranks(), in),
        what(how),
        rank(r),
        parts(how.parts_of(r)),
        input(how.count * how.blocks_in()),
        output(how.count * how.blocks_out(), -1) {
    auto of = std::make_shared<assignment>();
    of->type = datatype::i32;
    of->reduction = sum;
    of->parts = parts;
    of->code = how.how->program_of(r);
    scratch_block scratch = arena_.acquire(of->code->scratch_bytes), l0 = arena_.acquire(of->code->l0_bytes);
    of->memory.input = reinterpret_cast<std::byte*>(input.data());
    of->memory.output = reinterpret_cast<std::byte*>(output.data());
    of->memory.scratch = static_cast<std::byte*>(scratch.data());
    of->lent = std::make_shared<lent_memory>();
    performer = std::make_unique<part_performer>(r, part_links{*how.how->notes, r, 8}, of, arena_, std::move(scratch),
                                                 std::move(l0));
  }
  ~of_a_process() override { performer->leave(); }

  rank_t begin(epoch_t epoch, std::uint64_t fingerprint = 1) {
    parts->begin_again();
    std::fill(output.begin(), output.end(), -1);
    return performer->begin(areas, epoch, fingerprint);
  }
  void ready(int piece, int round) {
    const auto k = static_cast<std::size_t>(what.pieces), p = static_cast<std::size_t>(piece);
    for (std::size_t b = 0; b < what.blocks_in(); ++b)
      for (std::size_t i = p * what.count / k; i < (p + 1) * what.count / k; ++i)
        input[b * what.count + i] = parted::value(rank, b, i, round);
    parts->announce(piece);
  }
  bool advance() { return performer->advance(*this) == part_performer::status::performed; }
  bool all_right(int round) const {
    for (std::size_t b = 0; b < what.blocks_out(); ++b)
      for (std::size_t i = 0; i < what.count; ++i)
        if (output[b * what.count + i] != what.wanted(rank, b, i, round)) return false;
    return true;
  }
  void news(rank_t, const std::shared_ptr<operation_parts>&) override { FAIL("there is no board"); }
  void news(rank_t) override { ++told; }
  void arrived() override {}

  part_areas areas;
  const parted& what;
  rank_t rank;
  std::shared_ptr<operation_parts> parts;
  std::vector<std::int32_t> input, output;
  int told = 0;
  std::unique_ptr<part_performer> performer;

private:
  arena arena_;
};

}  // namespace

TEST_CASE("through areas pieces go in any order, whoever comes first, mapped or copied, and nobody is told twice "
          "before it looks") {
  for (const auto& each : {std::pair{"ring", collective::all_reduce},
                           {"ring", collective::all_gather},
                           {"one_shot", collective::all_gather},
                           {"direct_full_mesh", collective::all_to_all},
                           {"ring", collective::reduce_scatter}})
    for (const bool maps : {true, false}) {
      const char* const choreography = each.first;
      const collective call = each.second;
      CAPTURE(choreography);
      CAPTURE(maps);
      const parted how(choreography, call, 2, 90, 5);
      common_memory common;
      common.maps = maps;
      of_a_process a(common, how, 0), b(common, how, 1);
      for (int round = 0; round < 6; ++round) {
        const auto epoch = static_cast<epoch_t>(round) * 3;
        of_a_process &first = round % 2 == 0 ? a : b, &second = round % 2 == 0 ? b : a;
        CHECK(first.begin(epoch) == -1);
        for (const int p : {3, 1}) first.ready(p, round);
        first.advance();
        first.told = second.told = 0;
        CHECK(second.begin(epoch) == -1);
        for (const int p : {4, 1, 0, 2, 3}) second.ready(p, round);
        second.advance();
        CHECK(second.told <= 1);
        second.advance();
        CHECK(second.told <= 1);
        for (const int p : {0, 4, 2}) first.ready(p, round);
        bool done_first = false, done_second = false;
        for (int turns = 0; turns < 50 && !(done_first && done_second); ++turns) {
          done_first = done_first || first.advance();
          done_second = done_second || second.advance();
        }
        REQUIRE(done_first);
        REQUIRE(done_second);
        CHECK(a.all_right(round));
        CHECK(b.all_right(round));
        first.performer->leave();
        second.performer->leave();
      }
      CHECK((common.copies > 0) == !maps);
    }
}

TEST_CASE("through areas, who has looked is told of what comes afterwards") {
  const parted how("ring", collective::all_gather, 2, 90, 3);
  common_memory common;
  of_a_process a(common, how, 0), b(common, how, 1);
  a.begin(1);
  b.begin(1);
  for (int p = 0; p < 3; ++p) a.ready(p, 0);  // in a ring it sends its own ones first
  a.advance();
  for (int p = 0; p < 3; ++p) {
    b.told = 0;
    b.ready(p, 0);
    b.advance();
    CHECK(b.told == 1);
    b.advance();
    CHECK(b.told == 1);
    a.advance();
    CHECK(a.parts->arrived(3 + p));
  }
}

TEST_CASE("nothing is believed of a rank that gave the operation up while it was read, or whose process has ended") {
  const parted how("ring", collective::all_gather, 2, 90, 1);
  for (int kind = 0; kind < 3; ++kind) {
    CAPTURE(kind);
    common_memory common;
    common.maps = kind == 0;
    common.ended = kind == 2;
    of_a_process a(common, how, 0), b(common, how, 1);
    a.begin(1);
    b.begin(1);
    a.ready(0, 0);
    b.ready(0, 0);
    a.advance();
    if (kind != 2) common.while_read = [&] { a.performer->leave(); };
    CHECK_FALSE(b.advance());
    CHECK_FALSE(b.parts->arrived(0));  // rank 0's
    common.while_read = [] {};
    common.ended = false;
    CHECK_FALSE(b.advance());  // it goes on no more, whatever comes
    CHECK_FALSE(b.parts->arrived(0));
    a.performer->leave();
    b.performer->leave();
    a.areas.forget(1);
    b.areas.forget(1);
    CHECK(a.begin(2) == -1);
    CHECK(b.begin(2) == -1);
    a.ready(0, 1);
    b.ready(0, 1);
    for (int turns = 0; turns < 5; ++turns) a.advance(), b.advance();
    CHECK(a.all_right(1));
    CHECK(b.all_right(1));
  }
}

TEST_CASE("through areas, who comes second to another call is told whose, and takes nothing of it") {
  const parted how("ring", collective::all_gather, 2, 90, 1);
  common_memory common;
  of_a_process a(common, how, 0), b(common, how, 1);
  CHECK(a.begin(1, 77) == -1);
  a.ready(0, 0);
  a.advance();
  CHECK(b.begin(1, 78) == 0);
  CHECK_FALSE(b.performer->under_way());
  a.advance();
  CHECK_FALSE(a.parts->arrived(1));
}
