// SPDX-License-Identifier: Apache-2.0
#include "actors/virtual/max_min_state.hpp"

#include <algorithm>
#include <bit>
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
  shares_.clear();
  passes_.clear();
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
  const auto number = static_cast<std::uint32_t>(chosen_.size());
  chosen_.push_back({-1, at, none, static_cast<std::uint32_t>(passes_.size())});
  for (const membership& m : f.on) {
    const std::uint32_t which = touch(m.element);
    share& e = shares_[which];
    passes_.push_back({which, number, e.last});
    e.last = static_cast<std::uint32_t>(passes_.size() - 1);
    e.all += f.rate;
    ++e.passes;
    if (m.element == f.bottleneck) e.held = none;
  }
}

std::uint32_t max_min_state::touch(index at) {
  element& e = elements_[at];
  if (e.touched == round_) return e.share;
  e.touched = round_;
  e.share = static_cast<std::uint32_t>(shares_.size());
  share& s = shares_.emplace_back();
  s.all = e.capacity - e.used;
  s.slack = equal_to * e.capacity;
  s.element = at;
  if (!e.held.empty()) s.held = e.held.front();
  return e.share;
}

void max_min_state::choose_held(index at) {
  for (const index f : elements_[at].held) choose(f);
}

/// When it is full, if all grow on as now: its level, and of equal ones the first element. As one number, since a level is not negative, and
/// the bits of such doubles are ordered as they are: nobody could foretell a branch.
max_min_state::wide max_min_state::full_at(const share& of) {
  if (of.growing == 0) return ~wide{0};
  const double level = of.left > 0 ? of.left / of.growing : 0.0;
  return wide{std::bit_cast<std::uint64_t>(level)} << 64 | of.element;
}

/// The chosen flows grow alike within what the others leave.
void max_min_state::fill() {
  for (chosen_flow& f : chosen_) f.level = -1;
  const std::size_t count = shares_.size();
  full_at_.resize(count);
  first_.resize(2 * count);
  for (std::uint32_t i = 0; i < count; ++i) {
    share& e = shares_[i];
    e.left = e.all;
    e.growing = e.passes;
    e.fastest = 0;
    e.is_changed = e.is_seen = false;
    full_at_[i] = full_at(e);
    first_[count + i] = i;
  }
  for (std::size_t node = count - 1; node > 0; --node) compare(node);
  for (std::size_t growing = chosen_.size();;) {
    growing -= fill_up(first_[1]);
    if (growing == 0) break;
    order_changed();
  }
}

/// Its flows grow no more; how many that are. The other elements that they pass are full at another level then.
std::size_t max_min_state::fill_up(std::uint32_t full) {
  const double level = std::bit_cast<double>(static_cast<std::uint64_t>(full_at_[full] >> 64));
  std::size_t filled = 0;
  changed_.clear();
  for (std::uint32_t at = shares_[full].last; at != none; at = passes_[at].before) {
    const std::uint32_t which = passes_[at].flow;
    chosen_flow& f = chosen_[which];
    if (f.level >= 0) continue;
    f.level = level;
    f.full = full;
    ++filled;
    for (std::uint32_t k = f.first; k < passes_.size() && passes_[k].flow == which; ++k) {
      share& e = shares_[passes_[k].share];
      e.left -= level;
      --e.growing;
      e.fastest = level;
      if (e.is_changed) continue;
      e.is_changed = true;
      changed_.push_back(passes_[k].share);
    }
  }
  return filled;
}

/// Puts the shares in order that fill_up() has changed: up the tree from each, or all of it where that is less.
void max_min_state::order_changed() {
  const std::size_t count = shares_.size();
  for (const std::uint32_t which : changed_) {
    shares_[which].is_changed = false;
    full_at_[which] = full_at(shares_[which]);
  }
  if (changed_.size() * static_cast<std::size_t>(std::bit_width(count)) >= count) {
    for (std::size_t node = count - 1; node > 0; --node) compare(node);
    return;
  }
  for (const std::uint32_t which : changed_)
    for (std::size_t node = (count + which) / 2; node > 0; node /= 2) compare(node);
}

/// Chooses more where a flow that was left alone, or one that was filled, has no bottleneck. Returns whether there was any.
bool max_min_state::widen(bool far) {
  const std::size_t before = chosen_.size(), shares_before = shares_.size();
  for (std::size_t i = 0; i < shares_before; ++i) {
    const share& s = shares_[i];
    if (s.held != none && (s.left > s.slack || s.fastest > flows_[s.held].rate * (1 + equal_to)))
      choose_held(s.element);
  }
  for (std::size_t i = 0; i < before; ++i) {
    const double level = chosen_[i].level;
    share& s = shares_[chosen_[i].full];
    if (s.is_seen) continue;
    s.is_seen = true;
    const element& full = elements_[s.element];
    if (full.members.size() == s.passes) continue;
    for (const member& m : full.members) {
      const flow& other = flows_[m.flow];
      if (other.chosen != round_ && other.rate > level * (1 + equal_to)) choose_held(other.bottleneck);
    }
  }
  if (chosen_.size() == before) return false;
  for (std::size_t i = 0; far && i < shares_.size(); ++i)
    for (const member& m : elements_[shares_[i].element].members)
      if (const flow& other = flows_[m.flow]; other.chosen != round_) choose_held(other.bottleneck);
  return true;
}

void max_min_state::commit(std::int64_t now) {
  for (const chosen_flow& c : chosen_) {
    flow& f = flows_[c.flow];
    const index full = shares_[c.full].element;
    if (f.bottleneck != full) {
      if (f.bottleneck != none) let_go(f);
      hold(c.flow, full);
    }
    if (std::abs(c.level - f.rate) <= unchanged * f.rate) continue;
    f.left = std::max(f.left - f.rate * static_cast<double>(now - f.since), 0.0);
    f.since = now;
    const double by = c.level - f.rate;
    f.rate = c.level;
    for (const membership& m : f.on) change(elements_[m.element], by);
    plan(c.flow);
  }
}

}  // namespace troupe::actors
