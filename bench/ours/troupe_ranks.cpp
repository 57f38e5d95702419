// SPDX-License-Identifier: Apache-2.0
// Troupe itself, in the ways a program may drive its ranks.
//   troupe_ranks MODE RANKS all_reduce:8 all_reduce:65536 all_reduce:8:protocol=simple:choreography=recursive_doubling all_to_all_v:8192:counts=fresh
// MODE threads: a thread per rank, blocking calls.   async: a thread per rank, start and wait.
//      group:   one thread drives all ranks, one group per call.   persistent: the same with operations that are planned once.
//      join:    a process of a job, with RANKS of its ranks: troupe launch -n 2 troupe_ranks join 1 all_reduce:8
//      pairs, join_pairs: as threads and join, but all_to_all is a group of sends and receives, as programs on NCCL have it.
//      first:   as join, and nothing but the job's first collective: when it was over.
// Engine settings come from TROUPE_… variables or the file named by TROUPE_BENCH_CONFIG (docs/config.md).

#include "bench/harness/first.hpp"
#include "bench/harness/team.hpp"
#include "engine/api/troupe.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using bench::collective;
using troupe::communicator;

/// What one rank says at one point.
troupe::call_description describe_call(collective what, const float* in, float* out, std::size_t count, int root,
                                       const troupe::call_options& how = {}) {
  namespace calls = troupe::calls;
  constexpr auto f32 = troupe::datatype::f32;
  switch (what) {
    case collective::all_gather: return calls::all_gather(in, out, count, f32, how);
    case collective::reduce_scatter: return calls::reduce_scatter(in, out, count, f32, troupe::sum, how);
    case collective::all_to_all: return calls::all_to_all(in, out, count, f32, how);
    case collective::broadcast: return calls::broadcast(static_cast<void*>(out), count, f32, root, how);
    case collective::reduce: return calls::reduce(in, out, count, f32, troupe::sum, root, how);
    case collective::gather: return calls::gather(in, out, count, f32, root, how);
    case collective::scatter: return calls::scatter(in, out, count, f32, root, how);
    default: break;
  }
  return calls::all_reduce(in, out, count, f32, troupe::sum, how);
}

/// The lists of the v-forms; filled where the counts are new.
struct lists {
  troupe::block_list blocks, received;
  void next(collective what, std::size_t rank, bench::block_counts& from) {
    if (!from.advance()) return;
    if (what != collective::all_to_all_v) return from.list(blocks.counts);
    from.list_from(rank, blocks.counts);
    from.list_to(rank, received.counts);
  }
};

troupe::plain_v_call describe_v(collective what, const float* in, float* out, const lists& l, std::size_t rank,
                                int root, const troupe::call_options& how = {}) {
  namespace calls = troupe::calls;
  constexpr auto f32 = troupe::datatype::f32;
  switch (what) {
    case collective::all_gather_v: return calls::all_gather_v(in, out, l.blocks, f32, how);
    case collective::reduce_scatter_v: return calls::reduce_scatter_v(in, out, l.blocks, f32, troupe::sum, how);
    case collective::gather_v: return calls::gather_v(in, l.blocks.counts[rank], out, l.blocks, f32, root, how);
    case collective::scatter_v: return calls::scatter_v(in, l.blocks, out, l.blocks.counts[rank], f32, root, how);
    default: return calls::all_to_all_v(in, l.blocks, out, l.received, f32, how);
  }
}

troupe::call_options options_of(const bench::request_line& r) {
  troupe::call_options how;
  how.choreography = r.choreography;
  if (r.protocol.empty()) return how;
  const auto parsed = troupe::parse_message_protocol(r.protocol);
  if (!parsed) throw std::runtime_error("no protocol is called " + r.protocol);
  how.protocol = *parsed;
  return how;
}

bool between_pairs(collective what) { return what == collective::send_recv || what == collective::ping_pong; }

enum class driven : std::uint8_t {
  blocking,
  async,  ///< start and wait
  pairs,  ///< an all_to_all is a group of sends and receives; there is nothing else
};

