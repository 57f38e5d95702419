// SPDX-License-Identifier: Apache-2.0
// Private to kernels_*.cpp: elements and operations as vectors; kernels_vector_loops.hpp has the loops over them. Compiled
// once for every instruction set that Highway dispatches to (include it after hwy/foreach_target.h). Empty on targets
// without vectors, where the loops of kernel_loops.hpp serve. Results are the same bits everywhere (a NaN: some NaN).
//
// Every load and store is of bytes, so no pointer need be aligned and no element type is aliased.
// clang-format off: the guard flips with every inclusion, see hwy/foreach_target.h
#if defined(TROUPE_KERNEL_VECTORS) == defined(HWY_TARGET_TOGGLE)
#ifdef TROUPE_KERNEL_VECTORS
#undef TROUPE_KERNEL_VECTORS
#else
#define TROUPE_KERNEL_VECTORS
#endif
// clang-format on

#include "memory/kernels/kernel_loops.hpp"

#include <hwy/highway.h>

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

HWY_BEFORE_NAMESPACE();
namespace troupe::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// -- elements -------------------------------------------------------------------------------------

template <class D>
HWY_INLINE hn::Vec<D> load_vector(D d, const std::byte* from) {
  const hn::Repartition<std::uint8_t, D> bytes;
  return hn::BitCast(d, hn::LoadU(bytes, reinterpret_cast<const std::uint8_t*>(from)));
}

template <class D>
HWY_INLINE void store_vector([[maybe_unused]] D d, hn::Vec<D> value, std::byte* to) {
  const hn::Repartition<std::uint8_t, D> bytes;
  hn::StoreU(hn::BitCast(bytes, value), bytes, reinterpret_cast<std::uint8_t*>(to));
}

/// Past the caches. @pre `to` is aligned to the vector
template <class D>
HWY_INLINE void stream_vector([[maybe_unused]] D d, hn::Vec<D> value, std::byte* to) {
  const hn::Repartition<std::uint8_t, D> bytes;
  hn::Stream(hn::BitCast(bytes, value), bytes, reinterpret_cast<std::uint8_t*>(to));
}

#if HWY_TARGET <= HWY_AVX3
#define TROUPE_MASKS 1  // masked loads and stores of bytes that never fault on what they leave out
template <class D>
HWY_INLINE hn::Vec<D> load_first(D d, const std::byte* from, std::size_t count) {
  const hn::Repartition<std::uint8_t, D> bytes;
  const auto mask = hn::FirstN(bytes, count * sizeof(hn::TFromD<D>));
  return hn::BitCast(d, hn::MaskedLoad(mask, bytes, reinterpret_cast<const std::uint8_t*>(from)));
}

template <class D>
HWY_INLINE void store_first(D d, hn::Vec<D> value, std::byte* to, std::size_t count) {
  const hn::Repartition<std::uint8_t, D> bytes;
  const auto mask = hn::FirstN(bytes, count * sizeof(hn::TFromD<D>));
  hn::BlendedStore(hn::BitCast(bytes, value), mask, bytes, reinterpret_cast<std::uint8_t*>(to));
}
#else
#define TROUPE_MASKS 0
#endif

/// How T becomes a vector of what it is computed in. `stored` is the vector in memory, `computed` the one in arithmetic;
/// both have the same number of elements.
template <class T>
struct element {
  using stored = hn::ScalableTag<T>;
  using computed = stored;
  using vector = hn::Vec<computed>;
  static HWY_INLINE vector widen(vector value) { return value; }
  static HWY_INLINE vector narrow(vector value) { return value; }
};

using floats = hn::ScalableTag<float>;
using float_vector = hn::Vec<floats>;
using words = hn::RebindToUnsigned<floats>;
using word_vector = hn::Vec<words>;
using half_words = hn::Rebind<std::uint16_t, floats>;
using quarter_words = hn::Rebind<std::uint8_t, floats>;

/// The conversion instructions of F16C, AVX-512 and NEON.
HWY_INLINE float_vector widen_f16(hn::Vec<half_words> codes) {
  const hn::Rebind<hwy::float16_t, floats> halves;
  return hn::PromoteTo(floats{}, hn::BitCast(halves, codes));
}

template <>
struct element<f16> {
  using stored = half_words;
  using computed = floats;
  using vector = float_vector;
  static HWY_INLINE vector widen(hn::Vec<stored> codes) { return widen_f16(codes); }
  static HWY_INLINE hn::Vec<stored> narrow(vector value) {
    const hn::Rebind<hwy::float16_t, floats> halves;
    return hn::BitCast(stored{}, hn::DemoteTo(halves, value));
  }
};

