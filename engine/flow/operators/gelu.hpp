// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <numbers>

#include "engine/flow/tensor.hpp"

namespace troupe {

/// out = x·Φ(x), where Φ is the normal distribution's: by erf, not by its approximation with tanh (Hendrycks, Gimpel 2016).
struct gelu {
  tensor_shape shape(const tensor_shape& in) const { return in; }
  template <class T>
  void operator()(tile<const T> in, tile<T> out) const {
    const auto x = in.dense("gelu");
    const auto to = out.dense("gelu");
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = T(0.5) * x[i] * (1 + std::erf(x[i] / std::numbers::sqrt2_v<T>));
  }
};

/// (x, d out) → d x; for flow::map("…", from(x, d_out), gelu_backward{}).
struct gelu_backward {
  /// Throws errc::invalid_argument if they differ.
  tensor_shape shape(const tensor_shape& in, const tensor_shape& d_out) const {
    detail::check_same("it takes tiles and gradients of shape", in, d_out);
    return in;
  }
  template <class T>
  void operator()(tile<const T> in, tile<const T> d_out, tile<T> d_in) const {
    const auto x = in.dense("gelu_backward"), d = d_out.dense("gelu_backward");
    const auto to = d_in.dense("gelu_backward");
    constexpr T density = T(0.5) * std::numbers::inv_sqrtpi_v<T> * std::numbers::sqrt2_v<T>;  // 1/√2π
    for (std::size_t i = 0; i < to.size(); ++i)
      to[i] = d[i] * (T(0.5) * (1 + std::erf(x[i] / std::numbers::sqrt2_v<T>)) +
                      x[i] * density * std::exp(T(-0.5) * x[i] * x[i]));
  }
};

}  // namespace troupe
