// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/simulate/job.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <tuple>
#include <utility>
#include <variant>

#include "actors/ports/link/presence_state.hpp"
#include "actors/ports/link/takeover.hpp"
#include "actors/rank/membership_state.hpp"
#include "actors/rank/rank_state.hpp"
#include "engine/tools/simulate/dice.hpp"
#include "engine/tools/simulate/virtual_time.hpp"
#include "memory/kernels/kernels.hpp"
#include "protocols/choreographies/choreography.hpp"

namespace troupe::simulate {

using namespace actors;

namespace {

using time_ns = nanoseconds_t;
constexpr std::chrono::milliseconds silence{3000};
constexpr time_ns tick_ns = 300 * ms;
/// Until then everything is over, whatever happens: the last disturbance, a silence, and what follows from it in another.
constexpr time_ns patience = 30'000 * ms;
constexpr std::uint8_t poison = 0xa5;

roster roster_of(int processes) {
  roster all;
  all.job = 1;
  for (int p = 0; p < processes; ++p) {
    process_place place;
    place.host = "h";
    place.pid = 100 + p;
    place.first_rank = static_cast<std::uint32_t>(p);
    place.ranks = 1;
    all.processes.push_back(place);
  }
  return all;
}

/// One call of one rank.
struct part {
  std::vector<std::int32_t> in, out, given, right;
  bool over = false;
  failure_ptr why;
  void spoil() {
    std::memset(in.data(), poison, in.size() * 4);
    std::memset(out.data(), poison, out.size() * 4);
  }
  bool spoilt() const {
    const auto is = [](const std::vector<std::int32_t>& v) {
      const auto* const at = reinterpret_cast<const std::uint8_t*>(v.data());
      return std::all_of(at, at + v.size() * 4, [](std::uint8_t b) { return b == poison; });
    };
    return is(in) && is(out);
  }
};

struct chunk_name {
  rank_t from, to;
  epoch_t epoch;
  std::uint32_t lane, sequence;
  auto operator<=>(const chunk_name&) const = default;
};

class job_world {
public:
  job_world(std::uint64_t seed, plan_source& plans, const job_options& options);
  ~job_world();
  job_result run();

private:
  struct process;
  class voice;

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

  // -- clock and network --
  void at(time_ns when, std::function<void()> what);
  steady_time clock() const { return steady_time{} + std::chrono::hours{1} + std::chrono::nanoseconds{now_}; }
  time_ns latency(int from, int to);
  void send(int from, int to, std::function<void(process&)> frame);
  void at_process(int p, std::function<void(process&)> what);
  void close_both(int me, int other);
  void writer_ends(int from, int to);
  void reader_ends(int from, int to);
  void tick(int p);

  // -- faults --
  void plan_faults();
  void kill(int p);
  void stop(int p, time_ns until);
  void reset(int from, int to);

  // -- ranks --
  void call_next(process& p);
  void call_collective(process& p, dice& d);
  void call_pair(process& p, dice& d);
  void submit(process& p, operation_ptr op, part& what);
  void turn(process& p, const std::function<void(rank_state&, rank_outbox&)>& what);
  void lost(process& p, std::uint32_t process, const std::string& how);
  void end_communicator(process& p);
  void to_rank(process& p, const std::function<void(rank_state&, rank_outbox&)>& what);
  void to_membership(process& p, const home_word& word);
  void check_end();
  void check_failure(const process& p, const failure& why);
  void fault(const std::string& text) {
    if (result_.fault.empty()) result_.fault = text;
  }
  void tell(const std::string& text) {
    if (options_.trace) result_.trace.push_back(std::to_string(now_ / 1000) + " us  " + text);
  }
  bool is(job_mutant which) const { return options_.broken == which; }

  std::uint64_t seed_;
  plan_source& plans_;
  job_options options_;
  job_result result_;
  int processes_;
  int operations_;
  roster roster_;
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
};

struct job_world::process {
  process(job_world& of, int number);
  int here;
  bool dead = false, stopped = false;
  time_ns stopped_at = 0;
  std::vector<std::function<void()>> held;  ///< while it is stopped
  presence_state presence;
  std::unique_ptr<voice> says;
  shared_spaces spaces;
  std::unique_ptr<rank_state> rank;
  std::unique_ptr<membership_state> members;  ///< of the home
  bool at_home;
  bool ended = false;           ///< the communicator, here
  bool leaving = false;         ///< the process
  std::vector<home_word> kept;  ///< left, quiet and abort: also for the next membership
  std::vector<std::unique_ptr<part>> parts;
  std::size_t open = 0;
  int called = 0;
  bool left = false;
  std::map<chunk_name, chunk> parked;
  std::map<chunk_name, expected_chunk> places;
};

/// What a process says: as presence, as rank, as membership.
class job_world::voice final : public presence_outbox, public rank_outbox, public membership_outbox {
public:
  voice(job_world& of, process& mine) : w(of), p(mine) {}

