// SPDX-License-Identifier: Apache-2.0
#include "topology/reach.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "memory/error.hpp"

namespace troupe {

namespace {
/// Two ranks of a process, else two of a host, else none.
/// @pre sorted
reach nearest_of(const std::vector<residence>& homes) {
  if (std::adjacent_find(homes.begin(), homes.end()) != homes.end()) return reach::process;
  const auto same_host = [](const residence& a, const residence& b) { return a.host == b.host; };
  return std::adjacent_find(homes.begin(), homes.end(), same_host) != homes.end() ? reach::segment : reach::network;
}
int most_of_host(const std::vector<residence>& homes) {
  std::map<int, int> ranks;
  int most = 0;
  for (const residence& home : homes) most = std::max(most, ++ranks[home.host]);
  return most;
}
}  // namespace

reach_map::reach_map(layout on) : layout_(std::move(on)), routed_(layout_.homes.empty() && !layout_.is_flat()) {
  const int ranks = layout_.size();
  if (!layout_.homes.empty() && layout_.homes.size() != static_cast<std::size_t>(ranks))
    throw error(errc::invalid_argument, "reach: the homes of " + std::to_string(layout_.homes.size()) +
                                            " ranks for a layout of " + std::to_string(ranks));
  ranks_of_host_ = ranks;
  // Being on one server, host or process is an equivalence, so the rank that is farthest from rank 0 is as far as any two are.
  int apart = 0;
  for (int r = 1; r < ranks; ++r)
    if (const reach how = between(0, r); how > farthest_) farthest_ = how, apart = r;
  if (farthest_ == reach::process) return;
  if (std::vector<residence> homes = layout_.homes; !homes.empty()) {
    std::sort(homes.begin(), homes.end());
    nearest_ = nearest_of(homes);
    ranks_of_host_ = most_of_host(homes);
  }
  const char* what = farthest_ == reach::segment ? "in different processes"
                     : layout_.homes.empty()     ? "on different servers"
                                                 : "on different hosts";
  why_apart_ = "ranks 0 and " + std::to_string(apart) + " are " + what + ", which share no memory";
}

const std::string& reach_map::why_no_buffers() const noexcept {
  static const std::string nothing;
  return farthest_ == reach::segment && layout_.copies ? nothing : why_apart_;
}

reach reach_map::between(int a, int b) const {
  const int server_a = layout_.server_of(a), server_b = layout_.server_of(b);  // which throw for an unknown rank
  if (layout_.homes.empty()) return server_a == server_b ? reach::process : reach::network;
  const residence &x = layout_.homes[static_cast<std::size_t>(a)], &y = layout_.homes[static_cast<std::size_t>(b)];
  if (x.host != y.host) return reach::network;
  return x.process == y.process ? reach::process : reach::segment;
}

}  // namespace troupe
