// SPDX-License-Identifier: Apache-2.0
#include "protocols/program/completion.hpp"

namespace troupe {

namespace {

/// An instruction stands for the steps of the score from its own to that of the next instruction of its slice.
std::size_t end_of_steps(const std::vector<instruction>& lane, std::size_t at, std::size_t steps) {
  const bool last = at + 1 == lane.size() || lane[at + 1].slice != lane[at].slice;
  return last ? steps : static_cast<std::size_t>(lane[at + 1].score_step);
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
    for (std::size_t i = 0; i < lane.size(); ++i) {
      const std::size_t end = end_of_steps(lane, i, steps.size());
      for (auto s = static_cast<std::size_t>(lane[i].score_step); s < end; ++s)
        lane[i].completes = lane[i].completes || steps[s];
    }
  }
}

}  // namespace troupe
