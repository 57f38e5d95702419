// SPDX-License-Identifier: Apache-2.0
#include "protocols/offload/offload_compiler.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "memory/error.hpp"
#include "protocols/lower/rewriting.hpp"
#include "protocols/program/cell_places.hpp"
#include "protocols/program/program.hpp"

namespace troupe::offload {

namespace {

constexpr std::size_t slot_alignment = 64;  // of results that are passed on: what kernels like to write

std::size_t lanes_of(const score& s, rank_t rank) {
  return std::max<std::size_t>(1, s.players[static_cast<std::size_t>(rank)].lanes.size());
}

endpoint place_of(const compile_options& how, rank_t rank) {
  return how.places.empty() ? endpoint{static_cast<std::uint32_t>(rank), 0}
                            : how.places[static_cast<std::size_t>(rank)];
}

// -- what cannot be ---------------------------------------------------------------------------------------------------

std::string why_not_step(const step& s) {
  if (s.kind == step_kind::sync) return "is a sync, which must be lowered to tokens first";
  for (const place& at : {s.source, s.target}) {
    if (at.count == 0) continue;
    if (at.owner != self && at.buffer != buffer_kind::l2)
      return "touches a buffer of rank " + std::to_string(at.owner) +
             "; a NIC reaches the memory of its own process only";
    if (at.buffer == buffer_kind::l0 || at.buffer == buffer_kind::l2)
      return "touches " + std::string{name(at.buffer)} + ", memory of a card that a NIC does not reach";
  }
  return {};
}

std::string why_not_places(const score& s, const compile_options& how) {
  if (!how.places.empty() && how.places.size() != static_cast<std::size_t>(s.ranks))
    return "there are places for " + std::to_string(how.places.size()) + " ranks, but the score has " +
           std::to_string(s.ranks);
  std::vector<std::tuple<std::uint32_t, std::size_t, std::size_t, rank_t>> ports;  // node, first, end
  for (rank_t r = 0; r < s.ranks; ++r) {
    const endpoint at = place_of(how, r);
    const std::size_t end = at.first_port + lanes_of(s, r);
    if (at.node >= static_cast<std::uint32_t>(most_nodes))
      return "rank " + std::to_string(r) + " has node " + std::to_string(at.node) + "; there are " +
             std::to_string(most_nodes) + " of them, counted from 0";
    if (end > static_cast<std::size_t>(most_ports))
      return "rank " + std::to_string(r) + " needs the virtual ports " + std::to_string(at.first_port) + " to " +
             std::to_string(end - 1) + "; a NIC has " + std::to_string(most_ports) + ", a lane takes one";
    ports.emplace_back(at.node, at.first_port, end, r);
  }
  std::sort(ports.begin(), ports.end());
  for (std::size_t i = 1; i < ports.size(); ++i)
    if (std::get<0>(ports[i]) == std::get<0>(ports[i - 1]) && std::get<1>(ports[i]) < std::get<2>(ports[i - 1]))
      return "ranks " + std::to_string(std::get<3>(ports[i - 1])) + " and " + std::to_string(std::get<3>(ports[i])) +
             " have a virtual port of node " + std::to_string(std::get<0>(ports[i])) + " in common";
  return {};
}

// -- one rank ---------------------------------------------------------------------------------------------------------

/// By sender, receiver and lane: whether the operation that takes the channel's message k reduces.
class destinations {
public:
  explicit destinations(const score& s) {
    for (rank_t r = 0; r < s.ranks; ++r) {
      const auto& lanes = s.players[static_cast<std::size_t>(r)].lanes;
      for (std::size_t l = 0; l < lanes.size(); ++l)
        for (const step& at : lanes[l])
          if (receives(at.kind)) reduce_[{at.from, r, l}].push_back(reduces(at.kind));
    }
  }
  bool reduces_there(rank_t from, rank_t to, std::size_t lane, std::size_t message) const {
    const auto found = reduce_.find({from, to, lane});
    return found != reduce_.end() && message < found->second.size() && found->second[message];
  }

private:
  std::map<std::tuple<rank_t, rank_t, std::size_t>, std::vector<bool>> reduce_;
};

class rank_compiler {
public:
  /// @param groups steps that may be one descriptor are
  rank_compiler(const score& s, rank_t rank, const call_shape& shape, const compile_options& how,
                const destinations& there, bool groups)
      : how_(how),
        there_(there),
        rank_(rank),
        groups_(groups),
        code_(troupe::compile(s, rank, shape, {}, step_work::timed)) {
    made_.rank = rank;
    made_.at = place_of(how, rank);
    made_.element_size = shape.element_size;
    made_.scratch_bytes = code_.scratch_bytes;
    made_.credits = how.credits;
    lanes_ = lanes_of(s, rank);
  }

