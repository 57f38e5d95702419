// SPDX-License-Identifier: Apache-2.0
#include "protocols/verify/verifier_structure.hpp"

#include <algorithm>
#include <set>

namespace troupe::verifying {

namespace {
using std::to_string;

fault about_score(std::string what) { return {-1, -1, -1, 0, std::move(what)}; }

std::string number_of(std::int64_t count, const char* noun) {
  return to_string(count) + ' ' + noun + (count == 1 ? "" : "s");
}

/// Checks the steps of one lane; the first fault is kept.
class lane_check {
public:
  lane_check(const score& s, rank_t rank, int lane)
      : score_(s),
        rank_(rank),
        lane_(lane),
        player_(s.players[static_cast<std::size_t>(rank)]),
        steps_(player_.lanes[static_cast<std::size_t>(lane)]) {}

  std::optional<fault> run() {
    for (at_ = 0; at_ < steps_.size() && !found_; ++at_) {
      const step& s = steps_[at_];
      if (static_cast<int>(s.kind) >= step_kind_count) {
        wrong("the kind of the step is unknown");
        break;
      }
      kind(s);
      if (!found_) peers(s);
      if (!found_) operands(s);
      if (!found_) dependency(s);
      if (!found_ && s.fan != 0) fan(s);
    }
    return found_;
  }

private:
  void wrong(std::string what) {
    if (!found_) found_ = fault{rank_, lane_, static_cast<int>(at_), 0, std::move(what)};
  }

  void kind(const step& s) {
    if (s.kind == step_kind::sync) wrong("sync is not a step that can be performed: lower it to tokens first");
  }

  void peers(const step& s) {
    const auto check = [&](rank_t peer, const char* verb) {
      if (peer < 0 || peer >= score_.ranks)
        wrong(std::string{name(s.kind)} + ' ' + verb + " rank " + to_string(peer) + ", which is none of the ranks 0–" +
              to_string(score_.ranks - 1));
      else if (peer == rank_) wrong(std::string{name(s.kind)} + ' ' + verb + " the rank itself: use copy or reduce");
    };
    if (receives(s.kind)) check(s.from, "receives from");
    if (sends(s.kind)) check(s.to, "sends to");
  }

  void in_range(const place& at, const char* role) {
    if (at.count == 0) return;
    if (static_cast<unsigned>(at.buffer) > static_cast<unsigned>(buffer_kind::l2))
      return wrong(std::string{"the "} + role + " names an unknown buffer");
    if (at.owner != self && (at.owner < 0 || at.owner >= score_.ranks))
      return wrong(std::string{"the "} + role + " belongs to rank " + to_string(at.owner) + ", which does not exist");
    const std::int64_t total = cell_count(score_, at.owner == self ? rank_ : at.owner, at.buffer);
    if (at.count < 0 || at.cell < 0 || std::int64_t{at.cell} + at.count > total)
      return wrong(std::string{"the "} + role + " names " + number_of(at.count, "cell") + " from " +
                   std::string{name(at.buffer)} + '[' + to_string(at.cell) + "] on, which is out of range: there are " +
                   number_of(total, "cell"));
    if (at.buffer == buffer_kind::l2 && at.owner != self)
      return wrong(std::string{"the "} + role + ' ' + to_string(at) + " names an owner, but l2 belongs to all ranks");
    if ((at.buffer == buffer_kind::l0 || at.buffer == buffer_kind::scratch) && at.owner != self && at.owner != rank_)
      wrong(std::string{"the "} + role + ' ' + to_string(at) + " is not reachable: " + std::string{name(at.buffer)} +
            " is private to its rank");
  }

  void operands(const step& s) {
    const bool has_source = reads_source(s.kind);
    const bool has_target = writes(s.kind);
    if (!has_source && s.source.count != 0) wrong(std::string{name(s.kind)} + " has no source, but one is given");
    if (!has_target && s.target.count != 0) wrong(std::string{name(s.kind)} + " has no target, but one is given");
    if (has_source) in_range(s.source, "source");
    if (has_target) in_range(s.target, "target");
    if (found_) return;
    if (has_source && has_target) alike(s);
    if (has_target && s.target.count > 0) writable(s);
    if (s.kind == step_kind::dma_get || s.kind == step_kind::dma_put) dma(s);
  }

  void alike(const step& s) {
    if (s.source.count != s.target.count)
      return wrong("source " + to_string(s.source) + " has " + number_of(s.source.count, "cell") + ", target " +
                   to_string(s.target) + " has " + to_string(s.target.count));
    const bool all_alike = score_.uniform && score_.parts == 1;
    for (std::int32_t i = 0; i < s.source.count && !all_alike; ++i)
      if (!same_size(score_, extent_at(s.source, i), extent_at(s.target, i)))
        return wrong("cell " + to_string(i) + " of source " + to_string(s.source) + " and of target " +
                     to_string(s.target) + " differ in size");
    if (s.source.count < 2) return;
    const place from = canonical(score_, rank_, s.source);
    const place to = canonical(score_, rank_, s.target);
    if (from.buffer == to.buffer && from.owner == to.owner && from.cell != to.cell &&
        from.cell < to.cell + s.target.count && to.cell < from.cell + s.source.count)
      wrong("source " + to_string(s.source) + " and target " + to_string(s.target) + " overlap without being equal");
  }

