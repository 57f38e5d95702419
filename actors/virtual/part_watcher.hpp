// SPDX-License-Identifier: Apache-2.0
#pragma once
// The occupation of elements while several collectives are under way, divided by owner: a part of the traffic belongs to a job, or
// to a group of a replay.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "actors/virtual/traffic.hpp"
#include "actors/virtual/virtual_jobs.hpp"

namespace troupe::actors {

/// The recording, and the ranks of every part, outlive it.
class part_watcher final : public element_watcher {
public:
  explicit part_watcher(element_recording& into) : into_(into) {}
  /// @param job −1: of none @param ranks of the machine, by the part's
  void add(std::uint32_t part, std::int32_t job, const std::vector<int>& ranks) {
    if (part >= parts_.size()) parts_.resize(part + 1);
    parts_[part] = {job, &ranks};
  }

  void occupied(element_index element, std::optional<std::uint32_t> part, rank_t from, rank_t to, std::int64_t begin,
                std::int64_t end, std::uint64_t bytes) override {
    if (!into_.of[static_cast<std::size_t>(element)]) return;
    if (into_.stretches.size() >= into_.most) {
      into_.complete = false;
      return;
    }
    element_recording::stretch s{element, -1, -1, -1, begin, end, static_cast<std::int64_t>(bytes)};
    if (part) {
      const auto& [job, ranks] = parts_[*part];
      // An end of a way may be memory that is no rank's.
      const auto of_machine = [&ranks = *ranks](rank_t r) {
        return r >= 0 && static_cast<std::size_t>(r) < ranks.size() ? ranks[static_cast<std::size_t>(r)] : -1;
      };
      s.job = job, s.from = of_machine(from), s.to = of_machine(to);
    }
    into_.stretches.push_back(s);
  }

private:
  element_recording& into_;
  std::vector<std::pair<std::int32_t, const std::vector<int>*>> parts_;
};

}  // namespace troupe::actors
