// SPDX-License-Identifier: Apache-2.0
#include "protocols/in_place.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

using troupe::lies_in_place;
using troupe::own_blocks;

namespace {
constexpr std::size_t size = 4;
const std::array<std::byte, 1024> memory{};
const void* at(std::size_t element) { return memory.data() + element * size; }
}  // namespace

TEST_CASE("in place: buffers of equally many blocks, or of which one has none, begin together") {
  for (const auto& blocks : {std::pair{1, 1}, {5, 5}, {1, 0}, {0, 1}}) {
    CAPTURE(blocks.first);
    CAPTURE(blocks.second);
    const own_blocks of{.inputs = blocks.first, .outputs = blocks.second, .own = 2, .count = 7};
    CHECK(lies_in_place(of, at(3), at(3), size));
    CHECK_FALSE(lies_in_place(of, at(3), at(17), size));
    CHECK_FALSE(lies_in_place(of, at(17), at(3), size));
  }
}

TEST_CASE("in place: the smaller buffer is the rank's own block of the larger one") {
  const std::vector<std::size_t> counts{5, 0, 3, 9}, begins{40, 30, 20, 10};
  own_blocks of{.inputs = 1, .outputs = 4, .own = 2, .count = 7};
  std::size_t begin = 14;  // two blocks of 7
  SUBCASE("of equal blocks") {}
  SUBCASE("of blocks one behind the other") { of.counts = counts, begin = 5; }
  SUBCASE("of blocks at displacements") {
    of.counts = counts, begin = 20;
    of.output_displacements = begins;
  }
  CHECK(lies_in_place(of, at(100 + begin), at(100), size));
  CHECK_FALSE(lies_in_place(of, at(100), at(100), size));
  CHECK_FALSE(lies_in_place(of, at(100 + begin - 1), at(100), size));
  std::swap(of.inputs, of.outputs);
  std::swap(of.input_displacements, of.output_displacements);
  CHECK(lies_in_place(of, at(100), at(100 + begin), size));
  CHECK_FALSE(lies_in_place(of, at(100), at(100), size));
}

TEST_CASE("in place: the only block of a rank alone may lie anywhere in either buffer") {
  const std::vector<std::size_t> five{5}, eight{8}, counts{3};
  own_blocks of{.inputs = 1, .outputs = 1, .counts = counts, .output_displacements = five};
  CHECK(lies_in_place(of, at(105), at(100), size));
  CHECK_FALSE(lies_in_place(of, at(104), at(100), size));
  of.input_displacements = eight;
  CHECK(lies_in_place(of, at(97), at(100), size));
  CHECK_FALSE(lies_in_place(of, at(105), at(100), size));
  CHECK(lies_in_place(of, at(100), at(100), size));  // one buffer for both
}
