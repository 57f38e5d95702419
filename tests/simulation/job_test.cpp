// SPDX-License-Identifier: Apache-2.0
// Jobs of several simulated processes: who is lost, and that everybody hears of it.

#include <doctest/doctest.h>

#include "engine/tools/simulate/job.hpp"

using namespace troupe::simulate;

TEST_CASE("four thousand jobs whose processes are killed, stopped and cut off end as they should") {
  job_campaign c;
  c.last = 4000;
  c.most_failures = 3;
  const job_campaign_result r = run_jobs(c);
  for (const auto& [seed, fault] : r.failures) FAIL_CHECK("seed " << seed << ": " << fault);
  CHECK(r.performed > 100'000);
  CHECK(r.failed > 10'000);
  CHECK(r.divisions > 10'000);
  CHECK(r.shrinks > 5'000);
}

TEST_CASE("jobs in which nothing happens perform everything") {
  job_campaign c;
  c.last = 2000;
  c.each.most_processes = 9;
  c.each.faults = c.each.divides = false;
  const job_campaign_result r = run_jobs(c);
  for (const auto& [seed, fault] : r.failures) FAIL_CHECK("seed " << seed << ": " << fault);
  CHECK(r.failed == 0);
}

TEST_CASE("the last job that there is ends the campaign") {
  job_campaign c;
  c.last = ~std::uint64_t{0};
  c.first = c.last - 2;
  CHECK(run_jobs(c).seeds == 3);
}

TEST_CASE("every mutant of what processes say to each other is noticed") {
  for (const job_mutant m : all_job_mutants) {
    CAPTURE(name(m));
    job_campaign c;
    c.last = 3000;
    c.most_failures = 1;
    c.each.broken = m;
    CHECK(run_jobs(c).failures.size() == 1);
  }
}

// Each was found by the simulation. The states have names of their own, so what they stood for is told here.
TEST_CASE("what the simulation has found stays mended") {
  troupe::simulate::plan_source plans;
  job_options whole;
  whole.divides = false;
  // 64: two processes killed, the home second: what the old home had broken waited for ever. 84: a process that the registrar had lost accused
  // the registrar. 1356, 2113: a rank had left, then its process was killed: nobody missed what it owed, or everybody waited for its answer.
  for (const std::uint64_t seed : {64u, 84u, 196u, 234u, 1249u, 1356u, 2113u, 2838u, 3704u, 7693u}) {
    const job_result r = simulate_job(seed, plans, whole);
    CHECK_MESSAGE(r.ok(), "seed " << seed << ": " << r.story << r.fault);
  }
  // A rank had waited for a shrink of its part in vain and left, which ended the part there: its process's agreement waited for one that gave up its
  // places later, and others for that.
  const job_result r = simulate_job(12001, plans);
  CHECK_MESSAGE(r.ok(), r.story << r.fault);
}
