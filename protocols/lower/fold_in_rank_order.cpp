// SPDX-License-Identifier: Apache-2.0
// fold_in_rank_order: runs the score once on symbols and writes down, step by step, what each step becomes.
//
// A value is a chunk's set of contributions, held as *pieces* in ascending order: at most one prefix {0 … k}, already folded,
// and single contributions that do not continue it. Every piece lies in a cell. The run keeps these invariants:
//   1. A value of one piece (a single contribution, a prefix, the complete result) lies in the very cell that the original
//      score put it into, so moving it is the original step.
//   2. A piece of any other value lies in the value's own cell, or in a cell that is never written again: fresh scratch, or
//      an original cell that is written at most once. A piece found elsewhere is copied to fresh scratch first.
// So what a rewritten step reads was there when the original step ran, and the original order (lanes, messages, `after`)
// orders the new accesses too. Both ends of a message know its pieces, one message each, in ascending order.

#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>

#include "memory/error.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/lower/rewriting.hpp"

namespace troupe {

namespace {

/// Contributions first … last; more than one only if folded, and then first == 0.
struct piece {
  rank_t first = 0;
  rank_t last = 0;
  place at;  ///< owner resolved
};

struct value {
  extent chunk;
  std::vector<piece> pieces;  ///< empty: a token
  bool one() const { return pieces.size() == 1; }
};

std::uint64_t key_of(const place& at) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(at.owner + 1)) << 35 |
         static_cast<std::uint64_t>(at.buffer) << 32 | static_cast<std::uint32_t>(at.cell);
}

/// How many of the first pieces fold into one.
std::size_t foldable(const std::vector<piece>& pieces) {
  if (pieces.empty() || pieces[0].first != 0) return 0;
  std::size_t count = 1;
  while (count < pieces.size() && pieces[count].first == pieces[count - 1].last + 1) ++count;
  return count;
}

class rank_order_folder {
public:
  explicit rank_order_folder(const score& s) : was_(s), made_(s), moved_(s) {
    for (part& player : made_.players)
      for (lane& steps : player.lanes) steps.clear();
    count_writes();
    for (rank_t r = 0; r < s.ranks; ++r)
      for (std::int32_t c = 0; c < cell_count(s, r, buffer_kind::input); ++c) {
        const place at = canonical(s, r, {buffer_kind::input, self, c, 1});
        cells_[key_of(at)] = {extent_of(s, r, buffer_kind::input, c), {{r, r, at}}};
        ++writes_[key_of(at)];
      }
  }

  score run() {
    std::vector<std::vector<std::size_t>> next;
    for (const part& player : was_.players) next.emplace_back(player.lanes.size(), std::size_t{0});
    for (bool moved = true; moved;) {
      moved = false;
      for (rank_ = 0; rank_ < was_.ranks; ++rank_)
        for (lane_ = 0; lane_ < next[index()].size(); ++lane_)
          for (std::size_t& at = next[index()][lane_]; advance(at); ++at) moved = true;
    }
    for (std::size_t r = 0; r < next.size(); ++r)
      for (std::size_t l = 0; l < next[r].size(); ++l)
        if (next[r][l] < was_.players[r].lanes[l].size())
          throw error(errc::bad_score, where(static_cast<rank_t>(r), l, next[r][l]) +
                                           " can never run: what it receives or waits for does not come");
    moved_.apply(made_);
    return std::move(made_);
  }
  /// Did a message become several?
  bool cut_messages() const { return cut_messages_; }

private:
  // -- the run --------------------------------------------------------------------------------------------------------

  std::size_t index() const { return static_cast<std::size_t>(rank_); }
  lane& out() { return made_.players[index()].lanes[lane_]; }

  /// Performs the current lane's step `at` if it can run now.
  bool advance(std::size_t at) {
    const lane& steps = was_.players[index()].lanes[lane_];
    if (at >= steps.size()) return false;
    const step& now = steps[at];
    step_ = at;
    if (now.after.lane >= 0 && moved_.position(rank_, now.after) < 0) return false;
    std::deque<value>* from = receives(now.kind) ? &channel(now.from, rank_) : nullptr;
    if (from != nullptr && from->empty()) return false;
    value incoming;
    if (from != nullptr) incoming = std::move(from->front()), from->pop_front();

    const std::size_t begin = out().size();
    perform(now, std::move(incoming));
    if (out().size() == begin && (now.after.lane >= 0 || out().empty())) out().push_back({});
    if (out().size() > begin) out()[begin].after = now.after;
    moved_.put(rank_, lane_, at, out().size() - 1);
    return true;
  }

