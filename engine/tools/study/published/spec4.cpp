// SPDX-License-Identifier: Apache-2.0
// Figures of spec 4: the T formulas of the all-to-alls with the constants of the studies, balanced and with the text's imbalanced
// sums, and the worked cases of the selection. The formulas are the source's, their constants the
// studies': such rows are of the kind `assumed`. Ours is the simulated run.
#include "engine/tools/study/published/published.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

// Constants of the studies, in µs and bytes a µs. Port: preset flat. Wires and rails: preset ascend_a2.
constexpr double port_alpha = 1, port_rate = 10e3, wire_alpha = 1, wire_rate = 28e3, rail_alpha = 5, rail_rate = 25e3;

/// hccl_imbalanced.toml, in tokens: from a row's rank to a column's.
constexpr int tokens[4][4] = {{86, 163, 61, 102}, {18, 36, 13, 22}, {63, 119, 45, 74}, {36, 69, 26, 43}};
constexpr double token = 8192;

int tokens_of(std::size_t from, std::size_t to) { return tokens[from % 4][to % 4]; }

/// max_i Σ_j n_ij, without what stays.
int most_sent() {
  int most = 0;
  for (std::size_t i = 0; i < 4; ++i)
    most = std::max(most, tokens_of(i, i + 1) + tokens_of(i, i + 2) + tokens_of(i, i + 3));
  return most;
}

/// Σ_k max_i n_{i,i+k}
int sum_of_steps() {
  int sum = 0;
  for (std::size_t k = 1; k < 4; ++k) {
    int most = 0;
    for (std::size_t i = 0; i < 4; ++i) most = std::max(most, tokens_of(i, i + k));
    sum += most;
  }
  return sum;
}

/// A formula of the text, beside one run.
struct formula_case {
  std::string id, source, what, file;
  double formula;     ///< µs
  std::string set;    ///< of the run
  std::size_t bytes;  ///< 0: the file's counts say the sizes
  std::string remark{};
  published_kind kind = published_kind::assumed;
};

published_figure figure_of(const formula_case& c) {
  published_figure f;
  f.id = "spec4." + c.id;
  f.source = "spec 4, " + c.source;
  f.what = c.what;
  f.file = c.file;
  f.published = c.formula;
  f.kind = c.kind;
  f.unit = "us";
  f.ours = [c](const study_lookup& of) {
    return measured{c.bytes == 0 ? of.run(c.set).rows.front().time_us : of.time_us(c.set, c.bytes), c.formula};
  };
  f.remark = c.remark;
  return f;
}

constexpr const char* imbalanced = "hccl_imbalanced.toml";

// -- Pairwise ---------------------------------------------------------------------------------------------------------

std::vector<formula_case> pairwise_cases() {
  constexpr double block = 128 << 10, p = 8;
  constexpr std::size_t bytes = 1 << 20;
  const double zero_copy = (p - 1) * (port_alpha + block / port_rate), with_ack = zero_copy + (p - 1) * port_alpha;
  const char* file = "hccl_pairwise.toml";
  return {
      {"pairwise", "Pairwise", "ZCopy, 8 ranks, blocks of 128 KiB", file, zero_copy,
       "hardware.host.copy_rate=unlimited", bytes, "gamma_sync = 0: a ZCopy step needs no handshake here"},
      {"pairwise_local_copy", "Pairwise", "the same, copies at 100 GB/s", file, zero_copy, "", bytes,
       "the formula leaves the local copy out, which the text puts first"},
      {"pairwise_bcopy", "Pairwise", "BCopy, the same, gamma_sync = alpha (the Ack)", file, with_ack,
       "through_scratch=true", bytes,
       "the copies before the first step and after the last one, which no term of the formula stands for; the others "
       "are made "
       "while a step is on its way"},
      {"pairwise_bcopy_pieces", "Pairwise", "the same, in pieces of a CCL buffer of 64 KiB", file, with_ack,
       "through_scratch=true chunk_bytes=64K", bytes,
       "every piece has an Ack and a latency of its own; the formula counts one of each a peer"},
      {"pairwise_imbalanced", "Pairwise", "4 ranks, imbalanced", imbalanced,
       3 * port_alpha + sum_of_steps() * token / port_rate, "", 0,
       "rank 1 receives the longest message of every step, so its port decides; without a handshake the next sender "
       "does not wait "
       "for it, and alpha is paid once"},
  };
}

// -- DirectFullMesh ---------------------------------------------------------------------------------------------------

/// @param moved what a round moves, by the text all that a rank sends
double full_mesh_formula(int p, int streams, double moved) {
  const int rounds = (p - 1 + streams - 1) / streams;
  return rounds * (wire_alpha + moved / streams / wire_rate);
}

