// SPDX-License-Identifier: Apache-2.0
#include "engine/world/wide_parts.hpp"

#include <algorithm>

#include "actors/waiting/napping.hpp"
#include "engine/planning/reduction_rules.hpp"
#include "memory/kernels/kernels.hpp"

namespace troupe {

namespace {

std::shared_ptr<float> floats(const std::shared_ptr<std::pmr::memory_resource>& memory, std::size_t count) {
  constexpr std::size_t alignment = 64;  // a cache line
  const std::size_t bytes = std::max<std::size_t>(1, count) * sizeof(float);
  return {static_cast<float*>(memory->allocate(bytes, alignment)),
          [memory, bytes](float* what) { memory->deallocate(what, bytes, alignment); }};
}

}  // namespace

std::unique_ptr<wide_parts> wide_parts::made_for(call_description& what, rank_t rank, int ranks,
                                                 const std::shared_ptr<std::pmr::memory_resource>& memory) {
  if (!rules_of(what.what, ranks).sums_in_f32) return nullptr;
  std::unique_ptr<wide_parts> made{new wide_parts{what, rank, ranks, memory}};
  what.input = made->input_.get();
  what.output = made->output_.get();
  // A rank that calls it with another type calls something else, though both perform f32.
  what.what.pieces_mark += static_cast<std::uint64_t>(what.what.type);
  what.what.type = datatype::f32;
  what.what.in_place = false;
  return made;
}

wide_parts::wide_parts(const call_description& what, rank_t rank, int ranks,
                       const std::shared_ptr<std::pmr::memory_resource>& memory)
    : called_(what),
      input_blocks_(static_cast<std::size_t>(input_blocks(what.what.what, ranks, what.what.root, rank).count)),
      output_blocks_(static_cast<std::size_t>(output_blocks(what.what.what, ranks, what.what.root, rank).count)),
      begins_(std::size_t{what.what.pieces} + 1),
      input_(floats(memory, input_blocks_ * what.what.count)),
      output_(floats(memory, output_blocks_ * what.what.count)),
      rounded_(output_blocks_ * what.what.pieces) {
  const call& c = what.what;
  for (std::size_t p = 1; p < begins_.size(); ++p)
    begins_[p] = c.counts.empty() ? p * c.count / c.pieces : begins_[p - 1] + c.counts[p - 1];
}

void wide_parts::begin_again() noexcept {
  for (std::atomic<progress>& one : rounded_) one.store(progress::arriving, std::memory_order_relaxed);
}

void wide_parts::widen(int part) noexcept {
  const call& c = called_.what;
  const auto* const from = static_cast<const std::byte*>(called_.input);
  for (std::size_t block = 0; block < input_blocks_; ++block) {
    const std::size_t at = block * c.count + begin_of(part);
    convert(c.type, from + at * size_of(c.type), datatype::f32, input_.get() + at, count_of(part));
  }
}

/// Reductions have one block of output at most, so parts of the output are those of a block.
void wide_parts::round(int part) noexcept {
  std::atomic<progress>& mine = rounded_[static_cast<std::size_t>(part)];
  auto was = progress::arriving;
  if (mine.compare_exchange_strong(was, progress::under_way)) {
    const call& c = called_.what;
    auto* const to = static_cast<std::byte*>(called_.output);
    convert(datatype::f32, output_.get() + begin_of(part), c.type, to + begin_of(part) * size_of(c.type),
            count_of(part));
    mine.store(progress::rounded, std::memory_order_release);
    return;
  }
  give_way_until([&] { return mine.load(std::memory_order_acquire) == progress::rounded; });
}

}  // namespace troupe
