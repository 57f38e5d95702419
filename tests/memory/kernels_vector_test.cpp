// SPDX-License-Identifier: Apache-2.0
// The vector loops of every instruction set against the plain ones (which kernels_test.cpp holds to an independent
// reference wherever they are used), streaming included, on regions that end or begin at a page that must not be touched.
#include "memory/kernels/kernel_loops.hpp"
#include "memory/kernels/scaled_loops.hpp"
#include "tests/memory/vectors.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

using namespace troupe;
using namespace memory_tests;

namespace {

detail::kernels chosen(datatype type, op_kind kind) {
  if (is_integer(type)) return detail::integer_kernels(type, kind);
  if (!is_low_precision(type)) return detail::float_kernels(type, kind);
  return size_of(type) == 1 ? detail::f8_kernels(type, kind) : detail::f16_kernels(type, kind);
}

template <class T>
bool same_elements(const std::byte* a, const std::byte* b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    if (!same(detail::load<T>(a, i), detail::load<T>(b, i))) return false;
  return true;
}

template <class T>
bool pair_is_right(op_kind kind, std::size_t count, random_engine& random) {
  const std::size_t bytes = count * sizeof(T);
  const bool at_end = random() % 2 == 0;
  const fenced left{bytes, at_end, 0}, right{bytes, at_end, 0};
  const fenced out{bytes, random() % 2 == 0, random() % 3 == 0 ? below(random, 64) : 0};
  left.randomise<T>(random);
  right.randomise<T>(random);
  std::vector<std::byte> wanted(bytes + 1);
  detail::kernels_for<detail::plain_loops, T>(kind).pair(left.data(), right.data(), wanted.data(), count);
  const detail::kernels use = chosen(datatype_of<T>, kind);
  use.pair(left.data(), right.data(), out.data(), count);
  if (!same_elements<T>(out.data(), wanted.data(), count)) return false;
  use.pair(left.data(), right.data(), left.data(), count);
  return same_elements<T>(left.data(), wanted.data(), count);
}

/// reduce_many as callers see it: outputs at one or at different places of their lines, some of them inputs.
template <class T>
bool many_is_right(op_kind kind, std::size_t count, std::size_t inputs, std::size_t outputs, store_hint hint,
                   random_engine& random) {
  const std::size_t bytes = count * sizeof(T), slack = below(random, 80);
  const bool together = random() % 2 == 0, aliased = random() % 4 == 0;
  std::vector<std::unique_ptr<fenced>> regions;
  std::vector<const void*> in;
  std::vector<void*> out;
  for (std::size_t k = 0; k < inputs; ++k) {
    regions.push_back(std::make_unique<fenced>(bytes, random() % 2 == 0, random() % 2 == 0 ? 0 : below(random, 80)));
    regions.back()->template randomise<T>(random);
    in.push_back(regions.back()->data());
  }
  std::vector<std::byte> wanted(bytes + 1);
  if (inputs == 1) std::memcpy(wanted.data(), in[0], bytes);
  else detail::kernels_for<detail::plain_loops, T>(kind).fold(in, 0, wanted.data(), count, {});
  for (std::size_t m = 0; m < outputs; ++m) {
    if (aliased && random() % 2 == 0) {
      out.push_back(regions[below(random, inputs)]->data());
    } else {
      regions.push_back(std::make_unique<fenced>(bytes, true, together ? slack : below(random, 80)));
      out.push_back(regions.back()->data());
    }
  }
  reduce_many(datatype_of<T>, make_op(kind), in, out, count, hint);
  for (const void* to : out)
    if (!same_elements<T>(static_cast<const std::byte*>(to), wanted.data(), count)) return false;
  return true;
}

}  // namespace

#if defined(__x86_64__)
TEST_CASE("the kernels use the instruction sets that the system says the processor has") {
  std::ifstream in{"/proc/cpuinfo"};
  std::string line;
  while (std::getline(in, line) && line.rfind("flags", 0) != 0) {}
  if (line.empty()) return;  // a system that does not say
  const auto has = [&line](const char* flag) {
    return (line + " ").find(" " + std::string{flag} + " ") != std::string::npos;
  };
  const bool avx2 = has("avx2") && has("fma") && has("bmi1") && has("bmi2") && has("f16c");
  const bool avx512 = avx2 && has("avx512f") && has("avx512vl") && has("avx512dq") && has("avx512bw");
  const std::string used = troupe::detail::instruction_set();
  if (avx2) CHECK(used == (avx512 ? "AVX3" : "AVX2"));
  else CHECK((used != "AVX2" && used != "AVX3"));
}
#endif

