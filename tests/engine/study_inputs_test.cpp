// SPDX-License-Identifier: Apache-2.0
// What a study says of input that it cannot follow: what is wrong, where that stands, and what would be right.
#include <algorithm>
#include <sstream>

#include "engine/tools/study/machine_file.hpp"
#include "engine/tools/study/study.hpp"
#include "memory/error.hpp"
#include "tests/engine/program.hpp"
#include "topology/machine/quantities.hpp"

namespace study_inputs_test {

using namespace troupe;
using namespace troupe_program;

namespace {

std::string why_refused(const std::string& toml, const std::vector<std::string>& assignments = {}) {
  try {
    configuration c;
    c.add_text(toml, "s.toml");
    for (const std::string& assignment : assignments) c.set_from_command_line(assignment);
    static_cast<void>(run_study(read_study(c)));
  } catch (const error& why) {
    return why.what();
  }
  return "accepted";
}

std::string ring_study() { return config_folder() + "studies/ring.toml"; }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream in{text};
  for (std::string line; std::getline(in, line);) all.push_back(line);
  return all;
}

/// The fields of a line of CSV (RFC 4180).
std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields{""};
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') fields.back() += line[i++];
    else if (line[i] == '"') quoted = !quoted;
    else if (line[i] == ',' && !quoted) fields.emplace_back();
    else fields.back() += line[i];
  }
  CHECK(!quoted);
  return fields;
}

}  // namespace

// -- rates ------------------------------------------------------------------------------------------------------------

