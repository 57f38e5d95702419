// SPDX-License-Identifier: Apache-2.0
// Gloo, a thread per rank, over TCP on loopback: the only transport of Debian's package that stays inside one machine.
//   peer_gloo RANKS all_reduce:8 all_reduce:65536
// Or a process per rank, which finds in TROUPE_RANK and TROUPE_RANKS where it belongs, and meets the others in a folder:
//   troupe launch -n 2 peer_gloo join FOLDER INTERFACE all_reduce:8
// It has no present-day interface for reduce-scatter and no gather_v and scatter_v; those points are answered as unsupported, and so is split.

#include "bench/harness/team.hpp"

#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/hash_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using bench::collective;
using sum_function = void (*)(void*, const void*, const void*, std::size_t);

class gloo_member {
public:
  /// @param all of one process; null: a rank is a process
  gloo_member(int rank, int ranks, bench::team* all, gloo::rendezvous::Store& store,
              std::shared_ptr<gloo::transport::Device>& device)
      : rank_(rank), ranks_(ranks), all_(all), context_(std::make_shared<gloo::rendezvous::Context>(rank, ranks)) {
    context_->connectFullMesh(store, device);
  }
  int ranks() const { return ranks_; }
  bool supports(const bench::request_line& r) const {
    switch (r.what) {
      case collective::reduce_scatter:
      case collective::reduce_scatter_v:
      case collective::gather_v:
      case collective::scatter_v:
      case collective::split: return false;
      default: return true;
    }
  }
  std::string note() const { return {}; }

  void prepare(const bench::request_line& r, const bench::shape& s, std::size_t sets) {
    what_ = r.what, shape_ = s;
    roots_.restart(r.rotate, ranks_);
    buffers_.shape_for(r.what, s, rank_, ranks_, sets, r.counts);
    outgoing_.clear(), incoming_.clear();
    if (r.what != collective::send_recv && r.what != collective::ping_pong) return;
    for (std::size_t set = 0; set < sets; ++set) {  // registered once, as its own benchmarks do
      outgoing_.push_back(context_->createUnboundBuffer(buffers_.input(set), s.input * sizeof(float)));
      incoming_.push_back(context_->createUnboundBuffer(buffers_.output(set), s.output * sizeof(float)));
    }
  }
  void resize(std::size_t count) { shape_.count = shape_.input = shape_.output = count, buffers_.resize(count); }
  void rewrite() { buffers_.rewrite(); }
  double wrong() const { return static_cast<double>(buffers_.wrong(roots_.last())); }
  double largest(double value) {
    if (all_ != nullptr) return all_->largest(rank_, value);
    gloo::AllreduceOptions o(context_);
    o.setReduceFunction(static_cast<sum_function>(&gloo::max<double>));
    o.setInput(&value, 1);
    double top = 0;
    o.setOutput(&top, 1);
    gloo::allreduce(o);
    return top;
  }

