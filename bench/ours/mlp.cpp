// SPDX-License-Identifier: Apache-2.0
// Row 36 of the target table: an MLP block as a flow, against the same with blocking collectives (harness/mlp.hpp). A line of JSON a point.
//   mlp threads RANKS SECONDS POINT...     mlp threads 2 1 rows=256,width=512,share=30
//   mlp join 1 SECONDS POINT...            a process of a job: troupe launch -n 2 mlp join 1 1 rows=256,width=512,share=30

#include "bench/harness/mlp.hpp"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

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

class member;

/// Where the threads of one process find each other's tiles, by hand.
struct meeting {
  explicit meeting(int ranks) : members(static_cast<std::size_t>(ranks)) {}
  std::vector<member*> members;
};

class member {
public:
  /// @param where null: the others' memory is not this process's
  member(troupe::engine& on, troupe::communicator& comm, const point& p, meeting* where)
      : engine_(&on),
        comm_(&comm),
        normal_(on, p.rows * p.width),
        whole_(on, p.rows * p.width * ranks()),
        partial_(on, p.rows * p.width * ranks()),
        sums_(on, p.rows * p.width),
        block_(p, ranks(), static_cast<std::size_t>(comm.rank()), normal_.all(), whole_.all(), partial_.all(),
               sums_.all()),
        where_(where),
        normal_tiles_(static_cast<std::size_t>(p.tiles)),
        partial_tiles_(static_cast<std::size_t>(p.tiles) * ranks()) {
    if (where_ != nullptr) where_->members[static_cast<std::size_t>(comm.rank())] = this;
  }

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
    shape_ = shape;
    before_.resize(height * p.hidden), active_.resize(height * p.hidden);
  }
  void fused() {
    flow_->start();
    flow_->wait();
  }

  bool may_by_hand() const { return where_ != nullptr; }
  void by_hand() {
    ++repetition_;
    const std::size_t me = static_cast<std::size_t>(rank()), size = shape_.elements();
    troupe::gemm<float> first{block_.first()}, second{block_.second()};
    for (std::size_t k = 0; k < normal_tiles_.size(); ++k) {
      block_.norm()({troupe::tensor<const float>{block_.x.data() + k * size, shape_}, 0},
                    {troupe::tensor<float>{normal_.all().data() + k * size, shape_}, 0});
      normal_tiles_[k].store(repetition_, std::memory_order_release);
      for (std::size_t i = 0; i < ranks(); ++i) {
        const std::size_t r = (me + i) % ranks();
        member& of = *where_->members[r];
        wait_for(of.normal_tiles_[k]);
        const troupe::tensor_shape inner{shape_[0], block_.hidden()};
        const troupe::tensor<float> before{before_.data(), inner}, active{active_.data(), inner};
        first({troupe::tensor<const float>{of.normal_.all().data() + k * size, shape_}, 0}, {before, 0});
        bench::mlp::relu{}({troupe::tensor<const float>{before_.data(), inner}, 0}, {active, 0});
        second({troupe::tensor<const float>{active_.data(), inner}, 0},
               {troupe::tensor<float>{partial_.all().data() + r * sums_.all().size() + k * size, shape_}, 0});
        partial_tiles_[r * normal_tiles_.size() + k].store(repetition_, std::memory_order_release);
      }
      float* const sums = sums_.all().data() + k * size;
      for (std::size_t r = 0; r < ranks(); ++r) {
        member& of = *where_->members[r];
        wait_for(of.partial_tiles_[me * normal_tiles_.size() + k]);
        const float* const from = of.partial_.all().data() + me * sums_.all().size() + k * size;
        for (std::size_t i = 0; i < size; ++i) sums[i] = r == 0 ? from[i] : sums[i] + from[i];
      }
      for (std::size_t i = k * size; i < (k + 1) * size; ++i) block_.out[i] = block_.x[i] + sums_.all()[i];
    }
  }

private:
  using tile_flags = std::vector<std::atomic<std::uint32_t>>;  ///< of the repetition in which the tile was made

  std::size_t ranks() const { return static_cast<std::size_t>(comm_->size()); }
  void wait_for(const std::atomic<std::uint32_t>& tile) const {
    for (int looks = 0; tile.load(std::memory_order_acquire) != repetition_; ++looks)
      if (looks > 10'000) std::this_thread::yield();  // ranks share cores
  }

  troupe::engine* engine_;
  troupe::communicator* comm_;
  memory_of normal_, whole_, partial_, sums_;
  bench::mlp::block block_;
  std::optional<troupe::flow> flow_;
  meeting* where_;
  tile_flags normal_tiles_, partial_tiles_;  ///< the latter by block and tile
  std::uint32_t repetition_ = 0;
  troupe::tensor_shape shape_;  ///< of a tile
  std::vector<float> before_, active_;
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
  meeting here{ranks};
  const auto work = [&](troupe::communicator& comm) {
    for (const point& p : points) {
      member m{engine, comm, p, mode == "threads" ? &here : nullptr};
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
