#pragma once
// What is measured at one point: a collective at a size. f32, sum.

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace bench {

enum class collective { all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce };

inline constexpr std::array<std::string_view, 6> collective_names{"all_reduce", "all_gather", "reduce_scatter",
                                                                  "all_to_all", "broadcast",  "reduce"};

inline std::string_view name(collective what) { return collective_names[static_cast<std::size_t>(what)]; }

inline std::optional<collective> parse_collective(std::string_view text) {
  for (std::size_t i = 0; i < collective_names.size(); ++i)
    if (collective_names[i] == text) return static_cast<collective>(i);
  return std::nullopt;
}

/// Elements of one rank's buffers, and the count that the call takes: of one block where a collective has a block per rank.
struct shape {
  std::size_t count = 0;
  std::size_t input = 0;
  std::size_t output = 0;  ///< 0: the call has one buffer (broadcast)
};

/// `bytes` is S of nccl-tests: a rank's whole input or output, whichever is larger. A size that does not hold one element for
/// every rank is rounded up to one, so S may come out larger than asked: see size_of_shape.
inline shape shape_of(collective what, std::size_t bytes, int ranks) {
  const std::size_t n = static_cast<std::size_t>(ranks);
  const std::size_t elements = bytes / sizeof(float) > 0 ? bytes / sizeof(float) : 1;
  const std::size_t block = elements / n > 0 ? elements / n : 1;
  switch (what) {
    case collective::all_gather: return {block, block, block * n};
    case collective::reduce_scatter: return {block, block * n, block};
    case collective::all_to_all: return {block, block * n, block * n};
    case collective::broadcast: return {elements, elements, 0};
    case collective::all_reduce:
    case collective::reduce: break;
  }
  return {elements, elements, elements};
}

inline std::size_t size_of_shape(const shape& s) { return sizeof(float) * (s.input > s.output ? s.input : s.output); }

/// The root of each call in turn. Every member has one and asks it once a call, so all agree.
class root_order {
public:
  void restart(bool rotate, int ranks) { next_ = 0, ranks_ = rotate ? ranks : 1; }
  int next() {
    const int root = next_;
    next_ = next_ + 1 == ranks_ ? 0 : next_ + 1;
    return root;
  }

private:
  int next_ = 0, ranks_ = 1;
};

}  // namespace bench
