// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/link/byte_ring.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory/error.hpp"

using namespace troupe::actors;

namespace {

struct both {
  byte_ring writer = byte_ring::make();
  byte_ring reader = byte_ring::take(descriptor{::dup(writer.get())});
};

}  // namespace

TEST_CASE("bytes come out as they went in, round the end and up to the brim") {
  both ring;
  std::vector<std::byte> some(100'003), got(100'003);
  std::uint8_t next = 0, expected = 0;
  for (int round = 0; round < 50; ++round) {
    for (std::byte& b : some) b = std::byte{next++};
    const std::size_t first = ring.writer.write(some.data(), some.size());
    CHECK(first == some.size());
    CHECK_FALSE(ring.writer.publish());
    CHECK_FALSE(ring.reader.empty());
    std::size_t n = 0;
    while (n < some.size()) n += ring.reader.read(got.data() + n, 777);
    CHECK_FALSE(ring.reader.give_back());
    bool right = n == some.size();
    for (const std::byte b : got) right = right && b == std::byte{expected++};
    CHECK(right);
    CHECK(ring.reader.empty());
  }
  std::vector<std::byte> much(byte_ring::capacity + 1);
  CHECK(ring.writer.write(much.data(), much.size()) == byte_ring::capacity);
  CHECK(ring.writer.write(much.data(), 1) == 0);
  CHECK_FALSE(ring.writer.ask_for_room());
  static_cast<void>(ring.writer.publish());
  CHECK(ring.reader.read(much.data(), 5) == 5);
  CHECK(ring.reader.give_back());  // the writer is to be rung awake
  CHECK(ring.writer.write(much.data(), 9) == 5);
}

TEST_CASE("bytes that are read soon come through the first pages of the memory alone") {
  both ring;
  const int memory = ring.writer.get();
  const auto* const bytes =
      static_cast<std::byte*>(::mmap(nullptr, 256 + byte_ring::capacity, PROT_READ, MAP_SHARED, memory, 0)) + 256;
  std::vector<std::byte> some(3000), got(3000);
  std::uint8_t next = 1;
  std::size_t wrong = 0;
  const auto pass_on = [&](std::size_t n, std::size_t parts) {
    for (std::size_t i = 0; i < n; ++i) some[i] = std::byte{next = static_cast<std::uint8_t>(next % 255 + 1)};
    for (std::size_t part = 0; part < parts; ++part) {
      const std::size_t from = n * part / parts, to = n * (part + 1) / parts;
      wrong += ring.writer.write(some.data() + from, to - from) != to - from;
    }
    static_cast<void>(ring.writer.publish());
    wrong += ring.reader.read(got.data(), got.size()) != n;
    static_cast<void>(ring.reader.give_back());
    for (std::size_t i = 0; i < n; ++i) wrong += some[i] != got[i];
  };
  for (std::size_t i = 0; i < 5000; ++i) pass_on(1 + i * 7 % 2999, 1 + i % 3);
  CHECK(wrong == 0);
  const auto touched = [&](std::size_t from) {
    return std::count_if(bytes + from, bytes + byte_ring::capacity, [](std::byte b) { return b != std::byte{}; });
  };
  CHECK(touched(byte_ring::far_enough + 3000) == 0);
  CHECK(touched(0) > 0);
  // A reader that is behind is never skipped over, and all of the room is there although the writer has started over.
  std::vector<std::byte> much(byte_ring::capacity);
  std::size_t in_use = 0;
  while (ring.writer.write(some.data(), 3000) == 3000) in_use += 3000;
  static_cast<void>(ring.writer.publish());
  CHECK(in_use + 3000 > byte_ring::capacity);
  std::size_t there = 0;
  while (const std::size_t now = ring.reader.read(much.data(), 1000)) there += now;
  CHECK(there == byte_ring::capacity);
  CHECK_FALSE(ring.reader.broken());
  CHECK_FALSE(ring.writer.broken());
  ::munmap(const_cast<std::byte*>(bytes - 256), 256 + byte_ring::capacity);
}

