// SPDX-License-Identifier: Apache-2.0
// The program, as a user meets it: every subcommand, its help, its mistakes and its exit codes.

#include "tests/engine/program.hpp"

#include <set>

using namespace troupe_program;

namespace {

const std::string small = R"([workload]
ranks = 3
iterations = 2
warmup = 1
[[workload.run]]
collective = "all_reduce"
sizes = ["12", "4K"]
[[workload.run]]
collective = "all_to_all_v"
sizes = ["4K"]
)";

}  // namespace

TEST_CASE("help, version, and nothing at all") {
  const outcome nothing = run("");
  CHECK(nothing.code == 2);
  check_says(nothing.err, "Usage:");
  const outcome help = run("--help");
  CHECK(help.code == 0);
  check_says(help.out, "Exit codes:");
  for (const char* command : {"run", "list", "show", "verify", "explain", "route", "bench"}) {
    check_says(help.out, std::string{"\n  "} + command);
    const outcome o = run(std::string{command} + " --help");
    CAPTURE(command);
    CHECK(o.code == 0);
    CHECK(o.err == "");
    check_says(o.out, "Examples:");
  }
  CHECK(run("--version").code == 0);
  CHECK(run("help").out == help.out);
  CHECK(run("help run").out == run("run --help").out);
  check_refused(run("help rnu"), {"did you mean `troupe run`? See `troupe --help`"});
}

TEST_CASE("mistakes on the command line") {
  check_refused(run("rnu"), {"no command \"rnu\"", "did you mean `troupe run`?"});
  check_refused(run("frobnicate"), {"no command"});
  check_refused(run("--frobnicate"), {"--frobnicate"});
  check_refused(run("run"), {"file", "--help"});
  check_refused(run("run nowhere.toml"), {"nowhere.toml: cannot be read"});
  check_refused(run("run '" + folder().string() + "'"), {"cannot be read"});
  check_refused(run("run x.toml --jsn y"), {"--jsn"});
  check_refused(run("show"), {"choreography"});
  check_refused(run("show rign --ranks 4"), {"did you mean ring?"});
  check_refused(run("show ring --collective all_redcue"), {"did you mean all_reduce?"});
  check_refused(run("show ring --collective all_to_all"), {"ring does not offer all_to_all"});
  check_refused(run("show binomial --collective broadcast --ranks 4 --root 4"), {"root 4"});
  check_refused(run("show ring --ranks 4 --root 4"), {"root 4"});
  check_refused(run("show ring --ranks 0"), {"--ranks"});
  check_refused(run("show ring --layout 100x100"), {"10000 ranks", "at most 8192"});
  check_refused(run("show ring --ranks 5 --layout 2x2"), {"places 4 ranks"});
  check_refused(run("show ring --layout 2y2"), {"layout"});
  check_refused(run("show csc --collective all_reduce --layout 2x4"),
                {"troupe: csc works in memory that all ranks share, and ranks 0 and 4 are on different servers"});
  check_refused(run("route 0 9 --layout 2x2"), {"no rank 9", "0 to 3"});
  check_refused(run("route 0 1"), {"--layout"});
  check_refused(run("verify"), {"--all"});
  check_refused(run("verify --all x.json"), {"not both"});
  check_refused(run("verify --all --ranks 3-1"), {"counts down"});
  check_refused(run("verify --all --ranks none"), {"1-17,24,31"});
  check_refused(run("verify --all --choreography rign"), {"did you mean ring?"});
  check_refused(run("verify --all --choreography bruck --collective barrier"), {"bruck does not offer barrier"});
  check_refused(run("verify nowhere.json"), {"nowhere.json: cannot be read"});
  check_refused(run("explain all_reduce"), {"--ranks"});
  check_refused(run("explain all_redcue --ranks 3"), {"did you mean all_reduce?"});
  check_refused(run("explain all_reduce --ranks 3 --bytes much"), {"\"much\" is no size"});
  check_refused(run("explain all_reduce --ranks 3 --type f31"), {"\"f31\""});
  check_refused(run("explain all_reduce --ranks 3 --op bxor"), {"bxor"});
  check_refused(run("bench --collective all_redcue"), {"did you mean all_reduce?"});
  check_refused(run("bench -b 8 -e 4"), {"more than -e 4"});
  check_refused(run("bench -b 8 -e x"), {"\"x\" is no size"});
  check_refused(run("bench -f 1"), {"--stepfactor", "2 to"});
  check_refused(run("bench -f 2 -i 8"), {"--stepbytes"});
  check_refused(run("bench -t 0"), {"--nthreads"});
  check_refused(run("bench -d f31"), {"f31"});
  check_refused(run("bench -o plus"), {"plus"});
  check_refused(run("bench -o band -d f32"), {"not defined"});
  check_refused(run("bench --collective reduce -t 3 -r 3"), {"0 to 2"});
  check_refused(run("bench --choreography rign"), {"did you mean ring?"});
  check_refused(run("bench -t 1025"), {"-t", "at most 1024"});
  check_refused(run("bench -g 2"), {"-g;", "ranks are -t here"});
  check_refused(run("bench --itres 3"), {"no option --itres; did you mean --iters? See `troupe bench --help`"});
  check_refused(run("verify --all --ranks 8193"), {"at most 8192"});
  check_refused(run("bench --json '" + folder().string() + "/nowhere/x.json'"), {"nowhere/x.json: cannot be written"});
  check_refused(run("bench --json '" + folder().string() + "'"), {"cannot be written"});
  check_refused(run("bench -t 5 --set layout=2x2"), {"-t", "places 4 ranks"});
  check_refused(run("bench --set credits=0"), {"engine.credits is the integer 0", "1 to 64"});
}

