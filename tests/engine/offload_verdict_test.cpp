// SPDX-License-Identifier: Apache-2.0
// Which calls `offload = "auto"` gives to the NIC.
#include "engine/planning/offload_verdict.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "engine/planning/planner.hpp"
#include "engine/planning/tuning.hpp"
#include "topology/layout/layout.hpp"
#include "topology/reach.hpp"

namespace offload_verdict_test {

using namespace troupe;

namespace {

offload_figures figures() {
  offload_figures f;
  f.callers = 100e-6;
  f.nic = 150e-6;
  f.posting = 2e-6;
  f.waking = 3e-6;
  f.awake = 16e-6;
  f.ranks_of_host = 2;
  f.cores = 4;
  f.idle_cores = 2;
  return f;
}

call all_reduce_of(std::size_t bytes) {
  call c;
  c.what = collective::all_reduce;
  c.type = datatype::f32;
  c.count = bytes / sizeof(float);
  c.offload = true;
  return c;
}

tuning with_cores(int cores) {
  tuning t = assumed_tuning();
  t.machine.cores = cores;
  return t;
}

engine_options automatic() {
  engine_options o;
  o.offload = "auto";
  return o;
}

/// Two hosts with a computer each, and two processes each.
layout two_hosts() {
  layout on = layout::placed({{0, 0, 0}, {0, 0, 1}, {1, 0, 0}, {1, 0, 1}});
  on.homes = {{0, 0}, {0, 1}, {1, 2}, {1, 3}};
  on.copies = true;
  return on;
}

}  // namespace

TEST_CASE("offload: where a core is free, a call is the NIC's that takes its callers longer than to post it") {
  offload_figures f = figures();
  CHECK(weigh_offload(f).pays);
  CHECK(weigh_offload(f).taken == doctest::Approx(5e-6));
  CHECK(weigh_offload(f).why ==
        "to post it takes 5.0 us of a caller's time, and to perform it 100.0 us; 2 cores of 4 are free for the NIC's "
        "thread, which takes 150.0 us");
  f.callers = 4.9e-6;
  CHECK(!weigh_offload(f).pays);
  f.callers = 5.1e-6;
  CHECK(weigh_offload(f).pays);
  f.nic = 1;  // hidden
  CHECK(weigh_offload(f).pays);
}

TEST_CASE("offload: where none is free, what the thread does is taken from those who compute") {
  offload_figures f = figures();
  f.ranks_of_host = 4;
  f.idle_cores = 0;
  CHECK(weigh_offload(f).taken == doctest::Approx(5e-6 + 16e-6 + 150e-6 / 4));
  CHECK(weigh_offload(f).pays);
  CHECK(
      weigh_offload(f).why ==
      "no core is free for the NIC's thread: its part of 150.0 us, 16.0 us until it has a core, and the posting takes "
      "58.5 us of a caller's time, and to perform it 100.0 us");
  f.nic = 400e-6;
  CHECK(!weigh_offload(f).pays);
  // Of ranks that share cores each posts in its turn.
  f = figures();
  f.idle_cores = 0;
  f.ranks_of_host = 9;
  CHECK(weigh_offload(f).taken == doctest::Approx(3 * 5e-6 + 16e-6 + 150e-6 / 4));
  // The NIC's part is a rank's core's at most.
  f.ranks_of_host = 2;
  CHECK(weigh_offload(f).taken == doctest::Approx(5e-6 + 16e-6 + 150e-6 / 2));
  // Two hosts of one computer have a NIC each.
  f.idle_cores = 1;
  f.nics = 2;
  CHECK(weigh_offload(f).taken == doctest::Approx(5e-6 + 16e-6 + 150e-6 / 2));
  CHECK(weigh_offload(f).why.starts_with("1 core is free for the threads of 2 NICs: its part of 150.0 us, "));
}

TEST_CASE("offload: who waits in a call has nothing to compute meanwhile") {
  offload_figures f = figures();
  f.started = false;
  CHECK(!weigh_offload(f).pays);
  CHECK(weigh_offload(f).why == "its caller waits for it, and computes nothing meanwhile");
  for (const offload_wish wish : {offload_wish::never, offload_wish::automatic, offload_wish::always}) {
    CHECK(wants_offload(wish, all_reduce_of(1 << 24), false) == (wish == offload_wish::always));
    CHECK(wants_offload(wish, all_reduce_of(1 << 24), true) == (wish != offload_wish::never));
  }
  f.started = true;
  f.callers = std::numeric_limits<double>::infinity();
  CHECK(weigh_offload(f).pays);
}

TEST_CASE("offload: the planner decides by cores that are free, and by what the call takes") {
  const auto by_nic = [](int cores, int ranks, std::size_t bytes, int others = 0) {
    planner plans{automatic(), with_cores(cores)};
    if (others > 0) plans.leave_idle(std::max(0, cores - ranks - others));
    const call what = all_reduce_of(bytes);
    const layout on = layout::flat(ranks);
    const bool is = plans.plan_for(what, on)->nic() != nullptr;
    const offload_prospect told = plans.offload_of(what, on);
    CHECK(told.started == is);
    CHECK(told.automatic == is);
    CHECK(!told.blocking);
    CHECK(told.idle_cores == std::max(0, cores - ranks - others));
    CHECK(told.why_not == "");
    CHECK(told.callers_seconds > 0);
    return is;
  };
  CHECK(!by_nic(8, 4, 1024));
  CHECK(by_nic(8, 4, 1 << 20));
  CHECK(by_nic(8, 7, 1 << 20));
  CHECK(!by_nic(8, 8, 1 << 20));
  CHECK(!by_nic(2, 2, 1 << 20));
  CHECK(!by_nic(8, 4, 1 << 20, 4));  // the others of the world
  CHECK(by_nic(8, 4, 1 << 20, 3));
}

TEST_CASE("offload: processes of a job decide alike, by the dearest costs and the fewest free cores among them") {
  tuning slow = with_cores(4), fast = with_cores(64);
  slow.nic_post_ns = 30'000;
  fast.nic_step_ns = 10;
  fast.wake_ns = 100;
  std::vector<double> job = costs_of(slow);
  const std::vector<double> other = costs_of(fast);
  std::ranges::transform(job, other, job.begin(), [](double a, double b) { return std::max(a, b); });
  int offloaded = 0;
  for (const int idle : {0, 2})
    for (std::size_t bytes = 1024; bytes <= std::size_t{1} << 26; bytes *= 4) {
      CAPTURE(idle);
      CAPTURE(bytes);
      const auto decided = [&](const tuning& own) {
        planner p{automatic(), own};
        p.leave_idle(own.machine.cores);  // of a world of its own
        p.agree_on(job, idle);
        const auto made = p.plan_for(all_reduce_of(bytes), two_hosts());
        offloaded += made->nic() != nullptr;
        CHECK(p.offload_of(all_reduce_of(bytes), two_hosts()).idle_cores == idle);
        return made->identity;
      };
      CHECK(decided(slow) == decided(fast));
    }
  CHECK(offloaded > 0);
  CHECK(offloaded < 2 * 2 * 9);
}

TEST_CASE("offload: what the NIC does not perform goes in tiers where that is faster") {
  engine_options o;
  o.offload = "always";
  o.credits = 32;  // more than a NIC's messages have numbers
  planner plans{o, with_cores(8)};
  const layout on = two_hosts();
  REQUIRE(ranks_of_each_host(on) == 2);
  int in_tiers = 0;
  for (std::size_t bytes = 8; bytes <= std::size_t{1} << 22; bytes *= 8) {
    CAPTURE(bytes);
    call asked = all_reduce_of(bytes), plain = asked;
    plain.offload = false;
    plan_memo first, second;
    const auto made = plans.plan_for(asked, on, first, 2);
    CHECK(made->identity == plans.plan_for(plain, on, second, 2)->identity);
    in_tiers += made->tiers() != nullptr;
  }
  CHECK(in_tiers > 0);
}

}  // namespace offload_verdict_test
