// SPDX-License-Identifier: Apache-2.0
// Private to kernels*.cpp: the inner loops and the arithmetic they apply, for processors without the vectors of
// kernels_vector_loops.hpp and for remainders shorter than a vector.
//
// Compile with -O3 -fno-trapping-math: with trapping comparisons GCC will not turn selects on floats into vector code.
// The results are the same either way; only the floating-point status flags, which nobody reads, may differ.
#pragma once

#include "memory/kernels/kernels.hpp"

#include <algorithm>
#include <bit>
#include <complex>
#include <cstring>
#include <span>
#include <type_traits>

// Out may equal an input element for element, so no iteration depends on another one; the compiler cannot know.
#if defined(__clang__)
#define TROUPE_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define TROUPE_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace troupe::detail {

// -- elements -------------------------------------------------------------------------------------

/// memcpy, because callers' pointers may be unaligned; it compiles to one (vector) load.
template <class T>
inline T load(const void* base, std::size_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(base) + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
inline void store(void* base, std::size_t index, T value) {
  std::memcpy(static_cast<std::byte*>(base) + index * sizeof(T), &value, sizeof(T));
}

template <class T>
inline constexpr bool is_complex_number = false;
template <class Real>
inline constexpr bool is_complex_number<std::complex<Real>> = true;

/// The type that arithmetic on T happens in.
template <class T>
using compute_t = std::conditional_t<std::is_arithmetic_v<T> || is_complex_number<T>, T, float>;

// -- operations -----------------------------------------------------------------------------------

// Integer arithmetic goes through the unsigned type: signed overflow would be undefined, wrapping is what we promise.
template <class C, class Function>
constexpr C wrapping(C left, C right, Function function) {
  if constexpr (std::is_integral_v<C>) {
    using unsigned_type = std::make_unsigned_t<C>;
    return static_cast<C>(function(static_cast<unsigned_type>(left), static_cast<unsigned_type>(right)));
  } else {
    return function(left, right);
  }
}

struct add {
  template <class C>
  static C apply(C left, C right) {
    return wrapping(left, right, [](auto a, auto b) { return a + b; });
  }
};

struct multiply {
  template <class C>
  static C apply(C left, C right) {
    return wrapping(left, right, [](auto a, auto b) { return a * b; });
  }
};

/// The plain formula: operator* of std::complex looks for infinities among the NaNs, which no vector loop does.
struct multiply_complex {
  template <class C>
  static C apply(C left, C right) {
    return {left.real() * right.real() - left.imag() * right.imag(),
            left.real() * right.imag() + left.imag() * right.real()};
  }
};

/// Minimum or maximum. For floats selects only, no branches: equal values that differ in bits are zeros of both signs,
/// whose bitwise or is -0 and whose bitwise and is +0; a NaN on either side makes the sum a NaN.
template <bool Largest>
struct extreme {
  template <class C>
  static C apply(C left, C right) {
    C result = (Largest ? left > right : left < right) ? left : right;
    if constexpr (std::is_floating_point_v<C>) {
      using word = std::conditional_t<sizeof(C) == 4, std::uint32_t, std::uint64_t>;
      const word a = std::bit_cast<word>(left);
      const word b = std::bit_cast<word>(right);
      const C same = std::bit_cast<C>(static_cast<word>(Largest ? a & b : a | b));
      result = left == right ? same : result;
      result = static_cast<int>(left != left) | static_cast<int>(right != right) ? left + right : result;
    }
    return result;
  }
};

struct logical_and {
  template <class C>
  static C apply(C left, C right) {
    return static_cast<int>(left != C{}) & static_cast<int>(right != C{}) ? C{1} : C{};
  }
};

struct logical_or {
  template <class C>
  static C apply(C left, C right) {
    return static_cast<int>(left != C{}) | static_cast<int>(right != C{}) ? C{1} : C{};
  }
};

struct bit_and {
  template <class C>
  static C apply(C left, C right) {
    return static_cast<C>(left & right);
  }
};

struct bit_or {
  template <class C>
  static C apply(C left, C right) {
    return static_cast<C>(left | right);
  }
};

struct bit_xor {
  template <class C>
  static C apply(C left, C right) {
    return static_cast<C>(left ^ right);
  }
};

// -- loops ----------------------------------------------------------------------------------------

/// Result and Left, Right may differ: the fold keeps its accumulators in compute_t while inputs are stored as T.
template <class Op, class Left, class Right, class Result>
inline void combine(const void* left, const void* right, void* out, std::size_t count) {
  using C = compute_t<Right>;
  TROUPE_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i)
    store<Result>(
        out, i,
        static_cast<Result>(Op::apply(static_cast<C>(load<Left>(left, i)), static_cast<C>(load<Right>(right, i)))));
}

