// SPDX-License-Identifier: Apache-2.0
#pragma once
// What an id (engine/api/job_id.hpp) says.

#include <string>

#include "engine/api/job_id.hpp"

namespace troupe {

struct meeting {
  std::string rendezvous;  ///< addresses, the best first, separated by commas
  std::string key;         ///< hexadecimal; never to be shown
  bool one_host = false;   ///< nobody can come from another one
};

/// Throws error: invalid_argument (no id), mismatch (of another build).
meeting meeting_of(const job_id& which);

}  // namespace troupe