/// A thread per rank.
class thread_member {
public:
  thread_member(communicator& c, bench::team& all, driven how)
      : c_(c), all_(all), async_(how == driven::async), pairs_(how == driven::pairs) {}
  int ranks() const { return c_.size(); }
  bool supports(const bench::request_line& r) const {
    if (pairs_) return r.what == collective::all_to_all;
    if (async_ && (between_pairs(r.what) || r.what == collective::split)) return false;  // blocking by nature
    return r.what != collective::ping_pong || c_.size() > 1;
  }
  std::string note() const { return {}; }
  void prepare(const bench::request_line& r, const bench::shape& s, std::size_t sets) {
    what_ = r.what, count_ = s.count, split_wrong_ = 0;
    how_ = options_of(r);
    forced_ = !r.choreography.empty() || !r.protocol.empty();
    roots_.restart(r.rotate, c_.size());
    buffers_.shape_for(r.what, s, c_.rank(), c_.size(), sets, r.counts);
  }
  void lie_in(std::shared_ptr<std::pmr::memory_resource> memory) { buffers_.lie_in(std::move(memory)); }
  void resize(std::size_t count) { count_ = count, buffers_.resize(count); }
  void rewrite() { buffers_.rewrite(); }
  double wrong() const { return static_cast<double>(buffers_.wrong(roots_.last()) + split_wrong_); }
  double largest(double value) { return all_.largest(c_.rank(), value); }

  void call(std::size_t set) {
    const float* in = buffers_.input(set);
    float* out = buffers_.output(set);
    if (between_pairs(what_)) return what_ == collective::send_recv ? pass(in, out) : round_trip(in, out);
    if (what_ == collective::split) return split();
    if (pairs_) return exchange_with_all(in, out);
    const int root = roots_.next();
    if (bench::has_block_counts(what_)) {
      const auto me = static_cast<std::size_t>(c_.rank());
      lists_.next(what_, me, buffers_.blocks());
      auto said = describe_v(what_, in, out, lists_, me, root, how_);
      return async_ ? c_.start(std::move(said)).wait() : c_.run(std::move(said));
    }
    if (forced_) return c_.run(describe_call(what_, in, out, count_, root, how_));
    if (async_) return c_.start(describe_call(what_, in, out, count_, root)).wait();
    // Written as an application writes it: what the public interface costs is part of the time.
    constexpr auto f32 = troupe::datatype::f32;
    switch (what_) {
      case collective::all_reduce: return c_.all_reduce(in, out, count_, f32);
      case collective::all_gather: return c_.all_gather(in, out, count_, f32);
      case collective::reduce_scatter: return c_.reduce_scatter(in, out, count_, f32);
      case collective::all_to_all: return c_.all_to_all(in, out, count_, f32);
      case collective::broadcast: return c_.broadcast(static_cast<void*>(out), count_, f32, root);
      case collective::reduce: return c_.reduce(in, out, count_, f32, troupe::sum, root);
      case collective::gather: return c_.gather(in, out, count_, f32, root);
      case collective::scatter: return c_.scatter(in, out, count_, f32, root);
      default: break;
    }
  }

private:
  void pass(const float* in, float* out) {
    const int n = c_.size();
    c_.send_recv(std::span(in, count_), (c_.rank() + 1) % n, std::span(out, count_), (c_.rank() + n - 1) % n, how_);
  }
  void exchange_with_all(const float* in, float* out) {
    const int n = c_.size(), me = c_.rank();
    const auto block = [&](auto* of, int rank) {
      return std::span(of + static_cast<std::size_t>(rank) * count_, count_);
    };
    troupe::group all;
    for (int d = 1; d < n; ++d) {
      c_.send_async(all, block(in, (me + d) % n), (me + d) % n, how_);
      c_.recv_async(all, block(out, (me + n - d) % n), (me + n - d) % n, how_);
    }
    std::ranges::copy(block(in, me), block(out, me).begin());
    all.wait();
  }
  void round_trip(const float* in, float* out) {
    constexpr auto f32 = troupe::datatype::f32;
    if (c_.rank() == 0) c_.send(in, count_, f32, 1, how_);
    if (c_.rank() < 2) c_.recv(out, count_, f32, 1 - c_.rank(), how_);
    if (c_.rank() == 1) c_.send(in, count_, f32, 0, how_);
  }
  void split() {
    const auto part = c_.split(bench::split_color(c_.rank(), c_.size(), count_), c_.rank(), how_);
    split_wrong_ += part.size() != bench::split_size(c_.rank(), c_.size(), count_) ? 1 : 0;
  }

