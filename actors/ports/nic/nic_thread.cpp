// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/nic/nic_thread.hpp"

#include <utility>

namespace troupe::actors {

namespace {
/// The desk's clock counts picoseconds, which last for a hundred days: it begins anew when nothing is under way.
constexpr auto longest_clock = std::chrono::hours{24};
}  // namespace

// -- a rank's end -------------------------------------------------------------------------------------------------------

bool nic_queue::post(const nic_posting& what) {
  to_->start();
  if (words_.write_available() <= most_posted) return false;  // the rest is for recalls
  words_.push(word{false, what});
  to_->ring(*this);
  return true;
}

void nic_queue::recall(std::uint64_t communicator, epoch_t epoch, rank_t rank) {
  word w;
  w.recalls = true;
  w.what.communicator = communicator;
  w.what.epoch = epoch;
  w.what.rank = rank;
  words_.push(w);
  to_->ring(*this);
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
  if (asleep_.load()) place_.wake();
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
      share_cores_with(w.what.ranks);
      desk_->post(from.shared_from_this(), std::move(w.what));
    }
  }
}

void nic_thread::work() {
  wait_course course{{spin_, waiting_.yields}};
  while (!closed_.load()) {
    bool moved = take_words();
    if (!desk_->empty()) moved = desk_->turn(now()) || moved;
    if (moved) {
      course.restart();
      continue;
    }
    switch (course.next()) {
      case wait_course::step::look: break;
      case wait_course::step::pause: pause_core(); break;
      case wait_course::step::yield: std::this_thread::yield(); break;
      case wait_course::step::sleep:
        if (sleep()) course = wait_course{{spin_, waiting_.yields}};
        break;
    }
  }
}

void nic_thread::share_cores_with(int ranks) {
  if (ranks <= most_ranks_) return;
  most_ranks_ = ranks;
  waiting_ = waiting_for(ranks + 1, cores_, most_spin_);
  spin_ = waiting_.spin;
}

/// Until a queue rings, or until the NIC wants to look again at what is under way. True: it has slept.
bool nic_thread::sleep() {
  if (desk_->empty() && now() > longest_clock) {
    desk_ = std::make_unique<nic_desk>();
    began_ = std::chrono::steady_clock::now();
  }
  asleep_.store(true);
  const bool sleeps = rung_.load() == nullptr && !closed_.load();
  if (sleeps) {
    const auto from = std::chrono::steady_clock::now();
    steady_time until = no_deadline;
    if (const auto due = desk_->nic().next_deadline(); due && desk_->under_way() > 0)
      until = began_ + std::chrono::ceil<std::chrono::nanoseconds>(*due);
    place_.park(until);
    spin_ = learn_spin(spin_, waiting_, std::chrono::steady_clock::now() - from);
  }
  asleep_.store(false);
  return sleeps;
}

}  // namespace troupe::actors
