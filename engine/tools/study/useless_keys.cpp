// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/study/useless_keys.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "memory/error.hpp"
#include "protocols/choreographies/choreography.hpp"

namespace troupe {

namespace {

using source = config_origin::source;

constexpr std::string_view study_table = "study.";

const config_entry* said(const configuration& from, std::string_view key) {
  const auto at = from.values().find(std::string{study_table}.append(key));
  return at == from.values().end() || at->second.origin.from == source::initial ? nullptr : &at->second;
}

/// A dump says the defaults, too, and it is a file.
bool holds_anyway(const std::string& key, const config_entry& entry) {
  static const configuration usual;
  return entry.origin.from == source::file && usual.has(key) && entry.value == usual.at(key).value;
}

[[noreturn]] void refuse(std::string_view key, const config_entry& entry, const std::string& why) {
  throw error(errc::bad_config, place_of(entry.origin) + ": study." + std::string{key} + " would do nothing: " + why);
}

/// Sources in the order of their strength.
int strength(const config_origin& origin) {
  const std::string_view where = origin.where;
  const bool of_one_run = where == "--sweep" || where == "--set-a" || where == "--set-b";
  return 2 * static_cast<int>(origin.from) + (origin.from == source::command_line && of_one_run ? 1 : 0);
}

/// A collective and who performs it; without the former, any.
struct performance {
  std::optional<job_kind> what;
  std::string choreography;
};

std::vector<performance> performances_of(const study_scenario& s, study_use use) {
  if (use == study_use::machine_and_ways) return {{std::nullopt, s.choreography}};
  if (s.jobs.empty()) return {{s.kind, s.choreography}};
  std::vector<performance> all;
  for (const study_job& j : s.jobs)
    for (const study_call& c : j.calls)
      all.push_back({c.kind, c.choreography.empty() ? j.choreography : c.choreography});
  return all;
}

/// What takes a wish: `by`, of these collectives, or of all that it offers.
struct taker {
  std::string_view by;
  std::vector<collective> of{};
};

bool offers(std::string_view choreography_name, collective what) {
  const choreography* const by = find_choreography(choreography_name);
  return by != nullptr && std::ranges::any_of(by->collectives, [&](collective c) { return c == what; });
}

bool takes(const performance& p, const taker& t) {
  using namespace std::string_view_literals;
  const bool grouped_by_nccl = p.choreography == "nccl" && t.by == "grouped";
  const std::array choosing{"auto"sv, "hccl"sv, t.by};
  if (!grouped_by_nccl && std::ranges::find(choosing, p.choreography) == choosing.end()) return false;
  if (!p.what) return true;
  const collective what = p.what->what;
  if (grouped_by_nccl && what != collective::all_to_all) return false;
  return offers(t.by, what) && (t.of.empty() || std::ranges::find(t.of, what) != t.of.end());
}

/// A choreography that is not ours takes all keys, unless it is written already.
bool takes(const study_scenario& s, const performance& p, const std::vector<taker>& all) {
  if (s.score_files.contains(p.choreography)) return false;
  const choreography* const named = find_choreography(p.choreography);
  if (named != nullptr && !is_built_in(*named)) return true;
  return std::ranges::any_of(all, [&](const taker& t) { return takes(p, t); });
}

/// Keys that do nothing in a study, and why.
struct useless_group {
  std::vector<std::string> keys;    ///< without "study."
  std::vector<const char*> unless;  ///< keys that could make them do something: those that make them do nothing
  std::string why;                  ///< the rest of a sentence
};

class useless_groups {
public:
  useless_groups(const configuration& from, const study_scenario& s, study_use use)
      : from_(from),
        s_(s),
        one_collective_(use == study_use::itself && s.jobs.empty() && s.flow.nodes.empty()),
        performed_(performances_of(s, use)) {
    find_selections();
    if (s.flow.nodes.empty()) find_choreographies();
    else find_flow();
    if (one_collective_) find_call(), find_cuts(), find_times();
  }

  const std::vector<useless_group>& all() const { return all_; }

private:
  void add(std::vector<std::string> keys, std::vector<const char*> unless, std::string why) {
    all_.push_back({std::move(keys), std::move(unless), std::move(why)});
  }

  std::vector<std::string> keys_under(const std::string& table) const {
    std::vector<std::string> keys;
    for (const auto& [name, entry] : from_.under(std::string{study_table} + table)) keys.push_back(table + "." + name);
    return keys;
  }

  void find_selections() {
    for (const auto& [selection, who] : {std::pair{"nccl", "NCCL's tuning model"}, {"hccl", "HCCL's selection"}}) {
      if (!s_.jobs.empty() || !s_.flow.nodes.empty())
        add(keys_under(selection), {},
            std::string{who} + " is asked in studies of one collective, and this one has " +
                (s_.jobs.empty() ? "a flow" : "jobs"));
      else if (s_.choreography != selection)
        add(keys_under(selection), {"choreography"},
            std::string{who} + " is asked where study.choreography is \"" + selection + "\", and it is \"" +
                s_.choreography + "\"");
    }
    if (one_collective_ && s_.choreography == "nccl" && s_.kind.what == collective::all_to_all)
      add(keys_under("nccl"), {"choreography", "collective"},
          "an all_to_all is a group of sends and receives, for which NCCL's tuning model is not asked");
  }

