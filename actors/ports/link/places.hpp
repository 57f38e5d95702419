// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where long chunks of one process may be received: straight into the buffers of the operations that wait for them.
//
// A rank offers a place on its turn, and withdraws it before the buffer is anybody else's; the reader of the connection takes it when the chunk
// begins, and fills it piece by piece. Both hold the lock for one piece at most, so the rank that withdraws waits for one read from a socket or ring.
// A place that is withdrawn in the middle is not written to any more.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "actors/ports/link/frames.hpp"

namespace troupe::actors {

class place_table {
public:
  /// What is read at once under the lock.
  static constexpr std::size_t most_piece = 256 * 1024;

  /// @param to the rank whose buffer it is. Allocates only for more places than ever before.
  void offer(communicator_id of, rank_t to, const expected_chunk& what) {
    const std::lock_guard lock(mutex_);
    places_.push_back({of, to, what, 0});
  }
  void withdraw(communicator_id of, rank_t to, const expected_chunk& what) {
    drop([&](const place& p) {
      return p.of == of && p.to == to && p.what.source == what.source && p.what.epoch == what.epoch &&
             p.what.lane == what.lane && p.what.sequence == what.sequence;
    });
  }
  /// All of an operation. @param source −1: from every rank
  void withdraw(communicator_id of, rank_t to, epoch_t epoch, rank_t source) {
    drop([&](const place& p) {
      return p.of == of && p.to == to && p.what.epoch == epoch && (source < 0 || p.what.source == source);
    });
  }
  /// All of a rank.
  void withdraw(communicator_id of, rank_t to) {
    drop([&](const place& p) { return p.of == of && p.to == to; });
  }

  /// 0: there is none for it. Only what its receiver expects is let in: the same size, of the same call.
  std::uint64_t take(const frame_head& head, const chunk_body& c) {
    const std::lock_guard lock(mutex_);
    for (place& p : places_)
      if (p.number == 0 && p.of == head.communicator && p.to == head.to && p.what.source == c.source &&
          p.what.epoch == c.epoch && p.what.lane == c.lane && p.what.sequence == c.sequence &&
          p.what.fingerprint == c.fingerprint && p.what.bytes + sizeof c == head.bytes)
        return p.number = ++taken_;
    return 0;
  }
  /// Calls fill(address) unless it has been withdrawn. False: it has.
  template <class Fill>
  bool fill(std::uint64_t number, Fill&& fill) {
    const std::lock_guard lock(mutex_);
    const auto at = find(number);
    if (at == places_.end()) return false;
    fill(at->what.place);
    return true;
  }
  /// It is full. Null: it was withdrawn.
  std::byte* finish(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    const auto at = find(number);
    if (at == places_.end()) return nullptr;
    std::byte* const full = at->what.place;
    places_.erase(at);
    return full;
  }

private:
  struct place {
    communicator_id of;
    rank_t to;
    expected_chunk what;
    std::uint64_t number;  ///< of those that were taken; 0: it was not
  };
  std::vector<place>::iterator find(std::uint64_t number) {
    return std::find_if(places_.begin(), places_.end(), [number](const place& p) { return p.number == number; });
  }
  template <class Which>
  void drop(Which&& which) {
    const std::lock_guard lock(mutex_);
    std::erase_if(places_, which);
  }

  std::mutex mutex_;
  std::vector<place> places_;  ///< a few: one for each lane and peer that a rank waits for
  std::uint64_t taken_ = 0;
};

}  // namespace troupe::actors
