// SPDX-License-Identifier: Apache-2.0
#pragma once
// The calls that a rank has made over the boards lately, so that their repetition, with whatever sizes of their class, needs no plan
// and no program, whose look-up other ranks do at the same time. A program repeats a handful of calls, with a root that moves on
// perhaps: each has its place, found by a hash, and the last one is found without.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "actors/ports/direct/direct_fit.hpp"
#include "actors/rank/operation.hpp"
#include "actors/rank/staging.hpp"
#include "protocols/call_description.hpp"
#include "protocols/plan.hpp"
#include "protocols/size_list.hpp"

namespace troupe::actors {

/// Not synchronised.
class remembered_calls {
public:
  /// A copy of a program with the sizes of a call; null: no other sizes have come.
  struct fitting {
    std::unique_ptr<slot_program> fitted;
    std::size_t count = 0;  ///< if its blocks are equal; else its lists are these
    std::vector<std::size_t> counts, input_displacements, output_displacements;

    bool has(const call_shape& s) const {
      return std::ranges::equal(counts, s.counts) && std::ranges::equal(input_displacements, s.input_displacements) &&
             std::ranges::equal(output_displacements, s.output_displacements);
    }
    /// Allocates for more blocks than ever before.
    void keep(const call_shape& s) {
      counts.assign(s.counts.begin(), s.counts.end());
      input_displacements.assign(s.input_displacements.begin(), s.input_displacements.end());
      output_displacements.assign(s.output_displacements.begin(), s.output_displacements.end());
    }
  };

  struct entry {
    static constexpr std::size_t never_as_planned = static_cast<std::size_t>(-1);

    /// @pre the plan is on_board()
    entry(const call& c, plan_ptr p, rank_t rank)
        : what(alone(c)), how(std::move(p)), fingerprint(troupe::fingerprint(what, 0, how->identity)) {
      if (how->slots() != nullptr) slots = how->slot_program_of(rank);
      else direct = how->direct_program_of_all();
      if (how->ahead) ahead = how->ahead->slot_program_of(rank);
      may_run_ahead = how->may_run_ahead();
      // On the direct board nothing is staged: its passes scale, and round once.
      stages = slots != nullptr && (how->widened || how->scaled);
      may_alias = may_keep_input_apart(*how, what, rank);
      concludes = divides_at_end(*how, what) || (is_reduction(what.what) && stages && how->widened);
      work_type = how->work_type;
      is_direct_alone = direct != nullptr && !may_alias;
      if (what.uniform && slots != nullptr && !stages && !may_alias) planned_count = how->count;
    }
    entry(const entry&) = delete;
    entry& operator=(const entry&) = delete;

    call what;  ///< the last one of its class
    const call_identity key = class_of(what);
    plan_ptr how;
    // One of them, by the plan's port.
    std::shared_ptr<const slot_program> slots;
    std::shared_ptr<const slot_program> ahead;  ///< of how->ahead, or null
    std::shared_ptr<const direct_program> direct;
    /// Where blocks differ in size: of the last call that was said by its lists. They have another number in the port's next call with others.
    std::vector<std::size_t> input_displacements, output_displacements;
    std::uint64_t lists_number = 0;  ///< 0: they were not compared with those of the call before
    fitting of_slots, of_ahead;
    direct_fit of_direct;
    std::uint64_t fingerprint;
    bool may_run_ahead = false;  ///< as its plan
    bool stages = false;         ///< its input is widened or scaled first
    bool may_alias = false;      ///< in some buffers its input has to be kept apart
    bool concludes = false;      ///< its result is divided or rounded

    bool is_direct_alone = false;  ///< performed on the direct board in whatever buffers
    datatype work_type;            ///< as its plan
    /// Of the calls that the plan's program is performed for as it is.
    std::size_t planned_count = never_as_planned;

    bool fits_as_planned() const { return what.count == planned_count; }

