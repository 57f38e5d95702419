// SPDX-License-Identifier: Apache-2.0
#include "actors/virtual/virtual_run.hpp"

#include <algorithm>
#include <array>
#include <memory>

#include "actors/virtual/recorder.hpp"
#include "actors/virtual/virtual_performers.hpp"
#include "actors/virtual/virtual_scheduler.hpp"
#include "memory/error.hpp"

namespace troupe {

std::string_view name(span_kind kind) noexcept {
  constexpr std::array<std::string_view, span_kind_count> names{"send",   "reduce", "copy", "wait_chunk", "wait_credit",
                                                                "occupy", "launch", "sync", "compute"};
  const auto i = static_cast<std::size_t>(kind);
  return i < names.size() ? names[i] : "unknown";
}

namespace {

using namespace actors;

virtual_outcome outcome_of(const virtual_performers& by, const virtual_scheduler& time) {
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
  if (o.by_states) o.ends = by.states->ends();
  return o;
}

}  // namespace

virtual_outcome perform_virtually(const score& notes, const call_shape& shape, const cutting& cut, const hardware& on,
                                  const virtual_options& options) {
  check_virtual(notes, cut, on, options);
  const auto sizes = std::make_shared<const lazy_sizes>(notes, shape, cut);
  std::unique_ptr<recorder> record;
  if (options.record) record = std::make_unique<recorder>(*options.record, notes, cut.channels);

  // Torn down from the last to the first: ranks refer to the state above them.
  virtual_scheduler time;
  traffic ways{on, time, record.get()};
  const std::uint32_t part = ways.add(*sizes, on, options.protocol);
  ways.set_up(options.any_order ? traffic::ties::matter : traffic::ties::are_free);
  const virtual_performers by = make_performers(sizes, on, options, ways, part, record.get());
  ways.ranks.reserve(by.ranks.size());
  for (std::size_t r = 0; r < by.ranks.size(); ++r) {
    ways.ranks.push_back(by.ranks[r]->address());
    const std::int64_t late = options.skew.empty() ? 0 : options.skew[r];
    time.at(late + on.host.launch.count(), ways.ranks.back(), start_event{});
  }
  for (const rank_loss& l : on.losses) time.at(l.at_ps, ways.ranks[static_cast<std::size_t>(l.rank)], loss_event{});
  const auto go_on = [&] {
    return !by.all->failure && time.now() <= options.give_up_after &&
           (options.go_on == nullptr || options.go_on(options.context, time.events()));
  };
  const bool done = go_on() && time.run(events_between_looks, go_on);
  if (by.all->failure) std::rethrow_exception(by.all->failure);
  if (!done && time.now() > options.give_up_after) {
    virtual_outcome none;
    none.end_ps = time.now();
    none.given_up = true;
    ways.ranks.clear();
    return none;
  }
  if (!done) throw error(errc::cancelled, "the virtual run was cancelled");
  check_time(time.now());
  check_ended(by);
  virtual_outcome result = outcome_of(by, time);
  ways.ranks.clear();
  return result;
}

}  // namespace troupe
