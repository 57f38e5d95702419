// SPDX-License-Identifier: Apache-2.0
#pragma once
// Performs a score in virtual time: by the states of real runs, one a rank, on modelled hardware, under a deterministic
// scheduler with a virtual clock (virtual_scheduler.hpp). No CAF in this header.
//
// One thread, no wall clock, no randomness: the same arguments give the same result, event by event.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "memory/error.hpp"
#include "memory/types/types.hpp"
#include "protocols/perform/performer.hpp"
#include "protocols/program/program.hpp"
#include "protocols/score/score.hpp"
#include "topology/machine/hardware.hpp"

namespace troupe {

/// What a span of an actor's time was spent on. The order is that of study JSON's "span_kinds".
enum class span_kind : std::uint8_t { send, reduce, copy, wait_chunk, wait_credit, occupy, launch, sync, compute };
inline constexpr int span_kind_count = 9;
std::string_view name(span_kind kind) noexcept;

/// Times in picoseconds since the common start. Actors: rank r is actor r; element e is actor ranks + e.
struct virtual_span {
  std::int32_t actor = -1;
  span_kind kind = span_kind::occupy;
  rank_t from = -1;  ///< occupy: the message's; wait_chunk: whom it waits for; else −1
  rank_t to = -1;
  std::int32_t lane = -1;  ///< of ranks' spans: channel × lanes per channel + lane
  std::int32_t step = -1;  ///< position in the score's lane
  std::int64_t begin = 0, end = 0;
  std::int64_t bytes = 0;
  std::int64_t flow = -1;  ///< number of the message
};

/// A chunk's journey, from the step that sends it until it is taken.
struct virtual_move {
  std::int64_t flow = 0;
  rank_t from = -1, to = -1;
  std::int64_t begin = 0, end = 0;  ///< sent; arrived
  std::int64_t block =
      -1;  ///< of the (first) cell that it carries, as at the sender; −1: a token, or a partial sum in scratch
  std::int32_t part = -1;
  std::int32_t cells = 1;  ///< how many it carries, which follow one another
  std::int64_t bytes = 0;  ///< of payload
  bool reduces = false;    ///< the receiver combines it with its own
};

/// Why a lane could begin a step no earlier: the last thing that it needed. Recorded for the critical path.
struct virtual_cause {
  enum class reason : std::uint8_t { start, own_step, arrival, credit, other_lane, sync, element };
  reason why = reason::start;
  rank_t rank = -1;
  std::int32_t lane = -1, step = -1, slice = 0;
  std::int64_t begin = 0, end = 0;  ///< of the step's work
  std::int32_t previous = -1;       ///< index of the cause that this one followed, −1: the start
  std::int32_t own_previous = -1;   ///< of the lane's step before this one, −1: it is the first
  rank_t from = -1;                 ///< arrival: sender
  std::int32_t first_queue = 0;     ///< arrival: of the recording's queues, those in which the message waited
  std::int32_t queues = 0;
};

/// A message waited here for an element.
struct virtual_queue {
  std::int32_t element = -1;
  std::int64_t begin = 0, end = 0;
};

/// The records that a run is asked to keep. Costs about 60–100 bytes a step and element passed: not for millions of steps.
struct virtual_recording {
  std::size_t most = 2'000'000;  ///< spans; more are dropped, and `complete` is false
  bool complete = true;
  std::vector<virtual_span> spans;    ///< in the order in which they began to be known; not sorted by time
  std::vector<virtual_move> moves;    ///< by flow
  std::vector<virtual_cause> causes;  ///< by completion; walk from `last` by `previous`
  std::vector<virtual_queue> queues;  ///< of causes: first_queue and the next ones, in the order of the way
  std::int32_t last = -1;
};

enum class payload : std::uint8_t {
  none,  ///< no memory is touched; buffers may be null. Scales to hundreds of thousands of ranks
  real,  ///< the bytes are moved and reduced by the same kernels as in a real run
};

/// What performs the ranks' parts.
enum class performed_by : std::uint8_t {
  automatic,  ///< the states, unless the run is so large that they would cost too much time and memory
  states,     ///< the ranks', channels' and membership's states of a real run
  player,     ///< what causes the same events without them; moves no bytes
};

struct virtual_options {
  protocol_costs protocol;  ///< of the hardware's table, or one's own; `slots` are the credits
  payload carry = payload::none;
  performed_by by = performed_by::automatic;
  datatype type = datatype::f32;
  op reduction = sum;
  bool any_order = false;  ///< determinism `fast`: fans in the order of arrival
  /// Picoseconds by which ranks begin late (stragglers); empty: all at 0.
  std::vector<std::int64_t> skew;
  /// A computation on every rank's core, from its start: `compute` picoseconds in `compute_blocks` equal pieces, each of which
  /// occupies the core (and the DMA engine, for `compute_dma_bytes` of it). Before the collective, or beside it when `overlap`.
  std::int64_t compute = 0;
  int compute_blocks = 1;
  std::uint64_t compute_dma_bytes = 0;  ///< a block
  bool overlap = false;
  /// payload::real: where each rank's input and output begin. By rank.
  std::span<const memory_map> memory{};
  virtual_recording* record = nullptr;
  /// Called now and then with the number of events so far; false ends the run with error(cancelled).
  bool (*go_on)(void* context, std::uint64_t events) = nullptr;
  void* context = nullptr;
  /// Of perform_virtually() alone: a run whose clock has gone further may end there, as `given_up`. Picoseconds.
  std::int64_t give_up_after = std::numeric_limits<std::int64_t>::max();
};

/// What one element did.
struct element_use {
  std::int64_t busy_ps = 0;  ///< occupied, summed over units
  std::uint64_t bytes = 0;   ///< on the wire
  std::uint64_t messages = 0;
  std::int64_t queued_ps = 0;  ///< that messages waited for it
};

/// How a rank's operation ended, where ranks are lost.
struct virtual_end {
  bool lost = false;  ///< the rank itself: it ended with its process
  errc code{};        ///< 0: as it should
  std::string why;
};

struct virtual_outcome {
  std::int64_t end_ps = 0;             ///< the last rank's completion
  std::vector<std::int64_t> finished;  ///< by rank; of a lost one: when that was, unless it had finished before
  std::vector<virtual_end> ends;       ///< by rank, where one was lost before all had finished; else empty
  std::vector<element_use> use;        ///< by element
  std::uint64_t steps = 0;             ///< instructions performed
  std::uint64_t messages = 0;          ///< chunks, tokens included
  std::uint64_t payload_bytes = 0;     ///< sent (and received) by ranks
  std::uint64_t events = 0;
  std::int64_t waited_chunk_ps = 0;  ///< lanes' time, summed over ranks
  std::int64_t waited_credit_ps = 0;
  double buffer_fill =
      -1;  ///< where NICs perform: mean fill of the root's hash buffers, 1 is all but the reserve; −1: they do not
  bool by_states = false;   ///< performed_by: who it was
  bool given_up = false;    ///< it would end later than `end_ps`, and nothing else is known of it
  std::uint64_t trace = 0;  ///< hash over every event in order: equal runs have equal traces
};

/// @param notes lowered (sync steps may stay if hardware.host.sync ≥ 0) and right: verified, or made by a verified generator.
/// @param shape as for compile(); with payload::real, displacements as there.
/// @throws error: invalid_argument (hardware for other ranks, …), message_lost (the lanes wait for each other: says which; only
/// with unverified scores), out_of_memory, cancelled.
virtual_outcome perform_virtually(const score& notes, const call_shape& shape, const cutting& cut, const hardware& on,
                                  const virtual_options& options);

}  // namespace troupe
