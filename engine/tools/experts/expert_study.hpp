// SPDX-License-Identifier: Apache-2.0
#pragma once
// `troupe experts`: an iteration of a model with layers of experts on a modelled machine, by several ways for its tokens.

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "engine/tools/experts/expert_layers.hpp"
#include "engine/tools/replay/replay.hpp"

namespace troupe {

struct named_expert_way {
  std::string name, about;
  expert_way way;
};
/// All there are on these places: "plain" first; "by_server" only where there are several servers of as many ranks.
std::vector<named_expert_way> expert_ways(const layout& places, int parts);

struct expert_row {
  named_expert_way by;
  expert_iteration iteration;  ///< its application is gone
  replay_result run;
  double us = 0;         ///< an iteration
  double computing = 0;  ///< mean share of it that a rank computes; in the rest it waits for tokens, or for others
};

struct expert_study {
  expert_layers model;
  std::vector<expert_row> rows;
};

/// @param only names of ways; empty: all
/// @throws error as expert_iteration_of() and run_replay(); bad_config: a name that is none
expert_study run_experts(const study_scenario& scenario, const expert_layers& model, int parts,
                         const std::vector<std::string>& only, const replay_request& how);

void print_experts(std::ostream& to, const expert_study& study);
/// The document described in engine/tools/experts/README.md.
std::string experts_json(const expert_study& study);
/// One HTML page (../study/page.hpp): the first way, beside it the fastest of the others, each with who did what when, its profile and its heat map.
std::string experts_page(const expert_study& study);

}  // namespace troupe
