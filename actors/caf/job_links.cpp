// SPDX-License-Identifier: Apache-2.0
#include "actors/caf/job_links.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include <caf/send.hpp>
#include <spdlog/spdlog.h>

#include "actors/caf/rank_shell.hpp"
#include "memory/error.hpp"

namespace troupe::actors {

namespace {

frame_head head_to(const communicator_actors& of, rank_t to, int channel) {
  frame_head head;
  head.communicator = of.id;
  head.to = to;
  head.channel = static_cast<std::uint16_t>(channel);
  return head;
}

std::uint32_t process_of(const communicator_actors& of, rank_t rank) {
  return of.process_of[static_cast<std::size_t>(rank)];
}

/// A word counts only from the process in which the rank that it speaks for lives.
bool lives_in(const communicator_actors& of, rank_t rank, std::uint32_t process) {
  return rank >= 0 && rank < of.ranks && process_of(of, rank) == process;
}

constexpr std::uint32_t nowhere = 0xffffffff;
/// By process of the job: which it is of those on `here`'s host.
std::vector<std::uint32_t> numbers_on_host(const roster& job, std::uint32_t here) {
  std::vector<std::uint32_t> numbers;
  std::uint32_t next = 0;
  for (const process_place& p : job.processes)
    numbers.push_back(p.host_key == job.processes[here].host_key ? next++ : nowhere);
  return numbers;
}

std::size_t bytes_of_boards(int ranks) {
  return slot_board::most_bytes(ranks) + part_areas::most_bytes(ranks) + nic_between::most_bytes(ranks);
}

bool is_here(const communicator_actors& of, rank_t rank) { return rank >= 0 && rank < of.ranks && of.is_here(rank); }

}  // namespace

/// By process of the host, without the NIC process.
std::uint32_t job_links::processes_on_host() const {
  const std::vector<std::uint32_t> numbers = numbers_on_host(all(), here());
  return static_cast<std::uint32_t>(std::ranges::count_if(numbers, [](auto n) { return n != nowhere; }));
}

void job_links::share_boards(std::shared_ptr<host_segment> own, steady_time until, const std::string& nic,
                             std::uint64_t build, std::chrono::milliseconds silence) {
  const std::uint32_t first = first_of_host(all(), here());
  const std::vector<std::uint32_t> numbers = numbers_on_host(all(), here());
  const std::uint32_t processes = processes_on_host();
  /// ": process 1 (…): how", of those of this host that are lost.
  const auto who_is_lost = [&] {
    std::string text;
    const std::lock_guard lock(mutex_);
    for (const auto& [process, how] : lost_)
      if (numbers[process] != nowhere) text += (text.empty() ? ": " : "; ") + name_of(all(), process) + ": " + how;
    return text;
  };
  if (!nic.empty() && processes > 1) {
    nic_ = std::make_shared<nic_host_link>(nic, nic_host_link::enrolment{build, all().job, numbers[here()], processes},
                                           until, silence);
    if (own != nullptr) nic_->pass(*own, until);
  }
  if (first != here()) {
    descriptor passed = mesh_.shared_by_host(until);
    const bool late = std::chrono::steady_clock::now() >= until;
    if (!passed)
      throw error(late ? errc::timed_out : errc::peer_lost, "join: " + name_of(all(), first) +
                                                                (late ? " has not" : " was lost before it had") +
                                                                " shared the memory of its host" + who_is_lost());
    own = host_segment::take(std::move(passed));
  }
  if (own == nullptr) return;
  {
    const std::lock_guard lock(mutex_);
    boards_ = std::move(own);
    for (const auto& [process, how] : lost_) lost_on_host(process);
  }
  try {
    boards_->meet(numbers[here()], processes + (nic_ ? 1 : 0), until,
                  [&] { return (nic_ && nic_->hung_up()) || !who_is_lost().empty(); });
  } catch (const error& e) {
    if (e.code_value() != errc::peer_lost) throw;
    throw error(errc::peer_lost, e.what() + who_is_lost());
  }
  if (nic_) nic_->watch(*nic_bell_of(here()), boards_);
}

bool job_links::enter_nic(communicator_id id, std::span<const std::uint32_t> process_of) const {
  constexpr std::chrono::seconds longest_enter{10};
  const std::vector<std::uint32_t> numbers = numbers_on_host(all(), here());
  std::vector<std::uint32_t> by_rank;
  for (const std::uint32_t process : process_of) by_rank.push_back(numbers[process]);
  return nic_->enter(id, by_rank, bytes_of_boards(static_cast<int>(by_rank.size())),
                     std::chrono::steady_clock::now() + longest_enter);
}

/// @pre locked
void job_links::lost_on_host(std::uint32_t process) {
  if (boards_ == nullptr) return;
  if (const std::uint32_t which = numbers_on_host(all(), here())[process]; which != nowhere) boards_->lost(which);
}

std::shared_ptr<board_memory> job_links::boards_for(communicator_id id, std::span<const std::uint32_t> process_of,
                                                    boards_of whose) const {
  const std::vector<std::uint32_t> numbers = numbers_on_host(all(), here());
  std::vector<std::uint32_t> by_rank;
  for (const std::uint32_t process : process_of) by_rank.push_back(numbers[process]);
  const std::size_t bytes = bytes_of_boards(static_cast<int>(process_of.size()));
  // It is known by a rank behind the last, and gives the region back as the others do.
  if (whose == boards_of::all_ranks && host_nic() != nullptr && process_of.size() <= most_nic_ranks)
    by_rank.push_back(processes_on_host());
  return boards_->attach(id, std::move(by_rank), bytes);
}

doorbell* job_links::nic_bell_of(std::uint32_t process) const {
  return &boards_->nic_bell_of(numbers_on_host(all(), here())[process]);
}

// -- communicators ----------------------------------------------------------------------------------------------------------

void job_links::enter(const communicator_actors_ptr& what) {
  std::map<std::uint32_t, std::string> lost;
  std::vector<rank_t> missing;
  {
    const std::lock_guard lock(mutex_);
    if (const auto [at, fresh] = communicators_.try_emplace(what->id, what); !fresh)
      throw error(errc::invalid_argument, what->name + ": there is a communicator with this identity already");
    agreements_.enter(what->id, what->process_of, {what->parent, what->split, what->parent_rank});
    // Under the lock, so that nothing newer comes before.
    auto early = early_.take(what->id);
    for (auto& [from, f] : early) {
      if (has_chunk_body(f.head.kind) || f.head.kind == frame_kind::announce)
        static_cast<void>(deliver(*what, from, f.head, std::move(f.what)));
      else if (f.head.kind == frame_kind::credit || f.head.kind == frame_kind::response)
        static_cast<void>(deliver(*what, from, f.head, f.back));
      else static_cast<void>(deliver(what, from, f.head, f.body));
    }
    lost = lost_;
    missing = given_up_.of(what->parent, what->split);
  }
  for (const auto& [process, how] : lost) what->process_lost(process, how);
  for (const rank_t rank : missing) what->never_comes(rank);
}

bool job_links::wait_for_others(steady_time until) {
  std::unique_lock lock(mutex_);
  const auto nobody_needs_us = [this] {
    return std::all_of(communicators_.begin(), communicators_.end(),
                       [](const auto& each) { return each.second.expired(); });
  };
  if (until == no_deadline) return ended_.wait(lock, nobody_needs_us), true;
  return ended_.wait_until(lock, until, nobody_needs_us);
}

std::vector<communicator_actors_ptr> job_links::known() {
  std::vector<communicator_actors_ptr> all;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, members] : communicators_)
    if (auto m = members.lock()) all.push_back(std::move(m));
  return all;
}

