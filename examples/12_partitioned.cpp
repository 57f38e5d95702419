// SPDX-License-Identifier: Apache-2.0
// Work that goes on while its results travel: every rank computes rows of a matrix, and multiplies with what has arrived.
//
//   12_partitioned                                                four ranks in threads
//   troupe launch -n 4 build/release/examples/12_partitioned      four processes, which print the same

#include <cstdio>
#include <cstdlib>
#include <vector>

#include <troupe.hpp>

constexpr int tiles = 8;
constexpr std::size_t rows_each = 64, columns = 32, rows_of_tile = rows_each / tiles;

double entry(std::size_t row, std::size_t column) { return static_cast<double>((row * 7 + column * 3) % 11); }

/// True: what has arrived adds up as it should.
bool work(troupe::communicator& comm) {
  const auto me = static_cast<std::size_t>(comm.rank()), ranks = static_cast<std::size_t>(comm.size());
  std::vector<double> rows(rows_each * columns), matrix(rows_each * columns * ranks);
  auto gather = comm.all_gather_init(rows, matrix, troupe::partitions(tiles));

  double sum = 0;
  for (int repetition = 0; repetition < 3; ++repetition) {
    gather.start();
    for (int t = 0; t < tiles; ++t) {
      const std::size_t first = static_cast<std::size_t>(t) * rows_of_tile;
      for (std::size_t r = first; r < first + rows_of_tile; ++r)
        for (std::size_t c = 0; c < columns; ++c) rows[r * columns + c] = entry(me * rows_each + r, c);
      gather.ready(t);  // it travels while the next tile is computed
    }
    sum = 0;
    while (const auto part = gather.next_arrived()) {  // tile part % tiles of rank part / tiles
      const double* tile = matrix.data() + static_cast<std::size_t>(*part) * rows_of_tile * columns;
      for (std::size_t i = 0; i < rows_of_tile * columns; ++i) sum += tile[i];
    }
    gather.wait();
  }

  double expected = 0;
  for (std::size_t r = 0; r < rows_each * ranks; ++r)
    for (std::size_t c = 0; c < columns; ++c) expected += entry(r, c);
  int right = sum == expected;
  comm.all_reduce(right, troupe::minimum);
  if (comm.rank() == 0 && right != 0)
    std::printf("%d ranks gave %d tiles each, and used %d as they arrived: the matrix adds up to %.0f on every rank\n",
                comm.size(), tiles, comm.size() * tiles, expected);
  return right != 0;
}

int main() {
  troupe::engine engine;
  if (std::getenv("TROUPE_JOIN") != nullptr) {  // by troupe launch
    troupe::communicator world = engine.join();
    return work(world) ? 0 : 1;
  }
  int status = 1;
  engine.run(4, [&](troupe::communicator& comm) {
    const bool right = work(comm);
    if (comm.rank() == 0) status = right ? 0 : 1;
  });
  return status;
}
