// SPDX-License-Identifier: Apache-2.0
// What a program does without an exchange for experts: count, permute, MPI_Alltoallv; then back, un-permute and sum in one pass, a process a rank
// (harness/experts.hpp). With an expert a rank what arrives is in its order already. A line of JSON a point.
//   mpirun -n 2 experts_openmpi SECONDS POINT...

#include "bench/harness/experts.hpp"

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstring>
#include <exception>

namespace {

using bench::experts::point;
using bench::experts::top_k;

class member {
public:
  member(const point& p, const bench::experts::batches& of, int ranks)
      : of_(&of),
        hidden_(p.hidden),
        ranks_(static_cast<std::size_t>(ranks)),
        output_(of.tokens.size()),
        sent_(of.tokens.size() * top_k),
        place_(p.tokens * top_k),
        send_(ranks_),
        receive_(ranks_),
        send_at_(ranks_),
        receive_at_(ranks_),
        next_(ranks_) {
    // A token as one element: counts are tokens.
    MPI_Type_contiguous(static_cast<int>(hidden_), MPI_FLOAT, &token_);
    MPI_Type_commit(&token_);
  }
  ~member() { MPI_Type_free(&token_); }
  member(const member&) = delete;
  member& operator=(const member&) = delete;

  void call(const bench::experts::routing& with) {
    std::fill(send_.begin(), send_.end(), 0);
    for (const std::int32_t e : with.ids) ++send_[static_cast<std::size_t>(e)];
    MPI_Alltoall(send_.data(), 1, MPI_INT, receive_.data(), 1, MPI_INT, MPI_COMM_WORLD);
    int all = 0, came = 0;
    for (std::size_t r = 0; r < ranks_; ++r) {
      next_[r] = send_at_[r] = all;
      receive_at_[r] = came;
      all += send_[r];
      came += receive_[r];
    }
    if (received_.size() < static_cast<std::size_t>(came) * hidden_)
      received_.resize(static_cast<std::size_t>(came) * hidden_);
    for (std::size_t c = 0; c < with.ids.size(); ++c) {
      place_[c] = static_cast<std::size_t>(next_[static_cast<std::size_t>(with.ids[c])]++) * hidden_;
      std::memcpy(sent_.data() + place_[c], of_->tokens.data() + c / top_k * hidden_, hidden_ * sizeof(float));
    }
    MPI_Alltoallv(sent_.data(), send_.data(), send_at_.data(), token_, received_.data(), receive_.data(),
                  receive_at_.data(), token_, MPI_COMM_WORLD);
    MPI_Alltoallv(received_.data(), receive_.data(), receive_at_.data(), token_, sent_.data(), send_.data(),
                  send_at_.data(), token_, MPI_COMM_WORLD);
    for (std::size_t t = 0; t < with.ids.size() / top_k; ++t) {
      const float *const a = sent_.data() + place_[t * top_k], *const b = sent_.data() + place_[t * top_k + 1];
      const float left = with.weights[t * top_k], right = with.weights[t * top_k + 1];
      float* const out = output_.data() + t * hidden_;
      for (std::size_t i = 0; i < hidden_; ++i) out[i] = left * a[i] + right * b[i];
    }
  }
  void barrier() { MPI_Barrier(MPI_COMM_WORLD); }
  double largest(double mine) {
    double top = 0;
    MPI_Allreduce(&mine, &top, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return top;
  }
  double wrong() const { return of_->wrong(output_); }

private:
  const bench::experts::batches* of_;
  std::size_t hidden_, ranks_;
  std::vector<float> output_, sent_, received_;
  std::vector<std::size_t> place_;
  std::vector<int> send_, receive_, send_at_, receive_at_, next_;
  MPI_Datatype token_ = MPI_DATATYPE_NULL;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  try {
    if (argc < 3) throw std::invalid_argument("usage: experts SECONDS POINT...");
    int rank = 0, ranks = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 2; i < argc; ++i) {
      const point p = bench::experts::parse(argv[i]);
      const bench::experts::batches of{p, ranks, rank};
      member m{p, of, ranks};
      const std::string line = bench::experts::measure(m, of, p, std::atof(argv[1]));
      if (rank == 0) std::printf("%s\n", line.c_str()), std::fflush(stdout);
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "experts: %s\n", e.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
