// SPDX-License-Identifier: Apache-2.0
// Complex numbers: sums by part, products by the plain formula, in vectors of every instruction set and without.
#include "memory/kernels/kernels.hpp"
#include "tests/memory/vectors.hpp"

#include <doctest/doctest.h>

#include <complex>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

using namespace troupe;
using namespace memory_tests;

namespace {

// Each rounded by itself: what is called cannot be contracted to a fused multiply-add.
template <class Real>
[[gnu::noinline]] Real times(Real a, Real b) {
  return a * b;
}
template <class Real>
[[gnu::noinline]] Real plus(Real a, Real b) {
  return a + b;
}

template <class Real>
std::complex<Real> product(std::complex<Real> a, std::complex<Real> b) {
  return {plus(times(a.real(), b.real()), -times(a.imag(), b.imag())),
          plus(times(a.real(), b.imag()), times(a.imag(), b.real()))};
}

template <class Real>
bool same_number(std::complex<Real> a, std::complex<Real> b) {
  return same(a.real(), b.real()) && same(a.imag(), b.imag());
}

template <class Real>
std::complex<Real> at(const void* base, std::size_t index) {
  return detail::load<std::complex<Real>>(base, index);
}

/// Calls function.operator()<Real>(type of std::complex<Real>).
template <class Function>
void for_both(Function function) {
  function.template operator()<float>(datatype::c64);
  function.template operator()<double>(datatype::c128);
}

/// Inputs beside pages that must not be touched, with every bit pattern in half of the parts.
template <class Real>
struct inputs {
  inputs(std::size_t number, std::size_t count, random_engine& random) {
    for (std::size_t k = 0; k < number; ++k) {
      regions.push_back(std::make_unique<fenced>(2 * count * sizeof(Real), random() % 2 == 0,
                                                 random() % 2 == 0 ? 0 : below(random, 80)));
      regions.back()->template randomise<Real>(random);
      in.push_back(regions.back()->data());
    }
  }

  std::vector<std::complex<Real>> products(std::size_t count) const {
    std::vector<std::complex<Real>> all(count);
    for (std::size_t i = 0; i < count; ++i) {
      all[i] = at<Real>(in[0], i);
      for (std::size_t k = 1; k < in.size(); ++k) all[i] = product(all[i], at<Real>(in[k], i));
    }
    return all;
  }

  std::vector<std::unique_ptr<fenced>> regions;
  std::vector<const void*> in;
};

template <class Real>
bool equal(const void* found, const std::vector<std::complex<Real>>& wanted) {
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (!same_number(at<Real>(found, i), wanted[i])) return false;
  return true;
}

/// 0 … a few vectors, and some blocks of them.
std::size_t any_count(random_engine& random) { return below(random, random() % 2 == 0 ? 20 : 400); }

}  // namespace

TEST_CASE("complex products are those of the plain formula, in every instruction set") {
  random_engine random{seed()};
  for_each_instruction_set([&](const std::string& set) {
    for_both([&]<class Real>(datatype type) {
      const detail::kernels use = detail::complex_kernels(type, op_kind::prod);
      for (unsigned round = 0; round < 400; ++round) {
        const std::size_t count = any_count(random), bytes = 2 * count * sizeof(Real);
        const inputs<Real> two{2, count, random}, more{3 + below(random, 4), count, random};
        const fenced out{bytes, random() % 2 == 0, below(random, 80)};
        use.pair(two.in[0], two.in[1], out.data(), count);
        REQUIRE_MESSAGE(equal(out.data(), two.products(count)), set << " " << name(type) << " " << count);
        use.fold(more.in, 0, out.data(), count, {});
        REQUIRE_MESSAGE(equal(out.data(), more.products(count)), set << " " << name(type) << " " << count);
        const auto wanted = two.products(count);  // before an input is overwritten
        use.pair(two.in[0], two.in[1], two.regions[round % 2]->data(), count);
        REQUIRE_MESSAGE(equal(two.in[round % 2], wanted), set << " in place " << name(type) << " " << count);
      }
    });
  });
}

TEST_CASE("complex products of many inputs to many outputs, streamed too") {
  random_engine random{seed()};
  for_both([&]<class Real>(datatype type) {
    for (int round = 0; round < 200; ++round) {
      const std::size_t count = any_count(random), bytes = 2 * count * sizeof(Real), slack = below(random, 80);
      const inputs<Real> all{1 + below(random, 6), count, random};
      const auto wanted = all.products(count);
      std::vector<std::unique_ptr<fenced>> regions;
      std::vector<void*> out;
      for (std::size_t k = 0; k < 1 + below(random, 3); ++k) {
        regions.push_back(std::make_unique<fenced>(bytes, false, round % 2 == 0 ? slack : below(random, 80)));
        out.push_back(regions.back()->data());
      }
      constexpr store_hint hints[] = {store_hint::by_size, store_hint::cached, store_hint::streamed,
                                      store_hint::elsewhere};
      reduce_many(type, prod, all.in, out, count, hints[below(random, 4)]);
      for (const void* found : out) REQUIRE_MESSAGE(equal(found, wanted), name(type) << " " << count);
    }
  });
}

TEST_CASE("infinities, NaN and signs of zeros in complex products") {
  for_both([&]<class Real>(datatype type) {
    using number = std::complex<Real>;
    constexpr Real infinity = std::numeric_limits<Real>::infinity();
    const auto multiplied = [&](number a, number b) {
      reduce(type, prod, &a, &b, &a, 1);
      return a;
    };
    // C99's Annex G recovers an infinity here; the plain formula has infinity - infinity.
    const number lost = multiplied({infinity, infinity}, {1, 1});
    CHECK(std::isnan(lost.real()));
    CHECK(lost.imag() == infinity);
    const number turned = multiplied({-Real{0}, 0}, {1, 1});  // -0 - 0, -0 + 0
    CHECK(std::signbit(turned.real()));
    CHECK_FALSE(std::signbit(turned.imag()));
    CHECK(std::isnan(multiplied({std::numeric_limits<Real>::quiet_NaN(), 0}, {1, 0}).real()));
    CHECK(multiplied({2, 3}, {5, -7}) == number{31, 1});
  });
}