TEST_CASE("study, inputs: a rate says its unit") {
  for (const char* said : {"10", "100e9", "100G", "25 M", "1"}) CHECK_FALSE(parse_rate(said).has_value());
  CHECK(parse_rate("1 B/s") == 1);
  CHECK(parse_rate("69.6 GB/s") == 69'600'000'000);
  CHECK(parse_rate("200Gbit/s") == 25'000'000'000);

  const auto machine = [](const std::string& bandwidth) {
    try {
      static_cast<void>(read_machine("ranks = 1\n[class.w]\nbandwidth = " + bandwidth + "\n", "m.toml", {}));
    } catch (const error& why) {
      return std::string{why.what()};
    }
    return std::string{"accepted"};
  };
  CHECK(machine("10") == "m.toml:3: w.bandwidth is \"10\", which says no unit; write, for example, \"10 GB/s\" or "
                         "\"10 Gbit/s\" (powers of 1000), or \"unlimited\"");
  check_says(machine("\"400G\""), "\"400G\", which says no unit; write, for example, \"400 GB/s\" or \"400 Gbit/s\"");
  check_says(machine("10.5"),
             "m.toml:3: w.bandwidth is \"10.5\", which says no unit; write, for example, \"10.5 GB/s\"");
  CHECK(machine("0") == "accepted");
  CHECK(machine("\"unlimited\"") == "accepted");
  check_says(machine("\"fast\""), "it must be a rate such as \"25 GB/s\" or \"200 Gbit/s\"");

  const std::string study = "[study]\nranks = 4\nchoreography = \"ring\"\n[study.hardware]\n";
  check_says(why_refused(study + "link.bandwidth = 10\n"), "s.toml:5: link.bandwidth is \"10\", which says no unit");
  check_says(
      why_refused(study + "host.reduce_rate = 1e9\n"),
      "s.toml:5: host.reduce_rate is \"1000000000\", which says no unit; write, for example, \"1000000000 B/s\", or");
  check_says(why_refused(study, {"hardware.link.bandwidth=10"}), "--set: link.bandwidth is \"10\"");
  CHECK(why_refused(study + "link.bandwidth = \"10 B/s\"\n") == "accepted");

  check_refused(run("replay none.0.et --memory-rate 2T"), {"--memory-rate", "\"2T\"", "no unit", "2 TB/s"});
  check_refused(run("replay none.0.et --flops 2TB/s"), {"--flops: \"2TB/s\" is no rate of operations, such as 300T"});
}

// -- a machine's ways -------------------------------------------------------------------------------------------------

TEST_CASE("study, inputs: route, on a machine of the study") {
  CHECK(run("route 3 5 --on flat").out == "rank 3 → up 3 → down 5 → rank 5\n");
  const outcome own = run("route 0 6 --on " + config_folder() + "machines/torus.toml");
  CHECK(own.code == 0);
  CHECK(own.out == "rank 0 → node 0.0 - node 1.0 → node 1.0 - node 2.0 → node 2.0 - node 2.1 → rank 6\n");
  // Channel 1 takes another one of the shortest ways; parameters are those of a study.
  CHECK(run("route 0 6 --channel 1 --on " + config_folder() + "machines/torus.toml").out != own.out);
  CHECK(run("route 0 6 --set structure.x=7 --on " + config_folder() + "machines/torus.toml").out ==
        "rank 0 → node 0.0 - node 6.0 → rank 6\n");
  check_says(run("route 0 9 --on dgx_h100 --layout 2x8").out, "nic");
  const json way = json::parse(run("route 3 5 --on flat --json").out);
  CHECK(way["machine"] == "flat");
  CHECK(way["layout"] == "8");
  CHECK(way["elements"] == json{"up 3", "down 5"});
  CHECK(way["direct"] == false);
  CHECK(run("route 3 3 --on flat").out == "rank 3 → rank 3 (direct)\n");
  check_refused(run("route 0 16 --on flat"), {"no rank 16", "flat", "0 to 7"});
  check_refused(run("route 0 1 --on flatt"), {"flatt", "did you mean flat?"});
  check_refused(run("route 0 1 --on flat --nic-ports 2"), {"--nic-ports would do nothing with --on"});
  check_refused(run("route 0 1 --layout 2x2 --set structure.x=7"), {"--set would do nothing without --on"});
  CHECK(run("route 0 6 --config " + config_folder() + "studies/torus.toml").out == own.out);
  check_refused(run("route 0 1 --on flat --set hardware.link.latency=5us"), {"hardware.link.latency would do nothing"});
  check_refused(run("route 0 1 --on flat --set sizes=4K"), {"--set: study.sizes would do nothing"});
  check_refused(run("route 0 1"), {"--layout", "--on"});
}

// -- sweeps -----------------------------------------------------------------------------------------------------------

TEST_CASE("study, inputs: a message names the option that said it") {
  const std::string study = "study " + ring_study() + " --set sizes=1K ";
  check_refused(run(study + "--sweep rnks=8,16"), {"--sweep: unknown key study.rnks; did you mean study.ranks?"});
  check_refused(run(study + "--sweep ranks=x,y"), {"--sweep: study.ranks is the text \"x\""});
  check_refused(run(study + "--sweep choreography=ringg,rng"), {"--sweep: study.choreography: there is no"});
  check_refused(run(study + "--sweep engine.credits=1,2"), {"--sweep engine.credits would do nothing"});
  // A constant that the machine has not is no matter of a value: before the first run.
  check_refused(run(study + "--sweep hardware.link.latncy=1us,2us"), {"--sweep: ", "did you mean link.latency?"});
  check_refused(run(study + "--sweep 'slow.upp 3=2,3'"), {"--sweep: ", "no element \"upp 3\""});
  check_refused(run("study " + config_folder() + "studies/jobs.toml --sweep job.9.rounds=1,2"),
                {"--sweep: there is no job 9"});
  check_refused(run(study + "--set choreography=rign"), {"--set: study.choreography: there is no"});
  check_refused(run("compare " + ring_study() + " --set-b rnks=8"), {"--set-b: unknown key study.rnks"});
  check_refused(run("compare " + ring_study() + " --set-a choreography=rign"), {"--set-a: study.choreography"});
  check_refused(run("compare " + ring_study() + " --set sizes=big --set-b ranks=4"), {"--set: study.sizes"});
  check_refused(run("explain all_reduce --on flat --type f31"), {"--type: study.type: there is no element type"});
  check_refused(run("explain all_reduce --on flat --determinism fast"), {"--determinism would do nothing with --on"});
  check_refused(run("study " + ring_study(), "TROUPE_STUDY_CHOREOGRAPHY=rign"),
                {"TROUPE_STUDY_CHOREOGRAPHY: study.choreography: there is no"});
  // Of a value that only some cannot have, the others run, and the line names the option, too.
  const outcome some = run(study + "--sweep ranks=4,y");
  CHECK(some.code == 2);
  check_says(some.out, "refused: --sweep: study.ranks is the text \"y\"");
}

TEST_CASE("study, inputs: what is wrong with the machine that is asked for is told at the line that asks") {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"ranks = 4\npreset = \"flatt\"\n", "s.toml:3: there is no preset flatt"},
      {"ranks = 4\n[study.structure]\nradix = 3\n", "s.toml:4: study.structure.radix: preset flat has no radix"},
      {"preset = \"fat_tree\"\n[study.structure]\nradix = \"few\"\n",
       "s.toml:4: study.structure.radix is \"few\"; it must be"},
      {"preset = \"machine\"\nlayout = \"2x\"\n", "s.toml:3: layout: "},
      {"ranks = 3\npreset = \"machine\"\nlayout = \"2x4\"\n", "s.toml:3: preset machine: the layout 2x4x1 has 8"},
      {"preset = \"" + config_folder() + "machines/torus.toml\"\nranks = 3\n", "s.toml:3: study.ranks: "},
      {"preset = \"" + config_folder() + "machines/torus.toml\"\nstructure.x = \"a\"\n",
       "s.toml:3: study.structure.x: parameter x is \"a\""},
  };
  for (const auto& [text, begin] : cases) {
    const std::string why = why_refused("[study]\n" + text);
    CHECK_MESSAGE(why.starts_with(begin), why);
  }
  check_refused(run("explain all_reduce --on flatt"), {"--on: there is no preset flatt"});
  check_refused(run("study " + ring_study() + " --sweep preset=flatt,flatr"), {"--sweep: there is no preset flatt"});
}

