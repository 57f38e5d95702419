// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is measured at one point: a collective at a size. f32, sum.

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace bench {

/// `send_recv`: every rank sends to the next one of a ring and receives from the one before. `ping_pong`: ranks 0 and 1 send and
/// receive in turn. `split`: a communicator is split and its parts are given back.
enum class collective {
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  broadcast,
  reduce,
  gather,
  scatter,
  all_gather_v,
  reduce_scatter_v,
  gather_v,
  scatter_v,
  all_to_all_v,
  send_recv,
  ping_pong,
  split
};

inline constexpr std::array<std::string_view, 16> collective_names{
    "all_reduce", "all_gather",   "reduce_scatter",   "all_to_all", "broadcast", "reduce",       "gather",
    "scatter",    "all_gather_v", "reduce_scatter_v", "gather_v",   "scatter_v", "all_to_all_v", "send_recv",
    "ping_pong",  "split"};

inline std::string_view name(collective what) { return collective_names[static_cast<std::size_t>(what)]; }

inline std::optional<collective> parse_collective(std::string_view text) {
  for (std::size_t i = 0; i < collective_names.size(); ++i)
    if (collective_names[i] == text) return static_cast<collective>(i);
  return std::nullopt;
}

inline bool has_block_counts(collective what) {
  return what >= collective::all_gather_v && what <= collective::all_to_all_v;
}

inline bool has_root(collective what) {
  return (what >= collective::broadcast && what <= collective::scatter) || what == collective::gather_v ||
         what == collective::scatter_v;
}

/// How many of what is timed one call performs: a round trip is two messages, and half of it is the time of one.
inline int operations_in(collective what) { return what == collective::ping_pong ? 2 : 1; }

/// Of a split into `colors` parts of neighbours.
inline int split_color(int rank, int ranks, std::size_t colors) {
  return static_cast<int>(static_cast<std::size_t>(rank) * colors / static_cast<std::size_t>(ranks));
}
inline int split_size(int rank, int ranks, std::size_t colors) {
  int size = 0;
  for (int other = 0; other < ranks; ++other)
    size += split_color(other, ranks, colors) == split_color(rank, ranks, colors) ? 1 : 0;
  return size;
}

/// Elements of one rank's buffers, and the count that the call takes: of one block where a collective has a block per rank.
struct shape {
  std::size_t count = 0;
  std::size_t input = 0;
  std::size_t output = 0;  ///< 0: the call has one buffer (broadcast)
};

/// `bytes` is S of nccl-tests: a rank's whole input or output, whichever is larger. A size that does not hold one element for
/// every rank is rounded up to one, so S may come out larger than asked: see size_of_shape. Blocks of different sizes: at most half as
/// large again as equal ones would be (block_counts.hpp). Of a split, `bytes` is the number of its parts.
inline shape shape_of(collective what, std::size_t bytes, int ranks) {
  const std::size_t n = static_cast<std::size_t>(ranks);
  const std::size_t elements = bytes / sizeof(float) > 0 ? bytes / sizeof(float) : 1;
  const std::size_t block = elements / n > 0 ? elements / n : 1;
  switch (what) {
    case collective::all_gather:
    case collective::gather: return {block, block, block * n};
    case collective::reduce_scatter:
    case collective::scatter: return {block, block * n, block};
    case collective::all_to_all:
    case collective::all_to_all_v: return {block, block * n, block * n};
    case collective::all_gather_v:
    case collective::gather_v: return {block, block + block / 2, block * n};
    case collective::reduce_scatter_v:
    case collective::scatter_v: return {block, block * n, block + block / 2};
    case collective::broadcast: return {elements, elements, 0};
    case collective::split: return {bytes, 1, 1};
    case collective::all_reduce:
    case collective::reduce:
    case collective::send_recv:
    case collective::ping_pong: break;
  }
  return {elements, elements, elements};
}

inline std::size_t size_of_shape(const shape& s) { return sizeof(float) * (s.input > s.output ? s.input : s.output); }

/// The root of each call in turn. Every member has one and asks it once a call, so all agree.
class root_order {
public:
  void restart(bool rotate, int ranks) { next_ = last_ = 0, ranks_ = rotate ? ranks : 1; }
  int next() {
    last_ = next_;
    next_ = next_ + 1 == ranks_ ? 0 : next_ + 1;
    return last_;
  }
  /// Of the latest call; 0 before the first.
  int last() const { return last_; }

private:
  int next_ = 0, last_ = 0, ranks_ = 1;
};

}  // namespace bench
