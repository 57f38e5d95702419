// SPDX-License-Identifier: Apache-2.0
#include "engine/bindings/c/troupe_card.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <new>

#include "memory/error.hpp"
#include "memory/tiers/card_memory.hpp"

struct troupe_card {
  troupe::card_memory memory;
};

namespace {

// No std::string: that memory has run out must be sayable without any.
thread_local std::array<char, 1024> last_message{};

/// A longer text is cut.
void keep(const char* message) noexcept {
  const std::size_t length = std::min(std::strlen(message), last_message.size() - 1);
  std::memcpy(last_message.data(), message, length);
  last_message[length] = '\0';
}

constexpr bool same(troupe_card_error number, troupe::errc code) {
  return static_cast<int>(number) == static_cast<int>(code);
}
static_assert(same(TROUPE_CARD_OK, troupe::errc::ok));
static_assert(same(TROUPE_CARD_INVALID_ARGUMENT, troupe::errc::invalid_argument));
static_assert(same(TROUPE_CARD_SIZE_OVERFLOW, troupe::errc::size_overflow));
static_assert(same(TROUPE_CARD_ABORTED, troupe::errc::aborted));
static_assert(same(TROUPE_CARD_OUT_OF_MEMORY, troupe::errc::out_of_memory));

/// No exception leaves for C.
template <class Work>
int code_of(const void* needed, Work work) noexcept {
  try {
    if (needed == nullptr) {
      keep("troupe_card: a pointer is NULL");
      return TROUPE_CARD_INVALID_ARGUMENT;
    }
    work();
    return 0;
  } catch (const troupe::error& problem) {
    keep(problem.what());
    return static_cast<int>(problem.code_value());
  } catch (const std::bad_alloc&) {
    keep("troupe_card: out of memory");
    return TROUPE_CARD_OUT_OF_MEMORY;
  } catch (const std::exception& problem) {
    keep(problem.what());
    return TROUPE_CARD_ABORTED;
  }
}

}  // namespace

extern "C" {

int troupe_card_create(const troupe_card_options* options, troupe_card** card) {
  return code_of(card, [&] {
    troupe::card_options o;
    if (options != nullptr)
      o = {.core_groups = options->core_groups,
           .l0_bytes = options->l0_bytes,
           .hbm_bytes = options->hbm_bytes,
           .l1_bytes = options->l1_bytes,
           .shared = options->shared != 0};
    *card = new troupe_card{troupe::card_memory{o}};
  });
}

void troupe_card_destroy(troupe_card* card) { delete card; }
const char* troupe_card_message(void) { return last_message.data(); }

int troupe_malloc_local(troupe_card* card, int core_group, void** block, size_t bytes) {
  return code_of(block == nullptr ? nullptr : card, [&] { *block = card->memory.malloc_local(core_group, bytes); });
}
int troupe_free_local(troupe_card* card, void* block) {
  return code_of(card, [&] { card->memory.free_local(block); });
}
int troupe_malloc_cross(troupe_card* card, void** block, size_t bytes) {
  return code_of(block == nullptr ? nullptr : card, [&] { *block = card->memory.malloc_cross(bytes); });
}
int troupe_free_cross(troupe_card* card, void* block) {
  return code_of(card, [&] { card->memory.free_cross(block); });
}

int troupe_card_move_split(troupe_card* card, size_t l1_bytes) {
  return code_of(card, [&] { card->memory.move_split(l1_bytes); });
}
int troupe_card_descriptor(const troupe_card* card) { return card == nullptr ? -1 : card->memory.descriptor(); }
int troupe_card_offset(const troupe_card* card, const void* block, size_t* offset) {
  return code_of(offset == nullptr ? nullptr : card, [&] { *offset = card->memory.offset_of(block); });
}

}  // extern "C"
