// SPDX-License-Identifier: Apache-2.0
#include "engine/planning/hccl_selection.hpp"

#include <algorithm>
#include <array>

#include "engine/config/configuration.hpp"

namespace troupe {

namespace {

/// A level of links between servers and one inside, with partners of the same index everywhere.
bool has_two_levels(const hccl_case& of) {
  return of.places.server_count() > 1 && of.places.uniform() && of.places.size() > of.places.server_count();
}

bool aiv_conditions(const hccl_case& of) {
  return of.aiv && of.device != hccl_device::ascend_310p && of.places.server_count() > 1 && of.bytes < hccl_small;
}

bool supports_direct_full_mesh(const hccl_case& of) {
  return of.places.server_count() == 1 && of.ccl_buffer >= of.bytes && !of.aicpu_unfolded &&
         of.device != hccl_device::ascend_310p;
}

/// Why rule 7 matches; empty: it does not.
std::string why_single_level(const hccl_case& of) {
  if (of.super_pod) return "inside a super-pod";
  if (of.one_level) return "a single level is forced";
  if (of.places.server_count() == 1) return "all ranks are on one plane";
  if (!of.places.uniform()) return "the servers have different numbers of cards";
  return {};
}

/// A walk down a tree: every question and its answer, until one is yes; and what becomes of the algorithms that the user forces for levels.
class walk {
public:
  explicit walk(const hccl_case& of) : forced_{{{of.level0}, {of.level1}}} {}

  /// The rule's answer, told.
  bool asks(int rule, std::string_view about, bool yes) {
    rule_ = rule;
    path_.push_back("rule " + std::to_string(rule) + ", " + std::string{about} + ": " + (yes ? "yes" : "no"));
    return yes;
  }
  /// A rule that asks either heeds the answer or says why not.
  hccl_level forced(std::size_t level) {
    forced_[level].asked = true;
    return forced_[level].algorithm;
  }
  /// Nothing where nothing is forced.
  void ignores(std::size_t level, std::string_view why) { tells(level, "is ignored: ", why); }
  void keeps(std::size_t level, std::string_view why) { tells(level, "changes nothing: ", why); }
  hccl_choice ends(hccl_algorithm algorithm, std::string why, const char* choreography) {
    for (std::size_t level = 0; level < forced_.size(); ++level)
      if (!forced_[level].asked) ignores(level, "rule " + std::to_string(rule_) + " decides without it");
    hccl_choice c;
    c.algorithm = algorithm;
    c.rule = rule_;
    c.why = std::move(why);
    c.choreography = choreography;
    c.path = std::move(path_);
    c.path.push_back(std::string{name(algorithm)} + ", performed by " + c.choreography);
    return c;
  }

private:
  struct wish {
    hccl_level algorithm = hccl_level::na;
    bool asked = false;
  };

  void tells(std::size_t level, const char* what, std::string_view why) {
    const hccl_level algorithm = forced(level);
    if (algorithm == hccl_level::na) return;
    path_.push_back("level" + std::to_string(level) + " = " + std::string{name(algorithm)} + ' ' + what +
                    std::string{why});
  }

