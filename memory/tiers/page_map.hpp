// SPDX-License-Identifier: Apache-2.0
#pragma once
// The coarse level of a tier: which pages of 8 KiB are free, and which blocks of 1 MiB are free as a whole.
//
// Two bitmaps, a bit for each page and one for each block, 1 = free, aligned to cache lines and searched with vectors. They lie beside the
// tier, not in it: 16 bytes a MiB. A search for 255 pages or more looks at the blocks, since such a run contains a whole one; smaller ones look at the pages,
// from where the last search for as many had to begin. They pass by words of 64 pages without so long a run: of each word three bytes say how long its runs are, 6 bytes a MiB.
//
// Not synchronised: for the holder of the tier's lock.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace troupe::detail {

class page_map {
public:
  static constexpr std::uint32_t pages_of_block = 128;

  struct run {
    std::uint32_t first = 0;
    std::uint32_t count = 0;  ///< 0: there is none
  };

  /// Room for so many pages; none is free yet.
  explicit page_map(std::uint32_t most_pages);

  void give(std::uint32_t first, std::uint32_t count);
  /// @pre all of them are free
  void take(std::uint32_t first, std::uint32_t count);

  bool is_free(std::uint32_t page) const noexcept { return (pages_[page / 64] >> page % 64 & 1) != 0; }
  bool all_free(std::uint32_t first, std::uint32_t count) const;
  std::uint32_t free_pages() const noexcept { return free_; }

  /// The first run of at least `least` > 0 free pages that ends behind `from`, from its very beginning (the page before it is not free).
  /// Its length is counted as far as `enough`, a little more where that is cheaper.
  run find(std::uint32_t from, std::uint32_t least, std::uint32_t enough) const;
  /// The same from where such a search must begin, since no earlier run is that long.
  run find_from_hint(std::uint32_t least, std::uint32_t enough);

private:
  struct aligned_delete {
    void operator()(std::uint64_t* words) const noexcept;
  };
  using words = std::unique_ptr<std::uint64_t[], aligned_delete>;
  static words make_words(std::size_t count);

  static std::size_t hint_of(std::uint32_t least) noexcept;
  std::uint32_t next_taken(std::uint32_t page, std::uint32_t enough) const;
  std::uint32_t begin_of(std::uint32_t page, std::uint32_t enough) const noexcept;
  run find_blocks(std::uint32_t from, std::uint32_t least, std::uint32_t enough) const;
  void note(std::uint32_t first, std::uint32_t count);
  std::size_t next_with_run(std::size_t word, std::uint32_t least) const;

  const std::uint32_t most_;
  const std::size_t page_words_;  // whole cache lines of bits; those behind the last page stay 0
  const std::size_t block_words_;
  words pages_;
  words blocks_;
  std::vector<std::uint8_t> longest_, heads_, tails_before_;  // runs_of_words
  std::uint32_t free_ = 0;
  std::array<std::uint32_t, 33> hints_{};
};

}  // namespace troupe::detail
