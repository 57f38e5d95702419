// SPDX-License-Identifier: Apache-2.0
#pragma once
// CAF scheduler of virtual time: one thread, a virtual clock, and a queue of events.
//
// The order of everything. An event is a message at a time. The event that is due first is taken; of equal times the one that was
// caused first. The clock moves to its time, and its message is handled: a state that has no use for a mailbox, because nobody but the
// clock sends to it, by a call; an actor of CAF's by way of its mailbox, and then every actor that is ready runs, in the order in which
// they became ready, until none is. Only then comes the next event. Ordinary CAF messages between actors thus take no virtual time, and
// what happens depends on nothing but what was caused in which order: the same program gives the same trace, bit for bit.
//
// A call costs a few nanoseconds, a mailbox some 200, and an actor of CAF's microseconds to make: runs of a million ranks are made of states.
//
// Delayed messages and timeouts of CAF (`delayed_send`, `request` with a time) are kept by virtual_clock and are due at virtual
// times too, before events of the same time.

#include <caf/actor.hpp>
#include <caf/actor_cast.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "actors/caf/caf_compat.hpp"
#include "actors/virtual/event_queue.hpp"

namespace troupe::actors {

class virtual_scheduler final : public hosted_scheduler {
public:
  using time_type = std::int64_t;  ///< picoseconds since the begin

  /// Of states alone: no actor system, which would take longer to make than a small run takes.
  virtual_scheduler();
  explicit virtual_scheduler(caf::actor_system& system);
  ~virtual_scheduler() override;

  /// The scheduler of a system that make_virtual_actor_system() made. Throws std::logic_error if it runs another one.
  static virtual_scheduler& of(caf::actor_system& system);

  time_type now() const noexcept { return now_; }
  std::uint64_t events() const noexcept { return events_; }
  /// Hash over every event so far, in order: its time, its receiver (an actor by the order of their making) and its message.
  std::uint64_t trace() const noexcept { return trace_; }

  /// At `time`, `to` gets `what`. The actor must stay alive until then: events hold no references. Times that are past are now.
  /// Message types are small and trivially copyable: an event is copied, not allocated.
  template <class Message>
  void at(time_type time, const caf::actor& to, const Message& what) {
    at(time, *caf::actor_cast<caf::abstract_actor*>(to), what);
  }
  template <class Message>
  void at(time_type time, caf::abstract_actor& to, const Message& what) {
    static constexpr handling how{[](const event& due, caf_context* context) {
                                    actors::deliver(*static_cast<caf::abstract_actor*>(due.to), context,
                                                    message_of<Message>(due));
                                  },
                                  nullptr};
    push<Message>(time, &to, to.id(), what, how);
  }
  /// The same for a state, which gets to.handle(what). `number` stands for it in the trace. The handler must not throw what the
  /// run's owner is not to see: it leaves run(). A state that has `expect(what, n)` is told of what comes n events later, perhaps, if
  /// looks_ahead(): time to fetch what it will touch.
  template <class State, class Message>
  void tell(time_type time, State& to, std::uint32_t number, const Message& what) {
    static constexpr auto expect = [] {
      void (*tells)(const event&, int) = nullptr;
      if constexpr (requires { to.expect(what, 0); })
        tells = [](const event& due, int n) { static_cast<State*>(due.to)->expect(message_of<Message>(due), n); };
      return tells;
    }();
    static constexpr handling how{
        [](const event& due, caf_context*) { static_cast<State*>(due.to)->handle(message_of<Message>(due)); }, expect};
    push<Message>(time, &to, number, what, how);
  }
  /// The same for callers that know how: `to` is a handle that leads to either (traffic.hpp, rank_address).
  template <class Handle, class Message>
    requires requires(virtual_scheduler& time, const Handle& to, const Message& what) {
      to.later(time, time_type{}, what);
    }
  void at(time_type time, const Handle& to, const Message& what) { to.later(*this, time, what); }

  /// Runs until no event is left and no actor is ready, or `go_on` (called every `every` events) says no. Returns whether all is
  /// done.
  template <class GoOn>
  bool run(std::uint64_t every, GoOn go_on) {
    run_ready();
    for (std::uint64_t until = events_ + every; step();)
      if (events_ >= until) {
        until = events_ + every;
        if (!go_on()) return false;
      }
    return true;
  }
  bool run() {
    return run(~std::uint64_t{0} / 2, [] { return true; });
  }

  /// For runs whose states do not fit into the caches. Changes no event.
  void looks_ahead(bool on) noexcept { looks_ahead_ = on; }
  static constexpr int farthest_look = 8;

  // -- for CAF --
  void enqueue(caf::resumable* job) override;
  caf::actor_clock& clock() noexcept override;
  void stop() override;

private:
  struct event;
  struct handling {
    void (*deliver)(const event&, caf_context*);
    void (*expect)(const event&, int);  ///< may be null
  };
  struct event {
    static constexpr std::size_t room = 16;
    void* to;
    const handling* how;
    alignas(8) unsigned char what[room];
    std::uint32_t number;  ///< of its receiver
  };
  class unit;
  class virtual_clock;

  template <class Message>
  static Message message_of(const event& due) {
    Message message;
    std::memcpy(static_cast<void*>(&message), due.what, sizeof message);
    return message;
  }
  template <class Message>
  void push(time_type time, void* to, std::uint64_t number, const Message& what, const handling& how) {
    static_assert(std::is_trivially_copyable_v<Message> && sizeof(Message) <= event::room);
    // note() hashes its bytes.
    static_assert(std::is_empty_v<Message> || std::has_unique_object_representations_v<Message>);
    event e{to, &how, {}, static_cast<std::uint32_t>(number)};
    if constexpr (!std::is_empty_v<Message>) std::memcpy(e.what, &what, sizeof what);
    events_due_.push(time < now_ ? now_ : time, e);
  }

  bool step();
  void note(const event& what) noexcept;
  void run_ready();

  time_type now_ = 0;
  std::uint64_t events_ = 0;
  std::uint64_t trace_ = 0;
  event_queue<event> events_due_;
  std::vector<caf::resumable*> ready_;  ///< from next_ready_ on
  std::size_t next_ready_ = 0;
  bool stopped_ = false, looks_ahead_ = false;
  std::unique_ptr<unit> unit_;
  std::unique_ptr<virtual_clock> clock_;
};

/// An actor system in virtual time. `config` must outlive it.
caf::actor_system make_virtual_actor_system(caf::actor_system_config& config);

}  // namespace troupe::actors
