// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/bench_runner.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <limits>
#include <new>
#include <numeric>
#include <system_error>
#include <thread>

#include <pthread.h>
#include <sys/resource.h>
#include <time.h>

#include "engine/tools/crafted_values.hpp"
#include "engine/world/join.hpp"
#include "memory/error.hpp"
#include "memory/spelling.hpp"
#include "protocols/program/program.hpp"
#include "topology/layout/placement.hpp"
#include "topology/machine/discovery.hpp"

namespace troupe {

namespace {

using clock = std::chrono::steady_clock;

/// Memory with a guard before and behind it. Writing there is found, not prevented.
class guarded_buffer {
public:
  explicit guarded_buffer(std::size_t bytes) : bytes_(bytes) {
    base_.reset(static_cast<std::byte*>(::operator new (bytes + 2 * guard, std::align_val_t{alignment})));
    std::memset(base_.get(), guard_byte, guard);
    std::memset(data() + bytes_, guard_byte, guard);
  }
  std::byte* data() const { return base_.get() + guard; }
  std::size_t size() const { return bytes_; }
  std::uint64_t damaged() const {
    const auto count = [](const std::byte* from) {
      return std::count_if(from, from + guard, [](std::byte b) { return b != std::byte{guard_byte}; });
    };
    return static_cast<std::uint64_t>(count(base_.get()) + count(data() + bytes_));
  }

private:
  static constexpr std::size_t alignment = 64, guard = 256;
  static constexpr unsigned char guard_byte = 0xa5;
  struct release {
    void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{alignment}); }
  };
  std::unique_ptr<std::byte, release> base_;
  std::size_t bytes_;
};

/// One rank's buffers and call, for out-of-place or in-place.
class rank_job {
public:
  rank_job(const job_result& r, rank_t rank, bool in_place)
      : job_(r.what),
        shape_(r.shape),
        ranks_(r.ranks),
        rank_(rank),
        in_place_(in_place),
        e_(size_of(r.what.type)),
        input_blocks_(blocks(true)),
        output_blocks_(blocks(false)),
        first_(in_place ? 0 : elements(input_blocks_) * e_),
        second_(in_place ? std::max(elements(input_blocks_), elements(output_blocks_)) * e_
                         : elements(output_blocks_) * e_) {
    place();
  }

  /// The crafted input; the output and everything else as it must not stay.
  void prepare(const std::vector<std::byte>& table) {
    std::memset(second_.data(), 0xcd, second_.size());
    fill(input_, table, e_, input_blocks_);
  }

  void zero() { std::memset(second_.data(), 0, second_.size()); }

  std::uint64_t wrong(const std::vector<std::byte>& input, const std::vector<std::byte>& result) const {
    std::uint64_t count = count_wrong(output_, result, e_, output_blocks_);
    // A rank without output has only lent its input, also in place.
    if (!in_place_ || output_blocks_.empty()) count += count_wrong(input_, input, e_, input_blocks_);
    return count;
  }

  std::uint64_t damaged() const { return first_.damaged() + second_.damaged(); }
  rank_t rank() const { return rank_; }

  /// Blocking.
  void perform(communicator& comm) const {
    if (!job_.kind.send_recv) return comm.run(describe());
    request in = comm.start(receiving());
    request out = comm.start(sending());
    in.wait();
    out.wait();
  }

  void join(communicator& comm, group& together) const {
    if (!job_.kind.send_recv) {
      comm.join(together, describe());
      return;
    }
    comm.join(together, receiving());
    comm.join(together, sending());
  }

  call_description describe() const;

private:
  static std::size_t elements(const std::vector<crafted_block>& list) {
    return std::accumulate(list.begin(), list.end(), std::size_t{0},
                           [](std::size_t total, const crafted_block& b) { return total + b.elements; });
  }

  int before() const { return (rank_ + ranks_ - 1) % ranks_; }
  int after() const { return (rank_ + 1) % ranks_; }

