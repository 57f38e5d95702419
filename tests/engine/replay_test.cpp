// SPDX-License-Identifier: Apache-2.0
// Whole applications in virtual time: engine/tools/replay, actors/virtual/virtual_replay, engine/world/recorder.
#include "engine/tools/replay/replay.hpp"

#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <queue>
#include <random>

#include <unistd.h>

#include "engine/api/troupe.hpp"
#include "memory/error.hpp"
#include "tests/engine/program.hpp"
#include "tests/seed.hpp"
#include "tests/trace_curves.hpp"

namespace replay_test {

using namespace troupe;

namespace {

application parsed(const std::string& text) { return read_goal({{"t.goal", text}}); }

study_scenario scenario(const std::string& toml) {
  configuration c;
  c.add_text(toml, "replay.toml");
  return read_study(c);
}

replay_result replayed(const std::string& text, const std::string& toml, std::uint64_t eager = 64 * 1024,
                       bool record = false) {
  replay_request how;
  how.eager_bytes = eager;
  how.record = record;
  return run_replay(scenario(toml), std::make_shared<const application>(parsed(text)), how);
}

void refused(const std::string& text, const std::vector<std::string>& words, const std::string& toml = "[study]\n") {
  try {
    replayed(text, toml);
    FAIL("accepted: " << text);
  } catch (const error& why) {
    CHECK(why.code_value() == errc::bad_config);
    for (const std::string& w : words)
      CHECK_MESSAGE(std::string{why.what()}.find(w) != std::string::npos, std::string{why.what()});
  }
}

/// 1 µs and 1 ns a byte from rank to rank, in two legs; 300 ns of work for a send, 200 ns for a receive.
const std::string loggp =
    "[study]\n[study.hardware]\nlink.latency = \"500ns\"\nlink.bandwidth = \"1GB/s\"\nhost.send = \"300ns\"\n"
    "host.receive = \"200ns\"\n";

}  // namespace

TEST_CASE("replay: the study's choreography is a wish, the trace's is not") {
  const auto calls = [](const std::string& barrier) {
    std::string text = "num_ranks 4\n";
    for (int r = 0; r < 4; ++r)
      text += "rank " + std::to_string(r) + " {\na: coll all_reduce 1024 f32 sum\nb: coll barrier" + barrier +
              "\nb requires a\n}\n";
    return text;
  };
  const replay_result r = replayed(calls(""), "[study]\n");
  const replay_result wished = replayed(calls(""), "[study]\nchoreography = \"ring\"\n");
  REQUIRE(wished.groups.size() == 2);
  CHECK(wished.groups[0].choreography == "ring");
  CHECK(wished.groups[1].choreography == r.groups[1].choreography);
  REQUIRE(wished.remarks.size() == 1);
  CHECK(wished.remarks[0] == "ring does not offer barrier; it goes by " + r.groups[1].choreography + ", the fastest");
  CHECK_THROWS_WITH_AS(replayed(calls(" by ring"), "[study]\n"), doctest::Contains("ring does not offer barrier"),
                       error);
}

TEST_CASE("replay: closed forms on ports") {
  const auto ns = [](const replay_result& r) { return static_cast<double>(r.outcome.end_ps) / 1000; };
  const std::string two = "num_ranks 2\n";
  CHECK(ns(replayed(two + "rank 0 {\nl1: calc 50\nl2: calc 70\nl2 requires l1\n}\n", loggp)) == 120);
  // The same cpu serves one after the other; other cpus work beside it.
  CHECK(ns(replayed(two + "rank 0 {\ncalc 50\ncalc 70\n}\n", loggp)) == 120);
  CHECK(ns(replayed(two + "rank 0 {\ncalc 50\ncalc 70 cpu 1\n}\n", loggp)) == 70);
  // o + L + n G + o
  CHECK(ns(replayed(two + "rank 0 {\nsend 100b to 1\n}\nrank 1 {\nrecv 100b from 0\n}\n", loggp)) ==
        300 + 1000 + 100 + 200);
  // There and back.
  CHECK(ns(replayed(two + "rank 0 {\na: send 8b to 1\nb: recv 8b from 1\n}\nrank 1 {\na: recv 8b from 0\n"
                          "b: send 8b to 0\nb requires a\n}\n",
                    loggp)) == 2 * (300 + 1000 + 8 + 200));
  // A receive that begins when the computation begins does not wait for its end; one that requires it does.
  const auto late = [&](const char* how) {
    return ns(replayed(two + "rank 0 {\nsend 8b to 1\n}\nrank 1 {\na: calc 5000\nb: recv 8b from 0 cpu 1\nb " + how +
                           " a\nc: calc 10 cpu 1\nc requires b\n}\n",
                       loggp));
  };
  CHECK(late("irequires") == 5000);
  CHECK(late("requires") == 5000 + 200 + 10);
  // Above the eager limit a send ends when it is received.
  const std::string long_one = two + "rank 0 {\na: send 100b to 1\nb: calc 1\nb requires a\n}\nrank 1 {\na: calc "
                                     "9000\nb: recv 100b from 0\nb requires a\n}\n";
  CHECK(replayed(long_one, loggp).outcome.ranks[0].end == 301'000);
  CHECK(replayed(long_one, loggp, 99).outcome.ranks[0].end == 9'001'000);
  // To itself a message takes no way.
  CHECK(ns(replayed("num_ranks 1\nrank 0 {\nsend 8b to 0 tag 3\nrecv 8b from -1 tag -1 cpu 1\n}\n", loggp)) == 500);
  // Nobody does anything.
  CHECK(replayed("num_ranks 3", loggp).outcome.end_ps == 0);
}

TEST_CASE("replay: the timeline's curves are of what ranks do at once, in the recorded run, too") {
  const std::string trace = replay_timeline(replayed(R"(num_ranks 2
//@ clock here 1000000
rank 0 {
a: calc 5000
b: send 100b to 1
c: coll all_reduce 16 f32 sum
b requires a
c requires b
//@ a from 0 to 5000
//@ b from 5000 to 6000
//@ c from 6000 to 9000
}
rank 1 {
b: recv 100b from 0
c: coll all_reduce 16 f32 sum
c requires b
//@ b from 0 to 6500
//@ c from 7000 to 9500
}
)",
                                                     loggp));
  const auto curves = troupe_tests::curves_of(trace);
  for (const int process : {1, 2}) {
    CAPTURE(process);
    for (const auto& [name, category] : {std::pair{"computations under way", "calc"},
                                         {"ranks in collectives", "collective"},
                                         {"sends under way", "send"}}) {
      const auto& curve = curves.at({process, name});
      CHECK(curve.is_whole());
      CHECK(curve.area() == doctest::Approx(troupe_tests::time_of_spans(trace, process, category)));
    }
    CHECK(curves.at({process, "bytes of sends under way"}).area() ==
          doctest::Approx(100 * curves.at({process, "sends under way"}).area()));
  }
}

TEST_CASE("replay: the timeline has curves of the elements, and recording changes no time") {
  // A message passes two links of 500 ns and 1 ns a byte; the all_reduce has several, of the same class.
  const std::string text = R"(num_ranks 3
rank 0 {
a: send 1000b to 1
c: coll all_reduce 4096 f32 sum
c requires a
}
rank 1 {
a: recv 1000b from 0
c: coll all_reduce 4096 f32 sum
c requires a
}
rank 2 {
c: coll all_reduce 4096 f32 sum
}
)";
  for (const char* discipline : {"fifo", "fair", "max_min"}) {
    CAPTURE(discipline);
    const std::string machine = loggp + "link.discipline = \"" + discipline + "\"\n";
    const replay_result plain = replayed(text, machine), r = replayed(text, machine, 64 * 1024, true);
    CHECK(!plain.occupied);
    CHECK(r.outcome.end_ps == plain.outcome.end_ps);
    const auto curves = troupe_tests::curves_of(replay_timeline(r));
    CHECK(!troupe_tests::curves_of(replay_timeline(plain)).contains({3, "messages served: link"}));
    const auto& links = curves.at({3, "messages served: link"});
    CHECK(links.is_whole());
    // What is fifo is occupied by one at a time, and for as long as the outcome says.
    double busy = 0;
    for (const element_use& u : r.outcome.use) busy += static_cast<double>(u.busy_ps) / 1e6;
    if (discipline == std::string{"fifo"}) CHECK(links.area() == doctest::Approx(busy));
    else CHECK(links.area() >= doctest::Approx(busy));
    // The single message is nobody's, what the collective sends is the first group's.
    std::size_t alone = 0, of_group = 0;
    for (const element_recording::stretch& s : r.occupied->stretches) {
      alone += s.job < 0 && s.from == 0 && s.to == 1 && s.bytes == 1000;
      of_group += s.job == 0;
    }
    CHECK(alone == 2);
    CHECK(of_group > 2);
  }
}