std::vector<formula_case> full_mesh_cases() {
  constexpr double block = 1 << 20;
  constexpr int p = 9;
  constexpr std::size_t bytes = p << 20;
  const char* file = "hccl_direct_full_mesh.toml";
  const std::string why =
      "the formula charges max_i sum_j n_ij / C, all that a rank sends, to every round, although a round moves "
      "only C blocks; with those it would be ceil((p-1)/C) (alpha + beta n), which is ours";
  const auto rounds = [&](int streams, const std::string& remark) {
    const std::string c = std::to_string(streams);
    return formula_case{"full_mesh_c" + c,
                        "DirectFullMesh",
                        "9 cards, blocks of 1 MiB, C = " + c,
                        file,
                        full_mesh_formula(p, streams, (p - 1) * block),
                        "streams=" + c,
                        bytes,
                        remark};
  };
  const auto corrected = [&](int streams) {
    formula_case c = rounds(streams, "the formula corrected: with what a round moves");
    c.id += "_corrected";
    c.what = "the same by ceil((p-1)/C) (alpha + beta n)";
    c.kind = published_kind::derived;
    c.formula = full_mesh_formula(p, streams, streams * block);
    return c;
  };
  return {
      rounds(8, "one round: the formula is right"),
      rounds(4, why),
      corrected(4),
      rounds(2, why),
      corrected(2),
      {"full_mesh_pieces", "DirectFullMesh", "9 cards, C = 4, CCL buffer of 1 MB: 128 KiB pieces", file,
       full_mesh_formula(p, 4, 4 * block), "streams=4 chunk_bytes=128K", bytes,
       "published: the formula with C blocks a round. A buffer that holds a piece goes through all rounds once a "
       "piece, so "
       "each of 8 pieces pays alpha in each of 2 rounds: 14 us more",
       published_kind::derived},
      {"full_mesh_imbalanced", "DirectFullMesh", "4 cards, imbalanced, C = 3", imbalanced,
       full_mesh_formula(4, 3, most_sent() * token),
       "preset=ascend_a2 ranks=0 layout=1x4 choreography=direct_full_mesh streams=3", 0,
       "the formula spreads what a rank sends evenly over the streams; its largest block takes one wire alone, and the "
       "others "
       "wait"},
  };
}

// -- Staged -----------------------------------------------------------------------------------------------------------

/// T_intra + T_inter of n servers × m cards, blocks of one size.
double staged_formula(double servers, double cards, double block) {
  const double inside = (cards - 1) * (wire_alpha + servers * block / wire_rate);
  return inside + (servers - 1) * (rail_alpha + cards * block / rail_rate);
}

/// Two servers of two cards: a step on each level. Inside, i passes on what it has for both cards of its neighbour's index.
double staged_imbalanced_formula() {
  int inside = 0, between = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    const std::size_t beside = i ^ 1U, across = i ^ 2U;
    inside = std::max(inside, tokens_of(i, beside) + tokens_of(i, beside ^ 2U));
    between = std::max(between, tokens_of(i, across) + tokens_of(beside, across));
  }
  return wire_alpha + inside * token / wire_rate + rail_alpha + between * token / rail_rate;
}

std::vector<formula_case> staged_cases() {
  const auto balanced = [](std::size_t mib) {
    const std::string size = std::to_string(mib) + " MiB";
    return formula_case{
        "staged_" + std::to_string(mib) + "m",
        "Staged",
        "4x8 cards, " + size + " a rank",
        "hccl_staged.toml",
        staged_formula(4, 8, static_cast<double>(mib << 20) / 32),
        "",
        mib << 20,
        "the formula leaves out the barrier after each step (7 of 3 alpha_a, 3 of 2 alpha_e: 51 us), and that a "
        "step inside sends its 4 blocks as messages of their own (21 us); neither grows with the size"};
  };
  return {
      balanced(10),
      balanced(320),
      {"staged_imbalanced", "Staged", "2x2 cards, imbalanced", imbalanced, staged_imbalanced_formula(),
       "preset=ascend_a2 ranks=0 layout=2x2 choreography=staged_pairwise", 0,
       "the formula adds the largest sums of both levels, although they are different servers'; barriers hold only a "
       "server or the "
       "cards of one index, so the server that is done first goes on"},
  };
}

// -- LL-A2A -----------------------------------------------------------------------------------------------------------

