// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which ranks share memory. The code that chooses a port or a choreography asks here instead of guessing from the form of a layout.
//
// Two things decide. Where the ranks run: in one process, in several processes of a host, or on several hosts. And the layout, which
// may describe a machine that this computer is not: its servers share no memory, and what passes from one core group to another goes
// through elements of that machine (machine/routes.hpp), which nothing may bypass.

#include <cstdint>
#include <string>
#include <vector>

#include "memory/export.hpp"
#include "topology/layout/layout.hpp"

namespace troupe {

/// How a rank gets at another one's memory, nearest first.
enum class reach : std::uint8_t {
  process,  ///< by address
  segment,  ///< through what both processes map; what does not lie there the system copies, if it may
  network,  ///< not at all
};
inline constexpr int reach_count = 3;
/// Levels of groups of hosts: as many as a layout can have above its servers, cards and core groups.
inline constexpr int most_borders = layout::most_levels - 3;

/// A value; any thread.
class TROUPE_API reach_map {
public:
  /// O(ranks). Throws error(invalid_argument) if the layout has not as many homes as ranks.
  explicit reach_map(layout on);

  /// Throws error(invalid_argument) for an unknown rank.
  reach between(int a, int b) const;
  /// Of the two ranks that are farthest from each other.
  reach farthest() const noexcept { return farthest_; }
  /// The same of each other's buffers, which the system may copy from and to between the processes of a host.
  const std::string& why_no_buffers() const noexcept;
  /// The reach that messages between the two ranks go through. A layout without homes is a model, and its messages stay in the process. Throws as between().
  reach link_between(int a, int b) const { return layout_.homes.empty() ? reach::process : between(a, b); }
  /// Of ranks of two hosts: how many levels of groups of hosts (pods, racks of pods …) part them. 0: they are in one innermost group, or on one host, or the layout has no homes.
  int borders_between(int a, int b) const;
  /// Of the two ranks that are farthest from each other.
  int most_borders_between() const noexcept { return static_cast<int>(group_of_.size()); }
  /// The same at worst.
  reach farthest_link() const noexcept { return layout_.homes.empty() ? reach::process : farthest_; }
  /// And at best: of the two ranks that are nearest to each other. @pre two ranks at least
  reach nearest_link() const noexcept { return layout_.homes.empty() ? reach::process : nearest_; }
  /// Of the host that has most; of a layout without homes all ranks.
  int most_ranks_of_host() const noexcept { return ranks_of_host_; }
  /// On which the hosts are: several namespaces or containers may be on one. Of a layout without homes one.
  int computers() const noexcept { return computers_; }
  /// As most_ranks_of_host().
  int most_ranks_of_computer() const noexcept { return ranks_of_computer_; }
  /// By rank the number of its host, in the order in which ranks meet them; empty: all are on one.
  std::vector<std::uint32_t> hosts() const;
  /// Of every host all ranks run in one process.
  bool one_process_a_host() const;
  /// As troupe::ranks_of_each_host().
  int ranks_of_each_host() const;
  /// The system copies between the processes of a host.
  bool copies() const noexcept { return layout_.copies; }
  /// Messages from one rank to another may have to go through elements of the layout: it is a model, not what a join found.
  bool routed() const noexcept { return routed_; }
  /// Why not all ranks reach each other's memory: "ranks 0 and 4 are on different servers, which share no memory". Empty if they do.
  const std::string& why_apart() const noexcept { return why_apart_; }

private:
  layout layout_;
  reach farthest_ = reach::process, nearest_ = reach::process;
  int ranks_of_host_ = 0, computers_ = 1, ranks_of_computer_ = 0;
  bool routed_ = false;
  std::string why_apart_;
  std::vector<std::vector<int>> group_of_;  ///< [level][server], where homes have such levels
};

/// Of several hosts whose ranks follow each other: how many ranks each host has, if all have as many, more than one, and in processes that divide
/// them alike. Else 0. O(ranks).
TROUPE_API int ranks_of_each_host(const layout& on);
/// The layout of the first host's ranks, and that of the hosts' first ranks. @pre of_host == ranks_of_each_host(on) > 0
TROUPE_API layout layout_of_host(const layout& on, int of_host);
TROUPE_API layout layout_of_first_ranks(const layout& on, int of_host);

}  // namespace troupe
