// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "memory/kernels/kernels_f16.cpp"
#include "memory/kernels/kernels_targets.hpp"

#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once for every instruction set.
#include "memory/kernels/kernels_dispatch.hpp"
#include "memory/kernels/kernels_vector_loops.hpp"

HWY_BEFORE_NAMESPACE();
namespace troupe::detail::HWY_NAMESPACE {

kernels choose_f16(datatype type, op_kind kind) {
  switch (type) {
    case datatype::f16: return kernels_for<loops, f16>(kind);
    case datatype::bf16: return kernels_for<loops, bf16>(kind);
    default: return {};
  }
}

}  // namespace troupe::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace troupe::detail {

TROUPE_EXPORT(choose_f16);

kernels f16_kernels(datatype type, op_kind kind) { return TROUPE_DISPATCH(choose_f16)(type, kind); }

}  // namespace troupe::detail
#endif
