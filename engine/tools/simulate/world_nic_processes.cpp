// SPDX-License-Identifier: Apache-2.0
// Hosts with several processes, for whose ranks one of the processes' NICs performs, or a NIC process: through an engine's own nic_between, of which each
// process has one, in memory that they share. Each process's NIC is woken by its doorbell, as its thread is, or looks now and then for nothing.
//
// What one process's NIC reads and writes of another one's memory must be the NIC's at that moment. The NIC process may be killed at any moment, or end
// in order; the others see that later, each in its own time. So may a process with ranks, also in the middle of a posting; or it is stopped, counts as lost,
// and goes on where it was unless somebody has ended it. Then its communicators end in the others: who performs for them lets go of what it has left behind.

#include <algorithm>
#include <functional>
#include <utility>

#include "engine/tools/simulate/world.hpp"

namespace troupe::simulate {

using actors::nic_between;

/// What process `here` of a host reaches of a communicator's ranks there; of these it knows the places on the host, and the NIC process as the one behind
/// the last.
class simulation::world::peers final : public process_memory {
public:
  peers(world& of, int host, int here) : w_(of), first_(host * of.what_.ranks_of_host()), here_(here) {}

  bool is_here(rank_t rank) const noexcept override { return process_of(rank) == here_; }
  std::byte* near(rank_t, std::byte* its) override { return w_.what_.nic.maps ? its : nullptr; }
  bool shares(const std::byte*) const noexcept override { return w_.what_.nic.maps; }
  std::byte* lend(std::size_t) noexcept override { return nullptr; }
  void take_back(std::byte*) noexcept override {}
  bool read(rank_t of, std::byte* to, const std::byte* from, std::size_t bytes) override {
    if (has_ended(of)) return false;
    w_.check_touch(from, bytes, "read");
    std::copy_n(from, bytes, to);
    return true;
  }
  bool write(rank_t of, std::byte* to, const std::byte* from, std::size_t bytes) override {
    if (has_ended(of)) return false;
    w_.check_touch(to, bytes, "written");
    std::copy_n(from, bytes, to);
    member& owner = w_.at_rank(first_ + of);
    const auto in = [&](const caller_operation* o) {
      return std::less_equal<>{}(o->memory.data(), to) && std::less<>{}(to, o->memory.data() + o->memory.size());
    };
    if (bytes > 0 && std::ranges::any_of(owner.mine, in)) owner.written_by_nic = to;
    return true;
  }
  std::string why_refused(rank_t) const override { return "nothing is refused"; }
  bool has_ended(rank_t which) override {
    const nic& its = nic_of_process_of(which);
    if (its.stopped && w_.breaks(mutant::stopped_taken_for_ended, 100)) return true;
    return its.ended && (which == w_.what_.ranks_of_host() || !w_.breaks(mutant::home_end_unseen, 100));
  }
  /// One that was stopped counts as lost as soon as the membership says so.
  bool is_lost(rank_t which) const noexcept override {
    if (nic_of_process_of(which).ended) return true;
    return which < w_.what_.ranks_of_host() && w_.membership_.is_lost(first_ + which);
  }
  void end(rank_t which) override {
    if (!nic_of_process_of(which).lost)
      return w_.fault("process " + std::to_string(here_) + " ends the process of rank " +
                      std::to_string(first_ + which) + ", which was not lost");
    w_.end_process(w_.nic_of_rank(first_ + which));
  }

private:
  const nic& nic_of_process_of(rank_t rank) const noexcept {
    return w_.course_->nics[static_cast<std::size_t>(w_.nic_of(w_.what_.host_of(first_), process_of(rank)))];
  }
  int process_of(rank_t rank) const noexcept {
    return rank < w_.what_.ranks_of_host() ? w_.process_of(first_ + rank) : w_.what_.nic.processes;
  }
  world& w_;
  rank_t first_;
  int here_;
};

/// That performs for the communicator's ranks on that host.
int simulation::world::home_nic(int which) const {
  const bool several = !hosts_[static_cast<std::size_t>(which)].between.empty();
  return several && what_.nic.nicd ? nic_of(which, what_.nic.processes) : nic_of_rank(which * what_.ranks_of_host());
}

/// Null: the rank's own process's NIC performs.
nic_between* simulation::world::way_to_home(rank_t rank) const {
  const host& on = hosts_[static_cast<std::size_t>(what_.host_of(rank))];
  if (on.between.empty() || nic_of_rank(rank) == home_nic(what_.host_of(rank))) return nullptr;
  return on.between[static_cast<std::size_t>(process_of(rank))].get();
}

actors::nic_arrivals& simulation::world::arrivals_at_nic(int which) {
  host& on = hosts_[static_cast<std::size_t>(which)];
  if (on.between.empty()) return on.at_nic;
  const int first = process_of(which * what_.ranks_of_host());
  return on.between[static_cast<std::size_t>(first)]->arrivals();
}

/// If its ranks there live in several processes.
void simulation::world::add_between(int which) {
  host& on = hosts_[static_cast<std::size_t>(which)];
  const int ranks = what_.ranks_of_host(), processes = what_.nic.processes;
  const rank_t first = which * ranks;
  const auto lives_in = [&](int process) {
    for (rank_t r = first; r < first + ranks; ++r)
      if (process_of(r) == process) return true;
    return false;
  };
  int several = 0;
  for (int p = 0; p < processes; ++p) several += lives_in(p) ? 1 : 0;
  if (several < 2) return;
  if (what_.nic.nicd && course_->links.empty()) {
    course_->nics.back().bell = &course_->nicd.bell;
    for (int p = 0; p <= processes; ++p) course_->links.push_back(std::make_unique<nicd_link>(course_->nicd));
  }
  const auto region = std::make_shared<shared_region>();
  on.between.resize(static_cast<std::size_t>(processes) + 1);
  for (int p = 0; p < processes + (what_.nic.nicd ? 1 : 0); ++p) {
    if (p < processes && !lives_in(p)) continue;
    nic& own = nic_at(nic_of(which, p));
    nic_between::options how;
    how.ranks = ranks;
    how.first_rank = first;
    how.all_ranks = what_.ranks;
    how.in = std::make_shared<region_view>(region, std::make_unique<peers>(*this, which, p));
    for (rank_t r = first; r < first + ranks; ++r) how.bells.push_back(nic_at(nic_of_rank(r)).bell);
    // A link is the course's, and outlives all that refer to it.
    if (what_.nic.nicd) how.host = {std::shared_ptr<void>{}, course_->links[static_cast<std::size_t>(p)].get()};
    how.own = own.bell;
    how.name = how.id = name_at_nics_;
    how.across = on.across.get();
    how.packet_bytes = static_cast<std::size_t>(what_.nic.packet_bytes);
    on.between[static_cast<std::size_t>(p)] = std::make_unique<nic_between>(std::move(how));
    own.serves.push_back(on.between[static_cast<std::size_t>(p)].get());
  }
  // A NIC process is invited by nobody who has ended.
  if (const process_loss& x = what_.nic.loses; x.any() && nic_ended(nic_that_is_lost())) end_at_nicd(x.host, x.process);
}

/// A NIC that was rung for looks: soon, if it was woken; if it only was left something, perhaps, as it may not have fallen asleep yet.
void simulation::world::hear_bells() {
  for (int i = 0; i < static_cast<int>(course_->nics.size()); ++i) {
    nic& one = nic_at(i);
    if (one.bell->rings() == one.rings) continue;
    one.rings = one.bell->rings();
    if (one.asleep && !one.bell->announced()) {
      one.asleep = false;
      if (!breaks(mutant::answers_unheard)) wake_nic(i, now_ + latency(first_nic, i));
    } else if (one.works.one_in(3)) {
      wake_nic(i, now_ + static_cast<nanoseconds_t>(one.works.below(2 * us)));
    }
  }
}

/// As a NIC's thread. True: there was something.
bool simulation::world::serve_processes(nic& one) {
  one.bell->retract();
  one.asleep = false;
  one.rings = one.bell->rings();
  bool moved = false;
  const picoseconds time = std::chrono::nanoseconds{now_};
  close_ended(one);
  for (nic_between* each : one.serves) moved = each->serve(*one.driver, time) || moved;
  if (now_ < one.next_care || std::ranges::none_of(one.serves, [](const auto* each) { return each->waits(); }))
    return moved;
  one.next_care = now_ + ms;
  for (nic_between* each : one.serves)
    if (each->waits()) each->look_after(clock());
  return moved;
}

/// Of communicators that have ended there, as a NIC's thread does.
void simulation::world::close_ended(nic& one) {
  std::erase_if(one.serves, [&](nic_between* each) {
    if (!each->has_ended()) return false;
    each->close(*one.driver, std::chrono::nanoseconds{now_});
    return true;
  });
}

/// The communicator ends in every process that lives; for a NIC process when all that it serves have left it.
void simulation::world::end_views() {
  for (int h = 0; h < what_.hosts(); ++h) {
    const auto& between = hosts_[static_cast<std::size_t>(h)].between;
    for (std::size_t p = 0; p < between.size(); ++p) {
      const bool of_nicd = static_cast<int>(p) == what_.nic.processes;
      if (between[p] == nullptr || nic_at(nic_of(h, static_cast<int>(p))).lost || (of_nicd && lost_ranks_)) continue;
      ++in_flight_;
      at(now_ + latency(of_process, static_cast<int>(p)), [this, one = between[p].get()] {
        --in_flight_;
        one->end();
        hear_bells();
      });
    }
  }
}

// -- a process that is lost ---------------------------------------------------------------------------------------------

/// True: it has ended there.
bool simulation::world::lost_in_posting(rank_t rank, process_loss::kind where) {
  const process_loss& x = what_.nic.loses;
  if (!x.any() || x.what != where || now_ < x.after_ns || nic_of_rank(rank) != nic_that_is_lost()) return false;
  root().lose_process();
  return true;
}

void simulation::world::lose_process() {
  const process_loss& x = what_.nic.loses;
  const int which = nic_that_is_lost();
  nic& its = nic_at(which);
  if (std::exchange(its.lost, true) || hosts_[static_cast<std::size_t>(x.host)].lost) return;
  tell([&] {
    return "process " + std::to_string(x.process) + " of host " + std::to_string(x.host) + " is " +
           std::string{simulate::name(x.what)};
  });
  last_progress_ = now_;
  its.stopped = x.what == process_loss::kind::stopped || x.what == process_loss::kind::at_work;
  its.ended = !its.stopped;
  lose_ranks_of_process(x.host, x.process,
                        make_failure(errc::peer_lost, "process " + std::to_string(x.process) + " of host " +
                                                          std::to_string(x.host) + " was lost"));
  if (its.ended) return hear_of_end(x.host, x.process);
  if (x.goes_on_after_ns >= 0) at(now_ + x.goes_on_after_ns, [this, which] { go_on_stopped(which); });
}

/// Those who wait for a rank's part in a split hear that it never comes.
void simulation::world::lose_ranks_of_process(int host, int process, const failure_ptr& why) {
  for (rank_t r = 0; r < what_.ranks; ++r) {
    if (what_.host_of(r) != host || process_of(r) != process) continue;
    lose_rank(r, why);
    for (const caller_operation* o : at_rank(r).mine)
      if (o->it->splits() && !o->over && !o->refused)
        divisions_.give_up(o->key.epoch, r, [](world* part, rank_t place) { part->gives_up(place); });
  }
  for (const auto& part : parts_) part->lose_ranks_of_process(host, process, why);
}

/// The NIC process, whose connection to it has ended: to that all its communicators are over.
void simulation::world::hear_of_end(int host, int process) {
  if (!what_.nic.nicd) return;
  ++in_flight_;
  at(now_ + latency(first_nic, nic_of(host, process)), [this, host, process] {
    --in_flight_;
    if (breaks(mutant::process_end_unheard, 100)) return;
    end_at_nicd(host, process);
    hear_bells();
  });
}

void simulation::world::end_at_nicd(int host, int process) {
  const auto& between = hosts_[static_cast<std::size_t>(host)].between;
  if (what_.nic.nicd && !between.empty() && between[static_cast<std::size_t>(process)] != nullptr)
    between.back()->end();
  for (const auto& part : parts_) part->end_at_nicd(host, process);
}

/// One that was stopped.
void simulation::world::end_process(int which) {
  nic& its = nic_at(which);
  if (std::exchange(its.ended, true)) return;
  tell([&] { return "process " + std::to_string(which % what_.nic.processes) + " is ended, which was stopped"; });
  last_progress_ = now_;
  its.stopped = false;
  root().hear_of_end(which / what_.nic.processes, which % what_.nic.processes);
}

/// Its NIC's thread, in the middle of what it was doing.
void simulation::world::go_on_stopped(int which) {
  nic& its = nic_at(which);
  if (!std::exchange(its.stopped, false)) return;
  tell([&] { return "process " + std::to_string(which % what_.nic.processes) + " goes on"; });
  last_progress_ = now_;
  its.amid_turn = true;
  wake_nic(which, now_);
}

// -- the NIC process ----------------------------------------------------------------------------------------------------

void simulation::world::end_nicd() {
  nic& ends = course_->nics.back();
  if (ends.ended) return;
  tell([&] { return std::string{"the NIC process "} + (what_.nic.ends_in_order ? "ends" : "is killed"); });
  if (what_.nic.ends_in_order)
    for (nic_between* each : ends.serves) each->close(*ends.driver, std::chrono::nanoseconds{now_});
  ends.ended = true;
  last_progress_ = now_;
  for (int p = 0; p < what_.nic.processes && !course_->links.empty(); ++p)
    at(now_ + latency(first_nic, p), [this, p] {
      if (breaks(mutant::nicd_end_unseen, 100)) return;
      course_->links[static_cast<std::size_t>(p)]->goes();
      nic_at(p).bell->note();
      nic_at(p).bell->wake();
      hear_bells();
    });
}

}  // namespace troupe::simulate
