// SPDX-License-Identifier: Apache-2.0
// Machines of one's own: engine/tools/study/machine_file, expression.
#include "engine/tools/study/machine_file.hpp"

#include <algorithm>
#include <array>
#include <random>

#include "engine/tools/study/expression.hpp"
#include "engine/tools/study/study.hpp"
#include "memory/error.hpp"
#include "tests/engine/program.hpp"
#include "tests/seed.hpp"

namespace machine_file_test {

using namespace troupe;

namespace {

hardware own(const std::string& file, std::vector<std::pair<std::string, std::string>> structure = {}, int ranks = 0) {
  preset_request wanted;
  wanted.structure = std::move(structure);
  wanted.ranks = ranks;
  return load_machine(TROUPE_SOURCE_DIR "/config/machines/" + file, wanted);
}

std::vector<std::string> way_of(const hardware& h, int from, int to, int channel = 0) {
  std::vector<element_index> way;
  h.route(from, to, channel, way);
  std::vector<std::string> names;
  for (const element_index e : way) names.push_back(h.elements[static_cast<std::size_t>(e)].name);
  return names;
}

/// Which elements reduce, and by which ways each rank reaches them.
std::vector<std::string> switches_of(const hardware& h) {
  std::vector<std::string> all;
  for (std::size_t s = 0; s < h.switches.size(); ++s) {
    const reducing_switch& one = h.switches[s];
    all.push_back("server " + std::to_string(one.server) + " in " +
                  (one.unit == no_element ? "none" : h.elements[static_cast<std::size_t>(one.unit)].name));
    for (int r = 0; r < h.ranks; ++r)
      for (const bool towards : {true, false}) {
        if (one.server >= 0 && h.arrangement.server_of(r) != one.server) continue;
        std::vector<element_index> way;
        h.switch_route(r, static_cast<int>(s), towards, way);
        for (const element_index e : way)
          all.push_back(std::to_string(r) + (towards ? " to it " : " from it ") +
                        h.elements[static_cast<std::size_t>(e)].name);
      }
  }
  return all;
}

void check_same(const hardware& a, const hardware& b) {
  CHECK(a.name == b.name);
  CHECK(a.about == b.about);
  REQUIRE(a.ranks == b.ranks);
  CHECK(a.arrangement.to_string() == b.arrangement.to_string());
  auto of_a = a.settings(), of_b = b.settings();
  std::sort(of_a.begin(), of_a.end());
  std::sort(of_b.begin(), of_b.end());
  CHECK(of_a == of_b);
  REQUIRE(a.elements.size() == b.elements.size());
  // A file may list them in another order.
  const auto told = [](const hardware& h) {
    std::vector<std::string> all;
    for (std::size_t e = 0; e < h.elements.size(); ++e) {
      const hardware_element& one = h.elements[e];
      const element_class& of = h.class_of(static_cast<element_index>(e));
      all.push_back(one.name + ", " + of.name + ", " + std::string{name(of.role)} + ", of " + std::to_string(one.rank) +
                    ", beside " +
                    (one.twin == no_element ? "none" : h.elements[static_cast<std::size_t>(one.twin)].name));
    }
    std::sort(all.begin(), all.end());
    return all;
  };
  CHECK(told(a) == told(b));
  for (int from = 0; from < a.ranks; ++from)
    for (int to = 0; to < a.ranks; ++to)
      for (const int channel : {0, 1, 5})
        if (from != to) CHECK(way_of(a, from, to, channel) == way_of(b, from, to, channel));
  CHECK(switches_of(a) == switches_of(b));
}

void refused(const std::string& toml, const std::vector<std::string>& words, const preset_request& wanted = {}) {
  try {
    static_cast<void>(read_machine(toml, "m.toml", wanted));
    FAIL("accepted: " << toml);
  } catch (const error& why) {
    CHECK(why.code_value() == errc::bad_config);
    for (const std::string& w : words)
      CHECK_MESSAGE(std::string{why.what()}.find(w) != std::string::npos, std::string{why.what()});
  }
}

}  // namespace

TEST_CASE("machine file: a preset that is written as one is the same machine") {
  for (const int ranks : {1, 2, 7, 8})
    check_same(own("flat.toml", {}, ranks), build_preset("flat", {.ranks = ranks, .layout = {}, .structure = {}}));
  check_same(own("dgx_h100.toml"), build_preset("dgx_h100", {}));
  check_same(own("dgx_h100.toml", {{"servers", "3"}}),
             build_preset("dgx_h100", {.ranks = 0, .layout = "3x8", .structure = {}}));
  check_same(own("gh200_16.toml"), build_preset("gh200_16", {}));
  check_same(own("gh200_16.toml", {{"nodes", "3"}}),
             build_preset("gh200_16", {.ranks = 0, .layout = "3x4", .structure = {}}));
  check_same(own("ascend_a2.toml"), build_preset("ascend_a2", {}));
  check_same(own("ascend_a2.toml", {{"servers", "3"}, {"cards", "5"}}),
             build_preset("ascend_a2", {.ranks = 0, .layout = "3x5", .structure = {}}));
  check_same(own("fat_tree.toml"), build_preset("fat_tree", {}));
  for (const auto& [ranks, radix, over] : {std::array{8, 4, 1}, std::array{19, 8, 3}, std::array{5, 16, 1}}) {
    const std::vector<std::pair<std::string, std::string>> structure{{"radix", std::to_string(radix)},
                                                                     {"oversubscription", std::to_string(over)}};
    check_same(own("fat_tree.toml", structure, ranks),
               build_preset("fat_tree", {.ranks = ranks, .layout = {}, .structure = structure}));
  }

  // And takes the same time, event by event.
  const auto time = [](const std::string& what, const std::string& preset) {
    configuration c;
    c.add_text("[study]\nsizes = \"1M\"\n" + what + preset, "s.toml");
    const study_result r = run_study(read_study(c));
    return std::pair{r.rows.at(0).outcome.end_ps, r.rows.at(0).outcome.trace};
  };
  for (const std::string what : {"collective = \"all_to_all\"\nchoreography = \"pairwise\"\n",
                                 "collective = \"all_reduce\"\nchoreography = \"nvls_tree\"\n"})
    CHECK(time(what, "preset = \"" TROUPE_SOURCE_DIR "/config/machines/dgx_h100.toml\"\nstructure.servers = 2\n") ==
          time(what, "preset = \"dgx_h100\"\nlayout = \"2x8\"\n"));
}

TEST_CASE("machine file: switches that reduce, of servers and of the network") {
  const std::string servers =
      "ranks = 4\nlayout = \"2x2\"\n[class.w]\nlatency = \"1us\"\n[[element]]\nfor = { r = 4 }\nclass = \"w\"\n"
      "name = \"up {r}\"\npair = \"down {r}\"\n[[route]]\nvia = [\"up {from}\", \"down {to}\"]\n";
  const std::string way = "up = [\"up {rank}\"]\ndown = [\"down {rank}\"]\n";
  const auto read = [&](const std::string& more, const std::string& places = "") {
    preset_request wanted;
    wanted.layout = places;
    return read_machine(servers + more, "m.toml", wanted);
  };
  CHECK(read("").arrangement.reduces == fabric_reduction::none);
  const hardware network = read("[[switch]]\n" + way);
  CHECK(network.arrangement.reduces == fabric_reduction::between);
  CHECK(switches_of(network).size() == 1 + 2 * 4);
  const hardware both = read("[[switch]]\n" + way + "[[switch]]\nfor = { s = 2 }\nserver = \"s\"\n" + way);
  CHECK(both.arrangement.reduces == fabric_reduction::both);
  CHECK(switches_of(both).size() == 3 + 2 * 4 + 2 * 4);
  // One server of two has such a switch: no choreography can count on it.
  CHECK(read("[[switch]]\nserver = \"1\"\n" + way).arrangement.reduces == fabric_reduction::none);
  // The layout decides, of what there is.
  CHECK(read("[[switch]]\n" + way, "2x2:none").arrangement.reduces == fabric_reduction::none);
  preset_request inside;
  inside.layout = "2x2:inside";
  refused(servers + "[[switch]]\n" + way,
          {"2x2x1:inside", "switches inside servers reduce", "[[switch]] for every server"}, inside);
  refused(servers + "[[switch]]\ndown = [\"down {rank}\"]\n", {"m.toml:12:", "a switch needs up"});
  refused(servers + "[[switch]]\n" + way + "[[switch]]\n" + way, {"two switches that reduce between servers"});
  refused(servers + "[[switch]]\nserver = \"2\"\n" + way, {"no server 2", "0 to 1"});
  refused(servers + "[[switch]]\nunit = \"u\"\n" + way, {"no element \"u\""});
  refused(servers + "[[switch]]\nup = [\"upp {rank}\"]\ndown = []\n",
          {"\"upp 0\"", "which rank 0's way to the switch passes"});
}

TEST_CASE("machine file: switches may be counted by the layout's servers") {
  const std::string text = R"(
ranks = 4
[class.w]
latency = "1us"
[[element]]
for = { r = "ranks" }
class = "w"
name = "up {r}"
pair = "down {r}"
[[route]]
via = ["up {from}", "down {to}"]
[[switch]]
for = { s = "servers" }
server = "s"
up = ["up {rank}"]
down = ["down {rank}"]
)";
  CHECK(read_machine(text, "m.toml", {}).switches.size() == 1);
  CHECK(read_machine(text, "m.toml", {.ranks = 0, .layout = "2x2", .structure = {}}).switches.size() == 2);
}

