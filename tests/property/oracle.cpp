// SPDX-License-Identifier: Apache-2.0
#include "tests/property/oracle.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <tuple>
#include <unordered_set>

namespace troupe::oracle {

namespace {

using number = std::uint64_t;
using cell_list = std::vector<int>;

/// A number and, to explain it, where it came from. Interned: the state of a run holds indices.
struct value {
  number sum = 0;
  std::vector<int> leaves;  ///< ranks, sorted, with repetitions
  long chunk = -1;          ///< −1: never written; −2: mixed
  std::string tree;
};

struct performed_step {
  step_kind kind{};
  bool swapped = false;
  std::uint16_t fan = 0;
  int from = -1, to = -1;                 ///< channels
  int after_lane = -1, after_step = -1;   ///< lane over all ranks
  std::vector<cell_list> source, target;  ///< by slice: memory cells
  std::vector<extent> received, sent;     ///< what message cells must look like, or look like
  std::vector<rank_t> foreign;            ///< other ranks whose buffers are named
};

struct message {
  cell_list cells;          ///< by reference; empty for a slot
  std::vector<int> values;  ///< at the time of the send
  const std::vector<extent>* extents = nullptr;
};

struct lane_state {
  int next = 0;
  int slice = 0;
  bool holds = false;     ///< has received, has still to send
  std::uint32_t fan = 0;  ///< members performed
  std::vector<int> held;
};

struct state {
  std::vector<lane_state> lanes;
  std::vector<int> memory;
  std::vector<std::vector<message>>
      channels;  ///< oldest first; as few as there are credits, and an empty one costs a copy nothing
};

/// One thing that can happen next.
struct event {
  int lane;
  int step;
  bool receive;  ///< the half (or whole) that receives, works and writes
  bool send;     ///< the half (or whole) that sends
};

/// The ways in which the engine may perform.
struct manner {
  bool eager = false;    ///< takes a message before it has the credit to send on
  bool arrival = false;  ///< fans in any order
};

class performance {
public:
  performance(const score& s, const performing_limits& limits, finding& f) : score_(s), limits_(limits), found_(f) {
    number_cells();
    for (rank_t r = 0; r < s.ranks; ++r)
      for (std::size_t l = 0; l < s.players[index(r)].lanes.size(); ++l) lane_of_[{r, static_cast<int>(l)}] = lanes_++;
    programs_.resize(index(lanes_));
    rank_of_lane_.resize(index(lanes_));
    for (const auto& [at, lane] : lane_of_) compile(at.first, at.second, lane);
  }

  bool has_fans() const { return fans_; }
  bool has_compound() const { return compound_; }
  bool illformed() const { return !found_.right(); }

  void explore(manner how, const options& limits) {
    how_ = how;
    std::unordered_set<std::string> seen;
    std::vector<state> todo{first_state()};
    seen.insert(key(todo.back()));
    while (!todo.empty()) {
      if (seen.size() > limits.max_states) {
        found_.exhaustive = false;
        return random_orders(limits);
      }
      const state now = std::move(todo.back());
      todo.pop_back();
      ++found_.states;
      const auto events = enabled(now);
      if (events.empty()) finish(now);
      look_for_races(now, events);
      for (const event& e : events) {
        state next = now;
        happen(next, e);
        if (!found_.right()) return;
        if (seen.insert(key(next)).second) todo.push_back(std::move(next));
      }
      if (!found_.right()) return;
    }
  }

private:
  template <class Int>
  static std::size_t index(Int i) {
    return static_cast<std::size_t>(i);
  }
  void wrong(std::string what) {
    if (found_.right()) found_.wrong = std::move(what);
  }

  // -- setting up -----------------------------------------------------------------------------------------------------

  int cell_of(rank_t rank, place at, int slice) {
    const place named = canonical(score_, rank, at);
    const int within = named.buffer == buffer_kind::l0 ? 0 : slice;
    const auto [found, fresh] =
        cells_.try_emplace({named.buffer, named.owner, named.cell, within}, static_cast<int>(cells_.size()));
    if (fresh) {
      owner_.push_back(named.owner);
      value poison;
      poison.sum = random_();
      poison.tree = "?";
      poison_.push_back(intern(poison));
    }
    return found->second;
  }

  long chunk_of(const extent& e, int slice) const {
    return static_cast<long>((e.block * score_.parts + e.part) * limits_.slices + slice);
  }

