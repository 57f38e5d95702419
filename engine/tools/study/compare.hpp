// SPDX-License-Identifier: Apache-2.0
#pragma once
// Two studies side by side: who is faster, by how much, and where the time went.

#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "engine/tools/study/study.hpp"

namespace troupe {

/// Leaves both only the sizes that both have, in the order of `a`. @return what was left out, one sentence; empty: nothing.
/// @throws error(bad_config) if they have none in common.
std::string keep_common_sizes(study_scenario& a, study_scenario& b);

/// Where both have the same title: makes them differ by what was said for each alone ("ranks=8"), or by their files' names.
void tell_apart(study_scenario& a, study_scenario& b, const std::string& of_a, const std::string& of_b);

/// Microseconds of the critical path by what they were spent on: "on the way", "queued for nic", "work of ranks", "waiting for credits",
/// "launch, late start, barrier". Empty without a recording.
std::map<std::string, double> time_by_cause(const study_result& of);

/// By class of elements, those that carried anything.
struct class_use {
  std::string name;
  double mean = 0, most = 0;  ///< shares of the time that an element of the class was occupied
  std::string busiest;        ///< the element that was most
};
/// Of the row that is shown.
std::vector<class_use> use_by_class(const study_result& of);

/// Rows side by side, a sentence on the row that is shown, the critical paths' times by cause and the classes' use.
/// @pre both have rows of the same sizes in the same order (keep_common_sizes())
void print_comparison(std::ostream& to, const study_result& a, const study_result& b);

/// {"troupe_compare": 1, "rows": [{bytes, a_us, b_us, a_over_b}], "critical_path_us": [{cause, a, b}], "a": study document, "b": …}.
std::string comparison_json(const study_result& a, const study_result& b);
/// A line a size: bytes, what performed each side and how long it took, and the ratio; nothing there where ranks are lost. @pre as of print_comparison()
std::string comparison_csv(const study_result& a, const study_result& b);

}  // namespace troupe
