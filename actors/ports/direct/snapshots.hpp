// SPDX-License-Identifier: Apache-2.0
#pragma once
// Copies of short inputs, which a rank brings when it comes to where all ranks of a direct board can read them. If every rank's input is here,
// nobody works on another's buffers: a rank that has seen all come copies its own share and leaves at once, instead of waiting until all
// have done so (direct_board.hpp says how ranks meet).
//
// For operations that only move blocks whose sizes the ranks know in part. That the two ends of every block count it alike is seen by all
// or none: each rank adds a hash of every block that it expects, and subtracts one of every block that it has; the sum over all ranks, its
// *balance*, is 0 if they agree (else only by a chance of 2⁻⁶⁴). If not, they work on each other's buffers as if nothing were here, and find
// out which ranks are at odds.
//
// Each rank has some places, used in turn, and annexes for what is longer. It writes to one only when all ranks have finished the operation
// whose data were there. The mark of a place names the operation whose data it holds, so a rank that looks late, when the first have left, still finds
// them; and as all find the same, all decide alike whether this is enough. A mark is stored before the words that show that the rank has come: so
// a rank that has come and has no mark has brought nothing.
//
// Where an operation has a root and may run ahead (calls_ahead.hpp), a rank that only gives, brings its copy and leaves (direct_ahead.cpp): the
// places are so many that it may be some operations ahead. Where ranks share cores, that many are performed between two changes of threads, which
// take longer than the operations.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>

#include "actors/ports/segment/board_memory.hpp"
#include "actors/ports/segment/relative.hpp"
#include "protocols/collective.hpp"

namespace troupe {

class snapshots {
public:
  static constexpr int most_ranks = 16;
  static constexpr std::size_t places = 32;  ///< of a rank; as epochs of a slot channel's ring
  /// Of annexes. Without a root nobody runs ahead: a rank that comes to an operation has finished the one before. So a few are enough there, and few pages
  /// are touched for the first time.
  static constexpr std::size_t annex_of(std::uint64_t sequence, bool rooted) {
    constexpr std::size_t few = 4;
    return sequence % (rooted ? places : few);
  }

  /// Where in what is brought the first of so many blocks begins: behind a number for each, and one for the end; and behind the balance, but
  /// where there is a root.
  static constexpr std::size_t first_begin(std::size_t blocks, bool rooted) {
    return begin_of_begins(rooted) + (sizeof(std::uint16_t) * (blocks + 1) + 7) / 8 * 8;
  }
  /// Of a rank's place. Between processes a short one: memory that a process has not touched yet costs it a fault a page, and the places of all ranks
  /// for one operation lie side by side.
  static constexpr std::size_t place_bytes(bool processes) { return processes ? 512 : 1152; }
  /// Behind the places, for blocks that do not fit into one: an annex. Between threads there is none, as two copies cost more than one from buffer to
  /// buffer as soon as blocks are not short; between processes what is given has to be copied anyway.
  static constexpr std::size_t annex_bytes(int ranks, bool processes) {
    constexpr std::size_t all = 64 * 1024, most = 16 * 1024;
    // No multiple of a page: else the beginnings of all of them compete for the same lines of a cache.
    constexpr std::size_t more = 128;
    return processes ? std::min(all / static_cast<std::size_t>(ranks), most) / 128 * 128 + more : 0;
  }

  struct place {
    std::atomic<std::uint64_t> mark{0};  ///< stored last
    std::uint64_t fingerprint;
    /// Behind it, as far as it goes: the balance, if there is no root; where each block of the rank's input begins there, as 16 bits, and where
    /// the last one ends; then the blocks, or none of them if they do not all fit: then the annex counts as what follows on the place. So a short input
    /// is all in the line of the mark, which is the one that its reader has to wait for. The rank's block for itself is left out.
    /// At the end of the place: the balance, if there is a root. Nobody asks for it where the givers run ahead.
    std::byte* brought() { return reinterpret_cast<std::byte*>(this + 1); }
    const std::byte* brought() const { return reinterpret_cast<const std::byte*>(this + 1); }

    /// @pre marked
    std::size_t begin_of(std::size_t block, bool rooted) const {
      std::uint16_t at;
      std::memcpy(&at, brought() + begin_of_begins(rooted) + sizeof at * block, sizeof at);
      return at;
    }
  };

