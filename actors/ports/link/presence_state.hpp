// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which processes of a job are here, have left, or are lost, as one of them knows it. No thread, socket or clock in here, so that
// every transition can be tested alone, and runs unchanged under simulation (engine/tools/simulate/job.hpp).
//
// Owner: the reader of the mesh's connections; alive() and registrar() may be asked by any thread. What may arrive, in any order:
//   heard(process)        something came from it
//   hears(process, …)     a connection from it stands, or has ended
//   ended(process, how)   a connection with it has ended, or cannot be opened, or carries what cannot be
//   leaves(process)       it has said so against the frames, in our connection to it: what it has sent in its own comes first
//   leaves(process)       it leaves, and has told so against the frames, in our connection to it: what it has sent in its own comes first
//   tick                  ten times in a silence
//   awake                 this process was stopped itself: what the others said meanwhile is not read yet
// Each says when; so a process that was stopped for nearly a silence sees that, whichever comes first.
//
// Each keeps a connection with the registrar, the first process that is left, and the registrar with each: so one process misses each that ends,
// and tells all. A process that loses another tells it, for it may only have been stopped and then has to give up, too. Loss is for good.
//
// The registrar believes everybody, and the others believe the registrar alone: else one that it has lost, and that does not know that yet, could
// accuse others, the registrar first of all. Each process judges by itself whether the registrar is lost.
//
// A process that hears that it is lost believes it, and loses everybody; so at most one part of the job goes on after a process was stopped. The registrar
// believes it only if it was stopped, or if all that are left tell it so; else it loses the accuser. A process that was stopped for nearly
// a silence takes the end of a connection for such a word, too: there may have been no room for the word.
//
// Want of memory. A loss counts even if it cannot be told; it is told with the next tick.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/ports/link/frames.hpp"
#include "actors/ports/link/roster.hpp"
#include "actors/waiting/parking.hpp"

namespace troupe::actors {

/// A process says "I am here" when it has said nothing for a tenth of the silence. It counts another as lost when it has not heard from that one for nearly
/// all of it: so a loss is noticed before the silence is over.
inline constexpr int looks_in_silence = 10;
/// For everybody's connection with the registrar to stand.
inline constexpr std::chrono::seconds first_contact{3};

/// What a presence says and does. Calls happen during its transitions, and must not call it back, but hears().
class presence_outbox {
public:
  virtual ~presence_outbox() = default;
  /// In the connection to that process, which is opened if there is none. To one that is not alive: nothing.
  virtual void tell(std::uint32_t to, const process_word& what) = 0;
  /// A connection to it stands.
  virtual bool can_hear(std::uint32_t process) = 0;
  /// Says "I am here", if a connection to it stands and nothing was said there since the last time.
  virtual void beat(std::uint32_t to) = 0;
  /// That this process has lost it, in the one byte that always gets there: tell() may find no room, or not be read any more.
  virtual void say_lost(std::uint32_t /*process*/) {}
  /// The others count this process as lost: it is going to lose them all. First, so that nobody takes the others for lost, and itself for
  /// the one who is left.
  virtual void expelled(const std::string& /*why*/) {}
  /// The connections of both directions.
  virtual void close(std::uint32_t process) = 0;
  /// Nothing more comes from it, and nothing gets there. Once, unless it throws.
  virtual void lost(std::uint32_t process, const std::string& how) = 0;
  /// The same of one that left in order; somewhat later.
  virtual void left(std::uint32_t process) = 0;
};

class presence_state {
public:
  /// @param all outlives the state
  presence_state(const roster& all, std::uint32_t here, std::chrono::milliseconds silence, steady_time now);

  void heard(std::uint32_t process, steady_time now) { runs(now), heard_[process] = now; }
  void hears(std::uint32_t process, bool stands, steady_time now);
  void ended(std::uint32_t process, const std::string& how, steady_time now, presence_outbox& out);
  void leaves(std::uint32_t process) { leavers_[process] = true; }
  /// Nothing more will come from one that leaves.
  void gone(std::uint32_t process, steady_time now, presence_outbox& out);
  /// False: it names what does not exist. @pre about processes: not gave_up, revoke, shrink
  bool word(std::uint32_t from, const process_word& what, steady_time now, presence_outbox& out);
  void tick(steady_time now, presence_outbox& out);
  void awake(steady_time now);
  /// The connections with the registrar, if there is another one than before.
  void greet(steady_time now, presence_outbox& out);
  /// Losses that could not be told when they happened. Throws std::bad_alloc: then they are told later.
  void tell_losses(steady_time now, presence_outbox& out);
  /// This process leaves: nothing is expected of anybody any more.
  void leave() { leaving_ = true; }

  bool alive(std::uint32_t process) const { return fate_[process].load() == fate::here; }
  /// Or this one.
  std::uint32_t registrar() const;
  std::uint32_t processes() const { return static_cast<std::uint32_t>(fate_.size()); }
  std::chrono::milliseconds between_ticks() const { return silence_ / looks_in_silence; }

private:
  enum class fate : std::uint8_t { here, left, lost };
  struct loss {
    bool told = true;
    bool alone = false;  ///< only here
    std::string how;
  };
  void lose(std::uint32_t process, const std::string& how, steady_time now, presence_outbox& out);
  struct accusation {
    std::uint32_t from, process;
    bool suspicion;  ///< said to the registrar; else by it
    std::string how;
  };
  void accuse(accusation what, steady_time now, presence_outbox& out);
  void judge(steady_time now, presence_outbox& out);
  void lose_all(const std::string& how, steady_time now, presence_outbox& out);
  /// Notices whether this process was stopped for as long as others need to lose it.
  void runs(steady_time now);
  bool woke_within(std::chrono::milliseconds time, steady_time now) const { return woke_ && now - *woke_ <= time; }
  bool is_last(std::uint32_t process) const;
  void set_lost(std::uint32_t process, const std::string& how, bool alone);
  void tell_loss(std::uint32_t process, steady_time now, presence_outbox& out);
  void look_for_silent(steady_time now, presence_outbox& out);

  const roster& all_;
  std::uint32_t here_;
  std::chrono::milliseconds silence_;
  std::vector<std::atomic<fate>> fate_;
  std::vector<bool> leavers_;       ///< have said that they leave; their frames may still come
  std::vector<bool> hears_;         ///< a connection from it stands
  std::vector<steady_time> heard_;  ///< last
  std::vector<loss> losses_;
  std::vector<std::pair<std::uint32_t, steady_time>> departed_;  ///< left lately; told with a later tick
  std::vector<accusation> accusations_;                          ///< not believed yet; each once
  std::uint32_t greeted_;                                        ///< the registrar that was; none at first
  steady_time greeted_at_;
  bool leaving_ = false;
  steady_time ran_;                  ///< last
  std::optional<steady_time> woke_;  ///< after it was stopped for nearly a silence
  struct {
    std::string how;
    steady_time when;
  } doubted_;  ///< of the registrar: somebody has taken it for lost; empty: nobody has
};

}  // namespace troupe::actors