TEST_CASE("study, inputs: a file may be a pipe") {
  const std::string four =
      write("four.toml", "[study]\ntitle = \"Four\"\nranks = 4\nchoreography = \"ring\"\nsizes = \"1K\"\n");
  const std::string to = (folder() / "piped").string();
  const auto piped = [&](const std::string& arguments) {
    const int status =
        std::system(("cat " + four + " | '" TROUPE_PROGRAM "' " + arguments + " >" + to + " 2>&1").c_str());
    CHECK(status == 0);
    return contents(to);
  };
  const std::string study = piped("study /dev/stdin --sweep ranks=2,3");
  check_says(study, "# Four\n");
  CHECK(rows_of(study).size() == 3);
  for (const auto& row : rows_of(study)) CHECK(std::find(row.begin(), row.end(), "1024") != row.end());
  // B is A's file again.
  const auto rows = rows_of(piped("compare /dev/stdin --set-b ranks=4"));
  REQUIRE(rows.size() == 1);
  CHECK(rows[0][5] == "1.000");
}

TEST_CASE("study, inputs: a title from the file says what was changed") {
  const auto heading = [](const std::string& arguments, const std::string& before = {}) {
    return lines_of(run("study " + ring_study() + " --set sizes=1K " + arguments, before).out).at(0);
  };
  CHECK(heading("") == "# Ring all-reduce on 16 ranks, sizes=1K");
  CHECK(heading("--set study.ranks=4", "TROUPE_STUDY_CREDITS=2") ==
        "# Ring all-reduce on 16 ranks, credits=2, sizes=1K, ranks=4");
  CHECK(heading("--set ranks=4 --set title=Four") == "# Four");
  const outcome compared = run("compare " + ring_study() + " --set sizes=1K --set-b ranks=4");
  check_says(compared.out, "# B: Ring all-reduce on 16 ranks, sizes=1K, ranks=4 (");
}

TEST_CASE("study, inputs: what only the file's own value is wrong with does not keep a sweep from being run") {
  const std::string study = "study " + ring_study() + " --set sizes=1K --set collective=broadcast --set root=20 ";
  const outcome o = run(study + "--sweep ranks=8,32,64");
  CHECK(o.code == 2);  // of the 8
  check_says(o.out, "ranks=32");
  check_says(o.out, "refused: --set: study.root: there is no rank 20; ranks are 0 to 7");
  check_says(o.err, "ranks are 0 to 15 (that is the study without a sweep; ranks=32 is shown in its place)");
  CHECK(run(study + "--sweep ranks=32,64").code == 0);
  check_refused(run(study + "--sweep ranks=3,4"), {"there is no rank 20"});
}

TEST_CASE("study, inputs: an option that is no number is refused") {
  check_refused(run("experts --skew nan --layers 1"), {"--skew: nan is no number"});
  check_refused(run("experts --skew=-nan --layers 1"), {"is no number"});
}

TEST_CASE("study, inputs: the CSV of a sweep has a row for each value, refused ones too") {
  const outcome o =
      run("study " + ring_study() + " --set sizes=1K --sweep ranks=4,y,8 --sweep choreography=bruck,ring --csv -");
  CHECK(o.code == 2);
  const auto lines = lines_of(o.out);
  REQUIRE(lines.size() == 7);
  const auto heading = fields_of(lines[0]);
  CHECK(heading.back() == "refused");
  const auto column = [&](const char* name) {
    return static_cast<std::size_t>(std::find(heading.begin(), heading.end(), name) - heading.begin());
  };
  std::vector<std::string> values;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const auto fields = fields_of(lines[i]);
    INFO(lines[i]);
    REQUIRE(fields.size() == heading.size());
    values.push_back(fields[0] + "=" + fields[1]);
    const bool refused = fields[1] == "y" || fields[1] == "bruck";
    CHECK(fields.back().empty() != refused);
    for (const char* figure :
         {"bytes", "time_us", "busbw", "bound_us", "steps", "failed", "channels", "slices", "slices_per_step"})
      CHECK(fields[column(figure)].empty() == refused);
  }
  // In the order in which they were asked for.
  CHECK(values ==
        std::vector<std::string>{"=", "ranks=4", "ranks=y", "ranks=8", "choreography=bruck", "choreography=ring"});
  check_says(fields_of(lines[3]).back(), "study.ranks is the text \"y\"; it must be");
  check_says(fields_of(lines[5]).back(), "bruck does not offer all_reduce");
  const outcome cut = run("study " + ring_study() +
                          " --set sizes=64K --set channels=2 --set slices=4 --sweep slices_per_step=2,1 --csv - ");
  const auto cuts = lines_of(cut.out);
  REQUIRE(cuts.size() == 4);
  for (const auto& [line, per_step] : {std::pair{2, "2"}, {3, "1"}}) {
    const auto fields = fields_of(cuts[static_cast<std::size_t>(line)]);
    CHECK(fields[column("channels")] == "2");
    CHECK(fields[column("slices")] == "4");
    CHECK(fields[column("slices_per_step")] == per_step);
  }
  check_says(cut.err, "ring, simple, 2 channels, 4 slices, 2 a step");

  // Of jobs; whose names may be anything.
  const std::string jobs = write("named.toml", "[study]\nranks = 4\n[[study.job]]\nname = 'a, \"b\"'\n"
                                               "calls = \"all_reduce 4K by ring\"\n");
  const auto of_jobs = lines_of(run("study " + jobs + " --sweep job.rounds=2,none --csv -").out);
  REQUIRE(of_jobs.size() == 6);  // a line a job and a line a call, of what is refused one
  for (const std::string& line : of_jobs) CHECK(fields_of(line).size() == fields_of(of_jobs[0]).size());
  CHECK(fields_of(of_jobs[1])[2] == "a, \"b\"");
  CHECK(fields_of(of_jobs[5])[1] == "none");
  CHECK(fields_of(of_jobs[5])[2].empty());
  CHECK(fields_of(of_jobs[0])[fields_of(of_jobs[0]).size() - 2] == "slices_per_step");
  CHECK(fields_of(of_jobs[1])[fields_of(of_jobs[1]).size() - 2].empty());  // of the job
  CHECK(fields_of(of_jobs[2])[fields_of(of_jobs[2]).size() - 2] == "1");   // of its call
  check_says(fields_of(of_jobs[5]).back(), "study.job.rounds is the text \"none\"");
}

