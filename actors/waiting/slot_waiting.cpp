// SPDX-License-Identifier: Apache-2.0
#include "actors/waiting/slot_waiting.hpp"

#include <algorithm>

#include "actors/ports/slots/slot_board.hpp"
#include "actors/waiting/yielding.hpp"

namespace troupe {

namespace {

using clock = std::chrono::steady_clock;
using ended = slot_wait_result::ended;

/// How many looks between two questions whether to stop.
constexpr int looks_between_questions = 256;

class waiting {
public:
  waiting(std::span<board_performer* const> performers, const slot_wait_options& options)
      : performers_(performers), options_(options) {}

  slot_wait_result run() {
    wait_course course{{.spin = options_.spin, .yields = options_.yields, .beside = options_.beside}};
    while (!look()) {
      const auto step = waits_for_other_cores() ? course.next_beside() : course.next();
      if (step == wait_course::step::sleep) return sleep();
      if (step == wait_course::step::pause) pause_core();
      if (step == wait_course::step::yield && !yield_core()) return sleep();
      if (course.taken() % looks_between_questions == 0 && stopped()) return result_;
    }
    return result_;
  }

private:
  slot_wait_result sleep() {
    next_impatience_ = clock::now() + options_.patience;
    while (!sleep_once()) {}
    return result_;
  }

  /// One turn over all performers. True: the wait is over.
  bool look() {
    bool all = true;
    for (std::size_t i = 0; i < performers_.size(); ++i) {
      if (performers_[i]->idle()) continue;
      const auto status = performers_[i]->advance();
      if (status == board_performer::status::mismatch) [[unlikely]]
        return result_ = {ended::mismatch, static_cast<int>(i)}, true;
      all = all && status == board_performer::status::performed;
    }
    return all;
  }

  /// A thread that turns several ranks does not ask.
  bool waits_for_other_cores() const {
    return options_.beside > 0 && performers_.size() == 1 && performers_.front()->waits_for_other_cores();
  }

  bool stopped() {
    if (options_.watch == nullptr || !options_.watch->stop()) return false;
    result_.how = ended::stopped;
    return true;
  }

  /// Announces what is missing, looks again, sleeps. True: the wait is over.
  bool sleep_once() {
    {
      slot_board& board = performers_.front()->board();
      slot_board::sleep sleep{board, performers_.front()->rank()};
      for (const board_performer* p : performers_)
        if (!p->idle()) p->announce(sleep);
      sleep.fence();
      const std::size_t before = steps_taken();
      if (look() || stopped()) return true;
      // A step forward may have changed what is missing; then the announcement was for something that has come already.
      if (steps_taken() == before) sleep.until(std::min(options_.deadline, next_impatience_));
    }
    if (look() || stopped()) return true;
    return out_of_time();
  }

  std::size_t steps_taken() const {
    std::size_t total = 0;
    for (const board_performer* p : performers_) total += p->steps_taken();
    return total;
  }

  bool out_of_time() {
    if (options_.deadline == clock::time_point::max() && options_.watch == nullptr) {
      next_impatience_ = clock::time_point::max();
      return false;
    }
    const auto now = clock::now();
    if (now >= options_.deadline) return result_.how = ended::timed_out, true;
    if (now >= next_impatience_) {
      if (options_.watch != nullptr) options_.watch->impatient();
      next_impatience_ = clock::now() + options_.patience;
    }
    return false;
  }

  std::span<board_performer* const> performers_;
  const slot_wait_options& options_;
  clock::time_point next_impatience_;
  slot_wait_result result_;
};

}  // namespace

slot_wait_result wait_slots(std::span<board_performer* const> performers, const slot_wait_options& options) {
  return performers.empty() ? slot_wait_result{} : waiting{performers, options}.run();
}

slot_wait_result wait_slots(board_performer& performer, const slot_wait_options& options) {
  board_performer* const one = &performer;
  return wait_slots({&one, 1}, options);
}

}  // namespace troupe
