// SPDX-License-Identifier: Apache-2.0
// A flow → a replay: every tile's loads, work and stores on every rank as operations, and what waits for what.
#include <algorithm>
#include <utility>

#include "engine/tools/study/flow_study.hpp"

namespace troupe {

namespace {

using op_index = std::uint32_t;
constexpr op_index no_op = ~op_index{0};
constexpr std::int32_t host_cpu = -1;  ///< launches follow one another

struct tile_at {
  int block = 0, tile = 0;
};
constexpr tile_at none{-1, -1};

/// What ranks share: where each node's collectives and syncs are in the trace.
struct flow_frame {
  const study_flow& flow;
  const hardware& on;
  std::uint64_t share_bytes;
  int tiles;                                    ///< of a share
  std::vector<std::uint32_t> first_collective;  ///< by node: of the collective, or of its input's syncs
};

/// One rank's operations.
class rank_lowering {
public:
  using kind = study_node::kind;
  using tier = study_node::tier;
  using exchange = study_node::exchange;

  rank_lowering(const flow_frame& frame, int rank, replay_rank& into, std::vector<lowered_flow::owner>& owners)
      : frame_(frame), flow_(frame.flow), rank_(rank), into_(into), owners_(owners) {
    into_.file = "flow";
    tiles_.resize(flow_.nodes.size());
    slots_.resize(flow_.nodes.size());
    loaded_.resize(flow_.nodes.size());
  }

  void run() {
    for (std::size_t k = 0; k < flow_.beside.size(); ++k) launches_.push_back(add_work(host_cpu, launch_time(), {}));
    of_kernel_.resize(launches_.size());
    for (std::size_t i = 0; i < flow_.nodes.size(); ++i) {
      now_ = static_cast<int>(i);
      const study_node& n = flow_.nodes[i];
      if (n.what == kind::source || n.what == kind::sink) continue;
      tiles_[i].resize(static_cast<std::size_t>(frame_.on.ranks * frame_.tiles));
      if (n.what == kind::collective) add_collective(n);
      else add_operator(n);
    }
    now_ = -1;
    end_kernels();
    bound_buffers();
  }

private:
  /// What others wait for of a tile that a node makes.
  struct tile_state {
    op_index made = no_op, in_l1 = no_op, in_l2 = no_op;
  };
  // -- operations -----------------------------------------------------------------------------------------------------

  op_index add(replay_operation what, const tile_at& of, const std::vector<op_index>& needs) {
    const auto index = static_cast<op_index>(into_.operations.size());
    what.line = index;
    into_.operations.push_back(what);
    owners_.push_back({now_, of.block, of.tile});
    for (const op_index earlier : needs) need(index, earlier);
    if (now_ >= 0) {
      const int kernel = node(now_).kernel;
      need(index, launches_[static_cast<std::size_t>(kernel)]);
      of_kernel_[static_cast<std::size_t>(kernel)].push_back(index);
    }
    return index;
  }
  void need(op_index later, op_index earlier) {
    if (earlier != no_op) into_.needs.push_back({later, earlier, false});
  }
  op_index add_work(std::int32_t cpu, std::int64_t time, const std::vector<op_index>& needs, const tile_at& of = none) {
    replay_operation o;
    o.what = replay_operation::kind::calc;
    o.cpu = cpu;
    o.amount = static_cast<std::uint64_t>(time);
    return add(o, of, needs);
  }
  /// L1, or a core group's share of L2: as in csc, what a core group publishes lies in its own.
  struct memory_of {
    rank_t share;
  };
  static constexpr memory_of own_l1{any_rank};
  static constexpr memory_of l2_of(rank_t core_group) { return {core_group}; }
  op_index add_access(memory_of where, bool writes, std::uint64_t bytes, const tile_at& of,
                      const std::vector<op_index>& needs) {
    replay_operation o;
    o.what = replay_operation::kind::memory;
    o.peer = where.share;
    o.tag = writes ? 1 : 0;
    o.amount = bytes;
    return add(o, of, needs);
  }
  op_index add_part(replay_operation::kind what, std::uint32_t collective, std::int64_t piece, const tile_at& of,
                    const std::vector<op_index>& needs) {
    replay_operation o;
    o.what = what;
    o.tag = piece;
    o.amount = collective;
    return add(o, of, needs);
  }

  // -- tiles ----------------------------------------------------------------------------------------------------------

