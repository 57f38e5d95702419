// SPDX-License-Identifier: Apache-2.0
#include "protocols/program/early_receives.hpp"

#include <algorithm>
#include <cstdint>

namespace troupe {

namespace {

bool is_plain(const step& s) { return s.kind == step_kind::recv && s.after.lane < 0 && s.fan == 0; }

/// Of a lane's own input and output, by cell.
class reader {
public:
  reader(const score& s, rank_t rank)
      : score_(s),
        rank_(rank),
        player_(s.players[static_cast<std::size_t>(rank)]),
        outputs_(cell_count(s, rank, buffer_kind::output)),
        used_(static_cast<std::size_t>(outputs_ + cell_count(s, rank, buffer_kind::input))) {}

  std::vector<std::vector<bool>> read() {
    std::vector<std::vector<bool>> early;
    if (!has_runs() || !note_lanes()) return early;
    for (std::size_t l = 0; l < player_.lanes.size(); ++l) early.push_back(of_lane(l));
    return early;
  }

private:
  struct use {
    std::int32_t lane = nobody;
    std::int32_t last = nobody;  ///< step of the lane that is being read
    bool sent = false;           ///< by such a step
  };
  static constexpr std::int32_t nobody = -1, several = -2;

  /// Most scores have none, and are not looked at any further.
  bool has_runs() const {
    return std::ranges::any_of(player_.lanes, [](const lane& steps) {
      return std::ranges::adjacent_find(steps, [](const step& a, const step& b) {
               return is_plain(a) && is_plain(b) && b.target.count > 0;
             }) != steps.end();
    });
  }

  /// Calls what(use) for every cell of the rank's own buffers. False: it is memory of others, or of all.
  template <class What>
  bool each(const place& at, What&& what) {
    if (at.count == 0 || at.buffer == buffer_kind::none) return true;
    if (at.buffer == buffer_kind::l2 || (at.owner != self && at.owner != rank_)) return false;
    if (at.buffer != buffer_kind::input && at.buffer != buffer_kind::output) return true;
    // A root may call in place what the score takes for two buffers: there all of its input counts as any of its output.
    if (at.buffer == buffer_kind::input && !score_.in_place && has_root(score_.what)) what(of_root_);
    for (std::int32_t i = 0; i < at.count; ++i) {
      const place one = canonical(score_, rank_, {at.buffer, at.owner, at.cell + i, 1});
      what(used_[static_cast<std::size_t>(one.buffer == buffer_kind::output ? one.cell : outputs_ + one.cell)]);
    }
    return true;
  }

  bool note_lanes() {
    for (std::size_t l = 0; l < player_.lanes.size(); ++l)
      for (const step& s : player_.lanes[l])
        for (const place* const at : {&s.source, &s.target})
          if (!each(*at, [&](use& u) {
                const auto here = static_cast<std::int32_t>(l);
                u.lane = u.lane == nobody || u.lane == here ? here : several;
              }))
            return false;
    return true;
  }

  std::vector<bool> of_lane(std::size_t l) {
    const lane& steps = player_.lanes[l];
    std::vector<bool> early(steps.size());
    std::vector<rank_t> peers;  // of the run of receives
    std::int32_t first = 0;     // step of the run
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const step& s = steps[i];
      const bool goes_on = is_plain(s) && std::ranges::find(peers, s.from) == peers.end();
      if (!goes_on) peers.clear();
      if (peers.empty()) first = static_cast<std::int32_t>(i);
      else early[i] = s.target.count > 0 && is_free(s.target, static_cast<std::int32_t>(l), first);
      if (is_plain(s)) peers.push_back(s.from);
      note(s, static_cast<std::int32_t>(i));
    }
    return early;
  }

  bool is_free(const place& at, std::int32_t l, std::int32_t first) {
    if (at.buffer != buffer_kind::output) return false;
    const auto alone = [&](const use& u) { return (u.lane == nobody || u.lane == l) && u.last < first && !u.sent; };
    bool free = alone(of_root_);
    each(at, [&](const use& u) { free = free && alone(u); });
    return free;
  }

  /// Uses by a lane that was read before matter no more: a cell that two lanes touch is `several`.
  void note(const step& s, std::int32_t i) {
    for (const place* const at : {&s.source, &s.target})
      each(*at, [&](use& u) {
        u.last = i;
        u.sent = u.sent || sends(s.kind);
      });
  }

  const score& score_;
  rank_t rank_;
  const part& player_;
  std::int32_t outputs_;
  std::vector<use> used_;
  use of_root_;
};

}  // namespace

std::vector<std::vector<bool>> early_receives(const score& s, rank_t rank) { return reader{s, rank}.read(); }

}  // namespace troupe
