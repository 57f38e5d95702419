// SPDX-License-Identifier: Apache-2.0
#pragma once
// A NIC that performs collectives for its hosts: a plain state. No CAF, thread or clock in here: its owner brings the time.
//
//   post(posting)        from a host      a rank's descriptors; its memory is the NIC's until the completion
//   abort(job)           from a host      everything of the job is forgotten, without a completion
//   arrive(packet)       from the network
//   respond(response)    from the network
//   elapse()             from the owner, at next_deadline() or later
//   work(unit)           from the owner   an offload unit performs one packet of one sequence
//   next_packet(), next_response(), next_completion()   to the owner, one by one, so that what is under way waits here and not in a queue
//
// Messages may come in any order, late, twice or never: what was not taken is sent again after a while. A job's ranks are posted in any
// order and at any time; packets of a port that nobody has posted yet are refused, and asked for when it is.
//
// Units. A sequence stays on the unit that it was given to, the one with the fewest. A unit performs its sequences in turn, a packet at a time;
// one that lacks something is out of the turn until that has come. From its next descriptor a sequence derives the key of the packet
// that it needs next, so what it takes, and every sum, is in the order of its descriptors whatever order packets arrive in.
//
// Memory. Packets wait in the unit's hash buffer, which never grows. An entry is free again when the unit is through with its packet, which is when it
// works next. A packet that finds the buffer full is refused, and asked for when its turn has come; the one that is needed next has a place of its own in
// the sequence. So no packet can keep another one for ever from being taken, and jobs that are slow cost others time, not progress. Everything else is
// bounded by what hosts have posted, which is at most `most_sequences`.
//
// Counters. A pulse has one until its receiver has taken it, and receivers take in the order of their sequences: so all counters may be with
// pulses that are not to be taken yet. A quarter is left for channels that have none; and where none has come back for a while, all do, for those
// that wait. Packets that were sent with them stay where they are and are taken in their turn, so every time something more gets to its receiver.
// Of those that wait, the next is one of the job of which fewest pulses have been taken, and of equal jobs all of one come before the others': a receiver
// may need pulses of several senders. So equal jobs get on alike, whether their channels ask at once or one after the other, as those of a tree do, and
// whose counters were taken back loses no turn. A job that has rested is ahead by `most_ahead` rounds of counters at most, and one that had
// all counters to itself behind by as many, so none starves.

#include <algorithm>
#include <array>
#include <bitset>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/elements/offload/offload_messages.hpp"
#include "actors/elements/offload/outgoing_channel.hpp"
#include "memory/packet_buffer.hpp"
#include "protocols/offload/descriptor.hpp"
#include "protocols/perform/performer.hpp"

namespace troupe::actors {

struct offload_posting {
  offload_job job;
  /// Proved (protocols/offload/offload_proof.hpp), or of somebody who is not trusted: what is not well-formed is refused. @pre Within `memory`.
  std::shared_ptr<const offload::rank_program> program;
  memory_map memory{};  ///< input, output, scratch; null where a NIC carries no payload
  datatype type = datatype::u8;
  op reduction{};
};

/// What a unit did in one turn.
struct offload_work {
  offload_job job;
  bool fires = false;  ///< it began a descriptor: parsed it, and derived its keys
  bool reduces = false;
  bool stores = false;    ///< to the host's memory
  std::size_t bytes = 0;  ///< reduced, or stored
  bool takes = false;     ///< a packet …
  bool first = false;     ///< … the first of its message
};

struct offload_statistics {
  std::size_t sequences = 0;     ///< that are not at their end
  std::size_t waiting = 0;       ///< packets in hash buffers
  std::size_t most_waiting = 0;  ///< in one unit's
  std::size_t capacity = 0;      ///< of a unit's: 100 %
  std::size_t refused = 0;       ///< packets that found a buffer full
  std::size_t early = 0;         ///< packets that found nobody
  std::size_t again = 0;         ///< times that a channel sent once more
  int counters = 0;              ///< in use …
  int most_counters = 0;         ///< … and at most
};

class offload_nic {
public:
  explicit offload_nic(const offload_config& config);
  offload_nic(offload_nic&&) = delete;
  ~offload_nic();

  // -- hosts --

  /// Why it is refused, as a sentence; empty: the NIC has it.
  std::string post(const offload_posting& what);
  void abort(offload_job job, picoseconds now);

