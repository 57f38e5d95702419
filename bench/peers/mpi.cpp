// MPI, a process per rank: compiled once against Open MPI and once against MPICH (PEER_NAME says which).
//   mpirun -n 2 peer_openmpi all_reduce:8 all_reduce:65536

#include "bench/harness/control.hpp"

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <exception>

namespace {

using bench::collective;

class mpi_member {
public:
  mpi_member() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
  }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  bool supports(collective, std::size_t) const { return true; }
  std::string note() const { return {}; }

  void prepare(const bench::request_line& r, const bench::shape& s, std::size_t sets) {
    what_ = r.what;
    count_ = static_cast<int>(s.count);
    roots_.restart(r.rotate, ranks_);
    buffers_.shape_for(r.what, s, rank_, ranks_, sets);
  }
  void rewrite() { buffers_.rewrite(); }
  double wrong() const { return static_cast<double>(buffers_.wrong()); }

  void call(std::size_t set) {
    const float* in = buffers_.input(set);
    float* out = buffers_.output(set);
    const MPI_Comm all = MPI_COMM_WORLD;
    switch (what_) {
      case collective::all_reduce: MPI_Allreduce(in, out, count_, MPI_FLOAT, MPI_SUM, all); break;
      case collective::all_gather: MPI_Allgather(in, count_, MPI_FLOAT, out, count_, MPI_FLOAT, all); break;
      case collective::reduce_scatter: MPI_Reduce_scatter_block(in, out, count_, MPI_FLOAT, MPI_SUM, all); break;
      case collective::all_to_all: MPI_Alltoall(in, count_, MPI_FLOAT, out, count_, MPI_FLOAT, all); break;
      case collective::broadcast: MPI_Bcast(out, count_, MPI_FLOAT, roots_.next(), all); break;
      case collective::reduce: MPI_Reduce(in, out, count_, MPI_FLOAT, MPI_SUM, roots_.next(), all); break;
    }
  }
  /// MPI_Allreduce of one value lets no rank leave before all have come.
  double largest(double value) {
    double top = 0;
    MPI_Allreduce(&value, &top, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return top;
  }

private:
  int rank_ = 0, ranks_ = 1, count_ = 0;
  collective what_{};
  bench::root_order roots_;
  bench::rank_buffers buffers_;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);  // errors end the job: MPI_ERRORS_ARE_FATAL is the default
  try {
    mpi_member m;
    bench::control from(argc, argv, m.rank());
    while (const auto r = from.next()) {
      const auto x = bench::measure(m, *r);
      from.answer(bench::describe(PEER_NAME, m.ranks(), *r, x, m.note()));
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, PEER_NAME ": %s\n", e.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
