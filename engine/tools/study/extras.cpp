// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/study/extras.hpp"

#include <algorithm>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "engine/tools/study/text.hpp"
#include "memory/spelling.hpp"

namespace troupe {

namespace {

using json = nlohmann::ordered_json;
using study_text::format;
using study_text::time_text;

double us(std::int64_t ps) { return static_cast<double>(ps) / 1e6; }

/// "0, 2-5"
std::string ranges(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(ranks[i]);
    if (last > i) text += (last == i + 1 ? ", " : "-") + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

std::string rank_list(const std::vector<int>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + ranges(ranks);
}

}  // namespace

// -- energy -------------------------------------------------------------------------------------------------------------

bool has_energy(const hardware& on) noexcept {
  return std::any_of(on.classes.begin(), on.classes.end(),
                     [](const element_class& c) { return c.idle_microwatts > 0 || c.femtojoules_a_byte > 0; });
}

std::vector<element_energy> energy_of(const hardware& on, std::span<const element_use> use, std::int64_t end_ps) {
  std::vector<element_energy> all(on.elements.size());
  for (std::size_t e = 0; e < all.size(); ++e) {
    const element_class& c = on.class_of(static_cast<element_index>(e));
    const bool other_has_it =
        c.directions == duplex::half && on.elements[e].twin >= 0 && on.elements[e].twin < static_cast<std::int32_t>(e);
    if (!other_has_it)
      all[e].idle = static_cast<double>(c.idle_microwatts) * 1e-6 * static_cast<double>(end_ps) * 1e-12;
    if (e < use.size())
      all[e].transfer = static_cast<double>(c.femtojoules_a_byte) * 1e-15 * static_cast<double>(use[e].bytes);
  }
  return all;
}

void print_energy(std::ostream& to, const hardware& on, std::span<const element_use> use, std::int64_t end_ps) {
  if (!has_energy(on)) return;
  const auto of = energy_of(on, use, end_ps);
  std::vector<element_energy> by_class(on.classes.size());
  std::vector<std::size_t> count(on.classes.size(), 0);
  element_energy whole;
  for (std::size_t e = 0; e < of.size(); ++e) {
    element_energy& sum = by_class[on.elements[e].of];
    sum.idle += of[e].idle, sum.transfer += of[e].transfer;
    whole.idle += of[e].idle, whole.transfer += of[e].transfer;
    ++count[on.elements[e].of];
  }
  to << "#\n"
     << format("# %-16s %9s %14s %14s %14s\n", "energy of", "elements", "idle (uJ)", "bytes (uJ)", "together (uJ)");
  const auto line = [&](const std::string& who, std::size_t n, const element_energy& j) {
    to << format("# %-16s %9zu", who.c_str(), n);
    for (const double joules : {j.idle, j.transfer, j.joules()})
      to << format(joules > 0 && joules < 1e-6 ? " %14.6f" : " %14.3f", joules * 1e6);
    to << '\n';
  };
  for (std::size_t c = 0; c < by_class.size(); ++c)
    if (by_class[c].joules() > 0) line(on.classes[c].name, count[c], by_class[c]);
  line("all", of.size(), whole);
}

json energy_json(const hardware& on, std::span<const element_use> use, std::int64_t end_ps) {
  if (!has_energy(on)) return nullptr;
  const auto of = energy_of(on, use, end_ps);
  element_energy whole;
  json elements = json::array();
  for (std::size_t e = 0; e < of.size(); ++e) {
    whole.idle += of[e].idle, whole.transfer += of[e].transfer;
    if (of[e].joules() > 0)
      elements.push_back(
          {{"element", on.elements[e].name}, {"idle_joules", of[e].idle}, {"transfer_joules", of[e].transfer}});
  }
  return {{"joules", whole.joules()},
          {"idle_joules", whole.idle},
          {"transfer_joules", whole.transfer},
          {"elements", std::move(elements)}};
}

// -- lost ranks -----------------------------------------------------------------------------------------------------------

void print_ends(std::ostream& to, const hardware& on, const study_row& row) {
  const auto& ends = row.outcome.ends;
  if (ends.empty()) return;
  to << "#\n# Ranks are lost at " << bytes_text(row.bytes) << ":\n";
  for (const rank_loss& l : on.losses)
    to << "# rank " << l.rank << (l.silence_ps > 0 ? " stops at " : " exits at ") << time_text(us(l.at_ps)) << " us"
       << (l.silence_ps > 0 ? ", and counts as lost " + time_text(us(l.silence_ps)) + " us later" : std::string{})
       << '\n';
  std::map<std::string, std::vector<int>> by_reason;
  std::vector<int> well;
  for (std::size_t r = 0; r < ends.size(); ++r) {
    if (ends[r].lost) continue;
    if (ends[r].code == errc{}) well.push_back(static_cast<int>(r));
    else
      by_reason[std::string{make_error_code(ends[r].code).message()} + ": " + ends[r].why].push_back(
          static_cast<int>(r));
  }
  const auto times = [&](const std::vector<int>& ranks) {
    std::int64_t first = row.outcome.finished[static_cast<std::size_t>(ranks.front())], last = first;
    for (const int r : ranks) {
      first = std::min(first, row.outcome.finished[static_cast<std::size_t>(r)]);
      last = std::max(last, row.outcome.finished[static_cast<std::size_t>(r)]);
    }
    return time_text(us(first)) + (last == first ? "" : " to " + time_text(us(last))) + " us";
  };
  if (!well.empty()) to << "# " << rank_list(well) << " had it all, at " << times(well) << '\n';
  for (const auto& [why, ranks] : by_reason)
    to << "# " << rank_list(ranks) << (ranks.size() == 1 ? " ends" : " end") << " with an error at " << times(ranks)
       << ": " << why << '\n';
}

json ends_json(const study_row& row) {
  if (row.outcome.ends.empty()) return nullptr;
  json all = json::array();
  for (std::size_t r = 0; r < row.outcome.ends.size(); ++r) {
    const virtual_end& e = row.outcome.ends[r];
    const bool failed = e.code != errc{};
    all.push_back({{"rank", r},
                   {"end_ps", row.outcome.finished[r]},
                   {"lost", e.lost},
                   {"error", failed ? json(make_error_code(e.code).message()) : json(nullptr)},
                   {"why", failed ? json(e.why) : json(nullptr)}});
  }
  return all;
}

}  // namespace troupe
