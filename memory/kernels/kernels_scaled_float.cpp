// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "memory/kernels/kernels_scaled_float.cpp"
#include "memory/kernels/kernels_targets.hpp"

#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once for every instruction set.
#include "memory/kernels/kernels_adjustments.hpp"
#include "memory/kernels/kernels_dispatch.hpp"

HWY_BEFORE_NAMESPACE();
namespace troupe::detail::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
kernels choose_scaled_float(datatype, adjusting) { return {}; }
#else
kernels choose_scaled_float(datatype type, adjusting how) {
  switch (type) {
    case datatype::f16: return adjusted_kernels<f16>(how);
    case datatype::bf16: return adjusted_kernels<bf16>(how);
    case datatype::f32: return adjusted_kernels<float>(how);
    case datatype::f64: return adjusted_kernels<double>(how);
    case datatype::f8e4m3: return adjusted_kernels<f8e4m3>(how);
    case datatype::f8e5m2: return adjusted_kernels<f8e5m2>(how);
    default: return {};
  }
}
#endif

}  // namespace troupe::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace troupe::detail {

TROUPE_EXPORT(choose_scaled_float);

kernels scaled_float_kernels(datatype type, adjusting how) { return TROUPE_DISPATCH(choose_scaled_float)(type, how); }

}  // namespace troupe::detail
#endif
