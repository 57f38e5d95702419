// SPDX-License-Identifier: Apache-2.0
#include "actors/caf/caf_compat.hpp"
#include "actors/caf/scheduler.hpp"
#include "tests/seed.hpp"

#include <caf/actor_ostream.hpp>
#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/after.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>

#include <doctest/doctest.h>

#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

namespace scheduler_test {

using namespace troupe::actors;
using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

namespace {

/// "Run this inside the handler": lets each test say what its actor does.
struct task {
  std::function<void(caf::event_based_actor*)> body;
};
struct token_message {
  wait_token* token;
};

}  // namespace

}  // namespace scheduler_test

TROUPE_BEGIN_MESSAGES(scheduler_test, 200)
TROUPE_LOCAL_MESSAGE(scheduler_test, scheduler_test::task)
TROUPE_LOCAL_MESSAGE(scheduler_test, scheduler_test::token_message)
TROUPE_END_MESSAGES(scheduler_test)

namespace scheduler_test {

namespace {

// A bug shows as a hang; this bound turns it into a failure. A correct run never comes near it.
constexpr auto hang = 60s;
steady_time give_up() { return steady::now() + hang; }

struct fixture {
  explicit fixture(std::size_t workers, std::function<void(scheduler_options&)> change = {}) {
    scheduler_options options;
    options.workers = workers;
    if (change) change(options);
    system.reset(new caf::actor_system(make_actor_system(config, options)));
    sched = &scheduler::of(*system);
  }
  ~fixture() {
    if (!system) return;
    for (auto& one : actors) post_exit(one, caf::exit_reason::user_shutdown);
    actors.clear();
    CHECK(sched->finish(give_up()) == help_result::done);
  }

  caf::actor worker() {
    actors.push_back(spawn_actor(*system, [](caf::event_based_actor* self) -> caf::behavior {
      return {[self](task& t) { t.body(self); }, [](token_message m) { m.token->complete(); }};
    }));
    return actors.back();
  }

