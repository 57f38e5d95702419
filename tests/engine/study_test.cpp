// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/study/study.hpp"

#include "engine/api/engine.hpp"
#include "engine/planning/planner.hpp"
#include "engine/tools/study/bounds.hpp"
#include "engine/tools/study/machine_file.hpp"
#include "memory/error.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "tests/seed.hpp"
#include "tests/trace_curves.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace study_test {

using namespace troupe;
using troupe::job;  // files that are compiled together with this one may bring engine_tests', too
using json = nlohmann::json;

namespace {

study_scenario scenario(const std::string& toml) {
  configuration c;
  c.add_text(toml, "study.toml");
  return read_study(c);
}

study_result run(const std::string& toml, bool record = false) {
  study_run_options o;
  o.record = record ? study_run_options::recorded::all : study_run_options::recorded::none;
  return run_study(scenario(toml), o);
}

constexpr const char* ring = R"(
[study]
choreography = "ring"
ranks = 4
sizes = ["1K", "4K"]
[study.hardware]
link.latency = "500ns"
link.bandwidth = "10 GB/s"
)";

}  // namespace

TEST_CASE("study: a file becomes a row a size") {
  const study_result r = run(ring);
  REQUIRE(r.rows.size() == 2);
  CHECK(r.rows[0].bytes == 1024);
  CHECK(r.rows[0].count == 256);
  CHECK(r.rows[0].outcome.end_ps == 6 * (1'000'000 + 256 * 100));
  CHECK(r.rows[1].outcome.end_ps == 6 * (1'000'000 + 1024 * 100));
  CHECK(r.rows[0].time_us == doctest::Approx(6.1536));
  CHECK(r.rows[0].busbw == doctest::Approx(1024 / 6.1536e3 * 1.5));
  CHECK(r.rows[0].verified);
  CHECK(r.rows[0].latency_bound_us == doctest::Approx(1.0));
  CHECK(r.rows[0].bandwidth_bound_us == doctest::Approx(1.5 * 1024 / 10e3));
  CHECK(r.rows[0].busiest_us == doctest::Approx(6 * 0.0256));
  CHECK(r.remarks.empty());
}

TEST_CASE("study: nested tables, dotted keys and --set name the same constant") {
  const auto overrides = [](const std::string& toml) { return scenario(toml).overrides; };
  const auto expected = overrides("[study.hardware]\nlink.latency = \"2us\"\nlink.units = 2\n");
  CHECK(expected == std::vector<std::pair<std::string, std::string>>{{"link.latency", "2us"}, {"link.units", "2"}});
  CHECK(overrides("[study.hardware.link]\nlatency = \"2us\"\nunits = 2\n") == expected);
  CHECK(overrides("[study.hardware]\n\"link.latency\" = \"2us\"\n\"link.units\" = \"2\"\n") == expected);
  configuration c;
  c.set("study.hardware.link.latency", "2us");
  c.set("hardware.link.units", "2");
  CHECK(read_study(c).overrides == expected);
  configuration again;  // a dump reads back the same
  again.add_text(c.dump(), "dump");
  CHECK(read_study(again).overrides == expected);
}

TEST_CASE("study: mistakes are told where they are, with what would be right") {
  const auto wrong = [](const std::string& toml, const char* text) {
    CAPTURE(toml);
    CHECK_THROWS_WITH_AS(run(toml), doctest::Contains(text), error);
  };
  wrong("[study]\nchoreografy = \"ring\"", "did you mean study.choreography");
  wrong("[study]\nchoreography = \"rings\"", "did you mean ring?");
  wrong("[study]\ncollective = \"send_recv\"", "no collective \"send_recv\" to study");
  wrong("[study]\npreset = \"flatt\"", "did you mean flat?");
  wrong("[study]\nprotocol = \"lll\"", "there are auto, simple, ll, ll128");
  wrong("[study.hardware]\nlink.latencies = \"1us\"", "did you mean link.latency?");
  wrong("[study.hardware]\nlink.latency = \"1 meter\"", "must be a time");
  wrong("[study.hardware]\nlink.bandwidth = \"-3 GB/s\"", "must be a rate");
  wrong("[study.hardware]\nlink.units = 0", "from 1 to 64");
  wrong("[study.hardware]\nlink.discipline = \"lifo\"", "one of fifo, fair, max_min");
  wrong("[study.slow]\n\"up 77\" = 2.0", "no element \"up 77\"");
  wrong("[study.skew]\nten = \"1us\"", "name a rank by its number");
  wrong("[study.skew]\n99 = \"1us\"", "no rank 99");
  wrong("[study]\ncollective = \"reduce\"\nroot = 8", "no rank 8");
  wrong("[study.structure]\nradix = 4", "preset flat has no radix");
  wrong("[study]\npreset = \"machine\"\nlayout = \"2x4\"\nranks = 5", "leave ranks away");
  wrong("[study]\nchoreography = \"csc\"", "ranks of flat do not share");
  wrong("[study]\nchoreography = \"pairwise\"", "does not offer all_reduce");
  wrong("[study]\nchoreography = \"ring\"\nranks = 1000000", "million steps");
  wrong("[study]\ncollective = \"all_gather_v\"\nranks = 3\ncounts = [1, 2]", "one for each rank");
  wrong("[study]\ncollective = \"all_to_all_v\"\nranks = 3\ncounts = [[1, 2], [3, 4]]", "a row of 3 for each rank");
  wrong("[study]\nchoreography = \"ring\"\npayload = \"real\"\nsizes = \"1T\"", "of memory, this computer has");
  wrong("[study.hardware]\nlink.latency = \"9000000s\"", "at most 1000 s");
  wrong("[study.skew]\n3 = \"9000000s\"", "at most 1000 s");
  wrong("[study]\nchoreography = \"ring\"\nsizes = \"1T\"\n[study.hardware]\nlink.bandwidth = \"1 B/s\"",
        "more than 53 days");
}

