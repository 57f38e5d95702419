// SPDX-License-Identifier: Apache-2.0
// What a mesh has to rely on beside the order of its frames: that nothing lies unread where nobody looks, and how much waits in memory.
#include "actors/ports/link/ucx/ucx_transport.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "tests/lanes/meshes.hpp"

using namespace troupe;
using namespace troupe::actors;
using namespace mesh_tests;

namespace {

/// Time for what was sent to get as far as it does: on a slower machine less has come, and less is tested.
void let_it_come(const mesh& from) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds{300};
  while (from.waiting_bytes() > 0 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
}

/// Two workers of UCX, and a line of each.
struct two_ends {
  two_ends() {
    line_names::name one{}, other{};
    one.fill(std::byte{1});
    other.fill(std::byte{2});
    to = there->line_to(here->address(), {one, other});
    from = here->line_to(there->address(), {other, one});
  }
  std::shared_ptr<transport> there = make_ucx_transport(), here = make_ucx_transport();
  std::shared_ptr<transport_line> to, from;  ///< `from` receives what `to` sends
};

}  // namespace

TEST_CASE("UCX: more than is read in one turn is read before the mesh sleeps") {
  if (skipped_without_ucx()) return;
  // The next look is a minute away, and nobody polls.
  meshes_of_test job{between::ucx, 2, std::chrono::minutes{10}};
  job.each[0]->send_credit(1, {}, {});
  REQUIRE(comes([&] { return job.heard[1]->credits.load() == 1; }));
  std::vector<std::vector<std::byte>> kept;
  for (int round = 0; round < 4; ++round) {
    CAPTURE(round);
    job.heard[1]->waits = true;
    for (std::uint32_t i = 0; i < 30; ++i) {
      const auto sequence = static_cast<std::uint32_t>(kept.size());
      kept.push_back(payload(250'000, sequence));
      job.each[0]->send_chunk(1, {}, some_chunk(kept.back(), 5, sequence));
    }
    let_it_come(*job.each[0]);
    job.heard[1]->waits = false;
    CHECK(comes([&] { return job.heard[1]->chunks.load() == static_cast<int>(kept.size()); }));
  }
  CHECK(job.went_well());
}

TEST_CASE("UCX: no more waits to be read than its bound, whatever is sent") {
  if (skipped_without_ucx()) return;
  two_ends ends;
  const auto data = payload(64 * 1024, 0);
  const iovec all{const_cast<std::byte*>(data.data()), data.size()};
  std::size_t sent = 0;
  const auto send = [&] {
    for (ssize_t n = 0; sent < (std::size_t{16} << 20) && (n = ends.to->send({&all, 1})) > 0;)
      sent += static_cast<std::size_t>(n);
    ends.there->progress();
  };
  for (int turn = 0; turn < 3000; ++turn) {
    send();
    ends.here->progress();
  }
  std::vector<std::byte> room(data.size());
  std::size_t got = 0;
  const auto receive = [&] {
    for (ssize_t n = 0; (n = ends.from->receive(room)) > 0;) got += static_cast<std::size_t>(n);
  };
  CHECK_FALSE(ends.here->fall_asleep());
  receive();
  CHECK(got > 0);
  CHECK(got <= std::size_t{2} << 20);
  MESSAGE("waited: " << got << " of " << sent << " bytes that were sent");
  CHECK(comes([&] {
    send();
    ends.here->progress();
    receive();
    return got == std::size_t{16} << 20;
  }));
  CHECK(ends.from->why().empty());
}

TEST_CASE("UCX: what has come before the end of its socket is read") {
  if (skipped_without_ucx()) return;
  std::vector<std::unique_ptr<passages>> between_them;
  meshes_of_test job{between::ucx, 2, std::chrono::minutes{10}, 2, {}, [&](const std::string& door) {
                       between_them.push_back(std::make_unique<passages>(door));
                       return between_them.back()->address();
                     }};
  job.each[0]->send_credit(1, {}, {});
  REQUIRE(comes([&] { return job.heard[1]->credits.load() == 1; }));
  std::vector<std::vector<std::byte>> kept;
  const auto send = [&] {
    const auto sequence = static_cast<std::uint32_t>(kept.size());
    kept.push_back(payload(1000, sequence));
    job.each[0]->send_chunk(1, {}, some_chunk(kept.back(), 5, sequence));
  };
  job.heard[1]->waits = true;
  send();
  REQUIRE(comes([&] { return job.heard[1]->waiting.load(); }));
  for (int i = 0; i < 20; ++i) send();
  let_it_come(*job.each[0]);
  between_them.clear();
  std::this_thread::sleep_for(std::chrono::milliseconds{100});
  job.heard[1]->waits = false;
  CHECK(comes([&] { return job.heard[1]->losses.load() == 1; }));
  CHECK(job.heard[1]->chunks == 21);
  CHECK(job.heard[1]->wrong == 0);
}
