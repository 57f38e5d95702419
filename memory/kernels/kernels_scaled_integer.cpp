// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "memory/kernels/kernels_scaled_integer.cpp"
#include "memory/kernels/kernels_targets.hpp"

#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once for every instruction set.
#include "memory/kernels/kernels_adjustments.hpp"
#include "memory/kernels/kernels_dispatch.hpp"

HWY_BEFORE_NAMESPACE();
namespace troupe::detail::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
kernels choose_scaled_integer(datatype, adjusting) { return {}; }
#else
kernels choose_scaled_integer(datatype type, adjusting how) {
  switch (type) {
    case datatype::i8: return adjusted_kernels<std::int8_t>(how);
    case datatype::u8: return adjusted_kernels<std::uint8_t>(how);
    case datatype::i32: return adjusted_kernels<std::int32_t>(how);
    case datatype::u32: return adjusted_kernels<std::uint32_t>(how);
    case datatype::i64: return adjusted_kernels<std::int64_t>(how);
    case datatype::u64: return adjusted_kernels<std::uint64_t>(how);
    default: return {};
  }
}
#endif

}  // namespace troupe::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace troupe::detail {

TROUPE_EXPORT(choose_scaled_integer);

kernels scaled_integer_kernels(datatype type, adjusting how) {
  return TROUPE_DISPATCH(choose_scaled_integer)(type, how);
}

}  // namespace troupe::detail
#endif
