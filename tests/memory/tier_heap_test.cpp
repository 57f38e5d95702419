// SPDX-License-Identifier: Apache-2.0
// The allocator of a tier: against a reference that knows every block, with all that it must refuse, and from several threads.
// TROUPE_TIER_OPERATIONS=100000000 build/release/tests/test_memory -tc="*reference*" is the long run.
#include "memory/tiers/page_map.hpp"
#include "memory/tiers/tier_core.hpp"
#include "memory/tiers/tier_heap.hpp"
#include "tests/memory/values.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <memory_resource>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tier_heap_test {

using namespace troupe;
using memory_tests::below;
using memory_tests::code_of;
using memory_tests::message_of;
using memory_tests::random_engine;

namespace {

constexpr std::size_t MiB = std::size_t{1} << 20;

struct memory {
  explicit memory(std::size_t size) : bytes{size}, at{::operator new (size, std::align_val_t{4096})} {}
  ~memory() { ::operator delete (at, std::align_val_t{4096}); }
  memory(const memory&) = delete;
  memory& operator=(const memory&) = delete;
  std::size_t bytes;
  void* at;
};

/// Mostly small, some pages, a few megabytes.
std::size_t random_size(random_engine& random) {
  const std::size_t octave = below(random, 10) < 7 ? below(random, 14) : below(random, 21);
  return below(random, (std::size_t{1} << octave) + 1);
}

/// All blocks that are out, and what is in them.
class reference {
public:
  void add(void* block, std::size_t bytes, std::size_t align) {
    const auto at = reinterpret_cast<std::uintptr_t>(block);
    REQUIRE(at % align == 0);
    const auto behind = blocks_.lower_bound(at);
    REQUIRE((behind == blocks_.end() || at + bytes <= behind->first));
    REQUIRE((behind == blocks_.begin() || std::prev(behind)->first + std::prev(behind)->second <= at));
    blocks_.emplace(at, bytes);
    if (bytes > 0) first(block) = last(block, bytes) = mark_of(at);
  }
  void check(void* block, std::size_t bytes) {
    if (bytes == 0) return;
    REQUIRE(last(block, bytes) == mark_of(reinterpret_cast<std::uintptr_t>(block)));
    REQUIRE(first(block) == mark_of(reinterpret_cast<std::uintptr_t>(block)));
  }
  void remove(void* block) { blocks_.erase(reinterpret_cast<std::uintptr_t>(block)); }

private:
  static unsigned char& first(void* block) { return *static_cast<unsigned char*>(block); }
  static unsigned char& last(void* block, std::size_t bytes) { return static_cast<unsigned char*>(block)[bytes - 1]; }
  static unsigned char mark_of(std::uintptr_t at) { return static_cast<unsigned char>(at >> 6 ^ at >> 13); }
  std::map<std::uintptr_t, std::size_t> blocks_;
};

struct held {
  void* block;
  std::size_t bytes;
};

void all_is_back(tier_heap& heap) {
  heap.collect();
  REQUIRE(heap.fault() == nullptr);
  const tier_heap::usage u = heap.use();
  CHECK(u.in_use == 0);
  CHECK(u.kept == 0);
  CHECK(u.largest == u.capacity - 24);
}

void random_run(std::size_t operations, std::size_t bytes) {
  random_engine random{seed()};
  memory range{bytes};
  tier_heap heap{range.at, range.bytes};
  reference known;
  std::vector<held> out;
  std::size_t refused = 0;
  for (std::size_t i = 0; i < operations; ++i) {
    // Phases that fill the heap, and phases that empty it.
    if (below(random, 100) < (i / 4000 % 2 == 0 ? 70U : 35U)) {
      const std::size_t wanted = random_size(random);
      const std::size_t align = below(random, 16) == 0 ? std::size_t{1} << below(random, 17) : 64;
      if (void* const block = heap.try_allocate(wanted, align)) {
        known.add(block, wanted, std::max<std::size_t>(align, 64));
        out.push_back({block, wanted});
      } else ++refused;
    } else if (!out.empty()) {
      std::swap(out[below(random, out.size())], out.back());
      known.check(out.back().block, out.back().bytes);
      known.remove(out.back().block);
      if (below(random, 2) == 0) heap.deallocate(out.back().block);
      else heap.deallocate(out.back().block, out.back().bytes);
      out.pop_back();
    }
    if (i % (operations / 16 + 1) == 0) REQUIRE(heap.fault() == nullptr);
  }
  CHECK(refused > 0);
  for (const held& h : out) heap.deallocate(h.block);
  all_is_back(heap);
}

}  // namespace