  /// @param at zeros at first; the same for all ranks. `memory` outlives it.
  snapshots(int ranks, relative<place>& at, board_memory& memory)
      : ranks_(ranks),
        place_bytes_(place_bytes(memory.peers() != nullptr)),
        annex_bytes_(annex_bytes(ranks, memory.peers() != nullptr)),
        room_(ranks > most_ranks ? 0
              : annex_bytes_ > 0 ? annex_bytes_
                                 : end_of_place() - first_begin(static_cast<std::size_t>(ranks), false)),
        places_(&at),
        memory_(&memory) {}
  snapshots(const snapshots&) = delete;
  snapshots& operator=(const snapshots&) = delete;

  bool offered() const { return ranks_ <= most_ranks; }
  /// At first use, since few communicators have such operations. Any thread. Throws std::bad_alloc. @pre offered()
  void lay_down() {
    if (places_->load(std::memory_order_acquire) != nullptr) return;
    auto* const made = static_cast<place*>(
        memory_->take(bytes_of_places() + places * static_cast<std::size_t>(ranks_) * annex_bytes_));
    if (made == nullptr) throw std::bad_alloc{};
    if (places_->publish(made) != nullptr) memory_->give_back(made);
  }
  static constexpr std::size_t most_bytes(int ranks) {
    return static_cast<std::size_t>(ranks) * places * (place_bytes(true) + annex_bytes(ranks, true));
  }
  /// Of all blocks of an input that can be brought.
  std::size_t room() const { return room_; }
  /// Where the first of so many blocks begins that have so many bytes together.
  std::size_t begin_for(std::size_t blocks, bool rooted, std::size_t bytes) const {
    const std::size_t begin = first_begin(blocks, rooted);
    return begin + bytes <= end_of_place() ? begin : end_of_place();
  }
  /// @pre lay_down()
  place& of(rank_t rank, std::uint64_t sequence) const {
    return *reinterpret_cast<place*>(first() + number(rank, sequence % places) * place_bytes_);
  }
  /// Of what the rank has brought to its place, or brings. @param begin of one of its blocks
  std::byte* at(rank_t rank, std::uint64_t sequence, bool rooted, std::size_t begin) const {
    if (!is_in_annex(begin)) return of(rank, sequence).brought() + begin;
    return first() + bytes_of_places() + number(rank, annex_of(sequence, rooted)) * annex_bytes_ +
           (begin - end_of_place());
  }
  bool is_in_annex(std::size_t begin) const { return begin >= end_of_place(); }
  /// @param begins of its blocks, and the end
  static void set_begins(place& of, bool rooted, std::span<const std::uint16_t> begins) {
    std::memcpy(of.brought() + begin_of_begins(rooted), begins.data(), begins.size_bytes());
  }
  void set_balance(place& of, bool rooted, std::uint64_t balance) const {
    std::memcpy(of.brought() + begin_of_balance(rooted), &balance, sizeof balance);
  }
  /// @pre set and marked
  std::uint64_t balance(const place& of, bool rooted) const {
    std::uint64_t balance;
    std::memcpy(&balance, of.brought() + begin_of_balance(rooted), sizeof balance);
    return balance;
  }
  /// A block of `bytes` from one rank to another, in a balance.
  static std::uint64_t weight(rank_t from, rank_t to, std::size_t bytes) {
    std::uint64_t word = (bytes << 16) + (static_cast<std::uint64_t>(from) << 8) + static_cast<std::uint64_t>(to) + 1;
    // The finaliser of splitmix64 (Steele, Lea, Flood 2014).
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
    return word ^ (word >> 31);
  }

private:
  static constexpr std::size_t begin_of_begins(bool rooted) { return rooted ? 0 : sizeof(std::uint64_t); }
  std::size_t begin_of_balance(bool rooted) const { return rooted ? end_of_place() : 0; }
  std::size_t end_of_place() const { return place_bytes_ - sizeof(place) - sizeof(std::uint64_t); }
  std::byte* first() const { return reinterpret_cast<std::byte*>(places_->load(std::memory_order_acquire)); }
  std::size_t bytes_of_places() const { return places * static_cast<std::size_t>(ranks_) * place_bytes_; }
  /// Of the ranks' places or annexes: those of an operation lie side by side.
  std::size_t number(rank_t rank, std::size_t which) const {
    return which * static_cast<std::size_t>(ranks_) + static_cast<std::size_t>(rank);
  }

  int ranks_;
  std::size_t place_bytes_, annex_bytes_, room_;
  relative<place>* places_;
  board_memory* memory_;
};

}  // namespace troupe
