// SPDX-License-Identifier: Apache-2.0
// Figures of spec 2: HCCL's fine-grained hierarchical pipeline. The source's two formulas are pictures; spec 2 derives them
// from the text (s = bytes of one rank's block, n servers, bandwidth only):
//   plain (n−1)·s/bw_e + n·s/bw_a, pipelined (n−1)·s/bw_e + s/bw_a, so the gain is (2n−1)/n where bw_a = bw_e.
#include "engine/tools/study/published/published.hpp"

namespace troupe {

namespace {

constexpr std::size_t block = 1 << 20;
constexpr const char* bandwidth_only = "hccl_pipeline.toml";

struct cluster {
  int servers, cards;
  int ratio = 1;  ///< bw_a / bw_e

  std::string layout() const { return std::to_string(servers) + "x" + std::to_string(cards); }
  std::size_t bytes(std::size_t of_a_rank) const { return of_a_rank * static_cast<std::size_t>(servers * cards); }
  std::string set() const {
    return "layout=" + layout() + " hardware.mesh.bandwidth=" + std::to_string(25 * ratio) + "GB/s";
  }
  double gain() const {
    const double n = servers, r = ratio;
    return ((n - 1) * r + n) / ((n - 1) * r + 1);
  }
};

/// Plain over pipelined.
double gain_of(const study_lookup& of, const cluster& on, const std::string& more = {}) {
  const std::string set = on.set() + " " + more + " choreography=";
  return of.time_us(set + "hierarchical", on.bytes(block)) / of.time_us(set + "hierarchical_pipeline", on.bytes(block));
}

published_figure gain_figure(const cluster& on, const std::string& remark = {}) {
  published_figure f;
  f.id = "spec2.gain_" + on.layout() + "_ratio" + std::to_string(on.ratio);
  f.source = "spec 2, gain";
  const std::string times = on.ratio == 1 ? "" : std::to_string(on.ratio) + " ";
  f.what = "gain of all-gather, " + on.layout() + " cards, bw_a = " + times + "bw_e";
  f.file = bandwidth_only;
  f.published = on.gain();
  f.unit = "x";
  f.ours = [on](const study_lookup& of) { return measured{gain_of(of, on), on.gain()}; };
  f.remark = remark;
  f.kind = published_kind::derived;
  return f;
}

published_figure upper_limit() {
  published_figure f = gain_figure({32, 16});
  f.id = "spec2.limit";
  f.what = "at most nearly 2: all-gather, 32x16 cards, bw_a = bw_e";
  f.published = 2;
  f.kind = published_kind::printed;
  f.says = published_figure::sense::at_most;
  f.remark = "512 ranks; the number of cards does not matter, as every card has a wire to each of the others";
  return f;
}

published_figure mirrored() {
  const cluster on{8, 8};
  published_figure f = gain_figure(on);
  f.id = "spec2.reduce_scatter";
  f.what = "gain of reduce-scatter, 8x8 cards, bw_a = bw_e";
  f.ours = [on](const study_lookup& of) { return measured{gain_of(of, on, "collective=reduce_scatter"), on.gain()}; };
  f.remark = "the mirror: blocks meet inside the server first; adding them up takes no time in this study";
  return f;
}

/// A card sends m blocks a step between servers, but each of its wires carries what it did for all_gather.
published_figure exchanged() {
  const cluster on{8, 8};
  published_figure f = gain_figure(on);
  f.id = "spec2.all_to_all";
  f.what = "gain of all-to-all, 8x8 cards, bw_a = bw_e";
  f.published = 2;
  f.says = published_figure::sense::at_most;
  f.ours = [on](const study_lookup& of) {
    const double between =
        (on.servers - 1) * on.cards;  // blocks of one pair of ranks, one after the other through a rail
    const double formula = (between + on.servers) / (between + 1);
    return measured{gain_of(of, on, "collective=all_to_all"), formula};
  };
  f.remark = "the text applies the pipeline to all-to-all without a figure; here m times as much goes between servers "
             "as over a "
             "wire inside, so there is little to hide (formula: derived likewise)";
  return f;
}

/// With the preset's own constants: latencies are common to both.
published_figure with_latencies(std::size_t of_a_rank, const char* said) {
  published_figure f;
  f.id = std::string{"spec2.latency_"} + said;
  f.source = "spec 2, gain";
  f.what = std::string{"gain of all-gather, 4x8, preset's constants, "} + said;
  f.file = "hccl_pipeline_latency.toml";
  f.kind = published_kind::assumed;
  constexpr double n = 4, bw_a = 28e3, bw_e = 25e3, alpha_a = 1,
                   alpha_e = 5;  // bytes a µs, µs: topology/presets/ascend.cpp
  f.published = ((n - 1) / bw_e + n / bw_a) / ((n - 1) / bw_e + 1 / bw_a);
  f.unit = "x";
  f.ours = [of_a_rank](const study_lookup& of) {
    const std::size_t bytes = cluster{4, 8}.bytes(of_a_rank);
    const auto s = static_cast<double>(of_a_rank);
    const double common = (n - 1) * (alpha_e + s / bw_e) + alpha_a;
    return measured{of.time_us("choreography=hierarchical", bytes) /
                        of.time_us("choreography=hierarchical_pipeline", bytes),
                    (common + n * s / bw_a) / (common + s / bw_a)};
  };
  f.remark = "published: bandwidth only; formula: the same with (n-1) alpha_e + alpha_a in both, which makes the gain "
             "of small "
             "blocks small";
  return f;
}

}  // namespace

std::vector<published_figure> spec2_figures() {
  std::vector<published_figure> all;
  for (const int servers : {2, 4, 8, 16, 32}) all.push_back(gain_figure({servers, 8}));
  for (const int cards : {2, 16}) all.push_back(gain_figure({4, cards}));
  for (const int ratio : {2, 5, 10})
    all.push_back(gain_figure({8, 8, ratio},
                              ratio == 10 ? "wires that are much faster than the rails leave little to hide" : ""));
  all.push_back(upper_limit());
  all.push_back(mirrored());
  all.push_back(exchanged());
  all.push_back(with_latencies(4 << 10, "4 KiB"));
  all.push_back(with_latencies(1 << 20, "1 MiB"));
  all.push_back(with_latencies(16 << 20, "16 MiB"));
  return all;
}

}  // namespace troupe
