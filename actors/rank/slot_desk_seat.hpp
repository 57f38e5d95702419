#pragma once
// What the files of the slot desk share, and nobody else: slot_desk.cpp (numbers, blocking callers), slot_desk_owner.cpp (who
// performs for a rank, groups), slot_desk_failure.cpp, slot_desk_attendant.cpp.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "actors/rank/remembered_calls.hpp"
#include "actors/rank/slot_desk.hpp"
#include "memory/kernels/kernels.hpp"

namespace troupe::actors {

/// How long an operation may take before the membership is told of it.
inline constexpr std::chrono::nanoseconds long_wait = std::chrono::milliseconds{5};
/// Looks of an owner with a yield between, before it sleeps or hands over.
inline constexpr int most_yields = 32;

/// Looks without a pause, and the least that a caller spins where it may at all.
inline constexpr int least_spin = 64;

inline epoch_t epoch_of(std::uint64_t sequence) { return static_cast<epoch_t>(sequence) & ~point_to_point; }

inline steady_time expiry(steady_time begun, std::optional<std::chrono::nanoseconds> deadline) {
  return deadline && *deadline < no_deadline - begun ? begun + *deadline : no_deadline;
}

/// Only who has a result.
inline void divide_average(const call& what, rank_t rank, int ranks, void* output) {
  if (!is_reduction(what.what) || what.reduction.kind != op_kind::avg || what.count == 0) return;
  if (const int terms = contributor_count(what.what, ranks, what.root, rank); terms > 0)
    divide(what.type, static_cast<std::size_t>(terms), output, output, what.count);
}

/// For catch (...): a user's function may throw anything.
inline std::string reason_of_exception() {
  try {
    throw;
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "a function threw something that is no std::exception";
  }
}

struct alignas(128) slot_desk::seat {
  rank_t rank = 0;
  std::atomic<bool> locked{false};  ///< a few instructions a time; guards what follows
  bool owned = false;
  bool leaving = false, left = false;
  std::uint64_t next = 0;
  epoch_t followed = 0;                     ///< epoch + 1 of the last operation that went to the rank's actor
  epoch_t active = operation::unset;        ///< being performed
  std::deque<operation_ptr> queue;          ///< to be performed, in order
  operation_ptr current;                    ///< written by the owner
  std::map<epoch_t, failure_ptr> failures;  ///< not seen by the rank yet
  std::atomic<std::size_t> failure_count{0};
  /// 0: somebody sees to it, or nothing is to be done. 1: left to who comes first. 2: and the attendant has seen it so.
  std::atomic<std::uint8_t> unattended{0};

  // The owner's. Of the calls, the last is being performed, or its repetition; also read under the lock by who is not owner.
  remembered_calls calls;
  std::uint64_t sequence = 0;
  int spin = 0;                                 ///< looks of a blocking caller, see slot_desk::spin()
  std::shared_ptr<const slot_program> running;  ///< of `current`
  std::optional<slot_performer> performer;
  std::vector<std::byte> scratch, l0;
  std::vector<std::byte> apart;  ///< the input of a reduce in place, whose plan is made for separate buffers
};

/// Ends the wait of a caller that performs for its rank.
class slot_desk::patience final : public slot_watch {
public:
  patience(const slot_desk& desk, seat& s, steady_time expires) : desk_(desk), seat_(s), expires_(expires) {}
  bool stop() noexcept override {
    return tired_ || desk_.is_broken_.load(std::memory_order_acquire) ||
           desk_.has_failed(seat_, epoch_of(seat_.sequence));
  }
  /// An operation that all ranks work on ends, or its caller's deadline passes.
  void impatient() override { tired_ = !seat_.performer->together() || std::chrono::steady_clock::now() >= expires_; }
  bool tired() const { return tired_; }

private:
  const slot_desk& desk_;
  seat& seat_;
  steady_time expires_;
  bool tired_ = false;
};

/// Who slept so short should have looked on instead: it is about what sleeping and being woken cost.
inline constexpr std::chrono::nanoseconds brief_sleep = std::chrono::microseconds{100};

/// A wait was longer than the looks of its caller, by `slept`. Decides how long he looks next time. (Not by whether looking sufficed: who
/// is woken late is looked for late, and then nobody would ever look long enough again.)
inline void slot_desk::learn(seat& s, std::chrono::nanoseconds slept) const {
  s.spin = slept < brief_sleep ? waiting_.spin : std::max(s.spin / 4, std::min(waiting_.spin, least_spin));
}

class slot_desk::locker {
public:
  explicit locker(seat& s) : s_(s) {
    for (int i = 0; s_.locked.exchange(true, std::memory_order_acquire); ++i)
      if (i > 16) std::this_thread::yield();
  }
  ~locker() { s_.locked.store(false, std::memory_order_release); }
  locker(const locker&) = delete;
  locker& operator=(const locker&) = delete;

private:
  seat& s_;
};

}  // namespace troupe::actors