TEST_CASE("every instruction set reduces like the plain loops and touches nothing else: every remainder") {
  random_engine random{seed()};
  for_each_instruction_set([&](const std::string& set) {
    MESSAGE("instruction set " << set);
    for_each_type([&]<class T>() {
      for (op_kind kind : all_op_kinds) {
        if (kind == op_kind::user || kind == op_kind::avg || !supports(datatype_of<T>, kind)) continue;
        const std::size_t vectors = 10 * 64 / sizeof(T);
        for (std::size_t count = 0; count < vectors; count += 1 + (kind == op_kind::sum ? 0 : below(random, 20)))
          REQUIRE_MESSAGE(pair_is_right<T>(kind, count, random),
                          set << " " << name(datatype_of<T>) << " " << name(kind) << " " << count);
      }
    });
  });
}

TEST_CASE("every instruction set folds like the plain loops") {
  random_engine random{seed()};
  for_each_instruction_set([&](const std::string& set) {
    for_each_type([&]<class T>() {
      for (op_kind kind : all_op_kinds) {
        if (kind == op_kind::user || !supports(datatype_of<T>, kind)) continue;
        const std::size_t inputs = 2 + below(random, 9), count = below(random, 3000);
        std::vector<std::unique_ptr<fenced>> regions;
        std::vector<const void*> in;
        for (std::size_t k = 0; k < inputs; ++k) {
          regions.push_back(std::make_unique<fenced>(count * sizeof(T), true, 0));
          regions.back()->template randomise<T>(random);
          in.push_back(regions.back()->data());
        }
        std::vector<std::byte> wanted(count * sizeof(T) + 1), found(count * sizeof(T) + 1);
        detail::kernels_for<detail::plain_loops, T>(kind).fold(in, 0, wanted.data(), count, {});
        chosen(datatype_of<T>, kind).fold(in, 0, found.data(), count, {});
        REQUIRE_MESSAGE(same_elements<T>(found.data(), wanted.data(), count),
                        set << " " << name(datatype_of<T>) << " " << name(kind) << " " << inputs << " x " << count);
      }
    });
  });
}

namespace {

/// Factors that are whole or not, of few bits or many, of every type's range or beyond, alike or not; and divisors of both kinds.
struct some_scaling {
  std::vector<double> factors;
  sum_scaling all;

  some_scaling(std::size_t inputs, random_engine& random) {
    constexpr double values[] = {2, 0.5, -3, 1, 0, 63.9921875, -1.0 / 128, 1.5, 0.1, 100, 1e6 + 0.5, -1e9, 3e18};
    constexpr std::size_t short_ones = 8;
    constexpr std::size_t divisors[] = {
        2, 3, 5, 7, 8, 12, 127, 128, 200, 255, 256, 1000, std::size_t{1} << 31, (std::size_t{1} << 32) + 1, SIZE_MAX};
    if (random() % 2 == 0) all.divisor = divisors[below(random, std::size(divisors))];
    const std::size_t most = random() % 2 == 0 ? short_ones : std::size(values);
    const bool alike = random() % 2 == 0;
    for (std::size_t k = 0; k < inputs; ++k)
      factors.push_back(alike && k > 0 ? factors[0] : values[below(random, most)]);
    if (all.divisor == 1) all.factors = factors.data();
  }
};

template <class T>
bool scaled_sum_is_right(std::size_t count, random_engine& random) {
  const std::size_t bytes = count * sizeof(T), inputs = 1 + below(random, 9);
  const some_scaling scaling{inputs, random};
  std::vector<std::unique_ptr<fenced>> regions;
  std::vector<const void*> in;
  std::vector<void*> out;
  for (std::size_t k = 0; k < inputs; ++k) {
    regions.push_back(std::make_unique<fenced>(bytes, random() % 2 == 0, random() % 2 == 0 ? 0 : below(random, 80)));
    regions.back()->template randomise<T>(random);
    in.push_back(regions.back()->data());
  }
  detail::adjustment how;
  how.factors = scaling.all.factors;
  how.divisor = scaling.all.divisor;
  std::vector<std::byte> wanted(bytes + 1);
  detail::adjusted_elements<T>(in, 0, wanted.data(), count, how);
  const bool aliased = random() % 4 == 0;
  if (aliased) out.push_back(regions[below(random, inputs)]->data());
  for (std::size_t m = below(random, 3) + (aliased ? 0 : 1); m > 0; --m) {
    regions.push_back(std::make_unique<fenced>(bytes, true, below(random, 80)));
    out.push_back(regions.back()->data());
  }
  constexpr store_hint hints[] = {store_hint::cached, store_hint::streamed, store_hint::elsewhere};
  reduce_many(datatype_of<T>, sum, in, out, count, hints[random() % 3], scaling.all);
  for (const void* to : out)
    if (!same_elements<T>(static_cast<const std::byte*>(to), wanted.data(), count)) return false;
  return true;
}

}  // namespace

