// SPDX-License-Identifier: Apache-2.0
#pragma once
// One rank in virtual time: when it begins, what its steps cost, when it has finished. The steps themselves are performed by
// `state_rank` (the states of a real run) and `player` (only their times).
//
// Owner: the thread that runs the scheduler. Nobody but the clock sends to a rank, so it is told by calls (virtual_scheduler.hpp). What may
// arrive, in any order after start:
//   start              its rank begins (once)
//   arrival(message)   a message has come to one of its lanes
//   work(lane)         the work of the lane's present step has ended; only now the step consumes and sends
//   access(lane)       an access of the lane's present step to other ranks' memory has ended
//   compute(block)     a block of the computation beside the collective has ended
//   loss               its process ends, or stops: it does nothing from then on (only state_rank)
//   word(number)       what another one has said, after a loss (only state_rank)
// A word that takes no time (credits, a state's words to the membership) is no event: its receiver hears of it before the next event, in
// the order in which it was said (virtual_communicator::settle).

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/virtual/traffic.hpp"
#include "actors/virtual/virtual_parts.hpp"
#include "memory/large_pages.hpp"
#include "protocols/perform/performer.hpp"
#include "protocols/program/lazy_program.hpp"

namespace troupe::actors {

class recorder;

/// When `bytes` have passed a rank's DMA engine, if they come to it now; no_element: at once.
std::int64_t time_of_transfer(traffic& ways, const hardware& on, element_index engine, std::uint64_t bytes);

/// What the ranks of a run share.
class virtual_communicator {
public:
  /// @param part of the traffic, with these ranks
  virtual_communicator(const lazy_sizes& sizes, const hardware& on, const virtual_options& options, traffic& ways,
                       std::uint32_t part, recorder* record);
  virtual ~virtual_communicator() = default;
  virtual_communicator(const virtual_communicator&) = delete;

  /// Its pieces get ready one by one. @param cut that it is performed with @pre before its ranks begin; the score is partitioned, and performed
  /// by players
  void take_parts(const cutting& cut, std::function<void(rank_t, int piece)> on_arrived);
  /// A piece of the rank's input is ready. @pre take_parts(); once for each
  void make_ready(rank_t rank, int piece);

  /// Delivers what takes no time, until nothing is left. Between two events.
  virtual void settle() = 0;

  run_memory memory;  ///< of what the ranks are made of
  const score& notes;
  const hardware& on;
  const virtual_options& options;
  traffic& ways;
  const std::uint32_t part;
  const std::size_t first_rank;  ///< of traffic::ranks
  recorder* record;
  const int lanes, channels;
  const call_shape& shape;
  bool free_steps;         ///< a rank's own work takes no time at all
  bool messages_are_free;  ///< the same, and nothing is recorded: a step that sends or receives is begun and done

  struct waiting_rank {
    rank_t rank;
    std::int64_t since;
  };
  std::vector<std::vector<waiting_rank>> barriers;  ///< hardware syncs: who waits, by channel × lanes + lane
  /// When the steps of switches' lanes have ended, by rank × channels × lanes + lane; empty where no switch reduces.
  std::vector<std::vector<std::int64_t>> switch_steps;
  std::optional<virtual_parts> parts;  ///< see take_parts()
  std::uint64_t steps = 0;
  std::int64_t waited_chunk = 0, waited_credit = 0;
  std::vector<std::int64_t> finished;  ///< by rank; −1: not yet
  int unfinished = 0;
  std::function<void(rank_t rank, std::int64_t end)> on_finished;  ///< may be empty
  std::exception_ptr failure;                                      ///< the first; ends the run
};

class virtual_rank : public rank_events {
public:
  virtual_rank(virtual_communicator& with, rank_t rank);
  virtual ~virtual_rank() = default;
  virtual_rank(const virtual_rank&) = delete;
  virtual_rank& operator=(const virtual_rank&) = delete;

  void handle(start_event) final;
  void handle(arrival_event e) final;
  void handle(work_event e) final;
  void handle(access_event e) final;
  void handle(compute_event e) final;
  void handle(loss_event) final;
  void handle(word_event e) final;

  rank_address address() {
    return {*this, static_cast<std::uint32_t>(with_.first_rank + static_cast<std::size_t>(rank_))};
  }

  /// The resources that its lanes wait for. For verdicts; the rank cannot go on afterwards.
  virtual std::vector<std::string> waits() = 0;

protected:
  /// Its collective begins.
  virtual void perform() = 0;
  /// A message of this connection is there; it may have overtaken earlier ones.
  virtual void arrived(std::uint32_t connection, std::uint32_t message) = 0;
  /// The step that this lane is at may consume and send.
  virtual void work_ended(int channel, int lane) = 0;

