// SPDX-License-Identifier: Apache-2.0
// A card's memory from C: every call, and that a mistake is a number and a sentence, never an exception.
#include "engine/bindings/c/troupe_card.h"
#include "memory/error.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <string>

namespace {

constexpr int refused = static_cast<int>(troupe::errc::invalid_argument);
constexpr int no_room = static_cast<int>(troupe::errc::out_of_memory);

}  // namespace

TEST_CASE("a card from C: allocate, give back, move the split") {
  const troupe_card_options sizes{2, 1 << 20, 8 << 20, 4 << 20, 1};
  troupe_card* card = nullptr;
  REQUIRE(troupe_card_create(&sizes, &card) == 0);
  void *local = nullptr, *cross = nullptr;
  REQUIRE(troupe_malloc_local(card, 1, &local, 3 << 20) == 0);
  REQUIRE(troupe_malloc_cross(card, &cross, 7 << 20) == 0);
  std::memset(local, 1, 3 << 20);
  std::memset(cross, 2, 7 << 20);
  std::size_t at_local = 0, at_cross = 0;
  CHECK(troupe_card_descriptor(card) >= 0);
  CHECK(troupe_card_offset(card, local, &at_local) == 0);
  CHECK(troupe_card_offset(card, cross, &at_cross) == 0);
  CHECK(static_cast<char*>(local) - static_cast<char*>(cross) ==
        static_cast<std::ptrdiff_t>(at_local) - static_cast<std::ptrdiff_t>(at_cross));
  CHECK(troupe_card_move_split(card, 8 << 20) == no_room);
  CHECK(troupe_free_cross(card, cross) == 0);
  CHECK(troupe_card_move_split(card, 8 << 20) == 0);
  CHECK(troupe_malloc_cross(card, &cross, 1) == no_room);
  CHECK(troupe_free_local(card, local) == 0);
  CHECK(troupe_free_local(card, nullptr) == 0);
  troupe_card_destroy(card);
}

TEST_CASE("a card from C: mistakes are told, and write nothing") {
  const troupe_card_options none{0, 0, 0, 0, 0};
  troupe_card* card = nullptr;
  CHECK(troupe_card_create(&none, &card) == refused);
  CHECK(card == nullptr);
  CHECK(std::string{troupe_card_message()}.find("0 core groups") != std::string::npos);
  CHECK(troupe_card_create(&none, nullptr) == refused);
  REQUIRE(troupe_card_create(nullptr, &card) == 0);  // spec 1's card: address space, no memory yet
  CHECK(troupe_card_descriptor(card) == -1);
  void* block = &card;
  CHECK(troupe_malloc_local(card, 4, &block, 1) == refused);
  CHECK(block == &card);
  CHECK(troupe_malloc_local(card, 0, nullptr, 1) == refused);
  CHECK(troupe_malloc_local(nullptr, 0, &block, 1) == refused);
  CHECK(troupe_malloc_cross(card, &block, ~std::size_t{0}) == static_cast<int>(troupe::errc::size_overflow));
  CHECK(troupe_free_cross(card, &card) == refused);
  CHECK(std::string{troupe_card_message()}.find("no address of this memory") != std::string::npos);
  REQUIRE(troupe_malloc_cross(card, &block, 1'000'000'000) == 0);
  CHECK(troupe_free_local(card, block) == refused);
  CHECK(troupe_free_cross(card, block) == 0);
  CHECK(troupe_free_cross(card, block) == refused);
  std::size_t offset = 0;
  CHECK(troupe_card_offset(card, block, nullptr) == refused);
  CHECK(troupe_card_offset(card, &offset, &offset) == refused);
  troupe_card_destroy(card);
  troupe_card_destroy(nullptr);
}