TEST_CASE("every instruction set scales and divides sums like the plain loops: every remainder") {
  random_engine random{seed()};
  for_each_instruction_set([&](const std::string& set) {
    for_each_type([&]<class T>() {
      for (std::size_t count = 0; count < 10 * 64 / sizeof(T); ++count)
        REQUIRE_MESSAGE(scaled_sum_is_right<T>(count, random), set << " " << name(datatype_of<T>) << " " << count);
      REQUIRE(scaled_sum_is_right<T>(5000, random));
    });
  });
}

TEST_CASE("every instruction set widens and narrows like the plain conversions, exhaustively where codes are few") {
  random_engine random{seed()};
  for_each_instruction_set([&](const std::string& set) {
    const auto check = [&]<class T>() {
      std::vector<T> codes(65536 + below(random, 40));
      for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = T::from_bits(static_cast<word_of<T>>(i));
      std::vector<float> wide(codes.size());
      convert(datatype_of<T>, codes.data(), datatype::f32, wide.data(), codes.size());
      for (std::size_t i = 0; i < codes.size(); ++i)
        REQUIRE_MESSAGE(same(wide[i], static_cast<float>(codes[i])), set << " " << name(datatype_of<T>) << " " << i);
      for (float& value : wide) value = any_value<float>(random);
      for (std::size_t i = 0; i + 1 < codes.size(); i += 2)  // and the middle between two neighbours
        wide[i] = (static_cast<float>(codes[i]) + static_cast<float>(codes[i + 1])) / 2;
      convert(datatype::f32, wide.data(), datatype_of<T>, codes.data(), codes.size());
      for (std::size_t i = 0; i < codes.size(); ++i)
        REQUIRE_MESSAGE(same(codes[i], static_cast<T>(wide[i])), set << " " << name(datatype_of<T>) << " " << wide[i]);
    };
    check.operator()<f16>();
    check.operator()<bf16>();
    check.operator()<f8e4m3>();
    check.operator()<f8e5m2>();
  });
}

TEST_CASE("low precision, exhaustively: every pair of fp8 codes, every f16 and bf16 code with some others") {
  random_engine random{seed()};
  for_each_instruction_set([&](const std::string& set) {
    const auto check = [&]<class T>() {
      using word = word_of<T>;
      constexpr std::size_t codes = std::size_t{1} << (8 * sizeof(T));
      std::vector<T> left(65536), right(65536), wanted(65536), found(65536);
      for (std::size_t round = 0; round < (sizeof(T) == 1 ? 1 : 8); ++round) {
        const T other = any_value<T>(random);
        for (std::size_t i = 0; i < 65536; ++i) {
          left[i] = T::from_bits(static_cast<word>(i % codes));
          right[i] = sizeof(T) == 1 ? T::from_bits(static_cast<word>(i / 256)) : other;
        }
        for (op_kind kind : {op_kind::sum, op_kind::prod, op_kind::min, op_kind::max, op_kind::land, op_kind::lor}) {
          detail::kernels_for<detail::plain_loops, T>(kind).pair(left.data(), right.data(), wanted.data(), 65536);
          chosen(datatype_of<T>, kind).pair(left.data(), right.data(), found.data(), 65536);
          std::size_t i = 0;
          while (i < 65536 && same(found[i], wanted[i])) ++i;
          REQUIRE_MESSAGE(i == 65536,
                          set << " " << name(datatype_of<T>) << " " << name(kind) << " of code " << i % codes);
        }
      }
    };
    check.operator()<f16>();
    check.operator()<bf16>();
    check.operator()<f8e4m3>();
    check.operator()<f8e5m2>();
  });
}

