// SPDX-License-Identifier: Apache-2.0
// Scratch memory that is recycled instead of going back to the system.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>

namespace troupe {

class arena;

namespace detail {
class arena_pool;
}

/// A block of scratch memory; returns to its arena when destroyed. Contents are unspecified at first.
/// Keeps the arena's pool alive, so it may outlive the `arena` object. One owner at a time; not synchronised.
class scratch_block {
public:
  scratch_block() = default;
  scratch_block(scratch_block&& other) noexcept;
  scratch_block& operator=(scratch_block&& other) noexcept;
  ~scratch_block() { reset(); }

  /// 64-byte aligned (page-aligned from arena::page_aligned_from bytes on); nullptr when empty.
  void* data() const noexcept { return data_; }
  /// Bytes asked for; data() + size() is the end of what may be used.
  std::size_t size() const noexcept { return size_; }
  explicit operator bool() const noexcept { return data_ != nullptr; }

  std::span<std::byte> bytes() const noexcept { return {static_cast<std::byte*>(data_), size_}; }

  /// The block as size() / sizeof(T) elements.
  template <class T>
    requires std::is_trivially_copyable_v<T> &&(alignof(T) <= 64) std::span<T> as() const noexcept {
      return {static_cast<T*>(data_), size_ / sizeof(T)};
    }

    /// Gives the block back now.
    void reset() noexcept {
      if (data_ != nullptr) release();
    }

  private:
    friend class arena;
    void release() noexcept;
    scratch_block(std::shared_ptr<detail::arena_pool> pool, void* data, std::size_t size) noexcept;

    std::shared_ptr<detail::arena_pool> pool_;
    void* data_ = nullptr;
    std::size_t size_ = 0;
};

/// A thread-safe pool of aligned blocks in size classes (four a power of two, so blocks are at most a quarter too
/// large beyond 256 B; the smallest is 64 B). Freed blocks are kept for the next acquire() of their class until `retain` bytes lie idle;
/// beyond that they go back to the system.
///
/// Cost: one short critical section for each acquire and release, no allocation when a block of the class is idle.
/// Meant to be called once an operation, not once a chunk.
class arena {
public:
  static constexpr std::size_t alignment = 64;
  static constexpr std::size_t page = 4096;
  static constexpr std::size_t page_aligned_from = 64 * 1024;
  static constexpr std::size_t default_retain = std::size_t{64} << 20;

  struct statistics {
    std::size_t in_use = 0;       // bytes of the blocks handed out, rounded up to their classes
    std::size_t high_water = 0;   // largest in_use so far
    std::size_t retained = 0;     // bytes lying idle
    std::size_t allocations = 0;  // acquires that went to the system
    std::size_t reuses = 0;       // acquires served from idle blocks
  };

  /// @param retain most bytes kept idle; 0 keeps nothing.
  explicit arena(std::size_t retain = default_retain);

  arena(const arena&) = delete;
  arena& operator=(const arena&) = delete;

  /// A block of at least `bytes`; 0 gives an empty handle. Throws errc::size_overflow if no address space could hold
  /// it, errc::out_of_memory if the system refuses even after idle blocks were given back. Thread-safe.
  scratch_block acquire(std::size_t bytes);

  /// Gives all idle blocks back to the system. Thread-safe.
  void trim() noexcept;

  /// A consistent snapshot. Thread-safe.
  statistics usage() const;

private:
  std::shared_ptr<detail::arena_pool> pool_;
};

}  // namespace troupe
