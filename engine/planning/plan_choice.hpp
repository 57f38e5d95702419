// SPDX-License-Identifier: Apache-2.0
#pragma once
// The choice itself: what every choreography would make of a call, and which is the best that keeps the promises.

#include <array>
#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/api/options.hpp"
#include "engine/planning/reduction_rules.hpp"
#include "engine/planning/score_library.hpp"
#include "engine/planning/selection.hpp"
#include "engine/planning/tuning.hpp"
#include "protocols/call.hpp"
#include "topology/reach.hpp"

namespace troupe {

/// A call and where it is made, with what follows from that.
struct planning_task {
  call what;
  layout placement;
  reach_map where;
  std::vector<std::size_t> counts;  ///< of blocks, if not uniform
  reduction_rules rules;
  selected_way selected{};  ///< by the planner of the options; besides what they say themselves

  int ranks() const { return placement.size(); }
  std::size_t largest_block() const;  ///< elements
  std::size_t mean_block() const;     ///< by which calls with blocks of different sizes are priced
};
/// Over slots, a rank that needs nobody else may end it before all are known to have called the same.
bool may_run_ahead(const planning_task& task);
/// Throws error: bad_root, invalid_argument (counts missing or too many), size_overflow.
planning_task make_task(const call& what, const layout& placement, const std::vector<std::size_t>* counts);
/// Of blocks that differ in size. Throws error(invalid_argument).
void check_counts(const call& what, int ranks, const std::vector<std::size_t>& counts);
/// For all calls like this one whose blocks have at most `largest` elements. Throws error: bad_root, size_overflow.
planning_task task_of_class(const call& what, const layout& placement, std::size_t largest);

/// What a choreography would make of a task. At first only what it costs at least is known, from counting its steps; it is written, priced
/// and verified when nothing that is cheaper is left.
struct contender {
  std::string choreography;
  std::string why_rejected;
  bool counted = false;           ///< its steps, for so many ranks; else `least` is guessed from fewer ranks
  bool written = false;           ///< there are a score and a cutting, and what follows is known
  std::array<double, 6> least{};  ///< seconds, by message_protocol; holds also when it is written
  setup on;
  bool widened = false;
  bool scales_reads = false;  ///< factors are applied by its folds, so nothing is staged
  bool rank_order_fold = false;
  bool settled = false;  ///< verified, and its reduction trees are as demanded
  bool faulty = false;   ///< rejected because of the verifier
  datatype work_type = datatype::u8;
  cutting cut;
  bool priced = false;  ///< through the actors: …
  double seconds = 0;   ///< … infinite if it cannot
  std::shared_ptr<lowered_score> lowered;
  /// Over slots, by slot_format.
  struct slot_way {
    bool priced = false;
    double seconds = std::numeric_limits<double>::infinity();  ///< infinite if it cannot
    std::string why_not;                                       ///< as the end of a sentence
    agreement_form agreement = agreement_form::none;
    std::shared_ptr<lowered_score>
        lowered;  ///< as performed there, rooted collectives with an agreement; null until asked for
  };
  std::array<slot_way, 2> over_slots;
  slot_way& over(slot_format f) { return over_slots[static_cast<std::size_t>(f)]; }
  const slot_way& over(slot_format f) const { return over_slots[static_cast<std::size_t>(f)]; }
  bool direct_priced = false;
  double direct_seconds = std::numeric_limits<double>::infinity();  ///< over the direct board; infinite if it cannot
  std::string why_not_direct;
  std::shared_ptr<const direct_program> direct;  ///< as it was priced, without what averages and factors make of it

  bool eligible() const { return why_rejected.empty(); }
};

/// What is performed of it piece by piece. @pre the task is of a partitioned call; written
inline score_key key_of_pieces(const contender& c, const planning_task& task) {
  return {c.choreography,       c.on,
          c.rank_order_fold,    c.rank_order_fold,
          agreement_form::none, static_cast<int>(task.what.pieces)};
}

/// Not synchronised, as the library.
class plan_choice {
public:
  /// @param of_job what ranks of several processes are planned by, if their job has agreed on it
  plan_choice(const engine_options& options, score_library& library, const tuning& machine,
              const std::optional<tuning>& of_job)
      : options_(options), library_(library), machine_(machine), machine_of_job_(of_job) {}

  /// Ranks of one process need nobody else's costs, and may have planned before the process joined a job.
  const tuning& costs(const planning_task& task) const {
    return machine_of_job_ && task.where.farthest_link() != reach::process ? *machine_of_job_ : machine_;
  }
  /// Not written yet. @pre the library has `name`
  contender contender_of(const std::string& name, const planning_task& task);
  std::vector<contender> all_contenders(const planning_task& task);
  /// As it is written where inputs are staged that have to be: before it is written its steps can be counted. May be rejected.
  contender staged_form_of(const contender& c, const planning_task& task) {
    contender staged = c;
    frame(staged, task, task.rules.sums_in_f32, false);
    return staged;
  }
  /// Nothing if it is written or rejected. Otherwise one of the two, and priced.
  void consider(contender& c, const planning_task& task);

