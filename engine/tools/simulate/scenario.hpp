// SPDX-License-Identifier: Apache-2.0
#pragma once
// The plan of a simulated run: which ranks call what, and what goes wrong. All of it follows from one seed, and is plain data, so that a
// failing one can be made smaller (campaign.hpp) and printed.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/tools/simulate/plan_source.hpp"
#include "protocols/call.hpp"

namespace troupe::simulate {

/// What may go wrong. Each is drawn by the seed where it is allowed.
struct fault_kinds {
  bool lose = true;   ///< chunks by mailbox; between hosts a host with them
  bool twice = true;  ///< chunks and credits come twice
  bool delay = true;  ///< messages take far longer than others
  bool kill = true;   ///< a rank's actor ends
  bool abort = true;
  bool cancel = true;
  bool deadline = true;
  bool leave = true;     ///< a rank leaves early
  bool mismatch = true;  ///< a rank calls something else, or leaves a call out
  bool raise = true;     ///< a user's reduction throws
  bool refuse = true;    ///< a rank's call is refused there
  bool any() const {
    return lose || twice || delay || kill || abort || cancel || deadline || leave || mismatch || raise || refuse;
  }
};
/// "all", "none", or names with commas between. Throws error(bad_config).
fault_kinds parse_faults(const std::string& text);

struct part_of_split;

/// One call that all ranks make, or one message from one rank to another.
struct item {
  int id = 0;  ///< names its random choices; stays when others are taken out
  bool pair = false;
  rank_t from = 0, to = 0;          ///< of a pair
  int tag = 0;                      ///< of a pair
  call what;                        ///< as all ranks call it; of a pair count and type
  std::vector<std::size_t> counts;  ///< v-forms: of all blocks
  int asks_about = -1;              ///< with what.outcome_of: id of the item whose outcome is asked for
  way how;
  std::vector<std::int32_t> divided;  ///< of a split: color and key of each rank
  std::vector<part_of_split> parts;   ///< and what those of a color call in their part
  bool splits() const { return !divided.empty(); }
};

/// Something that one rank does differently, or that happens to it.
struct disturbance {
  enum class kind : std::uint8_t {
    other_call,  ///< the rank calls `instead`
    skip,        ///< or does not call it
    cancel,      ///< `after` it was called
    deadline,    ///< of `after`
    leave,       ///< the rank leaves before that item, with what is under way
    raise,       ///< its reduction throws at its `number`-th call
    kill,        ///< its actor ends, at the virtual time `after`; with an item: so long after the rank has called it
    abort,       ///< the same
    refuse,      ///< the rank's call is refused there
  };
  kind what = kind::skip;
  rank_t rank = 0;
  int item = -1;  ///< id; −1: none
  std::int64_t after_ns = 0;
  int number = 1;
  std::vector<simulate::item> instead;  ///< none or one
};
std::string_view name(disturbance::kind what);

/// A process of a host ends, or is stopped and counts as lost: with its ranks, its NIC's thread and its end of what they share with the NIC that performs.
struct process_loss {
  enum class kind : std::uint8_t {
    killed,     ///< at the virtual time `after`
    uncounted,  ///< from then on in its first posting: it is in the queue, and not counted
    unrung,     ///< it is counted, and nobody was woken
    stopped,    ///< at that time; its NIC's thread may go on later where it was
    at_work,    ///< the same, from then on while its NIC performs something
  };
  int host = 0, process = -1;  ///< −1: none
  kind what = kind::killed;
  std::int64_t after_ns = 0;
  std::int64_t goes_on_after_ns = -1;  ///< one that was stopped; −1: it does not
  bool any() const { return process >= 0; }
};
std::string_view name(process_loss::kind what);

/// What the hosts' NICs are like, where there are any: smaller than an engine's, so that messages are several packets and buffers fill.
struct nic_shape {
  int packet_bytes = 0;     ///< 0: there is none
  std::size_t packets = 0;  ///< that a unit's buffer has room for
  int units = 0;
  std::size_t scratch = 0;          ///< bytes
  int processes = 1;                ///< of each host, each with a NIC: neighbouring ranks live in one
  bool maps = false;                ///< the ranks' memory is mapped by all processes of the host; else it is copied
  bool nicd = false;                ///< one more process is the NIC for all of them
  std::int64_t ends_after_ns = -1;  ///< that one; −1: it does not
  bool ends_in_order = false;       ///< and lets go of everything first; else it is killed
  process_loss loses{};
  bool any() const { return packet_bytes > 0; }
};

struct scenario {
  std::uint64_t seed = 0;
  int ranks = 2;
  int of_host = 0;  ///< ranks of each of several hosts, which follow each other; 0: all share memory
  nic_shape nic;
  int channels = 1;         ///< of the communicator
  std::uint64_t first = 0;  ///< number of the first collective
  bool dma = false;         ///< copies between ranks' memory are done by an engine, later
  bool leave_late = false;  ///< handles live until every rank's thread has ended
  bool all_async = false;
  bool pairs_by_mailbox = false;  ///< sends and receives; else over the pair board
  bool parts_by_mailbox = false;  ///< partitioned operations; else over boards of links
  bool sends_are_left = false;    ///< blocking ones that are short: over when they lie on the board
  unsigned most_ahead = 3;        ///< operations in a row that may run ahead
  bool strangers = false;         ///< nobody knows which threads there are, so that all of them wait
  std::vector<item> items;
  std::vector<disturbance> disturbances;
  int lose_percent = 0, twice_percent = 0, late_percent = 0;
  int calm = 0;  ///< 1: all messages take the same time; for shrinking

  /// Several lines, for people.
  std::string to_string() const;
  std::size_t size() const;
  int hosts() const { return of_host > 0 ? ranks / of_host : 1; }
  int host_of(rank_t rank) const { return of_host > 0 ? rank / of_host : 0; }
  int ranks_of_host() const { return of_host > 0 ? of_host : ranks; }
  /// Of its host.
  int process_of(rank_t rank) const { return rank % ranks_of_host() * nic.processes / ranks_of_host(); }
  /// This one, and those of the parts in it.
  std::vector<scenario*> all();
  /// Anything is done to anybody, here or in a part.
  bool disturbed() const;
};

/// What the ranks of one color call in their communicator. Of its scenario only what the part has for itself counts: seed, ranks, items,
/// disturbances, how long its handles live. Everything else it has from the whole, as a communicator has it from its engine.
struct part_of_split {
  std::int32_t color = 0;
  scenario what;
};
/// Nothing: nobody has said what that part does.
const part_of_split* part_for(const item& of, std::int32_t color);
/// `of` with so many ranks: the last ones of the whole are taken out, and out of the parts who was one of them. False: something in it needs them.
bool leave_out_ranks(scenario& of, int ranks, plan_source& plans);

struct scenario_limits {
  int least_ranks = 1, most_ranks = 5;
  int most_items = 8;
  fault_kinds faults;
};

/// @pre least_ranks ≥ 1
scenario make_scenario(std::uint64_t seed, const scenario_limits& limits, plan_source& plans);

/// What `rank` calls of a collective, counts included.
call call_of(const item& of, int ranks, rank_t rank);

}  // namespace troupe::simulate