  // -- presence --
  void tell(std::uint32_t to, const process_word& what) override {
    if (w.is(job_mutant::no_suspicion) &&
        (std::holds_alternative<suspect_word>(what) || std::holds_alternative<lost_word>(what)))
      return;
    w.send(p.here, static_cast<int>(to), [this_world = &w, from = p.here, what](process& there) {
      there.presence.word(static_cast<std::uint32_t>(from), what, this_world->clock(), *there.says);
    });
  }
  bool can_hear(std::uint32_t to) override {
    const connection& c = w.line(p.here, static_cast<int>(to));
    return c.used && c.writes;
  }
  void beat(std::uint32_t to) override {
    if (!w.is(job_mutant::no_beats) && can_hear(to)) tell(to, beat_word{});
  }
  void close(std::uint32_t other) override { w.close_both(p.here, static_cast<int>(other)); }
  void lost(std::uint32_t process, const std::string& how) override { w.lost(p, process, how); }
  void left(std::uint32_t process) override { w.lost(p, process, "it left the job"); }

  // -- rank, to the membership --
  void called(epoch_t epoch, const call& what) override { say(called_message{epoch, p.here, what}); }
  void differs(epoch_t epoch) override { say(differs_message{epoch}); }
  void withdraw(epoch_t epoch, const call* ahead) override {
    say(withdraw_message{epoch, p.here, ahead != nullptr ? std::optional<call>{*ahead} : std::nullopt});
  }
  void fail(epoch_t epoch, const std::string& title, failure_ptr why) override {
    say(fail_message{epoch, title, std::move(why)});
  }
  void stopped(epoch_t epoch, std::vector<std::string> waits, troupe::presence came) override {
    say(stopped_message{epoch, p.here, std::move(waits), std::move(came)});
  }
  void left(epoch_t operations, call last, sends_ptr sent) override {
    keep(left_message{p.here, operations, std::move(last), std::move(sent)});
  }
  void quiet() override { keep(quiet_message{p.here}); }
  void abort(const failure_ptr& why) override { say(abort_message{why}); }
  void perished() override {}

  // -- rank, to others --
  bool deliver(rank_t to, int channel, chunk&& what) override {
    const chunk_name name{p.here, to, what.epoch, what.lane, what.sequence};
    dice d(w.seed_, {0x51, static_cast<std::uint64_t>(p.here), static_cast<std::uint64_t>(to), what.epoch, what.lane,
                     what.sequence});
    if (what.bytes == 0 || !d.percent(40)) {
      what.settled = d.percent(50);  // carry() keeps a copy
      carry(to, channel, what);
      return what.settled;
    }
    chunk announced = what;
    announced.data = nullptr;
    announced.announced = true;
    p.parked.insert_or_assign(name, std::move(what));
    w.send(p.here, to, [world = &w, channel, announced](process& there) {
      world->to_rank(there,
                     [channel, announced](rank_state& s, rank_outbox& o) { s.on_chunk(channel, chunk{announced}, o); });
    });
    return false;
  }
  void give_back(rank_t to, int channel, const credit& what) override {
    w.send(p.here, to, [world = &w, channel, what](process& there) {
      world->to_rank(there, [channel, what](rank_state& s, rank_outbox& o) { s.on_credit(channel, what, o); });
    });
  }
  bool offer_place(int, const expected_chunk& what) override {
    p.places[{what.source, p.here, what.epoch, what.lane, what.sequence}] = what;
    return true;
  }
  void withdraw_place(int, const expected_chunk& what) override {
    p.places.erase({what.source, p.here, what.epoch, what.lane, what.sequence});
  }
  void clear(rank_t to, int channel, const credit& what) override {
    w.send(p.here, to, [me = p.here, channel, what](process& there) {
      const auto at = there.parked.find({there.here, me, what.epoch, what.lane, what.sequence});
      if (at == there.parked.end()) return;
      const chunk cleared = std::move(at->second);
      there.parked.erase(at);
      there.says->carry(me, channel, cleared);
    });
  }
  void revoke(rank_t to, epoch_t epoch, const failure_ptr& why) override {
    order(to, [from = p.here, epoch, why](rank_state& s, rank_outbox& o) { s.revoke(from, epoch, why, o); });
  }
  void revoked(rank_t to, epoch_t epoch, bool received) override {
    order(to, [from = p.here, epoch, received](rank_state& s, rank_outbox& o) { s.revoked(from, epoch, received, o); });
  }
  void refuse(rank_t to, epoch_t epoch, bool sending, const failure_ptr& why) override {
    order(to, [from = p.here, epoch, sending, why](rank_state& s, rank_outbox& o) {
      s.refused(from, epoch, sending, why, o);
    });
  }
  void inquire(rank_t, epoch_t, bool, look_t, bool) override {}
  void look_again(rank_t, bool) override {}
  bool transfer(const operation_key&, int, int, std::byte* target, const std::byte* source,
                std::size_t bytes) override {
    troupe::copy(target, source, bytes);
    return true;
  }
  bool flush(const operation_key& which) override {
    // A send and a receive of one peer may have one number.
    const auto is_of = [&](epoch_t epoch, rank_t other, bool sending) {
      return epoch == which.epoch && (which.peer < 0 || (which.peer == other && which.sending == sending));
    };
    std::erase_if(p.parked, [&](const auto& each) { return is_of(each.first.epoch, each.first.to, true); });
    std::erase_if(p.places, [&](const auto& each) { return is_of(each.first.epoch, each.first.from, false); });
    return false;
  }
  steady_time now() const override { return w.clock(); }

