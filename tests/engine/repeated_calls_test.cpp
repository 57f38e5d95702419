// SPDX-License-Identifier: Apache-2.0
// Blocking calls that repeat one that was checked before, or look like it.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "engine/api/troupe.hpp"

using namespace troupe;

namespace {

constexpr int again = 4;  // the first call plans, the second is found right, the third is not checked

std::error_code code_of(const auto& call) {
  try {
    call();
  } catch (const error& e) {
    return e.code();
  }
  return {};
}

}  // namespace

TEST_CASE("what a repeated call was found right for is checked again when it changes") {
  engine e;
  e.run(2, [](communicator& c) {
    std::vector<float> in(8, 1), out(8);
    for (int k = 0; k < again; ++k) c.all_reduce(std::span<const float>(in), std::span<float>(out));
    // The same begins and the same count, but less room. Every rank is refused alike.
    CHECK(code_of([&] { c.all_reduce(std::span<const float>(in), std::span<float>(out).first(7)); }) ==
          make_error_code(errc::invalid_argument));
    for (int k = 0; k < again; ++k) c.all_reduce(in.data(), out.data(), 8, datatype::f32);
    CHECK(code_of([&] { c.all_reduce(in.data(), in.data() + 1, 4, datatype::f32); }) ==
          make_error_code(errc::buffers_overlap));
    CHECK(code_of([&] { c.all_reduce(in.data(), out.data(), 8, datatype::f32, band); }) ==
          make_error_code(errc::unsupported_type));
    CHECK(code_of([&] {
            c.all_reduce(in.data(), out.data(), 8, datatype::f32, sum, {.choreography = "no such thing"});
          }) == make_error_code(errc::unsupported));
    c.all_reduce(in.data(), out.data(), 8, datatype::f32);
    CHECK(out == std::vector<float>(8, 2));
  });
}

TEST_CASE("calls that differ in size, operation, type, place or root alternate in the same buffers") {
  engine e;
  e.run(3, [](communicator& c) {
    const auto me = static_cast<std::size_t>(c.rank());
    std::array<std::int32_t, 24> in{}, out{};
    for (int k = 0; k < again; ++k) {
      for (const std::size_t count : {std::size_t{17}, std::size_t{18}, std::size_t{0}, std::size_t{20}}) {
        in.fill(c.rank() + 1);
        out.fill(-1);
        c.all_reduce(in.data(), out.data(), count, datatype::i32);
        CHECK(std::count(out.begin(), out.end(), 6) == static_cast<std::ptrdiff_t>(count));
        c.all_reduce(in.data(), out.data(), count, datatype::i32, maximum);
        CHECK(std::count(out.begin(), out.end(), 3) == static_cast<std::ptrdiff_t>(count));
        c.all_reduce(in.data(), out.data(), count, datatype::u8);
        if (count > 0) CHECK(reinterpret_cast<const std::uint8_t*>(out.data())[0] == 6);
        c.all_reduce(in.data(), in.data(), count, datatype::i32);
        CHECK(std::count(in.begin(), in.end(), 6) == static_cast<std::ptrdiff_t>(count));
      }
      for (rank_t root = 0; root < 3; ++root) {
        in.fill(10 * k + c.rank());
        c.broadcast(in.data(), 5, datatype::i32, root);
        CHECK(in[4] == 10 * k + root);
        CHECK(in[5] == 10 * k + c.rank());
        out.fill(-1);
        in.fill(c.rank());
        c.gather(in.data(), out.data(), 2, datatype::i32, root);
        CHECK(std::count(out.begin(), out.end(), -1) == (c.rank() == root ? 18 : 24));
      }
      for (std::size_t i = 0; i < 6; ++i) in[i] = static_cast<std::int32_t>(10 * me + i / 2);
      c.all_to_all(std::span<const std::int32_t>(in).first(6), std::span<std::int32_t>(out).first(6));
      for (std::size_t i = 0; i < 6; ++i) CHECK(out[i] == static_cast<std::int32_t>(10 * (i / 2) + me));
    }
  });
}

