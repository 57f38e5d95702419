// SPDX-License-Identifier: Apache-2.0
// Partitioned operations between processes.

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory_resource>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "bench/harness/counted_heap.hpp"
#include "tests/processes/hosts.hpp"
#include "tests/processes/processes.hpp"
#include "tests/seed.hpp"

namespace partitioned_test {

using namespace process_tests;
using namespace troupe;

namespace {

void expect(bool right, const std::string& what) {
  if (!right) throw std::runtime_error(what);
}

constexpr std::chrono::seconds patience{20};

/// Each process a host of its own, as far as the job knows: parts go by mailbox.
join_options on_hosts_of_their_own(const member& m) {
  join_options how = m.how();
  how.host = "host" + std::to_string(m.process);
  how.key = std::string(64, '7');
  return how;
}

using elements = std::pmr::vector<std::int32_t>;

/// A partitioned call of any collective, and what it gives.
struct any_partitioned {
  static constexpr std::size_t count = 6007;
  any_partitioned(communicator& of, collective which, std::pmr::memory_resource* in_what, const partitions& how,
                  rank_t root)
      : comm(of),
        what(which),
        k(how.count),
        sizes(how.sizes),
        root_(root),
        in(in_what),
        out(in_what),
        ranks(static_cast<std::size_t>(of.size())) {
    const bool many_in =
        what == collective::reduce_scatter || what == collective::all_to_all || what == collective::scatter;
    const bool many_out =
        what == collective::all_gather || what == collective::all_to_all || what == collective::gather;
    in.resize(count * (many_in ? ranks : 1));
    out.resize(count * (many_out ? ranks : 1));
    const call_options o{.deadline = patience};
    switch (what) {
      case collective::all_gather: op = comm.all_gather_init(in, out, how, o); break;
      case collective::all_to_all: op = comm.all_to_all_init(in, out, how, o); break;
      case collective::reduce_scatter: op = comm.reduce_scatter_init(in, out, sum, how, o); break;
      case collective::all_reduce: op = comm.all_reduce_init(in, out, sum, how, o); break;
      case collective::reduce: op = comm.reduce_init(in, out, sum, root, how, o); break;
      case collective::gather: op = comm.gather_init(in, out, root, how, o); break;
      case collective::scatter: op = comm.scatter_init(in, out, root, how, o); break;
      default: op = comm.broadcast_init(comm.rank() == root ? in : out, root, how, o); break;
    }
  }

