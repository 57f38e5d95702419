// SPDX-License-Identifier: Apache-2.0
#include "actors/caf/flow_actors.hpp"

#include <atomic>
#include <mutex>
#include <utility>

#include <caf/event_based_actor.hpp>

#include "actors/caf/caf_compat.hpp"
#include "actors/caf/runtime_hidden.hpp"
#include "actors/caf/scheduler.hpp"

namespace troupe::actors {

// -- to a node --
struct flow_tile_message {
  std::int32_t input;
  flow_tile what;
};
struct flow_back_message {
  std::int32_t slot;
};
struct flow_arrived_message {
  std::int32_t part;
};
struct flow_go_on_message {};
struct flow_stop_message {};
// -- to the conductor --
struct flow_finished_message {};
struct flow_stopped_message {};
struct flow_ended_message {
  int operation;
  failure_ptr why;
};
struct flow_fail_message {
  failure_ptr why;
};
struct flow_late_message {};

}  // namespace troupe::actors

TROUPE_BEGIN_MESSAGES(troupe_flow, 40)
TROUPE_LOCAL_MESSAGE(troupe_flow, troupe::actors::flow_tile_message)
TROUPE_LOCAL_MESSAGE(troupe_flow, troupe::actors::flow_back_message)
TROUPE_LOCAL_MESSAGE(troupe_flow, troupe::actors::flow_arrived_message)
TROUPE_LOCAL_MESSAGE(troupe_flow, troupe::actors::flow_go_on_message)
TROUPE_LOCAL_MESSAGE(troupe_flow, troupe::actors::flow_stop_message)
TROUPE_LOCAL_MESSAGE(troupe_flow, troupe::actors::flow_finished_message)
TROUPE_LOCAL_MESSAGE(troupe_flow, troupe::actors::flow_stopped_message)
TROUPE_LOCAL_MESSAGE(troupe_flow, troupe::actors::flow_ended_message)
TROUPE_LOCAL_MESSAGE(troupe_flow, troupe::actors::flow_fail_message)
TROUPE_LOCAL_MESSAGE(troupe_flow, troupe::actors::flow_late_message)
TROUPE_END_MESSAGES(troupe_flow)

namespace troupe::actors {

namespace {

/// What the actors of a run share. They hold it until they end; it holds them until the run is over.
class flow_cast final : public flow_actors, public std::enable_shared_from_this<flow_cast> {
public:
  flow_cast(std::shared_ptr<const flow_plan> plan, std::vector<flow_node_state>& nodes, std::shared_ptr<flow_host> host,
            bool watched)
      : plan(std::move(plan)),
        nodes(nodes),
        host(std::move(host)),
        watched(watched),
        waits_(this->plan->nodes.size()) {}

  void spawn(caf::actor_system& system, int operations, int agreements);

  void go() override {
    std::vector<caf::actor> all;
    {
      const std::lock_guard lock(mutex_);
      all = handles_;  // the run may be over before the last one hears it
    }
    for (const caf::actor& node : all) post(node, flow_go_on_message{});
  }
  void arrived(std::int32_t node, std::int32_t part) override { tell(node, flow_arrived_message{part}); }
  void ended(int operation, failure_ptr why) override { tell_conductor(flow_ended_message{operation, std::move(why)}); }
  void fail(failure_ptr why) override { tell_conductor(flow_fail_message{std::move(why)}); }
  void fail_after(std::chrono::nanoseconds time) override {
    if (const caf::actor to = conductor()) post_later(to, time, flow_late_message{});
  }

  /// From outside, also after the end of the run: hence the lock, once a part and not once a chunk.
  template <class Message>
  void tell(std::int32_t node, Message&& what) {
    caf::actor to;
    {
      const std::lock_guard lock(mutex_);
      if (conductor_) to = handles_[static_cast<std::size_t>(node)];
    }
    if (to) post(to, std::forward<Message>(what));
  }
  template <class Message>
  void tell_conductor(Message&& what) {
    if (const caf::actor to = conductor()) post(to, std::forward<Message>(what));
  }