  caf::actor_system_config config;
  std::unique_ptr<caf::actor_system> system;
  scheduler* sched = nullptr;
  std::vector<caf::actor> actors;
};

/// Waits without helping.
template <class Done>
bool eventually(Done done) {
  const auto until = give_up();
  while (!done())
    if (steady::now() > until) return false;
    else std::this_thread::sleep_for(100us);
  return true;
}

caf::behavior ping_pong(caf::event_based_actor* self) {
  return {[self](caf::actor other, int left, token_message m) {
    if (left == 0) m.token->complete();
    else post(other, caf::actor{self}, left - 1, m);
  }};
}

std::chrono::microseconds cpu_time() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& t) {
    return std::chrono::seconds(t.tv_sec) + std::chrono::microseconds(t.tv_usec);
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

}  // namespace

TEST_CASE("scheduler: a caller runs two actors to completion and no thread is made") {
  fixture f(0);
  f.actors = {spawn_actor(*f.system, ping_pong), spawn_actor(*f.system, ping_pong)};
  wait_token token;
  post(f.actors[0], f.actors[1], 1000, token_message{&token});
  CHECK(f.sched->active() > 0);
  CHECK(f.sched->help_until(token, give_up()) == help_result::done);
  CHECK(token.done());
  CHECK(f.sched->progress() >= 1000);
  CHECK(f.sched->threads_started() == 0);
  while (f.sched->help_one()) {}
  CHECK(f.sched->active() == 0);
}

TEST_CASE("scheduler: workers start when needed, park, and are woken by threads from outside") {
  fixture f(2);
  const auto target = f.worker();
  for (int round = 0; round < 50; ++round) {
    wait_token token;
    post(target, token_message{&token});
    while (!token.done()) REQUIRE(token.park(give_up()));  // sleeps without helping
    if (round % 10 == 0) REQUIRE(eventually([&] { return f.sched->parked_threads() == f.sched->threads_started(); }));
  }
  CHECK(f.sched->threads_started() >= 1);
  CHECK(f.sched->threads_started() <= 2);
  CHECK(f.sched->wakes() >= 4);
}

TEST_CASE("scheduler: many producers, nothing is lost and active() returns to zero") {
  fixture f(2, [](scheduler_options& o) { o.ring = 4; });  // nearly everything goes through the overflow
  constexpr int producers = 4, each = 3000, targets = 50;
  std::vector<caf::actor> to;
  for (int i = 0; i < targets; ++i) to.push_back(f.worker());
  std::atomic<int> seen{0};
  std::vector<std::thread> threads;
  for (int p = 0; p < producers; ++p)
    threads.emplace_back([&, p] {
      std::minstd_rand random(static_cast<unsigned>(seed()) + static_cast<unsigned>(p));
      for (int i = 0; i < each; ++i)
        post(to[random() % targets], task{[&](caf::event_based_actor*) { seen.fetch_add(1); }});
    });
  for (auto& thread : threads) thread.join();
  CHECK(eventually([&] { return seen.load() == producers * each; }));
  CHECK(eventually([&] { return f.sched->active() == 0; }));
}

TEST_CASE("scheduler: 64 threads help each other, with and without workers") {
  for (const std::size_t workers : {0u, 2u}) {
    CAPTURE(workers);
    fixture f(workers);
    constexpr int callers = 64, rounds = 100;
    std::vector<caf::actor> to;
    for (int i = 0; i < callers; ++i) to.push_back(f.worker());
    std::atomic<int> failed{0}, finished{0};
    std::vector<std::thread> threads;
    for (int c = 0; c < callers; ++c)
      threads.emplace_back([&, c] {
        std::minstd_rand random(static_cast<unsigned>(seed()) + static_cast<unsigned>(c));
        for (int i = 0; i < rounds; ++i) {
          wait_token token;
          const auto first = to[random() % callers], second = to[random() % callers];
          const scheduler::driving scope(*f.sched);
          post(first, task{[second, &token](caf::event_based_actor*) { post(second, token_message{&token}); }});
          if (f.sched->help_until(token, give_up()) != help_result::done) {
            failed.fetch_add(1);
            // The token must outlive the message that names it.
            while (!token.done()) token.park();
          }
        }
        finished.fetch_add(1);
      });
    for (auto& thread : threads) thread.join();
    CHECK(failed.load() == 0);
    CHECK(finished.load() == callers);
  }
}

TEST_CASE("scheduler: a sleeping helper wakes for other people's work and goes on waiting") {
  fixture f(0);
  const auto target = f.worker();
  wait_token mine, other;
  std::atomic<bool> done{false};
  std::thread helper([&] {
    CHECK(f.sched->help_until(mine, give_up()) == help_result::done);
    done = true;
  });
  REQUIRE(eventually([&] { return f.sched->parked_threads() == 1; }));
  post(target, token_message{&other});  // from a thread that does not help
  CHECK(eventually([&] { return other.done(); }));
  REQUIRE(eventually([&] { return f.sched->parked_threads() == 1; }));
  CHECK_FALSE(done.load());
  mine.complete();
  helper.join();
}

TEST_CASE("scheduler: help_until with a parker and any condition; deadline") {
  fixture f(0);
  parker place;
  std::atomic<int> count{0};
  CHECK(f.sched->help_until(
            place, [&] { return count.load() == 2; }, steady::now() + 2ms) == help_result::timeout);
  CHECK(f.sched->help_until(
            place, [&] { return true; }, steady::now() - 1s) == help_result::done);
  const auto target = f.worker();
  std::thread outside([&] {
    for (int i = 0; i < 2; ++i)
      post(target, task{[&](caf::event_based_actor*) {
             count.fetch_add(1);
             place.wake();
           }});
  });
  CHECK(f.sched->help_until(
            place, [&] { return count.load() == 2; }, give_up()) == help_result::done);
  outside.join();
}

TEST_CASE("scheduler: the deadline also ends a helper that never runs out of work") {
  fixture f(0);
  std::atomic<bool> quit{false};
  std::function<void(caf::event_based_actor*)> again = [&](caf::event_based_actor* self) {
    if (!quit) post(self, task{again});
  };
  post(f.worker(), task{again});
  parker place;
  CHECK(f.sched->help_until(
            place, [] { return false; }, steady::now() + 5ms) == help_result::timeout);
  quit = true;
  while (f.sched->help_one()) {}
}

TEST_CASE("scheduler: an actor that always has work does not starve another") {
  fixture f(0);
  std::atomic<bool> quit{false};
  std::function<void(caf::event_based_actor*)> again = [&](caf::event_based_actor* self) {
    if (!quit) post(self, task{again});
  };
  post(f.worker(), task{again});
  wait_token token;
  post(f.worker(), token_message{&token});
  CHECK(f.sched->help_until(token, give_up()) == help_result::done);
  quit = true;
  while (f.sched->help_one()) {}
}

TEST_CASE("scheduler: delayed messages, receive timeouts and request timeouts arrive") {
  for (const std::size_t workers : {0u, 1u}) {
    CAPTURE(workers);
    fixture f(workers);
    const auto target = f.worker();
    wait_token delayed;
    CHECK(f.sched->timers() == 0);
    post(target, task{[&](caf::event_based_actor* self) { post_later(self, 5ms, token_message{&delayed}); }});
    CHECK(f.sched->help_until(delayed, give_up()) == help_result::done);
    CHECK(eventually([&] { return f.sched->timers() == 0; }));

    wait_token received;
    f.actors.push_back(spawn_actor(*f.system, [&](caf::event_based_actor* self) -> caf::behavior {
      return {[](int) {}, caf::after(5ms) >>
                              [&received, self] {
                                received.complete();
                                self->quit();
                              }};
    }));
    CHECK(f.sched->help_until(received, give_up()) == help_result::done);

    wait_token timed_out;
    caf::error why;
    const auto silent = spawn_actor(*f.system, [](caf::event_based_actor* self) -> caf::behavior {
      auto promise = std::make_shared<caf::response_promise>();
      return {[=](int) {
        *promise = self->make_response_promise();
        return *promise;
      }};
    });
    f.actors.push_back(silent);
    post(target, task{[&](caf::event_based_actor* self) {
           ask(*self, silent, 5ms, 1)
               .then([](int) {},
                     [&](caf::error& e) {
                       why = e;
                       timed_out.complete();
                     });
         }});
    CHECK(f.sched->help_until(timed_out, give_up()) == help_result::done);
    CHECK(why == caf::sec::request_timeout);
  }
}

TEST_CASE("scheduler: more actors end with timers pending than any fixed ring of timers holds") {
  fixture f(0);
  for (int i = 0; i < 300; ++i)
    f.actors.push_back(spawn_actor(*f.system, [](caf::event_based_actor* self) -> caf::behavior {
      post_later(self, std::chrono::minutes(60), 1);
      return {[](int) {}, caf::after(std::chrono::minutes(60)) >> [] {}};
    }));
  while (f.sched->help_one()) {}
  CHECK(f.sched->timers() == 600);
  // The fixture ends the actors, which cancels their receive timeouts; CAF keeps delayed messages until they are due.
  for (auto& one : f.actors) post_exit(one, caf::exit_reason::user_shutdown);
  CHECK(f.sched->finish(give_up()) == help_result::done);
  CHECK(f.sched->timers() == 300);
}

TEST_CASE("scheduler: an idle system runs nothing, wakes nobody and uses no processor time") {
  fixture f(2);
  const auto target = f.worker();
  wait_token token;
  // Start every thread there is: workers, the timer thread (with a timer pending), and a sleeping helper.
  post(target, task{[&](caf::event_based_actor* self) {
         post_later(self, std::chrono::minutes(60), 1);
         post(self, token_message{&token});
       }});
  while (!token.done()) token.park();
  wait_token stay;
  std::thread helper([&] { f.sched->help_until(stay, give_up()); });
  REQUIRE(eventually([&] { return f.sched->parked_threads() == f.sched->threads_started() + 1; }));
  const auto wakes = f.sched->wakes();
  const auto progress = f.sched->progress();
  const auto used = cpu_time();
  std::this_thread::sleep_for(200ms);
  const auto used_while_idle = cpu_time() - used;
  CHECK(f.sched->wakes() == wakes);
  CHECK(f.sched->progress() == progress);
  CHECK(f.sched->active() == 0);
  CHECK(used_while_idle < 20ms);  // one polling thread would use about 200 ms
  stay.complete();
  helper.join();
}

TEST_CASE("scheduler: waiting inside a handler is refused, helping inside a callback is not") {
  fixture f(0);
  const auto target = f.worker();
  wait_token token;
  std::string refused;
  bool in_handler = false;
  post(target, task{[&](caf::event_based_actor*) {
         in_handler = scheduler::in_handler();
         wait_token never;
         try {
           f.sched->help_until(never, give_up());
         } catch (const std::logic_error& e) {
           refused = e.what();
         }
         CHECK_THROWS_AS(f.sched->help_one(), std::logic_error);
         token.complete();
       }});
  CHECK(f.sched->help_until(token, give_up()) == help_result::done);
  CHECK(refused.find("handler") != std::string::npos);
  CHECK(in_handler);
  CHECK_FALSE(scheduler::in_handler());

  // A callback that runs on a driving thread, outside any handler, waits for another operation.
  parker place;
  bool nested = false;
  const auto callback = [&] {
    wait_token inner;
    post(target, token_message{&inner});
    nested = f.sched->help_until(inner, give_up()) == help_result::done;
    return true;
  };
  CHECK(f.sched->help_until(place, callback, give_up()) == help_result::done);
  CHECK(nested);
}

TEST_CASE("scheduler: a driving scope wakes nobody until it ends, then hands over what is left") {
  fixture f(1);
  std::vector<caf::actor> to = {f.worker(), f.worker(), f.worker()};
  REQUIRE(eventually([&] { return f.sched->active() == 0; }));
  wait_token warm;
  post(to[0], token_message{&warm});
  while (!warm.done()) warm.park();
  REQUIRE(eventually([&] { return f.sched->parked_threads() == 1; }));
  wait_token tokens[3];
  {
    const scheduler::driving scope(*f.sched, scheduler::wake_others::at_end);
    const auto wakes = f.sched->wakes();
    for (int i = 0; i < 3; ++i) post(to[static_cast<std::size_t>(i)], token_message{&tokens[i]});
    CHECK(f.sched->wakes() == wakes);
    CHECK(f.sched->active() == 3);
  }
  for (auto& token : tokens)
    CHECK(eventually([&] { return token.done(); }));  // nobody helps: only the worker can do it
}

TEST_CASE("scheduler: before_long_work lets another thread run what a busy handler made ready") {
  fixture f(1);
  const auto busy = f.worker(), other = f.worker();
  // The worker must sleep, or it would find the message without being told.
  REQUIRE(eventually([&] { return f.sched->active() == 0 && f.sched->parked_threads() == 1; }));
  wait_token answered, finished;
  bool in_time = false;
  const scheduler::driving scope(*f.sched);
  post(busy, task{[&](caf::event_based_actor*) {
         post(other, token_message{&answered});
         scheduler::before_long_work();
         in_time = eventually([&] { return answered.done(); });  // this thread is stuck here meanwhile
         finished.complete();
       }});
  CHECK(f.sched->help_until(finished, give_up()) == help_result::done);
  CHECK(in_time);
}

TEST_CASE("scheduler: a worker that finds work wakes the next one if there is more") {
  fixture f(2);
  const auto busy = f.worker(), other = f.worker();
  // Often, because the second message must come while the worker woken for the first has not yet taken it.
  for (int round = 0; round < 100; ++round) {
    wait_token second, finished;
    bool in_time = false;
    if (f.sched->threads_started() == 2)
      REQUIRE(eventually([&] { return f.sched->active() == 0 && f.sched->parked_threads() == 2; }));
    post(busy, task{[&](caf::event_based_actor*) {
           in_time = eventually([&] { return second.done(); });
           finished.complete();
         }});
    post(other, token_message{&second});
    while (!finished.done()) finished.park();
    REQUIRE(in_time);
  }
  CHECK(f.sched->threads_started() == 2);
}

TEST_CASE("scheduler: threads that wait for actors without helping are served") {
  fixture f(1);
  caf::scoped_actor self(*f.system);
  const auto adder = spawn_actor(*f.system, []() -> caf::behavior { return {[](int a, int b) { return a + b; }}; });
  f.actors.push_back(adder);
  int sum = 0;
  for (int i = 0; i < 100; ++i)
    ask(*self, adder, 30s, i, 1).receive([&](int s) { sum += s; }, [&](caf::error&) { sum = -1'000'000; });
  CHECK(sum == 5050);
}

#if TROUPE_CAF_0  // 1.x prints by itself
TEST_CASE("scheduler: aout prints without a printer thread") {
  fixture f(0);
  std::ostringstream text;
  auto* before = std::cout.rdbuf(text.rdbuf());
  post(f.worker(), task{[](caf::event_based_actor* self) { caf::aout(self) << "a line" << std::endl; }});
  while (f.sched->help_one()) {}
  std::cout.rdbuf(before);
  CHECK(text.str().find("a line") != std::string::npos);
}
#endif

TEST_CASE("scheduler: finish says when actors are left") {
  fixture f(0);
  f.worker();
  CHECK(f.sched->finish(steady::now() + 5ms) == help_result::timeout);
}

TEST_CASE("scheduler: destruction ends helpers, endless actors and those that never ran") {
  for (const std::size_t workers : {0u, 1u}) {
    CAPTURE(workers);
    auto alive = std::make_shared<int>(0);  // captured by every actor: its use count says who still lives
    std::thread helper;
    std::atomic<int> stopped{0};
    wait_token never;
    {
      fixture f(workers, [](scheduler_options& o) { o.grace = 5ms; });
      f.system->await_actors_before_shutdown(false);
      std::vector<caf::actor> peers;
      for (int i = 0; i < 20; ++i)
        peers.push_back(spawn_actor(*f.system, [alive](caf::event_based_actor* self) -> caf::behavior {
          return {[alive, self](int n) { post(self, n + 1); }};
        }));
      for (auto& peer : peers) post(peer, 1);
      helper = std::thread([&, s = f.sched] { stopped = s->help_until(never, give_up()) == help_result::stopped; });
      REQUIRE(eventually([&] { return f.sched->progress() > 100; }));  // the helper is busy with them
      peers.clear();
      f.actors.clear();
      f.system.reset();
    }
    helper.join();
    CHECK(stopped.load() == 1);
    CHECK(alive.use_count() == 1);
  }
}

TEST_CASE("scheduler: a thousand systems come and go") {
  for (int i = 0; i < 1000; ++i) {
    fixture f(i % 4 == 0 ? 1 : 0);
    wait_token token;
    post(f.worker(), token_message{&token});
    if (f.sched->help_until(token, give_up()) != help_result::done) FAIL("system " << i << " did not answer");
  }
}

TEST_CASE("scheduler: of() refuses a system with another scheduler") {
  caf::actor_system_config config;
  caf::actor_system system(config);
  CHECK_THROWS_AS(scheduler::of(system), std::logic_error);
}

}  // namespace scheduler_test