TEST_CASE("machine file: a torus goes the shortest way, along x first") {
  for (const std::pair<int, int>& size : {std::pair{4, 4}, {5, 3}, {2, 3}, {1, 6}, {1, 2}}) {
    const int x = size.first, y = size.second;
    const hardware h = own("torus.toml", {{"x", std::to_string(x)}, {"y", std::to_string(y)}});
    INFO(x << " x " << y);
    REQUIRE(h.ranks == x * y);
    const auto apart = [](int a, int b, int n) { return std::min((b - a + n) % n, (a - b + n) % n); };
    for (int from = 0; from < h.ranks; ++from)
      for (int to = 0; to < h.ranks; ++to) {
        if (from == to) continue;
        for (const int channel : {0, 1, 2}) {
          const auto way = way_of(h, from, to, channel);
          CHECK(static_cast<int>(way.size()) == apart(from % x, to % x, x) + apart(from / x, to / x, y));
          // From node to node without a gap.
          std::string at = "node " + std::to_string(from % x) + "." + std::to_string(from / x);
          bool turned = false;
          for (const std::string& link : way) {
            REQUIRE(link.starts_with(at + " - "));
            const std::string next = link.substr(at.size() + 3);
            const bool along_y = at.substr(0, at.find('.')) == next.substr(0, next.find('.'));
            if (channel == 0) CHECK((along_y || !turned));
            turned = turned || along_y;
            at = next;
          }
          CHECK(at == "node " + std::to_string(to % x) + "." + std::to_string(to / x));
        }
      }
  }
}

