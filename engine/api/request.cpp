// SPDX-License-Identifier: Apache-2.0
#include "engine/api/request.hpp"

#include <algorithm>
#include <exception>
#include <memory>

#include <spdlog/spdlog.h>

#include "actors/log.hpp"
#include "engine/config/configuration.hpp"
#include "engine/world/communicator_state.hpp"
#include "memory/error.hpp"

namespace troupe {

request::request() = default;
request::request(const request&) = default;
request::request(request&&) noexcept = default;
request& request::operator=(const request&) = default;
request& request::operator=(request&&) noexcept = default;
request::~request() = default;
request::request(std::shared_ptr<state> s) : state_(std::move(s)) {}

void throw_failure(const failure_ptr& why) { throw error(why->code, why->text); }

namespace {

/// Without an engine: it is closing, which completes everything.
bool wait_without_help(actors::completion& done, actors::steady_time deadline) {
  actors::parker place;
  if (!done.enter(place)) return true;
  while (!done.done() && std::chrono::steady_clock::now() < deadline) place.park(deadline);
  done.leave(place);
  return done.done();
}

/// A request of a group that is not launched yet: another thread has to. Does not hold the engine's door open, as a closing engine
/// knows nothing of such an operation; looks every few milliseconds, being an odd thing to do.
void wait_for_launch(const std::atomic<bool>& launched, actors::completion& done, actors::steady_time deadline) {
  using namespace std::chrono_literals;
  for (auto now = std::chrono::steady_clock::now(); !launched.load() && !done.done() && now < deadline;
       now = std::chrono::steady_clock::now())
    wait_without_help(done, std::min(deadline, now + 5ms));
}

}  // namespace

bool request::state::wait_until(actors::steady_time deadline) const {
  if (of->record) [[unlikely]] {
    const recorded_visit inside{*of, rank};
    if (!wait_now(deadline)) return false;
    of->record->waited(rank, recorded);
    return true;
  }
  return wait_now(deadline);
}

/// False: `deadline` has passed.
bool request::state::wait_now(actors::steady_time deadline) const {
  if (done->done()) return true;
  actors::runtime::check_may_wait();
  if (!launched.load()) wait_for_launch(launched, *done, deadline);
  const gate::pass inside{of->core->door, static_cast<std::size_t>(rank)};
  if (!inside) return wait_without_help(*done, deadline);
  return of->wait(rank, done, deadline);
}

bool request::done() const noexcept { return !state_ || state_->done->done(); }

bool request::test() {
  if (!state_) return true;
  if (!state_->done->done())
    if (const gate::pass inside{state_->of->core->door, static_cast<std::size_t>(state_->rank)}) {
      state_->of->cell(state_->rank).help_briefly();
      state_->of->core->runtime->help_briefly();
    }
  if (!state_->done->done()) return false;
  if (state_->of->record) static_cast<void>(state_->wait_until(actors::no_deadline));
  if (state_->done->why()) throw_failure(state_->done->why());
  return true;
}

void request::wait() {
  if (!state_) return;
  state_->wait_until(actors::no_deadline);
  if (state_->done->why()) throw_failure(state_->done->why());
}

bool request::wait_for(std::chrono::nanoseconds time) {
  if (!state_) return true;
  const auto now = std::chrono::steady_clock::now();
  const auto deadline = time > actors::no_deadline - now ? actors::no_deadline : now + time;
  if (!state_->wait_until(deadline)) return false;
  if (state_->done->why()) throw_failure(state_->done->why());
  return true;
}

std::error_code request::try_wait() noexcept {
  if (!state_) return {};
  try {
    state_->wait_until(actors::no_deadline);
  } catch (const error& e) {
    return e.code();
  } catch (...) {
    return make_error_code(errc::invalid_argument);
  }
  return status();
}

std::error_code request::status() const noexcept {
  if (!done() || !state_ || !state_->done->why()) return {};
  return make_error_code(state_->done->why()->code);
}

std::string request::message() const {
  return done() && state_ && state_->done->why() ? state_->done->why()->text : std::string{};
}

namespace {

/// The same whether it comes at once or later: nothing waits inside, and what it throws goes to the log, since on an actor's turn there is
/// nobody to pass it to.
template <class Log>
void call_back(const std::function<void(std::error_code)>& callback, std::error_code code, const Log& log) {
  const actors::no_waiting inside;
  try {
    callback(code);
  } catch (const std::exception& e) {
    log()->error("a callback of an operation threw: {}", e.what());
  } catch (...) {
    log()->error("a callback of an operation threw something that is no std::exception");
  }
}

/// For what belongs to no engine: that of one that is made without options.
std::shared_ptr<spdlog::logger> log_without_engine() {
  try {
    return make_log(with_environment({}).log_level);
  } catch (const error&) {  // which engines tell of
    return make_log("warn");
  }
}

}  // namespace

void request::then(std::function<void(std::error_code)> callback) {
  if (!callback)
    throw error(errc::invalid_argument,
                "request::then: the callback is empty; pass a function that takes a std::error_code");
  if (!state_) return call_back(callback, {}, log_without_engine);
  const auto of_engine = [log = state_->of->core->log] { return log; };
  if (state_->done->done()) return call_back(callback, status(), of_engine);
  state_->done->then([done = state_->done.get(), callback = std::move(callback), of_engine] {
    call_back(callback, done->why() ? make_error_code(done->why()->code) : std::error_code{}, of_engine);
  });
}

void request::state::end_cancelled(const std::shared_ptr<state>& which) {
  end_with(which, make_failure(errc::cancelled, "rank " + std::to_string(which->rank) + " cancelled it"));
}

void request::state::end_with(const std::shared_ptr<state>& which, const failure_ptr& why) {
  for (actors::operation* part : {which->what, which->pair != nullptr ? &which->pair->out : nullptr})
    if (part != nullptr)
      which->of->cell(which->rank)
          .post(actors::rank_order{[op = actors::operation_ptr{which, part},
                                    why](actors::rank_state& s, actors::rank_outbox& out) { s.end(op, why, out); }});
}

void request::cancel() {
  if (!state_ || state_->done->done()) return;
  // A group's request that is not launched is cancelled by its launch: whichever of the two flags is set last sees the other.
  state_->cancel_wanted.store(true);
  if (!state_->launched.load()) return;
  if (const gate::pass inside{state_->of->core->door, static_cast<std::size_t>(state_->rank)})
    state::end_cancelled(state_);
}

}  // namespace troupe
