// SPDX-License-Identifier: Apache-2.0
// How a scheduler of ours gets into an actor system: with 0.17 as a module of the configuration, with 1.x by custom set-up of the system.

#include "actors/caf/caf_compat.hpp"

#include <caf/actor_system_config.hpp>

#include <functional>
#include <memory>
#include <utility>

#if TROUPE_CAF_0

#include <caf/atom.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/scheduler/abstract_coordinator.hpp>

#include <iostream>
#include <string>

namespace troupe::actors {

namespace {

/// Stands in for CAF's printer, which would cost every system a thread. `aout` prints; redirection is not supported.
caf::behavior print_to_stdout(caf::event_based_actor*) {
  return {
      [](caf::add_atom, caf::actor_id, const std::string& text) { std::cout << text << std::flush; },
      [](caf::flush_atom, caf::actor_id) {},
      [](caf::delete_atom, caf::actor_id) {},
      [](caf::redirect_atom, const std::string&, int) {},
      [](caf::redirect_atom, caf::actor_id, const std::string&, int) {},
  };
}

class scheduler_module final : public caf::scheduler::abstract_coordinator {
public:
  scheduler_module(caf::actor_system& system, std::unique_ptr<hosted_scheduler> what)
      : abstract_coordinator(system), what_(std::move(what)) {}

  hosted_scheduler& get() { return *what_; }

  void enqueue(caf::resumable* what) override { what_->enqueue(what); }
  caf::actor_clock& clock() noexcept override { return what_->clock(); }
  void init(caf::actor_system_config&) override {}  // what the base class reads there is for its own workers
  void start() override {
    // Not the base class's start: its printer is a thread. Lazy: costs nothing until somebody prints.
    utility_actors_[printer_id] = spawn_actor<caf::hidden + caf::lazy_init>(system(), print_to_stdout);
  }
  void stop() override {
    if (auto& last = utility_actors_[printer_id]) {
      caf::anon_send_exit(last, caf::exit_reason::user_shutdown);
      last = nullptr;
    }
    what_->stop();
  }

private:
  std::unique_ptr<hosted_scheduler> what_;
};

}  // namespace

hosted_scheduler* hosted_scheduler_of(caf::actor_system& system) {
  auto* module = dynamic_cast<scheduler_module*>(&system.scheduler());
  return module ? &module->get() : nullptr;
}

caf::actor_system make_actor_system(caf::actor_system_config& config,
                                    const std::function<std::unique_ptr<hosted_scheduler>(caf::actor_system&)>& make) {
  config.module_factories.push_back([make](caf::actor_system& system) -> caf::actor_system::module* {
    return new scheduler_module(system, make(system));
  });
  return caf::actor_system(config);
}

void silence(caf::actor_system_config& config) { config.set("logger.console-verbosity", caf::atom("quiet")); }
void thread_begins(caf::actor_system& system) { system.thread_started(); }
void thread_ends(caf::actor_system& system) { system.thread_terminates(); }

}  // namespace troupe::actors

#else

#include <caf/action.hpp>
#include <caf/actor_clock.hpp>
#include <caf/detail/actor_system_access.hpp>
#include <caf/disposable.hpp>
#include <caf/thread_owner.hpp>

namespace troupe::actors {

namespace {

class scheduler_module final : public caf::scheduler {
public:
  explicit scheduler_module(std::unique_ptr<hosted_scheduler> what) : what_(std::move(what)) {}

  hosted_scheduler& get() { return *what_; }

  void schedule(caf::resumable* what) override { what_->enqueue(what); }
  void delay(caf::resumable* what) override { what_->enqueue(what); }
  void start() override {}
  void stop() override { what_->stop(); }

private:
  std::unique_ptr<hosted_scheduler> what_;
};

/// The system owns its clock, and destroys it before its scheduler.
class clock_of_scheduler final : public caf::actor_clock {
public:
  explicit clock_of_scheduler(caf::actor_clock& real) : real_(real) {}
  time_point now() const noexcept override { return real_.now(); }
  caf::disposable schedule(time_point due, caf::action what) override { return real_.schedule(due, std::move(what)); }

private:
  caf::actor_clock& real_;
};

using factory = const std::function<std::unique_ptr<hosted_scheduler>(caf::actor_system&)>;

void install(caf::actor_system& system, caf::actor_system_config&, void* make) {
  auto module = std::make_unique<scheduler_module>((*static_cast<factory*>(make))(system));
  caf::detail::actor_system_access inside{system};
  inside.clock(std::make_unique<clock_of_scheduler>(module->get().clock()));
  inside.scheduler(std::move(module));
}

}  // namespace

hosted_scheduler* hosted_scheduler_of(caf::actor_system& system) {
  auto* module = dynamic_cast<scheduler_module*>(&system.scheduler());
  return module ? &module->get() : nullptr;
}

caf::actor_system make_actor_system(caf::actor_system_config& config, factory& make) {
  return caf::actor_system(config, &install, const_cast<void*>(static_cast<const void*>(&make)));
}

void silence(caf::actor_system_config&) {}  // 1.x is silent unless it is told otherwise
void thread_begins(caf::actor_system& system) { system.thread_started(caf::thread_owner::scheduler); }
void thread_ends(caf::actor_system& system) { system.thread_terminates(); }

}  // namespace troupe::actors

#endif
