// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/study/explain_on.hpp"

#include <algorithm>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "engine/planning/score_library.hpp"
#include "engine/tools/extent.hpp"
#include "engine/tools/study/prepared_scores.hpp"
#include "memory/error.hpp"
#include "protocols/choreographies/choreography.hpp"

namespace troupe {

namespace {

/// A choreography that would take minutes is left out, unless it is asked for alone.
std::string why_too_long(const score_library& scores, const std::string& name, const setup& on) {
  const choreography* const by = find_choreography(name);
  if (by == nullptr || !scores.offers(name, on.what) || !scores.refusal(name, on).empty()) return {};
  if (std::string why = too_many_steps(*by, on, bytes_of_a_step, bytes_of_a_rank); !why.empty()) return why;
  const std::string why = why_not_a_candidate(name, on);
  return why.empty() ? why : why + "; a study that names it tries it";
}

}  // namespace

std::vector<modelled_candidate> explain_on(const study_scenario& call,
                                           const std::function<void(const std::string&)>& progress) {
  std::vector<modelled_candidate> all;
  study_scenario one = call;
  one.sizes = {call.sizes.back()};
  one.protocol = "auto";
  const study_machine machine = study_machine_of(call);  // what is wrong with it is no matter of a choreography
  const setup on = setup_of(call, machine.on, call.through_scratch);
  study_run_options how;
  how.scores = scores_of(call);
  how.one_of_many = true;
  for (const std::string& each : how.scores->names()) {
    const choreography* const c = find_choreography(each);
    modelled_candidate row;
    row.choreography = one.choreography = each;
    if (progress) progress(row.choreography);
    if (row.why_rejected = why_too_long(*how.scores, each, on); !row.why_rejected.empty()) {
      all.push_back(std::move(row));
      continue;
    }
    try {
      const study_row fastest = run_study(one, how).rows.at(0);
      row.protocol = fastest.protocol;
      row.time_us = fastest.time_us;
      row.busbw = fastest.busbw;
      row.bound_us = fastest.bound_us();
    } catch (const error& e) {
      // Scores that others have written may be wrong, which does not concern the rest.
      const bool wrong = e.code_value() == errc::bad_score && (c == nullptr || !is_built_in(*c));
      const bool too_large = e.code_value() == errc::out_of_memory;  // its score, which this computer does not hold
      if (e.code_value() != errc::unsupported && !too_large && !wrong) throw;
      row.why_rejected = e.what();
    }
    all.push_back(std::move(row));
  }
  std::stable_sort(all.begin(), all.end(), [](const modelled_candidate& a, const modelled_candidate& b) {
    if (a.why_rejected.empty() != b.why_rejected.empty()) return a.why_rejected.empty();
    return a.why_rejected.empty() && a.time_us < b.time_us;
  });
  return all;
}

std::string to_text(const study_scenario& call, const std::vector<modelled_candidate>& candidates) {
  char line[256];
  std::snprintf(line, sizeof line, "%s of %zu bytes on %s, in virtual time\n\n", name(call.kind).c_str(),
                call.sizes.back(), call.preset_name.c_str());
  std::string text = line;
  std::snprintf(line, sizeof line, "  %-24s %-10s %12s %12s %10s\n", "choreography", "protocol", "time us",
                "busbw GB/s", "/ bound");
  text += line;
  bool first = true;
  for (const modelled_candidate& c : candidates) {
    char ratio[32] = "-";
    if (c.bound_us > 0) std::snprintf(ratio, sizeof ratio, "%.2f", c.time_us / c.bound_us);
    if (c.why_rejected.empty())
      std::snprintf(line, sizeof line, "%c %-24s %-10s %12.2f %12.2f %10s\n", first ? '*' : ' ', c.choreography.c_str(),
                    c.protocol.c_str(), c.time_us, c.busbw, ratio);
    else std::snprintf(line, sizeof line, "  %-24s rejected: ", c.choreography.c_str());
    text += line;
    if (!c.why_rejected.empty()) text += c.why_rejected + '\n';  // which may be long
    first = false;
  }
  return text;
}

std::string to_json(const study_scenario& call, const std::vector<modelled_candidate>& candidates) {
  nlohmann::json made{{"collective", name(call.kind)}, {"bytes", call.sizes.back()}, {"preset", call.preset_name}};
  for (const modelled_candidate& c : candidates) {
    nlohmann::json row{{"choreography", c.choreography}};
    if (c.why_rejected.empty())
      row.update({{"protocol", c.protocol}, {"time_us", c.time_us}, {"busbw", c.busbw}, {"bound_us", c.bound_us}});
    else row["rejected"] = c.why_rejected;
    made["candidates"].push_back(std::move(row));
  }
  return made.dump(1);
}

}  // namespace troupe
