// SPDX-License-Identifier: Apache-2.0
// discipline = max_min against SimGrid's fluid model, flow by flow, where messages are held back at several places at once: a parking lot, an
// oversubscribed fat tree with pairs at random, and an all_to_all whose ranks are not equally wanted. Also what fifo and fair say of
// the same, which docs/study.md quotes.
#include "actors/virtual/virtual_run.hpp"
#include "protocols/score/score_builder.hpp"
#include "tests/oracle/smpi.hpp"
#include "topology/machine/hardware.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <string>

using namespace troupe;

namespace {

constexpr double tolerance = 1e-3;

struct pattern {
  std::string title;
  int ranks = 0;
  std::vector<smpi::link> links;
  std::vector<smpi::flow> flows;
};

/// An element a link, a class an element, as each may have constants of its own.
hardware hardware_of(const pattern& p, const char* discipline) {
  hardware on{p.title, p.ranks};
  for (std::size_t l = 0; l < p.links.size(); ++l) {
    const auto of = on.add_class({.name = "link" + std::to_string(l),
                                  .latency = picoseconds{static_cast<std::int64_t>(p.links[l].latency * 1e3)},
                                  .bytes_per_second = static_cast<std::uint64_t>(p.links[l].bandwidth)});
    on.add(of, "link " + std::to_string(l));
    on.set("link" + std::to_string(l) + ".discipline", discipline);
  }
  std::map<std::pair<int, int>, std::vector<int>> ways;
  for (const smpi::flow& f : p.flows) ways[{f.from, f.to}] = f.way;
  on.way = [ways](int from, int to, int, std::vector<element_index>& way) {
    const auto at = ways.find({from, to});
    if (at != ways.end()) way.assign(at->second.begin(), at->second.end());
  };
  on.protocols = plain_protocols();
  return on;
}

/// When each flow has arrived, in ns. All are sent at the start.
std::vector<double> arrivals(const pattern& p, const char* discipline) {
  using namespace notation;
  score_builder s{flat_setup(collective::all_to_all, p.ranks, 0, false, false), "flows", 1};
  const auto n = static_cast<std::size_t>(p.ranks);
  std::vector<std::size_t> counts(n * n, 0);
  // A lane performs its steps in order: first all sends, so that none waits for a message.
  for (const smpi::flow& f : p.flows) s.lane(f.from).to(f.to).send(input[f.to]);
  for (const smpi::flow& f : p.flows) {
    s.lane(f.to).from(f.from).recv(output[f.from]);
    counts[static_cast<std::size_t>(f.from) * n + static_cast<std::size_t>(f.to)] = f.bytes;
  }
  const hardware on = hardware_of(p, discipline);
  virtual_recording record;
  virtual_options o;
  o.protocol = *on.protocol("simple");
  o.record = &record;
  perform_virtually(s.finish(), {.counts = counts}, {}, on, o);
  std::map<std::pair<int, int>, double> ends;
  for (const virtual_move& m : record.moves) ends[{m.from, m.to}] = static_cast<double>(m.end) / 1e3;
  std::vector<double> times;
  for (const smpi::flow& f : p.flows) times.push_back(ends.at({f.from, f.to}));
  return times;
}

/// Links in a row; one flow passes all, and each link has flows of its own. The textbook's case of a flow that is held back elsewhere.
pattern parking_lot(int links, std::mt19937& random) {
  pattern p{"parking lot of " + std::to_string(links), 2 + 4 * links, {}, {}};
  smpi::flow along{0, 1, 4'000'000, {}};
  int next = 2;
  for (int l = 0; l < links; ++l) {
    p.links.push_back({(5.0 + static_cast<double>(random() % 10)) * 1e9, 250});
    along.way.push_back(l);
    for (int i = 0; i < 1 + l % 2; ++i, next += 2)
      p.flows.push_back({next, next + 1, (1 + random() % 8) * 500'000, {l}});
  }
  // Some pass two neighbours.
  for (int l = 0; l + 1 < links && next + 1 < p.ranks; l += 2, next += 2)
    p.flows.push_back({next, next + 1, (1 + random() % 8) * 500'000, {l, l + 1}});
  p.flows.push_back(along);
  return p;
}

/// Six hosts and two uplinks a leaf. Every host sends to four others at random, of random lengths.
pattern fat_tree(int leaves, std::mt19937& random) {
  constexpr int down = 6, spines = 2;
  const int hosts = down * leaves;
  pattern p{"fat tree of " + std::to_string(hosts), hosts, {}, {}};
  p.links.assign(static_cast<std::size_t>(2 * hosts), {25e9, 500});
  for (int i = 0; i < 2 * leaves * spines; ++i) p.links.push_back({25e9, 300});
  const auto trunk = [&](int leaf, int spine, bool up) {
    return 2 * hosts + 2 * (leaf * spines + spine) + (up ? 0 : 1);
  };
  for (int from = 0; from < hosts; ++from) {
    std::set<int> peers;
    while (peers.size() < 4)
      if (const int to = static_cast<int>(random() % static_cast<unsigned>(hosts)); to != from) peers.insert(to);
    for (const int to : peers) {
      const int a = from / down, b = to / down, spine = to % spines;
      smpi::flow f{from, to, 100'000 + random() % 4'000'000, {2 * from}};
      if (a != b) f.way.insert(f.way.end(), {trunk(a, spine, true), trunk(b, spine, false)});
      f.way.push_back(2 * to + 1);
      p.flows.push_back(f);
    }
  }
  return p;
}

/// Everybody sends to everybody; rank r gets 1/(r+1) as much as rank 0, as with experts of which some are wanted more than others.
pattern zipf_all_to_all(int ranks) {
  pattern p{"zipf all_to_all of " + std::to_string(ranks), ranks, {}, {}};
  p.links.assign(static_cast<std::size_t>(2 * ranks), {10e9, 500});
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to)
      if (from != to)
        p.flows.push_back({from,
                           to,
                           4'000'000 / static_cast<std::size_t>(to + 1) / static_cast<std::size_t>(1 + from % 3),
                           {2 * from, 2 * to + 1}});
  return p;
}

/// SimGrid's flows share a link in inverse proportion to their latencies, as TCP's do; ours equally. So every way is made as long as the
/// longest, by a link of its own that holds nothing back.
void even_out(pattern& p) {
  const auto latency = [&](const smpi::flow& f) {
    double sum = 0;
    for (const int l : f.way) sum += p.links[static_cast<std::size_t>(l)].latency;
    return sum;
  };
  double most = 0;
  for (const smpi::flow& f : p.flows) most = std::max(most, latency(f));
  for (smpi::flow& f : p.flows) {
    const double missing = most - latency(f);
    if (missing == 0) continue;
    p.links.push_back({1e15, missing});
    f.way.push_back(static_cast<int>(p.links.size()) - 1);
  }
}

struct difference {
  double most_late = 0, most_early = 0, last = 0;  ///< ratios to SimGrid's; of the last flow
};

difference difference_of(const std::vector<double>& ours, const std::vector<double>& theirs) {
  difference d{1, 1, *std::max_element(ours.begin(), ours.end()) / *std::max_element(theirs.begin(), theirs.end())};
  for (std::size_t i = 0; i < ours.size(); ++i) {
    d.most_late = std::max(d.most_late, ours[i] / theirs[i]);
    d.most_early = std::min(d.most_early, ours[i] / theirs[i]);
  }
  return d;
}

void compare(pattern p) {
  CAPTURE(p.title);
  even_out(p);
  const auto theirs = smpi::run_flows(p.ranks, p.links, p.flows);
  const auto ours = arrivals(p, "max_min");
  double worst = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    CAPTURE(i);
    const double error = std::abs(ours[i] - theirs[i]) / theirs[i];
    CHECK(error <= tolerance);
    worst = std::max(worst, error);
  }
  const difference fair = difference_of(arrivals(p, "fair"), theirs), fifo = difference_of(arrivals(p, "fifo"), theirs);
  MESSAGE(p.title, ": ", ours.size(), " flows, largest difference ", 100 * worst,
          " %; single messages and the last: fair ", fair.most_early, " … ", fair.most_late, ", ", fair.last, "; fifo ",
          fifo.most_early, " … ", fifo.most_late, ", ", fifo.last);
}

}  // namespace

TEST_CASE("oracle: max_min, a parking lot") {
  std::mt19937 random(1);
  for (const int links : {2, 3, 6, 12}) compare(parking_lot(links, random));
}

TEST_CASE("oracle: max_min, pairs at random on a fat tree of 3:1") {
  std::mt19937 random(2);
  for (const int leaves : {2, 4, 8}) compare(fat_tree(leaves, random));
}

TEST_CASE("oracle: max_min, an all_to_all in which ranks are not equally wanted") {
  for (const int ranks : {4, 16, 32}) compare(zipf_all_to_all(ranks));
}
