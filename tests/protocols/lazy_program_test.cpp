// SPDX-License-Identifier: Apache-2.0
#include "protocols/program/lazy_program.hpp"

#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/lowering.hpp"
#include "tests/seed.hpp"

#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

using namespace troupe;

namespace {

/// A step that a fold came from.
struct plain {
  step_kind kind;
  location source, target;
  std::size_t elements;
};

std::vector<plain> unfolded(const program& code, const instruction& i) {
  if (i.inputs == 0) return {{i.kind, i.source, i.target, i.elements}};
  const location* in = code.operands.data() + i.operands;
  const location* out = in + i.inputs;
  std::vector<plain> steps{{step_kind::copy, in[0], out[0], i.elements}};
  for (int k = 1; k < i.inputs; ++k) steps.push_back({step_kind::reduce, in[k], out[0], i.elements});
  for (int k = 1; k < i.outputs; ++k) steps.push_back({step_kind::copy, out[0], out[k], i.elements});
  return steps;
}

/// A program for virtual time has a step of its own for every step of the score, which one without folds is made of.
void check_unfolded(const program& folded, const program& timed) {
  REQUIRE(timed.lanes.size() == folded.lanes.size());
  REQUIRE(timed.scratch_bytes == folded.scratch_bytes);
  REQUIRE(timed.slot_bytes == folded.slot_bytes);
  for (std::size_t l = 0; l < timed.lanes.size(); ++l) {
    std::size_t at = 0;
    for (const instruction& i : folded.lanes[l])
      for (const plain& step : unfolded(folded, i)) {
        REQUIRE(at < timed.lanes[l].size());
        const instruction& made = timed.lanes[l][at++];
        REQUIRE(made.inputs == 0);
        REQUIRE(made.kind == step.kind);
        REQUIRE(made.source == step.source);
        REQUIRE(made.target == step.target);
        REQUIRE(made.elements == step.elements);
      }
    REQUIRE(at == timed.lanes[l].size());
  }
}

/// All but where cells lie: only whose memory it is.
bool same_memory(buffer_kind buffer, rank_t owner, const location& at) {
  return buffer == at.buffer && owner == at.owner;
}

void check_equal(const score& s, const call_shape& shape, const cutting& cut) {
  const auto sizes = std::make_shared<const lazy_sizes>(s, shape, cut);
  for (rank_t r = 0; r < s.ranks; ++r) {
    const program timed = compile(s, r, shape, cut, step_work::timed);
    check_unfolded(compile(s, r, shape, cut), timed);
    const lazy_program lazy{sizes, r};
    REQUIRE(lazy.lanes_per_channel == timed.lanes_per_channel);
    for (int c = 0; c < cut.channels; ++c)
      for (int l = 0; l < timed.lanes_per_channel; ++l) {
        const lazy_lane lane = lazy.lane(c, l);
        const auto code = timed.lane(c, l);
        REQUIRE(lane.size() == code.size());
        for (std::size_t at = 0; at < code.size(); ++at) {
          const brief_instruction made = lane[at];
          const instruction& step = code[at];
          CAPTURE(at);
          REQUIRE(made.kind == step.kind);
          REQUIRE(same_memory(made.source, made.source_owner, step.source));
          REQUIRE(same_memory(made.target, made.target_owner, step.target));
          REQUIRE(made.elements == step.elements);
          REQUIRE(made.slice == step.slice);
          REQUIRE(made.from == step.from);
          REQUIRE(made.to == step.to);
          REQUIRE(made.score_step == step.score_step);
          REQUIRE(made.after_lane == step.after_lane);
          if (made.after_lane >= 0) REQUIRE(made.after_index == step.after_index);
          REQUIRE(made.fan == step.fan);
        }
      }
  }
}

}  // namespace

TEST_CASE("a lazy program makes the instructions of compile for virtual time, one by one") {
  std::mt19937_64 random(seed());
  int checked = 0;
  for (const choreography* by : all_choreographies())
    for (const collective what : by->collectives)
      for (int round = 0; round < 4; ++round) {
        setup on = flat_setup(what, 2 + static_cast<int>(random() % 7));
        if (round == 3) on.placement = layout::grid(2, 2, 2), on.ranks = 8;
        on.root = has_root(what) ? static_cast<rank_t>(random() % static_cast<unsigned>(on.ranks)) : 0;
        on.uniform = round % 2 == 0 || block_count(what, on.ranks) <= 1;
        if (!refusal(*by, on).empty()) continue;
        const score s = one_cell_per_step(lower_syncs(write_score(*by, on)));
        call_shape shape;
        std::vector<std::size_t> counts;
        shape.element_size = std::size_t{1} << random() % 4;
        shape.count = random() % 5000;
        if (!on.uniform) {
          for (std::int64_t b = 0; b < block_count(what, on.ranks); ++b) counts.push_back(random() % 700);
          shape.counts = counts;
        }
        CAPTURE(by->name);
        CAPTURE(name(what));
        check_equal(s, shape,
                    {1 + static_cast<int>(random() % 3), 1 + static_cast<int>(random() % 4),
                     1 + static_cast<int>(random() % 3)});
        ++checked;
      }
  REQUIRE(checked > 60);
}

TEST_CASE("a lazy program of steps on several cells") {
  for (const char* by : {"bruck", "halving_doubling", "binomial", "recursive_doubling"})
    for (const collective what : find_choreography(by)->collectives) {
      const setup on = flat_setup(what, 8);
      if (!refusal(*find_choreography(by), on).empty()) continue;
      CAPTURE(by);
      const score s = lower_syncs(write_score(*find_choreography(by), on));
      call_shape shape;
      shape.count = 1000;
      shape.element_size = 4;
      check_equal(s, shape, {});
    }
}
