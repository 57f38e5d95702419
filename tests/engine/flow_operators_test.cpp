// SPDX-License-Identifier: Apache-2.0
// The built-in operators against plain code in double precision, and their backward passes against finite differences.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "engine/api/troupe.hpp"
#include "engine/flow/operators/add.hpp"
#include "engine/flow/operators/dropout.hpp"
#include "engine/flow/operators/gelu.hpp"
#include "engine/flow/operators/gemm.hpp"
#include "engine/flow/operators/layer_norm.hpp"
#include "tests/seed.hpp"

using namespace troupe;

namespace {

template <class T>
std::vector<T> random_values(std::size_t count, unsigned salt) {
  std::mt19937 random{static_cast<unsigned>(seed()) + salt};
  std::uniform_real_distribution<double> values{-2, 2};
  std::vector<T> all(count);
  for (T& one : all) one = static_cast<T>(values(random));
  return all;
}
template <class T>
tile<T> whole(std::vector<T>& of, const tensor_shape& shape, int index = 0) {
  return {tensor<T>{of.data(), shape}, index};
}
template <class T>
tile<const T> whole(const std::vector<T>& of, const tensor_shape& shape, int index = 0) {
  return {tensor<const T>{of.data(), shape}, index};
}

/// d loss / d at[i], where the loss is the sum of weights·out of `forward`, by finite differences.
std::vector<double> differences(std::vector<double>& at, const std::vector<double>& weights,
                                const std::function<void(std::vector<double>&)>& forward) {
  std::vector<double> out(weights.size()), slopes;
  const auto loss = [&] {
    forward(out);
    double sum = 0;
    for (std::size_t i = 0; i < out.size(); ++i) sum += weights[i] * out[i];
    return sum;
  };
  constexpr double step = 1e-5;
  for (double& x : at) {
    const double was = x;
    x = was + step;
    const double above = loss();
    x = was - step;
    slopes.push_back((above - loss()) / (2 * step));
    x = was;
  }
  return slopes;
}

template <class T, class U>
void check_close(const std::vector<T>& got, const std::vector<U>& wanted, double tolerance) {
  REQUIRE(got.size() == wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - static_cast<double>(wanted[i]));
    if (error <= tolerance * (1 + std::abs(static_cast<double>(wanted[i])))) continue;
    CAPTURE(i);
    CHECK(static_cast<double>(got[i]) == static_cast<double>(wanted[i]));
    return;
  }
}

}  // namespace

TEST_CASE("gemm multiplies as plain double precision does, whatever the sizes and strides") {
  const std::vector<std::array<std::size_t, 3>> sizes{{1, 1, 1}, {3, 5, 7}, {4, 16, 16}, {17, 300, 33}, {5, 600, 20}};
  for (const auto& size : sizes) {
    const std::size_t m = size[0], k = size[1], n = size[2];
    CAPTURE(m);
    CAPTURE(k);
    CAPTURE(n);
    const auto a = random_values<float>(m * k, 1), b = random_values<float>(k * n, 2);
    std::vector<float> c(m * n, 9), transposed(m * n, 9), bt(k * n);
    std::vector<double> wanted(m * n);
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j)
        for (std::size_t p = 0; p < k; ++p) wanted[i * n + j] += double{a[i * k + p]} * double{b[p * n + j]};
    for (std::size_t p = 0; p < k; ++p)
      for (std::size_t j = 0; j < n; ++j) bt[j * k + p] = b[p * n + j];
    const tensor<const float> left{a.data(), {m, k}}, right{b.data(), {k, n}};
    multiply(left, right, tensor<float>{c.data(), {m, n}});
    check_close(c, wanted, 1e-4);
    multiply(left, tensor<const float>{bt.data(), {n, k}}.transposed(), tensor<float>{transposed.data(), {m, n}});
    CHECK(transposed == c);
    multiply(left, right, tensor<float>{c.data(), {m, n}}, true);
    for (double& w : wanted) w *= 2;
    check_close(c, wanted, 1e-4);
  }
}

