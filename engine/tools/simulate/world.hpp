// SPDX-License-Identifier: Apache-2.0
#pragma once
// The inside of a simulation: what is under way, and who does what when. world.cpp is the clock and the network, world_callers.cpp
// the ranks and their callers, world_membership.cpp the membership, world_splits.cpp what becomes of splits, world_nics.cpp the NICs,
// world_nic_processes.cpp those that perform for several processes, world_checks.cpp what must hold.

#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <unordered_map>

#include "actors/ports/nic/nic_arrivals.hpp"
#include "actors/ports/nic/nic_between.hpp"
#include "actors/ports/nic/nic_hosts.hpp"
#include "actors/ports/nic/nic_words.hpp"
#include "actors/rank/inbox.hpp"
#include "actors/rank/membership_state.hpp"
#include "actors/rank/operation_parts.hpp"
#include "actors/rank/rank_state.hpp"
#include "engine/tools/simulate/dice.hpp"
#include "engine/tools/simulate/nic_processes.hpp"
#include "engine/tools/simulate/simulation.hpp"
#include "engine/tools/simulate/values.hpp"
#include "engine/tools/simulate/virtual_time.hpp"
#include "engine/world/division_state.hpp"
#include "memory/arena.hpp"

namespace troupe::simulate {

using actors::no_deadline;
using actors::steady_time;
/// Around the caller's memory of every operation: so many bytes of this on each side.
inline constexpr std::size_t guard_bytes = 64;
inline constexpr std::byte guard{0xa5};

/// What a message is called in traces, and by mutants.
enum class message_kind : std::uint8_t {
  called,
  differs,
  withdraw,
  fail,
  stopped,
  left,
  quiet,
  perished,
  abort,
  down,
  stuck,
  agreed,
  ask,
  stop,
  failed,
  broken,
  peer_left,
  peer_lost,
  perish,
  bury,
  revoke,
  revoked,
  refuse,
  inquire,
  look_again,
  chunk,
  credit,
  flushed,
  offloaded,
  nic_differs,
  nic_let_go,
  nic_ready,
  nic_packet,
  order,
};
std::string_view name(message_kind which);

/// One rank's part in one operation, from the caller's side.
struct caller_operation {
  const item* it = nullptr;
  rank_t rank = 0;
  rank_t peer = -1;
  bool sending = false;
  std::uint64_t sequence = 0;  ///< of a pair's row, with its tag in the upper bits; or of all collectives
  actors::operation_key key;
  call what;
  actors::plan_ptr plan;
  std::uint64_t salt = 0;

  std::vector<std::byte> memory;  ///< guard, input, guard, output, guard
  std::byte *in = nullptr, *out = nullptr;
  std::vector<std::byte> given, expected;
  bool in_place = false;

  nanoseconds_t called_at = 0, over_at = -1;
  nanoseconds_t expires = -1;  ///< −1: no deadline
  std::vector<errc> told;      ///< of an outcome: the answer
  bool cancelled = false;
  bool refused = false;  ///< its caller got the reason at once
  countdown thrower;
  bool throws = false;
  bool performed_inline = false;
  bool may_be_left = false;  ///< a send that need not be received
  bool over = false;
  failure_ptr why;
  std::shared_ptr<actors::operation_parts> parts;  ///< of a partitioned call
  std::vector<std::byte> complete;                 ///< its input once all is ready; `given` is what is there now
  int arrivals = 0;                                ///< that were looked at
  actors::operation_ptr held;                      ///< by a caller who may cancel it

  std::string title() const;
};

/// One communicator. That of a scenario makes others when its ranks split it: each is a world of its own, with its own states, messages and
/// callers, and has the clock and the result of the first.
class simulation::world final : private actors::membership_outbox {
public:
  world(const scenario& what, plan_source& plans, const simulation_options& options);
  ~world() override;
  simulation_result run();

private:
  class outbox;
  friend class outbox;
  class nic_end;
  class nic_way;
  class peers;

