// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/mailbox/channel_state.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace troupe::actors {

namespace {

constexpr std::size_t first_early_capacity = 64;

operation_key key_of_receiver(const chunk& c) {
  const bool pair = (c.epoch & point_to_point) != 0;
  return {c.epoch, pair ? c.source : -1, false};
}

operation_key key_of_sender(const credit& c) {
  const bool pair = (c.epoch & point_to_point) != 0;
  return {c.epoch, pair ? c.source : -1, pair};
}

}  // namespace

// -- the port of one operation ----------------------------------------------------------------------------------------

struct channel_state::port {
  channel_state& self;
  active& a;
  const operation_key& key;
  channel_outbox& outbox;
  rank_t other = -1;              ///< whose chunk did not fit
  const chunk* coming = nullptr;  ///< what front() found is only announced

  std::uint32_t wire_lane(int lane) const {
    return static_cast<std::uint32_t>(self.channel_) * self.lanes_of(a) + static_cast<std::uint32_t>(lane);
  }
  packet_key name(const link& l, int lane, rank_t from) const {
    return {a.what->epoch, static_cast<std::uint32_t>(from), wire_lane(lane), l.next};
  }

  const chunk* front(int lane, rank_t from) {
    link& l = find_link(a.in, lane, from);
    const chunk* found = l.here ? &*l.here : self.find_early(name(l, lane, from));
    coming = nullptr;
    if (found != nullptr && found->fingerprint != a.what->fingerprint) {
      a.mismatched = true;
      other = from;
      return nullptr;
    }
    if (found == nullptr) return nullptr;
    other = from;
    if (found->announced) {
      coming = found;
      return nullptr;
    }
    if (found->data == l.place) l.place = nullptr;
    return found;
  }

  expected_chunk expected(const link& l, int lane, rank_t from, std::size_t bytes) const {
    return {a.what->fingerprint, a.what->epoch, from, wire_lane(lane), l.next, bytes, l.place};
  }

  /// @pre front() has just found nothing there
  void expect(int lane, rank_t from, std::byte* place, std::size_t bytes) {
    if (coming == nullptr && bytes < self.least_placed_) return;
    if (coming != nullptr && coming->bytes != bytes) {
      a.mismatched = true;
      return;
    }
    link& l = find_link(a.in, lane, from);
    if (place != nullptr && !std::exchange(l.offered, true)) {
      l.place = place;
      if (bytes < self.least_placed_ || !outbox.offer_place(expected(l, lane, from, bytes))) l.place = nullptr;
    }
    if (coming != nullptr && !std::exchange(l.cleared, true))
      outbox.clear(from, {a.what->epoch, self.rank_, wire_lane(lane), l.next});
  }

  void expect_early(int lane, rank_t from, std::byte* place, std::size_t bytes) {
    if (bytes < self.least_placed_ || a.mismatched) return;
    if (front(lane, from) == nullptr && !a.mismatched) expect(lane, from, place, bytes);
  }

  void consume(int lane, rank_t from) {
    link& l = find_link(a.in, lane, from);
    const bool settled = l.here ? l.here->settled : self.drop_early(name(l, lane, from));
    l.here.reset();
    if (l.place != nullptr) outbox.withdraw_place(expected(l, lane, from, 0));  // it came before the place was offered
    l.place = nullptr;
    l.offered = l.cleared = false;
    if (!settled) outbox.give_back(from, {a.what->epoch, self.rank_, wire_lane(lane), l.next});
    ++l.next;
  }

  bool can_send(int lane, rank_t to) {
    const link& l = find_link(a.out, lane, to);
    return l.next - l.returned < static_cast<std::uint32_t>(a.what->credits);
  }

  void send(int lane, rank_t to, const std::byte* data, std::size_t bytes) {
    link& l = find_link(a.out, lane, to);
    ++a.outstanding;
    const std::uint32_t ahead = l.next++ - l.returned;
    if (outbox.deliver(to,
                       {data, bytes, a.what->fingerprint, a.what->epoch, self.rank_, wire_lane(lane), l.next - 1, {}}))
      came_back(a, l, ahead);
  }

