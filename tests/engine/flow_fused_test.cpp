// SPDX-License-Identifier: Apache-2.0
// A tensor- and sequence-parallel MLP block, forward and backward, as flows, against the same steps on whole tensors: bit for bit.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/api/troupe.hpp"
#include "engine/flow/operators/add.hpp"
#include "engine/flow/operators/dropout.hpp"
#include "engine/flow/operators/gelu.hpp"
#include "engine/flow/operators/gemm.hpp"
#include "engine/flow/operators/layer_norm.hpp"
#include "tests/seed.hpp"
#include "topology/machine/routes.hpp"

using namespace troupe;

namespace {

constexpr std::size_t wide = 24, hidden = 20;  // of one row; hidden units of each rank

struct matrix {
  matrix(std::size_t rows, std::size_t columns) : shape{rows, columns}, data(rows * columns) {}
  tensor<float> view() { return {data.data(), shape}; }
  tile<float> whole() { return {view(), 0}; }
  tile<const float> read() { return whole(); }
  bool operator==(const matrix& other) const {  // bits, not values
    return std::memcmp(data.data(), other.data.data(), data.size() * sizeof(float)) == 0;
  }
  void fill(unsigned salt) {
    std::mt19937 random{static_cast<unsigned>(seed()) + salt};
    std::uniform_real_distribution<float> values{-1, 1};
    for (float& x : data) x = values(random);
  }
  tensor_shape shape;
  std::vector<float> data;
};

/// What one rank has of the block, and what a step makes of it.
struct block {
  block(unsigned rank, std::size_t rows, std::size_t all)
      : x(rows, wide),
        d_out(rows, wide),
        w1(wide, hidden),
        w2(hidden, wide),
        gain(1, wide),
        bias(1, wide),
        before(all, hidden),
        out(rows, wide),
        d_x(rows, wide),
        d_w1(wide, hidden),
        d_w2(hidden, wide),
        d_gain(1, wide),
        d_bias(1, wide) {
    unsigned salt = 100 * rank;
    for (matrix* each : {&x, &d_out, &w1, &w2}) each->fill(++salt);
    gain.fill(1), bias.fill(2);
    drop.first = rank * rows * wide;
  }
  bool same_results(const block& other) const {
    return out == other.out && d_x == other.d_x && d_w1 == other.d_w1 && d_w2 == other.d_w2 && d_gain == other.d_gain &&
           d_bias == other.d_bias;
  }
  layer_norm<float> norm() { return {gain.data, bias.data}; }
  layer_norm_backward<float> norm_backward() { return {gain.data, d_gain.data, d_bias.data}; }

  matrix x, d_out, w1, w2, gain, bias;
  matrix before;  ///< what goes into gelu, which the backward pass needs
  matrix out, d_x, d_w1, d_w2, d_gain, d_bias;
  dropout drop{.rate = 0.2, .seed = 11, .call = 3};
};

/// Rows of the whole in the order of a flow's tiles: part by part, of each part rank by rank.
tensor<float> rows_of(matrix& of, std::size_t tile, std::size_t ranks, std::size_t tile_rows) {
  const std::size_t each = of.shape[0] / ranks;
  return of.view().slice(0, tile % ranks * each + tile / ranks * tile_rows, tile_rows);
}

void unfused(communicator& comm, block& b, std::size_t tile_rows) {
  const auto n = static_cast<std::size_t>(comm.size());
  const std::size_t rows = b.x.shape[0], all = n * rows;
  matrix normal(rows, wide), whole(all, wide), active(all, hidden), partial(all, wide), sums(rows, wide),
      dropped(rows, wide);
  b.norm()(b.x.read(), normal.whole());
  comm.all_gather(normal.data, whole.data);
  multiply(whole.view(), b.w1.view(), b.before.view());
  gelu{}(b.before.read(), active.whole());
  multiply(active.view(), b.w2.view(), partial.view());
  comm.reduce_scatter(partial.data, sums.data);
  b.drop(sums.read(), dropped.whole());
  add{}(b.x.read(), dropped.read(), b.out.whole());

  matrix d_sums(rows, wide), d_whole(all, wide), d_active(all, hidden), d_before(all, hidden), d_partial(all, wide),
      d_normal(rows, wide);
  matrix d_norm(rows, wide);
  b.drop(b.d_out.read(), d_sums.whole());
  comm.all_gather(d_sums.data, d_whole.data);
  multiply(d_whole.view(), b.w2.view().transposed(), d_active.view());
  gelu_backward{}(b.before.read(), d_active.read(), d_before.whole());
  multiply(d_before.view(), b.w1.view().transposed(), d_partial.view());
  comm.reduce_scatter(d_partial.data, d_normal.data);
  auto back = b.norm_backward();
  back.begin();
  back(b.x.read(), d_normal.read(), d_norm.whole());
  add{}(b.d_out.read(), d_norm.read(), b.d_x.whole());
  // Sums over rows, which come in the order of the tiles.
  for (std::size_t t = 0; t < all / tile_rows; ++t) {
    multiply(rows_of(whole, t, n, tile_rows).transposed(), rows_of(d_before, t, n, tile_rows), b.d_w1.view(), t > 0);
    multiply(rows_of(active, t, n, tile_rows).transposed(), rows_of(d_whole, t, n, tile_rows), b.d_w2.view(), t > 0);
  }
}

/// Both passes in one flow: nothing waits for a whole tensor but what the loss, which is not here, would wait for.
flow fused(engine& e, communicator& comm, block& b, std::size_t tile_rows) {
  const int tiles = static_cast<int>(b.x.shape[0] / tile_rows), all = tiles * comm.size();
  const tensor_shape shape{tile_rows, wide};
  const auto part = [tile_rows](matrix& of, int index) {
    return of.view().slice(0, static_cast<std::size_t>(index) * tile_rows, tile_rows);
  };
  const auto reads = [&b, part](matrix block::*what) {
    return [&b, part, what](tile<float> out) {
      const auto from = part(b.*what, out.index).flat();
      std::copy(from.begin(), from.end(), out.data());
    };
  };
  const auto writes = [&b, part](matrix block::*what) {
    return [&b, part, what](tile<const float> in) {
      std::copy(in.flat().begin(), in.flat().end(), part(b.*what, in.index).data());
    };
  };
  flow f{e, "mlp"};
  const auto x = f.source<float>("x", shape, tiles, reads(&block::x), {.credit = tiles});
  const auto whole = f.all_gather("gather", f.map("norm", x, b.norm()), comm, {.credit = all});
  const auto before = f.map("times W1", whole, gemm<float>{b.w1.view()}, {.credit = all});
  const auto active = f.map("gelu", before, gelu{}, {.credit = all});
  const auto sums = f.reduce_scatter("scatter", f.map("times W2", active, gemm<float>{b.w2.view()}), comm);
  f.sink("out", f.map("residual", from(x, f.map("dropout", sums, b.drop)), add{}), writes(&block::out));

  const auto d_out = f.source<float>("d out", shape, tiles, reads(&block::d_out), {.credit = tiles});
  const auto d_whole = f.all_gather("gather d", f.map("dropout d", d_out, b.drop), comm, {.credit = all});
  const auto d_active = f.map("times W2 transposed", d_whole, gemm<float>{b.w2.view().transposed()});
  const auto d_before = f.map("gelu d", from(before, d_active), gelu_backward{});
  const auto d_partial = f.map("times W1 transposed", d_before, gemm<float>{b.w1.view().transposed()});
  const auto d_normal = f.reduce_scatter("scatter d", d_partial, comm);
  const auto d_norm = f.map("norm d", from(x, d_normal), b.norm_backward());
  f.sink("d x", f.map("residual d", from(d_out, d_norm), add{}), writes(&block::d_x));
  f.sink("d W1", from(whole, d_before), gemm_weights<float>{b.d_w1.view()});
  f.sink("d W2", from(active, d_whole), gemm_weights<float>{b.d_w2.view()});
  return f;
}

}  // namespace

