// SPDX-License-Identifier: Apache-2.0
// Options that count, and are refused where they would not; output that is for one reader; what is generated from the command line itself.

#include <array>
#include <set>

#include "engine/config/configuration.hpp"
#include "engine/tools/config_json_schema.hpp"
#include "tests/engine/program.hpp"

using namespace troupe_program;

namespace {

std::string ring_study() { return "'" + config_folder() + "studies/ring.toml' --set sizes=1K"; }

std::string after(const std::string& text, const std::string& mark) {
  const auto at = text.find(mark);
  return at == std::string::npos ? std::string{} : text.substr(at + mark.size());
}

/// The words that bash would offer for the last of `words`.
std::set<std::string> offered(const std::string& words) {
  const std::string script = write("complete.bash", R"(source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _troupe; printf '%s\n' "${COMPREPLY[@]}"
)");
  const std::string functions = write("functions.bash", run("generate bash").out);
  const fs::path out = folder() / "offered";
  REQUIRE(std::system(("bash '" + script + "' '" + functions + "' " + words + " >'" + out.string() + "'").c_str()) ==
          0);
  std::istringstream lines{contents(out)};
  std::set<std::string> all;
  for (std::string line; std::getline(lines, line);) all.insert(line);
  return all;
}

}  // namespace

TEST_CASE("an option that would do nothing is a mistake") {
  check_refused(run("bench --set workload.iterations=3"),
                {"--set workload.iterations would do nothing", "[engine]", "flags"});
  check_refused(run("bench --set ranks=3"), {"workload.ranks"});
  check_refused(run("explain all_reduce --ranks 4 --set workload.ranks=3"), {"workload.ranks would do nothing"});
  check_refused(run("explain all_reduce --ranks 4 --set engine.spin=3"), {"engine.spin", "--measure"});
  check_refused(run("explain all_reduce --ranks 4 --on flat --set engine.credits=3"), {"engine.credits", "[study]"});
  check_refused(run("study " + ring_study() + " --set engine.credits=2"),
                {"engine.credits would do nothing", "[study]"});
  check_refused(run("compare " + ring_study() + " --set-b workload.ranks=2"), {"workload.ranks would do nothing"});
  check_refused(run("run '" + config_folder() + "quickstart.toml' --set study.ranks=2"),
                {"study.ranks would do nothing"});
  check_refused(run("explain all_gather --ranks 4 --root 1"), {"--root would do nothing"});
  check_refused(run("explain all_gather --ranks 4 --op max"), {"--op would do nothing"});
  check_refused(run("explain all_reduce --ranks 4 --rounds 3"), {"--rounds", "--measure"});
  check_refused(run("bench -t 2 -e 8 -r 1"), {"-r would do nothing"});
  check_refused(run("bench -t 2 -e 8 --collective all_gather -o max"), {"-o would do nothing"});
  check_refused(run("show ring --root 1"), {"--root would do nothing"});
  check_refused(run("show ring --streams 2"), {"--streams would do nothing"});
  check_refused(run("show ring --layout 2x3 --nics 2"), {"--nics would do nothing"});
  for (const char* which : {"ring_per_nic", "tree_per_nic"})
    check_refused(run(std::string{"show "} + which + " --layout 3+4 --nics 4"),
                  {"--nics 4", "the smallest server has 3 ranks", "say 1 to 3"});
  CHECK(run("show ring_per_nic --layout 3+4 --nics 3").code == 0);
  check_refused(run("show ring --through-scratch"), {"--through-scratch would do nothing"});
  CHECK(run("show pairwise --collective all_to_all --through-scratch").code == 0);
  CHECK(run("show direct_full_mesh --collective all_to_all --ranks 8 --streams 2").code == 0);
  check_refused(run("study --published spec1.fig14 --set ranks=3"), {"--set would do nothing with --published"});
  check_refused(run("study --presets --csv x"), {"--csv would do nothing with --presets"});
  check_refused(run("study --studies x"), {"--studies", "--published"});
  check_refused(run("simulate --seed 3 --seeds 1-4"), {"--seed"});
  check_refused(run("simulate --seed -1"), {"--seed", "is no number"});
  for (const char* seeds : {"-3-5", "1-", "-", "1-2-3", "7x"})
    check_refused(run(std::string{"simulate --seeds='"} + seeds + "'"),
                  {std::string{"--seeds: \""} + seeds + "\" is neither a number"});
  check_refused(run("simulate --seeds 1-2 --faults all,none"), {"\"all\" stands alone"});
  check_refused(run("simulate --seeds 1-2 --faults lose,none"), {"\"none\" stands alone"});
  check_refused(run("simulate --seeds 1-2 --failures -1"), {"--failures"});
  check_refused(run("simulate --jobs -1"), {"--jobs"});
  for (const char* option : {"--operations 2", "--strict", "--no-shrink", "--jobs 1"})
    check_refused(run(std::string{"simulate --processes 2-3 --seeds 1-2 "} + option),
                  {"would do nothing with --processes"});
  check_refused(run("simulate --processes 2-3 --seeds 1-2 --faults kill"), {"all or none", "kill"});
  check_refused(run("simulate --processes 2-3 --seeds 1-2 --mutant drop_stopped"),
                {"drop_stopped would do nothing with --processes"});
  check_refused(run("simulate --seeds 1-2 --mutant no_beats"), {"no_beats", "--processes"});
  check_refused(run("simulate --processes 2-3 --mutant no_beat"), {"did you mean no_beats?"});
  check_refused(run("run '" + config_folder() + "faults.toml' --set faults.kill_rank=1 --set faults.kill_after=-1"),
                {"kill_rank kills nobody"});
  const std::string quick = "run '" + config_folder() + "quickstart.toml' --set ";
  for (const char* key : {"nic_ports=4", "engine.nccl.version=2.23", "engine.hccl.device=310p", "faults.seed=5",
                          "faults.longest_delay=1ms"})
    check_refused(run(quick + key),
                  {"--set: engine.", std::string{key}.substr(0, std::string{key}.find('=')), "would do nothing"});
  check_refused(run(quick + "planner=hccl --set nccl.version=2.23"), {"the planner is hccl", "engine.planner=nccl"});
  check_refused(run("run '" + config_folder() + "two_processes.toml' --set choreography_of.exscan=ring"),
                {"--set: engine.choreography_of.exscan would do nothing", "no exscan"});
  check_refused(run("bench -t 2 -e 8 --set choreography_of.broadcast=ring"),
                {"--set: engine.choreography_of.broadcast would do nothing", "no broadcast"});
  check_refused(run("bench -t 2 -e 8 --choreography ring --set choreography_of.all_reduce=ring"),
                {"engine.choreography_of.all_reduce would do nothing"});
  check_refused(run("explain all_reduce --ranks 4 --set choreography_of.broadcast=ring"),
                {"engine.choreography_of.broadcast would do nothing"});
  check_refused(run("explain all_reduce --layout 2x2 --set nic_ports=2"), {"engine.nic_ports", "--measure"});
  check_refused(run("explain all_gather --layout 4x4 --bytes 16M --set planner=nccl --set nic_ports=4"),
                {"--set engine.nic_ports would do nothing"});
  for (const char* option : {"-b 8", "-e 16", "-f 4", "-i 8", "-d f64"})
    check_refused(run(std::string{"bench -t 2 -n 1 -w 0 --collective barrier "} + option),
                  {std::string{option}.substr(0, 2) + " would do nothing", "barrier has no data"});
  check_refused(run("bench -t 2 -e 8 --collective send_recv --choreography ring"),
                {"--choreography would do nothing: send_recv"});
  CHECK(run("bench -t 2 -n 1 -w 0 --collective barrier,broadcast -e 8 --set choreography_of.broadcast=ring").code == 0);
  CHECK(run("bench -t 4 -n 1 -w 0 -e 8 --set layout=2x2 --set nic_ports=2").code == 0);
  // What stands in a file, or the environment, may be meant for another command.
  const std::string shared = write("shared.toml", R"([engine]
nic_ports = 2
[engine.nccl]
version = "2.23"
[engine.hccl]
device = "310p"
[engine.faults]
seed = 5
[engine.choreography_of]
broadcast = "ring"
)");
  CHECK(run("bench -t 2 -n 1 -w 0 -e 8 --config '" + shared + "'", "TROUPE_ENGINE_NCCL_DEVICE=volta").code == 0);
  const outcome nobody =
      run("run '" + config_folder() + "faults.toml' --set faults.kill_rank=99 --set faults.kill_after=5");
  CHECK(nobody.code == 2);
  check_says(nobody.err, "faults.kill_rank is 99, but there are ranks 0 to ");
}

