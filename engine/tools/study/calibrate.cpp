// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/study/calibrate.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include <nlohmann/json.hpp>

#include "engine/api/engine.hpp"
#include "engine/tools/explain.hpp"
#include "engine/tools/study/study.hpp"
#include "engine/tools/study/this_machine.hpp"
#include "engine/tools/workload.hpp"
#include "memory/error.hpp"
#include "protocols/choreographies/choreography.hpp"

namespace troupe {

namespace {

constexpr double target = 1.25;

study_scenario scenario_of(const engine_options& options, const job& what, const candidate& way, int ranks) {
  study_scenario s;
  s.kind = what.kind;
  s.choreography = way.choreography;
  s.channels = way.channels;
  s.slices = way.slices;
  s.slices_per_step = way.slices_per_step;
  s.credits = options.credits;
  s.streams = options.streams;
  s.sizes = {what.bytes};
  s.preset_name = std::string{this_machine_preset};
  s.request.ranks = ranks;
  if (!options.tuning.empty()) s.request.structure.emplace_back("tuning", options.tuning);
  return s;
}

/// The engine's ways to perform the job through the actors, of those that are asked for and in that order.
explanation ways_of(planner& by, const engine_options& options, const job& what, int ranks,
                    const std::vector<std::string>& wanted) {
  call asked;
  asked.what = what.kind.what;
  asked.type = what.type;
  asked.reduction = what.reduction;
  asked.count = shape_of(what, ranks).count;
  asked.level = options.level;
  explanation e = explain(by, asked, layout::flat(ranks));
  std::vector<candidate> kept;
  for (const std::string& name : wanted)
    for (const candidate& c : e.candidates)
      if (c.choreography == name && c.protocol == "simple" && c.eligible()) kept.push_back(c);
  e.candidates = std::move(kept);
  return e;
}

void check(const comparison_request& request) {
  for (const std::string& name : request.choreographies)
    if (find_choreography(name) == nullptr)
      throw error(errc::bad_config, "there is no choreography " + name + "; `troupe list` shows all");
}

std::vector<std::size_t> sizes_of(const comparison& of) {
  std::set<std::size_t> sizes;
  for (const compared_call& c : of.calls) sizes.insert(c.bytes);
  return {sizes.begin(), sizes.end()};
}

std::vector<compared_call> of_size(const comparison& of, std::size_t bytes) {
  std::vector<compared_call> own;
  std::copy_if(of.calls.begin(), of.calls.end(), std::back_inserter(own),
               [&](const compared_call& c) { return c.bytes == bytes; });
  return own;
}

std::ptrdiff_t near_enough(const std::vector<compared_call>& calls) {
  return std::count_if(calls.begin(), calls.end(), [](const compared_call& c) { return c.factor() <= target; });
}

}  // namespace

comparison compare_with_measured(const engine_options& options, const comparison_request& request,
                                 const std::function<void(const std::string&)>& progress) {
  check(request);
  comparison result;
  planner by{options};
  engine on{options};
  for (const int ranks : request.ranks)
    for (const std::size_t bytes : request.sizes) {
      job what;
      what.kind.what = collective::all_reduce;
      what.bytes = bytes;
      what.places = job_places::out;
      explanation e = ways_of(by, options, what, ranks, request.choreographies);
      measure_candidates(e, on, what, request.limits, [&](const std::string& text) {
        if (progress)
          progress(plural(static_cast<std::size_t>(ranks), "rank") + ", " + bytes_text(bytes) + ", " + text);
      });
      for (const candidate& c : e.candidates) {
        const study_result r = run_study(scenario_of(options, what, c, ranks));
        result.machine = r.on->about;
        const study_row& row = r.rows.at(0);
        result.calls.push_back({c.choreography, ranks, row.bytes, row.cut, row.time_us, c.predicted_seconds * 1e6,
                                *c.measured_seconds * 1e6});
      }
    }
  return result;
}

double typical_factor(const std::vector<compared_call>& calls) {
  double logs = 0;
  for (const compared_call& c : calls) logs += std::log(c.factor());
  return calls.empty() ? 1 : std::exp(logs / static_cast<double>(calls.size()));
}

void print_comparison(std::ostream& to, const comparison& of) {
  char line[256];
  to << "# all_reduce, f32, sum, through the actors, on " << of.machine << "\n#\n";
  std::snprintf(line, sizeof line, "# %5s %12s  %-20s %8s %6s %6s %12s %12s %12s %8s\n", "ranks", "size(B)",
                "choreography", "channels", "slices", "a step", "virtual(us)", "planner(us)", "measured(us)", "ratio");
  to << line;
  for (const compared_call& c : of.calls) {
    std::snprintf(line, sizeof line, "  %5d %12zu  %-20s %8d %6d %6d %12.1f %12.1f %12.1f %8.2f\n", c.ranks, c.bytes,
                  c.choreography.c_str(), c.cut.channels, c.cut.slices, c.cut.slices_per_step, c.virtual_us,
                  c.planner_us, c.measured_us, c.ratio());
    to << line;
  }
  to << "#\n# ratio: virtual / measured. Typically off by (geometric mean of the larger of ratio and 1/ratio):\n";
  const auto tell = [&](const std::string& which, const std::vector<compared_call>& calls) {
    std::snprintf(line, sizeof line, "#   %-8s %.2f; %td of %zu within 25 %%\n", which.c_str(), typical_factor(calls),
                  near_enough(calls), calls.size());
    to << line;
  };
  for (const std::size_t bytes : sizes_of(of)) tell(bytes_text(bytes), of_size(of, bytes));
  tell("all", of.calls);
}

std::string comparison_json(const comparison& of) {
  nlohmann::ordered_json made{{"machine", of.machine}, {"calls", nlohmann::ordered_json::array()}};
  for (const compared_call& c : of.calls)
    made["calls"].push_back({{"choreography", c.choreography},
                             {"ranks", c.ranks},
                             {"bytes", c.bytes},
                             {"channels", c.cut.channels},
                             {"slices", c.cut.slices},
                             {"slices_per_step", c.cut.slices_per_step},
                             {"virtual_us", c.virtual_us},
                             {"planner_us", c.planner_us},
                             {"measured_us", c.measured_us},
                             {"ratio", c.ratio()}});
  made["sizes"] = nlohmann::ordered_json::array();
  for (const std::size_t bytes : sizes_of(of)) {
    const auto calls = of_size(of, bytes);
    made["sizes"].push_back({{"bytes", bytes},
                             {"typical_factor", typical_factor(calls)},
                             {"within_25_percent", near_enough(calls)},
                             {"calls", calls.size()}});
  }
  made["typical_factor"] = typical_factor(of.calls);
  return made.dump(1);
}

}  // namespace troupe
