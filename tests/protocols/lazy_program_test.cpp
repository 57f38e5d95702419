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

/// The instructions of compile() with folds taken apart into the steps they came from: kind, places, elements.
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

void check_equal(const score& s, const call_shape& shape, const cutting& cut) {
  const auto sizes = std::make_shared<const lazy_sizes>(s, shape, cut);
  for (rank_t r = 0; r < s.ranks; ++r) {
    const program compiled = compile(s, r, shape, cut);
    const lazy_program lazy{sizes, r, true}, light{sizes, r, false};
    REQUIRE(lazy.lanes_per_channel == compiled.lanes_per_channel);
    REQUIRE(lazy.scratch_bytes() == compiled.scratch_bytes);
    REQUIRE(lazy.l0_bytes() == compiled.l0_bytes);
    REQUIRE(lazy.l2_bytes() == compiled.l2_bytes);
    for (int c = 0; c < cut.channels; ++c)
      for (int l = 0; l < compiled.lanes_per_channel; ++l) {
        const lazy_lane lane = lazy.lane(c, l), light_lane = light.lane(c, l);
        const auto code = compiled.lane(c, l);
        std::size_t at = 0;
        for (const instruction& i : code) {
          const auto steps = unfolded(compiled, i);
          REQUIRE(at + steps.size() <= lane.size());
          for (std::size_t k = 0; k < steps.size(); ++k, ++at) {
            const instruction made = lane[at];
            CAPTURE(at);
            REQUIRE(made.kind == steps[k].kind);
            REQUIRE(made.source == steps[k].source);
            REQUIRE(made.target == steps[k].target);
            REQUIRE(made.elements == steps[k].elements);
            REQUIRE(made.slice == i.slice);
            REQUIRE(made.from == i.from);
            REQUIRE(made.to == i.to);
            REQUIRE(light_lane[at].elements == made.elements);
            REQUIRE(light_lane[at].kind == made.kind);
            if (k == 0) {
              REQUIRE(made.score_step == i.score_step);
              REQUIRE(made.after_lane == i.after_lane);
              REQUIRE(made.swapped == i.swapped);
              REQUIRE(made.fan == i.fan);
              // The step that `after` names: the last one of the instruction that compile() names, or inside its fold.
              if (i.after_lane >= 0) {
                const instruction other = lazy.lane(c, i.after_lane)[static_cast<std::size_t>(made.after_index)];
                const instruction& named = compiled.lane(c, i.after_lane)[static_cast<std::size_t>(i.after_index)];
                REQUIRE(other.slice == named.slice);
                REQUIRE(other.score_step >= named.score_step);
              }
            }
          }
        }
        REQUIRE(at == lane.size());
      }
  }
}

}  // namespace

TEST_CASE("a lazy program makes the instructions of compile, one by one") {
  std::mt19937_64 random(seed());
  int checked = 0;
  for (const choreography* by : all_choreographies())
    for (const collective what : by->collectives)
      for (int round = 0; round < 4; ++round) {
        stage on = flat_stage(what, 2 + static_cast<int>(random() % 7));
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
        check_equal(s, shape, {1 + static_cast<int>(random() % 3), 1 + static_cast<int>(random() % 4)});
        ++checked;
      }
  REQUIRE(checked > 60);
}

TEST_CASE("a lazy program of steps on several cells") {
  for (const char* by : {"bruck", "halving_doubling", "binomial", "recursive_doubling"})
    for (const collective what : find_choreography(by)->collectives) {
      const stage on = flat_stage(what, 8);
      if (!refusal(*find_choreography(by), on).empty()) continue;
      CAPTURE(by);
      const score s = lower_syncs(write_score(*find_choreography(by), on));
      call_shape shape;
      shape.count = 1000;
      shape.element_size = 4;
      check_equal(s, shape, {});
    }
}