TEST_CASE("machine file: parameters whose product is the number of ranks are the sides of a torus") {
  CHECK(own("torus.toml").sides == std::vector{4, 4});
  CHECK(own("torus.toml", {{"x", "3"}, {"y", "5"}}).sides == std::vector{3, 5});
  CHECK(own("torus.toml", {{"x", "1"}, {"y", "6"}}).sides.empty());
  CHECK(own("flat.toml").sides.empty());
  CHECK(own("dragonfly.toml").sides.empty());
  CHECK(own("dgx_h100.toml", {{"servers", "2"}}).sides.empty());  // servers are drawn by themselves
  const std::string three =
      "ranks = \"b * c * a\"\n[parameters]\nb = 2\nlanes = 3\nc = 3\na = 4\n[class.wire]\nbandwidth = \"1GB/s\"\n"
      "[[link]]\nfor = { r = \"ranks\" }\nclass = \"wire\"\nfrom = \"node {r}\"\nto = \"middle\"\n"
      "[[rank]]\nfor = { r = \"ranks\" }\nat = \"node {r}\"\n";
  CHECK(read_machine(three, "three.toml", {}).sides == std::vector{2, 3, 4});
}

TEST_CASE("machine file: a dragonfly passes one long link at most, and all groups reach each other") {
  for (const int routers : {1, 2, 4}) {
    const hardware h = own("dragonfly.toml", {{"routers", std::to_string(routers)}});
    const int hosts = 2, of_group = routers * hosts;
    REQUIRE(h.ranks == (routers + 1) * of_group);
    for (int from = 0; from < h.ranks; ++from)
      for (int to = 0; to < h.ranks; ++to) {
        if (from == to) continue;
        std::vector<element_index> way;
        h.route(from, to, 0, way);
        int longs = 0, shorts = 0, ports = 0, inside = 0;
        for (const element_index e : way) {
          const std::string& c = h.class_of(e).name;
          longs += c == "long", shorts += c == "short", ports += c == "port", inside += c == "router";
        }
        CHECK(ports == 2);
        CHECK(longs == (from / of_group == to / of_group ? 0 : 1));
        CHECK(shorts <= 2);
        CHECK(inside == longs + shorts + 1);
      }
  }
}

