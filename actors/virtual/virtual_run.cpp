// SPDX-License-Identifier: Apache-2.0
#include "actors/virtual/virtual_run.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "actors/virtual/element_state.hpp"
#include "actors/virtual/player.hpp"
#include "actors/virtual/recorder.hpp"
#include "actors/virtual/state_rank.hpp"
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
      if (e != no_element && on.class_of(e).discipline != service::fifo)
        wrong("a rank works on " + on.elements[static_cast<std::size_t>(e)].name + ", which must be fifo");
}

/// Up to here the states take at most a fifth of a second (docs/study.md, 9). Beyond, what they cost more than the player is felt.
constexpr std::uint64_t most_steps_of_states = 200'000;
constexpr int most_ranks_of_states = 1024;

bool by_states(const lazy_sizes& sizes, const virtual_options& o) {
  const cutting& cut = sizes.cut();
  const bool has_type = size_of(o.type) == sizes.shape().element_size ||
                        (o.carry == payload::none && type_of_size(sizes.shape().element_size).has_value());
  const auto wrong = [](const char* text) { throw error(errc::invalid_argument, std::string{"virtual run: "} + text); };
  if (o.carry == payload::real && o.by == performed_by::player) wrong("only the ranks' states move bytes");
  if (!has_type && (o.carry == payload::real || o.by == performed_by::states))
    wrong("there is no type of that size for the elements");
  if (o.carry == payload::real || o.by != performed_by::automatic) return o.by != performed_by::player;
  const std::uint64_t steps = static_cast<std::uint64_t>(step_total(sizes.notes())) *
                              static_cast<std::uint64_t>(cut.channels) * static_cast<std::uint64_t>(cut.slices);
  return has_type && steps <= most_steps_of_states && sizes.notes().ranks <= most_ranks_of_states;
}

/// The ranks of a run, whoever performs them. Torn down before the traffic that they speak through.
struct performing {
  std::unique_ptr<virtual_communicator> all;
  std::vector<virtual_rank*> ranks;  ///< owned by `all`
  const state_communicator* states = nullptr;
};

performing make_ranks(const std::shared_ptr<const lazy_sizes>& sizes, const hardware& on, const virtual_options& o,
                      traffic& ways, recorder* record) {
  performing made;
  const int n = sizes->notes().ranks;
  made.ranks.reserve(static_cast<std::size_t>(n));
  if (by_states(*sizes, o)) {
    auto all = std::make_unique<state_communicator>(*sizes, on, o, ways, record);
    for (rank_t r = 0; r < n; ++r)
      made.ranks.push_back(all->ranks.emplace_back(std::make_unique<state_rank>(*all, r)).get());
    made.states = all.get();
    made.all = std::move(all);
  } else {
    auto all = std::make_unique<player_communicator>(*sizes, on, o, ways, record);
    for (rank_t r = 0; r < n; ++r)
      made.ranks.push_back(all->players.emplace_back(std::make_unique<player>(*all, r, lazy_program{sizes, r})).get());
    made.all = std::move(all);
  }
  return made;
}

[[noreturn]] void report_stuck(const performing& by) {
  std::string text = "the lanes wait for each other:";
  int shown = 0;
  for (std::size_t r = 0; r < by.ranks.size() && shown < 4; ++r) {
    if (by.all->finished[r] >= 0) continue;
    for (const std::string& w : by.ranks[r]->waits()) {
      text += "\n  rank " + std::to_string(r) + " " + w;
      if (++shown == 4) break;
    }
  }
  throw error(errc::message_lost,
              text + "\n" + plural(static_cast<std::size_t>(by.all->unfinished), "rank") + " did not finish");
}

virtual_outcome outcome_of(const performing& by, const virtual_scheduler& time) {
  const virtual_communicator& all = *by.all;
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
  o.by_states = by.states != nullptr;
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
  performing by = make_ranks(sizes, on, options, ways, record.get());
  ways.ranks.reserve(by.ranks.size());
  for (std::size_t r = 0; r < by.ranks.size(); ++r) {
    ways.ranks.push_back(spawn_virtual_rank(system, *by.all, *by.ranks[r]));
    const std::int64_t late = options.skew.empty() ? 0 : options.skew[r];
    time.at(late + on.host.launch.count(), ways.ranks.back(), start_event{});
  }
  const bool done = time.run(events_between_looks, [&] {
    return !by.all->failure && (options.go_on == nullptr || options.go_on(options.context, time.events()));
  });
  if (by.all->failure) std::rethrow_exception(by.all->failure);
  if (!done) throw error(errc::cancelled, "the virtual run was cancelled");
  if (time.now() >= end_of_time)
    throw error(errc::size_overflow,
                "the collective would take more than 53 days of virtual time; take smaller sizes or faster hardware");
  if (by.states != nullptr) by.states->check_failed();
  if (by.all->unfinished > 0) report_stuck(by);
  if (by.states != nullptr) by.states->check_ended();
  virtual_outcome result = outcome_of(by, time);
  ways.ranks.clear();
  return result;
}

}  // namespace troupe
