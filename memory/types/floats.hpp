// SPDX-License-Identifier: Apache-2.0
// Storage types for the four low-precision float formats. They store and convert; arithmetic is done in float.
//
// Every conversion is straight-line code (selects, no data-dependent branches, no tables), so a plain loop over it
// vectorises. Rounding is to nearest, ties to even, and relies on the default floating-point environment: do not compile
// users of this header with -ffast-math.
#pragma once

#include <bit>
#include <cstdint>

namespace troupe {

namespace float_format {

/// A sign, `Exponent` exponent bits and `Mantissa` mantissa bits, IEEE 754 style with bias 2^(Exponent-1) - 1.
/// `FiniteOnly`: the OCP "FN" layout, where only the all-ones code is NaN and no code is an infinity.
/// The subnormal paths let one float addition do the rounding (method: F. Giesen, "half_to_float_fast", public domain).
template <int Exponent, int Mantissa, bool FiniteOnly>
struct format {
  static constexpr int shift = 23 - Mantissa;
  static constexpr int bias = (1 << (Exponent - 1)) - 1;
  static constexpr std::uint32_t magnitude_mask = (1u << (Exponent + Mantissa)) - 1;
  /// First code that is not finite.
  static constexpr std::uint32_t special = FiniteOnly ? magnitude_mask : magnitude_mask & ~((1u << Mantissa) - 1);
  static constexpr std::uint32_t rebias = static_cast<std::uint32_t>(127 - bias) << 23;
  static constexpr std::uint32_t smallest_normal = rebias + (1u << 23);

  static constexpr std::uint32_t narrow(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = bits & 0x7fff'ffffu;
    const std::uint32_t sign = (bits >> 31) << (Exponent + Mantissa);

    const std::uint32_t half_minus_one = (1u << (shift - 1)) - 1;
    const std::uint32_t normal = (magnitude - rebias + half_minus_one + ((magnitude >> shift) & 1u)) >> shift;
    // A float whose last mantissa bit weighs one subnormal step of the target: adding it rounds for us. Larger
    // magnitudes are cut off first, their sum would be discarded anyway (and might raise floating-point exceptions).
    constexpr std::uint32_t magic = rebias + (static_cast<std::uint32_t>(shift + 1) << 23);
    const std::uint32_t small = magnitude < smallest_normal ? magnitude : 0u;
    const std::uint32_t subnormal =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(small) + std::bit_cast<float>(magic)) - magic;

    std::uint32_t result = magnitude < smallest_normal ? subnormal : normal;
    constexpr std::uint32_t largest = FiniteOnly ? special - 1 : special;
    result = result > largest ? largest : result;
    if constexpr (FiniteOnly) {
      result = magnitude >= 0x7f80'0000u ? special : result;
    } else {
      const std::uint32_t payload = (magnitude >> shift) & ((1u << Mantissa) - 1);
      result = magnitude > 0x7f80'0000u ? special | (1u << (Mantissa - 1)) | payload : result;
    }
    return result | sign;
  }

  static constexpr float widen(std::uint32_t code) {
    const std::uint32_t magnitude = code & magnitude_mask;
    const std::uint32_t shifted = magnitude << shift;
    const std::uint32_t normal = shifted + rebias;
    const std::uint32_t subnormal =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(normal + (1u << 23)) - std::bit_cast<float>(smallest_normal));
    const std::uint32_t not_finite = FiniteOnly ? 0x7fc0'0000u : normal + rebias;
    std::uint32_t result = magnitude < (1u << Mantissa) ? subnormal : normal;
    result = magnitude >= special ? not_finite : result;
    const std::uint32_t sign = ((code >> (Exponent + Mantissa)) & 1u) << 31;
    return std::bit_cast<float>(result | sign);
  }
};

}  // namespace float_format

/// IEEE 754 binary16. Overflow gives an infinity; NaN stays a (quiet) NaN with its leading payload bits.
/// There is deliberately no operator== : compare `bits`, or compare the floats.
struct f16 {
  using format = float_format::format<5, 10, false>;
  std::uint16_t bits = 0;

  constexpr f16() = default;
  constexpr explicit f16(float value) : bits(static_cast<std::uint16_t>(format::narrow(value))) {}
  constexpr explicit operator float() const { return format::widen(bits); }
  static constexpr f16 from_bits(std::uint16_t bits) {
    f16 value;
    value.bits = bits;
    return value;
  }
};

/// bfloat16: the upper half of a binary32. Overflow gives an infinity; NaN stays a (quiet) NaN.
struct bf16 {
  std::uint16_t bits = 0;

  constexpr bf16() = default;
  constexpr explicit bf16(float value) {
    const auto wide = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16;
    const std::uint32_t quiet = (wide >> 16) | 0x40u;
    bits = static_cast<std::uint16_t>((wide & 0x7fff'ffffu) > 0x7f80'0000u ? quiet : rounded);
  }
  constexpr explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
  static constexpr bf16 from_bits(std::uint16_t bits) {
    bf16 value;
    value.bits = bits;
    return value;
  }
};

/// FP8 E4M3 of the OCP 8-bit floating point specification 1.0 ("FN"): largest value 448, NaN 0x7f and 0xff, no infinity.
/// Conversion: a finite float beyond the range saturates to +-448 (the specification's saturating mode); an infinity
/// becomes NaN, so that a diverged computation stays visible instead of turning into a plausible number.
struct f8e4m3 {
  using format = float_format::format<4, 3, true>;
  std::uint8_t bits = 0;

  constexpr f8e4m3() = default;
  constexpr explicit f8e4m3(float value) : bits(static_cast<std::uint8_t>(format::narrow(value))) {}
  constexpr explicit operator float() const { return format::widen(bits); }
  static constexpr f8e4m3 from_bits(std::uint8_t bits) {
    f8e4m3 value;
    value.bits = bits;
    return value;
  }
};

/// FP8 E5M2 of the same specification: IEEE-like, largest finite value 57344; overflow gives an infinity.
struct f8e5m2 {
  using format = float_format::format<5, 2, false>;
  std::uint8_t bits = 0;

  constexpr f8e5m2() = default;
  constexpr explicit f8e5m2(float value) : bits(static_cast<std::uint8_t>(format::narrow(value))) {}
  constexpr explicit operator float() const { return format::widen(bits); }
  static constexpr f8e5m2 from_bits(std::uint8_t bits) {
    f8e5m2 value;
    value.bits = bits;
    return value;
  }
};

static_assert(sizeof(f16) == 2 && sizeof(bf16) == 2 && sizeof(f8e4m3) == 1 && sizeof(f8e5m2) == 1);

}  // namespace troupe
