// SPDX-License-Identifier: Apache-2.0
#include "engine/flow/operators/gemm.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "memory/kernels/gemm_kernels.hpp"

namespace troupe {

namespace {

constexpr std::size_t cache_line = 64;
constexpr std::size_t depth = 256;  ///< rows of b that are used while they are in a cache
/// Of c, from which on it pays to lay columns of b side by side first: rows of b may all fall into the same places of the cache.
constexpr std::size_t many_rows = 12;

template <class T>
class product {
public:
  /// @param start of the sums
  product(const tensor<const T>& a, const tensor<const T>& b, const tensor<T>& c, detail::gemm_start start)
      : a_(a), b_(b), c_(c), start_(start) {}

  void make() {
    each_panel([&](std::size_t first, std::size_t count, std::size_t column, std::size_t columns) {
      const bool as_it_lies = columns == kernel_.columns && b_.strides()[1] == 1 && c_.extent(0) < many_rows;
      if (!as_it_lies) pack(first, count, column, columns, packed_);
      make_panel(first, count, column, columns, as_it_lies ? &b_(first, column) : packed_,
                 as_it_lies ? b_.strides()[0] : kernel_.columns);
    });
  }
  /// As make(), of a `b` of which only the shape is looked at: its panels lie one behind the other.
  void make_of_laid_out(const T* panels) {
    each_panel([&](std::size_t first, std::size_t count, std::size_t column, std::size_t columns) {
      make_panel(first, count, column, columns, panels, kernel_.columns);
      panels += count * kernel_.columns;
    });
  }
  void lay_out(T* panels) const {
    each_panel_of_b([&](std::size_t first, std::size_t count, std::size_t column, std::size_t columns) {
      pack(first, count, column, columns, panels);
      panels += count * kernel_.columns;
    });
  }
  std::size_t laid_out() const {
    return b_.extent(0) * ((b_.extent(1) + kernel_.columns - 1) / kernel_.columns) * kernel_.columns;
  }

private:
  template <class Panel>
  void each_panel(Panel&& panel) const {
    if (b_.extent(0) == 0 && start_ == detail::gemm_start::at_zero) clear();  // sums of nothing
    each_panel_of_b(panel);
  }
  template <class Panel>
  void each_panel_of_b(Panel&& panel) const {
    const std::size_t k = b_.extent(0), n = b_.extent(1);
    for (std::size_t first = 0; first < k; first += depth)
      for (std::size_t column = 0; column < n; column += kernel_.columns)
        panel(first, std::min(depth, k - first), column, std::min(kernel_.columns, n - column));
  }

  static constexpr std::size_t widest = detail::gemm_kernel<T>::most_columns_bytes / sizeof(T);

  void clear() const {
    for (std::size_t i = 0; i < c_.extent(0); ++i)
      for (std::size_t j = 0; j < c_.extent(1); ++j) c_(i, j) = 0;
  }

  /// Some columns of c, of rows of b that stay in the cache meanwhile.
  void make_panel(std::size_t first, std::size_t count, std::size_t column, std::size_t columns, const T* rows,
                  std::size_t next) {
    const std::size_t m = c_.extent(0);
    for (std::size_t i = 0; i < m; i += kernel_.rows)
      make_block(i, std::min(kernel_.rows, m - i), first, count, column, columns, rows, next);
  }

  /// Columns that are missing on the right are 0, and so are their sums, which nobody takes.
  void pack(std::size_t first, std::size_t count, std::size_t column, std::size_t columns, T* to) const {
    const std::size_t next = b_.strides()[0], step = b_.strides()[1];
    const T* from = &b_(first, column);
    for (std::size_t p = 0; p < count; ++p, from += next, to += kernel_.columns) {
      if (step == 1) std::copy_n(from, columns, to);
      else
        for (std::size_t j = 0; j < columns; ++j) to[j] = from[j * step];
      std::fill(to + columns, to + kernel_.columns, T(0));
    }
  }

  void make_block(std::size_t i, std::size_t high, std::size_t first, std::size_t count, std::size_t column,
                  std::size_t columns, const T* rows, std::size_t next) {
    const bool sets = first == 0 && start_ == detail::gemm_start::at_zero;
    const auto kernel = sets ? kernel_.set : kernel_.add;
    const T* const a = &a_(i, first);
    const std::size_t next_row = a_.strides()[0], next_column = a_.strides()[1];
    if (columns == kernel_.columns && c_.strides()[1] == 1)
      return kernel(a, next_row, next_column, rows, next, &c_(i, column), c_.strides()[0], high, count);
    T sums[detail::gemm_kernel<T>::most_rows * widest] = {};
    if (!sets)
      for (std::size_t r = 0; r < high; ++r)
        for (std::size_t j = 0; j < columns; ++j) sums[r * kernel_.columns + j] = c_(i + r, column + j);
    kernel(a, next_row, next_column, rows, next, sums, kernel_.columns, high, count);
    for (std::size_t r = 0; r < high; ++r)
      for (std::size_t j = 0; j < columns; ++j) c_(i + r, column + j) = sums[r * kernel_.columns + j];
  }

  const tensor<const T> a_, b_;
  const tensor<T> c_;
  const detail::gemm_start start_;
  const detail::gemm_kernel<T> kernel_ = detail::best_gemm_kernel<T>();
  alignas(64) T packed_[depth * widest];  // not set: what is read was packed
};

template <class T>
void multiply_any(const tensor<const T>& a, const tensor<const T>& b, const tensor<T>& c, bool adds) {
  product<T>{a, b, c, adds ? detail::gemm_start::at_c : detail::gemm_start::at_zero}.make();
}

template <class T>
std::size_t to_cache_line(const std::vector<T>& memory) {
  const std::size_t over = reinterpret_cast<std::uintptr_t>(memory.data()) % cache_line;
  return over == 0 ? 0 : (cache_line - over) / sizeof(T);
}

}  // namespace

template <class T>
void factor<T>::lay_out(const tensor<const T>& from) {
  const product<T> what{{}, from, {}, detail::gemm_start::at_zero};
  memory_.resize(what.laid_out() + cache_line / sizeof(T));
  begin_ = to_cache_line(memory_);
  what.lay_out(memory_.data() + begin_);
  shape_ = from.shape();
}

template <class T>
void factor<T>::multiply(const tensor<const T>& a, const tensor<T>& c) {
  product<T>{a, tensor<const T>{nullptr, shape_}, c, detail::gemm_start::at_zero}.make_of_laid_out(memory_.data() +
                                                                                                   begin_);
}

template class factor<float>;
template class factor<double>;

void multiply(tensor<const float> a, tensor<const float> b, tensor<float> c, bool adds) { multiply_any(a, b, c, adds); }
void multiply(tensor<const double> a, tensor<const double> b, tensor<double> c, bool adds) {
  multiply_any(a, b, c, adds);
}

}  // namespace troupe
