// SPDX-License-Identifier: Apache-2.0
#include "protocols/program/completion.hpp"

namespace troupe {

namespace {

/// An instruction stands for one step of the score; a fold for as many as gave it operands: the first gave two, the others one each.
std::size_t end_of_steps(const instruction& i) {
  const std::size_t steps = i.inputs == 0 ? 1 : std::size_t{i.inputs} + i.outputs - 1;
  return static_cast<std::size_t>(i.score_step) + steps;
}

}  // namespace

bool divides_in_steps(const call& what, int ranks, const verdict& v) {
  if (!is_reduction(what.what) || what.reduction.kind != op_kind::avg || ranks < 2 || v.completing.empty())
    return false;
  for (rank_t r = 0; r < ranks; ++r)
    if (const int terms = contributor_count(what.what, ranks, what.root, r); terms != 0 && terms != ranks) return false;
  return true;
}

void mark_completing(program& code, const step_marks& marks) {
  for (std::size_t l = 0; l < code.lanes.size(); ++l) {
    std::vector<instruction>& lane = code.lanes[l];
    if (lane.empty()) continue;  // of a rank with fewer lanes than others
    const std::vector<bool>& steps = marks[l % static_cast<std::size_t>(code.lanes_per_channel)];
    for (instruction& i : lane) {
      const std::size_t end = end_of_steps(i);
      for (auto s = static_cast<std::size_t>(i.score_step); s < end; ++s) i.completes = i.completes || steps[s];
    }
  }
}

}  // namespace troupe
