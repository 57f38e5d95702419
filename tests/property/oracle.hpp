// SPDX-License-Identifier: Apache-2.0
#pragma once
// A second opinion on scores, as different from the verifier as possible: it knows no clocks and no sets, it performs the score
// on 64-bit numbers in every order in which its steps can happen (or, where there are too many, in many random ones) and looks
// at what comes out.
//
// Every input cell holds a random number; ⊕ is the sum modulo 2^64, so a contribution that is missing, doubled or of another
// chunk shows. A score is right if in every order it comes to its end with the right numbers. Every way in which the engine may
// perform it counts: a step that receives and sends may take its message before or together with its credit; a sender may
// have the cells copied when it sends or when the receiver reads them; the steps of a fan may run as written or as
// messages arrive.

#include <cstdint>
#include <string>
#include <vector>

#include "protocols/score/score.hpp"
#include "protocols/verify/verifier.hpp"

namespace troupe::oracle {

struct options {
  std::size_t max_states = 20'000;  ///< beyond this many per way of performing: random orders
  int random_orders = 100;
  std::uint64_t seed = 1;
};

struct finding {
  std::string wrong;       ///< what went wrong in some order; empty: nothing
  bool exhaustive = true;  ///< all orders were tried, or something wrong was found
  std::size_t states = 0;

  // What was seen in some order without making the result wrong. Complete only if nothing is wrong and `exhaustive`.
  bool race = false;         ///< two steps that could have happened at once touch a cell, and one of them writes it
  bool overwritten = false;  ///< a cell is written while a message refers to it (with the number that it had)
  bool unwritten = false;    ///< a cell is read that nothing has written (and the number does not matter)
  bool doubled = false;      ///< a contribution is counted twice (and the sum does not matter)
  bool mixed = false;        ///< different chunks are added (and the sum does not matter)
  bool unstable = false;     ///< different orders add in different ways

  /// By rank and output cell, as verifier::tree_of writes it; of slice 0.
  std::vector<std::vector<std::string>> trees;

  bool right() const { return wrong.empty(); }
  bool clean() const { return right() && !(race || overwritten || unwritten || doubled || mixed); }
};

/// @pre every index in the score is in range (as after changing a right score with care).
finding ask(const score& s, const performing_limits& limits, const options& how);

}  // namespace troupe::oracle
