// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/study/selection.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "engine/planning/hccl_selection.hpp"
#include "engine/planning/nccl_selection.hpp"
#include "engine/tools/study/text.hpp"
#include "memory/error.hpp"
#include "memory/spelling.hpp"

namespace troupe {

namespace {

/// The first NIC on the way of a channel; no_element: there is none.
element_index nic_between(const hardware& on, int from, int to, int channel) {
  std::vector<element_index> way;
  on.route(from, to, channel, way);
  const auto nic = std::ranges::find_if(way, [&](element_index e) { return on.class_of(e).role == element_role::nic; });
  return nic == way.end() ? no_element : *nic;
}

/// The NICs through which the ranks of a server send to another server, of the server that has fewest; 1: there is no server, nobody has any, or routes take
/// the channels of one pair of ranks to several by themselves, so that a ring has them all at work.
int nics_a_server(const hardware& on) {
  const layout& places = on.arrangement;
  if (places.size() != on.ranks || places.server_count() < 2) return 1;
  std::map<int, std::set<element_index>> by_server;
  for (int r = 0; r < on.ranks; ++r) {
    const int server = places.server_of(r);
    const int other = server == places.server_of(0) ? on.ranks - 1 : 0;
    const element_index nic = nic_between(on, r, other, 0);
    if (nic == no_element) continue;
    if (nic_between(on, r, other, 1) != nic) return 1;
    by_server[server].insert(nic);
  }
  auto fewest = static_cast<std::size_t>(on.ranks);
  for (const auto& [server, nics] : by_server) fewest = std::min(fewest, nics.size());
  return by_server.empty() ? 1 : static_cast<int>(fewest);
}

}  // namespace

study_selection::study_selection(const study_scenario& scenario, const hardware& on, score_library& library,
                                 prepared_scores& scores, std::vector<std::string>& remarks)
    : scenario_(scenario), on_(on), library_(library), scores_(scores), remarks_(remarks) {
  find_protocols();
}

void study_selection::find_protocols() {
  const bool any = scenario_.protocol == "auto" || (scenario_.choreography == "nccl" && !is_said("protocol"));
  for (const protocol_costs& p : on_.protocols)
    if (any || scenario_.protocol == p.name) protocols_.push_back(p);
  if (protocols_.empty())
    throw error(errc::bad_config,
                said_at(scenario_, "study.protocol") + "study.protocol: " + why_no_protocol(on_, scenario_.protocol));
  if (scenario_.credits > 0)
    for (protocol_costs& p : protocols_) p.slots = scenario_.credits;
  study_way way = scores_.way();
  way.protocols = protocols_;
  scores_.take_up(way);
}

std::vector<std::string> study_selection::select(std::size_t bytes) {
  if (scenario_.choreography == "hccl") return as_hccl(bytes);
  if (scenario_.choreography == "nccl") return as_nccl(bytes);
  if (!at_every_size_) at_every_size_ = candidates(scenario_.choreography);
  return *at_every_size_;
}

std::vector<std::string> study_selection::candidates(const std::string& wanted) {
  const setup on = scores_.present_setup();
  if (wanted != "auto") {
    if (!library_.offers(wanted, on.what))
      throw error(errc::unsupported, wanted + " does not offer " + name(scenario_.kind));
    if (const std::string why = library_.refusal(wanted, on); !why.empty())
      throw error(errc::unsupported, wanted + " cannot perform " + name(scenario_.kind) + " here: " + why);
    return {wanted};
  }
  std::vector<std::string> able;
  for (const std::string& n : library_.names()) {
    if (!library_.offers(n, on.what) || !library_.refusal(n, on).empty()) continue;
    if (const std::string why = why_not_a_candidate(n, on); !why.empty())
      say_once(remarks_, "auto: " + n + " is left out, " + why + "; name it to try it");
    else able.push_back(n);
  }
  if (able.empty()) throw error(errc::unsupported, "no choreography can perform " + name(scenario_.kind) + " here");
  return able;
}

std::vector<std::string> study_selection::as_hccl(std::size_t bytes) {
  hccl_case asked = scenario_.hccl;
  asked.places = scores_.present_setup().placement;
  asked.bytes = bytes;
  if (asked.places.is_flat()) asked.places = layout::grid(1, on_.ranks);
  const hccl_choice choice = select_as_hccl(asked, scenario_.streams);
  study_way way = scores_.way();
  way.through_scratch = scenario_.through_scratch || choice.through_scratch;
  way.chunk_bytes = scenario_.chunk_bytes > 0 ? scenario_.chunk_bytes : choice.chunk_bytes;
  scores_.take_up(way);
  const std::string at = "hccl: " + bytes_text(bytes) + ": ";
  say_once(remarks_, at + std::string{name(choice.algorithm)} + " by rule " + std::to_string(choice.rule) + " (" +
                         choice.why + (choice.through_scratch ? "; BCopy" : "") + "), performed by " +
                         choice.choreography);
  for (const std::string& line : choice.path)
    if (line.starts_with("level")) say_once(remarks_, at + line);
  return candidates(choice.choreography);
}

/// The fastest by its tuning model of those that somebody performs here. The study's own protocol and channels are stronger.
std::vector<std::string> study_selection::as_nccl(std::size_t bytes) {
  const std::string at = "nccl: " + bytes_text(bytes) + ": ";
  if (scenario_.kind.what == collective::all_to_all) {
    say_once(remarks_, "nccl: a group of sends and receives, performed by grouped");
    return candidates("grouped");
  }
  const nccl_choice choice = select_as_nccl({.places = scores_.present_setup().placement,
                                             .what = scenario_.kind.what,
                                             .bytes = bytes,
                                             .type = scenario_.type,
                                             .op = scenario_.reduction.kind,
                                             .machine = scenario_.nccl,
                                             .tree = {}});
  for (const std::size_t i : choice.order) {
    const nccl_row& row = choice.rows[i];
    const auto by = std::ranges::find(protocols_, name(row.how), &protocol_costs::name);
    if (by == protocols_.end() && is_said("protocol") && scenario_.protocol != "auto") continue;
    const std::string who = std::string{name(row.algorithm)} + ' ' + std::string{name(row.how)};
    const std::string why = by == protocols_.end() ? "the machine has no protocol " + std::string{name(row.how)}
                                                   : why_not_as_nccl(row.choreography, *by);
    if (!why.empty()) {
      say_once(remarks_, at + who + " is skipped: " + why);
      continue;
    }
    study_way way = scores_.way();
    way.protocols = {*by};
    way.slices_per_step = row.slices;
    way.least_cut = least_nccl_slice;
    if (!is_said("chunk_bytes")) way.protocols.front().slot_payload *= static_cast<std::uint64_t>(row.slots);
    if (!is_said("credits")) way.protocols.front().slots = std::max(1, by->slots / row.slots);
    // Of what a switch reduces NCCL's channels are not modelled. Those that the study says are pieces of one ring's or tree's cells.
    nccl_performance performed =
        performance_of(row, scores_.present_setup().placement, is_said("channels") ? 1 : nics_a_server(on_));
    if (performed.nics > 0 && !why_not_as_nccl(performed.choreography, *by).empty())
      performed = performance_of(row, scores_.present_setup().placement, 1);
    way.nics = performed.nics;
    way.channels = is_said("channels") || performed.channels == 0 ? scenario_.channels : performed.channels;
    scores_.take_up(way);
    say_once(remarks_,
             at + who + ", which its model says takes " + study_text::time_text(row.us) + " us" +
                 (row.channels > 0 ? ", over " + plural(static_cast<std::size_t>(row.channels), "channel") : "") +
                 ", performed by " + performed.choreography +
                 (performed.nics > 0
                      ? " over " + plural(static_cast<std::size_t>(performed.nics), "NIC") + " of a server"
                      : ""));
    return {performed.choreography};
  }
  throw error(errc::unsupported, "nobody performs here what NCCL would take for " + name(scenario_.kind) + " of " +
                                     bytes_text(bytes) + (remarks_.empty() ? "" : "; " + remarks_.back()));
}

std::string study_selection::why_not_as_nccl(const std::string& choreography, const protocol_costs& by) {
  if (choreography.empty()) return "nobody performs it";
  if (!library_.offers(choreography, scenario_.kind.what))
    return choreography + " does not offer " + name(scenario_.kind);
  if (const std::string why = library_.refusal(choreography, scores_.present_setup()); !why.empty())
    return choreography + ": " + why;
  return scores_.why_not_by_switches(choreography, by);
}

}  // namespace troupe
