// convert, scale and divide.
#include "memory/error.hpp"
#include "memory/kernels/kernel_loops.hpp"

#include <cmath>
#include <limits>
#include <string>

namespace troupe {

namespace {

using detail::load;
using detail::store;

/// f64 to f32 rounded to odd: an inexact result keeps its last bit set, which makes the second rounding (to at most 11
/// bits) the correct rounding of the original (S. Boldo, G. Melquiond, "Emulation of a FMA and correctly rounded sums").
inline float to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  const auto bits = std::bit_cast<std::uint32_t>(nearest);
  const double back = static_cast<double>(nearest);
  const std::uint32_t towards_zero = std::fabs(back) > std::fabs(value) ? bits - 1 : bits;
  const bool exact = static_cast<int>(back == value) | static_cast<int>(value != value);
  return exact ? nearest : std::bit_cast<float>(towards_zero | 1u);
}

template <class From, class To>
To convert_element(From value) {
  if constexpr (std::is_same_v<From, double> && !std::is_arithmetic_v<To>) return static_cast<To>(to_odd(value));
  else if constexpr (std::is_same_v<From, double> || std::is_same_v<To, double>)
    return static_cast<To>(static_cast<detail::compute_t<From>>(value));
  else return static_cast<To>(static_cast<float>(value));
}

template <class From, class To>
void convert_elements(const void* from, void* to, std::size_t count) {
  TROUPE_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) store<To>(to, i, convert_element<From, To>(load<From>(from, i)));
}

template <class T, class Function>
void transform(const void* from, void* to, std::size_t count, Function function) {
  TROUPE_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) store<T>(to, i, function(load<T>(from, i)));
}

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

template <class T>
void scale_integers(double factor, const void* from, void* to, std::size_t count) {
  using word = std::make_unsigned_t<T>;
  const T whole = clamp_to<T>(factor);
  // 64-bit values need the 64-bit mantissa of long double to be represented; slower, and only for odd factors.
  using real = std::conditional_t<sizeof(T) == 8, long double, double>;
  if (static_cast<real>(whole) == static_cast<real>(factor))
    transform<T>(from, to, count, [whole](T value) {
      return static_cast<T>(static_cast<word>(static_cast<word>(value) * static_cast<word>(whole)));
    });
  else
    transform<T>(from, to, count,
                 [factor](T value) { return clamp_to<T>(static_cast<real>(value) * static_cast<real>(factor)); });
}

template <class T>
void divide_integers(std::size_t divisor, const void* from, void* to, std::size_t count) {
  // Division of magnitudes: a divisor beyond T's range, and the lowest value divided by anything, stay defined.
  using word = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  if (divisor > std::numeric_limits<word>::max()) {
    transform<T>(from, to, count, [](T) { return T{}; });
    return;
  }
  const auto by = static_cast<word>(divisor);
  transform<T>(from, to, count, [by](T value) {
    const bool negative = value < T{};
    const auto bits = static_cast<word>(value);
    const word quotient = (negative ? word{} - bits : bits) / by;
    return static_cast<T>(negative ? word{} - quotient : quotient);
  });
}

}  // namespace

void convert(datatype from_type, const void* from, datatype to_type, void* to, std::size_t count) {
  if (count == 0) return;
  detail::check_buffer("convert", "the input", from, from_type, count);
  detail::check_buffer("convert", "the output", to, to_type, count);
  if (from_type == to_type) return copy(to, from, count * size_of(from_type));
  if (is_integer(from_type) || is_integer(to_type))
    throw error{errc::unsupported_type, "convert: from " + std::string{name(from_type)} + " to " +
                                            std::string{name(to_type)} + "; only float types convert to each other"};
  detail::with_float_type(from_type, [&]<class From>() {
    detail::with_float_type(to_type, [&]<class To>() { convert_elements<From, To>(from, to, count); });
  });
}

void scale(datatype type, double factor, const void* from, void* to, std::size_t count) {
  if (count == 0) return;
  detail::check_buffer("scale", "the input", from, type, count);
  detail::check_buffer("scale", "the output", to, type, count);
  detail::with_type(type, [&]<class T>() {
    if constexpr (std::is_integral_v<T>) scale_integers<T>(factor, from, to, count);
    else if constexpr (std::is_floating_point_v<T>)
      transform<T>(from, to, count, [factor](T value) { return static_cast<T>(static_cast<double>(value) * factor); });
    else
      transform<T>(from, to, count, [narrow = static_cast<float>(factor)](T value) {
        return static_cast<T>(static_cast<float>(value) * narrow);
      });
  });
}

void divide(datatype type, std::size_t divisor, const void* from, void* to, std::size_t count) {
  if (divisor == 0) throw error{errc::invalid_argument, "divide: the divisor is 0; it must be at least 1"};
  if (count == 0) return;
  detail::check_buffer("divide", "the input", from, type, count);
  detail::check_buffer("divide", "the output", to, type, count);
  detail::with_type(type, [&]<class T>() {
    if constexpr (std::is_integral_v<T>) {
      divide_integers<T>(divisor, from, to, count);
    } else if constexpr (std::is_floating_point_v<T>) {
      // Through f64 also for f32: its 53 bits are more than twice 24, so rounding twice is rounding once.
      transform<T>(from, to, count, [by = static_cast<double>(divisor)](T value) {
        return static_cast<T>(static_cast<double>(value) / by);
      });
    } else {
      transform<T>(from, to, count, [by = static_cast<float>(divisor)](T value) {
        return static_cast<T>(static_cast<float>(value) / by);
      });
    }
  });
}

}  // namespace troupe
