// SPDX-License-Identifier: Apache-2.0
// Work on the buffers of ranks in other processes, which the system copies from and to.

#include <algorithm>

#include "actors/ports/direct/direct_performer.hpp"
#include "actors/ports/slots/slot_board.hpp"
#include "memory/kernels/kernels.hpp"

namespace troupe {

namespace {

/// Of an operand: long beside what a copy by the system costs besides its bytes (0.4 µs), and all operands' pieces stay in a core's cache.
constexpr std::size_t longest_piece = 64 * 1024, shortest_piece = 8 * 1024, all_pieces = 256 * 1024;

}  // namespace

// -- lists ------------------------------------------------------------------------------------------------------------

/// The rank's own, for those who meet it. @pre `here` is away
void direct_performer::list() {
  relative<std::atomic<std::uint64_t>>& at = meeting_place().at(rank_).listed;
  std::atomic<std::uint64_t>* to = at.load(std::memory_order_relaxed);
  if (to == nullptr) {
    to = static_cast<std::atomic<std::uint64_t>*>(board_->memory().take(direct_board::listed_bytes(board_->ranks())));
    if (to == nullptr) throw std::bad_alloc{};
    at.store(to, std::memory_order_release);
  }
  const block_lists& mine = sizes().mine();
  const std::vector<std::size_t>* const all[] = {&mine.counts, &mine.received, &mine.input_begins, &mine.output_begins};
  for (const auto* each : all) (to++)->store(each->size(), std::memory_order_release);
  for (const auto* each : all)
    for (const std::size_t n : *each) (to++)->store(n, std::memory_order_release);
}

/// As they are at its seat; they count if its `here` is the operation's afterwards.
const block_lists* direct_performer::lists_of(rank_t which) {
  const auto* from = meeting_place().at(which).listed.load(std::memory_order_acquire);
  if (from == nullptr) return nullptr;
  if (lists_read_.empty()) lists_read_.resize(static_cast<std::size_t>(board_->ranks()));
  block_lists& to = lists_read_[static_cast<std::size_t>(which)];
  std::vector<std::size_t>* const all[] = {&to.counts, &to.received, &to.input_begins, &to.output_begins};
  const auto most = static_cast<std::uint64_t>(board_->ranks());
  for (auto* each : all) each->resize(std::min(most, (from++)->load(std::memory_order_acquire)));
  for (auto* each : all)
    for (std::size_t& n : *each) n = (from++)->load(std::memory_order_acquire);
  return &to;
}

// -- buffers ----------------------------------------------------------------------------------------------------------

/// Of a rank that was met: what lies in memory that its process shares (host_segment.hpp) is worked on as if it were here.
void direct_performer::map_what_is_shared(rank_t which) {
  buffers& of = buffers_[static_cast<std::size_t>(which)];
  const auto map = [&](std::byte*& at, bool& near) {
    std::byte* const here = at == nullptr ? nullptr : others_->near(which, at);
    near = here != nullptr;
    if (near) at = here;
  };
  map(of.input, of.input_near);
  map(of.output, of.output_near);
  map(of.scratch, of.scratch_near);
}

// -- work -------------------------------------------------------------------------------------------------------------

/// False: a process has ended.
bool direct_performer::perform_between(const direct_program::pass& p, stretch which) {
  const bool scales = code_->sums.scales_inputs && p.inputs > 1;
  const bool copies = p.inputs == 1 && !scales && !(p.completes && code_->sums.divisor != 1);
  return copies ? copy_between(code_->operands_of(p), which) : fold_between(p, which);
}

bool direct_performer::copy_between(std::span<const cell_range> operands, stretch which) {
  const std::size_t size = sizes().element_size(), bytes = (which.end - which.begin) * size;
  const std::size_t offset = which.begin * size;
  const cell_range& source = operands.front();
  std::byte* const from = address(source) + offset;
  const std::byte* near = is_here(source) ? from : nullptr;
  for (const cell_range& target : operands.subspan(1)) {
    if (!is_here(target)) continue;
    std::byte* const to = address(target) + offset;
    if (near == nullptr && !others_->read(source.owner, to, from, bytes)) return false;
    if (near != nullptr && near != to) copy(to, near, bytes);
    near = to;
  }
  const std::size_t piece = near != nullptr ? bytes : std::min(bytes, longest_piece);
  if (near == nullptr && pieces_.size() < piece) pieces_.resize(piece);
  for (std::size_t at = 0; at < bytes; at += piece) {
    const std::size_t now = std::min(piece, bytes - at);
    const std::byte* data = near != nullptr ? near + at : pieces_.data();
    if (near == nullptr && !others_->read(source.owner, pieces_.data(), from + at, now)) return false;
    for (const cell_range& target : operands.subspan(1))
      if (!is_here(target) && !others_->write(target.owner, address(target) + offset + at, data, now)) return false;
  }
  return true;
}

/// Piece by piece: what is far is read, all is folded into one near result or more, and that goes to those that are far.
bool direct_performer::fold_between(const direct_program::pass& p, stretch which) {
  const auto operands = code_->operands_of(p), inputs = operands.first(p.inputs), outputs = operands.subspan(p.inputs);
  const auto here = [&](const cell_range& at) { return is_here(at); };
  const auto far_inputs = inputs.size() - static_cast<std::size_t>(std::ranges::count_if(inputs, here));
  const auto near_outputs = static_cast<std::size_t>(std::ranges::count_if(outputs, here));
  const std::size_t size = sizes().element_size();
  const std::size_t bytes = std::clamp(all_pieces / (far_inputs + 1), shortest_piece, longest_piece);
  const std::size_t most = std::max<std::size_t>(1, bytes / size), room = most * size;
  if (pieces_.size() < (far_inputs + 1) * room) pieces_.resize((far_inputs + 1) * room);
  const bool scales = code_->sums.scales_inputs && p.inputs > 1;
  for (std::size_t at = which.begin; at < which.end; at += most) {
    const std::size_t count = std::min(most, which.end - at);
    std::byte* stage = pieces_.data() + room;  // behind a result that is nobody's here
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      std::byte* const from = address(inputs[i]) + at * size;
      const bool near = is_here(inputs[i]);
      if (!near && !others_->read(inputs[i].owner, stage, from, count * size)) return false;
      in_[i] = near ? from : stage;
      if (!near) stage += room;
      if (scales) factors_[i] = buffers_[static_cast<std::size_t>(inputs[i].owner)].factor;
    }
    std::size_t n = 0;
    for (const cell_range& to : outputs)
      if (is_here(to)) out_[n++] = address(to) + at * size;
    if (n == 0) out_[n++] = pieces_.data();
    const store_hint hint = near_outputs == outputs.size() ? sizes().stores() : store_hint::cached;
    reduce_many(type_, reduction_, {in_.data(), p.inputs}, {out_.data(), n}, count, hint,
                {scales ? factors_.data() : nullptr, p.completes ? code_->sums.divisor : 1});
    for (const cell_range& to : outputs)
      if (!is_here(to) &&
          !others_->write(to.owner, address(to) + at * size, static_cast<const std::byte*>(out_[0]), count * size))
        return false;
  }
  return true;
}

}  // namespace troupe
