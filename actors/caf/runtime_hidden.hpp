// SPDX-License-Identifier: Apache-2.0
#pragma once
// The CAF side of `runtime`, for the files of this folder.

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>

#include "actors/caf/caf_compat.hpp"
#include "actors/caf/communicator_actors.hpp"
#include "actors/caf/fabric.hpp"
#include "actors/caf/flow_keeper_hidden.hpp"
#include "actors/caf/function_watch.hpp"
#include "actors/caf/job_links.hpp"
#include "actors/caf/runtime.hpp"
#include "actors/caf/scheduler.hpp"
#include "actors/ports/nic/nic_thread.hpp"
#include "topology/reach.hpp"

namespace troupe::actors {

struct runtime::hidden {
  struct config : caf::actor_system_config {
    config() { silence(*this); }
  };
  struct known_communicator {
    std::weak_ptr<communicator_actors> members;
    std::weak_ptr<run_threads> run;
  };

  hidden(const runtime_options& o, machine hardware, const scheduler_options& s)
      : options(o),
        system(make_actor_system(settings, s)),
        agenda(scheduler::of(system)),
        flows(std::make_shared<flow_keeper>(system, agenda)) {
    const lets_go_of_logger of_this_thread;
    if (!options.log) options.log = make_log("warn");
    if (reach_map{hardware.ranks()}.routed())
      ways = std::make_unique<fabric>(system, std::move(hardware), memory, o.card, o.trace_routes, options.log);
    functions = std::make_unique<function_watch>(system, options.log);
  }

  runtime_options options;
  arena memory;
  config settings;
  std::unique_ptr<fabric> ways;  // outlives the system's actors: declared before it
  caf::actor_system system;
  scheduler& agenda;
  std::unique_ptr<job_links> job;   ///< null: none
  std::shared_ptr<nic_thread> nic;  ///< communicators that end later than it know it weakly
  void tell_of_ended_element();
  /// Thread of a communicator's attendant.
  struct attendant_thread {
    std::thread thread;
    std::shared_ptr<std::atomic<bool>> ended;
  };
  void start_attendant(const communicator_actors_ptr& members);
  void join_attendants(bool all);
  std::mutex attendants_mutex;
  std::vector<attendant_thread> attendants;
  std::mutex communicators_mutex;  // when a communicator is made or trouble is looked for
  std::vector<known_communicator> communicators;
  steady_time next_look{};  ///< guarded by communicators_mutex
  const std::shared_ptr<flow_keeper> flows;
  std::unique_ptr<function_watch> functions;
};

}  // namespace troupe::actors
