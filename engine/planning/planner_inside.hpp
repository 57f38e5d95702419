// SPDX-License-Identifier: Apache-2.0
#pragma once
// The inside of planner. planner_choosing.cpp decides what performs a call, and how; planner_plans.cpp makes the plan of that; planner.cpp has what is left:
// what the options may say, and the planner's own functions.

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/planning/nic_choice.hpp"
#include "engine/planning/offload_verdict.hpp"
#include "engine/planning/plan_cache.hpp"
#include "engine/planning/plan_choice.hpp"
#include "engine/planning/planner.hpp"
#include "engine/planning/selection.hpp"

namespace troupe {

/// A choreography that somebody wants.
struct forced_name {
  std::string name;  ///< empty: the planner chooses
  std::string by;    ///< the option or selection that forces it
};

struct planner::impl {
  impl(const engine_options& o, const tuning* costs);
  static engine_options checked(engine_options o);
  void check_names() const;
  std::vector<std::string> offering(collective what) const;
  static std::string listed(const std::vector<std::string>& names);

  // -- what is forced --
  /// The choreography that is named, by the call or by the options.
  forced_name named(const call& what) const;
  /// The choreography that must perform `what`. The engine-wide name is a wish: where it cannot be fulfilled, the planner chooses. So is a selection, which
  /// has asked already (select_as).
  forced_name forced(const planning_task& task);
  /// Why a wish for `wanted` cannot be fulfilled; empty: it can, or is a fault that must be told.
  std::string why_not_performed(const std::string& wanted, const planning_task& task);
  /// What the planner of the options makes of it, where no choreography is named.
  selected_way selection(const planning_task& task);
  /// Where all ranks share memory, one pass over everybody's buffers is hard to beat at large sizes, and it is a left fold; so that is the
  /// tree that all sizes share (size_stable), and what may be performed in other ways at other sizes.
  planning_task with_trees(planning_task task);
  /// The option by which the planner must not choose `which`; empty: none.
  std::string excluded_by(std::string_view which, const call& what) const;
  /// Those that are excluded are among them, rejected.
  std::vector<contender> contenders(const planning_task& task);

  // -- choosing --

  /// All contenders, and which is the one.
  struct outcome {
    std::vector<contender> all;
    contender* chosen = nullptr;
    forced_name force;
    bool only = false;  ///< nobody but `chosen` may: an option names it, or bits are promised
    message_protocol way = message_protocol::simple;  ///< how `chosen` performs it
    bool counts_told = false;                         ///< by the membership, which has heard of everybody then
    std::string why_not_so;                           ///< nobody may, because the call's protocol cannot do it

    bool is(const contender& c, message_protocol so) const { return &c == chosen && way == so; }
    double seconds() const { return plan_choice::option{chosen, way}.seconds(); }
  };
  outcome choose(const planning_task& task, bool everybody);
  message_protocol wanted_protocol(const call& what) const;
  /// By the planner of the options, where nobody asks for another one.
  message_protocol selected_protocol(const outcome& o, const planning_task& task) const;
  /// Why calls of the task cannot be performed so, whoever would, as the end of a sentence; empty if they can.
  std::string why_not(message_protocol how, const planning_task& task) const;
  /// The cheapest in any way, or in the one that is wanted. The options' wish that cannot be fulfilled leaves the choice free, the call's
  /// is an error.
  void choose_among(outcome& o, std::span<contender* const> able, const planning_task& task);
  static void take(outcome& o, const plan_choice::option& best);
  /// @param one who alone may, if anybody
  std::string why_nobody(const outcome& o, contender& one, message_protocol wanted, const planning_task& task);
  /// size_stable where ranks do not share memory: the same choice for all sizes, in place or not; empty if nobody can do both.
  std::string reference_choice(const planning_task& task);
  std::vector<contender> considered(const planning_task& task);
  [[noreturn]] void refuse(const planning_task& task, outcome& o);
  /// A row for every protocol, with the reason where it cannot be performed so. One row if it cannot be performed at all.
  void append_rows(std::vector<candidate>& rows, contender& c, const outcome& o, const planning_task& task);

