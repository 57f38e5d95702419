// SPDX-License-Identifier: Apache-2.0
#include "engine/planning/planner.hpp"

#include <algorithm>
#include <mutex>
#include <span>

#include <spdlog/spdlog.h>

#include "engine/planning/choreography_library.hpp"
#include "engine/planning/choreography_wish.hpp"
#include "engine/planning/option_bounds.hpp"
#include "engine/planning/planner_inside.hpp"
#include "memory/error.hpp"
#include "memory/spelling.hpp"
#include "topology/reach.hpp"

namespace troupe {

namespace {

constexpr std::size_t least_scratch_bytes = 4096;

}  // namespace

planner::impl::impl(const engine_options& o, const tuning* costs)
    : options(checked(o)),
      log(make_log(options.log_level)),
      library(options.score_files, options.credits, log),
      machine(costs != nullptr ? *costs : load_tuning(options)),
      choice(options, library, machine, machine_of_job) {
  check_names();
  if (options.planner == "measured" && machine.choices.empty())
    throw error(errc::bad_config,
                "planner is \"measured\", and " +
                    (machine.file.empty() ? "there is no tuning file" : machine.file + " has no choices") +
                    "; `troupe tune --choices` measures them");
}

engine_options planner::impl::checked(engine_options o) {
  for (const choreography* mine : o.choreographies) {
    if (mine == nullptr)
      throw error(errc::bad_config, "engine_options::choreographies holds a null pointer; each must be a choreography");
    register_choreography(*mine);
  }
  for (const auto& [name, file] : o.choreography_libraries) load_choreographies(file.c_str());
  const auto wrong = [](const std::string& text) { throw error(errc::bad_config, text); };
  const auto check_range = [&](const std::string& name, int value, int least, int most) {
    if (value < least || value > most)
      wrong(name + " is " + std::to_string(value) + "; it must be " + std::to_string(least) + " … " +
            std::to_string(most));
  };
  check_range("credits", o.credits, 1, most_credits);
  check_range("channels", o.channels, 0, most_channels_wanted);
  check_range("slices_per_step", o.slices_per_step, 0, most_credits);
  check_range("streams", o.streams, 1, most_streams);
  if (o.scratch_bytes < least_scratch_bytes)
    wrong("scratch_bytes is " + std::to_string(o.scratch_bytes) + "; staging needs at least " +
          std::to_string(least_scratch_bytes));
  if (!is_one_of(o.protocol, wanted_protocols))
    wrong("protocol is \"" + o.protocol + "\"; it must be " + choices_in_words(wanted_protocols));
  if (o.planner != "model" && o.planner != "measured" && o.planner != "hccl" && o.planner != "nccl")
    wrong("there is no planner " + o.planner + "; there are model, measured, hccl and nccl");
  if (const nccl_options& n = o.nccl; n.channels < 1 || n.channels > 32 || !(n.inside > 0) || !(n.between > 0))
    wrong("nccl: channels must be 1 … 32, and inside and between more than 0 GB/s");
  return o;
}

void planner::impl::check_names() const {
  const auto check = [&](const std::string& name, const std::string& where) {
    if (const std::string wrong = wrong_choreography(name, library.names()); !wrong.empty())
      throw error(errc::bad_config, where + ": " + wrong);
  };
  check(options.choreography, "choreography");
  for (const auto& [collective_name, name] : options.choreography_of) {
    const auto what = parse_collective(collective_name);
    if (!what) throw error(errc::bad_config, "choreography of " + collective_name + ": there is no such collective");
    check(name, "choreography of " + collective_name);
    if (const choreography_wish wish{name}; !wish.name.empty() && !library.offers(wish.name, *what))
      throw error(errc::bad_config, "choreography of " + collective_name + ": " + name +
                                        " does not offer it; these do: " + listed(offering(*what)));
  }
}

std::string planner::impl::listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& n : names) text += (text.empty() ? "" : ", ") + n;
  return text;
}

std::vector<std::string> planner::impl::offering(collective what) const {
  std::vector<std::string> names;
  for (const std::string& n : library.names())
    if (library.offers(n, what)) names.push_back(n);
  return names;
}

planner::planner(const engine_options& options) : impl_(std::make_unique<impl>(options, nullptr)) {}
planner::planner(const engine_options& options, const tuning& machine)
    : impl_(std::make_unique<impl>(options, &machine)) {}
planner::~planner() = default;

const tuning& planner::machine() const { return impl_->machine; }

void planner::agree_on(std::span<const double> costs, int idle_cores) {
  const std::lock_guard lock(impl_->planning);
  impl_->machine_of_job = with_costs(impl_->machine, costs);
  impl_->idle_cores_of_job = idle_cores;
}

void planner::leave_idle(int cores) {
  for (int seen = impl_->idle_cores.load(); cores < seen && !impl_->idle_cores.compare_exchange_weak(seen, cores);) {}
}

bool planner::has_boards(const layout& placement) const {
  return placement.size() <= most_slot_ranks &&
         plan_choice::why_no_boards(impl_->options, reach_map{placement}).empty();
}

std::shared_ptr<const plan> planner::plan_for(const call& what, const layout& placement,
                                              const std::vector<std::size_t>* counts) {
  return impl_->plan_of(what, placement, counts);
}

std::shared_ptr<const plan> planner::plan_in_tiers(const call& what, const layout& placement, int of_host) {
  return impl_->plan_in_tiers(what, placement, of_host);
}

tiers_prospect planner::tiers_of(const call& what, const layout& placement, int of_host) {
  return impl_->make_in_tiers(what, placement, of_host);
}

