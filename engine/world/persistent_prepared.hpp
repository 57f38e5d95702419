// SPDX-License-Identifier: Apache-2.0
#pragma once
// The inside of a persistent operation.

#include <memory>
#include <optional>

#include "engine/api/persistent.hpp"
#include "engine/world/communicator_state.hpp"

namespace troupe {

/// What a repetition needs. On the boards the last repetition's memory serves the next one, once nobody else refers to it.
struct TROUPE_INTERNAL persistent::prepared {
  std::shared_ptr<communicator::impl> member;
  call_description what;
  actors::plan_ptr plan;  ///< null: the blocks' sizes are known only when all have called
  std::shared_ptr<request::started> last;
  bool nothing = false;  ///< with proc_null

  // Of a send_recv, whose receive is `what`:
  std::optional<call_description> outgoing;
  bool replaces = false;
  std::shared_ptr<request::started_pair> last_pair;

  bool under_way() const { return (last && !last->done.done()) || (last_pair && !last_pair->done.done()); }
  /// The last repetition; null: there was none, or it was not begun.
  std::shared_ptr<request::state> latest() const {
    if (last_pair) return request::started_pair::share(last_pair);
    return last ? std::shared_ptr<request::state>{last, &last->caller} : nullptr;
  }
  void forget() { last.reset(), last_pair.reset(); }
  /// Makes the next repetition ready to be begun. Throws error while the last one is under way.
  std::shared_ptr<request::state> repeat();
  /// The same as a call: a refused one takes its place in the order, too.
  std::shared_ptr<request::state> call(caller_waits waits) {
    try {
      return repeat();
    } catch (...) {
      member->of->refuse(member->rank, what, waits);
    }
  }
};

}  // namespace troupe
