// SPDX-License-Identifier: Apache-2.0
#pragma once
// A layer of experts and what must come of it, computed from the definitions alone: every rank knows what all ranks have.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/api/troupe.hpp"

namespace expert_tests {

using troupe::rank_t;

struct layer {
  int experts = 4;
  troupe::expert_options options;
  std::vector<std::size_t> tokens;  ///< by rank
  int none = 0;                     ///< of 100 choices so many have no expert
  int hot = 0;                      ///< of 100 choices so many are expert 0
  std::uint64_t seed = 1;
  std::vector<int> servers;  ///< of each rank; empty: one
};

struct random_numbers {
  std::uint64_t state;
  std::uint64_t next() {
    std::uint64_t z = state += 0x9e3779b97f4a7c15U;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27) * 0x94d049bb133111ebU;
    return z ^ z >> 31;
  }
  int below(int n) { return static_cast<int>(next() % static_cast<std::uint64_t>(n)); }
  float centred() { return static_cast<float>(next() >> 40) / static_cast<float>(1 << 23) - 1.0F; }
};

/// One rank's tokens, choices, weights, and the gradient that comes back.
template <class T>
struct batch {
  batch(const layer& l, rank_t rank) {
    random_numbers random{l.seed * 1000 + static_cast<std::uint64_t>(rank)};
    const std::size_t n = l.tokens[static_cast<std::size_t>(rank)], k = static_cast<std::size_t>(l.options.top_k);
    for (std::size_t i = 0; i < n * l.options.hidden; ++i) tokens.push_back(T(random.centred()));
    for (std::size_t i = 0; i < n * l.options.hidden; ++i) gradient.push_back(T(random.centred()));
    for (std::size_t c = 0; c < n * k; ++c) {
      const int drawn = random.below(100), one = random.below(l.experts);
      ids.push_back(drawn < l.none ? -1 - drawn : drawn < l.none + l.hot ? 0 : one);
      weights.push_back(random.centred());
    }
  }
  std::vector<T> tokens, gradient;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

template <class T>
float wide(T x) {
  return static_cast<float>(x);
}
/// What expert e makes of x.
template <class T>
T made(int expert, T x) {
  return T(0.5F * static_cast<float>(expert + 1) * wide(x));
}
template <class T>
T made_backward(int expert, T gradient) {
  return made(expert, gradient);
}

/// Where each choice of each rank goes.
struct routes {
  explicit routes(const layer& l) : of(l) {}