  /// A contender and how it is performed.
  struct option {
    contender* who = nullptr;
    message_protocol how = message_protocol::simple;
    double seconds() const;
  };
  /// The cheapest of `all` in one of `ways`, verified, with the promises kept; the earlier of equal ones. Nobody if there is none.
  /// Only what might win is written, priced and verified: a promise that is not kept yet can only make a contender dearer.
  /// @pre the task may be performed in each of `ways` (why_no_slots, why_not_direct)
  option cheapest(std::span<contender* const> all, std::span<const message_protocol> ways, const planning_task& task);

  /// Why the ranks of such a communicator have no boards, as the end of a sentence; empty if they have.
  static std::string why_no_boards(const engine_options& options, const reach_map& where);
  /// Why a call may not go over slots at all, as the end of a sentence; empty if it may.
  std::string why_no_slots(const planning_task& task) const;
  /// Sets over(format) of both, without what a rooted collective's agreement costs. @pre why_no_slots(task) is empty
  void price_slots(contender& c, const planning_task& task) const;
  /// Adds the agreement, for each format in the form that is cheapest. Nothing where that was done. @pre priced for both
  void agree_over_slots(contender& c, const planning_task& task);
  /// Every rank's messages find room in the slots; else it cannot be performed so. Cost: compiles all ranks' programs. @pre agreed
  bool fit_slots(contender& c, slot_format format, const planning_task& task) const;

  /// Why a call's ranks may not meet at the direct board, as the end of a sentence; empty if they may.
  std::string why_not_direct(const planning_task& task) const;
  /// Sets direct_seconds. @pre why_not_direct(task) is empty
  void price_direct(contender& c, const planning_task& task) const;

  /// Verifies; folds in rank order if the promise demands it (then the price is another and it is not settled yet).
  void settle(contender& c, const planning_task& task);

private:
  /// By slot_format: a score's steps are looked at once for both.
  std::array<double, 2> seconds_over_slots(const contender& c, const lowered_score& s, const planning_task& task) const;
  void shape(contender& c, const planning_task& task);
  void price_cuts(contender& c, const planning_task& task, std::span<const cutting> cuts);
  void price(contender& c, const planning_task& task, const cutting& cut);
  static double known_of(const contender& c, message_protocol how);
  bool refine(const option& o, const planning_task& task);
  bool refine_slots(contender& c, slot_format format, const planning_task& task);
  void bound(contender& c, const planning_task& task, bool counted);
  void lower_bounds(contender& c, const contender& form, const planning_task& task);
  using tally_list = std::vector<std::shared_ptr<const score_tally>>;
  tally_list small_tallies(const contender& form, const planning_task& task);
  least_time least_time_of(const score_tally& tally, message_protocol how, const contender& form,
                           const planning_task& task) const;
  double fewest_hops(const contender& form, const planning_task& task);
  void write(contender& c, const planning_task& task);
  std::string why_not_in_pieces(const contender& c, const planning_task& task) const;
  struct extent {
    double steps = 0;                  ///< 0: unknown
    bool touches_other_ranks = false;  ///< reads or writes their buffers
    std::string too_large;             ///< for the verifier: the end of a sentence
  };
  std::vector<extent> estimated(const planning_task& task);
  /// 0: the planner decides.
  int wanted_channels(const planning_task& task) const {
    return options_.channels > 0 ? options_.channels : task.selected.channels;
  }
  double bytes_a_core(const planning_task& task, std::size_t block_bytes) const;
  /// @param bytes of a block
  machine_constants through_actors(const planning_task& task, std::size_t bytes, datatype type) const;
  int cores(const planning_task& task) const;
  machine_constants least_through_actors(const planning_task& task, std::size_t bytes, datatype type) const;
  int most_slices_per_step(const planning_task& task, const lowered_score& whole) const;
  std::vector<cutting> cuts(const contender& c, const planning_task& task, const lowered_score& whole) const;
  std::size_t staged_elements(const contender& c, const planning_task& task, const lowered_score& whole) const;
  std::size_t elements_in_l0(const contender& c, const planning_task& task, const lowered_score& whole) const;
  std::string why_no_room(const contender& c, const planning_task& task) const;
  bool stages_whole_blocks(const contender& c, const planning_task& task) const;
  bool same_trees_in_place(const contender& c, const planning_task& task, const verdict& v);
  bool meets_on_board(const planning_task& task) const;
  void frame(contender& c, const planning_task& task, bool widened, bool scales_reads);
  void prepare(contender& c, const planning_task& task, bool widened, bool scales_reads);
  void prepare_staged(contender& c, const planning_task& task) { prepare(c, task, task.rules.sums_in_f32, false); }

  const engine_options& options_;
  score_library& library_;
  const tuning& machine_;
  const std::optional<tuning>& machine_of_job_;
};

slot_format format_of(message_protocol which);
message_protocol protocol_of(slot_format format);

/// Largest piece when `count` elements are cut in n parts.
std::size_t largest_part(std::size_t count, std::size_t n);

}  // namespace troupe