  // -- the clock and the network (world.cpp) --
  struct event {
    nanoseconds_t at;
    std::uint64_t order;
    std::function<void()> what;
  };
  struct later {
    bool operator()(const event& a, const event& b) const { return a.at != b.at ? a.at > b.at : a.order > b.order; }
  };
  /// The NIC of a process, which performs for all communicators.
  struct nic {
    std::unique_ptr<actors::nic_driver> driver;
    std::vector<std::shared_ptr<nic_end>> rung;  ///< ranks' queues with something in them, the last one behind
    nanoseconds_t works_at = -1;                 ///< −1: it sleeps until somebody wakes it
    dice works{0};
    // Where hosts have several processes:
    std::vector<actors::nic_between*> serves;
    actors::doorbell own_bell;
    actors::doorbell* bell = &own_bell;
    std::uint32_t rings = 0;      ///< that were seen
    bool asleep = true;           ///< unless somebody has rung
    nanoseconds_t next_care = 0;  ///< of ranks that wait for memory
    bool ended = false;           ///< its process
    bool stopped = false;         ///< its process, and may go on
    bool lost = false;            ///< to the others: it has ended, or was stopped
    bool amid_turn = false;       ///< it was stopped there
  };
  /// What the communicators of a run share.
  struct course {
    course(plan_source* of, const simulation_options& how) : plans(of), options(how) {}
    plan_source* plans;
    simulation_options options;
    simulation_result result;
    nanoseconds_t now = 0;
    std::uint64_t orders = 0;
    std::priority_queue<event, std::vector<event>, later> events;
    nanoseconds_t last_progress = 0;
    bool over = false;       ///< what ends now is told to nobody
    std::deque<nic> nics{};  ///< by host and process; behind them the NIC process's
    std::uint64_t names_at_nics = 0;
    actors::nic_page nicd{};                          ///< where the NIC process sleeps
    std::vector<std::unique_ptr<nicd_link>> links{};  ///< to it, by process; behind them its own
  };
  /// @param members of a part: their ranks in the whole
  world(const scenario& what, std::shared_ptr<course> in, world* whole, std::string name, std::vector<rank_t> members);
  void begin();
  void at(nanoseconds_t when, std::function<void()> what);
  void post(message_kind kind, int link, int to, bool in_order, std::function<void()> deliver);
  void post_to_rank(message_kind kind, int link, rank_t to, actors::rank_order what);
  void post_to_membership(message_kind kind, int link, std::function<void()> what);
  // Links have the number of the rank that sends; these are no rank's.
  static constexpr int of_membership = -1;  ///< and where messages to it go
  static constexpr int of_process = -2;     ///< what a rank's process says in its place
  static constexpr int of_watchdog = -3;
  static constexpr int of_dma = -4;
  static constexpr int of_caller = of_dma;  ///< that a piece is ready; in order with what the DMA engine says
  static constexpr int of_burial = -5;
  static constexpr int of_monitor = -6;  ///< that a rank has ended
  static constexpr int of_handle = -7;   ///< that its last one is gone
  static constexpr int from_nic = -8;    ///< what a NIC tells a rank
  static constexpr int first_nic = -16;  ///< from one NIC to another: downwards from here
  nanoseconds_t latency(int link, int to);
  void step(event&& next);
  bool complete() const;
  bool idle() const;
  void look();
  void post_look(look_t number, bool nobody_else);
  /// This one, and those that it was split into.
  std::vector<world*> all();
  void deliver_chunk(rank_t from, rank_t to, int channel, chunk&& what);
  void carry_chunk(rank_t from, rank_t to, int channel, const chunk& what, bool twice);
  bool offer_place(rank_t rank, const expected_chunk& what);
  void withdraw_place(rank_t rank, const expected_chunk& what);
  void clear(rank_t from, rank_t to, int channel, const credit& what);
  void news_of_parts(rank_t from, rank_t to, const std::shared_ptr<actors::operation_parts>& whose);
  void let_go(rank_t rank, const actors::operation_key* which, bool callers_too = true);
  void give_back(rank_t from, rank_t to, int channel, const credit& what);
  void send_credit(message_kind kind, rank_t from, rank_t to, int channel, const credit& what);
  void transfer(rank_t rank, const actors::operation_key& which, int channel, int lane, std::byte* target,
                const std::byte* source, std::size_t bytes);
  bool flush(rank_t rank, const actors::operation_key& which);
  void say(const std::string& text);
  template <class Text>
  void tell(const Text& text) {
    if (options_.trace) say(text());
  }
  /// The mutant does its work now. Draws whether it does.
  bool breaks(mutant which, int percent = 40);
  bool drops(message_kind kind);

