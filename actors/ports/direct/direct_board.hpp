// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where the ranks of a host meet to work straight on each other's buffers (direct_program.hpp). No messages: every rank has words that the
// others read.
//
// An operation of number e, as rank r's performer sees it; mark(e) = 2·(e + 1):
//   come     `here` := away, `open` := (e, units of the own body), addresses, lists and fingerprint, then `here` := mark(e); of many ranks,
//            add one to `came`
//   meet     wait until `came` says that all have come to e; the rank that adds the last one sees it at once. See that every `here` is
//            mark(e), take the addresses and compare fingerprints, and look at `here` again: a rank that gave up, or that has left e
//            because others ended it, may be coming to a later operation meanwhile
//   work     `touching` := mark(e), look that every `here` is still mark(e); claim units — each rank begins with another body — and
//            perform them; `touching` := 0
//   leave    when `over` = mark(e), which the rank that finished the last unit has set; at once also for a rank that did not meet all before
//            others had done everything and left
//   give up  (only when the operation has failed) `here` := mark(e) | 1, wait until nobody's `touching` is mark(e)
//
// Why nothing is read or written that is not there any more:
//   1. A rank that touches a buffer has `touching` = mark(e), and after setting it has seen every `here` = mark(e).
//   2. A rank that gives up changes `here` and then looks at every `touching`. These four accesses are sequentially consistent, so either
//      the worker sees the change and touches nothing, or the rank sees the worker and waits for it. A worker looks at
//      `gave_up` before every unit, so the wait is seldom longer than one.
//   3. A rank that leaves has seen `over` = mark(e): every unit was finished, and none is claimed twice or again: a claim is a
//      compare-and-swap of `open`, which names e. (The number there has 48 bits; it repeats after more operations than one claim can last.)
//   4. Where blocks differ in size, a rank's lists say how its buffers lie. They are read only for a unit that is claimed and not finished,
//      so the operation is not over then, and a rank is `touching`, so nobody has given up: they are there as the buffers are.
// `came` only says when it is worth while to look: where hundreds of ranks share few cores, the last one that comes does everything, and looks at
// every rank's words once; all others look at `came` and `over`. It counts for the latest operation that anybody has come to. If all come to e,
// nobody can have gone on to a later one before the last has added itself: e was not over, and a rank that gives it up does not stay.
// A few ranks look at the ranks' words themselves: `here` is stored and looked at in one order, so the last to come sees all, too, and one more
// line that all write would cost them more than it saves.
// If the two ends of a block count it differently, the rank that finds that leaves the unit unfinished, so that the operation cannot end, and
// sets `at_odds`.
// How many units a body has need be known to its owner only: each body that has work has the same share in `left`, and its units share
// that. A rank whose body has none only lends its buffers, and its time.
// `over` says e only if every rank came to e. So it cannot pass a rank by: no later operation ends without that rank. Numbers may be
// left out, and ranks that gave operations up may be any number of them apart.
//
// Where every rank's input is so little that it has brought a copy (snapshots.hpp), nobody touches another's buffers: no unit is claimed, and
// `over` stays as it is. A rank that has seen all ranks' marks there takes its share of the copies, and leaves.
// Of operations that may run ahead (direct_ahead.cpp) a rank that gives a copy leaves at once, so ranks may be at different ones. There a rank
// touches its own buffers and one other rank's, whose `here` it looks at instead of everybody's. `over` still says e only if every rank came
// to e, and a rank that waits for it holds up every later operation that ends with `over`: each of those needs what that rank has, or all.
//
// Between processes the addresses are the owner's. Buffers in memory that all map (host_segment.hpp) are worked on as if they were here. Others
// the owner copies before it comes, as far as others read them, to its staging buffer (direct_staging.hpp), if that is worth it, and gives that address instead; so it does
// with an output that others write, and copies that back when the operation is over. A staging buffer is the rank's again when its buffers are, by the rules above. Where all
// steps are copies from inputs to outputs, each rank performs those to its own output, alone, if they are much or staging buffers are not worth it, and not all buffers are mapped by all: `left_alone` counts the
// ranks that have not, in place of `left`. Everything else the system copies (process_memory): a unit is performed in pieces that
// are read, worked on here and written back (direct_between.cpp). Lists lie beside the words, copied, and are copied again by the ranks that meet this one. A process
// that ends touches nothing any more, so nobody waits for its `touching`; one that is stopped while it touches what a rank is about to take
// back is ended, since nothing else would keep it from writing later.
//
// Sleeping ranks are woken through the slot board: all of them when the operation is over; by the last to come only as many as there
// may be cores for, because the others find nothing to do.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "actors/ports/direct/snapshots.hpp"
#include "protocols/collective.hpp"

