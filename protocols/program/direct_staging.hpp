// SPDX-License-Identifier: Apache-2.0
#pragma once
// Between processes the others map little of a caller's data. What they would have to ask the system for, byte by byte, a rank copies to memory
// that all map, its *staging buffer*: what they read before it comes, and what they write after the operation. That is done where it takes less time than the
// system's copies, which look up and pin every page (actors/ports/segment/copy_costs.hpp), and within these bounds.
//
// And who works there: copies from inputs to outputs each rank performs alone, straight to its own output, unless all of them together are so little that
// the last one that comes should do everything: then nobody has to be woken but for the end.

#include <cstddef>

#include "protocols/program/direct_program.hpp"

namespace troupe::direct_staging {

/// Bytes of a rank's input, or of its output, that are staged; longer ones the system copies, in pieces that stay in a cache. A staging buffer is kept for
/// the next operation, so this bounds what a rank and communicator keeps, too.
inline constexpr std::size_t most_input = std::size_t{16} << 20;
inline constexpr std::size_t most_output = std::size_t{2} << 20;
/// Read and written by all ranks' copies together, for the last one that comes to perform them.
inline constexpr std::size_t most_by_one = std::size_t{128} << 10;

/// A rank's input of so many bytes may be staged. @param used what others do with its buffers
inline bool may_stage_input(const direct_program::use_by_others& used, std::size_t bytes) {
  return bytes > 0 && used.reads_input && bytes <= most_input;
}
/// Longer outputs are not staged; of copies from inputs to outputs those that each rank performs alone.
inline std::size_t longest_output(const direct_program& code) {
  return code.to_own.empty() ? most_output : most_by_one;
}
/// A rank's output of so many bytes may be staged, if ranks do not copy alone.
inline bool may_stage_output(const direct_program& code, const direct_program::use_by_others& used, std::size_t bytes) {
  return bytes > 0 && !used.outputs.empty() && bytes <= longest_output(code);
}

}  // namespace troupe::direct_staging