  // -- by the actors --
  /// The other nodes. @pre the run is not over
  const caf::actor& node(std::int32_t which) const { return handles_[static_cast<std::size_t>(which)]; }
  void note(std::int32_t node, const flow_wait& what) {
    waits_[static_cast<std::size_t>(node)].store(packed(what), std::memory_order_relaxed);
    if (watched) host->waits(node, what);
  }
  std::vector<flow_wait> noted() const {
    std::vector<flow_wait> all;
    for (const auto& one : waits_) all.push_back(unpacked(one.load(std::memory_order_relaxed)));
    return all;
  }
  void end() {
    std::vector<caf::actor> nodes_then;
    caf::actor conductor_then;
    {
      const std::lock_guard lock(mutex_);
      nodes_then.swap(handles_);
      std::swap(conductor_then, conductor_);
    }
    for (const caf::actor& one : nodes_then) post_exit(one, caf::exit_reason::normal);
  }

  const std::shared_ptr<const flow_plan> plan;
  std::vector<flow_node_state>& nodes;
  const std::shared_ptr<flow_host> host;
  const bool watched;

private:
  static std::uint64_t packed(const flow_wait& w) {
    return std::uint64_t{static_cast<std::uint32_t>(w.index)} << 32 |
           std::uint64_t{static_cast<std::uint32_t>(w.stream + 1)} << 3 | static_cast<std::uint64_t>(w.what);
  }
  static flow_wait unpacked(std::uint64_t word) {
    return {static_cast<flow_wait::what_for>(word & 7), static_cast<std::int32_t>((word & 0xffffffffU) >> 3) - 1,
            static_cast<std::int32_t>(word >> 32)};
  }
  caf::actor conductor() {
    const std::lock_guard lock(mutex_);
    return conductor_;
  }

  std::vector<std::atomic<std::uint64_t>> waits_;  ///< by node, for texts only
  std::mutex mutex_;
  std::vector<caf::actor> handles_;  ///< as long as the run lasts
  caf::actor conductor_;
};

class flow_node_actor final : public caf::event_based_actor, private flow_outbox {
public:
  flow_node_actor(caf::actor_config& config, std::shared_ptr<flow_cast> run, std::int32_t node)
      : event_based_actor(config), run_(std::move(run)), node_(node) {
    on_exit_message(*this, [this](caf::exit_msg& m) { quit(std::move(m.reason)); });
  }

  caf::behavior make_behavior() override {
    return caf::message_handler{
        [this](const flow_tile_message& m) {
          turn([this, &m](flow_node_state& s) { s.tile(m.input, m.what, *this); });
        },
        [this](const flow_back_message& m) { turn([this, &m](flow_node_state& s) { s.given_back(m.slot, *this); }); },
        [this](const flow_arrived_message& m) {
          if (run_->watched && !stopped_) run_->host->hears_of(node_, m.part);
          turn([this, &m](flow_node_state& s) { s.arrived(m.part, *this); });
        },
        [this](const flow_go_on_message&) { turn([this](flow_node_state& s) { s.go_on(*this); }); },
        [this](const flow_stop_message&) {
          if (std::exchange(stopped_, true)) return;
          state().stop();
          run_->tell_conductor(flow_stopped_message{});  // the owner may use the states again from here on
        },
    };
  }

  void on_exit() override { run_.reset(); }
  const char* name() const override { return "flow_node"; }

private:
  flow_node_state& state() { return run_->nodes[static_cast<std::size_t>(node_)]; }

  template <class Transition>
  void turn(Transition&& transition) {
    if (stopped_) return;
    transition(state());
    run_->note(node_, state().waits_for());
  }

