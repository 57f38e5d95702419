// SPDX-License-Identifier: Apache-2.0
#pragma once
// A score in which every rank, between two meetings of all, does local steps straight on all ranks' buffers (choreographies/fused.cpp),
// made ready for the direct port (direct_board.hpp).
//
// Such a program is [tokens] [local steps] [tokens] at every rank. If every token that a rank receives before its local steps was sent
// by its peer before the peer's, no token orders the steps of one rank after those of another; the verifier has then shown that
// steps of different ranks do not conflict. So it is enough that nobody begins before all have come, and that nobody leaves before all
// steps are performed; any rank may perform them. That is what the direct port does, in place of the tokens.
//
// A rank's local steps are its *body*, cut into *units* of equal length: unit k performs the k-th part of each step, one after the other.
// Steps of a body that touch the same memory must do so element by element at the same places; else the body stays one unit.
//
// All that knows no size: direct_sizes.hpp says what a call's sizes make of it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "protocols/program/program.hpp"

namespace troupe {

/// All ranks' part in one operation. Immutable once it is made; shared by threads.
struct direct_program {
  /// outputs := fold of inputs, which have as many elements.
  struct pass {
    std::uint32_t operands = 0;  ///< first in direct_program::operands: `inputs` sources, then `outputs` targets
    std::uint16_t inputs = 0;
    std::uint16_t outputs = 0;
    bool completes = false;  ///< see instruction
    std::size_t all() const { return std::size_t{inputs} + outputs; }
  };
  struct body {
    std::vector<pass> passes;
    bool divisible = true;
    std::size_t cells = 0;        ///< read and written by all passes
    std::size_t operands = 0;     ///< of all passes
    std::vector<extent> scratch;  ///< of the rank, one behind the other
  };

  std::vector<body> bodies;     ///< by rank
  std::vector<rank_t> at_work;  ///< whose bodies have passes; rank 0, if none has
  /// If all passes only copy blocks of inputs to outputs: by rank, those to its output (source, then target in `operands`), so that each
  /// rank may perform its own from copies of the inputs. Empty for others, and where ranks are many.
  std::vector<std::vector<std::uint32_t>> copies;
  /// `copies` are to one root, and every other rank's body is the copy of its own input.
  bool by_source = false;
  struct copy_between {
    std::uint32_t source, target;  ///< in `operands`
  };
  /// If all passes only copy from inputs to outputs, in any order: by rank, those to its output. Empty for others.
  std::vector<std::vector<copy_between>> to_own;
  /// Accesses by bodies to the buffers of another rank; or, by `to_own`, of other ranks.
  struct use_by_others {
    bool reads_input = false;
    std::vector<std::uint32_t> inputs;  ///< in `operands`: of `to_own`, what others read of its input; empty: all of it
    std::vector<std::uint32_t> outputs;  ///< in `operands`: all targets in its output, if others write some of them
  };
  std::vector<use_by_others> used;  ///< by rank
  /// The traffic between ranks: of inputs, that others read; of outputs, that others write. On average.
  struct passing {
    double times = 0;  ///< each byte
    double part = 1;   ///< of a rank's input or output, at once
    int owners = 0;    ///< ranks whose input or output it is
    int others = 0;    ///< ranks that read or write there
  };
  passing read_by_others, written_by_others;
  /// Of `to_own`: what others read of inputs, by all that its copies read.
  double staged_share = 0;
  std::size_t most_inputs = 0;       ///< of a pass
  std::vector<cell_range> operands;  ///< each names its owner, never `self`
  sum_handling sums;
  collective what = collective::barrier;
  rank_t root = 0;
  int parts = 1;                  ///< cells of a block
  std::size_t cells = 0;          ///< read and written by all bodies
  std::size_t most_operands = 0;  ///< of a pass
  std::uint64_t identity = 0;     ///< only copies have the same

  std::span<const cell_range> operands_of(const pass& p) const {
    return std::span(operands).subspan(p.operands, p.all());
  }
};

/// Which call the programs belong to.
struct direct_setting {
  collective what = collective::barrier;
  rank_t root = 0;
  bool in_place = false;  ///< input and output are one memory
  bool between_processes = false;
};

/// Makes one direct_program of the ranks' programs. Each may be let go once it was added: those of many ranks together are several times as large as
/// what is made of them.
class direct_compiler {
public:
  /// @param steps of the score, so that memory is asked for once; 0: not known
  direct_compiler(const direct_setting& setting, int ranks, std::size_t steps = 0);
  ~direct_compiler();
  direct_compiler(direct_compiler&&) noexcept;
  direct_compiler& operator=(direct_compiler&&) = delete;

  /// In the order of the ranks. False: see why_not(). @pre as compile_direct()
  bool add(const program& of_next_rank);
  /// Why they cannot be performed so, as a sentence; empty while they can.
  const std::string& why_not() const;
  /// Throws error(unsupported) with why_not(). Once. @pre all ranks' were added, or one could not be
  direct_program finish();

private:
  class hidden;
  std::unique_ptr<hidden> hidden_;
};

using program_list = std::span<const std::shared_ptr<const program>>;

/// Why the programs of all ranks cannot be performed so, as a sentence; empty if they can.
std::string why_not_direct(program_list all);

/// Throws error(unsupported) with why_not_direct(). @pre the programs are those of one verified score, cut into one channel and slice
direct_program compile_direct(program_list all, const direct_setting& setting);

}  // namespace troupe
