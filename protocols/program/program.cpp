// SPDX-License-Identifier: Apache-2.0
#include "protocols/program/program.hpp"

#include <algorithm>

#include "protocols/program/cell_places.hpp"
#include "protocols/program/early_receives.hpp"

namespace troupe {

namespace {

class compiler {
public:
  compiler(const score& s, rank_t rank, const call_shape& shape, const cutting& cut, step_work work)
      : score_(s),
        shape_(shape),
        cut_(cut),
        may_join_(work == step_work::at_once && cut.slices_per_step == 1),
        player_(s.players[static_cast<std::size_t>(rank)]),
        rank_(rank) {
    result_.places = cell_places{s, rank, cut};
    // Else several slices are between two of a lane's receives; and in virtual time nothing is received into its place.
    if (may_join_) early_ = early_receives(s, rank);
  }

  program run() {
    // The same at every rank, because messages name their lane by its place among those of all channels.
    std::size_t lanes = 0;
    for (const part& p : score_.players) lanes = std::max(lanes, p.lanes.size());
    result_.lanes_per_channel = static_cast<int>(lanes);
    result_.channels = cut_.channels;
    result_.ranks = score_.ranks;
    result_.parts = score_.parts;
    result_.element_size = shape_.element_size;
    result_.lanes.resize(lanes * static_cast<std::size_t>(cut_.channels));
    positions_.resize(lanes);
    for (int channel = 0; channel < cut_.channels; ++channel) {
      for (auto& lane_positions : positions_) lane_positions.clear();
      for (std::size_t l = 0; l < player_.lanes.size(); ++l) add_steps(channel, l);
      for (std::size_t l = 0; l < player_.lanes.size(); ++l) resolve_after(channel, l);
    }
    // Folds leave most of the room unused.
    for (auto& code : result_.lanes)
      if (code.capacity() > 2 * code.size()) code.shrink_to_fit();
    fit(result_, shape_);
    return std::move(result_);
  }

private:
  // -- steps ----------------------------------------------------------------------------------------------------------

  void add_steps(int channel, std::size_t l) {
    const lane& steps = player_.lanes[l];
    auto& code = lane_of(channel, l);
    auto& where = positions_[l];
    // Room for all slices at once: to grow by copying instructions is what making large programs would spend most on.
    const std::size_t all = steps.size() * static_cast<std::size_t>(cut_.slices);
    code.reserve(all), where.reserve(all);
    const slice_order order = cut_.order();
    slice_order::position at;
    for (std::size_t n = 0; n < all; ++n, at = order.next(steps.size(), at)) {
      const auto [i, slice] = at;
      const step& from = steps[i];
      instruction next;
      next.kind = from.kind;
      next.swapped = from.swapped;
      if (cut_.slices_per_step == 1) next.fan = from.fan;  // else members of several slices are between each other
      next.from = from.from;
      next.to = from.to;
      next.score_step = static_cast<std::int32_t>(i);
      next.slice = slice;
      next.channel = channel;
      next.source_cells = cells_of(score_, rank_, from.source);
      next.target_cells = cells_of(score_, rank_, from.target);
      next.ready_part = from.ready_part;
      next.early = !early_.empty() && early_[l][i];
      result_.shares_memory = result_.shares_memory || is_shared(next.source_cells) || is_shared(next.target_cells);
      next.after_lane = from.after.lane;
      next.after_index = from.after.lane < 0 ? -1 : encode(slice, from.after);
      // Single cells are the same memory or none of the same; ranges of cells may overlap in part, and one pass would then
      // write what a later step of the run has still to read.
      const bool single = may_join_ && from.source.count <= 1 && from.target.count <= 1;
      if (!code.empty() && single && run_is_single_ && joins(code.back(), next)) {
        join(code.back(), next);
      } else {
        code.push_back(next);
        run_is_single_ = single;
      }
      where.push_back(static_cast<std::int32_t>(code.size()) - 1);
    }
  }

  /// Another rank's memory, or all ranks'.
  static bool is_shared(const cell_range& at) {
    return at.count > 0 && (at.buffer == buffer_kind::l2 || at.owner != self);
  }

  std::vector<instruction>& lane_of(int channel, std::size_t l) {
    return result_.lanes[static_cast<std::size_t>(channel * result_.lanes_per_channel) + l];
  }

  /// `after` names a step of the score; which instruction that became is known when the whole lane is written.
  std::int32_t encode(int slice, const step_ref& after) const {
    const auto steps = player_.lanes[static_cast<std::size_t>(after.lane)].size();
    return static_cast<std::int32_t>(cut_.order().index_of(steps, {static_cast<std::size_t>(after.step), slice}));
  }

  void resolve_after(int channel, std::size_t l) {
    for (instruction& i : lane_of(channel, l))
      if (i.after_lane >= 0)
        i.after_index = positions_[static_cast<std::size_t>(i.after_lane)][static_cast<std::size_t>(i.after_index)];
  }

  // -- one pass for a run of local steps ------------------------------------------------------------------------------

