// SPDX-License-Identifier: Apache-2.0
#include "memory/arena.hpp"

#include "memory/error.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#define TROUPE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TROUPE_ASAN 1
#endif
#endif
#if defined(TROUPE_ASAN)
#include <sanitizer/asan_interface.h>
#endif

namespace troupe {

namespace {

/// Under AddressSanitizer an idle block is as untouchable as freed memory, but for the link at its beginning, which the
/// leak checker must be able to follow.
void forbid([[maybe_unused]] void* block, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(TROUPE_ASAN)
  ASAN_POISON_MEMORY_REGION(static_cast<std::byte*>(block) + sizeof(void*), bytes - sizeof(void*));
#endif
}
void allow([[maybe_unused]] void* block, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(TROUPE_ASAN)
  ASAN_UNPOISON_MEMORY_REGION(block, bytes);
#endif
}

constexpr std::size_t smallest_class = 64;
constexpr std::size_t largest_request = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / 2;
constexpr std::size_t class_count = 4 * static_cast<std::size_t>(std::bit_width(largest_request));

struct size_class {
  std::size_t index;
  std::size_t bytes;
};

/// Classes are 64 B, then 5/4, 6/4, 7/4 and 8/4 of each power of two, as far as those are whole cache lines.
/// @pre 0 < bytes <= largest_request
constexpr size_class class_of(std::size_t bytes) {
  if (bytes <= smallest_class) return {0, smallest_class};
  const std::size_t lines = (bytes + smallest_class - 1) / smallest_class * smallest_class;
  const auto octave = static_cast<std::size_t>(std::bit_width(lines - 1)) - 1;  // 2^octave < lines <= 2^(octave + 1)
  const std::size_t base = std::size_t{1} << octave;
  const std::size_t quarter = base / 4;
  const std::size_t quarters = (lines - base + quarter - 1) / quarter;  // 1 … 4
  return {4 * octave + quarters - 1, base + quarters * quarter};
}

/// Bytes of the blocks of a class that class_of() can name.
constexpr std::size_t bytes_of(std::size_t index) {
  const std::size_t base = std::size_t{1} << (index / 4);
  return index == 0 ? smallest_class : base + (index % 4 + 1) * (base / 4);
}

static_assert(class_of(65).bytes == 128 && class_of(129).bytes == 192 && class_of(1025).bytes == 1280);
static_assert(bytes_of(class_of(64).index) == 64 && bytes_of(class_of(1281).index) == 1536);
static_assert(class_of(1280).index + 1 == class_of(1281).index && class_of(2048).index + 1 == class_of(2049).index);
static_assert(class_of(largest_request).index < class_count);

constexpr std::align_val_t alignment_of(std::size_t class_bytes) {
  return std::align_val_t{class_bytes >= arena::page_aligned_from ? arena::page : arena::alignment};
}

void* allocate(std::size_t bytes) noexcept { return ::operator new(bytes, alignment_of(bytes), std::nothrow); }
void release_to_system(void* block, std::size_t bytes) noexcept { ::operator delete(block, alignment_of(bytes)); }

}  // namespace

namespace detail {

/// The state behind an arena and its handles. Idle blocks of a class form a list threaded through the blocks
/// themselves, so giving a block back never allocates and cannot fail.
class arena_pool {
public:
  explicit arena_pool(std::size_t retain) : retain_{retain} {}
  arena_pool(const arena_pool&) = delete;
  arena_pool& operator=(const arena_pool&) = delete;
  ~arena_pool() { trim(); }

  /// nullptr if the system has no more.
  void* acquire(std::size_t bytes) noexcept {
    const size_class wanted = class_of(bytes);
    if (void* block = reuse(wanted)) return block;
    void* block = allocate(wanted.bytes);
    if (block == nullptr) {
      trim();
      block = allocate(wanted.bytes);
    }
    if (block != nullptr) {
      const std::lock_guard lock{mutex_};
      ++usage_.allocations;
      hand_out(wanted.bytes);
    }
    return block;
  }