TEST_CASE("study: auto takes the fastest of all that can, and a small message another one than a large one") {
  const std::string machine = "[study]\nranks = 16\nsizes = [\"64\", \"64M\"]\nprotocol = \"auto\"\n";
  const study_result best = run(machine);
  REQUIRE(best.rows.size() == 2);
  CHECK(best.rows[0].choreography != best.rows[1].choreography);
  for (const char* by : {"ring", "recursive_doubling", "double_binary_tree", "halving_doubling"})
    for (std::size_t i = 0; i < 2; ++i)
      CHECK(run(machine + "choreography = \"" + by + "\"\n").rows[i].time_us >= best.rows[i].time_us);
}

TEST_CASE("study: where nothing limits a chunk, auto finds how often to cut") {
  const std::string flat = "[study]\ncollective = \"broadcast\"\npreset = \"flat\"\nranks = 64\nsizes = [\"16M\"]\n";
  const study_row by_hand = run(flat + "choreography = \"ring\"\nslices = 64\n").rows.front();
  const study_row found = run(flat + "choreography = \"auto\"\n", true).rows.front();
  CHECK(found.cut.slices > 1);
  CHECK(found.time_us < by_hand.time_us);
  CHECK(found.time_us >= found.bound_us());
  // Where the scenario says it, that is so.
  CHECK(run(flat + "choreography = \"auto\"\nslices = 4\n").rows.front().cut.slices == 4);
}

TEST_CASE("study: where slots limit a chunk, auto cuts further than they ask for if that is faster") {
  for (const char* machine : {"preset = \"gh200_16\"\n", "preset = \"dgx_h100\"\nlayout = \"3x5\"\n"})
    for (const char* what : {"broadcast", "reduce", "all_reduce"})
      for (const char* size : {"256K", "4M"}) {
        CAPTURE(machine);
        CAPTURE(what);
        CAPTURE(size);
        const std::string study =
            std::string{"[study]\n"} + machine + "collective = \"" + what + "\"\nsizes = [\"" + size + "\"]\n";
        const study_row found = run(study + "choreography = \"auto\"\n").rows.front();
        CHECK(found.time_us >= found.bound_us());
        for (const choreography* one : all_choreographies()) {
          const std::string by = study + "choreography = \"" + std::string{one->name} + "\"\n";
          try {
            const study_row as_asked = run(by).rows.front();
            CHECK_MESSAGE(found.time_us <= as_asked.time_us, one->name);
            for (int slices = 64; slices > as_asked.cut.slices; slices /= 2) {
              const study_row row = run(by + "slices = " + std::to_string(slices) + "\n").rows.front();
              CHECK_MESSAGE(found.time_us <= row.time_us, one->name, " in ", slices, " slices");
            }
          } catch (const error& why) {
            CHECK(why.code_value() == errc::unsupported);
          }
        }
      }
}

