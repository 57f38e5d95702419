// SPDX-License-Identifier: Apache-2.0
#include "engine/flow/operators/gemm.hpp"

#include <vector>

namespace troupe {

namespace {

constexpr std::size_t depth = 256;  ///< rows of b that are used while they are in a cache
constexpr std::size_t high = 4;     ///< rows of c in registers …
constexpr std::size_t wide = 16;    ///< … and columns

/// c[high][width] += a·b, where rows of b and c are dense. Sums stay in registers: that rounds no differently than in memory, since T is all that
/// either holds.
template <class T, std::size_t rows>
void add_block(const tensor<const T>& a, const T* b, std::size_t next_b, T* c, std::size_t next_c, std::size_t k) {
  T sums[rows][wide];
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < wide; ++j) sums[i][j] = c[i * next_c + j];
  for (std::size_t p = 0; p < k; ++p) {
    const T* const row = b + p * next_b;
    for (std::size_t i = 0; i < rows; ++i) {
      const T factor = a(i, p);
      for (std::size_t j = 0; j < wide; ++j) sums[i][j] += factor * row[j];
    }
  }
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < wide; ++j) c[i * next_c + j] = sums[i][j];
}

/// The same for what is left at the right and below, and for rows of c that are strided.
template <class T>
void add_rest(const tensor<const T>& a, const T* b, std::size_t next_b, const tensor<T>& c, std::size_t k) {
  for (std::size_t i = 0; i < c.extent(0); ++i)
    for (std::size_t j = 0; j < c.extent(1); ++j) {
      T sum = c(i, j);
      for (std::size_t p = 0; p < k; ++p) sum += a(i, p) * b[p * next_b + j];
      c(i, j) = sum;
    }
}

/// c += a·b for `k` rows of b, which are dense.
template <class T>
void add_rows(const tensor<const T>& a, const T* b, std::size_t next_b, const tensor<T>& c, std::size_t k) {
  const std::size_t m = c.extent(0), n = c.extent(1);
  const bool dense = c.strides()[1] == 1;
  const std::size_t columns = dense ? n / wide * wide : 0;
  for (std::size_t j = 0; j < columns; j += wide) {
    std::size_t i = 0;
    for (; i + high <= m; i += high)
      add_block<T, high>(a.slice(0, i, high), b + j, next_b, &c(i, j), c.strides()[0], k);
    for (; i < m; ++i) add_block<T, 1>(a.slice(0, i, 1), b + j, next_b, &c(i, j), c.strides()[0], k);
  }
  if (columns < n) add_rest<T>(a, b + columns, next_b, c.slice(1, columns, n - columns), k);
}

template <class T>
void product(const tensor<const T>& a, const tensor<const T>& b, const tensor<T>& c, bool adds) {
  const std::size_t k = b.extent(0), n = b.extent(1);
  if (!adds)
    for (std::size_t i = 0; i < c.extent(0); ++i)
      for (std::size_t j = 0; j < n; ++j) c(i, j) = 0;
  std::vector<T> packed;
  for (std::size_t first = 0; first < k; first += depth) {
    const std::size_t count = std::min(depth, k - first);
    const tensor<const T> rows = b.slice(0, first, count);
    const T* dense = rows.data();
    std::size_t next = rows.strides()[0];
    if (rows.strides()[1] != 1 && n > 1) {
      packed.resize(count * n);
      for (std::size_t p = 0; p < count; ++p)
        for (std::size_t j = 0; j < n; ++j) packed[p * n + j] = rows(p, j);
      dense = packed.data();
      next = n;
    }
    add_rows<T>(a.slice(1, first, count), dense, next, c, count);
  }
}

}  // namespace

void multiply(tensor<const float> a, tensor<const float> b, tensor<float> c, bool adds) { product(a, b, c, adds); }
void multiply(tensor<const double> a, tensor<const double> b, tensor<double> c, bool adds) { product(a, b, c, adds); }

}  // namespace troupe
