// SPDX-License-Identifier: Apache-2.0
// The [[study.node]] tables of a configuration.
#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "engine/tools/study/study.hpp"
#include "engine/tools/study/useless_keys.hpp"
#include "memory/error.hpp"
#include "memory/spelling.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "topology/machine/quantities.hpp"

namespace troupe {

namespace {

using node_kind = study_node::kind;
using node_tier = study_node::tier;
using node_exchange = study_node::exchange;

/// Where a node's keys mean something.
struct node_key {
  std::string_view key;
  std::vector<node_kind> of;
};
const std::vector<node_key>& node_keys() {
  using enum study_node::kind;
  static const std::vector<node_key> all{{"from", {work, collective, sink}},
                                         {"holds", {source}},
                                         {"through", {work, sink}},
                                         {"exchange", {work}},
                                         {"sync", {work}},
                                         {"keeps", {work}},
                                         {"time", {work}},
                                         {"loads", {work}},
                                         {"kernel", {work}},
                                         {"begins", {work, collective}},
                                         {"collective", {collective}},
                                         {"choreography", {collective}},
                                         {"channels", {collective}},
                                         {"parts", {collective}}};
  return all;
}

class flow_reader {
public:
  flow_reader(const configuration& from, study_scenario& into) : from_(from), scenario_(into), flow_(into.flow) {}

  void read() {
    const auto number = [&](const char* key) {
      return static_cast<int>(std::get<std::int64_t>(from_.at(std::string{"study.flow."} + key).value));
    };
    const config_value& tile = from_.at("study.flow.tile").value;
    const auto* plain = std::get_if<std::int64_t>(&tile);
    flow_.tile_bytes = static_cast<std::uint64_t>(plain ? *plain : parse_bytes(std::get<std::string>(tile)));
    if (flow_.tile_bytes == 0)
      throw error(errc::bad_config,
                  place_of(from_.at("study.flow.tile").origin) + ": study.flow.tile: a tile has bytes");
    flow_.cores = number("cores");
    flow_.depth = number("depth");
    for (std::size_t i = 0; i < from_.nodes().size(); ++i) name_node(i);
    for (std::size_t i = 0; i < from_.nodes().size(); ++i) read_node(i);
    check_order();
    for (study_node& n : flow_.nodes) check_stream(n);
    give_kernels();
    for (const study_node& n : flow_.nodes) check_kernels(n);
  }

private:
  // -- values ---------------------------------------------------------------------------------------------------------

  const config_value* find(std::size_t i, std::string_view key) const {
    const auto found = from_.nodes()[i].find(key);
    return found == from_.nodes()[i].end() ? nullptr : &found->second.value;
  }
  std::string text(std::size_t i, std::string_view key, const std::string& initial = {}) const {
    const config_value* value = find(i, key);
    return value == nullptr || std::get<std::string>(*value).empty() ? initial : std::get<std::string>(*value);
  }
  int number(std::size_t i, std::string_view key, int initial) const {
    const config_value* value = find(i, key);
    return value == nullptr ? initial : static_cast<int>(std::get<std::int64_t>(*value));
  }
  [[noreturn]] static void fail(const study_node& n, std::string_view key, const std::string& sentence) {
    throw error(errc::bad_config, n.at(key) + sentence);
  }

  // -- nodes ----------------------------------------------------------------------------------------------------------

  void name_node(std::size_t i) {
    study_node n;
    n.name = text(i, "name", "node " + std::to_string(i));
    n.place = place_of(from_.origin_of_node(i));
    for (const auto& [key, entry] : from_.nodes()[i]) {
      n.places[key] = place_of(entry.origin);
      scenario_.as_said["study.node." + std::to_string(i) + "." + key] = study_value_text(entry.value);
    }
    const std::string kind = text(i, "kind");
    n.what = kind == "source"       ? node_kind::source
             : kind == "collective" ? node_kind::collective
             : kind == "sink"       ? node_kind::sink
                                    : node_kind::work;
    for (const study_node& other : flow_.nodes)
      if (other.name == n.name) fail(n, "name", "two nodes are called so; give each a name of its own");
    for (const auto& [key, of] : node_keys())
      if (find(i, key) != nullptr && std::ranges::find(of, n.what) == of.end())
        fail(n, key, std::string{"it would do nothing: the node is "} + (kind == "operator" ? "an " : "a ") + kind);
    flow_.nodes.push_back(std::move(n));
  }

