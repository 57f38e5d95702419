// SPDX-License-Identifier: Apache-2.0
#include "actors/virtual/recorder.hpp"

namespace troupe::actors {

namespace {

span_kind kind_of(const brief_instruction& i) {
  if (i.kind == step_kind::sync) return span_kind::sync;
  if (reduces(i.kind)) return span_kind::reduce;
  return i.kind == step_kind::send ? span_kind::send : span_kind::copy;
}

}  // namespace

void recorder::step(rank_t rank, std::int32_t lane, const brief_instruction& i, std::uint64_t bytes, std::int64_t since,
                    std::int64_t begin, std::int64_t end, virtual_cause::reason why, std::int64_t flow) {
  using reason = virtual_cause::reason;
  virtual_span s;
  s.actor = rank, s.lane = lane, s.step = i.score_step, s.flow = flow;
  if (begin > since && (why == reason::arrival || why == reason::credit)) {
    s.kind = why == reason::arrival ? span_kind::wait_chunk : span_kind::wait_credit;
    s.begin = since, s.end = begin;
    s.from = i.from, s.to = i.to;
    span(s);
  }
  s.kind = kind_of(i);
  s.begin = begin, s.end = end;
  s.from = i.from, s.to = i.to;
  s.bytes = static_cast<std::int64_t>(bytes);
  const std::size_t before = into_.spans.size();
  if (s.kind != span_kind::sync) span(s);  // synchronised() knows how long
  span_[static_cast<std::size_t>(&last_of(rank, lane) - last_.data())] =
      into_.spans.size() > before ? static_cast<std::int64_t>(before) : -1;

  virtual_cause c;
  c.why = why, c.rank = rank, c.lane = lane, c.step = i.score_step, c.slice = i.slice, c.begin = begin, c.end = end;
  c.previous = c.own_previous = last_of(rank, lane);
  if (flow >= 0) c.from = i.from;
  if (why == reason::arrival && flow >= 0) {
    const journey& j = journeys_[static_cast<std::size_t>(flow)];
    c.previous = j.cause;
    c.first_queue = static_cast<std::int32_t>(into_.queues.size());
    for (std::int32_t at = j.first_wait; at >= 0; at = waits_[static_cast<std::size_t>(at)].next, ++c.queues)
      into_.queues.push_back(waits_[static_cast<std::size_t>(at)].what);
  }
  if (why == reason::credit) c.previous = credit_[static_cast<std::size_t>(&last_of(rank, lane) - last_.data())];
  if (why == reason::other_lane && i.after_lane >= 0) {
    c.previous = last_of(rank, lane / lanes_ * lanes_ + i.after_lane);
    // That lane may have gone on to work that has not ended.
    while (c.previous >= 0 && into_.causes[static_cast<std::size_t>(c.previous)].end > begin)
      c.previous = into_.causes[static_cast<std::size_t>(c.previous)].own_previous;
  }
  last_of(rank, lane) = static_cast<std::int32_t>(into_.causes.size());
  into_.causes.push_back(c);
}

void recorder::ended(rank_t rank, std::int32_t lane, std::int64_t now) {
  const auto at = static_cast<std::size_t>(&last_of(rank, lane) - last_.data());
  if (last_[at] >= 0) into_.causes[static_cast<std::size_t>(last_[at])].end = now;
  if (span_[at] >= 0) into_.spans[static_cast<std::size_t>(span_[at])].end = now;
}

void recorder::sent(rank_t from, rank_t to, std::int32_t lane, std::int64_t flow, std::int64_t now,
                    std::uint64_t bytes) {
  virtual_move m;
  m.flow = flow, m.from = from, m.to = to, m.begin = now, m.end = now, m.bytes = static_cast<std::int64_t>(bytes);
  const std::int32_t cause = last_of(from, lane);
  if (cause >= 0) {
    const troupe::step& at = step_at(from, lane, into_.causes[static_cast<std::size_t>(cause)].step);
    const place& what = at.target.count > 0 ? at.target : at.source;
    if (what.count > 0) {
      const extent e = extent_of(notes_, what.owner == self ? from : what.owner, what.buffer, what.cell);
      m.block = e.block, m.part = e.part, m.cells = what.count;
    }
  }
  into_.moves.push_back(m);
  journeys_.push_back({.cause = cause});
}

void recorder::taken(rank_t rank, std::int32_t lane, std::int64_t flow) {
  const std::int32_t cause = last_of(rank, lane);
  if (cause < 0) return;
  const troupe::step& at = step_at(rank, lane, into_.causes[static_cast<std::size_t>(cause)].step);
  virtual_move& m = move_of(flow);
  m.reduces = reduces(at.kind);
  credit_[static_cast<std::size_t>(&last_of(m.from, lane) - last_.data())] = cause;
}

void recorder::synchronised(rank_t rank, std::int32_t lane, rank_t last, std::int64_t since, std::int64_t end) {
  virtual_span s;
  s.actor = rank, s.kind = span_kind::sync, s.lane = lane, s.begin = since, s.end = end;
  span(s);
  last_of(rank, lane) = last_of(last, lane);  // all waited for the one that came last
}

void recorder::finished(rank_t rank, std::int64_t) {
  for (std::size_t lane = 0; lane < width_; ++lane) {
    const std::int32_t at = last_of(rank, static_cast<std::int32_t>(lane));
    if (at >= 0 && (into_.last < 0 || into_.causes[static_cast<std::size_t>(at)].end >
                                          into_.causes[static_cast<std::size_t>(into_.last)].end))
      into_.last = at;
  }
}

void recorder::occupied(std::int32_t element, rank_t from, rank_t to, std::int64_t flow, std::int64_t begin,
                        std::int64_t end, std::uint64_t bytes, std::int64_t queued) {
  virtual_span s;
  s.actor = notes_.ranks + element, s.kind = span_kind::occupy, s.from = from, s.to = to, s.begin = begin, s.end = end;
  s.bytes = static_cast<std::int64_t>(bytes), s.flow = flow;
  span(s);
  if (flow < 0 || queued <= 0) return;
  journey& j = journeys_[static_cast<std::size_t>(flow)];
  const auto at = static_cast<std::int32_t>(waits_.size());
  (j.last_wait < 0 ? j.first_wait : waits_[static_cast<std::size_t>(j.last_wait)].next) = at;
  j.last_wait = at;
  waits_.push_back({{element, begin - queued, begin}, -1});
}

}  // namespace troupe::actors
