// SPDX-License-Identifier: Apache-2.0
// Which sums can be scaled or divided in vectors, and how.
#include "memory/kernels/kernels.hpp"
#include "memory/kernels/scaled_loops.hpp"

#include <array>
#include <bit>
#include <cmath>

namespace troupe::detail {

namespace {

/// Unsigned division by multiplication (T. Granlund, P. Montgomery, "Division by Invariant Integers using Multiplication", 1994,
/// section 4): with N bits and l = ⌈log2 d⌉, magic = ⌊2^N (2^l - d) / d⌋ + 1 and t = ⌊magic n / 2^N⌋, the quotient is
/// (t + (n - t) / 2) / 2^(l - 1). @pre divisor >= 2
void prepare_magic(adjustment& how, int bits) {
  if (bits < 64 && how.divisor >> bits != 0) {  // more than any magnitude: shifted out
    how.magic = 0;
    how.shift = 1;
    how.shift_more = bits - 1;
    return;
  }
  __extension__ using wide = unsigned __int128;
  const int log = static_cast<int>(std::bit_width(how.divisor - 1));
  how.magic = static_cast<std::uint64_t>((((wide{1} << log) - how.divisor) << bits) / how.divisor) + 1;
  how.shift = 1;
  how.shift_more = log - 1;
}

/// Sums of two fp8, x the same power of two both. @pre find_sum_of_two(Type, common_factor(how))
template <datatype Type>
void sum_pair(std::span<const void* const> in, std::size_t offset, void* out, std::size_t count,
              const adjustment& how) {
  find_sum_of_two(Type, common_factor(how))(at(in[0], offset), at(in[1], offset), out, count, how);
}

kernels in_vectors(datatype type, adjusting what) {
  using row = std::array<kernels, 2>;
  static const std::array<row, all_datatypes.size()> table = [] {
    std::array<row, all_datatypes.size()> all;
    for (const datatype t : all_datatypes)  // none for complex types, whose parts are asked for
      for (const adjusting a : {adjusting::dividing, adjusting::scaling})
        all[static_cast<std::size_t>(t)][static_cast<std::size_t>(a)] =
            is_integer(t) ? scaled_integer_kernels(t, a) : scaled_float_kernels(t, a);
    return all;
  }();
  return table[static_cast<std::size_t>(type)][static_cast<std::size_t>(what)];
}

template <class T>
bool vectors_are_exact(const sum_scaling& scaling, std::size_t inputs) {
  if (scaling.factors == nullptr) {
    // Vectors divide f32 by an f32.
    constexpr std::size_t exact_in_f32 = std::size_t{1} << std::numeric_limits<float>::digits;
    return !std::is_same_v<T, float> || scaling.divisor <= exact_in_f32;
  }
  if constexpr (std::is_integral_v<T>) {
    const std::span<const double> all{scaling.factors, inputs};
    return std::all_of(all.begin(), all.end(), [](double factor) { return is_whole<T>(factor); });
  }
  return true;
}

bool are_short(std::span<const double> factors) {
  return std::all_of(factors.begin(), factors.end(),
                     [](double factor) { return std::abs(factor) < 64 && std::trunc(factor * 128) == factor * 128; });
}

bool fit_f32(std::span<const double> factors) {
  return std::all_of(factors.begin(), factors.end(), [](double factor) {
    return static_cast<double>(static_cast<float>(factor)) == factor || factor != factor;
  });
}

}  // namespace

void fold_in_f32(datatype type, std::span<const void* const> in, std::size_t offset, void* out, std::size_t count,
                 const adjustment& how) {
  if (how.factors == nullptr && how.divisor == 1)
    return f8_kernels(type, op_kind::sum).fold(in, offset, out, count, how);
  fold_kernel fold = in_vectors(type, how.factors != nullptr ? adjusting::scaling : adjusting::dividing).fold;
  with_float_type(type, [&]<class T>() {
    if (fold == nullptr) fold = &adjusted_elements<T>;
  });
  fold(in, offset, out, count, how);
}

adjusted_sum find_adjusted(datatype type, const sum_scaling& scaling, std::size_t inputs) {
  const adjusting what = scaling.factors != nullptr ? adjusting::scaling : adjusting::dividing;
  adjusted_sum made{in_vectors(type, what), {}};
  made.how.factors = scaling.factors;
  made.how.inputs = inputs;
  made.how.divisor = scaling.divisor;
  const int bits = static_cast<int>(8 * size_of(type));
  if (what == adjusting::scaling) {
    const std::span<const double> factors{scaling.factors, inputs};
    made.how.factors_fit_f32 = fit_f32(factors);
    made.how.short_factors = are_short(factors);
    made.how.same_factors = std::all_of(factors.begin(), factors.end(), [&](double f) { return f == factors[0]; });
  } else {
    if (is_integer(type)) prepare_magic(made.how, bits);
    if (std::has_single_bit(scaling.divisor) && (!is_integer(type) || scaling.divisor >> (bits - 1) <= 1))
      made.how.reciprocal = 1 / static_cast<double>(scaling.divisor);
  }
  if (inputs == 2 && find_sum_of_two(type, common_factor(made.how)) != nullptr)
    made.use.fold = type == datatype::f8e4m3 ? &sum_pair<datatype::f8e4m3> : &sum_pair<datatype::f8e5m2>;
  else if (const fold_kernel fold = find_fold_of_fp8(type, common_factor(made.how), inputs); fold != nullptr)
    made.use.fold = fold;
  with_type(type, [&]<class T>() {
    if (made.use.fold == nullptr || !vectors_are_exact<T>(scaling, inputs))
      made.use = {nullptr, &adjusted_elements<T>, nullptr};
  });
  return made;
}

}  // namespace troupe::detail