  rank_program run() {
    find_waits();
    place_results();
    for (std::size_t l = 0; l < lanes_; ++l) write(l);
    return std::move(made_);
  }

  /// Some descriptor is of several steps. @pre run()
  bool grouped() const { return grouped_; }

private:
  using index = std::pair<std::size_t, std::size_t>;  ///< lane and instruction

  std::span<const instruction> lane(std::size_t l) const {
    return l < code_.lanes.size() ? std::span<const instruction>{code_.lanes[l]} : std::span<const instruction>{};
  }
  std::uint16_t port(std::size_t lane) const { return static_cast<std::uint16_t>(made_.at.first_port + lane); }

  /// Which steps wait for a token, and from which steps of other lanes tokens go where. A token that an earlier step of the lane has waited for, or
  /// what comes before that, needs no other token.
  void find_waits() {
    for (std::size_t l = 0; l < lanes_; ++l) {
      std::map<std::size_t, std::int32_t> heard;
      for (std::size_t i = 0; i < lane(l).size(); ++i) {
        const instruction& at = lane(l)[i];
        const auto other = static_cast<std::size_t>(at.after_lane);
        if (at.after_lane < 0 || other == l) continue;
        const auto [known, fresh] = heard.try_emplace(other, -1);
        if (at.after_index <= known->second) continue;
        known->second = at.after_index;
        waits_[{l, i}] = other;
        tokens_[{other, static_cast<std::size_t>(at.after_index)}].push_back(l);
      }
    }
  }

  /// Memory for results that are passed on only: `credits` of the channel's largest.
  void place_results() {
    for (std::size_t l = 0; l < lanes_; ++l)
      for (const instruction& i : lane(l))
        if (i.kind == step_kind::recv_reduce_send) {
          auto& largest = result_bytes_[{l, i.to}];
          largest = std::max(largest, checked_multiply(i.elements, code_.element_size));
        }
    for (auto& [channel, bytes] : result_bytes_) {
      bytes = checked_add(bytes, slot_alignment - 1) / slot_alignment * slot_alignment;
      const std::size_t begin = checked_add(made_.scratch_bytes, slot_alignment - 1) / slot_alignment * slot_alignment;
      results_[channel] = begin;
      made_.scratch_bytes = checked_add(begin, checked_multiply(bytes, static_cast<std::size_t>(how_.credits)));
    }
  }

  void write(std::size_t l) {
    now_ = {port(l), {}};
    for (std::size_t i = 0; i < lane(l).size();) {
      if (const auto wait = waits_.find({l, i}); wait != waits_.end()) await_token(l, wait->second);
      const std::size_t end = end_of_group(l, i);
      grouped_ = grouped_ || end > i + 1;
      if (lane(l)[i].kind != step_kind::wait) add_group(l, i, end);
      i = end;
      if (const auto tokens = tokens_.find({l, i - 1}); tokens != tokens_.end())
        for (const std::size_t to : tokens->second) send_token(l, to);
    }
    descriptor end = blank(l);
    end.collective_end = end.tail = true;
    end.dest_node = made_.at.node;
    end.dest_port = now_.port;
    now_.descriptors.push_back(end);
    now_.descriptors.front().head = true;
    made_.sequences.push_back(std::move(now_));
  }

  // -- groups: one descriptor each --

  bool named(const index& at) const { return tokens_.contains(at); }

  /// The instructions [begin, end) are one descriptor.
  std::size_t end_of_group(std::size_t l, std::size_t begin) const {
    const auto code = lane(l);
    const instruction& first = code[begin];
    std::size_t end = begin + 1;
    if (!groups_) return end;
    if (!receives(first.kind) || !reduces(first.kind) || sends(first.kind)) return end;
    // Blocks without elements lie at one place, though they are different sums; to wait for all of them at once might wait for ever.
    if (first.elements == 0) return end;
    const auto sum = first.target;
    for (; end < code.size() && end - begin < most_awaited; ++end) {
      const instruction& next = code[end];
      if (named({l, end - 1}) || waits_.contains({l, end}) || next.elements != first.elements) break;
      const bool takes = next.kind == step_kind::recv_reduce && next.target == sum;
      const bool passes_on =
          (next.kind == step_kind::recv_reduce_copy_send && next.source == sum && next.target == sum) ||
          (next.kind == step_kind::recv_reduce_send && next.source == sum && only_here(l, begin, end + 1)) ||
          (next.kind == step_kind::send && next.source == sum);
      if (!takes && !passes_on) break;
      if (receives(next.kind) && comes_twice(code.subspan(begin, end - begin), next.from)) break;
      if (passes_on) return end + 1;
    }
    return end;
  }

