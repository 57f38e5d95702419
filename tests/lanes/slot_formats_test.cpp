// SPDX-License-Identifier: Apache-2.0
// LL and LL128 word by word, and under writers that are held up between the halves of a slot.

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "protocols/program/slot_formats.hpp"
#include "tests/lanes/slot_helpers.hpp"
#include "tests/seed.hpp"

namespace slot_formats_test {

using namespace slot_test;
using slot_test::operation;  // not the rank's

namespace {

std::atomic<std::uint64_t> torn{0};

/// Holds a writer up now and then, long enough for a reader on another core to look.
void hold_up() {
  thread_local std::minstd_rand random{static_cast<unsigned>(seed())};
  torn.fetch_add(1, std::memory_order_relaxed);
  if (random() % 4 != 0) return;
  if (random() % 64 == 0) std::this_thread::yield();
  for (auto turns = random() % 300; turns > 0; --turns) std::atomic_signal_fence(std::memory_order_seq_cst);
}

std::vector<std::byte> random_bytes(std::size_t count, std::mt19937_64& random) {
  std::vector<std::byte> bytes(count);
  for (auto& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

}  // namespace

TEST_CASE("stamps: never 0 or 1, and the same again only after a generation") {
  using namespace slots;
  for (const std::uint64_t s : {std::uint64_t{0}, std::uint64_t{1}, stamps_per_generation - 1, stamps_per_generation,
                                5 * stamps_per_generation + 3})
    CHECK(stamp_of(s) >= 2);
  CHECK(stamp_of(0) == 2);
  CHECK(stamp_of(stamps_per_generation - 1) == 0xffffffffU);
  CHECK(stamp_of(stamps_per_generation) == 2);
  CHECK(generation_of(stamps_per_generation - 1) == 0);
  CHECK(generation_of(stamps_per_generation) == 1);
  CHECK((stamps_per_generation & 1) == 0);  // halves keep alternating across the wrap
}

TEST_CASE("LL: what was written comes out, and nothing is read that is not there") {
  std::mt19937_64 random{seed()};
  alignas(128) std::array<slots::word, 512> memory;
  for (std::size_t bytes = 0; bytes <= 260; ++bytes)
    for (const slots::tear_hook tear : {slots::tear_hook{nullptr}, slots::tear_hook{&hold_up}}) {
      memory.fill(slots::join(7, 0xffffffff));
      const auto data = random_bytes(bytes + 1, random);
      slots::write_slots(memory.data(), data.data(), bytes, 9, tear);
      std::array<std::byte, 512> out{};
      CHECK(slots::read_slots(memory.data(), out.data(), bytes, 8) == 0);
      REQUIRE(slots::read_slots(memory.data(), out.data(), bytes, 9) == bytes);
      CHECK(std::memcmp(out.data(), data.data(), bytes) == 0);
      const std::size_t words = (bytes + 7) / 8 * 2;
      CHECK(memory[words] == slots::join(7, 0xffffffff));
      // A half of a slot is missing: everything before that slot is there, no more.
      if (words == 0) continue;
      const std::size_t missing = random() % words;
      memory[missing] = slots::join(7, static_cast<std::uint32_t>(memory[missing]));
      CHECK(slots::read_slots(memory.data(), out.data(), bytes, 9) == missing / 2 * 8);
    }
}

TEST_CASE("lines: how many a message takes") {
  using enum slot_format;
  CHECK(slots::lines_of(ll128, 0) == 1);
  CHECK(slots::lines_of(ll128, 120) == 1);
  CHECK(slots::lines_of(ll128, 121) == 2);
  CHECK(slots::lines_of(ll, 0) == 1);
  CHECK(slots::lines_of(ll, 56) == 1);
  CHECK(slots::lines_of(ll, 57) == 2);
  CHECK(slots::lines_of(ll, 56 + 64) == 2);
}

TEST_CASE("channel: levels are laid out without gaps or overlap") {
  slot_channel channel;
  CHECK(channel.lines_to_read(0, 2).first == nullptr);
  heap_memory memory;
  channel.reserve(slot_channel::most_lines, memory);
  for (const unsigned parity : {0U, 1U}) {
    std::vector<const slots::word*> seen;
    for (std::size_t line = 0; line < slot_channel::most_lines;) {
      const auto run = channel.lines_to_read(parity, line);
      REQUIRE(run.first != nullptr);
      REQUIRE(run.lines > 0);
      for (std::size_t k = 0; k < run.lines; ++k) {
        CHECK(channel.lines_to_read(parity, line + k).first == run.first + k * slots::line_words);
        seen.push_back(run.first + k * slots::line_words);
      }
      line += run.lines;
    }
    CHECK(seen.size() == slot_channel::most_lines);
    for (std::size_t line = 0; line < 20; ++line)
      CHECK(channel.lines_to_read(parity ^ 1, line).first != channel.lines_to_read(parity, line).first);
    std::sort(seen.begin(), seen.end());
    CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
  }
}

TEST_CASE("torn writes: two threads, writers held up between halves, results stay right") {
  for (const slot_format format : {slot_format::ll, slot_format::ll128})
    for (const std::size_t count : {1U, 5U, 40U}) {
      slot_board board{2};
      board.tear_writes(&hold_up);
      const operation what{"one_shot", flat_setup(collective::all_reduce, 2), count, format};
      const std::uint64_t rounds = 3000 / count;
      std::array<std::size_t, 2> wrong{};
      const auto perform = [&](rank_t r) {
        player p{board, r};
        for (std::uint64_t e = 0; e < rounds; ++e) {
          p.start(what, e);
          slot_wait_options options;
          options.spin = 200;
          (void)wait_slots(p.performs, options);
          wrong[static_cast<std::size_t>(r)] += p.wrong(what);
        }
      };
      torn = 0;
      std::thread other{perform, 1};
      perform(0);
      other.join();
      CHECK(wrong[0] + wrong[1] == 0);
      CHECK(torn.load() >= rounds);
    }
}

}  // namespace slot_formats_test
