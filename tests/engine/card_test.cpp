// SPDX-License-Identifier: Apache-2.0
// One call between the host and its card (engine/api/card.hpp): who is the host, equal bytes by both ways, in all forms and for objects of any size, what
// crosses PCIe, and what is refused.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "engine/api/troupe.hpp"
#include "memory/error.hpp"
#include "topology/layout/layout.hpp"

namespace card_test {

using namespace troupe;

namespace {

engine_options with_places(const std::string& places) {
  engine_options o;
  o.layout = places;
  o.trace_routes = true;
  return o;
}

std::uint64_t passed(const engine& e, const std::string& element) {
  for (const element_traffic& of : e.traffic())
    if (of.element == element) return of.bytes;
  return 0;
}

/// What every rank of `places` was told; empty where the call succeeded.
template <class Call>
std::set<std::string> said(const std::string& places, int ranks, Call&& call) {
  engine e{with_places(places)};
  std::set<std::string> all;
  std::mutex mutex;
  e.run(ranks, [&](communicator& c) {
    std::string text;
    try {
      call(c);
    } catch (const error& refused) {
      text = refused.what();
    }
    const std::lock_guard lock(mutex);
    all.insert(text);
  });
  return all;
}

bool names(const std::set<std::string>& texts, const std::string& part) {
  return std::all_of(texts.begin(), texts.end(),
                     [&](const std::string& text) { return text.find(part) != std::string::npos; });
}

/// Up, and what each core group makes of it down again. Counts what is wrong.
template <class T>
int there_and_back(card& on, rank_t me, std::size_t count, T one, host_way way) {
  std::vector<T> data(count);
  if (on.is_host()) data.assign(count, one);
  on.upload(data, way);
  int wrong = data != std::vector<T>(count, one);
  std::vector<T> part(on.is_host() ? 0 : count), whole;
  for (T& p : part) p = data[0] * T(static_cast<float>(me));
  if (on.is_host()) whole.resize(count * static_cast<std::size_t>(on.core_groups()));
  on.download(part, whole, way);
  std::size_t at = 0;
  for (rank_t r = 0; on.is_host() && r <= on.core_groups(); ++r)
    for (std::size_t i = 0; r != on.host() && i < count; ++i) wrong += whole[at++] != one * T(static_cast<float>(r));
  return wrong;
}

}  // namespace

TEST_CASE("upload and download are one call each: equal bytes by both ways, wherever the host is") {
  for (const char* places : {"1x1x4+host", "0.0.2,0.host,0.0.0,0.0.1", "1x1x1+host", "2+host", "1x2+host"})
    for (const host_way way : {host_way::one_copy, host_way::each_a_copy}) {
      if (way == host_way::one_copy && std::string{places} == "1x2+host") continue;  // core groups of two cards
      CAPTURE(places);
      CAPTURE(way == host_way::one_copy);
      engine e{with_places(places)};
      std::atomic<int> wrong{0};
      e.run(layout::parse(places).size(), [&](communicator& c) {
        card on{c};
        wrong += on.core_groups() != c.size() - 1 || on.is_host() != (c.rank() == on.host());
        wrong += !layout::parse(places).of(on.host()).host;
        for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{70'001}}) {
          wrong += there_and_back(on, c.rank(), count, 3.5F, way);
          wrong += there_and_back(on, c.rank(), count, std::complex<long double>{1, 2}, way);
        }
      });
      CHECK(wrong == 0);
    }
}

TEST_CASE("an upload goes over PCIe once through L2, or once for each core group") {
  constexpr std::size_t bytes = 80'000;
  for (const bool once : {true, false}) {
    CAPTURE(once);
    engine e{with_places("1x1x4+host")};
    e.run(5, [&](communicator& c) {
      card on{c};
      std::vector<std::byte> data(bytes), part(on.is_host() ? 0 : bytes), whole(on.is_host() ? 4 * bytes : 0);
      const host_way way = once ? host_way::one_copy : host_way::each_a_copy;
      on.upload(data, way);
      on.download(part, whole, way);
    });
    CHECK(passed(e, "pcie 0.0 down") == (once ? 1 : 4) * bytes);
    CHECK(passed(e, "pcie 0.0 up") == 4 * bytes);
  }
}

TEST_CASE("asynchronous, in a group and again and again, as other collectives") {
  engine e{with_places("1x1x3+host")};
  std::atomic<int> wrong{0};
  e.run(4, [&](communicator& c) {
    card on{c};
    std::vector<std::int32_t> data(500), part(on.is_host() ? 0 : 500), whole(on.is_host() ? 1500 : 0);
    const auto is = [&](int value) {
      return data == std::vector<std::int32_t>(500, value) && whole == std::vector<std::int32_t>(whole.size(), value);
    };
    const auto begin = [&](int value) {
      std::fill(data.begin(), data.end(), on.is_host() ? value : 0);
      std::fill(part.begin(), part.end(), value);
    };
    begin(1);
    request up = on.upload_async(data), down = on.download_async(part, whole, host_way::each_a_copy);
    up.wait();
    down.wait();
    wrong += !is(1);
    begin(2);
    group both;
    on.upload_async(both, data, host_way::each_a_copy);
    on.download_async(both, part, whole);
    both.wait();
    wrong += !is(2);
    persistent up_again = on.upload_init(data), down_again = on.download_init(part, whole);
    for (int k = 3; k < 8; ++k) {
      begin(k);
      up_again.start().wait();
      down_again.start().wait();
      wrong += !is(k);
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("a card needs one host and its core groups; sizes that do not fit are an error on all ranks") {
  const auto only = [](communicator& c) { card on{c}; };
  CHECK(names(said("1x1x4", 4, only), "card: world has no rank at a host (layout \"1x1x4+host\")"));
  CHECK(names(said("2x1x2+host", 6, only), "card: world has two ranks at a host, 4 and 5; split it"));
  CHECK(names(said("1x1x2+host", 3,
                   [](communicator& c) {
                     communicator part = c.split(c.rank() / 2, 0);  // the host has a communicator of its own
                     if (c.rank() == 2) card on{part};
                     else throw error(errc::unsupported, "has a host, and no core group");
                   }),
              "has a host, and no core group"));
  CHECK(names(said("1x2+host", 3,
                   [](communicator& c) {
                     std::vector<float> data(10);
                     card{c}.upload(data);
                   }),
              "it goes through the L2 of one card"));
  CHECK(names(said("1x1x3+host", 4,
                   [](communicator& c) {
                     std::vector<float> part(c.rank() == 3 ? 0 : 5), whole(c.rank() == 3 ? 16 : 0);
                     card{c}.download(part, whole);
                   }),
              "output has 16 elements but the call needs 18"));
  CHECK(names(said("1x1x3+host", 4,
                   [](communicator& c) {
                     std::vector<float> data(c.rank() == 1 ? 5 : 4);
                     card{c}.upload(data);
                   }),
              "called different operations"));
  // The hosts of several servers: each with its own cards.
  CHECK(said("2x1x2+host", 6, [](communicator& c) {
          communicator part = c.split(c.rank() < 4 ? c.rank() / 2 : c.rank() - 4, 0);
          card on{part};
          std::vector<int> data(100, on.is_host() ? 7 : 0);
          on.upload(data);
          if (data[99] != 7) throw error(errc::invalid_argument, "wrong");
        }) == std::set<std::string>{""});
}

}  // namespace card_test