  const study_node& node(int index) const { return flow_.node(index); }
  tile_state& state(int of, const tile_at& t) {
    return tiles_[static_cast<std::size_t>(of)][static_cast<std::size_t>(t.block * frame_.tiles + t.tile)];
  }
  std::uint64_t bytes_of(int tile) const {
    const auto t = static_cast<std::uint64_t>(tile), n = static_cast<std::uint64_t>(frame_.tiles);
    return (t + 1) * frame_.share_bytes / n - t * frame_.share_bytes / n;
  }
  std::int64_t launch_time() const { return frame_.on.host.launch.count(); }

  /// The blocks of a stream, in the order in which this rank looks at them.
  std::vector<int> blocks_of(const study_node& n) const {
    if (!n.whole) return {rank_};
    const int ranks = frame_.on.ranks;
    // A node that makes tiles for others makes its own last; one that takes others' begins with its own, which is there.
    const int first = flow_.maker_of(n).what == kind::source ? rank_ + 1 : rank_;
    std::vector<int> all;
    for (int i = 0; i < ranks; ++i) all.push_back((first + i) % ranks);
    return all;
  }
  /// Of a core.
  std::vector<tile_at> tiles_of(const study_node& n, int core) const {
    std::vector<tile_at> all;
    const std::vector<int> blocks = blocks_of(n);
    if (flow_.tile_by_tile(n)) {
      for (int t = core; t < frame_.tiles; t += flow_.cores)
        for (const int b : blocks) all.push_back({b, t});
    } else {
      for (const int b : blocks)
        for (int t = core; t < frame_.tiles; t += flow_.cores) all.push_back({b, t});
    }
    return all;
  }
  /// Every tile of what a node gives.
  std::vector<tile_at> all_tiles_of(const study_node& n) const {
    std::vector<tile_at> all;
    for (const int b : blocks_of(n))
      for (int t = 0; t < frame_.tiles; ++t) all.push_back({b, t});
    return all;
  }

  // -- operators ------------------------------------------------------------------------------------------------------

  /// Operators that hand tiles on in l0 share the buffers of the first one; of the first ones of both, if two were handed on.
  std::vector<int> heads_of(int of) const {
    std::vector<int> all;
    for (const study_node::input& in : node(of).inputs) {
      if (in.through != tier::l0 || node(in.from).what != kind::work) continue;
      for (const int head : heads_of(in.from))
        if (std::ranges::find(all, head) == all.end()) all.push_back(head);
    }
    if (all.empty()) all.push_back(of);
    return all;
  }

  void add_operator(const study_node& n) {
    if (n.exchanges != exchange::none) add_syncs(n);
    const std::vector<int> heads = heads_of(now_);
    for (const int head : heads) slots_[static_cast<std::size_t>(head)].resize(static_cast<std::size_t>(flow_.cores));
    for (int core = 0; core < flow_.cores; ++core) {
      const std::vector<tile_at> tiles = tiles_of(n, core);
      for (std::size_t i = 0; i < tiles.size(); ++i) {
        const std::vector<op_index> added = add_tile(n, core, tiles[i]);
        for (const int head : heads) {
          auto& of_core = slots_[static_cast<std::size_t>(head)][static_cast<std::size_t>(core)];
          of_core.resize(std::max(of_core.size(), tiles.size()));
          of_core[i].insert(of_core[i].end(), added.begin(), added.end());
        }
      }
    }
  }

  /// Returns what has to end before the core has its room again.
  std::vector<op_index> add_tile(const study_node& n, int core, const tile_at& t) {
    const auto first = static_cast<op_index>(into_.operations.size());
    std::vector<op_index> inputs, added;
    for (const study_node::input& in : n.inputs)
      for (const op_index load : add_loads(n, in, t)) inputs.push_back(load);
    if (n.loads > 0) inputs.push_back(add_access(own_l1, false, n.loads, t, {}));
    tile_state& made = state(now_, t);
    made.made = add_work(core, n.time.count(), inputs, t);
    add_stores(t, made);
    for (auto o = first; o < into_.operations.size(); ++o)
      if (into_.operations[o].what != replay_operation::kind::arrived) added.push_back(o);  // that is many tiles'
    return added;
  }

  /// Returns what the work on the tile waits for.
  std::vector<op_index> add_loads(const study_node& n, const study_node::input& in, const tile_at& t) {
    const study_node& from = node(in.from);
    const std::uint64_t bytes = bytes_of(t.tile);
    if (in.through == tier::l2)
      return n.exchanges == exchange::all_gather ? add_gathering_load(n, in.from, t) : add_summing_loads(n, in.from, t);
    if (in.through == tier::l0)
      return from.what == kind::source ? std::vector<op_index>{} : std::vector{state(in.from, t).made};
    if (from.what == kind::source) return {add_access(own_l1, false, bytes, t, {})};
    if (from.what == kind::collective && from.parts > 0)
      return {add_access(own_l1, false, bytes, t, {arrival_of(in.from, t)})};
    return {add_access(own_l1, false, bytes, t, {state(in.from, t).in_l1})};
  }

