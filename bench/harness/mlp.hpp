// SPDX-License-Identifier: Apache-2.0
#pragma once
// The forward pass of an MLP block that is divided among ranks (tensor and sequence parallel: layer_norm, all_gather, times W1, ReLU, times W2,
// reduce_scatter, residual), by the same operators for Troupe and for MPI. Three times, in turns:
//   compute   the operators alone, on whole tensors, on all ranks at once
//   unfused   the same, with the collectives called between them
//   fused     as a flow, tile by tile (Troupe only)
//   by hand   the same tiles in a loop of threads that read each other's tiles where they lie, and wait for a flag each: without copies of gathered
//             tiles, operations, failures or another order than the loop's. What fusing tiles can give on this machine (Troupe's threads only)
// communication = unfused − compute; hidden = (unfused − fused) / (unfused − compute): how much of it the fusion hides or removes.
// A repetition begins with a barrier and lasts as long as its slowest rank.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "engine/flow/operators/gemm.hpp"
#include "engine/flow/operators/layer_norm.hpp"

namespace bench::mlp {

/// "rows=256,width=512,share=30,tiles=8", or "hidden=64" in place of the share, which this program then does not look for.
struct point {
  std::size_t rows = 256;   ///< of each rank
  std::size_t width = 512;  ///< of a row
  std::size_t hidden = 0;   ///< units of each rank; 0: as many as make the share
  int share = 30;           ///< of the communication in the unfused time, in percent
  int tiles = 8;            ///< of each rank's rows
};

/// Throws std::invalid_argument.
inline point parse(std::string_view text) {
  point p;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    const std::string_view key = word.substr(0, word.find('='));
    const long value = key.size() < word.size() ? std::atol(std::string{word.substr(key.size() + 1)}.c_str()) : 0;
    if (value < 1) throw std::invalid_argument("a point is KEY=NUMBER,…, not " + std::string{text});
    if (key == "rows") p.rows = static_cast<std::size_t>(value);
    else if (key == "width") p.width = static_cast<std::size_t>(value);
    else if (key == "hidden") p.hidden = static_cast<std::size_t>(value);
    else if (key == "share") p.share = static_cast<int>(value);
    else if (key == "tiles") p.tiles = static_cast<int>(value);
    else throw std::invalid_argument("a point has rows, width, hidden, share and tiles, not " + std::string{key});
    at = end + 1;
  }
  if (p.rows % static_cast<std::size_t>(p.tiles) != 0 || p.share > 90)
    throw std::invalid_argument("rows must be a multiple of tiles, and a share at most 90, in " + std::string{text});
  return p;
}

struct relu {
  void operator()(troupe::tile<const float> in, troupe::tile<float> out) const {
    const auto from = in.flat();
    const auto to = out.flat();
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[i] > 0 ? from[i] : 0;
  }
};

/// What one rank has of the block. Collectives' buffers are the member's.
class block {
public:
  block(const point& p, std::size_t ranks, std::size_t rank, std::span<float> normal, std::span<float> whole,
        std::span<float> partial, std::span<float> sums)
      : rows_(p.rows),
        all_(ranks * p.rows),
        width_(p.width),
        normal_(normal),
        whole_(whole),
        partial_(partial),
        sums_(sums) {
    x.resize(rows_ * width_);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = value(i + rank * 977);
    gain.assign(width_, 1.0F), bias.assign(width_, 0.5F);
    out.resize(x.size());
    set_hidden(p.hidden, rank);
  }
  /// Weights are small, so that sums stay near one.
  void set_hidden(std::size_t hidden, std::size_t rank) {
    hidden_ = hidden;
    w1.resize(width_ * hidden), w2.resize(hidden * width_);
    const float scale = 1.0F / std::sqrt(static_cast<float>(width_));
    for (std::size_t i = 0; i < w1.size(); ++i) w1[i] = scale * value(i + rank * 131 + 1);
    for (std::size_t i = 0; i < w2.size(); ++i) w2[i] = scale * value(i + rank * 139 + 2);
    before_.resize(all_ * hidden), active_.resize(all_ * hidden);
  }

  void normalise() {
    norm()({troupe::tensor<const float>{x.data(), {rows_, width_}}, 0},
           {troupe::tensor<float>{normal_.data(), {rows_, width_}}, 0});
  }
  void work() {
    multiply(troupe::tensor<const float>{whole_.data(), {all_, width_}}, first(), {before_.data(), {all_, hidden_}});
    relu{}({troupe::tensor<const float>{before_.data(), {all_, hidden_}}, 0},
           {troupe::tensor<float>{active_.data(), {all_, hidden_}}, 0});
    multiply(troupe::tensor<const float>{active_.data(), {all_, hidden_}}, second(), {partial_.data(), {all_, width_}});
  }
  void finish() {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = x[i] + sums_[i];
  }