  int rule_ = 0;
  std::vector<std::string> path_;
  std::array<wish, 2> forced_;
};

constexpr std::size_t inside_servers = 0, between_servers = 1;
constexpr std::string_view one_level_of_all = "all ranks are one level, which goes by level1";

/// An all_to_all's pieces of a level are exchanged pairwise, unless a mesh is forced there. Of others there is none: HCCL ignores them with a warning.
bool mesh_is_forced(std::size_t level, walk& way) {
  const hccl_level forced = way.forced(level);
  if (forced == hccl_level::pairwise) way.keeps(level, "the exchange is pairwise anyway");
  else if (forced != hccl_level::mesh) way.ignores(level, "there is no such all_to_all");
  return forced == hccl_level::mesh;
}

hccl_choice first_match(const hccl_case& of) {
  using enum hccl_algorithm;
  walk way{of};
  if (way.asks(1, "vector cores (AIV), several servers, less than " + bytes_text(hccl_small), aiv_conditions(of))) {
    const std::string why = "vector cores, several servers, less than " + bytes_text(hccl_small);
    if (of.device == hccl_device::ascend_910b) return way.ends(aiv_staged, why, "staged_pairwise");
    return way.ends(aiv_mesh, why, "one_shot");
  }
  if (way.asks(2, "one rank", of.places.size() == 1)) return way.ends(single, "one rank", "pairwise");
  if (way.asks(3, "310P3 duo", of.device == hccl_device::ascend_310p))
    return way.ends(for_310p, "310P3 duo", "pairwise");
  const bool large = of.bytes >= hccl_pipeline_least && has_two_levels(of);
  const std::string least = bytes_text(hccl_pipeline_least) + " or more";
  if (way.asks(4, "910_93 in a super-pod, two levels, " + least,
               large && of.device == hccl_device::ascend_910_93 && of.super_pod))
    return way.ends(two_level_pipeline, "910_93 in a super-pod, " + least, "hierarchical_pipeline");
  if (way.asks(5, "one server, the data fits in the CCL buffer, not unfolded", supports_direct_full_mesh(of)))
    return way.ends(direct_full_mesh, "a full mesh, and the data fits in the CCL buffer", "direct_full_mesh");
  if (way.asks(6, "two levels, data and CCL buffer of " + least, large && of.ccl_buffer >= hccl_pipeline_least))
    return way.ends(two_level_pipeline, "two levels, data and CCL buffer of " + least, "hierarchical_pipeline");
  std::string why = why_single_level(of);
  // Resources have decided; what is left is the user's (spec 4: "hardware > topology > size > resources > user override").
  if (way.asks(7, "a single level", !why.empty())) {
    const bool one_server = of.places.server_count() == 1;
    if (one_server) way.ignores(between_servers, "there is one server");
    else way.ignores(inside_servers, one_level_of_all);
    if (mesh_is_forced(one_server ? inside_servers : between_servers, way))
      return way.ends(full_mesh, why + ", mesh is forced", "direct_full_mesh");
    return way.ends(full_mesh, std::move(why), "pairwise");
  }
  way.asks(8, "otherwise", true);
  if (mesh_is_forced(between_servers, way)) way.ignores(between_servers, "between servers Staged is pairwise");
  if (mesh_is_forced(inside_servers, way))
    return way.ends(staged, "several servers, a mesh inside is forced", "hierarchical");
  return way.ends(staged, "several servers, and no rule before", "staged_pairwise");
}

/// One algorithm for all ranks. The mesh is DirectFullMesh's.
const char* flat_choreography(hccl_level algorithm) {
  switch (algorithm) {
    case hccl_level::mesh: return "direct_full_mesh";
    case hccl_level::nhr: return "nhr";
    case hccl_level::nb: return "nb";
    case hccl_level::hd: return "halving_doubling";
    case hccl_level::pairwise: return "pairwise";
    case hccl_level::na:
    case hccl_level::ring: break;
  }
  return "ring";
}

const char* two_level_choreography(hccl_level between) {
  switch (between) {
    case hccl_level::nhr: return "hierarchical_nhr";
    case hccl_level::nb: return "hierarchical_nb";
    case hccl_level::hd: return "hierarchical_hd";
    case hccl_level::na:
    case hccl_level::ring:
    case hccl_level::pairwise:
    case hccl_level::mesh: break;
  }
  return "hierarchical";
}

/// The forced algorithm, if HCCL has it. Pairwise is for all_to_all and reduce_scatter, and HCCL has no mesh between servers (SetAlgoLevel1).
hccl_level allowed(std::size_t level, const hccl_case& of, walk& way) {
  const hccl_level forced = way.forced(level);
  const bool inside = level == inside_servers;
  const bool known = forced != hccl_level::pairwise || (inside && of.what == collective::reduce_scatter);
  if (known && (inside || forced != hccl_level::mesh)) return forced;
  way.ignores(level, "HCCL has no such " + std::string{name(of.what)} + (inside ? "" : " between servers"));
  return hccl_level::na;
}

/// GetDefaultAlgoLevel1V1: HCCL_INTER_SERVER_RING_ALGO_MAX_SUPPORT_SERVER_NUM is 8.
hccl_level algorithm_between(const hccl_case& of, walk& way) {
  const hccl_level forced = allowed(between_servers, of, way);
  if (way.asks(5, "level1 is forced", forced != hccl_level::na)) return forced;
  const int servers = of.places.server_count();
  if (!way.asks(6, "8 servers or more, or a power of two of them", servers >= 8 || (servers & (servers - 1)) == 0))
    return hccl_level::ring;
  return way.asks(7, "910_93", of.device == hccl_device::ascend_910_93) ? hccl_level::nhr : hccl_level::hd;
}

hccl_choice by_levels(const hccl_case& of) {
  using enum hccl_algorithm;
  walk way{of};
  if (way.asks(1, "one rank", of.places.size() == 1)) return way.ends(single, "one rank", "ring");
  if (way.asks(2, "servers of different sizes", !of.places.uniform()))
    return way.ends(one_level, "servers of different sizes: one ring of all", "ring");
  const int servers = of.places.server_count();
  if (way.asks(3, "one server", servers == 1)) {
    way.ignores(between_servers, "there is one server");
    const auto forced = allowed(inside_servers, of, way);
    const bool mesh = of.device == hccl_device::ascend_910b;
    const auto inside = forced != hccl_level::na ? forced : mesh ? hccl_level::mesh : hccl_level::ring;
    return way.ends(one_level,
                    forced != hccl_level::na ? "level0 is forced"
                    : mesh                   ? "a full mesh of links"
                                             : "no full mesh of links",
                    flat_choreography(inside));
  }
  const bool flat =
      way.asks(4, "one rank a server, or a single level is forced", of.places.size() == servers || of.one_level);
  if (flat) way.ignores(inside_servers, one_level_of_all);
  const hccl_level between = algorithm_between(of, way);
  const std::string why = std::string{name(between)} + " between servers";
  if (flat) return way.ends(one_level, why, flat_choreography(between));
  if (const auto inside = allowed(inside_servers, of, way); inside == hccl_level::mesh)
    way.keeps(inside_servers, "inside several servers there is a mesh anyway");
  else if (inside != hccl_level::na) way.ignores(inside_servers, "inside several servers there is only the mesh");
  return way.ends(two_levels, "a mesh inside, " + why, two_level_choreography(between));
}

}  // namespace

std::string_view name(hccl_device device) noexcept {
  constexpr std::array<std::string_view, 3> names{"910b", "910_93", "310p"};
  return names[std::min(static_cast<std::size_t>(device), names.size() - 1)];
}

std::string_view name(hccl_algorithm algorithm) noexcept {
  constexpr std::array<std::string_view, 11> names{"none",       "staged AIV + RDMA", "AIV mesh",       "Single",
                                                   "310P's own", "TwoLevelPipeline",  "DirectFullMesh", "FullMesh",
                                                   "Staged",     "one level",         "two levels"};
  return names[std::min(static_cast<std::size_t>(algorithm), names.size() - 1)];
}

std::string_view name(hccl_level algorithm) noexcept {
  constexpr std::array<std::string_view, 7> names{"na", "ring", "pairwise", "mesh", "nhr", "nb", "hd"};
  return names[std::min(static_cast<std::size_t>(algorithm), names.size() - 1)];
}

std::optional<hccl_device> parse_hccl_device(std::string_view text) noexcept {
  for (const auto device : {hccl_device::ascend_910b, hccl_device::ascend_910_93, hccl_device::ascend_310p})
    if (text == name(device)) return device;
  return std::nullopt;
}

std::optional<hccl_level> parse_hccl_level(std::string_view text) noexcept {
  using enum hccl_level;
  for (const auto level : {na, ring, pairwise, mesh, nhr, nb, hd})
    if (text == name(level)) return level;
  return std::nullopt;
}

std::uint64_t direct_full_mesh_block(std::uint64_t ccl_buffer, int streams) {
  constexpr std::uint64_t alignment = 16u << 10;
  const std::uint64_t share = ccl_buffer / (2 * static_cast<std::uint64_t>(std::max(streams, 1)));
  return std::max(share / alignment * alignment, alignment);
}

hccl_choice select_all_to_all(const hccl_case& what, int streams) {
  hccl_choice c = first_match(what);
  const bool mesh = c.choreography == "direct_full_mesh";
  const std::string data = bytes_text(what.bytes), buffer = bytes_text(what.ccl_buffer);
  std::string told = c.algorithm == hccl_algorithm::single
                         ? "no choice of BCopy or ZCopy: one rank copies"
                         : "no choice of BCopy or ZCopy: only pairwise and direct_full_mesh have both";
  if (mesh || (c.choreography == "pairwise" && c.algorithm != hccl_algorithm::single)) {
    const bool too_large = what.bytes > what.ccl_buffer, by_size = mesh && what.bytes > hccl_pipeline_least;
    c.through_scratch = too_large || by_size;
    if (mesh) c.chunk_bytes = direct_full_mesh_block(what.ccl_buffer, streams);
    else if (too_large) c.chunk_bytes = what.ccl_buffer;
    told = too_large ? "BCopy, through scratch memory: " + data + " are more than the CCL buffer of " + buffer
           : by_size ? "BCopy, through scratch memory: " + data + " are more than " + bytes_text(hccl_pipeline_least)
                     : "ZCopy, between user buffers: " + data + " fit in the CCL buffer of " + buffer;
  }
  c.path.insert(c.path.end() - 1, std::move(told));
  return c;
}

bool has_hccl_selection(collective what) noexcept {
  using enum collective;
  return what == all_to_all || what == all_reduce || what == all_gather || what == reduce_scatter;
}

hccl_choice select_as_hccl(const hccl_case& what, int streams) {
  if (what.what == collective::all_to_all) return select_all_to_all(what, streams);
  if (has_hccl_selection(what.what)) return by_levels(what);
  hccl_choice none;
  none.algorithm = hccl_algorithm::none;
  none.rule = 0;
  none.why = "there is no selection for " + std::string{name(what.what)};
  none.path.push_back(none.why);
  return none;
}

}  // namespace troupe