  void release(void* block, std::size_t bytes) noexcept {
    const size_class held = class_of(bytes);
    {
      // A lock and not a lock-free list: the statistics and the retention bound must agree with the lists, and an
      // uncontended lock is small beside the operation that needed the scratch.
      const std::lock_guard lock{mutex_};
      usage_.in_use -= held.bytes;
      if (held.bytes <= retain_ && usage_.retained <= retain_ - held.bytes) {
        usage_.retained += held.bytes;
        idle_[held.index] = new (block) idle_block{idle_[held.index]};
        forbid(block, held.bytes);
        return;
      }
    }
    release_to_system(block, held.bytes);
  }

  void trim() noexcept {
    std::array<idle_block*, class_count> blocks{};
    {
      const std::lock_guard lock{mutex_};
      std::swap(blocks, idle_);
      usage_.retained = 0;
    }
    for (std::size_t index = 0; index < class_count; ++index) {
      const std::size_t bytes = bytes_of(index);
      for (idle_block* block = blocks[index]; block != nullptr;) {
        allow(block, bytes);
        release_to_system(std::exchange(block, block->next), bytes);
      }
    }
  }

  arena::statistics usage() const {
    const std::lock_guard lock{mutex_};
    return usage_;
  }

private:
  struct idle_block {
    idle_block* next;
  };

  void* reuse(size_class wanted) noexcept {
    const std::lock_guard lock{mutex_};
    idle_block* block = idle_[wanted.index];
    if (block == nullptr) return nullptr;
    allow(block, wanted.bytes);
    idle_[wanted.index] = block->next;
    usage_.retained -= wanted.bytes;
    ++usage_.reuses;
    hand_out(wanted.bytes);
    return block;
  }

  /// @pre mutex_ is held
  void hand_out(std::size_t bytes) noexcept {
    usage_.in_use += bytes;
    usage_.high_water = std::max(usage_.high_water, usage_.in_use);
  }

  const std::size_t retain_;
  mutable std::mutex mutex_;
  std::array<idle_block*, class_count> idle_{};  // guarded by mutex_
  arena::statistics usage_;                      // guarded by mutex_
};

}  // namespace detail

// -- scratch --------------------------------------------------------------------------------------

scratch_block::scratch_block(std::shared_ptr<detail::arena_pool> pool, void* data, std::size_t size) noexcept
    : pool_{std::move(pool)}, data_{data}, size_{size} {}

scratch_block::scratch_block(scratch_block&& other) noexcept
    : pool_{std::move(other.pool_)}, data_{std::exchange(other.data_, nullptr)}, size_{std::exchange(other.size_, 0)} {}

scratch_block& scratch_block::operator=(scratch_block&& other) noexcept {
  if (this != &other) {
    reset();
    pool_ = std::move(other.pool_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

void scratch_block::release() noexcept {
  pool_->release(std::exchange(data_, nullptr), std::exchange(size_, 0));
  pool_.reset();
}

// -- arena ----------------------------------------------------------------------------------------

arena::arena(std::size_t retain) : pool_{std::make_shared<detail::arena_pool>(retain)} {}

scratch_block arena::acquire(std::size_t bytes) {
  if (bytes == 0) return {};
  if (bytes > largest_request)
    throw error{errc::size_overflow, "arena: " + std::to_string(bytes) +
                                         " bytes of scratch do not fit into the address "
                                         "space; the size was probably computed with an overflow"};
  void* block = pool_->acquire(bytes);
  if (block == nullptr)
    throw error{errc::out_of_memory, "arena: the system refused " + std::to_string(bytes) + " bytes of scratch; " +
                                         std::to_string(usage().in_use) + " bytes are in use by other operations"};
  return scratch_block{pool_, block, bytes};
}

void arena::trim() noexcept { pool_->trim(); }

arena::statistics arena::usage() const { return pool_->usage(); }

}  // namespace troupe
