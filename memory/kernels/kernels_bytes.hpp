// SPDX-License-Identifier: Apache-2.0
// Private to kernels_*.cpp: sums of fp8, four vectors of f32 at a time out of one vector of bytes.
//
// An fp8 code is, shifted, the upper part of an f16: of its own value (e5m2), or of 2^-8 of it (e4m3; the biases differ by 8), subnormals
// included. So all of a vector's even bytes become f16 in a few instructions, and all of its odd ones; the processor converts these to f32.
// Sums are rounded to f16 first, and then in integers to fp8. Two roundings are one here:
// - A sum of two has the bits of the larger operand and, where it is not far below it, those of the other: no more than an f16 holds; and what is far
//   below does not reach the middle between two fp8.
// - Sums of more are rounded to odd before, so that no f16 is the middle between two fp8 unless the sum is (S. Boldo, G. Melquiond,
//   "Emulation of a FMA and correctly rounded sums").
// - Where an f16 is subnormal it holds every multiple of the smallest fp8's 2^-7 exactly, and sums, also divided by up to 128, are such; and
//   sums of products with multiples of 2^-7.
// clang-format off: the guard flips with every inclusion, see hwy/foreach_target.h
#if defined(TROUPE_KERNEL_BYTES) == defined(HWY_TARGET_TOGGLE)
#ifdef TROUPE_KERNEL_BYTES
#undef TROUPE_KERNEL_BYTES
#else
#define TROUPE_KERNEL_BYTES
#endif
// clang-format on

#include "memory/kernels/kernels_vectors.hpp"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

HWY_BEFORE_NAMESPACE();
namespace troupe::detail::HWY_NAMESPACE {

using pairs = hn::Repartition<std::uint16_t, floats>;
using pair_vector = hn::Vec<pairs>;

HWY_INLINE pair_vector pair_constant(std::uint16_t word) { return hn::Set(pairs{}, word); }

/// f16 codes of a vector's odd (upper) and even bytes and back; only what byte_sums needs.
template <class T>
struct byte_pairs;

template <>
struct byte_pairs<f8e5m2> {
  static constexpr bool has_infinity = true;
  static HWY_INLINE pair_vector odd(pair_vector both) { return hn::And(both, pair_constant(0xff00)); }
  static HWY_INLINE pair_vector even(pair_vector both) { return hn::ShiftLeft<8>(both); }
  /// To nearest even; the code is in the upper byte. A NaN stays below 0x8000.
  static HWY_INLINE pair_vector rounded(pair_vector half) {
    const pair_vector magnitude = hn::And(half, pair_constant(0x7fff));
    const pair_vector last = hn::And(hn::ShiftRight<8>(half), pair_constant(1));
    return hn::Min(hn::Add(hn::Add(magnitude, pair_constant(0x7f)), last), pair_constant(0x7fff));
  }
  static HWY_INLINE pair_vector to_odd(pair_vector code) { return hn::And(code, pair_constant(0x7f00)); }
  static HWY_INLINE pair_vector to_even(pair_vector code) { return hn::ShiftRight<8>(code); }
};

template <>
struct byte_pairs<f8e4m3> {
  static constexpr bool has_infinity = false;
  static HWY_INLINE pair_vector odd(pair_vector both) {
    // The sign is copied to the bit below it, which is cleared.
    const hn::RebindToSigned<pairs> d;
    const auto moved = hn::BitCast(pairs{}, hn::ShiftRight<1>(hn::BitCast(d, both)));
    return hn::And(moved, pair_constant(0xbf80));
  }
  static HWY_INLINE pair_vector even(pair_vector both) { return odd(hn::ShiftLeft<8>(both)); }
  /// To nearest even, saturating; the code begins at bit 7. @pre finite
  static HWY_INLINE pair_vector rounded(pair_vector half) {
    const pair_vector magnitude = hn::And(half, pair_constant(0x7fff));
    const pair_vector last = hn::And(hn::ShiftRight<7>(half), pair_constant(1));
    return hn::Min(hn::Add(hn::Add(magnitude, pair_constant(0x3f)), last), pair_constant(0x3f7f));
  }
  static HWY_INLINE pair_vector to_odd(pair_vector code) {
    return hn::And(hn::ShiftLeft<1>(code), pair_constant(0x7f00));
  }
  static HWY_INLINE pair_vector to_even(pair_vector code) { return hn::ShiftRight<7>(code); }
};

/// The sums of the bytes of one vector, and what is done to them.
template <class T, class Adjust>
struct byte_sums {
  using codes = byte_pairs<T>;
  struct quad {
    float_vector even_low, even_high, odd_low, odd_high;
  };