  void find_choreographies() {
    using enum collective;
    check("streams", {{"direct_full_mesh"}, {"grouped"}, {"hierarchical_pipeline", {all_to_all}}},
          "it is of direct_full_mesh, of grouped and of an all_to_all by hierarchical_pipeline, and none is performed");
    check("through_scratch", {{"pairwise"}, {"direct_full_mesh", {all_to_all, all_gather}}},
          "it is of pairwise, and of an all_to_all and an all_gather by direct_full_mesh, and none is performed");
    check("contiguous", {{"csc", {all_gather}}}, "it is of an all_gather by csc, and none is performed");
    if (std::ranges::none_of(performed_, [](const performance& p) { return !p.what || p.what->reduces(); }))
      add({"any_order"}, {"collective"}, "nothing is reduced");
  }

  void check(const char* key, const std::vector<taker>& by, const char* why) {
    if (std::ranges::none_of(performed_, [&](const performance& p) { return takes(s_, p, by); }))
      add({key}, {"choreography", "collective"}, why);
  }

  void find_flow() {
    add({"seed"}, {}, "the study has a flow, whose nodes say what is performed");
    const auto is_collective = [](const study_node& n) { return n.what == study_node::kind::collective; };
    const auto reduces = [](const study_node& n) { return n.exchanges == study_node::exchange::reduce_scatter; };
    if (std::ranges::none_of(s_.flow.nodes, is_collective))
      add({"choreography", "protocol", "channels", "credits"}, {}, "no node of the flow is a collective");
    if (std::ranges::none_of(s_.flow.nodes, reduces)) add({"op"}, {}, "no node of the flow reduces");
  }

  void find_call() {
    const std::string what = name(s_.kind);
    if (!s_.kind.reduces()) add({"op"}, {"collective"}, what + " reduces nothing");
    if (!s_.kind.rooted()) add({"root"}, {"collective"}, what + " has no root");
    if (!s_.kind.in_place_exists()) add({"in_place"}, {"collective"}, what + " is never in place");
    if (s_.kind.is_barrier())
      add({"sizes", "type", "channels", "slices", "slices_per_step", "chunk_bytes"}, {"collective"},
          what + " has no data");
    else if (!s_.counts.empty()) add({"sizes"}, {"counts"}, "study.counts says how many elements each rank has");
    if (s_.counts.empty()) add({"unit"}, {"counts"}, "it is the unit of study.counts, which says nothing");
  }

  void find_cuts() {
    if (s_.slices > 0) add({"chunk_bytes"}, {"slices"}, "study.slices says how often messages are cut");
    if (s_.slices == 1 && s_.slices_per_step > 1)
      add({"slices_per_step"}, {"slices"}, "study.slices says that there is one slice");
  }

  void find_times() {
    if (s_.skew_spread.count() == 0)
      add({"seed"}, {"skew_spread"}, "it is of the times below study.skew_spread, which is 0");
    if (s_.compute.count() == 0)
      add({"compute_blocks", "compute_dma_bytes", "overlap"}, {"compute"},
          "they are of the computation study.compute, which takes no time");
  }

  const configuration& from_;
  const study_scenario& s_;
  bool one_collective_;
  std::vector<performance> performed_;
  std::vector<useless_group> all_;
};

/// The setting that makes these keys do nothing comes from a stronger source than the key.
bool is_overruled(const configuration& from, const useless_group& group, const config_entry& key) {
  return std::ranges::any_of(group.unless, [&](const char* other) {
    const config_entry* const stronger = said(from, other);
    return stronger != nullptr && strength(stronger->origin) > strength(key.origin);
  });
}

}  // namespace

void refuse_keys(const configuration& from, std::span<const char* const> keys, const std::string& why) {
  for (const char* key : keys)
    if (const config_entry* const entry = said(from, key);
        entry != nullptr && !holds_anyway(std::string{study_table} + key, *entry))
      refuse(key, *entry, why);
}

void refuse_useless_keys(const configuration& from, const study_scenario& scenario, study_use use) {
  const useless_groups groups{from, scenario, use};
  for (const useless_group& group : groups.all())
    for (const std::string& key : group.keys)
      if (const config_entry* const entry = said(from, key); entry != nullptr &&
                                                             !holds_anyway(std::string{study_table} + key, *entry) &&
                                                             !is_overruled(from, group, *entry))
        refuse(key, *entry, group.why);
}

configuration without_useless_keys(configuration from, const study_scenario& scenario, study_use use) {
  const std::vector<useless_group> groups = useless_groups{from, scenario, use}.all();
  for (const useless_group& group : groups)
    for (const std::string& key : group.keys)
      if (const config_entry* const entry = said(from, key); entry != nullptr && is_overruled(from, group, *entry))
        from.forget(std::string{study_table} + key);
  return from;
}

}  // namespace troupe
