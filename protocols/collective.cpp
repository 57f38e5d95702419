#include "protocols/collective.hpp"

#include <array>

namespace troupe {

namespace {
constexpr std::array<std::string_view, collective_count> names = {
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter", "all_to_all", "barrier"};
}

std::string_view name(collective what) { return names[static_cast<std::size_t>(what)]; }

std::optional<collective> parse_collective(std::string_view text) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == text) return static_cast<collective>(i);
  return std::nullopt;
}

block_run input_blocks(collective what, int ranks, rank_t root, rank_t rank) {
  switch (what) {
    case collective::all_reduce:
    case collective::reduce: return {0, 1, 1};
    case collective::broadcast: return {0, rank == root ? 1 : 0, 1};
    case collective::all_gather:
    case collective::gather: return {rank, 1, 1};
    case collective::reduce_scatter: return {0, ranks, 1};
    case collective::scatter: return {0, rank == root ? ranks : 0, 1};
    case collective::all_to_all: return {static_cast<std::int64_t>(rank) * ranks, ranks, 1};
    case collective::barrier: return {0, 0, 1};
  }
  return {};
}

block_run output_blocks(collective what, int ranks, rank_t root, rank_t rank) {
  switch (what) {
    case collective::all_reduce:
    case collective::broadcast: return {0, 1, 1};
    case collective::reduce: return {0, rank == root ? 1 : 0, 1};
    case collective::all_gather: return {0, ranks, 1};
    case collective::gather: return {0, rank == root ? ranks : 0, 1};
    case collective::reduce_scatter:
    case collective::scatter: return {rank, 1, 1};
    case collective::all_to_all: return {rank, ranks, ranks};
    case collective::barrier: return {0, 0, 1};
  }
  return {};
}

}  // namespace troupe
