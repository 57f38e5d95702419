// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where ranks of several processes of a host keep what a partitioned operation says (link_view.hpp): each rank in *areas* of its own, which all
// map. So nobody waits for a lock that a process could die with, and nothing has to be agreed on before a rank begins.
//
// A rank has a *directory*: for each operation that it is in, the operation's number and its area. A rank that arrives enters its operation there (C1) and
// then looks for the others' entries (C2); a sender looks for the receiver's entry after it has sent (N2). If it finds none, the receiver takes care of it: it
// finds all that was sent when it arrives (`sent` and the entries are sequentially consistent, so one order holds for both). A rank that finds an entry compares
// the calls: of two ranks at least one sees the other's.
//
// An area is used again when its rank has left the operation. Performed: then all that it has sent is taken, and nobody has to find anything
// there; a bit or a wake-up that comes late costs the next operation a look. Failed: the directory does not name it any more, and a reader checks the
// directory before it believes what it has read; the area lies idle until every rank has stopped (forget()). So a process that was stopped
// while it read, and counts as lost, takes nothing for what it was not.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "actors/ports/parts/link_view.hpp"
#include "actors/ports/segment/board_memory.hpp"
#include "actors/ports/segment/relative.hpp"
#include "protocols/chunk.hpp"

namespace troupe::actors {

/// Of one communicator, as one process sees it. Any thread; a rank's own calls one at a time.
class part_areas {
public:
  /// Operations that a rank is in at once.
  static constexpr int most = 32;

  /// @param memory which outlives it, and whose peers() it has
  part_areas(int ranks, board_memory& memory);
  part_areas(const part_areas&) = delete;
  part_areas& operator=(const part_areas&) = delete;

  /// The other processes' memory, as this one reaches it.
  process_memory& others() const { return *memory_->peers(); }

  enum class found : std::uint8_t { nothing, it, unlike };
  /// The rank of this process comes to the operation. Allocates only for more operations at once, or larger ones, than ever before. Throws
  /// error(out_of_memory).
  link_view enter(epoch_t epoch, std::uint64_t fingerprint, rank_t rank, const part_links& shape);
  /// Another rank's, if it has come. `unlike`: it has called something else.
  found find(epoch_t epoch, std::uint64_t fingerprint, rank_t rank, link_view& view) const;
  /// The rank touches nothing any more.
  void leave(epoch_t epoch, rank_t rank, bool performed);
  /// Every rank has stopped, and the operation has failed.
  void forget(epoch_t epoch);

  /// The most that they may ever lay down.
  static std::size_t most_bytes(int ranks);

private:
  static constexpr std::size_t news_words = part_links::most_lanes_between / 64;
  static constexpr std::uint32_t fewest_lines = 64;
  struct area {
    link_member words;
    std::atomic<std::uint64_t> news[news_words];
    link_line* lines() { return reinterpret_cast<link_line*>(this + 1); }
    static std::size_t bytes(std::uint32_t lines) { return sizeof(area) + lines * sizeof(link_line); }
  };
  /// What is not the operation's any more when `names` has changed.
  struct entry {
    std::atomic<std::uint64_t> names{0};  ///< the operation's number, plus one; 0: none
    std::atomic<std::uint64_t> fingerprint{0};
    std::atomic<std::uint32_t> stamp{0};
    relative<area> at;
  };
  struct alignas(128) directory {
    entry of[most];
  };
  struct owned {
    area* at;
    std::uint32_t lines, stamp;
    bool free;
  };
  /// Of a rank of this process.
  struct row {
    std::vector<owned> areas;
    struct use {
      std::uint64_t names = 0;  ///< as entry's
      std::size_t area = 0;
      bool given_up = false;
    };
    std::array<use, most> uses{};
  };

  std::size_t take_area(row& of, std::uint32_t lines);
  void let_go(rank_t rank, row::use& what);

  board_memory* memory_;
  directory* directories_;  ///< by rank
  std::mutex mutex_;        ///< of the rows: twice a rank and operation
  std::vector<row> rows_;   ///< by rank
};

}  // namespace troupe::actors
