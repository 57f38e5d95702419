// SPDX-License-Identifier: Apache-2.0
#pragma once
// What job.cpp and its neighbours share: a job's processes, the communicators that each has, and the callers of its ranks.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "actors/ports/link/early_frames.hpp"
#include "actors/ports/link/given_up.hpp"
#include "actors/ports/link/presence_state.hpp"
#include "actors/ports/link/shrink_agreements.hpp"
#include "actors/rank/membership_state.hpp"
#include "actors/rank/rank_state.hpp"
#include "engine/tools/simulate/dice.hpp"
#include "engine/tools/simulate/job.hpp"
#include "engine/tools/simulate/virtual_time.hpp"
#include "engine/world/division_state.hpp"
#include "engine/world/shrink_rounds.hpp"

namespace troupe::simulate {

using namespace actors;

/// One job. Everything happens in one thread, event after event.
class job_world {
public:
  job_world(std::uint64_t seed, plan_source& plans, const job_options& options);
  ~job_world();
  job_result run();

private:
  using time_ns = nanoseconds_t;
  struct process;
  struct member;
  struct local_rank;
  struct caller;
  struct operation_part;
  class presence_voice;
  class agreements_voice;
  class rank_voice;
  class home_voice;
  using to_process = std::function<void(process&)>;
  using to_member = std::function<void(member&)>;
  using rank_order = std::function<void(rank_state&, rank_outbox&)>;

  /// The connection that one process sends on to another.
  struct connection {
    bool used = false, writes = true, reads = true;  ///< its ends are open
    bool heard = false;                              ///< the reader knows of it
    bool cut = false;                                ///< nothing gets through, and nobody is told
    bool reset = false;                              ///< what is under way is lost
    bool doomed = false;                             ///< its writer will notice that
    time_ns last = 0;
    std::uint64_t frames = 0;
  };
  connection& line(int from, int to) {
    return ways_[static_cast<std::size_t>(from) * static_cast<std::size_t>(processes_) + static_cast<std::size_t>(to)];
  }
  process& at_number(std::uint32_t number) { return *all_[number]; }

  // -- job_network.cpp: clock, connections, faults --
  void at(time_ns when, std::function<void()> what);
  steady_time clock() const { return steady_time{} + std::chrono::hours{1} + std::chrono::nanoseconds{now_}; }
  time_ns latency(int from, int to);
  void send(int from, int to, to_process frame);
  void at_process(int p, to_process what);
  void close_both(int me, int other);
  void writer_ends(int from, int to);
  void reader_ends(int from, int to);
  void tick(int p);
  void plan_faults();
  void plan_fault(dice& d, time_ns when);
  void kill(int p);
  void stop(int p, time_ns until);
  void reset(int from, int to);

  // -- job_members.cpp: communicators, as job_links and communicator_actors --
  void send_to(const member& of, std::uint32_t process, to_member frame);
  void to_others(const member& of, const to_process& frame);
  member* find_or_keep(process& p, std::uint32_t from, communicator_id of, const to_member& frame);
  void enter(member& what);
  void end(member& what);
  void turn(member& m, local_rank& s, const rank_order& what);
  void to_rank(member& m, rank_t rank, const rank_order& what);
  void to_ranks(member& m, const rank_order& what);
  void to_membership(member& m, const home_word& word);
  void apply(member& m, const ranks_word& what);
  void abort(member& m, const failure_ptr& why);
  void all_left_if_so(member& m);
  void lost(process& p, std::uint32_t process, const std::string& how);
  void process_lost(member& m, std::uint32_t process, const std::string& how);
  void never_comes(member& m, rank_t in_whole);
  void leave_if_done(process& p);

  // -- job_calls.cpp: what callers call --
  void go_on(caller& c);
  void call_next(caller& c);
  bool call_collective(caller& c, dice& d);
  bool call_pair(caller& c, dice& d);
  bool call_split(caller& c, dice& d);
  operation_ptr planned(const call& what, dice& d, int ranks);
  void submit(caller& c, operation_ptr op, operation_part& what);
  void leave(caller& c);

