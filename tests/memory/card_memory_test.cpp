// SPDX-License-Identifier: Apache-2.0
#include "memory/tiers/card_memory.hpp"
#include "tests/memory/values.hpp"

#include <doctest/doctest.h>

#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory_resource>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace troupe;
using memory_tests::code_of;
using memory_tests::message_of;

namespace {

constexpr std::size_t MiB = std::size_t{1} << 20;

card_options small(bool shared = false) {
  return {.core_groups = 4, .l0_bytes = 256 * 1024, .hbm_bytes = 8 * MiB, .l1_bytes = 4 * MiB, .shared = shared};
}

/// Whether the mapping that `address` lies in is asked for on large pages: the system's own list of it says `hg`.
bool on_large_pages(const void* address) {
  std::ifstream maps{"/proc/self/smaps"};
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t from = 0, to = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2)
      here = reinterpret_cast<std::uintptr_t>(address) - from < to - from;
    else if (here && line.starts_with("VmFlags:")) return (line + ' ').find(" hg ") != std::string::npos;
  }
  return false;
}

}  // namespace

TEST_CASE("L1 and L2 are asked for on large pages, L0 is not, and what a tier lost to the other one comes so, too") {
  if (::access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK) != 0) return;  // the system has none on request
  for (const bool shared : {false, true}) {
    CAPTURE(shared);
    card_memory card{small(shared)};
    void* const local = card.malloc_local(3, MiB);
    CHECK(on_large_pages(local));
    CHECK_FALSE(on_large_pages(card.l0(0).allocate(1000)));
    card.free_local(local);
    card.move_split(0);
    CHECK(on_large_pages(card.malloc_cross(20 * MiB)));
  }
}

TEST_CASE("the four calls: L1 of each core group, and L2 of all") {
  card_memory card{small()};
  void* const mine = card.malloc_local(2, 3 * MiB);
  CHECK(card.l1(2).contains(mine));
  CHECK_FALSE(card.l1(1).contains(mine));
  void* const all = card.malloc_cross(12 * MiB);  // more than any core group's memory
  std::memset(all, 1, 12 * MiB);
  CHECK(code_of([&] { card.malloc_local(2, 2 * MiB); }) == errc::out_of_memory);
  CHECK(message_of([&] { card.malloc_local(2, 2 * MiB); }).find("L1 of core group 2: ") == 0);
  card.free_local(card.malloc_local(3, 2 * MiB));  // another core group's is its own
  CHECK(message_of([&] { card.free_local(all); }).find("free_cross is for those") != std::string::npos);
  CHECK(message_of([&] { card.free_cross(mine); }).find("free_local is for those") != std::string::npos);
  int outside = 0;
  CHECK(code_of([&] { card.free_local(&outside); }) == errc::invalid_argument);
  CHECK(code_of([&] { card.free_cross(&outside); }) == errc::invalid_argument);
  CHECK(code_of([&] { card.malloc_local(4, 1); }) == errc::invalid_argument);
  CHECK(code_of([&] { card.malloc_local(-1, 1); }) == errc::invalid_argument);
  card.free_local(mine);
  CHECK(code_of([&] { card.free_local(mine); }) == errc::invalid_argument);
  card.free_cross(all);
  card.free_cross(nullptr);
  card.free_local(nullptr);
}

TEST_CASE("a whole tier is one block, to the last page") {
  card_memory card{small()};
  CHECK(card.l2().use().capacity == 16 * MiB);
  CHECK(card.l1(0).use().capacity == 4 * MiB);
  CHECK(card.l0(3).use().capacity == 256 * 1024);
  auto* const all = static_cast<std::byte*>(card.malloc_cross(16 * MiB - 24));
  all[16 * MiB - 25] = std::byte{1};
  card.free_cross(all);
  CHECK(code_of([&] { card.malloc_cross(16 * MiB); }) == errc::out_of_memory);
}

