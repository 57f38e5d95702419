// SPDX-License-Identifier: Apache-2.0
#pragma once
// Writes down what a virtual run does: spans of actors, journeys of chunks, and why every step began when it did. No CAF. Only for
// runs that somebody looks at: nothing of it is on the way of a run without a recording.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "actors/virtual/virtual_run.hpp"
#include "protocols/program/lazy_program.hpp"
#include "protocols/score/score.hpp"

namespace troupe::actors {

class recorder {
public:
  recorder(virtual_recording& into, const score& notes, int channels) : into_(into), notes_(notes) {
    std::size_t lanes = 0;
    for (const part& p : notes.players) lanes = std::max(lanes, p.lanes.size());
    lanes_ = static_cast<std::int32_t>(lanes);
    width_ = lanes * static_cast<std::size_t>(channels);
    last_.assign(notes.players.size() * width_, -1);
    credit_.assign(last_.size(), -1);
    span_.assign(last_.size(), -1);
    into_.spans.clear(), into_.moves.clear(), into_.causes.clear(), into_.queues.clear();
    into_.complete = true, into_.last = -1;
  }

  void span(const virtual_span& what) {
    if (into_.spans.size() >= into_.most) into_.complete = false;
    else into_.spans.push_back(what);
  }

  // -- steps --

  /// A lane begins a step, whose work will end at `end`. `waited` since `since`, for `why`; `flow`: the message that it takes, −1:
  /// none.
  void step(rank_t rank, std::int32_t lane, const brief_instruction& i, std::uint64_t bytes, std::int64_t since,
            std::int64_t begin, std::int64_t end, virtual_cause::reason why, std::int64_t flow);
  /// The work of the rank's present step on `lane` ended only now.
  void ended(rank_t rank, std::int32_t lane, std::int64_t now);
  /// The rank's present step on `lane` sends message `flow` now.
  void sent(rank_t from, rank_t to, std::int32_t lane, std::int64_t flow, std::int64_t now, std::uint64_t bytes);
  /// `rank` met the others at a hardware barrier; `last` came last.
  void synchronised(rank_t rank, std::int32_t lane, rank_t last, std::int64_t since, std::int64_t end);
  void arrived(std::int64_t flow, std::int64_t now) { move_of(flow).end = now; }
  /// `rank`'s present step on `lane` has taken it.
  void taken(rank_t rank, std::int32_t lane, std::int64_t flow);
  /// A rank's last step has ended.
  void finished(rank_t rank, std::int64_t now);

  // -- elements --

  void occupied(std::int32_t element, rank_t from, rank_t to, std::int64_t flow, std::int64_t begin, std::int64_t end,
                std::uint64_t bytes, std::int64_t queued);

private:
  struct journey {
    std::int32_t cause = -1;                       ///< of the step that sent it
    std::int32_t first_wait = -1, last_wait = -1;  ///< of waits_
  };
  struct wait {
    virtual_queue what;
    std::int32_t next = -1;
  };
  virtual_move& move_of(std::int64_t flow) { return into_.moves[static_cast<std::size_t>(flow)]; }
  std::int32_t& last_of(rank_t rank, std::int32_t lane) {
    return last_[static_cast<std::size_t>(rank) * width_ + static_cast<std::size_t>(lane)];
  }
  const troupe::step& step_at(rank_t rank, std::int32_t lane, std::int32_t position) const {
    return notes_.players[static_cast<std::size_t>(rank)]
        .lanes[static_cast<std::size_t>(lane % lanes_)][static_cast<std::size_t>(position)];
  }

  virtual_recording& into_;
  const score& notes_;
  std::int32_t lanes_ = 0;
  std::size_t width_ = 0;
  std::vector<std::int32_t> last_;    ///< cause of the present step of every (rank, lane)
  std::vector<std::int64_t> span_;    ///< of the present step of every (rank, lane), −1: dropped
  std::vector<std::int32_t> credit_;  ///< cause of the step that gave the last credit to a (rank, lane)
  std::vector<journey> journeys_;     ///< by flow
  std::vector<wait> waits_;           ///< of journeys, linked
};

}  // namespace troupe::actors