TEST_CASE("machine file: what cannot be followed is said, with its place") {
  const std::string link = "[class.w]\nlatency = \"1us\"\n";
  refused("ranks = ", {"m.toml:1:"});
  refused("ranks = 2\nrnaks = 3\n", {"m.toml:2:", "did you mean ranks?"});
  refused("name = \"x\"\n", {"m.toml", "ranks is missing", "ranks = 16"});
  refused("", {"m.toml", "ranks is missing"});
  refused("ranks = 0\n", {"1 to"});
  refused("ranks = \"2 +\"\n", {"m.toml:1:", "ends too early"});
  refused("ranks = \"4 / 0\"\n", {"division by zero"});
  refused("ranks = \"((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((1\"\n", {"nested too deeply"});
  refused("ranks = 4\nlayout = \"2x3\"\n", {"m.toml:2:", "6 ranks", "the machine 4"});
  refused("ranks = 4\nlayout = \"2y3\"\n", {"m.toml:2:"});
  // Which layout it is that does not fit: the study's.
  refused("ranks = 4\nlayout = \"2x2\"\n", {"study.layout: the layout 2x3 has 6 ranks, the machine of m.toml 4"},
          {.ranks = 0, .layout = "2x3", .structure = {}});
  refused("ranks = 4\n[[route]]\nvia = []\n", {"study.layout: the layout 2x2", "write [[switch]]", "in m.toml"},
          {.ranks = 0, .layout = "2x2:both", .structure = {}});
  for (const std::string reserved : {"host", "protocol", "nics", "routing", "paths"})
    refused("ranks = 2\n[class." + reserved + "]\n",
            {"m.toml:2:", "\"" + reserved + "\" cannot", "host, protocol, nics, routing and paths are reserved"});
  refused("ranks = 2\n[class.\"a.b\"]\n", {"m.toml:2:", "no dot"});
  refused("ranks = 2\n", {"[[route]] or [[link]]"});
  refused("ranks = 2\n[class.w]\nlatecny = \"1us\"\n", {"m.toml:3:", "did you mean w.latency?"});
  refused("ranks = 2\n[class.w]\nlatency = \"1 parsec\"\n", {"m.toml:3:", "it must be a time"});
  refused("ranks = 2\n[class.w]\nrole = \"wire\"\n", {"m.toml:3:", "ring_segment"});
  refused("ranks = 2\n" + link + "[[element]]\nclass = \"v\"\nname = \"a\"\n", {"m.toml:5:", "[class.v]"});
  refused("ranks = 2\n" + link + "[[element]]\nclass = \"w\"\nfor = { i = 3 }\nname = \"a\"\n",
          {"two elements called \"a\""});
  refused("ranks = 2\n" + link + "[[element]]\nclass = \"w\"\nname = \"a {i}\"\n", {"m.toml:6:", "there is no i here"});
  refused("ranks = 2\n" + link + "[[element]]\nclass = \"w\"\nname = \"a {i\"\n", {"a } is missing"});
  refused("ranks = 2\n" + link + "[[element]]\nclass = \"w\"\nfor = { i = 5000000 }\nname = \"a {i}\"\n",
          {"m.toml:6:", "i counts to 5000000"});
  refused("ranks = 2\n" + link + "[[element]]\nclass = \"w\"\nname = \"a\"\nrank = \"2\"\n", {"ranks are 0 to 1"});
  refused("name = 5\nranks = 2\n", {"m.toml:1: name is 5, a number; it must be a text, in quotation marks"});
  refused("ranks = 2\nabout = true\n", {"m.toml:2: about is no text", "must be a text"});
  refused("ranks = 2\n[class.w]\nsource = 3\n", {"m.toml:3: source is 3"});
  refused("ranks = 2\n" + link + "[[element]]\nclass = \"w\"\nname = 7\n", {"m.toml:6: name is 7"});
  refused("ranks = 2\n" + link + "[[link]]\nclass = \"w\"\nfrom = 1\nto = \"b\"\n", {"m.toml:6: from is 1"});
  refused("ranks = 2\n[[route]]\nvia = [1]\n", {"m.toml:3: via is 1"});
  refused("ranks = 2\n[[route]]\nvia = [\"a\"]\n", {"m.toml:2:", "no element \"a\"", "rank 0's way to rank 1"});
  refused("ranks = 2\n[[route]]\nwhen = \"from > to\"\nvia = []\n", {"m.toml:2: no [[route]] is for rank 0 to rank 1"});
  refused("ranks = 2\n" + link + "[[element]]\nclass = \"w\"\nname = \"a\"\n[[route]]\nvia = [\"a\", \"a\"]\n",
          {"m.toml:7:", "rank 0's way to rank 1 passes the element \"a\" twice"});
  refused("ranks = 2\n" + link +
              "[[element]]\nclass = \"w\"\nname = \"a\"\n[[route]]\nvia = [\"a\"]\n[[switch]]\nup = [\"a\", "
              "\"a\"]\ndown = [\"a\"]\n",
          {"m.toml:9:", "rank 0's way to the switch passes the element \"a\" twice"});
  refused("ranks = 2\n" + link +
              "[[element]]\nclass = \"w\"\nname = \"a\"\n[[route]]\nvia = [\"a\"]\n[[switch]]\nup = [\"b\"]\ndown = "
              "[\"a\"]\n",
          {"m.toml:9:", "no element \"b\", which rank 0's way to the switch passes"});
  refused("ranks = 2\n" + link + "[[link]]\nclass = \"w\"\nfrom = \"a\"\nto = \"b\"\n", {"0 ranks of 2", "[[rank]]"});
  refused("ranks = 2\n" + link + "[[link]]\nclass = \"w\"\nfrom = \"a\"\nto = \"a\"\n", {"leads nowhere"});
  refused("ranks = 2\n" + link +
              "[[link]]\nclass = \"w\"\nfrom = \"a\"\nto = \"b\"\n[[link]]\nclass = \"w\"\nfrom = \"c\"\nto = "
              "\"d\"\n[[rank]]\nat = \"a\"\n[[rank]]\nat = \"c\"\n",
          {"no links lead from rank 0's node to \"c\""});
  refused("ranks = 2\n" + link + "[[link]]\nclass = \"w\"\nfrom = \"a\"\nto = \"b\"\n[[rank]]\nat = \"e\"\n",
          {"m.toml:9:", "no link has a node \"e\""});
  refused("ranks = 2\n[[route]]\nvia = []\n", {"study.structure.k", "no parameters"},
          {.ranks = 0, .layout = {}, .structure = {{"k", "1"}}});
  refused("ranks = 2\n[[route]]\nvia = []\n", {"study.ranks", "leave ranks away"},
          {.ranks = 3, .layout = {}, .structure = {}});
  refused("ranks = \"x\"\n[parameters]\nx = 2\n", {"study.structure.x", "\"two\""},
          {.ranks = 0, .layout = {}, .structure = {{"x", "two"}}});
}