  std::byte* slot(int lane, rank_t to, std::size_t) {
    link& l = find_link(a.out, lane, to);
    const std::size_t slot_bytes = a.what->code->slot_bytes;
    // One acquisition per link and operation, not per chunk.
    if (l.slots == nullptr && slot_bytes > 0)
      l.slots = a.what->lent->acquire(*self.slots_, slot_bytes * static_cast<std::size_t>(a.what->credits));
    const auto index = static_cast<std::size_t>(l.next % static_cast<std::uint32_t>(a.what->credits));
    return l.slots + index * slot_bytes;
  }

  bool piece_ready(int piece) const { return a.what->parts->ready(piece); }
  void performed(int lane, std::size_t index) {
    const auto& all = a.what->code->arrivals;
    bool news = false;
    for (auto at = std::lower_bound(all.begin(), all.end(), arrival{lane, static_cast<std::int32_t>(index), 0});
         at != all.end() && at->lane == lane && at->index == static_cast<std::int32_t>(index); ++at)
      news = a.what->parts->performed(at->piece) || news;
    if (news) outbox.arrived(key);
  }

  bool transfer(int lane, std::byte* target, const std::byte* source, std::size_t bytes) {
    return outbox.transfer(key, lane, target, source, bytes);
  }
  bool transfer(int lane, const instruction& i, std::byte* target, const std::byte* source, std::size_t bytes) {
    return outbox.transfer_shared(key, lane, {*a.what->code, i, target, source, bytes, a.what->shared});
  }
};

/// The same where work takes time.
struct channel_state::port_in_time : port {
  bool carries_payload() const { return a.what->work == step_work::timed; }
  bool begin_work(int lane, const instruction& i, lane_wait::reason lacked) {
    return outbox.begin_work(key, lane, i, lacked);
  }
  std::byte* slot(int lane, rank_t to, std::size_t bytes) {
    return carries_payload() ? port::slot(lane, to, bytes) : nullptr;
  }
};

// -- messages ---------------------------------------------------------------------------------------------------------

/// Keeps the memory of the operation before.
void channel_state::active::begin(std::shared_ptr<const assignment> next, int channel) {
  lanes.begin(*next->code, channel, next->memory, next->type, next->reduction, next->any_order);
  for (std::vector<link>* links : {&in, &out}) {
    if (links->size() > most_kept_links) links->clear();
    for (link& l : *links) {
      const std::uint64_t name = l.name;
      l = {};
      l.name = name;
    }
  }
  outstanding = 0;
  mismatched = false;
  what = std::move(next);
}

/// Of everything that is not its own.
void channel_state::active::let_go() {
  what = nullptr;
  for (link& l : in) l.here.reset();
}

void channel_state::start(std::shared_ptr<const assignment> what, channel_outbox& out) {
  const operation_key key{what->epoch, what->peer, what->sending};
  const int channel =
      what->peer >= 0 ? 0 : channel_;  // the only one of a send's or receive's program, which any channel performs
  if (!spare_.empty()) {
    spare_.mapped().begin(std::move(what), channel);
    spare_.key() = key;
    auto added = active_.insert(std::move(spare_));
    if (added.inserted) return advance(added.position, out);
    spare_ = std::move(added.node);
    return spare_.mapped().let_go();
  }
  performer lanes{*what->code, channel, what->memory, what->type, what->reduction, what->any_order};
  const auto [at, fresh] = active_.try_emplace(key, active{std::move(what), std::move(lanes), {}, {}, 0, false});
  if (fresh) advance(at, out);
}

void channel_state::on_chunk(chunk&& what, channel_outbox& out) {
  const auto at = find(key_of_receiver(what));
  if (at == active_.end()) return keep(std::move(what));
  link& l = find_link(at->second.in, static_cast<int>(what.lane % lanes_of(at->second)), what.source);
  if (what.sequence < l.next) return;  // came twice
  if (what.sequence == l.next) keep_next(l, std::move(what));
  else keep(std::move(what));
  advance(at, out);
}