  void number_cells() {
    for (rank_t r = 0; r < score_.ranks; ++r)
      for (std::int32_t c = 0; c < cell_count(score_, r, buffer_kind::input); ++c)
        for (int k = 0; k < limits_.slices; ++k) {
          value v;
          v.sum = random_();
          v.leaves = {r};
          v.chunk = chunk_of(extent_of(score_, r, buffer_kind::input, c), k);
          v.tree = std::to_string(r);
          const int cell = cell_of(r, {buffer_kind::input, self, c, 1}, k);
          given_[{r, v.chunk}] = v.sum;
          first_memory_.resize(cells_.size(), -1);
          first_memory_[index(cell)] = intern(v);
        }
  }

  int channel(rank_t from, rank_t to, int lane) {
    return channel_of_.try_emplace({from, to, lane}, static_cast<int>(channel_of_.size())).first->second;
  }

  void compile(rank_t r, int l, int number) {
    rank_of_lane_[index(number)] = r;
    for (const step& s : score_.players[index(r)].lanes[index(l)]) {
      performed_step p;
      p.kind = s.kind;
      p.swapped = s.swapped;
      p.fan = s.fan;
      fans_ = fans_ || s.fan != 0;
      compound_ = compound_ || (receives(s.kind) && sends(s.kind));
      if ((receives(s.kind) && s.from == r) || (sends(s.kind) && s.to == r)) wrong("illformed: talks to itself");
      if (receives(s.kind)) p.from = channel(s.from, r, l);
      if (sends(s.kind)) p.to = channel(r, s.to, l);
      if (s.after.lane >= 0) p.after_lane = lane_of_.at({r, s.after.lane}), p.after_step = s.after.step;
      const bool source = reads_source(s.kind), target = writes(s.kind);
      for (int k = 0; k < limits_.slices; ++k) {
        p.source.push_back(source ? cells_at(r, s.source, k) : cell_list{});
        p.target.push_back(target ? cells_at(r, s.target, k) : cell_list{});
      }
      for (const place* at : {&s.source, &s.target})
        if (at->count > 0 && at->buffer != buffer_kind::l2 && at->owner != self && at->owner != r)
          p.foreign.push_back(at->owner);
      p.received = extents(r, target ? s.target : s.source);
      p.sent = extents(r, s.kind == step_kind::send || s.kind == step_kind::recv_reduce_send ? s.source : s.target);
      check_form(r, s);
      programs_[index(number)].push_back(std::move(p));
    }
  }

  cell_list cells_at(rank_t r, const place& at, int slice) {
    cell_list list;
    for (std::int32_t i = 0; i < at.count; ++i)
      list.push_back(cell_of(r, {at.buffer, at.owner, at.cell + i, 1}, slice));
    return list;
  }
  std::vector<extent> extents(rank_t r, const place& at) const {
    std::vector<extent> list;
    for (std::int32_t i = 0; i < at.count; ++i)
      list.push_back(extent_of(score_, at.owner == self ? r : at.owner, at.buffer, at.cell + i));
    return list;
  }
  bool alike(const std::vector<extent>& a, const std::vector<extent>& b) const {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [&](const extent& x, const extent& y) { return same_size(score_, x, y); });
  }

  /// What would run over the end of a buffer or touch what nobody may touch, whatever the order.
  void check_form(rank_t r, const step& s) {
    if (reads_source(s.kind) && writes(s.kind) && !alike(extents(r, s.source), extents(r, s.target)))
      wrong("illformed: operands differ in size");
    if (writes(s.kind) && s.target.count > 0 && s.target.buffer == buffer_kind::input) {
      const rank_t owner = s.target.owner == self ? r : s.target.owner;
      if (!score_.in_place || (has_root(score_.what) && owner != score_.root))
        wrong("illformed: writes the caller's input");
    }
    for (const place* at : {&s.source, &s.target})
      if (at->count > 0 && (at->buffer == buffer_kind::l0 || at->buffer == buffer_kind::scratch) && at->owner != self &&
          at->owner != r)
        wrong("illformed: private memory of another rank");
    if (s.source.count == 0) return;
    const buffer_kind from = s.source.buffer, to = s.target.buffer;
    if (s.kind == step_kind::dma_get &&
        (to != buffer_kind::l0 || (from != buffer_kind::input && from != buffer_kind::l2)))
      wrong("illformed: dma_get");
    if (s.kind == step_kind::dma_put &&
        (from != buffer_kind::l0 || (to != buffer_kind::output && to != buffer_kind::l2)))
      wrong("illformed: dma_put");
  }

