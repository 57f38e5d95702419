// SPDX-License-Identifier: Apache-2.0
// A scenario with a flow → a result: how its collectives are performed at each size, and the replay of all tiles.
#include <algorithm>
#include <chrono>
#include <numeric>

#include "engine/tools/study/parts.hpp"
#include "engine/tools/study/study.hpp"
#include "memory/error.hpp"
#include "memory/spelling.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/lower/partition.hpp"
#include "protocols/verify/verifier.hpp"

namespace troupe {

namespace {

/// A partitioned score of more steps is not verified before it is performed: it takes seconds.
constexpr std::size_t most_verified_steps_of_parts = 20'000;
/// Operations of all ranks; a replay of more takes minutes.
constexpr std::size_t most_flow_operations = 8'000'000;

class flow_run {
public:
  flow_run(const study_scenario& scenario, const study_run_options& options)
      : scenario_(scenario),
        options_(options),
        machine_(study_machine_of(scenario)),
        parts_(scenario, machine_, options.progress, options.go_on, result_.remarks) {
    result_.scenario = scenario;
    result_.on = std::make_shared<const hardware>(machine_.on);
    check_machine();
    result_.shown = shown_size(scenario, options);
    for (const std::size_t size : scenario_.sizes) check_parts(size);
  }

  study_result run() {
    for (std::size_t i = 0; i < scenario_.sizes.size(); ++i) {
      perform(scenario_.sizes[i], options_.record == study_run_options::recorded::all ||
                                      (options_.record == study_run_options::recorded::shown && i == result_.shown));
    }
    return std::move(result_);
  }

private:
  const hardware& on() const { return machine_.on; }

  void check_machine() const {
    if (on().nics)
      throw error(errc::unsupported,
                  on().name + ": there are no flows where NICs perform collectives; take another preset");
    refuse_losses(scenario_, on(), "a flow does not say what its nodes do then");
    for (const study_node& n : scenario_.flow.nodes) {
      if (n.exchanged() == nullptr) continue;
      if (!on().memory_way || on().host.sync.count() < 0)
        throw error(errc::unsupported, n.at("through") + on().name + " has no " +
                                           (on().memory_way ? "barrier in hardware (hardware.host.sync)"
                                                            : "memory that all ranks address") +
                                           "; take sunway_card, or a collective");
    }
  }

  std::uint64_t share_of(std::size_t size) const {
    const std::size_t element = size_of(scenario_.type);
    return size / static_cast<std::size_t>(on().ranks) / element * element;
  }

  /// More parts would only cut tiles smaller than study.flow.tile asks for, and each part costs messages of its own.
  void check_parts(std::size_t size) const {
    const std::uint64_t share = share_of(size), tiles = scenario_.flow.least_tiles_of(share);
    for (const study_node& n : scenario_.flow.nodes)
      if (n.parts > 0 && static_cast<std::uint64_t>(n.parts) > tiles)
        throw error(errc::bad_config, n.at("parts") + plural(static_cast<std::size_t>(n.parts), "part") +
                                          " are more than the " + plural(tiles, "tile") + " of a share at " +
                                          bytes_text(size) + "; take fewer parts, or smaller tiles (study.flow.tile)");
  }

  void perform(std::size_t size, bool record) {
    const auto ranks = static_cast<std::size_t>(on().ranks);
    const std::uint64_t share = share_of(size);
    study_flow_row tiles;
    tiles.tiles = scenario_.flow.tiles_of(share);
    std::vector<planned_collective> planned;
    study_row row;
    for (const study_node& n : scenario_.flow.nodes)
      planned.push_back(n.what == study_node::kind::collective ? plan(n, size, row) : planned_collective{});
    auto lowered = std::make_shared<const lowered_flow>(lower_flow(scenario_.flow, on(), share, tiles.tiles, planned));
    check_size(*lowered);
    if (options_.progress) options_.progress("the flow at " + bytes_text(size));
    replay_options how;
    how.protocol = on().protocols.front();
    how.go_on = [](void* context, std::uint64_t) {
      const auto& asked = *static_cast<const study_run_options*>(context);
      return !asked.go_on || asked.go_on();
    };
    how.context = const_cast<study_run_options*>(&options_);
    const auto begin = std::chrono::steady_clock::now();
    tiles.outcome = perform_replay(lowered->trace, on(), how);
    row.wall_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    fill(row, share * ranks, tiles.outcome);
    tiles.nodes = uses_of(*lowered, tiles.outcome);
    if (record) tiles.path = flow_path(scenario_.flow, on(), *lowered, tiles.outcome);
    if (record) tiles.lowered = lowered;
    else tiles.outcome.spans.clear();
    result_.rows.push_back(std::move(row));
    result_.flow_rows.push_back(std::move(tiles));
  }

  static void check_size(const lowered_flow& made) {
    std::size_t operations = 0;
    for (const replay_rank& r : made.trace.ranks) operations += r.operations.size();
    if (operations > most_flow_operations)
      throw error(errc::out_of_memory,
                  "the flow has " + std::to_string(operations) + " loads, stores and works of tiles; take at most " +
                      std::to_string(most_flow_operations) + ": fewer ranks, or larger tiles (study.flow.tile)");
  }

