// SPDX-License-Identifier: Apache-2.0
#include "actors/rank/rank_state.hpp"

#include <algorithm>
#include <new>

#include "actors/rank/operation_parts.hpp"
#include "memory/error.hpp"
#include "memory/exception_text.hpp"

namespace troupe::actors {

namespace {

failure_ptr refused_by(rank_t rank, const operation& op) {
  return make_failure(errc::peer_refused, "rank " + std::to_string(rank) + " refused its call: " + op.refusal->text);
}

}  // namespace

// -- the port of a channel --------------------------------------------------------------------------------------------

/// What a channel says, on its way: to peers through the rank's outbox, to the rank by a call.
struct rank_state::channel_port final : channel_outbox {
  channel_port(rank_state& s, int number, rank_outbox& o) : self(s), channel(number), out(o) {}
  bool deliver(rank_t to, chunk&& what) override { return out.deliver(to, channel, std::move(what)); }
  void give_back(rank_t to, const credit& what) override { out.give_back(to, channel, what); }
  bool offer_place(const expected_chunk& what) override { return out.offer_place(channel, what); }
  void withdraw_place(const expected_chunk& what) override { out.withdraw_place(channel, what); }
  void clear(rank_t to, const credit& what) override { out.clear(to, channel, what); }
  void performed(const operation_key& which) override { self.performed(which, out); }
  void arrived(const operation_key& which) override { self.note_arrival(which.epoch); }
  void mismatch(const operation_key& which, rank_t from) override {
    if (which.peer >= 0) return self.pairs_.mismatch(which, from, out);
    self.differs(which.epoch, from, out);
  }
  void failed(const operation_key& which, failure_ptr why) override {
    if (which.peer < 0) return self.failed_here(which.epoch, why, out);
    self.pairs_.stop(which, self.here(*why), out);
  }
  bool transfer(const operation_key& which, int lane, std::byte* target, const std::byte* source,
                std::size_t bytes) override {
    return out.transfer(which, channel, lane, target, source, bytes);
  }
  bool transfer_shared(const operation_key& which, int lane, const shared_transfer& what) override {
    return out.transfer_shared(which, channel, lane, what);
  }
  bool begin_work(const operation_key& which, int lane, const instruction& i, lane_wait::reason lacked) override {
    return out.begin_work(which, channel, lane, i, lacked);
  }

