// SPDX-License-Identifier: Apache-2.0
#pragma once
// Scores as they will be performed, made once for all sizes: built-in choreographies and the user's files, lowered, verified,
// and reduced to what they cost.

#include <array>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/log.hpp"
#include "engine/planning/cost_model.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/agreement_round.hpp"
#include "protocols/program/program.hpp"
#include "protocols/score/score.hpp"
#include "protocols/verify/verifier.hpp"

namespace troupe {

/// A rank has cells in L0, which are the same memory in every slice. Any thread.
bool uses_l0(const score& s);

/// A score of a certain choreography, setup and lowering. Used by one thread at a time, except for `notes`.
class lowered_score {
public:
  lowered_score(score s, int credits, std::shared_ptr<spdlog::logger> log);

  const std::shared_ptr<const score> notes;
  const std::size_t steps;         ///< of all ranks
  const std::size_t single_steps;  ///< that there are with one cell a step
  const bool touches_other_ranks;  ///< reads or writes other ranks' buffers
  const bool uses_l2;              ///< memory that is nobody's own
  const bool moves_chunks;         ///< messages or DMA carry data, not only the syncs' tokens

  /// The verifier's word for slices in this order. Three groups of them and more are alike: every access of a group has been seen beside the
  /// group before and the one after.
  const std::shared_ptr<const verdict>& verified(const slice_order& slices = {});

  /// The score is right, with the same reduction trees, also where the root's call is in place. @pre verified(slices) is ok
  bool holds_at_root_in_place(const slice_order& slices = {});

  /// Every sum is one pass of the kernel over all ranks' contributions, which rounds once: no partial result is ever stored.
  /// Cost: compiles the score for all ranks the first time. @pre its indices are right: built in, or from a verified file
  bool sums_in_one_pass();
  /// Every result is a pass over all ranks' inputs, as the callers left them. @pre sums_in_one_pass()
  bool folds_inputs();
  /// Nobody ends its part before it has heard of everybody. Cost: runs the score the first time.
  bool agrees();
  /// Why the process's NIC cannot perform it with these credits, as a sentence; empty if it can, which is proved of its descriptors then. Cost:
  /// verifies, compiles and proves the first time.
  const std::string& why_not_offloaded();
  /// The same descriptors are right where the root's call is in place. @pre why_not_offloaded() is empty
  bool offloads_at_root_in_place();
  /// digest(*notes), computed once.
  std::uint64_t digest();

  /// timing_sheet::hops().
  double hops();
  /// Predicted seconds, shared by all sizes of a class (size_class).
  /// @param costs whose latencies are always the same @param where, elements as timing_sheet's, and always the same
  double predict(std::size_t block_bytes, const cutting& cut, double staging_bytes, const machine_constants& costs,
                 const reach_map* where = nullptr, const machine* elements = nullptr);

private:
  using price_key = std::array<std::uint64_t, 7>;  ///< block bytes, cutting, staging bytes, rates
  /// Of as few slices as show all that these can.
  struct in_slices {
    slice_order order;
    std::shared_ptr<const verdict> verified;
    std::optional<bool> root_in_place;
  };
  in_slices& of(const slice_order& slices);

  int credits_;
  std::shared_ptr<spdlog::logger> log_;
  std::deque<in_slices> in_slices_;  ///< whose verdicts are lent
  std::optional<bool> one_pass_, folds_inputs_, agrees_;
  std::string why_no_descriptors(const score& as);
  std::optional<std::string> why_not_offloaded_;
  std::optional<bool> offloads_at_root_in_place_;
  std::optional<std::uint64_t> digest_;
  std::optional<timing_sheet> sheet_;
  std::map<price_key, double> prices_;
};

/// Which lowering of which score.
struct score_key {
  std::string choreography;
  setup on;
  bool one_cell = false;
  bool rank_order_fold = false;
  agreement_form agreement = agreement_form::none;  ///< of scores for slots
  int pieces = 0;                                   ///< of a partitioned call; else 0
};

/// Not synchronised: the planner uses it under its lock.
class score_library {
public:
  /// Loads and verifies the user's files. Throws error: io, bad_score, bad_config (a name that is taken).
  score_library(const std::map<std::string, std::string>& files, int credits,
                std::shared_ptr<spdlog::logger> log = make_log("warn"));

  /// Built-in ones in the order of the documentation, then the user's.
  const std::vector<std::string>& names() const { return names_; }
  bool has(std::string_view name) const;
  /// Does it offer the collective, whatever the ranks?
  bool offers(std::string_view name, collective what) const;
  /// "; did you mean ring?" for a name that is not there, or a list of all.
  std::string suggestion(std::string_view name) const;
  /// A user's score says itself whether input and output are one memory; empty for others.
  std::optional<bool> in_place(std::string_view name) const;
  /// A user's score with its syncs, for callers with a barrier of their own. @pre it is a file's
  const score& as_written(std::string_view name) const { return own_.find(name)->second; }
  /// Why it cannot do `on`; empty if it can. @pre has(name)
  std::string refusal(std::string_view name, const setup& on) const;

  /// Null: nothing is known of it before it is written, as it is somebody's own. @pre refusal is empty
  std::shared_ptr<const score_tally> tally(std::string_view name, const setup& on);

  /// Null if the form of agreement does not fit it. @pre refusal is empty. Throws error(bad_score) if a rewriting pass cannot be
  /// applied.
  std::shared_ptr<lowered_score> get(const score_key& key);

private:
  struct entry {
    score_key key;
    std::shared_ptr<lowered_score> lowered;
  };

  std::optional<score> draft(const score_key& key) const;

  int credits_;
  std::shared_ptr<spdlog::logger> log_;
  std::map<std::string, score, std::less<>> own_;  ///< the user's, as written
  std::map<std::string, std::string, std::less<>> files_;
  std::vector<std::string> names_;
  std::unordered_multimap<std::size_t, entry> made_;
  std::unordered_multimap<std::size_t, std::pair<score_key, std::shared_ptr<const score_tally>>> tallies_;
  std::size_t kept_steps_ = 0;
};

}  // namespace troupe