TEST_CASE("--dump-config: every command that reads a configuration") {
  const std::string engine = write("dumped.toml", "[engine]\ncredits = 4\n");
  for (const std::string& command :
       {"bench --config '" + engine + "'", "explain all_reduce --ranks 2 --config '" + engine + "'",
        "verify '" + engine + "'", "run '" + engine + "'"}) {
    CAPTURE(command);
    const outcome o = run(command + " --dump-config --set streams=7");
    CHECK(o.code == 0);
    check_says(o.out, "credits = 4                             # " + engine + ":2");
    check_says(o.out, "streams = 7                             # command line");
    troupe::configuration again;
    again.add_text(o.out, "dump");
    CHECK(again.engine().credits == 4);
  }
  check_says(run("study " + ring_study() + " --dump-config").out, "preset = ");
  const outcome both = run("compare " + ring_study() + " --set-b ranks=4 --dump-config");
  check_says(after(both.out, "# B\n"), "ranks = 4                               # command line");
  check_says(run("explain all_reduce --ranks 4 --on gh200_16 --dump-config").out, "preset = 'gh200_16'");
}

TEST_CASE("study --dump-config: what it prints is the same study, also of jobs and of a flow") {
  // Values alone: behind them stands where they are from.
  const auto values_of = [](const std::string& dump) {
    std::istringstream lines{dump};
    std::string all;
    for (std::string line; std::getline(lines, line);) all += line.substr(0, line.rfind(" # ")) + "\n";
    return all;
  };
  std::size_t tried = 0;
  for (const auto& file : fs::directory_iterator{config_folder() + "studies"}) {
    if (file.path().extension() != ".toml") continue;
    CAPTURE(file.path().string());
    const outcome first = run("study '" + file.path().string() + "' --dump-config");
    REQUIRE_MESSAGE(first.code == 0, first.err);
    const outcome second = run("study '" + write("dumped_study.toml", first.out) + "' --dump-config");
    CHECK_MESSAGE(second.code == 0, second.err);
    CHECK(values_of(second.out) == values_of(first.out));
    ++tried;
  }
  CHECK(tried > 20);
  // Only a file says what holds anyway: what is said on the line is said on purpose.
  const std::string jobs = "study '" + config_folder() + "studies/jobs.toml' ";
  check_refused(run(jobs + "--set sizes=1M"), {"study.sizes would do nothing", "jobs"});
  check_refused(run(jobs + "--sweep collective=all_reduce,broadcast"), {"study.collective would do nothing"});
  check_refused(run("explain all_reduce --on machine --config '" + config_folder() + "studies/jobs.toml'"),
                {"[[study.job]] would do nothing here"});
  for (const char* name : {"jobs", "flow"}) {
    const std::string study = "'" + config_folder() + "studies/" + name + ".toml'";
    const std::string dumped = "'" + write("dumped_study.toml", run("study " + study + " --dump-config").out) + "'";
    const outcome again = run("study " + dumped + " --csv -");
    CHECK(again.code == 0);
    CHECK(again.out == run("study " + study + " --csv -").out);
  }
}