  crafted_block block(std::int64_t index) const {
    // Every block has a phase of its own, also where counts are multiples of the period.
    const auto b = static_cast<std::size_t>(index);
    return {shape_.counts.empty() ? shape_.count : shape_.counts[b], b * 389};
  }

  std::vector<crafted_block> blocks(bool of_input) const {
    if (job_.kind.send_recv) return {block(of_input ? rank_ : before())};
    const block_run run = of_input ? input_blocks(job_.kind.what, ranks_, job_.root, rank_)
                                   : output_blocks(job_.kind.what, ranks_, job_.root, rank_);
    std::vector<crafted_block> list;
    for (int i = 0; i < run.count; ++i) list.push_back(block(run.first + std::int64_t{i} * run.stride));
    return list;
  }

  /// Where this rank's own block begins in a buffer of all ranks' blocks, in bytes.
  std::size_t own_block() const {
    std::size_t begin = 0;
    for (rank_t r = 0; r < rank_; ++r) begin += block(r).elements;
    return begin * e_;
  }

  void place() {
    input_ = first_.data();
    output_ = second_.data();
    if (!in_place_) return;
    input_ = second_.data();
    if (input_blocks_.empty() || output_blocks_.empty()) return;
    if (input_blocks_.size() < output_blocks_.size()) input_ = second_.data() + own_block();
    if (input_blocks_.size() > output_blocks_.size()) output_ = second_.data() + own_block();
  }

  call_options options() const { return {std::nullopt, job_.level, job_.choreography, job_.protocol}; }
  call_description sending() const { return calls::send(input_, shape_.count, job_.type, after(), options()); }
  call_description receiving() const { return calls::recv(output_, shape_.count, job_.type, before(), options()); }

  const job& job_;
  const job_shape& shape_;
  int ranks_;
  rank_t rank_;
  bool in_place_;
  std::size_t e_;
  std::vector<crafted_block> input_blocks_, output_blocks_;
  guarded_buffer first_;   // input of an out-of-place call
  guarded_buffer second_;  // output; everything of an in-place call
  std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
};

call_description rank_job::describe() const {
  // What a rank does not give or get is null: it must not be touched. In place one block has one buffer, at every rank.
  const bool one_buffer = in_place_ && block_count(job_.kind.what, ranks_) == 1;
  const void* in = input_blocks_.empty() && !one_buffer ? nullptr : input_;
  void* out = output_blocks_.empty() && !one_buffer ? nullptr : output_;
  if (job_.kind.v_form)
    return calls::any_v(job_.kind.what, in, out, shape_.counts, ranks_, rank_, job_.type, job_.reduction, job_.root,
                        options());
  return calls::any(job_.kind.what, in, out, shape_.count, job_.type, job_.reduction, job_.root, options());
}

}  // namespace

/// One job, out of place or in place, on all ranks.
class bench_runner::pass {
public:
  /// @param reporter in a job of several processes the rank, of this one, that collects what all have measured
  pass(const job_result& r, bool in_place, const workload& settings, rank_t reporter)
      : result_(r),
        in_place_(in_place),
        settings_(settings),
        reporter_(reporter),
        times_(static_cast<std::size_t>(r.ranks)) {
    if (r.what.kind.reduces()) of_all_ranks_ = crafted_result(r.what.type, r.what.reduction, r.ranks);
    else bits_ = crafted_bits(r.what.type);
  }

  /// A rank's thread.
  void perform(communicator& comm) {
    const std::vector<std::byte> table = input_of(comm.rank());
    jobs mine;
    for (int i = 0; i < settings_.aggregated; ++i) add(mine, comm.rank(), table);
    const auto once = [&] {
      if (mine.size() == 1) return mine.front()->perform(comm);
      group together;
      for (const auto& one : mine) one->join(comm, together);
      together.wait();
    };
    faults found;
    if (settings_.check) {
      once();
      for (const auto& one : mine) found += faults_of(*one, table);
    }
    if (in_place_)
      for (const auto& one : mine) one->zero();
    warm_up(comm.rank(), once, [&](int next) { return tell(comm, next); });
    const std::vector<float> each = time(comm.rank(), once, [&] { comm.barrier(); });
    if (settings_.processes > 1) return collect(comm, found, each);
    add(found);
    add(each);
  }

