// SPDX-License-Identifier: Apache-2.0
#include "memory/tiers/tier_heap.hpp"

#include <bit>
#include <cstring>
#include <sstream>
#include <utility>

#include "memory/error.hpp"
#include "memory/tiers/tier_state.hpp"

namespace troupe {

using namespace detail;

namespace {

std::string at(const void* address) {
  std::ostringstream text;
  text << address;
  return text.str();
}

[[noreturn]] void throw_spoiled(const tier_state& heap) {
  throw error{errc::aborted, heap.name + ": the head of a free block at " + at(heap.spoiled_at()) +
                                 " was overwritten, by who wrote beyond his block or into one that he had given back; "
                                 "the heap gives out and takes back no more"};
}

[[noreturn]] void refuse_allocation(const tier_state& heap, std::size_t bytes, std::size_t align) {
  if (!std::has_single_bit(align))
    throw error{errc::invalid_argument,
                heap.name + ": an alignment of " + std::to_string(align) + " is no power of two"};
  if (bytes > tier_state::most_bytes)
    throw error{errc::size_overflow, heap.name + ": " + std::to_string(bytes) +
                                         " bytes fit into no memory; the size was probably computed with an overflow"};
  if (heap.spoiled_at() != nullptr) throw_spoiled(heap);
  const tier_heap::usage u = heap.use();
  throw error{errc::out_of_memory, heap.name + ": there is no room for " + std::to_string(bytes) + " bytes; of " +
                                       std::to_string(u.capacity) + " bytes " + std::to_string(u.in_use) +
                                       " are in use, and the largest block that is left has " +
                                       std::to_string(u.largest)};
}

[[noreturn]] void refuse_block(const tier_state& heap, const void* block) {
  const auto* const head = static_cast<const block_head*>(block) - 1;
  const std::string which = heap.name + ": " + at(block);
  if (!heap.contains(head)) throw error{errc::invalid_argument, which + " is no address of this memory"};
  if (reinterpret_cast<std::uintptr_t>(block) % line_bytes != 0)
    throw error{errc::invalid_argument, which + " is not the beginning of a block, which is at a cache line"};
  const std::uint64_t word = head->word.load(std::memory_order_relaxed);
  for (const block_state gone : {block_state::cached, block_state::free})
    if (heap.words.is(head, head->lines, word, gone))
      throw error{errc::invalid_argument, which + " was given back before"};
  throw error{errc::invalid_argument,
              which +
                  " is not the beginning of a block that is in use: it was given back before, or never given out, or "
                  "somebody wrote over what stands before it"};
}

/// The head of a block that is in use and whole; throws what it is instead.
block_head* head_of(const tier_state& heap, const void* block) {
  auto* const head = static_cast<block_head*>(const_cast<void*>(block)) - 1;
  if (!heap.contains(head) || reinterpret_cast<std::uintptr_t>(block) % line_bytes != 0) [[unlikely]]
    refuse_block(heap, block);
  const std::uint64_t word = head->word.load(std::memory_order_relaxed);
  if (!heap.words.is(head, head->lines, word, block_state::live)) [[unlikely]]
    refuse_block(heap, block);
  return head;
}

std::size_t bytes_of(const block_head* head) noexcept {
  const std::uint64_t word = head->word.load(std::memory_order_relaxed);
  return head->lines * line_bytes - extra_bytes - head_words::slack(word);
}

/// @pre the head is whole. Throws if what stands behind the block's end is not.
void give_whole(tier_state& heap, block_head* head, std::size_t bytes) {
  const void* const block = head + 1;
  std::uint64_t mark;
  std::memcpy(&mark, static_cast<const std::byte*>(block) + bytes, mark_bytes);
  if (mark != heap.words.mark(head)) [[unlikely]]
    throw error{errc::invalid_argument, heap.name + ": somebody wrote behind the end of the " + std::to_string(bytes) +
                                            " bytes at " + at(block) + "; the block stays out of use"};
  if (!heap.give(head)) [[unlikely]]
    throw_spoiled(heap);
}

}  // namespace

tier_heap::tier_heap(void* memory, std::size_t bytes, std::size_t capacity, std::string name) {
  if (bytes > tier_state::most_bytes)
    throw error{errc::size_overflow, name + ": " + std::to_string(bytes) + " bytes are more than a heap can manage, " +
                                         std::to_string(tier_state::most_bytes)};
  state_ = std::make_shared<tier_state>(memory, bytes, capacity, std::move(name));
}

tier_heap::~tier_heap() { state_->end(); }

void* tier_heap::try_allocate(std::size_t bytes, std::size_t align) noexcept {
  return std::has_single_bit(align) ? state_->take(bytes, align) : nullptr;
}

void* tier_heap::allocate(std::size_t bytes, std::size_t align) {
  void* const block = try_allocate(bytes, align);
  if (block == nullptr) [[unlikely]]
    refuse_allocation(*state_, bytes, align);
  return block;
}

void tier_heap::deallocate(void* block) {
  if (block == nullptr) return;
  block_head* const head = head_of(*state_, block);
  give_whole(*state_, head, bytes_of(head));
}

void tier_heap::deallocate(void* block, std::size_t bytes) {
  if (block == nullptr) return;
  // The mark, and the payload where a kept block's link goes. The processor does nothing where there is no such address.
  __builtin_prefetch(static_cast<const std::byte*>(block) + bytes);
  __builtin_prefetch(block, 1);
  block_head* const head = head_of(*state_, block);
  if (bytes_of(head) != bytes) [[unlikely]]
    throw error{errc::invalid_argument,
                state_->name + ": for the block at " + at(block) + " " + std::to_string(bytes_of(head)) +
                    " bytes were asked for, and it is given back as one of " + std::to_string(bytes)};
  give_whole(*state_, head, bytes);
}

std::size_t tier_heap::size_of(const void* block) const { return bytes_of(head_of(*state_, block)); }
bool tier_heap::contains(const void* address) const noexcept { return state_->contains(address); }
bool tier_heap::resize(std::size_t capacity) { return state_->resize(capacity); }
tier_heap::usage tier_heap::use() const { return state_->use(); }
void tier_heap::collect() { state_->collect(); }
const char* tier_heap::fault() const { return state_->fault(); }

}  // namespace troupe