  static bool comes_twice(std::span<const instruction> group, rank_t from) {
    return std::any_of(group.begin(), group.end(), [&](const instruction& i) { return i.from == from; });
  }

  /// The sum that the group [begin, end) makes in its target is of no use to anybody else, so it need not be kept there.
  bool only_here(std::size_t l, std::size_t begin, std::size_t end) const {
    const cell_range& sum = lane(l)[begin].target_cells;
    if (sum.buffer != buffer_kind::scratch) return false;
    for (std::size_t other = 0; other < lanes_; ++other)
      for (std::size_t i = 0; i < lane(other).size(); ++i) {
        const instruction& at = lane(other)[i];
        if (other == l && i >= begin && i < end) continue;
        if (reads_source(at.kind) && overlap(at.source_cells, sum)) return false;
        if (reads_target(at.kind) && overlap(at.target_cells, sum)) return false;
      }
    return true;
  }

  void add_group(std::size_t l, std::size_t begin, std::size_t end) {
    const auto group = lane(l).subspan(begin, end - begin);
    const instruction &first = group.front(), &last = group.back();
    descriptor d = blank(l);
    d.score_lane = static_cast<std::int32_t>(l);
    d.score_step = first.score_step;
    d.elements = first.elements;
    d.reduce = d.elements > 0 && reduces(first.kind);
    for (const instruction& i : group)
      if (receives(i.kind)) {
        const endpoint from = place_of(how_, i.from);
        d.count = static_cast<std::uint8_t>(d.count + 1);
        made_.awaited.push_back(
            {from.node, static_cast<std::uint16_t>(from.first_port + l), seq_id(taken_[{l, i.from}]++), i.swapped});
      }
    d.swap_local_data = d.count > 0 && d.elements > 0;
    d.swapped = d.count == 0 && d.elements > 0 && first.swapped;
    if (d.elements > 0) set_operands(d, first);
    if (sends(last.kind)) add_destination(d, l, last);
    if (d.count == 0 && !d.triggers && d.elements == 0) return;  // a copy or sum of an empty block
    now_.descriptors.push_back(d);
  }

  static operand of(const location& at) { return {at.buffer, at.offset}; }

  static void set_operands(descriptor& d, const instruction& first) {
    if (reads_source(first.kind)) d.own = of(first.source);
    else if (reads_target(first.kind)) d.own = of(first.target);
    if (writes(first.kind)) d.target = of(first.target);
  }

  void add_destination(descriptor& d, std::size_t l, const instruction& last) {
    const std::size_t message = sent_[{l, last.to}]++;
    const endpoint to = place_of(how_, last.to);
    d.triggers = true;
    d.seq_id = seq_id(message);
    d.dest_node = to.node;
    d.dest_port = static_cast<std::uint16_t>(to.first_port + l);
    d.swap_local_port = d.count > 0;
    d.swap_remote_data = d.elements > 0;
    d.swap_remote_address = d.elements > how_.packet_elements;
    d.reduced_there = there_.reduces_there(rank_, last.to, l, message);
    if (last.kind == step_kind::recv_reduce_send && d.elements > 0)
      d.target = {buffer_kind::scratch, results_.at({l, last.to}) + message % static_cast<std::size_t>(how_.credits) *
                                                                        result_bytes_.at({l, last.to})};
  }

  // -- tokens between the lanes of this rank --

  void await_token(std::size_t l, std::size_t from) {
    descriptor d = blank(l);
    d.count = 1;
    made_.awaited.push_back({made_.at.node, port(from), seq_id(tokens_taken_[{from, l}]++), false});
    now_.descriptors.push_back(d);
  }
  void send_token(std::size_t l, std::size_t to) {
    descriptor d = blank(l);
    d.triggers = true;
    d.seq_id = seq_id(tokens_sent_[{l, to}]++);
    d.dest_node = made_.at.node;
    d.dest_port = port(to);
    now_.descriptors.push_back(d);
  }

  descriptor blank(std::size_t l) const {
    descriptor d;
    d.source_port = port(l);
    d.awaited = static_cast<std::uint32_t>(made_.awaited.size());
    return d;
  }
  static std::uint8_t seq_id(std::size_t message) { return static_cast<std::uint8_t>(message % seq_ids); }

