// SPDX-License-Identifier: Apache-2.0
#pragma once
// One run of a score on symbols. Lanes are run in any order (each until it is stuck): the outcome is the same for all orders.
//
// The known order of events (vector clocks, one component a lane):
//   - the steps of a lane follow each other; a step comes after the step named by `after`;
//   - a receive comes after the send of its message;
//   - a send comes after the receive that gave its credit back: receive i before send i + credits of a channel;
//   - a step that receives and sends needs its message and its credit before it begins (so it can get stuck for either),
//     but what it receives may be read and written before its credit is known: only its send comes after the credit;
//   - input of a piece is written by its announcement (partitioned scores), which is a lane of its own with that one event;
//   - the steps of a fan come after what is before the fan, in any order among themselves.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "memory/flat_index.hpp"
#include "memory/large_pages.hpp"
#include "protocols/verify/reduction_forest.hpp"
#include "protocols/verify/verifier.hpp"
#include "protocols/verify/verifier_memory.hpp"
#include "protocols/verify/verifier_structure.hpp"

namespace troupe::verifying {

/// Clocks that lanes, messages, credits and awaited steps share: one that has several users is not written. Recycled: what is live at a time
/// is far less than what is made, and a clock of a score with thousands of lanes is large. Clocks do not move, and lie side by side.
class clock_pool {
public:
  using handle = std::int32_t;
  explicit clock_pool(std::size_t lanes)
      : lanes_(lanes), memory_(std::min(most_at_once, 8 * lanes * lanes * sizeof(ticks))) {}
  handle zero();
  handle keep(clock_view clock);
  clock_view operator[](handle h) const { return {clocks_[static_cast<std::size_t>(h)], lanes_}; }
  /// The caller's own, to write to: `h`, if nobody else uses it, else a copy in its place.
  std::span<ticks> own(handle& h);
  /// What `h` and `other` know together becomes the caller's own.
  std::span<ticks> join(handle& h, handle other);
  /// One more needs it …
  handle share(handle h) {
    ++users_[static_cast<std::size_t>(h)];
    return h;
  }
  /// … or one less.
  void release(handle h) {
    if (--users_[static_cast<std::size_t>(h)] == 0) free_.push_back(h);
  }

private:
  handle take();
  std::span<ticks> at(handle h) { return {clocks_[static_cast<std::size_t>(h)], lanes_}; }
  bool is_shared(handle h) const { return users_[static_cast<std::size_t>(h)] > 1; }
  /// What clocks begin with; a page of 2 MiB is given in a tenth of the time of as many small ones.
  static constexpr std::size_t most_at_once = std::size_t{2} << 20;
  std::size_t lanes_;
  run_memory memory_;
  std::vector<ticks*> clocks_;  ///< in memory_
  std::vector<std::int32_t> users_;
  std::vector<handle> free_;
};

void join(std::span<ticks> into, clock_view from);

/// A number for each key below `keys`, at first −1: a table where that is small, else an index.
class numbering {
public:
  numbering() = default;
  explicit numbering(std::size_t keys) : table_(keys <= most_in_table ? keys : 0, -1) {}
  std::int32_t& at(std::size_t key) { return table_.empty() ? index_.try_emplace(key, -1).first : table_[key]; }

private:
  static constexpr std::size_t most_in_table = std::size_t{1} << 20;
  std::vector<std::int32_t> table_;
  flat_index index_;
};

class symbolic_run {
public:
  /// @pre check_structure found nothing.
  symbolic_run(const score& s, const performing_limits& limits);

  /// Runs to the end or to the first fault.
  std::optional<fault> run();

