// SPDX-License-Identifier: Apache-2.0
#include "protocols/offload/offload_proof.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "protocols/perform/symbolic_memory.hpp"

namespace troupe::offload {

namespace {

using namespace proving;

using clock = std::vector<std::uint32_t>;  ///< by sequence of all ranks: how many of its descriptors are known

void learn(clock& to, const clock& from) {
  for (std::size_t i = 0; i < from.size(); ++i) to[i] = std::max(to[i], from[i]);
}

/// A port of a node.
struct port_name {
  std::uint32_t node = 0;
  std::uint16_t port = 0;
  auto operator<=>(const port_name&) const = default;
};

struct message {
  std::uint8_t seq_id = 0;
  bool has_data = false;
  std::optional<element_span> from;  ///< memory that it refers to until it is taken
  values carried;
  clock known;
};

struct channel {
  std::vector<message> under_way;  ///< oldest first
  std::vector<clock> credits;      ///< of what was taken: what the taker knew
  std::size_t sent = 0;
};

struct access {
  std::size_t sequence = 0;
  std::uint32_t time = 0;
};
struct accesses {
  std::optional<access> write;
  std::vector<access> reads;
  int lent = 0;  ///< messages under way that refer to it
};

struct player {
  const rank_program* who = nullptr;
  const sequence* code = nullptr;
  std::size_t next = 0;
  clock known;
  std::vector<std::pair<port_name, port_name>> sent_on;  ///< channels

  bool done() const { return next == code->descriptors.size(); }
  const descriptor& now() const { return code->descriptors[next]; }
  port_name here() const { return {who->at.node, code->port}; }
};

class run {
public:
  run(const proof_subject& what, std::span<const rank_program> programs)
      : what_(what),
        programs_(programs),
        memory_(what, scratch_of(programs), std::vector<std::size_t>(programs.size(), 0)) {
    for (const rank_program& p : programs) {
      if (p.element_size != what.shape.element_size) throw difference{"a program is for elements of another size"};
      for (const sequence& s : p.sequences) {
        players_.push_back({&p, &s, 0, {}, {}});
        check_form(players_.back());
        if (!ports_.emplace(players_.back().here(), players_.size() - 1).second)
          throw difference{"two sequences have the same port"};
      }
    }
    for (player& p : players_) p.known.resize(players_.size());
    touched_.resize(memory_.places());
  }

  void perform_all() {
    for (bool moved = true; moved;) {
      moved = false;
      for (at_ = 0; at_ < players_.size(); ++at_)
        while (!me().done() && step()) moved = true;
    }
    for (at_ = 0; at_ < players_.size(); ++at_)
      if (!me().done()) throw difference{"never comes to pass"};
    for (const auto& [name, c] : channels_)
      if (!c.under_way.empty()) throw difference{"a message is never taken"};
    at_ = players_.size();
    memory_.check_outputs();
    if (traits_of(what_.notes.what).synchronizes) check_heard();
  }

  /// "rank 1, port 0, descriptor 3: ", of what was being performed.
  std::string at_fault() const {
    if (at_ >= players_.size()) return {};
    const player& p = players_[at_];
    return "rank " + std::to_string(p.who->rank) + ", port " + text(p.code->port) + ", descriptor " + text(p.next) +
           ": ";
  }

private:
  static std::vector<std::size_t> scratch_of(std::span<const rank_program> programs) {
    std::vector<std::size_t> bytes;
    for (const rank_program& p : programs) bytes.push_back(p.scratch_bytes);
    return bytes;
  }

  static void check_form(const player& p) {
    const auto& all = p.code->descriptors;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const descriptor& d = all[i];
      if (!d.collective) throw difference{"a descriptor of a sequence is not marked as collective"};
      if (d.head != (i == 0)) throw difference{"CH is not on the first descriptor alone"};
      if (d.tail != (i + 1 == all.size()) || d.collective_end != d.tail)
        throw difference{"CT and CollEndFlag are not on the last descriptor alone"};
      if (d.source_port != p.code->port) throw difference{"a descriptor is of another port"};
      if (std::size_t{d.awaited} + d.count > p.who->awaited.size())
        throw difference{"names packets that it does not list"};
    }
    if (all.empty()) throw difference{"a sequence has no end"};
  }

  player& me() { return players_[at_]; }

