// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/nic/nic_thread.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "actors/waiting/crowded_core.hpp"
#include "actors/waiting/napping.hpp"
#include "actors/waiting/policy.hpp"

namespace troupe::actors {

using namespace std::chrono_literals;

namespace {
/// The driver's clock counts picoseconds, which last for a hundred days: it begins anew when nothing is under way.
constexpr auto longest_clock = std::chrono::hours{24};
/// After something has moved. Ranks that call one operation after the other then never wake the thread, nor do those that call less often while it dozes.
constexpr auto longest_look = std::chrono::milliseconds{1};
/// Between two looks at what ranks of this process wait for, which nobody may ring for.
constexpr auto care = std::chrono::milliseconds{1};
/// Of a thread that has always something to do.
constexpr unsigned rounds_a_care = 256;
/// Looks between two at the clock.
constexpr int looks_a_glance = 64;

/// Shorter than others': a thread that is woken beside threads that compute goes first then, for as long. Where the system knows no such thing nothing is
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
  if (elsewhere_ != nullptr) {
    if (!elsewhere_->post(shared_from_this(), what)) return posted::full;
    return all_->complete(what.epoch, what.posters()) ? posted::complete : posted::well;
  }
  to_->start();
  if (!words_.post(what)) return posted::full;
  to_->ring(*this);
  return all_->complete(what.epoch, what.posters()) ? posted::complete : posted::well;
}

doorbell& nic_queue::bell() const { return elsewhere_ != nullptr ? elsewhere_->home_bell() : to_->bell(); }

void nic_queue::recall(std::uint64_t communicator, epoch_t epoch, rank_t rank) {
  if (elsewhere_ != nullptr) {
    elsewhere_->recall(epoch, rank);
    to_->bell().note();
    return to_->bell().wake();  // it looks after the answer
  }
  words_.recall(communicator, epoch, rank);
  to_->ring(*this);
  bell().wake();
}

// -- the thread ---------------------------------------------------------------------------------------------------------

void nic_thread::start() {
  if (started_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  begin_thread();
}

/// @pre locked
void nic_thread::begin_thread() {
  if (started_.load() || closed_.load()) return;
  driver_ = std::make_unique<nic_driver>();
  began_ = std::chrono::steady_clock::now();
  thread_ = std::thread([this] { work(); });
  started_.store(true, std::memory_order_release);
}

void nic_thread::close() {
  const std::lock_guard lock(mutex_);
  closed_.store(true);
  bell().note();
  bell().wake();
  if (thread_.joinable()) thread_.join();
  take_new();
  for (const auto& each : std::exchange(between_, {})) each->close(*driver_, now());
  for (nic_queue* q = rung_.exchange(nullptr); q != nullptr;) {
    const auto held = std::move(q->self_);
    q = q->next_rung_;
  }
}

void nic_thread::sleep_at(doorbell& where, std::shared_ptr<const void> keeps, std::atomic<std::uint64_t>* looks) {
  const std::lock_guard lock(mutex_);
  counts_looks_.store(looks);
  keeps_bell_ = std::move(keeps);
  doorbell& before = *bell_.exchange(&where);
  before.note();
  before.wake();
}

void nic_thread::serve(std::shared_ptr<nic_served> what) {
  const std::lock_guard lock(mutex_);
  if (closed_.load()) return;
  new_.push_back(std::move(what));
  has_new_.store(true);
  begin_thread();
  bell().note();
  bell().wake();
}

void nic_thread::ring(nic_queue& which) {
  if (which.rung_.exchange(true)) return;
  which.self_ = which.shared_from_this();
  nic_queue* head = rung_.load(std::memory_order_relaxed);
  do which.next_rung_ = head;
  while (!rung_.compare_exchange_weak(head, &which, std::memory_order_seq_cst, std::memory_order_relaxed));
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
  most_ranks_ = std::max(most_ranks_, from.words_.read(*driver_, from.shared_from_this(), now()));
}

/// @pre locked
void nic_thread::take_new() {
  has_new_.store(false);
  std::ranges::move(std::exchange(new_, {}), std::back_inserter(between_));
}

/// Takes what other processes have left.
bool nic_thread::look_between() {
  doorbell& at = bell();
  const std::uint32_t rings = at.rings();
  if (rings == seen_rings_ && &at == seen_bell_) return false;
  seen_rings_ = rings;
  seen_bell_ = &at;
  if (auto* const looks = counts_looks_.load(std::memory_order_relaxed)) looks->fetch_add(1, std::memory_order_relaxed);
  if (has_new_.load()) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock) take_new();
    else at.note();  // its holder may be waiting for this thread's end
  }
  std::erase_if(between_, [&](const auto& each) {
    if (!each->has_ended()) return false;
    each->close(*driver_, now());
    return true;
  });
  bool moved = false;
  for (const auto& each : between_) {
    if (!each->serve(*driver_, now()) || !each->at_home()) continue;  // who only passes news on need not look for more
    most_ranks_ = std::max(most_ranks_, each->ranks());
    moved = true;
  }
  return moved;
}

