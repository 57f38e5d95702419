// SPDX-License-Identifier: Apache-2.0
#include "actors/rank/staging.hpp"

#include "actors/rank/operation.hpp"
#include "memory/kernels/kernels.hpp"
#include "protocols/in_place.hpp"

namespace troupe::actors {

namespace {

const std::byte* as_bytes(const void* p) { return static_cast<const std::byte*>(p); }

/// Of block i of one of the rank's own buffers. Of several blocks it knows each; of its only one it may know others', too.
std::size_t elements_of_block(const call& what, std::span<const std::size_t> counts, const block_run& run, int i) {
  if (what.uniform) return what.count;
  if (run.count > 1) return counts[static_cast<std::size_t>(i)];
  return counts.size() == 1 ? counts[0] : counts[static_cast<std::size_t>(run.first)];
}

std::size_t elements_of(const call& what, std::span<const std::size_t> counts, const block_run& run) {
  std::size_t sum = 0;
  for (int i = 0; i < run.count; ++i) sum += elements_of_block(what, counts, run, i);
  return sum;
}

void stage_elements(const plan& how, const call& what, const std::byte* from, std::byte* to, std::size_t count) {
  if (count == 0) return;
  if (how.widened) convert(what.type, from, how.work_type, to, count);
  else if (!how.scaled) troupe::copy(to, from, count * size_of(how.work_type));
  if (!how.scaled) return;
  // As scale() does for the call's type: low-precision types are multiplied by an f32.
  const double factor = what.reduction.scale;
  scale(how.work_type, how.widened ? static_cast<double>(static_cast<float>(factor)) : factor, how.widened ? to : from,
        to, count);
}

bool root_may_need_copy(const plan& how, const call& what, rank_t rank) {
  return !how.in_place && !how.root_in_place && has_root(what.what) && what.root == rank;
}

/// Each for itself, without a word about it.
bool any_rank_may_need_copy(const plan& how, const call& what) {
  return !how.in_place && !what.in_place && !what.uniform && agrees_on_place(what.what, false) &&
         has_empty_block(what.counts);
}

/// Its blocks come where other blocks lie.
bool exchanges_blocks(const call& what) { return traits_of(what.what).v == v_counts::every_pair && !what.uniform; }

/// As of the root of a call among several ranks: how many they are does not matter to the place.
own_blocks own_blocks_of(const call& what, rank_t rank) {
  own_blocks own{.inputs = input_blocks(what.what, 2, 0, 0).count,
                 .outputs = output_blocks(what.what, 2, 0, 0).count,
                 .own = static_cast<std::size_t>(rank),
                 .count = what.count};
  if (!what.uniform) own.counts = what.counts;
  return own;
}

}  // namespace

std::size_t input_elements(const call& what, int ranks, rank_t rank) {
  return elements_of(what, what.counts, input_blocks(what.what, ranks, what.root, rank));
}

std::size_t output_elements(const call& what, int ranks, rank_t rank) {
  const auto& counts = exchanges_blocks(what) ? what.receive_counts : what.counts;
  return elements_of(what, counts, output_blocks(what.what, ranks, what.root, rank));
}

bool input_is_larger(collective what) { return input_blocks(what, 2, 0, 0).count > output_blocks(what, 2, 0, 0).count; }

std::size_t own_block_begin(const call& what, rank_t rank, std::span<const std::size_t> displacements) {
  return block_count(what.what, 2) == 1 ? 0 : own_blocks_of(what, rank).own_begin(displacements);
}

bool lies_in_place(const call& what, rank_t rank, const call_buffers& m) {
  if (m.input == nullptr || m.output == nullptr) return false;
  own_blocks own = own_blocks_of(what, rank);
  own.input_displacements = m.input_displacements;
  own.output_displacements = m.output_displacements;
  return troupe::lies_in_place(own, m.input, m.output, size_of(what.type));
}

bool root_needs_copy(const plan& how, const call& what, rank_t rank, const call_buffers& memory) {
  return root_may_need_copy(how, what, rank) && lies_in_place(what, rank, memory);
}

bool may_keep_input_apart(const plan& how, const call& what, rank_t rank) {
  return exchanges_blocks(what) || root_may_need_copy(how, what, rank) || any_rank_may_need_copy(how, what);
}

bool keeps_input_apart(const plan& how, const call& what, rank_t rank, const call_buffers& memory) {
  if (exchanges_blocks(what)) return memory.input == memory.output && memory.input != nullptr;
  if (any_rank_may_need_copy(how, what)) return lies_in_place(what, rank, memory);
  return root_needs_copy(how, what, rank, memory);
}

void stage_input(const plan& how, const call& what, int ranks, rank_t rank, const void* input,
                 std::span<const std::size_t> displacements, void* to) {
  const block_run run = input_blocks(what.what, ranks, what.root, rank);
  auto* place = static_cast<std::byte*>(to);
  if (displacements.empty())
    return stage_elements(how, what, as_bytes(input), place, elements_of(what, what.counts, run));
  for (int i = 0; i < run.count; ++i) {
    const std::size_t count = elements_of_block(what, what.counts, run, i);
    const std::size_t before = displacements[static_cast<std::size_t>(i)] * size_of(what.type);
    if (count > 0) stage_elements(how, what, as_bytes(input) + before, place, count);
    place += count * size_of(how.work_type);
  }
}

void finish_output(const plan& how, const call& what, int ranks, rank_t rank, void* result, void* output) {
  const std::size_t count = output_elements(what, ranks, rank);
  if (count == 0) return;
  if (divides_at_end(how, what)) {
    const int terms = contributor_count(what.what, ranks, what.root, rank);
    divide(how.work_type, static_cast<std::size_t>(terms), result, result, count);
  }
  if (how.widened) convert(how.work_type, result, what.type, output, count);
  else if (result != output) troupe::copy(output, result, count * size_of(how.work_type));
}

}  // namespace troupe::actors
