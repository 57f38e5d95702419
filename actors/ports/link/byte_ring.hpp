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
//
// Starting over. Messages are short and read soon, so bytes that go round all of the memory would touch another page with every few of them, and push
// everything else out of the caches. A writer that has come some way, and finds that all has been read, goes on at the beginning: it counts on to the next
// multiple of the capacity, and says from where (`skipped`), before it counts what it writes there. So a reader that has read all before sees either
// nothing, or that it has to count on as well.

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
  /// From here on it starts over.
  static constexpr std::size_t far_enough = 8 * 1024;

  byte_ring() = default;
  /// The writer's. Throws error(io).
  static byte_ring make();
  /// The reader's, of what the writer has passed. Throws error(io) if it is no such memory.
  static byte_ring take(descriptor from);
  ~byte_ring();
  byte_ring(byte_ring&& other) noexcept
      : memory_(std::move(other.memory_)),
        shared_(std::exchange(other.shared_, nullptr)),
        mine_(other.mine_),
        skipped_(other.skipped_),
        begun_(other.begun_),
        broken_(other.broken_) {}
  byte_ring& operator=(byte_ring&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(shared_, other.shared_);
    std::swap(mine_, other.mine_);
    std::swap(skipped_, other.skipped_);
    std::swap(begun_, other.begun_);
    std::swap(broken_, other.broken_);
    return *this;
  }
  explicit operator bool() const noexcept { return shared_ != nullptr; }
  /// The memory's descriptor, until it has been passed.
  int get() const noexcept { return memory_.get(); }
  void passed() noexcept { memory_.reset(); }

  // -- the writer --

  /// As many as there is room for.
  std::size_t write(const std::byte* from, std::size_t bytes) noexcept {
    const std::size_t now = std::min(bytes, room());
    if (now > 0 && mine_ % capacity >= far_enough && is_all_read()) start_over();
    const std::size_t at = mine_ % capacity;
    const std::size_t first = std::min(now, capacity - at);
    if (first > 0) std::memcpy(shared_->bytes + at, from, first);
    if (now > first) std::memcpy(shared_->bytes, from + first, now - first);
    mine_ += now;
    return now;
  }
  /// Publishes what was written. True: the reader sleeps, and has to be rung awake.
  bool publish() noexcept {
    shared_->written.store(mine_, std::memory_order_seq_cst);
    return shared_->asleep.load(std::memory_order_seq_cst) != 0 && shared_->asleep.exchange(0) != 0;
  }
  /// True: there is some now. False: the reader will ring.
  bool ask_for_room() noexcept {
    shared_->wants_room.store(1, std::memory_order_seq_cst);
    if (room(std::memory_order_seq_cst) == 0) return false;
    shared_->wants_room.store(0, std::memory_order_relaxed);
    return true;
  }

  // -- the reader --

  bool empty() const noexcept { return shared_->written.load(std::memory_order_acquire) == mine_; }
  /// As many as there are.
  std::size_t read(std::byte* to, std::size_t most) noexcept {
    const std::uint64_t written = shared_->written.load(std::memory_order_acquire);
    if (written != mine_ && shared_->skipped.load(std::memory_order_relaxed) == mine_) mine_ = behind_skip(mine_);
    const std::uint64_t there = bounded(written, mine_, mine_ + capacity) - mine_;
    const std::size_t now = std::min(most, static_cast<std::size_t>(there)), at = mine_ % capacity;
    const std::size_t first = std::min(now, capacity - at);
    if (first > 0) std::memcpy(to, shared_->bytes + at, first);
    if (now > first) std::memcpy(to + first, shared_->bytes, now - first);
    mine_ += now;
    return now;
  }
  /// Gives back the room of what was read. True: the writer waits for room, and has to be rung awake.
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
    std::atomic<std::uint64_t> skipped;  ///< from here to the next multiple of the capacity nothing was written
    alignas(128) std::atomic<std::uint64_t> read;
    std::atomic<std::uint32_t> asleep;
    alignas(128) std::byte bytes[capacity];
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

  byte_ring(descriptor memory, segment* shared) : memory_(std::move(memory)), shared_(shared) {}
  static segment* map(int memory);

  std::uint64_t bounded(std::uint64_t n, std::uint64_t least, std::uint64_t most) noexcept {
    if (n - least <= most - least) return n;  // modulo 2⁶⁴, as the first capacity's worth of `least` is
    broken_ = true;
    return least;
  }
  static std::uint64_t behind_skip(std::uint64_t from) { return (from + capacity - 1) / capacity * capacity; }

  /// How much the reader has given back. It may not have heard yet that the writer has started over.
  std::uint64_t seen_read(std::memory_order order = std::memory_order_acquire) noexcept {
    const std::uint64_t n = shared_->read.load(order);
    // One that has not heard of it has read nothing since, so there cannot be more than the room then.
    if (n == skipped_ && mine_ - begun_ <= capacity) return begun_;
    return bounded(n, std::max(begun_, mine_ - std::min(mine_, capacity)), mine_);
  }
  std::size_t room(std::memory_order order = std::memory_order_acquire) noexcept {
    return capacity - static_cast<std::size_t>(mine_ - seen_read(order));
  }
  bool is_all_read() noexcept { return seen_read() == mine_; }
  void start_over() noexcept {
    skipped_ = mine_;
    begun_ = mine_ = behind_skip(mine_);
    shared_->skipped.store(skipped_, std::memory_order_relaxed);  // counts with what is published next
  }

  descriptor memory_;
  segment* shared_ = nullptr;
  std::uint64_t mine_ = 0;     ///< written or read so far, and what was skipped
  std::uint64_t skipped_ = 0;  ///< of the writer: from where it skipped last …
  std::uint64_t begun_ = 0;    ///< … and to where
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
