// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/segment/board_memory.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "actors/ports/slots/slot_board.hpp"

namespace troupe {

namespace {
constexpr std::align_val_t aligned{board_memory::alignment};
}  // namespace

heap_memory::~heap_memory() {
  for (void* const at : taken_) ::operator delete(at, aligned);
}

bool heap_memory::has_membarrier() const noexcept { return membarrier_ && slots_have_membarrier(); }

void* heap_memory::root(std::size_t bytes) {
  if (roots_ != nullptr) {
    bytes = (bytes + alignment - 1) / alignment * alignment;  // what lies behind it has lines of its own
    return std::memset(roots_->allocate(bytes, alignment), 0, bytes);
  }
  if (void* const at = take(bytes)) return at;
  throw error(errc::out_of_memory, "a communicator's boards need " + std::to_string(bytes) +
                                       " bytes, which the system refuses; use fewer ranks or the protocol 'simple'");
}

void* heap_memory::take(std::size_t bytes) noexcept {
  void* const at = ::operator new(bytes, aligned, std::nothrow);
  if (at == nullptr) return nullptr;
  std::memset(at, 0, bytes);
  try {
    const std::lock_guard lock(mutex_);
    taken_.push_back(at);
  } catch (const std::bad_alloc&) {
    ::operator delete(at, aligned);
    return nullptr;
  }
  return at;
}

void heap_memory::give_back(void* what) noexcept {
  {
    const std::lock_guard lock(mutex_);
    // It is one of the last.
    const auto at = std::find(taken_.rbegin(), taken_.rend(), what);
    *at = taken_.back();
    taken_.pop_back();
  }
  ::operator delete(what, aligned);
}

}  // namespace troupe
