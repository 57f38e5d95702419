// SPDX-License-Identifier: Apache-2.0
// What parts cost: a collective as one blocking call, and as partitioned operations of 1 and 16 parts that are all ready when they start; in turns. A line of
// JSON a point: medians of the slowest rank's time, µs.
//   partitions threads RANKS SECONDS POINT...   partitions threads 2 0.5 all_gather:1048576 reduce_scatter:1048576 all_reduce:65536
//   partitions join 1 SECONDS POINT...          a process of a job: troupe launch -n 2 partitions join 1 0.5 all_gather:1048576
// A point's bytes are those of the larger buffer of a rank, which lies in engine.memory(); or, where the point ends in `:own`, in the process's own memory.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <memory_resource>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/api/troupe.hpp"

namespace {

constexpr std::array<int, 2> cuts{1, 16};

class buffer {
public:
  buffer(std::shared_ptr<std::pmr::memory_resource> memory, std::size_t elements)
      : memory_(std::move(memory)),
        bytes_(elements * sizeof(float)),
        data_(static_cast<float*>(memory_->allocate(bytes_, 128))) {
    std::fill_n(data_, elements, 1.0F);
  }
  ~buffer() { memory_->deallocate(data_, bytes_, 128); }
  buffer(const buffer&) = delete;
  buffer& operator=(const buffer&) = delete;
  std::span<float> first(std::size_t elements) const { return {data_, elements}; }

private:
  std::shared_ptr<std::pmr::memory_resource> memory_;
  std::size_t bytes_;
  float* data_;
};

class member {
public:
  member(const std::shared_ptr<std::pmr::memory_resource>& memory, troupe::communicator& comm, const std::string& what,
         std::size_t bytes)
      : comm_(comm),
        what_(what),
        ranks_(static_cast<std::size_t>(comm.size())),
        whole_(std::max<std::size_t>(1, bytes / sizeof(float) / ranks_) * ranks_),
        in_(memory, whole_),
        out_(memory, whole_) {
    if (what != "all_gather" && what != "reduce_scatter" && what != "all_reduce" && what != "all_to_all")
      throw std::invalid_argument("all_gather, reduce_scatter, all_reduce or all_to_all, not " + what);
    for (const int k : cuts) parted_.push_back(prepare(troupe::partitions(k)));
  }

  std::string measure(double seconds) {
    std::array<std::vector<double>, cuts.size() + 1> times;
    double total = 0;
    for (int i = 0; times[0].size() < 9 || (total < seconds && times[0].size() < 5000); ++i)
      for (std::size_t way = 0; way < times.size(); ++way) {
        const double time = timed(way);
        if (i >= 3) times[way].push_back(time), total += time;
      }
    std::array<double, cuts.size() + 1> middle{};
    for (std::size_t way = 0; way < times.size(); ++way) {
      std::sort(times[way].begin(), times[way].end());
      middle[way] = times[way][times[way].size() / 2] * 1e6;
    }
    char text[256];
    std::snprintf(text, sizeof text,
                  R"({"collective":"%s","ranks":%d,"bytes":%zu,"whole_us":%.4g,"parts_1_us":%.4g,"parts_16_us":%.4g})",
                  what_.c_str(), comm_.size(), whole_ * sizeof(float), middle[0], middle[1], middle[2]);
    return text;
  }

private:
  std::size_t block() const { return whole_ / ranks_; }
  troupe::partitioned prepare(const troupe::partitions& how) {
    if (what_ == "all_gather") return comm_.all_gather_init(in_.first(block()), out_.first(whole_), how);
    if (what_ == "reduce_scatter")
      return comm_.reduce_scatter_init(in_.first(whole_), out_.first(block()), troupe::sum, how);
    if (what_ == "all_reduce") return comm_.all_reduce_init(in_.first(whole_), out_.first(whole_), troupe::sum, how);
    return comm_.all_to_all_init(in_.first(whole_), out_.first(whole_), how);
  }
  void call() {
    if (what_ == "all_gather") comm_.all_gather(in_.first(block()), out_.first(whole_));
    else if (what_ == "reduce_scatter") comm_.reduce_scatter(in_.first(whole_), out_.first(block()), troupe::sum);
    else if (what_ == "all_reduce") comm_.all_reduce(in_.first(whole_), out_.first(whole_), troupe::sum);
    else comm_.all_to_all(in_.first(whole_), out_.first(whole_));
  }
  double timed(std::size_t way) {
    comm_.barrier();
    const auto from = std::chrono::steady_clock::now();
    if (way == 0) {
      call();
    } else {
      troupe::partitioned& parts = parted_[way - 1];
      parts.start();
      for (int p = 0; p < parts.input_parts(); ++p) parts.ready(p);
      parts.wait();
    }
    double time = std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
    comm_.all_reduce(std::span{&time, 1}, troupe::maximum);
    return time;
  }

  troupe::communicator& comm_;
  const std::string what_;
  const std::size_t ranks_, whole_;
  buffer in_, out_;
  std::vector<troupe::partitioned> parted_;
};

}  // namespace

int main(int argc, char** argv) try {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (argc < 5 || (mode != "threads" && mode != "join"))
    throw std::invalid_argument("usage: partitions threads|join RANKS SECONDS POINT...");
  const double seconds = std::atof(argv[3]);
  troupe::engine engine;
  const auto work = [&](troupe::communicator& comm) {
    for (int i = 4; i < argc; ++i) {
      const std::string point = argv[i];
      const std::size_t colon = std::min(point.find(':'), point.size());
      const long bytes = colon < point.size() ? std::atol(point.c_str() + colon + 1) : 0;
      if (bytes < 1) throw std::invalid_argument("a point is COLLECTIVE:BYTES or COLLECTIVE:BYTES:own, not " + point);
      const std::shared_ptr<std::pmr::memory_resource> own{std::pmr::new_delete_resource(), [](auto*) {}};
      member m{point.ends_with(":own") ? own : engine.memory(), comm, point.substr(0, colon),
               static_cast<std::size_t>(bytes)};
      const std::string line = m.measure(seconds);
      if (comm.rank() == 0) std::printf("%s\n", line.c_str()), std::fflush(stdout);
    }
  };
  if (mode == "threads") engine.run(std::atoi(argv[2]), work);
  else engine.join(std::atoi(argv[2]), work);
} catch (const std::exception& e) {
  std::fprintf(stderr, "partitions: %s\n", e.what());
  return 1;
}
