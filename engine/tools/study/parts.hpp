// SPDX-License-Identifier: Apache-2.0
#pragma once
// Studies of single collectives, each on some ranks of one machine, that something larger is made of: jobs, flows, traces of applications.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/planning/score_library.hpp"
#include "engine/tools/study/study.hpp"
#include "topology/layout/layout.hpp"

namespace troupe {

/// How these ranks of the machine sit.
layout arrangement_of(const hardware& on, const std::vector<int>& ranks);

/// Used by one thread. The arguments of its constructor have to outlive it.
class part_studies {
public:
  /// @param whole whose score files all of them may use @param remarks what is to be said of them is added
  part_studies(const study_scenario& whole, const study_machine& on,
               const std::function<void(const std::string&)>& progress, const std::function<bool()>& go_on,
               std::vector<std::string>& remarks)
      : whole_(whole), machine_(on), progress_(progress), go_on_(go_on), remarks_(remarks) {}

  struct part {
    std::vector<int> ranks;
    layout places;
    bool by_nics = false;
    bool wished = false;             ///< its choreography is only a wish: run_as_wished()
    std::string whose_remarks = {};  ///< they begin with it: "norm: "
  };
  /// How it is performed there: a row with notes and a call. Throws error as run_study(). @pre `one` has one size
  study_row plan(const study_scenario& one, const part& where);

private:
  const study_scenario& whole_;
  const study_machine& machine_;
  const std::function<void(const std::string&)>& progress_;
  const std::function<bool()>& go_on_;
  std::vector<std::string>& remarks_;
  std::shared_ptr<score_library> scores_;  ///< made when the first one is planned
};

}  // namespace troupe