  static HWY_INLINE float_vector lower(pair_vector half) { return widen_f16(hn::LowerHalf(half_words{}, half)); }
  static HWY_INLINE float_vector upper(pair_vector half) { return widen_f16(hn::UpperHalf(half_words{}, half)); }
  static HWY_INLINE quad widen(pair_vector both) {
    const pair_vector even = codes::even(both), odd = codes::odd(both);
    return {lower(even), upper(even), lower(odd), upper(odd)};
  }
  static HWY_INLINE quad first(const Adjust& how, quad of) {
    return {how.read(of.even_low, 0), how.read(of.even_high, 0), how.read(of.odd_low, 0), how.read(of.odd_high, 0)};
  }
  static HWY_INLINE quad added(const Adjust& how, quad sum, quad more, std::size_t k) {
    if constexpr (Adjust::exact_products)
      return {how.add(sum.even_low, more.even_low, k), how.add(sum.even_high, more.even_high, k),
              how.add(sum.odd_low, more.odd_low, k), how.add(sum.odd_high, more.odd_high, k)};
    else
      return {hn::Add(sum.even_low, more.even_low), hn::Add(sum.even_high, more.even_high),
              hn::Add(sum.odd_low, more.odd_low), hn::Add(sum.odd_high, more.odd_high)};
  }

  /// f32 rounded to odd at the last bit of an f16.
  static HWY_INLINE float_vector to_odd(float_vector value) {
    const word_vector bits = hn::BitCast(words{}, value);
    const word_vector carry = hn::Add(hn::And(bits, constant(0x1fff)), constant(0x1fff));
    return hn::BitCast(floats{}, hn::AndNot(constant(0x1fff), hn::Or(bits, carry)));
  }
  static HWY_INLINE pair_vector to_f16(float_vector low, float_vector high) {
    return hn::Combine(pairs{}, element<f16>::narrow(high), element<f16>::narrow(low));
  }

  template <bool OfTwo>
  static HWY_INLINE pair_vector narrow(const Adjust& how, quad sum) {
    quad total{how.finish(sum.even_low), how.finish(sum.even_high), how.finish(sum.odd_low), how.finish(sum.odd_high)};
    if constexpr (!OfTwo)
      total = {to_odd(total.even_low), to_odd(total.even_high), to_odd(total.odd_low), to_odd(total.odd_high)};
    const pair_vector even = to_f16(total.even_low, total.even_high), odd = to_f16(total.odd_low, total.odd_high);
    const pair_vector even_sign = hn::And(hn::ShiftRight<8>(even), pair_constant(0x80));
    const pair_vector odd_sign = hn::And(odd, pair_constant(0x8000));
    return hn::Or(hn::Or(codes::to_even(codes::rounded(even)), even_sign),
                  hn::Or(codes::to_odd(codes::rounded(odd)), odd_sign));
  }

  /// Whether no operand is a NaN that f16 would take for a number.
  static HWY_INLINE bool ordinary(pair_vector largest) {
    if constexpr (codes::has_infinity) return true;
    const hn::Repartition<std::uint8_t, pairs> d;
    return hn::AllFalse(d, hn::Eq(hn::BitCast(d, largest), hn::Set(d, std::uint8_t{0x7f})));
  }
  /// By byte, of both.
  static HWY_INLINE pair_vector larger(pair_vector largest, pair_vector both) {
    if constexpr (codes::has_infinity) return largest;
    const hn::Repartition<std::uint8_t, pairs> d;
    const auto magnitude = hn::And(hn::BitCast(d, both), hn::Set(d, std::uint8_t{0x7f}));
    return hn::BitCast(pairs{}, hn::Max(hn::BitCast(d, largest), magnitude));
  }

  /// The sum of one vector of all inputs; false if it must be made otherwise.
  template <std::size_t Inputs>
  static HWY_INLINE bool fold(const Adjust& how, const void* const* in, std::size_t inputs, std::size_t offset,
                              pair_vector& result) {
    const pairs d;
    pair_vector next = load_vector(d, at(in[0], offset));
    pair_vector largest = larger(hn::Zero(d), next);
    quad sum = first(how, widen(next));
    for (std::size_t k = 1; k < (Inputs != 0 ? Inputs : inputs); ++k) {
      next = load_vector(d, at(in[k], offset));
      largest = larger(largest, next);
      sum = added(how, sum, widen(next), k);
    }
    result = narrow < Inputs == 2 && !Adjust::exact_products > (how, sum);
    return ordinary(largest);
  }
};

}  // namespace troupe::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // vectors
#endif  // guard
