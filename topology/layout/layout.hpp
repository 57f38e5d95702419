// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "memory/export.hpp"

namespace troupe {

/// Where one rank sits. All three count from 0; `card` is relative to its server, `core_group` to its card.
struct coordinates {
  int server = 0;
  int card = 0;
  int core_group = 0;
  /// On no card but at the server's host, in whose memory its buffers are. Its `card` is one more than the server's last one that holds a rank,
  /// so that who knows nothing of hosts sees one more card there; its `core_group` is 0.
  bool host = false;

  friend constexpr auto operator<=>(const coordinates&, const coordinates&) = default;
};

/// In which process a rank runs. Only which numbers are equal counts.
struct residence {
  int host = 0;
  int process = 0;  ///< no two hosts have one of the same number
  /// Hosts of one number are namespaces or containers of one running system, and share its cores. −1: a host has a computer of its own.
  int computer = -1;

  friend constexpr auto operator<=>(const residence&, const residence&) = default;
};

/// Which switches of the machine reduce what passes them, and multicast it. A bit each.
enum class fabric_reduction : std::uint8_t {
  none = 0,
  inside = 1,   ///< the switch that joins the ranks of a server (NVLink SHARP)
  between = 2,  ///< the network that joins the servers (SHARP)
  both = 3,
};

/// How ranks are placed on servers × cards × core groups, and how servers are grouped (pods, racks of pods, …). A value: copy it
/// freely, read it from any thread. The ranks of a server share memory, however deep the groups above it are; between servers is a network.
///
/// Invariants (`validate()` checks them; every named constructor returns a valid layout):
///  - the three extents and `ranks_per_core_group` are ≥ 1 and their product is at most 2²⁴;
///  - without `placement`, ranks fill the grid server-major:
///    rank = ((server·cards + card)·core_groups + core_group)·ranks_per_core_group + slot;
///  - with `placement`, rank r sits at placement[r], inside the extents; several ranks may share a core group, and
///    places may stay empty, so 7 ranks on 2 servers (4 + 3) need no special case;
///  - ranks at a host are in a placement, all of a server in one place, behind its cards;
///  - servers are numbered through all groups; a group is a run of neighbouring servers, and each level of `outer` splits all servers
///    into such runs, finer than the level before. There are at most `most_levels` levels, servers, cards and core groups among them.
///
/// Cost: `size`, `of` are O(1). The `ranks_of_…` queries allocate their result and are O(result) for a grid, O(size)
/// with a placement: ask once per server, not once per rank and step.
struct TROUPE_API layout {
  int servers = 1;
  int cards = 1;                         // per server (the largest server, if they differ)
  int core_groups = 1;                   // per card (the largest card, if they differ)
  int ranks_per_core_group = 1;          // only without a placement
  std::vector<coordinates> placement{};  // by rank; empty: the dense grid above
  std::vector<residence> homes{};        // by rank, as a join found them; empty: all ranks run in this process
  bool copies = false;                   // the system copies between the processes of a host, as the join found
  fabric_reduction reduces =
      fabric_reduction::none;  // which switches reduce: a property of the machine, not of the ranks
  /// Levels of groups of servers, outermost first: how many servers each group has. Without levels that part nothing (one
  /// group, or as many as the level below has), so that layouts that mean the same are equal.
  std::vector<std::vector<int>> outer{};

  static constexpr int most_levels = 8;

  // -- constructors: all throw error(errc::bad_config) that names the wrong number --

