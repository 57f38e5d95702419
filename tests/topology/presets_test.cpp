// SPDX-License-Identifier: Apache-2.0
#include "topology/presets/presets.hpp"

#include "memory/error.hpp"
#include "topology/machine/hardware.hpp"

#include <doctest/doctest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

using namespace troupe;
using names = std::vector<std::string>;

namespace {

hardware build(const std::string& preset, preset_request wanted) { return build_preset(preset, wanted); }
hardware of_layout(const std::string& preset, const std::string& layout) {
  preset_request wanted;
  wanted.layout = layout;
  return build(preset, wanted);
}
hardware of_structure(const std::string& preset, std::vector<std::pair<std::string, std::string>> structure) {
  preset_request wanted;
  wanted.structure = std::move(structure);
  return build(preset, wanted);
}

names way(const hardware& h, int from, int to, int channel = 0) {
  std::vector<element_index> elements;
  h.route(from, to, channel, elements);
  names list;
  for (const element_index e : elements) list.push_back(h.elements.at(static_cast<std::size_t>(e)).name);
  return list;
}

/// Every class tells its source, every way is made of elements that exist, names are unique, and every constant can be set to
/// itself.
void check_well_formed(hardware h) {
  CAPTURE(h.name);
  CAPTURE(h.ranks);
  CHECK_FALSE(h.about.empty());
  CHECK(h.arrangement.size() == h.ranks);
  for (const element_class& c : h.classes) {
    CAPTURE(c.name);
    CHECK_FALSE(c.source.empty());
  }
  for (const protocol_costs& p : h.protocols) CHECK_FALSE(p.source.empty());
  std::set<std::string> known;
  for (const hardware_element& e : h.elements) CHECK(known.insert(e.name).second);
  const int stride = h.ranks > 64 ? 7 : 1;
  std::set<std::string> used;
  for (int a = 0; a < h.ranks; a += stride)
    for (int b = 0; b < h.ranks; b += stride) {
      if (a == b) continue;
      const names there = way(h, a, b);
      CHECK_FALSE(there.empty());
      CHECK(there.size() == way(h, b, a).size());
      CHECK(std::set<std::string>(there.begin(), there.end()).size() == there.size());
      CHECK(h.time_alone(a, b, 0, 1 << 20) > h.time_alone(a, b, 0, 1 << 10));
    }
  for (const auto& setting : h.settings()) {
    CAPTURE(setting.first);
    CHECK_NOTHROW(h.set(setting.first, setting.second));
  }
  h.validate();
}

}  // namespace

TEST_CASE("presets are well-formed as they are") {
  std::set<std::string> seen;
  for (const preset& p : all_presets()) {
    CHECK(seen.insert(std::string{p.name}).second);
    CHECK_FALSE(p.summary.empty());
    check_well_formed(build_preset(p.name, {}));
  }
  for (const char* name : {"sunway_card", "gh200_16", "dgx_h100", "tianhe_32", "fat_tree"})
    CHECK(seen.count(name) == 1);
}

TEST_CASE("presets are well-formed in other sizes") {
  for (const char* layout : {"1x2", "1x4", "16x1", "2x3", "64x4"}) check_well_formed(of_layout("gh200_16", layout));
  for (const char* layout : {"8", "4x8"}) check_well_formed(of_layout("dgx_h100", layout));
  for (const char* groups : {"2", "3", "4", "5", "16"}) {
    check_well_formed(of_structure("sunway_card", {{"core_groups", groups}}));
    check_well_formed(of_structure("sunway_card", {{"core_groups", groups}, {"host", "1"}}));
  }
  for (const char* hosts : {"1", "2", "9", "128"})
    for (const char* over : {"1", "3"})
      check_well_formed(of_structure("fat_tree", {{"hosts", hosts}, {"oversubscription", over}}));
  for (const char* offload : {"0", "1"}) check_well_formed(of_structure("tianhe_32", {{"offload", offload}}));
}

TEST_CASE("sunway_card: messages go hop by hop, the shorter way round") {
  const hardware h = build("sunway_card", {});
  CHECK(way(h, 0, 1) == names{"dma 0", "port 0 out", "ring 0→1", "port 1 in", "dma 1"});
  CHECK(way(h, 1, 0) == names{"dma 1", "port 1 out", "ring 1→0", "port 0 in", "dma 0"});
  CHECK(way(h, 3, 0) == names{"dma 3", "port 3 out", "ring 3→0", "port 0 in", "dma 0"});
  CHECK(way(h, 0, 3) == names{"dma 0", "port 0 out", "ring 0→3", "port 3 in", "dma 3"});
  std::set<std::string> segments;  // four messages to the opposite core group: two segments each, none shared
  for (int r = 0; r < 4; ++r)
    for (const std::string& element : way(h, r, (r + 2) % 4))
      if (element.starts_with("ring")) CHECK(segments.insert(element).second);
  CHECK(segments.size() == 8);
  const hardware two = of_structure("sunway_card", {{"core_groups", "2"}});
  CHECK(way(two, 0, 1) == names{"dma 0", "port 0 out", "ring 0→1", "port 1 in", "dma 1"});
  CHECK(way(two, 1, 0) == names{"dma 1", "port 1 out", "ring 1→0", "port 0 in", "dma 0"});
}

