// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/tune_nic.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "actors/ports/nic/nic_driver.hpp"
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

}  // namespace troupe
