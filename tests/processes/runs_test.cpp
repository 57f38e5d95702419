// SPDX-License-Identifier: Apache-2.0
// What ranks of one process can do, ranks of several can, with the same results.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <new>
#include <numeric>
#include <stdexcept>
#include <thread>

#include <sys/mman.h>
#include <unistd.h>

#include "engine/planning/tuning.hpp"
#include "tests/processes/processes.hpp"
#include "tests/property/random_jobs.hpp"
#include "tests/seed.hpp"

using namespace engine_tests;
using namespace process_tests;
using troupe::communicator;

namespace {

void expect(bool right, const char* what) {
  if (!right) throw std::runtime_error(what);
}

/// The same jobs in every process.
std::vector<job> jobs_of(std::uint64_t seed, int ranks, int many) {
  random_engine random(mix(seed));
  std::vector<job> jobs;
  for (int k = 0; k < many; ++k) {
    jobs.push_back(any_job(random, ranks));
    jobs.back().options.choreography.clear();
  }
  return jobs;
}

void run_jobs(communicator& comm, const std::vector<job>& jobs) {
  std::vector<rank_memory> memory;
  for (const job& j : jobs) memory.emplace_back(j, comm.rank());
  const std::size_t half = jobs.size() / 2;
  for (std::size_t k = 0; k < half; ++k) comm.run(memory[k].call());
  std::vector<troupe::request> requests;
  for (std::size_t k = half; k < jobs.size(); ++k) requests.push_back(comm.start(memory[k].call()));
  for (auto& r : requests) r.wait();
  for (std::size_t k = 0; k < jobs.size(); ++k)
    if (memory[k].wrong() != 0) throw std::runtime_error("wrong bytes: " + to_string(jobs[k]));
}

}  // namespace

TEST_CASE("random collectives between processes are right to the last byte") {
  struct shape {
    int processes, ranks_each;
  };
  for (const shape s : {shape{1, 1}, {2, 1}, {3, 1}, {5, 1}, {2, 2}, {3, 3}, {1, 4}, {8, 1}}) {
    CAPTURE(s.processes);
    CAPTURE(s.ranks_each);
    const std::uint64_t drawn = seed() + static_cast<std::uint64_t>(100 * s.processes + s.ranks_each);
    const auto ended = run_processes(s.processes, [&](const member& m) {
      troupe::engine_options options;
      options.credits = s.processes % 2 == 0 ? 8 : 1;
      troupe::engine engine(options);
      engine.join(
          s.ranks_each,
          [&](communicator& comm) {
            expect(comm.size() == s.processes * s.ranks_each, "the world has another size");
            expect(comm.rank() / s.ranks_each == m.process, "ranks are not numbered process by process");
            run_jobs(comm, jobs_of(drawn, comm.size(), 60));
          },
          m.how());
    });
    CHECK(trouble(ended) == "");
  }
}

