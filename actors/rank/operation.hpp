// SPDX-License-Identifier: Apache-2.0
#pragma once
// One rank's part in one operation, from the call to its completion. No CAF in here.

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "actors/ports/mailbox/program_shelf.hpp"
#include "actors/ports/nic/nic_driver.hpp"
#include "actors/ports/pairs/pair_port.hpp"
#include "actors/ports/parts/link_board.hpp"
#include "actors/ports/parts/part_areas.hpp"
#include "actors/rank/card_tiers.hpp"
#include "actors/waiting/completion.hpp"
#include "memory/arena.hpp"
#include "protocols/agreement/agreement.hpp"
#include "protocols/call.hpp"
#include "protocols/perform/assignment.hpp"
#include "protocols/plan.hpp"

namespace troupe::actors {

using plan_ptr = std::shared_ptr<const plan>;
class operation_parts;

/// A caller's memory, and where blocks lie in it; the lists are in elements, and empty where blocks are packed.
struct call_buffers {
  const void* input = nullptr;
  void* output = nullptr;
  std::span<const std::size_t> input_displacements{}, output_displacements{};
};

/// What the caller gave, and what its rank adds while it is under way. Made by the calling thread, then owned by the rank; the
/// caller keeps only `done`.
struct operation {
  // -- given by the caller --------------------------------------------------------------------------------------------
  epoch_t epoch = 0;
  rank_t peer = -1;  ///< the other rank of a send or receive; −1 for collectives
  bool sending = false;
  int tag = 0;                        ///< of a send or receive
  int pair_channel = 0;               ///< by mailbox, of a send or receive: the same at both ends
  sent_when sent = sent_when::taken;  ///< of a send on the board: when it is over
  call what;
  const void* input = nullptr;
  void* output = nullptr;
  std::vector<std::size_t> input_displacements, output_displacements;  ///< elements per block; empty: packed
  std::optional<std::chrono::nanoseconds> deadline;                    ///< from the call on
  plan_ptr plan;                                                       ///< collectives with uniform blocks
  std::function<plan_ptr(const counts_ptr&)> make_plan;                ///< others: once all ranks' counts are known
  counts_ptr counts;                                                   ///< of all blocks, if the membership told them
  completion_ptr done;
  failure_ptr refusal;  ///< the reason that its caller was given: it only takes its number
  /// What its caller does with the outcome before it is told, and makes of it; null: nothing. Outside the turn.
  std::function<failure_ptr(const operation&, failure_ptr)> last_step;
  std::shared_ptr<operation_parts> parts;  ///< of a partitioned call; else null
  std::shared_ptr<std::atomic<int>>
      open;  ///< how many of its caller's calls are under way; this one is counted in it. Null: nobody counts it

  // -- added by its rank ----------------------------------------------------------------------------------------------
  rank_t unlike = -1;       ///< whose message did not fit
  bool ahead = false;       ///< may end before all ranks are known to have called the same
  bool launched = false;    ///< by mailbox: its channels perform it
  bool agreed = false;      ///< all ranks are known to have called the same
  bool registered = false;  ///< the membership has heard of it
  bool stalled = false;     ///< cannot go on, and waits to be told that it failed
  bool on_nic = false;      ///< the NIC has its memory
  bool over = false;        ///< has failed before its turn came; it only keeps its place in the order
  int channels = 0;         ///< that have not performed their part yet
  look_t suspected = 0;     ///< see confirm() …
  std::uint64_t moved = 0;  ///< … and how far its chunks and credits were then
  steady_time begun{};      ///< when somebody first looked at the clock for it
  steady_time expires = no_deadline;
  scratch_block staged_input, staged_output, scratch, l0;
  std::byte* result = nullptr;  ///< where the plan leaves the output, in its own type; null: in `output`
  std::shared_ptr<lent_memory> lent;
  std::shared_ptr<void> shared;            ///< keeps L2 and the table of the peers' buffers
  card_tiers::region tile;                 ///< L0 of a modelled card; then `l0` is empty
  std::shared_ptr<assignment> lacks_room;  ///< what waits for L0 or L2 of a modelled card; else null
  failure_ptr why_ended;                   ///< once it has: null if it was performed
  std::shared_ptr<operation> next_ended;   ///< see ended_operations

  operation() : done(std::make_shared<completion>()) {}
  /// @param where of the caller's, with the same lifetime
  explicit operation(completion& where) : done(completion_ptr{}, &where) {}
  /// An operation that is dropped before anybody performed it (its rank's actor is gone) must not keep its caller waiting.
  ~operation() {
    close();
    dropped();
  }
  void dropped();
  /// Tells the outcome. @pre nobody refers to the caller's buffers any more
  void end(failure_ptr why) noexcept;
  /// It is over: it does not count as under way any more.
  void close() {
    if (const auto among = std::exchange(open, nullptr)) among->fetch_sub(1);
  }
  operation(const operation&) = delete;
  operation& operator=(const operation&) = delete;

