// SPDX-License-Identifier: Apache-2.0
// A shared library of choreographies, as somebody outside would write one: for all_gather, everybody sends to everybody. The second one is
// wrong, and has to be refused before it is performed.

#include "protocols/choreographies/plugin.hpp"
#include "protocols/score/score_builder.hpp"

#include <array>
#include <string>

using namespace troupe::notation;

namespace {

troupe::score gossip(const troupe::setup& on) {
  troupe::score_builder s{on, "gossip", 1};
  for (troupe::rank_t r = 0; r < on.ranks; ++r) {
    auto me = s.lane(r);
    me.copy_own(input[r], output[r]);
    for (int d = 1; d < on.ranks; ++d) me.to((r + d) % on.ranks).send(input[r]);
    for (int d = 1; d < on.ranks; ++d) {
      const troupe::rank_t from = (r + on.ranks - d) % on.ranks;
      me.from(from).recv(output[from]);
    }
  }
  return s.finish();
}

/// Leaves out what the last rank has.
troupe::score forgetful(const troupe::setup& on) {
  troupe::score_builder s{on, "forgetful", 1};
  for (troupe::rank_t r = 0; r < on.ranks; ++r) s.lane(r).copy_own(input[r], output[r]);
  return s.finish();
}

std::string nothing(const troupe::setup&) { return {}; }

constexpr std::array gossip_offers{troupe::offer{troupe::collective::all_gather, gossip}};
constexpr std::array forgetful_offers{troupe::offer{troupe::collective::all_gather, forgetful}};

constexpr troupe::choreography gossips{"gossip", "everybody sends to everybody", "tests/plugin", gossip_offers,
                                       nothing};
constexpr troupe::choreography forgets{"forgetful", "nobody sends", "tests/plugin", forgetful_offers, nothing};

}  // namespace

TROUPE_CHOREOGRAPHIES(&gossips, &forgets);
