// SPDX-License-Identifier: Apache-2.0
#include "actors/caf/communicator_actors.hpp"

#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "actors/caf/membership.hpp"
#include "actors/caf/rank_shell.hpp"

namespace troupe::actors {

communicator_actors::communicator_actors(caf::actor_system& system, std::string called, int n, int channel_count,
                                         arena& m, fabric* way)
    : name(std::move(called)), ranks(n), channels(channel_count), memory(m), ways(way), system_(system) {}

// -- the actors -------------------------------------------------------------------------------------------------------

bool communicator_actors::make() {
  const std::lock_guard lock(mutex_);
  if (made_.load(std::memory_order_relaxed)) return true;
  if (ended.load()) return false;
  const lets_go_of_logger of_this_thread;
  shells.reserve(static_cast<std::size_t>(ranks));
  while (shells.size() < static_cast<std::size_t>(ranks))
    shells.push_back(spawn_rank_shell(system_, shared_from_this(), static_cast<rank_t>(shells.size())));
  membership_ = spawn_membership(system_, shared_from_this());
  for (const auto& word : early_) std::visit([&](const auto& what) { post(membership_, what); }, word);
  early_.clear();
  made_.store(true, std::memory_order_release);
  return true;
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
  early_.emplace_back(std::forward<Word>(what));
  return true;
}

// -- what a membership need not be made for ------------------------------------------------------------------------------

void communicator_actors::left(rank_t rank, epoch_t operations, call last) {
  left_message message{rank, operations, std::move(last)};
  if (!keep(message)) return post(membership_, std::move(message));
  if (left_.fetch_add(1) + 1 == ranks) {
    tell_untold();
    return end();
  }
  // Who has something under way hears of it now, the others when they call next.
  for (rank_t other = 0; other < ranks; ++other)
    if (other != rank)
      table->at(other).leave_word(rank_order{[rank](rank_state& s, rank_outbox& out) { s.peer_left(rank, out); }});
}

/// All have left, and nobody has made a membership that would have compared their last calls.
void communicator_actors::tell_untold() {
  std::vector<call> last(static_cast<std::size_t>(ranks));
  epoch_t operations = 0;
  {
    const std::lock_guard lock(mutex_);
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
  if (!keep(quiet_message{rank})) post(membership_, quiet_message{rank});
}

void communicator_actors::abort(const failure_ptr& why) {
  table->broken(why);  // at once: what its caller begins next fails already
  {
    const std::lock_guard lock(mutex_);
    if (!made_.load(std::memory_order_relaxed)) {
      const auto is_abort = [](const auto& word) { return std::holds_alternative<abort_message>(word); };
      if (std::none_of(early_.begin(), early_.end(), is_abort)) early_.emplace_back(abort_message{why});
      return;
    }
  }
  post(membership_, abort_message{why});
}

// -- the end ----------------------------------------------------------------------------------------------------------

void communicator_actors::end() {
  std::shared_ptr<communicator_actors> last;
  {
    const std::lock_guard lock(mutex_);
    ended.store(true);
    last.swap(alive_);
  }
  table->care().close();
}

void communicator_actors::dissolve() {
  if (has_actors()) post(membership_, dissolve_message{});
  else end();
}

}  // namespace troupe::actors
