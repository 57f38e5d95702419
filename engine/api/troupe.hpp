// SPDX-License-Identifier: Apache-2.0
#pragma once
// Troupe's public interface: collective communication between ranks, of one process or many.

#include "engine/api/buffers.hpp"
#include "engine/api/calls.hpp"
#include "engine/api/card.hpp"
#include "engine/api/communicator.hpp"
#include "engine/api/engine.hpp"
#include "engine/api/job_id.hpp"
#include "engine/api/ll_session.hpp"
#include "engine/api/options.hpp"
#include "engine/api/partitioned.hpp"
#include "engine/api/request.hpp"
#include "engine/experts/expert_exchange.hpp"
#include "engine/experts/expert_flow.hpp"
#include "engine/flow/flow.hpp"
#include "engine/flow/timeline.hpp"
#include "memory/error.hpp"
#include "memory/types/types.hpp"
#include "protocols/call.hpp"
