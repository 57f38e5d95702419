// SPDX-License-Identifier: Apache-2.0
// Direct full mesh (spec 4, "DirectFullMesh"): every rank exchanges with every other directly, in rounds of C = setup::streams
// peers, nearest first and both sides at once: round 0 is ±1, ±2; round 1 is ±3, ±4; … (C = 4), ⌈(p−1)/C⌉ rounds in all.
//
//   lane 0        the main stream: local copies and folding; it tells the streams to start and notices when a round drains
//   lanes 1 … C   the streams: one exchange a round each, and a stream's next one when its last has ended both ways. A round starts
//                 when the round before the last has drained, so a stream with little to do may be one round ahead of the others.
//
// On several servers of one size these are the SDMA streams, for the peers of a rank's server, and beside them run the RDMA streams, two to four
// with a control stream of their own that does for them what the main stream does: the ranks of the servers next to it first, both sides at once.
//
//   ZCopy   straight between the user buffers. No stream has two rounds on the wire, and nothing is copied.
//   BCopy   (setup::through_scratch) through a buffer of given size, of which each stream has a block of two halves, as in HCCL's source.
//           Inside a server a peer reads what is for it out of a half, straight into its own user buffer. The halves take turns, round by round:
//           while one is read, a lane of local copies fills the other one with what goes in the next round. Ack says that a peer takes part in
//           the round, DataSignal that it has read. Between servers one half sends and the other one receives, and a stream does one thing
//           after the other: copy in, Ack, data, Done, copy out.
//           A buffer of b bytes takes pieces of b / (2 · streams) of each block (the cells are those that every slice uses again). Blocks
//           that differ in size get cells of their own, as a half fits none of them twice; in place, a piece of every block is kept besides.
//
// reduce_scatter has one accumulator, so its messages all run in lane 0: sends nearest first, receives in rank order, left fold
// ((0 ⊕ 1) ⊕ 2) ⊕ … at every rank. Receives that a caller without wishes about order may take as they arrive form a fan.
// all_reduce is that on the block's n parts, and an all_gather of the parts; neither is staged.

#include <algorithm>

#include "protocols/choreographies/choreographies.hpp"
#include "protocols/choreographies/hierarchy.hpp"
#include "protocols/choreographies/patterns.hpp"

namespace troupe::choreographies {

namespace direct_full_mesh_scores {
namespace {
using namespace notation;

/// Distance of the k-th exchange: +1, −1, +2, −2, … To send k-th to the rank `shift` ahead is to receive k-th from the rank
/// `shift` behind, so the two ends of a message use the same stream.
int shift(int k) { return k % 2 == 0 ? k / 2 + 1 : -(k / 2 + 1); }

/// How far ahead a peer is.
struct hop {
  int servers, ranks;
};

/// Exchanges that share streams, and the lanes of these: the one that starts and drains them first.
struct mesh {
  std::vector<hop> exchanges;
  bool network = false;  ///< between servers
  int streams = 0;
  int control = 0;       ///< a lane; the streams have those behind it
  int first_stream = 0;  ///< of all streams of a rank
};

/// What the network's streams are at most and at least (spec 4).
constexpr int most_rdma_streams = 4, least_rdma_streams = 2;

/// Of a whole score.
class full_mesh {
public:
  explicit full_mesh(const setup& on)
      : where_(on.placement.size() == on.ranks && on.placement.uniform() ? on.placement : layout::flat(on.ranks)) {
    const int cards = where_.size_of(0), servers = where_.servers();
    mesh inside, between;
    for (int k = 0; k < cards - 1; ++k) inside.exchanges.push_back({0, shift(k)});
    for (int level = 1; 2 * level <= servers; ++level)
      for (int k = 0; k < cards; ++k) {
        between.exchanges.push_back({level, k});
        if (2 * level < servers) between.exchanges.push_back({-level, -k});
      }
    between.network = true;
    inside.streams = std::min(on.streams, cards - 1);
    between.streams = std::min<int>(std::clamp(on.streams, least_rdma_streams, most_rdma_streams),
                                    static_cast<int>(between.exchanges.size()));
    for (mesh* m : {&inside, &between}) {
      if (m->exchanges.empty()) continue;
      m->control = lanes_;
      m->first_stream = streams_;
      lanes_ += 1 + m->streams;
      streams_ += m->streams;
      meshes_.push_back(std::move(*m));
    }
    lanes_ = std::max(lanes_, 1);  // one rank has the main stream, too
  }

  const std::vector<mesh>& meshes() const { return meshes_; }
  /// Of them all.
  int lanes() const { return lanes_; }
  int streams() const { return streams_; }
  rank_t ahead(rank_t r, const hop& of) const { return at(r, of.servers, of.ranks); }
  rank_t behind(rank_t r, const hop& of) const { return at(r, -of.servers, -of.ranks); }

private:
  rank_t at(rank_t r, int servers, int ranks) const {
    return where_.at(where_.server_of(r) + servers, where_.index_of(r) + ranks);
  }

