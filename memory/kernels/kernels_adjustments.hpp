// SPDX-License-Identifier: Apache-2.0
// Private to kernels_scaled_*.cpp: sums whose inputs are multiplied as they are read, or whose result is divided before it is
// written, in vectors. The bits are those of scale() and divide().
// clang-format off: the guard flips with every inclusion, see hwy/foreach_target.h
#if defined(TROUPE_KERNEL_ADJUSTMENTS) == defined(HWY_TARGET_TOGGLE)
#ifdef TROUPE_KERNEL_ADJUSTMENTS
#undef TROUPE_KERNEL_ADJUSTMENTS
#else
#define TROUPE_KERNEL_ADJUSTMENTS
#endif
// clang-format on

#include "memory/kernels/kernels_intrinsics.hpp"
#include "memory/kernels/kernels_vector_loops.hpp"
#include "memory/kernels/scaled_loops.hpp"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

HWY_BEFORE_NAMESPACE();
namespace troupe::detail::HWY_NAMESPACE {

// -- floats -----------------------------------------------------------------------------------------------------------

/// result x constant: division by a power of two.
template <class T>
struct times : unadjusted {
  using tag = typename element<T>::computed;
  hn::TFromD<tag> by;

  explicit times(const adjustment& how) : by(static_cast<hn::TFromD<tag>>(how.reciprocal)) {}
  HWY_INLINE hn::Vec<tag> finish(hn::Vec<tag> value) const { return hn::Mul(value, hn::Set(tag{}, by)); }
};

template <class T>
struct over : unadjusted {
  static constexpr bool for_byte_sums = false;
  using tag = typename element<T>::computed;
  hn::TFromD<tag> by;

