// SPDX-License-Identifier: Apache-2.0
#pragma once
// Data where other processes of the host can map it. Collectives and sends work on it as between threads, instead of through copies by the system.
//
//   troupe::engine engine;
//   troupe::communicator world = engine.join();
//   troupe::vector<float> gradient(1'000'000, engine);     // or engine.allocate(bytes), or any std::pmr container with engine.memory()
//   world.all_reduce(gradient, troupe::average);
//
// Nothing else changes: any memory may be given to any call, and ranks may differ in what they give. It pays from some 100 KiB on. What is allocated
// before the engine has joined its job, or by an engine that joins none, is memory like any other. A child that a process forks shares it.

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <memory_resource>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "engine/api/engine.hpp"

namespace troupe {

/// Of standard containers: troupe::vector<float> v(n, engine). Any thread. Its memory stays valid after the engine has ended.
template <class T>
class allocator {
public:
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  // Implicit, as containers are told.
  allocator(const engine& of) : memory_(of.memory()) {}
  template <class U>
  allocator(const allocator<U>& other) noexcept : memory_(other.memory()) {}

  /// Of whole cache lines. Throws std::bad_alloc.
  T* allocate(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_array_new_length{};
    return static_cast<T*>(memory_->allocate(count * sizeof(T), alignment));
  }
  void deallocate(T* what, std::size_t count) noexcept { memory_->deallocate(what, count * sizeof(T), alignment); }

  const std::shared_ptr<std::pmr::memory_resource>& memory() const noexcept { return memory_; }
  template <class U>
  bool operator==(const allocator<U>& other) const noexcept {
    return memory_ == other.memory();
  }

private:
  static constexpr std::size_t alignment = std::max<std::size_t>(alignof(T), 64);
  std::shared_ptr<std::pmr::memory_resource> memory_;
};

template <class T>
using vector = std::vector<T, allocator<T>>;

/// Bytes, aligned to a cache line; what they are at first is not said. Move-only.
class shared_buffer {
public:
  shared_buffer() = default;
  /// Throws std::bad_alloc.
  shared_buffer(std::shared_ptr<std::pmr::memory_resource> memory, std::size_t bytes)
      : memory_(std::move(memory)),
        bytes_(bytes),
        data_(static_cast<std::byte*>(memory_->allocate(bytes, alignment))) {}
  shared_buffer(shared_buffer&& other) noexcept { swap(other); }
  shared_buffer& operator=(shared_buffer&& other) noexcept {
    shared_buffer{std::move(other)}.swap(*this);
    return *this;
  }
  ~shared_buffer() {
    if (data_ != nullptr) memory_->deallocate(data_, bytes_, alignment);
  }

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return bytes_; }
  /// As many whole elements as it holds.
  template <class T>
  std::span<T> as() const noexcept {
    static_assert(alignof(T) <= alignment && std::is_trivially_copyable_v<T>);
    return {reinterpret_cast<T*>(data_), bytes_ / sizeof(T)};
  }

private:
  static constexpr std::size_t alignment = 64;
  void swap(shared_buffer& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    std::swap(data_, other.data_);
  }

  std::shared_ptr<std::pmr::memory_resource> memory_;
  std::size_t bytes_ = 0;
  std::byte* data_ = nullptr;
};

inline shared_buffer engine::allocate(std::size_t bytes) const { return {memory(), bytes}; }

}  // namespace troupe
