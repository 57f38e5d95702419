// SPDX-License-Identifier: Apache-2.0
// Pairwise exchange (spec 4, "Pairwise"): p − 1 steps; in step k every rank sends to the rank k ahead and receives from the
// rank k behind, so that every port carries one message in and one out.
//
//   ZCopy   straight between the user buffers. A message is a reference to the sender's cells: the receive is performed when the receiver is
//           ready and has taken the data when it ends, and gives the credit back then. That is the whole handshake, without a step.
//   BCopy   (setup::through_scratch) user → staging → peer's staging → user, with HCCL's handshake in every step, each a token:
//             Ack          to the peer behind: my landing cell is free
//             Async        the data, to the peer ahead
//             DataSignal   to the peer ahead: the data are there; in a lane of its own, so that one credit is enough
//             WaitDone     to the peer behind, from a lane of its own: I have received from your outgoing cell
//           Two outgoing and two landing cells in turn: the copies for step k + 1 and of step k − 1 are made, in lanes of their own,
//           while step k is on its way, and no step waits for WaitDone.
//           The cells are those that every slice uses again, so they do not grow with the block: in a buffer of b bytes it goes in ⌈4 n / b⌉
//           pieces (slices), one after the other. A piece begins when the cells of the one before are free.
//           With blocks of different sizes no cell fits two blocks, so each gets its own; in place, a piece of every block is kept besides.
//
// reduce_scatter adds the contributions to rank r as they come: r, r−1, r−2, … wrapping round. That is neither the order of
// the ranks nor the same tree at every rank; callers who need either get it from fold_in_rank_order.

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/patterns.hpp"

namespace troupe::choreographies {

namespace pairwise_scores {
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
enum : int { exchange, fill, empty, done, notice };

/// Of one rank.
class stager {
public:
  stager(score_builder& s, rank_t r)
      : s_(s),
        r_(r),
        reducing_(is_reduction(s.on().what)),
        exchange_(s.lane(r, exchange)),
        fill_(s.lane(r, fill)),
        empty_(s.lane(r, empty)),
        done_(s.lane(r, done)),
        notice_(s.lane(r, notice)) {}

  void write() {
    exchange_.copy_own(input[r_], output[r_]);
    if (!reducing_ && s_.on().in_place) keep_inputs();
    for (int k = 1; k < s_.on().ranks; ++k) step(k);
    // Before the next slice uses the cells again. Their lanes do one after the other, so the last one stands for all.
    fill_.wait(picked_up_[(s_.on().ranks - 1) % 2]);
    exchange_.wait(emptied_[(s_.on().ranks - 1) % 2]);
  }

private:
  /// All of them are copied before the first is sent, and so before the first block that comes is written.
  void keep_inputs() {
    kept_.resize(static_cast<std::size_t>(s_.on().ranks));
    for (int k = 1; k < s_.on().ranks; ++k) {
      const rank_t to = s_.after(r_, k);
      cells& kept = kept_[static_cast<std::size_t>(to)];
      kept = s_.l0_like(r_, input[to]);
      fill_.copy(input[to], kept);
    }
  }

  void step(int k) {
    const rank_t ahead = s_.after(r_, k), behind = s_.before(r_, k);
    const auto turn = static_cast<std::size_t>(k % 2);
    if (k <= 2 || !s_.on().uniform) {
      outgoing_[turn] = s_.l0_like(r_, input[ahead]);
      landing_[turn] = s_.l0_like(r_, reducing_ ? input[r_] : output[behind]);
    }
    const cells block = kept_.empty() ? input[ahead] : kept_[static_cast<std::size_t>(ahead)];
    const step_ref filled = fill_.after(picked_up_[turn]).copy(block, outgoing_[turn]);
    exchange_.after(emptied_[turn]).called(message_name::ack).signal(behind);
    exchange_.called(message_name::ack).await(ahead);
    const step_ref sent = exchange_.to(ahead).after(filled).called(message_name::async).send(outgoing_[turn]);
    notice_.after(sent).called(message_name::data_signal).signal(ahead);
    const step_ref received = exchange_.from(behind).called(message_name::async).recv(landing_[turn]);
    const step_ref arrived = notice_.after(received).called(message_name::data_signal).await(behind);
    done_.after(arrived).called(message_name::wait_done).signal(behind);
    picked_up_[turn] = done_.called(message_name::wait_done).await(ahead);
    empty_.after(arrived);
    emptied_[turn] =
        reducing_ ? empty_.swapped().reduce(landing_[turn], output[r_]) : empty_.copy(landing_[turn], output[behind]);
  }

  score_builder& s_;
  rank_t r_;
  bool reducing_;
  lane_writer exchange_, fill_, empty_, done_, notice_;
  std::vector<cells> kept_;  ///< of in-place calls, by destination: what the input was
  cells outgoing_[2] = {}, landing_[2] = {};
  step_ref picked_up_[2], emptied_[2];  ///< what the cells' use two steps ago ended with
};

score write(const setup& on) {
  score_builder s{on, "pairwise", 1};
  for (rank_t r = 0; r < on.ranks; ++r) {
    if (on.through_scratch) {
      stager{s, r}.write();
      continue;
    }
    if (!is_reduction(on.what)) s.stage_input(r);
    straight(s, r);
  }
  return s.finish();
}

constexpr offer offered[] = {{collective::all_to_all, write}, {collective::reduce_scatter, write}};

}  // namespace
}  // namespace pairwise_scores

constinit const choreography pairwise{
    "pairwise", "p − 1 steps, one peer in and one out in each; straight or through scratch",
    "HCCL Pairwise, BCopy and ZCopy (spec 4)", pairwise_scores::offered, refuses_nothing};

}  // namespace troupe::choreographies
