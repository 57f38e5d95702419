// SPDX-License-Identifier: Apache-2.0
// `troupe bench` and `troupe run` over several processes, and `troupe explain` of them.
#include "tests/engine/program.hpp"

#include <algorithm>
#include <fstream>
#include <set>

#include "engine/planning/tuning.hpp"

using namespace troupe_program;

namespace {

std::size_t times_in(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace

TEST_CASE("processes: bench starts them, and one table comes of it") {
  const std::string file = (folder() / "processes.json").string();
  const outcome o = run("bench --processes 2 -t 2 --collective all -b 1K -e 1K -n 2 -w 1 -J '" + file + "'");
  CAPTURE(o.err);
  CHECK(o.code == 0);
  CHECK(o.err == "");
  CHECK(times_in(o.out, "# troupe 4 ranks, 2 threads in each of 2 processes") == 1);
  CHECK(times_in(o.out, "# troupe ") == 1);
  CHECK(rows_of(o.out).size() == 17);
  check_says(o.out, "# Out of bounds values : 0 OK");
  const json all = json::parse(contents(file));
  CHECK(all["meta"]["ranks"] == 4);
  CHECK(all["meta"]["processes"] == 2);
  CHECK(all["meta"]["threads"] == 2);
  CHECK(all["meta"]["complete"] == true);
  REQUIRE(all["rows"].size() == 17);
  for (const json& row : all["rows"]) {
    CHECK(row["processes"] == 2);
    CHECK(row["wrong"] == 0);
    CHECK(row["time_us"] > 0);
    CHECK(row["out_of_bounds"] == 0);
    CHECK(row["min_us"] <= row["max_us"]);
  }
  // The same fields as of one process.
  REQUIRE(run("bench -t 2 -b 8 -e 8 -n 1 -w 0 -J '" + file + "'").code == 0);
  const json alone = json::parse(contents(file));
  std::set<std::string> fields, usual;
  for (const auto& [key, value] : all["rows"][0].items()) fields.insert(key);
  for (const auto& [key, value] : alone["rows"][0].items()) usual.insert(key);
  CHECK(fields == usual);
  CHECK(alone["meta"]["processes"] == 1);
}

TEST_CASE("processes: JSON on standard output is alone there") {
  const outcome o = run("bench --processes 2 -b 8 -e 8 -n 1 -w 0 -J -");
  CHECK(o.code == 0);
  CHECK(json::parse(o.out)["rows"].size() == 1);
  CHECK(times_in(o.err, "# troupe 2 ranks, a process each") == 1);
}

TEST_CASE("processes: run takes their number from the workload, or from who has started it") {
  const std::string quick = " --set iterations=1 --set warmup=0 --set run.sizes=1K";
  const std::string file = "'" + config_folder() + "two_processes.toml'";
  outcome o = run("run " + file + quick);
  CHECK(o.code == 0);
  CHECK(times_in(o.out, "# troupe 4 ranks, 2 threads in each of 2 processes") == 1);
  o = run("launch -n 4 --no-prefix '" TROUPE_PROGRAM "' run " + file + quick);
  CHECK(o.code == 0);
  CHECK(times_in(o.out, "# troupe 4 ranks, a process each") == 1);
  CHECK(times_in(o.out, "# troupe ") == 1);
  // Hosts: the command is a shell here, as ssh would hand the same script to one there.
  write("shells.toml", "[[host]]\naddress = \"localhost\"\nslots = 3\ncommand = [\"sh\", \"-c\"]\n");
  const std::string hosts = write("hosted.toml", "[workload]\nhosts = \"shells.toml\"\n[[workload.run]]\ncollective = "
                                                 "\"all_gather\"\nsizes = [\"1K\"]\n");
  o = run("run '" + hosts + "' --set iterations=1");
  CAPTURE(o.err);
  CHECK(o.code == 0);
  CHECK(times_in(o.out, "# troupe 3 ranks, a process each") == 1);
  // One that a job of ours consists of starts no further ones.
  write("shells.toml", "[[host]]\naddress = \"localhost\"\ncommand = [\"sh\", \"-c\"]\n");
  o = run("run '" + hosts + "' --set iterations=1 --set ranks=2");
  CHECK(o.code == 0);
  CHECK(times_in(o.out, "# troupe 2 ranks, a thread each") == 1);
  check_refused(run("run " + file + " --routes"), {"--routes"});
  check_refused(run("run " + file + " --set ranks=5"), {"workload.ranks is 5, which 2 processes cannot share alike"});
  check_refused(run("run " + file + " --set one_thread=true"), {"one_thread drives the ranks of one process"});
  check_refused(run("run " + file + " --set layout=4"), {"engine.layout is \"4\"", "leave it out"});
  check_refused(run("run " + file + " --set workload.hosts=/nowhere.toml --set processes=0"),
                {"/nowhere.toml: cannot be read"});
}

TEST_CASE("processes: what cannot be is said once, with the usual exit code") {
  const std::string two = "bench --processes 2 -b 8 -e 8 -n 1 -w 0";
  check_refused(run(two + " -o plus"), {"plus"});
  check_refused(run(two + " --one-thread"), {"--one-thread"});
  check_refused(run(two + " --set layout=2"), {"engine.layout"});
  check_refused(run(two + " --set faults.drop=0.5"), {"engine.faults"});
  check_refused(run("bench --processes 0"), {"--processes"});
  check_refused(run("bench --processes 1000 -t 1000"), {"1000000 ranks"});
  const outcome fused = run(two + " --choreography csc");
  CHECK(fused.code == 2);
  CHECK(times_in(fused.err, "troupe: ") == 1);
  check_says(fused.err, "in different processes");
  const outcome late = run("bench --processes 2 -b 8 -e 8 -n 1000000000 -w 0 -c 0 -T 1");
  CHECK(late.code == 3);
  CHECK(times_in(late.err, "has taken more than 1 second") == 1);
  const outcome tune = run("launch -n 3 '" TROUPE_PROGRAM "' tune --output -");
  CHECK(tune.code == 2);
  check_says(tune.err, "frames between two processes, and this is one of 3");
}

TEST_CASE("processes: tune measures frames by both ways, between processes that it starts or was started as") {
  for (const std::string command :
       {"tune --quick --output -", "launch -n 2 '" TROUPE_PROGRAM "' tune --quick --output -"}) {
    CAPTURE(command);
    const outcome tune = run(command);
    CHECK_MESSAGE(tune.code == 0, tune.err);
    const bool launched = command.starts_with("launch");
    check_says(tune.out, launched ? "ring between two processes of the job, TCP over loopback"
                                  : "ring between processes, TCP over loopback");
    // On a machine with much else to do a fit may end where it began, so the numbers say nothing (tuning_test.cpp).
    check_says(tune.out, "socket_kilobyte = ");
  }
}

TEST_CASE("processes: an interrupt ends all of them, with what there is") {
  const std::string out = (folder() / "interrupted").string(), file = (folder() / "interrupted.json").string();
  const std::string line = "'" TROUPE_PROGRAM "' bench --processes 2 -b 8 -e 16 -f 2 -n 100 -w 0 -N 1000000000 -J '" +
                           file + "' >'" + out + "' 2>'" + out +
                           ".err' </dev/null & all=$!; while ! grep -q 'cycle 2' '" + out +
                           "'; do sleep 0.02; kill -0 $all || exit 9; done; kill -TERM $all; wait $all";
  write("interrupted", "");
  const int status = std::system(line.c_str());
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 130);
  CHECK(contents(out + ".err") == "troupe: interrupted\n");
  const json all = json::parse(contents(file));
  CHECK(all["meta"]["complete"] == false);
  CHECK(all["rows"].size() >= 2);
}

TEST_CASE("processes: when one is killed, the others end, and say who it was") {
  const std::string out = (folder() / "killed").string();
  const std::string line = "'" TROUPE_PROGRAM "' bench --processes 3 -b 8 -e 8 -n 100 -w 0 -N 0 >'" + out + "' 2>'" +
                           out + ".err' </dev/null & all=$!; while ! grep -q 'cycle 2' '" + out +
                           "'; do sleep 0.02; kill -0 $all || exit 9; done; for p in $(pgrep -P $all); do ! grep -qz "
                           "TROUPE_RANK=2 /proc/$p/environ || kill -9 $p; done; wait $all";
  write("killed", "");
  const int status = std::system(line.c_str());
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 3);
  check_says(contents(out + ".err"), "was ended by signal 9 (Killed)");
  check_says(contents(out + ".err"), " was lost with process ");
}

