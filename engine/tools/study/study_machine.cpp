// SPDX-License-Identifier: Apache-2.0
// A scenario → its machine: a preset, and what the scenario says of its constants, slow elements and faults.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/tools/study/study.hpp"
#include "engine/tools/study/this_machine.hpp"
#include "memory/error.hpp"
#include "topology/machine/hardware.hpp"

namespace troupe {

namespace {

/// Whether some message could choose: the ways of two channels are as long, and not the same. True also where looking would take too long.
bool has_equal_ways(const hardware& on) {
  constexpr std::int64_t most_pairs = 4'000'000;
  const int channels = std::max(on.paths, hardware{"", 1}.paths);
  std::vector<std::vector<element_index>> ways(static_cast<std::size_t>(channels));
  std::int64_t left = most_pairs;
  // Neighbours first, then those further apart.
  for (int distance = 1; distance < on.ranks; ++distance)
    for (int from = 0; from < on.ranks; ++from) {
      if (--left < 0) return true;
      for (int c = 0; c < channels; ++c) {
        const auto end = ways.begin() + c;
        on.route(from, (from + distance) % on.ranks, c, *end);
        if (std::any_of(ways.begin(), end, [&](const auto& w) { return w.size() == end->size() && w != *end; }))
          return true;
      }
    }
  return on.ranks < 2;
}

/// What the machine says of a key's value, behind the place where that stands.
template <class Action>
void at_place_of(const study_scenario& s, const std::string& key, Action action) {
  try {
    action();
  } catch (const error& why) {
    throw error(why.code_value(), said_at(s, key) + why.what());
  }
}

study_machine built_machine_of(const study_scenario& s) {
  try {
    return build_study_machine(s.preset_name, s.request);
  } catch (const error& why) {
    throw error(why.code_value(), said_at(s, key_told_of(why.what())) + why.what());
  }
}

}  // namespace

study_machine study_machine_of(const study_scenario& s) {
  study_machine made = built_machine_of(s);
  for (const auto& [key, value] : s.overrides)
    at_place_of(s, "study.hardware." + key, [&, &key = key, &value = value] { made.on.set(key, value); });
  for (const auto& [element, times] : s.slow)
    at_place_of(s, "study.slow." + element, [&, &name = element, t = times] { made.on.slow_down(name, t); });
  for (const auto& [element, times] : s.faults)
    at_place_of(s, "study.faults." + element, [&, &name = element, &t = times] { made.on.disturb(name, t); });
  made.on.validate();
  if (!made.on.losses.empty() && s.by == performed_by::player)
    throw error(errc::unsupported,
                said_at(s, "study.performed_by") +
                    "study.performed_by: the player does not know what ranks do when one is lost (study.faults); "
                    "take \"states\", or leave it away");
  const bool asked = std::ranges::any_of(s.overrides, [](const auto& said) { return said.first == "routing"; });
  if (asked && made.on.routing == path_choice::adaptive && !has_equal_ways(made.on))
    throw error(errc::unsupported, said_at(s, "study.hardware.routing") +
                                       "study.hardware.routing: adaptive would do nothing: on " + made.on.name +
                                       " there is but one way from a rank to another one; leave it away");
  return made;
}

void refuse_losses(const study_scenario& scenario, const hardware& on, const std::string& why) {
  if (on.losses.empty()) return;
  const std::string key = "study.faults.rank " + std::to_string(on.losses.front().rank);
  throw error(errc::unsupported,
              said_at(scenario, key) + key + ": ranks are lost in studies of one collective; " + why);
}

std::string why_no_protocol(const hardware& on, const std::string& wanted) {
  if (wanted == "auto" || on.protocol(wanted) != nullptr) return {};
  std::string list = "auto";
  for (const protocol_costs& p : on.protocols) list += ", " + p.name;
  return on.name + " has no protocol \"" + wanted + "\"; there are " + list;
}

}  // namespace troupe
