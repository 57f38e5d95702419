#pragma once
// What the planner decided for one kind of call, made once and shared by all ranks and all repetitions.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "memory/short_lock.hpp"
#include "memory/types/types.hpp"
#include "protocols/program/program.hpp"
#include "protocols/program/slot_program.hpp"
#include "protocols/score/score.hpp"
#include "protocols/verify/verifier.hpp"

namespace troupe {

/// Thread-safe. Programs are compiled when a rank first asks.
class plan {
public:
  plan() = default;
  /// The same for another number of elements: choice, score and proof know no size. @pre uniform
  plan(const plan& like, std::size_t elements);

  std::string choreography;
  std::string protocol = "simple";   ///< or "ll", "ll128": over slots; "direct": by the callers, on all ranks' buffers
  std::optional<slot_format> slots;  ///< performed over the slot board, by whoever calls, in this format
  bool direct = false;               ///< with `slots`: over its direct board, as direct_program.hpp says
  bool in_place = false;             ///< of the score: of the call, or brought about by staging
  /// Rooted, with a score for separate buffers: verified also for a root whose call is in place, which otherwise copies its input
  /// aside. Only the root knows whether it is.
  bool root_in_place = false;
  std::shared_ptr<const score> notes;  ///< lowered and verified
  std::shared_ptr<const verdict> verified;
  std::size_t count = 0;            ///< elements per block
  std::vector<std::size_t> counts;  ///< per block, if they differ
  cutting cut;
  int credits = 8;
  datatype work_type = datatype::u8;  ///< in which the score is performed
  bool widened = false;               ///< inputs are converted to work_type first, outputs back at the end
  bool scaled = false;                ///< inputs are multiplied first (pre_mul_sum)
  bool any_order = false;
  bool agrees = false;  ///< nobody ends its part before it has heard of everybody; otherwise the membership is asked
  double predicted_seconds = 0;
  /// Of all that ranks must perform alike: part of the fingerprint. 0: of a test, never compared.
  std::uint64_t identity = 0;

  /// What `identity` should be, from digest(*notes) and how the score is performed: the same for all sizes that share the plan, and in
  /// every process.
  std::uint64_t computed_identity(std::uint64_t score_digest) const;
  /// For people: "ring, protocol simple, 2 channels, 4 slices (1f9a03d2)".
  std::string title() const;

  /// The program of `rank`; displacements (elements per block) make it this call's own and are not cached.
  std::shared_ptr<const program> program_of(rank_t rank, std::span<const std::size_t> input_displacements = {},
                                            std::span<const std::size_t> output_displacements = {}) const;

  /// The same for the slot board. @pre slots
  std::shared_ptr<const slot_program> slot_program_of(rank_t rank) const;

  call_shape shape() const { return {count, counts, {}, {}, size_of(work_type)}; }

private:
  std::shared_ptr<const direct_program> direct_program_of_all() const;
  template <class Program, class Make>
  std::shared_ptr<const Program> kept(std::vector<std::shared_ptr<const Program>>& all, rank_t rank, Make&& make) const;

  mutable short_lock lock_;  ///< of the programs; taken once an operation
  mutable std::vector<std::shared_ptr<const program>> programs_;
  mutable std::vector<std::shared_ptr<const slot_program>> slot_programs_;
  mutable std::shared_ptr<const direct_program> direct_program_;
};

}  // namespace troupe