  /// False: something is missing.
  bool step() {
    const descriptor& d = me().now();
    const auto awaited = me().who->messages_of(d);
    for (const awaited_message& m : awaited)
      if (find(m) == nullptr) return false;
    channel* out = nullptr;
    if (d.triggers) {
      const port_name to{d.dest_node, d.dest_port};
      if (!ports_.contains(to)) throw difference{"sends to a port that nobody has"};
      out = &channels_[{sends_from(d), to}];
      if (out->under_way.size() >= static_cast<std::size_t>(me().who->credits)) return false;
    }
    if (d.collective_end && !all_taken(d)) return false;
    ++me().known[at_];
    if (out != nullptr && out->sent >= static_cast<std::size_t>(me().who->credits))
      learn(me().known, out->credits[out->sent - static_cast<std::size_t>(me().who->credits)]);
    fire(d, awaited, out);
    ++me().next;
    return true;
  }

  port_name sends_from(const descriptor& d) const {
    const player& p = players_[at_];
    return {p.who->at.node, d.swap_local_port ? p.code->port : d.source_port};
  }

  message* find(const awaited_message& m) {
    auto& c = channels_[{{m.node, m.port}, me().here()}];
    const auto found =
        std::find_if(c.under_way.begin(), c.under_way.end(), [&](const message& x) { return x.seq_id == m.seq_id; });
    if (found == c.under_way.end()) return nullptr;
    if (found != c.under_way.begin()) throw difference{"takes a message before an older one of the same channel"};
    return &*found;
  }

  // -- firing --

  void fire(const descriptor& d, std::span<const awaited_message> awaited, channel* out) {
    std::optional<values> held;
    const bool combines_with_own = d.count > 0 && d.reduce;
    if (d.reduce && d.own.buffer == buffer_kind::none) throw difference{"reduces with nothing of its own"};
    if (d.own.buffer != buffer_kind::none && (d.count == 0 || combines_with_own)) held = fetch(span(d.own, d.elements));
    for (const awaited_message& m : awaited) held = take(d, m, std::move(held));
    if (d.count == 0 && d.reduce) held = reduced(d, std::move(*held));
    if (d.target.buffer != buffer_kind::none) {
      if (!held) throw difference{"keeps what never came"};
      if (d.own.buffer != buffer_kind::none) {
        const std::array in{span(d.own, d.elements)}, to{span(d.target, d.elements)};
        check_pass(memory_, in, to);
      }
      if (!stays_where_it_is(d)) store(span(d.target, d.elements), *held);
    }
    if (out != nullptr) send(d, *out, std::move(held));
  }

  /// A copy from a place to itself, at a root whose call is in place: the kernel writes nothing.
  bool stays_where_it_is(const descriptor& d) {
    if (d.count > 0 || d.reduce || d.own.buffer == buffer_kind::none || d.elements == 0) return false;
    const element_span from = span(d.own, d.elements), to = span(d.target, d.elements);
    return memory_.place(from, 0) == memory_.place(to, 0);
  }

  values reduced(const descriptor& d, values own) {
    const values there = fetch(span(d.target, d.elements));
    for (std::size_t k = 0; k < own.size(); ++k)
      own[k] = d.swapped ? memory_.combine(own[k], there[k]) : memory_.combine(there[k], own[k]);
    return own;
  }

  std::optional<values> take(const descriptor& d, const awaited_message& m, std::optional<values> held) {
    auto& c = channels_[{{m.node, m.port}, me().here()}];
    message taken = std::move(c.under_way.front());
    c.under_way.erase(c.under_way.begin());
    learn(me().known, taken.known);
    if (taken.from) release(*taken.from);
    c.credits.push_back(me().known);
    if (taken.has_data != d.swap_local_data) throw difference{"takes a token for data, or data for a token"};
    if (!d.swap_local_data) return held;
    if (taken.carried.size() != d.elements)
      throw difference{"meets a message of " + text(taken.carried.size()) + " elements where it expects " +
                       text(d.elements)};
    if (!held) {
      if (d.reduce) throw difference{"reduces with nothing of its own"};
      return taken.carried;
    }
    if (!d.reduce) throw difference{"several messages take the place of the same data"};
    for (std::size_t k = 0; k < d.elements; ++k)
      (*held)[k] =
          m.swapped ? memory_.combine((*held)[k], taken.carried[k]) : memory_.combine(taken.carried[k], (*held)[k]);
    return held;
  }