namespace troupe {

struct block_lists;

class direct_board {
public:
  static constexpr unsigned unit_bits = 16;
  static constexpr unsigned half_bits = unit_bits / 2;
  static constexpr std::uint64_t most_units = std::uint64_t{1} << half_bits;  ///< a body has fewer

  struct rank_words {
    // Read by everybody once an operation, written by the rank.
    alignas(128) std::atomic<std::uint64_t> here{0};
    // Stored with release and loaded with acquire: a rank that meets a later operation's value sees that `here` has changed.
    std::atomic<std::uint64_t> fingerprint{0};
    std::atomic<std::byte*> input{nullptr}, output{nullptr}, scratch{nullptr};
    std::atomic<double> factor{0};                   ///< of its input, see sum_handling
    std::atomic<const block_lists*> lists{nullptr};  ///< null: all blocks have the same size; in one process
    /// Between processes: its caller's own buffers lie where all map them.
    std::atomic<bool> shared{false};
    /// So, too: how many each of its four lists has, then these.
    relative<std::atomic<std::uint64_t>> listed;
    /// Written by the rank's performer, read by ranks that give up.
    alignas(128) std::atomic<std::uint64_t> touching{0};
    /// Number, and the units of the rank's body that nobody has claimed; written by the ranks that claim. See open_units().
    alignas(128) std::atomic<std::uint64_t> open{0};
    std::atomic<std::uint32_t> units{0};  ///< that the body was cut into
    /// As the board's, of operations that may run ahead, of which this rank is the root: others may begin with the next one before this is
    /// over. Set by it before `here`.
    std::atomic<std::size_t> left{0};
  };

  /// How many ranks have come to the latest operation that anybody has come to; numbers as in `open`.
  class arrivals {
  public:
    /// @pre the rank's `here` is the operation's mark
    void add(std::uint64_t sequence) {
      const std::uint64_t nobody = none_open(sequence);
      std::uint64_t seen = word_.load(std::memory_order_relaxed), next = 0;
      do {
        const auto ahead = static_cast<std::int64_t>((seen & ~(share - 1)) - nobody);
        // Where somebody has come already (who has is counted): this operation has failed, others have come to a later one.
        if (seen != 0 && ahead > 0) return;
        next = (ahead == 0 ? seen : nobody) + 1;
        // A rank that reads the full count has everything that each of those it counts had written before.
      } while (!word_.compare_exchange_weak(seen, next, std::memory_order_acq_rel, std::memory_order_relaxed));
    }
    /// Then the ranks' words say so, too, unless somebody has given up or left since.
    bool all(std::uint64_t sequence, int ranks) const {
      return word_.load(std::memory_order_acquire) == none_open(sequence) + static_cast<std::uint64_t>(ranks);
    }

