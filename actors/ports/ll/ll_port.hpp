// SPDX-License-Identifier: Apache-2.0
#pragma once
// One rank's end of an LL-A2A (protocols/program/ll_slots.hpp): it stores into its peers' buffers and waits at its own.
//
// The buffers lie where all ranks reach them: in memory of one process, or in a region that the processes of a host map; each process has its own
// addresses of them. Ranks sleep and are woken at a board of the buffers' own (slot_board.hpp), where nobody else sleeps.
//
// Nothing keeps a rank from overtaking another one: ranks are in step because each receives, in every epoch, from those that it sends to in the next. Where that is not
// so, a rank that is two epochs ahead writes over what has not been read. The reader then finds a later epoch than its own, and returns `overtaken`;
// it never takes one epoch's data for another's.
//
// One thread at a time acts for a rank.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "actors/ports/slots/slot_board.hpp"
#include "actors/waiting/core_leaver.hpp"
#include "actors/waiting/policy.hpp"
#include "actors/waiting/slot_waiting.hpp"
#include "protocols/program/ll_slots.hpp"

namespace troupe {

class ll_port {
public:
  using word = ll::word;
  using clock = std::chrono::steady_clock;

  /// The first 16 bytes of a block's part.
  struct epoch_word {
    std::atomic<std::uint32_t> stored;  ///< the epoch − 2
    std::atomic<std::uint32_t> left;    ///< 1: the rank will write nothing more to anybody
    std::uint32_t unused[2];
  };
  static_assert(sizeof(epoch_word) == ll_shape::slot_bytes);

  /// Behind the blocks: what the rank waits for, for others that wonder whether anything can still happen.
  struct wait_word {
    std::atomic<std::uint64_t> turns;  ///< odd: it waits, for what stands here
    std::atomic<std::uint64_t> block, epoch, start, count, stride, bytes;
    std::uint64_t unused;
  };
  static constexpr std::size_t bytes_of(const ll_shape& shape) { return shape.bytes() + sizeof(wait_word); }

  /// @param buffers by rank, bytes_of(shape) each, aligned to 16; zeros, or as sessions before have left them @param board which outlives it, too
  ll_port(slot_board& board, rank_t rank, const ll_shape& shape, std::vector<word*> buffers,
          const waiting_policy& policy);
  ll_port(const ll_port&) = delete;
  ll_port& operator=(const ll_port&) = delete;

  const ll_shape& shape() const { return shape_; }
  /// In which the rank is, at a block of its own or of a peer.
  std::uint32_t epoch(std::size_t block, rank_t of) const {
    return head(block, of).stored.load(std::memory_order_relaxed) + ll::first_epoch;
  }
  /// For tests of the wrap: as if epochs up to that had been there. @pre before anything was written
  void begin_at(std::uint32_t epoch);

  /// @pre peer, element and bytes are in range
  void send(std::size_t block, std::uint32_t epoch, rank_t peer, std::size_t element, const void* data,
            std::size_t bytes);
  /// To all ranks, this one among them; the first is this one, so that not all write to the same.
  void broadcast(std::size_t block, std::uint32_t epoch, std::size_t element, const void* data, std::size_t bytes);

  /// Elements start, start + stride, … of a region of this rank.
  struct wanted {
    std::size_t block;
    std::uint32_t epoch;
    std::size_t start, count, stride, bytes;
  };
  const word* region(std::size_t block, std::uint32_t epoch) const {
    return buffers_[static_cast<std::size_t>(rank_)] + shape_.region_at(block, epoch);
  }
  bool has_come(const wanted& what) const { return has_come(what, rank_); }
  /// Looks for as long as that has paid lately. True: it has come.
  bool look(const wanted& what);
  enum class waited : std::uint8_t { came, overtaken, stopped, timed_out };
  /// Sleeps until it has come. @param watch asked whether to stop now and then, also while nobody writes: first after `patience`, later every 50 ms
  waited sleep(const wanted& what, clock::time_point deadline, slot_watch& watch,
               std::chrono::nanoseconds patience = std::chrono::milliseconds{2});

  /// The next epoch at the block.
  std::uint32_t end_epoch(std::size_t block, std::uint32_t epoch);
  /// The rank will write nothing more; wakes all who may wait for it.
  void leave();
  /// All others have left, or wait for what has not come: so nothing ever will, since nobody writes who waits. Certain: they have waited all the time that
  /// it takes to look at what each of them waits for. @param what this rank waits for
  bool is_stuck(const wanted& what) const;
  /// What that rank does, as the end of a sentence.
  std::string describe(rank_t of) const;

private:
  epoch_word& head(std::size_t block, rank_t of) const {
    return *reinterpret_cast<epoch_word*>(buffers_[static_cast<std::size_t>(of)] + shape_.block_at(block));
  }
  wait_word& waits(rank_t of) const {
    return *reinterpret_cast<wait_word*>(buffers_[static_cast<std::size_t>(of)] + shape_.bytes() / sizeof(word));
  }
  const word* first_of(const wanted& what, rank_t at, std::size_t i) const {
    return buffers_[static_cast<std::size_t>(at)] + shape_.region_at(what.block, what.epoch) +
           (what.start + i * what.stride) * ll_shape::slot_words;
  }
  wanted wanted_by(rank_t of) const;
  bool has_left(rank_t of) const { return head(0, of).left.load(std::memory_order_acquire) != 0; }
  bool has_come(const wanted& what, rank_t at) const;
  bool is_overtaken(const wanted& what) const;
  waited sleep_long(const wanted& what, clock::time_point deadline, slot_watch& watch,
                    std::chrono::nanoseconds patience);
  bool sleep_once(const wanted& what, clock::time_point until);

  slot_board* board_;
  rank_t rank_;
  ll_shape shape_;
  std::vector<word*> buffers_;  ///< by rank, as this process sees them
  waiting_policy waiting_;
  core_leaver leaver_;
  int spin_;
};

}  // namespace troupe
