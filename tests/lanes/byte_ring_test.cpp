// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/link/byte_ring.hpp"

#include <doctest/doctest.h>

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
