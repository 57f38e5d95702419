// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory that holds symbols instead of bytes, for proofs that compiled programs perform their score: all ranks' buffers, an element at a
// time, where every element holds the tree of what was combined in it. What is wrong is thrown as a `difference`.
//
// Only for the proofs beside this file and in protocols/offload. Not synchronised.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "protocols/perform/program_proof.hpp"
#include "protocols/program/cell_places.hpp"
#include "protocols/verify/reduction_forest.hpp"

namespace troupe::proving {

using node_id = reduction_forest::node_id;
using values = std::vector<node_id>;

inline std::string text(std::size_t n) { return std::to_string(n); }

/// Thrown where the first difference is found; caught where the proof began.
struct difference {
  std::string what;
};

/// Entry of a list that a broken program may name wrongly.
template <class List>
auto& entry(List& list, std::size_t index) {
  if (index >= list.size()) throw difference{"names something that does not exist"};
  return list[index];
}

/// A range of elements of a rank's buffer.
struct element_span {
  rank_t owner = 0;
  buffer_kind buffer = buffer_kind::none;
  std::size_t begin = 0;
  std::size_t count = 0;
};

inline std::string to_string(const element_span& s, std::size_t at) {
  return std::string{name(s.buffer)} + " element " + text(s.begin + at) + " of rank " + std::to_string(s.owner);
}

// -- memory -----------------------------------------------------------------------------------------------------------

/// All ranks' buffers, where elements that are one memory in an in-place call have one place. An element's symbol is the tree of what
/// was combined in it.
class symbolic_memory {
public:
  /// @param scratch_bytes, l0_bytes by rank @param l2_bytes of the segment that all ranks share; 0: the port has none
  symbolic_memory(const proof_subject& what, std::span<const std::size_t> scratch_bytes,
                  std::span<const std::size_t> l0_bytes, std::size_t l2_bytes = 0)
      : what_(what), forest(what.notes.ranks) {
    const score& s = what.notes;
    block_begin_.push_back(0);
    for (std::int64_t b = 0; b < block_count(s.what, s.ranks); ++b)
      block_begin_.push_back(block_begin_.back() + what.shape.elements(b));
    buffers_.resize(static_cast<std::size_t>(s.ranks));
    for (rank_t r = 0; r < s.ranks; ++r) {
      add_user_buffers(r);
      add(buffer_of(r, buffer_kind::scratch), scratch_bytes[static_cast<std::size_t>(r)] / what.shape.element_size);
      add(buffer_of(r, buffer_kind::l0), l0_bytes[static_cast<std::size_t>(r)] / what.shape.element_size);
      if (r == 0) add(buffer_of(r, buffer_kind::l2), l2_bytes / what.shape.element_size);
      else buffer_of(r, buffer_kind::l2) = buffer_of(0, buffer_kind::l2);
    }
  }

  std::size_t places() const { return held_.size(); }
  element_span span_of(rank_t rank, buffer_kind buffer, std::size_t offset, std::size_t bytes) const {
    const std::size_t width = what_.shape.element_size;
    if (offset % width != 0 || bytes % width != 0) throw difference{"an operand begins or ends within an element"};
    return {rank, buffer, offset / width, bytes / width};
  }
  /// @pre k < at.count
  std::size_t place(const element_span& at, std::size_t k) const {
    const bool known = at.buffer == buffer_kind::input || at.buffer == buffer_kind::output ||
                       at.buffer == buffer_kind::scratch || at.buffer == buffer_kind::l0 || has_l2(at);
    if (!known || at.owner < 0 || at.owner >= what_.notes.ranks)
      throw difference{"an operand lies in memory that the port does not have"};
    const auto& all = buffers_[static_cast<std::size_t>(at.owner)][static_cast<std::size_t>(at.buffer)];
    if (at.begin + k >= all.size()) throw difference{to_string(at, k) + " does not exist"};
    return all[at.begin + k];
  }
  node_id read(const element_span& at, std::size_t k) const {
    const node_id held = held_[place(at, k)];
    if (held == reduction_forest::none) throw difference{to_string(at, k) + " is read before it is written"};
    return held;
  }
  void write(const element_span& at, std::size_t k, node_id value) { held_[place(at, k)] = value; }

