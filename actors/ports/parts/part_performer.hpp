// SPDX-License-Identifier: Apache-2.0
#pragma once
// One rank's part in the repetitions of a partitioned operation whose ranks share memory: performs its program over a link_board, where all are in
// this process, or over part_areas, where they are in several of this host.
//
// Here a *message* is an entry of a link, a reference to the sender's bytes, which the receiver copies or reduces straight to where they belong.
// Its *credit* is the link's word `taken`. The *epoch* is the stamp of the board. No message goes through an inbox but one, that needs no memory and
// that a rank has at most once: "look at your news".
//
// Between processes the receiver maps what the sender has in memory that both share, and else the system copies (board_memory.hpp). What comes from a
// rank that has given the operation up meanwhile is not believed: nothing follows from it, and the operation ends with the others' failure.
//
// Owner: operation_parts, and so the holder of the rank's turn. begin(), then advance() whenever something may have come, then leave(), also
// where it was not performed: afterwards nothing here refers to anybody's buffers. Others may still read what this rank has sent, as they may
// by mailbox, and, where ranks work on each other's buffers, read and write these: so buffers are the operation's until all ranks have stopped (rank_state.hpp).
// Made once; repetitions allocate nothing.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "actors/ports/parts/link_board.hpp"
#include "actors/ports/parts/part_areas.hpp"
#include "memory/arena.hpp"
#include "protocols/perform/assignment.hpp"
#include "protocols/perform/performer.hpp"

namespace troupe::actors {

/// Where a performer's news go; on its rank's turn.
class part_outbox {
public:
  virtual ~part_outbox() = default;
  /// To the rank whose pieces those are: look. It is there, but may have ended.
  virtual void news(rank_t to, const std::shared_ptr<operation_parts>& whose) = 0;
  /// The same to a rank that has come in part_areas.
  virtual void news(rank_t to) = 0;
  /// A piece of the output has arrived.
  virtual void arrived() = 0;
};

class part_performer {
public:
  enum class status : std::uint8_t { waiting, performed };

  /// @param what its epoch and fingerprint are not used. @param scratch, l0 what it names of them, which is kept here
  part_performer(rank_t rank, const part_links& links, std::shared_ptr<const assignment> what, arena& slots,
                 scratch_block scratch, scratch_block l0);
  ~part_performer() { leave(); }
  part_performer(const part_performer&) = delete;
  part_performer& operator=(const part_performer&) = delete;

  /// For the next repetition. Returns a rank that called something else; −1: none so far, and it has begun. Throws std::bad_alloc. @pre left
  rank_t begin(link_boards& boards, epoch_t epoch, std::uint64_t fingerprint,
               const std::shared_ptr<operation_parts>& mine);
  /// The same between processes. Throws error(out_of_memory). @pre the links fit there
  rank_t begin(part_areas& areas, epoch_t epoch, std::uint64_t fingerprint);
  /// As far as it goes. Throws what a user's function throws; then it must be left. @pre begun, and not performed
  status advance(part_outbox& out);
  void leave();

  bool under_way() const { return board_ != nullptr || areas_ != nullptr; }
  /// Whether the links fit where it is to begin.
  const part_links& links() const { return links_; }
  /// What each unfinished lane lacks. For verdicts; allocates.
  std::vector<lane_wait> waits() const;
  /// Changes whenever something was sent or taken.
  std::uint64_t moves() const { return moves_; }

private:
  struct link_state {
    std::uint32_t next = 0;      ///< of the messages
    std::byte* slots = nullptr;  ///< out: memory of recv_reduce_send's results
    // In, between processes:
    const std::byte* here = nullptr;  ///< where this process has what message `next` names; null: not looked for yet
    scratch_block copied;             ///< of what no memory is shared with, and what is not only copied
  };
  struct gave_up {};
  struct port;
  friend struct port;

  void list_piece_lanes();
  void restart();
  link_view* view_of(rank_t rank);
  status advance_lanes(part_outbox& out);
  void advance_lane(port& at, int lane);
  void look_at_pieces(port& at);

  rank_t rank_;
  part_links links_;
  std::shared_ptr<const assignment> what_;
  arena* slot_memory_;
  scratch_block scratch_, l0_;
  performer lanes_;
  bool lanes_are_apart_ = true;  ///< no lane waits for another one
  std::vector<link_state> in_, out_;
  std::vector<std::int32_t> piece_lanes_, piece_from_;  ///< by piece: which lanes wait for it
  int pieces_seen_ = 0;
  std::uint64_t moves_ = 0;
  bool fresh_ = true;  ///< nothing was looked at since it began
  link_boards* boards_ = nullptr;
  link_board* board_ = nullptr;
  part_areas* areas_ = nullptr;
  std::vector<link_view> views_;  ///< by rank
  epoch_t epoch_ = 0;             ///< between processes, as the following
  std::uint64_t fingerprint_ = 0;
  bool performed_ = false;
  bool given_up_ = false;  ///< by a rank that others know to have stopped: it goes on no more
};

}  // namespace troupe::actors
