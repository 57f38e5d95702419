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

/// Keeps it in place of the oldest one, if there are many.
void card_tiers::came_back(const block& what) noexcept {
  std::optional<block> unused;
  try {
    const std::lock_guard lock(mutex_);
    if (lost_) {
      unused = what;
    } else {
      const auto same = [&](const block& one) { return one.of == what.of; };
      kept_.push_back(what);
      if (static_cast<std::size_t>(std::ranges::count_if(kept_, same)) > most_kept) {
        const auto oldest = std::ranges::find_if(kept_, same);
        unused = std::move(*oldest);
        kept_.erase(oldest);
      }
    }
  } catch (const std::bad_alloc&) {
    unused = what;
  }
  if (unused) free(*unused);
}

void card_tiers::free(const block& what) const {
  try {
    what.tier->deallocate(what.at);
  } catch (const error& wrong) {
    complain_(wrong.what());
  }
}

}  // namespace troupe::actors