  void read_node(std::size_t i) {
    study_node& n = flow_.nodes[i];
    if (n.what != node_kind::source) n.inputs = inputs_of(n, i);
    n.whole = text(i, "holds") == "whole";
    const std::string exchange = text(i, "exchange");
    n.exchanges = exchange_called(exchange);
    n.syncs = text(i, "sync") == "tile" ? study_node::sync::tile : study_node::sync::kernel;
    if (const config_value* value = find(i, "keeps")) n.keeps = std::get<bool>(*value);
    read_costs(i, n);
    if (n.what != node_kind::collective) return;
    if (!find(i, "collective")) fail(n, "collective", "say which it performs, all_gather or reduce_scatter");
    n.exchanges = exchange_called(text(i, "collective"));
    n.choreography = text(i, "choreography", scenario_.choreography);
    n.channels = number(i, "channels", 0);
    if (n.channels == 0) n.channels = scenario_.channels;
    n.parts = number(i, "parts", 0);
    if (n.choreography != "auto" && find_choreography(n.choreography) == nullptr &&
        !scenario_.score_files.contains(n.choreography))
      fail(n, "choreography",
           "there is no choreography \"" + n.choreography + "\"; " +
               which_choreographies(n.choreography, {}, {"auto"}));
  }

  /// "gemm", or of an operator "gemm, x"; through what both come, or each.
  std::vector<study_node::input> inputs_of(const study_node& n, std::size_t i) const {
    const std::string from = text(i, "from");
    std::vector<std::string> names{from}, tiers = words(text(i, "through", "l1"));
    if (std::ranges::none_of(flow_.nodes, [&](const study_node& other) { return other.name == from; }))
      names = words(from);
    if (names.size() > (n.what == node_kind::work ? 2U : 1U))
      fail(n, "from",
           n.what == node_kind::work ? "an operator takes the tiles of one node, or of two"
                                     : "only an operator takes the tiles of two nodes");
    if (tiers.size() != 1 && tiers.size() != names.size())
      fail(n, "through", "it names " + plural(tiers.size(), "tier") + " for " + plural(names.size(), "input"));
    std::vector<study_node::input> inputs;
    for (std::size_t k = 0; k < names.size(); ++k) {
      const std::string& tier = tiers[tiers.size() == 1 ? 0 : k];
      if (tier != "l0" && tier != "l1" && tier != "l2")
        fail(n, "through", "there is no tier \"" + tier + "\"; take l0, l1 or l2");
      inputs.push_back({node_called(n, names[k]), tier == "l0"   ? node_tier::l0
                                                  : tier == "l2" ? node_tier::l2
                                                                 : node_tier::l1});
    }
    if (inputs.size() == 2 && inputs[0].from == inputs[1].from)
      fail(n, "from", "it takes the tiles of " + names[0] + " twice; an operator has each tile as often as it likes");
    return inputs;
  }
  /// Between commas, without blanks around them.
  static std::vector<std::string> words(const std::string& text) {
    std::vector<std::string> all;
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      const std::size_t first = text.find_first_not_of(' ', begin), last = text.find_last_not_of(' ', end - 1);
      all.push_back(end == begin || first >= end ? std::string{} : text.substr(first, last - first + 1));
      begin = end + 1;
    }
    return all;
  }

