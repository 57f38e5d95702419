// SPDX-License-Identifier: Apache-2.0
// The inner loop of a product against the sums it stands for: bit for bit, on every instruction set.
#include "memory/kernels/gemm_kernels.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/memory/vectors.hpp"
#include "tests/seed.hpp"

using namespace troupe;

namespace {

template <class T>
void check_kernel(std::mt19937& random, bool sets) {
  const detail::gemm_kernel<T> kernel = detail::best_gemm_kernel<T>();
  REQUIRE(kernel.rows <= detail::gemm_kernel<T>::most_rows);
  REQUIRE(kernel.columns * sizeof(T) <= detail::gemm_kernel<T>::most_columns_bytes);
  std::uniform_real_distribution<T> values{-1, 1};
  const auto fill = [&](std::size_t count) {
    std::vector<T> all(count);
    for (T& each : all) each = values(random);
    return all;
  };
  for (std::size_t rows = 1; rows <= kernel.rows; ++rows)
    for (const std::size_t k : {std::size_t{0}, std::size_t{1}, std::size_t{7}})
      for (const bool transposed : {false, true}) {
        CAPTURE(rows);
        CAPTURE(k);
        const std::size_t next_row = transposed ? 1 : 9, next_column = transposed ? rows + 2 : 1;
        const std::size_t next_b = kernel.columns + 3, next_c = kernel.columns + 1;
        const auto a = fill(9 * (rows + 9)), b = fill((k + 1) * next_b);
        auto c = fill(rows * next_c), wanted = c;
        if (sets) {
          c[0] = std::numeric_limits<T>::quiet_NaN();  // is not read
          for (std::size_t i = 0; i < rows; ++i)
            for (std::size_t j = 0; j < kernel.columns; ++j) wanted[i * next_c + j] = 0;
        }
        for (std::size_t p = 0; p < k; ++p)
          for (std::size_t i = 0; i < rows; ++i)
            for (std::size_t j = 0; j < kernel.columns; ++j) {
              const volatile T product = a[i * next_row + p * next_column] * b[p * next_b + j];  // rounded
              wanted[i * next_c + j] += product;
            }
        (sets ? kernel.set : kernel.add)(a.data(), next_row, next_column, b.data(), next_b, c.data(), next_c, rows, k);
        CHECK(std::memcmp(c.data(), wanted.data(), c.size() * sizeof(T)) == 0);  // what lies between rows, too
      }
}

}  // namespace

TEST_CASE("products have the same bits on every instruction set") {
  memory_tests::for_each_instruction_set([](const std::string& set) {
    CAPTURE(set);
    std::mt19937 random{static_cast<unsigned>(seed())};
    for (const bool sets : {false, true}) {
      CAPTURE(sets);
      check_kernel<float>(random, sets);
      check_kernel<double>(random, sets);
    }
  });
}
