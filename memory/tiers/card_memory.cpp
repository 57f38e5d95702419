// SPDX-License-Identifier: Apache-2.0
#include "memory/tiers/card_memory.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory/error.hpp"
#include "memory/tiers/block_head.hpp"

namespace troupe {

namespace {

// Before every tier lies a page of the system, in whose last bytes the first block has its head: so whole pages fit into a tier, and the first
// payload is at one.
constexpr std::size_t front = 4096;
constexpr std::size_t head = sizeof(detail::block_head);
// Of all core groups. L2 can be all of it, and one heap manages not quite 256 GiB.
constexpr std::size_t most_hbm = std::size_t{1} << 37;
constexpr std::size_t most_l0 = std::size_t{1} << 32;  // thousands of times what a core group has

constexpr std::size_t window_of(std::size_t bytes) { return front + (bytes + front - 1) / front * front; }

[[noreturn]] void refuse(const std::string& what) { throw error{errc::invalid_argument, "card_memory: " + what}; }

card_options checked(card_options o) {
  if (o.core_groups < 1 || o.core_groups > card_options::most_core_groups)
    refuse(std::to_string(o.core_groups) + " core groups; a card has 1 to " +
           std::to_string(card_options::most_core_groups));
  const auto whole = [](const char* name, std::size_t bytes, std::size_t most) {
    if (bytes % tier_heap::page != 0 || bytes > most)
      refuse(std::string{name} + " is " + std::to_string(bytes) + "; it must be whole pages of " +
             std::to_string(tier_heap::page) + " bytes, at most " + std::to_string(most));
  };
  whole("l0_bytes", o.l0_bytes, most_l0);
  whole("hbm_bytes", o.hbm_bytes, most_hbm / static_cast<std::size_t>(o.core_groups));
  whole("l1_bytes", o.l1_bytes, o.hbm_bytes);
  return o;
}

std::size_t groups(const card_options& o) { return static_cast<std::size_t>(o.core_groups); }
std::size_t l1_at(const card_options& o, std::size_t group) {
  return groups(o) * window_of(o.l0_bytes) + group * window_of(o.hbm_bytes);
}
std::size_t l2_at(const card_options& o) { return l1_at(o, groups(o)); }
std::size_t segment_of(const card_options& o) { return l2_at(o) + window_of(groups(o) * o.hbm_bytes); }

[[noreturn]] void no_memory(std::size_t bytes) {
  throw error{errc::out_of_memory,
              "card_memory: the system gives no " + std::to_string(bytes) + " bytes: " + std::strerror(errno)};
}

/// Where the system has them on request. The heads and marks of blocks are all over a tier, and with pages of 4 KiB most of a slow call goes by with
/// finding the page. L0 is too small for it.
void ask_for_large_pages([[maybe_unused]] std::byte* at, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(MADV_HUGEPAGE)
  ::madvise(at, bytes, MADV_HUGEPAGE);
#endif
}

std::string named(const char* tier, std::size_t group) {
  return std::string{tier} + " of core group " + std::to_string(group);
}

}  // namespace

/// A shared one has no name: nothing stays when its processes are gone.
detail::card_segment::card_segment(std::size_t size, bool shared) : card_segment{size} {
  if (shared && (descriptor = ::memfd_create("troupe-card", MFD_CLOEXEC)) < 0) no_memory(bytes);
  if (shared && ::ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) no_memory(bytes);
  const int kind = shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kind | MAP_NORESERVE, descriptor, 0);
  if (mapped == MAP_FAILED) no_memory(bytes);
  at = static_cast<std::byte*>(mapped);
}

detail::card_segment::~card_segment() {
  if (at != nullptr) ::munmap(at, bytes);
  if (descriptor >= 0) ::close(descriptor);
}

std::byte* card_memory::window(std::size_t offset) const noexcept { return segment_.at + offset + front - head; }
std::size_t card_memory::l2_capacity(std::size_t l1) const noexcept {
  return groups(options_) * (options_.hbm_bytes - l1);
}