  // -- as it is chosen --
  /// So that agreement travels with the data. Where it cannot, the membership is asked. Returns what is performed.
  std::shared_ptr<lowered_score> agree_by_mailbox(bool& agrees, const contender& c, const planning_task& task);
  /// Sets the plan's port, and returns what is performed there.
  std::shared_ptr<lowered_score> choose_port(plan& made, const outcome& o, const planning_task& task);
  std::shared_ptr<lowered_score> choose_mailbox(plan& made, const outcome& o, const planning_task& task);
  /// The same without the agreement, for calls that may run ahead. Nobody is the earlier for it where the data tell all.
  static void let_run_ahead(plan& made, const contender& c, const planning_task& task);
  std::shared_ptr<plan> make_plan(const planning_task& task);
  /// The whole call's choreography, by mailbox, cut into the caller's pieces and no further.
  std::shared_ptr<plan> make_partitioned_plan(planning_task task);
  /// Tokens once an operation, beside the pieces.
  std::shared_ptr<lowered_score> in_pieces(bool& agrees, const contender& c, const planning_task& task);
  /// By the direct port, where ranks read each other's lists; null: the call has to wait for all ranks' counts.
  std::shared_ptr<plan> make_plan_on_lists(const planning_task& task);
  /// By mailbox between processes, where each rank makes do with the sizes that it knows of itself; null: as above.
  std::shared_ptr<plan> make_plan_of_own_blocks(const planning_task& task);
  void take_at_once(outcome& o, std::span<contender* const> able, const planning_task& task);
  std::shared_ptr<plan> make_plan(const planning_task& task, const outcome& o);

  // -- by the process's NIC --
  nic_choice choose_for_nic(std::vector<contender>& all, const planning_task& task);
  /// Null: it goes as calls go that nobody wants to offload.
  std::shared_ptr<plan> make_plan_for_nic(const planning_task& task);
  int idle_cores_for(const planning_task& task) const;
  /// What is known of it, as callers that go on.
  offload_figures figures_of(const planning_task& task, double nic_seconds, double callers_seconds);
  /// Predicted for those who call it, if no NIC performs it. Infinite: nobody knows.
  double seconds_of_callers(call what, const layout& placement, int of_host);
  /// For all of its class, as plan_of(). Null: the NIC cannot, or it would not pay. @pre what.offload
  std::shared_ptr<const plan> plan_for_nic(const call& what, const layout& placement, int of_host = 0);
  /// The same; what is wrong with the call is left to the other way to say.
  std::shared_ptr<const plan> plan_if_offloaded(const call& what, const layout& placement, int of_host);
  /// All sizes of a class share the choice, the score, its proof and its programs. Null: made only with all ranks' counts.
  std::shared_ptr<const plan> plan_of(const call& what, const layout& placement,
                                      const std::vector<std::size_t>* counts);

  // -- in tiers --
  /// Why its stages, or what is asked for, do not allow it, as the end of a sentence; empty: they do.
  std::string why_not_in_tiers(const call& what) const;
  /// Not under the lock, which each stage's plan takes.
  tiers_prospect make_in_tiers(call what, const layout& placement, int of_host);
  std::shared_ptr<const plan> plan_in_tiers(const call& what, const layout& placement, int of_host);

  /// From the cache, or made: once, if several ask for the same.
  template <class Make>
  std::shared_ptr<const plan> cached_or(const plan_key_view& key, Make&& make) {
    if (const auto known = cache.find(key)) return *known;
    const std::lock_guard lock(planning);
    if (const auto known = cache.find(key)) return *known;
    std::shared_ptr<const plan> made = make();
    cache.keep(key, made);
    return made;
  }

  /// size_stable where ranks do not share memory: the choreography that is best at this size is chosen for all.
  static constexpr std::size_t reference_bytes = 64 * 1024;
  // Why a choreography is not chosen, as the end of a sentence.
  static constexpr std::string_view only_direct =
      "it works on other ranks' buffers; of blocks of different sizes, and in other "
      "processes, only the direct port knows their places";

  static constexpr std::string_view nic_is_not_asked_for =
      "the engine decides what a NIC performs (engine.offload); no call can ask for it";
  static constexpr std::string_view nobody_in_one_pass =
      "no choreography that may perform it does so in one pass over all ranks' buffers";

  engine_options options;
  std::shared_ptr<spdlog::logger> log;
  bool told_of_offload = false;
  score_library library;
  tuning machine;
  std::optional<tuning> machine_of_job;  ///< under `planning`
  int idle_cores_of_job = 0;             ///< the same
  std::atomic<int> idle_cores{most_idle};
  static constexpr int most_idle = 1 << 20;
  plan_choice choice;
  std::mutex planning;  ///< held while a plan is made, so that ranks that ask for the same at once make it once
  plan_cache cache;
};

}  // namespace troupe
