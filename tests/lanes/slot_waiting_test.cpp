// SPDX-License-Identifier: Apache-2.0
// Sleeping for slots: no wake-up is lost, and every wait can be ended.

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#if defined(__linux__) && defined(__x86_64__)
#include <cerrno>
#include <cstddef>
#include <iterator>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

#include "tests/lanes/slot_helpers.hpp"
#include "tests/seed.hpp"

namespace slot_waiting_test {

using namespace slot_test;
using slot_test::operation;  // not the rank's
using namespace std::chrono_literals;

namespace {

// A lost wake-up would hang for ever; this turns it into a failure. Never reached by a correct run.
constexpr auto hang = 30s;

struct watch final : slot_watch {
  bool stop() noexcept override { return stopped.load(std::memory_order_acquire); }
  void impatient() override { asked.fetch_add(1, std::memory_order_relaxed); }
  std::atomic<bool> stopped{false};
  std::atomic<int> asked{0};
};

/// Sleeps at once, and for long: a lost wake-up is not saved by patience.
slot_wait_options sleepy(int spin) {
  slot_wait_options options;
  options.spin = spin;
  options.yields = 0;
  options.patience = 2 * hang;
  options.deadline = std::chrono::steady_clock::now() + hang;
  return options;
}

#if defined(__linux__) && defined(__x86_64__)
/// For the calling thread, and for ever. False: not possible here.
bool refuse_membarrier() {
  sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog filter{std::size(code), code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}
#endif

void random_delay(std::minstd_rand& random) {
  switch (random() % 16) {
    case 0: std::this_thread::yield(); break;
    case 1: std::this_thread::sleep_for(std::chrono::microseconds(random() % 60)); break;
    default:
      for (auto turns = random() % 400; turns > 0; --turns) std::atomic_signal_fence(std::memory_order_seq_cst);
  }
}

/// Every thread performs `ranks_each` ranks through `rounds` operations of random kind (the same at all ranks).
void stress(int threads, int ranks_each, std::uint64_t rounds, bool membarrier) {
  const int ranks = threads * ranks_each;
  slot_board board{ranks, membarrier};
  std::vector<operation> kinds;
  for (const collective c :
       {collective::all_reduce, collective::barrier, collective::broadcast, collective::reduce, collective::all_to_all})
    for (const slot_format format : {slot_format::ll, slot_format::ll128})
      kinds.emplace_back("one_shot", flat_setup(c, ranks), format == slot_format::ll ? 3 : 60, format);
  kinds.emplace_back("double_binary_tree", flat_setup(collective::all_reduce, ranks), 20, slot_format::ll128);
  std::atomic<std::size_t> wrong{0}, unfinished{0};
  const auto act = [&](int thread) {
    std::mt19937_64 common{seed()};
    std::minstd_rand own{static_cast<unsigned>(seed() + static_cast<unsigned>(thread))};
    std::vector<std::unique_ptr<player>> players;
    std::vector<board_performer*> performers;
    for (int k = 0; k < ranks_each; ++k) {
      players.push_back(std::make_unique<player>(board, static_cast<rank_t>(thread * ranks_each + k)));
      performers.push_back(&players.back()->performs);
    }
    for (std::uint64_t e = 0; e < rounds; ++e) {
      const operation& what = kinds[common() % kinds.size()];
      for (auto& p : players) p->start(what, e);
      random_delay(own);
      if (wait_slots(performers, sleepy(static_cast<int>(own() % 30))).how != slot_wait_result::ended::performed) {
        unfinished.fetch_add(1);
        return;
      }
      for (auto& p : players) wrong += p->wrong(what);
    }
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(act, t);
  act(0);
  for (auto& t : others) t.join();
  CHECK(wrong.load() == 0);
  CHECK(unfinished.load() == 0);
}

}  // namespace

TEST_CASE("slots: a wake-up that comes before the sleep is kept") {
  for (const bool membarrier : {true, false}) {
    slot_board board{3, membarrier};
    const auto limit = std::chrono::steady_clock::now() + hang;
    {
      slot_board::sleep s{board, 1};
      s.announce(1, 2);
      s.announce(0, slot_board::anybody);
      s.fence();
      board.notify(1, 0);  // not whom it waits for
      CHECK_FALSE(s.woken());
      board.notify(1, 2);
      CHECK(s.woken());
      s.until(limit);  // at once
    }
    {
      slot_board::sleep s{board, 1};
      s.announce(0, slot_board::anybody);
      s.want_finished(2);
      s.fence();
      board.finish(1, 4);
      CHECK_FALSE(s.woken());
      board.finish(2, 4);
      CHECK(s.woken());
      s.until(limit);
    }
    {
      slot_board::sleep s{board, 2};
      s.announce(0, 1);
      s.fence();
      board.wake(0);
      s.until(limit);
    }
    slot_board::sleep s{board, 2};
    s.announce(2, slot_board::anybody);
    board.notify(0, 2);  // nobody sleeps for 0 any more
    CHECK_FALSE(s.woken());
    CHECK(std::chrono::steady_clock::now() < limit);
  }
}

namespace {

/// Of two threads that meet again and again, within nanoseconds.
constexpr std::uint64_t meetings = 30000;
struct alignas(128) shared_word {
  std::atomic<std::uint64_t> value{0};
};
/// Looks eagerly; yields in case they share a core.
void reached(const shared_word& word, std::uint64_t i) {
  for (int looks = 0; word.value.load(std::memory_order_acquire) < i; ++looks)
    if (looks > 2000) std::this_thread::yield();
}
void hesitate(std::minstd_rand& random) {
  for (auto turns = random() % 256; turns > 0; --turns) std::atomic_signal_fence(std::memory_order_seq_cst);
}

}  // namespace

TEST_CASE("slots: a sleeper sees what was written or is woken, in every one of many meetings") {
  for (const bool membarrier : {true, false}) {
    slot_board board{2, membarrier};
    shared_word slot, begun, ended;
    std::thread writer{[&] {
      std::minstd_rand random{static_cast<unsigned>(seed())};
      for (std::uint64_t i = 1; i <= meetings; ++i) {
        reached(begun, i);
        hesitate(random);
        slot.value.store(i, std::memory_order_release);
        board.notify(0, 1);
        ended.value.store(i, std::memory_order_release);
      }
    }};
    std::minstd_rand random{static_cast<unsigned>(seed()) + 1};
    std::uint64_t lost = 0, seen_early = 0, woken = 0;
    for (std::uint64_t i = 1; i <= meetings; ++i) {
      slot_board::sleep s{board, 0};
      begun.value.store(i, std::memory_order_release);
      hesitate(random);
      hesitate(random);
      s.announce(0, 1);
      s.fence();
      const bool seen = slot.value.load(std::memory_order_acquire) == i;
      reached(ended, i);
      lost += !seen && !s.woken() ? 1 : 0;
      seen_early += seen ? 1 : 0;
      woken += s.woken() ? 1 : 0;
    }
    writer.join();
    CHECK(lost == 0);
    const std::string kind = board.uses_membarrier() ? "membarrier" : "fences";
    MESSAGE(kind, ": ", meetings, " meetings, ", seen_early, " saw, ", woken, " were woken");
  }
}

TEST_CASE("slots: who sleeps for messages is woken by no slot, and sees them when it has said that it sleeps no more") {
  slot_board board{2};
  CHECK_FALSE(board.wake_from_messages(0));  // nobody sleeps
  {
    slot_board::sleep for_slots{board, 0};
    for_slots.announce(0, slot_board::anybody);
    CHECK_FALSE(board.wake_from_messages(0));
    CHECK_FALSE(for_slots.woken());
  }
  {
    slot_board::sleep for_messages{board, 0};
    for_messages.announce(0, slot_board::no_writer);
    board.notify(0, 1);
    CHECK_FALSE(for_messages.woken());
    CHECK(board.wake_from_messages(0));
    CHECK(for_messages.woken());
    for_messages.until(std::chrono::steady_clock::now() + hang);  // not for that long
  }
  {
    slot_board::sleep for_messages{board, 0};
    for_messages.announce(0, slot_board::no_writer);
    board.wake(0);  // as a message to its rank does
    CHECK(for_messages.woken());
  }
  CHECK_FALSE(board.wake_from_messages(0));
  // Many meetings of a sleeper that goes again at any moment and one that has something for it. There is no fence: where the teller finds it
  // asleep, the sleeper is woken, or sees it afterwards; else it is left a word, which needs no proof here.
  shared_word message, begun, ended;
  std::atomic<bool> found{false};
  std::thread teller{[&] {
    std::minstd_rand random{static_cast<unsigned>(seed())};
    for (std::uint64_t i = 1; i <= meetings; ++i) {
      reached(begun, i);
      hesitate(random);
      if (i % 1024 == 0) std::this_thread::sleep_for(1ms);  // the sleeper of this one sleeps by then
      message.value.store(i, std::memory_order_release);
      const bool asleep = board.wake_from_messages(0);
      if (!asleep) board.wake(0);  // the word
      found.store(asleep, std::memory_order_relaxed);
      ended.value.store(i, std::memory_order_release);
    }
  }};
  std::minstd_rand random{static_cast<unsigned>(seed()) + 1};
  std::uint64_t lost = 0, times_found = 0, woken = 0, slept = 0, hung = 0;
  for (std::uint64_t i = 1; i <= meetings; ++i) {
    bool sees = false, was_woken = false;
    {
      slot_board::sleep s{board, 0};
      begun.value.store(i, std::memory_order_release);
      hesitate(random);
      s.announce(0, slot_board::no_writer);
      sees = message.value.load(std::memory_order_acquire) == i;
      hesitate(random);
      if (!sees && i % 64 == 0) {
        ++slept;
        const auto limit = std::chrono::steady_clock::now() + hang;
        while (!s.woken() && std::chrono::steady_clock::now() < limit) s.until(limit);
        hung += s.woken() ? 0 : 1;
      }
      was_woken = s.woken();
    }
    sees = sees || message.value.load(std::memory_order_acquire) == i;
    reached(ended, i);
    const bool said = found.load(std::memory_order_relaxed);
    lost += said && !sees && !was_woken ? 1 : 0;
    times_found += said ? 1 : 0;
    woken += was_woken ? 1 : 0;
  }
  teller.join();
  CHECK(lost == 0);
  CHECK(hung == 0);
  MESSAGE(meetings, " meetings, ", times_found, " found the sleeper, ", woken, " of them woke it, ", slept, " sleeps");
}

TEST_CASE("slots: no wake-up is lost between two threads") {
  stress(2, 1, 4000, true);
  stress(2, 1, 4000, false);
}

TEST_CASE("slots: no wake-up is lost among more threads than cores, one or several ranks each") {
  stress(6, 1, 600, true);
  stress(6, 1, 600, false);
  stress(3, 3, 500, true);
}

TEST_CASE("slots: one thread drives eight ranks without ever sleeping") { stress(1, 8, 500, true); }

TEST_CASE("slots: a sleeper is released by its watch") {
  for (const bool membarrier : {true, false})
    for (int round = 0; round < 50; ++round) {
      slot_board board{2, membarrier};
      const operation what{"one_shot", flat_setup(collective::all_reduce, 2), 1, slot_format::ll128};
      watch w;
      slot_wait_result result;
      std::thread waiter{[&] {
        player p{board, 0};
        p.start(what, 0);
        auto options = sleepy(0);
        options.watch = &w;
        result = wait_slots(p.performs, options);
        CHECK_FALSE(p.performs.idle());
        p.performs.abandon();
      }};
      std::minstd_rand random{static_cast<unsigned>(seed()) + static_cast<unsigned>(round)};
      random_delay(random);
      w.stopped.store(true, std::memory_order_release);
      board.wake(0);
      waiter.join();
      CHECK(result.how == slot_wait_result::ended::stopped);
      CHECK(board.done(0) == 1);
    }
}

/// Gives up when its patience was asked for.
struct asked_once final : slot_watch {
  int asked = 0;
  bool stop() noexcept override { return asked > 0; }
  void impatient() override { ++asked; }
};

TEST_CASE("slots: patience asks on the way, a deadline ends the wait, and the wait can go on") {
  slot_board board{2};
  const operation what{"one_shot", flat_setup(collective::all_reduce, 2), 1, slot_format::ll128};
  player p{board, 0}, q{board, 1};
  p.start(what, 0);
  asked_once w;
  slot_wait_options options;
  options.spin = 0;
  options.watch = &w;
  options.patience = 1ms;
  CHECK(wait_slots(p.performs, options).how == slot_wait_result::ended::stopped);
  CHECK(w.asked == 1);
  options.watch = nullptr;
  options.deadline = std::chrono::steady_clock::now() + 20ms;
  CHECK(wait_slots(p.performs, options).how == slot_wait_result::ended::timed_out);
  CHECK(std::chrono::steady_clock::now() >= options.deadline);
  q.start(what, 0);
  CHECK(q.performs.advance() == slot_performer::status::performed);
  CHECK(wait_slots(p.performs, sleepy(0)).how == slot_wait_result::ended::performed);
  CHECK(p.wrong(what) == 0);
}

TEST_CASE("slots: a waiting root is woken by a receiver that has finished") {
  for (const bool membarrier : {true, false}) {
    slot_board board{3, membarrier};
    const operation what{"one_shot", flat_setup(collective::broadcast, 3), 30, slot_format::ll128};
    std::vector<std::thread> threads;
    std::array<std::size_t, 3> wrong{};
    std::atomic<int> unfinished{0};
    for (rank_t r = 0; r < 3; ++r)
      threads.emplace_back([&, r] {
        player p{board, r};
        std::minstd_rand random{static_cast<unsigned>(seed()) + static_cast<unsigned>(r)};
        for (std::uint64_t e = 0; e < 800; ++e) {
          p.start(what, e);
          if (r != 0) random_delay(random);
          if (wait_slots(p.performs, sleepy(0)).how != slot_wait_result::ended::performed) {
            ++unfinished;
            return;
          }
          wrong[static_cast<std::size_t>(r)] += p.wrong(what);
        }
      });
    for (auto& t : threads) t.join();
    CHECK(unfinished.load() == 0);
    CHECK(wrong[0] + wrong[1] + wrong[2] == 0);
  }
}

TEST_CASE("slots: a sleeper that lacks several credits is woken by each of them") {
  // Both trees' lanes of the root stand still, each for another child.
  const operation what{"double_binary_tree", flat_setup(collective::broadcast, 4), 8, slot_format::ll128, {2, 1}};
  const auto credits = [&](const player& p) {
    std::vector<rank_t> from;
    for (const lane_wait& w : p.performs.waits())
      if (w.why == lane_wait::reason::credit) from.push_back(w.peer);
    return from;
  };
  for (std::size_t which = 0;; ++which) {
    slot_board board{4};
    player root{board, 0};
    for (std::uint64_t e = 0; e < 3; ++e) {
      root.start(what, e);
      root.performs.advance();
    }
    const std::vector<rank_t> lacking = credits(root);
    REQUIRE(lacking.size() >= 2);
    REQUIRE(lacking[0] != lacking[1]);
    if (which == lacking.size()) break;
    slot_board::sleep s{board, 0};
    root.performs.announce(s);
    s.fence();
    board.finish(lacking[which], 0);
    CHECK(s.woken());
  }
}

#if defined(__linux__) && defined(__x86_64__)
TEST_CASE("slots: a sleep ends though its membarrier is refused, and later boards do without") {
  slot_board board{2};
  if (!board.uses_membarrier()) return;
  // A filter on this thread alone. Nobody will wake it, and it has no deadline: a writer may have missed the announcement.
  bool filtered = false, returned = false;
  std::thread{[&] {
    filtered = refuse_membarrier();
    if (!filtered) return;
    slot_board::sleep s{board, 0};
    s.announce(0, 1);
    s.fence();
    s.until(std::chrono::steady_clock::time_point::max());
    returned = true;
  }}.join();
  if (!filtered) {
    MESSAGE("no system call filter can be set here: skipped");
    return;
  }
  CHECK(returned);
  CHECK_FALSE(slots_have_membarrier());
  CHECK_FALSE(slot_board{2}.uses_membarrier());
}
#endif

TEST_CASE(
    "slots: a rank that has heard of all on its core waits for other cores, where nobody waits for others to send") {
  for (const std::string_view which : {"one_shot", "recursive_doubling", "ring"}) {
    CAPTURE(which);
    slot_board board{4};
    const operation what{which, flat_setup(collective::all_reduce, 4), 1, slot_format::ll128};
    std::vector<std::unique_ptr<player>> players;
    for (rank_t r = 0; r < 4; ++r) {
      players.push_back(std::make_unique<player>(board, r));
      board.cores().note(r, r / 2);
    }
    const auto begin = [&](rank_t r) {
      players[static_cast<std::size_t>(r)]->start(what, 0);
      players[static_cast<std::size_t>(r)]->performs.advance();
    };
    const auto waits_elsewhere = [&](rank_t r) {
      board_performer& p = players[static_cast<std::size_t>(r)]->performs;
      REQUIRE(p.advance() == board_performer::status::waiting);
      return p.waits_for_other_cores();
    };
    const bool at_once = which == "one_shot";
    begin(1);
    CHECK_FALSE(waits_elsewhere(1));
    begin(2);
    CHECK_FALSE(waits_elsewhere(1));
    CHECK_FALSE(waits_elsewhere(2));
    begin(0);
    CHECK(waits_elsewhere(1) == at_once);
    CHECK(waits_elsewhere(0) == at_once);
    CHECK_FALSE(waits_elsewhere(2));
    board.cores().note(2, 5);
    board.cores().note(3, 0);
    CHECK_FALSE(waits_elsewhere(0));
    CHECK(waits_elsewhere(2) == at_once);
    begin(3);
    for (int turns = 0; turns < 4; ++turns)
      for (auto& p : players) p->performs.advance();
    for (auto& p : players) CHECK(p->wrong(what) == 0);
  }
}

TEST_CASE("slots: a rank that lacks a credit does not wait for other cores, nor does one whose peers nobody has seen") {
  slot_board board{3};
  const operation first{"one_shot", flat_setup(collective::broadcast, 3), 1, slot_format::ll128};
  const operation next{"one_shot", flat_setup(collective::all_reduce, 3), 1, slot_format::ll128};
  player root{board, 0};
  for (std::uint64_t e = 0; e < 2; ++e) {
    root.start(first, e);
    REQUIRE(root.performs.advance() == board_performer::status::performed);
  }
  root.start(next, 2);
  for (const rank_t r : {0, 1, 2}) board.cores().note(r, r == 0 ? 0 : 1);
  REQUIRE(root.performs.advance() == board_performer::status::waiting);
  CHECK_FALSE(root.performs.waits_for_other_cores());
  root.performs.abandon();
  for (const bool seen : {false, true}) {
    slot_board other{3};
    for (const rank_t r : {0, 1, 2})
      if (r != 2 || seen) other.cores().note(r, r == 0 ? 0 : 1);
    player one{other, 0};
    one.start(next, 0);
    REQUIRE(one.performs.advance() == board_performer::status::waiting);
    CHECK(one.performs.waits_for_other_cores() == seen);
    one.performs.abandon();
  }
}

namespace {
/// Never done; says that it waits for other cores as often as it is told.
class endless final : public board_performer {
public:
  endless(slot_board& board, rank_t rank) : board_performer(board, rank) {}
  status advance() override { return ++looks, status::waiting; }
  void abandon() override {}
  bool idle() const override { return false; }
  bool waits_for_other_cores() const override { return elsewhere; }
  std::vector<lane_wait> waits() const override { return {}; }
  void announce(slot_board::sleep& to) const override { to.announce(rank_, slot_board::anybody); }
  std::size_t steps_taken() const override { return 0; }

  bool elsewhere = true;
  int looks = 0;
};
}  // namespace

TEST_CASE(
    "slots: a wait looks in vain before it yields only where it waits for other cores, and asks for none of several") {
  slot_board board{2};
  const auto looks = [&](bool elsewhere, std::size_t performers) {
    endless one{board, 0}, other{board, 1};
    one.elsewhere = other.elsewhere = elsewhere;
    board_performer* const both[] = {&one, &other};
    slot_wait_options how;
    how.spin = 0;
    how.yields = 0;
    how.beside = 10;
    how.deadline = std::chrono::steady_clock::now();
    CHECK(wait_slots({both, performers}, how).how == slot_wait_result::ended::timed_out);
    return one.looks;
  };
  const int least = looks(false, 1);
  CHECK(looks(true, 1) == least + 10);
  CHECK(looks(true, 2) == least);
}

TEST_CASE("slots: a wait names the performer that met another call") {
  slot_board board{2};
  const operation what{"one_shot", flat_setup(collective::all_reduce, 2), 1, slot_format::ll128};
  player p{board, 0}, q{board, 1};
  p.start(what, 0, 1);
  q.start(what, 0, 2);
  board_performer* const both[] = {&p.performs, &q.performs};
  const auto result = wait_slots(both);
  CHECK(result.how == slot_wait_result::ended::mismatch);
  REQUIRE(result.index >= 0);
  CHECK(both[result.index]->suspect() == 1 - result.index);
}

}  // namespace slot_waiting_test