  // -- membership --
  void agreed(epoch_t epoch, const counts_ptr& counts) override { to_all(agreed_message{epoch, counts}); }
  void ask(epoch_t epoch) override { to_all(ask_message{epoch}); }
  void stop(epoch_t epoch) override { to_all(halt_message{epoch}); }
  void failed(epoch_t epoch, const failure_ptr& why) override { to_all(failed_message{epoch, why}); }
  void broken(const failure_ptr& why) override { to_all(broken_message{why}); }
  void peer_left(rank_t rank, const sends_ptr& sent) override { to_all(peer_left_message{rank, sent}); }
  void peer_lost(rank_t rank) override { to_all(peer_lost_message{rank}); }
  void stuck(look_t, bool) override {}
  void flush(rank_t rank) override { p.members->flushed(rank, *this); }
  void bury(rank_t rank, const failure_ptr& why) override {
    if (rank == p.here) w.to_rank(p, [why](rank_state& s, rank_outbox&) { s.bury(why); });
  }
  void untold(const std::string& why) override { w.fault("an untold difference: " + why); }
  void dissolve() override {
    to_all(dissolved_message{});
    w.at_process(p.here, [world = &w](process& here) { world->end_communicator(here); });
  }

  static void apply(process& there, job_world& world, const ranks_word& what) {
    if (std::holds_alternative<dissolved_message>(what)) return world.end_communicator(there);
    world.to_rank(there, [what](rank_state& s, rank_outbox& o) {
      std::visit(
          [&](const auto& m) {
            using word = std::decay_t<decltype(m)>;
            if constexpr (std::is_same_v<word, agreed_message>) s.agreed(m.epoch, m.counts, o);
            else if constexpr (std::is_same_v<word, ask_message>) s.asked(m.epoch, o);
            else if constexpr (std::is_same_v<word, halt_message>) s.stop(m.epoch, o);
            else if constexpr (std::is_same_v<word, failed_message>) s.failed(m.epoch, m.why, o);
            else if constexpr (std::is_same_v<word, broken_message>) s.broken(m.why, o);
            else if constexpr (std::is_same_v<word, peer_left_message>) s.peer_left(m.rank, m.sent, o);
            else if constexpr (std::is_same_v<word, peer_lost_message>) s.peer_lost(m.rank, o);
          },
          what);
    });
  }

private:
  /// What the system takes is a copy.
  void carry(rank_t to, int channel, const chunk& what) {
    auto bytes = std::make_shared<std::vector<std::byte>>(what.data, what.data + what.bytes);
    chunk sent = what;
    sent.data = bytes->data();
    sent.keep = bytes;
    w.send(p.here, to, [world = &w, channel, sent](process& there) {
      chunk here = sent;
      const auto at = there.places.find({sent.source, there.here, sent.epoch, sent.lane, sent.sequence});
      if (at != there.places.end() && at->second.bytes == sent.bytes && at->second.fingerprint == sent.fingerprint) {
        std::memcpy(at->second.place, sent.data, sent.bytes);
        here.data = at->second.place;
        here.keep = nullptr;
        there.places.erase(at);
      }
      world->to_rank(there, [channel, here](rank_state& s, rank_outbox& o) { s.on_chunk(channel, chunk{here}, o); });
    });
  }
  void order(rank_t to, const std::function<void(rank_state&, rank_outbox&)>& what) {
    w.send(p.here, to, [world = &w, what](process& there) { world->to_rank(there, what); });
  }
  void say(home_word&& word) {
    if (p.at_home)
      return w.at_process(p.here,
                          [world = &w, word = std::move(word)](process& here) { world->to_membership(here, word); });
    w.send(p.here, 0, [world = &w, word = std::move(word)](process& home) {
      if (home.at_home) world->to_membership(home, word);
      else world->fault("a word for a home that is none");
    });
  }
  void keep(home_word&& word) {
    p.kept.push_back(word);
    say(std::move(word));
  }
  /// Whoever has taken over speaks for itself alone.
  void to_all(const ranks_word& what) {
    if (p.here == 0)
      for (int q = 1; q < w.processes_; ++q)
        w.send(0, q, [world = &w, what](process& there) {
          if (!there.at_home) apply(there, *world, what);
        });
    w.at_process(p.here, [world = &w, what](process& here) { apply(here, *world, what); });
  }

