// SPDX-License-Identifier: Apache-2.0
#pragma once
// The descriptions that a rank has found right and begun on its boards lately, with their buffers: their repetition is not checked
// again, nor looked up.

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "actors/ports/remembered_calls.hpp"
#include "protocols/call_description.hpp"

namespace troupe::actors {

/// What of a description decides whether it is right, and which remembered call it is.
struct checked_call {
  const void* input = nullptr;
  const void* output = nullptr;
  std::size_t count = 0, input_limit = 0, output_limit = 0;
  std::uint64_t kind = 0;  ///< collective, type, operation, root
  bool operator==(const checked_call&) const = default;

  std::uint64_t hash() const {
    const auto word = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p); };
    return (word(input) ^ std::rotl(word(output), 21) ^ std::rotl(count, 42)) * 0x9e3779b97f4a7c15u ^ kind;
  }
};

/// Of blocks of one size, without options but a deadline, and of an operation that is known by its kind; else nothing.
inline std::optional<checked_call> repeatable(const call_description& d) {
  const call& c = d.what;
  const call_options& o = d.options;
  const op& with = c.reduction;
  // The count of an all_to_all on ranges is found by the check.
  if (traits_of(c.what).v == v_counts::every_pair && d.input_limit != static_cast<std::size_t>(-1)) return std::nullopt;
  if (!c.uniform || o.level || o.protocol != message_protocol::unset || o.agreement != agreement_time::unset ||
      !o.choreography.empty() || o.tag != 0 || with.kind == op_kind::user || with.kind == op_kind::pre_mul_sum ||
      d.object_elements != 1 || !d.input_displacements.empty() || !d.output_displacements.empty())
    return std::nullopt;
  return checked_call{d.input,
                      d.output,
                      c.count,
                      d.input_limit,
                      d.output_limit,
                      static_cast<std::uint64_t>(c.what) | static_cast<std::uint64_t>(c.type) << 8 |
                          static_cast<std::uint64_t>(with.kind) << 16 | (with.commutative ? 0x1000000u : 0u) |
                          (with.associative ? 0x2000000u : 0u) |
                          static_cast<std::uint64_t>(static_cast<std::uint32_t>(c.root)) << 32};
}

/// Whoever has the rank's turn uses it, but may_be(), which anybody may ask.
class checked_calls {
public:
  /// False: it is not here. Or it has been lost since.
  bool may_be(const checked_call& asked) const {
    return place_of(asked).hash.load(std::memory_order_relaxed) == asked.hash();
  }
  /// The remembered call that it is, or null.
  remembered_calls::entry* find(const checked_call& asked) const {
    const place& p = place_of(asked);
    return p.of != nullptr && p.key == asked ? p.of : nullptr;
  }
  void put(const checked_call& checked, remembered_calls::entry& of) {
    place& p = places_[index_of(checked)];
    if (p.of == &of && p.key == checked) return;
    p.key = checked;
    p.of = &of;
    p.hash.store(checked.hash(), std::memory_order_relaxed);
  }
  /// A remembered call goes.
  void forget_all() {
    for (place& p : places_) {
      p.of = nullptr;
      p.hash.store(0, std::memory_order_relaxed);
    }
  }

private:
  struct place {
    std::atomic<std::uint64_t> hash{0};
    checked_call key;
    remembered_calls::entry* of = nullptr;
  };
  static constexpr std::size_t place_count = 16;

  /// Roots that follow each other, and collectives or types that alternate, have places of their own.
  static std::size_t index_of(const checked_call& c) { return (c.kind + (c.kind >> 8) + (c.kind >> 32)) % place_count; }
  const place& place_of(const checked_call& c) const { return places_[index_of(c)]; }

  std::array<place, place_count> places_;
};

}  // namespace troupe::actors