template <>
struct element<bf16> {
  using stored = half_words;
  using computed = floats;
  using vector = float_vector;
  static HWY_INLINE vector widen(hn::Vec<stored> codes) {
    return hn::BitCast(computed{}, hn::ShiftLeft<16>(hn::PromoteTo(words{}, codes)));
  }
  /// See struct bf16; Highway 1.0's own conversion truncates.
  static HWY_INLINE hn::Vec<stored> narrow(vector value) {
    const words d;
    const word_vector wide = hn::BitCast(d, value);
    const word_vector upper = hn::ShiftRight<16>(wide);
    const word_vector odd = hn::And(upper, hn::Set(d, 1));
    const word_vector rounded = hn::ShiftRight<16>(hn::Add(hn::Add(wide, hn::Set(d, 0x7fff)), odd));
    const word_vector quiet = hn::Or(upper, hn::Set(d, 0x40));
    const auto is_nan = hn::RebindMask(d, hn::IsNaN(value));
    return hn::TruncateTo(stored{}, hn::IfThenElse(is_nan, quiet, rounded));
  }
};

HWY_INLINE word_vector constant(std::uint32_t word) { return hn::Set(words{}, word); }

/// float_format::format::narrow, word for word.
template <int Exponent, int Mantissa, bool FiniteOnly>
HWY_INLINE word_vector narrow_to_byte(float_vector value) {
  using format = float_format::format<Exponent, Mantissa, FiniteOnly>;
  const words d;
  const word_vector bits = hn::BitCast(d, value);
  const word_vector magnitude = hn::And(bits, constant(0x7fff'ffffu));
  const word_vector sign = hn::And(hn::ShiftRight<31 - Exponent - Mantissa>(bits), constant(0x80u));

  const word_vector odd = hn::And(hn::ShiftRight<format::shift>(magnitude), constant(1));
  const word_vector bias = constant(((1u << (format::shift - 1)) - 1) - format::rebias);
  const word_vector normal = hn::ShiftRight<format::shift>(hn::Add(hn::Add(magnitude, bias), odd));
  constexpr std::uint32_t magic = format::rebias + (static_cast<std::uint32_t>(format::shift + 1) << 23);
  const word_vector subnormal =
      hn::Sub(hn::BitCast(d, hn::Add(hn::BitCast(floats{}, magnitude), hn::BitCast(floats{}, constant(magic)))),
              constant(magic));

  const auto is_small = hn::Lt(magnitude, constant(format::smallest_normal));
  constexpr std::uint32_t largest = FiniteOnly ? format::special - 1 : format::special;
  word_vector result = hn::Min(hn::IfThenElse(is_small, subnormal, normal), constant(largest));
  if constexpr (FiniteOnly) {
    result = hn::IfThenElse(hn::Lt(magnitude, constant(0x7f80'0000u)), result, constant(format::special));
  } else {
    const word_vector payload = hn::And(hn::ShiftRight<format::shift>(magnitude), constant((1u << Mantissa) - 1));
    const word_vector quiet = hn::Or(payload, constant(format::special | (1u << (Mantissa - 1))));
    result = hn::IfThenElse(hn::Gt(magnitude, constant(0x7f80'0000u)), quiet, result);
  }
  return hn::Or(result, sign);
}

/// An e5m2 is the upper half of an f16.
template <>
struct element<f8e5m2> {
  using stored = quarter_words;
  using computed = floats;
  using vector = float_vector;
  static HWY_INLINE vector widen(hn::Vec<stored> codes) {
    return widen_f16(hn::ShiftLeft<8>(hn::PromoteTo(half_words{}, codes)));
  }
  static HWY_INLINE hn::Vec<stored> narrow(vector value) {
    return hn::TruncateTo(stored{}, narrow_to_byte<5, 2, false>(value));
  }
};

/// An e4m3, moved to an f16's exponent and mantissa, is the same number over 2^8 (the difference of the biases), also
/// when subnormal; only the NaN needs care.
template <>
struct element<f8e4m3> {
  using stored = quarter_words;
  using computed = floats;
  using vector = float_vector;
  static HWY_INLINE vector widen(hn::Vec<stored> codes) {
    const half_words d;
    const auto wide = hn::PromoteTo(d, codes);
    const auto magnitude = hn::And(wide, hn::Set(d, 0x7f));
    const auto sign = hn::ShiftLeft<8>(hn::Xor(wide, magnitude));
    // The NaN's code becomes an f16 NaN.
    const auto number =
        hn::IfThenElse(hn::Eq(magnitude, hn::Set(d, 0x7f)), hn::Set(d, 0x7e00), hn::ShiftLeft<7>(magnitude));
    return hn::Mul(widen_f16(hn::Or(number, sign)), hn::Set(computed{}, 256.0f));
  }
  static HWY_INLINE hn::Vec<stored> narrow(vector value) {
    return hn::TruncateTo(stored{}, narrow_to_byte<4, 3, true>(value));
  }
};

// -- operations -----------------------------------------------------------------------------------

template <class Op>
struct vector_op;

template <>
struct vector_op<add> {
  template <class D, class V>
  static HWY_INLINE V apply(D, V left, V right) {
    return hn::Add(left, right);
  }
};

template <>
struct vector_op<multiply> {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V left, V right) {
    if constexpr (sizeof(hn::TFromD<D>) == 1) {
      // No 8-bit multiplication exists: the low halves of 16-bit products, even and odd bytes apart.
      const hn::Repartition<std::uint16_t, D> pairs;
      const auto a = hn::BitCast(pairs, left), b = hn::BitCast(pairs, right);
      const auto even = hn::And(hn::Mul(a, b), hn::Set(pairs, std::uint16_t{0xff}));
      const auto odd = hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(a), hn::ShiftRight<8>(b)));
      return hn::BitCast(d, hn::Or(even, odd));
    } else {
      return hn::Mul(left, right);
    }
  }
};

/// Real and imaginary parts in turn. The subtraction is the addition of what is negative: the same bits.
template <>
struct vector_op<multiply_complex> {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V left, V right) {
    const auto real = hn::Mul(hn::DupEven(left), right);                       // ac, ad
    const auto imaginary = hn::Mul(hn::DupOdd(left), hn::Reverse2(d, right));  // bd, bc
    const auto minus = hn::OddEven(hn::Zero(d), hn::SignBit(d));
    return hn::Add(real, hn::Xor(imaginary, minus));
  }
};

template <bool Largest>
struct vector_op<extreme<Largest>> {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V left, V right) {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
#if HWY_ARCH_X86
      // x86 gives the second operand when one is a NaN and when both are zeros. So both orders together hold every NaN
      // and every sign of a zero.
      if constexpr (Largest) {
        const V one = hn::Max(left, right), other = hn::Max(right, left);
        const V either = hn::Or(one, other);  // a NaN if one of them is
        return hn::IfThenElse(hn::IsNaN(either), either, hn::And(one, other));
      } else {
        return hn::Or(hn::Min(left, right), hn::Min(right, left));
      }
#else
      // Arm gives the number when one operand is a NaN (fminnm, fmaxnm), and the right zero.
      const V number = Largest ? hn::Max(left, right) : hn::Min(left, right);
      return hn::IfThenElse(hn::Or(hn::IsNaN(left), hn::IsNaN(right)), hn::Add(left, right), number);
#endif
    } else {
      static_cast<void>(d);
      return Largest ? hn::Max(left, right) : hn::Min(left, right);
    }
  }
};

template <>
struct vector_op<logical_and> {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V left, V right) {
    // Eq, not Ne: a NaN is true, but Highway's Ne is ordered on some targets.
    const auto no = hn::Or(hn::Eq(left, hn::Zero(d)), hn::Eq(right, hn::Zero(d)));
    return hn::IfThenZeroElse(no, hn::Set(d, hn::TFromD<D>{1}));
  }
};

template <>
struct vector_op<logical_or> {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V left, V right) {
    const auto neither = hn::And(hn::Eq(left, hn::Zero(d)), hn::Eq(right, hn::Zero(d)));
    return hn::IfThenZeroElse(neither, hn::Set(d, hn::TFromD<D>{1}));
  }
};

template <>
struct vector_op<bit_and> {
  template <class D, class V>
  static HWY_INLINE V apply(D, V left, V right) {
    return hn::And(left, right);
  }
};

template <>
struct vector_op<bit_or> {
  template <class D, class V>
  static HWY_INLINE V apply(D, V left, V right) {
    return hn::Or(left, right);
  }
};

template <>
struct vector_op<bit_xor> {
  template <class D, class V>
  static HWY_INLINE V apply(D, V left, V right) {
    return hn::Xor(left, right);
  }
};

}  // namespace troupe::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // vectors
#endif  // guard
