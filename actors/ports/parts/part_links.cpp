// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/parts/part_links.hpp"

#include <numeric>
#include <utility>

namespace troupe::actors {

part_links::part_links(const score& s, rank_t rank, int credits)
    : ranks_(s.ranks), first_(static_cast<std::size_t>(s.ranks) + 1) {
  for (const part& player : s.players) lanes_ = std::max(lanes_, static_cast<int>(player.lanes.size()));
  std::vector<std::pair<rank_t, std::uint32_t>> to;  // of one rank and lane: whom, and how many messages
  for (int l = 0; l < lanes_; ++l) {
    in_from_.push_back(static_cast<std::uint32_t>(in_.size()));
    out_from_.push_back(static_cast<std::uint32_t>(out_.size()));
    for (rank_t r = 0; r < s.ranks; ++r) {
      const part& player = s.players[static_cast<std::size_t>(r)];
      if (static_cast<std::size_t>(l) >= player.lanes.size()) continue;
      to.clear();
      for (const step& at : player.lanes[static_cast<std::size_t>(l)]) {
        if (!sends(at.kind)) continue;
        const auto known = std::ranges::find(to, at.to, &std::pair<rank_t, std::uint32_t>::first);
        if (known != to.end()) ++known->second;
        else to.emplace_back(at.to, 1);
      }
      for (const auto& [peer, messages] : to) {
        const std::uint32_t room = std::min(messages, static_cast<std::uint32_t>(credits));
        std::uint32_t& lines = first_[static_cast<std::size_t>(r) + 1];  // of that rank, so far
        const end made{r, lines, room, messages, 0};
        lines += (room + per_line - 1) / per_line;
        if (peer == rank) in_.push_back(made), in_.back().number = static_cast<std::uint32_t>(in_.size() - 1);
        if (r != rank) continue;
        out_.push_back(made);
        out_.back().peer = peer;
        out_.back().number = static_cast<std::uint32_t>(out_.size() - 1);
      }
    }
  }
  in_from_.push_back(static_cast<std::uint32_t>(in_.size()));
  out_from_.push_back(static_cast<std::uint32_t>(out_.size()));
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
}

}  // namespace troupe::actors
