// SPDX-License-Identifier: Apache-2.0
#pragma once
// A layer of experts as nodes of a flow, forward and back (docs/experts.md).

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

/// Which rows a function gets: of this tile, for this expert, from this rank. The same place back has as many rows as forward, in the same order.
struct expert_place {
  int tile = 0;
  std::int32_t expert = 0;
  rank_t from = 0;
};

/// What a node of experts leaves of each tile for the node that goes back: routes, and results where they lie. Of one rank, and of one node each way; it may be
/// destroyed before them.
class TROUPE_API expert_tape {
public:
  expert_tape();
  expert_tape(expert_tape&&) noexcept;
  expert_tape& operator=(expert_tape&&) noexcept;
  ~expert_tape();

private:
  friend struct expert_access;
  struct inside;
  std::shared_ptr<inside> what_;
};

namespace detail {

/// The nodes' functions without their types.
struct expert_functions {
  std::function<void(const tile_place& in, std::span<std::int32_t> ids, std::span<float> weights)> route;
  std::function<void(const expert_place& at, void* rows, std::size_t count)> compute;
};
struct expert_back_functions {
  std::function<void(const expert_place& at, const void* results, void* gradients, std::size_t count)> compute;
  std::function<void(const tile_place& gradients, std::span<const std::int32_t> ids, std::span<const float> weights)>
      route;
};
/// @param tape null: nothing is kept
TROUPE_API stream_base add_experts(flow& to, std::string name, const stream_base& tokens, expert_exchange& through,
                                   expert_tape* tape, expert_functions what, const collective_options& options);
TROUPE_API stream_base add_experts_backward(flow& to, std::string name, const stream_base& gradients,
                                            expert_exchange& through, expert_tape& tape, expert_back_functions what,
                                            const collective_options& options);

template <element T, class Route, class Compute>
expert_functions functions_of(const stream<T>& tokens, const expert_exchange& through, Route route, Compute compute) {
  static_assert(std::is_invocable_v<Route&, tile<const T>, std::span<std::int32_t>, std::span<float>>,
                "a router is called as route(tile<const T>, std::span<std::int32_t> ids, std::span<float> weights)");
  constexpr bool by_expert = std::is_invocable_v<Compute&, std::int32_t, tensor<T>>;
  static_assert(by_expert || std::is_invocable_v<Compute&, expert_place, tensor<T>>,
                "an expert is called as compute(std::int32_t expert, tensor<T> rows), or as compute(expert_place, "
                "tensor<T> rows)");
  expert_functions what;
  what.route = [kept = std::make_shared<Route>(std::move(route)),
                shape = tokens.shape()](const tile_place& in, std::span<std::int32_t> ids, std::span<float> weights) {
    (*kept)(tile_of<const T>(in, shape), ids, weights);
  };
  what.compute = [kept = std::make_shared<Compute>(std::move(compute)),
                  hidden = through.hidden()](const expert_place& at, void* rows, std::size_t count) {
    const tensor<T> of{static_cast<T*>(rows), tensor_shape{count, hidden}};
    if constexpr (by_expert) (*kept)(at.expert, of);
    else (*kept)(at, of);
  };
  return what;
}

}  // namespace detail

/// Dispatch, experts and combine: a tile of tokens becomes a tile of their experts' weighted sums. Tiles are of two dimensions, tokens and `hidden`.
///   auto sums = troupe::experts(f, "experts", tokens, moe,
///       [&](troupe::tile<const float> in, std::span<std::int32_t> ids, std::span<float> weights) { … },   // writes all of [tokens][top_k]
///       [&](std::int32_t expert, troupe::tensor<float> rows) { … });                                      // [count][hidden], in place
/// Each tile is a dispatch that starts early, so `compute` gets what one rank has for an expert as soon as it is there: while others are late, and while the
/// flow's other nodes work on other tiles. It is called several times for a tile, in no order that could be relied upon; sums are the same all the same. It may take an
/// `expert_place` in place of the expert, and so know which rows it gets.
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
  return stream<T>{detail::add_experts(to, name, tokens, through, nullptr,
                                       detail::functions_of(tokens, through, std::move(route), std::move(compute)),
                                       options)};
}
/// The same for experts_backward(): `tape` keeps what that needs, of all tiles of the last run.
template <element T, class Route, class Compute>
stream<T> experts(flow& to, const std::string& name, const stream<T>& tokens, expert_exchange& through,
                  expert_tape& tape, Route route, Compute compute, collective_options options = {}) {
  return stream<T>{detail::add_experts(to, name, tokens, through, &tape,
                                       detail::functions_of(tokens, through, std::move(route), std::move(compute)),
                                       options)};
}

/// The way back of experts(), in the same flow or in another: a tile of the sums' gradients becomes a tile of the tokens', by way of the experts' own backward function.
///   auto d_tokens = troupe::experts_backward(f, "experts back", d_sums, moe_back, tape,
///       [&](troupe::expert_place at, troupe::tensor<const float> results, troupe::tensor<float> gradients) { … },          // in place: of results, then of tokens
///       [&](troupe::tile<float> d_tokens, std::span<const std::int32_t> ids, std::span<const float> d_weights) { … });   // may add the router's share
/// It has the bits of combine_backward() and dispatch_backward(). Gradients travel when a rank has them, as tokens do, while other ranks are late; but `backward` is called in
/// the order of the ranks they are from, of one rank by expert, tile after tile: so what it adds up does not depend on time. `results` are what compute() has left in the rows of
/// that place. `route_backward` comes last, with what route() has chosen; of what was dropped or is no expert the gradient is 0.
/// The node has a thread of its own, as that of experts().
/// @param through another exchange than that of experts(), since both may be under way at once: of the same communicator, with the same experts, hidden, type, top_k and
/// placement; for the rest as there.
/// @param tape of the node that experts() has added. Each of its runs goes back once at most; a tile that it has not combined, or that has gone back before, ends the run on all ranks
/// with errc::invalid_argument. In another flow, start the one when the other has ended.
template <element T, class Compute, class Route>
stream<T> experts_backward(flow& to, const std::string& name, const stream<T>& gradients, expert_exchange& through,
                           expert_tape& tape, Compute backward, Route route_backward, collective_options options = {}) {
  static_assert(std::is_invocable_v<Compute&, expert_place, tensor<const T>, tensor<T>>,
                "an expert's way back is called as backward(expert_place, tensor<const T> results, tensor<T> "
                "gradients)");
  static_assert(std::is_invocable_v<Route&, tile<T>, std::span<const std::int32_t>, std::span<const float>>,
                "a router's way back is called as route_backward(tile<T> gradients, std::span<const std::int32_t> ids, "
                "std::span<const float> weight_gradients)");
  detail::expert_back_functions what;
  what.compute = [kept = std::make_shared<Compute>(std::move(backward)), hidden = through.hidden()](
                     const expert_place& at, const void* results, void* rows, std::size_t count) {
    const tensor_shape shape{count, hidden};
    (*kept)(at, tensor<const T>{static_cast<const T*>(results), shape}, tensor<T>{static_cast<T*>(rows), shape});
  };
  what.route = [kept = std::make_shared<Route>(std::move(route_backward)), shape = gradients.shape()](
                   const tile_place& out, std::span<const std::int32_t> ids, std::span<const float> weights) {
    (*kept)(detail::tile_of<T>(out, shape), ids, weights);
  };
  return stream<T>{detail::add_experts_backward(to, name, gradients, through, tape, std::move(what), options)};
}

}  // namespace troupe