  node_id combine(node_id left, node_id right) {
    if (forest.chunk(left) != forest.chunk(right)) throw difference{"combines elements that do not belong together"};
    if (!forest.disjoint(left, right)) throw difference{"combines a contribution with itself"};
    return forest.combine(left, right);
  }

  /// Every output element holds what the verifier says of its cell.
  void check_outputs() {
    const score& s = what_.notes;
    for (rank_t r = 0; r < s.ranks; ++r) {
      const block_run out = output_blocks(s.what, s.ranks, s.root, r);
      for (int i = 0; i < out.count; ++i) {
        const std::int64_t block = out.first + static_cast<std::int64_t>(i) * out.stride;
        for (std::int32_t part = 0; part < s.parts; ++part) check_cell(r, i, block, part);
      }
    }
  }

private:
  using places_of_elements = std::vector<std::size_t>;

  bool has_l2(const element_span& at) const {
    return at.buffer == buffer_kind::l2 && !buffers_.front()[static_cast<std::size_t>(buffer_kind::l2)].empty();
  }
  places_of_elements& buffer_of(rank_t r, buffer_kind b) {
    return buffers_[static_cast<std::size_t>(r)][static_cast<std::size_t>(b)];
  }
  void add(places_of_elements& to, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) to.push_back(held_.size()), held_.push_back(reduction_forest::none);
  }

  void add_user_buffers(rank_t r) {
    const score& s = what_.notes;
    const std::array both{buffer_kind::input, buffer_kind::output};
    // First the buffer that the other one is part of, then the other.
    for (const bool part : {false, true})
      for (const buffer_kind b : both) {
        const block_run run = b == buffer_kind::input ? input_blocks(s.what, s.ranks, s.root, r)
                                                      : output_blocks(s.what, s.ranks, s.root, r);
        if (run.count == 0) continue;
        const bool is_part = canonical(s, r, {b, self, 0, 1}).buffer != b;
        if (is_part != part) continue;
        for (int i = 0; i < run.count; ++i) add_block(r, b, i, run.first + static_cast<std::int64_t>(i) * run.stride);
      }
  }
  void add_block(rank_t r, buffer_kind b, int index, std::int64_t block) {
    const score& s = what_.notes;
    const std::size_t count = what_.shape.elements(block);
    places_of_elements& mine = buffer_of(r, b);
    const struct place named = canonical(s, r, {b, self, index * s.parts, 1});
    if (named.buffer != b) {
      const std::size_t begin = begin_of(r, named.buffer, named.cell / s.parts);
      const places_of_elements& other = buffer_of(r, named.buffer);
      for (std::size_t k = 0; k < count; ++k) mine.push_back(other.at(begin + k));
    } else {
      add(mine, count);
    }
    if (b == buffer_kind::input)
      for (std::size_t k = 0; k < count; ++k) held_[mine[mine.size() - count + k]] = forest.leaf(r, identity(block, k));
  }
  std::size_t begin_of(rank_t r, buffer_kind b, int index) const {
    const score& s = what_.notes;
    const block_run run =
        b == buffer_kind::input ? input_blocks(s.what, s.ranks, s.root, r) : output_blocks(s.what, s.ranks, s.root, r);
    std::size_t begin = 0;
    for (int i = 0; i < index; ++i)
      begin += what_.shape.elements(run.first + static_cast<std::int64_t>(i) * run.stride);
    return begin;
  }
  std::int64_t identity(std::int64_t block, std::size_t k) const {
    return static_cast<std::int64_t>(block_begin_[static_cast<std::size_t>(block)] + k);
  }

