// SPDX-License-Identifier: Apache-2.0
#include "actors/caf/runtime.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <stdexcept>
#include <thread>

#include <caf/send.hpp>
#include <spdlog/spdlog.h>

#include "actors/caf/membership.hpp"
#include "actors/caf/rank_shell.hpp"
#include "actors/caf/runtime_hidden.hpp"
#include "memory/error.hpp"
#include "memory/tiers/card_memory.hpp"
#include "topology/machine/discovery.hpp"

namespace troupe::actors {

namespace {

using namespace std::chrono_literals;

/// How long a thread waits before it looks whether anything can still happen. Only threads that wait look; nothing ticks.
constexpr std::chrono::nanoseconds patience = 50ms;
constexpr std::chrono::nanoseconds longest_patience = 1s;
/// How long a closing engine waits for operations under way to fail in order; they only need their actors' turns.
constexpr auto closing_time = 5s;

struct place_in_run {
  std::shared_ptr<run_threads> in;
  int rank = -1;
};
thread_local place_in_run my_place;

int usable_cores() { return std::max(1, static_cast<int>(discover().usable_cpus())); }

scheduler_options scheduler_settings(const runtime_options& options) {
  scheduler_options s;
  s.workers = static_cast<std::size_t>(options.workers < 0 ? usable_cores() : options.workers);
  s.spin = usable_cores() == 1 ? 0 : static_cast<std::uint32_t>(std::max(0, options.spin));
  return s;
}

/// A look at a slot is that much shorter than one at the scheduler's queues: 64 of those are some 100 µs of looks at slots, twice what
/// it takes to sleep and to be woken. A thread that spins for less is woken late, may find that its peer has just fallen asleep, and so on.
constexpr int slot_looks = 64;

/// Turns a rank on a thread of the scheduler. Keeps the communicator until it is done; one at a time for each rank.
class rank_job final : public job {
public:
  rank_job(communicator_actors_ptr members, rank_cell& cell) : members_(std::move(members)), cell_(cell) {}
  void run() override {
    cell_.scheduled.store(false);  // before it reads the inbox: what comes later schedules it again
    cell_.run();
  }

private:
  communicator_actors_ptr members_;
  rank_cell& cell_;
};

/// The ranks of a communicator run on the engine's scheduler.
class threads_of_engine final : public rank_threads {
public:
  threads_of_engine(communicator_actors& members, runtime::hidden& of) : members_(members), of_(of) {}
  void schedule(rank_cell& which) override {
    if (which.scheduled.load() || which.scheduled.exchange(true)) return;
    // Nobody is left who could be told anything once the last reference is gone.
    auto members = members_.weak_from_this().lock();
    if (!members) return;
    try {
      of_.agenda.enqueue(new rank_job(std::move(members), which));
    } catch (...) {
      which.scheduled.store(false);  // else it would never be scheduled again
      throw;
    }
  }
  bool help_one() override {
    if (members_.links != nullptr && members_.links->poll()) return true;
    return of_.agenda.has_ready() && !scheduler::in_handler() && of_.agenda.help_one();
  }
  void start_attendant() override { of_.start_attendant(members_.shared_from_this()); }

private:
  communicator_actors& members_;
  runtime::hidden& of_;
};

}  // namespace

void runtime::hidden::start_attendant(const communicator_actors_ptr& members) {
  join_attendants(false);
  const std::lock_guard lock(attendants_mutex);
  auto ended = std::make_shared<std::atomic<bool>>(false);
  attendants.push_back({std::thread([held = communicator_actors_ptr(members), ended]() mutable {
                          held->table->care().work();
                          held.reset();
                          ended->store(true);
                        }),
                        ended});
}

/// Ranks ask the fabric which one, for what they perform.
void runtime::hidden::tell_of_ended_element() {
  const std::lock_guard lock(communicators_mutex);
  for (const auto& c : communicators)
    if (const auto m = c.members.lock(); m && !m->ended.load())
      for (const auto& cell : m->table->cells())
        cell->post(rank_order{[](rank_state& s, rank_outbox& out) { s.element_ended(out); }});
}

void runtime::hidden::join_attendants(bool all) {
  std::vector<attendant_thread> over;
  {
    const std::lock_guard lock(attendants_mutex);
    for (auto at = attendants.begin(); at != attendants.end();) {
      if (all || at->ended->load()) {
        over.push_back(std::move(*at));
        at = attendants.erase(at);
      } else {
        ++at;
      }
    }
  }
  for (attendant_thread& one : over) one.thread.join();
}

// -- run_threads --------------------------------------------------------------------------------------------------------

void run_threads::waits(int rank, completion_ptr what) {
  const std::lock_guard lock(mutex_);
  threads_[static_cast<std::size_t>(rank)].waiting = std::move(what);
}

void run_threads::finished(int rank) {
  const std::lock_guard lock(mutex_);
  threads_[static_cast<std::size_t>(rank)].finished = true;
}

bool run_threads::all_wait() const {
  const std::lock_guard lock(mutex_);
  return std::all_of(threads_.begin(), threads_.end(),
                     [](const thread& s) { return s.finished || (s.waiting && !s.waiting->done()); });
}

// -- construction -----------------------------------------------------------------------------------------------------

runtime::runtime(const runtime_options& options, machine hardware)
    : hidden_(std::make_unique<hidden>(options, std::move(hardware), scheduler_settings(options))) {
  if (hidden_->ways) hidden_->ways->tell_of_ends([all = hidden_.get()] { all->tell_of_ended_element(); });
  // Its looks are as short as those at a slot.
  hidden_->nic = std::make_shared<nic_thread>(usable_cores(), options.spin > 0);
}

runtime::~runtime() {
  abort_all(make_failure(errc::engine_closed, "the engine was destroyed with this operation under way"));
  std::vector<hidden::known_communicator> communicators;
  {
    const std::lock_guard lock(hidden_->communicators_mutex);
    communicators.swap(hidden_->communicators);
  }
  std::vector<std::shared_ptr<communicator_actors>> members;
  for (auto& c : communicators)
    if (auto m = c.members.lock()) members.push_back(std::move(m));
  // First let every operation fail in order, so that callers get their buffers back only when nobody refers to them; then
  // end the actors.
  for (const auto& m : members) m->table->close();
  hidden_->join_attendants(true);
  const steady_time deadline = std::chrono::steady_clock::now() + closing_time;
  // Nobody tells when the last actor falls idle on another thread, so this looks again every millisecond.
  const steady_time idle_by = std::min(deadline, std::chrono::steady_clock::now() + 1s);
  const auto idle = [&] { return hidden_->agenda.active() == 0; };
  for (parker nobody; !idle() && std::chrono::steady_clock::now() < idle_by;)
    hidden_->agenda.help_until(nobody, idle, std::min(idle_by, std::chrono::steady_clock::now() + 1ms));
  for (const auto& m : members)
    if (!m->ended.load()) m->dissolve();
  if (hidden_->ways) hidden_->ways->close();
  hidden_->functions.reset();
  const bool ended = hidden_->agenda.finish(deadline) != help_result::timeout;
  if (hidden_->job) hidden_->job->leave();
  hidden_->nic->close();  // from here on it touches nobody's buffers
  for (const auto& m : members) m->table->bury();
  hidden_->flows->close();
  if (ended) return;
  // Actors of the application's own, spawned in our system and still referred to. They refer to the system, so it has to stay;
  // waiting for them could take for ever.
  hidden_->options.log->warn(
      "the engine was destroyed while actors that the application spawned in it were alive; its actor "
      "system is left behind");
  static_cast<void>(hidden_.release());
}

arena& runtime::memory() { return hidden_->memory; }
int runtime::cores() const { return usable_cores(); }

std::shared_ptr<communicator_actors>
runtime::make_actors(std::string name, int ranks, int channels, bool boards, std::vector<int> machine_ranks,
                     const std::shared_ptr<run_threads>& run,
                     std::function<operation_ptr(rank_t, const call_description&)> accept, const job_part* job) {
  auto members = std::make_shared<communicator_actors>(hidden_->system, std::move(name), ranks, channels,
                                                       hidden_->memory, hidden_->ways.get());
  const fault_settings& f = hidden_->options.faults;
  members->faults = f;
  members->log = hidden_->options.log;
  members->nic = hidden_->nic.get();
  members->name_at_nic = hidden_->nic->next_communicator();
  members->accept = std::move(accept);
  members->machine_rank = std::move(machine_ranks);
  if (members->machine_rank.empty())
    for (int r = 0; r < ranks; ++r) members->machine_rank.push_back(r);
  if (members->ways != nullptr) {
    const layout& places = members->ways->hardware().ranks();
    while (members->first_on_card < ranks &&
           places.of(members->machine_rank[static_cast<std::size_t>(members->first_on_card)]).host)
      ++members->first_on_card;
    if (members->first_on_card == ranks) members->first_on_card = 0;
  }
  rank_table_options table;
  table.communicator = members->name;
  table.ranks = ranks;
  table.channels = channels;
  table.boards = boards;
  table.cores = usable_cores();
  table.spin = slot_looks * std::max(0, hidden_->options.spin);
  table.first = hidden_->options.first_operation;
  // Larger cards than card_memory models have none, and operations use the arena.
  if (members->ways != nullptr && members->ways->hardware().ranks().core_groups <= card_options::most_core_groups)
    members->card =
        std::make_shared<card_tiers>([log = members->log](const std::string& wrong) { log->error("{}", wrong); });
  table.card = members->card.get();
  if (job != nullptr) {
    members->links = hidden_->job.get();
    members->id = job->id;
    members->parent = job->parent;
    members->split = job->split;
    members->parent_rank = job->parent_rank;
    members->process_of = job->process_of;
    members->home = job->process_of.front();
    members->at_home.store(members->home == members->links->here());
    table.cores = job->cores.cores;
    table.neighbours = job->cores.neighbours;
    table.boards_in = job->boards_in;
    table.of_host = job->of_host;
    for (const std::uint32_t process : job->process_of) table.elsewhere.push_back(process != members->links->here());
  }
  // Its roots lie before the boards', since a NIC process of the host knows nothing of those.
  if (job != nullptr && hidden_->options.offloads) {
    join_nics(*members, *job);
    share_nic(*members, *job);
  }
  members->threads = std::make_unique<threads_of_engine>(*members, *hidden_);
  members->table = std::make_unique<rank_table>(table, hidden_->memory, *members->threads,
                                                [&](rank_t r) { return make_outbox(*members, r); });
  if (members->nic_shared) hidden_->nic->serve(members->nic_shared);
  if (members->nic_across) hidden_->nic->serve(members->nic_across);
  {
    const std::lock_guard lock(hidden_->communicators_mutex);
    std::erase_if(hidden_->communicators, [](const hidden::known_communicator& c) { return c.members.expired(); });
    hidden_->communicators.push_back({members, run});
  }
  members->live();
  return members;
}

/// Where its ranks are on several hosts, in one process on each, or in as many on one as on the other. All processes of the communicator do, or none.
void runtime::join_nics(communicator_actors& members, const job_part& job) {
  const roster& all = hidden_->job->all();
  const std::uint32_t here = hidden_->job->here();
  const auto same_host = [&](std::uint32_t a, std::uint32_t b) {
    return all.processes[a].host_key == all.processes[b].host_key;
  };
  std::vector<std::uint32_t> nic_of_host;
  nic_hosts::options how;
  bool one_process_each = true;
  for (const std::uint32_t process : job.process_of) {
    auto at = std::ranges::find_if(nic_of_host, [&](std::uint32_t p) { return same_host(p, process); });
    if (at == nic_of_host.end()) at = nic_of_host.insert(at, process);
    one_process_each = one_process_each && *at == process;
    if (same_host(process, here)) how.here = static_cast<int>(at - nic_of_host.begin());
    how.host_of.push_back(static_cast<int>(at - nic_of_host.begin()));
  }
  if (nic_of_host.size() < 2 || (!one_process_each && job.of_host == 0)) return;
  members.ranks_at_nic = static_cast<int>(std::ranges::count(how.host_of, how.here));
  members.nic_of_host = nic_of_host;
  if (nic_of_host[static_cast<std::size_t>(how.here)] != here) return;
  how.hosts = static_cast<int>(nic_of_host.size());
  how.name = members.name_at_nic;
  how.wire = hidden_->job->wire_to_nics(job.id, std::move(nic_of_host));
  how.ring = [nic = std::weak_ptr<nic_thread>{hidden_->nic}] {
    if (const auto still = nic.lock()) still->ring();
  };
  members.nic_across = std::make_shared<nic_hosts>(std::move(how));
}

/// All processes of the communicator on this host do, or none.
void runtime::share_nic(communicator_actors& members, const job_part& job) {
  const std::shared_ptr<board_memory>& in = job.boards_in;
  if (in == nullptr || in->peers() == nullptr) return;
  const std::uint32_t here = hidden_->job->here();
  std::span<const std::uint32_t> on_host{members.process_of};
  nic_between::options how;
  if (job.of_host > 0) {
    const auto mine = std::ranges::find(on_host, here) - on_host.begin();
    how.first_rank = static_cast<rank_t>(mine / job.of_host * job.of_host);
    on_host = on_host.subspan(static_cast<std::size_t>(how.first_rank), static_cast<std::size_t>(job.of_host));
  }
  how.ranks = static_cast<int>(on_host.size());
  how.all_ranks = members.ranks;
  how.in = in;
  how.name = members.name_at_nic;
  for (const std::uint32_t process : on_host) how.bells.push_back(hidden_->job->nic_bell_of(process));
  how.own = hidden_->job->nic_bell_of(here);
  how.across = members.nic_across.get();
  if (job.of_host == 0 && job.process_of.size() <= job_links::most_nic_ranks) how.host = hidden_->job->host_nic();
  how.id = job.id;
  // Of a process that has ended the communicator is going to hear, and then performs nothing more.
  if (how.host && !hidden_->job->enter_nic(job.id, job.process_of)) how.host = nullptr;
  members.nic_shared = std::make_shared<nic_between>(std::move(how));
}

void runtime::join(std::unique_ptr<job_links> job) {
  hidden_->job = std::move(job);
  if (const auto& boards = hidden_->job->boards())
    hidden_->nic->sleep_at(*hidden_->job->nic_bell_of(hidden_->job->here()), boards);
}
job_links* runtime::job() const { return hidden_->job.get(); }

void runtime::wait_for_others() {
  if (!hidden_->job) return;
  // Where the engine has no workers of its own, this thread is the one that turns what is left.
  while (!hidden_->job->wait_for_others(std::chrono::steady_clock::now() + 10ms)) help_briefly();
}

rank_table& runtime::ranks_of(const communicator_actors& of) { return *of.table; }

void runtime::abort(communicator_actors& to, const failure_ptr& why) { to.abort(why); }

/// Waits until the ranks of this process have heard every word to them so far: the last word of a handle waits in the inbox while another thread
/// has the rank's turn. Not where nobody may wait, as in a callback.
void runtime::settle(communicator_actors& which) {
  if (no_waiting::here()) return;
  struct hearing {
    std::atomic<std::size_t> unread;
    completion all;
  };
  const auto& cells = which.table->cells();
  const auto heard = std::make_shared<hearing>();
  heard->unread = cells.size();
  for (const auto& cell : cells)
    cell->tell_now(rank_order{[heard](rank_state&, rank_outbox&) {
      if (--heard->unread == 0) heard->all.complete(nullptr);
    }});
  wait({heard, &heard->all});
}

void runtime::abort_those_in_use(const failure_ptr& why) {
  std::vector<communicator_actors_ptr> in_use;
  {
    const std::lock_guard lock(hidden_->communicators_mutex);
    for (const auto& c : hidden_->communicators)
      if (auto m = c.members.lock(); m && m->links != nullptr && !m->ended.load() && !m->all_left_here())
        in_use.push_back(std::move(m));
  }
  for (const auto& m : in_use) {
    settle(*m);
    if (m->all_left_here()) continue;
    m->abort(why);
    for (const auto& cell : m->table->cells()) cell->leave();  // their handles may live on, and call nothing any more
  }
}

void runtime::abort_all(const failure_ptr& why) {
  {
    const std::lock_guard lock(hidden_->communicators_mutex);
    for (const auto& c : hidden_->communicators)
      if (const auto m = c.members.lock(); m && !m->ended.load()) m->abort(why);
  }
  hidden_->flows->end_all(why);
}

// -- waiting ----------------------------------------------------------------------------------------------------------

namespace {

/// Where a caller sleeps: known to what it waits for, and to what it may have to do itself.
class sleeping_caller {
public:
  sleeping_caller(completion& what, waiting_work* own) : what_(what), own_(own) {
    if (own_ != nullptr) own_->enter(place);
    try {
      static_cast<void>(what_.enter(place));  // false: done, which its caller sees
    } catch (...) {
      if (own_ != nullptr) own_->leave(place);
      throw;
    }
  }
  ~sleeping_caller() {
    what_.leave(place);
    if (own_ != nullptr) own_->leave(place);
  }
  sleeping_caller(const sleeping_caller&) = delete;
  sleeping_caller& operator=(const sleeping_caller&) = delete;

