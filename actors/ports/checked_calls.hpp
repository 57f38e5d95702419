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
#include <utility>
#include <vector>

#include "actors/ports/remembered_calls.hpp"
#include "protocols/call_description.hpp"

namespace troupe::actors {

/// What of a description decides whether it is right, and which remembered call it is.
struct checked_call {
  const void* input = nullptr;
  const void* output = nullptr;
  std::size_t count = 0, input_limit = 0, output_limit = 0;
  std::uint64_t kind = 0;  ///< collective, form, type, operation, root
  /// Whose lists of counts and displacements belong to it; null: blocks of one size. Refers to the description while that is checked
  /// and begun, and is null in what is kept.
  const call_description* lists = nullptr;

  static constexpr std::uint64_t has_lists = std::uint64_t{1} << 26;  ///< in `kind`

  bool same_but_lists(const checked_call& other) const {
    return input == other.input && output == other.output && count == other.count && input_limit == other.input_limit &&
           output_limit == other.output_limit && kind == other.kind;
  }

  std::uint64_t hash() const {
    const auto word = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p); };
    std::uint64_t h = (word(input) ^ std::rotl(word(output), 21) ^ std::rotl(count, 42)) * 0x9e3779b97f4a7c15u ^ kind;
    if (lists == nullptr) return h;
    for (const auto* list : {&lists->what.counts, &lists->what.receive_counts})
      for (const std::size_t n : *list) h = (std::rotl(h, 5) ^ n) * 0x9e3779b97f4a7c15u;
    return h;
  }
};

inline std::uint64_t checked_kind(collective what, datatype type, const op& with, rank_t root) {
  return static_cast<std::uint64_t>(what) | static_cast<std::uint64_t>(type) << 8 |
         static_cast<std::uint64_t>(with.kind) << 16 | (with.commutative ? 0x1000000u : 0u) |
         (with.associative ? 0x2000000u : 0u) | static_cast<std::uint64_t>(static_cast<std::uint32_t>(root)) << 32;
}

/// Its kind says all that matters of it.
inline bool known_by_kind(const op& with) { return with.kind != op_kind::user && with.kind != op_kind::pre_mul_sum; }

/// Without options but a deadline, of an operation that is known by its kind, and with nothing that the check changes; else nothing.
/// @param rank the caller's. What is returned refers to `d` where that has lists.
inline std::optional<checked_call> repeatable(const call_description& d, rank_t rank) {
  const call& c = d.what;
  const op& with = c.reduction;
  // The count of an all_to_all on ranges is found by the check.
  if (c.uniform && traits_of(c.what).v == v_counts::every_pair && d.input_limit != static_cast<std::size_t>(-1))
    return std::nullopt;
  if (d.options.any_but_deadline() || !known_by_kind(with) || d.object_elements != 1 || c.outcome_of)
    return std::nullopt;
  const bool displaced = !d.input_displacements.empty() || !d.output_displacements.empty();
  if (c.uniform && displaced) return std::nullopt;
  // Who is no root keeps only its own count of such lists.
  if (!c.uniform && traits_of(c.what).v == v_counts::rooted && c.root != rank && (c.counts.size() != 1 || displaced))
    return std::nullopt;
  return checked_call{d.input,
                      d.output,
                      c.count,
                      d.input_limit,
                      d.output_limit,
                      checked_kind(c.what, c.type, with, c.root) | (c.uniform ? 0 : checked_call::has_lists),
                      c.uniform ? nullptr : &d};
}

/// The same of what is no description yet.
inline std::optional<checked_call> repeatable(const plain_call& c) {
  const collective_traits& traits = traits_of(c.what);
  if (traits.v == v_counts::every_pair && c.input_limit != plain_call::unknown) return std::nullopt;
  const op& with = c.reduction;
  if (c.options.any_but_deadline() || !known_by_kind(with) || c.object_elements != 1) return std::nullopt;
  return checked_call{c.input,        c.output,
                      c.count,        c.input_limit,
                      c.output_limit, checked_kind(c.what, c.type, with, traits.root != root_role::none ? c.root : 0),
                      nullptr};
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
    return p.of != nullptr && p.is(asked) ? p.of : nullptr;
  }
  /// Throws std::bad_alloc where lists are longer than any that were here before; then nothing is here.
  void put(const checked_call& checked, remembered_calls::entry& of) {
    place& p = places_[index_of(checked)];
    if (p.of == &of && p.is(checked)) return;
    // Lists are kept when they come a second time: many callers have others in every call.
    if (checked.lists != nullptr)
      if (const std::uint64_t hash = checked.hash(); std::exchange(p.listed, hash) != hash) return;
    p.of = nullptr;
    p.hash.store(0, std::memory_order_relaxed);
    p.keep(checked);
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
    std::vector<std::size_t> counts, receive_counts, input_displacements, output_displacements;
    remembered_calls::entry* of = nullptr;
    std::uint64_t listed = 0;  ///< hash of the last call with lists that had this place

    bool is(const checked_call& asked) const {
      if (!key.same_but_lists(asked)) return false;
      const call_description* const d = asked.lists;
      return d == nullptr ||
             (counts == d->what.counts && receive_counts == d->what.receive_counts &&
              input_displacements == d->input_displacements && output_displacements == d->output_displacements);
    }
    void keep(const checked_call& checked) {
      key = checked;
      const call_description* const d = std::exchange(key.lists, nullptr);
      if (d == nullptr) return;
      counts = d->what.counts;
      receive_counts = d->what.receive_counts;
      input_displacements = d->input_displacements;
      output_displacements = d->output_displacements;
    }
  };
  static constexpr std::size_t place_count = 16;

  /// Roots that follow each other, and collectives or types that alternate, have places of their own.
  static std::size_t index_of(const checked_call& c) { return (c.kind + (c.kind >> 8) + (c.kind >> 32)) % place_count; }
  const place& place_of(const checked_call& c) const { return places_[index_of(c)]; }

  std::array<place, place_count> places_;
};

}  // namespace troupe::actors