  std::vector<op_index> add_gathering_load(const study_node& n, int from, const tile_at& t) {
    const std::uint64_t bytes = bytes_of(t.tile);
    if (t.block == rank_) return {add_access(own_l1, false, bytes, t, {state(from, t).in_l1})};
    const op_index load = add_access(l2_of(t.block), false, bytes, t, {sync_of(n, t.tile)});
    if (n.keeps) add_access(own_l1, true, bytes, t, {load});
    return {load};
  }

  /// The own tile and one of each other rank, `depth` at a time.
  std::vector<op_index> add_summing_loads(const study_node& n, int from, const tile_at& t) {
    const std::uint64_t bytes = bytes_of(t.tile);
    std::vector<op_index> loads{add_access(own_l1, false, bytes, t, {state(from, t).in_l1})};
    for (int i = 1; i < frame_.on.ranks; ++i) {
      std::vector<op_index> needs{sync_of(n, t.tile)};
      if (loads.size() >= static_cast<std::size_t>(flow_.depth))
        needs.push_back(loads[loads.size() - static_cast<std::size_t>(flow_.depth)]);
      loads.push_back(add_access(l2_of((rank_ + i) % frame_.on.ranks), false, bytes, t, needs));
    }
    return loads;
  }

  /// What those want that take tiles of the present node.
  void add_stores(const tile_at& t, tile_state& made) {
    bool l1 = false, l2 = false;
    for (const study_node& n : flow_.nodes)
      for (const study_node::input& in : n.inputs) {
        if (in.from != now_) continue;
        const bool exchanges = in.through == tier::l2, sums = n.exchanges == exchange::reduce_scatter;
        l1 = l1 || in.through == tier::l1 || (exchanges && t.block == rank_);
        l2 = l2 || (exchanges && (!sums || t.block != rank_));
      }
    const std::uint64_t bytes = bytes_of(t.tile);
    if (l1) made.in_l1 = add_access(own_l1, true, bytes, t, {made.made});
    if (l2) made.in_l2 = add_access(l2_of(rank_), true, bytes, t, {made.made});
  }

  // -- syncs and collectives ------------------------------------------------------------------------------------------

  std::uint32_t first_collective(int of) const { return frame_.first_collective[static_cast<std::size_t>(of)]; }

  /// All ranks meet before others' tiles are read.
  void add_syncs(const study_node& n) {
    std::vector<op_index>& syncs = loaded_[static_cast<std::size_t>(now_)];
    const bool once = n.syncs == study_node::sync::kernel;
    for (int t = 0; t < (once ? 1 : frame_.tiles); ++t) {
      std::vector<op_index> stored;
      const int from = n.exchanged()->from;
      for (const tile_at& at : all_tiles_of(node(from)))
        if (once || at.tile == t) stored.push_back(state(from, at).in_l2);
      syncs.push_back(add_part(replay_operation::kind::collective,
                               first_collective(now_) + static_cast<std::uint32_t>(t), 0, none, stored));
    }
  }
  op_index sync_of(const study_node& n, int tile) const {
    const std::vector<op_index>& syncs = loaded_[static_cast<std::size_t>(now_)];
    return syncs[n.syncs == study_node::sync::kernel ? 0 : static_cast<std::size_t>(tile)];
  }

  void add_collective(const study_node& n) {
    const std::uint32_t number = first_collective(now_);
    const int from = n.inputs.front().from;
    const bool is_stored = node(from).what != kind::source;
    const int tiles_a_part = n.parts > 0 ? frame_.tiles / n.parts : frame_.tiles;
    std::vector<std::vector<op_index>> stored(static_cast<std::size_t>(std::max(1, n.parts)));
    for (const tile_at& t : all_tiles_of(node(from)))
      if (is_stored) stored[static_cast<std::size_t>(t.tile / tiles_a_part)].push_back(state(from, t).in_l1);
    for (int p = 0; p < n.parts; ++p)
      add_part(replay_operation::kind::ready, number, p, none, stored[static_cast<std::size_t>(p)]);
    const op_index done = add_part(replay_operation::kind::collective, number, 0, none,
                                   n.parts > 0 ? std::vector<op_index>{} : stored.front());
    if (n.parts == 0)
      for (tile_state& t : tiles_[static_cast<std::size_t>(now_)]) t.in_l1 = done;
  }