  hierarchy where_;
  std::vector<mesh> meshes_;
  int lanes_ = 0, streams_ = 0;
};

/// A stream by BCopy, and its two halves.
class staging_stream {
public:
  /// @param copies the lane of its local copies, which it has inside a server; between servers its own
  staging_stream(score_builder& s, rank_t r, int stream, int copies)
      : s_(s), r_(r), between_servers_(copies == stream), travel_(s.lane(r, stream)), fill_(s.lane(r, copies)) {}

  /// @param go after which it may begin @param kept after which `from`, of as many elements as `like`, may be read
  /// @return the step that ends it
  step_ref exchange(rank_t ahead, rank_t behind, step_ref go, step_ref kept, cells from, cells like, cells into) {
    const step_ref end = between_servers_ ? by_network(ahead, behind, go, kept, from, like, into)
                                          : by_reading(ahead, behind, go, kept, from, like, into);
    ++round_;
    return end;
  }

  /// The next slice uses the halves again.
  void end() {
    if (!between_servers_) fill_.wait(read_);
  }
  step_ref last_filled() const { return filled_; }

private:
  cells half(int at, cells like) {
    if (round_ < 2 || !s_.on().uniform) half_[at] = s_.l0_like(r_, like);
    return half_[at];
  }
  void meet(rank_t ahead, rank_t behind, step_ref go) {
    travel_.after(go).called(message_name::ack).signal(behind);
    travel_.called(message_name::ack).await(ahead);
  }

  step_ref by_reading(rank_t ahead, rank_t behind, step_ref go, step_ref kept, cells from, cells like, cells into) {
    const cells outgoing = half(round_ % 2, like);
    filled_ = fill_.after(round_ == 0 ? kept : read_before_).copy(from, outgoing);
    meet(ahead, behind, go);
    travel_.to(ahead).after(filled_).send(outgoing);
    travel_.from(behind).recv(into);
    travel_.called(message_name::data_signal).signal(behind);
    read_before_ = read_;
    return read_ = travel_.called(message_name::data_signal).await(ahead);
  }

  step_ref by_network(rank_t ahead, rank_t behind, step_ref go, step_ref kept, cells from, cells like, cells into) {
    if (round_ == 0 || !s_.on().uniform) {
      half_[0] = s_.l0_like(r_, like);
      half_[1] = s_.l0_like(r_, into);
    }
    filled_ = fill_.after(round_ == 0 ? kept : step_ref{}).copy(from, half_[0]);
    meet(ahead, behind, go);
    travel_.to(ahead).send(half_[0]);
    travel_.from(behind).recv(half_[1]);
    travel_.called(message_name::done).signal(behind);
    travel_.called(message_name::done).await(ahead);
    return travel_.copy(half_[1], into);
  }