/// The use of a memo, for as long as it lives.
class plan_memo::use {
public:
  explicit use(plan_memo& of) : of_(of), alone_(!of.taken_.exchange(true, std::memory_order_acquire)) {}
  ~use() {
    if (alone_) of_.taken_.store(false, std::memory_order_release);
  }
  use(const use&) = delete;
  use& operator=(const use&) = delete;
  explicit operator bool() const { return alone_; }

private:
  plan_memo& of_;
  bool alone_;
};

std::shared_ptr<const plan> planner::plan_again(const call& what, plan_memo& last) {
  const plan_memo::use mine{last};
  return mine && last.plan_ && last.own_ == identity_of(what) ? last.plan_ : nullptr;
}

std::shared_ptr<const plan> planner::plan_for(const call& what, const layout& placement, plan_memo& last, int of_host) {
  const auto planned = [&] {
    if (what.offload) [[unlikely]]
      if (auto by_nic = impl_->plan_if_offloaded(what, placement, of_host)) return by_nic;
    if (of_host == 0) return plan_for(what, placement);
    call otherwise = what;
    otherwise.offload = false;
    auto in_tiers = plan_in_tiers(otherwise, placement, of_host);
    return in_tiers ? in_tiers : plan_for(otherwise, placement);
  };
  const plan_memo::use mine{last};
  if (!mine) return planned();
  if (last.plan_ && class_of(last.what_) == class_of(what) && (!last.plan_->exact || last.what_.count == what.count))
    return last.plan_;
  const auto made = planned();
  if (!made) return nullptr;
  // Ranks that share a plan would otherwise fight for its reference count with every call.
  auto own = std::make_shared<std::shared_ptr<const plan>>(made);
  const plan* target = made.get();
  last.plan_ = nullptr;  // until the call is there, too
  last.what_ = what;
  last.own_ = identity_of(last.what_);
  last.plan_ = std::shared_ptr<const plan>(std::move(own), target);
  return last.plan_;
}

offload_prospect planner::offload_of(const call& what, const layout& placement,
                                     const std::vector<std::size_t>* counts) {
  const int of_host = ranks_of_each_host(placement);
  const bool may = wants_offload(offload_wish::automatic, what, true);
  const double callers =
      may ? impl_->seconds_of_callers(what, placement,
                                      of_host > 0 && has_boards(layout_of_host(placement, of_host)) ? of_host : 0)
          : 0;
  const std::lock_guard lock(impl_->planning);
  std::vector<contender> all;
  const planning_task task = impl_->with_trees(make_task(what, placement, counts));
  const nic_choice chosen = impl_->choose_for_nic(all, task);
  offload_prospect found;
  found.why_not = chosen.why_not;
  if (chosen.who == nullptr) return found;
  const offload_wish wish = offload_wish_of(impl_->options);
  const offload_figures figures = impl_->figures_of(task, chosen.seconds, callers);
  const offload_verdict by = weigh_offload(figures);
  found.choreography = chosen.who->choreography;
  found.predicted_seconds = chosen.seconds;
  found.automatic = may && by.pays;
  found.weighed = may ? by.why : "it moves no data";
  found.callers_seconds = callers;
  found.taken_seconds = by.taken;
  found.idle_cores = figures.idle_cores;
  found.blocking = wants_offload(wish, what, false);
  found.started = wants_offload(wish, what, true) && (wish == offload_wish::always || found.automatic);
  found.of_host = impl_->options.nic != "process";
  return found;
}

offload_wish offload_wish_of(const engine_options& options) {
  return options.offload == "never"  ? offload_wish::never
         : options.offload == "auto" ? offload_wish::automatic
                                     : offload_wish::always;
}

bool wants_offload(offload_wish wish, const call& what, bool started) {
  if (wish != offload_wish::automatic) return wish == offload_wish::always;
  return started && moves_data(what.what) && knows_all_blocks(what);
}

std::vector<std::string> planner::path(const call& what, const layout& placement,
                                       const std::vector<std::size_t>* counts) {
  const std::lock_guard lock(impl_->planning);
  return impl_->with_trees(make_task(what, placement, counts)).selected.path;
}

std::string planner::asked() const { return who_selects(impl_->options.planner); }

std::vector<candidate> planner::candidates(const call& what, const layout& placement,
                                           const std::vector<std::size_t>* counts) {
  const auto on_lists = knows_all_blocks(what) ? nullptr : impl_->plan_of(what, placement, nullptr);
  const std::lock_guard lock(impl_->planning);
  const planning_task task = impl_->with_trees(make_task(what, placement, counts));
  auto o = impl_->choose(task, true);
  for (contender& c : o.all) impl_->choice.consider(c, task);
  // A way that needs nobody's counts goes first, whatever the counts are.
  if (on_lists)
    for (contender& c : o.all)
      if (c.choreography == on_lists->choreography) o.chosen = &c, o.way = on_lists->protocol();
  // Folding in rank order changes prices, and only a verified score says whether it is needed.
  if (task.rules.trees.any())
    for (contender& c : o.all)
      while (c.eligible() && !c.settled) impl_->choice.settle(c, task);
  std::vector<candidate> list;
  for (contender& c : o.all) impl_->append_rows(list, c, o, task);
  std::stable_sort(list.begin(), list.end(), [](const candidate& a, const candidate& b) {
    if (a.eligible() != b.eligible()) return a.eligible();
    return a.eligible() && a.predicted_seconds < b.predicted_seconds;
  });
  return list;
}

}  // namespace troupe
