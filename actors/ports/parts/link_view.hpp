// SPDX-License-Identifier: Apache-2.0
#pragma once
// The part of one rank of a partitioned operation that the others look at: the lines of its links, and its news. It lies on a link_board, of one
// process, or in one of the part_areas that processes of a host map. link_board.hpp says which rank writes which word, and in which order.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "actors/ports/parts/part_links.hpp"

namespace troupe::actors {

/// Two messages of a link, and of its first line the words.
struct alignas(64) link_line {
  struct entry {
    const std::byte* data = nullptr;  ///< as its sender sees it
    std::size_t bytes = 0;
  };
  std::atomic<std::uint64_t> sent{0};  ///< stamp, and how many messages
  std::atomic<std::uint64_t> taken{
      0};  ///< the same of those that need no room any more; only where they are more than have room
  std::atomic<std::uint32_t> wanted{0};  ///< stamp: the sender waits for `taken`
  entry room[part_links::per_line];
};

struct alignas(128) link_member {
  std::atomic<bool> here{false};
  std::atomic<bool> waits{false};  ///< until all that it has sent is taken
  std::atomic<bool> told{
      false};  ///< between processes: it is going to look at its news, on somebody's word or by itself
  std::atomic<std::int32_t> open{0};  ///< that it has sent, and that is not taken
};
static_assert(std::is_trivially_destructible_v<link_line> && std::is_trivially_destructible_v<link_member>);

/// Where this process finds all that.
struct link_view {
  link_member* member = nullptr;               ///< null: the rank has not come yet, as far as is known
  std::atomic<std::uint64_t>* news = nullptr;  ///< a bit a lane
  link_line* lines = nullptr;
  std::uint32_t stamp = 0;
  /// Between processes: the word that names the operation, by its number plus one, as long as its rank is in it; else null.
  const std::atomic<std::uint64_t>* names = nullptr;

  link_line& at(std::uint32_t first, std::uint32_t message = 0) const {
    return lines[first + message / part_links::per_line];
  }
};

}  // namespace troupe::actors
