// SPDX-License-Identifier: Apache-2.0
// pace_sends: see rewriting.hpp for the method and why it is right.

#include <deque>
#include <map>
#include <unordered_map>

#include "protocols/lower/lowering.hpp"
#include "protocols/lower/rewriting.hpp"

namespace troupe {

namespace {

class pacer {
public:
  pacer(const score& s, int credits) : was_(s), made_(s), credits_(credits), named_(s), moved_(s) {
    lanes_.resize(s.players.size());
    for (std::size_t r = 0; r < s.players.size(); ++r) {
      lanes_[r].resize(s.players[r].lanes.size());
      for (lane& steps : made_.players[r].lanes) steps.clear();
    }
  }

  /// False: the score cannot be run to its end.
  bool run() {
    for (;;) {
      if (round(&pacer::turn)) continue;
      if (round(&pacer::relieve)) continue;
      return finished();
    }
  }
  score result() { return std::move(made_); }

private:
  struct lane_state {
    std::size_t next = 0;
    std::uint16_t fan = 0;                        ///< of the step performed last
    std::uint16_t broken_fan = 0;                 ///< a send came between its steps: the rest of it is no fan any more
    std::map<rank_t, std::deque<step>> deferred;  ///< sends put aside, per destination in order; no empty queues
  };

  template <class Turn>
  bool round(Turn take) {
    bool moved = false;
    for (std::size_t r = 0; r < lanes_.size(); ++r)
      for (std::size_t l = 0; l < lanes_[r].size(); ++l) moved |= (this->*take)(static_cast<rank_t>(r), l);
    return moved;
  }

  bool finished() const {
    for (std::size_t r = 0; r < lanes_.size(); ++r)
      for (std::size_t l = 0; l < lanes_[r].size(); ++l)
        if (lanes_[r][l].next < was_.players[r].lanes[l].size() || !lanes_[r][l].deferred.empty()) return false;
    return true;
  }

  lane_state& state(rank_t rank, std::size_t lane) { return lanes_[static_cast<std::size_t>(rank)][lane]; }
  const step* current(rank_t rank, std::size_t lane) {
    const auto& steps = was_.players[static_cast<std::size_t>(rank)].lanes[lane];
    const std::size_t next = state(rank, lane).next;
    return next < steps.size() ? &steps[next] : nullptr;
  }
  /// Messages under way.
  int& flying(rank_t from, rank_t to, std::size_t lane) {
    const auto low = static_cast<std::uint64_t>(static_cast<std::uint32_t>(to)) << 16 | (lane & 0xffffU);
    return flying_[{static_cast<std::uint64_t>(static_cast<std::uint32_t>(from)), low}];
  }

  std::size_t append(rank_t rank, std::size_t lane, step what) {
    if (what.after.lane >= 0) what.after.step = moved_.position(rank, what.after);
    auto& steps = made_.players[static_cast<std::size_t>(rank)].lanes[lane];
    steps.push_back(what);
    return steps.size() - 1;
  }

  bool in_fan(rank_t rank, std::size_t lane) {
    const step* at = current(rank, lane);
    return at != nullptr && at->fan != 0 && at->fan == state(rank, lane).fan;
  }

  bool flush_one(rank_t rank, std::size_t lane) {
    auto& deferred = state(rank, lane).deferred;
    for (auto queue = deferred.begin(); queue != deferred.end(); ++queue) {
      int& under_way = flying(rank, queue->first, lane);
      if (under_way >= credits_) continue;
      ++under_way;
      if (in_fan(rank, lane)) state(rank, lane).broken_fan = state(rank, lane).fan;
      append(rank, lane, queue->second.front());
      queue->second.pop_front();
      if (queue->second.empty()) deferred.erase(queue);
      return true;
    }
    return false;
  }

  /// Everything but the credit is there.
  bool ready(rank_t rank, std::size_t lane, const step& at) {
    if (at.kind == step_kind::sync) return false;
    if (at.after.lane >= 0 && moved_.position(rank, at.after) < 0) return false;
    return !receives(at.kind) || flying(at.from, rank, lane) > 0;
  }
  bool has_credit(rank_t rank, std::size_t lane, const step& at) {
    return !sends(at.kind) || (flying(rank, at.to, lane) < credits_ && state(rank, lane).deferred.count(at.to) == 0);
  }

