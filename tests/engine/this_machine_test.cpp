// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/study/this_machine.hpp"

#include "engine/planning/planner.hpp"
#include "engine/tools/replay/replay.hpp"
#include "engine/tools/study/calibrate.hpp"
#include "engine/tools/study/study.hpp"
#include "memory/error.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <tuple>

#include <nlohmann/json.hpp>

using namespace troupe;

namespace {

study_scenario ring_here(int ranks, std::vector<std::size_t> sizes) {
  configuration c;
  c.add_text("[engine]\ntuning = \"none\"\n[study]\npreset = \"this_machine\"\nchoreography = \"ring\"\n", "here.toml");
  study_scenario s = read_study(c);
  s.request.ranks = ranks;
  s.sizes = std::move(sizes);
  return s;
}

tuning with_cores(int cores) {
  tuning t = assumed_tuning();
  t.machine.cores = cores;
  return t;
}

std::int64_t chunk_and_credit(const tuning& t) { return static_cast<std::int64_t>(t.actor_message_ns * 1000); }

}  // namespace

TEST_CASE("this_machine is listed and well-formed") {
  const auto& all = study_presets();
  CHECK(std::count_if(all.begin(), all.end(), [](const preset& p) { return p.name == "this_machine"; }) == 1);
  CHECK(all.size() == all_presets().size() + 1);
  for (const int ranks : {0, 1, 2, 3, 16}) {
    preset_request wanted;
    wanted.ranks = ranks;
    wanted.structure = {{"tuning", "none"}, {"cores", "2"}};
    hardware h = build_study_machine("this_machine", wanted).on;
    CAPTURE(ranks);
    CHECK(h.ranks == (ranks == 0 ? 2 : ranks));
    CHECK(h.arrangement.size() == h.ranks);
    CHECK(h.about.find("assumed") != std::string::npos);
    CHECK_FALSE(h.host.source.empty());
    CHECK(h.host.copy_rate > h.host.reduce_rate);
    for (const element_class& c : h.classes) CHECK_FALSE(c.source.empty());
    std::set<std::string> known;
    for (const hardware_element& e : h.elements) CHECK(known.insert(e.name).second);
    for (int r = 0; r < h.ranks; ++r) {
      const element_index core = h.place_of(r).core;
      CHECK(h.class_of(core).role == element_role::core);
      CHECK(h.elements[static_cast<std::size_t>(core)].name == "core " + std::to_string(r % 2));
    }
    for (const auto& [key, value] : h.settings()) CHECK_NOTHROW(h.set(key, value));
    h.validate();
  }
}

TEST_CASE("this_machine refuses what it does not have") {
  preset_request wanted;
  wanted.layout = "2x4";
  CHECK_THROWS_WITH_AS(build_study_machine("this_machine", wanted), doctest::Contains("say ranks"), error);
  wanted = {};
  wanted.structure = {{"tuning", "/nowhere/tuning.toml"}};
  CHECK_THROWS_WITH_AS(build_study_machine("this_machine", wanted), doctest::Contains("/nowhere/tuning.toml"), error);
  wanted.structure = {{"radix", "4"}};
  CHECK_THROWS_WITH_AS(build_study_machine("this_machine", wanted), doctest::Contains("it has cores|tuning"), error);
  CHECK_THROWS_WITH_AS(build_study_machine("this_machin", {}), doctest::Contains("did you mean this_machine"), error);
}

TEST_CASE("this_machine: rates are those of the caches that the buffers fit into") {
  const tuning t = with_cores(2);
  preset_request wanted;
  wanted.ranks = 4;
  const study_machine m = machine_of(t, wanted);
  host_costs small, large, halves;
  m.rates(2 * 16384, datatype::f32, small);
  m.rates(2.0 * (1 << 26), datatype::f32, large);
  CHECK(small.copy_rate == doctest::Approx(t.copy.points().front().rate * 1e9));
  CHECK(large.copy_rate == doctest::Approx(t.copy.points().back().rate * 1e9));
  CHECK(large.reduce_rate == doctest::Approx(t.reduce.points().back().rate * 1e9));
  m.rates(2 * 16384, datatype::f16, halves);
  CHECK(static_cast<double>(halves.reduce_rate) <= t.type_rate[static_cast<std::size_t>(datatype::f16)] * 1e9 + 1);
}

TEST_CASE("this_machine: times grow with size, and with ranks that share a core") {
  const study_result r = run_study(ring_here(4, {1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 25}));
  for (std::size_t i = 1; i < r.rows.size(); ++i) CHECK(r.rows[i].time_us > r.rows[i - 1].time_us);
  // Beyond the caches every byte takes longer.
  const auto& last = r.rows.back();
  const auto& before = r.rows[r.rows.size() - 2];
  CHECK(last.time_us / before.time_us > static_cast<double>(last.bytes) / static_cast<double>(before.bytes));

  study_scenario s = ring_here(4, {1 << 22});
  s.request.structure = {{"tuning", "none"}, {"cores", "4"}};
  const double alone = run_study(s).rows[0].time_us;
  s.request.structure.back().second = "1";
  CHECK(run_study(s).rows[0].time_us > 3 * alone);
}

TEST_CASE("this_machine: a small ring of two ranks takes what the constants say") {
  study_scenario s = ring_here(2, {8});
  s.request.structure = {{"tuning", "none"}, {"cores", "2"}};
  s.overrides = {{"host.copy_rate", "unlimited"}, {"host.reduce_rate", "unlimited"}};
  const tuning t = with_cores(2);
  // send; receive, reduce, send; receive: of which the receivers' two steps begin with a chunk.
  const auto step = static_cast<std::int64_t>(t.actor_step_ns * 1000);
  const std::int64_t expected =
      static_cast<std::int64_t>(t.actor_operation_seconds(2) * 1e12 + 0.5) + 3 * step + 2 * chunk_and_credit(t);
  CHECK(run_study(s).rows[0].outcome.end_ps == expected);
}

