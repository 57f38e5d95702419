// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/tune_nic.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "actors/ports/nic/nic_driver.hpp"
#include "engine/api/communicator.hpp"
#include "engine/api/engine.hpp"
#include "engine/api/request.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/offload/offload_compiler.hpp"
#include "protocols/score/score_tally.hpp"

namespace troupe {

namespace {

using clock = std::chrono::steady_clock;

struct nobody final : actors::nic_client {
  void performed(epoch_t, failure_ptr) override {}
  void differs(epoch_t, rank_t) override {}
  void let_go(epoch_t) override {}
};

/// All-reduces of one number, one after the other.
class small_operations {
public:
  explicit small_operations(int ranks) : in_(static_cast<std::size_t>(ranks), 1), out_(in_.size()) {
    const choreography& which = *find_choreography("recursive_doubling");
    const setup on = flat_setup(collective::all_reduce, ranks);
    steps_ = static_cast<double>(tally_of(which, on).steps());
    const score what = lower_syncs(write_score(which, on));
    const auto places = offload::behind_one_nic(what);
    const call_shape one{1, {}, {}, {}, sizeof(std::int32_t)};
    programs_ = std::make_shared<const std::vector<offload::rank_program>>(
        offload::compile(what, one, {8, places, actors::nic_packet_bytes / sizeof(std::int32_t)}));
  }
  double steps() const { return steps_; }
  void perform(actors::nic_driver& driver) {
    for (std::size_t r = 0; r < in_.size(); ++r) {
      actors::nic_posting p;
      p.communicator = in_.size();
      p.epoch = next_;
      p.rank = static_cast<rank_t>(r);
      p.ranks = static_cast<int>(in_.size());
      p.program = {programs_, &(*programs_)[r]};
      p.memory.input = reinterpret_cast<std::byte*>(&in_[r]);
      p.memory.output = reinterpret_cast<std::byte*>(&out_[r]);
      p.type = datatype::i32;
      p.reduction = sum;
      driver.post(who_, std::move(p));
    }
    ++next_;
    while (driver.turn(clock::now() - begun_)) {}
  }

private:
  std::vector<std::int32_t> in_, out_;
  double steps_ = 0;
  std::shared_ptr<const std::vector<offload::rank_program>> programs_;
  actors::nic_client_ptr who_ = std::make_shared<nobody>();
  epoch_t next_ = 0;
  clock::time_point begun_ = clock::now();
};

double tenth_percentile(std::vector<double>& values) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 10);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

double cpu_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

}  // namespace

double nic_step_ns(double budget_ms) {
  actors::nic_driver driver;
  small_operations few{2}, many{8};
  std::vector<double> short_ones, long_ones;
  const auto time = [&](small_operations& which) {
    const auto begin = clock::now();
    which.perform(driver);
    return std::chrono::duration<double, std::nano>(clock::now() - begin).count();
  };
  for (const auto end = clock::now() + std::chrono::duration<double, std::milli>(budget_ms);
       short_ones.size() < 20 || clock::now() < end;) {
    short_ones.push_back(time(few));
    long_ones.push_back(time(many));
  }
  const double further = tenth_percentile(long_ones) - tenth_percentile(short_ones);
  return std::max(1.0, further / (many.steps() - few.steps()));
}

nic_caller_costs nic_caller_ns(double budget_ms) {
  constexpr auto nap = std::chrono::microseconds{50};
  constexpr int most_naps = 1000;
  engine_options options;
  options.tuning = "none";
  options.offload = "always";
  options.spin = 0;  // so that the thread sleeps when it has nothing to do
  options.log_level = "off";
  engine on{options};
  std::vector<communicator> ranks = on.communicators(3);
  std::array<std::int32_t, 3> in{1, 2, 3}, out{};
  std::array<double, 4> begun{};
  std::array<std::vector<double>, 4> posting;  // by rank; of the last, the end
  std::vector<double> clocks;
  for (const auto end = clock::now() + std::chrono::duration<double, std::milli>(budget_ms);
       clocks.size() < 20 || clock::now() < end;) {
    std::this_thread::sleep_for(2 * nap);
    std::array<request, 3> under_way;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      begun[r] = cpu_ns();
      under_way[r] = ranks[r].all_reduce_async(std::span{&in[r], 1}, std::span{&out[r], 1}, sum);
    }
    begun[3] = cpu_ns();
    clocks.push_back(cpu_ns() - begun[3]);
    const auto done = [&] { return std::ranges::all_of(under_way, [](const request& r) { return r.done(); }); };
    for (int naps = 0; naps < most_naps && !done(); ++naps) std::this_thread::sleep_for(nap);
    for (std::size_t r = 0; r < ranks.size(); ++r) posting[r].push_back(begun[r + 1] - begun[r]);
    const double from = cpu_ns();
    under_way[0].wait();
    posting[3].push_back(cpu_ns() - from);
    under_way[1].wait(), under_way[2].wait();
  }
  const double look = tenth_percentile(clocks);
  const auto of = [&](std::size_t which) { return std::max(0.0, tenth_percentile(posting[which]) - look); };
  return {std::max(1.0, of(0) + of(3)), std::max(1.0, of(2) - of(1))};
}

}  // namespace troupe
