// SPDX-License-Identifier: Apache-2.0
// Collectives between the processes of a host, performed by a process of its own, `troupe nicd`. `test_processes_nicd` runs other tests of this folder
// so, too.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <memory_resource>
#include <stdexcept>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "actors/ports/link/sockets.hpp"
#include "tests/processes/all_collectives.hpp"
#include "tests/processes/processes.hpp"
#include "tests/property/random_jobs.hpp"
#include "tests/seed.hpp"

using namespace engine_tests;
using namespace process_tests;
using troupe::communicator;

namespace {

/// A `troupe nicd`, which ends with this object.
class nic_process {
public:
  nic_process() : address_("unix:@nicd-test-" + std::to_string(::getpid()) + "-" + std::to_string(++made_)) {
    std::array<int, 2> said{};
    REQUIRE(::pipe(said.data()) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(said[1], STDOUT_FILENO);
      ::execl(TROUPE_PROGRAM, "troupe", "nicd", "--listen", address_.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(said[1]);
    std::string line;
    for (char c = 0; c != '\n' && ::read(said[0], &c, 1) == 1;) line += c;
    ::close(said[0]);
    REQUIRE(line == "listens at " + address_ + "\n");
  }
  ~nic_process() {
    if (pid_ > 0) end(SIGKILL);
  }
  nic_process(const nic_process&) = delete;
  nic_process& operator=(const nic_process&) = delete;

  const std::string& address() const { return address_; }
  pid_t pid() const { return pid_; }
  void tell(int signal) const { ::kill(pid_, signal); }
  /// Its status.
  int end(int signal) {
    if (signal != 0) tell(signal);
    int status = 0;
    ::waitpid(std::exchange(pid_, 0), &status, 0);
    return status;
  }
  bool lives() const { return ::waitpid(pid_, nullptr, WNOHANG) == 0; }

private:
  static inline int made_ = 0;
  std::string address_;
  pid_t pid_ = 0;
};

void need(bool right, const std::string& what) {
  if (!right) throw std::runtime_error(what);
}

troupe::engine_options by_nicd(const std::string& address) {
  troupe::engine_options o;
  o.offload = "always";
  o.nic = address;
  o.log_level = "debug";  // says what is offloaded
  return o;
}

void check_all_offloaded(const std::vector<ended>& all, const std::vector<std::string>& collectives) {
  for (const ended& e : all)
    for (const std::string& what : collectives) {
      CAPTURE(what);
      bool found = false;
      for (std::size_t at = 0; (at = e.log.find("] " + what + "(", at)) != std::string::npos; ++at)
        found = found || e.log.substr(at, e.log.find('\n', at) - at).find(": offloaded, ") != std::string::npos;
      CHECK_MESSAGE(found, e.log);
    }
}

/// Calls that go on until one fails; what that says.
std::string work_until_it_fails(communicator& comm, std::pmr::memory_resource* from) {
  std::array<std::pmr::vector<float>, 2> data{std::pmr::vector<float>(std::size_t{1} << 19, 1.F, from),
                                              std::pmr::vector<float>(std::size_t{1} << 19, 1.F, from)};
  try {
    troupe::request under_way = comm.all_reduce_async(data[1], troupe::maximum);
    for (std::size_t i = 0;; ++i) {
      troupe::request next = comm.all_reduce_async(data[i % 2], troupe::maximum);
      under_way.wait();
      under_way = std::move(next);
    }
  } catch (const troupe::error& failed) {
    return (failed.code_value() == troupe::errc::peer_lost ? "peer_lost " : "another error ") +
           std::string{failed.what()};
  }
}

}  // namespace

TEST_CASE("nicd performs every collective between processes of several ranks, with the bytes that ranks alone have") {
  const std::uint64_t drawn = seed();
  std::vector<std::string> names;
  for (const collective what : all_collectives) names.emplace_back(troupe::name(what));
  nic_process nic;
  const auto all = run_processes(3, [&](const member& m) {
    troupe::engine e{by_nicd(nic.address())};
    e.join(
        2,
        [&](communicator& comm) {
          perform_all_collectives(comm, drawn);
          // A part has a place of its own there, and gives it back.
          for (int round = 0; round < 20; ++round) {
            communicator part = comm.split(comm.rank() % 2, 0);
            int ranks = 1;
            part.all_reduce(ranks, troupe::sum);
            need(ranks == comm.size() / 2, "the part's sum");
          }
        },
        m.how());
  });
  CHECK(trouble(all) == "");
  check_all_offloaded(all, names);
  CHECK(WEXITSTATUS(nic.end(SIGTERM)) == 130);
}

TEST_CASE(
    "nicd gives the same bytes in every run, on memory that all map and on other memory, and as a process's NIC") {
  nic_process nic;
  for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{300'001}}) {
    std::vector<std::vector<std::string>> said;
    for (const std::string& where : {nic.address(), nic.address(), std::string{"process"}}) {
      const auto all = run_processes(3, [&](const member& m) {
        troupe::engine e{by_nicd(where)};
        communicator comm = e.join(m.how());
        const auto held = e.memory();
        for (std::pmr::memory_resource* from : {held.get(), std::pmr::new_delete_resource()}) {
          std::pmr::vector<float> in(count, from), out(count, from);
          for (std::size_t i = 0; i < count; ++i)
            in[i] = static_cast<float>(i % 97) * 0.37F + static_cast<float>(comm.rank()) * 1.1F;
          comm.all_reduce(in, out, troupe::sum);
          std::uint64_t digest = 1469598103934665603U;
          for (const float f : out) {
            std::uint32_t bits = 0;
            std::memcpy(&bits, &f, sizeof bits);
            digest = (digest ^ bits) * 1099511628211U;
          }
          m.say(std::to_string(digest));
        }
      });
      REQUIRE(trouble(all) == "");
      for (const ended& one : all) said.push_back(one.said);
    }
    for (const auto& one : said) {
      REQUIRE(one.size() == 2);
      CHECK(one[0] == one[1]);
      CHECK(one == said.front());
    }
  }
}

TEST_CASE("nicd that is missing is an error that says what to start, in every process and before anything is called") {
  const auto all = run_processes(2, [](const member& m) {
    troupe::engine e{by_nicd("unix:@nobody-listens-here")};
    try {
      communicator comm = e.join(m.how());
      m.say("joined");
    } catch (const troupe::error& failed) {
      m.say((failed.code_value() == troupe::errc::peer_lost ? "peer_lost " : "another error ") +
            std::string{failed.what()});
    }
  });
  for (const ended& one : all) {
    CHECK(one.exit == 0);
    CHECK_FALSE(one.late);
    REQUIRE(one.said.size() == 1);
    CHECK_MESSAGE(one.said[0].find("peer_lost engine.nic is \"unix:@nobody-listens-here\"") == 0, one.said[0]);
    CHECK_MESSAGE(one.said[0].find("start `troupe nicd` first") != std::string::npos, one.said[0]);
  }
}

TEST_CASE("nicd: processes of a host that name different ones are told so, and join nothing") {
  nic_process one, another;
  const auto all = run_processes(3, [&](const member& m) {
    troupe::engine e{by_nicd(m.process == 0 ? one.address() : another.address())};
    try {
      communicator comm = e.join(m.how());
      m.say("joined");
    } catch (const troupe::error& failed) {
      m.say((failed.code_value() == troupe::errc::bad_config ? "bad_config " : "another error ") +
            std::string{failed.what()});
    }
  });
  for (const ended& each : all) {
    CHECK(each.exit == 0);
    CHECK_FALSE(each.late);
    REQUIRE(each.said.size() == 1);
    CHECK_MESSAGE(each.said[0].find("bad_config ") == 0, each.said[0]);
    CHECK_MESSAGE(each.said[0].find("engine.nic") != std::string::npos, each.said[0]);
  }
  CHECK(one.lives());
  CHECK(another.lives());
}

TEST_CASE("nicd lets go of a process that is killed: those who are left go on by it, and so does another job") {
  nic_process nic;
  for (const bool shared : {false, true})
    for (const int victim : {0, 1}) {
      CAPTURE(shared);
      CAPTURE(victim);
      // The other job is under way all the time: what befalls the first one is not its business.
      const pid_t other = ::fork();
      if (other == 0) {
        const auto all = run_processes(2, [&](const member& m) {
          troupe::engine e{by_nicd(nic.address())};
          communicator comm = e.join(m.how());
          for (int round = 0; round < 100; ++round) {
            std::vector<int> data(50'000, round);
            comm.all_reduce(data, troupe::sum);
            need(data == std::vector<int>(50'000, 2 * round), "the other job's bytes");
          }
        });
        ::_exit(trouble(all).empty() ? 0 : 1);
      }
      const auto all = run_processes(
          3,
          [&](const member& m) {
            troupe::engine_options o = by_nicd(nic.address());
            o.log_level = "off";
            troupe::engine e{o};
            troupe::join_options how = m.how();
            how.silence = std::chrono::milliseconds{1000};
            communicator comm = e.join(how);
            const auto held = e.memory();
            m.say("joined");
            m.say(work_until_it_fails(comm, shared ? held.get() : std::pmr::new_delete_resource()));
            communicator left = comm.shrink();
            int ranks = 1;
            left.all_reduce(ranks, troupe::sum);
            m.say(std::to_string(ranks) + " are left");
          },
          [&](job_control& job) {
            job.wait_for_lines(3);
            ::usleep(20'000);  // at any moment of what they do
            ::kill(job.pids[static_cast<std::size_t>(victim)], SIGKILL);
          });
      for (int p = 0; p < 3; ++p) {
        const ended& one = all[static_cast<std::size_t>(p)];
        CAPTURE(p);
        CAPTURE(one.log);
        CHECK_FALSE(one.late);
        if (p == victim) {
          CHECK(one.signal == SIGKILL);
          continue;
        }
        CHECK(one.exit == 0);
        REQUIRE(one.said.size() == 3);
        CHECK_MESSAGE(one.said[1].find("peer_lost ") == 0, one.said[1]);
        CHECK_MESSAGE(one.said[1].find("process " + std::to_string(victim) + " (rank ") != std::string::npos,
                      one.said[1]);
        CHECK(one.said[2] == "2 are left");
      }
      int status = -1;
      ::waitpid(other, &status, 0);
      CHECK(status == 0);
      CHECK(nic.lives());
    }
}

TEST_CASE(
    "nicd that is killed, ends, or is stopped fails what is under way and what comes, and says so; messages go on") {
  for (const int signal : {SIGKILL, SIGTERM, SIGSTOP}) {
    CAPTURE(signal);
    nic_process nic;
    const auto all = run_processes(
        2,
        [&](const member& m) {
          troupe::engine_options o = by_nicd(nic.address());
          o.log_level = "off";
          troupe::engine e{o};
          troupe::join_options how = m.how();
          how.silence = std::chrono::milliseconds{1500};
          communicator comm = e.join(how);
          const auto held = e.memory();
          m.say("joined");
          m.say(work_until_it_fails(comm, held.get()));
          int word = comm.rank();
          if (comm.rank() == 0) comm.send(word, 1);
          else comm.recv(word, 0);
          m.say("heard " + std::to_string(word));
          try {
            comm.all_reduce(word, troupe::sum);
            m.say("performed");
          } catch (const troupe::error& failed) {
            m.say((failed.code_value() == troupe::errc::peer_lost ? "peer_lost " : "another error ") +
                  std::string{failed.what()});
          }
          try {
            comm.split(0, 0);
            m.say("split");
          } catch (const troupe::error& failed) {
            m.say((failed.code_value() == troupe::errc::peer_lost ? "peer_lost " : "another error ") +
                  std::string{failed.what()});
          }
        },
        [&](job_control& job) {
          job.wait_for_lines(2);
          ::usleep(20'000);
          nic.tell(signal);
        });
    const std::string pid = "troupe nicd, pid " + std::to_string(nic.pid());
    for (const ended& one : all) {
      CAPTURE(one.log);
      CHECK_FALSE(one.late);
      CHECK(one.exit == 0);
      REQUIRE(one.said.size() == 5);
      for (const std::size_t at : {std::size_t{1}, std::size_t{3}, std::size_t{4}}) {
        CHECK_MESSAGE(one.said[at].find("peer_lost ") == 0, one.said[at]);
        CHECK_MESSAGE(one.said[at].find(pid) != std::string::npos, one.said[at]);
      }
      CHECK(one.said[2] == "heard 0");
    }
    if (signal == SIGSTOP) CHECK(WTERMSIG(nic.end(0)) == SIGKILL);  // by those who waited
  }
}

TEST_CASE("nicd: an operation that a process never calls ends by the other's deadline, and the next one is performed") {
  nic_process nic;
  const auto all = run_processes(2, [&](const member& m) {
    troupe::engine e{by_nicd(nic.address())};
    communicator comm = e.join(m.how());
    std::vector<int> data(100'000, 1);
    if (m.process == 0) ::usleep(500'000);
    try {
      comm.all_reduce(data, troupe::sum, {.deadline = std::chrono::milliseconds{100}});
      m.say("well");
    } catch (const troupe::error& failed) {
      m.say(failed.code_value() == troupe::errc::timed_out ? "timed_out" : failed.what());
    }
    need(data == std::vector<int>(100'000, 1), "it was performed");
    comm.all_reduce(data, troupe::sum, {.deadline = std::chrono::seconds{20}});
    need(data == std::vector<int>(100'000, 2), "the next one");
  });
  CHECK(trouble(all) == "");
  for (const ended& one : all) CHECK(one.said == std::vector<std::string>{"timed_out"});
}

namespace {

/// A launcher of one process, which says where its NIC process listens, and then is there for a while.
class launched_with_nicd {
public:
  explicit launched_with_nicd(const char* then) {
    std::array<int, 2> said{};
    REQUIRE(::pipe(said.data()) == 0);
    const std::string program = std::string{"echo $TROUPE_ENGINE_NIC; "} + then;
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(said[1], STDOUT_FILENO);
      ::close(said[0]);
      ::close(said[1]);
      ::execl(TROUPE_PROGRAM, "troupe", "launch", "--nicd", "-n", "1", "--no-prefix", "sh", "-c", program.c_str(),
              nullptr);
      ::_exit(127);
    }
    ::close(said[1]);
    for (char c = 0; ::read(said[0], &c, 1) == 1 && c != '\n';) address_ += c;
    ::close(said[0]);
  }
  pid_t pid() const { return pid_; }
  const std::string& address() const { return address_; }
  bool listens() const {
    try {
      troupe::actors::begin_connect(troupe::actors::socket_address::resolve(address_).front());
      return true;
    } catch (const troupe::error&) {
      return false;
    }
  }

private:
  pid_t pid_ = 0;
  std::string address_;
};

}  // namespace

TEST_CASE("launch --nicd starts a NIC process for the job, and it ends with the job and with its launcher") {
  {
    const launched_with_nicd job{"exit 7"};
    CHECK(job.address().starts_with("unix:@troupe-nicd-"));
    int status = 0;
    ::waitpid(job.pid(), &status, 0);
    CHECK(WEXITSTATUS(status) == 7);
    CHECK_FALSE(job.listens());
  }
  const launched_with_nicd job{"sleep 20"};
  REQUIRE(job.listens());
  ::kill(job.pid(), SIGKILL);
  ::waitpid(job.pid(), nullptr, 0);
  for (int look = 0; look < 1000 && job.listens(); ++look) ::usleep(10'000);
  CHECK_FALSE(job.listens());
}
