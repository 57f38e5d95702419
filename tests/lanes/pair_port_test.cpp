// SPDX-License-Identifier: Apache-2.0
// Both ends of messages on the pair board: alone, and on two threads (also under ThreadSanitizer).

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "actors/ports/pairs/pair_port.hpp"
#include "memory/error.hpp"

using namespace troupe;

namespace {

constexpr std::size_t inlined = pair_slot::inline_bytes;
constexpr std::size_t large = pair_end::shared_from + 5;

std::vector<std::byte> bytes_of(std::size_t count, std::uint64_t seed) {
  std::vector<std::byte> v(count);
  for (std::size_t i = 0; i < count; ++i) v[i] = static_cast<std::byte>((seed * 31 + i * 7 + i / 251) & 0xff);
  return v;
}

/// Message `number` of a lane, both ends.
struct message {
  message(pair_board& board, std::uint64_t number, std::size_t bytes, std::uint64_t received_as = 1)
      : given(bytes_of(bytes, number)),
        got(bytes),
        out(pair_end::of_sender(board.lane(0, 1), number, 1, given.data(), bytes)),
        in(pair_end::of_receiver(board.lane(0, 1), number, received_as, got.data(), bytes)) {}
  std::vector<std::byte> given, got;
  pair_end out, in;
};

}  // namespace

TEST_CASE("a message of any size is taken by its receiver, in whatever order the ends come") {
  heap_memory memory;
  pair_board board(2, memory);
  std::uint64_t number = 0;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{8}, inlined - 1, inlined, inlined + 1,
                                  std::size_t{5000}, pair_end::shared_from - 1, large, 3 * large}) {
    for (const bool receiver_first : {false, true}) {
      CAPTURE(bytes);
      message m(board, number++, bytes);
      if (receiver_first) CHECK(m.in.look() == pair_status::waiting);
      m.out.post();
      CHECK(m.out.look() == pair_status::waiting);
      CHECK(m.out.look() == pair_status::waiting);
      CHECK(m.in.look() == pair_status::performed);
      CHECK(m.out.look() == pair_status::performed);
      CHECK(m.given == m.got);
      CHECK_FALSE(m.in.tells());
      CHECK_FALSE(m.out.tells());
    }
  }
}

TEST_CASE("an offered message is performed by its sender alone") {
  heap_memory memory;
  pair_board board(2, memory);
  std::uint64_t number = 100;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{8}, inlined + 1, large}) {
    message m(board, number++, bytes);
    m.in.offer();
    CHECK(m.in.look() == pair_status::waiting);
    m.out.post();
    CHECK(m.out.look() == pair_status::performed);
    CHECK_FALSE(m.out.tells());
    CHECK(m.given == m.got);
    CHECK(m.in.look() == pair_status::performed);
  }
}

TEST_CASE("an end that does not look is told") {
  heap_memory memory;
  pair_board board(2, memory);
  {
    message m(board, 0, 8);
    m.in.go_away();
    CHECK(m.in.look() == pair_status::waiting);
    m.out.post();
    CHECK(m.out.look() == pair_status::performed);
    CHECK(m.out.tells());
    CHECK_FALSE(m.out.tells());
    CHECK(m.in.look() == pair_status::performed);
  }
  {
    message m(board, 1, 8);
    m.out.post();
    CHECK(m.out.look() == pair_status::waiting);
    m.out.go_away();
    CHECK(m.out.look() == pair_status::waiting);
    CHECK(m.in.look() == pair_status::performed);
    CHECK(m.in.tells());
    CHECK(m.out.look() == pair_status::performed);
  }
}

TEST_CASE("another shape is found by the receiver, which is told of it") {
  heap_memory memory;
  pair_board board(2, memory);
  message m(board, 0, 8, 2);
  m.in.go_away();
  m.out.post();
  CHECK(m.out.look() == pair_status::waiting);
  CHECK(m.out.tells());
  CHECK(m.in.look() == pair_status::mismatch);
  CHECK_FALSE(m.in.close());
  CHECK(m.got == std::vector<std::byte>(8));
}