  const cell_table& cells() const { return table_; }
  const cell_memory& memory() const { return memory_; }
  std::shared_ptr<reduction_forest> forest() const { return forest_; }
  /// See verdict.
  std::vector<step_marks> completing() const;
  std::size_t steps() const { return steps_done_; }
  std::size_t messages() const { return messages_sent_; }

private:
  using node_id = reduction_forest::node_id;
  struct message {
    clock_pool::handle clock = -1;  ///< what the sender knew of others …
    ticks time = 0;                 ///< … and its own time
    std::int32_t sender_step = -1;
    std::int32_t slice = 0;
    std::size_t cell = 0;  ///< first named cell: its extents, and unless `slot` its values
    std::int32_t count = 0;
    rank_t owner = self;        ///< of the cells
    std::vector<node_id> slot;  ///< values of recv_reduce_send; its memory stays for the next message
    std::int32_t next = -1;     ///< in messages_: of the channel, or free
  };
  struct channel {
    std::int32_t sender;      ///< lanes, numbered over all ranks
    std::int32_t receiver;    ///< −1: the receiving rank has no such lane
    std::int32_t first = -1;  ///< message under way, in messages_; −1: none
    std::int32_t last = -1;
    std::int32_t under_way = 0;
    std::int32_t first_credit = -1;  ///< that came back, in credits_; −1: none
    std::int32_t last_credit = -1;
    std::int32_t sent = 0;
    std::int32_t to_send = 0;  ///< in the whole run
    std::int32_t credits_given = 0;
  };
  struct credit {
    clock_pool::handle clock = -1;  ///< what the receiver knew of others …
    ticks time = 0;                 ///< … and its own time
    std::int32_t next = -1;
  };
  /// The last access of a lane to another rank's buffers, and what it was.
  struct foreign_access {
    std::uint64_t key;  ///< owner and lane
    ticks time;
    std::int32_t lane, step, slice;
    place what;            ///< none: …
    std::int32_t sent_by;  ///< … the cells that this lane's …
    std::int32_t sent_at;  ///< … step sent
  };
  /// A step that steps of other lanes wait for, in one slice.
  struct awaited {
    clock_pool::handle clock = -1;
    std::int32_t lane = -1;    ///< whose step it is, …
    ticks time = 0;            ///< … and when
    std::int32_t waiting = 0;  ///< steps that have still to read the clock
    bool performed = false;
  };
  /// What a step is connected with: channels, awaited steps; −1: none.
  struct wires {
    std::int32_t in = -1, out = -1, after = -1, publishes = -1;
  };
  struct player {
    rank_t rank;
    int lane;
    std::int32_t number;
    const troupe::lane* steps;
    std::size_t first_wire = 0;     ///< of its steps, in wires_
    clock_pool::handle clock = -1;  ///< what it knows of others, from the first step to the last
    std::vector<bool> combined,
        completes;  ///< by step, of reductions: has combined; and brought all contributions together
    std::size_t at = 0;
    int slice = 0;
    ticks time = 0;
    bool queued = false;
    bool done() const { return at == steps->size(); }
    const step& now() const { return (*steps)[at]; }
  };

  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }
  player& player_at(std::int32_t lane) { return players_[index(lane)]; }
  const player& player_at(std::int32_t lane) const { return players_[index(lane)]; }
  channel& channel_at(std::int32_t c) { return channels_[index(c)]; }
  const channel& channel_at(std::int32_t c) const { return channels_[index(c)]; }

  // verifier_run.cpp: the order of things
  void list_players();
  void wire(player& p);
  void fill_inputs();
  void make_room();
  std::int32_t lane_number(rank_t rank, int lane) const;
  std::int32_t channel_number(rank_t from, rank_t to, int lane);
  std::int32_t publish(player& p, std::int32_t step);
  bool ready(const player& me) const;
  wires& wires_of(const player& p, std::size_t step) { return wires_[p.first_wire + step]; }
  const wires& wired(const player& me) const { return wires_[me.first_wire + me.at]; }  ///< its present step
  bool lacks_message(const player& me) const {
    const std::int32_t in = wired(me).in;
    return in >= 0 && channel_at(in).under_way == 0;
  }
  bool credit_lacks(const channel& c) const { return c.under_way >= limits_.credits; }
  void begin_step(player& me);
  bool perform(player& me);
  void begin_fan(player& me);
  void finish_step(player& me);
  void wake(std::int32_t lane);
  void run_awake();
  awaited& awaited_at(std::int32_t which, int slice) {
    return awaited_[index(which) * index(limits_.slices) + index(slice)];
  }
  bool still_awaits(const player& me) const;
  message& push(channel& c);
  std::int32_t pop(channel& c);
  void learn(player& me, clock_pool::handle from, std::int32_t lane, ticks time);
  void join_end(rank_t rank, const player& me);
  bool names_foreign_memory() const;
  /// The lane of that announcement, behind all others.
  std::int32_t announcement(rank_t rank, int piece) const {
    return static_cast<std::int32_t>(players_.size()) + rank * score_.partitions + piece;
  }
  bool independent(const player& me, const place& target);
  void give_credit(player& me, channel& c);
  void take_credit(player& me, channel& c);
  std::optional<fault> at_end();
  fault stuck_fault(const player& first) const;
  std::string waits_for(const player& me, std::int32_t& next) const;
  std::optional<fault> unread_messages() const;
  std::optional<fault> operation_ends();
  std::optional<fault> barrier_holds() const;