  /// One thread for all ranks.
  void perform(std::vector<communicator>& comms) {
    jobs all;
    std::vector<std::vector<std::byte>> tables;
    for (int r = 0; r < result_.ranks; ++r) {
      tables.push_back(input_of(r));
      for (int i = 0; i < settings_.aggregated; ++i) add(all, r, tables.back());
    }
    const auto once = [&] {
      group together;
      for (const auto& one : all) one->join(comms[static_cast<std::size_t>(one->rank())], together);
      together.wait();
    };
    if (settings_.check) {
      once();
      for (const auto& one : all) add(faults_of(*one, tables[static_cast<std::size_t>(one->rank())]));
    }
    if (in_place_)
      for (const auto& one : all) one->zero();
    warm_up(0, once, [](int next) { return next; });
    add(time(0, once, [] {}));
    std::fill(times_.begin(), times_.end(), times_.front());
  }

  measurement measured() const {
    measurement m;
    m.time_us = time_us() / settings_.aggregated;
    m.algbw = m.time_us > 0 ? static_cast<double>(result_.shape.bytes) / m.time_us / 1e3 : 0;
    m.busbw = m.algbw * bus_factor(result_.what.kind, result_.ranks);
    if (settings_.spread) m.spread = spread();
    if (settings_.check) m.wrong = wrong_.load();
    return m;
  }
  std::uint64_t out_of_bounds() const { return out_of_bounds_.load(); }

private:
  using jobs = std::vector<std::unique_ptr<rank_job>>;

  void add(jobs& to, rank_t rank, const std::vector<std::byte>& table) {
    to.push_back(std::make_unique<rank_job>(result_, rank, in_place_));
    to.back()->prepare(table);
  }

  /// Threads may begin on one core, and stay there until the kernel balances its queues, every few milliseconds: until then a
  /// small operation takes a hundred times as long. So the repetitions go on in rounds of a millisecond or more until two rounds
  /// have not been faster than the best one before by a tenth.
  /// @param tell what rank 0 says, to all
  template <class Once, class Tell>
  void warm_up(rank_t rank, Once once, Tell tell) {
    using namespace std::chrono_literals;
    constexpr auto least_round = 1ms, least = 20ms, most = 500ms;
    const auto begun = clock::now();
    double best = std::numeric_limits<double>::infinity();
    int steady = 0;
    for (int round = settings_.warmup; round > 0;) {
      const auto begin = clock::now();
      for (int i = 0; i < round; ++i) once();
      const auto now = clock::now();
      if (!settings_.settle) return;
      int next = 0;
      if (rank == 0) {
        const double each = std::chrono::duration<double>(now - begin).count() / round;
        steady = each < 0.9 * best ? 0 : steady + 1;
        best = std::min(best, each);
        const bool done = (steady >= 2 && now - begun >= least) || now - begun >= most;
        const double wanted = std::chrono::duration<double>(least_round).count() / std::max(each, 1e-9);
        next = done ? 0 : static_cast<int>(std::clamp(wanted, 1.0, 1e6));
      }
      round = tell(next);
    }
  }

  int tell(communicator& comm, int next) {
    if (settings_.processes > 1) {
      comm.broadcast(next, 0);
      return next;
    }
    comm.barrier();  // next_round_ is read by nobody any more
    if (comm.rank() == 0) next_round_ = next;
    comm.barrier();
    return next_round_.load();
  }