  void send(const descriptor& d, channel& out, std::optional<values> held) {
    message m;
    m.seq_id = d.seq_id;
    m.has_data = d.swap_remote_data;
    m.known = me().known;
    if (m.has_data) {
      if (!held) throw difference{"sends what it does not have"};
      const operand& from = d.target.buffer != buffer_kind::none ? d.target : d.own;
      m.from = span(from, d.elements);
      m.carried = std::move(*held);
      lend(*m.from);
    }
    for (const message& other : out.under_way)
      if (other.seq_id == m.seq_id) throw difference{"sends a message with the key of another one that is under way"};
    out.under_way.push_back(std::move(m));
    ++out.sent;
    me().sent_on.emplace_back(sends_from(d), port_name{d.dest_node, d.dest_port});
  }

  /// The end of a sequence: its messages are taken, and it knows.
  bool all_taken(const descriptor& d) {
    if (d.dest_node != me().who->at.node || d.dest_port != me().code->port)
      throw difference{"completes another port's operation"};
    for (const auto& name : me().sent_on)
      if (!channels_[name].under_way.empty()) return false;
    for (const auto& name : me().sent_on) learn(me().known, channels_[name].credits.back());
    return true;
  }

  // -- memory --

  element_span span(const operand& at, std::size_t elements) {
    return memory_.span_of(me().who->rank, at.buffer, at.offset, elements * me().who->element_size);
  }
  values fetch(const element_span& from) {
    values read;
    for (std::size_t k = 0; k < from.count; ++k) note(from, k, false), read.push_back(memory_.read(from, k));
    return read;
  }
  void store(const element_span& to, const values& what) {
    for (std::size_t k = 0; k < to.count; ++k) note(to, k, true), memory_.write(to, k, what[k]);
  }
  /// Read by whoever takes the message, at a time that the sender does not know yet.
  void lend(const element_span& at) {
    for (std::size_t k = 0; k < at.count; ++k) ++touched_[memory_.place(at, k)].lent;
  }
  void release(const element_span& at) {
    for (std::size_t k = 0; k < at.count; ++k) {
      accesses& seen = touched_[memory_.place(at, k)];
      --seen.lent;
      seen.reads.push_back({at_, me().known[at_]});
    }
  }

  /// Whatever conflicts must have been before, whatever the other sequences do.
  void note(const element_span& at, std::size_t k, bool writes) {
    accesses& seen = touched_[memory_.place(at, k)];
    const auto before = [&](const access& other) { return me().known[other.sequence] >= other.time; };
    if (writes && seen.lent > 0) throw difference{to_string(at, k) + " is overwritten while a message refers to it"};
    const bool ordered =
        (!seen.write || before(*seen.write)) && (!writes || std::all_of(seen.reads.begin(), seen.reads.end(), before));
    if (!ordered) throw difference{to_string(at, k) + " is touched by another sequence at the same time"};
    const access now{at_, me().known[at_]};
    if (writes) seen.write = now, seen.reads.clear();
    else seen.reads.push_back(now);
  }

  /// Nobody ends before everybody has begun.
  void check_heard() const {
    for (const rank_program& p : programs_) {
      std::vector<bool> heard(programs_.size(), false);
      heard[static_cast<std::size_t>(p.rank)] = true;
      for (const player& mine : players_)
        for (std::size_t other = 0; mine.who == &p && other < players_.size(); ++other)
          if (mine.known[other] > 0) heard[static_cast<std::size_t>(players_[other].who->rank)] = true;
      for (std::size_t q = 0; q < heard.size(); ++q)
        if (!heard[q])
          throw difference{"rank " + std::to_string(p.rank) + " may end before it has heard of rank " + text(q)};
    }
  }

  const proof_subject& what_;
  std::span<const rank_program> programs_;
  symbolic_memory memory_;
  std::vector<player> players_;
  std::map<port_name, std::size_t> ports_;
  std::map<std::pair<port_name, port_name>, channel> channels_;  ///< by source and destination
  std::vector<accesses> touched_;
  std::size_t at_ = 0;
};

}  // namespace

std::string why_not_the_score(const proof_subject& what, std::span<const rank_program> programs) {
  if (programs.size() != static_cast<std::size_t>(what.notes.ranks)) return "not every rank has a program";
  for (std::size_t r = 0; r < programs.size(); ++r)
    if (programs[r].rank != static_cast<rank_t>(r)) return "the programs are not in the order of the ranks";
  std::optional<run> it;
  try {
    it.emplace(what, programs);
    it->perform_all();
  } catch (const difference& first) {
    return (it ? it->at_fault() : std::string{}) + first.what;
  }
  return {};
}

}  // namespace troupe::offload