  state first_state() {
    state s;
    s.lanes.resize(index(lanes_));
    s.channels.resize(channel_of_.size());
    s.memory = poison_;
    for (std::size_t i = 0; i < first_memory_.size(); ++i)
      if (first_memory_[i] >= 0) s.memory[i] = first_memory_[i];
    return s;
  }

  // -- values ---------------------------------------------------------------------------------------------------------

  int intern(const value& v) {
    const auto [found, fresh] = value_of_.try_emplace({v.sum, v.tree}, static_cast<int>(values_.size()));
    if (fresh) values_.push_back(v);
    return found->second;
  }

  int add(int left, int right) {
    const auto [found, fresh] = sums_.try_emplace({left, right}, -1);
    if (fresh) {
      const value &a = values_[index(left)], &b = values_[index(right)];
      value sum;
      sum.sum = a.sum + b.sum;
      std::merge(a.leaves.begin(), a.leaves.end(), b.leaves.begin(), b.leaves.end(), std::back_inserter(sum.leaves));
      sum.chunk = a.chunk == b.chunk ? a.chunk : -2;
      sum.tree = '(' + a.tree + '+' + b.tree + ')';
      found->second = intern(sum);
    }
    const value &a = values_[index(left)], &b = values_[index(right)];
    const value& sum = values_[index(found->second)];
    found_.mixed = found_.mixed || a.chunk != b.chunk;
    found_.doubled = found_.doubled || (a.chunk == b.chunk &&
                                        std::adjacent_find(sum.leaves.begin(), sum.leaves.end()) != sum.leaves.end());
    return found->second;
  }

  // -- what can happen ------------------------------------------------------------------------------------------------

  const performed_step& step_at(int lane, int at) const { return programs_[index(lane)][index(at)]; }

  bool through(const lane_state& l, int lane) const {
    return l.next == static_cast<int>(programs_[index(lane)].size());
  }

  bool may_begin(const state& s, int lane, const performed_step& p) const {
    if (p.after_lane >= 0) {
      const lane_state& other = s.lanes[index(p.after_lane)];
      const lane_state& mine = s.lanes[index(lane)];
      if (p.after_lane != lane &&
          (other.slice < mine.slice || (other.slice == mine.slice && other.next <= p.after_step)))
        return false;
    }
    return p.from < 0 || !s.channels[index(p.from)].empty();
  }
  bool may_send(const state& s, const performed_step& p) const {
    return p.to < 0 || s.channels[index(p.to)].size() < index(limits_.credits);
  }

  int fan_end(int lane, int at) const {
    const auto& program = programs_[index(lane)];
    int end = at + 1;
    while (end < static_cast<int>(program.size()) && program[index(end)].fan == program[index(at)].fan) ++end;
    return end;
  }

  std::vector<event> enabled(const state& s) const {
    std::vector<event> list;
    for (int lane = 0; lane < lanes_; ++lane) {
      const lane_state& l = s.lanes[index(lane)];
      if (through(l, lane)) continue;
      const performed_step& p = step_at(lane, l.next);
      if (l.holds) {
        if (may_send(s, p)) list.push_back({lane, l.next, false, true});
      } else if (p.fan != 0 && how_.arrival) {
        for (int k = l.next, end = fan_end(lane, l.next); k < end; ++k)
          if ((l.fan >> (k - l.next) & 1) == 0 && may_begin(s, lane, step_at(lane, k)) && may_send(s, step_at(lane, k)))
            list.push_back({lane, k, true, true});
      } else if (may_begin(s, lane, p)) {
        const bool split = how_.eager && p.from >= 0 && p.to >= 0;
        if (split || may_send(s, p)) list.push_back({lane, l.next, true, !split});
      }
    }
    return list;
  }

