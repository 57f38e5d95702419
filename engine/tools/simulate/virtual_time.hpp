// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

namespace troupe::simulate {

using nanoseconds_t = std::int64_t;  ///< of virtual time since the run began
inline constexpr nanoseconds_t us = 1000, ms = 1000 * us;

}  // namespace troupe::simulate
