// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Everything whose spelling depends on the version of CAF: 0.17 (Debian 12's) and 1.x. With its source, and cmake/FindCAF.cmake, it is the
/// only place of the library that knows which one it is.
///
///  here                                       0.17                                    1.x
///  TROUPE_BEGIN_MESSAGES … TROUPE_END_…       CAF_ALLOW_UNSAFE_MESSAGE_TYPE           and a type id block, registered when loaded
///  spawn_actor(where, function)               works round a defect                    where.spawn(function)
///  post, post_exit, post_later, ask           anon_send, send_exit, … request         mail(…)
///  on_down, on_exit_message                   set_down_handler, set_exit_handler      the same; before on_exit()
///  execution_context, job                     execution_unit, resumable               scheduler, resumable
///  make_actor_system                          a module of the configuration           custom set-up of the system
///  scheduled_clock                            timeouts, messages; one override each   actions
///
/// Deliberately includes only the core of CAF that declares names: a translation unit that spawns actors includes
/// <caf/event_based_actor.hpp> or <caf/stateful_actor.hpp> itself, because each costs seconds to compile.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/config.hpp>
#include <caf/detail/type_traits.hpp>
#include <caf/exit_reason.hpp>
#include <caf/fwd.hpp>
#include <caf/mailbox_element.hpp>
#include <caf/message_id.hpp>
#include <caf/resumable.hpp>
#include <caf/send.hpp>
#include <caf/spawn_options.hpp>

// 1.x says CAF_VERSION_MAJOR, and its CAF_VERSION is no number to compare with.
#if !defined(CAF_VERSION_MAJOR) && CAF_VERSION >= 1700 && CAF_VERSION < 1800
#define TROUPE_CAF_0 1
#include <caf/detail/simple_actor_clock.hpp>
#include <caf/execution_unit.hpp>
#elif defined(CAF_VERSION_MAJOR) && CAF_VERSION_MAJOR == 1
#define TROUPE_CAF_0 0
#include <caf/abstract_actor.hpp>
#include <caf/action.hpp>
#include <caf/actor_cast.hpp>
#include <caf/actor_clock.hpp>
#include <caf/anon_mail.hpp>
#include <caf/disposable.hpp>
#include <caf/init_global_meta_objects.hpp>
#include <caf/scheduler.hpp>
#include <caf/type_id.hpp>
#include <map>
#else
#error "Troupe is written for CAF 0.17 and 1.x"
#endif

// -- messages ---------------------------------------------------------------------------------------------------------

/// A block of messages that travel inside this process only: pointers and references stay valid, nothing is serialised. At global
/// namespace scope, before the first message of these types is made:
///   TROUPE_BEGIN_MESSAGES(block, first)            `first`: number of its first type, of its own in the program
///   TROUPE_LOCAL_MESSAGE(block, fully::qualified)  one a type
///   TROUPE_END_MESSAGES(block)
/// CAF 1.x numbers types. Ours begin far above where programs begin with theirs; the blocks are
///   0 messages.hpp   40 flow_keeper.cpp   50 function_watch.cpp   60 fabric.hpp   80 caf_interface.hpp   90 rank_shell.cpp   100 actors/virtual   200 tests and benchmarks
#if TROUPE_CAF_0
#define TROUPE_BEGIN_MESSAGES(block, first)
#define TROUPE_LOCAL_MESSAGE(block, type) CAF_ALLOW_UNSAFE_MESSAGE_TYPE(type)
#define TROUPE_END_MESSAGES(block)
#else
#define TROUPE_BEGIN_MESSAGES(block, first)                                                                            \
  CAF_BEGIN_TYPE_ID_BLOCK(block, ::caf::first_custom_type_id + 10000 + (first))
#define TROUPE_LOCAL_MESSAGE(block, type)                                                                              \
  CAF_ALLOW_UNSAFE_MESSAGE_TYPE(type)                                                                                  \
  CAF_ADD_TYPE_ID(block, (type))
