// SPDX-License-Identifier: Apache-2.0
#pragma once
// How an engine becomes a part of a job of many processes: where to go, whom to meet there, and the world communicator of all their ranks.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "actors/ports/link/roster.hpp"
#include "engine/api/job_id.hpp"
#include "engine/api/join_options.hpp"
#include "engine/world/communicator_state.hpp"

namespace troupe {

/// Finds the other processes and connects the engine with them. Blocks until all have come. Throws error: bad_config (nowhere said where to join,
/// or half of it), timed_out, cancelled, mismatch (processes do not fit together), io; invalid_argument if the engine has joined already.
void join_job(engine_core& core, const join_options& options, int ranks_here);

/// The same for the job that an id names, which has one rank a process. The place and number in `options` are not looked at.
void join_job(engine_core& core, const job_id& which, int ranks, int rank, const join_options& options);

/// The same for process `process` of the job that another one grows into. `give_up` is asked now and then: true ends it with error(cancelled).
void join_grown(engine_core& core, const job_id& which, std::uint32_t process, int ranks_here,
                const join_options& options, std::function<bool()> give_up);

/// TROUPE_INTERFACE
std::string interfaces_of_environment();

/// The communicator of all ranks of the job. Of a job that another one has grown into it is the one that its ranks are ordered by (grow.cpp).
/// @pre join_job()
std::shared_ptr<communicator_state> found_job_world(engine_core& core, std::shared_ptr<actors::run_threads> run);

/// What every process of a job must have been built as, to understand the others' frames and plan as they do.
std::uint64_t build_of_links();

/// Of all ranks of the job, host by host: flat on one host, else a server for each, in the groups that the processes name. Hosts and groups are
/// numbered in the order of the processes; hosts of a group follow each other.
layout layout_of(const actors::roster& job);

/// Of the job that the engine has joined. @pre it has
layout layout_of_job(engine& joined);

/// By which all its processes plan (tuning.hpp: costs_of). @pre the same
const std::vector<double>& costs_of_job(engine& joined);

}  // namespace troupe