  std::vector<rank_t> homes(int expert) const {
    const auto ranks = static_cast<int>(of.tokens.size());
    if (of.options.placement.empty()) return {static_cast<rank_t>(expert * ranks / of.experts)};
    auto all = of.options.placement[static_cast<std::size_t>(expert)];
    std::sort(all.begin(), all.end());
    return all;
  }
  int server(rank_t r) const { return of.servers.empty() ? 0 : of.servers[static_cast<std::size_t>(r)]; }
  /// −1: none, −2: dropped
  template <class T>
  std::vector<rank_t> targets(const batch<T>& b, rank_t from) const {
    std::vector<rank_t> result;
    std::vector<std::size_t> sent(static_cast<std::size_t>(of.experts));
    const double limit = of.options.capacity * static_cast<double>(b.ids.size()) / of.experts;
    for (const std::int32_t id : b.ids) {
      if (id < 0) {
        result.push_back(-1);
        continue;
      }
      std::size_t& count = sent[static_cast<std::size_t>(id)];
      if (of.options.capacity > 0 && static_cast<double>(count) >= std::ceil(limit)) {
        result.push_back(-2);
        continue;
      }
      std::vector<rank_t> among = homes(id), near;
      for (const rank_t r : among)
        if (server(r) == server(from)) near.push_back(r);
      if (std::count(among.begin(), among.end(), from) > 0) near = {from};
      if (!near.empty()) among = near;
      result.push_back(among[(count + static_cast<std::size_t>(from)) % among.size()]);
      ++count;
    }
    return result;
  }
  const layer& of;
};

/// And absolute: f16 has no smaller numbers.
template <class T>
inline constexpr float least_error = std::is_same_v<T, troupe::f16> ? 5e-7F : 0;

inline void expect(bool right, const std::string& what) {
  if (!right) throw std::runtime_error(what);
}

/// Relative error that T may have where sums are rounded on the way.
template <class T>
float rounding() {
  return std::is_same_v<T, float> ? 4e-6F : std::is_same_v<T, troupe::f16> ? 4e-3F : 3e-2F;
}

/// What a dispatch that starts early has brought, as one that does not would have.
template <class T>
struct gathered {
  std::vector<T> rows;
  std::vector<std::int32_t> experts;
  std::vector<std::size_t> counts;
};

/// All parts, computed where they are; some of them are made ready at once, the others by combine().
template <class T>
troupe::expert_tokens<T> in_parts(troupe::expert_exchange& exchange, const layer& l, rank_t me, const batch<T>& mine,
                                  const routes& way, gathered<T>& all) {
  const std::size_t h = l.options.hidden;
  exchange.start_dispatch<T>(mine.tokens, mine.ids, mine.weights);
  for (int e = 0; e < l.experts; ++e)
    if (const auto homes = way.homes(e); std::count(homes.begin(), homes.end(), me) > 0) all.experts.push_back(e);
  struct part {
    std::vector<T> rows;
    std::vector<std::size_t> counts;
  };
  std::vector<part> parts(l.tokens.size());
  while (const auto next = exchange.next_arrived<T>()) {
    part& one = parts[static_cast<std::size_t>(next->from)];
    expect(exchange.arrived(next->from), "what is given out has arrived");
    expect(one.counts.empty() && next->size() > 0, "a part comes once, and has rows");
    expect(std::equal(next->experts.begin(), next->experts.end(), all.experts.begin(), all.experts.end()),
           "the experts of a part");
    one.rows.assign(next->rows.begin(), next->rows.end());
    one.counts.assign(next->counts.begin(), next->counts.end());
    for (std::size_t e = 0; e < next->experts.size(); ++e)
      for (T& x : next->of(e)) x = made(next->experts[e], x);
    if ((l.seed + static_cast<std::uint64_t>(next->from)) % 2 == 0) exchange.ready(next->from);
  }
  for (std::size_t e = 0; e < all.experts.size(); ++e) {
    const std::size_t before = all.rows.size();
    for (const part& one : parts) {
      if (one.counts.empty()) continue;
      std::size_t first = 0;
      for (std::size_t x = 0; x < e; ++x) first += one.counts[x];
      const auto at = one.rows.begin() + static_cast<std::ptrdiff_t>(first * h);
      all.rows.insert(all.rows.end(), at, at + static_cast<std::ptrdiff_t>(one.counts[e] * h));
    }
    all.counts.push_back((all.rows.size() - before) / h);
  }
  return {all.rows, all.experts, all.counts, h};
}

/// Dispatches, computes, combines and goes back; throws for what is wrong.
template <class T>
void check_layer(troupe::expert_exchange& exchange, const layer& l, rank_t me) {
  const auto ranks = static_cast<rank_t>(l.tokens.size());
  const std::size_t h = l.options.hidden, k = static_cast<std::size_t>(l.options.top_k);
  const routes way(l);
  const batch<T> mine(l, me);
  const bool exact = l.options.transport == troupe::expert_transport::exact;
  const bool one_sum = l.servers.empty();

  const bool early = l.options.starts_early && l.seed % 4 != 0;
  gathered<T> parts;
  const auto got = early ? in_parts(exchange, l, me, mine, way, parts) : l.seed % 3 == 0 ? [&] {
    const auto room = exchange.token_buffer<T>(l.tokens[static_cast<std::size_t>(me)]);
    std::copy(mine.tokens.begin(), mine.tokens.end(), room.begin());
    return exchange.dispatch<T>(room, mine.ids, mine.weights);
  }() : exchange.dispatch<T>(mine.tokens, mine.ids, mine.weights);

  // What has come.
  std::size_t row = 0, local = 0;
  std::vector<T> expected_results;
  for (int e = 0; e < l.experts; ++e) {
    const auto homes = way.homes(e);
    if (std::count(homes.begin(), homes.end(), me) == 0) continue;
    expect(local < got.experts.size() && got.experts[local] == e, "an expert that should be here");
    const std::size_t first = row;
    for (rank_t s = 0; s < ranks; ++s) {
      const batch<T> from(l, s);
      const auto targets = way.targets(from, s);
      for (std::size_t c = 0; c < targets.size(); ++c) {
        if (targets[c] != me || from.ids[c] != e) continue;
        expect(row < got.size(), "a token is missing");
        for (std::size_t begin = 0; begin < h; begin += 128) {
          const std::size_t end = std::min(h, begin + 128);
          float largest = 0;
          for (std::size_t i = begin; i < end; ++i)
            largest = std::max(largest, std::abs(wide(from.tokens[c / k * h + i])));
          for (std::size_t i = begin; i < end; ++i) {
            const T is = got.rows[row * h + i], should = from.tokens[c / k * h + i];
            const float off = std::abs(wide(is) - wide(should)), x = std::abs(wide(should));
            if (exact) expect(off == 0, "an element differs");
            else
              expect(off <= x / 16 + largest / 400'000 + (std::is_same_v<T, float> ? 0 : rounding<T>() * (x + x / 16)),
                     "an element is farther off than the bound of the transport");
          }
        }
        ++row;
      }
    }
    expect(got.counts[local] == row - first, "a count differs");
    for (T& x : got.of(local)) x = made(e, x);
    ++local;
  }
  expect(local == got.experts.size() && row == got.size(), "there is more than should be");

  // What comes back.
  std::vector<T> output(mine.tokens.size(), T(99.0F));
  const std::vector<T> results(got.rows.begin(), got.rows.end());
  if (early) exchange.combine<T>(output);
  else if (l.seed % 2 == 0) exchange.combine<T>(got.rows, output);
  else exchange.combine<T>(results, output);
  const auto targets = way.targets(mine, me);
  std::size_t dropped = 0;
  for (std::size_t t = 0; t < l.tokens[static_cast<std::size_t>(me)]; ++t)
    for (std::size_t i = 0; i < h; ++i) {
      float sum = 0, sizes = 0;
      bool first = true;
      for (std::size_t c = t * k; c < (t + 1) * k; ++c) {
        if (targets[c] < 0) continue;
        const float part = mine.weights[c] * wide(made(mine.ids[c], mine.tokens[t * h + i]));
        sum = first ? part : sum + part;
        first = false;
        sizes += std::abs(part);
      }
      const float is = wide(output[t * h + i]);
      if (exact && one_sum) expect(is == wide(T(sum)), "a sum differs");
      else if (exact) expect(std::abs(is - sum) <= rounding<T>() * sizes + least_error<T>, "a sum is too far off");
    }
  for (std::size_t c = 0; c < targets.size(); ++c) {
    dropped += targets[c] == -2;
    expect(exchange.dropped_choices()[c] == (targets[c] == -2 ? 1 : 0), "what was dropped");
  }
  expect(exchange.dropped() == dropped, "how many were dropped");
  if (!exact) return;

  // The way back.
  std::vector<float> of_weights(l.seed % 5 == 0 ? 0 : mine.weights.size(), 99);
  const auto back = early ? exchange.combine_backward<T>(mine.gradient, {}, of_weights)
                          : exchange.combine_backward<T>(mine.gradient, results, of_weights);
  expect(back.size() == got.size(), "a gradient for each row");
  for (std::size_t e = 0; e < back.experts.size(); ++e)
    for (T& x : back.of(e)) x = made_backward(back.experts[e], x);
  std::vector<T> of_tokens(mine.tokens.size(), T(99.0F));
  exchange.dispatch_backward<T>(back.rows, of_tokens);
  for (std::size_t t = 0; t < l.tokens[static_cast<std::size_t>(me)]; ++t) {
    for (std::size_t i = 0; i < h; ++i) {
      float sum = 0, sizes = 0;
      for (std::size_t c = t * k; c < (t + 1) * k; ++c) {
        if (targets[c] < 0) continue;
        const float part = wide(made_backward(mine.ids[c], T(mine.weights[c] * wide(mine.gradient[t * h + i]))));
        sum += part;
        sizes += std::abs(part);
      }
      expect(std::abs(wide(of_tokens[t * h + i]) - sum) <= rounding<T>() * sizes + least_error<T>,
             "a token's gradient is too far off");
    }
    for (std::size_t c = t * k; c < (t + 1) * k && !of_weights.empty(); ++c) {
      double sum = 0, sizes = 0;
      for (std::size_t i = 0; targets[c] >= 0 && i < h; ++i) {
        const double part = static_cast<double>(wide(mine.gradient[t * h + i])) *
                            static_cast<double>(wide(made(mine.ids[c], mine.tokens[t * h + i])));
        sum += part;
        sizes += std::abs(part);
      }
      expect(std::abs(static_cast<double>(of_weights[c]) - sum) <= 1e-5 * sizes, "a weight's gradient is too far off");
    }
  }
}

inline void check_layer(troupe::expert_exchange& exchange, const layer& l, rank_t me) {
  switch (l.options.type) {
    case troupe::datatype::f16: return check_layer<troupe::f16>(exchange, l, me);
    case troupe::datatype::bf16: return check_layer<troupe::bf16>(exchange, l, me);
    default: return check_layer<float>(exchange, l, me);
  }
}

/// Any layer of so many ranks.
inline layer any_layer(random_numbers& random, int ranks) {
  layer l;
  l.experts = 1 + random.below(3 * ranks);
  l.options.hidden = static_cast<std::size_t>(1 + random.below(random.below(3) == 0 ? 1500 : 40));
  l.options.top_k = 1 + random.below(8);
  const troupe::datatype types[] = {troupe::datatype::f32, troupe::datatype::bf16, troupe::datatype::f16};
  l.options.type = types[random.below(3)];
  const double capacities[] = {0, 0, 0.5, 1.25};
  l.options.capacity = capacities[random.below(4)];
  l.options.starts_early = random.below(2) == 0;
  if (random.below(4) == 0) l.options.transport = troupe::expert_transport::f8e4m3;
  if (random.below(2) == 0)
    for (int e = 0; e < l.experts; ++e) {
      std::vector<rank_t> homes;
      for (rank_t r = 0; r < ranks; ++r)
        if (random.below(3) == 0) homes.push_back(r);
      if (homes.empty()) homes.push_back(static_cast<rank_t>(random.below(ranks)));
      std::reverse(homes.begin(), homes.end());
      l.options.placement.push_back(homes);
    }
  return l;
}
/// Another batch for it.
inline void draw_batch(random_numbers& random, layer& l, int ranks) {
  l.seed = random.next() % 1'000'000;
  l.none = random.below(3) == 0 ? random.below(101) : 0;
  l.hot = random.below(2) == 0 ? random.below(101 - l.none) : 0;
  const int most = random.below(4) == 0 ? 60 : 9;
  l.tokens.clear();
  for (int r = 0; r < ranks; ++r)
    l.tokens.push_back(static_cast<std::size_t>(random.below(3) == 0 ? 0 : random.below(most)));
}

}  // namespace expert_tests
