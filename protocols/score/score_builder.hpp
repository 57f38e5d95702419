// SPDX-License-Identifier: Apache-2.0
#pragma once
// The notation choreographies are written in. A lane_writer appends steps to one lane of one rank:
//
//   score_builder s{on, "ring", on.ranks};                     // every block in `ranks` parts
//   for (rank_t r = 0; r < on.ranks; ++r) {
//     auto me = s.lane(r).from(s.before(r)).to(s.after(r));
//     me.send(input[r]);
//     me.recv_reduce_copy_send(input[r + 1], output[r + 1]);   // indices wrap round
//   }
//   return s.finish();

#include <initializer_list>
#include <string_view>
#include <utility>

#include "memory/export.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/score/score.hpp"
#include "protocols/score/score_tally.hpp"

namespace troupe {

/// Names a buffer in the notation: `input[c]` one cell (wraps round modulo the number of cells), `input.cells(first, count)`,
/// `output.block(b)` all parts of the b-th block in the buffer (wraps round), `input.all()`.
struct buffer_notation {
  buffer_kind buffer;
  rank_t owner = self;
  struct cells_t {
    buffer_kind buffer;
    rank_t owner;
    std::int32_t first;
    std::int32_t count;  ///< cells; or with `blocks` set: blocks; −1: all
    bool blocks;
  };
  constexpr cells_t operator[](std::int32_t cell) const { return {buffer, owner, cell, 1, false}; }
  constexpr cells_t cells(std::int32_t first, std::int32_t count) const { return {buffer, owner, first, count, false}; }
  constexpr cells_t block(std::int32_t index) const { return {buffer, owner, index, 1, true}; }
  constexpr cells_t blocks(std::int32_t first, std::int32_t count) const { return {buffer, owner, first, count, true}; }
  constexpr cells_t all() const { return {buffer, owner, 0, -1, false}; }
  /// The same buffer of another rank (one address space only).
  constexpr buffer_notation of(rank_t rank) const { return {buffer, rank}; }
};
using cells = buffer_notation::cells_t;

namespace notation {
inline constexpr buffer_notation input{buffer_kind::input};
inline constexpr buffer_notation output{buffer_kind::output};
inline constexpr buffer_notation scratch{buffer_kind::scratch};
inline constexpr buffer_notation l0{buffer_kind::l0};
inline constexpr buffer_notation l2{buffer_kind::l2};
inline constexpr cells token{buffer_kind::none, self, 0, 0, false};
}  // namespace notation

class score_builder;

/// Appends to one lane. Peers given by from()/to() hold until changed. Every appending call returns the step's reference,
/// which another lane of the same rank can wait for.
class TROUPE_API lane_writer {
public:
  lane_writer(score_builder& builder, rank_t rank, int lane) : builder_(builder), rank_(rank), lane_(lane) {}

  lane_writer& from(rank_t peer) { return from_ = peer, *this; }
  lane_writer& to(rank_t peer) { return to_ = peer, *this; }
  /// The next step starts only after `earlier` (a step of another lane of this rank) is performed.
  lane_writer& after(step_ref earlier) { return after_ = earlier, *this; }
  /// The next step combines the other way round (local operand first).
  lane_writer& swapped(bool yes = true) { return swapped_ = yes, *this; }
  /// Names the message that the next step receives or sends.
  lane_writer& called(message_name which) { return called_ = which, *this; }
  /// The following recv_reduce steps belong to fan `id` (0 ends it).
  lane_writer& fan(std::uint16_t id) { return fan_ = id, *this; }

  step_ref send(cells source);
  step_ref recv(cells target);
  step_ref copy(cells source, cells target);
  step_ref reduce(cells source, cells target);
  step_ref recv_reduce(cells target);
  step_ref recv_copy_send(cells target);
  step_ref recv_reduce_send(cells source);
  step_ref recv_reduce_copy(cells source, cells target);
  step_ref recv_reduce_copy_send(cells source, cells target);
  step_ref dma_get(cells source, cells target);
  step_ref dma_put(cells source, cells target);
  step_ref sync();
  step_ref wait(step_ref earlier);
  /// An empty message: tells `to` that everything before it in this lane is done …
  step_ref signal(rank_t to);
  /// … and waits for one.
  step_ref await(rank_t from);
  /// copy(input cell, output cell) unless the call is in place and both are the same memory.
  void copy_own(cells source, cells target);

private:
  step_ref append(step_kind kind, cells source, cells target);
  score_builder& builder_;
  rank_t rank_;
  int lane_;
  rank_t from_ = -1;
  rank_t to_ = -1;
  step_ref after_{};
  bool swapped_ = false;
  std::uint16_t fan_ = 0;
  message_name called_ = message_name::none;
};

class TROUPE_API score_builder {
public:
  /// @param parts cells per block (≥ 1).
  score_builder(const setup& on, std::string_view choreography, int parts);

  /// Lane `lane` of `rank`; lanes come into being when they are first named.
  lane_writer lane(rank_t rank, int lane = 0);

  rank_t before(rank_t rank, int distance = 1) const;
  rank_t after(rank_t rank, int distance = 1) const { return before(rank, -distance); }

  /// Declares scratch cells of `rank` that hold what the given cells of its buffers hold; returns their place.
  cells scratch_like(rank_t rank, cells model);
  /// Declares scratch cells by extent, `parts` cells for each block.
  cells scratch_blocks(rank_t rank, std::initializer_list<std::int64_t> blocks);
  cells scratch_block(rank_t rank, std::int64_t block) { return scratch_blocks(rank, {block}); }
  cells l0_like(rank_t rank, cells model);
  /// L2 cells (shared by all ranks) for one block.
  cells l2_block(std::int64_t block);

  /// A switch that reduces, with the lanes that are performed on its behalf (score.hpp, "Switches").
  void add_switch(fabric_switch added) { score_.switches.push_back(std::move(added)); }

  /// For in-place calls of collectives whose algorithm needs the input after it has begun to write the output: copies the
  /// input of `rank` to scratch and returns the notation's name for it; out of place it is the input itself.
  /// Use `staged(rank, cells)` to translate input cells.
  void stage_input(rank_t rank, int lane = 0);
  cells staged(rank_t rank, cells of_input) const;

  /// The place that `at` means for `rank`: wraps round, blocks to cells. Throws error(bad_score) if out of range.
  place resolve(rank_t rank, cells at) const;

  const setup& on() const { return on_; }
  score& draft() { return score_; }
  /// The finished score. The builder is empty afterwards.
  score finish();

private:
  friend class lane_writer;
  void count(rank_t rank, step_kind kind, const cells& source, const cells& target);
  std::int32_t count_of(rank_t rank, const cells& at) const;
  void finish(score_tally& t) const;

  setup on_;
  score score_;
  std::vector<std::int32_t> staged_;          ///< first scratch cell of the staged input per rank, −1 if not staged
  std::vector<score_tally::of_rank> counts_;  ///< per rank, where steps are counted
};

}  // namespace troupe