card_memory::card_memory(card_options options)
    : options_{checked(options)},
      segment_{segment_of(options_), options_.shared},
      l2_{window(l2_at(options_)), groups(options_) * options_.hbm_bytes, l2_capacity(options_.l1_bytes), "L2"},
      l1_bytes_{options_.l1_bytes} {
  const std::size_t first = l1_at(options_, 0);
  ask_for_large_pages(segment_.at + first, segment_.bytes - first);
  for (std::size_t g = 0; g < groups(options_); ++g) {
    l0_.emplace_back(window(g * window_of(options_.l0_bytes)), options_.l0_bytes, options_.l0_bytes, named("L0", g));
    l1_.emplace_back(window(l1_at(options_, g)), options_.hbm_bytes, options_.l1_bytes, named("L1", g));
  }
}

card_memory::~card_memory() = default;

tier_heap& card_memory::l0(int core_group) {
  if (core_group < 0 || core_group >= options_.core_groups)
    refuse("there is no core group " + std::to_string(core_group) + ", only 0 to " +
           std::to_string(options_.core_groups - 1));
  return l0_[static_cast<std::size_t>(core_group)];
}
tier_heap& card_memory::l1(int core_group) {
  l0(core_group);
  return l1_[static_cast<std::size_t>(core_group)];
}

tier_heap* card_memory::l1_with(const void* block) noexcept {
  for (tier_heap& heap : l1_)
    if (heap.contains(block)) return &heap;
  return nullptr;
}

void card_memory::free_local(void* block) {
  if (block == nullptr) return;
  if (tier_heap* const heap = l1_with(block)) return heap->deallocate(block);
  refuse(l2_.contains(block) ? "free_local of a block of L2; free_cross is for those"
                             : "free_local of what is no address of any L1");
}

void card_memory::free_cross(void* block) {
  if (block != nullptr && l1_with(block) != nullptr) refuse("free_cross of a block of an L1; free_local is for those");
  l2_.deallocate(block);
}

// -- the switch -----------------------------------------------------------------------------------

std::size_t card_memory::l1_bytes() const {
  const std::lock_guard lock{split_};
  return l1_bytes_;
}

/// Memory that no tier has any more goes back to the system, which is asked for nothing it could refuse: it stays ours otherwise.
void card_memory::release(std::byte* from, std::size_t bytes) noexcept {
  // Whole pages of the system; the bytes before the first one hold the end of the tier.
  std::byte* const at = from + head;
  if (bytes == 0) return;
  if (segment_.descriptor < 0) ::madvise(at, bytes, MADV_DONTNEED);
  else
    ::fallocate(segment_.descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at - segment_.at,
                static_cast<off_t>(bytes));
}

void card_memory::move_split(std::size_t l1_bytes) {
  card_options wanted = options_;
  wanted.l1_bytes = l1_bytes;
  checked(wanted);
  const std::lock_guard lock{split_};
  const std::size_t now = l1_bytes_;
  const auto in_the_way = [&](const std::string& tier) {
    throw error{errc::out_of_memory, "card_memory: the split cannot move from " + std::to_string(now) + " to " +
                                         std::to_string(l1_bytes) +
                                         " bytes of L1: something is allocated at the end of " + tier};
  };
  if (l1_bytes > now && !l2_.resize(l2_capacity(l1_bytes))) in_the_way("L2");
  for (std::size_t g = 0; g < l1_.size(); ++g)
    if (!l1_[g].resize(l1_bytes)) {
      while (g-- > 0) l1_[g].resize(now);
      in_the_way("an L1");
    }
  if (l1_bytes > now)
    release(window(l2_at(options_)) + l2_capacity(l1_bytes), l2_capacity(now) - l2_capacity(l1_bytes));
  else l2_.resize(l2_capacity(l1_bytes));
  for (std::size_t g = 0; l1_bytes < now && g < l1_.size(); ++g)
    release(window(l1_at(options_, g)) + l1_bytes, now - l1_bytes);
  l1_bytes_ = l1_bytes;
}

std::size_t card_memory::offset_of(const void* block) const {
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(block) - reinterpret_cast<std::uintptr_t>(segment_.at);
  if (offset >= segment_.bytes) refuse("offset_of what is no address of this card");
  return offset;
}

