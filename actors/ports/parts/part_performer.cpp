// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/parts/part_performer.hpp"

#include <algorithm>
#include <bit>

#include "protocols/chunk.hpp"

namespace troupe::actors {

namespace {
/// Messages of this use of the board; what an earlier one has left is none.
std::uint32_t count_in(std::uint64_t word, std::uint32_t stamp) {
  return static_cast<std::uint32_t>(word >> 32) == stamp ? static_cast<std::uint32_t>(word) : 0;
}
/// After what was read, of memory of another process: there ThreadSanitizer, which knows no fences, sees nothing.
void after_reading() {
#if !defined(__SANITIZE_THREAD__)
  std::atomic_thread_fence(std::memory_order_acquire);
#endif
}
std::uint64_t stamped(std::uint32_t stamp, std::uint32_t count) { return std::uint64_t{stamp} << 32 | count; }
}  // namespace

// -- the port of its lanes --------------------------------------------------------------------------------------------

struct part_performer::port {
  part_performer& self;
  part_outbox& outbox;
  chunk found{};

  bool between() const { return self.areas_ != nullptr; }
  const link_view& mine() const { return self.views_[static_cast<std::size_t>(self.rank_)]; }
  static const part_links::end& find(std::span<const part_links::end> ends, rank_t peer) {
    return *std::ranges::find(ends, peer, &part_links::end::peer);
  }

  void tell(rank_t to, const link_view& view) {  // N2; a rank that comes later looks by itself
    if (between()) {
      if (!view.member->told.load() && !view.member->told.exchange(true)) outbox.news(to);
    } else if (view.member->here.load()) {
      outbox.news(to, self.board_->of(to).parts);
    }
  }
  void tell_lane(rank_t to, int lane) {
    link_view* const view = self.view_of(to);
    if (view == nullptr) return;
    view->news[static_cast<std::size_t>(lane) / 64].fetch_or(std::uint64_t{1} << (lane % 64));  // N1
    tell(to, *view);
  }

  const chunk* front(int lane, rank_t from) {
    const part_links::end& link = find(self.links_.in(lane), from);
    const std::uint32_t next = self.in_[link.number].next;
    const link_view* const view = self.view_of(from);
    // C2, where a rank that has found no entry of this one leaves it at that (part_areas.hpp).
    if (view == nullptr || count_in(view->at(link.line).sent.load(), view->stamp) <= next) return nullptr;
    const std::uint32_t at = next % link.room;
    const link_line::entry& entry = view->at(link.line, at).room[at % part_links::per_line];
    found.data = entry.data;
    found.bytes = entry.bytes;
    if (between()) bring(link, from, *view);
    return &found;
  }

  // -- between processes --
  void check_believed(const link_view& view) const {
    after_reading();
    if (view.names->load(std::memory_order_relaxed) != self.epoch_ + 1) throw gave_up{};
  }
  /// What is mapped: where it is here. Else it stays where only the system reaches it, until it is fetched. Cost: a look-up under a lock.
  void bring(const part_links::end& link, rank_t from, const link_view& view) {
    check_believed(view);
    const std::byte*& here = self.in_[link.number].here;
    if (here == nullptr && found.bytes > 0) here = self.areas_->others().near(from, const_cast<std::byte*>(found.data));
    if (here != nullptr) found.data = here;
  }
  /// Straight to where it belongs, if the step only copies it; else aside.
  const std::byte* fetch(int lane, rank_t from, const chunk& what, std::byte* only_to) {
    if (!between() || what.bytes == 0) return what.data;
    const part_links::end& link = find(self.links_.in(lane), from);
    link_state& in = self.in_[link.number];
    if (in.here != nullptr) return what.data;
    std::byte* to = only_to;
    if (to == nullptr) {
      // Once a link, unless later messages are longer; kept for all repetitions.
      if (in.copied.size() < what.bytes) in.copied = self.slot_memory_->acquire(what.bytes);
      to = static_cast<std::byte*>(in.copied.data());
    }
    if (!self.areas_->others().read(from, to, what.data, what.bytes)) throw gave_up{};
    return to;
  }

  void consume(int lane, rank_t from) {
    const part_links::end& link = find(self.links_.in(lane), from);
    const link_view& view = *self.view_of(from);
    if (between()) {
      check_believed(view);
      self.in_[link.number].here = nullptr;
    }
    const std::uint32_t taken = ++self.in_[link.number].next;
    ++self.moves_;
    link_line& words = view.at(link.line);
    if (link.messages > link.room) {
      words.taken.store(stamped(view.stamp, taken));                                                  // T1
      if (words.wanted.load() == view.stamp && words.wanted.exchange(0) != 0) tell_lane(from, lane);  // T2
    } else {
      words.taken.store(stamped(view.stamp, taken), std::memory_order_relaxed);  // for verdicts
    }
    if (view.member->open.fetch_sub(1) == 1 && view.member->waits.load()) tell(from, view);  // T1, T2
  }

