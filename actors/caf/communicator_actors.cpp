// SPDX-License-Identifier: Apache-2.0
#include "actors/caf/communicator_actors.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <spdlog/spdlog.h>

#include "actors/caf/job_links.hpp"
#include "actors/caf/membership.hpp"
#include "actors/caf/rank_shell.hpp"
#include "actors/ports/link/takeover.hpp"

namespace troupe::actors {

communicator_actors::communicator_actors(caf::actor_system& system, std::string called, int n, int channel_count,
                                         arena& m, fabric* way)
    : name(std::move(called)), ranks(n), channels(channel_count), memory(m), ways(way), system_(system) {}

communicator_actors::~communicator_actors() {
  if (nic_shared) nic_shared->end();
  if (nic_across) nic_across->end();
}

// -- the actors -------------------------------------------------------------------------------------------------------

bool communicator_actors::make() {
  const std::lock_guard lock(mutex_);
  if (made_.load(std::memory_order_relaxed)) return true;
  if (ended.load()) return false;
  const lets_go_of_logger of_this_thread;
  shells.reserve(static_cast<std::size_t>(ranks));
  while (shells.size() < static_cast<std::size_t>(ranks)) {
    const auto rank = static_cast<rank_t>(shells.size());
    shells.push_back(is_here(rank) ? spawn_rank_shell(system_, shared_from_this(), rank) : caf::actor{});
  }
  if (at_home.load()) make_membership();
  made_.store(true, std::memory_order_release);
  return true;
}

/// @pre locked
void communicator_actors::make_membership() {
  membership_ = spawn_membership(system_, shared_from_this());
  for (const auto& word : early_) std::visit([&](const auto& what) { post(membership_, what); }, word);
  if (links == nullptr) early_.clear();
}

const caf::actor& communicator_actors::membership() {
  if (!has_actors()) make();
  return membership_;
}

const caf::actor& communicator_actors::shell(rank_t rank) {
  static const caf::actor nobody;
  return has_actors() || make() ? shells[static_cast<std::size_t>(rank)] : nobody;
}

/// True: kept for the membership that may be made one day. False: there is one.
template <class Word>
bool communicator_actors::keep(Word&& what) {
  const std::lock_guard lock(mutex_);
  if (made_.load(std::memory_order_relaxed)) return false;
  if (early_.empty()) early_.reserve(static_cast<std::size_t>(ranks));
  early_.emplace_back(std::forward<Word>(what));
  return true;
}

/// In a job. Kept beside: should the home be lost, the next membership hears it, too.
template <class Word>
void communicator_actors::keep_in_job(Word&& what) {
  const std::lock_guard lock(mutex_);
  early_.emplace_back(what);
  if (at_home.load()) post(membership_, std::forward<Word>(what));
  else send_home(home_word{std::forward<Word>(what)});
}

void communicator_actors::send_home(const home_word& what) { links->send(*this, what); }

// -- what a membership need not be made for ------------------------------------------------------------------------------

void communicator_actors::left(rank_t rank, epoch_t operations, call last, sends_ptr sent) {
  left_message message{rank, operations, std::move(last), std::move(sent)};
  if (links != nullptr) {
    keep_in_job(std::move(message));
    if (all_left_here()) links->all_left(id);
    return;
  }
  if (!keep(message)) return post(membership_, std::move(message));
  if (left_.fetch_add(1) + 1 == ranks) {
    tell_untold();
    return end();
  }
  // Ranks with something under way hear of it now, the others at their next call.
  for (rank_t other = 0; other < ranks; ++other)
    if (other != rank)
      table->at(other).leave_word(
          rank_order{[rank](rank_state& s, rank_outbox& out) { s.peer_left(rank, nullptr, out); }});
}

/// All have left, and nobody has made a membership that would have compared their last calls.
void communicator_actors::tell_untold() {
  std::vector<call> last;
  epoch_t operations = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto tells = [](const auto& word) {
      const auto* const left = std::get_if<left_message>(&word);
      return left != nullptr && left->last.history != 0;
    };
    if (std::ranges::none_of(early_, tells)) return;  // nobody's calls have run ahead
    last.resize(static_cast<std::size_t>(ranks));
    for (const auto& word : early_) {
      if (std::holds_alternative<abort_message>(word)) return;
      const auto* const left = std::get_if<left_message>(&word);
      if (left == nullptr) continue;
      last[static_cast<std::size_t>(left->rank)] = left->last;
      operations = std::max(operations, left->operations);
    }
  }
  if (const std::string why = earlier_disagreement(last, operations); !why.empty()) log->error("{}, {}", name, why);
}

