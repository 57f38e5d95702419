// SPDX-License-Identifier: Apache-2.0
#pragma once
// Private to memory/tiers: what a heap is made of. One lock around the core; in front of it what each thread keeps.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "memory/tiers/thread_cache.hpp"
#include "memory/tiers/tier_core.hpp"
#include "memory/tiers/tier_heap.hpp"

namespace troupe::detail {

/// The last heaps that this thread used, by their ids: one load and a comparison on every path. No destructor, and no look-up through the loader.
struct recent_heap {
  std::uint64_t id;  // 0: none
  thread_cache* cache;
};
extern constinit thread_local recent_heap recent_heaps[4] __attribute__((tls_model("initial-exec")));

class tier_state : public std::enable_shared_from_this<tier_state> {
public:
  /// The largest block that there may be, in bytes asked for.
  static constexpr std::size_t most_bytes = (std::size_t{1} << 38) - 2 * tier_core::page_bytes;

  tier_state(void* memory, std::size_t bytes, std::size_t capacity, std::string name);

  const std::string name;
  const head_words words;

  bool contains(const void* address) const noexcept {
    return reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(first_) <
           most_pages_ * tier_core::page_bytes;
  }

  /// nullptr: no room. @pre align is a power of two
  void* take(std::size_t bytes, std::size_t align) noexcept {
    if (core_.spoiled()) [[unlikely]]
      return nullptr;  // also of what threads keep: some of that may be what was overwritten
    const auto lines = static_cast<std::uint32_t>((bytes + extra_bytes + line_bytes - 1) / line_bytes);
    if (bytes <= line_classes::most_lines * line_bytes - extra_bytes && align <= line_bytes) [[likely]] {
      const std::size_t c = classes.of[lines];
      thread_cache* const cache = mine();
      if (cache != nullptr && cache->most(c) > 0) [[likely]] {
        block_head* head = nullptr;
        if (cache->door.enter()) [[likely]] {
          head = cache->pop(c);
          cache->door.leave();
        }
        if (head != nullptr) [[likely]]
          return live(head, bytes);
        return refill(*cache, c, bytes);
      }
    }
    if (bytes > line_classes::most_lines * line_bytes - extra_bytes &&
        bytes <= thread_cache::most_large * line_bytes - extra_bytes && align <= line_bytes)
      if (thread_cache* const cache = mine(); cache != nullptr && cache->door.enter()) {
        block_head* const head = cache->pop_large(lines);
        cache->door.leave();
        if (head != nullptr) return live(head, bytes);
      }
    return bytes > most_bytes ? nullptr : take_alone(lines, bytes, align);
  }

  /// Of a block that is live and whole. False: the heap came upon a head that was overwritten.
  bool give(block_head* head) noexcept {
    if (core_.spoiled()) [[unlikely]]
      return false;
    const std::uint32_t lines = head->lines;
    if (lines <= thread_cache::most_large) [[likely]] {
      const bool large = lines > line_classes::most_lines;
      const std::size_t c = large ? thread_cache::large_of(lines) : classes.of[lines];
      thread_cache* const cache = mine();
      if (cache != nullptr && (large || classes.lines[c] == lines) && cache->most(c) > 0) [[likely]] {
        head->word.store(words.make(head, lines, 0, block_state::cached), std::memory_order_relaxed);
        if (cache->door.enter()) [[likely]] {
          const bool kept = cache->push(c, head);
          cache->door.leave();
          if (kept) [[likely]]
            return true;
        }
        return spill(*cache, c, head);
      }
    }
    const std::lock_guard lock{mutex_};
    core_.give(head);
    return !core_.spoiled();
  }

  /// Takes back what threads keep, unless the system refuses the barrier that this needs.
  void collect() {
    const std::lock_guard lock{mutex_};
    collect_locked();
  }
  bool resize(std::size_t capacity);
  tier_heap::usage use() const;
  /// The head that was overwritten, or nullptr.
  const void* spoiled_at() const noexcept { return core_.spoiled_at(); }
  const char* fault() const {
    const std::lock_guard lock{mutex_};
    return core_.fault();
  }
  /// A thread that has a cache of this heap ends.
  void retire(thread_cache* cache) noexcept;
  /// The memory may be gone after this: what threads keep of it stays untouched. Waits for a retire() under way.
  void end() noexcept;

private:
  /// This thread's cache, made when first asked for. nullptr while the thread ends, and without memory for it.
  thread_cache* mine() noexcept {
    const recent_heap& last = recent_heaps[id_ % 4];
    if (last.id == id_) [[likely]]
      return last.cache;
    return find_mine();
  }
  thread_cache* find_mine() noexcept;

  /// Makes a block its user's.
  void* live(block_head* head, std::size_t bytes) const noexcept {
    const std::uint32_t lines = head->lines;
    head->word.store(words.make(head, lines, lines * line_bytes - extra_bytes - bytes, block_state::live),
                     std::memory_order_relaxed);
    const std::uint64_t mark = words.mark(head);
    std::memcpy(reinterpret_cast<std::byte*>(head + 1) + bytes, &mark, mark_bytes);
    return head + 1;
  }
  void* refill(thread_cache& cache, std::size_t c, std::size_t bytes) noexcept;
  bool spill(thread_cache& cache, std::size_t c, block_head* head) noexcept;
  void* take_alone(std::uint32_t lines, std::size_t bytes, std::size_t align) noexcept;
  block_head* take_or_collect(std::uint32_t lines) noexcept;
  void collect_locked() noexcept;
  void empty_locked(thread_cache& cache) noexcept;

  const std::uint64_t id_;  // never used again by another heap
  std::byte* const first_;
  const std::size_t most_pages_, skipped_;
  const std::size_t kept_of_class_;
  mutable std::mutex mutex_;
  tier_core core_;                                     // guarded by mutex_
  std::vector<std::unique_ptr<thread_cache>> caches_;  // guarded by mutex_
  bool ended_ = false;                                 // guarded by mutex_
};

}  // namespace troupe::detail
