// SPDX-License-Identifier: Apache-2.0
#pragma once
// Contenders whose members are threads of one process: how they hear the same request, and meet.

#include "bench/harness/control.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

namespace bench {

class team {
public:
  explicit team(int members) : members_(members), values_(static_cast<std::size_t>(members)) {}
  int size() const { return members_; }

  /// Member 0 brings the turn-th request, from 1 (empty: the end); the others sleep until it has.
  std::optional<request_line> share(int member, const std::function<std::optional<request_line>()>& bring,
                                    std::size_t turn) {
    if (member == 0) {
      const auto next = bring();
      const std::lock_guard lock(mutex_);
      requests_.push_back(next);
      changed_.notify_all();
      return next;
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return requests_.size() >= turn; });
    return requests_[turn - 1];
  }

  /// The largest value over the members; a barrier. Looks for long before it yields, so that members leave within nanoseconds of
  /// each other where there are cores for all, and does yield, where there are not.
  double largest(int member, double value) {
    const unsigned epoch = epoch_.load(std::memory_order_relaxed);
    values_[static_cast<std::size_t>(member)].value = value;
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == members_) {
      double top = value;
      for (const auto& each : values_) top = std::max(top, each.value);
      top_[epoch % 2] = top;
      arrived_.store(0, std::memory_order_relaxed);
      epoch_.store(epoch + 1, std::memory_order_release);
      return top;
    }
    for (unsigned spins = 0; epoch_.load(std::memory_order_acquire) == epoch; ++spins)
      if (spins > 4000) sched_yield();
    return top_[epoch % 2];
  }

private:
  struct alignas(64) slot {
    double value = 0;
  };
  const int members_;
  std::vector<slot> values_;
  double top_[2] = {0, 0};  ///< by parity: a member may be read behind while another meets again
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<unsigned> epoch_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::optional<request_line>> requests_;  ///< all of them: member 0 may be a turn ahead
};

/// One member's life: hears requests, measures, answers. A failure ends the process, for the other members would wait forever.
template <member M>
void serve(M& m, int index, team& all, control* from, const char* contender) {
  for (std::size_t turn = 1;; ++turn) {
    try {
      const auto r = all.share(
          index, [&] { return from->next(); }, turn);
      if (!r) return;
      if (!m.supports(*r)) {
        if (index == 0) from->fail(contender, "unsupported");
        continue;
      }
      const result x = measure(m, *r);
      if (index == 0) from->answer(describe(contender, m.ranks(), *r, x, m.note()));
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s: rank %d: %s\n", contender, index, e.what());
      if (from != nullptr) from->fail(contender, e.what());
      std::_Exit(1);
    }
  }
}

}  // namespace bench
