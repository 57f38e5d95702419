// SPDX-License-Identifier: Apache-2.0
#pragma once
// Events in the order of (time, order of their causes). No CAF.
//
// Collectives make many events of equal time: a ring has one a rank. So the heap holds *buckets*, rows of events of one time that
// were caused one after the other, and only the first event of a bucket pays for the heap. A small table remembers the bucket that
// events of a time are appended to at present. A time may come to have several buckets (two times share a place of the table);
// whoever is replaced there is never appended to again, so the buckets of one time hold neighbouring, disjoint rows in the order of
// their making, and the heap's tie-break (order of making) is the order of the causes.
//
// Cost: amortised O(1) for events of a time in the table, O(log buckets) otherwise; no allocation once the pools have grown.

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "memory/large_pages.hpp"

namespace troupe::actors {

template <class Event>
class event_queue {
public:
  using time_type = std::int64_t;

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }

  /// @pre not empty
  time_type next_time() const { return heap_.front().time; }

  /// Shows the next events, as far as they are known without moving anything: those that share the first one's time, in order; behind them, in no
  /// order, the first ones of buckets near the heap's top. `visit(n, event)`, n = 1, 2, … up to `most`.
  template <class Visit>
  void look_ahead(int most, Visit visit) const {
    if (heap_.empty()) return;
    int n = 0;
    for (std::uint32_t at = buckets_[heap_.front().bucket].first; at != none && n < most; at = nodes_[at].next)
      visit(++n, nodes_[at].what);
    for (std::size_t i = 1; i < 5 && i < heap_.size() && n < most; ++i)
      visit(++n, nodes_[buckets_[heap_[i].bucket].first].what);
  }

  /// @pre time ≥ the time of the last event that was popped
  void push(time_type time, const Event& what) {
    const std::uint32_t at = new_node(what);
    ++size_;
    slot& s = table_[place_of(time)];
    if (s.bucket != none && s.time == time) {
      bucket& b = buckets_[s.bucket];
      nodes_[b.last].next = at;
      b.last = at;
      return;
    }
    s.time = time;
    s.bucket = new_bucket(at);
    sift_up({time, made_++, s.bucket});
  }

  /// Takes the first event. @pre not empty
  std::pair<time_type, Event> pop() {
    const time_type time = heap_.front().time;
    bucket& b = buckets_[heap_.front().bucket];
    const std::uint32_t at = b.first;
    const Event what = nodes_[at].what;
    b.first = nodes_[at].next;
    nodes_[at].next = free_node_;
    free_node_ = at;
    --size_;
    if (b.first == none) {
      slot& s = table_[place_of(time)];
      if (s.bucket == heap_.front().bucket) s.bucket = none;
      b.last = free_bucket_;
      free_bucket_ = heap_.front().bucket;
      remove_first();
    }
    return {time, what};
  }

private:
  static constexpr std::uint32_t none = 0xffffffffu;
  struct node {
    Event what;
    std::uint32_t next;
  };
  struct bucket {
    std::uint32_t first, last;  ///< free: last is the next free one
  };
  struct entry {
    time_type time;
    std::uint64_t made;
    std::uint32_t bucket;
    bool operator<(const entry& other) const { return time != other.time ? time < other.time : made < other.made; }
  };
  struct slot {
    time_type time = 0;
    std::uint32_t bucket = none;
  };

  static std::size_t place_of(time_type time) {
    return static_cast<std::size_t>(static_cast<std::uint64_t>(time) * 0x9e3779b97f4a7c15u >> (64 - table_bits));
  }

  std::uint32_t new_node(const Event& what) {
    if (free_node_ == none) {
      nodes_.push_back({what, none});
      return static_cast<std::uint32_t>(nodes_.size() - 1);
    }
    const std::uint32_t at = free_node_;
    free_node_ = nodes_[at].next;
    nodes_[at] = {what, none};
    return at;
  }

  std::uint32_t new_bucket(std::uint32_t only) {
    if (free_bucket_ == none) {
      buckets_.push_back({only, only});
      return static_cast<std::uint32_t>(buckets_.size() - 1);
    }
    const std::uint32_t at = free_bucket_;
    free_bucket_ = buckets_[at].last;
    buckets_[at] = {only, only};
    return at;
  }

  // A heap of four children a node: half the levels of a binary one, and a node's children share one or two cache lines.
  void sift_up(const entry& what) {
    std::size_t at = heap_.size();
    heap_.push_back(what);
    while (at > 0) {
      const std::size_t parent = (at - 1) / 4;
      if (!(what < heap_[parent])) break;
      heap_[at] = heap_[parent];
      at = parent;
    }
    heap_[at] = what;
  }

  void remove_first() {
    const entry what = heap_.back();
    heap_.pop_back();
    if (heap_.empty()) return;
    std::size_t at = 0;
    for (;;) {
      const std::size_t first = 4 * at + 1;
      if (first >= heap_.size()) break;
      const std::size_t end = first + 4 < heap_.size() ? first + 4 : heap_.size();
      std::size_t least = first;
      for (std::size_t child = first + 1; child < end; ++child)
        if (heap_[child] < heap_[least]) least = child;
      if (!(heap_[least] < what)) break;
      heap_[at] = heap_[least];
      at = least;
    }
    heap_[at] = what;
  }

  static constexpr int table_bits = 8;
  large_vector<node> nodes_;
  std::vector<bucket> buckets_;
  std::vector<entry> heap_;
  std::array<slot, std::size_t{1} << table_bits> table_{};
  std::uint32_t free_node_ = none, free_bucket_ = none;
  std::uint64_t made_ = 0;
  std::size_t size_ = 0;
};

}  // namespace troupe::actors
