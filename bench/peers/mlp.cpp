// SPDX-License-Identifier: Apache-2.0
// The MLP block of row 36 with MPI's blocking collectives and the same operators, a process a rank (harness/mlp.hpp). A line of JSON a point.
//   mpirun -n 2 mlp_openmpi SECONDS POINT...

#include "bench/harness/mlp.hpp"

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <exception>

namespace {

using bench::mlp::point;

int number_of(int (*ask)(MPI_Comm, int*)) {
  int value = 0;
  ask(MPI_COMM_WORLD, &value);
  return value;
}

class member {
public:
  explicit member(const point& p)
      : normal_(p.rows * p.width),
        whole_(normal_.size() * static_cast<std::size_t>(size_)),
        partial_(whole_.size()),
        sums_(normal_.size()),
        block_(p, static_cast<std::size_t>(size_), static_cast<std::size_t>(rank_), normal_, whole_, partial_, sums_) {}

  bench::mlp::block& mine() { return block_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  void all_gather() {
    const int count = static_cast<int>(normal_.size());
    MPI_Allgather(normal_.data(), count, MPI_FLOAT, whole_.data(), count, MPI_FLOAT, MPI_COMM_WORLD);
  }
  void reduce_scatter() {
    MPI_Reduce_scatter_block(partial_.data(), sums_.data(), static_cast<int>(sums_.size()), MPI_FLOAT, MPI_SUM,
                             MPI_COMM_WORLD);
  }
  void barrier() { MPI_Barrier(MPI_COMM_WORLD); }
  double largest(double mine) {
    double top = 0;
    MPI_Allreduce(&mine, &top, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return top;
  }
  void prepare(const point&) {}

private:
  int rank_ = number_of(MPI_Comm_rank), size_ = number_of(MPI_Comm_size);
  std::vector<float> normal_, whole_, partial_, sums_;
  bench::mlp::block block_;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  try {
    if (argc < 3) throw std::invalid_argument("usage: mlp SECONDS POINT...");
    for (int i = 2; i < argc; ++i) {
      const point p = bench::mlp::parse(argv[i]);
      member m{p};
      const std::string line = bench::mlp::measure(m, p, std::atof(argv[1]));
      if (m.rank() == 0) std::printf("%s\n", line.c_str()), std::fflush(stdout);
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "mlp: %s\n", e.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
