// SPDX-License-Identifier: Apache-2.0
#include "memory/kernels/kernels.hpp"
#include "tests/memory/values.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace memory_tests;

namespace {

template <class Function>
void for_each_float(Function function) {
  for_each_type([&]<class T>() {
    if constexpr (!std::is_integral_v<T>) function.template operator()<T>();
  });
}

/// Whether `result` is the value of type T nearest to `value`, judged by its two neighbours. @pre both finite
template <class T>
bool nearest(double value, T result) {
  const auto bits = std::bit_cast<word_of<T>>(result);
  for (const word_of<T> beside : {static_cast<word_of<T>>(bits - 1U), static_cast<word_of<T>>(bits + 1U)}) {
    const auto neighbour = std::bit_cast<T>(beside);
    const double other = to_double(neighbour);
    if (!std::isfinite(other) || std::signbit(other) != std::signbit(to_double(result))) continue;
    const double here = std::fabs(to_double(result) - value), there = std::fabs(other - value);
    if (there < here || (there == here && other != to_double(result) && (bits & 1u) != 0)) return false;
  }
  return true;
}

template <class T>
T scaled_exactly(T value, long double factor) {
  const long double product = static_cast<long double>(value) * factor;
  if (product >= static_cast<long double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  if (product <= static_cast<long double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  return static_cast<T>(product);
}

}  // namespace

TEST_CASE("conversion between float types rounds once; wider types hold every value") {
  random_engine random{seed()};
  for_each_float([&]<class From>() {
    for_each_float([&]<class To>() {
      for (std::size_t count : {std::size_t{0}, std::size_t{7}, 20 + below(random, 980)}) {
        const elements<From> from{count, below(random, 16), random};
        elements<To> to{count, below(random, 16), random};
        convert(datatype_of<From>, from.data(), datatype_of<To>, to.data(), count);
        REQUIRE(to.guards_untouched());
        for (std::size_t i = 0; i < count; ++i) {
          const double before = to_double(from[i]), after = to_double(to[i]);
          if (std::isnan(before)) REQUIRE(std::isnan(after));
          else REQUIRE(std::signbit(before) == std::signbit(after));
          if (std::isfinite(before) && std::isfinite(after)) REQUIRE(nearest<To>(before, to[i]));
          if constexpr (std::is_same_v<To, double> || (std::is_same_v<To, float> && sizeof(From) < 8))
            if (!std::isnan(before)) REQUIRE(before == after);
        }
      }
    });
  });
}

TEST_CASE("f64 to f16 does not round twice") {
  // Just above the half-way point between 1 and the next f16, but nearer to it than an f32 can tell.
  const double value = 1.0 + 0x1p-11 + 0x1p-40;
  f16 result;
  convert(datatype::f64, &value, datatype::f16, &result, 1);
  CHECK(result.bits == 0x3c01);
  const double huge = 1e300, tiny = -1e-300;
  convert(datatype::f64, &huge, datatype::f16, &result, 1);
  CHECK(result.bits == 0x7c00);
  convert(datatype::f64, &tiny, datatype::f16, &result, 1);
  CHECK(result.bits == 0x8000);
}

TEST_CASE("integers are divided truncating, by any divisor") {
  random_engine random{seed()};
  for_each_type([&]<class T>() {
    if constexpr (std::is_integral_v<T>) {
      for (std::size_t divisor : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{64}, std::size_t{128},
                                  std::size_t{200}, std::size_t{1} << 31, std::size_t{1} << 63, SIZE_MAX}) {
        elements<T> from{100, below(random, 16), random};
        from.set(0, std::numeric_limits<T>::min());
        from.set(1, std::numeric_limits<T>::max());
        elements<T> to{100, below(random, 16), random};
        divide(datatype_of<T>, divisor, from.data(), to.data(), 100);
        for (std::size_t i = 0; i < 100; ++i) {
          __extension__ using wide = __int128;
          const auto quotient = static_cast<wide>(from[i]) / static_cast<wide>(divisor);
          REQUIRE(static_cast<wide>(to[i]) == quotient);
        }
      }
    }
  });
}

TEST_CASE("floats are divided and scaled with one rounding, in place too") {
  random_engine random{seed()};
  for_each_float([&]<class T>() {
    for (std::size_t divisor : {std::size_t{3}, std::size_t{8}, std::size_t{17}}) {
      elements<T> to{500, below(random, 16), random};
      const elements<T> from = to;
      divide(datatype_of<T>, divisor, to.data(), to.data(), to.size());
      elements<T> product{500, below(random, 16), random};
      scale(datatype_of<T>, 0.1, from.data(), product.data(), product.size());
      REQUIRE(to.guards_untouched());
      for (std::size_t i = 0; i < to.size(); ++i) {
        using C = std::conditional_t<std::is_arithmetic_v<T>, T, float>;
        const auto value = static_cast<C>(from[i]);
        REQUIRE(same(to[i], static_cast<T>(value / static_cast<C>(divisor))));
        const double factor = std::is_arithmetic_v<T> ? 0.1 : static_cast<double>(0.1f);
        REQUIRE(same(product[i], static_cast<T>(static_cast<C>(static_cast<double>(value) * factor))));
      }
    }
  });
}

TEST_CASE("integers are scaled by wrapping for whole factors, else truncated and clamped") {
  random_engine random{seed()};
  for_each_type([&]<class T>() {
    if constexpr (std::is_integral_v<T>) {
      for (double factor : {0.0, 1.0, 2.0, 3.0, 0.5, 0.25, 1.5, 1e6 + 0.5, -0.5}) {
        elements<T> from{200, below(random, 16), random};
        elements<T> to{200, below(random, 16), random};
        scale(datatype_of<T>, factor, from.data(), to.data(), 200);
        for (std::size_t i = 0; i < 200; ++i) {
          const bool whole = factor == std::floor(factor);
          const T wanted = whole ? reference<T>(op_kind::prod, from[i], static_cast<T>(factor))
                                 : scaled_exactly<T>(from[i], static_cast<long double>(factor));
          REQUIRE_MESSAGE(to[i] == wanted, name(datatype_of<T>), " factor ", factor);
        }
      }
      T value = 5, result = 5;
      scale(datatype_of<T>, std::numeric_limits<double>::quiet_NaN(), &value, &result, 1);
      CHECK(result == 0);
      scale(datatype_of<T>, std::numeric_limits<double>::infinity(), &value, &result, 1);
      CHECK(result == std::numeric_limits<T>::max());
    }
  });
}