std::vector<formula_case> low_latency_cases() {
  constexpr double slot_us = 16 / port_rate, spin = 0.1;
  const auto epoch = [](std::size_t slots) {
    const std::string n = std::to_string(slots);
    return formula_case{"ll_" + n,
                        "LL-A2A",
                        "8 ranks, one epoch, " + n + " slots a peer",
                        "ll_a2a.toml",
                        port_alpha + slot_us * 7 * static_cast<double>(slots) + spin,
                        "",
                        slots * 8 * 8,
                        "n_slots: what a rank stores for all its peers"};
  };
  return {
      epoch(64),
      epoch(1024),
      {"ll_imbalanced", "LL-A2A", "4 ranks, imbalanced, one epoch", imbalanced,
       port_alpha + slot_us * most_sent() * token / 8, "choreography=one_shot protocol=ll", 0,
       "n_slots of the rank that stores most; the run takes as long as rank 1's port, where 351 tokens come in, not "
       "326"},
  };
}

published_figure lowest_latency() {
  published_figure f;
  f.id = "spec4.ll_lowest";
  f.source = "spec 4, side by side";
  f.what = "LL-A2A over Pairwise (lowest latency), 512 B blocks";
  f.file = "ll_a2a.toml";
  f.published = 1;
  f.unit = "x";
  f.says = published_figure::sense::at_most;
  f.ours = [](const study_lookup& of) {
    return measured{of.time_us("", 4096) / of.time_us("choreography=pairwise protocol=simple", 4096), {}};
  };
  f.remark = "one latency instead of p-1, for twice the bytes";
  return f;
}

// -- expert parallelism -----------------------------------------------------------------------------------------------

/// @param exchanges 1: the all-to-all that the text counts; 2: dispatch and combine, of which a layer has both
published_figure communication_share(int exchanges) {
  published_figure f;
  f.id = exchanges == 1 ? "spec4.moe_share" : "spec4.moe_share_both";
  f.source = "spec 4, capacity";
  f.what = exchanges == 1 ? "8 ranks x 512 tokens at 100 GB/s, 0.05 ms of compute" : "the same, dispatch and combine";
  f.file = "hccl_pairwise.toml";
  f.published = 86;
  f.unit = "%";
  f.ours = [exchanges](const study_lookup& of) {
    const double us =
        exchanges * of.time_us("hardware.host.copy_rate=unlimited hardware.link.bandwidth=100GB/s", 4 << 20);
    return measured{100 * us / (us + 50), {}};
  };
  f.remark = "the text divides all ranks' 32 MB by one link's 100 GB/s (0.32 ms); here every rank has a port of that "
             "speed for its "
             "own 4 MB";
  if (exchanges == 2) f.remark = "the text counts one all-to-all, but a layer has two of them";
  return f;
}

// -- selection --------------------------------------------------------------------------------------------------------

published_figure selection_figure(std::string id, std::string what, std::string set, std::string choreography,
                                  std::string remark = {}) {
  published_figure f;
  f.id = "spec4.select_" + std::move(id);
  f.source = "spec 4, worked cases";
  f.what = std::move(what);
  f.file = "hccl_selection.toml";
  f.published = 1;
  f.ours = [set = std::move(set), choreography = std::move(choreography)](const study_lookup& of) {
    const study_result& r = of.run(set);
    return measured{
        r.rows.front().choreography == choreography ? 1.0 : 0.0, {}, r.remarks.empty() ? "" : r.remarks.front()};
  };
  f.remark = std::move(remark);
  return f;
}

void selection_figures(std::vector<published_figure>& all) {
  all.push_back(selection_figure("one_server", "1 x 8, 100 MB, buffer 256 MB: DirectFullMesh",
                                 "layout=1x8 sizes=100M hccl.buffer=256M", "direct_full_mesh",
                                 "1 means: it takes the one named"));
  all.push_back(selection_figure(
      "four_servers", "4 x 8, 10 MB: Staged", "layout=4x8 sizes=10M", "staged_pairwise",
      "pipeline condition 2 as printed (CCL buffer >= 80 MB, nothing else) would take the pipeline with "
      "any such buffer; it is read with the size classes, which give the pipeline to more than 80 MB"));
  all.push_back(selection_figure("super_pod", "super-pod of 256, 500 MB, 512 MB: TwoLevelPipeline",
                                 "layout=32x8 sizes=500M hccl.buffer=512M hccl.super_pod=true hccl.device=910_93",
                                 "hierarchical_pipeline"));
  all.push_back(selection_figure("one_rank", "1 rank: Single", "layout=1x1 sizes=1M", "pairwise",
                                 "pairwise of one rank is its local copy"));
}

}  // namespace

std::vector<published_figure> spec4_figures() {
  std::vector<published_figure> all;
  for (const auto& cases : {pairwise_cases(), full_mesh_cases(), staged_cases(), low_latency_cases()})
    for (const formula_case& c : cases) all.push_back(figure_of(c));
  all.push_back(lowest_latency());
  for (const int exchanges : {1, 2}) all.push_back(communication_share(exchanges));
  selection_figures(all);
  for (published_figure& f : side_by_side_figures()) all.push_back(std::move(f));
  return all;
}

}  // namespace troupe