// -- host and card --------------------------------------------------------------------------------

namespace {

/// A block for the time of a transfer.
class lent {
public:
  lent(tier_heap& heap, void* block) : heap_{heap}, block_{block} {}
  /// Where give_back() was not reached something else is being told already.
  ~lent() {
    try {
      give_back();
    } catch (const error&) {}
  }
  lent(const lent&) = delete;
  lent& operator=(const lent&) = delete;
  /// At the end. Throws as tier_heap::deallocate(): somebody may have overwritten what stands around the block meanwhile.
  void give_back() { heap_.deallocate(std::exchange(block_, nullptr)); }
  std::byte* data() const noexcept { return static_cast<std::byte*>(block_); }

private:
  tier_heap& heap_;
  void* block_;
};

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

void card_memory::check_locals(std::span<void* const> local, std::size_t bytes) {
  if (local.size() != l1_.size())
    refuse(std::to_string(local.size()) + " blocks for " + std::to_string(l1_.size()) + " core groups");
  for (std::size_t g = 0; g < local.size(); ++g)
    if (const std::size_t has = l1_[g].size_of(local[g]); has < bytes)
      refuse("the block of core group " + std::to_string(g) + " has " + std::to_string(has) + " bytes, not " +
             std::to_string(bytes));
}

/// As its DMA engine does: a tile from L2 to L0, from L0 to L1, or the other way.
void card_memory::through_l0(int core_group, const std::byte* from, std::byte* to, std::size_t bytes) {
  if (bytes == 0) return;
  // The largest tile that there is room for beside what works there: half as large, until a line does not fit either.
  tier_heap& tiles = l0(core_group);
  std::size_t tile = std::min<std::size_t>(bytes, 64 * 1024);
  void* block = tiles.try_allocate(tile);
  while (block == nullptr && tile > 64) block = tiles.try_allocate(tile /= 2);
  lent room{tiles, block != nullptr ? block : tiles.allocate(tile)};  // which says what there is
  for (std::size_t at = 0; at < bytes; at += tile) {
    const std::size_t now = std::min(tile, bytes - at);
    copy_bytes(room.data(), from + at, now);
    copy_bytes(to + at, room.data(), now);
  }
  room.give_back();
}

host_transfer card_memory::upload(std::span<const std::byte> host, std::span<void* const> local, host_way way) {
  check_locals(local, host.size());
  const std::size_t all = host.size() * local.size();
  if (way == host_way::each_a_copy) {
    for (void* const to : local) copy_bytes(static_cast<std::byte*>(to), host.data(), host.size());
    return {all, 0};
  }
  lent published{l2_, l2_.allocate(host.size())};
  copy_bytes(published.data(), host.data(), host.size());
  for (int g = 0; g < core_groups(); ++g)
    through_l0(g, published.data(), static_cast<std::byte*>(local[static_cast<std::size_t>(g)]), host.size());
  published.give_back();
  return {host.size(), all};
}

host_transfer card_memory::download(std::span<void* const> local, std::span<std::byte> host, host_way way) {
  if (host.size() % l1_.size() != 0)
    refuse("download of " + std::to_string(host.size()) + " bytes, which " + std::to_string(l1_.size()) +
           " core groups do not have equal parts of");
  const std::size_t part = host.size() / l1_.size();
  check_locals(local, part);
  if (way == host_way::each_a_copy) {
    for (std::size_t g = 0; g < local.size(); ++g)
      copy_bytes(host.data() + g * part, static_cast<const std::byte*>(local[g]), part);
    return {host.size(), 0};
  }
  lent gathered{l2_, l2_.allocate(host.size())};
  for (int g = 0; g < core_groups(); ++g) {
    const auto at = static_cast<std::size_t>(g);
    through_l0(g, static_cast<const std::byte*>(local[at]), gathered.data() + at * part, part);
  }
  copy_bytes(host.data(), gathered.data(), host.size());
  gathered.give_back();
  return {host.size(), host.size()};
}

}  // namespace troupe