TEST_CASE("processes: explain shows who reaches whom") {
  const outcome o = run("explain all_reduce --ranks 16 --processes 2x4 --bytes 1M");
  CHECK(o.code == 0);
  check_says(o.out, "threads of a process, by address:                   ranks 0-1 | 2-3 | 4-5");
  check_says(o.out, "processes of a host, through memory that both map:  ranks 0-7 | 8-15\n");
  check_says(o.out, "hosts, through sockets:                             ranks 0-15\n");
  const outcome pods = run("explain all_reduce --ranks 8 --processes 2x4x1 --bytes 1M");
  check_says(pods.out, "hosts, through sockets:                             ranks 0-3 | 4-7\n");
  check_says(pods.out, "hosts, across a border of groups:                   ranks 0-7\n");
  check_says(pods.out, ", across a border of groups ");
  const json far = json::parse(run("explain all_reduce --ranks 8 --processes 2x4x1 --bytes 8 --json").out);
  CHECK(far["ways"] == json::parse(R"([{"reach": "network", "groups": [[0, 1, 2, 3], [4, 5, 6, 7]]},
                                       {"reach": "network", "borders": 1, "groups": [[0, 1, 2, 3, 4, 5, 6, 7]]}])"));
  const json here = json::parse(run("explain all_reduce --ranks 3 --processes 3 --bytes 8 --json").out);
  CHECK(here["ways"] == json::parse(R"([{"reach": "segment", "groups": [[0, 1, 2]]}])"));
  CHECK_FALSE(json::parse(run("explain all_reduce --ranks 3 --bytes 8 --json").out).contains("ways"));
  check_refused(run("explain all_reduce --ranks 4 --processes 3"), {"cannot be shared alike by 3"});
  for (const char* wrong : {"x2", "2x", "2x2x", "0", "-1", "2y", ""})
    if (*wrong != '\0')
      check_refused(run(std::string{"explain all_reduce --ranks 8 --processes="} + wrong), {"--processes"});
  check_refused(run("explain all_reduce --ranks 4 --processes 2 --measure"), {"bench --processes"});
  check_refused(run("explain all_reduce --ranks 4 --processes 2 --layout 4"), {"--layout"});
}