  std::pair<std::size_t, std::size_t> range(int part) const {
    const auto p = static_cast<std::size_t>(part), all = static_cast<std::size_t>(k);
    if (sizes.empty()) return {p * count / all, (p + 1) * count / all};
    const std::size_t begin = std::accumulate(sizes.begin(), sizes.begin() + part, std::size_t{0});
    return {begin, begin + sizes[p]};
  }
  static std::int32_t value(std::size_t rank, std::size_t block, std::size_t i, int round) {
    return static_cast<std::int32_t>(rank * 1'000'000 + block * 10'000 + i) + round * 7;
  }
  void ready(int part, int round) {
    const auto [begin, end] = range(part);
    const auto me = static_cast<std::size_t>(comm.rank());
    for (std::size_t b = 0; b < in.size() / count; ++b)
      for (std::size_t i = begin; i < end; ++i) in[b * count + i] = value(me, b, i, round);
    op.ready(part);
  }
  std::int32_t wanted(std::size_t block, std::size_t i, int round) const {
    const auto me = static_cast<std::size_t>(comm.rank()), r = static_cast<std::size_t>(root_);
    const auto added = [&](std::size_t b) {
      std::int32_t all = 0;
      for (std::size_t from = 0; from < ranks; ++from) all += value(from, b, i, round);
      return all;
    };
    switch (what) {
      case collective::all_gather:
      case collective::gather: return value(block, 0, i, round);
      case collective::all_to_all: return value(block, me, i, round);
      case collective::reduce_scatter: return added(me);
      case collective::all_reduce:
      case collective::reduce: return added(0);
      case collective::scatter: return value(r, me, i, round);
      default: return value(r, 0, i, round);
    }
  }
  void check_arrived(int output, int round) const {
    const elements& got = what == collective::broadcast && comm.rank() == root_ ? in : out;
    const auto block = static_cast<std::size_t>(output / k);
    const auto [begin, end] = range(output % k);
    for (std::size_t i = begin; i < end; ++i)
      expect(got[block * count + i] == wanted(block, i, round), "a part is not what it should be");
  }
  /// What comes of everybody's part 0 at this rank.
  std::vector<int> first_outputs() const {
    std::vector<int> all;
    for (int at = 0; at < op.output_parts(); at += k) all.push_back(at);
    return all;
  }

  communicator& comm;
  collective what;
  int k;
  std::vector<std::size_t> sizes;
  rank_t root_;
  elements in, out;
  std::size_t ranks;
  partitioned op;
};

constexpr collective all_partitioned[] = {collective::all_gather, collective::all_to_all, collective::reduce_scatter,
                                          collective::all_reduce, collective::reduce,     collective::gather,
                                          collective::scatter,    collective::broadcast};

/// Parts of every collective in any order, half of them from another thread; `rounds` repetitions.
void run_all_collectives(communicator& comm, std::pmr::memory_resource* in_what, const partitions& how, int rounds,
                         unsigned drawn) {
  for (const collective what : all_partitioned) {
    any_partitioned one(comm, what, in_what, how, comm.size() - 1);
    std::mt19937 random(drawn + static_cast<unsigned>(comm.rank()));
    std::vector<int> order(static_cast<std::size_t>(one.op.input_parts()));
    std::iota(order.begin(), order.end(), 0);
    for (int round = 0; round < rounds; ++round) {
      std::shuffle(order.begin(), order.end(), random);
      const auto half = order.begin() + static_cast<std::ptrdiff_t>(order.size() / 2);
      one.op.start();
      std::thread other([&] { std::for_each(order.begin(), half, [&](int p) { one.ready(p, round); }); });
      std::for_each(half, order.end(), [&](int p) { one.ready(p, round); });
      other.join();
      int given = 0;
      for (; const auto part = one.op.next_arrived(); ++given) one.check_arrived(*part, round);
      expect(given == one.op.output_parts(), "not every part arrived");
      one.op.wait();
    }
  }
}

/// Everybody makes part 0 ready and nothing else before all have what comes of it, which they tell each other meanwhile.
void part_0_comes_alone(communicator& comm, std::pmr::memory_resource* in_what) {
  communicator beside = comm.split(0, comm.rank());
  for (const collective what : all_partitioned) {
    any_partitioned one(comm, what, in_what, partitions(3), 0);
    for (int round = 0; round < 3; ++round) {
      one.op.start();
      one.ready(0, round);
      std::vector<int> lacking = one.first_outputs();
      while (!lacking.empty()) {
        const auto part = one.op.next_arrived();
        expect(part.has_value(), "the operation ended before part 1 was ready");
        one.check_arrived(*part, round);
        expect(std::erase(lacking, *part) == 1, "something arrived of what nobody has made ready");
      }
      beside.barrier();
      for (const int p : {2, 1}) one.ready(p, round);
      one.op.wait();
      for (int p = 0; p < one.op.output_parts(); ++p) one.check_arrived(p, round);
    }
  }
}

}  // namespace

TEST_CASE("part 0 is at the other processes before part 1 is ready, by every collective, in shared and other memory") {
  for (const bool shared : {true, false}) {
    CAPTURE(shared);
    const auto ended = run_processes(3, [&](const member& m) {
      engine e;
      communicator comm = e.join(m.how());
      part_0_comes_alone(comm, shared ? e.memory().get() : std::pmr::new_delete_resource());
    });
    CHECK(trouble(ended) == "");
  }
}

TEST_CASE("between hosts, too, part 0 is there before part 1 is ready") {
  const auto one_machine = run_processes(2, [&](const member& m) {
    engine e;
    communicator comm = e.join(on_hosts_of_their_own(m));
    part_0_comes_alone(comm, std::pmr::new_delete_resource());
  });
  CHECK(trouble(one_machine) == "");
  const hosts_of_test hosts{2};
  if (!hosts.ready()) return;
  const auto ended = run_processes(4, [&](const member& m) {
    hosts.enter(m.process / 2);
    engine e;
    join_options how = m.how();
    how.rendezvous = "tcp://10.213.7.1:5600";
    how.key = std::string(64, '7');
    communicator comm = e.join(how);
    part_0_comes_alone(comm, std::pmr::new_delete_resource());
    run_all_collectives(comm, std::pmr::new_delete_resource(), partitions(5), 2, 11);
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE("parts of different sizes get ready on two threads in any order, by every collective between processes") {
  const auto drawn = static_cast<unsigned>(seed());
  for (const int ranks_each : {1, 2}) {
    CAPTURE(ranks_each);
    const auto ended = run_processes(2, [&](const member& m) {
      engine e;
      e.join(
          ranks_each,
          [&](communicator& comm) {
            for (std::pmr::memory_resource* const in_what : {e.memory().get(), std::pmr::new_delete_resource()}) {
              run_all_collectives(comm, in_what, partitions({1, 4000, 0, 2000, 6}), 4, drawn);
              run_all_collectives(comm, in_what, partitions(16), 3, drawn + 1);
            }
          },
          m.how());
    });
    CHECK(trouble(ended) == "");
  }
}

TEST_CASE("what has more messages than areas have room for goes by mailbox, in all processes") {
  const auto ended = run_processes(3, [](const member& m) {
    engine e;
    communicator comm = e.join(m.how());
    run_all_collectives(comm, std::pmr::new_delete_resource(), partitions(500), 2, 3);
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE("many partitioned operations are under way between processes at once, and end in any order") {
  const auto ended = run_processes(2, [](const member& m) {
    engine e;
    communicator comm = e.join(m.how());
    std::vector<std::unique_ptr<any_partitioned>> all;
    for (int i = 0; i < 40; ++i)  // more than there are areas: some wait for their turn
      all.push_back(std::make_unique<any_partitioned>(comm, all_partitioned[i % 4], std::pmr::new_delete_resource(),
                                                      partitions(1 + i % 3), 0));
    for (int round = 0; round < 5; ++round) {
      for (const auto& one : all) one->op.start();
      for (std::size_t i = all.size(); i-- > 0;)
        for (int p = 0; p < all[i]->k; ++p) all[i]->ready(p, round);
      for (const auto& one : all) {
        one->op.wait();
        for (int p = 0; p < one->op.output_parts(); ++p) one->check_arrived(p, round);
      }
    }
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE("a partitioned operation that is started again between processes allocates nothing") {
  const auto ended = run_processes(2, [](const member& m) {
    engine e;
    communicator comm = e.join(m.how());
    any_partitioned gather(comm, collective::all_gather, std::pmr::new_delete_resource(), partitions(6), 0);
    any_partitioned add(comm, collective::all_reduce, std::pmr::new_delete_resource(), partitions(6), 0);
    std::size_t least = ~std::size_t{0};  // some other thread's may fall into one repetition, not into all
    for (int round = 0; round < 60; ++round) {
      comm.barrier();
      const std::size_t before = bench::allocations();
      for (any_partitioned* const one : {&gather, &add}) {
        one->op.start();
        for (int p = 0; p < 6; ++p) one->ready(p, round);
        while (one->op.next_arrived()) {}
        one->op.wait();
      }
      comm.barrier();
      if (round > 0) least = std::min(least, bench::allocations() - before);
    }
    expect(least == 0, "each repetition allocates " + std::to_string(least) + " times");
  });
  CHECK(trouble(ended) == "");
}

namespace {
/// Of seven parts, which come right until then.
std::error_code repeated_until_it_fails(any_partitioned& one) {
  for (int again = 0;; ++again) {
    try {
      one.op.start();
      for (int p = 0; p < 7; ++p) one.ready(p, again);
      while (const auto part = one.op.next_arrived()) one.check_arrived(*part, again);
      one.op.wait();
    } catch (const error& x) {
      return x.code();
    }
  }
}
}  // namespace

TEST_CASE("a process that is killed while parts come and go releases the others, whatever it was doing") {
  std::mt19937 random(static_cast<unsigned>(seed()));
  for (int round = 0; round < 6; ++round) {
    const auto victim = static_cast<int>(random() % 3);
    const auto after = std::chrono::microseconds{random() % 20'000};
    CAPTURE(victim);
    CAPTURE(after.count());
    const auto ended = run_processes(
        3,
        [&](const member& m) {
          engine_options quiet;
          quiet.log_level = "off";
          engine e(quiet);
          communicator comm = e.join(m.how());
          std::pmr::memory_resource* const in_what =
              round % 2 == 0 ? e.memory().get() : std::pmr::new_delete_resource();
          any_partitioned one(comm, all_partitioned[round % 4], in_what, partitions(7), 0);
          comm.barrier();
          m.say("works");
          const std::error_code why = repeated_until_it_fails(one);
          expect(why == make_error_code(errc::peer_lost), "the others must hear that it is lost");
          m.say("released");
        },
        [&](job_control& job) {
          job.wait_for_lines(3);
          std::this_thread::sleep_for(after);
          ::kill(job.pids[static_cast<std::size_t>(victim)], SIGKILL);
        });
    for (int p = 0; p < 3; ++p) {
      if (p == victim) continue;
      CAPTURE(ended[static_cast<std::size_t>(p)].log);
      CHECK(ended[static_cast<std::size_t>(p)].exit == 0);
      CHECK_FALSE(ended[static_cast<std::size_t>(p)].late);
    }
  }
}

TEST_CASE("a process that was stopped among parts, and lost, takes nothing for a part that is none") {
  std::mt19937 random(static_cast<unsigned>(seed()));
  for (int round = 0; round < 4; ++round) {
    const auto after = std::chrono::microseconds{random() % 5'000};
    CAPTURE(after.count());
    const auto ended = run_processes(
        3,
        [&](const member& m) {
          engine_options quiet;
          quiet.log_level = "off";
          engine e(quiet);
          join_options how = m.how();
          how.silence = std::chrono::milliseconds{500};
          communicator comm = e.join(how);
          std::pmr::memory_resource* const in_what =
              round % 2 == 0 ? e.memory().get() : std::pmr::new_delete_resource();
          any_partitioned one(comm, all_partitioned[round % 4], in_what, partitions(7), 0);
          comm.barrier();
          m.say("works");
          const std::error_code why = repeated_until_it_fails(one);
          std::fill(one.in.begin(), one.in.end(), -1);  // they are this rank's own again
          m.say(why == make_error_code(errc::peer_lost) ? "peer_lost" : why.message());
          if (m.process != 1) std::this_thread::sleep_for(std::chrono::milliseconds{200});
        },
        [&](job_control& job) {
          job.wait_for_lines(3);
          std::this_thread::sleep_for(after);
          ::kill(job.pids[1], SIGSTOP);
          job.wait_for_lines(5);
          ::kill(job.pids[1], SIGCONT);
        });
    CHECK(trouble(ended) == "");
    for (const auto& one : ended) {
      REQUIRE(one.said.size() == 2);
      CHECK(one.said[1] == "peer_lost");
    }
  }
}

TEST_CASE("between processes cancel ends the operation for all, and the next repetition is right") {
  const auto ended = run_processes(2, [](const member& m) {
    engine e;
    communicator comm = e.join(m.how());
    any_partitioned one(comm, collective::all_reduce, std::pmr::new_delete_resource(), partitions(4), 0);
    for (int round = 0; round < 10; ++round) {
      one.op.start();
      one.ready(1, round);
      expect(one.op.next_arrived() == 1, "part 1 must arrive");
      one.check_arrived(1, round);
      comm.barrier();
      if (comm.rank() == round % 2) one.op.cancel();
      expect(one.op.try_wait() == make_error_code(errc::cancelled), "it must end with the cancel");
      one.check_arrived(1, round);
      one.op.start();
      for (int p = 0; p < 4; ++p) one.ready(p, round + 100);
      one.op.wait();
      for (int p = 0; p < 4; ++p) one.check_arrived(p, round + 100);
    }
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE("who cuts differently in another process is told, by all the same mismatch") {
  const auto ended = run_processes(2, [](const member& m) {
    engine e;
    communicator comm = e.join(m.how());
    std::vector<int> in(60), out(120);
    partitioned gather = comm.all_gather_init(in, out, partitions(m.process == 0 ? 3 : 4), {.deadline = patience});
    gather.start();
    for (int p = 0; p < gather.input_parts(); ++p) gather.ready(p);
    expect(gather.try_wait() == make_error_code(errc::mismatch), "they must hear that they have cut differently");
    comm.barrier();
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE("parts travel between processes as they get ready, short and long ones") {
  for (const std::size_t count : {std::size_t{24}, std::size_t{200'000}}) {
    CAPTURE(count);
    const auto ended = run_processes(3, [&](const member& m) {
      engine e;
      communicator comm = e.join(m.how());
      constexpr int parts = 8;
      const auto me = static_cast<std::size_t>(comm.rank());
      std::vector<std::int32_t> in(count), out(count * 3), sums(count);
      partitioned gather = comm.all_gather_init(in, out, partitions(parts));
      partitioned add = comm.all_reduce_init(in, sums, sum, partitions(parts));
      for (int round = 0; round < 4; ++round) {
        const auto value = [&](std::size_t r, std::size_t i) {
          return static_cast<std::int32_t>(r * 1'000'000 + i + static_cast<std::size_t>(round));
        };
        gather.start();
        for (int k = 0; k < parts; ++k) {
          const int p = (k * 3 + comm.rank()) % parts;
          const std::size_t begin = static_cast<std::size_t>(p) * count / parts;
          const std::size_t end = (static_cast<std::size_t>(p) + 1) * count / parts;
          for (std::size_t i = begin; i < end; ++i) in[i] = value(me, i);
          gather.ready(p);
        }
        int given = 0;
        while (const auto part = gather.next_arrived()) {
          ++given;
          const auto r = static_cast<std::size_t>(*part / parts), p = static_cast<std::size_t>(*part % parts);
          for (std::size_t i = p * count / parts; i < (p + 1) * count / parts; ++i)
            expect(out[r * count + i] == value(r, i), "a gathered part is not what it should be");
        }
        expect(given == 3 * parts, "not every part arrived");
        gather.wait();
        add.start();
        for (int p = parts - 1; p >= 0; --p) add.ready(p);
        add.wait();
        for (std::size_t i = 0; i < count; ++i)
          expect(sums[i] == value(0, i) + value(1, i) + value(2, i), "a sum is not what it should be");
      }
    });
    CHECK(trouble(ended) == "");
  }
}

TEST_CASE("a process that dies before its part is ready releases the others") {
  const auto ended = run_processes(3, [](const member& m) {
    engine e;
    communicator comm = e.join(m.how());
    std::vector<int> in(64, 1), out(64);
    partitioned add = comm.all_reduce_init(in, out, sum, partitions(4));
    add.start();
    add.ready(0);
    while (!add.arrived(0)) usleep(100);
    // It may have the part before it has passed on what the others lack of it: it dies when they have it, too.
    char told = 0;
    if (m.process != 2) comm.send(&told, 1, datatype::u8, 2);
    for (rank_t r = 0; r < 2 && m.process == 2; ++r) comm.recv(&told, 1, datatype::u8, r);
    if (m.process == 2) std::raise(SIGKILL);
    for (const int p : {1, 2, 3}) add.ready(p);
    expect(add.try_wait() == make_error_code(errc::peer_lost), "the others must hear that it is lost");
    expect(out[0] == 3, "what had arrived stays right");
  });
  CHECK(ended[0].exit == 0);
  CHECK(ended[1].exit == 0);
}

TEST_CASE("between processes, too, a deadline names the part that lacked") {
  const auto ended = run_processes(2, [](const member& m) {
    engine e;
    communicator comm = e.join(m.how());
    std::vector<int> in(64, 1), out(64);
    partitioned add = comm.all_reduce_init(in, out, sum, partitions(4), {.deadline = std::chrono::milliseconds{200}});
    add.start();
    for (int p = 0; p < 4; ++p)
      if (p != 2 || m.process == 0) add.ready(p);
    try {
      add.wait();
    } catch (const error& x) {
      expect(x.code_value() == errc::timed_out, "it must end with the deadline");
      expect(std::string{x.what()}.find("part 2 of 4 was not made ready") != std::string::npos, x.what());
      return;
    }
    throw std::runtime_error("it succeeded");
  });
  CHECK(trouble(ended) == "");
}

}  // namespace partitioned_test
