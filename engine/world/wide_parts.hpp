// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <vector>

#include "memory/export.hpp"
#include "protocols/call_description.hpp"

namespace troupe {

/// The buffers of f32 that a partitioned reduction of low-precision elements goes over, so that its sums are rounded once, when they are
/// complete, as those of the whole call are (reduction_rules): a part is widened when it gets ready, and rounded when somebody first looks at what has
/// arrived.
///   begin_again()   at each start
///   widen(part)     before it is announced, once; any thread
///   round(part)     when it has arrived: any threads, any number of times; the caller's output has it when this returns
/// 4 bytes an element of input and output for as long as the operation is there. Nothing allocates after it was made.
class TROUPE_INTERNAL wide_parts {
public:
  /// Makes `what` a call of f32 on buffers of its own. Null: its sums may be of its own type, and it stays what it is. Throws std::bad_alloc.
  /// @pre partitioned and checked
  static std::unique_ptr<wide_parts> made_for(call_description& what, rank_t rank, int ranks,
                                              const std::shared_ptr<std::pmr::memory_resource>& memory);

  void begin_again() noexcept;
  void widen(int part) noexcept;
  void round(int part) noexcept;
  /// Of the call as its caller made it.
  const call& called() const { return called_.what; }

private:
  wide_parts(const call_description& what, rank_t rank, int ranks,
             const std::shared_ptr<std::pmr::memory_resource>& memory);

  enum class progress : std::uint8_t { arriving, under_way, rounded };
  std::size_t begin_of(int part) const { return begins_[static_cast<std::size_t>(part)]; }
  std::size_t count_of(int part) const { return begin_of(part + 1) - begin_of(part); }

  const call_description called_;
  const std::size_t input_blocks_, output_blocks_;
  std::vector<std::size_t> begins_;  ///< of the parts in a block, and its end
  std::shared_ptr<float> input_, output_;
  std::vector<std::atomic<progress>> rounded_;  ///< by part of the output
};

}  // namespace troupe
