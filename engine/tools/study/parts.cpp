// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/study/parts.hpp"

#include <utility>

namespace troupe {

layout arrangement_of(const hardware& on, const std::vector<int>& ranks) {
  return on.arrangement.size() == on.ranks ? on.arrangement.subset(ranks)
                                           : layout::flat(static_cast<int>(ranks.size()));
}

study_row part_studies::plan(const study_scenario& one, const part& where) {
  const study_part on{&machine_, where.ranks, where.places, where.by_nics};
  if (!scores_) scores_ = scores_of(whole_);
  study_run_options how;
  how.part = &on;
  how.scores = scores_;
  how.progress = progress_;
  how.go_on = go_on_;
  study_result made = where.wished ? run_as_wished(one, how) : run_study(one, how);
  for (const std::string& remark : made.remarks) say_once(remarks_, where.whose_remarks + remark);
  return std::move(made.rows.at(0));
}

}  // namespace troupe
