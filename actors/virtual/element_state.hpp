// SPDX-License-Identifier: Apache-2.0
#pragma once
// How an element of the hardware serves messages: pure arithmetic on picoseconds, no CAF, no events. topology/machine/hardware.hpp states
// the model. One owner; calls come in the order of time.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include "topology/machine/hardware.hpp"

namespace troupe::actors {

/// No virtual time is later: the rest of 64 bits is room to add to one, so that nothing overflows. 53 days.
/// A run that comes there is refused.
inline constexpr std::int64_t end_of_time = std::int64_t{1} << 62;

/// Serves one message after the other on every unit.
class fifo_state {
public:
  /// When a message is served.
  struct passage {
    std::int64_t start = 0;  ///< a unit begins with it; ≥ the head's arrival
    std::int64_t end = 0;    ///< the unit is free again
  };

  fifo_state() = default;
  explicit fifo_state(int units) {
    if (units > 1) more_.assign(static_cast<std::size_t>(units) - 1, 0);
  }

  /// The head comes at `head`; the unit is occupied for `occupied`. @pre `head` is not before that of the call before
  passage reserve(std::int64_t head, std::int64_t occupied) {
    std::int64_t& unit = more_.empty() ? free_ : first_free();
    const std::int64_t start = std::max(head, unit);
    unit = std::min(start + occupied, end_of_time);
    return {start, unit};
  }
  /// When the next message could begin.
  std::int64_t free_at() const {
    return more_.empty() ? free_ : std::min(free_, *std::min_element(more_.begin(), more_.end()));
  }

private:
  /// The unit that is free first; of equal ones the one with the lowest number.
  std::int64_t& first_free() {
    const auto other = std::min_element(more_.begin(), more_.end());
    return *other < free_ ? *other : free_;
  }

  std::int64_t free_ = 0;
  std::vector<std::int64_t> more_;  ///< of the second unit on
};

/// Serves all messages at once, each with an equal share: processor sharing, which is max-min fairness on one link.
///
/// Attained service. While k messages are there, each gets 1/k of the time. `attained_` is what a message that was there from
/// the beginning would have got; one that comes at attained service A and would take w alone is done when attained service reaches
/// A + w. Kept in 2⁻³² picoseconds, rounded down; the error of a completion is below a picosecond for 2³² changes.
class fair_state {
public:
  /// What a message brings, for the receiver of its departure.
  struct visit {
    std::uint32_t message = 0;
    std::uint16_t hop = 0;  ///< of its way
    std::int64_t tail = 0;  ///< from the departure to the arrival, if nothing else is later
  };
  struct departure {
    std::int64_t time = 0;
    std::int64_t joined_at = 0;
    visit who;
  };

  fair_state() = default;
  /// Its members lie in `memory`.
  explicit fair_state(std::pmr::memory_resource* memory) : members_(memory) {}

  /// `alone`: how long the message would take by itself.
  void join(std::int64_t now, const visit& who, std::int64_t alone) {
    settle(now, size());
    if (members_.capacity() == 0) members_.reserve(4);
    members_.push_back(
        {attained_ + (static_cast<wide>(alone) << fraction), now, who.tail, joined_++, who.message, who.hop});
    latest_ = std::max(latest_, members_.back().done_at);
    all_ += members_.back().done_at;
    std::push_heap(members_.begin(), members_.end(), later);
  }
  bool empty() const { return members_.empty(); }
  std::size_t size() const { return members_.size(); }
  /// The member that is done next, and when, if none joins before. Ties: the one that joined first. @pre not empty
  departure next() const {
    const member& first = members_.front();
    return {time_of(first.done_at, size()), first.joined_at, {first.message, first.hop, first.tail}};
  }
  /// When `message` will arrive if nobody joins and this is what it waits for: exactly where few are there, else not later: earlier by a
  /// picosecond for each that is before it at most, or by a tenth of the time since somebody came or went last. @pre it is a member
  std::int64_t arrival(std::uint32_t message) const {
    // It mostly came last, or is one of the next ones.
    const member *own = members_.data(), *other = own + size() - 1;
    for (; own->message != message && other->message != message; ++own) --other;
    if (own->message != message) own = other;
    if (size() <= few) return own->tail + step_to(*own);
    const std::int64_t soon = at_a_glance(*own);
    return own->tail + (soon != 0 ? soon : not_before(*own));
  }
  /// Removes next(). @pre `now` is its time
  void leave(std::int64_t now) {
    settle(now, size());
    std::pop_heap(members_.begin(), members_.end(), later);
    all_ -= members_.back().done_at;
    members_.pop_back();
    if (members_.empty()) latest_ = 0;
  }

private:
  __extension__ using wide = unsigned __int128;
  static constexpr int fraction = 32;
  static constexpr wide one = wide{1} << fraction;
  struct member {
    wide done_at;
    std::int64_t joined_at;
    std::int64_t tail;
    std::uint32_t joined;
    std::uint32_t message;
    std::uint16_t hop;
  };
  static bool later(const member& a, const member& b) {
    // As it wraps: never are half of all numbers there.
    return a.done_at != b.done_at ? a.done_at > b.done_at : static_cast<std::int32_t>(a.joined - b.joined) > 0;
  }
  static constexpr std::size_t few = 8;