  /// A lane begins a step, which lacks nothing. True: its work takes no time. False: work_ended() will be called.
  bool begin_work(int channel, int lane, const brief_instruction& i, lane_wait::reason lacked) {
    lane_info& l = at(channel, lane);
    const std::int64_t now = with_.ways.time().now();
    ++with_.steps;
    const bool is_message = receives(i.kind) || sends(i.kind);
    if (!with_.messages_are_free || !is_message) return begin_other_work(l, channel, lane, i, lacked);
    note_wait(l, lacked, now);
    l.since = l.work_end = now;
    l.stepped = true;
    l.at_barrier = false;
    --unfinished_;
    return true;
  }
  /// Told to a rank where one was lost (word_event).
  virtual void on_word(std::uint32_t /*word*/) {}
  /// The others have to hear of it. @pre lost()
  virtual void tell_loss() {}
  bool lost() const { return lost_; }
  /// Its operation has ended before its steps have: with an error, or with its process.
  void end_early();
  /// How many steps all its lanes have. @pre before the first of them
  void has_steps(std::uint64_t count) { unfinished_ = count; }
  /// After every transition that may have performed steps.
  void finish_if_done() {
    if (performing_ && unfinished_ == 0 && !computing_) finish();
  }
  std::uint32_t incoming(int channel, int lane, rank_t from) {
    lane_info& l = at(channel, lane);
    if (l.in.peer != from) l.in = {from, with_.ways.incoming(with_.part, rank_, channel, lane, from, l.in_hint)};
    return l.in.connection;
  }
  std::uint32_t outgoing(int channel, int lane, rank_t to) {
    lane_info& l = at(channel, lane);
    if (l.out.peer != to) l.out = {to, with_.ways.outgoing(with_.part, rank_, channel, lane, to, l.out_hint)};
    return l.out.connection;
  }

  /// It will be turned soon.
  void expect_lane(std::int32_t lane) const { fetch_lines(&lanes_[static_cast<std::size_t>(lane)], 2); }

  virtual_communicator& with_;
  const rank_t rank_;

private:
  /// Looked up last: a step asks several times, and mostly the next one asks for the same.
  struct known_connection {
    rank_t peer = -1;
    std::uint32_t connection = no_connection;
  };
  struct lane_info {
    std::int64_t since = 0;     ///< end of the lane's last step
    std::int64_t work_end = 0;  ///< of the rank's own part of a step that accesses others' memory
    known_connection in, out;
    std::uint32_t in_hint = 0, out_hint = 0;
    int accesses = 0;  ///< under way
    bool stepped = false, at_barrier = false;
  };

  lane_info& at(int channel, int lane) { return lanes_[static_cast<std::size_t>(channel * with_.lanes + lane)]; }
  const rank_address& address_of(rank_t rank) const {
    return with_.ways.ranks[with_.first_rank + static_cast<std::size_t>(rank)];
  }
  void on_start();
  void on_arrival(std::uint32_t message);
  void on_work(std::int32_t lane);
  void on_access(std::int32_t lane);
  void on_compute(std::int32_t block);
  void on_loss();
  template <class Handler>
  void guarded(Handler handler) noexcept;
  void begin();
  void finish();
  void compute_block(std::int32_t block);
  bool begin_other_work(lane_info& l, int channel, int lane, const brief_instruction& i, lane_wait::reason lacked);
  /// What the lane has waited for, of all lanes together. A machine that is slow enough, with lanes enough, waits longer than can be counted.
  void note_wait(const lane_info& l, lane_wait::reason lacked, std::int64_t now) {
    if (now <= l.since) return;
    std::int64_t* total = nullptr;
    if (lacked == lane_wait::reason::chunk) total = &with_.waited_chunk;
    else if (lacked == lane_wait::reason::credit) total = &with_.waited_credit;
    if (total != nullptr && __builtin_add_overflow(*total, now - l.since, total))
      *total = std::numeric_limits<std::int64_t>::max();
  }
  void note_begin(lane_info& l, std::int32_t lane, const brief_instruction& i, lane_wait::reason lacked,
                  std::int64_t now, std::int64_t end);
  bool reach_barrier(std::int32_t lane);
  std::int64_t end_of_work(const brief_instruction& i, int lane, std::int64_t now);
  bool access_shared(const brief_instruction& i, std::int32_t lane);
  bool awaits_piece(const brief_instruction& i, std::int32_t lane);
  void note_performed(std::int32_t lane);
  void access_segment(const place& at, std::uint64_t bytes, bool writes, std::int32_t lane);
  bool exchange_with_switch(const brief_instruction& i, std::int32_t lane);
  std::vector<std::int64_t>& switch_steps_of(std::int32_t lane) {
    return with_.switch_steps[static_cast<std::size_t>(rank_) * lanes_.size() + static_cast<std::size_t>(lane)];
  }
  void note_switch_step(std::int32_t lane);
  std::int64_t end_of_switch_work(std::int32_t which, const brief_instruction& i, std::int64_t now);

  std::span<lane_info> lanes_;    ///< by channel × lanes + lane
  std::uint64_t unfinished_ = 0;  ///< steps
  bool performing_ = false, computing_ = false, lost_ = false;
};

}  // namespace troupe::actors
