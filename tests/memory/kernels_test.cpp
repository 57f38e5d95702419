// SPDX-License-Identifier: Apache-2.0
#include "memory/kernels/kernels.hpp"
#include "tests/memory/values.hpp"

#include <doctest/doctest.h>

#include <array>
#include <string>

using namespace troupe;
using namespace memory_tests;

namespace {

template <class T>
using compute = std::conditional_t<std::is_arithmetic_v<T>, T, float>;

template <class T>
T expected(op_kind kind, T left, T right) {
  using C = compute<T>;
  return static_cast<T>(reference<C>(kind, static_cast<C>(left), static_cast<C>(right)));
}

std::string text(datatype type, op_kind kind, std::size_t count) {
  return std::string{name(type)} + " " + std::string{name(kind)} + " count " + std::to_string(count);
}

/// One reduce() of random elements at random alignments; `alias`: 0 none, 1 out is left, 2 out is right, 3 all the same.
template <class T>
bool reduce_is_right(op_kind kind, std::size_t count, std::size_t alias, random_engine& random) {
  elements<T> left{count, below(random, 16), random};
  elements<T> right{count, below(random, 16), random};
  elements<T> fresh{count, below(random, 16), random};
  const elements<T> left_before = left, right_before = right;
  elements<T>& second = alias == 3 ? left : right;
  elements<T>& out = alias == 0 ? fresh : alias == 2 ? right : left;
  reduce(datatype_of<T>, make_op(kind), left.data(), second.data(), out.data(), count);
  for (std::size_t i = 0; i < count; ++i) {
    const T with = alias == 3 ? left_before[i] : right_before[i];
    if (!same(out[i], expected(kind, left_before[i], with))) return false;
    if (alias == 0 && !(same(left[i], left_before[i]) && same(right[i], right_before[i]))) return false;
  }
  return left.guards_untouched() && right.guards_untouched() && fresh.guards_untouched();
}

/// One reduce_many() whose outputs are fresh regions or inputs at random.
template <class T>
bool fold_is_right(op_kind kind, std::size_t count, std::size_t inputs, std::size_t outputs, random_engine& random) {
  using C = compute<T>;
  std::vector<elements<T>> regions;
  for (std::size_t k = 0; k < inputs + outputs; ++k) regions.emplace_back(count, below(random, 16), random);
  std::vector<T> wanted(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (inputs == 1) {
      wanted[i] = regions[0][i];
      continue;
    }
    C total = static_cast<C>(regions[0][i]);
    for (std::size_t k = 1; k < inputs; ++k) total = reference<C>(kind, total, static_cast<C>(regions[k][i]));
    wanted[i] = static_cast<T>(total);
  }
  std::vector<const void*> in;
  std::vector<void*> out;
  std::vector<std::size_t> written;
  for (std::size_t k = 0; k < inputs; ++k) in.push_back(regions[k].data());
  for (std::size_t k = 0; k < outputs; ++k) {
    written.push_back(random() % 2 == 0 ? below(random, inputs) : inputs + k);
    out.push_back(regions[written.back()].data());
  }
  reduce_many(datatype_of<T>, make_op(kind), in, out, count);
  for (std::size_t region : written)
    for (std::size_t i = 0; i < count; ++i)
      if (!same(regions[region][i], wanted[i])) return false;
  for (const auto& region : regions)
    if (!region.guards_untouched()) return false;
  return true;
}

/// 3 x left - right, wrapping: neither commutative nor associative, so any other order shows.
void order_revealing(const void* left, const void* right, void* out, std::size_t count, datatype type, void* context) {
  CHECK(type == datatype::u32);
  ++*static_cast<int*>(context);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t a, b;
    std::memcpy(&a, static_cast<const char*>(left) + 4 * i, 4);
    std::memcpy(&b, static_cast<const char*>(right) + 4 * i, 4);
    a = 3 * a - b;
    std::memcpy(static_cast<char*>(out) + 4 * i, &a, 4);
  }
}

}  // namespace

TEST_CASE("reduce agrees with the reference for every type, operation, alignment and aliasing") {
  random_engine random{seed()};
  for_each_type([&]<class T>() {
    for (op_kind kind : all_op_kinds) {
      if (kind == op_kind::user || !supports(datatype_of<T>, kind)) continue;
      for (std::size_t count = 0; count <= 1000; count += count < 40 ? 1 : 1 + below(random, 120))
        REQUIRE_MESSAGE(reduce_is_right<T>(kind, count, below(random, 4), random), text(datatype_of<T>, kind, count));
    }
  });
}