  void read_costs(std::size_t i, study_node& n) const {
    const std::string time = text(i, "time", "0");
    const auto parsed = parse_time(time);
    if (!parsed || *parsed > longest_setting)
      fail(n, "time",
           "\"" + time + "\" is no time of at most " + to_text(longest_setting) + "; write, for example, \"2us\"");
    n.time = *parsed;
    if (const config_value* value = find(i, "loads")) {
      const auto* plain = std::get_if<std::int64_t>(value);
      n.loads = static_cast<std::uint64_t>(plain ? *plain : parse_bytes(std::get<std::string>(*value)));
    }
  }

  static node_exchange exchange_called(const std::string& name) {
    return name == "all_gather"       ? node_exchange::all_gather
           : name == "reduce_scatter" ? node_exchange::reduce_scatter
                                      : node_exchange::none;
  }

  int node_called(const study_node& n, const std::string& wanted) const {
    std::vector<std::string_view> names;
    for (std::size_t i = 0; i < flow_.nodes.size(); ++i) {
      if (flow_.nodes[i].name == wanted) return static_cast<int>(i);
      names.push_back(flow_.nodes[i].name);
    }
    if (wanted.empty()) fail(n, "from", "say the name of the node whose tiles it takes");
    const auto near = closest(wanted, names);
    fail(n, "from",
         "there is no node \"" + wanted + "\"" +
             (near.empty() ? std::string{} : "; did you mean " + std::string{near} + "?"));
  }

  const study_node& before(const study_node::input& in) const { return flow_.node(in.from); }

  /// Every stream begins at a source: nodes stand behind those that they take tiles of.
  void check_order() const {
    for (int i = 0; i < static_cast<int>(flow_.nodes.size()); ++i) {
      const study_node& n = flow_.node(i);
      std::vector<bool> seen(flow_.nodes.size());
      if (std::string way = n.name; leads_to(i, i, seen, way)) fail(n, "from", "the flow goes in a circle: " + way);
    }
    for (int i = 0; i < static_cast<int>(flow_.nodes.size()); ++i)
      for (const study_node::input& in : flow_.node(i).inputs)
        if (in.from > i)
          fail(flow_.node(i), "from",
               before(in).name + " stands behind it in the file; a node stands behind those whose tiles it takes");
  }
  /// Whether a node's tiles come from `wanted`; appends " ← a ← b" to `way`, down to that one.
  bool leads_to(int wanted, int of, std::vector<bool>& seen, std::string& way) const {
    for (const study_node::input& in : flow_.node(of).inputs) {
      const std::size_t length = way.size();
      way += " ← " + before(in).name;
      if (in.from == wanted) return true;
      const auto next = static_cast<std::size_t>(in.from);
      if (!seen[next] && (seen[next] = true, leads_to(wanted, in.from, seen, way))) return true;
      way.resize(length);
    }
    return false;
  }

  void check_stream(study_node& n) const {
    if (n.inputs.empty()) return;
    const study_node::input* const exchanged = n.exchanged();
    for (const study_node::input& in : n.inputs) check_input(n, in);
    if (n.what == node_kind::work && (exchanged != nullptr) != (n.exchanges != node_exchange::none))
      fail(n, exchanged != nullptr ? "through" : "exchange",
           "ranks exchange tiles through l2, and only then: say through = \"l2\" and an exchange, or neither");
    if (n.keeps && n.exchanges != node_exchange::all_gather)
      fail(n, "keeps", "what is kept are others' tiles of exchange = \"all_gather\"");
    check_shapes(n, exchanged != nullptr ? *exchanged : n.inputs.front());
    for (const study_node::input& in : n.inputs)
      if (in.through == node_tier::l0 && before(in).what == node_kind::work && !flow_.same_order(n, before(in)))
        fail(n, "through",
             "the tiles of " + before(in).name +
                 " come in another order than it takes them, and l0 has no room for them meanwhile; take l1, or name "
                 "that node first");
  }

