// SPDX-License-Identifier: Apache-2.0
// Communicators on several simulated hosts: calls in tiers, and hosts that are lost.

#include <doctest/doctest.h>

#include "memory/error.hpp"
#include "tests/simulation/scenarios.hpp"

using namespace simulation_test;

namespace {

/// With hosts of their own for many of them.
campaign_options on_hosts(std::uint64_t last) {
  campaign_options o = seeds(1, last);
  o.limits.least_ranks = 4;
  o.limits.most_ranks = 8;
  return o;
}

way in_tiers(port_kind board, int of_host) {
  way how;
  how.port = port_kind::tiers;
  how.of_host = of_host;
  how.choreography = choreography_named("recursive_doubling");
  const bool direct = board == port_kind::direct;
  how.collect = {choreography_named(direct ? "fused" : "binomial"), board};
  how.spread = how.collect;
  if (!direct) how.collect.agreement = how.spread.agreement = agreement_form::rounds;
  return how;
}

/// Several all-reduces, one behind the other.
scenario reducing(port_kind board, int hosts = 2, int of_host = 2) {
  scenario s;
  s.ranks = hosts * of_host;
  s.of_host = of_host;
  s.pairs_by_mailbox = s.parts_by_mailbox = true;
  for (int i = 0; i < 3; ++i)
    s.items.push_back(collective_item(i, collective::all_reduce, 5, in_tiers(board, of_host)));
  return s;
}

constexpr std::array boards{port_kind::ll, port_kind::ll128, port_kind::direct};

}  // namespace

TEST_CASE("tiers: seeds of more ranks, so that many are on several hosts") { check_all_right(on_hosts(3'000)); }

TEST_CASE("tiers: what each rank contributes comes to all, over every board, whatever the schedule") {
  for (const port_kind board : boards)
    for (const auto& shape : {std::pair{2, 2}, {3, 2}, {2, 4}}) {
      const int hosts = shape.first, of_host = shape.second;
      CAPTURE(name(board));
      CAPTURE(hosts);
      check_schedules(reducing(board, hosts, of_host), 200);
      const simulation_result r = told_run(reducing(board, hosts, of_host), 1);
      CHECK(r.performed == static_cast<std::uint64_t>(3 * hosts * of_host));
      CHECK(tells(r, "from rank 0 reaches rank " + std::to_string(of_host)));
      CHECK_FALSE(tells(r, "from rank 0 reaches rank 1"));  // that is what the board is for
    }
}

TEST_CASE("tiers: whatever happens to a rank at any moment, all hear of it, and nothing is touched afterwards") {
  using kind = disturbance::kind;
  std::uint64_t failed = 0, performed = 0;
  for (const port_kind board : boards)
    for (const kind what :
         {kind::kill, kind::abort, kind::cancel, kind::deadline, kind::leave, kind::refuse, kind::skip})
      for (const std::int64_t after : {0, 2'000, 5'000, 9'000})
        for (const rank_t rank : {0, 1, 2, 3}) {
          CAPTURE(name(board));
          const simulation_result r = check_disturbed(reducing(board), {what, rank, 1, after, 1, {}});
          failed += r.failed;
          performed += r.performed;
        }
  CHECK(failed > 100);
  CHECK(performed > 100);
}

TEST_CASE("tiers: of a host that is lost in the middle all that are left hear, and the reason is true") {
  std::uint64_t lost = 0;
  for (const port_kind board : boards) {
    scenario s = reducing(board, 3, 2);
    s.lose_percent = 10;
    check_schedules(s, 300);
    for (std::uint64_t seed = 1; seed <= 30; ++seed)
      lost += tells(told_run(s, seed), "fails: the connection to host") ? 1 : 0;
  }
  CHECK(lost > 30);
}