  communicator& c_;
  bench::team& all_;
  bool async_, pairs_;
  bool forced_ = false;
  std::size_t split_wrong_ = 0;
  lists lists_;
  troupe::call_options how_;
  collective what_{};
  bench::root_order roots_;
  std::size_t count_ = 0;
  bench::rank_buffers buffers_;
};

/// A rank of many processes: they meet by a collective, as those of MPI do.
class process_member : public thread_member {
public:
  process_member(communicator& world, bench::team& here, driven how) : thread_member(world, here, how), world_(world) {}
  double largest(double value) { return largest_of(world_, value); }

  static double largest_of(communicator& world, double value) {
    world.all_reduce(std::span(&value, 1), troupe::maximum);
    return value;
  }

private:
  communicator& world_;
};

/// One thread, all ranks.
class one_thread_member {
public:
  one_thread_member(std::vector<communicator> ranks, bool persistent)
      : ranks_(std::move(ranks)), buffers_(ranks_.size()), persistent_(persistent) {}
  int ranks() const { return static_cast<int>(ranks_.size()); }
  bool supports(const bench::request_line& r) const {
    if (persistent_ && (bench::has_block_counts(r.what) || r.lot >= 0)) return false;  // who plans once has one shape
    return !between_pairs(r.what) && r.what != collective::split;
  }
  std::string note() const { return {}; }
  void prepare(const bench::request_line& r, const bench::shape& s, std::size_t sets) {
    what_ = r.what, count_ = s.count, how_ = options_of(r);
    roots_.restart(r.rotate, ranks());
    lists_.resize(ranks_.size());
    for (int rank = 0; rank < ranks(); ++rank) own(rank).shape_for(r.what, s, rank, ranks(), sets, r.counts);
    planned_.clear();
    if (!persistent_) return;
    planned_.resize(sets);  // of the first root, whatever root_order says: a call that is planned once has one root
    for (std::size_t set = 0; set < sets; ++set)
      for (std::size_t i = 0; i < ranks_.size(); ++i)
        planned_[set].push_back(
            ranks_[i].prepare(describe_call(what_, buffers_[i].input(set), buffers_[i].output(set), count_, 0, how_)));
  }
  void resize(std::size_t count) {
    count_ = count;
    for (auto& each : buffers_) each.resize(count);
  }
  void rewrite() {
    for (auto& each : buffers_) each.rewrite();
  }
  double wrong() const {
    std::size_t bad = 0;
    for (const auto& each : buffers_) bad += each.wrong(roots_.last());
    return static_cast<double>(bad);
  }
  double largest(double value) { return value; }

  void call(std::size_t set) {
    troupe::group all;
    if (persistent_) {
      for (troupe::persistent& each : planned_[set]) each.start(all);
      return all.wait();
    }
    const int root = roots_.next();
    for (std::size_t i = 0; i < ranks_.size(); ++i) ranks_[i].join(all, describe(i, set, root));
    all.wait();
  }

private:
  troupe::call_description describe(std::size_t rank, std::size_t set, int root) {
    bench::rank_buffers& mine = buffers_[rank];
    if (!bench::has_block_counts(what_))
      return describe_call(what_, mine.input(set), mine.output(set), count_, root, how_);
    lists_[rank].next(what_, rank, mine.blocks());
    return describe_v(what_, mine.input(set), mine.output(set), lists_[rank], rank, root, how_);
  }
  bench::rank_buffers& own(int rank) { return buffers_[static_cast<std::size_t>(rank)]; }

