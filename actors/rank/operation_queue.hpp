// SPDX-License-Identifier: Apache-2.0
#pragma once
// Operations that were called and have not begun, in the order of their calls.

#include <cstddef>
#include <utility>
#include <vector>

#include "actors/rank/operation.hpp"

namespace troupe::actors {

/// Takes memory with the first one, and then only when more wait than ever: most communicators queue none, and short-lived ones should cost
/// little. push_back() may throw std::bad_alloc; then nothing has changed.
class operation_queue {
public:
  using iterator = std::vector<operation_ptr>::iterator;

  bool empty() const { return front_ == all_.size(); }
  operation_ptr& front() { return all_[front_]; }
  iterator begin() { return all_.begin() + static_cast<std::ptrdiff_t>(front_); }
  iterator end() { return all_.end(); }
  auto begin() const { return all_.begin() + static_cast<std::ptrdiff_t>(front_); }
  auto end() const { return all_.end(); }

  void push_back(operation_ptr op) {
    // The places of those that have left are used again, so that memory follows how many wait, not how many ever did. Each is moved once at most for one that left.
    if (all_.size() == all_.capacity() && front_ > all_.size() / 2) {
      all_.erase(all_.begin(), begin());
      front_ = 0;
    }
    all_.push_back(std::move(op));
  }
  void pop_front() {
    all_[front_++] = nullptr;
    if (empty()) clear();
  }
  void clear() {
    all_.clear();
    front_ = 0;
  }

private:
  std::vector<operation_ptr> all_;
  std::size_t front_ = 0;  ///< all before it have begun
};

}  // namespace troupe::actors