  parker place;

private:
  completion& what_;
  waiting_work* own_;
};

/// The rank that a caller waits for an operation of.
class turns_of_rank final : public waiting_work {
public:
  turns_of_rank(rank_cell& cell, const completion& what) : cell_(cell), what_(what) {}
  void enter(parker& place) override { cell_.enter_wait(place); }
  void leave(parker& place) override {
    cell_.leave_wait(place);
    // It may have been woken for what others wait for, or nobody does.
    if (cell_.wants_turn()) cell_.help_briefly();
  }
  bool wants() const noexcept override { return cell_.wants_turn(); }
  void work(steady_time deadline) override {
    cell_.help(what_, deadline);
    // Given back by this caller itself: the attendant's from here on, until a message comes.
    if (!what_.done()) cell_.leave_to_attendant();
  }

private:
  rank_cell& cell_;
  const completion& what_;
};

/// A caller of a job sleeps where it hears the other processes itself, as long as that does not take long.
class among_processes final : public sleeping_room {
public:
  explicit among_processes(job_links* job) : job_(job) {}
  bool sleep(parker& place, steady_time until) noexcept override {
    if (!long_) {
      const mesh::slept how = job_->sleep(place, until);
      if (how == mesh::slept::woken) return std::chrono::steady_clock::now() < until;
      long_ = how == mesh::slept::in_vain;
    }
    static_cast<void>(job_->rest());  // what it reads wakes this thread, if that is whom it concerns
    return place.park(until);
  }

private:
  job_links* job_;
  bool long_ = false;
};

}  // namespace

bool runtime::wait(const completion_ptr& what, steady_time deadline, const run_threads* run, int yields,
                   rank_cell* own) {
  if (what->done()) return true;
  if (own == nullptr) return wait(what, deadline, run, yields, static_cast<waiting_work*>(nullptr));
  turns_of_rank work{*own, *what};
  return wait(what, deadline, run, yields, &work);
}

bool runtime::wait(const completion_ptr& what, steady_time deadline, const run_threads* run, int yields,
                   waiting_work* own) {
  if (what->done()) return true;
  check_may_wait();
  sleeping_caller here{*what, own};
  among_processes processes{hidden_->job.get()};
  sleeping_room* const room = hidden_->job ? &processes : nullptr;
  const auto over = [&] { return what->done() || (own != nullptr && own->wants()); };
  const bool for_good = run != nullptr && is_in_run(*run) && deadline == no_deadline;
  bool registered = false;
  for (auto pause = patience; !what->done();) {
    const steady_time look = std::min(deadline, std::chrono::steady_clock::now() + pause);
    const help_result result =
        hidden_->agenda.help_until(here.place, over, look, {yields != no_looks, std::max(yields, 0), room});
    if (result == help_result::done && !what->done()) {
      own->work(deadline);
      if (deadline != no_deadline && std::chrono::steady_clock::now() >= deadline) break;
      continue;
    }
    if (result != help_result::timeout || std::chrono::steady_clock::now() >= deadline) break;
    if (for_good && !registered) {
      my_place.in->waits(my_place.rank, what);
      registered = true;
    }
    look_for_trouble();
    pause = std::min(pause * 3 / 2, longest_patience);
  }
  if (registered) my_place.in->waits(my_place.rank, nullptr);
  return what->done();
}

void runtime::refuse_to_wait() {
  throw error(errc::invalid_argument,
              "a blocking call or a wait inside a callback or an actor's handler would block the actor that it "
              "waits for; use the asynchronous form and react to its completion instead");
}

void runtime::help_briefly() {
  if (scheduler::in_handler() || rank_cell::in_callback()) return;  // a callback that asks how things are
  for (int i = 0; i < 64 && hidden_->agenda.help_one(); ++i) {}
}

/// Called by threads that have waited for a while. Where nothing is ready, running or held back, nothing ever will be unless
/// somebody calls: what is agreed on and not performed has lost a message; and if all threads of a run wait, what is not agreed on
/// lacks a call that cannot come any more. By the time the actors hear of it there may be new calls: confirm() sorts them out.
void runtime::look_for_trouble() {
  struct view {
    std::shared_ptr<communicator_actors> members;
    std::shared_ptr<run_threads> run;
    look_t look;
    bool nobody_else;
    std::uint64_t let_go;
  };
  if (hidden_->agenda.active() != 0) return;
  std::vector<view> views;  // outlives the lock: the last user of a communicator runs callbacks
  const std::unique_lock lock(hidden_->communicators_mutex, std::try_to_lock);
  const auto now = std::chrono::steady_clock::now();
  if (!lock || now < hidden_->next_look) return;  // another thread has just looked
  hidden_->next_look = now + patience / 2;
  for (const hidden::known_communicator& c : hidden_->communicators) {
    const auto members = c.members.lock();
    // The ranks of other processes cannot be seen from here.
    if (!members || members->links != nullptr || members->ended.load() ||
        !(members->has_actors() || members->table->any_pending()))
      continue;
    const auto run = c.run.lock();
    views.push_back({members, run, members->looks.fetch_add(1) + 1, run && run->all_wait(), members->let_go.load()});
  }
  // The order matters: looks begin, then everything is seen idle, then the threads are seen still to wait.
  if (hidden_->agenda.active() != 0) return;
  for (const view& v : views)
    if (v.members->held_back.load() == v.let_go && v.members->table->stands_still())
      if (const caf::actor& membership = v.members->membership())
        post(membership, stuck_message{v.look, v.nobody_else && v.run->all_wait()});
}

runtime::submitting::submitting(runtime& on) {
  static_assert(sizeof(scheduler::driving) <= sizeof(room_));
  new (room_) scheduler::driving(on.hidden_->agenda);
}
runtime::submitting::~submitting() { std::launder(reinterpret_cast<scheduler::driving*>(room_))->~driving(); }

void runtime::enter_run(std::shared_ptr<run_threads> in, int rank) { my_place = {std::move(in), rank}; }
bool runtime::is_in_run(const run_threads& which) { return my_place.in.get() == &which; }
void runtime::leave_run() {
  if (my_place.in) my_place.in->finished(my_place.rank);
  my_place = {};
}

std::vector<std::string> runtime::traced_routes() const {
  return hidden_->ways ? hidden_->ways->traced() : std::vector<std::string>{};
}
std::vector<element_traffic> runtime::traffic() const {
  return hidden_->ways ? hidden_->ways->traffic() : std::vector<element_traffic>{};
}

}  // namespace troupe::actors