TEST_CASE("this_machine: what a trace calls is performed as an engine does it, over memory that ranks share") {
  // Ranks 0 and 2 share a core, and 1 and 3 the other one. All compute; then those of the communicator meet.
  const auto replayed = [](const std::string& more, const std::string& call) {
    configuration c;
    c.add_text("[engine]\ntuning = \"none\"\n[study]\npreset = \"this_machine\"\n" + more +
                   "[study.structure]\ncores = 2\n",
               "here.toml");
    std::string text = "num_ranks 4\ncomm three { 0 1 2 }\n";
    for (int r = 0; r < 4; ++r)
      text += "rank " + std::to_string(r) + " {\na: calc " + std::to_string(10'000 * (r + 1)) + "\n" +
              (r == 3 ? "" : "b: coll " + call + " comm three\nb requires a\n") + "}\n";
    return run_replay(read_study(c), std::make_shared<const application>(read_goal({{"t.goal", text}})), {});
  };
  const auto asked = [](collective what, std::size_t count) {
    call c;
    c.what = what;
    c.type = datatype::f32;
    c.reduction = sum;
    c.count = count;
    return c;
  };
  planner by{engine_options{}, with_cores(2)};
  for (const auto& each : {std::tuple{collective::all_reduce, std::size_t{3610}, "all_reduce 3610 f32 sum"},
                           {collective::broadcast, std::size_t{64}, "broadcast 64 f32"},
                           {collective::barrier, std::size_t{0}, "barrier"}}) {
    const auto& [what, count, goal] = each;
    const std::string text = goal;
    INFO(text);
    const auto plan = by.plan_for(asked(what, count), layout::flat(3));
    REQUIRE(plan->on_board());
    const replay_result r = replayed("", text);
    REQUIRE(r.groups.size() == 1);
    CHECK(r.groups[0].choreography == plan->choreography);
    CHECK(r.groups[0].protocol == name(plan->protocol()));
    CHECK(r.groups[0].calls == 1);
    // Rank 2 comes last, after 10 and 30 us on the first core; the second one is at work for rank 3 until 60 us.
    const std::int64_t end = 60'000'000 + std::llround(plan->predicted_seconds * 1e12);
    for (const int member : {0, 1, 2}) {
      const replay_span& s = r.outcome.spans[static_cast<std::size_t>(member)][1];
      CHECK(s.begin == std::vector<std::int64_t>{10'000'000, 20'000'000, 40'000'000}[static_cast<std::size_t>(member)]);
      CHECK(s.end == end);
      CHECK((member == 2 || s.from == 2));
    }
    CHECK(r.outcome.ranks[3].end == 60'000'000);
    CHECK(r.outcome.messages == 0);
    CHECK(r.outcome.most_at_once == 1);
    // A study that says how, or what the machine costs, gets the actors' messages.
    for (const char* more :
         {"protocol = \"simple\"\n", "choreography = \"one_shot\"\n", "hardware.core.bandwidth = \"9GB/s\"\n"}) {
      const replay_result actors = replayed(more, text);
      CHECK(actors.groups[0].protocol == "simple");
      CHECK(actors.outcome.messages > 0);
    }
  }
}

TEST_CASE("this_machine: traces' blocks of different sizes go over boards, too") {
  configuration c;
  c.add_text("[engine]\ntuning = \"none\"\n[study]\npreset = \"this_machine\"\n[study.structure]\ncores = 2\n",
             "here.toml");
  std::string text = "num_ranks 3\n";
  for (int r = 0; r < 3; ++r)
    text += "rank " + std::to_string(r) +
            " {\na: coll all_gather_v 1,0,300 f32\nb: coll all_to_all_v 1,2,30 f32\nb requires a\n"
            "c: coll gather_v " +
            (r == 1   ? "5,6,7"
             : r == 0 ? "5"
                      : "7") +
            " f32 root 1\nc requires b\n}\n";
  const replay_result r =
      run_replay(read_study(c), std::make_shared<const application>(read_goal({{"t.goal", text}})), {});
  REQUIRE(r.groups.size() == 3);
  for (const replay_group_row& g : r.groups) {
    CAPTURE(name(g.what.kind));
    CHECK(g.protocol != "simple");
    CHECK(g.all.median > 0);
  }
  CHECK(r.outcome.messages == 0);
}

TEST_CASE("the model of this machine beside measurements: a row a call") {
  engine_options options;
  options.tuning = "none";
  comparison_request wanted;
  wanted.ranks = {2, 3};
  wanted.sizes = {1024, 4096};
  wanted.limits = {0.5, 1};
  const comparison made = compare_with_measured(options, wanted);
  REQUIRE(made.calls.size() >= 2 * 2 * 3);  // on three ranks not every choreography may be able
  CHECK(made.calls[0].choreography == "ring");
  for (const compared_call& c : made.calls) {
    CAPTURE(c.choreography);
    CHECK(c.virtual_us > 0);
    CHECK(c.measured_us > 0);
    CHECK(c.planner_us > 0);
    CHECK(c.factor() >= 1);
  }
  std::ostringstream text;
  print_comparison(text, made);
  CHECK(text.str().find("direct_full_mesh") != std::string::npos);
  const auto document = nlohmann::json::parse(comparison_json(made));
  CHECK(document.at("calls").size() == made.calls.size());
  CHECK(document.at("sizes").size() == 2);
  CHECK(document.at("typical_factor").get<double>() == doctest::Approx(typical_factor(made.calls)));
  wanted.choreographies = {"rign"};
  CHECK_THROWS_AS(compare_with_measured(options, wanted), error);
}
