// SPDX-License-Identifier: Apache-2.0
// Data-parallel training on real data: four ranks train one small neural network on handwritten digits
// (data/README.md). Every rank has the whole network and a quarter of every batch; the gradients are averaged by one
// all_reduce a step.
//
// Then the same training, once with each choreography that can do it on this layout, with determinism::topology_stable: every
// one of them must end with exactly the same bits in every weight. Usage: 06_train_digits [path of digits.csv]

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <troupe.hpp>

#include "protocols/choreographies/choreography.hpp"

namespace {

constexpr int ranks = 4;
constexpr std::size_t pixels = 64, hidden = 48, classes = 10;
constexpr std::size_t batch = 64;  // of all ranks together
constexpr float rate = 0.1F, momentum = 0.9F;

/// splitmix64 (Steele, Lea, Flood 2014): the same numbers on every machine, unlike the standard's distributions.
struct random_numbers {
  std::uint64_t state;
  std::uint64_t next() {
    std::uint64_t z = state += 0x9e3779b97f4a7c15U;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27) * 0x94d049bb133111ebU;
    return z ^ z >> 31;
  }
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(next() % n); }
  float centred() { return static_cast<float>(next() >> 40) / static_cast<float>(1 << 23) - 1.0F; }  // [−1, 1)
};

struct image {
  std::array<float, pixels> pixel{};  // 0 … 1
  std::size_t digit = 0;
};

/// The images in a shuffled order, so that the first 80 % and the rest have the same writers.
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
  for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random.below(i)]);
  return all;
}

/// 64 → 48 → 10, ReLU between, squared error against one-hot digits: nothing but +, ·, and comparisons, so that no
/// library's exp() has a say in the bits. All parameters lie in one vector, so that one all_reduce does.
struct network {
  static constexpr std::size_t bias1 = pixels * hidden, weight2 = bias1 + hidden, bias2 = weight2 + hidden * classes,
                               size = bias2 + classes;
  std::vector<float> w = std::vector<float>(size), velocity = std::vector<float>(size);

  network() {
    random_numbers random{42};  // the same start at every rank
    for (std::size_t i = 0; i < bias1; ++i) w[i] = 0.2F * random.centred();
    for (std::size_t i = weight2; i < bias2; ++i) w[i] = 0.2F * random.centred();
  }

  void forward(const image& in, std::array<float, hidden>& h, std::array<float, classes>& out) const {
    std::copy_n(&w[bias1], hidden, h.begin());
    for (std::size_t i = 0; i < pixels; ++i)
      for (std::size_t j = 0; j < hidden; ++j) h[j] += in.pixel[i] * w[i * hidden + j];
    for (float& value : h) value = std::max(value, 0.0F);
    std::copy_n(&w[bias2], classes, out.begin());
    for (std::size_t j = 0; j < hidden; ++j)
      for (std::size_t k = 0; k < classes; ++k) out[k] += h[j] * w[weight2 + j * classes + k];
  }

  /// Adds the gradient of one image, times `weight`.
  void backward(const image& in, float weight, std::vector<float>& gradient) const {
    std::array<float, hidden> h{};
    std::array<float, classes> out{};
    forward(in, h, out);
    for (std::size_t k = 0; k < classes; ++k) out[k] = weight * (out[k] - (k == in.digit ? 1.0F : 0.0F));
    for (std::size_t k = 0; k < classes; ++k) gradient[bias2 + k] += out[k];
    for (std::size_t j = 0; j < hidden; ++j) {
      float back = 0;
      for (std::size_t k = 0; k < classes; ++k) {
        gradient[weight2 + j * classes + k] += h[j] * out[k];
        back += w[weight2 + j * classes + k] * out[k];
      }
      h[j] = h[j] > 0 ? back : 0;
      gradient[bias1 + j] += h[j];
    }
    for (std::size_t i = 0; i < pixels; ++i)
      for (std::size_t j = 0; j < hidden; ++j) gradient[i * hidden + j] += in.pixel[i] * h[j];
  }

