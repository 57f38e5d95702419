// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "actors/caf/caf_compat.hpp"
#include "actors/caf/ready_queue.hpp"
#include "actors/waiting/parking.hpp"
#include "actors/waiting/policy.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace troupe::actors {

class timer_clock;

struct scheduler_options {
  /// Threads of the scheduler's own, each started when there is work nobody else takes. 0: only callers run actors.
  std::size_t workers = 0;
  /// Messages an actor may consume before it goes to the end of the queue.
  std::size_t max_throughput = 32;
  /// How often an idle thread looks again before it sleeps (waiting_policy); one look costs about 10–50 ns. 0 on a machine with one core.
  std::uint32_t spin = 64;
  /// Threads that may look at the same time; the others sleep at once. 0: half of the cores, at least one.
  std::uint32_t searchers = 0;
  /// Ready actors that a thread which is about to run the queue keeps for itself before it wakes another thread.
  std::size_t backlog = 1;
  /// Ready actors the ring holds before it overflows into a slower list.
  std::size_t ring = 1024;
  /// How long `stop` still runs ready actors, so that they can handle their exit messages.
  std::chrono::milliseconds grace{100};
};

enum class help_result {
  done,     ///< the condition holds
  timeout,  ///< the deadline passed first
  stopped   ///< the actor system is being destroyed
};

/// How a thread helps while it waits.
struct helping {
  bool looks = true;  ///< before it sleeps: as often as the options say
  /// Then it gives its core away so often: for callers that share cores with those they wait for. Nobody is woken for an actor while
  /// one of those is about.
  int yields = 0;
  sleeping_room* room = nullptr;  ///< where it sleeps, woken at `place`; null: there
};

/// CAF scheduler in which callers help: a thread that waits for something runs ready actors itself until its condition
/// holds, so a small operation needs no thread switch. Idle threads sleep; an idle engine uses no CPU: there is no tick.
///
/// Threads. A *driver* is a thread that currently runs the queue: a worker, or a caller inside `help_until`, `help_one` or a
/// `driving` scope. At most one wake-up is under way at a time: a thread that finds work wakes the next one if there is more
/// (see parking.hpp). A driver that makes one actor ready wakes nobody, it runs that actor next; a handler that is about to
/// compute for long calls `before_long_work()` first. A driver that leaves hands over what is still ready.
///
/// With `workers == 0` actors run only while somebody helps: an actor system must then be emptied with `finish()` before
/// its destructor waits for its actors.
///
/// All members are thread-safe unless they say otherwise. Cost of submit, run and complete on one thread: three
/// read-modify-writes on shared words besides CAF's own.
class scheduler final : public hosted_scheduler {
public:
  // -- construction, by make_actor_system() ------------------

  scheduler(caf::actor_system& system, const scheduler_options& options);
  ~scheduler() override;
  scheduler(const scheduler&) = delete;
  scheduler& operator=(const scheduler&) = delete;

  /// The scheduler of a system that the function below made. Throws std::logic_error if it runs another one.
  static scheduler& of(caf::actor_system& system);

  // -- helping ----------------------------------------------------------------

  /// Runs ready actors until `done()`, sleeping at `place` when nothing is ready. The thread that makes `done()` true calls
  /// `place.wake()` afterwards. `done` is called often and from this thread only: it must be cheap and must not throw.
  /// @pre no other thread waits at `place`. Throws std::logic_error when called from an actor's handler: that would block
  /// the actor, and the stack would grow with every nested wait.
  template <class Done>
  help_result help_until(parker& place, Done&& done, steady_time deadline = no_deadline, const helping& how = {}) {
    using predicate = std::remove_reference_t<Done>;
    const auto call = [](void* f) -> bool { return (*static_cast<predicate*>(f))(); };
    return drive(place, condition{call, const_cast<void*>(static_cast<const void*>(std::addressof(done)))}, deadline,
                 false, how);
  }

  /// The same until the token completes. After `timeout` or `stopped` the token is still referred to by the thread that will complete
  /// it: keep it alive until it was unlinked or completed.
  help_result help_until(wait_token& token, steady_time deadline = no_deadline) {
    return help_until(
        token, [&token] { return token.done(); }, deadline);
  }

  /// Whether an actor is ready, about; costs two loads.
  bool has_ready() const noexcept { return !queue_.empty(); }

  /// Runs one ready actor, if there is one. Throws as `help_until`.
  bool help_one();

