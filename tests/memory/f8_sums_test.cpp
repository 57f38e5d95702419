// SPDX-License-Identifier: Apache-2.0
// Sums of fp8 the faster ways, of two in f16 arithmetic and by tables of bytes, of several in bf16 or in words, against f32: all pairs of codes, with the
// factors they have.
#include "memory/kernels/kernel_loops.hpp"
#include "memory/kernels/scaled_loops.hpp"
#include "tests/memory/vectors.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

using namespace troupe;
using namespace memory_tests;

namespace {

struct way {
  std::string name;
  detail::sum_of_two (*find)(datatype, double);
  std::vector<double> factors;
};

const std::vector<way>& all_ways() {
  static const std::vector<way> ways{
      {"in f16", &detail::find_sum_in_f16, {1, 0.5, 0.25, 1.0 / 128, 2, 32}},
      {"in bytes", &detail::find_sum_in_bytes, {1, 0.5, 0.25, 2, 4, 8, 16, 32}},
  };
  return ways;
}

/// A factor as a caller names it: for both inputs, or as a divisor.
struct adjusted_by {
  std::array<double, 2> factors;
  detail::adjustment how;

  adjusted_by(double factor, bool divides) : factors{factor, factor} {
    how.inputs = 2;
    if (divides) {
      how.divisor = static_cast<std::size_t>(1 / factor);
      how.reciprocal = factor;
    } else {
      how.factors = factors.data();
      how.factors_fit_f32 = how.same_factors = how.short_factors = true;
    }
  }
  adjusted_by(const adjusted_by&) = delete;
  adjusted_by& operator=(const adjusted_by&) = delete;
};

template <class T>
T sum_in_f32(T left, T right, double factor) {
  return static_cast<T>((static_cast<float>(left) + static_cast<float>(right)) * static_cast<float>(factor));
}

template <class T>
bool is_finite(T code) {
  return std::isfinite(static_cast<float>(code));
}

/// All pairs and some more, so that the last vector is not whole.
template <class T>
void check_every_pair(const way& by, double factor, bool divides, bool finite) {
  const adjusted_by adjusted{factor, divides};
  std::vector<T> left(65536 + 71), right(65536 + 71), found(65536 + 71);
  for (std::size_t i = 0; i < left.size(); ++i) {
    left[i] = T::from_bits(static_cast<std::uint8_t>(i));
    right[i] = T::from_bits(static_cast<std::uint8_t>(i / 256));
    for (T* code : {&left[i], &right[i]})
      if (finite && !is_finite(*code)) *code = T{};
  }
  by.find(datatype_of<T>, factor)(left.data(), right.data(), found.data(), left.size(), adjusted.how);
  for (std::size_t i = 0; i < left.size(); ++i)
    REQUIRE_MESSAGE(same(found[i], sum_in_f32(left[i], right[i], factor)),
                    by.name << " " << name(datatype_of<T>) << " " << int{left[i].bits} << " + " << int{right[i].bits}
                            << ", factor " << factor << (divides ? ", a divisor" : ""));
}

/// `count` elements between pages that must not be touched; the output another region, or one of the inputs.
template <class T>
void check_count(const way& by, double factor, std::size_t count, random_engine& random) {
  const adjusted_by adjusted{factor, false};
  const bool finite = random() % 4 != 0;
  const fenced left{count, random() % 2 == 0, below(random, 64)}, right{count, random() % 2 == 0, below(random, 64)};
  const fenced apart{count, random() % 2 == 0, below(random, 64)};
  std::vector<T> wanted(count);
  for (const fenced* input : {&left, &right}) {
    input->template randomise<T>(random);
    for (std::size_t i = 0; finite && i < count; ++i)
      if (!is_finite(detail::load<T>(input->data(), i))) detail::store(input->data(), i, T{});
  }
  for (std::size_t i = 0; i < count; ++i)
    wanted[i] = sum_in_f32(detail::load<T>(left.data(), i), detail::load<T>(right.data(), i), factor);
  const fenced& out = random() % 3 == 0 ? left : random() % 2 == 0 ? right : apart;
  by.find(datatype_of<T>, factor)(left.data(), right.data(), out.data(), count, adjusted.how);
  for (std::size_t i = 0; i < count; ++i)
    REQUIRE_MESSAGE(same(detail::load<T>(out.data(), i), wanted[i]), by.name << " " << name(datatype_of<T>)
                                                                             << " element " << i << " of " << count
                                                                             << ", factor " << factor);
}

template <class Function>
void for_each_way(Function function) {
  for (const way& by : all_ways()) {
    if (by.find(datatype::f8e4m3, 1) == nullptr) {
      MESSAGE("skipped: this processor has no sums " << by.name);
      continue;
    }
    function.template operator()<f8e4m3>(by);
    function.template operator()<f8e5m2>(by);
  }
}

/// What the kernel says that the processor has; empty where it says nothing.
std::string flags_of_processor() {
#if defined(__x86_64__)  // elsewhere it may be an emulator's computer that has them
  std::ifstream file{"/proc/cpuinfo"};
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("flags")) return line + " ";
#endif
  return {};
}

}  // namespace

