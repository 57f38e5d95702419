// SPDX-License-Identifier: Apache-2.0
#pragma once
// The common part of HCCL's nhr and nb: ⌈log2 n⌉ rounds for any number of ranks, n, in which the distance doubles and every rank gives
// to one other and takes from one other. In the round of distance D a rank gives to the rank D ahead the slices of that rank and of
// every 2·D-th one behind it; so what it still has to do with halves. Nobody is folded away where n is no power of two: the last
// slices are then simply not there.
//
// As they are written, scores need two credits (in_turn).
//
// One slice is one cell, of the block (all_reduce, broadcast) or of the rank whose block it is (reduce_scatter, all_gather).

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "protocols/choreographies/choreography.hpp"
#include "protocols/choreographies/hierarchy.hpp"
#include "protocols/score/score_builder.hpp"

namespace troupe::choreographies {

/// Sends and receives in turn, one send ahead, so that two messages are under way and nobody needs more than two credits.
template <class Send, class Receive>
void in_turn(std::size_t out, std::size_t in, Send send, Receive receive) {
  std::size_t sent = 0;
  for (std::size_t i = 0; i < in; ++i) {
    for (; sent < std::min(out, i + 2); ++sent) send(sent);
    receive(i);
  }
  for (; sent < out; ++sent) send(sent);
}

/// A set of cells, and the runs of neighbours among them, in order.
class marked_cells {
public:
  explicit marked_cells(int cells) : words_((static_cast<std::size_t>(cells) + 63) / 64) {}
  void mark(int cell) { words_[static_cast<std::size_t>(cell) / 64] |= std::uint64_t{1} << (cell % 64); }

  /// `offset` of a run is not used.
  std::vector<run> runs() const {
    std::vector<run> found;
    for (std::size_t w = 0; w < words_.size(); ++w)
      for (int bit = 0; bit < 64;) {
        const std::uint64_t rest = words_[w] >> bit;
        if (rest == 0) break;
        bit += std::countr_zero(rest);
        const int first = static_cast<int>(w) * 64 + bit, count = std::countr_one(words_[w] >> bit);
        if (!found.empty() && found.back().first + found.back().count == first) found.back().count += count;
        else found.push_back({first, 0, count});
        bit += count;
      }
    return found;
  }

private:
  std::vector<std::uint64_t> words_;
};

inline std::vector<int> nhr_slice_map(int n);

/// The differences between nhr and nb.
struct strided_kind {
  std::string_view name;
  int ahead;        ///< to whom everybody gives while they reduce or scatter; +1: to higher ranks; −1: to lower ones
  bool near_first;  ///< in what order they gather, see strided::gather()
  bool maps;        ///< where it is free which rank has which slice, it is chosen by nhr_slice_map()
};
inline constexpr strided_kind nhr_kind{"nhr", -1, false, true}, nb_kind{"nb", 1, true, false};

class strided {
public:
  /// @param free which rank has which slice; then neighbouring cells are one message, if the kind maps them. Otherwise slices lie in the
  /// order of ranks, and each is a message of its own.
  strided(const strided_kind& kind, int ranks, bool free)
      : ranks_(ranks), ahead_(kind.ahead), near_first_(kind.near_first), merged_(free && kind.maps) {
    if (merged_) cell_of_ = nhr_slice_map(ranks);
    if (merged_) return;
    cell_of_.resize(static_cast<std::size_t>(ranks));
    std::iota(cell_of_.begin(), cell_of_.end(), 0);
  }

  rank_t at(rank_t from, int distance) const {
    const int there = (from + ahead_ * distance) % ranks_;
    return there < 0 ? there + ranks_ : there;
  }
  int distance(rank_t from, rank_t to) const { return ((ahead_ * (to - from)) % ranks_ + ranks_) % ranks_; }
  int cell(rank_t of) const { return cell_of_[static_cast<std::size_t>(of)]; }

  /// The cells of ranks `first`, and every 2·`step`-th ahead of it, while they are less than n ahead of the one that is `reach`
  /// behind `first`: `offset` of a run is not used.
  std::vector<run> pieces(rank_t first, int reach, int step) const {
    const int apart = 2 * step;
    if (!merged_ || ranks_ % apart != 0 || reach >= apart) return found_pieces(first, reach, step);
    // All ranks of a residue class, whichever of them comes first: so each class is gone through once, and not once a rank.
    // `apart` is a power of two, so the place is nobody else's.
    const auto residue = static_cast<std::size_t>(apart + first % apart);
    if (of_class_.size() <= residue) of_class_.resize(2 * static_cast<std::size_t>(apart));
    std::vector<run>& kept = of_class_[residue];
    if (kept.empty()) kept = found_pieces(first, reach, step);
    return kept;
  }

