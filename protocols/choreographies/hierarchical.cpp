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
// hierarchical_hd, hierarchical_nhr and hierarchical_nb are the same with another algorithm between servers, as HCCL chooses it for its
// level 1 (alg_configurator.cc of the CANN sources): halving and doubling over a power of two of servers, and the rounds of nhr and nb
// (strided.hpp) for any number. They cross the network ⌈log2 n⌉ times instead of n − 1, with as many bytes.
//
//   lane 0          between servers, and what the rank does for itself
//   lanes 1 … m−1   inside the server, lane k to the card k ahead and from the card k behind: all wires of the mesh work at
//                   once, as the source's n·s/bw_a for this level supposes; only sums wait for each other

#include <functional>

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/hierarchy.hpp"
#include "protocols/choreographies/patterns.hpp"
#include "protocols/choreographies/strided.hpp"

namespace troupe::choreographies {

namespace {
using namespace notation;

/// How the cards of one index exchange between servers.
enum class between : std::uint8_t { ring, hd, nhr, nb };

/// A row of cells by server, wherever they lie: those of `first` … `first + count − 1`.
using row = std::function<cells(int first, int count)>;

/// A row of scratch cells, one for each server; indices wrap round.
class column {
public:
  /// Cell t holds what block_of(t) holds.
  template <class BlockOf>
  column(score_builder& s, rank_t r, int servers, BlockOf block_of) : servers_(servers) {
    for (int t = 0; t < servers; ++t) {
      const cells at = s.scratch_block(r, block_of(t));
      if (t == 0) first_ = at.first;
    }
  }
  cells all() const { return scratch.cells(first_, servers_); }
  row cells_of() const {
    return [first = first_](int from, int count) { return scratch.cells(first + from, count); };
  }
  cells operator[](int server) const { return scratch[first_ + (server % servers_ + servers_) % servers_]; }

private:
  std::int32_t first_ = 0;
  int servers_;
};

/// A lane with its rank's place: server `here`, card `card`, and the number of each.
struct seat {
  const hierarchy& h;
  rank_t rank;
  between how = between::ring;
  int here = h.server_of(rank), card = h.index_of(rank);
  int servers = h.servers(), cards = h.size_of(here);