TEST_CASE("reduce_many gives the same elements wherever its stores go") {
  random_engine random{seed()};
  for_each_type([&]<class T>() {
    for (store_hint hint : {store_hint::cached, store_hint::streamed, store_hint::by_size, store_hint::elsewhere})
      for (int i = 0; i < 60; ++i) {
        const std::size_t count = i < 40 ? below(random, 1200 / sizeof(T)) : below(random, 40'000 / sizeof(T));
        const std::size_t inputs = 1 + below(random, 6), outputs = 1 + below(random, 4);
        const op_kind kind = random() % 2 == 0 ? op_kind::sum : op_kind::max;
        REQUIRE_MESSAGE(many_is_right<T>(kind, count, inputs, outputs, hint, random),
                        name(datatype_of<T>)
                            << " " << name(kind) << " " << count << " " << inputs << " to " << outputs);
      }
  });
}

TEST_CASE("results that go elsewhere, a tile at a time to where lines begin, are the same") {
  random_engine random{seed()};
  struct alignas(64) line {
    std::byte bytes[64];
  };
  for_each_type([&]<class T>() {
    for (int i = 0; i < 20; ++i) {
      const std::size_t count = 1 + below(random, 40'000 / sizeof(T)), bytes = count * sizeof(T);
      const std::size_t inputs = 2 + below(random, 4), outputs = 1 + below(random, 3);
      std::vector<std::unique_ptr<fenced>> from;
      std::vector<const void*> in;
      for (std::size_t k = 0; k < inputs; ++k) {
        from.push_back(std::make_unique<fenced>(bytes, true, below(random, 80)));
        from.back()->template randomise<T>(random);
        in.push_back(from.back()->data());
      }
      std::vector<std::vector<line>> to(outputs, std::vector<line>(bytes / sizeof(line) + 2));
      std::vector<void*> out;
      for (auto& each : to) {
        std::memset(static_cast<void*>(each.data()), 0x5a, each.size() * sizeof(line));
        out.push_back(each.data());
      }
      std::vector<std::byte> wanted(bytes);
      void* const cached = wanted.data();
      const op sum = make_op(op_kind::sum);
      reduce_many(datatype_of<T>, sum, in, {&cached, 1}, count, store_hint::cached);
      reduce_many(datatype_of<T>, sum, in, out, count, store_hint::elsewhere);
      for (const auto& each : to) {
        const auto* const found = reinterpret_cast<const std::byte*>(each.data());
        REQUIRE(same_elements<T>(found, wanted.data(), count));
        REQUIRE(found[bytes] == std::byte{0x5a});
      }
    }
  });
}

TEST_CASE("70 inputs, 70 outputs") {
  random_engine random{seed()};
  for_each_type([&]<class T>() {
    for (store_hint hint : {store_hint::cached, store_hint::streamed, store_hint::elsewhere}) {
      REQUIRE(many_is_right<T>(op_kind::sum, 1 + below(random, 5000 / sizeof(T)), 70, 1, hint, random));
      REQUIRE(many_is_right<T>(op_kind::sum, 1 + below(random, 5000 / sizeof(T)), 2, 70, hint, random));
      REQUIRE(many_is_right<T>(op_kind::prod, 1 + below(random, 20'000 / sizeof(T)), 70, 70, hint, random));
    }
  });
}

TEST_CASE("what is large is streamed by itself, with the same result") {
  random_engine random{seed()};
  constexpr std::size_t count = (std::size_t{9} << 20) / 2;  // 4 inputs and 4 outputs of 9 MiB: 72 MiB
  REQUIRE(many_is_right<bf16>(op_kind::sum, count - below(random, 100), 4, 4, store_hint::by_size, random));
}

TEST_CASE("copy: by size, cached and streamed, at every alignment; equal and overlapping regions") {
  random_engine random{seed()};
  for (store_hint hint : {store_hint::cached, store_hint::streamed, store_hint::by_size})
    for (int i = 0; i < 400; ++i) {
      const bool large = hint == store_hint::by_size && i == 0, in_pieces = i % 50 == 1;
      const std::size_t bytes = large       ? (std::size_t{9} << 20) + below(random, 100)
                                : in_pieces ? 1 + below(random, std::size_t{1} << 20)
                                            : 1 + below(random, 2000);
      const fenced from{bytes, random() % 2 == 0, below(random, 70)}, to{bytes, random() % 2 == 0, below(random, 70)};
      from.randomise<std::uint8_t>(random);
      troupe::copy(to.data(), from.data(), bytes, hint);
      REQUIRE(std::memcmp(to.data(), from.data(), bytes) == 0);
      troupe::copy(to.data(), to.data(), bytes, hint);
      REQUIRE(std::memcmp(to.data(), from.data(), bytes) == 0);
      const std::size_t shift = below(random, bytes);  // documented as a mistake, but one that must stay harmless
      troupe::copy(to.data() + shift, to.data(), bytes - shift, hint);
      REQUIRE(std::memcmp(to.data() + shift, from.data(), bytes - shift) == 0);
    }
}