TEST_CASE("a product done tile by tile has the bits of the whole one") {
  constexpr std::size_t m = 24, k = 513, n = 37;
  const auto a = random_values<float>(m * k, 3), b = random_values<float>(k * n, 4);
  const tensor<const float> left{a.data(), {m, k}}, right{b.data(), {k, n}};
  std::vector<float> once(m * n), tiles(m * n), columns(m * n);
  multiply(left, right, tensor<float>{once.data(), {m, n}});
  for (const std::size_t rows : {std::size_t{1}, std::size_t{3}, std::size_t{8}}) {
    for (std::size_t i = 0; i < m; i += rows)
      multiply(left.slice(0, i, rows), right, tensor<float>{tiles.data(), {m, n}}.slice(0, i, rows));
    CHECK(tiles == once);
  }
  for (const auto& [first, count] : {std::pair<std::size_t, std::size_t>{0, 5}, {5, 16}, {21, 16}})
    multiply(left, right.slice(1, first, count), tensor<float>{columns.data(), {m, n}}.slice(1, first, count));
  CHECK(columns == once);
}

TEST_CASE("gemm's gradients are those of finite differences") {
  constexpr std::size_t m = 3, k = 4, n = 5;
  auto x = random_values<double>(m * k, 5), w = random_values<double>(k * n, 6);
  const auto d = random_values<double>(m * n, 7);
  const tensor<const double> weights{w.data(), {k, n}};
  const auto forward = [&](std::vector<double>& out) {
    gemm<double>{weights}(whole(std::as_const(x), {m, k}), whole(out, {m, n}));
  };
  std::vector<double> dx(m * k), dw(k * n, 3);
  gemm<double>{weights.transposed()}(whole(d, {m, n}), whole(dx, {m, k}));
  gemm_weights<double> gradient{tensor<double>{dw.data(), {k, n}}};
  gradient.begin();
  gradient(whole(std::as_const(x), {m, k}), whole(d, {m, n}));
  check_close(dx, differences(x, d, forward), 1e-7);
  check_close(dw, differences(w, d, forward), 1e-7);
}

TEST_CASE("layer_norm is what it says, and its gradients those of finite differences") {
  constexpr std::size_t rows = 4, n = 9;
  auto x = random_values<double>(rows * n, 8), gain = random_values<double>(n, 9), bias = random_values<double>(n, 10);
  const auto d = random_values<double>(rows * n, 11);
  std::vector<double> out(rows * n), wanted(rows * n);
  for (std::size_t r = 0; r < rows; ++r) {
    double mean = 0, variance = 0;
    for (std::size_t i = 0; i < n; ++i) mean += x[r * n + i] / n;
    for (std::size_t i = 0; i < n; ++i) variance += (x[r * n + i] - mean) * (x[r * n + i] - mean) / n;
    for (std::size_t i = 0; i < n; ++i)
      wanted[r * n + i] = (x[r * n + i] - mean) / std::sqrt(variance + 1e-5) * gain[i] + bias[i];
  }
  const auto forward = [&](std::vector<double>& to) {
    layer_norm<double>{gain, bias}(whole(std::as_const(x), {rows, n}), whole(to, {rows, n}));
  };
  forward(out);
  check_close(out, wanted, 1e-12);
  std::vector<float> xf(x.begin(), x.end()), gf(gain.begin(), gain.end()), bf(bias.begin(), bias.end()), outf(rows * n);
  layer_norm<float>{gf, bf}(whole(std::as_const(xf), {rows, n}), whole(outf, {rows, n}));
  check_close(outf, wanted, 1e-5);

  std::vector<double> dx(rows * n), d_gain(n, 5), d_bias(n, 5);
  layer_norm_backward<double> backward{gain, d_gain, d_bias};
  backward.begin();
  backward(whole(std::as_const(x), {rows, n}), whole(d, {rows, n}), whole(dx, {rows, n}));
  check_close(dx, differences(x, d, forward), 1e-6);
  check_close(d_gain, differences(gain, d, forward), 1e-6);
  check_close(d_bias, differences(bias, d, forward), 1e-6);
}