  bool can_send(int lane, rank_t to) {
    const part_links::end& link = find(self.links_.out(lane), to);
    const std::uint32_t next = self.out_[link.number].next;
    if (next < link.room) return true;
    link_line& words = mine().at(link.line);
    if (next - count_in(words.taken.load(std::memory_order_acquire), mine().stamp) < link.room) return true;
    words.wanted.store(mine().stamp);                                      // W1
    return next - count_in(words.taken.load(), mine().stamp) < link.room;  // W2
  }

  void send(int lane, rank_t to, const std::byte* data, std::size_t bytes) {
    const part_links::end& link = find(self.links_.out(lane), to);
    std::uint32_t& next = self.out_[link.number].next;
    const std::uint32_t at = next % link.room;
    mine().at(link.line, at).room[at % part_links::per_line] = {data, bytes};
    mine().member->open.fetch_add(1, std::memory_order_relaxed);  // before anybody can take it
    std::atomic<std::uint64_t>& sent = mine().at(link.line).sent;
    if (between()) sent.store(stamped(mine().stamp, ++next));  // N1, also for a receiver that has not come yet
    else sent.store(stamped(mine().stamp, ++next), std::memory_order_release);
    ++self.moves_;
    tell_lane(to, lane);
  }

  std::byte* slot(int lane, rank_t to, std::size_t) {
    const part_links::end& link = find(self.links_.out(lane), to);
    link_state& mine = self.out_[link.number];
    const std::size_t bytes = self.what_->code->slot_bytes;
    // Once a link, and kept for all repetitions.
    if (mine.slots == nullptr && bytes > 0)
      mine.slots = self.what_->lent->acquire(*self.slot_memory_, bytes * link.room);
    return mine.slots + static_cast<std::size_t>(mine.next % link.room) * bytes;
  }

