// SPDX-License-Identifier: Apache-2.0
// A hidden layer that no rank has whole: four ranks train the network of 06_train_digits, each with a quarter of its hidden units and a
// quarter of every batch (tensor and sequence parallelism: Megatron-LM; Korthikanti et al. 2022). One step is one flow:
//
//   images ─ all_gather ─┬─ × W1 (columns) ─ + bias, ReLU ─┬─ × W2 (rows) ─ reduce_scatter ─ error ─ all_gather ─┐
//                        │                                 ├─────────────── d W2 ────────────────────────────────┤
//                        └───────────── d W1 ──────────────┴─ ReLU backward ───────── × W2ᵀ ─────────────────────┘
//
// Tiles of four images go through it on their own: while some travel between the ranks, others are multiplied. Then the same training by one
// rank, for comparison; and a timeline of one step.
//
//   10_tensor_parallel [timeline.json [path of digits.csv]]                   four ranks in threads
//   troupe launch -n 4 build/release/examples/10_tensor_parallel [...]        processes, which print the same; the timeline is rank 0's

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <troupe.hpp>

#include "engine/flow/operators/gemm.hpp"

namespace {

using troupe::tensor;
using troupe::tile;

constexpr std::size_t pixels = 64, hidden = 48, classes = 10, batch = 64, tile_rows = 4;
constexpr float rate = 0.1F, momentum = 0.9F;
constexpr int epochs = 20;

struct random_numbers {  // splitmix64 (Steele, Lea, Flood 2014), as in 06_train_digits
  std::uint64_t state;
  std::uint64_t next() {
    std::uint64_t z = state += 0x9e3779b97f4a7c15U;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27) * 0x94d049bb133111ebU;
    return z ^ z >> 31;
  }
  float centred() { return static_cast<float>(next() >> 40) / static_cast<float>(1 << 23) - 1.0F; }  // [−1, 1)
};

struct image {
  std::array<float, pixels> pixel{};  // 0 … 1
  std::size_t digit = 0;
};

std::vector<image> read_images(const std::string& path) {
  std::ifstream file{path};
  std::vector<image> all;
  for (image next; file.good();) {
    char comma = 0;
    int value = 0;
    for (float& p : next.pixel) {
      file >> value >> comma;
      p = static_cast<float>(value) / 16.0F;
    }
    if (file >> next.digit) all.push_back(next);
  }
  random_numbers random{1998};
  for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[static_cast<std::size_t>(random.next() % i)]);
  return all;
}

/// A matrix of parameters with its gradient.
struct parameters {
  parameters(std::size_t rows, std::size_t columns)
      : shape{rows, columns}, value(rows * columns), gradient(value.size()), velocity(value.size()) {}
  tensor<float> values() { return {value.data(), shape}; }
  tensor<float> gradients() { return {gradient.data(), shape}; }
  void descend() {
    for (std::size_t i = 0; i < value.size(); ++i)
      value[i] += velocity[i] = momentum * velocity[i] - rate / static_cast<float>(batch) * gradient[i];
  }

  troupe::tensor_shape shape;
  std::vector<float> value, gradient, velocity;
};

/// What one of `ranks` ranks has of the network: some of the hidden units, with what goes into them and out of them; and the last bias.
struct shard {
  shard(int rank, int ranks)
      : units(hidden / static_cast<std::size_t>(ranks)),
        w1(pixels, units),
        b1(1, units),
        w2(units, classes),
        b2(1, classes) {
    random_numbers random{42};  // the same network, however it is divided
    const std::size_t first = static_cast<std::size_t>(rank) * units;
    for (std::size_t i = 0; i < pixels; ++i)
      for (std::size_t j = 0; j < hidden; ++j) {
        const float value = 0.2F * random.centred();
        if (j >= first && j < first + units) w1.values()(i, j - first) = value;
      }
    for (std::size_t j = 0; j < hidden; ++j)
      for (std::size_t k = 0; k < classes; ++k) {
        const float value = 0.2F * random.centred();
        if (j >= first && j < first + units) w2.values()(j - first, k) = value;
      }
  }

  std::size_t units;
  parameters w1, b1, w2, b2;
};

