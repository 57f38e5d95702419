// SPDX-License-Identifier: Apache-2.0
// Work that goes on while its results travel: every rank computes rows of a matrix, and multiplies with what has arrived.

#include <cstdio>
#include <vector>

#include <troupe.hpp>

constexpr int ranks = 4, tiles = 8;
constexpr std::size_t rows_each = 64, columns = 32, rows_of_tile = rows_each / tiles;

double entry(std::size_t row, std::size_t column) { return static_cast<double>((row * 7 + column * 3) % 11); }

int main() {
  troupe::engine engine;
  std::vector<double> sums(ranks);
  engine.run(ranks, [&](troupe::communicator& comm) {
    const auto me = static_cast<std::size_t>(comm.rank());
    std::vector<double> rows(rows_each * columns), matrix(rows_each * columns * ranks);
    auto gather = comm.all_gather_init(rows, matrix, troupe::partitions(tiles));

    for (int repetition = 0; repetition < 3; ++repetition) {
      gather.start();
      for (int t = 0; t < tiles; ++t) {
        const std::size_t first = static_cast<std::size_t>(t) * rows_of_tile;
        for (std::size_t r = first; r < first + rows_of_tile; ++r)
          for (std::size_t c = 0; c < columns; ++c) rows[r * columns + c] = entry(me * rows_each + r, c);
        gather.ready(t);  // it travels while the next tile is computed
      }
      double sum = 0;
      while (const auto part = gather.next_arrived()) {  // tile part % tiles of rank part / tiles
        const double* tile = matrix.data() + static_cast<std::size_t>(*part) * rows_of_tile * columns;
        for (std::size_t i = 0; i < rows_of_tile * columns; ++i) sum += tile[i];
      }
      gather.wait();
      sums[me] = sum;
    }
  });
  double expected = 0;
  for (std::size_t r = 0; r < rows_each * ranks; ++r)
    for (std::size_t c = 0; c < columns; ++c) expected += entry(r, c);
  for (const double sum : sums)
    if (sum != expected) return 1;
  std::printf("%d ranks gave %d tiles each, and used %d as they arrived: the matrix adds up to %.0f on every rank\n",
              ranks, tiles, ranks * tiles, expected);
  return 0;
}
