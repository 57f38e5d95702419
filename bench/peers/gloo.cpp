// Gloo, a thread per rank, over TCP on loopback: the only transport of Debian's package that stays inside one machine.
//   peer_gloo RANKS all_reduce:8 all_reduce:65536
// Its reduce-scatter has no present-day interface; that point is answered as unsupported.

#include "bench/harness/team.hpp"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/hash_store.h>
#include <gloo/transport/tcp/device.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace {

using bench::collective;
using sum_function = void (*)(void*, const void*, const void*, std::size_t);

class gloo_member {
public:
  gloo_member(int rank, bench::team& all, gloo::rendezvous::Store& store,
              std::shared_ptr<gloo::transport::Device>& device)
      : rank_(rank), all_(all), context_(std::make_shared<gloo::rendezvous::Context>(rank, all.size())) {
    context_->connectFullMesh(store, device);
  }
  int ranks() const { return all_.size(); }
  bool supports(collective what, std::size_t) const { return what != collective::reduce_scatter; }
  std::string note() const { return {}; }

  void prepare(const bench::request_line& r, const bench::shape& s, std::size_t sets) {
    what_ = r.what, shape_ = s;
    roots_.restart(r.rotate, all_.size());
    buffers_.shape_for(r.what, s, rank_, all_.size(), sets);
  }
  void rewrite() { buffers_.rewrite(); }
  double wrong() const { return static_cast<double>(buffers_.wrong()); }
  double largest(double value) { return all_.largest(rank_, value); }

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
      case collective::reduce_scatter: break;
    }
  }

private:
  template <class Options>
  Options& with_buffers(Options& o, std::size_t set) {
    o.setInput(buffers_.input(set), shape_.input);
    o.setOutput(buffers_.output(set), shape_.output);
    return o;
  }

  int rank_;
  bench::team& all_;
  std::shared_ptr<gloo::rendezvous::Context> context_;
  collective what_{};
  bench::root_order roots_;
  bench::shape shape_;
  bench::rank_buffers buffers_;
};

}  // namespace

int main(int argc, char** argv) try {
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
        gloo_member m(rank, all, store, device);
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