  void perform(const step& now, value incoming) {
    switch (now.kind) {
      case step_kind::wait: return;
      case step_kind::sync: return fail("is a sync; lower the syncs first");
      case step_kind::send: return now.source.count == 0 ? send_whole(now, {}) : send(now, at(now.source));
      case step_kind::copy:
      case step_kind::dma_get:
      case step_kind::dma_put: return copy(now, at(now.source));
      case step_kind::recv:
      case step_kind::recv_copy_send: return receive(now, incoming);
      case step_kind::reduce: return combine(now, at(now.target), at(now.source), false);
      default: return combine(now, at(reads_target(now.kind) ? now.target : now.source), std::move(incoming), true);
    }
  }

  // -- kinds of steps -------------------------------------------------------------------------------------------------

  void send_whole(const step& now, const value& what) {
    out().push_back(original(now));
    channel(rank_, now.to).push_back(what);
  }

  void send(const step& now, const value& what) {
    if (what.one()) return send_whole(now, what);
    for (const piece& p : what.pieces) send_piece(now.to, p.at);
    channel(rank_, now.to).push_back(what);
  }

  void copy(const step& now, const value& what) {
    if (what.one()) {
      out().push_back(original(now));
      return put_one(now.target, what);
    }
    value held = what;
    keep(held, &now.target);
    put(now.target, std::move(held));
  }

  void receive(const step& now, const value& incoming) {
    if (incoming.pieces.size() <= 1) {
      out().push_back(original(now));
      if (incoming.one() && now.target.count > 0) put_one(now.target, incoming);
      if (now.kind == step_kind::recv_copy_send) channel(rank_, now.to).push_back(incoming);
      return;
    }
    value held = incoming;
    for (piece& p : held.pieces) {
      p.at = receive_piece(now.from, held.chunk);
      if (now.kind == step_kind::recv_copy_send) send_piece(now.to, p.at);
    }
    if (now.kind == step_kind::recv_copy_send) channel(rank_, now.to).push_back(held);
    put(now.target, std::move(held));
  }

  /// `local` ∪ `other`; `arrives`: the other operand is a message.
  void combine(const step& now, const value& local, value other, bool arrives) {
    const bool one_each = local.one() && other.one();
    const rank_t other_first = other.pieces.empty() ? -1 : other.pieces[0].first;
    if (other.pieces.empty()) fail("combines with a token");
    if (arrives)
      for (piece& p : other.pieces) p.at = {};  // not here yet
    value all{local.chunk, merge(local.pieces, other.pieces)};
    if (one_each && foldable(all.pieces) == 2) {
      step same = original(now);
      // As written, ⊕ has the incoming operand on its left (`reduce`: the target).
      same.swapped = arrives == (other_first != 0);
      out().push_back(same);
      all.pieces = {{0, all.pieces[1].last, {}}};
      if (writes(now.kind)) put_one(now.target, all);
    } else {
      if (arrives)
        for (piece& p : all.pieces)
          if (p.at.buffer == buffer_kind::none) p.at = receive_piece(now.from, all.chunk);
      fold_prefix(all, writes(now.kind) ? &now.target : nullptr);
      keep(all, writes(now.kind) ? &now.target : nullptr);
      if (sends(now.kind))
        for (const piece& p : all.pieces) send_piece(now.to, p.at);
      if (writes(now.kind)) put(now.target, all);
    }
    if (sends(now.kind)) channel(rank_, now.to).push_back(std::move(all));
  }

  // -- pieces ---------------------------------------------------------------------------------------------------------

  std::vector<piece> merge(const std::vector<piece>& a, const std::vector<piece>& b) {
    std::vector<piece> all;
    all.reserve(a.size() + b.size());
    for (std::size_t i = 0, j = 0; i < a.size() || j < b.size();) {
      const bool left = j == b.size() || (i < a.size() && a[i].first < b[j].first);
      all.push_back(left ? a[i++] : b[j++]);
      if (all.size() > 1 && all.back().first <= all[all.size() - 2].last)
        fail("reduces the contribution of rank " + std::to_string(all.back().first) + " twice");
    }
    return all;
  }

  /// Folds the leading pieces if they are a prefix: into `target` if that makes the value one piece, else into fresh scratch.
  void fold_prefix(value& all, const place* target) {
    const std::size_t count = foldable(all.pieces);
    if (count < 2) return;
    const bool whole = count == all.pieces.size();
    const place into = whole && target != nullptr ? canonical(was_, rank_, *target) : fresh(all.chunk);
    std::size_t own = count;  // the operand that lies where the result goes
    for (std::size_t i = 0; i < count; ++i)
      if (key_of(all.pieces[i].at) == key_of(into)) own = i;
    std::size_t next = 1;
    if (own == count) {
      emit(step_kind::copy, all.pieces[0].at, into);
    } else if (own > 0) {
      place left = all.pieces[0].at;
      if (own > 1) {
        left = fresh(all.chunk);
        emit(step_kind::copy, all.pieces[0].at, left);
        for (std::size_t i = 1; i < own; ++i) emit(step_kind::reduce, all.pieces[i].at, left);
      }
      emit(step_kind::reduce, left, into);
      out().back().swapped = true;
      next = own + 1;
    }
    for (std::size_t i = next; i < count; ++i) emit(step_kind::reduce, all.pieces[i].at, into);
    const piece folded{0, all.pieces[count - 1].last, into};
    all.pieces.erase(all.pieces.begin() + 1, all.pieces.begin() + static_cast<std::ptrdiff_t>(count));
    all.pieces[0] = folded;
  }

