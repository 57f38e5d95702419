// SPDX-License-Identifier: Apache-2.0
#pragma once
// Hardware as the study mode sees it: elements that messages pass and occupy, the way between two ranks, and what the ranks' own
// work costs. Pure data and integers; actors/virtual/ runs scores on it, topology/presets/ describes machines with it.
//
// A message of n bytes takes a way of elements. It enters element i with its head at time h(i) and is served from
//     s(i) = max(h(i), when a unit of the element is free)
// until s(i) + overhead + n / bandwidth; so long the unit is occupied. Cut-through: the head reaches the next element latency(i)
// after s(i) + overhead. Store-and-forward: latency(i) after the tail. The message has arrived when its tail has left every element
// and passed the latencies behind it:
//     arrival = max over i of (end of service in i + latency(i) + latency(i+1) + …)
// So alone on its way a message takes the sum of the latencies and overheads and n / (the smallest bandwidth), with cut-through.
// A unit is occupied as if the element had the message at once: a fast element behind a slow one is free again early, and what
// it has left can be used by others. Within an element messages are served in the order in which their heads come, ties in
// the order in which they were caused.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topology/machine/graph.hpp"
#include "topology/machine/links.hpp"
#include "topology/machine/nic_collectives.hpp"

namespace troupe {

/// The kind of an element, for reports and traces; nothing else depends on it.
enum class element_role : std::uint8_t { link, ring_segment, dma, nic, switch_port, pcie, core };
inline constexpr int element_role_count = 7;
/// "link", "ring_segment", "dma", "nic", "switch", "pcie", "core".
std::string_view name(element_role role) noexcept;

/// Of any constant: virtual times are 64-bit picoseconds, of which sums over many steps must not run out.
inline constexpr picoseconds longest_setting{std::chrono::seconds{1000}};

enum class service : std::uint8_t {
  fifo,  ///< one message after the other on every unit, each at the full bandwidth
  fair,  ///< all messages at once, each with an equal share of the bandwidth; `units` and `overhead` are per message, not queued
  ///< for
  max_min,  ///< all messages at once: a message is one flow through all neighbouring max_min elements of its way, from when its head has
  ///< passed them, and the flows of all such elements share them max-min fairly, at any time. `units`: a flow gets one unit at most
};
enum class forwarding : std::uint8_t { cut_through, store_and_forward };
enum class duplex : std::uint8_t {
  full,  ///< the two directions of a pair are two elements
  half,  ///< both directions occupy one
};

/// The properties that elements of one class share. A bandwidth of 0 means that bytes take no time.
struct element_class {
  std::string name{};  ///< unique among the hardware's; begins the keys of overrides: "nic.bandwidth"
  element_role role = element_role::link;
  picoseconds latency{0};              ///< α: of the head, through the element
  std::uint64_t bytes_per_second = 0;  ///< 1/β: of every unit
  picoseconds overhead{0};  ///< occupied before the first byte: set-up of a DMA transfer, a NIC's message rate
  service discipline = service::fifo;
  forwarding passing = forwarding::cut_through;
  duplex directions = duplex::full;
  int units = 1;  ///< messages served at once: DMA engines of a core group, rails of a port (1 … 64)
  /// Clear to send: what a sender must wait for before its message may enter the way (once a message, the largest of its way).
  picoseconds handshake{0};
  /// Messages of one (source, destination, lane) that may be under way at once, the smallest of the way's classes; later ones wait at the
  /// sender until one has arrived. 0: no limit.
  int window = 0;
  /// For reports alone: of every element, all the time, and of every byte that it carries. 0: not said.
  std::uint64_t idle_microwatts = 0, femtojoules_a_byte = 0;
  std::string source{};  ///< where the numbers come from; for reports
};
using class_id = std::uint16_t;

/// The costs of a rank's own work, in the order of a step: receive (after the chunk has come), step, bytes, send (before it leaves).
struct host_costs {
  picoseconds launch{0};   ///< once, before a rank's first step
  picoseconds step{0};     ///< every step
  picoseconds send{0};     ///< every step that sends, besides
  picoseconds receive{0};  ///< every step that receives, besides
  picoseconds forward{
      0};  ///< every step that both receives and sends, besides: the next kernel's launch where the host drives each hop
  picoseconds transfer{0};        ///< every dma_get and dma_put, besides
  picoseconds finish{0};          ///< once, after a rank's last step
  std::uint64_t copy_rate = 0;    ///< bytes of result per second, of copies; 0: no time
  std::uint64_t reduce_rate = 0;  ///< of reductions
  /// `recv` and `recv_copy_send` need no copy of their own: the data lands in place (RDMA, direct P2P). False: they copy at
  /// copy_rate (BCopy).
  bool receive_in_place = true;
  /// A hardware barrier: every `sync` step ends this long after the last rank has reached it. Negative: syncs are rounds of empty
  /// messages.
  picoseconds sync{-1};
  /// Copies and reductions of a rank pass its DMA engine (the bytes they read and write), so that they contend with its messages;
  /// the
  /// step's fixed costs come on top. Not those within L0.
  bool work_uses_dma = false;
  std::string source{};
};

/// The effect of a protocol on a message (spec 5). The wire carries whole cells: ⌈bytes / payload⌉ · wire.
struct protocol_costs {
  std::string name{};              ///< "simple", "ll", "ll128"
  int wire = 1, payload = 1;       ///< LL: 8 bytes on the wire for 4; LL128: 128 for 120
  picoseconds latency{0};          ///< of every message, besides the way's
  int slots = 8;                   ///< messages under way per (source, destination, lane): the credits
  std::uint64_t slot_payload = 0;  ///< largest chunk; cells are cut into slices of at most so many bytes; 0: no limit
  std::string source{};
};

/// The bytes on the wire for `bytes` of payload: whole cells, each of `wire` bytes for `payload` of them.
constexpr std::uint64_t bytes_on_wire(std::uint64_t bytes, std::uint64_t wire, std::uint64_t payload) {
  return (bytes + payload - 1) / payload * wire;
}

/// One thing that messages pass, or that a rank's work occupies.
struct hardware_element {
  class_id of = 0;
  std::int32_t rank = -1;         ///< whose it is, if one rank's
  std::int32_t twin = -1;         ///< the other direction of the pair, −1: none
  std::int32_t slow_down = 1000;  ///< permille: 2000 makes it half as fast
  std::string name{};             ///< "nic 1:0 out"
};
/// Index into hardware::elements.
using element_index = std::int32_t;
inline constexpr element_index no_element = -1;

/// A time in which an element is slower, or carries nothing. What it carries then goes on when that is over: nothing is lost.
struct hardware_fault {
  element_index element = no_element;
  std::int64_t begin_ps = 0, end_ps = 0;
  std::int32_t slow_down = 0;  ///< permille, besides the element's own; 0: it is down
};

/// A rank whose process ends, or is stopped (or cut off). What the engine's protocol makes of it: actors/virtual/state_rank.hpp.
struct rank_loss {
  std::int32_t rank = -1;
  std::int64_t at_ps = 0;
  /// Until others take it for lost. 0: its process ends, and its connections with it, of which others hear as of a message. Else it has
  /// stopped, and they go by its silence.
  std::int64_t silence_ps = 0;
};
/// As join_options::silence.
inline constexpr picoseconds default_silence{std::chrono::seconds{3}};

/// Which of several ways a message takes.
enum class path_choice : std::uint8_t {
  fixed,  ///< the channel's, whatever its elements have to do
  adaptive,  ///< of `paths` channels' ways, the one through whose queues it would get soonest when its head comes to where they part
};

/// Where a rank's own work happens.
struct rank_place {
  element_index core = no_element;  ///< shared by the rank's lanes; none: every lane works for itself
  element_index dma = no_element;   ///< carries dma_get and dma_put; none: they cost host_costs alone
};

/// Appends the elements from rank `from` to rank `to`; `channel` chooses among parallel ways. Nothing appended: no time passes.
/// Must be pure; called once a (from, to, channel). @pre from ≠ to, both are ranks
using router = std::function<void(int from, int to, int channel, std::vector<element_index>& way)>;

/// Memory that a rank reaches: another rank's own, or the share of the segment that all address (L2, spec 1) which lies with rank `owner`
/// (shared_segment.hpp), who may be the one that reads or writes.
struct memory_place {
  int owner = 0;
  bool in_segment = false;
  bool operator==(const memory_place&) const = default;
};

/// The same for a rank that reads or writes there in a copy, reduction, dma_get or dma_put. Include the rank's own DMA engine where it carries
/// such transfers. May throw error(unsupported) for memory that `rank` cannot reach.
using memory_router = std::function<void(int rank, memory_place at, bool writes, std::vector<element_index>& way)>;

/// A switch that reduces what passes it, and multicasts: its lanes are a score's (protocols/score/score.hpp).
struct reducing_switch {
  int server = -1;                  ///< of the arrangement; −1: the network between servers
  element_index unit = no_element;  ///< occupied by every operand that is reduced, at its class's rate; fifo
};

/// Appends the elements between rank `rank` and switch number `which` of hardware::switches, towards it or from it.
using switch_router = std::function<void(int rank, int which, bool towards, std::vector<element_index>& way)>;

/// A machine. Build it with the members in the middle, then treat it as a constant: it may be read from any thread.
///
///   hardware h{"star", ranks};
///   const auto port = h.add_class({.name = "port", .latency = 1us, .bytes_per_second = 25 GB, .source = "…"});
///   for (int r = 0; r < ranks; ++r) up[r] = h.add(port, "up " + std::to_string(r), r);
///   h.way = [up, down](int from, int to, int, auto& way) { way = {up[from], down[to]}; };
class hardware {
public:
  hardware(std::string name, int ranks) : name(std::move(name)), ranks(ranks) {}