  /// The operation that ends when the part of a collective's output with this tile is there.
  op_index arrival_of(int collective, const tile_at& t) {
    const study_node& n = node(collective);
    const int part = t.tile / (frame_.tiles / n.parts), block = n.whole ? t.block : 0;
    std::vector<op_index>& known = loaded_[static_cast<std::size_t>(collective)];
    known.resize(static_cast<std::size_t>(frame_.on.ranks * n.parts), no_op);
    op_index& arrival = known[static_cast<std::size_t>(block * n.parts + part)];
    if (arrival == no_op)
      arrival =
          add_part(replay_operation::kind::arrived, first_collective(collective), block * n.parts + part, none, {});
    return arrival;
  }

  // -- kernels --------------------------------------------------------------------------------------------------------

  /// A kernel that does not begin beside the one before it begins when all before it have ended.
  void end_kernels() {
    op_index ended = no_op;
    for (std::size_t k = 0; k + 1 < launches_.size(); ++k) {
      const op_index before = std::exchange(ended, add_work(host_cpu, 0, of_kernel_[k]));
      need(ended, before);
      need(launches_[k + 1], flow_.beside[k + 1] ? launches_[k] : ended);
    }
  }

  /// A core has room for `depth` tiles: the next one comes in when all is done with the one that lies where it will.
  void bound_buffers() {
    const auto depth = static_cast<std::size_t>(flow_.depth);
    for (const auto& cores : slots_)
      for (const auto& tiles : cores)
        for (std::size_t i = depth; i < tiles.size(); ++i)
          for (const op_index later : tiles[i])
            if (fills_buffer(later) || later == tiles[i].front())
              for (const op_index earlier : tiles[i - depth]) need(later, earlier);
  }
  bool fills_buffer(op_index which) const {
    const replay_operation& o = into_.operations[which];
    return o.what == replay_operation::kind::memory && o.tag == 0;
  }

  const flow_frame& frame_;
  const study_flow& flow_;
  const int rank_;
  replay_rank& into_;
  std::vector<lowered_flow::owner>& owners_;
  int now_ = -1;                                                        ///< the node whose operations are added
  std::vector<std::vector<tile_state>> tiles_;                          ///< by node, by block and tile
  std::vector<std::vector<std::vector<std::vector<op_index>>>> slots_;  ///< by node, core and tile in turn
  std::vector<std::vector<op_index>> loaded_;  ///< by node: its syncs, or arrivals of its parts
  std::vector<op_index> launches_;             ///< by kernel
  std::vector<std::vector<op_index>> of_kernel_;
};

}  // namespace

lowered_flow lower_flow(const study_flow& flow, const hardware& on, std::uint64_t share_bytes, int tiles,
                        const std::vector<planned_collective>& planned) {
  lowered_flow made;
  flow_frame frame{flow, on, share_bytes, tiles, std::vector<std::uint32_t>(flow.nodes.size())};
  replay_group all;
  for (int r = 0; r < on.ranks; ++r) all.ranks.push_back(r);
  all.places = on.arrangement.size() == on.ranks ? on.arrangement : layout::flat(on.ranks);
  for (std::size_t i = 0; i < flow.nodes.size(); ++i) {
    const study_node& n = flow.nodes[i];
    if (n.exchanges == study_node::exchange::none) continue;
    frame.first_collective[i] = static_cast<std::uint32_t>(made.trace.collectives.size());
    replay_group group = all;
    int calls = 1;
    if (n.what == study_node::kind::collective) {
      group.call = planned[i].call;
      made.notes.push_back(planned[i].notes);
    } else {
      group.meets_ps = on.host.sync.count();
      if (n.syncs == study_node::sync::tile) calls = tiles;
    }
    made.trace.collectives.insert(made.trace.collectives.end(), static_cast<std::size_t>(calls),
                                  static_cast<std::uint32_t>(made.trace.groups.size()));
    made.trace.groups.push_back(std::move(group));
  }
  made.trace.ranks.resize(static_cast<std::size_t>(on.ranks));
  made.owners.resize(static_cast<std::size_t>(on.ranks));
  for (int r = 0; r < on.ranks; ++r)
    rank_lowering{frame, r, made.trace.ranks[static_cast<std::size_t>(r)], made.owners[static_cast<std::size_t>(r)]}
        .run();
  return made;
}

}  // namespace troupe
