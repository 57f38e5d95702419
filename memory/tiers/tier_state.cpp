// SPDX-License-Identifier: Apache-2.0
#include "memory/tiers/tier_state.hpp"

#include <algorithm>
#include <array>
#include <new>
#include <random>
#include <utility>

namespace troupe::detail {

constinit thread_local recent_heap recent_heaps[4] __attribute__((tls_model("initial-exec"))) = {};

namespace {

/// Blocks that move between a thread and the core at once: a few, so that the lock is passed once for all of them, and that no request waits
/// long. Large ones alone: each is another line of memory that is in no cache.
constexpr std::uint32_t batch = 16;
std::size_t batch_of(const thread_cache& cache, std::size_t c) noexcept {
  const std::size_t by_size = c < line_classes::count ? 512 / classes.lines[c] : 0;  // 32 KiB
  return std::min({std::size_t{batch}, std::size_t{cache.most(c) / 2}, by_size});
}

std::uint64_t new_secret() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

std::uint64_t next_id() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

/// Bytes before the first place for a head.
std::size_t skipped_at(const void* memory) noexcept {
  return (line_bytes - (reinterpret_cast<std::uintptr_t>(memory) + sizeof(block_head)) % line_bytes) % line_bytes;
}

std::uint32_t pages_in(std::size_t bytes, std::size_t skipped) noexcept {
  return bytes < skipped ? 0 : static_cast<std::uint32_t>((bytes - skipped) / tier_core::page_bytes);
}

constinit thread_local bool thread_ends __attribute__((tls_model("initial-exec"))) = false;

/// What this thread keeps, of every heap: given back when it ends. Heaps may end before.
struct kept_by_thread {
  struct entry {
    std::uint64_t id;
    std::weak_ptr<tier_state> heap;
    thread_cache* cache;
  };
  std::vector<entry> entries;

