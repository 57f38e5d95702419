// SPDX-License-Identifier: Apache-2.0
#pragma once
// Decides how a call is performed. Between the communicator, which knows what is wanted, and the actors, which perform a plan.
//
// The way of a call: options and the call name the candidates → the steps of each are counted (score_tally.hpp) → in the order of what
// they cost at least, they are written, lowered and priced (score_library.hpp, cost_model.hpp) → the cheapest that gives the bits the
// determinism level promises is verified → cut for the size → plan.
// Scores are shared by all sizes, plans by all calls that are alike.

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/api/options.hpp"
#include "protocols/call.hpp"
#include "protocols/plan.hpp"
#include "topology/layout/layout.hpp"

namespace troupe {

struct tuning;

/// One choreography with one protocol that was considered for a call.
struct candidate {
  std::string choreography;
  std::string protocol = "simple";  ///< or ll, ll128, direct: each a row of its own
  int channels = 1;
  int slices = 1;
  int slices_per_step = 1;
  double predicted_seconds = 0;  ///< by the cost model; meaningless if rejected
  std::string why_rejected;      ///< one sentence; empty: eligible
  bool chosen = false;
  std::optional<double>
      measured_seconds;  ///< of a call, by the code that has measured it (engine/tools/explain_measured.hpp)
  bool rank_order_fold =
      false;  ///< contributions travel unreduced and are folded in rank order (determinism, non-commutative ops)

  /// Rooted, over slots: how the ranks come to know that all have called the same; "eager": with later calls. Else empty.
  std::string agreement;

  bool eligible() const { return why_rejected.empty(); }
};

/// engine_options::offload.
enum class offload_wish : std::uint8_t { never, automatic, always };
offload_wish offload_wish_of(const engine_options& options);
/// The process's NIC is to perform it, if it can, and if that pays where nobody has asked for all calls (offload_verdict.hpp).
/// @param started its caller goes on, and waits for it later
bool wants_offload(offload_wish wish, const call& what, bool started);

/// Whether the process's NIC can perform a call (docs/offload.md).
struct offload_prospect {
  std::string choreography;      ///< that it would be given; empty: it cannot
  double predicted_seconds = 0;  ///< of its thread
  std::string why_not;           ///< a sentence; empty: it can
  bool blocking = false;         ///< it does by the options, where the caller waits in the call …
  bool started = false;          ///< … and where it goes on
  bool automatic = false;        ///< where it goes on, it would with `offload = "auto"`, …
  std::string weighed;           ///< … or would not, since …: the end of a sentence, with the figures
  double callers_seconds = 0;    ///< predicted for the ranks themselves …
  double taken_seconds = 0;      ///< … and of each one's time where the NIC performs
  int idle_cores = 0;            ///< that decided it
  bool of_host = false;          ///< between processes: engine.nic names the host's NIC process
};

/// How a call would be performed in tiers.
struct tiers_prospect {
  std::shared_ptr<const plan> how;  ///< null: not at all
  std::string why_not;              ///< as the end of a sentence; empty: it can
  double other_seconds = 0;         ///< predicted for what is performed else
  bool chosen() const { return how != nullptr && how->predicted_seconds < other_seconds; }
};

/// The plan of a rank's last call, so that its repetition shares no cache line with other ranks'. One a rank and communicator: all
/// calls have the same placement. Thread-safe: a caller that finds it taken goes without.
class plan_memo {
private:
  friend class planner;
  class use;
  std::atomic<bool> taken_{false};
  call what_;
  call_identity own_;                 ///< of what_
  std::shared_ptr<const plan> plan_;  ///< with a count of its own
};

/// Chooses choreography, protocol, channels and slices for a call, makes the verified plan, and caches it. Thread-safe.
class planner {
public:
  /// Loads and verifies the user's score files. Throws error: bad_score with file and offending step, io for a file that cannot
  /// be read, bad_config for names that do not exist.
  explicit planner(const engine_options& options);
  /// By these costs of the machine, and not by those that the options name.
  planner(const engine_options& options, const tuning& machine);
  ~planner();
  planner(const planner&) = delete;
  planner& operator=(const planner&) = delete;

  /// @param counts blocks' elements of a non-uniform call, in block order (block_count(what, ranks) of them), if all ranks' are known;
  /// null: what the call says, which may be some of them. Then the plan is one that makes do with that, or null if there is none.
  /// Calls of a class (class_of) get the same plan; then the cost is a shared lock and a look-up without allocation.
  /// Throws error: unsupported (no choreography can, or a forced one cannot), bad_score (the verifier found a fault),
  /// size_overflow, bad_root, invalid_argument (counts missing).
  std::shared_ptr<const plan> plan_for(const call& what, const layout& placement,
                                       const std::vector<std::size_t>* counts = nullptr);
  /// The same without counts, by way of the memo: no word that other ranks write. In tiers where that should be faster, if the ranks of each host
  /// meet at a board of theirs. @param of_host ranks_of_each_host(placement) then; 0: they do not
  std::shared_ptr<const plan> plan_for(const call& what, const layout& placement, plan_memo& last, int of_host = 0);
  /// The memo's, if the call repeats its call; else null. Nothing of a class is computed.
  static std::shared_ptr<const plan> plan_again(const call& what, plan_memo& last);

  /// The same in tiers; null: it cannot be performed so, or should be faster otherwise. Throws as plan_for(). @param of_host not 0
  std::shared_ptr<const plan> plan_in_tiers(const call& what, const layout& placement, int of_host);
  /// What it would be, and why not.
  tiers_prospect tiers_of(const call& what, const layout& placement, int of_host);

  /// By what it chooses where all ranks are in one process: what this machine costs.
  const tuning& machine() const;
  /// From now on communicators of several processes are planned by these costs (tuning.hpp: costs_of), and by cores that no rank of the job uses, on the
  /// host that has fewest of them; all processes of the job must have both alike. @pre none was planned yet
  void agree_on(std::span<const double> costs, int idle_cores);
  /// There are ranks that leave so many of this process's cores; of all such, and of the job, the fewest count for communicators of this process. Any thread.
  void leave_idle(int cores);

  /// Plans for ranks placed so may be performed on boards (slots, direct).
  bool has_boards(const layout& placement) const;

  /// Every choreography with every protocol (once, if it cannot at all): the eligible ones in order of predicted time, then the rejected
  /// ones. Verifies the chosen one, as plan_for does, or all where reduction trees matter. Throws only for calls that make no sense at all (bad_root, size_overflow,
  /// invalid_argument, a forced name that does not exist), never because nothing is eligible.
  std::vector<candidate> candidates(const call& what, const layout& placement,
                                    const std::vector<std::size_t>* counts = nullptr);

  /// Whatever the options say of offloading. Throws only for calls that make no sense at all, as candidates.
  offload_prospect offload_of(const call& what, const layout& placement,
                              const std::vector<std::size_t>* counts = nullptr);

  /// How the planner of the options came to its answer, a line a question, where it is not the cost model; empty: it is, or somebody named
  /// a choreography. Throws as candidates.
  std::vector<std::string> path(const call& what, const layout& placement,
                                const std::vector<std::size_t>* counts = nullptr);
  /// Whose answer that is: "HCCL's selection"; empty: the cost model's.
  std::string asked() const;

private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace troupe
