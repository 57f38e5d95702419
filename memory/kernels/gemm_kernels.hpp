// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::detail {

/// The initial values of a product's sums.
enum class gemm_start : std::uint8_t { at_zero, at_c };

/// The inner loop of a matrix product on this processor: c = a·b, or c += a·b, for a few rows and `columns` columns of c.
///
/// Each element of c is a sum in ascending order of k, every product and every sum rounded to T: the same bits on every instruction set. Allocates nothing.
template <class T>
struct gemm_kernel {
  static constexpr std::size_t most_rows = 6;             ///< of any processor's kernel
  static constexpr std::size_t most_columns_bytes = 128;  ///< so, too

  /// a(i, p) is a[i·next_row + p·next_column]; rows of b and c lie `next_b` and `next_c` elements apart. Rows: 1 … `rows`.
  using function = void (*)(const T* a, std::size_t next_row, std::size_t next_column, const T* b, std::size_t next_b,
                            T* c, std::size_t next_c, std::size_t rows, std::size_t k);
  function set = nullptr;  ///< c = a·b: c is not read
  function add = nullptr;
  std::size_t rows = 0, columns = 0;
};

/// The best one that the processor has.
template <class T>
gemm_kernel<T> best_gemm_kernel();
template <>
gemm_kernel<float> best_gemm_kernel<float>();
template <>
gemm_kernel<double> best_gemm_kernel<double>();

}  // namespace troupe::detail