  private:
    std::atomic<std::uint64_t> word_{0};
  };

private:
  struct common_words {
    alignas(128) arrivals came;
    alignas(128) std::atomic<std::size_t> left{0};
    std::atomic<std::size_t> left_alone{0};
    alignas(128) std::atomic<std::uint64_t> over{0};
    std::atomic<std::uint64_t> at_odds{0};
    std::atomic<double> took{0};
    alignas(128) std::atomic<std::uint64_t> gave_up{0};
    relative<snapshots::place> brought;
  };
  direct_board(int ranks, board_memory& memory, common_words& common)
      : brought(ranks, common.brought, memory),
        came(common.came),
        left(common.left),
        left_alone(common.left_alone),
        over(common.over),
        at_odds(common.at_odds),
        took(common.took),
        gave_up(common.gave_up),
        words_(memory.roots<rank_words>(static_cast<std::size_t>(ranks))),
        ranks_(ranks) {}

public:
  /// @param memory which outlives it
  direct_board(int ranks, board_memory& memory) : direct_board(ranks, memory, *memory.roots<common_words>(1)) {}
  direct_board(const direct_board&) = delete;
  direct_board& operator=(const direct_board&) = delete;

  int ranks() const { return ranks_; }
  /// They are many: `came` is used.
  bool counts() const { return ranks_ > 8; }
  rank_words& at(rank_t rank) const { return words_[rank]; }

  static constexpr std::uint64_t mark_of(std::uint64_t sequence) { return (sequence + 1) << 1; }
  static constexpr std::uint64_t given_up = 1;
  static constexpr std::uint64_t away = 0;  ///< no operation's mark
  /// Number, of which as many bits are kept as there is room for.
  static constexpr std::uint64_t none_open(std::uint64_t sequence) { return (sequence + 1) << unit_bits; }
  /// Of an operation, units [first, end): a word of `open`. Taken from either side.
  static constexpr std::uint64_t open_units(std::uint64_t sequence, std::uint64_t first, std::uint64_t end) {
    return none_open(sequence) + (end << half_bits) + first;
  }
  static constexpr std::uint64_t first_open(std::uint64_t open) { return open & (most_units - 1); }
  static constexpr std::uint64_t end_of_open(std::uint64_t open) { return open >> half_bits & (most_units - 1); }
  static constexpr bool is_open(std::uint64_t open, std::uint64_t sequence) {
    return (open ^ none_open(sequence)) < share && first_open(open) < end_of_open(open);
  }
  static constexpr std::size_t share = std::size_t{1} << unit_bits;  ///< of a body
  /// Of one of its units.
  static constexpr std::size_t share_of(std::size_t unit, std::size_t units) {
    return share * (unit + 1) / units - share * unit / units;
  }

  /// Little inputs, of operations that need no more than them.
  snapshots brought;

  // What all ranks share, each on lines of its own.
  arrivals& came;
  std::atomic<std::size_t>& left;        ///< shares that are not finished; set by rank 0 when it comes
  std::atomic<std::size_t>& left_alone;  ///< ranks that have not, where each performs its own copies; so, too
  std::atomic<std::uint64_t>& over;      ///< mark of the last operation that was performed by all
  std::atomic<std::uint64_t>&
      at_odds;  ///< of the last one in which two ranks counted a block differently; beside `over`
  /// Of the operation of `over`, if its ranks try ways to store: what its work took, in ns a byte; 0: nobody knows. Set before `over`.
  std::atomic<double>& took;
  /// Of the last one that a rank gave up. With what nobody ever writes, since a worker looks at it again and again.
  std::atomic<std::uint64_t>& gave_up;

  static constexpr std::size_t listed_bytes(int ranks) {
    return (4 + 4 * static_cast<std::size_t>(ranks)) * sizeof(std::uint64_t) + board_memory::alignment;
  }
  static constexpr std::size_t common_bytes = sizeof(common_words);  ///< of what all ranks share
  /// The most that a board of so many ranks may ever lay down.
  static constexpr std::size_t most_bytes(int ranks) {
    const auto n = static_cast<std::size_t>(ranks);
    return sizeof(common_words) + n * (sizeof(rank_words) + listed_bytes(ranks)) +
           (ranks <= snapshots::most_ranks ? snapshots::most_bytes(ranks) : 0);
  }

private:
  rank_words* words_;
  int ranks_;
};

}  // namespace troupe