  score_builder& s_;
  rank_t r_;
  bool between_servers_;
  lane_writer travel_, fill_;
  cells half_[2] = {};
  int round_ = 0;
  step_ref read_, read_before_;  ///< when the peers had read the half of the last round, and of that before it
  step_ref filled_;
};

/// Lets every stream perform its exchanges, in rounds: exchange(stream, lane, ahead, behind, go) returns the step that ends one.
/// @param ready the main stream's step after which the streams may start
template <class Exchange>
void in_rounds(score_builder& s, const full_mesh& all, rank_t r, step_ref ready, Exchange exchange) {
  for (const mesh& m : all.meshes()) {
    auto control = s.lane(r, m.control);
    const int exchanges = static_cast<int>(m.exchanges.size());
    std::vector<step_ref> drained;  // by round
    for (int begin = 0; begin < exchanges; begin += m.streams) {
      const int end = std::min(begin + m.streams, exchanges), round = begin / m.streams;
      const step_ref go = round < 2 ? ready : drained[static_cast<std::size_t>(round) - 2];
      const bool last_two = exchanges - begin <= 2 * m.streams;  // nobody waits for these but the end of the operation
      step_ref noticed;
      for (int k = begin; k < end; ++k) {
        const hop& of = m.exchanges[static_cast<std::size_t>(k)];
        const step_ref done =
            exchange(m.first_stream + k - begin, m.control + 1 + k - begin, all.ahead(r, of), all.behind(r, of), go);
        if (!last_two) noticed = control.wait(done);
      }
      drained.push_back(noticed);
    }
  }
}

/// Sends outgoing(peer) to every peer and receives incoming(peer) from it, from the callers' buffers into the callers'.
template <class Outgoing, class Incoming>
void exchange_straight(score_builder& s, const full_mesh& all, rank_t r, step_ref ready, Outgoing outgoing,
                       Incoming incoming) {
  in_rounds(s, all, r, ready, [&](int, int lane, rank_t ahead, rank_t behind, step_ref go) {
    auto stream = s.lane(r, lane).to(ahead).from(behind);
    stream.after(go).send(outgoing(ahead));
    return stream.recv(incoming(behind));
  });
}

/// Rank r's own cell of all inputs, folded in rank order into output[r] (in reduce_scatter all indices wrap to output[0]).
step_ref fold(score_builder& s, rank_t r) {
  auto me = s.lane(r);
  for (int k = 0; k < s.on().ranks - 1; ++k) {
    const rank_t peer = s.after(r, shift(k));
    me.to(peer).send(input[peer]);
  }
  cells own = input[r];
  if (s.on().in_place && r >= 2) {  // the output is about to hold 0 ⊕ 1 … where the own contribution lies
    own = s.scratch_like(r, input[r]);
    me.copy(input[r], own);
  }
  step_ref last;
  if (r == 0) me.copy_own(own, output[r]);
  if (r == 1) last = me.from(0).recv_reduce_copy(own, output[r]);
  if (r >= 2) last = me.from(0).recv(output[r]);
  me.fan(1);
  for (rank_t q = 1; q < r; ++q) last = me.from(q).swapped().recv_reduce(output[r]);
  if (r >= 2) last = me.reduce(own, output[r]);
  me.fan(2);
  for (rank_t q = r + 1; q < s.on().ranks; ++q) last = me.from(q).swapped().recv_reduce(output[r]);
  return last;
}

cells into_place(rank_t peer) { return output[peer]; }

/// BCopy. The part of it that all streams share.
void exchange_staged(score_builder& s, const full_mesh& all, rank_t r) {
  const bool gathers = s.on().what == collective::all_gather;
  auto main = s.lane(r);
  std::vector<cells> kept(static_cast<std::size_t>(s.on().ranks));
  step_ref last_kept;
  const bool keeps =
      s.on().in_place && !gathers;  // before a block that comes is written where one lies that has not gone
  for (rank_t peer = 0; peer < s.on().ranks && keeps; ++peer) {
    if (peer == r) continue;
    kept[static_cast<std::size_t>(peer)] = s.l0_like(r, input[peer]);
    last_kept = main.copy(input[peer], kept[static_cast<std::size_t>(peer)]);
  }
  std::vector<staging_stream> streams;
  for (const mesh& m : all.meshes())
    for (int k = 0; k < m.streams; ++k) {
      const int lane = m.control + 1 + k;
      streams.emplace_back(s, r, lane, m.network ? lane : all.lanes() + m.first_stream + k);
    }
  in_rounds(s, all, r, {}, [&](int stream, int, rank_t ahead, rank_t behind, step_ref go) {
    const cells like = gathers ? input[0] : input[ahead];
    return streams[static_cast<std::size_t>(stream)].exchange(
        ahead, behind, go, last_kept, keeps ? kept[static_cast<std::size_t>(ahead)] : like, like, output[behind]);
  });
  for (staging_stream& one : streams) {
    one.end();
    if (keeps) main.wait(one.last_filled());
  }
}

void all_to_all(score_builder& s, const full_mesh& all, rank_t r) {
  if (s.on().through_scratch) {
    s.lane(r).copy_own(input[r], output[r]);
    return exchange_staged(s, all, r);
  }
  s.stage_input(r);
  const step_ref staged = s.on().in_place ? step_ref{0, 0} : step_ref{};
  s.lane(r).copy_own(input[r], output[r]);
  exchange_straight(
      s, all, r, staged, [&](rank_t peer) { return s.staged(r, input[peer]); }, into_place);
}

void all_gather(score_builder& s, const full_mesh& all, rank_t r) {
  s.lane(r).copy_own(input[0], output[r]);
  if (s.on().through_scratch) return exchange_staged(s, all, r);
  exchange_straight(
      s, all, r, {}, [](rank_t) { return input[0]; }, into_place);
}

void reduce_scatter(score_builder& s, const full_mesh&, rank_t r) { fold(s, r); }

void all_reduce(score_builder& s, const full_mesh& all, rank_t r) {
  exchange_straight(
      s, all, r, fold(s, r), [&](rank_t) { return output[r]; }, into_place);
}

template <void (*part_of)(score_builder&, const full_mesh&, rank_t)>
score of_all(const setup& on) {
  score_builder s{on, "direct_full_mesh", block_count(on.what, on.ranks) == 1 ? on.ranks : 1};
  const full_mesh all{on};
  for (rank_t r = 0; r < on.ranks; ++r) part_of(s, all, r);
  return s.finish();
}

constexpr offer offered[] = {{collective::all_to_all, of_all<all_to_all>},
                             {collective::all_gather, of_all<all_gather>},
                             {collective::reduce_scatter, of_all<reduce_scatter>},
                             {collective::all_reduce, of_all<all_reduce>}};

}  // namespace
}  // namespace direct_full_mesh_scores

constinit const choreography direct_full_mesh{
    "direct_full_mesh", "everybody with everybody, in rounds of C streams, nearest first",
    "HCCL DirectFullMesh (spec 4)", direct_full_mesh_scores::offered, refuses_nothing};

}  // namespace troupe::choreographies