TEST_CASE("standard output is for one reader") {
  // With a choreography that cannot, and a log level that shows it.
  const outcome e = run("explain barrier --ranks 4 --json --set choreography=ring --set log_level=debug");
  CHECK(e.code == 0);
  CHECK(json::accept(e.out));
  check_says(e.err, "ring is not used");
  const outcome csv = run("study " + ring_study() + " --csv -");
  CHECK(csv.code == 0);
  CHECK((csv.out.find('#') == std::string::npos));
  CHECK((csv.out.find("1024") != std::string::npos));
  check_says(csv.err, "Ring all-reduce on 16 ranks");
  check_refused(run("study " + ring_study() + " --csv - --json -"), {"for one of them"});
}

TEST_CASE("a file is written once, and none that is read") {
  const std::string file = write("kept.toml", "[study]\nranks = 2\nsizes = \"1K\"\n[engine]\n"), text = contents(file);
  const std::string goal = write("kept.goal", "num_ranks 2\nrank 0 {\ncalc 5\n}\n"), out = (folder() / "once").string();
  const std::string link = (folder() / "link.toml").string();
  fs::create_symlink(file, link);
  check_refused(run("study " + file + " --json " + out + " --csv " + out), {"--json", "--csv", "are one file"});
  check_refused(run("study " + file + " --trace " + out + " --report '" + folder().string() + "/./once'"),
                {"one file"});
  check_refused(run("study " + file + " --json " + file), {"--json", "would overwrite", "kept.toml"});
  check_refused(run("study " + file + " --csv " + link), {"--csv", "would overwrite"});
  check_refused(run("compare " + file + " --set-b ranks=3 --report " + file), {"--report", "would overwrite"});
  check_refused(run("replay " + goal + " --json " + goal), {"--json", "would overwrite"});
  check_refused(run("replay " + goal + " --config " + file + " --timeline " + file), {"--timeline", "would overwrite"});
  check_refused(run("replay " + goal + " --json " + out + " --report " + out), {"one file"});
  check_refused(run("bench -t 1 -e 8 --config " + file + " --json " + file), {"--json", "would overwrite"});
  CHECK(contents(file) == text);
  CHECK_FALSE(fs::exists(out));
  CHECK(run("study " + file + " --json /dev/null --csv /dev/null").code == 0);
  CHECK(run("replay " + goal + " --chakra " + (folder() / "kept").string()).code == 0);
  const std::string made = (folder() / "kept.").string();
  check_refused(run("replay " + made + "0.et " + made + "1.et --chakra " + (folder() / "kept").string()),
                {"--chakra", "would overwrite"});
  const outcome page = run("study " + file + " --report -");
  CHECK((page.out.starts_with("<!DOCTYPE") || page.out.starts_with("<!doctype")));
}