  /// copy(a → t), reduce(b → t), …, copy(t → x), … is one pass over the elements: every input is read and every output
  /// written once. The steps' order within an element is kept; a later step must not wait for anything.
  /// What is combined or copied has as many elements as what it is combined with or copied to, so nothing is asked of sizes.
  static bool joins(const instruction& run, const instruction& next) {
    const cell_range &result = run.target_cells, &from = next.source_cells, &to = next.target_cells;
    if (run.kind != step_kind::copy || next.after_lane >= 0) return false;
    if (run.inputs > 1000 || run.outputs > 1000 || run.slice != next.slice) return false;
    const bool has_copies_out = run.outputs > 1;
    if (next.kind == step_kind::reduce && !next.swapped) return !has_copies_out && to == result && from != result;
    return next.kind == step_kind::copy && run.inputs > 1 && from == result && to != result;
  }

  void join(instruction& run, const instruction& next) {
    auto& pool = result_.operand_cells;
    if (run.inputs == 0) {
      run.operands = static_cast<std::uint32_t>(pool.size());
      pool.push_back(run.source_cells);
      pool.push_back(run.target_cells);
      run.inputs = run.outputs = 1;
    }
    // The run's operands are the last in the pool (nothing else is joined meanwhile), so inputs can be put before outputs.
    if (next.kind == step_kind::reduce) {
      pool.insert(pool.begin() + run.operands + run.inputs, next.source_cells);
      ++run.inputs;
    } else {
      pool.push_back(next.target_cells);
      ++run.outputs;
    }
  }

  const score& score_;
  const call_shape& shape_;
  cutting cut_;
  bool may_join_;
  const part& player_;
  rank_t rank_;
  program result_;
  std::vector<std::vector<bool>> early_;              ///< by lane and step of the score
  bool run_is_single_ = false;                        ///< the last instruction was made of steps on single cells
  std::vector<std::vector<std::int32_t>> positions_;  ///< per lane: instruction of every step and slice, in their order
};

std::size_t packed_bytes(const block_run& run, const call_shape& shape) {
  std::size_t total = 0;
  for (int i = 0; i < run.count; ++i)
    total = checked_add(total, shape.elements(run.first + static_cast<std::int64_t>(i) * run.stride));
  return checked_multiply(total, shape.element_size);
}

}  // namespace

program compile(const score& s, rank_t rank, const call_shape& shape, const cutting& cut, step_work work) {
  return compiler(s, rank, shape, cut, work).run();
}

namespace {
bool knows_block(const score& s, rank_t rank, std::int64_t block) {
  const collective_traits& t = traits_of(s.what);
  if (t.v == v_counts::every_pair) return block / s.ranks == rank || block % s.ranks == rank;
  return t.v == v_counts::common || (t.v == v_counts::rooted && (rank == s.root || block == rank));
}

bool knows_blocks(const score& s, rank_t rank, const program& code) {
  const auto known = [&](const cell_range& at) {
    return at.count == 0 || (at.count == 1 && at.owner == self && knows_block(s, rank, at.block));
  };
  for (const extent& cell : code.places.scratch_cells())
    if (!knows_block(s, rank, cell.block)) return false;
  for (const auto& lane : code.lanes)
    for (const instruction& i : lane)
      if (!known(i.source_cells) || !known(i.target_cells)) return false;
  return !code.shares_memory && std::ranges::all_of(code.operand_cells, known);
}
}  // namespace

bool needs_only_own_blocks(const score& s) {
  const call_shape ones{1, {}, {}, {}, 1};
  for (rank_t r = 0; r < s.ranks; ++r)
    if (!knows_blocks(s, r, compile(s, r, ones, {}))) return false;
  return true;
}

void fit(instruction& i, const cell_places& places) {
  std::size_t of_source = 0, of_target = 0;
  i.source = places.locate(i.source_cells, i.channel, i.slice, of_source);
  i.target = places.locate(i.target_cells, i.channel, i.slice, of_target);
  i.elements = std::max(of_source, of_target);
}

void fit(program& code, const call_shape& shape) {
  code.places.set(shape);
  code.element_size = shape.element_size;
  code.scratch_bytes = code.places.scratch_bytes;
  code.l0_bytes = code.places.l0_bytes;
  code.l2_bytes = code.places.l2_bytes;
  code.slot_bytes = 0;
  code.operands.resize(code.operand_cells.size());
  for (auto& lane : code.lanes)
    for (instruction& i : lane) {
      fit(i, code.places);
      fit_operands(i, code.places, code.operand_cells, code.operands);
      if (i.kind == step_kind::recv_reduce_send)
        code.slot_bytes = std::max(code.slot_bytes, checked_multiply(i.elements, shape.element_size));
    }
}

void fit_operands(const instruction& i, const cell_places& places, std::span<const cell_range> cells,
                  std::span<location> operands) {
  const std::size_t end = std::size_t{i.operands} + i.inputs + i.outputs;
  std::size_t elements = 0;
  for (std::size_t k = i.operands; i.inputs > 0 && k < end; ++k)
    operands[k] = places.locate(cells[k], i.channel, i.slice, elements);
}

std::size_t input_bytes(collective what, int ranks, rank_t root, rank_t rank, const call_shape& shape) {
  return packed_bytes(input_blocks(what, ranks, root, rank), shape);
}

std::size_t output_bytes(collective what, int ranks, rank_t root, rank_t rank, const call_shape& shape) {
  return packed_bytes(output_blocks(what, ranks, root, rank), shape);
}

}  // namespace troupe