  ~kept_by_thread() {
    thread_ends = true;  // what runs later in this thread goes without a cache
    for (recent_heap& r : recent_heaps) r = {};
    for (entry& e : entries)
      if (const auto heap = e.heap.lock()) heap->retire(e.cache);
  }
  static kept_by_thread& of_this() {
    static thread_local kept_by_thread mine;
    return mine;
  }
};

}  // namespace

tier_state::tier_state(void* memory, std::size_t bytes, std::size_t capacity, std::string name_given)
    : name{std::move(name_given)},
      words{new_secret()},
      id_{next_id()},
      first_{static_cast<std::byte*>(memory) + skipped_at(memory)},
      most_pages_{pages_in(bytes, skipped_at(memory))},
      skipped_{skipped_at(memory)},
      kept_of_class_{std::min<std::size_t>(128 * 1024, bytes / 1024)},
      core_{first_, static_cast<std::uint32_t>(most_pages_), pages_in(std::min(capacity, bytes), skipped_), words} {}

// -- threads --------------------------------------------------------------------------------------

thread_cache* tier_state::find_mine() noexcept {
  if (thread_ends) return nullptr;
  auto& entries = kept_by_thread::of_this().entries;
  recent_heap& last = recent_heaps[id_ % 4];
  for (const auto& e : entries)
    if (e.id == id_) return (last = {id_, e.cache}).cache;
  try {
    // The first request of a thread to this heap: it allocates, once.
    std::erase_if(entries, [](const auto& e) { return e.heap.expired(); });
    auto made = std::make_unique<thread_cache>(kept_of_class_);
    thread_cache* const cache = made.get();
    entries.reserve(entries.size() + 1);
    {
      const std::lock_guard lock{mutex_};
      caches_.push_back(std::move(made));
    }
    entries.push_back({id_, weak_from_this(), cache});
    return (last = {id_, cache}).cache;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void tier_state::end() noexcept {
  const std::lock_guard lock{mutex_};
  ended_ = true;
}

void tier_state::retire(thread_cache* cache) noexcept {
  const std::lock_guard lock{mutex_};
  if (!ended_) empty_locked(*cache);
  std::erase_if(caches_, [&](const auto& c) { return c.get() == cache; });
}

void tier_state::empty_locked(thread_cache& cache) noexcept {
  for (std::size_t c = 0; c < thread_cache::kinds; ++c)
    while (block_head* const head = cache.pop(c)) core_.give(head);
}

void tier_state::collect_locked() noexcept {
  for (const auto& cache : caches_) cache->door.close();
  const bool all_see = process_barrier(barrier_of::this_process);
  for (const auto& cache : caches_) {
    if (all_see || !cache->door.needs_barrier()) {
      cache->door.await();
      empty_locked(*cache);
    }
    cache->door.open();
  }
}

// -- without a cache, or when it has nothing -------------------------------------------------------

block_head* tier_state::take_or_collect(std::uint32_t lines) noexcept {
  if (block_head* const head = core_.take(lines)) return head;
  collect_locked();
  return core_.take(lines);
}

void* tier_state::refill(thread_cache& cache, std::size_t c, std::size_t bytes) noexcept {
  const std::uint32_t lines = classes.lines[c];
  std::array<block_head*, batch> more;
  std::size_t count = 0;
  block_head* first;
  {
    const std::lock_guard lock{mutex_};
    const std::size_t wanted = batch_of(cache, c);
    // All in one piece, if there is one: a search, and no more than a head for each.
    first = core_.take(lines * static_cast<std::uint32_t>(1 + wanted));
    for (block_head* rest = first; first != nullptr && count < wanted; ++count)
      rest = more[count] = core_.cut(rest, lines);
    if (first == nullptr) first = core_.take(lines);
    if (first == nullptr)  // the last room is not given away in classes
      first = take_or_collect(static_cast<std::uint32_t>((bytes + extra_bytes + line_bytes - 1) / line_bytes));
  }
  if (first == nullptr) return nullptr;
  for (std::size_t i = 0; i < count; ++i)
    more[i]->word.store(words.make(more[i], lines, 0, block_state::cached), std::memory_order_relaxed);
  if (count > 0 && cache.door.enter()) {
    while (count > 0 && cache.push(c, more[count - 1])) --count;
    cache.door.leave();
  }
  if (count > 0) {  // somebody collects
    const std::lock_guard lock{mutex_};
    while (count > 0) core_.give(more[--count]);
  }
  return live(first, bytes);
}

/// The class is full, or somebody collects: the block goes to the core, and others of its class with it.
bool tier_state::spill(thread_cache& cache, std::size_t c, block_head* head) noexcept {
  std::array<block_head*, batch> others;
  std::size_t count = 0;
  if (cache.door.enter()) {
    const std::size_t wanted = batch_of(cache, c);
    while (count < wanted && (others[count] = cache.pop(c)) != nullptr) ++count;
    cache.door.leave();
  }
  const std::lock_guard lock{mutex_};
  core_.give(head);
  while (count > 0) core_.give(others[--count]);
  return !core_.spoiled();
}

void* tier_state::take_alone(std::uint32_t lines, std::size_t bytes, std::size_t align) noexcept {
  if (align > most_bytes) return nullptr;
  const auto more = align > line_bytes ? static_cast<std::uint32_t>(align / line_bytes) : 0;
  block_head* head;
  {
    const std::lock_guard lock{mutex_};
    if (more > ~lines || (head = take_or_collect(lines + more)) == nullptr) return nullptr;
    if (more > 0) {
      const auto payload = reinterpret_cast<std::uintptr_t>(head + 1);
      if (const std::size_t in_front = (align - payload % align) % align; in_front > 0) {
        block_head* const front = head;
        head = core_.cut(front, static_cast<std::uint32_t>(in_front / line_bytes));
        core_.give(front);
      }
      if (head->lines > lines) core_.give(core_.cut(head, lines));
    }
  }
  return live(head, bytes);
}

// -- the whole ------------------------------------------------------------------------------------

bool tier_state::resize(std::size_t capacity) {
  const std::lock_guard lock{mutex_};
  const std::uint32_t pages = std::min(static_cast<std::uint32_t>(most_pages_), pages_in(capacity, skipped_));
  if (core_.resize(pages)) return true;
  collect_locked();
  return core_.resize(pages);
}

tier_heap::usage tier_state::use() const {
  const std::lock_guard lock{mutex_};
  std::uint64_t kept = 0;
  for (const auto& cache : caches_) kept += cache->kept_lines();
  tier_heap::usage u;
  u.capacity = core_.pages() * tier_core::page_bytes;
  u.kept = kept * line_bytes;
  // The blocks that a thread keeps may change while we count.
  const std::size_t out = u.capacity - core_.free_lines() * line_bytes;
  u.in_use = out - std::min(out, u.kept);
  u.largest = std::max<std::size_t>(core_.largest() * line_bytes, extra_bytes) - extra_bytes;
  return u;
}

}  // namespace troupe::detail
