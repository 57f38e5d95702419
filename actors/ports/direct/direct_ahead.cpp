// SPDX-License-Identifier: Apache-2.0
// Operations with a root, of blocks that differ in size, which may run ahead: a rank that only gives does not wait for those that take.
//
//   gather    A rank whose block is small brings a copy (snapshots.hpp), and leaves. Another one comes, and its block is copied from its
//             buffer: by itself, if the root is here, and by the root, unit by unit. The root takes the copies that are brought.
//             Every other rank's block is a share of the root's `left`; the rank that finishes the last one sets `over`, for which those wait that
//             came with their buffers. If all have brought copies, nobody waits for it, and nobody says it. The root looks at one after the
//             other; while it sleeps it is woken by the one that it lacks (awaited()), and finds what the others behind it have left it to do.
//   scatter   A root whose blocks are small together brings a copy of all, and leaves; the others each take theirs. Another root comes, and
//             everything is as where nobody may run ahead: so a rank that finds no copy comes, too, and looks for what the root does.
//
// What a rank gets is what its peer had for it in this operation, or a mismatch: the copy has its giver's fingerprint and the sizes of its
// blocks. The giver hears of a mismatch later (calls_ahead.hpp).

#include <algorithm>
#include <cstring>
#include <utility>

#include "actors/ports/direct/direct_performer.hpp"
#include "actors/ports/slots/slot_board.hpp"
#include "actors/waiting/policy.hpp"

