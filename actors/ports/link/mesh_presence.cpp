// SPDX-License-Identifier: Apache-2.0
// A mesh's connections as its presence sees them (presence_state.hpp), and the clock.
#include <sys/epoll.h>

#include "actors/ports/link/mesh_connections.hpp"

namespace troupe::actors {

namespace {
using clock = std::chrono::steady_clock;
}

// -- what the presence says -------------------------------------------------------------------------------------------------

mesh::piece mesh::piece_of(const process_word& what) {
  frame_head head;
  head.kind = frame_kind::process;
  std::vector<std::byte> body = to_wire(what);
  head.bytes = body.size();
  piece p{head, nullptr, 0};
  p.body = std::move(body);
  return p;
}

void mesh::tell(std::uint32_t to, const process_word& what) { send(*out_[to], piece_of(what)); }

bool mesh::can_hear(std::uint32_t process) { return out_[process]->phase_now() == outgoing::phase::open; }

void mesh::beat(std::uint32_t to) {
  outgoing& way = *out_[to];
  std::unique_lock lock(way.mutex);
  const bool said_nothing = way.now == outgoing::phase::open && way.waiting.empty() && !std::exchange(way.spoke, false);
  lock.unlock();
  if (said_nothing) tell(to, beat_word{});
}

descriptor mesh::shared_by_host(steady_time until) {
  const std::uint32_t first = first_of_host(roster_, here_);
  std::unique_lock lock(shared_mutex_);
  shared_came_.wait_until(lock, until, [&] { return static_cast<bool>(shared_) || !alive(first); });
  return std::move(shared_);
}

void mesh::say_lost(std::uint32_t process) {
  for (const auto& way : in_) {
    if (!way->known || way->over || way->process != process || way->lane != 0) continue;
    if (!way->shared) static_cast<void>(say_back(*way, taken_for_lost));
    else say_last(*out_[process], lost_word{process, "it says so"});
  }
}

/// To one that counts as lost. It may not hear this, as earlier bytes that it has not taken come first.
void mesh::say_last(outgoing& way, const process_word& what) {
  const std::lock_guard lock(way.mutex);
  if (way.now != outgoing::phase::open || way.problem != 0 || !way.waiting.empty()) return;
  piece p = piece_of(what);
  p.number(way.next_number++);
  static_cast<void>(way.write(p));
}

void mesh::expelled(const std::string& why) {
  if (!leaving_.load()) receiver_.expelled(why);
}

void mesh::close(std::uint32_t process) {
  close(*out_[process]);
  for (const auto& way : in_)
    if (way->known && way->process == process) close(*way);
  inflow_[process]->chunks.clear();
}

void mesh::lost(std::uint32_t process, const std::string& how) {
  {
    const std::lock_guard lock(shared_mutex_);
    shared_came_.notify_all();
  }
  receiver_.process_lost(process, accepting_
                                      ? how
                                      : how + "; connections could not be accepted, as no descriptors are left in " +
                                            name_of(roster_, here_));
}

// -- what it hears ----------------------------------------------------------------------------------------------------------

void mesh::lose(std::uint32_t process, const std::string& how) { presence_.ended(process, how, clock::now(), *this); }

/// It has said so against the frames: what it has sent in the other connection comes first.
void mesh::leaves(std::uint32_t process) {
  close(*out_[process]);
  presence_.leaves(process);
  for (const auto& way : in_)
    if (way->known && !way->over && way->process == process && way->lane == 0) return incoming_event(*way);
  presence_.gone(process, clock::now(), *this);
}

/// True: everybody has heard it, or has had the time to.
bool mesh::said_goodbye() {
  const steady_time now = clock::now();
  if (goodbye_until_ == steady_time{}) {
    goodbye_until_ = now + options_.silence;
    presence_.leave();
    for (const auto& way : in_) {
      if (!way->known) close(*way);
      else if (!way->over && !way->shared && way->lane == 0) static_cast<void>(say_back(*way, leaves_in_order));
    }
  }
  for (const auto& way : out_) {
    if (!way || way->said_bye || !alive(way->process) || !lanes_have_ended(*way)) continue;
    way->said_bye = true;
    if (way->phase_now() == outgoing::phase::open) tell(way->process, bye_word{});
    else close(*way);
  }
  if (now >= goodbye_until_) return true;
  // A process that has heard the goodbye closes the connections of both directions.
  if (std::any_of(in_.begin(), in_.end(), [](const auto& way) { return !way->over; })) return false;
  return std::all_of(out_.begin(), out_.end(),
                     [](const auto& way) { return !way || way->phase_now() == outgoing::phase::closed; });
}

void mesh::give_up_if_late(outgoing& way, steady_time now) {
  std::unique_lock lock(way.mutex);
  const bool calls = way.now == outgoing::phase::connecting || way.now == outgoing::phase::shaking;
  if (!calls || now <= way.give_up) return;
  const std::string late = "no answer within " + std::to_string(options_.to_connect.count()) + " ms";
  if (way.lane != 0) {
    way.next_address = way.addresses.size();
    return try_next_address(way, lock, late);
  }
  lock.unlock();
  lose(way.process, "it cannot be reached: " + late);
}

void mesh::keep_time(steady_time now) {
  next_look_ = now + presence_.between_ticks();
  for (const auto& way : in_)
    if (!way->over && !way->known && now - way->began > most_shaking) close(*way);
  for (const auto& way : in_)
    if (way->kept_back && !way->over && !is_answered_soon(*out_[way->hands.peer()]))
      answer_those_kept_back(way->hands.peer());
  presence_.tick(now, *this);
  // Behind the tick, so that a process that is lost meanwhile is lost for that reason.
  if (!std::exchange(accepting_, true)) watch_listeners(EPOLLIN, watching::goes_on);
  for (const auto& first : out_) {
    if (!first || !alive(first->process)) continue;
    std::size_t lane = 0;
    while (outgoing* const way = lane_of(*first, lane++)) give_up_if_late(*way, now);
  }
}

}  // namespace troupe::actors