  /// `ranks` ranks without any hierarchy: all on one core group, so every route is a direct reference.
  static layout flat(int ranks);
  /// One rank per core group.
  static layout grid(int servers, int cards, int core_groups = 1);
  /// One rank per core group, all groups of a level alike: `extents` from the outside in, the last three a group's servers × cards ×
  /// core groups. @pre 3 to `most_levels` extents, else bad_config.
  static layout nested(std::span<const int> extents);
  /// Server s has cards_of_server[s] cards with `core_groups` ranks each: `ragged(std::array{4, 3})` places 7 ranks on 2 servers.
  static layout ragged(std::span<const int> cards_of_server, int core_groups = 1);
  /// `ranks` ranks over `servers` servers as evenly as possible (the first ones get one more), filling cards of
  /// `core_groups` core groups. @pre servers <= ranks, else bad_config.
  static layout spread(int ranks, int servers, int core_groups = 1);
  /// An explicit list: rank r sits at places[r]. Extents are the largest coordinate + 1. Of a rank at a host only the server counts.
  static layout placed(std::vector<coordinates> places);
  /// The same in groups: a path a rank, its groups from the outside in, then server, card (or `at_host`) and core group. Each number counts in the group
  /// around it, and groups are numbered without gaps. @pre all paths are equally long, 3 to `most_levels` numbers, else bad_config.
  static constexpr int at_host = -1;
  static layout placed_in_groups(const std::vector<std::vector<int>>& paths);
  /// The same ranks, and behind them one at the host of each server that holds any, in the order of the servers.
  /// @throws error(bad_config) if there is a rank at a host already
  layout with_hosts() const;
  /// "8" (flat) · "2x4" (servers × cards) · "2x4x4" (servers × cards × core groups) · "2x4x8x1" (pods × servers × cards × core
  /// groups; further levels in front) · "4+3" (cards per server) · "4+3x4" (cards per server, × core groups) · "4+3x8x1" (servers per
  /// pod, × cards × core groups; further levels behind the sum) · "0.0.0,0.0.1,1.0.0" (server.card.core_group of every rank;
  /// with groups in front, each number counting in its group, "0.1.0.0,1.0.0.0"; "0.host" for a rank at a host). Behind any of them
  /// "+host", a rank more at each server's host (with_hosts()), and which switches reduce: "2x8:inside" · "2x8:between" · "2x8:both".
  static layout parse(std::string_view text);
  /// No places, or nothing but which switches reduce: ":inside", of ranks whose places something else says.
  static bool leaves_places_open(std::string_view text) { return text.empty() || text.front() == ':'; }
  /// Which switches reduce, as the end of such a text says. Throws as parse().
  static fabric_reduction reduction_of(std::string_view text);

  /// @throws error(errc::bad_config) if an invariant does not hold (only possible after editing the members).
  void validate() const;

  // -- whole layout --

  int size() const noexcept;      // number of ranks
  int server_count() const;       // servers that hold at least one rank
  bool is_flat() const noexcept;  // all ranks share one core group: no hierarchy to exploit
  bool uniform() const;           // every server that holds ranks holds the same number of them
  bool is_grid() const noexcept { return placement.empty(); }
  bool has_hosts() const noexcept;  // some rank sits at a host; O(size) with a placement
  bool reduces_inside() const noexcept { return (static_cast<unsigned>(reduces) & 1u) != 0; }
  bool reduces_between() const noexcept { return (static_cast<unsigned>(reduces) & 2u) != 0; }
  /// Levels of groups above the servers.
  int outer_levels() const noexcept { return static_cast<int>(outer.size()); }

  // -- one rank, server or card; @throws error(errc::invalid_argument) when out of range --

  coordinates of(int rank) const;
  int server_of(int rank) const { return of(rank).server; }
  /// The group of a level of `outer` that a server belongs to, by number in the whole level. O(groups of the level).
  int group_of_server(int level, int server) const;
  std::vector<int> ranks_of_server(int server) const;          // ordered by card, core group, rank
  std::vector<int> ranks_of_card(int server, int card) const;  // ordered by core group, rank
  /// Position of `rank` in ranks_of_server(its server).
  int local_index(int rank) const;
  /// Ranks with the same local index, one per server in server order, `rank` itself included. A server with fewer
  /// ranks contributes nobody. These are the pairs that spec 2 joins through the switches.
  std::vector<int> same_index_peers(int rank) const;

  /// The layout of a subset (communicator split): new rank i is members[i]. Servers, cards and core groups that lost all
  /// their ranks disappear and the rest are renumbered without gaps, so algorithms never meet an empty server. Servers stay in their
  /// groups; a level that parts nothing any more disappears. Routes still belong to the machine of the full layout and are asked with the full layout's ranks.
  /// @throws error(errc::invalid_argument) for an empty list, an unknown rank or one named twice.
  layout subset(std::span<const int> members) const;

  /// A text that parse() reads back, but for the homes.
  std::string to_string() const;

  friend bool operator==(const layout&, const layout&) = default;
};

}  // namespace troupe