TEST_CASE("gelu is what it says, and its gradient that of finite differences") {
  auto x = random_values<double>(50, 12);
  const auto d = random_values<double>(50, 13);
  const auto forward = [&](std::vector<double>& to) { gelu{}(whole(std::as_const(x), {50}), whole(to, {50})); };
  std::vector<double> out(50), dx(50);
  forward(out);
  for (std::size_t i = 0; i < 50; ++i)
    CHECK(out[i] == doctest::Approx(x[i] * 0.5 * std::erfc(-x[i] / std::sqrt(2.0))).epsilon(1e-12));
  gelu_backward{}(whole(std::as_const(x), {50}), whole(d, {50}), whole(dx, {50}));
  check_close(dx, differences(x, d, forward), 1e-6);
}

TEST_CASE("add adds, and refuses tiles of two shapes") {
  const std::vector<float> a{1, 2}, b{3, 5};
  std::vector<float> out(2);
  add{}(whole(a, {2}), whole(b, {2}), whole(out, {2}));
  CHECK(out == std::vector<float>{4, 7});
  engine e;
  flow f{e, "f"};
  const auto x = f.source<float>("x", {2, 3}, 4, [](tile<float>) {}),
             y = f.source<float>("y", {3, 2}, 4, [](tile<float>) {});
  CHECK_THROWS_WITH_AS(f.map("sum", from(x, y), add{}),
                       "flow f: node sum: it adds tiles of shape 2x3 and 3x2; they must be of one shape", error);
  const std::vector<float> weights(8);
  CHECK_THROWS_WITH_AS(f.map("product", x, gemm<float>{tensor<const float>{weights.data(), {4, 2}}}),
                       "flow f: node product: it multiplies rows of tiles of shape 2x3 with weights of 4x2; a row must "
                       "have 4 elements",
                       error);
  CHECK_THROWS_WITH_AS(f.map("norm", x, layer_norm<float>{weights, weights}),
                       "flow f: node norm: its gain has 8 elements and its bias 8, and tiles have the shape 2x3; a row "
                       "must have as many",
                       error);
  CHECK_THROWS_WITH_AS(f.map("drop", x, dropout{.rate = 1}), "flow f: node drop: its rate is 1.000000; 0 ≤ rate < 1",
                       error);
}

TEST_CASE(
    "gradients of other shapes than their tiles, and what they are added to, are refused when the flow is built") {
  engine e;
  flow f{e, "f"};
  const auto nothing = [](tile<float>) {};
  const auto x = f.source<float>("x", {2, 5}, 4, nothing), one = f.source<float>("one", {1}, 4, nothing),
             row = f.source<float>("row", {1, 5}, 4, nothing), wide = f.source<float>("wide", {3, 7}, 4, nothing);
  std::vector<float> five(5), gradient(5), bias(5);
  CHECK_THROWS_WITH_AS(f.map("back", from(x, one), gelu_backward{}),
                       "flow f: node back: it takes tiles and gradients of shape 2x5 and 1; they must be of one shape",
                       error);
  CHECK_THROWS_WITH_AS(
      f.map("back", from(x, row), layer_norm_backward<float>{five, gradient, bias}),
      "flow f: node back: it takes tiles and gradients of shape 2x5 and 1x5; they must be of one shape", error);
  CHECK_THROWS_WITH_AS(
      f.map("back", from(x, x), layer_norm_backward<float>{std::span{five}.first(3), gradient, bias}),
      "flow f: node back: its gain has 3 elements, the gain's gradient 5 and the bias's 5, and tiles have the shape "
      "2x5; a row must have as many",
      error);
  CHECK_THROWS_AS(f.map("back", from(x, x), layer_norm_backward<float>{five, gradient, std::span{bias}.first(4)}),
                  error);
  CHECK_THROWS_WITH_AS(
      f.sink("sum", from(x, wide), gemm_weights<float>{{gradient.data(), {2, 2}}}),
      "flow f: node sum: it multiplies rows of tiles of shape 2x5 with those of 3x7 into a gradient of 2x2; rows must "
      "be as many, with 2 and 2 elements",
      error);
  std::vector<float> large(35);
  CHECK_THROWS_WITH_AS(f.sink("sum", from(x, wide), gemm_weights<float>{{large.data(), {5, 7}}}),
                       doctest::Contains("rows must be as many, with 5 and 7 elements"), error);
  // A shape of the caller's own does not go past the check.
  CHECK_THROWS_WITH_AS(f.map<float>("wider", x, {2, 6}, gelu{}),
                       "flow f: node wider: it gives tiles of shape 2x5, and is to give tiles of shape 2x6", error);
  // A refused node is none: its name is free.
  f.sink("sum", from(f.map("back", from(x, x), gelu_backward{}), x), gemm_weights<float>{{large.data(), {5, 5}}});
}