  // -- the ranks and their callers (world_callers.cpp) --
  struct caller_step {
    enum class kind : std::uint8_t { call, queue, begin, block, wait, wait_all, wait_part } what;
    int item = 0;
    int with = -1;  ///< another item of the same blocking call: a send and a receive
  };
  /// A rank of a part.
  struct place_in_part {
    world* in = nullptr;
    rank_t rank = 0;
  };
  struct member {
    std::unique_ptr<outbox> out;
    std::unique_ptr<actors::rank_state> state;
    std::vector<caller_step> steps;
    std::size_t next_step = 0;
    dice thinks{0};
    bool finished = false, left = false;
    bool waits_after_leave = true;
    std::vector<caller_operation*> blocked_on;
    std::vector<std::vector<caller_operation*>> by_item;
    std::vector<caller_operation*> mine;
    std::map<std::tuple<rank_t, bool, int>, std::uint64_t> pair_numbers;  ///< by peer, direction and tag
    std::uint64_t next_collective = 0;
    caller_operation* inline_op = nullptr;
    std::vector<caller_operation*> inline_pairs;  ///< sends and receives that the caller itself performs
    int inline_looks = 0;
    nanoseconds_t inline_since = 0, blocked_since = 0;
    std::deque<actors::rank_order> inbox;
    bool polled = false;           ///< a look at the board is scheduled
    nanoseconds_t next_tick = -1;  ///< −1: none is scheduled
    std::uint64_t signature = 0;   ///< of what it has done on the board
    nanoseconds_t transfers_end = 0;
    int transfers = 0;
    std::size_t unread = 0;  ///< chunks that were sent to it and that it has not consumed
    bool shell_gone = false, muted = false;
    bool comes = true;                    ///< false: of a part, until its split has ended on that rank
    int open_splits = 0;                  ///< they keep the rank in the communicator
    bool leaves = false;                  ///< when they have ended
    place_in_part awaits;                 ///< its caller waits until that one's program has ended
    std::map<int, place_in_part> places;  ///< by item, what its splits have given it
    std::shared_ptr<nic_end> nic;         ///< null: it has posted nothing yet
    std::byte* written_by_nic = nullptr;  ///< of its callers' memory, by another process's NIC
    bool lost = false;                    ///< with its host, or its process
  };
  /// What ranks that share memory have together.
  struct host {
    explicit host(int ranks) : board(ranks) {}
    slot_board board;
    actors::nic_arrivals at_nic;
    std::shared_ptr<actors::nic_hosts> across;  ///< the others, as this one's NIC knows them; null: there are none
    /// What the ranks of several processes share with the NIC that performs for all, by process, behind them the NIC process's; empty: they live in one.
    std::vector<std::unique_ptr<actors::nic_between>> between;
    bool lost = false;
  };
  void write_programs();
  void write_program(rank_t rank);
  void act(rank_t rank);
  bool blocked(member& m) const;
  void go_on(rank_t rank);
  void finish(rank_t rank);
  void leave(rank_t rank);
  void leave_all();
  int index_of(int id) const;
  void say_ending(caller_operation& o);
  const disturbance* disturbed(disturbance::kind what, rank_t rank, int item) const;
  void call_item(rank_t rank, const caller_step& step);
  void make_calls(rank_t rank, int index, std::vector<caller_operation*>& fresh);
  bool may_join(rank_t rank, const caller_step& before, const item& it) const;
  caller_operation& make_collective(rank_t rank, const item& it, int index);
  caller_operation& make_pair(rank_t rank, const item& it, int index, bool sending);
  void lay_out(caller_operation& o);
  actors::operation_ptr make_operation(caller_operation& o);
  bool begin_inline(caller_operation& o);
  void adopt(rank_t rank, const std::string& problem);
  bool begin_pairs_inline(rank_t rank, const std::vector<caller_operation*>& fresh);
  void poll_pairs(rank_t rank);
  void adopt_pairs(rank_t rank);
  void poll_pairs_soon(rank_t rank);
  bool caller_performs(const member& m) const { return m.inline_op != nullptr || !m.inline_pairs.empty(); }
  void leave_inline(rank_t rank);
  void turn(rank_t rank, const actors::rank_order& what);
  void after(rank_t rank);
  void poll(rank_t rank);
  void poll_inline(rank_t rank);
  void poll_soon(rank_t rank);
  bool slot_port_changed(rank_t rank);
  void tick(rank_t rank);
  void tick_at(rank_t rank, nanoseconds_t when);
  bool on_board(const member& m) const;
  void disturb_later(caller_operation& o);
  void partition(caller_operation& o, actors::operation& op);
  void announce(caller_operation& o, int piece);
  void take_arrivals(rank_t rank);
  void kill(rank_t rank);
  void abort();
  bool all_wait() const;
  member& at_rank(rank_t rank) { return members_[static_cast<std::size_t>(rank)]; }
  const member& at_rank(rank_t rank) const { return members_[static_cast<std::size_t>(rank)]; }
  host& host_of(rank_t rank) { return hosts_[static_cast<std::size_t>(what_.host_of(rank))]; }
  slot_board& board_of(rank_t rank) { return host_of(rank).board; }
  rank_t place_on_board(rank_t rank) const { return what_.of_host > 0 ? rank % what_.of_host : rank; }

