// SPDX-License-Identifier: Apache-2.0
#pragma once
// The plans that a planner has made, by class of call and layout. Thread-safe; whoever makes one is the planner's to say.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include "memory/word_hash.hpp"
#include "protocols/call.hpp"
#include "protocols/plan.hpp"
#include "protocols/score/score.hpp"
#include "topology/layout/layout.hpp"

namespace troupe {

/// A key that refers to the caller's arguments, so that a look-up copies nothing.
struct plan_key_view {
  call_identity what;
  const layout& placement;
};

struct plan_key {
  explicit plan_key(const plan_key_view& of)
      : what(of.what), choreography(of.what.choreography), placement(of.placement) {}
  operator plan_key_view() const {  // NOLINT: a view of itself
    plan_key_view view{what, placement};
    view.what.choreography = choreography;
    return view;
  }

private:
  call_identity what;  ///< without counts
  std::string choreography;
  layout placement;
};

struct plan_key_hash {
  using is_transparent = void;
  std::size_t operator()(const plan_key_view& key) const {
    word_hash h;
    key.what.add_to(h);
    h.add(static_cast<std::uint64_t>(key.placement.size()));
    return static_cast<std::size_t>(h.state);
  }
};

struct plan_key_equal {
  using is_transparent = void;
  bool operator()(const plan_key_view& a, const plan_key_view& b) const {
    return a.what == b.what && (&a.placement == &b.placement || a.placement == b.placement);
  }
};

class plan_cache {
public:
  using plan_ptr = std::shared_ptr<const plan>;  ///< null is an answer, too

  std::optional<plan_ptr> find(const plan_key_view& key) {
    const std::shared_lock lock(mutex_);
    const auto found = plans_.find(key);
    return found == plans_.end() ? std::nullopt : std::optional{found->second};
  }
  void keep(const plan_key_view& key, const plan_ptr& made) {
    const std::size_t weight = !made ? 1
                                     : step_total(*made->notes) * static_cast<std::size_t>(made->cut().slices) *
                                           static_cast<std::size_t>(made->cut().channels);
    table forgotten;  // destroyed outside the lock
    const std::unique_lock lock(mutex_);
    instructions_ += weight;
    if (instructions_ > most_instructions || plans_.size() >= most_plans) {
      plans_.swap(forgotten);
      instructions_ = weight;
    }
    plans_.emplace(plan_key{key}, made);
  }

  /// In tiers; null: not so.
  std::optional<plan_ptr> find_tiers(const plan_key_view& key) {
    const std::shared_lock lock(mutex_);
    const auto found = tiers_.find(key);
    return found == tiers_.end() ? std::nullopt : std::optional{found->second};
  }
  /// Returns what is kept: this, or what somebody else has made meanwhile.
  plan_ptr keep_tiers(const plan_key_view& key, plan_ptr made) {
    const std::unique_lock lock(mutex_);
    if (tiers_.size() >= most_plans) tiers_.clear();  // users keep theirs
    return tiers_.emplace(plan_key{key}, std::move(made)).first->second;
  }

private:
  /// Plans hold their programs: at most about this many instructions of all ranks, then all are forgotten (users keep theirs).
  static constexpr std::size_t most_instructions = std::size_t{1} << 23;
  static constexpr std::size_t most_plans = 4096;
  using table = std::unordered_map<plan_key, plan_ptr, plan_key_hash, plan_key_equal>;

  std::shared_mutex mutex_;  ///< a shared lock an operation and rank
  table plans_, tiers_;
  std::size_t instructions_ = 0;
};

}  // namespace troupe