  explicit over(const adjustment& how) : by(static_cast<hn::TFromD<tag>>(how.divisor)) {}
  HWY_INLINE hn::Vec<tag> finish(hn::Vec<tag> value) const { return hn::Div(value, hn::Set(tag{}, by)); }
};

// -- integers ---------------------------------------------------------------------------------------------------------

/// The upper half of the product of two unsigned integers.
template <class D>
HWY_INLINE hn::Vec<D> upper_product(D d, hn::Vec<D> a, hn::Vec<D> b) {
  if constexpr (sizeof(hn::TFromD<D>) == 1) {
    const hn::Repartition<std::uint16_t, D> pairs;
    const auto low = hn::Set(pairs, std::uint16_t{0xff});
    const auto x = hn::BitCast(pairs, a), y = hn::BitCast(pairs, b);
    const auto even = hn::ShiftRight<8>(hn::Mul(hn::And(x, low), hn::And(y, low)));
    const auto odd = hn::AndNot(low, hn::Mul(hn::ShiftRight<8>(x), hn::ShiftRight<8>(y)));
    return hn::BitCast(d, hn::Or(even, odd));
  } else if constexpr (sizeof(hn::TFromD<D>) == 4) {
    const hn::Repartition<std::uint64_t, D> pairs;
    const auto x = hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(pairs, a)));
    const auto y = hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(pairs, b)));
    const auto even = hn::ShiftRight<32>(hn::MulEven(a, b));
    const auto odd = hn::AndNot(hn::Set(pairs, 0xffff'ffffu), hn::MulEven(x, y));
    return hn::BitCast(d, hn::Or(even, odd));
  } else {
    // Schoolbook multiplication of two digits of 32 bits; no partial sum overflows.
    const hn::Repartition<std::uint32_t, D> digits;
    const auto low = hn::Set(d, 0xffff'ffffu);
    const auto a0 = hn::BitCast(digits, a), a1 = hn::BitCast(digits, hn::ShiftRight<32>(a));
    const auto b0 = hn::BitCast(digits, b), b1 = hn::BitCast(digits, hn::ShiftRight<32>(b));
    const auto middle = hn::Add(hn::MulEven(a1, b0), hn::ShiftRight<32>(hn::MulEven(a0, b0)));
    const auto carried = hn::Add(hn::MulEven(a0, b1), hn::And(middle, low));
    return hn::Add(hn::Add(hn::MulEven(a1, b1), hn::ShiftRight<32>(middle)), hn::ShiftRight<32>(carried));
  }
}

/// Truncating division of magnitudes by multiplication, see prepare_magic().
template <class T>
struct divided_by_magic : unadjusted {
  using tag = hn::ScalableTag<T>;
  using unsigned_tag = hn::RebindToUnsigned<tag>;
  hn::TFromD<unsigned_tag> magic;
  int shift, shift_more;

  explicit divided_by_magic(const adjustment& how)
      : magic(static_cast<hn::TFromD<unsigned_tag>>(how.magic)), shift(how.shift), shift_more(how.shift_more) {}
  HWY_INLINE hn::Vec<unsigned_tag> quotient(hn::Vec<unsigned_tag> value) const {
    const unsigned_tag d;
    const auto product = upper_product(d, value, hn::Set(d, magic));
    const auto rest = hn::ShiftRightSame(hn::Sub(value, product), shift);
    return hn::ShiftRightSame(hn::Add(product, rest), shift_more);
  }
  HWY_INLINE hn::Vec<tag> finish(hn::Vec<tag> value) const {
    const unsigned_tag d;
    if constexpr (std::is_unsigned_v<T>) {
      return quotient(value);
    } else {
      const auto sign = hn::BitCast(d, hn::BroadcastSignBit(value));
      const auto magnitude = hn::Sub(hn::Xor(hn::BitCast(d, value), sign), sign);
      return hn::BitCast(tag{}, hn::Sub(hn::Xor(quotient(magnitude), sign), sign));
    }
  }
};

/// The same for powers of two: the magnitude of what is negative is rounded down, too.
template <class T>
struct shifted : unadjusted {
  using tag = hn::ScalableTag<T>;
  T below;
  int shift;

  explicit shifted(const adjustment& how) : below(static_cast<T>(how.divisor - 1)), shift(how.shift_more + 1) {}
  HWY_INLINE hn::Vec<tag> finish(hn::Vec<tag> value) const {
    if constexpr (std::is_unsigned_v<T>) return hn::ShiftRightSame(value, shift);
    else return hn::ShiftRightSame(hn::Add(value, hn::And(hn::BroadcastSignBit(value), hn::Set(tag{}, below))), shift);
  }
};

#if HWY_TARGET == HWY_AVX3
/// The same of i8 by products with matrices of bits: three instructions for nine, as there is no shift of bytes. @pre has_gfni()
struct shifted_by_matrix : unadjusted {
  using tag = hn::ScalableTag<std::int8_t>;
  using matrices = hn::Repartition<std::uint64_t, tag>;
  std::uint64_t below = 0,
                down = 0;  ///< which bits a bit of the product is the sum of: a byte each, the last bit's first

  explicit shifted_by_matrix(const adjustment& how) {
    const int shift = how.shift_more + 1;
    for (int bit = 0; bit < 8; ++bit) {
      const int row = 8 * (7 - bit);
      if (bit < shift) below |= std::uint64_t{0x80} << row;  // of what is negative divisor - 1, else 0
      down |= std::uint64_t{1} << (row + std::min(bit + shift, 7));
    }
  }
  /// The compiler must not take the instruction for itself: the set is for processors without it, too.
  static HWY_INLINE hn::Vec<tag> product(std::uint64_t matrix, hn::Vec<tag> value) {
    const auto all = hn::Set(matrices{}, matrix);
    hn::Vec<tag> result;
    asm("vgf2p8affineqb $0, %2, %1, %0" : "=v"(result.raw) : "v"(value.raw), "v"(all.raw));
    return result;
  }
  HWY_INLINE hn::Vec<tag> finish(hn::Vec<tag> value) const {
    return product(down, hn::Add(value, product(below, value)));
  }
};
#endif

// -- factors ----------------------------------------------------------------------------------------------------------

/// The factors as the numbers that elements are multiplied with. Those of the first inputs are kept: the compiler cannot know that what is stored
/// leaves the caller's list alone, and would read and convert it again for every block.
template <class Number>
class factor_list {
public:
  explicit factor_list(const adjustment& how) : factors_(how.factors) {
    for (std::size_t k = 0; k < std::min(how.inputs, std::size(first_)); ++k) first_[k] = converted(k);
  }
  HWY_INLINE Number operator[](std::size_t k) const { return k < std::size(first_) ? first_[k] : converted(k); }

private:
  Number converted(std::size_t k) const {
    if constexpr (std::is_integral_v<Number>) return whole_factor<Number>(factors_[k]);
    else return static_cast<Number>(factors_[k]);
  }
  const double* factors_;
  Number first_[8];
};

/// Input k x factor k. Integers wrap, so T is unsigned for both signednesses; factors are whole.
template <class T>
struct by_factors : unadjusted {
  static constexpr bool for_byte_sums = false;
  using tag = typename element<T>::computed;
  factor_list<hn::TFromD<tag>> factors;

  explicit by_factors(const adjustment& how) : factors(how) {}
  HWY_INLINE hn::Vec<tag> read(hn::Vec<tag> value, std::size_t k) const {
    return vector_op<multiply>::apply(tag{}, value, hn::Set(tag{}, factors[k]));
  }
};

/// The same of f16 and fp8, whose products with short factors are exact in f32: to add them as they are multiplied gives the same bits, and
/// byte_sums may round sums of them.
struct by_short_factors : unadjusted {
  static constexpr bool exact_products = true;
  factor_list<float> factors;

  explicit by_short_factors(const adjustment& how) : factors(how) {}
  HWY_INLINE float_vector factor(std::size_t k) const { return hn::Set(floats{}, factors[k]); }
  HWY_INLINE float_vector read(float_vector value, std::size_t k) const { return hn::Mul(value, factor(k)); }
  HWY_INLINE float_vector add(float_vector sum, float_vector value, std::size_t k) const {
    return hn::MulAdd(value, factor(k), sum);
  }
};

/// Integers, all by the same factor: products distribute over sums that wrap.
template <class T>
struct by_one_factor : unadjusted {
  using tag = hn::ScalableTag<T>;
  T factor;

  explicit by_one_factor(const adjustment& how) : factor(whole_factor<T>(how.factors[0])) {}
  HWY_INLINE hn::Vec<tag> finish(hn::Vec<tag> value) const {
    return vector_op<multiply>::apply(tag{}, value, hn::Set(tag{}, factor));
  }
};

/// f32 x f64, rounded once.
struct by_wide_factors : unadjusted {
  const double* factors;

  explicit by_wide_factors(const adjustment& how) : factors(how.factors) {}
  HWY_INLINE float_vector read(float_vector value, std::size_t k) const {
    const hn::Repartition<double, floats> wide;
    const hn::Half<floats> half;
    const auto factor = hn::Set(wide, factors[k]);
    const auto lower = hn::DemoteTo(half, hn::Mul(hn::PromoteTo(wide, hn::LowerHalf(half, value)), factor));
    const auto upper = hn::DemoteTo(half, hn::Mul(hn::PromoteTo(wide, hn::UpperHalf(half, value)), factor));
    return hn::Combine(floats{}, upper, lower);
  }
};

// -- kernels ----------------------------------------------------------------------------------------------------------

/// @tparam Plain the call's type, where T is the unsigned one of its width: plain loops know signs
template <class T, class Adjust, class Plain>
void fold_adjusted(std::span<const void* const> in, std::size_t offset, void* out, std::size_t count,
                   const adjustment& how) {
  const fold_of<add, T, Adjust> fold{Adjust{how}};
  if (!enough_for(fold, count)) return adjusted_elements<Plain>(in, offset, out, count, how);
  if (in.size() == 2) fold.template run<2>(in, offset, static_cast<std::byte*>(out), count);
  else fold.template run<0>(in, offset, static_cast<std::byte*>(out), count);
}

template <class T, class Adjust>
void stream_adjusted(std::span<const void* const> in, std::span<void* const> out, std::size_t offset,
                     std::size_t length, const adjustment& how) {
  fold_of<add, T, Adjust>{Adjust{how}}.run_streamed(in, out, offset, length);
}

/// One of two ways, by what was prepared.
template <class T, class First, class Second, bool (*Is)(const adjustment&), class Plain = T>
struct either {
  static void fold(std::span<const void* const> in, std::size_t offset, void* out, std::size_t count,
                   const adjustment& how) {
    if (Is(how)) fold_adjusted<T, First, Plain>(in, offset, out, count, how);
    else fold_adjusted<T, Second, Plain>(in, offset, out, count, how);
  }
  static void stream(std::span<const void* const> in, std::span<void* const> out, std::size_t offset,
                     std::size_t length, const adjustment& how) {
    if (Is(how)) stream_adjusted<T, First>(in, out, offset, length, how);
    else stream_adjusted<T, Second>(in, out, offset, length, how);
  }
};

/// Vectors shorter than 16 bytes have no streaming store.
template <class T, class Ways>
constexpr kernels kernels_of() {
  if constexpr (fold_of<add, T>::bytes >= 16) return {nullptr, &Ways::fold, &Ways::stream};
  else return {nullptr, &Ways::fold, nullptr};
}

inline bool has_reciprocal(const adjustment& how) { return how.reciprocal != 0; }
/// As byte_sums takes them.
inline bool has_large_reciprocal(const adjustment& how) { return how.reciprocal >= 1.0 / 128; }
inline bool is_narrow(const adjustment& how) { return how.factors_fit_f32; }
inline bool are_short(const adjustment& how) { return how.short_factors; }
inline bool always(const adjustment&) { return true; }
inline bool have_one_factor(const adjustment& how) { return how.same_factors; }

template <class T>
kernels adjusted_kernels(adjusting how) {
  if constexpr (std::is_integral_v<T>) {
    // Wrapping products do not know signs.
    using word = std::make_unsigned_t<T>;
    if (how == adjusting::scaling)
      return kernels_of<word, either<word, by_one_factor<word>, by_factors<word>, &have_one_factor, T>>();
#if HWY_TARGET == HWY_AVX3
    if constexpr (std::is_same_v<T, std::int8_t>)
      if (has_gfni()) return kernels_of<T, either<T, shifted_by_matrix, divided_by_magic<T>, &has_reciprocal>>();
#endif
    return kernels_of<T, either<T, shifted<T>, divided_by_magic<T>, &has_reciprocal>>();
  } else if constexpr (std::is_same_v<T, float>) {
    if (how == adjusting::scaling) return kernels_of<T, either<T, by_factors<T>, by_wide_factors, &is_narrow>>();
    return kernels_of<T, either<T, times<T>, over<T>, &has_reciprocal>>();
  } else {
    constexpr bool has_exact_products = std::is_same_v<T, f16> || sizeof(T) == 1;
    using first_way = std::conditional_t<has_exact_products, by_short_factors, by_factors<T>>;
    constexpr auto is_first = has_exact_products ? &are_short : &always;
    if (how == adjusting::scaling) return kernels_of<T, either<T, first_way, by_factors<T>, is_first>>();
    if constexpr (sizeof(T) == 1) return kernels_of<T, either<T, times<T>, over<T>, &has_large_reciprocal>>();
    else return kernels_of<T, either<T, times<T>, over<T>, &has_reciprocal>>();
  }
}

}  // namespace troupe::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // vectors
#endif  // guard
