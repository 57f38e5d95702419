// SPDX-License-Identifier: Apache-2.0
// Row 35 of the target table: collectives that are started, computed beside, and waited for (harness/nbc.hpp). A line of JSON a point.
//   nbc OFFLOAD RANKS SECONDS POINT...      nbc auto 2 0.1 all_reduce:65536 broadcast:1048576
// A thread a rank; OFFLOAD as engine.offload: never, auto or always. RANKS `1x2`: one thread begins and waits for two ranks, so that of two cores
// one is free for the NIC. RANKS `join`: a process a rank, `shared`: with data in memory that all map
//   troupe launch -n 2 --no-prefix nbc auto join 0.1 all_reduce:1048576

#include "bench/harness/nbc.hpp"
#include "engine/api/troupe.hpp"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <exception>
#include <memory>
#include <memory_resource>
#include <string_view>

namespace {

using bench::nbc::point;

/// What the ranks' threads find the largest of.
struct shared {
  explicit shared(int ranks) : all(ranks), values(static_cast<std::size_t>(ranks)) {}
  double largest(int rank, double mine) {
    values[static_cast<std::size_t>(rank)] = mine;
    all.arrive_and_wait();
    const double top = *std::max_element(values.begin(), values.end());
    all.arrive_and_wait();
    return top;
  }
  std::barrier<> all;
  std::vector<double> values;
};

class member {
public:
  /// @param with null: the ranks are processes
  member(troupe::communicator& comm, shared* with, const point& p, std::pmr::memory_resource* memory)
      : comm_(&comm), with_(with), what_(p.collective), in_(p.bytes / sizeof(float), memory), out_(in_.size(), memory) {
    const auto ranks = static_cast<std::size_t>(comm.size());
    if (what_ == "all_to_all") in_.resize(in_.size() / ranks * ranks), out_.resize(in_.size());
    std::fill(in_.begin(), in_.end(), static_cast<float>(comm.rank() + 1));
    if (what_ == "broadcast") std::fill(out_.begin(), out_.end(), comm.rank() == 0 ? 1.0F : 0.0F);
  }
  void begin() {
    if (what_ == "all_reduce") request_ = comm_->all_reduce_async(in_, out_, troupe::sum);
    else if (what_ == "broadcast") request_ = comm_->broadcast_async(out_, 0);
    else request_ = comm_->all_to_all_async(in_, out_);
  }
  void wait() { request_.wait(); }
  void barrier() { comm_->barrier(); }
  double largest(double mine) {
    if (with_ != nullptr) return with_->largest(comm_->rank(), mine);
    comm_->all_reduce(mine, troupe::maximum);
    return mine;
  }
  double wrong() const {
    const int ranks = comm_->size();
    const std::size_t block = out_.size() / static_cast<std::size_t>(ranks);
    double count = 0;
    for (std::size_t i = 0; i < out_.size(); ++i) {
      const float right = what_ == "all_reduce"  ? static_cast<float>(ranks * (ranks + 1) / 2)
                          : what_ == "broadcast" ? 1.0F
                                                 : static_cast<float>(i / block + 1);
      count += out_[i] != right;
    }
    return count;
  }

private:
  troupe::communicator* comm_;
  shared* with_;
  std::string what_;
  std::pmr::vector<float> in_, out_;
  troupe::request request_;
};

/// Two ranks of one thread.
class both {
public:
  both(std::vector<troupe::communicator>& comms, const point& p, std::pmr::memory_resource* memory) {
    for (troupe::communicator& comm : comms) ranks_.emplace_back(comm, nullptr, p, memory);
  }
  void begin() {
    for (member& m : ranks_) m.begin();
  }
  void wait() {
    for (member& m : ranks_) m.wait();
  }
  void barrier() {}
  double largest(double mine) { return mine; }
  double wrong() const { return ranks_[0].wrong() + ranks_[1].wrong(); }

private:
  std::vector<member> ranks_;
};

void measure_all(troupe::communicator& comm, shared* with, const std::vector<point>& points, double seconds,
                 std::pmr::memory_resource* memory) {
  for (const point& p : points) {
    member m{comm, with, p, memory};
    const std::string line = bench::nbc::measure(m, p, seconds);
    if (comm.rank() == 0) std::printf("%s\n", line.c_str()), std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 5) throw std::invalid_argument("usage: nbc OFFLOAD RANKS SECONDS POINT...");
  troupe::engine_options options;
  options.offload = argv[1];
  const std::string_view where = argv[2];
  const int ranks = std::atoi(argv[2]);
  const double seconds = std::atof(argv[3]);
  std::vector<point> points;
  for (int i = 4; i < argc; ++i) points.push_back(bench::nbc::parse(argv[i]));
  troupe::engine engine{options};
  std::pmr::memory_resource* const ordinary = std::pmr::new_delete_resource();
  if (where == "join" || where == "shared") {
    troupe::communicator comm = engine.join();
    const auto shared_memory = engine.memory();
    measure_all(comm, nullptr, points, seconds, where == "shared" ? shared_memory.get() : ordinary);
    return 0;
  }
  if (where == "1x2") {
    auto comms = engine.communicators(2);
    for (const point& p : points) {
      both m{comms, p, ordinary};
      std::printf("%s\n", bench::nbc::measure(m, p, seconds).c_str()), std::fflush(stdout);
    }
    return 0;
  }
  shared with{ranks};
  engine.run(ranks, [&](troupe::communicator& comm) { measure_all(comm, &with, points, seconds, ordinary); });
} catch (const std::exception& e) {
  std::fprintf(stderr, "nbc: %s\n", e.what());
  return 1;
}