  // -- network and time --

  void arrive(offload_packet&& came, picoseconds now);
  void respond(const offload_response& came, picoseconds now);
  void elapse(picoseconds now);
  /// The earliest time at which elapse() may have something to do.
  std::optional<picoseconds> next_deadline() const;

  std::optional<offload_packet> next_packet(picoseconds now);
  std::optional<offload_response> next_response();
  std::optional<offload_completion> next_completion();

  // -- units --

  std::optional<offload_work> work(int unit, picoseconds now);

  // -- questions --

  const offload_config& config() const { return config_; }
  offload_statistics statistics() const;
  /// Mean fill of a unit's hash buffer since the NIC was made, in parts of what it holds without the reserve.
  double average_fill(int unit, picoseconds now) const;

private:
  struct stored {
    std::size_t bytes = 0;
    bool has_data = false, has_address = false;
    std::vector<std::byte> data;
    const std::byte* lies_at = nullptr;  ///< see offload_packet
    std::shared_ptr<const void> keep;    ///< of that memory
    const std::byte* bytes_of_it() const { return lies_at != nullptr ? lies_at : data.data(); }
  };
  /// A rank's part.
  struct posted {
    offload_posting what;
    std::size_t sequences = 0;  ///< not at their end
  };
  struct incoming {
    std::uint32_t node = 0;
    std::uint16_t port = 0;
    std::uint64_t taken = 0;
    std::uint64_t first_refused = none_refused;
  };
  static constexpr std::uint64_t none_refused = ~std::uint64_t{0};
  struct run {
    std::shared_ptr<posted> of;
    const offload::sequence* code = nullptr;
    std::uint64_t serial = 0;
    int unit = 0;
    std::size_t next = 0;  ///< descriptor
    bool begun = false;
    std::size_t piece = 0, pieces = 0;  ///< packets of the descriptor's data
    std::size_t source = 0;             ///< the message of the descriptor's that it takes from next
    std::vector<incoming> in;           ///< channels
    std::vector<outgoing_channel> out;
    std::vector<std::uint16_t> in_of, out_of;  ///< by awaited message from `awaited` on, by descriptor
    std::size_t awaited = 0;
    std::optional<stored> landed;  ///< the packet that it needs next, where the buffer had no room
    std::vector<std::byte> sum;    ///< of the piece, where several messages are combined before they are kept
    bool ready = false;            ///< in the unit's turn

    const offload::descriptor& now() const { return code->descriptors[next]; }
    const offload_job& job() const { return of->what.job; }
    const offload::rank_program& program() const { return *of->what.program; }
  };
  struct unit {
    explicit unit(std::size_t packets) : buffer(packets) {}
    packet_buffer<stored> buffer;
    std::deque<run*> ready;
    std::size_t sequences = 0;
    bool reads = false;  ///< a packet, whose place in the buffer is occupied until the unit works again
    double filled = 0;   ///< packets × picoseconds
    picoseconds since{0};
  };
  struct out_ref {
    run* of;
    std::size_t channel;
    outgoing_channel& operator*() const { return of->out[channel]; }
    outgoing_channel* operator->() const { return &of->out[channel]; }
  };
  struct timer {
    picoseconds at;
    std::uint32_t name;
    std::uint64_t serial;
    std::size_t channel;
    bool operator>(const timer& other) const { return at > other.at; }
  };
  struct ended {
    std::uint64_t epoch = 0;
    bool well = false;
  };

  // offload_nic.cpp: hosts and units
  std::string why_not(const offload_posting& what) const;
  std::string why_not_sequence(const offload_posting& what, const offload::sequence& s) const;
  std::unique_ptr<run> make_run(const std::shared_ptr<posted>& of, const offload::sequence& code);
  void list_channels(run& r) const;
  void remove(std::uint32_t name, bool well, picoseconds now);
  void fail(offload_job job, const std::string& why, picoseconds now);
  void remove_job(offload_job job, picoseconds now);
  std::optional<offload_work> advance(run& r, picoseconds now);
  bool begin(run& r);
  std::optional<offload_work> end(run& r, picoseconds now);
  offload_work perform_local(run& r, bool fires);
  std::optional<offload_work> take(run& r, bool fires, picoseconds now);
  std::string why_not_taken(const run& r, const stored& p) const;
  void combine(run& r, const stored& p);
  void next_descriptor(run& r);

