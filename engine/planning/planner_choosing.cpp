// SPDX-License-Identifier: Apache-2.0
// What performs a call, on how many channels and by which protocol: what is forced, and what is cheapest.
#include "engine/planning/planner_inside.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include <spdlog/spdlog.h>

#include "engine/planning/choreography_wish.hpp"
#include "memory/error.hpp"
#include "memory/spelling.hpp"

namespace troupe {

// -- what is forced --

forced_name planner::impl::named(const call& what) const {
  const auto named = [](const std::string& n) { return !choreography_wish{n}.name.empty(); };
  if (!what.choreography.empty())
    return named(what.choreography) ? forced_name{what.choreography, "the call"} : forced_name{};
  if (const auto own = options.choreography_of.find(std::string{name(what.what)}); own != options.choreography_of.end())
    return named(own->second) ? forced_name{own->second, "the options for " + own->first} : forced_name{};
  return named(options.choreography) ? forced_name{options.choreography, "the options"} : forced_name{};
}

forced_name planner::impl::forced(const planning_task& task) {
  if (!task.selected.choreography.empty()) return {task.selected.choreography, task.selected.by};
  forced_name by = named(task.what);
  if (by.by != "the options") return by;
  const std::string why = why_not_performed(by.name, task);
  if (why.empty()) return by;
  log->info("{}: {} is not used: {}", to_string(task.what), by.name, why);
  return {};
}

std::string planner::impl::why_not_performed(const std::string& wanted, const planning_task& task) {
  if (!library.offers(wanted, task.what.what)) return "it does not offer this";
  contender c = choice.contender_of(wanted, task);
  choice.consider(c, task);
  const bool somehow = std::isfinite(c.seconds) || choice.why_not_direct(task).empty();
  if ((c.eligible() && somehow) || c.faulty) return {};
  return c.eligible() ? std::string{only_direct} : c.why_rejected;
}

selected_way planner::impl::selection(const planning_task& task) {
  if (options.planner == "model" || !named(task.what).name.empty()) return {};
  selected_way none;
  none.by = who_selects(options.planner);
  if (task.rules.trees.same_everywhere) {
    none.path.emplace_back(
        "whoever is chosen by size would combine in another order at another size, and the call wants one for all; the "
        "cost model chooses");
    return none;
  }
  selected_way way = select_as(options, machine, task, [&](const std::string& wanted, const planning_task& so) {
    const std::string by = excluded_by(wanted, task.what);
    return by.empty() ? why_not_performed(wanted, so) : "excluded by " + by;
  });
  if (!way.unused.empty()) log->info("{}: {}", to_string(task.what), way.unused);
  if (way.exactly) {
    const message_protocol wanted = wanted_protocol(task.what);
    const std::string why = wanted != message_protocol::automatic && wanted != way.protocol
                                ? "the protocol is to be " + std::string{name(wanted)}
                                : this->why_not(way.protocol, task);
    if (why.empty()) return way;
    none.path = std::move(way.path);
    none.path.push_back("not used, " + why + "; the cost model chooses");
    return none;
  }
  const bool over_slots = way.protocol == message_protocol::ll || way.protocol == message_protocol::ll128;
  if (const std::string why = over_slots ? why_not(way.protocol, task) : std::string{}; !why.empty())
    way.path.push_back("not by " + std::string{name(way.protocol)} + ", " + why +
                       "; the cost model chooses the protocol");
  return way;
}

planning_task planner::impl::with_trees(planning_task task) {
  task.selected = selection(task);
  const bool shared = task.where.why_no_buffers().empty();
  if (task.rules.trees.same_everywhere && shared && forced(task).name.empty()) task.rules.trees.left_fold = true;
  return task;
}

std::string planner::impl::excluded_by(std::string_view which, const call& what) const {
  const auto says = [&](const std::string& text, std::string who) {
    return choreography_wish{text}.excludes(which, library.names()) ? std::move(who) + " (\"" + text + "\")"
                                                                    : std::string{};
  };
  if (std::string by = says(what.choreography, "the call"); !by.empty()) return by;
  const auto own = options.choreography_of.find(std::string{name(what.what)});
  if (own != options.choreography_of.end())
    if (std::string by = says(own->second, "the options for " + own->first); !by.empty()) return by;
  return says(options.choreography, "the options");
}

std::vector<contender> planner::impl::contenders(const planning_task& task) {
  auto all = choice.all_contenders(task);
  for (contender& c : all) {
    const std::string by = excluded_by(c.choreography, task.what);
    if (by.empty()) continue;
    contender rejected;
    rejected.choreography = c.choreography;
    rejected.why_rejected = "excluded by " + by;
    c = std::move(rejected);
  }
  return all;
}

// -- choosing --

planner::impl::outcome planner::impl::choose(const planning_task& task, bool everybody) {
  if (const std::string wrong = wrong_choreography(task.what.choreography, library.names());
      task.what.choreography.starts_with('^') && !wrong.empty())
    throw error(errc::unsupported, to_string(task.what) + ": " + wrong);
  outcome o;
  o.force = forced(task);
  std::string only = o.force.name;
  if (only.empty() && task.rules.trees.same_everywhere && !task.rules.trees.left_fold) only = reference_choice(task);
  if (only.empty() || everybody) o.all = contenders(task);
  std::vector<contender*> able;
  if (only.empty()) {
    for (contender& c : o.all) able.push_back(&c);
  } else {
    if (!library.has(only))
      throw error(errc::unsupported,
                  to_string(task.what) + ": there is no choreography " + only + library.suggestion(only));
    o.only = true;
    auto at = std::find_if(o.all.begin(), o.all.end(), [&](const contender& c) { return c.choreography == only; });
    if (at == o.all.end()) at = o.all.insert(o.all.end(), contender{});
    *at = choice.contender_of(only, task);
    able.push_back(&*at);
  }
  choose_among(o, able, task);
  return o;
}

message_protocol planner::impl::wanted_protocol(const call& what) const {
  if (what.protocol != message_protocol::unset) return what.protocol;
  return parse_message_protocol(options.protocol).value_or(message_protocol::automatic);
}

message_protocol planner::impl::selected_protocol(const outcome& o, const planning_task& task) const {
  const bool free = wanted_protocol(task.what) == message_protocol::automatic && o.force.by == task.selected.by;
  return free ? task.selected.protocol : message_protocol::automatic;
}

std::string planner::impl::why_not(message_protocol how, const planning_task& task) const {
  switch (how) {
    case message_protocol::unset:
    case message_protocol::automatic:
    case message_protocol::simple: return {};
    case message_protocol::ll:
    case message_protocol::ll128: return choice.why_no_slots(task);
    case message_protocol::direct:
      if (std::string why = choice.why_not_direct(task); !why.empty()) return why;
      // A choreography that works on lists was chosen before anybody asked for counts (make_plan_on_lists).
      return knows_all_blocks(task.what) ? std::string{} : std::string{nobody_in_one_pass};
    case message_protocol::nic: return std::string{nic_is_not_asked_for};
  }
  return "there is no such protocol";
}

void planner::impl::choose_among(outcome& o, std::span<contender* const> able, const planning_task& task) {
  const message_protocol wanted = wanted_protocol(task.what);
  std::string why;
  if (wanted != message_protocol::automatic && wanted != message_protocol::simple) {
    why = why_not(wanted, task);
    if (why.empty()) take(o, choice.cheapest(able, std::array{wanted}, task));
    if (o.chosen) return;
    if (why.empty()) why = why_nobody(o, *able.front(), wanted, task);
    const bool anybody = std::ranges::any_of(able, [](const contender* c) { return c->eligible(); });
    if (task.what.protocol != message_protocol::unset) {
      if (anybody) o.why_not_so = "the call wants protocol " + std::string{name(wanted)} + ", but " + why;
      return;
    }
  }
  const message_protocol selected = selected_protocol(o, task);
  if (selected != message_protocol::automatic && selected != message_protocol::simple &&
      why_not(selected, task).empty())
    take(o, choice.cheapest(able, std::array{selected}, task));
  if (o.chosen) return;
  // Of ways that take as long as each other, the first.
  static constexpr std::array ways{message_protocol::direct, message_protocol::simple, message_protocol::ll128,
                                   message_protocol::ll};
  std::vector<message_protocol> open;
  std::ranges::copy_if(ways, std::back_inserter(open), [&](message_protocol how) {
    if (selected == message_protocol::simple && (how == message_protocol::ll128 || how == message_protocol::ll))
      return false;
    if (task.selected.exactly && selected == message_protocol::simple && how == message_protocol::direct) return false;
    return how == message_protocol::simple || (wanted != message_protocol::simple && why_not(how, task).empty());
  });
  take(o, choice.cheapest(able, open, task));
  if (o.chosen && !why.empty())
    log->info("{}: not by protocol {}, but as the planner chooses: {}", to_string(task.what), name(wanted), why);
  if (!o.chosen && o.only && able.front()->eligible())
    o.why_not_so = able.front()->choreography + " cannot: " + std::string{only_direct};
}

void planner::impl::take(outcome& o, const plan_choice::option& best) {
  o.chosen = best.who;
  o.way = best.how;
}

std::string planner::impl::why_nobody(const outcome& o, contender& one, message_protocol wanted,
                                      const planning_task& task) {
  const bool direct = wanted == message_protocol::direct;
  if (!o.only)
    return direct ? std::string{nobody_in_one_pass} : "no choreography that may perform it can: see troupe explain";
  // It may be known already that it cannot, but not why.
  choice.consider(one, task);
  if (direct) choice.price_direct(one, task);
  else choice.price_slots(one, task);
  return one.choreography + " cannot: " + (direct ? one.why_not_direct : one.over(format_of(wanted)).why_not);
}

std::string planner::impl::reference_choice(const planning_task& task) {
  planning_task reference = task;
  const std::size_t count = reference_bytes / size_of(task.what.type);
  reference.what.count = count;
  std::fill(reference.counts.begin(), reference.counts.end(), count);
  reference.what.in_place = !task.what.in_place;
  const auto others = considered(reference);
  reference.what.in_place = false;
  auto all = considered(reference);
  std::vector<contender*> able;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (others[i].eligible()) able.push_back(&all[i]);
  const contender* winner = choice.cheapest(able, std::array{message_protocol::simple}, reference).who;
  return winner ? winner->choreography : std::string{};
}

std::vector<contender> planner::impl::considered(const planning_task& task) {
  auto all = contenders(task);
  for (contender& c : all) choice.consider(c, task);
  return all;
}

void planner::impl::refuse(const planning_task& task, outcome& o) {
  const std::string title = to_string(task.what) + " on " + plural(static_cast<std::size_t>(task.ranks()), "rank");
  if (!o.why_not_so.empty()) throw error(errc::unsupported, title + ": " + o.why_not_so);
  if (!o.force.name.empty()) {
    const contender& c = o.all.front();
    if (c.faulty) throw error(errc::bad_score, title + ": " + c.choreography + ": " + c.why_rejected);
    std::vector<std::string> able;
    for (const contender& other : considered(task))
      if (other.eligible()) able.push_back(other.choreography);
    throw error(errc::unsupported, title + ": " + o.force.by + " wants " + c.choreography + ", but " + c.why_rejected +
                                       (able.empty() ? "" : "; these can: " + listed(able)));
  }
  std::string text = title + ": no choreography can do it";
  bool faulty = false;
  for (const contender& c : o.all) {
    text += "\n  " + c.choreography + ": " + c.why_rejected;
    faulty = faulty || c.faulty;
  }
  throw error(faulty ? errc::bad_score : errc::unsupported, text);
}

void planner::impl::append_rows(std::vector<candidate>& rows, contender& c, const outcome& o,
                                const planning_task& task) {
  const auto add = [&](message_protocol how, const cutting& cut, double seconds, std::string why_not,
                       agreement_form agreement = agreement_form::none) {
    rows.push_back({c.choreography,
                    std::string{name(how)},
                    cut.channels,
                    cut.slices,
                    cut.slices_per_step,
                    seconds,
                    std::move(why_not),
                    o.is(c, how),
                    {},
                    c.rank_order_fold,
                    agreement == agreement_form::none ? std::string{}
                    : may_run_ahead(task)             ? std::string{name(agreement_time::eager)}
                                                      : std::string{name(agreement)}});
  };
  const bool by_actors = !c.eligible() || std::isfinite(c.seconds);
  add(message_protocol::simple, c.cut, c.seconds, by_actors ? c.why_rejected : std::string{only_direct});
  if (!c.eligible()) return;
  const std::string no_slots = choice.why_no_slots(task), not_direct = choice.why_not_direct(task);
  if (no_slots.empty()) {
    choice.price_slots(c, task);
    choice.agree_over_slots(c, task);
  }
  for (const slot_format format : {slot_format::ll128, slot_format::ll}) {
    if (no_slots.empty() && std::isfinite(c.over(format).seconds)) choice.fit_slots(c, format, task);
    const auto& way = c.over(format);
    add(protocol_of(format), {}, way.seconds, no_slots.empty() ? way.why_not : no_slots, way.agreement);
  }
  if (not_direct.empty()) choice.price_direct(c, task);
  add(message_protocol::direct, {}, c.direct_seconds, not_direct.empty() ? c.why_not_direct : not_direct);
}

}  // namespace troupe
