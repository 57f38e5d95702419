// SPDX-License-Identifier: Apache-2.0
#include "actors/virtual/virtual_rank.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <memory_resource>
#include <type_traits>

#include "actors/virtual/element_state.hpp"
#include "actors/virtual/recorder.hpp"
#include "memory/error.hpp"
#include "topology/machine/shared_segment.hpp"

namespace troupe::actors {

namespace {

/// What a player and its lanes take, about. Only how soon its memory lies on large pages depends on them.
constexpr std::size_t bytes_a_rank = 512, bytes_a_lane = 192;

}  // namespace

virtual_communicator::virtual_communicator(const lazy_sizes& sizes, const hardware& h, const virtual_options& o,
                                           traffic& w, std::uint32_t of, recorder* r)
    : memory(static_cast<std::size_t>(sizes.notes().ranks) *
             (bytes_a_rank + bytes_a_lane * static_cast<std::size_t>(sizes.lanes() * sizes.cut().channels))),
      notes(sizes.notes()),
      on(h),
      options(o),
      ways(w),
      part(of),
      first_rank(w.first_rank(of)),
      record(r),
      lanes(sizes.lanes()),
      channels(sizes.cut().channels),
      shape(sizes.shape()) {
  const host_costs& c = h.host;
  free_steps = c.step.count() == 0 && c.send.count() == 0 && c.receive.count() == 0 && c.forward.count() == 0 &&
               c.transfer.count() == 0 && c.copy_rate == 0 && c.reduce_rate == 0 && c.sync.count() < 0 &&
               h.places.empty() && notes.switches.empty();
  messages_are_free = free_steps && record == nullptr;
  barriers.resize(static_cast<std::size_t>(lanes * channels));
  if (!notes.switches.empty()) switch_steps.resize(static_cast<std::size_t>(notes.ranks * lanes * channels));
  finished.assign(static_cast<std::size_t>(notes.ranks), -1);
  unfinished = notes.ranks;
}

std::int64_t time_of_transfer(traffic& ways, const hardware& on, element_index engine, std::uint64_t bytes) {
  if (engine == no_element) return ways.time().now();
  const element_class& of = on.class_of(engine);
  return ways.work(engine, of.overhead.count() + on.occupancy(engine, bytes).count(), bytes) + of.latency.count();
}

void virtual_communicator::take_parts(const cutting& cut, std::function<void(rank_t, int)> on_arrived) {
  parts.emplace(notes, cut, std::move(on_arrived));
  messages_are_free = false;  // every step is noted
}

void virtual_communicator::make_ready(rank_t rank, int piece) {
  for (const std::int32_t lane : parts->make_ready(rank, piece))
    ways.time().at(ways.time().now() + on.host.step.count(), ways.ranks[first_rank + static_cast<std::size_t>(rank)],
                   work_event{lane});
}

// -- a step -----------------------------------------------------------------------------------------------------------

bool virtual_rank::begin_other_work(lane_info& l, int channel, int lane, const brief_instruction& i,
                                    lane_wait::reason lacked) {
  const std::int64_t now = with_.ways.time().now();
  note_wait(l, lacked, now);
  const std::int32_t global = channel * with_.lanes + lane;
  if (with_.parts && awaits_piece(i, global)) {
    l.stepped = true;
    l.at_barrier = false;
    return false;
  }
  const bool is_barrier = i.kind == step_kind::sync;
  const std::int64_t end = with_.free_steps || is_barrier ? now : end_of_work(i, lane, now);
  if (with_.record) note_begin(l, global, i, lacked, now, end);
  l.since = l.work_end = end;
  l.stepped = true;
  l.at_barrier = is_barrier;
  if (is_barrier) return reach_barrier(global);
  if (access_shared(i, global) || exchange_with_switch(i, global)) return false;
  if (end == now) {
    --unfinished_;
    note_performed(global);
    return true;
  }
  with_.ways.time().at(end, address(), work_event{global});
  return false;
}

void virtual_rank::note_begin(lane_info& l, std::int32_t lane, const brief_instruction& i, lane_wait::reason lacked,
                              std::int64_t now, std::int64_t end) {
  using reason = virtual_cause::reason;
  const bool lacked_message = lacked == lane_wait::reason::chunk || lacked == lane_wait::reason::credit;
  // A lane that waited for neither a chunk nor a credit waited for another lane.
  const reason waited = !lacked_message                       ? reason::other_lane
                        : lacked == lane_wait::reason::credit ? reason::credit
                                                              : reason::arrival;
  const reason why = now > l.since ? waited : l.stepped || lacked_message ? reason::own_step : reason::start;
  const virtual_message* taken =
      receives(i.kind) ? with_.ways.front(incoming(lane / with_.lanes, lane % with_.lanes, i.from)) : nullptr;
  with_.record->step(rank_, lane, i, i.elements * with_.shape.element_size, l.since, now, end, why,
                     taken ? taken->flow : -1);
}

namespace {

std::int64_t time_for(std::uint64_t bytes, std::uint64_t rate) {
  if (rate == 0) return 0;
  return std::min(link_parameters{std::chrono::nanoseconds{0}, rate}.occupancy(bytes).count(), end_of_time / 2);
}

/// Bytes that a step's kernels read and write, for work that passes the DMA engine.
std::uint64_t touched(const brief_instruction& i, std::uint64_t bytes) { return (reduces(i.kind) ? 3 : 2) * bytes; }

bool is_shared(buffer_kind buffer, rank_t owner) {
  return buffer == buffer_kind::l2 || (buffer != buffer_kind::none && owner != self);
}
bool shares_source(const brief_instruction& i) { return is_shared(i.source, i.source_owner); }
bool shares_target(const brief_instruction& i) { return is_shared(i.target, i.target_owner); }

}  // namespace

/// Begins the step's accesses to others' memory. False: there are none.
bool virtual_rank::access_shared(const brief_instruction& i, std::int32_t lane) {
  const bool local = i.kind == step_kind::copy || i.kind == step_kind::reduce || i.kind == step_kind::dma_get ||
                     i.kind == step_kind::dma_put;
  if (!local || (!shares_source(i) && !shares_target(i))) return false;
  const std::uint64_t bytes = i.elements * with_.shape.element_size;
  const auto own = static_cast<std::size_t>(lane % with_.lanes);
  const step& written =
      with_.notes.players[static_cast<std::size_t>(rank_)].lanes[own][static_cast<std::size_t>(i.score_step)];
  const auto begin = [&](const place& at, rank_t owner, bool writes) {
    if (at.buffer == buffer_kind::l2) return access_segment(at, bytes, writes, lane);
    ++lanes_[static_cast<std::size_t>(lane)].accesses;
    with_.ways.access(with_.part, rank_, lane, {owner, false}, writes, bytes);
  };
  if (shares_source(i)) begin(written.source, i.source_owner, false);
  if (shares_target(i)) begin(written.target, i.target_owner, true);
  if (shares_target(i) && i.kind == step_kind::reduce) begin(written.target, i.target_owner, false);
  return true;
}

/// Whether the lane has to wait until a piece of its rank's input is ready.
bool virtual_rank::awaits_piece(const brief_instruction& i, std::int32_t lane) {
  if (i.kind != step_kind::wait) return false;
  const auto own = static_cast<std::size_t>(lane % with_.lanes);
  const step& at =
      with_.notes.players[static_cast<std::size_t>(rank_)].lanes[own][static_cast<std::size_t>(i.score_step)];
  return at.ready_part >= 0 && !with_.parts->await(rank_, at.ready_part, lane);
}

void virtual_rank::note_performed(std::int32_t lane) {
  note_switch_step(lane);
  if (with_.parts) with_.parts->performed(rank_, lane);
}

/// One access for each share that the cells lie in. Several cells of a step have one size.
void virtual_rank::access_segment(const place& at, std::uint64_t bytes, bool writes, std::int32_t lane) {
  const auto all = static_cast<std::int64_t>(with_.notes.l2.size());
  const auto home = [&](std::int32_t cell) { return home_of_shared_cell(cell, all, with_.notes.ranks); };
  const std::int32_t end = at.cell + at.count;
  for (std::int32_t first = at.cell, next = first; first < end; first = next) {
    while (next < end && home(next) == home(first)) ++next;
    const auto part = [&](std::int32_t cell) {
      return bytes * static_cast<std::uint64_t>(cell - at.cell) / static_cast<std::uint64_t>(at.count);
    };
    ++lanes_[static_cast<std::size_t>(lane)].accesses;
    with_.ways.access(with_.part, rank_, lane, {home(first), true}, writes, part(next) - part(first));
  }
}

void virtual_rank::note_switch_step(std::int32_t lane) {
  if (with_.switch_steps.empty()) return;
  if (with_.ways.seats(with_.part).of(rank_, static_cast<std::size_t>(lane % with_.lanes)) >= 0)
    switch_steps_of(lane).push_back(with_.ways.time().now());
}

/// At a seat, what the switch copies or reduces from the rank's memory passes the link to it, and what the rank copies from there the link back.
/// The switch sends it as soon as it has it, as it does to others by message: if the rank's lane comes later, as it was at an earlier slice, the protocol's
/// latency has begun before.
bool virtual_rank::exchange_with_switch(const brief_instruction& i, std::int32_t lane) {
  const seat_map& seats = with_.ways.seats(with_.part);
  if (seats.empty() || (i.kind != step_kind::copy && i.kind != step_kind::reduce)) return false;
  const auto own = static_cast<std::size_t>(lane % with_.lanes);
  const place& source =
      with_.notes.players[static_cast<std::size_t>(rank_)].lanes[own][static_cast<std::size_t>(i.score_step)].source;
  const std::int32_t to = seats.of(rank_, own);
  const std::int32_t from = source.buffer == buffer_kind::scratch ? seats.owner(rank_, source.cell) : -1;
  if (to == from) return false;
  std::int64_t since = with_.ways.time().now();
  if (from >= 0 && i.after_lane >= 0) {
    const auto& ends = switch_steps_of(lane - lane % with_.lanes + i.after_lane);
    if (static_cast<std::size_t>(i.after_index) < ends.size()) since = ends[static_cast<std::size_t>(i.after_index)];
  }
  ++lanes_[static_cast<std::size_t>(lane)].accesses;
  with_.ways.exchange(with_.part, rank_, lane, std::max(to, from), to >= 0, i.elements * with_.shape.element_size,
                      since);
  return true;
}

/// A switch only reduces: it has no steps to begin, and what it carries is the links' matter.
std::int64_t virtual_rank::end_of_switch_work(std::int32_t which, const brief_instruction& i, std::int64_t now) {
  const element_index unit = with_.on.switches[static_cast<std::size_t>(with_.ways.switch_of(with_.part, which))].unit;
  if (!reduces(i.kind) || unit == no_element) return now;
  const std::uint64_t bytes = i.elements * with_.shape.element_size;
  const element_class& of = with_.on.class_of(unit);
  return with_.ways.work(unit, of.overhead.count() + with_.on.occupancy(unit, bytes).count(), bytes) +
         of.latency.count();
}

/// When the step's own work is done, if it begins now.
std::int64_t virtual_rank::end_of_work(const brief_instruction& i, int lane, std::int64_t now) {
  if (const std::int32_t which = with_.ways.seats(with_.part).of(rank_, static_cast<std::size_t>(lane)); which >= 0)
    return end_of_switch_work(which, i, now);
  const host_costs& host = with_.on.host;
  const rank_place at = with_.on.place_of(rank_);
  const std::uint64_t bytes = i.elements * with_.shape.element_size;
  std::int64_t alone = host.step.count();
  if (receives(i.kind)) alone += host.receive.count();
  if (sends(i.kind)) alone += host.send.count();
  if (receives(i.kind) && sends(i.kind)) alone += host.forward.count();
  if (i.kind == step_kind::dma_get || i.kind == step_kind::dma_put) {
    alone += host.transfer.count();
    if (shares_source(i) || shares_target(i)) return now + alone;  // the engine is part of the way
    return time_of_transfer(with_.ways, with_.on, at.dma, bytes) + alone;
  }
  const bool lands = i.kind == step_kind::recv || i.kind == step_kind::recv_copy_send;
  const bool copies = writes(i.kind) && !reduces(i.kind) && (!lands || !host.receive_in_place);
  const std::int64_t fixed = alone;
  if (reduces(i.kind)) alone += time_for(bytes, host.reduce_rate);
  else if (copies) alone += time_for(bytes, host.copy_rate);
  std::int64_t end = alone == 0 ? now : with_.ways.work(at.core, alone, bytes);
  const bool in_l0 = i.source == buffer_kind::l0 && i.target == buffer_kind::l0;
  if (host.work_uses_dma && at.dma != no_element && !in_l0 && (reduces(i.kind) || copies)) {
    const std::uint64_t through = touched(i, bytes);
    end = std::max(end, with_.ways.work(at.dma, with_.on.occupancy(at.dma, through).count(), through) + fixed);
  }
  return end;
}

/// A hardware barrier. The last one to come lets all go on, `sync` later.
bool virtual_rank::reach_barrier(std::int32_t lane) {
  const std::int64_t delay = with_.on.host.sync.count();
  if (delay < 0)
    throw error(errc::invalid_argument,
                "the score has sync steps, but the hardware has no barrier (host.sync); lower them to messages first");
  auto& waiting = with_.barriers[static_cast<std::size_t>(lane)];
  virtual_scheduler& time = with_.ways.time();
  waiting.push_back({rank_, time.now()});
  if (static_cast<int>(waiting.size()) < with_.notes.ranks) return false;
  const std::int64_t end = time.now() + delay;
  for (const auto& [rank, since] : waiting) {
    time.at(end, address_of(rank), work_event{lane});
    if (with_.record) with_.record->synchronised(rank, lane, rank_, since, end);
  }
  waiting.clear();
  return false;
}

// -- life -------------------------------------------------------------------------------------------------------------

virtual_rank::virtual_rank(virtual_communicator& with, rank_t rank) : with_(with), rank_(rank) {
  static_assert(std::is_trivially_destructible_v<lane_info>);
  const auto count = static_cast<std::size_t>(with.channels * with.lanes);
  auto* const begin = std::pmr::polymorphic_allocator<lane_info>{&with.memory}.allocate(count);
  std::uninitialized_value_construct_n(begin, count);
  lanes_ = {begin, count};
}

void virtual_rank::on_start() {
  if (lost_) return;
  const virtual_options& o = with_.options;
  if (with_.record && with_.on.host.launch.count() > 0) {
    virtual_span span;
    span.actor = rank_, span.kind = span_kind::launch, span.end = with_.ways.time().now();
    span.begin = span.end - with_.on.host.launch.count();
    with_.record->span(span);
  }
  if (o.compute > 0) {
    computing_ = true;
    compute_block(0);
    if (!o.overlap) return;
  }
  begin();
}

void virtual_rank::begin() {
  const std::int64_t now = with_.ways.time().now();
  for (lane_info& l : lanes_) l.since = now;
  performing_ = true;
  perform();
  finish_if_done();
}

void virtual_rank::finish() {
  performing_ = false;
  const std::int64_t end = with_.ways.time().now() + with_.on.host.finish.count();
  with_.finished[static_cast<std::size_t>(rank_)] = end;
  --with_.unfinished;
  if (with_.record) with_.record->finished(rank_, end);
  if (with_.on_finished) with_.on_finished(rank_, end);
}

void virtual_rank::on_loss() {
  const bool over = with_.unfinished == 0;  // for all ranks: nobody need hear of it
  if (with_.finished[static_cast<std::size_t>(rank_)] < 0) end_early();
  lost_ = true;
  if (!over) tell_loss();
}

void virtual_rank::end_early() {
  performing_ = false;
  std::int64_t& at = with_.finished[static_cast<std::size_t>(rank_)];
  // Its steps may all have been performed: an operation is over when its receivers have given back what was sent.
  if (at < 0) --with_.unfinished;
  at = with_.ways.time().now();
}

void virtual_rank::on_arrival(std::uint32_t message) {
  const std::uint32_t by = with_.ways.arrived(message);
  if (lost_) return;
  arrived(by, message);
  finish_if_done();
}

void virtual_rank::on_work(std::int32_t lane) {
  if (lost_) return;
  lane_info& l = lanes_[static_cast<std::size_t>(lane)];
  l.since = with_.ways.time().now();
  if (with_.record && !l.at_barrier) with_.record->ended(rank_, lane, l.since);
  --unfinished_;
  note_performed(lane);
  work_ended(lane / with_.lanes, lane % with_.lanes);
  finish_if_done();
}

void virtual_rank::on_access(std::int32_t lane) {
  lane_info& l = lanes_[static_cast<std::size_t>(lane)];
  if (--l.accesses > 0) return;
  virtual_scheduler& time = with_.ways.time();
  if (l.work_end > time.now()) time.at(l.work_end, address(), work_event{lane});
  else on_work(lane);
}

// -- computation beside the collective ----------------------------------------------------------------------------------

void virtual_rank::compute_block(std::int32_t block) {
  const virtual_options& o = with_.options;
  const rank_place at = with_.on.place_of(rank_);
  const std::int64_t each = o.compute / o.compute_blocks;
  const std::int64_t begin = with_.ways.time().now();
  std::int64_t end = with_.ways.work(at.core, each, 0);
  if (at.dma != no_element && o.compute_dma_bytes > 0)
    end = std::max(
        end, with_.ways.work(at.dma, with_.on.occupancy(at.dma, o.compute_dma_bytes).count(), o.compute_dma_bytes));
  if (with_.record) {
    virtual_span span;
    span.actor = rank_, span.kind = span_kind::compute, span.begin = begin, span.end = end;
    with_.record->span(span);
  }
  with_.ways.time().at(end, address(), compute_event{block});
}

void virtual_rank::on_compute(std::int32_t block) {
  if (lost_) return;
  if (block + 1 < with_.options.compute_blocks) return compute_block(block + 1);
  computing_ = false;
  if (!with_.options.overlap) begin();
  else finish_if_done();
}

// -- events -----------------------------------------------------------------------------------------------------------

/// A failure ends the run once its owner looks, and until then nothing more happens to its ranks.
template <class Handler>
void virtual_rank::guarded(Handler handler) noexcept {
  if (with_.failure) return;
  try {
    handler();
    with_.settle();
  } catch (...) {
    with_.failure = std::current_exception();
  }
}

void virtual_rank::handle(start_event) {
  guarded([&] { on_start(); });
}
void virtual_rank::handle(arrival_event e) {
  if (with_.ways.is_early(e.message)) return;
  guarded([&] { on_arrival(e.message); });
}
void virtual_rank::handle(work_event e) {
  guarded([&] { on_work(e.lane); });
}
void virtual_rank::handle(access_event e) {
  guarded([&] { on_access(e.lane); });
}
void virtual_rank::handle(compute_event e) {
  guarded([&] { on_compute(e.block); });
}
void virtual_rank::handle(loss_event) {
  guarded([&] { on_loss(); });
}
void virtual_rank::handle(word_event e) {
  guarded([&] { on_word(e.word); });
}

}  // namespace troupe::actors