TEST_CASE("processes: explain says how data that others do not map gets to them, and what carries it between hosts") {
  const auto of = [](const std::string& settings) {
    return run("explain all_reduce --ranks 4 --processes 2x2 --bytes 1M " + settings);
  };
  check_says(of("--set engine.stages=always").out,
             "what others of a host do not map goes by staging buffers (engine.stages)\n");
  check_says(of("--set engine.transport=ucx").out, "hosts, through UCX");
  const json never = json::parse(of("--set engine.stages=never --json").out);
  CHECK(never["between_hosts"] == "sockets");
  // Where the system forbids processes to copy from each other there is one way.
  if (never["unmapped"] != "frames") {
    CHECK(never["unmapped"] == "system");
    check_says(
        of("").out,
        "goes by staging buffers or is copied by the system, as the host's first process measures when it joins");
  }
  CHECK_FALSE(
      json::parse(run("explain all_reduce --ranks 2 --processes 2x1 --bytes 8 --json").out).contains("unmapped"));
}

TEST_CASE("processes: explain says from which size on a buffer is staged (BCopy), or not (ZCopy)") {
  const auto of = [](const std::string& words) {
    return json::parse(run("explain " + words + " --ranks 4 --processes 4 --json").out);
  };
  if (of("all_to_all --bytes 4M")["unmapped"] == "frames") return;  // the system forbids copies between processes
  // Up to 16 MiB of an input that others read.
  const json small = of("all_to_all --bytes 4M --set engine.stages=always");
  CHECK(small["chosen"] == "fused");
  CHECK(small["buffers"] == json::parse(R"({"input": {"bytes": 4194304, "longest_staged": 16777216, "form": "bcopy"},
                                            "output": {"bytes": 4194304, "longest_staged": 131072, "form": "own"}})"));
  CHECK(of("all_to_all --bytes 16M")["buffers"]["input"]["form"] == "measured");
  CHECK(of("all_to_all --bytes 32M --set engine.stages=always")["buffers"]["input"]["form"] == "zcopy");
  CHECK(of("all_to_all --bytes 4M --set engine.stages=never")["buffers"]["input"]["form"] == "zcopy");
  // Up to 2 MiB of an output that others write.
  const json sums = of("all_reduce --bytes 2M --set engine.stages=always");
  CHECK(sums["buffers"]["output"] == json::parse(R"({"bytes": 2097152, "longest_staged": 2097152, "form": "bcopy"})"));
  CHECK(of("all_reduce --bytes 4M --set engine.stages=always")["buffers"]["output"]["form"] == "zcopy");
  CHECK(of("all_reduce --bytes 4M --set engine.stages=always")["buffers"]["input"]["form"] == "bcopy");
  // Over slots, in one process and between hosts nothing is staged.
  CHECK_FALSE(of("all_reduce --bytes 8").contains("buffers"));
  CHECK_FALSE(json::parse(run("explain all_to_all --ranks 4 --bytes 4M --json").out).contains("buffers"));
  const std::string told = run("explain all_to_all --ranks 4 --processes 4 --bytes 4M").out;
  check_says(told, "  buffers of this call\n");
  check_says(told, "else: input of 4M:                                BCopy or ZCopy, as measured: staging buffers "
                   "take up to 16M\n");
  check_says(told, "else: output of 4M:                               written by its own rank\n");
}

