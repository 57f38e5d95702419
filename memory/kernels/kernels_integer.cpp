// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "memory/kernels/kernels_integer.cpp"
#include "memory/kernels/kernels_targets.hpp"

#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once for every instruction set.
#include "memory/kernels/kernels_dispatch.hpp"
#include "memory/kernels/kernels_vector_loops.hpp"

HWY_BEFORE_NAMESPACE();
namespace troupe::detail::HWY_NAMESPACE {

kernels choose_integer(datatype type, op_kind kind) {
  switch (type) {
    case datatype::i8: return kernels_for<loops, std::int8_t>(kind);
    case datatype::u8: return kernels_for<loops, std::uint8_t>(kind);
    case datatype::i32: return kernels_for<loops, std::int32_t>(kind);
    case datatype::u32: return kernels_for<loops, std::uint32_t>(kind);
    case datatype::i64: return kernels_for<loops, std::int64_t>(kind);
    case datatype::u64: return kernels_for<loops, std::uint64_t>(kind);
    default: return {};
  }
}

}  // namespace troupe::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace troupe::detail {

TROUPE_EXPORT(choose_integer);

kernels integer_kernels(datatype type, op_kind kind) { return TROUPE_DISPATCH(choose_integer)(type, kind); }

}  // namespace troupe::detail
#endif