  void descend(const std::vector<float>& gradient) {
    for (std::size_t i = 0; i < size; ++i) w[i] += velocity[i] = momentum * velocity[i] - rate * gradient[i];
  }

  std::size_t right_answers(std::span<const image> images) const {
    std::array<float, hidden> h{};
    std::array<float, classes> out{};
    return static_cast<std::size_t>(std::count_if(images.begin(), images.end(), [&](const image& i) {
      forward(i, h, out);
      return std::max_element(out.begin(), out.end()) - out.begin() == static_cast<std::ptrdiff_t>(i.digit);
    }));
  }

  /// FNV-1a over the bits of all weights: one changed bit changes it.
  std::uint64_t hash() const {
    std::uint64_t h = 0xcbf29ce484222325U;
    for (const float value : w) h = (h ^ std::bit_cast<std::uint32_t>(value)) * 0x100000001b3U;
    return h;
  }
};

/// Trains on every rank; returns the network of each.
std::vector<network> train(const troupe::engine_options& options, std::span<const image> images, int epochs) {
  std::vector<network> replicas(ranks);
  troupe::engine engine{options};
  engine.run(ranks, [&](troupe::communicator& comm) {
    const auto r = static_cast<std::size_t>(comm.rank());
    network& mine = replicas[r];
    std::vector<float> gradient(network::size);
    for (int epoch = 0; epoch < epochs; ++epoch)
      for (std::size_t first = 0; first + batch <= images.size(); first += batch) {
        std::fill(gradient.begin(), gradient.end(), 0.0F);
        for (std::size_t i = first + r; i < first + batch; i += ranks)  // this rank's quarter
          mine.backward(images[i], static_cast<float>(ranks) / static_cast<float>(batch), gradient);
        comm.all_reduce(gradient, troupe::average);
        mine.descend(gradient);
      }
  });
  return replicas;
}

bool same_everywhere(const std::vector<network>& replicas) {
  return std::all_of(replicas.begin(), replicas.end(),
                     [&](const network& n) { return n.hash() == replicas[0].hash(); });
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<image> images = read_images(argc > 1 ? argv[1] : "data/digits.csv");
  if (images.size() != 1797) {
    std::fprintf(stderr,
                 "found %zu images, not 1797: run this in the folder examples, or give the path of digits.csv\n",
                 images.size());
    return 1;
  }
  const std::size_t cut = images.size() * 4 / 5;
  const std::span<const image> training = std::span{images}.first(cut), test = std::span{images}.subspan(cut);

  const std::vector<network> trained = train({}, training, 20);
  const double accuracy = static_cast<double>(trained[0].right_answers(test)) / static_cast<double>(test.size());
  std::printf("%d ranks trained on %zu images; replicas identical: %s; right on %.1f %% of %zu images never seen: %s\n",
              ranks, training.size(), same_everywhere(trained) ? "yes" : "no", 100 * accuracy, test.size(),
              accuracy > 0.95 ? "good" : "too few");

  troupe::setup on = troupe::flat_setup(troupe::collective::all_reduce, ranks, 0, true);
  on.placement = troupe::layout::parse("2x2");
  bool identical = true;
  std::uint64_t expected = 0;
  for (const troupe::choreography* c : troupe::all_choreographies()) {
    if (!troupe::refusal(*c, on).empty()) continue;
    troupe::engine_options options;
    options.layout = "2x2";  // two servers of two cards, for the choreographies that know of them
    options.choreography_of["all_reduce"] = std::string{c->name};
    options.level = troupe::determinism::topology_stable;
    const std::vector<network> replicas = train(options, training, 2);
    if (expected == 0) expected = replicas[0].hash();
    identical = identical && same_everywhere(replicas) && replicas[0].hash() == expected;
    std::printf("%-22s weights %016llx\n", options.choreography_of["all_reduce"].c_str(),
                static_cast<unsigned long long>(replicas[0].hash()));
  }
  std::printf("the same bits with every choreography: %s\n", identical ? "yes" : "no");
  return accuracy > 0.95 && identical ? 0 : 1;
}
