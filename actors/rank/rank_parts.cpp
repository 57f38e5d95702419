// SPDX-License-Identifier: Apache-2.0
// What rank_state does about the pieces of partitioned operations.

#include "actors/rank/operation_parts.hpp"
#include "actors/rank/rank_state.hpp"
#include "memory/error.hpp"

namespace troupe::actors {

namespace {

constexpr std::chrono::seconds late_pieces{5};

std::string late_text(const operation& op, const rank_state_options& of) {
  std::string text = "waiting for more than " + std::to_string(late_pieces.count()) + " s: " + of.communicator + ", " +
                     op.title() + ": rank " + std::to_string(of.rank) + ": ";
  const auto lines = unready_pieces(*op.parts);
  for (const std::string& line : lines) text += (&line == &lines.front() ? "" : ", ") + line;
  return text;
}

}  // namespace

// -- over memory that ranks share ------------------------------------------------------------------------------------------

struct rank_state::parts_port final : part_outbox {
  parts_port(rank_state& s, operation& o, rank_outbox& b) : self(s), op(o), out(b) {}
  void news(rank_t to, const std::shared_ptr<operation_parts>& whose) override { out.news_of_parts(to, whose); }
  /// A credit has a frame that costs neither end memory, and comes to whom else it would.
  void news(rank_t to) override { out.give_back(to, 0, credit{op.epoch, self.options_.rank, 0, 0}); }
  void arrived() override { self.note_arrival(op.epoch); }

  rank_state& self;
  operation& op;
  rank_outbox& out;
};

/// False: it goes by mailbox, on all ranks.
bool rank_state::launch_parts(operation& op, rank_outbox& out) {
  operation_parts& parts = *op.parts;
  rank_t unlike = -1;
  try {
    if (!parts.performer && !parts.by_mailbox) {
      parts.performer = prepare_parts(op, options_.rank, *memory_, *spaces_, programs_);
      parts.by_mailbox = !parts.performer;
    }
    if (parts.by_mailbox) return false;
    const std::uint64_t print = fingerprint(op.what, op.epoch, op.plan->identity) ^ op.what.history;
    unlike = spaces_->areas() != nullptr ? parts.performer->begin(*spaces_->areas(), op.epoch, print)
                                         : parts.performer->begin(spaces_->boards(), op.epoch, print, op.parts);
  } catch (const error& e) {
    failed_here(op.epoch, make_failure(e.code_value(), std::string{"it cannot be begun: "} + e.what()), out);
    return true;
  } catch (const std::exception& e) {
    failed_here(op.epoch, make_failure(errc::out_of_memory, std::string{"it cannot be begun: "} + e.what()), out);
    return true;
  }
  if (unlike >= 0) return differs(op.epoch, unlike, out), true;
  op.launched = true;
  op.channels = 1;
  advance_parts(op, out);
  return true;
}

/// The operation may end with it.
void rank_state::advance_parts(operation& op, rank_outbox& out) {
  if (op.stalled) return;
  const epoch_t epoch = op.epoch;
  parts_port port{*this, op, out};
  try {
    if (op.parts->performer->advance(port) != part_performer::status::performed) return;
  } catch (const error& e) {
    return failed_here(epoch, make_failure(e.code_value(), e.what()), out);
  } catch (const std::exception& e) {
    return failed_here(epoch, make_failure(errc::aborted, std::string{"performing it threw: "} + e.what()), out);
  } catch (...) {
    return failed_here(epoch, make_failure(errc::aborted, "performing it threw something that is no std::exception"),
                       out);
  }
  op.parts->leave();
  performed({epoch, -1, false}, out);
}

/// News that come before the operation has begun, or when it is over, move nothing: a rank that begins looks at the board itself.
void rank_state::announced(operation_parts& which, rank_outbox& out) {
  if (dead_) return;
  pieces_came(which, false);
  const auto at = under_way_.find(which.epoch);
  if (at == under_way_.end() || at->second->parts.get() != &which || !at->second->launched) return;
  if (which.performer) {
    if (which.performer->under_way()) advance_parts(*at->second, out);
    return;
  }
  const operation_key key{which.epoch, -1, false};
  const int channels = at->second->channels;  // the operation may end with the last of them
  for (int c = 0; c < channels; ++c) advance_channel(c, key, out);
}

/// A peer in another process has left something in an area. True: it was about that.
bool rank_state::news_of_parts(epoch_t epoch, rank_outbox& out) {
  const auto at = under_way_.find(epoch);
  if (at == under_way_.end() || !at->second->parts || !at->second->parts->performer) return false;
  if (at->second->launched && at->second->parts->performer->under_way()) advance_parts(*at->second, out);
  return true;
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
  if (!parts->is_listened_to()) return;
  if (parts->listed.exchange(true)) return;  // the thread that takes it off the list tells what has arrived by then
  parts->next_listed = std::exchange(arrivals_, parts);
}

/// The log is told once which pieces this rank's caller has not made ready, when none got ready for long. Returns when to look again.
steady_time rank_state::look_for_late_pieces(operation& op, steady_time now, rank_outbox& out) {
  operation_parts& of = *op.parts;
  const int unready = of.unready();
  if (unready == 0 || of.told_late) return no_deadline;
  if (std::exchange(of.unready_then, unready) != unready) of.unready_since = now;
  if (now < of.unready_since + late_pieces) return of.unready_since + late_pieces;
  of.told_late = true;
  try {
    out.warn(late_text(op, options_));
  } catch (const std::bad_alloc&) {}  // then the log does without
  return no_deadline;
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