  /// The times of single repetitions, if they are wanted.
  template <class Once, class Barrier>
  std::vector<float> time(rank_t rank, Once once, Barrier barrier) {
    barrier();
    const double cpu = cpu_us();
    auto& [begin, end] = times_[static_cast<std::size_t>(rank)];
    begin = clock::now();
    for (int i = 0; i < settings_.iterations; ++i) once();
    end = clock::now();
    // A late rank may not be measured with the next pass's preparation going on elsewhere.
    barrier();
    if (rank == reporter_) cpu_us_ = cpu_us() - cpu;
    if (!settings_.spread) return {};
    // A clock around each repetition would be a part of the smallest ones: so not in the series above.
    std::vector<float> each(static_cast<std::size_t>(std::min(settings_.iterations, most_samples)));
    for (float& one : each) {
      const auto from = clock::now();
      once();
      one = std::chrono::duration<float, std::micro>(clock::now() - from).count();
    }
    return each;
  }

  void add(const std::vector<float>& each) {
    const std::lock_guard lock{spread_mutex_};
    slowest_.resize(each.size());
    for (std::size_t i = 0; i < each.size(); ++i) slowest_[i] = std::max(slowest_[i], each[i]);
  }

  static double cpu_us() {
    timespec used{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) * 1e6 + static_cast<double>(used.tv_nsec) / 1e3;
  }

  /// Of a repetition.
  double time_us() const {
    if (settings_.cpu_time) return cpu_us_ / settings_.iterations;
    const auto us = [](auto duration) { return std::chrono::duration<double, std::micro>(duration).count(); };
    auto begin = times_.front().first, end = times_.front().second;
    double least = std::numeric_limits<double>::infinity(), most = 0, sum = 0;
    for (const auto& [b, e] : times_) {
      begin = std::min(begin, b), end = std::max(end, e);
      least = std::min(least, us(e - b)), most = std::max(most, us(e - b)), sum += us(e - b);
    }
    switch (settings_.whose) {
      case time_of::all: return us(end - begin) / settings_.iterations;
      case time_of::rank_0: return us(times_.front().second - times_.front().first) / settings_.iterations;
      case time_of::average: return sum / static_cast<double>(times_.size()) / settings_.iterations;
      case time_of::least: return least / settings_.iterations;
      case time_of::most: return most / settings_.iterations;
    }
    return 0;
  }

  measurement::distribution spread() const {
    std::vector<float> sorted = slowest_;
    std::sort(sorted.begin(), sorted.end());
    const auto at = [&](double share) {
      const auto last = static_cast<double>(sorted.size() - 1);
      return static_cast<double>(sorted[static_cast<std::size_t>(std::lround(share * last))]) / settings_.aggregated;
    };
    return {at(0), at(0.5), at(0.99), at(1)};
  }

  std::vector<std::byte> input_of(rank_t rank) const {
    return bits_.empty() ? crafted_input(result_.what.type, result_.what.reduction, result_.ranks, rank) : bits_;
  }
  /// What a rank's output is filled from: a table for all ranks, where all have the same contributors.
  std::vector<std::byte> result_of(rank_t rank) const {
    const job& j = result_.what;
    if (!bits_.empty()) return bits_;
    const block_run run = output_blocks(j.kind.what, result_.ranks, j.root, rank);
    if (run.count == 0) return {};
    const rank_range from = contributors(j.kind.what, result_.ranks, j.root, rank, run.first);
    return from.count == result_.ranks ? of_all_ranks_ : crafted_result(j.type, j.reduction, result_.ranks, from);
  }
  struct faults {
    std::uint64_t wrong = 0, out_of_bounds = 0;
    void operator+=(const faults& more) { wrong += more.wrong, out_of_bounds += more.out_of_bounds; }
  };
  faults faults_of(const rank_job& mine, const std::vector<std::byte>& input) const {
    return {mine.wrong(input, result_of(mine.rank())), mine.damaged()};
  }
  void add(const faults& found) {
    wrong_ += found.wrong;
    out_of_bounds_ += found.out_of_bounds;
  }

