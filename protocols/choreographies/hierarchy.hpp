// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ranks as the hierarchical choreographies see them: servers, and the local index in a server.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "protocols/score/score_builder.hpp"

namespace troupe::choreographies {

/// Neighbouring ranks of a list whose numbers are neighbours, too: their cells in a buffer travel in one message.
struct run {
  rank_t first;  ///< rank
  int offset;    ///< its position in the list
  int count;
};

inline std::vector<run> runs_of(const std::vector<rank_t>& ranks) {
  std::vector<run> runs;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (!runs.empty() && runs.back().first + runs.back().count == ranks[i]) ++runs.back().count;
    else runs.push_back({ranks[i], static_cast<int>(i), 1});
  }
  return runs;
}

struct message {
  rank_t peer;
  cells what;
};

/// Send, receive, send, receive …: with one credit, nobody may send twice to a rank that is waiting to be received from.
inline void interleave(lane_writer& me, const std::vector<message>& out, const std::vector<message>& in) {
  for (std::size_t i = 0; i < std::max(out.size(), in.size()); ++i) {
    if (i < out.size()) me.to(out[i].peer).send(out[i].what);
    if (i < in.size()) me.from(in[i].peer).recv(in[i].what);
  }
}

/// Servers without ranks are left out. @pre placement.size() is the number of ranks
class hierarchy {
public:
  explicit hierarchy(const layout& placement)
      : server_of_(static_cast<std::size_t>(placement.size())), index_of_(server_of_.size()) {
    for (int server = 0; server < placement.servers; ++server) {
      std::vector<rank_t> here = placement.ranks_of_server(server);
      for (std::size_t i = 0; i < here.size(); ++i) {
        server_of_[static_cast<std::size_t>(here[i])] = servers();
        index_of_[static_cast<std::size_t>(here[i])] = static_cast<int>(i);
      }
      if (!here.empty()) members_.push_back(std::move(here));
    }
  }

  int servers() const { return static_cast<int>(members_.size()); }
  int server_of(rank_t rank) const { return server_of_[static_cast<std::size_t>(rank)]; }
  int index_of(rank_t rank) const { return index_of_[static_cast<std::size_t>(rank)]; }
  /// Ranks of a server by local index; server numbers wrap round.
  const std::vector<rank_t>& members(int server) const { return members_[wrap(server, members_.size())]; }
  int size_of(int server) const { return static_cast<int>(members(server).size()); }
  /// Ranks of the server that has fewest.
  int smallest() const {
    int least = size_of(0);
    for (int server = 1; server < servers(); ++server) least = std::min(least, size_of(server));
    return least;
  }
  /// The rank at a local index of a server; both wrap round.
  rank_t at(int server, int index) const {
    const auto& here = members(server);
    return here[wrap(index, here.size())];
  }

private:
  static std::size_t wrap(int i, std::size_t size) {
    const int n = static_cast<int>(size);
    return static_cast<std::size_t>((i % n + n) % n);
  }

  std::vector<std::vector<rank_t>> members_;
  std::vector<int> server_of_;
  std::vector<int> index_of_;
};

/// The same ranks as a tree of any depth in which all groups of a level hold as many. A rank is a row of digits, one a level from the
/// outside in: which of the groups it is in, counted in the group around; the last digit counts ranks. Levels of the layout that part
/// nothing, or whose groups hold different numbers of ranks, are left out, so the ranks of such groups are taken together.
/// @pre placement.uniform(), placement.size() is the number of ranks
class nested_groups {
public:
  explicit nested_groups(const layout& placement) : order_(in_order(placement)), position_of_(order_.size()) {
    for (std::size_t p = 0; p < order_.size(); ++p)
      position_of_[static_cast<std::size_t>(order_[p])] = static_cast<int>(p);
    for (int level = 0; level < placement.outer_levels(); ++level)
      split([&](rank_t r) { return placement.group_of_server(level, placement.server_of(r)); }, false);
    split([&](rank_t r) { return placement.server_of(r); }, extents_.empty());
    between_servers_ = depth();
    const auto card = [&](rank_t r) { return std::pair{placement.server_of(r), placement.of(r).card}; };
    split(card, false);
    split([&](rank_t r) { return placement.of(r); }, false);
    if (const int rest = group_size_; rest > 1 || depth() == between_servers_) extents_.push_back(rest);
    sizes_.assign(extents_.size(), 1);
    for (std::size_t level = extents_.size() - 1; level > 0; --level)
      sizes_[level - 1] = sizes_[level] * extents_[level];
  }

