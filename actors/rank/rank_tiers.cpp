// SPDX-License-Identifier: Apache-2.0
// Operations in tiers (protocols/tiers.hpp): a rank's part of each stage, one stage after the other. Here a *message* is what it is on the port of the
// stage: on the host's board a few cache lines or the mark of an epoch (board_port.hpp), which is twice the operation's number, and
// one more in the last stage; between hosts a chunk of the operation's own epoch (channel_state.hpp). Either carries the fingerprint of
// the whole operation, so a rank that calls something else is found out in whatever stage it meets another rank.

#include <new>

#include "actors/rank/rank_state.hpp"
#include "memory/exception_text.hpp"

namespace troupe::actors {

namespace {

std::uint64_t sequence_of(epoch_t epoch, tier which) { return 2 * epoch + (which == tier::spread ? 1 : 0); }

/// What all messages of its stages carry beside the stage's own fingerprint.
std::uint64_t mark_of(const operation& op) {
  return op.what.history ^ fingerprint(op.what, op.epoch, op.plan->identity);
}

}  // namespace

void rank_state::launch_in_tiers(operation& op, rank_outbox& out) {
  op.launched = true;
  in_tiers_ = &op;
  begin_tier(tier::collect, out);
}

void rank_state::begin_tier(tier which, rank_outbox& out) {
  tier_ = which;
  std::shared_ptr<const assignment> across;
  try {
    if (which == tier::across) across = prepare_across();
    else begin_tier_on_board(which);
  } catch (...) {
    return stall(*in_tiers_, text_of(std::current_exception()), out);
  }
  if (across != nullptr) start_channels(across, out);
  else advance(out);
}

void rank_state::begin_tier_on_board(tier which) {
  if (!port_) throw error(errc::unsupported, "the ranks of this host have no board");
  operation& op = *in_tiers_;
  const tiers_plan& stages = *op.plan->tiers();
  const int hosts = stages.hosts();
  if (which == tier::collect && options_.on_host == 0) {
    const tier_memory need = memory_of_tiers(op.what, hosts, stages.of_host);
    const std::size_t width = size_of(op.what.type);
    collected_ = memory_->acquire(need.collected * width);
    host_share_ = memory_->acquire(need.share * width);
  }
  const call part = call_of_tier(op.what, which, hosts, stages.of_host);
  const plan_ptr& how = which == tier::collect ? stages.collect : stages.spread;
  board_port& port = *port_;
  if (!port.recall(part) || port.last().how != how) port.remember(part, how);
  port.start(buffers_of_tier(which), sequence_of(op.epoch, which), how->may_run_ahead(), mark_of(op));
  tier_on_board_ = true;
}

/// Allocates, once an operation and host.
std::shared_ptr<const assignment> rank_state::prepare_across() {
  operation& op = *in_tiers_;
  const tiers_plan& stages = *op.plan->tiers();
  const call_buffers memory = buffers_of_tier(tier::across);
  across_ = std::make_unique<operation>();
  across_->epoch = op.epoch;
  across_->what = call_of_tier(op.what, tier::across, stages.hosts(), stages.of_host);
  across_->what.history = mark_of(op);
  across_->input = memory.input;
  across_->output = memory.output;
  across_->plan = stages.across;
  auto what = prepare_for_channels(*across_, options_.rank / stages.of_host);
  op.channels = what->code->channels;
  return what;
}

/// Of a first rank also those between the stages.
call_buffers rank_state::buffers_of_tier(tier which) const {
  const operation& op = *in_tiers_;
  const tier_room room{op.input, op.output, collected_.data(), host_share_.data()};
  const tier_buffers memory = troupe::buffers_of_tier(op.what, which, op.plan->tiers()->of_host, options_.rank, room);
  return {memory.input, memory.output};
}

/// The stage is performed here.
void rank_state::end_tier(rank_outbox& out) {
  if (tier_ == tier::collect && options_.on_host == 0) return begin_tier(tier::across, out);
  if (tier_ == tier::spread) return finish(in_tiers_->epoch, nullptr, out);
  if (across_ != nullptr) {
    try {
      const tiers_plan& stages = *in_tiers_->plan->tiers();
      conclude(*across_, options_.rank / stages.of_host, stages.hosts());
    } catch (...) {
      return stall(*in_tiers_, text_of(std::current_exception()), out);
    }
    across_.reset();
  }
  begin_tier(tier::spread, out);
}

/// True: something has moved.
bool rank_state::advance_tier(rank_outbox& out) {
  bool moved = false;
  while (tier_on_board_ && !in_tiers_->stalled && !dead_) {
    if (look_at_board(*in_tiers_, moved, out) != board_performer::status::performed) return moved;
    port_->conclude(buffers_of_tier(tier_).output);
    tier_on_board_ = false;
    end_tier(out);
  }
  return moved;
}

/// Peers may reuse its slots, and none of them touches its buffers any more.
void rank_state::leave_tiers(bool performed) {
  if (!performed && port_) port_->drop(sequence_of(in_tiers_->epoch, tier::spread));
  in_tiers_ = nullptr;
  tier_on_board_ = false;
  across_.reset();
  collected_ = {};
  host_share_ = {};
}

}  // namespace troupe::actors
