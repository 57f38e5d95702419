// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/pairs/pair_port.hpp"

#include <algorithm>
#include <cstring>

#include "memory/kernels/kernels.hpp"

namespace troupe {

namespace {

constexpr unsigned unit_bits = 16;
/// As the next unit: nobody may claim any more.
constexpr std::uint64_t closed = (std::uint64_t{1} << unit_bits) - 1;
constexpr std::uint64_t most_units = closed - 1;

/// Between processes alone, where ThreadSanitizer, which knows no fences, sees nothing.
void fence([[maybe_unused]] std::memory_order order) {
#if !defined(__SANITIZE_THREAD__)
  std::atomic_thread_fence(order);
#endif
}

}  // namespace

std::size_t pair_end::unit() const {
  const std::size_t least = far_.memory == nullptr ? unit_bytes : far_unit_bytes;
  return std::max(least, (bytes_ / most_units / least + 1) * least);
}

std::uint64_t pair_end::units() const { return bytes_ < shared_from ? 1 : (bytes_ + unit() - 1) / unit(); }

// -- the sender -----------------------------------------------------------------------------------------------------------

void pair_end::post() {
  auto& head = slot_->head;
  if (!was_taken(*lane_, (mark_ - 1) % pair_lane::depth, left_before_)) return;
  posted_ = true;
  head.shape = shape_;
  // A message that is left here needs no word back; a later one that needs the slot sets its own `tell` (go_away()).
  if (away_ && over_ == sent_when::taken) slot_->sender.tell.store(mark_, std::memory_order_relaxed);
  if (bytes_ > pair_slot::inline_bytes && over_ == sent_when::copied) {
    std::memcpy(lane_->left_at(mark_ - 1), data_, bytes_);
    head.data = nullptr;
  } else if (bytes_ > pair_slot::inline_bytes) {
    head.data = stage_what_it_reads();
    if (is_far() && far_.staging == nullptr)
      slot_->sender.staged.store(mark_ << unit_bits | closed, std::memory_order_relaxed);
  } else if (bytes_ > 0) std::memcpy(head.inlined, data_, bytes_);
  head.stamp.exchange(mark_, std::memory_order_seq_cst);  // before it looks whether the receiver is away
  // The receiver takes the units as they come, while they are in a near cache: both ends copy at once.
  if (far_.staging != nullptr && bytes_ >= shared_from)
    for (std::uint64_t next = 1; next < units(); ++next) stage_unit(next);
  // Of what is left here nobody looks after the receiver any more.
  if (over_ == sent_when::copied) tells_ = slot_->answer.tell.load(std::memory_order_seq_cst) == mark_;
}

/// Where the receiver takes it from. One that is away does not: then this end copies. Of a long message the first unit only: post() stages the rest
/// after the stamp.
const std::byte* pair_end::stage_what_it_reads() {
  if (far_.trials != nullptr) begun_ = std::chrono::steady_clock::now();
  if (far_.staging != nullptr && is_away()) far_.staging = nullptr, far_.trials = nullptr;
  if (far_.staging == nullptr) return data_;
  if (bytes_ < shared_from) far_.copier->copy(far_.staging, data_, bytes_, bytes_);
  else stage_unit(0);
  return far_.staging;
}

void pair_end::stage_unit(std::uint64_t which) {
  const std::size_t begin = which * unit();
  far_.copier->copy(far_.staging + begin, data_ + begin, std::min(unit(), bytes_ - begin), bytes_);
  slot_->sender.staged.store(mark_ << unit_bits | (which + 1), std::memory_order_release);
}

/// Of a message that its receiver has taken: which way it went, and how long that took.
void pair_end::tell_time() {
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begun_;
  std::exchange(far_.trials, nullptr)->took(far_.staging != nullptr, took.count() / static_cast<double>(bytes_));
}

/// The receiver has said where the message belongs.
pair_status pair_end::help() {
  // Two ends that look share the system's copies. Who copies for a receiver that sleeps learns nothing about how fast one reads.
  if (far_.staging != nullptr || slot_->answer.tell.load(std::memory_order_relaxed) == mark_) far_.trials = nullptr;
  auto& answer = slot_->answer;
  pair_status now = pair_status::waiting;
  if (answer.shape.load(std::memory_order_relaxed) == shape_)
    now = copy_units(answer.target.load(std::memory_order_relaxed), data_);
  // Not performed for it, so it has to look itself: another shape, perhaps.
  if (now == pair_status::waiting && answer.tell.load(std::memory_order_seq_cst) == mark_)
    tells_ = tells_ || !std::exchange(told_, true);
  return now;
}

void pair_end::withdraw() {
  if (!posted_ || left()) return;
  slot_->head.stamp.exchange(0, std::memory_order_seq_cst);  // no message's
  fence(std::memory_order_release);                          // before its caller writes there
}

// -- the receiver -----------------------------------------------------------------------------------------------------------

pair_status pair_end::take() {
  if (offered_) return take_offered();
  auto& head = slot_->head;
  if (head.stamp.load(std::memory_order_seq_cst) != mark_) return pair_status::waiting;
  if (head.shape != shape_) return pair_status::mismatch;
  const std::byte* const here = at_hand();
  if (bytes_ < shared_from) {
    if (here == nullptr) {
      const pair_status moved = move(data_, head.data, bytes_);
      if (was_withdrawn()) return pair_status::waiting;
      if (moved != pair_status::performed) return moved;
    } else if (bytes_ > 0) std::memcpy(data_, here, bytes_);
    finish();
    return pair_status::performed;
  }
  source_ = here != nullptr ? here : head.data;
  offer();
  return copy_units(data_, source_);
}

/// The sender may have performed it, and be writing the slot's next message: of the head is read only what nobody can perform meanwhile,
/// since this end has a unit of it.
pair_status pair_end::take_offered() {
  if (finished()) return pair_status::performed;
  if (differs_) return pair_status::mismatch;
  if (source_ != nullptr) return copy_units(data_, source_);
  auto& head = slot_->head;
  if (head.stamp.load(std::memory_order_seq_cst) != mark_) return pair_status::waiting;
  std::uint64_t first = 0;
  if (!claim(first)) return how_it_ended();
  const bool right = head.shape == shape_;
  if (!right || was_withdrawn()) {
    slot_->answer.failed.store(mark_, std::memory_order_relaxed);
    slot_->answer.copied.fetch_add(1, std::memory_order_acq_rel);
    differs_ = !right;  // the next look finds no unit to claim any more
    return right ? how_it_ended() : pair_status::mismatch;
  }
  const std::byte* const here = at_hand();
  source_ = here != nullptr ? here : head.data;
  const pair_status moved = copy_unit(first, data_, source_);
  return moved == pair_status::performed ? copy_units(data_, source_) : moved;
}

const std::byte* pair_end::at_hand() const {
  if (bytes_ <= pair_slot::inline_bytes) return slot_->head.inlined;
  return slot_->head.data == nullptr ? lane_->left_at(mark_ - 1) : nullptr;
}

bool pair_end::was_withdrawn() const {
  if (sending_ || far_.memory == nullptr) return false;
  fence(std::memory_order_acquire);  // after what it has read there
  return slot_->head.stamp.load(std::memory_order_relaxed) != mark_;
}

void pair_end::prepare_answer() {
#if defined(__x86_64__)
  // The line that the answer will be in, to write: GCC's builtin asks for it to read.
  __asm__ volatile("prefetchw %0" : : "m"(lane_->finished));
#else
  __builtin_prefetch(&lane_->finished, 1);
#endif
}

void pair_end::offer() {
  if (std::exchange(offered_, true)) return;
  auto& answer = slot_->answer;
  answer.target.store(data_, std::memory_order_relaxed);
  answer.shape.store(shape_, std::memory_order_relaxed);
  answer.copied.store(0, std::memory_order_relaxed);
  answer.claims.store(mark_ << unit_bits, std::memory_order_release);
  answer.offered.exchange(mark_, std::memory_order_seq_cst);  // before it looks at the head again
}

bool pair_end::close() {
  if (sending_ || !offered_) return false;
  if (std::exchange(closed_, true)) return finished();
  auto& answer = slot_->answer;
  const std::uint64_t claimed = answer.claims.exchange(mark_ << unit_bits | closed, std::memory_order_acq_rel) & closed;
  // Units are copied within a turn, so this is a copy of one unit, or the rest of it.
  const bool all = claimed >= units();
  const auto copied = [&] { return answer.copied.load(std::memory_order_acquire) >= claimed; };
  wait_for_touching(far_.memory, far_.rank, [&] { return all ? finished() || (copied() && has_failed()) : copied(); });
  return all && finished();
}

// -- both -----------------------------------------------------------------------------------------------------------

void pair_end::go_away() {
  if (sending_) {
    away_ = true;
    slot_->sender.tell.exchange(posted_ ? mark_ : left_before_, std::memory_order_seq_cst);
  } else {
    offer();
    slot_->answer.tell.exchange(mark_, std::memory_order_seq_cst);
  }
}

bool pair_end::claim(std::uint64_t& unit) {
  auto& claims = slot_->answer.claims;
  const std::uint64_t all = units_there();
  std::uint64_t seen = claims.load(std::memory_order_acquire);
  // Of the mark the claims hold what fits beside the units: enough to tell it from those before and after.
  while ((seen ^ mark_ << unit_bits) >> unit_bits == 0 && (seen & closed) < all)
    if (claims.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
      unit = seen & closed;
      return true;
    }
  return false;
}

/// Of a short message, and of one of another length than the receiver's, the sender says nothing but the stamp, and that is enough for the first unit.
std::uint64_t pair_end::units_there() const {
  const std::uint64_t all = units();
  if (sending_ || !is_far()) return all;
  const std::uint64_t staged = slot_->sender.staged.load(std::memory_order_acquire);
  const bool of_this = (staged ^ mark_ << unit_bits) >> unit_bits == 0;
  return std::min(all, std::max<std::uint64_t>(1, of_this ? staged & closed : 0));
}

/// `waiting`: the other end's process has ended, and the failure is on its way.
pair_status pair_end::move(std::byte* target, const std::byte* source, std::size_t bytes) const {
  if (far_.memory == nullptr) {
    copy(target, source, bytes);
    return pair_status::performed;
  }
  std::byte* const its = sending_ ? target : const_cast<std::byte*>(source);
  if (std::byte* const here = far_.memory->near(far_.rank, its)) {
    copy(sending_ ? here : target, sending_ ? source : here, bytes);
    return pair_status::performed;
  }
  try {
    const bool moved = sending_ ? far_.memory->write(far_.rank, target, source, bytes)
                                : far_.memory->read(far_.rank, target, source, bytes);
    return moved ? pair_status::performed : pair_status::waiting;
  } catch (const error&) {
    return pair_status::failed;
  }
}

/// One that it has claimed. `performed`: the unit.
pair_status pair_end::copy_unit(std::uint64_t which, std::byte* target, const std::byte* source) {
  const std::size_t step = unit();
  const std::uint64_t all = units();
  const std::size_t begin = all == 1 ? 0 : which * step;
  const std::size_t bytes = all == 1 ? bytes_ : std::min(step, bytes_ - begin);
  if (bytes > 0) {
    if (!sending_ && at_hand() != nullptr) std::memcpy(target, source, bytes);
    else if (const pair_status moved = move(target + begin, source + begin, bytes); moved == pair_status::waiting)
      return moved;
    else if (moved == pair_status::failed || was_withdrawn())
      slot_->answer.failed.store(mark_, std::memory_order_relaxed);
  }
  // The end that counts the last unit sees what was stored about those before.
  if (slot_->answer.copied.fetch_add(1, std::memory_order_acq_rel) + 1 == all && !has_failed()) finish();
  return pair_status::performed;
}

pair_status pair_end::copy_units(std::byte* target, const std::byte* source) {
  for (std::uint64_t next = 0; claim(next);)
    if (const pair_status moved = copy_unit(next, target, source); moved != pair_status::performed) return moved;
  return how_it_ended();
}

pair_status pair_end::how_it_ended() const {
  if (finished()) return pair_status::performed;
  return has_failed() && !was_withdrawn() ? pair_status::failed : pair_status::waiting;
}

void pair_end::finish() {
  lane_->finished_at(mark_ - 1).exchange(mark_,
                                         std::memory_order_seq_cst);  // before it looks whether the other end is away
  const auto& tell = sending_ ? slot_->answer.tell : slot_->sender.tell;
  tells_ = tells_ || tell.load(std::memory_order_seq_cst) == mark_;
}

}  // namespace troupe
