#include "actors/virtual/virtual_run.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>

#include <algorithm>
#include <array>
#include <deque>
#include <memory>

#include "actors/virtual/element_state.hpp"
#include "actors/virtual/player.hpp"
#include "actors/virtual/recorder.hpp"
#include "actors/virtual/traffic.hpp"
#include "actors/virtual/virtual_scheduler.hpp"
#include "memory/error.hpp"
#include "memory/spelling.hpp"

namespace troupe {

std::string_view name(span_kind kind) noexcept {
  constexpr std::array<std::string_view, span_kind_count> names{"send",   "reduce", "copy", "wait_chunk", "wait_credit",
                                                                "occupy", "launch", "sync", "compute"};
  const auto i = static_cast<std::size_t>(kind);
  return i < names.size() ? names[i] : "unknown";
}

namespace {

using namespace actors;

constexpr std::uint64_t events_between_looks = 1 << 16;

void check(const score& notes, const cutting& cut, const hardware& on, const virtual_options& o) {
  const auto wrong = [](const std::string& text) { throw error(errc::invalid_argument, "virtual run: " + text); };
  on.validate();
  if (on.ranks != notes.ranks)
    wrong("the hardware " + on.name + " has " + plural(static_cast<std::size_t>(on.ranks), "rank") + ", the score " +
          std::to_string(notes.ranks));
  if (cut.channels < 1 || cut.slices < 1) wrong("channels and slices must be at least 1");
  if (o.protocol.slots < 1 || o.protocol.wire < 1 || o.protocol.payload < 1)
    wrong("slots, wire and payload of the protocol must be at least 1");
  if (!o.skew.empty() && o.skew.size() != static_cast<std::size_t>(notes.ranks))
    wrong("skew must name every rank, or none");
  if (o.carry == payload::real && o.memory.size() != static_cast<std::size_t>(notes.ranks))
    wrong("a real payload needs every rank's buffers");
  if (o.compute < 0 || o.compute_blocks < 1) wrong("a computation takes no negative time and has at least one block");
  for (const rank_place& p : on.places)
    for (const element_index e : {p.core, p.dma})
      if (e != no_element && on.class_of(e).discipline == service::fair)
        wrong("a rank works on " + on.elements[static_cast<std::size_t>(e)].name + ", which must be fifo");
}

/// Buffers besides the caller's, for payload::real.
class provided_memory {
public:
  provided_memory(const virtual_options& o, int ranks)
      : given_(o.memory), peers_(given_.size()), blocks_(static_cast<std::size_t>(ranks) * 2) {
    for (std::size_t r = 0; r < given_.size(); ++r) peers_[r] = {given_[r].input, given_[r].output};
  }
  memory_map of(rank_t rank, const lazy_program& code) {
    if (given_.empty()) return {};
    const auto r = static_cast<std::size_t>(rank);
    memory_map m = given_[r];
    blocks_[2 * r].resize(code.scratch_bytes() + 1);
    blocks_[2 * r + 1].resize(code.l0_bytes() + 1);
    l2_.resize(code.l2_bytes() + 1);  // the same at every rank
    m.scratch = blocks_[2 * r].data();
    m.l0 = blocks_[2 * r + 1].data();
    m.l2 = l2_.data();
    m.peers = peers_.data();
    return m;
  }

private:
  std::span<const memory_map> given_;
  std::vector<peer_memory> peers_;
  std::vector<std::vector<std::byte>> blocks_;
  std::vector<std::byte> l2_;
};

[[noreturn]] void report_stuck(const ensemble& all, const std::deque<player_state>& players) {
  std::string text = "the lanes wait for each other:";
  int shown = 0;
  for (std::size_t r = 0; r < players.size() && shown < 4; ++r)
    for (const lane_wait& w : players[r].waits()) {
      text += "\n  rank " + std::to_string(r) + " " + to_string(w);
      if (++shown == 4) break;
    }
  throw error(errc::message_lost,
              text + "\n" + plural(static_cast<std::size_t>(all.unfinished), "rank") + " did not finish");
}

virtual_outcome outcome_of(const ensemble& all, const virtual_scheduler& time) {
  virtual_outcome o;
  o.finished = all.finished;
  o.end_ps = *std::max_element(o.finished.begin(), o.finished.end());
  o.use = all.ways.use();
  o.steps = all.steps;
  o.messages = all.ways.messages_sent();
  o.payload_bytes = all.ways.payload_sent();
  o.events = time.events();
  o.waited_chunk_ps = all.waited_chunk;
  o.waited_credit_ps = all.waited_credit;
  o.trace = time.trace();
  return o;
}

}  // namespace

virtual_outcome perform_virtually(const score& notes, const call_shape& shape, const cutting& cut, const hardware& on,
                                  const virtual_options& options) {
  check(notes, cut, on, options);
  const auto sizes = std::make_shared<const lazy_sizes>(notes, shape, cut);
  std::unique_ptr<recorder> record;
  if (options.record) record = std::make_unique<recorder>(*options.record, notes, cut.channels);

  // Torn down from the last to the first: actors refer to the state above them.
  caf::actor_system_config config;
  caf::actor_system system = make_virtual_actor_system(config);
  virtual_scheduler& time = virtual_scheduler::of(system);
  traffic ways{*sizes, on, options, time, record.get()};
  ensemble all{notes, *sizes, on, options, ways, record.get()};
  provided_memory memory{options, notes.ranks};
  std::deque<player_state> players;
  ways.players.reserve(static_cast<std::size_t>(notes.ranks));
  for (rank_t r = 0; r < notes.ranks; ++r) {
    lazy_program code{sizes, r, options.carry == payload::real};
    const memory_map buffers = memory.of(r, code);
    players.emplace_back(all, r, std::move(code), buffers);
    ways.players.push_back(spawn_player(system, all, players.back()));
    const std::int64_t late = options.skew.empty() ? 0 : options.skew[static_cast<std::size_t>(r)];
    time.at(late + on.host.launch.count(), ways.players.back(), start_event{});
  }
  const bool done = time.run(events_between_looks, [&] {
    return !all.failure && (options.go_on == nullptr || options.go_on(options.context, time.events()));
  });
  if (all.failure) std::rethrow_exception(all.failure);
  if (!done) throw error(errc::cancelled, "the virtual run was cancelled");
  if (time.now() >= end_of_time)
    throw error(errc::size_overflow,
                "the collective would take more than 53 days of virtual time; take smaller sizes or faster hardware");
  if (all.unfinished > 0) report_stuck(all, players);
  virtual_outcome result = outcome_of(all, time);
  ways.players.clear();
  return result;
}

}  // namespace troupe
