// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is done to a rank's data before the steps of a plan and after them, the same on every port: input is widened, scaled, packed or copied
// aside; results are divided and rounded. Where such data lie is the port's affair: in memory of the operation (operation.cpp), or in what a
// board port keeps (board_port.cpp).

#include <cstddef>
#include <span>

#include "protocols/call.hpp"
#include "protocols/plan.hpp"

namespace troupe::actors {

struct call_buffers;

// -- sizes --
/// Elements of the rank's own buffers, packed. A rank knows its own blocks, and may know others'.
std::size_t input_elements(const call& what, int ranks, rank_t rank);
std::size_t output_elements(const call& what, int ranks, rank_t rank);
/// The smaller buffer is a block of the output, else of the input. Of the root, if there is one.
bool input_is_larger(collective what);
/// Elements before the rank's own block in the larger buffer, or 0 where both have the same blocks.
std::size_t own_block_begin(const call& what, rank_t rank, std::span<const std::size_t> displacements);

// -- in place --
/// The smaller buffer is the rank's own block of the larger one, or both are one. @pre `rank` is the call's own, and of a rooted call the root
bool lies_in_place(const call& what, rank_t rank, const call_buffers& memory);
/// The root of a plan for separate buffers calls in place, which the plan was not verified for: it reads its input from a copy.
bool root_needs_copy(const plan& how, const call& what, rank_t rank, const call_buffers& memory);
/// The call reads what it writes, and its plan knows nothing of that: its input is copied aside first.
bool keeps_input_apart(const plan& how, const call& what, rank_t rank, const call_buffers& memory);
/// It may be so in some buffers.
bool may_keep_input_apart(const plan& how, const call& what, rank_t rank);

// -- before the steps --
/// Brings the rank's input to where the plan reads it: widened, scaled (pre_mul_sum), or only copied; blocks with gaps between them are packed one
/// behind the other. Does nothing to an empty input, which may be null.
void stage_input(const plan& how, const call& what, int ranks, rank_t rank, const void* input,
                 std::span<const std::size_t> displacements, void* to);

// -- after them --
/// It divides an average at the end.
inline bool divides_at_end(const plan& how, const call& what) {
  return what.reduction.kind == op_kind::avg && is_reduction(what.what) && !how.divides;
}
/// Divides an average and brings the result to the output: rounded, or copied if it lies elsewhere. Leaves alone what has no result.
void finish_output(const plan& how, const call& what, int ranks, rank_t rank, void* result, void* output);

}  // namespace troupe::actors
