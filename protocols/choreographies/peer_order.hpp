// SPDX-License-Identifier: Apache-2.0
#pragma once
// In which order a rank meets its peers in a group of sends and receives, as NCCL 2.19 has it (spec 5, "Grouped point-to-point"; init.cc,
// "Setup p2p structures", and channel.h, ncclChannelComputeBase). All ranks have the same order, and each is met by the one it meets:
//   servers       at the distances 0, n/2, 1, −1, n/2 − 1, −(n/2 − 1), 2, …, each once: to the server so far ahead, from the one as far behind
//   their ranks   at each of these, step by step: to the local index so far ahead of one's own, from the one as far behind
//   channels      a server at distance d is met on channel d, and one more for every eight steps; on a single server step s on channel s
// So in every round each rank sends to one rank and receives from one. Servers of different sizes have as many steps as the largest.

#include <algorithm>
#include <vector>

#include "protocols/choreographies/hierarchy.hpp"

namespace troupe::choreographies {

class peer_order {
public:
  /// @pre not empty
  explicit peer_order(const layout& placement) : where_(placement), round_of_(static_cast<std::size_t>(servers())) {
    for (int server = 0; server < servers(); ++server) steps_ = std::max(steps_, where_.size_of(server));
    for (int d = 0; d <= servers() / 4; ++d)
      for (const int distance : {d, (servers() - d) % servers(), servers() / 2 - d, servers() - (servers() / 2 - d)})
        add(distance % servers());
  }

  int servers() const { return where_.servers(); }
  int steps() const { return steps_; }
  /// Distances of servers, in the order in which they are met.
  const std::vector<int>& distances() const { return distances_; }
  /// The rank that this one sends to in a step of a distance; negative: the one that it receives from. −1: that server has none there.
  rank_t at(rank_t me, int distance, int step) const {
    const int wrapped = ((where_.index_of(me) + step) % steps_ + steps_) % steps_;
    const int server = where_.server_of(me) + distance;
    return wrapped < where_.size_of(server) ? where_.at(server, wrapped) : -1;
  }
  /// Without an end; whoever has fewer wraps it round.
  int channel(int distance, int step) const {
    constexpr int steps_of_channel = 8;  // NCCL_MAX_WORK_ELEMENTS_P2P / 2
    return servers() > 1 ? distance + step / steps_of_channel : step;
  }

  /// The round in which one sends to the other, of all of them.
  int round(rank_t from, rank_t to) const {
    return round_of_[static_cast<std::size_t>(distance(from, to))] * steps_ + step(from, to);
  }
  int channel_between(rank_t from, rank_t to) const { return channel(distance(from, to), step(from, to)); }

private:
  void add(int distance) {
    if (std::find(distances_.begin(), distances_.end(), distance) != distances_.end()) return;
    round_of_[static_cast<std::size_t>(distance)] = static_cast<int>(distances_.size());
    distances_.push_back(distance);
  }
  int distance(rank_t from, rank_t to) const {
    return (where_.server_of(to) - where_.server_of(from) + servers()) % servers();
  }
  int step(rank_t from, rank_t to) const { return (where_.index_of(to) - where_.index_of(from) + steps_) % steps_; }

  hierarchy where_;
  std::vector<int> distances_, round_of_;  // the rounds by distance
  int steps_ = 0;
};

}  // namespace troupe::choreographies
