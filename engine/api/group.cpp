// SPDX-License-Identifier: Apache-2.0
// A group, and in which order what it has is launched.
#include <algorithm>
#include <compare>
#include <forward_list>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/api/communicator.hpp"
#include "engine/world/communicator_state.hpp"
#include "memory/error.hpp"
#include "protocols/choreographies/peer_order.hpp"

namespace troupe {

request group::add(const std::shared_ptr<request::state>& what, std::shared_ptr<const void> member) {
  if (requests_.empty()) requests_.reserve(8);
  request r{what};
  requests_.push_back(r);
  what->member = std::move(member);
  what->to_launch = {what, what->what};  // a circle until the group launches it, or gives it up
  return r;
}

/// The doors of the engines that requests belong to, each held open once if it is not closed. Nearly always it is one engine; then
/// nothing is allocated.
class TROUPE_INTERNAL group::open_doors {
public:
  explicit open_doors(std::span<const request> requests) {
    for (const request& r : requests) admit(*r.state_);
  }
  /// Its engine's door is held open.
  bool admit(const request::state& which) {
    const door* its = find(*which.of->core);
    if (its == nullptr) its = !first_ ? &first_.emplace(which) : &more_.emplace_front(which);
    return static_cast<bool>(its->inside);
  }

private:
  struct door {
    explicit door(const request::state& through)
        : core(through.of->core), inside(core->door, static_cast<std::size_t>(through.rank)) {}
    const std::shared_ptr<engine_core> core;  ///< the last of the requests may go before the pass does
    const gate::pass inside;
  };
  const door* find(const engine_core& core) const {
    if (first_ && first_->core.get() == &core) return &*first_;
    const auto at = std::find_if(more_.begin(), more_.end(), [&](const door& d) { return d.core.get() == &core; });
    return at != more_.end() ? &*at : nullptr;
  }
  std::optional<door> first_;
  std::forward_list<door> more_;
};

/// In which order requests are launched: as they were added, but for sends and receives of communicators that have an order of peers (planner
/// "nccl"). Those of a rank are launched as NCCL does: round by round, the receive of a round before its send, one message for each peer and direction before
/// the second one of any. Among themselves they take the places that they have among the others, and none is overtaken by one with the same peer,
/// so what is received does not depend on it. A send_recv, which is two of them, keeps its place, and none passes it.
class TROUPE_INTERNAL group::launch_order {
public:
  explicit launch_order(std::span<const request> requests) {
    if (std::ranges::none_of(requests, [](const request& r) { return is_ordered(*r.state_); })) return;
    std::map<rank_key, rank_part> ranks;
    at_.resize(requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const request::state& r = *requests[i].state_;
      at_[i] = i;
      if (!r.of->meeting || r.what->peer < 0) continue;
      rank_part& part = ranks[{r.of.get(), r.rank}];
      if (r.pair != nullptr) settle(part);
      else part.add(i, r);
    }
    for (auto& [who, part] : ranks) settle(part);
  }
  std::size_t operator[](std::size_t i) const { return at_.empty() ? i : at_[i]; }

private:
  using rank_key = std::pair<const communicator_state*, rank_t>;
  struct member {
    int turn;  ///< how many with the same peer and direction are before it
    int round;
    bool sending;
    std::size_t at;
    auto operator<=>(const member&) const = default;
  };
  struct rank_part {
    std::vector<member> all;
    std::map<std::pair<rank_t, bool>, int> turns;

    void add(std::size_t at, const request::state& r) {
      const actors::operation& op = *r.what;
      const int round = op.sending ? r.of->meeting->round(r.rank, op.peer) : r.of->meeting->round(op.peer, r.rank);
      all.push_back({turns[{op.peer, op.sending}]++, round, op.sending, at});
    }
  };

  static bool is_ordered(const request::state& r) {
    return r.of->meeting != nullptr && r.what->peer >= 0 && r.pair == nullptr;
  }
  void settle(rank_part& part) {
    std::vector<std::size_t> places;
    places.reserve(part.all.size());
    for (const member& m : part.all) places.push_back(m.at);
    std::sort(part.all.begin(), part.all.end());
    for (std::size_t i = 0; i < places.size(); ++i) at_[places[i]] = part.all[i].at;
    part = {};
  }

  std::vector<std::size_t> at_;  ///< empty: as they were added
};

group::~group() {
  if (actors::no_waiting::here()) {
    // The callers' buffers may go with the group, so nothing may begin that nobody waits for.
    for (; launched_ < requests_.size(); ++launched_)
      if (requests_[launched_].state_->to_launch != nullptr) requests_[launched_].state_->give_up();
    return;
  }
  launch();
  for (request& r : requests_) static_cast<void>(r.try_wait());
}

void group::launch() {
  if (launched_ == requests_.size()) return;
  open_doors inside{std::span(requests_).subspan(launched_)};  // until `together` ends, which begins what is queued
  const actors::rank_cell::gathering together;                 // all are queued before the first begins
  launch_all(inside);
}

void group::launch_all(open_doors& inside) {
  while (launched_ < requests_.size()) {
    const std::size_t end = requests_.size();  // a callback may add to the group
    const launch_order order{std::span(requests_).subspan(launched_)};
    for (std::size_t i = 0, first = launched_; first + i < end; ++i) {
      const std::size_t at = first + order[i];
      if (requests_[at].state_->to_launch == nullptr) continue;  // before something was thrown, or by that callback
      const std::shared_ptr<request::state> mine = requests_[at].state_;
      const bool open = inside.admit(*mine);  // may throw
      mine->launch(open);
      if (open && mine->cancel_wanted.load()) request::state::end_cancelled(mine);  // before, or just now
    }
    launched_ = std::max(launched_, end);
  }
}

void group::wait() {
  actors::runtime::check_may_wait();
  actors::rank_cell* late = nullptr;  // as long as a request of it is held
  if (launched_ < requests_.size()) {
    open_doors inside{std::span(requests_).subspan(launched_)};
    actors::rank_cell::gathering together;
    launch_all(inside);
    late = together.drive();
  }
  std::vector<request> requests;
  requests.swap(requests_);  // a callback may add to the group
  launched_ = 0;
  bool failed = false;
  const auto begun = late != nullptr ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point{};
  std::size_t bytes = 0;  // that were to be copied
  for (request& r : requests) {
    if (late != nullptr && !r.done()) bytes += r.state_->what->what.count * size_of(r.state_->what->what.type);
    failed = r.try_wait() != std::error_code{} || failed;
  }
  if (late != nullptr) late->waited_for_group(std::chrono::steady_clock::now() - begun, bytes);
  if (!failed) return;
  for (request& r : requests) r.wait();  // all are done: throws the first failure
}

}  // namespace troupe