  /// What all ranks of a job have measured, to the reporter of each process. Their clocks may differ, so that a rank's time alone counts.
  void collect(communicator& comm, const faults& found, std::vector<float> each) {
    using numbers = std::array<double, 4>;
    const auto& [begin, end] = times_[static_cast<std::size_t>(comm.rank())];
    const bool reports = comm.rank() == reporter_;
    const numbers mine{std::chrono::duration<double, std::micro>(end - begin).count(), static_cast<double>(found.wrong),
                       static_cast<double>(found.out_of_bounds), reports ? cpu_us_ : 0};
    std::vector<double> all(mine.size() * static_cast<std::size_t>(comm.size()));
    comm.all_gather(mine, all);
    if (!each.empty()) comm.all_reduce(each, maximum);
    if (!reports) return;
    cpu_us_ = 0;
    for (std::size_t r = 0; r < times_.size(); ++r) {
      const double* const of = &all[r * mine.size()];
      times_[r] = {{},
                   clock::time_point{} +
                       std::chrono::duration_cast<clock::duration>(std::chrono::duration<double, std::micro>(of[0]))};
      add(faults{static_cast<std::uint64_t>(of[1]), static_cast<std::uint64_t>(of[2])});
      cpu_us_ += of[3];
    }
    add(each);
  }

  const job_result& result_;
  bool in_place_;
  const workload& settings_;
  rank_t reporter_;
  std::vector<std::byte> of_all_ranks_, bits_;
  std::vector<std::pair<clock::time_point, clock::time_point>> times_;
  std::atomic<std::uint64_t> wrong_{0}, out_of_bounds_{0};
  std::atomic<int> next_round_{0};  // of the warm-up, as rank 0 decides between two barriers; 0: it is over
  double cpu_us_ = 0;
  static constexpr int most_samples = 10'000;
  std::mutex spread_mutex_;  // once a rank, at its end
  std::vector<float> slowest_;
};

/// Aborts the test under way when it has taken too long.
class bench_runner::stopwatch {
public:
  explicit stopwatch(bench_runner& of) : of_(of), limit_(of.settings_.timeout) {
    if (limit_.count() > 0) watch_ = std::thread{[this] { watch(); }};
  }
  ~stopwatch() {
    {
      const std::lock_guard lock{mutex_};
      over_ = true;
    }
    ended_.notify_one();
    if (watch_.joinable()) watch_.join();
  }
  stopwatch(const stopwatch&) = delete;
  stopwatch& operator=(const stopwatch&) = delete;

private:
  void watch() {
    std::unique_lock lock{mutex_};
    if (ended_.wait_for(lock, limit_, [this] { return over_; })) return;
    const std::lock_guard active{of_.active_mutex_};
    of_.timed_out_ = true;
    if (of_.active_ != nullptr) of_.active_->abort(of_.too_long());
  }

  bench_runner& of_;
  std::chrono::seconds limit_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::thread watch_;
};

bench_runner::bench_runner(engine& on, const workload& settings)
    : engine_(on),
      settings_(settings),
      placement_(first_places(on.options().layout, settings.ranks)),
      planner_(on.options()) {
  settings_.groups.clear();
  if (settings_.processes > 1 && settings_.whose == time_of::all) settings_.whose = time_of::most;
}

bench_runner::~bench_runner() = default;

void bench_runner::join() {
  if (settings_.processes == 1) return;
  stop_if_interrupted();
  join_options how;
  how.cancel = &interrupted_;
  world_ = engine_.join_communicators(settings_.ranks_here(), how);
  if (const int ranks = world_.front().size(); ranks != settings_.ranks)
    throw error(errc::bad_config, "the job has " + std::to_string(ranks) + " ranks, and not " +
                                      std::to_string(settings_.ranks) +
                                      "; start all of its processes with the same options");
  placement_ = layout_of_job(engine_);
  planner_.agree_on(costs_of_job(engine_), 0);
}

void bench_runner::interrupt() {
  interrupted_ = true;
  const std::lock_guard lock{active_mutex_};
  if (active_ != nullptr) active_->abort("interrupted");
}

void bench_runner::stop_if_interrupted() const {
  if (interrupted_) throw error(errc::cancelled, "interrupted");
}

