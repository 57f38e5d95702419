// SPDX-License-Identifier: Apache-2.0
// Between a host and the core groups of its card, in a running engine: what is uploaded and downloaded crosses PCIe, DMA engines and
// ring segments, byte for byte; an element that ends ends what has to pass it, by its name; deadline and cancel.

#include <caf/actor.hpp>
#include <caf/exit_reason.hpp>
#include <caf/scoped_actor.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "actors/caf/caf_compat.hpp"
#include "actors/caf/fabric.hpp"
#include "actors/caf/runtime_hidden.hpp"
#include "engine/api/caf_actors.hpp"
#include "engine/api/troupe.hpp"
#include "tests/actors/request_ends.hpp"
#include "tests/seed.hpp"
#include "topology/machine/routes.hpp"
#include "topology/machine/shared_segment.hpp"

namespace host_transfers_test {

using namespace troupe;
using namespace troupe::request_ends;
using namespace std::chrono_literals;

namespace {

constexpr int pieces = 8;  // of an upload

engine_options with_host(const std::string& places, const char* choreography) {
  engine_options o;
  o.protocol = "simple";
  o.layout = places;
  o.choreography = choreography;
  return o;
}

std::byte content(std::size_t i, int of) {
  return static_cast<std::byte>(i * 31 + i / 251 + static_cast<unsigned>(of));
}

/// What rank `host` has, on all others. Counts bytes that are wrong.
int upload(communicator& c, int host, std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  if (c.rank() == host)
    for (std::size_t i = 0; i < bytes; ++i) data[i] = content(i, host);
  c.broadcast(data, host);
  int wrong = 0;
  for (std::size_t i = 0; i < bytes; ++i) wrong += data[i] != content(i, host);
  return wrong;
}

/// What the core groups have, one behind the other, at the host, which has nothing of its own.
int download(communicator& c, int host, std::size_t bytes) {
  const int n = c.size();
  block_list blocks;
  for (int r = 0; r < n; ++r) blocks.counts.push_back(r == host ? 0 : bytes);
  std::vector<std::byte> own(c.rank() == host ? 0 : bytes),
      all(c.rank() == host ? bytes * (blocks.counts.size() - 1) : 0);
  for (std::size_t i = 0; i < own.size(); ++i) own[i] = content(i, c.rank());
  c.gather_v(own, all, blocks, host);
  int wrong = 0;
  std::size_t at = 0;
  for (int r = 0; r < n && c.rank() == host; ++r)
    for (std::size_t i = 0; r != host && i < bytes; ++i) wrong += all[at++] != content(i, r);
  return wrong;
}

using carried = std::map<std::string, std::uint64_t>;

/// Bytes by element, from the ways that the topology names.
class expected {
public:
  explicit expected(const std::string& places) : on_(layout::parse(places)) {}

  void send(int from, int to, std::uint64_t bytes) {
    if (on_.ranks().of(from) == on_.ranks().of(to)) return within(from, bytes);
    for (const hop& h : route_between(on_, from, to).hops)
      all[on_.to_string({h.kind, h.server, h.card, h.index, h.way})] += bytes;
  }
  void within(int rank, std::uint64_t bytes) {
    all[on_.to_string(on_.at(on_.memory_of(on_.ranks().of(rank))))] += bytes;
  }

