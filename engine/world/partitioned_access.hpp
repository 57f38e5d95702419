// SPDX-License-Identifier: Apache-2.0
#pragma once
// The interface of partitioned operations for flows, whose collectives they are.

#include <functional>

#include "engine/api/partitioned.hpp"
#include "protocols/agreement/agreement.hpp"

namespace troupe {

struct TROUPE_INTERNAL partitioned_access {
  /// Calls back when the repetition under way has ended; null: well. As callbacks of parts. @pre started
  static void when_done(partitioned& which, std::function<void(const failure_ptr&)> callback);
  /// As cancel(), with a reason of one's own.
  static void end(partitioned& which, const failure_ptr& why);
};

}  // namespace troupe
