// SPDX-License-Identifier: Apache-2.0
// Who is left of a communicator of a job: brings the words of that agreement between the processes, and keeps its states.

#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "actors/caf/job_links.hpp"

namespace troupe::actors {

/// One agreement. Guarded by job_links::mutex_, also while it sends: the mesh calls nobody back for that.
struct job_links::shrinking final : survivors::outbox {
  shrinking(job_links& l, const communicator_actors& of, std::uint64_t which, std::vector<std::uint32_t> all,
            std::uint32_t at)
      : links(l),
        communicator(of.id),
        number(which),
        process_of(of.process_of),
        processes(std::move(all)),
        state(static_cast<std::uint32_t>(processes.size()), at) {}

  void send(std::uint32_t to, survivors_word what) override {
    frame_head head;
    head.communicator = communicator;
    head.kind = frame_kind::process;
    links.mesh_.send_word(processes[to], head, to_wire(process_word{shrink_word{number, std::move(what)}}));
  }
  void decided(const std::vector<rank_t>& members) override {
    links.decided_.emplace_back(communicator, number);
    tell(members, nullptr);
  }
  void tell(const std::vector<rank_t>& members, const failure_ptr& why) {
    if (const auto listener = std::exchange(told, nullptr)) listener(members, why);
  }
  std::optional<std::uint32_t> index_of(std::uint32_t process) const {
    const auto at = std::lower_bound(processes.begin(), processes.end(), process);
    if (at == processes.end() || *at != process) return std::nullopt;
    return static_cast<std::uint32_t>(at - processes.begin());
  }
  void lose(std::uint32_t process) {
    if (const auto at = index_of(process)) state.lost(*at, *this);
  }
  /// Ranks of the communicator, in their order; who speaks of its own names none of another process.
  bool can_be(std::uint32_t from, const survivors_word& what) const {
    const auto ranks = static_cast<rank_t>(process_of.size());
    const auto in_order = [&](const std::vector<rank_t>& list) {
      return std::is_sorted(list.begin(), list.end(), std::less_equal<>{}) &&
             (list.empty() || (list.front() >= 0 && list.back() < ranks));
    };
    return in_order(what.ranks) && in_order(what.list) &&
           std::all_of(what.ranks.begin(), what.ranks.end(),
                       [&](rank_t r) { return process_of[static_cast<std::size_t>(r)] == from; });
  }