TEST_CASE("mistakes in a configuration name file and line") {
  const std::string path = write("wrong.toml", "[engine]\ncredit = 4\n");
  check_refused(run("run '" + path + "'"), {path + ":2: unknown key engine.credit", "did you mean engine.credits?"});
  check_refused(run("run '" + path + "' --dump-config"), {path + ":2: "});
  const std::string empty = write("empty.toml", "[engine]\ncredits = 4\n");
  check_refused(run("run '" + empty + "'"), {"nothing to run", "[[workload.run]]"});
  check_refused(run("run '" + empty + "'", "TROUPE_ENGINE_CREDTIS=3"),
                {"TROUPE_ENGINE_CREDTIS", "did you mean TROUPE_ENGINE_CREDITS?"});
  check_refused(run("run '" + empty + "' --set credist=3"), {"--set: ", "credist"});
  // What cannot be done is found before anything else ran long.
  const std::string refused =
      write("refused.toml", "[[workload.run]]\ncollective = \"broadcast\"\nchoreography = \"bruck\"\n");
  const outcome o = run("run '" + refused + "'");
  check_refused(o, {"bruck does not offer broadcast"});
  CHECK((o.err.find("broadcast, ") == std::string::npos));  // the call is named once
  check_refused(run("bench -t 3 -e 8 --choreography bruck"), {"troupe: all_reduce(count 2, f32, sum", "on 3 ranks"});
}

TEST_CASE("dump-config: values, origins, and TOML again") {
  const std::string path = write("dump.toml", small + "[engine]\ncredits = 4\nspin = 5\n");
  const outcome o = run("run '" + path + "' --dump-config --set streams=7", "TROUPE_ENGINE_SPIN=6");
  CHECK(o.code == 0);
  check_says(o.out, "credits = 4                             # " + path + ":12");
  check_says(o.out, "spin = 6                                # environment TROUPE_ENGINE_SPIN");
  check_says(o.out, "streams = 7                             # command line");
  check_says(o.out, "nic_ports = 1                           # default");
  const outcome again = run("run '" + write("again.toml", o.out) + "' --dump-config");
  CHECK(again.code == 0);
  check_says(again.out, "spin = 6  ");
}

