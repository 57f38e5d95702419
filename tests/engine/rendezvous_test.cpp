// SPDX-License-Identifier: Apache-2.0
// `troupe rendezvous` as a user starts it; those who come are threads of the test.
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "actors/ports/link/rendezvous.hpp"
#include "engine/world/join.hpp"
#include "memory/error.hpp"
#include "tests/engine/program.hpp"

using namespace troupe_program;
using namespace troupe;

namespace {

/// The program, its lines as they come, and its exit status behind them.
class serving {
public:
  explicit serving(const std::string& arguments) {
    const std::string line =
        "'" TROUPE_PROGRAM "' rendezvous " + arguments + " 2>&1 & echo pid $!; wait $!; echo status $?";
    from_ = ::popen(line.c_str(), "r");
    REQUIRE(from_ != nullptr);
  }
  ~serving() {
    if (pid > 0) ::kill(pid, SIGKILL);  // it has ended, if nothing went wrong
    ::pclose(from_);
  }
  serving(const serving&) = delete;
  serving& operator=(const serving&) = delete;
  /// What follows `beginning` on the next line that has it.
  std::string next(const std::string& beginning) {
    for (std::array<char, 512> line{}; std::fgets(line.data(), line.size(), from_) != nullptr;) {
      std::string text = line.data();
      text.erase(text.find_last_not_of('\n') + 1);
      if (text.starts_with("pid ")) pid = std::stoi(text.substr(4));
      if (text.starts_with("status ")) pid = 0;
      if (text.starts_with(beginning)) return text.substr(beginning.size());
      passed += text + "\n";
    }
    return "(nothing more came; before: " + passed + ")";
  }
  pid_t pid = 0;
  std::string passed;

private:
  std::FILE* from_ = nullptr;
};

/// Processes, as the service sees them. Returns the errors' sentences.
std::vector<std::string> come(const std::string& address, std::uint32_t processes, const actors::job_key& key,
                              const std::string& last_settings = "same = 1\n") {
  std::vector<std::string> said(processes);
  std::vector<std::thread> threads;
  for (std::uint32_t p = 0; p < processes; ++p)
    threads.emplace_back([&, p] {
      actors::enrolment mine;
      mine.process = p;
      mine.processes = processes;
      mine.place.host = "here";
      mine.place.ranks = 1;
      mine.settings = p + 1 == processes ? last_settings : "same = 1\n";
      try {
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{20};
        const actors::roster all = actors::enrol(address, key, build_of_links(), mine, {until, {}});
        said[p] = std::to_string(all.processes.size());
      } catch (const error& e) {
        said[p] = e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  return said;
}

}  // namespace

TEST_CASE("a rendezvous serves job after job, of any size, until it is interrupted") {
  serving place("--listen tcp://127.0.0.1:0");
  const std::string address = place.next("listens at ");
  CHECK(address.starts_with("tcp://127.0.0.1:"));
  CHECK(come(address, 2, {}) == std::vector<std::string>(2, "2"));
  CHECK(place.next("job 1: ") == "2 processes");
  CHECK(come(address, 5, {}) == std::vector<std::string>(5, "5"));
  CHECK(place.next("job 2: ") == "5 processes");
  const std::string differ = "the engine options of processes 0 and 1 differ: \"same = 1\" and \"same = 2\"; all "
                             "processes of a job must have the same";
  CHECK(come(address, 2, {}, "same = 2\n") == std::vector<std::string>(2, differ));
  CHECK(place.next("job 3: ") == "refused: " + differ);
  CHECK(come(address, 1, {}) == std::vector<std::string>(1, "1"));
  CHECK(place.next("job 4: ") == "1 process");
  REQUIRE(place.pid > 0);
  ::kill(place.pid, SIGINT);
  CHECK(place.next("status ") == "130");
}

TEST_CASE("a rendezvous for one job ends after it, and lets in who has the key") {
  const std::string hex(64, 'a');
  const std::string file = write("job.key", hex + "\n");
  fs::permissions(file, fs::perms::owner_read);
  serving place("--listen tcp://127.0.0.1:0 --ranks 3 --once --key-file '" + file + "'");
  const std::string address = place.next("listens at ");
  const auto stranger = come(address, 1, actors::job_key::from_hex(std::string(64, 'b')));
  CHECK_MESSAGE(stranger[0].find("key") != std::string::npos, stranger[0]);
  const auto other = come(address, 2, actors::job_key::from_hex(hex));
  for (const std::string& said : other)
    CHECK_MESSAGE(said.find("is one of 2, but this job has 3 processes") != std::string::npos, said);
  CHECK(come(address, 3, actors::job_key::from_hex(hex)) == std::vector<std::string>(3, "3"));
  CHECK(place.next("job 1: ") == "3 processes");
  CHECK(place.next("status ") == "0");
}

TEST_CASE("of those who wait at a rendezvous for long, the first says once who has not come") {
  serving place("--listen tcp://127.0.0.1:0 --ranks 3 --once");
  const std::string address = place.next("listens at ");
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> told;
  std::array<std::size_t, 3> roster_size{};
  const auto come = [&](std::uint32_t p) {
    actors::enrolment mine;
    mine.process = p;
    mine.processes = 3;
    mine.place.host = "here";
    mine.place.ranks = 1;
    actors::join_limits limits{std::chrono::steady_clock::now() + std::chrono::seconds{30}, {}};
    limits.overdue = [&, p](const std::string& text) {
      const std::lock_guard lock(mutex);
      told.push_back(std::to_string(p) + " says: " + text);
      changed.notify_all();
    };
    roster_size[p] = actors::enrol(address, {}, build_of_links(), mine, limits).processes.size();
  };
  std::vector<std::thread> threads;
  threads.emplace_back(come, 0);
  threads.emplace_back(come, 2);
  {
    std::unique_lock lock(mutex);
    CHECK(changed.wait_for(lock, std::chrono::seconds{20}, [&] { return !told.empty(); }));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds{1500});  // and nobody else does, nor again
  threads.emplace_back(come, 1);
  for (std::thread& t : threads) t.join();
  CHECK(roster_size == std::array<std::size_t, 3>{3, 3, 3});
  CHECK(told == std::vector<std::string>{"0 says: process 0 of 3 waits at " + address + ": process 1 has not come"});
}

TEST_CASE("a rendezvous that strangers could reach needs a key, and other mistakes are said, too") {
  check_refused(run("rendezvous --listen tcp://0.0.0.0:0", "env -u TROUPE_KEY -u TROUPE_KEY_FILE"),
                {"tcp://0.0.0.0:0, where strangers could come", "needs a key", "--key-file"});
  check_refused(run("rendezvous"), {"--listen"});
  check_refused(run("rendezvous --listen tcp://127.0.0.1:0 --ranks -1"), {"--ranks: there can be 1"});
  check_refused(run("rendezvous --listen nowhere"), {"nowhere"});
  check_refused(run("rendezvous --listen tcp://127.0.0.1:0", "TROUPE_KEY=12"), {"TROUPE_KEY is wrong"});
  const std::string open = write("open.key", std::string(64, 'a'));
  fs::permissions(open, fs::perms::all);
  check_refused(run("rendezvous --listen tcp://127.0.0.1:0 --key-file '" + open + "'"), {open});
  check_refused(run("rendezvous --listen tcp://127.0.0.1:0 --key-file nowhere.key"),
                {"nowhere.key cannot be opened: No such file or directory"});
}
