// SPDX-License-Identifier: Apache-2.0
#pragma once
// Operators and collectives joined by streams of tiles (docs/flow.md).

#include <chrono>
#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/api/communicator.hpp"
#include "engine/api/engine.hpp"
#include "engine/flow/flow_parts.hpp"
#include "engine/flow/tensor.hpp"
#include "memory/export.hpp"
#include "memory/types/types.hpp"

namespace troupe {

class flow_outside;
class timeline;
struct flow_record;

struct flow_options {
  /// Of each start(); it ends the run on all ranks, with a text that says which node waits for what. Empty: none.
  std::optional<std::chrono::nanoseconds> deadline{};
  /// Gets what every run did (timeline.hpp). Must outlive the flow. Null: nothing is recorded.
  troupe::timeline* timeline = nullptr;
};

/// A graph of sources, operators, collectives and sinks, which streams of tiles join:
///   troupe::flow f{engine, "block"};
///   auto rows  = f.source<float>("rows", {4, 64}, 16, read);         // 16 tiles of 4 x 64, written by read(tile<float>)
///   auto normal = f.map("norm", rows, scale);                        // scale(tile<const float> in, tile<float> out)
///   auto whole = f.all_gather("gather", normal, comm);               // a tile is a part: it travels as soon as it is written
///   f.sink("store", whole, store);                                   // store(tile<const float>), tile after tile
///   f.start();
///   f.wait();
/// Each rank has a flow of its own; ranks whose flows share a communicator build the same collectives in the same order.
///
/// The thread that waits for a flow performs its rank's nodes, a tile of each in turn; while nobody waits a thread of the engine does (if it has workers), which begins
/// some milliseconds later at most. Tiles are passed by reference. A function is called for the tiles of its inputs in the order of their indices, never by two
/// threads at once, so it may keep a state; it must not wait for anything of the engine. If it has a member begin(), that is called at each start. An exception of either ends the run on all ranks.
///
/// A stream holds at most `credit` tiles that not all of its readers have worked on: then its node waits. The first start() (or check()) looks whether all
/// ports are connected, cycles have a buffer, and, by performing the graph once without any work, whether it comes to its end with that credit. That costs
/// some steps a tile, once.
///
/// Building throws errc::invalid_argument, as does what one is asked that was moved from. One thread at a time uses a flow; cancel() may be called by
/// any. Move-only. It, and what its functions refer to, must live until wait() has returned or the flow is destroyed, which ends a run that is under way. Its communicators must outlive it.
class TROUPE_API flow {
public:
  explicit flow(engine& on, std::string name = "flow", flow_options options = {});
  flow(flow&&) noexcept;
  flow& operator=(flow&&) noexcept;
  ~flow();

  // -- nodes ----------------------------------------------------------------------------------------------------------------

  /// `tiles` tiles, each written by write(tile<T> out).
  template <element T, std::invocable<tile<T>> F>
  stream<T> source(std::string name, const tensor_shape& shape, int tiles, F write, stream_options options = {});

  /// A tile for each tile of the input, or for one of each of several inputs (from(a, b)): body(tile<const T>…, tile<Out>). Without a shape the
  /// output's is what body.shape(shapes of the inputs…) says, or else that of the first input; Out is the first input's type unless named. What
  /// body.shape throws refuses the node, as does another shape than it says.
  template <element Out, element... T, class F>
  stream<Out> map(std::string name, const streams<T...>& inputs, const tensor_shape& shape, F body,
                  stream_options options = {});
  template <element Out, element T, class F>
  stream<Out> map(std::string name, const stream<T>& input, const tensor_shape& shape, F body,
                  stream_options options = {}) {
    return map<Out>(std::move(name), from(input), shape, std::move(body), options);
  }
  template <element... T, class F>
  auto map(std::string name, const streams<T...>& inputs, F body, stream_options options = {}) {
    const tensor_shape shape = shape_of(name, body, inputs);
    return map<typename streams<T...>::first>(std::move(name), inputs, shape, std::move(body), options);
  }
  template <element T, class F>
  stream<T> map(std::string name, const stream<T>& input, F body, stream_options options = {}) {
    return map(std::move(name), from(input), std::move(body), options);
  }

  /// A tile for every `every` tiles of the input: body(tile<const T>, tile<Out>, int at), where `at` counts 0 … every − 1 and 0 finds
  /// whatever was in the tile before.
  template <element Out, element T, class F>
  stream<Out> fold(std::string name, const stream<T>& input, int every, const tensor_shape& shape, F body,
                   stream_options options = {});

  /// Holds tiles back: gives `lead` tiles first, each written by fill(tile<T>), then those of its input, but for the last `lead`. A cycle needs one.
  template <element T, std::invocable<tile<T>> F>
  stream<T> buffer(const std::string& name, const stream<T>& input, int lead, F fill, stream_options options = {});

  /// A stream whose tiles come from a node that is made later, and named by close(): for cycles.
  template <element T>
  stream<T> later(const std::string& name, const tensor_shape& shape, int tiles) {
    return stream<T>{promise(name, {datatype_of<T>, shape, tiles})};
  }
  template <element T>
  void close(const stream<T>& promised, const stream<T>& by) {
    fulfil(promised, by);
  }

