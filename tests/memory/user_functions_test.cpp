// SPDX-License-Identifier: Apache-2.0
#include "memory/kernels/user_functions.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

using namespace troupe;

namespace {

struct counter final : function_watcher {
  counter() { enlist(); }
  ~counter() override { retire(); }
  bool wake() noexcept override { return ++woken, !fails; }
  std::atomic<int> woken{0};
  std::atomic<bool> fails{false};
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

TEST_CASE("user functions: each watcher is woken once, by the first call after it has fallen asleep") {
  counter first;
  call(user_op(returns));
  call(user_op(returns));
  CHECK(first.woken == 1);
  counter second;  // made while the first one watches
  call(user_op(returns));
  CHECK(first.woken == 1);
  CHECK(second.woken == 1);
  REQUIRE(first.fall_asleep());
  call(user_op(returns));
  CHECK(first.woken == 2);
  CHECK(second.woken == 1);
  first.fails = true;  // it cannot be woken, and is asked by the next call again
  REQUIRE(first.fall_asleep());
  call(user_op(returns));
  first.fails = false;
  call(user_op(returns));
  call(user_op(returns));
  CHECK(first.woken == 4);
}

TEST_CASE("user functions: while one runs, nobody falls asleep, and who is made is woken at once") {
  counter first;
  gate at;
  std::thread one{[&] { call(user_op(waits, &at)); }};
  while (!at.inside) std::this_thread::yield();
  CHECK_FALSE(first.fall_asleep());
  CHECK(first.woken == 1);
  counter second;
  CHECK(second.woken == 1);
  first.fall_asleep_blindly();
  at.open = true;
  one.join();
  CHECK(second.fall_asleep());
  call(user_op(returns));
  CHECK(first.woken == 2);
  CHECK(second.woken == 2);
}

namespace {
void calls_another(const void*, const void*, void*, std::size_t, datatype, void* context) {
  call(named("inner", user_op(waits, context)), 2);
}
}  // namespace

TEST_CASE("user functions: one that calls another is seen as itself, meanwhile and afterwards") {
  gate at;
  const std::uint64_t before = function_watcher::calls();
  std::thread one{[&] { call(named("outer", user_op(calls_another, &at)), 5); }};
  while (!at.inside) std::this_thread::yield();
  const auto running = function_watcher::running();
  at.open = true;
  one.join();
  REQUIRE(running.size() == 1);
  CHECK(running[0].name.view() == "outer");
  CHECK(running[0].count == 5);
  CHECK(function_watcher::calls() == before + 1);
  CHECK(function_watcher::running().empty());
}

TEST_CASE("user functions: a child process has none of its parent's threads, and its own are seen") {
  gate at;
  std::thread one{[&] { call(user_op(waits, &at)); }};
  while (!at.inside) std::this_thread::yield();
  call(user_op(returns));  // this thread has a place, too
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    bool right = function_watcher::running().empty();
#if !defined(__SANITIZE_THREAD__)  // which starts no threads after a fork
    gate own;
    std::thread here{[&] { call(named("child", user_op(waits, &own))); }};
    while (!own.inside) std::this_thread::yield();
    const auto running = function_watcher::running();
    right = right && running.size() == 1 && running[0].name.view() == "child";
    own.open = true;
    here.join();
#endif
    ::_exit(right && function_watcher::running().empty() ? 0 : 1);
  }
  at.open = true;
  one.join();
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
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
  int seen = 0, mixed = 0;
  for (int looks = 0; looks < 20'000 || seen < 100; ++looks)
    for (const running_function& one : function_watcher::running()) {
      ++seen;
      if (one.name.view() != (one.count == 1 ? "few" : "many_many_many_many")) ++mixed;
    }
  CHECK(mixed == 0);
  bool unseen = false;
  for (int times = 0; times < 200 && !unseen; ++times) {
    const int woken = watcher.woken;
    if (!watcher.fall_asleep()) continue;
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes{1};
    while (watcher.woken == woken && !unseen) {
      std::this_thread::yield();
      unseen = std::chrono::steady_clock::now() > end;
    }
  }
  CHECK_FALSE(unseen);
  stop = true;
  for (std::thread& each : callers) each.join();
}