namespace {

/// Threads that `ulimit -v` leaves no room for fail one by one where nobody expects it, some in glibc itself.
void check_stacks(int threads) {
  pthread_attr_t usual;
  std::size_t stack = 0;
  if (pthread_getattr_default_np(&usual) != 0) return;
  pthread_attr_getstacksize(&usual, &stack);
  pthread_attr_destroy(&usual);
  rlimit space{};
  if (getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur == RLIM_INFINITY) return;
  const auto text = [](std::uint64_t bytes) { return bytes_text(bytes >> 20 << 20); };
  if (const std::uint64_t need = static_cast<std::uint64_t>(threads) * stack; need > space.rlim_cur)
    throw error(errc::out_of_memory, "the stacks of " + std::to_string(threads) + " threads take " + text(need) +
                                         " of address space, ulimit -v allows " + text(space.rlim_cur) +
                                         "; use fewer ranks, or one thread for all");
}

}  // namespace

std::string bench_runner::layout_text() const {
  if (!world_.empty() && !placement_.is_flat()) return placement_.to_string();
  return engine_.options().layout.empty() ? "flat" : engine_.options().layout;
}

/// Of this computer.
int bench_runner::ranks_on_host() const {
  if (world_.empty()) return settings_.ranks;
  const int host = placement_.homes[static_cast<std::size_t>(world_.front().rank())].host;
  return static_cast<int>(std::ranges::count(placement_.homes, host, &residence::host));
}

/// How many ranks of this computer are before it. @pre a job
int bench_runner::place_on_host(rank_t rank) const {
  const auto mine = placement_.homes.begin() + rank;
  return static_cast<int>(
      std::count_if(placement_.homes.begin(), mine, [&](const residence& r) { return r.host == mine->host; }));
}

void bench_runner::check_memory(const job& what, const job_shape& shape) const {
  if (!settings_.one_thread) check_stacks(settings_.ranks_here());
  const auto n = static_cast<double>(ranks_on_host());
  const double limit = static_cast<double>(usable_memory());
  // Input and output of every rank; scratch and slots are on top of that.
  const double need =
      2.2 * n * settings_.aggregated * static_cast<double>(std::max(shape.bytes, shape.count * size_of(what.type)));
  if (limit > 0 && need > 0.8 * limit)
    throw error(errc::out_of_memory,
                name(what.kind) + " of " + bytes_text(shape.bytes) + " on " + std::to_string(settings_.ranks) +
                    " ranks needs about " + bytes_text(static_cast<std::uint64_t>(need / (1 << 20)) << 20) +
                    " of memory, this computer has " + bytes_text(static_cast<std::uint64_t>(limit / (1 << 20)) << 20) +
                    "; use fewer ranks or smaller sizes");
}

void bench_runner::describe_plan(job_result& result, bool in_place) {
  if (result.what.kind.send_recv || !result.choreography.empty()) return;
  rank_t root = result.what.kind.rooted() ? result.what.root : 0;
  job_result empty = result;  // sizes without the memory
  empty.shape.count = 0;
  std::fill(empty.shape.counts.begin(), empty.shape.counts.end(), 0);
  call what = rank_job{empty, root, false}.describe().what;
  what.count = result.shape.count;
  what.in_place = in_place && agrees_on_place(result.what.kind.what, !result.what.kind.v_form);
  what.uniform = !result.what.kind.v_form;
  what.choreography = result.what.choreography;
  what.protocol = result.what.protocol;
  what.level = result.what.level.value_or(engine_.options().level);
  const auto decided = planner_.plan_for(what, placement_, what.uniform ? nullptr : &result.shape.counts);
  result.choreography = decided->choreography;
  result.protocol = name(decided->protocol());
}

/// In a job the process that comes to it first tells the others so, by the reason of its abort.
std::string bench_runner::too_long() const {
  return "the test has taken more than " + plural(static_cast<std::size_t>(settings_.timeout.count()), "second") +
         " (-T); take fewer iterations or a smaller size";
}

