// SPDX-License-Identifier: Apache-2.0
#pragma once
// The CAF side of flow_keeper.hpp, for the files of this folder.

#include <memory>
#include <mutex>
#include <vector>

#include "actors/caf/caf_compat.hpp"
#include "actors/caf/flow_keeper.hpp"
#include "actors/caf/scheduler.hpp"

namespace troupe::actors {

class flow_keeper final : public flow_threads, public std::enable_shared_from_this<flow_keeper> {
public:
  flow_keeper(caf::actor_system& system, scheduler& agenda) : system_(&system), agenda_(&agenda) {}

  // -- any thread --
  void keep(const std::shared_ptr<flow_cell>& which, std::optional<std::chrono::nanoseconds> deadline);
  void schedule(const std::shared_ptr<flow_cell>& which) noexcept override;
  /// Every run fails; a thread of the scheduler ends it, or who waits for it. The keeper's actor ends.
  void end_all(const failure_ptr& why);
  /// Nothing runs any more: what is left, and what comes, is over at once. @pre end_all()
  void close() noexcept;

  // -- its actor --
  /// Returns how long to nap; nothing: until a run begins.
  std::optional<std::chrono::nanoseconds> look();

private:
  caf::actor actor();

  std::mutex mutex_;  ///< once a run and nap
  caf::actor_system* system_;
  scheduler* agenda_;  ///< null: nothing runs any more
  caf::actor actor_;
  std::vector<std::weak_ptr<flow_cell>> runs_;
  bool looks_ = false;
  int futile_ = 0;  ///< looks since there was a run
  std::chrono::nanoseconds nap_{};
};

}  // namespace troupe::actors
