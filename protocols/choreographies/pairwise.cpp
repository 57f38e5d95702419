// SPDX-License-Identifier: Apache-2.0
// Pairwise exchange (spec 4, "Pairwise"): p − 1 steps; in step k every rank sends to the rank k ahead and receives from the
// rank k behind, so that every port carries one message in and one out.
//
//   ZCopy   straight between the user buffers. A receive reads the sender's cells by reference and happens when the receiver
//           is ready, so no handshake is needed.
//   BCopy   (stage::through_scratch) user → scratch → peer's scratch → user, with HCCL's handshake in every step:
//           Ack (receiver ready) before the data, Done after it. Two outgoing and two landing cells in turn: the copies for step
//           k + 1 and of step k − 1 are made, in lanes of their own, while step k is on its way, and no step waits for Done.
//           With blocks of different sizes no cell fits two blocks, so each gets its own.
//
// reduce_scatter adds the contributions to rank r as they come: r, r−1, r−2, … wrapping round. That is neither the order of
// the ranks nor the same tree at every rank; callers who need either get it from fold_in_rank_order.

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/patterns.hpp"

namespace troupe::choreographies {

namespace {
using namespace notation;

/// In reduce_scatter the output has one cell and every index wraps round to it: output[q] is right for both collectives.
void straight(score_builder& s, rank_t r) {
  const bool reducing = is_reduction(s.on().what);
  auto me = s.lane(r);
  if (!reducing) me.copy_own(input[r], output[r]);
  for (int k = 1; k < s.on().ranks; ++k) {
    me.to(s.after(r, k)).from(s.before(r, k));
    me.send(s.staged(r, input[r + k]));
    if (!reducing) me.recv(output[r - k]);
    else if (k == 1) me.recv_reduce_copy(input[r], output[r]);
    else me.recv_reduce(output[r]);
  }
}

/// Lanes of BCopy. The exchange has one for both directions, since its step k + 1 begins when step k has ended.
enum : int { exchange, fill, empty, done, bcopy_lanes };

void through_scratch(score_builder& s, rank_t r) {
  const int n = s.on().ranks;
  const bool reducing = is_reduction(s.on().what), uniform = s.on().uniform;
  auto data = s.lane(r, exchange), filling = s.lane(r, fill), emptying = s.lane(r, empty), ends = s.lane(r, done);
  data.copy_own(input[r], output[r]);
  cells outgoing[2] = {}, landing[2] = {};
  step_ref picked_up[2], emptied[2];  // what the cells' use two steps ago ended with
  for (int k = 1; k < n; ++k) {
    const rank_t ahead = s.after(r, k), behind = s.before(r, k);
    const auto turn = static_cast<std::size_t>(k % 2);
    if (k <= 2 || !uniform) {
      outgoing[turn] = s.scratch_like(r, input[r + k]);
      landing[turn] = s.scratch_like(r, reducing ? input[r] : output[r - k]);
    }
    const step_ref filled = filling.after(picked_up[turn]).copy(s.staged(r, input[r + k]), outgoing[turn]);
    data.after(emptied[turn]).signal(behind);  // Ack: my landing cell is free
    data.await(ahead);
    data.to(ahead).after(filled).send(outgoing[turn]);
    const step_ref arrived = data.from(behind).recv(landing[turn]);
    ends.after(arrived).signal(behind);  // Done: I have picked up your cell
    picked_up[turn] = ends.await(ahead);
    emptying.after(arrived);
    emptied[turn] =
        reducing ? emptying.swapped().reduce(landing[turn], output[r]) : emptying.copy(landing[turn], output[r - k]);
  }
}

score write(const stage& on) {
  score_builder s{on, "pairwise", 1};
  for (rank_t r = 0; r < on.ranks; ++r) {
    if (!is_reduction(on.what)) s.stage_input(r, on.through_scratch ? fill : exchange);
    if (on.through_scratch) through_scratch(s, r);
    else straight(s, r);
  }
  return s.finish();
}

constexpr offer offered[] = {{collective::all_to_all, write}, {collective::reduce_scatter, write}};

}  // namespace

constinit const choreography pairwise{"pairwise",
                                      "p − 1 steps, one peer in and one out in each; straight or through scratch",
                                      "HCCL Pairwise, BCopy and ZCopy (spec 4)", offered, refuses_nothing};

}  // namespace troupe::choreographies
