// SPDX-License-Identifier: Apache-2.0
// Conjugate gradients, whose iterations wait twice for a few bytes: for a dot product, and for another one with the neighbours' halo. Every rank has a part
// of the unknowns of -u'' = f on a line. Threads; or processes, by troupe launch.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include <troupe.hpp>

namespace {

constexpr std::size_t unknowns = 512;

class solver {
public:
  explicit solver(troupe::communicator& comm)
      : me_(static_cast<std::size_t>(comm.rank())),
        ranks_(static_cast<std::size_t>(comm.size())),
        count_(unknowns * (me_ + 1) / ranks_ - unknowns * me_ / ranks_),
        exchange_(comm, {.elements = ranks_ + 2, .element_bytes = sizeof(double)}) {}

  /// The part of u that this rank has, and after how many iterations.
  std::vector<double> solve(const std::function<double(std::size_t)>& f, int& iterations) {
    const std::size_t first = unknowns * me_ / ranks_;
    std::vector<double> u(count_), r(count_), p(count_), ap(count_);
    for (std::size_t i = 0; i < count_; ++i) r[i] = f(first + i);
    halo p_beside, r_beside;
    double rr = dot_with_halo(r, r_beside), before = 1;
    for (iterations = 0; rr > 1e-24; ++iterations) {
      const double turn = iterations == 0 ? 0 : rr / before;
      for (std::size_t i = 0; i < count_; ++i) p[i] = r[i] + turn * p[i];
      p_beside = {r_beside.left + turn * p_beside.left, r_beside.right + turn * p_beside.right};
      for (std::size_t i = 0; i < count_; ++i)
        ap[i] = 2 * p[i] - (i == 0 ? p_beside.left : p[i - 1]) - (i + 1 == count_ ? p_beside.right : p[i + 1]);
      const double step = rr / dot(p, ap);
      for (std::size_t i = 0; i < count_; ++i) u[i] += step * p[i], r[i] -= step * ap[i];
      before = rr;
      rr = dot_with_halo(r, r_beside);
    }
    return u;
  }

private:
  /// What the neighbours have beside this rank's part; 0 at the ends of the line.
  struct halo {
    double left = 0, right = 0;
  };

  /// Elements 0, 1, … are what ranks 0, 1, … have of it, and every rank adds them in that order: all have the same bits. Each receives from each in every
  /// epoch, so no rank overtakes another one.
  double dot(const std::vector<double>& a, const std::vector<double>& b) {
    double mine = 0;
    for (std::size_t i = 0; i < count_; ++i) mine += a[i] * b[i];
    exchange_.bcast(me_, mine);
    const double all = exchange_.recv_reduce<double>(0, ranks_, 1, std::identity{}, std::plus<>{});
    exchange_.end_epoch();
    return all;
  }

  /// r · r, and in the same epoch, by two elements more, the halo of r.
  double dot_with_halo(const std::vector<double>& r, halo& beside) {
    const std::size_t from_left = ranks_, from_right = ranks_ + 1;
    const auto rank = static_cast<troupe::rank_t>(me_);
    const bool has_left = me_ > 0, has_right = me_ + 1 < ranks_;
    if (has_left) exchange_.send(rank - 1, from_right, r.front());
    if (has_right) exchange_.send(rank + 1, from_left, r.back());
    double mine = 0;
    for (const double each : r) mine += each * each;
    exchange_.bcast(me_, mine);
    if (has_left) beside.left = exchange_.recv<double>(from_left);
    if (has_right) beside.right = exchange_.recv<double>(from_right);
    const double all = exchange_.recv_reduce<double>(0, ranks_, 1, std::identity{}, std::plus<>{});
    exchange_.end_epoch();
    return all;
  }

  std::size_t me_, ranks_, count_;
  troupe::ll_session exchange_;
};

/// Whether all ranks' parts are right.
bool run(troupe::communicator& comm) {
  int iterations = 0;
  // Of f = 2 the exact solution is u(i) = (i + 1)(n − i), also in steps of this width.
  const std::vector<double> u = solver{comm}.solve([](std::size_t) { return 2.0; }, iterations);
  const std::size_t first = unknowns * static_cast<std::size_t>(comm.rank()) / static_cast<std::size_t>(comm.size());
  double worst = 0;
  for (std::size_t i = 0; i < u.size(); ++i) {
    const double exact = static_cast<double>(first + i + 1) * static_cast<double>(unknowns - first - i);
    worst = std::max(worst, std::abs(u[i] - exact) / exact);
  }
  comm.all_reduce(worst, troupe::maximum);
  const bool right = worst < 1e-9;
  if (comm.rank() == 0)
    std::printf("%zu unknowns on %d ranks: %s after %d iterations of two exchanges\n", unknowns, comm.size(),
                right ? "solved" : "wrong", iterations);
  return right;
}

}  // namespace

int main() {
  troupe::engine engine;
  bool right = true;
  if (std::getenv("TROUPE_JOIN") != nullptr) {  // by troupe launch
    troupe::communicator world = engine.join();
    right = run(world);
  } else {
    engine.run(4, [&](troupe::communicator& comm) {
      const bool mine = run(comm);
      if (comm.rank() == 0) right = mine;
    });
  }
  return right ? 0 : 1;
}
