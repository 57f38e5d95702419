// SPDX-License-Identifier: Apache-2.0
#include "engine/planning/nic_choice.hpp"

#include <algorithm>
#include <optional>

#include "actors/ports/nic/nic_driver.hpp"
#include "engine/planning/cost_model.hpp"
#include "protocols/program/program.hpp"
#include "protocols/program/slot_program.hpp"
#include "protocols/score/score_tally.hpp"

namespace troupe {

namespace {

/// The proof on symbols takes some milliseconds then, once for each score.
constexpr int most_nic_ranks = 128;
/// Of all ranks.
struct nic_work {
  double steps = 0, copied = 0, reduced = 0;  ///< cells
  int parts = 1;                              ///< of a block: a cell is one
};

nic_work work_of(const score_tally& t) {
  nic_work all{static_cast<double>(t.steps()), 0, 0, t.parts};
  for (const score_tally::kind& k : t.kinds) {
    all.copied += k.ranks * static_cast<double>(k.each.copied + k.each.local_copied);
    all.reduced += k.ranks * static_cast<double>(k.each.reduced + k.each.local_reduced);
  }
  return all;
}

/// As the tally counts.
nic_work work_of(const score& s) {
  nic_work all{0, 0, 0, s.parts};
  for (const auto& p : s.players)
    for (const lane& l : p.lanes)
      for (const step& at : l) {
        const bool stays = at.kind == step_kind::copy && at.source.buffer == at.target.buffer;
        const double cells = std::max(at.source.count, at.target.count);
        ++all.steps;
        if (reduces(at.kind)) all.reduced += cells;
        else if (writes(at.kind) && !stays) all.copied += cells;
      }
  return all;
}

/// Between hosts, each of which has a NIC of one core: what its ranks tell each other passes no link, and packets follow one another.
double seconds_between_hosts(const score& s, std::size_t block_bytes, const planning_task& task, const tuning& machine,
                             int credits) {
  const double touched = 2.0 * static_cast<double>(block_bytes);
  machine_constants c = machine.through_actors(touched, task.what.type);
  message_costs inside;
  inside.message = machine.nic_step_ns * 1e-9;
  for (const reach near : {reach::process, reach::segment}) c.messages[static_cast<std::size_t>(near)] = inside;
  c.step = machine.nic_step_ns * 1e-9;
  c.copy_rate = machine.copy_one_core.at(touched) * 1e9;
  c.reduce_rate = std::min(machine.reduce_one_core.at(touched),
                           machine.type_rate[static_cast<std::size_t>(part_of(task.what.type))]) *
                  1e9;
  const std::vector<std::uint32_t> hosts = task.where.hosts();
  c.cores = static_cast<int>(*std::ranges::max_element(hosts)) + 1;
  const double cell = static_cast<double>(block_bytes) / std::max(1, s.parts);
  const cutting packets{1, static_cast<int>(std::clamp(cell / actors::nic_packet_bytes, 1.0, 1024.0))};
  return timing_sheet(s, &task.where).predict(cell, packets, credits, c);
}

/// Of ordinary memory of other processes, which the NIC copies; what all map (engine.allocate) it does not.
/// @param of_host the NIC is a process of its own, and no rank's memory is at hand
double seconds_of_copies(const planning_task& task, std::size_t block_bytes, const tuning& machine, bool of_host) {
  if (task.where.farthest() == reach::process) return 0;
  double bytes = 0, copies = 0;
  const std::vector<std::uint32_t> hosts = task.where.hosts();
  const auto home_of = [&](rank_t r) {
    return hosts.empty()
               ? 0
               : static_cast<rank_t>(std::ranges::find(hosts, hosts[static_cast<std::size_t>(r)]) - hosts.begin());
  };
  const call_shape blocks{block_bytes, {}, {}, {}, 1};
  for (rank_t r = 0; r < task.ranks(); ++r) {
    if (!of_host && task.where.between(home_of(r), r) == reach::process) continue;
    for (const auto of : {&input_bytes, &output_bytes}) {
      const auto own = static_cast<double>(of(task.what.what, task.ranks(), task.what.root, r, blocks));
      bytes += own;
      copies += own > 0 ? 1 : 0;
    }
  }
  return (copies * machine.peer_call_ns + bytes / 1024 * machine.peer_kilobyte_ns) * 1e-9;
}

/// The processes of each host post to the NIC of its first rank's over a board of theirs.
std::string why_not_between_hosts(const planning_task& task, const engine_options& options) {
  if (task.where.one_process_a_host()) return {};
  const int of_host = task.where.ranks_of_each_host();
  if (of_host == 0)
    return "the ranks are on several hosts in several processes each, but not as many on one as on the other, divided "
           "alike, one host's behind another's";
  if (of_host > most_slot_ranks)
    return "the " + std::to_string(of_host) + " ranks of a host share no board, which has at most " +
           std::to_string(most_slot_ranks);
  if (options.protocol == "simple") return "this engine has no boards to post at, since its own protocol is simple";
  if (!task.where.copies()) return "the system forbids to copy from one process of a host to another";
  return {};
}

/// One core does it all, and touches all ranks' memory.
struct nic_price {
  const planning_task& task;
  const tuning& machine;
  std::size_t block_bytes;
  double copies;  ///< seconds

