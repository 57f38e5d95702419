// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

namespace troupe::actors {

/// How long the mesh's thread naps while callers read what comes themselves. At the end of a nap it looks whether they still do, and takes a core from
/// one of them for that where cores are few. So as long as they look all the time its naps become longer; what comes after the last of them has gone to
/// compute may have to wait for the end of one, once: then naps are short until they look all the time again. Pure: it is told the times.
class caller_naps {
public:
  using clock = std::chrono::steady_clock;
  using milliseconds = std::chrono::milliseconds;
  static constexpr milliseconds shortest{1}, longest{8};

  void caller_looks(clock::time_point now) {
    paused_ = paused_ || now - last_look_ > shortest;
    last_look_ = now;
    looked_ = true;
  }
  /// At the end of a nap. @return whether callers have looked since the last one
  bool end(clock::time_point now) {
    const bool looked = std::exchange(looked_, false), paused = std::exchange(paused_, false);
    length_ = looked && !paused && now - last_look_ <= shortest ? std::min(2 * length_, longest) : shortest;
    return looked;
  }
  milliseconds length() const { return length_; }

private:
  milliseconds length_ = shortest;
  clock::time_point last_look_{};
  bool looked_ = false, paused_ = false;
};

}  // namespace troupe::actors