// -- what does nothing ------------------------------------------------------------------------------------------------

TEST_CASE("study, inputs: a key that does nothing is a mistake, told at its line") {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"choreography = \"ring\"\n[study.nccl]\nchannels = 4\n",
       "s.toml:5: study.nccl.channels would do nothing: NCCL's tuning model is asked where study.choreography is "
       "\"nccl\", "
       "and it is \"ring\""},
      {"[study.nccl]\nversion = \"2.23\"\n", "s.toml:4: study.nccl.version would do nothing"},
      {"choreography = \"nccl\"\ncollective = \"all_to_all\"\n[study.nccl]\nnvls = true\n",
       "study.nccl.nvls would do nothing: an all_to_all is a group of sends and receives"},
      {"collective = \"all_to_all\"\n[study.hccl]\nbuffer = \"1M\"\n",
       "s.toml:5: study.hccl.buffer would do nothing: HCCL's"},
      {"collective = \"broadcast\"\nop = \"max\"\n", "s.toml:4: study.op would do nothing: broadcast reduces nothing"},
      {"collective = \"broadcast\"\nany_order = true\n", "study.any_order would do nothing: nothing is reduced"},
      {"root = 3\n", "s.toml:3: study.root would do nothing: all_reduce has no root"},
      {"collective = \"barrier\"\nsizes = \"4K\"\n", "study.sizes would do nothing: barrier has no data"},
      {"collective = \"barrier\"\nchannels = 2\n", "study.channels would do nothing: barrier has no data"},
      {"unit = 4\n", "study.unit would do nothing: it is the unit of study.counts"},
      {"collective = \"all_gather_v\"\ncounts = [1, 2, 3, 4]\nsizes = \"4K\"\n",
       "study.sizes would do nothing: study.counts"},
      {"choreography = \"ring\"\nstreams = 2\n", "study.streams would do nothing: it is of direct_full_mesh"},
      {"collective = \"broadcast\"\nstreams = 2\n", "study.streams would do nothing"},
      {"collective = \"all_gather\"\nchoreography = \"hierarchical_pipeline\"\nstreams = 2\n",
       "study.streams would do nothing"},
      {"through_scratch = true\nchoreography = \"ring\"\n",
       "study.through_scratch would do nothing: it is of pairwise"},
      {"collective = \"all_gather\"\nchoreography = \"ring\"\ncontiguous = true\n",
       "study.contiguous would do nothing"},
      {"slices = 4\nchunk_bytes = \"4K\"\n", "study.chunk_bytes would do nothing: study.slices says"},
      {"slices = 1\nslices_per_step = 2\n", "study.slices_per_step would do nothing: study.slices says"},
      {"choreography = \"ring\"\nslices_per_step = 2\n",
       "study.slices_per_step would do nothing: 1M by ring, simple, is not cut"},
      {"seed = 2\n", "study.seed would do nothing: it is of the times below study.skew_spread"},
      {"overlap = true\n", "study.overlap would do nothing: they are of the computation study.compute"},
      {"compute_blocks = 2\n", "study.compute_blocks would do nothing"},
      {"compute_dma_bytes = 8\n", "study.compute_dma_bytes would do nothing"},
      {"compute = \"1us\"\ncompute_dma_bytes = 8\n",
       "s.toml:4: study.compute_dma_bytes would do nothing: on flat no rank has a DMA"},
      {"collective = \"all_to_all_v\"\nin_place = true\n",
       "study.in_place would do nothing: all_to_all_v is never in place"},
      {"[[study.job]]\ncalls = \"all_reduce 4K\"\n[study.nccl]\nnvls = true\n",
       "study.nccl.nvls would do nothing: NCCL's tuning model is asked in studies of one collective, and this one has "
       "jobs"},
      {"streams = 2\n[[study.job]]\ncalls = \"all_reduce 4K by ring\"\n", "study.streams would do nothing"},
      {"any_order = true\n[[study.job]]\ncalls = \"broadcast 4K\"\n", "study.any_order would do nothing"}};
  for (const auto& [text, why] : cases) {
    CAPTURE(text);
    check_says(why_refused("[study]\nranks = 4\n" + text), why);
  }
  // Where somebody can do it, nobody complains.
  for (const char* text :
       {"collective = \"all_to_all\"\nchoreography = \"nccl\"\nstreams = 2\n",
        "collective = \"all_to_all\"\nstreams = 2\n", "collective = \"all_gather\"\ncontiguous = true\n",
        "collective = \"all_to_all\"\nthrough_scratch = true\n",
        "collective = \"reduce\"\nroot = 3\nop = \"max\"\nany_order = true\n", "slices = 4\nslices_per_step = 2\n",
        "skew_spread = \"1us\"\nseed = 2\n", "compute = \"1us\"\noverlap = true\ncompute_blocks = 2\n",
        "collective = \"all_gather_v\"\ncounts = [1, 2, 3, 4]\nunit = 4\n",
        "streams = 2\n[[study.job]]\ncalls = \"all_to_all 4K by grouped, all_reduce 4K by ring\"\n"}) {
    CAPTURE(text);
    CHECK(why_refused("[study]\nranks = 4\n" + std::string{text}) == "accepted");
  }
}

