// SPDX-License-Identifier: Apache-2.0
// The schema and its sources; values for checking results.

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <regex>
#include <set>
#include <sstream>

#include "engine/api/engine.hpp"
#include "engine/config/configuration.hpp"
#include "engine/tools/crafted_values.hpp"
#include "engine/tools/report.hpp"
#include "engine/tools/workload.hpp"
#include "memory/error.hpp"
#include "memory/kernels/kernels.hpp"
#include "tests/seed.hpp"

using namespace troupe;

namespace {

configuration read(const std::string& toml) {
  configuration c;
  c.add_text(toml, "my.toml");
  return c;
}

/// What reading, and then using, the text says is wrong.
std::string complaint(const std::string& toml) {
  try {
    const configuration c = read(toml);
    c.engine();
    read_workload(c);
  } catch (const error& wrong) {
    CHECK(wrong.code_value() == errc::bad_config);
    return wrong.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) {
  INFO("\"", text, "\" lacks \"", part, "\"");
  const bool found = text.find(part) != std::string::npos;
  CHECK(found);
  return found;
}

std::string of_file(const std::string& path) {
  std::ifstream file{std::string{TROUPE_SOURCE_DIR} + "/" + path};
  std::ostringstream text;
  text << file.rdbuf();
  REQUIRE(file.good());
  return text.str();
}

}  // namespace

TEST_CASE("the defaults are those of engine_options") {
  const engine_options read_ones = configuration{}.engine(), plain;
  CHECK(read_ones.layout == plain.layout);
  CHECK(read_ones.nic_ports == plain.nic_ports);
  CHECK(read_ones.choreography == plain.choreography);
  CHECK(read_ones.choreography_of.empty());
  CHECK(read_ones.score_files.empty());
  CHECK(read_ones.protocol == plain.protocol);
  CHECK(read_ones.channels == plain.channels);
  CHECK(read_ones.chunk_bytes == plain.chunk_bytes);
  CHECK(read_ones.credits == plain.credits);
  CHECK(read_ones.streams == plain.streams);
  CHECK(read_ones.through_scratch == plain.through_scratch);
  CHECK(read_ones.level == plain.level);
  CHECK(read_ones.deadline == plain.deadline);
  CHECK(read_ones.workers == plain.workers);
  CHECK(read_ones.spin == plain.spin);
  CHECK(read_ones.trace_routes == plain.trace_routes);
  CHECK(read_ones.log_level == plain.log_level);
  CHECK(read_ones.faults.seed == plain.faults.seed);
  CHECK_FALSE(read_ones.faults.any());
  CHECK(read_ones.faults.longest_delay == plain.faults.longest_delay);
  CHECK(read_ones.faults.kill_after == plain.faults.kill_after);
  CHECK(read_ones.faults.kill_rank == plain.faults.kill_rank);
}

TEST_CASE("every key of a file arrives") {
  const auto file = std::filesystem::temp_directory_path() / ("troupe_score_" + std::to_string(seed()) + ".json");
  std::ofstream{file} << "{}";
  configuration c = read(R"(
[engine]
layout = "2x2"
nic_ports = 2
choreography = "ring"
protocol = "simple"
channels = 3
chunk_bytes = "512K"
credits = 4
streams = 5
through_scratch = true
determinism = "size_stable"
deadline = "1.5s"
workers = 2
spin = 7
trace_routes = true
log_level = "off"
[engine.choreography_of]
all_reduce = "mine"
barrier = "auto"
[engine.faults]
seed = 9
drop = 0.25
duplicate = 1
reorder = 0.5
delay = 0.125
longest_delay = "2ms"
kill_after = 3
kill_rank = 1
[workload]
iterations = 3
warmup = 0
check = false
one_thread = true
)");
  c.set("engine.score_files.mine", file.string());
  const engine_options o = c.engine();
  CHECK(o.layout == "2x2");
  CHECK(o.nic_ports == 2);
  CHECK(o.choreography == "ring");
  CHECK(o.protocol == "simple");
  CHECK(o.channels == 3);
  CHECK(o.chunk_bytes == 512 * 1024);
  CHECK(o.credits == 4);
  CHECK(o.streams == 5);
  CHECK(o.through_scratch);
  CHECK(o.level == determinism::size_stable);
  CHECK(o.deadline == std::chrono::milliseconds{1500});
  CHECK(o.workers == 2);
  CHECK(o.spin == 7);
  CHECK(o.trace_routes);
  CHECK(o.log_level == "off");
  CHECK(o.choreography_of == std::map<std::string, std::string>{{"all_reduce", "mine"}, {"barrier", "auto"}});
  CHECK(o.score_files.at("mine") == file.string());
  CHECK(o.faults.seed == 9);
  CHECK(o.faults.drop == 0.25);
  CHECK(o.faults.duplicate == 1);
  CHECK(o.faults.reorder == 0.5);
  CHECK(o.faults.delay == 0.125);
  CHECK(o.faults.longest_delay == std::chrono::milliseconds{2});
  CHECK(o.faults.kill_after == 3);
  CHECK(o.faults.kill_rank == 1);
  const workload w = read_workload(c);
  CHECK(w.ranks == 4);
  CHECK(w.iterations == 3);
  CHECK(w.warmup == 0);
  CHECK_FALSE(w.check);
  CHECK(w.one_thread);
  std::filesystem::remove(file);
}

TEST_CASE("mistakes are named with file, line and what would be right") {
  struct wrong {
    std::string toml;
    std::vector<std::string> says;
  };
  const std::string run = "[[workload.run]]\ncollective = \"all_reduce\"\n";
  const std::vector<wrong> all = {
      {"[engine]\n\ncredit = 4", {"my.toml:3: ", "unknown key engine.credit", "did you mean engine.credits?"}},
      {"[workload]\ncredits = 4", {"my.toml:2: ", "did you mean engine.credits?"}},
      {"credits = 4", {"my.toml:1: ", "credits stands in no table", "[engine]", "did you mean engine.credits?"}},
      {"[engin]\nx = 1", {"my.toml:1: ", "unknown table [engin]"}},
      {"engine = 3", {"my.toml:1: ", "must be a table"}},
      {"[engine]\ncredits = 100", {"my.toml:2: ", "the integer 100", "an integer from 1 to 64"}},
      {"[engine]\ncredits = \"many\"", {"my.toml:2: ", "the text \"many\"", "an integer from 1 to 64"}},
      {"[engine]\ncredits = 4.0", {"my.toml:2: ", "an integer from 1 to 64"}},
      {"[engine]\nthrough_scratch = 1", {"my.toml:2: ", "true or false"}},
      {"[engine]\ndeterminism = \"run_stabel\"",
       {"my.toml:2: ", "one of fast, run_stable", "did you mean run_stable?"}},
      {"[engine]\nchunk_bytes = \"1X\"", {"my.toml:2: ", "\"512K\""}},
      {"[engine]\nchunk_bytes = -1", {"my.toml:2: ", "a number of bytes"}},
      {"[engine]\ndeadline = 5", {"my.toml:2: ", "\"100ms\""}},
      {"[engine]\ndeadline = \"0s\"", {"my.toml:2: ", "above 0"}},
      {"[engine.faults]\ndrop = 1.5", {"my.toml:2: ", "a number from 0 to 1"}},
      {"[engine.faults]\nlongest_delay = \"none\"", {"my.toml:2: ", "a duration"}},
      {"[engine]\nlayout = \"2y4\"", {"my.toml:2: ", "engine.layout"}},
      {"[engine]\nchoreography = \"rign\"", {"my.toml:2: ", "did you mean ring?"}},
      {"[engine.choreography_of]\nall_reduce = \"rign\"", {"my.toml:2: ", "did you mean ring?"}},
      {"[engine.choreography_of]\nall_redcue = \"ring\"", {"my.toml:2: ", "no collective all_redcue"}},
      {"[engine.score_files]\nmine = \"nowhere.json\"", {"my.toml:2: ", "no file nowhere.json"}},
      {"[engine]\ncredits = 4\ncredits = 5", {"my.toml:3"}},
      {"[engine\n", {"my.toml:1"}},
      {"[workload]\nrun = 3", {"my.toml:2: ", "[[workload.run]]"}},
      {"[[workload.run]]\nsizes = [8]", {"my.toml:1: ", "no collective"}},
      {"[[workload.run]]\ncollective = \"all_redcue\"", {"my.toml:2: ", "did you mean all_reduce?"}},
      {run + "size = [8]", {"my.toml:3: ", "did you mean workload.run.sizes?"}},
      {run + "sizes = []", {"my.toml:3: ", "a list of sizes"}},
      {run + "sizes = { from = 8, to = 64 }", {"my.toml:3: ", "factor = 4"}},
      {run + "sizes = { from = 8, to = 64, factor = 1 }", {"my.toml:3: ", "factor = 4"}},
      {run + "sizes = { from = 8, to = 64, factor = 2, setp = 3 }", {"my.toml:3: "}},
      {run + "type = \"f31\"", {"my.toml:3: ", "no element type \"f31\""}},
      {run + "op = \"plus\"", {"my.toml:3: ", "no operation \"plus\""}},
      {run + "op = \"bxor\"", {"my.toml:3: ", "not defined on f32"}},
      {run + "choreography = \"rign\"", {"my.toml:3: ", "did you mean ring?"}},
      {run + "counts = [1]", {"my.toml:3: ", "blocks of one size"}},
      {"[workload]\nranks = 3\n[[workload.run]]\ncollective = \"broadcast\"\nroot = 3",
       {"my.toml:5: ", "ranks 0 to 2"}},
      {"[workload]\nranks = 3\n[[workload.run]]\ncollective = \"gather_v\"\ncounts = [1, 2]",
       {"my.toml:5: ", "a list of 3 counts"}},
      {"[workload]\nranks = 2\n[[workload.run]]\ncollective = \"all_to_all_v\"\ncounts = [1, 2]",
       {"my.toml:5: ", "2 rows"}},
      {"[engine]\nlayout = \"2x2\"\n[workload]\nranks = 5", {"my.toml:4: ", "my.toml:2", "4 ranks"}},
      {"[engine]\nlayout = \"40x40\"", {"my.toml:2", "1600 ranks", "at most 1024"}},
      {"[workload]\nranks = 1025", {"my.toml:2: ", "0 to 1024"}},
  };
  for (const auto& fault : all) {
    CAPTURE(fault.toml);
    const std::string text = complaint(fault.toml);
    for (const std::string& part : fault.says) has(text, part);
  }
  CHECK(complaint("[engine]\nlayout = \"2x2\"\n[workload]\nranks = 3") == "");
  CHECK(complaint(run + "root = 3\nop = \"max\"\ntype = \"u8\"\nsizes = \"1M\"") == "");
}

TEST_CASE("the stronger source wins, whatever the order of reading, and the dump says which") {
  configuration c;
  c.add_text("[engine]\nlayout = \"8\"\ncredits = 2\nspin = 3\nstreams = 2\n", "my.toml");
  const std::vector<std::string> variables = {"TROUPE_ENGINE_CREDITS=3",
                                              "TROUPE_ENGINE_SPIN=4",
                                              "PATH=/",
                                              "TROUPE_TEST_SEED=1",
                                              "TROUPE_ENGINE_CHOREOGRAPHY_OF_ALL_REDUCE=ring",
                                              "TROUPE_ENGINE_FAULTS_DROP=0.5"};
  c.add_environment(variables);
  c.set_from_command_line("credits=4");
  c.set("engine.deadline", "5s");
  const engine_options o = c.engine();
  CHECK(o.layout == "8");
  CHECK(o.streams == 2);
  CHECK(o.spin == 4);
  CHECK(o.credits == 4);
  CHECK(o.deadline == std::chrono::seconds{5});
  CHECK(o.choreography_of.at("all_reduce") == "ring");
  CHECK(o.faults.drop == 0.5);
  const std::string dump = c.dump();
  const auto line = [&](const std::string& start, const std::string& origin) {
    INFO(dump);
    CHECK(std::regex_search(dump, std::regex{"\n" + start + " +# " + origin + "\n"}));
  };
  line("layout = .8.", "my.toml:2");
  line("streams = 2", "my.toml:5");
  line("spin = 4", "environment TROUPE_ENGINE_SPIN");
  line("credits = 4", "command line");
  line("deadline = .5s.", "API");
  line("nic_ports = 1", "default");
}

TEST_CASE("variables and assignments that name nothing are errors") {
  const auto says = [](const std::vector<std::string>& variables) {
    configuration c;
    try {
      c.add_environment(variables);
    } catch (const error& wrong) {
      return std::string{wrong.what()};
    }
    return std::string{};
  };
  has(says({"TROUPE_ENGINE_CREDTIS=3"}), "did you mean TROUPE_ENGINE_CREDITS?");
  has(says({"TROUPE_ENGINE_CREDITS=many"}), "TROUPE_ENGINE_CREDITS: engine.credits is the text \"many\"");
  has(says({"TROUPE_WORKLOAD_RUN_0_TYPE=f16"}), "there is no run 0");
  CHECK(says({"TROUPE_SOMETHING=3"}) == "");
  has(says({"TROUPE_CREDITS=1"}), "TROUPE_CREDITS: ");
  has(says({"TROUPE_CREDITS=1"}), "did you mean TROUPE_ENGINE_CREDITS?");
  has(says({"TROUPE_RUN_0_TYPE=f16"}), "did you mean TROUPE_WORKLOAD_RUN_0_TYPE?");
  configuration c;
  CHECK_THROWS_WITH_AS(c.set_from_command_line("credits"), doctest::Contains("key=value"), error);
  CHECK_THROWS_WITH_AS(c.set_from_command_line("engine.credist=3"), doctest::Contains("did you mean engine.credits?"),
                       error);
  CHECK_THROWS_WITH_AS(c.set_from_command_line("creditz=3"), doctest::Contains("did you mean engine.credits?"), error);
  CHECK_THROWS_WITH_AS(c.set_from_command_line("rnaks=3"), doctest::Contains("did you mean workload.ranks?"), error);
  CHECK_THROWS_WITH_AS(c.set_from_command_line("credits="), doctest::Contains("--set: engine.credits"), error);
}

TEST_CASE("runs can be overridden together and one by one") {
  configuration c = read("[[workload.run]]\ncollective = \"all_reduce\"\n[[workload.run]]\ncollective = \"barrier\"\n");
  c.set_from_command_line("run.type=f16");
  c.set_from_command_line("workload.run.0.sizes=8,2K");
  const std::vector<std::string> variables = {"TROUPE_WORKLOAD_RUN_0_IN_PLACE=out"};
  c.add_environment(variables);
  const workload w = read_workload(c);
  REQUIRE(w.groups.size() == 2);
  REQUIRE(w.groups[0].jobs.size() == 2);
  CHECK(w.groups[0].jobs[1].bytes == 2048);
  CHECK(w.groups[0].jobs[1].type == datatype::f16);
  CHECK(w.groups[0].jobs[1].places == job_places::out);
  CHECK(w.groups[1].jobs.size() == 1);
}

TEST_CASE("a dump reads back the same") {
  for (const auto& entry : std::filesystem::directory_iterator{std::string{TROUPE_SOURCE_DIR} + "/config"}) {
    if (entry.path().extension() != ".toml") continue;
    CAPTURE(entry.path().string());
    configuration once;
    once.add_file(entry.path().string());
    once.set("engine.choreography_of.all_gather", "ring");
    once.set("engine.faults.delay", "0.1");
    configuration twice;
    twice.add_text(once.dump(), "dump");
    CHECK(twice.values().size() == once.values().size());
    for (const auto& value : once.values()) {
      CAPTURE(value.first);
      CHECK(twice.at(value.first).value == value.second.value);
    }
    REQUIRE(twice.runs().size() == once.runs().size());
    for (std::size_t i = 0; i < once.runs().size(); ++i)
      for (const auto& [key, value] : once.runs()[i]) CHECK(twice.runs()[i].at(key).value == value.value);
  }
}

TEST_CASE("docs/config.md describes exactly the keys of the schema, with their defaults") {
  const std::string document = of_file("docs/config.md");
  std::set<std::string> described, known;
  const std::regex row{R"(\n\| `((?:engine|workload|study)\.[a-z0-9_.*]+)` \|([^|]*)\|)"};
  for (auto at = std::sregex_iterator{document.begin(), document.end(), row}; at != std::sregex_iterator{}; ++at) {
    const std::string key = (*at)[1];
    described.insert(key);
    for (const config_setting& s : config_schema()) {
      if (s.key != key) continue;
      std::string initial = (*at)[2];
      std::erase_if(initial, [](char c) { return c == '`' || c == '"' || c == ' '; });
      CAPTURE(key);
      CHECK(initial == s.initial);
    }
  }
  for (const config_setting& s : config_schema()) known.insert(std::string{s.key});
  for (const std::string& key : known) CHECK_MESSAGE(described.count(key) == 1, key, " is not described");
  for (const std::string& key : described) CHECK_MESSAGE(known.count(key) == 1, key, " is no key");
}

TEST_CASE("quickstart.toml runs every collective and every v-form, as it says") {
  configuration quickstart;
  quickstart.add_file(std::string{TROUPE_SOURCE_DIR} + "/config/quickstart.toml");
  std::set<std::string> run;
  for (const job_group& group : read_workload(quickstart).groups)
    for (const job& j : group.jobs) run.insert(name(j.kind));
  for (const std::string& each : all_job_names()) CHECK_MESSAGE(run.count(each) == 1, each, " is missing");
}

TEST_CASE("an engine from a file") {
  const auto path = std::filesystem::temp_directory_path() / ("troupe_config_" + std::to_string(seed()) + ".toml");
  std::ofstream{path} << "[engine]\ncredits = 3\n";
  const engine on = engine::from_file(path.string());
  CHECK(on.options().credits == 3);
  std::filesystem::remove(path);
  CHECK_THROWS_WITH_AS(engine::from_file(path.string()), doctest::Contains("cannot be read"), error);
}

TEST_CASE("sizes, durations and suggestions") {
  CHECK(parse_bytes("512K") == 524288);
  CHECK(parse_bytes("1.5M") == 1572864);
  CHECK(parse_bytes("64MiB") == 64 << 20);
  CHECK(parse_bytes("0") == 0);
  for (const char* wrong : {"", "K", "-1", "1Q", "1 K x", "nan", "1e300G", "99999999999999999999G"})
    CHECK(parse_bytes(wrong) == -1);
  CHECK(bytes_text(1 << 20) == "1M");
  CHECK(bytes_text(1000) == "1000");
  CHECK(parse_duration("1.5ms") == 1500000);
  CHECK(parse_duration("2 s") == 2000000000);
  CHECK(parse_duration("5") == -1);
  const workload w = read_workload(
      read("[[workload.run]]\ncollective = \"all_reduce\"\nsizes = { from = 8, to = \"100\", step = 46 }"));
  REQUIRE(w.groups.front().jobs.size() == 3);
  CHECK(w.groups.front().jobs.back().bytes == 100);
}

// -- shapes and checking ----------------------------------------------------------------------------------------------

TEST_CASE("sizes are nccl-tests' sizes") {
  const auto shape = [](const char* kind, std::size_t bytes, int ranks) {
    job j;
    j.kind = *parse_job_kind(kind);
    j.bytes = bytes;
    return shape_of(j, ranks);
  };
  CHECK(shape("all_reduce", 1024, 8).count == 256);
  CHECK(shape("all_reduce", 1024, 8).bytes == 1024);
  CHECK(shape("all_gather", 1024, 8).count == 32);
  CHECK(shape("all_gather", 1030, 8).bytes == 1024);
  CHECK(shape("send_recv", 1030, 8).bytes == 1028);
  CHECK(shape("barrier", 1030, 8).bytes == 0);
  CHECK(bus_factor(*parse_job_kind("all_reduce"), 4) == 1.5);
  CHECK(bus_factor(*parse_job_kind("gather_v"), 4) == 0.75);
  CHECK(bus_factor(*parse_job_kind("send_recv"), 4) == 1);
  job j;
  j.kind = *parse_job_kind("all_to_all_v");
  j.counts = {1, 2, 3, 4};  // 0 sends 3 and receives 4, 1 sends 7 and receives 6
  CHECK(shape_of(j, 2).bytes == 28);
  for (const std::string& one : all_job_names()) CHECK(name(*parse_job_kind(one)) == one);
  CHECK_FALSE(parse_job_kind("all_reduce_v"));
}

TEST_CASE("crafted inputs have one result in every order, and another where a rank is left out or counts twice") {
  std::mt19937_64 random{seed()};
  for (const int ranks : {1, 2, 3, 8, 17, 64})
    for (const datatype type : all_datatypes)
      for (const op& reduction : ops_of("all", type)) {
        CAPTURE(ranks);
        CAPTURE(name(type));
        CAPTURE(name(reduction.kind));
        const std::size_t e = size_of(type);
        std::vector<std::vector<std::byte>> in;
        for (int r = 0; r < ranks; ++r) in.push_back(crafted_input(type, reduction, ranks, r));
        if (reduction.kind == op_kind::pre_mul_sum)
          for (auto& table : in) scale(type, reduction.scale, table.data(), table.data(), crafted_period);
        const auto fold = [&](std::vector<std::vector<std::byte>> terms) {
          while (terms.size() > 1) {  // any tree
            const std::size_t a = random() % terms.size();
            std::swap(terms[a], terms.back());
            auto left = std::move(terms.back());
            terms.pop_back();
            auto& right = terms[random() % terms.size()];
            reduce(type, reduction, left.data(), right.data(), right.data(), crafted_period);
          }
          if (reduction.kind == op_kind::avg)
            divide(type, static_cast<std::size_t>(ranks), terms[0].data(), terms[0].data(), crafted_period);
          return terms[0];
        };
        const auto result = crafted_result(type, reduction, ranks);
        if (ranks <= 8 && reduction.kind != op_kind::avg)  // a prefix's average has another divisor than fold()'s
          for (int end = 1; end <= ranks; ++end)
            CHECK(count_wrong(fold({in.begin(), in.begin() + end}).data(),
                              crafted_result(type, reduction, ranks, {0, end}), e, {{crafted_period, 0}}) == 0);
        const std::vector<crafted_block> all{{crafted_period, 0}};
        for (int repeat = 0; repeat < 3; ++repeat) CHECK(count_wrong(fold(in).data(), result, e, all) == 0);
        if (ranks == 1) continue;
        auto without = in;
        without.erase(without.begin() + static_cast<std::ptrdiff_t>(random() % without.size()));
        CHECK(count_wrong(fold(without).data(), result, e, all) > 0);
        // min, max, land, lor, band and bor do not mind a second contribution.
        const bool idempotent = reduction.kind == op_kind::min || reduction.kind == op_kind::max ||
                                reduction.kind == op_kind::land || reduction.kind == op_kind::lor ||
                                reduction.kind == op_kind::band || reduction.kind == op_kind::bor;
        auto twice = in;
        twice.push_back(in[random() % in.size()]);
        CHECK((count_wrong(fold(twice).data(), result, e, all) > 0) != idempotent);
      }
}

TEST_CASE("wrong elements are counted one by one, also across the period and the blocks' phases") {
  const auto table = crafted_bits(datatype::f32);
  const std::vector<crafted_block> blocks{{3000, 5}, {0, 7}, {1, 1020}, {2000, 389}};
  std::vector<std::byte> buffer(5001 * 4);
  fill(buffer.data(), table, 4, blocks);
  CHECK(count_wrong(buffer.data(), table, 4, blocks) == 0);
  for (const std::size_t element : {0u, 2999u, 3000u, 3001u, 5000u}) buffer[element * 4 + 2] ^= std::byte{1};
  CHECK(count_wrong(buffer.data(), table, 4, blocks) == 5);
  const std::vector<crafted_block> shifted{{5001, 6}};
  CHECK(count_wrong(buffer.data(), table, 4, shifted) > 4900);
}

TEST_CASE("the report's columns, footer and verdict") {
  job_result r;
  r.what.kind = *parse_job_kind("broadcast");
  r.what.root = 2;
  r.shape = {16, {}, 64};
  r.ranks = 4;
  r.choreography = "ring";
  r.out_of_place = measurement{12.345, 1.5, 2.25, 0, {}};
  std::ostringstream row;
  print_row(row, r);
  CHECK(row.str() == "          64            16     float    none       2    12.35    1.50    2.25      0      N/A    "
                     " N/A     N/A    N/A\n");
  report_footer footer;
  footer.add(r);
  CHECK(footer.ok());
  std::ostringstream end;
  footer.print(end);
  CHECK(end.str() == "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 2.25\n#\n");
  r.in_place = measurement{1, 1, 1, 3, {}};
  footer.add(r);
  CHECK_FALSE(footer.ok());
  CHECK(footer.wrong() == 3);
  report_footer wishing{"pairwise"};
  wishing.add(r);
  r.choreography = "pairwise";
  wishing.add(r);
  r.choreography = "bruck";
  r.what.choreography = "bruck";  // the call's own
  wishing.add(r);
  end.str("");
  wishing.print(end);
  CHECK(end.str().find("# pairwise could not perform 1 of 2 rows; --set log_level=info says why\n") !=
        std::string::npos);
  report_footer outside;
  r.in_place.reset();
  r.out_of_bounds = 1;
  outside.add(r);
  CHECK_FALSE(outside.ok());
}