TEST_CASE("what was closed is performed at neither end, what came before at both") {
  heap_memory memory;
  pair_board board(2, memory);
  message late(board, 0, large);
  late.in.offer();
  CHECK_FALSE(late.in.close());
  CHECK_FALSE(late.in.close());
  late.out.post();
  CHECK(late.out.look() == pair_status::waiting);
  CHECK(late.got == std::vector<std::byte>(large));
  message early(board, 1, 8);
  early.in.offer();
  early.out.post();
  CHECK(early.out.look() == pair_status::performed);
  CHECK(early.in.close());
  CHECK(early.in.close());
  CHECK(early.given == early.got);
}

TEST_CASE("slots are used again, and an older offer is nobody's") {
  heap_memory memory;
  pair_board board(2, memory);
  message old(board, 0, 8);
  old.in.offer();
  CHECK_FALSE(old.in.close());  // refused: its sender has not heard of it yet
  for (std::uint64_t n = 1; n < pair_lane::depth; ++n) {
    message m(board, n, 8);
    m.out.post();
    CHECK(m.in.look() == pair_status::performed);
  }
  message next(board, pair_lane::depth, 8);
  next.in.offer();
  old.out.post();
  CHECK(old.out.look() == pair_status::waiting);
  CHECK(old.out.look() == pair_status::waiting);
  CHECK(next.in.look() == pair_status::waiting);
  next.out.post();
  CHECK(next.out.look() == pair_status::performed);
  CHECK(next.in.look() == pair_status::performed);
  CHECK(next.given == next.got);
}

TEST_CASE("what is left is over at once, and its slot is free when it was taken or refused") {
  heap_memory memory;
  pair_board board(2, memory);
  pair_lane& lane = board.lane(0, 1);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{8}, inlined, inlined + 1, pair_lane::left_bytes}) {
    CAPTURE(bytes);
    REQUIRE(board.make_room(lane));
    const std::uint64_t first = 100 * (bytes + 1) * pair_lane::depth, next = first + pair_lane::depth;
    std::vector<std::byte> given = bytes_of(bytes, 1), got(bytes);
    const auto expected = given;
    auto out = pair_end::of_sender(lane, first, 1, given.data(), bytes, {}, sent_when::copied);
    out.post();
    CHECK(out.left());
    CHECK(out.look() == pair_status::performed);
    CHECK_FALSE(out.tells());
    std::fill(given.begin(), given.end(), std::byte{7});  // its own again
    auto later = pair_end::of_sender(lane, next, 1, given.data(), bytes, {}, sent_when::taken, out.mark());
    later.post();
    CHECK_FALSE(pair_end::was_taken(lane, next % pair_lane::depth, out.mark()));
    CHECK(later.look() == pair_status::waiting);
    later.go_away();
    CHECK(later.look() == pair_status::waiting);
    auto in = pair_end::of_receiver(lane, first, 1, got.data(), bytes);
    SUBCASE("taken") {
      in.go_away();
      CHECK(in.look() == pair_status::performed);
      CHECK(got == expected);
      CHECK(in.tells());  // the sender waits for the slot
    }
    SUBCASE("refused") { later.release_slot(out.mark()); }
    CHECK(later.look() == pair_status::waiting);  // posted now
    auto in_later = pair_end::of_receiver(lane, next, 1, got.data(), bytes);
    CHECK(in_later.look() == pair_status::performed);
    CHECK(in_later.tells());
    CHECK(later.look() == pair_status::performed);
    CHECK(got == given);
  }
}

