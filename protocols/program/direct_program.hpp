#pragma once
// A score in which every rank, between two meetings of all, does local steps straight on all ranks' buffers (choreographies/fused.cpp),
// made ready for the direct port (direct_board.hpp).
//
// Such a program is [tokens] [local steps] [tokens] at every rank. If every token that a rank receives before its local steps was sent
// by its peer before the peer's, no token orders the steps of one rank after those of another; the verifier has then shown that
// steps of different ranks do not conflict. So it is enough that nobody begins before all have come, and that nobody leaves before all
// steps are performed; who performs them does not matter. That is what the direct port does, in place of the tokens.
//
// A rank's local steps are its *body*, cut into *units* of equal length: unit k performs the k-th part of each step, one after the other.
// Steps of a body that touch the same memory must do so element by element at the same places; else the body stays one unit.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "memory/kernels/kernels.hpp"
#include "protocols/program/program.hpp"

namespace troupe {

/// All ranks' part in one operation. Immutable after compile_direct(); shared by threads.
struct direct_program {
  /// outputs := fold of inputs. Operands name their owner, never `self`.
  struct pass {
    std::uint32_t operands = 0;  ///< first in direct_program::operands: `inputs` sources, then `outputs` targets
    std::uint16_t inputs = 0;
    std::uint16_t outputs = 0;
    bool completes = false;  ///< see instruction
    std::size_t elements = 0;
  };
  struct body {
    std::vector<pass> passes;
    std::uint32_t units = 0;
    std::size_t scratch_bytes = 0;  ///< what the rank's memory_map::scratch must have
  };

  std::vector<body> bodies;  ///< by rank; at least one has a unit
  std::vector<location> operands;
  std::size_t element_size = 1;
  sum_handling sums;
  std::size_t units = 0;          ///< of all bodies
  std::size_t bytes = 0;          ///< read and written by all bodies
  std::size_t most_operands = 0;  ///< of a pass
  store_hint stores = store_hint::cached;
};

/// Which call the programs belong to: where input and output are one memory.
struct direct_setting {
  collective what = collective::barrier;
  bool in_place = false;
  std::size_t block_bytes = 0;
};

using program_list = std::span<const std::shared_ptr<const program>>;

/// Why the programs of all ranks cannot be performed so, as a sentence; empty if they can.
std::string why_not_direct(program_list all);

/// Throws error(unsupported) with why_not_direct(). @pre the programs are those of one verified score, cut into one channel and slice
direct_program compile_direct(program_list all, const direct_setting& setting);

}  // namespace troupe