  void perform(rank_t rank, std::size_t lane, const step& what) {
    auto& mine = state(rank, lane);
    if (receives(what.kind)) --flying(what.from, rank, lane);
    if (sends(what.kind)) ++flying(rank, what.to, lane);
    step made = what;
    if (made.fan != 0 && made.fan == mine.broken_fan) made.fan = 0;
    moved_.put(rank, lane, mine.next, append(rank, lane, made));
    mine.fan = what.fan;
    ++mine.next;
  }

  bool turn(rank_t rank, std::size_t lane) {
    if (!in_fan(rank, lane) && flush_one(rank, lane)) return true;
    const step* at = current(rank, lane);
    if (at == nullptr || !ready(rank, lane, *at) || !has_credit(rank, lane, *at)) return false;
    perform(rank, lane, *at);
    return true;
  }

  /// Nothing moves: send into a fan, or put aside what lacks only a credit.
  bool relieve(rank_t rank, std::size_t lane) {
    if (flush_one(rank, lane)) return true;
    bool moved = false;
    for (const step* at = current(rank, lane); at != nullptr && ready(rank, lane, *at) && !has_credit(rank, lane, *at);
         at = current(rank, lane)) {
      defer(rank, lane, *at);
      moved = true;
    }
    return moved;
  }

  void defer(rank_t rank, std::size_t lane, const step& what) {
    auto& mine = state(rank, lane);
    step later;
    later.kind = step_kind::send;
    later.to = what.to;
    later.source = what.source;
    if (what.kind == step_kind::send) {
      if (what.after.lane >= 0 || named_.contains(rank, lane, mine.next)) {
        step marker;
        marker.after = what.after;
        perform(rank, lane, marker);
      } else {
        ++mine.next;
      }
    } else {
      const step first_half = receiving_half(rank, what);
      later.source = first_half.target;
      perform(rank, lane, first_half);
    }
    mine.deferred[later.to].push_back(later);
  }

  /// The step without its send; it leaves in `target` what is to be sent.
  step receiving_half(rank_t rank, step what) {
    what.to = -1;
    switch (what.kind) {
      case step_kind::recv_copy_send: what.kind = step_kind::recv; break;
      case step_kind::recv_reduce_copy_send: what.kind = step_kind::recv_reduce_copy; break;
      default: {
        what.kind = step_kind::recv_reduce_copy;
        const rank_t owner = what.source.owner == self ? rank : what.source.owner;
        auto& scratch = made_.players[static_cast<std::size_t>(rank)].scratch;
        what.target = {buffer_kind::scratch, self, static_cast<std::int32_t>(scratch.size()), what.source.count};
        for (std::int32_t i = 0; i < what.source.count; ++i)
          scratch.push_back(extent_of(was_, owner, what.source.buffer, what.source.cell + i));
      }
    }
    return what;
  }

  struct channel_hash {
    std::size_t operator()(const std::pair<std::uint64_t, std::uint64_t>& key) const {
      return static_cast<std::size_t>((key.first * 0x9e3779b97f4a7c15U) ^ (key.second * 0xc2b2ae3d27d4eb4fU));
    }
  };

  const score& was_;
  score made_;
  int credits_;
  referenced_steps named_;
  step_map moved_;
  std::vector<std::vector<lane_state>> lanes_;
  std::unordered_map<std::pair<std::uint64_t, std::uint64_t>, int, channel_hash> flying_;
};

/// extent_of below may be asked for every source of a fused step.
bool sources_in_range(const score& s) {
  for (std::size_t r = 0; r < s.players.size(); ++r)
    for (const lane& steps : s.players[r].lanes)
      for (const step& at : steps) {
        if (at.kind != step_kind::recv_reduce_send) continue;
        const rank_t owner = at.source.owner == self ? static_cast<rank_t>(r) : at.source.owner;
        if (owner < 0 || owner >= s.ranks || at.source.cell < 0 || at.source.count < 0) return false;
        if (std::int64_t{at.source.cell} + at.source.count > cell_count(s, owner, at.source.buffer)) return false;
      }
  return true;
}

}  // namespace

score pace_sends(const score& s, int credits) {
  check_references(s);
  if (!sources_in_range(s)) return s;
  pacer run{s, credits < 1 ? 1 : credits};
  return run.run() ? run.result() : s;
}

}  // namespace troupe