void channel_state::on_credit(const credit& what, channel_outbox& out) {
  const auto at = find(key_of_sender(what));
  if (at == active_.end()) return;
  active& a = at->second;
  link& l = find_link(a.out, static_cast<int>(what.lane % lanes_of(a)), what.source);
  const std::uint32_t ahead = what.sequence - l.returned;
  if (ahead >= 64 || what.sequence >= l.next || (l.came_back >> ahead & 1u) != 0) return;  // came twice
  came_back(a, l, ahead);
  advance(at, out);
}

/// Slots are reused in the order of sending, so a credit counts when all earlier ones have come back.
void channel_state::came_back(active& a, link& l, std::uint32_t ahead) {
  l.came_back |= std::uint64_t{1} << ahead;
  const int in_order = std::countr_one(l.came_back);
  l.came_back = in_order == 64 ? 0 : l.came_back >> in_order;
  l.returned += static_cast<std::uint32_t>(in_order);
  --a.outstanding;
}

void channel_state::announced(const operation_key& which, channel_outbox& out) {
  if (const auto at = find(which); at != active_.end()) advance(at, out);
}

void channel_state::transferred(const operation_key& which, int lane, channel_outbox& out) {
  const auto at = find(which);
  if (at == active_.end()) return;
  at->second.lanes.transferred(lane);
  advance(at, out);
}

std::vector<lane_wait> channel_state::stop(const operation_key& which) {
  std::vector<lane_wait> lacked = waits(which);
  active_.erase(which);
  drop_job(which);
  return lacked;
}

std::uint64_t channel_state::moves(const operation_key& which) const {
  const auto at = active_.find(which);
  if (at == active_.end()) return 0;
  std::uint64_t total = 1;
  for (const link& l : at->second.in) total += l.next;
  for (const link& l : at->second.out)
    total += std::uint64_t{l.next} + l.returned + static_cast<std::uint64_t>(std::popcount(l.came_back));
  return total;
}

std::vector<lane_wait> channel_state::waits(const operation_key& which) const {
  const auto at = active_.find(which);
  if (at == active_.end()) return {};
  std::vector<lane_wait> result = at->second.lanes.waits();
  if (result.empty())
    for (const link& l : at->second.out)
      if (l.next != l.returned)
        result.push_back(
            {lane_wait::reason::credit, static_cast<int>(l.name >> 32), static_cast<rank_t>(l.name & 0xffffffffu), -1});
  return result;
}

std::vector<std::shared_ptr<const assignment>> channel_state::assignments() const {
  std::vector<std::shared_ptr<const assignment>> all;
  for (const auto& [key, a] : active_) all.push_back(a.what);
  return all;
}

std::size_t channel_state::early_chunks() const {
  std::size_t total = 0;
  for (const auto& buffer : early_) total += buffer->size();
  for (const auto& [key, a] : active_)
    total += static_cast<std::size_t>(std::ranges::count_if(a.in, [](const link& l) { return l.here.has_value(); }));
  return total;
}

// -- operations -------------------------------------------------------------------------------------------------------

void channel_state::advance(active_map::iterator at, channel_outbox& out) {
  active& a = at->second;
  if (a.mismatched) return;
  const operation_key key = at->first;
  port_in_time p{{*this, a, key, out}};
  auto status = performer::status::waiting;
  try {
    status = a.what->work == step_work::at_once ? a.lanes.advance(static_cast<port&>(p)) : a.lanes.advance(p);
  } catch (const error& e) {
    a.mismatched = true;
    return out.failed(key, make_failure(e.code_value(), e.what()));
  } catch (const std::exception& e) {
    a.mismatched = true;
    return out.failed(key, make_failure(errc::aborted, std::string{"performing it threw: "} + e.what()));
  } catch (...) {
    a.mismatched = true;
    return out.failed(key, make_failure(errc::aborted, "performing it threw something that is no std::exception"));
  }
  if (a.mismatched || status == performer::status::mismatch) {
    a.mismatched = true;
    out.mismatch(key, p.other);
    return;
  }
  if (status == performer::status::performed && a.outstanding == 0) {
    a.let_go();
    spare_ = active_.extract(at);
    out.performed(key);
  }
}

