// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/experts/expert_study.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <span>

#include <nlohmann/json.hpp>

#include "engine/tools/study/page.hpp"
#include "engine/tools/study/text.hpp"
#include "memory/error.hpp"
#include "memory/spelling.hpp"

namespace troupe {

namespace {

using json = nlohmann::ordered_json;
using study_text::format;
using study_text::time_text;

expert_row run_one(const study_scenario& scenario, const expert_layers& model, const named_expert_way& by,
                   const replay_request& how) {
  expert_row row;
  row.by = by;
  row.iteration = expert_iteration_of(model, by.way);
  const auto what = std::make_shared<const application>(std::move(row.iteration.what));
  replay_request one = how;
  if (how.progress) one.progress = [&](const std::string& text) { how.progress(by.name + ": " + text); };
  row.run = run_replay(scenario, what, one);
  row.us = static_cast<double>(row.run.outcome.end_ps) / 1e6;
  for (const replay_times& t : row.run.outcome.ranks) row.computing += static_cast<double>(t.compute);
  for (std::size_t r = 0; r < what->ranks.size(); ++r) {
    expert_profile::of_rank& of = row.iteration.profile.ranks[r];
    of.altogether = std::chrono::nanoseconds{row.run.outcome.end_ps / 1000};
    of.exchanging = of.altogether - std::chrono::nanoseconds{row.run.outcome.ranks[r].compute / 1000};
  }
  row.computing /= static_cast<double>(row.run.outcome.end_ps) * static_cast<double>(what->ranks.size());
  return row;
}

std::vector<named_expert_way> chosen(std::vector<named_expert_way> all, const std::vector<std::string>& only) {
  std::vector<named_expert_way> made;
  for (const std::string& wanted : only) {
    const auto at = std::ranges::find(all, wanted, &named_expert_way::name);
    if (at == all.end()) {
      std::string known;
      for (const named_expert_way& w : all) known += (known.empty() ? "" : ", ") + w.name;
      throw error(errc::bad_config, "\"" + wanted + "\" is no way for tokens here; there are " + known);
    }
    made.push_back(*at);
  }
  return only.empty() ? all : made;
}

}  // namespace

std::vector<named_expert_way> expert_ways(const layout& places, int parts) {
  std::vector<named_expert_way> ways{{"plain", "an all_to_all_v there, one back", {}},
                                     {"bytes", "dispatch in 8 bits", {.bytes = true}}};
  const bool servers = places.server_count() > 1 && places.uniform();
  if (servers) ways.push_back({"by_server", "a token goes once to a server", {.by_server = true}});
  if (parts > 1) {
    const std::string cut = "tokens in " + std::to_string(parts) + " parts";
    ways.push_back({"parts", cut + ", one travels while another is computed", {.parts = parts}});
    ways.push_back({"all", "all of these together", {.bytes = true, .by_server = servers, .parts = parts}});
  }
  return ways;
}

expert_study run_experts(const study_scenario& scenario, const expert_layers& model, int parts,
                         const std::vector<std::string>& only, const replay_request& how) {
  expert_study made{model, {}};
  for (const named_expert_way& by : chosen(expert_ways(model.places, parts), only))
    made.rows.push_back(run_one(scenario, model, by, how));
  return made;
}

void print_experts(std::ostream& to, const expert_study& study) {
  const expert_layers& m = study.model;
  const expert_row& first = study.rows.front();
  const auto count = [](int n, const char* what) { return plural(static_cast<std::size_t>(n), what); };
  to << "# " << count(m.layers, "layer") << " of " << count(m.experts, "expert") << " on "
     << count(m.places.size(), "rank") << " (" << m.places.to_string() << "): " << count(m.tokens, "token") << " of "
     << m.hidden << " elements a rank, " << count(m.top_k, "choice") << " each, forward and backward\n"
     << "# " << first.run.on->name << ": " << first.run.on->about << '\n'
     << format("# the busiest rank computes %.2f times the average; %.1f%% of the choices are dropped\n",
               first.iteration.imbalance, 100 * first.iteration.dropped)
     << format("#\n# %-10s %14s %12s %10s %10s %10s  %s\n", "way", "iteration(ms)", "layer(us)", "of plain", "waiting",
               "crossing", "what");
  for (const expert_row& r : study.rows)
    to << format("  %-10s %14.3f %12s %10.3f %9.1f%% %10.2f  ", r.by.name.c_str(), r.us / 1000,
                 time_text(r.us / m.layers).c_str(), r.us / first.us, 100 * (1 - r.computing), r.iteration.crossing)
       << r.by.about << '\n';
  to << "# waiting: the part of the iteration in which a rank does not compute, on average; crossing: rows to another "
        "server, a choice that "
        "lies there\n";
  for (const std::string& remark : first.run.remarks) to << "# " << remark << '\n';
}

std::string experts_json(const expert_study& study) {
  const expert_layers& m = study.model;
  json ways = json::array();
  for (const expert_row& r : study.rows) {
    json calls = json::array();
    for (const replay_group_row& g : r.run.groups)
      calls.push_back({{"communicator", r.run.what->communicators[g.communicator].name},
                       {"calls", g.calls},
                       {"choreography", g.choreography},
                       {"median_us", g.all.median},
                       {"most_us", g.all.most}});
    ways.push_back({{"name", r.by.name},
                    {"about", r.by.about},
                    {"iteration_us", r.us},
                    {"computing", r.computing},
                    {"crossing", r.iteration.crossing},
                    {"profile", json::parse(r.iteration.profile.json())},
                    {"collectives", calls}});
  }
  const expert_row& first = study.rows.front();
  const json whole = {{"troupe_experts", 1},
                      {"machine", first.run.on->name},
                      {"layout", m.places.to_string()},
                      {"layers", m.layers},
                      {"experts", m.experts},
                      {"top_k", m.top_k},
                      {"tokens", m.tokens},
                      {"hidden", m.hidden},
                      {"capacity", m.capacity},
                      {"skew", m.skew},
                      {"expert_ns", m.expert_ns},
                      {"dense_ns", m.dense_ns},
                      {"routings", m.routings},
                      {"seed", m.seed},
                      {"imbalance", first.iteration.imbalance},
                      {"dropped", first.iteration.dropped},
                      {"ways", ways}};
  return whole.dump(1) + "\n";
}

namespace {

std::string page_document(const expert_study& study, const expert_row& row) {
  const expert_layers& m = study.model;
  const expert_profile& p = row.iteration.profile;
  json shown = json::parse(p.json());
  for (json& rank : shown["ranks"]) rank.erase("sent_to_expert");  // which the picture has
  shown["heat_map"] = p.heat_map();
  const auto count = [](int n, const char* what) { return plural(static_cast<std::size_t>(n), what); };
  replay_words words;
  words.title = "Experts, " + row.by.name + ": " + row.by.about;
  words.about = "An iteration of " + count(m.layers, "layer") + " of " + count(m.experts, "expert") + " on " +
                row.run.on->name + ", " + m.places.to_string() + ": " + count(m.tokens, "token") + " of " +
                std::to_string(m.hidden) + " elements a rank, " + count(m.top_k, "choice") +
                " each, forward and backward, in virtual time.";
  words.members = "\"experts\":" + shown.dump();
  return replay_document(row.run, words);
}

}  // namespace

std::string experts_page(const expert_study& study) {
  std::vector<std::string> documents{page_document(study, study.rows.front())};
  const auto others = std::span{study.rows}.subspan(1);
  if (const auto fastest = std::ranges::min_element(others, {}, &expert_row::us); fastest != others.end())
    documents.push_back(page_document(study, *fastest));
  return study_page(documents);
}

}  // namespace troupe
