// SPDX-License-Identifier: Apache-2.0
// What no schedule can beat where ways differ in length: engine/tools/study/way_network, cuts, bounds.
#include "engine/tools/study/bounds.hpp"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "engine/tools/study/machine_file.hpp"
#include "engine/tools/study/study.hpp"
#include "engine/tools/study/way_network.hpp"
#include "memory/error.hpp"
#include "tests/engine/program.hpp"
#include "tests/seed.hpp"

namespace bounds_test {

using namespace troupe;

namespace {

constexpr double whole = 8 << 20;

/// µs that the bandwidths ask for, of 8 MiB.
double bound_of(const hardware& on, collective what) {
  job j;
  j.bytes = 8 << 20;
  j.kind.what = what;
  return bounds_of(on, cuts_of(on), j.kind, shape_of(j, on.ranks), 4, 0).bandwidth_us;
}

hardware own(const std::string& file, std::vector<std::pair<std::string, std::string>> structure = {}) {
  preset_request wanted;
  wanted.structure = std::move(structure);
  return load_machine(TROUPE_SOURCE_DIR "/config/machines/" + file, wanted);
}

/// So many bytes at a rate of so many MB/s, which are bytes per µs.
doctest::Approx about(double bytes, double rate) { return doctest::Approx(bytes / rate).epsilon(0.001); }

}  // namespace

TEST_CASE("bounds: on a dragonfly the long links of a group bound what leaves it") {
  hardware d = own("dragonfly.toml");
  d.set("long.bandwidth", "1 GB/s");
  // Groups of 8 of 40 ranks and four links. Of all_to_all each rank sends a 40th to each.
  CHECK(bound_of(d, collective::all_to_all) == about(8 * 32 * whole / 40, 4e3));
  CHECK(bound_of(d, collective::broadcast) == about(whole, 4e3));
  CHECK(bound_of(d, collective::all_gather) == about(whole * 32 / 40, 4e3));
  CHECK(bound_of(d, collective::all_reduce) == about(whole, 4e3));
  // Both directions in turn.
  d.set("long.directions", "half");
  CHECK(bound_of(d, collective::all_to_all) == doctest::Approx(2 * 8 * 32 * whole / 40 / 4e3).epsilon(0.002));
}

TEST_CASE("bounds: tori are bounded by their bisections") {
  CHECK(bound_of(own("torus.toml", {{"x", "8"}, {"y", "8"}}), collective::all_to_all) ==
        about(32 * 32 * whole / 64, 16 * 10e3));
  CHECK(bound_of(own("torus.toml", {{"x", "16"}, {"y", "1"}}), collective::all_to_all) ==
        about(8 * 8 * whole / 16, 2 * 10e3));
  // Where adaptive routing may choose among all shortest ways, too.
  hardware adaptive = own("torus.toml", {{"x", "8"}, {"y", "8"}});
  adaptive.set("routing", "adaptive");
  CHECK(bound_of(adaptive, collective::all_to_all) == about(32 * 32 * whole / 64, 16 * 10e3));
  // Of three dimensions, one of them with slow wires: 16 rings of four across it.
  const hardware three = read_machine(R"(
ranks = 64
[class.wire]
latency = "200ns"
bandwidth = "10GB/s"
[class.slow]
latency = "500ns"
bandwidth = "1GB/s"
[[link]]
for = { k = 4, j = 4, i = 4 }
class = "wire"
from = "node {i}.{j}.{k}"
to = "node {(i + 1) % 4}.{j}.{k}"
[[link]]
for = { k = 4, j = 4, i = 4 }
class = "slow"
from = "node {i}.{j}.{k}"
to = "node {i}.{(j + 1) % 4}.{k}"
[[link]]
for = { k = 4, j = 4, i = 4 }
class = "wire"
from = "node {i}.{j}.{k}"
to = "node {i}.{j}.{(k + 1) % 4}"
[[rank]]
for = { k = 4, j = 4, i = 4 }
at = "node {i}.{j}.{k}"
)",
                                      "three.toml", {});
  CHECK(bound_of(three, collective::all_to_all) == about(32 * 32 * whole / 64, 2 * 16 * 1e3));
}

TEST_CASE("bounds: elements in the middle may begin early and end late, and then their bytes alone count") {
  // All messages pass the core. Those to rank 0 do at once and are 10 µs under way behind it, the others before it; so any takes 10 µs,
  // and the core may be busy all the time.
  const hardware h = read_machine(R"(
ranks = 4
[class.core]
bandwidth = "1GB/s"
[class.far]
latency = "10us"
[[element]]
class = "core"
name = "core"
[[element]]
class = "far"
name = "before"
pair = "behind"
[[route]]
when = "to == 0"
via = ["core", "behind"]
[[route]]
via = ["before", "core"]
)",
                                  "core.toml", {});
  CHECK(bound_of(h, collective::all_to_all) == doctest::Approx(12 * whole / 4 / 1e3 - 10).epsilon(1e-6));
}

