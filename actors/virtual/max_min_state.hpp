// SPDX-License-Identifier: Apache-2.0
#pragma once
// Flows that share several elements at once, max-min fairly: no flow can get more without taking from one that has no more. Pure
// arithmetic, no CAF, no events. One owner; calls come in the order of time.
//
// Progressive filling: the rates of all flows grow alike until an element is full; its flows keep what they have, the others grow on. An
// allocation is max-min fair exactly if every flow has a bottleneck: an element that is full and on which no flow is faster. That can be
// checked element by element. So when a flow comes or goes, only the flows whose bottleneck is an element it touches are filled anew, the
// others keep their rates; where a bottleneck no longer is one, its flows are filled anew too, and so on until every flow has one.
// Cost: flows filled × elements of a flow × log(elements), mostly a few flows; in the worst case all that hang together. They are copied to
// lie side by side first, since most of them are filled two or three times.
//
// Rates are doubles (bytes a picosecond), so times hold to about 1e-12 of a flow's duration; they are rounded up to picoseconds.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

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
  /// Removes a flow that is done by `now`; `none` if there is no more. Ties: who joined first.
  index take_done(std::int64_t now);

  double rate(index flow) const { return flows_[flow].rate; }
  std::size_t size() const { return count_; }

private:
  struct membership {
    index element = none;
    std::uint32_t at = 0;  ///< place in the element's members
  };
  struct flow {
    std::vector<membership> on;
    double left = 0, rate = 0;
    std::int64_t since = 0;  ///< `left` is of that time
    std::uint64_t order = 0;
    std::uint32_t plan = 0;  ///< grows with every planned end: older ones are void
    index bottleneck = none;
    std::uint32_t bottleneck_at = 0;  ///< place in the bottleneck's `held`
    index own = none;                 ///< an element of its own, for its limit
    bool there = false;
    std::uint64_t chosen = 0;  ///< the round in which it is filled anew
  };
  struct member {
    index flow;
    std::uint32_t slot;  ///< place in the flow's `on`
  };
  struct element {
    double capacity = 0, used = 0;
    std::uint64_t touched = 0;  ///< the round of `share`
    std::uint32_t share = 0;
    std::uint32_t changes = 0;  ///< of `used`, since it was last summed up
    std::vector<member> members;
    std::vector<index> held;  ///< flows whose bottleneck it is
    bool is_freed = false;
  };
  // While shares are filled: in the order in which they were chosen.
  struct chosen_flow {
    double level = -1;  ///< its new rate, < 0: still growing
    index flow = none;
    std::uint32_t full = none;  ///< the share of its new bottleneck
    std::uint32_t first = 0;    ///< of its passes, which follow one another up to those of the next one
  };
  /// What an element has for the chosen flows.
  struct share {
    double all = 0;   ///< what the others leave
    double left = 0;  ///< of it
    double fastest = 0;
    double slack = 0;  ///< so much may be left of a full one
    std::uint32_t passes = 0, growing = 0;
    std::uint32_t last = none;  ///< pass
    index element = none;
    index held = none;  ///< one of the flows whose bottleneck it is; none, if they are chosen: all of them are, or none
    bool is_changed = false, is_seen = false;
  };
  /// A chosen flow on an element.
  struct pass {
    std::uint32_t share, flow;  ///< among the chosen ones
    std::uint32_t before;       ///< pass of the same share
  };
  struct ending {
    std::int64_t time;
    std::uint64_t order;
    index flow;
    std::uint32_t plan;
    bool operator<(const ending& other) const { return time != other.time ? time > other.time : order > other.order; }
  };
  __extension__ using wide = unsigned __int128;

  void choose(index flow);
  void choose_held(index element);
  std::uint32_t touch(index element);
  static wide full_at(const share& of);
  void fill();
  void compare(std::size_t node) {
    const std::uint32_t a = first_[2 * node], b = first_[2 * node + 1];
    first_[node] = full_at_[a] < full_at_[b] ? a : b;
  }
  std::size_t fill_up(std::uint32_t share);
  void order_changed();
  bool widen(bool far);
  void commit(std::int64_t now);
  void change(element& e, double by);
  void hold(index flow, index element);
  void let_go(flow& f);
  void plan(index flow);
  void leave(index flow);

  std::vector<flow> flows_;
  std::vector<index> free_flows_, free_elements_;
  std::vector<element> elements_;
  std::vector<index> fresh_, freed_;
  std::vector<chosen_flow> chosen_;
  std::vector<share> shares_;
  std::vector<pass> passes_;
  std::vector<std::uint32_t> changed_;
  std::vector<wide> full_at_;  ///< by share
  /// A tree: the shares behind as many inner nodes, each of which has the one below it that is full first.
  std::vector<std::uint32_t> first_;
  std::vector<ending> endings_;  ///< a heap, the first at the front; some are void
  std::uint64_t round_ = 0, joined_ = 0;
  std::size_t count_ = 0;
};

}  // namespace troupe::actors
