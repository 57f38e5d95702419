// SPDX-License-Identifier: Apache-2.0
// convert, scale and divide.
#include "memory/error.hpp"
#include "memory/kernels/scaled_loops.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
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

/// As many as a slot has, in less time than it takes to choose a kernel. False: not these.
template <class T>
bool adjust_few(const sum_scaling& scaling, const void* from, void* to, std::size_t count) {
  constexpr std::size_t few = 64 / sizeof(T);
  if (count > few) return false;
  double factor = 0;
  if (scaling.factors != nullptr) factor = scaling.factors[0];
  else if (std::has_single_bit(scaling.divisor)) factor = 1 / static_cast<double>(scaling.divisor);
  else return false;
  for (std::size_t i = 0; i < count; ++i) store<T>(to, i, detail::scaled<T>(load<T>(from, i), factor));
  return true;
}

/// One input, scaled or divided; complex numbers by part.
void adjust(datatype type, const sum_scaling& scaling, const void* from, void* to, std::size_t count) {
  if (type == datatype::f32 && adjust_few<float>(scaling, from, to, count)) return;
  if (type == datatype::f64 && adjust_few<double>(scaling, from, to, count)) return;
  const detail::adjusted_sum made = detail::find_adjusted(part_of(type), scaling, 1);
  if (is_complex(type)) count *= 2;
  const void* const in[1] = {from};
  made.use.fold({in, 1}, 0, to, count, made.how);
}

/// Low-precision types through f32, which holds all their values, in tiles on the stack.
bool convert_in_vectors(datatype from_type, const void* from, datatype to_type, void* to, std::size_t count) {
  const detail::convert_kernel widen = detail::find_widening(from_type), narrow = detail::find_narrowing(to_type);
  if (widen != nullptr && to_type == datatype::f32) widen(from, to, count);
  else if (narrow != nullptr && from_type == datatype::f32) narrow(from, to, count);
  else if (widen == nullptr || narrow == nullptr) return false;
  else {
    alignas(64) float wide[detail::tile_bytes / sizeof(float)];
    for (std::size_t begin = 0; begin < count; begin += std::size(wide)) {
      const std::size_t elements = std::min(std::size(wide), count - begin);
      widen(detail::at(from, begin * size_of(from_type)), wide, elements);
      narrow(wide, detail::at(to, begin * size_of(to_type)), elements);
    }
  }
  return true;
}

}  // namespace

void convert(datatype from_type, const void* from, datatype to_type, void* to, std::size_t count) {
  if (count == 0) return;
  detail::check_buffer("convert", "the input", from, from_type, count);
  detail::check_buffer("convert", "the output", to, to_type, count);
  if (from_type == to_type) return copy(to, from, count * size_of(from_type));
  if (is_complex(from_type) && is_complex(to_type))
    return convert(part_of(from_type), from, part_of(to_type), to, 2 * count);
  if (is_integer(from_type) || is_integer(to_type) || is_complex(from_type) || is_complex(to_type))
    throw error{errc::unsupported_type, "convert: from " + std::string{name(from_type)} + " to " +
                                            std::string{name(to_type)} +
                                            "; only float types convert to each other, and complex ones"};
  if (convert_in_vectors(from_type, from, to_type, to, count)) return;
  detail::with_float_type(from_type, [&]<class From>() {
    detail::with_float_type(to_type, [&]<class To>() { convert_elements<From, To>(from, to, count); });
  });
}

void scale(datatype type, double factor, const void* from, void* to, std::size_t count) {
  if (count == 0) return;
  detail::check_buffer("scale", "the input", from, type, count);
  detail::check_buffer("scale", "the output", to, type, count);
  adjust(type, {&factor, 1}, from, to, count);
}

void divide(datatype type, std::size_t divisor, const void* from, void* to, std::size_t count) {
  if (divisor == 0) throw error{errc::invalid_argument, "divide: the divisor is 0; it must be at least 1"};
  if (count == 0) return;
  detail::check_buffer("divide", "the input", from, type, count);
  detail::check_buffer("divide", "the output", to, type, count);
  if (divisor == 1) copy(to, from, count * size_of(type));
  else adjust(type, {nullptr, divisor}, from, to, count);
}

}  // namespace troupe
