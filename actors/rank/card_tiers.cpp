// SPDX-License-Identifier: Apache-2.0
#include "actors/rank/card_tiers.hpp"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "memory/error.hpp"

namespace troupe::actors {

card_tiers::~card_tiers() {
  for (const block& one : kept_) free(one);
}

card_tiers::region card_tiers::take(rank_t of, std::size_t bytes) {
  block found;
  {
    const std::lock_guard lock(mutex_);
    if (lost_) throw error(lost_->code, lost_->text);
    const auto at = std::ranges::find_if(kept_, [&](const block& one) { return one.of == of && one.bytes == bytes; });
    if (at == kept_.end()) return nullptr;
    found = std::move(*at);
    kept_.erase(at);
  }
  return lent(found);
}

card_tiers::region card_tiers::grant(rank_t of, const std::shared_ptr<tier_heap>& from, std::size_t bytes) {
  return lent({of, from, static_cast<std::byte*>(from->allocate(bytes)), bytes});
}

bool card_tiers::give_back(const tier_heap& tier) {
  std::vector<block> unused;
  {
    const std::lock_guard lock(mutex_);
    const auto others =
        std::stable_partition(kept_.begin(), kept_.end(), [&](const block& one) { return one.tier.get() != &tier; });
    unused.assign(others, kept_.end());
    kept_.erase(others, kept_.end());
  }
  for (const block& one : unused) free(one);
  return !unused.empty();
}

void card_tiers::lose(const failure_ptr& why) {
  const std::lock_guard lock(mutex_);
  if (!lost_) lost_ = why;
}

card_tiers::region card_tiers::lent(const block& what) {
  return {what.at, [home = shared_from_this(), what](std::byte*) { home->came_back(what); }};
}

/// Of that tier, which `latest` is of. @pre locked
bool card_tiers::keeps_too_much(const block& latest) const {
  std::size_t blocks = 0, bytes = 0;
  for (const block& one : kept_)
    if (one.of == latest.of) ++blocks, bytes += one.bytes;
  return blocks > most_kept || (blocks > 1 && bytes - latest.bytes > most_kept_bytes);
}

/// Keeps it in place of the oldest ones, if there is too much.
void card_tiers::came_back(const block& what) noexcept {
  try {
    std::vector<block> unused;
    {
      const std::lock_guard lock(mutex_);
      unused.reserve(most_kept + 1);
      (lost_ ? unused : kept_).push_back(what);
      while (keeps_too_much(what)) {
        const auto oldest = std::ranges::find(kept_, what.of, &block::of);
        unused.push_back(std::move(*oldest));
        kept_.erase(oldest);
      }
    }
    for (const block& one : unused) free(one);
  } catch (const std::bad_alloc&) {  // before it is kept
    free(what);
  }
}

void card_tiers::free(const block& what) const {
  try {
    what.tier->deallocate(what.at);
  } catch (const error& wrong) {
    complain_(wrong.what());
  }
}

}  // namespace troupe::actors
