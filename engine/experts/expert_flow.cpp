// SPDX-License-Identifier: Apache-2.0
#include "engine/experts/expert_flow.hpp"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "engine/experts/expert_inside.hpp"
#include "engine/flow/flow_outside.hpp"
#include "memory/error.hpp"

namespace troupe {

struct expert_access {
  using inside = expert_exchange::inside;
  static inside& in(const expert_exchange& of) { return of.in(); }
};

namespace {

/// One rank's node. Its thread performs the tiles of a run in their order, so that all ranks dispatch the same one.
///   The flow       start(), ready(), end(): whoever has the run's turn, or starts it
///   The thread     alone calls the functions and the exchange, but for cancel(); asleep between tiles and between runs
/// What both touch is under `mutex_`, and `given_`, `ended_` and the tiles' places are the thread's from start() to ended(). Memory: a place for each tile.
class expert_node final : public flow_outside {
public:
  expert_node(expert_access::inside& through, detail::expert_functions what, std::size_t tokens, int tiles)
      : through_(&through),
        what_(std::move(what)),
        tokens_(tokens),
        tiles_(static_cast<std::size_t>(tiles)),
        ids_(tokens * static_cast<std::size_t>(through.options_.top_k)),
        weights_(ids_.size()) {}
  ~expert_node() override {
    {
      const std::lock_guard lock(mutex_);
      quits_ = true;
    }
    news_.notify_all();
  }

  void start(const std::string& who, std::function<void(int)> given,
             std::function<void(const failure_ptr&)> ended) override {
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
      who_ = who;
      given_ = std::move(given);
      ended_ = std::move(ended);
      for (auto& each : tiles_) each.reset();
      why_ = nullptr;
      runs_ = true;
    }
    news_.notify_all();
  }

  void ready(const tile_place& in, const tile_place& out) override {
    {
      const std::lock_guard lock(mutex_);
      tiles_[static_cast<std::size_t>(in.index)] = {in, out};
    }
    news_.notify_all();
  }

  void end(const failure_ptr& why) override {
    {
      const std::lock_guard lock(mutex_);
      if (!runs_ || why_) return;
      why_ = why;
      // Who is about to start a dispatch looks again when it has.
      if (dispatches_) through_->cancel(why);
    }
    news_.notify_all();
  }

private:
  struct way {
    tile_place in, out;
  };

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      news_.wait(lock, [this] { return runs_ || quits_; });
      if (!runs_) return;  // who quits has waited for the run's end
      lock.unlock();
      const failure_ptr why = run();
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

  failure_ptr run() {
    for (std::size_t t = 0; t < tiles_.size(); ++t) {
      way where{};
      {
        std::unique_lock lock(mutex_);
        news_.wait(lock, [&] { return tiles_[t] || why_; });
        if (why_) return why_;
        where = *tiles_[t];
      }
      try {
        perform(where);
      } catch (...) {
        const failure_ptr own = failure_of(t);
        through_->cancel(own);  // what a function has thrown ends the dispatch, too
        std::unique_lock lock(mutex_);
        dispatches_ = false;
        // The rank that has refused ends the run, and says why.
        if (own->code == errc::peer_refused && through_->refusing_)
          news_.wait(lock, [this] { return why_ != nullptr; });
        return why_ ? why_ : own;
      }
      given_(static_cast<int>(t));
    }
    return nullptr;
  }

  void perform(const way& where) {
    const expert_options& options = through_->options_;
    what_.route(where.in, ids_, weights_);
    {
      const std::lock_guard lock(mutex_);
      if (why_) throw_failure(why_);
      dispatches_ = true;
    }
    through_->start(where.in.data, tokens_ * options.hidden, options.type, ids_, weights_, tiles_.size());
    {
      const std::lock_guard lock(mutex_);
      if (why_) through_->cancel(why_);
    }
    while (const auto part = through_->next_part(options.type)) {
      auto* rows = static_cast<std::byte*>(part->what.rows);
      for (std::size_t e = 0; e < part->what.experts.size(); ++e) {
        const std::size_t count = part->what.counts[e];
        if (count > 0) what_.compute(part->what.experts[e], rows, count);
        rows += count * through_->result_bytes();
      }
      through_->ready(part->from);
    }
    through_->combine_early(where.out.data, tokens_ * options.hidden, options.type);
    const std::lock_guard lock(mutex_);
    dispatches_ = false;
  }

  /// @pre in a handler
  failure_ptr failure_of(std::size_t tile) const { return failure_under_way(who_ + ", tile " + std::to_string(tile)); }

  expert_access::inside* const through_;  ///< where it stays, wherever the exchange is moved
  const detail::expert_functions what_;
  const std::size_t tokens_;
  std::mutex mutex_;  // some times a tile
  std::string who_;
  std::condition_variable news_;
  bool runs_ = false, quits_ = false;
  bool dispatches_ = false;  ///< a dispatch is under way, or about to be
  failure_ptr why_;          ///< the run has ended
  std::function<void(int)> given_;
  std::function<void(const failure_ptr&)> ended_;
  std::vector<std::optional<way>> tiles_;  ///< that are ready
  std::vector<std::int32_t> ids_;
  std::vector<float> weights_;
  std::jthread thread_;  ///< last: it ends before the rest
};

}  // namespace

stream_base detail::add_experts(flow& to, std::string name, const stream_base& tokens, expert_exchange& through,
                                expert_functions what, const collective_options& options) {
  const std::string who = "flow " + to.name() + ": node " + name + ": ";
  const auto refuse = [&](const std::string& why) { throw error(errc::invalid_argument, who + why); };
  if (!through) refuse("its exchange is empty (moved from, or never made)");
  const stream_type& type = tokens.type();
  expert_access::inside& in = expert_access::in(through);
  if (!in.options_.starts_early) refuse("its exchange was made without expert_options::starts_early");
  if (type.type != in.options_.type)
    refuse("its tiles are of " + std::string{troupe::name(type.type)} + ", and the exchange was made for " +
           std::string{troupe::name(in.options_.type)});
  if (!in.node_.expired()) refuse("its exchange is another node's already; each needs one of its own");
  const std::size_t elements = type.shape.elements();
  if (type.shape.rank() != 2 || type.shape[1] != in.options_.hidden)
    refuse("its tiles have the shape " + to_string(type.shape) + "; tokens are rows of " +
           std::to_string(in.options_.hidden) + " elements, in two dimensions");
  const auto node = std::make_shared<expert_node>(in, std::move(what), elements / in.options_.hidden, type.tiles);
  const stream_base gives = to.add_outside(std::move(name), "experts", tokens, in.comm_, node, options);
  in.node_ = node;
  return gives;
}

}  // namespace troupe
