// SPDX-License-Identifier: Apache-2.0
#include "engine/flow/operators/gemm.hpp"

#include <algorithm>
#include <cstddef>

#include "memory/kernels/gemm_kernels.hpp"

namespace troupe {

namespace {

constexpr std::size_t depth = 256;  ///< rows of b that are used while they are in a cache
/// Of c, from which on it pays to lay columns of b side by side first: rows of b may all fall into the same places of the cache.
constexpr std::size_t many_rows = 12;

template <class T>
class product {
public:
  product(const tensor<const T>& a, const tensor<const T>& b, const tensor<T>& c) : a_(a), b_(b), c_(c) {}

  void add() {
    const std::size_t k = b_.extent(0), n = b_.extent(1);
    for (std::size_t first = 0; first < k; first += depth)
      for (std::size_t column = 0; column < n; column += kernel_.columns)
        add_panel(first, std::min(depth, k - first), column, std::min(kernel_.columns, n - column));
  }

private:
  static constexpr std::size_t widest = detail::gemm_kernel<T>::most_columns_bytes / sizeof(T);

  /// Some columns of c += rows of b that stay in the cache meanwhile.
  void add_panel(std::size_t first, std::size_t count, std::size_t column, std::size_t columns) {
    const T* rows = &b_(first, column);
    std::size_t next = b_.strides()[0];
    if (columns < kernel_.columns || b_.strides()[1] != 1 || c_.extent(0) >= many_rows) {
      pack(first, count, column, columns);
      rows = packed_;
      next = kernel_.columns;
    }
    const std::size_t m = c_.extent(0);
    for (std::size_t i = 0; i < m; i += kernel_.rows)
      add_block(i, std::min(kernel_.rows, m - i), first, count, column, columns, rows, next);
  }

  /// What is missing on the right is 0, and so are its sums, which nobody takes.
  void pack(std::size_t first, std::size_t count, std::size_t column, std::size_t columns) {
    const std::size_t next = b_.strides()[0], step = b_.strides()[1];
    const T* from = &b_(first, column);
    T* to = packed_;
    for (std::size_t p = 0; p < count; ++p, from += next, to += kernel_.columns) {
      if (step == 1) std::copy_n(from, columns, to);
      else
        for (std::size_t j = 0; j < columns; ++j) to[j] = from[j * step];
      std::fill(to + columns, to + kernel_.columns, T(0));
    }
  }

  void add_block(std::size_t i, std::size_t high, std::size_t first, std::size_t count, std::size_t column,
                 std::size_t columns, const T* rows, std::size_t next) {
    const T* const a = &a_(i, first);
    const std::size_t next_row = a_.strides()[0], next_column = a_.strides()[1];
    if (columns == kernel_.columns && c_.strides()[1] == 1)
      return kernel_.add(a, next_row, next_column, rows, next, &c_(i, column), c_.strides()[0], high, count);
    T sums[detail::gemm_kernel<T>::most_rows * widest] = {};
    for (std::size_t r = 0; r < high; ++r)
      for (std::size_t j = 0; j < columns; ++j) sums[r * kernel_.columns + j] = c_(i + r, column + j);
    kernel_.add(a, next_row, next_column, rows, next, sums, kernel_.columns, high, count);
    for (std::size_t r = 0; r < high; ++r)
      for (std::size_t j = 0; j < columns; ++j) c_(i + r, column + j) = sums[r * kernel_.columns + j];
  }

  const tensor<const T>&a_, &b_;
  const tensor<T>& c_;
  const detail::gemm_kernel<T> kernel_ = detail::best_gemm_kernel<T>();
  alignas(64) T packed_[depth * widest];  // not set: what is read was packed
};

template <class T>
void multiply_any(const tensor<const T>& a, const tensor<const T>& b, const tensor<T>& c, bool adds) {
  if (!adds)
    for (std::size_t i = 0; i < c.extent(0); ++i) {
      T* const row = &c(i, 0);
      const std::size_t n = c.extent(1), step = c.strides()[1];
      for (std::size_t j = 0; j < n; ++j) row[j * step] = 0;
    }
  product<T>{a, b, c}.add();
}

}  // namespace

void multiply(tensor<const float> a, tensor<const float> b, tensor<float> c, bool adds) { multiply_any(a, b, c, adds); }
void multiply(tensor<const double> a, tensor<const double> b, tensor<double> c, bool adds) {
  multiply_any(a, b, c, adds);
}

}  // namespace troupe