/// Adds up the columns of its tiles: the gradient of a bias.
struct column_sums {
  parameters& bias;
  void begin() { std::fill(bias.gradient.begin(), bias.gradient.end(), 0.0F); }
  void operator()(tile<const float> in) const {
    for (std::size_t i = 0; i < in.extent(0); ++i)
      for (std::size_t j = 0; j < in.extent(1); ++j) bias.gradient[j] += in(i, j);
  }
};

/// Trains this rank's part of the network.
void train(troupe::engine& engine, troupe::communicator& comm, shard& mine, const std::vector<image>& images,
           std::size_t count, troupe::timeline* timeline) {
  const auto ranks = static_cast<std::size_t>(comm.size()), me = static_cast<std::size_t>(comm.rank());
  const int tiles = static_cast<int>(batch / tile_rows / ranks);
  std::size_t first = 0;  // of the batch
  // Image `row` of tile `index` of this rank.
  const auto at = [&](int index, std::size_t row) -> const image& {
    return images[first + (static_cast<std::size_t>(index) * ranks + me) * tile_rows + row];
  };
  const int all = static_cast<int>(batch / tile_rows);  // a tile waits for its own way back

  const auto build = [&](troupe::timeline* times) {
    troupe::flow step{engine, "step", {.timeline = times}};
    const auto input = step.source<float>("images", {tile_rows, pixels}, tiles, [&](tile<float> out) {
      for (std::size_t row = 0; row < tile_rows; ++row)
        std::copy_n(at(out.index, row).pixel.begin(), pixels, &out(row, 0));
    });
    const auto whole = step.all_gather("gather images", input, comm, {.credit = all});
    const auto first_sums = step.map("times W1", whole, troupe::gemm<float>{mine.w1.values()});
    const auto active = step.map("bias, ReLU", first_sums,
                                 [&](tile<const float> in, tile<float> out) {
                                   for (std::size_t i = 0; i < in.extent(0); ++i)
                                     for (std::size_t j = 0; j < in.extent(1); ++j)
                                       out(i, j) = std::max(0.0F, in(i, j) + mine.b1.value[j]);
                                 },
                                 {.credit = all});
    const auto partial = step.map("times W2", active, troupe::gemm<float>{mine.w2.values()});
    const auto sums = step.reduce_scatter("sum of parts", partial, comm);
    const auto error = step.map("error", sums, [&](tile<const float> in, tile<float> out) {
      for (std::size_t i = 0; i < in.extent(0); ++i)
        for (std::size_t k = 0; k < classes; ++k)
          out(i, k) = in(i, k) + mine.b2.value[k] - (at(in.index, i).digit == k ? 1.0F : 0.0F);
    });
    const auto errors = step.all_gather("gather errors", error, comm);
    step.sink("d b2", errors, column_sums{mine.b2});
    step.sink("d W2", from(active, errors), troupe::gemm_weights<float>{mine.w2.gradients()});
    const auto back = step.map("times W2 transposed", errors, troupe::gemm<float>{mine.w2.values().transposed()});
    const auto before =
        step.map("ReLU backward", from(active, back), [](tile<const float> h, tile<const float> d, tile<float> out) {
          for (std::size_t i = 0; i < d.elements(); ++i) out.flat()[i] = h.flat()[i] > 0 ? d.flat()[i] : 0;
        });
    step.sink("d b1", before, column_sums{mine.b1});
    step.sink("d W1", from(whole, before), troupe::gemm_weights<float>{mine.w1.gradients()});
    return step;
  };

  troupe::flow step = build(nullptr);
  for (int epoch = 0; epoch < epochs; ++epoch)
    for (first = 0; first + batch <= count; first += batch) {
      step.start();
      step.wait();
      for (parameters* p : {&mine.w1, &mine.b1, &mine.w2, &mine.b2}) p->descend();
    }
  if (timeline == nullptr) return;
  first = 0;
  troupe::flow recorded = build(timeline);
  recorded.start();
  recorded.wait();
}

/// So that nobody trains for a timeline that cannot be written. The file keeps its contents.
bool can_write(const char* path) {
  if (std::ofstream{path, std::ios::app}) return true;
  std::fprintf(stderr, "cannot write the timeline to %s: give the path of a file in a folder that exists\n", path);
  return false;
}

