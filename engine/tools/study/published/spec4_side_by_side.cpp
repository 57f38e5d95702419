// SPDX-License-Identifier: Apache-2.0
// Spec 4's table "side by side", with numbers: each algorithm of it, and NCCL's grouped sends and receives, on the same 8 cards. In words what the
// text says, in numbers what simulated runs are: their rounds (messages with data that follow one another), the time of the smallest call, which is
// latency alone, the share of what the ports and wires could carry in the largest, and the tokens that a rank sends.
#include <algorithm>
#include <deque>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "engine/tools/study/published/published.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/lowering.hpp"
#include "topology/layout/layout.hpp"

namespace troupe {

namespace {

constexpr int ranks = 8, streams = 4;
constexpr std::size_t sizes[] = {64, std::size_t{1} << 20, std::size_t{64} << 20};

/// Performs a score's lanes in the order of its messages, and counts.
class message_count {
public:
  explicit message_count(const score& s) : score_(s) {
    for (const part& p : s.players) ends_.emplace_back(p.lanes.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < ends_.size(); ++r)
        for (std::size_t l = 0; l < ends_[r].size(); ++l)
          while (advance(r, l)) moved = true;
    }
  }

  /// Messages with data of which none is sent before the one before it has been received.
  int rounds() const { return rounds_; }
  /// Of the rank that sends most.
  int tokens() const {
    int most = 0;
    for (const part& p : score_.players) {
      int sent = 0;
      for (const lane& l : p.lanes)
        for (const step& at : l) sent += sends(at.kind) && !has_data(at) ? 1 : 0;
      most = std::max(most, sent);
    }
    return most;
  }

private:
  static bool has_data(const step& at) { return std::max(at.source.count, at.target.count) > 0; }

  bool advance(std::size_t r, std::size_t l) {
    std::vector<int>& mine = ends_[r][l];
    const lane& steps = score_.players[r].lanes[l];
    if (mine.size() == steps.size()) return false;
    const step& at = steps[mine.size()];
    int now = mine.empty() ? 0 : mine.back();
    if (at.after.lane >= 0) {
      const std::vector<int>& other = ends_[r][static_cast<std::size_t>(at.after.lane)];
      if (other.size() <= static_cast<std::size_t>(at.after.step)) return false;
      now = std::max(now, other[static_cast<std::size_t>(at.after.step)]);
    }
    if (receives(at.kind)) {
      std::deque<int>& incoming = under_way_[{at.from, static_cast<rank_t>(r), l}];
      if (incoming.empty()) return false;
      now = std::max(now, incoming.front());
      incoming.pop_front();
    }
    if (sends(at.kind)) {
      const int arrives = now + (has_data(at) ? 1 : 0);
      under_way_[{static_cast<rank_t>(r), at.to, l}].push_back(arrives);
      rounds_ = std::max(rounds_, arrives);
    }
    mine.push_back(now);
    return true;
  }

  const score& score_;
  std::vector<std::vector<std::vector<int>>> ends_;  ///< by rank, lane and step performed: rounds until then
  std::map<std::tuple<rank_t, rank_t, std::size_t>, std::deque<int>> under_way_;
  int rounds_ = 0;
};

struct algorithm {
  std::string id, name, layout, choreography;
  int rounds;                                       ///< by the text
  std::string formula;                              ///< of them
  std::string latency, bandwidth, synchronisation;  ///< the text's words; empty: it has none
  std::string remark{};
  bool through_scratch = false, flags = false;  ///< BCopy; LL's lines
};

/// As the study performs it.
score score_of(const algorithm& a) {
  setup on = flat_setup(collective::all_to_all, ranks);
  on.placement = layout::parse(a.layout);
  on.streams = streams;
  on.through_scratch = a.through_scratch;
  return lower_syncs(write_score(*find_choreography(a.choreography), on));
}

side_by_side measured_of(const algorithm& a, const study_lookup& of) {
  const std::string set = "layout=" + a.layout + " choreography=" + a.choreography +
                          (a.through_scratch ? " through_scratch=true" : "") + (a.flags ? " protocol=ll" : "");
  side_by_side made;
  made.algorithm = a.name;
  made.layout = a.layout;
  made.says = {a.formula, a.latency, a.bandwidth, a.synchronisation};
  for (const std::size_t bytes : sizes) made.times.emplace_back(bytes, of.time_us(set, bytes));
  const study_row& large = of.row(set, sizes[2]);
  made.bandwidth_percent = 100 * large.bandwidth_bound_us / large.time_us;
  const score notes = score_of(a);
  const message_count count{notes};
  made.rounds = count.rounds();
  made.tokens = count.tokens();
  return made;
}

published_figure figure_of(const algorithm& a) {
  published_figure f;
  f.id = "spec4.side." + a.id + "." + a.layout;
  f.source = "spec 4, side by side";
  f.what = "rounds of " + a.name + ", " + a.layout;
  f.file = "spec4_side_by_side.toml";
  f.published = a.rounds;
  f.kind = published_kind::derived;
  f.ours = [a](const study_lookup& of) {
    measured m;
    m.beside = measured_of(a, of);
    m.value = m.beside->rounds;
    return m;
  };
  f.remark = a.remark;
  return f;
}

}  // namespace

std::vector<published_figure> side_by_side_figures() {
  constexpr int mesh_rounds = (ranks - 1 + streams - 1) / streams, of_server = 4;
  std::vector<published_figure> all;
  for (const char* layout : {"1x8", "2x4"}) {
    const bool one = std::string_view{layout} == "1x8";
    const algorithm list[] = {
        {"pairwise", "HCCL Pairwise, ZCopy", layout, "pairwise", ranks - 1, "p-1", "medium", "medium", "per round",
         "without a handshake: the credit of a message stands for it"},
        {"pairwise_bcopy", "HCCL Pairwise, BCopy", layout, "pairwise", ranks - 1, "p-1", "medium", "medium",
         "per round", "Ack, DataSignal and WaitDone in each round", true},
        {"full_mesh", "HCCL DirectFullMesh", layout, "direct_full_mesh", one ? mesh_rounds : 1, "ceil((p-1)/C)", "low",
         "high", "per stream", one ? "" : "streams inside a server and between the two at once: one round each"},
        {"staged", "HCCL Staged", layout, "staged_pairwise", one ? ranks - 1 : of_server - 1 + 1, "(p1-1)+(p2-1)",
         "medium-high", "medium-high", "per stage",
         one ? "a barrier after each step"
             : "a step inside exchanges the blocks for the two servers one after the other; a barrier after each step"},
        {"ll", "NCCL LL-A2A", layout, "one_shot", 1, "few epochs", "lowest", "medium-high", "per slot",
         "one epoch; no tokens, since each 8 bytes have a flag of their own", false, true},
        {"grouped", "NCCL grouped send, recv", layout, "grouped", one ? mesh_rounds : of_server, "", "", "", "",
         "not in the text's table; channels are four, one for a server's distance, and one peer follows the other in "
         "each"},
    };
    for (const algorithm& a : list) all.push_back(figure_of(a));
  }
  return all;
}

}  // namespace troupe