template <class Op, class T>
void reduce_elements(const void* left, const void* right, void* out, std::size_t count) {
  combine<Op, T, T, T>(left, right, out, count);
}

inline const std::byte* at(const void* base, std::size_t offset) {
  return static_cast<const std::byte*>(base) + offset;
}
inline std::byte* at(void* base, std::size_t offset) { return static_cast<std::byte*>(base) + offset; }

/// Accumulators of one tile. With one tile of an input beside them they fill half of a 32 KiB first-level cache.
inline constexpr std::size_t tile_bytes = 8192;

/// sum_scaling (kernels.hpp), prepared once a call for elements of one type: see prepare() in kernels_scaled.cpp.
struct adjustment {
  const double* factors = nullptr;  ///< one an input
  std::size_t inputs = 0;           ///< so many factors
  std::size_t divisor = 1;
  double reciprocal = 0;    ///< of the divisor where it is a power of two (of integers: that the type has); else 0
  std::uint64_t magic = 0;  ///< integers: the divisor as a multiplication and two shifts, see divided_by_magic
  int shift = 0, shift_more = 0;
  bool factors_fit_f32 = false, same_factors = false;
  bool short_factors = false;  ///< multiples of 2^-7 below 2^6 in magnitude: 13 bits
};

/// The factor of all inputs, and so of the result; 0 if they have no common one.
inline double common_factor(const adjustment& how) {
  if (how.factors != nullptr) return how.same_factors ? how.factors[0] : 0;
  return how.divisor == 1 ? 1 : how.reciprocal;
}

/// out[i] = the fold of element offset + i of all inputs. @pre at least two inputs, or one that is adjusted. `offset` is in bytes
/// and applies to inputs only. A tile's inputs are all read before its output is written, so `out` may be any input's part.
/// `how` changes nothing for other kernels than those that find_adjusted() and find_fold_of_fp8() find: they are called without.
using fold_kernel = void (*)(std::span<const void* const> in, std::size_t offset, void* out, std::size_t count,
                             const adjustment& how);

template <class Op, class T>
void fold_elements(std::span<const void* const> in, std::size_t offset, void* out, std::size_t count,
                   const adjustment& = {}) {
  using C = compute_t<T>;
  constexpr std::size_t tile = tile_bytes / sizeof(C);
  alignas(64) std::byte sums[tile_bytes];
  for (std::size_t begin = 0; begin < count; begin += tile) {
    const std::size_t elements = std::min(tile, count - begin);
    const std::size_t from = offset + begin * sizeof(T);
    std::byte* const to = at(out, begin * sizeof(T));
    if (in.size() == 2) {
      combine<Op, T, T, T>(at(in[0], from), at(in[1], from), to, elements);
    } else {
      combine<Op, T, T, C>(at(in[0], from), at(in[1], from), sums, elements);
      for (std::size_t k = 2; k + 1 < in.size(); ++k) combine<Op, C, T, C>(sums, at(in[k], from), sums, elements);
      combine<Op, C, T, T>(sums, at(in.back(), from), to, elements);
    }
  }
}

/// Bytes [offset, offset + length) of the fold of all inputs, past the caches to the same place of every output.
/// @pre no output is an input; at(out[i], offset) is aligned to a line of 64 bytes; length is a multiple of stream_step
using stream_kernel = void (*)(std::span<const void* const> in, std::span<void* const> out, std::size_t offset,
                               std::size_t length, const adjustment& how);
inline constexpr std::size_t stream_step = 256;

struct kernels {
  reduce_kernel pair = nullptr;
  fold_kernel fold = nullptr;
  stream_kernel stream = nullptr;  // null where there are no vectors, or too short ones
};

/// The plain loops. A factory has of<Op, T>(), see kernels_for.
struct plain_loops {
  template <class Op, class T>
  static constexpr kernels of() {
    return {&reduce_elements<Op, T>, &fold_elements<Op, T>, nullptr};
  }
};

template <class Factory, class T>
kernels kernels_for(op_kind kind) {
  // Wrapping arithmetic and bits do not know signs: one instance serves both signednesses.
  using unsigned_type =
      typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type;
  switch (kind) {
    case op_kind::sum:
    case op_kind::avg:
    case op_kind::pre_mul_sum: return Factory::template of<add, unsigned_type>();
    case op_kind::prod: return Factory::template of<multiply, unsigned_type>();
    case op_kind::min: return Factory::template of<extreme<false>, T>();
    case op_kind::max: return Factory::template of<extreme<true>, T>();
    case op_kind::land: return Factory::template of<logical_and, unsigned_type>();
    case op_kind::lor: return Factory::template of<logical_or, unsigned_type>();
    default: break;
  }
  if constexpr (std::is_integral_v<T>) {
    if (kind == op_kind::band) return Factory::template of<bit_and, unsigned_type>();
    if (kind == op_kind::bor) return Factory::template of<bit_or, unsigned_type>();
    if (kind == op_kind::bxor) return Factory::template of<bit_xor, unsigned_type>();
  }
  return {};
}

