// SPDX-License-Identifier: Apache-2.0
#include "actors/virtual/virtual_performers.hpp"

#include <string>

#include "actors/virtual/element_state.hpp"
#include "actors/virtual/player.hpp"
#include "memory/error.hpp"
#include "memory/spelling.hpp"

namespace troupe::actors {

void check_virtual(const score& notes, const cutting& cut, const hardware& on, const virtual_options& o) {
  const auto wrong = [](const std::string& text) { throw error(errc::invalid_argument, "virtual run: " + text); };
  on.validate();
  if (on.ranks != notes.ranks)
    wrong("the hardware " + on.name + " has " + plural(static_cast<std::size_t>(on.ranks), "rank") + ", the score " +
          std::to_string(notes.ranks));
  if (cut.channels < 1 || cut.slices < 1 || cut.slices_per_step < 1) wrong("channels and slices must be at least 1");
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
        wrong("a rank works on " + on.elements[static_cast<std::size_t>(e)].name +
              ", which serves one after the other: study.hardware." + on.class_of(e).name + ".discipline must be fifo");
}

namespace {

/// Up to here the states take some hundredths of a second (docs/study.md, "Limits"). Beyond, what they cost more than the player is felt:
/// five to ten times as much.
constexpr std::uint64_t most_steps_of_states = 20'000;
constexpr int most_ranks_of_states = 256;

bool by_states(const lazy_sizes& sizes, const hardware& on, const virtual_options& o) {
  const cutting& cut = sizes.cut();
  const bool has_type = size_of(o.type) == sizes.shape().element_size ||
                        (o.carry == payload::none && type_of_size(sizes.shape().element_size).has_value());
  const auto wrong = [](const char* text) { throw error(errc::invalid_argument, std::string{"virtual run: "} + text); };
  if (o.carry == payload::real && o.by == performed_by::player) wrong("only the ranks' states move bytes");
  if (!has_type && (o.carry == payload::real || o.by == performed_by::states))
    wrong("there is no type of that size for the elements");
  if (!on.losses.empty() && (o.by == performed_by::player || !has_type))
    wrong("only the ranks' states know what to do when one is lost");
  if (!on.losses.empty()) return true;
  if (o.carry == payload::real || o.by != performed_by::automatic) return o.by != performed_by::player;
  const std::uint64_t steps = static_cast<std::uint64_t>(step_total(sizes.notes())) *
                              static_cast<std::uint64_t>(cut.channels) * static_cast<std::uint64_t>(cut.slices);
  return has_type && steps <= most_steps_of_states && sizes.notes().ranks <= most_ranks_of_states;
}

[[noreturn]] void report_stuck(const virtual_performers& by) {
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

}  // namespace

virtual_performers make_performers(const std::shared_ptr<const lazy_sizes>& sizes, const hardware& on,
                                   const virtual_options& o, traffic& ways, std::uint32_t part, recorder* record) {
  virtual_performers made;
  const int n = sizes->notes().ranks;
  made.ranks.reserve(static_cast<std::size_t>(n));
  if (by_states(*sizes, on, o)) {
    auto all = std::make_unique<state_communicator>(*sizes, on, o, ways, part, record);
    for (rank_t r = 0; r < n; ++r)
      made.ranks.push_back(all->ranks.emplace_back(std::make_unique<state_rank>(*all, r)).get());
    made.states = all.get();
    made.all = std::move(all);
  } else {
    auto all = std::make_unique<player_communicator>(*sizes, on, o, ways, part, record);
    for (rank_t r = 0; r < n; ++r)
      made.ranks.push_back(&all->players.emplace_back(*all, r, lazy_program{sizes, r, &all->memory}));
    made.all = std::move(all);
  }
  return made;
}

void check_ended(const virtual_performers& by) {
  if (by.states != nullptr) by.states->check_failed();
  if (by.all->unfinished > 0) report_stuck(by);
  if (by.states != nullptr) by.states->check_ended();
}

void check_time(std::int64_t now) {
  if (now >= end_of_time)
    throw error(
        errc::size_overflow,
        "this takes more than 53 days of virtual time; take smaller sizes, shorter computations or faster hardware");
}

}  // namespace troupe::actors