TEST_CASE("run: rows, JSON, overrides") {
  const std::string path = write("small.toml", small), file = (folder() / "small.json").string();
  const outcome o = run("run '" + path + "' --json '" + file + "' --set run.0.choreography=ring");
  INFO(o.err);
  REQUIRE(o.code == 0);
  CHECK(o.err == "");
  const auto rows = rows_of(o.out);
  REQUIRE(rows.size() == 3);
  CHECK(rows[1][0] == "4096");
  CHECK(rows[1][1] == "1024");
  CHECK(rows[1][2] == "float");
  CHECK(rows[1].back() == "ring");
  check_says(o.out, "# Out of bounds values : 0 OK");
  const json document = json::parse(contents(file));
  REQUIRE(document["rows"].size() == 3);
  CHECK(document["meta"]["ranks"] == 3);
  const json& row = document["rows"][1];
  CHECK(row["collective"] == "all_reduce");
  CHECK(row["ranks"] == 3);
  CHECK(row["bytes"] == 4096);
  CHECK(row["count"] == 1024);
  CHECK(row["type"] == "f32");
  CHECK(row["op"] == "sum");
  CHECK(row["choreography"] == "ring");
  CHECK((row["protocol"] == "ll" || row["protocol"] == "ll128"));  // 4 KiB: whichever is faster on this processor
  CHECK(row["wrong"] == 0);
  CHECK(row["in_place"]["wrong"] == 0);
  CHECK(row["time_us"].get<double>() > 0);
  CHECK(row["in_place"]["busbw"].get<double>() == doctest::Approx(row["in_place"]["algbw"].get<double>() * 4 / 3));
  CHECK(document["rows"][2]["collective"] == "all_to_all_v");
  CHECK(document["rows"][2]["in_place"].is_null());
  const outcome piped = run("run '" + path + "' --json -");
  CHECK(piped.code == 0);
  CHECK(json::parse(piped.out)["rows"].size() == 3);
  CHECK(document["meta"]["complete"] == true);
  CHECK(run("run '" + path + "' --json '" + folder().string() + "/nowhere/x.json'").code == 2);
}

TEST_CASE("every file in config/ runs with nothing wrong") {
  int files = 0;
  for (const auto& entry : fs::directory_iterator{config_folder()}) {
    if (entry.path().extension() != ".toml") continue;
    CAPTURE(entry.path().string());
    const outcome o = run("run '" + entry.path().string() + "' --set workload.iterations=1 --set workload.warmup=0");
    INFO(o.out, o.err);
    CHECK(o.code == 0);
    CHECK(!rows_of(o.out).empty());
    ++files;
    check_says(contents(config_folder() + "README.md"), entry.path().filename().string());
  }
  CHECK(files >= 8);
}

TEST_CASE("run --routes prints what chunks passed") {
  const outcome o =
      run("run '" + config_folder() + "three_levels.toml' --routes --set iterations=1 --set run.sizes=4K");
  CHECK(o.code == 0);
  for (const char* element : {"dma 0.0.0", "ring 0.0:", "nic 1:0", "switch"}) check_says(o.out, element);
}

TEST_CASE("run --routes: each way once, and what passed each element, also as JSON") {
  const std::string file =
      write("card.toml",
            "[engine]\nlayout = \"1x1x4\"\nchoreography = \"csc\"\nchannels = 1\n[workload]\nwarmup = 0\niterations = "
            "1\n[[workload.run]]\ncollective = \"all_gather\"\nin_place = \"out\"\nsizes = [\"64K\"]\n");
  const outcome o = run("run '" + file + "' --routes --json -");
  CHECK(o.code == 0);
  check_says(o.err, "# what passed each element");
  const json all = json::parse(o.out);
  const auto ways = all["routes"].get<std::vector<std::string>>();
  CHECK(std::set<std::string>(ways.begin(), ways.end()).size() == ways.size());
  CHECK(ways.size() == 12);
  std::size_t segments = 0;
  for (const json& of : all["elements"]) {
    check_says(o.err, of["element"].get<std::string>());
    segments += of["element"].get<std::string>().starts_with("ring") ? 1 : 0;
    CHECK(of["bytes"].get<std::uint64_t>() % (16 * 1024) == 0);  // blocks of 16 KiB, however often they were run
    CHECK(of["messages"].get<std::uint64_t>() > 0);
    CHECK(of["tokens"].get<std::uint64_t>() > 0);
  }
  CHECK(segments == 8);
  CHECK_FALSE(json::parse(run("run '" + file + "' --json -").out).contains("routes"));
}

TEST_CASE("a card's memory: its sizes are checked, and explain says whom they rule out") {
  const std::string small = "explain all_gather --layout 1x1x4 --bytes 1M --set engine.card.l2=64K";
  check_says(run(small).out, "it needs 1179712 bytes of L2, and an operation may take 21845 (engine.card.l2)");
  CHECK(run("explain all_gather --layout 1x1x4 --bytes 1M").out.find("bytes of L2") == std::string::npos);
  check_refused(run("explain all_gather --ranks 4 --set engine.card.l0=100"),
                {"engine.card.l0 is 100 but must be whole pages"});
}