TEST_CASE("study: slices that a step takes together are under way together; one by one, each pays for the latency") {
  const std::string machine = "[study]\nranks = 8\npreset = \"flat\"\nsizes = [\"1M\"]\n";
  const auto row = [&](const std::string& more) { return run(machine + more).rows.front(); };
  for (const char* by : {"ring", "pairwise", "halving_doubling"}) {
    CAPTURE(by);
    const std::string alone = "collective = \"" +
                              std::string{by == std::string{"pairwise"} ? "all_to_all" : "all_reduce"} +
                              "\"\nchoreography = \"" + by + "\"\n";
    const double whole = row(alone).time_us, one_by_one = row(alone + "slices = 4\n").time_us;
    const study_row together = row(alone + "slices = 4\nslices_per_step = 4\n");
    CHECK(together.cut == cutting{1, 4, 4});
    CHECK(together.time_us <= one_by_one);
    CHECK(one_by_one > whole);
    if (by == std::string{"ring"}) CHECK(together.time_us < whole);
    // The states take the same time, and bring the right bytes.
    const std::string grouped = alone + "slices = 5\nslices_per_step = 2\n";
    CHECK(row(grouped + "performed_by = \"states\"\npayload = \"real\"\n").wrong == 0);
    CHECK(row(grouped + "performed_by = \"states\"\n").outcome.end_ps ==
          row(grouped + "performed_by = \"player\"\n").outcome.end_ps);
  }
  // auto takes them together where that is the fastest …
  const study_row found = row("collective = \"reduce_scatter\"\nchoreography = \"auto\"\n");
  for (const char* by : {"ring", "halving_doubling", "direct_full_mesh"})
    for (const char* slices : {"1", "2", "4"})
      CHECK(found.time_us <= row("collective = \"reduce_scatter\"\nchoreography = \"" + std::string{by} +
                                 "\"\nslices = 4\nslices_per_step = " + slices + "\n")
                                 .time_us);
  // … and with too few credits there is a fault with that text.
  const auto refused = [&](const std::string& more, const char* text) {
    CHECK_THROWS_WITH_AS(row(more + "slices = 4\nslices_per_step = 2\n"), doctest::Contains(text), error);
  };
  refused("choreography = \"ring\"\ncredits = 2\n", "waits for a credit");
  // Cells in L0 are the same memory in every slice; what is not cut has one.
  const auto useless = [](const std::string& more, const char* why) {
    CHECK_THROWS_WITH_AS(run("[study]\nranks = 4\nsizes = [\"1M\"]\nslices_per_step = 2\n" + more),
                         doctest::Contains(why), error);
  };
  useless("preset = \"sunway_card\"\nchoreography = \"csc\"\nslices = 4\n", "L0");
  useless("choreography = \"ring\"\n", "is not cut");
  // Of several sizes those that are cut take it, and the others are a remark.
  const study_result some = run("[study]\nranks = 4\nsizes = [\"1K\", \"1M\"]\nslices_per_step = 2\nchunk_bytes = "
                                "\"64K\"\nchoreography = \"ring\"\n");
  CHECK(some.rows.front().cut.slices_per_step == 1);
  CHECK(some.rows.back().cut.slices_per_step == 2);
  REQUIRE(!some.remarks.empty());
  CHECK(some.remarks.front().find("1K by ring, simple, is not cut") != std::string::npos);
  // With auto, and so many a step, it looks for how many slices.
  const study_row wished =
      run("[study]\nranks = 16\npreset = \"flat\"\nsizes = [\"1M\"]\nchoreography = \"auto\"\nslices_per_step = 4\n")
          .rows.front();
  CHECK(wished.cut.slices_per_step > 1);
  CHECK(wished.cut.slices_per_step <= 4);
}

TEST_CASE("study: where switches reduce, slices do not wait for one another's way over the wire") {
  const auto time = [](const std::string& layout, const std::string& by, int slices) {
    // Credits do not hold messages back.
    return run("[study]\npreset = \"dgx_h100\"\nlayout = \"" + layout +
               "\"\nsizes = [\"16M\"]\ncredits = 1000\nchoreography = \"" + by +
               "\"\nslices = " + std::to_string(slices) + "\n[study.hardware]\nnic.latency = \"50us\"\n")
        .rows.front()
        .time_us;
  };
  for (const char* by : {"nvls", "nvls_tree", "collnet_chain", "collnet_direct"}) {
    CAPTURE(by);
    const double whole = time("4x8:both", by, 1);
    for (const int slices : {4, 16, 64}) CHECK(time("4x8:both", by, slices) < whole);
  }
  // A seat's own share of what is multicast is as early as that of the others.
  CHECK(time("1x8:inside", "nvls", 32) < time("1x8:inside", "nvls", 1));
}

TEST_CASE("study: protocols change bytes, latencies and how cells are cut") {
  const auto time = [](const std::string& more) {
    return run("[study]\nchoreography = \"ring\"\ncollective = \"broadcast\"\nranks = 2\nsizes = [\"1M\"]\n" + more)
        .rows[0];
  };
  const auto simple = time(""), ll = time("protocol = \"ll\"\n"), ll128 = time("protocol = \"ll128\"\n");
  CHECK(simple.cut.slices == 1);
  CHECK(ll.cut.slices == 64);
  CHECK(ll128.cut.slices == 2);
  CHECK(ll.outcome.use[0].bytes == 2 * simple.outcome.use[0].bytes);
  // Whole lines: the last one of a message is sent whole.
  CHECK(ll128.outcome.use[0].bytes % 128 == 0);
  CHECK(ll128.outcome.use[0].bytes >= simple.outcome.use[0].bytes * 128 / 120);
  CHECK(ll128.outcome.use[0].bytes <= simple.outcome.use[0].bytes * 128 / 120 + 128 * ll128.outcome.use[0].messages);
  CHECK(time("slices = 4\n").cut.slices == 4);
  CHECK(time("chunk_bytes = \"64K\"\n").cut.slices == 16);
  CHECK(time("credits = 1\nslices = 16\n").time_us > time("slices = 16\n").time_us);
}

TEST_CASE("study: v-forms with counts, and real payloads are checked") {
  const std::string counts =
      "[study]\npayload = \"real\"\ncollective = \"all_to_all_v\"\nchoreography = \"pairwise\"\nranks = 3\n"
      "counts = [[1, 2, 3], [40, 0, 60], [7, 8, 9]]\nunit = 100\n";
  const study_result r = run(counts);
  CHECK(r.rows[0].wrong == 0);
  // Rank 1 sends 4000 and 6000 elements: nobody can be faster than its up link.
  CHECK(r.rows[0].bandwidth_bound_us == doctest::Approx(4.0));
  CHECK(r.rows[0].time_us >= r.rows[0].bound_us());
}

