// SPDX-License-Identifier: Apache-2.0
// A rank with an empty block had to point to where it would lie, if the others called in place: with a null pointer, as of an empty vector, all got
// errc::mismatch.

#include <doctest/doctest.h>

#include <troupe.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace empty_block_test {

using namespace troupe;

namespace {

constexpr std::size_t ranks = 3;

/// Where a rank's own block lies, among them where it would lie if it were not empty.
enum class where { in_place, apart, nowhere };

float value(std::size_t rank, std::size_t i) { return static_cast<float>(100 * rank + i); }

struct member {
  std::vector<float> all, own;
};

/// One call of all ranks. Returns how many elements are wrong.
std::size_t call(std::vector<communicator>& comms, collective what, const block_list& blocks,
                 const std::array<where, ranks>& places, const call_options& options) {
  const auto begin_of = [&](std::size_t r) {
    if (!blocks.displacements.empty()) return blocks.displacements[r];
    std::size_t before = 0;
    for (std::size_t i = 0; i < r; ++i) before += blocks.counts[i];
    return before;
  };
  std::size_t end = 0;
  for (std::size_t r = 0; r < ranks; ++r) end = std::max(end, begin_of(r) + blocks.counts[r]);
  std::array<member, ranks> members;
  group together;
  for (std::size_t r = 0; r < ranks; ++r) {
    member& m = members[r];
    m.all.assign(end, -1);
    const bool here = places[r] == where::in_place;
    if (!here && places[r] != where::nowhere) m.own.assign(std::max<std::size_t>(blocks.counts[r], 1), -1);
    float* const own = here ? m.all.data() + begin_of(r) : m.own.empty() ? nullptr : m.own.data();
    if (what == collective::all_gather) {
      for (std::size_t i = 0; i < blocks.counts[r]; ++i) own[i] = value(r, i);
      comms[r].join(together, calls::all_gather_v(own, m.all.data(), blocks, datatype::f32, options));
    } else {
      for (std::size_t q = 0; q < ranks; ++q)
        for (std::size_t i = 0; i < blocks.counts[q]; ++i) m.all[begin_of(q) + i] = value(q, i) + static_cast<float>(r);
      comms[r].join(together, calls::reduce_scatter_v(m.all.data(), own, blocks, datatype::f32, sum, options));
    }
  }
  together.wait();
  std::size_t wrong = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    const member& m = members[r];
    const float* const own = places[r] == where::in_place ? m.all.data() + begin_of(r) : m.own.data();
    if (what == collective::all_gather) {
      for (std::size_t q = 0; q < ranks; ++q)
        for (std::size_t i = 0; i < blocks.counts[q]; ++i) wrong += m.all[begin_of(q) + i] != value(q, i);
    } else {
      for (std::size_t i = 0; i < blocks.counts[r]; ++i) wrong += own[i] != 3 * value(r, i) + 3;
    }
  }
  return wrong;
}

}  // namespace

TEST_CASE("whose block is empty need not say where it would lie, in whatever place the others call") {
  engine e;
  auto comms = e.communicators(ranks);
  using enum where;
  for (const std::string protocol : {"", "simple", "ll", "direct"})
    for (const collective what : {collective::all_gather, collective::reduce_scatter})
      for (const block_list& blocks : {block_list{{3, 0, 5}}, block_list{{0, 40'000, 30'000}}, block_list{{7, 0, 0}},
                                       block_list{{2, 0, 4}, {1, 5, 9}}})
        for (const std::array<where, ranks>& places :
             {std::array{in_place, nowhere, in_place}, std::array{nowhere, in_place, apart},
              std::array{in_place, apart, nowhere}, std::array{in_place, in_place, in_place},
              std::array{apart, nowhere, apart}, std::array{apart, in_place, in_place}}) {
          std::array<where, ranks> can = places;
          for (std::size_t r = 0; r < ranks; ++r)
            if (can[r] == nowhere && blocks.counts[r] > 0) can[r] = in_place;
          CAPTURE(protocol);
          CAPTURE(static_cast<int>(what));
          CAPTURE(blocks.counts[1]);
          call_options options;
          if (!protocol.empty()) options.protocol = *parse_message_protocol(protocol);
          if (protocol == "ll" && blocks.counts[1] > 1000) continue;  // beyond the slots
          CHECK(call(comms, what, blocks, can, options) == 0);
        }
}

TEST_CASE("where no block is empty all ranks agree on the place, as ever") {
  engine e;
  auto comms = e.communicators(ranks);
  using enum where;
  for (const collective what : {collective::all_gather, collective::reduce_scatter}) {
    CHECK(call(comms, what, {{3, 1, 5}}, {in_place, in_place, in_place}, {}) == 0);
    CHECK(call(comms, what, {{3, 1, 5}}, {apart, apart, apart}, {}) == 0);
    CHECK_THROWS_WITH_AS(call(comms, what, {{3, 1, 5}}, {in_place, apart, in_place}, {}), doctest::Contains("in place"),
                         error);
  }
}

TEST_CASE("blocking: blocks that are empty in one call and not in the next") {
  engine e;
  std::array<std::size_t, ranks> wrong{};
  e.run(ranks, [&](communicator& comm) {
    const auto me = static_cast<std::size_t>(comm.rank());
    std::vector<float> all(12);
    for (std::size_t round = 0; round < 60; ++round) {
      block_list blocks{{4, 4, 4}};
      if (round % 3 != 0) blocks.counts[round % ranks] = 0;
      std::size_t before = 0;
      for (std::size_t r = 0; r < me; ++r) before += blocks.counts[r];
      all.assign(all.size(), -1);
      const std::span<float> own =
          blocks.counts[me] == 0 ? std::span<float>{} : std::span{all}.subspan(before, blocks.counts[me]);
      for (std::size_t i = 0; i < own.size(); ++i) own[i] = value(me, i);
      comm.all_gather_v(own, all, blocks);
      std::size_t at = 0;
      for (std::size_t r = 0; r < ranks; ++r)
        for (std::size_t i = 0; i < blocks.counts[r]; ++i) wrong[me] += all[at++] != value(r, i);
    }
  });
  for (const std::size_t w : wrong) CHECK(w == 0);
}

}  // namespace empty_block_test
