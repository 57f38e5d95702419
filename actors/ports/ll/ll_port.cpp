// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/ll/ll_port.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "actors/waiting/yielding.hpp"

namespace troupe {

namespace {

constexpr std::chrono::nanoseconds longest_nap = std::chrono::milliseconds{50};

/// Unit u of the data; what is beyond its end is zero.
std::uint64_t unit_of(const void* data, std::size_t bytes, std::size_t u) {
  std::uint64_t two = 0;
  const std::size_t at = u * ll_shape::unit_bytes;
  const auto* const from = static_cast<const std::byte*>(data) + at;
  if (bytes - at >= ll_shape::unit_bytes) std::memcpy(&two, from, ll_shape::unit_bytes);
  else std::memcpy(&two, from, bytes - at);
  return two;
}

}  // namespace

ll_port::ll_port(slot_board& board, rank_t rank, const ll_shape& shape, std::vector<word*> buffers,
                 const waiting_policy& policy)
    : board_(&board), rank_(rank), shape_(shape), buffers_(std::move(buffers)), waiting_(policy), spin_(policy.spin) {}

void ll_port::begin_at(std::uint32_t epoch) {
  for (std::size_t b = 0; b < shape_.blocks; ++b)
    head(b, rank_).stored.store(epoch - ll::first_epoch, std::memory_order_relaxed);
}

// -- sending ------------------------------------------------------------------------------------------------------------

void ll_port::send(std::size_t block, std::uint32_t epoch, rank_t peer, std::size_t element, const void* data,
                   std::size_t bytes) {
  word* const first =
      buffers_[static_cast<std::size_t>(peer)] + shape_.region_at(block, epoch) + element * ll_shape::slot_words;
  for (std::size_t u = 0; u * ll_shape::unit_bytes < bytes; ++u)
    ll::store(first + u * shape_.elements * ll_shape::slot_words, unit_of(data, bytes, u), epoch);
  if (peer != rank_) board_->notify(peer, rank_);
}

void ll_port::broadcast(std::size_t block, std::uint32_t epoch, std::size_t element, const void* data,
                        std::size_t bytes) {
  constexpr std::size_t unroll = 8;
  const std::size_t n = buffers_.size(), at = shape_.region_at(block, epoch) + element * ll_shape::slot_words;
  for (std::size_t u = 0; u * ll_shape::unit_bytes < bytes; ++u) {
    const std::uint64_t two = unit_of(data, bytes, u);
    const std::size_t slot = at + u * shape_.elements * ll_shape::slot_words;
    std::size_t to = static_cast<std::size_t>(rank_);
    const auto next = [&] {
      word* const there = buffers_[to] + slot;
      to = to + 1 == n ? 0 : to + 1;
      return there;
    };
    std::size_t done = 0;
    for (; done + unroll <= n; done += unroll) {
      word* there[unroll];
      for (word*& each : there) each = next();
      for (word* const each : there) ll::store(each, two, epoch);
    }
    for (; done < n; ++done) ll::store(next(), two, epoch);
  }
  for (rank_t r = 0; std::cmp_less(r, n); ++r)
    if (r != rank_) board_->notify(r, rank_);
}

// -- receiving ----------------------------------------------------------------------------------------------------------

bool ll_port::has_come(const wanted& what, rank_t at) const {
  const std::size_t units = ll_shape::units_of(what.bytes), pitch = shape_.elements * ll_shape::slot_words;
  std::uint64_t ignored = 0;
  for (std::size_t i = 0; i < what.count; ++i)
    for (std::size_t u = 0; u < units; ++u)
      if (!ll::load(first_of(what, at, i) + u * pitch, what.epoch, ignored)) return false;
  return true;
}

/// The stamps in the slots are all of this run of epochs (ll_slots.hpp), so a greater one is later.
bool ll_port::is_overtaken(const wanted& what) const {
  const std::size_t units = ll_shape::units_of(what.bytes), pitch = shape_.elements * ll_shape::slot_words;
  for (std::size_t i = 0; i < what.count; ++i)
    for (std::size_t u = 0; u < units; ++u)
      for (std::size_t half = 0; half < ll_shape::slot_words; ++half) {
        const word* const at = first_of(what, rank_, i) + u * pitch + half;
        if (slots::stamp_in(slots::load(at, std::memory_order_acquire)) > what.epoch) return true;
      }
  return false;
}

bool ll_port::look(const wanted& what) {
  shared_cores& cores = board_->cores();
  cores.note(rank_);
  wait_course course{{spin_, waiting_.yields}};
  while (!has_come(what)) {
    const auto step = course.next();
    if (step == wait_course::step::sleep) return false;
    if (step == wait_course::step::pause) pause_core();
    if (step == wait_course::step::yield && !yield_core()) return false;
    if (course.taken() == eager_looks && cores.is_shared(rank_) && !leaver_.leave(cores, rank_)) return false;
  }
  return true;
}

/// True: it has come.
bool ll_port::sleep_once(const wanted& what, clock::time_point until) {
  slot_board::sleep sleep{*board_, rank_};
  sleep.announce(rank_, slot_board::anybody);
  sleep.fence();
  if (!has_come(what) && !is_overtaken(what)) sleep.until(until);
  return has_come(what);
}

ll_port::waited ll_port::sleep(const wanted& what, clock::time_point deadline, slot_watch& watch,
                               std::chrono::nanoseconds patience) {
  // Release: a rank that reads one of them finds that the wait before is over.
  constexpr auto release = std::memory_order_release;
  wait_word& mine = waits(rank_);
  const std::uint64_t turns = mine.turns.load(std::memory_order_relaxed);
  mine.block.store(what.block, release);
  mine.epoch.store(what.epoch, release);
  mine.start.store(what.start, release);
  mine.count.store(what.count, release);
  mine.stride.store(what.stride, release);
  mine.bytes.store(what.bytes, release);
  mine.turns.store(turns + 1, release);
  const waited how = sleep_long(what, deadline, watch, patience);
  mine.turns.store(turns + 2, release);
  return how;
}

ll_port::waited ll_port::sleep_long(const wanted& what, clock::time_point deadline, slot_watch& watch,
                                    std::chrono::nanoseconds patience) {
  const auto began = clock::now();
  std::chrono::nanoseconds nap = patience;
  auto question = began + nap;
  while (!sleep_once(what, std::min(deadline, question))) {
    if (is_overtaken(what)) return waited::overtaken;
    const auto now = clock::now();
    if (now >= deadline) return waited::timed_out;
    if (now < question) continue;
    if (watch.stop()) return has_come(what) ? waited::came : waited::stopped;
    nap = std::max(nap, std::min(2 * nap, longest_nap));
    question = now + nap;
  }
  spin_ = learn_spin(spin_, waiting_, clock::now() - began);
  return waited::came;
}

// -- epochs -------------------------------------------------------------------------------------------------------------

/// No peer writes to the slots that are cleared here before it has heard of the next epoch, if all are in step.
std::uint32_t ll_port::end_epoch(std::size_t block, std::uint32_t epoch) {
  if (ll::clears_after(epoch)) [[unlikely]]
    slots::clear(buffers_[static_cast<std::size_t>(rank_)] + shape_.region_at(block, epoch),
                 shape_.slots() * ll_shape::slot_words);
  const std::uint32_t next = ll::epoch_after(epoch);
  head(block, rank_).stored.store(next - ll::first_epoch, std::memory_order_relaxed);
  return next;
}

void ll_port::leave() {
  for (std::size_t b = 0; b < shape_.blocks; ++b) head(b, rank_).left.store(1, std::memory_order_release);
  for (rank_t r = 0; std::cmp_less(r, buffers_.size()); ++r)
    if (r != rank_) board_->wake(r);
}

ll_port::wanted ll_port::wanted_by(rank_t of) const {
  constexpr auto acquire = std::memory_order_acquire;
  const wait_word& its = waits(of);
  return {its.block.load(acquire),  static_cast<std::uint32_t>(its.epoch.load(acquire)),
          its.start.load(acquire),  its.count.load(acquire),
          its.stride.load(acquire), its.bytes.load(acquire)};
}

/// When the first loop has ended, all wait, and from then on nobody writes: what the second one does not find is not there. It asks whether they
/// have waited since the first before it looks where their words point to, which need not belong together otherwise; the third one asks once more.
bool ll_port::is_stuck(const wanted& what) const {
  const auto n = static_cast<rank_t>(buffers_.size());
  std::vector<std::uint64_t> turns(buffers_.size());
  const auto turns_of = [&](rank_t r) -> std::uint64_t& { return turns[static_cast<std::size_t>(r)]; };
  const auto counts = [&](rank_t r) { return r != rank_ && turns_of(r) != 0; };
  for (rank_t r = 0; r < n; ++r)
    if (r != rank_ && !has_left(r)) {
      turns_of(r) = waits(r).turns.load(std::memory_order_acquire);
      if (turns_of(r) % 2 == 0) return false;
    }
  for (rank_t r = 0; r < n; ++r)
    if (counts(r)) {
      const wanted its = wanted_by(r);
      if (waits(r).turns.load(std::memory_order_acquire) != turns_of(r) || has_come(its, r)) return false;
    }
  if (has_come(what)) return false;
  for (rank_t r = 0; r < n; ++r)
    if (counts(r) && waits(r).turns.load(std::memory_order_acquire) != turns_of(r)) return false;
  return true;
}

std::string ll_port::describe(rank_t of) const {
  if (has_left(of)) return "has let its handle go";
  if (waits(of).turns.load(std::memory_order_acquire) % 2 == 0) return "is elsewhere";
  const wanted what = wanted_by(of);
  return "waits for element " + std::to_string(what.start) + " in epoch " + std::to_string(what.epoch);
}

}  // namespace troupe
