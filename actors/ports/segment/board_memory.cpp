// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/segment/board_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "actors/ports/slots/slot_board.hpp"
#include "memory/arena.hpp"

namespace troupe {

namespace {
constexpr std::align_val_t aligned{board_memory::alignment};
constexpr std::size_t on_heap = 8 * 1024;                     ///< of a shelf
constexpr std::size_t mapped_at_once = std::size_t{1} << 20;  ///< at least; of the address space, until it is used

constexpr std::size_t rounded_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }
}  // namespace

heap_memory::~heap_memory() {
  for (const piece& p : pieces_) {
    if (p.mapped > 0) ::munmap(p.at, p.mapped);
    else ::operator delete(p.at, aligned);
  }
}

bool heap_memory::has_membarrier() const noexcept { return membarrier_ && slots_have_membarrier(); }

void* heap_memory::root(std::size_t bytes) {
  if (roots_ != nullptr) {
    bytes = rounded_up(bytes, alignment);  // what lies behind it has lines of its own
    return std::memset(roots_->allocate(bytes, alignment), 0, bytes);
  }
  if (void* const at = take(bytes)) return at;
  throw error(errc::out_of_memory, "a communicator's boards need " + std::to_string(bytes) +
                                       " bytes, which the system refuses; use fewer ranks or the protocol 'simple'");
}

/// @pre locked
bool heap_memory::add_piece(shelf& to, std::size_t least) noexcept {
  try {
    pieces_.reserve(pieces_.size() + 1);
  } catch (const std::bad_alloc&) {
    return false;
  }
  if (to.rest == nullptr && least <= on_heap) {
    void* const at = ::operator new(on_heap, aligned, std::nothrow);
    if (at == nullptr) return false;
    pieces_.push_back({at, 0});
    to = {static_cast<std::byte*>(std::memset(at, 0, on_heap)), on_heap};
    return true;
  }
  if (least > std::numeric_limits<std::size_t>::max() / 2) return false;
  const std::size_t bytes = std::max(mapped_at_once, rounded_up(least, arena::page));
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return false;
  pieces_.push_back({at, bytes});
  to = {static_cast<std::byte*>(at), bytes};
  return true;
}

void* heap_memory::take_from(shelf& which, std::size_t bytes) noexcept {
  bytes = rounded_up(bytes, alignment);
  const std::lock_guard lock(mutex_);
  if (bytes > which.left && !add_piece(which, bytes)) return nullptr;
  which.left -= bytes;
  return std::exchange(which.rest, which.rest + bytes);
}

}  // namespace troupe