TEST_CASE("failing while running is exit code 3, and not a hang") {
  const std::string path = write("lossy.toml", small);
  const outcome o = run("run '" + path + "' --set faults.drop=1 --set deadline=5s --set choreography=ring");
  CHECK(o.code == 3);
  check_says(o.err, "troupe: all_reduce, 12, f32, sum: ");
}

TEST_CASE("an own choreography: shown, verified, run; a broken one is refused") {
  const std::string shown = run("show ring --collective all_reduce --ranks 3 --json").out;
  const std::string good = write("good.json", shown);
  CHECK(run("verify '" + good + "'").code == 0);
  const auto config = [&](const std::string& score) {
    return write("own.toml", "[engine.score_files]\nmine = \"" + score +
                                 "\"\n[workload]\nranks = 3\niterations = 1\n"
                                 "[[workload.run]]\ncollective = \"all_reduce\"\nchoreography = \"mine\"\nin_place = "
                                 "\"out\"\nsizes = [1000]\n");
  };
  const outcome o = run("run '" + config("good.json") + "'");  // relative to the file
  CHECK(o.code == 0);
  REQUIRE(rows_of(o.out).size() == 1);
  CHECK(rows_of(o.out)[0].back() == "mine");
  CHECK(run("verify '" + config("good.json") + "'").code == 0);

  json broken = json::parse(shown);
  auto& steps = broken["players"][1]["lanes"][0];
  steps.erase(steps.size() - 1);
  const std::string bad = write("bad.json", broken.dump());
  const outcome verdict = run("verify '" + bad + "'");
  CHECK(verdict.code == 1);
  check_says(verdict.err, "rank ");
  check_says(verdict.out, "FAILED");
  check_refused(run("run '" + config("good.json") + "' --set ranks=4"), {"troupe: all_reduce(", "3 ranks"});
  const outcome refused = run("run '" + config("bad.json") + "'");
  CHECK(refused.code == 2);
  check_says(refused.err, "bad.json does not verify");
  check_refused(run("verify '" + write("nonsense.json", "{\"troupe_score\": 1") + "'"), {"nonsense.json"});
}

TEST_CASE("list") {
  const outcome o = run("list");
  CHECK(o.code == 0);
  for (const char* word : {"ring", "double_binary_tree", "hierarchical_pipeline", "all_to_all", "source:"})
    check_says(o.out, word);
  const json all = json::parse(run("list --json").out);
  CHECK(all.size() >= 12);
  CHECK(all[0]["name"] == "ring");
  CHECK(all[0]["collectives"].size() >= 5);
}

TEST_CASE("show --descriptors: what NICs would be given, for people and for programs") {
  const outcome o = run("show halving_doubling --ranks 4 --descriptors");
  CHECK(o.code == 0);
  check_says(o.out, "0   send                input+512 → 1:0#0, 512 B");
  check_says(o.out, "[C CH CP SwapRemoteData]");
  check_says(o.out, "[C CT CollEndFlag]");
  check_says(o.out, "proved: the descriptors perform the score; 32 descriptors for 32 steps");
  check_says(run("show binomial --collective reduce --ranks 8 --descriptors").out, "CPCount=3]");
  const json all = json::parse(run("show binomial --collective reduce --ranks 8 --descriptors --block 8K --json").out);
  REQUIRE(all.size() == 8);
  const json& gather = all[0]["sequences"][0]["descriptors"][0];
  CHECK(gather["kind"] == "gather");
  CHECK(gather["CPCount"] == 3);
  CHECK(gather["ReduceFlag"] == true);
  CHECK(gather["awaits"].size() == 3);
  CHECK(gather["awaits"][2]["NodeID"] == 4);
  CHECK(gather["bytes"] == 8192);
  // Longer than a packet, so its packets say where they belong.
  CHECK(all[1]["sequences"][0]["descriptors"][0]["SwapRemoteAddr"] == true);
  check_says(run("show ring --ranks 4 --descriptors --block 64K").out, "proved: the descriptors perform the score");
  check_says(
      run("show ring --ranks 4 --descriptors --block 16M").out,
      "not proved for this size, but for blocks of 5 elements in packets of one: the descriptors perform the score");
  check_refused(run("show ring --ranks 4 --block 1K"), {"--block is the size of the blocks of --descriptors"});
  check_refused(run("show ring --ranks 4 --descriptors --block 1001"), {"no multiple"});
  check_refused(run("show ring --ranks 4 --descriptors --lowered"), {"--lowered would do nothing"});
  check_refused(run("show ring --collective all_gather --v --ranks 4 --descriptors"), {"need sizes"});
  const outcome fused = run("show fused --ranks 4 --descriptors");
  CHECK(fused.code != 0);
  check_says(fused.err, "NICs cannot perform fused's all_reduce");
}