  /// Ends as they will come, with all their roundings.
  std::int64_t step_to(const member& own) const {
    const member* before[few];
    std::size_t count = 0;
    for (const member& m : members_) {
      if (later(m, own)) continue;
      std::size_t at = count++;
      for (; at > 0 && later(*before[at - 1], m); --at) before[at] = before[at - 1];
      before[at] = &m;
    }
    fair_state rest;
    rest.attained_ = attained_, rest.since_ = since_;
    std::size_t there = size();
    for (std::size_t i = 0; i < count; ++i, --there) rest.settle(rest.time_of(before[i]->done_at, there), there);
    return rest.since_;
  }
  /// A time before which it is not done, from sums alone; 0: it may take more than a tenth longer, so that it is worth to look at all members.
  /// Until it is done, each gets what it needs or as much as it does, whichever is less; of what one needs that is not less than what it grows by
  /// on a straight line from the first to the last one.
  std::int64_t at_a_glance(const member& own) const {
    const auto ps = [&](wide at) { return at > attained_ ? static_cast<double>(at - attained_) * 0x1p-32 : 0.0; };
    const double left = ps(own.done_at), first = ps(members_.front().done_at), last = ps(latest_);
    const auto there = static_cast<double>(size());
    const double more = static_cast<double>(all_ - attained_ * size()) * 0x1p-32 - there * first;
    const double least = there * first + (last > first ? more * ((left - first) / (last - first)) : 0);
    if (1.1 * least < there * left) return 0;
    return std::max(since_ + static_cast<std::int64_t>(least * (1 - 1e-9)), next().time);
  }
  /// Until it is done each gets as much as it does, or as much as it needs.
  std::int64_t not_before(const member& own) const {
    const wide left = own.done_at > attained_ ? own.done_at - attained_ : 0;
    wide all = 0;
    for (const member& m : members_)
      if (m.done_at > attained_) all += std::min(m.done_at - attained_, left);
    return since_ + static_cast<std::int64_t>((all + one - 1) >> fraction);
  }
  std::int64_t time_of(wide done_at, std::size_t members) const {
    const wide left = done_at > attained_ ? done_at - attained_ : 0;
    return since_ + static_cast<std::int64_t>((left * members + one - 1) >> fraction);
  }
  void settle(std::int64_t now, std::size_t k) {
    const auto passed = static_cast<std::uint64_t>(now - since_);
    since_ = now;
    if (k == 0) return;
    // Mostly it is short enough for a division of 64 bits.
    if (k == 1) attained_ += static_cast<wide>(passed) << fraction;
    else if (passed >> (64 - fraction) == 0) attained_ += (passed << fraction) / k;
    else attained_ += (static_cast<wide>(passed) << fraction) / k;
  }

  wide attained_ = 0;
  wide all_ = 0, latest_ = 0;  ///< done_at of the members: their sum, and what none exceeds
  std::int64_t since_ = 0;
  std::uint32_t joined_ = 0;
  std::pmr::vector<member> members_;  ///< a heap, the earliest at the front
};

}  // namespace troupe::actors
