// SPDX-License-Identifier: Apache-2.0
#pragma once
// Troupe's public interface: collective communication between the ranks of one process.

#include "engine/api/buffers.hpp"
#include "engine/api/calls.hpp"
#include "engine/api/communicator.hpp"
#include "engine/api/engine.hpp"
#include "engine/api/job_id.hpp"
#include "engine/api/options.hpp"
#include "engine/api/request.hpp"
#include "memory/error.hpp"
#include "memory/types/types.hpp"
#include "protocols/call.hpp"
