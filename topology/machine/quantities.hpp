// SPDX-License-Identifier: Apache-2.0
#pragma once
// Times and rates as people write them. Sizes are in engine/config/configuration.hpp (powers of 1024); rates are decimal, as data sheets
// count.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "topology/machine/links.hpp"

namespace troupe {

/// "0", "40ps", "1.5us", "25 µs", "2ms", "1s": rounded to a picosecond. Empty if it is none of these, negative, or above 106 days.
std::optional<picoseconds> parse_time(std::string_view text);
/// Bytes per second of "25GB/s", "69.6 GB/s", "100e9 B/s", "200Gbit/s", "512MB/s" (K, M, G, T: powers of 1000). Empty if it is none of
/// these or below 1: a number without a unit is no rate, since one takes it for GB/s and the other for bits.
std::optional<std::uint64_t> parse_rate(std::string_view text);
/// The message about a text that parse_rate() does not accept: the text, and what would be right.
std::string what_no_rate_is(std::string_view text);
/// A count, not a measure: "300T", "5e9", "64" (powers of 1000). Empty if it is none of these or below 1.
std::optional<std::uint64_t> parse_count(std::string_view text);

/// Microwatts of "5W", "350 mW", "1.2kW". Empty if it is none of these.
std::optional<std::uint64_t> parse_power(std::string_view text);
/// Femtojoules a byte of "80pJ/B", "10 pJ/bit", "1.5nJ/B". Empty if it is none of these.
std::optional<std::uint64_t> parse_energy(std::string_view text);

/// "1.5 us", "40 ps"; exact, parse_time reads it back.
std::string to_text(picoseconds time);
/// "25 GB/s"; exact, parse_rate reads it back.
std::string rate_text(std::uint64_t bytes_per_second);
/// "5 W"; exact, parse_power reads it back.
std::string power_text(std::uint64_t microwatts);
/// "80 pJ/B"; exact, parse_energy reads it back.
std::string energy_text(std::uint64_t femtojoules_a_byte);

}  // namespace troupe