/// All shards as they are after the training, at every rank.
std::vector<shard> trained(troupe::engine& engine, troupe::communicator& comm, const std::vector<image>& images,
                           std::size_t count, troupe::timeline* timeline) {
  std::vector<shard> all;
  for (int r = 0; r < comm.size(); ++r) all.emplace_back(r, comm.size());
  train(engine, comm, all[static_cast<std::size_t>(comm.rank())], images, count, timeline);
  for (int r = 0; r < comm.size(); ++r)
    for (parameters shard::*const which : {&shard::w1, &shard::b1, &shard::w2, &shard::b2})
      comm.broadcast((all[static_cast<std::size_t>(r)].*which).value, r);
  return all;
}

/// By all shards together.
std::size_t right_answers(const std::vector<shard>& shards, const std::vector<image>& images, std::size_t first) {
  std::size_t right = 0;
  for (std::size_t at = first; at < images.size(); ++at) {
    std::vector<float> out = shards[0].b2.value;
    for (const shard& s : shards)
      for (std::size_t j = 0; j < s.units; ++j) {
        float h = s.b1.value[j];
        for (std::size_t i = 0; i < pixels; ++i) h += images[at].pixel[i] * s.w1.value[i * s.units + j];
        h = std::max(h, 0.0F);
        for (std::size_t k = 0; k < classes; ++k) out[k] += h * s.w2.value[j * classes + k];
      }
    right += static_cast<std::size_t>(std::max_element(out.begin(), out.end()) - out.begin()) == images[at].digit;
  }
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<image> images = read_images(argc > 2 ? argv[2] : "data/digits.csv");
  if (images.size() != 1797) {
    std::fprintf(stderr,
                 "found %zu images, not 1797: run this in the folder examples, or give the path of digits.csv\n",
                 images.size());
    return 1;
  }
  const std::size_t cut = images.size() * 4 / 5, tests = images.size() - cut;
  const bool in_job = std::getenv("TROUPE_JOIN") != nullptr;  // by troupe launch
  troupe::engine engine;
  troupe::communicator world = in_job ? engine.join() : troupe::communicator{};
  const int many = in_job ? world.size() : 4;
  const bool speaks = !in_job || world.rank() == 0;
  if (static_cast<std::size_t>(many) > batch / tile_rows || 16 % many != 0) {
    if (speaks)
      std::fprintf(stderr, "%d ranks cannot share %zu hidden units and %zu tiles alike: start 1, 2, 4, 8 or 16\n", many,
                   hidden, batch / tile_rows);
    return 1;
  }
  std::vector<std::uint8_t> may_begin{static_cast<std::uint8_t>(argc <= 1 || !speaks || can_write(argv[1]))};
  if (in_job) world.broadcast(may_begin, 0);  // rank 0 writes it
  if (may_begin[0] == 0) return 1;
  troupe::timeline timeline;
  std::array<double, 2> accuracy{};
  for (const bool divided : {true, false}) {
    std::vector<shard> shards;
    if (in_job) {
      troupe::communicator comm = world.split(divided ? 0 : world.rank(), 0);
      shards = trained(engine, comm, images, cut, divided ? &timeline : nullptr);
    } else {
      engine.run(divided ? many : 1, [&](troupe::communicator& comm) {
        std::vector<shard> all = trained(engine, comm, images, cut, divided ? &timeline : nullptr);
        if (comm.rank() == 0) shards = std::move(all);
      });
    }
    accuracy[divided ? 0 : 1] = static_cast<double>(right_answers(shards, images, cut)) / static_cast<double>(tests);
    if (!speaks) continue;
    std::printf("%zu rank%s, %zu hidden units each: right on %.1f %% of %zu images never seen\n", shards.size(),
                shards.size() > 1 ? "s" : "", shards[0].units, 100 * accuracy[divided ? 0 : 1], tests);
  }
  if (argc > 1 && speaks) {
    timeline.write(argv[1]);
    std::printf("a timeline of one step was written; look at it in https://ui.perfetto.dev\n");
  }
  const bool good = accuracy[0] == accuracy[1] && accuracy[0] > 0.95;
  if (speaks) std::printf("the divided layer is as good as the whole one: %s\n", good ? "yes" : "no");
  return good ? 0 : 1;
}
