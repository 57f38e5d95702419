// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "engine/flow/tensor.hpp"

namespace troupe {

/// Rows of the last dimension: out = (x − mean) / √(variance + epsilon) · gain + bias (Ba, Kiros, Hinton 2016). Sums are of doubles, in an
/// order that the length of a row decides, so a row's result does not depend on the tile it is in. Gain and bias must live as long as the operator.
template <class T>
struct layer_norm {
  std::span<const T> gain, bias;  ///< an element each of the last dimension
  double epsilon = 1e-5;

  /// Throws errc::invalid_argument for tiles that do not fit the gain.
  tensor_shape shape(const tensor_shape& in) const {
    if (in.rank() == 0 || in[in.rank() - 1] != gain.size() || bias.size() != gain.size())
      throw error(errc::invalid_argument, "its gain has " + std::to_string(gain.size()) + " elements and its bias " +
                                              std::to_string(bias.size()) + ", and tiles have the shape " +
                                              to_string(in) + "; a row must have as many");
    return in;
  }
  void operator()(tile<const T> in, tile<T> out) const {
    const std::size_t n = gain.size();
    const auto from = in.dense("layer_norm");
    const auto to = out.dense("layer_norm");
    for (std::size_t row = 0; row < from.size(); row += n) {
      const auto [mean, scale] = moments(from.subspan(row, n), epsilon);
      for (std::size_t i = 0; i < n; ++i)
        to[row + i] =
            static_cast<T>((static_cast<double>(from[row + i]) - mean) * scale * static_cast<double>(gain[i]) +
                           static_cast<double>(bias[i]));
    }
  }

  struct row_moments {
    double mean, scale;  ///< scale: 1 / √(variance + epsilon)
  };
  static row_moments moments(std::span<const T> row, double epsilon) {
    const double mean = sum_of(row, [](double x) { return x; }) / static_cast<double>(row.size());
    const double squares = sum_of(row, [mean](double x) { return (x - mean) * (x - mean); });
    return {mean, 1 / std::sqrt(squares / static_cast<double>(row.size()) + epsilon)};
  }

private:
  /// Element i is added to sum i mod 8, so that additions need not wait for one another.
  template <class F>
  static double sum_of(std::span<const T> row, F&& value) {
    std::array<double, 8> sums{};
    std::size_t i = 0;
    for (; i + 8 <= row.size(); i += 8)
      for (std::size_t j = 0; j < 8; ++j) sums[j] += value(static_cast<double>(row[i + j]));
    for (std::size_t j = 0; i + j < row.size(); ++j) sums[j] += value(static_cast<double>(row[i + j]));
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
  }
};

/// (x, d out) → d x, and adds up the gradients of gain and bias, which each start sets to 0; for flow::map("…", from(x, d_out), …).
template <class T>
struct layer_norm_backward {
  std::span<const T> gain;
  std::span<T> d_gain, d_bias;
  double epsilon = 1e-5;

  /// Throws errc::invalid_argument if they differ, or do not fit the gain.
  tensor_shape shape(const tensor_shape& in, const tensor_shape& d_out) const {
    detail::check_same("it takes tiles and gradients of shape", in, d_out);
    if (in.rank() == 0 || in[in.rank() - 1] != gain.size() || d_gain.size() != gain.size() ||
        d_bias.size() != gain.size())
      throw error(errc::invalid_argument,
                  "its gain has " + std::to_string(gain.size()) + " elements, the gain's gradient " +
                      std::to_string(d_gain.size()) + " and the bias's " + std::to_string(d_bias.size()) +
                      ", and tiles have the shape " + to_string(in) + "; a row must have as many");
    return in;
  }
  void begin() {
    std::fill(d_gain.begin(), d_gain.end(), T(0));
    std::fill(d_bias.begin(), d_bias.end(), T(0));
  }
  void operator()(tile<const T> in, tile<const T> d_out, tile<T> d_in) {
    const std::size_t n = gain.size();
    const auto x = in.dense("layer_norm_backward"), d = d_out.dense("layer_norm_backward");
    const auto to = d_in.dense("layer_norm_backward");
    for (std::size_t row = 0; row < x.size(); row += n) {
      const auto [mean, scale] = layer_norm<T>::moments(x.subspan(row, n), epsilon);
      double sum = 0, product = 0;  // of g, and of g·x̂, where g = d out · gain
      for (std::size_t i = 0; i < n; ++i) {
        const double normal = (static_cast<double>(x[row + i]) - mean) * scale, down = static_cast<double>(d[row + i]);
        sum += down * static_cast<double>(gain[i]);
        product += down * static_cast<double>(gain[i]) * normal;
        d_gain[i] += static_cast<T>(down * normal);
        d_bias[i] += d[row + i];
      }
      const double count = static_cast<double>(n);
      for (std::size_t i = 0; i < n; ++i) {
        const double normal = (static_cast<double>(x[row + i]) - mean) * scale;
        to[row + i] = static_cast<T>(scale * (static_cast<double>(d[row + i]) * static_cast<double>(gain[i]) -
                                              sum / count - normal * product / count));
      }
    }
  }
};

}  // namespace troupe