  std::vector<communicator> ranks_;
  std::vector<bench::rank_buffers> buffers_;
  bool persistent_;
  std::vector<std::vector<troupe::persistent>> planned_;  ///< by set and rank
  std::vector<lists> lists_;                              ///< by rank
  troupe::call_options how_;
  collective what_{};
  bench::root_order roots_;
  std::size_t count_ = 0;
};

troupe::engine make_engine() {
  const char* file = std::getenv("TROUPE_BENCH_CONFIG");
  return file != nullptr ? troupe::engine::from_file(file) : troupe::engine();
}

/// One process of a job. Each has a line to the driver, as each of MPI's has. @param shared its data lies where the others map it
void work_in_job(int ranks_here, bool shared, driven how, std::vector<char*> points) {
  bench::team here(ranks_here);
  troupe::engine engine = make_engine();
  engine.join(ranks_here, [&](communicator& world) {
    process_member m(world, here, how);
    if (shared) m.lie_in(engine.memory());
    const int index = world.rank() % ranks_here;
    std::optional<bench::control> from;
    if (index == 0) from.emplace(static_cast<int>(points.size()), points.data(), world.rank() / ranks_here);
    bench::serve(m, index, here, from ? &*from : nullptr,
                 shared                 ? "troupe-shared"
                 : how == driven::pairs ? "troupe-processes-pairs"
                                        : "troupe-processes");
  });
}

void begin_job(int ranks_here) {
  troupe::engine engine = make_engine();
  engine.join(ranks_here, [](communicator& world) {
    bench::tell_first(world.rank(), [&](double value) { return process_member::largest_of(world, value); });
  });
}

void work_by_threads(int ranks, driven how, bench::control& from) {
  bench::team all(ranks);
  troupe::engine engine = make_engine();
  engine.run(ranks, [&](communicator& c) {
    thread_member m(c, all, how);
    bench::serve(m, c.rank(), all, c.rank() == 0 ? &from : nullptr,
                 how == driven::async   ? "troupe-async"
                 : how == driven::pairs ? "troupe-pairs"
                                        : "troupe");
  });
}

void work_by_one_thread(int ranks, bool persistent, bench::control& from) {
  bench::team alone(1);
  troupe::engine engine = make_engine();
  one_thread_member m(engine.communicators(ranks), persistent);
  bench::serve(m, 0, alone, &from, persistent ? "troupe-persistent" : "troupe-group");
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string_view mode = argc > 2 ? argv[1] : "";
  const int ranks = argc > 2 ? std::atoi(argv[2]) : 0;
  constexpr std::array<std::string_view, 9> modes{"threads", "async",  "pairs",      "group", "persistent",
                                                  "join",    "shared", "join_pairs", "first"};
  if (ranks < 1 || std::find(modes.begin(), modes.end(), mode) == modes.end())
    throw std::runtime_error("usage: troupe_ranks threads|async|pairs|group|persistent|join|shared|join_pairs|first "
                             "RANKS [COLLECTIVE:BYTES …]");
  std::vector<char*> points(argv + 2, argv + argc);  // the first one is nobody's
  if (mode == "join" || mode == "shared" || mode == "join_pairs")
    return work_in_job(ranks, mode == "shared", mode == "join_pairs" ? driven::pairs : driven::blocking,
                       std::move(points)),
           0;
  if (mode == "first") return begin_job(ranks), 0;
  bench::control from(argc - 2, argv + 2, 0);
  if (mode == "group" || mode == "persistent") work_by_one_thread(ranks, mode == "persistent", from);
  else
    work_by_threads(ranks, mode == "async" ? driven::async : mode == "pairs" ? driven::pairs : driven::blocking, from);
} catch (const std::exception& e) {
  std::fprintf(stderr, "troupe_ranks: %s\n", e.what());
  return 1;
}
