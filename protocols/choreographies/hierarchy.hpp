// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ranks as the hierarchical choreographies see them: servers, and the local index in a server.

#include <algorithm>
#include <string>
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

/// Empty if the layout places exactly the stage's ranks.
inline std::string needs_places(const stage& on) {
  if (on.placement.size() == on.ranks) return {};
  return "the layout has places for " + std::to_string(on.placement.size()) + " ranks, the communicator has " +
         std::to_string(on.ranks);
}

/// Empty if, besides, every server holds the same number of ranks.
inline std::string needs_equal_servers(const stage& on) {
  if (std::string why = needs_places(on); !why.empty()) return why;
  if (on.placement.uniform()) return {};
  return "the servers hold different numbers of ranks, so some ranks have no partner of the same index in every "
         "server; "
         "use a choreography that ignores the layout, or staged_pairwise for all_to_all";
}

}  // namespace troupe::choreographies
