// SPDX-License-Identifier: Apache-2.0
// Data in memory that the other processes of the host map (engine.allocate, engine.memory, troupe::vector).

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <memory>
#include <memory_resource>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "tests/processes/processes.hpp"
#include "tests/property/random_jobs.hpp"
#include "tests/seed.hpp"

using namespace engine_tests;
using namespace process_tests;
using troupe::communicator;
using troupe::engine;

namespace {

void expect(bool right, const char* what) {
  if (!right) throw std::runtime_error(what);
}

/// Bytes of memory that several processes map, of which this one has touched pages.
std::size_t shared_kilobytes() {
  std::size_t sum = 0;
  std::FILE* const maps = std::fopen("/proc/self/smaps", "r");
  if (maps == nullptr) return 0;
  char line[512];
  bool ours = false;
  while (std::fgets(line, sizeof line, maps) != nullptr) {
    const std::string text{line};
    // "7f0c5a000000-7f0c5a021000 rw-s 00000000 …" begins what the lines behind it say.
    if (const auto dash = text.find('-'); dash < text.find(' ') && dash < text.find(':'))
      ours = text.find("troupe-boards") != std::string::npos;
    if (ours && text.rfind("Rss:", 0) == 0) sum += std::stoul(text.substr(4));
  }
  std::fclose(maps);
  return sum;
}

}  // namespace