TEST_CASE("sunway_card: the host reaches every core group through the one PCIe, and L2 too") {
  const hardware h = of_structure("sunway_card", {{"host", "1"}});
  CHECK(h.ranks == 5);
  for (int r = 0; r < 4; ++r) {
    CHECK(way(h, 4, r) == names{"pcie down", "dma " + std::to_string(r)});
    CHECK(way(h, r, 4) == names{"dma " + std::to_string(r), "pcie up"});
  }
  std::vector<element_index> at;
  h.access(4, {1, true}, true, at);
  REQUIRE(at.size() == 1);
  CHECK(h.elements[static_cast<std::size_t>(at[0])].name == "pcie down");
}

TEST_CASE(
    "sunway_card: an access to L2 passes the ring to the share that it is for, hop by hop, and none to the own share") {
  const hardware h = of_structure("sunway_card", {});
  const auto access = [&](int rank, int home, bool writes) {
    std::vector<element_index> at;
    h.access(rank, {home, true}, writes, at);
    names found;
    for (const element_index e : at) found.push_back(h.elements[static_cast<std::size_t>(e)].name);
    return found;
  };
  CHECK(access(2, 2, true) == names{"dma 2"});
  CHECK(access(2, 2, false) == names{"dma 2"});
  CHECK(access(2, 3, false) == names{"port 3 out", "ring 3→2", "port 2 in", "dma 2"});
  CHECK(access(0, 3, true) == names{"dma 0", "port 0 out", "ring 0→3", "port 3 in"});
  std::map<std::string, int> passed;  // in a rotation nobody is behind another on the ring
  for (int r = 0; r < 4; ++r)
    for (const std::string& element : access(r, (r + 2) % 4, false)) ++passed[element];
  for (const auto& [element, times] : passed) CHECK(times == 1);
}

TEST_CASE("gh200_16 and dgx_h100: NVLink inside a server, NICs between") {
  const hardware h = build("gh200_16", {});
  CHECK(h.ranks == 64);
  CHECK(way(h, 0, 3) == names{"nvlink 0.0 up", "nvlink 0.3 down"});
  CHECK(way(h, 3, 4) == names{"nic 0.3 out", "fabric to 1.0", "nic 1.0 in"});
  CHECK(build("dgx_h100", {}).ranks == 8);
  preset_request twice;
  twice.ranks = 16;
  CHECK(build("dgx_h100", twice).arrangement.servers == 2);
  twice.ranks = 12;
  CHECK_THROWS_AS(build("dgx_h100", twice), error);
  CHECK_THROWS_AS(of_layout("gh200_16", "2x2x2"), error);
}

TEST_CASE("groups of servers are for choreographies; which elements a message passes is up to the machine") {
  struct layouts {
    const char *name, *deep, *plain;
  };
  for (const layouts& of : {layouts{"dgx_h100", "2x2x4x1", "4x4"},
                            {"gh200_16", "2x3x2x1", "6x2"},
                            {"ascend_a2", "2x2x2x1", "4x2"},
                            {"machine", "2x2x2x2", "4x2x2"},
                            {"machine", "2+1x2x1", "3x2"}}) {
    CAPTURE(of.name);
    const hardware pods = of_layout(of.name, of.deep), servers = of_layout(of.name, of.plain);
    check_well_formed(pods);
    CHECK(pods.arrangement.outer == layout::parse(of.deep).outer);
    REQUIRE(pods.ranks == servers.ranks);
    for (int a = 0; a < pods.ranks; ++a)
      for (int b = 0; b < pods.ranks; ++b)
        if (a != b) CHECK(way(pods, a, b) == way(servers, a, b));
  }
  // A fat tree has levels of its own: hosts of a leaf meet there, others above.
  const hardware tree = of_layout("fat_tree", "4x8x1x1");
  check_well_formed(tree);
  CHECK(tree.arrangement == layout::parse("4x8x1x1"));
  CHECK(way(tree, 0, 7).size() == 2);
  CHECK(way(tree, 7, 8).size() == 4);
  for (const char* wrong : {"4x8", "4x8x1", "2x2x4x2", "8"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(of_layout("fat_tree", wrong), error);
  }
  preset_request other{32, "2x8x1x1", {}};
  CHECK_THROWS_AS(build("fat_tree", other), error);
}

TEST_CASE("fat_tree: within a leaf two ports, else four; an oversubscribed leaf has fewer spines; too many hosts are "
          "refused") {
  const hardware h = of_structure("fat_tree", {{"hosts", "32"}, {"radix", "8"}});  // 8 leaves × 4 hosts, 4 spines
  CHECK(way(h, 0, 3) == names{"up 0", "down 3"});
  CHECK(way(h, 0, 4) == names{"up 0", "leaf 0 → spine 0", "spine 0 → leaf 1", "down 4"});
  CHECK(way(h, 0, 4, 1) == names{"up 0", "leaf 0 → spine 1", "spine 1 → leaf 1", "down 4"});
  const hardware thin =
      of_structure("fat_tree", {{"hosts", "12"}, {"radix", "8"}, {"oversubscription", "3"}});  // 6 hosts, 2 spines
  CHECK(way(thin, 0, 6) == way(thin, 0, 6, 2));
  CHECK(way(thin, 0, 6) != way(thin, 0, 6, 1));
  CHECK_THROWS_AS(of_structure("fat_tree", {{"hosts", "33"}, {"radix", "8"}}), error);
  CHECK_THROWS_AS(of_structure("fat_tree", {{"radix", "4"}, {"oversubscription", "4"}}), error);
}
