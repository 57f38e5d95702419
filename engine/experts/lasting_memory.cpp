// SPDX-License-Identifier: Apache-2.0
#include "engine/experts/lasting_memory.hpp"

#include <algorithm>
#include <bit>
#include <functional>

namespace troupe {

namespace {
/// The system maps such stretches one by one.
constexpr std::size_t least_bytes = 64 * 1024;
}  // namespace

lasting_memory::~lasting_memory() {
  for (const piece& each : all_) from_->deallocate(each.at, each.bytes, alignment);
}

std::byte* lasting_memory::take(std::size_t bytes, use for_what) {
  const std::lock_guard lock(mutex_);
  if (const auto found = free_.find({for_what, bytes}); found != free_.end()) {
    std::byte* const at = found->second;
    free_.erase(found);
    return at;
  }
  all_.push_back({nullptr, bytes});
  try {
    all_.back().at = static_cast<std::byte*>(from_->allocate(bytes, alignment));
  } catch (...) {
    all_.pop_back();
    throw;
  }
  return all_.back().at;
}

void lasting_memory::give_back(std::byte* what, std::size_t bytes, use for_what) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    free_.emplace(std::pair{for_what, bytes}, what);
  } catch (const std::bad_alloc&) {}  // nobody uses it again before the engine ends
}

std::byte* lasting_buffer::grow(std::size_t bytes) {
  if (bytes <= bytes_) return at_;
  const std::size_t wanted = std::max(least_bytes, std::bit_ceil(bytes));
  std::byte* const made = of_->take(wanted, use_);
  if (at_ != nullptr) of_->give_back(at_, bytes_, use_);
  at_ = made;
  bytes_ = wanted;
  return at_;
}

bool lasting_buffer::holds(const void* what) const noexcept {
  const auto* const at = static_cast<const std::byte*>(what);
  return at_ != nullptr && !std::less<>{}(at, at_) && std::less<>{}(at, at_ + bytes_);
}

}  // namespace troupe