TEST_CASE(
    "layer_norm → all_gather → gemm and gemm → reduce_scatter → dropout as a flow have the bits of the whole tensors") {
  for (const int ranks : {2, 3, 4}) {
    CAPTURE(ranks);
    for (const std::size_t tile_rows : {std::size_t{1}, std::size_t{4}}) {
      CAPTURE(tile_rows);
      engine_options options;
      options.level = determinism::topology_stable;
      engine e{options};
      e.run(ranks, [&](communicator& comm) {
        constexpr std::size_t rows = 12;
        const auto me = static_cast<unsigned>(comm.rank());
        block apart{me, rows, rows * static_cast<std::size_t>(ranks)}, together = apart;
        unfused(comm, apart, tile_rows);
        flow f = fused(e, comm, together, tile_rows);
        for (int run = 0; run < 2; ++run) {
          f.start();
          f.wait();
          CHECK(together.same_results(apart));
        }
      });
    }
  }
}

TEST_CASE(
    "on a card the tiles of the flow cross the elements by csc: the bits of the whole tensors, and as many bytes") {
  for (const int ranks : {3, 4}) {
    CAPTURE(ranks);
    engine_options options;
    options.level = determinism::topology_stable;
    options.layout = "1x1x" + std::to_string(ranks);
    options.choreography = "csc";
    options.trace_routes = true;
    constexpr std::size_t rows = 12;
    std::vector<block> apart, together;
    for (int r = 0; r < ranks; ++r)
      apart.emplace_back(static_cast<unsigned>(r), rows, rows * static_cast<std::size_t>(ranks));
    together = apart;
    engine whole{options}, tiles{options};
    whole.run(ranks, [&](communicator& comm) {
      unfused(comm, apart[static_cast<std::size_t>(comm.rank())], 4);
      const std::vector<std::byte> vote(1);  // the ranks of a flow agree on its end
      std::vector<std::byte> votes(static_cast<std::size_t>(ranks));
      comm.all_gather(vote, votes);
    });
    tiles.run(ranks, [&](communicator& comm) {
      block& mine = together[static_cast<std::size_t>(comm.rank())];
      flow f = fused(tiles, comm, mine, 4);
      f.start();
      f.wait();
      CHECK(mine.same_results(apart[static_cast<std::size_t>(comm.rank())]));
    });
    const auto bytes_of = [](engine& e) {
      std::map<std::string, std::uint64_t> bytes;
      for (const element_traffic& of : e.traffic()) bytes[of.element] = of.bytes;
      return bytes;
    };
    const auto carried = bytes_of(tiles);
    auto wanted = bytes_of(whole);
    for (auto& [element, bytes] : wanted)
      if (element.starts_with("dma")) bytes -= 2 * rows * wide * sizeof(float);  // a flow's all_gathers are in place
    CHECK(carried == wanted);
    // All that csc's all_gathers and reduce_scatters, two each, fetch of other core groups' shares of L2; and the votes.
    std::uint64_t on_ring = 0, fetched = 0;
    for (const auto& [element, bytes] : carried) on_ring += element.starts_with("ring") ? bytes : 0;
    const machine card{layout::parse(options.layout)};
    for (int a = 0; a < ranks; ++a)
      for (int b = 0; b < ranks; ++b)
        for (const hop& h : route_between(card, a, b).hops)
          fetched += h.kind == element_kind::ring_segment ? 4 * rows * wide * sizeof(float) + 1 : 0;
    CHECK(on_ring == fetched);
  }
}
