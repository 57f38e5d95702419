// SPDX-License-Identifier: Apache-2.0
// What to do after failures: revoke a communicator, and make one of those who are left.

#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <spdlog/spdlog.h>

#include "actors/caf/job_links.hpp"
#include "engine/api/code_of_call.hpp"
#include "engine/api/communicator.hpp"
#include "engine/world/communicator_state.hpp"
#include "engine/world/division_state.hpp"
#include "memory/error.hpp"
#include "protocols/agreement/agreement.hpp"

namespace troupe {

namespace {

/// The ranks that have not come to the round, for a person.
std::string text_of_missing(const communicator_state& of, const shrinks::round& which) {
  std::string text;
  const auto add = [&text](const std::string& one) { text += (text.empty() ? "" : ", ") + one; };
  for (const rank_t r : of.shrunk.missing(which)) add("rank " + std::to_string(r));
  if (!of.process_of.empty() && of.shrunk.has_contributed(which)) {
    const actors::job_links& job = *of.core->runtime->job();
    for (const std::uint32_t p : of.core->runtime->job()->missing(of.id, which.number))
      add(actors::name_of(job.all(), p));
  }
  return text.empty() ? "the others" : text;
}

/// A program that hangs because a rank never comes to the round should not do so without a word.
void tell_of_long_wait(communicator_state& of, shrinks::round& which) {
  const std::vector<rank_t> here = of.shrunk.overdue(which);
  if (here.empty()) return;
  std::string text = list_ranks(here) + (here.size() == 1 ? " waits" : " wait");
  // Between processes the one that collects who has come names the others only where they are few.
  if (const std::vector<rank_t> missing = of.shrunk.missing(which); !missing.empty())
    text += "; " + list_ranks(missing) + (missing.size() == 1 ? " has" : " have") + " not called it";
  else text += " for " + text_of_missing(of, which);
  of.core->log->warn("waiting for more than {} s: {}, shrink: {}", communicator_state::long_time.count(), of.name,
                     text);
}

}  // namespace

std::pair<std::shared_ptr<communicator_state>, rank_t> communicator_state::part_after(const shrinks::round& which,
                                                                                      rank_t rank) {
  const std::vector<rank_t>& left = which.members;
  const auto at = std::ranges::lower_bound(left, rank);
  if (at == left.end() || *at != rank)
    throw error(errc::peer_lost, name + ": the other ranks have agreed to go on without rank " + std::to_string(rank) +
                                     ", whose process they had taken for lost");
  const epoch_t as = shrinks::name_of(which);
  const auto make = [&] {
    std::vector<int> places;
    for (const rank_t r : left) places.push_back(machine_ranks[static_cast<std::size_t>(r)]);
    auto part = part_for(left, as, 0);
    if (part) part->id = identity_of_rest(id, as, left);
    return core->found(name + ".shrink" + std::to_string(which.number + 1), placement.subset(left), std::move(places),
                       run, part ? &*part : nullptr, record ? record->part(left) : nullptr);
  };
  return {parts.take(as, 0, left, make), static_cast<rank_t>(at - left.begin())};
}

communicator communicator::shrink(shrink_options options) {
  if (!impl_) refuse_empty();
  const std::shared_ptr<communicator_state> of = impl_->of;
  const rank_t rank = impl_->rank;
  const gate::pass inside{of->core->door, impl_->doorway()};
  if (!inside) refuse_closed();
  actors::runtime::check_may_wait();
  const auto time = of->deadline_for(rank, options.deadline).value_or(communicator_state::usual_deadline);
  of->core->will_wait(of);
  const shrinks::round_ptr all = of->shrunk.come(of, rank);
  // Not as the caller of an operation of this rank: what comes for the rank meanwhile (the end of what others have under way) is its usual
  // helpers' to do.
  const auto begun = std::chrono::steady_clock::now(), until = begun + time;
  const auto wait = [&](std::chrono::steady_clock::time_point end) {
    return of->core->runtime->wait(all->done, end, of->run.get(), of->table->waiting().yields);
  };
  if (time > communicator_state::long_time && !wait(begun + communicator_state::long_time))
    tell_of_long_wait(*of, *all);
  if (!wait(until))
    throw error(errc::timed_out, of->name + ": shrink waited in vain for " + text_of_missing(*of, *all));
  const bool has_place = of->shrunk.take(all, rank);
  if (all->done->why()) throw_failure(all->done->why());
  if (!has_place) refuse_closed();
  try {
    if (std::ssize(all->members) < options.at_least)
      throw error(errc::peer_lost, of->name + ": " + std::to_string(all->members.size()) + " of " +
                                       std::to_string(of->ranks) + " ranks are left, and at least " +
                                       std::to_string(options.at_least) + " were asked for");
    auto i = std::make_shared<impl>();
    std::tie(i->of, i->rank) = of->part_after(*all, rank);
    return communicator{std::move(i)};
  } catch (...) {
    of->give_up(shrinks::name_of(*all), rank);
    throw;
  }
}

std::error_code communicator::try_shrink(communicator& into, shrink_options options) noexcept {
  return code_of_call([&] { into = shrink(options); }, errc::invalid_argument);
}

void communicator::revoke(const std::string& reason) {
  if (!impl_) return;
  const communicator_state& of = *impl_->of;
  const gate::pass inside{of.core->door, impl_->doorway()};
  if (!inside) return;
  const std::string text = of.name + " was revoked by rank " + std::to_string(impl_->rank) + ": " + reason;
  of.end(impl_->rank, make_failure(errc::revoked, text));
}

void communicator_state::takes_along(const std::shared_ptr<communicator_state>& copy) {
  const std::lock_guard lock(copies_mutex);
  std::erase_if(copies, [&](const auto& one) { return one.expired() || one.lock() == copy; });
  copies.push_back(copy);
}

void communicator_state::end(rank_t by, const failure_ptr& why) const {
  // To every process from here, not by way of the membership, whose process may be the one that went wrong.
  if (why->code == errc::revoked && !process_of.empty()) core->runtime->job()->send_revoke(*members, by, why->text);
  core->runtime->abort(*members, why);
  std::vector<std::weak_ptr<communicator_state>> with_it;
  {
    const std::lock_guard lock(copies_mutex);
    with_it = copies;
  }
  for (const auto& one : with_it)
    if (const auto copy = one.lock()) copy->end(by, why);
}

}  // namespace troupe
