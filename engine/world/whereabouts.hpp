// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where a process finds its job: what the options of the join, the environment, an id or an invitation say.

#include <cstdint>
#include <string>

#include "actors/ports/link/job_key.hpp"
#include "engine/api/job_id.hpp"
#include "engine/api/join_options.hpp"
#include "engine/world/job_id.hpp"

namespace troupe {

struct whereabouts {
  std::string rendezvous;
  std::uint32_t process = 0, processes = 0;
  actors::job_key key;
  bool served = false;          ///< by somebody, for sure
  bool one_host = false;        ///< all processes are on it
  std::uint32_t first_new = 0;  ///< of a job that another one grows into; else 0
};

/// Takes from the environment what the options leave open. Throws error(bad_config): neither names the job, or only half of it.
whereabouts find_job(const join_options& options);
/// Where an id puts that rank, which is a process of its own. Throws error(invalid_argument): no such rank, no id.
whereabouts find_job(const job_id& which, int ranks, int rank);
/// Process `process` of a job that another one grows into.
whereabouts find_grown(const meeting& m, std::uint32_t process);

}  // namespace troupe
