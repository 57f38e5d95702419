// SPDX-License-Identifier: Apache-2.0
// Memory of large tables (memory/large_pages.hpp): aligned, kept while tables grow, and nobody's twice.

#include "memory/large_pages.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory_resource>
#include <new>
#include <utility>
#include <vector>

using namespace troupe;

namespace {

constexpr std::size_t mib = 1 << 20;

bool aligned(const void* at, std::size_t to) { return reinterpret_cast<std::uintptr_t>(at) % to == 0; }

}  // namespace

TEST_CASE(
    "large pages: whatever the size, all of it can be written, and what is large begins on a page of two mebibytes") {
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{4096}, mib - 1, mib, 2 * mib - 1, 2 * mib, 2 * mib + 1, 9 * mib + 5}) {
    CAPTURE(bytes);
    void* const at = take_large(bytes);
    CHECK(aligned(at, bytes < mib ? 64 : 2 * mib));
    std::memset(at, 0x5a, bytes);
    void* const other = take_large(bytes);
    std::memset(other, 0, bytes);
    const auto* const b = static_cast<const unsigned char*>(at);
    CHECK(b[0] == 0x5a);
    CHECK(b[bytes - 1] == 0x5a);
    give_large(at, bytes);
    give_large(other, bytes);
  }
  CHECK_THROWS_AS(take_large(std::numeric_limits<std::size_t>::max() - 5), std::bad_alloc);
}

TEST_CASE("large pages: a table keeps what is in it while it grows from the heap onto pages") {
  large_vector<std::uint32_t> grown;
  constexpr std::uint32_t count = 1'500'000;
  for (std::uint32_t i = 0; i < count; ++i) grown.push_back(i * 7);
  const auto copy = grown;
  bool same = true;
  for (std::uint32_t i = 0; i < count; ++i) same = same && copy[i] == i * 7;
  CHECK(same);
}

TEST_CASE("run memory: pieces of every size and alignment, none over another") {
  run_memory memory{1000};
  std::vector<std::pair<unsigned char*, std::size_t>> pieces;
  for (std::size_t i = 0; i < 20'000; ++i) {
    const std::size_t bytes = 1 + i * 37 % 513, alignment = std::size_t{1} << i % 7;
    auto* const at = static_cast<unsigned char*>(memory.allocate(bytes, alignment));
    REQUIRE(aligned(at, alignment));
    std::memset(at, static_cast<int>(i % 251), bytes);
    pieces.emplace_back(at, bytes);
  }
  bool whole = true;
  for (std::size_t i = 0; i < pieces.size(); ++i)
    for (std::size_t b = 0; b < pieces[i].second; ++b) whole = whole && pieces[i].first[b] == i % 251;
  CHECK(whole);
}
