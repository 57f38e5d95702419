// SPDX-License-Identifier: Apache-2.0
#pragma once
// The sender's end of a channel: messages that descriptors have handed over, and how far their packets have got. No CAF in here.
//
// A message refers to memory that stays as it is until its last packet was taken, so what is lost or refused can be sent again from there.
// Packets are sent and taken in order: `sent` and `taken` count those of the whole channel.
//
// A sender that had to send again goes on with one packet under way, and with one more for each that is taken, up to the window: a receiver that
// refuses packets has no room.
//
// A message that is cut into pulses needs a counter for each pulse under way, from before its first packet is sent until the response to
// its last.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "actors/elements/offload/offload_messages.hpp"

namespace troupe::actors {

struct outgoing_message {
  std::uint8_t seq_id = 0;
  bool has_data = false;
  bool has_address = false;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::uint64_t first = 0;  ///< number of its first packet
  std::uint64_t packets = 1;
  std::uint64_t ready = 0;          ///< packets whose data are there
  std::uint64_t pulse_packets = 0;  ///< of a pulse; 0: it needs no counters
};

class outgoing_channel {
public:
  explicit outgoing_channel(const offload_channel_name& name) : name_(name) {}

  const offload_channel_name& name() const { return name_; }
  std::size_t messages() const { return messages_.size(); }
  std::uint64_t taken() const { return taken_; }
  int counters() const { return static_cast<int>(pulse_ends_.size()); }
  bool waits_for_response() const { return sent_ > taken_; }

  /// Its `first` is set here.
  void hand_over(outgoing_message m) {
    m.first = end_;
    end_ += m.packets;
    messages_.push_back(m);
  }
  /// Of the newest message. @pre hand_over()
  void one_more_ready() { ++messages_.back().ready; }

  enum class next : std::uint8_t { nothing, packet, counter };
  /// What could be sent now; `counter`: a packet whose pulse has none yet.
  next what_next(std::size_t window, int most_pulses) const {
    if (sent_ == end_ || sent_ - taken_ >= std::min<std::uint64_t>(window, allowed_)) return next::nothing;
    const outgoing_message& m = at_hand();
    if (sent_ - m.first >= m.ready) return next::nothing;
    if (m.pulse_packets == 0 || (!pulse_ends_.empty() && sent_ < pulse_ends_.back())) return next::packet;
    return counters() < most_pulses ? next::counter : next::nothing;
  }
  /// @pre what_next() is counter
  void begin_pulse() {
    const outgoing_message& m = at_hand();
    const std::uint64_t pulse = (sent_ - m.first) / m.pulse_packets;
    pulse_ends_.push_back(m.first + std::min(m.packets, (pulse + 1) * m.pulse_packets));
  }
  /// The next packet counts as sent. @pre what_next() is packet
  const outgoing_message& send(std::uint64_t& number) {
    const outgoing_message& m = at_hand();
    number = sent_++;
    return m;
  }

  /// The receiver has taken so many. Returns how many counters come back.
  int responded(std::uint64_t taken) {
    allowed_ += taken > taken_ && allowed_ < most_allowed ? taken - taken_ : 0;
    // After going back to send again, a response to what was sent before may be ahead of what is sent.
    taken_ = std::min(std::max(taken_, taken), end_);
    sent_ = std::max(sent_, taken_);
    while (!messages_.empty() && messages_.front().first + messages_.front().packets <= taken_) messages_.pop_front();
    int back = 0;
    for (; !pulse_ends_.empty() && pulse_ends_.front() <= taken_; ++back) pulse_ends_.pop_front();
    return back;
  }
  /// Packets that were not taken are sent again. Returns how many counters come back: all.
  int rewind() {
    sent_ = taken_;
    allowed_ = 1;
    return let_go();
  }
  /// A pulse that is cut short goes on with a counter of its own. Returns how many come back: all.
  int let_go() {
    const int back = counters();
    pulse_ends_.clear();
    return back;
  }

  /// Waits for a counter, and has none: nobody else than those who have them can help it.
  bool wants_first() const { return wants && pulse_ends_.empty(); }

  // The NIC's notes.
  picoseconds deadline{0};     ///< then it sends again, if nothing was taken; 0: nothing is under way
  picoseconds silence{0};      ///< after which it does
  bool timed = false;          ///< has a timer
  bool queued = false;         ///< among those that may have something to send
  bool wants = false;          ///< among those that wait for a counter …
  picoseconds wants_since{0};  ///< … from then on
  std::size_t held_at = 0;     ///< place among those that have counters, while it has

private:
  /// The message of the packet that is sent next. Messages are few: a channel's credits. @pre sent_ < end_
  const outgoing_message& at_hand() const {
    return *std::find_if(messages_.begin(), messages_.end(),
                         [&](const outgoing_message& m) { return sent_ < m.first + m.packets; });
  }

  offload_channel_name name_;
  std::deque<outgoing_message> messages_;  ///< not taken as a whole, oldest first
  std::uint64_t end_ = 0, sent_ = 0, taken_ = 0;
  static constexpr std::uint64_t most_allowed = std::uint64_t{1} << 32;
  std::uint64_t allowed_ = most_allowed;  ///< under way, besides the window
  std::deque<std::uint64_t> pulse_ends_;  ///< of pulses that have a counter
};

}  // namespace troupe::actors