TEST_CASE("two threads: what is left arrives as it was, and a receiver that is away is told") {
  heap_memory memory;
  pair_board board(2, memory);
  pair_lane& lane = board.lane(0, 1);
  REQUIRE(board.make_room(lane));
  constexpr std::uint64_t count = 20'000;
  const auto size_of_left = [](std::uint64_t n) { return std::array<std::size_t, 4>{8, inlined, 200, 1024}[n % 4]; };
  std::atomic<std::uint64_t> look_receiver{0}, look_sender{0};
  std::thread sender([&] {
    std::array<std::uint64_t, pair_lane::depth> left{};
    std::vector<std::byte> given(1024);
    for (std::uint64_t n = 0; n < count; ++n) {
      std::fill(given.begin(), given.end(), static_cast<std::byte>(n % 251));
      auto out = pair_end::of_sender(lane, n, 1, given.data(), size_of_left(n), {}, sent_when::copied, left[n % 4]);
      out.post();
      bool away = false;
      while (out.look() != pair_status::performed) {
        if (std::exchange(away, true)) {
          while (look_sender.load() < n + 1 - pair_lane::depth) std::this_thread::yield();
        } else if (n % 3 == 0) out.go_away();
        else away = false;
      }
      left[n % 4] = out.mark();
      if (out.tells()) look_receiver.store(n + 1);
    }
  });
  int wrong = 0;
  std::vector<std::byte> got(1024);
  for (std::uint64_t n = 0; n < count; ++n) {
    auto in = pair_end::of_receiver(lane, n, 1, got.data(), size_of_left(n));
    bool away = false;
    while (in.look() != pair_status::performed) {
      if (std::exchange(away, true)) {
        while (look_receiver.load() < n + 1) std::this_thread::yield();
      } else if (n % 5 == 0) in.go_away();
      else away = false;
    }
    if (in.tells()) look_sender.store(n + 1);
    wrong += std::any_of(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(size_of_left(n)),
                         [&](std::byte b) { return b != static_cast<std::byte>(n % 251); });
  }
  sender.join();
  CHECK(wrong == 0);
}

TEST_CASE("lanes are laid down when they are used") {
  heap_memory memory;
  pair_board board(64, memory);
  const std::size_t empty = board.bytes();
  CHECK(empty < 1024);
  pair_lane& one = board.lane(3, 4);
  CHECK(&one == &board.lane(3, 4));
  CHECK(&one != &board.lane(4, 3));
  CHECK(board.bytes() <= empty + 2 * (sizeof(pair_lane) + 64 * sizeof(void*)));
}

// -- two threads ------------------------------------------------------------------------------------------------------------

namespace {

/// What the two ranks would tell each other by messages.
struct post_office {
  std::atomic<std::uint64_t> look_sender{0}, look_receiver{0};
  std::atomic<std::uint64_t> sender_over{0}, receiver_over{0};
  std::vector<std::atomic<bool>> refused;
};

constexpr std::array<std::size_t, 8> sizes{0, 8, 64, inlined, inlined + 1, 4096, large, 4 * large};
std::size_t size_of_message(std::uint64_t n) { return sizes[(n * 2654435761u >> 7) % (n % 5 == 0 ? 8 : 6)]; }

}  // namespace

TEST_CASE("two threads: every message arrives whole or at neither end, and nobody waits in vain") {
  constexpr std::uint64_t count = 4000;
  heap_memory memory;
  pair_board board(2, memory);
  post_office office;
  office.refused = std::vector<std::atomic<bool>>(count);
  std::vector<char> sent(count), received(count);
  std::atomic<int> wrong{0};
  const auto both_over = [&](std::uint64_t n, std::atomic<std::uint64_t>& mine,
                             const std::atomic<std::uint64_t>& other) {
    mine.store(n + 1);
    while (other.load() + pair_lane::depth - 1 < n + 1) std::this_thread::yield();
  };
  std::thread sender([&] {
    std::mt19937 dice(1);
    for (std::uint64_t n = 0; n < count; ++n) {
      const auto data = bytes_of(size_of_message(n), n);
      pair_end end = pair_end::of_sender(board.lane(0, 1), n, 1, data.data(), data.size());
      end.post();
      auto now = end.look();
      const bool away = dice() % 3 == 0;
      for (bool gone = false; now == pair_status::waiting && !office.refused[n].load();) {
        if (end.tells()) office.look_receiver.fetch_add(1);
        if (!away && dice() % 4 == 0) std::this_thread::yield();
        const std::uint64_t told = office.look_sender.load();  // a word about an older message may come late
        if (away && !std::exchange(gone, true)) end.go_away();
        now = end.look();
        while (gone && now == pair_status::waiting && office.look_sender.load() == told && !office.refused[n].load())
          std::this_thread::yield();
      }
      if (end.tells()) office.look_receiver.fetch_add(1);
      sent[n] = now == pair_status::performed ? 1 : 0;
      both_over(n, office.sender_over, office.receiver_over);
    }
  });
  std::thread receiver([&] {
    std::mt19937 dice(2);
    for (std::uint64_t n = 0; n < count; ++n) {
      std::vector<std::byte> got(size_of_message(n));
      pair_end end = pair_end::of_receiver(board.lane(0, 1), n, 1, got.data(), got.size());
      const auto way = dice() % 6;
      if (way == 1) end.offer();
      auto now = end.look();
      for (int looks = 0; now == pair_status::waiting; ++looks) {
        if (end.tells()) office.look_sender.fetch_add(1);
        if ((way == 2 || way == 3) && looks == 3) {
          if (way == 3) end.offer();
          if (end.close()) {
            now = pair_status::performed;
            break;
          }
          office.refused[n].store(true);
          break;
        }
        const std::uint64_t told = office.look_receiver.load();
        if (way == 4 && looks == 2) {
          end.go_away();
          now = end.look();
          while (now == pair_status::waiting && office.look_receiver.load() == told) std::this_thread::yield();
        }
        if (dice() % 4 == 0) std::this_thread::yield();
        if (now == pair_status::waiting) now = end.look();
      }
      if (end.tells()) office.look_sender.fetch_add(1);
      received[n] = now == pair_status::performed ? 1 : 0;
      if (received[n] != 0 && got != bytes_of(got.size(), n)) wrong.fetch_add(1);
      std::fill(got.begin(), got.end(), std::byte{0});  // its caller has it back
      both_over(n, office.receiver_over, office.sender_over);
    }
  });
  sender.join();
  receiver.join();
  CHECK(wrong == 0);
  CHECK(sent == received);
  CHECK(std::count(sent.begin(), sent.end(), 1) > static_cast<std::ptrdiff_t>(count / 2));
}

