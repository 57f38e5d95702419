// SPDX-License-Identifier: Apache-2.0
#include "memory/large_pages.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace troupe {

namespace {

constexpr std::size_t page = std::size_t{2} << 20, line = 64;
constexpr std::size_t least = page / 2;

std::size_t in_pages(std::size_t bytes) { return (bytes + page - 1) / page * page; }

}  // namespace

void* take_large(std::size_t bytes) {
  if (bytes < least) return ::operator new (bytes, std::align_val_t{line});
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) throw std::bad_alloc{};
  // A page more, so that one can begin on a page's border; what lies before and behind is given back at once.
  const std::size_t size = in_pages(bytes);
  void* const mapped = ::mmap(nullptr, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc{};
  auto* const begin = static_cast<std::byte*>(mapped);
  const std::size_t before = (page - reinterpret_cast<std::uintptr_t>(mapped) % page) % page;
  if (before > 0) ::munmap(begin, before);
  if (before < page) ::munmap(begin + before + size, page - before);
  ::madvise(begin + before, size, MADV_HUGEPAGE);  // a wish: without it the pages are small
  return begin + before;
}

void give_large(void* at, std::size_t bytes) noexcept {
  if (bytes < least) ::operator delete (at, std::align_val_t{line});
  else ::munmap(at, in_pages(bytes));
}

void put_heap_on_large_pages(std::size_t bytes) noexcept {
#ifdef __GLIBC__
  rlimit room{};
  if (::getrlimit(RLIMIT_AS, &room) != 0 || room.rlim_cur != RLIM_INFINITY) return;
  constexpr int most_on_heap = 32 << 20;  // the largest that mallopt takes: what is larger is mapped by itself
  if (bytes > std::numeric_limits<int>::max() || ::mallopt(M_MMAP_THRESHOLD, most_on_heap) == 0) return;
  ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  ::mallopt(M_TOP_PAD, static_cast<int>(bytes));
  auto* const before = static_cast<std::byte*>(::sbrk(0));
  void* volatile const grown =
      std::malloc(::mallinfo2().fordblks + line);  // more than is free: the heap grows, and by `bytes` more
  std::free(grown);
  ::mallopt(M_TOP_PAD, static_cast<int>(8 * page));
  // Pages that it had begun, and what is left behind the last one, stay small.
  std::byte* const begin = before + (page - reinterpret_cast<std::uintptr_t>(before) % page) % page;
  const auto* const end = static_cast<const std::byte*>(::sbrk(0));
  if (begin < end) ::madvise(begin, static_cast<std::size_t>(end - begin) / page * page, MADV_HUGEPAGE);
#else
  static_cast<void>(bytes);
#endif
}

/// @pre alignment ≤ a cache line, which is all that a run's states ask for
void* run_memory::block_source::do_allocate(std::size_t bytes, std::size_t) { return take_large(bytes); }

void run_memory::block_source::do_deallocate(void* at, std::size_t bytes, std::size_t) { give_large(at, bytes); }

}  // namespace troupe
