// SPDX-License-Identifier: Apache-2.0
#pragma once
// A layer of experts, without the experts: tokens go to the ranks of their two experts, an expert a rank, and come back as weighted sums; the same loop
// and the same routing for Troupe and for MPI libraries. Every call has another routing, drawn before. A repetition begins with a barrier, and lasts
// as long as its slowest rank.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace bench::experts {

inline constexpr int top_k = 2;

struct point {
  bool skewed = false;     ///< experts are drawn as 412 : 89 : 301 : 174 (spec 4), again for the next four
  std::size_t tokens = 0;  ///< of a rank
  std::size_t hidden = 0;  ///< f32
};

/// "skewed:512:4096". Throws std::invalid_argument.
inline point parse(std::string_view text) {
  const std::string all{text};
  char kind[16] = {};
  point p;
  if (std::sscanf(all.c_str(), "%15[a-z]:%zu:%zu", kind, &p.tokens, &p.hidden) != 3 || p.hidden < 1 ||
      (std::string_view{kind} != "uniform" && std::string_view{kind} != "skewed"))
    throw std::invalid_argument("a point is uniform or skewed, and after colons tokens and elements of a token, not " +
                                all);
  p.skewed = kind[0] == 's';
  return p;
}

struct routing {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

class batches {
public:
  batches(const point& p, int ranks, int rank) : tokens(p.tokens * p.hidden), point_(p) {
    std::uint64_t state = 7919 * static_cast<std::uint64_t>(rank) + p.tokens;
    const auto next = [&] {
      std::uint64_t z = state += 0x9e3779b97f4a7c15U;  // splitmix64 (Steele, Lea, Flood 2014)
      z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
      z = (z ^ z >> 27) * 0x94d049bb133111ebU;
      return z ^ z >> 31;
    };
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<float>(next() % 1024) / 512.0F - 1.0F;
    constexpr std::uint64_t skew[] = {412, 89, 301, 174};
    std::vector<std::uint64_t> share;
    std::uint64_t all = 0;
    for (int e = 0; e < ranks; ++e) share.push_back(all += p.skewed ? skew[e % 4] : 1);
    for (routing& r : routings) {
      for (std::size_t t = 0; t < p.tokens; ++t)
        for (int j = 0; j < top_k; ++j) {
          std::int32_t e = -1;
          do e = static_cast<std::int32_t>(std::upper_bound(share.begin(), share.end(), next() % all) - share.begin());
          while (j > 0 && ranks > 1 && e == r.ids.back());
          r.ids.push_back(e);
          r.weights.push_back(j == 0 ? 0.75F : 0.25F);
        }
    }
  }
  /// An expert does nothing here: sums are the tokens again, but for rounding.
  double wrong(const std::vector<float>& output) const {
    double count = 0;
    for (std::size_t i = 0; i < output.size(); ++i) count += !(std::abs(output[i] - tokens[i]) < 1e-6F);
    return count;
  }
  std::vector<float> tokens;
  routing routings[8];

private:
  point point_;
};

/// All ranks call it alike. Member: call(routing), barrier(), largest(double), wrong() after a call.
/// @return one JSON object, the same on every rank
template <class Member>
std::string measure(Member& m, const batches& of, const point& p, double seconds) {
  using clock = std::chrono::steady_clock;
  std::vector<double> times;
  double total = 0;
  for (std::size_t i = 0; i < 8; ++i) m.call(of.routings[i % 8]);
  const double wrong = m.largest(m.wrong());
  while (times.size() < 7 || (total < seconds && times.size() < 1000)) {
    m.barrier();
    const auto from = clock::now();
    m.call(of.routings[times.size() % 8]);
    times.push_back(m.largest(std::chrono::duration<double>(clock::now() - from).count()));
    total += times.back();  // alike on every rank
  }
  std::sort(times.begin(), times.end());
  char text[256];
  std::snprintf(text, sizeof text,
                "{\"collective\":\"%s\",\"tokens\":%zu,\"hidden\":%zu,\"bytes\":%zu,\"us\":%.6g,\"wrong\":%.0f}",
                p.skewed ? "skewed" : "uniform", p.tokens, p.hidden, p.tokens * p.hidden * sizeof(float),
                times[times.size() / 2] * 1e6, wrong);
  return text;
}

}  // namespace bench::experts
