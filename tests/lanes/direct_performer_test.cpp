// SPDX-License-Identifier: Apache-2.0
// The direct port: results under random schedules by one thread, and by threads of which some give up in the middle.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <optional>
#include <random>
#include <thread>

#include "protocols/program/direct_program.hpp"
#include "tests/lanes/slot_helpers.hpp"
#include "tests/seed.hpp"

namespace direct_performer_test {

using namespace slot_test;
using slot_test::operation;  // not the rank's

namespace {

/// A collective compiled for the direct port; `operation` keeps the shapes.
operation direct(std::string_view choreography, setup on, std::size_t elements) {
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
cell_range cells(buffer_kind buffer, std::int32_t first, std::int32_t count, rank_t owner = self) {
  cell_range at;
  at.buffer = buffer;
  at.cell = first;
  at.count = count;
  at.owner = owner;
  return at;
}
instruction copying(const cell_range& from, const cell_range& to) {
  instruction i;
  i.kind = step_kind::copy;
  i.source_cells = from;
  i.target_cells = to;
  return i;
}

}  // namespace

TEST_CASE("direct: every collective, rank count and size gives the right answer under any schedule") {
  std::mt19937_64 random{seed()};
  for (const int ranks : {2, 3, 4, 7, 8, 20})
    for (const collective c : find_choreography("fused")->collectives)
      for (const bool in_place : {false, true}) {
        if (in_place && !may_be_in_place(c)) continue;
        slot_board board{ranks};
        std::vector<std::unique_ptr<direct_player>> players;
        for (rank_t r = 0; r < ranks; ++r) players.push_back(std::make_unique<direct_player>(board, r));
        std::uint64_t epoch = random() % 3;
        for (const std::size_t count : {0U, 1U, 2U, 63U, 1000U, 70001U}) {
          if (ranks > 8 && count > 1000) continue;
          const rank_t root = has_root(c) ? static_cast<rank_t>(random() % static_cast<unsigned>(ranks)) : 0;
          const operation what = direct("fused", flat_setup(c, ranks, root, in_place), count);
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

TEST_CASE("direct: nobody leaves a barrier before all have come, whoever may write its score") {
  std::mt19937_64 random{seed()};
  for (const std::string_view by : {"recursive_doubling", "binomial"})
    for (const int ranks : {2, 5, 70}) {
      slot_board board{ranks};
      const operation what = direct(by, flat_setup(collective::barrier, ranks), 0);
      INFO(describe(what, by));
      std::vector<std::unique_ptr<direct_player>> players;
      for (rank_t r = 0; r < ranks; ++r) players.push_back(std::make_unique<direct_player>(board, r));
      for (std::uint64_t epoch = 0; epoch < 20; ++epoch) {
        std::vector<rank_t> order;
        for (rank_t r = 0; r < ranks; ++r) order.push_back(r);
        std::shuffle(order.begin(), order.end(), random);
        for (const rank_t r : order) {
          auto& p = *players[static_cast<std::size_t>(r)];
          p.start(what, epoch);
          const auto status = p.performs.advance();
          CHECK(status == (r == order.back() ? board_performer::status::performed : board_performer::status::waiting));
        }
        for (auto& p : players) CHECK(p->performs.advance() == board_performer::status::performed);
      }
    }
}

TEST_CASE("direct: a rank that has seen all on its core waits for other cores, and so do all once everybody has come") {
  slot_board board{4};
  const operation what = direct("fused", flat_setup(collective::all_reduce, 4), 1000);
  std::vector<std::unique_ptr<direct_player>> players;
  for (rank_t r = 0; r < 4; ++r) {
    players.push_back(std::make_unique<direct_player>(board, r));
    board.cores().note(r, r / 2);
  }
  const auto begin = [&](rank_t r) {
    direct_player& p = *players[static_cast<std::size_t>(r)];
    p.start(what, 0);
    return p.performs.advance();
  };
  const auto waits_elsewhere = [&](rank_t r) {
    return players[static_cast<std::size_t>(r)]->performs.waits_for_other_cores();
  };
  CHECK(begin(1) == board_performer::status::waiting);
  CHECK_FALSE(waits_elsewhere(1));
  CHECK(begin(2) == board_performer::status::waiting);
  CHECK_FALSE(waits_elsewhere(1));
  CHECK(begin(0) == board_performer::status::waiting);
  CHECK(waits_elsewhere(0));
  CHECK(waits_elsewhere(1));
  CHECK_FALSE(waits_elsewhere(2));
  CHECK(begin(3) == board_performer::status::performed);
  for (const rank_t r : {0, 1, 2}) CHECK(waits_elsewhere(r));
  for (auto& p : players) {
    if (!p->performs.idle()) CHECK(p->performs.advance() == board_performer::status::performed);
    CHECK(p->wrong(what) == 0);
  }
}

TEST_CASE("direct: long bodies are cut, unless their steps overlap") {
  const operation what = direct("fused", flat_setup(collective::all_reduce, 2), 1 << 20);
  direct_sizes sizes;
  sizes.set(what.over_buffers, 0, what.shape);
  CHECK(sizes.units(0) > 16);
  CHECK(sizes.stores() == store_hint::cached);
  call_shape large = what.shape;
  large.count = 1 << 23;
  sizes.set(what.over_buffers, 0, large);
  CHECK(sizes.stores() == store_hint::streamed);
  // A body of many operands is cut into fewer units than its bytes would allow: 64 blocks of 16 KiB, read and written.
  const operation many = direct("fused", flat_setup(collective::all_gather, 64), 16 * 1024 / sizes.element_size());
  sizes.set(many.over_buffers, 0, many.shape);
  CHECK(sizes.units(0) == 1);

  const auto body = [](const cell_range& from) {
    const auto first = copying(cells(buffer_kind::input, 0, 4), cells(buffer_kind::output, 0, 4));
    const auto second = copying(from, cells(buffer_kind::scratch, 0, 4));
    return std::vector{token(true, 1), token(false, 1), first, second, token(true, 1), token(false, 1)};
  };
  const auto little = copying(cells(buffer_kind::input, 0, 1), cells(buffer_kind::output, 0, 1));
  const auto peer = with_lane({token(true, 0), token(false, 0), little, token(true, 0), token(false, 0)});
  const auto divisible = [&](const cell_range& from, bool in_place) {
    return compile_direct(std::vector<std::shared_ptr<const program>>{with_lane(body(from)), peer},
                          {collective::all_reduce, 0, in_place})
        .bodies[0]
        .divisible;
  };
  CHECK(divisible(cells(buffer_kind::output, 0, 4), false));
  CHECK_FALSE(divisible(cells(buffer_kind::output, 1, 4), false));
  CHECK(divisible(cells(buffer_kind::input, 1, 4), false));
  CHECK_FALSE(divisible(cells(buffer_kind::input, 1, 4), true));
}

TEST_CASE("direct: where large results are stored is tried now and then, by calls as all ranks count them") {
  slot_board board{2};
  direct_player one{board, 0};
  std::uint64_t epoch = 0;
  const auto streamed = [&](std::size_t count, int calls) {
    const operation what = direct("fused", flat_setup(collective::all_reduce, 2), count);
    std::string text;
    for (int i = 0; i < calls; ++i) {
      one.start(what, epoch++);
      text += one.performs.stores() == store_hint::streamed ? 's' : 'c';
      one.performs.abandon();  // which tells no time, so there is never a verdict
    }
    return text;
  };
  // 32 bytes an element in all: 15 MiB, 20, 50 and 128.
  CHECK(streamed(15 << 15, 100) == std::string(100, 'c'));
  CHECK(streamed(20 << 15, 100) == std::string(48, 'c') + std::string(6, 's') + std::string(46, 'c'));
  CHECK(streamed(50 << 15, 60) == std::string(16, 's') + std::string(6, 'c') + std::string(38, 's'));
  CHECK(streamed(128 << 15, 100) == std::string(100, 's'));
}

TEST_CASE(
    "direct: ranks that found nothing to do are told what each way to store took, and all change in the same call") {
  slot_board board{2};
  direct_player idle{board, 0}, works{board, 1};
  const operation what = direct("fused", flat_setup(collective::all_reduce, 2), 17 << 15);
  std::string by_idle, by_worker;
  for (std::uint64_t epoch = 0; epoch < 60; ++epoch) {
    idle.start(what, epoch);
    works.start(what, epoch);
    by_idle += idle.performs.stores() == store_hint::streamed ? 's' : 'c';
    by_worker += works.performs.stores() == store_hint::streamed ? 's' : 'c';
    REQUIRE(idle.performs.advance() == board_performer::status::waiting);
    REQUIRE(works.performs.advance() == board_performer::status::performed);
    REQUIRE(board.direct().took > 0);
    board.direct().took = by_idle.back() == 's' ? 1.0 : 2.0;
    REQUIRE(idle.performs.advance() == board_performer::status::performed);
  }
  CHECK(works.wrong(what) + idle.wrong(what) == 0);
  CHECK(by_idle == std::string(48, 'c') + std::string(12, 's'));
  // It was told what its own work took; which of the two is faster is the computer's matter.
  CHECK(by_worker.substr(0, 54) == by_idle.substr(0, 54));
  // What tries nothing leaves no time behind.
  const operation little = direct("fused", flat_setup(collective::all_reduce, 2), 1000);
  idle.start(little, 60), works.start(little, 60);
  REQUIRE(idle.performs.advance() == board_performer::status::waiting);
  REQUIRE(works.performs.advance() == board_performer::status::performed);
  CHECK(board.direct().took == 0);
  CHECK(idle.performs.advance() == board_performer::status::performed);
}

TEST_CASE("direct: what a rank does of another's part it takes from the end") {
  slot_board board{2};
  const operation what = direct("fused", flat_setup(collective::all_reduce, 2), 1 << 20);
  const std::size_t half = what.count / 2;  // a body
  direct_player waits{board, 0}, works{board, 1};
  waits.start(what, 0);
  works.start(what, 0);
  struct seen {
    const std::int64_t* from;
    std::vector<std::size_t> begins;
  } order{reinterpret_cast<const std::int64_t*>(works.input.data()), {}};
  const op records = user_op(
      [](const void* left, const void* right, void* out, std::size_t count, datatype, void* context) {
        auto& to = *static_cast<seen*>(context);
        const auto *a = static_cast<const std::int64_t*>(left), *b = static_cast<const std::int64_t*>(right);
        for (std::size_t i = 0; i < count; ++i) static_cast<std::int64_t*>(out)[i] = a[i] + b[i];
        to.begins.push_back(static_cast<std::size_t>(b - to.from));
      },
      &order);
  for (direct_player* p : {&waits, &works}) {
    p->performs.abandon();
    const memory_map memory{.input = reinterpret_cast<std::byte*>(p->input.data()),
                            .output = reinterpret_cast<std::byte*>(p->output.data())};
    p->performs.start(what.over_buffers, memory, what.shape, datatype::i64, records, 1, 1);
  }
  REQUIRE(waits.performs.advance() == board_performer::status::waiting);
  REQUIRE(works.performs.advance() == board_performer::status::performed);
  REQUIRE(waits.performs.advance() == board_performer::status::performed);
  if (usable_cores() < 2) {  // one core's are all parts, one after the other
    CHECK(std::is_sorted(order.begins.begin(), order.begins.end()));
    return;
  }
  // In its own part it goes forwards, and only that one is done first.
  const auto other = std::ranges::find_if(order.begins, [&](std::size_t begin) { return begin < half; });
  CHECK(std::is_sorted(order.begins.begin(), other));
  CHECK(order.begins.front() == half);
  CHECK(std::ranges::all_of(other, order.begins.end(), [&](std::size_t begin) { return begin < half; }));
  CHECK(*other > half / 2);
  CHECK(*other < half);
  CHECK(std::ranges::find(order.begins, std::size_t{0}) > other);
}

TEST_CASE("direct: local steps that a token orders behind a peer's are refused") {
  const auto work = copying(cells(buffer_kind::input, 0, 4, 1), cells(buffer_kind::output, 0, 4));
  const auto list = [](std::vector<instruction> a, std::vector<instruction> b) {
    return std::vector<std::shared_ptr<const program>>{with_lane(std::move(a)), with_lane(std::move(b))};
  };
  CHECK(why_not_direct(list({token(true, 1), token(false, 1), work}, {token(true, 0), token(false, 0), work})).empty());
  CHECK(why_not_direct(list({token(true, 1), token(false, 1), work, token(true, 1)},
                            {token(false, 0), token(false, 0), token(true, 0), work}))
            .find("begins its local steps after some of rank 0") != std::string::npos);
  CHECK(why_not_direct(list({work, token(true, 1), work}, {token(false, 0), work})).find("between") !=
        std::string::npos);
  // Nor may it be behind them by way of a rank that has none.
  const auto alone = copying(cells(buffer_kind::input, 0, 4), cells(buffer_kind::output, 0, 4));
  const auto three = [&](std::vector<instruction> idle) {
    auto all = list({alone, token(true, 2)}, {token(false, 2), alone});
    all.push_back(with_lane(std::move(idle)));
    return all;
  };
  CHECK(why_not_direct(three({token(false, 0), token(true, 1)})).find("begins its local steps after some of rank 2") !=
        std::string::npos);
  CHECK(why_not_direct(three({token(true, 1), token(false, 0)})).find("begins its local steps after some of rank 2") !=
        std::string::npos);
  CHECK_FALSE(
      why_not_direct(list({work}, {copying(cells(buffer_kind::l2, 0, 4), cells(buffer_kind::output, 0, 4))})).empty());
}

namespace {

/// Factors of blocks: some fit what a rank may bring, of which some are as long as it may be, and with the first one none do.
constexpr std::array<std::size_t, 4> longer{900, 30, 100, 8};

/// A v-form on i64 whose counts differ in every operation; block (i, j), or i, holds i, j and the number of the operation.
struct uneven {
  /// @param longest factor of some blocks; with 1 all are so small that ranks bring them along (snapshots.hpp)
  uneven(collective c, int n, rank_t r, std::size_t longest = 900) : what(c), ranks(n), root(r), factor(longest) {
    const score s =
        one_cell_per_step(lower_syncs(write_score(*find_choreography("fused"), flat_setup(c, n, r, false, false))));
    std::vector<std::shared_ptr<const program>> all;
    for (rank_t q = 0; q < n; ++q)
      all.push_back(std::make_shared<const program>(compile(s, q, {1, {}, {}, {}, sizeof(std::int64_t)}, {})));
    code = compile_direct(all, {c, r, false});
  }
  std::size_t elements(std::int64_t block, std::uint64_t round) const {
    return static_cast<std::size_t>((static_cast<std::uint64_t>(block) * 7 + round * 5) % 9) *
           (block % 3 == 1 ? factor : 1);
  }
  std::int64_t value(rank_t from, std::int64_t block, std::size_t i, std::uint64_t round) const {
    return contribution(from, static_cast<std::size_t>(block) * 100000 + i, round);
  }

  collective what;
  int ranks;
  rank_t root;
  std::size_t factor;
  direct_program code;
};

/// One rank's part: buffers with a gap before every block.
struct uneven_player {
  uneven_player(slot_board& board, rank_t r) : rank(r), performs(board, r) {}

  void start(const uneven& job, std::uint64_t round, bool lie = false, bool ahead = false) {
    std::vector<std::size_t> counts, received, in_begins, out_begins;
    const block_run in = input_blocks(job.what, job.ranks, job.root, rank),
                    out = output_blocks(job.what, job.ranks, job.root, rank);
    const auto lay_out = [&](const block_run& run, std::vector<std::size_t>& begins,
                             std::vector<std::int64_t>& memory) {
      std::size_t end = 0;
      for (int i = 0; i < run.count; ++i) {
        begins.push_back(++end);
        end += job.elements(run.first + i * run.stride, round);
      }
      memory.assign(end + 1, -1);
    };
    lay_out(in, in_begins, input);
    lay_out(out, out_begins, output);
    for (int i = 0; i < in.count; ++i)
      for (std::size_t k = 0; k < job.elements(in.first + i * in.stride, round); ++k)
        input[in_begins[static_cast<std::size_t>(i)] + k] = job.value(rank, in.first + i * in.stride, k, round);
    const v_counts known = traits_of(job.what).v;
    if (known == v_counts::every_pair) {
      for (int i = 0; i < job.ranks; ++i) counts.push_back(job.elements(in.first + i * in.stride, round));
      for (int i = 0; i < job.ranks; ++i) received.push_back(job.elements(out.first + i * out.stride, round));
      if (lie) received[0] += 1;
    } else if (known == v_counts::rooted && rank != job.root) {
      counts = {job.elements(rank, round) + (lie ? 1 : 0)};
    } else {
      for (int b = 0; b < job.ranks; ++b) counts.push_back(job.elements(b, round));
    }
    const call_shape shape{0, counts, in_begins, out_begins, sizeof(std::int64_t), received};
    memory_map memory;
    memory.input = reinterpret_cast<std::byte*>(input.data());
    memory.output = reinterpret_cast<std::byte*>(output.data());
    performs.start(job.code, memory, shape, datatype::i64, sum, round, 77, ahead);
  }

  std::size_t wrong(const uneven& job, std::uint64_t round) const {
    std::size_t at = 0, errors = 0;
    const block_run out = output_blocks(job.what, job.ranks, job.root, rank);
    for (int i = 0; i < out.count; ++i) {
      const std::int64_t block = out.first + i * out.stride;
      errors += output[at++] != -1;
      for (std::size_t k = 0; k < job.elements(block, round); ++k) {
        const rank_range from = contributors(job.what, job.ranks, job.root, rank, block);
        std::uint64_t expected = 0;  // which may wrap
        for (rank_t q = from.first; q < from.first + from.count; ++q)
          expected += static_cast<std::uint64_t>(job.value(q, block, k, round));
        errors += output[at++] != static_cast<std::int64_t>(expected);
      }
    }
    return errors + (output[at] != -1);
  }

  rank_t rank;
  direct_performer performs;
  std::vector<std::int64_t> input, output;
};

std::vector<std::unique_ptr<uneven_player>> players_at(slot_board& board) {
  std::vector<std::unique_ptr<uneven_player>> players;
  for (rank_t r = 0; r < board.ranks(); ++r) players.push_back(std::make_unique<uneven_player>(board, r));
  return players;
}

constexpr collective uneven_ones[] = {collective::all_gather, collective::reduce_scatter, collective::gather,
                                      collective::scatter, collective::all_to_all};

}  // namespace

TEST_CASE("direct: blocks of different sizes, others in every operation, with gaps, under any schedule") {
  std::mt19937_64 random{seed()};
  for (const int at : {2, 3, 7, 12, 17, -2, -3, -7, -12, -17})
    for (const collective c : uneven_ones) {
      const int ranks = std::abs(at);
      const uneven job{c, ranks, static_cast<rank_t>(random() % static_cast<unsigned>(ranks)),
                       at < 0 ? 1u : longer[random() % longer.size()]};
      INFO(name(c) << ", " << ranks << " ranks, root " << job.root << ", longest " << job.factor);
      slot_board board{ranks};
      const auto players = players_at(board);
      constexpr std::uint64_t rounds = 40;
      std::vector<std::uint64_t> next(players.size(), 0);
      for (auto& p : players) p->start(job, 0);
      for (std::size_t open = players.size(), idle = 0; open > 0; ++idle) {
        REQUIRE(idle < 10000);
        const std::size_t r = random() % players.size();
        uneven_player& p = *players[r];
        if (next[r] == rounds) continue;
        REQUIRE(p.performs.advance() != board_performer::status::mismatch);
        if (!p.performs.idle()) continue;
        idle = 0;
        CHECK(p.wrong(job, next[r]) == 0);
        if (++next[r] < rounds) p.start(job, next[r]);
        else --open;
      }
      const bool brings = at < 0 && ranks <= snapshots::most_ranks && traits_of(c).v != v_counts::common;
      // The only long block is the one that the root keeps.
      const bool keeps = at > 0 && ranks <= 3 && c == collective::scatter && job.root == 1;
      if (brings || keeps) CHECK(board.direct().over.load() != direct_board::mark_of(rounds - 1));
      else if (at < 0 || job.factor == longer.front())
        CHECK(board.direct().over.load() == direct_board::mark_of(rounds - 1));
    }
}

namespace {
/// Most operations of a rank may run ahead of the others.
bool goes_ahead(std::uint64_t round) { return round % 11 != 6; }
}  // namespace

TEST_CASE("direct: with a root, ranks that only give run ahead, and nobody gets what is another operation's") {
  std::mt19937_64 random{seed()};
  for (const int at : {2, 3, 7, 12, 17, -2, -3, -7, -12, -17})
    for (const collective c : {collective::gather, collective::scatter}) {
      const int ranks = std::abs(at);
      // The root moves on with every operation.
      std::vector<std::unique_ptr<uneven>> jobs;
      for (rank_t root = 0; root < ranks; ++root)
        jobs.push_back(std::make_unique<uneven>(c, ranks, root,
                                                at < 0 ? 1u : longer[static_cast<std::size_t>(root) % longer.size()]));
      const auto stays = static_cast<std::uint64_t>(1 + random() % 20);
      const auto job_of = [&](std::uint64_t round) -> const uneven& { return *jobs[round / stays % jobs.size()]; };
      INFO(name(c) << ", " << ranks << " ranks, root for " << stays << " operations, longest " << jobs[0]->factor);
      slot_board board{ranks};
      const auto players = players_at(board);
      constexpr std::uint64_t rounds = 150;
      std::vector<std::uint64_t> next(players.size(), 0);
      std::uint64_t farthest = 0;
      const auto start = [&](std::size_t r) {
        players[r]->start(job_of(next[r]), next[r], false, goes_ahead(next[r]));
        farthest = std::max(farthest, next[r] - *std::min_element(next.begin(), next.end()));
      };
      for (std::size_t r = 0; r < players.size(); ++r) start(r);
      for (std::size_t open = players.size(), idle = 0; open > 0; ++idle) {
        REQUIRE(idle < 10000);
        const std::size_t r = random() % players.size();
        uneven_player& p = *players[r];
        if (next[r] == rounds) continue;
        REQUIRE(p.performs.advance() != board_performer::status::mismatch);
        if (!p.performs.idle()) continue;
        idle = 0;
        CHECK(p.wrong(job_of(next[r]), next[r]) == 0);
        if (++next[r] < rounds) start(r);
        else --open;
      }
      // Where there are places for copies; else it takes all ranks to end one. A rank that is the root every other time may never come farther.
      if (at < 0 && ranks <= snapshots::most_ranks && stays > 1) CHECK(farthest > 1);
      if (ranks > snapshots::most_ranks) CHECK(farthest <= 1);
    }
}

TEST_CASE("direct: with a root, whoever sleeps is woken by what he waits for, as nobody else looks for him") {
  std::mt19937_64 random{seed()};
  for (const int ranks : {2, 3, 5, 8})
    for (const collective c : {collective::gather, collective::scatter}) {
      const uneven job{c, ranks, static_cast<rank_t>(random() % static_cast<unsigned>(ranks)), 900};
      INFO(name(c) << ", " << ranks << " ranks, root " << job.root);
      slot_board board{ranks};
      const auto players = players_at(board);
      constexpr std::uint64_t rounds = 150;
      std::vector<std::uint64_t> next(players.size(), 0);
      std::vector<std::optional<slot_board::sleep>> asleep(players.size());
      for (auto& p : players) p->start(job, 0, false, goes_ahead(0));
      for (std::size_t open = players.size(), idle = 0; open > 0; ++idle) {
        REQUIRE(idle < 10000);  // all sleep
        const std::size_t r = random() % players.size();
        if (next[r] == rounds || (asleep[r] && !asleep[r]->woken())) continue;
        idle = 0;
        asleep[r].reset();
        uneven_player& p = *players[r];
        for (bool announced = false; !p.performs.idle() && !asleep[r]; announced = true) {
          const std::size_t before = p.performs.steps_taken();
          if (announced) {
            asleep[r].emplace(board, p.rank);
            p.performs.announce(*asleep[r]);
            asleep[r]->fence();
          }
          REQUIRE(p.performs.advance() != board_performer::status::mismatch);
          if (p.performs.idle() || p.performs.steps_taken() != before) asleep[r].reset();
        }
        if (!p.performs.idle()) continue;
        CHECK(p.wrong(job, next[r]) == 0);
        if (++next[r] < rounds) p.start(job, next[r], false, goes_ahead(next[r]));
        else --open;
      }
    }
}

TEST_CASE(
    "direct: a rank that ran ahead with another count or call is found out by who hears of it, and by nobody else") {
  for (const std::size_t longest : {std::size_t{900}, std::size_t{1}})
    for (const collective c : {collective::gather, collective::scatter}) {
      const uneven job{c, 3, 0, longest};
      slot_board board{3};
      const auto players = players_at(board);
      for (auto& p : players) p->start(job, 3, p->rank == 2, true);
      std::vector<board_performer::status> last(3);
      for (int i = 0; i < 30; ++i)
        for (std::size_t r = 0; r < 3; ++r)
          if (last[r] = players[r]->performs.advance(); i == 0 && r == 0 && longest == 1 && c == collective::scatter)
            CHECK(last[r] == board_performer::status::performed);
      // Block 2 is small, so rank 2 has brought it, and the root of a gather finds another size there.
      const std::size_t hears = c == collective::gather ? 0 : 2;
      CHECK(last[hears] == board_performer::status::mismatch);
      CHECK(players[hears]->performs.suspect() == (c == collective::gather ? 2 : 0));
      for (auto& p : players) p->performs.abandon();
      for (auto& p : players) p->start(job, 4, false, true);
      for (int i = 0; i < 30; ++i)
        for (auto& p : players)
          if (!p->performs.idle()) p->performs.advance();
      for (auto& p : players) {
        CHECK(p->performs.idle());
        CHECK(p->wrong(job, 4) == 0);
      }
    }
}

TEST_CASE("direct: what a rank brought stays for those who look late, also when operations are given up in between") {
  std::mt19937_64 random{seed()};
  for (const bool ahead : {false, true})
    for (const collective c : {collective::gather, collective::scatter, collective::all_to_all})
      for (const int ranks : {2, 3, 5}) {
        const uneven job{c, ranks, static_cast<rank_t>(random() % static_cast<unsigned>(ranks)),
                         ahead && random() % 2 ? 900u : 1u};
        INFO(name(c) << ", " << ranks << " ranks, root " << job.root << (ahead ? ", ahead" : ""));
        slot_board board{ranks};
        const auto players = players_at(board);
        constexpr std::uint64_t rounds = 300;
        const auto fails = [](std::uint64_t round) { return round % 5 == 1 || round % 7 < 2; };
        std::vector<std::uint64_t> next(players.size(), 0);
        const auto start = [&](uneven_player& p, std::uint64_t round) {
          p.start(job, round, false, ahead && goes_ahead(round));
        };
        for (auto& p : players) start(*p, 0);
        int performed = 0;
        for (std::size_t open = players.size(), idle = 0; open > 0; ++idle) {
          REQUIRE(idle < 10000);
          const std::size_t r = random() % players.size();
          uneven_player& p = *players[r];
          if (next[r] == rounds) continue;
          REQUIRE(p.performs.advance() != board_performer::status::mismatch);
          if (!p.performs.idle() && !(fails(next[r]) && random() % 4 == 0)) continue;
          if (p.performs.idle()) CHECK(p.wrong(job, next[r]) == 0), ++performed;
          p.performs.abandon();
          idle = 0;
          if (++next[r] < rounds) start(p, next[r]);
          else --open;
        }
        CHECK(performed > static_cast<int>(rounds) * ranks / 2);
      }
}

TEST_CASE("direct: blocks of different sizes on threads") {
  for (const bool ahead : {false, true})
    for (const std::size_t longest : {std::size_t{900}, std::size_t{1}})
      for (const collective c : uneven_ones) {
        const uneven job{c, 3, 1, longest};
        slot_board board{3};
        std::atomic<std::size_t> wrong{0};
        std::vector<std::thread> threads;
        for (rank_t r = 0; r < 3; ++r)
          threads.emplace_back([&, r] {
            uneven_player p{board, r};
            for (std::uint64_t round = 0; round < 500; ++round) {
              p.start(job, round, false, ahead && goes_ahead(round));
              while (p.performs.advance() == board_performer::status::waiting) std::this_thread::yield();
              wrong += p.wrong(job, round);
            }
          });
        for (auto& t : threads) t.join();
        CHECK(wrong == 0);
      }
}

TEST_CASE(
    "direct: ranks that count a block differently all hear of it, never end the operation, and can go on after it") {
  for (const std::size_t longest : {std::size_t{900}, std::size_t{1}})
    for (const collective c : {collective::all_to_all, collective::gather, collective::scatter}) {
      const uneven job{c, 3, 0, longest};
      slot_board board{3};
      const auto players = players_at(board);
      for (auto& p : players) p->start(job, 4, p->rank == 2);
      std::vector<board_performer::status> last(3);
      for (int i = 0; i < 30; ++i)
        for (std::size_t r = 0; r < 3; ++r) last[r] = players[r]->performs.advance();
      for (const auto s : last) CHECK(s == board_performer::status::mismatch);
      for (auto& p : players) p->performs.abandon();
      for (auto& p : players) p->start(job, 5);
      for (int i = 0; i < 30; ++i)
        for (auto& p : players)
          if (!p->performs.idle()) p->performs.advance();
      for (auto& p : players) {
        CHECK(p->performs.idle());
        CHECK(p->wrong(job, 5) == 0);
      }
    }
}

TEST_CASE("direct: another fingerprint is a mismatch, and abandoning leaves the next operation whole") {
  slot_board board{2};
  direct_player a{board, 0}, b{board, 1};
  const operation what = direct("fused", flat_setup(collective::all_reduce, 2), 10);
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

TEST_CASE("direct: any number may be a board's first, also where ranks count who has come") {
  for (const std::uint64_t first : {(std::uint64_t{1} << 47) - 1, (std::uint64_t{1} << 47) + 5,
                                    (std::uint64_t{1} << 48) - 1, std::uint64_t{1} << 61}) {
    constexpr int ranks = 9;
    slot_board board{ranks};
    const operation what = direct("fused", flat_setup(collective::all_reduce, ranks), 10);
    std::vector<std::unique_ptr<direct_player>> all;
    for (rank_t r = 0; r < ranks; ++r) all.push_back(std::make_unique<direct_player>(board, r));
    for (std::uint64_t sequence = first; sequence < first + 3; ++sequence) {
      INFO("number " << sequence);
      for (auto& p : all) p->start(what, sequence);
      for (int looks = 0; looks < 3; ++looks)
        for (auto& p : all)
          if (!p->performs.idle()) p->performs.advance();
      for (auto& p : all) {
        CHECK(p->performs.idle());
        CHECK(p->wrong(what) == 0);
      }
    }
  }
}

// The late one of a round finds it ended by the others, and them on their way to the next, whose call is another.
// More than eight count who has come.
void late_ones(int ranks, std::uint64_t rounds) {
  slot_board board{ranks};
  const operation what = direct("fused", flat_setup(collective::all_reduce, ranks), 10);
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

TEST_CASE("direct: who is late sees no mismatch in the next operation's call") {
#if defined(__SANITIZE_THREAD__)
  constexpr std::uint64_t rounds = 5'000;  // a race is reported whether or not it does harm
#else
  constexpr std::uint64_t rounds = 150'000;
#endif
  late_ones(4, rounds);
  late_ones(12, rounds / 10);
}

// Every operation's buffers are new, and are overwritten and freed as soon as the rank has ended it, in whatever way. A peer that still
// reads or writes there is a data race, a use after free, or wrong poison.
TEST_CASE("direct: nobody touches the buffers of a rank that gave up") {
  const std::uint64_t base = seed();
  constexpr std::int64_t poison = 0x7a7a7a7a7a7a7a7a;
  for (const int ranks : {2, 3, 5, 9}) {  // nine count who has come
    const std::uint64_t rounds = ranks > 8 ? 100 : 400;
    const operation what = direct("fused", flat_setup(collective::all_reduce, ranks), 40'000);
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

}  // namespace direct_performer_test
