// SPDX-License-Identifier: Apache-2.0
// A rank alone performed gather_v, scatter_v and all_to_all_v by its actors: twenty times as long as all_gather_v, with 25 allocations a call,
// since nobody had asked whether it knows all blocks. Its only block is as large as itself, so its v-forms are the uniform ones.

#include <doctest/doctest.h>

#include <troupe.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/issues/heap_use.hpp"

namespace alone_test {

using namespace troupe;

TEST_CASE("v-forms of a rank alone are right, performed on the board, and allocate nothing") {
  engine e;
  auto all = e.communicators(1);
  communicator& c = all.front();
  std::vector<float> in(64), out(64);
  std::iota(in.begin(), in.end(), 1.0F);
  block_list blocks{{1}};
  std::size_t n = 0, wrong = 0;
  const auto right = [&](std::size_t first = 0) {
    for (std::size_t i = 0; i < n; ++i) wrong += out[first + i] != in[i] ? 1 : 0;
    for (std::size_t i = first + n; i < out.size(); ++i) wrong += out[i] != 0 ? 1 : 0;
    out.assign(out.size(), 0);
  };
  const std::array<std::function<void()>, 6> calls_of{
      [&] { c.run(calls::gather_v(in.data(), n, out.data(), blocks, datatype::f32, 0)); },
      [&] { c.run(calls::scatter_v(in.data(), blocks, out.data(), n, datatype::f32, 0)); },
      [&] { c.run(calls::all_to_all_v(in.data(), blocks, out.data(), blocks, datatype::f32)); },
      [&] { c.run(calls::all_gather_v(in.data(), out.data(), blocks, datatype::f32)); },
      [&] { c.run(calls::reduce_scatter_v(in.data(), out.data(), blocks, datatype::f32)); },
      [&] { c.all_to_all_v(in, blocks, out, blocks); }};
  for (const auto& call : calls_of) {
    for (std::size_t elements = 0; elements <= 33; ++elements) {
      blocks.counts[0] = n = elements;
      call();
      right();
    }
    // What is made once for the calls to come may be made in any of them.
    std::size_t least = std::numeric_limits<std::size_t>::max();
    for (int round = 0; round < 3; ++round) {
      const auto before = issues::allocations();
      for (int i = 0; i < 100; ++i) call();
      least = std::min(least, issues::allocations() - before);
    }
    CHECK(least == 0);
    right();
  }
  CHECK(wrong == 0);
  // A block that does not lie at the begin of its buffer.
  n = 5;
  c.run(calls::gather_v(in.data(), n, out.data(), {{n}, {7}}, datatype::f32, 0));
  right(7);
  CHECK(wrong == 0);
}

TEST_CASE("v-forms of a rank alone may be in place, wherever the block lies") {
  engine e;
  auto all = e.communicators(1);
  communicator& c = all.front();
  std::vector<float> at(8);
  std::iota(at.begin(), at.end(), 1.0F);
  const std::vector<float> before = at;
  float* const whole = at.data();
  const block_list blocks{{4}, {3}};
  // Twice, as what was checked is remembered. They were refused as buffers that overlap.
  for (int round = 0; round < 2; ++round) {
    c.run(calls::gather_v(whole + 3, 4, whole, blocks, datatype::f32, 0));
    c.run(calls::scatter_v(whole, blocks, whole + 3, 4, datatype::f32, 0));
    c.run(calls::all_gather_v(whole + 3, whole, blocks, datatype::f32));
    c.run(calls::reduce_scatter_v(whole, whole + 3, blocks, datatype::f32));
    CHECK(at == before);
  }
  CHECK_THROWS_WITH_AS(c.run(calls::gather_v(whole + 2, 4, whole, blocks, datatype::f32, 0)),
                       doctest::Contains("input and output overlap"), error);
}

TEST_CASE("what is wrong with a v-form of a rank alone is said as ever") {
  engine e;
  auto all = e.communicators(1);
  communicator& c = all.front();
  std::vector<float> in(8), out(8);
  const auto code_of = [&](auto call) {
    try {
      call();
    } catch (const error& why) {
      return why.code_value();
    }
    return errc{};
  };
  CHECK(code_of([&] { c.all_to_all_v(in, block_list{{3}}, out, block_list{{4}}); }) == errc::mismatch);
  CHECK(code_of([&] { c.gather_v(in, out, block_list{{7}}, 0); }) == errc::invalid_argument);
  CHECK(code_of([&] { c.all_gather_v(in, out, block_list{{9}}); }) == errc::invalid_argument);
  CHECK(code_of([&] { c.all_gather_v(in, out, block_list{{4, 4}}); }) == errc::invalid_argument);
  CHECK(code_of([&] { c.run(calls::gather_v(nullptr, 3, out.data(), {{3}}, datatype::f32, 0)); }) == errc::null_buffer);
  CHECK(code_of([&] { c.run(calls::scatter_v(in.data(), {{3}}, out.data(), 3, datatype::f32, 1)); }) == errc::bad_root);
  CHECK(code_of([&] { c.run(calls::all_to_all_v(in.data(), {{4}}, in.data() + 2, {{4}}, datatype::f32)); }) ==
        errc::buffers_overlap);
}

}  // namespace alone_test
