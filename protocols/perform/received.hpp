// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the receiving steps mean, once for everybody who performs or checks them:
//
//   result := incoming          where the step does not reduce
//   result := incoming ⊕ own    where it does; own is what its target holds (recv_reduce) or its source
//
// The result is kept in the target, unless the step only passes it on (recv_reduce_send), and is sent on where the step's name says so.
// A step that is `swapped` combines own ⊕ incoming. When the result is there, nothing of the incoming chunk is needed any more.

#include "protocols/score/score.hpp"

namespace troupe {

template <step_kind Kind>
struct received_step {
  static_assert(receives(Kind));
  static constexpr bool combines = reduces(Kind);
  static constexpr bool with_target = reads_target(Kind);  ///< own; else the source
  static constexpr bool keeps = writes(Kind);
  static constexpr bool forwards = sends(Kind);
};

/// Calls `act` with the received_step of `kind`, so that nothing is left to decide in what is written for it. @pre receives(kind)
template <class Act>
[[gnu::always_inline]] constexpr void as_received(step_kind kind, Act&& act) {
  switch (kind) {
    case step_kind::recv_reduce: return act(received_step<step_kind::recv_reduce>{});
    case step_kind::recv_copy_send: return act(received_step<step_kind::recv_copy_send>{});
    case step_kind::recv_reduce_send: return act(received_step<step_kind::recv_reduce_send>{});
    case step_kind::recv_reduce_copy: return act(received_step<step_kind::recv_reduce_copy>{});
    case step_kind::recv_reduce_copy_send: return act(received_step<step_kind::recv_reduce_copy_send>{});
    default: return act(received_step<step_kind::recv>{});
  }
}

}  // namespace troupe