TEST_CASE("machine file: expressions are C++'s") {
  const variable_map of{{"a", 7}, {"b", -3}};
  const auto value = [&](const char* text) { return expression{text}.value(of); };
  CHECK(value("1 + 2 * a - b") == 18);
  CHECK(value("(a + 1) % 3 == 2 && !(b > 0) || 0") == 1);
  CHECK(value("a / 2 - -2 >= 5 != 0") == 1);
  CHECK(value("a<=7&&a<7") == 0);
  CHECK(name_pattern{"n{a}.{b + 3}x"}.text(of) == "n7.0x");
  for (const char* wrong : {"", "1 1", "(1", "1)", "a &", "5 5", "$"})
    CHECK_THROWS_AS(expression{wrong}, expression_error);
  for (const char* wrong : {"c", "1 / (a - 7)", "4611686018427387904 * 4"})
    CHECK_THROWS_AS(static_cast<void>(value(wrong)), expression_error);
  std::mt19937_64 random{seed()};
  const std::string letters = "ab01+-*/%=!<>&|() ";
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (auto n = random() % 20; n > 0; --n) text += letters[random() % letters.size()];
    INFO(text);
    try {
      static_cast<void>(value(text.c_str()));
    } catch (const expression_error&) {}
  }
}

}  // namespace machine_file_test
