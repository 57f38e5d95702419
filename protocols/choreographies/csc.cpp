// SPDX-License-Identifier: Apache-2.0
// Cross shared communication (spec 1, "CSC-AG", "CSC-RS"): through L2, one segment that all ranks address. Every rank puts what
// others want into L2, one sync, every rank gets what it wants: one sync instead of a ring's n − 1, and all reads in parallel.
// In step i rank r reads what rank (i + r) mod n has put, so that the ranks are on different segments of the ring bus.
//
// Data moves by DMA and always through L0, which is small: one cell for summing up and one for moving, used again for every
// block and every slice (cells that may differ in size, parts of a block or blocks of a v-collective, cannot share one).
// CSC-RS reduces in L0, in the order r, r+1, …, wrapping round. all_reduce is CSC-RS and CSC-AG on the block's n parts.
//
// CSC-AG can fetch up to three blocks at once where they lie beside each other in L2 (setup::contiguous; spec 1, "dynamic block size"): one
// command instead of three, for blocks that are small enough to be in L0 together.
//
// No sync at the end: every slice has its own cells of L2. The owner of the segment keeps it until all ranks have finished.

#include <algorithm>

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/patterns.hpp"

namespace troupe::choreographies {

namespace csc_scores {
namespace {
using namespace notation;

constexpr int most_at_once = 3;  ///< blocks that one command reads (spec 1)

/// One rank: moves cells between the tiers. The first L0 cell of a reduction sums up, the others move.
class core_group {
public:
  core_group(score_builder& s, rank_t r) : s_(s), rank_(r), me_(s.lane(r)) {
    if (is_reduction(s.on().what)) s.l0_like(r, output[r]);
  }

  /// One of `from` and `to` lies in a user buffer, the other in L2.
  void move(cells from, cells to) {
    const cells by = moving(from.buffer == buffer_kind::l2 ? to : from);
    me_.dma_get(from, by);
    me_.dma_put(by, to);
  }
  /// Out of place the own block goes to the output while it is in L0 for being published.
  void publish_and_keep(cells own, cells published, cells kept) {
    move(own, published);
    if (!s_.on().in_place) me_.dma_put(moving(own), kept);
  }
  /// Room in L0 for so many of the output's blocks, which are alike, beside each other. The first one also moves single blocks.
  void make_room(int count) { room_ = cell_of(output[0]) = s_.l0_like(rank_, output.cells(0, count)).first; }
  /// `count` blocks of L2 from `first` on, which lie beside each other there and in the output. @pre make_room()
  void fetch(int first, int count) {
    me_.dma_get(l2.cells(first, count), l0.cells(room_, count));
    me_.dma_put(l0.cells(room_, count), output.cells(first, count));
  }
  void begin_sum(cells own) { me_.dma_get(own, l0[0]); }
  void add(cells from_l2) {
    const cells by = moving(output[rank_]);
    me_.dma_get(from_l2, by);
    me_.reduce(by, l0[0]);
  }
  void end_sum(cells to) { me_.dma_put(l0[0], to); }
  void sync() { me_.sync(); }

private:
  cells moving(cells model) {
    std::int32_t& cell = cell_of(model);
    if (cell < 0) cell = s_.l0_like(rank_, model).first;
    return l0[cell];
  }
  /// The L0 cell that moves cells of the model's size; −1: none yet.
  std::int32_t& cell_of(cells model) {
    const place at = s_.resolve(rank_, model);
    const extent wanted = extent_of(s_.draft(), rank_, at.buffer, at.cell);
    // Cells of the same part of equal blocks have one size.
    const std::int64_t size = wanted.part + (s_.on().uniform ? 0 : wanted.block * s_.draft().parts);
    if (by_size_.size() <= static_cast<std::size_t>(size)) by_size_.resize(static_cast<std::size_t>(size) + 1, -1);
    return by_size_[static_cast<std::size_t>(size)];
  }

  score_builder& s_;
  rank_t rank_;
  lane_writer me_;
  std::vector<std::int32_t> by_size_;
  std::int32_t room_ = -1;
};

score all_gather(const setup& on) {
  score_builder s{on, "csc", 1};
  for (rank_t block = 0; block < on.ranks; ++block) s.l2_block(block);
  for (rank_t r = 0; r < on.ranks; ++r) {
    core_group me{s, r};
    const bool at_once = on.contiguous && on.uniform;
    if (at_once) me.make_room(std::min(most_at_once, on.ranks - 1));
    me.publish_and_keep(input[0], l2[r], output[r]);
    me.sync();
    for (int i = 1, count = 1; i < on.ranks; i += count) {
      if (!at_once) {
        me.move(l2[i + r], output[i + r]);
        continue;
      }
      const int first = (i + r) % on.ranks;
      count = std::min({most_at_once, on.ranks - i, on.ranks - first});
      me.fetch(first, count);
    }
  }
  return s.finish();
}

/// reduce_scatter and all_reduce. L2 has a row of n cells for every rank's input; the rank's own share, which nobody else
/// reads, is not published: its cell later takes the sum.
score reduce(const setup& on) {
  const int n = on.ranks;
  const bool all = on.what == collective::all_reduce;
  score_builder s{on, "csc", all ? n : 1};
  for (rank_t owner = 0; owner < n; ++owner) {
    if (all) s.l2_block(0);
    for (rank_t block = 0; !all && block < n; ++block) s.l2_block(block);
  }
  const auto published = [&](rank_t owner, rank_t share) { return l2[owner % n * n + share % n]; };
  for (rank_t r = 0; r < n; ++r) {
    core_group me{s, r};
    for (int i = 1; i < n; ++i) me.move(input[i + r], published(r, i + r));
    me.sync();
    me.begin_sum(input[r]);
    for (int i = 1; i < n; ++i) me.add(published(i + r, r));
    me.end_sum(output[r]);  // in reduce_scatter the one cell of the output
    if (!all) continue;
    me.end_sum(published(r, r));
    me.sync();
    for (int i = 1; i < n; ++i) me.move(published(i + r, i + r), output[i + r]);
  }
  return s.finish();
}

constexpr offer offered[] = {
    {collective::all_gather, all_gather}, {collective::reduce_scatter, reduce}, {collective::all_reduce, reduce}};

}  // namespace
}  // namespace csc_scores

constinit const choreography csc{"csc", "through a segment that all ranks address: put, one sync, get",
                                 "SW-IntraCC, CSC-AG and CSC-RS (spec 1)", csc_scores::offered, refuses_apart};

}  // namespace troupe::choreographies
