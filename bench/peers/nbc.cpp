// SPDX-License-Identifier: Apache-2.0
// MPI's non-blocking collectives beside their callers' computing, a process a rank (harness/nbc.hpp). A line of JSON a point.
//   mpirun -n 2 nbc_openmpi SECONDS POINT...

#include "bench/harness/nbc.hpp"

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <exception>

namespace {

using bench::nbc::point;

class member {
public:
  explicit member(const point& p) : what_(p.collective) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
    const auto ranks = static_cast<std::size_t>(ranks_);
    std::size_t count = p.bytes / sizeof(float);
    if (what_ == "all_to_all") count = count / ranks * ranks;
    in_.assign(count, static_cast<float>(rank_ + 1));
    out_.assign(count, what_ == "broadcast" && rank_ == 0 ? 1.0F : 0.0F);
  }
  void begin() {
    const int count = static_cast<int>(out_.size());
    if (what_ == "all_reduce")
      MPI_Iallreduce(in_.data(), out_.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request_);
    else if (what_ == "broadcast") MPI_Ibcast(out_.data(), count, MPI_FLOAT, 0, MPI_COMM_WORLD, &request_);
    else
      MPI_Ialltoall(in_.data(), count / ranks_, MPI_FLOAT, out_.data(), count / ranks_, MPI_FLOAT, MPI_COMM_WORLD,
                    &request_);
  }
  void wait() { MPI_Wait(&request_, MPI_STATUS_IGNORE); }
  void barrier() { MPI_Barrier(MPI_COMM_WORLD); }
  double largest(double mine) {
    double top = 0;
    MPI_Allreduce(&mine, &top, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return top;
  }
  double wrong() const {
    const std::size_t block = out_.size() / static_cast<std::size_t>(ranks_);
    double count = 0;
    for (std::size_t i = 0; i < out_.size(); ++i) {
      const float right = what_ == "all_reduce"  ? static_cast<float>(ranks_ * (ranks_ + 1) / 2)
                          : what_ == "broadcast" ? 1.0F
                                                 : static_cast<float>(i / block + 1);
      count += out_[i] != right;
    }
    return count;
  }
  int rank() const { return rank_; }

private:
  std::string what_;
  int rank_ = 0, ranks_ = 1;
  std::vector<float> in_, out_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  try {
    if (argc < 3) throw std::invalid_argument("usage: nbc SECONDS POINT...");
    for (int i = 2; i < argc; ++i) {
      const point p = bench::nbc::parse(argv[i]);
      member m{p};
      const std::string line = bench::nbc::measure(m, p, std::atof(argv[1]));
      if (m.rank() == 0) std::printf("%s\n", line.c_str()), std::fflush(stdout);
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "nbc: %s\n", e.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
