// SPDX-License-Identifier: Apache-2.0
// Memory of large tables (memory/large_pages.hpp): aligned, kept while tables grow, and nobody's twice.

#include "memory/large_pages.hpp"

#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory_resource>
#include <new>
#include <string>
#include <utility>
#include <vector>

using namespace troupe;

namespace {

constexpr std::size_t mib = 1 << 20;

bool aligned(const void* at, std::size_t to) { return reinterpret_cast<std::uintptr_t>(at) % to == 0; }

}  // namespace

TEST_CASE(
    "large pages: whatever the size, all of it can be written, and what is large begins on a page of two mebibytes") {
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{4096}, mib - 1, mib, 2 * mib - 1, 2 * mib, 2 * mib + 1, 9 * mib + 5}) {
    CAPTURE(bytes);
    void* const at = take_large(bytes);
    CHECK(aligned(at, bytes < mib ? 64 : 2 * mib));
    std::memset(at, 0x5a, bytes);
    void* const other = take_large(bytes);
    std::memset(other, 0, bytes);
    const auto* const b = static_cast<const unsigned char*>(at);
    CHECK(b[0] == 0x5a);
    CHECK(b[bytes - 1] == 0x5a);
    give_large(at, bytes);
    give_large(other, bytes);
  }
  CHECK_THROWS_AS(take_large(std::numeric_limits<std::size_t>::max() - 5), std::bad_alloc);
}

TEST_CASE("large pages: a table keeps what is in it while it grows from the heap onto pages") {
  large_vector<std::uint32_t> grown;
  constexpr std::uint32_t count = 1'500'000;
  for (std::uint32_t i = 0; i < count; ++i) grown.push_back(i * 7);
  const auto copy = grown;
  bool same = true;
  for (std::uint32_t i = 0; i < count; ++i) same = same && copy[i] == i * 7;
  CHECK(same);
}

TEST_CASE("run memory: pieces of every size and alignment, none over another") {
  run_memory memory{1000};
  std::vector<std::pair<unsigned char*, std::size_t>> pieces;
  for (std::size_t i = 0; i < 20'000; ++i) {
    const std::size_t bytes = 1 + i * 37 % 513, alignment = std::size_t{1} << i % 7;
    auto* const at = static_cast<unsigned char*>(memory.allocate(bytes, alignment));
    REQUIRE(aligned(at, alignment));
    std::memset(at, static_cast<int>(i % 251), bytes);
    pieces.emplace_back(at, bytes);
  }
  bool whole = true;
  for (std::size_t i = 0; i < pieces.size(); ++i)
    for (std::size_t b = 0; b < pieces[i].second; ++b) whole = whole && pieces[i].first[b] == i % 251;
  CHECK(whole);
}

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
namespace {

/// What the system notes of the mapping that holds `at`; empty if it notes nothing.
std::string flags_of(const void* at) {
  std::ifstream maps{"/proc/self/smaps"};
  const auto wanted = reinterpret_cast<std::uintptr_t>(at);
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    const char* const last = line.data() + line.size();
    const auto first = std::from_chars(line.data(), last, begin, 16);
    if (first.ec == std::errc{} && first.ptr != last && *first.ptr == '-' &&
        std::from_chars(first.ptr + 1, last, end, 16).ec == std::errc{})
      inside = begin <= wanted && wanted < end;
    else if (inside && line.starts_with("VmFlags:")) return line;
  }
  return {};
}

}  // namespace

// Performed by the next one, in a process of its own: a heap cannot be taken off again.
TEST_CASE("large pages: heap, alone" * doctest::skip()) {
  put_heap_on_large_pages(64 * mib);
  for (int i = 0; i < 64; ++i) {
    CAPTURE(i);
    void* const piece = std::malloc(256 * 1024);
    std::memset(piece, i, 256 * 1024);
    const std::string flags = flags_of(static_cast<std::byte*>(piece) + 128 * 1024);
    // The first ones may fill a page that the heap had begun.
    if (i >= 16 && !flags.empty()) CHECK(flags.find(" hg") != std::string::npos);
  }
}

TEST_CASE("large pages: a heap that was put on them takes its pieces from there") {
  const pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", "test_memory", "--test-case=large pages: heap* alone", "--no-skip", "--minimal", nullptr);
    _exit(77);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
    MESSAGE("not looked at: this program cannot be started by itself");
  else CHECK(status == 0);
}
#endif
