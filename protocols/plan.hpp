// SPDX-License-Identifier: Apache-2.0
#pragma once
// The planner's decision for one kind of call, made once and shared by all ranks and all repetitions.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "memory/types/types.hpp"
#include "protocols/call.hpp"
#include "protocols/offload/descriptor_cache.hpp"
#include "protocols/program/direct_program.hpp"
#include "protocols/program/program.hpp"
#include "protocols/program/program_cache.hpp"
#include "protocols/program/slot_program.hpp"
#include "protocols/score/score.hpp"
#include "protocols/verify/verifier.hpp"

namespace troupe {

/// By chunk messages between the ranks' channels (actors/ports/mailbox).
struct mailbox_plan {
  cutting cut{};
  int credits = 8;         ///< chunks under way per (source, destination, lane)
  bool any_order = false;  ///< members of a fan are performed as they come
  bool agrees = false;     ///< nobody ends its part before it has heard of everybody; otherwise the membership is asked
  step_work work = step_work::at_once;  ///< other: in virtual time
  rank_t stride = 1;                    ///< rank r of the score is rank r · stride of the communicator
  program_cache<program> programs{};
};

/// By stores into the peers' cache lines (actors/ports/slots). The score's messages let nobody end before it has heard of everybody.
struct slots_plan {
  slot_format format = slot_format::ll128;
  program_cache<slot_program> programs{};
};

/// By any rank that is there, straight on all ranks' buffers (actors/ports/direct). Nobody begins before everybody has come.
struct direct_plan {
  bool between_processes = false;
  program_cache<direct_program> programs{};  ///< one for all: each rank may perform units of any
};

/// By the process's NIC, whose thread performs descriptors (actors/ports/nic). It begins when all ranks have posted the same call.
struct nic_plan {
  int credits = 8;                     ///< messages that a channel has under way
  std::size_t packet_bytes = 0;        ///< for which the descriptors are compiled
  std::vector<std::uint32_t> nodes{};  ///< by rank: whose NIC performs for it, by number; empty: one for all
  descriptor_cache descriptors{};
};

class plan;

/// In three stages (protocols/tiers.hpp): the ranks of each host over a board of theirs, the first ranks of the hosts by mailbox, and the
/// ranks of each host over their board again.
struct tiers_plan {
  int of_host = 1;                      ///< ranks of each host, which follow each other
  std::shared_ptr<const plan> collect;  ///< of a host's ranks; on a board
  std::shared_ptr<const plan> across;   ///< of the hosts' first ranks; by mailbox
  std::shared_ptr<const plan> spread;   ///< of a host's ranks; on a board
  int hosts() const;
};

/// Thread-safe once it is made. Programs are compiled when a rank first asks.
class plan {
public:
  plan() = default;
  plan& operator=(const plan&) = delete;
  /// The same choice, for another score: what was asked of this one's is not known of it.
  plan with_score(std::shared_ptr<const score> other, std::shared_ptr<const verdict> proof) const;

  std::string choreography;
  bool in_place = false;  ///< of the score: of the call, or brought about by staging
  /// Rooted, with a score for separate buffers: verified also for a root whose call is in place, which otherwise copies its input
  /// aside. Only the root knows whether it is.
  bool root_in_place = false;
  std::shared_ptr<const score> notes;  ///< lowered and verified; null in tiers, whose stages have their own
  std::shared_ptr<const verdict> verified;
  std::size_t count = 0;              ///< elements per block, at most; its programs are compiled for so many
  bool exact = true;                  ///< for calls with `count` elements only; else for all of the class (class_of)
  datatype work_type = datatype::u8;  ///< in which the score is performed
  bool widened = false;               ///< inputs are converted to work_type first, outputs back at the end
  bool scaled = false;                ///< inputs are multiplied first (pre_mul_sum)
  bool scales_reads = false;          ///< the folds multiply them as they read them instead; not over slots
  bool divides = false;  ///< the steps that complete a sum divide it (avg); else the ranks with a result do
  /// Over slots or by mailbox, rooted: the same without what makes ranks wait for others than their data come from. Performed where a call may run
  /// ahead.
  std::shared_ptr<const plan> ahead;
  bool runs_ahead = false;  ///< it is such a one
  /// Direct, rooted, blocks that differ in size: the same, by the port alone (actors/ports/direct/direct_ahead.cpp).
  bool gives_ahead = false;
  bool may_run_ahead() const { return ahead != nullptr || gives_ahead; }
  double predicted_seconds = 0;
  /// Of all that ranks must perform alike: part of the fingerprint. 0: of a test, never compared.
  std::uint64_t identity = 0;

  std::variant<mailbox_plan, slots_plan, direct_plan, nic_plan, tiers_plan> port;  ///< how chunks get to peers

  /// The value for `identity`, from digest(*notes) and the way in which the score is performed: the same for all sizes that share the plan, and in
  /// every process.
  std::uint64_t computed_identity(std::uint64_t score_digest) const;
  /// For people: "ring, protocol simple, 2 channels, 4 slices (1f9a03d2)".
  std::string title() const;

  // -- by port; null: another one performs it --
  const mailbox_plan* mailbox() const { return std::get_if<mailbox_plan>(&port); }
  const slots_plan* slots() const { return std::get_if<slots_plan>(&port); }
  const direct_plan* direct() const { return std::get_if<direct_plan>(&port); }
  const nic_plan* nic() const { return std::get_if<nic_plan>(&port); }
  const tiers_plan* tiers() const { return std::get_if<tiers_plan>(&port); }
  /// Performed by the holder of the rank's turn, one operation at a time, on memory that the ranks share.
  bool on_board() const { return slots() != nullptr || direct() != nullptr; }
  message_protocol protocol() const;
  /// Nobody ends its part before it has heard of everybody.
  bool agrees() const { return mailbox() == nullptr || mailbox()->agrees; }
  /// Boards and NICs know no channels and no slices.
  cutting cut() const { return mailbox() == nullptr ? cutting{} : mailbox()->cut; }
  step_work work() const { return mailbox() == nullptr ? step_work::at_once : mailbox()->work; }

  /// The programs, for `count` elements: a call of other sizes fits a copy. @pre mailbox()
  std::shared_ptr<const program> program_of(rank_t rank) const;
  /// @pre slots()
  std::shared_ptr<const slot_program> slot_program_of(rank_t rank) const;
  /// Of all ranks. @pre direct()
  std::shared_ptr<const direct_program> direct_program_of_all() const;
  /// For exactly so many elements a block, since addresses and lengths are compiled into descriptors. @pre nic()
  /// @param counts of blocks that differ in size; empty: they are equal
  std::shared_ptr<const offload::rank_program> descriptors_of(rank_t rank, std::size_t elements,
                                                              std::span<const std::size_t> counts = {}) const;

  call_shape shape() const { return {count, {}, {}, {}, size_of(work_type)}; }

private:
  program compiled(rank_t rank) const;
  bool shares_memory() const;

  plan(const plan& like);

  mutable std::atomic<int> shares_memory_{-1};  ///< not asked yet
};

inline int tiers_plan::hosts() const { return across->notes->ranks; }

}  // namespace troupe
