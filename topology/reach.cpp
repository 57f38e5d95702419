// SPDX-License-Identifier: Apache-2.0
#include "topology/reach.hpp"

#include <algorithm>
#include <utility>

#include "memory/error.hpp"

namespace troupe {

reach_map::reach_map(layout on, std::vector<residence> homes)
    : layout_(std::move(on)), homes_(std::move(homes)), routed_(!layout_.is_flat()) {
  const int ranks = layout_.size();
  if (!homes_.empty() && homes_.size() != static_cast<std::size_t>(ranks))
    throw error(errc::invalid_argument, "reach: the homes of " + std::to_string(homes_.size()) +
                                            " ranks for a layout of " + std::to_string(ranks));
  // Being on one server, host or process is an equivalence, so the rank that is farthest from rank 0 is as far as any two are.
  int apart = 0;
  for (int r = 1; r < ranks; ++r)
    if (const reach how = between(0, r); how > farthest_) farthest_ = how, apart = r;
  if (farthest_ != reach::network) return;
  const bool by_layout = layout_.server_of(0) != layout_.server_of(apart);
  why_apart_ = "ranks 0 and " + std::to_string(apart) + " are on different " + (by_layout ? "servers" : "hosts") +
               ", which share no memory";
}

reach reach_map::between(int a, int b) const {
  if (layout_.server_of(a) != layout_.server_of(b)) return reach::network;
  if (homes_.empty()) return reach::process;
  const residence &x = homes_[static_cast<std::size_t>(a)], &y = homes_[static_cast<std::size_t>(b)];
  if (x.host != y.host) return reach::network;
  return x.process == y.process ? reach::process : reach::segment;
}

}  // namespace troupe
