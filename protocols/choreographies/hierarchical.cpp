// SPDX-License-Identifier: Apache-2.0
// The plain hierarchical algorithms (spec 2, "Plain hierarchical algorithm"): one level after the other. Between servers only
// cards of the same index talk, in a ring; inside a server everybody talks to everybody.
//
// This is the baseline that hierarchical_pipeline improves on, with the two faults the source describes. While one level works
// the other idles. And what one level delivers is scattered for the other: the blocks of one *column* (the cards of one index,
// a block from each server) are no neighbours in the user's buffers. Here a column travels as one message, collected in
// scratch and rearranged by copies; the other way out would be a message for every block. all_reduce has no such fault: its
// parts are its own to arrange.
//
// Levels may be more (nested_groups, hierarchy.hpp): pods of servers, racks of pods …, and inside a server cards of core groups. Each is
// worked by the ranks that differ in it alone, those between servers as above in a ring, those inside as a mesh. Sums are made from the
// inside out, so a level has as many times less to move as there are ranks in a group of it, and results go back the same way.
//
// hierarchical_hd, hierarchical_nhr and hierarchical_nb are the same with another algorithm between servers, as HCCL chooses it for its
// level 1 (alg_configurator.cc of the CANN sources), for any number of servers: halving and doubling, and the rounds of nhr and nb
// (strided.hpp). They cross the network ⌈log2 n⌉ times instead of n − 1, with as many bytes, but for hd with surplus servers. Of several levels between
// servers each is done that way. If the servers are no power of two, hd folds the surplus ones away (folded_cube): such a server hands all that
// it has to its neighbour and waits for the result, which is two crossings more, and a neighbour has all shares to receive and to send once more.
//
//   lane 0          between servers, and what the rank does for itself
//   lanes 1 … m−1   inside the server, lane k to the card k ahead and from the card k behind: all wires of the mesh work at
//                   once, as the source's n·s/bw_a for this level supposes; only sums wait for each other. If cards have core
//                   groups, these have the first lanes, and cards the next.

#include <functional>

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/hierarchy.hpp"
#include "protocols/choreographies/patterns.hpp"
#include "protocols/choreographies/strided.hpp"

namespace troupe::choreographies {

namespace hierarchical_scores {
namespace {
using namespace notation;

/// How the cards of one index exchange between servers.
enum class between : std::uint8_t { ring, hd, nhr, nb };

/// A row of shares, one for each member of a level, wherever they lie: the cells of `first` … `first + count − 1`.
using row = std::function<cells(int first, int count)>;

/// A row of scratch cells, declared in their order.
class column {
public:
  /// Cell i holds what block_of(i) holds.
  template <class BlockOf>
  column(score_builder& s, rank_t r, int count, BlockOf block_of) : count_(count) {
    for (int i = 0; i < count; ++i) {
      const cells at = s.scratch_block(r, block_of(i));
      if (i == 0) first_ = at.first;
    }
  }
  cells all() const { return scratch.cells(first_, count_); }
  cells part(int first, int count) const { return scratch.cells(first_ + first, count); }
  cells operator[](int i) const { return scratch[first_ + i]; }

private:
  std::int32_t first_ = 0;
  int count_;
};

/// A rank's place in one level: member `here` of the `members` that differ from it in this level alone.
struct tier {
  const nested_groups& groups;
  rank_t rank;
  int level;
  between how;
  int here = groups.digit(rank, level), members = groups.extent(level);

