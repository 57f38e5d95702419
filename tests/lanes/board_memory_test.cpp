// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/segment/board_memory.hpp"

#include <doctest/doctest.h>

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory_resource>
#include <utility>
#include <vector>

#include "actors/ports/slots/slot_board.hpp"

using troupe::board_memory;
using troupe::heap_memory;

namespace {

struct board_piece {
  std::byte* at;
  std::size_t bytes;
};

bool is_all_zeros(const board_piece& p) {
  return std::all_of(p.at, p.at + p.bytes, [](std::byte b) { return b == std::byte{}; });
}

/// Pages that the system has given.
std::size_t pages_given(const board_piece& p) {
  constexpr std::uintptr_t page = 4096;
  const auto first = reinterpret_cast<std::uintptr_t>(p.at) / page * page;
  const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(p.at) + p.bytes;
  std::vector<unsigned char> pages((end - first + page - 1) / page);
  REQUIRE(::mincore(reinterpret_cast<void*>(first), end - first, pages.data()) == 0);
  return static_cast<std::size_t>(std::ranges::count_if(pages, [](unsigned char one) { return (one & 1) != 0; }));
}

}  // namespace

TEST_CASE("board memory: pieces are zeros, on lines of their own, apart from each other") {
  alignas(128) std::array<std::byte, 2048> room;
  room.fill(std::byte{0xff});
  std::pmr::monotonic_buffer_resource roots{room.data(), room.size(), std::pmr::null_memory_resource()};
  heap_memory memory{true, &roots};
  std::vector<board_piece> all;
  for (const std::size_t bytes : {8u, 130u, 1000u}) all.push_back({memory.roots<std::byte>(bytes), bytes});
  for (int round = 0; round < 40; ++round)
    for (const std::size_t bytes : {1u, 128u, 896u, 3000u, 20'000u, 300'000u}) {
      all.push_back({static_cast<std::byte*>(memory.take(bytes)), bytes});
      all.push_back({static_cast<std::byte*>(memory.take_for_later(bytes)), bytes});
    }
  all.push_back({static_cast<std::byte*>(memory.take(std::size_t{5} << 20)), std::size_t{5} << 20});
  for (const board_piece& p : all) {
    REQUIRE(p.at != nullptr);
    CHECK(reinterpret_cast<std::uintptr_t>(p.at) % board_memory::alignment == 0);
    CHECK(is_all_zeros(p));
  }
  std::ranges::sort(all, {}, &board_piece::at);
  for (std::size_t i = 1; i < all.size(); ++i) CHECK(all[i - 1].at + all[i - 1].bytes <= all[i].at);
}

TEST_CASE("board memory: a board of many ranks takes the pages that it writes to, and no others") {
  heap_memory memory;
  std::vector<board_piece> soon, later;
  constexpr std::size_t bytes = 14 * 1024, many = 64;
  for (std::size_t i = 0; i < many; ++i) {
    soon.push_back({static_cast<std::byte*>(memory.take(bytes)), bytes});
    later.push_back({static_cast<std::byte*>(memory.take_for_later(bytes)), bytes});
  }
  const auto pages = [](const std::vector<board_piece>& of) {
    std::size_t total = 0;
    for (const board_piece& p : of) total += pages_given(p);
    return total;
  };
  CHECK(pages(soon) + pages(later) <= 8);  // of the little that comes from the heap
  for (const board_piece& p : soon) std::memset(p.at, 1, 1024);
  CHECK(pages(soon) >= many / 2);
  CHECK(pages(soon) <= 3 * many);
  CHECK(pages(later) <= 4);
}

TEST_CASE("board memory: what the system refuses is no piece") {
  heap_memory memory;
  CHECK(memory.take(static_cast<std::size_t>(-1) / 4) == nullptr);
  CHECK(memory.take(static_cast<std::size_t>(-1) / 2 + 4096) == nullptr);
  CHECK(memory.take(64) != nullptr);
}