  // -- the membership (world_membership.cpp) --
  void agreed(epoch_t epoch, const counts_ptr& counts) override;
  void ask(epoch_t epoch) override;
  void stop(epoch_t epoch) override;
  void failed(epoch_t epoch, const failure_ptr& why) override;
  void broken(const failure_ptr& why) override;
  void peer_left(rank_t rank, const sends_ptr& sent) override;
  void peer_lost(rank_t rank) override;
  void stuck(look_t look, bool nobody_else) override;
  void flush(rank_t rank) override;
  void bury(rank_t rank, const failure_ptr& why) override;
  void dissolve() override;
  void tell_all(message_kind kind, const std::function<actors::rank_order(rank_t)>& what);
  void untold(const std::string& why) override;
  void rank_stopped(rank_t rank, epoch_t epoch, std::vector<std::string> waits, presence came);

  void lose_connection(rank_t from, rank_t to);
  void lose_host(int which);
  void lose_rank(rank_t rank, const failure_ptr& why);
  bool is_cut(int from, int to) const;
  bool in_tiers(rank_t rank, epoch_t epoch) const;
  bool is_at_stage(rank_t rank) const;
  std::uint64_t own_fingerprint(const caller_operation& mine, epoch_t epoch) const;

  // -- NICs (world_nics.cpp) --
  void add_nics();
  void post_to_nic(rank_t rank, actors::nic_posting&& what);
  void recall_from_nic(rank_t rank, epoch_t epoch);
  void ring_nic(rank_t rank);
  bool waits_for_nic(const member& m) const;
  void wake_nic(int which, nanoseconds_t when);
  void nic_works(int which);
  void post_between_nics(message_kind kind, int from, int to, std::function<void()> deliver);
  actors::nic_hosts& across(int which) { return *hosts_[static_cast<std::size_t>(which)].across; }
  bool with_nic(rank_t rank, epoch_t epoch) const { return with_nic_.contains({rank, epoch}); }
  void check_nics();
  // And of hosts with several processes (world_nic_processes.cpp).
  int process_of(rank_t rank) const { return process_of_[static_cast<std::size_t>(rank)]; }
  nic& nic_at(int which) { return course_->nics[static_cast<std::size_t>(which)]; }
  /// In course::nics.
  int nic_of(int host, int process) const { return host * what_.nic.processes + process; }
  int nic_of_rank(rank_t rank) const { return nic_of(what_.host_of(rank), process_of(rank)); }
  int home_nic(int host) const;
  actors::nic_between* way_to_home(rank_t rank) const;
  actors::nic_arrivals& arrivals_at_nic(int host);
  void add_between(int host);
  void hear_bells();
  bool serve_processes(nic& one);
  void close_ended(nic& one);
  void end_nicd();
  void lose_process();
  bool lost_in_posting(rank_t rank, process_loss::kind where);
  void lose_ranks_of_process(int host, int process, const failure_ptr& why);
  void hear_of_end(int host, int process);
  void end_at_nicd(int host, int process);
  void end_process(int which);
  void go_on_stopped(int which);
  void end_views();
  int nic_that_is_lost() const { return nic_of(what_.nic.loses.host, what_.nic.loses.process); }
  bool nic_ended(int which) const { return course_->nics[static_cast<std::size_t>(which)].ended; }
  world& root() { return whole_ != nullptr ? whole_->root() : *this; }
  steady_time clock() const { return steady_time{} + std::chrono::hours{1} + std::chrono::nanoseconds{now_}; }

