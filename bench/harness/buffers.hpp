// SPDX-License-Identifier: Apache-2.0
#pragma once
// The buffers of one rank: several sets, so that a call need not find in cache what the call before it left there.
// Every contender measures with these, so page size, alignment and first touch are the same for all.

#include "bench/harness/block_counts.hpp"
#include "bench/harness/point.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <memory_resource>
#include <new>
#include <string>
#include <utility>

namespace bench {

/// Bytes of the last-level cache that cpu 0 sees; 32 MiB where the system does not tell.
inline std::size_t cache_bytes() {
  std::size_t largest = 0;
  for (int index = 0; index < 5; ++index) {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
    std::size_t kib = 0;
    if (file >> kib && kib * 1024 > largest) largest = kib * 1024;
  }
  return largest > 0 ? largest : std::size_t{32} << 20;
}

/// Pages that stay mapped and touched from point to point: only the first point of a size pays for page faults. Owned by one
/// rank; touched first by the thread that grows it.
class arena {
public:
  arena() = default;
  arena(const arena&) = delete;
  arena& operator=(const arena&) = delete;
  ~arena() { release(); }

  /// Instead of pages of its own. @pre nothing was asked for yet
  void lie_in(std::shared_ptr<std::pmr::memory_resource> memory) { memory_ = std::move(memory); }
  std::byte* at_least(std::size_t bytes) {
    if (bytes <= size_) return data_;
    release();
    void* fresh = memory_ != nullptr ? memory_->allocate(bytes, 4096)
                                     : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<std::byte*>(fresh);
    size_ = bytes;
    for (std::size_t i = 0; i < bytes; i += 4096) data_[i] = std::byte{1};
    return data_;
  }

private:
  void release() {
    if (data_ != nullptr && memory_ != nullptr) memory_->deallocate(data_, size_, 4096);
    else if (data_ != nullptr) munmap(data_, size_);
    data_ = nullptr;
    size_ = 0;
  }

  std::shared_ptr<std::pmr::memory_resource> memory_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

class rank_buffers {
public:
  /// @pre no shape yet
  void lie_in(std::shared_ptr<std::pmr::memory_resource> memory) { arena_.lie_in(std::move(memory)); }
  /// @pre sets > 0
  void shape_for(collective what, const shape& s, int rank, int ranks, std::size_t sets, uneven counts = uneven::same) {
    blocks_.restart(s.count, ranks, counts);
    what_ = what, shape_ = s, rank_ = rank, ranks_ = ranks, sets_ = sets;
    in_bytes_ = padded(s.input), out_bytes_ = padded(block_counts::most_received(s.output, counts));
    base_ = arena_.at_least(sets * (in_bytes_ + out_bytes_));
  }
  float* input(std::size_t set) const { return reinterpret_cast<float*>(base_ + set * (in_bytes_ + out_bytes_)); }
  /// Of a broadcast, which has one buffer: that.
  float* output(std::size_t set) const {
    return shape_.output == 0 ? input(set)
                              : reinterpret_cast<float*>(base_ + set * (in_bytes_ + out_bytes_) + in_bytes_);
  }

  /// Calls of all_reduce are of `count` elements from here on. @pre not more than the shape's
  void resize(std::size_t count) { shape_.count = shape_.input = shape_.output = count; }
  /// Of the v-forms; the caller of one advances them first.
  block_counts& blocks() { return blocks_; }

  /// New values in every set's input: the lines move into this core's cache, modified, as an application's would.
  void rewrite() {
    ++version_;
    for (std::size_t set = 0; set < sets_; ++set) write(input(set), shape_.input, set);
  }

  /// Elements of set 0's output that are not what rewrite() and one call must give; `root`: that call's. Small whole numbers: any
  /// order is exact.
  std::size_t wrong(int root = 0) const {
    std::size_t bad = 0;
    const float* out = output(0);
    each_expected(root, [&](float value) { bad += *out++ != value ? 1 : 0; });
    return bad;
  }

private:
  /// 256 bytes more than whole pages: input and output of a call do not share their cache sets.
  static std::size_t padded(std::size_t elements) {
    return elements == 0 ? 0 : (elements * sizeof(float) + 4095) / 4096 * 4096 + 256;
  }
  static float value(std::size_t i, int rank, std::size_t version) {
    return static_cast<float>(
        (static_cast<std::uint32_t>(i) + 3U * static_cast<std::uint32_t>(rank) + static_cast<std::uint32_t>(version)) &
        7U);
  }
  void write(float* data, std::size_t count, std::size_t set) const {
    for (std::size_t i = 0; i < count; ++i) data[i] = value(i, rank_, version_ + set);
  }
  /// What must be in the output, one element after the other. All ranks have rewritten equally often.
  template <class See>
  void each_expected(int root, See see) const {
    const std::size_t me = static_cast<std::size_t>(rank_), n = static_cast<std::size_t>(ranks_);
    const std::size_t elements = shape_.output == 0 ? shape_.input : shape_.output;
    const auto copy = [&](std::size_t from, std::size_t at, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) see(value(at + i, static_cast<int>(from), version_));
    };
    const auto reduced = [&](std::size_t at, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) {
        float total = 0;
        for (int rank = 0; rank < ranks_; ++rank) total += value(at + i, rank, version_);
        see(total);
      }
    };
    switch (what_) {
      case collective::all_reduce: return reduced(0, elements);
      case collective::reduce: return rank_ == root ? reduced(0, elements) : void();
      case collective::reduce_scatter: return reduced(me * shape_.count, elements);
      case collective::reduce_scatter_v: return reduced(blocks_.before(me), blocks_.of(me));
      case collective::broadcast: return copy(static_cast<std::size_t>(root), 0, elements);
      case collective::gather:
        if (rank_ != root) return;
        [[fallthrough]];
      case collective::all_gather:
        for (std::size_t from = 0; from < n; ++from) copy(from, 0, shape_.count);
        return;
      case collective::gather_v:
        if (rank_ != root) return;
        [[fallthrough]];
      case collective::all_gather_v:
        for (std::size_t from = 0; from < n; ++from) copy(from, 0, blocks_.of(from));
        return;
      case collective::scatter: return copy(static_cast<std::size_t>(root), me * shape_.count, elements);
      case collective::scatter_v: return copy(static_cast<std::size_t>(root), blocks_.before(me), blocks_.of(me));
      case collective::all_to_all:
        for (std::size_t from = 0; from < n; ++from) copy(from, me * shape_.count, shape_.count);
        return;
      case collective::all_to_all_v:
        for (std::size_t from = 0; from < n; ++from) copy(from, blocks_.before(from, me), blocks_.of(from, me));
        return;
      case collective::send_recv: return copy((me + n - 1) % n, 0, elements);
      case collective::ping_pong: return rank_ < 2 ? copy(1 - me, 0, elements) : void();
      case collective::split: return;  // no data: its members check the new communicator
    }
  }

  arena arena_;
  std::byte* base_ = nullptr;
  collective what_{};
  shape shape_;
  block_counts blocks_;
  int rank_ = 0, ranks_ = 1;
  std::size_t sets_ = 1, in_bytes_ = 0, out_bytes_ = 0, version_ = 0;
};

}  // namespace bench
