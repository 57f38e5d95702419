// SPDX-License-Identifier: Apache-2.0
// How much is under way between processes: what is long waits at its sender, whatever is sent is bounded at its receiver.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "actors/ports/link/sockets.hpp"
#include "memory/large_pages.hpp"
#include "tests/processes/processes.hpp"

namespace flow_test {

using namespace process_tests;
using troupe::communicator;

namespace {

void expect(bool right, const std::string& what) {
  if (!right) throw std::runtime_error(what);
}

/// Of /proc/self/status or /proc/meminfo, in bytes.
std::size_t bytes_of(const char* file, const std::string& field) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(field + ":")) return std::stoull(line.substr(field.size() + 1)) * 1024;
  throw std::runtime_error(std::string{file} + " has no " + field);
}

std::vector<std::uint8_t> pattern(std::size_t bytes, int number) {
  std::vector<std::uint8_t> made(bytes);
  for (std::size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::uint8_t>(i * 7 + static_cast<std::size_t>(number));
  return made;
}

}  // namespace

TEST_CASE("a receiver that is late keeps little of what is sent to it meanwhile") {
  constexpr std::size_t each = std::size_t{16} << 20;
  constexpr int many = 64;
  const auto ended = run_processes(2, [](const member& m) {
    troupe::engine engine;
    communicator comm = engine.join(m.how());
    std::vector<std::uint8_t> data = pattern(each, 3);
    const std::vector<std::uint8_t> right = data;
    comm.barrier();
    const std::size_t before = bytes_of("/proc/self/status", "VmHWM");
    if (comm.rank() == 0) {
      std::vector<troupe::request> sends;
      for (int i = 0; i < many; ++i) sends.push_back(comm.send_async(data, 1));
      comm.barrier();
      for (auto& s : sends) s.wait();
    } else {
      comm.barrier();
      std::this_thread::sleep_for(std::chrono::milliseconds{300});
      for (int i = 0; i < many; ++i) {
        std::fill(data.begin(), data.end(), std::uint8_t{0});
        comm.recv(data, 0);
        expect(data == right, "wrong bytes");
      }
    }
    // One message's worth, for a receiver that looks in the middle of one, and what allocators keep.
    const std::size_t grown = bytes_of("/proc/self/status", "VmHWM") - before;
    m.say(std::to_string(grown >> 20) + " MiB");
    expect(grown < 3 * each, "grown by " + std::to_string(grown >> 20) + " MiB");
    comm.barrier();
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE("one message of more than four thousand million bytes") {
  constexpr std::size_t bytes = (std::size_t{4} << 30) + 5;
  if (bytes_of("/proc/meminfo", "MemAvailable") < 3 * bytes) {
    MESSAGE("skipped: not enough memory");
    return;
  }
  const auto ended = run_processes(
      2,
      [](const member& m) {
        troupe::engine engine;
        communicator comm = engine.join(m.how());
        troupe::large_vector<std::uint8_t> data(bytes);  // a million small pages take seconds to come, on each side
        const std::array<std::size_t, 5> places{0, 1, (std::size_t{1} << 32) - 1, std::size_t{1} << 32, bytes - 1};
        if (comm.rank() == 0) {
          for (const std::size_t at : places) data[at] = static_cast<std::uint8_t>(at % 251 + 1);
          comm.send(data, 1);
        } else {
          comm.recv(data, 0);
          for (const std::size_t at : places)
            expect(std::exchange(data[at], 0) == at % 251 + 1, "wrong byte at " + std::to_string(at));
          // The first byte is zero, and each is what the one before it is.
          expect(data[0] == 0 && std::memcmp(data.data(), data.data() + 1, bytes - 1) == 0, "bytes that were not sent");
        }
        comm.barrier();
      },
      {}, std::chrono::seconds{300});
  CHECK(trouble(ended) == "");
}

TEST_CASE("a long send that is given up leaves its buffer alone, and the next one comes") {
  const auto ended = run_processes(2, [](const member& m) {
    troupe::engine_options options;
    options.log_level = "off";
    troupe::engine engine(options);
    communicator comm = engine.join(m.how());
    for (int round = 0; round < 10; ++round) {
      std::vector<std::uint8_t> data = pattern(4'000'000, round), in(data.size());
      if (comm.rank() == 0) {
        troupe::request r = comm.send_async(data, 1, {.deadline = std::chrono::milliseconds{5 * round}});
        try {
          r.wait();
        } catch (const troupe::error& e) {
          expect(e.code_value() == troupe::errc::timed_out, e.what());
        }
        std::fill(data.begin(), data.end(), std::uint8_t{0});
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds{20});
        try {
          comm.recv(in, 0);
          expect(in == data, "wrong bytes of one that was received all the same");
        } catch (const troupe::error& e) {
          expect(e.code_value() == troupe::errc::timed_out, e.what());
        }
      }
      comm.barrier();
      data = pattern(4'000'000, round + 100);
      if (comm.rank() == 0) comm.send(data, 1);
      else comm.recv(in, 0), expect(in == data, "wrong bytes of the next one");
    }
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE("a receive that is given up while it is filled is not written to any more") {
  const auto ended = run_processes(2, [](const member& m) {
    troupe::engine_options options;
    options.log_level = "off";
    troupe::engine engine(options);
    communicator comm = engine.join(m.how());
    for (int round = 0; round < 20; ++round) {
      std::vector<std::uint8_t> data = pattern(32'000'000, round);
      comm.barrier();
      const auto deadline = std::chrono::microseconds{200 + 400 * round};
      try {
        if (comm.rank() == 0) comm.send(data, 1);
        else comm.recv_async(data, 0, {.deadline = deadline}).wait();
      } catch (const troupe::error& e) {
        expect(e.code_value() == troupe::errc::timed_out, e.what());
        std::fill(data.begin(), data.end(), std::uint8_t{1});
      }
      const std::vector<std::uint8_t> then = data;
      comm.barrier();
      std::this_thread::sleep_for(std::chrono::milliseconds{2});
      expect(data == then, "a buffer was written after its owner had it back");
    }
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE("signals in the middle of everything disturb nothing") {
  const auto ended = run_processes(2, [](const member& m) {
    struct sigaction act {};
    act.sa_handler = [](int) {};  // and no SA_RESTART: whatever waits is interrupted
    ::sigaction(SIGALRM, &act, nullptr);
    const itimerval often{{0, 200}, {0, 200}};
    ::setitimer(ITIMER_REAL, &often, nullptr);
    troupe::engine engine;
    communicator comm = engine.join(m.how());
    std::vector<std::uint8_t> in(2'000'000);
    for (int i = 0; i < 50; ++i) {
      const int other = 1 - comm.rank();
      const auto out = pattern(in.size(), i + comm.rank());
      comm.send_recv(std::span<const std::uint8_t>(out), other, std::span<std::uint8_t>(in), other);
      expect(in == pattern(in.size(), i + other), "wrong bytes");
      std::array<int, 3> small{1, 2, i};
      comm.all_reduce(small, troupe::sum);
      expect(small == std::array<int, 3>{2, 4, 2 * i}, "a wrong sum");
    }
    ::setitimer(ITIMER_REAL, nullptr, nullptr);
  });
  CHECK(trouble(ended) == "");
}

// UndefinedBehaviorSanitizer looks at memory through a pipe, and calls every object an invalid one when it gets none.
#if !defined(__SANITIZE_ADDRESS__)
TEST_CASE("processes whose descriptors have run out talk through what they have, or say so") {
  const auto ended = run_processes(3, [](const member& m) {
    troupe::engine_options options;
    options.log_level = "off";
    troupe::engine engine(options);
    troupe::join_options how = m.how();
    how.silence = std::chrono::milliseconds{1500};
    communicator comm = engine.join(how);
    if (m.process == 2) {
      rlimit none{};
      ::getrlimit(RLIMIT_NOFILE, &none);
      none.rlim_cur = 3;  // those that are open stay
      ::setrlimit(RLIMIT_NOFILE, &none);
    }
    try {
      // Everybody with everybody, so that connections have to be opened.
      std::vector<int> in(3), out{1, 2, 3};
      for (int i = 0; i < 3; ++i) comm.all_to_all(out, in);
      m.say("went on");
    } catch (const troupe::error& e) {
      m.say(e.what());
      const std::string text = e.what();
      const bool clear =
          text.find("oo many open files") != std::string::npos || text.find("no descriptors") != std::string::npos ||
          text.find("it cannot be reached") != std::string::npos || text.find("heard") != std::string::npos ||
          text.find("never called") != std::string::npos || text.find("it closed") != std::string::npos;
      expect(e.code_value() == troupe::errc::peer_lost && clear, text);
    }
  });
  CHECK(trouble(ended) == "");
  for (const auto& e : ended) CHECK(e.said.size() == 1);
}
#endif

TEST_CASE("a rendezvous at a port where somebody else listens is told by its address") {
  // A process that says nothing at all, and one whose words are no answer.
  for (const bool speaks : {false, true}) {
    CAPTURE(speaks);
    troupe::actors::descriptor there =
        troupe::actors::listen_at(troupe::actors::socket_address::resolve("tcp://127.0.0.1:0").front());
    const std::string address = troupe::actors::socket_address::own(there.get()).to_string();
    const auto ended = run_processes(
        1,
        [&](const member&) {
          troupe::engine_options options;
          options.log_level = "off";
          troupe::engine engine(options);
          troupe::join_options how;
          how.rendezvous = address;
          how.process = 0;
          how.processes = 2;
          how.deadline = std::chrono::milliseconds{1500};
          try {
            static_cast<void>(engine.join(how));
            expect(false, "it has joined");
          } catch (const troupe::error& e) {
            expect(std::string{e.what()}.find(address) != std::string::npos, e.what());
          }
        },
        [&](job_control&) {
          std::string why;
          std::vector<troupe::actors::descriptor> callers;
          const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{2};
          while (std::chrono::steady_clock::now() < until) {
            if (auto s = troupe::actors::accept_from(there.get(), why)) {
              if (speaks) static_cast<void>(::send(s.get(), "HTTP/1.1 400 Bad Request", 24, MSG_NOSIGNAL));
              callers.push_back(std::move(s));
            }
            std::this_thread::sleep_for(std::chrono::milliseconds{5});
          }
        });
    CHECK(trouble(ended) == "");
  }
}

}  // namespace flow_test