TEST_CASE("show") {
  const outcome o = run("show ring --ranks 3");
  CHECK(o.code == 0);
  check_says(o.out, "recv_reduce_send");
  check_says(o.out, "verified: 15 steps");
  CHECK(run("show hierarchical --collective all_gather --layout 2x3 --in-place").code == 0);
  CHECK(run("show csc --collective all_gather --ranks 3 --lowered").code == 0);
  const std::string shared = run("show csc --collective all_reduce --layout 1x1x8").out;
  const auto holds = shared.find("l2[");
  REQUIRE((holds != std::string::npos));
  const std::string line = shared.substr(holds, shared.find('\n', holds) - holds);
  INFO(line);
  CHECK((line.find("block 0 parts 0..7") == line.rfind("block 0 parts 0..7")));
  const json lowered = json::parse(run("show csc --collective all_gather --ranks 3 --lowered --json").out);
  CHECK(lowered["collective"] == "all_gather");
}

TEST_CASE("route") {
  CHECK(run("route 0 3 --layout 1x1x4").out == "rank 0 → dma 0.0.0 → ring 0.0:0→3 → dma 0.0.3 → rank 3\n");
  CHECK(run("route 1 6 --layout 2x4").out == "rank 1 → dma 0.1.0 → nic 0:0 → switch → nic 1:0 → dma 1.2.0 → rank 6\n");
}

TEST_CASE("explain --on: every choreography on a modelled machine, the fastest first") {
  const outcome o = run("explain all_reduce --ranks 4 --bytes 64K --on flat --set hardware.link.latency=3us --json");
  CHECK(o.code == 0);
  const json e = json::parse(o.out);
  CHECK(e.at("preset") == "flat");
  double before = 0;
  int rejected = 0, ring = 0;
  for (const json& c : e.at("candidates")) {
    if (c.contains("rejected")) {
      ++rejected;
      continue;
    }
    CHECK(rejected == 0);
    CHECK(c.at("time_us").get<double>() >= before);
    before = c.at("time_us").get<double>();
    CHECK(before >= c.at("bound_us").get<double>());
    ring += c.at("choreography") == "ring";
    if (c.at("choreography") == "ring")
      CHECK(before > 36);  // six messages one after the other, of 6 us each before the first byte
  }
  CHECK(ring == 1);
  CHECK(rejected > 0);
  check_says(run("explain all_reduce --ranks 4 --on flat").out, "rejected: bruck");
  check_refused(run("explain all_reduce --ranks 4 --on flat --measure"), {"--measure", "--on"});
  check_refused(run("explain all_reduce --ranks 4 --on flta"), {"flat"});
}

TEST_CASE("explain") {
  const outcome o = run("explain all_reduce --ranks 8 --bytes 1M");
  CHECK(o.code == 0);
  check_says(o.out, "ring");
  check_says(o.out, "rejected: bruck does not offer all_reduce");
  const json e = json::parse(run("explain all_to_all --layout 2x2 --bytes 64K --type bf16 --json").out);
  CHECK(e["collective"] == "all_to_all");
  CHECK(e["ranks"] == 4);
  CHECK(e["bytes"] == 65536);
  CHECK(e["chosen"].is_string());
  CHECK(e["candidates"].size() >= 12);
  const json v = json::parse(run("explain all_to_all_v --ranks 3 --bytes 12K --json").out);
  CHECK(v["collective"] == "all_to_all_v");
  CHECK(v["counts"] == json{1024, 1024, 1024});
  CHECK(v["chosen"].is_string());
  const outcome pairs = run("explain send_recv --ranks 3");
  CHECK(pairs.code == 0);
  check_says(pairs.out, "nothing to choose");
  check_says(run("explain all_reduce --ranks 1").out, "on 1 rank, ");
}