  // -- job_divisions.cpp: splits, shrinks and what comes of them, as engine/api and engine/world --
  failure_ptr conclude_split(caller& c, member& whole, rank_t rank, epoch_t which, failure_ptr why,
                             std::span<const std::int32_t> all, std::int32_t color);
  void make_of(member& whole, member& part, epoch_t which, std::span<const rank_t> members);
  void give_up(member& whole, epoch_t which, rank_t rank);
  void leave_part(member& part, rank_t place);
  void after_failure(caller& c);
  void shrink(caller& c, bool replaces);
  void perform(member& m, const shrink_rounds::to_do& what);
  void decided(member& m, std::uint64_t number, const std::vector<rank_t>& members, const failure_ptr& why);
  void shrunk(caller& c, bool in_time);
  void push(caller& c, member& part, rank_t rank);

  // -- job_checks.cpp: what must hold --
  void check_failure(const process& p, const failure& why);
  void check_division(const member& part);
  void check_answers();
  void check_one_goes_on();
  bool has_lost(std::uint32_t p, std::uint32_t q);
  void check_end();
  void fault(const std::string& text) {
    if (result_.fault.empty()) result_.fault = text;
  }
  void tell(const std::string& text) {
    if (options_.trace) result_.trace.push_back(std::to_string(now_ / us) + " us  " + text);
  }
  bool is(job_mutant which) const { return options_.broken == which; }
  /// Several ranks a process, and communicators that are divided and shrunk.
  bool divides() const { return divides_; }

  std::uint64_t seed_;
  plan_source& plans_;
  job_options options_;
  job_result result_;
  bool divides_ = false;
  int processes_;
  int operations_;
  roster roster_;
  std::vector<std::uint32_t> process_of_;  ///< by rank of the world
  time_ns now_ = 0;
  std::uint64_t order_ = 0;
  struct event {
    time_ns when;
    std::uint64_t order;
    std::function<void()> what;
    bool operator<(const event& o) const { return when != o.when ? when > o.when : order > o.order; }
  };
  std::priority_queue<event> events_;
  std::vector<connection> ways_;
  arena memory_{std::size_t{1} << 20};
  std::vector<std::unique_ptr<process>> all_;
  std::set<int> disturbed_;
  int happened_ = 0;
  bool network_fails_ = false;  ///< a connection is reset, or nothing gets through
  time_ns first_fault_ = 0;     ///< the last of the first ones
  std::size_t given_up_ = 0;    ///< places
  bool unnamed_ =
      false;  ///< something has happened that is nobody's loss: a rank has failed to make its part, or has left before the others
  /// The same for all that have the part.
  struct division {
    communicator_id whole;
    epoch_t which;
    std::int32_t color;
    std::vector<int> members;  ///< ranks of the world, in their order
  };
  std::map<communicator_id, division> divisions_;
  /// By process: an answer that it has, or what it has contributed.
  using by_process = std::map<std::uint32_t, std::vector<rank_t>>;
  std::map<std::pair<communicator_id, std::uint64_t>, by_process> answers_, contributions_;
};

/// One rank of a communicator, in its process.
struct job_world::local_rank {
  rank_t rank;
  std::unique_ptr<rank_voice> says;
  std::unique_ptr<rank_state> state;
  bool left = false;  ///< it has said so
};

struct job_chunk_name {
  rank_t from, to;
  epoch_t epoch;
  std::uint32_t lane, sequence;
  auto operator<=>(const job_chunk_name&) const = default;
};

/// A communicator, as one process has it.
struct job_world::member {
  member(job_world& of, process& in, std::string called, communicator_id number,
         std::vector<std::uint32_t> process_by_rank, std::vector<int> ranks_of_world);
  ~member();
  bool is_here(rank_t rank) const;
  local_rank& at(rank_t rank) { return ranks_here.at(rank); }
  int ranks() const { return static_cast<int>(process_of.size()); }

