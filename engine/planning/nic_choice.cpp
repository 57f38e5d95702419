// SPDX-License-Identifier: Apache-2.0
#include "engine/planning/nic_choice.hpp"

#include <algorithm>
#include <limits>

#include "protocols/score/score_tally.hpp"

namespace troupe {

namespace {

/// The proof on symbols takes some milliseconds then, once for each score.
constexpr int most_nic_ranks = 128;
/// Of a step: a packet is handed over, found and answered. Assumed, as the next one is: they choose among choreographies, and are what
/// `troupe explain` shows as predicted.
constexpr double step_seconds = 0.4e-6;
/// Of a byte that is copied or reduced: from memory, by one core.
constexpr double byte_seconds = 1 / 8e9;

double seconds_of(const score_tally& t, std::size_t block_bytes) {
  const double cell = static_cast<double>(block_bytes) / std::max(1, t.parts);
  double cells = 0;
  for (const score_tally::kind& k : t.kinds)
    cells += k.ranks * static_cast<double>(k.each.copied + k.each.reduced + k.each.local_copied + k.each.local_reduced);
  return static_cast<double>(t.steps()) * step_seconds + cells * cell * byte_seconds;
}

}  // namespace

std::string why_not_by_nic(const planning_task& task, const engine_options& options) {
  if (task.where.farthest() != reach::process)
    return "its ranks live in several processes, and the NIC of a process performs for that one's ranks only";
  if (task.where.routed())
    return "the layout places the ranks on several core groups, and the NIC bypasses what is between";
  if (options.faults.any()) return "the faults that are asked for happen to messages between actors";
  if (task.ranks() < 2) return "a rank alone has nobody to wait for";
  if (task.ranks() > most_nic_ranks)
    return "the descriptors of at most " + std::to_string(most_nic_ranks) + " ranks are proved, not of " +
           std::to_string(task.ranks());
  if (!task.what.uniform)
    return "its blocks differ in size, and descriptors are kept for calls that come again with the same ones";
  if (is_reduction(task.what.what) && task.what.reduction.kind == op_kind::user)
    return "a NIC reduces by operations of its own, not by a user's function";
  return {};
}

nic_choice choose_for_nic(std::vector<contender>& all, plan_choice& choice, score_library& library,
                          const planning_task& task) {
  struct priced {
    contender* who;
    double seconds;
  };
  std::vector<priced> order;
  std::string first_reason;
  const auto reject = [&](const contender& c, const std::string& why) {
    if (first_reason.empty()) first_reason = c.choreography + " cannot: " + why;
  };
  const std::size_t block = task.mean_block() * size_of(task.what.type);
  for (contender& c : all) {
    if (!c.eligible()) {
      reject(c, c.why_rejected);
      continue;
    }
    const contender staged = choice.staged_form_of(c, task);
    const auto tally = staged.eligible() ? library.tally(c.choreography, staged.on) : nullptr;
    // Of somebody's own nothing is known before it is written; it is asked last.
    order.push_back({&c, tally ? seconds_of(*tally, block) : std::numeric_limits<double>::max()});
  }
  std::ranges::stable_sort(order, {}, &priced::seconds);
  for (const priced& p : order) {
    contender& c = *p.who;
    while (c.eligible() && !c.settled) choice.settle(c, task);
    if (!c.eligible()) reject(c, c.why_rejected);
    else if (c.scales_reads) reject(c, "its sums apply the factors, which is the host's");
    else if (const std::string& why = c.lowered->why_not_offloaded(); !why.empty()) reject(c, why);
    else return {&c, p.seconds, {}};
  }
  return {nullptr, 0, first_reason.empty() ? "no choreography can do it" : first_reason};
}

}  // namespace troupe
