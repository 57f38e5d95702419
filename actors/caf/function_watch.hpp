// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tells in the log of a function of the program's own that reduces and does not return (memory/kernels/user_functions.hpp). Where all ranks of an operation
// are in such functions, nobody is left to look at a deadline or to miss them.
//
// An actor looks every second while such functions are called, and needs a thread of the scheduler, or one that waits, for that.

#include <memory>

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

#include "memory/kernels/user_functions.hpp"

namespace spdlog {
class logger;
}

namespace troupe::actors {

class function_watch final : public function_watcher {
public:
  function_watch(caf::actor_system& system, std::shared_ptr<spdlog::logger> log);
  /// Ends the actor.
  ~function_watch() override;
  void wake() noexcept override;

private:
  caf::actor_system& system_;
  const std::shared_ptr<spdlog::logger> log_;
  caf::actor actor_;  ///< none before the first call of a function
};

}  // namespace troupe::actors