TEST_CASE("study --presets: as JSON, too") {
  const outcome o = run("study --presets --json -");
  CHECK(o.code == 0);
  const json all = json::parse(o.out);
  const outcome text = run("study --presets --json '" + (folder() / "presets.json").string() + "'");
  CHECK(json::parse(contents(folder() / "presets.json")) == all);
  for (const json& one : all) {
    check_says(text.out, one["name"].get<std::string>() + ": " + one["about"].get<std::string>());
    CHECK(one["ranks"] > 0);
    CHECK(one["constants"].contains("host.launch"));
    for (const auto& [of, source] : one["sources"].items()) check_says(text.out, "# " + of + ": ");
  }
  CHECK((all.size() >= 9));
}

TEST_CASE("an empty value is a mistake, not the default") {
  for (const char* option :
       {"verify --all --ranks", "simulate --seeds", "simulate --seed", "simulate --processes", "simulate --mutant",
        "bench --json", "bench --stepbytes", "bench --nthreads", "bench --choreography", "bench --config", "study --at",
        "experts --seed", "explain all_reduce --ranks 4 --layout", "explain all_reduce --on flat --processes",
        "tune --output"}) {
    const std::string words = option, name = words.substr(words.rfind(' ') + 1);
    check_refused(run(words + " ''", "timeout 20"), {name, "is empty; give it a value, or leave it out"});
  }
  check_refused(run("run ''"), {"file: is empty"});
}

TEST_CASE("--json without a FILE says where its output goes") {
  for (const char* words :
       {"explain all_reduce --ranks 4", "list", "route 0 1 --layout 2x2", "show ring", "verify x.toml"}) {
    check_refused(run(std::string{words} + " --json out.json"), {"--json prints to standard output", "> out.json"});
    check_refused(run(std::string{words} + " --json=out.json"), {"--json prints to standard output", "> out.json"});
    check_refused(run(std::string{words} + " --json -"), {"leave - out"});
  }
  CHECK(run("explain --json all_reduce --ranks 4").code == 0);
  check_refused(run("explain all_reduce --ranks 4 more"), {"not expected: more"});
}