// -- out --------------------------------------------------------------------------------------------------------------------

bool job_links::send(const communicator_actors& of, rank_t to, int channel, const chunk& what, mesh::may_settle may) {
  return mesh_.send_chunk(process_of(of, to), head_to(of, to, channel), what, may);
}

void job_links::send(const communicator_actors& of, rank_t to, int channel, const credit& what) {
  mesh_.send_credit(process_of(of, to), head_to(of, to, channel), what);
}

void job_links::send(const communicator_actors& of, rank_t to, const pair_word& what) {
  frame_head head = head_to(of, to, 0);
  head.kind = frame_kind::pair;
  mesh_.send_word(process_of(of, to), head, to_wire(what));
}

void job_links::send(const communicator_actors& of, const home_word& what) {
  frame_head head = head_to(of, -1, 0);
  head.kind = frame_kind::home;
  mesh_.send_word(of.home, head, to_wire(what));
}

void job_links::send(const communicator_actors& of, const ranks_word& what) {
  frame_head head = head_to(of, -1, 0);
  head.kind = frame_kind::ranks;
  // After a takeover each process is the home of its own ranks alone (takeover.hpp), so it tells the others nothing.
  if (of.home == here()) to_others(of, head, to_wire(what));
}

/// Once to each process.
void job_links::to_others(const communicator_actors& of, const frame_head& head, const std::vector<std::byte>& body) {
  std::vector<bool> told(all().processes.size());
  told[here()] = true;
  for (const std::uint32_t process : of.process_of) {
    if (told[process]) continue;
    told[process] = true;
    mesh_.send_word(process, head, body);
  }
}

