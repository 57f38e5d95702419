// SPDX-License-Identifier: Apache-2.0
// Element types and reduction operations: the vocabulary every other folder speaks.
#pragma once

#include "memory/export.hpp"
#include "memory/types/floats.hpp"

#include <algorithm>
#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

namespace troupe {

// -- element types --------------------------------------------------------------------------------

enum class datatype : std::uint8_t { i8, u8, i32, u32, i64, u64, f16, bf16, f32, f64, f8e4m3, f8e5m2, c64, c128 };

/// Every element type, in the order of the enumerators.
inline constexpr std::array all_datatypes{
    datatype::i8,   datatype::u8,  datatype::i32, datatype::u32,    datatype::i64,    datatype::u64, datatype::f16,
    datatype::bf16, datatype::f32, datatype::f64, datatype::f8e4m3, datatype::f8e5m2, datatype::c64, datatype::c128};

/// Bytes of one element, a power of two; 0 for a value that is no enumerator.
constexpr std::size_t size_of(datatype type) {
  switch (type) {
    case datatype::i8:
    case datatype::u8:
    case datatype::f8e4m3:
    case datatype::f8e5m2: return 1;
    case datatype::f16:
    case datatype::bf16: return 2;
    case datatype::i32:
    case datatype::u32:
    case datatype::f32: return 4;
    case datatype::i64:
    case datatype::u64:
    case datatype::f64:
    case datatype::c64: return 8;
    case datatype::c128: return 16;
  }
  return 0;
}

constexpr bool is_integer(datatype type) { return type <= datatype::u64; }

/// f16, bf16 and the two fp8 types: stored narrow, computed in f32.
constexpr bool is_low_precision(datatype type) {
  return type == datatype::f16 || type == datatype::bf16 || type == datatype::f8e4m3 || type == datatype::f8e5m2;
}

/// c64 and c128: a real part and an imaginary one, each an f32 or f64.
constexpr bool is_complex(datatype type) { return type == datatype::c64 || type == datatype::c128; }

/// The type of a complex number's two parts; any other type itself.
constexpr datatype part_of(datatype type) {
  return type == datatype::c64 ? datatype::f32 : type == datatype::c128 ? datatype::f64 : type;
}

/// "i8", "f16", "f8e4m3" …; "?" for a value that is no enumerator.
TROUPE_API std::string_view name(datatype type);
/// The name nccl-tests prints: "int8", "half", "bfloat16", "float", "double", "f8e4m3" …; of complex numbers, which NCCL has none of,
/// NumPy's: "complex64", "complex128".
TROUPE_API std::string_view nccl_name(datatype type);
/// Accepts name(), nccl_name() and the usual aliases (float16, float32, fp8_e4m3, cfloat …); case matters.
TROUPE_API std::optional<datatype> parse_datatype(std::string_view text);

namespace detail {

template <class T>
constexpr std::optional<datatype> datatype_for() {
  if constexpr (std::is_same_v<T, f16>) return datatype::f16;
  else if constexpr (std::is_same_v<T, bf16>) return datatype::bf16;
  else if constexpr (std::is_same_v<T, f8e4m3>) return datatype::f8e4m3;
  else if constexpr (std::is_same_v<T, f8e5m2>) return datatype::f8e5m2;
  else if constexpr (std::is_same_v<T, float>) return datatype::f32;
  else if constexpr (std::is_same_v<T, double>) return datatype::f64;
  else if constexpr (std::is_same_v<T, std::complex<float>>) return datatype::c64;
  else if constexpr (std::is_same_v<T, std::complex<double>>) return datatype::c128;
  else if constexpr (std::is_same_v<T, signed char>) return datatype::i8;
  else if constexpr (std::is_same_v<T, unsigned char>) return datatype::u8;
  // By size, so that long and long long both work whichever of them std::int64_t is.
  else if constexpr (std::is_same_v<T, int> || std::is_same_v<T, long> || std::is_same_v<T, long long>)
    return sizeof(T) == 4 ? datatype::i32 : datatype::i64;
  else if constexpr (std::is_same_v<T, unsigned> || std::is_same_v<T, unsigned long> ||
                     std::is_same_v<T, unsigned long long>)
    return sizeof(T) == 4 ? datatype::u32 : datatype::u64;
  else return std::nullopt;
}

}  // namespace detail

/// A C++ type that has a datatype: std::int8_t … double, f16, bf16, f8e4m3, f8e5m2, std::complex of float or double (not const, not a
/// reference).
template <class T>
concept element = detail::datatype_for<T>()
.has_value();

template <element T>
inline constexpr datatype datatype_of = *detail::datatype_for<T>();

// -- reductions -----------------------------------------------------------------------------------

enum class op_kind : std::uint8_t { sum, prod, min, max, avg, pre_mul_sum, land, lor, band, bor, bxor, user };

/// Every kind, `user` included, in the order of the enumerators.
inline constexpr std::array all_op_kinds{op_kind::sum,  op_kind::prod,        op_kind::min,  op_kind::max,
                                         op_kind::avg,  op_kind::pre_mul_sum, op_kind::land, op_kind::lor,
                                         op_kind::band, op_kind::bor,         op_kind::bxor, op_kind::user};

/// Adds, whatever else it does.
constexpr bool is_sum(op_kind kind) {
  return kind == op_kind::sum || kind == op_kind::avg || kind == op_kind::pre_mul_sum;
}

/// The unit that may be combined apart from its neighbours: an element, and of a sum of complex numbers each of its parts.
constexpr datatype unit_of(datatype type, op_kind kind) { return is_sum(kind) ? part_of(type) : type; }

TROUPE_API std::string_view name(op_kind kind);
/// Accepts name() and the aliases minimum, maximum, average, premulsum, mulsum; not "user", which needs a function.
TROUPE_API std::optional<op_kind> parse_op(std::string_view text);

/// out[i] = left[i] (op) right[i] for count elements; out may equal left or right. Called from whichever thread performs
/// the operation, possibly from several at once on different elements; elements may come in several calls. What it throws fails the
/// operation on every rank with errc::aborted. It must not use the engine, and it must return: a deadline, a cancel, an abort or the end
/// of the engine waits for it, since no buffer is handed back while it may touch one.
using user_function = void (*)(const void* left, const void* right, void* out, std::size_t count, datatype type,
                               void* context);

/// The name that a user gives to an operation of his own. Ranks compare it, since a function's address means nothing in another process. A value, at
/// most 31 bytes of printable ASCII.
class op_name {
public:
  static constexpr std::size_t longest = 31;
  constexpr op_name() = default;
  /// Throws error(invalid_argument) for an empty text, a longer one, and one that is not printable.
  TROUPE_API explicit op_name(std::string_view text);
  /// Whether a name may be so.
  TROUPE_API static bool fits(std::string_view text) noexcept;