#define TROUPE_END_MESSAGES(block)                                                                                     \
  CAF_END_TYPE_ID_BLOCK(block)                                                                                         \
  namespace troupe::actors {                                                                                           \
  inline const bool block##_registered = register_messages<::caf::id_block::block>();                                  \
  }
#endif

namespace troupe::actors {

#if !TROUPE_CAF_0
/// Before main(), because CAF wants its table complete before the first actor system.
template <class Block>
bool register_messages() {
  caf::core::init_global_meta_objects();
  caf::init_global_meta_objects<Block>();
  return true;
}
#endif

/// The scheduler's unit that resumes an actor, as the actor sees it.
#if TROUPE_CAF_0
using caf_context = caf::execution_unit;
#else
using caf_context = caf::scheduler;
#endif

// -- sending ----------------------------------------------------------------------------------------------------------

/// Sends without a sender; from anywhere. Thread-safe.
template <class Handle, class... Parts>
void post(const Handle& to, Parts&&... parts) {
#if TROUPE_CAF_0
  caf::anon_send(to, std::forward<Parts>(parts)...);
#else
  caf::anon_mail(std::forward<Parts>(parts)...).send(to);
#endif
}
template <class Handle, class... Parts>
void post_later(const Handle& to, std::chrono::nanoseconds delay, Parts&&... parts) {
#if TROUPE_CAF_0
  caf::delayed_anon_send(to, delay, std::forward<Parts>(parts)...);
#else
  // Its own delay() counts from the real time, whatever clock the system has.
  const auto now = caf::actor_cast<caf::abstract_actor*>(to)->home_system().clock().now();
  caf::anon_mail(std::forward<Parts>(parts)...).schedule(now + delay).send(to);
#endif
}
template <class Handle>
void post_exit(const Handle& to, caf::exit_reason why) {
  caf::anon_send_exit(to, why);
}
/// A request of `self`; what it returns has then() for actors and receive() for scoped ones. A limit of no length: none.
template <class Self, class Handle, class Duration, class... Parts>
auto ask(Self& self, const Handle& to, Duration limit, Parts&&... parts) {
#if TROUPE_CAF_0
  return self.request(to, limit, std::forward<Parts>(parts)...);
#else
  return self.mail(std::forward<Parts>(parts)...).request(to, limit);
#endif
}

/// Puts a message into a mailbox, as it is when it arrives.
template <class Message>
void deliver(caf::abstract_actor& to, caf_context* context, const Message& what) {
#if TROUPE_CAF_0
  to.enqueue(caf::make_mailbox_element(nullptr, caf::make_message_id(), {}, what), context);
#else
  to.enqueue(caf::make_mailbox_element(nullptr, caf::make_message_id(), caf::make_message(what)), context);
#endif
}

// -- actors -----------------------------------------------------------------------------------------------------------

/// `where.spawn(function)` for a function (or function object) without arguments besides the optional self pointer. CAF 0.17
/// dereferences a null pointer to the empty argument tuple there: harmless in practice, but undefined, and libstdc++'s
/// assertions and UBSan stop at it. So there is always one argument. `where`: an actor system, or an actor (`*self`).
template <caf::spawn_options Options = caf::no_spawn_options, class Where, class Function>
auto spawn_actor(Where& where, Function function) {
#if TROUPE_CAF_0
  struct unused {};
  using arguments = typename caf::detail::get_callable_trait<Function>::type::arg_types;
  using self_pointer = typename caf::detail::tl_head<arguments>::type;
  if constexpr (std::is_pointer_v<self_pointer>)
    return where.template spawn<Options>([f = std::move(function)](self_pointer self, unused) { return f(self); },
                                         unused{});
  else return where.template spawn<Options>([f = std::move(function)](unused) { return f(); }, unused{});
#else
  return where.template spawn<Options>(std::move(function));
#endif
}

/// Spawn while one of these lives. CAF leaves the spawning thread a reference to the system's logger, until the thread spawns in
/// another system or ends; and the destructor of a system waits until nobody has one. So an engine that another thread destroys than
/// the one that made it would wait for ever.
struct lets_go_of_logger {
  lets_go_of_logger() = default;
  ~lets_go_of_logger();
  lets_go_of_logger(const lets_go_of_logger&) = delete;
  lets_go_of_logger& operator=(const lets_go_of_logger&) = delete;
};

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored                                                                                         \
    "-Wdeprecated-declarations"  // 1.x wants a callback for each monitored actor, and no handler of exits
/// Monitors `whom`, whose end comes to what on_down() was given.
template <class Self, class Handle>
void watch_actor(Self& self, const Handle& whom) {
  self.monitor(whom);
}
template <class Self, class Callback>
void on_down(Self& self, Callback callback) {
  self.set_down_handler(std::move(callback));
}
template <class Self, class Callback>
void on_exit_message(Self& self, Callback callback) {
  self.set_exit_handler(std::move(callback));
}
#pragma GCC diagnostic pop

// -- clocks -----------------------------------------------------------------------------------------------------------

/// A clock of an actor system: what CAF wants to be scheduled, which `Clock`, the class that derives from it, locks and delivers. `Clock` has
///   add(due, f)   calls f(), which keeps an entry for that time
///   remove(f)     calls f(), which drops some
///   drop_all()    as CAF's cancel_all()
/// Not synchronised.
#if TROUPE_CAF_0
template <class Clock>
class scheduled_clock : public caf::detail::simple_actor_clock {
public:
  using entry = unique_delayed_event_ptr;