TEST_CASE("replay: messages are matched by sender and tag, in the order of their sending") {
  // The second message is short and has another tag; a rank that asks for it first gets it first.
  const replay_result r = replayed("num_ranks 3\nrank 0 {\na: send 5000b to 2 tag 1\nb: send 10b to 2 tag 2\nb "
                                   "requires a\n}\nrank 1 {\ncalc 100\n}\n"
                                   "rank 2 {\na: recv 10b from 0 tag 2\nb: recv 5000b from -1 tag -1\n}\n",
                                   loggp);
  CHECK(r.outcome.spans[2][1].end < r.outcome.spans[2][0].end);
  CHECK(r.outcome.spans[2][1].from == 0);
  const replay_times& t = r.outcome.ranks[2];
  CHECK(t.compute + t.collective + t.message + t.idle == t.end);
  CHECK(r.outcome.ranks[1].compute == 100'000);
}

TEST_CASE("replay: on the critical path, what a message waits for among others is told from what it takes alone") {
  const auto on_path = [](const replay_result& r, replay_stretch::part what) {
    std::int64_t total = 0;
    for (const replay_stretch& s : r.path)
      if (s.spent == what) total += s.end_ps - s.begin_ps;
    return total / 1000;
  };
  using part = replay_stretch::part;
  // Its work, the way and the receiver's work; before it the sender's.
  const replay_result alone =
      replayed("num_ranks 3\nrank 0 {\nsend 1000b to 2\n}\nrank 2 {\nrecv 1000b from 0\n}\n", loggp);
  CHECK(on_path(alone, part::message) == 300 + 1000 + 1000 + 200);
  CHECK(on_path(alone, part::queue) == 0);
  // Of two that come together one waits at the receiver's port as long as the other takes it.
  const replay_result two = replayed(
      "num_ranks 3\nrank 0 {\nsend 1000b to 2\n}\nrank 1 {\nsend 1000b to 2\n}\nrank 2 {\na: recv 1000b from 0\n"
      "b: recv 1000b from 1 cpu 1\n}\n",
      loggp);
  CHECK(on_path(two, part::message) == 300 + 1000 + 1000 + 200);
  CHECK(on_path(two, part::queue) == 1000);
  // A computation waits for its core.
  const replay_result busy = replayed("num_ranks 1\nrank 0 {\ncalc 50\ncalc 70\n}\n", loggp);
  CHECK(on_path(busy, part::compute) + on_path(busy, part::core) == 120);
}

TEST_CASE("replay: a simulation of its own gives the same times") {
  // LogGP with ports: event by event, from the formulas of hardware.hpp alone.
  struct node {
    int kind, peer;  // 0: calc, 1: send, 2: recv
    std::int64_t amount, tag;
    std::vector<int> needs;
  };
  std::mt19937_64 random{seed()};
  const auto below = [&](std::uint64_t n) { return random() % n; };
  for (int round = 0; round < 30; ++round) {
    const int ranks = 2 + static_cast<int>(below(5));
    std::vector<std::vector<node>> all(static_cast<std::size_t>(ranks));
    // A random program of pairs: both ends are added at once, so that it can be performed in the order of the lines.
    for (auto& of : all) of.push_back({0, 0, static_cast<std::int64_t>(1 + below(5000)), 0, {}});
    for (int i = 0; i < 40; ++i) {
      const int a = static_cast<int>(below(static_cast<std::uint64_t>(ranks)));
      const int b = (a + 1 + static_cast<int>(below(static_cast<std::uint64_t>(ranks - 1)))) % ranks;
      const auto after = [&](int r) {
        const auto& of = all[static_cast<std::size_t>(r)];
        return std::vector<int>{static_cast<int>(of.size()) - 1};
      };
      const auto bytes = static_cast<std::int64_t>(1 + below(4000));
      if (below(3) == 0)
        all[static_cast<std::size_t>(a)].push_back({0, 0, static_cast<std::int64_t>(1 + below(3000)), 0, after(a)});
      all[static_cast<std::size_t>(a)].push_back({1, b, bytes, i, after(a)});
      all[static_cast<std::size_t>(b)].push_back({2, a, bytes, i, after(b)});
    }
    std::string text = "num_ranks " + std::to_string(ranks) + "\n";
    for (int r = 0; r < ranks; ++r) {
      text += "rank " + std::to_string(r) + " {\n";
      int line = 0;
      for (const node& n : all[static_cast<std::size_t>(r)]) {
        const std::string label = "n" + std::to_string(line++);
        const std::string tag = " tag " + std::to_string(n.tag);
        if (n.kind == 0) text += label + ": calc " + std::to_string(n.amount) + "\n";
        else if (n.kind == 1)
          text += label + ": send " + std::to_string(n.amount) + "b to " + std::to_string(n.peer) + tag + "\n";
        else text += label + ": recv " + std::to_string(n.amount) + "b from " + std::to_string(n.peer) + tag + "\n";
        for (const int need : n.needs) text += label + " requires n" + std::to_string(need) + "\n";
      }
      text += "}\n";
    }

    // Each rank performs its chain; ports serve heads in the order of time. Times in ns, events (time, order).
    struct event {
      std::int64_t at;
      std::uint64_t order;
      int kind, rank,
          from;  // 0: the rank goes on, 1: a message leaves, 2: its head is at the receiver's port, 3: it has come
      std::int64_t bytes, tag, first_end;
      bool operator>(const event& o) const { return at != o.at ? at > o.at : order > o.order; }
    };
    std::priority_queue<event, std::vector<event>, std::greater<>> due;
    std::uint64_t order = 0;
    std::vector<std::size_t> at(all.size(), 0);
    std::vector<std::int64_t> up(all.size(), 0), down(all.size(), 0);
    std::vector<std::map<std::pair<int, std::int64_t>, bool>> come(all.size());
    std::vector<bool> waits(all.size(), false);
    std::int64_t end = 0;
    for (int r = 0; r < ranks; ++r) due.push({0, order++, 0, r, 0, 0, 0, 0});
    const auto go_on = [&](int r, std::int64_t now) {
      const auto i = static_cast<std::size_t>(r);
      end = std::max(end, now);
      if (at[i] == all[i].size()) return;
      const node& n = all[i][at[i]];
      if (n.kind == 2 && !come[i].contains({n.peer, n.tag})) {
        waits[i] = true;
        return;
      }
      ++at[i];
      const std::int64_t done = now + (n.kind == 0 ? n.amount : n.kind == 1 ? 300 : 200);
      if (n.kind == 1) due.push({done, order++, 1, n.peer, r, n.amount, n.tag, 0});
      due.push({done, order++, 0, r, 0, 0, 0, 0});
    };
    while (!due.empty()) {
      const event e = due.top();
      due.pop();
      const auto to = static_cast<std::size_t>(e.rank), from = static_cast<std::size_t>(e.from);
      if (e.kind == 0) go_on(e.rank, e.at);
      if (e.kind == 1) {
        const std::int64_t start = std::max(e.at, up[from]);
        up[from] = start + e.bytes;
        due.push({start + 500, order++, 2, e.rank, e.from, e.bytes, e.tag, start + e.bytes + 1000});
      }
      if (e.kind == 2) {
        const std::int64_t start = std::max(e.at, down[to]);
        down[to] = start + e.bytes;
        due.push({std::max(e.first_end, start + e.bytes + 500), order++, 3, e.rank, e.from, e.bytes, e.tag, 0});
      }
      if (e.kind == 3) {
        come[to][{e.from, e.tag}] = true;
        if (!waits[to]) continue;
        waits[to] = false;
        go_on(e.rank, e.at);
      }
    }
    for (std::size_t r = 0; r < all.size(); ++r) REQUIRE(at[r] == all[r].size());
    const replay_result r = replayed(text, loggp);
    INFO("round " << round);
    CHECK(r.outcome.end_ps == 1000 * end);
    std::int64_t on_path = 0;
    for (const replay_stretch& s : r.path) on_path += s.end_ps - s.begin_ps;
    CHECK(on_path == r.outcome.end_ps);  // nothing of it is left unexplained
  }
}

TEST_CASE("replay: a collective takes what the study of it takes, on its communicator") {
  const std::string machine = "[study]\npreset = \"dgx_h100\"\nlayout = \"2x8\"\nchoreography = \"ring\"\n";
  std::string text = "num_ranks 16\ncomm even { 0 2 4 6 8 10 12 14 }\n";
  for (int r = 0; r < 16; ++r)
    text += "rank " + std::to_string(r) + " {\n" + (r % 2 == 0 ? "coll all_gather 65536 u8 comm even\n" : "") + "}\n";
  const study_result one =
      run_study(scenario(machine + "[[study.job]]\non = \"0-14:2\"\ncalls = \"all_gather 512K by ring\"\n"));
  CHECK(replayed(text, machine).outcome.end_ps == one.together.end_ps);
}

TEST_CASE("replay: collectives overlap, and each rank goes on by itself") {
  // Three broadcasts that nobody waits for, and one that all wait for, are performed at once.
  std::string text = "num_ranks 5\n";
  for (int r = 0; r < 5; ++r)
    text += "rank " + std::to_string(r) +
            " {\ncoll broadcast 1000 f32 root 0 by binomial\ncoll broadcast 1000 f32 root 0 by binomial\n"
            "coll broadcast 1000 f32 root 0 by binomial\na: coll all_reduce 100 f32 sum\nb: calc 1000\nb requires a\n"
            "coll barrier\nv: coll all_gather_v 1,0,3,4,5 i32\nw: coll all_to_all_v 1,2,0,4,5 i32\nw requires v\n}\n";
  const replay_result r = replayed(text, "[study]\nchoreography = \"one_shot\"\n");
  CHECK(r.outcome.most_at_once >= 4);
  REQUIRE(r.groups.size() == 5);
  CHECK(r.groups[0].calls == 3);
  CHECK(r.groups[0].choreography == "binomial");
  CHECK(r.groups[1].choreography == "one_shot");
  CHECK(replayed(text, "[study]\nchoreography = \"one_shot\"\n").outcome.trace == r.outcome.trace);
  // A machine of the preset's kind that is large enough is found.
  CHECK(replayed(text, "[study]\npreset = \"dgx_h100\"\nchoreography = \"one_shot\"\n").on->ranks == 8);
}

TEST_CASE("replay: what cannot be followed is said, with its place") {
  const std::string two = "num_ranks 2\n";
  refused("", {"t.goal: it does not say", "num_ranks 8"});
  refused("rank 0 {\n}\n", {"t.goal:1:", "num_ranks"});
  refused("num_ranks 0\n", {"at least one rank"});
  refused("num_ranks 99999999999999999999\n", {"too large"});
  refused(two + "rank 2 {\n}\n", {"t.goal:2:", "ranks are 0 to 1"});
  refused(two + "rank 0 {\n", {"a } is missing"});
  refused(two + "/* rank 0 {\n", {"does not end"});
  refused(two + "rank 0 {\nl1: clac 5\n}\n", {"t.goal:3:", "did you mean calc?"});
  refused(two + "rank 0 {\nl1: send 5 to 1\n}\n", {"\"5\"", "such as 8b"});
  refused(two + "rank 0 {\nl1: send 5b from 1\n}\n", {"expected \"to\""});
  refused(two + "rank 0 {\nl1: calc 5 tag 3\n}\n", {"\"tag\"", "expected cpu"});
  refused(two + "rank 0 {\nl1: calc 5\nl1: calc 5\n}\n", {"t.goal:4:", "line 3"});
  refused(two + "rank 0 {\nl1: calc 5\nl1 requires l9\n}\n", {"t.goal:4:", "l9"});
  refused(two + "rank 0 {\nl1: calc 5\nl1 requires l1\n}\n", {"itself"});
  refused(two + "rank 0 {\n}\nrank 0 {\n}\n", {"t.goal:4:", "already"});
  refused(two + "rank 0 {\ncoll all_redcue 5 f32 sum\n}\n", {"did you mean all_reduce?"});
  refused(two + "rank 0 {\ncoll all_reduce 5 f31 sum\n}\n", {"\"f31\"", "element type"});
  refused(two + "rank 0 {\ncoll all_reduce 5 f32 summ\n}\n", {"\"summ\"", "operation of f32"});
  refused(two + "rank 0 {\ncoll broadcast 5 f32 root 2\n}\n", {"no root 2"});
  refused(two + "rank 0 {\ncoll all_gather 5 f32 by rign\n}\n", {"did you mean ring?"});
  refused(two + "rank 0 {\ncoll all_gather 5 f32 comm odd\n}\n", {"\"odd\"", "comm NAME"});
  refused(two + "comm odd { 1 1 }\n", {"rank 1 twice"});
  refused(two + "comm odd { 1 }\nrank 0 {\ncoll barrier comm odd\n}\n", {"rank 0 is not in communicator odd"});
  refused(two + "rank 0 {\ncoll all_gather_v 5 f32\n}\n", {"must name 2"});
  refused(two + "rank 0 {\ncoll barrier\n}\n", {"t.goal:3:", "rank 0 calls 1 collective", "rank 1 0"});
  refused(two + "rank 0 {\ncoll all_gather 5 f32\n}\nrank 1 {\ncoll all_gather 6 f32\n}\n",
          {"t.goal:6:", "all_gather 6 f32", "all_gather 5 f32", "t.goal:3"});
  // What can be read but not performed.
  refused(two + "rank 0 {\nrecv 5b from 1 tag 4\n}\n", {"t.goal:3: recv of rank 0", "rank 1 with tag 4"});
  refused(two + "rank 0 {\na: calc 1\nb: calc 1\na requires b\nb requires a\n}\n", {"2 operations", "line 4"});
  refused(two + "rank 0 {\nsend 9b to 1 tag 5\n}\nrank 1 {\nrecv 8b from 0 tag 5\n}\n",
          {"t.goal:6: recv of rank 1: it receives 8 bytes", "t.goal:3: send of rank 0, with tag 5, has 9"});
  refused(two + "rank 0 {\nsend 99999b to 1\n}\n", {"until rank 1 receives"});
  refused("num_ranks 9\n", {"dgx_h100 has 8 ranks"}, "[study]\npreset = \"dgx_h100\"\nlayout = \"1x8\"\n");
}

TEST_CASE("replay: messages that nobody receives are told of") {
  const replay_result r =
      replayed("num_ranks 2\nrank 0 {\nsend 10b to 1 tag 3\nsend 10b to 1 tag 4\nsend 10b to 1 tag 4\n}\n"
               "rank 1 {\nrecv 10b from 0 tag 4\n}\n",
               loggp);
  REQUIRE(r.remarks.size() == 1);
  CHECK(r.remarks[0] == "2 messages were never received; the first: t.goal:3: send of rank 0");
}

TEST_CASE("replay: what is wrong with a machine's file is said, not that its ranks are its own") {
  const auto file = std::filesystem::temp_directory_path() / ("replay_machine_" + std::to_string(::getpid()) + ".toml");
  const std::string on = "[study]\npreset = \"" + file.string() + "\"\n";
  const auto with = [&](const std::string& latency) {
    std::ofstream{file} << "name = \"three\"\nranks = 3\n[class.wire]\nlatency = \"" << latency
                        << "\"\nbandwidth = \"1GB/s\"\n[[link]]\nfor = { i = \"ranks\" }\nclass = \"wire\"\nfrom = "
                           "\"node {i}\"\nto = \"middle\"\n[[rank]]\nfor = { i = \"ranks\" }\nat = \"node {i}\"\n";
  };
  with("nanns");
  refused("num_ranks 3\n", {":4: wire.latency is \"nanns\""}, on);
  refused("num_ranks 9\n", {":4: wire.latency is \"nanns\""}, on);
  with("1us");
  refused("num_ranks 9\n", {"has 3 ranks, the trace 9"}, on);
  CHECK(replayed("num_ranks 2\nrank 0 {\nsend 1000b to 1\n}\nrank 1 {\nrecv 1000b from 0\n}\n", on).outcome.end_ps > 0);
  std::filesystem::remove(file);
}

TEST_CASE("replay: a message may be shorter than its receive, which is said once") {
  const auto moved = [](const char* received) {
    std::string text = "num_ranks 2\nrank 0 {\ns: send 10b to 1 tag 3\nsend 10b to 1 tag 4\n}\nrank 1 {\nrecv ";
    return replayed(text + received + "b from 0 tag 3\nrecv " + received + "b from 0 tag -1\n}\n", loggp);
  };
  const replay_result shorter = moved("20"), equal = moved("10");
  CHECK(shorter.outcome.end_ps == equal.outcome.end_ps);  // what the message has counts
  CHECK(equal.remarks.empty());
  REQUIRE(shorter.remarks.size() == 1);
  CHECK(shorter.remarks[0] == "2 messages are shorter than what is received; the first: t.goal:7: recv of rank 1: it "
                              "receives 20 bytes, but the "
                              "message of t.goal:3: send of rank 0, with tag 3, has 10");
}

TEST_CASE("replay: no damage of a trace brings more than an error") {
  const std::string whole =
      "num_ranks 3\ncomm c { 0 2 }\nrank 0 {\nl1: calc 100 cpu 1\nl2: send 64b to 1 tag 7\nl2 requires l1\n"
      "l3: coll all_reduce 10 f32 sum\nl3 irequires l2\ncoll barrier comm c\n}\nrank 1 {\nl1: recv 64b from 0 tag 7 "
      "nic 0\n"
      "l2: coll all_reduce 10 f32 sum // end\nl2 requires l1\n}\nrank 2 {\n/* nothing */ coll all_reduce 10 f32 "
      "sum\ncoll barrier comm c\n}\n";
  static_cast<void>(replayed(whole, "[study]\nchoreography = \"one_shot\"\n"));
  std::mt19937_64 random{seed()};
  const std::string letters = "0123456789{}:lr -/*b\n\t\xff";
  int performed = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = whole;
    for (int change = static_cast<int>(random() % 4); change >= 0 && !text.empty(); --change) {
      const std::size_t at = random() % text.size(), length = random() % 12;
      switch (random() % 4) {
        case 0: text[at] = letters[random() % letters.size()]; break;
        case 1: text.erase(at, length); break;
        case 2: text.insert(at, 1, letters[random() % letters.size()]); break;
        default: text.insert(at, text.substr(random() % text.size(), length)); break;
      }
    }
    INFO(text);
    try {
      const application made = parsed(text);
      if (made.ranks.size() > 16 || performed > 100) continue;
      ++performed;
      static_cast<void>(replayed(text, "[study]\nchoreography = \"one_shot\"\n"));
    } catch (const error& why) {
      CHECK_MESSAGE((why.code_value() == errc::bad_config || why.code_value() == errc::unsupported ||
                     why.code_value() == errc::size_overflow),
                    why.what());
    }
  }
  CHECK(performed > 0);
}

