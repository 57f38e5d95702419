// SPDX-License-Identifier: Apache-2.0
// `troupe launch` with small shell programs, and what it is made of.
#include "actors/ports/link/rendezvous.hpp"
#include "engine/tools/launch/commands.hpp"
#include "engine/tools/launch/hosts.hpp"
#include "engine/tools/launch/lines.hpp"
#include "engine/world/job_id.hpp"
#include "tests/engine/program.hpp"

#include <algorithm>
#include <set>

#include "memory/error.hpp"

namespace launch_test {

using namespace troupe_program;
using troupe::errc;
using troupe::launch::host;
using troupe::launch::line_stream;

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream from{text};
  for (std::string line; std::getline(from, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> sorted_lines(const std::string& text) {
  auto lines = lines_of(text);
  std::sort(lines.begin(), lines.end());
  return lines;
}

/// `sh -c 'script'`, for run()'s own shell; the script has no single quotes.
std::string sh(const std::string& script) { return "sh -c '" + script + "'"; }

bool names(const fs::path& process, const std::string& file, const std::string& part) {
  return contents(process / file).find(part) != std::string::npos;
}

/// The processes whose command line or environment names `part`, but for this one.
std::vector<std::string> processes_with(const std::string& part) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator{"/proc"}) {
    const std::string id = entry.path().filename();
    if (id.find_first_not_of("0123456789") != std::string::npos || id == std::to_string(getpid())) continue;
    if (names(entry.path(), "cmdline", part) || names(entry.path(), "environ", part)) found.push_back(id);
  }
  return found;
}

/// Waits for them to be gone: what was killed takes a moment to be so.
bool nobody_has(const std::string& part) {
  for (int i = 0; i < 1000; ++i, usleep(10'000))
    if (processes_with(part).empty()) return true;
  return false;
}

/// A word that nobody else's command line has.
std::string mark(const std::string& what) { return "launch_" + what + "_" + std::to_string(getpid()); }

std::string refusal(const std::string& toml) {
  try {
    static_cast<void>(troupe::launch::parse_hosts(toml, "hosts.toml"));
  } catch (const troupe::error& failure) {
    CHECK(failure.code_value() == errc::bad_config);
    return failure.what();
  }
  FAIL("was not refused: ", toml);
  return {};
}

}  // namespace

// -- what it is made of --

TEST_CASE("launch: lines stay whole, in pieces of any size") {
  const std::string text = "one\n\ntwo\nthe rest";
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    line_stream lines{"[7] "};
    std::string out;
    for (std::size_t at = 0; at < text.size(); at += piece) lines.feed(std::string_view{text}.substr(at, piece), out);
    CHECK(out == "[7] one\n[7] \n[7] two\n");
    lines.finish(out);
    CHECK(out == "[7] one\n[7] \n[7] two\n[7] the rest\n");
    lines.finish(out);
    CHECK(out == "[7] one\n[7] \n[7] two\n[7] the rest\n");
  }
}

TEST_CASE("launch: a line without an end is passed on in pieces, and not kept") {
  line_stream lines{""};
  std::string out;
  for (int i = 0; i < 100; ++i) {
    lines.feed(std::string(10'000, 'x'), out);
    CHECK(static_cast<std::size_t>(10'000 * (i + 1)) < out.size() + line_stream::longest + 10'000);
  }
  CHECK(out.size() > 900'000);
}

TEST_CASE("launch: a file of hosts") {
  const auto hosts = troupe::launch::parse_hosts(R"(
[[host]]
address = "node2"
slots = 3
directory = "/srv/app"
pod = "rack1/leaf2"

[[host]]
address = "192.0.2.1"
command = ["ssh", "-p", "2222", "somebody@192.0.2.1"]

[[host]]
address = "localhost"
command = []
)",
                                                 "hosts.toml");
  REQUIRE(hosts.size() == 3);
  CHECK(hosts[0].address == "node2");
  CHECK(hosts[0].slots == 3);
  CHECK(hosts[0].directory == "/srv/app");
  CHECK(hosts[0].pod == "rack1/leaf2");
  CHECK(hosts[1].pod.empty());
  CHECK(hosts[0].command == std::vector<std::string>{"ssh", "-T", "-o", "BatchMode=yes", "node2"});
  CHECK(hosts[1].command == std::vector<std::string>{"ssh", "-p", "2222", "somebody@192.0.2.1"});
  CHECK(hosts[1].slots == 1);
  CHECK_FALSE(hosts[1].here());
  CHECK(hosts[2].here());
  CHECK(troupe::launch::slots_of(hosts) == 5);
  CHECK(troupe::launch::place_processes(hosts, 4, "hosts.toml") == std::vector<std::size_t>{0, 0, 0, 1});
  try {
    static_cast<void>(troupe::launch::place_processes(hosts, 6, "hosts.toml"));
    FAIL("was not refused");
  } catch (const troupe::error& failure) {
    CHECK(std::string{failure.what()} ==
          "hosts.toml has 5 slots for 6 processes; give its hosts more slots, or start fewer processes (-n 5)");
  }
}

TEST_CASE("launch: what is wrong in a file of hosts is told with its line") {
  check_says(refusal("[[host]]\naddress = \"a\"\nslot = 4\n"),
             "hosts.toml:3: a host has no key \"slot\"; did you mean slots?");
  check_says(refusal("[[host]]\naddress = \"a\"\ncolour = 4\n"),
             "there are address, slots, command, directory and pod");
  check_says(refusal("[[host]]\naddress = \"a\"\npod = \"a//b\"\n"), "hosts.toml:3: pod is \"a//b\"");
  check_says(refusal("[[host]]\nslots = 2\n"), "hosts.toml:1: this host has no address");
  check_says(refusal("[[host]]\naddress = \"a\"\nslots = 0\n"), "hosts.toml:3: slots must be 1 … 65536");
  check_says(refusal("[[host]]\naddress = \"a\"\nslots = \"4\"\n"), "slots must be 1 … 65536");
  check_says(refusal("[[host]]\naddress = 4\n"), "hosts.toml:2: address must be a text between quotes");
  check_says(refusal("[[host]]\naddress = \"-oProxyCommand=x\"\n"),
             "hosts.toml:2: address \"-oProxyCommand=x\" is none");
  check_says(refusal("[[host]]\naddress = \"a\"\ncommand = \"ssh a\"\n"),
             "hosts.toml:3: command must be a list of words");
  check_says(refusal("[[host]]\naddress = \"a\"\ncommand = [1]\n"), "each word of command must be a text");
  check_says(refusal("[host]\naddress = \"a\"\n"), "it names no host");
  check_says(refusal("host = [1]\n"), "a host is a table: [[host]]");
  check_says(refusal(""), "hosts.toml:1: it names no host");
  check_says(refusal("[[hosts]]\naddress = \"a\"\n"), "there is no key \"hosts\" here");
  check_says(refusal("[[host\n"), "hosts.toml:1: ");
}

TEST_CASE("launch: the key is on no command line") {
  const troupe::launch::job job{
      .program = {"./it's", "a b", ""},
      .processes = 3,
      .rendezvous = "tcp://192.0.2.1:7000",
      .key = "5ec2e7",
      .environment = {"TROUPE_KEY=old", "TROUPE_RANK=9", "TROUPE_ENGINE_CREDITS=4", "HOME=there"}};
  const auto remote = command_there(job, 2, {.address = "node1", .command = {"ssh", "node1"}}, "/srv");
  REQUIRE(remote.words.size() == 3);
  for (const std::string& word : remote.words) CHECK((word.find("5ec2e7") == std::string::npos));
  for (const std::string& variable : remote.environment) CHECK((variable.find("5ec2e7") == std::string::npos));
  CHECK(remote.first_input == "5ec2e7\n");
  check_says(remote.words[2], "TROUPE_ENGINE_CREDITS=");
  CHECK((remote.words[2].find("HOME=") == std::string::npos));
  CHECK((remote.words[2].find("TROUPE_RANK=9") == std::string::npos));
  const auto here = command_here(job, 1, "");
  CHECK(here.words == job.program);
  CHECK(here.environment == std::vector<std::string>{"TROUPE_ENGINE_CREDITS=4", "HOME=there",
                                                     "TROUPE_JOIN=tcp://192.0.2.1:7000", "TROUPE_RANK=1",
                                                     "TROUPE_RANKS=3", "TROUPE_KEY=5ec2e7"});

  // Nor is an invitation, which has the key in it.
  troupe::launch::job invited = job;
  invited.rendezvous = "grow:5ec2e7";
  invited.key.clear();
  invited.invited = true;
  const auto there = command_there(invited, 2, {.address = "node1", .command = {"ssh", "node1"}}, "/srv");
  for (const std::string& word : there.words) CHECK((word.find("5ec2e7") == std::string::npos));
  for (const std::string& variable : there.environment) CHECK((variable.find("5ec2e7") == std::string::npos));
  CHECK(there.first_input == "grow:5ec2e7\n");
  check_says(there.words[2], "read -r TROUPE_JOIN");
  CHECK(command_here(invited, 1, "").environment == std::vector<std::string>{"TROUPE_ENGINE_CREDITS=4", "HOME=there",
                                                                             "TROUPE_JOIN=grow:5ec2e7", "TROUPE_RANK=1",
                                                                             "TROUPE_RANKS=3"});
}

TEST_CASE("launch: a host's processes know its pod, and not the launcher's if they are elsewhere") {
  const troupe::launch::job job{.program = {"./app"},
                                .processes = 2,
                                .rendezvous = "tcp://192.0.2.1:7000",
                                .key = "5ec2e7",
                                .environment = {"TROUPE_POD=mine"}};
  const auto set = [](const troupe::launch::command& c) {
    return static_cast<int>(std::ranges::count(c.environment, "TROUPE_POD=mine") +
                            2 * std::ranges::count(c.environment, "TROUPE_POD=a/b"));
  };
  CHECK(set(command_here(job, 0, "")) == 1);
  CHECK(set(command_here(job, 0, "", "a/b")) == 2);
  const troupe::launch::host silent{.address = "node1", .command = {"ssh", "node1"}};
  CHECK((command_there(job, 1, silent, "/srv").words[2].find("TROUPE_POD") == std::string::npos));
  troupe::launch::host said = silent;
  said.pod = "a/b";
  check_says(command_there(job, 1, said, "/srv").words[2], "TROUPE_POD=");
}

// -- processes --

TEST_CASE("launch: each process knows where it belongs") {
  const auto o = run("launch -n 4 " + sh("echo $TROUPE_RANK of $TROUPE_RANKS, ${#TROUPE_KEY}, ${TROUPE_JOIN%:*}"));
  CHECK(o.code == 0);
  CHECK(o.err == "");
  CHECK(sorted_lines(o.out) ==
        std::vector<std::string>{"[0] 0 of 4, 64, tcp://127.0.0.1", "[1] 1 of 4, 64, tcp://127.0.0.1",
                                 "[2] 2 of 4, 64, tcp://127.0.0.1", "[3] 3 of 4, 64, tcp://127.0.0.1"});
  const auto same = run("launch -n 3 --no-prefix " + sh("echo $TROUPE_KEY $TROUPE_JOIN"));
  const auto lines = lines_of(same.out);
  CHECK(lines.size() == 3);
  CHECK(std::set<std::string>(lines.begin(), lines.end()).size() == 1);
}

TEST_CASE("launch: new processes of a running job") {
  const auto made = troupe::serve_id({.listen = "tcp://127.0.0.1:0"}, "", 3, 2, nullptr);
  const std::string invitation = troupe::text_of_invitation(made.id), file = write("invitation", invitation + "\n");
  check_refused(run("launch --join '" + file + "' true"), {"holds a key", "open to others than its owner"});
  const auto owner_only = [](const std::string& path) {
    fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
    return path;
  };
  owner_only(file);
  const auto o = run("launch --no-prefix --join '" + file + "' " +
                         sh("echo $TROUPE_RANK of $TROUPE_RANKS, ${#TROUPE_KEY} $TROUPE_JOIN"),
                     "TROUPE_KEY=of_another_job");
  CHECK(o.code == 0);
  for (const char* rank : {"0", "1"}) check_says(o.out, rank + std::string{" of 2, 0 "} + invitation + "\n");
  check_refused(run("launch --join nowhere.invitation true"),
                {"nowhere.invitation cannot be read: No such file or directory"});
  check_refused(run("launch -n 3 --join '" + file + "' true"), {"-n 3: the invitation is for 2 new processes"});
  check_refused(run("launch --listen tcp://127.0.0.1:0 --join '" + file + "' true"), {"--listen", "--join"});
  check_refused(run("launch --join '" + owner_only(write("no_invitation", "tcp://127.0.0.1:7000")) + "' true"),
                {"this is no invitation"});
}

TEST_CASE("launch: both streams, whole lines, and a last one without an end") {
  const auto o = run("launch -n 2 " + sh("printf \"a\\nb\"; printf \"c\\nd\" >&2"));
  CHECK(o.code == 0);
  CHECK(sorted_lines(o.out) == std::vector<std::string>{"[0] a", "[0] b", "[1] a", "[1] b"});
  CHECK(sorted_lines(o.err) == std::vector<std::string>{"[0] c", "[0] d", "[1] c", "[1] d"});
  // Written in pieces by four at once.
  const auto torn =
      run("launch -n 4 " + sh("for i in 1 2 3 4 5 6 7 8 9; do printf left; printf -- -; printf \"right\\n\"; done"));
  const auto lines = lines_of(torn.out);
  CHECK(lines.size() == 36);
  for (const std::string& line : lines) CHECK(line.substr(4) == "left-right");
}

TEST_CASE("launch: much output arrives whole") {
  const auto o = run("launch -n 4 --no-prefix " + sh("seq 1 50000"));
  CHECK(o.code == 0);
  CHECK(lines_of(o.out).size() == 200'000);
  CHECK(o.out.size() == 4 * contents(write("seq", run("launch -n 1 --no-prefix seq 1 50000").out)).size());
}

TEST_CASE("launch: options behind the program are the program's") {
  CHECK(run("launch -n 1 echo -n 5 --help --grace x").out == "[0] 5 --help --grace x\n");
  CHECK(run("launch --no-prefix -n 1 echo -- x").out == "-- x\n");
  CHECK(run("launch --no-prefix -n 1 -- echo -n 5 --help").out == "5 --help\n");
  CHECK(run("launch -n 1 --no-prefix " + sh("echo \"$0\" \"$1\"") + " \"a b\" \"\"").out == "a b \n");
}

TEST_CASE("launch: mistakes on the command line") {
  check_refused(run("launch -n 2"), {"name the program to start"});
  check_refused(run("launch echo x"), {"say how many processes, for example -n 4"});
  check_refused(run("launch -n 0 echo x"), {"say how many processes"});
  check_refused(run("launch -n -1 echo x"), {"-n"});
  check_refused(run("launch -n 70000 echo x"), {"1 … 65536 processes"});
  check_refused(run("launch -n 2 --grase 3 echo x"), {"there is no option --grase; did you mean --grace?"});
  check_refused(run("launch -n 2 --grace -1 echo x"), {"--grace"});
  check_refused(run("launch -n 2 --hosts /nowhere/hosts.toml echo x"), {"/nowhere/hosts.toml: cannot be read"});
  check_refused(run("launch -n 2 --listen nowhere echo x"), {"\"nowhere\" is no address"});
  check_refused(run("launch -n 2 --hosts '" + write("small.toml", "[[host]]\naddress = \"localhost\"\n") + "' echo x"),
                {"has 1 slot for 2 processes"});
}

TEST_CASE("launch: the exit status is that of the first that failed") {
  CHECK(run("launch -n 3 true").code == 0);
  auto o = run("launch -n 3 " + sh("[ $TROUPE_RANK != 1 ] || exit 7"));
  CHECK(o.code == 7);
  CHECK(o.err == "troupe launch: process 1 ended with exit status 7\n");
  // The others end by themselves in their time of grace, and their status does not count.
  const std::string gate = (folder() / mark("gate")).string();
  o = run("launch -n 2 --grace 60 " + sh("if [ $TROUPE_RANK = 0 ]; then : >" + gate + "; exit 7; fi; while [ ! -e " +
                                         gate + " ]; do sleep 0.01; done; sleep 0.3; echo by myself; exit 9"));
  CHECK(o.code == 7);
  CHECK(o.out == "[1] by myself\n");
}

TEST_CASE("launch: when one is killed, the others are ended") {
  const std::string marked = mark("killed");
  const auto o =
      run("launch -n 4 --grace 0 " + sh("if [ $TROUPE_RANK = 2 ]; then kill -9 $$; fi; sleep 1000; : " + marked));
  CHECK(o.code == 128 + 9);
  check_says(o.err, "troupe launch: process 2 was ended by signal 9 (Killed)\n");
  CHECK(nobody_has(marked));
}

TEST_CASE("launch: who does not listen to SIGTERM is killed, with all that he has started") {
  const std::string marked = mark("deaf");
  const auto o =
      run("launch -n 2 --grace 0 env MARK=" + marked + " " +
          sh("trap : TERM; if [ $TROUPE_RANK = 1 ]; then exit 3; fi; (trap : TERM; while :; do sleep 1000; done) & "
             "while :; do sleep 1000; done"));
  CHECK(o.code == 3);
  CHECK(nobody_has(marked));
}

TEST_CASE("launch: the others are left alone with --keep-going") {
  const auto o =
      run("launch -n 2 --grace 0 --keep-going " + sh("[ $TROUPE_RANK = 1 ] || exit 5; sleep 0.5; echo still here"));
  CHECK(o.code == 5);
  CHECK(o.out == "[1] still here\n");
}

TEST_CASE("launch: what a process leaves behind ends with it, and keeps nobody waiting") {
  const std::string marked = mark("left");
  const auto o = run("launch -n 2 env MARK=" + marked + " " + sh("sleep 1000 & echo done"));
  CHECK(o.code == 0);
  CHECK(sorted_lines(o.out) == std::vector<std::string>{"[0] done", "[1] done"});
  CHECK(nobody_has(marked));
}

TEST_CASE("launch: who leaves his group keeps the pipe, and nobody waiting") {
  const auto o = run("launch -n 1 " + sh("setsid sleep 3 & printf end"));
  CHECK(o.code == 0);
  CHECK(o.out == "[0] end\n");
}

TEST_CASE("launch: programs that there are not") {
  auto o = run("launch -n 4 ./no_such_program");
  CHECK(o.code == 127);
  CHECK(o.out == "");
  CHECK(o.err == "troupe launch: ./no_such_program cannot be started: No such file or directory\n");
  o = run("launch -n 2 '" + write("no_program", "nothing") + "'");
  CHECK(o.code == 126);
  check_says(o.err, "cannot be started: Permission denied");
}

namespace {
/// Without the two signals that belong to the C library, which sets them when a program's first thread begins.
std::string without_own_signals(const std::string& text) {
  std::string result;
  for (std::string line : lines_of(text)) {
    if (const std::string_view name = "SigIgn: "; line.starts_with(name)) {
      const std::uint64_t ignored = std::stoull(line.substr(name.size()), nullptr, 16) & ~std::uint64_t{0x180000000};
      line = std::string{name} + std::to_string(ignored);
    }
    result += line + "\n";
  }
  return result;
}
}  // namespace

TEST_CASE(
    "launch: a process has the descriptors, signals and limits of its launcher, and nothing of the launcher's own") {
  // By the shell alone: it blocks signals while it starts a program.
  const std::string script =
      "cd /proc/$$/fd; echo *; while read -r name value; do case $name in SigBlk:|SigIgn:) echo $name $value;; esac; "
      "done </proc/$$/status; ulimit -Sn; umask";
  const std::string plain = (folder() / "plain").string();
  // Behind the same redirections, with signals ignored and blocked as somebody may have them.
  for (const std::string before : {"", "trap \"\" PIPE TTIN USR2; "}) {
    REQUIRE(std::system((before + sh(script) + " >'" + plain + "' 2>'" + plain + ".err' </dev/null").c_str()) == 0);
    const auto o = run("launch -n 2 --no-prefix " + sh(script), before);
    CHECK(o.code == 0);
    std::string twice;
    for (const std::string& line : lines_of(contents(plain))) twice += line + "\n" + line + "\n";
    INFO(o.out, " is not ", twice);
    CHECK((sorted_lines(without_own_signals(o.out)) == sorted_lines(without_own_signals(twice))));
  }
}

TEST_CASE("launch: standard input is for process 0") {
  const std::string file = write("input", "first\nsecond\n");
  const std::string line =
      "'" TROUPE_PROGRAM "' launch -n 3 cat <'" + file + "' >'" + (folder() / "got").string() + "'";
  CHECK(std::system(line.c_str()) == 0);
  CHECK(contents(folder() / "got") == "[0] first\n[0] second\n");
}

TEST_CASE("launch: interrupts are passed on, and a second one kills") {
  // The signal goes to the launcher alone, when all have begun.
  const std::string endless = "while :; do sleep 0.05; done";
  const auto interrupt = [&](const std::string& signal, const std::string& script, const std::string& more,
                             const std::string& then, const std::string& seconds) {
    const std::string ready = (folder() / mark("ready")).string();
    std::error_code ignored;
    fs::remove_all(ready, ignored);
    fs::create_directory(ready);
    const std::string out = (folder() / "out").string();
    const std::string line = "'" TROUPE_PROGRAM "' launch -n 3 --no-prefix " +
                             sh(script + " : >" + ready + "/$TROUPE_RANK; " + then) + " >'" + out +
                             "' 2>/dev/null </dev/null & launcher=$!; while [ $(ls " + ready +
                             " | wc -l) != 3 ]; do sleep 0.01; done; sleep " + seconds + "; kill -s " + signal +
                             " $launcher; " + more + " wait $launcher";
    const int status = std::system(line.c_str());
    return std::pair{WIFEXITED(status) ? WEXITSTATUS(status) : -1, contents(out)};
  };
  const auto after_begin = [&](const std::string& signal, const std::string& script, const std::string& more) {
    return interrupt(signal, script, more, endless, "0");
  };
  CHECK(after_begin("TERM", "trap \"echo told; exit 0\" TERM;", "").second == "told\ntold\ntold\n");
  CHECK(after_begin("TERM", "trap \"exit 0\" TERM;", "").first == 130);
  CHECK(after_begin("TERM", "", "").first == 130);
  CHECK(after_begin("HUP", "", "").first == 128 + 1);
  CHECK(after_begin("TERM", "trap \"exit 4\" TERM;", "").first == 4);
  CHECK(after_begin("USR1", "trap \"exit 6\" USR1;", "").first == 6);
  CHECK(after_begin("TERM", "trap \"exit 4\" TERM;", "kill -s TERM $launcher;").first == 4);  // as timeout does, is one
  CHECK(after_begin("TERM", "trap : TERM;", "sleep 0.7; kill -s TERM $launcher;").first == 130);
  // Programs that have not yet come to handle it: whenever it comes, it is the launcher that was interrupted.
  for (int ms = 0; ms < 60; ms += 4)
    CHECK(interrupt("TERM", "", "", "exec \"" TROUPE_PROGRAM "\" bench -n 1000000",
                    "0.0" + std::string{ms < 10 ? "0" : ""} + std::to_string(ms))
              .first == 130);
}

TEST_CASE("launch: when the launcher is killed, nobody is left, nor what they have started") {
  const std::string marked = mark("orphan"), ready = (folder() / marked).string();
  const std::string line = "MARK=" + marked + " '" TROUPE_PROGRAM "' launch -n 2 " +
                           sh("sleep 1000 & echo >" + ready + "$TROUPE_RANK; exec sleep 1000") +
                           " >/dev/null 2>&1 </dev/null & launcher=$!; while [ ! -e " + ready + "0 ] || [ ! -e " +
                           ready + "1 ]; do sleep 0.01; done; kill -9 $launcher; wait $launcher";
  static_cast<void>(std::system(("(" + line + ") 2>/dev/null").c_str()));
  CHECK(nobody_has(marked));
}

TEST_CASE("launch: nobody waits for a reader that has gone") {
  const int status = std::system("'" TROUPE_PROGRAM "' launch -n 2 yes 2>/dev/null | head -n 1 >/dev/null");
  CHECK(status == 0);
}

TEST_CASE("launch: 64 processes, and all of them have ended") {
  const std::string marked = mark("many");
  const auto o = run("launch -n 64 env MARK=" + marked + " " + sh("echo $TROUPE_RANK"));
  CHECK(o.code == 0);
  const auto lines = lines_of(o.out);
  CHECK(lines.size() == 64);
  std::set<std::string> ranks;
  for (const std::string& line : lines) {
    const auto end = line.find("] ");
    REQUIRE((end != std::string::npos));
    CHECK(line.substr(1, end - 1) == line.substr(end + 2));
    ranks.insert(line);
  }
  CHECK(ranks.size() == 64);
  CHECK(nobody_has(marked));
}

// -- hosts: the command is a shell here, which gets the same script as ssh would hand to one there --

namespace {

std::string shell_hosts(int slots) {
  return write("hosts.toml", "[[host]]\naddress = \"localhost\"\nslots = " + std::to_string(slots) +
                                 "\ncommand = [\"sh\", \"-c\"]\n[[host]]\naddress = \"localhost\"\ncommand = []\n");
}

}  // namespace

TEST_CASE("launch --hosts: processes by a host's command, with the key over standard input") {
  const std::string hosts = shell_hosts(2);
  auto o = run("launch --hosts '" + hosts + "' " + sh("echo $TROUPE_RANK of $TROUPE_RANKS, ${#TROUPE_KEY}, $1") +
               " x \"it is a \\$word\"");
  CHECK(o.code == 0);
  CHECK(o.err == "");
  CHECK(sorted_lines(o.out) == std::vector<std::string>{"[0] 0 of 3, 64, it is a $word",
                                                        "[1] 1 of 3, 64, it is a $word",
                                                        "[2] 2 of 3, 64, it is a $word"});
  o = run("launch --no-prefix --hosts '" + hosts + "' " +
              sh("echo $TROUPE_KEY $TROUPE_JOIN $PWD $TROUPE_ENGINE_CREDITS"),
          "TROUPE_ENGINE_CREDITS=\"it's 3\"");
  const auto lines = lines_of(o.out);
  CHECK(lines.size() == 3);
  CHECK(std::set<std::string>(lines.begin(), lines.end()).size() == 1);
  check_says(o.out, "it's 3");
}

TEST_CASE("launch --hosts: exit status, signals and what is left behind") {
  const std::string hosts = shell_hosts(2), marked = mark("remote"), ready = (folder() / mark("up")).string();
  CHECK(run("launch --hosts '" + hosts + "' " + sh("[ $TROUPE_RANK != 1 ] || exit 7")).code == 7);
  auto o =
      run("launch --grace 0 --hosts '" + hosts + "' env MARK=" + marked + " " +
          sh("if [ $TROUPE_RANK = 2 ]; then exit 3; fi; sleep 1000 & trap \"\" TERM; while :; do sleep 1000; done"));
  CHECK(o.code == 3);
  o = run("launch --grace 0 --hosts '" + hosts + "' env MARK=" + marked + " " +
          sh("if [ $TROUPE_RANK = 0 ]; then while [ ! -e " + ready + "1 ] || [ ! -e " + ready +
             "2 ]; do sleep 0.01; done; kill -9 $$; fi; trap \"echo told; exit 0\" TERM; : >" + ready +
             "$TROUPE_RANK; while :; do sleep 0.05; done"));
  CHECK(o.code == 128 + 9);
  CHECK(sorted_lines(o.out) == std::vector<std::string>{"[1] told", "[2] told"});
  check_says(o.err, "process 0 on localhost ended with exit status 137");
  // The launcher is interrupted; what its signal ends on another host comes back as an exit status.
  const std::string line =
      "'" TROUPE_PROGRAM "' launch --hosts '" + hosts + "' " +
      sh(": >" + ready + "b$TROUPE_RANK; while :; do sleep 0.05; done") +
      " >/dev/null 2>&1 </dev/null & launcher=$!; while [ $(ls " + ready +
      "b? 2>/dev/null | wc -l) != 3 ]; do sleep 0.01; done; kill -s TERM $launcher; wait $launcher";
  const int status = std::system(line.c_str());
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 130);
  o = run("launch --hosts '" + hosts + "' ./no_such_program");
  CHECK(o.code == 127);
  // The helpers see the end of their input, and kill what is left.
  CHECK(nobody_has(marked));
}

TEST_CASE("launch --hosts: more processes than a host lets log in at once, one behind the other") {
  const auto o = run("launch --hosts '" + shell_hosts(40) + "' " + sh("echo $TROUPE_RANK of $TROUPE_RANKS"));
  CHECK(o.code == 0);
  const auto lines = sorted_lines(o.out);
  CHECK(lines.size() == 41);
  for (const std::string& line : lines) CHECK(line.ends_with(" of 41"));
  // A login that writes something first, one that never says that it is there, and one that fails.
  const std::string host = "[[host]]\naddress = \"localhost\"\nslots = 20\ncommand = [\"sh\", \"-c\", ";
  const auto greeted =
      run("launch --hosts '" + write("banner.toml", host + R"('echo welcome; eval "$1"', "sh"])") + "' echo x");
  CHECK(greeted.code == 0);
  CHECK(sorted_lines(greeted.out).size() == 40);
  const auto silent = run("launch --hosts '" + write("silent.toml", host + R"("echo no shell"])") + "' echo x");
  CHECK(silent.code == 0);
  CHECK(sorted_lines(silent.out).size() == 20);
  const auto failed = run("launch --hosts '" + write("fails.toml", host + R"("echo no >&2; exit 255"])") + "' echo x");
  CHECK(failed.code == 255);
  check_says(failed.err, "on localhost ended with exit status 255");
}

TEST_CASE("launch --hosts: a command that there is not") {
  const std::string hosts = write("wrong.toml", "[[host]]\naddress = \"localhost\"\ncommand = [\"./no_such_shell\"]\n");
  const auto o = run("launch --hosts '" + hosts + "' true");
  CHECK(o.code == 127);
  check_says(o.err, "./no_such_shell cannot be started: No such file or directory");
}

}  // namespace launch_test