  void check_input(const study_node& n, const study_node::input& in) const {
    const study_node& from = before(in);
    if (from.what == node_kind::sink) fail(n, "from", from.name + " is a sink, where streams end");
    if (in.through == node_tier::l0 && from.what == node_kind::collective)
      fail(n, "through", "a collective leaves its output in l1");
    if (in.through != node_tier::l2) return;
    if (n.what == node_kind::sink) fail(n, "through", "a stream ends in l0 or l1");
    if (&in != n.exchanged())
      fail(n, "through", "ranks exchange the tiles of one input, and the other comes through l0 or l1");
    if (from.what != node_kind::work)
      fail(n, "from", "what passes l2 is stored there by an operator; " + from.name + " is none");
  }

  /// Shares or the whole tensor. @param main of the inputs, the one that is exchanged
  void check_shapes(study_node& n, const study_node::input& main) const {
    const study_node& from = before(main);
    n.whole = from.whole;
    if (n.exchanges == node_exchange::all_gather) {
      if (from.whole) fail(n, "from", "an all_gather takes a share, and " + from.name + " gives the whole tensor");
      n.whole = true;
    }
    if (n.exchanges == node_exchange::reduce_scatter) {
      if (!from.whole) fail(n, "from", "a reduce_scatter takes the whole tensor, and " + from.name + " gives a share");
      n.whole = false;
    }
    for (const study_node::input& in : n.inputs)
      if (&in != &main && before(in).whole != n.whole)
        fail(n, "from",
             before(in).name + " gives " + (before(in).whole ? "the whole tensor" : "a share") +
                 ", and it works on tiles of " + (n.whole ? "the whole tensor" : "a share"));
  }

  // -- kernels --------------------------------------------------------------------------------------------------------

  void give_kernels() {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < flow_.nodes.size(); ++i) {
      study_node& n = flow_.nodes[i];
      if (n.what == node_kind::source || n.what == node_kind::sink) continue;
      // Without a kernel of its own: that of the node whose tiles it takes in l0, or one called as it is itself.
      const auto joined = std::ranges::find_if(
          n.inputs, [&](const study_node::input& in) { return in.through == node_tier::l0 && before(in).kernel >= 0; });
      const bool joins = joined != n.inputs.end();
      const std::string wanted =
          text(i, "kernel", joins ? names[static_cast<std::size_t>(before(*joined).kernel)] : n.name);
      const auto found = std::ranges::find(names, wanted);
      n.kernel = static_cast<int>(found - names.begin());
      const bool beside = text(i, "begins") == "beside";
      if (found == names.end()) {
        if (beside && names.empty()) fail(n, "begins", "there is no kernel before it");
        names.push_back(wanted);
        flow_.beside.push_back(beside);
      } else if (find(i, "begins") != nullptr) {
        fail(n, "begins", "the first node of kernel " + wanted + " says when it begins");
      }
    }
  }

  void check_kernels(const study_node& n) const {
    for (const study_node::input& in : n.inputs) {
      const study_node& from = before(in);
      if (from.kernel < 0 || n.kernel < 0) continue;
      if (n.kernel < from.kernel)
        fail(n, "kernel", "its kernel begins before that of " + from.name + ", whose tiles it takes");
      if (in.through == node_tier::l0 && n.kernel != from.kernel)
        fail(n, "through", "tiles stay in l0 only within a kernel, and " + from.name + " is in another one");
      if (in.through == node_tier::l2 && n.syncs == study_node::sync::kernel && n.kernel == from.kernel)
        fail(n, "sync",
             "one sync between two kernels needs two; take sync = \"tile\", or another kernel than that of " +
                 from.name);
    }
  }

  const configuration& from_;
  study_scenario& scenario_;
  study_flow& flow_;
};

constexpr std::uint64_t most_tiles_of_share = 1'000'000;

constexpr std::array<const char*, 18> useless_beside_nodes{
    "collective", "counts",          "unit",           "root",
    "slices",     "slices_per_step", "chunk_bytes",    "payload",
    "compute",    "streams",         "overlap",        "skew_spread",
    "any_order",  "through_scratch", "compute_blocks", "compute_dma_bytes",
    "contiguous", "performed_by"};

}  // namespace