TEST_CASE("verify --all counts what it verified") {
  const outcome o = run("verify --all --ranks 1-4,6 --collective all_reduce");
  INFO(o.err);
  CHECK(o.code == 0);
  std::size_t scores = 0;
  std::istringstream{o.out} >> scores;
  CHECK(scores > 300);
  check_says(o.out, "scores verified");
  const std::string before = "programs for slots or the direct board: ";
  check_says(o.out, before);
  std::size_t programs = 0;
  std::istringstream{o.out.substr(o.out.find(before) + before.size())} >> programs;
  CHECK(programs > 100);
  const std::string by_mailbox = ", by mailbox: ";
  check_says(o.out, by_mailbox);
  std::size_t mailbox_programs = 0;
  std::istringstream{o.out.substr(o.out.find(by_mailbox) + by_mailbox.size())} >> mailbox_programs;
  const std::string several = "two slices a step: ";
  check_says(o.out, several);
  std::size_t grouped = 0;
  std::istringstream{o.out.substr(o.out.find(several) + several.size())} >> grouped;
  CHECK(grouped > 300);
  CHECK((scores - grouped) % 6 == 0);                           // the others are six limits a score,
  CHECK(7 * grouped <= scores);                                 // and this the seventh, but where there are cells in L0
  CHECK(2 * (mailbox_programs - grouped) == scores - grouped);  // three of the six
  const outcome fewer = run("verify --all --ranks 4 --collective all_reduce --choreography ring");
  std::size_t few = 0;
  std::istringstream{fewer.out} >> few;
  CHECK(few > 10);
  CHECK(few < scores);
  CHECK(run("verify '" + config_folder() + "own_score.toml'").code == 0);
}

TEST_CASE("verify --all proves the programs of every collective that goes over slots, with the tokens it needs there") {
  for (const char* collective : {"scan", "exscan", "broadcast", "reduce", "gather", "scatter"}) {
    const outcome o =
        run(std::string{"verify --all --ranks 5 --choreography binomial --json --collective "} + collective);
    INFO(o.err);
    CHECK(o.code == 0);
    CAPTURE(collective);
    const nlohmann::json found = nlohmann::json::parse(o.out);
    CHECK(found["faults"] == 0);
    CHECK(found["programs"] > 0);
  }
}

TEST_CASE("bench: nccl-tests' columns") {
  const outcome o = run("bench -b 8 -e 4K -f 8 -t 3 -n 2 -w 1");
  INFO(o.out, o.err);
  REQUIRE(o.code == 0);
  check_says(o.out, "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   "
                    "algbw   busbw  #wrong\n");
  check_says(o.out, "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)");
  const auto rows = rows_of(o.out);
  REQUIRE(rows.size() == 4);
  for (const auto& row : rows) {
    REQUIRE(row.size() == 13);
    CHECK(row[2] == "float");
    CHECK(row[3] == "sum");
    CHECK(row[4] == "-1");
    CHECK(row[8] == "0");
    CHECK(row[12] == "0");
  }
  check_says(o.out, "# Avg bus bandwidth    : ");
}

TEST_CASE("bench: everything, a thread a rank and one thread for all") {
  for (const char* mode : {"", " --one-thread"}) {
    CAPTURE(mode);
    const outcome o = run(std::string{"bench --collective all -b 4K -e 4K -t 5 -n 2 -w 0 -r all"} + mode);
    INFO(o.out, o.err);
    CHECK(o.code == 0);
    CHECK(rows_of(o.out).size() == 11 + 6 * 5);  // six rooted ones, counting v-forms
    for (const auto& row : rows_of(o.out)) CHECK(row[8] == "0");
  }
  const auto all = rows_of(run("bench -b 1K -e 1K -t 3 -n 1 -w 0 -d all -o all").out);
  CHECK(all.size() == 6 * 11 + 6 * 8 + 2 * 4);  // integers, floats, complex numbers
  for (const auto& row : all) {
    CHECK(row[8] == "0");
    CHECK(row[12] == "0");
  }
  const outcome ordered = run("bench -b 8 -e 8 -t 2 -d c64 -o max");
  CHECK(ordered.code == 2);
  check_says(ordered.err, "-o max is not defined on c64; complex numbers have no order, truth or bits");
  const auto unchecked = rows_of(run("bench -b 1K -e 3K -i 1K -t 2 -n 1 -c 0").out);
  REQUIRE(unchecked.size() == 3);
  CHECK(unchecked[2][0] == "3072");
  CHECK(unchecked[2][8] == "N/A");
}