TEST_CASE("study, inputs: what a flow, a trace or experts have no use for is a mistake") {
  const auto flow = [](const std::string& key) {
    return why_refused("[study]\npreset = \"sunway_card\"\nranks = 4\nsizes = \"64K\"\n" + key +
                       "[[study.node]]\nname = \"x\"\nkind = \"source\"\n[[study.node]]\nname = \"a\"\nkind = "
                       "\"operator\"\nfrom = \"x\"\ntime = \"1us\"\n");
  };
  CHECK(flow("") == "accepted");
  for (const char* key : {"channels = 2\n", "credits = 1\n", "choreography = \"ring\"\n", "protocol = \"auto\"\n"})
    check_says(flow(key), "would do nothing: no node of the flow is a collective");
  check_says(flow("op = \"max\"\n"), "s.toml:5: study.op would do nothing: no node of the flow reduces");
  for (const char* key : {"seed = 3\n", "payload = \"real\"\n"})
    check_says(flow(key), "would do nothing: the study has a flow");

  const std::string trace = "replay " + config_folder() + "traces/stencil.goal --on flat --set ";
  const std::string experts = "experts --on flat --ranks 4 --layers 1 --set ";
  for (const char* key : {"unit=2", "seed=3", "compute_blocks=2", "compute_dma_bytes=1K", "skew.1=3us", "sizes=4K"}) {
    CAPTURE(key);
    check_refused(run(trace + key), {"--set: study.", "would do nothing here: the trace says"});
    check_refused(run(experts + key), {"--set: study.", "would do nothing here: experts are"});
  }
}

TEST_CASE("study, inputs: what a stronger source makes do nothing is no mistake, and no dump says it") {
  const std::string told = "[study]\nranks = 4\nchoreography = \"nccl\"\n[study.nccl]\nchannels = 4\ninside = 20\n";
  const std::string nothing = "--set: study.nccl.channels would do nothing";
  CHECK(why_refused(told) == "accepted");
  CHECK(why_refused(told, {"study.choreography=ring"}) == "accepted");
  check_says(why_refused(told, {"study.choreography=ring", "study.nccl.channels=3"}), nothing);
  check_says(why_refused("[study]\nranks = 4\n", {"study.nccl.channels=12"}), nothing);
  // As a dump has it: what holds anyway.
  CHECK(why_refused("[study]\nranks = 4\n[study.nccl]\nchannels = 12\n") == "accepted");

  const std::string file = write("told.toml", told);
  const outcome dumped = run("study " + file + " --set choreography=ring --dump-config");
  CHECK(dumped.code == 0);
  check_says(dumped.out, "inside = 30.0");
  CHECK(run("study " + write("told_again.toml", dumped.out)).code == 0);
  check_refused(run("study " + file + " --set choreography=ring --set nccl.inside=3"),
                {"--set: study.nccl.inside would do nothing"});
  // One run's word is stronger than that of all.
  const outcome swept = run("study " + file + " --set nccl.inside=3 --sweep choreography=ring,nccl");
  CHECK(swept.code == 0);
  CHECK(swept.out.find("refused") == std::string::npos);
  CHECK(run("compare " + file + " --set nccl.inside=3 --set-b choreography=ring").code == 0);
  check_refused(run("compare " + file + " --set-b nccl.inside=3 --set-b choreography=ring"),
                {"--set-b: study.nccl.inside would do nothing"});
}

