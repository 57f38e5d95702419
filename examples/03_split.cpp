// SPDX-License-Identifier: Apache-2.0
// Communicators inside a communicator: six ranks in a grid of two rows and three columns, sums along each row and each
// column.
//
//          column 0   column 1   column 2
//   row 0   rank 0     rank 1     rank 2
//   row 1   rank 3     rank 4     rank 5

#include <array>
#include <cstdio>

#include <troupe.hpp>

int main() {
  constexpr int rows = 2, columns = 3;
  struct line {
    int row_rank, row_size, column_rank, column_size, row_sum, column_sum, first_of_row;
  };
  std::array<line, rows * columns> seen{};

  troupe::engine engine;
  engine.run(rows * columns, [&](troupe::communicator& world) {
    const int row = world.rank() / columns, column = world.rank() % columns;

    // Ranks that give the same color form a communicator, numbered in the order of their keys. Every rank must call it.
    troupe::communicator in_row = world.split(row, column);
    troupe::communicator in_column = world.split(column, row);

    std::array<int, 1> row_sum{world.rank()}, column_sum{world.rank()}, first{world.rank()};
    in_row.all_reduce(row_sum);  // the rows are independent: neither waits for the other
    in_column.all_reduce(column_sum);
    in_row.broadcast(first, 0);  // rank 0 of the row

    seen[static_cast<std::size_t>(world.rank())] = {in_row.rank(), in_row.size(), in_column.rank(), in_column.size(),
                                                    row_sum[0],    column_sum[0], first[0]};
  });

  for (std::size_t r = 0; r < seen.size(); ++r) {
    const line& l = seen[r];
    std::printf("rank %zu: %d of %d in its row, %d of %d in its column; row sum %d, column sum %d; its row begins with "
                "rank %d\n",
                r, l.row_rank, l.row_size, l.column_rank, l.column_size, l.row_sum, l.column_sum, l.first_of_row);
  }
}