namespace {

/// As of another process, of which the system lets so many copies be made, and no more.
class few_copies : public process_memory {
public:
  explicit few_copies(int copies) : left_(copies) {}
  bool is_here(rank_t) const noexcept override { return false; }
  std::byte* near(rank_t, std::byte*) override { return nullptr; }
  bool shares(const std::byte*) const noexcept override { return false; }
  std::byte* lend(std::size_t) noexcept override { return nullptr; }
  void take_back(std::byte*) noexcept override {}
  bool is_lost(rank_t) const noexcept override { return false; }
  bool read(rank_t, std::byte* to, const std::byte* from, std::size_t bytes) override { return move(to, from, bytes); }
  bool write(rank_t, std::byte* to, const std::byte* from, std::size_t bytes) override { return move(to, from, bytes); }
  std::string why_refused(rank_t) const override { return "not any more"; }
  bool has_ended(rank_t) override { return false; }
  void end(rank_t) override {}
  std::function<void()> at_the_end = [] {};

private:
  bool move(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (left_.load() == 1) at_the_end();
    if (left_.fetch_sub(1) <= 0) throw error(errc::io, "not any more");
    std::copy_n(from, bytes, to);
    return true;
  }
  std::atomic<int> left_;
};

}  // namespace

TEST_CASE("a unit that cannot be copied any more ends the message, and nobody waits for it") {
  heap_memory memory;
  pair_board board(2, memory);
  std::uint64_t number = 0;
  constexpr std::size_t bytes = 5 * pair_end::far_unit_bytes;
  for (int copies = 0; copies < 5; ++copies)
    for (int by_sender = 0; by_sender <= 1; ++by_sender) {
      CAPTURE(copies);
      CAPTURE(by_sender);
      few_copies others(copies);
      const std::vector<std::byte> given = bytes_of(bytes, number);
      std::vector<std::byte> got(bytes);
      pair_end out = pair_end::of_sender(board.lane(0, 1), number, 1, given.data(), bytes, {&others, 1});
      pair_end in = pair_end::of_receiver(board.lane(0, 1), number, 1, got.data(), bytes, {&others, 0});
      ++number;
      out.post();
      if (by_sender != 0) in.offer();
      CHECK((by_sender != 0 ? out : in).look() == pair_status::failed);
      CHECK((by_sender != 0 ? in : out).look() == pair_status::failed);
      CHECK_FALSE(in.close());
      CHECK_FALSE(out.sent());
    }
  // The slots are as before.
  for (int again = 0; again < 10; ++again) {
    message m(board, number++, bytes);
    m.out.post();
    CHECK(m.in.look() == pair_status::performed);
    CHECK(m.given == m.got);
  }
}