void communicator_actors::quiet(rank_t rank) {
  if (links != nullptr) return keep_in_job(quiet_message{rank});
  if (!keep(quiet_message{rank})) post(membership_, quiet_message{rank});
}

void communicator_actors::abort(const failure_ptr& why) {
  table->broken(why);  // at once: what its caller begins next fails already
  const auto is_abort = [](const auto& word) { return std::holds_alternative<abort_message>(word); };
  {
    const std::lock_guard lock(mutex_);
    // The first is the one that counts.
    if (links != nullptr && std::any_of(early_.begin(), early_.end(), is_abort)) return;
  }
  if (links != nullptr) return keep_in_job(abort_message{why});
  {
    const std::lock_guard lock(mutex_);
    if (!made_.load(std::memory_order_relaxed)) {
      if (std::none_of(early_.begin(), early_.end(), is_abort)) early_.emplace_back(abort_message{why});
      return;
    }
  }
  post(membership_, abort_message{why});
}

// -- the end ----------------------------------------------------------------------------------------------------------

void communicator_actors::live() {
  alive_ = shared_from_this();
  if (links == nullptr) return;
  if (at_home.load()) make();
  links->enter(alive_);
}

void communicator_actors::never_comes(rank_t in_parent) {
  if (ended.load()) return;
  std::optional<std::uint32_t> process;
  {
    const std::lock_guard lock(mutex_);
    process = never_come_.add(in_parent, parent_rank, process_of);
  }
  if (process) process_lost(*process, "it has not got its part of the split");
}

bool communicator_actors::all_left_here() {
  const std::lock_guard lock(mutex_);
  const auto left = std::count_if(early_.begin(), early_.end(),
                                  [](const auto& word) { return std::holds_alternative<left_message>(word); });
  return static_cast<std::size_t>(left) >= table->cells().size();
}

void communicator_actors::process_lost(std::uint32_t lost, const std::string& how) {
  links->lost_for(id, lost);
  if (ended.load()) return;
  const auto news = [&](rank_t rank, const std::string& reason) {
    const std::string who = "rank " + std::to_string(rank) + " was lost with ";
    return rank_lost_message{
        rank, make_failure(errc::peer_lost, name + ": " + who + reason + "; the communicator cannot be used any more")};
  };
  const std::string reason = name_of(links->all(), lost) + ": " + how;
  takeover made = when_lost(lost, links->here(), home, at_home.load(), process_of);
  if (made.begins) {
    make();
    const std::lock_guard lock(mutex_);
    if (ended.load()) return;
    if (at_home.load())
      made = when_lost(lost, links->here(), home, true, process_of);  // several may hear of it at once
    else make_membership();
    at_home.store(true);
  }
  if (made.begins)
    for (const auto& cell : table->cells()) cell->post(rank_order{[](rank_state& s, rank_outbox& o) { s.rehomed(o); }});
  for (const auto& [rank, by_takeover] : made.lost)
    post(membership_, news(rank, by_takeover ? reason + ", where the membership was" : reason));
}

void communicator_actors::end() {
  std::shared_ptr<communicator_actors> last;
  {
    const std::lock_guard lock(mutex_);
    ended.store(true);
    last.swap(alive_);
  }
  if (links != nullptr) links->forget(id);
  table->care().close();
}

void communicator_actors::end_ranks() {
  if (has_actors())
    for (const caf::actor& rank : shells)
      if (rank) post_exit(rank, caf::exit_reason::user_shutdown);
  table->close();
  end();
}

void communicator_actors::dissolve() {
  if (!at_home.load()) return end_ranks();
  if (has_actors()) post(membership_, dissolve_message{});
  else end();
}

}  // namespace troupe::actors
