// SPDX-License-Identifier: Apache-2.0
// Row 36 of the target table: an MLP block as a flow, against the same with blocking collectives (harness/mlp.hpp). A line of JSON a point.
//   mlp threads RANKS SECONDS POINT...     mlp threads 2 1 rows=256,width=512,share=30
//   mlp join 1 SECONDS POINT...            a process of a job: troupe launch -n 2 mlp join 1 1 rows=256,width=512,share=30

#include "bench/harness/mlp.hpp"

#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "engine/api/troupe.hpp"

namespace {

using bench::mlp::point;

/// Where the collectives' buffers of the unfused steps lie: where those of a flow do.
class memory_of {
public:
  memory_of(troupe::engine& on, std::size_t elements) : memory_(on.memory()), bytes_(elements * sizeof(float)) {
    data_ = static_cast<float*>(memory_->allocate(bytes_, 128));
    std::memset(data_, 0, bytes_);
  }
  ~memory_of() { memory_->deallocate(data_, bytes_, 128); }
  memory_of(const memory_of&) = delete;
  memory_of& operator=(const memory_of&) = delete;
  std::span<float> all() const { return {data_, bytes_ / sizeof(float)}; }

private:
  std::shared_ptr<std::pmr::memory_resource> memory_;
  std::size_t bytes_;
  float* data_;
};

class member {
public:
  member(troupe::engine& on, troupe::communicator& comm, const point& p)
      : engine_(&on),
        comm_(&comm),
        normal_(on, p.rows * p.width),
        whole_(on, p.rows * p.width * ranks()),
        partial_(on, p.rows * p.width * ranks()),
        sums_(on, p.rows * p.width),
        block_(p, ranks(), static_cast<std::size_t>(comm.rank()), normal_.all(), whole_.all(), partial_.all(),
               sums_.all()) {}

  bench::mlp::block& mine() { return block_; }
  int rank() const { return comm_->rank(); }
  int size() const { return comm_->size(); }
  void all_gather() { comm_->all_gather(normal_.all(), whole_.all()); }
  void reduce_scatter() { comm_->reduce_scatter(partial_.all(), sums_.all(), troupe::sum); }
  void barrier() { comm_->barrier(); }
  double largest(double mine) {
    comm_->all_reduce(std::span{&mine, 1}, troupe::maximum);
    return mine;
  }
  void prepare(const point& p) {
    const std::size_t height = p.rows / static_cast<std::size_t>(p.tiles), size = height * p.width;
    const troupe::tensor_shape shape{height, p.width};
    troupe::flow& f = flow_.emplace(*engine_, "mlp");
    const auto x = f.source<float>("norm", shape, p.tiles, [this, size, shape](troupe::tile<float> out) {
      const float* const from = block_.x.data() + static_cast<std::size_t>(out.index) * size;
      block_.norm()({troupe::tensor<const float>{from, shape}, out.index}, out);
    });
    const auto whole = f.all_gather("gather", x, *comm_);
    const auto before = f.map("times W1", whole, troupe::gemm<float>{block_.first()});
    const auto active = f.map("ReLU", before, bench::mlp::relu{});
    const auto sums =
        f.reduce_scatter("scatter", f.map("times W2", active, troupe::gemm<float>{block_.second()}), *comm_);
    f.sink("residual", sums, [this, size](troupe::tile<const float> in) {
      const std::size_t first = static_cast<std::size_t>(in.index) * size;
      for (std::size_t i = 0; i < size; ++i) block_.out[first + i] = block_.x[first + i] + in.data()[i];
    });
    f.check();
  }
  void fused() {
    flow_->start();
    flow_->wait();
  }

private:
  std::size_t ranks() const { return static_cast<std::size_t>(comm_->size()); }

  troupe::engine* engine_;
  troupe::communicator* comm_;
  memory_of normal_, whole_, partial_, sums_;
  bench::mlp::block block_;
  std::optional<troupe::flow> flow_;
};

}  // namespace

int main(int argc, char** argv) try {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (argc < 5 || (mode != "threads" && mode != "join"))
    throw std::invalid_argument("usage: mlp threads|join RANKS SECONDS POINT...");
  const int ranks = std::atoi(argv[2]);
  const double seconds = std::atof(argv[3]);
  std::vector<point> points;
  for (int i = 4; i < argc; ++i) points.push_back(bench::mlp::parse(argv[i]));
  troupe::engine engine;
  const auto work = [&](troupe::communicator& comm) {
    for (const point& p : points) {
      member m{engine, comm, p};
      const std::string line = bench::mlp::measure(m, p, seconds);
      if (comm.rank() == 0) std::printf("%s\n", line.c_str()), std::fflush(stdout);
    }
  };
  if (mode == "threads") engine.run(ranks, work);
  else engine.join(ranks, work);
} catch (const std::exception& e) {
  std::fprintf(stderr, "mlp: %s\n", e.what());
  return 1;
}
