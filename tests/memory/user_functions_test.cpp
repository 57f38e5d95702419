// SPDX-License-Identifier: Apache-2.0
#include "memory/kernels/user_functions.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

#include <unistd.h>

using namespace troupe;

namespace {

struct counter final : function_watcher {
  ~counter() override { retire(); }
  void wake() noexcept override { ++woken; }
  std::atomic<int> woken{0};
};

struct gate {
  std::atomic<bool> inside{false}, open{false};
};

void waits(const void*, const void*, void*, std::size_t, datatype, void* context) {
  gate& at = *static_cast<gate*>(context);
  at.inside = true;
  while (!at.open) std::this_thread::yield();
}

void returns(const void*, const void*, void*, std::size_t, datatype, void*) {}

void throws(const void*, const void*, void*, std::size_t, datatype, void*) { throw std::runtime_error{"no"}; }

void call(const op& what, std::size_t count = 1) {
  call_user_function(what, nullptr, nullptr, nullptr, count, datatype::i32);
}

}  // namespace

TEST_CASE("user functions: one that runs is seen with its name, count, type and thread, until it returns") {
  gate at;
  std::atomic<pid_t> id{0};
  std::thread one{[&] {
    id = ::gettid();
    call(user_op(returns));
    call(named("max_abs", user_op(waits, &at)), 7);
    call(user_op(returns));
  }};
  while (!at.inside) std::this_thread::yield();
  const auto running = function_watcher::running();
  at.open = true;
  one.join();
  REQUIRE(running.size() == 1);
  CHECK(running[0].thread == id);
  CHECK(running[0].name.view() == "max_abs");
  CHECK(running[0].count == 7);
  CHECK(running[0].type == datatype::i32);
  CHECK(running[0].number == 3);  // the thread's second call
  CHECK(function_watcher::running().empty());
}

TEST_CASE("user functions: calls are counted, also those of threads that have ended, and those that threw") {
  const std::uint64_t before = function_watcher::calls();
  std::thread{[] {
    for (int i = 0; i < 3; ++i) call(user_op(returns));
  }}.join();
  CHECK_THROWS_AS(call(user_op(throws)), std::runtime_error);
  CHECK(function_watcher::calls() == before + 4);
  CHECK(function_watcher::running().empty());
}

TEST_CASE("user functions: watchers are woken once by the first call after they have fallen asleep, or one has gone") {
  counter first;
  {
    const counter second;
    REQUIRE(function_watcher::fall_asleep());
    call(user_op(returns));
    call(user_op(returns));
    CHECK(first.woken == 1);
    CHECK(second.woken == 1);
  }
  call(user_op(returns));
  CHECK(first.woken == 2);
  gate at;
  std::thread one{[&] { call(user_op(waits, &at)); }};
  while (!at.inside) std::this_thread::yield();
  CHECK_FALSE(function_watcher::fall_asleep());  // something runs
  at.open = true;
  one.join();
  CHECK(first.woken == 2);
  CHECK(function_watcher::fall_asleep());
}

TEST_CASE("user functions: whoever watches while threads call and end sees whole calls, and none begins unseen") {
  // A name and a count of one call each: a mixture of two would be seen.
  const op few = named("few", user_op(returns)), many = named("many_many_many_many", user_op(returns));
  counter watcher;
  std::atomic<bool> stop{false};
  std::vector<std::thread> callers;
  for (int t = 0; t < 2; ++t)
    callers.emplace_back([&] {
      while (!stop)
        std::thread{[&] {
          for (int i = 0; i < 200; ++i) call(few, 1), call(many, 100);
        }}.join();
    });
  int seen = 0;
  for (int looks = 0; looks < 20'000 || seen < 100; ++looks)
    for (const running_function& one : function_watcher::running()) {
      ++seen;
      const std::string_view name = one.name.view();
      REQUIRE((name == (one.count == 1 ? "few" : "many_many_many_many")));
    }
  for (int times = 0; times < 200; ++times) {
    const int woken = watcher.woken;
    if (!function_watcher::fall_asleep()) continue;
    while (watcher.woken == woken) std::this_thread::yield();
  }
  stop = true;
  for (std::thread& each : callers) each.join();
}
