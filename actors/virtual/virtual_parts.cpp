// SPDX-License-Identifier: Apache-2.0
#include "actors/virtual/virtual_parts.hpp"

#include <algorithm>
#include <utility>

namespace troupe::actors {

virtual_parts::virtual_parts(const score& notes, const cutting& cut, std::function<void(rank_t, int)> on_arrived)
    : notes_(notes), order_(cut.order()), on_arrived_(std::move(on_arrived)) {
  for (const part& player : notes.players) lane_count_ = std::max(lane_count_, player.lanes.size());
  for (rank_t r = 0; r < notes.ranks; ++r) {
    rank_data d;
    d.inputs.resize(static_cast<std::size_t>(notes.partitions));
    d.arrivals.resize(lane_count_);
    d.missing.assign(static_cast<std::size_t>(cell_count(notes, r, buffer_kind::output) * notes.partitions /
                                              std::max(1, notes.parts)),
                     0);
    for (const arrival& a : arrivals_of(notes, r)) {
      d.arrivals[static_cast<std::size_t>(a.lane)].push_back(a);
      d.missing[static_cast<std::size_t>(a.piece)] += cut.channels;
    }
    d.lanes.resize(lane_count_ * static_cast<std::size_t>(cut.channels));
    ranks_.push_back(std::move(d));
  }
}

bool virtual_parts::await(rank_t rank, int piece, std::int32_t lane) {
  piece_state& p = ranks_[static_cast<std::size_t>(rank)].inputs[static_cast<std::size_t>(piece)];
  if (!p.ready) p.waiting.push_back(lane);
  return p.ready;
}

std::vector<std::int32_t> virtual_parts::make_ready(rank_t rank, int piece) {
  piece_state& p = ranks_[static_cast<std::size_t>(rank)].inputs[static_cast<std::size_t>(piece)];
  p.ready = true;
  return std::exchange(p.waiting, {});
}

void virtual_parts::performed(rank_t rank, std::int32_t lane) {
  rank_data& d = ranks_[static_cast<std::size_t>(rank)];
  const std::size_t own = static_cast<std::size_t>(lane) % lane_count_;
  lane_state& l = d.lanes[static_cast<std::size_t>(lane)];
  ++l.performed;
  // The data of a step are complete with its last slice.
  const std::size_t steps = notes_.players[static_cast<std::size_t>(rank)].lanes[own].size();
  const auto last = [&](const arrival& a) {
    return order_.index_of(steps, {static_cast<std::size_t>(a.index), order_.slices - 1});
  };
  const std::vector<arrival>& all = d.arrivals[own];
  for (; l.next < all.size() && last(all[l.next]) < l.performed; ++l.next)
    if (--d.missing[static_cast<std::size_t>(all[l.next].piece)] == 0) on_arrived_(rank, all[l.next].piece);
}

}  // namespace troupe::actors
