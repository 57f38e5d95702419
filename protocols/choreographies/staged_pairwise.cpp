// SPDX-License-Identifier: Apache-2.0
// Staged pairwise (spec 4, "Staged Pairwise"), all-to-all on two levels:
//   stage 1  pairwise inside each server: every block goes to the rank of its server that has the same index as the block's
//            destination. Blocks for the own server have arrived.
//   stage 2  pairwise between ranks of the same index on different servers.
// A barrier of the group follows every step: (p₁ − 1) + (p₂ − 1) steps.
//
// Data that passes an intermediate rank waits there in scratch, sorted by destination. Stage 1 therefore sends block by block,
// each to where stage 2 wants it, and stage 2 sends what a whole server has for one rank in one message.
// Servers of different sizes: the intermediate rank for destination d is the one with index (index of d) mod (size of the
// source's server). In stage 2 a rank of a small server may so serve several ranks of a large one; the barriers of stage 2
// are then among all ranks.

#include <numeric>

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/hierarchy.hpp"

namespace troupe::choreographies {

namespace staged_pairwise_scores {
namespace {
using namespace notation;

/// Dissemination barrier of a group by tokens.
void barrier(lane_writer& me, const std::vector<rank_t>& group, int index) {
  const int size = static_cast<int>(group.size());
  for (int reach = 1; reach < size; reach *= 2) {
    me.signal(group[static_cast<std::size_t>((index + reach) % size)]);
    me.await(group[static_cast<std::size_t>((index - reach + size) % size)]);
  }
}

/// One rank's part of the exchange.
class traveller {
public:
  traveller(score_builder& s, const hierarchy& h, rank_t r)
      : s_(s),
        h_(h),
        r_(r),
        here_(h.server_of(r)),
        index_(h.index_of(r)),
        me_(s.lane(r)),
        waiting_(static_cast<std::size_t>(s.on().ranks), -1),
        passed_on_(static_cast<std::size_t>(h.size_of(here_))) {
    for (rank_t d = 0; d < s.on().ranks; ++d)
      passed_on_[static_cast<std::size_t>(h_.index_of(relay(here_, d)))].push_back(d);
    s.stage_input(r);
    me_.copy_own(input[r], output[r]);
    for (rank_t d = 0; d < s.on().ranks; ++d) {
      if (h_.server_of(d) == here_ || relay(here_, d) != r) continue;
      for (const rank_t q : h_.members(here_)) {
        const cells at = s.scratch_block(r, static_cast<std::int64_t>(q) * s.on().ranks + d);
        if (waiting_[static_cast<std::size_t>(d)] < 0) waiting_[static_cast<std::size_t>(d)] = at.first;
      }
      me_.copy(s.staged(r, input[d]), waiting(d, index_));
    }
  }

  void inside_the_server() {
    const auto& group = h_.members(here_);
    for (int k = 1; k < h_.size_of(here_); ++k) {
      const rank_t ahead = h_.at(here_, index_ + k), behind = h_.at(here_, index_ - k);
      std::vector<message> out, in;
      for (const rank_t d : passed_on_[static_cast<std::size_t>(h_.index_of(ahead))])
        out.push_back({ahead, s_.staged(r_, input[d])});
      for (const rank_t d : passed_on_[static_cast<std::size_t>(index_)])
        in.push_back({behind, d == r_ ? output[behind] : waiting(d, h_.index_of(behind))});
      interleave(me_, out, in);
      barrier(me_, group, index_);
    }
  }

  void between_servers(const std::vector<rank_t>& group, int index) {
    for (int k = 1; k < h_.servers(); ++k) {
      std::vector<message> out, in;
      for (const rank_t d : h_.members(here_ + k))
        if (relay(here_, d) == r_)
          for (const run& part : runs_of(h_.members(here_)))
            out.push_back({d, scratch.cells(waiting(d, part.offset).first, part.count)});
      for (const run& part : runs_of(h_.members(here_ - k)))
        in.push_back({relay(here_ - k, r_), output.cells(part.first, part.count)});
      interleave(me_, out, in);
      barrier(me_, group, index);
    }
  }

private:
  /// The rank of `server` that passes on what the server has for `destination`.
  rank_t relay(int server, rank_t destination) const { return h_.at(server, h_.index_of(destination)); }
  /// Where the block waits that this server's rank number `index` sends to `destination`.
  cells waiting(rank_t destination, int index) const {
    return scratch[waiting_[static_cast<std::size_t>(destination)] + index];
  }

  score_builder& s_;
  const hierarchy& h_;
  rank_t r_;
  int here_;
  int index_;
  lane_writer me_;
  std::vector<std::int32_t>
      waiting_;  // by destination: first of the cells of its blocks, −1 if they do not come by here
  std::vector<std::vector<rank_t>>
      passed_on_;  // destinations, by the index of the rank here that passes their blocks on
};

score write(const setup& on) {
  score_builder s{on, "staged_pairwise", 1};
  const hierarchy h{on.placement};
  std::vector<rank_t> everybody(static_cast<std::size_t>(on.ranks));
  std::iota(everybody.begin(), everybody.end(), 0);
  for (rank_t r = 0; r < on.ranks; ++r) {
    traveller me{s, h, r};
    me.inside_the_server();
    std::vector<rank_t> same_index;
    for (int server = 0; server < h.servers(); ++server) same_index.push_back(h.at(server, h.index_of(r)));
    if (on.placement.uniform()) me.between_servers(same_index, h.server_of(r));
    else me.between_servers(everybody, r);
  }
  return s.finish();
}

constexpr offer offered[] = {{collective::all_to_all, write}};

}  // namespace
}  // namespace staged_pairwise_scores

constinit const choreography staged_pairwise{
    "staged_pairwise", "pairwise inside each server, then between ranks of the same index",
    "HCCL Staged Pairwise (spec 4)", staged_pairwise_scores::offered, needs_places};

}  // namespace troupe::choreographies