  bool inside(const state& s, rank_t rank) const { return come(s, rank) && !left(s, rank); }
  bool come(const state& s, rank_t rank) const {
    for (int lane = 0; lane < lanes_; ++lane) {
      const lane_state& l = s.lanes[index(lane)];
      if (rank_of_lane_[index(lane)] == rank && (l.next > 0 || l.slice > 0 || l.holds || l.fan != 0)) return true;
    }
    return false;
  }
  bool left(const state& s, rank_t rank) const {
    for (int lane = 0; lane < lanes_; ++lane)
      if (rank_of_lane_[index(lane)] == rank && !through(s.lanes[index(lane)], lane)) return false;
    for (const auto& [at, c] : channel_of_)
      if (std::get<0>(at) == rank && !s.channels[index(c)].empty()) return false;
    return true;
  }

  /// Cells read and written by the working half of an event.
  void accesses(const state& s, const event& e, cell_list& reads, cell_list& writes_to) const {
    reads.clear();
    writes_to.clear();
    if (!e.receive) return;
    const performed_step& p = step_at(e.lane, e.step);
    const auto slice = index(s.lanes[index(e.lane)].slice);
    reads = p.source[slice];
    if (p.from >= 0) {
      const cell_list& cells = s.channels[index(p.from)].front().cells;
      reads.insert(reads.end(), cells.begin(), cells.end());
    }
    writes_to = p.target[slice];
    if (reads_target(p.kind)) reads.insert(reads.end(), writes_to.begin(), writes_to.end());
  }

  void look_for_races(const state& s, const std::vector<event>& events) {
    if (found_.race) return;
    static thread_local std::vector<std::pair<cell_list, cell_list>> all;
    all.resize(std::max(all.size(), events.size()));
    for (std::size_t i = 0; i < events.size(); ++i) accesses(s, events[i], all[i].first, all[i].second);
    const auto meet = [](const cell_list& a, const cell_list& b) {
      return std::any_of(a.begin(), a.end(), [&](int cell) { return std::find(b.begin(), b.end(), cell) != b.end(); });
    };
    for (std::size_t i = 0; i < events.size(); ++i)
      for (std::size_t k = 0; k < i; ++k)
        if (events[i].lane != events[k].lane &&
            (meet(all[i].second, all[k].first) || meet(all[i].second, all[k].second) ||
             meet(all[i].first, all[k].second)))
          found_.race = true;
  }

  // -- what happens ---------------------------------------------------------------------------------------------------

  int look(const state& s, int cell) {
    const int v = s.memory[index(cell)];
    found_.unwritten = found_.unwritten || values_[index(v)].chunk == -1;
    return v;
  }

  std::vector<int> take(state& s, const performed_step& p, const cell_list& target, rank_t me) {
    auto& queue = s.channels[index(p.from)];
    const message m = std::move(queue.front());
    queue.erase(queue.begin());
    static const std::vector<extent> none;
    if (!alike(m.extents ? *m.extents : none, p.received))
      wrong("a message has another size than its receiver expects");
    for (std::size_t i = 0; i < m.cells.size() && found_.right(); ++i) {
      const int cell = m.cells[i];
      if (values_[index(look(s, cell))].sum != values_[index(m.values[i])].sum)
        wrong("a cell was overwritten before its receiver read it");
      if (owner_[index(cell)] >= 0 && owner_[index(cell)] != me && left(s, owner_[index(cell)])) {
        // The sender has this credit still to come, so only cells of a third rank can be gone.
        const bool senders = std::any_of(channel_of_.begin(), channel_of_.end(), [&](const auto& c) {
          return c.second == p.from && std::get<0>(c.first) == owner_[index(cell)];
        });
        if (!senders) wrong("reads cells of a rank that has left");
      }
      for (std::size_t k = 0; k < target.size(); ++k)
        if (k != i && target[k] == cell) wrong("a message overlaps its target");
    }
    return m.values;
  }

  void happen(state& s, const event& e) {
    const performed_step& p = step_at(e.lane, e.step);
    lane_state& l = s.lanes[index(e.lane)];
    const rank_t me = rank_of_lane_[index(e.lane)];
    const cell_list &source = p.source[index(l.slice)], &target = p.target[index(l.slice)];
    if (e.receive) {
      for (const rank_t other : p.foreign)
        if (!inside(s, other)) return wrong("touches buffers of a rank that is not inside");
      std::vector<int> incoming, local;
      if (p.from >= 0) incoming = take(s, p, target, me);
      if (!found_.right()) return;
      work(s, p, source, target, incoming, l.held);
    }
    if (e.send && p.to >= 0) {
      message m;
      if (p.kind == step_kind::recv_reduce_send) {
        m.values = l.held;
      } else {
        m.cells = p.kind == step_kind::send ? source : target;
        for (const int cell : m.cells) m.values.push_back(look(s, cell));
      }
      m.extents = &p.sent;
      s.channels[index(p.to)].push_back(std::move(m));
    }
    if (!e.send) {
      l.holds = true;
    } else {
      l.holds = false;
      l.held.clear();
      advance(l, e);
    }
  }

