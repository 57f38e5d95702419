// SPDX-License-Identifier: Apache-2.0
// send_recv with one buffer for both was silently wrong: a message is read where it lies, while the other one is written there.

#include <doctest/doctest.h>

#include <troupe.hpp>

#include <numeric>
#include <span>
#include <vector>

using namespace troupe;

namespace {

std::vector<int> counting(std::size_t count, int first) {
  std::vector<int> v(count);
  std::iota(v.begin(), v.end(), first);
  return v;
}

}  // namespace

TEST_CASE("send_recv refuses buffers that overlap, and the communicator goes on") {
  engine e;
  e.run(2, [](communicator& comm) {
    const rank_t other = 1 - comm.rank();
    std::vector<int> data = counting(10, comm.rank());
    const auto refused = [&](std::span<int> out, std::span<int> in) {
      try {
        comm.send_recv(out, other, in, other);
      } catch (const error& problem) {
        return problem.code_value() == errc::buffers_overlap;
      }
      return false;
    };
    CHECK(refused(data, data));
    CHECK(refused(std::span(data).first(6), std::span(data).last(5)));
    CHECK(refused(std::span(data).last(1), data));
    comm.send_recv(std::span(data).first(5), other, std::span(data).last(5), other);  // neighbours
    for (int i = 0; i < 5; ++i) CHECK(data[static_cast<std::size_t>(5 + i)] == other + i);
    comm.send_recv(std::span(data).first(0), other, std::span(data).first(0), other);  // nothing overlaps nothing
  });
}

TEST_CASE("send_recv_replace passes values round a ring through one buffer") {
  for (const std::size_t count : {0u, 1u, 1000u, 300'000u}) {
    engine e;
    e.run(3, [&](communicator& comm) {
      std::vector<int> data = counting(count, 1000 * comm.rank());
      for (int step = 1; step <= 3; ++step) {
        comm.send_recv_replace(data, (comm.rank() + 1) % 3, (comm.rank() + 2) % 3);
        CHECK(data == counting(count, 1000 * ((comm.rank() + 3 - step) % 3)));
      }
    });
  }
}