TEST_CASE("a rank whose own block stays as it is while the others' change takes its own") {
  const auto ended = run_processes(3, [](const member& m) {
    troupe::engine engine;
    communicator comm = engine.join(m.how());
    random_engine random(mix(seed()));
    for (const bool scatters : {true, false, true})
      for (int round = 0; round < 400; ++round) {
        const troupe::rank_t root = random() % 2 == 0 ? 0 : 2;
        const std::size_t own = root == 0 ? 7 : 3;
        // Little is brought as a copy; more is worked on where it lies.
        const std::vector<std::size_t> counts{random() % 3 == 0 ? random() % 5000 : 0, own, random() % 5};
        const troupe::block_list known = comm.rank() == root ? troupe::block_list{counts} : troupe::block_list{};
        std::vector<int> all, mine(counts[static_cast<std::size_t>(comm.rank())], scatters ? -1 : comm.rank() + round);
        if (comm.rank() == root) all.resize(counts[0] + counts[1] + counts[2], scatters ? round : -1);
        if (scatters) {
          comm.scatter_v(all, known, mine, root);
          expect(std::ranges::all_of(mine, [&](int n) { return n == round; }), "a scatter's bytes");
          continue;
        }
        comm.gather_v(mine, all, known, root);
        for (std::size_t i = 0; i < all.size(); ++i)
          expect(all[i] == round + (i < counts[0] ? 0 : i < counts[0] + own ? 1 : 2), "a gather's bytes");
      }
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE("sends, receives and their tags between processes") {
  const auto ended = run_processes(3, [](const member& m) {
    troupe::engine engine;
    communicator comm = engine.join(m.how());
    const int n = comm.size(), me = comm.rank(), next = (me + 1) % n, before = (me + n - 1) % n;
    for (const std::size_t count : {0u, 1u, 1000u, 3'000'000u}) {
      std::vector<int> out(count), in(count, -1);
      std::iota(out.begin(), out.end(), me * 7);
      comm.send_recv(std::span<const int>(out), next, std::span<int>(in), before);
      for (std::size_t i = 0; i < count; ++i) expect(in[i] == before * 7 + static_cast<int>(i), "a ring's bytes");
    }
    // Many at once, in both directions, matched by tag.
    std::vector<int> in(200, -1), out(200);
    std::iota(out.begin(), out.end(), 1000 * me);
    troupe::group together;
    for (int t = 0; t < 200; ++t) {
      const auto at = static_cast<std::size_t>(t);
      comm.send_async(together, std::span<const int>(&out[at], 1), next, {.tag = t % 5});
      comm.recv_async(together, std::span<int>(&in[at], 1), before, {.tag = t % 5});
    }
    together.wait();
    for (int t = 0; t < 200; ++t) expect(in[static_cast<std::size_t>(t)] == 1000 * before + t, "tagged messages");
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE("sends of every length, to one that waits and to one that comes late, several under way") {
  // What fits a slot's line, what is copied to a staging buffer, and what the system copies: lengths on both sides of each limit.
  constexpr std::size_t lengths[] = {47,   48,     49,     64,     512,     2047,      2048,     2049,
                                     8192, 65'535, 65'536, 65'537, 200'000, 2'097'152, 2'097'153};
  const auto ended = run_processes(2, [&](const member& m) {
    troupe::engine engine;
    communicator comm = engine.join(m.how());
    const int me = comm.rank(), other = 1 - me;
    const auto value = [](std::size_t length, int message, int from, std::size_t at) {
      return static_cast<unsigned char>(length * 31 + static_cast<std::size_t>(message * 7 + from * 3) + at);
    };
    constexpr int many = 11;  // more than a lane has slots
    for (const std::size_t length : lengths)
      for (const bool shared : {false, true}) {
        std::vector<std::vector<unsigned char>> out(many, std::vector<unsigned char>(length)), in = out;
        troupe::vector<unsigned char> lent(engine);
        for (int k = 0; k < many; ++k)
          for (std::size_t i = 0; i < length; ++i) out[static_cast<std::size_t>(k)][i] = value(length, k, me, i);
        if (shared) lent.assign(out[0].begin(), out[0].end());
        comm.barrier();
        std::this_thread::sleep_for(std::chrono::milliseconds{me == 0 ? 0 : 2});
        std::vector<troupe::request> requests;
        for (std::size_t k = 0; k < many; ++k) {
          const bool lends = shared && k == 0;
          requests.push_back(
              comm.send_async(std::span<const unsigned char>(lends ? lent.data() : out[k].data(), length), other));
          requests.push_back(comm.recv_async(std::span<unsigned char>(in[k]), other));
        }
        for (auto& r : requests) r.wait();
        for (int round = 0; round < 5; ++round) {  // and by callers that look at it themselves
          const auto k = static_cast<std::size_t>(round);
          std::ranges::fill(in[k], static_cast<unsigned char>(0));
          comm.send_recv(std::span<const unsigned char>(out[k]), other, std::span<unsigned char>(in[k]), other);
        }
        for (int k = 0; k < many; ++k)
          for (std::size_t i = 0; i < length; ++i)
            expect(in[static_cast<std::size_t>(k)][i] == value(length, k, other, i), "a message's bytes");
      }
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE("splits between processes: parts over several, and in one") {
  const auto ended = run_processes(3, [](const member& m) {
    troupe::engine engine;
    engine.join(
        2,
        [](communicator& comm) {
          for (int round = 0; round < 20; ++round) {
            communicator odd = comm.split(comm.rank() % 2, -comm.rank());
            expect(odd.size() == 3 && odd.rank() == 2 - comm.rank() / 2, "a part over processes");
            communicator here = comm.split(comm.rank() / 2, comm.rank());
            expect(here.size() == 2 && here.rank() == comm.rank() % 2, "a part in one process");
            communicator none = comm.split(comm.rank() == 3 ? -1 : 0, 0);
            expect(static_cast<bool>(none) == (comm.rank() != 3), "a rank that wants no part");
            communicator again = odd.duplicate();
            for (communicator* part : {&odd, &here, &again}) {
              std::array<int, 2> sum{1, comm.rank()};
              part->all_reduce(sum, troupe::sum);
              expect(sum[0] == part->size(), "a part's sum");
            }
            if (none) none.barrier();
          }
        },
        m.how());
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE("persistent operations, groups and one thread that drives several ranks of a process") {
  const auto ended = run_processes(2, [](const member& m) {
    troupe::engine engine;
    auto comms = engine.join_communicators(2, m.how());
    std::array<std::vector<float>, 2> data{std::vector<float>(500), std::vector<float>(500)};
    for (int round = 0; round < 50; ++round) {
      troupe::group together;
      for (std::size_t r = 0; r < 2; ++r) {
        std::fill(data[r].begin(), data[r].end(), static_cast<float>(comms[r].rank() + round));
        comms[r].all_reduce_async(together, data[r], troupe::sum);
      }
      together.wait();
      for (const auto& d : data) expect(d[499] == static_cast<float>(6 + 4 * round), "a group's sum");
    }
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE("nobody leaves a persistent barrier of several processes before everybody has come; misuse is told to all") {
  void* const shared =
      ::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(shared != MAP_FAILED);
  auto* const came = new (shared) std::atomic<int>{0};
  const auto ended = run_processes(3, [&](const member& m) {
    troupe::engine engine;
    communicator comm = engine.join(m.how());
    troupe::persistent meet = comm.barrier_init(), in_time = comm.barrier_init({.deadline = std::chrono::minutes{1}});
    for (int round = 0; round < 60; ++round) {
      came->fetch_add(1);
      if (round % 4 == comm.rank()) comm.barrier();
      else if (round % 3 == 0) meet.start().wait();
      else (round % 2 == 0 ? meet : in_time).run();
      expect(came->load() >= 3 * (round + 1), "it left too early");
      comm.barrier();
    }
    int word = 0;
    if (comm.rank() == 0) {
      troupe::request first = meet.start();  // of which the others hear before they come
      expect(code_of([&] { meet.run(); }) == errc::invalid_argument, "it is under way");
      for (int r = 1; r < 3; ++r) comm.send(word, r);
      first.wait();
    } else {
      comm.recv(word, 0);
      meet.run();
      expect(code_of([&] { comm.barrier(); }) == errc::peer_refused, "the call that rank 0 was refused");
    }
    const errc differ = code_of([&] {
      if (comm.rank() == 1) comm.all_reduce(word, troupe::sum);
      else meet.run();
    });
    expect(differ == errc::mismatch, "others call something else");
    meet.run();
  });
  CHECK(trouble(ended) == "");
  ::munmap(shared, sizeof(std::atomic<int>));
}

TEST_CASE("processes whose machines have other costs agree on one set, and plan alike") {
  const auto ended = run_processes(3, [](const member& m) {
    // Each believes in another protocol and in other frames.
    troupe::tuning t = troupe::assumed_tuning();
    t.machine.cores = 1 + m.process;
    if (m.process == 0) t.direct_operation_ns = t.peer_call_ns = 1e8;
    if (m.process == 1) t.slot_step_ns = t.ll_line_ns = t.actor_step_ns = 1e5;
    if (m.process == 2) t.ring_message_ns = 1e6, t.actor_rank_ns = 1;
    const std::string file = "/tmp/troupe_costs_" + std::to_string(::getpid()) + ".toml";
    std::ofstream{file} << to_toml(t);
    troupe::engine_options options;
    options.tuning = file;
    const auto alike = jobs_of(seed() + 77, 3, 24);
    {
      troupe::engine engine(options);
      communicator comm = engine.join(m.how());
      // A plan of one rank that is not the others' would be a mismatch.
      run_jobs(comm, alike);
      std::vector<double> data(1);
      for (std::size_t count = 1; count <= (1 << 16); count *= 4) {
        data.assign(count, 1.0);
        comm.all_reduce(data, troupe::sum);
        expect(data.back() == 3.0, "a sum");
      }
      communicator parts = comm.split(0, comm.size() - comm.rank());
      parts.all_reduce(data, troupe::maximum);
    }
    ::unlink(file.c_str());
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE("operations of one's own are compared by their names between processes, too") {
  const auto ended = run_processes(2, [](const member& m) {
    troupe::engine engine;
    communicator comm = engine.join(m.how());
    const auto larger = [](int a, int b) { return a > b ? a : b; };
    std::vector<int> data(5, comm.rank());
    const auto text_of = [&](const char* mine) {
      try {
        comm.all_reduce(data, troupe::commutative(troupe::named(mine, larger)));
        return std::string{"no error"};
      } catch (const troupe::error& e) {
        expect(e.code_value() == errc::mismatch, "other names are a mismatch");
        return std::string{e.what()};
      }
    };
    const std::string text = text_of(comm.rank() == 0 ? "larger" : "smaller");
    expect(text.find("user \"larger\"") != text.npos && text.find("user \"smaller\"") != text.npos, text.c_str());
    comm.barrier();
    expect(text_of("larger") == "no error", "the same name is the same operation");
    expect(data == std::vector<int>(5, 1), "the larger rank");
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE("different calls, refusals and deadlines are told to every process") {
  const auto ended = run_processes(3, [](const member& m) {
    troupe::engine engine;
    communicator comm = engine.join(m.how());
    std::vector<int> data(10);
    const auto code_of = [&](auto&& call) {
      try {
        call();
      } catch (const troupe::error& e) {
        m.say(std::string{e.what()});
        return e.code_value();
      }
      return errc::ok;
    };
    const errc differ = code_of([&] {
      if (comm.rank() == 1) comm.all_reduce(data, troupe::maximum);
      else comm.all_reduce(data, troupe::sum);
    });
    expect(differ == errc::mismatch, "different operations are a mismatch");
    comm.barrier();
    const errc refused = code_of([&] {
      if (comm.rank() == 2) comm.broadcast(data, 7);
      else comm.broadcast(data, 0, {.agreement = troupe::agreement_time::strict});
    });
    expect(refused == (comm.rank() == 2 ? errc::bad_root : errc::peer_refused), "a refusal is told");
    comm.barrier();
    const errc late = code_of([&] {
      if (comm.rank() != 0) comm.all_reduce(data, troupe::sum, {.deadline = std::chrono::milliseconds{50}});
      else std::this_thread::sleep_for(std::chrono::milliseconds{200}), comm.all_reduce(data, troupe::sum);
    });
    expect(late == errc::timed_out, "a deadline passes for all");
    comm.barrier();
  });
  CHECK(trouble(ended) == "");
  const std::string table = ended[0].said.empty() ? std::string{} : ended[0].said[0];
  CHECK(table.find("world") != table.npos);
}

namespace {
/// Each process a host of its own, as far as the job knows.
troupe::join_options apart(const member& m) {
  troupe::join_options how = m.how();
  how.host = "host" + std::to_string(m.process);
  how.key = std::string(64, '7');
  return how;
}

}  // namespace

TEST_CASE("between hosts, who disagrees about a block's size hears of it, and the others go on") {
  const auto ended = run_processes(2, [](const member& m) {
    troupe::engine engine;
    communicator comm = engine.join(apart(m));
    std::vector<int> in(100), out(100);
    const bool first = comm.rank() == 0;
    // Before the connection is open a sender waits for its credit, and then both may hear of it.
    comm.barrier();
    const auto exchange = [&](std::size_t expected) {
      return code_of([&] {
        comm.all_to_all_v(in, troupe::block_list{{3, 3}}, out, troupe::block_list{{3, first ? expected : 3}});
      });
    };
    for (const std::size_t expected : {4u, 0u})
      expect(exchange(expected) == (first ? errc::mismatch : errc::ok), "told");
    expect(exchange(3) == errc::ok, "the next one");
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE(
    "between hosts, two that wait for each other and a third that ran ahead hear that they called different things") {
  const auto ended = run_processes(3, [](const member& m) {
    troupe::engine engine;
    communicator comm = engine.join(apart(m));
    std::vector<int> one(3), all(9);
    const errc what = code_of([&] {
      // Rank 0 waits for the others' blocks, rank 1 for one of rank 0; rank 2 has sent its own.
      if (comm.rank() == 1) comm.scatter(all, one, 0);
      else comm.gather(one, all, 0);
      comm.broadcast(one, 0);
      comm.barrier();
    });
    expect(what == errc::mismatch, "a mismatch");
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE("between hosts, a wait that has a limit ends at it, although nothing came") {
  const auto ended = run_processes(2, [](const member& m) {
    troupe::engine engine;
    communicator comm = engine.join(apart(m));
    int data = 0;
    if (comm.rank() == 0) {
      auto late = comm.recv_async(std::span{&data, 1}, 1);
      for (const int ms : {1, 2, 4, 5, 6, 12})  // else these would last until the message, which waits for them
        expect(!late.wait_for(std::chrono::milliseconds{ms}), "nothing came");
      comm.send(std::span<const int>{&data, 1}, 1);
      late.wait();
      expect(data == 7, "the message");
    } else {
      comm.recv(std::span{&data, 1}, 0);
      data = 7;
      comm.send(std::span<const int>{&data, 1}, 0);
    }
  });
  CHECK(trouble(ended) == "");
}