TEST_CASE("study, inputs: slices_per_step that no size and no candidate can have is a mistake") {
  const auto why = [](const std::string& text) {
    return why_refused("[study]\nranks = 4\nslices_per_step = 2\n" + text);
  };
  check_says(why("preset = \"sunway_card\"\nchoreography = \"csc\"\nslices = 4\n"),
             "s.toml:3: study.slices_per_step would do nothing: csc has cells in L0");
  check_says(why("collective = \"all_gather_v\"\ncounts = [100, 200, 300, 400]\n"),
             "study.slices_per_step would do nothing");
  // Of several sizes one is cut.
  CHECK(why("choreography = \"ring\"\nchunk_bytes = \"16K\"\nsizes = [\"1K\", \"1M\"]\n") == "accepted");
  CHECK(why("sizes = [\"1K\", \"1M\"]\n") == "accepted");
  // Every choreography that `explain` tries for itself takes what it can.
  CHECK(run("explain all_reduce --on flat --ranks 4 --bytes 1K --set slices_per_step=2").code == 0);
}

TEST_CASE("study, inputs: a cell is cut into no more slices than it has elements") {
  const auto row = [](int slices) {
    configuration c;
    c.add_text("[study]\nranks = 4\nchoreography = \"ring\"\nsizes = \"1K\"\nslices = " + std::to_string(slices) +
                   "\nslices_per_step = 3\n",
               "s.toml");
    return run_study(read_study(c));
  };
  const study_result most = row(64), more = row(1'000'000);
  CHECK(most.rows.front().cut == cutting{1, 64, 3});
  CHECK(more.rows.front().cut == cutting{1, 64, 3});
  CHECK(more.rows.front().time_us == most.rows.front().time_us);
  CHECK(most.remarks.empty());
  REQUIRE(more.remarks.size() == 1);
  CHECK(more.remarks.front() ==
        "study.slices: 1K by ring goes in 64 slices instead of 1000000, as its cells have no more elements");
}

TEST_CASE("study, inputs: explain --on refuses what its own options say, or what it tries anyway") {
  const std::string on = "explain all_reduce --on flat --ranks 4 ";
  for (const auto& [said, right] : {std::pair{"sizes=1K", "say --bytes"},
                                    {"study.preset=torus", "say --on"},
                                    {"collective=broadcast", "behind `explain`"},
                                    {"choreography=ring", "all are tried"},
                                    {"protocol=simple", "all that the machine has"}}) {
    CAPTURE(said);
    check_refused(run(on + "--set " + said), {"would do nothing with --on", right});
  }
  check_refused(run(on + "--set nccl.channels=3"), {"study.nccl.channels would do nothing"});
  // What a file says that all are tried of.
  const std::string told = write("told.toml", "[study]\nchoreography = \"nccl\"\n[study.nccl]\nchannels = 4\n");
  CHECK(run(on + "--bytes 1K --config " + told).code == 0);
  CHECK(run("explain barrier --on flat --ranks 4").code == 0);
  check_refused(run("explain barrier --on flat --ranks 4 --bytes 1K"),
                {"--bytes: study.sizes would do nothing: barrier has no data"});
  const std::string counted =
      write("counted.toml", "[study]\nranks = 4\ncounts = [1, 2, 3, 4]\ncollective = \"all_gather_v\"\n");
  CHECK(run("explain all_gather_v --on flat --config " + counted).code == 0);
}

// -- jobs -------------------------------------------------------------------------------------------------------------

