// SPDX-License-Identifier: Apache-2.0
// Processes that spread an id by a way of their own, here a file or a pipe; and those that meet at `troupe rendezvous`' service.

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "actors/ports/link/rendezvous.hpp"
#include "engine/world/join.hpp"
#include "tests/processes/processes.hpp"

namespace ids_test {

using namespace process_tests;
using troupe::communicator;
using troupe::errc;
using troupe::job_id;

namespace {

/// A file that appears whole.
class spread {
public:
  spread() : path_(std::filesystem::temp_directory_path() / ("troupe_id_" + std::to_string(::getpid()))) { remove(); }
  ~spread() { remove(); }
  spread(const spread&) = delete;
  spread& operator=(const spread&) = delete;
  void write(const job_id& id) const {
    const std::string part = path_.string() + ".part";
    std::ofstream{part, std::ios::binary}.write(reinterpret_cast<const char*>(id.bytes.data()), sizeof id);
    std::filesystem::rename(part, path_);
  }
  job_id read() const {
    while (!std::filesystem::exists(path_)) ::usleep(1000);
    job_id id;
    std::ifstream{path_, std::ios::binary}.read(reinterpret_cast<char*>(id.bytes.data()), sizeof id);
    return id;
  }

private:
  void remove() const { std::filesystem::remove(path_); }
  std::filesystem::path path_;
};

void check_sum(communicator& comm) {
  int sum = comm.rank();
  comm.all_reduce(sum, troupe::sum);
  if (sum != comm.size() * (comm.size() - 1) / 2) throw std::runtime_error("a wrong sum");
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const troupe::error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("processes meet by an id that came through a file, whoever made it") {
  for (const int maker : {0, 2}) {
    CAPTURE(maker);
    const spread file;
    const auto all = run_processes(4, [&](const member& m) {
      if (m.process == maker) file.write(troupe::make_id());
      const job_id id = file.read();
      troupe::engine engine;
      communicator comm = engine.communicator(id, 4, m.process);
      if (comm.rank() != m.process || comm.size() != 4) throw std::runtime_error("another rank");
      check_sum(comm);
    });
    CHECK(trouble(all) == "");
  }
}

TEST_CASE("a process has several jobs at once, with an engine for each, and ids that nobody uses harm nobody") {
  std::array<int, 2> pipe{};
  REQUIRE(::pipe(pipe.data()) == 0);
  const auto all = run_processes(2, [&](const member& m) {
    std::array<job_id, 2> ids;
    const std::size_t bytes = sizeof(ids);
    if (m.process == 0) {
      for (int i = 0; i < 20; ++i) static_cast<void>(troupe::make_id({.listen = "tcp://127.0.0.1:0"}));
      for (job_id& id : ids) id = troupe::make_id({.listen = "tcp://127.0.0.1:0"});
      if (::write(pipe[1], ids.data(), bytes) != static_cast<ssize_t>(bytes)) throw std::runtime_error("write");
    } else if (::read(pipe[0], ids.data(), bytes) != static_cast<ssize_t>(bytes)) {
      throw std::runtime_error("read");
    }
    if (ids[0] == ids[1]) throw std::runtime_error("the same twice");
    troupe::engine one, other;
    communicator forward = one.communicator(ids[0], 2, m.process);
    communicator backward = other.communicator(ids[1], 2, 1 - m.process);
    check_sum(forward);
    check_sum(backward);
    if (forward.rank() == backward.rank()) throw std::runtime_error("the same rank");
  });
  CHECK(trouble(all) == "");
  for (const int end : pipe) ::close(end);
}

TEST_CASE("an id names who is missing, can be cancelled, and is refused where it cannot be one") {
  const spread file;
  const auto all = run_processes(2, [&](const member& m) {
    if (m.process == 0) file.write(troupe::make_id({.listen = "tcp://127.0.0.1:0"}));
    job_id id = file.read();
    if (m.process == 0) {
      troupe::engine engine;
      m.say(error_of([&] { engine.communicator(id, 3, 0, {.deadline = std::chrono::milliseconds{1500}}); }));
      std::atomic<bool> cancel{true};
      m.say(error_of([&] { engine.communicator(id, 3, 0, {.cancel = &cancel}); }));
      return;
    }
    troupe::engine engine;
    m.say(error_of([&] { engine.communicator(id, 3, 3); }));
    id.bytes[100] ^= std::byte{1};
    m.say(error_of([&] { engine.communicator(id, 3, 1); }));
    m.say(error_of([&] { engine.communicator(job_id{}, 3, 1); }));
    id.bytes[100] ^= std::byte{1};
    ::usleep(200'000);  // process 0 is there
    m.say(error_of([&] { engine.communicator(id, 4, 1, {.deadline = std::chrono::milliseconds{5000}}); }));
    // Waits until process 0 has gone, and with it the service.
    m.say(error_of([&] { engine.communicator(id, 3, 1, {.deadline = std::chrono::milliseconds{4000}}); }));
  });
  CHECK(trouble(all) == "");
  REQUIRE(all[0].said.size() == 2);
  CHECK_MESSAGE(all[0].said[0].find("process 2 has not come") != std::string::npos, all[0].said[0]);
  CHECK(all[0].said[1] == "the join was cancelled");
  REQUIRE(all[1].said.size() == 5);
  CHECK(all[1].said[0] == "there is no rank 3 in a job of 3; numbers begin with 0");
  CHECK(all[1].said[1] == "these 128 bytes are no id of make_id(), or not all of them arrived");
  CHECK(all[1].said[2] == all[1].said[1]);
  CHECK_MESSAGE(all[1].said[3].find("process 1 is one of 4, but this job has 3 processes") != std::string::npos,
                all[1].said[3]);
  CHECK_MESSAGE(all[1].said[4].find("process 1 of 3") != std::string::npos, all[1].said[4]);
}

TEST_CASE("a new process takes the place of one that was killed, in a new job of those who are left and itself") {
  const spread file;
  const auto all = run_processes(
      4,
      [&](const member& m) {
        if (m.process == 3) {  // comes later
          troupe::engine engine;
          communicator comm = engine.communicator(file.read(), 3, 2);
          check_sum(comm);
          m.say("grown " + std::to_string(comm.size()));
          return;
        }
        troupe::engine_options options;
        options.log_level = "off";
        troupe::engine engine(options);
        troupe::join_options how = m.how();
        how.processes = 3;
        communicator comm = engine.join(how);
        m.say("joined");
        if (m.process == 0) ::pause();
        if (error_of([&] {
              for (;;) comm.barrier();
            }).find("process 0 (rank 0") == std::string::npos)
          throw std::runtime_error("nobody was lost");
        comm = comm.shrink();
        job_id id;
        if (comm.rank() == 0) file.write(id = troupe::make_id());
        comm.broadcast(id.bytes, 0);
        troupe::engine next;
        communicator grown = next.communicator(id, 3, comm.rank());
        check_sum(grown);
        m.say("grown " + std::to_string(grown.size()));
      },
      [&](job_control& job) {
        job.wait_for_lines(3);
        ::kill(job.pids[0], SIGKILL);
      });
  for (std::size_t p = 1; p < 4; ++p) {
    CAPTURE(p);
    CAPTURE(all[p].log);
    CHECK(all[p].exit == 0);
    REQUIRE_FALSE(all[p].said.empty());
    CHECK(all[p].said.back() == "grown 3");
  }
}

TEST_CASE("a service of its own learns from the first how many come, and gives up in time") {
  using service = troupe::actors::rendezvous_service;
  const auto all = run_processes(3, [&](const member& m) {
    std::unique_ptr<service> place;
    if (m.process == 2) {
      place = std::make_unique<service>(m.rendezvous, 0, troupe::actors::job_key{}, troupe::build_of_links());
      place->wait();
      m.say(std::to_string(place->came()) + " came" + place->refused());
      service nobody{
          "tcp://127.0.0.1:0",      0,       {},
          troupe::build_of_links(), nullptr, std::chrono::steady_clock::now() + std::chrono::milliseconds{100}};
      nobody.wait();
      m.say(nobody.over() && !nobody.done() ? "gave up" : "waits");
      return;
    }
    ::usleep(100'000);  // process 2 serves
    troupe::engine engine;
    troupe::join_options how = m.how();
    how.processes = 2;
    communicator comm = engine.join(how);
    check_sum(comm);
  });
  CHECK(trouble(all) == "");
  CHECK(all[2].said == std::vector<std::string>{"2 came", "gave up"});
}

}  // namespace ids_test