void job_links::send_gave_up(const communicator_actors& of, epoch_t which, rank_t rank) {
  frame_head head = head_to(of, -1, 0);
  head.kind = frame_kind::process;
  to_others(of, head, to_wire(process_word{gave_up_word{which, rank}}));
}

void job_links::send_revoke(const communicator_actors& of, rank_t rank, const std::string& text) {
  frame_head head = head_to(of, -1, 0);
  head.kind = frame_kind::process;
  to_others(of, head, to_wire(process_word{revoke_word{rank, text}}));
}

void job_links::send_clear(const communicator_actors& of, rank_t to, int channel, const credit& what) {
  mesh_.send_clear(process_of(of, to), head_to(of, to, channel), what);
}

void job_links::offer_place(const communicator_actors& of, rank_t rank, const expected_chunk& what) {
  mesh_.places(process_of(of, what.source)).offer(of.id, rank, what);
}

void job_links::withdraw_place(const communicator_actors& of, rank_t rank, const expected_chunk& what) {
  mesh_.places(process_of(of, what.source)).withdraw(of.id, rank, what);
}

void job_links::let_go(const communicator_actors& of, rank_t rank, const operation_key& which) {
  mesh_.let_go(of.id, rank, which.epoch, which.peer, which.sending);
}

void job_links::let_go(const communicator_actors& of, rank_t rank) { mesh_.let_go(of.id, rank); }

// -- in ---------------------------------------------------------------------------------------------------------------------

bool job_links::chunk_arrived(std::uint32_t from, const frame_head& head, chunk&& what) {
  const auto to = find_or_keep(from, head, [&] { return early_frame{head, std::move(what), {}, {}}; });
  return !to || deliver(*to, from, head, std::move(what));
}

bool job_links::credit_arrived(std::uint32_t from, const frame_head& head, const credit& what) {
  const auto to = find_or_keep(from, head, [&] { return early_frame{head, {}, what, {}}; });
  return !to || deliver(*to, from, head, what);
}

bool job_links::word_arrived(std::uint32_t from, const frame_head& head, std::span<const std::byte> body) {
  if (head.kind == frame_kind::process) {
    const auto word = process_word_from(body);
    if (!word) return false;
    if (const auto* const up = std::get_if<gave_up_word>(&*word)) return gave_up_arrived(from, head.communicator, *up);
    if (const auto* const who = std::get_if<shrink_word>(&*word)) return shrink_arrived(from, head, body, *who);
  }
  const auto to = find_or_keep(from, head, [&] { return early_frame{head, {}, {}, {body.begin(), body.end()}}; });
  return !to || deliver(to, from, head, body);
}

bool job_links::deliver(const communicator_actors& to, std::uint32_t from, const frame_head& head, chunk&& what) {
  if (head.kind == frame_kind::packet || head.kind == frame_kind::ready)
    return deliver_to_nic(to, from, head, std::move(what));
  if (!is_here(to, head.to) || !lives_in(to, what.source, from) || head.channel >= to.channels) return false;
  to.table->at(head.to).post(chunk_message{head.channel, std::move(what)});
  return true;
}

bool job_links::deliver(const communicator_actors& to, std::uint32_t from, const frame_head& head, const credit& what) {
  if (head.kind == frame_kind::response) return deliver_to_nic(to, from, what);
  if (!is_here(to, head.to) || !lives_in(to, what.source, from) || head.channel >= to.channels) return false;
  to.table->at(head.to).post(credit_message{head.channel, what});
  return true;
}

namespace {

/// What the membership says, on a rank's turn. Dissolved is for all ranks together.
rank_order order_of(const ranks_word& what) {
  return [what](rank_state& s, rank_outbox& o) {
    struct {
      rank_state& s;
      rank_outbox& o;
      void operator()(const agreed_message& m) const { s.agreed(m.epoch, m.counts, o); }
      void operator()(const ask_message& m) const { s.asked(m.epoch, o); }
      void operator()(const halt_message& m) const { s.stop(m.epoch, o); }
      void operator()(const failed_message& m) const { s.failed(m.epoch, m.why, o); }
      void operator()(const broken_message& m) const { s.broken(m.why, o); }
      void operator()(const peer_left_message& m) const { s.peer_left(m.rank, m.sent, o); }
      void operator()(const peer_lost_message& m) const { s.peer_lost(m.rank, o); }
      void operator()(const dissolved_message&) const {}
    } const apply{s, o};
    std::visit(apply, what);
  };
}

bool names_right_ranks(const communicator_actors& of, const ranks_word& what) {
  return std::visit(
      [&](const auto& m) {
        if constexpr (requires { m.rank; }) return m.rank >= 0 && m.rank < of.ranks;
        else return true;
      },
      what);
}

}  // namespace