  extent extent_at(const place& at, std::int32_t i) const {
    return extent_of(score_, at.owner == self ? rank_ : at.owner, at.buffer, at.cell + i);
  }

  void writable(const step& s) {
    if (s.target.buffer != buffer_kind::input) return;
    const rank_t owner = s.target.owner == self ? rank_ : s.target.owner;
    if (!score_.in_place)
      wrong("writes " + to_string(s.target) + ", but the call is not in place, so the input must not change");
    else if (!shares_buffers(score_.what, score_.ranks, score_.root, owner))
      wrong("writes " + to_string(s.target) +
            (has_root(score_.what) ? ", but only the root's buffers are in place" : ", but the rank has no output") +
            ", so this input must not change");
  }

  void dma(const step& s) {
    const bool get = s.kind == step_kind::dma_get;
    const place& near = get ? s.target : s.source;
    const place& far = get ? s.source : s.target;
    if (near.count == 0) return;
    if (near.buffer != buffer_kind::l0)
      wrong(std::string{name(s.kind)} + " needs l0 as its " + (get ? "target" : "source") + ", not " + to_string(near));
    else if (far.buffer != buffer_kind::l2 && far.buffer != (get ? buffer_kind::input : buffer_kind::output))
      wrong(std::string{name(s.kind)} + " needs " + (get ? "input or l2 as its source" : "output or l2 as its target") +
            ", not " + to_string(far));
  }

  void dependency(const step& s) {
    if (s.ready_part != -1) announcement(s);
    const step_ref after = s.after;
    if (after.lane == -1) return;
    if (after.lane < 0 || static_cast<std::size_t>(after.lane) >= player_.lanes.size())
      return wrong("waits for lane " + to_string(after.lane) + ", but the rank has " +
                   number_of(static_cast<std::int64_t>(player_.lanes.size()), "lane"));
    const lane& other = player_.lanes[static_cast<std::size_t>(after.lane)];
    if (after.step < 0 || static_cast<std::size_t>(after.step) >= other.size())
      return wrong("waits for lane " + to_string(after.lane) + " step " + to_string(after.step) +
                   ", but that lane has " + number_of(static_cast<std::int64_t>(other.size()), "step"));
    if (after.lane == lane_ && static_cast<std::size_t>(after.step) >= at_)
      return wrong("waits for step " + to_string(after.step) + " of its own lane, which comes later");
    const auto awaited = static_cast<std::size_t>(after.step);
    if (other[awaited].fan != 0 && awaited + 1 != end_of_fan(other, awaited))
      wrong("waits for lane " + to_string(after.lane) + " step " + to_string(after.step) +
            ", which is inside a fan: wait for the last step of the fan");
  }

  void announcement(const step& s) {
    if (s.kind != step_kind::wait)
      wrong(std::string{name(s.kind)} + " waits for a piece to be ready: put a wait before it");
    else if (s.ready_part < 0 || s.ready_part >= score_.partitions)
      wrong("waits for piece " + to_string(s.ready_part) + " to be ready, but there are " +
            number_of(score_.partitions, "piece"));
    else if (cell_count(score_, rank_, buffer_kind::input) == 0)
      wrong("waits for piece " + to_string(s.ready_part) + " to be ready, but this rank has no input");
  }

  void fan(const step& s) {
    const std::string fan_name = "fan " + to_string(s.fan);
    if (s.kind != step_kind::recv_reduce)
      return wrong(fan_name + " holds a " + std::string{name(s.kind)} + ", only recv_reduce may be in a fan");
    if (s.after.lane != -1)
      return wrong("a step of " + fan_name + " waits for another step: put a wait before the fan");
    if (at_ == 0 || steps_[at_ - 1].fan != s.fan) {
      senders_.clear();
      if (!fans_.insert(s.fan).second) return wrong(fan_name + " goes on here, but its steps must be neighbours");
    } else if (steps_[at_ - 1].target != s.target) {
      return wrong("the steps of " + fan_name + " must have one target, not " + to_string(steps_[at_ - 1].target) +
                   " and " + to_string(s.target));
    }
    if (!senders_.insert(s.from).second) wrong(fan_name + " receives twice from rank " + to_string(s.from));
  }