  troupe::layer_norm<float> norm() const { return {gain, bias}; }
  troupe::tensor<const float> first() const { return {w1.data(), {width_, hidden_}}; }
  troupe::tensor<const float> second() const { return {w2.data(), {hidden_, width_}}; }
  std::size_t hidden() const { return hidden_; }

  std::vector<float> x, out, gain, bias, w1, w2;

private:
  static float value(std::size_t i) { return static_cast<float>(i * 2654435761U % 1000) / 500.0F - 1.0F; }

  std::size_t rows_, all_, width_, hidden_ = 0;
  std::span<float> normal_, whole_, partial_, sums_;
  std::vector<float> before_, active_;
};

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// All ranks call it alike. Member: mine() (the block), all_gather(), reduce_scatter(), barrier(), largest(double), rank(), size(), and of Troupe
/// fused(), which runs the flow, and may_by_hand() and by_hand(). @param seconds for everything @return one JSON object, the same on every rank
template <class Member>
std::string measure(Member& m, point p, double seconds) {
  block& b = m.mine();
  const auto timed = [&](auto&& what) {
    m.barrier();
    const double from = now();
    what();
    return m.largest(now() - from);
  };
  const auto compute = [&] { b.normalise(), b.work(), b.finish(); };
  const auto communicate = [&] { m.all_gather(), m.reduce_scatter(); };
  const auto unfused = [&] { b.normalise(), m.all_gather(), b.work(), m.reduce_scatter(), b.finish(); };
  const auto typical = [&](auto&& what) {
    std::vector<double> times;
    for (int i = 0; i < 15; ++i) times.push_back(timed(what));
    return median(times);
  };
  const auto with_hidden = [&](std::size_t hidden) {
    p.hidden = hidden;
    b.set_hidden(hidden, static_cast<std::size_t>(m.rank()));
  };
  if (p.hidden == 0) {
    // Computing takes about a + b·hidden.
    with_hidden(16);
    const double communication = typical(communicate), few = typical(compute);
    with_hidden(144);
    const double unit = std::max((typical(compute) - few) / 128, 1e-12);
    const double wanted = communication * (100 - p.share) / p.share;
    const double more = std::max(0.0, (wanted - few) / unit / 16);
    with_hidden(16 + 16 * static_cast<std::size_t>(std::min(more + 0.5, 512.0)));
  }
  m.prepare(p);
  std::vector<double> alone, apart, together, by_hand;
  double wrong = 0;
  for (int i = 0; i < 3; ++i) timed(unfused);
  if constexpr (requires { m.fused(); }) {
    const std::vector<float> right = b.out;
    const auto check = [&](auto&& what) {
      std::fill(b.out.begin(), b.out.end(), 0.0F);
      for (int i = 0; i < 3; ++i) timed(what);
      for (std::size_t i = 0; i < right.size(); ++i) wrong += !(std::abs(b.out[i] - right[i]) <= 1e-4F);
    };
    check([&] { m.fused(); });
    if (m.may_by_hand()) check([&] { m.by_hand(); });
    wrong = m.largest(wrong);
  }
  double total = 0;
  while (alone.size() < 9 || (total < seconds && alone.size() < 2000)) {
    alone.push_back(timed(compute));
    apart.push_back(timed(unfused));
    total += alone.back() + apart.back();
    if constexpr (requires { m.fused(); }) {
      together.push_back(timed([&] { m.fused(); }));
      total += together.back();
      if (m.may_by_hand()) {
        by_hand.push_back(timed([&] { m.by_hand(); }));
        total += by_hand.back();
      }
    }
  }
  char text[512];
  const double c = median(alone), u = median(apart);
  int length = std::snprintf(
      text, sizeof text,
      "{\"ranks\":%d,\"rows\":%zu,\"width\":%zu,\"hidden\":%zu,\"tiles\":%d,\"compute_us\":%.6g,\"unfused_us\":%.6g,"
      "\"share\":%.4g,\"wrong\":%.0f",
      m.size(), p.rows, p.width, p.hidden, p.tiles, c * 1e6, u * 1e6, (u - c) / u, wrong);
  if (!together.empty())
    length += std::snprintf(text + length, sizeof text - static_cast<std::size_t>(length),
                            ",\"fused_us\":%.6g,\"hidden_share\":%.4g", median(together) * 1e6,
                            (u - median(together)) / (u - c));
  if (!by_hand.empty())
    length += std::snprintf(text + length, sizeof text - static_cast<std::size_t>(length), ",\"by_hand_us\":%.6g",
                            median(by_hand) * 1e6);
  return std::string(text, static_cast<std::size_t>(length)) + "}";
}

}  // namespace bench::mlp
