// SPDX-License-Identifier: Apache-2.0
// Row 37 of the target table: dispatch and combine of an expert_exchange (harness/experts.hpp). A line of JSON a point.
//   experts RANKS SECONDS POINT...                      threads
//   troupe launch -n RANKS experts RANKS SECONDS POINT...   processes

#include "bench/harness/experts.hpp"

#include "engine/api/troupe.hpp"

#include <exception>

namespace {

using bench::experts::point;

class member {
public:
  member(troupe::communicator& comm, const point& p, const bench::experts::batches& of)
      : comm_(&comm),
        of_(&of),
        exchange_(comm.expert_exchange(comm.size(), {.hidden = p.hidden, .top_k = bench::experts::top_k})),
        output_(of.tokens.size()) {}
  void call(const bench::experts::routing& with) {
    const auto here = exchange_.dispatch<float>(of_->tokens, with.ids, with.weights);
    exchange_.combine<float>(here.rows, output_);
  }
  void barrier() { comm_->barrier(); }
  double largest(double mine) {
    comm_->all_reduce(mine, troupe::maximum);
    return mine;
  }
  double wrong() const { return of_->wrong(output_); }

private:
  troupe::communicator* comm_;
  const bench::experts::batches* of_;
  troupe::expert_exchange exchange_;
  std::vector<float> output_;
};

void measure(troupe::communicator& comm, double seconds, const std::vector<point>& points) {
  for (const point& p : points) {
    const bench::experts::batches of{p, comm.size(), comm.rank()};
    member m{comm, p, of};
    const std::string line = bench::experts::measure(m, of, p, seconds);
    if (comm.rank() == 0) std::printf("%s\n", line.c_str()), std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 4) throw std::invalid_argument("usage: experts RANKS SECONDS POINT...");
  std::vector<point> points;
  for (int i = 3; i < argc; ++i) points.push_back(bench::experts::parse(argv[i]));
  const double seconds = std::atof(argv[2]);
  troupe::engine engine;
  if (std::getenv("TROUPE_JOIN") != nullptr) {
    troupe::communicator world = engine.join();
    measure(world, seconds, points);
  } else {
    engine.run(std::atoi(argv[1]), [&](troupe::communicator& comm) { measure(comm, seconds, points); });
  }
} catch (const std::exception& e) {
  std::fprintf(stderr, "experts: %s\n", e.what());
  return 1;
}