/// The other work of a sum's pass.
enum class adjusting : std::uint8_t { dividing, scaling };

// One translation unit a family, so that none is slow to compile.
kernels integer_kernels(datatype type, op_kind kind);
kernels float_kernels(datatype type, op_kind kind);
kernels f16_kernels(datatype type, op_kind kind);  // and bf16
kernels f8_kernels(datatype type, op_kind kind);
/// Products; of sums only `pair`, since a fold takes the parts for the elements (reduce_many).
kernels complex_kernels(datatype type, op_kind kind);
/// Sums of vectors that are adjusted in the same pass; no fold where there are no vectors.
kernels scaled_integer_kernels(datatype type, adjusting how);
kernels scaled_float_kernels(datatype type, adjusting how);
/// Sums of two fp8, adjusted by a common_factor() that is a power of two, faster than others. Null if the processor cannot, or not with that factor.
using sum_of_two = void (*)(const void* left, const void* right, void* out, std::size_t count, const adjustment& how);
sum_of_two find_sum_in_f16(datatype type, double factor);    ///< from 2^-7 to 2^5
sum_of_two find_sum_in_bytes(datatype type, double factor);  ///< from 2^-2 to 2^5
inline sum_of_two find_sum_of_two(datatype type, double factor) {
  const sum_of_two in_f16 = find_sum_in_f16(type, factor);
  return in_f16 != nullptr ? in_f16 : find_sum_in_bytes(type, factor);
}
/// Sums of 2 to 64 f8e4m3, adjusted by a common_factor() that is a power of two from 2^-7 to 2^5. Null: not for these, or not on this processor.
fold_kernel find_fold_in_bf16(datatype type, double factor, std::size_t inputs);
/// The same of any number of f8e5m2.
fold_kernel find_fold_in_words(datatype type, double factor);
inline fold_kernel find_fold_of_fp8(datatype type, double factor, std::size_t inputs) {
  const fold_kernel in_words = find_fold_in_words(type, factor);
  return in_words != nullptr ? in_words : find_fold_in_bf16(type, factor, inputs);
}
/// Such sums, of both types of fp8, the way that they are made where no other one is found.
void fold_in_f32(datatype type, std::span<const void* const> in, std::size_t offset, void* out, std::size_t count,
                 const adjustment& how);
/// Between f32 and a low-precision type, which must not be the same memory; null for other types.
using convert_kernel = void (*)(const void* from, void* to, std::size_t count);
convert_kernel find_widening(datatype type);
convert_kernel find_narrowing(datatype type);

/// A sum of `type` with `scaling`, in vectors where they give the documented bits, else in plain loops. @pre not complex: of those the parts
/// are asked for
struct adjusted_sum {
  kernels use;
  adjustment how;
};
adjusted_sum find_adjusted(datatype type, const sum_scaling& scaling, std::size_t inputs);

/// Copies disjoint regions past the caches. Streamed bytes are ordered before later stores only after finish_streams().
void stream_bytes(void* to, const void* from, std::size_t bytes);
void finish_streams();
const char* instruction_set();

/// Throws null_buffer or size_overflow. @pre count > 0
void check_buffer(const char* function, const char* role, const void* buffer, datatype type, std::size_t count);

/// Calls function.template operator()<T>() for the C++ type of `type`, which is not complex; throws invalid_argument if it is none.
[[noreturn]] void bad_datatype(datatype type);

template <class Function>
decltype(auto) with_float_type(datatype type, Function function) {
  switch (type) {
    case datatype::f16: return function.template operator()<f16>();
    case datatype::bf16: return function.template operator()<bf16>();
    case datatype::f32: return function.template operator()<float>();
    case datatype::f64: return function.template operator()<double>();
    case datatype::f8e4m3: return function.template operator()<f8e4m3>();
    case datatype::f8e5m2: return function.template operator()<f8e5m2>();
    default: bad_datatype(type);
  }
}

template <class Function>
decltype(auto) with_type(datatype type, Function function) {
  switch (type) {
    case datatype::i8: return function.template operator()<std::int8_t>();
    case datatype::u8: return function.template operator()<std::uint8_t>();
    case datatype::i32: return function.template operator()<std::int32_t>();
    case datatype::u32: return function.template operator()<std::uint32_t>();
    case datatype::i64: return function.template operator()<std::int64_t>();
    case datatype::u64: return function.template operator()<std::uint64_t>();
    default: return with_float_type(type, function);
  }
}

}  // namespace troupe::detail