  job_world& w;
  process& p;
};

job_world::process::process(job_world& of, int number)
    : here(number),
      presence(of.roster_, static_cast<std::uint32_t>(number), silence, of.clock()),
      says(std::make_unique<voice>(of, *this)),
      spaces(of.processes_),
      at_home(number == 0) {
  rank_state_options o;
  o.rank = number;
  o.ranks = of.processes_;
  o.channels = 2;
  o.least_placed = 1;
  rank = std::make_unique<rank_state>(o, of.memory_, spaces, nullptr);
  if (at_home) members = std::make_unique<membership_state>(of.processes_, "world");
}

job_world::job_world(std::uint64_t seed, plan_source& plans, const job_options& options)
    : seed_(seed), plans_(plans), options_(options) {
  dice d(seed, {0x10});
  processes_ = d.between(options.least_processes, options.most_processes);
  operations_ = d.between(3, 12);
  roster_ = roster_of(processes_);
  ways_.resize(static_cast<std::size_t>(processes_) * static_cast<std::size_t>(processes_));
  for (int p = 0; p < processes_; ++p) all_.push_back(std::make_unique<process>(*this, p));
}

job_world::~job_world() {
  for (const auto& p : all_) p->dead = true;
}

// -- clock and network --------------------------------------------------------------------------------------------------

void job_world::at(time_ns when, std::function<void()> what) { events_.push({when, order_++, std::move(what)}); }

time_ns job_world::latency(int from, int to) {
  dice d(seed_, {0x20, static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(to), line(from, to).frames++});
  if (d.one_in(30)) return static_cast<time_ns>(d.below(100 * ms));
  return 5 * us + static_cast<time_ns>(d.below(100 * us));
}

void job_world::at_process(int number, std::function<void(process&)> what) {
  process& p = *all_[static_cast<std::size_t>(number)];
  if (p.dead) return;
  at(now_ + us, [&p, what = std::move(what)] {
    if (p.dead) return;
    if (p.stopped) p.held.push_back([&p, what] { what(p); });
    else what(p);
  });
}

void job_world::send(int from, int to, std::function<void(process&)> frame) {
  process& mine = *all_[static_cast<std::size_t>(from)];
  connection& c = line(from, to);
  if (mine.dead || !c.writes || !mine.presence.alive(static_cast<std::uint32_t>(to))) return;
  c.used = true;
  if (all_[static_cast<std::size_t>(to)]->dead) return writer_ends(from, to);  // refused
  // What is not acknowledged for a silence ends the connection, as what cannot be opened does.
  if ((c.cut || line(to, from).cut) && !std::exchange(c.doomed, true))
    at(now_ + 3000 * ms, [this, from, to] { writer_ends(from, to); });
  if (c.cut) return;
  time_ns when = now_ + latency(from, to);
  when = std::max(when, c.last + 1);
  c.last = when;
  at(when, [this, from, to, &c, frame = std::move(frame)] {
    process& there = *all_[static_cast<std::size_t>(to)];
    if (there.dead || c.reset || c.cut) return;
    const auto arrive = [this, from, &c, &there, frame] {
      if (there.dead || !c.reads) return;
      if (!std::exchange(c.heard, true)) there.presence.hears(static_cast<std::uint32_t>(from), true, clock());
      there.presence.heard(static_cast<std::uint32_t>(from), clock());
      frame(there);
    };
    if (there.stopped) there.held.push_back(arrive);
    else arrive();
  });
}

/// The writer's end is told.
void job_world::writer_ends(int from, int to) {
  at_process(from, [this, from, to](process& p) {
    connection& c = line(from, to);
    if (!std::exchange(c.writes, false) || is(job_mutant::eof_unheard)) return;
    if (p.presence.alive(static_cast<std::uint32_t>(to)))
      p.presence.ended(static_cast<std::uint32_t>(to), "it closed a connection", clock(), *p.says);
  });
}

/// The reader's end, behind what was written.
void job_world::reader_ends(int from, int to) {
  connection& c = line(from, to);
  if (!c.used || c.cut) return;
  c.last = std::max(now_ + latency(from, to), c.last + 1);
  at(c.last, [this, from, to] {
    at_process(to, [this, from, to](process& p) {
      connection& mine = line(from, to);
      if (!std::exchange(mine.reads, false) || !mine.heard) return;
      p.presence.hears(static_cast<std::uint32_t>(from), false, clock());
      if (!is(job_mutant::eof_unheard) && p.presence.alive(static_cast<std::uint32_t>(from)))
        p.presence.ended(static_cast<std::uint32_t>(from), "it closed a connection", clock(), *p.says);
    });
  });
}

void job_world::close_both(int me, int other) {
  connection &out = line(me, other), &in = line(other, me);
  if (std::exchange(out.writes, false)) reader_ends(me, other);
  if (!std::exchange(in.reads, false)) return;
  all_[static_cast<std::size_t>(me)]->presence.hears(static_cast<std::uint32_t>(other), false, clock());
  if (in.used && !out.cut) at(now_ + latency(me, other), [this, me, other] { writer_ends(other, me); });
}

void job_world::tick(int number) {
  process& p = *all_[static_cast<std::size_t>(number)];
  if (p.dead) return;
  at(now_ + tick_ns, [this, number] { tick(number); });
  if (p.stopped) return;
  if (!is(job_mutant::silence_heard)) p.presence.tick(clock(), *p.says);
  turn(p, [](rank_state& s, rank_outbox& o) { s.tick(o); });
}

// -- faults ----------------------------------------------------------------------------------------------------------------

void job_world::plan_faults() {
  dice d(seed_, {0x30});
  if (!options_.faults) return;
  happened_ = d.any_of({0, 1, 1, 1, 2, 2});
  for (int i = 0; i < happened_; ++i) {
    const int victim = d.between(0, processes_ - 1);
    int other = d.between(0, processes_ - 2);
    if (other >= victim) ++other;
    const time_ns when = static_cast<time_ns>(d.below(d.one_in(3) ? 2000 * ms : 5 * ms));
    const auto story = [&](const std::string& what) {
      result_.story += std::to_string(when / us) + " us: process " + std::to_string(victim) + " " + what + "; ";
    };
    switch (d.below(6)) {
      case 0:
      case 1:
        story("is killed");
        disturbed_.insert(victim);
        at(when, [this, victim] { kill(victim); });
        break;
      case 2: {
        const bool briefly = d.one_in(2);
        const time_ns until = when + (briefly ? 2000 * ms : 6000 * ms);
        story(briefly ? "is stopped for 2 s" : "is stopped for 6 s");
        if (!briefly) disturbed_.insert(victim);
        at(when, [this, victim, until] { stop(victim, until); });
        break;
      }
      case 3:
        story("and process " + std::to_string(other) + " have a connection reset");
        disturbed_.insert({victim, other});
        at(when, [this, victim, other] { reset(victim, other); });
        break;
      case 4: {
        const bool both = d.one_in(2);
        story((both ? "is cut off from process " : "does not reach process ") + std::to_string(other));
        disturbed_.insert({victim, other});
        at(when, [this, victim, other, both] {
          line(victim, other).cut = true;
          if (both) line(other, victim).cut = true;
        });
        break;
      }
      default:
        story("is cut off");
        disturbed_.insert(victim);
        at(when, [this, victim] {
          for (int q = 0; q < processes_; ++q) line(victim, q).cut = line(q, victim).cut = true;
        });
    }
  }
}

void job_world::kill(int number) {
  process& p = *all_[static_cast<std::size_t>(number)];
  if (p.dead) return;
  tell("process " + std::to_string(number) + " is killed");
  p.dead = true;
  for (int q = 0; q < processes_; ++q) {
    if (q == number) continue;
    connection& out = line(number, q);
    if (mix(seed_ ^ static_cast<std::uint64_t>(q)) % 2 == 0) out.reset = true;
    if (std::exchange(out.writes, false)) reader_ends(number, q);
    connection& in = line(q, number);
    in.reads = false;
    if (in.used && !in.cut && !out.cut) at(now_ + latency(number, q), [this, q, number] { writer_ends(q, number); });
  }
}

void job_world::stop(int number, time_ns until) {
  process& p = *all_[static_cast<std::size_t>(number)];
  if (p.dead || p.stopped) return;
  tell("process " + std::to_string(number) + " is stopped");
  p.stopped = true;
  at(until, [this, &p] {
    if (p.dead) return;
    tell("process " + std::to_string(p.here) + " goes on");
    p.stopped = false;
    p.presence.awake(clock());
    std::vector<std::function<void()>> held;
    held.swap(p.held);
    for (const auto& each : held)
      if (!p.dead) each();
  });
}

void job_world::reset(int from, int to) {
  connection& c = line(from, to);
  if (!c.used || !c.writes) return;
  tell("the connection from process " + std::to_string(from) + " to " + std::to_string(to) + " is reset");
  c.reset = true;
  reader_ends(from, to);
  writer_ends(from, to);
}

// -- ranks -----------------------------------------------------------------------------------------------------------------

void job_world::turn(process& p, const std::function<void(rank_state&, rank_outbox&)>& what) {
  if (p.dead) return;
  what(*p.rank, *p.says);
  for (ended_operations over = p.rank->take_ended(); !over.empty();) {
    const operation_ptr op = over.take();
    failure_ptr why = std::move(op->why_ended);
    op->end(std::move(why));
  }
}

void job_world::to_rank(process& p, const std::function<void(rank_state&, rank_outbox&)>& what) {
  if (!p.ended) turn(p, what);
}

void job_world::to_membership(process& p, const home_word& word) {
  static constexpr const char* names[] = {"called", "differs", "withdraw", "fail", "stopped",
                                          "left",   "quiet",   "perished", "abort"};
  if (options_.trace)
    std::visit(
        [&](const auto& w) {
          std::string who;
          if constexpr (requires { w.rank; }) who = " of rank " + std::to_string(w.rank);
          tell("the membership in process " + std::to_string(p.here) + " hears `" + names[word.index()] + "`" + who);
        },
        word);
  if (p.members->dissolved()) return;
  membership_state& m = *p.members;
  membership_outbox& out = *p.says;
  std::visit(
      [&](const auto& w) {
        using kind = std::decay_t<decltype(w)>;
        if constexpr (std::is_same_v<kind, called_message>) m.called(w.epoch, w.rank, w.what, out);
        else if constexpr (std::is_same_v<kind, differs_message>) m.differs(w.epoch, out);
        else if constexpr (std::is_same_v<kind, withdraw_message>) m.withdraw(w.epoch, w.rank, w.ahead, out);
        else if constexpr (std::is_same_v<kind, fail_message>) m.fail(w.epoch, w.title, w.why, out);
        else if constexpr (std::is_same_v<kind, stopped_message>) m.stopped(w.epoch, w.rank, w.waits, w.came, out);
        else if constexpr (std::is_same_v<kind, left_message>) m.left(w.rank, w.operations, w.last, w.sent, out);
        else if constexpr (std::is_same_v<kind, quiet_message>) m.quiet(w.rank, out);
        else if constexpr (std::is_same_v<kind, perished_message>) m.perished(w.rank, out);
        else if constexpr (std::is_same_v<kind, abort_message>) m.abort(w.why, out);
      },
      word);
}

/// As communicator_actors::process_lost().
void job_world::lost(process& p, std::uint32_t process, const std::string& how) {
  tell("process " + std::to_string(p.here) + " loses process " + std::to_string(process) + ": " + how);
  if (p.ended) return;
  std::vector<std::uint32_t> process_of(static_cast<std::size_t>(processes_));
  for (std::size_t r = 0; r < process_of.size(); ++r) process_of[r] = static_cast<std::uint32_t>(r);
  const takeover made = when_lost(process, static_cast<std::uint32_t>(p.here), 0, p.at_home, process_of);
  if (is(job_mutant::no_takeover) && made.begins) return;
  if (made.begins) {
    p.at_home = true;
    p.members = std::make_unique<membership_state>(processes_, "world");
    for (const home_word& word : p.kept) at_process(p.here, [this, word](auto& here) { to_membership(here, word); });
    at_process(p.here, [this](auto& here) { to_rank(here, [](rank_state& s, rank_outbox& o) { s.rehomed(o); }); });
  }
  for (const auto& [rank, by_takeover] : made.lost) {
    const auto why =
        make_failure(errc::peer_lost, "rank " + std::to_string(rank) + " was lost with " + name_of(roster_, process) +
                                          ": " + how + (by_takeover ? ", where the membership was" : ""));
    at_process(p.here, [rank = rank, why](auto& here) { here.members->lost(rank, why, *here.says); });
  }
}

void job_world::end_communicator(process& p) {
  if (std::exchange(p.ended, true)) return;
  if (p.open > 0) fault("process " + std::to_string(p.here) + ": the communicator ends with operations under way");
  p.leaving = true;
  p.presence.leave();
  for (std::uint32_t q = 0; q < static_cast<std::uint32_t>(processes_); ++q)
    if (q != static_cast<std::uint32_t>(p.here) && p.presence.alive(q)) p.says->tell(q, bye_word{});
}

void job_world::call_next(process& p) {
  if (p.dead || p.ended || p.open > 0) return;
  const bool failed =
      std::any_of(p.parts.begin(), p.parts.end(), [](const auto& each) { return each->why != nullptr; });
  if (p.called == operations_ || failed) {
    if (!std::exchange(p.left, true)) to_rank(p, [](rank_state& s, rank_outbox& o) { s.leave(o); });
    return;
  }
  dice d(seed_, {0x40, static_cast<std::uint64_t>(p.called++)});  // the same at every rank
  if (d.percent(60)) call_collective(p, d);
  else call_pair(p, d);
}

void job_world::call_collective(process& p, dice& d) {
  call what;
  what.what = collective::all_reduce;
  what.type = datatype::i32;
  what.count = d.any_of({1u, 5u, 64u, 300u});
  simulate::way how;
  how.port = port_kind::mailbox;
  how.credits = d.any_of({1, 2, 8});
  how.channels = d.between(1, 2);
  plan_ptr plan;
  for (int tries = 0; !plan && tries < 30; ++tries) {
    how.choreography = static_cast<int>(d.below(all_choreographies().size()));
    const std::string_view which = all_choreographies()[static_cast<std::size_t>(how.choreography)]->name;
    if (which == "csc" || which == "fused") continue;  // they need one memory
    plan = plans_.plan_for(what, processes_, how);
  }
  if (!plan) {
    at_process(p.here, [this](process& here) { call_next(here); });
    return;
  }
  const std::int32_t salt = static_cast<std::int32_t>(d.below(1000));
  auto mine = std::make_unique<part>();
  mine->in.resize(what.count);
  mine->out.resize(what.count);
  mine->right.resize(what.count);
  for (std::size_t i = 0; i < what.count; ++i) {
    for (int r = 0; r < processes_; ++r) mine->right[i] += salt + r * 7 + static_cast<std::int32_t>(i);
    mine->in[i] = salt + p.here * 7 + static_cast<std::int32_t>(i);
  }
  auto op = std::make_shared<operation>();
  op->what = what;
  op->plan = plan;
  p.parts.push_back(std::move(mine));
  submit(p, std::move(op), *p.parts.back());
}

/// Everybody sends to the next, and receives from the one before.
void job_world::call_pair(process& p, dice& d) {
  const std::size_t count = d.any_of({1u, 40u, 500u});
  const std::int32_t salt = static_cast<std::int32_t>(d.below(1000));
  for (const bool sending : {false, true}) {
    auto mine = std::make_unique<part>();
    const int peer = (p.here + (sending ? 1 : processes_ - 1)) % processes_;
    (sending ? mine->in : mine->out).resize(count);
    mine->right.resize(sending ? 0 : count);
    for (std::size_t i = 0; i < count; ++i)
      (sending ? mine->in : mine->right)[i] = salt + (sending ? p.here : peer) * 31 + static_cast<std::int32_t>(i);
    auto op = std::make_shared<operation>();
    op->what.type = datatype::i32;
    op->what.count = count;
    op->peer = peer;
    op->sending = sending;
    p.parts.push_back(std::move(mine));
    ++p.open;  // so that the first does not end the call alone
    submit(p, std::move(op), *p.parts.back());
    --p.open;
  }
  if (p.open == 0) at_process(p.here, [this](process& here) { call_next(here); });
}

void job_world::submit(process& p, operation_ptr op, part& what) {
  what.given = what.in;
  op->input = what.in.data();
  op->output = what.out.data();
  ++p.open;
  const completion_ptr done = op->done;
  done->then([this, &p, &what, done] {
    if (p.dead) return;  // and its memory with it
    what.over = true;
    what.why = done->why();
    --p.open;
    ++(what.why ? result_.failed : result_.performed);
    const std::string who = "process " + std::to_string(p.here);
    if (!what.why && what.out != what.right) {
      const auto [got, right] = std::mismatch(what.out.begin(), what.out.end(), what.right.begin(), what.right.end());
      fault(who + ": wrong values: of " + std::to_string(what.right.size()) + " number " +
            std::to_string(got - what.out.begin()) + " is " + std::to_string(*got) + ", not " + std::to_string(*right));
    }
    if (what.in != what.given) fault(who + ": what it gave has changed");
    if (what.why) check_failure(p, *what.why);
    what.spoil();
    if (p.open == 0) at_process(p.here, [this](process& here) { call_next(here); });
  });
  turn(p, [&](rank_state& s, rank_outbox& o) { s.submit(std::move(op), o); });
}

// -- what must hold --------------------------------------------------------------------------------------------------------

void job_world::check_failure(const process& p, const failure& why) {
  const std::string who = "process " + std::to_string(p.here) + " fails with \"" + why.text + "\"";
  if (disturbed_.empty()) return fault(who + " although nothing has happened");
  // A rank that has left because of it may be heard of first, and the loss then ends what was asked of that rank.
  if (why.code == errc::rank_missing && why.text.find(" left the communicator ") != std::string::npos) return;
  if (why.code != errc::peer_lost) return fault(who + ", which is no loss");
  const auto names = [&](int d) { return why.text.find("process " + std::to_string(d) + " (") != std::string::npos; };
  // Of several that things happen to, one may be the reason that others are lost; and two that do not reach each other do not agree on who that is.
  const bool named = std::any_of(disturbed_.begin(), disturbed_.end(), names);
  if (happened_ == 1 && disturbed_.size() == 1 && !disturbed_.contains(p.here) && !named)
    fault(who + ", which names nobody to whom something has happened");
}

void job_world::check_end() {
  for (const auto& p : all_) {
    if (p->dead) continue;
    const std::string who = "process " + std::to_string(p->here);
    if (p->open > 0) fault(who + " waits for ever");
    else if (!p->ended) fault(who + ": the communicator does not end");
    for (const auto& each : p->parts)
      if (each->over && !each->spoilt()) fault(who + ": a buffer was written after its caller had it back");
  }
}

job_result job_world::run() {
  plan_faults();
  for (int p = 0; p < processes_; ++p) {
    at_process(p, [this](process& here) { here.presence.greet(clock(), *here.says); });
    at_process(p, [this](process& here) { call_next(here); });
    at(static_cast<time_ns>(mix(seed_ ^ static_cast<std::uint64_t>(p)) % tick_ns), [this, p] { tick(p); });
  }
  const auto all_over = [this] {
    return std::all_of(all_.begin(), all_.end(), [](const auto& p) { return p->dead || p->ended; });
  };
  while (!events_.empty() && result_.ok() && now_ < patience && !all_over()) {
    event next = events_.top();
    events_.pop();
    now_ = std::max(now_, next.when);
    ++result_.events;
    next.what();
  }
  if (result_.ok()) check_end();
  return std::move(result_);
}

}  // namespace

std::string_view name(job_mutant which) {
  switch (which) {
    case job_mutant::none: return "none";
    case job_mutant::no_beats: return "no_beats";
    case job_mutant::no_suspicion: return "no_suspicion";
    case job_mutant::no_takeover: return "no_takeover";
    case job_mutant::silence_heard: return "silence_heard";
    case job_mutant::eof_unheard: return "eof_unheard";
  }
  return "?";
}

std::string_view meaning(job_mutant which) {
  switch (which) {
    case job_mutant::none: return "nothing is broken";
    case job_mutant::no_beats: return "nobody says \"I am here\"";
    case job_mutant::no_suspicion: return "a process that is lost is told to nobody";
    case job_mutant::no_takeover: return "with its home a communicator's membership is gone";
    case job_mutant::silence_heard: return "silence is never noticed";
    case job_mutant::eof_unheard: return "the end of a connection is never noticed";
  }
  return "?";
}

job_result simulate_job(std::uint64_t seed, plan_source& plans, const job_options& options) {
  return job_world(seed, plans, options).run();
}

job_campaign_result run_jobs(const job_campaign& what) {
  job_campaign_result all;
  plan_source plans;
  for (std::uint64_t seed = what.first;; ++seed) {
    const job_result r = simulate_job(seed, plans, what.each);
    ++all.seeds;
    all.events += r.events;
    all.performed += r.performed;
    all.failed += r.failed;
    if (!r.ok()) all.failures.emplace_back(seed, r.story + r.fault);
    if (seed == what.last || (what.most_failures > 0 && all.failures.size() >= what.most_failures)) break;
  }
  return all;
}

}  // namespace troupe::simulate