  const compile_options& how_;
  const destinations& there_;
  rank_t rank_;
  bool groups_, grouped_ = false;
  program code_;
  rank_program made_;
  std::size_t lanes_ = 0;
  std::map<index, std::size_t> waits_;                ///< the lane whose token the instruction waits for
  std::map<index, std::vector<std::size_t>> tokens_;  ///< the lanes that wait for the instruction
  std::map<std::pair<std::size_t, rank_t>, std::size_t> result_bytes_, results_, taken_, sent_;  ///< by lane and peer
  std::map<index, std::size_t> tokens_taken_, tokens_sent_;                                      ///< by lane and lane
  sequence now_;
};

}  // namespace

std::vector<endpoint> behind_one_nic(const score& s) {
  std::vector<endpoint> places;
  std::size_t port = 0;
  for (rank_t r = 0; r < s.ranks; ++r) {
    // A score that finds no port is refused by why_not_offloaded(), which needs to see that it does not fit.
    places.push_back({0, static_cast<std::uint16_t>(std::min<std::size_t>(port, most_ports))});
    port += lanes_of(s, r);
  }
  return places;
}

std::string why_not_offloaded(const score& s, const compile_options& how) {
  if (how.credits < 1 || how.credits >= seq_ids)
    return "a channel has " + std::to_string(how.credits) + " credits; it must be 1 to " + std::to_string(seq_ids - 1) +
           ", as SeqID tells no more messages apart";
  if (how.packet_elements < 1) return "a packet must have room for an element";
  for (std::size_t r = 0; r < s.players.size(); ++r) {
    const auto& lanes = s.players[r].lanes;
    for (std::size_t l = 0; l < lanes.size(); ++l)
      for (std::size_t i = 0; i < lanes[l].size(); ++i)
        if (const std::string why = why_not_step(lanes[l][i]); !why.empty())
          return where(static_cast<rank_t>(r), l, i) + ' ' + why;
  }
  return why_not_places(s, how);
}

namespace {

/// Performs nothing but the order of descriptors.
class firing {
public:
  explicit firing(std::span<const rank_program> all) {
    for (const rank_program& p : all)
      for (const sequence& s : p.sequences) {
        at_[{p.at.node, s.port}] = players_.size();
        players_.push_back({&p, &s});
      }
  }

  /// None waits for ever, for a message or for a credit.
  bool all() {
    std::size_t ended = 0;
    for (std::size_t p = 0; p < players_.size(); ++p) ready_.push_back(p);
    while (!ready_.empty()) {
      const std::size_t p = ready_.back();
      ready_.pop_back();
      if (players_[p].done()) continue;
      while (!players_[p].done() && fire(p)) {}
      ended += players_[p].done() ? 1 : 0;
    }
    return ended == players_.size();
  }

private:
  struct player {
    const rank_program* of;
    const sequence* code;
    std::size_t next = 0;
    bool done() const { return next == code->descriptors.size(); }
  };
  struct channel {
    std::size_t sent = 0, taken = 0;
  };

  /// False: something is missing. The lane that lacked what this one gives is ready then.
  bool fire(std::size_t at) {
    player& p = players_[at];
    const descriptor& d = p.code->descriptors[p.next];
    const auto awaited = p.of->messages_of(d);
    for (const awaited_message& m : awaited)
      if (const channel& in = between(at_.at({m.node, m.port}), at); in.taken == in.sent) return false;
    if (d.triggers) {
      const std::size_t to = at_.at({d.dest_node, d.dest_port});
      channel& out = between(at, to);
      if (out.sent - out.taken == static_cast<std::size_t>(p.of->credits)) return false;
      ++out.sent;
      ready_.push_back(to);
    }
    for (const awaited_message& m : awaited) {
      const std::size_t from = at_.at({m.node, m.port});
      ++between(from, at).taken;
      ready_.push_back(from);
    }
    ++p.next;
    return true;
  }
  channel& between(std::size_t from, std::size_t to) { return channels_[{from, to}]; }

  std::map<std::pair<std::uint32_t, std::uint16_t>, std::size_t> at_;  ///< by node and port
  std::vector<player> players_;
  std::map<std::pair<std::size_t, std::size_t>, channel> channels_;
  std::vector<std::size_t> ready_;
};

}  // namespace

std::vector<rank_program> compile(const score& s, const call_shape& shape, const compile_options& how) {
  if (const std::string why = why_not_offloaded(s, how); !why.empty())
    throw error(errc::unsupported,
                "NICs cannot perform " + s.choreography + "'s " + std::string{name(s.what)} + ": " + why);
  const destinations there{s};
  bool grouped = false;
  const auto compiled = [&](bool groups) {
    std::vector<rank_program> programs;
    for (rank_t r = 0; r < s.ranks; ++r) {
      rank_compiler one{s, r, shape, how, there, groups};
      programs.push_back(one.run());
      grouped = grouped || one.grouped();
    }
    return programs;
  };
  std::vector<rank_program> all = compiled(true);
  if (!grouped) return all;
  // A descriptor of several steps takes no message before it may send its own: with few credits ranks may wait for each other so, in a ring for one.
  if (!firing{all}.all()) all = compiled(false);
  return all;
}

}  // namespace troupe::offload
