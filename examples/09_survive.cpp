// SPDX-License-Identifier: Apache-2.0
// Training that goes on when a worker is killed. Every process has the whole model and its share of every batch, as in 06_train_digits; one kills
// itself, as kill −9 would, and the others go on without it, from the last step that all of them have done. Some steps later a new process, which
// the first of them starts, takes its place:
//
//   build/release/troupe launch -n 4 --keep-going build/release/examples/09_survive 80 1 examples/data/digits.csv
//
// Rank 1 is killed before step 80, which is what happens without arguments, too, in the folder examples. A job of one process, or a rank or step
// that there is not, goes on undisturbed.
//
// At the end the weights are compared, bit by bit, with a run that nobody disturbed, in which the same ranks leave and come at the same steps: here,
// with threads instead of processes. determinism::topology_stable says that this makes no difference.

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <troupe.hpp>

namespace {

constexpr int steps = 200, alone = 40;  ///< so many of them nobody takes the place of a lost rank
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

/// This rank's share of the step's batch, everybody's gradients, and a step down their mean over the batch, however many ranks there are. Changes
/// nothing if it fails.
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
  comm.all_reduce(gradient, troupe::sum, {.level = troupe::determinism::topology_stable});
  for (std::size_t i = 0; i < w.size(); ++i) w[i] -= 0.05F * gradient[i] / static_cast<float>(batch);
}

/// A process of this program that joins by an invitation.
class replacement {
public:
  ~replacement() {
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }
  void start(const std::string& invitation, const std::string& images) {
    std::vector<std::string> words{"09_survive", "--new", images}, variables{"TROUPE_JOIN=" + invitation};
    for (char** v = environ; *v != nullptr; ++v)
      if (const std::string_view each{*v}; !each.starts_with("TROUPE_JOIN=") && !each.starts_with("TROUPE_RANK"))
        variables.emplace_back(each);  // but for those that say who this process is
    const auto pointers = [](std::vector<std::string>& of) {
      std::vector<char*> all;
      for (std::string& text : of) all.push_back(text.data());
      all.push_back(nullptr);
      return all;
    };
    if (::posix_spawn(&pid_, "/proc/self/exe", nullptr, nullptr, pointers(words).data(), pointers(variables).data()) !=
        0)
      throw std::runtime_error("no new process can be started");
  }

private:
  pid_t pid_ = 0;
};

struct history {
  std::vector<int> left;            // ranks of the world that went on
  int since = steps, back = steps;  // the steps from which they were alone, and were not any more
};

/// What this example is about. `me`: the rank in the world; −1: new. `invite` starts a new process.
weights train_and_survive(troupe::communicator comm, const std::vector<image>& images, int me, int victim, int at,
                          const std::function<void(const std::string&)>& invite, history& what_came) {
  weights w(classes * (pixels + 1)), before = w;  // of the step before
  int done = 0;
  bool agreed = true, welcome = me < 0;
  while (done < steps) try {
      if (!agreed) {
        // No all_reduce ends anywhere before all have come to it, so nobody is more than a step ahead.
        int least = done;
        comm.all_reduce(least, troupe::minimum);
        if (least < done) w = before;
        what_came = {std::vector<int>(static_cast<std::size_t>(comm.size())), done = least, steps};
        comm.all_gather(std::array{me}, what_came.left);
        agreed = true;
      }
      if (me == victim && done == at) std::raise(SIGKILL);
      if (me >= 0 && done == what_came.since + alone && what_came.back == steps) {
        comm = comm.grow(1, {.invite = invite});
        what_came.back = done;
        welcome = true;
      }
      if (welcome) {  // whoever is new gets what all others have
        comm.broadcast(done, 0);
        comm.broadcast(w, 0);
        welcome = false;
      }
      const weights now = w;
      train(comm, w, images, done);
      before = now;
      ++done;
    } catch (const troupe::error& e) {
      if (e.code_value() != troupe::errc::peer_lost) throw;
      std::fprintf(stderr, "rank %d, in step %d: %s\n", me, done, e.what());
      comm = comm.shrink();
      agreed = false;
    }
  return w;
}

/// The same, without processes and without failures.
weights train_undisturbed(int ranks, const history& like, const std::vector<image>& images) {
  weights result;
  troupe::engine engine;
  engine.run(ranks, [&](troupe::communicator& comm) {
    weights w(classes * (pixels + 1));
    for (int step = 0; step < like.since; ++step) train(comm, w, images, step);
    const bool stays = std::count(like.left.begin(), like.left.end(), comm.rank()) > 0;
    troupe::communicator rest = comm.split(stays ? 0 : -1, comm.rank());
    for (int step = like.since; rest && step < like.back; ++step) train(rest, w, images, step);
    troupe::communicator all = comm.split(0, stays ? 0 : 1);
    all.broadcast(w, 0);
    for (int step = like.back; step < steps; ++step) train(all, w, images, step);
    if (all.rank() == 0) result = w;
  });
  return result;
}

/// A step, or a rank. Any other text ends the program.
int number_of(const char* what, std::string_view text) {
  int number = -1;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem == std::errc{} && end == text.data() + text.size() && number >= 0) return number;
  std::fprintf(stderr, "%s is a number from 0 on, not \"%s\"; 09_survive [STEP [RANK [path of digits.csv]]]\n", what,
               std::string{text}.c_str());
  std::exit(2);
}

bool same_bits(const weights& a, const weights& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const bool is_new = argc > 1 && std::string_view{argv[1]} == "--new";
  const int at = argc > 1 && !is_new ? number_of("STEP", argv[1]) : 80;
  const int victim = argc > 2 && !is_new ? number_of("RANK", argv[2]) : 1;
  const std::string path = argc > 2 && is_new ? argv[2] : argc > 3 ? argv[3] : "data/digits.csv";
  const std::vector<image> images = read_images(path);
  if (images.size() != 1797) {
    std::fprintf(stderr,
                 "found %zu images, not 1797: run this in the folder examples, or give the path of digits.csv\n",
                 images.size());
    return 2;
  }
  replacement fresh;  // waited for when the engine has ended
  try {
    troupe::engine engine;
    troupe::communicator world = engine.join();
    const int rank = is_new ? -1 : world.rank(), ranks = world.size();
    history came;
    const auto invite = [&](const std::string& invitation) { fresh.start(invitation, path); };
    const weights w = train_and_survive(std::move(world), images, rank, victim, at, invite, came);
    for (int r = 0; came.since == steps && r < ranks; ++r) came.left.push_back(r);
    if (is_new || rank != came.left[0]) return 0;  // one of them tells
    std::printf("ranks that are left:");
    for (const int r : came.left) std::printf(" %d", r);
    std::printf("; then %s\n", came.back < steps ? "a new one came" : "nobody came");
    std::size_t right = 0;
    for (std::size_t n = images.size() - tests; n < images.size(); ++n) {
      std::array<float, classes> all{};
      for (std::size_t digit = 0; digit < classes; ++digit) all[digit] = answer(w, images[n], digit);
      right += static_cast<std::size_t>(std::max_element(all.begin(), all.end()) - all.begin()) == images[n].digit;
    }
    const bool same = same_bits(w, train_undisturbed(ranks, came, images));
    std::printf("right on images never seen: %s\n", right > tests * 3 / 4 ? "good" : "too few");
    std::printf("the same weights as without the failure, bit by bit: %s\n", same ? "yes" : "no");
    return same && right > tests * 3 / 4 ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