  double of(const nic_work& w) const {
    const double cell = static_cast<double>(block_bytes) / std::max(1, w.parts);
    const double touched = 2.0 * task.ranks() * static_cast<double>(block_bytes);
    const double reduces = std::min(machine.reduce_one_core.at(touched),
                                    machine.type_rate[static_cast<std::size_t>(part_of(task.what.type))]);
    return w.steps * machine.nic_step_ns * 1e-9 + w.copied * cell / (machine.copy_one_core.at(touched) * 1e9) +
           w.reduced * cell / (reduces * 1e9) + copies;
  }
};

struct priced {
  contender* who;
  std::optional<double> seconds;  ///< none: somebody's own, of which nothing is known before it is written
};
/// Those are asked last.
bool is_cheaper(const priced& a, const priced& b) { return a.seconds && (!b.seconds || *a.seconds < *b.seconds); }

/// Why a NIC cannot perform one that could; else why the first one could not, whoever performs it.
struct reasons {
  std::string of_the_nic, of_others;
  static void note(std::string& first, const contender& c, const std::string& why) {
    if (first.empty()) first = c.choreography + " cannot: " + why;
  }
  std::string first() const {
    if (!of_the_nic.empty()) return of_the_nic;
    return of_others.empty() ? "no choreography can do it" : of_others;
  }
};

std::vector<priced> priced_ones(std::vector<contender>& all, plan_choice& choice, score_library& library,
                                const nic_price& price, reasons& why_not) {
  std::vector<priced> made;
  for (contender& c : all) {
    if (!c.eligible()) {
      reasons::note(why_not.of_others, c, c.why_rejected);
      continue;
    }
    const contender staged = choice.staged_form_of(c, price.task);
    const auto tally = staged.eligible() ? library.tally(c.choreography, staged.on) : nullptr;
    made.push_back({&c, tally ? std::optional{price.of(work_of(*tally))} : std::nullopt});
  }
  return made;
}

}  // namespace

std::string why_not_by_nic(const planning_task& task, const engine_options& options) {
  if (task.where.routed())
    return "the layout places the ranks on several core groups, and the NIC bypasses what is between";
  if (task.where.farthest() == reach::network) {
    if (std::string why = why_not_between_hosts(task, options); !why.empty()) return why;
  } else if (task.where.farthest() != reach::process) {
    if (std::string why = plan_choice::why_no_boards(options, task.where); !why.empty()) return why;
    if (const std::string& why = task.where.why_no_buffers(); !why.empty())
      return why + ", and the system forbids to copy from one's to the other's";
  }
  if (options.faults.any()) return "the faults that are asked for happen to messages between actors";
  if (task.ranks() < 2) return "a rank alone has nobody to wait for";
  if (task.ranks() > most_nic_ranks)
    return "the descriptors of at most " + std::to_string(most_nic_ranks) + " ranks are proved, not of " +
           std::to_string(task.ranks());
  if (task.what.protocol != message_protocol::unset && task.what.protocol != message_protocol::automatic)
    return "the call asks for the protocol " + std::string{name(task.what.protocol)} + ", and a NIC has its own";
  if (task.what.pieces > 0) return "it is partitioned, and a NIC has a call's memory as a whole or not at all";
  if (!knows_all_blocks(task.what))
    return "its blocks differ in size, and a rank does not know all of them, which descriptors are made of";
  if (is_reduction(task.what.what) && task.what.reduction.kind == op_kind::user)
    return "a NIC reduces by operations of its own, not by a user's function";
  return {};
}

nic_choice choose_for_nic(std::vector<contender>& all, plan_choice& choice, score_library& library,
                          const planning_task& task, const tuning& machine, int credits, bool of_host) {
  const std::size_t block = task.mean_block() * size_of(task.what.type);
  const nic_price price{task, machine, block, seconds_of_copies(task, block, machine, of_host)};
  reasons why_not;
  std::vector<priced> open = priced_ones(all, choice, library, price, why_not);
  if (task.where.farthest() == reach::network)
    for (priced& p : open) {
      while (p.who->eligible() && !p.who->settled) choice.settle(*p.who, task);
      if (p.who->eligible())
        p.seconds = price.copies + seconds_between_hosts(*p.who->lowered->notes, block, task, machine, credits);
    }
  while (!open.empty()) {
    const auto least = std::ranges::min_element(open, is_cheaper);
    const auto [who, seconds] = *least;
    open.erase(least);
    contender& c = *who;
    const bool folded = c.rank_order_fold;
    while (c.eligible() && !c.settled && c.rank_order_fold == folded) choice.settle(c, task);
    const auto written = [&] { return price.of(work_of(*c.lowered->notes)); };
    if (c.eligible() && !c.settled) {  // it folds, which is more to do, and its turn comes later
      open.push_back({&c, seconds ? std::optional{written()} : std::nullopt});
      continue;
    }
    if (!c.eligible()) reasons::note(why_not.of_the_nic, c, c.why_rejected);
    else if (c.scales_reads) reasons::note(why_not.of_the_nic, c, "its sums apply the factors, which is the host's");
    else if (const std::string& why = c.lowered->why_not_offloaded(); !why.empty())
      reasons::note(why_not.of_the_nic, c, why);
    else return {&c, seconds ? *seconds : written(), {}};
  }
  return {nullptr, 0, why_not.first()};
}

}  // namespace troupe
