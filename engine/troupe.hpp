#pragma once
// Troupe's public interface: collective communication between the ranks of one process.

#include "engine/calls.hpp"
#include "engine/communicator.hpp"
#include "engine/engine.hpp"
#include "engine/options.hpp"
#include "engine/request.hpp"
#include "memory/error.hpp"
#include "memory/types.hpp"
#include "protocols/call.hpp"
