// SPDX-License-Identifier: Apache-2.0
// Copy, reduce and convert: the loops that touch every byte.
//
// Shared by all functions here:
// - Pointers need no alignment. Regions may be equal or disjoint; partial overlap gives unspecified elements.
// - Thread-safe as long as callers give them disjoint outputs. Nothing allocates, locks or keeps state.
// - count == 0 does nothing, whatever the pointers. Otherwise a null pointer throws errc::null_buffer.
// - An operation that supports() refuses throws errc::unsupported_type.
//
// What the operations mean:
// - Integers wrap (two's complement). land and lor give 1 or 0; on floats -0 is false and NaN is true.
// - min and max on floats: a NaN on either side gives NaN, and -0 < +0 (IEEE 754-2019 minimum, maximum).
// - Complex numbers (c64, c128) are added and scaled by part. A product is (ac - bd) + (ad + bc)i, each of its four multiplications and two
//   additions rounded; infinities that this turns into NaN are not recovered as in C99's Annex G. They have no order, truth or bits.
// - f16, bf16, f8e4m3, f8e5m2 are computed in f32 and rounded to nearest even once per call; on f8e4m3 a finite
//   overflow saturates (see floats.hpp).
// - avg and pre_mul_sum add; the caller names factors and divisor (sum_scaling) in the first and last pass, or calls scale() on
//   the input before, or divide() on the result after. The bits are the same, except that low-precision types are then rounded
//   in between.
#pragma once

#include "memory/types/types.hpp"

#include <cstddef>
#include <span>
#include <string>

namespace troupe {

/// Where stores go. `streamed`: past the caches (non-temporal), which saves reading the old contents and keeps the caches
/// for others, but the first reader finds nothing in them. `by_size` streams what is too large to be found in a cache
/// later; a caller that works in pieces knows more than a call can see, and passes that. Streaming never changes results,
/// and is complete (fenced) when the call returns. `elsewhere`: cached, but other cores have read or written the lines of the outputs last; results
/// that begin at a line are copied there a tile at a time, as copies take such lines over unread on some processors (kernels.cpp,
/// longest_string_copy). Outputs that are inputs are stored as usual.
enum class store_hint : std::uint8_t { by_size, cached, streamed, elsewhere };

/// Whether `kind` is defined on `type`: everything is, except band, bor and bxor on floats; on complex numbers sum, prod, avg, pre_mul_sum
/// and what the user defines.
bool supports(datatype type, op_kind kind);

/// The sentence for what supports() does not: what is wrong, and what would be right.
std::string why_unsupported(datatype type, op_kind kind);

/// Throws errc::unsupported_type with why_unsupported() when supports() is false, and errc::invalid_argument
/// when a user operation has no function.
void check_supported(datatype type, const op& operation);

/// out = left (op) right for `count` elements; left is the lower-ranked side of an operation that does not commute.
void reduce(datatype type, const op& operation, const void* left, const void* right, void* out, std::size_t count);

/// The other work of a sum's pass: its inputs are multiplied first as scale() does, and the result is divided at last as
/// divide() does; low-precision types are not rounded in between. One of the two at most.
struct sum_scaling {
  const double* factors = nullptr;  ///< one an input; null: none
  std::size_t divisor = 1;          ///< not 0

  bool any() const { return factors != nullptr || divisor != 1; }
};

/// out = ((in[0] (op) in[1]) (op) in[2]) … ; every region of `out` receives the result, and each may equal any of `in`.
/// Low-precision types stay in f32 over the whole fold and are rounded once at the end (user operations excepted).
/// Each input is read once and each output written once, in tiles that stay in the first-level cache. One input is
/// copied, only scaled. `scaling` is for sum, avg and pre_mul_sum. @pre `in` is not empty, `scaling` fits, else
/// errc::invalid_argument.
void reduce_many(datatype type, const op& operation, std::span<const void* const> in, std::span<void* const> out,
                 std::size_t count, store_hint hint = store_hint::by_size, const sum_scaling& scaling = {});

/// The loop behind reduce(), for callers that look it up once: no checks, count may be 0.
using reduce_kernel = void (*)(const void* left, const void* right, void* out, std::size_t count);
/// nullptr when supports() is false, and for op_kind::user.
reduce_kernel find_reduce(datatype type, op_kind kind);

/// Regions may be equal (then nothing happens). Call it qualified (troupe::copy): std::byte pointers drag std::copy in.
void copy(void* to, const void* from, std::size_t bytes, store_hint hint = store_hint::by_size);

/// The instruction set that the vector loops chose on this processor ("AVX3" is AVX-512), for reports.
const char* kernel_instruction_set();

/// Between any two float types, or the two complex ones, rounding once to nearest even; same types copy. Integers only to themselves, else
/// errc::unsupported_type. `to` may equal `from` only if both types are the same.
void convert(datatype from_type, const void* from, datatype to_type, void* to, std::size_t count);

/// to = from x factor; `to` may equal `from`. f32 is computed in f64, low-precision types in f32 (factor rounded to f32 first). Integers: a
/// factor that is itself a value of the type multiplies with wrap-around; any other one truncates the product towards
/// zero and clamps it to the type (NaN gives 0).
void scale(datatype type, double factor, const void* from, void* to, std::size_t count);

/// to = from / divisor; `to` may equal `from`. Correctly rounded for f32 and f64; integers truncate towards zero. A divisor of 0 throws
/// errc::invalid_argument.
void divide(datatype type, std::size_t divisor, const void* from, void* to, std::size_t count);

}  // namespace troupe
