// SPDX-License-Identifier: Apache-2.0
// Private to kernels_*.cpp: multiplication and division of elements, and sums that do either besides, as plain loops.
#pragma once

#include "memory/kernels/kernel_loops.hpp"

#include <limits>

namespace troupe::detail {

/// Truncates towards zero and clamps to T; NaN gives 0.
template <class T, class Real>
T clamp_to(Real value) {
  // One past the largest T is a power of two, hence exact in Real.
  constexpr Real end = static_cast<Real>(std::numeric_limits<T>::max() / 2 + 1) * 2;
  constexpr Real lowest = static_cast<Real>(std::numeric_limits<T>::min());
  if (!(value == value)) return T{};
  if (value >= end) return std::numeric_limits<T>::max();
  if (value <= lowest) return std::numeric_limits<T>::min();
  return static_cast<T>(value);
}

/// 64-bit values need the 64-bit mantissa of long double to be represented; slower, and only for factors that are not whole.
template <class T>
using scaling_real = std::conditional_t<sizeof(T) == 8, long double, double>;

/// The factor is a value of T.
template <class T>
bool is_whole(double factor) {
  return static_cast<scaling_real<T>>(clamp_to<T>(factor)) == static_cast<scaling_real<T>>(factor);
}

/// A whole factor of a type of either sign, as the word to multiply with.
template <class Word>
Word whole_factor(double factor) {
  using signed_type = std::make_signed_t<Word>;
  return factor < 0 ? static_cast<Word>(clamp_to<signed_type>(factor)) : clamp_to<Word>(factor);
}

/// An element x factor, see scale(); C is what T is computed in.
template <class T, class C>
C scaled(C value, double factor) {
  if constexpr (std::is_integral_v<T>) {
    using word = std::make_unsigned_t<T>;
    if (is_whole<T>(factor)) return multiply::apply(value, static_cast<T>(whole_factor<word>(factor)));
    return clamp_to<T>(static_cast<scaling_real<T>>(value) * static_cast<scaling_real<T>>(factor));
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<C>(static_cast<double>(value) * factor);
  } else {
    return value * static_cast<float>(factor);
  }
}

/// An element / divisor, see divide().
template <class T, class C>
C divided(C value, std::size_t divisor) {
  if constexpr (std::is_integral_v<T>) {
    // Division of magnitudes: a divisor beyond T's range, and the lowest value divided by anything, stay defined.
    const bool negative = value < T{};
    const auto bits = static_cast<std::uint64_t>(value);
    const std::uint64_t quotient = (negative ? std::uint64_t{} - bits : bits) / divisor;
    return static_cast<C>(negative ? std::uint64_t{} - quotient : quotient);
  } else if constexpr (std::is_floating_point_v<T>) {
    // Through f64 also for f32: its 53 bits are more than twice 24, so rounding twice is rounding once.
    return static_cast<C>(static_cast<double>(value) / static_cast<double>(divisor));
  } else {
    return value / static_cast<float>(divisor);
  }
}

/// A sum of inputs that are scaled, or that is divided. See fold_kernel.
template <class T>
void adjusted_elements(std::span<const void* const> in, std::size_t offset, void* out, std::size_t count,
                       const adjustment& how) {
  using C = compute_t<T>;
  constexpr std::size_t tile = tile_bytes / sizeof(C);
  C sums[tile];
  for (std::size_t begin = 0; begin < count; begin += tile) {
    const std::size_t elements = std::min(tile, count - begin);
    for (std::size_t k = 0; k < in.size(); ++k) {
      const std::byte* const from = at(in[k], offset + begin * sizeof(T));
      for (std::size_t i = 0; i < elements; ++i) {
        auto value = static_cast<C>(load<T>(from, i));
        if (how.factors != nullptr) value = scaled<T>(value, how.factors[k]);
        sums[i] = k == 0 ? value : add::apply(sums[i], value);
      }
    }
    for (std::size_t i = 0; i < elements; ++i)
      store<T>(out, begin + i, static_cast<T>(how.divisor != 1 ? divided<T>(sums[i], how.divisor) : sums[i]));
  }
}

}  // namespace troupe::detail
