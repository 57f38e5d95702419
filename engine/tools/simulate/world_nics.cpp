// SPDX-License-Identifier: Apache-2.0
// The NICs of the hosts, which perform descriptors: the ranks' queues to them, when their threads work, and what is between several of them. The drivers, the
// queues, the count of who has posted and what one host's NIC knows of the others are an engine's own (actors/ports/nic).
//
// A NIC's thread works when somebody wakes it (the last rank to post an operation, and one that wants its memory back), when another host's NIC has said
// something, and now and then for nothing, as a thread that has not fallen asleep yet. What is between NICs arrives in order and once, or its connection is
// lost. Payload is read from the sender's memory when it arrives, unless the NIC has had the link let go of it before.

#include <algorithm>
#include <set>
#include <utility>

#include "engine/tools/simulate/world.hpp"
#include "memory/error.hpp"

namespace troupe::simulate {

using actors::nic_driver;
using actors::offload_packet;
using actors::offload_response;
using actors::rank_outbox;
using actors::rank_state;

namespace {

picoseconds time_at_nic(nanoseconds_t now) { return std::chrono::nanoseconds{now}; }

actors::offload_config config_of(const nic_shape& shape) {
  actors::offload_config c = actors::nic_config();
  c.packet_bytes = static_cast<std::size_t>(shape.packet_bytes);
  c.buffer_bytes = shape.packets * c.packet_bytes;
  c.units = shape.units;
  return c;
}

}  // namespace

/// A rank's queue to its host's NIC, and what the NIC tells the rank.
class simulation::world::nic_end final : public actors::nic_client {
public:
  nic_end(world& of, rank_t rank) : w_(of), rank_(rank) {}

  void performed(epoch_t epoch, failure_ptr why) override {
    tell(message_kind::offloaded, epoch, [epoch, why](rank_state& s, rank_outbox& o) { s.offloaded(epoch, why, o); });
  }
  void differs(epoch_t epoch, rank_t from) override {
    tell(message_kind::nic_differs, epoch,
         [epoch, from](rank_state& s, rank_outbox& o) { s.nic_differs(epoch, from, o); });
  }
  void let_go(epoch_t epoch) override {
    recalled.erase(epoch);
    tell(message_kind::nic_let_go, epoch, [epoch](rank_state& s, rank_outbox& o) { s.nic_let_go(epoch, o); });
  }

  actors::nic_words words;
  bool rung = false;
  std::set<epoch_t>
      recalled;  ///< that the NIC has not given back yet; a rank that dies asks again, and may be answered once

private:
  void tell(message_kind kind, epoch_t epoch, actors::rank_order what) {
    w_.with_nic_.erase({rank_, epoch});
    if (std::byte* const written = w_.at_rank(rank_).written_by_nic;
        written != nullptr && w_.breaks(mutant::answered_memory_written, 100))
      w_.at(w_.now_ + ms, [written] { *written = ~*written; });
    w_.post_to_rank(kind, from_nic, rank_, std::move(what));
  }
  world& w_;
  rank_t rank_;
};

/// From a host's NIC to the others.
class simulation::world::nic_way final : public actors::nic_wire {
public:
  nic_way(world& of, int here) : w_(of), here_(here) {}

