// SPDX-License-Identifier: Apache-2.0
#include "memory/types/floats.hpp"
#include "tests/memory/values.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace memory_tests;

namespace {

struct layout {
  int exponent;
  int mantissa;
  bool finite_only;
};
template <class T>
constexpr layout layout_of{};
template <>
constexpr layout layout_of<f16>{5, 10, false};
template <>
constexpr layout layout_of<bf16>{8, 7, false};
template <>
constexpr layout layout_of<f8e4m3>{4, 3, true};
template <>
constexpr layout layout_of<f8e5m2>{5, 2, false};

/// The value of a code by the definition of the format.
template <class T>
double decoded(unsigned code) {
  constexpr layout is = layout_of<T>;
  const int bias = (1 << (is.exponent - 1)) - 1;
  const unsigned mantissa = code & ((1u << is.mantissa) - 1);
  const unsigned exponent = (code >> is.mantissa) & ((1u << is.exponent) - 1);
  const double sign = (code >> (is.exponent + is.mantissa)) & 1u ? -1.0 : 1.0;
  const bool top = exponent == (1u << is.exponent) - 1;
  if (is.finite_only ? top && mantissa == (1u << is.mantissa) - 1 : top && mantissa != 0)
    return std::numeric_limits<double>::quiet_NaN();
  if (top && !is.finite_only) return sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - is.mantissa);
  return sign * std::ldexp(mantissa + (1u << is.mantissa), static_cast<int>(exponent) - bias - is.mantissa);
}

/// The value a float must round to, by the definition of rounding to nearest even.
template <class T>
double rounded(float value) {
  constexpr layout is = layout_of<T>;
  const int bias = (1 << (is.exponent - 1)) - 1;
  const double wide = value;
  if (std::isnan(value) || (is.finite_only && std::isinf(value))) return std::numeric_limits<double>::quiet_NaN();
  if (value == 0 || std::isinf(value)) return wide;
  const double step = std::ldexp(1.0, std::max(std::ilogb(wide), 1 - bias) - is.mantissa);
  const double nearest = std::nearbyint(wide / step) * step;
  const unsigned codes = 1u << (is.exponent + is.mantissa);
  const double largest = decoded<T>(is.finite_only ? codes - 2 : codes - (1u << is.mantissa) - 1);
  if (std::fabs(nearest) <= largest) return nearest;
  return std::copysign(is.finite_only ? largest : std::numeric_limits<double>::infinity(), wide);
}

bool identical(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

template <class T>
bool converts(float value) {
  return identical(to_double(static_cast<T>(value)), rounded<T>(value));
}

}  // namespace

TEST_CASE_TEMPLATE("every code means what the format says and survives a round trip", T, f16, bf16, f8e4m3, f8e5m2) {
  for (unsigned code = 0; code < (1u << (8 * sizeof(T))); ++code) {
    using word = word_of<T>;
    const T value = T::from_bits(static_cast<word>(code));
    const float wide = static_cast<float>(value);
    REQUIRE_MESSAGE(identical(wide, decoded<T>(code)), "code ", code);
    const T back{wide};
    if (std::isnan(wide)) REQUIRE(std::isnan(static_cast<float>(back)));
    else REQUIRE_MESSAGE(back.bits == code, "code ", code);
    REQUIRE(std::signbit(static_cast<float>(back)) == std::signbit(wide));
  }
}

TEST_CASE_TEMPLATE("half-way points and their neighbours round to nearest even", T, f16, bf16, f8e4m3, f8e5m2) {
  using word = word_of<T>;
  for (unsigned code = 0; code + 1 < (1u << (8 * sizeof(T) - 1)); ++code) {
    const float low = static_cast<float>(T::from_bits(static_cast<word>(code)));
    const float high = static_cast<float>(T::from_bits(static_cast<word>(code + 1)));
    if (!std::isfinite(low) || !std::isfinite(high)) continue;
    const auto middle = static_cast<float>((static_cast<double>(low) + high) / 2);
    for (float near : {std::nextafter(middle, low), middle, std::nextafter(middle, high)})
      for (float value : {near, -near}) REQUIRE_MESSAGE(converts<T>(value), "float ", value);
    REQUIRE((T{middle}.bits & 1u) == 0u);
  }
}

TEST_CASE_TEMPLATE("random floats round as the definition says", T, f16, bf16, f8e4m3, f8e5m2) {
  random_engine random{seed()};
  for (int i = 0; i < 300'000; ++i) {
    // Uniform bits reach every exponent; the second value stays near the range of the small formats.
    const auto any = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    const float near = std::ldexp(static_cast<float>(random() % (1u << 24)), static_cast<int>(random() % 50) - 48);
    REQUIRE_MESSAGE(converts<T>(any), "float ", any);
    REQUIRE_MESSAGE(converts<T>(-near), "float ", -near);
  }
}

TEST_CASE("overflow and special values") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(f16{65504.0f}.bits == 0x7bff);
  CHECK(f16{65519.0f}.bits == 0x7bff);
  CHECK(f16{65520.0f}.bits == 0x7c00);
  CHECK(f16{-infinity}.bits == 0xfc00);
  CHECK(bf16{std::numeric_limits<float>::max()}.bits == 0x7f80);
  CHECK(f8e4m3{448.0f}.bits == 0x7e);
  CHECK(f8e4m3{1e30f}.bits == 0x7e);
  CHECK(f8e4m3{-1e30f}.bits == 0xfe);
  CHECK(f8e4m3{infinity}.bits == 0x7f);
  CHECK(f8e4m3{-infinity}.bits == 0xff);
  CHECK(f8e4m3{nan}.bits == 0x7f);
  CHECK(f8e5m2{57344.0f}.bits == 0x7b);
  CHECK(f8e5m2{61440.0f}.bits == 0x7c);
  CHECK(f8e5m2{-infinity}.bits == 0xfc);
  CHECK(f16{-0.0f}.bits == 0x8000);
  CHECK(f8e4m3{-0.0f}.bits == 0x80);
  CHECK(f16{-1e-30f}.bits == 0x8000);
  // A NaN whose payload lies in the bits that are cut off must not become an infinity.
  const auto low_payload = std::bit_cast<float>(0x7f80'0001u);
  CHECK(std::isnan(static_cast<float>(f16{low_payload})));
  CHECK(std::isnan(static_cast<float>(bf16{low_payload})));
  CHECK(std::isnan(static_cast<float>(f8e5m2{low_payload})));
  static_assert(f16{1.0f}.bits == 0x3c00 && static_cast<float>(f8e4m3::from_bits(1)) == 0x1p-9f);
}