TEST_CASE("variables: constants and elements of a studied machine, a configuration for all") {
  const auto time = [](const outcome& o) {
    const auto rows = rows_of(o.out);
    return o.code == 0 && !rows.empty() ? rows[0][5] : "failed: " + o.err;
  };
  const std::string usual = time(run("study " + ring_study()));
  const std::string slow = time(run("study " + ring_study() + " --set hardware.link.latency=5us"));
  CHECK(usual != slow);
  CHECK(time(run("study " + ring_study(), "TROUPE_STUDY_HARDWARE_LINK_LATENCY=5us")) == slow);
  CHECK(time(run("study " + ring_study(), "TROUPE_STUDY_SLOW_UP_3=4")) ==
        time(run("study " + ring_study() + " --set 'slow.up 3=4'")));
  check_refused(run("study " + ring_study(), "TROUPE_STUDY_HARDWARE_LINK_LATENCYS=5us"), {"link.latency"});
  // --dump-config prints the machine's names, refuses what the study refuses, and can be read again.
  const std::string variables = "TROUPE_STUDY_HARDWARE_LINK_LATENCY=5us TROUPE_STUDY_SLOW_UP_3=2";
  const outcome dumped =
      run("study " + ring_study() + " --set hardware.link.bandwidth=20GB/s --dump-config", variables);
  CHECK(dumped.code == 0);
  check_says(dumped.out, "'link.latency' = '5us'");
  check_says(dumped.out, "'up 3' = 2");
  for (const char* name : {"link_latency", "up_3"})
    CHECK((dumped.out.find(name + std::string{" ="}) == std::string::npos));
  const std::string again = write("dumped.toml", dumped.out);
  const outcome once = run("study " + ring_study() + " --set hardware.link.bandwidth=20GB/s", variables),
                twice = run("study '" + again + "'");
  CHECK(once.code == 0);
  CHECK(time(once) == time(twice));
  const std::string ring = config_folder() + "studies/ring.toml";  // experts have no sizes
  for (const std::string& command :
       {"study " + ring_study(), "compare " + ring_study() + " --set-b ranks=8", "experts --config " + ring}) {
    const std::string what = command + " --dump-config";
    check_refused(run(what, "TROUPE_STUDY_HARDWARE_NOSUCH=1"), {"TROUPE_STUDY_HARDWARE_NOSUCH: ", "nosuch"});
    check_refused(run(what, "TROUPE_STUDY_HARDWARE_LINK_LATENCY=abc"), {"TROUPE_STUDY_HARDWARE_LINK_LATENCY: ", "abc"});
    check_refused(run(what, "TROUPE_STUDY_SLOW_NOBODY=2"), {"TROUPE_STUDY_SLOW_NOBODY", "nobody"});
  }
  // The command line is stronger.
  CHECK(time(run("study " + ring_study() + " --set hardware.link.latency=5us",
                 "TROUPE_STUDY_HARDWARE_LINK_LATENCY=90us")) == slow);

  const std::string file = write("always.toml", "[engine]\ncredits = 3\n");
  const std::string variable = "TROUPE_CONFIG='" + file + "'";
  check_says(run("bench --dump-config", variable).out, "credits = 3                             # " + file + ":2");
  check_says(run("bench --dump-config --config '" + write("other.toml", "[engine]\ncredits = 5\n") + "'", variable).out,
             "credits = 5");
  check_says(run("bench --dump-config", variable + " TROUPE_ENGINE_CREDITS=6").out, "credits = 6");
  // A value said on the command line counts, also where it is the default.
  check_says(run("bench -t 2 -b 8 -e 8 -n 1 --set credits=8", "TROUPE_ENGINE_CREDITS=6").out, "credits 8\n");
  check_refused(run("bench -t 2 -b 8 -e 8 -n 1", "TROUPE_CONFIG=/nowhere.toml"), {"/nowhere.toml: cannot be read"});
}

TEST_CASE("the man page has every command and every option, and man takes it without a warning") {
  const outcome page = run("generate man");
  REQUIRE(page.code == 0);
  std::string plain;
  for (const char c : page.out)
    if (c != '\\') plain += c;
  for (const char* command : {"run", "list", "show", "verify", "explain", "route", "bench", "study", "compare", "tune",
                              "simulate", "launch", "rendezvous", "nicd", "generate"}) {
    CAPTURE(command);
    const auto at = plain.find(std::string{".SS troupe "} + command);
    REQUIRE((at != std::string::npos));
    const std::string section = plain.substr(at, plain.find("\n.S", at + 1) - at);
    std::istringstream words{after(run(std::string{command} + " --help").out, "Options:")};
    for (std::string word; words >> word && word != "Examples:";)
      if (word.starts_with("--")) check_says(section, word.substr(0, word.find(',')));
  }
  for (const char* status : {"fB0", "fB1", "fB2", "fB3", "fB130"}) check_says(after(plain, ".SH EXIT STATUS"), status);
  check_says(plain, "TROUPE_ENGINE_CREDITS");
  if (std::system("command -v groff >/dev/null") == 0) {
    const std::string file = write("troupe.1", page.out);
    const std::string warnings = (folder() / "warnings").string();
    CHECK(std::system(("groff -k -Tutf8 -man -ww -z '" + file + "' 2>'" + warnings + "'").c_str()) == 0);
    CHECK(contents(warnings) == "");
  } else MESSAGE("skipped: there is no groff");
}