  // -- splits (world_splits.cpp) --
  failure_ptr conclude_split(caller_operation& o, epoch_t which, failure_ptr why);
  void take_place(caller_operation& o, epoch_t which);
  world* make_part(const caller_operation& o, epoch_t which, std::vector<rank_t> members);
  void enter(rank_t rank);
  void never_comes(rank_t rank);
  void gives_up(rank_t rank);
  void split_over(rank_t rank);
  void program_ended(const world* part, rank_t rank);
  call said(const caller_operation& o);

  // -- what must hold (world_checks.cpp) --
  struct chunk_name {
    rank_t from, to;
    epoch_t epoch;
    std::uint32_t lane, sequence;
    bool operator==(const chunk_name&) const = default;
  };
  struct chunk_name_hash {
    std::size_t operator()(const chunk_name& n) const {
      return static_cast<std::size_t>(mix(std::uint64_t{n.epoch} << 32 ^ std::uint64_t{n.lane} << 24 ^
                                          std::uint64_t{n.sequence} << 12 ^ static_cast<std::uint64_t>(n.from) << 6 ^
                                          static_cast<std::uint64_t>(n.to)));
    }
  };
  struct sent_chunk {
    caller_operation* of = nullptr;
    bool consumed = false, returned = false, twice = false;
  };
  void fault(const std::string& text);
  void ended(caller_operation& o, failure_ptr why);
  void check_buffers(const caller_operation& o);
  void check_arrival(const caller_operation& o, int piece);
  void check_members(const caller_operation& o, const std::vector<rank_t>& members);
  void check_split_named(const caller_operation& o);
  void check_reason(const caller_operation& o);
  void check_missing(const caller_operation& o);
  void check_named(const caller_operation& o);
  bool came_before_stop(const caller_operation& o, rank_t rank);
  void check_sent(rank_t from, rank_t to, const chunk& what);
  void check_consumed(rank_t by, rank_t from, const credit& what);
  void check_poison() const;
  void check_touch(const std::byte* at, std::size_t bytes, const char* what);
  /// In the memory of a call, whether it is over or not.
  bool is_callers(const std::byte* at) const;
  void check_bounds(rank_t rank);
  std::size_t second_copies(rank_t rank) const;
  void check_end();
  void check_rest();
  void check_equal(std::uint64_t sequence);
  void check_pairs();
  void check_hang();
  std::string who_waits() const;
  caller_operation* under_way(rank_t rank, const actors::operation_key& key) const;
  /// The parts in a collective, by rank; null: not called.
  std::vector<caller_operation*>& parts_of(std::uint64_t sequence);
  bool differ(const std::vector<caller_operation*>& parts) const;
  static bool may_run_ahead(const caller_operation& o) { return o.plan && o.plan->may_run_ahead(); }
  void check_outcome(const std::vector<caller_operation*>& parts);
  bool of_communicator(const caller_operation& o) const;
  bool differed_ahead() const;
  bool heard_later(const caller_operation& p);