  // offload_nic_network.cpp
  run* find(std::uint8_t job, std::uint16_t port);
  void early(const offload_packet& p);
  incoming* channel_of(run& r, const offload_packet& p);
  bool needs_now(const run& r, const incoming& c, const offload_packet& p) const;
  std::optional<stored> fetch(run& r, picoseconds now);
  void answer(const run& r, const incoming& c, bool again);
  void activate(const out_ref& c);
  void watch(const out_ref& c, picoseconds now);
  void drop_old_timers();
  void look_after(const out_ref& c, picoseconds now, bool& failed);
  void begin_pulse(const out_ref& c);
  int released(const out_ref& c, int back);
  void give_back(int counters, picoseconds now);
  bool may_have_another(const outgoing_channel& c) const;
  void ask_for_counter(const out_ref& c, picoseconds now);
  void take_counters_back(picoseconds now);
  offload_packet packet_of(const out_ref& c);
  void forget(run& r, picoseconds now);

  // places and sizes
  static std::uint32_t name_of(std::uint8_t job, std::uint16_t port) {
    return static_cast<std::uint32_t>(job) << offload::port_bits | port;
  }
  static packet_key key_of(std::uint8_t job, std::uint32_t node, std::uint16_t from, std::uint16_t to,
                           std::uint8_t seq_id, std::size_t index);
  std::size_t packet_elements(const offload::rank_program& p) const { return config_.packet_bytes / p.element_size; }
  std::size_t pieces_of(const offload::rank_program& p, const offload::descriptor& d) const {
    const std::size_t each = packet_elements(p);
    return d.elements == 0 ? 1 : (d.elements - 1) / each + 1;
  }
  std::size_t piece_offset(const run& r) const {
    return r.piece * packet_elements(r.program()) * r.program().element_size;
  }
  std::size_t piece_bytes(const run& r) const {
    const std::size_t each = packet_elements(r.program());
    return std::min(each, r.now().elements - r.piece * each) * r.program().element_size;
  }
  std::byte* at(const run& r, const offload::operand& where) const {
    return r.of->what.memory.at({where.offset, self, where.buffer});
  }
  void wake(run& r) {
    if (std::exchange(r.ready, true)) return;
    units_[static_cast<std::size_t>(r.unit)].ready.push_back(&r);
  }
  void note_fill(unit& u, picoseconds now) const {
    u.filled += static_cast<double>(u.buffer.occupied()) * static_cast<double>((now - u.since).count());
    u.since = now;
  }

  offload_config config_;
  std::vector<unit> units_;
  std::unordered_map<std::uint32_t, std::unique_ptr<run>> runs_;  ///< by job and port
  std::unordered_map<std::uint32_t, ended> ended_;                ///< the same: the last operation that has ended there
  static constexpr unsigned index_bits = 27;                      ///< of a key, beside SeqID
  std::bitset<std::size_t{1} << (offload::job_bits + offload::port_bits)> came_early_;
  std::deque<out_ref> active_;  ///< channels that may have a packet to send
  struct turn {
    std::uint64_t pulses;  ///< of the job, when it asked
    std::uint8_t job;
    std::uint64_t asked;
    auto operator<=>(const turn&) const = default;
  };
  std::map<turn, out_ref> want_;                              ///< channels that wait for a counter
  std::array<std::uint64_t, offload::most_jobs> pulses_{};    ///< by job, that were taken
  std::array<std::uint64_t, offload::most_jobs> epoch_of_{};  ///< by job: whose pulses those are
  std::uint64_t served_ = 0;                                  ///< most pulses of a turn that was served
  std::uint64_t asks_ = 0;
  static constexpr std::uint64_t most_ahead = 4;
  std::vector<out_ref> holders_;                                           ///< channels that have counters, in no order
  std::priority_queue<timer, std::vector<timer>, std::greater<>> timers_;  ///< one a channel, at its deadline or before
  std::size_t timed_ = 0;  ///< channels that have one; others are of sequences that have ended
  std::deque<offload_response> responses_;
  std::deque<offload_completion> completions_;
  std::uint64_t serials_ = 0;
  int counters_ = 0, most_counters_ = 0;  ///< in use
  picoseconds counters_moved_{0};         ///< when one has come back, or the first one in want_ has begun to wait
  std::size_t refused_ = 0, early_ = 0, again_ = 0;
};

}  // namespace troupe::actors
