// SPDX-License-Identifier: Apache-2.0
// A loop that repeats the same operations on the same buffers: describe, check and plan them once, start them many times.
// Power iteration: the largest eigenvalue of a matrix whose rows are spread over the ranks.

#include <cmath>
#include <cstdio>
#include <vector>

#include <troupe.hpp>

constexpr int ranks = 4;
constexpr std::size_t rows_each = 16, n = ranks * rows_each;

/// 2 on the diagonal, −1 beside it: its largest eigenvalue is 2 + 2·cos(π / (n + 1)).
double entry(std::size_t row, std::size_t column) {
  if (row == column) return 2;
  return row + 1 == column || column + 1 == row ? -1 : 0;
}

int main() {
  troupe::engine engine;
  double found = 0;
  engine.run(ranks, [&](troupe::communicator& comm) {
    const std::size_t first = static_cast<std::size_t>(comm.rank()) * rows_each;
    std::vector<double> x(n), mine(rows_each);
    double norm = 0;
    for (std::size_t i = 0; i < n; ++i) x[i] = i % 2 == 0 ? 1 : -1;

    // The buffers are part of the description: what they hold is read at every start.
    troupe::persistent gather = comm.all_gather_init(mine, x);
    troupe::persistent add = comm.all_reduce_init(&norm, &norm, 1, troupe::datatype::f64);

    for (int step = 0; step < 2000; ++step) {
      norm = 0;
      for (std::size_t r = 0; r < rows_each; ++r) {
        mine[r] = 0;
        for (std::size_t c = 0; c < n; ++c) mine[r] += entry(first + r, c) * x[c];
        norm += mine[r] * mine[r];
      }
      add.run();
      for (double& value : mine) value /= std::sqrt(norm);
      gather.run();
    }
    if (comm.rank() == 0) found = std::sqrt(norm);
  });
  const double expected = 2 + 2 * std::cos(std::acos(-1.0) / (n + 1));
  std::printf("%d ranks, 4000 operations described twice: the largest eigenvalue is %.4f, as it should be (%.4f)\n",
              ranks, found, expected);
  return std::abs(found - expected) < 1e-3 ? 0 : 1;
}