TEST_CASE("study: the JSON document, the CSV and the trace say what happened") {
  const study_result r = run(std::string{ring} + "host.reduce_rate = \"20GB/s\"\n", true);
  const json j = json::parse(study_json(r));
  CHECK(j["troupe_study"] == 1);
  CHECK(j["collective"] == "all_reduce");
  CHECK(j["choreography"] == "ring");
  CHECK(j["ranks"] == 4);
  CHECK(j["bytes"] == 4096);
  CHECK(j["end_ps"] == r.rows[1].outcome.end_ps);
  CHECK(j["parts"] == 4);
  CHECK(j["scenario"]["study.choreography"] == "ring");
  CHECK(j["actors"].size() == 4 + 8);
  CHECK(j["actors"][4]["name"] == "up 0");
  CHECK(j["moves"].size() == r.rows[1].outcome.messages);
  CHECK(j["rows"].size() == 2);
  std::set<std::string> kinds;
  for (const auto& s : j["spans"]) {
    REQUIRE(s.size() == 8);
    REQUIRE(s[0] < 12);
    REQUIRE(s[1] <= s[2]);
    kinds.insert(j["span_kinds"][s[3].get<std::size_t>()]);
  }
  CHECK(kinds == std::set<std::string>{"copy", "occupy", "reduce", "send", "wait_chunk"});
  // Each of the four parts is reduced three times, and moved on three times.
  int reducing = 0;
  for (const auto& m : j["moves"]) {
    reducing += m[8].get<int>();
    CHECK(m[5] == 0);
    CHECK(m[6] >= 0);
    CHECK(m[6] < 4);
  }
  CHECK(reducing == 12);
  std::int64_t at = 0;
  for (const auto& s : j["critical_path"]) {
    CHECK(s["begin_ps"] == at);
    at = s["end_ps"];
    CHECK(s["text"].get<std::string>().find("{time}") == std::string::npos);
  }
  CHECK(at == j["end_ps"]);
  const json trace = json::parse(study_trace(r));
  std::size_t begins = 0, ends = 0;
  for (const auto& e : trace["traceEvents"]) begins += e["ph"] == "s", ends += e["ph"] == "f";
  CHECK(begins == r.rows[1].outcome.messages);
  CHECK(ends == begins);
  CHECK(troupe_tests::spans_nest(study_trace(r)));
  // The curves: message seconds are those of the moves, and nothing is left at the end.
  std::map<std::string, std::vector<std::pair<double, double>>> curves;
  for (const auto& e : trace["traceEvents"])
    if (e["ph"] == "C") curves[e["name"]].emplace_back(e["ts"], e["args"]["value"]);
  CHECK(curves.contains("messages served: link"));
  double expected = 0, area = 0;
  for (const auto& m : j["moves"]) expected += m[4].get<double>() - m[3].get<double>();
  const auto& under_way = curves["messages under way"];
  for (std::size_t i = 0; i + 1 < under_way.size(); ++i)
    area += (under_way[i + 1].first - under_way[i].first) * under_way[i].second;
  CHECK(area * 1e6 == doctest::Approx(expected));
  for (const auto& curve : curves) {
    CAPTURE(curve.first);
    CHECK(curve.second.back().second == 0);
    for (const auto& point : curve.second) CHECK(point.second >= 0);
  }
  std::istringstream csv{study_csv(r)};
  int lines = 0;
  for (std::string line; std::getline(csv, line); ++lines) CHECK(std::count(line.begin(), line.end(), ',') == 23);
  CHECK(lines == 3);
}

TEST_CASE(
    "study: where a rank's lanes wait at once the trace has tracks beside each other, and arrows find their spans") {
  configuration c;
  c.add_text("[study]\npreset = \"machine\"\nlayout = \"2x4\"\nchoreography = \"double_binary_tree\"\nchannels = 2\n"
             "sizes = \"64K\"\n",
             "study.toml");
  study_run_options o;
  o.record = study_run_options::recorded::all;
  const std::string text = study_trace(run_study(read_study(c), o));
  CHECK(troupe_tests::spans_nest(text));
  using track = std::pair<int, int>;
  std::map<track, std::vector<std::pair<double, double>>> spans;
  std::map<std::string, int> names;
  const json trace = json::parse(text);
  for (const auto& e : trace["traceEvents"]) {
    if (e["ph"] == "X") spans[track{e["pid"], e["tid"]}].emplace_back(e["ts"], e["dur"]);
    if (e["ph"] == "M" && e["name"] == "thread_name") ++names[e["args"]["name"]];
  }
  CHECK(names["rank 3"] == 1);
  CHECK(names["rank 3 (2)"] == 1);
  for (const auto& e : trace["traceEvents"]) {
    if (e["ph"] != "s" && e["ph"] != "f") continue;
    const double at = e["ts"];
    CHECK(std::ranges::any_of(spans[track{e["pid"], e["tid"]}],
                              [&](const auto& s) { return s.first <= at + 1e-7 && at <= s.first + s.second + 1e-7; }));
  }
}