  const score& score_;
  rank_t rank_;
  int lane_;
  const part& player_;
  const lane& steps_;
  std::size_t at_ = 0;
  std::set<std::uint16_t> fans_;
  std::set<rank_t> senders_;
  std::optional<fault> found_;
};

std::optional<fault> check_cells(const score& s, const std::vector<extent>& cells, std::string_view buffer,
                                 rank_t rank) {
  const std::int64_t blocks = block_count(s.what, s.ranks);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const extent& e = cells[i];
    if (e.block >= 0 && e.block < blocks && e.part >= 0 && e.part < s.parts) continue;
    return fault{rank, -1, -1, 0,
                 "declares " + std::string{buffer} + '[' + to_string(i) + "] to hold block " + to_string(e.block) +
                     " part " + to_string(e.part) + ", but there are " + number_of(blocks, "block") + " of " +
                     number_of(s.parts, "part")};
  }
  return std::nullopt;
}

std::optional<fault> check_head(const score& s, const performing_limits& limits) {
  if (limits.credits < 1)
    return about_score("cannot be performed with " + to_string(limits.credits) + " credits, at least 1 is needed");
  if (limits.slices < 1)
    return about_score("cannot be performed in " + to_string(limits.slices) + " slices, at least 1 is needed");
  if (limits.slices_per_step < 1)
    return about_score("cannot be performed with " + to_string(limits.slices_per_step) +
                       " slices a step, at least 1 is needed");
  if (static_cast<int>(s.what) >= collective_count) return about_score("the collective is unknown");
  if (s.ranks < 1 || s.ranks > max_ranks)
    return about_score("has " + to_string(s.ranks) + " ranks, allowed are 1–" + to_string(max_ranks));
  if (s.players.size() != static_cast<std::size_t>(s.ranks))
    return about_score("has parts for " + to_string(s.players.size()) + " ranks, but is for " + to_string(s.ranks));
  if (has_root(s.what) && (s.root < 0 || s.root >= s.ranks))
    return about_score("the root " + to_string(s.root) + " is none of the ranks 0–" + to_string(s.ranks - 1));
  if (s.parts < 1 || s.parts > max_parts)
    return about_score("cuts blocks into " + to_string(s.parts) + " parts, allowed are 1–" + to_string(max_parts));
  if (s.partitions < 0 || (s.partitions > 0 && s.parts % s.partitions != 0))
    return about_score("has " + to_string(s.partitions) + " pieces of a block, which do not divide its " +
                       number_of(s.parts, "part"));
  return std::nullopt;
}

std::optional<fault> check_totals(const score& s, const performing_limits& limits) {
  std::int64_t lanes = 0;
  auto cells = static_cast<std::int64_t>(s.l2.size());
  for (rank_t r = 0; r < s.ranks; ++r) {
    const part& player = s.players[static_cast<std::size_t>(r)];
    lanes += static_cast<std::int64_t>(player.lanes.size()) + s.partitions;
    cells += static_cast<std::int64_t>(player.scratch.size() + player.l0.size());
    const auto buffers =
        std::int64_t{input_blocks(s.what, s.ranks, s.root, r).count} + output_blocks(s.what, s.ranks, s.root, r).count;
    cells += buffers * s.parts;
  }
  const auto too_large = [](const std::string& how) {
    fault f = about_score("is too large to be verified: " + how);
    f.too_large = true;
    return f;
  };
  if (lanes > max_lanes) return too_large(to_string(lanes) + " lanes, at most " + to_string(max_lanes));
  if (cells > max_cells / limits.slices)
    return too_large(to_string(cells) + " cells in " + number_of(limits.slices, "slice") + ", at most " +
                     to_string(max_cells) + " together");
  return std::nullopt;
}
}  // namespace

std::size_t end_of_fan(const lane& steps, std::size_t at) {
  std::size_t end = at + 1;
  if (steps[at].fan == 0) return end;
  while (end < steps.size() && steps[end].fan == steps[at].fan) ++end;
  return end;
}

std::optional<fault> check_structure(const score& s, const performing_limits& limits) {
  if (auto f = check_head(s, limits)) return f;
  if (auto f = check_totals(s, limits)) return f;
  if (auto f = check_cells(s, s.l2, "l2", -1)) return f;
  for (rank_t r = 0; r < s.ranks; ++r) {
    const part& player = s.players[static_cast<std::size_t>(r)];
    if (auto f = check_cells(s, player.scratch, "scratch", r)) return f;
    if (auto f = check_cells(s, player.l0, "l0", r)) return f;
    for (std::size_t l = 0; l < player.lanes.size(); ++l)
      if (auto f = lane_check{s, r, static_cast<int>(l)}.run()) return f;
  }
  return check_switches(s);
}

}  // namespace troupe::verifying

bool troupe::is_too_large(const score& s, const performing_limits& limits) {
  return verifying::check_totals(s, limits).has_value();
}
