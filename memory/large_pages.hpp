// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory of tables that grow to megabytes or gigabytes and are touched once or a few times: a page of 4 KiB then costs more to be given than all
// that is done with what lies on it. Tables from a mebibyte on lie on pages of 2 MiB, where the system has them on request (elsewhere on
// ordinary ones, which is slower and nothing else); what is small comes from the heap.

#include <cstddef>
#include <memory_resource>
#include <vector>

namespace troupe {

/// Throws std::bad_alloc. Alignment: a cache line.
void* take_large(std::size_t bytes);
/// @pre `bytes` as they were asked for
void give_large(void* at, std::size_t bytes) noexcept;

template <class T>
struct large_allocator {
  using value_type = T;
  large_allocator() = default;
  template <class Other>
  large_allocator(const large_allocator<Other>&) noexcept {}

  T* allocate(std::size_t count) {
    static_assert(alignof(T) <= 64);
    return static_cast<T*>(take_large(count * sizeof(T)));
  }
  void deallocate(T* at, std::size_t count) noexcept { give_large(at, count * sizeof(T)); }
  template <class Other>
  bool operator==(const large_allocator<Other>&) const noexcept {
    return true;
  }
};

template <class T>
using large_vector = std::vector<T, large_allocator<T>>;

/// Puts the next `bytes` of the heap on pages of 2 MiB, where the C library is glibc; elsewhere, and where memory is limited (`ulimit -v`), nothing
/// changes. What is reserved is not used before it is needed. For a program that fills its heap and ends: what is freed stays the process's. The
/// library itself never calls this; an embedding program's heap is its own affair.
void put_heap_on_large_pages(std::size_t bytes) noexcept;

/// The same for what is made piece by piece and goes with the run: nothing is given back before the end.
class run_memory final : public std::pmr::memory_resource {
public:
  /// @param expected bytes, about: what comes at once lies on large pages
  explicit run_memory(std::size_t expected) : pieces_(expected, &blocks_) {}

private:
  class block_source final : public std::pmr::memory_resource {
    void* do_allocate(std::size_t bytes, std::size_t alignment) override;
    void do_deallocate(void* at, std::size_t bytes, std::size_t alignment) override;
    bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }
  };
  void* do_allocate(std::size_t bytes, std::size_t alignment) override { return pieces_.allocate(bytes, alignment); }
  void do_deallocate(void*, std::size_t, std::size_t) override {}
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }

  block_source blocks_;
  std::pmr::monotonic_buffer_resource pieces_;
};

}  // namespace troupe