  bool inside() const { return level >= groups.between_servers(); }
  rank_t at(int member) const { return groups.with_digit(rank, level, member); }
  /// Lane 0, in a ring.
  lane_writer ring(score_builder& s) const { return s.lane(rank).from(at(here - 1)).to(at(here + 1)); }
  /// The lane to the member k ahead, from the one k behind. Each level inside a server has its own. @pre 1 ≤ k < members
  lane_writer mesh(score_builder& s, int k) const {
    int lane = k;
    for (int deeper = level + 1; deeper < groups.depth(); ++deeper) lane += groups.extent(deeper) - 1;
    return s.lane(rank, lane).from(at(here - k)).to(at(here + k));
  }
  strided way(bool mapped) const { return {how == between::nb ? nb_kind : nhr_kind, members, mapped}; }
  /// Which of the members' shares this one has the sum of.
  int share(bool mapped) const {
    return !inside() && (how == between::nhr || how == between::nb) ? way(mapped).cell(here) : here;
  }
};

struct standpoint {
  const nested_groups& groups;
  rank_t rank;
  between how = between::ring;
  int innermost = groups.depth() - 1;

  tier at(int level) const { return {groups, rank, level, how}; }
  int last_digit() const { return groups.digit(rank, innermost); }
};

/// Lane 0 goes on after the last steps of other lanes. @return when all are performed
step_ref join(lane_writer& me, const std::vector<step_ref>& lasts) {
  step_ref all;
  for (const step_ref& last : lasts) all = me.wait(last);
  return all;
}

// -- one level: everybody has a row of shares, one for each member, and ends with the sum of its own, or with all ---------------

/// Inside a server. The cells to send are there after `ready`. @return the step that completes the sum
step_ref reduce_inside(score_builder& s, const tier& on, const row& shares, step_ref ready) {
  step_ref added = ready;
  for (int k = 1; k < on.members; ++k) {
    auto lane = on.mesh(s, k);
    lane.after(ready).send(shares((on.here + k) % on.members, 1));
    added = lane.after(added).recv_reduce(shares(on.here, 1));
  }
  return added;
}

/// Inside a server. @return when all shares are there
step_ref gather_inside(score_builder& s, const tier& on, const row& shares, step_ref ready) {
  std::vector<step_ref> lasts;
  for (int k = 1; k < on.members; ++k) {
    auto lane = on.mesh(s, k);
    lane.after(ready).send(shares(on.here, 1));
    lasts.push_back(lane.recv(shares((on.here - k + on.members) % on.members, 1)));
  }
  auto me = s.lane(on.rank);
  return join(me, lasts);
}

/// Halving and doubling between servers. A corner of the cube works for one member, or for a surplus one and its neighbour.
class halved {
public:
  explicit halved(const tier& place)
      : on_(place),
        cube_(on_.members),
        partner_(cube_.partner(on_.here)),
        surplus_(cube_.is_extra(on_.here)),
        corner_(cube_.corner_of(on_.here)) {}

  /// A corner ends with the sums of those for whom it works.
  void reduce(lane_writer& me, const row& shares) const {
    if (surplus_) {
      me.to(on_.at(partner_)).send(shares(0, on_.members));
      return;
    }
    if (partner_ >= 0) me.from(on_.at(partner_)).swapped(partner_ > on_.here).recv_reduce(shares(0, on_.members));
    for (int half = cube_.corners() / 2; half > 0; half /= 2) {
      const int mine = corner_ & -half;
      me.to(at(corner_ ^ half)).send(of(shares, mine ^ half, half));
      me.from(at(corner_ ^ half)).swapped((corner_ & half) == 0).recv_reduce(of(shares, mine, half));
    }
  }
  /// The surplus one's sum, from where it was made to where it belongs.
  void hand_back(lane_writer& me, const row& shares) const {
    if (surplus_) me.from(on_.at(partner_)).recv(shares(on_.here, 1));
    else if (partner_ >= 0) me.to(on_.at(partner_)).send(shares(partner_, 1));
  }
  /// The other way, for a gather.
  void hand_over(lane_writer& me, const row& shares) const {
    if (surplus_) me.to(on_.at(partner_)).send(shares(on_.here, 1));
    else if (partner_ >= 0) me.from(on_.at(partner_)).recv(shares(partner_, 1));
  }
  /// Everybody ends with all, if the corners have the shares of those for whom they work. @return the last receive
  step_ref gather(lane_writer& me, const row& shares) const {
    step_ref last;
    if (surplus_) {
      for (const run& part : returned(on_.here)) last = me.from(on_.at(partner_)).recv(shares(part.first, part.count));
      return last;
    }
    for (int have = 1; have < cube_.corners(); have *= 2) {
      const int mine = corner_ & -have;
      me.to(at(corner_ ^ have)).send(of(shares, mine, have));
      last = me.from(at(corner_ ^ have)).recv(of(shares, mine ^ have, have));
    }
    if (partner_ >= 0)
      for (const run& part : returned(partner_)) me.to(on_.at(partner_)).send(shares(part.first, part.count));
    return last;
  }

private:
  cells of(const row& shares, int first, int count) const {
    const int begin = cube_.first_rank(first);
    return shares(begin, cube_.first_rank(first + count) - begin);
  }
  rank_t at(int other_corner) const { return on_.at(cube_.rank_of(other_corner)); }
  /// The cells for a surplus member. In the outermost level they go in one message. Further in, its peers of the level around
  /// may still be reading its own share.
  std::vector<run> returned(int member) const {
    if (on_.level == 0) return {{0, 0, on_.members}};
    std::vector<run> parts{{0, 0, member}};
    if (const int rest = on_.members - member - 1; rest > 0) parts.push_back({member + 1, 0, rest});
    return parts;
  }