TEST_CASE("processes: route names processes, hosts and what is between") {
  const auto of = [](const std::string& words) { return run("route " + words); };
  CHECK(of("0 1 --processes 2x2 --ranks 8").out == "rank 0 → rank 1 (direct)\n");
  CHECK(of("0 3 --processes 2x2 --ranks 8").out ==
        "rank 0 → process 0 → memory that processes of host 0 map → process 1 → rank 3\n");
  CHECK(of("0 2 --processes 2x2").out == "rank 0 → process 0 of host 0 → sockets → process 2 of host 1 → rank 2\n");
  check_says(of("0 2 --processes 2x2 --set engine.transport=ucx").out, "host 0 → UCX");
  check_says(of("0 7 --processes 2x4x1").out, " → sockets → a border of groups → process 7 of host ");
  const json far = json::parse(of("0 2 --processes 2x2 --json").out);
  CHECK(far["layout"] == "2x2");
  CHECK(far["elements"].size() == 3);
  check_refused(of("0 4 --processes 2x2"), {"there is no rank 4"});
  check_refused(of("0 1 --processes 2 --layout 2"), {"--layout would do nothing"});
  check_refused(of("0 1 --processes 2 --channel 0"), {"--channel would do nothing"});
  check_refused(of("0 1 --layout 2 --ranks 2"), {"--ranks would do nothing"});
  check_refused(of("0 1 --processes 2 --set engine.spin=3"), {"engine.spin"});
}

TEST_CASE("processes: progress on a terminal, as of one process") {
  if (std::system("command -v script >/dev/null 2>&1") != 0) {
    MESSAGE("skipped: there is no script(1), which makes a terminal");
    return;
  }
  const std::string out = (folder() / "terminal").string();
  const std::string line = "script -qec \"'" TROUPE_PROGRAM "' bench --processes 2 -b 8 -e 8 -n 1 -w 0\" /dev/null >'" +
                           out + "' 2>&1 </dev/null";
  CHECK(std::system(line.c_str()) == 0);
  check_says(contents(out), "all_reduce 8 (1 of 1)\r\033[K");
  CHECK(times_in(contents(out), "# troupe 2 ranks") == 1);
}

TEST_CASE("what is not offloaded is no news where a rank is alone") {
  const auto told = [](const std::string& ranks) {
    const outcome o = run("bench -b 8 -e 8 -n 1 -w 0 --set engine.offload=always --set engine.credits=32 -t " + ranks);
    CHECK(o.code == 0);
    return o.err;
  };
  CHECK(told("1") == "");
  check_says(told("2"), "all_reduce of 2 ranks: not offloaded: ");
}

