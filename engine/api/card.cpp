// SPDX-License-Identifier: Apache-2.0
#include "engine/api/card.hpp"

#include <string>

#include "engine/world/communicator_state.hpp"
#include "memory/error.hpp"

namespace troupe {

namespace {

rank_t host_among(const communicator& of) {
  const communicator_state* state = state_of(of);
  if (state == nullptr) throw error(errc::invalid_argument, "card: the communicator is empty");
  const layout& places = state->placement;
  const bool known = places.size() == state->ranks && places.has_hosts();
  const auto refuse = [&](const std::string& why) {
    throw error(errc::unsupported, "card: " + state->name + " " + why);
  };
  rank_t host = -1;
  for (rank_t r = 0; known && r < state->ranks; ++r) {
    if (!places.of(r).host) continue;
    if (host >= 0)
      refuse("has two ranks at a host, " + std::to_string(host) + " and " + std::to_string(r) +
             "; split it, so that each host is with its cards");
    host = r;
  }
  if (host < 0) refuse("has no rank at a host (layout \"1x1x4+host\")");
  if (state->ranks == 1) refuse("has a host, and no core group");
  return host;
}

}  // namespace

card::card(communicator& of) : comm_(&of), host_(host_among(of)) {}

call_options card::named(host_way way, call_options options) {
  if (options.choreography.empty()) options.choreography = way == host_way::one_copy ? "one_copy" : "each_a_copy";
  return options;
}

block_list card::blocks(std::size_t size, std::size_t object) const {
  if (!is_host()) return {{size}, {}};
  // Rounded up: a size that the core groups cannot make up lacks room, which the call is refused for.
  const auto groups = static_cast<std::size_t>(core_groups());
  const std::size_t objects = size / object;
  const std::size_t part = (objects / groups + (objects % groups != 0 ? 1 : 0)) * object;
  block_list all{std::vector<std::size_t>(groups + 1, part), {}};
  all.counts[static_cast<std::size_t>(host_)] = 0;
  return all;
}

}  // namespace troupe
