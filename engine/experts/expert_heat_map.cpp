// SPDX-License-Identifier: Apache-2.0
// The picture of an expert_profile: whose tokens went to which expert.

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "engine/experts/expert_profile.hpp"

namespace troupe {

namespace {

constexpr std::size_t most_cells = 128;               ///< in a direction
constexpr int left = 64, top = 78, longest_bar = 90;  ///< pixels

/// Ranks or experts, of which `each` neighbours share a row or a column.
struct axis {
  explicit axis(std::size_t n) : count(n), each((n + most_cells - 1) / most_cells + (n == 0 ? 1 : 0)) {}
  std::size_t cells() const { return (count + each - 1) / each; }
  /// "5", or "4–7".
  std::string label(std::size_t cell) const {
    const std::size_t first = cell * each, last = std::min(count, first + each) - 1;
    return first == last ? std::to_string(first) : std::to_string(first) + "–" + std::to_string(last);
  }
  std::size_t count, each;
};

std::vector<std::uint64_t> summed(const std::vector<std::uint64_t>& of, const axis& along) {
  std::vector<std::uint64_t> sums(along.cells());
  for (std::size_t i = 0; i < of.size(); ++i) sums[i / along.each] += of[i];
  return sums;
}

double share_of(std::uint64_t of, std::uint64_t most) {
  return most == 0 ? 0 : static_cast<double>(of) / static_cast<double>(most);
}
std::uint64_t most_of(const std::vector<std::uint64_t>& of) {
  return of.empty() ? 0 : *std::max_element(of.begin(), of.end());
}

class picture {
public:
  /// @param hint shown where the mouse rests
  void rectangle(double x, double y, double width, double height, const std::string& fill, const std::string& hint) {
    char line[160];
    std::snprintf(line, sizeof line, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"", x, y, width,
                  height);
    text_ += line + fill + "\"><title>" + hint + "</title></rect>\n";
  }
  void write(double x, double y, std::string_view what, const char* anchor = "start") {
    char line[96];
    std::snprintf(line, sizeof line, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    text_ += line;
    text_ += what;
    text_ += "</text>\n";
  }
  std::string finish(double width, double height) const {
    char size[160];
    std::snprintf(size, sizeof size, "width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\"", width, height, width,
                  height);
    return std::string{"<svg xmlns=\"http://www.w3.org/2000/svg\" "} + size +
           " font-family=\"sans-serif\" font-size=\"11\" fill=\"#222\">\n<rect width=\"100%\" height=\"100%\" "
           "fill=\"#fff\"/>\n" +
           text_ + "</svg>\n";
  }

private:
  std::string text_;
};

/// From nearly white to dark blue.
std::string shade(double share) {
  const auto between = [share](int from, int to) { return from + static_cast<int>(share * (to - from)); };
  char text[8];
  std::snprintf(text, sizeof text, "#%02x%02x%02x", static_cast<unsigned>(between(240, 8)),
                static_cast<unsigned>(between(246, 48)), static_cast<unsigned>(between(252, 107)));
  return text;
}
constexpr const char* bar_colour = "#e08214";

std::string tokens(std::uint64_t n) { return std::to_string(n) + (n == 1 ? " token" : " tokens"); }

}  // namespace

std::string expert_profile::heat_map() const {
  const axis down{ranks.size()}, across{tokens_of_expert.size()};
  const std::size_t rows = down.cells(), columns = across.cells(), experts = across.count;
  std::vector<std::uint64_t> went(rows * columns), received;
  for (std::size_t r = 0; r < down.count && sent_to_expert.size() == down.count * experts; ++r)
    for (std::size_t e = 0; e < experts; ++e)
      went[r / down.each * columns + e / across.each] += sent_to_expert[r * experts + e];
  for (const of_rank& r : ranks) received.push_back(r.received);
  const std::vector<std::uint64_t> of_experts = summed(tokens_of_expert, across), of_ranks = summed(received, down);

  const double cell = std::clamp(640.0 / static_cast<double>(std::max<std::size_t>({rows, columns, 1})), 5.0, 28.0);
  const double right = left + cell * static_cast<double>(columns), bottom = top + cell * static_cast<double>(rows);
  const std::size_t step = cell >= 18 ? 1 : cell >= 9 ? 2 : 8;  // of the labels
  picture p;
  char title[160];
  std::snprintf(title, sizeof title, "%llu dispatches; rank %d receives most, %.2f times the average; %llu dropped",
                static_cast<unsigned long long>(dispatches), bottleneck(), imbalance(),
                static_cast<unsigned long long>(dropped()));
  p.write(8, 18, title);
  p.write(8, 34, "tokens from each rank (down) to each expert (across); darkest: " + tokens(most_of(went)));
  for (std::size_t r = 0; r < rows; ++r) {
    const double y = top + cell * static_cast<double>(r);
    if (r % step == 0) p.write(left - 6, y + cell / 2 + 4, down.label(r), "end");
    for (std::size_t e = 0; e < columns; ++e)
      p.rectangle(left + cell * static_cast<double>(e), y, cell - 0.5, cell - 0.5,
                  shade(share_of(went[r * columns + e], most_of(went))),
                  "rank " + down.label(r) + " to expert " + across.label(e) + ": " + tokens(went[r * columns + e]));
    p.rectangle(right + 10, y, longest_bar * share_of(of_ranks[r], most_of(of_ranks)), cell - 0.5, bar_colour,
                "rank " + down.label(r) + " receives " + tokens(of_ranks[r]));
  }
  for (std::size_t e = 0; e < columns; ++e) {
    const double x = left + cell * static_cast<double>(e);
    if (e % step == 0) p.write(x + cell / 2, top - 6, across.label(e), "middle");
    p.rectangle(x, bottom + 10, cell - 0.5, longest_bar * share_of(of_experts[e], most_of(of_experts)), bar_colour,
                "expert " + across.label(e) + " gets " + tokens(of_experts[e]));
  }
  p.write(right + 10, top - 6, "received");
  p.write(left - 6, bottom + 22, "got", "end");
  p.write(8, top - 22, "rank");
  p.write(left, top - 22, "expert");
  return p.finish(std::max(right + longest_bar + 24, 560.0), bottom + longest_bar + 24);
}

}  // namespace troupe