TEST_CASE("bounds: what a switch adds up need not pass what messages between ranks pass") {
  const std::string text = R"(
ranks = 4
[class.port]
bandwidth = "10GB/s"
[class.core]
bandwidth = "1GB/s"
[[element]]
for = { r = "ranks" }
class = "port"
name = "up {r}"
pair = "down {r}"
[[element]]
class = "core"
name = "core"
[[route]]
via = ["up {from}", "core", "down {to}"]
)";
  CHECK(bound_of(read_machine(text, "m.toml", {}), collective::all_reduce) == about(6 * whole, 1e3));
  const std::string with = text + "[[switch]]\nserver = 0\nup = [\"up {rank}\"]\ndown = [\"down {rank}\"]\n";
  CHECK(bound_of(read_machine(with, "m.toml", {}), collective::all_reduce) == about(whole, 10e3));
}

TEST_CASE(
    "bounds: the ways to a switch that adds up count, where they are faster or shorter than those between ranks") {
  const hardware h = read_machine(R"(
ranks = 4
[class.port]
bandwidth = "1GB/s"
latency = "1us"
[class.core]
latency = "10us"
[class.fast]
bandwidth = "10GB/s"
latency = "1us"
[[element]]
for = { r = "ranks" }
class = "port"
name = "up {r}"
pair = "down {r}"
[[element]]
for = { r = "ranks" }
class = "fast"
name = "switch up {r}"
pair = "switch down {r}"
[[element]]
class = "core"
name = "core"
[[route]]
via = ["up {from}", "core", "down {to}"]
[[switch]]
server = 0
up = ["switch up {rank}"]
down = ["switch down {rank}"]
)",
                                  "switch.toml", {});
  CHECK(bound_of(h, collective::all_reduce) <= 1.001 * whole / 11e3);  // both ports of a rank
  job j;
  j.bytes = 64;
  j.kind.what = collective::all_reduce;
  CHECK(bounds_of(h, cuts_of(h), j.kind, shape_of(j, h.ranks), 4, 0).latency_us <= 2);
}

TEST_CASE("bounds: channels beyond the second have ways of their own, too") {
  const auto rails = [](const std::string& which, int count) {
    return read_machine("ranks = 2\n[class.rail]\nbandwidth = \"1GB/s\"\n[[element]]\nfor = { r = \"ranks\", k = \"" +
                            std::to_string(count) +
                            "\" }\nclass = \"rail\"\nname = \"rail {r} {k}\"\n[[route]]\nvia = [\"rail {from} {" +
                            which + "}\"]\n",
                        "rails.toml", {});
  };
  CHECK(bound_of(rails("(channel / 2) % 2", 2), collective::all_to_all) == about(whole / 2, 2e3));
  CHECK(bound_of(rails("channel % 32", 32), collective::all_to_all) == about(whole / 2, 32e3));
}

TEST_CASE("least cuts: every way is cut, and no cheaper set does that to the graph of the ways") {
  std::mt19937_64 random(seed() + 5);
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    const int ranks = 2 + static_cast<int>(random() % 4), elements = 2 + static_cast<int>(random() % 7);
    std::vector<double> rates;
    for (int e = 0; e < elements; ++e) rates.push_back(static_cast<double>(1 + random() % 9));
    way_network network{ranks, rates};
    std::vector<std::vector<element_index>> ways;
    std::vector<bool> inside(static_cast<std::size_t>(ranks));
    for (auto&& r : inside) r = random() % 2 == 0;
    inside.front() = true, inside.back() = false;
    std::vector<std::vector<bool>> next(static_cast<std::size_t>(elements) + 1,
                                        std::vector<bool>(static_cast<std::size_t>(elements) + 1));
    const auto last = static_cast<std::size_t>(elements);  // of `next`: where ways begin, and end
    for (int from = 0; from < ranks; ++from)
      for (int to = 0; to < ranks; ++to) {
        if (from == to) continue;
        std::vector<element_index> way(static_cast<std::size_t>(elements));
        for (int e = 0; e < elements; ++e) way[static_cast<std::size_t>(e)] = e;
        std::shuffle(way.begin(), way.end(), random);
        way.resize(1 + random() % std::min<std::size_t>(4, way.size()));
        network.add(way, from, to);
        for (std::size_t i = 0; i + 1 < way.size(); ++i)
          next[static_cast<std::size_t>(way[i])][static_cast<std::size_t>(way[i + 1])] = true;
        if (inside[static_cast<std::size_t>(from)]) next[last][static_cast<std::size_t>(way.front())] = true;
        if (!inside[static_cast<std::size_t>(to)]) next[static_cast<std::size_t>(way.back())][last] = true;
        if (inside[static_cast<std::size_t>(from)] && !inside[static_cast<std::size_t>(to)]) ways.push_back(way);
      }
    REQUIRE(network.finish());
    const auto leads_through = [&](unsigned without) {
      std::vector<std::size_t> reached{last};
      std::vector<bool> seen(static_cast<std::size_t>(elements));
      for (std::size_t i = 0; i < reached.size(); ++i)
        for (std::size_t e = 0; e <= last; ++e) {
          if (!next[reached[i]][e]) continue;
          if (e == last) return true;
          if (seen[e] || (without >> e & 1) != 0) continue;
          seen[e] = true;
          reached.push_back(e);
        }
      return false;
    };
    double least = 1e9;
    for (unsigned set = 0; set < 1u << elements; ++set) {
      if (leads_through(set)) continue;
      double sum = 0;
      for (int e = 0; e < elements; ++e)
        if ((set >> e & 1) != 0) sum += rates[static_cast<std::size_t>(e)];
      least = std::min(least, sum);
    }
    std::int64_t work = 1'000'000;
    std::vector<bool> outside = inside;
    outside.flip();
    const auto cut = network.least_cut(inside, outside, work);
    REQUIRE(cut);
    CHECK(work < 1'000'000);
    double sum = 0;
    for (const element_index e : *cut) sum += rates[static_cast<std::size_t>(e)];
    CHECK(sum == least);
    for (const auto& way : ways)
      CHECK(std::ranges::any_of(way, [&](element_index e) { return std::ranges::find(*cut, e) != cut->end(); }));
    std::int64_t none = 0;
    CHECK_FALSE(network.least_cut(inside, outside, none));
  }
}