TEST_CASE("the split moves while nothing is allocated beyond it, in both directions") {
  card_memory card{small()};
  card.move_split(0);
  CHECK(card.l1_bytes() == 0);
  CHECK(code_of([&] { card.malloc_local(0, 1); }) == errc::out_of_memory);
  auto* const most = static_cast<std::byte*>(card.malloc_cross(30 * MiB));
  most[29 * MiB] = std::byte{7};
  CHECK(code_of([&] { card.move_split(4 * MiB); }) == errc::out_of_memory);
  CHECK(message_of([&] { card.move_split(4 * MiB); }).find("at the end of L2") != std::string::npos);
  CHECK(card.l1_bytes() == 0);
  card.free_cross(most);
  card.move_split(8 * MiB);
  CHECK(card.l2().use().capacity == 0);
  void* const high = card.malloc_local(1, 6 * MiB);
  CHECK(code_of([&] { card.move_split(4 * MiB); }) == errc::out_of_memory);
  for (int g = 0; g < 4; ++g) CHECK(card.l1(g).use().capacity == 8 * MiB);  // nobody's has moved
  card.move_split(7 * MiB);
  CHECK(card.l2().use().capacity == 4 * MiB);
  card.free_local(high);
  card.move_split(0);
  // What left L2 went back to the system: it is zero again.
  auto* const again = static_cast<std::byte*>(card.malloc_cross(30 * MiB));
  CHECK(again[29 * MiB] == std::byte{0});
  CHECK(code_of([&] { card.move_split(8 * MiB + 8192); }) == errc::invalid_argument);
  CHECK(code_of([&] { card.move_split(100); }) == errc::invalid_argument);
}

TEST_CASE("options that make no card are refused") {
  const auto made = [](auto change) {
    card_options o = small();
    change(o);
    return code_of([&] { card_memory card{o}; });
  };
  CHECK(made([](card_options& o) { o.core_groups = 0; }) == errc::invalid_argument);
  CHECK(made([](card_options& o) { o.core_groups = 257; }) == errc::invalid_argument);
  CHECK(made([](card_options& o) { o.l1_bytes = o.hbm_bytes + 8192; }) == errc::invalid_argument);
  CHECK(made([](card_options& o) { o.hbm_bytes += 100; }) == errc::invalid_argument);
  CHECK(made([](card_options& o) { o.hbm_bytes = std::size_t{1} << 60; }) == errc::invalid_argument);
  CHECK(made([](card_options& o) { o.core_groups = 1; }) == errc::ok);
  CHECK(made([](card_options& o) { o.l0_bytes = 0; }) == errc::ok);
}

TEST_CASE("host transfers: one copy into L2 and one by each core group, or a copy for each") {
  card_memory card{small()};
  constexpr std::size_t bytes = 300'001;
  std::vector<std::byte> host(bytes);
  for (std::size_t i = 0; i < bytes; ++i) host[i] = static_cast<std::byte>(i * 7 + i / 251);
  std::vector<void*> local;
  for (int g = 0; g < 4; ++g) local.push_back(card.malloc_local(g, bytes));
  for (const host_way way : {host_way::one_copy, host_way::each_a_copy}) {
    for (void* const l : local) std::memset(l, 0, bytes);
    const host_transfer moved = card.upload(host, local, way);
    for (void* const l : local) CHECK(std::memcmp(l, host.data(), bytes) == 0);
    CHECK(moved.host_bytes == (way == host_way::one_copy ? bytes : 4 * bytes));
    CHECK(moved.ring_bytes == (way == host_way::one_copy ? 4 * bytes : 0));
    std::vector<std::byte> back(4 * bytes);
    const host_transfer returned = card.download(local, back, way);
    for (std::size_t g = 0; g < 4; ++g) CHECK(std::memcmp(back.data() + g * bytes, host.data(), bytes) == 0);
    CHECK(returned.host_bytes == 4 * bytes);
    CHECK(returned.ring_bytes == (way == host_way::one_copy ? 4 * bytes : 0));
  }
  CHECK(card.upload({}, local).host_bytes == 0);
  CHECK(card.l2().use().in_use == 0);
  CHECK(card.l0(0).use().in_use == 0);
  CHECK(code_of([&] { card.upload(host, std::span{local}.first(3)); }) == errc::invalid_argument);
  std::swap(local[0], local[1]);
  CHECK(code_of([&] { card.upload(host, local); }) == errc::invalid_argument);
  std::swap(local[0], local[1]);
  host.resize(bytes + 1);
  CHECK(code_of([&] { card.upload(host, local); }) == errc::invalid_argument);
  std::vector<std::byte> odd(4 * bytes - 1);
  CHECK(code_of([&] { card.download(local, odd); }) == errc::invalid_argument);
  // With little room in L0 it takes small tiles, without any it fails.
  std::vector<void*> busy;
  while (void* const block = card.l0(1).try_allocate(1)) busy.push_back(block);
  host.resize(bytes);
  CHECK(code_of([&] { card.upload(host, local); }) == errc::out_of_memory);
  CHECK(card.l2().use().in_use == 0);
  card.l0(1).deallocate(busy.back());
  busy.pop_back();
  std::memset(local[1], 0, bytes);
  CHECK(code_of([&] { card.upload(host, local); }) ==
        errc::out_of_memory);  // a line is no tile of 64 bytes: it has a head
  for (int i = 0; i < 4; ++i) {
    card.l0(1).deallocate(busy.back());
    busy.pop_back();
  }
  CHECK(card.upload(host, local).ring_bytes == 4 * bytes);
  CHECK(std::memcmp(local[1], host.data(), bytes) == 0);
  for (void* const block : busy) card.l0(1).deallocate(block);
  // Without room in L2 it fails, and nothing is lost.
  host.resize(bytes);
  void* const all = card.malloc_cross(16 * MiB - 24);
  CHECK(code_of([&] { card.upload(host, local); }) == errc::out_of_memory);
  CHECK(card.upload(host, local, host_way::each_a_copy).host_bytes == 4 * bytes);
  card.free_cross(all);
}