  // -- building --

  /// @throws error(bad_config) for a name that is taken or numbers out of range.
  class_id add_class(element_class of);
  element_index add(class_id of, std::string name, int rank = -1);
  /// Two directions. Which of them share an element is the class's `directions`, also when that is changed later.
  std::pair<element_index, element_index> add_pair(class_id of, std::string there, std::string back, int rank = -1);
  void place(int rank, rank_place at);

  // -- overriding --

  /// "nic.bandwidth" = "50GB/s", "link.latency" = "2us", "host.launch" = "25us", "protocol.ll.latency" = "1us",
  /// "nic.discipline" = "fair". Times and rates as in quantities.hpp.
  /// @throws error(bad_config) that names what there is, or what would be right.
  void set(std::string_view key, std::string_view value);
  /// Every key that set() takes, with its present value, in the order of the classes; for reports and messages.
  std::vector<std::pair<std::string, std::string>> settings() const;
  /// Makes every element whose name is `name`, or begins with it up to a space, `times` as slow (0.001 … 1000 ×).
  /// @throws error(bad_config) if there is none.
  void slow_down(std::string_view name, double times);
  /// The elements of that name, as slow_down(), are slower or down for a time: "4 from 1ms to 2ms", "down from 100us to 300us", "2 from 5ms" (to the
  /// end), several with commas. Or a rank, "rank 3", is lost: "exits at 2ms", "stops at 2ms", "stops at 2ms silence 500ms".
  /// @throws error(bad_config) for what is none of these, or overlaps
  void disturb(std::string_view name, std::string_view times);
  /// @throws error(bad_config) with the first thing that cannot be simulated.
  void validate() const;

