// SPDX-License-Identifier: Apache-2.0
#include "protocols/program/program.hpp"

#include "memory/error.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/program/shared_pieces.hpp"
#include "protocols/program/slot_program.hpp"
#include "tests/seed.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <vector>

using namespace troupe;

namespace {

score made(const char* by, collective what, int ranks, rank_t root = 0, bool in_place = false, bool uniform = true) {
  return one_cell_per_step(
      lower_syncs(write_score(*find_choreography(by), flat_setup(what, ranks, root, in_place, uniform))));
}

/// Every rank copies its input to its output, block by block: the smallest score with all offsets.
score copying(collective what, int ranks, int parts) {
  score s;
  s.choreography = "copying";
  s.what = what;
  s.ranks = ranks;
  s.parts = parts;
  s.players.resize(static_cast<std::size_t>(ranks));
  for (rank_t r = 0; r < ranks; ++r) {
    lane l;
    const auto cells = std::min(cell_count(s, r, buffer_kind::input), cell_count(s, r, buffer_kind::output));
    for (std::int32_t c = 0; c < cells; ++c) {
      step next;
      next.kind = step_kind::copy;
      next.source = {buffer_kind::input, self, c, 1};
      next.target = {buffer_kind::output, self, c, 1};
      l.push_back(next);
    }
    s.players[static_cast<std::size_t>(r)].lanes.push_back(l);
  }
  return s;
}

}  // namespace

TEST_CASE("part_begin: from 0 to the whole, never back, nearly even, and on 64 elements where parts are long") {
  std::mt19937_64 random(seed());
  for (int round = 0; round < 3000; ++round) {
    const std::size_t n = 1 + random() % 70;
    const std::size_t count = round % 3 == 0   ? random() % 50
                              : round % 3 == 1 ? random() % 1'000'000
                                               : random() >> (random() % 60);
    CAPTURE(n);
    CAPTURE(count);
    REQUIRE(part_begin(count, n, 0) == 0);
    REQUIRE(part_begin(count, n, n) == count);
    for (std::size_t k = 0; k < n; ++k) {
      const std::size_t begin = part_begin(count, n, k), end = part_begin(count, n, k + 1);
      REQUIRE(begin <= end);
      const std::size_t length = end - begin;
      if (count / n >= 16 * 64) {
        REQUIRE(begin % 64 == 0);
        REQUIRE(length + 64 >= count / n);
        REQUIRE(length <= count / n + 1 + 64);
      } else {
        REQUIRE((length == count / n || length == count / n + 1));
      }
    }
  }
}

TEST_CASE("offsets of uniform blocks: cells follow one another, whatever the count") {
  for (const std::size_t count : {0u, 1u, 2u, 7u, 1000u, 4099u}) {
    const score s = copying(collective::all_to_all, 3, 2);
    call_shape shape;
    shape.count = count;
    shape.element_size = 4;
    const program p = compile(s, 1, shape, {});
    const auto lane = p.lane(0, 0);
    std::size_t at = 0;
    for (const instruction& i : lane) {
      CHECK(i.source.offset == at);
      CHECK(i.target.offset == at);
      at += i.elements * 4;
    }
    CHECK(at == 3 * count * 4);
  }
}

TEST_CASE("blocks of different sizes and displacements") {
  const score s = [] {
    score v = copying(collective::all_to_all, 2, 1);
    v.uniform = false;
    return v;
  }();
  // Block (i, j) has counts[2 i + j] elements. Rank 1 sends blocks 2 and 3 and receives 1 and 3.
  const std::array<std::size_t, 4> counts{5, 3, 0, 4};
  call_shape shape;
  shape.counts = counts;
  shape.element_size = 8;
  CHECK(input_bytes(s.what, 2, 0, 1, shape) == 4 * 8);
  CHECK(output_bytes(s.what, 2, 0, 1, shape) == 7 * 8);
  program p = compile(s, 1, shape, {});
  CHECK(p.lane(0, 0)[0].source.offset == 0);
  CHECK(p.lane(0, 0)[1].source.offset == 0);  // the block before it is empty
  CHECK(p.lane(0, 0)[1].target.offset == 3 * 8);
  const std::array<std::size_t, 2> in{100, 10}, out{20, 0};
  shape.input_displacements = in;
  shape.output_displacements = out;
  p = compile(s, 1, shape, {});
  CHECK(p.lane(0, 0)[0].source.offset == 100 * 8);
  CHECK(p.lane(0, 0)[1].source.offset == 10 * 8);
  CHECK(p.lane(0, 0)[0].target.offset == 20 * 8);
  CHECK(p.lane(0, 0)[1].target.offset == 0);
}

