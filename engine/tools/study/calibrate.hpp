// SPDX-License-Identifier: Apache-2.0
#pragma once
// How far the model of this machine (this_machine.hpp) is from the machine: the same collectives in virtual time and by an engine, with
// the same choreography and cutting, through the actors.

#include <cstddef>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "engine/api/options.hpp"
#include "engine/tools/explain_measured.hpp"
#include "protocols/program/cells.hpp"

namespace troupe {

struct comparison_request {
  std::vector<int> ranks{2, 4};
  std::vector<std::size_t> sizes{64 << 10, 256 << 10, 1 << 20, 4 << 20};  ///< bytes of a rank's buffer
  std::vector<std::string> choreographies{"ring", "direct_full_mesh", "recursive_doubling", "halving_doubling"};
  measuring_limits limits;
};

/// One all_reduce of f32, sum, out of place.
struct compared_call {
  std::string choreography;
  int ranks = 0;
  std::size_t bytes = 0;
  cutting cut;            ///< as the engine cuts it
  double virtual_us = 0;  ///< the model of the study mode …
  double planner_us = 0;  ///< … and the planner's, of the same constants
  double measured_us = 0;
  double ratio() const { return virtual_us / measured_us; }
  /// How far off, whichever way: ≥ 1.
  double factor() const { return ratio() < 1 ? 1 / ratio() : ratio(); }
};

struct comparison {
  std::string machine;               ///< and whose constants
  std::vector<compared_call> calls;  ///< by ranks, then size, then choreography as asked for
};

/// Choreographies that cannot perform on so many ranks have no row. Throws as an engine does, and error(bad_config) for a choreography that
/// there is not. Costs about rounds × budget for every row.
comparison compare_with_measured(const engine_options& options, const comparison_request& request,
                                 const std::function<void(const std::string&)>& progress = {});

/// Geometric mean of factor(); 1 for none.
double typical_factor(const std::vector<compared_call>& calls);

/// A row a call, a line a size, the whole.
void print_comparison(std::ostream& to, const comparison& of);
/// {"machine", "calls": [{"choreography", "ranks", "bytes", "channels", "slices", "slices_per_step", "virtual_us", "planner_us", "measured_us", "ratio"}],
/// "sizes": [{"bytes", "typical_factor", "within_25_percent", "calls"}], "typical_factor"}. ratio: virtual ÷ measured.
std::string comparison_json(const comparison& of);

}  // namespace troupe
