// SPDX-License-Identifier: Apache-2.0
// How fast the product of matrices is that flows' gemm performs (engine/flow/operators/gemm.hpp), beside OpenBLAS where that is installed
// (Debian: libopenblas-dev), both on one thread; and how many elements get other bits when the rows are multiplied tile by tile. f32. Usage:
// gemm [--rounds N]. A row per shape: the fastest of the rounds, in turn. OPENBLAS_CORETYPE names the kernels that OpenBLAS is to take.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string_view>
#include <vector>

#ifdef TROUPE_BENCH_OPENBLAS
#include <cblas.h>
#endif

#include "engine/flow/operators/gemm.hpp"

namespace {

using matrix = std::vector<float>;

/// The sizes of c = a·b: c is m × n.
struct product {
  std::size_t m, n, k;
};
/// Rows first … first + count − 1 of c.
using rows_of_product =
    std::function<void(const matrix& a, const matrix& b, matrix& c, std::size_t first, std::size_t count)>;

constexpr product shapes[] = {{64, 512, 512},   {512, 512, 512},  {1024, 1024, 1024},
                              {128, 2048, 512}, {512, 512, 2048}, {37, 129, 300}};
constexpr std::size_t tile_rows = 4;

double seconds(const std::function<void()>& what) {
  const auto begin = std::chrono::steady_clock::now();
  what();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Of c, if its rows are multiplied a few at a time.
std::size_t changed_by_tiles(const product& p, const matrix& a, const matrix& b, const rows_of_product& multiply) {
  matrix whole(p.m * p.n), tiled(p.m * p.n);
  multiply(a, b, whole, 0, p.m);
  for (std::size_t row = 0; row < p.m; row += tile_rows) multiply(a, b, tiled, row, std::min(tile_rows, p.m - row));
  std::size_t changed = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) changed += std::memcmp(&whole[i], &tiled[i], sizeof(float)) != 0;
  return changed;
}

void measure(const product& p, int rounds) {
  std::mt19937 random{1};
  std::normal_distribution<float> normal;
  const auto any = [&](std::size_t elements) {
    matrix made(elements);
    for (float& x : made) x = normal(random);
    return made;
  };
  const matrix a = any(p.m * p.k), b = any(p.k * p.n);
  std::vector<rows_of_product> performers{
      [&p](const matrix& x, const matrix& y, matrix& z, std::size_t first, std::size_t count) {
        troupe::multiply({x.data() + first * p.k, troupe::tensor_shape{count, p.k}},
                         {y.data(), troupe::tensor_shape{p.k, p.n}},
                         troupe::tensor<float>{z.data() + first * p.n, troupe::tensor_shape{count, p.n}});
      }};
#ifdef TROUPE_BENCH_OPENBLAS
  performers.emplace_back([&p](const matrix& x, const matrix& y, matrix& z, std::size_t first, std::size_t count) {
    const auto m = static_cast<blasint>(count), n = static_cast<blasint>(p.n), k = static_cast<blasint>(p.k);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1, x.data() + first * p.k, k, y.data(), n, 0,
                z.data() + first * p.n, n);
  });
#endif
  matrix c(p.m * p.n);
  std::vector<double> best(performers.size(), 1e9);
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < performers.size(); ++i)
      best[i] = std::min(best[i], seconds([&] { performers[i](a, b, c, 0, p.m); }));
  std::printf("%5zu x %4zu x %4zu", p.m, p.n, p.k);
  for (std::size_t i = 0; i < performers.size(); ++i)
    std::printf("  %9.1f %9zu", 2e-9 * static_cast<double>(p.m * p.n * p.k) / best[i],
                changed_by_tiles(p, a, b, performers[i]));
  std::printf("  %9zu\n", p.m * p.n);
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 9;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view{argv[i]} == "--rounds" && i + 1 < argc && (rounds = std::atoi(argv[++i])) > 0) continue;
    std::fprintf(stderr, "gemm: wrong argument: %s\nusage: gemm [--rounds N]\n", argv[i]);
    return 2;
  }
#ifdef TROUPE_BENCH_OPENBLAS
  openblas_set_num_threads(1);
  std::printf("%s, kernels for %s\n", openblas_get_config(), openblas_get_corename());
#else
  std::printf("No OpenBLAS was installed when this was built (Debian: libopenblas-dev).\n");
#endif
  std::printf("GFLOP/s, and elements with other bits if rows are multiplied %zu at a time: ours", tile_rows);
#ifdef TROUPE_BENCH_OPENBLAS
  std::printf(", OpenBLAS");
#endif
  std::printf("; elements\n");
  for (const product& p : shapes) measure(p, rounds);
}
