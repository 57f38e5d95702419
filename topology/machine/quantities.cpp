// SPDX-License-Identifier: Apache-2.0
#include "topology/machine/quantities.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <span>

namespace troupe {

namespace {

struct unit {
  std::string_view name;
  std::int64_t factor;
};

constexpr double most = 9.2e18;  // below 2^63

/// A non-negative number and the unit behind it; whole numbers stay exact.
std::optional<std::int64_t> with_unit(std::string_view text, std::span<const unit> units) {
  double number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc{} || !std::isfinite(number) || number < 0) return std::nullopt;
  std::string_view rest = text.substr(static_cast<std::size_t>(end - text.data()));
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  for (const unit& u : units)
    if (u.name == rest) {
      const double value = number * static_cast<double>(u.factor);
      if (value > most) return std::nullopt;
      return static_cast<std::int64_t>(std::llround(value));
    }
  return std::nullopt;
}

constexpr std::int64_t thousand = 1000, million = 1'000'000, billion = 1'000'000'000, trillion = 1'000'000'000'000;

/// The largest unit that divides it.
std::string in_units(std::int64_t value, std::span<const unit> largest_first) {
  for (const unit& u : largest_first)
    if (value % u.factor == 0) return std::to_string(value / u.factor) + " " + std::string{u.name};
  return std::to_string(value);
}

}  // namespace

std::optional<picoseconds> parse_time(std::string_view text) {
  static constexpr std::array<unit, 6> units{
      {{"ps", 1}, {"ns", thousand}, {"us", million}, {"µs", million}, {"ms", billion}, {"s", trillion}}};
  if (text == "0") return picoseconds{0};
  const auto value = with_unit(text, units);
  return value ? std::optional{picoseconds{*value}} : std::nullopt;
}

std::optional<std::uint64_t> parse_rate(std::string_view text) {
  // A bit is an eighth of a byte: the factors of bits are whole from a thousand on.
  static constexpr std::array<unit, 15> units{{{"", 1},
                                               {"B/s", 1},
                                               {"KB/s", thousand},
                                               {"kB/s", thousand},
                                               {"MB/s", million},
                                               {"GB/s", billion},
                                               {"TB/s", trillion},
                                               {"Kbit/s", thousand / 8},
                                               {"Mbit/s", million / 8},
                                               {"Gbit/s", billion / 8},
                                               {"Tbit/s", trillion / 8},
                                               {"K", thousand},
                                               {"M", million},
                                               {"G", billion},
                                               {"T", trillion}}};
  const auto value = with_unit(text, units);
  return value && *value >= 1 ? std::optional{static_cast<std::uint64_t>(*value)} : std::nullopt;
}

std::string to_text(picoseconds time) {
  static constexpr std::array<unit, 5> units{
      {{"s", trillion}, {"ms", billion}, {"us", million}, {"ns", thousand}, {"ps", 1}}};
  return time.count() == 0 ? "0" : in_units(time.count(), units);
}

std::string rate_text(std::uint64_t bytes_per_second) {
  static constexpr std::array<unit, 5> units{
      {{"TB/s", trillion}, {"GB/s", billion}, {"MB/s", million}, {"KB/s", thousand}, {"B/s", 1}}};
  return in_units(static_cast<std::int64_t>(bytes_per_second), units);
}

}  // namespace troupe
