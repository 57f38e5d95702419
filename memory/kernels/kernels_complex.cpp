// SPDX-License-Identifier: Apache-2.0
// Complex numbers: sums are those of twice as many reals; products have vectors of their own.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "memory/kernels/kernels_complex.cpp"
#include "memory/kernels/kernels_targets.hpp"

#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once for every instruction set.
#include "memory/kernels/kernels_dispatch.hpp"
#include "memory/kernels/kernels_vector_loops.hpp"

HWY_BEFORE_NAMESPACE();
namespace troupe::detail::HWY_NAMESPACE {

template <class Real>
void add_parts(const void* left, const void* right, void* out, std::size_t count) {
  constexpr reduce_kernel add_reals = loops::of<add, Real>().pair;
  add_reals(left, right, out, 2 * count);
}

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

template <class Real>
constexpr kernels products() {
  return plain_loops::of<multiply_complex, std::complex<Real>>();
}

#else

template <class Real>
void fold_products(std::span<const void* const> in, std::size_t offset, void* out, std::size_t count,
                   const adjustment&) {
  const fold_of<multiply_complex, Real> fold{};
  if (!enough_for(fold, 2 * count)) return fold_elements<multiply_complex, std::complex<Real>>(in, offset, out, count);
  if (in.size() == 2) fold.template run<2>(in, offset, static_cast<std::byte*>(out), 2 * count);
  else fold.template run<0>(in, offset, static_cast<std::byte*>(out), 2 * count);
}

template <class Real>
void reduce_products(const void* left, const void* right, void* out, std::size_t count) {
  const void* const in[] = {left, right};
  fold_products<Real>({in, 2}, 0, out, count, {});
}

/// Vectors of one number only would tear it.
template <class Real>
constexpr kernels products() {
  static_assert(fold_of<multiply_complex, Real>::lanes % 2 == 0 && fold_of<multiply_complex, Real>::bytes >= 16);
  return {&reduce_products<Real>, &fold_products<Real>, &stream_folds<multiply_complex, Real>};
}

#endif

template <class Real>
kernels of_parts(op_kind kind) {
  switch (kind) {
    case op_kind::sum:
    case op_kind::avg:
    case op_kind::pre_mul_sum: return {&add_parts<Real>, nullptr, nullptr};
    case op_kind::prod: return products<Real>();
    default: return {};
  }
}

kernels choose_complex(datatype type, op_kind kind) {
  switch (type) {
    case datatype::c64: return of_parts<float>(kind);
    case datatype::c128: return of_parts<double>(kind);
    default: return {};
  }
}

}  // namespace troupe::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace troupe::detail {

TROUPE_EXPORT(choose_complex);

kernels complex_kernels(datatype type, op_kind kind) { return TROUPE_DISPATCH(choose_complex)(type, kind); }

}  // namespace troupe::detail
#endif
