// SPDX-License-Identifier: Apache-2.0
// A layer of experts on real data: four ranks train a network on handwritten digits, whose middle is four small networks, one at each rank. A router
// sends every image to two of them; the exchange brings the images there, the results back, and the gradients the same ways.
//
//   13_experts                                                    four threads
//   troupe launch -n 4 build/release/examples/13_experts          four processes, which print the same
//
// At the end it prints what the last epoch has moved. Usage: 13_experts [profile.json [path of digits.csv]]

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <troupe.hpp>

namespace {

constexpr int experts = 4, top_k = 2;
constexpr std::size_t pixels = 64, inner = 24, classes = 10, batch = 64;  // of all ranks together
constexpr float rate = 0.05F, momentum = 0.9F;
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

/// A matrix [rows][columns], its gradient, and how it descends.
struct parameters {
  parameters(std::size_t rows, std::size_t columns, random_numbers& random)
      : columns(columns), value(rows * columns), gradient(value.size()), velocity(value.size()) {
    for (float& v : value) v = 0.2F * random.centred();
  }
  /// out += in · value
  void times(std::span<const float> in, std::span<float> out) const {
    for (std::size_t i = 0; i < in.size(); ++i)
      for (std::size_t j = 0; j < columns; ++j) out[j] += in[i] * value[i * columns + j];
  }
  /// The gradient of what went in, which is returned in `back`; adds its own.
  void backward(std::span<const float> in, std::span<const float> out, std::span<float> back) {
    for (std::size_t i = 0; i < in.size(); ++i) {
      float sum = 0;
      for (std::size_t j = 0; j < columns; ++j) {
        sum += value[i * columns + j] * out[j];
        gradient[i * columns + j] += in[i] * out[j];
      }
      back[i] += sum;
    }
  }
  void descend() {
    for (std::size_t i = 0; i < value.size(); ++i)
      value[i] += velocity[i] = momentum * velocity[i] - rate / static_cast<float>(batch) * gradient[i];
    std::fill(gradient.begin(), gradient.end(), 0.0F);
  }
  std::size_t columns;
  std::vector<float> value, gradient, velocity;
};

/// 64 → 24 → 64 with ReLU between: what one rank has.
struct expert {
  explicit expert(random_numbers random) : in(pixels, inner, random), out(inner, pixels, random) {}
  void forward(std::span<float> row, std::span<float> hidden) const {
    in.times(row, hidden);
    for (float& h : hidden) h = std::max(h, 0.0F);
    std::fill(row.begin(), row.end(), 0.0F);
    out.times(hidden, row);
  }
  /// `gradient`: of the result, then of what went in.
  void backward(std::span<const float> input, std::span<const float> hidden, std::span<float> gradient) {
    std::array<float, inner> of_hidden{};
    out.backward(hidden, gradient, of_hidden);
    for (std::size_t j = 0; j < inner; ++j)
      if (hidden[j] <= 0) of_hidden[j] = 0;
    std::fill(gradient.begin(), gradient.end(), 0.0F);
    in.backward(input, of_hidden, gradient);
  }
  parameters in, out;
};

/// One rank's part: its expert; the router and the last layer, which all have.
class trainer {
public:
  explicit trainer(troupe::communicator& comm)
      : comm_(&comm),
        exchange_(comm.expert_exchange(experts, {.hidden = pixels, .top_k = top_k, .capacity = 1.5})),
        mine_(random_numbers{100 + static_cast<std::uint64_t>(comm.rank())}),
        router_(pixels, experts, common_),
        last_(pixels, classes, common_) {}

  /// The right answers among this rank's images; with `learn` the network is a little better afterwards.
  std::size_t step(std::span<const image> images, bool learn) {
    const std::size_t n = images.size();
    tokens_.clear();
    for (const image& i : images) tokens_.insert(tokens_.end(), i.pixel.begin(), i.pixel.end());
    route(n);
    const auto here = exchange_.dispatch<float>(tokens_, ids_, weights_);
    inputs_.assign(here.rows.begin(), here.rows.end());
    hidden_.assign(here.size() * inner, 0.0F);
    for (std::size_t row = 0; row < here.size(); ++row)
      mine_.forward(here.rows.subspan(row * pixels, pixels), std::span(hidden_).subspan(row * inner, inner));
    sums_.resize(n * pixels);
    exchange_.combine<float>(here.rows, sums_);

    // Beside the experts each image goes on as it is; then the last layer, and the error against the digit.
    std::size_t right = 0;
    gradient_.assign(n * pixels, 0.0F);
    for (std::size_t t = 0; t < n; ++t) {
      const std::span<float> sum = std::span(sums_).subspan(t * pixels, pixels);
      for (std::size_t i = 0; i < pixels; ++i) sum[i] += tokens_[t * pixels + i];
      std::array<float, classes> out{};
      last_.times(sum, out);
      right += static_cast<std::size_t>(std::max_element(out.begin(), out.end()) - out.begin()) == images[t].digit;
      out[images[t].digit] -= 1;
      if (learn) last_.backward(sum, out, std::span(gradient_).subspan(t * pixels, pixels));
    }
    if (learn) {
      go_back(here.rows, n);
      balance();
    }
    return right;
  }

