#pragma once
// What engine, communicators and requests share behind the public headers.

#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/runtime.hpp"
#include "actors/slot_desk.hpp"
#include "engine/communicator.hpp"
#include "engine/engine.hpp"
#include "engine/gate.hpp"
#include "engine/planner.hpp"
#include "engine/request.hpp"

namespace troupe {

struct society;

/// The inside of an engine; communicators and requests keep it alive, the engine closes it.
struct engine_core : std::enable_shared_from_this<engine_core> {
  explicit engine_core(engine_options o);
  ~engine_core();

  std::shared_ptr<society> found(std::string name, layout placement, std::vector<int> machine_ranks,
                                 std::shared_ptr<actors::cast> players);
  void close();

  engine_options options;
  layout machine_layout;  ///< of the options; size 0 ranks when none was given
  bool has_layout = false;
  planner plans;
  gate door;              ///< guards `stage`
  std::unique_ptr<actors::runtime> stage;
  std::atomic<int> worlds{0};
};

/// A communicator as all its ranks see it.
struct society : std::enable_shared_from_this<society> {
  /// What one rank counts; collectives are numbered by the desk (actors/slot_desk.hpp).
  struct seat {
    std::mutex mutex;                                  // sends and receives only
    std::unordered_map<std::int64_t, epoch_t> pairs;  ///< next epoch per peer and direction
    static constexpr std::int64_t unset = std::numeric_limits<std::int64_t>::min();
    static constexpr std::int64_t no_deadline = std::numeric_limits<std::int64_t>::max();
    std::atomic<std::int64_t> deadline_ns{unset};
    plan_memo last_plan;
  };

  std::shared_ptr<engine_core> core;
  std::shared_ptr<actors::crew> members;
  actors::slot_desk* desk = nullptr;  ///< of `members`
  std::string name;
  int ranks = 0;
  layout placement;
  std::vector<int> machine_ranks;
  std::shared_ptr<actors::cast> players;
  std::vector<std::unique_ptr<seat>> seats;

  /// Communicators that are being made of this one, until all their ranks have theirs.
  struct division {
    std::shared_ptr<society> made;
    int takers = 0;
  };
  std::mutex divisions_mutex;
  std::map<std::pair<epoch_t, int>, division> divisions;  ///< (which operation, color)

  /// Checks the description and makes an operation of it, without its place in the order. Throws error.
  actors::operation_ptr prepare(rank_t rank, call_description what);
  /// Gives it its place in the order of the rank's calls, and has it begun if it goes over slots.
  void number(rank_t rank, const actors::operation_ptr& op);
  /// A blocking collective that may go over slots. False: it goes another way, and has not begun.
  bool run_over_slots(rank_t rank, call_description& what);
  std::optional<std::chrono::nanoseconds> deadline_for(rank_t rank, const call_options& options) const;
};

struct communicator::impl {
  std::shared_ptr<society> of;
  rank_t rank = 0;
  ~impl();
};

struct request::state {
  std::shared_ptr<society> of;
  rank_t rank = 0;
  actors::operation_key key;
  std::atomic<bool> launched{false};
  std::atomic<bool> cancel_wanted{false};
  actors::completion_ptr done;

  /// @pre launched, and inside the engine's door
  void end_cancelled() const;
};

/// Rank's view of the description: sizes, roots, overlaps, types. Fills in what the description leaves open (in place, counts
/// of ranges). Throws error with what is wrong and what would be right.
void check_call(call_description& what, rank_t rank, int ranks);

/// Throws the failure as error.
[[noreturn]] void throw_failure(const failure_ptr& why);

}  // namespace troupe
