// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a report says only where the scenario asks for it: energy, where a class of elements has some; and how a collective ended on each
// rank, where one was lost.

#include <cstdint>
#include <ostream>
#include <span>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "engine/tools/study/study.hpp"

namespace troupe {

/// Joules of one element in a run.
struct element_energy {
  double idle = 0;      ///< idle_power, from the start to the end
  double transfer = 0;  ///< energy, of every byte on the wire
  double joules() const { return idle + transfer; }
};

bool has_energy(const hardware& on) noexcept;
/// By element. Of a half-duplex pair the element that carries both directions has all.
std::vector<element_energy> energy_of(const hardware& on, std::span<const element_use> use, std::int64_t end_ps);

/// A line a class, and the sum. Nothing, if no class has energy.
void print_energy(std::ostream& to, const hardware& on, std::span<const element_use> use, std::int64_t end_ps);
/// {joules, idle_joules, transfer_joules, elements [{element, idle_joules, transfer_joules}]}; null, if no class has energy.
nlohmann::ordered_json energy_json(const hardware& on, std::span<const element_use> use, std::int64_t end_ps);

/// The ranks that were lost, and how and when the collective ended on the others. Nothing, if none was.
void print_ends(std::ostream& to, const hardware& on, const study_row& row);
/// [{rank, end_ps, lost, error, why}]; null, if nobody was lost.
nlohmann::ordered_json ends_json(const study_row& row);

}  // namespace troupe
