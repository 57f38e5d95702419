// SPDX-License-Identifier: Apache-2.0
// Private to what is compiled once for every instruction set (include it after hwy/foreach_target.h): which of these this processor has, and
// a function's table by them. Highway's headers alone are used: its library has the same for all processors, but measures its timer in every
// program that loads it, some 3 ms.
#pragma once

#include "memory/kernels/kernels_targets.hpp"

#include <hwy/highway.h>

#include <cstdint>

namespace troupe::detail {

/// Bits as in HWY_TARGETS: those compiled in that this processor and its system can perform. A lower bit is a better one.
std::int64_t usable_instruction_sets();

/// What TROUPE_DISPATCH looks at: the best of those.
const hwy::ChosenTarget& chosen_instruction_set();

/// For tests: the best of these from now on. Not while another thread dispatches.
void choose_instruction_set(std::int64_t among);

}  // namespace troupe::detail

// TROUPE_EXPORT(f), in the namespace around HWY_NAMESPACE, follows the definitions of f; then TROUPE_DISPATCH(f) is the best one. The order is
// Highway's, whose first entry stands for "nothing chosen", which does not happen here.
#define TROUPE_EXPORT(function)                                                                                        \
  constexpr decltype(&HWY_STATIC_DISPATCH(function)) function##_by_instruction_set[] = {                               \
      nullptr, HWY_CHOOSE_TARGET_LIST(function), HWY_CHOOSE_FALLBACK(function)}
#define TROUPE_DISPATCH(function) (*function##_by_instruction_set[troupe::detail::chosen_instruction_set().GetIndex()])
