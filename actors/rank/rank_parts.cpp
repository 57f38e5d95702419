// SPDX-License-Identifier: Apache-2.0
// What rank_state does about the pieces of partitioned operations.

#include "actors/rank/operation_parts.hpp"
#include "actors/rank/rank_state.hpp"

namespace troupe::actors {

/// What comes before the operation has begun, or when it is over, moves nothing: who begins looks at the board itself.
void rank_state::announced(operation_parts& which, rank_outbox& out) {
  if (dead_) return;
  pieces_came(which, false);
  const auto at = under_way_.find(which.epoch);
  if (at == under_way_.end() || at->second->parts.get() != &which || !at->second->launched) return;
  const operation_key key{which.epoch, -1, false};
  const int channels = at->second->channels;  // the operation may end with the last of them
  for (int c = 0; c < channels; ++c) advance_channel(c, key, out);
}

void rank_state::await_pieces(operation_parts& of) {
  spaces_->await_pieces(of.epoch);
  of.awaited = true;
  pieces_came(of, false);
}

void rank_state::pieces_came(operation_parts& of, bool over) {
  if ((over || of.all_ready()) && std::exchange(of.awaited, false)) spaces_->pieces_came(of.epoch);
}

void rank_state::note_arrival(epoch_t epoch) {
  const auto at = under_way_.find(epoch);
  if (at == under_way_.end()) return;
  const std::shared_ptr<operation_parts>& parts = at->second->parts;
  if (parts->listed.exchange(true)) return;  // whoever takes it off the list tells what has arrived by then
  parts->next_listed = std::exchange(arrivals_, parts);
}

std::vector<std::string> unready_pieces(const operation_parts& of) {
  constexpr int most_named = 8;
  std::vector<std::string> lines;
  int unready = 0;
  for (int p = 0; p < of.inputs(); ++p) {
    if (of.ready(p) || ++unready > most_named) continue;
    lines.push_back("part " + std::to_string(p) + " of " + std::to_string(of.inputs()) + " was not made ready");
  }
  if (unready > most_named) lines.push_back("nor were " + std::to_string(unready - most_named) + " others");
  return lines;
}

}  // namespace troupe::actors