  /// Reduces what everybody has `from` until each has the sum of its own slice in `sum`, where other cells hold partial sums. They are
  /// written again only by what follows from them, so no peer can still have to read them. Both give the place of (first cell, count);
  /// `apart`: they are different places, or the call is in place.
  template <class RankOf, class From, class Sum>
  void reduce(lane_writer& me, int r, RankOf rank_of, bool apart, From from, Sum sum) const {
    // The one slice that is given away later than in the first round, but never received before.
    if (const int late = cell(at(r, ranks_ - 1)); apart && ranks_ % 2 == 1) me.copy_own(from(late, 1), sum(late, 1));
    for (int step = 1; step < ranks_; step *= 2) {
      const auto out = pieces(at(r, step), step, step), in = pieces(r, step, step);
      me.to(rank_of(at(r, step))).from(rank_of(at(r, -step)));
      in_turn(
          out.size(), in.size(),
          [&](std::size_t i) {
            me.send(step == 1 ? from(out[i].first, out[i].count) : sum(out[i].first, out[i].count));
          },
          [&](std::size_t i) {
            const cells own = sum(in[i].first, in[i].count);
            me.swapped(ahead_ < 0);
            if (apart && step == 1) me.recv_reduce_copy(from(in[i].first, in[i].count), own);
            else me.recv_reduce(own);
          });
    }
  }

  /// Until each rank has all slices. Returns the last receive.
  template <class RankOf, class Of>
  step_ref gather(lane_writer& me, int r, RankOf rank_of, Of of) const {
    return near_first_ ? gather_near_first(me, r, rank_of, of) : gather_far_first(me, r, rank_of, of);
  }

  /// From the root's input until each rank has at least its own slice: in its output, or at the root in the input.
  void scatter(lane_writer& me, rank_t r, rank_t root) const {
    using namespace notation;
    const int behind = distance(root, r);
    for (int step = 1; step < ranks_; step *= 2) {
      if (behind < step && behind + step < ranks_)
        for (const run& each : pieces(at(r, step), behind + step, step))
          me.to(at(r, step)).send((r == root ? input : output).cells(each.first, each.count));
      else if (behind >= step && behind < 2 * step)
        for (const run& each : pieces(r, behind, step))
          me.from(at(r, -step)).recv(output.cells(each.first, each.count));
    }
  }

private:
  std::vector<run> found_pieces(rank_t first, int reach, int step) const {
    std::vector<run> single;
    marked_cells marked{
        merged_ ? ranks_ : 0};  // sorting them would take most of the time in which a score for 16 384 ranks is written
    const rank_t further = at(0, 2 * step);
    rank_t rank = first;
    for (int offset = 0; reach + offset < ranks_; offset += 2 * step) {
      if (merged_) marked.mark(cell(rank));
      else single.push_back({cell(rank), 0, 1});
      rank += further;
      if (rank >= ranks_) rank -= ranks_;
    }
    return merged_ ? marked.runs() : single;
  }

  /// nhr's all_gather: far ones first. A rank gives what it has to the one at the other side of where it took sums from.
  template <class RankOf, class Of>
  step_ref gather_far_first(lane_writer& me, int r, RankOf rank_of, Of of) const {
    step_ref last;
    for (int step = static_cast<int>(std::bit_ceil(static_cast<unsigned>(ranks_))) / 2; step > 0; step /= 2) {
      const int giver = at(r, step);
      const auto out = pieces(r, step, step), in = pieces(giver, step, step);
      me.to(rank_of(at(r, -step))).from(rank_of(giver));
      in_turn(
          out.size(), in.size(), [&](std::size_t i) { me.send(of(out[i].first, out[i].count)); },
          [&](std::size_t i) { last = me.recv(of(in[i].first, in[i].count)); });
    }
    return last;
  }

  /// nb's all_gather, Bruck's: near ones first, always to those ahead. Where cells wrap round they are two messages.
  /// @pre ahead is +1, cells are in the order of ranks
  template <class RankOf, class Of>
  step_ref gather_near_first(lane_writer& me, int r, RankOf rank_of, Of of) const {
    step_ref last;
    for (int step = 1; step < ranks_; step *= 2) {
      const int count = std::min(step, ranks_ - step);
      const auto out = up_to(r, count), in = up_to(at(r, -step), count);
      me.to(rank_of(at(r, step))).from(rank_of(at(r, -step)));
      in_turn(
          out.size(), in.size(), [&](std::size_t i) { me.send(of(out[i].first, out[i].count)); },
          [&](std::size_t i) { last = me.recv(of(in[i].first, in[i].count)); });
    }
    return last;
  }

  /// The cells of `count` ranks, `last` the last of them.
  std::vector<run> up_to(int last, int count) const {
    const int after_wrap = std::min(count, last + 1), before = count - after_wrap;
    std::vector<run> found;
    if (before > 0) found.push_back({ranks_ - before, 0, before});
    found.push_back({last + 1 - after_wrap, 0, after_wrap});
    return found;
  }

