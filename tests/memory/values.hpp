// SPDX-License-Identifier: Apache-2.0
// Random elements, bitwise comparison and independent scalar references for the tests of memory/.
#pragma once

#include "memory/error.hpp"
#include "memory/types/types.hpp"
#include "tests/code_of.hpp"
#include "tests/seed.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

namespace memory_tests {

using random_engine = std::mt19937_64;

inline std::size_t below(random_engine& random, std::size_t end) { return static_cast<std::size_t>(random() % end); }

template <class T>
using word_of =
    std::conditional_t<sizeof(T) == 1, std::uint8_t,
                       std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                          std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>>;

template <class T>
double to_double(T value) {
  if constexpr (std::is_arithmetic_v<T>) return static_cast<double>(value);
  else return static_cast<double>(static_cast<float>(value));
}

/// Half of the time any bit pattern (so NaN, infinities and subnormals occur), else small values and zeros of both signs.
template <class T>
T any_value(random_engine& random) {
  if (random() % 2 == 0) return std::bit_cast<T>(static_cast<word_of<T>>(random()));
  const int small = static_cast<int>(random() % 33) - 16;
  if constexpr (std::is_integral_v<T>) return static_cast<T>(small);
  else if (small == 0) return static_cast<T>(random() % 2 == 0 ? 0.0f : -0.0f);
  else return static_cast<T>(static_cast<float>(small) / 4);
}

/// Equal bits, or NaN both.
template <class T>
bool same(T a, T b) {
  if constexpr (!std::is_integral_v<T>)
    if (std::isnan(to_double(a)) || std::isnan(to_double(b)))
      return std::isnan(to_double(a)) && std::isnan(to_double(b));
  return std::bit_cast<word_of<T>>(a) == std::bit_cast<word_of<T>>(b);
}

/// One operation on the type that is computed in. Integers in 128 bits, floats through f64 where that is exact.
template <class C>
C reference(troupe::op_kind kind, C a, C b) {
  using troupe::op_kind;
  const bool is_true_a = !(a == C{}), is_true_b = !(b == C{});
  if (kind == op_kind::land) return static_cast<C>(is_true_a && is_true_b);
  if (kind == op_kind::lor) return static_cast<C>(is_true_a || is_true_b);
  if constexpr (std::is_integral_v<C>) {
    __extension__ using wide = __int128;
    __extension__ using unsigned_wide = unsigned __int128;
    const auto x = static_cast<wide>(a), y = static_cast<wide>(b);
    switch (kind) {
      case op_kind::prod: return static_cast<C>(static_cast<unsigned_wide>(x) * static_cast<unsigned_wide>(y));
      case op_kind::min: return x < y ? a : b;
      case op_kind::max: return x < y ? b : a;
      case op_kind::band: return static_cast<C>(x & y);
      case op_kind::bor: return static_cast<C>(x | y);
      case op_kind::bxor: return static_cast<C>(x ^ y);
      default: return static_cast<C>(x + y);
    }
  } else {
    if (kind == op_kind::min || kind == op_kind::max) {
      if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<C>::quiet_NaN();
      const bool a_is_less = a < b || (a == b && std::signbit(a));
      return a_is_less == (kind == op_kind::min) ? a : b;
    }
    const double x = static_cast<double>(a), y = static_cast<double>(b);
    return static_cast<C>(kind == op_kind::prod ? x * y : x + y);
  }
}

/// Elements at a chosen distance from alignment, with guard bytes on both sides.
template <class T>
class elements {
public:
  elements(std::size_t count, std::size_t misalignment, random_engine& random)
      : count_{count}, offset_{guard + misalignment}, bytes_(offset_ + count * sizeof(T) + guard, fill) {
    for (std::size_t i = 0; i < count; ++i) set(i, any_value<T>(random));
  }

  T operator[](std::size_t i) const {
    T value;
    std::memcpy(&value, bytes_.data() + offset_ + i * sizeof(T), sizeof(T));
    return value;
  }
  void set(std::size_t i, T value) { std::memcpy(bytes_.data() + offset_ + i * sizeof(T), &value, sizeof(T)); }
  void* data() { return bytes_.data() + offset_; }
  const void* data() const { return bytes_.data() + offset_; }
  std::size_t size() const { return count_; }

  bool guards_untouched() const {
    for (std::size_t i = 0; i < bytes_.size(); ++i)
      if ((i < offset_ || i >= offset_ + count_ * sizeof(T)) && bytes_[i] != fill) return false;
    return true;
  }

private:
  static constexpr std::size_t guard = 64;
  static constexpr unsigned char fill = 0xa5;
  std::size_t count_;
  std::size_t offset_;
  std::vector<unsigned char> bytes_;
};

/// Calls function.operator()<T>() for every element type.
template <class Function>
void for_each_type(Function function) {
  function.template operator()<std::int8_t>();
  function.template operator()<std::uint8_t>();
  function.template operator()<std::int32_t>();
  function.template operator()<std::uint32_t>();
  function.template operator()<std::int64_t>();
  function.template operator()<std::uint64_t>();
  function.template operator()<troupe::f16>();
  function.template operator()<troupe::bf16>();
  function.template operator()<float>();
  function.template operator()<double>();
  function.template operator()<troupe::f8e4m3>();
  function.template operator()<troupe::f8e5m2>();
}

using troupe_tests::code_of;

/// What the error says that the function throws; empty if it throws none.
template <class Function>
std::string message_of(Function function) {
  try {
    function();
  } catch (const troupe::error& problem) {
    return problem.what();
  }
  return {};
}

}  // namespace memory_tests