std::string study_node::at(std::string_view key) const {
  const auto found = places.find(key);
  return (found == places.end() ? place : found->second) + ": " + name + ": " +
         (key.empty() ? std::string{} : std::string{key} + ": ");
}

const study_node::input* study_node::exchanged() const {
  const auto found = std::ranges::find(inputs, tier::l2, &input::through);
  return what != kind::work || found == inputs.end() ? nullptr : &*found;
}

const study_node& study_flow::maker_of(const study_node& n) const {
  const study_node* at = &n;
  while (at->what == study_node::kind::work && at->exchanges == study_node::exchange::none)
    at = &node(at->inputs.front().from);
  return *at;
}

bool study_flow::tile_by_tile(const study_node& n) const {
  const study_node& maker = maker_of(n);
  return maker.what == study_node::kind::source || (maker.what == study_node::kind::collective && maker.parts > 0) ||
         (maker.what == study_node::kind::work && maker.syncs == study_node::sync::tile);
}

/// A share's tiles always come by their numbers.
bool study_flow::same_order(const study_node& a, const study_node& b) const {
  if (!a.whole && !b.whole) return true;
  const auto begins_behind_own = [&](const study_node& n) { return maker_of(n).what == study_node::kind::source; };
  return tile_by_tile(a) == tile_by_tile(b) && begins_behind_own(a) == begins_behind_own(b);
}

std::uint64_t study_flow::least_tiles_of(std::uint64_t share_bytes) const {
  const auto of_all = static_cast<std::uint64_t>(cores);
  const std::uint64_t small_enough = std::max<std::uint64_t>(1, (share_bytes + tile_bytes - 1) / tile_bytes);
  return (small_enough + of_all - 1) / of_all * of_all;
}

int study_flow::tiles_of(std::uint64_t share_bytes) const {
  auto unit = static_cast<std::uint64_t>(cores);
  for (const study_node& n : nodes) {
    unit = std::lcm(unit, static_cast<std::uint64_t>(std::max(1, n.parts)));
    if (unit > most_tiles_of_share)
      throw error(errc::bad_config, "a share has to be cut into more than " + std::to_string(most_tiles_of_share) +
                                        " tiles, so that each part of every collective is whole tiles (parts of " +
                                        n.name +
                                        " and of the nodes before it); take numbers of parts with common factors");
  }
  const std::uint64_t units = std::max<std::uint64_t>(1, (least_tiles_of(share_bytes) + unit - 1) / unit);
  if (units > most_tiles_of_share / unit)
    throw error(errc::bad_config, "a share of " + bytes_text(share_bytes) + " has more than " +
                                      std::to_string(most_tiles_of_share) + " tiles of " + bytes_text(tile_bytes) +
                                      "; take larger ones (study.flow.tile)");
  return static_cast<int>(units * unit);
}

void read_flow(const configuration& from, study_scenario& s) {
  if (from.nodes().empty()) {
    // A dump says the defaults, too.
    const configuration usual;
    for (const auto& [key, entry] : from.under("study.flow"))
      if (entry.value != usual.at("study.flow." + key).value)
        throw error(errc::bad_config, place_of(entry.origin) + ": study.flow." + key +
                                          " would do nothing: the study has no flow; say its nodes, [[study.node]]");
    return;
  }
  if (!from.jobs().empty())
    throw error(errc::bad_config, place_of(from.origin_of_node(0)) + ": a study has jobs or a flow, not both");
  constexpr const char* why = "the study has a flow, whose nodes say what is performed";
  refuse_keys(from, useless_beside_nodes, why);
  for (const auto& [rank, entry] : from.under("study.skew"))
    throw error(errc::bad_config, place_of(entry.origin) + ": study.skew." + rank + ": " + why);
  flow_reader{from, s}.read();
}

}  // namespace troupe
