// SPDX-License-Identifier: Apache-2.0
#pragma once
// What one run of a flow did, for its timeline.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/flow/flow_node_state.hpp"
#include "actors/flow/flow_plan.hpp"

namespace troupe {

using flow_clock = std::chrono::steady_clock;

struct flow_span {
  enum class kind_of : std::uint8_t { work, waits, ready, arrives };
  kind_of kind;
  actors::flow_wait wait;  ///< of `waits`
  std::int32_t index;      ///< tile; of `ready` part
  flow_clock::time_point begin, end;
};

/// Of one node; written on its turn alone.
class node_record {
public:
  void work(std::int32_t index, flow_clock::time_point begin, flow_clock::time_point end) {
    end_wait(begin);
    spans_.push_back({flow_span::kind_of::work, {}, index, begin, end});
  }
  void ready(std::int32_t part, flow_clock::time_point at) {
    spans_.push_back({flow_span::kind_of::ready, {}, part, at, at});
  }
  void arrives(std::int32_t tile, flow_clock::time_point at) {
    spans_.push_back({flow_span::kind_of::arrives, {}, tile, at, at});
  }
  void waits(const actors::flow_wait& what, flow_clock::time_point now) {
    if (what == wait_) return;
    end_wait(now);
    wait_ = what;
    since_ = now;
  }
  const std::vector<flow_span>& spans() const { return spans_; }

private:
  void end_wait(flow_clock::time_point now) {
    using what_for = actors::flow_wait::what_for;
    const actors::flow_wait over = std::exchange(wait_, {});
    if (over.what == what_for::tile || over.what == what_for::credit || over.what == what_for::part)
      spans_.push_back({flow_span::kind_of::waits, over, over.index, since_, now});
  }

  std::vector<flow_span> spans_;
  actors::flow_wait wait_;
  flow_clock::time_point since_{};
};

struct flow_record {
  std::shared_ptr<const actors::flow_plan> plan;
  int rank = 0;
  std::vector<node_record> nodes;
};

}  // namespace troupe