measurement bench_runner::measure(const job_result& result, bool in_place, std::uint64_t& out_of_bounds) {
  stop_if_interrupted();
  pass one{result, in_place, settings_, world_.empty() ? 0 : world_.front().rank()};
  const stopwatch limit{*this};
  try {
    perform(one);
  } catch (const error&) {
    stop_if_interrupted();
    if (timed_out_) throw error(errc::timed_out, too_long());
    throw;
  }
  out_of_bounds += one.out_of_bounds();
  return one.measured();
}

void bench_runner::perform(pass& one) {
  const auto activate = [this](communicator* comm) {
    const std::lock_guard lock{active_mutex_};
    active_ = comm;
    if (comm != nullptr && (interrupted_ || timed_out_)) comm->abort(interrupted_ ? "interrupted" : too_long());
  };
  struct deactivate {
    decltype(activate)& set;
    ~deactivate() { set(nullptr); }
  };
  if (!world_.empty()) {
    const deactivate at_end{activate};
    activate(&world_.front());
    return perform_in_job(one);
  }
  if (settings_.one_thread) {
    auto comms = engine_.communicators(settings_.ranks);
    const deactivate at_end{activate};
    activate(&comms.front());
    return one.perform(comms);
  }
  engine_.run(settings_.ranks, [&](communicator& comm) {
    if (comm.rank() != 0) return one.perform(comm);
    const deactivate at_end{activate};
    activate(&comm);
    one.perform(comm);
  });
}

/// The world of a job lasts: the first failure ends it, and with it all that would be measured.
void bench_runner::perform_in_job(pass& one) {
  std::mutex mutex;
  std::exception_ptr first;
  const auto call = [&](communicator& comm) {
    begin_on_cpu(place_on_host(comm.rank()));
    try {
      one.perform(comm);
    } catch (const std::exception& failure) {
      {
        const std::lock_guard lock{mutex};
        if (!first) first = std::current_exception();
      }
      comm.abort(failure.what());
    }
  };
  std::vector<std::thread> others;
  try {
    for (std::size_t r = 1; r < world_.size(); ++r) others.emplace_back(call, std::ref(world_[r]));
    call(world_.front());
  } catch (const std::system_error& failure) {
    first = std::make_exception_ptr(
        error(errc::out_of_memory, std::string{"no thread can be started for a rank: "} + failure.what()));
    world_.front().abort(failure.what());
  }
  for (std::thread& each : others) each.join();
  if (first) std::rethrow_exception(first);
}

std::string bench_runner::forced(const job& what) const {
  if (what.kind.send_recv) return {};
  std::string by_name = what.choreography;
  const auto& of = engine_.options().choreography_of;
  if (const auto own = of.find(std::string{name(what.kind.what)}); by_name.empty() && own != of.end())
    by_name = own->second;
  if (by_name.empty()) by_name = engine_.options().choreography;
  return by_name == "auto" ? std::string{} : by_name;
}

void bench_runner::check(const job& what) {
  stop_if_interrupted();
  job_result result = begin(what);
  if (forced(what).empty() && what.protocol == message_protocol::unset) return;
  const bool in = what.places != job_places::out && what.kind.in_place_exists();
  if (what.places != job_places::in || !in) describe_plan(result, false);
  result.choreography.clear();
  if (in) describe_plan(result, true);
}

job_result bench_runner::begin(const job& what) const {
  job_result result;
  result.what = what;
  result.shape = shape_of(what, settings_.ranks);
  result.ranks = settings_.ranks;
  result.processes = settings_.processes;
  if (what.kind.send_recv && settings_.ranks < 2)
    throw error(errc::unsupported, "send_recv needs at least two ranks; the workload has one");
  check_memory(what, result.shape);
  result.protocol = "simple";
  if (what.kind.send_recv) result.choreography = "send_recv";
  return result;
}

job_result bench_runner::run(const job& what) {
  job_result result = begin(what);
  const bool in = what.places != job_places::out && what.kind.in_place_exists();
  const bool out = what.places != job_places::in || !in;
  describe_plan(result, !out);
  if (out) result.out_of_place = measure(result, false, result.out_of_bounds);
  if (in) result.in_place = measure(result, true, result.out_of_bounds);
  return result;
}

}  // namespace troupe