TEST_CASE("study: every size is recorded, as long as there is room; the one to be shown first of all") {
  study_run_options o;
  o.record = study_run_options::recorded::all;
  o.at = 1024;
  const study_result r = run_study(scenario(ring), o),
                     alone = run(std::string{ring} + "[study.skew]\n0 = \"0us\"\n", true);
  CHECK(r.shown == 0);
  CHECK(alone.shown == 1);
  REQUIRE((r.rows[0].recording && r.rows[1].recording));
  CHECK(r.rows[1].recording->moves.size() == r.rows[1].outcome.messages);
  const json first = json::parse(study_json(r)), last = json::parse(study_json(alone));
  CHECK(first["bytes"] == 1024);
  CHECK(first["row"] == 0);
  for (const char* of : {"spans", "moves", "critical_path", "end_ps", "utilisation", "parts"}) {
    CHECK(first["sizes"][0][of] == last[of]);
    CHECK(first[of] == last["sizes"][0][of]);
  }
  o.at = 3000;
  CHECK_THROWS_WITH_AS(run_study(scenario(ring), o), doctest::Contains("no size 3000 to show; its sizes are 1K, 4K"),
                       error);

  // Four times 130 816 steps are more than half a million.
  o.at.reset();
  const study_result large = run_study(
      scenario("[study]\nchoreography = \"ring\"\nranks = 256\nsizes = [\"1K\", \"2K\", \"4K\", \"8K\"]\n"), o);
  CHECK(large.rows[3].recording);
  CHECK(large.rows[1].recording);
  CHECK_FALSE(large.rows[0].recording);
  CHECK(large.remarks.back().starts_with("not recorded: 1K, as all sizes together have more than"));
}

TEST_CASE("study: a real run gives the same bits as the same plan in virtual time") {
  std::mt19937_64 random(seed());
  std::uniform_real_distribution<float> any{-1e6F, 1e6F};
  for (const char* by :
       {"ring", "double_binary_tree", "recursive_doubling", "halving_doubling", "one_shot", "direct_full_mesh"}) {
    const int ranks = 2 + static_cast<int>(random() % 6);
    const std::size_t count = 1 + random() % 40000;
    engine_options options;
    options.choreography_of["all_reduce"] = by;
    options.protocol = "simple";
    options.channels = 1 + static_cast<int>(random() % 2);
    call what;
    what.what = collective::all_reduce;
    what.type = datatype::f32;
    what.reduction = sum;
    what.count = count;
    const auto plan = planner{options}.plan_for(what, layout::flat(ranks));
    std::vector<std::vector<float>> in(static_cast<std::size_t>(ranks), std::vector<float>(count)), real = in,
                                                                                                    study = in;
    for (auto& buffer : in)
      for (float& x : buffer) x = any(random);
    engine on{options};
    on.run(ranks, [&](communicator& comm) {
      const auto r = static_cast<std::size_t>(comm.rank());
      comm.all_reduce(std::span<const float>(in[r]), std::span<float>(real[r]), sum);
    });
    std::vector<memory_map> maps(static_cast<std::size_t>(ranks));
    for (std::size_t r = 0; r < maps.size(); ++r) {
      maps[r].input = reinterpret_cast<std::byte*>(in[r].data());
      maps[r].output = reinterpret_cast<std::byte*>(study[r].data());
    }
    const hardware machine = flat_hardware(ranks);
    virtual_options o;
    o.protocol = machine.protocols[0];
    o.carry = payload::real;
    o.memory = maps;
    call_shape shape = plan->shape();  // of the largest of its class
    shape.count = count;
    perform_virtually(*plan->notes, shape, plan->cut(), machine, o);
    CAPTURE(by);
    for (std::size_t r = 0; r < maps.size(); ++r)
      CHECK(std::memcmp(real[r].data(), study[r].data(), count * sizeof(float)) == 0);
  }
}

TEST_CASE("study: stuck lanes, foreign hardware and cancelling are errors, not hangs") {
  const hardware two = flat_hardware(2);
  score s;
  s.choreography = "stuck";
  s.what = collective::barrier;
  s.ranks = 2;
  s.players.resize(2);
  step waits;
  waits.kind = step_kind::recv;
  waits.from = 1;
  s.players[0].lanes = {{waits}};
  virtual_options o;
  o.protocol = two.protocols[0];
  CHECK_THROWS_WITH_AS(perform_virtually(s, {}, {}, two, o),
                       doctest::Contains("rank 0 lane 0 step 0 waits for a chunk from rank 1"), error);
  CHECK_THROWS_WITH_AS(perform_virtually(s, {}, {}, flat_hardware(3), o), doctest::Contains("has 3 ranks, the score 2"),
                       error);
  study_run_options stop;
  stop.go_on = [] { return false; };
  CHECK_THROWS_AS(run_study(scenario(ring), stop), error);
}

namespace {

/// µs that the bandwidths ask for.
double bound_of_8_mib(const hardware& on, collective what) {
  job j;
  j.bytes = 8 << 20;
  j.kind.what = what;
  return bounds_of(on, cuts_of(on), j.kind, shape_of(j, on.ranks), 4, 0).bandwidth_us;
}

}  // namespace

