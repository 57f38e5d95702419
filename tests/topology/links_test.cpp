// SPDX-License-Identifier: Apache-2.0
#include "topology/machine/graph.hpp"
#include "topology/machine/links.hpp"

#include "tests/seed.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <random>
#include <set>
#include <string>

using namespace troupe;
using std::chrono::nanoseconds;

TEST_CASE("times are α + bytes / bandwidth in whole picoseconds, rounded up") {
  const link_parameters link{nanoseconds{500}, 100'000'000'000};
  CHECK(link.occupancy(0).count() == 0);
  CHECK(link.occupancy(8).count() == 80);
  CHECK(link.occupancy(1'000'000).count() == 10'000'000);
  CHECK(link.time_of(0) == nanoseconds{500});
  CHECK(link.time_of(8).count() == 500'080);
  CHECK(link_parameters{nanoseconds{0}, 3}.occupancy(1).count() == 333'333'333'334);
}

TEST_CASE("extreme sizes saturate instead of wrapping") {
  const auto most = std::numeric_limits<std::uint64_t>::max();
  CHECK(link_parameters{nanoseconds{1}, 0}.time_of(most) == picoseconds::max());
  CHECK(link_parameters{nanoseconds::max(), most}.time_of(1) == picoseconds::max());
  CHECK(link_parameters{nanoseconds{-5}, 1'000'000'000'000}.time_of(1).count() == 1);
}

TEST_CASE("property: occupancy is the smallest time in which the bytes fit") {
  std::mt19937_64 random(seed());
  CAPTURE(seed());
  __extension__ using wide = unsigned __int128;
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t rate = random() % 400'000'000'000 + 1'000'000, bytes = random() % (1u << 31);
    const auto time = static_cast<std::uint64_t>(link_parameters{nanoseconds{0}, rate}.occupancy(bytes).count());
    const wide needed = wide{bytes} * 1'000'000'000'000u;
    CHECK((wide{time} * rate >= needed));  // doctest cannot print 128 bits
    if (time > 0) CHECK((wide{time - 1} * rate < needed));
  }
}

TEST_CASE("every class has a name, a usable default and says where it comes from") {
  std::set<std::string> names;
  for (int c = 0; c < link_class_count; ++c) {
    const auto& d = default_of(static_cast<link_class>(c));
    CHECK(d.parameters.alpha > nanoseconds{0});
    CHECK(d.parameters.bytes_per_second > 1'000'000'000);
    CHECK(d.source.size() > 20);
    if (d.alpha_from == provenance::cited || d.bandwidth_from == provenance::cited)
      CHECK(d.source.find("spec ") != std::string::npos);
    names.emplace(name(static_cast<link_class>(c)));
  }
  CHECK(names.size() == link_class_count);
  CHECK(default_of(link_class::ring_bus).parameters.bytes_per_second == 100'000'000'000);
}

TEST_CASE("elements belong to link classes") {
  CHECK(link_class_of(element_kind::ring_segment) == link_class::ring_bus);
  CHECK(link_class_of(element_kind::nic) == link_class::nic);
  CHECK(link_class_of(element_kind::network_switch) == link_class::switch_fabric);
  CHECK(link_class_of(element_kind::pcie) == link_class::pcie);
}
