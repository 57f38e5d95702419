// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "memory/kernels/kernels_float.cpp"
#include "memory/kernels/kernels_targets.hpp"

#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once for every instruction set.
#include "memory/kernels/kernels_dispatch.hpp"
#include "memory/kernels/kernels_vector_loops.hpp"

HWY_BEFORE_NAMESPACE();
namespace troupe::detail::HWY_NAMESPACE {

kernels choose_float(datatype type, op_kind kind) {
  switch (type) {
    case datatype::f32: return kernels_for<loops, float>(kind);
    case datatype::f64: return kernels_for<loops, double>(kind);
    default: return {};
  }
}

}  // namespace troupe::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace troupe::detail {

TROUPE_EXPORT(choose_float);

kernels float_kernels(datatype type, op_kind kind) { return TROUPE_DISPATCH(choose_float)(type, kind); }

}  // namespace troupe::detail
#endif
