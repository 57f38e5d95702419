// SPDX-License-Identifier: Apache-2.0
#pragma once
// Bytes from one process to another of the same host, through memory that both map: what a socket would carry, without the system. One
// writer, one reader, each one thread at a time.
//
// The memory has no name: its writer makes it and passes its descriptor (memfd), sealed so that it keeps its size, so nothing is left when
// both are gone, however they end. There are numbers in it, no addresses. The other side is believed nothing: a count that cannot be makes the ring
// `broken`.
//
// Sleep and wake-up. The reader says that it sleeps (R1 asleep = 1), then looks once more (R2 written); the writer counts up (W1 written), then
// looks whether the reader sleeps (W2 asleep). All four are sequentially consistent: R2 sees the bytes, or W2 sees the sleeper and rings it
// awake, through the socket beside. The same the other way round, when the writer finds no room.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "actors/ports/link/sockets.hpp"

namespace troupe::actors {

class byte_ring {
public:
  static constexpr std::size_t capacity = 256 * 1024;

  byte_ring() = default;
  /// The writer's. Throws error(io).
  static byte_ring make();
  /// The reader's, of what the writer has passed. Throws error(io) if it is no such memory.
  static byte_ring take(descriptor from);
  ~byte_ring();
  byte_ring(byte_ring&& other) noexcept
      : memory_(std::move(other.memory_)), shared_(std::exchange(other.shared_, nullptr)), mine_(other.mine_) {}
  byte_ring& operator=(byte_ring&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(shared_, other.shared_);
    std::swap(mine_, other.mine_);
    return *this;
  }
  explicit operator bool() const noexcept { return shared_ != nullptr; }
  /// The memory's descriptor, until it has been passed.
  int get() const noexcept { return memory_.get(); }
  void passed() noexcept { memory_.reset(); }

  // -- the writer --

  /// As many as there is room for.
  std::size_t write(const std::byte* from, std::size_t bytes) noexcept {
    const std::uint64_t room = capacity - (mine_ - bounded(shared_->read, mine_ - capacity, mine_));
    const std::size_t now = std::min(bytes, static_cast<std::size_t>(room)), at = mine_ % capacity;
    const std::size_t first = std::min(now, capacity - at);
    if (first > 0) std::memcpy(shared_->bytes + at, from, first);
    if (now > first) std::memcpy(shared_->bytes, from + first, now - first);
    mine_ += now;
    return now;
  }
  /// What was written counts. True: the reader sleeps, and has to be rung awake.
  bool publish() noexcept {
    shared_->written.store(mine_, std::memory_order_seq_cst);
    return shared_->asleep.load(std::memory_order_seq_cst) != 0 && shared_->asleep.exchange(0) != 0;
  }
  /// True: there is some now. False: the reader will ring.
  bool ask_for_room() noexcept {
    shared_->wants_room.store(1, std::memory_order_seq_cst);
    if (bounded(shared_->read, mine_ - capacity, mine_) == mine_ - capacity) return false;
    shared_->wants_room.store(0, std::memory_order_relaxed);
    return true;
  }

  // -- the reader --

  bool empty() const noexcept { return shared_->written.load(std::memory_order_acquire) == mine_; }
  /// As many as there are.
  std::size_t read(std::byte* to, std::size_t most) noexcept {
    const std::uint64_t there = bounded(shared_->written, mine_, mine_ + capacity) - mine_;
    const std::size_t now = std::min(most, static_cast<std::size_t>(there)), at = mine_ % capacity;
    const std::size_t first = std::min(now, capacity - at);
    if (first > 0) std::memcpy(to, shared_->bytes + at, first);
    if (now > first) std::memcpy(to + first, shared_->bytes, now - first);
    mine_ += now;
    return now;
  }
  /// What was read is given back. True: the writer waits for room, and has to be rung awake.
  bool give_back() noexcept {
    shared_->read.store(mine_, std::memory_order_seq_cst);
    return shared_->wants_room.load(std::memory_order_seq_cst) != 0 && shared_->wants_room.exchange(0) != 0;
  }
  /// From now on the writer rings. True: there is something already.
  bool fall_asleep() noexcept {
    shared_->asleep.store(1, std::memory_order_seq_cst);
    return shared_->written.load(std::memory_order_seq_cst) != mine_;
  }
  void wake_up() noexcept { shared_->asleep.store(0, std::memory_order_relaxed); }

  /// The other side has written numbers that cannot be.
  bool broken() const noexcept { return broken_; }

private:
  struct segment {
    alignas(128) std::atomic<std::uint64_t> written;
    std::atomic<std::uint32_t> wants_room;
    alignas(128) std::atomic<std::uint64_t> read;
    std::atomic<std::uint32_t> asleep;
    alignas(128) std::byte bytes[capacity];
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

  byte_ring(descriptor memory, segment* shared) : memory_(std::move(memory)), shared_(shared) {}
  static segment* map(int memory);

  std::uint64_t bounded(const std::atomic<std::uint64_t>& theirs, std::uint64_t least, std::uint64_t most) noexcept {
    const std::uint64_t n = theirs.load(std::memory_order_acquire);
    if (n - least <= most - least) return n;  // modulo 2⁶⁴, as the first capacity's worth of `least` is
    broken_ = true;
    return least;
  }

  descriptor memory_;
  segment* shared_ = nullptr;
  std::uint64_t mine_ = 0;  ///< written or read so far
  bool broken_ = false;
};

/// The byte that comes with a descriptor.
inline constexpr std::byte carries_descriptor{0x6d};
/// Passes a descriptor over a Unix socket, with one byte. −1: says that there is none, and frames come through the socket. False: not now, or
/// never; errno says.
bool send_descriptor(int socket, int what);
/// As recv(), without waiting. @param passed the descriptor that came with the bytes, if any @param dropped there was one, but none was left to
/// give it
ssize_t receive_some(int socket, std::span<std::byte> to, descriptor& passed, bool& dropped);
enum class passed : std::uint8_t { nothing_yet, memory, no_memory, ended, lost_on_the_way };
/// @param what what was passed, if it is memory
passed receive_descriptor(int socket, descriptor& what);

}  // namespace troupe::actors
