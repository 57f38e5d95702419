// SPDX-License-Identifier: Apache-2.0
#include "engine/experts/expert_words.hpp"

#include <algorithm>
#include <utility>

#include "engine/world/communicator_state.hpp"
#include "engine/world/partitioned_access.hpp"
#include "memory/error.hpp"

namespace troupe {

namespace {

/// Messages end with the whole dispatch, which has the deadline and says who is missing.
call_options until_the_end() {
  call_options how;
  how.deadline = std::chrono::hours{24 * 365};
  return how;
}

}  // namespace

expert_words::expert_words(communicator lane)
    : lane_(std::move(lane)),
      awaited_(static_cast<std::size_t>(lane_.size())),
      votes_(static_cast<std::size_t>(lane_.size()) + 1) {}

void expert_words::begin(std::optional<std::chrono::nanoseconds> deadline) {
  for (request& one : sent_) one.wait();
  sent_.clear();
  words_.clear();
  {
    const std::lock_guard lock(ending_);
    if (!end_ || deadline != deadline_) {
      end_ = lane_.all_gather_init(std::span{votes_}.first(1), std::span{votes_}.subspan(1), partitions(1),
                                   {.deadline = deadline.value_or(*until_the_end().deadline)});
      deadline_ = deadline;
    }
    end_.start();
  }
  begun_ = true;
  voted_ = over_ = false;
  partitioned_access::when_done(end_, [rung = bell_](const failure_ptr&) { rung->ring(); });
}

void expert_words::begin_receive(awaited& into, rank_t from, void* to, std::size_t count, datatype type) {
  into.pending = true;
  into.how = lane_.start(calls::recv(to, count, type, from, until_the_end()));
  into.how.then([rung = bell_](std::error_code) { rung->ring(); });
}

void expert_words::await(rank_t from) {
  awaited& into = awaited_[static_cast<std::size_t>(from)];
  into.is_word = true;
  begin_receive(into, from, into.raw.data(), into.raw.size(), datatype::u64);
}

void expert_words::await_block(rank_t from, std::byte* into, std::size_t bytes) {
  awaited& its = awaited_[static_cast<std::size_t>(from)];
  its.is_word = false;
  begin_receive(its, from, into, bytes, datatype::u8);
}

void expert_words::keep_sending(rank_t to, const void* from, std::size_t count, datatype type) {
  sent_.push_back(lane_.start(calls::send(from, count, type, to, until_the_end())));
}

void expert_words::send(rank_t to, const expert_word& what) {
  words_.push_back({static_cast<std::uint64_t>(what.what) << 32 | what.source, what.bytes, what.tiles});
  keep_sending(to, words_.back().data(), words_.back().size(), datatype::u64);
}

void expert_words::send_block(rank_t to, const std::byte* from, std::size_t bytes) {
  keep_sending(to, from, bytes, datatype::u8);
}

/// Throws if it has failed.
void expert_words::check_end() {
  if (begun_ && !over_ && end_.done()) {
    over_ = true;
    end_.wait();
  }
}

/// A message fails when its other end gives it up, so when the end has failed there, or is about to.
void expert_words::fail(const request& with) {
  const auto code = static_cast<errc>(with.status().value());
  partitioned_access::end(end_, make_failure(code, with.message()));
  over_ = true;
  end_.wait();
  throw error(code, with.message());
}

std::optional<expert_words::arrival> expert_words::next() {
  heard_ = bell_->rings.load();
  check_end();
  // The next one of all in turn, so that no rank is looked at before the others again and again.
  for (std::size_t i = 0; i < awaited_.size(); ++i) {
    looked_at_ = (looked_at_ + 1) % awaited_.size();
    awaited& one = awaited_[looked_at_];
    if (!one.pending || !one.how.done()) continue;
    if (one.how.status()) fail(one.how);
    one.pending = false;
    one.what = {static_cast<expert_word::kind>(one.raw[0] >> 32), static_cast<std::uint32_t>(one.raw[0]), one.raw[1],
                one.raw[2]};
    return arrival{static_cast<rank_t>(looked_at_), one.is_word ? &one.what : nullptr};
  }
  return std::nullopt;
}

void expert_words::sleep() {
  bell& b = *bell_;
  while (b.rings.load() == heard_) {
    b.news.reset();
    b.listens.store(true);
    // A thread that has taken the flag is about to complete `news`; one that has not will find the flag.
    if (b.rings.load() != heard_ && b.listens.exchange(false)) return;
    static_cast<void>(state_of(lane_)->wait(lane_.rank(), {bell_, &b.news}));
  }
}

void expert_words::vote() {
  voted_ = true;
  end_.ready(0);
}

void expert_words::wait() {
  if (!begun_ || over_) return;
  over_ = true;
  end_.wait();
}

void expert_words::cancel(const failure_ptr& why) {
  const std::lock_guard lock(ending_);
  if (!end_) return;
  if (why) partitioned_access::end(end_, why);
  else end_.cancel();
}

void expert_words::give_up(const failure_ptr& why) noexcept {
  if (!begun_) return;
  if (!voted_ && why) partitioned_access::end(end_, why);
  else if (!voted_) end_.cancel();
  static_cast<void>(end_.try_wait());
  for (awaited& one : awaited_)
    if (one.pending) one.how.cancel();
  for (request& one : sent_)
    if (!one.done()) one.cancel();
  for (awaited& one : awaited_)
    if (std::exchange(one.pending, false)) static_cast<void>(one.how.try_wait());
  for (request& one : sent_) static_cast<void>(one.try_wait());
  sent_.clear();
  begun_ = false;
}

}  // namespace troupe
