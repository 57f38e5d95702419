// SPDX-License-Identifier: Apache-2.0
// Training that goes on when a worker is killed. Every process has the whole model and its share of every batch, as in 06_train_digits; one kills
// itself, as kill −9 would, and the others go on without it, from the last step that all of them have done:
//
//   troupe launch -n 4 --keep-going build/release/examples/09_survive [STEP [RANK [path of digits.csv]]]
//
// At the end the weights are compared, bit by bit, with a run that nobody disturbed, in which the same ranks leave at the same step: here, with
// threads instead of processes. determinism::topology_stable says that this makes no difference.

#include <algorithm>
#include <array>
#include <bit>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

#include <troupe.hpp>

namespace {

constexpr int steps = 200;
constexpr std::size_t pixels = 64, classes = 10, batch = 96, tests = 360;

struct image {
  std::array<float, pixels + 1> pixel{};  // 0 … 1, and a 1 behind them, whose weight is the bias
  std::size_t digit = 0;
};

std::vector<image> read_images(const std::string& path) {
  std::ifstream file{path};
  std::vector<image> all;
  for (image next; file.good();) {
    char comma = 0;
    int value = 0;
    for (std::size_t i = 0; i < pixels; ++i) {
      file >> value >> comma;
      next.pixel[i] = static_cast<float>(value) / 16.0F;
    }
    next.pixel[pixels] = 1;
    if (file >> next.digit) all.push_back(next);
  }
  return all;
}

/// One number a pixel and digit; the greatest sum is the answer.
using weights = std::vector<float>;

float answer(const weights& w, const image& in, std::size_t digit) {
  float sum = 0;
  for (std::size_t i = 0; i <= pixels; ++i) sum += w[digit * (pixels + 1) + i] * in.pixel[i];
  return sum;
}

/// This rank's share of the step's batch, the mean of everybody's gradients, and a step down. Changes nothing if it fails.
void train(troupe::communicator& comm, weights& w, const std::vector<image>& images, int step) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  const std::size_t first = static_cast<std::size_t>(step) * batch;
  weights gradient(w.size());
  for (std::size_t n = static_cast<std::size_t>(comm.rank()); n < batch; n += ranks) {
    const image& in = images[(first + n) % (images.size() - tests)];
    for (std::size_t digit = 0; digit < classes; ++digit) {
      const float wrong = answer(w, in, digit) - (digit == in.digit ? 1.0F : 0.0F);
      for (std::size_t i = 0; i <= pixels; ++i) gradient[digit * (pixels + 1) + i] += wrong * in.pixel[i];
    }
  }
  comm.all_reduce(gradient, troupe::average, {.level = troupe::determinism::topology_stable});
  for (std::size_t i = 0; i < w.size(); ++i) w[i] -= 0.002F * gradient[i];
}

struct survivors {
  weights w;
  std::vector<int> ranks;  // of the world
  int since = 0;           // the step from which they were alone
};

/// What this example is about.
survivors train_and_survive(troupe::communicator comm, const std::vector<image>& images, int victim, int at) {
  const int me = comm.rank();
  survivors result{weights(classes * (pixels + 1)), {}, 0};
  weights before = result.w;  // of the step before
  int done = 0;
  for (bool agreed = true; done < steps;) try {
      if (!agreed) {
        // No all_reduce ends anywhere before all have come to it, so nobody is more than a step ahead.
        int least = done;
        comm.all_reduce(least, troupe::minimum);
        if (least < done) result.w = before;
        done = result.since = least;
        agreed = true;
      }
      if (me == victim && done == at) std::raise(SIGKILL);
      const weights now = result.w;
      train(comm, result.w, images, done);
      before = now;
      ++done;
    } catch (const troupe::error& e) {
      if (e.code_value() != troupe::errc::peer_lost) throw;
      std::fprintf(stderr, "rank %d, in step %d: %s\n", me, done, e.what());
      comm = comm.shrink();
      agreed = false;
    }
  result.ranks.resize(static_cast<std::size_t>(comm.size()));
  comm.all_gather(std::array{me}, result.ranks);
  return result;
}

/// The same, without processes and without failures.
weights train_undisturbed(int ranks, const survivors& like, const std::vector<image>& images) {
  weights result;
  troupe::engine engine;
  engine.run(ranks, [&](troupe::communicator& comm) {
    weights w(classes * (pixels + 1));
    for (int step = 0; step < like.since; ++step) train(comm, w, images, step);
    const bool stays = std::count(like.ranks.begin(), like.ranks.end(), comm.rank()) > 0;
    troupe::communicator rest = comm.split(stays ? 0 : -1, comm.rank());
    if (!rest) return;
    for (int step = like.since; step < steps; ++step) train(rest, w, images, step);
    if (rest.rank() == 0) result = w;
  });
  return result;
}

bool same_bits(const weights& a, const weights& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const int at = argc > 1 ? std::atoi(argv[1]) : 80, victim = argc > 2 ? std::atoi(argv[2]) : 1;
  const std::vector<image> images = read_images(argc > 3 ? argv[3] : "data/digits.csv");
  if (images.size() != 1797) {
    std::fprintf(stderr,
                 "found %zu images, not 1797: run this in the folder examples, or give the path of digits.csv\n",
                 images.size());
    return 2;
  }
  try {
    troupe::engine engine;
    troupe::communicator world = engine.join();
    const int rank = world.rank(), ranks = world.size();
    const survivors left = train_and_survive(std::move(world), images, victim, at);
    if (rank != left.ranks[0]) return 0;  // one of them tells
    std::printf("ranks that are left:");
    for (const int r : left.ranks) std::printf(" %d", r);
    std::size_t right = 0;
    for (std::size_t n = images.size() - tests; n < images.size(); ++n) {
      std::array<float, classes> all{};
      for (std::size_t digit = 0; digit < classes; ++digit) all[digit] = answer(left.w, images[n], digit);
      right += static_cast<std::size_t>(std::max_element(all.begin(), all.end()) - all.begin()) == images[n].digit;
    }
    const bool same = same_bits(left.w, train_undisturbed(ranks, left, images));
    std::printf("\nright on images never seen: %s\n", right > tests * 3 / 4 ? "good" : "too few");
    std::printf("the same weights as without the failure, bit by bit: %s\n", same ? "yes" : "no");
    return same && right > tests * 3 / 4 ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