  /// Invariant 2 for a value that is to lie in `target` (null: in a message made on the fly).
  void keep(value& what, const place* target) {
    const std::uint64_t home = target == nullptr ? ~std::uint64_t{0} : key_of(canonical(was_, rank_, *target));
    for (piece& p : what.pieces) {
      const std::uint64_t key = key_of(p.at);
      const bool foreign = p.at.owner != rank_ && p.at.owner != self;
      if (key == home || (!foreign && !changes(p.at))) continue;
      const place kept = fresh(what.chunk);
      emit(step_kind::copy, p.at, kept);
      p.at = kept;
    }
  }

  void put(const place& target, value what) { cells_[key_of(canonical(was_, rank_, target))] = std::move(what); }
  void put_one(const place& target, value what) {
    what.pieces[0].at = canonical(was_, rank_, target);
    put(target, std::move(what));
  }

  value at(const place& source) {
    const auto found = cells_.find(key_of(canonical(was_, rank_, source)));
    if (found == cells_.end()) fail("reads " + to_string(source) + ", which nothing has written");
    return found->second;
  }

  /// May the cell be written again after it got what it holds? L0 is, by the next slice.
  bool changes(const place& at) const {
    if (at.buffer == buffer_kind::l0) return true;
    const auto found = writes_.find(key_of(at));
    return found != writes_.end() && found->second > 1;
  }

  void count_writes() {
    for (rank_ = 0; rank_ < was_.ranks; ++rank_)
      for (const lane& steps : was_.players[index()].lanes)
        for (const step& at : steps)
          if (writes(at.kind) && at.target.count > 0) ++writes_[key_of(canonical(was_, rank_, at.target))];
  }

  // -- new steps ------------------------------------------------------------------------------------------------------

  step original(const step& now) const {
    step same = now;
    same.after = {};
    same.fan = 0;
    same.swapped = false;
    return same;
  }

  place near(place at) const {
    if (at.owner == rank_) at.owner = self;
    return at;
  }

  place fresh(const extent& chunk) {
    auto& scratch = made_.players[index()].scratch;
    scratch.push_back(chunk);
    return {buffer_kind::scratch, rank_, static_cast<std::int32_t>(scratch.size()) - 1, 1};
  }

  void emit(step_kind kind, const place& source, const place& target) {
    step next;
    next.kind = kind;
    next.source = near(source);
    next.target = near(target);
    out().push_back(next);
  }

  void send_piece(rank_t to, const place& from) {
    emit(step_kind::send, from, {});
    out().back().to = to;
    cut_messages_ = true;
  }

  place receive_piece(rank_t from, const extent& chunk) {
    const place into = fresh(chunk);
    emit(step_kind::recv, {}, into);
    out().back().from = from;
    return into;
  }

  std::deque<value>& channel(rank_t from, rank_t to) {
    const auto ends =
        static_cast<std::uint64_t>(static_cast<std::uint32_t>(from)) << 32 | static_cast<std::uint32_t>(to);
    const std::size_t lane = lane_;
    if (channels_.size() <= lane) channels_.resize(lane + 1);
    return channels_[lane][ends];
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw error(errc::bad_score, where(rank_, lane_, step_) + ' ' + what);
  }

  const score& was_;
  score made_;
  step_map moved_;
  std::unordered_map<std::uint64_t, value> cells_;
  std::unordered_map<std::uint64_t, int> writes_;
  std::deque<std::unordered_map<std::uint64_t, std::deque<value>>> channels_;  ///< per lane, by both ends
  rank_t rank_ = 0;                                                            ///< whose step is being performed …
  std::size_t lane_ = 0;                                                       ///< … in which lane …
  std::size_t step_ = 0;                                                       ///< … and which
  bool cut_messages_ = false;
};

}  // namespace

score fold_in_rank_order(const score& s) {
  if (!s.switches.empty())
    throw error(errc::unsupported,
                s.choreography +
                    ": a switch adds up what passes it, and carries no contributions to fold in rank order");
  score cells = one_cell_per_step(s);
  if (!is_reduction(s.what) || s.ranks < 2) return cells;
  rank_order_folder folder{cells};
  score folded = folder.run();
  return folder.cut_messages() ? pace_sends(folded) : folded;
}

}  // namespace troupe
