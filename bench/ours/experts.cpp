// SPDX-License-Identifier: Apache-2.0
// Row 37 of the target table: dispatch and combine of an expert_exchange (harness/experts.hpp). A line of JSON a point.
//   experts RANKS SECONDS [early] POINT...                      threads; early: a dispatch that starts early, part by part
//   troupe launch -n RANKS experts RANKS SECONDS [early] POINT...   processes

#include "bench/harness/experts.hpp"

#include "engine/api/troupe.hpp"

#include <exception>
#include <string_view>

namespace {

using bench::experts::point;

class member {
public:
  member(troupe::communicator& comm, const point& p, const bench::experts::batches& of, bool early)
      : comm_(&comm),
        of_(&of),
        exchange_(comm.expert_exchange(comm.size(),
                                       {.hidden = p.hidden, .top_k = bench::experts::top_k, .starts_early = early})),
        output_(of.tokens.size()),
        early_(early) {}
  void call(const bench::experts::routing& with) {
    if (early_) {
      exchange_.start_dispatch<float>(of_->tokens, with.ids, with.weights);
      while (const auto part = exchange_.next_arrived<float>()) exchange_.ready(part->from);
      exchange_.combine<float>(output_);
      return;
    }
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
  bool early_;
};

void measure(troupe::communicator& comm, double seconds, bool early, const std::vector<point>& points) {
  for (const point& p : points) {
    const bench::experts::batches of{p, comm.size(), comm.rank()};
    member m{comm, p, of, early};
    const std::string line = bench::experts::measure(m, of, p, seconds);
    if (comm.rank() == 0) std::printf("%s\n", line.c_str()), std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const bool early = argc > 3 && std::string_view{argv[3]} == "early";
  const int first = early ? 4 : 3;
  if (argc <= first) throw std::invalid_argument("usage: experts RANKS SECONDS [early] POINT...");
  std::vector<point> points;
  for (int i = first; i < argc; ++i) points.push_back(bench::experts::parse(argv[i]));
  const double seconds = std::atof(argv[2]);
  troupe::engine engine;
  if (std::getenv("TROUPE_JOIN") != nullptr) {
    troupe::communicator world = engine.join();
    measure(world, seconds, early, points);
  } else {
    engine.run(std::atoi(argv[1]), [&](troupe::communicator& comm) { measure(comm, seconds, early, points); });
  }
} catch (const std::exception& e) {
  std::fprintf(stderr, "experts: %s\n", e.what());
  return 1;
}
