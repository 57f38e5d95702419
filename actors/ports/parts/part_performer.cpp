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
std::uint64_t stamped(std::uint32_t stamp, std::uint32_t count) { return std::uint64_t{stamp} << 32 | count; }
}  // namespace

// -- the port of its lanes --------------------------------------------------------------------------------------------

struct part_performer::port {
  part_performer& self;
  part_outbox& outbox;
  chunk found{};

  link_board& board() const { return *self.board_; }
  static const part_links::end& find(std::span<const part_links::end> ends, rank_t peer) {
    return *std::ranges::find(ends, peer, &part_links::end::peer);
  }

  void tell(rank_t to) {
    link_board::member& other = board().of(to);
    if (other.here.load()) outbox.news(to, other.parts);  // N2; who comes later looks by itself
  }
  void tell_lane(rank_t to, int lane) {
    board().of(to).news[static_cast<std::size_t>(lane) / 64].fetch_or(std::uint64_t{1} << (lane % 64));  // N1
    tell(to);
  }

  const chunk* front(int lane, rank_t from) {
    const part_links::end& link = find(self.links_.in(lane), from);
    const std::uint32_t next = self.in_[link.number].next;
    if (count_in(board().at(link.line).sent.load(std::memory_order_acquire), self.stamp_) <= next) return nullptr;
    const std::uint32_t at = next % link.room;
    const link_board::entry& entry = board().at(link.line, at).room[at % part_links::per_line];
    found.data = entry.data;
    found.bytes = entry.bytes;
    return &found;
  }

  void consume(int lane, rank_t from) {
    const part_links::end& link = find(self.links_.in(lane), from);
    const std::uint32_t taken = ++self.in_[link.number].next;
    ++self.moves_;
    link_board::line& words = board().at(link.line);
    if (link.messages > link.room) {
      words.taken.store(stamped(self.stamp_, taken));                                                  // T1
      if (words.wanted.load() == self.stamp_ && words.wanted.exchange(0) != 0) tell_lane(from, lane);  // T2
    } else {
      words.taken.store(stamped(self.stamp_, taken), std::memory_order_relaxed);  // for verdicts
    }
    link_board::member& sender = board().of(from);
    if (sender.open.fetch_sub(1) == 1 && sender.waits.load()) tell(from);  // T1, T2
  }

  bool can_send(int lane, rank_t to) {
    const part_links::end& link = find(self.links_.out(lane), to);
    const std::uint32_t next = self.out_[link.number].next;
    if (next < link.room) return true;
    link_board::line& words = board().at(link.line);
    if (next - count_in(words.taken.load(std::memory_order_acquire), self.stamp_) < link.room) return true;
    words.wanted.store(self.stamp_);                                      // W1
    return next - count_in(words.taken.load(), self.stamp_) < link.room;  // W2
  }

  void send(int lane, rank_t to, const std::byte* data, std::size_t bytes) {
    const part_links::end& link = find(self.links_.out(lane), to);
    std::uint32_t& next = self.out_[link.number].next;
    const std::uint32_t at = next % link.room;
    board().at(link.line, at).room[at % part_links::per_line] = {data, bytes};
    board().of(self.rank_).open.fetch_add(1, std::memory_order_relaxed);  // before anybody can take it
    board().at(link.line).sent.store(stamped(self.stamp_, ++next), std::memory_order_release);
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
      out_(links_.outs()) {
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
  const link_boards::place place = boards.enter(epoch, fingerprint, rank_, links_, mine);
  if (place.board == nullptr) return place.unlike;
  boards_ = &boards;
  board_ = place.board;
  stamp_ = board_->stamp();
  lanes_.restart();
  for (link_state& link : in_) link.next = 0;
  for (link_state& link : out_) link.next = 0;
  pieces_seen_ = 0;
  fresh_ = true;
  ++moves_;
  return -1;
}

void part_performer::leave() {
  if (board_ == nullptr) return;
  boards_->leave(*std::exchange(board_, nullptr));
}

part_performer::status part_performer::advance(part_outbox& out) {
  port at{*this, out};
  if (std::exchange(fresh_, false) || !lanes_are_apart_) {
    for (int w = 0; w < board_->news_words(); ++w) board_->of(rank_).news[static_cast<std::size_t>(w)].exchange(0);
    static_cast<void>(lanes_.advance(at));
  } else {
    for (int w = 0; w < board_->news_words(); ++w) {
      std::atomic<std::uint64_t>& word = board_->of(rank_).news[static_cast<std::size_t>(w)];
      if (word.load() == 0) continue;
      for (std::uint64_t bits = word.exchange(0); bits != 0; bits &= bits - 1)  // C2
        advance_lane(at, w * 64 + std::countr_zero(bits));
    }
    look_at_pieces(at);
  }
  if (!lanes_.performed()) return status::waiting;
  link_board::member& me = board_->of(rank_);
  if (me.open.load() == 0) return status::performed;
  me.waits.store(true);                                              // W1
  return me.open.load() == 0 ? status::performed : status::waiting;  // W2
}

/// What an earlier use of the board has left may name lanes that there are not.
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
  if (board_ == nullptr) return {};
  std::vector<lane_wait> result = lanes_.waits();
  if (!result.empty()) return result;
  for (int l = 0; l < links_.lanes(); ++l)
    for (const part_links::end& link : links_.out(l))
      if (count_in(board_->at(link.line).taken.load(std::memory_order_relaxed), stamp_) < out_[link.number].next)
        result.push_back({lane_wait::reason::credit, l, link.peer, -1});
  return result;
}

}  // namespace troupe::actors
