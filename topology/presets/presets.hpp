#pragma once
// Presets that have a file of their own. hardware.hpp says what a preset is; presets.cpp lists them.

#include "topology/hardware.hpp"

namespace troupe::presets {}  // namespace troupe::presets