  job_world& world;
  process& in;
  std::string name;
  communicator_id id;
  std::vector<std::uint32_t> process_of;  ///< by rank
  std::vector<int> world_rank;            ///< by rank
  bool local;                             ///< all its ranks live here: no other process hears of it
  communicator_id whole = 0;
  epoch_t split = 0;
  std::vector<rank_t> in_whole;  ///< by rank
  std::int32_t color = 0;
  int depth = 0;

  std::uint32_t home;
  bool at_home;
  std::unique_ptr<home_voice> says;
  std::unique_ptr<membership_state> membership;  ///< of the home
  std::vector<home_word> kept;                   ///< left, quiet and abort: also for the next membership
  bool aborted = false;
  bool ended = false;
  shared_spaces spaces;
  std::map<rank_t, local_rank> ranks_here;
  std::map<job_chunk_name, chunk> parked;
  std::map<job_chunk_name, expected_chunk> places;

  division_state<member*> parts;
  empty_places empty;
  shrink_rounds rounds;
  struct outcome {
    std::vector<rank_t> members;
    failure_ptr why;
  };
  std::map<std::uint64_t, outcome> outcomes;  ///< of shrinks
};

/// One call of one rank.
struct job_world::operation_part {
  std::vector<std::int32_t> in, out, given, right;
  bool over = false;
  failure_ptr why;
  bool spoilt() const;
  void spoil();
};

/// The thread of one rank of the world: it calls in the last of its communicators, and when it has left that goes on in the one before.
struct job_world::caller {
  struct communicator {
    member* in;
    rank_t rank;
    int called = 0, most = 0;
    bool failed = false;
    failure_ptr why{};
    int shrunk = 0;  ///< how often it has been shrunk by this rank
  };
  process* in;
  int world_rank;
  std::vector<communicator> has;
  std::size_t open = 0;  ///< of its calls
  std::vector<std::unique_ptr<operation_part>> parts;
  struct {
    member* of = nullptr;
    std::uint64_t number = 0;
    std::uint64_t ticket = 0;
    bool replaces = false;  ///< the communicator is left for what comes of it
  } waits;                  ///< for a shrink
  std::uint64_t tickets = 0;
  bool left = false;
  bool done() const { return has.empty(); }
};

struct job_world::process {
  process(job_world& of, int number);
  ~process();
  int here;
  bool dead = false, stopped = false, leaving = false;
  std::vector<std::function<void()>> held;  ///< while it is stopped
  presence_state presence;
  std::unique_ptr<presence_voice> says;
  std::unique_ptr<agreements_voice> agreements_say;
  shrink_agreements agreements;
  early_frames<to_member> early;
  given_up_places given_up;
  std::map<std::uint32_t, std::string> lost;  ///< how
  bool expelled = false;
  std::size_t gone_in_vain = 0;                      ///< ranks that have waited for a shrink and left
  std::vector<std::unique_ptr<caller>> callers;      ///< before the ranks, which end their operations when they go
  std::vector<std::unique_ptr<member>> members;      ///< all that ever were
  std::map<communicator_id, member*> communicators;  ///< of several processes, that have not ended
};

/// Where the words of agreements on who is left go.
class job_world::agreements_voice final : public shrink_agreements::outbox {
public:
  agreements_voice(job_world& of, process& mine) : w(of), p(mine) {}
  void send(std::uint32_t to, communicator_id of, const shrink_word& what) override;
  void answered(communicator_id of, std::uint64_t number, const std::vector<rank_t>& members,
                const failure_ptr& why) override;

private:
  job_world& w;
  process& p;
};

/// What a process says of itself.
class job_world::presence_voice final : public presence_outbox {
public:
  presence_voice(job_world& of, process& mine) : w(of), p(mine) {}
  void tell(std::uint32_t to, const process_word& what) override;
  bool can_hear(std::uint32_t to) override;
  void beat(std::uint32_t to) override;
  void expelled(const std::string& why) override;
  void close(std::uint32_t other) override { w.close_both(p.here, static_cast<int>(other)); }
  void lost(std::uint32_t process, const std::string& how) override { w.lost(p, process, how); }
  void left(std::uint32_t process) override { w.lost(p, process, "it left the job"); }

private:
  job_world& w;
  process& p;
};

/// What a membership says.
class job_world::home_voice final : public membership_outbox {
public:
  home_voice(job_world& of, member& mine) : w(of), m(mine) {}
  void agreed(epoch_t epoch, const counts_ptr& counts) override { to_all(agreed_message{epoch, counts}); }
  void ask(epoch_t epoch) override { to_all(ask_message{epoch}); }
  void stop(epoch_t epoch) override { to_all(halt_message{epoch}); }
  void failed(epoch_t epoch, const failure_ptr& why) override { to_all(failed_message{epoch, why}); }
  void broken(const failure_ptr& why) override { to_all(broken_message{why}); }
  void peer_left(rank_t rank, const sends_ptr& sent) override { to_all(peer_left_message{rank, sent}); }
  void peer_lost(rank_t rank) override { to_all(peer_lost_message{rank}); }
  void stuck(look_t, bool) override {}
  void flush(rank_t rank) override { m.membership->flushed(rank, *this); }
  void bury(rank_t rank, const failure_ptr& why) override {
    if (m.is_here(rank)) w.to_rank(m, rank, [why](rank_state& s, rank_outbox&) { s.bury(why); });
  }
  void untold(const std::string& why) override { w.fault("an untold difference: " + why); }
  void dissolve() override;

private:
  void to_all(const ranks_word& what);
  job_world& w;
  member& m;
};

/// What a rank says, to its membership and to other ranks.
class job_world::rank_voice final : public rank_outbox {
public:
  rank_voice(job_world& of, member& mine, rank_t number) : w(of), m(mine), rank(number) {}

