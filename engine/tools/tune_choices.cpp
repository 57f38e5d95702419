// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/tune_choices.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/planning/planner.hpp"
#include "engine/tools/explain_measured.hpp"
#include "engine/tools/extent.hpp"
#include "protocols/call.hpp"

namespace troupe {

namespace {

constexpr std::uint64_t first_bytes = 8, last_bytes = 16 << 20, factor = 8;
constexpr double worth_a_try = 4;  ///< times the best prediction
constexpr std::size_t most_tries = 6;

/// The planner's candidates that may be the fastest; the others are left out.
void keep_likely(std::vector<candidate>& all) {
  const double best = all.empty() ? 0 : all.front().predicted_seconds;  // the eligible ones come first, in this order
  std::erase_if(all, [&](const candidate& c) { return !c.eligible() || c.predicted_seconds > worth_a_try * best; });
  if (all.size() > most_tries) all.resize(most_tries);
}

/// Nothing: a rank would have no element for each block.
std::optional<fastest_way> measure_size(planner& by, engine& on, collective what, int ranks, std::uint64_t bytes,
                                        const measuring_limits& limits) {
  job one;
  one.kind.what = what;
  one.bytes = bytes;
  one.places = job_places::out;
  call as;
  as.what = what;
  as.count = shape_of(one, ranks).count;
  if (as.count == 0) return std::nullopt;
  explanation e = explain(by, as, layout::flat(ranks));
  keep_likely(e.candidates);
  measure_candidates(e, on, one, limits);
  const candidate* const best = best_measured(e);
  if (best == nullptr) return std::nullopt;
  const auto protocol = parse_message_protocol(best->protocol).value_or(message_protocol::simple);
  return fastest_way{bytes, best->choreography, protocol};
}

}  // namespace

std::vector<measured_choice> choices_between(collective what, int ranks, std::span<const fastest_way> found) {
  std::vector<measured_choice> all;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const fastest_way& way = found[i];
    if (all.empty() || all.back().choreography != way.choreography || all.back().protocol != way.protocol) {
      if (!all.empty()) {
        const double border = std::sqrt(static_cast<double>(found[i - 1].bytes) * static_cast<double>(way.bytes));
        all.back().up_to = static_cast<std::uint64_t>(std::llround(border));
      }
      all.push_back({what, ranks, measured_choice::no_limit, way.choreography, way.protocol});
    }
  }
  return all;
}

std::vector<measured_choice> measure_choices(const choices_options& options) {
  const measuring_limits limits = options.quick ? measuring_limits{5, 1} : measuring_limits{20, 3};
  engine_options how;
  how.environment = false;
  how.tuning = options.tuning;
  engine on{how};
  planner by{how};
  std::vector<measured_choice> all;
  for (const int ranks : options.ranks)
    for (const collective what : all_collectives) {
      if (!moves_data(what)) continue;
      std::vector<fastest_way> found;
      for (std::uint64_t bytes = first_bytes; bytes <= last_bytes; bytes *= options.quick ? factor * factor : factor) {
        if (options.progress)
          options.progress("choices: " + std::string{name(what)} + ", " + std::to_string(ranks) + " ranks, " +
                           bytes_text(bytes));
        if (const auto way = measure_size(by, on, what, ranks, bytes, limits)) found.push_back(*way);
      }
      const auto choices = choices_between(what, ranks, found);
      all.insert(all.end(), choices.begin(), choices.end());
    }
  return all;
}

}  // namespace troupe
