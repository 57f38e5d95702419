// SPDX-License-Identifier: Apache-2.0
#include "topology/machine/links.hpp"

#include <array>
#include <limits>

namespace troupe {

namespace {

using std::chrono::nanoseconds;

constexpr std::uint64_t gigabyte = 1'000'000'000;  // decimal, as the sources count

// In the order of link_class. "spec n" is the digest of the published system.
constexpr std::array<link_default, link_class_count> defaults{{
    {{nanoseconds{500}, 200 * gigabyte},
     provenance::assumed,
     provenance::assumed,
     "not published (spec 1 names HBM bandwidths only as symbols BL, BG); to be measured"},
    {{nanoseconds{100}, 100 * gigabyte},
     provenance::assumed,
     provenance::cited,
     "bandwidth: spec 1, BW_Ring = 100 GB/s; latency of a segment not published"},
    {{nanoseconds{1000}, 31'508'000'000},
     provenance::assumed,
     provenance::assumed,
     "spec 1 says x16 without a generation; gen 4 assumed: 16 GT/s x 16 lanes x 128/130 / 8"},
    {{nanoseconds{1000}, 100 * gigabyte},
     provenance::assumed,
     provenance::cited,
     "bandwidth: spec 4, inside a server \"100+ GB/s and microseconds\"; 1 us chosen from that range"},
    {{nanoseconds{1000}, 25 * gigabyte},
     provenance::assumed,
     provenance::cited,
     "bandwidth: spec 5, GH200 nodes 25 GB/s per direction (spec 4: 10-100 GB/s); latency to be measured"},
    {{nanoseconds{300}, 25 * gigabyte},
     provenance::assumed,
     provenance::assumed,
     "not published; non-blocking, hence the NIC's bandwidth per port"},
    {{nanoseconds{100}, 100 * gigabyte},
     provenance::assumed,
     provenance::assumed,
     "not published; a few channels of DDR4, far more than PCIe takes"},
}};

__extension__ using wide = unsigned __int128;  // bytes · 10^12 needs up to 104 bits

picoseconds saturated(wide count) noexcept {
  constexpr auto most = static_cast<wide>(std::numeric_limits<std::int64_t>::max());
  return picoseconds{static_cast<std::int64_t>(count < most ? count : most)};
}

wide transfer_time(const link_parameters& link, std::uint64_t bytes) noexcept {
  const wide rate = link.bytes_per_second == 0 ? 1 : link.bytes_per_second;
  return (wide{bytes} * 1'000'000'000'000u + rate - 1) / rate;
}

}  // namespace

std::string_view name(link_class c) noexcept {
  constexpr std::array<std::string_view, link_class_count> names{
      "core group memory", "ring bus", "PCIe", "card link", "NIC", "switch", "host memory"};
  const auto i = static_cast<std::size_t>(c);
  return i < names.size() ? names[i] : "unknown link";
}

picoseconds link_parameters::occupancy(std::uint64_t bytes) const noexcept {
  return saturated(transfer_time(*this, bytes));
}

picoseconds link_parameters::time_of(std::uint64_t bytes) const noexcept {
  const wide latency = alpha.count() > 0 ? wide{static_cast<std::uint64_t>(alpha.count())} * 1000u : wide{0};
  return saturated(transfer_time(*this, bytes) + latency);
}

const link_default& default_of(link_class c) noexcept {
  const auto i = static_cast<std::size_t>(c);
  return defaults[i < defaults.size() ? i : 0];
}

}  // namespace troupe
