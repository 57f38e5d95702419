// SPDX-License-Identifier: Apache-2.0
#include "protocols/verify/verifier.hpp"

#include <map>
#include <utility>

#include "protocols/verify/verifier_run.hpp"
#include "protocols/verify/verifier_structure.hpp"

namespace troupe {

namespace {
using verifying::symbolic_run;

std::string chunk_text(const score& s, std::int64_t chunk, int slices) {
  const std::int64_t chunks = block_count(s.what, s.ranks) * s.parts;
  std::string text = "block " + std::to_string(chunk % chunks / s.parts);
  if (s.parts > 1) text += " part " + std::to_string(chunk % chunks % s.parts);
  if (slices > 1) text += " slice " + std::to_string(chunk / chunks);
  return text;
}

/// What is wrong with an output cell that holds `held` but belongs to chunk `chunk` with the contributions of `wanted`; empty if
/// nothing is.
std::string output_fault(const score& s, const reduction_forest& f, reduction_forest::node_id held, std::int64_t chunk,
                         const rank_range& wanted, int slices) {
  if (held == reduction_forest::none) return "is never written";
  if (f.chunk(held) != chunk)
    return "ends with " + chunk_text(s, f.chunk(held), slices) + " instead of " + chunk_text(s, chunk, slices);
  if (f.made_of(held, wanted)) return "";
  if (is_reduction(s.what)) {
    if (const std::string lacking = f.missing(held, wanted); !lacking.empty())
      return "lacks the contribution of rank " + lacking;
    return "has the contribution of rank " + f.beyond(held, wanted) + " in it, which does not belong there";
  }
  return "ends with what came from rank " + f.members(held) + " instead of rank " + std::to_string(wanted.first);
}

/// Compares the outputs with the collective's postcondition and fills in the verdict.
std::optional<fault> check_outputs(const score& s, const performing_limits& limits, const symbolic_run& done,
                                   verdict& v) {
  const auto forest = done.forest();
  const std::int64_t chunks = block_count(s.what, s.ranks) * s.parts;
  std::map<std::pair<rank_t, int>, std::int32_t> shapes;  // by contributors
  for (rank_t r = 0; r < s.ranks; ++r)
    for (std::int32_t c = 0, n = cell_count(s, r, buffer_kind::output); c < n; ++c) {
      const std::size_t cell = done.cells().number(r, {buffer_kind::output, r, c, 1});
      for (int k = 0; k < limits.slices; ++k) {
        const auto held = done.memory().value(done.cells().location(cell, k));
        const std::int64_t chunk = done.cells().chunk(cell, k);
        const rank_range wanted = contributors(s.what, s.ranks, s.root, r, chunk % chunks / s.parts);
        std::string wrong = output_fault(s, *forest, held, chunk, wanted, limits.slices);
        if (!wrong.empty()) return fault{r, -1, -1, k, "output[" + std::to_string(c) + "] " + wrong};
        if (!is_reduction(s.what)) continue;
        if (k == 0) forest->set_output(r, c, held);
        if (v.same_tree_everywhere) {
          const std::int32_t shape = forest->shape(held);
          v.same_tree_everywhere = shapes.try_emplace({wanted.first, wanted.count}, shape).first->second == shape;
        }
        v.rank_ordered = v.rank_ordered && forest->rank_ordered(held);
        v.left_fold = v.left_fold && forest->left_fold(held);
      }
    }
  return std::nullopt;
}
}  // namespace

std::string to_string(const fault& f) {
  std::string text;
  if (f.rank >= 0) text += "rank " + std::to_string(f.rank);
  if (f.lane >= 0) text += " lane " + std::to_string(f.lane);
  if (f.step >= 0) text += " step " + std::to_string(f.step);
  if (f.slice > 0) text += " (slice " + std::to_string(f.slice) + ')';
  if (f.rank < 0) return "the score " + f.what;
  return text + ": " + f.what;
}

std::string tree_of(const verdict& v, rank_t rank, std::int32_t cell) {
  if (!v.forest) return "-";
  const auto tree = v.forest->output(rank, cell);
  if (tree == reduction_forest::none) return "-";
  return v.forest->text(tree);
}

verdict verify(const score& s, const performing_limits& limits) {
  verdict v;
  v.first_fault = verifying::check_structure(s, limits);
  if (v.first_fault) return v;
  symbolic_run run{s, limits};
  v.first_fault = run.run();
  v.steps = run.steps();
  v.messages = run.messages();
  if (!v.first_fault) v.first_fault = check_outputs(s, limits, run, v);
  if (v.first_fault) return v;
  const bool reduced = is_reduction(s.what);
  const auto forest = reduced ? run.forest() : std::make_shared<reduction_forest>(s.ranks);
  forest->finish();
  v.forest = forest;
  if (reduced) v.completing = run.completing();
  return v;
}

}  // namespace troupe