TEST_CASE("channels and slices partition every cell exactly") {
  std::mt19937_64 random(seed());
  for (int round = 0; round < 300; ++round) {
    const cutting cut{1 + static_cast<int>(random() % 5), 1 + static_cast<int>(random() % 5)};
    const int ranks = 1 + static_cast<int>(random() % 4), parts = 1 + static_cast<int>(random() % 3);
    call_shape shape;
    shape.count = std::array<std::size_t, 5>{0, 1, 13, 5000, 100'000}[random() % 5];
    shape.element_size = 2;
    const score s = copying(collective::all_gather, ranks, parts);
    const program p = compile(s, 0, shape, cut);
    REQUIRE(p.channels == cut.channels);
    std::map<std::size_t, std::size_t> ranges;  // begin → end, in elements
    for (int c = 0; c < cut.channels; ++c)
      for (const instruction& i : p.lane(c, 0)) {
        REQUIRE(i.source == location{i.target.offset, self, buffer_kind::input});
        if (i.elements > 0) REQUIRE(ranges.emplace(i.source.offset / 2, i.source.offset / 2 + i.elements).second);
      }
    std::size_t at = 0;
    for (const auto& [begin, end] : ranges) {
      REQUIRE(begin == at);
      at = end;
    }
    CHECK(at == shape.count);
  }
}

TEST_CASE("messages: the n-th send of a lane is as long as the n-th receive at the other end") {
  std::mt19937_64 random(seed());
  for (const choreography* by : all_choreographies())
    for (const collective what : by->collectives)
      for (const int ranks : {2, 3, 5, 8}) {
        setup on = flat_setup(what, ranks, ranks - 1);
        if (ranks == 8) on.placement = layout::grid(2, 4);
        if (!refusal(*by, on).empty()) continue;
        CAPTURE(by->name);
        CAPTURE(name(what));
        CAPTURE(ranks);
        const score s = one_cell_per_step(lower_syncs(write_score(*by, on)));
        call_shape shape;
        shape.count = random() % 3000;
        const cutting cut{1 + static_cast<int>(random() % 3), 1 + static_cast<int>(random() % 3)};
        std::map<std::array<int, 4>, std::vector<std::size_t>> sent, received;  // channel, lane, from, to
        for (rank_t r = 0; r < ranks; ++r) {
          const program p = compile(s, r, shape, cut);
          for (int c = 0; c < p.channels; ++c)
            for (int l = 0; l < p.lanes_per_channel; ++l)
              for (const instruction& i : p.lane(c, l)) {
                if (receives(i.kind)) received[{c, l, i.from, r}].push_back(i.elements);
                if (sends(i.kind)) sent[{c, l, r, i.to}].push_back(i.elements);
              }
        }
        CHECK(sent == received);
      }
}

TEST_CASE("ranks with fewer lanes have as many as the others, so that lanes are numbered alike") {
  score s = copying(collective::all_reduce, 2, 1);
  s.players[1].lanes.push_back(s.players[1].lanes[0]);
  call_shape shape;
  shape.count = 10;
  for (const rank_t r : {0, 1}) {
    const program p = compile(s, r, shape, {2, 1});
    CHECK(p.lanes_per_channel == 2);
    REQUIRE(p.lanes.size() == 4);
    CHECK(p.lane(1, 0).size() == 1);
    CHECK(p.lane(1, 1).size() == static_cast<std::size_t>(r));
  }
}

TEST_CASE("runs of local steps that build one result become one pass") {
  const score s = made("fused", collective::all_reduce, 4);
  call_shape shape;
  shape.count = 4096;
  shape.element_size = 4;
  const program p = compile(s, 1, shape, {});
  CHECK(p.shares_memory);
  std::size_t folds = 0;
  for (const instruction& i : p.lane(0, 0)) {
    CHECK(i.kind != step_kind::reduce);
    if (i.inputs == 0) continue;
    ++folds;
    CHECK(i.inputs == 4);
    CHECK(i.outputs == 4);
    REQUIRE(i.operands + i.inputs + i.outputs <= p.operands.size());
    for (rank_t q = 0; q < 4; ++q) {
      const location& in = p.operands[i.operands + static_cast<std::size_t>(q)];
      CHECK(in == location{1024 * 4, q == 1 ? self : q, buffer_kind::input});  // in rank order
    }
    for (unsigned k = 0; k < i.outputs; ++k) {
      CHECK(p.operands[i.operands + i.inputs + k].buffer == buffer_kind::output);
      CHECK(p.operands[i.operands + i.inputs + k].offset == 1024 * 4);
    }
  }
  CHECK(folds == 1);
}

TEST_CASE("a step that waits is never drawn into the pass before it") {
  score s = copying(collective::reduce_scatter, 1, 1);
  lane& l = s.players[0].lanes[0];
  l.clear();
  step first;
  first.kind = step_kind::copy;
  first.source = {buffer_kind::input, self, 0, 1};
  first.target = {buffer_kind::output, self, 0, 1};
  step second = first;
  second.kind = step_kind::reduce;
  second.source = {buffer_kind::scratch, self, 0, 1};
  s.players[0].scratch = {{0, 0}};
  call_shape shape;
  shape.count = 5;
  l = {first, second};
  CHECK(compile(s, 0, shape, {}).lane(0, 0).size() == 1);
  second.after = {1, 0};
  l = {first, second};
  step other = first;
  other.target = {buffer_kind::scratch, self, 0, 1};
  s.players[0].lanes.push_back({other});
  const program p = compile(s, 0, shape, {});
  REQUIRE(p.lane(0, 0).size() == 2);
  CHECK(p.lane(0, 0)[1].after_lane == 1);
  CHECK(p.lane(0, 0)[1].after_index == 0);
}

TEST_CASE("`after` names the instruction of the same slice, also when steps were joined") {
  score s = copying(collective::all_reduce, 1, 1);
  step copy_in = s.players[0].lanes[0][0];
  step add = copy_in;
  add.kind = step_kind::reduce;
  add.source = {buffer_kind::scratch, self, 0, 1};
  s.players[0].scratch = {{0, 0}};
  step last;
  last.kind = step_kind::wait;
  last.after = {0, 1};
  s.players[0].lanes[0] = {copy_in, add};
  s.players[0].lanes.push_back({last});
  call_shape shape;
  shape.count = 9;
  const program p = compile(s, 0, shape, {2, 3});
  for (int c = 0; c < 2; ++c) {
    REQUIRE(p.lane(c, 0).size() == 3);
    REQUIRE(p.lane(c, 1).size() == 3);
    for (int slice = 0; slice < 3; ++slice) CHECK(p.lane(c, 1)[static_cast<std::size_t>(slice)].after_index == slice);
  }
}

TEST_CASE("L0 cells are as large as the largest slice, and each channel has its own") {
  const score s = made("csc", collective::all_reduce, 4);
  call_shape shape;
  shape.count = 10'000;
  shape.element_size = 4;
  for (const cutting cut : {cutting{1, 1}, cutting{2, 1}, cutting{3, 4}}) {
    const program p = compile(s, 2, shape, cut);
    std::vector<std::pair<std::size_t, std::size_t>> used(static_cast<std::size_t>(cut.channels), {p.l0_bytes, 0});
    for (int c = 0; c < cut.channels; ++c)
      for (int l = 0; l < p.lanes_per_channel; ++l)
        for (const instruction& i : p.lane(c, l))
          for (const location& at : {i.source, i.target})
            if (at.buffer == buffer_kind::l0 && i.elements > 0) {
              auto& [first, last] = used[static_cast<std::size_t>(c)];
              first = std::min(first, at.offset);
              last = std::max(last, at.offset + i.elements * 4);
              CHECK(at.offset + i.elements * 4 <= p.l0_bytes);
            }
    for (std::size_t c = 1; c < used.size(); ++c) CHECK(used[c - 1].second <= used[c].first);
  }
}

TEST_CASE("what an instruction moves of L2, by whose share it lies in") {
  const std::vector<std::size_t> counts{10, 0, 7, 30};
  for (const bool uniform : {true, false}) {
    const score s = made("csc", collective::all_gather, 4, 0, false, uniform);
    call_shape shape;
    shape.count = 10;
    if (!uniform) shape.counts = counts;
    shape.element_size = 4;
    const program p = compile(s, 2, shape, {});
    for (const instruction& i : p.lane(0, 0)) {
      if (!touches_l2(i)) continue;
      const cell_range& at = i.kind == step_kind::dma_get ? i.source_cells : i.target_cells;
      CHECK(shared_pieces(p, i) == std::vector<shared_piece>{{at.cell, 0, i.elements * 4}});
    }
    instruction several;
    several.kind = step_kind::dma_get;
    several.source_cells = {1, 0, 1, 0, 3, self, buffer_kind::l2};
    fit(several, p.places);
    if (uniform) CHECK(shared_pieces(p, several) == std::vector<shared_piece>{{1, 0, 40}, {2, 40, 40}, {3, 80, 40}});
    else CHECK(shared_pieces(p, several) == std::vector<shared_piece>{{1, 0, 0}, {2, 0, 28}, {3, 28, 120}});
  }
  // Two neighbouring cells of one share are one piece.
  const score rows = made("csc", collective::reduce_scatter, 2);
  call_shape shape;
  shape.count = 6;
  const program p = compile(rows, 0, shape, {});
  instruction row;
  row.kind = step_kind::dma_get;
  row.source_cells = {1, 0, 1, 0, 3, self, buffer_kind::l2};
  fit(row, p.places);
  CHECK(shared_pieces(p, row) == std::vector<shared_piece>{{0, 0, 6}, {1, 6, 12}});
}

TEST_CASE("2^33 elements: offsets need no more than 64 bits, and are right") {
  const score s = made("ring", collective::all_gather, 3);
  const std::size_t count = std::size_t{1} << 33;
  call_shape shape;
  shape.count = count;
  shape.element_size = 8;
  std::size_t largest = 0;
  for (rank_t r = 0; r < 3; ++r) {
    const program p = compile(s, r, shape, {2, 1});
    for (int c = 0; c < 2; ++c)
      for (const instruction& i : p.lane(c, 0)) {
        CHECK(i.elements == count / 2);
        for (const location& at : {i.source, i.target}) {
          if (at.buffer == buffer_kind::none) continue;
          CHECK(at.offset % (count / 2 * 8) == 0);
          CHECK(at.offset / (count / 2 * 8) % 2 == static_cast<std::size_t>(c));
          largest = std::max(largest, at.offset + i.elements * 8);
        }
      }
  }
  CHECK(largest == 3 * count * 8);
}

TEST_CASE("what no address space can hold is refused, not wrapped round") {
  const score s = made("ring", collective::all_gather, 3);
  call_shape shape;
  shape.element_size = 8;
  for (const std::size_t count : {std::size_t{1} << 61, ~std::size_t{0}, ~std::size_t{0} / 8, ~std::size_t{0} / 24}) {
    shape.count = count;
    CAPTURE(count);
    CHECK_THROWS_AS(compile(s, 0, shape, {}), error);
    CHECK_THROWS_AS(output_bytes(s.what, 3, 0, 0, shape), error);
  }
}

// -- other sizes ------------------------------------------------------------------------------------------------------

namespace {

bool same_sizes(const program& a, const program& b) {
  bool same = a.scratch_bytes == b.scratch_bytes && a.l0_bytes == b.l0_bytes && a.l2_bytes == b.l2_bytes &&
              a.slot_bytes == b.slot_bytes && a.operands == b.operands && a.lanes.size() == b.lanes.size();
  for (std::size_t l = 0; same && l < a.lanes.size(); ++l)
    same = std::ranges::equal(a.lanes[l], b.lanes[l], [](const instruction& x, const instruction& y) {
      return x.kind == y.kind && x.source == y.source && x.target == y.target && x.elements == y.elements &&
             x.inputs == y.inputs && x.outputs == y.outputs && x.after_index == y.after_index;
    });
  return same;
}

bool same_sizes(const slot_program& a, const slot_program& b) {
  const auto steps = [](const slot_step& x, const slot_step& y) {
    return x.kind == y.kind && x.bytes == y.bytes && x.salt == y.salt && x.source_offset == y.source_offset &&
           x.target_offset == y.target_offset && x.in_line == y.in_line && x.out_line == y.out_line;
  };
  const auto channels = [](const auto& x, const auto& y) { return x.peer == y.peer && x.lines == y.lines; };
  return a.scratch_bytes == b.scratch_bytes && a.l0_bytes == b.l0_bytes && a.largest == b.largest &&
         a.most_lines == b.most_lines && a.operands == b.operands && std::ranges::equal(a.steps, b.steps, steps) &&
         std::ranges::equal(a.channels, b.channels, channels);
}

}  // namespace

TEST_CASE("a program that is fitted to a call is the one that is compiled for it, whatever it was for before") {
  constexpr std::size_t counts[] = {1, 0, 7, 1000, 5, 4096, 70000};
  std::size_t compared = 0;
  for (const choreography* c : all_choreographies())
    for (const collective what : c->collectives)
      for (const int ranks : {2, 5})
        for (const bool in_place : {false, true}) {
          const setup on = flat_setup(what, ranks, 0, in_place);
          if (!refusal(*c, on).empty()) continue;
          INFO(c->name << ' ' << name(what) << ", " << ranks << " ranks");
          const score whole = lower_syncs(write_score(*c, on)), split = one_cell_per_step(whole);
          for (const cutting& cut : {cutting{}, cutting{2, 3}}) {
            const score& s = cut == cutting{} ? whole : split;
            for (const rank_t r : {0, ranks - 1}) {
              program code = compile(s, r, {64, {}, {}, {}, 8}, cut);
              const bool fits = why_no_slots(code, slot_format::ll128, slots::most_lines).empty();
              std::optional<slot_program> over;
              if (fits) over = compile_slots(code, slot_format::ll128, slots::most_lines);
              for (const std::size_t count : counts) {
                const call_shape shape{count, {}, {}, {}, 4};
                const program fresh = compile(s, r, shape, cut);
                fit(code, shape);
                CHECK(same_sizes(code, fresh));
                ++compared;
                if (!fits || !why_no_slots(fresh, slot_format::ll128, slots::most_lines).empty()) continue;
                fit(*over, shape);
                CHECK(same_sizes(*over, compile_slots(fresh, slot_format::ll128, slots::most_lines)));
              }
            }
          }
        }
  CHECK(compared > 2000);
}

TEST_CASE("a program is fitted to blocks of different sizes, with and without gaps") {
  const std::vector<std::vector<std::size_t>> lists = {{0, 3, 9, 1}, {5, 5, 5, 5}, {1000, 0, 0, 7}};
  for (const choreography* c : all_choreographies())
    for (const collective what : {collective::all_gather, collective::reduce_scatter}) {
      const setup on = flat_setup(what, 4, 0, false, false);
      if (!std::ranges::count(c->collectives, what) || !refusal(*c, on).empty()) continue;
      INFO(c->name << ' ' << name(what));
      const score s = one_cell_per_step(lower_syncs(write_score(*c, on)));
      program code = compile(s, 2, {64, {}, {}, {}, 8}, cutting{});
      for (const auto& counts : lists)
        for (const bool gaps : {false, true}) {
          const std::vector<std::size_t> begins = {3, 4000, 2000, 100};
          call_shape shape{0, counts, {}, {}, 4};
          if (gaps) (what == collective::all_gather ? shape.output_displacements : shape.input_displacements) = begins;
          fit(code, shape);
          CHECK(same_sizes(code, compile(s, 2, shape, cutting{})));
        }
    }
}

TEST_CASE("sizes that exceed the address space are refused when a program is fitted, and others fit afterwards") {
  const score s = write_score(*find_choreography("ring"), flat_setup(collective::all_gather, 3));
  program code = compile(s, 0, {1, {}, {}, {}, 8}, cutting{});
  CHECK_THROWS_AS(fit(code, {std::size_t{1} << 61, {}, {}, {}, 8}), error);
  fit(code, {9, {}, {}, {}, 8});
  CHECK(same_sizes(code, compile(s, 0, {9, {}, {}, {}, 8}, cutting{})));
}

TEST_CASE("who routes blocks through others needs their sizes, who sends them straight does not") {
  const auto own = [](const char* who, collective what, rank_t root = 0) {
    setup on = flat_setup(what, 5, root);
    on.uniform = false;
    return needs_only_own_blocks(one_cell_per_step(lower_syncs(write_score(*find_choreography(who), on))));
  };
  CHECK(own("pairwise", collective::all_to_all));
  CHECK(own("one_shot", collective::all_to_all));
  CHECK(own("one_shot", collective::gather, 3));
  CHECK(own("one_shot", collective::scatter, 3));
  CHECK_FALSE(own("binomial", collective::gather, 3));
  CHECK_FALSE(own("binomial", collective::scatter, 3));
  CHECK_FALSE(own("fused", collective::all_to_all));  // reads the others' buffers
}
