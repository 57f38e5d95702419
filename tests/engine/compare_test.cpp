// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/study/compare.hpp"

#include "memory/error.hpp"
#include "protocols/score/score_builder.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <sstream>

#include <nlohmann/json.hpp>

using namespace troupe;
using json = nlohmann::json;

namespace {

study_scenario scenario(const std::string& choreography, const std::string& sizes) {
  configuration c;
  c.add_text("[study]\npreset = \"machine\"\nlayout = \"2x4\"\nchoreography = \"" + choreography +
                 "\"\nsizes = " + sizes + "\n",
             "study.toml");
  return read_study(c);
}

study_result recorded(const std::string& choreography, const std::string& sizes = "[\"64K\", \"1M\"]") {
  study_run_options o;
  o.record = study_run_options::recorded::all;
  return run_study(scenario(choreography, sizes), o);
}

}  // namespace

TEST_CASE("compare: only sizes that both have are compared") {
  study_scenario a = scenario("ring", "[1024, 4096, 65536]"), b = scenario("ring", "[65536, 1024, 1048576]");
  CHECK(keep_common_sizes(a, b) == "sizes that only one of them has are left out: 4K, 1M");
  CHECK(a.sizes == std::vector<std::size_t>{1024, 65536});
  CHECK(b.sizes == a.sizes);
  CHECK(keep_common_sizes(a, b).empty());
  study_scenario c = scenario("ring", "[8]");
  CHECK_THROWS_WITH_AS(keep_common_sizes(a, c), doctest::Contains("no size in common"), error);
}

TEST_CASE("compare: where ranks are lost there is no ratio of times") {
  study_scenario failing = scenario("ring", "[65536]");
  failing.faults.emplace_back("rank 1", "exits at 5us");
  const study_result well = recorded("ring", "[65536]");
  const study_result fails = run_study(failing, {});
  REQUIRE(fails.rows.at(0).failed());
  for (const auto& [a, b] : {std::pair{&well, &fails}, std::pair{&fails, &well}}) {
    std::ostringstream table;
    print_comparison(table, *a, *b);
    CHECK_MESSAGE(table.str().find("       -  ring, simple") != std::string::npos, table.str());
    CHECK(json::parse(comparison_json(*a, *b)).at("rows").at(0).at("a_over_b").is_null());
  }
  CHECK(json::parse(comparison_json(well, well)).at("rows").at(0).at("a_over_b") == 1.0);
}

TEST_CASE("compare: titles tell the sides apart") {
  study_scenario a = scenario("ring", "[1024]"), b = a;
  tell_apart(a, b, "", "ranks=8, sizes=1M");
  CHECK(a.title.empty());
  CHECK(b.title == "all_reduce on machine, ranks=8, sizes=1M");
  a.title = b.title = "Ring";
  tell_apart(a, b, "one.toml", "two.toml");
  CHECK(a.title == "Ring, one.toml");
  CHECK(b.title == "Ring, two.toml");
  tell_apart(a, b, "no", "need");
  CHECK(a.title == "Ring, one.toml");
}

