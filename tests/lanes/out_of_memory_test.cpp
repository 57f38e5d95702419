// SPDX-License-Identifier: Apache-2.0
// An allocation that fails in the middle of a turn: the turn was kept for ever, what had ended was never told, and what was left in the inbox
// was lost. Here one allocation after the other fails on the thread that turns a rank, once, and every rank must hear of an end.

#include <doctest/doctest.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <new>

#include "actors/ports/link/ucx/ucx_transport.hpp"
#include "tests/lanes/meshes.hpp"
#include "tests/lanes/ranks_on_threads.hpp"

namespace {

thread_local int allocations_until_failure = -1;

void* try_to_allocate(std::size_t bytes) noexcept {
  if (allocations_until_failure >= 0 && allocations_until_failure-- == 0) return nullptr;
  return std::malloc(bytes);
}

void* allocate(std::size_t bytes) {
  if (void* const p = try_to_allocate(bytes)) return p;
  throw std::bad_alloc{};
}

}  // namespace

// Aligned forms are left alone. A sanitizer's nothrow forms would know nothing of these.
[[gnu::noinline]] void* operator new(std::size_t bytes) { return allocate(bytes); }
[[gnu::noinline]] void* operator new[](std::size_t bytes) { return allocate(bytes); }
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return try_to_allocate(bytes);
}
[[gnu::noinline]] void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return try_to_allocate(bytes);
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, const std::nothrow_t&) noexcept { std::free(p); }

using namespace ranks_test;
using namespace std::chrono_literals;

namespace {

/// False: it has not ended in time. A correct run never waits for that.
bool ends(const completion_ptr& done) {
  parker place;
  const auto limit = std::chrono::steady_clock::now() + 20s;
  if (!done->enter(place)) return true;
  while (!done->done() && std::chrono::steady_clock::now() < limit) place.park(limit);
  done->leave(place);
  return done->done();
}

/// Allocation `which` of what `work` does on this thread fails. True: there was one.
template <class Work>
bool fails_at(int which, Work work) {
  allocations_until_failure = which;
  try {
    work();
  } catch (const std::bad_alloc&) {}
  return std::exchange(allocations_until_failure, -1) < 0;
}

/// An operation that could not be begun is ended in order, with what was thrown.
bool is_told(const failure_ptr& why) {
  return !why || why->code == errc::out_of_memory ||
         (why->code == errc::aborted && why->text.find("bad_alloc") != std::string::npos);
}

}  // namespace

TEST_CASE("whichever allocation of a turn fails, every rank hears of an end") {
  for (const plan_ptr& how : {mailbox_sum_plan(2, 4), sum_plan(2, 4), direct_sum_plan(2, 4)})
    for (const bool waits : {false, true}) {
      bool failed = true;
      int failures = 0;
      for (int which = 0; failed; ++which) {
        CAPTURE(which);
        CAPTURE(waits);
        REQUIRE(which < 500);
        house all{2};
        std::array<std::int32_t, 4> in{1, 2, 3, 4}, a{}, b{};
        const auto mine = make_operation(how, in.data(), a.data(), std::nullopt, sum);
        const auto other = make_operation(how, in.data(), b.data(), std::nullopt, sum);
        const completion_ptr first = mine->done, second = other->done;
        bool begun = false;
        all.table().at(1).submit(other);
        failed = fails_at(which, [&] {
          if (waits) all.table().at(0).submit_and_help({&mine, 1});
          else all.table().at(0).submit(mine);
          begun = true;
          if (waits) all.table().at(0).help(*first, no_deadline);
          all.table().at(1).run();
        });
        if (begun || all.table().at(0).state().holds(mine)) REQUIRE(ends(first));
        else all.table().broken(make_failure(errc::out_of_memory, "rank 0 could not call it"));
        REQUIRE(ends(second));
        CHECK(is_told(first->why()));
        CHECK(is_told(second->why()));
        failures += second->why() != nullptr;
        if (!second->why()) CHECK(b == std::array{2, 4, 6, 8});
      }
      CHECK(failures > 0);
    }
}

TEST_CASE("a blocking operation that takes long and has no memory to go on ends on all ranks") {
  const plan_ptr how = sum_plan(2, 4);
  house all{2};
  std::array<std::int32_t, 4> in{1, 2, 3, 4}, a{}, b{};
  {
    std::thread peer([&] { CHECK(run(all.table(), 1, how, in.data(), b.data()) == nullptr); });
    CHECK(run(all.table(), 0, how, in.data(), a.data()) == nullptr);
    peer.join();
  }
  failure_ptr mine, theirs;
  std::atomic<bool> begun{false};
  std::thread peer([&] {
    call what = call_of(*how);
    begun = true;
    allocations_until_failure = 0;
    rank_cell& late = all.table().at(1);
    const auto end = late.perform_again(what, std::nullopt, {in.data(), b.data()}, std::nullopt);
    CHECK(allocations_until_failure < 0);
    CHECK(end == rank_cell::call_end::later);
    theirs = late.take_rest().why;
  });
  peer.join();  // after long_wait
  REQUIRE(theirs);
  CHECK(theirs->code == errc::out_of_memory);
  // Its message was there, so the other may have performed this one before it hears; but not the next.
  mine = run(all.table(), 0, how, in.data(), a.data(), 20s);
  if (!mine) mine = run(all.table(), 0, how, in.data(), a.data(), 20s);
  REQUIRE(mine);
  CHECK(mine->code == errc::out_of_memory);
}

TEST_CASE("a line of UCX that has no memory for what is sent fails with the reason, and throws nothing") {
  if (mesh_tests::skipped_without_ucx()) return;
  const auto worker = make_ucx_transport();
  line_names::name one{}, other{};
  one.fill(std::byte{1});
  const auto line = worker->line_to(worker->address(), {one, other});
  std::array<std::byte, 100> data{};
  const iovec all{data.data(), data.size()};
  ssize_t taken = 0;
  int why = 0;
  CHECK(fails_at(0, [&] {
    taken = line->send({&all, 1});
    why = errno;
  }));
  CHECK(taken == -1);
  CHECK(why == ENOMEM);
  CHECK(line->why().find("no memory") != std::string::npos);
  CHECK(line->has_input());
}
