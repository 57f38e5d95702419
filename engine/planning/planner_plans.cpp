// SPDX-License-Identifier: Apache-2.0
// The plan of a choice: on its port, in pieces, for lists, by the NIC, in tiers.
#include "engine/planning/planner_inside.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include <spdlog/spdlog.h>

#include "actors/ports/nic/nic_driver.hpp"
#include "memory/error.hpp"
#include "protocols/program/completion.hpp"
#include "protocols/tiers.hpp"

namespace troupe {

namespace {

/// Of all ranks, whose sizes a rank that knows its own lays out with every call.
constexpr std::int64_t most_own_blocks = 128 * 128;

/// `count` of the class of those calls of which every rank knows some blocks only, planned for whatever sizes.
constexpr std::size_t any_size = static_cast<std::size_t>(-1);

/// The class, from the blocks of all ranks.
call_identity class_of(const call& what, const std::vector<std::size_t>& counts) {
  call_identity id = troupe::class_of(what);
  id.count = largest_of_class(counts.empty() ? 0 : std::ranges::max(counts));
  return id;
}

}  // namespace

// -- as it is chosen --

std::shared_ptr<lowered_score> planner::impl::agree_by_mailbox(bool& agrees, const contender& c,
                                                               const planning_task& task) {
  agrees = traits_of(task.what.what).data_tell_all || c.lowered->agrees();
  const bool split = c.rank_order_fold || c.cut != cutting{};
  for (const agreement_form form : agreement_forms) {
    // In slices, tokens would be repeated with them; what takes so long can wait for the membership.
    if (agrees || c.cut != cutting{}) break;
    if ((form == agreement_form::direct) != (task.ranks() <= 2)) continue;
    auto with = library.get({c.choreography, c.on, split, c.rank_order_fold, form});
    if (!with || !with->verified(c.cut.order())->ok()) continue;
    agrees = true;
    return with;
  }
  return c.lowered;
}

std::shared_ptr<lowered_score> planner::impl::choose_port(plan& made, const outcome& o, const planning_task& task) {
  const contender& c = *o.chosen;
  switch (o.way) {
    case message_protocol::direct: made.port = direct_plan{task.where.farthest() != reach::process}; return c.lowered;
    case message_protocol::ll:
    case message_protocol::ll128: made.port = slots_plan{format_of(o.way)}; return c.over(format_of(o.way)).lowered;
    case message_protocol::simple: return choose_mailbox(made, o, task);
    case message_protocol::unset:
    case message_protocol::automatic:
    case message_protocol::nic: break;
  }
  throw error(errc::unsupported, to_string(task.what) + ": protocol " + std::string{name(o.way)} +
                                     " is not among those of which the planner chooses one");
}

std::shared_ptr<lowered_score> planner::impl::choose_mailbox(plan& made, const outcome& o, const planning_task& task) {
  const contender& c = *o.chosen;
  bool agrees = false;
  if (task.what.pieces > 0) {
    auto pieces = in_pieces(agrees, c, task);
    made.port = mailbox_plan{{}, options.credits, false, agrees};  // any_order would give nobody anything
    return pieces;
  }
  auto as = o.counts_told ? c.lowered : agree_by_mailbox(agrees, c, task);
  made.port = mailbox_plan{c.cut, options.credits, task.rules.any_order, agrees};
  return as;
}

void planner::impl::let_run_ahead(plan& made, const contender& c, const planning_task& task) {
  if (!may_run_ahead(task)) return;
  made.gives_ahead = made.direct() != nullptr && !knows_all_blocks(task.what);
  // By mailbox, where tokens are not repeated with slices.
  const bool tokens = made.slots() != nullptr ? c.over(made.slots()->format).agreement != agreement_form::none
                                              : made.mailbox() != nullptr && made.agrees() && !c.lowered->agrees();
  if (!tokens || !c.lowered->verified()->ok()) return;
  const auto ahead = std::shared_ptr<plan>(new plan(made.with_score(c.lowered->notes, c.lowered->verified())));
  ahead->runs_ahead = true;
  // One answer for both, since a call is prepared before it is known which of them is performed.
  made.root_in_place = ahead->root_in_place = made.root_in_place && c.lowered->holds_at_root_in_place();
  made.divides = ahead->divides = made.divides && divides_in_steps(task.what, task.ranks(), *ahead->verified);
  made.ahead = ahead;
}

std::shared_ptr<plan> planner::impl::make_plan(const planning_task& task) {
  if (task.what.pieces > 0) return make_partitioned_plan(task);
  outcome o = choose(task, false);
  o.counts_told = !knows_all_blocks(task.what);
  if (!o.chosen) refuse(task, o);
  for (const contender& c : o.all)
    if (c.faulty) log->warn("{}: {} is not used: {}", to_string(task.what), c.choreography, c.why_rejected);
  return make_plan(task, o);
}

std::shared_ptr<plan> planner::impl::make_partitioned_plan(planning_task task) {
  message_protocol& wanted = task.what.protocol;
  if (wanted != message_protocol::unset && wanted != message_protocol::automatic && wanted != message_protocol::simple)
    throw error(errc::unsupported, to_string(task.what) + ": the call wants protocol " + std::string{name(wanted)} +
                                       ", but pieces travel by messages between the ranks only (protocol simple)");
  wanted = message_protocol::simple;
  outcome o = choose(task, false);
  if (!o.chosen) refuse(task, o);
  o.chosen->cut = {};
  auto made = make_plan(task, o);
  if (task.what.reduction.kind == op_kind::avg && is_reduction(task.what.what) && task.ranks() > 1 && !made->divides)
    throw error(errc::unsupported, to_string(task.what) + ": " + made->choreography +
                                       " divides averages at the end only; use sum, or another choreography");
  return made;
}

std::shared_ptr<lowered_score> planner::impl::in_pieces(bool& agrees, const contender& c, const planning_task& task) {
  score_key key = key_of_pieces(c, task);
  auto plain = library.get(key);
  if (const verdict& v = *plain->verified(); !v.ok())
    throw error(v.first_fault->rank < 0 ? errc::unsupported : errc::bad_score,
                to_string(task.what) + ": " + c.choreography + ": " + to_string(*v.first_fault));
  agrees = traits_of(task.what.what).data_tell_all || plain->agrees();
  for (const agreement_form form : agreement_forms) {
    if (agrees) break;
    if ((form == agreement_form::direct) != (task.ranks() <= 2)) continue;
    key.agreement = form;
    auto with = library.get(key);
    if (!with || !with->verified()->ok()) continue;
    agrees = true;
    return with;
  }
  return plain;
}

std::shared_ptr<plan> planner::impl::make_plan_on_lists(const planning_task& task) {
  const message_protocol wanted = wanted_protocol(task.what);
  // The options' wish for slots cannot be fulfilled, so it leaves the choice free; the call's is an error then.
  const bool insists = task.what.protocol != message_protocol::unset || wanted == message_protocol::simple;
  if (insists && wanted != message_protocol::automatic && wanted != message_protocol::direct) return nullptr;
  if (!choice.why_not_direct(task).empty()) return nullptr;
  outcome o;
  o.force = forced(task);
  if (o.force.name.empty() && !excluded_by("fused", task.what).empty()) return nullptr;
  o.all.push_back(choice.contender_of(o.force.name.empty() ? "fused" : o.force.name, task));
  contender* const one = &o.all.front();
  take(o, choice.cheapest(std::span{&one, 1}, std::array{message_protocol::direct}, task));
  return o.chosen ? make_plan(task, o) : nullptr;
}

/// Prices are of equal blocks, and by these several take as long as each other. Of others, ranks that meet one peer after the other wait for the
/// largest block of each step; who receives from all at once waits for none.
void planner::impl::take_at_once(outcome& o, std::span<contender* const> able, const planning_task& task) {
  constexpr double as_long = 1.05;
  if (traits_of(task.what.what).v != v_counts::every_pair) return;
  const auto at = std::ranges::find(able, std::string_view{"one_shot"}, &contender::choreography);
  if (at == able.end() || *at == o.chosen) return;
  const double least = o.seconds();
  outcome other;
  take(other, choice.cheapest(std::span{&*at, 1}, std::array{message_protocol::simple}, task));
  if (other.chosen && other.seconds() <= as_long * least) take(o, {other.chosen, other.way});
}

std::shared_ptr<plan> planner::impl::make_plan_of_own_blocks(const planning_task& task) {
  const message_protocol wanted = task.what.protocol;
  const bool mailbox =
      wanted == message_protocol::unset || wanted == message_protocol::automatic || wanted == message_protocol::simple;
  if (!mailbox || task.where.farthest_link() == reach::process || task.where.routed()) return nullptr;
  // How many pieces staging memory needs depends on all ranks' sizes.
  if (options.through_scratch || task.selected.through_scratch) return nullptr;
  if (block_count(task.what.what, task.ranks()) > most_own_blocks) return nullptr;
  outcome o;
  o.force = forced(task);
  if (o.force.name.empty()) o.all = contenders(task);
  else o.all.push_back(choice.contender_of(o.force.name, task));
  std::vector<contender*> able;
  for (contender& c : o.all) {
    choice.consider(c, task);
    if (c.eligible() && needs_only_own_blocks(*c.lowered->notes)) able.push_back(&c);
  }
  take(o, choice.cheapest(able, std::array{message_protocol::simple}, task));
  if (!o.chosen) return nullptr;
  if (o.force.name.empty()) take_at_once(o, able, task);
  o.chosen->cut = {};  // who knows how long they are
  return make_plan(task, o);
}

std::shared_ptr<plan> planner::impl::make_plan(const planning_task& task, const outcome& o) {
  const contender& c = *o.chosen;
  auto made = std::make_shared<plan>();
  made->choreography = c.choreography;
  made->count = moves_data(task.what.what) ? task.what.count : 0;
  made->work_type = c.work_type;
  made->widened = c.widened;
  made->scaled = task.rules.scaled && !c.scales_reads;
  made->scales_reads = c.scales_reads;
  made->predicted_seconds = o.seconds();
  made->in_place = c.on.in_place;
  const std::shared_ptr<lowered_score> as = choose_port(*made, o, task);
  const cutting cut = made->cut();
  made->notes = as->notes;
  made->verified = as->verified(cut.order());
  if (has_root(task.what.what) && !made->in_place) made->root_in_place = as->holds_at_root_in_place(cut.order());
  const slots_plan* slots = made->slots();
  made->divides = slots == nullptr && divides_in_steps(task.what, task.ranks(), *made->verified);
  let_run_ahead(*made, c, task);
  made->identity = made->computed_identity(as->digest());
  const bool as_priced =
      !made->divides && !made->scales_reads && c.on.in_place == (made->in_place || made->root_in_place);
  if (made->direct() != nullptr && as_priced) made->direct()->programs.set(0, 1, c.direct);
  const auto agreement = slots != nullptr ? c.over(slots->format).agreement : agreement_form::none;
  log->debug("{}: {}, {}, agreement {}{}, {} channels, {} slices, predicted {:.1f} us", to_string(task.what),
             c.choreography, name(made->protocol()), name(agreement), made->may_run_ahead() ? " or ahead of it" : "",
             cut.channels, cut.slices, made->predicted_seconds * 1e6);
  return made;
}

// -- by the process's NIC --

nic_choice planner::impl::choose_for_nic(std::vector<contender>& all, const planning_task& task) {
  if (std::string why = why_not_by_nic(task, options); !why.empty()) return {nullptr, 0, std::move(why)};
  if (const forced_name force = forced(task); force.name.empty()) all = contenders(task);
  else if (library.has(force.name)) all.push_back(choice.contender_of(force.name, task));
  return troupe::choose_for_nic(all, choice, library, task, choice.costs(task), options.credits,
                                options.nic != "process");
}

std::shared_ptr<plan> planner::impl::make_plan_for_nic(const planning_task& task) {
  std::vector<contender> all;
  const nic_choice chosen = choose_for_nic(all, task);
  if (chosen.who == nullptr) {
    // A user who has asked for all calls hears of the first that is not offloaded, though the NIC had something to do; `troupe explain` tells of each.
    const bool asked = options.offload == "always" && task.ranks() > 1 && !std::exchange(told_of_offload, true);
    log->log(asked ? spdlog::level::warn : spdlog::level::info, "{} of {} ranks: not offloaded: {}",
             name(task.what.what), task.ranks(), chosen.why_not);  // not its count: that of the task is its class's
    return nullptr;
  }
  const contender& c = *chosen.who;
  auto made = std::make_shared<plan>();
  made->choreography = c.choreography;
  made->count = moves_data(task.what.what) ? task.largest_block() : 0;
  made->work_type = c.work_type;
  made->widened = c.widened;
  made->scaled = task.rules.scaled;
  made->in_place = c.on.in_place;
  made->predicted_seconds = chosen.seconds;
  made->port = nic_plan{options.credits, actors::nic_packet_bytes, task.where.hosts()};
  made->notes = c.lowered->notes;
  made->verified = c.lowered->verified();
  if (has_root(task.what.what) && !made->in_place) made->root_in_place = c.lowered->offloads_at_root_in_place();
  made->identity = made->computed_identity(c.lowered->digest());
  log->debug("{}: offloaded, {}, predicted {:.1f} us", to_string(task.what), c.choreography, chosen.seconds * 1e6);
  return made;
}

/// Where nobody has said anything, as for tools: of a host with no other ranks.
int planner::impl::idle_cores_for(const planning_task& task) const {
  if (machine_of_job && task.where.farthest_link() != reach::process) return idle_cores_of_job;
  const int free = std::max(0, machine.machine.cores - task.where.most_ranks_of_computer());
  return std::min({free, idle_cores.load(), machine_of_job ? idle_cores_of_job : most_idle});
}

offload_figures planner::impl::figures_of(const planning_task& task, double nic_seconds, double callers_seconds) {
  const tuning& costs = choice.costs(task);
  const std::vector<std::uint32_t> hosts = task.where.hosts();
  const int count = hosts.empty() ? 1 : static_cast<int>(*std::ranges::max_element(hosts)) + 1;
  offload_figures f;
  f.callers = callers_seconds;
  f.nic = nic_seconds;
  f.posting = costs.nic_post_ns * 1e-9;
  f.waking = costs.nic_wake_ns * 1e-9;
  f.awake = costs.wake_ns * 1e-9;
  f.ranks_of_host = task.where.most_ranks_of_host();
  f.cores = costs.machine.cores;
  f.idle_cores = idle_cores_for(task);
  f.nics = (count + task.where.computers() - 1) / task.where.computers();
  return f;
}

double planner::impl::seconds_of_callers(call what, const layout& placement, int of_host) {
  what.offload = false;
  try {
    // A host's stages in one process are priced by that process's own costs, and all must decide alike.
    const bool by_all = of_host > 0 && reach_map{layout_of_host(placement, of_host)}.farthest_link() != reach::process;
    const auto in_tiers = by_all ? plan_in_tiers(what, placement, of_host) : nullptr;
    const auto by_callers = in_tiers ? in_tiers : plan_of(what, placement, nullptr);
    if (by_callers) return by_callers->predicted_seconds;
  } catch (const error& e) {  // where it is called so, it says why
    if (e.code_value() == errc::out_of_memory) throw;
  }
  return std::numeric_limits<double>::infinity();
}

std::shared_ptr<const plan> planner::impl::plan_for_nic(const call& what, const layout& placement, int of_host) {
  if (!knows_all_blocks(what)) return nullptr;  // why_not_by_nic()
  if (!what.uniform) check_counts(what, placement.size(), what.counts);
  const plan_key_view key{troupe::class_of(what), placement};
  if (const auto known = cache.find(key)) return *known;
  const bool weighs = options.offload == "auto";
  const double callers = weighs ? seconds_of_callers(what, placement, of_host) : 0;
  return cached_or(key, [&] {
    const planning_task task = with_trees(task_of_class(what, placement, key.what.count));
    auto made = make_plan_for_nic(task);
    if (!made) return made;
    made->exact = false;
    if (!weighs) return made;
    const offload_verdict by = weigh_offload(figures_of(task, made->predicted_seconds, callers));
    log->debug("{}: {}: {}", to_string(what), by.pays ? "the NIC's" : "not the NIC's", by.why);
    return by.pays ? made : nullptr;
  });
}

std::shared_ptr<const plan> planner::impl::plan_if_offloaded(const call& what, const layout& placement, int of_host) {
  try {
    return plan_for_nic(what, placement, of_host);
  } catch (const error&) {  // or only the largest of the class is too large
    return nullptr;
  }
}

std::shared_ptr<const plan> planner::impl::plan_of(const call& what, const layout& placement,
                                                   const std::vector<std::size_t>* counts) {
  if (what.offload) [[unlikely]] {
    if (auto by_nic = plan_if_offloaded(what, placement, 0)) return by_nic;
    call otherwise = what;
    otherwise.offload = false;
    return plan_of(otherwise, placement, counts);
  }
  const bool on_lists = !knows_all_blocks(what) && counts == nullptr;
  if (!knows_all_blocks(what) && counts != nullptr)
    if (auto without = plan_of(what, placement, nullptr)) return without;
  if (!what.uniform && !on_lists) check_counts(what, placement.size(), counts != nullptr ? *counts : what.counts);
  plan_key_view key{what.uniform || counts == nullptr ? troupe::class_of(what) : class_of(what, *counts), placement};
  const std::size_t largest = key.what.count;
  if (on_lists) key.what.count = any_size;
  try {
    return cached_or(key, [&] {
      const std::size_t most = on_lists ? reference_bytes / size_of(what.type) : largest;
      const planning_task task = with_trees(task_of_class(what, placement, most));
      auto made = on_lists ? make_plan_on_lists(task) : make_plan(task);
      if (on_lists && !made) made = make_plan_of_own_blocks(task);
      if (made) made->exact = false;
      return made;
    });
  } catch (const error&) {
    if (!what.uniform || largest == what.count) throw;
  }
  // The largest of the class is too large for what is forced, and this size perhaps not.
  key.what = identity_of(what);
  return cached_or(key, [&] { return make_plan(with_trees(make_task(what, placement, nullptr))); });
}

// -- in tiers --

std::string planner::impl::why_not_in_tiers(const call& what) const {
  if (std::string why = why_no_tiers(what); !why.empty()) return why;
  if (what.offload) return "the NIC is asked to perform it";
  if (!what.choreography.empty()) return "the call says who may perform it: " + what.choreography;
  if (options.planner != "model") return "the planner " + options.planner + " knows no tiers";
  if (const forced_name by = named(what); !by.name.empty()) return by.by + " name " + by.name;
  if (wanted_protocol(what) != message_protocol::automatic)
    return "the protocol is to be " + std::string{name(wanted_protocol(what))};
  return {};
}

tiers_prospect planner::impl::make_in_tiers(call what, const layout& placement, int of_host) {
  tiers_prospect found;
  found.why_not = why_not_in_tiers(what);
  if (!found.why_not.empty()) return found;
  what.count = largest_of_class(what.count);
  const layout host = layout_of_host(placement, of_host), first = layout_of_first_ranks(placement, of_host);
  const int hosts = first.size();
  const auto plan_of_tier = [&](tier which, const layout& where) {
    return plan_of(call_of_tier(what, which, hosts, of_host), where, nullptr);
  };
  tiers_plan stages{of_host, plan_of_tier(tier::collect, host), nullptr, plan_of_tier(tier::spread, host)};
  const auto across = plan_of_tier(tier::across, first);
  const std::array all{stages.collect, across, stages.spread};
  if (std::ranges::any_of(all, [](const auto& p) { return !p || p->widened; }))
    found.why_not = "its sums are made in a wider type, and would be rounded between the stages";
  else if (!stages.collect->on_board() || !stages.spread->on_board())
    found.why_not = "what a host's ranks do of it is not performed over memory that they share";
  else if (across->mailbox() == nullptr) found.why_not = "its hosts' first ranks do not send messages";
  if (!found.why_not.empty()) return found;
  // The same for ranks of other numbers.
  const auto renamed = std::shared_ptr<plan>(new plan(across->with_score(across->notes, across->verified)));
  renamed->ahead = nullptr;
  std::get<mailbox_plan>(renamed->port).stride = of_host;
  stages.across = renamed;
  auto made = std::make_shared<plan>();
  made->choreography =
      "tiers: " + stages.collect->choreography + ", " + across->choreography + ", " + stages.spread->choreography;
  made->count = what.count;
  made->exact = false;
  made->work_type = what.type;
  for (const auto& p : all) made->predicted_seconds += p->predicted_seconds;
  made->port = std::move(stages);
  made->identity = made->computed_identity(0);
  const auto other = plan_of(what, placement, nullptr);
  found.other_seconds = other ? other->predicted_seconds : std::numeric_limits<double>::infinity();
  found.how = std::move(made);
  return found;
}

std::shared_ptr<const plan> planner::impl::plan_in_tiers(const call& what, const layout& placement, int of_host) {
  const plan_key_view key{troupe::class_of(what), placement};
  if (const auto known = cache.find_tiers(key)) return *known;
  tiers_prospect found = make_in_tiers(what, placement, of_host);
  if (found.how != nullptr)
    log->debug("{}: {}, predicted {:.1f} us, else {:.1f}: {}", to_string(what), found.how->choreography,
               found.how->predicted_seconds * 1e6, found.other_seconds * 1e6, found.chosen() ? "chosen" : "not chosen");
  return cache.keep_tiers(key, found.chosen() ? std::move(found.how) : nullptr);
}

}  // namespace troupe