  int ranks_;
  int ahead_;
  bool near_first_;
  bool merged_;
  std::vector<int> cell_of_;
  mutable std::vector<std::vector<run>>
      of_class_;  ///< pieces() of whole residue classes, as far as they were asked for
};

/// nhr: where each rank's slice lies: even and odd ranks are parted, then again in each half, as long as the parts are even, so that
/// every 2ᵏ-th rank's slices are neighbours.
inline std::vector<int> nhr_slice_map(int n) {
  std::vector<int> order(static_cast<std::size_t>(n)), cell(order.size());
  std::iota(order.begin(), order.end(), 0);
  const auto ranks = static_cast<std::size_t>(n);
  std::size_t length = ranks;
  for (std::size_t step = 1; step < ranks && (ranks - 1 + step) / (2 * step) > 1; step *= 2, length /= 2) {
    bool odd = false;
    for (auto part = order.begin(); part != order.end();) {
      const auto rest = static_cast<std::size_t>(order.end() - part);
      const auto end = part + static_cast<std::ptrdiff_t>(std::min(length, rest));
      odd |= (end - part) % 2 != 0;
      std::vector<int> parted;
      for (const std::ptrdiff_t first : {0, 1})
        for (auto i = first; i < end - part; i += 2) parted.push_back(part[i]);
      part = std::copy(parted.begin(), parted.end(), part);
    }
    if (odd) break;
  }
  for (std::size_t i = 0; i < ranks; ++i) cell[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
  return cell;
}

/// The scores of either, for all ranks alike.
template <const strided_kind& kind>
class strided_scores {
  static rank_t same(int rank) { return rank; }
  static cells of_output(int first, int count) { return notation::output.cells(first, count); }
  static cells of_input(int first, int count) { return notation::input.cells(first, count); }

  static score all_gather(const setup& on) {
    using namespace notation;
    const strided way{kind, on.ranks, false};
    score_builder s{on, kind.name, 1};
    for (rank_t r = 0; r < on.ranks; ++r) {
      auto me = s.lane(r);
      me.copy_own(input[0], output.block(r));
      way.gather(me, r, same, of_output);
    }
    return s.finish();
  }

  static score all_reduce(const setup& on) {
    const strided way{kind, on.ranks, true};
    score_builder s{on, kind.name, on.ranks};
    for (rank_t r = 0; r < on.ranks; ++r) {
      auto me = s.lane(r);
      way.reduce(me, r, same, true, of_input, of_output);
      way.gather(me, r, same, of_output);
    }
    return s.finish();
  }

  static score broadcast(const setup& on) {
    using namespace notation;
    const strided way{kind, on.ranks, true};
    score_builder s{on, kind.name, on.ranks};
    for (rank_t r = 0; r < on.ranks; ++r) {
      auto me = s.lane(r);
      way.scatter(me, r, on.root);
      if (r == on.root) me.copy_own(input[way.cell(r)], output[way.cell(r)]);
      way.gather(me, r, same, of_output);
    }
    return s.finish();
  }

  static score reduce_scatter(const setup& on);

public:
  static constexpr offer offered[] = {{collective::all_reduce, all_reduce},
                                      {collective::reduce_scatter, reduce_scatter},
                                      {collective::all_gather, all_gather},
                                      {collective::broadcast, broadcast}};
};

/// The rounds of `strided` on whole blocks. Arriving blocks are added up in scratch, the own block in the output.
template <const strided_kind& kind>
score strided_scores<kind>::reduce_scatter(const setup& on) {
  using namespace notation;
  const strided way{kind, on.ranks, false};
  score_builder s{on, kind.name, 1};
  for (rank_t r = 0; r < on.ranks; ++r) {
    auto me = s.lane(r);
    std::vector<cells> sum;  // of each rank's block
    for (rank_t owner = 0; owner < on.ranks; ++owner) sum.push_back(input.block(owner));
    for (int step = 1; step < on.ranks; step *= 2) {
      const auto out = way.pieces(way.at(r, step), step, step), in = way.pieces(r, step, step);
      me.to(way.at(r, step)).from(way.at(r, -step));
      const auto sum_of = [&](const run& slice) -> cells& { return sum[static_cast<std::size_t>(slice.first)]; };
      in_turn(
          out.size(), in.size(), [&](std::size_t i) { me.send(sum_of(out[i])); },
          [&](std::size_t i) {
            cells& own = sum_of(in[i]);
            me.swapped(kind.ahead < 0);
            if (step > 1) {
              me.recv_reduce(own);
              return;
            }
            const cells target = in[i].first == r ? output[0] : s.scratch_like(r, own);
            me.recv_reduce_copy(std::exchange(own, target), target);
          });
    }
  }
  return s.finish();
}

}  // namespace troupe::choreographies
