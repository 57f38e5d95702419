#include "actors/virtual/player.hpp"

#include <caf/event_based_actor.hpp>

#include <algorithm>
#include <limits>

#include "actors/virtual/element_state.hpp"
#include "actors/virtual/recorder.hpp"
#include "memory/error.hpp"

namespace troupe::actors {

ensemble::ensemble(const score& s, const lazy_sizes& sizes, const hardware& h, const virtual_options& o, traffic& w,
                   recorder* r)
    : notes(s), on(h), options(o), ways(w), record(r), lanes(sizes.lanes()), channels(sizes.cut().channels) {
  const host_costs& c = h.host;
  free_steps = c.step.count() == 0 && c.send.count() == 0 && c.receive.count() == 0 && c.forward.count() == 0 &&
               c.transfer.count() == 0 && c.copy_rate == 0 && c.reduce_rate == 0 && c.sync.count() < 0 &&
               h.places.empty();
  barriers.resize(static_cast<std::size_t>(lanes * channels));
  finished.assign(static_cast<std::size_t>(s.ranks), -1);
  unfinished = s.ranks;
  if (o.carry == payload::real) slots.resize(w.connection_count() * static_cast<std::size_t>(o.protocol.slots));
}

/// The performer's view of the world for one channel; made for the time of a call.
struct player_state::port {
  player_state& of;
  int channel;
  chunk present{};

  lane_info& info(int lane) { return of.lanes_[static_cast<std::size_t>(channel * of.with_.lanes + lane)]; }
  std::uint32_t in(int lane, rank_t from) {
    return of.with_.ways.incoming(of.rank_, channel, lane, from, info(lane).in_hint);
  }
  std::uint32_t out(int lane, rank_t to) {
    return of.with_.ways.outgoing(of.rank_, channel, lane, to, info(lane).out_hint);
  }

