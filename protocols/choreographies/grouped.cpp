// SPDX-License-Identifier: Apache-2.0
// An all_to_all as NCCL 2.19 performs it: a group of sends and receives, one of each a peer (spec 5, "Grouped point-to-point"; init.cc, "Setup
// p2p structures", and channel.h, ncclChannelComputeBase). All ranks have the same order of peers, and each is met by the one it meets:
//   servers       at the distances 0, n/2, 1, −1, n/2 − 1, −(n/2 − 1), 2, …, each once: to the server so far ahead, from the one as far behind
//   their ranks   at each of these, step by step: to the local index so far ahead of one's own, from the one as far behind
//   channels      a server at distance d is met on channel d, and one more for every eight steps; on a single server step s on channel s
// So in every step each rank sends one message and receives one, and those to the other servers are spread over all of them. Channels are lanes, setup::streams of
// them, which go side by side; NCCL has up to eight steps of a channel under way at once, where a lane here performs one after the other.
// Servers of different sizes have as many steps as the largest; a rank that has nobody to meet in one leaves it out.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/hierarchy.hpp"
#include "protocols/choreographies/patterns.hpp"

namespace troupe::choreographies {

namespace grouped_scores {
namespace {
using namespace notation;

constexpr int steps_of_channel = 8;  ///< NCCL_MAX_WORK_ELEMENTS_P2P / 2

/// The distances of n servers from 0 on, in the order in which they are met.
std::vector<int> server_distances(int n) {
  std::vector<int> all;
  for (int d = 0; d <= n / 4; ++d)
    for (const int distance : {d, (n - d) % n, n / 2 - d, (n - (n / 2 - d)) % n})
      if (std::find(all.begin(), all.end(), distance) == all.end()) all.push_back(distance);
  return all;
}

class member {
public:
  member(score_builder& s, const hierarchy& where, rank_t me)
      : s_(s), where_(where), me_(me), server_(where.server_of(me)), index_(where.index_of(me)) {
    for (int server = 0; server < where.servers(); ++server) steps_ = std::max(steps_, where.size_of(server));
  }

  void write() {
    s_.stage_input(me_);
    if (s_.on().in_place) kept_ = s_.lane(me_).wait({});
    for (const int distance : server_distances(where_.servers()))
      for (int step = 0; step < steps_; ++step) meet(distance, step);
  }

private:
  void meet(int distance, int step) {
    const rank_t to = rank_at(server_ + distance, index_ + step), from = rank_at(server_ - distance, index_ - step);
    if (to == me_) return s_.lane(me_).copy_own(input[me_], output[me_]);
    if (to < 0 && from < 0) return;
    const int channel = (where_.servers() > 1 ? distance + step / steps_of_channel : step) % s_.on().streams;
    lane_writer in = s_.lane(me_, channel);
    if (channel > 0 && !begun(channel)) in.after(kept_);
    if (to >= 0) in.to(to).send(s_.staged(me_, input[to]));
    if (from >= 0) in.from(from).recv(output[from]);
  }
  /// −1: the server has nobody of that index.
  rank_t rank_at(int server, int index) const {
    const int wrapped = (index % steps_ + steps_) % steps_;
    return wrapped < where_.size_of(server) ? where_.at(server, wrapped) : -1;
  }
  /// The channel's lane has waited until the input was kept.
  bool begun(int channel) {
    begun_.resize(static_cast<std::size_t>(s_.on().streams));
    return std::exchange(begun_[static_cast<std::size_t>(channel)], 1) != 0;
  }

  score_builder& s_;
  const hierarchy& where_;
  rank_t me_;
  int server_, index_, steps_ = 0;
  step_ref kept_{};
  std::vector<char> begun_;  ///< by channel
};

score write(const setup& on) {
  const hierarchy where{on.placement};
  score_builder s{on, "grouped", 1};
  for (rank_t r = 0; r < on.ranks; ++r) member{s, where, r}.write();
  return s.finish();
}

std::string refuses(const setup& on) {
  if (std::string why = needs_places(on); !why.empty()) return why;
  return lanes_fit(on, on.streams) ? "" : "more lanes than a verifier can take";
}

constexpr offer offered[] = {{collective::all_to_all, write}};

}  // namespace
}  // namespace grouped_scores

constinit const choreography grouped{
    "grouped", "a group of sends and receives in NCCL's order of peers, spread over channels",
    "NCCL 2.19, grouped point-to-point (arXiv 2507.04786)", grouped_scores::offered, grouped_scores::refuses};

}  // namespace troupe::choreographies