  /// Reads, adds and writes; the result is in `made`.
  void work(state& s, const performed_step& p, const cell_list& source, const cell_list& target,
            const std::vector<int>& incoming, std::vector<int>& made) {
    std::vector<int> from_source, from_target;
    for (const int cell : source) from_source.push_back(look(s, cell));
    if (reads_target(p.kind))
      for (const int cell : target) from_target.push_back(look(s, cell));
    made.clear();
    if (!reduces(p.kind)) {
      made = p.from >= 0 ? incoming : from_source;
    } else {
      const auto& left = p.kind == step_kind::reduce ? from_target : incoming;
      const auto& right = p.kind == step_kind::recv_reduce ? from_target : from_source;
      for (std::size_t i = 0; i < left.size(); ++i)
        made.push_back(p.swapped ? add(right[i], left[i]) : add(left[i], right[i]));
    }
    for (std::size_t i = 0; i < target.size(); ++i) {
      s.memory[index(target[i])] = made[i];
      for (const auto& queue : s.channels)
        for (const message& m : queue)
          if (std::find(m.cells.begin(), m.cells.end(), target[i]) != m.cells.end()) found_.overwritten = true;
    }
  }

  void advance(lane_state& l, const event& e) const {
    const performed_step& p = step_at(e.lane, e.step);
    if (p.fan != 0 && how_.arrival) {
      const int size = fan_end(e.lane, l.next) - l.next;
      l.fan |= 1u << (e.step - l.next);
      if (l.fan != (1u << size) - 1) return;
      l.fan = 0;
      l.next += size;
    } else {
      ++l.next;
    }
    if (through(l, e.lane) && l.slice + 1 < limits_.slices) l.next = 0, ++l.slice;
  }

  /// Nothing can happen any more: either the end, and everything must be right, or the run hangs.
  void finish(const state& s) {
    for (int lane = 0; lane < lanes_; ++lane)
      if (!through(s.lanes[index(lane)], lane))
        return wrong("hangs: rank " + std::to_string(rank_of_lane_[index(lane)]) + " step " +
                     std::to_string(s.lanes[index(lane)].next));
    for (const auto& queue : s.channels)
      if (!queue.empty()) return wrong("a message is never received");
    std::vector<std::vector<std::string>> trees(index(score_.ranks));
    for (rank_t r = 0; r < score_.ranks; ++r)
      for (std::int32_t c = 0; c < cell_count(score_, r, buffer_kind::output); ++c)
        for (int k = 0; k < limits_.slices; ++k) {
          const int cell = cells_.count(name_of(r, c, k)) ? cell_of(r, {buffer_kind::output, self, c, 1}, k) : -1;
          if (cell < 0) return wrong("an output cell is never touched");
          const value& v = values_[index(s.memory[index(cell)])];
          if (v.sum != expected(r, extent_of(score_, r, buffer_kind::output, c), k))
            return wrong("rank " + std::to_string(r) + " output[" + std::to_string(c) + "] is wrong: " + v.tree);
          if (k == 0) trees[index(r)].push_back(v.tree);
        }
    if (found_.trees.empty()) found_.trees = std::move(trees);
    else if (found_.trees != trees) found_.unstable = true;
  }

  using cell_key = std::tuple<buffer_kind, rank_t, std::int32_t, int>;
  cell_key name_of(rank_t r, std::int32_t c, int slice) const {
    const place named = canonical(score_, r, {buffer_kind::output, self, c, 1});
    return {named.buffer, named.owner, named.cell, slice};
  }