  bool piece_ready(int piece) const { return self.what_->parts->ready(piece); }
  void performed(int lane, std::size_t index) {
    const auto& all = self.what_->code->arrivals;
    bool news = false;
    for (auto at = std::lower_bound(all.begin(), all.end(), arrival{lane, static_cast<std::int32_t>(index), 0});
         at != all.end() && at->lane == lane && at->index == static_cast<std::int32_t>(index); ++at)
      news = self.what_->parts->performed(at->piece) || news;
    if (news) outbox.arrived();
  }
  /// No DMA engine is between ranks of one process that share their memory.
  static bool transfer(int, std::byte* target, const std::byte* source, std::size_t bytes) {
    troupe::copy(target, source, bytes);
    return true;
  }
};

// -- repetitions --------------------------------------------------------------------------------------------------------

part_performer::part_performer(rank_t rank, const part_links& links, std::shared_ptr<const assignment> what,
                               arena& slots, scratch_block scratch, scratch_block l0)
    : rank_(rank),
      links_(links),
      what_(std::move(what)),
      slot_memory_(&slots),
      scratch_(std::move(scratch)),
      l0_(std::move(l0)),
      lanes_(*what_->code, 0, what_->memory, what_->type, what_->reduction, what_->any_order),
      in_(links_.ins()),
      out_(links_.outs()),
      views_(static_cast<std::size_t>(links_.ranks())) {
  list_piece_lanes();
}

void part_performer::list_piece_lanes() {
  const program& code = *what_->code;
  std::vector<std::vector<std::int32_t>> by_piece(static_cast<std::size_t>(code.pieces));
  for (int l = 0; l < code.lanes_per_channel; ++l)
    for (const instruction& i : code.lane(0, l)) {
      if (i.ready_part >= 0) by_piece[static_cast<std::size_t>(i.ready_part)].push_back(l);
      lanes_are_apart_ = lanes_are_apart_ && i.after_lane < 0 && (!what_->any_order || i.fan == 0);
    }
  for (const auto& lanes : by_piece) {
    piece_from_.push_back(static_cast<std::int32_t>(piece_lanes_.size()));
    piece_lanes_.insert(piece_lanes_.end(), lanes.begin(), lanes.end());
  }
  piece_from_.push_back(static_cast<std::int32_t>(piece_lanes_.size()));
}

rank_t part_performer::begin(link_boards& boards, epoch_t epoch, std::uint64_t fingerprint,
                             const std::shared_ptr<operation_parts>& mine) {
  const memory_map& own = what_->memory;
  const link_boards::place place =
      boards.enter(epoch, fingerprint, rank_, links_, mine, {own.input, own.output, own.factor});
  if (place.board == nullptr) return place.unlike;
  boards_ = &boards;
  board_ = place.board;
  for (rank_t r = 0; r < links_.ranks(); ++r) views_[static_cast<std::size_t>(r)] = board_->view(r, links_);
  restart();
  lanes_.share(board_->buffers());
  return -1;
}

rank_t part_performer::begin(part_areas& areas, epoch_t epoch, std::uint64_t fingerprint) {
  for (link_view& view : views_) view = {};
  views_[static_cast<std::size_t>(rank_)] = areas.enter(epoch, fingerprint, rank_, links_);
  areas_ = &areas;
  epoch_ = epoch;
  fingerprint_ = fingerprint;
  restart();
  for (rank_t r = 0; r < links_.ranks(); ++r)
    if (areas.find(epoch, fingerprint, r, views_[static_cast<std::size_t>(r)]) == part_areas::found::unlike) {
      leave();
      return r;
    }
  return -1;
}

void part_performer::restart() {
  lanes_.restart();
  for (link_state& link : in_) link.next = 0, link.here = nullptr;
  for (link_state& link : out_) link.next = 0;
  pieces_seen_ = 0;
  fresh_ = true;
  performed_ = given_up_ = false;
  ++moves_;
}

void part_performer::leave() {
  if (board_ != nullptr) boards_->leave(*std::exchange(board_, nullptr));
  if (areas_ != nullptr) std::exchange(areas_, nullptr)->leave(epoch_, rank_, performed_);
}

/// Null: it has not come yet, or has called something else and is going to say so.
link_view* part_performer::view_of(rank_t rank) {
  link_view& view = views_[static_cast<std::size_t>(rank)];
  if (view.member == nullptr && areas_->find(epoch_, fingerprint_, rank, view) != part_areas::found::it) return nullptr;
  return &view;
}

part_performer::status part_performer::advance(part_outbox& out) {
  if (given_up_) return status::waiting;
  try {
    return advance_lanes(out);
  } catch (const gave_up&) {
    given_up_ = true;
    return status::waiting;
  }
}

part_performer::status part_performer::advance_lanes(part_outbox& out) {
  port at{*this, out};
  const link_view& mine = views_[static_cast<std::size_t>(rank_)];
  const int words = (links_.lanes() + 63) / 64;
  if (areas_ != nullptr) mine.member->told.store(false);  // from here on it is told anew
  if (std::exchange(fresh_, false) || !lanes_are_apart_) {
    for (int w = 0; w < words; ++w) mine.news[w].exchange(0);
    static_cast<void>(lanes_.advance(at));
  } else {
    for (int w = 0; w < words; ++w) {
      if (mine.news[w].load() == 0) continue;
      for (std::uint64_t bits = mine.news[w].exchange(0); bits != 0; bits &= bits - 1)  // C2
        advance_lane(at, w * 64 + std::countr_zero(bits));
    }
    look_at_pieces(at);
  }
  if (!lanes_.performed()) return status::waiting;
  if (mine.member->open.load() != 0) {
    mine.member->waits.store(true);                             // W1
    if (mine.member->open.load() != 0) return status::waiting;  // W2
  }
  performed_ = true;
  return status::performed;
}

/// Bits that an earlier use of the board has left may name lanes that there are not.
void part_performer::advance_lane(port& at, int lane) {
  if (lane < what_->code->lanes_per_channel) static_cast<void>(lanes_.advance_alone(at, lane));
}

void part_performer::look_at_pieces(port& at) {
  const part_board& pieces = *what_->parts;
  for (int piece = 0; pieces_seen_ < pieces.inputs() && (piece = pieces.announced(pieces_seen_)) >= 0; ++pieces_seen_)
    for (std::int32_t i = piece_from_[static_cast<std::size_t>(piece)];
         i < piece_from_[static_cast<std::size_t>(piece) + 1]; ++i)
      advance_lane(at, piece_lanes_[static_cast<std::size_t>(i)]);
}

std::vector<lane_wait> part_performer::waits() const {
  if (!under_way()) return {};
  std::vector<lane_wait> result = lanes_.waits();
  if (!result.empty()) return result;
  const link_view& mine = views_[static_cast<std::size_t>(rank_)];
  for (int l = 0; l < links_.lanes(); ++l)
    for (const part_links::end& link : links_.out(l))
      if (count_in(mine.at(link.line).taken.load(std::memory_order_relaxed), mine.stamp) < out_[link.number].next)
        result.push_back({lane_wait::reason::credit, l, link.peer, -1});
  return result;
}

}  // namespace troupe::actors
