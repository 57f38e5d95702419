// SPDX-License-Identifier: Apache-2.0
// What a hundred jobs leave behind: nothing, however they end.

#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <set>
#include <stdexcept>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

#include "tests/engine/program.hpp"
#include "tests/processes/hosts.hpp"
#include "tests/processes/processes.hpp"

using namespace process_tests;
using namespace troupe_program;
using troupe::communicator;
using troupe::errc;

namespace {

int entries_of(const char* directory) {
  return static_cast<int>(std::distance(fs::directory_iterator{directory}, fs::directory_iterator{}));
}

/// What it has open; and how many threads it has.
std::pair<int, int> held_by_this_process() { return {entries_of("/proc/self/fd"), entries_of("/proc/self/task")}; }

/// The other process of a job of two: says that it is there, and works until it is killed or, if it may, leaves.
[[noreturn]] void be_the_other(troupe::join_options how, bool leaves) {
  how.process = 1;
  int status = 1;
  try {
    troupe::engine engine;
    communicator comm = engine.join(how);
    for (int i = 0; i < 3 || !leaves; ++i) comm.barrier();
    status = 0;
  } catch (const troupe::error&) {}
  ::_exit(status);
}

/// @param how 0: both leave; 1: the other one is killed while they work; 2: before it has joined, or shortly after
void one_job(const member& m, int number, int kind) {
  troupe::join_options how = m.how();
  how.rendezvous += "-" + std::to_string(number);
  how.process = 0;
  how.processes = 2;
  how.deadline = std::chrono::milliseconds{kind == 2 ? 300 : 20'000};
  // Nobody but this thread is there: all of an engine's have ended with it.
  const pid_t other = ::fork();
  if (other == 0) be_the_other(how, kind == 0);
  errc code = errc::ok;
  try {
    troupe::engine_options options;
    options.log_level = "off";
    troupe::engine engine(options);
    if (kind == 2) ::kill(other, SIGKILL);
    communicator comm = engine.join(how);
    for (int i = 0; i < 3; ++i) comm.barrier();
    if (kind == 1) ::kill(other, SIGKILL);
    if (kind != 0)
      for (;;) comm.barrier();
  } catch (const troupe::error& e) {
    code = e.code_value();
  }
  int status = 0;
  ::waitpid(other, &status, 0);
  const bool right = kind == 0   ? code == errc::ok && WIFEXITED(status) && WEXITSTATUS(status) == 0
                     : kind == 1 ? code == errc::peer_lost
                                 : code == errc::timed_out || code == errc::peer_lost;
  if (!right)
    throw std::runtime_error("job " + std::to_string(number) + " of kind " + std::to_string(kind) +
                             " ended with code " + std::to_string(static_cast<int>(code)));
}

/// Everything in the shared folders that could be ours.
std::set<std::string> left_behind() {
  std::set<std::string> names;
  for (const char* where : {"/dev/shm", "/tmp"})
    for (const auto& entry : fs::directory_iterator{where, fs::directory_options::skip_permission_denied}) {
      const std::string name = entry.path().filename();
      if (name.find("troupe") != std::string::npos && entry.path() != folder()) names.insert(entry.path());
    }
  return names;
}

/// Processes whose environment has this word.
int processes_with(const std::string& word) {
  int found = 0;
  for (const auto& entry : fs::directory_iterator{"/proc"}) {
    const std::string id = entry.path().filename();
    if (id.find_first_not_of("0123456789") != std::string::npos) continue;
    found += contents(entry.path() / "environ").find(word) != std::string::npos ? 1 : 0;
  }
  return found;
}

}  // namespace

TEST_CASE("leaks: a process that has been in a hundred jobs holds what it held after the first ones") {
  const auto all = run_processes(1, [](const member& m) {
    std::pair<int, int> first;
    for (int number = 0; number < 100; ++number) {
      one_job(m, number, number % 10 == 9 ? 2 : number % 2);
      if (number == 9) first = held_by_this_process();
    }
    const auto last = held_by_this_process();
    if (last != first)
      throw std::runtime_error("after 10 jobs " + std::to_string(first.first) + " descriptors and " +
                               std::to_string(first.second) + " threads, after 100 " + std::to_string(last.first) +
                               " and " + std::to_string(last.second));
  });
  CHECK(trouble(all) == "");
}

TEST_CASE("leaks: launchers and processes that are killed leave no process, no file and no shared memory") {
  const auto before = left_behind();
  const std::string mark = "troupe_leaks_" + std::to_string(::getpid());
  const std::string ready = (folder() / "rows").string();
  // $launcher is killed, or interrupted, or one of its processes is; then the launcher itself has an end.
  const std::vector<std::string> ends{
      "kill -9 $launcher", "kill -INT $launcher",
      "for p in $(pgrep -P $launcher); do ! grep -qz TROUPE_RANK=2 /proc/$p/environ || kill -9 $p; done"};
  for (int round = 0; round < 24; ++round) {
    const std::string line = "MARK=" + mark + " '" TROUPE_PROGRAM "' bench --processes 3 -N 0 -b 8 -e 8 -n 2 -w 0 >'" +
                             ready + "' 2>/dev/null </dev/null & launcher=$!; while ! grep -q 'cycle 2' '" + ready +
                             "'; do sleep 0.01; kill -0 $launcher || exit 9; done; " +
                             ends[static_cast<std::size_t>(round) % ends.size()] +
                             "; wait $launcher; code=$?; [ $code != 0 ] && [ $code != 127 ]";
    fs::remove(ready);
    write("rows", "");
    CAPTURE(line);
    CHECK(system_does("exec 2>/dev/null; " + line));
  }
  // What was killed takes a moment to be gone.
  for (int i = 0; i < 500 && processes_with("MARK=" + mark) > 0; ++i) ::usleep(10'000);
  CHECK(processes_with("MARK=" + mark) == 0);
  CHECK(left_behind() == before);
}
