#pragma once
// Presets that have a file of their own. hardware.hpp says what a preset is; presets.cpp lists them.

#include "topology/hardware.hpp"

namespace troupe::presets {

/// spec 2's machine: servers with a full mesh inside, and rails between cards of the same index. Layout servers x cards, 4x8 unless said.
hardware ascend_a2(const preset_request& wanted);

}  // namespace troupe::presets
