// SPDX-License-Identifier: Apache-2.0
#include "actors/virtual/player.hpp"

#include "actors/virtual/recorder.hpp"
#include "memory/error.hpp"

namespace troupe::actors {

/// The performer's view of the world for one channel; made for the time of a call.
struct player::port {
  player& of;
  int channel;
  chunk present{};

  traffic& ways() const { return of.with_.ways; }

  const chunk* front(int lane, rank_t from) {
    const std::uint32_t at = of.incoming(channel, lane, from);
    const virtual_message* m = at == no_connection ? nullptr : ways().front(at);
    if (m == nullptr) return nullptr;
    present.bytes = m->payload;
    return &present;
  }
  void consume(int lane, rank_t from) {
    const std::uint32_t at = of.incoming(channel, lane, from);
    if (of.with_.record) of.with_.record->taken(of.rank_, channel * of.with_.lanes + lane, ways().front(at)->flow);
    ways().consume(at);
    of.all_.give_back(at);
  }
  bool can_send(int lane, rank_t to) { return ways().can_send(of.outgoing(channel, lane, to)); }
  void send(int lane, rank_t to, const std::byte*, std::size_t bytes) {
    ways().send(of.outgoing(channel, lane, to), bytes);
  }
  std::byte* slot(int, rank_t, std::size_t) { return nullptr; }
  bool transfer(int, std::byte*, const std::byte*, std::size_t) { return true; }
  bool carries_payload() const { return false; }
  bool begin_work(int lane, const brief_instruction& i, lane_wait::reason lacked) {
    return of.begin_work(channel, lane, i, lacked);
  }
};

void player_communicator::settle() {
  // A credit that lets a lane go on may bring about more of them.
  for (std::size_t i = 0; i < credits_.size(); ++i) {
    const std::uint32_t at = credits_[i];
    if (ways.credit(at)) players[static_cast<std::size_t>(ways.at(at).from)].on_credit(at);
  }
  credits_.clear();
}

void player::perform() {
  const virtual_options& o = with_.options;
  std::uint64_t steps = 0;
  performers_.reserve(static_cast<std::size_t>(with_.channels));
  for (int c = 0; c < with_.channels; ++c) {
    performers_.emplace_back(code_, c, memory_map{}, o.type, o.reduction, o.any_order);
    for (int l = 0; l < with_.lanes; ++l) steps += code_.lane(c, l).size();
  }
  has_steps(steps);
  for (int c = 0; c < with_.channels; ++c) advance(c);
}

void player::advance(int channel, int lane) {
  if (performers_.empty()) return;
  auto& p = performers_[static_cast<std::size_t>(channel)];
  if (p.performed()) return;
  port through{*this, channel};
  const auto said = lane < 0 ? p.advance(through) : p.advance(through, lane);
  if (said == performer::status::mismatch)
    throw error(errc::bad_score,
                "rank " + std::to_string(rank_) + " gets a chunk of another size than its step expects");
}

void player::arrived(std::uint32_t connection, std::uint32_t) {
  const std::int32_t lane = with_.ways.at(connection).lane;
  advance(with_.channels == 1 ? 0 : lane / with_.lanes, with_.channels == 1 ? lane : lane % with_.lanes);
}

void player::expect_arrival(std::uint32_t message, int n) {
  if (n == 5) {
    with_.ways.expect_message(message);
    fetch_lines(performers_.data(), 1);
  } else if (n == 3) {
    with_.ways.expect_connection(message);
  } else if (n == 1 && !performers_.empty()) {
    const std::int32_t lane = with_.ways.connection_of(message).lane;
    const auto channel = static_cast<std::size_t>(with_.channels == 1 ? 0 : lane / with_.lanes);
    performers_[channel].expect_lane(with_.channels == 1 ? lane : lane % with_.lanes);
    expect_lane(lane);
  }
}

void player::work_ended(int channel, int lane) {
  performers_[static_cast<std::size_t>(channel)].transferred(lane);
  advance(channel, lane);
}

void player::on_credit(std::uint32_t connection) {
  const std::int32_t lane = with_.ways.at(connection).lane;
  advance(lane / with_.lanes, lane % with_.lanes);
  finish_if_done();
}

std::vector<std::string> player::waits() {
  std::vector<std::string> all;
  for (const auto& p : performers_)
    for (const lane_wait& w : p.waits()) all.push_back(to_string(w));
  return all;
}

}  // namespace troupe::actors