TEST_CASE("explain predicts what the NIC takes for a score of one's own") {
  const outcome o = run("explain all_reduce --ranks 4 --bytes 1M --set engine.offload=always --config '" +
                        config_folder() + "own_score.toml' --set engine.choreography=tree_of_four --json");
  CHECK(o.code == 0);
  const json offload = json::parse(o.out)["offload"];
  CAPTURE(offload.dump());
  CHECK(offload["choreography"] == "tree_of_four");
  CHECK(offload["predicted_us"].is_number());
}

TEST_CASE("processes: explain says whose NIC performs, and why none does") {
  const auto of = [](const std::string& where) {
    const outcome o = run("explain all_reduce --ranks 4 --bytes 1M --set engine.offload=always" + where);
    CAPTURE(o.err);
    CHECK(o.code == 0);
    return o.out;
  };
  check_says(of(""), "offloaded: the process's NIC performs it, with ");
  check_says(run("explain all_reduce --ranks 4 --bytes 1K").out, "if engine.offload were always");
  check_says(of(" --processes 2"), "offloaded: the NIC of rank 0's process performs it, with ");
  for (const char* where : {" --processes 2x1", " --processes 2x2"})
    check_says(of(where), "offloaded: the NIC of each host's first process performs it, with ");
  check_says(of(" --processes 2x2 --set engine.protocol=simple"),
             "not offloaded: this engine has no boards to post at");
  // Not why a choreography cannot that does not offer it anyway.
  check_says(of(" --set engine.credits=32"), "not offloaded: double_binary_tree cannot: ");
  // Copies of ordinary memory of other processes take time, too.
  const auto predicted = [&](const std::string& where) {
    return json::parse(of(" --json" + where))["offload"]["predicted_us"].get<double>();
  };
  CHECK(predicted(" --processes 2") > 1.1 * predicted(""));
  // And links do.
  CHECK(predicted(" --processes 2x1") > 2 * predicted(""));
}

TEST_CASE("processes: explain says why offload = \"auto\" gives a call to the NIC, or does not, with the figures") {
  const auto of = [](int ranks, const std::string& what) {
    const outcome o = run("explain all_reduce --set engine.offload=auto --ranks " + std::to_string(ranks) + " " + what);
    CAPTURE(o.err);
    CHECK(o.code == 0);
    return o.out;
  };
  const int cores = std::max(2, troupe::this_machine().cores);
  const std::string has_no_core = of(cores, "--bytes 1M");
  check_says(has_no_core,
             "if engine.offload were always\n  not with auto, since no core is free for the NIC's thread: ");
  check_says(of(cores, "--processes 2 --bytes 1M"), "no core is free for the NIC's thread");
  const json refused = json::parse(of(cores, "--bytes 1M --json"))["offload"];
  CAPTURE(refused.dump());
  CHECK(refused["automatic"] == false);
  CHECK(refused["started"] == false);
  CHECK(refused["idle_cores"] == 0);
  CHECK(refused["taken_us"].get<double>() > refused["callers_us"].get<double>());
  if (cores < 3) {
    MESSAGE("no core can be free beside two ranks here");
    return;
  }
  const std::string pays = of(cores - 1, "--bytes 16M");
  check_says(pays, "offloaded where it is started and not waited for: the process's NIC performs it then, with ");
  check_says(pays, "  since to post it takes 4.5 us of a caller's time, and to perform it ");
  check_says(pays, "1 core of " + std::to_string(cores) + " is free for the NIC's thread, which takes ");
  const std::string is_short = of(cores - 1, "--bytes 1K");
  check_says(is_short,
             "if engine.offload were always\n  not with auto, since to post it takes 4.5 us of a caller's time");
  const json offload = json::parse(of(cores - 1, "--bytes 16M --json"))["offload"];
  CAPTURE(offload.dump());
  CHECK(offload["automatic"] == true);
  CHECK(offload["started"] == true);
  CHECK(offload["blocking"] == false);
  CHECK(offload["idle_cores"] == 1);
  CHECK(offload["taken_us"].get<double>() == doctest::Approx(4.5));
  CHECK(offload["callers_us"].get<double>() > 4.5);
}
