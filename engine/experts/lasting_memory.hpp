// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory that peers read on their own while its owner may fail, throw and end what it is for. It lies where the other processes of the host can map
// it, and is never given back to the system before the engine ends, only used again: so a peer that comes late reads something, or something else, but
// never what is not there (expert_inside.hpp).

#include <cstddef>
#include <map>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe {

/// Any thread.
class lasting_memory {
public:
  explicit lasting_memory(std::shared_ptr<std::pmr::memory_resource> from) : from_(std::move(from)) {}
  ~lasting_memory();
  lasting_memory(const lasting_memory&) = delete;
  lasting_memory& operator=(const lasting_memory&) = delete;

  enum class use : bool { data, header };  ///< what was one is not used again for the other

  /// Its first contents are not specified. Aligned to two cache lines. Throws std::bad_alloc.
  /// @param bytes a power of two
  std::byte* take(std::size_t bytes, use for_what);
  void give_back(std::byte* what, std::size_t bytes, use for_what) noexcept;

private:
  static constexpr std::size_t alignment = 128;
  struct piece {
    std::byte* at;
    std::size_t bytes;
  };
  std::shared_ptr<std::pmr::memory_resource> from_;
  std::mutex mutex_;
  std::vector<piece> all_;
  std::multimap<std::pair<use, std::size_t>, std::byte*> free_;  ///< by size
};

/// One piece of it, that grows.
class lasting_buffer {
public:
  explicit lasting_buffer(std::shared_ptr<lasting_memory> of, lasting_memory::use for_what = lasting_memory::use::data)
      : of_(std::move(of)), use_(for_what) {}
  lasting_buffer(const lasting_buffer&) = delete;
  lasting_buffer& operator=(const lasting_buffer&) = delete;
  ~lasting_buffer() {
    if (at_ != nullptr) of_->give_back(at_, bytes_, use_);
  }

  /// At least so many bytes; what was in it is lost if it has to grow. @pre then nobody reads it any more
  std::byte* grow(std::size_t bytes);
  std::byte* get() const noexcept { return at_; }
  void swap(lasting_buffer& other) noexcept {
    std::swap(at_, other.at_);
    std::swap(bytes_, other.bytes_);
  }
  bool holds(const void* what) const noexcept;
  template <class T>
  T* as() const noexcept {
    return reinterpret_cast<T*>(at_);
  }

private:
  std::shared_ptr<lasting_memory> of_;
  lasting_memory::use use_;
  std::byte* at_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace troupe
