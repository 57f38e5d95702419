// SPDX-License-Identifier: Apache-2.0
#include "engine/planning/selection.hpp"

#include <algorithm>

#include "engine/planning/hccl_selection.hpp"
#include "engine/planning/nccl_loops.hpp"
#include "engine/planning/nccl_selection.hpp"
#include "engine/planning/plan_choice.hpp"

namespace troupe {

namespace {

/// Of all blocks that a rank has. Of blocks that differ, as many of the largest: both libraries ask for the most that a rank sends or receives, and a plan is
/// for all calls whose largest block is of one class, however the others are.
std::uint64_t all_bytes(const planning_task& task) {
  const std::size_t blocks =
      block_count(task.what.what, task.ranks()) == 1 ? 1 : static_cast<std::size_t>(task.ranks());
  return task.largest_block() * size_of(task.what.type) * blocks;
}

std::string name_of_form(const call& what) { return std::string{name(what.what)} + (what.uniform ? "" : "_v"); }

hccl_case hccl_case_of(const hccl_options& o, const planning_task& task) {
  hccl_case of;
  of.places = task.placement;
  of.what = task.what.what;
  of.bytes = all_bytes(task);
  of.ccl_buffer = o.buffer;
  of.device = o.device;
  of.super_pod = o.super_pod;
  of.aiv = o.aiv;
  of.aicpu_unfolded = o.aicpu_unfolded;
  of.one_level = o.one_level;
  of.level0 = o.level0;
  of.level1 = o.level1;
  return of;
}

selected_way as_hccl(const engine_options& options, const planning_task& task, const why_not_performed_by& why_not) {
  const hccl_choice chosen = select_as_hccl(hccl_case_of(options.hccl, task), options.streams);
  selected_way way;
  way.by = who_selects("hccl");
  way.choreography = chosen.choreography;
  way.through_scratch = chosen.through_scratch;
  // BCopy's pieces are what fits the CCL buffer.
  if (chosen.through_scratch) way.scratch_bytes = std::max<std::size_t>(options.hccl.buffer, 4096);
  else way.chunk_bytes = chosen.chunk_bytes;
  way.path = chosen.path;
  if (way.choreography.empty()) {
    way.path.push_back("the cost model chooses");
    return way;
  }
  if (task.what.what == collective::all_to_all && options.through_scratch && !way.through_scratch)
    way.path.push_back("BCopy all the same, where there is a choice: engine.through_scratch is set");
  planning_task so = task;
  so.selected = way;
  const std::string why = why_not(way.choreography, so);
  if (why.empty()) return way;
  way.unused = way.choreography + " is not used: " + why;
  way.path.push_back("not used, " + why + "; the cost model chooses");
  way.choreography.clear();
  return way;
}

/// Only messages by Simple are cut over channels here; so where LL or LL128 cannot be, which only the planner finds out, there are as many as
/// NCCL gives Simple. A tree's two halves are two of NCCL's channels, and one of ours. Of what a switch reduces they are not modelled: the
/// cost model's. Likewise slices: no longer ones than NCCL's.
void take_cut(selected_way& way, const nccl_case& of, const nccl_choice& chosen, const nccl_row& taken) {
  const nccl_row* by_simple = chosen.find(taken.algorithm, message_protocol::simple);
  if (by_simple == nullptr || by_simple->channels == 0) return;
  const bool pairs = taken.algorithm == nccl_algorithm::tree;
  way.channels = pairs ? (by_simple->channels + 1) / 2 : by_simple->channels;
  const std::string if_so = taken.how == message_protocol::simple ? "" : "if by simple: ";
  way.path.push_back(if_so + std::to_string(by_simple->channels) + " of " + std::to_string(chosen.channels) +
                     " channels, " + by_simple->why_channels + (pairs ? "; a tree's two halves are one here" : ""));
  if (const auto loops = loops_of(of, *by_simple)) {
    way.path.push_back(if_so + loops_text(*loops));
    way.chunk_bytes = static_cast<std::size_t>(loops->chunk) / static_cast<std::size_t>(loops->slices);
  }
}

/// The fastest that somebody performs here.
selected_way as_nccl(const engine_options& options, const planning_task& task, const why_not_performed_by& why_not) {
  selected_way way;
  way.by = who_selects("nccl");
  const nccl_case of{.places = task.placement,
                     .what = task.what.what,
                     .bytes = all_bytes(task),
                     .type = task.what.type,
                     .op = task.what.reduction.kind,
                     .machine = options.nccl,
                     .tree = {}};
  const nccl_choice chosen = select_as_nccl(of);
  if (task.what.what == collective::all_to_all) {
    const std::string why = why_not("grouped", task);
    if (why.empty()) way.choreography = "grouped";
    way.path.push_back(
        "NCCL has no " + name_of_form(task.what) + ", but groups of sends and receives, " +
        (why.empty() ? "performed by grouped" : "which are skipped: grouped: " + why + "; the cost model chooses"));
    const std::uint64_t block = task.largest_block() * size_of(task.what.type);
    if (why.empty() && task.what.uniform && block > 0 && task.ranks() > 1 &&
        options.nccl.version == nccl_version::v2_19)
      way.path.push_back("NCCL's pieces: " + p2p_text(p2p_of(of, block)));
    return way;
  }
  if (chosen.rows.empty() || !task.what.uniform) {
    way.path.push_back("NCCL has no choice for " + name_of_form(task.what) + "; the cost model chooses");
    return way;
  }
  way.path = table_of(chosen);
  for (const std::size_t i : chosen.order) {
    const nccl_row& row = chosen.rows[i];
    const std::string who = std::string{name(row.algorithm)} + ' ' + std::string{name(row.how)};
    const std::string why = why_not(row.choreography, task);
    if (why.empty()) {
      way.choreography = row.choreography;
      way.protocol = row.how;
      way.path.push_back(who + ", performed by " + way.choreography);
      if (const auto loops = row.how == message_protocol::simple ? std::nullopt : loops_of(of, row))
        way.path.push_back(loops_text(*loops));
      take_cut(way, of, chosen, row);
      return way;
    }
    const std::string skipped = who + " is skipped: " + row.choreography + ": " + why;
    way.unused += (way.unused.empty() ? "" : "; ") + skipped;
    way.path.push_back(skipped);
  }
  way.path.push_back("nobody is left; the cost model chooses");
  return way;
}

selected_way as_measured(const tuning& machine, const planning_task& task, const why_not_performed_by& why_not) {
  selected_way way;
  way.by = who_selects("measured");
  const std::string others = "; the cost model chooses";
  if (!task.placement.is_flat() || task.where.farthest() != reach::process || !task.what.uniform) {
    way.path.push_back("what was measured are calls with equal blocks, of threads of one process on a flat layout" +
                       others);
    return way;
  }
  if (task.what.offload) {
    way.path.push_back("nothing was measured by the NIC" + others);
    return way;
  }
  // Sizes of a class have one plan.
  planning_task largest = task;
  largest.what.count = largest_of_class(task.what.count);
  largest.counts.clear();
  const std::uint64_t bytes = all_bytes(largest);
  const measured_choice* const choice = find_choice(machine.choices, task.what.what, task.ranks(), bytes);
  if (choice == nullptr) {
    const std::string ranks = ranks_with_choices(machine.choices, task.what.what);
    way.path.push_back("nothing was measured for " + std::string{name(task.what.what)} + " of " +
                       std::to_string(task.ranks()) + " ranks" +
                       (ranks.empty() ? "" : ", but for " + ranks + " ranks") + others);
    return way;
  }
  const std::string who = choice->choreography + ", " + std::string{name(choice->protocol)};
  const std::string until =
      choice->up_to == measured_choice::no_limit ? "" : " of at most " + std::to_string(choice->up_to) + " bytes";
  if (const std::string why = why_not(choice->choreography, task); !why.empty()) {
    way.unused = who + " is not used: " + why;
    way.path.push_back("the fastest" + until + " was " + who + "; not used, " + why + others);
    return way;
  }
  way.choreography = choice->choreography;
  way.protocol = choice->protocol;
  way.exactly = true;
  way.path.push_back("the fastest" + until + " was " + who);
  return way;
}

}  // namespace

std::string who_selects(std::string_view planner) {
  return planner == "hccl"       ? "HCCL's selection"
         : planner == "nccl"     ? "NCCL's tuning model"
         : planner == "measured" ? "what was measured"
                                 : "";
}

selected_way select_as(const engine_options& options, const tuning& machine, const planning_task& task,
                       const why_not_performed_by& why_not) {
  if (options.planner == "measured") return as_measured(machine, task, why_not);
  if (options.planner == "hccl") return as_hccl(options, task, why_not);
  if (options.planner == "nccl") return as_nccl(options, task, why_not);
  return {};
}

}  // namespace troupe
