// SPDX-License-Identifier: Apache-2.0
#pragma once
// What passes that turn one score into another share: where each step went.

#include <cstdint>
#include <string>
#include <vector>

#include "protocols/score/score.hpp"

namespace troupe {

/// "rank 2, lane 0, step 5": for messages about a step.
std::string where(rank_t rank, std::size_t lane, std::size_t step);

/// Throws error(bad_score) unless there is one player a rank and every `after` names a step of the same rank, so that a pass
/// may follow references without asking.
void check_references(const score& s);

/// Which steps some `after` names.
class referenced_steps {
public:
  explicit referenced_steps(const score& s);
  bool contains(rank_t rank, std::size_t lane, std::size_t step) const {
    return named_[static_cast<std::size_t>(rank)][lane][step] != 0;
  }

private:
  std::vector<std::vector<std::vector<char>>> named_;
};

/// Where the steps of a score are in the score made from it. Lanes keep their numbers.
/// @pre check_references passed for the score.
class step_map {
public:
  explicit step_map(const score& was);
  void put(rank_t rank, std::size_t lane, std::size_t was, std::size_t now) {
    now_[static_cast<std::size_t>(rank)][lane][was] = static_cast<std::int32_t>(now);
  }
  /// −1 while nothing was put.
  std::int32_t position(rank_t rank, const step_ref& was) const {
    return now_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(was.lane)][static_cast<std::size_t>(was.step)];
  }
  /// Rewrites every `after` of `made` from the old score's positions to the new ones.
  void apply(score& made) const;

private:
  std::vector<std::vector<std::vector<std::int32_t>>> now_;
};

}  // namespace troupe