  /// The end of a stream, or of several: read(tile<const T>…). If it has a member check(shapes of the inputs…), what that throws refuses the node.
  template <element... T, class F>
  void sink(std::string name, const streams<T...>& inputs, F read);
  template <element T, class F>
  void sink(std::string name, const stream<T>& input, F read) {
    sink(std::move(name), from(input), std::move(read));
  }

  // -- collectives, of n ranks. A block of k tiles is cut into k parts, a tile each; with several blocks, tile p·n + r is part p of block r ----

  /// k tiles of each rank → n·k tiles: tile p·n + r is tile p of rank r.
  template <element T>
  stream<T> all_gather(const std::string& name, const stream<T>& input, communicator& comm,
                       collective_options options = {}) {
    return stream<T>{*collect(name, {collective::all_gather, sum}, &input, input.type(), comm, options)};
  }
  /// n·k tiles → k tiles: tile p is the reduction of all ranks' tiles p·n + (this rank).
  template <element T>
  stream<T> reduce_scatter(const std::string& name, const stream<T>& input, communicator& comm,
                           const op& reduction = troupe::sum, collective_options options = {}) {
    return stream<T>{*collect(name, {collective::reduce_scatter, reduction}, &input, input.type(), comm, options)};
  }
  /// k tiles → k tiles: tile p is the reduction of all ranks' tiles p.
  template <element T>
  stream<T> all_reduce(const std::string& name, const stream<T>& input, communicator& comm,
                       const op& reduction = troupe::sum, collective_options options = {}) {
    return stream<T>{*collect(name, {collective::all_reduce, reduction}, &input, input.type(), comm, options)};
  }
  /// n·k tiles → n·k tiles: tile p·n + r is tile p·n + (this rank) of rank r.
  template <element T>
  stream<T> all_to_all(const std::string& name, const stream<T>& input, communicator& comm,
                       collective_options options = {}) {
    return stream<T>{*collect(name, {collective::all_to_all, sum}, &input, input.type(), comm, options)};
  }

  /// k tiles of the root → k tiles at every rank: tile p is the root's tile p. At the root …
  template <element T>
  stream<T> broadcast(const std::string& name, const stream<T>& input, communicator& comm, rank_t root,
                      collective_options options = {}) {
    return stream<T>{*collect(name, {collective::broadcast, sum, root}, &input, input.type(), comm, options)};
  }
  /// … and at the others, which say what comes.
  template <element T>
  stream<T> broadcast(const std::string& name, const tensor_shape& shape, int tiles, communicator& comm, rank_t root,
                      collective_options options = {}) {
    return stream<T>{
        *collect(name, {collective::broadcast, sum, root}, nullptr, {datatype_of<T>, shape, tiles}, comm, options)};
  }
  /// k tiles → k tiles at the root: tile p is the reduction of all ranks' tiles p. At the others the stream ends here: nothing comes of it.
  template <element T>
  std::optional<stream<T>> reduce(const std::string& name, const stream<T>& input, communicator& comm, rank_t root,
                                  const op& reduction = troupe::sum, collective_options options = {}) {
    const auto gives = collect(name, {collective::reduce, reduction, root}, &input, input.type(), comm, options);
    return gives ? std::optional{stream<T>{*gives}} : std::nullopt;
  }

  /// Any node, with types and shapes that are known when the program runs.
  std::optional<stream_base> add(node_description what);
  /// A node that `by` performs (flow_outside.hpp), which gives a tile like that of its input for each; the ranks of `comm` agree on the end of the run.
  /// @param kind what it is, for describe()
  stream_base add_outside(std::string name, std::string kind, const stream_base& input, communicator& comm,
                          std::shared_ptr<flow_outside> by, const collective_options& options);

  // -- runs -------------------------------------------------------------------------------------------------------------------

  /// Checks the graph, plans it and lays down its memory; what start() does the first time. Afterwards nothing can be added.
  void check();
  /// Begins a run. Throws errc::invalid_argument while the last one is not done. The second and later ones plan nothing.
  void start();
  /// Waits for its end. Throws error if it failed: what an operator threw, cancelled, timed_out, peer_lost …: the same on all ranks that it failed
  /// on, which are all, unless a rank was lost or told to cancel at the very end. Then it may be started again, if its communicators are whole.
  void wait();
  /// As wait(), without exceptions.
  std::error_code try_wait() noexcept;
  /// Ends the run with errc::cancelled on all ranks; returns at once.
  void cancel();
  bool done() const noexcept;

  const std::string& name() const noexcept;
  /// Nodes and streams as text, one line each.
  std::string describe() const;

private:
  template <class F, class... T>
  tensor_shape shape_of(const std::string& name, const F& body, const streams<T...>& inputs) const;
  template <class Ask>
  auto asked(const std::string& name, const Ask& ask) const;
  [[noreturn]] void refuse(const std::string& node, const std::string& why) const;
  stream_base promise(std::string name, const stream_type& what);
  void fulfil(const stream_base& promised, const stream_base& by);
  struct collected {
    collective what;
    op reduction;
    rank_t root = 0;
  };
  std::optional<stream_base> collect(std::string name, const collected& how, const stream_base* input,
                                     const stream_type& type, communicator& comm, const collective_options& options);
  static void record(timeline& into, flow_record what);
  struct inside;
  inside& here() const;
  std::shared_ptr<inside> inside_;
};

}  // namespace troupe

#include "engine/flow/flow_nodes.hpp"
