#pragma once
// The calls that a rank has made over the boards lately, so that their repetition needs no plan and no program, whose look-up other
// ranks do at the same time. A program repeats a handful of calls, with a root that moves on perhaps: each has its place, found by a
// hash, and the last one is found without.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "actors/rank/operation.hpp"
#include "protocols/plan.hpp"

namespace troupe::actors {

/// Not synchronised.
class remembered_calls {
public:
  struct entry {
    call what;  ///< with the reduction of its last repetition
    plan_ptr how;
    // One of them, by the plan's port.
    std::shared_ptr<const slot_program> slots;
    std::shared_ptr<const direct_program> direct;
    std::uint64_t fingerprint = 0;
  };

  /// Plans and programs are the same for both.
  static bool alike(const call& a, const call& b) {
    if (a.what != b.what || a.count != b.count || a.type != b.type || a.in_place != b.in_place || a.level != b.level ||
        !b.uniform)
      return false;
    if (has_root(a.what) && a.root != b.root) return false;
    if (is_reduction(a.what) &&
        (a.reduction.kind != b.reduction.kind || a.reduction.commutative != b.reduction.commutative ||
         a.reduction.associative != b.reduction.associative))
      return false;
    return a.protocol == b.protocol && a.choreography == b.choreography;
  }

  /// The one that is like `what`, or null.
  entry* find(const call& what) const {
    if (last_ != nullptr && alike(last_->what, what)) [[likely]]
      return last_;
    entry* const found = places_[place_of(what)].get();
    return found != nullptr && alike(found->what, what) ? found : nullptr;
  }
  /// Makes the one that is like `what` the last. False if there is none.
  bool recall(const call& what) {
    entry* const found = find(what);
    if (found != nullptr) last_ = found;
    return found != nullptr;
  }

  /// It is the last now. Who had its place is given back, to be let go outside the lock.
  [[nodiscard]] std::unique_ptr<entry> put(std::unique_ptr<entry> fresh) {
    last_ = fresh.get();
    return std::exchange(places_[place_of(fresh->what)], std::move(fresh));
  }

  bool is_last(const call& what) const { return last_ != nullptr && alike(last_->what, what); }
  /// @pre something was recalled or put
  entry& last() const { return *last_; }

private:
  static constexpr std::size_t place_count = 64;  ///< up to that many ranks, every root has its own

  /// Roots that follow each other never share a place.
  static std::size_t place_of(const call& c) {
    const std::size_t kind = static_cast<std::size_t>(c.what) | static_cast<std::size_t>(c.type) << 8 |
                             static_cast<std::size_t>(c.reduction.kind) << 16 | (c.in_place ? std::size_t{1} << 24 : 0);
    const std::uint64_t mixed = (std::uint64_t{c.count} ^ kind << 32) * 0x9e3779b97f4a7c15U >> 32;
    return (mixed + (has_root(c.what) ? static_cast<std::size_t>(c.root) : 0)) % place_count;
  }

  std::array<std::unique_ptr<entry>, place_count> places_;
  entry* last_ = nullptr;
};

}  // namespace troupe::actors
