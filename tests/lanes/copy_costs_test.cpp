// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/segment/copy_costs.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include <sched.h>

#include <doctest/doctest.h>

#include "actors/ports/segment/staging_copier.hpp"

using troupe::copy_costs;

namespace {

constexpr std::size_t kilobyte = 1024;

/// As a computer of two cores whose caches give each other lines slowly: the system takes only 8 ns a KiB and 900 ns a call more than a core.
copy_costs fast_system() { return {.call = 900, .system = 8, .staging = 91, .past = 80, .cores = 2}; }
/// As one where the system looks up every page in two tables.
copy_costs slow_system() { return {.call = 400, .system = 100, .staging = 35, .past = 40, .cores = 2}; }

/// One rank reads another's input, all of it.
copy_costs::use one_to_one(std::size_t bytes) { return {.bytes = bytes, .times = 1, .stagers = 1, .others = 1}; }

}  // namespace

TEST_CASE("copy costs: between two, what is short is staged; what is long where the system is slow") {
  for (const auto& costs : {fast_system(), slow_system()}) {
    CHECK(costs.worth_staging(one_to_one(1), 2));
    CHECK(costs.worth_staging(one_to_one(8 * kilobyte), 2));
  }
  CHECK_FALSE(fast_system().worth_staging(one_to_one(64 * kilobyte), 2));
  CHECK_FALSE(fast_system().worth_staging(one_to_one(1024 * kilobyte), 2));
  CHECK(slow_system().worth_staging(one_to_one(1024 * kilobyte), 2));
}

TEST_CASE("copy costs: a staging buffer that several read pays sooner, and one that all wait for later") {
  const copy_costs costs = fast_system();
  const auto all_gather = [&](int ranks) {
    return costs.worth_staging({64 * kilobyte, static_cast<double>(ranks - 1), ranks, ranks}, ranks);
  };
  CHECK_FALSE(all_gather(2));
  CHECK(all_gather(4));
  CHECK(all_gather(8));
  const auto broadcast = [&](int ranks) {
    return costs.worth_staging({64 * kilobyte, static_cast<double>(ranks - 1), 1, ranks - 1}, ranks);
  };
  CHECK_FALSE(broadcast(2));
  CHECK_FALSE(broadcast(4));
  CHECK(broadcast(8));
  // Others would read side by side what one copies alone; and one reads alone what others copy side by side.
  CHECK_FALSE(costs.worth_staging({32 * kilobyte, 1, 1, 7}, 8));
  CHECK(costs.worth_staging({32 * kilobyte, 1, 7, 1}, 8));
  // What is summed from pieces that the system has copied is read once more.
  CHECK_FALSE(costs.worth_staging({32 * kilobyte, 0.875, 8, 8}, 8));
  CHECK(costs.worth_staging({32 * kilobyte, 0.875, 8, 8, true}, 8));
}

TEST_CASE("copy costs: what is staged while its reader copies, too, pays sooner than what the reader waits for") {
  const copy_costs near{.call = 1500, .system = 52, .staging = 112, .past = 36, .cores = 2};
  const copy_costs far{.call = 1900, .system = 63, .staging = 440, .past = 40, .cores = 2};
  copy_costs::use in_pieces = one_to_one(64 * kilobyte);
  in_pieces.beside = true;
  for (const copy_costs& costs : {near, far}) {
    CHECK_FALSE(costs.worth_staging(one_to_one(64 * kilobyte), 2));
    CHECK(costs.worth_staging(in_pieces, 2));
  }
  copy_costs::use sums{.bytes = 64 * kilobyte, .times = 0.5, .stagers = 2, .others = 2, .folds = true};
  CHECK_FALSE(near.worth_staging(sums, 2));
  sums.is_long = true;
  CHECK(near.worth_staging(sums, 2));
  CHECK_FALSE(fast_system().worth_staging(sums, 2));
  CHECK_FALSE(fast_system().worth_staging(in_pieces, 2));
  CHECK_FALSE(copy_costs::never_worth_staging().worth_staging(in_pieces, 2));
  CHECK(copy_costs{}.worth_staging(in_pieces, 2));
}

TEST_CASE("copy costs: always, never, and an empty input") {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, kilobyte, 1024 * kilobyte}) {
    CHECK(copy_costs{}.worth_staging(one_to_one(bytes), 2));
    CHECK(copy_costs{}.worth_staging({bytes, 0.5, 64, 1}, 64));
    CHECK_FALSE(copy_costs::never_worth_staging().worth_staging(one_to_one(bytes), 2));
    CHECK_FALSE(copy_costs::never_worth_staging().worth_staging({bytes, 63, 64, 64}, 64));
  }
}

TEST_CASE("copy costs: of times, what the system costs more, and nothing less than nothing") {
  const troupe::copy_times times{
      .to_staging = 6400, .from_staging = 1600, .by_system = 3900, .call = 700, .past_caches = 2560};
  const copy_costs found = troupe::costs_of(times, 3);
  CHECK(found.cores == 3);
  CHECK(found.call == doctest::Approx(700));
  CHECK(found.staging == doctest::Approx(100));
  CHECK(found.system == doctest::Approx(25));
  CHECK(found.past == doctest::Approx(40));
  troupe::copy_times faster = times;
  faster.by_system = 2000;
  CHECK(troupe::costs_of(faster, 3).system == 0);
}