TEST_CASE("gemm takes rows as they lie, and operators that want their elements one behind the other say so") {
  std::vector<float> x(12), weights(3 * 2), gradient(3 * 3), wanted_gradient(3 * 3);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) - 5;
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i * i);
  const tensor<float> lies{x.data(), {3, 4}};
  std::vector<float> copied, out(8), wanted(8), across(8);
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t j = 0; j < 3; ++j) copied.push_back(lies(j, i));
  const tile<const float> turned{tensor<const float>{lies.transposed()}, 0},
      dense = whole(std::as_const(copied), {4, 3});
  gemm<float> product{{weights.data(), {3, 2}}};
  product.begin();
  product(dense, whole(wanted, {4, 2}));
  product(turned, whole(out, {4, 2}));
  CHECK(out == wanted);
  product(turned, {tensor<float>{across.data(), {2, 4}}.transposed(), 0});
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t j = 0; j < 2; ++j) CHECK(across[j * 4 + i] == wanted[i * 2 + j]);
  gemm_weights<float> sums{{gradient.data(), {3, 3}}}, wanted_sums{{wanted_gradient.data(), {3, 3}}};
  sums(turned, turned);
  wanted_sums(dense, dense);
  CHECK(gradient == wanted_gradient);

  std::vector<float> to(12);
  const tile<float> result = whole(to, {4, 3});
  const auto refuses = [](const std::string& who, const auto& work) {
    CHECK_THROWS_WITH_AS(work(),
                         (who +
                          " takes tensors whose elements lie one behind the other, and gets one of shape 4x3 with "
                          "strides 1, 4; copy it to memory of its own")
                             .c_str(),
                         error);
  };
  std::vector<float> gain(3, 1), bias(3), d_gain(3), d_bias(3);
  refuses("gelu", [&] { gelu{}(turned, result); });
  refuses("gelu_backward", [&] { gelu_backward{}(dense, turned, result); });
  refuses("add", [&] { add{}(dense, turned, result); });
  refuses("dropout", [&] { dropout{}(turned, result); });
  refuses("layer_norm", [&] { layer_norm<float>{gain, bias}(turned, result); });
  refuses("layer_norm_backward", [&] { layer_norm_backward<float>{gain, d_gain, d_bias}(turned, dense, result); });
}

TEST_CASE("philox has the words of its authors' test vectors") {
  CHECK(philox({0, 0, 0, 0}, {0, 0}) == std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  constexpr std::uint32_t ones = 0xffffffff;
  CHECK(philox({ones, ones, ones, ones}, {ones, ones}) ==
        std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("dropout drops the same elements however a tensor is cut, about as many as it should, and back again") {
  constexpr std::size_t count = 30'000;
  const std::vector<float> ones(count, 1.0F);
  std::vector<float> once(count), tiles(count), rest(count), other(count);
  const dropout drop{.rate = 0.3, .seed = 7, .call = 2};
  drop(whole(ones, {count}), whole(once, {count}));
  constexpr std::size_t size = 125;  // not of whole blocks
  for (std::size_t t = 0; t < count / size; ++t)
    drop(tile<const float>{tensor<const float>{&ones[t * size], {size}}, static_cast<int>(t)},
         tile<float>{tensor<float>{&tiles[t * size], {size}}, static_cast<int>(t)});
  CHECK(tiles == once);
  dropout second = drop;
  second.first = count / 2;
  second(whole(ones, {count}), whole(rest, {count}));
  CHECK(std::equal(rest.begin(), rest.begin() + count / 2, once.begin() + count / 2));
  second = drop;
  second.call = 3;
  second(whole(ones, {count}), whole(other, {count}));
  CHECK(other != once);
  const auto dropped = static_cast<double>(std::count(once.begin(), once.end(), 0.0F));
  CHECK(dropped / count == doctest::Approx(0.3).epsilon(0.05));
  CHECK(std::count(once.begin(), once.end(), static_cast<float>(1 / 0.7)) ==
        static_cast<std::ptrdiff_t>(count - dropped));
}