/// False: no rank waits for memory that another process's NIC has.
bool nic_thread::look_after_ranks() {
  const auto waits = [](const auto& each) { return each->waits(); };
  if (std::ranges::none_of(between_, waits)) return false;
  const steady_time t = std::chrono::steady_clock::now();
  if (t < next_care_) return true;
  next_care_ = t + care;
  for (const auto& each : between_)
    if (each->waits()) each->look_after(t);
  return true;
}

void nic_thread::work() {
  ask_for_short_slices();
  end_sleeps_in_time();
  unsigned rounds = 0;
  for (int looks = 0; !closed_.load(); ++looks) {
    if (++rounds % rounds_a_care == 0) look_after_ranks();
    bool moved = look_between();
    moved = take_words() || moved;
    if (!driver_->empty()) moved = driver_->turn(now()) || moved;
    if (moved) {
      looks = -1;
      dozed_ = false;
      dozes_.worked();
    } else if (!looks_on(looks)) {
      dozed_ = sleep(may_doze() ? dozes_.next(std::chrono::steady_clock::now() - idle_since_) : 0ns);
      looks = eager_looks;  // the waker has left something, or it sleeps again
    }
  }
}

/// After so many looks that have found nothing. Few, where nobody else may have the core meanwhile.
bool nic_thread::looks_on(int looks) {
  if (looks < eager_looks) return true;
  if (!has_core() || dozed_) return false;
  pause_core();
  if (looks == eager_looks) idle_since_ = std::chrono::steady_clock::now();
  if (looks % looks_a_glance != 0) return true;
  return std::chrono::steady_clock::now() - idle_since_ < longest_look && !core_is_crowded();
}

/// Others wait for this thread's core no more than they do while it looks.
bool nic_thread::may_doze() const { return has_core() && !core_is_crowded(); }

/// Until somebody wakes it, or until the NIC wants to look again at what is under way. @param doze no longer than that, and who posts wakes nobody; 0: for good
/// @return it has dozed
bool nic_thread::sleep(std::chrono::nanoseconds doze) {
  if (driver_->empty() && now() > longest_clock) {
    driver_ = std::make_unique<nic_driver>();
    began_ = std::chrono::steady_clock::now();
  }
  steady_time until = no_deadline;
  if (const auto due = driver_->nic().next_deadline(); due && driver_->under_way() > 0)
    until = began_ + std::chrono::ceil<std::chrono::nanoseconds>(*due);
  if (look_after_ranks()) until = std::min(until, next_care_);
  const bool dozes = doze > doze.zero();
  if (dozes) until = std::min(until, std::chrono::steady_clock::now() + doze);
  doorbell& at = bell();
  if (dozes) at.announce_doze();
  else at.announce();
  if (rung_.load() == nullptr && !closed_.load() && &at == seen_bell_) at.sleep(seen_rings_, until);
  at.retract();
  return dozes;
}

}  // namespace troupe::actors