  /// Pieces of a partitioned block lie where its caller says, and each is cut by itself.
  element_range part_of(std::int64_t block, std::int32_t part) const {
    const score& s = what_.notes;
    const element_range whole{0, what_.shape.elements(block)};
    const auto parts = static_cast<std::size_t>(s.parts), own = static_cast<std::size_t>(part);
    if (s.partitions == 0) return cut_range(whole, parts, own);
    const auto pieces = static_cast<std::size_t>(s.partitions);
    const std::size_t in_piece = parts / pieces, piece = own / in_piece;
    element_range of{piece * whole.size() / pieces, (piece + 1) * whole.size() / pieces};
    if (!what_.shape.pieces.empty()) {
      of.begin = 0;
      for (std::size_t p = 0; p < piece; ++p) of.begin += what_.shape.pieces[p];
      of.end = of.begin + what_.shape.pieces[piece];
    }
    return cut_range(of, in_piece, own % in_piece);
  }

  void check_cell(rank_t r, int index, std::int64_t block, std::int32_t part) const {
    const score& s = what_.notes;
    const element_range cell = part_of(block, part);
    const element_span at{r, buffer_kind::output, begin_of(r, buffer_kind::output, index) + cell.begin, cell.size()};
    for (std::size_t k = 0; k < cell.size(); ++k) {
      const node_id held = held_[place(at, k)];
      if (held == reduction_forest::none) throw difference{to_string(at, k) + " is never written"};
      if (forest.chunk(held) != identity(block, cell.begin + k))
        throw difference{to_string(at, k) + " ends with another element"};
      const node_id wanted =
          is_reduction(s.what) ? what_.verified.forest->output(r, index * s.parts + part) : reduction_forest::none;
      const bool same = is_reduction(s.what)
                            ? same_tree(held, *what_.verified.forest, wanted)
                            : forest.is_leaf(held) &&
                                  forest.contributor(held) == contributors(s.what, s.ranks, s.root, r, block).first;
      if (!same)
        throw difference{to_string(at, k) + " ends with " + forest.text(held) +
                         (is_reduction(s.what) ? " instead of " + what_.verified.forest->text(wanted)
                                               : ", which is another rank's")};
    }
  }

  /// Element and cell were combined from the same ranks' contributions in the same order.
  bool same_tree(node_id mine, const reduction_forest& other, node_id theirs) const {
    if (forest.is_leaf(mine) || other.is_leaf(theirs))
      return forest.is_leaf(mine) && other.is_leaf(theirs) && forest.contributor(mine) == other.contributor(theirs);
    return same_tree(forest.right(mine), other, other.right(theirs)) &&
           same_tree(forest.left(mine), other, other.left(theirs));
  }

  const proof_subject& what_;
  std::vector<std::size_t> block_begin_;  ///< in all blocks, one behind the other
  std::vector<std::array<places_of_elements, 6>> buffers_;
  values held_;

public:
  reduction_forest forest;
};

/// A fold or a local copy or reduction on symbols, element by element, as one pass of the kernels does it.
inline void perform_pass(symbolic_memory& memory, std::span<const element_span> in, std::span<const element_span> out) {
  for (std::size_t k = 0; k < in.front().count; ++k) {
    node_id sum = memory.read(in.front(), k);
    for (const element_span& more : in.subspan(1)) sum = memory.combine(sum, memory.read(more, k));
    for (const element_span& to : out) memory.write(to, k, sum);
  }
}

/// What is written at one element and touched at another would depend on how many elements a kernel takes at once.
inline void check_pass(const symbolic_memory& memory, std::span<const element_span> in,
                       std::span<const element_span> out) {
  if (in.empty()) throw difference{"a pass has nothing to read"};
  std::map<std::size_t, std::size_t> written;  // place → element
  for (const element_span& to : out)
    for (std::size_t k = 0; k < to.count; ++k)
      if (!written.emplace(memory.place(to, k), k).second)
        throw difference{to_string(to, k) + " is written twice in one pass"};
  for (const element_span& from : in)
    for (std::size_t k = 0; k < from.count; ++k)
      if (const auto at = written.find(memory.place(from, k)); at != written.end() && at->second != k)
        throw difference{to_string(from, k) + " is read in the pass that overwrites it"};
}

}  // namespace troupe::proving