TEST_CASE("what a sender withdraws while it is read is not taken, and is no failure of the receiver's") {
  heap_memory memory;
  pair_board board(2, memory);
  std::uint64_t number = 0;
  for (const std::size_t bytes : {inlined + 1, std::size_t{5000}, 5 * pair_end::far_unit_bytes})
    for (const int copies : {0, 1, 2}) {  // 0: when its memory is gone, too
      const bool units = bytes > pair_end::shared_from;
      if (copies > 1 && !units) continue;
      CAPTURE(bytes);
      CAPTURE(copies);
      few_copies others(copies);
      std::vector<std::byte> given = bytes_of(bytes, number);
      std::vector<std::byte> got(bytes);
      pair_end out = pair_end::of_sender(board.lane(0, 1), number, 1, given.data(), bytes, {&others, 1});
      pair_end in = pair_end::of_receiver(board.lane(0, 1), number, 1, got.data(), bytes, {&others, 0});
      out.post();
      const auto gone = [&] {
        out.withdraw();
        std::fill(given.begin(), given.end(), std::byte{0xee});
      };
      if (copies == 0) gone();
      else others.at_the_end = gone;
      CHECK(in.look() == pair_status::waiting);
      CHECK(in.look() == pair_status::waiting);
      CHECK_FALSE(in.close());
      CHECK_FALSE(out.sent());
      ++number;
    }
}

namespace {

/// As of another process, which maps what it is asked for, but for where this one receives.
class mapped_memory final : public few_copies {
public:
  mapped_memory() : few_copies(std::numeric_limits<int>::max()) {}
  std::byte* near(rank_t of, std::byte* its) override { return of == 0 ? its : nullptr; }
};

/// Pages that nobody has touched: their first writer waits for the system, and is slower than a reader after it.
class new_pages {
public:
  explicit new_pages(std::size_t bytes)
      : bytes_(bytes), at_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    REQUIRE(at_ != MAP_FAILED);
  }
  new_pages(const new_pages&) = delete;
  new_pages& operator=(const new_pages&) = delete;
  ~new_pages() { ::munmap(at_, bytes_); }
  std::byte* get() const { return static_cast<std::byte*>(at_); }

private:
  std::size_t bytes_;
  void* at_;
};

}  // namespace

TEST_CASE("a message is taken from its staging buffer while the sender still copies it there") {
  heap_memory memory;
  pair_board board(2, memory);
  constexpr std::uint64_t count = 60;
  constexpr std::size_t longest = 6 * pair_end::far_unit_bytes;
  mapped_memory others;
  staging_copier copier;
  std::atomic<std::uint64_t> begun{0}, taken{0}, wrong{0};
  const auto length = [](std::uint64_t n) {
    return pair_end::shared_from + n * 7919 % (longest - pair_end::shared_from);
  };
  std::thread receiver([&] {
    for (std::uint64_t n = 0; n < count; ++n) {
      std::vector<std::byte> got(length(n));
      pair_end in = pair_end::of_receiver(board.lane(0, 1), n, 1, got.data(), got.size(), {&others, 0});
      // Some come later than all is there, some earlier than anything, and some go away, for whom the sender copies past the staging buffer.
      while (n % 3 == 0 && begun.load() <= n) std::this_thread::yield();
      for (int looks = 0; in.look() != pair_status::performed; ++looks)
        if (n % 5 == 0 && looks == 20) in.go_away();
      if (got != bytes_of(got.size(), n)) wrong.fetch_add(1);
      taken.store(n + 1);
    }
  });
  for (std::uint64_t n = 0; n < count; ++n) {
    const std::vector<std::byte> given = bytes_of(length(n), n);
    const new_pages staging(longest);
    begun.store(n + 1);
    pair_end out =
        pair_end::of_sender(board.lane(0, 1), n, 1, given.data(), given.size(), {&others, 1, staging.get(), &copier});
    out.post();
    while (out.look() != pair_status::performed) std::this_thread::yield();
    while (taken.load() <= n) std::this_thread::yield();
  }
  receiver.join();
  CHECK(wrong == 0);
}

