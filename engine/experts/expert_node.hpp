// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the nodes of experts have in common: a thread that performs tiles.

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/experts/expert_flow.hpp"
#include "engine/experts/expert_inside.hpp"
#include "engine/flow/flow_outside.hpp"

namespace troupe {

struct TROUPE_INTERNAL expert_access {
  using inside = expert_exchange::inside;
  using record = expert_exchange::inside::record;
  using tape = expert_tape::inside;
  static inside& in(const expert_exchange& of) { return of.in(); }
  static const std::shared_ptr<tape>& in(const expert_tape& of) { return of.what_; }
};

/// The dispatch of a tile, as its node is told of it.
class expert_dispatch {
public:
  virtual ~expert_dispatch() = default;
  virtual void begins() = 0;  ///< before it does. Throws what the run has ended with, if it has.
  virtual void begun() = 0;
  virtual void combined() = 0;
};

/// What a node does with a tile. Calls come from one thread at a time, and of perform() from the node's own.
class expert_pass {
public:
  virtual ~expert_pass() = default;
  /// A run is about to begin. @param who for texts of failures. Throws error: it cannot.
  virtual void start(const std::string& who) = 0;
  virtual void perform(const tile_place& in, const tile_place& out, expert_dispatch& through) = 0;
  virtual void ended() noexcept {}  ///< the run has, as far as this rank's node goes
};

/// One rank's node. Its thread performs the tiles of a run in their order, so that all ranks dispatch the same one.
///   The flow       start(), ready(), end(): whoever has the run's turn, or starts it
///   The thread     alone calls the pass and the exchange, but for cancel(); asleep between tiles and between runs
/// Members that both touch are under `mutex_`, and `given_`, `ended_` and the tiles' places are the thread's from start() to ended(). Memory: a place for each tile.
class TROUPE_INTERNAL expert_node final : public flow_outside, private expert_dispatch {
public:
  expert_node(expert_access::inside& through, std::unique_ptr<expert_pass> pass, int tiles)
      : through_(&through), pass_(std::move(pass)), tiles_(static_cast<std::size_t>(tiles)) {}
  ~expert_node() override;

  void start(const std::string& who, std::function<void(int)> given,
             std::function<void(const failure_ptr&)> ended) override;
  void ready(const tile_place& in, const tile_place& out) override;
  void end(const failure_ptr& why) override;

private:
  struct way {
    tile_place in, out;
  };
  void work();
  failure_ptr run();
  void begins() override;
  void begun() override;
  void combined() override;
  /// @pre in a handler
  failure_ptr failure_of(std::size_t tile) const { return failure_under_way(who_ + ", tile " + std::to_string(tile)); }

  expert_access::inside* const through_;  ///< where it stays, wherever the exchange is moved
  const std::unique_ptr<expert_pass> pass_;
  std::mutex mutex_;  // some times a tile
  std::string who_;
  std::condition_variable news_;
  bool runs_ = false, quits_ = false;
  bool dispatches_ = false;  ///< a dispatch is under way, or about to be
  failure_ptr why_;          ///< the run has ended
  std::function<void(int)> given_;
  std::function<void(const failure_ptr&)> ended_;
  std::vector<std::optional<way>> tiles_;  ///< that are ready
  std::jthread thread_;                    ///< last: it ends before the rest
};

/// Throws error(invalid_argument): the exchange cannot be of a node that takes these tiles, or is another one's.
void check_fits(const expert_exchange& through, const stream_base& tiles, const std::string& who);

}  // namespace troupe