  void send(int host, epoch_t epoch, const offload_packet& what) override {
    auto sent = std::make_shared<under_way>(under_way{epoch, what, {}});
    if (what.bytes > 0) sent_.push_back(sent);
    w_.post_between_nics(message_kind::nic_packet, here_, host, [this, host, sent] {
      std::erase(sent_, sent);
      offload_packet packet = std::move(sent->packet);
      if (packet.bytes > 0) {
        if (sent->own.empty() && !w_.with_nic(packet.rank, sent->epoch))
          return w_.fault("a link reads memory that the NIC of host " + std::to_string(here_) +
                          " has given back to rank " + std::to_string(packet.rank));
        own(packet, sent->own);
        const auto keep = std::make_shared<std::vector<std::byte>>(std::move(sent->own));
        packet.lies_at = keep->data();
        packet.keep = keep;
      }
      packet.job = {};
      came(w_.across(host).came(here_, sent->epoch, std::move(packet)));
    });
  }
  void send(int host, epoch_t epoch, const offload_response& what) override {
    w_.post_between_nics(message_kind::nic_packet, here_, host,
                         [this, host, epoch, what] { came(w_.across(host).came(here_, epoch, what)); });
  }
  void send_ready(int host, epoch_t epoch, std::uint64_t fingerprint) override {
    w_.post_between_nics(message_kind::nic_ready, here_, host, [this, host, epoch, fingerprint] {
      came(w_.across(host).came_ready(here_, epoch, fingerprint));
    });
  }
  void let_go(rank_t rank, epoch_t epoch) override {
    if (w_.breaks(mutant::link_keeps_memory, 100)) return;
    for (const auto& each : sent_)
      if (each->packet.rank == rank && each->epoch == epoch) own(each->packet, each->own);
  }

private:
  struct under_way {
    epoch_t epoch;
    offload_packet packet;
    std::vector<std::byte> own;  ///< of the link, once it has been read
  };
  static void own(const offload_packet& what, std::vector<std::byte>& bytes) {
    if (bytes.empty()) bytes.assign(what.lies_at, what.lies_at + what.bytes);
  }
  void came(bool possible) {
    if (!possible) w_.fault("a NIC refuses what the NIC of host " + std::to_string(here_) + " says");
  }
  world& w_;
  int here_;
  std::vector<std::shared_ptr<under_way>> sent_;  ///< with payload, and not there yet
};

// -- ranks ------------------------------------------------------------------------------------------------------------------------

/// Those of the first communicator are the others' too.
void simulation::world::add_nics() {
  name_at_nics_ = ++course_->names_at_nics;
  const int nics = whole_ != nullptr ? 0 : what_.hosts() * what_.nic.processes + (what_.nic.nicd ? 1 : 0);
  for (int i = 0; i < nics; ++i) {
    nic& made = course_->nics.emplace_back();
    made.driver = std::make_unique<nic_driver>(config_of(what_.nic), what_.nic.scratch);
    made.works = dice(what_.seed, {0xa1, static_cast<std::uint64_t>(i)});
  }
  for (int h = 0; h < what_.hosts() && what_.hosts() > 1; ++h) {
    actors::nic_hosts::options how;
    how.hosts = what_.hosts();
    how.here = h;
    for (rank_t r = 0; r < what_.ranks; ++r) how.host_of.push_back(what_.host_of(r));
    how.name = name_at_nics_;
    how.wire = std::make_unique<nic_way>(*this, h);
    how.ring = [this, h] { wake_nic(home_nic(h), now_ + latency(first_nic, h)); };
    hosts_[static_cast<std::size_t>(h)].across = std::make_shared<actors::nic_hosts>(std::move(how));
  }
  for (int h = 0; h < what_.hosts(); ++h) add_between(h);
}

void simulation::world::post_to_nic(rank_t rank, actors::nic_posting&& what) {
  member& m = at_rank(rank);
  if (m.lost) return;  // in this turn
  const int on = what_.host_of(rank);
  if (!m.nic) m.nic = std::make_shared<nic_end>(*this, rank);
  what.communicator = name_at_nics_;
  what.across = host_of(rank).across.get();
  what.ranks_here = what_.of_host;
  const epoch_t epoch = what.epoch;
  if (options_.broken == mutant::posting_forged) {
    const auto [first, fresh] = posted_first_.try_emplace(epoch, what.fingerprint);
    if (first->second != what.fingerprint && breaks(mutant::posting_forged, 100)) what.fingerprint = first->second;
  }
  actors::nic_between* const elsewhere = way_to_home(rank);
  if (elsewhere != nullptr ? !elsewhere->post(m.nic, what) : !m.nic->words.post(what))
    throw error(errc::out_of_memory, "there is no room in its queue to the NIC");
  with_nic_.emplace(rank, epoch);
  if (lost_in_posting(rank, process_loss::kind::uncounted)) return;
  if (elsewhere == nullptr) ring_nic(rank);
  const bool is_last = arrivals_at_nic(on).complete(epoch, what.posters());
  if (lost_in_posting(rank, process_loss::kind::unrung)) return;
  if (is_last && !breaks(mutant::nic_not_woken)) wake_nic(home_nic(on), now_ + latency(first_nic, on));
  hear_bells();
  if (breaks(mutant::offloaded_early, 10))
    post_to_rank(message_kind::order, from_nic, rank,
                 [epoch](rank_state& s, rank_outbox& o) { s.offloaded(epoch, nullptr, o); });
}

void simulation::world::recall_from_nic(rank_t rank, epoch_t epoch) {
  if (at_rank(rank).lost || breaks(mutant::drop_recall)) return;
  nic_end& end = *at_rank(rank).nic;
  end.recalled.insert(epoch);
  if (actors::nic_between* const elsewhere = way_to_home(rank)) {
    elsewhere->recall(epoch, rank);
    hear_bells();
  } else {
    end.words.recall(name_at_nics_, epoch, rank);
    ring_nic(rank);
  }
  // One that another process's NIC is to answer looks after the answer.
  wake_nic(nic_of_rank(rank), now_ + latency(first_nic, what_.host_of(rank)));
  if (breaks(mutant::let_go_early, 100))
    post_to_rank(message_kind::order, from_nic, rank,
                 [epoch](rank_state& s, rank_outbox& o) { s.nic_let_go(epoch, o); });
}

/// The NIC's thread may be woken late.
bool simulation::world::waits_for_nic(const member& m) const {
  return !m.lost && m.nic != nullptr && !m.nic->recalled.empty();
}

/// A NIC that has not fallen asleep sees it without being woken.
void simulation::world::ring_nic(rank_t rank) {
  const int which = nic_of_rank(rank);
  nic& one = nic_at(which);
  const std::shared_ptr<nic_end>& end = at_rank(rank).nic;
  if (!std::exchange(end->rung, true)) one.rung.push_back(end);
  if (one.works.one_in(3)) wake_nic(which, now_ + static_cast<nanoseconds_t>(one.works.below(2 * us)));
}

// -- the NICs -----------------------------------------------------------------------------------------------------------------------

void simulation::world::wake_nic(int which, nanoseconds_t when) {
  nic& one = nic_at(which);
  if (one.works_at >= 0 && one.works_at <= when) return;
  one.works_at = when;
  at(when, [this, which, when] {
    if (nic_at(which).works_at == when) nic_works(which);
  });
}

/// As its thread does, from one look at what has come to the next.
void simulation::world::nic_works(int which) {
  nic& one = nic_at(which);
  const int host_number = std::min(which / what_.nic.processes, what_.hosts() - 1);
  host& on = hosts_[static_cast<std::size_t>(host_number)];
  one.works_at = -1;
  if (on.lost || one.ended || one.stopped) return;
  nic_driver& driver = *one.driver;
  const picoseconds time = time_at_nic(now_);
  if (std::exchange(one.amid_turn, false) && !driver.empty()) driver.turn(time);
  const auto rung = std::exchange(one.rung, {});
  bool moved = on.across != nullptr && which == home_nic(host_number) && on.across->serve(driver, time);
  moved = serve_processes(one) || moved;
  for (auto end = rung.rbegin(); end != rung.rend(); ++end) {
    (*end)->rung = false;
    (*end)->words.read(driver, *end, time);
    moved = true;
  }
  if (!driver.empty()) moved = driver.turn(time) || moved;
  if (const process_loss& x = what_.nic.loses; x.any() && x.what == process_loss::kind::at_work &&
                                               which == nic_that_is_lost() && now_ >= x.after_ns &&
                                               driver.under_way() > 0 && !one.lost)
    return root().lose_process();
  hear_bells();
  if (moved) return wake_nic(which, now_ + 100 + static_cast<nanoseconds_t>(one.works.below(us)));
  if (const auto due = driver.nic().next_deadline(); due && driver.under_way() > 0)
    wake_nic(which, std::max(now_ + 1, std::chrono::ceil<std::chrono::nanoseconds>(*due).count()));
  if (std::ranges::any_of(one.serves, [](const auto* each) { return each->waits(); }))
    wake_nic(which, std::max(now_ + 1, one.next_care));
  one.asleep = true;
  one.bell->announce();
}

void simulation::world::post_between_nics(message_kind kind, int from, int to, std::function<void()> deliver) {
  const auto lost = [this](int which) {
    return hosts_[static_cast<std::size_t>(which)].lost || nic_at(home_nic(which)).lost;
  };
  if (lost(from)) return;
  const std::uint64_t number = links_[{first_nic - from, first_nic - to}].second;
  if (dice(what_.seed, {0xa2, static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(to), number})
          .percent(what_.lose_percent))
    return lose_connection(from * what_.of_host, to * what_.of_host);
  post(kind, first_nic - from, first_nic - to, true, [this, kind, lost, from, to, deliver = std::move(deliver)] {
    if (lost(from) || lost(to)) return;
    if (kind == message_kind::nic_packet) last_progress_ = now_;
    deliver();
  });
}

/// All is over: nothing is kept. Words about operations that a host has never posted go with the communicator.
void simulation::world::check_nics() {
  // One that was stopped ends some day, too.
  if (const process_loss& x = what_.nic.loses;
      x.any() && nic_at(nic_that_is_lost()).lost && !nic_ended(nic_that_is_lost()))
    end_at_nicd(x.host, x.process);
  for (int which = 0; which < static_cast<int>(course_->nics.size()); ++which) {
    const int on = std::min(which / what_.nic.processes, what_.hosts() - 1);
    const host& there = hosts_[static_cast<std::size_t>(on)];
    if (there.lost || nic_at(which).ended || nic_at(which).lost) continue;
    close_ended(nic_at(which));
    nic_driver& driver = *nic_at(which).driver;
    if (there.across && which == home_nic(on)) there.across->close(driver, time_at_nic(now_));
    const bool of_all = which == what_.hosts() * what_.nic.processes;
    const std::string name =
        of_all ? "the NIC process"
               : "the NIC of host " + std::to_string(on) +
                     (what_.nic.processes > 1 ? ", process " + std::to_string(which % what_.nic.processes) : "");
    if (!driver.empty() || driver.under_way() > 0)
      return fault(name + " keeps " + std::to_string(driver.operations()) + " operations although all is over");
    if (driver.nic().statistics().sequences > 0)
      return fault(name + " still performs descriptors although all is over");
    if (driver.scratch().in_use > 0) return fault(name + " keeps scratch memory although all is over");
  }
}

}  // namespace troupe::simulate
