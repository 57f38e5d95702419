// SPDX-License-Identifier: Apache-2.0
// Partitioned operations between processes.

#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <stdexcept>
#include <vector>

#include <unistd.h>

#include "tests/processes/processes.hpp"

using namespace process_tests;
using namespace troupe;

namespace {

void expect(bool right, const char* what) {
  if (!right) throw std::runtime_error(what);
}

}  // namespace

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
