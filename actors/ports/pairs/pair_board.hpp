// SPDX-License-Identifier: Apache-2.0
#pragma once
// The memory of the pair port: sends and receives of ranks of one host (what both ends do with it: pair_port.hpp).
//
// Per ordered pair (source → destination) a *lane*: a ring of slots, laid down when either end first uses it. The message of number
// n of the pair has slot n mod depth at both ends; the numbers are the pair's own, so they are its *epochs*.
//   A *message* is the slot's head. The sender writes it, and its stamp, n + 1, last: the stamp is the header. A short message lies in the
//   head itself; of the rest the head says where it is, and it is copied once, straight to where it belongs. Where the receiver's process
//   does not map that memory, what the head names may be a copy that it does map (pair_staging.hpp).
//   A *credit* is the slot's word of `finished`: message n was taken. It gives the sender its buffer and the slot back. The words of a lane's
//   slots share a line that only the receiver of short messages writes, and their sender reads it once for all slots, not for each message.
//   A sender has at most `depth` messages in slots; further ones wait at their rank.
//   A message may be *left*: it is over at the sender as soon as it lies whole on the board, in its head or in the slot's part of the lane's
//   room. The sender helps nobody with it, and waits for its credit when it needs the slot again.
// A receiver that does not look says where its message belongs (`offered`). Then the sender copies. Of a large message both copy:
// the end that is there claims units. What is staged the receiver copies alone, as long as it looks.
//
// Invariants (mark(n) = n + 1; a word *names* n if it holds mark(n)):
//   1. A rank's turn writes its end; one thread at a time has it.
//   2. A sender writes the head for n only when message n − depth is over at its end and not left there: taken (it has seen `finished`), or
//      stopped, or refused after it was left, and then the receiver has said that it does not look at it any more. So a head that names n is
//      whole and stays until n is over at both ends, or the sender has withdrawn it: from a receiver that counts as lost (takeover.hpp) no
//      such word comes. A receiver that has copied from where the head said looks whether that still names n, and takes nothing if not.
//   3. A receiver writes `offered` and what belongs to it for n only when message n − depth is over at its end. The sender of
//      n − depth may still be reading these words. It believes them only if it can claim a unit of n − depth afterwards, and
//      nobody can once that message is over.
//   4. `finished` names n as soon as every unit of n was copied, and nothing else does before the sender has seen it (2). Of a unit
//      that the system does not copy any more (processes) `failed` is said before it is counted: then n is never finished.
//   5. Message n is performed at both ends if all its units were claimed before the receiver closed the claims, else at neither:
//      close() and the claims are read-modify-writes of one word. An end that claims a unit copies it at once, within its turn.
//   6. Between processes the sender of a long message says in `staged` how many of its units may be claimed: all, before the stamp, if it stages none;
//      else the first, before the stamp, and each other one after it lies in the staging buffer. So the receiver finds unit 0 where it finds the stamp, and claims
//      no unit that is not there. A sender that is asked to copy by itself copies from its buffer, and has staged all by then.
//   7. An end that stops looking sets `tell` and looks once more; the other end writes, then reads `tell`. These
//      four accesses are sequentially consistent, so either the end sees what was written, or the writer sees that it has to tell it.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "actors/ports/segment/board_memory.hpp"
#include "actors/ports/segment/relative.hpp"
#include "protocols/collective.hpp"

namespace troupe {

/// One message. The head, which changes with every short message, is apart from the rest, which does not: then an end that looks whether the other
/// one is away finds that in its own cache. Pairs of lines, since processors fetch the neighbour too.
struct pair_slot {
  /// The bytes that fit the stamp's line and its neighbour, which comes with it.
  static constexpr std::size_t inline_bytes = 112;

  struct alignas(128) {
    std::atomic<std::uint64_t> stamp{0};  ///< names the message that the rest of the head is of
    std::uint64_t shape = 0;              ///< its count and type: what must be equal at both ends
    union {
      std::byte inlined[inline_bytes] = {};
      const std::byte* data;  ///< of messages that do not fit; null: left in the lane's room
    };
  } head;
  struct alignas(64) {
    std::atomic<std::uint64_t> tell{0};  ///< names the message about which the sender wants to be told
    /// Of a long message between processes: mark << 16 | its units that may be claimed.
    std::atomic<std::uint64_t> staged{0};
  } sender;
  struct alignas(64) {
    std::atomic<std::uint64_t> offered{0};  ///< names the message that `target`, `shape`, `claims` and `copied` are of
    std::atomic<std::byte*> target{nullptr};
    std::atomic<std::uint64_t> shape{0};
    std::atomic<std::uint64_t> claims{
        0};  ///< mark << 16 (its low 48 bits; a number has 47 below its tag) | next unit to copy
    std::atomic<std::uint64_t> copied{0};  ///< units
    std::atomic<std::uint64_t> tell{0};    ///< names the message about which the receiver wants to be told
    std::atomic<std::uint64_t> failed{0};  ///< names the message of which a claimed unit could not be copied
  } answer;
};
static_assert(sizeof(pair_slot) == 256);

struct pair_lane {
  static constexpr std::size_t depth = 4;
  /// The longest message that can be left. Copying it twice costs less than waiting until it was taken.
  static constexpr std::size_t left_bytes = 1024;
  struct room {
    alignas(128) std::byte of[depth][left_bytes];
  };
  pair_slot slots[depth];
  struct alignas(128) {
    std::atomic<std::uint64_t> of[depth]{};  ///< names the last message of each slot that was taken
  } finished;
  relative<room> left;  ///< null until a message is left that does not fit its head
  pair_slot& at(std::uint64_t number) { return slots[number % depth]; }
  std::atomic<std::uint64_t>& finished_at(std::uint64_t number) { return finished.of[number % depth]; }
  /// For the sender that has posted message n: nobody reads any more where that was. True at the latest when the slot is another one's (2).
  bool is_over(std::uint64_t number) {
    return finished_at(number).load(std::memory_order_acquire) == number + 1 ||
           at(number).head.stamp.load(std::memory_order_relaxed) != number + 1;
  }
  /// Where a message lies that was left. @pre there is room
  std::byte* left_at(std::uint64_t number) { return left.load(std::memory_order_acquire)->of[number % depth]; }
};

class pair_board {
public:
  /// @param memory which outlives it
  pair_board(int ranks, board_memory& memory);
  pair_board(const pair_board&) = delete;
  pair_board& operator=(const pair_board&) = delete;

  /// Lays it down at first use: some 1.3 KiB, and a pointer for each rank that the source may send to. Any thread. Throws error(out_of_memory).
  pair_lane& lane(rank_t source, rank_t destination);
  /// Lays down the lane's room. False: there is no memory for it. Any thread.
  bool make_room(pair_lane& lane) noexcept;
  /// Bytes of memory laid down so far, for reports.
  std::size_t bytes() const;
  /// The most that a board of so many ranks may ever lay down.
  static std::size_t most_bytes(int ranks);

private:
  using cell = relative<pair_lane>;
  cell* row(rank_t source);

  std::size_t ranks_;
  board_memory* memory_;
  relative<cell>* rows_;  ///< by source; null until it sends or is received from
};

}  // namespace troupe