namespace troupe {

namespace {
constexpr int most_looks = 32;
}  // namespace

/// Looks for a little for what is about to come, which costs less than to meet; but not where another rank needs the core to bring it.
template <class Seen>
bool direct_performer::look_for(Seen&& seen) const {
  if (seen()) return true;
  if (board_->cores().is_shared(rank_)) return false;
  wait_course course{{most_looks}, 0};
  while (course.next() == wait_course::step::pause) {
    pause_core();
    if (seen()) return true;
  }
  return false;
}

/// A rank that only gives may leave when it has brought its copy. The same answer at all ranks. @pre some of them bring copies
bool direct_performer::gives_in_advance() const {
  const root_role rooted = traits_of(code_->what).root;
  return rooted == root_role::source || (rooted == root_role::sink && code_->by_source);
}

bool direct_performer::has_brought(rank_t which) const {
  return meeting_place().brought.of(which, sequence_).mark.load(std::memory_order_acquire) == mark_;
}

/// The rank waits for it to come.
bool direct_performer::lacks(rank_t which) const {
  if (ahead_ && ((rank_ != code_->root && which != code_->root) || has_brought(which))) return false;
  return meeting_place().at(which).here.load(std::memory_order_acquire) != mark_;
}

void direct_performer::look_for_copy(rank_t from) const {
  look_for([&] { return has_brought(from) || meeting_place().at(from).here.load(std::memory_order_relaxed) == mark_; });
}

direct_performer::status direct_performer::advance_ahead() {
  const bool root = rank_ == code_->root;
  if (traits_of(code_->what).root == root_role::source) return root ? hand_out() : receive();
  return root ? collect() : hand_in();
}

/// The rank's own block. False: it counts it differently as what it gives and as what it gets.
bool direct_performer::copy_own() const {
  const direct_fit::kept& own = fit_->own;
  if (!own.agrees || own.bytes == 0) return own.agrees;
  const std::byte* const from = mine_.input + own.from;
  std::byte* const to = mine_.output + own.to;
  if (from != to) std::memmove(to, from, own.bytes);
  return true;
}

// -- scatter ----------------------------------------------------------------------------------------------------------

direct_performer::status direct_performer::hand_out() {
  // A root whose copies are all still in use is ahead of the others; one of them comes free soon.
  if (fit_->small && look_for([&] { return bring(); })) {
    if (!copy_own()) return differs(rank_);
    tell_all();
    return leave_early();
  }
  ahead_ = false;
  return advance();
}

direct_performer::status direct_performer::receive() {
  const rank_t root = code_->root;
  const bool little =
      sizes().own_blocks(false)[0] * sizes().element_size() * static_cast<std::size_t>(board_->ranks()) <=
      meeting_place().brought.room();
  if (phase_ == phase::coming && little) look_for_copy(root);
  if (!has_brought(root)) {
    if (meeting_place().at(root).here.load(std::memory_order_seq_cst) != mark_) {
      if (phase_ == phase::coming) come();
      return is_over() ? leave() : status::waiting;
    }
    if (!has_brought(root)) {  // it has come without
      ahead_ = false;
      return advance();
    }
  }
  if (meeting_place().brought.of(root, sequence_).fingerprint != fingerprint_) return differs(root);
  for (const direct_fit::taken& block : fit_->takes)
    if (!take_copy(block)) return differs(root);
  return leave_early();
}

// -- gather -----------------------------------------------------------------------------------------------------------

direct_performer::status direct_performer::hand_in() {
  const rank_t root = code_->root;
  if (phase_ == phase::coming) {
    if (fit_->small && look_for([&] { return bring(); })) {
      board_->notify(root, rank_);
      return leave_early();
    }
    buffers_[static_cast<std::size_t>(rank_)] = mine_;
    come();
    // If the root is here, this rank does what there is to do for its block, so it need not be told before, unless it is much.
    if (sizes().own_blocks(true)[0] * sizes().element_size() >= much_bytes) board_->notify(root, rank_);
  }
  if (phase_ == phase::meeting) {
    if (const status s = meet(root); s != status::performed) return s == status::waiting && is_over() ? leave() : s;
    phase_ = phase::working;
  }
  if (phase_ == phase::working) {
    // Where the system would have to copy, the root copies itself, from the place of this rank's block.
    const bool near = buffers_[static_cast<std::size_t>(root)].output_near;
    if (near && !work_with(root, rank_)) return differs(root);
    phase_ = phase::leaving;
    board_->notify(root, rank_);
  }
  return wait_for_end();
}

rank_t direct_performer::awaited() const {
  const bool collects =
      ahead_ && phase_ == phase::meeting && rank_ == code_->root && traits_of(code_->what).root == root_role::sink;
  if (!collects) return slot_board::anybody;
  const auto at = static_cast<std::size_t>(met_);
  return at < fit_->takes.size() ? fit_->takes[at].owner : slot_board::anybody;
}

direct_performer::status direct_performer::collect() {
  const auto& takes = fit_->takes;
  direct_board::rank_words& mine = meeting_place().at(rank_);
  const std::size_t others = static_cast<std::size_t>(board_->ranks()) - 1;
  if (phase_ == phase::coming) {
    // If all others bring copies, nobody looks at this rank's words.
    while (static_cast<std::size_t>(met_) < takes.size() && take_soon(takes[static_cast<std::size_t>(met_)])) ++met_;
    if (phase_ == phase::at_odds) return status::mismatch;
    if (taken_ == others) return copy_own() ? leave() : differs(rank_);
    buffers_[static_cast<std::size_t>(rank_)] = mine_;
    mine.left.store((others - std::exchange(taken_, 0)) * direct_board::share, std::memory_order_relaxed);
    come();
    if (!copy_own()) return differs(rank_);  // while the others copy theirs
  }
  if (phase_ == phase::meeting) {
    status s = status::performed;
    for (; static_cast<std::size_t>(met_) < takes.size(); ++met_)
      if (s = collect_from(takes[static_cast<std::size_t>(met_)]); s != status::performed) break;
    if (s == status::performed && !lent_) return leave();  // nobody waits for `over`
    finished(std::exchange(taken_, 0) * direct_board::share, mine.left);
    if (s == status::mismatch) return s;
    if (s == status::waiting) return is_over() ? leave() : s;
    phase_ = phase::leaving;
  }
  return wait_for_end();
}

/// If its owner is the root or has brought it. False: not yet, or they differ (`at_odds`).
bool direct_performer::take_brought(const direct_fit::taken& block) {
  if (block.owner == rank_) return true;
  const snapshots::place& theirs = meeting_place().brought.of(block.owner, sequence_);
  if (theirs.mark.load(std::memory_order_acquire) != mark_) return false;
  if (theirs.fingerprint != fingerprint_ || !take_copy(block)) {
    differs(block.owner);
    return false;
  }
  ++taken_;
  return true;
}

/// The same; a copy that may come is looked for.
bool direct_performer::take_soon(const direct_fit::taken& block) {
  if (take_brought(block)) return true;
  if (phase_ == phase::at_odds || block.bytes > meeting_place().brought.room()) return false;
  look_for_copy(block.owner);
  return take_brought(block);
}

/// `performed`: nothing is left to do for the block here.
direct_performer::status direct_performer::collect_from(const direct_fit::taken& block) {
  const rank_t source = block.owner;
  if (source != rank_ && !has_brought(source)) {
    if (meeting_place().at(source).here.load(std::memory_order_seq_cst) != mark_) return status::waiting;
    if (!has_brought(source)) {  // it has come without
      lent_ = true;
      if (const status s = meet(source); s != status::performed) return s;
      // As the root counts its target: the source may have done its part meanwhile, and its lists be those of its next call.
      if (block.bytes >= much_bytes) board_->notify(source, rank_);
      return work_with(source, source) ? status::performed : differs(source);
    }
  }
  return take_brought(block) ? status::performed : status::mismatch;
}

/// Units of one body, on the rank's own buffers and those of `other`. False: the two count a block differently.
bool direct_performer::work_with(rank_t other, rank_t body) {
  direct_board& place = meeting_place();
  const touching_others touching{place.at(rank_), mark_};
  if (place.at(other).here.load(std::memory_order_seq_cst) != mark_) return true;
  std::size_t done = 0;
  const bool fit = work_on(body, body != rank_, done);
  finished(done, place.at(code_->root).left);
  return fit;
}

}  // namespace troupe
