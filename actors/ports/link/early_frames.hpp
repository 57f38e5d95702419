// SPDX-License-Identifier: Apache-2.0
#pragma once
// Frames for a communicator that is not here yet, because their sender has finished the split before, or that has ended here. Plain states, without
// thread or socket: job_links has them, and the simulated processes (engine/tools/simulate/job.hpp).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/ports/link/frames.hpp"

namespace troupe::actors {

/// Frames that wait for their communicator. Not synchronised.
template <class Frame>
class early_frames {
public:
  /// @param make the frame, from `from`; it is not called if the communicator has ended here
  template <class Make>
  void keep(communicator_id of, std::uint32_t from, Make&& make) {
    if (is_over(of)) return;
    // Bounded by the credits that its sender has; the memory is this process's own.
    const auto [at, fresh] = waiting_.try_emplace(of);
    if (fresh) at->second.begun = ++begun_;
    at->second.frames.emplace_back(from, make());
    if (fresh && waiting_.size() > most_waiting) forget_oldest();
  }
  /// The communicator is here.
  std::vector<std::pair<std::uint32_t, Frame>> take(communicator_id of) {
    const auto found = waiting_.extract(of);
    return found ? std::move(found.mapped().frames) : std::vector<std::pair<std::uint32_t, Frame>>{};
  }
  /// The communicator has ended here: what still comes is late.
  void end(communicator_id of) {
    waiting_.erase(of);
    over_.push_back(of);
    if (over_.size() > most_over) over_.pop_front();
  }
  /// Drops what that process sent for communicators that never came to be here, and now cannot.
  void drop_from(std::uint32_t process) {
    for (auto& [of, kept] : waiting_)
      std::erase_if(kept.frames, [&](const auto& frame) { return frame.first == process; });
    std::erase_if(waiting_, [](const auto& each) { return each.second.frames.empty(); });
  }

  bool is_over(communicator_id of) const { return std::find(over_.begin(), over_.end(), of) != over_.end(); }
  /// Communicators for which frames wait.
  std::size_t waiting() const { return waiting_.size(); }

  /// Far more than the splits that a process can be behind others. The oldest beyond is a part that all ranks here have given up.
  static constexpr std::size_t most_waiting = 1024;
  /// Of those that have ended, the last ones are known.
  static constexpr std::size_t most_over = 4096;

private:
  /// Nobody tells this object that all ranks here have given up a part.
  void forget_oldest() {
    const auto oldest = std::min_element(waiting_.begin(), waiting_.end(),
                                         [](const auto& a, const auto& b) { return a.second.begun < b.second.begun; });
    end(communicator_id{oldest->first});
  }

  struct kept {
    std::vector<std::pair<std::uint32_t, Frame>> frames;
    std::uint64_t begun = 0;  ///< which of all that ever waited
  };
  std::unordered_map<communicator_id, kept> waiting_;
  std::uint64_t begun_ = 0;
  std::deque<communicator_id> over_;
};

}  // namespace troupe::actors
