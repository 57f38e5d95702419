// SPDX-License-Identifier: Apache-2.0
// An all_to_all as NCCL 2.19 performs it: a group of sends and receives, one of each a peer (arXiv 2507.04786), in the order of peer_order.hpp. So those
// to the other servers are spread over all of them. Channels are lanes, setup::streams of them, which go side by side; NCCL has up to eight steps
// of a channel under way at once, where a lane here performs one after the other. A rank that has nobody to meet in a step leaves it out.

#include <string>
#include <utility>
#include <vector>

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/hierarchy.hpp"
#include "protocols/choreographies/patterns.hpp"
#include "protocols/choreographies/peer_order.hpp"

namespace troupe::choreographies {

namespace grouped_scores {
namespace {
using namespace notation;

class member {
public:
  member(score_builder& s, const peer_order& order, rank_t me) : s_(s), order_(order), me_(me) {}

  void write() {
    s_.stage_input(me_);
    if (s_.on().in_place) kept_ = s_.lane(me_).wait({});
    for (const int distance : order_.distances())
      for (int step = 0; step < order_.steps(); ++step) meet(distance, step);
  }

private:
  void meet(int distance, int step) {
    const rank_t to = order_.at(me_, distance, step), from = order_.at(me_, -distance, -step);
    if (to == me_) return s_.lane(me_).copy_own(input[me_], output[me_]);
    if (to < 0 && from < 0) return;
    const int channel = order_.channel(distance, step) % s_.on().streams;
    lane_writer in = s_.lane(me_, channel);
    if (channel > 0 && !begun(channel)) in.after(kept_);
    if (to >= 0) in.to(to).send(s_.staged(me_, input[to]));
    if (from >= 0) in.from(from).recv(output[from]);
  }
  /// The channel's lane has waited until the input was kept.
  bool begun(int channel) {
    begun_.resize(static_cast<std::size_t>(s_.on().streams));
    return std::exchange(begun_[static_cast<std::size_t>(channel)], 1) != 0;
  }

  score_builder& s_;
  const peer_order& order_;
  rank_t me_;
  step_ref kept_{};
  std::vector<char> begun_;  ///< by channel
};

score write(const setup& on) {
  const peer_order order{on.placement};
  score_builder s{on, "grouped", 1};
  for (rank_t r = 0; r < on.ranks; ++r) member{s, order, r}.write();
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
