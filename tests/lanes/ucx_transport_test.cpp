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