TEST_CASE("study, inputs: what is wrong with a job is told at its line") {
  // Line 5 begins the second job, whose keys follow.
  const std::string two = "[study]\nranks = 4\n[[study.job]]\ncalls = \"barrier\"\n[[study.job]]\n";
  const std::vector<std::pair<std::string, std::string>> second{
      {"ranks = 2\n", "s.toml:5: this [[study.job]] has no calls"},
      {"calls = \"barrier\"\nrank = 2\n", "s.toml:7: unknown key study.job.rank; did you mean study.job.ranks?"},
      {"collective = \"barrier\"\n",
       "s.toml:6: unknown key study.job.collective; a [[study.job]] has name, calls, ranks"},
      {"calls = \"barrier\"\nrounds = 0\n", "s.toml:7: study.job.rounds is"},
      {"name = \"b\"\ncalls = \"all_redce 4K\"\n", "s.toml:7: b: calls: a job performs no"},
      {"name = \"b\"\ncalls = \"all_reduce 4K by rign\"\n", "s.toml:7: b: calls: there is no choreography \"rign\""},
      {"calls = \"all_reduce 4K\"\n\nchoreography = \"rign\"\n", "s.toml:8: job 1: choreography: there is no"},
      {"calls = \"all_reduce 4K\"\ntype = \"f31\"\n", "s.toml:7: job 1: type: there is no element type"},
      {"calls = \"all_reduce 4K\"\nop = \"band\"\n", "s.toml:7: job 1: op: band is no operation of f32"},
      {"calls = \"barrier\"\nstart = \"soon\"\n", "s.toml:7: job 1: start: \"soon\" is no time"},
      {"calls = \"barrier\"\nperiod = \"2000s\"\n", "s.toml:7: job 1: period: \"2000s\" is too long"},
      {"calls = \"barrier\"\non = \"0-x\"\n", "s.toml:7: job 1: on: \"0-x\" is no list of ranks"},
      {"calls = \"barrier\"\non = \"0\"\nranks = 1\n", "s.toml:8: job 1: ranks: it says both"},
      {"calls = \"barrier\"\nname = \"job 0\"\n", "s.toml:7: job 0: name: two jobs are called"},
      {"calls = \"barrier\"\non = \"0\"\ncopies = 2\n", "s.toml:8: job 1: copies: copies on the same ranks"},
      {"calls = \"barrier\"\n\ncopies = 4096\n", "s.toml:8: job 1: copies: there are at most"},
  };
  for (const auto& [text, begin] : second) {
    const std::string why = why_refused(two + text);
    CHECK_MESSAGE(why.starts_with(begin), why);
  }
  // What only the machine knows: the line is that of the key, not of another one.
  const std::string one = "[study]\nranks = 4\n[[study.job]]\nname = \"a\"\ncalls = \"all_reduce 4K by ring\"\n";
  const std::vector<std::pair<std::string, std::string>> first{
      {"\non = \"0-4\"\n", "s.toml:7: a: on: the machine has no rank 4"},
      {"on = \"1,1\"\n", "s.toml:6: a: on: rank 1 is named twice"},
      {"\nranks = 5\n", "s.toml:7: a: ranks: it needs 5 ranks"},
      {"layout = \"1x3\"\n", "s.toml:6: a: layout: \"1x3\" has 3 ranks, the job 4"},
      {"layout = \"1xx\"\n", "s.toml:6: a: layout: "},
      {"\nby = \"nics\"\n", "s.toml:7: a: by: flat has no NICs"},
      {"root = 4\n", "s.toml:6: a: root: it has no rank 4"},
      {"\nprotocol = \"fast\"\n", "s.toml:7: a: protocol: flat has no protocol \"fast\"; there are auto, simple"},
      {"[[study.job]]\nname = \"b\"\ncalls = \"barrier\"\n", "s.toml:6: b: it needs 4 ranks, and none is free"},
      {"[[study.job]]\ncalls = \"barrier\"\nname = \"b\"\non = \"3\"\n", "s.toml:9: b: on: rank 3 belongs to a"},
      {"[study.skew]\n1 = \"1us\"\n", "s.toml:7: study.skew.1 would do nothing"},
      {"[study.faults]\n\"rank 2\" = \"exits at 1us\"\n", "s.toml:7: study.faults.rank 2: ranks are lost in"},
      {"[study.structure]\nradix = 4\n", ""},
  };
  for (const auto& [text, begin] : first) {
    const std::string why = why_refused(one + text);
    CHECK_MESSAGE((why.starts_with(begin) && why != "accepted"), why);
  }
  CHECK(why_refused("[study]\nranks = 4\n[[study.job]]\nname = \"a\"\ncalls = \"all_reduce 4K by bruck\"\n")
            .starts_with("s.toml:5: a: all_reduce: bruck does not offer"));
  // What a job takes from [study] stands there; and what the command line says is its own.
  const std::string of_study =
      "[study]\nranks = 4\nprotocol = \"fast\"\n[[study.job]]\nname = \"a\"\ncalls = \"barrier\"\n";
  CHECK_MESSAGE(why_refused(of_study).starts_with("s.toml:3: study.protocol: flat has no protocol"),
                why_refused(of_study));
  const std::string hccl = "[study]\nranks = 4\nchoreography = \"hccl\"\n[[study.job]]\ncalls = \"all_to_all 4K\"\n";
  CHECK_MESSAGE(why_refused(hccl).starts_with("s.toml:3: study.choreography: hccl is a selection of the study's one"),
                why_refused(hccl));
  CHECK(why_refused(one, {"study.job.calls=all_reduce 4K by nccl"}).find("nccl is a selection of the study's one") !=
        std::string::npos);
  for (const char* const nothing : {"scatter", "scan", "all_gather_v", "barrier"}) {
    const std::string nccl =
        "[study]\nranks = 4\nchoreography = \"nccl\"\ncollective = \"" + std::string{nothing} + "\"\n";
    CHECK_MESSAGE(why_refused(nccl).starts_with("s.toml:3: study.choreography: NCCL's tuning model is of all_reduce"),
                  why_refused(nccl));
  }
  CHECK_MESSAGE(why_refused(one, {"study.job.0.on=0-4"}).starts_with("--set: a: on: the machine has no rank 4"),
                why_refused(one, {"study.job.0.on=0-4"}));
  CHECK_MESSAGE(why_refused(one, {"study.job.calls=all_redce 4K"}).starts_with("--set: a: calls: a job performs no"),
                why_refused(one, {"study.job.calls=all_redce 4K"}));
  CHECK(why_refused("[study]\npreset = \"tianhe_32\"\nranks = 8\n[[study.job]]\ncalls = \"all_reduce 16K by "
                    "halving_doubling\"\n\ncopies = 300\nshare = true\n")
            .starts_with("s.toml:"));
}

