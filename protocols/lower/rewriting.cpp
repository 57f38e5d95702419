// SPDX-License-Identifier: Apache-2.0
#include "protocols/lower/rewriting.hpp"

#include "memory/error.hpp"

namespace troupe {

std::string where(rank_t rank, std::size_t lane, std::size_t step) {
  return "rank " + std::to_string(rank) + ", lane " + std::to_string(lane) + ", step " + std::to_string(step);
}

void check_references(const score& s) {
  if (s.ranks < 1 || s.players.size() != static_cast<std::size_t>(s.ranks))
    throw error(errc::bad_score, "the score is for " + std::to_string(s.ranks) + " ranks but has " +
                                     std::to_string(s.players.size()) + " players; every rank needs one");
  for (std::size_t r = 0; r < s.players.size(); ++r) {
    const auto& lanes = s.players[r].lanes;
    for (std::size_t l = 0; l < lanes.size(); ++l)
      for (std::size_t i = 0; i < lanes[l].size(); ++i) {
        const step_ref& after = lanes[l][i].after;
        if (after.lane < 0) continue;
        const auto lane = static_cast<std::size_t>(after.lane);
        if (lane < lanes.size() && after.step >= 0 && static_cast<std::size_t>(after.step) < lanes[lane].size())
          continue;
        throw error(errc::bad_score, where(static_cast<rank_t>(r), l, i) + " waits for lane " +
                                         std::to_string(after.lane) + " step " + std::to_string(after.step) +
                                         ", which this rank does not have");
      }
  }
}

referenced_steps::referenced_steps(const score& s) {
  for (const part& player : s.players) {
    auto& lanes = named_.emplace_back();
    for (const lane& steps : player.lanes) lanes.emplace_back(steps.size(), char{0});
    for (const lane& steps : player.lanes)
      for (const step& at : steps)
        if (at.after.lane >= 0)
          lanes[static_cast<std::size_t>(at.after.lane)][static_cast<std::size_t>(at.after.step)] = 1;
  }
}

step_map::step_map(const score& was) {
  for (const part& player : was.players) {
    auto& lanes = now_.emplace_back();
    for (const lane& steps : player.lanes) lanes.emplace_back(steps.size(), -1);
  }
}

void step_map::apply(score& made) const {
  for (std::size_t r = 0; r < made.players.size(); ++r)
    for (lane& steps : made.players[r].lanes)
      for (step& at : steps)
        if (at.after.lane >= 0) at.after.step = position(static_cast<rank_t>(r), at.after);
}

}  // namespace troupe
