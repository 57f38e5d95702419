// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/tune_links.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>

namespace troupe {

namespace {

using clock = std::chrono::steady_clock;

constexpr std::size_t largest_chunk = std::size_t{4} << 20;

/// Of `calls` calls in a row, each.
double seconds_a_call(communicator& world, const calibration& what, std::uint64_t calls) {
  const std::size_t count = what.bytes / sizeof(float);
  const std::vector<float> input(count, 1);
  std::vector<float> output(count);
  call_options how;
  how.choreography = what.choreography;
  how.protocol = message_protocol::simple;
  world.barrier();
  const auto begun = clock::now();
  for (std::uint64_t i = 0; i < calls; ++i) world.all_reduce(input, output, sum, how);
  const double seconds = std::chrono::duration<double>(clock::now() - begun).count();
  if (count > 0 && output.back() != 2)
    throw std::runtime_error("tune: wrong results of an all_reduce between processes");
  return std::max(seconds / static_cast<double>(calls), 1e-9);
}

}  // namespace

engine_options options_to_measure_links() {
  engine_options options;
  options.tuning = "none";
  options.channels = 1;
  options.chunk_bytes = largest_chunk;
  return options;
}

std::vector<calibration> measure_link(communicator& world, reach between, bool quick) {
  std::vector<calibration> list;
  for (const char* name : {"one_shot", "recursive_doubling", "ring"})
    for (const std::size_t bytes :
         {std::size_t{8}, std::size_t{2048}, std::size_t{16384}, std::size_t{131072}, std::size_t{1} << 20})
      list.push_back({name, 2, bytes, message_protocol::simple, 0, between});
  std::vector<std::vector<double>> times(list.size());
  const double budget = quick ? 4e-3 : 20e-3;
  for (int round = 0; round < (quick ? 1 : 5); ++round)
    for (std::size_t i = 0; i < list.size(); ++i) {
      // Both must call as often; rank 0 says how often.
      constexpr std::uint64_t first_calls = 8, most_calls = 10'000;
      std::uint64_t calls = first_calls;
      seconds_a_call(world, list[i], calls);
      calls = std::clamp(static_cast<std::uint64_t>(budget / seconds_a_call(world, list[i], calls)), first_calls,
                         most_calls);
      world.broadcast(calls, 0);
      times[i].push_back(seconds_a_call(world, list[i], calls));
    }
  for (std::size_t i = 0; i < list.size(); ++i) {
    std::sort(times[i].begin(), times[i].end());
    list[i].seconds = times[i][times[i].size() / 2];
  }
  return list;
}

void fit_link(tuning& t, const std::vector<calibration>& measured, const std::string& by) {
  if (measured.empty()) return;
  t.deviation = std::max(t.deviation, fit(t, measured));
  t.links += (t.links.empty() ? "" : ", ") + by;
}

}  // namespace troupe
