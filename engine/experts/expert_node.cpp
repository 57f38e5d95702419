// SPDX-License-Identifier: Apache-2.0
#include "engine/experts/expert_node.hpp"

#include <exception>
#include <system_error>
#include <utility>

#include "memory/error.hpp"

namespace troupe {

expert_node::~expert_node() {
  {
    const std::lock_guard lock(mutex_);
    quits_ = true;
  }
  news_.notify_all();
}

void expert_node::start(const std::string& who, std::function<void(int)> given,
                        std::function<void(const failure_ptr&)> ended) {
  // Its ranks would first wait for each other without hearing that the run has ended.
  if (through_->last_ == expert_access::inside::kind::dispatch)
    throw error(errc::invalid_argument,
                who + ": its exchange has a dispatch that was not combined; combine it before the run");
  {
    const std::lock_guard lock(mutex_);
    try {
      if (!thread_.joinable()) thread_ = std::jthread{[this] { work(); }};
    } catch (const std::system_error& e) {
      throw error(errc::out_of_memory, who + ": there is no thread for it: " + e.what());
    }
    pass_->start(who);
    who_ = who;
    given_ = std::move(given);
    ended_ = std::move(ended);
    for (auto& each : tiles_) each.reset();
    why_ = nullptr;
    runs_ = true;
  }
  news_.notify_all();
}

void expert_node::ready(const tile_place& in, const tile_place& out) {
  {
    const std::lock_guard lock(mutex_);
    tiles_[static_cast<std::size_t>(in.index)] = {in, out};
  }
  news_.notify_all();
}

void expert_node::end(const failure_ptr& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!runs_ || why_) return;
    why_ = why;
    // A node that is about to start a dispatch looks again when it has.
    if (dispatches_) through_->cancel(why);
  }
  news_.notify_all();
}

void expert_node::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    news_.wait(lock, [this] { return runs_ || quits_; });
    if (!runs_) return;  // who quits has waited for the run's end
    lock.unlock();
    const failure_ptr why = run();
    pass_->ended();
    lock.lock();
    runs_ = false;
    given_ = nullptr;
    auto ended = std::exchange(ended_, nullptr);
    lock.unlock();
    ended(why);
    ended = nullptr;
    lock.lock();
  }
}

failure_ptr expert_node::run() {
  for (std::size_t t = 0; t < tiles_.size(); ++t) {
    way where{};
    {
      std::unique_lock lock(mutex_);
      news_.wait(lock, [&] { return tiles_[t] || why_; });
      if (why_) return why_;
      where = *tiles_[t];
    }
    try {
      pass_->perform(where.in, where.out, *this);
    } catch (...) {
      const failure_ptr own = failure_of(t);
      through_->cancel(own);  // what a function has thrown ends the dispatch, too
      std::unique_lock lock(mutex_);
      dispatches_ = false;
      // The rank that has refused ends the run, and says why.
      if (own->code == errc::peer_refused && through_->refusing_) news_.wait(lock, [this] { return why_ != nullptr; });
      return why_ ? why_ : own;
    }
    given_(static_cast<int>(t));
  }
  return nullptr;
}

void expert_node::begins() {
  const std::lock_guard lock(mutex_);
  if (why_) throw_failure(why_);
  dispatches_ = true;
}

void expert_node::begun() {
  const std::lock_guard lock(mutex_);
  if (why_) through_->cancel(why_);
}

void expert_node::combined() {
  const std::lock_guard lock(mutex_);
  dispatches_ = false;
}

void check_fits(const expert_exchange& through, const stream_base& tiles, const std::string& who) {
  const auto refuse = [&](const std::string& why) { throw error(errc::invalid_argument, who + why); };
  if (!through) refuse("its exchange is empty (moved from, or never made)");
  const stream_type& type = tiles.type();
  const expert_access::inside& in = expert_access::in(through);
  if (!in.options_.starts_early) refuse("its exchange was made without expert_options::starts_early");
  if (type.type != in.options_.type)
    refuse("its tiles are of " + std::string{troupe::name(type.type)} + ", and the exchange was made for " +
           std::string{troupe::name(in.options_.type)});
  if (!in.node_.expired()) refuse("its exchange is another node's already; each needs one of its own");
  if (type.shape.rank() != 2 || type.shape[1] != in.options_.hidden)
    refuse("its tiles have the shape " + to_string(type.shape) + "; tokens are rows of " +
           std::to_string(in.options_.hidden) + " elements, in two dimensions");
}

}  // namespace troupe
