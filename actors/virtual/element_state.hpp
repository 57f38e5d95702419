// SPDX-License-Identifier: Apache-2.0
#pragma once
// How an element of the hardware serves messages: pure arithmetic on picoseconds, no CAF, no events. topology/machine/hardware.hpp states
// the model. One owner; calls come in the order of time.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "topology/machine/hardware.hpp"

namespace troupe::actors {

/// No virtual time is later: the rest of 64 bits is room to add to one, so that nothing overflows. 53 days.
/// A run that comes there is refused.
inline constexpr std::int64_t end_of_time = std::int64_t{1} << 62;

/// Serves one message after the other on every unit.
class fifo_state {
public:
  /// What a message gets.
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
  struct departure {
    std::int64_t time = 0;
    std::uint32_t message = 0;
    std::int64_t joined_at = 0;
  };

  /// `alone`: how long the message would take by itself.
  void join(std::int64_t now, std::uint32_t message, std::int64_t alone) {
    settle(now);
    const member m{attained_ + (static_cast<wide>(alone) << fraction), joined_++, now, message};
    if (empty()) {
      alone_ = m;
      is_alone_ = true;
      return;
    }
    if (is_alone_) members_.push_back(alone_);
    is_alone_ = false;
    members_.push_back(m);
    std::push_heap(members_.begin(), members_.end(), later);
  }
  bool empty() const { return !is_alone_ && members_.empty(); }
  std::size_t size() const { return is_alone_ ? 1 : members_.size(); }
  /// Who is done next, and when, if nobody joins before. Ties: who joined first. @pre not empty
  departure next() const {
    const member& first = is_alone_ ? alone_ : members_.front();
    const wide left = first.done_at > attained_ ? first.done_at - attained_ : 0;
    const wide time = left * size();
    constexpr wide one = wide{1} << fraction;
    return {since_ + static_cast<std::int64_t>((time + one - 1) >> fraction), first.message, first.joined_at};
  }
  /// Removes next(). @pre `now` is its time
  void leave(std::int64_t now) {
    settle(now);
    if (is_alone_) {
      is_alone_ = false;
      return;
    }
    std::pop_heap(members_.begin(), members_.end(), later);
    members_.pop_back();
  }

private:
  __extension__ using wide = unsigned __int128;
  static constexpr int fraction = 32;
  struct member {
    wide done_at;
    std::uint64_t joined;
    std::int64_t joined_at;
    std::uint32_t message;
  };
  static bool later(const member& a, const member& b) {
    return a.done_at != b.done_at ? a.done_at > b.done_at : a.joined > b.joined;
  }
  void settle(std::int64_t now) {
    const auto passed = static_cast<std::uint64_t>(now - since_);
    since_ = now;
    const std::size_t k = size();
    if (k == 0) return;
    // Mostly it is short enough for a division of 64 bits.
    if (k == 1) attained_ += static_cast<wide>(passed) << fraction;
    else if (passed >> (64 - fraction) == 0) attained_ += (passed << fraction) / k;
    else attained_ += (static_cast<wide>(passed) << fraction) / k;
  }

  wide attained_ = 0;
  std::int64_t since_ = 0;
  std::uint64_t joined_ = 0;
  bool is_alone_ = false;
  member alone_{};               ///< the only one, as it is on most elements at most times
  std::vector<member> members_;  ///< else: a heap, the earliest at the front
};

}  // namespace troupe::actors
