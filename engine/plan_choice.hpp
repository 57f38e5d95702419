#pragma once
// The choice itself: what every choreography would make of a call, and which is the best that keeps the promises.

#include <cstddef>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "engine/options.hpp"
#include "engine/reduction_rules.hpp"
#include "engine/score_library.hpp"
#include "protocols/call.hpp"

namespace troupe {

/// A call and where it is made, with what follows from that.
struct planning_task {
  call what;
  layout placement;
  std::vector<std::size_t> counts;  ///< of blocks, if not uniform
  reduction_rules rules;

  int ranks() const { return placement.size(); }
  std::size_t largest_block() const;  ///< elements
  std::size_t mean_block() const;     ///< by which calls with blocks of different sizes are priced
};
/// Throws error: bad_root, invalid_argument (counts missing or too many), size_overflow.
planning_task make_task(const call& what, const layout& placement, const std::vector<std::size_t>* counts);

/// What a choreography would make of a task.
struct contender {
  std::string choreography;
  std::string why_rejected;
  stage on;
  bool widened = false;
  bool rank_order_fold = false;
  bool settled = false;  ///< verified, and its reduction trees are as demanded
  bool faulty = false;   ///< rejected because of the verifier
  datatype work_type = datatype::u8;
  cutting cut;
  double seconds = 0;
  std::shared_ptr<lowered_score> lowered;
  double slot_seconds = std::numeric_limits<double>::infinity();  ///< over slots; infinite if it cannot
  double direct_seconds = std::numeric_limits<double>::infinity();  ///< over the direct board; infinite if it cannot
  agreement_form agreement = agreement_form::none;  ///< of `over_slots`
  std::shared_ptr<lowered_score> over_slots;  ///< as performed there, rooted collectives with an agreement; null until asked for

  bool eligible() const { return why_rejected.empty(); }
};

/// Not synchronised, as the library.
class plan_choice {
 public:
  plan_choice(const engine_options& options, score_library& library, const machine_constants& machine)
      : options_(options), library_(library), machine_(machine) {}

  /// @param forced by the user: may share memory although the layout has several servers. @pre the library has `name`
  contender consider(const std::string& name, const planning_task& task, bool forced);
  std::vector<contender> consider_all(const planning_task& task);

  /// The cheapest that can be settled, the earlier of equal ones; nullptr if there is none. Only what might win is verified, since a
  /// promise that is not kept yet can only make a contender dearer.
  contender* best(std::vector<contender>& all, const planning_task& task);

  /// The cheapest of `all` over slots, settled; nullptr if there is none.
  contender* best_over_slots(std::vector<contender*> all, const planning_task& task);
  /// Whether a call may go over slots at all. @param forced as far as the memory of the slots allows, not as far as it pays
  bool may_use_slots(const planning_task& task, bool forced) const;
  /// Without what a rooted collective's agreement costs.
  void price_slots(contender& c, const planning_task& task) const;
  /// Makes `over_slots`, in the form of agreement that is cheapest, and adds its price. @pre priced
  void agree_over_slots(contender& c, const planning_task& task);

  /// Whether a call's ranks may meet at the direct board, and who would be the cheapest of `all` there, settled; nullptr: nobody.
  bool may_be_direct(const planning_task& task) const;
  contender* best_direct(std::vector<contender*> all, const planning_task& task);

  /// What a call costs in messages between actors, whatever it does.
  double actor_seconds(const planning_task& task) const;

  /// Verifies; folds in rank order if the promise demands it (then the price is another and it is not settled yet).
  void settle(contender& c, const planning_task& task);

 private:
  double seconds_over_slots(const contender& c, const lowered_score& s, const planning_task& task) const;
  void shape(contender& c, const planning_task& task);
  void price_direct(contender& c, const planning_task& task) const;
  void price(contender& c, const planning_task& task, const cutting& cut);
  std::vector<double> estimated_steps(const planning_task& task);
  std::vector<cutting> cuts(const contender& c, const planning_task& task, const lowered_score& whole) const;
  bool same_trees_in_place(const contender& c, const planning_task& task, const verdict& v);
  void prepare(contender& c, const planning_task& task, bool widened);

  const engine_options& options_;
  score_library& library_;
  const machine_constants& machine_;
};

/// Largest piece when `count` elements are cut in n parts.
std::size_t largest_part(std::size_t count, std::size_t n);

}  // namespace troupe