TEST_CASE("bounds: what ranks must send and receive over what they can") {
  const auto on = flat_hardware(8);
  const auto bound = [&](collective what) { return bound_of_8_mib(on, what); };
  const double whole = (8 << 20) / 10e3;  // µs of S at 10 GB/s
  CHECK(bound(collective::all_reduce) == doctest::Approx(2 * 7.0 / 8 * whole));
  for (const collective what : {collective::all_gather, collective::reduce_scatter, collective::gather,
                                collective::scatter, collective::all_to_all})
    CHECK(bound(what) == doctest::Approx(7.0 / 8 * whole));
  CHECK(bound(collective::broadcast) == doctest::Approx(whole));
  CHECK(bound(collective::reduce) == doctest::Approx(whole));
}

TEST_CASE("bounds: what several ranks share bounds them together") {
  // Two servers of four cards, a NIC each: of n bytes, n must leave each server and n enter it, half of them for all_gather.
  hardware two = build_preset("machine", {0, "2x4", {}});
  two.set("nic.bandwidth", "1 GB/s");
  const double whole = (8 << 20) / 1e3;  // µs at 1 GB/s
  CHECK(bound_of_8_mib(two, collective::all_reduce) == doctest::Approx(whole));
  CHECK(bound_of_8_mib(two, collective::broadcast) == doctest::Approx(whole));
  CHECK(bound_of_8_mib(two, collective::all_gather) == doctest::Approx(whole / 2));
  CHECK(bound_of_8_mib(two, collective::reduce_scatter) == doctest::Approx(whole / 2));
  CHECK(bound_of_8_mib(two, collective::all_to_all) ==
        doctest::Approx(2 * whole));  // 4 · 4 of 64 blocks, of 8 times 8 MiB
  // Four hosts a leaf and one uplink: each host's port could do it four times as fast.
  hardware tree = build_preset("fat_tree", {16, "", {{"radix", "8"}, {"oversubscription", "3"}}});
  tree.set("host_port.bandwidth", "1000 GB/s");
  tree.set("trunk.bandwidth", "1 GB/s");
  CHECK(bound_of_8_mib(tree, collective::all_reduce) >= 0.99 * whole / 2);
  CHECK(bound_of_8_mib(tree, collective::all_reduce) <= 1.01 * whole);
}

TEST_CASE("bounds: what carries both directions, or everybody's messages, bounds them together") {
  const double whole = (8 << 20) / 1e3;  // µs at 1 GB/s
  // A half-duplex NIC a server: what enters it waits for what leaves it. Also where a server is one rank.
  for (const std::string layout : {"2x4", "2x1"}) {
    CAPTURE(layout);
    hardware two = build_preset("machine", {0, layout, {}});
    two.set("nic.bandwidth", "1 GB/s");
    const double all_reduce = bound_of_8_mib(two, collective::all_reduce),
                 all_gather = bound_of_8_mib(two, collective::all_gather);
    two.set("nic.directions", "half");
    // Less a latency of some microseconds, which may pass meanwhile.
    CHECK(bound_of_8_mib(two, collective::all_reduce) == doctest::Approx(2 * all_reduce).epsilon(0.001));
    CHECK(bound_of_8_mib(two, collective::all_gather) == doctest::Approx(2 * all_gather).epsilon(0.001));
    CHECK(bound_of_8_mib(two, collective::broadcast) == doctest::Approx(whole));
  }
  // 16 ranks behind one core: everybody's bytes pass it.
  const hardware bus = read_machine(R"(
name = "bus"
ranks = 16
[class.port]
bandwidth = "100 GB/s"
[class.core]
bandwidth = "1 GB/s"
[[element]]
for = { r = "ranks" }
class = "port"
name = "up {r}"
pair = "down {r}"
rank = "r"
[[element]]
class = "core"
name = "core"
[[route]]
via = ["up {from}", "core", "down {to}"]
)",
                                    "bus.toml", {});
  CHECK(bound_of_8_mib(bus, collective::all_reduce) == doctest::Approx(2 * 15 * whole));
  CHECK(bound_of_8_mib(bus, collective::all_gather) == doctest::Approx(15 * whole));
  CHECK(bound_of_8_mib(bus, collective::gather) == doctest::Approx(15.0 / 16 * whole));
}

TEST_CASE("a layout of more levels: a message takes the time of the lowest level that joins its ranks") {
  const auto time_of = [](const std::string& layout, const std::string& rest) {
    return run("[study]\npreset = \"fat_tree\"\nsizes = \"64\"\nlayout = \"" + layout + "\"\n" + rest)
        .rows.at(0)
        .time_us;
  };
  // Hardly any bytes: 1 µs under a leaf, 1.6 between them (a host's port 0.5, a switch 0.3).
  const std::string gather = "collective = \"all_gather\"\nchoreography = \"hierarchical\"\n";
  const double leaf = time_of("8x1", gather), leaves = time_of("4x8x1x1", gather);
  CHECK(leaf == doctest::Approx(7 * 1.0).epsilon(0.05));
  CHECK(leaves == doctest::Approx(7 * 1.0 + 3 * 1.6).epsilon(0.05));
  CHECK(time_of("32x1", gather) > 31 * 1.0);
  const std::string reduce = "collective = \"all_reduce\"\nchoreography = \"hierarchical_hd\"\n";
  CHECK(time_of("4x8x1x1", reduce) == doctest::Approx(2 * (3 * 1.0 + 2 * 1.6)).epsilon(0.05));
}

