// SPDX-License-Identifier: Apache-2.0
#include "protocols/offload/offload_proof.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "protocols/offload/descriptor_form.hpp"
#include "protocols/offload/offload_compiler.hpp"
#include "protocols/perform/symbolic_memory.hpp"

namespace troupe::offload {

namespace {

using namespace proving;

using clock = std::vector<std::uint32_t>;  ///< by sequence of all ranks: how many of its turns are known

void learn(clock& to, const clock& from) {
  for (std::size_t i = 0; i < from.size(); ++i) to[i] = std::max(to[i], from[i]);
}

/// A port of a node.
struct port_name {
  std::uint32_t node = 0;
  std::uint16_t port = 0;
  auto operator<=>(const port_name&) const = default;
};

struct packet {
  std::optional<element_span> from;  ///< memory that it refers to until it is taken
  values carried;
  clock known;
};

struct message {
  std::uint8_t seq_id = 0;
  bool has_data = false;
  std::size_t elements = 0, taken = 0;  ///< packets
  std::vector<packet> ready{};
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
  bool begun = false;
  std::size_t piece = 0;  ///< of the descriptor's data: as much as a packet has
  clock known{};
  std::vector<std::pair<port_name, port_name>> sent_on{};  ///< channels

  bool done() const { return next == code->descriptors.size(); }
  const descriptor& now() const { return code->descriptors[next]; }
  port_name here() const { return {who->at.node, code->port}; }
};

class run {
public:
  run(const proof_subject& what, std::span<const rank_program> programs, std::size_t packet_elements)
      : what_(what),
        programs_(programs),
        packet_elements_(packet_elements),
        memory_(what, scratch_of(programs), std::vector<std::size_t>(programs.size(), 0)) {
    for (const rank_program& p : programs) {
      if (p.element_size != what.shape.element_size) throw difference{"a program is for elements of another size"};
      if (std::string why = why_not_well_formed(p, packet_elements); !why.empty()) throw difference{std::move(why)};
      for (const sequence& s : p.sequences) {
        players_.push_back({&p, &s});
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

  player& me() { return players_[at_]; }

  /// One turn: as much of the descriptor as a packet has. False: something is missing.
  bool step() {
    const descriptor& d = me().now();
    if (d.collective_end) {
      if (!all_taken()) return false;
      ++me().known[at_];
      ++me().next;
      return true;
    }
    if (!me().begun && !begin(d)) return false;
    const auto awaited = me().who->messages_of(d);
    for (const awaited_message& m : awaited) {
      const message* const there = find(m);
      if (there == nullptr || there->ready.size() <= me().piece) return false;
    }
    ++me().known[at_];
    fire(d, awaited);
    if (++me().piece < pieces_of(d)) return true;
    me().piece = 0;
    me().begun = false;
    ++me().next;
    return true;
  }

  /// Its message has a place in the channel from here on, though packets that it sends on follow as others come. False: it lacks a credit.
  bool begin(const descriptor& d) {
    if (d.triggers) {
      const port_name to{d.dest_node, d.dest_port};
      if (!ports_.contains(to)) throw difference{"sends to a port that nobody has"};
      channel& out = channels_[{sends_from(d), to}];
      const auto credits = static_cast<std::size_t>(me().who->credits);
      if (out.under_way.size() >= credits) return false;
      for (const message& other : out.under_way)
        if (other.seq_id == d.seq_id) throw difference{"sends a message with the key of another one that is under way"};
      if (out.sent >= credits) learn(me().known, out.credits[out.sent - credits]);
      out.under_way.push_back({d.seq_id, d.swap_remote_data, d.elements});
      ++out.sent;
      me().sent_on.emplace_back(sends_from(d), to);
    }
    return me().begun = true;
  }

  std::size_t pieces_of(const descriptor& d) const {
    return d.elements == 0 ? 1 : (d.elements - 1) / packet_elements_ + 1;
  }
  std::size_t elements_of_piece(const descriptor& d) const {
    return std::min(packet_elements_, d.elements - players_[at_].piece * packet_elements_);
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

  void fire(const descriptor& d, std::span<const awaited_message> awaited) {
    std::optional<values> held;
    if (d.own.buffer != buffer_kind::none) held = fetch(piece_of(d, d.own));
    for (const awaited_message& m : awaited) held = take(d, m, std::move(held));
    if (d.count == 0 && d.reduce) held = reduced(d, std::move(*held));
    if (d.target.buffer != buffer_kind::none) {
      if (d.own.buffer != buffer_kind::none && me().piece == 0) {
        const std::array in{whole_of(d, d.own)}, to{whole_of(d, d.target)};
        check_pass(memory_, in, to);
      }
      if (!stays_where_it_is(d)) store(piece_of(d, d.target), *held);
    }
    if (d.triggers) send(d, std::move(held));
  }

  /// A copy from a place to itself, at a root whose call is in place: the kernel writes nothing.
  bool stays_where_it_is(const descriptor& d) {
    if (d.count > 0 || d.reduce) return false;
    return memory_.place(whole_of(d, d.own), 0) == memory_.place(whole_of(d, d.target), 0);
  }

  values reduced(const descriptor& d, values own) {
    const values there = fetch(piece_of(d, d.target));
    for (std::size_t k = 0; k < own.size(); ++k)
      own[k] = d.swapped ? memory_.combine(own[k], there[k]) : memory_.combine(there[k], own[k]);
    return own;
  }

  std::optional<values> take(const descriptor& d, const awaited_message& m, std::optional<values> held) {
    auto& c = channels_[{{m.node, m.port}, me().here()}];
    message& of = c.under_way.front();
    if (of.has_data != d.swap_local_data) throw difference{"takes a token for data, or data for a token"};
    if (of.elements != d.elements)
      throw difference{"meets a message of " + text(of.elements) + " elements where it expects " + text(d.elements)};
    packet taken = std::move(of.ready[me().piece]);
    learn(me().known, taken.known);
    if (taken.from) release(*taken.from);
    if (++of.taken == pieces_of(d)) {
      c.under_way.erase(c.under_way.begin());
      c.credits.push_back(me().known);
    }
    if (!d.swap_local_data) return held;
    if (!held) return std::move(taken.carried);
    if (!d.reduce) throw difference{"several messages take the place of the same data"};
    for (std::size_t k = 0; k < held->size(); ++k)
      (*held)[k] =
          m.swapped ? memory_.combine((*held)[k], taken.carried[k]) : memory_.combine(taken.carried[k], (*held)[k]);
    return held;
  }

  /// A packet of the newest message of the channel, which is its own.
  void send(const descriptor& d, std::optional<values> held) {
    packet p;
    p.known = me().known;
    if (d.swap_remote_data) {
      p.from = piece_of(d, d.target.buffer != buffer_kind::none ? d.target : d.own);
      p.carried = std::move(*held);
      lend(*p.from);
    }
    channels_[{sends_from(d), {d.dest_node, d.dest_port}}].under_way.back().ready.push_back(std::move(p));
  }

  /// The end of a sequence: its messages are taken, and it knows.
  bool all_taken() {
    for (const auto& name : me().sent_on)
      if (!channels_[name].under_way.empty()) return false;
    for (const auto& name : me().sent_on) learn(me().known, channels_[name].credits.back());
    return true;
  }

  // -- memory --

  element_span span(const operand& at, std::size_t first, std::size_t elements) {
    const std::size_t width = me().who->element_size;
    return memory_.span_of(me().who->rank, at.buffer, at.offset + first * width, elements * width);
  }
  element_span whole_of(const descriptor& d, const operand& at) { return span(at, 0, d.elements); }
  element_span piece_of(const descriptor& d, const operand& at) {
    return span(at, me().piece * packet_elements_, elements_of_piece(d));
  }
  values fetch(const element_span& from) {
    values read;
    for (std::size_t k = 0; k < from.count; ++k) note(from, k, false), read.push_back(memory_.read(from, k));
    return read;
  }
  void store(const element_span& to, const values& what) {
    for (std::size_t k = 0; k < to.count; ++k) note(to, k, true), memory_.write(to, k, what[k]);
  }
  /// Read by the receiver of the message, at a time that the sender does not know yet.
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
  const std::size_t packet_elements_;
  symbolic_memory memory_;
  std::vector<player> players_;
  std::map<port_name, std::size_t> ports_;
  std::map<std::pair<port_name, port_name>, channel> channels_;  ///< by source and destination
  std::vector<accesses> touched_;
  std::size_t at_ = 0;
};

}  // namespace

std::string why_not_the_score(const proof_subject& what, std::span<const rank_program> programs,
                              std::size_t packet_elements) {
  if (programs.size() != static_cast<std::size_t>(what.notes.ranks)) return "not every rank has a program";
  for (std::size_t r = 0; r < programs.size(); ++r)
    if (programs[r].rank != static_cast<rank_t>(r)) return "the programs are not in the order of the ranks";
  std::optional<run> it;
  try {
    it.emplace(what, programs, packet_elements);
    it->perform_all();
  } catch (const difference& first) {
    return (it ? it->at_fault() : std::string{}) + first.what;
  }
  return {};
}

std::string why_not_performed(const score& notes, const score& as, const verdict& verified, int credits) {
  constexpr std::size_t packet_elements = 1;
  const auto places = behind_one_nic(notes);
  const std::size_t each = static_cast<std::size_t>(notes.parts) + 1;
  // Some have nothing, and some not as much as there are parts.
  std::vector<std::size_t> counts;
  if (!notes.uniform)
    for (std::size_t block = 0; block < static_cast<std::size_t>(block_count(notes.what, notes.ranks)); ++block)
      counts.push_back(block % 4 == 1 ? 0 : each + block % 3 - 1);
  const call_shape few{each, counts, {}, {}, sizeof(double)};
  return why_not_the_score({as, verified, few}, compile(notes, few, {credits, places, packet_elements}),
                           packet_elements);
}

}  // namespace troupe::offload
