// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>

namespace troupe::actors {

/// How long the mesh's thread naps while callers read what comes themselves. At the end of a nap it looks whether they still do, and takes a core from
/// one of them for that where cores are few. So as long as they look all the time its naps become longer; what comes after the last of them has gone may
/// have to wait for the end of one.
class caller_naps {
public:
  using milliseconds = std::chrono::milliseconds;
  static constexpr milliseconds shortest{1}, longest{8};
  static constexpr int busy = 4;  ///< looks a millisecond, of callers that do nothing else

  /// @param looks that callers have taken during the last one
  milliseconds next(int looks) {
    return length_ = looks >= busy * static_cast<int>(length_.count()) ? std::min(2 * length_, longest) : shortest;
  }

private:
  milliseconds length_ = shortest;
};

}  // namespace troupe::actors