namespace {

/// As of another process whose memory is mapped, but comes slowly; what the system copies does not.
class slow_mapping final : public few_copies {
public:
  std::byte* near(rank_t of, std::byte* its) override {
    if (of != 0 || its < staging.data() || its >= staging.data() + staging.size()) return nullptr;
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
    return its;
  }
  explicit slow_mapping(std::size_t bytes) : few_copies(std::numeric_limits<int>::max()), staging(bytes) {}
  std::vector<std::byte> staging;
};

/// How many of 60 messages are staged when it is tried whether the system is faster. @param away so is the receiver, each time
int staged_messages(std::size_t bytes, bool away) {
  heap_memory memory;
  pair_board board(2, memory);
  slow_mapping others(bytes);
  staging_copier copier;
  way_trials trials;
  const std::vector<std::byte> given = bytes_of(others.staging.size(), 1);
  int staged = 0;
  for (std::uint64_t n = 0; n < 60; ++n) {
    std::vector<std::byte> got(given.size());
    std::byte* const staging = trials.takes_second(true) ? others.staging.data() : nullptr;
    staged += staging != nullptr ? 1 : 0;
    pair_end in = pair_end::of_receiver(board.lane(0, 1), n, 1, got.data(), got.size(), {&others, 0});
    pair_end out = pair_end::of_sender(board.lane(0, 1), n, 1, given.data(), given.size(),
                                       {&others, 1, staging, &copier, &trials});
    if (away) in.go_away();
    out.post();
    if (away) static_cast<void>(out.look());
    // Of a long message the receiver takes a unit, and the sender, if the system copies, the others.
    while (in.look() != pair_status::performed) static_cast<void>(out.look());
    CHECK(out.look() == pair_status::performed);
    CHECK(got == given);
  }
  return staged;
}

}  // namespace

TEST_CASE("a sender finds out that its messages are taken sooner without a staging buffer") {
  for (const std::size_t bytes : {pair_end::unit_bytes, 2 * pair_end::far_unit_bytes}) {
    CAPTURE(bytes);
    CHECK(staged_messages(bytes, false) < 40);
    // Who writes to the memory of a receiver that is away learns nothing about how fast one reads.
    CHECK(staged_messages(bytes, true) > 50);
  }
}

TEST_CASE(
    "between processes a message of any size is taken, or found to be another one, whoever comes first and goes away") {
  heap_memory memory;
  pair_board board(2, memory);
  pair_lane& lane = board.lane(0, 1);
  REQUIRE(board.make_room(lane));
  enum class first { sender, receiver, receiver_away, sender_then_offer };
  std::uint64_t number = 0;
  mapped_memory others;
  staging_copier copier;
  for (const bool staged : {false, true})
    for (const sent_when over : {sent_when::taken, sent_when::copied})
      for (const first order : {first::sender, first::receiver, first::receiver_away, first::sender_then_offer})
        for (const std::size_t bytes : {std::size_t{8}, std::size_t{500}, std::size_t{5000}, std::size_t{200'000}})
          for (const std::size_t wanted : {bytes, std::size_t{9}, std::size_t{300'000}}) {
            if (over == sent_when::copied && (staged || bytes > pair_lane::left_bytes)) continue;
            if (staged && bytes <= inlined) continue;
            CAPTURE(staged);
            CAPTURE(static_cast<int>(over));
            CAPTURE(static_cast<int>(order));
            CAPTURE(bytes);
            CAPTURE(wanted);
            const std::vector<std::byte> given = bytes_of(bytes, number);
            std::vector<std::byte> got(wanted), staging(bytes);
            pair_end in = pair_end::of_receiver(lane, number, wanted, got.data(), wanted, {&others, 0});
            pair_end out = pair_end::of_sender(lane, number, bytes, given.data(), bytes,
                                               {&others, 1, staged ? staging.data() : nullptr, &copier}, over);
            number += pair_lane::depth;  // always the same slot, as its words are those of the message before
            if (order == first::receiver) CHECK(in.look() == pair_status::waiting);
            if (order == first::receiver) in.offer();
            if (order == first::receiver_away) in.go_away();
            out.post();
            if (order == first::sender_then_offer) in.offer();
            pair_status now = in.look();
            for (int looks = 0; looks < 4 && now == pair_status::waiting; ++looks) {
              static_cast<void>(out.look());
              now = in.look();
            }
            if (wanted == bytes) {
              CHECK(now == pair_status::performed);
              CHECK(out.look() == pair_status::performed);
              CHECK(got == given);
            } else {
              CHECK(now == pair_status::mismatch);
              CHECK_FALSE(in.close());
            }
          }
}