  void called(epoch_t epoch, const call& what) override { say(called_message{epoch, rank, what}); }
  void differs(epoch_t epoch) override { say(differs_message{epoch}); }
  void withdraw(epoch_t epoch, const call* ahead) override {
    say(withdraw_message{epoch, rank, ahead != nullptr ? std::optional<call>{*ahead} : std::nullopt});
  }
  void fail(epoch_t epoch, const std::string& title, failure_ptr why) override {
    say(fail_message{epoch, title, std::move(why)});
  }
  void stopped(epoch_t epoch, std::vector<std::string> waits, troupe::presence came) override {
    say(stopped_message{epoch, rank, std::move(waits), std::move(came)});
  }
  void left(epoch_t operations, call last, sends_ptr sent) override;
  void quiet() override { keep(quiet_message{rank}); }
  void abort(const failure_ptr& why) override { say(abort_message{why}); }
  void perished() override {}

  bool deliver(rank_t to, int channel, chunk&& what) override;
  void give_back(rank_t to, int channel, const credit& what) override;
  bool offer_place(int channel, const expected_chunk& what) override;
  void withdraw_place(int channel, const expected_chunk& what) override;
  void clear(rank_t to, int channel, const credit& what) override;
  void revoke(rank_t to, epoch_t epoch, const failure_ptr& why) override {
    order(to, [from = rank, epoch, why](rank_state& s, rank_outbox& o) { s.revoke(from, epoch, why, o); });
  }
  void revoked(rank_t to, epoch_t epoch, bool received) override {
    order(to, [from = rank, epoch, received](rank_state& s, rank_outbox& o) { s.revoked(from, epoch, received, o); });
  }
  void refuse(rank_t to, epoch_t epoch, bool sending, const failure_ptr& why) override {
    order(to, [from = rank, epoch, sending, why](rank_state& s, rank_outbox& o) {
      s.refused(from, epoch, sending, why, o);
    });
  }
  void inquire(rank_t, epoch_t, bool, look_t, bool) override {}
  void look_again(rank_t, bool) override {}
  bool transfer(const operation_key&, int, int, std::byte* target, const std::byte* source, std::size_t bytes) override;
  bool flush(const operation_key& which) override;
  steady_time now() const override { return w.clock(); }

private:
  void carry(rank_t to, int channel, const chunk& what);
  void order(rank_t to, const rank_order& what);
  void say(home_word&& word);
  void keep(home_word&& word);

  job_world& w;
  member& m;
  rank_t rank;
};

}  // namespace troupe::simulate
