// SPDX-License-Identifier: Apache-2.0
#include "actors/virtual/max_min_state.hpp"

#include <algorithm>
#include <cmath>

#include "actors/virtual/element_state.hpp"

namespace troupe::actors {

namespace {

/// Rates that differ by less are the same: far above the rounding of doubles, far below what anybody reads.
constexpr double equal_to = 1e-9;
/// A rate that changes by less stays as it is, and with it the planned end.
constexpr double unchanged = 1e-13;
/// A part of a picosecond by which a quotient may exceed the true one.
constexpr double rounding = 1e-6;
/// After so many rounds every flow that hangs together with the chosen ones is filled anew, so that no chain costs a round a link.
constexpr int rounds_nearby = 6;
/// `used` is a running sum; so often it is summed up anew.
constexpr std::uint32_t changes_between_sums = 4096;

}  // namespace

max_min_state::index max_min_state::add_element(double capacity) {
  elements_.emplace_back();
  elements_.back().capacity = capacity;
  return static_cast<index>(elements_.size() - 1);
}

// -- flows come and go ------------------------------------------------------------------------------------------------

max_min_state::index max_min_state::join(std::int64_t now, std::uint64_t bytes, std::span<const index> on,
                                         double most) {
  index at = 0;
  if (free_flows_.empty()) {
    at = static_cast<index>(flows_.size());
    flows_.emplace_back();
  } else {
    at = free_flows_.back();
    free_flows_.pop_back();
  }
  flow& f = flows_[at];
  f.on.clear();
  f.left = static_cast<double>(bytes);
  f.rate = 0, f.since = now, f.order = joined_++, f.bottleneck = none, f.own = none, f.there = true;
  ++count_;
  bool alone = true;
  const auto enter = [&](index e) {
    f.on.push_back({e, static_cast<std::uint32_t>(elements_[e].members.size())});
    elements_[e].members.push_back({at, static_cast<std::uint32_t>(f.on.size() - 1)});
    alone = alone && elements_[e].members.size() == 1;
  };
  if (bytes > 0) {
    for (const index e : on)
      if (elements_[e].capacity > 0) enter(e);
    if (most > 0) {
      if (free_elements_.empty()) free_elements_.push_back(add_element(0));
      f.own = free_elements_.back();
      free_elements_.pop_back();
      elements_[f.own].capacity = most;
      enter(f.own);
    }
  }
  if (f.on.empty()) {  // nothing holds it back
    plan(at);
  } else if (alone) {
    index least = f.on.front().element;
    for (const membership& m : f.on)
      if (elements_[m.element].capacity < elements_[least].capacity) least = m.element;
    f.rate = elements_[least].capacity;
    for (const membership& m : f.on) elements_[m.element].used = f.rate;
    hold(at, least);
    plan(at);
  } else {
    fresh_.push_back(at);
  }
  return at;
}

void max_min_state::leave(index at) {
  flow& f = flows_[at];
  if (f.bottleneck != none) let_go(f);
  for (const membership& m : f.on) {
    element& e = elements_[m.element];
    const member last = e.members.back();
    e.members[m.at] = last;
    flows_[last.flow].on[last.slot].at = m.at;
    e.members.pop_back();
    if (e.members.empty()) e.used = 0, e.changes = 0;
    else change(e, -f.rate);
    // What it leaves is for those that this element holds back; if there are none, nobody gains.
    if (!e.held.empty() && !e.is_freed) e.is_freed = true, freed_.push_back(m.element);
  }
  if (f.own != none) free_elements_.push_back(f.own);
  f.there = false;
  ++f.plan;
  free_flows_.push_back(at);
  --count_;
}

void max_min_state::change(element& e, double by) {
  e.used += by;
  if (++e.changes < changes_between_sums) return;
  e.changes = 0;
  e.used = 0;
  for (const member& m : e.members) e.used += flows_[m.flow].rate;
}

void max_min_state::hold(index at, index by) {
  flow& f = flows_[at];
  f.bottleneck = by;
  f.bottleneck_at = static_cast<std::uint32_t>(elements_[by].held.size());
  elements_[by].held.push_back(at);
}

void max_min_state::let_go(flow& f) {
  std::vector<index>& held = elements_[f.bottleneck].held;
  held[f.bottleneck_at] = held.back();
  flows_[held.back()].bottleneck_at = f.bottleneck_at;
  held.pop_back();
  f.bottleneck = none;
}

// -- ends -------------------------------------------------------------------------------------------------------------

void max_min_state::plan(index at) {
  flow& f = flows_[at];
  std::int64_t end = f.since;
  if (!f.on.empty()) {
    const double lasts = std::ceil(f.left / f.rate - rounding);
    constexpr auto most = static_cast<double>(end_of_time);
    end = lasts >= most ? end_of_time : std::min(end + static_cast<std::int64_t>(std::max(lasts, 0.0)), end_of_time);
  }
  if (endings_.size() > 64 && endings_.size() > 4 * count_) {  // mostly void
    std::erase_if(endings_, [&](const ending& e) { return flows_[e.flow].plan != e.plan || !flows_[e.flow].there; });
    std::make_heap(endings_.begin(), endings_.end());
  }
  endings_.push_back({end, f.order, at, ++f.plan});
  std::push_heap(endings_.begin(), endings_.end());
}

std::int64_t max_min_state::next() {
  while (!endings_.empty()) {
    const ending& first = endings_.front();
    if (flows_[first.flow].plan == first.plan && flows_[first.flow].there) return first.time;
    std::pop_heap(endings_.begin(), endings_.end());
    endings_.pop_back();
  }
  return never;
}

max_min_state::index max_min_state::take_done(std::int64_t now) {
  if (next() > now) return none;
  const index at = endings_.front().flow;
  std::pop_heap(endings_.begin(), endings_.end());
  endings_.pop_back();
  leave(at);
  return at;
}

// -- shares -----------------------------------------------------------------------------------------------------------

void max_min_state::settle(std::int64_t now) {
  ++round_;
  chosen_.clear();
  touched_.clear();
  for (const index f : fresh_)
    if (flows_[f].there) choose(f);
  for (const index e : freed_) {
    elements_[e].is_freed = false;
    choose_held(e);
  }
  fresh_.clear();
  freed_.clear();
  if (chosen_.empty()) return;
  for (int rounds = 1;; ++rounds) {
    fill();
    if (!widen(rounds > rounds_nearby)) break;
  }
  commit(now);
}

void max_min_state::choose(index at) {
  flow& f = flows_[at];
  if (f.chosen == round_) return;
  f.chosen = round_;
  chosen_.push_back(at);
  for (const membership& m : f.on) {
    touch(m.element);
    elements_[m.element].chosen.push_back(at);
  }
}

void max_min_state::touch(index at) {
  element& e = elements_[at];
  if (e.touched == round_) return;
  e.touched = round_;
  e.chosen.clear();
  touched_.push_back(at);
}

void max_min_state::choose_held(index at) {
  for (const index f : elements_[at].held) choose(f);
}

/// The chosen flows grow alike within what the others leave.
void max_min_state::fill() {
  queue_.clear();
  const auto offer = [&](index at) {
    element& e = elements_[at];
    e.level = std::max(e.left, 0.0) / e.growing;
    queue_.push_back({e.level, at});
    std::push_heap(queue_.begin(), queue_.end());
  };
  for (const index f : chosen_) flows_[f].filled = -1;
  for (const index at : touched_) {
    element& e = elements_[at];
    e.left = e.capacity - e.used;
    for (const index f : e.chosen) e.left += flows_[f].rate;
    e.growing = static_cast<std::uint32_t>(e.chosen.size());
    e.fastest = 0;
    offer(at);
  }
  while (!queue_.empty()) {
    const filling first = queue_.front();
    std::pop_heap(queue_.begin(), queue_.end());
    queue_.pop_back();
    const element& full = elements_[first.element];
    if (full.growing == 0 || full.level != first.level) continue;  // void
    const double level = first.level;
    for (const index at : full.chosen) {
      flow& f = flows_[at];
      if (f.filled >= 0) continue;
      f.filled = level;
      f.full = first.element;
      for (const membership& m : f.on) {
        element& e = elements_[m.element];
        e.left -= level;
        --e.growing;
        e.fastest = level;
        if (m.element != first.element && e.growing > 0) offer(m.element);
      }
    }
  }
}

/// Chooses more where a flow that was left alone, or one that was filled, has no bottleneck. Returns whether there was any.
bool max_min_state::widen(bool far) {
  const std::size_t before = chosen_.size(), touched_before = touched_.size();
  for (std::size_t i = 0; i < touched_before; ++i) {
    const index at = touched_[i];
    // Those that it holds back: all of them are chosen, or none.
    if (!elements_[at].held.empty() && flows_[elements_[at].held.front()].chosen != round_) {
      const element& e = elements_[at];
      const double level = flows_[e.held.front()].rate;
      if (e.left > equal_to * e.capacity || e.fastest > level * (1 + equal_to)) choose_held(at);
    }
  }
  for (std::size_t i = 0; i < before; ++i) {
    const index full = flows_[chosen_[i]].full;
    element& e = elements_[full];
    if (e.level < 0) continue;  // looked at
    const double level = flows_[chosen_[i]].filled;
    e.level = -1;
    if (e.members.size() == e.chosen.size()) continue;
    for (std::size_t k = 0; k < elements_[full].members.size(); ++k) {
      const flow& other = flows_[elements_[full].members[k].flow];
      if (other.chosen != round_ && other.rate > level * (1 + equal_to)) choose_held(other.bottleneck);
    }
  }
  if (chosen_.size() == before) return false;
  for (std::size_t i = 0; far && i < touched_.size(); ++i)
    for (std::size_t k = 0; k < elements_[touched_[i]].members.size(); ++k)
      if (const flow& other = flows_[elements_[touched_[i]].members[k].flow]; other.chosen != round_)
        choose_held(other.bottleneck);
  return true;
}

void max_min_state::commit(std::int64_t now) {
  for (const index at : chosen_) {
    flow& f = flows_[at];
    if (f.bottleneck != f.full) {
      if (f.bottleneck != none) let_go(f);
      hold(at, f.full);
    }
    if (std::abs(f.filled - f.rate) <= unchanged * f.rate) continue;
    f.left = std::max(f.left - f.rate * static_cast<double>(now - f.since), 0.0);
    f.since = now;
    const double by = f.filled - f.rate;
    f.rate = f.filled;
    for (const membership& m : f.on) change(elements_[m.element], by);
    plan(at);
  }
}

}  // namespace troupe::actors
