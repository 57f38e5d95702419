// Figures of spec 4: the T formulas of the all-to-alls with the constants of the studies, balanced and with the text's imbalanced sums, and the
// worked cases of the selection. What is published is the formula; ours is the simulated run.
#include "engine/study/published/published.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace troupe {

namespace {

// Constants of the studies, in µs and bytes a µs. Port: preset flat. Wires and rails: preset ascend_a2.
constexpr double port_alpha = 1, port_rate = 10e3, wire_alpha = 1, wire_rate = 28e3, rail_alpha = 5, rail_rate = 25e3;

/// hccl_imbalanced.toml, in tokens: from a row's rank to a column's.
constexpr std::array<std::array<int, 4>, 4> tokens{{{86, 163, 61, 102}, {18, 36, 13, 22}, {63, 119, 45, 74}, {36, 69, 26, 43}}};
constexpr double token = 8192;

int tokens_of(std::size_t from, std::size_t to) { return tokens[from % 4][to % 4]; }

/// max_i Σ_j n_ij, without what stays.
int most_sent() {
  int most = 0;
  for (std::size_t i = 0; i < 4; ++i) most = std::max(most, tokens_of(i, i + 1) + tokens_of(i, i + 2) + tokens_of(i, i + 3));
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

published_figure formula_figure(std::string id, std::string source, std::string what, std::string file, double formula, std::string set,
                                std::size_t bytes, std::string remark = {}) {
  published_figure f;
  f.id = "spec4." + std::move(id);
  f.source = "spec 4, " + std::move(source);
  f.what = std::move(what);
  f.file = std::move(file);
  f.published = formula;
  f.unit = "us";
  f.ours = [set = std::move(set), bytes, formula](const study_lookup& of) {
    // Counts say the sizes themselves.
    return measured{bytes == 0 ? of.run(set).rows.front().time_us : of.time_us(set, bytes), formula};
  };
  f.remark = std::move(remark);
  return f;
}

// -- Pairwise ---------------------------------------------------------------------------------------------------------

void pairwise_figures(std::vector<published_figure>& all) {
  constexpr double block = 128 << 10, p = 8;
  const double zero_copy = (p - 1) * (port_alpha + block / port_rate);
  all.push_back(formula_figure("pairwise", "Pairwise", "ZCopy, 8 ranks, blocks of 128 KiB", "hccl_pairwise.toml", zero_copy,
                               "hardware.host.copy_rate=unlimited", 1 << 20, "gamma_sync = 0: a ZCopy step needs no handshake here"));
  all.push_back(formula_figure("pairwise_local_copy", "Pairwise", "the same, copies at 100 GB/s", "hccl_pairwise.toml", zero_copy, "", 1 << 20,
                               "the formula leaves the local copy out, which the text puts first"));
  all.push_back(formula_figure("pairwise_bcopy", "Pairwise", "BCopy, the same, gamma_sync = alpha (the Ack)", "hccl_pairwise.toml",
                               zero_copy + (p - 1) * port_alpha, "through_scratch=true", 1 << 20,
                               "besides the Ack every step copies into scratch and out of it, which no term of the formula stands for"));
  all.push_back(formula_figure("pairwise_bcopy_pieces", "Pairwise", "the same, in pieces of a CCL buffer of 64 KiB", "hccl_pairwise.toml",
                               zero_copy + (p - 1) * port_alpha, "through_scratch=true chunk_bytes=64K", 1 << 20,
                               "every piece has an Ack and a latency of its own; the formula counts one of each a peer"));
  all.push_back(formula_figure("pairwise_imbalanced", "Pairwise", "4 ranks, imbalanced", "hccl_imbalanced.toml",
                               3 * port_alpha + sum_of_steps() * token / port_rate, "", 0,
                               "rank 1 receives the longest message of every step, so its port decides; without a handshake the next sender does not wait for "
                               "it, and alpha is paid once"));
}

// -- DirectFullMesh ---------------------------------------------------------------------------------------------------

double full_mesh_formula(double p, double streams, double sent) {
  const double rounds = std::ceil((p - 1) / streams);
  return rounds * (wire_alpha + sent / streams / wire_rate);
}

void full_mesh_figures(std::vector<published_figure>& all) {
  constexpr double block = 1 << 20, p = 9;
  for (const int streams : {8, 4, 2})
    all.push_back(formula_figure("full_mesh_c" + std::to_string(streams), "DirectFullMesh",
                                 "9 cards, blocks of 1 MiB, C = " + std::to_string(streams), "hccl_direct_full_mesh.toml",
                                 full_mesh_formula(p, streams, (p - 1) * block), "streams=" + std::to_string(streams), 9 << 20,
                                 streams == 8 ? "one round: the formula is right"
                                              : "the formula charges max_i sum_j n_ij / C, all that a rank sends, to every round, although a round "
                                                "moves only C blocks; with those it would be ceil((p-1)/C) (alpha + beta n), which is ours"));
  all.push_back(formula_figure("full_mesh_imbalanced", "DirectFullMesh", "4 cards, imbalanced, C = 3", "hccl_imbalanced.toml",
                               full_mesh_formula(4, 3, most_sent() * token),
                               "preset=ascend_a2 ranks=0 layout=1x4 choreography=direct_full_mesh streams=3", 0,
                               "the formula spreads what a rank sends evenly over the streams; its largest block takes one wire alone, and the others wait"));
  all.push_back(formula_figure("full_mesh_pieces", "DirectFullMesh", "9 cards, C = 4, CCL buffer of 1 MB: 128 KiB pieces",
                               "hccl_direct_full_mesh.toml", full_mesh_formula(p, 8, (p - 1) * block) * 2, "streams=4 chunk_bytes=128K", 9 << 20,
                               "published: the formula with C blocks a round. A stream sends a piece when its counterpart of the piece before has come, "
                               "so each of the 8 pieces of a round pays alpha: 14 us more"));
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

void staged_figures(std::vector<published_figure>& all) {
  const std::string why = "the formula leaves out the barrier after each step (7 of 3 alpha_a, 3 of 2 alpha_e: 51 us) and that a step inside sends "
                          "its 4 blocks as messages of their own (21 us); both do not grow with the size";
  for (const std::size_t mib : {std::size_t{10}, std::size_t{320}})
    all.push_back(formula_figure("staged_" + std::to_string(mib) + "m", "Staged", "4x8 cards, " + std::to_string(mib) + " MiB a rank", "hccl_staged.toml",
                                 staged_formula(4, 8, static_cast<double>(mib << 20) / 32), "", mib << 20, mib == 10 ? why : ""));
  all.push_back(formula_figure("staged_imbalanced", "Staged", "2x2 cards, imbalanced", "hccl_imbalanced.toml", staged_imbalanced_formula(),
                               "preset=ascend_a2 ranks=0 layout=2x2 choreography=staged_pairwise", 0,
                               "the formula adds the largest sums of both levels, although they are different servers'; barriers hold only a server "
                               "or the cards of one index, so the server that is done first goes on"));
}

// -- LL-A2A -----------------------------------------------------------------------------------------------------------

void low_latency_figures(std::vector<published_figure>& all) {
  constexpr double slot_us = 16 / port_rate, spin = 0.1;
  for (const std::size_t slots : {std::size_t{64}, std::size_t{1024}})
    all.push_back(formula_figure("ll_" + std::to_string(slots), "LL-A2A", "8 ranks, one epoch, " + std::to_string(slots) + " slots a peer", "ll_a2a.toml",
                                 port_alpha + slot_us * 7 * static_cast<double>(slots) + spin, "", slots * 8 * 8,
                                 slots == 64 ? "n_slots: what a rank stores for all its peers" : ""));
  all.push_back(formula_figure("ll_imbalanced", "LL-A2A", "4 ranks, imbalanced, one epoch", "hccl_imbalanced.toml",
                               port_alpha + slot_us * most_sent() * token / 8, "choreography=one_shot protocol=ll", 0,
                               "n_slots of the rank that stores most; the run takes as long as rank 1's port, where 351 tokens come in, not 326"));
  published_figure lowest;
  lowest.id = "spec4.ll_lowest";
  lowest.source = "spec 4, side by side";
  lowest.what = "LL-A2A over Pairwise (lowest latency), 512 B blocks";
  lowest.file = "ll_a2a.toml";
  lowest.published = 1;
  lowest.unit = "x";
  lowest.says = published_figure::sense::at_most;
  lowest.ours = [](const study_lookup& of) {
    return measured{of.time_us("", 4096) / of.time_us("choreography=pairwise protocol=simple", 4096), {}};
  };
  lowest.remark = "one latency instead of p-1, for twice the bytes";
  all.push_back(std::move(lowest));
}

// -- expert parallelism -----------------------------------------------------------------------------------------------

published_figure communication_share() {
  published_figure f;
  f.id = "spec4.moe_share";
  f.source = "spec 4, capacity";
  f.what = "8 ranks x 512 tokens at 100 GB/s, 0.05 ms of compute";
  f.file = "hccl_pairwise.toml";
  f.published = 86;
  f.unit = "%";
  f.ours = [](const study_lookup& of) {
    const double us = of.time_us("hardware.host.copy_rate=unlimited hardware.link.bandwidth=100GB/s", 4 << 20);
    return measured{100 * us / (us + 50), {}};
  };
  f.remark = "the text divides all ranks' 32 MB by one link's 100 GB/s (0.32 ms); here every rank has a port of that speed for its own 4 MB";
  return f;
}

// -- selection --------------------------------------------------------------------------------------------------------

published_figure selection_figure(std::string id, std::string what, std::string set, std::string choreography, std::string remark = {}) {
  published_figure f;
  f.id = "spec4.select_" + std::move(id);
  f.source = "spec 4, worked cases";
  f.what = std::move(what);
  f.file = "hccl_selection.toml";
  f.published = 1;
  f.ours = [set = std::move(set), choreography = std::move(choreography)](const study_lookup& of) {
    const study_result& r = of.run(set);
    return measured{r.rows.front().choreography == choreography ? 1.0 : 0.0, {}, r.remarks.empty() ? "" : r.remarks.front()};
  };
  f.remark = std::move(remark);
  return f;
}

void selection_figures(std::vector<published_figure>& all) {
  all.push_back(selection_figure("one_server", "1 x 8, 100 MB, buffer 256 MB: DirectFullMesh",
                                 "layout=1x8 sizes=100M hccl.buffer=256M", "direct_full_mesh", "1 means: it takes the one named"));
  all.push_back(selection_figure("four_servers", "4 x 8, 10 MB: Staged", "layout=4x8 sizes=10M", "staged_pairwise",
                                 "pipeline condition 2 as printed (CCL buffer >= 80 MB, nothing else) would take the pipeline with any such buffer; "
                                 "it is read with the size classes, which give the pipeline to more than 80 MB"));
  all.push_back(selection_figure("super_pod", "super-pod of 256, 500 MB, 512 MB: TwoLevelPipeline",
                                 "layout=32x8 sizes=500M hccl.buffer=512M hccl.super_pod=true hccl.device=910_93", "hierarchical_pipeline"));
  all.push_back(selection_figure("one_rank", "1 rank: Single", "layout=1x1 sizes=1M", "pairwise", "pairwise of one rank is its local copy"));
}

}  // namespace

std::vector<published_figure> spec4_figures() {
  std::vector<published_figure> all;
  pairwise_figures(all);
  full_mesh_figures(all);
  staged_figures(all);
  low_latency_figures(all);
  all.push_back(communication_share());
  selection_figures(all);
  return all;
}

}  // namespace troupe