TEST_CASE("copy costs: a busy moment makes some times of a series longer, and the other series' count") {
  const troupe::copy_times quiet{
      .to_staging = 6400, .from_staging = 1600, .by_system = 3900, .call = 700, .past_caches = 2560};
  troupe::copy_times busy = quiet;
  busy.from_staging = 3800;  // then the system's copy would seem to cost nothing
  CHECK_FALSE(troupe::agree(quiet, busy));
  CHECK_FALSE(troupe::agree(busy, quiet));
  CHECK_FALSE(troupe::agree({}, quiet));
  CHECK_FALSE(troupe::agree({}, {}));
  CHECK(troupe::agree(quiet, quiet));
  CHECK(troupe::costs_of(busy, 2).system == 0);
  for (const troupe::copy_times& least : {least_of(quiet, busy), least_of(busy, quiet), least_of(quiet, {})}) {
    CHECK(troupe::costs_of(least, 2).system == doctest::Approx(25));
    CHECK(troupe::costs_of(least, 2).staging == doctest::Approx(100));
  }
}

TEST_CASE("copy costs: what could not be timed is staged") {
  const troupe::copy_times times{
      .to_staging = 6400, .from_staging = 1600, .by_system = 3900, .call = 700, .past_caches = 2560};
  constexpr double unknown = troupe::copy_times::unknown;
  for (double troupe::copy_times::*each :
       {&troupe::copy_times::to_staging, &troupe::copy_times::from_staging, &troupe::copy_times::by_system,
        &troupe::copy_times::call, &troupe::copy_times::past_caches}) {
    troupe::copy_times some = times;
    some.*each = unknown;
    CHECK(troupe::costs_of(some, 2).worth_staging(one_to_one(1024 * kilobyte), 2));
  }
  CHECK(troupe::costs_of({}, 0).cores == 1);
}

TEST_CASE("copy costs: timing ends, whatever cpus there are, and leaves the thread where it was") {
  for (const std::vector<int>& cpus :
       {std::vector<int>{}, std::vector<int>{0}, std::vector<int>{0, 1}, std::vector<int>{-1, 1 << 20}}) {
    cpu_set_t before, after;
    REQUIRE(::sched_getaffinity(0, sizeof before, &before) == 0);
    const troupe::copy_times times = troupe::time_copies(cpus);
    REQUIRE(::sched_getaffinity(0, sizeof after, &after) == 0);
    CHECK(CPU_EQUAL(&before, &after));
    CHECK(times.to_staging > 0);
    CHECK(times.by_system > 0);
  }
}

TEST_CASE("staging choice: past the caches where lines come slowly, and another try now and then") {
  using troupe::staging_choice;
  staging_choice choice;
  const auto copy = [&](double cached, double past) {
    const bool passes = choice.past_caches();
    choice.copied(choice.wants_time() ? (passes ? past : cached) : 0);
    return passes;
  };
  const auto passing = [&](double cached, double past) {
    unsigned count = 0;
    for (unsigned i = 0; i < 10 * staging_choice::in_a_row; ++i) count += copy(cached, past) ? 1 : 0;
    return count;
  };
  CHECK(passing(18, 36) == 0);
  // From another cache: nearly all, and one in so many through the caches again.
  CHECK(passing(440, 36) > 9 * staging_choice::in_a_row);
  CHECK(passing(440, 36) < 10 * staging_choice::in_a_row);
  // The cores have moved: back after the next try.
  CHECK(passing(18, 36) <= staging_choice::in_a_row);
  CHECK(passing(18, 36) == 0);
  // What costs the writer less than twice as much may cost both together less.
  CHECK(passing(65, 36) == 0);
  // A machine whose stores past the caches are slow, and a copy that was interrupted.
  static_cast<void>(passing(440, 300));
  CHECK(passing(440, 300) <= staging_choice::in_a_row);
  CHECK(passing(440, 300) == 0);
  static_cast<void>(copy(1e6, 300));
  CHECK(passing(100, 300) <= staging_choice::in_a_row);
  CHECK(passing(100, 300) == 0);
  // Pages that nobody had written to before made the first copies past the caches slow; those after them are not.
  staging_choice another;
  for (unsigned i = 0; i < 2 * staging_choice::in_a_row; ++i) another.copied(another.wants_time() ? 900 : 0);
  unsigned through = 0;
  for (unsigned i = 0; i < 21000; ++i) {
    through += another.past_caches() || i < 20000 ? 0 : 1;
    another.copied(another.wants_time() ? another.past_caches() ? 40 : 435 : 0);
  }
  CHECK(through < 100);
}

TEST_CASE("staging copier: whole, whatever the length, through the caches or past them") {
  troupe::staging_copier copier;
  std::vector<std::byte> from(600 * kilobyte), to(from.size() + 64);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + i / 251);
  for (int round = 0; round < 40; ++round)
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{1}, 4 * kilobyte - 1, 4 * kilobyte, 64 * kilobyte + 13, 600 * kilobyte}) {
      const auto begin = static_cast<std::size_t>(round % 3);
      std::fill(to.begin(), to.end(), std::byte{});
      copier.copy(to.data() + begin, from.data(), bytes, bytes);
      CHECK(std::equal(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(bytes),
                       to.begin() + static_cast<std::ptrdiff_t>(begin)));
      CHECK(to[begin + bytes] == std::byte{});
    }
}
