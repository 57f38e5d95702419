// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "memory/kernels/kernels_f8.cpp"
#include "memory/kernels/kernels_targets.hpp"

#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once for every instruction set.
#include "memory/kernels/kernels_dispatch.hpp"
#include "memory/kernels/kernels_vector_loops.hpp"

HWY_BEFORE_NAMESPACE();
namespace troupe::detail::HWY_NAMESPACE {

kernels choose_f8(datatype type, op_kind kind) {
  switch (type) {
    case datatype::f8e4m3: return kernels_for<loops, f8e4m3>(kind);
    case datatype::f8e5m2: return kernels_for<loops, f8e5m2>(kind);
    default: return {};
  }
}

}  // namespace troupe::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace troupe::detail {

TROUPE_EXPORT(choose_f8);

kernels f8_kernels(datatype type, op_kind kind) { return TROUPE_DISPATCH(choose_f8)(type, kind); }

}  // namespace troupe::detail
#endif
