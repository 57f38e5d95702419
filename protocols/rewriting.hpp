#pragma once
// What passes that turn one score into another share: where each step went, and pacing.

#include <cstdint>
#include <string>
#include <vector>

#include "protocols/score.hpp"

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

/// Moves sends behind later receives of the same lane where lanes would otherwise wait for each other's credits: the result
/// can be performed with `credits` per (source, destination, lane), also with one. Cutting one message into many needs
/// this: two ranks that exchange one message each cannot send twenty each before they receive. With one credit a ring of
/// fused steps has to be taken apart (nobody can receive and send at once); two leave it as it is, so the passes here pace
/// for two.
///
/// Method: the score is run in rounds with that many credits, every lane keeping its order. When nothing can move any more, sends
/// (or the sending half of a fused step) that lack only a credit are put aside and sent as soon as they can; the lane goes
/// on. The order in which the steps ran is the order of the new lanes. As no lane ever waits for a credit for good, this ends
/// whenever the score ends with unlimited credits; and as lanes never choose, an order that ran once runs always.
/// Only sends move, and only backwards past steps that cannot depend on them: what a send reads may not change before the
/// receiver has it, and every way by which the sender can learn that still goes through the message itself.
/// A score that cannot be run to its end is returned as it is, for the verifier to find out why.
/// Cost: O(rounds · lanes).
/// @pre credits ≥ 1
score pace_sends(const score& s, int credits = 2);

}  // namespace troupe