  void call(std::size_t set) {
    switch (what_) {
      case collective::all_reduce: {
        gloo::AllreduceOptions o(context_);
        o.setReduceFunction(static_cast<sum_function>(&gloo::sum<float>));
        return gloo::allreduce(with_buffers(o, set));
      }
      case collective::reduce: {
        gloo::ReduceOptions o(context_);
        o.setReduceFunction(static_cast<sum_function>(&gloo::sum<float>));
        o.setRoot(roots_.next());
        return gloo::reduce(with_buffers(o, set));
      }
      case collective::all_gather: {
        gloo::AllgatherOptions o(context_);
        return gloo::allgather(with_buffers(o, set));
      }
      case collective::all_to_all: {
        gloo::AlltoallOptions o(context_);
        return gloo::alltoall(with_buffers(o, set));
      }
      case collective::broadcast: {
        gloo::BroadcastOptions o(context_);
        o.setRoot(roots_.next());
        o.setOutput(buffers_.output(set), shape_.count);
        return gloo::broadcast(o);
      }
      case collective::gather: {
        gloo::GatherOptions o(context_);
        o.setRoot(roots_.next());
        o.setInput(buffers_.input(set), shape_.input);
        if (roots_.last() == rank_) o.setOutput(buffers_.output(set), shape_.output);
        return gloo::gather(o);
      }
      case collective::scatter: {
        gloo::ScatterOptions o(context_);
        o.setRoot(roots_.next());
        if (roots_.last() == rank_) {
          std::vector<float*> blocks;
          for (int r = 0; r < ranks(); ++r)
            blocks.push_back(buffers_.input(set) + static_cast<std::size_t>(r) * shape_.count);
          o.setInputs(blocks, shape_.count);
        }
        o.setOutput(buffers_.output(set), shape_.output);
        return gloo::scatter(o);
      }
      case collective::all_gather_v: {
        gloo::AllgathervOptions o(context_);
        const auto me = static_cast<std::size_t>(rank_);
        if (buffers_.blocks().advance()) buffers_.blocks().list(counts_);
        o.setInput(buffers_.input(set), counts_[me]);
        o.setOutput(buffers_.output(set), counts_);
        return gloo::allgatherv(o);
      }
      case collective::all_to_all_v: {
        gloo::AlltoallvOptions o(context_);
        const auto me = static_cast<std::size_t>(rank_);
        if (buffers_.blocks().advance())
          buffers_.blocks().list_from(me, sent_), buffers_.blocks().list_to(me, received_);
        o.setInput(buffers_.input(set), sent_);
        o.setOutput(buffers_.output(set), received_);
        return gloo::alltoallv(o);
      }
      case collective::send_recv: return pass(set, (rank_ + 1) % ranks(), (rank_ + ranks() - 1) % ranks());
      case collective::ping_pong: return rank_ < 2 ? round_trip(set) : void();
      default: break;
    }
  }

private:
  void pass(std::size_t set, int to, int from) {
    incoming_[set]->recv(from, 0);
    outgoing_[set]->send(to, 0);
    outgoing_[set]->waitSend();
    incoming_[set]->waitRecv();
  }
  void round_trip(std::size_t set) {
    if (rank_ == 0) outgoing_[set]->send(1, 0), outgoing_[set]->waitSend();
    incoming_[set]->recv(1 - rank_, 0), incoming_[set]->waitRecv();
    if (rank_ == 1) outgoing_[set]->send(0, 0), outgoing_[set]->waitSend();
  }

  template <class Options>
  Options& with_buffers(Options& o, std::size_t set) {
    o.setInput(buffers_.input(set), shape_.input);
    o.setOutput(buffers_.output(set), shape_.output);
    return o;
  }

  int rank_, ranks_;
  bench::team* all_;
  std::shared_ptr<gloo::rendezvous::Context> context_;
  collective what_{};
  bench::root_order roots_;
  bench::shape shape_;
  bench::rank_buffers buffers_;
  std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> outgoing_, incoming_;  ///< by set
  std::vector<std::size_t> counts_;
  std::vector<std::int64_t> sent_, received_;
};

void work_as_process(int argc, char** argv) {
  const char* const rank = std::getenv("TROUPE_RANK");
  const char* const ranks = std::getenv("TROUPE_RANKS");
  if (argc < 4 || rank == nullptr || ranks == nullptr)
    throw std::runtime_error("usage: troupe launch -n RANKS peer_gloo join FOLDER INTERFACE [COLLECTIVE:BYTES …]");
  gloo::rendezvous::FileStore store(argv[2]);
  gloo::transport::tcp::attr where;
  where.iface = argv[3];
  auto device = gloo::transport::tcp::CreateDevice(where);
  bench::team alone(1);
  gloo_member m(std::atoi(rank), std::atoi(ranks), nullptr, store, device);
  bench::control from(argc - 3, argv + 3, std::atoi(rank));
  bench::serve(m, 0, alone, &from, "gloo");
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc > 1 && std::string_view(argv[1]) == "join") return work_as_process(argc, argv), 0;
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 0;
  if (ranks < 1) throw std::runtime_error("usage: peer_gloo RANKS [COLLECTIVE:BYTES …]");
  bench::control from(argc - 1, argv + 1, 0);
  bench::team all(ranks);
  gloo::rendezvous::HashStore store;
  auto device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr("127.0.0.1"));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        gloo_member m(rank, ranks, &all, store, device);
        bench::serve(m, rank, all, rank == 0 ? &from : nullptr, "gloo");
      } catch (const std::exception& e) {
        std::fprintf(stderr, "gloo: rank %d: %s\n", rank, e.what());
        std::_Exit(1);
      }
    });
  for (auto& each : threads) each.join();
} catch (const std::exception& e) {
  std::fprintf(stderr, "gloo: %s\n", e.what());
  return 1;
}
