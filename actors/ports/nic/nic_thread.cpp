// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/nic/nic_thread.hpp"

#include <algorithm>
#include <utility>

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "actors/waiting/crowded_core.hpp"
#include "actors/waiting/policy.hpp"

namespace troupe::actors {

namespace {
/// The desk's clock counts picoseconds, which last for a hundred days: it begins anew when nothing is under way.
constexpr auto longest_clock = std::chrono::hours{24};
/// After something has moved. Ranks that call one operation after the other then never wake the thread, and for those that call less often
/// its wake-up is little beside what they do meanwhile.
constexpr auto longest_look = std::chrono::milliseconds{1};
/// Looks between two at the clock.
constexpr int looks_a_glance = 64;

/// Shorter than others': who is woken beside threads that compute goes first then, for as long. Where the system knows no such thing nothing is
/// lost but that.
void ask_for_short_slices() noexcept {
#if defined(__linux__) && defined(SYS_sched_setattr) && defined(SYS_sched_getattr)
  struct attributes {  // as the system has it; no header of Debian 12's does
    std::uint32_t size = sizeof(attributes), policy = 0;
    std::uint64_t flags = 0;
    std::int32_t nice = 0;
    std::uint32_t priority = 0;
    std::uint64_t runtime = 0, deadline = 0, period = 0;
  } mine;
  static_assert(sizeof(attributes) == 48);
  if (::syscall(SYS_sched_getattr, 0, &mine, sizeof mine, 0) != 0 || mine.policy != 0) return;
  mine.runtime = 100'000;  // ns, the shortest that there is
  ::syscall(SYS_sched_setattr, 0, &mine, 0);
#endif
}
}  // namespace

// -- a rank's end -------------------------------------------------------------------------------------------------------

nic_queue::posted nic_queue::post(const nic_posting& what) {
  to_->start();
  if (words_.write_available() <= most_posted) return posted::full;  // the rest is for recalls
  words_.push(word{false, what});
  to_->ring(*this);
  return all_->complete(what.epoch, what.ranks) ? posted::complete : posted::well;
}

void nic_queue::recall(std::uint64_t communicator, epoch_t epoch, rank_t rank) {
  word w;
  w.recalls = true;
  w.what.communicator = communicator;
  w.what.epoch = epoch;
  w.what.rank = rank;
  words_.push(w);
  to_->ring(*this);
  to_->wake();
}

// -- the thread ---------------------------------------------------------------------------------------------------------

void nic_thread::start() {
  if (started_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  if (started_.load() || closed_.load()) return;
  desk_ = std::make_unique<nic_desk>();
  began_ = std::chrono::steady_clock::now();
  thread_ = std::thread([this] { work(); });
  started_.store(true, std::memory_order_release);
}

void nic_thread::close() {
  const std::lock_guard lock(mutex_);
  closed_.store(true);
  place_.wake();
  if (thread_.joinable()) thread_.join();
  for (nic_queue* q = rung_.exchange(nullptr); q != nullptr;) {
    const auto held = std::move(q->self_);
    q = q->next_rung_;
  }
}

void nic_thread::ring(nic_queue& which) {
  if (which.rung_.exchange(true)) return;
  which.self_ = which.shared_from_this();
  nic_queue* head = rung_.load(std::memory_order_relaxed);
  do which.next_rung_ = head;
  while (!rung_.compare_exchange_weak(head, &which, std::memory_order_seq_cst, std::memory_order_relaxed));
}

void nic_thread::wake() {
  // One is enough, and takes the flag along: whoever comes until the thread is awake makes no system call.
  if (asleep_.load() && asleep_.exchange(false)) place_.wake();
}

bool nic_thread::take_words() {
  if (rung_.load() == nullptr) return false;
  for (nic_queue* q = rung_.exchange(nullptr); q != nullptr;) {
    const auto held = std::move(q->self_);
    nic_queue* const next = q->next_rung_;
    q->rung_.store(false);
    read(*q);
    q = next;
  }
  return true;
}

void nic_thread::read(nic_queue& from) {
  nic_queue::word w;
  while (from.words_.pop(w)) {
    if (w.recalls) desk_->recall(from, w.what.communicator, w.what.epoch, w.what.rank, now());
    else {
      most_ranks_ = std::max(most_ranks_, w.what.ranks);
      desk_->post(from.shared_from_this(), std::move(w.what));
    }
  }
}

void nic_thread::work() {
  ask_for_short_slices();
  for (int looks = 0; !closed_.load(); ++looks) {
    bool moved = take_words();
    if (!desk_->empty()) moved = desk_->turn(now()) || moved;
    if (moved) looks = -1;
    else if (!looks_on(looks)) sleep();
  }
}

/// After so many looks that have found nothing. Few, where nobody else may have the core meanwhile.
bool nic_thread::looks_on(int looks) {
  if (looks < eager_looks) return true;
  if (!looks_ || most_ranks_ >= cores_) return false;
  pause_core();
  if (looks == eager_looks) idle_since_ = std::chrono::steady_clock::now();
  if (looks % looks_a_glance != 0) return true;
  return std::chrono::steady_clock::now() - idle_since_ < longest_look && !core_is_crowded();
}

/// Until somebody wakes it, or until the NIC wants to look again at what is under way.
void nic_thread::sleep() {
  if (desk_->empty() && now() > longest_clock) {
    desk_ = std::make_unique<nic_desk>();
    began_ = std::chrono::steady_clock::now();
  }
  asleep_.store(true);
  if (rung_.load() == nullptr && !closed_.load()) {
    steady_time until = no_deadline;
    if (const auto due = desk_->nic().next_deadline(); due && desk_->under_way() > 0)
      until = began_ + std::chrono::ceil<std::chrono::nanoseconds>(*due);
    place_.park(until);
  }
  asleep_.store(false);
}

}  // namespace troupe::actors
