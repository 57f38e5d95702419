// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/segment/caller_memory.hpp"

#include <new>
#include <utility>

#include "actors/ports/segment/host_segment.hpp"
#include "actors/ports/segment/segment_table.hpp"

namespace troupe::actors {

void caller_memory::lie_in(std::shared_ptr<host_segment> shared) {
  const std::lock_guard lock(mutex_);
  shared_ = std::move(shared);
}

void* caller_memory::do_allocate(std::size_t bytes, std::size_t alignment) {
  const std::lock_guard lock(mutex_);
  if (shared_ != nullptr && alignment <= segment::page) {
    lent_.insert(nullptr);  // if there is no memory for that, nothing is lent yet
    auto place = lent_.extract(nullptr);
    if (std::byte* const lent = shared_->lend(bytes)) {
      place.value() = lent;
      return *lent_.insert(std::move(place)).position;
    }
  }
  return ::operator new (bytes, std::align_val_t{alignment});
}

void caller_memory::do_deallocate(void* what, std::size_t, std::size_t alignment) {
  const std::lock_guard lock(mutex_);
  if (lent_.erase(what) != 0) shared_->take_back(static_cast<std::byte*>(what));
  else ::operator delete (what, std::align_val_t{alignment});
}

}  // namespace troupe::actors
