// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/segment/host_segment.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors/ports/segment/neighbour.hpp"
#include "actors/ports/segment/segment_table.hpp"
#include "memory/error.hpp"
#include "tests/lanes/slot_helpers.hpp"

namespace host_segment_test {

using namespace slot_test;
using troupe::actors::descriptor;
using troupe::actors::host_segment;

namespace {

/// The same memory as another process would have it: at other addresses.
std::shared_ptr<host_segment> seen_by_another(const host_segment& first) {
  return host_segment::take(descriptor{::fcntl(first.get(), F_DUPFD_CLOEXEC, 0)});
}

}  // namespace

TEST_CASE("segment: the processes of a board order its sleeps alike, as the first of them decides") {
  const auto here = host_segment::make();
  const auto there = seen_by_another(*here);
  constexpr int ranks = 2;
  std::uint64_t name = 100;
  for (const bool crowded : {true, false}) {
    ++name;
    const slot_board first{ranks, here->attach(name, {0, 1}, slot_board::most_bytes(ranks)), crowded};
    const slot_board second{ranks, there->attach(name, {0, 1}, slot_board::most_bytes(ranks)), !crowded};
    CHECK(first.uses_membarrier() == (slots_have_global_membarrier() && !crowded));
    CHECK(second.uses_membarrier() == first.uses_membarrier());
  }
}

TEST_CASE("segment: what one process lays down the others find, and zeros when all have given it back") {
  const auto here = host_segment::make();
  const auto there = seen_by_another(*here);
  constexpr std::size_t bytes = 100'000;
  for (int time = 0; time < 3; ++time) {
    auto mine = here->attach(7, {0, 1}, bytes);
    auto other = there->attach(7, {0, 1}, bytes);
    auto another = there->attach(8, {0, 1}, bytes);
    REQUIRE(mine);
    REQUIRE(other);
    CHECK(here->regions() == 2);
    auto* const a = mine->roots<std::atomic<int>>(3);
    auto* const b = other->roots<std::atomic<int>>(3);
    auto* const c = another->roots<std::atomic<int>>(3);
    CHECK(static_cast<void*>(a) != static_cast<void*>(b));
    CHECK(b[2].load() == 0);
    a[2].store(42);
    CHECK(b[2].load() == 42);
    CHECK(c[2].load() == 0);
    void* const taken = mine->take(64);
    void* const next = other->take(64);
    CHECK(taken != nullptr);
    CHECK(static_cast<std::byte*>(next) - reinterpret_cast<std::byte*>(b) ==
          static_cast<std::byte*>(taken) - reinterpret_cast<std::byte*>(a) + 128);
    CHECK(mine->take(std::size_t{1} << 30) == nullptr);
    mine.reset();
    CHECK(here->regions() == 2);
    CHECK(b[2].load() == 42);
    other.reset();
    CHECK(there->regions() == 1);
    here->attach(8, {0, 1}, bytes).reset();
    another.reset();
    CHECK(there->regions() == 0);
  }
  CHECK(here->attach(9, {0, 1}, std::size_t{1} << 45) == nullptr);
}

TEST_CASE("segment: what is no such memory is refused") {
  const auto file = descriptor{::memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  REQUIRE(::ftruncate(file.get(), 1 << 20) == 0);
  CHECK_THROWS_AS(host_segment::take(descriptor{::fcntl(file.get(), F_DUPFD_CLOEXEC, 0)}), troupe::error);
  const auto unsealed = descriptor{::memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  REQUIRE(::ftruncate(unsealed.get(), off_t{1} << 46) == 0);
  CHECK_THROWS_AS(host_segment::take(descriptor{::fcntl(unsealed.get(), F_DUPFD_CLOEXEC, 0)}), troupe::error);
}

TEST_CASE("segment: more regions than there may be are refused with a sentence, and places are used again") {
  const auto here = host_segment::make();
  std::vector<std::shared_ptr<board_memory>> all;
  for (std::uint64_t id = 1; id <= troupe::actors::segment::most_stretches; ++id)
    all.push_back(here->attach(id, {0}, 1000));
  CHECK_THROWS_WITH_AS(static_cast<void>(here->attach(1'000'000, {0}, 1000)),
                       doctest::Contains("communicators and buffers between the processes"), troupe::error);
  all.clear();
  CHECK(here->regions() == 0);
  for (std::uint64_t id = 1; id <= 100'000; ++id)
    if (!here->attach(id, {0}, 1000)) FAIL("no room, though everything was given back");
}

#if !defined(TROUPE_SLOTS_UNDER_TSAN)
TEST_CASE("segment: it is no larger than a process's files may be") {
  for (const auto& each : {std::pair<rlim_t, int>{100'000, -1}, {16 << 20, 1}}) {
    const rlim_t limit = each.first;
    const int regions = each.second;
    CAPTURE(limit);
    const pid_t child = ::fork();
    if (child == 0) {
      const rlimit small{limit, limit};
      ::setrlimit(RLIMIT_FSIZE, &small);
      int found = 0;
      try {
        const auto here = host_segment::make();
        for (std::uint64_t id = 1; id < 20 && here->attach(id, {0}, 1 << 20); ++id) found = 1;
        if (here->attach(100, {0}, 1 << 30)) found = 2;
      } catch (const troupe::error& e) {
        found = std::string{e.what()}.find("ulimit -f") != std::string::npos ? -1 : -2;
      }
      ::_exit(found == regions ? 0 : 1);
    }
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
}

/// Whether the next one learns that a mutex's owner has ended: qemu-user knows nothing of robust ones.
bool mutexes_outlive_their_owners() {
  void* const page =
      ::mmap(nullptr, sizeof(pthread_mutex_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page != MAP_FAILED);
  auto* const mutex = static_cast<pthread_mutex_t*>(page);
  pthread_mutexattr_t how;
  ::pthread_mutexattr_init(&how);
  ::pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
  const bool made = ::pthread_mutex_init(mutex, &how) == 0;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::pthread_mutex_lock(mutex));
  ::waitpid(child, nullptr, 0);
  const bool told = made && ::pthread_mutex_trylock(mutex) == EOWNERDEAD;
  if (told) ::pthread_mutex_consistent(mutex), ::pthread_mutex_unlock(mutex);
  ::munmap(page, sizeof(pthread_mutex_t));
  return told;
}

TEST_CASE("segment: processes that are killed at any moment leave it usable") {
  if (!mutexes_outlive_their_owners()) {
    MESSAGE("skipped: this system does not tell of mutexes whose owner has ended");
    return;
  }
  const auto here = host_segment::make();
  for (int time = 0; time < 60; ++time) {
    const pid_t child = ::fork();
    if (child == 0) {
      const auto there = seen_by_another(*here);
      for (std::uint64_t id = 1;; ++id) static_cast<void>(there->attach(1000 + id % 4, {0}, 1000));
    }
    std::this_thread::sleep_for(std::chrono::microseconds{500 + 97 * time});
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const auto mine = here->attach(static_cast<std::uint64_t>(time) + 1, {0}, 1000);
    REQUIRE(mine);
    const auto* const root = mine->roots<std::atomic<int>>(1);
    CHECK(root->load() == 0);
  }
  CHECK(here->regions() <= 4);  // those of a killed one's that it had not given back
}
#endif

TEST_CASE("segment: ranks at different addresses perform over one board") {
  constexpr int ranks = 3;
  const auto first = host_segment::make();
  for (const slot_format format : {slot_format::ll, slot_format::ll128}) {
    const operation small{"one_shot", flat_setup(collective::all_reduce, ranks), 5, format};
    const operation longer{"ring", flat_setup(collective::all_reduce, ranks), 3000, format};
    std::atomic<std::size_t> wrong{0};
    std::vector<std::thread> processes;
    for (rank_t r = 0; r < ranks; ++r)
      processes.emplace_back([&, r] {
        const auto mine = r == 0 ? first : seen_by_another(*first);
        slot_board board{ranks, mine->attach(77, {0, 1, 2}, slot_board::most_bytes(ranks))};
        basic_player<slot_performer> player{board, r};
        std::uint64_t number = 0;
        for (int round = 0; round < 300; ++round)
          for (const operation* what : {&small, &longer}) {
            player.start(*what, number++);
            slot_wait_options how;
            how.spin = round % 3 == 0 ? 0 : 200;  // sleeps, too
            how.yields = 2;
            if (wait_slots(player.performs, how).how != slot_wait_result::ended::performed) wrong.fetch_add(1);
            wrong.fetch_add(player.wrong(*what));
          }
      });
    for (auto& p : processes) p.join();
    CHECK(wrong.load() == 0);
  }
  CHECK(first->regions() == 0);
}

namespace {
const auto in_a_while = [] { return std::chrono::steady_clock::now() + std::chrono::seconds{20}; };
const auto never_alone = [] { return false; };
}  // namespace

TEST_CASE("segment: who waits in vain for the others at the join says how many have come") {
  const auto here = host_segment::make();
  CHECK_THROWS_WITH_AS(here->meet(0, 2, std::chrono::steady_clock::now() + std::chrono::milliseconds{20}, never_alone),
                       doctest::Contains("only 1 have mapped its memory"), troupe::error);
  const auto another = host_segment::make();
  CHECK_THROWS_WITH_AS(another->meet(0, 2, in_a_while(), [] { return true; }), doctest::Contains("was lost before"),
                       troupe::error);
}

TEST_CASE("segment: ranks work on buffers that only the system reaches") {
  constexpr int ranks = 3;
  const auto first = host_segment::make();
  const operation sums{"fused", flat_setup(collective::all_reduce, ranks), 100'003, direct_port{}};
  const operation blocks{"fused", flat_setup(collective::all_gather, ranks), 33'333, direct_port{}};
  std::atomic<std::size_t> wrong{0}, without{0};
  std::vector<std::thread> processes;
  for (rank_t r = 0; r < ranks; ++r)
    processes.emplace_back([&, r] {
      const auto mine = r == 0 ? first : seen_by_another(*first);
      mine->meet(static_cast<std::uint32_t>(r), ranks, in_a_while(), never_alone);
      if (!mine->copies()) {  // the system forbids it
        without.fetch_add(1);
        return;
      }
      slot_board board{ranks, mine->attach(78, {0, 1, 2}, slot_board::most_bytes(ranks))};
      basic_player<direct_performer> player{board, r};
      std::uint64_t number = 0;
      for (int round = 0; round < 40; ++round)
        for (const operation* what : {&sums, &blocks}) {
          player.start(*what, number++);
          slot_wait_options how;
          how.spin = round % 2 == 0 ? 0 : 200;
          if (wait_slots(player.performs, how).how != slot_wait_result::ended::performed) wrong.fetch_add(1);
          wrong.fetch_add(player.wrong(*what));
        }
    });
  for (auto& p : processes) p.join();
  CHECK(wrong.load() == 0);
  CHECK((without.load() == 0 || without.load() == ranks));
}

TEST_CASE("segment: what one lends the others find while it is lent, wherever in it they look") {
  const auto first = host_segment::make();
  const auto second = seen_by_another(*first);
  CHECK(first->lend(1000) == nullptr);  // nobody has met
  std::thread another([&] { second->meet(1, 2, in_a_while(), never_alone); });
  first->meet(0, 2, in_a_while(), never_alone);
  another.join();
  const auto board = first->attach(9, {0, 1}, 1000), seen = second->attach(9, {0, 1}, 1000);
  if (board->peers() == nullptr) return;  // the system forbids it
  process_memory& view = *seen->peers();
  int elsewhere = 0;
  CHECK(view.near(0, reinterpret_cast<std::byte*>(&elsewhere)) == nullptr);

  std::byte* const lent = first->lend(300'000);
  REQUIRE(lent != nullptr);
  CHECK(std::all_of(lent, lent + 300'000, [](std::byte b) { return b == std::byte{0}; }));
  lent[0] = std::byte{1}, lent[299'999] = std::byte{2};
  CHECK(view.near(0, lent) != lent);
  CHECK(*view.near(0, lent) == std::byte{1});
  CHECK(*view.near(0, lent + 299'999) == std::byte{2});
  *view.near(0, lent + 7) = std::byte{3};
  CHECK(lent[7] == std::byte{3});
  CHECK(view.near(0, lent - 1) == nullptr);
  CHECK(view.near(1, lent) == lent);  // the rank's own
  CHECK(view.near(0, reinterpret_cast<std::byte*>(&elsewhere)) == nullptr);

  // Others come and go meanwhile, on both sides; what stays is found throughout.
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        std::byte* const mine = first->lend(static_cast<std::size_t>(1 + 40'000 * (i % 5)));
        if (mine == nullptr) ++wrong;
        else mine[0] = std::byte{static_cast<unsigned char>(i)};
        if (std::byte* const found = mine == nullptr ? nullptr : view.near(0, mine);
            found == nullptr || *found != mine[0])
          ++wrong;
        first->take_back(mine);
      }
    });
  for (int i = 0; i < 1000; ++i)
    if (*view.near(0, lent) != std::byte{1}) ++wrong;
  for (auto& t : threads) t.join();
  CHECK(wrong.load() == 0);

  first->take_back(lent);
  CHECK(view.near(0, lent) == nullptr);
  std::byte* const again = first->lend(300'000);  // the same place
  CHECK(std::all_of(again, again + 300'000, [](std::byte b) { return b == std::byte{0}; }));
  first->take_back(again);
  CHECK(first->regions() == 1);  // the board's
}

#if !defined(TROUPE_SLOTS_UNDER_TSAN)
TEST_CASE("segment: nothing is copied from a process that has ended, and one that stops where it is can be ended") {
  const auto here = host_segment::make();
  static std::uint64_t value = 17;
  const pid_t child = ::fork();
  if (child == 0) {
    value = 4711;
    seen_by_another(*here)->meet(1, 2, in_a_while(), never_alone);
    for (;;) ::pause();
  }
  here->meet(0, 2, in_a_while(), never_alone);
  if (here->copies()) {
    const auto memory = here->attach(5, {0, 1}, 1000);
    process_memory* const peers = memory->peers();
    REQUIRE(peers != nullptr);
    CHECK(peers->is_here(0));
    CHECK_FALSE(peers->is_here(1));
    std::uint64_t found = 0;
    auto* const to = reinterpret_cast<std::byte*>(&found);
    auto* const at = reinterpret_cast<std::byte*>(&value);
    CHECK(peers->read(1, to, at, sizeof found));
    CHECK(found == 4711);
    CHECK_THROWS_WITH_AS(static_cast<void>(peers->read(1, to, nullptr, sizeof found)),
                         doctest::Contains("copies nothing between"), troupe::error);
    ::kill(child, SIGSTOP);
    CHECK_FALSE(peers->has_ended(1));
    peers->end(1);
    CHECK(::waitpid(child, nullptr, 0) == child);
    CHECK(peers->has_ended(1));
    CHECK_FALSE(peers->read(1, to, at, sizeof found));
    CHECK_FALSE(peers->write(1, at, to, sizeof found));
  } else {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
}
#endif

#if !defined(TROUPE_SLOTS_UNDER_TSAN)
TEST_CASE("segment: one that was stopped at the lock, and counts as lost, is ended, and the others have the lock") {
  using namespace troupe::actors::segment;
  if (!mutexes_outlive_their_owners()) {
    MESSAGE("skipped: this system does not tell of mutexes whose owner has ended");
    return;
  }
  const auto here = host_segment::make();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto there = seen_by_another(*here);
    there->meet(1, 2, in_a_while(), never_alone);
    void* const at = ::mmap(nullptr, sizeof(table), PROT_READ | PROT_WRITE, MAP_SHARED, there->get(), 0);
    const lock held{*static_cast<table*>(at), 1, {}};
    ::raise(SIGSTOP);
    ::_exit(0);  // it was let go on
  }
  here->meet(0, 2, in_a_while(), never_alone);
  int status = 0;
  REQUIRE(::waitpid(child, &status, WUNTRACED) == child);
  REQUIRE(WIFSTOPPED(status));
  const bool can_end = here->copies();
  if (can_end) here->lost(1);
  else
    ::kill(child,
           SIGCONT);  // what the system does not let this process read it does not let it end by this way, either
  CHECK(here->attach(5, {0, 1}, 1000));
  REQUIRE(::waitpid(child, &status, 0) == child);
  if (can_end) CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
}
#endif

TEST_CASE("why a process cannot copy any more its neighbours can tell, too") {
  using namespace troupe::actors::segment;
  const auto shared = std::make_unique<table>();
  const neighbour other{*shared, 0, 1, -1};
  CHECK(other.why_refused().ends_with(", as that has found"));
  shared->processes[1].refused = EMFILE;
  CHECK(other.why_refused().ends_with(", as that has found: Too many open files"));
}

}  // namespace host_segment_test
