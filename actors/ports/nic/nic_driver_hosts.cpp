// SPDX-License-Identifier: Apache-2.0
// Operations that other hosts' NICs perform, too (nic_hosts.hpp): what a driver says to them, and hears.

#include <algorithm>
#include <string>
#include <utility>

#include "actors/ports/nic/nic_driver.hpp"
#include "actors/ports/nic/nic_hosts.hpp"
#include "memory/error.hpp"

namespace troupe::actors {

/// An operation without a part of other hosts ends whatever they do, and can be waited for. One that they perform, too, holds its room until all have begun it: two
/// hosts that had room for different ones only would wait for each other, and so would ranks that first wait for something else. So they have room of
/// their own, and of a communicator's the oldest begins in any case, which is the same one everywhere; hence the oldest that has not ended anywhere
/// is under way everywhere, and ends. Nothing: none of those that wait can begin, or has to fail.
std::optional<std::size_t> nic_driver::next_across() const {
  const line& all = between_hosts();
  bool full = across_ >= most_between_hosts / 2;
  for (std::size_t i = 0; i < all.ready.size(); ++i) {
    const job& what = jobs_.at(all.ready[i]);
    full = full || (all.bytes > 0 && all.bytes + what.scratch_bytes > all.most) ||
           sequences_across_ + what.sequences > most_sequences;
    if (full && !is_oldest(all.ready[i])) continue;
    if (!free_.empty() || across_ == most_between_hosts) return i;
  }
  return std::nullopt;
}

void nic_driver::begin_ready_across(picoseconds now) {
  while (const auto next = next_across()) {
    auto& ready = between_hosts().ready;
    const key which = ready[*next];
    ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(*next));
    if (across_ < most_between_hosts) {
      begin(which, jobs_.at(which), now);
      continue;
    }
    // The others may wait for hosts that wait for this one.
    fail(which, jobs_.at(which), errc::unsupported,
         "the NIC has " + std::to_string(most_between_hosts) +
             " operations between hosts at once at most, and so many communicators have one under way",
         now);
  }
}

/// The memory that it works on is here.
void nic_driver::say_ready(const key& which, job& what, picoseconds now) {
  what.ready_here = true;
  nic_hosts& others = *what.across;
  for (int host = 0; host < others.hosts(); ++host)
    if (host != others.here()) others.wire().send_ready(host, which.second, what.parts.front().what.fingerprint);
  begin_across(which, what, now);
}

/// If all are ready, and for the same call.
void nic_driver::begin_across(const key& which, job& what, picoseconds now) {
  if (what.broken || !what.ready_here || what.in_nic) return;
  const std::uint64_t mine = what.parts.front().what.fingerprint;
  const auto other = std::ranges::find_if(what.ready, [&](const told& t) { return t.fingerprint != mine; });
  if (other != what.ready.end()) {
    const rank_t from = what.across->first_rank_of(other->host);
    release(what);
    std::vector<part> parts = std::move(what.parts);
    jobs_.erase(which);
    for (const part& p : parts) p.who->differs(which.second, from);
    return;
  }
  if (std::cmp_less(what.ready.size() + 1, what.across->hosts())) return;
  try {
    give_to_nic(what);
  } catch (const error& e) {
    return fail(which, what, e.code_value(), e.what(), now);
  }
  for (const offload_channel_name& on : std::exchange(what.early, {}))
    what.across->wire().send(static_cast<int>(on.source_node), which.second, offload_response{{}, on, 0, true});
}

void nic_driver::ready_came(std::uint64_t communicator, epoch_t epoch, int host, std::uint64_t fingerprint,
                            picoseconds now) {
  const key which{communicator, epoch};
  const auto at = jobs_.find(which);
  // Its ranks may be about to post it. If they never do, its turn to be forgotten comes with the next one that they all post.
  if (at == jobs_.end() || at->second.parts.size() < static_cast<std::size_t>(at->second.parts.front().what.posters()))
    return told_[which].push_back({host, fingerprint});
  const auto same = [&](const told& t) { return t.host == host; };
  if (std::ranges::none_of(at->second.ready, same)) at->second.ready.push_back({host, fingerprint});
  begin_across(which, at->second, now);
}

void nic_driver::packet_came(std::uint64_t communicator, epoch_t epoch, offload_packet&& what, picoseconds now) {
  const auto at = jobs_.find({communicator, epoch});
  if (at == jobs_.end() || !at->second.runs_as) return;
  job& of = at->second;
  if (of.in_nic) {
    what.job = *of.runs_as;
    return nic_.arrive(std::move(what), now);
  }
  if (std::ranges::find(of.early, what.on) == of.early.end()) of.early.push_back(what.on);
}

void nic_driver::response_came(std::uint64_t communicator, epoch_t epoch, const offload_response& what,
                               picoseconds now) {
  const auto at = jobs_.find({communicator, epoch});
  if (at == jobs_.end() || !at->second.runs_as || !at->second.in_nic) return;
  at->second.again = at->second.again || what.again;
  offload_response mine = what;
  mine.job = *at->second.runs_as;
  nic_.respond(mine, now);
}

/// Null: nobody's; a NIC process performs what others have written.
nic_wire* nic_driver::way_to(std::uint32_t node, const offload_job& of) {
  const auto at = jobs_.find(by_id_[of.id]);
  if (at == jobs_.end() || at->second.runs_as != of) return nullptr;
  nic_hosts* const others = at->second.across;
  const bool is_one =
      others != nullptr && std::cmp_less(node, others->hosts()) && std::cmp_not_equal(node, others->here());
  return is_one ? &others->wire() : nullptr;
}

void nic_driver::send_away(const offload_packet& what) {
  if (nic_wire* const way = way_to(what.on.dest_node, what.job))
    way->send(static_cast<int>(what.on.dest_node), by_id_[what.job.id].second, what);
}

void nic_driver::send_away(const offload_response& what) {
  if (nic_wire* const way = way_to(what.on.source_node, what.job))
    way->send(static_cast<int>(what.on.source_node), by_id_[what.job.id].second, what);
}

void nic_driver::let_go_of_links(const key& which, const job& what) {
  if (!what.in_nic || what.across == nullptr) return;
  for (const part& p : what.parts) what.across->wire().let_go(p.what.rank, which.second);
}

}  // namespace troupe::actors