TEST_CASE("sums of two fp8 times a power of two: every pair of codes") {
  for_each_way([]<class T>(const way& by) {
    for (const double factor : by.factors)
      for (const bool divides : {false, true})
        // What is not finite sends all around it another way; so once without.
        for (const bool finite : {true, false})
          if (!divides || factor <= 1) check_every_pair<T>(by, factor, divides, finite);
  });
}

TEST_CASE("sums of two fp8: every remainder, at any place, also in place, and nothing else is touched") {
  random_engine random{seed()};
  for_each_way([&]<class T>(const way& by) {
    for (const double factor : {1.0, 0.5, 2.0})
      for (int round = 0; round < 4; ++round)
        for (std::size_t count = 0; count <= 130; ++count) check_count<T>(by, factor, count, random);
    for (int round = 0; round < 200; ++round) check_count<T>(by, 1, below(random, 3000), random);
  });
}

TEST_CASE("sums of two fp8: one number that is not finite among others, wherever it is") {
  for_each_way([]<class T>(const way& by) {
    constexpr std::size_t count = 700;
    const adjusted_by adjusted{1, false};
    for (std::size_t at = 0; at < count; ++at) {
      std::vector<T> left(count, T{1.5f}), right(count, T{0.25f}), found(count);
      (at % 2 == 0 ? left : right)[at] = T{INFINITY};  // an e4m3 has none: NaN
      by.find(datatype_of<T>, 1)(left.data(), right.data(), found.data(), count, adjusted.how);
      for (std::size_t i = 0; i < count; ++i)
        REQUIRE_MESSAGE(same(found[i], sum_in_f32(left[i], right[i], 1)),
                        by.name << " " << name(datatype_of<T>) << " element " << i << ", not finite: " << at);
    }
  });
}

namespace {

/// The ways to sum more than two.
template <class T>
detail::fold_kernel find_fold(double factor, std::size_t inputs) {
  constexpr datatype type = datatype_of<T>;
  return type == datatype::f8e4m3 ? detail::find_fold_in_bf16(type, factor, inputs)
                                  : detail::find_fold_in_words(type, factor);
}
/// False: there is none on this processor, and it is said so.
template <class T>
bool has_fold() {
  if (find_fold<T>(1, 3) != nullptr) return true;
  MESSAGE("skipped: this processor has no fast way to sum " << name(datatype_of<T>));
  return false;
}

}  // namespace