TEST_CASE("another process maps the segment and finds a block at the same offset") {
  card_memory card{small(true)};
  REQUIRE(card.descriptor() >= 0);
  auto* const block = static_cast<unsigned char*>(card.malloc_cross(1000));
  std::memset(block, 0x11, 1000);
  const std::size_t offset = card.offset_of(block);
  const pid_t child = ::fork();
  if (child == 0) {
    void* const at = ::mmap(nullptr, card.segment_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, card.descriptor(), 0);
    if (at == MAP_FAILED) ::_exit(2);
    auto* const same = static_cast<unsigned char*>(at) + offset;
    const bool right = same[0] == 0x11 && same[999] == 0x11;
    same[5] = 0x22;
    ::_exit(right ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(block[5] == 0x22);
  card.free_cross(block);
  // Memory that leaves a tier goes back to the system: the segment has fewer pages.
  auto* const high = static_cast<unsigned char*>(card.malloc_cross(15 * MiB));
  std::memset(high, 1, 15 * MiB);
  card.free_cross(high);
  struct stat before {
  }, after{};
  REQUIRE(::fstat(card.descriptor(), &before) == 0);
  card.move_split(8 * MiB);
  REQUIRE(::fstat(card.descriptor(), &after) == 0);
  CHECK(before.st_blocks - after.st_blocks > static_cast<blkcnt_t>(14 * MiB / 512));
  int outside = 0;
  CHECK(code_of([&] { (void)card.offset_of(&outside); }) == errc::invalid_argument);
  CHECK(card_memory{small()}.descriptor() == -1);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they need address space of their own
TEST_CASE("what the system does not give is an error, and nothing is left of it") {
  rlimit none{};
  int kind = RLIMIT_AS;
  bool shared = true;
  SUBCASE("address space") {
    none = {std::size_t{1} << 30, std::size_t{1} << 30};
    shared = false;
  }
  SUBCASE("a descriptor") { kind = RLIMIT_NOFILE; }
  SUBCASE("a file of the size") { kind = RLIMIT_FSIZE; }
  SUBCASE("address space for what is shared") { none = {std::size_t{1} << 30, std::size_t{1} << 30}; }
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const int lowest = ::dup(0);
    ::close(lowest);
    if (::setrlimit(static_cast<__rlimit_resource_t>(kind), &none) != 0) ::_exit(2);
    // qemu-user says yes to this limit, and does not keep it.
    if (kind == RLIMIT_AS &&
        ::mmap(nullptr, 2 * none.rlim_cur, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
      ::_exit(77);
    bool told = false;
    try {
      card_options options;
      options.shared = shared;
      card_memory card{options};
    } catch (const error& e) {
      told = e.code_value() == errc::out_of_memory &&
             std::string{e.what()}.find("the system gives no") != std::string::npos;
    }
    ::_exit(told && (kind == RLIMIT_NOFILE || ::dup(0) == lowest) ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) MESSAGE("skipped: the system keeps no limit of address space");
  else CHECK(WEXITSTATUS(status) == 0);
}
#endif

TEST_CASE("a tier is a memory resource of containers") {
  card_memory card{small()};
  std::pmr::vector<float> weights(100'000, 1.5F, &card.l1(2));
  std::pmr::vector<float> published{weights, &card.l2()};
  CHECK(card.l1(2).contains(weights.data()));
  CHECK(card.l2().contains(published.data()));
  CHECK(std::accumulate(published.begin(), published.end(), 0.0) == 150'000.0);
}
