// SPDX-License-Identifier: Apache-2.0
// Where ranks of several processes keep what a partitioned operation says: whose area is found, and when it is used again.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "actors/ports/parts/part_areas.hpp"
#include "memory/error.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/lower/partition.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

using found = part_areas::found;

part_links links_of(rank_t rank, int parts) {
  return {partition(lower_syncs(write_score(*find_choreography("ring"), flat_setup(collective::all_gather, 2))), parts),
          rank, 8};
}

/// Memory that two processes map, each with areas of its own in it, as they find them.
class region final : public board_memory {
public:
  explicit region(std::vector<std::byte>& memory, std::size_t& used) : memory_(memory), used_(used) {}
  bool between_processes() const noexcept override { return true; }
  bool has_membarrier() const noexcept override { return false; }
  void* root(std::size_t bytes) override {
    // The same for each: the first that is asked for.
    used_ = std::max(used_, rounded(bytes));
    return begin();
  }
  void* take(std::size_t bytes) noexcept override {
    if (rounded(bytes) > memory_.size() - alignment - used_) return nullptr;
    void* const at = begin() + used_;
    used_ += rounded(bytes);
    return at;
  }
  void give_back(void*) noexcept override {}

private:
  static std::size_t rounded(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }
  std::byte* begin() {
    const auto at = reinterpret_cast<std::uintptr_t>(memory_.data());
    return memory_.data() + (alignment - at % alignment) % alignment;
  }
  std::vector<std::byte>& memory_;
  std::size_t& used_;
};

struct two_processes_with_areas {
  explicit two_processes_with_areas(std::size_t bytes = 4u << 20) : memory(bytes) {}
  std::vector<std::byte> memory;
  std::size_t used = 0;
  region a{memory, used}, b{memory, used};
  part_areas first{2, a}, second{2, b};
  part_links of_0 = links_of(0, 3), of_1 = links_of(1, 3);
};

}  // namespace

TEST_CASE("a rank's area is found by its operation's number, as long as it is in it") {
  two_processes_with_areas both;
  link_view view;
  CHECK(both.second.find(5, 77, 0, view) == found::nothing);
  const link_view mine = both.first.enter(5, 77, 0, both.of_0);
  REQUIRE(both.second.find(5, 77, 0, view) == found::it);
  CHECK(view.member == mine.member);
  CHECK(view.news == mine.news);
  CHECK(view.lines == mine.lines);
  CHECK(view.stamp == mine.stamp);
  CHECK(view.names->load() == 6);
  CHECK(both.second.find(5, 78, 0, view) == found::unlike);
  CHECK(both.second.find(6, 77, 0, view) == found::nothing);
  CHECK(both.second.find(5, 77, 1, view) == found::nothing);
  both.first.leave(5, 0, true);
  CHECK(both.second.find(5, 77, 0, view) == found::nothing);
  CHECK(mine.names->load() == 0);
}

TEST_CASE("the area of what was performed serves the next operation, with another stamp") {
  two_processes_with_areas both;
  const link_view before = both.first.enter(5, 77, 0, both.of_0);
  before.member->told.store(true);
  before.member->waits.store(true);
  both.first.leave(5, 0, true);
  const std::size_t used = both.used;
  const link_view after = both.first.enter(6, 78, 0, both.of_0);
  CHECK(both.used == used);
  CHECK(after.lines == before.lines);
  CHECK(after.stamp == before.stamp + 1);
  CHECK_FALSE(after.member->told.load());
  CHECK_FALSE(after.member->waits.load());
}

TEST_CASE("the area of what has failed is not used before every rank has stopped") {
  two_processes_with_areas both;
  const link_view failed = both.first.enter(5, 77, 0, both.of_0);
  both.first.leave(5, 0, false);
  CHECK(failed.names->load() != 6);  // whoever has read from there does not believe it
  link_view view;
  CHECK(both.second.find(5, 77, 0, view) == found::nothing);
  const link_view other = both.first.enter(6, 78, 0, both.of_0);
  CHECK(other.lines != failed.lines);
  CHECK(other.names != failed.names);
  both.first.leave(5, 0, false);  // any number of times
  both.first.forget(5);
  CHECK(both.first.enter(7, 79, 0, both.of_0).lines == failed.lines);
}

TEST_CASE("what is forgotten while a rank is still in it goes on") {
  two_processes_with_areas both;
  const link_view mine = both.first.enter(5, 77, 0, both.of_0);
  both.first.forget(5);
  CHECK(mine.names->load() == 6);
  CHECK(both.first.enter(6, 78, 0, both.of_0).lines != mine.lines);
}

TEST_CASE("a longer operation gets an area of its own, and no more are laid down than were used at once") {
  two_processes_with_areas both;
  const part_links longer = links_of(0, 400);
  REQUIRE(longer.lines_of(0) > both.of_0.lines_of(0));
  std::size_t used = 0;
  for (epoch_t epoch = 0; epoch < 100; ++epoch) {
    const bool is_long = epoch % 3 == 0;
    const link_view view = both.first.enter(epoch, 1, 0, is_long ? longer : both.of_0);
    const std::uint32_t lines = (is_long ? longer : both.of_0).lines_of(0);
    for (std::uint32_t l = 0; l < lines; ++l) view.lines[l].sent.store(std::uint64_t{view.stamp} << 32 | 1);
    both.first.leave(epoch, 0, true);
    if (epoch == 2) used = both.used;
  }
  CHECK(both.used == used);
  CHECK(both.used <= part_areas::most_bytes(2));
}

TEST_CASE("more operations at once than a rank has areas, or less memory than they need, is said") {
  two_processes_with_areas both;
  for (epoch_t epoch = 0; epoch < part_areas::most; ++epoch) both.first.enter(epoch, 1, 0, both.of_0);
  CHECK_THROWS_WITH_AS(both.first.enter(99, 1, 0, both.of_0), "rank 0 is in 32 partitioned operations already", error);
  two_processes_with_areas small{sizeof(std::uint64_t) * 8192};
  CHECK_THROWS_AS(
      [&] {
        for (epoch_t epoch = 0; epoch < part_areas::most; ++epoch) small.first.enter(epoch, 1, 1, small.of_1);
      }(),
      error);
}

TEST_CASE("every rank's lines fit where links fit between processes") {
  const part_links few = links_of(0, 16), many = links_of(0, 1024);
  CHECK(few.fits_between_processes());
  CHECK(few.lines_of(0) + few.lines_of(1) == few.lines());
  CHECK(few.first_of(1) == few.lines_of(0));
  CHECK(many.fits());
  CHECK(many.fits_between_processes() == (many.lines() <= part_links::most_lines_between));
}
