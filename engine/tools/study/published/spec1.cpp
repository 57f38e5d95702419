// SPDX-License-Identifier: Apache-2.0
// Figures of spec 1 (SW-IntraCC): one card. Its constants are those of the preset sunway_card, the same for every figure; sizes in
// "MB" of the
// models are decimal as in the source, "KB" of figures and tables are 1024 bytes.
#include "engine/tools/study/published/published.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

namespace troupe {

namespace {

using figure = published_figure;

constexpr std::size_t kib = 1024, megabyte = 1'000'000;
const std::string ring = "choreography=ring channels=1", csc = "choreography=csc channels=32";
const std::string reduces = " collective=reduce_scatter";

/// The source's own constants, for the formulas that are shown beside: microseconds, and bytes per microsecond.
constexpr double launch = 25, sync = 15, other = 5, bus = 100e3;

double ring_formula(double v) { return 3 * (launch + sync + v / 4 / bus + other); }
double csc_formula(double v) { return launch + sync + 3 * (v / 4 / bus + other); }

// -- flows: operators and CSC apart, and fused ----------------------------------------------------------------------------

/// What table 3, or 4, is about, with `set` besides, in microseconds.
struct flow_times {
  double apart = 0, fused = 0;
};
flow_times flows_of(const study_lookup& of, const std::string& table, std::size_t bytes, const std::string& set = {}) {
  return {of.in("spec1_table" + table + "_apart.toml").time_us(set, bytes),
          of.in("spec1_table" + table + "_fused.toml").time_us(set, bytes)};
}

/// (9), (10) and (11) with the bandwidths of the preset, bytes per microsecond. `v` is a core group's share.
constexpr double local = 200e3, global = 100e3;
double apart_formula(double v) { return v / local + v / global + 3 * v / global + 4 * v / local + 3 * launch; }
double fused_formula(double v) { return v / global + 3 * v / global + v / local + 2 * launch; }
double share_formula() { return 100 * (4 / local) / (1 / local + 1 / global + 3 / global + 4 / local); }

/// At 8 MB of gathered data, for which the source evaluates (11).
void add_fusion_models(std::vector<figure>& all) {
  constexpr std::size_t v = 8 * megabyte;
  all.push_back({.id = "spec1.model9",
                 .source = "spec 1, model (9)",
                 .what = "LayerNorm, CSC-AG, GEMM apart, 8 MB",
                 .file = "spec1_table3_apart.toml",
                 .published = apart_formula(2e6),
                 .unit = "us",
                 .ours = [](const study_lookup& of) -> measured {
                   return {of.time_us("", v), apart_formula(2e6)};
                 },
                 .remark = "as we read it, (9) counts no sync (15 us), no t_OTHERS, and of CSC-AG neither the store of "
                           "what it gathers nor "
                           "LayerNorm's; it adds up what ours lets overlap where it passes other elements",
                 .kind = published_kind::assumed});
  all.push_back({.id = "spec1.model10",
                 .source = "spec 1, model (10)",
                 .what = "LayerNorm and GEMM fused with CSC-AG, 8 MB",
                 .file = "spec1_table3_fused.toml",
                 .published = fused_formula(2e6),
                 .unit = "us",
                 .ours = [](const study_lookup& of) -> measured {
                   return {of.time_us("", v), fused_formula(2e6)};
                 },
                 .remark =
                     "(10) counts no sync and no write-back to L1, which goes on in the background but passes the "
                     "same DMA engine",
                 .kind = published_kind::assumed});
  all.push_back({.id = "spec1.model11",
                 .source = "spec 1, model (11)",
                 .what = "share gained by fusing LayerNorm, CSC-AG, GEMM, 8 MB",
                 .file = "spec1_table3_fused.toml",
                 .published = 50,
                 .unit = "%",
                 .ours = [](const study_lookup& of) -> measured {
                   const flow_times t =
                       flows_of(of, "3", v, "hardware.host.launch=0 hardware.host.sync=0 hardware.host.transfer=0");
                   return {100 * (t.apart - t.fused) / t.apart, share_formula()};
                 },
                 .remark = "both flows without launches, sync and t_OTHERS, which (11) leaves out. \"About 50 %\" "
                           "needs a local memory of 3/4 of the global one's bandwidth, 75 GB/s; at that, (3) could "
                           "not hold, for which every core "
                           "group reads and writes 100 GB/s at once. We keep the 200 GB/s that (3) needs"});
}

// -- models -----------------------------------------------------------------------------------------------------------

void add_models(std::vector<figure>& all) {
  const std::string file = "spec1_models.toml";
  all.push_back({.id = "spec1.model3",
                 .source = "spec 1, model (3)",
                 .what = "Ring-AG at 8 MB",
                 .file = file,
                 .published = 41,
                 .unit = "GB/s",
                 .ours = [](const study_lookup& of) -> measured {
                   return {of.row(ring, 8 * megabyte).algbw, 8e6 / ring_formula(8e6) / 1e3};
                 },
                 .remark = "ours adds 0.1 us for the ring segment of every iteration"});
  all.push_back({.id = "spec1.model4",
                 .source = "spec 1, model (4)",
                 .what = "CSC-AG at 8 MB",
                 .file = file,
                 .published = 69.6,
                 .unit = "GB/s",
                 .ours = [](const study_lookup& of) -> measured {
                   return {of.row(csc, 8 * megabyte).algbw, 8e6 / csc_formula(8e6) / 1e3};
                 },
                 .remark =
                     "the formula leaves out CSC's first step (publishing in L2) and counts t_OTHERS as if nothing ran "
                     "beside it. Ours performs that step, "
                     "but as every compute core goes on when its own counterparts have come, publishing, fetching and "
                     "t_OTHERS overlap; the two "
                     "differences nearly cancel at this size, and do not at others"});
  all.push_back(
      {.id = "spec1.model5_6",
       .source = "spec 1, models (5), (6)",
       .what = "small: CSC-AG over Ring-AG at 100 KB",
       .file = file,
       .published = 3,
       .unit = "x",
       .ours = [](const study_lookup& of) -> measured {
         constexpr std::size_t v = 100'000;
         return {of.time_us(ring, v) / of.time_us(csc, v), 3 * (launch + sync + other) / (launch + sync + 3 * other)};
       },
       .remark = "the source rounds: its constants give 135/55 = 2.45 in (5) and (6). Ours also pays t_OTHERS for "
                 "publishing, which (6) leaves out"});
  all.push_back(
      {.id = "spec1.model7_8",
       .source = "spec 1, models (7), (8)",
       .what = "large: CSC-AG over Ring-AG at 256 MB",
       .file = file,
       .published = 1,
       .unit = "x",
       .ours = [](const study_lookup& of) -> measured {
         constexpr std::size_t v = 256 * megabyte;
         return {of.time_us(ring, v) / of.time_us(csc, v), ring_formula(256e6) / csc_formula(256e6)};
       },
       .remark = "the models leave out that CSC moves the data once more, into L2, and every byte through L0: its DMA "
                 "engines carry 8V/4 a core group, "
                 "a ring's 6V/4, and with 200 GB/s they and not the bus are the limit"});
  add_fusion_models(all);
}

/// (3) and (4) where the source does not evaluate them. At 8 MB two differences cancel (see there), and so they do not here.
void add_model_curves(std::vector<figure>& all) {
  const std::pair<std::size_t, const char*> sizes[] = {{50'000, "50 kB"},          {500'000, "500 kB"},
                                                       {2 * megabyte, "2 MB"},     {32 * megabyte, "32 MB"},
                                                       {256 * megabyte, "256 MB"}, {1000 * megabyte, "1 GB"}};
  for (const bool of_ring : {true, false})
    for (const auto& [bytes, said] : sizes) {
      const auto v = static_cast<double>(bytes);
      const double formula = v / (of_ring ? ring_formula(v) : csc_formula(v)) / 1e3;
      all.push_back({.id = std::string{of_ring ? "spec1.curve3." : "spec1.curve4."} + std::to_string(bytes),
                     .source = of_ring ? "spec 1, model (3)" : "spec 1, model (4)",
                     .what = std::string{of_ring ? "Ring-AG at " : "CSC-AG at "} + said,
                     .file = "spec1_models.toml",
                     .published = formula,
                     .unit = "GB/s",
                     .ours = [=, n = bytes](const study_lookup& of) -> measured {
                       return {of.row(of_ring ? ring : csc, n).algbw, formula};
                     },
                     .remark = !of_ring && bytes >= 256 * megabyte
                                   ? "here the DMA engines are the limit (see models (7), (8))"
                                   : "",
                     .kind = published_kind::derived});
    }
  // Between (5), (6) and (7), (8), and fig. 14's curve.
  for (const auto& [bytes, said] : sizes) {
    const auto v = static_cast<double>(bytes);
    const double formula = ring_formula(v) / csc_formula(v);
    all.push_back({.id = "spec1.curve3_4." + std::to_string(bytes),
                   .source = "spec 1, models (3), (4)",
                   .what = std::string{"CSC-AG over Ring-AG at "} + said,
                   .file = "spec1_models.toml",
                   .published = formula,
                   .unit = "x",
                   .ours = [=, n = bytes](const study_lookup& of) -> measured {
                     return {of.time_us(ring, n) / of.time_us(csc, n), formula};
                   },
                   .remark = bytes >= 256 * megabyte ? "here the DMA engines are the limit (see models (7), (8))" : "",
                   .kind = published_kind::derived});
  }
}

// -- figures 12 to 15, and the measured bandwidths ----------------------------------------------------------------------

/// Share of the time in which the bus carries a core group's data.
double utilisation(const study_result& r) {
  const study_row& row = r.rows.front();
  std::int64_t busy = 0;
  for (std::size_t e = 0; e < row.outcome.use.size(); ++e)
    if (r.on->class_of(static_cast<element_index>(e)).role == element_role::ring_segment)
      busy = std::max(busy, row.outcome.use[e].busy_ps);
  return 100.0 * static_cast<double>(busy) / static_cast<double>(row.outcome.end_ps);
}

void add_curves(std::vector<figure>& all) {
  all.push_back(
      {.id = "spec1.fig12",
       .source = "spec 1, fig. 12",
       .what = "host to card: 1 PCIe + 4 ring copies over 4 PCIe copies",
       .file = "spec1_fig12.toml",
       .published = 2.5,
       .unit = "x",
       .ours = [](const study_lookup& of) -> measured {
         constexpr std::size_t v = 32'768 * kib;
         return {of.time_us("choreography=each_a_copy", v) / of.time_us("choreography=one_copy", v)};
       },
       .remark = "the size is not printed; taken at 32 768 KB, the largest of the other figures. As in the source it "
                 "grows with size: PCIe is taken for "
                 "generation 4 (not printed), and the ratio can reach 4 / (1 + 31.5/100) = 3.04"});
  all.push_back({.id = "spec1.intro",
                 .source = "spec 1, introduction",
                 .what = "host to card, largest (256 MB)",
                 .file = "spec1_fig12.toml",
                 .published = 3,
                 .unit = "x",
                 .ours = [](const study_lookup& of) -> measured {
                   constexpr std::size_t v = 256 * 1024 * kib;
                   return {of.time_us("choreography=each_a_copy", v) / of.time_us("choreography=one_copy", v),
                           4 / (1 + 31.508 / 100)};
                 },
                 .remark = "\"up to\""});
  all.push_back({.id = "spec1.fig13",
                 .source = "spec 1, fig. 13",
                 .what = "Ring-AG: transfer time over total, 4096 KB",
                 .file = "spec1_fig13.toml",
                 .published = 20,
                 .unit = "%",
                 .ours = [](const study_lookup& of) -> measured {
                   const double v = 4096 * kib;
                   return {utilisation(of.run("sizes=4194304")), 100 * 3 * (v / 4 / bus) / ring_formula(v)};
                 },
                 .remark = "\"at small sizes\" is not said more exactly; it is 10 % at 2048 KB and 32 % at 8192 KB"});
  for (const auto& [kilobytes, said] : {std::pair{512, "512 KB"}, std::pair{2048, "2048 KB"},
                                        std::pair{8192, "8192 KB"}, std::pair{32'768, "32768 KB"}}) {
    const double v = static_cast<double>(kilobytes) * kib, formula = 100 * 3 * (v / 4 / bus) / ring_formula(v);
    all.push_back({.id = "spec1.curve13." + std::to_string(kilobytes),
                   .source = "spec 1, model (3)",
                   .what = std::string{"Ring-AG: transfer time over total, "} + said,
                   .file = "spec1_fig13.toml",
                   .published = formula,
                   .unit = "%",
                   .ours = [=, n = kilobytes](const study_lookup& of) -> measured {
                     return {utilisation(of.run("sizes=" + std::to_string(n * 1024))), formula};
                   },
                   .kind = published_kind::derived});
  }
  all.push_back({.id = "spec1.ring_ag",
                 .source = "spec 1, measured",
                 .what = "Ring-AG at 8 MB",
                 .file = "spec1_fig13.toml",
                 .published = 34.1,
                 .unit = "GB/s",
                 .ours = [](const study_lookup& of) -> measured {
                   return {of.row("", 8 * megabyte).algbw, 8e6 / ring_formula(8e6) / 1e3};
                 },
                 .remark = "the source's model is as far off its own measurement: 41 GB/s"});
  all.push_back(
      {.id = "spec1.ring_rs",
       .source = "spec 1, measured",
       .what = "Ring-RS at 32 MB",
       .file = "spec1_fig13.toml",
       .published = 54.9,
       .unit = "GB/s",
       .ours = [](const study_lookup& of) -> measured {
         const double free = of.row("collective=reduce_scatter hardware.host.work_uses_dma=false", 32 * megabyte).algbw;
         char overlapped[80];
         std::snprintf(overlapped, sizeof overlapped, "if all sums were hidden behind the copies %.1f GB/s", free);
         return {of.row("collective=reduce_scatter", 32 * megabyte).algbw, {}, overlapped};
       },
       .remark = "there is no model of the reduction in the source. Ours reads both operands from memory and "
                 "writes the sum, 3V/4 "
                 "an iteration at 200 GB/s, "
                 "after the copy has ended; the measurement leaves about 70 us for it, so a part was overlapped"});
  all.push_back({.id = "spec1.fig14",
                 .source = "spec 1, fig. 14",
                 .what = "CSC-AG over Ring-AG at 4096 KB",
                 .file = "spec1_fig14.toml",
                 .published = 2.15,
                 .unit = "x",
                 .ours = [](const study_lookup& of) -> measured {
                   constexpr std::size_t v = 4096 * kib;
                   return {of.time_us(ring, v) / of.time_us(csc, v), ring_formula(v) / csc_formula(v)};
                 },
                 .remark = "the source's model gives 1.92 here and reaches 2.15 near 1.9 MB"});
  all.push_back(
      {.id = "spec1.fig15",
       .source = "spec 1, fig. 15",
       .what = "CSC-RS over Ring-RS at 32768 KB",
       .file = "spec1_fig15.toml",
       .published = 1.2,
       .unit = "x",
       .ours = [](const study_lookup& of) -> measured {
         constexpr std::size_t v = 32'768 * kib;
         const double hidden = of.time_us(ring + " hardware.host.work_uses_dma=false", v);
         char overlapped[80];
         std::snprintf(overlapped, sizeof overlapped, "if Ring-RS hid all its sums behind its copies %.2fx",
                       hidden / of.time_us(csc, v));
         return {of.time_us(ring, v) / of.time_us(csc, v), {}, overlapped};
       },
       .remark =
           "the source contradicts itself: 54.9 GB/s of Ring-RS are 583 to 611 us, table 4 has 631 us for CSC-RS, "
           "which makes 0.92 to 0.97. Ours is too "
           "high because our Ring-RS is slow (see there)"});
}

// -- tables 3 and 4 -----------------------------------------------------------------------------------------------------

struct overlap_row {
  std::size_t kilobytes;
  double alone_us, benefit_us, gain;
};

std::string microseconds_text(const char* pattern, double first, double second = 0) {
  char text[96];
  std::snprintf(text, sizeof text, pattern, first, second);
  return text;
}

/// Why rows are as far off as they are, at the first of each column.
struct overlap_remarks {
  std::string time, benefit, gain;
};

/// The table's columns, one after the other: the collective alone, what fusing saves, and its share of the first.
void add_overlap(std::vector<figure>& all, const std::string& table, const std::string& which,
                 const std::vector<overlap_row>& rows, const overlap_remarks& why) {
  const std::string source = "spec 1, table " + table, file = "spec1_table" + table;
  const auto add = [&](const overlap_row& row, const std::string& column, const std::string& what,
                       const std::string& study, double published, const std::string& unit, const std::string& remark,
                       std::function<measured(const study_lookup&)> ours) {
    const bool broken = table == "3" && row.kilobytes == 8192;
    all.push_back(
        {.id = "spec1.table" + table + "." + std::to_string(row.kilobytes) + "." + column,
         .source = source,
         .what = what + ", " + std::to_string(row.kilobytes) + " KB",
         .file = study,
         .published = published,
         .unit = unit,
         .ours = std::move(ours),
         .remark = broken ? "the row contradicts itself: a benefit of 46 us is 23 % of 200; 54 % needs about 85 us"
                   : &row == &rows.front() ? remark
                                           : ""});
  };
  for (const overlap_row& row : rows)
    add(row, "time", which + " alone", file + ".toml", row.alone_us, "us", why.time,
        [bytes = row.kilobytes * kib](const study_lookup& of) -> measured {
          return {of.time_us("", bytes),
                  {},
                  microseconds_text("without its launch %.0f us", of.time_us("hardware.host.launch=0", bytes))};
        });
  for (const overlap_row& row : rows)
    add(row, "benefit", "saved by fusing " + which, file + "_apart.toml", row.benefit_us, "us", why.benefit,
        [bytes = row.kilobytes * kib, table](const study_lookup& of) -> measured {
          const flow_times t = flows_of(of, table, bytes);
          return {t.apart - t.fused, {}, microseconds_text("%.0f us apart, %.0f us fused", t.apart, t.fused)};
        });
  for (const overlap_row& row : rows)
    add(row, "gain", "gain by fusing " + which, file + "_fused.toml", row.gain, "%", why.gain,
        [bytes = row.kilobytes * kib, table, file](const study_lookup& of) -> measured {
          const flow_times t = flows_of(of, table, bytes);
          return {100 * (t.apart - t.fused) / of.in(file + ".toml").time_us("", bytes)};
        });
}

void add_tables(std::vector<figure>& all) {
  const std::string share =
      "the benefit over the time of the collective alone, as the table has it: too large where the "
      "benefit is (see there)";
  add_overlap(
      all, "3", "CSC-AG",
      {{2048, 32, 19, 59}, {4096, 55, 29, 52}, {8192, 200, 46, 54}, {16384, 195, 84, 43}, {32768, 356, 181, 50}},
      {.time =
           "32 us is less than t_LAUNCH + t_SYNC = 40 us, so the table cannot count a launch; ours does, here and in "
           "all rows below",
       .benefit =
           "what the flow of three kernels takes more than that of two: a launch, CSC-AG's read of its input and "
           "GEMM's load of the whole tensor. The table's 19 us are less than the launch of 25 us that (9) and "
           "(10) save; without it ours would be 12 us here and 170 us at 32 768 KB, where the table has 181",
       .gain = share});
  add_overlap(
      all, "4", "CSC-RS",
      {{2048, 54, 19, 35}, {4096, 98, 32, 33}, {8192, 184, 58, 32}, {16384, 347, 116, 33}, {32768, 631, 209, 33}},
      {.time = "with the launch, which the table cannot count (see table 3); at the large sizes ours sums in L0 for "
               "nothing",
       .benefit = "a launch, GEMM's store of the whole tensor in L1, CSC-RS' read of it, its store of the share and "
                  "Dropout's load; the table's 19 us are less than a launch",
       .gain = share});
}

// -- table 5 ------------------------------------------------------------------------------------------------------------

constexpr double volume = 120e9;  // bytes of AG, and of RS, a step (spec 1: V_AG = V_RS)
constexpr double layers = 5;      // l / pp = 80 / 16
constexpr double iterations = 2199023255552.0 / (2048.0 * 2048);  // 2 T tokens (2^41) / (bs 2048 · s 2048)
constexpr std::size_t ag_bytes = 8 * megabyte,
                      rs_bytes = 32 * megabyte;  // of one call: the sizes at which the source quotes Ring's bandwidths

double seconds_of(double ag_us, double rs_us) {
  return volume / static_cast<double>(ag_bytes) * ag_us * 1e-6 + volume / static_cast<double>(rs_bytes) * rs_us * 1e-6;
}
double ring_seconds(const study_lookup& of) {
  return seconds_of(of.time_us(ring, ag_bytes), of.time_us(ring + reduces, rs_bytes));
}

/// CSC alone, less what fusing with its neighbours saves.
double fused_us(const study_lookup& of, const std::string& which, const std::string& table, std::size_t bytes) {
  const flow_times t = flows_of(of, table, bytes);
  return of.time_us(which, bytes) - (t.apart - t.fused);
}
double fused_seconds(const study_lookup& of) {
  return seconds_of(fused_us(of, csc, "3", ag_bytes), fused_us(of, csc + reduces, "4", rs_bytes));
}

void add_training(std::vector<figure>& all) {
  const auto add = [&](const std::string& id, std::string what, double published, std::string unit,
                       std::function<measured(const study_lookup&)> ours, std::string remark) {
    all.push_back({.id = "spec1.table5." + id,
                   .source = "spec 1, table 5",
                   .what = std::move(what),
                   .file = "spec1_table5.toml",
                   .published = published,
                   .unit = std::move(unit),
                   .ours = std::move(ours),
                   .remark = std::move(remark)});
  };
  static constexpr double quoted = 120 / 34.1 + 120 / 54.9;  // from the measured bandwidths
  add(
      "llama.ring", "LLaMA 70B, Ring-TP, an iteration", 5.75, "s",
      [](const study_lookup& of) -> measured {
        return {ring_seconds(of), quoted};
      },
      "communication only: 120 GB each of AG and RS, in calls of 8 and 32 MB. With the measured 34.1 and 54.9 GB/s "
      "(formula) that "
      "is 5.70 s, so the "
      "table's \"training time\" is communication alone. Ours is that close because its AG is as much too fast as its "
      "RS is too "
      "slow");
  add(
      "llama.fused", "LLaMA 70B, fused CSC-TP, an iteration", 3.56, "s",
      [](const study_lookup& of) -> measured { return {fused_seconds(of)}; },
      "the same volume by CSC, less what the fused flows save (tables 3 and 4). The source does not say what the 3.56 "
      "s are "
      "made of; its "
      "own tables would give "
      "about 2.1 s");
  add(
      "llama.apart", "LLaMA 70B, CSC-TP not fused, an iteration", 3.56, "s",
      [](const study_lookup& of) -> measured {
        return {seconds_of(of.time_us(csc, ag_bytes), of.time_us(csc + reduces, rs_bytes))};
      },
      "the table's fused time beside what CSC alone takes here, without any fusion: that the 3.56 s contain the gain "
      "of "
      "tables 3 and 4, as the row above takes it, is our reading");
  all.back().kind = published_kind::derived;
  add(
      "llama.ring.layer", "LLaMA 70B, Ring-TP, a layer", 1.15, "s",
      [](const study_lookup& of) -> measured {
        return {ring_seconds(of) / layers, quoted / layers};
      },
      "");
  add(
      "llama.fused.layer", "LLaMA 70B, fused CSC-TP, a layer", 0.71, "s",
      [](const study_lookup& of) -> measured { return {fused_seconds(of) / layers}; }, "");
  const double days = iterations / 86400;
  add(
      "llama.ring.days", "LLaMA 70B, Ring-TP, pre-training", 34.9, "days",
      [days](const study_lookup& of) -> measured {
        return {ring_seconds(of) * days, quoted * days};
      },
      "34.9 days at 5.75 s are 2^19 iterations: 2 T tokens (2^41) of batches 2048 x s with s = 2048, whereas the "
      "volume of 120 GB "
      "implies s of about 1000");
  add(
      "llama.fused.days", "LLaMA 70B, fused CSC-TP, pre-training", 21.6, "days",
      [days](const study_lookup& of) -> measured { return {fused_seconds(of) * days}; }, "");
  add(
      "neox.ratio", "GPT-NeoX 20B, Ring-TP over fused CSC-TP", 1.28 / 0.80, "x",
      [](const study_lookup& of) -> measured { return {ring_seconds(of) / fused_seconds(of)}; },
      "its volume is not printed (no h, l, bs, s, dp, pp), so only the ratio can be had, with the same calls as for "
      "LLaMA");
}

}  // namespace

std::vector<published_figure> spec1_figures() {
  std::vector<figure> all;
  add_models(all);
  add_model_curves(all);
  add_curves(all);
  add_tables(all);
  add_training(all);
  return all;
}

}  // namespace troupe
