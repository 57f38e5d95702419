// SPDX-License-Identifier: Apache-2.0
// Engines that are destroyed by another thread than the one that made or uses them. A group's wait performed its operations outside the
// engine's gate: an engine destroyed meanwhile did not wait for it, and the thread went on in memory that was given back. And a thread
// that had made an engine, or a communicator in it, kept something that the engine's destructor waited for.

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <troupe.hpp>

using namespace troupe;
using namespace std::chrono_literals;

TEST_CASE("an engine is destroyed by another thread than those that made it and its communicators, which live on") {
  auto e = std::make_unique<engine>();
  std::atomic<bool> divided{false}, end{false};
  std::vector<communicator> world;
  std::thread divides([&] {
    world = e->communicators(1);
    const communicator part = world[0].duplicate();
    divided = true;
    while (!end) std::this_thread::yield();
  });
  while (!divided) std::this_thread::yield();
  std::thread{[&] { e.reset(); }}.join();  // waited for ever
  end = true;
  divides.join();
}

TEST_CASE("an engine that is destroyed while a group performs waits for it") {
  static std::atomic<bool> inside, leave;
  inside = leave = false;
  const op slow = user_op([](const void* left, const void* right, void* out, std::size_t count, datatype, void*) {
    inside = true;
    while (!leave) std::this_thread::yield();
    for (std::size_t i = 0; i < count; ++i)
      static_cast<float*>(out)[i] = static_cast<const float*>(left)[i] + static_cast<const float*>(right)[i];
  });
  auto e = std::make_unique<engine>();
  auto comms = e->communicators(2);
  std::array<float, 4> a{1, 1, 1, 1}, b = a;
  std::thread caller([&] {
    group both;
    request x = comms[0].all_reduce_async(both, a, slow), y = comms[1].all_reduce_async(both, b, slow);
    try {
      both.wait();
    } catch (const error& why) {
      CHECK(why.code_value() == errc::engine_closed);
    }
    CHECK(x.done());
    CHECK(y.done());
  });
  while (!inside) std::this_thread::yield();
  std::atomic<bool> destroyed{false};
  std::thread closer([&] {
    e.reset();
    destroyed = true;
  });
  // Long enough for an engine that waits for nobody. One that waits stays for as long as the group does.
  for (int i = 0; i < 100 && !destroyed; ++i) std::this_thread::sleep_for(5ms);
  CHECK_FALSE(destroyed);
  leave = true;
  caller.join();
  closer.join();
}
