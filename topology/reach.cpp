// SPDX-License-Identifier: Apache-2.0
#include "topology/reach.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <span>
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
using count_by_number = std::map<std::pair<int, int>, int>;
int most_of(const count_by_number& ranks) {
  return std::ranges::max_element(ranks, {}, &count_by_number::value_type::second)->second;
}
}  // namespace

reach_map::reach_map(layout on) : layout_(std::move(on)), routed_(layout_.homes.empty() && !layout_.is_flat()) {
  const int ranks = layout_.size();
  if (!layout_.homes.empty() && layout_.homes.size() != static_cast<std::size_t>(ranks))
    throw error(errc::invalid_argument, "reach: the homes of " + std::to_string(layout_.homes.size()) +
                                            " ranks for a layout of " + std::to_string(ranks));
  ranks_of_host_ = ranks_of_computer_ = ranks;
  // Being on one server, host or process is an equivalence, so the rank that is farthest from rank 0 is as far as any two are.
  int apart = 0;
  for (int r = 1; r < ranks; ++r)
    if (const reach how = between(0, r); how > farthest_) farthest_ = how, apart = r;
  if (farthest_ == reach::process) return;
  if (std::vector<residence> homes = layout_.homes; !homes.empty()) {
    std::sort(homes.begin(), homes.end());
    nearest_ = nearest_of(homes);
    count_by_number of_host, of_computer;
    for (const residence& home : homes) {
      ++of_host[{home.host, 0}];
      ++of_computer[{home.computer, home.computer < 0 ? home.host : 0}];
    }
    ranks_of_host_ = most_of(of_host);
    computers_ = static_cast<int>(of_computer.size());
    ranks_of_computer_ = most_of(of_computer);
    for (int level = 0; level < layout_.outer_levels(); ++level) {
      auto& groups = group_of_.emplace_back();
      for (int s = 0; s < layout_.servers; ++s) groups.push_back(layout_.group_of_server(level, s));
    }
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

int reach_map::borders_between(int a, int b) const {
  if (group_of_.empty()) return 0;
  const auto x = static_cast<std::size_t>(layout_.server_of(a)), y = static_cast<std::size_t>(layout_.server_of(b));
  return static_cast<int>(std::ranges::count_if(group_of_, [&](const auto& groups) { return groups[x] != groups[y]; }));
}

std::vector<std::uint32_t> reach_map::hosts() const {
  if (farthest_link() != reach::network) return {};
  std::map<int, std::uint32_t> number;
  std::vector<std::uint32_t> by_rank;
  for (const residence& home : layout_.homes)
    by_rank.push_back(number.try_emplace(home.host, static_cast<std::uint32_t>(number.size())).first->second);
  return by_rank;
}

bool reach_map::one_process_a_host() const {
  std::map<int, int> process_of;
  return std::ranges::all_of(layout_.homes, [&](const residence& home) {
    return process_of.try_emplace(home.host, home.process).first->second == home.process;
  });
}

int reach_map::ranks_of_each_host() const { return troupe::ranks_of_each_host(layout_); }

// -- hosts with several ranks each ------------------------------------------------------------------------------------------

namespace {

/// Which of its neighbours before it each rank shares the process with, so that hosts can be compared.
std::vector<int> divided(std::span<const residence> host) {
  std::vector<int> first_of;
  for (const residence& r : host)
    first_of.push_back(static_cast<int>(std::ranges::find(host, r.process, &residence::process) - host.begin()));
  return first_of;
}

}  // namespace

int ranks_of_each_host(const layout& on) {
  const std::span<const residence> homes{on.homes};
  if (homes.empty()) return 0;
  const auto second = std::ranges::find_if(homes, [&](const residence& r) { return r.host != homes.front().host; });
  const auto many = static_cast<std::size_t>(second - homes.begin());
  if (second == homes.end() || many < 2 || homes.size() % many != 0) return 0;
  const std::vector<int> first = divided(homes.first(many));
  std::set<int> seen;
  for (std::size_t begin = 0; begin < homes.size(); begin += many) {
    const auto host = homes.subspan(begin, many);
    const bool together = std::ranges::all_of(host, [&](const residence& r) { return r.host == host.front().host; });
    if (!together || !seen.insert(host.front().host).second || divided(host) != first) return 0;
  }
  return static_cast<int>(many);
}

layout layout_of_host(const layout& on, int of_host) {
  std::vector<int> members(static_cast<std::size_t>(of_host));
  std::iota(members.begin(), members.end(), 0);
  return on.subset(members);
}

layout layout_of_first_ranks(const layout& on, int of_host) {
  std::vector<int> members;
  for (int r = 0; r < on.size(); r += of_host) members.push_back(r);
  return on.subset(members);
}

}  // namespace troupe
