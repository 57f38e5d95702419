// SPDX-License-Identifier: Apache-2.0
#include "actors/virtual/max_min_state.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "actors/virtual/element_state.hpp"

namespace troupe::actors {

namespace {

/// Rates that differ by less are the same: far above the rounding of doubles, far below what anybody reads.
constexpr double equal_to = 1e-11;
/// So much of its capacity may an element that holds nobody be overfull: what many roundings come to.
constexpr double slack = 1e-11;
/// A level that changes by less stays as it is, and with it the planned ends.
constexpr double unchanged = 1e-13;
/// A part of a picosecond by which a quotient may exceed the true one.
constexpr double rounding = 1e-6;
/// After so many rounds all is filled anew.
constexpr int most_rounds = 24;
/// If of so many flows one is new, too.
constexpr std::size_t few_of = 4;
/// `rest` is a running sum; so often it is summed up anew.
constexpr std::uint32_t changes_between_sums = 4096;
/// Attained service begins anew from here: beyond, the rounding of doubles would be felt.
constexpr double most_served = 1 << 22;

}  // namespace

max_min_state::index max_min_state::add_element(double capacity) {
  elements_.emplace_back().capacity = capacity;
  shares_.emplace_back().rest = capacity;
  return static_cast<index>(elements_.size() - 1);
}

// -- flows come and go ------------------------------------------------------------------------------------------------

max_min_state::index max_min_state::join(std::int64_t now, std::uint64_t bytes, std::span<const index> on,
                                         double most) {
  now_ = now;
  index at = 0;
  if (free_flows_.empty()) {
    at = static_cast<index>(flows_.size());
    flows_.emplace_back();
  } else {
    at = free_flows_.back();
    free_flows_.pop_back();
  }
  flow& f = flows_[at];
  f = {};
  f.left = static_cast<double>(bytes);
  f.order = joined_++;
  f.birth = static_cast<std::uint32_t>(f.order);
  f.there = true;
  ++count_;
  if (bytes > 0) {
    if (most > 0) {
      if (free_elements_.empty()) free_elements_.push_back(add_element(0));
      f.own = free_elements_.back();
      free_elements_.pop_back();
      elements_[f.own].capacity = most;
    }
    enter(at, on);
  }
  if (f.hops == 0) {
    at_once_.push_back(at);
    at_once_time_ = now;
  }
  return at;
}

/// Where the way of a flow lies, after how long it is.
std::uint32_t max_min_state::room_for(std::uint16_t hops) {
  if (hops >= free_ways_.size()) free_ways_.resize(std::size_t{hops} + 1);
  std::vector<std::uint32_t>& free = free_ways_[hops];
  if (free.empty()) {
    const auto first = static_cast<std::uint32_t>(ways_.size());
    ways_.resize(ways_.size() + hops + 1);
    ways_[first] = hops;
    return first;
  }
  const std::uint32_t first = free.back();
  free.pop_back();
  return first;
}

void max_min_state::enter(index at, std::span<const index> on) {
  flow& f = flows_[at];
  std::size_t hops = f.own != none ? 1 : 0;
  for (const index k : on) hops += elements_[k].capacity > 0 ? 1 : 0;
  if (hops == 0) return;
  f.hops = static_cast<std::uint16_t>(hops);
  f.first = room_for(f.hops);
  index* way = ways_.data() + f.first + 1;
  for (const index k : on)
    if (elements_[k].capacity > 0) *way++ = k;
  if (f.own != none) *way = f.own;
  bool alone = true;
  index least = way_of(f)[0];
  for (const index k : way_of(f)) {
    element& e = elements_[k];
    if (e.count == 0) shares_[k] = {.rest = e.capacity};
    else if (e.members.back().flow == at && e.members.back().birth == f.birth) f.repeats = true;
    if (e.members.size() > 2 * std::size_t{e.count} + 8) for_members(k, [](index) {});
    e.members.push_back({at, f.birth});
    ++e.count;
    alone = alone && e.count == 1;
    if (e.capacity < elements_[least].capacity) least = k;
  }
  if (!alone) {
    fresh_.push_back(at);
    return;
  }
  elements_[least].since = now_;
  shares_[least].level = elements_[least].capacity;
  hold(at, least, f.left);
  for_others(elements_[least].held.front(), least, [&](index k) {
    shares_[k].rest -= elements_[least].capacity;
    shares_[k].fastest = elements_[least].capacity;
  });
}

std::uint32_t max_min_state::weight_of(const flow& f, index on) const {
  if (!f.repeats) return 1;
  const auto way = way_of(f);
  return static_cast<std::uint32_t>(std::count(way.begin(), way.end(), on));
}

/// The other elements that a flow passes, each as often as it does.
template <class Do>
void max_min_state::for_others(const held_flow& f, index but, Do&& what) const {
  if (f.other < several) return what(f.other);
  if (f.other == none) return;
  const index* const way = ways_.data() + (f.other - several);
  for (const index* k = way + 1; k <= way + *way; ++k)
    if (*k != but) what(*k);
}

/// The flows on an element, each as often as it passes it; forgets those that have gone.
template <class Do>
void max_min_state::for_members(index on, Do&& what) {
  std::vector<member>& members = elements_[on].members;
  std::size_t kept = 0;
  for (const member m : members) {
    const flow& f = flows_[m.flow];
    if (!f.there || f.birth != m.birth) continue;
    members[kept++] = m;
    what(m.flow);
  }
  members.resize(kept);
}

/// Its element serves it from now on. The caller sets what it has of the others. @pre advance(by)
void max_min_state::hold(index at, index by, double left) {
  flow& f = flows_[at];
  f.bottleneck = by;
  shares_[by].weight += weight_of(f, by);
  index other = none;
  if (f.hops == 2) other = way_of(f)[way_of(f)[0] == by ? 1 : 0];
  if (f.hops > 2 || other == by) other = several + f.first;
  element& e = elements_[by];
  const held_flow now{e.served + left, at, other};
  for_others(now, by, [&](index k) { e.slowest = std::min(e.slowest, shares_[k].level); });
  e.held.emplace_back();
  sift_up(e.held, e.held.size() - 1, now);
  make_dirty(by);
}

/// Its element serves it no more. Returns what is left of it as of the element's `since`.
double max_min_state::let_go(index at) {
  flow& f = flows_[at];
  const index by = std::exchange(f.bottleneck, none);
  element& e = elements_[by];
  share& s = shares_[by];
  const double left = std::max(e.held[f.at].target - e.served, 0.0);
  const held_flow last = e.held.back();
  e.held.pop_back();
  if (last.flow != at) {
    const std::size_t to = f.at;
    if (to > 0 && last.target < e.held[(to - 1) / 2].target) sift_up(e.held, to, last);
    else sift_down(e.held, to, last);
  }
  s.weight -= weight_of(f, by);
  if (s.weight == 0) {
    s.level = unheld;
    e.served = 0;
  }
  make_dirty(by);
  return left;
}

void max_min_state::leave(index at) {
  flow& f = flows_[at];
  if (f.hops == 0) return;
  const index by = f.bottleneck;
  const double rate = shares_[by].level;
  let_go(at);
  for (const index k : way_of(f)) {
    element& e = elements_[k];
    share& s = shares_[k];
    if (k != by) s.rest += rate, ++s.changes;
    if (--e.count == 0) e.members.clear();
    // The share that it leaves is for those that this element holds; if there are none, nobody gains.
    if (s.weight > 0 && !e.is_freed) e.is_freed = true, freed_.push_back(k);
  }
  free_ways_[f.hops].push_back(f.first);
  if (f.own != none) free_elements_.push_back(f.own);
}

void max_min_state::place(std::vector<held_flow>& held, std::size_t at, const held_flow& what) {
  held[at] = what;
  flows_[what.flow].at = static_cast<std::uint32_t>(at);
}

void max_min_state::sift_up(std::vector<held_flow>& held, std::size_t at, const held_flow& what) {
  for (; at > 0 && what.target < held[(at - 1) / 2].target; at = (at - 1) / 2) place(held, at, held[(at - 1) / 2]);
  place(held, at, what);
}

void max_min_state::sift_down(std::vector<held_flow>& held, std::size_t at, const held_flow& what) {
  for (;;) {
    std::size_t child = 2 * at + 1;
    if (child >= held.size()) break;
    if (child + 1 < held.size() && held[child + 1].target < held[child].target) ++child;
    if (!(held[child].target < what.target)) break;
    place(held, at, held[child]);
    at = child;
  }
  place(held, at, what);
}

// -- ends -------------------------------------------------------------------------------------------------------------

/// Counts the bytes that it has served until now.
void max_min_state::advance(index at) {
  element& e = elements_[at];
  const std::int64_t passed = now_ - e.since;
  e.since = now_;
  if (shares_[at].weight == 0) return;
  if (passed > 0) e.served += shares_[at].level * static_cast<double>(passed);
  if (e.served <= most_served) return;
  for (held_flow& f : e.held) f.target -= e.served;  // the order stays, or becomes one of equals
  e.served = 0;
}

void max_min_state::make_dirty(index at) {
  if (elements_[at].is_dirty) return;
  elements_[at].is_dirty = true;
  dirty_.push_back(at);
}

/// Of the first one that it holds.
std::int64_t max_min_state::end_of(const element& e, double level) const {
  const double lasts = std::ceil((e.held.front().target - e.served) / level - rounding);
  constexpr auto most = static_cast<double>(end_of_time);
  if (!(lasts < most)) return end_of_time;
  return std::min(e.since + static_cast<std::int64_t>(std::max(lasts, 0.0)), end_of_time);
}

void max_min_state::plan_end(index at) {
  element& e = elements_[at];
  e.is_dirty = false;
  if (!e.held.empty()) {
    const ending what{end_of(e, shares_[at].level), at};
    if (e.end_at == none) {
      ends_.push_back(what);
      end_up(ends_.size() - 1, what);
    } else if (what.time < ends_[e.end_at].time) {
      end_up(e.end_at, what);
    } else {
      end_down(e.end_at, what);
    }
  } else if (e.end_at != none) {
    const std::size_t place = std::exchange(e.end_at, none);
    const ending last = ends_.back();
    ends_.pop_back();
    if (last.element == at) return;
    if (place > 0 && last.time < ends_[(place - 1) / 2].time) end_up(place, last);
    else end_down(place, last);
  }
}

void max_min_state::end_up(std::size_t at, const ending& what) {
  const auto put = [&](std::size_t to, const ending& e) {
    ends_[to] = e;
    elements_[e.element].end_at = static_cast<std::uint32_t>(to);
  };
  for (; at > 0 && what.time < ends_[(at - 1) / 2].time; at = (at - 1) / 2) put(at, ends_[(at - 1) / 2]);
  put(at, what);
}

void max_min_state::end_down(std::size_t at, const ending& what) {
  const auto put = [&](std::size_t to, const ending& e) {
    ends_[to] = e;
    elements_[e.element].end_at = static_cast<std::uint32_t>(to);
  };
  for (;;) {
    std::size_t child = 2 * at + 1;
    if (child >= ends_.size()) break;
    if (child + 1 < ends_.size() && ends_[child + 1].time < ends_[child].time) ++child;
    if (ends_[child].time >= what.time) break;
    put(at, ends_[child]);
    at = child;
  }
  put(at, what);
}

std::int64_t max_min_state::next() {
  if (!done_.empty()) return now_;
  return at_once_.empty() ? next_end() : std::min(next_end(), at_once_time_);
}

std::int64_t max_min_state::next_end() {
  for (const index e : dirty_) plan_end(e);
  dirty_.clear();
  return ends_.empty() ? never : ends_.front().time;
}

/// All that are done: several elements may be done with some, and each with several, in no order.
void max_min_state::collect(std::int64_t now) {
  now_ = now;
  done_.swap(at_once_);
  while (next_end() <= now) {
    const index at = elements_[ends_.front().element].held.front().flow;
    leave(at);
    done_.push_back(at);
  }
  std::sort(done_.begin(), done_.end(), [&](index a, index b) { return flows_[a].order > flows_[b].order; });
}

max_min_state::index max_min_state::take_done(std::int64_t now) {
  if (done_.empty() && next() <= now) collect(now);
  if (done_.empty()) return none;
  const index at = done_.back();
  done_.pop_back();
  flows_[at].there = false;
  free_flows_.push_back(at);
  --count_;
  return at;
}

// -- levels -----------------------------------------------------------------------------------------------------------

void max_min_state::settle(std::int64_t now) {
  now_ = now;
  for (const index e : freed_) elements_[e].is_freed = false;
  if (fresh_.size() * few_of >= count_) {
    fill_all();
  } else {
    for (const index f : fresh_) take_up(f);
    for (const index e : freed_)
      if (shares_[e].weight > 0) touch(e);
    for (int rounds = 1;; ++rounds) {
      follow();
      if (!repair()) break;
      if (rounds < most_rounds) continue;
      fill_all();
      break;
    }
  }
  fresh_.clear();
  freed_.clear();
}

/// The others' share of it has changed, or those that it holds.
void max_min_state::touch(index at) {
  share& s = shares_[at];
  if (s.is == state::idle) {
    s.is = state::waits;
    if (follows_) wait(at, s.level);
    else again_.push_back(at);
  } else if (s.is == state::seen) {
    s.is = state::waits_again;
    again_.push_back(at);
  }
}

void max_min_state::wait(index at, double level) {
  if (shares_[at].weight == 0) full_.push_back(at);
  else queue_.push(std::max(level, 0.0), at);
}

/// A new flow, held where it gets least at a first glance.
void max_min_state::take_up(index at) {
  index by = none;
  double least = unheld;
  for (const index k : way_of(flows_[at])) {
    const double gets = std::max(shares_[k].rest, 0.0) / (shares_[k].weight + 1);
    if (by == none || gets < least) by = k, least = gets;
  }
  share& s = shares_[by];
  advance(by);
  if (s.weight == 0) s.level = least;
  const double rate = s.level;
  hold(at, by, flows_[at].left);
  touch(by);
  for_others(elements_[by].held[flows_[at].at], by, [&](index k) {
    shares_[k].rest -= rate;
    shares_[k].fastest = std::max(shares_[k].fastest, rate);
    touch(k);
  });
}

/// Levels follow from the lowest upwards, each once, while every flow stays where it is held.
void max_min_state::follow() {
  queue_.clear(), full_.clear(), seen_.clear();
  for (const index k : again_) {
    shares_[k].is = state::waits;
    wait(k, shares_[k].level);
  }
  again_.clear();
  follows_ = true;
  waited_ = 0;
  while (!queue_.empty()) {
    const index at = queue_.pop();
    share& s = shares_[at];
    if (s.weight == 0) {
      full_.push_back(at);
      continue;
    }
    if (s.changes > changes_between_sums) sum_up(at);
    const double level = s.rest / s.weight;
    if (level > s.level * (1 + unchanged) && !rise(at)) continue;
    s.is = state::seen;
    seen_.push_back(at);
    if (level < s.level * (1 - unchanged)) refill(at);
  }
  follows_ = false;
  for (const index k : seen_) shares_[k].is = shares_[k].is == state::seen ? state::idle : state::waits;
  for (const index k : full_) {
    shares_[k].is = state::idle;
    if (shares_[k].weight > 0) touch(k);
  }
}

/// It has more for the flows that it holds. Those that will get less elsewhere, as far as is known, are held there from now on, and it waits
/// until that is known: what they leave it depends on that.
bool max_min_state::rise(index at) {
  share& s = shares_[at];
  const double level = s.rest / s.weight;
  if (level > elements_[at].slowest && waited_ < 2 * seen_.size() + 16) {
    find_lost(at, level * (1 - equal_to));
    for (const index f : lost_) move_to_lowest(f);
    if (s.weight == 0) return full_.push_back(at), false;
    if (!lost_.empty()) return ++waited_, wait(at, s.rest / s.weight), false;
  }
  s.is = state::seen;
  set_level(at, level);
  return true;
}

void max_min_state::set_level(index at, double level) {
  advance(at);
  make_dirty(at);
  const double by = level - shares_[at].level;
  shares_[at].level = level;
  const auto give = [&](index k) {
    share& s = shares_[k];
    s.rest -= by;
    s.fastest = std::max(s.fastest, level);
    ++s.changes;
    if (s.is != state::waits && s.is != state::waits_again) touch(k);
  };
  for (const held_flow& f : elements_[at].held) for_others(f, at, give);
}

/// `rest` as it should be.
void max_min_state::sum_up(index at) {
  share& s = shares_[at];
  s.changes = 0;
  s.rest = elements_[at].capacity;
  for_members(at, [&](index f) {
    const index by = flows_[f].bottleneck;
    if (by != none && by != at) s.rest -= shares_[by].level;
  });
}

/// Elements that are slower than some flows on them, or hold nobody and are overfull, hold flows. Returns whether there were any.
bool max_min_state::repair() {
  for (const index k : full_) {
    share& s = shares_[k];
    if (s.changes > changes_between_sums) sum_up(k);
    if (s.weight == 0 && s.rest < -slack * elements_[k].capacity) refill(k);
  }
  for (const index k : seen_)
    if (const share& s = shares_[k]; s.weight > 0 && s.fastest > s.level * (1 + equal_to)) refill(k);
  return !again_.empty();
}

/// The level of an element, as far as it is known: one that waits will have another one.
double max_min_state::level_to_be(index at) const {
  const share& s = shares_[at];
  return s.is == state::waits && s.weight > 0 ? s.rest / s.weight : s.level;
}

/// The flows that it holds and that pass an element whose level is below `bar`.
void max_min_state::find_lost(index at, double bar) {
  lost_.clear();
  double slowest = unheld;
  for (const held_flow& f : elements_[at].held) {
    bool is_lost = false;
    for_others(f, at, [&](index k) {
      slowest = std::min(slowest, shares_[k].level);
      is_lost = is_lost || (shares_[k].level < bar && level_to_be(k) < bar);
    });
    if (is_lost) lost_.push_back(f.flow);
  }
  elements_[at].slowest = slowest;
}

/// Holds it where it gets least, as far as that is known.
void max_min_state::move_to_lowest(index at) {
  const index from = flows_[at].bottleneck;
  index to = none;
  double least = unheld;
  for (const index k : way_of(flows_[at]))
    if (const double level = level_to_be(k); k != from && level < least) to = k, least = level;
  move(at, to);
}

/// It is too full, or slower than some flows on it: its level is such that all it has is for those that have no less, and it holds them.
void max_min_state::refill(index at) {
  share& s = shares_[at];
  double level = s.weight > 0 ? s.rest / s.weight : -1;
  faster_.clear();
  if (s.fastest > level * (1 + equal_to)) find_faster(at, level * (1 + equal_to));
  for (std::size_t before = 0; before != faster_.size();) {
    before = faster_.size();
    double all = s.rest;
    for (const faster& f : faster_) all += f.rate;
    level = all / (s.weight + static_cast<double>(before));
    std::erase_if(faster_, [&](const faster& f) { return f.rate <= level * (1 + equal_to); });
  }
  if (s.weight == 0) {
    if (faster_.empty()) return;
    advance(at);
    s.level = level;
  } else {
    set_level(at, level);
  }
  for (const faster& f : faster_)
    if (flows_[f.flow].bottleneck != at) move(f.flow, at);
}

/// The flows on it that others hold, with more than `bar`.
void max_min_state::find_faster(index at, double bar) {
  double fastest = 0;
  for_members(at, [&](index f) {
    const index by = flows_[f].bottleneck;
    if (by == none || by == at) return;
    const double rate = shares_[by].level;
    fastest = std::max(fastest, rate);
    if (rate > bar) faster_.push_back({rate, f});
  });
  shares_[at].fastest = fastest;
}

/// Holds a flow elsewhere, with the level that there is.
void max_min_state::move(index at, index to) {
  const index from = flows_[at].bottleneck;
  const double before = shares_[from].level, rate = shares_[to].level;
  advance(from);
  advance(to);
  const double left = let_go(at);
  hold(at, to, left);
  const bool is_equal = before == rate;
  for (const index k : way_of(flows_[at])) {
    if (is_equal && k != from && k != to) continue;
    share& s = shares_[k];
    if (k != to) s.fastest = std::max(s.fastest, rate);
    s.rest += (k == from ? 0 : before) - (k == to ? 0 : rate);
    ++s.changes;
    touch(k);
  }
}

// -- all anew ---------------------------------------------------------------------------------------------------------

/// Progressive filling. Levels of elements only rise while others' flows are held, so that the queue may have them as they were.
void max_min_state::fill_all() {
  for (const index k : again_) shares_[k].is = state::idle;
  again_.clear(), seen_.clear();
  for (index f = 0; f < flows_.size(); ++f) {
    if (!flows_[f].there || flows_[f].hops == 0) continue;
    if (const index by = flows_[f].bottleneck; by != none) {
      advance(by);
      flows_[f].left = std::max(elements_[by].held[flows_[f].at].target - elements_[by].served, 0.0);
    }
    for (const index k : way_of(flows_[f]))
      if (shares_[k].is == state::idle) shares_[k].is = state::seen, seen_.push_back(k);
  }
  for (const index k : seen_) {
    element& e = elements_[k];
    shares_[k] = {.rest = e.capacity};
    e.served = 0, e.since = now_, e.held.clear();
    make_dirty(k);
  }
  for (flow& f : flows_) f.bottleneck = none;
  growing_.resize(elements_.size());
  for (const index k : seen_) {
    growing_[k] = elements_[k].count;
    filling_.push_back({elements_[k].capacity / elements_[k].count, k});
  }
  std::make_heap(filling_.begin(), filling_.end());
  double reached = 0;
  while (!filling_.empty()) {
    const due first = filling_.front();
    std::pop_heap(filling_.begin(), filling_.end());
    filling_.pop_back();
    const std::uint32_t growing = growing_[first.element];
    if (growing == 0) continue;
    const double level = std::max(shares_[first.element].rest / growing, reached);
    if (level > first.level) {
      filling_.push_back({level, first.element});
      std::push_heap(filling_.begin(), filling_.end());
      continue;
    }
    reached = level;
    fill_up(first.element, level);
  }
}

/// It is full: its flows grow no more.
void max_min_state::fill_up(index at, double level) {
  shares_[at].level = level;
  for_members(at, [&](index f) {
    if (flows_[f].bottleneck != none) return;
    hold(f, at, flows_[f].left);
    for_others(elements_[at].held[flows_[f].at], at, [&](index k) {
      shares_[k].rest -= level;
      shares_[k].fastest = level;
      --growing_[k];
    });
  });
  growing_[at] = 0;
}

}  // namespace troupe::actors
