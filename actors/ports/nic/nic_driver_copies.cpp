// SPDX-License-Identifier: Apache-2.0
// Memory of ranks in other processes, as the driver's NIC works on it: where both map it, or in copies. Those are made a piece at a time between packets
// of other operations, so that nobody waits for a long one. Between two pieces a part may be recalled; then no other piece follows.

#include <algorithm>
#include <cstring>

#include "actors/ports/nic/nic_driver.hpp"
#include "actors/ports/segment/board_memory.hpp"
#include "memory/error.hpp"

namespace troupe::actors {

namespace {
/// Some 20 µs for the system; much longer than what a copy costs besides its bytes.
constexpr std::size_t piece = std::size_t{256} * 1024;
/// Of an output behind an input in a copy of both.
constexpr std::size_t staging_alignment = 64;
}  // namespace

/// Where the NIC finds it: at an address here, if both map it, else in copies. Buffers that overlap there overlap here.
void nic_driver::lay_out(part& p) {
  const nic_posting& what = p.what;
  staging& to = p.staged;
  const std::byte *const in = what.memory.input, *const out = what.memory.output;
  const std::size_t in_bytes = in != nullptr ? what.input_bytes : 0, out_bytes = out != nullptr ? what.output_bytes : 0;
  if (in_bytes > 0 && !what.brings_input) to.input = what.far->near(what.far_rank, what.memory.input);
  if (out_bytes > 0) to.output = what.far->near(what.far_rank, what.memory.output);
  to.reads = in_bytes > 0 && to.input == nullptr;
  to.writes = out_bytes > 0 && to.output == nullptr;
  const bool overlap = to.reads && to.writes && in < out + out_bytes && out < in + in_bytes;
  if (overlap) {
    const std::byte* const begin = std::min(in, out);
    to.input_at = static_cast<std::size_t>(in - begin);
    to.output_at = static_cast<std::size_t>(out - begin);
    to.bytes = std::max(to.input_at + in_bytes, to.output_at + out_bytes);
    return;
  }
  to.bytes = to.reads ? in_bytes : 0;
  if (!to.writes) return;
  to.output_at = (to.bytes + staging_alignment - 1) / staging_alignment * staging_alignment;
  to.bytes = to.output_at + out_bytes;
}

/// What the NIC is told of the part's memory. @pre laid out
memory_map nic_driver::staging_for(part& p) {
  memory_map memory = p.what.memory;
  p.scratch = scratch_.acquire(p.what.program->scratch_bytes);
  memory.scratch = static_cast<std::byte*>(p.scratch.data());
  if (p.what.far == nullptr) return memory;
  staging& to = p.staged;
  if (to.bytes > 0) to.memory = scratch_.acquire(to.bytes);
  auto* const begin = static_cast<std::byte*>(to.memory.data());
  memory.input = to.input = to.reads ? begin + to.input_at : to.input;
  if (to.reads && p.what.brings_input) {
    std::memcpy(to.input, p.what.inline_input.data(), p.what.input_bytes);
    to.reads = false;
  }
  memory.output = to.output = to.writes ? begin + to.output_at : to.output;
  return memory;
}

bool nic_driver::copy_some(picoseconds now) {
  if (coming_.empty() && leaving_.empty()) return false;
  if (!coming_.empty()) {
    const key which = coming_.front();
    coming_.pop_front();
    if (bring_piece(which, now)) coming_.push_back(which);
  }
  if (!leaving_.empty()) {
    const auto [which, rank] = leaving_.front();
    leaving_.pop_front();
    if (take_piece(which, rank)) leaving_.emplace_back(which, rank);
  }
  return true;
}

/// False: all inputs are here, and the NIC has the operation; or it goes no further.
bool nic_driver::bring_piece(const key& which, picoseconds now) {
  const auto at = jobs_.find(which);
  if (at == jobs_.end() || !at->second.runs_as) return false;  // recalled meanwhile
  job& of = at->second;
  try {
    for (part& p : of.parts) {
      staging& to = p.staged;
      if (!to.reads || to.copied == p.what.input_bytes) continue;
      const std::size_t bytes = std::min(piece, p.what.input_bytes - to.copied);
      if (!p.what.far->read(p.what.far_rank, to.input + to.copied, p.what.memory.input + to.copied, bytes)) {
        stop(which, of, now);  // its process has ended, and the failure is on its way
        return false;
      }
      to.copied += bytes;
      return true;
    }
    for (part& p : of.parts) p.staged.copied = 0;
    hand_over(which, of, now);
  } catch (const error& e) {  // the system forbids it, or the NIC
    fail(which, of, e.code_value(), e.what(), now);
  }
  return false;
}

/// False: the rank has its result and was told, or needs none.
bool nic_driver::take_piece(const key& which, rank_t rank) {
  const auto at = jobs_.find(which);
  if (at == jobs_.end() || !at->second.runs_as) return false;  // recalled meanwhile
  auto& parts = at->second.parts;
  const auto mine = std::ranges::find_if(parts, [&](const part& p) { return p.what.rank == rank; });
  if (mine == parts.end()) return false;
  staging& from = mine->staged;
  const std::size_t all = mine->what.output_bytes, bytes = std::min(piece, all - from.copied);
  failure_ptr why;
  try {
    // A process that has ended needs no result.
    const bool there = mine->what.far->write(mine->what.far_rank, mine->what.memory.output + from.copied,
                                             from.output + from.copied, bytes);
    from.copied = there ? from.copied + bytes : all;
  } catch (const error& e) {
    why = make_failure(e.code_value(), e.what());
  }
  if (!why && from.copied < all) return true;
  conclude(at, mine, why);
  return false;
}

}  // namespace troupe::actors
