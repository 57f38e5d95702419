// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tells in the log of a function of the program's own that reduces and does not return (memory/kernels/user_functions.hpp). Where all ranks of an operation
// are in such functions, nobody is left to look at a deadline or to miss them.
//
// An actor with a thread of its own looks every second while such functions are called, as all others may be inside them. It is there from the first call on.

#include <memory>

#include <caf/actor_system.hpp>

namespace spdlog {
class logger;
}

namespace troupe::actors {

class function_watch {
public:
  function_watch(caf::actor_system& system, std::shared_ptr<spdlog::logger> log);
  /// Ends the actor.
  ~function_watch();
  function_watch(const function_watch&) = delete;
  function_watch& operator=(const function_watch&) = delete;

private:
  class watcher;
  class watch_actor;
  const std::shared_ptr<watcher> watcher_;
};

}  // namespace troupe::actors