  // -- reading --

  const element_class& class_of(element_index of) const { return classes[elements[static_cast<std::size_t>(of)].of]; }
  rank_place place_of(int rank) const { return places.empty() ? rank_place{} : places[static_cast<std::size_t>(rank)]; }
  /// The elements that `from` → `to` occupies; directions of half-duplex pairs are resolved to the one that stands for both.
  void route(int from, int to, int channel, std::vector<element_index>& way) const;
  /// The elements that an access to another rank's memory, or to the shared segment, occupies. @pre memory_way
  void access(int rank, memory_place at, bool writes, std::vector<element_index>& way) const;
  /// The elements between a rank and a switch that reduces. @pre `which` is one of switches
  void switch_route(int rank, int which, bool towards, std::vector<element_index>& way) const;
  /// Number of the switch of that server, or of the network for −1; −1 if it does not reduce.
  int switch_of(int server) const;
  /// How long `bytes` occupy a unit, without overhead. Rounded up to a picosecond; saturates.
  picoseconds occupancy(element_index of, std::uint64_t bytes) const;
  /// Alone on its way, all latencies and overheads included, protocol and host costs not.
  picoseconds time_alone(int from, int to, int channel, std::uint64_t bytes) const;
  /// The same of a way that is known.
  picoseconds time_along(std::span<const element_index> way, std::uint64_t bytes) const;
  /// nullptr if there is none of that name.
  const protocol_costs* protocol(std::string_view name) const;