  troupe::expert_exchange& exchange() { return exchange_; }

private:
  /// The two experts that score best; weights between 0 and 1 that no library's exp() has a say in.
  void route(std::size_t n) {
    ids_.resize(n * top_k);
    weights_.resize(n * top_k);
    scores_.assign(n * experts, 0.0F);
    for (std::size_t t = 0; t < n; ++t) {
      const std::span<float> score = std::span(scores_).subspan(t * experts, experts);
      router_.times(std::span<const float>(tokens_).subspan(t * pixels, pixels), score);
      std::array<float, experts> preference{};
      for (std::size_t e = 0; e < experts; ++e) preference[e] = score[e] + bias_[e];
      std::array<std::int32_t, experts> order{0, 1, 2, 3};
      std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        return preference[static_cast<std::size_t>(a)] > preference[static_cast<std::size_t>(b)];
      });
      for (std::size_t j = 0; j < top_k; ++j) {
        const float s = score[static_cast<std::size_t>(order[j])];
        ids_[t * top_k + j] = order[j];
        weights_[t * top_k + j] = 0.5F + 0.5F * s / (1 + std::abs(s));
      }
    }
  }

  /// Experts that had too much are chosen a little less next time, without a word in the loss (Wang et al. 2024, as in DeepSeek-V3).
  void balance() {
    std::array<std::int32_t, experts> load{};
    for (const std::int32_t id : ids_) ++load[static_cast<std::size_t>(id)];
    comm_->all_reduce(load, troupe::sum);
    const auto fair = static_cast<std::int32_t>(batch * top_k / experts);
    for (std::size_t e = 0; e < experts; ++e) bias_[e] += load[e] < fair ? 0.02F : load[e] > fair ? -0.02F : 0.0F;
  }

  /// `results`: of the experts here, as they were combined.
  void go_back(std::span<const float> results, std::size_t n) {
    of_weights_.resize(weights_.size());
    const auto back = exchange_.combine_backward<float>(gradient_, results, of_weights_);
    for (std::size_t row = 0; row < back.size(); ++row)
      mine_.backward(std::span<const float>(inputs_).subspan(row * pixels, pixels),
                     std::span<const float>(hidden_).subspan(row * inner, inner),
                     back.rows.subspan(row * pixels, pixels));
    // Nothing lies before the images, so nobody asks for their gradients; a layer before this one would.
    std::vector<float> unused(n * pixels);
    exchange_.dispatch_backward<float>(back.rows, unused);
    for (std::size_t t = 0; t < n; ++t) {
      std::array<float, experts> of_scores{};
      for (std::size_t c = t * top_k; c < (t + 1) * top_k; ++c) {
        const auto e = static_cast<std::size_t>(ids_[c]);
        const float s = 1 + std::abs(scores_[t * experts + e]);
        of_scores[e] = of_weights_[c] * 0.5F / (s * s);
      }
      router_.backward(std::span<const float>(tokens_).subspan(t * pixels, pixels), of_scores,
                       std::span(unused).subspan(t * pixels, pixels));
    }
    // An expert has had the images of all ranks; router and last layer only those of this one.
    for (parameters* p : {&router_, &last_})
      comm_->all_reduce(p->gradient, troupe::sum, {.level = troupe::determinism::topology_stable});
    for (parameters* p : {&router_, &last_, &mine_.in, &mine_.out}) p->descend();
  }

  troupe::communicator* comm_;
  troupe::expert_exchange exchange_;
  random_numbers common_{42};
  expert mine_;
  parameters router_, last_;
  std::array<float, experts> bias_{};
  std::vector<float> tokens_, weights_, scores_, inputs_, hidden_, sums_, gradient_, of_weights_;
  std::vector<std::int32_t> ids_;
};

/// This rank's part of the images from `first` to `end`.
std::span<const image> part_of(std::span<const image> images, std::size_t first, std::size_t end, int rank, int ranks) {
  const auto r = static_cast<std::size_t>(rank), n = static_cast<std::size_t>(ranks), count = end - first;
  return images.subspan(first + count * r / n, count * (r + 1) / n - count * r / n);
}

bool train(troupe::communicator& comm, const std::vector<image>& images, const char* json) {
  const std::size_t cut = images.size() * 4 / 5, tests = images.size() - cut;
  trainer mine{comm};
  for (int epoch = 0; epoch < epochs; ++epoch) {
    mine.exchange().reset_profile();
    for (std::size_t first = 0; first + batch <= cut; first += batch)
      mine.step(part_of(images, first, first + batch, comm.rank(), comm.size()), true);
  }
  const troupe::expert_profile profile = mine.exchange().profile();
  auto right =
      static_cast<std::uint64_t>(mine.step(part_of(images, cut, images.size(), comm.rank(), comm.size()), false));
  comm.all_reduce(right, troupe::sum);
  const double share = static_cast<double>(right) / static_cast<double>(tests);
  if (comm.rank() == 0) {
    std::printf("%d experts on %d ranks: right on %.1f %% of %zu images never seen\n", experts, comm.size(),
                100 * share, tests);
    std::printf("%s", profile.table(false).c_str());
    if (json != nullptr) {
      std::ofstream{json} << profile.json() << '\n';
      std::ofstream{std::filesystem::path{json}.replace_extension("svg")} << profile.heat_map();
    }
  }
  return share > 0.95;
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
  const char* const json = argc > 1 ? argv[1] : nullptr;
  troupe::engine engine;
  bool good = true;
  if (std::getenv("TROUPE_JOIN") != nullptr) {  // by troupe launch
    troupe::communicator world = engine.join();
    good = train(world, images, json);
  } else {
    engine.run(4, [&](troupe::communicator& comm) {
      const bool learned = train(comm, images, json);
      if (comm.rank() == 0) good = learned;
    });
  }
  return good ? 0 : 1;
}