  // verifier_access.cpp: what a step does to the cells
  bool receive(player& me, message& m);
  bool load(player& me, const place& from, std::vector<node_id>& into);
  bool combine(const player& me, const std::vector<node_id>& left, const std::vector<node_id>& right,
               const place& named);
  void note_completion(player& me);
  bool work(player& me);
  bool store(player& me);
  bool overwrites_lent(const player& me, std::size_t location, std::int32_t i);
  void send(player& me);
  bool check_foreign(const player& me, const place& at);
  void note_foreign(const player& me, rank_t owner, const place& what, std::int32_t sent_by = -1,
                    std::int32_t sent_at = -1);
  fault foreign_fault(rank_t owner, const foreign_access& access) const;

  // words
  bool wrong(const player& me, std::string what);
  std::string step_name(epoch e) const;
  std::string unordered(epoch other, bool reads = false) const;
  std::string cell_name(const place& at, std::int32_t i) const;
  std::string value_name(node_id n) const;

  /// But for its own time, which nobody asks it for: ordered() knows.
  clock_view known(const player& me) const { return in_fan_ ? clock_view{fan_clock_} : pool_[me.clock]; }
  epoch now(const player& me) const { return {me.number, in_fan_ ? fan_time_ : me.time}; }

  const score& score_;
  performing_limits limits_;
  cell_table table_;
  cell_memory memory_;
  std::shared_ptr<reduction_forest> forest_;
  std::vector<player> players_;
  large_vector<wires> wires_;               ///< by player and step
  std::vector<std::int32_t> first_player_;  ///< by rank, and one more
  std::vector<channel> channels_;
  std::vector<message> messages_;  ///< in use and free; channels hardly have more than one at a time
  std::int32_t free_message_ = -1;
  std::vector<credit> credits_;  ///< the same of credits
  std::int32_t free_credit_ = -1;
  numbering channel_numbers_;     ///< by sender, receiver and lane
  std::size_t most_lanes_ = 0;    ///< of a rank
  std::vector<awaited> awaited_;  ///< by awaited step and slice
  clock_pool pool_;
  std::vector<std::vector<ticks>>
      ends_;  ///< by rank: what is known when its lanes are through and its credits are back
  std::vector<std::int32_t> queue_;
  bool ends_matter_;  ///< somebody must not end before others have come, or are through with its buffers
  large_vector<foreign_access> foreign_;
  numbering foreign_numbers_;  ///< in foreign_, by key

  // the step under way
  std::vector<node_id> incoming_, local_, result_;
  bool in_fan_ = false;                                             ///< the step under way is in a fan
  std::unordered_map<std::int32_t, std::vector<ticks>> fan_bases_;  ///< by lane: what was known before the fan
  std::vector<ticks> fan_clock_;                                    ///< that and the message of this member
  ticks fan_time_ = 0;                                              ///< accesses of members count as the last member's

  bool completes_in_part_ = false;  ///< a step brings all contributions together for some of its cells or slices only
  std::optional<fault> found_;
  std::size_t steps_done_ = 0;
  std::size_t messages_sent_ = 0;
};

}  // namespace troupe::verifying