  void set_ordinary_timeout(time_point t, caf::abstract_actor* self, caf::atom_value type, std::uint64_t id) override {
    derived().add(t, [&] { simple_actor_clock::set_ordinary_timeout(t, self, type, id); });
  }
  void set_multi_timeout(time_point t, caf::abstract_actor* self, caf::atom_value type, std::uint64_t id) override {
    derived().add(t, [&] { simple_actor_clock::set_multi_timeout(t, self, type, id); });
  }
  void set_request_timeout(time_point t, caf::abstract_actor* self, caf::message_id id) override {
    derived().add(t, [&] { simple_actor_clock::set_request_timeout(t, self, id); });
  }
  void schedule_message(time_point t, caf::strong_actor_ptr receiver, caf::mailbox_element_ptr content) override {
    derived().add(t, [&] { simple_actor_clock::schedule_message(t, std::move(receiver), std::move(content)); });
  }
  void schedule_message(time_point t, caf::group target, caf::strong_actor_ptr sender, caf::message content) override {
    derived().add(
        t, [&] { simple_actor_clock::schedule_message(t, std::move(target), std::move(sender), std::move(content)); });
  }
  void cancel_ordinary_timeout(caf::abstract_actor* self, caf::atom_value type) override {
    derived().remove([&] { simple_actor_clock::cancel_ordinary_timeout(self, type); });
  }
  void cancel_request_timeout(caf::abstract_actor* self, caf::message_id id) override {
    derived().remove([&] { simple_actor_clock::cancel_request_timeout(self, id); });
  }
  /// Every actor that ends comes here.
  void cancel_timeouts(caf::abstract_actor* self) override {
    derived().remove([&] { simple_actor_clock::cancel_timeouts(self); });
  }
  void cancel_all() override { derived().drop_all(); }

protected:
  std::size_t entries() const { return schedule_.size(); }
  /// Without those that were cancelled.
  std::size_t live_entries() const { return schedule_.size(); }
  bool has_entries() const { return !schedule_.empty(); }
  /// @pre there are some
  time_point first_due() const { return schedule_.begin()->first; }
  /// @pre there are some
  entry take_first() {
    const auto first = schedule_.begin();
    if (first->second->backlink != actor_lookup_.end()) actor_lookup_.erase(first->second->backlink);
    entry taken = std::move(first->second);
    schedule_.erase(first);
    return taken;
  }
  void perform(entry& what) { ship(*what); }
  /// All of them: an entry may hold the last reference to an actor, and is better destroyed outside a lock.
  schedule_map take_all() {
    actor_lookup_.clear();
    return std::exchange(schedule_, {});
  }

private:
  Clock& derived() { return static_cast<Clock&>(*this); }
};
#else
template <class Clock>
class scheduled_clock : public caf::actor_clock {
public:
  using entry = caf::action;

