// SPDX-License-Identifier: Apache-2.0
#include "memory/tiers/tier_core.hpp"

#include <algorithm>
#include <bit>
#include <new>

namespace troupe::detail {

tier_core::tier_core(std::byte* first, std::uint32_t most, std::uint32_t pages, const head_words& words)
    : first_{first}, most_{most}, words_{words}, map_{most} {
  lists_.fill(no_line);
  resize(pages);
}

// -- fragments ------------------------------------------------------------------------------------

std::uint32_t tier_core::fragment_at(std::uint32_t line) const noexcept {
  if (line >= total_ || is_page(line)) return 0;
  const block_head* const head = head_of(line);
  const std::uint64_t word = head->word.load(std::memory_order_relaxed);
  if (static_cast<block_state>(word & 0xff) != block_state::free) return 0;
  if (!words_.is(head, head->lines, word, block_state::free)) {
    spoiled_ = head;
    return 0;
  }
  return head->lines;
}

/// The lines that the head at `line` gives for the fragment before it, if there is such a fragment.
std::uint32_t tier_core::fragment_before(std::uint32_t line) const noexcept {
  const std::uint32_t lines = before(line);
  if (lines == 0 || (lines <= line && lines <= most_fragment && fragment_at(line - lines) == lines)) return lines;
  spoiled_ = line < total_ ? static_cast<const void*>(head_of(line)) : first_ + std::size_t{total_} * line_bytes;
  return 0;
}

void tier_core::insert(std::uint32_t line, std::uint32_t lines) {
  free_block* const block = fragment(line);
  block->head.lines = lines;
  block->head.before = 0;  // what touches it is used, or pages
  block->head.word.store(words_.make(&block->head, lines, 0, block_state::free), std::memory_order_relaxed);
  block->links = {lists_[lines], no_line};
  if (lists_[lines] != no_line) fragment(lists_[lines])->links.previous = line;
  lists_[lines] = line;
  lists_with_[lines / 64] |= std::uint64_t{1} << lines % 64;
  fragment_lines_ += lines;
}

/// Looks before it follows a link: links that are in order lead to fragments of the same length, which lead back.
void tier_core::remove(std::uint32_t line, std::uint32_t lines) {
  free_block* const block = fragment(line);
  const free_links links = block->links;
  const bool next_leads_back =
      links.next == no_line || (fragment_at(links.next) == lines && fragment(links.next)->links.previous == line);
  const bool previous_leads_here =
      links.previous == no_line ? lists_[lines] == line
                                : fragment_at(links.previous) == lines && fragment(links.previous)->links.next == line;
  const std::uint64_t word = block->head.word.load(std::memory_order_relaxed);
  if (!words_.is(&block->head, lines, word, block_state::free) || !next_leads_back || !previous_leads_here) {
    spoiled_ = &block->head;
    return;
  }
  if (links.next != no_line) fragment(links.next)->links.previous = links.previous;
  if (links.previous != no_line) fragment(links.previous)->links.next = links.next;
  else lists_[lines] = links.next;
  if (lists_[lines] == no_line) lists_with_[lines / 64] &= ~(std::uint64_t{1} << lines % 64);
  fragment_lines_ -= lines;
}

void tier_core::settle(std::uint32_t from, std::uint32_t to) {
  if (from < to) insert(from, to - from);
  tell(to, to - from);
}

// -- taking ---------------------------------------------------------------------------------------

block_head* tier_core::taken(std::uint32_t line, std::uint32_t lines) noexcept {
  block_head* const head = head_of(line);
  head->lines = lines;
  head->before = 0;
  // Not a free block any more for a thread that looks at its neighbours, before its owner has written what it is.
  head->word.store(0, std::memory_order_relaxed);
  return head;
}

block_head* tier_core::take(std::uint32_t lines) {
  if (spoiled()) return nullptr;
  if (lines <= most_fragment)
    if (block_head* const head = take_fragment(lines)) return head;
  return !spoiled() && lines <= total_ ? take_pages(lines) : nullptr;
}

block_head* tier_core::take_fragment(std::uint32_t lines) {
  std::size_t word = lines / 64;
  std::uint64_t rest = lists_with_[word] & (~std::uint64_t{0} << lines % 64);
  while (rest == 0 && ++word < lists_with_.size()) rest = lists_with_[word];
  if (rest == 0) return nullptr;
  const auto found = static_cast<std::uint32_t>(64 * word) + static_cast<std::uint32_t>(std::countr_zero(rest));
  const std::uint32_t line = lists_[found];
  remove(line, found);
  if (spoiled()) return nullptr;
  settle(line + lines, line + found);
  return taken(line, lines);
}

tier_core::stretch tier_core::around(page_map::run run) const noexcept {
  const std::uint32_t from = run.first * page_lines, to = (run.first + run.count) * page_lines;
  if (to < total_) __builtin_prefetch(head_of(to), 1);
  return {from - fragment_before(from), to + fragment_at(to)};
}

block_head* tier_core::take_pages(std::uint32_t lines) {
  const std::uint32_t least = lines <= most_fragment ? 1 : (lines - most_fragment + page_lines - 1) / page_lines;
  const std::uint32_t enough = (lines + page_lines - 1) / page_lines;
  page_map::run run = map_.find_from_hint(least, enough);
  stretch free{};
  for (; run.count > 0; run = map_.find(run.first + run.count, least, enough)) {
    // Where the rest is going to begin, if there is nothing in front.
    if (run.count >= enough) __builtin_prefetch(head_of(run.first * page_lines + lines), 1);
    free = around(run);
    if (spoiled() || free.to - free.from >= lines) break;
  }
  if (run.count == 0 || spoiled()) return nullptr;
  const std::uint32_t first = run.first * page_lines, behind = first + run.count * page_lines, end = free.from + lines;
  // No more pages than the block touches. The rest of the last one is a fragment, with the one behind if that touches it.
  const std::uint32_t pages = std::min(run.count, (end - first + page_lines - 1) / page_lines);
  const std::uint32_t rest_to = pages == run.count ? free.to : first + pages * page_lines;
  if (free.from < first) remove(free.from, first - free.from);
  if (rest_to > behind) remove(behind, rest_to - behind);
  if (spoiled()) return nullptr;
  map_.take(run.first, pages);
  settle(end, rest_to);
  return taken(free.from, lines);
}

block_head* tier_core::cut(block_head* block, std::uint32_t lines) {
  const std::uint32_t line = line_of(block), rest = block->lines - lines;
  block->lines = lines;
  return taken(line + lines, rest);
}

// -- giving ---------------------------------------------------------------------------------------

/// Heads lie in the tier, mostly in no cache. Those of both neighbours are asked for at once, and then what these are linked with: otherwise each
/// would be waited for in turn.
void tier_core::fetch_around(const block_head* block) const noexcept {
  const std::uint32_t line = line_of(block), behind = line + block->lines;
  const bool has_behind = behind < total_ && !is_page(behind);
  if (has_behind) __builtin_prefetch(head_of(behind), 1);
  if (block->before - 1 < line) fetch_links(line - block->before);
  if (has_behind) fetch_links(behind);
}

/// Of a fragment, if that is one: nothing is believed here.
void tier_core::fetch_links(std::uint32_t line) const noexcept {
  const free_block* const block = fragment(line);
  if (static_cast<block_state>(block->head.word.load(std::memory_order_relaxed) & 0xff) != block_state::free) return;
  if (block->links.next < total_) __builtin_prefetch(head_of(block->links.next), 1);
  if (block->links.previous < total_) __builtin_prefetch(head_of(block->links.previous), 1);
}

void tier_core::give(block_head* block) {
  if (spoiled()) return;
  fetch_around(block);
  const std::uint32_t line = line_of(block);
  std::uint32_t from = line, to = line + block->lines;
  if (const std::uint32_t lines = fragment_before(line); lines > 0) remove(from -= lines, lines);
  if (const std::uint32_t lines = fragment_at(to); lines > 0) {
    remove(to, lines);
    to += lines;
  }
  if (spoiled()) return;
  // The head may come to lie within a fragment: a pointer to this block is still recognised as one that was given back.
  block->word.store(words_.make(block, block->lines, 0, block_state::free), std::memory_order_relaxed);
  const std::uint32_t page = (from + page_lines - 1) / page_lines, end = to / page_lines;
  if (page >= end) return settle(from, to);
  map_.give(page, end - page);
  settle(from, page * page_lines);
  settle(end * page_lines, to);
}

bool tier_core::resize(std::uint32_t pages) {
  const std::uint32_t now = total_ / page_lines;
  if (pages < now) {
    if (!map_.all_free(pages, now - pages)) return false;
    // The fragment before the end is named by the page that the end now is at, if a run begins there.
    before_end_ = pages > 0 && map_.is_free(pages - 1) ? 0 : head_of(pages * page_lines)->before;
    map_.take(pages, now - pages);
    total_ = pages * page_lines;
  } else if (pages > now) {
    const std::uint32_t lines = before_end_;
    const std::uint32_t end = total_;
    total_ = pages * page_lines;
    map_.give(now, pages - now);
    tell(end, lines);
    before_end_ = 0;
  }
  return true;
}

// -- looking --------------------------------------------------------------------------------------

std::uint64_t tier_core::largest() const {
  std::uint64_t most = 0;
  for (page_map::run r = map_.find(0, 1, most_); r.count > 0; r = map_.find(r.first + r.count, 1, most_)) {
    const stretch free = around(r);
    most = std::max<std::uint64_t>(most, free.to - free.from);
  }
  for (std::uint32_t lines = most_fragment; lines > most; --lines)
    if (lists_[lines] != no_line) return lines;
  return most;
}

const char* tier_core::fault() const {
  if (spoiled()) return "a head was overwritten";
  std::uint64_t seen_free = 0;
  std::uint32_t before_this = 0;  // lines of the fragment that ends at `line`
  bool was_page = false;
  for (std::uint32_t line = 0; line < total_;) {
    if (is_page(line)) {
      if (!was_page && before(line) != before_this) return "a run of pages does not know what is before it";
      seen_free += page_lines;
      line += page_lines;
      before_this = 0;
      was_page = true;
      continue;
    }
    const std::uint32_t lines = head_of(line)->lines, free = fragment_at(line);
    if (lines == 0 || lines > total_ - line) return "a block ends behind the tier";
    if (before(line) != before_this) return "a block does not know what is before it";
    if (free > 0 && before_this > 0) return "two fragments touch";
    if (free > 0 && (line + page_lines - 1) / page_lines < (line + free) / page_lines)
      return "a fragment has a page in it";
    seen_free += free;
    before_this = free;
    was_page = false;
    line += lines;
  }
  if (before_end_ != (was_page ? 0 : before_this)) return "the end does not know what is before it";
  return seen_free == free_lines() ? list_fault() : "what is free is not what is counted";
}

/// Every fragment is in the list of its length, once. Ends, as every member must lead back to the one before it.
const char* tier_core::list_fault() const {
  std::uint64_t in_lists = 0;
  for (std::uint32_t lines = 1; lines <= most_fragment; ++lines) {
    if ((lists_[lines] != no_line) != ((lists_with_[lines / 64] >> lines % 64 & 1) != 0))
      return "the bitmap does not know which lists have any";
    std::uint32_t previous = no_line;
    for (std::uint32_t at = lists_[lines]; at != no_line; previous = at, at = fragment(at)->links.next) {
      if (fragment_at(at) != lines) return "a list leads to what is no fragment of its length";
      if (fragment(at)->links.previous != previous) return "a list does not lead back";
      in_lists += lines;
    }
  }
  return in_lists == fragment_lines_ ? nullptr : "a fragment is in no list";
}

}  // namespace troupe::detail
