// SPDX-License-Identifier: Apache-2.0
#include "memory/tiers/page_map.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <new>

#include "memory/tiers/bit_search.hpp"

namespace troupe::detail {

namespace {

constexpr std::size_t line = 64;
constexpr std::size_t words_of_line = line / sizeof(std::uint64_t);
constexpr std::uint64_t all = ~std::uint64_t{0};

std::size_t whole_lines(std::size_t bits) {
  return std::max<std::size_t>(1, (bits + 64 * words_of_line - 1) / (64 * words_of_line)) * words_of_line;
}

/// Bits [low, low + count) of a word. @pre 0 < count, low + count <= 64
constexpr std::uint64_t mask(std::uint32_t low, std::uint32_t count) {
  return (count == 64 ? all : (std::uint64_t{1} << count) - 1) << low;
}

/// Where `least` ones in a row begin.
constexpr std::uint64_t runs_in(std::uint64_t ones, std::uint32_t least) {
  if (least > 64) return 0;
  while (least > 1 && ones != 0) {
    const std::uint32_t half = least / 2;
    ones &= ones >> half;
    least -= half;
  }
  return ones;
}
static_assert(runs_in(0b1110110, 1) == 0b1110110 && runs_in(0b1110110, 2) == 0b0110010 &&
              runs_in(0b1110110, 3) == 0b0010000);

/// How many ones in a row there are at most.
constexpr std::uint8_t longest_run(std::uint64_t ones) {
  if (ones == 0 || ones == all) return ones == 0 ? 0 : 64;
  std::array<std::uint64_t, 6> of{ones};  // where 1, 2, 4 … 32 in a row begin
  std::size_t k = 0;
  for (std::uint64_t twice = 0; k < 5 && (twice = of[k] & of[k] >> (1U << k)) != 0;) of[++k] = twice;
  std::uint64_t begins = of[k];
  unsigned length = 1U << k;
  while (k-- > 0)
    if (const std::uint64_t longer = begins & of[k] >> length; longer != 0) begins = longer, length += 1U << k;
  return static_cast<std::uint8_t>(length);
}
static_assert(longest_run(0) == 0 && longest_run(0b1011101) == 3 && longest_run(all >> 1) == 63 &&
              longest_run(all << 32) == 32 && longest_run(0xff00ff01ff) == 9 && longest_run(all) == 64);

/// change(word, bits) for every word that the range of bits touches.
template <class Change>
void for_words(std::uint32_t first, std::uint32_t count, Change change) {
  while (count > 0) {
    const std::uint32_t low = first % 64, here = std::min(count, 64 - low);
    change(first / 64, mask(low, here));
    first += here;
    count -= here;
  }
}

}  // namespace

void page_map::aligned_delete::operator()(std::uint64_t* words) const noexcept {
  ::operator delete[](words, std::align_val_t{line});
}

page_map::words page_map::make_words(std::size_t count) {
  auto* const made =
      static_cast<std::uint64_t*>(::operator new[](count * sizeof(std::uint64_t), std::align_val_t{line}));
  std::fill_n(made, count, 0);
  return words{made};
}

page_map::page_map(std::uint32_t most_pages)
    : most_{most_pages},
      page_words_{whole_lines(most_pages)},
      block_words_{whole_lines(most_pages / pages_of_block + 1)},
      pages_{make_words(page_words_)},
      blocks_{make_words(block_words_)},
      longest_(page_words_),
      heads_(page_words_),
      tails_before_(page_words_ + 1) {}

void page_map::give(std::uint32_t first, std::uint32_t count) {
  for_words(first, count, [&](std::size_t word, std::uint64_t bits) { pages_[word] |= bits; });
  free_ += count;
  note(first, count);
  // A search for no more pages than are free here has to begin here again. From a thousand on nobody counts.
  constexpr std::uint32_t many = 1024;
  const std::uint32_t before = first - begin_of(first, many), behind = next_taken(first + count - 1, many) - first;
  const std::size_t classes = before >= many || behind >= many ? hints_.size() : hint_of(before + behind) + 1;
  for (std::size_t c = 0; c < classes; ++c) hints_[c] = std::min(hints_[c], first);
}

void page_map::take(std::uint32_t first, std::uint32_t count) {
  for_words(first, count, [&](std::size_t word, std::uint64_t bits) { pages_[word] &= ~bits; });
  free_ -= count;
  note(first, count);
}

/// What follows from the pages.
void page_map::note(std::uint32_t first, std::uint32_t count) {
  if (count == 0) return;
  for (std::uint32_t w = first / 64; w <= (first + count - 1) / 64; ++w) {
    longest_[w] = longest_run(pages_[w]);
    heads_[w] = static_cast<std::uint8_t>(std::countr_one(pages_[w]));
    tails_before_[w + 1] = static_cast<std::uint8_t>(std::countl_one(pages_[w]));
  }
  for (std::uint32_t b = first / pages_of_block; b <= (first + count - 1) / pages_of_block; ++b) {
    const std::uint64_t bit = std::uint64_t{1} << b % 64;
    if ((pages_[2 * b] & pages_[2 * b + 1]) == all) blocks_[b / 64] |= bit;
    else blocks_[b / 64] &= ~bit;
  }
}

page_map::run page_map::find_from_hint(std::uint32_t least, std::uint32_t enough) {
  // A hint is for all who look for as many pages to the next power of two, so it is learnt by looking for the fewest.
  std::uint32_t& hint = hints_[hint_of(least)];
  const std::uint32_t fewest = std::bit_floor(least);
  const run any = find(hint, fewest, enough);
  hint = any.count == 0 ? most_ : any.first;
  return any.count == 0 || any.count >= least ? any : find(any.first + any.count, least, enough);
}

bool page_map::all_free(std::uint32_t first, std::uint32_t count) const {
  return count == 0 || next_taken(first, count) - first >= count;
}

std::size_t page_map::hint_of(std::uint32_t least) noexcept { return static_cast<std::size_t>(std::bit_width(least)); }

/// The first page behind `page` that is not free. The search ends a few words behind `enough` pages: callers need no more.
std::uint32_t page_map::next_taken(std::uint32_t page, std::uint32_t enough) const {
  std::size_t word = page / 64;
  if (const std::uint64_t rest = ~pages_[word] >> page % 64; rest != 0)
    return page + static_cast<std::uint32_t>(std::countr_zero(rest));
  const std::size_t end = std::min(page_words_, (page + std::size_t{enough}) / 64 + 2);
  word = first_other_word(pages_.get(), word + 1, end, all);
  if (word == end) return std::min(most_, static_cast<std::uint32_t>(64 * end));
  return static_cast<std::uint32_t>(64 * word) + static_cast<std::uint32_t>(std::countr_one(pages_[word]));
}

/// Where the run begins that free `page` is in. The search ends a few words behind `enough` pages: callers need no more.
std::uint32_t page_map::begin_of(std::uint32_t page, std::uint32_t enough) const noexcept {
  std::size_t word = page / 64;
  const std::size_t least = word - std::min<std::size_t>(word, enough / 64 + 1);
  std::uint64_t taken = ~pages_[word] & mask(0, page % 64 + 1);
  while (taken == 0 && word > least) taken = ~pages_[--word];
  return static_cast<std::uint32_t>(64 * word) + static_cast<std::uint32_t>(std::bit_width(taken));
}

page_map::run page_map::find(std::uint32_t from, std::uint32_t least, std::uint32_t enough) const {
  if (from >= most_) return {};
  if (is_free(from)) from = begin_of(from, most_);
  if (least >= 2 * pages_of_block - 1) return find_blocks(from, least, enough);
  // A word at a time, however many short runs are in it. `carried` pages are free right before it, from `from` on.
  std::uint32_t carried = 0;
  std::uint64_t free = pages_[from / 64] & ~(mask(0, from % 64 + 1) >> 1);
  for (std::size_t word = from / 64;;) {
    const auto here = static_cast<std::uint32_t>(64 * word);
    std::uint32_t first = most_;
    if (carried + static_cast<std::uint32_t>(std::countr_one(free)) >= least) first = here - carried;
    else if (const std::uint64_t begins = runs_in(free, least); begins != 0)
      first = here + static_cast<std::uint32_t>(std::countr_zero(begins));
    if (first != most_) return {first, next_taken(first, enough) - first};
    // What is free as a whole may be the middle of a run that ends with the next.
    word = free == all ? word + 1 : next_with_run(word + 1, least);
    if (word >= page_words_) return {};
    free = pages_[word];
    carried = tails_before_[word] == 0
                  ? 0
                  : static_cast<std::uint32_t>(64 * word) - begin_of(static_cast<std::uint32_t>(64 * word) - 1, least);
  }
}

/// The next word, from that one on, in which so many pages may be free, or before which a run that has them may begin.
std::size_t page_map::next_with_run(std::size_t word, std::uint32_t least) const {
  return word < page_words_ ? first_with_run({longest_.data(), heads_.data(), tails_before_.data()}, word, page_words_,
                                             static_cast<std::uint8_t>(least))
                            : word;
}

page_map::run page_map::find_blocks(std::uint32_t from, std::uint32_t least, std::uint32_t enough) const {
  // A run of so many pages has a whole block in it. No run began before `from`.
  for (std::uint32_t block = from / pages_of_block;;) {
    std::size_t word = block / 64;
    std::uint64_t rest = word < block_words_ ? blocks_[word] & (all << block % 64) : 0;
    if (rest == 0) {
      word = first_other_word(blocks_.get(), std::min(word + 1, block_words_), block_words_, 0);
      if (word == block_words_) return {};
      rest = blocks_[word];
    }
    block = static_cast<std::uint32_t>(64 * word) + static_cast<std::uint32_t>(std::countr_zero(rest));
    const std::uint32_t first = begin_of(block * pages_of_block, most_);
    const std::uint32_t end = next_taken(block * pages_of_block, enough);
    if (end - first >= least) return {first, end - first};
    block = std::max(block + 1, end / pages_of_block);
  }
}

}  // namespace troupe::detail
