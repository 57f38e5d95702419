// SPDX-License-Identifier: Apache-2.0
// What rank_state does about L0 and L2 of a modelled card (card_tiers.hpp): an operation that lacks some begins when the
// owners of the tiers have granted it. L0 first, then L2, of which all ranks of the operation have one, and the first one asks.

#include "actors/rank/rank_state.hpp"
#include "memory/error.hpp"

namespace troupe::actors {

namespace {
shared_spaces::space& space_of(const operation& op) { return *static_cast<shared_spaces::space*>(op.shared.get()); }
}  // namespace

bool rank_state::uses_card(const program& code) const {
  return spaces_->card() != nullptr && (code.l0_bytes > 0 || code.l2_bytes > 0);
}

/// Of an operation that may just lack room.
void rank_state::begin_on_card(operation& op, rank_outbox& out) {
  assignment& what = *op.lacks_room;
  try {
    if (!find_room(op, out)) return;
  } catch (const error& e) {
    return cannot_begin(op, e.code_value(), e.what(), out);
  } catch (const std::exception& e) {
    return cannot_begin(op, errc::out_of_memory, e.what(), out);
  }
  what.memory.l0 = op.tile.get();
  if (what.code->l2_bytes > 0) what.memory.l2 = space_of(op).card_l2.get();
  start_channels(std::exchange(op.lacks_room, nullptr), out);
}

/// False: it was asked for.
bool rank_state::find_room(operation& op, rank_outbox& out) {
  const program& code = *op.lacks_room->code;
  if (code.l0_bytes > 0 && !op.tile) op.tile = spaces_->card()->l0(options_.rank, code.l0_bytes);
  if (code.l0_bytes > 0 && !op.tile) {
    out.ask_room(op.epoch, options_.rank, code.l0_bytes);
    return false;
  }
  if (code.l2_bytes == 0) return true;
  const auto answer = spaces_->find_l2(space_of(op), options_.rank, code.l2_bytes);
  if (answer == shared_spaces::l2_answer::ask) out.ask_room(op.epoch, card_tiers::shared, code.l2_bytes);
  return answer == shared_spaces::l2_answer::there;
}

operation* rank_state::lacking_room(epoch_t epoch) {
  const auto at = under_way_.find(epoch);
  if (dead_ || at == under_way_.end() || at->second->stalled || !at->second->lacks_room) return nullptr;
  return at->second.get();
}

/// Grants that come when the operation is over go back.
void rank_state::room_came(epoch_t epoch, rank_t of, card_tiers::region room, rank_outbox& out) {
  operation* const op = lacking_room(epoch);
  if (op == nullptr) return;
  if (of == card_tiers::shared) {
    for (const rank_t other : spaces_->has_l2(space_of(*op), std::move(room)))
      if (other != options_.rank) out.tell_of_room(other, epoch);
  } else {
    op->tile = std::move(room);
  }
  begin_on_card(*op, out);
}

void rank_state::no_room(epoch_t epoch, const failure_ptr& why, rank_outbox& out) {
  if (operation* const op = lacking_room(epoch)) cannot_begin(*op, why->code, why->text, out);
}

void rank_state::hear_of_room(epoch_t epoch, rank_outbox& out) {
  if (operation* const op = lacking_room(epoch)) begin_on_card(*op, out);
}

}  // namespace troupe::actors
