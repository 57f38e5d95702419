// SPDX-License-Identifier: Apache-2.0
#pragma once
// Flows that share several elements at once, max-min fairly: no flow can get more without taking from one that has no more. Pure
// arithmetic, no CAF, no events. One owner; calls come in the order of time.
//
// An allocation is max-min fair exactly if every flow has a bottleneck: an element that is full and on which no flow is faster. So each flow
// is held by one of its elements, all that one element holds have one rate, the element's `level`, and what is kept is by element, not by flow:
// - A flow is done when its element has served each of its flows so much (attained service, as in fair_state). So a new level costs one
//   new end, however many flows it is for.
// - When flows come or go, levels follow as long as nobody changes the bottleneck: each element whose flows have changed, from the
//   lowest level upwards, gives what the flows held elsewhere leave to its own, and passes the difference on to their other elements.
//   A level that stays as it is passes nothing on.
// - Then flows are looked for that have lost their bottleneck: held by an element whose level has risen above that of another one of theirs, or
//   on an element that has become overfull or slower than they are. They are held there, the levels follow once more, and so on until every flow
//   has a bottleneck. Where that takes too many rounds, and where much comes at once, all is filled anew: the rates of all
//   flows grow alike until an element is full; its flows keep what they have, the others grow on.
// Cost of a change: flows whose rate it changes × elements of a flow, some nanoseconds each, and log(elements) for each new level.
//
// Rates are doubles (bytes a picosecond), so times hold to about 1e-12 of a flow's duration; they are rounded up to picoseconds.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "actors/virtual/level_queue.hpp"

namespace troupe::actors {

class max_min_state {
public:
  using index = std::uint32_t;
  static constexpr index none = 0xffffffffu;
  static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

  /// @param capacity bytes a picosecond, of all flows; 0: without a limit.
  index add_element(double capacity);

  /// A flow begins. It has no rate until settle(), unless nobody else is on its elements.
  /// @param on the elements that it shares, each as often as it passes it. @param most its own limit in bytes a picosecond; 0: none.
  index join(std::int64_t now, std::uint64_t bytes, std::span<const index> on, double most);
  /// Have flows come or gone since the last settle()?
  bool unsettled() const { return !fresh_.empty() || !freed_.empty(); }
  /// Shares the elements anew.
  void settle(std::int64_t now);
  /// When the next flow is done if none joins before, `never` if there is none. @pre nobody is unsettled, else it may be too late
  std::int64_t next();
  /// Removes a flow that is done by `now`; `none` if there is no more. Ties: the one that joined first.
  index take_done(std::int64_t now);

  double rate(index flow) const {
    const index by = flows_[flow].bottleneck;
    return by == none ? 0 : shares_[by].level;
  }
  std::size_t size() const { return count_; }

private:
  static constexpr double unheld = std::numeric_limits<double>::infinity();

  struct flow {
    index bottleneck = none;
    std::uint32_t at = 0;     ///< place among those that its bottleneck holds
    std::uint32_t birth = 0;  ///< tells it from others that had its number
    std::uint32_t first = 0;  ///< of its way in `ways_`
    std::uint16_t hops = 0;   ///< 0: nothing holds it back
    bool there = false;
    bool repeats = false;  ///< passes an element more than once
    index own = none;      ///< an element of its own, for its limit
    std::uint64_t order = 0;
    double left = 0;  ///< of a flow without a bottleneck
  };
  enum class state : std::uint8_t { idle, waits, seen, waits_again };
  /// What is touched for every flow whose rate changes.
  struct share {
    double rest = 0;            ///< of the capacity, without what flows have that are held elsewhere
    double level = unheld;      ///< rate of the flows that it holds
    double fastest = 0;         ///< what none of the flows that others hold exceeds
    std::uint32_t weight = 0;   ///< passes of those that it holds
    std::uint16_t changes = 0;  ///< of `rest`, since it was last summed up
    state is = state::idle;
  };
  struct held_flow {
    double target = 0;  ///< done when the element has served so much
    index flow = none;
    index other =
        none;  ///< of a way of two elements the other one; none: there is none; else `several` + where the way lies
  };
  static constexpr index several = 0x80000000u;
  struct member {
    index flow;
    std::uint32_t birth;  ///< another one's: it has gone
  };
  struct element {
    double capacity = 0;
    double served = 0;  ///< attained service, as of `since`
    std::int64_t since = 0;
    double slowest = 0;           ///< level of others that its flows pass, when it was last looked for: a guess
    std::uint32_t count = 0;      ///< passes of flows that are there
    std::uint32_t end_at = none;  ///< place in `ends_`
    std::vector<held_flow> held;  ///< a heap, the first to be done at the front
    std::vector<member> members;  ///< also some that have gone
    bool is_dirty = false, is_freed = false;
  };
  struct due {
    double level;
    index element;
    bool operator<(const due& other) const {
      return level != other.level ? level > other.level : element > other.element;
    }
  };
  struct ending {
    std::int64_t time;
    index element;
  };
  struct faster {
    double rate;
    index flow;
  };