  /// Helps until no actor registered with the system is left (hidden ones do not count): call before destroying a system without
  /// workers, after every actor was told to quit.
  help_result finish(steady_time deadline = no_deadline);

private:
  struct unit;
  struct driver {
    scheduler* owner;
    driver* outer;  // what this thread drove before, possibly the same scheduler
    unit* context;  // what resumed actors see as their execution unit
    std::size_t backlog;
    bool in_handler;
  };

public:
  enum class wake_others {
    when_busy,  ///< when more than `scheduler_options::backlog` actors are ready
    at_end      ///< nobody until the scope ends
  };

  /// Marks the calling thread as one that will run what it makes ready: open it before submitting and wait inside it, and the
  /// submission wakes nobody. At the end of the outermost scope what is still ready is handed to another thread.
  /// Must be destroyed by the thread that made it, in reverse order, before the scheduler stops.
  class driving {
  public:
    explicit driving(scheduler& owner, wake_others policy = wake_others::when_busy);
    ~driving();
    driving(const driving&) = delete;
    driving& operator=(const driving&) = delete;

  private:
    friend class scheduler;
    driver self_;
    bool outermost_;
  };

  /// For handlers: "I shall be busy for more than a few microseconds". Wakes another thread if an actor is ready. Does
  /// nothing on a thread that drives no scheduler. Cost when nothing is ready: three loads.
  static void before_long_work() noexcept;

  /// True while this thread runs an actor's handler on any scheduler of this kind.
  static bool in_handler() noexcept;

  // -- what is going on ---------------------------------------------------------

  /// One consistent observation. `active == 0 && timers == 0` and an unchanged `progress` afterwards: nothing can happen any more
  /// unless a thread from outside sends something.
  struct activity {
    std::size_t active;      ///< actors that are ready or running
    std::uint64_t progress;  ///< resumes so far, modulo 2^40
  };
  activity observe() const noexcept;
  std::size_t active() const noexcept { return observe().active; }
  std::uint64_t progress() const noexcept { return observe().progress; }
  /// Timeouts and delayed messages that are pending. CAF does not take back a request's timeout when the response arrives: it
  /// stays pending (and is ignored when due) until its time or the end of the actor that asked.
  std::size_t timers() const noexcept;

  std::size_t threads_started() const noexcept { return started_.load(std::memory_order_relaxed); }
  std::size_t parked_threads() const noexcept { return idle_.parked_threads(); }
  /// How often a sleeping thread was woken for work; stays put while the system is idle.
  std::uint64_t wakes() const noexcept { return idle_.wakes(); }
  const scheduler_options& options() const noexcept { return options_; }

  // -- for CAF ------------------------------------------------------------------

  /// Takes over one reference to `job`.
  void enqueue(caf::resumable* job) override;
  caf::actor_clock& clock() noexcept override;
  /// Ends helpers (they return `stopped`), joins the threads, runs ready actors for at most `grace`, then cleans up the rest.
  /// Bounded by the longest handler under way plus `grace`.
  void stop() override;

private:
  struct threads;
  struct units;
  struct condition {
    bool (*call)(void*);
    void* function;
    bool operator()() const { return call(function); }
  };

  help_result drive(parker& place, condition done, steady_time deadline, bool searching, const helping& how);
  void run(driver& self, caf::resumable* job) noexcept;
  void found_work(bool searching) noexcept;
  bool look_again(wait_course& course, bool& searching) noexcept;
  bool sleep(parker& place, condition done, steady_time deadline, bool& searching, sleeping_room* room) noexcept;
  void leave(bool searching) noexcept;
  void wake() noexcept;
  void start_worker() noexcept;
  void work() noexcept;
  void wait_for_helpers() noexcept;
  void drain(steady_time run_until) noexcept;
  bool drives() const noexcept;

  static constexpr std::uint64_t one_active = 1;
  static constexpr std::uint64_t one_resume = std::uint64_t{1} << 24;

  caf::actor_system& system_;
  scheduler_options options_;
  ready_queue<caf::resumable> queue_;
  idle_set idle_;
  /// Low 24 bits: ready or running. High 40: resumes. One word, so that both are read and changed at once.
  alignas(64) std::atomic<std::uint64_t> activity_{0};
  alignas(64) std::atomic<bool> stopping_{false};  // helpers and workers leave
  std::atomic<bool> stopped_{false};               // nobody runs the queue any more: enqueue cleans up in place
  std::atomic<std::size_t> started_{0};
  std::unique_ptr<units> units_;
  std::unique_ptr<threads> threads_;
  std::unique_ptr<timer_clock> clock_;
};

/// An actor system that runs on this scheduler. `config` must outlive it.
caf::actor_system make_actor_system(caf::actor_system_config& config, const scheduler_options& options);

}  // namespace troupe::actors