  rank_t beside(int k) const { return h.at(here, card + k); }
  rank_t across(int k) const { return h.at(here + k, card); }
  lane_writer lane(score_builder& s) const { return s.lane(rank).from(across(-1)).to(across(1)); }
  lane_writer inside(score_builder& s, int k) const { return s.lane(rank, k).from(beside(-k)).to(beside(k)); }
};

// -- between servers otherwise than by a ring ---------------------------------------------------------------------------

strided way_of(const seat& at, bool mapped) { return {at.how == between::nb ? nb_kind : nhr_kind, at.servers, mapped}; }

/// Adds up the rows of all servers' cards of this index, until each has the sum of its own cell.
void reduce_between(lane_writer& me, const seat& at, const row& cells_of, bool mapped) {
  const auto rank_of = [&](int server) { return at.h.at(server, at.card); };
  if (at.how != between::hd) return way_of(at, mapped).reduce(me, at.here, rank_of, false, cells_of, cells_of);
  for (int half = at.servers / 2; half > 0; half /= 2) {
    const int mine = at.here & -half;
    me.to(rank_of(at.here ^ half)).send(cells_of(mine ^ half, half));
    me.from(rank_of(at.here ^ half)).swapped((at.here & half) == 0).recv_reduce(cells_of(mine, half));
  }
}

/// Brings everybody the other servers' cells. Returns the last receive.
step_ref gather_between(lane_writer& me, const seat& at, const row& cells_of, bool mapped) {
  const auto rank_of = [&](int server) { return at.h.at(server, at.card); };
  if (at.how == between::nhr || at.how == between::nb) return way_of(at, mapped).gather(me, at.here, rank_of, cells_of);
  step_ref last;
  for (int have = 1; have < at.servers; have *= 2) {
    const int mine = at.here & -have;
    me.to(rank_of(at.here ^ have)).send(cells_of(mine, have));
    last = me.from(rank_of(at.here ^ have)).recv(cells_of(mine ^ have, have));
  }
  return last;
}

// -----------------------------------------------------------------------------------------------------------------------

/// Between servers first: the own column by a ring. Then inside: every card's column.
void all_gather(score_builder& s, const seat& at) {
  auto me = at.lane(s);
  const auto column_of = [&](int card) {
    return column{s, at.rank, at.servers, [&, card](int t) { return at.h.at(t, card); }};
  };
  const column own = column_of(at.card);
  step_ref complete = me.copy(input[0], own[at.here]);
  if (at.how != between::ring) {
    if (at.servers > 1) complete = gather_between(me, at, own.cells_of(), false);
  } else {
    if (at.servers > 1) me.send(own[at.here]);
    for (int t = 1; t < at.servers - 1; ++t) me.recv_copy_send(own[at.here - t]);
    if (at.servers > 1) complete = me.recv(own[at.here + 1]);
  }

  const auto rearrange = [&](lane_writer& by, const column& from, int card) {
    for (int t = 0; t < at.servers; ++t)
      if (at.h.at(t, card) != at.rank) by.copy(from[t], output[at.h.at(t, card)]);
  };
  me.copy_own(input[0], output[at.rank]);
  rearrange(me, own, at.card);
  for (int k = 1; k < at.cards; ++k) {
    const column landing = column_of(at.card - k);
    auto inside = at.inside(s, k);
    inside.after(complete).send(own.all());
    inside.recv(landing.all());
    rearrange(inside, landing, at.card - k);
  }
}

/// The mirror: columns are collected and reduced inside the server, then each reduced by a ring between servers.
void reduce_scatter(score_builder& s, const seat& at) {
  auto me = at.lane(s);
  step_ref collected;
  const auto collect = [&](lane_writer& by, int card) {
    const column of_card{s, at.rank, at.servers, [&](int t) { return at.h.at(t, card); }};
    for (int t = 0; t < at.servers; ++t) collected = by.copy(input[at.h.at(t, card)], of_card[t]);
    return of_card;
  };
  const column sum = collect(me, at.card);
  step_ref added = collected;
  for (int k = 1; k < at.cards; ++k) {
    auto inside = at.inside(s, k);
    inside.send(collect(inside, at.card + k).all());
    added = inside.after(added).recv_reduce(sum.all());
  }

  if (at.cards > 1) me.after(added);
  if (at.how != between::ring) {
    reduce_between(me, at, sum.cells_of(), false);
    me.copy(sum[at.here], output[0]);
    return;
  }
  if (at.servers > 1) me.send(sum[at.here - 1]);
  for (int t = 2; t < at.servers; ++t) me.recv_reduce_send(sum[at.here - t]);
  if (at.servers > 1) me.recv_reduce_copy(sum[at.here], output[0]);
  else me.copy(sum[at.here], output[0]);
}

/// The block has a part for every rank, those of a column side by side: reduce_scatter inside, all_reduce between, all_gather
/// inside.
void all_reduce(score_builder& s, const seat& at) {
  auto me = at.lane(s);
  const auto first_of = [&](int card) { return (card % at.cards + at.cards) % at.cards * at.servers; };
  const auto part = [&](int server) {
    return output[first_of(at.card) + (server % at.servers + at.servers) % at.servers];
  };
  const cells own = output.cells(first_of(at.card), at.servers);
  if (at.cards == 1) me.copy_own(input.all(), output.all());
  step_ref added;
  for (int k = 1; k < at.cards; ++k) {
    auto inside = at.inside(s, k);
    inside.send(input.cells(first_of(at.card + k), at.servers));
    inside.after(added);
    added = k == 1 ? inside.recv_reduce_copy(input.cells(first_of(at.card), at.servers), own) : inside.recv_reduce(own);
  }

  if (at.cards > 1) me.after(added);
  step_ref complete = added;
  if (at.how != between::ring) {
    const row cells_of = [&](int from, int count) { return output.cells(first_of(at.card) + from, count); };
    reduce_between(me, at, cells_of, true);
    if (at.servers > 1) complete = gather_between(me, at, cells_of, true);
  } else {
    if (at.servers > 1) me.send(part(at.here - 1));
    for (int t = 2; t < at.servers; ++t) me.recv_reduce_send(part(at.here - t));
    if (at.servers > 1) me.recv_reduce_copy_send(part(at.here), part(at.here));
    for (int t = 1; t < at.servers - 1; ++t) me.recv_copy_send(part(at.here - t));
    if (at.servers > 1) complete = me.recv(part(at.here + 1));
  }

  for (int k = 1; k < at.cards; ++k) {
    auto inside = at.inside(s, k);
    inside.after(complete).send(own);
    inside.recv(output.cells(first_of(at.card - k), at.servers));
  }
}

/// Between servers first: a card gets what its column's other cards have for its whole server. Then inside: for every card
/// the column's blocks are collected and sent on.
void all_to_all(score_builder& s, const seat& at) {
  auto me = at.lane(s);
  s.stage_input(at.rank);
  const auto block = [&](rank_t from, rank_t to) { return static_cast<std::int64_t>(from) * s.on().ranks + to; };
  const auto& server = at.h.members(at.here);
  std::vector<std::int32_t> arrived;  // by source server: the cells for this server's cards
  for (int t = 0; t < at.servers; ++t)
    for (const rank_t d : server) {
      const std::int32_t cell = s.scratch_block(at.rank, block(at.h.at(t, at.card), d)).first;
      if (d == server.front()) arrived.push_back(cell);
    }
  const auto arrived_from = [&](int t) { return arrived[static_cast<std::size_t>((t + at.servers) % at.servers)]; };
  for (int j = 0; j < at.cards; ++j)
    me.copy(s.staged(at.rank, input[at.h.at(at.here, j)]), scratch[arrived_from(at.here) + j]);
  for (int t = 1; t < at.servers; ++t) {
    std::vector<message> out, in;
    for (const run& part : runs_of(at.h.members(at.here + t)))
      out.push_back({at.across(t), s.staged(at.rank, input.cells(part.first, part.count))});
    for (const run& part : runs_of(server))
      in.push_back({at.across(-t), scratch.cells(arrived_from(at.here - t) + part.offset, part.count)});
    interleave(me, out, in);
  }

  step_ref complete;
  for (int t = 0; t < at.servers; ++t)
    complete = me.copy(scratch[arrived_from(t) + at.card], output[at.h.at(t, at.card)]);
  for (int k = 1; k < at.cards; ++k) {
    const rank_t ahead = at.beside(k);
    const column outgoing{s, at.rank, at.servers, [&](int t) { return block(at.h.at(t, at.card), ahead); }};
    const column landing{s, at.rank, at.servers, [&](int t) { return block(at.h.at(t, at.card - k), at.rank); }};
    auto inside = at.inside(s, k);
    inside.after(complete);
    for (int t = 0; t < at.servers; ++t) inside.copy(scratch[arrived_from(t) + at.h.index_of(ahead)], outgoing[t]);
    inside.send(outgoing.all());
    inside.recv(landing.all());
    for (int t = 0; t < at.servers; ++t) inside.copy(landing[t], output[at.h.at(t, at.card - k)]);
  }
}

template <void (*part_of)(score_builder&, const seat&), between how = between::ring>
score of_all(const stage& on) {
  constexpr std::string_view names[] = {"hierarchical", "hierarchical_hd", "hierarchical_nhr", "hierarchical_nb"};
  const hierarchy h{on.placement};
  score_builder s{on, names[static_cast<std::size_t>(how)], block_count(on.what, on.ranks) == 1 ? on.ranks : 1};
  for (rank_t r = 0; r < on.ranks; ++r) part_of(s, {h, r, how});
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

/// One server, or one card in each, is a case of others.
std::string needs_two_levels(const stage& on) {
  if (std::string why = needs_equal_servers(on); !why.empty()) return why;
  const hierarchy h{on.placement};
  if (h.servers() > 1 && h.servers() < on.ranks) return {};
  return "it needs two levels: several servers with several ranks each";
}

std::string needs_power_of_two(const stage& on) {
  if (std::string why = needs_two_levels(on); !why.empty()) return why;
  const int servers = hierarchy{on.placement}.servers();
  if ((servers & (servers - 1)) == 0) return {};
  return "it halves the number of servers, which must be a power of two, not " + std::to_string(servers);
}

}  // namespace

constinit const choreography hierarchical{
    "hierarchical", "between servers among cards of one index, and inside servers, one after the other",
    "HCCL plain hierarchical algorithm (spec 2)", offered, needs_equal_servers};

constinit const choreography hierarchical_hd{
    "hierarchical_hd", "a mesh inside servers, halving and doubling between: log2 rounds over the network",
    "HCCL (CANN), level 1 HD", offered_by<between::hd>, needs_power_of_two};

constinit const choreography hierarchical_nhr{
    "hierarchical_nhr", "a mesh inside servers, nhr between: log2 rounds over the network for any number of servers",
    "HCCL (CANN), level 1 NHR", offered_by<between::nhr>, needs_two_levels};

constinit const choreography hierarchical_nb{
    "hierarchical_nb", "a mesh inside servers, nb between: log2 rounds over the network for any number of servers",
    "HCCL (CANN), level 1 NB", offered_by<between::nb>, needs_two_levels};

}  // namespace troupe::choreographies
