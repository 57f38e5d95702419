// SPDX-License-Identifier: Apache-2.0
#pragma once
// What performs a size of a study: the choreography that it names, all that can (auto), or what HCCL's or NCCL's selection takes; and by which
// protocols, over how many channels, in which chunks.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "engine/planning/score_library.hpp"
#include "engine/tools/study/prepared_scores.hpp"
#include "engine/tools/study/study.hpp"

namespace troupe {

/// Used by one thread. The arguments of its constructor have to outlive it.
class study_selection {
public:
  /// @param scores their way is set to what is tried @param remarks says what was taken, and what was not
  /// Throws error(bad_config): the machine has no such protocol.
  study_selection(const study_scenario& scenario, const hardware& on, score_library& library, prepared_scores& scores,
                  std::vector<std::string>& remarks);

  /// The choreographies that are tried, the fastest of which is the row; scores.way() is then how. Throws error(unsupported): nobody can.
  /// @param bytes that move: those of the call's shape
  std::vector<std::string> select(std::size_t bytes);

private:
  bool is_said(const char* key) const { return scenario_.as_said.contains(std::string{"study."} + key); }
  void find_protocols();
  std::vector<std::string> candidates(const std::string& wanted);
  std::vector<std::string> as_hccl(std::size_t bytes);
  std::vector<std::string> as_nccl(std::size_t bytes);
  std::string why_not_as_nccl(const std::string& choreography, const protocol_costs& by);

  const study_scenario& scenario_;
  const hardware& on_;
  score_library& library_;
  prepared_scores& scores_;
  std::vector<std::string>& remarks_;
  std::vector<protocol_costs> protocols_;                  ///< that the machine has and the study lets
  std::optional<std::vector<std::string>> at_every_size_;  ///< unless somebody selects
};

}  // namespace troupe
