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
  static constexpr std::array<unit, 10> units{{{"B/s", 1},
                                               {"KB/s", thousand},
                                               {"kB/s", thousand},
                                               {"MB/s", million},
                                               {"GB/s", billion},
                                               {"TB/s", trillion},
                                               {"Kbit/s", thousand / 8},
                                               {"Mbit/s", million / 8},
                                               {"Gbit/s", billion / 8},
                                               {"Tbit/s", trillion / 8}}};
  const auto value = with_unit(text, units);
  return value && *value >= 1 ? std::optional{static_cast<std::uint64_t>(*value)} : std::nullopt;
}

std::optional<std::uint64_t> parse_count(std::string_view text) {
  static constexpr std::array<unit, 5> units{
      {{"", 1}, {"K", thousand}, {"M", million}, {"G", billion}, {"T", trillion}}};
  const auto value = with_unit(text, units);
  return value && *value >= 1 ? std::optional{static_cast<std::uint64_t>(*value)} : std::nullopt;
}

std::string what_no_rate_is(std::string_view text) {
  constexpr const char* decimal = " (powers of 1000)";
  const std::string said = "\"" + std::string{text} + "\"";
  const auto count = parse_count(text);
  if (!count) return said + "; it must be a rate such as \"25 GB/s\" or \"200 Gbit/s\"" + decimal;
  // "10" may mean bytes, or giga of something; "400G" of a NIC means bits. Only its author knows.
  const auto end = text.find_last_not_of("KMGT ") + 1;
  const std::string number{text.substr(0, end)};
  std::string prefix{end < text.size() ? text.substr(text.size() - 1) : ""};
  if (prefix.empty() && *count >= million)
    return said + ", which says no unit; write, for example, \"" + number + " B/s\"";
  if (prefix.empty()) prefix = "G";
  return said + ", which says no unit; write, for example, \"" + number + " " + prefix + "B/s\" or \"" + number + " " +
         prefix + "bit/s\"" + decimal;
}

namespace {
std::optional<std::uint64_t> unsigned_with_unit(std::string_view text, std::span<const unit> units) {
  const auto value = with_unit(text, units);
  return value ? std::optional{static_cast<std::uint64_t>(*value)} : std::nullopt;
}
}  // namespace

std::optional<std::uint64_t> parse_power(std::string_view text) {
  static constexpr std::array<unit, 5> units{
      {{"uW", 1}, {"mW", thousand}, {"W", million}, {"kW", billion}, {"MW", trillion}}};
  return text == "0" ? 0 : unsigned_with_unit(text, units);
}

std::optional<std::uint64_t> parse_energy(std::string_view text) {
  static constexpr std::array<unit, 8> units{{{"fJ/B", 1},
                                              {"pJ/B", thousand},
                                              {"nJ/B", million},
                                              {"uJ/B", billion},
                                              {"fJ/bit", 8},
                                              {"pJ/bit", 8 * thousand},
                                              {"nJ/bit", 8 * million},
                                              {"uJ/bit", 8 * billion}}};
  return text == "0" ? 0 : unsigned_with_unit(text, units);
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

std::string power_text(std::uint64_t microwatts) {
  static constexpr std::array<unit, 5> units{
      {{"MW", trillion}, {"kW", billion}, {"W", million}, {"mW", thousand}, {"uW", 1}}};
  return microwatts == 0 ? "0" : in_units(static_cast<std::int64_t>(microwatts), units);
}

std::string energy_text(std::uint64_t femtojoules_a_byte) {
  static constexpr std::array<unit, 4> units{{{"uJ/B", billion}, {"nJ/B", million}, {"pJ/B", thousand}, {"fJ/B", 1}}};
  return femtojoules_a_byte == 0 ? "0" : in_units(static_cast<std::int64_t>(femtojoules_a_byte), units);
}

}  // namespace troupe