  void fill(study_row& row, std::uint64_t bytes, const replay_outcome& o) const {
    row.bytes = bytes;
    row.count = bytes / size_of(scenario_.type);
    row.time_us = static_cast<double>(o.end_ps) / 1e6;
    row.outcome.end_ps = o.end_ps;
    for (const replay_times& t : o.ranks) row.outcome.finished.push_back(t.end);
    row.outcome.use = o.use;
    row.outcome.messages = o.messages;
    row.outcome.payload_bytes = o.payload_bytes;
    row.outcome.events = o.events;
    row.outcome.trace = o.trace;
  }

  // -- collectives ----------------------------------------------------------------------------------------------------

  /// As the study of that collective alone plans it.
  planned_collective plan(const study_node& n, std::size_t size, study_row& into) {
    study_scenario one = scenario_;
    one.flow = {};
    one.kind = *parse_job_kind(n.exchanges == study_node::exchange::all_gather ? "all_gather" : "reduce_scatter");
    one.sizes = {size};
    one.choreography = n.choreography;
    one.channels = n.channels;
    std::vector<int> all(static_cast<std::size_t>(on().ranks));
    std::iota(all.begin(), all.end(), 0);
    try {
      const study_row row =
          parts_.plan(one, {.ranks = all, .places = arrangement_of(on(), all), .whose_remarks = n.name + ": "});
      into.choreography += (into.choreography.empty() ? "" : "; ") + row.choreography;
      into.protocol = row.protocol;
      into.cut = row.cut;
      planned_collective made{row.notes, row.call};
      made.call.host.launch = picoseconds{0};  // the flow launches it, as it does every kernel
      if (n.parts > 0) take_in_parts(n, made);
      return made;
    } catch (const error& why) {
      throw error(why.code_value(), n.at() + why.what());
    }
  }

  void take_in_parts(const study_node& n, planned_collective& made) {
    const score& whole = *made.notes;
    if (const std::string why = why_not_partitioned(whole); !why.empty())
      throw error(errc::unsupported, "parts: " + whole.choreography + " cannot take its input in parts: " + why);
    auto parts = std::make_shared<const score>(partition(whole, n.parts));
    if (step_total(*parts) <= most_verified_steps_of_parts) {
      if (const verdict v = verify(lower_syncs(*parts)); !v.ok())
        throw error(errc::bad_score, "in parts it does not verify: " + to_string(*v.first_fault));
    } else {
      say_once(result_.remarks, n.name + ": not verified with so many parts (" + plural(step_total(*parts), "step") +
                                    "); the same partition is verified for fewer");
    }
    made.notes = std::move(parts);
    made.call.notes = made.notes.get();
    made.call.options.by = performed_by::player;
  }

  // -- what nodes did -------------------------------------------------------------------------------------------------

  /// Of one node on one rank.
  struct node_spans {
    std::vector<std::pair<std::int64_t, std::int64_t>> under_way;
    std::int64_t core_ps = 0;
    std::uint64_t bytes = 0;
  };

  std::vector<study_node_use> uses_of(const lowered_flow& made, const replay_outcome& o) const {
    std::vector<study_node_use> uses(scenario_.flow.nodes.size());
    for (std::size_t r = 0; r < made.owners.size(); ++r) {
      std::vector<node_spans> here(uses.size());
      for (std::size_t i = 0; i < made.owners[r].size(); ++i) {
        const int node = made.owners[r][i].node;
        const replay_operation& what = made.trace.ranks[r].operations[i];
        if (node < 0 || waits_only(what, scenario_.flow.nodes[static_cast<std::size_t>(node)])) continue;
        const replay_span& s = o.spans[r][i];
        node_spans& of = here[static_cast<std::size_t>(node)];
        of.under_way.emplace_back(s.begin, s.end);
        if (what.what == replay_operation::kind::calc) of.core_ps += s.end - s.begin;
        if (what.what == replay_operation::kind::memory) of.bytes += what.amount;
      }
      for (std::size_t n = 0; n < uses.size(); ++n) join(uses[n], here[n]);
    }
    return uses;
  }

  /// Syncs, and what says or hears of a part, are no work.
  static bool waits_only(const replay_operation& what, const study_node& of) {
    return what.what == replay_operation::kind::ready || what.what == replay_operation::kind::arrived ||
           (what.what == replay_operation::kind::collective && of.what != study_node::kind::collective);
  }

  void join(study_node_use& into, node_spans& of) const {
    if (of.under_way.empty()) return;
    std::ranges::sort(of.under_way);
    std::int64_t busy = 0, until = of.under_way.front().first;
    for (const auto& [begin, end] : of.under_way) {
      busy += std::max<std::int64_t>(0, end - std::max(begin, until));
      until = std::max(until, end);
    }
    const auto us = [](std::int64_t ps) { return static_cast<double>(ps) / 1e6; };
    const std::int64_t begin = of.under_way.front().first;
    const bool first = into.end_us == 0;
    into.begin_us = first ? us(begin) : std::min(into.begin_us, us(begin));
    into.end_us = std::max(into.end_us, us(until));
    if (!first && us(busy) <= into.busy_us) return;
    into.busy_us = us(busy);
    into.wait_us = us(until - begin - busy);
    into.core_us = us(of.core_ps) / scenario_.flow.cores;
    into.moved_bytes = of.bytes;
  }

  const study_scenario& scenario_;
  const study_run_options& options_;
  const study_machine machine_;
  study_result result_;
  part_studies parts_;
};

}  // namespace

study_result run_flow(const study_scenario& scenario, const study_run_options& options) {
  return flow_run{scenario, options}.run();
}

}  // namespace troupe