  std::string name;
  int ranks = 0;
  std::string about;   ///< a sentence for reports
  layout arrangement;  ///< what choreographies get to see; flat unless the preset says otherwise
  std::vector<int>
      sides;  ///< of a torus or a mesh, for pictures: ranks along each, those of neighbouring numbers first; empty: unknown
  std::vector<element_class> classes;
  std::vector<hardware_element> elements;
  std::vector<rank_place> places;      ///< by rank; empty: nobody has any
  std::vector<hardware_fault> faults;  ///< by element and time; of fifo elements
  std::vector<rank_loss> losses;       ///< each rank at most once
  router way;
  path_choice routing = path_choice::fixed;
  int paths = 4;                          ///< adaptive: so many channels' ways are looked at (1 … 64)
  memory_router memory_way;               ///< empty: ranks share no memory, and choreographies that need it are refused
  std::vector<reducing_switch> switches;  ///< none: no choreography that lets a switch reduce can be performed
  switch_router switch_way;
  host_costs host;
  std::optional<nic_collectives> nics;    ///< collectives are performed as it says (actors/virtual/offload_run.hpp)
  std::vector<protocol_costs> protocols;  ///< plain_protocols() unless replaced

private:
  std::vector<element_index> named(std::string_view wanted) const;
  element_index resolved(element_index of) const;
  void resolve(std::vector<element_index>& way) const;
};

/// The machine as some of its ranks see it: rank i of the result is members[i]. Elements, their numbers and constants stay those of `whole`, so that
/// several parts contend for them. `places`: what choreographies get to see; of as many ranks as there are members.
/// @throws error(bad_config) for nobody, for a rank that there is not, and for one that is named twice
hardware part_of(const hardware& whole, std::vector<int> members, const layout& places);

/// Formats and slots of spec 5, without latency: simple (cut at no size), ll (4 of 8 bytes), ll128 (120 of 128).
std::vector<protocol_costs> plain_protocols();
/// Spec 5's table: latencies per hop 6, 1 and 2 µs; 512, 16 and 562.5 KiB of payload a slot.
std::vector<protocol_costs> gpu_protocols();

// -- presets --

/// The parameters of a preset besides the number of ranks. Constants are not in here: they belong to the classes, where
/// hardware::set() reaches them.
struct preset_request {
  int ranks = 0;                                               ///< 0: the preset's own
  std::string layout;                                          ///< "2x4x4" (layout.hpp); empty: the preset's own
  std::vector<std::pair<std::string, std::string>> structure;  ///< the preset's own keys: {"radix", "16"}
  /// The value of a key of `structure`. @throws error(bad_config) if it is no integer in [least, most].
  int number(std::string_view key, int otherwise, int least, int most) const;
};

struct preset {
  std::string_view name;
  std::string_view summary;    ///< one line
  std::string_view structure;  ///< keys of its own, separated by '|': "radix|oversubscription"; empty: none
  hardware (*build)(const preset_request& wanted);
};
/// All of topology/presets/, in the order of the documentation.
const std::vector<preset>& all_presets();
/// Builds one. @throws error(bad_config): no such preset (with a suggestion), a structure key that it does not have, what it
/// refuses.
hardware build_preset(std::string_view name, const preset_request& wanted);
/// The same from a longer list, for presets that need what is above this layer.
hardware build_preset(const std::vector<preset>& among, std::string_view name, const preset_request& wanted);

/// `flat`: every rank has a full-duplex port on one switch that never blocks: an up element and a down element, each with half
/// of the latency and all of the bandwidth. A message takes α + n·β; messages contend at the sender's up and the receiver's
/// down element, nowhere else. (SimGrid: SPLITDUPLEX links through one router, `lat` = α/2.) Defaults: 1 µs, 10 GB/s: round
/// figures.
hardware flat_hardware(int ranks);
/// The elements and routes of topology/machine/graph.hpp, with the constants of links.hpp: any layout of servers × cards × core groups.
/// Ranks reach each other's memory by the ways of messages; on a single card also a shared segment, spread over its core groups: an
/// access passes the rank's DMA engine and the ring segment next to it (an assumption, sources do not say where segments lie).
hardware machine_hardware(const machine& of);

}  // namespace troupe
