// SPDX-License-Identifier: Apache-2.0
#pragma once
// A layer of experts as a node of a flow (docs/flow.md).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "engine/experts/expert_exchange.hpp"
#include "engine/flow/flow.hpp"
#include "memory/export.hpp"

namespace troupe {

namespace detail {

/// The node's functions without their types.
struct expert_functions {
  std::function<void(const tile_place& in, std::span<std::int32_t> ids, std::span<float> weights)> route;
  std::function<void(std::int32_t expert, void* rows, std::size_t count)> compute;
};
TROUPE_API stream_base add_experts(flow& to, std::string name, const stream_base& tokens, expert_exchange& through,
                                   expert_functions what, const collective_options& options);

}  // namespace detail

/// Dispatch, experts and combine: a tile of tokens becomes a tile of their experts' weighted sums. Tiles are of two dimensions, tokens and `hidden`.
///   auto sums = troupe::experts(f, "experts", tokens, moe,
///       [&](troupe::tile<const float> in, std::span<std::int32_t> ids, std::span<float> weights) { … },   // writes all of [tokens][top_k]
///       [&](std::int32_t expert, troupe::tensor<float> rows) { … });                                      // [count][hidden], in place
/// Each tile is a dispatch that starts early, so `compute` gets what one rank has for an expert as soon as it is there: while others are late, and while the
/// flow's other nodes work on other tiles. It is called several times for a tile, in no order that could be relied upon; sums are the same all the same.
/// The node has a thread of its own, which calls both functions, one at a time; `route` for the tiles in their order, each when the one before has been
/// combined. They must not wait for the engine, and must not write what other nodes use.
/// @param through made with expert_options::starts_early, of T. It outlives the flow, is this node's alone, and does nothing else during a run. Its deadline is that of
/// each tile, from route() to the sums, so also of ranks that are late with theirs. After a run that has failed it may be of no use any more, as after a call that has failed:
/// then further runs fail, too.
/// All ranks need as many tiles, or get errc::mismatch; how many tokens a tile has may differ. Throws error(invalid_argument), as a flow's other nodes. A run
/// allocates, as such dispatches do.
template <element T, class Route, class Compute>
stream<T> experts(flow& to, const std::string& name, const stream<T>& tokens, expert_exchange& through, Route route,
                  Compute compute, collective_options options = {}) {
  static_assert(std::is_invocable_v<Route&, tile<const T>, std::span<std::int32_t>, std::span<float>>,
                "a router is called as route(tile<const T>, std::span<std::int32_t> ids, std::span<float> weights)");
  static_assert(std::is_invocable_v<Compute&, std::int32_t, tensor<T>>,
                "an expert is called as compute(std::int32_t expert, tensor<T> rows)");
  detail::expert_functions what;
  what.route = [kept = std::make_shared<Route>(std::move(route)),
                shape = tokens.shape()](const tile_place& in, std::span<std::int32_t> ids, std::span<float> weights) {
    (*kept)(detail::tile_of<const T>(in, shape), ids, weights);
  };
  what.compute = [kept = std::make_shared<Compute>(std::move(compute)),
                  hidden = through.hidden()](std::int32_t expert, void* rows, std::size_t count) {
    (*kept)(expert, tensor<T>{static_cast<T*>(rows), tensor_shape{count, hidden}});
  };
  return stream<T>{detail::add_experts(to, name, tokens, through, std::move(what), options)};
}

}  // namespace troupe