TEST_CASE_TEMPLATE("sums of several fp8: any number of inputs, any count, any place, also in place", T, f8e4m3,
                   f8e5m2) {
  if (!has_fold<T>()) return;
  random_engine random{seed()};
  constexpr bool has_infinity = std::is_same_v<T, f8e5m2>;
  constexpr unsigned special = has_infinity ? 0x7c : 0x7f, largest = special - 1, low_bits = has_infinity ? 0x83 : 0x87;
  for (int round = 0; round < 1500; ++round) {
    const std::size_t inputs = 2 + (round % 4 == 0 ? below(random, 63) : below(random, 8));
    const std::size_t count = round % 2 == 0 ? below(random, 131) : below(random, 1500), offset = below(random, 70);
    constexpr double factors[] = {1, 1, 0.5, 0.125, 1.0 / 128, 2, 32};
    const double factor = factors[below(random, std::size(factors))];
    const std::vector<double> all(inputs, factor);
    detail::adjustment how;
    how.inputs = inputs;
    if (random() % 2 == 0 && factor <= 1) {
      how.divisor = static_cast<std::size_t>(1 / factor);
      how.reciprocal = factor;
    } else {
      how.factors = all.data();
      how.factors_fit_f32 = how.same_factors = how.short_factors = true;
    }
    // Largest numbers that add up, numbers and zeros of both signs, or any: then there are NaNs, too.
    const int kind = round % 3;
    std::vector<std::unique_ptr<fenced>> regions;
    std::vector<const void*> in;
    for (std::size_t k = 0; k < inputs; ++k) {
      regions.push_back(std::make_unique<fenced>(count + offset, random() % 2 == 0, below(random, 64)));
      std::byte* const data = regions.back()->data();
      regions.back()->template randomise<T>(random);
      for (std::size_t i = 0; i < count + offset; ++i) {
        const auto code = std::to_integer<unsigned>(data[i]);
        if (kind == 0) data[i] = std::byte{static_cast<unsigned char>(i % 3 == 0 ? largest : code & low_bits)};
        else if (kind == 1 && (code & 0x7f) >= special) data[i] = std::byte{0x80};
      }
      in.push_back(data);
    }
    std::vector<std::byte> wanted(count + 1);
    detail::adjusted_elements<T>(in, offset, wanted.data(), count, how);
    const fenced apart{count, random() % 2 == 0, below(random, 64)};
    std::byte* const out = random() % 2 == 0 ? apart.data() : regions[below(random, inputs)]->data() + offset;
    find_fold<T>(factor, inputs)(in, offset, out, count, how);
    for (std::size_t i = 0; i < count; ++i)
      REQUIRE_MESSAGE(same(detail::load<T>(out, i), detail::load<T>(wanted.data(), i)),
                      "element " << i << " of " << count << ", " << inputs << " inputs, factor " << factor);
  }
}

TEST_CASE_TEMPLATE("sums of fp8 by the ways for several: every pair of codes, with every factor", T, f8e4m3, f8e5m2) {
  if (!has_fold<T>()) return;
  for (double factor = 1.0 / 128; factor <= 32; factor *= 2) {
    const adjusted_by adjusted{factor, factor < 1};
    std::vector<T> left(65536), right(65536), found(65536);
    for (std::size_t i = 0; i < left.size(); ++i) {
      left[i] = T::from_bits(static_cast<std::uint8_t>(i));
      right[i] = T::from_bits(static_cast<std::uint8_t>(i / 256));
      if (!is_finite(left[i])) left[i] = T{};
    }
    const void* const in[] = {left.data(), right.data()};
    find_fold<T>(factor, 2)({in, 2}, 0, found.data(), found.size(), adjusted.how);
    for (std::size_t i = 0; i < left.size(); ++i)
      REQUIRE_MESSAGE(same(found[i], sum_in_f32(left[i], right[i], factor)),
                      int{left[i].bits} << " + " << int{right[i].bits} << ", factor " << factor);
  }
}