  using caf::actor_clock::schedule;
  caf::disposable schedule(time_point t, caf::action what) override {
    static_cast<Clock&>(*this).add(t, [&] { schedule_.emplace(t, what); });
    return std::move(what).as_disposable();
  }

protected:
  /// With those that were disposed of: they are forgotten when they are due.
  std::size_t entries() const { return schedule_.size(); }
  std::size_t live_entries() const {
    std::size_t live = 0;
    for (const auto& [due, what] : schedule_) live += what.disposed() ? 0 : 1;
    return live;
  }
  bool has_entries() const { return !schedule_.empty(); }
  time_point first_due() const { return schedule_.begin()->first; }
  entry take_first() {
    entry taken = std::move(schedule_.begin()->second);
    schedule_.erase(schedule_.begin());
    return taken;
  }
  void perform(entry& what) { what.run(); }
  std::multimap<time_point, caf::action> take_all() { return std::exchange(schedule_, {}); }

private:
  std::multimap<time_point, caf::action> schedule_;
};
#endif

// -- the scheduler's side ---------------------------------------------------------------------------------------------

/// The same, for the schedulers of this project to derive from.
#if TROUPE_CAF_0
class execution_context : public caf_context {
public:
  explicit execution_context(caf::actor_system& system) : caf_context(&system) {}
  /// Takes over one reference.
  virtual void enqueue(caf::resumable* what) = 0;

private:
  void exec_later(caf::resumable* what) final { enqueue(what); }
};
#else
class execution_context : public caf_context {
public:
  explicit execution_context(caf::actor_system&) {}
  /// Takes over one reference.
  virtual void enqueue(caf::resumable* what) = 0;

private:
  void schedule(caf::resumable* what) final { enqueue(what); }
  void delay(caf::resumable* what) final { enqueue(what); }
  void start() final {}
  void stop() final {}
};
#endif

/// Something other than an actor that a scheduler runs once. Counts its references; made by `new`, with one.
class job : public caf::resumable {
public:
  virtual void run() = 0;

  resume_result resume(caf_context*, std::size_t) final {
    run();
    return caf::resumable::done;
  }
#if TROUPE_CAF_0
  subtype_t subtype() const final { return caf::resumable::function_object; }
  void intrusive_ptr_add_ref_impl() final { references_.fetch_add(1); }
  void intrusive_ptr_release_impl() final { release(); }
#else
  subtype_t subtype() const noexcept final { return caf::resumable::function_object; }
  void ref_resumable() const noexcept final { references_.fetch_add(1); }
  void deref_resumable() const noexcept final { release(); }
#endif

private:
  void release() const noexcept {
    if (references_.fetch_sub(1) == 1) delete this;
  }
  mutable std::atomic<int> references_{1};
};

/// What runs the actors of a system.
class hosted_scheduler {
public:
  virtual ~hosted_scheduler() = default;
  /// Takes over one reference.
  virtual void enqueue(caf::resumable* what) = 0;
  virtual caf::actor_clock& clock() noexcept = 0;
  /// Nothing is enqueued by a thread of its own afterwards.
  virtual void stop() = 0;
};

/// Null: CAF's own.
hosted_scheduler* hosted_scheduler_of(caf::actor_system& system);
/// An actor system that runs on what `make` returns. `config` must outlive it.
caf::actor_system make_actor_system(caf::actor_system_config& config,
                                    const std::function<std::unique_ptr<hosted_scheduler>(caf::actor_system&)>& make);
/// CAF's own messages go nowhere.
void silence(caf::actor_system_config& config);
/// Of a thread that runs actors.
void thread_begins(caf::actor_system& system);
void thread_ends(caf::actor_system& system);

}  // namespace troupe::actors