TEST_CASE("reduce_many is a left fold with one rounding, whatever the outputs are") {
  random_engine random{seed()};
  for_each_type([&]<class T>() {
    for (op_kind kind : all_op_kinds) {
      if (kind == op_kind::user || !supports(datatype_of<T>, kind)) continue;
      for (std::size_t count : {std::size_t{0}, std::size_t{1}, below(random, 1000), 1000 + below(random, 20'000)})
        REQUIRE_MESSAGE(fold_is_right<T>(kind, count, 1 + below(random, 7), 1 + below(random, 3), random),
                        text(datatype_of<T>, kind, count));
    }
  });
}

TEST_CASE("low-precision sums keep f32 over the whole fold") {
  const f16 big{2048.0f}, one{1.0f};
  const std::array<const void*, 3> in{&big, &one, &one};
  f16 total;
  const std::array<void*, 1> out{&total};
  reduce_many(datatype::f16, sum, in, out, 1);
  CHECK(static_cast<float>(total) == 2050.0f);  // rounding after each step would leave 2048
}

TEST_CASE("minimum and maximum: NaN wins, -0 is below +0") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto both = [](float a, float b) {
    std::array<float, 2> result{};
    reduce(datatype::f32, minimum, &a, &b, &result[0], 1);
    reduce(datatype::f32, maximum, &a, &b, &result[1], 1);
    return result;
  };
  for (float other : {1.0f, std::numeric_limits<float>::infinity()}) {
    for (float result : both(nan, other)) CHECK(std::isnan(result));
    for (float result : both(other, nan)) CHECK(std::isnan(result));
  }
  CHECK(std::signbit(both(0.0f, -0.0f)[0]));
  CHECK(std::signbit(both(-0.0f, 0.0f)[0]));
  CHECK_FALSE(std::signbit(both(0.0f, -0.0f)[1]));
  CHECK_FALSE(std::signbit(both(-0.0f, 0.0f)[1]));
}

TEST_CASE("a user's operation is called in order, also in tiles and in place") {
  random_engine random{seed()};
  int calls = 0;
  const op mine = user_op(order_revealing, &calls, false, false);
  for (std::size_t count : {std::size_t{1}, std::size_t{100}, std::size_t{9000}})
    for (std::size_t inputs = 1; inputs <= 5; ++inputs) {
      std::vector<elements<std::uint32_t>> regions;
      for (std::size_t k = 0; k < inputs; ++k) regions.emplace_back(count, 4 * below(random, 4), random);
      std::vector<std::uint32_t> wanted(count);
      for (std::size_t i = 0; i < count; ++i) {
        wanted[i] = regions[0][i];
        for (std::size_t k = 1; k < inputs; ++k) wanted[i] = 3 * wanted[i] - regions[k][i];
      }
      std::vector<const void*> in;
      for (const auto& region : regions) in.push_back(region.data());
      const std::vector<void*> out{regions[inputs - 1].data(), regions[0].data()};
      reduce_many(datatype::u32, mine, in, out, count);
      for (std::size_t i = 0; i < count; ++i) {
        REQUIRE(regions[0][i] == wanted[i]);
        REQUIRE(regions[inputs - 1][i] == wanted[i]);
      }
    }
  CHECK(calls > 0);
  std::uint32_t a = 5, b = 7;
  reduce(datatype::u32, mine, &a, &b, &b, 1);
  CHECK(b == 8);
}

TEST_CASE("which operations exist") {
  for (datatype type : all_datatypes)
    for (op_kind kind : all_op_kinds) {
      const bool bitwise = kind == op_kind::band || kind == op_kind::bor || kind == op_kind::bxor;
      const bool complex_too = is_sum(kind) || kind == op_kind::prod || kind == op_kind::user;
      CHECK(supports(type, kind) == (is_complex(type) ? complex_too : !bitwise || is_integer(type)));
      CHECK((find_reduce(type, kind) != nullptr) == (supports(type, kind) && kind != op_kind::user));
    }
  CHECK((find_reduce(static_cast<datatype>(99), op_kind::sum) == nullptr));
  CHECK((find_reduce(datatype::f32, static_cast<op_kind>(99)) == nullptr));
}

TEST_CASE("bad input is an error that says what to change") {
  float x = 1, y = 2;
  const std::array<const void*, 2> in{&x, nullptr};
  const std::array<void*, 1> out{&y};
  CHECK(code_of([&] { reduce(datatype::f32, band, &x, &y, &y, 1); }) == errc::unsupported_type);
  CHECK(code_of([&] { reduce(datatype::f32, sum, nullptr, &y, &y, 1); }) == errc::null_buffer);
  CHECK(code_of([&] { reduce(datatype::f32, sum, &x, nullptr, &y, 1); }) == errc::null_buffer);
  CHECK(code_of([&] { reduce(datatype::f32, sum, &x, &y, nullptr, 1); }) == errc::null_buffer);
  CHECK(code_of([&] { reduce(datatype::f64, sum, &x, &y, &y, SIZE_MAX / 4); }) == errc::size_overflow);
  CHECK(code_of([&] { reduce(datatype::f32, user_op(nullptr), &x, &y, &y, 1); }) == errc::invalid_argument);
  CHECK(code_of([&] { reduce(static_cast<datatype>(50), sum, &x, &y, &y, 1); }) == errc::invalid_argument);
  CHECK(code_of([&] { reduce(datatype::f32, make_op(static_cast<op_kind>(50)), &x, &y, &y, 1); }) ==
        errc::invalid_argument);
  CHECK(code_of([&] { reduce_many(datatype::f32, sum, in, out, 1); }) == errc::null_buffer);
  CHECK(code_of([&] { reduce_many(datatype::f32, sum, {}, out, 1); }) == errc::invalid_argument);
  CHECK(code_of([&] { copy(&x, nullptr, 4); }) == errc::null_buffer);
  CHECK(code_of([&] { copy(nullptr, nullptr, 0); }) == errc::ok);
  CHECK(code_of([&] { reduce(datatype::f32, sum, nullptr, nullptr, nullptr, 0); }) == errc::ok);
  CHECK(code_of([&] { divide(datatype::f32, 0, &x, &y, 1); }) == errc::invalid_argument);
  CHECK(code_of([&] { convert(datatype::i32, &x, datatype::f32, &y, 1); }) == errc::unsupported_type);
  CHECK(code_of([&] { scale(datatype::f32, 1.0, &x, nullptr, 1); }) == errc::null_buffer);
  CHECK(y == 2);
  try {
    reduce(datatype::f32, sum, &x, &y, nullptr, 3);
  } catch (const error& problem) {
    CHECK(std::string{problem.what()}.find("12 bytes") != std::string::npos);
  }
}
