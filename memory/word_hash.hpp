// SPDX-License-Identifier: Apache-2.0
#pragma once
// FNV-1a over 64-bit words instead of bytes: what tells calls, plans and scores from each other. Cheap; the same in every process of a
// machine's word size and byte order. Nothing is defended against who makes collisions on purpose.

#include <cstdint>
#include <string_view>

namespace troupe {

struct word_hash {
  std::uint64_t state = 0xcbf29ce484222325u;
  constexpr void add(std::uint64_t word) {
    state ^= word;
    state *= 0x100000001b3u;
    state ^= state >> 29;
  }
  constexpr void add(std::string_view text) {
    for (const char letter : text) add(std::uint64_t{static_cast<unsigned char>(letter)});
  }
};

}  // namespace troupe
