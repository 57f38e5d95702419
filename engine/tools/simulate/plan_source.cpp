// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/simulate/plan_source.hpp"

#include <algorithm>

#include "memory/error.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/lower/partition.hpp"
#include "protocols/offload/offload_compiler.hpp"
#include "protocols/offload/offload_proof.hpp"
#include "protocols/program/completion.hpp"
#include "protocols/program/direct_program.hpp"
#include "protocols/verify/verifier.hpp"

namespace troupe::simulate {

namespace {

/// Of all scores that are kept, and of those of plans, which keep their programs: then all are forgotten.
constexpr std::size_t most_steps = 2'000'000;

std::size_t steps_of(const score& notes) {
  std::size_t steps = 1;
  for (const part& p : notes.players)
    for (const lane& l : p.lanes) steps += l.size();
  return steps;
}

bool widens(const call& what) { return is_low_precision(what.type) && is_reduction(what.what); }

std::vector<std::shared_ptr<const program>> programs_of(const score& notes, const call_shape& shape) {
  std::vector<std::shared_ptr<const program>> all;
  for (rank_t r = 0; r < notes.ranks; ++r)
    all.push_back(std::make_shared<const program>(compile(notes, r, shape, cutting{})));
  return all;
}

bool shares_memory(const score& notes, const call_shape& shape) {
  const auto all = programs_of(notes, shape);
  return std::ranges::any_of(all, [](const auto& code) { return code->shares_memory; });
}

bool fits_slots(const score& notes, const call_shape& shape, slot_format format, std::size_t unit) {
  for (const auto& code : programs_of(notes, shape))
    if (code->shares_memory || !why_no_slots(*code, format).empty() || !why_torn(*code, format, unit).empty())
      return false;
  return true;
}

bool fits_direct(const score& notes, const call_shape& shape, const call& what) {
  const auto all = programs_of(notes, shape);
  if (!why_not_direct(all).empty()) return false;
  // As plan_choice::price_direct: several passes at the root of a reduce in place would read what they have written.
  if (what.what != collective::reduce) return true;
  const direct_program made = compile_direct(all, {what.what, notes.root, what.in_place});
  return std::all_of(made.bodies.begin(), made.bodies.end(), [](const auto& b) { return b.passes.size() <= 1; });
}

}  // namespace

std::string_view name(port_kind which) {
  switch (which) {
    case port_kind::mailbox: return "mailbox";
    case port_kind::ll: return "ll";
    case port_kind::ll128: return "ll128";
    case port_kind::direct: return "direct";
    case port_kind::nic: return "nic";
    case port_kind::tiers: return "tiers";
  }
  return "?";
}

plan_source::score_key plan_source::key_of(const call& what, int ranks, const way& how) {
  const bool split = how.fold || how.channels != 1 || how.slices.slices != 1 || !what.uniform;
  const bool by_credits = how.port == port_kind::mailbox || how.port == port_kind::nic;
  const bool together = how.slices.slices_per_step > 1;  // then what two credits are enough for is not known
  const int paced = (how.credits == 1 || together) && by_credits ? how.credits : 8;
  const rank_t root = has_root(what.what) ? what.root : 0;
  const bool in_place = what.in_place && !widens(what);  // what is widened is performed apart
  return {how.choreography,
          what.what,
          ranks,
          root,
          in_place,
          what.uniform,
          split,
          how.fold,
          how.agreement,
          paced,
          how.slices.shortened(),
          static_cast<int>(what.pieces)};
}

std::shared_ptr<const plan> plan_source::plan_for(const call& what, int ranks, const way& how,
                                                  const std::vector<std::size_t>* counts) {
  const score_key key = key_of(what, ranks, how);
  plan_key whole{key,        how,
                 what.type,  is_reduction(what.what) ? what.reduction.kind : op_kind::sum,
                 what.count, counts != nullptr ? *counts : std::vector<std::size_t>{}};
  if (const auto known = plans_.find(whole); known != plans_.end()) return known->second;
  if (steps_ >= most_steps) {
    plans_.clear();
    scores_.clear();
    steps_ = 0;
  }
  std::shared_ptr<plan> made;
  if (how.port == port_kind::tiers) made = make_in_tiers(what, ranks, how);
  else if (prepared& from = score_for(key); from.notes) made = make(what, ranks, how, from, counts);
  steps_ += made && made->notes ? steps_of(*made->notes) : 1;
  if (made) made->identity = made->computed_identity(made->notes ? digest(*made->notes) : 0);
  plans_.emplace(std::move(whole), made);
  return made;
}

plan_source::prepared& plan_source::score_for(const score_key& key) {
  const auto [at, fresh] = scores_.try_emplace(key);
  if (!fresh) return at->second;
  const auto& [index, what, ranks, root, in_place, uniform, split, fold, agreement, paced, slices, pieces] = key;
  const choreography& who = *all_choreographies()[static_cast<std::size_t>(index)];
  const setup on = flat_setup(what, ranks, root, in_place, uniform);
  if (!refusal(who, on).empty()) return at->second;
  score s = lower_syncs(write_score(who, on));
  if (fold) s = fold_in_rank_order(s);
  if (split) s = one_cell_per_step(std::move(s));
  if (pieces > 0 && !why_not_partitioned(s).empty()) return at->second;
  if (pieces > 0) s = partition(s, pieces);
  if (agreement != agreement_form::none) {
    auto with = with_agreement(s, agreement);
    if (!with) return at->second;
    s = std::move(*with);
  }
  if (paced == 1) s = pace_sends(s, 1);
  auto v = std::make_shared<const verdict>(verify(s, {paced, slices.slices, slices.slices_per_step}));
  if (!v->ok()) return at->second;
  at->second = {std::make_shared<const score>(std::move(s)), v, false, std::nullopt};
  steps_ += steps_of(*at->second.notes);
  at->second.agrees = everybody_hears_of_everybody(*at->second.notes);
  return at->second;
}

std::shared_ptr<plan> plan_source::make(const call& what, int ranks, const way& how, prepared& from,
                                        const std::vector<std::size_t>* counts) {
  auto made = std::make_shared<plan>();
  made->choreography = all_choreographies()[static_cast<std::size_t>(how.choreography)]->name;
  made->notes = from.notes;
  made->verified = from.verified;
  made->in_place = what.in_place && !widens(what);
  made->count = what.what == collective::barrier || !what.uniform ? 0 : what.count;
  if (counts != nullptr && !counts->empty()) made->count = *std::max_element(counts->begin(), counts->end());
  made->widened = widens(what);
  made->work_type = made->widened ? datatype::f32 : what.type;
  const bool over_slots = how.port == port_kind::ll || how.port == port_kind::ll128;
  made->divides = !over_slots && divides_in_steps(what, ranks, *made->verified);
  if (what.pieces > 0) {  // as the planner makes them
    const bool divides_late =
        is_reduction(what.what) && what.reduction.kind == op_kind::avg && ranks > 1 && !made->divides;
    if (how.port != port_kind::mailbox || how.channels != 1 || how.slices.slices != 1 || made->widened || divides_late)
      return nullptr;
  }
  if (how.port == port_kind::nic) return make_for_nic(std::move(made), what, how, from);
  if (how.port == port_kind::mailbox) {
    if (how.of_host > 0 && shares_memory(*made->notes, made->shape())) return nullptr;
    if (how.own_blocks && !needs_only_own_blocks(*from.notes)) return nullptr;
    const bool agrees = (what.uniform || how.own_blocks) && from.agrees && !how.ask;
    made->port =
        mailbox_plan{{how.channels, how.slices.slices, how.slices.slices_per_step}, how.credits, how.any_order, agrees};
    if (how.eager && agrees) let_run_ahead(*made, what, ranks, how);
    return made;
  }
  if (made->widened || how.channels != 1 || how.slices.slices != 1) return nullptr;
  const call_shape shape = made->shape();
  if (how.port == port_kind::direct) {
    made->port = direct_plan{};
    if (ranks < 2 || !fits_direct(*made->notes, shape, what)) return nullptr;
    made->gives_ahead = how.eager && !knows_all_blocks(what);
    return made;
  }
  const slot_format format = how.port == port_kind::ll ? slot_format::ll : slot_format::ll128;
  const std::size_t unit = size_of(unit_of(made->work_type, what.reduction.kind));
  if (!from.agrees || !fits_slots(*made->notes, shape, format, unit)) return nullptr;
  made->port = slots_plan{format};
  if (how.eager && !let_run_ahead(*made, what, ranks, how)) return nullptr;
  return made;
}

/// As the planner's: a NIC for each host, whose descriptors are proved once for a score.
std::shared_ptr<plan> plan_source::make_for_nic(std::shared_ptr<plan> made, const call& what, const way& how,
                                                prepared& from) {
  const score& notes = *from.notes;
  const bool own_op = is_reduction(what.what) && what.reduction.kind == op_kind::user;
  if (notes.ranks < 2 || how.channels != 1 || how.slices.slices != 1 || what.pieces > 0 || own_op ||
      !knows_all_blocks(what))
    return nullptr;
  if (!from.offloads)
    from.offloads = offload::why_not_offloaded(notes, {how.credits, offload::behind_one_nic(notes), 1}).empty() &&
                    offload::why_not_performed(notes, notes, *from.verified, how.credits).empty();
  if (!*from.offloads) return nullptr;
  std::vector<std::uint32_t> nodes;
  for (rank_t r = 0; how.of_host > 0 && r < notes.ranks; ++r)
    nodes.push_back(static_cast<std::uint32_t>(r / how.of_host));
  made->port = nic_plan{how.credits, static_cast<std::size_t>(how.packet_bytes), std::move(nodes)};
  made->divides = false;
  return made;
}

std::shared_ptr<const plan> plan_source::plan_of_stage(const call& what, tier which, int ranks, int of_host,
                                                       const stage_way& by) {
  const call part = call_of_tier(what, which, ranks / of_host, of_host);
  way how;
  how.choreography = by.choreography;
  how.port = by.port;
  how.agreement = by.agreement;
  how.eager = part.agreement == agreement_time::eager;
  auto made = plan_for(part, of_host, how);
  if (made == nullptr && how.eager) {  // the data tell all
    how.eager = false;
    made = plan_for(part, of_host, how);
  }
  return made;
}

/// As planner::impl::make_in_tiers().
std::shared_ptr<plan> plan_source::make_in_tiers(const call& what, int ranks, const way& how) {
  if (!why_no_tiers(what).empty() || widens(what) || how.of_host < 2 || ranks <= how.of_host) return nullptr;
  const int hosts = ranks / how.of_host;
  way between = how;
  between.port = port_kind::mailbox;
  between.collect = between.spread = {};
  tiers_plan stages{how.of_host, plan_of_stage(what, tier::collect, ranks, how.of_host, how.collect),
                    plan_for(call_of_tier(what, tier::across, hosts, how.of_host), hosts, between),
                    plan_of_stage(what, tier::spread, ranks, how.of_host, how.spread)};
  if (stages.collect == nullptr || stages.across == nullptr || stages.spread == nullptr) return nullptr;
  if (!stages.across->agrees()) return nullptr;
  const auto renamed =
      std::shared_ptr<plan>(new plan(stages.across->with_score(stages.across->notes, stages.across->verified)));
  renamed->ahead = nullptr;
  std::get<mailbox_plan>(renamed->port).stride = how.of_host;
  stages.across = renamed;
  auto made = std::make_shared<plan>();
  made->choreography = "tiers";
  made->count = what.count;
  made->work_type = what.type;
  made->port = std::move(stages);
  return made;
}

/// False: the data tell all, so nobody could be ahead of them.
bool plan_source::let_run_ahead(plan& made, const call& what, int ranks, const way& how) {
  way alone = how;
  alone.eager = false;
  alone.agreement = agreement_form::none;
  const prepared& data = score_for(key_of(what, ranks, alone));
  if (!data.notes || data.agrees) return false;
  const auto ahead = std::shared_ptr<plan>(new plan(made.with_score(data.notes, data.verified)));
  ahead->runs_ahead = true;
  made.ahead = ahead;
  return true;
}

}  // namespace troupe::simulate