TEST_CASE("bounds: nothing is faster, on any preset, of any collective") {
  for (const char* what : {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter",
                           "all_to_all", "scan", "exscan"})
    for (const char* machine :
         {"preset = \"machine\"\nlayout = \"2x4\"",
          "preset = \"machine\"\nlayout = \"2x4\"\nhardware.nic.directions = \"half\"",
          "preset = \"machine\"\nlayout = \"3x2x2\"", "preset = \"fat_tree\"\nranks = 24\nstructure.radix = 8",
          "preset = \"ascend_a2\"\nlayout = \"2x4\"", "preset = \"dgx_h100\"\nlayout = \"2x8\"",
          "preset = \"tianhe_32\"", "preset = \"sunway_card\"", "preset = \"gh200_16\""}) {
      CAPTURE(what);
      CAPTURE(machine);
      const auto r = run(std::string{"[study]\ncollective = \""} + what +
                         "\"\nchoreography = \"auto\"\nsizes = \"1M\"\n" + machine);
      for (const study_row& row : r.rows) CHECK(row.bound_us() <= row.time_us * (1 + 1e-9));
    }
}

TEST_CASE("bounds: where links carry one direction at a time nothing is faster either") {
  // Such a link is busy from the beginning to the end, latency or not.
  for (const char* what : {"all_to_all", "all_gather", "all_reduce", "reduce_scatter", "broadcast", "gather"})
    for (const char* machine :
         {"ranks = 37\n[study.hardware]\nlink.directions = \"half\"",
          "preset = \"fat_tree\"\nranks = 32\nstructure.radix = 8\n[study.hardware]\ntrunk.directions = \"half\"\n"
          "host_port.directions = \"half\"",
          "preset = \"machine\"\nlayout = \"3x3\"\n[study.hardware]\nnic.directions = \"half\""})
      for (const char* sizes : {"64", "4K", "1M"}) {
        CAPTURE(what);
        CAPTURE(machine);
        const auto r = run(std::string{"[study]\ncollective = \""} + what + "\"\nchoreography = \"auto\"\nsizes = \"" +
                           sizes + "\"\n" + machine);
        for (const study_row& row : r.rows) CHECK(row.bound_us() <= row.time_us * (1 + 1e-9));
      }
}

TEST_CASE("bounds: also on many ranks with wires of their own nothing is faster") {
  for (const char* what : {"all_to_all", "all_gather", "all_reduce"}) {
    CAPTURE(what);
    const auto r =
        run(std::string{"[study]\ncollective = \""} + what +
            "\"\nchoreography = \"hierarchical\"\npreset = \"ascend_a2\"\nlayout = \"64x16\"\nsizes = \"64M\"\n"
            "[study.hardware]\nrail.bandwidth = \"1000 GB/s\"");
    CHECK(r.rows.at(0).bound_us() <= r.rows.at(0).time_us);
    CHECK(r.rows.at(0).bound_us() > 0);
  }
}

TEST_CASE("troupe study: table, sweeps and files") {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("troupe_study_test_" + std::to_string(getpid()));
  fs::create_directories(folder);
  std::ofstream{folder / "ring.toml"} << ring;
  const auto call = [&](const std::string& arguments) {
    const std::string line =
        "cd '" + folder.string() + "' && '" TROUPE_PROGRAM "' study " + arguments + " >out 2>err </dev/null";
    return WEXITSTATUS(std::system(line.c_str()));
  };
  const auto text = [&](const char* name) {
    std::ifstream file{folder / name};
    return std::string{std::istreambuf_iterator<char>{file}, {}};
  };
  CHECK(call("ring.toml --sweep ranks=2,8 --json j --csv c --trace t --path --set payload=real") == 0);
  CHECK(text("out").find("ring, simple") != std::string::npos);
  CHECK(text("out").find("Critical path") != std::string::npos);
  const json j = json::parse(text("j"));
  REQUIRE(j["sweeps"].size() == 1);
  CHECK(j["sweeps"][0]["points"].size() == 4);
  CHECK(j["rows"][0]["wrong"] == 0);
  CHECK(json::parse(text("t")).contains("traceEvents"));
  CHECK(call("ring.toml --set choreography=ringg") == 2);
  CHECK(text("err").find("did you mean ring?") != std::string::npos);
  CHECK(call("ring.toml --sweep choreography=pairwise,halving_doubling --json j") == 2);
  CHECK(json::parse(text("j"))["sweeps"][0]["points"].size() == 2);
  CHECK(json::parse(text("j"))["sweeps"][0]["refused"][0]["value"] == "pairwise");
  CHECK(call("ring.toml --sweep ranks") == 2);
  CHECK(call("ring.toml --sweep ranks=4,abc,16777216 --json j") == 2);
  CHECK(json::parse(text("j"))["sweeps"][0]["points"].size() == 2);
  CHECK(json::parse(text("j"))["sweeps"][0]["refused"][0]["value"] == "abc");
  CHECK(json::parse(text("j"))["sweeps"][0]["refused"][1]["value"] == "16777216");
  CHECK(text("out").find("it must be an integer") != std::string::npos);
  CHECK(call("ring.toml --sweep ranks=abc,-1") == 2);  // nothing can be run: before the first run
  CHECK(text("out").empty());
  CHECK(call("ring.toml --sweep rnks=2,4") == 2);
  CHECK(text("out").empty());
  CHECK(call("ring.toml --json -") == 0);
  CHECK(json::parse(text("out")).contains("rows"));
  CHECK(call("missing.toml") == 2);
  CHECK(call("") == 2);
  CHECK(call("--presets") == 0);
  CHECK(text("out").find("link.latency") != std::string::npos);
  fs::remove_all(folder);
}