TEST_CASE("scan and exscan: listed, shown, verified, explained, measured, studied") {
  check_says(run("list").out, "  scan            ring binomial recursive_doubling one_shot\n");
  const std::string shown = run("show binomial --collective exscan --ranks 8").out;
  check_says(shown, "binomial: exscan, 8 ranks");
  check_says(shown, "combines in rank order, every element in the same tree");
  check_says(run("show ring --collective scan --ranks 4").out, "left fold in rank order");
  for (const std::string what : {"scan", "exscan"}) {
    CAPTURE(what);
    const outcome proved = run("verify --all --ranks 1-5,8 --collective " + what);
    INFO(proved.out, proved.err);
    CHECK(proved.code == 0);
    check_says(proved.out, "scores verified");
    const json e = json::parse(run("explain " + what + " --ranks 4 --bytes 64 --op prod --json").out);
    CHECK(e["bytes"] == 64);
    CHECK(e["chosen"].is_string());
    for (const char* how :
         {"-d all -o all --protocol simple", "-o prod --protocol ll", "-d i8 -o max --protocol ll128"}) {
      const outcome o = run("bench --collective " + what + " -b 64 -e 1K -f 16 -t 5 -n 2 -w 0 " + how);
      INFO(how, o.out, o.err);
      CHECK(o.code == 0);
      CHECK(rows_of(o.out).size() >= 2);
      for (const auto& row : rows_of(o.out)) {
        CHECK(row[4] == "-1");
        CHECK(row[8] == "0");
        CHECK(row[12] == "0");
      }
    }
    for (const char* by : {"ring", "recursive_doubling", "binomial", "one_shot"})
      for (const char* place : {"false", "true"}) {
        const outcome o =
            run("study '" + config_folder() + "studies/ring.toml' --set ranks=7 --set payload=real --set sizes=100K " +
                "--set collective=" + what + " --set choreography=" + by + " --set in_place=" + place);
        INFO(by, o.out, o.err);
        REQUIRE(rows_of(o.out).size() == 1);
        CHECK(rows_of(o.out)[0][8] == "0");
      }
  }
}

TEST_CASE("troupe study --calibrate puts the model of this machine beside measurements") {
  const outcome o =
      run("study --calibrate --ranks 2 --sizes 1K,4K --rounds 1 --budget-ms 0.5 --set engine.tuning=none");
  CHECK(o.code == 0);
  for (const char* name :
       {"ring", "direct_full_mesh", "recursive_doubling", "halving_doubling", "1K", "4K", "all", "assumed constants"})
    check_says(o.out, name);
  check_says(run("study --presets").out, "this_machine: ");
  // As the engine is told to cut: several slices a step.
  const outcome grouped =
      run("study --calibrate --ranks 4 --sizes 64K --rounds 1 --budget-ms 0.5 --set engine.tuning=none "
          "--set engine.chunk_bytes=2K --set engine.slices_per_step=2 --json -");
  CHECK(grouped.code == 0);
  const json told = json::parse(grouped.out);  // outlives the loop over a part of it
  for (const json& call : told["calls"]) {
    if (call["choreography"] != "ring") continue;
    CHECK(call["slices"] == 8);
    CHECK(call["slices_per_step"] == 2);
  }
  check_refused(run("study --calibrate --ranks 1"), {"--ranks"});
  check_refused(run("study --ranks 2"), {"--calibrate"});
  check_refused(run("study --calibrate --sizes many"), {"many"});
}

TEST_CASE("verify, route: as JSON") {
  const json verified =
      json::parse(run("verify --all --ranks 3 --choreography ring --collective all_reduce --json").out);
  CHECK(verified["scores"].get<int>() > 0);
  CHECK(verified["faults"] == 0);
  CHECK(verified["first_faults"].empty());
  const json way = json::parse(run("route 1 6 --layout 2x4 --json").out);
  CHECK(way["from"] == 1);
  CHECK(way["elements"].size() == 5);
  CHECK(way["elements"][1] == "nic 0:0");
  CHECK(way["direct"] == false);
}
