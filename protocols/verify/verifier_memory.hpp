// SPDX-License-Identifier: Apache-2.0
#pragma once
// The cells of a score under verification: their one name, what they hold, and which steps touched them last (vector clocks in the
// manner of FastTrack, Flanagan and Freund 2009: one epoch for the last write, a short list for the reads since then).

#include <cstdint>
#include <span>
#include <vector>

#include "memory/large_pages.hpp"
#include "protocols/score/score.hpp"
#include "protocols/verify/reduction_forest.hpp"

namespace troupe::verifying {

/// Steps that a lane has performed, per lane of the whole score.
using ticks = std::uint32_t;
using clock_view = std::span<const ticks>;

/// A step that was performed: the `time`-th of lane `lane` (numbered over all ranks). Time 0: none.
struct epoch {
  std::int32_t lane = -1;
  ticks time = 0;
};

/// What a lane knows covers `e`, or `e` is in the lane itself.
inline bool ordered(clock_view known, std::int32_t own_lane, epoch e) {
  return e.time == 0 || e.lane == own_lane || known[static_cast<std::size_t>(e.lane)] >= e.time;
}

/// The named cells of a score, numbered. Cells that are the same memory in an in-place call have one location.
/// @pre the structure of the score was checked.
class cell_table {
public:
  cell_table(const score& s, int slices);

  /// Number of the first cell of `at` as `rank` names it; the others follow. @pre at.count > 0
  std::size_t number(rank_t rank, const place& at) const;
  std::size_t location(std::size_t cell, int slice) const {
    const std::size_t named = canonical_.empty() ? cell : canonical_[cell];
    return named < shared_ ? static_cast<std::size_t>(slice) * shared_ + named : slices_ * shared_ + (named - shared_);
  }
  std::size_t locations() const { return shared_ * slices_ + (chunks_.size() - shared_); }
  /// Which chunk of which slice a cell holds.
  std::int64_t chunk(std::size_t cell, int slice) const { return chunks_[cell] + chunk_total_ * slice; }
  bool same_size(std::size_t a, std::size_t b) const {
    return uniform_ ? parts_ == 1 || part_of_[a] == part_of_[b] : chunks_[a] == chunks_[b];
  }

private:
  static constexpr std::size_t buffers = 6;
  void number_cells(const score& s);

  std::size_t slices_;
  bool uniform_;
  std::int64_t parts_;
  std::int64_t chunk_total_;
  std::size_t shared_ = 0;               ///< cells below are different memory in every slice; from here on it is l0
  std::vector<std::size_t> first_;       ///< by rank and buffer
  large_vector<std::int64_t> chunks_;    ///< block · parts + part
  large_vector<std::int32_t> part_of_;   ///< of uniform scores with several parts: the same without its block
  large_vector<std::size_t> canonical_;  ///< empty: every cell is its own memory
};

/// The contents of the locations, and the steps that touched them.
class cell_memory {
public:
  using node_id = reduction_forest::node_id;

  explicit cell_memory(std::size_t locations) : cells_(locations) {}

  node_id value(std::size_t location) const { return cells_[location].value; }
  /// @param by when it is so only after that; else it is from the beginning
  void fill(std::size_t location, node_id value, epoch by) {
    cells_[location].value = value;
    cells_[location].last_write = by;
  }

  /// Notes a read by `now`. Returns the last write if that is not ordered before, else an epoch of time 0.
  epoch read(std::size_t location, clock_view known, epoch now);
  /// Notes a write. Returns a write or read that is not ordered before, else an epoch of time 0.
  epoch write(std::size_t location, clock_view known, epoch now, node_id value, bool& conflicts_with_read);

  /// References handed out by sends whose receivers have still to read.
  void lend(std::size_t location) { ++cells_[location].lent; }
  void give_back(std::size_t location) { --cells_[location].lent; }
  bool lent(std::size_t location) const { return cells_[location].lent != 0; }

private:
  struct cell {
    node_id value = reduction_forest::none;
    epoch last_write;
    std::int32_t reads = -1;  ///< list in reads_
    std::uint32_t lent = 0;
  };
  struct read_entry {
    epoch at;
    std::int32_t next;
  };
  void forget(std::int32_t& link);

  large_vector<cell> cells_;
  std::vector<read_entry> reads_;
  std::int32_t free_ = -1;
};

}  // namespace troupe::verifying
