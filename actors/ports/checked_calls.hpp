// SPDX-License-Identifier: Apache-2.0
#pragma once
// The descriptions that a rank has found right and begun on its boards lately, with their buffers: their repetition is not checked
// again, nor looked up. Where blocks differ in size, buffers and lists are often others in every call: those are read every time, and what is
// remembered is the class, whose calls are not looked up again.

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "actors/ports/remembered_calls.hpp"
#include "protocols/call_description.hpp"

namespace troupe::actors {

/// The part of a description that decides whether it is right, and which remembered call it is. Where blocks differ in size it decides only which call
/// it is: its buffers and lists are looked at every time.
struct checked_call {
  const void* input = nullptr;
  const void* output = nullptr;
  std::size_t count = 0, input_limit = 0, output_limit = 0;
  std::uint64_t kind = 0;  ///< packed(): collective, form, type, operation; and the root
  std::uint64_t scale = std::bit_cast<std::uint64_t>(1.0);  ///< the bits of op::scale: −0 and NaN are factors, too

  bool has_lists() const { return (kind & packed(collective{}, false, false, datatype{})) != 0; }
  bool operator==(const checked_call&) const = default;
  std::uint64_t hash() const {
    const auto word = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p); };
    return (word(input) ^ std::rotl(word(output), 21) ^ std::rotl(count, 42) ^ scale) * 0x9e3779b97f4a7c15u ^ kind;
  }
};

/// checked_call::kind. A root has all of its bits, since it has not been checked yet.
inline std::uint64_t checked_kind(std::uint64_t form, const op& with, rank_t root) {
  return form | packed(with) | static_cast<std::uint64_t>(static_cast<std::uint32_t>(root)) << 32;
}

/// Without options but a deadline, of an operation of which its kind and its factor say all that matters.
inline bool is_known_by_words(const op& with, const call_options& options) {
  return !options.any_but_deadline() && with.kind != op_kind::user;
}

/// The same, of blocks of one size, and with nothing that the check changes; else nothing.
inline std::optional<checked_call> repeatable(const call_description& d) {
  const call& c = d.what;
  // The count of an all_to_all on ranges is found by the check.
  if (!c.uniform || c.outcome_of || c.purpose != call_purpose::itself ||
      (traits_of(c.what).v == v_counts::every_pair && d.input_limit != static_cast<std::size_t>(-1)))
    return std::nullopt;
  const bool displaced = !d.input_displacements.empty() || !d.output_displacements.empty();
  if (!is_known_by_words(c.reduction, d.options) || d.object_elements != 1 || displaced) return std::nullopt;
  return checked_call{d.input,
                      d.output,
                      c.count,
                      d.input_limit,
                      d.output_limit,
                      checked_kind(packed(c.what, true, false, c.type), c.reduction, c.root),
                      std::bit_cast<std::uint64_t>(c.reduction.scale)};
}

/// The same of what is no description yet.
inline std::optional<checked_call> repeatable(const plain_call& c) {
  const collective_traits& traits = traits_of(c.what);
  if (traits.v == v_counts::every_pair && c.input_limit != plain_call::unknown) return std::nullopt;
  if (!is_known_by_words(c.reduction, c.options) || c.object_elements != 1) return std::nullopt;
  return checked_call{
      c.input,
      c.output,
      c.count,
      c.input_limit,
      c.output_limit,
      checked_kind(packed(c.what, true, false, c.type), c.reduction, traits.root != root_role::none ? c.root : 0),
      std::bit_cast<std::uint64_t>(c.reduction.scale)};
}

/// Of one that was found right. @pre is_known_by_words()
inline checked_call words_of(const listed_call& c) {
  checked_call words;
  words.kind = checked_kind(packed(c.what, false, c.in_place, c.type), *c.reduction, c.root);
  words.scale = std::bit_cast<std::uint64_t>(c.reduction->scale);
  if (traits_of(c.what).v == v_counts::common && !c.counts.empty()) {
    words.count = largest_of_class(std::ranges::max(c.counts));
    if (has_empty_block(c.counts)) words.kind ^= packed_empty_block;
  }
  return words;
}

/// For the holder of the rank's turn, except place_if(), which any thread may call.
class checked_calls {
public:
  class place {
  public:
    /// The remembered call that these words were of; null: others have come in between.
    remembered_calls::entry* of_words(const checked_call& asked) const { return key_ == asked ? of_ : nullptr; }

  private:
    friend class checked_calls;
    std::atomic<std::uint64_t> hash_{0};
    checked_call key_;
    remembered_calls::entry* of_ = nullptr;
  };

  /// Null: it is not here. Or it has been lost since.
  const place* place_if(const checked_call& asked) const {
    const place& p = places_[index_of(asked)];
    return p.hash_.load(std::memory_order_relaxed) == asked.hash() ? &p : nullptr;
  }
  void put(const checked_call& checked, remembered_calls::entry& of) {
    place& p = places_[index_of(checked)];
    p.key_ = checked;
    p.of_ = &of;
    p.hash_.store(checked.hash(), std::memory_order_relaxed);
  }
  /// A remembered call goes.
  void forget_all() {
    for (place& p : places_) {
      p.of_ = nullptr;
      p.hash_.store(0, std::memory_order_relaxed);
    }
  }

private:
  static constexpr std::size_t place_count = 32;

  /// Roots that follow each other, and collectives or types that alternate, have places of their own; so have the forms of a collective, and
  /// the classes that follow each other where blocks differ in size.
  static std::size_t index_of(const checked_call& c) {
    std::size_t index = c.kind + (c.kind >> 16) + (c.kind >> 32);
    if (c.has_lists()) index += place_count / 2 + number_of_class(c.count);
    return index % place_count;
  }
  /// Of a largest_of_class(): they are numbered one after the other.
  static std::size_t number_of_class(std::size_t largest) {
    if (largest <= 16) return largest;
    const auto octave = static_cast<std::size_t>(std::bit_width(largest - 1));
    return 4 * octave + (((largest - 1) >> (octave - 3)) & 3);
  }
  std::array<place, place_count> places_;
};

}  // namespace troupe::actors
