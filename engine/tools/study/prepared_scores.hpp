// SPDX-License-Identifier: Apache-2.0
#pragma once
// The scores of a study as they are performed: written for its machine, lowered, cut into cells where that is asked for, paced, and verified
// where that takes about a second. They are kept from size to size as long as together they are not too large.

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/planning/score_library.hpp"
#include "engine/tools/study/study.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/verify/verifier.hpp"
#include "topology/machine/hardware.hpp"

namespace troupe {

/// Steps of a candidate of `auto`, which looks for the fastest of all: a choreography that needs more is left out where another one can. So many
/// are kept, too.
inline constexpr std::size_t most_steps_of_a_candidate = 20'000'000;

/// How a size is performed, whoever performs it: changes from size to size where somebody selects (selection.hpp).
struct study_way {
  bool through_scratch = false;
  std::uint64_t chunk_bytes = 0;
  int channels = 1;
  int nics = 0;                           ///< as setup::nics
  std::vector<protocol_costs> protocols;  ///< that are tried
  int slices_per_step = 1;                ///< unless the study says how many; cells are cut into as many at least …
  std::uint64_t least_cut = 0;            ///< … where they have more bytes than this
};

/// A score, and a proof of it for slices in this order.
struct prepared_score {
  std::string choreography;
  bool one_cell = false;
  bool through_scratch = false;
  int nics = 0;
  slice_order slices;  ///< as few as show all (slice_order::shortened)
  std::shared_ptr<const score> notes;
  std::size_t steps = 0;
  bool verified = false;                             ///< unless …
  std::shared_future<std::optional<fault>> proof{};  ///< … this finds a fault, which confirm() throws
};

/// What this scenario asks a choreography to perform on this machine.
setup setup_of(const study_scenario& scenario, const hardware& on, bool through_scratch, int nics = 0);
/// Why `auto` leaves it out: the end of a sentence; empty: it does not.
std::string why_not_a_candidate(const std::string& choreography, const setup& on);

/// Used by one thread. The arguments of its constructor have to outlive it.
class prepared_scores {
public:
  /// @param remarks what is to be said of scores is added to them
  prepared_scores(const study_scenario& scenario, const hardware& on, score_library& library,
                  std::vector<std::string>& remarks);

  const study_way& way() const noexcept { return way_; }
  /// Scores are kept only as the protocols that are tried allow.
  void take_up(const study_way& way);

  setup present_setup() const { return setup_of(scenario_, on_, way_.through_scratch, way_.nics); }
  /// Whether every step has one cell, so that all of them can be cut alike.
  bool cut_by_all() const { return way_.channels > 1 || scenario_.kind.v_form || scenario_.slices > 1; }

  /// Throws error: bad_score, out_of_memory.
  std::shared_ptr<const prepared_score> prepare(const std::string& choreography, bool one_cell,
                                                const slice_order& slices = {});
  /// Waits for its proof, and throws error(bad_score) if that failed.
  static void confirm(const prepared_score& p);

  /// Why a protocol cannot carry what switches reduce for it; empty: it can, or none does.
  std::string why_not_by_switches(const std::string& choreography, const protocol_costs& protocol);

private:
  score write(const std::string& choreography, bool one_cell);
  void verify_if_small(prepared_score& p);

  const study_scenario& scenario_;
  const hardware& on_;
  score_library& library_;
  std::vector<std::string>& remarks_;
  study_way way_;
  std::vector<std::shared_ptr<const prepared_score>> kept_;
  std::size_t kept_steps_ = 0;
};

}  // namespace troupe
