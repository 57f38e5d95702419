// SPDX-License-Identifier: Apache-2.0
// Elements of a modelled machine that end in a running engine: the operations that need one end with an error that names it, on all
// ranks, and hand their memory back; others go on.

#include <caf/actor.hpp>
#include <caf/exit_reason.hpp>
#include <caf/scoped_actor.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
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

namespace ended_elements_test {

using namespace troupe;
using namespace troupe::request_ends;
using namespace std::chrono_literals;

namespace {

actors::fabric& elements_of(engine& e) { return *runtime_of(e).inside().ways; }

/// The element of that place on the way between two ranks.
caf::actor on_way(engine& e, int from, int to, std::size_t hop) {
  return elements_of(e).path_between(from, to, 0)->hops.at(hop);
}

/// Returns when it has ended.
void kill(engine& e, const caf::actor& who) {
  caf::scoped_actor self{caf_system(e)};
  self->monitor(who);
  actors::post_exit(who, caf::exit_reason::kill);
  self->receive([](const caf::down_msg&) {});
}
void kill_element(engine& e, const caf::actor& who) {
  kill(e, who);
  while (!elements_of(e).any_ended()) std::this_thread::yield();  // CAF 1.x says the other first
}

engine_options on_layout(const char* layout, const char* choreography) {
  engine_options o;
  o.protocol = "simple";
  o.layout = layout;
  o.choreography = choreography;
  return o;
}

/// `calls` all_gathers one after the other. `before(k)`: call k is about to be made.
void gather(communicator& c, int calls, std::size_t count, ends& to, const std::function<void(int)>& before = {}) {
  const std::vector<float> in(count, static_cast<float>(c.rank()));
  for (int k = 0; k < calls; ++k) {
    if (before) before(k);
    std::vector<float> out(count * static_cast<std::size_t>(c.size()), -1.0F);
    request r;
    try {
      r = c.all_gather_async(in, out);
    } catch (const error& e) {
      const std::lock_guard lock(to.mutex);
      to.codes.insert(e.code_value());
      to.texts.insert(e.what());
      continue;
    }
    to.add(r, [&] {
      for (std::size_t i = 0; i < out.size(); ++i)
        if (out[i] != static_cast<float>(i / count)) return false;
      return true;
    });
  }
}

struct victim {
  const char* layout;
  const char* choreography;
  int from, to;
  std::size_t hop;
  const char* named;
};
const std::vector<victim> victims{
    {"1x1x4", "csc", 0, 1, 0, "core group 0.0.0 has ended"},  {"1x1x4", "csc", 0, 1, 1, "ring 0.0:0→1 has ended"},
    {"1x1x4", "ring", 2, 3, 0, "core group 0.0.2 has ended"}, {"1x1x4", "ring", 3, 0, 1, "ring 0.0:3→0 has ended"},
    {"1x2x2", "ring", 1, 2, 1, "link 0:0→1 has ended"},       {"2x1x2", "ring", 1, 2, 1, "nic 0:0 has ended"},
    {"2x1x2", "ring", 1, 2, 2, "switch has ended"},           {"2x1x2", "ring", 1, 2, 3, "nic 1:0 has ended"},
};

}  // namespace

TEST_CASE("an element that ends ends the operations that need it, by name, on all ranks, now and later") {
  std::mt19937_64 random(seed());
  for (const victim& v : victims)
    for (const std::size_t count : {std::size_t{100}, std::size_t{60'000}}) {
      CAPTURE(v.named);
      CAPTURE(count);
      engine e{on_layout(v.layout, v.choreography)};
      auto comms = e.communicators(4);
      ends t, later;
      const caf::actor who = on_way(e, v.from, v.to, v.hop);
      const int when = static_cast<int>(random() % 4);
      const auto pause = std::chrono::microseconds(random() % 700);
      on_threads(comms, [&](communicator& c) {
        gather(c, 12, count, t, [&](int k) {
          if (c.rank() != 3 || k != when) return;
          std::this_thread::sleep_for(pause);
          kill_element(e, who);
        });
      });
      CHECK(t.hanging == 0);
      CHECK(t.wrong == 0);
      CHECK(t.codes == std::set{errc::actor_lost});
      CHECK(t.names(v.named));
      on_threads(comms, [&](communicator& c) { gather(c, 1, count, later); });
      CHECK(later.hanging == 0);
      CHECK(later.good == 0);
      CHECK(later.codes == std::set{errc::actor_lost});
      CHECK(later.names(v.named));
    }
}

TEST_CASE("an element that ends ends nothing that does without it") {
  engine e{on_layout("1x1x4", "ring")};
  auto comms = e.communicators(4);
  ends ours, others;
  std::atomic<bool> killed{false};
  on_threads(comms, [&](communicator& c) {
    // Ranks 0 and 1 speak by the segment between them, 2 and 3 by theirs.
    const bool cut = c.rank() < 2;
    communicator pair = c.split(cut ? 0 : 1, c.rank());
    gather(pair, cut ? 40 : 300, 1000, cut ? ours : others, [&](int k) {
      if (k == 20 && cut && !killed.exchange(true)) kill_element(e, on_way(e, 0, 1, 1));
    });
    if (!cut) gather(pair, 50, 20'000, others);
  });
  CHECK(ours.hanging == 0);
  CHECK(ours.wrong == 0);
  CHECK(ours.names("ring 0.0:0→1 has ended"));
  CHECK(others.hanging == 0);
  CHECK(others.good == 2 * 350);
  CHECK(others.codes.empty());
}

TEST_CASE("an element that ends ends sends, receives and partitioned operations that pass it, and flows made of them") {
  engine e{on_layout("1x1x2", "ring")};
  auto comms = e.communicators(2);
  kill_element(e, on_way(e, 0, 1, 1));
  ends pairs, parts;
  on_threads(comms, [&](communicator& c) {
    std::vector<float> data(1000, 1.0F);
    request r = c.rank() == 0 ? c.send_async(data, 1) : c.recv_async(data, 0);
    pairs.add(r, [] { return true; });
    // The other way is whole.
    std::vector<float> back(1000, static_cast<float>(c.rank()));
    request b = c.rank() == 1 ? c.send_async(back, 0) : c.recv_async(back, 1);
    pairs.add(b, [&] { return back[999] == 1.0F; });
    std::vector<float> in(100), out(200);
    partitioned gather = c.all_gather_init(in, out, partitions(4), {.deadline = hang});
    gather.start();
    for (int p = 0; p < 4; ++p) gather.ready(p);
    const std::error_code end = gather.try_wait();
    const std::lock_guard lock(parts.mutex);
    parts.codes.insert(static_cast<errc>(end.value()));
  });
  CHECK(pairs.hanging == 0);
  CHECK(pairs.good == 2);
  CHECK_MESSAGE(pairs.names("ring 0.0:0→1 has ended"), pairs.texts.size());
  CHECK(parts.codes == std::set{errc::actor_lost});
}

TEST_CASE(
    "an MPE that ends: operations that have their memory go on, those that lack some end, and so do all later ones") {
  std::mt19937_64 random(seed());
  for (int round = 0; round < 6; ++round) {
    CAPTURE(round);
    engine e{on_layout("1x1x4", "csc")};
    auto comms = e.communicators(4);
    ends t, later;
    const auto pause = std::chrono::microseconds(random() % 500);
    on_threads(comms, [&](communicator& c) {
      gather(c, 12, 3000, t, [&](int k) {
        if (c.rank() != 0 || k != round) return;
        std::this_thread::sleep_for(pause);
        kill(e, elements_of(e).mpe_of(0, 0));
      });
      gather(c, 1, 5000, later);
    });
    CHECK(t.hanging == 0);
    CHECK(t.wrong == 0);
    // Those that had their memory are whole.
    CHECK((t.texts.empty() || t.names("the MPE of card 0.0 has ended")));
    for (const errc code : t.codes) CHECK(code == errc::actor_lost);
    CHECK(later.codes == std::set{errc::actor_lost});
    CHECK(later.names("the MPE of card 0.0 has ended"));
  }
}

TEST_CASE("what a card never answers ends by a deadline, by cancel or by abort, and hands its memory back") {
  // Of what ranks ask of L0, L2 and their DMA engines three of ten are lost, as are chunks.
  for (const std::string how : {"deadline", "cancel", "abort"}) {
    CAPTURE(how);
    engine_options o = on_layout("1x1x4", "csc");
    o.faults = {.seed = seed(), .drop = 0.3};
    engine e{o};
    auto comms = e.communicators(4);
    const bool late = how == "deadline", cancels = how == "cancel";
    std::atomic<int> hanging{0}, wrong{0};
    std::mutex mutex;
    std::set<std::string> unexpected;
    on_threads(comms, [&](communicator& c) {
      for (int k = 0; k < 6; ++k) {
        std::vector<float> in(3000, static_cast<float>(c.rank())), out(4 * in.size());
        call_options with;
        if (late) with.deadline = 20ms;
        request r;
        try {
          r = c.all_gather_async(in, out, with);
        } catch (const error&) {
          return;  // aborted
        }
        if (!late) std::this_thread::sleep_for(2ms);
        if (cancels) r.cancel();
        else if (!late && c.rank() == 1) c.abort("enough");
        bool in_time = true;
        try {
          in_time = r.wait_for(hang);
        } catch (const error&) {}
        hanging += !in_time;
        const auto code = static_cast<errc>(r.status().value());
        if (r.status() && code != errc::timed_out && code != errc::cancelled && code != errc::aborted &&
            code != errc::communicator_aborted && code != errc::message_lost) {
          const std::lock_guard lock(mutex);
          unexpected.insert(r.message());
        }
        wrong += !r.status() && (out[2999] != 0.0F || out[11'999] != 3.0F);
      }
    });
    CHECK(hanging == 0);
    CHECK_MESSAGE(unexpected.empty(), *unexpected.begin());
    CHECK(wrong == 0);
  }
}

}  // namespace ended_elements_test