TEST_CASE("complex sums, averages and factors are those of the parts, bit by bit") {
  random_engine random{seed()};
  for_both([&]<class Real>(datatype type) {
    for (const op_kind kind : {op_kind::sum, op_kind::avg, op_kind::pre_mul_sum})
      for (int round = 0; round < 100; ++round) {
        const std::size_t count = any_count(random), bytes = 2 * count * sizeof(Real);
        const inputs<Real> all{1 + below(random, 5), count, random};
        const double factors[] = {0.1, 2, -3, 0.5, 7};
        sum_scaling scaling;
        if (kind == op_kind::avg) scaling.divisor = all.in.size();
        if (kind == op_kind::pre_mul_sum) scaling.factors = factors;
        std::vector<std::byte> found(bytes + 1), wanted(bytes + 1);
        void *const to[] = {found.data()}, *const parts_to[] = {wanted.data()};
        reduce_many(type, make_op(kind), all.in, to, count, store_hint::by_size, scaling);
        reduce_many(part_of(type), make_op(kind), all.in, parts_to, 2 * count, store_hint::by_size, scaling);
        for (std::size_t i = 0; i < 2 * count; ++i)
          REQUIRE(same(detail::load<Real>(found.data(), i), detail::load<Real>(wanted.data(), i)));
        const reduce_kernel add = find_reduce(type, kind);
        REQUIRE((add != nullptr));
        add(all.in[0], all.in.back(), found.data(), count);
        reduce(part_of(type), sum, all.in[0], all.in.back(), wanted.data(), 2 * count);
        for (std::size_t i = 0; i < 2 * count; ++i)
          REQUIRE(same(detail::load<Real>(found.data(), i), detail::load<Real>(wanted.data(), i)));
      }
    using number = std::complex<Real>;
    const number three[] = {{3, -6}, {1, 0}, {-9, 12}};
    number result[3];
    divide(type, 3, three, result, 3);
    CHECK(result[0] == number{1, -2});
    CHECK(result[2] == number{-3, 4});
    scale(type, -2, three, result, 3);
    CHECK(result[0] == number{-6, 12});
    CHECK(result[2] == number{18, -24});
  });
}

TEST_CASE("complex numbers convert to each other, and to nothing else") {
  const std::complex<float> narrow[] = {{1.5f, -2}, {0, 3}};
  std::complex<double> wide[2];
  convert(datatype::c64, narrow, datatype::c128, wide, 2);
  CHECK(wide[0] == std::complex<double>{1.5, -2});
  CHECK(wide[1] == std::complex<double>{0, 3});
  std::complex<float> back[2];
  wide[1] = {0.1, 1e300};
  convert(datatype::c128, wide, datatype::c64, back, 2);
  CHECK(back[1] == std::complex<float>{0.1f, std::numeric_limits<float>::infinity()});
  CHECK(code_of([&] { convert(datatype::c64, narrow, datatype::f32, back, 1); }) == errc::unsupported_type);
  CHECK(code_of([&] { convert(datatype::i32, narrow, datatype::c64, back, 1); }) == errc::unsupported_type);
  CHECK(code_of([&] { convert(datatype::c128, nullptr, datatype::c64, back, 1); }) == errc::null_buffer);
}

TEST_CASE("complex numbers have no order, truth or bits, and the refusal says so") {
  std::complex<double> z{1, 2};
  for (const op_kind kind : all_op_kinds) {
    if (is_sum(kind) || kind == op_kind::prod || kind == op_kind::user) continue;
    CHECK_FALSE(supports(datatype::c128, kind));
    CHECK((find_reduce(datatype::c64, kind) == nullptr));
    try {
      reduce(datatype::c128, make_op(kind), &z, &z, &z, 1);
      FAIL("not refused");
    } catch (const error& e) {
      CHECK(e.code_value() == errc::unsupported_type);
      CHECK(std::string{e.what()}.find(std::string{name(kind)} + " is not defined on c128") != std::string::npos);
      CHECK(std::string{e.what()}.find("no order, truth or bits") != std::string::npos);
    }
  }
  CHECK(z == std::complex<double>{1, 2});
}

TEST_CASE("a user's reduction of complex numbers") {
  random_engine random{seed()};
  const auto conjugate_times = [](const void* left, const void* right, void* out, std::size_t count, datatype type,
                                  void*) {
    CHECK(type == datatype::c128);
    for (std::size_t i = 0; i < count; ++i)
      detail::store(out, i, product(std::conj(at<double>(left, i)), at<double>(right, i)));
  };
  const op mine = user_op(conjugate_times, nullptr, false, false);
  for (const std::size_t count : {1u, 511u, 513u, 1500u}) {
    const inputs<double> all{3, count, random};
    std::vector<std::complex<double>> wanted(count), found(count);
    for (std::size_t i = 0; i < count; ++i)
      wanted[i] = product(std::conj(product(std::conj(at<double>(all.in[0], i)), at<double>(all.in[1], i))),
                          at<double>(all.in[2], i));
    void* const to[] = {found.data()};
    reduce_many(datatype::c128, mine, all.in, to, count);
    REQUIRE(equal(found.data(), wanted));
  }
}