TEST_CASE("a heap agrees with a reference over random operations, and loses no block") {
  const char* const wish = std::getenv("TROUPE_TIER_OPERATIONS");
  if (wish != nullptr) return random_run(std::strtoull(wish, nullptr, 10), 64 * MiB);
  random_run(150'000, 16 * MiB);
  random_run(40'000, MiB + 12'345);
  random_run(20'000, 9 * 8192);
}

TEST_CASE("the page map finds every run that is there, and the first one") {
  random_engine random{seed()};
  for (int round = 0; round < 20; ++round) {
    const auto pages = static_cast<std::uint32_t>(1 + below(random, 3000));
    detail::page_map map{pages};
    std::vector<bool> free(pages, false);
    for (int step = 0; step < 300; ++step) {
      const auto first = static_cast<std::uint32_t>(below(random, pages));
      const auto count = static_cast<std::uint32_t>(1 + below(random, std::min<std::size_t>(pages - first, 600)));
      std::uint32_t same = 1;  // pages from `first` on that are as that one is
      while (same < count && free[first + same] == free[first]) ++same;
      if (free[first]) map.take(first, same);
      else map.give(first, same);
      for (std::uint32_t p = first; p < first + same; ++p) free[p] = !free[p];

      const auto least = static_cast<std::uint32_t>(1 + below(random, 400));
      std::uint32_t expected = pages, length = 0;
      for (std::uint32_t p = 0; p < pages && length < least; ++p) {
        length = free[p] ? length + 1 : 0;
        if (length == least) expected = p + 1 - least;
      }
      const detail::page_map::run found = map.find_from_hint(least, least);
      REQUIRE(found.count == (expected == pages ? 0 : found.count));
      if (expected < pages) {
        REQUIRE(found.count >= least);
        REQUIRE(found.first == expected);
      }
    }
  }
}

TEST_CASE("the page map finds a run whose whole blocks lie before the pages that were given last") {
  detail::page_map map{1000};
  map.give(10, 250);
  CHECK(map.find_from_hint(256, 256).count == 0);  // the hint is behind all pages now
  map.give(260, 40);                               // in block 2, of which they are a part; whole is block 1
  const detail::page_map::run found = map.find_from_hint(256, 256);
  CHECK(found.first == 10);
  CHECK(found.count == 290);
}

TEST_CASE("neighbours coalesce: whatever the order in which blocks go back, all is one block again") {
  random_engine random{seed()};
  memory range{4 * MiB};
  tier_heap heap{range.at, range.bytes};
  std::vector<void*> out;
  for (const std::size_t bytes : {100U, 5000U, 40'000U, 8168U, 8192U, 1'000'000U}) {
    while (void* const block = heap.try_allocate(bytes)) out.push_back(block);
    CHECK(heap.use().largest < bytes);
    while (!out.empty()) {
      std::swap(out[below(random, out.size())], out.back());
      heap.deallocate(out.back());
      out.pop_back();
    }
    all_is_back(heap);
  }
}

TEST_CASE("a megabyte costs a megabyte and a cache line") {
  memory range{16 * MiB};
  tier_heap heap{range.at, range.bytes};
  std::size_t blocks = 0;
  while (heap.try_allocate(MiB - 64) != nullptr) ++blocks;
  CHECK(blocks == 15);  // the sixteenth lacks the few bytes before the first cache line
  CHECK(heap.try_allocate(MiB - 64 - 2 * tier_heap::page) != nullptr);
}

TEST_CASE("what a heap must refuse, it refuses in every build") {
  memory range{2 * MiB};
  tier_heap heap{range.at, range.bytes, range.bytes, "L1 of core group 2"};
  const auto gives_back = [&](void* block) { return message_of([&] { heap.deallocate(block); }); };
  for (const std::size_t bytes : {0U, 1U, 64U, 3000U, 100'000U}) {
    auto* const block = static_cast<std::byte*>(heap.allocate(bytes));
    auto* const other = static_cast<std::byte*>(heap.allocate(bytes));
    CHECK(heap.size_of(block) == bytes);
    CHECK(gives_back(block + 8).find("not the beginning of a block") != std::string::npos);
    if (bytes > 64) CHECK(code_of([&] { heap.deallocate(block + 64); }) == errc::invalid_argument);
    const std::string other_size = message_of([&] { heap.deallocate(block, bytes + 1); });
    CHECK(other_size.find(" " + std::to_string(bytes) + " bytes were asked for") != std::string::npos);
    heap.deallocate(block, bytes);
    CHECK(code_of([&] { heap.deallocate(block, bytes); }) == errc::invalid_argument);
    CHECK(gives_back(block).find("was given back before") != std::string::npos);
    heap.deallocate(other);
    heap.collect();  // now the block is a part of a larger one
    CHECK(gives_back(block).find("given back before") != std::string::npos);
    CHECK(gives_back(other).find("given back before") != std::string::npos);
    CHECK(code_of([&] { heap.deallocate(block); }) == errc::invalid_argument);
  }
  int outside = 0;
  CHECK(gives_back(&outside).find("no address of this memory") != std::string::npos);
  CHECK(gives_back(&outside).find("L1 of core group 2") == 0);
  CHECK(code_of([&] { heap.allocate(~std::size_t{0}); }) == errc::size_overflow);
  CHECK(code_of([&] { heap.allocate(~std::size_t{0} - 100); }) == errc::size_overflow);
  CHECK(code_of([&] { heap.allocate(10, 48); }) == errc::invalid_argument);
  CHECK(code_of([&] { heap.allocate(2 * MiB); }) == errc::out_of_memory);
  CHECK(code_of([&] { heap.allocate(1, std::size_t{1} << 63); }) == errc::out_of_memory);
  CHECK(message_of([&] { heap.allocate(3 * MiB); }).find("the largest block that is left has") != std::string::npos);
  heap.deallocate(nullptr);
  heap.deallocate(nullptr, 10);
  all_is_back(heap);
}

TEST_CASE("who writes behind his block is told when he gives it back") {
  memory range{MiB};
  for (const std::size_t bytes : {1U, 40U, 64U, 5000U, 8192U, 65'536U}) {
    tier_heap heap{range.at, range.bytes};
    auto* const block = static_cast<std::byte*>(heap.allocate(bytes));
    auto* const other = static_cast<std::byte*>(heap.allocate(bytes));
    block[bytes] ^= std::byte{1};
    CHECK(message_of([&] { heap.deallocate(block); }).find("wrote behind the end") != std::string::npos);
    CHECK(message_of([&] { heap.deallocate(block, bytes); }).find("wrote behind the end") != std::string::npos);
    heap.deallocate(other);
    CHECK(heap.fault() == nullptr);
  }
}

TEST_CASE("a heap that comes upon an overwritten head stops, and says where") {
  memory range{MiB};
  tier_heap heap{range.at, range.bytes};
  auto* const block = static_cast<std::byte*>(heap.allocate(100'000));
  auto* const fence = static_cast<std::byte*>(heap.allocate(100'000));
  heap.deallocate(block);
  // A block that was given back is used again: its first line is a fragment's head, or the next pages'.
  std::memset(block - 16, 0x5a, 32);
  std::string said = message_of([&] { heap.deallocate(fence); });
  for (int i = 0; said.empty() && i < 1000; ++i) said = message_of([&] { heap.allocate(7000); });
  CHECK(said.find("overwritten") != std::string::npos);
  CHECK(code_of([&] { heap.allocate(1); }) == errc::aborted);
}

TEST_CASE("a heap that has stopped gives nothing of what threads keep, and takes nothing back") {
  memory range{2 * MiB};
  tier_heap heap{range.at, range.bytes};
  void* const small = heap.allocate(100);
  void* const kept_small = heap.allocate(100);
  void* const front = heap.allocate(600'000);  // no thread keeps one as large
  auto* const block = static_cast<std::byte*>(heap.allocate(600'000));
  heap.deallocate(kept_small);
  heap.deallocate(block);
  block[-1] ^= std::byte{1};  // of the check in its head
  REQUIRE(code_of([&] { heap.deallocate(front); }) == errc::aborted);
  REQUIRE(heap.use().kept > 0);
  CHECK(heap.try_allocate(100) == nullptr);
  CHECK(code_of([&] { heap.allocate(100); }) == errc::aborted);
  CHECK(code_of([&] { heap.deallocate(small); }) == errc::aborted);
}

TEST_CASE("links of free blocks that do not lead back are not followed") {
  memory range{MiB};
  const detail::head_words words{7};
  detail::tier_core core{static_cast<std::byte*>(range.at) + 48, 64, 64, words};
  std::vector<detail::block_head*> used, free;
  for (int i = 0; i < 8; ++i) (i % 2 == 0 ? free : used).push_back(core.take(5));
  for (detail::block_head* const head : used) head->word = words.make(head, 5, 0, detail::block_state::live);
  for (detail::block_head* const head : free) core.give(head);
  REQUIRE(core.fault() == nullptr);
  const auto links = [&](std::size_t i) -> detail::free_links& {
    return reinterpret_cast<detail::free_block*>(free[i])->links;
  };
  // The list begins with the last one that was given: 3, 2, 1, 0.
  SUBCASE("the next one is a fragment of this length, but another one's next") {
    links(2).next = core.line_of(free[0]);
    CHECK(core.fault() == std::string{"a list does not lead back"});
    core.give(used[2]);  // between 2 and 3
  }
  SUBCASE("the previous one likewise") {
    links(1).previous = core.line_of(free[3]);
    CHECK(core.fault() == std::string{"a list does not lead back"});
    core.give(used[1]);
  }
  SUBCASE("it says that it is the first one") {
    links(1).previous = detail::no_line;
    CHECK(core.fault() == std::string{"a list does not lead back"});
    core.give(used[1]);
  }
  SUBCASE("the list ends before its end") {
    links(2).next = detail::no_line;
    CHECK(core.fault() == std::string{"a fragment is in no list"});
    core.give(used[0]);  // 1 says that 2 leads to it
  }
  CHECK(core.spoiled());
  CHECK(core.take(5) == nullptr);
}

TEST_CASE("containers live in a heap, through std::pmr") {
  memory range{MiB};
  tier_heap heap{range.at, range.bytes};
  {
    std::pmr::vector<std::pmr::string> words(&heap);
    for (int i = 0; i < 1000; ++i)
      words.emplace_back("a word that is too long for the string itself " + std::to_string(i));
    CHECK(heap.contains(words.data()));
    CHECK(heap.contains(words[999].data()));
    CHECK_THROWS_AS(words.reserve(100'000), const error&);
    CHECK(words[999].ends_with("999"));
  }
  all_is_back(heap);
}

TEST_CASE("the end of a heap moves while nothing lies behind it") {
  memory range{4 * MiB};
  tier_heap heap{range.at, range.bytes, 2 * MiB, "heap"};
  CHECK(heap.try_allocate(3 * MiB) == nullptr);
  CHECK(heap.resize(4 * MiB));
  void* const low = heap.allocate(100);
  void* const most = heap.allocate(3 * MiB);
  CHECK_FALSE(heap.resize(2 * MiB));
  CHECK(heap.use().capacity > 3 * MiB);
  heap.deallocate(most);
  CHECK(heap.resize(MiB));
  CHECK(heap.try_allocate(MiB) == nullptr);
  CHECK_FALSE(heap.resize(0));
  heap.deallocate(low);
  CHECK(heap.resize(0));  // what the thread keeps does not stand in the way
  CHECK(heap.try_allocate(1) == nullptr);
  CHECK(heap.resize(3 * MiB));
  all_is_back(heap);

  random_engine random{seed()};
  std::vector<void*> out;
  for (int i = 0; i < 4000; ++i) {
    if (below(random, 8) == 0) heap.resize(below(random, 4 * MiB));
    if (void* const block = heap.try_allocate(below(random, 30'000))) out.push_back(block);
    while (!out.empty() && below(random, 5) < 2) {
      std::swap(out[below(random, out.size())], out.back());
      heap.deallocate(out.back());
      out.pop_back();
    }
    REQUIRE(heap.fault() == nullptr);
  }
  for (void* const block : out) heap.deallocate(block);
  all_is_back(heap);
}

TEST_CASE("a range too small for anything is a heap without room") {
  for (const std::size_t bytes : {0U, 1U, 100U, 8191U}) {
    memory range{bytes + 1};
    tier_heap heap{range.at, bytes};
    CHECK(heap.use().capacity == 0);
    CHECK(code_of([&] { heap.allocate(1); }) == errc::out_of_memory);
  }
}

TEST_CASE("threads take and give back, also what others took, while the heap is full") {
  memory range{8 * MiB};
  tier_heap heap{range.at, range.bytes};
  constexpr int threads = 4;
  std::mutex shared_lock;
  std::vector<held> shared;
  std::atomic<int> wrong{0};
  std::atomic<std::size_t> refused{0};
  const auto work = [&](unsigned number) {
    random_engine random{seed() + number};
    std::vector<held> mine;
    const auto mark = [](const held& h) { return static_cast<unsigned char>(h.bytes * 7 + 1); };
    const auto give = [&](const held& h) {
      if (h.bytes > 0 && static_cast<unsigned char*>(h.block)[h.bytes - 1] != mark(h)) ++wrong;
      heap.deallocate(h.block);
    };
    for (int i = 0; i < 12'000; ++i) {
      held h{nullptr, random_size(random)};
      if (below(random, 100) < 55) h.block = heap.try_allocate(h.bytes);
      if (h.block != nullptr) {
        if (h.bytes > 0) static_cast<unsigned char*>(h.block)[h.bytes - 1] = mark(h);
        const std::lock_guard lock{shared_lock};
        (below(random, 4) == 0 ? shared : mine).push_back(h);
      } else {
        ++refused;
        for (int n = 0; n < 2; ++n) {
          const std::lock_guard lock{shared_lock};
          auto& from = below(random, 3) == 0 ? shared : mine;
          if (from.empty()) continue;
          std::swap(from[below(random, from.size())], from.back());
          give(from.back());
          from.pop_back();
        }
      }
      if (i % 500 == 0) heap.collect();
    }
    for (const held& h : mine) give(h);
  };
  std::vector<std::thread> all;
  for (unsigned t = 0; t < threads; ++t) all.emplace_back(work, t);
  for (auto& t : all) t.join();
  CHECK(wrong == 0);
  CHECK(heap.use().kept == 0);  // a thread that ends keeps nothing
  for (const held& h : shared) heap.deallocate(h.block);
  all_is_back(heap);
}

TEST_CASE("what idle threads keep is there for who needs it") {
  memory range{MiB};
  tier_heap heap{range.at, range.bytes};
  std::atomic<int> phase{0};
  std::thread idle{[&] {
    std::vector<void*> out;
    while (void* const block = heap.try_allocate(1)) out.push_back(block);
    for (void* const block : out) heap.deallocate(block);
    phase = 1;
    phase.notify_all();
    phase.wait(1);
  }};
  phase.wait(0);
  CHECK(heap.use().kept > 0);
  void* const all = heap.try_allocate(heap.use().capacity - 24);
  CHECK(all != nullptr);
  phase = 2;
  phase.notify_all();
  idle.join();
  heap.deallocate(all);
  all_is_back(heap);
}

TEST_CASE("heaps come and go while a thread that used them stays") {
  memory range{MiB};
  for (int i = 0; i < 50; ++i) {
    tier_heap heap{range.at, range.bytes};
    heap.deallocate(heap.allocate(100));
    CHECK(heap.use().kept > 0);
    void* const block = heap.allocate(100);
    CHECK(heap.contains(block));
  }
}

}  // namespace tier_heap_test
