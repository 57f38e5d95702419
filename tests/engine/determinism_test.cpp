// SPDX-License-Identifier: Apache-2.0
// What each determinism level promises, on inputs whose sum shows in which order it was made. Every level has a test that fails
// one level below: the lower level is seen to break the promise in the same setting.

#include <doctest/doctest.h>

#include <complex>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <vector>

#include "tests/engine/jobs.hpp"

using namespace engine_tests;
using troupe::determinism;

namespace {

/// Of a rank: magnitudes that swallow each other.
float revealing(std::size_t rank) {
  constexpr float values[] = {1e8f, 1.0f, -1e8f, 3.0f, 7e7f, 0.3f, -7e7f, 1e-3f, 5e8f, 11.0f, -5e8f, 0.7f, 2.5f};
  return values[rank % std::size(values)] * (1.0f + static_cast<float>(rank / std::size(values)));
}

float left_fold(std::size_t ranks) {
  float all = revealing(0);
  for (std::size_t r = 1; r < ranks; ++r) all += revealing(r);
  return all;
}

struct setting {
  collective what = collective::all_reduce;
  std::size_t count = 100;
  determinism level = determinism::run_stable;
  std::string choreography;
  bool in_place = false;
};

/// All elements have the same inputs. The bits of every rank's every result; nothing if the choreography cannot do it.
std::optional<std::set<std::uint32_t>> results(std::vector<communicator>& comms, const setting& s,
                                               std::vector<std::uint32_t>* list = nullptr) {
  const std::size_t n = comms.size();
  std::vector<std::vector<float>> in(n), out(n, std::vector<float>(s.count));
  call_options options;
  options.level = s.level;
  options.choreography = s.choreography;
  const std::size_t total = s.what == collective::reduce_scatter ? n * s.count : s.count;
  troupe::group together;
  try {
    for (std::size_t r = 0; r < n; ++r) {
      in[r].assign(total, revealing(r));
      if (s.what == collective::all_reduce && s.in_place)
        comms[r].all_reduce_async(together, in[r], troupe::sum, options);
      else if (s.what == collective::all_reduce)
        comms[r].all_reduce_async(together, in[r], out[r], troupe::sum, options);
      else if (s.what == collective::reduce) comms[r].reduce_async(together, in[r], out[r], troupe::sum, 0, options);
      else comms[r].reduce_scatter_async(together, in[r], out[r], troupe::sum, options);
    }
    together.wait();
  } catch (const troupe::error& e) {
    INFO(e.what());
    CHECK(e.code_value() == errc::unsupported);
    return std::nullopt;
  }
  std::set<std::uint32_t> bits;
  for (std::size_t r = 0; r < n; ++r) {
    if (s.what == collective::reduce && r > 0) break;
    for (const float value : s.in_place ? in[r] : out[r]) {
      bits.insert(std::bit_cast<std::uint32_t>(value));
      if (list) list->push_back(std::bit_cast<std::uint32_t>(value));
    }
  }
  return bits;
}

/// An engine whose messages come late at random.
troupe::engine delayed(std::uint64_t salt, const std::string& layout = "") {
  troupe::engine_options o;
  o.faults.delay = 0.5;
  o.faults.longest_delay = std::chrono::microseconds(300);
  o.faults.seed = seed() + salt;
  o.layout = layout;
  return troupe::engine(o);
}

constexpr collective reductions[] = {collective::all_reduce, collective::reduce_scatter, collective::reduce};

}  // namespace

TEST_CASE("run_stable: messages that come late change no bit, where fast lets them") {
  constexpr int runs = 25;
  int fast_differed = 0, compared = 0;
  for (const collective what : reductions)
    for (const std::string& choreography : offering(what)) {
      std::set<std::vector<std::uint32_t>> stable, fast;
      for (int run = 0; run < runs; ++run) {
        troupe::engine engine = delayed(static_cast<std::uint64_t>(run));
        auto comms = engine.communicators(6);
        std::vector<std::uint32_t> bits;
        if (!results(comms, {what, 12, determinism::run_stable, choreography}, &bits)) break;
        stable.insert(std::exchange(bits, {}));
        results(comms, {what, 12, determinism::fast, choreography}, &bits);
        fast.insert(bits);
      }
      INFO(choreography << ' ' << name(what));
      CHECK(stable.size() <= 1);
      compared += static_cast<int>(stable.size());
      fast_differed += fast.size() > 1;
    }
  CHECK(compared > 10);
  CHECK(fast_differed > 0);
}