TEST_CASE("goal: measured times, of one clock and of several") {
  const auto text = [](const char* rank, const char* clock, const char* times) {
    return std::string{"num_ranks 2\n"} + clock + "rank " + rank + " {\na: calc 10\n" + times + "}\n";
  };
  using both = std::vector<trace_text>;
  const auto begins = [](const application& a) {
    return std::pair{a.recorded.at(0).at(0).begin_ps, a.recorded.at(1).at(0).begin_ps};
  };
  const std::string zero = text("0", "//@ clock x 1000\n", "//@ a from 5\n//@ a to 25\n");
  const application one = read_goal(both{{"a", zero}, {"b", text("1", "//@ clock x 1100\n", "//@ a from 5 to 6\n")}});
  CHECK(begins(one) == std::pair<std::int64_t, std::int64_t>{0, 100'000});
  CHECK(one.recorded_end_ps() == 101'000);
  CHECK(begins(read_goal({{"again", write_goal(one)}})) == begins(one));
  // What the processes had of the cores adds up.
  const auto had = [&](const char* rank, const char* cpu) { return text(rank, cpu, "//@ a from 5 to 6\n"); };
  const application two =
      read_goal(both{{"a", had("0", "//@ cpu 150 of 100\n")}, {"b", had("1", "//@ cpu 5 of 20 recording 3\n")}});
  CHECK(two.recorded_cores == 1.75);
  CHECK(two.recorded_cpu_ps == 155'000);
  const application again = read_goal({{"again", write_goal(two)}});
  CHECK(again.recorded_cpu_ps == 155'000);
  CHECK(again.recording_ps == 3000);
  CHECK(again.recorded_cores == doctest::Approx(1.75).epsilon(0.01));
  CHECK(one.recorded_cores == 0);
  CHECK_THROWS_WITH_AS(read_goal({{"a", text("0", "//@ cpu 5\n", "")}}), doctest::Contains("a:2: the line ends"),
                       error);
  CHECK(begins(read_goal(both{{"a", zero}, {"b", text("1", "//@ clock y 1100\n", "//@ a from 5 to 6\n")}})) ==
        std::pair<std::int64_t, std::int64_t>{0, 0});
  CHECK(begins(read_goal(
            both{{"a", text("0", "", "//@ a from 9 to 10\n")}, {"b", text("1", "", "//@ a from 5 to 6\n")}})) ==
        std::pair<std::int64_t, std::int64_t>{0, 0});
  // Without an end it is not known; without any there is no recorded run.
  CHECK(read_goal({{"a", text("0", "", "//@ a from 9\n")}}).recorded.empty());
  CHECK(read_goal({{"a", text("0", "", "// a from 9 to 10\n")}}).recorded.empty());
  for (const auto& [times, said] :
       {std::pair{"//@ b from 1 to 2\n", "a:4: no operation of rank 0 above has the label b"},
        std::pair{"//@ a from x\n", "expected a number of nanoseconds"},
        std::pair{"//@ a to 5 from 4\n", "behind the end of the statement"}})
    CHECK_THROWS_WITH_AS(read_goal({{"a", text("0", "", times)}}), doctest::Contains(said), error);
  CHECK_THROWS_WITH_AS(read_goal({{"a", text("0", "//@ clock\n", "")}}), doctest::Contains("a:2: the line ends"),
                       error);
}

TEST_CASE("record: a run is written as it was called, and can be replayed") {
  const std::string folder =
      (std::filesystem::temp_directory_path() / ("troupe_record_" + std::to_string(::getpid()))).string();
  std::filesystem::create_directories(folder);
  engine_options options;
  options.environment = false;
  options.record = folder + "/run.goal";
  {
    engine e{options};
    for (int world = 0; world < 2; ++world)
      e.run(3, [](communicator& comm) {
        std::vector<float> v(100, 1);
        comm.all_reduce(v, sum);
        communicator part = comm.split(comm.rank() == 1 ? 1 : 0, 0);
        part.broadcast(v, 0);
        request r = comm.all_reduce_async(v, v, sum);
        r.wait();
        persistent p = comm.all_reduce_init(v, v, sum);
        p.run();
        int one = 1, other = 0;
        comm.send_recv(std::span{&one, 1}, (comm.rank() + 1) % 3, std::span{&other, 1}, (comm.rank() + 2) % 3);
        if (comm.rank() == 0) comm.send(v, 2, call_options{.tag = 5});
        if (comm.rank() == 2) comm.recv(v, 0, call_options{.tag = 5});
        comm.barrier();
      });
  }
  for (const char* name : {"/run.goal", "/run-2.goal"}) {
    INFO(name);
    const application made = load_application({folder + name});
    REQUIRE(made.ranks.size() == 3);
    CHECK(made.communicators.size() == 3);  // of the world, of ranks 0 and 2, of rank 1
    int of_world = 0, of_parts = 0;
    for (const auto& c : made.collectives) (c.communicator == 0 ? of_world : of_parts) += 1;
    CHECK(of_world == 5);  // four calls, and what a split asks all ranks
    CHECK(of_parts == 2);
    int sends = 0;
    for (const replay_operation& o : made.ranks[0].operations)
      if (o.what == replay_operation::kind::send) {
        ++sends;
        CHECK(o.amount == (o.tag == 5 ? 400 : 4));
        CHECK(o.peer == (o.tag == 5 ? 2 : 1));
      }
    CHECK(sends == 2);
    // When everything was: in the order of the calls, and a call that has ended is over.
    REQUIRE(made.recorded.size() == 3);
    std::int64_t first = std::numeric_limits<std::int64_t>::max();
    for (std::size_t rank = 0; rank < 3; ++rank) {
      REQUIRE(made.recorded[rank].size() == made.ranks[rank].operations.size());
      std::int64_t before = 0;
      for (const application::recorded_time& t : made.recorded[rank]) {
        CHECK(t.begin_ps >= before);
        CHECK(t.end_ps >= t.begin_ps);
        before = t.begin_ps;
        first = std::min(first, t.begin_ps);
      }
      for (const replay_dependency& d : made.ranks[rank].needs)
        CHECK(made.recorded[rank][d.later].begin_ps >= made.recorded[rank][d.earlier].end_ps);
    }
    CHECK(first == 0);
    CHECK(made.recorded_end_ps() > 0);
    replay_request how;
    const replay_result r =
        run_replay(scenario("[study]\npreset = \"dgx_h100\"\n"), std::make_shared<const application>(made), how);
    CHECK(r.outcome.end_ps > 0);
  }
  options.record = folder + "/nowhere/run.goal";
  engine e{options};
  CHECK_THROWS_AS(e.run(1, [](communicator&) {}), error);
  std::filesystem::remove_all(folder);
}

TEST_CASE("record: the training of the examples is replayed as it was called") {
  using troupe_program::folder, troupe_program::run, troupe_program::json;
  const std::string trace = (folder() / "digits.goal").string(), document = (folder() / "digits.json").string();
  const std::string command = "TROUPE_ENGINE_RECORD='" + trace + "' '" TROUPE_TRAINING "' '" + TROUPE_SOURCE_DIR +
                              "/examples/data/digits.csv' >'" + (folder() / "digits.out").string() + "'";
  REQUIRE(std::system(command.c_str()) == 0);
  // The first training: twenty times over 1437 images in batches of 64, whose gradients four ranks average.
  const application made = load_application({trace});
  REQUIRE(made.ranks.size() == 4);
  CHECK(made.communicators.size() == 1);
  REQUIRE(made.collectives.size() == 20 * (1437 / 64));
  for (const application::collective& c : made.collectives) {
    CHECK(c.what.kind.what == collective::all_reduce);
    CHECK(c.what.count == 64 * 48 + 48 + 48 * 10 + 10);
    CHECK(c.what.type == datatype::f32);
    CHECK(c.what.reduction.kind == op_kind::avg);
  }
  std::vector<std::int64_t> computed(4, 0);
  for (std::size_t r = 0; r < 4; ++r)
    for (const replay_operation& o : made.ranks[r].operations)
      if (o.what == replay_operation::kind::calc) computed[r] += static_cast<std::int64_t>(o.amount);

  const std::string before =
      "replay '" + trace + "' --on this_machine --set engine.tuning=none --json '" + document + "'";
  for (const char* how : {"", " --set protocol=simple"}) {
    const auto done = run(before + how);
    REQUIRE_MESSAGE(done.code == 0, done.err);
    CHECK(done.out.find("the replay takes") != std::string::npos);
    const json said = json::parse(troupe_program::contents(document));
    CHECK(said.at("recorded_end_ps") == made.recorded_end_ps());
    CHECK(said.at("recorded_cpu_ps") == made.recorded_cpu_ps);
    CHECK(said.at("recording_ps") == made.recording_ps);
    CHECK(made.recording_ps > 0);
    CHECK(made.recording_ps < made.recorded_cpu_ps);
    CHECK(said.at("recorded_cores").get<double>() == doctest::Approx(made.recorded_cores));
    CHECK(made.recorded_cpu_ps > std::accumulate(computed.begin(), computed.end(), std::int64_t{0}));
    CHECK(done.out.find("its processes had ") != std::string::npos);
    REQUIRE(said.at("ranks").size() == 4);
    for (std::size_t r = 0; r < 4; ++r) {
      const json& rank = said.at("ranks")[r];
      CHECK(rank.at("compute_ps").get<std::int64_t>() == computed[r]);
      CHECK(rank.at("compute_ps").get<std::int64_t>() + rank.at("collective_ps").get<std::int64_t>() +
                rank.at("message_ps").get<std::int64_t>() + rank.at("idle_ps").get<std::int64_t>() ==
            rank.at("end_ps").get<std::int64_t>());
    }
    REQUIRE(said.at("collectives").size() == 1);
    CHECK(said.at("collectives")[0].at("calls") == made.collectives.size());
    CHECK(said.at("collectives")[0].at("bytes") == 4 * (64 * 48 + 48 + 48 * 10 + 10));
    if (*how != '\0') CHECK(said.at("collectives")[0].at("protocol") == "simple");
  }
}

}  // namespace replay_test