  const tier& on_;
  folded_cube cube_;
  int partner_;  // a member; −1: none
  bool surplus_;
  int corner_;
};

/// Between servers, otherwise than by a ring.
void reduce_in_rounds(lane_writer& me, const tier& on, const row& shares, bool mapped) {
  const auto rank_of = [&](int member) { return on.at(member); };
  if (on.how != between::hd) return on.way(mapped).reduce(me, on.here, rank_of, false, shares, shares);
  const halved way{on};
  way.reduce(me, shares);
  way.hand_back(me, shares);
}

/// @return the last receive
step_ref gather_in_rounds(lane_writer& me, const tier& on, const row& shares, bool mapped) {
  const auto rank_of = [&](int member) { return on.at(member); };
  if (on.how != between::hd) return on.way(mapped).gather(me, on.here, rank_of, shares);
  const halved way{on};
  way.hand_over(me, shares);
  return way.gather(me, shares);
}

/// A share by its distance behind: member here − t.
auto behind(const tier& on, const row& shares) {
  return [&](int t) { return shares(((on.here - t) % on.members + on.members) % on.members, 1); };
}

/// By a ring, or in rounds. @param sum where the own share's sum goes in a ring, if not to its place
/// @pre several members
void reduce_between(lane_writer& me, const tier& on, const row& shares, bool mapped, const cells* sum = nullptr) {
  if (on.how != between::ring) return reduce_in_rounds(me, on, shares, mapped);
  const auto share = behind(on, shares);
  me.from(on.at(on.here - 1)).to(on.at(on.here + 1)).send(share(1));
  for (int t = 2; t < on.members; ++t) me.recv_reduce_send(share(t));
  me.recv_reduce_copy(share(0), sum != nullptr ? *sum : share(0));
}

/// @return the last receive
step_ref gather_between(lane_writer& me, const tier& on, const row& shares, bool mapped) {
  if (on.how != between::ring) return gather_in_rounds(me, on, shares, mapped);
  const auto share = behind(on, shares);
  me.from(on.at(on.here - 1)).to(on.at(on.here + 1)).send(share(0));
  for (int t = 1; t < on.members - 1; ++t) me.recv_copy_send(share(t));
  return me.recv(share(on.members - 1));
}

/// Both of the outermost level: in a ring the sum goes on as soon as it is there.
step_ref all_reduce_between(lane_writer& me, const tier& on, const row& shares) {
  if (on.how == between::hd) {  // the surplus ones need no sums of their own before they get all
    const halved way{on};
    way.reduce(me, shares);
    return way.gather(me, shares);
  }
  if (on.how != between::ring) {
    reduce_in_rounds(me, on, shares, true);
    return gather_in_rounds(me, on, shares, true);
  }
  const auto share = behind(on, shares);
  me.from(on.at(on.here - 1)).to(on.at(on.here + 1)).send(share(1));
  for (int t = 2; t < on.members; ++t) me.recv_reduce_send(share(t));
  me.recv_reduce_copy_send(share(0), share(0));
  for (int t = 1; t < on.members - 1; ++t) me.recv_copy_send(share(t));
  return me.recv(share(on.members - 1));
}

// -----------------------------------------------------------------------------------------------------------------------

/// From the outside in. Before the innermost level a rank has its column: what the ranks of its last digit had.
void all_gather(score_builder& s, const standpoint& at) {
  auto me = s.lane(at.rank);
  const tier last = at.at(at.innermost);
  const int size = at.groups.columns(at.innermost), place = at.groups.turned_position(at.rank) % size;
  const auto block = [&](int digit, int i) {
    return at.groups.turned((digit + last.members) % last.members * size + i);
  };
  const auto column_of = [&](int digit) {
    return column{s, at.rank, size, [&, digit](int i) { return block(digit, i); }};
  };
  const column own = column_of(last.here);
  step_ref complete = me.copy(input[0], own[place]);
  for (int level = 0; level < at.innermost; ++level) {
    const tier on = at.at(level);
    const int share = at.groups.columns(level), first = place - place % (share * on.members);
    const row shares = [&](int from, int count) { return own.part(first + from * share, count * share); };
    if (on.inside()) complete = gather_inside(s, on, shares, complete);
    else if (on.members > 1) complete = gather_between(me, on, shares, false);
  }

  const auto rearrange = [&](lane_writer& by, const column& from, int digit) {
    for (int i = 0; i < size; ++i)
      if (const rank_t source = block(digit, i); source != at.rank) by.copy(from[i], output[source]);
  };
  me.copy_own(input[0], output[at.rank]);
  rearrange(me, own, last.here);
  for (int k = 1; k < last.members; ++k) {
    const column landing = column_of(last.here - k);
    auto inside = last.mesh(s, k);
    inside.after(complete).send(own.all());
    inside.recv(landing.all());
    rearrange(inside, landing, last.here - k);
  }
}

/// The mirror: columns are collected and reduced in the innermost level, then each from there outwards.
void reduce_scatter(score_builder& s, const standpoint& at) {
  auto me = s.lane(at.rank);
  const tier last = at.at(at.innermost);
  const int size = at.groups.columns(at.innermost), place = at.groups.turned_position(at.rank) % size;
  step_ref collected;
  const auto collect = [&](lane_writer& by, int digit) {
    const auto block = [&](int i) { return at.groups.turned(digit % last.members * size + i); };
    const column of_digit{s, at.rank, size, block};
    for (int i = 0; i < size; ++i) collected = by.copy(input[block(i)], of_digit[i]);
    return of_digit;
  };
  const column sum = collect(me, last.here);
  step_ref added = collected;
  for (int k = 1; k < last.members; ++k) {
    auto inside = last.mesh(s, k);
    inside.send(collect(inside, last.here + k).all());
    added = inside.after(added).recv_reduce(sum.all());
  }

  bool on_lane_0 = last.members == 1, in_output = false;
  for (int level = at.innermost - 1; level >= 0; --level) {
    const tier on = at.at(level);
    const int share = at.groups.columns(level), first = place - place % (share * on.members);
    const row shares = [&](int from, int count) { return sum.part(first + from * share, count * share); };
    if (on.inside()) {
      added = reduce_inside(s, on, shares, added);
      continue;
    }
    if (!std::exchange(on_lane_0, true)) me.after(added);
    if (on.members == 1) continue;
    in_output = level == 0 && on.how == between::ring;
    const cells result = output[0];
    reduce_between(me, on, shares, false, in_output ? &result : nullptr);
  }
  if (!in_output) me.copy(sum[place], output[0]);
}

/// The block has a part for every rank, those of a column side by side, and in it those of each level: reduce_scatter from the
/// innermost level outwards, all_gather back.
void all_reduce(score_builder& s, const standpoint& at) {
  auto me = s.lane(at.rank);
  const tier last = at.at(at.innermost);
  std::vector<row> shares(static_cast<std::size_t>(at.groups.depth()));
  int first = 0;
  for (int level = at.innermost; level >= 0; --level) {
    const int share = at.groups.columns(level);
    shares[static_cast<std::size_t>(level)] = [first, share](int from, int count) {
      return output.cells(first + from * share, count * share);
    };
    first += at.at(level).share(true) * share;
  }
  const auto shares_of = [&](int level) -> const row& { return shares[static_cast<std::size_t>(level)]; };

  if (last.members == 1) me.copy_own(input.all(), output.all());
  step_ref added;
  for (int k = 1; k < last.members; ++k) {
    auto inside = last.mesh(s, k);
    const int size = at.groups.columns(at.innermost);
    const cells own = shares_of(at.innermost)(last.here, 1);
    inside.send(input.cells((last.here + k) % last.members * size, size));
    inside.after(added);
    added = k == 1 ? inside.recv_reduce_copy(input.cells(last.here * size, size), own) : inside.recv_reduce(own);
  }
  int level = at.innermost - 1;
  for (; at.at(level).inside(); --level) added = reduce_inside(s, at.at(level), shares_of(level), added);
  if (last.members > 1) me.after(added);
  for (; level > 0; --level) reduce_between(me, at.at(level), shares_of(level), true);
  step_ref complete = added;
  if (at.at(0).members > 1) complete = all_reduce_between(me, at.at(0), shares_of(0));
  for (level = 1; level < at.innermost; ++level)
    complete = at.at(level).inside() ? gather_inside(s, at.at(level), shares_of(level), complete)
                                     : gather_between(me, at.at(level), shares_of(level), true);
  for (int k = 1; k < last.members; ++k) {
    auto inside = last.mesh(s, k);
    inside.after(complete).send(shares_of(at.innermost)(last.here, 1));
    inside.recv(shares_of(at.innermost)((last.here - k + last.members) % last.members, 1));
  }
}

// -- all_to_all ---------------------------------------------------------------------------------------------------------

/// What a rank holds before a level: blocks from all ranks that differ from it further out, for all that differ here and further in.
class held_blocks {
public:
  held_blocks(const nested_groups& groups, rank_t rank, int level)
      : groups_(&groups),
        rank_(rank),
        level_(level),
        group_(groups.extent(level) * groups.group_size(level)),
        cells_(static_cast<std::size_t>(groups.columns(level) * group_)) {}