  rank_state& self;
  int channel;
  rank_outbox& out;
};

namespace {
/// Between processes a message that is longer than a line lies where only the system reaches it.
slot_board* pairs_of(slot_board* board) {
  return board != nullptr && board->between_processes() && board->memory().peers() == nullptr ? nullptr : board;
}
}  // namespace

// -- life -------------------------------------------------------------------------------------------------------------

rank_state::rank_state(rank_state_options options, arena& memory, shared_spaces& spaces, slot_board* board)
    : options_(std::move(options)),
      memory_(&memory),
      spaces_(&spaces),
      pairs_(options_.rank, options_.ranks, options_.communicator, options_.first, *this,
             options_.pairs_by_mailbox || options_.on_host >= 0 ? nullptr : pairs_of(board),
             board != nullptr && options_.on_host < 0 ? board->memory().peers() : nullptr),
      next_(options_.first),
      begun_(options_.first),
      ahead_(options_.most_ahead) {
  if (board != nullptr) port_.emplace(*board, options_.on_host < 0 ? options_.rank : options_.on_host);
  for (int c = 0; c < options_.channels; ++c) channels_.emplace_back(options_.rank, c, memory, options_.least_placed);
}

rank_state::~rank_state() {
  // Only when the engine closes with operations under way.
  if (pending())
    bury(broken_ ? broken_
                 : make_failure(errc::engine_closed,
                                options_.communicator + ": the engine was closed with this operation under way"));
  while (const operation_ptr op = ended_.take()) op->end(std::move(op->why_ended));
}

void rank_state::perish(rank_outbox& out) {
  if (dead_) return;
  pairs_.close();
  dead_ = true;
  if (on_board_)
    port_->drop(on_board_->epoch);  // peers may reuse its slots, and none of them touches its buffers any more
  if (in_tiers_ != nullptr) leave_tiers(false);
  // The NIC touches peers' memory for it until it has let go.
  bool recalled = false;
  for (const auto& [epoch, op] : under_way_) recalled = recall_from_nic(epoch, out) || recalled;
  if (!recalled) out.perished();
}

void rank_state::bury(const failure_ptr& why) {
  dead_ = true;
  if (!buried_) buried_ = why;
  if (on_board_) {
    if (port_) port_->drop(on_board_->epoch);
    ended_.append(std::move(on_board_), why);
  }
  if (in_tiers_ != nullptr) leave_tiers(false);
  for (operation_ptr& op : queue_)
    if (!op->over) ended_.append(std::move(op), why);
  queue_.clear();
  for (auto& [epoch, op] : under_way_) {
    if (op->parts) op->parts->leave();
    ended_.append(std::move(op), why);
  }
  under_way_.clear();
  pairs_.drop_all(why);
}

bool rank_state::holds(const operation_ptr& op) const {
  return on_board_ == op || std::find(queue_.begin(), queue_.end(), op) != queue_.end() ||
         std::any_of(under_way_.begin(), under_way_.end(), [&](const auto& known) { return known.second == op; }) ||
         ended_.contains(op.get()) || pairs_.holds(op);
}

bool rank_state::have_ended(std::span<const operation_ptr> ops) const {
  std::size_t ours = 0;
  for (const operation_ptr& op : ops) ours += ended_.contains(op.get());
  if (ours < ended_.size()) return true;
  for (const operation_ptr& op : ops) ours += op->done->done();
  return ours == ops.size();
}

void rank_state::leave(rank_outbox& out) {
  leaving_ = true;
  when_idle(out);
}

void rank_state::when_idle(rank_outbox& out) {
  if (dead_ || !idle()) return;
  if (broken_ && !quiet_) {
    quiet_ = true;
    out.quiet();
  }
  if (leaving_ && !left_) {
    left_ = true;
    out.left(next_, described(call{}, nullptr, next_, history_so_far(), false), pairs_.sent());
  }
}

// -- an operation begins ------------------------------------------------------------------------------------------------

void rank_state::submit(operation_ptr op, rank_outbox& out) {
  enqueue(std::move(op), out);
  begin_queued(out);
}

void rank_state::enqueue(operation_ptr op, rank_outbox& out) {
  if (dead_) {  // its callers hear the same as everybody
    if (buried_) return ended_.append(std::move(op), buried_);
    return queue_.push_back(std::move(op));
  }
  if (op->deadline) {
    op->begun = out.now();
    op->expires = time_limit{op->deadline}.after(op->begun);
  }
  if (op->peer >= 0) {
    speaking_ = &out;
    pairs_.submit(std::move(op), broken_, out);
    speaking_ = nullptr;
    return when_idle(out);
  }
  failure_ptr early = failed_.empty() ? nullptr : failed_.take(next_);
  number(*op, early);
  failure_ptr why = broken_ ? broken_ : std::move(early);
  if (op->refusal) {
    // The others would wait for it. If it was stopped for another reason before, that has been told already.
    if (!why && !stopping_.contains(op->epoch)) out.fail(op->epoch, op->title(), refused_by(options_.rank, *op));
    why = op->refusal;
  }
  if (why && queue_.empty()) {
    begun_ = next_;
    drop(collective_key(op->epoch));
    ended_.append(std::move(op), std::move(why));
    return when_idle(out);
  }
  if (op->parts) await_pieces(*op->parts);
  const epoch_t epoch = op->epoch;
  // Behind others it keeps its place, so that numbers begin in order. Its caller need not wait for that.
  if (why) {
    op->over = true;
    ended_.append(op, std::move(why));
  }
  queue_.push_back(std::move(op));
  // A rank that was asked for it answers at once that it has come: else it could do its part unseen, and be taken for missing.
  if (!asked_.empty() && asked_.erase(epoch) > 0) asked(epoch, out);
}

/// Gives the call its number. Whether it may run ahead follows from the calls so far, whatever became of them.
/// @param early why it has failed before
void rank_state::number(operation& op, const failure_ptr& early) {
  const bool may = op.plan && op.plan->may_run_ahead();
  if (may) ahead_.make_room(next_);
  op.epoch = next_++;
  if (op.parts) op.parts->epoch = op.epoch;
  op.ahead = may && ahead_.may_run_ahead();
  op.what.history = 0;
  op.what.report = nullptr;
  const std::uint64_t history = history_so_far();
  // Of a refused call no rank may have performed anything. Ranks that had called it before they heard of that have counted it as one that
  // waits for everybody, or the communicator ends.
  if (op.refusal || (early && early->code == errc::peer_refused)) ahead_.add_strict();
  else note(op.epoch, op.what, op.plan, op.ahead, op.ahead ? fingerprint(op.what, 0, op.plan->identity) : 0);
  op.what.history = history;
}

/// As the membership compares it.
call rank_state::described(const call& what, const plan_ptr& how, epoch_t epoch, std::uint64_t history,
                           bool ahead) const {
  return ahead_.reported(what, how, epoch, history, ahead);
}

void rank_state::begin_queued(rank_outbox& out) {
  if (beginning_ || dead_) return;  // begun further up the stack; or never
  beginning_ = true;
  while (!queue_.empty() && begin_one(out)) {}
  beginning_ = false;
  when_idle(out);
}

/// False: it has to wait.
bool rank_state::begin_one(rank_outbox& out) {
  operation& op = *queue_.front();
  const epoch_t epoch = op.epoch;
  const bool over = op.over, board = troupe::actors::on_board(op);
  if (!over && board && (on_board_ || inline_)) return false;
  if (!over && in_tiers_ != nullptr && op.plan && op.plan->tiers() != nullptr) return false;
  if (!over && under_way_.size() >= most_under_way) return false;
  if (!over && !board) {
    if (spare_.empty()) {
      under_way_.emplace(epoch, queue_.front());  // may throw: it keeps its place then
    } else {
      spare_.key() = epoch;
      spare_.mapped() = queue_.front();
      under_way_.insert(std::move(spare_));
    }
  }
  const operation_ptr mine = std::move(queue_.front());
  queue_.pop_front();
  begun_ = epoch + 1;
  if (over) {
    drop(collective_key(epoch));
    return true;
  }
  // `failed` will come, or it was cancelled before it was launched.
  op.stalled = op.stalled || stopping_.contains(epoch);
  if (board) {
    on_board_ = mine;
    begin_on_board(out);
    return true;
  }
  if (op.stalled) return true;
  // The membership tells everybody's counts, or that all agree, where the data do not.
  if (!op.plan || !op.plan->agrees()) enroll(op, out);
  if (op.plan) launch(op, out);
  return true;
}

void rank_state::begin_on_board(rank_outbox& out) {
  operation& op = *on_board_;
  if (op.stalled) return;
  try {
    board_port& port = *port_;
    if (!port.recall(op.what) || port.last().how != op.plan) port.remember(op.what, op.plan);
    port.start(op.buffers(), op.epoch, op.ahead, op.what.history);
  } catch (...) {
    return stall(op, text_of(std::current_exception()), out);
  }
  advance(out);
}

/// It cannot be begun or continued here, so nowhere.
void rank_state::stall(operation& op, const std::string& why, rank_outbox& out) {
  op.stalled = true;
  out.fail(op.epoch, op.title(), make_failure(errc::aborted, "it cannot be performed: " + why));
}

void rank_state::launch(operation& op, rank_outbox& out) {
  if (op.plan->nic() != nullptr) return launch_on_nic(op, out);
  if (op.plan->tiers() != nullptr) return launch_in_tiers(op, out);
  if (op.parts && out.shares_parts() && launch_parts(op, out)) return;
  std::shared_ptr<assignment> what;
  try {
    what = prepare_for_channels(op, options_.rank);
  } catch (const error& e) {
    return cannot_begin(op, e.code_value(), e.what(), out);
  } catch (const std::exception& e) {
    return cannot_begin(op, errc::out_of_memory, e.what(), out);
  }
  op.launched = true;
  op.channels = what->code->channels;
  if (uses_card(*what->code)) {
    op.lacks_room = std::move(what);
    return begin_on_card(op, out);
  }
  if (op.channels > 0) return start_channels(what, out);
  if (op.plan->agrees() || op.agreed) finish(op.epoch, nullptr, out);
}

/// Here, so nobody can end it.
void rank_state::cannot_begin(operation& op, errc code, const std::string& why, rank_outbox& out) {
  op.stalled = true;
  out.fail(op.epoch, op.title(),
           make_failure(code, "rank " + std::to_string(options_.rank) + " cannot begin it: " + why));
}

std::shared_ptr<assignment> rank_state::prepare_for_channels(operation& op, rank_t rank) {
  auto what = prepare(op, rank, *memory_, *spaces_, programs_);
  if (what->code->channels > options_.channels)
    throw error(errc::unsupported, "the plan has " + std::to_string(what->code->channels) +
                                       " channels but the communicator only " + std::to_string(options_.channels));
  return what;
}

/// The operation to which they belong may end with the last of them.
void rank_state::start_channels(const std::shared_ptr<const assignment>& what, rank_outbox& out) {
  if (const failure_ptr why = out.obstacle(*what->code)) return failed_here(what->epoch, why, out);
  for (int c = 0; c < what->code->channels; ++c) {
    channel_port port{*this, c, out};
    channels_[static_cast<std::size_t>(c)].start(what, port);
  }
}

void rank_state::launch_on_nic(operation& op, rank_outbox& out) {
  try {
    out.post_to_nic(prepare_for_nic(op, options_.rank, *memory_));
  } catch (const error& e) {
    return cannot_begin(op, e.code_value(), e.what(), out);
  } catch (const std::exception& e) {
    return cannot_begin(op, errc::out_of_memory, e.what(), out);
  }
  op.launched = op.on_nic = true;
  op.channels = 1;  // the NIC
}

void rank_state::start_pair(std::shared_ptr<const assignment> what) {
  const int channel = what->channel % options_.channels;
  channel_port port{*this, channel, *speaking_};
  if (const failure_ptr why = speaking_->obstacle(*what->code))
    return port.failed({what->epoch, what->peer, what->sending}, why);
  channels_[static_cast<std::size_t>(channel)].start(std::move(what), port);
}

// -- a blocking operation on the boards -----------------------------------------------------------------------------------

operation_ptr rank_state::adopt_inline(const call_buffers& memory, time_limit deadline, steady_time begun) {
  auto op = std::make_shared<operation>();
  const remembered_calls::entry& known = port_->last();
  op->what = known.what;
  op->plan = known.how;
  op->input = memory.input;
  op->output = memory.output;
  op->input_displacements.assign(memory.input_displacements.begin(), memory.input_displacements.end());
  op->output_displacements.assign(memory.output_displacements.begin(), memory.output_displacements.end());
  op->deadline = deadline.optional();
  op->epoch = next_ - 1;
  op->what.history = inline_history_;
  op->ahead = inline_ahead_;
  op->begun = begun;
  op->expires = deadline.after(begun);
  inline_ = false;
  on_board_ = op;
  return op;
}

void rank_state::drop_inline() {
  port_->drop(next_ - 1);
  inline_ = false;
}

std::array<operation_ptr, pairs::most_inline> rank_state::adopt_pairs_inline(time_limit deadline, steady_time begun,
                                                                             rank_outbox& out) {
  speaking_ = &out;
  auto made = pairs_.adopt_inline(deadline, begun, out);
  speaking_ = nullptr;
  return made;
}

// -- an operation goes on ---------------------------------------------------------------------------------------------

/// Performs it as far as it goes now. Where it cannot go on it is stalled, and that is said.
board_performer::status rank_state::look_at_board(operation& op, bool& moved, rank_outbox& out) {
  const std::size_t before = port_->steps_taken();
  auto status = board_performer::status::waiting;
  try {
    status = port_->advance();
  } catch (...) {
    stall(op, text_of(std::current_exception()), out);
    moved = true;
    return status;
  }
  moved = moved || status == board_performer::status::performed || port_->steps_taken() != before;
  if (status == board_performer::status::mismatch) {
    op.stalled = true;  // the membership sees all calls, and tells every rank the same table
    enroll(op, out);
    out.differs(op.epoch);
  }
  return status;
}

bool rank_state::advance(rank_outbox& out) {
  bool moved = in_tiers_ != nullptr && advance_tier(out);
  while (on_board_ && !on_board_->stalled && !dead_) {
    if (look_at_board(*on_board_, moved, out) != board_performer::status::performed) return moved;
    finish_on_board(nullptr, out);
    if (beginning_) return true;  // further up the stack the next one begins
    begin_queued(out);
  }
  return moved;
}

void rank_state::on_chunk(int channel, chunk&& what, rank_outbox& out) {
  const bool pair = (what.epoch & point_to_point) != 0;
  if (dead_ || is_over({what.epoch, pair ? what.source : -1, false})) return;
  channel_port port{*this, channel, out};
  speaking_ = &out;
  channels_[static_cast<std::size_t>(channel)].on_chunk(std::move(what), port);
  speaking_ = nullptr;
}

void rank_state::on_credit(int channel, const credit& what, rank_outbox& out) {
  if (dead_ || (spaces_->areas() != nullptr && news_of_parts(what.epoch, out))) return;
  channel_port port{*this, channel, out};
  speaking_ = &out;
  channels_[static_cast<std::size_t>(channel)].on_credit(what, port);
  speaking_ = nullptr;
}

void rank_state::transferred(const operation_key& which, int channel, int lane, rank_outbox& out) {
  if (dead_) return;
  channel_port port{*this, channel, out};
  channels_[static_cast<std::size_t>(channel)].transferred(which, lane, port);
}

void rank_state::advance_channel(int channel, const operation_key& which, rank_outbox& out) {
  channel_port port{*this, channel, out};
  channels_[static_cast<std::size_t>(channel)].announced(which, port);
}

/// A peer called something else. The membership sees all calls and tells every rank the same table. A rank that is ahead hears of it from there only.
void rank_state::differs(epoch_t epoch, rank_t from, rank_outbox& out) {
  const auto at = under_way_.find(epoch);
  if (at == under_way_.end()) return;
  at->second->stalled = true;
  at->second->unlike = from;
  enroll(*at->second, out);
  out.differs(epoch);
}

failure_ptr rank_state::here(const failure& why) const {
  return make_failure(why.code, "on rank " + std::to_string(options_.rank) + ": " + why.text);
}

/// Performing it threw.
void rank_state::failed_here(epoch_t epoch, const failure_ptr& why, rank_outbox& out) {
  const auto at = under_way_.find(epoch);
  if (at == under_way_.end()) return;
  at->second->stalled = true;
  out.fail(epoch, at->second->title(), here(*why));
}

void rank_state::element_ended(rank_outbox& out) {
  if (dead_) return;
  speaking_ = &out;
  for (int c = 0; c < options_.channels; ++c) {
    channel_port port{*this, c, out};
    for (const auto& what : channels_[static_cast<std::size_t>(c)].assignments()) {
      const auto at = what->peer >= 0 ? under_way_.end() : under_way_.find(what->epoch);
      if (at != under_way_.end() && at->second->stalled) continue;  // it fails already
      if (const failure_ptr why = out.obstacle(*what->code)) port.failed({what->epoch, what->peer, what->sending}, why);
    }
  }
  speaking_ = nullptr;
  when_idle(out);
}

/// Chunks of it are nobody's.
bool rank_state::is_over(const operation_key& which) const {
  if (which.peer >= 0) return pairs_.is_over(which);
  if (stopping_.contains(which.epoch) || failed_.contains(which.epoch)) return true;
  return before(which.epoch, begun_) && !under_way_.contains(which.epoch);
}

void rank_state::performed(const operation_key& which, rank_outbox& out) {
  if (which.peer >= 0) {
    pairs_.performed(which);
    return when_idle(out);
  }
  const auto at = under_way_.find(which.epoch);
  if (at == under_way_.end() || --at->second->channels > 0) return;
  if (at->second.get() == in_tiers_) return end_tier(out);
  if (at->second->plan->agrees() || at->second->agreed) finish(which.epoch, nullptr, out);
}

// -- an operation ends --------------------------------------------------------------------------------------------------

/// By mailbox. A stop that comes later finds nothing to stop.
void rank_state::finish(epoch_t epoch, failure_ptr why, rank_outbox& out) {
  spare_ = under_way_.extract(epoch);
  operation_ptr op = std::move(spare_.mapped());
  if (op->parts) {
    op->parts->leave();
    pieces_came(*op->parts, true);
  }
  if (op.get() == in_tiers_) leave_tiers(why == nullptr);
  if (!why && op->plan && op->plan->tiers() == nullptr) {
    try {
      conclude(*op, options_.rank, options_.ranks);
    } catch (const error& e) {
      why = make_failure(e.code_value(), e.what());
    }
  }
  const bool registered = op->registered, performed = why == nullptr;
  if (performed && !op->ahead) ahead_.confirm(epoch);
  // Before its caller is told, whose next call needs the room.
  op->lacks_room.reset();
  op->tile.reset();
  op->shared.reset();
  ended_.append(std::move(op), std::move(why));
  drop(collective_key(epoch));  // what came twice
  if (registered) withdraw(epoch, performed, out);
  begin_queued(out);
}

void rank_state::finish_on_board(failure_ptr why, rank_outbox& out) {
  operation_ptr op = std::move(on_board_);
  if (why) port_->drop(op->epoch);
  else port_->conclude(op->output);
  const bool registered = op->registered, performed = why == nullptr;
  const epoch_t epoch = op->epoch;
  if (performed && !op->ahead) ahead_.confirm(epoch);
  ended_.append(std::move(op), std::move(why));
  if (registered) withdraw(epoch, performed, out);
}

void rank_state::withdraw(epoch_t epoch, bool performed, rank_outbox& out) {
  const auto unconfirmed = performed ? ahead_.unconfirmed(epoch) : std::nullopt;
  out.withdraw(epoch, unconfirmed ? &*unconfirmed : nullptr);
}

/// Everything of it leaves the channels. Returns what its lanes lacked.
std::vector<lane_wait> rank_state::drop(const operation_key& which) {
  std::vector<lane_wait> lacked;
  for (channel_state& c : channels_) {
    std::vector<lane_wait> more = c.stop(which);
    lacked.insert(lacked.end(), more.begin(), more.end());
  }
  return lacked;
}

operation* rank_state::find(epoch_t epoch) {
  if (on_board_ && on_board_->epoch == epoch) return on_board_.get();
  if (const auto at = under_way_.find(epoch); at != under_way_.end()) return at->second.get();
  for (const operation_ptr& op : queue_)
    if (op->epoch == epoch) return op.get();
  return nullptr;
}

// -- for tests ----------------------------------------------------------------------------------------------------------

std::size_t rank_state::early_chunks() const {
  std::size_t total = 0;
  for (const channel_state& c : channels_) total += c.early_chunks();
  return total;
}

std::size_t rank_state::channels_under_way() const {
  std::size_t total = 0;
  for (const channel_state& c : channels_) total += c.under_way();
  return total;
}

}  // namespace troupe::actors
