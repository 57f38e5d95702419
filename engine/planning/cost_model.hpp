// SPDX-License-Identifier: Apache-2.0
#pragma once
// How long a score takes, predicted. A LogGP-like model (Alexandrov et al., 1995) of the in-process engine: a step has a fixed cost and
// a cost a byte, a message has a latency, and all ranks share the machine's cores.
//
// The prediction is only used to choose among candidates and to tell people; nothing depends on its being right.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/large_pages.hpp"
#include "protocols/program/program.hpp"
#include "protocols/score/score.hpp"
#include "protocols/score/score_tally.hpp"
#include "topology/machine/graph.hpp"
#include "topology/reach.hpp"

namespace troupe {

/// What a message costs besides its steps. Seconds.
struct message_costs {
  double message = 0.5e-6;  ///< one chunk and its credit through two channels, until the receiver runs
  double sending = 0;       ///< of it: while the sender's rank can do nothing else, nor send in another lane
  double send_byte = 0;     ///< a byte that a sender takes besides …
  double receive_byte = 0;  ///< … and a receiver
  double idle = 0;  ///< of `message`: it is on a wire, or waits until the receiver has a core, and nobody works for it
};

/// What a machine costs. Times in seconds, rates in bytes of result per second and core.
/// The defaults are round figures; the planner takes them from engine/planning/tuning.hpp.
struct machine_constants {
  /// By what they go through: a reach; then the network between groups of hosts, by how many borders of theirs (pods, racks of pods …) lie between.
  std::array<message_costs, reach_count + most_borders> messages;
  double step = 0.05e-6;       ///< one instruction of a performer, without its bytes
  double operand = 0.01e-6;    ///< one more input or output of a pass over several (program.hpp: fold)
  double operand_share = 0.5;  ///< what its bytes cost, of a step of its own
  /// The thread that waits for the path performs all lanes of its rank, one after the other: what it does in others comes on top.
  bool one_thread = false;
  double message_share = 1;  ///< of message_costs::message without `idle`: how much of it a core works
  /// In a layout that places ranks on several core groups: an element of the machine is told of a chunk or a packet, and tells the next.
  double element = 0.5e-6;
  double copy_rate = 12e9;    ///< one read, one write
  double reduce_rate = 10e9;  ///< two reads, one write
  int cores = 1;              ///< that can really run at once

  const message_costs& over(reach way) const { return messages[static_cast<std::size_t>(way)]; }
};

/// A score's steps reduced to what they cost. Independent of the size; immutable, so freely shared by threads.
class timing_sheet {
public:
  /// @pre `s` has no sync. Wrong indices in `s` are not looked at: a score that is performed was verified.
  /// @param where null: all ranks are in one process
  /// @param elements that messages pass (reach_map::routed); null: none
  explicit timing_sheet(const score& s, const reach_map* where = nullptr, const machine* elements = nullptr);

  /// Seconds until the last rank is done.
  /// @param cell_bytes of one cell (block bytes / parts), before cutting.
  /// @param staging_bytes that every rank copies or converts besides, before and after.
  /// Infinite if the score cannot go on with these credits. At most four slices, or two groups of slices that go together, are simulated; the
  /// others take as long as the last.
  double predict(double cell_bytes, const cutting& cut, int credits, const machine_constants& machine,
                 double staging_bytes = 0) const;

  std::size_t steps() const { return steps_.size(); }
  /// Messages that follow one another.
  double hops(int credits) const;

private:
  friend class rehearsal;
  struct timed_step {
    std::int32_t receives = -1;  ///< queue it takes a message from
    std::int32_t sends = -1;     ///< queue it puts a message into
    std::int32_t after = -1;     ///< index in steps_
    std::int32_t cells = 0;
    float copied = 0;        ///< copies of the cells that its work amounts to …
    float reduced = 0;       ///< … and reductions
    bool continues = false;  ///< only one more operand of the step before
    bool by_engine = false;  ///< a DMA engine copies, as it is told, and tells when it has
  };
  struct timed_lane {
    std::uint32_t begin = 0, end = 0;  ///< in steps_
    std::int32_t rank = 0;
  };
  /// An element that a queue's messages pass, and what it does with each.
  struct crossing {
    std::uint32_t element = 0;  ///< of those that the score uses
    bool copies = false;        ///< its bytes
    bool by_packet = false;     ///< it is told of each packet; else of the whole chunk
  };
  class passage;

  large_vector<timed_step> steps_;
  std::vector<timed_lane> lanes_;
  std::vector<std::uint32_t> first_lane_;  ///< by rank; one more at the end
  std::vector<std::int32_t> receiver_;     ///< by queue: lane, −1 if nobody
  std::vector<std::int32_t> sender_;
  std::vector<std::uint8_t> way_;             ///< by queue: in machine_constants::messages
  std::vector<std::uint32_t> first_message_;  ///< by queue, of all queues' messages of a slice; one more at the end
  std::vector<crossing> crossings_;
  std::vector<std::uint32_t> first_crossing_;  ///< by queue; one more at the end
  std::uint32_t elements_ = 0;
};

/// No more than what timing_sheet::predict() says of any score with that tally, however lowered, cut into so many channels at most and any
/// number of slices. All messages cost what they cost over `nearest`, the cheapest way that there is.
struct least_time {
  double work = 0;  ///< of the busiest rank, or of all ranks by all cores
  double path = 0;  ///< messages that follow one another
  double seconds() const { return work > path ? work : path; }
};
least_time least_of(const score_tally& of, double cell_bytes, const machine_constants& machine,
                    double staging_bytes = 0, int most_channels = 1, reach nearest = reach::process);

/// `bytes` rounded down to two leading fractional bits (… 64 K, 80 K, 96 K, 112 K, 128 K …): such a class shares its predictions.
std::size_t size_class(std::size_t bytes);

}  // namespace troupe