TEST_CASE("every file in config/studies can be studied") {
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator{TROUPE_SOURCE_DIR "/config/studies"}) {
    if (file.path().extension() != ".toml") continue;
    CAPTURE(file.path().filename().string());
    configuration c;
    c.add_file(file.path().string());
    study_scenario s = read_study(c);
    s.sizes.resize(1);
    const study_result r = run_study(s);
    CHECK((s.jobs.empty() ? r.rows.size() == 1 : r.jobs.size() == s.jobs.size()));
    ++files;
  }
  CHECK(files > 0);
}

TEST_CASE("study: what a switch adds up travels by a protocol without flags in its lines") {
  const std::string one = "[study]\npreset = \"dgx_h100\"\nsizes = \"64K\"\n";
  const auto row = [&](const std::string& more) { return run(one + more).rows.at(0); };
  CHECK(row("choreography = \"nvls\"\nprotocol = \"auto\"\n").protocol == "simple");
  CHECK(row("choreography = \"hierarchical\"\nprotocol = \"auto\"\n").protocol != "simple");
  for (const char* protocol : {"ll", "ll128"}) try {
      row("choreography = \"nvls\"\nprotocol = \"" + std::string{protocol} + "\"\n");
      FAIL("performed by " << protocol);
    } catch (const error& why) {
      CHECK(why.code_value() == errc::unsupported);
      CHECK(std::string{why.what()}.find("would add them up") != std::string::npos);
    }
  CHECK(row("protocol = \"ll128\"\n").choreography != "nvls");
}

TEST_CASE("study: an element that is slower or down for a time") {
  // One message of 1 MiB on flat ports: 0.5 + 104.8576 + 0.5 us.
  const auto end = [](const std::string& faults, const std::string& more = "") {
    configuration c;
    c.add_text("[study]\ncollective = \"broadcast\"\nchoreography = \"binomial\"\nsizes = \"1M\"\nranks = 2\n" + more +
                   "[study.faults]\n" + faults,
               "f.toml");
    return run_study(read_study(c)).rows.at(0).outcome.end_ps;
  };
  constexpr std::int64_t us = 1'000'000, alone = 105'857'600;
  CHECK(end("") == alone);
  CHECK(end("\"up 0\" = \"down from 20us to 30us\"\n") == alone + 10 * us);
  CHECK(end("\"up 0\" = \"down from 0 to 30us\"\n") == alone + 30 * us);
  CHECK(end("\"up 0\" = \"4 from 20us to 40us\"\n") == alone + 15 * us);
  CHECK(end("up = \"3 from 0\"\n") == alone + 2 * (alone - us));
  // What is not there any more, or not yet, makes no difference.
  CHECK(end("\"up 0\" = \"down from 200us to 300us\"\n\"up 1\" = \"9 from 0\"\n") == alone);
  // The other port is hindered for as long; cut through, both wait at the same time.
  CHECK(end("\"up 0\" = \"down from 20us to 30us\"\n\"down 1\" = \"down from 20us to 30us\"\n") == alone + 10 * us);
  CHECK(end("\"up 0\" = \"down from 20us to 30us, 2 from 50us to 60us\"\n") == alone + 15 * us);

  const auto wrong = [&](const std::string& faults, const std::string& word, const std::string& more = "") {
    try {
      end(faults, more);
      FAIL("accepted: " << faults);
    } catch (const error& why) {
      CHECK_MESSAGE(std::string{why.what()}.find(word) != std::string::npos, std::string{why.what()});
    }
  };
  wrong("\"up 7\" = \"2 from 0\"\n", "no element \"up 7\"");
  wrong("\"up 0\" = \"half from 0\"\n", "1 to 1000");
  wrong("\"up 0\" = \"0.5 from 0\"\n", "1 to 1000");
  wrong("\"up 0\" = \"2\"\n", "from when to when");
  wrong("\"up 0\" = \"2 from 5us until 6us\"\n", "from when to when");
  wrong("\"up 0\" = \"2 from soon\"\n", "must be a time");
  wrong("\"up 0\" = \"2 from 6us to 5us\"\n", "ends before it begins");
  wrong("\"up 0\" = \"down from 5us\"\n", "how long");
  wrong("\"up 0\" = \"2 from 5us to 9us, down from 8us to 10us\"\n", "overlap");
  wrong("\"up 0\" = \"2 from 5us to 9us\"\n", "faults are of fifo", "hardware.link.discipline = \"fair\"\n");
}

}  // namespace study_test
