// SPDX-License-Identifier: Apache-2.0
#pragma once
// The least that two threads can do to add each other's vectors: every cache line carries 56 bytes of data and its own flag, so that one
// transfer of the line brings both. No operation, no matching, no sleeping.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace bench {

/// Of two threads, each with one outbox. Two regions by the parity of the epoch: a thread that has the other's line of epoch e
/// knows that the other has read all of epoch e−1, so region (e+1) % 2 is free.
class exchange {
public:
  static constexpr std::size_t floats_per_line = 14;
  static constexpr std::size_t most_bytes = 4096;

  /// out[i] = mine[i] + the other's mine[i]. @pre count * 4 <= most_bytes; both threads call equally often with the same count.
  void all_reduce(int me, const float* mine, float* out, std::size_t count) {
    side& own = sides_[me];
    side& other = sides_[1 - me];
    const std::uint64_t epoch = ++own.epoch;
    line* to = own.outbox[epoch % 2];
    line* from = other.outbox[epoch % 2];
    for (std::size_t at = 0, i = 0; at < count; at += floats_per_line, ++i) {
      std::memcpy(to[i].data, mine + at, sizeof(float) * in_line(count - at));
      to[i].flag.store(epoch, std::memory_order_release);
    }
    for (std::size_t at = 0, i = 0; at < count; at += floats_per_line, ++i) {
      while (from[i].flag.load(std::memory_order_acquire) != epoch) {}
      for (std::size_t j = 0; j < in_line(count - at); ++j) out[at + j] = mine[at + j] + from[i].data[j];
    }
  }

private:
  static std::size_t in_line(std::size_t left) { return left < floats_per_line ? left : floats_per_line; }

  static constexpr std::size_t lines = most_bytes / sizeof(float) / floats_per_line + 1;
  struct alignas(64) line {
    float data[floats_per_line];
    std::atomic<std::uint64_t> flag{0};
  };
  struct side {
    line outbox[2][lines];
    alignas(64) std::uint64_t epoch = 0;
  };
  side sides_[2];
};

}  // namespace bench