TEST_CASE("a factor that changes is multiplied by, in the buffers of the call before") {
  engine e;
  for (const std::size_t count : {std::size_t{4}, std::size_t{1000}, std::size_t{100'000}})
    e.run(2, [&](communicator& c) {
      std::vector<float> in(count, 1), out(count);
      const block_list blocks{{count / 4, count - count / 4}};
      const std::size_t mine = blocks.counts[static_cast<std::size_t>(c.rank())];
      const float nan = std::numeric_limits<float>::quiet_NaN();
      for (int k = 0; k < again; ++k)
        for (const float factor : {2.0f, 0.5f, 1.0f, -0.0f, 0.0f, nan, 3.0f}) {
          CAPTURE(factor);
          const float wanted = factor * 1 + (factor + 1) * 1;  // each rank has its own
          const op scaled = pre_mul_sum(c.rank() == 0 ? factor : factor + 1);
          const auto all_are = [&](std::size_t elements, float value) {
            return std::all_of(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(elements),
                               [&](float x) { return std::isnan(value) ? std::isnan(x) : x == value; });
          };
          out.assign(count, -7);
          c.all_reduce(in, out, scaled);
          CHECK(all_are(count, wanted));
          out.assign(count, -7);
          c.reduce_scatter_v(in.data(), out.data(), blocks, datatype::f32, scaled);
          CHECK(all_are(mine, wanted));
          c.all_reduce(in, out);
          CHECK(all_are(count, 2));
          // Others of the class that are not blocking are remembered, too, with their own factors.
          for (int repeated = 0; repeated < 3; ++repeated) {
            c.all_reduce(in, out, pre_mul_sum(2));
            CHECK(all_are(count, 4));
            c.all_reduce_async(in, out, scaled).wait();
            CHECK(all_are(count, wanted));
            c.reduce_scatter_v(in.data(), out.data(), blocks, datatype::f32, pre_mul_sum(2));
            CHECK(all_are(mine, 4));
            c.reduce_scatter_v_async(in.data(), out.data(), blocks, datatype::f32, scaled).wait();
            CHECK(all_are(mine, wanted));
          }
          // −0 is not the same factor as 0: the results have its sign.
          c.all_reduce(in, out, pre_mul_sum(std::copysign(0.0, factor)));
          CHECK(std::signbit(out[0]) == std::signbit(factor));
        }
    });
}

TEST_CASE("a repeated call is right after so many others that it was forgotten") {
  engine e;
  e.run(2, [](communicator& c) {
    std::vector<std::int64_t> in(300), out(300);
    for (int k = 1; k <= again; ++k)
      for (std::size_t count = 1; count <= 300; count += 3) {
        std::fill(in.begin(), in.end(), k + c.rank());
        std::fill(out.begin(), out.end(), 0);
        for (int twice = 0; twice < 2; ++twice) c.all_reduce(in.data(), out.data(), count, datatype::i64);
        CHECK(std::count(out.begin(), out.end(), 2 * k + 1) == static_cast<std::ptrdiff_t>(count));
      }
  });
}

TEST_CASE("lists of counts and displacements are checked again when they change") {
  engine_options strict;  // else the other rank, which only gives, hears of a refusal with a later call
  strict.agreement = agreement_time::strict;
  engine e{strict};
  e.run(2, [](communicator& c) {
    const bool root = c.rank() == 0;
    std::array<std::int32_t, 2> in{c.rank() + 1, c.rank() + 1};
    std::array<std::int32_t, 6> out{};
    const auto gather = [&](std::vector<std::size_t> counts, std::vector<std::size_t> begins = {}) {
      const std::size_t own = counts[static_cast<std::size_t>(c.rank())];
      if (!root) counts = {own}, begins.clear();
      out.fill(0);
      c.gather_v(in.data(), own, out.data(), block_list{std::move(counts), std::move(begins)}, datatype::i32, 0);
    };
    using six = std::array<std::int32_t, 6>;
    for (int k = 0; k < again; ++k) {
      gather({2, 2});
      if (root) CHECK(out == six{1, 1, 2, 2});
      gather({1, 2});
      if (root) CHECK(out == six{1, 2, 2});
      gather({2, 1}, {4, 0});
      if (root) CHECK(out == six{2, 0, 0, 0, 1, 1});
      gather({2, 1}, {0, 4});
      if (root) CHECK(out == six{1, 1, 0, 0, 2});
    }
    const auto refused = code_of([&] { gather({2, 2}, {0, 1}); });
    CHECK(refused == make_error_code(root ? errc::buffers_overlap : errc::peer_refused));
    for (int k = 0; k < again; ++k) gather({2, 2}, {0, 2});
    if (root) CHECK(out == six{1, 1, 2, 2});
  });
}

TEST_CASE("v-forms that repeat each other's buffers with other lists give what those say") {
  engine e;
  for (const int ranks : {2, 3, 5}) {
    e.run(ranks, [&](communicator& c) {
      const auto n = static_cast<std::size_t>(ranks), me = static_cast<std::size_t>(c.rank());
      std::vector<std::int32_t> in(4 * n), out(4 * n);
      const auto elements = [&](std::size_t from, std::size_t to, int k) {
        return (from + 2 * to + static_cast<std::size_t>(k)) % 4;
      };
      for (int round = 0; round < 3 * again; ++round) {
        const int k = round / 2 % 3;  // each list twice in a row, and again later
        std::vector<std::size_t> send(n), receive(n), common(n);
        for (std::size_t r = 0; r < n; ++r) {
          send[r] = elements(me, r, k);
          receive[r] = elements(r, me, k);
          common[r] = elements(r, 0, k);
        }
        std::iota(in.begin(), in.end(), static_cast<std::int32_t>(1000 * me));
        std::fill(out.begin(), out.end(), -1);
        c.all_to_all_v(in.data(), block_list{send}, out.data(), block_list{receive}, datatype::i32);
        std::size_t at = 0;
        for (std::size_t r = 0; r < n; ++r) {
          std::size_t before = 0;
          for (std::size_t t = 0; t < me; ++t) before += elements(r, t, k);
          for (std::size_t i = 0; i < receive[r]; ++i)
            CHECK(out[at++] == static_cast<std::int32_t>(1000 * r + before + i));
        }
        CHECK(std::count(out.begin(), out.end(), -1) == static_cast<std::ptrdiff_t>(out.size() - at));
        std::fill(out.begin(), out.end(), -1);
        c.all_gather_v(in.data(), out.data(), block_list{common}, datatype::i32);
        at = 0;
        for (std::size_t r = 0; r < n; ++r)
          for (std::size_t i = 0; i < common[r]; ++i) CHECK(out[at++] == static_cast<std::int32_t>(1000 * r + i));
      }
    });
  }
}

TEST_CASE("v-forms with other counts, places, roots and types in every call, and wrong ones among them") {
  engine e;
  for (const int n : {1, 2, 3})
    e.run(n, [n](communicator& c) {
      const auto me = static_cast<std::size_t>(c.rank()), ranks = static_cast<std::size_t>(n);
      for (std::size_t k = 0; k < 60; ++k) {
        block_list blocks;
        for (std::size_t r = 0; r < ranks; ++r) blocks.counts.push_back((k * 7 + r * 3) % 23);
        const std::size_t all = std::accumulate(blocks.counts.begin(), blocks.counts.end(), std::size_t{0});
        const std::size_t own = blocks.counts[me];
        std::size_t before = 0;
        for (std::size_t r = 0; r < me; ++r) before += blocks.counts[r];
        const auto root = static_cast<rank_t>(k % ranks);
        const auto expected = [&](std::size_t r) { return static_cast<std::int32_t>(r * 100 + k); };
        const auto right = [&](const std::vector<std::int32_t>& out) {
          std::size_t at = 0;
          for (std::size_t r = 0; r < ranks; ++r)
            for (std::size_t i = 0; i < blocks.counts[r]; ++i)
              if (out[at++] != expected(r)) return false;
          return true;
        };
        std::vector<std::int32_t> in(own + 1, expected(me)), out(all + 1, -1);
        c.all_gather_v(in.data(), out.data(), blocks, datatype::i32);
        CHECK(right(out));
        std::vector<std::int32_t> same(all + 1, -1);
        std::fill_n(same.begin() + static_cast<std::ptrdiff_t>(before), own, expected(me));
        c.all_gather_v(same.data() + before, same.data(), blocks, datatype::i32);
        CHECK(right(same));
        std::fill(out.begin(), out.end(), -1);
        c.gather_v(in.data(), own, out.data(), blocks, datatype::i32, root);
        if (c.rank() == root) CHECK(right(out));
        std::vector<std::int32_t> back(own + 1, -1);
        c.scatter_v(same.data(), blocks, back.data(), own, datatype::i32, root);
        CHECK(std::all_of(back.begin(), back.end() - 1, [&](std::int32_t v) { return v == expected(me); }));
        CHECK(back.back() == -1);
        // Refused on every rank: the output has one element too few.
        if (all > 0)
          CHECK(code_of([&] {
                  c.all_gather_v(std::span<const std::int32_t>(in).first(own),
                                 std::span<std::int32_t>(out).first(all - 1), blocks);
                }) == make_error_code(errc::invalid_argument));
        // The last block first.
        block_list turned = blocks;
        turned.displacements.assign(ranks, 0);
        for (std::size_t r = ranks - 1, at = 0; r < ranks; --r) turned.displacements[r] = at, at += blocks.counts[r];
        std::fill(out.begin(), out.end(), -1);
        c.all_gather_v(in.data(), out.data(), turned, datatype::i32);
        for (std::size_t r = 0; r < ranks; ++r)
          for (std::size_t i = 0; i < blocks.counts[r]; ++i) CHECK(out[turned.displacements[r] + i] == expected(r));
        std::vector<float> floats(all + 1, 1), sums(own + 1, -1);
        c.reduce_scatter_v(floats.data(), sums.data(), blocks, datatype::f32);
        CHECK(std::all_of(sums.begin(), sums.end() - 1, [&](float v) { return v == static_cast<float>(n); }));
        c.reduce_scatter_v(floats.data(), sums.data(), blocks, datatype::f32, average);
        CHECK(std::all_of(sums.begin(), sums.end() - 1, [&](float v) { return v == 1; }));
        block_list sent{std::vector<std::size_t>(ranks, k % 5)};
        std::vector<std::int32_t> to(ranks * (k % 5) + 1, expected(me)), from(ranks * (k % 5) + 1, -1);
        c.all_to_all_v(to.data(), sent, from.data(), sent, datatype::i32);
        for (std::size_t r = 0; r < ranks; ++r)
          for (std::size_t i = 0; i < k % 5; ++i) CHECK(from[r * (k % 5) + i] == expected(r));
      }
    });
}