  carried all;

private:
  machine on_;
};

carried measured(const engine& e) {
  carried all;
  for (const element_traffic& of : e.traffic())
    if (of.bytes > 0) all[of.element] = of.bytes;
  return all;
}

}  // namespace

TEST_CASE("upload: through L2 once over PCIe, or once for each core group, byte for byte on every element") {
  for (const int n : {2, 3, 4, 5})
    for (const bool once : {true, false}) {
      CAPTURE(n);
      CAPTURE(once);
      const std::string places = "1x1x" + std::to_string(n) + "+host";
      engine_options o = with_host(places, once ? "one_copy" : "each_a_copy");
      o.channels = 1;
      o.trace_routes = true;
      engine e{o};
      auto comms = e.communicators(n + 1);
      constexpr std::size_t bytes = pieces * 5120;
      std::atomic<int> wrong{0};
      on_threads(comms, [&](communicator& c) { wrong += upload(c, n, bytes); });
      CHECK(wrong == 0);
      expected want{places};
      for (int r = 0; r < n; ++r)
        if (once) want.within(r, bytes);  // from L0 to the output
        else want.send(n, r, bytes);
      if (once) want.within(n, bytes);  // to the staging memory
      for (int p = 0; once && p < pieces; ++p) {
        const int home = holder_of_share(layout::parse(places), home_of_shared_cell(p, pieces, n + 1));
        want.send(n, home, bytes / pieces);
        for (int r = 0; r < n; ++r) want.send(home, r, bytes / pieces);
      }
      const carried got = measured(e);
      CHECK(got == want.all);
      CHECK(got.at("pcie 0.0 down") == (once ? 1 : static_cast<std::uint64_t>(n)) * bytes);
      CHECK_FALSE(got.contains("pcie 0.0 up"));
    }
}

TEST_CASE("download: what each core group has, put together at the host, byte for byte on every element") {
  for (const bool once : {true, false}) {
    CAPTURE(once);
    const std::string places = "1x1x4+host";
    engine_options o = with_host(places, once ? "one_copy" : "each_a_copy");
    o.channels = 1;
    o.trace_routes = true;
    engine e{o};
    auto comms = e.communicators(5);
    constexpr std::size_t bytes = 12'345;
    std::atomic<int> wrong{0};
    on_threads(comms, [&](communicator& c) { wrong += download(c, 4, bytes); });
    CHECK(wrong == 0);
    expected want{places};
    for (int r = 0; r < 4; ++r) {
      want.send(r, 4, bytes);
      if (!once) continue;
      want.within(r, 2 * bytes);  // to L0, and into the own share
      want.within(4, bytes);
    }
    CHECK(measured(e) == want.all);
    CHECK(measured(e).at("pcie 0.0 up") == 4 * bytes);
  }
}

TEST_CASE("uploads and downloads of any size, channels and slices, wherever the host's rank is; and other calls beside "
          "them") {
  std::mt19937_64 random(seed());
  for (const char* places : {"1x1x4+host", "0.0.2,0.host,0.0.0,0.0.1", "4+host", "1x1x1+host"})
    for (const char* way : {"one_copy", "each_a_copy", "auto"})
      for (int round = 0; round < 3; ++round) {
        CAPTURE(places);
        CAPTURE(way);
        const layout on = layout::parse(places);
        int host = 0;
        while (!on.of(host).host) ++host;
        engine_options o = with_host(places, "auto");
        o.channels = 1 + static_cast<int>(random() % 3);
        o.chunk_bytes = random() % 2 == 0 ? 0 : std::size_t{1024} << random() % 4;
        o.card.l0 = random() % 2 == 0 ? 64 * 1024 : card_sizes{}.l0;
        engine e{o};
        auto comms = e.communicators(on.size());
        const std::size_t bytes = random() % 100'000;
        std::atomic<int> wrong{0};
        on_threads(comms, [&](communicator& c) {
          std::vector<std::byte> data(bytes);
          if (c.rank() == host)
            for (std::size_t i = 0; i < bytes; ++i) data[i] = content(i, 7);
          c.broadcast(data, host, {.choreography = way});
          for (std::size_t i = 0; i < bytes; ++i) wrong += data[i] != content(i, 7);
          wrong += download(c, host, bytes / 4);
          // What is no upload goes by others, the host among them, whose memory in the place of L0 csc uses, too.
          for (const char* by : {"ring", "csc"}) {
            std::vector<std::int32_t> sum(500, c.rank());
            c.all_reduce(sum, {.choreography = by});
            wrong += sum[499] != c.size() * (c.size() - 1) / 2;
          }
        });
        CHECK(wrong == 0);
      }
}

namespace {

/// One upload after the other. `before(k)`: the k-th is about to begin. `meanwhile(r)`: it has begun.
void upload_often(communicator& c, int calls, std::size_t bytes, const call_options& with, ends& to,
                  const std::function<void(int)>& before, const std::function<void(request&)>& meanwhile) {
  const int host = c.size() - 1;
  for (int k = 0; k < calls; ++k) {
    if (before) before(k);
    std::vector<std::byte> data(bytes, c.rank() == host ? std::byte{7} : std::byte{0});
    request r;
    try {
      r = c.broadcast_async(data, host, with);
    } catch (const error& e) {
      const std::lock_guard lock(to.mutex);
      to.codes.insert(e.code_value());
      to.texts.insert(e.what());
      continue;
    }
    if (meanwhile) meanwhile(r);
    to.add(r, [&] { return data == std::vector<std::byte>(bytes, std::byte{7}); });
  }
}

void kill(engine& e, const caf::actor& who) {
  caf::scoped_actor self{caf_system(e)};
  self->monitor(who);
  actors::post_exit(who, caf::exit_reason::kill);
  self->receive([](const caf::down_msg&) {});
}

actors::fabric& elements_of(engine& e) { return *runtime_of(e).inside().ways; }

}  // namespace

TEST_CASE("an element between host and core groups that ends ends uploads by its name, on all ranks, now and later") {
  struct victim {
    const char* way;
    int from, to;
    std::size_t hop;
    const char* named;
  };
  std::mt19937_64 random(seed());
  for (const victim& v :
       {victim{"one_copy", 4, 0, 0, "host 0 has ended"}, victim{"one_copy", 4, 0, 1, "pcie 0.0 down has ended"},
        victim{"one_copy", 0, 4, 1, "pcie 0.0 up has ended"},  // by which the host hears what was written
        victim{"one_copy", 4, 2, 2, "core group 0.0.2 has ended"},
        victim{"one_copy", 0, 1, 1, "ring 0.0:0→1 has ended"}, victim{"each_a_copy", 4, 3, 0, "host 0 has ended"},
        victim{"each_a_copy", 4, 3, 1, "pcie 0.0 down has ended"},
        victim{"each_a_copy", 4, 3, 2, "core group 0.0.3 has ended"}})
    for (const std::size_t bytes : {std::size_t{800}, std::size_t{300'000}}) {
      CAPTURE(v.way);
      CAPTURE(v.named);
      engine e{with_host("1x1x4+host", v.way)};
      auto comms = e.communicators(5);
      const caf::actor who = elements_of(e).path_between(v.from, v.to, 0)->hops.at(v.hop);
      ends now, later;
      const int when = static_cast<int>(random() % 4);
      const auto pause = std::chrono::microseconds(random() % 700);
      on_threads(comms, [&](communicator& c) {
        upload_often(c, 12, bytes, {}, now,
                     [&](int k) {
                       if (c.rank() != 3 || k != when) return;
                       std::this_thread::sleep_for(pause);
                       kill(e, who);
                       while (!elements_of(e).any_ended()) std::this_thread::yield();  // CAF 1.x says the other first
                     },
                     {});
      });
      CHECK(now.hanging == 0);
      CHECK(now.wrong == 0);
      CHECK(now.codes == std::set{errc::actor_lost});
      CHECK(now.names(v.named));
      on_threads(comms, [&](communicator& c) { upload_often(c, 1, bytes, {}, later, {}, {}); });
      CHECK(later.hanging == 0);
      CHECK(later.good == 0);
      CHECK(later.codes == std::set{errc::actor_lost});
      CHECK(later.names(v.named));
    }
}

TEST_CASE("uploads whose requests to the card are lost end by a deadline or by cancel, and later ones are right") {
  for (const bool late : {true, false}) {
    CAPTURE(late);
    engine_options o = with_host("1x1x4+host", "one_copy");
    o.faults = {.seed = seed(), .drop = 0.2};
    engine e{o};
    auto comms = e.communicators(5);
    ends t;
    call_options with;
    if (late) with.deadline = 20ms;
    on_threads(comms, [&](communicator& c) {
      upload_often(c, 6, 4000, with, t, {}, [&](request& r) {
        if (late) return;
        std::this_thread::sleep_for(2ms);
        r.cancel();
      });
    });
    CHECK(t.hanging == 0);
    CHECK(t.wrong == 0);
    for (const errc code : t.codes)
      CHECK((code == errc::timed_out || code == errc::cancelled || code == errc::message_lost));
    CHECK_FALSE(t.codes.empty());
  }
  engine e{with_host("1x1x4+host", "one_copy")};
  auto comms = e.communicators(5);
  ends t;
  std::mt19937_64 random(seed());
  std::atomic<int> wrong{0};
  for (int round = 0; round < 10; ++round) {
    const auto pause = std::chrono::microseconds(random() % 500);
    on_threads(comms, [&](communicator& c) {
      upload_often(c, 1, 200'000, {}, t, {}, [&](request& r) {
        if (c.rank() != 4) return;
        std::this_thread::sleep_for(pause);
        r.cancel();
      });
      wrong += upload(c, 4, 5000);
    });
  }
  CHECK(t.hanging == 0);
  CHECK(t.wrong == 0);
  CHECK(wrong == 0);
}

}  // namespace host_transfers_test