  number expected(rank_t rank, const extent& e, int slice) const {
    const long chunk = chunk_of(e, slice);
    number sum = 0;
    switch (score_.what) {
      case collective::all_reduce:
      case collective::reduce_scatter:
      case collective::reduce:
        for (rank_t r = 0; r < score_.ranks; ++r) sum += given_.at({r, chunk});
        return sum;
      case collective::scan:
      case collective::exscan:
        for (rank_t r = 0; r < rank + (score_.what == collective::scan ? 1 : 0); ++r) sum += given_.at({r, chunk});
        return sum;
      case collective::all_gather:
      case collective::gather: return given_.at({static_cast<rank_t>(e.block), chunk});
      case collective::broadcast:
      case collective::scatter: return given_.at({score_.root, chunk});
      case collective::all_to_all: return given_.at({static_cast<rank_t>(e.block / score_.ranks), chunk});
      case collective::barrier: break;
    }
    return 0;
  }

  /// In a barrier a rank must not be through while another has not come; called for every new state.
  void check_barrier(const state& s) {
    if (score_.what != collective::barrier) return;
    for (rank_t r = 0; r < score_.ranks; ++r)
      if (left(s, r))
        for (rank_t q = 0; q < score_.ranks; ++q)
          if (q != r && !come(s, q)) return wrong("a rank leaves the barrier before another has come");
  }

  /// What tells states apart; valid until the next call, so that a state that was seen before costs no memory.
  const std::string& key(const state& s) {
    check_barrier(s);
    key_.clear();
    const auto put = [&](int v) { key_.append(reinterpret_cast<const char*>(&v), sizeof v); };
    const auto put_all = [&](const std::vector<int>& all) {
      key_.append(reinterpret_cast<const char*>(all.data()), all.size() * sizeof(int));
    };
    for (const lane_state& l : s.lanes) {
      put(l.next), put(l.slice * 2 + l.holds), put(static_cast<int>(l.fan));
      put_all(l.held);
    }
    put_all(s.memory);
    for (const auto& queue : s.channels) {
      put(static_cast<int>(queue.size()));
      for (const message& m : queue) {  // which step sent it follows from the counts, up to fans that only receive
        put_all(m.values);
        put_all(m.cells);
      }
    }
    return key_;
  }

  void random_orders(const options& limits) {
    std::mt19937_64 random{limits.seed};
    for (int i = 0; i < limits.random_orders && found_.right(); ++i) {
      state s = first_state();
      // Some orders let a few lanes run far ahead: a fair choice hardly ever overtakes.
      std::vector<std::uint64_t> weight(index(lanes_), 1);
      for (auto& w : weight) w = i % 2 == 0 ? 1 : std::uint64_t{1} << (random() % 8);
      for (;;) {
        const auto events = enabled(s);
        look_for_races(s, events);
        check_barrier(s);
        if (events.empty()) {
          finish(s);
          break;
        }
        std::uint64_t total = 0;
        for (const event& e : events) total += weight[index(e.lane)];
        std::uint64_t pick = random() % total;
        std::size_t at = 0;
        while (pick >= weight[index(events[at].lane)]) pick -= weight[index(events[at++].lane)];
        happen(s, events[at]);
        ++found_.states;
        if (!found_.right()) break;
      }
    }
  }

  const score& score_;
  performing_limits limits_;
  finding& found_;
  manner how_{};
  std::string key_;
  std::mt19937_64 random_{0x7e57};  // values only: they need to be different, not surprising
  int lanes_ = 0;
  bool fans_ = false, compound_ = false;
  std::map<cell_key, int> cells_;
  std::vector<rank_t> owner_;
  std::vector<int> poison_, first_memory_;
  std::map<std::pair<rank_t, long>, number> given_;
  std::map<std::pair<rank_t, int>, int> lane_of_;
  std::vector<rank_t> rank_of_lane_;
  std::vector<std::vector<performed_step>> programs_;
  std::map<std::tuple<rank_t, rank_t, int>, int> channel_of_;
  std::vector<value> values_;
  std::map<std::pair<number, std::string>, int> value_of_;
  std::map<std::pair<int, int>, int> sums_;
};

}  // namespace

finding ask(const score& s, const performing_limits& limits, const options& how) {
  finding f;
  performance p{s, limits, f};
  if (p.illformed()) return f;
  for (const bool eager : {false, true})
    for (const bool arrival : {false, true}) {
      if ((eager && !p.has_compound()) || (arrival && !p.has_fans()) || !f.right()) continue;
      p.explore({eager, arrival}, how);
    }
  if (!f.right()) f.exhaustive = true;
  return f;
}

}  // namespace troupe::oracle
