// SPDX-License-Identifier: Apache-2.0
// Figures of spec 5 (NCCL's inside; measured on 16 nodes of GH200). Most of what it says is who wins where; such a sentence becomes
// a ratio of
// two times that is at least 1. The constants are those of the preset gh200_16.
#include "engine/tools/study/published/published.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/config/configuration.hpp"

namespace troupe {

namespace {

using figure = published_figure;
constexpr std::size_t mib = 1 << 20;
const std::string between = "spec5_between.toml", inside = "spec5_inside.toml";

std::string performed(const std::string& protocol, const std::string& choreography) {
  return "protocol=" + protocol + " choreography=" + choreography;
}

/// The faster of ring and tree.
double fastest_us(const study_lookup& of, const std::string& protocol, std::size_t bytes) {
  return std::min(of.time_us(performed(protocol, "ring"), bytes),
                  of.time_us(performed(protocol, "double_binary_tree"), bytes));
}

constexpr std::size_t smallest = 1024, largest = 64 * mib;

/// The last of the sizes 1K, 2K, 4K … up to which the first is the faster one; 0: from the beginning it is not.
template <class First, class Second>
std::size_t wins_up_to(First first, Second second) {
  std::size_t last = 0;
  for (std::size_t bytes = smallest; bytes <= largest && first(bytes) < second(bytes); bytes *= 2) last = bytes;
  return last;
}

measured protocol_crossing(const study_lookup& of, const std::string& low_latency) {
  const std::size_t last = wins_up_to([&](std::size_t bytes) { return fastest_us(of, low_latency, bytes); },
                                      [&](std::size_t bytes) { return fastest_us(of, "simple", bytes); });
  return {static_cast<double>(last) / 1024};
}

void add_crossings(std::vector<figure>& all) {
  const std::string why =
      "the model knows what the digest gives: latency per hop, slots, and bytes on the wire. What makes LL and "
      "LL128 lose early between nodes "
      "(\"millions of flag syncs\": a processor that polls every flag of what a NIC delivers) has no published "
      "cost, and without it they "
      "win until their larger number of bytes outweighs their lower latency";
  all.push_back({.id = "spec5.between.ll",
                 .source = "spec 5, measured",
                 .what = "between: LL beats Simple up to",
                 .file = between,
                 .published = 64,
                 .unit = "KiB",
                 .ours = [](const study_lookup& of) { return protocol_crossing(of, "ll"); },
                 .remark = why,
                 .modelled = false});
  all.push_back({.id = "spec5.between.ll128",
                 .source = "spec 5, measured",
                 .what = "between: LL128 beats Simple up to",
                 .file = between,
                 .published = 64,
                 .unit = "KiB",
                 .ours = [](const study_lookup& of) { return protocol_crossing(of, "ll128"); },
                 .remark = "as for LL",
                 .modelled = false});
  all.push_back({.id = "spec5.between.large",
                 .source = "spec 5, measured",
                 .what = "between: Simple over LL at 64 MiB",
                 .file = between,
                 .published = 1,
                 .unit = "x",
                 .ours = [](const study_lookup& of) -> measured {
                   return {fastest_us(of, "ll", largest) / fastest_us(of, "simple", largest), 2};
                 },
                 .remark = "\"Simple wins clearly\" at GB sizes; LL sends every byte twice",
                 .says = figure::sense::at_least});
}

void add_inside(std::vector<figure>& all) {
  all.push_back(
      {.id = "spec5.inside.ll128_small",
       .source = "spec 5, measured",
       .what = "inside: LL over LL128 at 1 KiB (\"close\")",
       .file = inside,
       .published = 1,
       .unit = "x",
       .ours = [](const study_lookup& of) -> measured {
         return {fastest_us(of, "ll128", smallest) / fastest_us(of, "ll", smallest), 2};
       },
       .remark = "the same source's table gives 2 us a hop for LL128 and 1 us for LL, which is what ours shows; its "
                 "curves lie closer together",
       .modelled = false});
  all.push_back(
      {.id = "spec5.inside.ll128_large",
       .source = "spec 5, table",
       .what = "inside: LL128's share of Simple's bandwidth, 64 MiB",
       .file = inside,
       .published = 95,
       .unit = "%",
       .ours = [](const study_lookup& of) -> measured {
         return {100 * fastest_us(of, "simple", largest) / fastest_us(of, "ll128", largest), 100 * 120 / 128.0};
       },
       .remark = "120 of 128 bytes are data; its smaller latency gains where Simple does not yet reach its peak"});
  all.push_back(
      {.id = "spec5.inside.ll_large",
       .source = "spec 5, table",
       .what = "inside: LL's share of Simple's bandwidth, 64 MiB",
       .file = inside,
       .published = 50,
       .unit = "%",
       .ours = [](const study_lookup& of) -> measured {
         return {100 * fastest_us(of, "simple", largest) / fastest_us(of, "ll", largest), 50};
       },
       .remark =
           "\"25 to 50 % of peak\": 4 of 8 bytes are data; the rest of the loss is not modelled, and Simple is not "
           "quite at its peak at this size",
       .says = figure::sense::at_most});
}

void add_algorithms(std::vector<figure>& all) {
  for (const auto& [file, where] : {std::pair{between, "between"}, std::pair{inside, "inside"}})
    for (const bool small : {true, false}) {
      const std::size_t bytes = small ? smallest : largest;
      const std::string faster = small ? "double_binary_tree" : "ring", slower = small ? "ring" : "double_binary_tree";
      all.push_back(
          {.id = std::string{"spec5."} + where + (small ? ".tree" : ".ring"),
           .source = "spec 5, measured",
           .what = std::string{where} + (small ? ": Tree over Ring at 1 KiB" : ": Ring over Tree at 64 MiB"),
           .file = file,
           .published = 1,
           .unit = "x",
           .ours = [=](const study_lookup& of) -> measured {
             measured m{of.time_us(performed("auto", slower), bytes) / of.time_us(performed("auto", faster), bytes)};
             const std::size_t last =
                 wins_up_to([&](std::size_t n) { return of.time_us(performed("auto", "double_binary_tree"), n); },
                            [&](std::size_t n) { return of.time_us(performed("auto", "ring"), n); });
             m.note = "each with its best protocol; Tree wins up to " + bytes_text(last);
             return m;
           },
           .remark = small ? "" : "the source gives no size at which they meet",
           .says = figure::sense::at_least});
    }
}

}  // namespace

std::vector<published_figure> spec5_figures() {
  std::vector<figure> all;
  add_crossings(all);
  add_inside(all);
  add_algorithms(all);
  return all;
}

}  // namespace troupe