  void give(flow_port to, flow_tile what) override { post(run_->node(to.node), flow_tile_message{to.port, what}); }
  void give_back(std::int32_t stream, std::int32_t slot) override {
    post(run_->node(run_->plan->streams[static_cast<std::size_t>(stream)].from), flow_back_message{slot});
  }
  void again() override { post(caf::actor_cast<caf::actor>(this), flow_go_on_message{}); }
  flow_progress perform(const std::vector<flow_tile>& in, const flow_tile* out, std::int32_t at) override {
    scheduler::before_long_work();
    const failure_ptr why = run_->host->perform(node_, in, out, at);
    if (why) run_->fail(why);
    return why ? flow_progress::failed : flow_progress::done;
  }
  void ready(std::int32_t part) override {
    if (const failure_ptr why = run_->host->ready(node_, part)) run_->fail(why);
  }
  void finished() override { run_->tell_conductor(flow_finished_message{}); }

  std::shared_ptr<flow_cast> run_;
  std::int32_t node_;
  bool stopped_ = false;
};

class flow_conductor final : public caf::event_based_actor, private flow_run_outbox {
public:
  flow_conductor(caf::actor_config& config, std::shared_ptr<flow_cast> run, int operations, int agreements)
      : event_based_actor(config),
        run_(std::move(run)),
        state_(static_cast<int>(run_->plan->nodes.size()), operations, agreements) {
    on_exit_message(*this, [this](caf::exit_msg& m) { quit(std::move(m.reason)); });
  }

  caf::behavior make_behavior() override {
    return caf::message_handler{
        [this](const flow_finished_message&) { state_.finished(*this); },
        [this](const flow_stopped_message&) { state_.stopped(*this); },
        [this](flow_ended_message& m) { state_.ended(m.operation, m.why, *this); },
        [this](flow_fail_message& m) { state_.fail(m.why, *this); },
        [this](const flow_late_message&) { state_.fail(run_->host->late(run_->noted()), *this); },
    };
  }

  /// Before its time only when the engine ends: nothing runs any more then.
  void on_exit() override {
    if (const auto run = std::exchange(run_, nullptr); run && !is_over_) {
      run->end();
      run->host->over(
          make_failure(errc::engine_closed, "the engine was destroyed with flow " + run->plan->name + " under way"));
    }
  }
  const char* name() const override { return "flow_conductor"; }

private:
  void stop_nodes() override {
    for (std::size_t n = 0; n < run_->nodes.size(); ++n)
      post(run_->node(static_cast<std::int32_t>(n)), flow_stop_message{});
  }
  void agree() override { run_->host->agree(); }
  void end_operations(const failure_ptr& why) override { run_->host->end_operations(why); }
  void over(const failure_ptr& why) override {
    is_over_ = true;
    run_->end();
    run_->host->over(why);
    quit();
  }

  std::shared_ptr<flow_cast> run_;
  flow_run_state state_;
  bool is_over_ = false;
};

void flow_cast::spawn(caf::actor_system& system, int operations, int agreements) {
  const lets_go_of_logger of_this_thread;
  for (flow_node_state& each : nodes) each.begin();
  for (std::size_t n = 0; n < nodes.size(); ++n)
    handles_.emplace_back(
        system.spawn<flow_node_actor, caf::lazy_init>(shared_from_this(), static_cast<std::int32_t>(n)));
  conductor_ = system.spawn<flow_conductor, caf::lazy_init>(shared_from_this(), operations, agreements);
}

}  // namespace

std::shared_ptr<flow_actors> flow_actors::make(runtime& in, std::shared_ptr<const flow_plan> plan,
                                               std::vector<flow_node_state>& nodes, std::shared_ptr<flow_host> host,
                                               int operations, int agreements, bool watched) {
  auto run = std::make_shared<flow_cast>(std::move(plan), nodes, std::move(host), watched);
  run->spawn(in.inside().system, operations, agreements);
  runtime::hidden& inside = in.inside();
  const std::lock_guard lock(inside.flows_mutex);
  std::erase_if(inside.flows, [](const auto& one) { return one.expired(); });
  inside.flows.push_back(run);
  return run;
}

}  // namespace troupe::actors
