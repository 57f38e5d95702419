// SPDX-License-Identifier: Apache-2.0
#pragma once
// Presets that have a file of their own. hardware.hpp says what a preset is; presets.cpp lists them.

#include "topology/machine/hardware.hpp"

namespace troupe::presets {

hardware ascend_a2(const preset_request& wanted);
hardware sunway_card(const preset_request& wanted);
hardware gh200_16(const preset_request& wanted);
hardware dgx_h100(const preset_request& wanted);
hardware tianhe_32(const preset_request& wanted);
hardware fat_tree(const preset_request& wanted);

}  // namespace troupe::presets
