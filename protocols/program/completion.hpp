// SPDX-License-Identifier: Apache-2.0
#pragma once
// Averages that are divided where their sum is completed, instead of in a pass of their own.
//
// The verifier finds the steps that bring the contributions of all ranks together (verdict::completing). What such a step makes is never
// combined again, only moved; and an output with all contributions comes from exactly one of them. So dividing in these steps divides every
// output once.

#include "protocols/call.hpp"
#include "protocols/program/program.hpp"
#include "protocols/verify/verifier.hpp"

namespace troupe {

/// The call is an average whose outputs all have the contributions of all ranks (a scan's have not), and its steps can divide them.
/// @param v of the score that is performed
bool divides_in_steps(const call& what, int ranks, const verdict& v);

/// Sets instruction::completes. @param marks of the rank whose program it is
void mark_completing(program& code, const step_marks& marks);

}  // namespace troupe