TEST_CASE("bash completes commands, options, values and keys") {
  CHECK(offered("troupe be").count("bench") == 1);
  CHECK(offered("troupe help sh").count("show") == 1);
  CHECK(offered("troupe bench --coll").count("--collective") == 1);
  CHECK(offered("troupe bench --collective all_r") == std::set<std::string>{"all_reduce"});
  CHECK(offered("troupe show r") == std::set<std::string>{"recursive_doubling", "ring", "ring_per_nic"});
  CHECK(offered("troupe explain ex") == std::set<std::string>{"exscan"});
  CHECK(offered("troupe run --set engine.cr") == std::set<std::string>{"engine.credits="});
  CHECK(offered("troupe explain all_reduce --on gh") == std::set<std::string>{"gh200_16"});
  CHECK(offered("troupe route 0 1 --on gh") == std::set<std::string>{"gh200_16"});
  CHECK(offered("troupe run '" + config_folder() + "quick'").count(config_folder() + "quickstart.toml") == 1);
  CHECK(offered("troupe launch --kee") == std::set<std::string>{"--keep-going"});
  CHECK(offered("troupe rendezvous --ke") == std::set<std::string>{"--key-file"});
  CHECK(offered("troupe rendezvous --key-file '" + config_folder() + "quick'")
            .count(config_folder() + "quickstart.toml") == 1);
  CHECK(offered("troupe launch '" + config_folder() + "quick'").count(config_folder() + "quickstart.toml") == 1);
  CHECK(offered("troupe frobnicate x") == std::set<std::string>{""});
}

TEST_CASE("zsh completes them, too") {
  const std::string file = write("_troupe", run("generate zsh").out);
  if (std::system("command -v zsh >/dev/null") != 0) {
    MESSAGE("skipped: there is no zsh");
    return;
  }
  CHECK(std::system(("zsh -n '" + file + "'").c_str()) == 0);
  // _arguments and _describe stand for zsh's: they say with what they were called.
  const std::string script = write("complete.zsh", R"(
_arguments() { [[ $1 == -C ]] && { state=$WANTED; words=(${words[2,-1]}); return; }; print -rl -- "$@"; }
_describe() { print -rl -- ${(P)2}; }
compdef() { :; }
WANTED=$2; words=(troupe $3)
source $1; _troupe
)");
  const auto asked = [&](const std::string& state, const std::string& command) {
    const fs::path out = folder() / "zsh_out";
    CHECK(std::system(("zsh -f '" + script + "' '" + file + "' " + state + " " + command + " >'" + out.string() + "'")
                          .c_str()) == 0);
    return contents(out);
  };
  check_says(asked("command", ""), "bench:measure collectives");
  check_says(asked("argument", "bench"), "--nthreads");
  check_says(asked("argument", "show"), ":CHOREOGRAPHY:(auto ring ");
}

TEST_CASE("the JSON Schema has every key of the schema, and no other") {
  const json document = json::parse(run("generate schema").out);
  std::set<std::string> named;
  const auto walk = [&](auto& self, const json& table, const std::string& prefix) -> void {
    if (table.contains("additionalProperties") && table["additionalProperties"].is_object())
      named.insert(prefix + (table["additionalProperties"].contains("anyOf") &&
                                     table["additionalProperties"]["anyOf"].back() == json{{"type", "object"}}
                                 ? "**"
                                 : "*"));
    const json members = table.value("properties", json::object());  // items() borrows it
    for (const auto& [key, value] : members.items()) {
      if (value.value("type", json{}) == "object") self(self, value, prefix + key + ".");
      else if (value.value("type", json{}) == "array" && value.contains("items") &&
               value["items"].contains("properties"))
        self(self, value["items"], prefix + key + ".");
      else named.insert(prefix + key);
    }
  };
  walk(walk, document, "");
  for (const troupe::config_setting& s : troupe::config_schema()) {
    if (s.key == "engine.choreography_of.*") continue;  // a key a collective
    CHECK_MESSAGE(named.count(std::string{s.key}) == 1, s.key, " is missing");
    named.erase(std::string{s.key});
  }
  for (const std::string& other : named)
    CHECK_MESSAGE(other.starts_with("engine.choreography_of."), other, " is no key");
}

