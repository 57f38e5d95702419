// SPDX-License-Identifier: Apache-2.0
#include "actors/caf/function_watch.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <caf/event_based_actor.hpp>
#include <spdlog/spdlog.h>

#include "actors/caf/caf_compat.hpp"
#include "memory/kernels/user_functions.hpp"

namespace troupe::actors {

struct function_began_message {};
struct function_look_message {};

}  // namespace troupe::actors

TROUPE_BEGIN_MESSAGES(troupe_functions, 50)
TROUPE_LOCAL_MESSAGE(troupe_functions, troupe::actors::function_began_message)
TROUPE_LOCAL_MESSAGE(troupe_functions, troupe::actors::function_look_message)
TROUPE_END_MESSAGES(troupe_functions)

namespace troupe::actors {

/// Shared with the actor, which may have a message when the engine ends.
class function_watch::watcher final : public function_watcher, public std::enable_shared_from_this<watcher> {
public:
  watcher(caf::actor_system& system, std::shared_ptr<spdlog::logger> log) : log(std::move(log)), system_(system) {}
  ~watcher() override { retire(); }
  void end() {
    retire();
    if (actor_) post_exit(actor_, caf::exit_reason::normal);
    actor_ = nullptr;
  }

  const std::shared_ptr<spdlog::logger> log;

private:
  bool wake() noexcept override;

  caf::actor_system& system_;
  caf::actor actor_;  ///< none before the first call of a function
};

class function_watch::watch_actor final : public caf::event_based_actor {
public:
  watch_actor(caf::actor_config& config, std::shared_ptr<watcher> of) : event_based_actor(config), of_(std::move(of)) {
    on_exit_message(*this, [this](caf::exit_msg& m) { quit(std::move(m.reason)); });
  }
  caf::behavior make_behavior() override {
    return caf::message_handler{
        [this](const function_began_message&) {
          if (std::exchange(watching_, true)) return;
          futile_ = 0;
          look_again();
        },
        [this](const function_look_message&) { look_again(); },
    };
  }
  void on_exit() override { of_.reset(); }
  const char* name() const override { return "function_watch"; }

private:
  static constexpr std::chrono::seconds between_looks{1};
  static constexpr int looks_until_overdue = 5;
  /// Looks that found nothing, before it sleeps until a function begins.
  static constexpr int most_futile = 3;

  struct long_call {
    running_function what;
    int looks = 0;  ///< that found it, after the first
  };

  void look_again() {
    try {
      look();
      watching_ = futile_ < most_futile || !of_->fall_asleep();
      if (watching_) post_later(caf::actor_cast<caf::actor>(this), between_looks, function_look_message{});
    } catch (const std::bad_alloc&) {
      watching_ = false;
      of_->fall_asleep_blindly();  // the next function that begins tries again
    }
  }

  void look() {
    std::vector<long_call> now;
    for (const running_function& what : function_watcher::running()) {
      const auto known = std::find_if(seen_.begin(), seen_.end(), [&](const long_call& one) {
        return one.what.thread == what.thread && one.what.number == what.number;
      });
      now.push_back({what, known == seen_.end() ? 0 : known->looks + 1});
      if (now.back().looks == looks_until_overdue) tell(what);
    }
    seen_ = std::move(now);
    const std::uint64_t calls = function_watcher::calls();
    futile_ = seen_.empty() && calls == std::exchange(calls_, calls) ? futile_ + 1 : 0;
  }

  void tell(const running_function& what) {
    const std::string named = what.name.empty() ? std::string{} : " '" + std::string{what.name.view()} + "'";
    of_->log->warn(
        "waiting for more than {} s: a function of the program that reduces{} (called with {} {}, in thread {} "
        "of the system's) has not returned. Until it does, neither a deadline nor an abort ends its "
        "operation, nor what else its rank has under way",
        (between_looks * looks_until_overdue).count(), named, what.count, troupe::name(what.type), what.thread);
  }

  std::shared_ptr<watcher> of_;
  std::vector<long_call> seen_;
  std::uint64_t calls_ = 0;
  int futile_ = 0;
  bool watching_ = false;  ///< a look is under way
};

bool function_watch::watcher::wake() noexcept {
  try {
    if (!actor_) {
      const lets_go_of_logger of_this_thread;
      actor_ = system_.spawn<watch_actor, caf::detached>(shared_from_this());
    }
    post(actor_, function_began_message{});
    return true;
  } catch (...) {  // no memory, or no thread: the next function that begins tries again
    return false;
  }
}

function_watch::function_watch(caf::actor_system& system, std::shared_ptr<spdlog::logger> log)
    : watcher_(std::make_shared<watcher>(system, std::move(log))) {
  watcher_->enlist();
}

function_watch::~function_watch() { watcher_->end(); }

}  // namespace troupe::actors