    bool is_for(const call& c, const call_identity& its_class) const {
      return key == its_class && (!how->exact || c.count == how->count);
    }
    /// The same again: nothing of a class is computed.
    bool is_repeated(const call& c, const call_identity& its_own) const {
      return c.uniform && c.count == what.count && key.same_but_sizes(its_own);
    }
    /// Takes over what differs within the class. No allocation for sizes of as many blocks.
    void become(const call& c, std::uint64_t&) {
      what.reduction = c.reduction;
      lists_number = 0;
      if (c.count == what.count && (c.uniform || (c.counts == what.counts && c.receive_counts == what.receive_counts)))
          [[likely]]
        return;
      what.count = c.count;
      what.counts = c.counts;
      what.receive_counts = c.receive_counts;
      fingerprint = troupe::fingerprint(what, 0, how->identity);
    }
    /// The same of a call of the class whose blocks differ in size.
    void become(const listed_call& c, std::uint64_t& numbered) {
      const bool same = same_sizes(c.counts, what.counts);
      if (same && lists_number != 0 && same_sizes(c.receive_counts, what.receive_counts) &&
          same_sizes(c.input_displacements, input_displacements) &&
          same_sizes(c.output_displacements, output_displacements))
        return;
      lists_number = 0;  // until all is there: there may be no memory for it
      copy_sizes(c.counts, what.counts);
      if (!same && traits_of(what.what).v == v_counts::common)
        fingerprint = troupe::fingerprint(what, 0, how->identity);
      copy_sizes(c.receive_counts, what.receive_counts);
      copy_sizes(c.input_displacements, input_displacements);
      copy_sizes(c.output_displacements, output_displacements);
      lists_number = ++numbered;
    }
    /// The same of a call that differs in nothing else. @pre uniform
    void become(std::size_t count, std::uint64_t&) {
      if (what.count == count) [[likely]]
        return;
      what.count = count;
      fingerprint = troupe::fingerprint(what, 0, how->identity);
    }

  private:
    /// What came before it is another story with every repetition.
    static call alone(call c) {
      c.history = 0;
      c.report = nullptr;
      return c;
    }
  };

  /// The one that is like `what`, or null.
  entry* find(const call& what) const {
    const call_identity own = identity_of(what);
    if (last_ != nullptr && last_->is_repeated(what, own)) [[likely]]
      return last_;
    const call_identity key = class_of(own);
    if (last_ != nullptr && last_->is_for(what, key)) return last_;
    entry* const found = places_[place_of(key)].get();
    return found != nullptr && found->is_for(what, key) ? found : nullptr;
  }
  /// Makes the one that is like `what` the last, with its sizes. False if there is none.
  bool recall(const call& what) {
    entry* const found = find(what);
    if (found == nullptr) return false;
    recall(*found, what);
    return true;
  }
  /// The same of one that is known, with a call's sizes. @pre it is here
  template <class Sizes>
  void recall(entry& known, const Sizes& sizes) {
    known.become(sizes, numbered_);
    last_ = &known;
  }

  /// It is the last now. Returns the entry that had its place.
  [[nodiscard]] std::unique_ptr<entry> put(std::unique_ptr<entry> fresh) {
    last_ = fresh.get();
    return std::exchange(places_[place_of(fresh->key)], std::move(fresh));
  }

  /// @pre something was recalled or put
  entry& last() const { return *last_; }

private:
  static constexpr std::size_t place_count = 64;  ///< up to that many ranks, every root has its own

  /// Roots that follow each other never share a place.
  static std::size_t place_of(call_identity key) {
    const std::size_t root = std::exchange(key.root, 0);
    word_hash h;
    key.add_to(h);
    return (h.state + root) % place_count;
  }

  std::array<std::unique_ptr<entry>, place_count> places_;
  std::uint64_t numbered_ = 0;  ///< lists so far
  entry* last_ = nullptr;
};

}  // namespace troupe::actors