  std::string title() const;
  call_buffers buffers() const { return {input, output, input_displacements, output_displacements}; }
};
/// It is performed on the slot board or the direct board, one at a time, by the holder of the rank's turn.
inline bool on_board(const operation& op) { return op.peer < 0 && op.plan && op.plan->on_board(); }
failure_ptr deadline_passed(const operation& op, rank_t rank);
using operation_ptr = std::shared_ptr<operation>;  // one owner at a time; shared only so that a message can carry it

/// Memory that all ranks of an operation address: L2, and each rank's buffers. Only within one address space.
class shared_spaces {
public:
  struct space {
    std::vector<peer_memory> peers;
    scratch_block l2;
    card_tiers::region card_l2;   ///< of a modelled card; then `l2` is empty
    std::vector<rank_t> waiting;  ///< for card_l2, which the first of them has asked for
    int takers = 0;
  };
  explicit shared_spaces(int ranks) : ranks_(ranks) {}
  /// Every rank calls this once an operation; the space lives as long as its users hold it. Ranks that called different
  /// operations (`fingerprint`) get different spaces, because each writes to L2 before anybody has compared the calls.
  /// On a modelled card L2 comes by find_l2().
  std::shared_ptr<space> enter(epoch_t epoch, std::uint64_t fingerprint, rank_t rank, const peer_memory& mine,
                               std::size_t l2_bytes, arena& from);
  enum class l2_answer { there, ask, wait };
  /// Whether the space has its L2 of the card. `ask`: nobody has asked for it, so the rank has to, and calls has_l2().
  /// `wait`: another rank has, and this one is told. Throws as card_tiers::l2(). @pre card()
  l2_answer find_l2(space& in, rank_t rank, std::size_t bytes);
  /// Returns who waits for it.
  std::vector<rank_t> has_l2(space& in, card_tiers::region l2);
  /// A rank's caller has still to make pieces of its input ready: while one does, a rank that does not move has lost no message.
  void await_pieces(epoch_t epoch);
  /// It has, or the operation is over there.
  void pieces_came(epoch_t epoch);
  bool awaits_pieces(epoch_t epoch);
  /// For partitioned operations of ranks that are all in this process …
  link_boards& boards() { return boards_; }
  /// … and of those that are in several, and share memory; else null.
  part_areas* areas() { return areas_ ? &*areas_ : nullptr; }
  /// Of ranks on a modelled card, else null: where their L0 and L2 lie.
  card_tiers* card() { return card_; }
  /// @param card which outlives it, or null. Before any rank is made
  void lie_on(card_tiers* card) { card_ = card; }
  /// @param memory which outlives it. Before any rank is made
  void lie_in(board_memory& memory) { areas_.emplace(ranks_, memory); }
  /// The operation failed and no rank will enter any more.
  void forget(epoch_t epoch);

private:
  int ranks_;
  link_boards boards_;
  std::optional<part_areas> areas_;
  card_tiers* card_ = nullptr;
  std::mutex mutex_;  // once per rank and operation that shares memory, twice if it is partitioned or on a card
  std::vector<std::pair<epoch_t, int>> awaited_;  ///< ranks; of few operations at once
  std::map<std::pair<epoch_t, std::uint64_t>, std::shared_ptr<space>> open_;
};

/// Acquires scratch memory, stages the input where the plan wants it, and makes what the channels perform, but for the
/// L0 and L2 of a modelled card. Throws error (out_of_memory, size_overflow, unsupported …).
std::shared_ptr<assignment> prepare(operation& op, rank_t rank, arena& memory, shared_spaces& spaces,
                                    program_shelf& programs);
/// The same for the process's NIC. Averages are sums, which conclude() divides; factors are applied here.
nic_posting prepare_for_nic(operation& op, rank_t rank, arena& memory);
std::shared_ptr<const assignment> prepare_pair(operation& op);
class part_performer;
/// Of a partitioned operation, for this repetition and all later ones, in memory that ranks share. Null: it has too many messages for a board, or for
/// areas, or goes through L2. @pre nothing is staged
std::unique_ptr<part_performer> prepare_parts(operation& op, rank_t rank, arena& memory, shared_spaces& spaces,
                                              program_shelf& programs);

/// After all channels have performed: brings staged results to the output, divides averages.
void conclude(operation& op, rank_t rank, int ranks);

}  // namespace troupe::actors