TEST_CASE("size_stable: neither place nor size nor cutting change a bit, where run_stable lets them") {
  for (const collective what : reductions) {
    std::set<std::uint32_t> stable;
    std::map<std::string, std::set<std::uint32_t>> weaker, forced;
    for (const std::size_t chunk : {0u, 256u, 4096u}) {
      troupe::engine_options o;
      o.chunk_bytes = chunk;
      troupe::engine engine(o);
      auto comms = engine.communicators(7);
      for (const std::size_t count : {1u, 2u, 7u, 50u, 1000u, 30'011u}) {
        INFO(name(what) << ", count " << count << ", chunk " << chunk);
        stable.merge(*results(comms, {what, count, determinism::size_stable, ""}));
        if (what == collective::all_reduce)
          stable.merge(*results(comms, {what, count, determinism::size_stable, "", true}));
        for (const std::string& choreography : offering(what)) {
          if (auto bits = results(comms, {what, count, determinism::size_stable, choreography}))
            forced[choreography].merge(*bits);
          if (auto bits = results(comms, {what, count, determinism::run_stable, choreography}))
            weaker[choreography].merge(*bits);
        }
      }
    }
    INFO(name(what));
    CHECK(stable.size() == 1);
    for (const auto& by : forced) {
      INFO(by.first);
      CHECK(by.second.size() == 1);
    }
    // The chunks of a ring begin at different ranks.
    if (weaker.contains("ring") && what != collective::reduce) CHECK(weaker["ring"].size() > 1);
  }
}

TEST_CASE(
    "topology_stable: the left fold in rank order, whoever performs it and wherever, where size_stable gives others") {
  for (const collective what : reductions) {
    std::set<std::uint32_t> stable, weaker;
    for (const char* layout : {"", "8", "2x4", "2x2x2", "3+5"}) {
      troupe::engine_options o;
      o.layout = layout;
      troupe::engine engine(o);
      auto comms = engine.communicators(8);
      for (const std::size_t count : {1u, 300u})
        for (std::string choreography : offering(what)) {
          INFO(name(what) << " by " << choreography << " on " << layout << ", count " << count);
          if (auto bits = results(comms, {what, count, determinism::topology_stable, choreography}))
            stable.merge(*bits);
          if (auto bits = results(comms, {what, count, determinism::size_stable, choreography})) weaker.merge(*bits);
        }
      stable.merge(*results(comms, {what, 999, determinism::topology_stable, ""}));
    }
    INFO(name(what));
    CHECK(stable == std::set<std::uint32_t>{std::bit_cast<std::uint32_t>(left_fold(8))});
    CHECK(weaker.size() > 1);
  }
}

TEST_CASE("the levels hold for late messages and averages too") {
  std::set<float> all;
  for (std::uint64_t run = 0; run < 10; ++run) {
    troupe::engine engine = delayed(run, run % 2 ? "2x3" : "");
    auto comms = engine.communicators(6);
    std::vector<std::vector<float>> data(6);
    call_options options;
    options.level = determinism::topology_stable;
    troupe::group together;
    for (std::size_t r = 0; r < 6; ++r) {
      data[r].assign(10 + run, revealing(r));
      comms[r].all_reduce_async(together, data[r], troupe::average, options);
    }
    together.wait();
    for (const auto& one : data) all.insert(one.begin(), one.end());
  }
  CHECK(all == std::set<float>{left_fold(6) / 6.0f});
}

TEST_CASE("sums of low precision are made in f32 and rounded once, by every choreography") {
  // Summed in bf16, 256 + 1 is 256 again; the sum is 263, halfway between 262 and 264.
  for (const char* layout : {"", "2x4"}) {
    troupe::engine_options o;
    o.layout = layout;
    troupe::engine engine(o);
    auto comms = engine.communicators(8);
    for (const collective what : reductions)
      for (const std::string& choreography : offering(what))
        for (const determinism level :
             {determinism::fast, determinism::run_stable, determinism::size_stable, determinism::topology_stable})
          for (const bool v_form : {false, true}) {
            if (v_form && what != collective::reduce_scatter) continue;
            std::vector<std::vector<troupe::bf16>> in(8), out(8, std::vector<troupe::bf16>(96));
            call_options options;
            options.choreography = choreography;
            options.level = level;
            troupe::group together;
            INFO(name(what) << (v_form ? "_v" : "") << " by " << choreography << ", " << name(level) << ", layout "
                            << layout);
            try {
              for (std::size_t r = 0; r < 8; ++r) {
                in[r].assign(96, troupe::bf16(r == 0 ? 256.0f : 1.0f));
                if (what == collective::all_reduce)
                  comms[r].all_reduce_async(together, in[r], out[r], troupe::sum, options);
                else if (what == collective::reduce)
                  comms[r].reduce_async(together, in[r], out[r], troupe::sum, 0, options);
                else if (v_form)
                  comms[r].reduce_scatter_v_async(together, in[r], out[r],
                                                  troupe::block_list{{12, 0, 24, 12, 12, 12, 12, 12}}, troupe::sum,
                                                  options);
                else comms[r].reduce_scatter_async(together, in[r], std::span(out[r]).first(12), troupe::sum, options);
              }
              together.wait();
            } catch (const troupe::error& e) {
              INFO(e.what());
              CHECK(e.code_value() == errc::unsupported);
              continue;
            }
            CHECK(static_cast<float>(out[0][0]) == 264.0f);
            CHECK(static_cast<float>(out[0][11]) == 264.0f);
            if (what == collective::all_reduce) CHECK(static_cast<float>(out[7][95]) == 264.0f);
          }
  }
}

namespace {

/// What all ranks have in the end, as bytes; nothing if it cannot be done so. Every rank has a factor of its own.
template <class T>
std::optional<std::vector<std::byte>> averaged_or_scaled(std::vector<communicator>& comms, bool averages,
                                                         std::size_t count, const call_options& options,
                                                         bool in_place) {
  std::mt19937_64 random(count);  // the same inputs each time
  std::vector<std::vector<T>> in(comms.size(), std::vector<T>(count)), out = in;
  troupe::group together;
  try {
    for (std::size_t r = 0; r < comms.size(); ++r) {
      for (T& value : in[r]) {
        const auto number = static_cast<int>(random() % 2001) - 1000;
        if constexpr (std::is_integral_v<T>) value = static_cast<T>(number);
        else if constexpr (is_complex_number<T>)
          value = {static_cast<typename T::value_type>(number) / 17, static_cast<typename T::value_type>(r) - 1};
        else value = static_cast<T>(static_cast<float>(number) / 17.0f);
      }
      const troupe::op reduction =
          averages ? troupe::average : troupe::pre_mul_sum(std::is_integral_v<T> ? 3.0 : 0.1 * static_cast<double>(r));
      if (in_place) comms[r].all_reduce_async(together, in[r], reduction, options);
      else comms[r].all_reduce_async(together, in[r], out[r], reduction, options);
    }
    together.wait();
  } catch (const troupe::error& e) {
    INFO(e.what());
    CHECK(e.code_value() == errc::unsupported);
    return std::nullopt;
  }
  std::vector<std::byte> all;
  for (const auto& one : in_place ? in : out) {
    const auto bytes = std::as_bytes(std::span(one));
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

template <class T>
int different_ways(std::vector<communicator>& comms, bool averages, std::size_t count) {
  std::optional<std::vector<std::byte>> first;
  int ways = 0;
  for (const auto protocol :
       {troupe::message_protocol::simple, troupe::message_protocol::direct, troupe::message_protocol::ll128})
    for (const std::string& choreography : offering(collective::all_reduce))
      for (const bool in_place : {false, true}) {
        call_options options;
        options.level = determinism::topology_stable;
        options.protocol = protocol;
        options.choreography = choreography;
        const auto bits = averaged_or_scaled<T>(comms, averages, count, options, in_place);
        if (!bits) continue;
        INFO(choreography << " by " << name(protocol) << (in_place ? " in place, " : ", ")
                          << name(troupe::datatype_of<T>));
        if (first) CHECK(*bits == *first);
        else first = bits;
        ++ways;
      }
  return ways;
}

}  // namespace

TEST_CASE("averages and scaled sums have the same bits, whoever divides and scales where") {
  for (const int ranks : {2, 3, 8}) {
    troupe::engine engine;
    auto comms = engine.communicators(ranks);
    for (const std::size_t count : {1u, 700u, 20'000u})
      for (const bool averages : {false, true}) {
        CHECK(different_ways<float>(comms, averages, count) > 6);
        CHECK(different_ways<std::complex<float>>(comms, averages, count) > 6);
        CHECK(different_ways<std::complex<double>>(comms, averages, count) > 6);
        CHECK(different_ways<std::int32_t>(comms, averages, count) > 6);
        CHECK(different_ways<troupe::bf16>(comms, averages, count) > 6);
        CHECK(different_ways<troupe::f8e4m3>(comms, averages, count) > 6);
      }
  }
}
