// SPDX-License-Identifier: Apache-2.0
#pragma once
// Operations that are over, in the order of their ends, until the holder of the rank's turn tells their callers.

#include <cstddef>
#include <memory>
#include <utility>

#include "actors/rank/operation.hpp"

namespace troupe::actors {

/// A list through the operations themselves, each in one list at most: to end one takes no memory, which there might be none of.
class ended_operations {
public:
  ended_operations() = default;
  ended_operations(ended_operations&& other) noexcept
      : first_(std::move(other.first_)), last_(std::exchange(other.last_, nullptr)) {}
  ended_operations& operator=(ended_operations&& other) noexcept {
    clear();
    first_ = std::move(other.first_);
    last_ = std::exchange(other.last_, nullptr);
    return *this;
  }
  ~ended_operations() { clear(); }

  bool empty() const { return first_ == nullptr; }
  /// @param why null: success
  void append(operation_ptr op, failure_ptr why) {
    op->why_ended = std::move(why);
    operation* const added = op.get();
    (last_ != nullptr ? last_->next_ended : first_) = std::move(op);
    last_ = added;
  }
  void append(ended_operations&& more) {
    if (more.empty()) return;
    (last_ != nullptr ? last_->next_ended : first_) = std::move(more.first_);
    last_ = std::exchange(more.last_, nullptr);
  }
  /// The oldest; null if there is none. Its reason is in why_ended.
  operation_ptr take() {
    operation_ptr op = std::move(first_);
    if (op == nullptr) return op;
    first_ = std::move(op->next_ended);
    if (first_ == nullptr) last_ = nullptr;
    return op;
  }
  bool contains(const operation* op) const {
    for (const operation* at = first_.get(); at != nullptr; at = at->next_ended.get())
      if (at == op) return true;
    return false;
  }
  std::size_t size() const {
    std::size_t count = 0;
    for (const operation* at = first_.get(); at != nullptr; at = at->next_ended.get()) ++count;
    return count;
  }

private:
  /// One by one: each would else destroy the next from within its destructor.
  void clear() {
    while (take() != nullptr) {}
  }

  operation_ptr first_;
  operation* last_ = nullptr;
};

}  // namespace troupe::actors
