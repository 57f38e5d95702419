// SPDX-License-Identifier: Apache-2.0
#include "bench/harness/counted_heap.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

#include <malloc.h>

namespace {

std::atomic<std::size_t> in_use{0}, calls{0};

void* counted(void* p) noexcept {
  if (p == nullptr) return nullptr;
  in_use.fetch_add(malloc_usable_size(p), std::memory_order_relaxed);
  calls.fetch_add(1, std::memory_order_relaxed);
  return p;
}

void give_back(void* p) noexcept {
  if (p == nullptr) return;
  in_use.fetch_sub(malloc_usable_size(p), std::memory_order_relaxed);
  std::free(p);
}

void* or_throw(void* p) {
  if (p == nullptr) throw std::bad_alloc{};
  return p;
}

void* aligned(std::size_t bytes, std::align_val_t alignment) noexcept {
  const auto unit = static_cast<std::size_t>(alignment);
  return counted(std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit));
}

}  // namespace

std::size_t bench::heap_use() { return in_use.load(); }
std::size_t bench::allocations() { return calls.load(); }

// The shared library's too: the program's definitions come first. All forms: those of a sanitizer know nothing of these.
void* operator new(std::size_t bytes) { return or_throw(counted(std::malloc(bytes))); }
void* operator new[](std::size_t bytes) { return or_throw(counted(std::malloc(bytes))); }
void* operator new(std::size_t bytes, std::align_val_t alignment) { return or_throw(aligned(bytes, alignment)); }
void* operator new[](std::size_t bytes, std::align_val_t alignment) { return or_throw(aligned(bytes, alignment)); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return counted(std::malloc(bytes)); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return counted(std::malloc(bytes)); }
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return aligned(bytes, alignment);
}
void* operator new[](std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return aligned(bytes, alignment);
}
void operator delete(void* p) noexcept { give_back(p); }
void operator delete[](void* p) noexcept { give_back(p); }
void operator delete(void* p, std::size_t) noexcept { give_back(p); }
void operator delete[](void* p, std::size_t) noexcept { give_back(p); }
void operator delete(void* p, std::align_val_t) noexcept { give_back(p); }
void operator delete[](void* p, std::align_val_t) noexcept { give_back(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { give_back(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { give_back(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { give_back(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { give_back(p); }
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept { give_back(p); }
void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept { give_back(p); }
