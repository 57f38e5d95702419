// SPDX-License-Identifier: Apache-2.0
#include "actors/caf/function_watch.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <caf/event_based_actor.hpp>
#include <spdlog/spdlog.h>

#include "actors/caf/caf_compat.hpp"

namespace troupe::actors {

struct function_began_message {};
struct function_look_message {};

}  // namespace troupe::actors

TROUPE_BEGIN_MESSAGES(troupe_functions, 50)
TROUPE_LOCAL_MESSAGE(troupe_functions, troupe::actors::function_began_message)
TROUPE_LOCAL_MESSAGE(troupe_functions, troupe::actors::function_look_message)
TROUPE_END_MESSAGES(troupe_functions)

namespace troupe::actors {

namespace {

constexpr std::chrono::seconds look_every{1};
constexpr int looks_until_told = 5;
/// Looks that found nothing, before it sleeps until a function begins.
constexpr int quiet_looks = 3;

class functions_actor final : public caf::event_based_actor {
public:
  functions_actor(caf::actor_config& config, std::shared_ptr<spdlog::logger> log)
      : event_based_actor(config), log_(std::move(log)) {
    on_exit_message(*this, [this](caf::exit_msg& m) { quit(std::move(m.reason)); });
  }
  caf::behavior make_behavior() override {
    return caf::message_handler{
        [this](const function_began_message&) {
          if (std::exchange(watching_, true)) return;
          futile_ = 0;
          look();
        },
        [this](const function_look_message&) { look(); },
    };
  }
  const char* name() const override { return "function_watch"; }

private:
  struct long_call {
    running_function what;
    int looks = 0;  ///< that found it, after the first
  };

  void look_later() { post_later(caf::actor_cast<caf::actor>(this), look_every, function_look_message{}); }

  void look() {
    std::vector<long_call> now;
    for (const running_function& what : function_watcher::running()) {
      const auto known = std::find_if(seen_.begin(), seen_.end(), [&](const long_call& one) {
        return one.what.thread == what.thread && one.what.number == what.number;
      });
      now.push_back({what, known == seen_.end() ? 0 : known->looks + 1});
      if (now.back().looks == looks_until_told) tell(what);
    }
    seen_ = std::move(now);
    const std::uint64_t calls = function_watcher::calls();
    futile_ = seen_.empty() && calls == std::exchange(calls_, calls) ? futile_ + 1 : 0;
    watching_ = futile_ < quiet_looks || !function_watcher::fall_asleep();
    if (watching_) look_later();
  }

  void tell(const running_function& what) {
    const std::string named = what.name.empty() ? std::string{} : " '" + std::string{what.name.view()} + "'";
    log_->warn(
        "waiting for more than {} s: a function of the program that reduces{} (called with {} {}, in thread {} of "
        "the system's) has not returned. Until it does, neither a deadline nor an abort ends its operation, nor "
        "what else its rank has under way",
        (look_every * looks_until_told).count(), named, what.count, troupe::name(what.type), what.thread);
  }

  const std::shared_ptr<spdlog::logger> log_;
  std::vector<long_call> seen_;
  std::uint64_t calls_ = 0;
  int futile_ = 0;
  bool watching_ = false;  ///< a look is under way
};

}  // namespace

function_watch::function_watch(caf::actor_system& system, std::shared_ptr<spdlog::logger> log)
    : system_(system), log_(std::move(log)) {}

function_watch::~function_watch() {
  retire();
  if (actor_) post_exit(actor_, caf::exit_reason::normal);
}

void function_watch::wake() noexcept {
  try {
    if (!actor_) {
      const lets_go_of_logger of_this_thread;
      actor_ = system_.spawn<functions_actor, caf::lazy_init>(log_);
    }
    // By the clock's thread, which wakes a worker: this one would be taken for a thread that comes back to the queue soon.
    post_later(actor_, look_every, function_began_message{});
  } catch (...) {}  // no memory: the function runs unwatched
}

}  // namespace troupe::actors