bool job_links::deliver(const communicator_actors_ptr& to, std::uint32_t from, const frame_head& head,
                        std::span<const std::byte> body) {
  switch (head.kind) {
    case frame_kind::pair: {
      const auto word = pair_word_from(body);
      if (!word || !is_here(*to, head.to) || !lives_in(*to, word->from, from)) return false;
      to->table->at(head.to).post(order_of(*word));
      return true;
    }
    case frame_kind::home: {
      auto word = home_word_from(body);
      if (!word || !to->at_home.load()) return false;
      return std::visit(
          [&](auto& m) {
            if constexpr (requires { m.rank; })
              if (!lives_in(*to, m.rank, from)) return false;
            to->tell_membership(std::move(m));
            return true;
          },
          *word);
    }
    case frame_kind::ranks: {
      const auto word = ranks_word_from(body);
      if (!word || from != to->home || !names_right_ranks(*to, *word)) return false;
      if (to->at_home.load()) return true;  // it was lost meanwhile
      if (std::holds_alternative<dissolved_message>(*word)) return to->end_ranks(), true;
      for (const auto& cell : to->table->cells()) cell->post(order_of(*word));
      return true;
    }
    case frame_kind::process: {  // what came early, or a revoke
      const auto word = process_word_from(body);
      if (!word) return false;
      if (const auto* const who = std::get_if<shrink_word>(&*word)) return shrink_arrived(from, head, body, *who);
      const auto* const revoke = std::get_if<revoke_word>(&*word);
      if (revoke == nullptr || !lives_in(*to, revoke->rank, from)) return false;
      to->abort(make_failure(errc::revoked, revoke->text));
      return true;
    }
    default: return false;
  }
}

/// About a part, which may not be here yet, of a communicator that may not be here any more.
bool job_links::gave_up_arrived(std::uint32_t from, communicator_id parent, const gave_up_word& what) {
  std::vector<communicator_actors_ptr> parts;
  {
    const std::lock_guard lock(mutex_);
    const auto at = communicators_.find(parent);
    if (const auto whole = at == communicators_.end() ? nullptr : at->second.lock();
        whole && !lives_in(*whole, what.rank, from))
      return false;
    given_up_.add(parent, what.epoch, what.rank);
    for (const auto& [id, members] : communicators_)
      if (auto m = members.lock(); m && m->parent == parent && m->split == what.epoch) parts.push_back(std::move(m));
  }
  place_given_up(parent, what);
  for (const auto& part : parts) part->never_comes(what.rank);
  return true;
}

void job_links::process_lost(std::uint32_t process, const std::string& how) {
  const auto affected = known();
  const bool matters = std::any_of(affected.begin(), affected.end(), [&](const auto& members) {
    return std::find(members->process_of.begin(), members->process_of.end(), process) != members->process_of.end();
  });
  log_->log(matters ? spdlog::level::err : spdlog::level::info, "{} was lost: {}", name_of(all(), process), how);
  remember_lost(process, how);
  {
    const std::lock_guard lock(mutex_);
    early_.drop_from(process);
  }
  for (const auto& members : known()) members->process_lost(process, how);
}

/// The bound keeps somebody who floods this process with connections from filling its log.
void job_links::turned_away(const std::string& who_and_why) {
  constexpr int most_lines = 16;
  if (turned_away_ < most_lines) log_->warn("{} was turned away", who_and_why), ++turned_away_;
}

void job_links::lanes_changed(std::uint32_t process, int open, const std::string& why_not) {
  if (why_not.empty()) log_->info("{} connections to {} are open", open, name_of(all(), process));
  else
    log_->warn("{} connections to {} have to do: one more cannot be opened ({})", open, name_of(all(), process),
               why_not);
}

/// In order: its ranks have said so to their memberships. One that has not, and is gone all the same, is lost.
void job_links::process_left(std::uint32_t process) {
  remember_lost(process, "it left the job");
  for (const auto& members : known())
    if (std::find(members->process_of.begin(), members->process_of.end(), process) != members->process_of.end())
      members->process_lost(process, "it left the job");
}

}  // namespace troupe::actors
