// SPDX-License-Identifier: Apache-2.0
#include "protocols/verify/reduction_forest.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {
std::uint64_t pack(std::int64_t high, std::int64_t low) {
  return (static_cast<std::uint64_t>(high) << 32) | (static_cast<std::uint64_t>(low) & 0xffffffffu);
}

/// Hardly any node is combined with more than one or two older ones, which are found beside it and not in a table of all; the others of a
/// node that is combined with many are in a table.
constexpr int most_listed = 8;
}  // namespace

reduction_forest::reduction_forest(int ranks)
    : ranks_(ranks), words_((static_cast<std::size_t>(ranks) + 63) / 64), outputs_(static_cast<std::size_t>(ranks)) {}

void reduction_forest::reserve(std::size_t leaves, std::size_t inner) {
  nodes_.reserve(leaves + inner);
  sets_.reserve(inner * words_);
}

reduction_forest::node_id reduction_forest::append(const node& n) {
  nodes_.push_back(n);
  return static_cast<node_id>(nodes_.size()) - 1;
}

/// A leaf's is its rank.
std::int32_t reduction_forest::shape(node_id n) {
  std::vector<node_id> todo{n};
  while (!todo.empty()) {
    node& next = nodes_[static_cast<std::size_t>(todo.back())];
    if (next.shape >= 0) {
      todo.pop_back();
    } else if (next.left == none) {
      next.shape = next.first;
    } else if (const std::int32_t a = at(next.left).shape, b = at(next.right).shape; a >= 0 && b >= 0) {
      const auto fresh = ranks_ + static_cast<std::int32_t>(shapes_.size());
      next.shape = shapes_.try_emplace(pack(std::min(a, b), std::max(a, b)), fresh).first;
    } else {
      todo.push_back(a < 0 ? next.left : next.right);
    }
  }
  return at(n).shape;
}

reduction_forest::node_id reduction_forest::leaf(rank_t rank, std::int64_t chunk) {
  const auto key =
      static_cast<std::uint64_t>(chunk) * static_cast<std::uint64_t>(ranks_) + static_cast<std::uint64_t>(rank);
  const auto [found, fresh] = leaves_.try_emplace(key, none);
  if (!fresh) return found;
  return found = new_leaf(rank, chunk);
}

reduction_forest::node_id reduction_forest::new_leaf(rank_t rank, std::int64_t chunk) {
  return append({none, none, -1, rank, rank, 1, true, true, chunk, -1, none, none});
}

/// The ranks of a node join the set of words from `at` on.
void reduction_forest::add_to(std::size_t at, const node& n) {
  std::uint64_t* const mine = sets_.data() + at;
  if (n.left == none) mine[static_cast<std::size_t>(n.first) / 64] |= std::uint64_t{1} << (n.first % 64);
  else
    for (std::size_t w = 0; w < words_; ++w) mine[w] |= set(n)[w];
}

reduction_forest::node_id reduction_forest::combine(node_id left, node_id right) {
  const node_id newer = std::max(left, right);
  int listed = 0;
  for (node_id n = at(newer).newest_pair; n != none; n = at(n).older_pair, ++listed)
    if (at(n).left == left && at(n).right == right) return n;
  if (listed < most_listed) {
    const node_id id = append_pair(left, right);
    nodes_[static_cast<std::size_t>(id)].older_pair =
        std::exchange(nodes_[static_cast<std::size_t>(newer)].newest_pair, id);
    return id;
  }
  const auto [found, fresh] = pairs_.try_emplace(pack(left, right), none);
  return fresh ? found = append_pair(left, right) : found;
}

reduction_forest::node_id reduction_forest::append_pair(node_id left, node_id right) {
  const node a = at(left);
  const node b = at(right);
  const bool ordered = a.ordered && b.ordered && a.last + 1 == b.first;
  const node_id id =
      append({left, right, -1, a.first, b.last, a.leaves + b.leaves, ordered, ordered && a.fold && b.left == none,
              a.chunk, static_cast<std::int32_t>(sets_.size() / words_), none, none});
  const std::size_t mine = sets_.size();
  sets_.resize(mine + words_, 0);
  add_to(mine, a);
  add_to(mine, b);
  return id;
}

void reduction_forest::finish() {
  for (flat_index* each : {&leaves_, &pairs_, &shapes_}) each->clear();
  nodes_.shrink_to_fit();
  sets_.shrink_to_fit();
}

void reduction_forest::set_output(rank_t rank, std::int32_t cell, node_id tree) {
  auto& row = outputs_[static_cast<std::size_t>(rank)];
  if (row.size() <= static_cast<std::size_t>(cell)) row.resize(static_cast<std::size_t>(cell) + 1, none);
  row[static_cast<std::size_t>(cell)] = tree;
}

bool reduction_forest::holds(node_id n, rank_t rank) const {
  const node& of = at(n);
  return of.left == none ? of.first == rank : is_in(set(of), rank);
}

bool reduction_forest::disjoint(node_id a, node_id b) const {
  const node &x = at(a), &y = at(b);
  if (x.left == none) return !holds(b, x.first);
  if (y.left == none) return !holds(a, y.first);
  for (std::size_t w = 0; w < words_; ++w)
    if ((set(x)[w] & set(y)[w]) != 0) return false;
  return true;
}

reduction_forest::node_id reduction_forest::output(rank_t rank, std::int32_t cell) const {
  if (rank < 0 || rank >= ranks_ || cell < 0) return none;
  const auto& row = outputs_[static_cast<std::size_t>(rank)];
  return static_cast<std::size_t>(cell) < row.size() ? row[static_cast<std::size_t>(cell)] : none;
}

std::string reduction_forest::text(node_id n) const {
  // A chain is as deep as there are ranks: an explicit stack instead of recursion. Characters are kept as negative numbers.
  std::string out;
  std::vector<std::int32_t> todo{n};
  while (!todo.empty()) {
    const std::int32_t next = todo.back();
    todo.pop_back();
    if (next < 0) {
      out += static_cast<char>(-next);
    } else if (is_leaf(next)) {
      out += std::to_string(contributor(next));
    } else {
      todo.insert(todo.end(), {-')', right(next), -'+', left(next), -'('});
    }
  }
  return out;
}

bool reduction_forest::made_of(node_id n, const rank_range& wanted) const {
  if (at(n).leaves != wanted.count) return false;
  if (wanted.count == ranks_) return true;
  for (rank_t r = wanted.first; r < wanted.first + wanted.count; ++r)
    if (!holds(n, r)) return false;
  return true;
}

/// The ranks that `chosen` takes, as "0–3, 5".
template <class Chosen>
std::string reduction_forest::list(Chosen chosen) const {
  std::string out;
  for (rank_t r = 0; r < ranks_; ++r) {
    if (!chosen(r)) continue;
    rank_t last = r;
    while (last + 1 < ranks_ && chosen(last + 1)) ++last;
    if (!out.empty()) out += ", ";
    out += std::to_string(r);
    if (last > r) out += (last == r + 1 ? ", " : "–") + std::to_string(last);
    r = last;
  }
  return out;
}

std::string reduction_forest::members(node_id n) const {
  return list([&](rank_t r) { return holds(n, r); });
}
std::string reduction_forest::missing(node_id n, const rank_range& wanted) const {
  return list([&](rank_t r) { return wanted.contains(r) && !holds(n, r); });
}
std::string reduction_forest::beyond(node_id n, const rank_range& wanted) const {
  return list([&](rank_t r) { return holds(n, r) && !wanted.contains(r); });
}

}  // namespace troupe
