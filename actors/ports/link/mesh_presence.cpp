// SPDX-License-Identifier: Apache-2.0
// Which processes of a job are here, have left, or are lost.
#include <sys/epoll.h>

#include "actors/ports/link/mesh_connections.hpp"

namespace troupe::actors {

namespace {

using clock = std::chrono::steady_clock;

std::string seconds_text(std::chrono::milliseconds time) { return std::to_string(time.count()) + " ms"; }

}  // namespace

std::string name_of(const roster& in, std::uint32_t process) {
  const process_place& p = in.processes[process];
  const std::string last = std::to_string(p.first_rank + p.ranks - 1);
  return "process " + std::to_string(process) + " (" +
         (p.ranks == 1 ? "rank " + last : "ranks " + std::to_string(p.first_rank) + "–" + last) + ", pid " +
         std::to_string(p.pid) + " on host " + p.host + ")";
}

// -- who is here ------------------------------------------------------------------------------------------------------------

std::uint32_t mesh::registrar() const {
  for (std::uint32_t p = 0; p < processes(); ++p)
    if (p == here_ || alive(p)) return p;
  return here_;
}

/// Everybody keeps a connection with the registrar, in both directions, so that there is one who misses whoever ends.
void mesh::greet() {
  const std::uint32_t now = registrar();
  if (std::exchange(greeted_, now) == now) return;
  greeted_at_ = clock::now();
  if (now != here_) {
    tell(now, beat_word{});
    for (const auto& [process, how] : losses_) tell(now, suspect_word{process, how});
    return;
  }
  for (std::uint32_t p = 0; p < processes(); ++p) {
    if (p == here_) continue;
    tell(p, beat_word{});
    for (const auto& [process, how] : losses_) tell(p, lost_word{process, how});
  }
}

/// There is a connection from it.
bool mesh::hears(std::uint32_t process) const {
  return std::any_of(in_.begin(), in_.end(),
                     [process](const auto& way) { return way->known && !way->over && way->process == process; });
}

void mesh::lose(std::uint32_t process, const std::string& how) {
  if (leaving_.load()) return gone(process);  // nothing is expected of anybody any more
  if (process == here_ || !alive(process)) return;
  // It may only have been stopped: when it goes on it must hear that nobody counts on it any more.
  if (!expelled_ && out_[process]->phase_now() == outgoing::phase::open) tell(process, lost_word{process, how});
  fate_[process].store(fate::lost);
  losses_.emplace_back(process, how);
  close(*out_[process]);
  for (const auto& way : in_) {
    if (!way->known || way->process != process) continue;
    // The word above may find no room, or not be read any more: this byte always gets there.
    if (!expelled_ && !way->over)
      static_cast<void>(::send(way->socket.get(), &taken_for_lost, 1, MSG_NOSIGNAL | MSG_DONTWAIT));
    close(*way);
  }
  if (expelled_) return receiver_.process_lost(process, how);
  if (registrar() == here_) {
    for (std::uint32_t p = 0; p < processes(); ++p)
      if (p != here_) tell(p, lost_word{process, how});
  } else {
    tell(registrar(), suspect_word{process, how});
  }
  greet();
  receiver_.process_lost(process, how);
}

/// It has said so against the frames: what it has sent in the other connection comes first.
void mesh::leaves(std::uint32_t process) {
  close(*out_[process]);
  leavers_[process] = true;
  for (const auto& way : in_)
    if (way->known && !way->over && way->process == process) return incoming_event(*way);
  gone(process);
}

/// It has said "bye".
void mesh::gone(std::uint32_t process) {
  if (!alive(process)) return;
  fate_[process].store(fate::left);
  close(*out_[process]);
  // Which tells it that it has been heard.
  for (const auto& way : in_)
    if (way->known && way->process == process) close(*way);
  if (leaving_.load()) return;
  // Who leaves because it has lost another one may be heard before that loss is.
  departed_.emplace_back(process, clock::now());
}

/// True: everybody has heard it, or has had the time to.
bool mesh::said_goodbye() {
  const steady_time now = clock::now();
  if (goodbye_until_ == steady_time{}) {
    goodbye_until_ = now + options_.silence;
    for (const auto& way : out_) {
      if (!way || !alive(way->process)) continue;
      if (way->phase_now() == outgoing::phase::open) tell(way->process, bye_word{});
      else close(*way);
    }
    for (const auto& way : in_) {
      if (!way->known) close(*way);
      else if (!way->over)
        static_cast<void>(::send(way->socket.get(), &leaves_in_order, 1, MSG_NOSIGNAL | MSG_DONTWAIT));
    }
  }
  if (now >= goodbye_until_) return true;
  // Whoever has heard it closes the connections of both directions.
  if (std::any_of(in_.begin(), in_.end(), [](const auto& way) { return !way->over; })) return false;
  return std::all_of(out_.begin(), out_.end(),
                     [](const auto& way) { return !way || way->phase_now() == outgoing::phase::closed; });
}

void mesh::keep_time(steady_time now) {
  next_look_ = now + options_.silence / looks_in_silence;
  while (!departed_.empty() && now - departed_.front().second >= options_.silence / looks_in_silence) {
    receiver_.process_left(departed_.front().first);
    departed_.erase(departed_.begin());
    greet();  // not before: most jobs end now, and nobody needs a registrar
  }
  if (!std::exchange(accepting_, true)) watch_listeners(EPOLLIN, true);
  for (const auto& way : in_) {
    if (way->over) continue;
    if (!way->known && now - way->began > most_shaking) close(*way);
    else if (way->known && alive(way->process) &&
             now - way->heard > options_.silence - options_.silence / looks_in_silence)
      lose(way->process, "nothing was heard of it for " + seconds_text(options_.silence));
  }
  // Who was stopped before its connection stood is missed, too.
  if (now - greeted_at_ > std::max<std::chrono::milliseconds>(options_.silence, first_contact))
    for (std::uint32_t p = 0; p < processes(); ++p)
      if (p != here_ && alive(p) && (here_ == greeted_ || p == greeted_) && !hears(p))
        lose(p, "it has never called, or not since its last connection ended");
  for (const auto& way : out_) {
    if (!way || !alive(way->process)) continue;
    std::unique_lock lock(way->mutex);
    const bool silent = way->now == outgoing::phase::open && way->waiting.empty() && !std::exchange(way->spoke, false);
    const bool hopeless =
        (way->now == outgoing::phase::connecting || way->now == outgoing::phase::shaking) && now > way->give_up;
    lock.unlock();
    if (silent) tell(way->process, beat_word{});
    if (hopeless) lose(way->process, "it cannot be reached: no answer within " + seconds_text(options_.to_connect));
  }
}

}  // namespace troupe::actors