  job_links& links;
  communicator_id communicator;
  std::uint64_t number;
  std::vector<std::uint32_t> process_of;
  std::vector<std::uint32_t> processes;  ///< participants, in their order
  survivors state;
  survivors_told told;
};

job_links::job_links(mesh_options options, roster in, std::uint32_t here, const job_key& key,
                     std::vector<descriptor> listeners, arena& memory, std::shared_ptr<spdlog::logger> log)
    : log_(std::move(log)), mesh_(options, std::move(in), here, key, std::move(listeners), memory, *this) {}

job_links::~job_links() = default;

/// It has not begun here: now. @pre locked; a rank of it lives here
job_links::shrinking& job_links::shrinking_of(const communicator_actors& of, std::uint64_t which) {
  auto& at = shrinks_[{of.id, which}];
  if (at) return *at;
  std::vector<std::uint32_t> processes = of.process_of;
  std::sort(processes.begin(), processes.end());
  processes.erase(std::unique(processes.begin(), processes.end()), processes.end());
  const auto mine = static_cast<std::uint32_t>(std::ranges::find(processes, here()) - processes.begin());
  at = std::make_unique<shrinking>(*this, of, which, processes, mine);
  for (const std::uint32_t process : processes)
    if (lost_.contains(process) || of.has_lost(process)) at->lose(process);
  bound_shrinks();
  return *at;
}

/// Whoever has not heard of so many later ones is not going to ask.
void job_links::bound_shrinks() {
  for (; decided_.size() > most_decided; decided_.pop_front()) shrinks_.erase(decided_.front());
}

void job_links::contribute(const communicator_actors_ptr& of, std::uint64_t which, std::vector<rank_t> mine,
                           survivors_told told) {
  const std::lock_guard lock(mutex_);
  if (!expelled_.empty()) return told({}, make_failure(errc::peer_lost, of->name + ": " + expelled_));
  shrinking& all = shrinking_of(*of, which);
  if (const auto& answer = all.state.answer()) return told(*answer, nullptr);
  all.told = std::move(told);
  all.state.contribute(std::move(mine), all);
}

std::vector<std::uint32_t> job_links::missing(communicator_id of, std::uint64_t which) {
  const std::lock_guard lock(mutex_);
  const auto at = shrinks_.find({of, which});
  if (at == shrinks_.end()) return {};
  std::vector<std::uint32_t> result;
  for (const std::uint32_t index : at->second->state.missing()) result.push_back(at->second->processes[index]);
  return result;
}

void job_links::all_left(communicator_id of) {
  const std::lock_guard lock(mutex_);
  const auto first = shrinks_.lower_bound({of, 0});
  for (auto at = first; at != shrinks_.end() && at->first.first == of;) {
    shrinking& all = *at->second;
    if (all.state.has_contributed()) {
      ++at;
      continue;
    }
    for (std::uint32_t p = 0; p < all.processes.size(); ++p)
      if (all.processes[p] != here() && !all.state.is_gone(p))
        all.send(p, {survivors_word::kind::absent, 0, 0, {}, {}});
    at = shrinks_.erase(at);
  }
}

void job_links::end_shrinks() {
  const std::lock_guard lock(mutex_);
  for (const auto& [which, all] : shrinks_) all->told = nullptr;
}

void job_links::lost_for(communicator_id of, std::uint32_t process) {
  const std::lock_guard lock(mutex_);
  for (auto at = shrinks_.lower_bound({of, 0}); at != shrinks_.end() && at->first.first == of; ++at)
    at->second->lose(process);
}

/// @pre locked
void job_links::remember_lost(std::uint32_t process, const std::string& how) {
  lost_on_host(process);
  lost_.emplace(process, how);
  if (!expelled_.empty()) return;
  for (const auto& [which, all] : shrinks_) all->lose(process);
}

/// Nobody decides anything alone that others decide without it.
void job_links::expelled(const std::string& why) {
  const std::lock_guard lock(mutex_);
  expelled_ = why;
  for (const auto& [which, all] : shrinks_) all->tell({}, make_failure(errc::peer_lost, why));
}

bool job_links::shrink_arrived(std::uint32_t from, const frame_head& head, std::span<const std::byte> body,
                               const shrink_word& what) {
  using kind = survivors_word::kind;
  const std::lock_guard lock(mutex_);
  if (!expelled_.empty()) return true;
  auto at = shrinks_.find({head.communicator, what.number});
  if (at == shrinks_.end()) {
    const bool asks = what.what.what == kind::ready || what.what.what == kind::ask || what.what.what == kind::propose;
    if (!asks) return true;  // to those who have asked; here nobody has, or it is over
    const bool over = std::find(over_.begin(), over_.end(), head.communicator) != over_.end();
    const auto of = over ? nullptr : find_or_keep(head, [&] {
      return early_frame{from, head, {}, {}, {body.begin(), body.end()}};
    });
    if (over || (of && of->all_left_here())) {
      const shrink_word no{what.number, {kind::absent, 0, 0, {}, {}}};
      mesh_.send_word(from, head, to_wire(process_word{no}));
      return true;
    }
    if (!of) return true;
    shrinking_of(*of, what.number);
    at = shrinks_.find({head.communicator, what.number});
  }
  shrinking& all = *at->second;
  const auto index = all.index_of(from);
  if (!index || !all.can_be(from, what.what)) return false;
  all.state.heard(*index, what.what, all);
  return true;
}

}  // namespace troupe::actors