  scenario what_;
  std::shared_ptr<course> course_;
  plan_source* const plans_;
  const simulation_options& options_;
  simulation_result& result_;
  nanoseconds_t& now_;
  std::uint64_t& orders_;
  nanoseconds_t& last_progress_;
  world* const whole_;  ///< null: it was no split that made it
  const std::string name_;
  const std::vector<rank_t> in_whole_;  ///< of a part: its ranks there
  std::vector<int> process_of_;         ///< by rank; of its host
  std::size_t in_flight_ = 0;
  std::map<std::pair<int, int>, std::pair<nanoseconds_t, std::uint64_t>>
      links_;  ///< last delivery and number of messages
  look_t looks_ = 0;
  dice breaking_;

  arena memory_{std::size_t{1} << 20};
  actors::shared_spaces spaces_;
  std::deque<host> hosts_;
  std::deque<caller_operation> operations_;  ///< stable addresses; outlive the ranks
  std::unordered_map<const actors::operation*, caller_operation*> known_;
  std::vector<member> members_;

  actors::membership_state membership_;
  std::size_t finished_ = 0;

  std::map<std::uint64_t, std::vector<caller_operation*>> collectives_;
  std::map<std::tuple<rank_t, rank_t, std::uint64_t>, std::pair<caller_operation*, caller_operation*>> pairs_;
  std::unordered_map<chunk_name, sent_chunk, chunk_name_hash> sent_;
  std::unordered_map<chunk_name, chunk, chunk_name_hash> parked_;  ///< announced
  struct place {
    std::byte* at;
    std::size_t bytes;
    std::uint64_t fingerprint;
    bool filled = false;
  };
  std::unordered_map<chunk_name, place, chunk_name_hash> places_;
  std::map<std::tuple<rank_t, rank_t, epoch_t, std::uint32_t>, int> outstanding_;
  std::uint64_t news_ = 0;                                      ///< of partitioned operations, so far
  std::set<epoch_t> lost_in_;                                   ///< collectives that a chunk was lost of
  std::set<std::tuple<rank_t, rank_t, epoch_t>> lost_between_;  ///< and messages
  std::map<std::pair<epoch_t, rank_t>, nanoseconds_t> stop_answered_;
  std::map<epoch_t, nanoseconds_t> stop_begun_;
  std::map<const failure*, nanoseconds_t> said_at_;  ///< when a rank first told its peer so
  std::string untold_;                               ///< told when all had left
  bool aborted_ = false, killed_ = false;
  bool lost_ranks_ = false;  ///< with their host, or process
  failure_ptr lost_with_;    ///< that one of them was lost
  std::uint64_t name_at_nics_ = 0;
  std::set<std::pair<rank_t, epoch_t>> with_nic_;  ///< posted, and not given back
  std::map<epoch_t, std::uint64_t> posted_first_;  ///< with a mutant: the fingerprint of the first posting
  std::vector<std::unique_ptr<world>> parts_;
  division_state<world*> divisions_;
};

}  // namespace troupe::simulate
