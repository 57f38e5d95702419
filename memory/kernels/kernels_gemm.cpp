// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "memory/kernels/kernels_gemm.cpp"
#include "memory/kernels/kernels_targets.hpp"

#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once for every instruction set.
#include "memory/kernels/kernels_dispatch.hpp"
#include <hwy/highway.h>

#include "memory/kernels/gemm_kernels.hpp"

HWY_BEFORE_NAMESPACE();
namespace troupe::detail::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

/// Loops of fixed length, which the compiler makes vectors of.
template <class T>
struct gemm_block {
  static constexpr std::size_t rows = 4, columns = 8;

  template <std::size_t Rows, gemm_start Start>
  static void add(const T* a, std::size_t next_row, std::size_t next_column, const T* b, std::size_t next_b, T* c,
                  std::size_t next_c, std::size_t k) {
    T sums[Rows][columns];
    for (std::size_t i = 0; i < Rows; ++i)
      for (std::size_t j = 0; j < columns; ++j) sums[i][j] = Start == gemm_start::at_zero ? T(0) : c[i * next_c + j];
    for (std::size_t p = 0; p < k; ++p)
      for (std::size_t i = 0; i < Rows; ++i) {
        const T factor = a[i * next_row + p * next_column];
        for (std::size_t j = 0; j < columns; ++j) sums[i][j] += factor * b[p * next_b + j];
      }
    for (std::size_t i = 0; i < Rows; ++i)
      for (std::size_t j = 0; j < columns; ++j) c[i * next_c + j] = sums[i][j];
  }
};

#else

namespace hn = hwy::HWY_NAMESPACE;

/// Twelve sums in registers, enough to hide an addition's latency, and the operands beside them in the sixteen that AVX2 has.
template <class T>
struct gemm_block {
  using tag = hn::ScalableTag<T>;
  static constexpr std::size_t lanes = hn::MaxLanes(tag{});
  static constexpr std::size_t rows = 6, columns = 2 * lanes;

  template <std::size_t Rows, gemm_start Start>
  static HWY_INLINE void add(const T* a, std::size_t next_row, std::size_t next_column, const T* b, std::size_t next_b,
                             T* c, std::size_t next_c, std::size_t k) {
    const tag d;
    hn::Vec<tag> left[Rows], right[Rows];
    for (std::size_t i = 0; i < Rows; ++i) {
      left[i] = Start == gemm_start::at_zero ? hn::Zero(d) : hn::LoadU(d, c + i * next_c);
      right[i] = Start == gemm_start::at_zero ? hn::Zero(d) : hn::LoadU(d, c + i * next_c + lanes);
    }
    for (std::size_t p = 0; p < k; ++p, a += next_column, b += next_b) {
      const auto b_left = hn::LoadU(d, b), b_right = hn::LoadU(d, b + lanes);
      for (std::size_t i = 0; i < Rows; ++i) {
        const auto factor = hn::Set(d, a[i * next_row]);
        left[i] = hn::Add(left[i], hn::Mul(factor, b_left));
        right[i] = hn::Add(right[i], hn::Mul(factor, b_right));
      }
    }
    for (std::size_t i = 0; i < Rows; ++i) {
      hn::StoreU(left[i], d, c + i * next_c);
      hn::StoreU(right[i], d, c + i * next_c + lanes);
    }
  }
};

#endif

template <class T, gemm_start Start>
void add_product(const T* a, std::size_t next_row, std::size_t next_column, const T* b, std::size_t next_b, T* c,
                 std::size_t next_c, std::size_t rows, std::size_t k) {
  using block = gemm_block<T>;
  switch (rows) {
    case 1: return block::template add<1, Start>(a, next_row, next_column, b, next_b, c, next_c, k);
    case 2: return block::template add<2, Start>(a, next_row, next_column, b, next_b, c, next_c, k);
    case 3: return block::template add<3, Start>(a, next_row, next_column, b, next_b, c, next_c, k);
    case 4: return block::template add<4, Start>(a, next_row, next_column, b, next_b, c, next_c, k);
    default: break;
  }
  if constexpr (block::rows > 4) {
    if (rows == 5) return block::template add<5, Start>(a, next_row, next_column, b, next_b, c, next_c, k);
    block::template add<block::rows, Start>(a, next_row, next_column, b, next_b, c, next_c, k);
  }
}

template <class T>
gemm_kernel<T> kernel_of() {
  static_assert(gemm_block<T>::rows <= gemm_kernel<T>::most_rows &&
                gemm_block<T>::columns * sizeof(T) <= gemm_kernel<T>::most_columns_bytes);
  return {add_product<T, gemm_start::at_zero>, add_product<T, gemm_start::at_c>, gemm_block<T>::rows,
          gemm_block<T>::columns};
}

gemm_kernel<float> gemm_f32() { return kernel_of<float>(); }
gemm_kernel<double> gemm_f64() { return kernel_of<double>(); }

}  // namespace troupe::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace troupe::detail {

TROUPE_EXPORT(gemm_f32);
TROUPE_EXPORT(gemm_f64);

template <>
gemm_kernel<float> best_gemm_kernel<float>() {
  return TROUPE_DISPATCH(gemm_f32)();
}
template <>
gemm_kernel<double> best_gemm_kernel<double>() {
  return TROUPE_DISPATCH(gemm_f64)();
}

}  // namespace troupe::detail
#endif