  const chunk* front(int lane, rank_t from) {
    const std::uint32_t at = in(lane, from);
    const virtual_message* m = at == no_connection ? nullptr : of.with_.ways.front(at);
    if (m == nullptr) {
      info(lane).waits_for = reason::arrival;
      return nullptr;
    }
    present.data = m->data;
    present.bytes = m->payload;
    return &present;
  }
  void consume(int lane, rank_t from) {
    const std::uint32_t at = in(lane, from);
    if (of.with_.record)
      of.with_.record->taken(of.rank_, channel * of.with_.lanes + lane, of.with_.ways.front(at)->flow);
    of.with_.ways.consume(at);
  }
  bool can_send(int lane, rank_t to) {
    if (of.with_.ways.can_send(out(lane, to))) return true;
    info(lane).waits_for = reason::credit;
    return false;
  }
  void send(int lane, rank_t to, const std::byte* data, std::size_t bytes) {
    of.with_.ways.send(out(lane, to), data, bytes);
  }
  std::byte* slot(int lane, rank_t to, std::size_t bytes) {
    if (of.with_.slots.empty()) return nullptr;
    const std::uint32_t at = out(lane, to);
    const auto credits = static_cast<std::uint32_t>(of.with_.options.protocol.slots);
    auto& mine = of.with_.slots[std::size_t{at} * credits + of.with_.ways.at(at).sent % credits];
    mine.resize(bytes);
    return mine.data();
  }
  bool transfer(int, std::byte* target, const std::byte* source, std::size_t bytes) {
    troupe::copy(target, source, bytes);
    return true;
  }
  bool carries_payload() const { return of.with_.options.carry == payload::real; }
  bool begin_work(int lane, const instruction& i);
};

bool player_state::port::begin_work(int lane, const instruction& i) {
  ensemble& with = of.with_;
  lane_info& l = info(lane);
  const std::int64_t now = with.ways.time().now();
  ++with.steps;
  if (now > l.since) {
    if (l.waits_for == reason::arrival) with.waited_chunk += now - l.since;
    else if (l.waits_for == reason::credit) with.waited_credit += now - l.since;
  }
  const std::int32_t global = channel * with.lanes + lane;
  const bool is_barrier = i.kind == step_kind::sync;
  const std::int64_t end = with.free_steps || is_barrier ? now : of.end_of_work(i, now);
  if (with.record) {
    const virtual_message* taken = receives(i.kind) ? with.ways.front(in(lane, i.from)) : nullptr;
    const bool first =
        l.waits_for == reason::start;  // and neither a chunk nor a credit was missed: `after` was, if anything
    const reason why = now > l.since ? (first ? reason::other_lane : l.waits_for)
                       : first       ? reason::start
                                     : reason::own_step;
    with.record->step(of.rank_, global, i, i.elements * of.code_.element_size, l.since, now, end, why,
                      taken ? taken->flow : -1);
  }
  l.since = end;
  l.waits_for = is_barrier ? reason::sync : reason::other_lane;  // unless a look for a chunk or a credit says otherwise
  if (is_barrier) return of.reach_barrier(global);
  l.work_end = end;
  if (of.access_shared(i, global)) return false;
  if (end == now) return true;
  with.ways.time().at(end, with.ways.players[static_cast<std::size_t>(of.rank_)], work_event{global});
  return false;
}

namespace {

std::int64_t time_for(std::uint64_t bytes, std::uint64_t rate) {
  if (rate == 0) return 0;
  return std::min(link_parameters{std::chrono::nanoseconds{0}, rate}.occupancy(bytes).count(), end_of_time / 2);
}

/// Bytes that a step's kernels read and write, for work that passes the DMA engine.
std::uint64_t touched(const instruction& i, std::uint64_t bytes) { return (reduces(i.kind) ? 3 : 2) * bytes; }

bool is_shared(const location& at) {
  return at.buffer == buffer_kind::l2 || (at.buffer != buffer_kind::none && at.owner != self);
}

}  // namespace

/// Begins the step's accesses to others' memory. False: there are none.
bool player_state::access_shared(const instruction& i, std::int32_t lane) {
  const bool local = i.kind == step_kind::copy || i.kind == step_kind::reduce || i.kind == step_kind::dma_get ||
                     i.kind == step_kind::dma_put;
  if (!local || (!is_shared(i.source) && !is_shared(i.target))) return false;
  const std::uint64_t bytes = i.elements * code_.element_size;
  const auto begin = [&](const location& at, bool writes) {
    ++lanes_[static_cast<std::size_t>(lane)].accesses;
    with_.ways.access(rank_, lane, at.buffer == buffer_kind::l2 ? shared_segment : at.owner, writes, bytes);
  };
  if (is_shared(i.source)) begin(i.source, false);
  if (is_shared(i.target)) begin(i.target, true);
  if (is_shared(i.target) && i.kind == step_kind::reduce) begin(i.target, false);
  return true;
}

/// When the step's own work is done, if it begins now.
std::int64_t player_state::end_of_work(const instruction& i, std::int64_t now) {
  const host_costs& host = with_.on.host;
  const rank_place at = with_.on.place_of(rank_);
  const std::uint64_t bytes = i.elements * code_.element_size;
  std::int64_t alone = host.step.count();
  if (receives(i.kind)) alone += host.receive.count();
  if (sends(i.kind)) alone += host.send.count();
  if (receives(i.kind) && sends(i.kind)) alone += host.forward.count();
  if (i.kind == step_kind::dma_get || i.kind == step_kind::dma_put) {
    alone += host.transfer.count();
    if (at.dma == no_element || is_shared(i.source) || is_shared(i.target))
      return now + alone;  // shared: the engine is part of the way
    const element_class& engine = with_.on.class_of(at.dma);
    return with_.ways.work(at.dma, engine.overhead.count() + with_.on.occupancy(at.dma, bytes).count(), bytes) +
           engine.latency.count() + alone;
  }
  const bool lands = i.kind == step_kind::recv || i.kind == step_kind::recv_copy_send;
  const bool copies = writes(i.kind) && !reduces(i.kind) && (!lands || !host.receive_in_place);
  const std::int64_t fixed = alone;
  if (reduces(i.kind)) alone += time_for(bytes, host.reduce_rate);
  else if (copies) alone += time_for(bytes, host.copy_rate);
  std::int64_t end = alone == 0 ? now : with_.ways.work(at.core, alone, bytes);
  const bool in_l0 = i.source.buffer == buffer_kind::l0 && i.target.buffer == buffer_kind::l0;
  if (host.work_uses_dma && at.dma != no_element && !in_l0 && (reduces(i.kind) || copies)) {
    const std::uint64_t through = touched(i, bytes);
    end = std::max(end, with_.ways.work(at.dma, with_.on.occupancy(at.dma, through).count(), through) + fixed);
  }
  return end;
}

/// A hardware barrier. The last one to come lets all go on, `sync` later.
bool player_state::reach_barrier(std::int32_t lane) {
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
    time.at(end, with_.ways.players[static_cast<std::size_t>(rank)], work_event{lane});
    if (with_.record) with_.record->synchronised(rank, lane, rank_, since, end);
  }
  waiting.clear();
  return false;
}

// -- life -------------------------------------------------------------------------------------------------------------

player_state::player_state(ensemble& with, rank_t rank, lazy_program code, const memory_map& memory)
    : with_(with), rank_(rank), code_(std::move(code)) {
  performers_.reserve(static_cast<std::size_t>(with.channels));
  const virtual_options& o = with.options;
  for (int c = 0; c < with.channels; ++c) performers_.emplace_back(code_, c, memory, o.type, o.reduction, o.any_order);
  lanes_.resize(static_cast<std::size_t>(with.channels * with.lanes));
  for (const auto& p : performers_) unfinished_ += p.performed() ? 0 : 1;
}

