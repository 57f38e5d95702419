// SPDX-License-Identifier: Apache-2.0
#include "actors/waiting/no_waiting.hpp"

namespace troupe::actors {

constinit thread_local int no_waiting::depth = 0;

}  // namespace troupe::actors