namespace {

/// A machine of routers that random links join, with ranks at them, or at hosts of their own.
std::string random_machine(std::mt19937_64& random) {
  const auto one_of = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const std::size_t routers = 2 + one_of(7), ranks = 2 + one_of(11);
  std::string text = "ranks = " + std::to_string(ranks) + "\n";
  if (one_of(3) == 0) text += "routing = \"adaptive\"\npaths = " + std::to_string(2 + one_of(3)) + "\n";
  for (int c = 0; c < 4; ++c) {
    text += "[class.c" + std::to_string(c) + "]\nlatency = \"" + std::to_string(one_of(4) * one_of(3000)) +
            "ns\"\nbandwidth = \"" + std::to_string(1 + one_of(60) * one_of(60)) + "00MB/s\"\n";
    if (one_of(4) == 0) text += "directions = \"half\"\n";
    if (one_of(4) == 0) text += "overhead = \"" + std::to_string(one_of(20000)) + "ns\"\n";
    if (one_of(5) == 0) text += "passing = \"store_and_forward\"\n";
    if (one_of(5) == 0) text += "units = 2\n";
  }
  const auto link = [&](const std::string& a, const std::string& b) {
    text += "[[link]]\nclass = \"c" + std::to_string(one_of(4)) + "\"\nfrom = \"" + a + "\"\nto = \"" + b + "\"\n";
  };
  const auto router = [](std::size_t n) { return "router " + std::to_string(n); };
  std::vector<std::pair<std::size_t, std::size_t>> joined;
  for (std::size_t r = 1; r < routers; ++r) joined.emplace_back(one_of(r), r);
  for (std::size_t more = one_of(2 * routers); more > 0; --more) {
    const std::size_t a = one_of(routers), b = one_of(routers);
    if (a < b && std::ranges::find(joined, std::pair{a, b}) == joined.end()) joined.emplace_back(a, b);
  }
  for (const auto& [a, b] : joined) link(router(a), router(b));
  std::string places;
  for (std::size_t r = 0; r < ranks; ++r) {
    std::string at = router(one_of(routers));
    if (one_of(2) == 0) {
      link("host " + std::to_string(r), at);
      at = "host " + std::to_string(r);
    }
    places += "[[rank]]\nat = \"" + at + "\"\n";
  }
  return text + places;
}

}  // namespace

TEST_CASE("bounds: nothing is faster, on random machines, with fixed and with adaptive ways") {
  std::mt19937_64 random(seed() + 6);
  int performed = 0;
  for (int round = 0; round < 60; ++round) {
    const std::string text = random_machine(random);
    CAPTURE(text);
    const std::string file = troupe_program::write("random_machine.toml", text);
    for (const std::string what :
         {"all_to_all", "all_reduce", "all_gather", "broadcast", "gather", "scatter", "scan"}) {
      CAPTURE(what);
      configuration c;
      c.add_text("[study]\ncollective = \"" + what + "\"\nchoreography = \"auto\"\npreset = \"" + file +
                     "\"\nsizes = [\"4K\", \"1M\"]\nchannels = " + std::to_string(1 + random() % 2) + "\n",
                 "study.toml");
      try {
        for (const study_row& row : run_study(read_study(c), {}).rows) {
          CHECK(row.bound_us() <= row.time_us * (1 + 1e-9));
          ++performed;
        }
      } catch (const error& refused) {
        // Two ranks at one node have a way without an element; adaptive routing may have nothing to choose.
        CAPTURE(refused.what());
        CHECK(refused.code_value() == errc::bad_config);
      }
    }
  }
  CHECK(performed > 100);
}

}  // namespace bounds_test
