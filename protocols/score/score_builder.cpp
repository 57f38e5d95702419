// SPDX-License-Identifier: Apache-2.0
#include "protocols/score/score_builder.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "memory/error.hpp"
#include "protocols/score/score_tally.hpp"

namespace troupe {

namespace {
constexpr cells nothing{buffer_kind::none, self, 0, 0, false};

std::size_t index(rank_t rank) { return static_cast<std::size_t>(rank); }
}  // namespace

setup flat_setup(collective what, int ranks, rank_t root, bool in_place, bool uniform) {
  setup on;
  on.what = what;
  on.ranks = ranks;
  on.root = root;
  on.in_place = in_place;
  on.uniform = uniform;
  on.placement = layout::flat(ranks);
  return on;
}

// -- lane_writer ------------------------------------------------------------------------------------------------------

step_ref lane_writer::append(step_kind kind, cells source, cells target) {
  if (builder_.on().counted != nullptr) {
    builder_.count(rank_, kind, source, target);
    return {lane_, 0};
  }
  auto& lanes = builder_.draft().players[index(rank_)].lanes;
  auto& steps = lanes[static_cast<std::size_t>(lane_)];
  step next;
  next.kind = kind;
  next.swapped = swapped_;
  next.fan = kind == step_kind::recv_reduce ? fan_ : std::uint16_t{0};
  if (receives(kind)) next.from = from_;
  if (sends(kind)) next.to = to_;
  next.source = builder_.resolve(rank_, source);
  next.target = builder_.resolve(rank_, target);
  next.after = after_;
  next.called = called_;
  after_ = {};
  swapped_ = false;
  called_ = message_name::none;
  steps.push_back(next);
  return {lane_, static_cast<std::int32_t>(steps.size()) - 1};
}

step_ref lane_writer::send(cells source) { return append(step_kind::send, source, nothing); }
step_ref lane_writer::recv(cells target) { return append(step_kind::recv, nothing, target); }
step_ref lane_writer::copy(cells source, cells target) { return append(step_kind::copy, source, target); }
step_ref lane_writer::reduce(cells source, cells target) { return append(step_kind::reduce, source, target); }
step_ref lane_writer::recv_reduce(cells target) { return append(step_kind::recv_reduce, nothing, target); }
step_ref lane_writer::recv_copy_send(cells target) { return append(step_kind::recv_copy_send, nothing, target); }
step_ref lane_writer::recv_reduce_send(cells source) { return append(step_kind::recv_reduce_send, source, nothing); }
step_ref lane_writer::recv_reduce_copy(cells source, cells target) {
  return append(step_kind::recv_reduce_copy, source, target);
}
step_ref lane_writer::recv_reduce_copy_send(cells source, cells target) {
  return append(step_kind::recv_reduce_copy_send, source, target);
}
step_ref lane_writer::dma_get(cells source, cells target) { return append(step_kind::dma_get, source, target); }
step_ref lane_writer::dma_put(cells source, cells target) { return append(step_kind::dma_put, source, target); }
step_ref lane_writer::sync() { return append(step_kind::sync, nothing, nothing); }
step_ref lane_writer::wait(step_ref earlier) {
  after_ = earlier;
  return append(step_kind::wait, nothing, nothing);
}

step_ref lane_writer::signal(rank_t to) {
  const rank_t kept = std::exchange(to_, to);
  const step_ref at = send(nothing);
  to_ = kept;
  return at;
}

step_ref lane_writer::await(rank_t from) {
  const rank_t kept = std::exchange(from_, from);
  const step_ref at = recv(nothing);
  from_ = kept;
  return at;
}

void lane_writer::copy_own(cells source, cells target) {
  const score& s = builder_.draft();
  if (canonical(s, rank_, builder_.resolve(rank_, source)) == canonical(s, rank_, builder_.resolve(rank_, target)))
    return;
  copy(source, target);
}

// -- score_builder ----------------------------------------------------------------------------------------------------

score_builder::score_builder(const setup& on, std::string_view choreography, int parts) : on_(on) {
  score_.choreography = choreography;
  score_.what = on.what;
  score_.ranks = on.ranks;
  score_.root = on.root;
  score_.in_place = on.in_place;
  score_.uniform = on.uniform;
  score_.parts = parts;
  score_.players.resize(index(on.ranks));
  staged_.assign(index(on.ranks), -1);
  if (on.counted != nullptr) counts_.resize(index(on.ranks));
}

lane_writer score_builder::lane(rank_t rank, int lane) {
  auto& lanes = score_.players[index(rank)].lanes;
  if (lanes.size() <= static_cast<std::size_t>(lane)) lanes.resize(static_cast<std::size_t>(lane) + 1);
  return {*this, rank, lane};
}

rank_t score_builder::before(rank_t rank, int distance) const {
  const int n = on_.ranks;
  return ((rank - distance) % n + n) % n;
}

place score_builder::resolve(rank_t rank, cells at) const {
  if (at.buffer == buffer_kind::none || at.count == 0) return {};
  const rank_t owner = at.owner == self ? rank : at.owner;
  const std::int32_t total = cell_count(score_, owner, at.buffer);
  const std::int32_t unit = at.blocks ? score_.parts : 1;
  const std::int32_t count = at.count < 0 ? total : at.count * unit;
  std::int32_t first = at.first * unit;
  if (total > 0) first = (first % total + total) % total;
  if (first + count > total)
    throw error(errc::bad_score, score_.choreography + ": rank " + std::to_string(rank) + " names " +
                                     std::string{name(at.buffer)} + " cells [" + std::to_string(first) + ", " +
                                     std::to_string(first + count) + ") of " + std::to_string(total));
  return {at.buffer, at.owner == rank ? self : at.owner, first, count};
}

cells score_builder::scratch_like(rank_t rank, cells model) {
  const place at = resolve(rank, model);
  const rank_t owner = at.owner == self ? rank : at.owner;
  auto& declared = score_.players[index(rank)].scratch;
  const auto first = static_cast<std::int32_t>(declared.size());
  for (std::int32_t i = 0; i < at.count; ++i) declared.push_back(extent_of(score_, owner, at.buffer, at.cell + i));
  return {buffer_kind::scratch, self, first, at.count, false};
}

cells score_builder::scratch_blocks(rank_t rank, std::initializer_list<std::int64_t> blocks) {
  auto& declared = score_.players[index(rank)].scratch;
  const auto first = static_cast<std::int32_t>(declared.size());
  for (std::int64_t block : blocks)
    for (std::int32_t k = 0; k < score_.parts; ++k) declared.push_back({block, k});
  return {buffer_kind::scratch, self, first, static_cast<std::int32_t>(declared.size()) - first, false};
}

cells score_builder::l0_like(rank_t rank, cells model) {
  const place at = resolve(rank, model);
  const rank_t owner = at.owner == self ? rank : at.owner;
  auto& declared = score_.players[index(rank)].l0;
  const auto first = static_cast<std::int32_t>(declared.size());
  for (std::int32_t i = 0; i < at.count; ++i) declared.push_back(extent_of(score_, owner, at.buffer, at.cell + i));
  return {buffer_kind::l0, self, first, at.count, false};
}

cells score_builder::l2_block(std::int64_t block) {
  const auto first = static_cast<std::int32_t>(score_.l2.size());
  for (std::int32_t k = 0; k < score_.parts; ++k) score_.l2.push_back({block, k});
  return {buffer_kind::l2, self, first, score_.parts, false};
}

void score_builder::stage_input(rank_t rank, int at_lane) {
  if (!on_.in_place || staged_[index(rank)] >= 0) return;
  const cells whole = notation::input.all();
  const cells kept = scratch_like(rank, whole);
  staged_[index(rank)] = kept.first;
  if (kept.count > 0) lane(rank, at_lane).copy(whole, kept);
}

cells score_builder::staged(rank_t rank, cells of_input) const {
  const std::int32_t first = staged_[index(rank)];
  if (first < 0) return of_input;
  const place at = resolve(rank, of_input);
  return {buffer_kind::scratch, self, first + at.cell, at.count, false};
}

score score_builder::finish() {
  if (on_.counted != nullptr) finish(*on_.counted);
  return std::move(score_);
}

// -- counting ---------------------------------------------------------------------------------------------------------

std::int32_t score_builder::count_of(rank_t rank, const cells& at) const {
  if (at.buffer == buffer_kind::none || at.count == 0) return 0;
  if (at.count < 0) return cell_count(score_, at.owner == self ? rank : at.owner, at.buffer);
  return at.blocks ? at.count * score_.parts : at.count;
}

void score_builder::count(rank_t rank, step_kind kind, const cells& source, const cells& target) {
  score_tally& all = *on_.counted;
  score_tally::of_rank& mine = counts_[index(rank)];
  if (kind == step_kind::sync) {
    const int rounds = static_cast<int>(std::bit_width(static_cast<unsigned>(on_.ranks - 1)));
    mine.steps += 2 * rounds;
    mine.messages += rounds;
    if (rank == 0 && score_.players.front().lanes.size() == 1) all.hops += rounds;
    return;
  }
  const std::int64_t moved = std::max(count_of(rank, source), count_of(rank, target));
  for (const cells* at : {&source, &target})
    if (at->owner != self && at->owner != rank && at->count != 0) all.touches_other_ranks = true;
  if (kind == step_kind::copy || kind == step_kind::reduce) {
    ++mine.locals;
    // Indices wrap round, so that a place has several names.
    const auto foreign = [rank](const cells& at) { return at.owner == rank ? self : at.owner; };
    const bool perhaps_itself = source.buffer == target.buffer && foreign(source) == foreign(target);
    if (kind == step_kind::reduce) mine.local_reduced += moved;
    else if (!perhaps_itself) mine.local_copied += moved;
    return;
  }
  ++mine.steps;
  if (sends(kind)) ++mine.messages, mine.sent += moved;
  if (receives(kind)) mine.received += moved;
  if (reduces(kind)) mine.reduced += moved;
  else if (writes(kind)) mine.copied += moved;
}

void score_builder::finish(score_tally& t) const {
  t.parts = score_.parts;
  t.cells = static_cast<std::int64_t>(score_.l2.size());
  for (rank_t r = 0; r < score_.ranks; ++r) {
    t.lanes += static_cast<std::int64_t>(score_.players[index(r)].lanes.size());
    for (const buffer_kind b : {buffer_kind::input, buffer_kind::output, buffer_kind::scratch, buffer_kind::l0})
      t.cells += cell_count(score_, r, b);
    const score_tally::of_rank& mine = counts_[index(r)];
    if (mine.messages > 0) t.hops = std::max<std::int64_t>(t.hops, 1);
    const auto same = std::find_if(t.kinds.begin(), t.kinds.end(), [&](const auto& k) { return k.each == mine; });
    if (same == t.kinds.end()) t.kinds.push_back({mine, 1});
    else ++same->ranks;
  }
}

score_tally tally_of(const choreography& which, const setup& on) {
  score_tally made;
  setup counted = on;
  counted.counted = &made;
  which.write(counted);
  return made;
}

}  // namespace troupe