  constexpr std::string_view view() const {
    return {text_.data(), static_cast<std::size_t>(std::find(text_.begin(), text_.end(), '\0') - text_.begin())};
  }
  constexpr bool empty() const { return text_.front() == '\0'; }
  friend constexpr bool operator==(const op_name&, const op_name&) = default;

private:
  std::array<char, longest + 1> text_{};
};

/// A reduction. `context` is not owned and must outlive every operation that uses it.
/// The built-in kinds count as commutative and associative; that float sums round differently in different orders is
/// the business of the determinism level, not of these flags.
struct op {
  op_kind kind = op_kind::sum;
  double scale = 1.0;  // pre_mul_sum only: every rank's input is multiplied by its own scale
  user_function function = nullptr;
  void* context = nullptr;
  bool commutative = true;
  bool associative = true;
  op_name
      name{};  ///< user only: ranks that reduce by operations of other names get errc::mismatch; empty: none, which is a name, too
  std::uint64_t type_mark =
      0;  ///< user only, of a function object without a name: its type's, which ranks compare instead; 0: of any function

  friend constexpr bool operator==(const op&, const op&) = default;
};

constexpr op make_op(op_kind kind) {
  op result;
  result.kind = kind;
  return result;
}

inline constexpr op sum = make_op(op_kind::sum);
inline constexpr op prod = make_op(op_kind::prod);
inline constexpr op minimum = make_op(op_kind::min);
inline constexpr op maximum = make_op(op_kind::max);
inline constexpr op average = make_op(op_kind::avg);
inline constexpr op land = make_op(op_kind::land);
inline constexpr op lor = make_op(op_kind::lor);
inline constexpr op band = make_op(op_kind::band);
inline constexpr op bor = make_op(op_kind::bor);
inline constexpr op bxor = make_op(op_kind::bxor);

constexpr op pre_mul_sum(double scale) {
  op result = make_op(op_kind::pre_mul_sum);
  result.scale = scale;
  return result;
}

constexpr op user_op(user_function function, void* context = nullptr, bool commutative = true,
                     bool associative = true) {
  return op{op_kind::user, 1.0, function, context, commutative, associative, {}, 0};
}

/// The same operation with a name, which ranks compare: named("max_abs", user_op(f)). The built-in kinds have theirs and keep them. Throws as op_name().
inline op named(std::string_view name, op what) {
  const op_name checked{name};
  if (what.kind == op_kind::user) what.name = checked, what.type_mark = 0;
  return what;
}

}  // namespace troupe