/// Most of the time there is one.
channel_state::active_map::iterator channel_state::find(const operation_key& key) {
  if (active_.size() != 1) return active_.find(key);
  const auto only = active_.begin();
  return only->first == key ? only : active_.end();
}

/// Few links are looked through faster than halved.
channel_state::link& channel_state::find_link(std::vector<link>& links, int lane, rank_t peer) {
  constexpr std::ptrdiff_t few = 8;
  const std::uint64_t name = static_cast<std::uint64_t>(lane) << 32 | static_cast<std::uint32_t>(peer);
  auto first = links.begin(), last = links.end();
  while (last - first > few) {
    const auto middle = first + (last - first) / 2;
    (middle->name < name ? first : last) = middle;
  }
  while (first != last && first->name < name) ++first;
  if (first == links.end() || first->name != name) {
    first = links.emplace(first);
    first->name = name;
  }
  return *first;
}

// -- early chunks -----------------------------------------------------------------------------------------------------

void channel_state::keep(chunk&& what) {
  const packet_key key{what.epoch, static_cast<std::uint32_t>(what.source), what.lane, what.sequence};
  // In all of them first: one that had no room for it before may have some now.
  if (chunk* const known = find_early(key)) {
    if (known->announced && !what.announced) *known = std::move(what);
    return;  // else it came twice
  }
  // A buffer that refuses leaves it whole. NOLINTBEGIN(bugprone-use-after-move)
  for (auto& buffer : early_)
    if (buffer->size() < buffer->limit() && buffer->put(key, std::move(what))) return;
  // NOLINTEND(bugprone-use-after-move)
  // Allocates only when more chunks than ever before wait at once; credits, and the window of settled ones, bound how often that can happen.
  const std::size_t capacity = early_.empty() ? first_early_capacity : early_.back()->capacity() * 2;
  early_.push_back(std::make_unique<packet_buffer<chunk>>(capacity));
  static_cast<void>(early_.back()->put(key, std::move(what)));
}

/// The same of the one that its lane takes next: it need not be looked for.
void channel_state::keep_next(link& l, chunk&& what) {
  if (l.here) {
    if (l.here->announced && !what.announced) l.here = std::move(what);
    return;  // else it came twice
  }
  const packet_key key{what.epoch, static_cast<std::uint32_t>(what.source), what.lane, what.sequence};
  if (find_early(key) != nullptr) keep(std::move(what));  // the first of the two came before the operation began
  else l.here = std::move(what);
}

chunk* channel_state::find_early(const packet_key& key) {
  for (auto& buffer : early_)
    if (chunk* found = buffer->find(key)) return found;
  return nullptr;
}

/// True: it was settled, so its sender waits for no credit.
bool channel_state::drop_early(const packet_key& key) {
  for (auto& buffer : early_)
    if (const auto gone = buffer->take(key)) return gone->settled;
  return false;
}

/// Sends and receives of all pairs share an epoch number, so a job is also told apart by its source.
void channel_state::drop_job(const operation_key& key) {
  for (auto& buffer : early_) {
    if (buffer->empty()) continue;
    if (key.peer < 0) {
      buffer->remove_job(key.epoch);
      continue;
    }
    if (key.sending) continue;
    std::vector<chunk> others;
    buffer->remove_job(key.epoch, [&](const packet_key&, chunk&& c) {
      if (c.source != key.peer) others.push_back(std::move(c));
    });
    for (chunk& c : others) {
      const packet_key name{c.epoch, static_cast<std::uint32_t>(c.source), c.lane, c.sequence};
      static_cast<void>(buffer->put(name, std::move(c)));
    }
  }
}

}  // namespace troupe::actors
