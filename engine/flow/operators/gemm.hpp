// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include "engine/flow/tensor.hpp"
#include "memory/export.hpp"

namespace troupe {

/// c = a·b, or c += a·b: a is m × k, b k × n, c m × n, each with any strides.
///
/// Every element of c is a sum over k in ascending order, each product and each sum rounded to their type. So its bits do not depend on how rows or columns are cut
/// into tiles: a product done tile by tile is the whole one. Blocked for caches and registers, by the processor's vectors, on the calling thread; allocates
/// nothing. @pre the shapes fit
TROUPE_API void multiply(tensor<const float> a, tensor<const float> b, tensor<float> c, bool adds = false);
TROUPE_API void multiply(tensor<const double> a, tensor<const double> b, tensor<double> c, bool adds = false);

/// A k × n matrix, copied as multiply() goes through it: for products with one tile after the other, which would copy it so each time.
template <class T>
class TROUPE_API factor {
public:
  /// Allocates when the matrix is larger than before.
  void lay_out(const tensor<const T>& from);
  bool is_laid_out() const { return !memory_.empty(); }
  /// c = a·(what was laid out), with the bits of troupe::multiply(). One thread at a time. @pre is_laid_out()
  void multiply(const tensor<const T>& a, const tensor<T>& c);

private:
  std::vector<T> memory_;
  std::size_t begin_ = 0;  ///< of the panels in it, at a cache line; in a copy perhaps not
  tensor_shape shape_;
};

/// out = in·weights: rows of `in` (all dimensions but the last) times a k × n matrix, which must live as long as the operator. A flow reads it when it starts, and
/// not while it runs. The shape of a tile changes in its last dimension only. Backward: gemm{weights.transposed()} on what comes back, and gemm_weights.
template <class T>
struct gemm {
  tensor<const T> weights;
  factor<T> laid_out{};  ///< the weights, of the run under way

  /// Throws errc::invalid_argument for tiles whose rows are not as long as the weights have rows.
  tensor_shape shape(const tensor_shape& in) const {
    if (weights.rank() != 2)
      throw error(errc::invalid_argument,
                  "its weights have the shape " + to_string(weights.shape()) + "; they must be a matrix");
    if (in.rank() == 0 || in[in.rank() - 1] != weights.extent(0))
      throw error(errc::invalid_argument, "it multiplies rows of tiles of shape " + to_string(in) +
                                              " with weights of " + to_string(weights.shape()) + "; a row must have " +
                                              std::to_string(weights.extent(0)) + " elements");
    tensor_shape out = in;
    out[in.rank() - 1] = weights.extent(1);
    return out;
  }
  void begin() { laid_out.lay_out(weights); }
  void operator()(tile<const T> in, tile<T> out) {
    if (laid_out.is_laid_out()) laid_out.multiply(as_rows(in), as_rows<T>(out));
    else multiply(as_rows(in), weights, as_rows<T>(out));
  }

  /// A tensor as a matrix, whose rows are its last dimension. Throws errc::invalid_argument if it has more than two and they leave gaps.
  template <class U>
  static tensor<U> as_rows(const tensor<U>& of) {
    if (of.rank() == 2) return of;
    const std::size_t length = of.extent(of.rank() - 1);
    if (of.rank() == 1) return {of.data(), tensor_shape{1, length}, {length, of.strides()[0]}};
    return {of.dense("gemm").data(), tensor_shape{of.elements() / length, length}};
  }
};

/// The gradient of a gemm's weights, k × n: the sum of inᵀ·(d out) over all tiles, which each start sets to 0. A sink:
/// flow::sink("…", from(in, d_out), gemm_weights{gradient}).
template <class T>
struct gemm_weights {
  tensor<T> gradient;

  /// Throws errc::invalid_argument if the rows of a tile are not as long as the gradient is high and wide, or not as many.
  void check(const tensor_shape& in, const tensor_shape& d_out) const {
    if (gradient.rank() != 2)
      throw error(errc::invalid_argument,
                  "its gradient has the shape " + to_string(gradient.shape()) + "; it must be a matrix");
    const bool rows = in.rank() > 0 && d_out.rank() > 0;
    const std::size_t k = rows ? in[in.rank() - 1] : 0, n = rows ? d_out[d_out.rank() - 1] : 0;
    if (!rows || k != gradient.extent(0) || n != gradient.extent(1) || in.elements() / k != d_out.elements() / n)
      throw error(errc::invalid_argument, "it multiplies rows of tiles of shape " + to_string(in) + " with those of " +
                                              to_string(d_out) + " into a gradient of " + to_string(gradient.shape()) +
                                              "; rows must be as many, with " + std::to_string(gradient.extent(0)) +
                                              " and " + std::to_string(gradient.extent(1)) + " elements");
  }
  void begin() {
    for (std::size_t row = 0; row < gradient.extent(0); ++row)
      for (std::size_t column = 0; column < gradient.extent(1); ++column) gradient(row, column) = 0;
  }
  void operator()(tile<const T> in, tile<const T> d_out) const {
    multiply(gemm<T>::as_rows(in).transposed(), gemm<T>::as_rows(d_out), gradient, true);
  }
};

}  // namespace troupe