  // -- flows and elements --
  std::span<const index> way_of(const flow& f) const { return {ways_.data() + f.first + 1, f.hops}; }
  std::uint32_t room_for(std::uint16_t hops);
  void enter(index at, std::span<const index> on);
  std::uint32_t weight_of(const flow& f, index element) const;
  template <class Do>
  void for_others(const held_flow& f, index element, Do&& what) const;
  template <class Do>
  void for_members(index element, Do&& what);
  void hold(index flow, index element, double left);
  double let_go(index flow);
  void leave(index flow);
  void place(std::vector<held_flow>& held, std::size_t at, const held_flow& what);
  void sift_up(std::vector<held_flow>& held, std::size_t at, const held_flow& what);
  void sift_down(std::vector<held_flow>& held, std::size_t at, const held_flow& what);

  // -- ends --
  void advance(index element);
  void make_dirty(index element);
  std::int64_t end_of(const element& e, double level) const;
  void plan_end(index element);
  void end_up(std::size_t at, const ending& what);
  void end_down(std::size_t at, const ending& what);
  std::int64_t next_end();
  void collect(std::int64_t now);

  // -- levels --
  void touch(index element);
  void wait(index element, double level);
  void take_up(index flow);
  void follow();
  void set_level(index element, double level);
  bool repair();
  bool rise(index element);
  double level_to_be(index element) const;
  void find_lost(index element, double bar);
  void move_to_lowest(index flow);
  void find_faster(index element, double bar);
  void refill(index element);
  void move(index flow, index to);
  void sum_up(index element);
  void fill_all();
  void fill_up(index element, double level);

  std::vector<flow> flows_;
  std::vector<index> free_flows_, free_elements_;
  std::vector<share> shares_;  ///< by element
  std::vector<element> elements_;
  std::vector<index> ways_;
  std::vector<std::vector<std::uint32_t>> free_ways_;  ///< by length
  std::vector<index> fresh_, freed_;
  std::vector<index> at_once_;  ///< flows that nothing holds back
  std::int64_t at_once_time_ = never;
  std::vector<ending> ends_;  ///< a heap by element, the first at the front
  std::vector<index> dirty_;  ///< elements whose end is to be planned
  std::vector<index> done_;   ///< flows, the first at the back
  // While levels follow.
  std::int64_t now_ = 0;
  level_queue queue_;
  std::vector<index> full_, seen_, again_;  ///< elements
  bool follows_ = false;
  std::size_t waited_ = 0;
  std::vector<index> lost_;  ///< flows
  std::vector<faster> faster_;
  std::vector<due> filling_;            ///< a heap, the lowest at the front
  std::vector<std::uint32_t> growing_;  ///< by element, while all is filled: passes of flows that grow
  std::uint64_t joined_ = 0;
  std::size_t count_ = 0;
};

}  // namespace troupe::actors
