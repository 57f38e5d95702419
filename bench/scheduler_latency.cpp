// SPDX-License-Identifier: Apache-2.0
// What the caller-helps scheduler buys: submit -> actor -> completion, and the price of one actor-to-actor message, against CAF's
// stock scheduler. Usage: scheduler_latency [--seconds S] [--json FILE]. Prints one line per measurement (median and 99th
// percentile over batches); asserts nothing.

#include "actors/caf/caf_compat.hpp"
#include "actors/caf/scheduler.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace troupe::actors;
using steady = std::chrono::steady_clock;

struct call {
  wait_token* token;
};
struct exchange {
  std::atomic<int>* open;
  wait_token* token;
};
struct introduce {
  std::vector<caf::actor>* all;
};

}  // namespace

TROUPE_BEGIN_MESSAGES(scheduler_latency, 200)
TROUPE_LOCAL_MESSAGE(scheduler_latency, call)
TROUPE_LOCAL_MESSAGE(scheduler_latency, exchange)
TROUPE_LOCAL_MESSAGE(scheduler_latency, introduce)
TROUPE_END_MESSAGES(scheduler_latency)

namespace {

struct row {
  std::string what;
  std::string scheduler;
  double median_us;
  double p99_us;
  std::size_t samples;
};
std::vector<row> rows;
double seconds_each = 0.5;

void report(const std::string& what, const std::string& scheduler, std::vector<double>& us) {
  std::sort(us.begin(), us.end());
  const auto at = [&](double share) {
    return us[static_cast<std::size_t>(share * static_cast<double>(us.size() - 1))];
  };
  rows.push_back({what, scheduler, at(0.5), at(0.99), us.size()});
  std::printf("%-44s %-22s %10.3f %10.3f\n", what.c_str(), scheduler.c_str(), at(0.5), at(0.99));
  std::fflush(stdout);
}

/// Times single operations, each after a pause long enough for every thread to fall asleep.
template <class F>
void measure_cold(const std::string& what, const std::string& scheduler, F operation) {
  std::vector<double> us;
  const auto end = steady::now() + std::chrono::duration<double>(seconds_each);
  while (steady::now() < end || us.empty()) {
    std::this_thread::sleep_for(std::chrono::microseconds(300));
    const auto start = steady::now();
    operation();
    us.push_back(std::chrono::duration<double, std::micro>(steady::now() - start).count());
  }
  report(what, scheduler, us);
}

/// Times `operation` in batches until the time is used up; one operation counts as `parts`.
template <class F>
void measure(const std::string& what, const std::string& scheduler, int batch, double parts, F operation) {
  for (int i = 0; i < batch; ++i) operation();
  std::vector<double> us;
  const auto end = steady::now() + std::chrono::duration<double>(seconds_each);
  while (steady::now() < end || us.empty()) {
    const auto start = steady::now();
    for (int i = 0; i < batch; ++i) operation();
    us.push_back(std::chrono::duration<double, std::micro>(steady::now() - start).count() / batch / parts);
  }
  report(what, scheduler, us);
}

caf::behavior answerer(caf::event_based_actor*) {
  return {[](call c) { c.token->complete(); }};
}

/// Passes a number round a ring of two until it is zero.
caf::behavior counter(caf::event_based_actor* self) {
  return {[self](caf::actor next, int left, call c) {
    if (left == 0) c.token->complete();
    else post(next, caf::actor{self}, left - 1, c);
  }};
}

/// On `exchange` from outside sends to all others; the last message received anywhere completes the call.
caf::behavior exchanger(caf::event_based_actor* self) {
  auto peers = std::make_shared<std::vector<caf::actor>>();
  return {
      [=](introduce all) {  // no handle to oneself: that would be a cycle
        for (auto& one : *all.all)
          if (one != self) peers->push_back(one);
      },
      [=](exchange e) {
        for (auto& peer : *peers) post(peer, 1, e);
      },
      [](int, exchange e) {
        if (e.open->fetch_sub(1) == 1) e.token->complete();
      },
  };
}

/// Waits as each kind of scheduler has to: by helping, or by sleeping.
struct waiter {
  scheduler* own;
  void operator()(wait_token& token) const {
    if (own != nullptr) {
      own->help_until(token);
      return;
    }
    while (!token.done()) token.park();
  }
};

void all_exchange(caf::actor_system& system, const std::string& name, waiter wait) {
  constexpr int ranks = 8;
  std::vector<caf::actor> all;
  for (int i = 0; i < ranks; ++i) all.push_back(spawn_actor(system, exchanger));
  for (auto& one : all) post(one, introduce{&all});
  if (wait.own != nullptr)
    while (wait.own->help_one()) {}
  else std::this_thread::sleep_for(std::chrono::milliseconds(50));
  measure("8-rank all-exchange, 56 messages, one caller", name, 20, 1, [&] {
    wait_token token;
    std::atomic<int> open{ranks * (ranks - 1)};
    const auto go = [&] {
      for (auto& one : all) post(one, exchange{&open, &token});
    };
    if (wait.own != nullptr) {
      const scheduler::driving scope(*wait.own, scheduler::wake_others::at_end);
      go();
      wait(token);
    } else {
      go();
      wait(token);
    }
  });
  for (auto& one : all) post_exit(one, caf::exit_reason::user_shutdown);
}

void run(caf::actor_system& system, const std::string& name, waiter wait) {
  const auto echo = spawn_actor(system, answerer);
  measure("submit -> actor -> completion", name, 200, 1, [&] {
    wait_token token;
    if (wait.own != nullptr) {
      const scheduler::driving scope(*wait.own);
      post(echo, call{&token});
      wait(token);
    } else {
      post(echo, call{&token});
      wait(token);
    }
  });
  measure_cold("the same after 300 us of silence", name, [&] {
    wait_token token;
    post(echo, call{&token});
    wait(token);
  });
  if (wait.own != nullptr && wait.own->options().workers > 0)
    measure_cold("the same, caller sleeps and a worker does it", name, [&] {
      wait_token token;
      post(echo, call{&token});
      waiter{nullptr}(token);
    });
  post_exit(echo, caf::exit_reason::user_shutdown);
  const auto ping = spawn_actor(system, counter);
  const auto pong = spawn_actor(system, counter);
  constexpr int messages = 1000;
  measure("one actor-to-actor message", name, 1, messages, [&] {
    wait_token token;
    post(ping, pong, messages, call{&token});
    wait(token);
  });
  post_exit(ping, caf::exit_reason::user_shutdown);
  post_exit(pong, caf::exit_reason::user_shutdown);
  all_exchange(system, name, wait);
}

void own(const std::string& name, scheduler_options options) {
  caf::actor_system_config config;
  caf::actor_system system = make_actor_system(config, options);
  scheduler& s = scheduler::of(system);
  run(system, name, waiter{&s});
  s.finish();
}

void create_and_destroy(const std::string& name, bool ours) {
  measure("create + destroy an actor system", name, 5, 1, [&] {
    caf::actor_system_config config;
    if (ours) static_cast<void>(make_actor_system(config, scheduler_options{}));
    else static_cast<void>(caf::actor_system(config));
  });
}

void write_json(const char* path) {
  std::ofstream out(path);
  out << "{\"meta\": {\"cores\": " << std::thread::hardware_concurrency() << "}, \"rows\": [";
  for (std::size_t i = 0; i < rows.size(); ++i)
    out << (i ? "," : "") << "\n  {\"what\": \"" << rows[i].what << "\", \"scheduler\": \"" << rows[i].scheduler
        << "\", \"median_us\": " << rows[i].median_us << ", \"p99_us\": " << rows[i].p99_us
        << ", \"batches\": " << rows[i].samples << "}";
  out << "\n]}\n";
}

}  // namespace

int main(int argc, char** argv) {
  const char* json = nullptr;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--seconds") == 0) seconds_each = std::atof(argv[i + 1]);
    else if (std::strcmp(argv[i], "--json") == 0) json = argv[i + 1];
    else return std::fprintf(stderr, "usage: scheduler_latency [--seconds S] [--json FILE]\n"), 2;
  }
  std::printf("%-44s %-22s %10s %10s\n", "# what", "scheduler", "median us", "p99 us");
  own("troupe, 0 workers", {});
  scheduler_options one;
  one.workers = 1;
  own("troupe, 1 worker", one);
  {
    caf::actor_system_config config;
    caf::actor_system system(config);
    run(system, "caf work stealing", waiter{nullptr});
  }
  create_and_destroy("troupe", true);
  create_and_destroy("caf work stealing", false);
  if (json != nullptr) write_json(json);
}