TEST_CASE("bench: nccl-tests' further options") {
  const std::string base = "bench -b 1K -e 1K -t 3 -n 20 -w 1";
  const std::string file = (folder() / "bench.json").string();
  for (const char* mode : {"", " --one-thread"})
    for (const char* collective : {"all_reduce", "send_recv", "all_to_all_v"}) {
      CAPTURE(mode);
      CAPTURE(collective);
      const outcome several = run(base + " -m 4 --collective " + collective + mode);
      INFO(several.err);
      REQUIRE(rows_of(several.out).size() == 1);
      CHECK(rows_of(several.out)[0][8] == "0");
    }
  CHECK(rows_of(run(base + " -N 3").out).size() == 3);
  check_says(run(base + " -N 3").out, "# cycle 3\n");
  // Interrupted when it has done more than three, however long that takes where others have the cores.
  const std::string rows = (folder() / "endless").string();
  const int status = std::system(("bash -c \"set -m; '" TROUPE_PROGRAM "' " + base + " -N 0 >'" + rows +
                                  "' </dev/null & for i in {1..600}; do (( \\$(grep -c '^ *1024 ' '" + rows +
                                  "') > 3 )) && break; sleep 0.1; done; kill -INT %1; wait %1\"")
                                     .c_str());
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 130));
  CHECK(rows_of(contents(rows)).size() > 3);
  check_refused(run(base + " -N 0 -J '" + file + "'"), {"-N 0"});
  // Of the ranks' own times: the fastest, on average, the slowest; and from the first begin to the last end.
  for (const char* whose : {"0", "1", "2", "3"}) {
    REQUIRE(run(base + " -a " + whose + " -J '" + file + "'").code == 0);
    const json document = json::parse(contents(file));
    CHECK(document["meta"]["time"] ==
          std::array{"rank 0", "average", "least", "most"}[static_cast<std::size_t>(whose[0] - '0')]);
    CHECK(document["rows"][0]["time_us"].get<double>() > 0);
  }
  const outcome cpu = run(base + " -C 1 -J '" + file + "'");
  check_says(cpu.out, " cputime ");
  CHECK(json::parse(contents(file))["meta"]["time"] == "cpu");
  CHECK(run(base + " -z 1").code == 0);
  check_refused(run(base + " -z 0"), {"-z 0: calls are blocking here"});
  check_refused(run(base + " -a 1 -C 1"), {"-a would do nothing"});
  const outcome late = run("bench -b 1M -e 1M -t 2 -n 1000000000 -w 0 -c 0 -T 1");
  CHECK(late.code == 3);
  check_says(late.err, "the test has taken more than 1 second (-T)");
  for (const char* foreign : {"-g 2", "-p 1", "-G 1", "-R 1", "-D 0", "-V 1", "-x 1", "-S 1"})
    check_refused(run(std::string{"bench "} + foreign),
                  {"there is no option " + std::string{foreign}.substr(0, 2) + "; "});
  check_refused(run("bench -t 0"), {"--nthreads"});
  CHECK((run("bench -t 0").err.size() < 200));
}

TEST_CASE("bench: the distribution over the repetitions, and what its JSON says of itself") {
  const std::string file = (folder() / "spread.json").string();
  const outcome o = run("bench -b 8 -e 8 -t 2 -n 50 --stats -J '" + file + "'");
  REQUIRE(o.code == 0);
  check_says(o.out, "      min     median        p99        max        min     median        p99        max\n");
  const auto rows = rows_of(o.out);
  REQUIRE(rows.size() == 1);
  REQUIRE(rows[0].size() == 13 + 8);
  const json document = json::parse(contents(file));
  for (const json& row : {document["rows"][0], document["rows"][0]["in_place"]}) {
    CHECK(row["min_us"].get<double>() > 0);
    CHECK(row["min_us"] <= row["median_us"]);
    CHECK(row["median_us"] <= row["p99_us"]);
    CHECK(row["p99_us"] <= row["max_us"]);
  }
  const json& meta = document["meta"];
  CHECK("troupe " + meta["version"].get<std::string>() + "\n" == run("--version").out);
  CHECK(meta["schema"] == 1);
  CHECK(meta["command"].back() == file);
  CHECK(meta["command"][1] == "bench");
  check_says(meta["build"].get<std::string>(), ", ");
  const std::string date = meta["date"];
  CHECK(date.size() == 20);
  CHECK(date[10] == 'T');
}
