// SPDX-License-Identifier: Apache-2.0
#pragma once
// In which order a lane performs its steps on the slices of a message. One slice after the other, it goes through all its steps with a slice
// before it begins the next one: so it pays for every message's latency once a slice. Several slices a step, it performs a step on each of a
// group of slices before it goes on to the next step: while one slice is under way to the next rank, the lane sends those behind it.

#include <algorithm>
#include <compare>
#include <cstddef>

namespace troupe {

struct slice_order {
  int slices = 1;
  int slices_per_step = 1;  ///< the last group may be smaller
  bool operator==(const slice_order&) const = default;
  auto operator<=>(const slice_order&) const = default;

  struct position {
    std::size_t step = 0;
    int slice = 0;
  };

  int begin_of_group(int slice) const { return slice / slices_per_step * slices_per_step; }
  int end_of_group(int slice) const { return std::min(slices, begin_of_group(slice) + slices_per_step); }

  /// Of a lane of `steps` steps: how many are performed before this one.
  std::size_t index_of(std::size_t steps, position at) const {
    const int begin = begin_of_group(at.slice), size = end_of_group(at.slice) - begin;
    return static_cast<std::size_t>(begin) * steps + at.step * static_cast<std::size_t>(size) +
           static_cast<std::size_t>(at.slice - begin);
  }

  /// The inverse. @pre index < slices · steps
  position at(std::size_t steps, std::size_t index) const {
    const std::size_t of_group = static_cast<std::size_t>(slices_per_step) * steps;
    const int begin = static_cast<int>(index / of_group) * slices_per_step;
    const auto size = static_cast<std::size_t>(end_of_group(begin) - begin);
    const std::size_t within = index % of_group;
    return {within / size, begin + static_cast<int>(within % size)};
  }

  /// The position after `at`; step `steps` at the end. @pre at.step < steps
  position next(std::size_t steps, position at) const {
    const int end = end_of_group(at.slice);
    if (at.slice + 1 < end) return {at.step, at.slice + 1};
    if (at.step + 1 < steps) return {at.step + 1, begin_of_group(at.slice)};
    return end < slices ? position{0, end} : position{steps, at.slice};
  }

  /// So many slices, in groups of the same size, show all that there can be: two full groups and the last one. One by one: the first, one between,
  /// and the last.
  slice_order shortened() const {
    const int last = (slices - 1) % slices_per_step + 1;
    return {std::min(slices, 2 * slices_per_step + last), slices_per_step};
  }
};

}  // namespace troupe