#if defined(__x86_64__)
TEST_CASE("sums of several f8e5m2 are the same bits in a thread whose processor takes subnormal numbers for zeros") {
  if (!has_fold<f8e5m2>()) return;
  constexpr std::size_t count = 256;
  std::vector<f8e5m2> tiny(count, f8e5m2::from_bits(1)), found(count);
  const void* const in[] = {tiny.data(), tiny.data(), tiny.data()};
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);  // FTZ, DAZ
  find_fold<f8e5m2>(1, 3)({in, 3}, 0, found.data(), count, {});
  _mm_setcsr(before);
  for (const f8e5m2 sum : found) REQUIRE(sum.bits == 3);
}
#endif

TEST_CASE("factors that a faster way does not have are not promised") {
  for (const datatype type : {datatype::f8e4m3, datatype::f8e5m2})
    for (const double factor : {0.0, -1.0, 3.0, 0.3, 1.0 / 256, 64.0, double{INFINITY}, double{NAN}})
      for (const way& by : all_ways()) CHECK((by.find(type, factor) == nullptr));
  CHECK((detail::find_sum_in_bytes(datatype::f8e4m3, 1.0 / 8) == nullptr));
  for (const double factor : {0.0, -1.0, 3.0, 1.0 / 256, 64.0, double{NAN}})
    CHECK((detail::find_fold_in_bf16(datatype::f8e4m3, factor, 3) == nullptr));
  CHECK((detail::find_fold_in_bf16(datatype::f8e4m3, 1, 65) == nullptr));  // sums are not exact
  CHECK((detail::find_fold_in_bf16(datatype::f8e5m2, 1, 3) == nullptr));
  for (const double factor : {0.0, -1.0, 3.0, 1.0 / 256, 64.0, double{NAN}})
    CHECK((detail::find_fold_in_words(datatype::f8e5m2, factor) == nullptr));
  CHECK((detail::find_fold_in_words(datatype::f8e4m3, 1) == nullptr));
  for (const datatype type : {datatype::f16, datatype::bf16, datatype::u8, datatype::f32})
    for (const way& by : all_ways()) CHECK((by.find(type, 1) == nullptr));
}

TEST_CASE("a processor with look-ups of bytes uses them for sums of two fp8, and for their averages") {
  const std::string flags = flags_of_processor();
  const auto has = [&](const std::string& flag) { return flags.find(" " + flag + " ") != std::string::npos; };
  if (!has("avx512_vbmi") && !has("avx512vbmi")) {
    MESSAGE("skipped: no AVX512-VBMI is known");
    return;
  }
  if (!has("gfni") || !has("avx512bw") || !has("avx512vl")) {
    MESSAGE("skipped: no GFNI, or not all of AVX-512");
    return;
  }
  for (const datatype type : {datatype::f8e4m3, datatype::f8e5m2}) {
    REQUIRE((detail::find_sum_in_bytes(type, 1) != nullptr));
    CHECK((detail::find_sum_of_two(type, 1) ==
           (has("avx512_fp16") ? detail::find_sum_in_f16(type, 1) : detail::find_sum_in_bytes(type, 1))));
    CHECK((find_reduce(type, op_kind::sum) != detail::f8_kernels(type, op_kind::sum).pair));
    CHECK((find_reduce(type, op_kind::avg) != detail::f8_kernels(type, op_kind::avg).pair));
    CHECK((find_reduce(type, op_kind::prod) == detail::f8_kernels(type, op_kind::prod).pair));
    sum_scaling half;
    half.divisor = 2;
    const auto in_vectors = detail::scaled_float_kernels(type, detail::adjusting::dividing).fold;
    CHECK((detail::find_adjusted(type, half, 2).use.fold != in_vectors));
    const bool of_more = type == datatype::f8e5m2 || has("avx512_bf16");
    CHECK(((detail::find_fold_of_fp8(type, 1, 3) != nullptr) == of_more));
    CHECK(((detail::find_adjusted(type, half, 3).use.fold != in_vectors) == of_more));
  }
}