  /// At least two: one between servers, one inside.
  int depth() const { return static_cast<int>(extents_.size()); }
  /// So many of the outer levels are between servers.
  int between_servers() const { return between_servers_; }
  int extent(int level) const { return extents_[static_cast<std::size_t>(level)]; }
  /// Ranks in a group of a level: 1 in the last.
  int group_size(int level) const { return sizes_[static_cast<std::size_t>(level)]; }
  int digit(rank_t rank, int level) const { return position(rank) / group_size(level) % extent(level); }
  /// The rank whose digits are those of `rank`, but for one, which wraps round.
  rank_t with_digit(rank_t rank, int level, int value) const {
    const int n = extent(level), wrapped = (value % n + n) % n;
    return at(position(rank) + (wrapped - digit(rank, level)) * group_size(level));
  }
  /// Ranks that have the digits of one another at a level and further in: one in each combination of those further out.
  int columns(int level) const { return static_cast<int>(order_.size()) / (extent(level) * group_size(level)); }
  /// The same order turned round, in which the last digit counts most: ranks that share it are neighbours, among them those that share
  /// the one before …, `columns(level)` of each.
  rank_t turned(int index) const {
    int position = 0;
    for (int level = 0; level < depth(); ++level)
      position += index / columns(level) % extent(level) * group_size(level);
    return at(position);
  }
  int turned_position(rank_t rank) const {
    int index = 0;
    for (int level = 0; level < depth(); ++level) index += digit(rank, level) * columns(level);
    return index;
  }
  /// Ranks in the order of their digits.
  rank_t at(int position) const { return order_[static_cast<std::size_t>(position)]; }
  int position(rank_t rank) const { return position_of_[static_cast<std::size_t>(rank)]; }

  /// The extents of all levels.
  const std::vector<int>& extents() const { return extents_; }
  /// A layout of the same levels, with other extents. @pre as many as there are levels
  layout like(const std::vector<int>& extents) const {
    std::vector<int> all{extents.begin(), extents.begin() + between_servers_};
    int core_groups = 1;
    for (int level = between_servers_ + 1; level < depth(); ++level)
      core_groups *= extents[static_cast<std::size_t>(level)];
    all.insert(all.end(), {extents[static_cast<std::size_t>(between_servers_)], core_groups});
    return layout::nested(all);
  }

private:
  static std::vector<rank_t> in_order(const layout& placement) {
    std::vector<rank_t> all;
    for (int server = 0; server < placement.servers; ++server)
      for (const rank_t rank : placement.ranks_of_server(server)) all.push_back(rank);
    return all;
  }

  /// A level of the groups that `group_of` tells apart, if they are of one size and, unless `always`, part anything.
  template <class GroupOf>
  void split(GroupOf group_of, bool always) {
    std::vector<int> sizes;
    for (std::size_t p = 0; p < order_.size(); ++p) {
      if (p == 0 || group_of(order_[p - 1]) != group_of(order_[p])) sizes.push_back(0);
      ++sizes.back();
    }
    if (sizes.empty() || std::adjacent_find(sizes.begin(), sizes.end(), std::not_equal_to<>{}) != sizes.end()) return;
    if (sizes.front() == group_size_ && !always) return;
    extents_.push_back(group_size_ / sizes.front());
    group_size_ = sizes.front();
  }

  std::vector<rank_t> order_;  // by position
  std::vector<int> position_of_;
  std::vector<int> extents_, sizes_;
  int group_size_ = static_cast<int>(order_.size());  // of the levels so far
  int between_servers_ = 0;
};

/// Empty if the layout places exactly the setup's ranks.
inline std::string needs_places(const setup& on) {
  if (on.placement.size() == on.ranks) return {};
  return "the layout has places for " + std::to_string(on.placement.size()) + " ranks, the communicator has " +
         std::to_string(on.ranks);
}

/// NICs of a server that ring_per_nic and tree_per_nic use: as many as the setup says, at most one for each rank of the smallest server.
inline int nics_used(const setup& on, const hierarchy& where) {
  return on.nics > 0 ? std::min(on.nics, where.smallest()) : where.smallest();
}

/// The local index of the first rank of a server that has this NIC, where neighbours share one: there it is entered. @pre nic < nics <= ranks
inline int entrance_of(int nic, int nics, int ranks) { return (nic * ranks + nics - 1) / nics; }

/// Why those two cannot be written. @param lanes of a rank for each NIC @param otherwise what they would be with one rank a server
inline std::string refuses_without_nics(const setup& on, int lanes, const std::string& otherwise) {
  if (std::string why = needs_places(on); !why.empty()) return why;
  const hierarchy where{on.placement};
  if (where.servers() < 2) return "on one server nothing goes through a NIC; it needs at least two servers";
  setup all = on;
  all.nics = 0;
  if (nics_used(all, where) < 2) return "a server has a single rank; " + otherwise + " is for one NIC a server";
  const bool fits = static_cast<std::int64_t>(on.ranks) * lanes * nics_used(on, where) <= most_lanes;
  return fits ? "" : "more lanes than a verifier can take";
}

/// Empty if, besides, every server holds the same number of ranks.
inline std::string needs_equal_servers(const setup& on) {
  if (std::string why = needs_places(on); !why.empty()) return why;
  if (on.placement.uniform()) return {};
  return "the servers hold different numbers of ranks, so some ranks have no partner of the same index in every "
         "server; "
         "use hierarchical_pipeline, or a choreography that ignores the layout";
}

}  // namespace troupe::choreographies