TEST_CASE("critical path: every queue of a message, and the hops by name") {
  const auto path_of = [](const char* text) {
    configuration c;
    c.add_text(text, "study.toml");
    study_run_options o;
    o.record = study_run_options::recorded::all;
    std::string all;
    for (const critical_stretch& s : critical_path(run_study(read_study(c), o))) all += s.text + "\n";
    return all;
  };
  // Rank 0 sends two messages at once: the second waits for up 0, and then for down 2, where rank 1's was sooner.
  using namespace notation;
  score_builder s{flat_setup(collective::all_to_all, 3, 0, false, false), "queues", 1};
  s.lane(1).to(2).send(input[2]);
  s.lane(0).to(1).send(input[1]);
  s.lane(0).to(2).send(input[2]);
  s.lane(1).from(0).recv(output[0]);
  s.lane(2).from(0).recv(output[0]);
  s.lane(2).from(1).recv(output[1]);
  const std::vector<std::size_t> counts{0, 1000, 1000, 0, 0, 5000, 0, 0, 0};
  const hardware on = flat_hardware(3);
  virtual_recording record;
  virtual_options o;
  o.protocol = *on.protocol("simple");
  o.record = &record;
  perform_virtually(s.finish(), {.counts = counts}, {}, on, o);
  const auto last = std::find_if(record.causes.begin(), record.causes.end(),
                                 [](const virtual_cause& c) { return c.rank == 2 && c.from == 0; });
  REQUIRE(last != record.causes.end());
  REQUIRE(last->queues == 2);
  const virtual_queue *const up = &record.queues[static_cast<std::size_t>(last->first_queue)], *const down = up + 1;
  CHECK(on.elements[static_cast<std::size_t>(up->element)].name == "up 0");
  CHECK(up->end - up->begin == 100'000);  // 1000 B at 10 GB/s
  CHECK(on.elements[static_cast<std::size_t>(down->element)].name == "down 2");
  CHECK(down->end - down->begin == 400'000);
  const std::string hops = path_of("[study]\npreset = \"flat\"\nranks = 4\nchoreography = \"ring\"\nsizes = \"4K\"\n");
  CHECK(hops.find("6 chunks travelled") != std::string::npos);
  CHECK(hops.find("0 → 1 → 2 → 3") != std::string::npos);
}

TEST_CASE("critical path: no hop of a long way is left out") {
  const auto travelled = [](const std::string& more) {
    configuration c;
    c.add_text("[study]\npreset = \"flat\"\nsizes = \"4K\"\n" + more, "study.toml");
    study_run_options o;
    o.record = study_run_options::recorded::all;
    const study_result r = run_study(read_study(c), o);
    const auto path = critical_path(r);
    const auto longest = std::max_element(path.begin(), path.end(), [](const auto& a, const auto& b) {
      return a.end_ps - a.begin_ps < b.end_ps - b.begin_ps;
    });
    return *longest;
  };
  // 126 hops of a ring are all alike: three words name them.
  const critical_stretch ring = travelled("ranks = 64\nchoreography = \"ring\"\n");
  CHECK(ring.text.find("126 chunks travelled") != std::string::npos);
  CHECK(ring.text.find(" → …") != std::string::npos);
  CHECK(ring.text.ends_with(", each 1 further"));
  CHECK(ring.hops.empty());
  // Those of doubling distances are not, and stand beside the text.
  const critical_stretch doubling = travelled("ranks = 64\nchoreography = \"nhr\"\n");
  REQUIRE(doubling.text.find(" → …") != std::string::npos);
  REQUIRE(doubling.hops.size() == 1);
  CHECK(doubling.text.find(std::to_string(doubling.hops[0].size() - 1) + " chunks travelled") != std::string::npos);
  CHECK(doubling.hops[0].size() > 11);
}

TEST_CASE("compare: the causes of a critical path add up to its time") {
  for (const char* choreography : {"ring", "hierarchical", "hierarchical_pipeline", "double_binary_tree"}) {
    CAPTURE(choreography);
    const study_result r = recorded(choreography);
    const auto spent = time_by_cause(r);
    const double sum_of_all =
        std::accumulate(spent.begin(), spent.end(), 0.0, [](double s, const auto& entry) { return s + entry.second; });
    CHECK(sum_of_all == doctest::Approx(r.rows.back().time_us));
    CHECK(spent.count("on the way") == 1);
  }
  CHECK(time_by_cause(recorded("hierarchical")).count("queued for nic") == 1);
}

TEST_CASE("compare: the table says who is faster and why, the JSON holds both documents") {
  const study_result a = recorded("hierarchical"), b = recorded("hierarchical_pipeline");
  REQUIRE(b.rows[1].time_us < a.rows[1].time_us);
  std::ostringstream there, back;
  print_comparison(there, a, b);
  print_comparison(back, b, a);
  CHECK(there.str().find("B is ") != std::string::npos);
  CHECK(there.str().find("times as fast") != std::string::npos);
  CHECK(there.str().find("queued for nic") != std::string::npos);
  CHECK(back.str().find("A is ") != std::string::npos);
  std::ostringstream same;
  print_comparison(same, a, a);
  CHECK(same.str().find("both take") != std::string::npos);

  const json j = json::parse(comparison_json(a, b));
  CHECK(j["troupe_compare"] == 1);
  CHECK(j["a"]["troupe_study"] == 1);
  CHECK(j["b"]["choreography"] == "hierarchical_pipeline");
  CHECK(j["rows"][1]["a_over_b"].get<double>() == doctest::Approx(a.rows[1].time_us / b.rows[1].time_us));
}

TEST_CASE("compare: a line of CSV a size, with both sides' figures") {
  study_result a = recorded("hierarchical");
  const study_result b = recorded("hierarchical_pipeline");
  a.scenario.title = "one, or two";
  std::istringstream lines{comparison_csv(a, b)};
  std::string heading, line;
  std::getline(lines, heading);
  CHECK(heading.starts_with("bytes,a_title,a_collective,a_choreography,a_protocol,a_preset,a_ranks,a_time_us,"));
  CHECK(heading.ends_with(",b_bound_us,b_failed,a_over_b,a_channels,a_slices,a_slices_per_step,b_channels,b_slices,b_"
                          "slices_per_step"));
  for (const study_row& row : a.rows) {
    REQUIRE(std::getline(lines, line));
    CHECK(line.starts_with(std::to_string(row.bytes) + ",\"one, or two\",all_reduce,hierarchical,simple,"));
    CHECK(std::count(line.begin(), line.end(), ',') == std::count(heading.begin(), heading.end(), ',') + 1);
  }
  const std::string one_piece = ",1,1,1,1,1,1";
  REQUIRE(line.ends_with(one_piece));
  line.resize(line.size() - one_piece.size());
  CHECK(std::stod(line.substr(line.rfind(',') + 1)) == doctest::Approx(a.rows.back().time_us / b.rows.back().time_us));
  CHECK_FALSE(std::getline(lines, line));
}

TEST_CASE("compare: a class's use is that of its elements") {
  const auto use = use_by_class(recorded("hierarchical"));
  const auto nic = std::find_if(use.begin(), use.end(), [](const class_use& u) { return u.name == "nic"; });
  REQUIRE(nic != use.end());
  CHECK(nic->busiest == "nic 0:0 out");
  CHECK(nic->mean <= nic->most);
  CHECK(nic->most > 0.5);
  CHECK(nic->most <= 1);
}

// hierarchical sends two parts in a message; both must move, or the report loses sight of one.
TEST_CASE("study: the moves of a message name every cell that it carries") {
  const study_result r = recorded("hierarchical");
  const json j = json::parse(study_json(r));
  std::uint64_t bytes = 0;
  std::size_t reducing = 0;
  for (const auto& m : j["moves"]) bytes += m[7].get<std::uint64_t>(), reducing += m[8].get<std::size_t>();
  CHECK(j["moves"].size() > r.rows.back().outcome.messages);
  CHECK(bytes == r.rows.back().outcome.payload_bytes);
  CHECK(reducing == 8 * 7);  // each of eight parts is reduced seven times
}
