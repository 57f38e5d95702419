// SPDX-License-Identifier: Apache-2.0
// MPI, a process per rank: compiled once against Open MPI and once against MPICH (PEER_NAME says which).
//   mpirun -n 2 peer_openmpi all_reduce:8 all_reduce:65536
//   mpirun -n 64 peer_openmpi first      only the job's first collective: when it was over

#include "bench/harness/control.hpp"
#include "bench/harness/first.hpp"

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <exception>
#include <string_view>
#include <vector>

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
  bool supports(const bench::request_line& r) const { return r.what != collective::ping_pong || ranks_ > 1; }
  std::string note() const { return {}; }

  void prepare(const bench::request_line& r, const bench::shape& s, std::size_t sets) {
    what_ = r.what;
    count_ = static_cast<int>(s.count);
    roots_.restart(r.rotate, ranks_);
    buffers_.shape_for(r.what, s, rank_, ranks_, sets, r.counts);
    split_wrong_ = 0;
  }
  void resize(std::size_t count) { count_ = static_cast<int>(count), buffers_.resize(count); }
  void rewrite() { buffers_.rewrite(); }
  double wrong() const { return static_cast<double>(buffers_.wrong(roots_.last()) + split_wrong_); }

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
      case collective::gather: MPI_Gather(in, count_, MPI_FLOAT, out, count_, MPI_FLOAT, roots_.next(), all); break;
      case collective::scatter: MPI_Scatter(in, count_, MPI_FLOAT, out, count_, MPI_FLOAT, roots_.next(), all); break;
      case collective::send_recv:
        MPI_Sendrecv(in, count_, MPI_FLOAT, (rank_ + 1) % ranks_, 0, out, count_, MPI_FLOAT,
                     (rank_ + ranks_ - 1) % ranks_, 0, all, MPI_STATUS_IGNORE);
        break;
      case collective::ping_pong: round_trip(in, out); break;
      case collective::split: split(); break;
      default: call_v(in, out); break;
    }
  }
  /// MPI_Allreduce of one value lets no rank leave before all have come.
  double largest(double value) {
    double top = 0;
    MPI_Allreduce(&value, &top, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return top;
  }

private:
  void round_trip(const float* in, float* out) {
    if (rank_ == 0) MPI_Send(in, count_, MPI_FLOAT, 1, 0, MPI_COMM_WORLD);
    if (rank_ < 2) MPI_Recv(out, count_, MPI_FLOAT, 1 - rank_, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank_ == 1) MPI_Send(in, count_, MPI_FLOAT, 0, 0, MPI_COMM_WORLD);
  }

  void split() {
    const int color = bench::split_color(rank_, ranks_, static_cast<std::size_t>(count_));
    MPI_Comm part = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, color, rank_, &part);
    int size = 0;
    MPI_Comm_size(part, &size);
    split_wrong_ += size != bench::split_size(rank_, ranks_, static_cast<std::size_t>(count_)) ? 1 : 0;
    MPI_Comm_free(&part);
  }

  /// Lists are filled where the counts are new, as an application does.
  void call_v(const float* in, float* out) {
    const MPI_Comm all = MPI_COMM_WORLD;
    const std::size_t me = static_cast<std::size_t>(rank_);
    bench::block_counts& blocks = buffers_.blocks();
    if (blocks.advance()) {
      if (what_ == collective::all_to_all_v) {
        blocks.list_from(me, counts_);
        blocks.list_to(me, received_);
        bench::displace(received_, received_at_);
      } else {
        blocks.list(counts_);
      }
      bench::displace(counts_, at_);
    }
    switch (what_) {
      case collective::all_gather_v:
        MPI_Allgatherv(in, counts_[me], MPI_FLOAT, out, counts_.data(), at_.data(), MPI_FLOAT, all);
        break;
      case collective::reduce_scatter_v: MPI_Reduce_scatter(in, out, counts_.data(), MPI_FLOAT, MPI_SUM, all); break;
      case collective::gather_v:
        MPI_Gatherv(in, counts_[me], MPI_FLOAT, out, counts_.data(), at_.data(), MPI_FLOAT, roots_.next(), all);
        break;
      case collective::scatter_v:
        MPI_Scatterv(in, counts_.data(), at_.data(), MPI_FLOAT, out, counts_[me], MPI_FLOAT, roots_.next(), all);
        break;
      default:
        MPI_Alltoallv(in, counts_.data(), at_.data(), MPI_FLOAT, out, received_.data(), received_at_.data(), MPI_FLOAT,
                      all);
        break;
    }
  }

  int rank_ = 0, ranks_ = 1, count_ = 0;
  std::size_t split_wrong_ = 0;
  std::vector<int> counts_, at_, received_, received_at_;
  collective what_{};
  bench::root_order roots_;
  bench::rank_buffers buffers_;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);  // errors end the job: MPI_ERRORS_ARE_FATAL is the default
  try {
    mpi_member m;
    if (argc > 1 && std::string_view(argv[1]) == "first") {
      bench::tell_first(m.rank(), [&](double value) { return m.largest(value); });
      return MPI_Finalize();
    }
    bench::control from(argc, argv, m.rank());
    while (const auto r = from.next()) {
      if (!m.supports(*r)) {
        from.fail(PEER_NAME, "unsupported");
        continue;
      }
      const auto x = bench::measure(m, *r);
      from.answer(bench::describe(PEER_NAME, m.ranks(), *r, x, m.note()));
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, PEER_NAME ": %s\n", e.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