  int sources() const { return groups_->columns(level_); }
  int targets() const { return groups_->group_size(level_); }  ///< for one member of the level
  /// Counted along the digits further out, and those further in.
  std::int32_t& cell(int source, int member, int target) {
    return cells_[static_cast<std::size_t>(source * group_ + member * targets() + target)];
  }
  /// @param member of the level, whose the source is
  rank_t source(int source, int member) const {
    return groups_->with_digit(groups_->at(source * group_ + groups_->position(rank_) % group_), level_, member);
  }
  rank_t target(int member, int target) const {
    const int place = groups_->position(rank_);
    return groups_->at(place - place % group_ + member * targets() + target);
  }

private:
  const nested_groups* groups_;
  rank_t rank_;
  int level_;
  int group_;
  std::vector<std::int32_t> cells_;
};

/// Between the outermost groups, straight from the input: a rank gets what its column's other ranks have for its whole group.
held_blocks exchange_outermost(score_builder& s, const standpoint& at, lane_writer& me) {
  const tier on = at.at(0);
  const int size = at.groups.group_size(0);
  const auto group = [&](int member) {
    std::vector<rank_t> ranks;
    for (int i = 0; i < size; ++i) ranks.push_back(at.groups.at((member + on.members) % on.members * size + i));
    return ranks;
  };
  const std::vector<rank_t> here = group(on.here);
  held_blocks held{at.groups, at.rank, 0};
  std::vector<std::int32_t> arrived;  // by member: the cells for this group's ranks
  for (int t = 0; t < on.members; ++t) {
    const column from{s, at.rank, size, [&](int i) {
                        return static_cast<std::int64_t>(on.at(t)) * s.on().ranks + here[static_cast<std::size_t>(i)];
                      }};
    arrived.push_back(from[0].first);
  }
  const auto arrived_from = [&](int t) { return arrived[static_cast<std::size_t>((t + on.members) % on.members)]; };
  for (int i = 0; i < size; ++i)
    me.copy(s.staged(at.rank, input[here[static_cast<std::size_t>(i)]]), scratch[arrived_from(on.here) + i]);
  for (int t = 1; t < on.members; ++t) {
    std::vector<message> out, in;
    for (const run& part : runs_of(group(on.here + t)))
      out.push_back({on.at(on.here + t), s.staged(at.rank, input.cells(part.first, part.count))});
    for (const run& part : runs_of(here))
      in.push_back({on.at(on.here - t), scratch.cells(arrived_from(on.here - t) + part.offset, part.count)});
    interleave(me, out, in);
  }
  held_blocks next{at.groups, at.rank, 1};
  for (int t = 0; t < on.members; ++t)
    for (int i = 0; i < size; ++i) next.cell(t, i / next.targets(), i % next.targets()) = arrived_from(t) + i;
  return next;
}

/// The blocks of all sources for the ranks of member `to`, or those of member `from` for the own: what one message has.
column blocks_between(score_builder& s, const standpoint& at, const held_blocks& held, int from, int to) {
  const int targets = held.targets();
  return {s, at.rank, held.sources() * targets, [&](int i) {
            return static_cast<std::int64_t>(held.source(i / targets, from)) * s.on().ranks +
                   held.target(to, i % targets);
          }};
}

/// From the outside in, every level gives each of its members the blocks for the ranks that are there.
void all_to_all(score_builder& s, const standpoint& at) {
  auto me = s.lane(at.rank);
  s.stage_input(at.rank);
  held_blocks held = exchange_outermost(s, at, me);
  for (int level = 1; level < at.innermost; ++level) {
    const tier on = at.at(level);
    held_blocks next{at.groups, at.rank, level + 1};
    const auto keep = [&](int member, auto cell_of) {
      for (int i = 0; i < held.sources(); ++i)
        for (int j = 0; j < held.targets(); ++j)
          next.cell(i * on.members + member, j / next.targets(), j % next.targets()) = cell_of(i, j);
    };
    keep(on.here, [&](int i, int j) { return held.cell(i, on.here, j); });
    std::vector<step_ref> lasts;
    for (int k = 1; k < on.members; ++k) {
      const int ahead = (on.here + k) % on.members, behind = (on.here - k + on.members) % on.members;
      const column outgoing = blocks_between(s, at, held, on.here, ahead);
      const column landing = blocks_between(s, at, held, behind, on.here);
      step_ref collected;
      for (int i = 0; i < held.sources(); ++i)
        for (int j = 0; j < held.targets(); ++j)
          collected = me.copy(scratch[held.cell(i, ahead, j)], outgoing[i * held.targets() + j]);
      auto lane = on.inside() ? on.mesh(s, k) : on.ring(s).from(on.at(behind)).to(on.at(ahead));
      if (on.inside()) lane.after(collected);
      lane.send(outgoing.all());
      const step_ref arrived = lane.recv(landing.all());
      if (on.inside()) lasts.push_back(arrived);
      keep(behind, [&](int i, int j) { return landing[i * held.targets() + j].first; });
    }
    join(me, lasts);
    held = std::move(next);
  }

  const tier last = at.at(at.innermost);
  step_ref complete;
  for (int i = 0; i < held.sources(); ++i)
    complete = me.copy(scratch[held.cell(i, last.here, 0)], output[held.source(i, last.here)]);
  for (int k = 1; k < last.members; ++k) {
    const int ahead = (last.here + k) % last.members, behind = (last.here - k + last.members) % last.members;
    const column outgoing = blocks_between(s, at, held, last.here, ahead);
    const column landing = blocks_between(s, at, held, behind, last.here);
    auto inside = last.mesh(s, k);
    inside.after(complete);
    for (int i = 0; i < held.sources(); ++i) inside.copy(scratch[held.cell(i, ahead, 0)], outgoing[i]);
    inside.send(outgoing.all());
    inside.recv(landing.all());
    for (int i = 0; i < held.sources(); ++i) inside.copy(landing[i], output[held.source(i, behind)]);
  }
}

template <void (*part_of)(score_builder&, const standpoint&), between how = between::ring>
score of_all(const setup& on) {
  constexpr std::string_view names[] = {"hierarchical", "hierarchical_hd", "hierarchical_nhr", "hierarchical_nb"};
  const nested_groups groups{on.placement};
  score_builder s{on, names[static_cast<std::size_t>(how)], block_count(on.what, on.ranks) == 1 ? on.ranks : 1};
  for (rank_t r = 0; r < on.ranks; ++r) part_of(s, {groups, r, how});
  return s.finish();
}

constexpr offer offered[] = {{collective::all_gather, of_all<all_gather>},
                             {collective::reduce_scatter, of_all<reduce_scatter>},
                             {collective::all_reduce, of_all<all_reduce>},
                             {collective::all_to_all, of_all<all_to_all>}};

template <between how>
constexpr offer offered_by[] = {{collective::all_gather, of_all<all_gather, how>},
                                {collective::reduce_scatter, of_all<reduce_scatter, how>},
                                {collective::all_reduce, of_all<all_reduce, how>}};

/// One server, or one card in each of servers without groups, is a case of others.
std::string needs_two_levels(const setup& on) {
  if (std::string why = needs_equal_servers(on); !why.empty()) return why;
  const nested_groups groups{on.placement};
  const int servers = hierarchy{on.placement}.servers();
  if (servers > 1 && (servers < on.ranks || groups.between_servers() > 1)) return {};
  return "it needs two levels: several servers with several ranks each, or groups of servers";
}

}  // namespace
}  // namespace hierarchical_scores

constinit const choreography hierarchical{
    "hierarchical", "between servers among cards of one index, and inside servers, one after the other",
    "HCCL plain hierarchical algorithm (spec 2)", hierarchical_scores::offered, needs_equal_servers};

constinit const choreography hierarchical_hd{
    "hierarchical_hd",
    "a mesh inside servers, halving and doubling between: log2 rounds, and two more if they are no power of two",
    "HCCL (CANN), level 1 HD", hierarchical_scores::offered_by<hierarchical_scores::between::hd>,
    hierarchical_scores::needs_two_levels};

constinit const choreography hierarchical_nhr{
    "hierarchical_nhr", "a mesh inside servers, nhr between: log2 rounds over the network for any number of servers",
    "HCCL (CANN), level 1 NHR", hierarchical_scores::offered_by<hierarchical_scores::between::nhr>,
    hierarchical_scores::needs_two_levels};

constinit const choreography hierarchical_nb{
    "hierarchical_nb", "a mesh inside servers, nb between: log2 rounds over the network for any number of servers",
    "HCCL (CANN), level 1 NB", hierarchical_scores::offered_by<hierarchical_scores::between::nb>,
    hierarchical_scores::needs_two_levels};

}  // namespace troupe::choreographies