TEST_CASE("a reader that sleeps is rung awake once, and never sleeps beside bytes") {
  both ring;
  const std::byte one{1};
  CHECK_FALSE(ring.reader.fall_asleep());
  static_cast<void>(ring.writer.write(&one, 1));
  CHECK(ring.writer.publish());
  static_cast<void>(ring.writer.write(&one, 1));
  CHECK_FALSE(ring.writer.publish());
  CHECK(ring.reader.fall_asleep());
}

TEST_CASE("numbers that cannot be are noticed by either side") {
  both ring;
  // The counters are the first words of their lines.
  auto* const words = static_cast<std::atomic<std::uint64_t>*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ring.writer.get(), 0));
  std::array<std::byte, 8> some{};
  words[0].store(byte_ring::capacity + 1);  // written
  CHECK(ring.reader.read(some.data(), some.size()) == 0);
  CHECK(ring.reader.broken());
  words[128 / 8].store(5);  // read: more than was ever written
  static_cast<void>(ring.writer.write(some.data(), some.size()));
  CHECK(ring.writer.broken());
  ::munmap(words, 4096);
  // A count of long ago, where the writer began, or where it started over.
  for (const bool after_a_skip : {false, true}) {
    CAPTURE(after_a_skip);
    both other;
    auto* const counts = static_cast<std::atomic<std::uint64_t>*>(
        ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, other.writer.get(), 0));
    std::vector<std::byte> much(200'000);
    const auto pass_on = [&](std::size_t written, std::size_t read) {
      CHECK(other.writer.write(much.data(), written) == written);
      static_cast<void>(other.writer.publish());
      CHECK(other.reader.read(much.data(), read) == read);
      static_cast<void>(other.reader.give_back());
    };
    const std::uint64_t old = after_a_skip ? 100'000 : 0;
    if (after_a_skip) pass_on(old, old);
    pass_on(much.size(), much.size() - 1);
    CHECK(other.writer.write(much.data(), much.size()) == much.size());
    counts[128 / 8].store(old);
    CHECK(other.writer.write(much.data(), much.size()) < much.size());
    CHECK(other.writer.broken());
    ::munmap(counts, 4096);
  }
}

TEST_CASE("memory that could shrink, or has another size, is not taken") {
  descriptor loose{::memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  REQUIRE(::ftruncate(loose.get(), 4096) == 0);
  CHECK_THROWS_AS(byte_ring::take(descriptor{::dup(loose.get())}), troupe::error);
  byte_ring ring = byte_ring::make();
  CHECK(::ftruncate(ring.get(), 4096) != 0);
}

TEST_CASE("two threads, either of which sleeps now and then, lose neither a byte nor a wake-up") {
  both ring;
  constexpr std::size_t total = 40'000'000;
  std::array<std::atomic<int>, 2> bells{};  // reader's, writer's
  const auto wait_for = [](std::atomic<int>& bell) {
    while (bell.exchange(0) == 0) std::this_thread::yield();
  };
  std::thread writer([&] {
    std::vector<std::byte> some(9000);
    std::size_t sent = 0;
    for (std::size_t want = 1; sent < total; want = want * 7 % 8999 + 1) {
      const std::size_t now = std::min(want, total - sent);
      for (std::size_t i = 0; i < now; ++i) some[i] = static_cast<std::byte>((sent + i) * 31 >> 3);
      for (std::size_t done = 0; done < now;) {
        done += ring.writer.write(some.data() + done, now - done);
        if (ring.writer.publish()) bells[0].store(1);
        if (done < now && !ring.writer.ask_for_room()) wait_for(bells[1]);
      }
      sent += now;
    }
  });
  std::vector<std::byte> some(5000);
  std::size_t got = 0, wrong = 0;
  while (got < total) {
    const std::size_t now = ring.reader.read(some.data(), some.size());
    for (std::size_t i = 0; i < now; ++i) wrong += some[i] != static_cast<std::byte>((got + i) * 31 >> 3) ? 1u : 0u;
    got += now;
    if (now > 0 && ring.reader.give_back()) bells[1].store(1);
    if (now == 0 && !ring.reader.fall_asleep()) wait_for(bells[0]);
  }
  writer.join();
  CHECK(wrong == 0);
  CHECK_FALSE(ring.reader.broken());
}