void player_state::on_start() {
  const virtual_options& o = with_.options;
  if (with_.record && with_.on.host.launch.count() > 0) {
    virtual_span span;
    span.actor = rank_, span.kind = span_kind::launch, span.end = with_.ways.time().now();
    span.begin = span.end - with_.on.host.launch.count();
    with_.record->span(span);
  }
  if (o.compute > 0) {
    ++unfinished_;
    compute_block(0);
    if (!o.overlap) return;
  }
  begin();
}

void player_state::begin() {
  begun_ = true;
  const std::int64_t now = with_.ways.time().now();
  for (lane_info& l : lanes_) l.since = now;
  for (int c = 0; c < with_.channels; ++c)
    if (!performers_[static_cast<std::size_t>(c)].performed()) advance(c);
  if (unfinished_ == 0) rank_finished();
}

void player_state::advance(int channel) {
  auto& p = performers_[static_cast<std::size_t>(channel)];
  if (!begun_ || p.performed()) return;
  port through{*this, channel};
  using status = basic_performer<lazy_program>::status;
  const status result = p.advance(through);
  if (result == status::mismatch)
    throw error(errc::bad_score,
                "rank " + std::to_string(rank_) + " gets a chunk of another size than its step expects");
  if (result == status::performed && --unfinished_ == 0) rank_finished();
}

void player_state::rank_finished() {
  const std::int64_t end = with_.ways.time().now() + with_.on.host.finish.count();
  with_.finished[static_cast<std::size_t>(rank_)] = end;
  --with_.unfinished;
  if (with_.record) with_.record->finished(rank_, end);
}

void player_state::on_arrival(std::uint32_t message) {
  const std::uint32_t at = with_.ways.arrived(message);
  advance(with_.channels == 1 ? 0 : with_.ways.at(at).lane / with_.lanes);
}

void player_state::on_work(std::int32_t lane) {
  const int channel = lane / with_.lanes;
  lane_info& l = lanes_[static_cast<std::size_t>(lane)];
  l.since = with_.ways.time().now();
  if (with_.record && l.waits_for != reason::sync) with_.record->ended(rank_, lane, l.since);
  performers_[static_cast<std::size_t>(channel)].transferred(lane % with_.lanes);
  advance(channel);
}

void player_state::on_access(std::int32_t lane) {
  lane_info& l = lanes_[static_cast<std::size_t>(lane)];
  if (--l.accesses > 0) return;
  virtual_scheduler& time = with_.ways.time();
  if (l.work_end > time.now())
    time.at(l.work_end, with_.ways.players[static_cast<std::size_t>(rank_)], work_event{lane});
  else on_work(lane);
}

void player_state::on_credit(std::int32_t lane) { advance(lane / with_.lanes); }

// -- computation beside the collective ----------------------------------------------------------------------------------

void player_state::compute_block(std::int32_t block) {
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
  with_.ways.time().at(end, with_.ways.players[static_cast<std::size_t>(rank_)], compute_event{block});
}

void player_state::on_compute(std::int32_t block) {
  if (block + 1 < with_.options.compute_blocks) return compute_block(block + 1);
  --unfinished_;
  if (!begun_) begin();
  else if (unfinished_ == 0) rank_finished();
}

std::vector<lane_wait> player_state::waits() const {
  std::vector<lane_wait> all;
  for (const auto& p : performers_)
    for (const lane_wait& w : p.waits()) all.push_back(w);
  return all;
}

// -- the actor --------------------------------------------------------------------------------------------------------

namespace {

class player final : public caf::event_based_actor {
public:
  player(caf::actor_config& config, ensemble& with, player_state& state)
      : event_based_actor(config), with_(with), state_(state) {}

  caf::behavior make_behavior() override {
    return {
        [this](arrival_event e) { guarded([&] { state_.on_arrival(e.message); }); },
        [this](work_event e) { guarded([&] { state_.on_work(e.lane); }); },
        [this](access_event e) { guarded([&] { state_.on_access(e.lane); }); },
        [this](credit_event e) { guarded([&] { state_.on_credit(e.lane); }); },
        [this](compute_event e) { guarded([&] { state_.on_compute(e.block); }); },
        [this](start_event) { guarded([&] { state_.on_start(); }); },
    };
  }
  const char* name() const override { return "player"; }

private:
  /// Exceptions do not cross a message: CAF would only end the actor.
  template <class Handler>
  void guarded(Handler handler) noexcept {
    if (with_.failure) return;
    try {
      handler();
    } catch (...) {
      with_.failure = std::current_exception();
    }
  }

  ensemble& with_;
  player_state& state_;
};

}  // namespace

caf::actor spawn_player(caf::actor_system& system, ensemble& with, player_state& state) {
  return system.spawn<player, caf::lazy_init + caf::hidden>(std::ref(with), std::ref(state));
}

}  // namespace troupe::actors