// -- replay, writing instead --------------------------------------------------------------------------------------------

TEST_CASE("study, inputs: replay refuses what does nothing where it only writes a trace") {
  const std::string goal = write("small.goal", "num_ranks 2\nrank 0 {\na: calc 5\n}\nrank 1 {\na: calc 5\n}\n");
  const std::string to = (folder() / "small").string();
  const std::string writes = "replay " + goal + " --chakra " + to;
  for (const char* option : {"--path", "--json x", "--timeline x", "--report x", "--on flat", "--eager 4K"}) {
    const std::string said = option;
    check_refused(run(writes + " " + said),
                  {said.substr(0, said.find(' ')) + " would do nothing with --chakra, which writes the trace instead"});
  }
  check_refused(run(writes + " --set hardware.link.latency=1us"),
                {"--set: study.hardware.link.latency would do nothing"});
  CHECK(!fs::exists(to + ".0.et"));
  // What says how the trace is read counts.
  CHECK(run(writes + " --set study.score_files.mine=" + write("mine.json", "{}")).code == 0);
  CHECK(fs::exists(to + ".0.et"));
  CHECK(run("replay " + to + ".0.et " + to + ".1.et --flops 1T --chakra " + to + "2").code == 0);
  // Chakra's options, of a trace in GOAL.
  check_refused(run("replay " + goal + " --flops 1T"), {"--flops would do nothing", "GOAL"});
  check_refused(run("replay " + goal + " --memory-rate 1TB/s"), {"--memory-rate would do nothing", "GOAL"});
}

// -- faults -------------------------------------------------------------------------------------------------------------

TEST_CASE("study, inputs: faults are of fifo elements; of others they are refused, at their line") {
  const std::string ring = "[study]\nranks = 4\nchoreography = \"ring\"\nsizes = \"1M\"\n";
  for (const char* discipline : {"fair", "max_min"})
    for (const char* fault : {"down from 5us to 15us", "4 from 5us"}) {
      const std::string why = why_refused(ring + "[study.faults]\n\"up 3\" = \"" + fault +
                                          "\"\n[study.hardware]\nlink.discipline = \"" + discipline + "\"\n");
      CHECK_MESSAGE(why.starts_with("s.toml:6: faults.up 3: up 3 is " + std::string{discipline} + "; "), why);
      check_says(why, "discipline = fifo");
      check_says(why, "slow.up 3");
    }
  // A rank is lost on any; and an element may be slow all the time.
  for (const char* discipline : {"fifo", "fair", "max_min"}) {
    const std::string of = "[study.hardware]\nlink.discipline = \"" + std::string{discipline} + "\"\n";
    CHECK(why_refused(ring + "[study.faults]\n\"rank 3\" = \"exits at 5us\"\n" + of) == "accepted");
    CHECK(why_refused(ring + "[study.slow]\n\"up 3\" = 2\n" + of) == "accepted");
  }
  CHECK(why_refused(ring + "[study.faults]\n\"up 9\" = \"2 from 5us\"\n").starts_with("s.toml:6: "));
  CHECK(why_refused(ring + "[study.slow]\n\"up 9\" = 2\n").starts_with("s.toml:6: "));
  CHECK(why_refused(ring + "[study.skew]\n9 = \"2us\"\n").starts_with("s.toml:6: study.skew.9: there is no rank 9"));
}

TEST_CASE("study, inputs: either direction of a half-duplex pair can be slow, or fail") {
  const std::string ring = "[study]\nranks = 4\nchoreography = \"ring\"\nsizes = \"1M\"\n[study.hardware]\n"
                           "link.directions = \"half\"\n";
  const auto time = [&](const std::string& more) {
    configuration c;
    c.add_text(ring + more, "s.toml");
    return run_study(read_study(c)).rows.at(0).time_us;
  };
  for (const std::string of :
       {"[study.slow]\n\"NAME 3\" = 4\n", "[study.faults]\n\"NAME 3\" = \"down from 5us to 90us\"\n"}) {
    const auto named = [&](const std::string& name) {
      std::string text = of;
      return text.replace(text.find("NAME"), 4, name);
    };
    CHECK(time(named("up")) > time(""));
    CHECK(time(named("down")) == time(named("up")));
  }
}

}  // namespace study_inputs_test