TEST_CASE("collectives and sends on shared memory, other memory, or both are right") {
  for (const int processes : {2, 3}) {
    const std::uint64_t drawn = seed() + static_cast<std::uint64_t>(processes);
    const auto ended = run_processes(processes, [&](const member& m) {
      engine e;
      communicator comm = e.join(m.how());
      random_engine random(mix(drawn));
      for (int round = 0; round < 150; ++round) {
        const std::size_t count = any_count(random, 300'000);
        const std::uint64_t shares = random();  // which ranks do, input and output
        const auto n = static_cast<std::size_t>(comm.size()), me = static_cast<std::size_t>(comm.rank());
        const auto memory = [&](unsigned which) {
          return shares >> (2 * me + which) & 1
                     ? e.memory()
                     : std::shared_ptr<std::pmr::memory_resource>{std::pmr::new_delete_resource(), [](auto*) {}};
        };
        const auto in_memory = memory(0), out_memory = memory(1);
        std::pmr::vector<int> in(count * (round % 4 == 0 ? n : 1), in_memory.get()),
            out(count * n, -1, out_memory.get());
        for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>(i % 1000 + 7 * me) + round;
        const auto given = [&](std::size_t rank, std::size_t i) {
          return static_cast<int>(i % 1000 + 7 * rank) + round;
        };
        switch (round % 4) {
          case 0:
            comm.all_to_all(in, out);
            for (std::size_t r = 0; r < n; ++r)
              for (std::size_t i = 0; i < count; ++i)
                expect(out[r * count + i] == given(r, me * count + i), "all_to_all");
            break;
          case 1:
            comm.all_gather(in, out);
            for (std::size_t r = 0; r < n; ++r)
              for (std::size_t i = 0; i < count; ++i) expect(out[r * count + i] == given(r, i), "all_gather");
            break;
          case 2: {
            out.resize(count);
            comm.all_reduce(in, out, troupe::sum);
            for (std::size_t i = 0; i < count; ++i) {
              int sum = 0;
              for (std::size_t r = 0; r < n; ++r) sum += given(r, i);
              expect(out[i] == sum, "all_reduce");
            }
            break;
          }
          default: {
            out.resize(count);
            comm.send_recv(in, static_cast<int>((me + 1) % n), out, static_cast<int>((me + n - 1) % n));
            for (std::size_t i = 0; i < count; ++i) expect(out[i] == given((me + n - 1) % n, i), "send_recv");
          }
        }
      }
    });
    CHECK(trouble(ended) == "");
  }
}

TEST_CASE("data of others is staged, or copied by the system, as the host's first process is told") {
  const auto grown = [](const char* first, const char* second) {
    return run_processes(2, [=](const member& m) {
      troupe::engine_options options;
      options.stages = m.process == 0 ? first : second;
      options.environment = false;  // which may offload the collective
      engine e(options);
      communicator comm = e.join(m.how());
      const int other = 1 - comm.rank();
      constexpr std::size_t count = std::size_t{1} << 18;  // a MiB
      std::vector<int> mine(count, 1 + comm.rank()), theirs(count), all(2 * count);
      const std::size_t before = shared_kilobytes();
      for (int i = 0; i < 3; ++i) comm.send_recv(mine, other, theirs, other);
      const std::size_t sent = shared_kilobytes();
      expect(theirs.back() == 1 + other, "the message");
      comm.all_gather(mine, all);
      expect(all.front() == 1 && all.back() == 2, "the gathered");
      const std::size_t gathered = shared_kilobytes();
      const bool staged = std::string_view{first} == "always";
      expect((sent >= before + 1024) == staged, "the staging buffer of a message");
      expect((gathered >= sent + 1024) == staged, "the staging buffer of a collective");
    });
  };
  CHECK(trouble(grown("always", "always")) == "");
  CHECK(trouble(grown("never", "never")) == "");
  CHECK(trouble(grown("always", "never")) == "");
  CHECK(trouble(grown("never", "always")) == "");
}

TEST_CASE("long messages are right whether the sender's staging buffer takes them or the system copies them") {
  const auto ended = run_processes(2, [&](const member& m) {
    engine e;
    communicator comm = e.join(m.how());
    const int other = 1 - comm.rank();
    const auto value = [](int rank, int message, std::size_t i) {
      return static_cast<int>(i % 1009) + 100'000 * rank + 1'000'000 * message;
    };
    int message = 0;
    // With engine.stages = always, of 2 MiB and less there is a staging buffer at once, of longer ones once there were some, and of the longest never.
    for (const std::size_t count : {500'000u, 700'000u, 1'500'000u, 600'000u, 5'000'000u})
      for (int round = 0; round < 12; ++round, message += 2) {
        std::vector<int> first(count), second(count), in_first(count), in_second(count);
        for (std::size_t i = 0; i < count; ++i) {
          first[i] = value(comm.rank(), message, i);
          second[i] = value(comm.rank(), message + 1, i);
        }
        // Two under way: one staging buffer is not enough for both.
        troupe::request sent[] = {comm.send_async(first, other), comm.send_async(second, other)};
        comm.recv(in_first, other);
        comm.recv(in_second, other);
        for (troupe::request& r : sent) r.wait();
        for (std::size_t i = 0; i < count; ++i) {
          expect(in_first[i] == value(other, message, i), "the first");
          expect(in_second[i] == value(other, message + 1, i), "the second");
        }
      }
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE(
    "what others read or write is right whether it is staged, copied by the system, or done by one rank for all") {
  // Elements of a block. Beside the bounds of direct_staging.hpp: little enough for one rank; staged; outputs that are not; inputs that are not.
  const std::vector<std::size_t> blocks{0, 1, 777, 5'000, 40'000, 300'001, 1'500'000};
  const auto ended = run_processes(3, [&](const member& m) {
    engine e;
    communicator comm = e.join(m.how());
    const auto n = static_cast<std::size_t>(comm.size()), me = static_cast<std::size_t>(comm.rank());
    const auto value = [](std::size_t rank, std::size_t i) { return static_cast<int>(i % 1000 + 7 * rank); };
    const auto sum = [&](std::size_t i) {
      int all = 0;
      for (std::size_t r = 0; r < n; ++r) all += value(r, i);
      return all;
    };
    std::vector<int> in, out;
    const auto with = [&](std::size_t inputs, std::size_t outputs) {
      in.resize(inputs);
      for (std::size_t i = 0; i < inputs; ++i) in[i] = value(me, i);
      out.assign(outputs, -1);
    };
    for (int round = 0; round < 2; ++round)
      for (const std::size_t count : blocks) {
        with(count, n * count);
        comm.all_gather(in, out);
        for (std::size_t i = 0; i < n * count; ++i) expect(out[i] == value(i / count, i % count), "all_gather");
        with(n * count, n * count);
        comm.all_to_all(in, out);
        for (std::size_t i = 0; i < n * count; ++i)
          expect(out[i] == value(i / count, me * count + i % count), "all_to_all");
        with(count, count);
        comm.all_reduce(in, out, troupe::sum);
        for (std::size_t i = 0; i < count; ++i) expect(out[i] == sum(i), "all_reduce");
        with(count, count);
        comm.all_reduce(in, in, troupe::sum);
        for (std::size_t i = 0; i < count; ++i) expect(in[i] == sum(i), "all_reduce in place");
        with(n * count, count);
        comm.reduce_scatter(in, out, troupe::sum);
        for (std::size_t i = 0; i < count; ++i) expect(out[i] == sum(me * count + i), "reduce_scatter");
        for (std::size_t root = 0; root < n; ++root) {
          const auto at = static_cast<int>(root);
          with(count, me == root ? n * count : 0);
          comm.gather(in, out, at);
          for (std::size_t i = 0; i < out.size(); ++i) expect(out[i] == value(i / count, i % count), "gather");
          with(count, me == root ? count : 0);
          comm.reduce(in, out, troupe::sum, at);
          for (std::size_t i = 0; i < out.size(); ++i) expect(out[i] == sum(i), "reduce");
          with(count, 0);
          comm.broadcast(in, at);
          for (std::size_t i = 0; i < count; ++i) expect(in[i] == value(root, i), "broadcast");
          with(me == root ? n * count : 0, count);
          comm.scatter(in, out, at);
          for (std::size_t i = 0; i < count; ++i) expect(out[i] == value(root, me * count + i), "scatter");
        }
        // Of blocks that differ, some are staged and some are not.
        const std::vector<std::size_t> counts{count, count / 2, 2 * count};
        std::size_t all = 0, before = 0;
        for (std::size_t r = 0; r < n; ++r) all += counts[r], before += r < me ? counts[r] : 0;
        with(counts[me], all);
        comm.all_gather_v(in, out, troupe::block_list{counts});
        for (std::size_t r = 0, at = 0; r < n; at += counts[r++])
          for (std::size_t i = 0; i < counts[r]; ++i) expect(out[at + i] == value(r, i), "all_gather_v");
        with(all, n * counts[me]);
        comm.all_to_all_v(in, troupe::block_list{counts}, out,
                          troupe::block_list{std::vector<std::size_t>(n, counts[me])});
        for (std::size_t r = 0; r < n; ++r)
          for (std::size_t i = 0; i < counts[me]; ++i)
            expect(out[r * counts[me] + i] == value(r, before + i), "all_to_all_v");
      }
  });
  CHECK(trouble(ended) == "");
}

// A rank brings what little it has to a place of 512 bytes, or to an annex if that is too small, or not at all (snapshots.hpp). Of three ranks, three
// blocks of 160 bytes and their beginnings fill a place, and three of 5504 an annex; one block alone fills them with 480 and 16512.
namespace {

using bytes = std::vector<std::uint8_t>;

std::uint8_t byte_of(std::size_t from, std::size_t to, std::size_t i, std::size_t call) {
  return static_cast<std::uint8_t>(from * 71 + to * 29 + i * 3 + call * 13);
}

troupe::engine_options without_offload() {
  troupe::engine_options options;
  options.environment = false;
  return options;
}

/// Calls of which each rank sends as many bytes to each as is said.
class uneven_calls {
public:
  explicit uneven_calls(communicator of)
      : comm_(std::move(of)), n_(static_cast<std::size_t>(comm_.size())), me_(static_cast<std::size_t>(comm_.rank())) {}

  void all_to_all_v(const std::vector<std::size_t>& lengths) {
    begin(lengths);
    bytes in, out, expected;
    for (std::size_t r = 0; r < n_; ++r) {
      append(in, me_, r);
      append(expected, r, me_);
    }
    out.resize(expected.size());
    comm_.all_to_all_v(in, troupe::block_list{std::vector<std::size_t>(n_, lengths[me_])}, out,
                       troupe::block_list{lengths});
    check(out == expected, "all_to_all_v");
  }
  void all_gather_v(const std::vector<std::size_t>& lengths) {
    begin(lengths);
    bytes in, expected;
    append(in, me_, 0);
    for (std::size_t r = 0; r < n_; ++r) append(expected, r, 0);
    bytes out(expected.size());
    comm_.all_gather_v(in, out, troupe::block_list{lengths});
    check(out == expected, "all_gather_v");
  }
  void gather_v(const std::vector<std::size_t>& lengths, std::size_t root) {
    begin(lengths);
    bytes in, expected;
    append(in, me_, root);
    for (std::size_t r = 0; r < n_; ++r) append(expected, r, root);
    bytes out(me_ == root ? expected.size() : 0);
    comm_.gather_v(in, out, troupe::block_list{lengths}, static_cast<int>(root));
    if (me_ == root) check(out == expected, "gather_v");
  }
  void scatter_v(const std::vector<std::size_t>& lengths, std::size_t root) {
    begin(lengths);
    bytes in, expected;
    if (me_ == root)
      for (std::size_t r = 0; r < n_; ++r) append(in, r, root);
    append(expected, me_, root);
    bytes out(expected.size());
    comm_.scatter_v(in, troupe::block_list{lengths}, out, static_cast<int>(root));
    check(out == expected, "scatter_v");
  }
  void barrier() { comm_.barrier(); }

private:
  void begin(const std::vector<std::size_t>& lengths) {
    lengths_ = lengths;
    ++call_;
  }
  void append(bytes& to, std::size_t from, std::size_t at) const {
    for (std::size_t i = 0; i < lengths_[from]; ++i) to.push_back(byte_of(from, at, i, call_));
  }
  void check(bool right, const char* what) const {
    if (right) return;
    std::string text = std::string{what} + " of";
    for (const std::size_t n : lengths_) text += " " + std::to_string(n);
    throw std::runtime_error(text);
  }

  communicator comm_;
  std::size_t n_, me_, call_ = 0;
  std::vector<std::size_t> lengths_;
};

}  // namespace

TEST_CASE("of three processes, blocks come from places, from annexes and from where they lie") {
  const auto ended = run_processes(3, [](const member& m) {
    engine e{without_offload()};
    uneven_calls calls{e.join(m.how())};
    for (const std::size_t length :
         {0u, 1u, 159u, 160u, 161u, 479u, 480u, 481u, 5503u, 5504u, 5505u, 16511u, 16512u, 16513u})
      for (const std::size_t other : {0u, 160u, 161u, 480u, 481u, 5504u, 5505u, 16512u, 16513u})
        for (std::size_t r = 0; r < 3; ++r) {
          std::vector<std::size_t> lengths(3, length);
          lengths[r] = other;
          lengths[(r + 1) % 3] = 300 * r;
          calls.all_to_all_v(lengths);
          calls.all_gather_v(lengths);
          calls.gather_v(lengths, (r + 2) % 3);
          calls.scatter_v(lengths, r);
        }
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE("of three processes, those that only give run ahead of one that is late, and overwrite nothing that it has "
          "not read") {
  const auto ended = run_processes(3, [](const member& m) {
    engine e{without_offload()};
    communicator comm = e.join(m.how());
    const int me = comm.rank();
    uneven_calls calls{std::move(comm)};
    const auto late = [&](int who) {
      if (me == who) std::this_thread::sleep_for(std::chrono::milliseconds{20});
    };
    // More of them than there are places, which are longer and shorter in turn, so that annexes and places are used again at different times.
    const auto lengths_of = [](std::size_t i) {
      return i % 5 == 2 ? std::vector<std::size_t>{40, 100, 7}
                        : std::vector<std::size_t>{1000 + 37 * i, 481 + i, 5000 - 11 * i};
    };
    for (int round = 0; round < 3; ++round) {
      calls.barrier();
      late(0);
      for (std::size_t i = 0; i < 100; ++i) calls.gather_v(lengths_of(i), 0);
      calls.barrier();
      late(2);
      for (std::size_t i = 0; i < 100; ++i) calls.scatter_v(lengths_of(i), 0);
    }
    // Where nobody runs ahead fewer annexes do, which one with a root may still need.
    for (std::size_t round = 0; round < 16; ++round) {
      calls.barrier();
      late(2);
      for (std::size_t i = 0; i < 20 + round % 5; ++i) calls.scatter_v({1000 + i, 900, 4000}, 0);
      calls.all_to_all_v({2000, 1500 + round, 3000});
    }
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE("buffers of two processes at the same address are two buffers") {
  const auto ended = run_processes(2, [](const member& m) {
    engine e;
    communicator comm = e.join(m.how());
    const int me = comm.rank(), root = 1;
    constexpr std::size_t count = 5'000'000;  // longer than what is staged
    // Nothing else lies there, in either process.
    void* const here = reinterpret_cast<void*>(std::uintptr_t{0x2000'0000'0000});  // NOLINT(performance-no-int-to-ptr)
    void* const at = ::mmap(here, 2 * count * sizeof(int), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    expect(at == here, "that address is taken");
    const std::span<int> both(static_cast<int*>(at), 2 * count);
    std::vector<int> own(count, -1);
    // The root gives from where the other one takes its block to.
    if (me == root) std::iota(both.begin(), both.end(), 0);
    comm.scatter(me == root ? std::span<const int>(both) : std::span<const int>(),
                 me == root ? std::span<int>(own) : both.first(count), root);
    const std::span<const int> got = me == root ? std::span<const int>(own) : both.first(count);
    for (std::size_t i = 0; i < count; ++i)
      expect(got[i] == static_cast<int>(static_cast<std::size_t>(me) * count + i), "scatter");
    ::munmap(at, 2 * count * sizeof(int));
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE("random jobs on buffers that come and go") {
  const std::uint64_t drawn = seed() + 5;
  const auto ended = run_processes(2, [&](const member& m) {
    engine e;
    communicator comm = e.join(m.how());
    random_engine random(mix(drawn));
    // The same places again and again, for other blocks: nobody looks where something has been.
    std::map<int, troupe::vector<float>> kept;
    for (int round = 0; round < 300; ++round) {
      const int place = static_cast<int>(below(random, 5));
      const std::size_t count = 1 + below(random, 200'000);
      kept.erase(place);
      auto& data =
          kept.emplace(place, troupe::vector<float>(count, static_cast<float>(comm.rank() + 1), e)).first->second;
      comm.all_reduce(data, troupe::sum);
      expect(std::ranges::all_of(data, [](float x) { return x == 3; }), "a sum in a new buffer");
    }
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE("what a buffer takes is the system's again, and buffers outlive engines") {
  const auto ended = run_processes(2, [](const member& m) {
    std::optional<troupe::vector<float>> late;
    troupe::shared_buffer bytes;
    {
      engine e;
      troupe::vector<float> early(1000, 1.0f, e);  // before the join: memory like any other
      communicator comm = e.join(m.how());
      comm.all_reduce(early, troupe::sum);
      expect(early[999] == 2, "memory of before the join");
      for (int round = 0; round < 20; ++round) {
        troupe::vector<float> large(4'000'000, 1.0f, e);
        comm.all_reduce(large, troupe::sum);
        expect(large[3'999'999] == 2, "a large sum");
      }
      comm.barrier();
      expect(shared_kilobytes() < 8 * 1024, "what was given back is still there");
      std::vector<std::unique_ptr<std::pmr::vector<int>>> small;
      for (int k = 0; k < 20'000; ++k)
        small.push_back(std::make_unique<std::pmr::vector<int>>(10, k, e.memory().get()));
      expect((*small[17])[9] == 17, "a small one");
      small.clear();
      late.emplace(100'000, static_cast<float>(comm.rank()), e);
      comm.all_reduce(*late, troupe::sum);
      bytes = e.allocate(1 << 20);
      expect(bytes.size() == 1 << 20 && bytes.as<double>().size() == 1 << 17, "a buffer's size");
      std::ranges::fill(bytes.as<double>(), 2.5);
      comm.all_reduce(bytes.as<double>(), troupe::sum);
    }
    expect((*late)[99'999] == 1 && bytes.as<double>()[7] == 5, "what was calculated before the engine ended");
    late->push_back(3);
  });
  CHECK(trouble(ended) == "");
}

TEST_CASE("who is left goes on with its buffers and new ones when a process was killed in the middle of its own") {
  const auto ended = run_processes(
      3,
      [](const member& m) {
        engine e;
        communicator comm = e.join(m.how());
        {
          troupe::vector<float> data(30'000'000, 1.0f, e);
          comm.all_reduce(data, troupe::sum);
          m.say("summed");
          try {
            for (;;) comm.all_reduce(data, troupe::sum);
          } catch (const troupe::error&) {}
        }
        communicator left = comm.shrink();
        troupe::vector<float> again(1'000'000, 1.0f, e);
        left.all_reduce(again, troupe::sum);
        expect(std::ranges::all_of(again, [](float x) { return x == 2; }), "a sum of those who are left");
      },
      [](job_control& job) {
        job.wait_for_lines(3);
        ::kill(job.pids[1], SIGKILL);
      });
  CHECK(trouble(ended, 1) == "");
}
