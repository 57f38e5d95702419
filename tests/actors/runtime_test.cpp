// SPDX-License-Identifier: Apache-2.0
// The actors of an engine, seen from outside: what callers get when actors die, messages are lost, operations are cancelled in the
// middle, engines are closed. Buffers are freed as soon as a call returns, so AddressSanitizer sees whoever still reads them.

#include "engine/api/caf_actors.hpp"

#include <caf/actor_registry.hpp>

#include "engine/api/troupe.hpp"
#include "tests/seed.hpp"
#include "topology/machine/routes.hpp"

#include <caf/actor_system.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/exit_reason.hpp>
#include <caf/send.hpp>

#include <doctest/doctest.h>

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr int effort = 1;
#else
constexpr int effort = 3;
#endif
constexpr auto hang = 60s;  // turns a hang into a failure; never reached by a right run

engine_options through_actors() {
  engine_options o;
  o.protocol = "simple";  // channels and messages, whatever the size
  return o;
}

struct outcome {
  bool hangs = false;
  std::error_code code;
  std::string message;
};

outcome finish(request r) {
  outcome o;
  try {
    o.hangs = !r.wait_for(hang);
  } catch (const error&) {}
  o.code = r.status();
  o.message = r.message();
  return o;
}

/// `body` on a thread per rank.
void on_threads(std::vector<communicator>& comms, const std::function<void(communicator&)>& body) {
  std::vector<std::thread> threads;
  for (communicator& c : comms) threads.emplace_back([&] { body(c); });
  for (std::thread& t : threads) t.join();
}

/// What every rank of an all_reduce of ones plus rank gets.
float all_sum(int ranks) { return static_cast<float>(ranks * (ranks + 1) / 2); }

struct tally {
  std::mutex mutex;
  int good = 0, wrong = 0, hanging = 0;
  std::vector<std::error_code> errors;
  std::set<std::string> texts;
  void add(const outcome& o, bool right) {
    const std::lock_guard lock(mutex);
    if (o.hangs) ++hanging;
    else if (o.code) errors.push_back(o.code), texts.insert(o.message);
    else if (right) ++good;
    else ++wrong;
  }
  bool only(std::initializer_list<errc> allowed) const {
    for (const auto& e : errors)
      if (std::find(allowed.begin(), allowed.end(), static_cast<errc>(e.value())) == allowed.end()) return false;
    return true;
  }
};

/// For one_all_reduce(): cancels the request after so long, if it does at all.
std::function<void(request&)> cancelling_after(std::chrono::microseconds pause, bool cancels) {
  if (!cancels) return {};
  return [pause](request& r) {
    std::this_thread::sleep_for(pause);
    r.cancel();
  };
}

void one_all_reduce(communicator& c, std::size_t count, tally& to, call_options how = {},
                    const std::function<void(request&)>& meddle = {}) {
  auto data = std::make_unique<std::vector<float>>(count, static_cast<float>(c.rank() + 1));
  request r;
  try {
    r = c.all_reduce_async(*data, sum, how);
  } catch (const error& e) {
    return to.add({false, e.code(), e.what()}, true);
  }
  if (meddle) meddle(r);
  const outcome o = finish(r);
  if (o.hangs) static_cast<void>(data.release());  // somebody may still write to it
  const float want = all_sum(c.size());
  to.add(o, o.hangs || std::all_of(data->begin(), data->end(), [&](float x) { return x == want; }));
}

const std::vector<std::string> kinds{
    "ring", "recursive_doubling", "double_binary_tree", "halving_doubling", "direct_full_mesh", "csc", "fused"};

}  // namespace

// -- death ------------------------------------------------------------------------------------------------------------

TEST_CASE("an actor dies instead of sending a chunk: every rank gets actor_lost, whatever it was doing") {
  for (const std::string& kind : kinds)
    for (const char* layout : {"", "2x2x2"})
      for (const std::int64_t after : {0, 1, 5, 23}) {
        CAPTURE(kind);
        CAPTURE(layout);
        CAPTURE(after);
        engine_options o = through_actors();
        o.layout = layout;
        o.choreography = kind;
        o.channels = 2;
        o.chunk_bytes = 4096;
        o.faults.kill_after = after;
        o.faults.kill_rank = 1;
        engine e{o};
        auto comms = e.communicators(4);
        tally t;
        on_threads(comms, [&](communicator& c) {
          for (int k = 0; k < 40; ++k) one_all_reduce(c, 5000, t);
        });
        CHECK(t.hanging == 0);
        CHECK(t.wrong == 0);
        CHECK(t.only({errc::actor_lost}));
        CHECK(t.errors.size() >= 4);
        CHECK(t.texts.size() == 1);
      }
}

TEST_CASE("a rank actor dies while others wait: all of them get actor_lost, its own caller too, now and later") {
  for (int round = 0; round < 10 * effort; ++round) {
    engine e{through_actors()};
    auto comms = e.communicators(3);
    tally t;
    std::atomic<int> begun{0};
    on_threads(comms, [&](communicator& c) {
      if (c.rank() == 2) {  // never calls: the others wait
        while (begun < 2) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::microseconds(100 * (round % 7)));
        troupe::actors::post_exit(rank_actor(comms[1]), caf::exit_reason::kill);
        return;
      }
      one_all_reduce(c, 100, t, {}, [&](request&) { ++begun; });
      one_all_reduce(c, 100, t);
    });
    one_all_reduce(comms[2], 10, t);
    CHECK(t.hanging == 0);
    CHECK(t.good == 0);
    CHECK(t.errors.size() == 5);
    CHECK(t.only({errc::actor_lost}));
  }
}

TEST_CASE("a rank actor dies in the middle of traffic") {
  std::mt19937_64 random(seed());
  for (int round = 0; round < 12 * effort; ++round) {
    engine_options o = through_actors();
    o.choreography = kinds[static_cast<std::size_t>(round) % kinds.size()];
    if (round % 3 == 2) o.layout = "2x2";
    engine e{o};
    auto comms = e.communicators(4);
    tally t;
    std::thread killer([&, pause = random() % 3000] {
      std::this_thread::sleep_for(std::chrono::microseconds(pause));
      troupe::actors::post_exit(rank_actor(comms[3]), caf::exit_reason::kill);
    });
    on_threads(comms, [&](communicator& c) {
      for (int k = 0; k < 2000; ++k) {
        one_all_reduce(c, 2000, t);
        const std::lock_guard lock(t.mutex);
        if (t.errors.size() > 8) break;
      }
    });
    killer.join();
    one_all_reduce(comms[3], 100, t);
    CHECK(t.hanging == 0);
    CHECK(t.wrong == 0);
    // A rank that stops calling after an error leaves the others alone only when all is broken anyway.
    CHECK(t.only({errc::actor_lost}));
    CHECK(!t.errors.empty());
  }
}

TEST_CASE("sends and receives of a rank whose actor has died") {
  engine e{through_actors()};
  auto comms = e.communicators(2);
  std::vector<float> out(100, 1), in(100), in2(100);
  SUBCASE("sender waits") {
    request s = comms[0].send_async(out, 1);
    std::this_thread::sleep_for(1ms);
    troupe::actors::post_exit(rank_actor(comms[1]), caf::exit_reason::kill);
    CHECK(finish(s).code == errc::actor_lost);
  }
  SUBCASE("receiver waits, and its own rank's caller too") {
    request r = comms[0].recv_async(in, 1);
    request mine = comms[1].recv_async(in2, 0);
    std::this_thread::sleep_for(1ms);
    troupe::actors::post_exit(rank_actor(comms[1]), caf::exit_reason::kill);
    CHECK(finish(r).code == errc::actor_lost);
    CHECK(finish(mine).code == errc::actor_lost);
  }
}

// -- faults -----------------------------------------------------------------------------------------------------------

TEST_CASE("late, doubled and reordered chunks change nothing") {
  for (int round = 0; round < 12 * effort; ++round) {
    engine_options o = through_actors();
    o.faults.seed = seed() + static_cast<unsigned>(round);
    o.faults.delay = 0.1;
    o.faults.duplicate = 0.2;
    o.faults.reorder = 0.3;
    o.faults.longest_delay = 300us;
    o.channels = 1 + round % 2;
    o.chunk_bytes = 2048;
    o.choreography = kinds[static_cast<std::size_t>(round) % kinds.size()];
    if (round % 2 == 1) o.layout = "2x2x2";
    CAPTURE(o.choreography);
    CAPTURE(o.layout);
    engine e{o};
    auto comms = e.communicators(6);
    tally t;
    on_threads(comms, [&](communicator& c) {
      for (int k = 0; k < 15; ++k) one_all_reduce(c, 3000, t);
    });
    CHECK(t.good == 6 * 15);
  }
}

TEST_CASE("a lost chunk is an error on the ranks that lack it, not a hang, and later operations go on") {
  for (int round = 0; round < 3 * effort; ++round) {
    engine_options o = through_actors();
    o.faults.seed = seed() + static_cast<unsigned>(round);
    o.faults.drop = 0.05;
    o.choreography = kinds[static_cast<std::size_t>(round) % 4];
    if (round % 2 == 1) o.layout = "2x2";
    engine e{o};
    auto comms = e.communicators(4);
    tally t;
    on_threads(comms, [&](communicator& c) {
      for (int k = 0; k < 15; ++k) one_all_reduce(c, 500, t);
    });
    CHECK(t.hanging == 0);
    CHECK(t.wrong == 0);
    CHECK(!t.errors.empty());
    CHECK(t.only({errc::message_lost}));
  }
}

TEST_CASE("a lost chunk of a send is an error at both ends") {
  engine_options o = through_actors();
  o.faults.drop = 1;
  engine e{o};
  auto comms = e.communicators(2);
  std::vector<float> out(10, 1), in(10);
  request s = comms[0].send_async(out, 1), r = comms[1].recv_async(in, 0);
  CHECK(finish(s).code == errc::message_lost);
  CHECK(finish(r).code == errc::message_lost);
}

TEST_CASE("slow ranks are not taken for lost messages") {
  engine e{through_actors()};
  std::mt19937_64 random(seed());
  std::vector<std::chrono::milliseconds> pauses;
  for (int k = 0; k < 64; ++k) pauses.push_back(std::chrono::milliseconds(random() % 2 == 0 ? 0 : random() % 120));
  std::atomic<int> good{0};
  e.run(8, [&](communicator& c) {
    std::vector<float> data(8), to(8), from(8);
    for (int k = 0; k < 8; ++k) {
      std::this_thread::sleep_for(pauses[static_cast<std::size_t>(k * 8 + c.rank())]);
      c.all_reduce(data);
      c.send_recv(to, (c.rank() + 1) % 8, from, (c.rank() + 7) % 8);
      ++good;
    }
  });
  CHECK(good == 64);
}

TEST_CASE("all threads of a run wait: a verdict, for collectives and for receives") {
  engine e{through_actors()};
  tally t;
  e.run(3, [&](communicator& c) {
    std::vector<float> data(8);
    outcome o;
    try {
      if (c.rank() == 0) c.barrier();
      else c.recv(data, 3 - c.rank());
    } catch (const error& failure) {
      o.code = failure.code();
    }
    t.add(o, true);
  });
  CHECK(t.errors.size() == 3);
  CHECK(t.only({errc::rank_missing}));
}

// -- ends in the middle -----------------------------------------------------------------------------------------------

TEST_CASE("operations cancelled at any moment: right or cancelled, and no buffer is touched afterwards") {
  for (const char* layout : {"", "2x2x2"})
    for (const std::string& kind : kinds) {
      CAPTURE(kind);
      CAPTURE(layout);
      engine_options o = through_actors();
      o.layout = layout;
      o.choreography = kind;
      o.chunk_bytes = 8192;
      o.channels = 2;
      engine e{o};
      auto comms = e.communicators(5);
      tally t;
      on_threads(comms, [&](communicator& c) {
        std::mt19937_64 random(seed() + static_cast<unsigned>(c.rank()));
        for (int k = 0; k < 25 * effort; ++k) {
          if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 400));
          const bool cancels = random() % 4 == 0;
          const auto pause = std::chrono::microseconds(random() % 600);
          one_all_reduce(c, 30'000, t, {}, cancelling_after(pause, cancels));
        }
      });
      CHECK(t.hanging == 0);
      CHECK(t.wrong == 0);
      CHECK(t.only({errc::cancelled}));
      // Whatever was cancelled, the communicator is as good as new.
      tally after;
      on_threads(comms, [&](communicator& c) { one_all_reduce(c, 1000, after); });
      CHECK(after.good == 5);
    }
}

TEST_CASE("a send that is cancelled while its chunk waits for a busy DMA engine: nobody reads its buffer afterwards") {
  for (int round = 0; round < 4; ++round) {
    std::vector<std::uint8_t> large(std::size_t{48} << 20, 7), arrived(large.size()), never(5000);
    engine_options o = through_actors();
    o.layout = "1x1x2";
    o.workers = 2;
    engine e{o};
    auto busy = e.communicators(2), other = e.communicators(2);
    request first = busy[0].send_async(large, 1), second = busy[1].recv_async(arrived, 0);
    request receive = other[1].recv_async(never, 0);
    std::this_thread::sleep_for(2ms);  // the engine copies for longer than that
    auto small = std::make_unique<std::vector<std::uint8_t>>(5000, 1);
    request send = other[0].send_async(*small, 1);
    std::this_thread::sleep_for(1ms);
    send.cancel();
    static_cast<void>(finish(send));
    small.reset();
    CHECK_FALSE(finish(receive).hangs);
    CHECK_FALSE(finish(first).code);
    CHECK_FALSE(finish(second).code);
    CHECK(arrived == large);
  }
}

TEST_CASE("many operations under way at once, of known and unknown sizes, some of them cancelled") {
  for (int round = 0; round < 6 * effort; ++round) {
    constexpr int operations = 60;
    std::vector<std::vector<std::vector<float>>> data(
        4, std::vector<std::vector<float>>(operations, std::vector<float>(300, 1)));
    engine_options o = through_actors();
    if (round % 2 == 1) o.layout = "2x2";
    engine e{o};
    auto comms = e.communicators(4);
    tally t;
    on_threads(comms, [&](communicator& c) {
      const auto me = static_cast<std::size_t>(c.rank());
      std::mt19937_64 random(seed() + static_cast<unsigned>(round * 4 + c.rank()));
      std::vector<std::vector<float>> gathered(operations, std::vector<float>(60));
      std::vector<request> all;
      for (std::size_t k = 0; k < operations; ++k) {
        if (k % 3 != 0) all.push_back(c.all_reduce_async(data[me][k]));
        else
          all.push_back(
              c.all_gather_v_async(std::span(data[me][k]).first(10 * me), gathered[k], block_list{{0, 10, 20, 30}}));
        if (round > 1 && random() % 8 == 0) all[random() % all.size()].cancel();
        if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
      }
      for (std::size_t k = 0; k < operations; ++k) {
        const outcome o = finish(all[k]);
        const std::vector<float>& result = k % 3 == 0 ? gathered[k] : data[me][k];
        t.add(o, std::all_of(result.begin(), result.end(), [&](float x) { return x == (k % 3 == 0 ? 1.0f : 4.0f); }));
      }
    });
    CHECK(t.hanging == 0);
    CHECK(t.wrong == 0);
    CHECK(t.only({errc::cancelled}));
    if (round < 2) CHECK(t.good == 4 * operations);
  }
}

TEST_CASE("a mismatch of sizes in shared memory harms nobody's memory") {
  for (const char* kind : {"csc", "fused"}) {
    engine_options o = through_actors();
    o.choreography = kind;
    engine e{o};
    auto comms = e.communicators(4);
    tally t;
    on_threads(comms, [&](communicator& c) {
      one_all_reduce(c, c.rank() == 0 ? 10 : 200'000, t);
      one_all_reduce(c, 100, t);
    });
    CHECK(t.good == 4);
    CHECK(t.errors.size() == 4);
    CHECK(t.only({errc::mismatch}));
    CHECK(t.texts.size() == 1);
  }
}

TEST_CASE("a send or receive that is cancelled takes the other end with it") {
  engine e{through_actors()};
  auto comms = e.communicators(2);
  const auto buffer = [] { return std::make_unique<std::vector<float>>(50'000, 1.0f); };
  auto out = buffer(), in = buffer();
  SUBCASE("send, before the receive is called") {
    request s = comms[0].send_async(*out, 1);
    s.cancel();
    CHECK(finish(s).code == errc::cancelled);
    out.reset();
    CHECK(finish(comms[1].recv_async(*in, 0)).code == errc::cancelled);
  }
  SUBCASE("receive, before the send is called") {
    request r = comms[1].recv_async(*in, 0);
    r.cancel();
    CHECK(finish(r).code == errc::cancelled);
    in.reset();
    CHECK(finish(comms[0].send_async(*out, 1)).code == errc::cancelled);
  }
  SUBCASE("at any moment") {
    std::mt19937_64 random(seed());
    for (int k = 0; k < 200 * effort; ++k) {
      auto a = buffer(), b = buffer();
      request s, r;
      const bool send_first = random() % 2 == 0;
      if (send_first) s = comms[0].send_async(*a, 1);
      else r = comms[1].recv_async(*b, 0);
      if (random() % 3 == 0) (send_first ? s : r).cancel();
      if (send_first) r = comms[1].recv_async(*b, 0);
      else s = comms[0].send_async(*a, 1);
      for (unsigned spins = static_cast<unsigned>(random() % 2000); spins > 0; --spins)
        std::atomic_signal_fence(std::memory_order_seq_cst);
      (random() % 2 == 0 ? s : r).cancel();
      if (random() % 2 == 0) std::swap(s, r);
      const outcome first = finish(s), second = finish(r);
      REQUIRE_FALSE(first.hangs);
      REQUIRE_FALSE(second.hangs);
      for (const outcome& o : {first, second}) CHECK((!o.code || o.code == errc::cancelled));
    }
  }
  SUBCASE("different counts") {
    std::vector<float> ten(10), nine(9);
    request s = comms[0].send_async(ten, 1), r = comms[1].recv_async(nine, 0);
    CHECK(finish(s).code == errc::mismatch);
    CHECK(finish(r).code == errc::mismatch);
  }
  // The next pair is as good as ever.
  std::vector<float> to(7, 3), from(7);
  request s = comms[0].send_async(to, 1), r = comms[1].recv_async(from, 0);
  CHECK_FALSE(finish(s).code);
  CHECK_FALSE(finish(r).code);
  CHECK(from == to);
}

TEST_CASE("an engine that is destroyed with operations pending fails them all") {
  for (int round = 0; round < 10 * effort; ++round) {
    auto e = std::make_unique<engine>(through_actors());
    auto comms = e->communicators(3);
    std::vector<std::vector<float>> data(3, std::vector<float>(1000, 1));
    std::vector<request> pending;
    std::atomic<int> callbacks{0};
    for (int k = 0; k < 40; ++k)
      for (std::size_t r = 0; r < 2; ++r) pending.push_back(comms[r].all_reduce_async(data[r]));
    pending.push_back(comms[2].recv_async(data[2], 0));
    for (request& r : pending) r.then([&](std::error_code code) { callbacks += code == errc::engine_closed; });
    std::thread waiting([&] { CHECK(finish(pending.front()).code == errc::engine_closed); });
    e.reset();
    waiting.join();
    for (request& r : pending) {
      CHECK(r.done());
      CHECK(r.status() == errc::engine_closed);
    }
    CHECK(callbacks == 81);
  }
}

TEST_CASE("a thousand engines") {
  for (int k = 0; k < 1000; ++k) {
    std::vector<float> a(10, 1), b(10, 2);
    engine e{through_actors()};
    if (k % 10 != 0) continue;
    auto comms = e.communicators(2);
    request first = comms[0].all_reduce_async(a);
    if (k % 20 == 0) continue;  // destroyed with it
    comms[1].all_reduce(b);
    first.wait();
    CHECK(a[0] == 3);
  }
}

TEST_CASE("64 ranks on whatever cores there are") {
  engine e{through_actors()};
  std::atomic<int> wrong{0};
  e.run(64, [&](communicator& c) {
    for (int k = 0; k < 3; ++k) {
      std::vector<float> data(1000, static_cast<float>(c.rank() + 1));
      c.all_reduce(data);
      wrong += data[999] != all_sum(64);
      c.barrier();
    }
  });
  CHECK(wrong == 0);
}

// -- routes -----------------------------------------------------------------------------------------------------------

TEST_CASE("chunks pass the elements that the topology names, and arrive whole") {
  for (const char* text : {"2x2x4", "1x1x5", "2x3", "3+1x2"}) {
    CAPTURE(text);
    engine_options o = through_actors();
    o.layout = text;
    o.nic_ports = 2;
    o.channels = 2;
    o.trace_routes = true;
    o.choreography = "pairwise";
    const machine hardware{layout::parse(text), {o.nic_ports, true}};
    const int n = hardware.ranks().size();
    engine e{o};
    auto comms = e.communicators(n);
    std::atomic<int> wrong{0};
    constexpr std::size_t block = 20'000;  // more than one packet of a NIC
    on_threads(comms, [&](communicator& c) {
      std::vector<std::int32_t> in(block * static_cast<std::size_t>(n)), out(in.size());
      for (std::size_t i = 0; i < in.size(); ++i) in[i] = c.rank() * 1000 + static_cast<std::int32_t>(i / block);
      c.all_to_all(in, out);
      for (std::size_t i = 0; i < out.size(); ++i)
        wrong += out[i] != static_cast<std::int32_t>(i / block) * 1000 + c.rank();
    });
    CHECK(wrong == 0);
    std::set<std::string> possible;
    std::size_t pairs = 0;
    for (int a = 0; a < n; ++a)
      for (int b = 0; b < n; ++b) {
        pairs += a != b && !route_between(hardware, a, b).is_direct();
        for (int channel = 0; channel < 2; ++channel)
          possible.insert(to_string(hardware, route_between(hardware, a, b, channel)));
      }
    std::set<std::string> met;
    for (const std::string& line : e.traced_routes()) {
      CAPTURE(line);
      CHECK(possible.contains(line));
      met.insert(line.substr(0, line.find(" →")) + line.substr(line.rfind(" →")));
    }
    CHECK(met.size() == pairs);
  }
}

namespace {

/// What csc's all_gather of `block` bytes has every element of one card carry: its fetches, by the ways that the
/// topology names.
std::map<std::string, std::uint64_t> bytes_of_gather(const machine& card, std::uint64_t block) {
  std::map<std::string, std::uint64_t> bytes;
  const int n = card.ranks().size();
  for (int reader = 0; reader < n; ++reader)
    for (int owner = 0; owner < n; ++owner)
      for (const hop& h : route_between(card, owner, reader).hops)
        bytes[card.to_string({h.kind, h.server, h.card, h.index, h.way})] += block;
  // Within a core group: own block to L0, from there to L2 and the output, and what was fetched from L0 to the output.
  for (int r = 0; r < n; ++r) bytes["dma 0.0." + std::to_string(r)] += block * static_cast<std::uint64_t>(3 + n - 1);
  return bytes;
}

engine_options on_card(const char* layout) {
  engine_options o = through_actors();
  o.layout = layout;
  o.choreography = "csc";
  return o;
}

}  // namespace

TEST_CASE("csc: what is fetched from other core groups' shares of L2 passes the ring segments, byte for byte") {
  for (const int n : {2, 3, 4, 5}) {
    CAPTURE(n);
    engine_options o = on_card(("1x1x" + std::to_string(n)).c_str());
    o.channels = 1;
    o.trace_routes = true;
    engine e{o};
    auto comms = e.communicators(n);
    constexpr std::size_t block = 5000;
    std::atomic<int> wrong{0};
    on_threads(comms, [&](communicator& c) {
      std::vector<std::int32_t> in(block, c.rank() + 1), out(block * static_cast<std::size_t>(n));
      c.all_gather(in, out);
      for (std::size_t i = 0; i < out.size(); ++i) wrong += out[i] != static_cast<std::int32_t>(i / block) + 1;
    });
    CHECK(wrong == 0);
    std::map<std::string, std::uint64_t> carried;
    for (const element_traffic& of : e.traffic()) {
      carried[of.element] = of.bytes;
      CHECK(of.tokens > 0);  // requests, and the sync
      if (n == 4 && of.element.starts_with("ring")) {
        const auto from = of.element[of.element.find(':') + 1], to = of.element.back();
        // Two neighbours fetch from each other; ranks two apart go clockwise.
        CHECK(of.messages == ((to - from + 4) % 4 == 1 ? 3 : 1));
      }
    }
    CHECK(carried == bytes_of_gather(machine{layout::parse(o.layout)}, block * sizeof(std::int32_t)));
    const auto ways = e.traced_routes();
    CHECK(std::set<std::string>(ways.begin(), ways.end()).size() == ways.size());
  }
}

TEST_CASE("a flat layout, and one that nobody traces, count nothing") {
  for (const char* text : {"", "1x1x3"}) {
    engine_options o = on_card(text);
    o.trace_routes = *text == '\0';
    engine e{o};
    auto comms = e.communicators(3);
    tally t;
    on_threads(comms, [&](communicator& c) { one_all_reduce(c, 100, t); });
    CHECK(t.good == 3);
    CHECK(e.traffic().empty());
    CHECK(e.traced_routes().empty());
  }
}

TEST_CASE("csc on cards: any sizes, channels and slices, several calls at once, several ranks a core group") {
  std::mt19937_64 random(seed());
  for (const char* text :
       {"1x1x4", "1x1x5", "1x2x2", "0.0.0,0.0.0,0.0.1,0.0.2,0.0.2", "0.0.3,0.0.1,0.0.2,0.0.0", "2x1x3"})
    for (int round = 0; round < 2 * effort; ++round) {
      CAPTURE(text);
      engine_options o = on_card(text);
      o.channels = 1 + static_cast<int>(random() % 3);
      o.chunk_bytes = random() % 2 == 0 ? 0 : std::size_t{256} << random() % 5;
      o.workers = static_cast<int>(random() % 3);
      const bool small = random() % 2 == 0;  // L0, which then has room for one operation
      if (small) o.card.l0 = 16 * 1024;
      engine e{o};
      const int n = *text == '2' ? 3 : layout::parse(text).size();
      auto comms = e.communicators(n);
      const std::size_t count = random() % 3000;
      std::vector<std::size_t> counts;
      for (int r = 0; r < n; ++r) counts.push_back(random() % 4 == 0 ? 0 : random() % 2000);
      std::atomic<int> wrong{0};
      on_threads(comms, [&](communicator& c) {
        const auto ranks = static_cast<std::size_t>(n), me = static_cast<std::size_t>(c.rank());
        std::vector<std::int64_t> sums(count * ranks), gathered(count * ranks), own(count, c.rank());
        std::vector<std::int64_t> scattered(count), all(count * ranks);
        for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = all[i] = static_cast<std::int64_t>(i) + c.rank();
        std::vector<request> under_way;
        const auto begin = [&](request&& r) {
          if (small) r.wait();
          under_way.push_back(std::move(r));
        };
        begin(c.all_gather_async(own, gathered));
        begin(c.reduce_scatter_async(all, scattered));
        begin(c.all_reduce_async(sums));
        block_list blocks;
        std::size_t total = 0;
        for (const std::size_t each : counts) total += each;
        blocks.counts = counts;
        std::vector<std::int64_t> some(counts[me], c.rank()), different(total);
        begin(c.all_gather_v_async(some, different, blocks));
        for (request& r : under_way) r.wait();
        const std::int64_t added = n * (n - 1) / 2;
        for (std::size_t i = 0; i < gathered.size(); ++i) {
          wrong += gathered[i] != static_cast<std::int64_t>(i / count);
          wrong += sums[i] != static_cast<std::int64_t>(i) * n + added;
        }
        for (std::size_t i = 0; i < count; ++i)
          wrong += scattered[i] != static_cast<std::int64_t>(me * count + i) * n + added;
        std::size_t at = 0;
        for (std::size_t r = 0; r < ranks; ++r)
          for (std::size_t i = 0; i < counts[r]; ++i) wrong += different[at++] != static_cast<std::int64_t>(r);
      });
      CHECK(wrong == 0);
    }
}

TEST_CASE("csc on a card, cancelled, killed or late at any moment, while its payload is on the ring") {
  std::mt19937_64 random(seed());
  for (int round = 0; round < 4 * effort; ++round) {
    CAPTURE(round);
    engine_options o = on_card("1x1x5");
    o.chunk_bytes = 8192;
    o.channels = 2;
    const int mischief = round % 4;
    if (mischief == 1) {
      o.faults.kill_after = static_cast<int>(random() % 60);
      o.faults.kill_rank = 2;
    }
    if (mischief == 2) o.faults = {.seed = seed(), .duplicate = 0.2, .reorder = 0.2, .delay = 0.2};
    if (mischief == 3) o.faults = {.seed = seed(), .drop = 0.05};
    engine e{o};
    auto comms = e.communicators(5);
    tally t;
    on_threads(comms, [&](communicator& c) {
      std::mt19937_64 mine(seed() + static_cast<unsigned>(round * 5 + c.rank()));
      for (int k = 0; k < 12; ++k) {
        const bool cancels = mischief == 0 && mine() % 3 == 0;
        const auto pause = std::chrono::microseconds(mine() % 900);
        one_all_reduce(c, 30'000, t, {}, cancelling_after(pause, cancels));
      }
    });
    CHECK(t.hanging == 0);
    CHECK(t.wrong == 0);
    if (mischief == 2) CHECK(t.good == 60);
    CHECK(t.only({errc::cancelled, errc::actor_lost, errc::message_lost}));
  }
}

TEST_CASE("a card's memory: what does not fit L0 goes in slices, what does not fit L2 is refused, or goes otherwise") {
  engine_options o = on_card("1x1x4");
  o.channels = 1;
  o.trace_routes = true;
  o.card.l0 = 64 * 1024;
  constexpr std::size_t count = 50'000;
  const auto gather = [&](engine& e, call_options how) {
    auto comms = e.communicators(4);
    std::atomic<int> wrong{0};
    on_threads(comms, [&](communicator& c) {
      std::vector<float> in(count, static_cast<float>(c.rank())), out(4 * count);
      if (const outcome end = finish(c.all_gather_async(in, out, how)); end.code)
        throw error(errc::aborted, end.message);
      for (std::size_t i = 0; i < out.size(); ++i) wrong += out[i] != static_cast<float>(i / count);
    });
    CHECK(wrong == 0);
  };
  engine small{o};
  gather(small, {});
  for (const element_traffic& of : small.traffic())
    if (of.element.starts_with("ring")) CHECK(of.messages >= 4);  // of 200 kB, by a cell of less than 64 KiB
  o.card.l2 = 64 * 1024;
  o.choreography = "auto";
  engine smaller{o};
  gather(smaller, {});
  auto comms = smaller.communicators(4);
  std::vector<float> in(count), out(4 * count);
  call_options forced;
  forced.choreography = "csc";
  try {
    static_cast<void>(comms[0].all_gather_async(in, out, forced));
    FAIL("it was not refused");
  } catch (const error& refused) {
    CHECK(refused.code_value() == errc::unsupported);
    CHECK(std::string{refused.what()}.find("bytes of L2, and an operation may take 21845 (engine.card.l2)") !=
          std::string::npos);
  }
}

TEST_CASE("operations that find a card's memory full of others' fail on all ranks; one after the other they fit") {
  engine_options o = on_card("1x1x4");
  o.card.l2 = 3 << 20;  // of eight all_gathers, four have room
  constexpr std::size_t count = 40'000;
  engine e{o};
  auto comms = e.communicators(4);
  tally t, after;
  const auto gather = [&](communicator& c, std::size_t calls, tally& to) {
    const std::vector<float> in(count, static_cast<float>(c.rank()));
    std::vector<std::vector<float>> out(calls, std::vector<float>(4 * count));
    std::vector<request> all;
    for (std::vector<float>& into : out) all.push_back(c.all_gather_async(in, into));
    for (std::size_t k = 0; k < calls; ++k) {
      const outcome end = finish(all[k]);
      bool right = true;
      for (std::size_t i = 0; i < 4 * count && !end.code; ++i)
        right = right && out[k][i] == static_cast<float>(i / count);
      to.add(end, right);
    }
  };
  on_threads(comms, [&](communicator& c) { gather(c, 8, t); });
  CHECK(t.hanging == 0);
  CHECK(t.wrong == 0);
  CHECK(t.only({errc::out_of_memory}));
  CHECK(t.good + static_cast<int>(t.errors.size()) == 4 * 8);
  // One call after the other: what the planner takes for enough is enough.
  o.card.l2 = card_sizes::page * (3 * card_sizes::taken_by(4 * count * sizeof(float)) / card_sizes::page + 1);
  engine exact{o};
  auto others = exact.communicators(4);
  on_threads(others, [&](communicator& c) {
    for (int k = 0; k < 30; ++k) gather(c, 1, after);
  });
  CHECK(after.good == 4 * 30);
}

TEST_CASE("what a communicator keeps of a card's memory is no hindrance to others, and goes back with it") {
  engine_options o = on_card("1x1x4");
  constexpr std::size_t count = 40'000;
  // Three operations, and each communicator keeps the blocks of as many.
  o.card.l2 = card_sizes::page * (3 * card_sizes::taken_by(4 * count * sizeof(float)) / card_sizes::page + 1);
  engine e{o};
  std::vector<std::vector<communicator>> all;
  for (int k = 0; k < 3; ++k) all.push_back(e.communicators(4));
  tally t;
  for (int round = 0; round < 2; ++round)
    for (std::vector<communicator>& comms : all)
      on_threads(comms, [&](communicator& c) {
        const std::vector<float> in(count, static_cast<float>(c.rank()));
        std::vector<std::vector<float>> out(3, std::vector<float>(4 * count));
        std::vector<request> calls;
        for (std::vector<float>& into : out) calls.push_back(c.all_gather_async(in, into));
        for (std::size_t k = 0; k < calls.size(); ++k) {
          const outcome end = finish(calls[k]);
          t.add(end, out[k].back() == 3.0F);
        }
      });
  CHECK(t.good == 2 * 3 * 4 * 3);
  for (const std::string& text : t.texts) MESSAGE(text);
}

// -- csc, part by part ------------------------------------------------------------------------------------------------

TEST_CASE("csc part by part: a part crosses the elements that the whole call crosses, byte for byte") {
  for (const int n : {2, 3, 4}) {
    CAPTURE(n);
    engine_options o = on_card(("1x1x" + std::to_string(n)).c_str());
    o.trace_routes = true;
    engine e{o};
    auto comms = e.communicators(n);
    constexpr std::size_t block = 5000;
    constexpr int parts = 4, rounds = 3;
    std::atomic<int> wrong{0};
    on_threads(comms, [&](communicator& c) {
      std::vector<std::int32_t> in(block), out(block * static_cast<std::size_t>(n));
      partitioned gather = c.all_gather_init(in, out, partitions(parts));
      wrong += gather.plan().find("csc") == std::string::npos;
      for (int round = 0; round < rounds; ++round) {
        std::fill(in.begin(), in.end(), -1);
        gather.start();
        for (int p = parts; p-- > 0;) {
          const auto part = static_cast<std::ptrdiff_t>(block / parts);
          std::fill_n(in.begin() + p * part, part, c.rank() + round);
          gather.ready(p);
          // It has come from everybody while the parts before it are not ready anywhere.
          for (int seen = 0; seen < n; ++seen) {
            const int came = gather.next_arrived().value_or(-1);
            wrong += came % parts != p || out[static_cast<std::size_t>(came * part)] != came / parts + round;
          }
        }
        gather.wait();
        for (std::size_t i = 0; i < out.size(); ++i) wrong += out[i] != static_cast<std::int32_t>(i / block) + round;
      }
    });
    CHECK(wrong == 0);
    std::map<std::string, std::uint64_t> carried;
    for (const element_traffic& of : e.traffic()) {
      carried[of.element] = of.bytes;
      if (n == 4 && of.element.starts_with("ring")) {
        const auto from = of.element[of.element.find(':') + 1], to = of.element.back();
        CHECK(of.messages == rounds * parts * ((to - from + 4) % 4 == 1 ? 3u : 1u));
      }
    }
    auto wanted = bytes_of_gather(machine{layout::parse(o.layout)}, rounds * block * sizeof(std::int32_t));
    CHECK(carried == wanted);
  }
}

TEST_CASE("csc part by part has the bits of the whole call, with parts of any sizes") {
  std::mt19937_64 random(seed());
  for (const std::string text : {"1x1x4", "1x1x3", "0.0.0,0.0.0,0.0.1,0.0.2,0.0.2"}) {
    CAPTURE(text);
    engine_options o = on_card(text.c_str());
    o.level = determinism::topology_stable;
    engine e{o};
    const int n = layout::parse(text).size();
    auto comms = e.communicators(n);
    const std::size_t count = 1 + random() % 4000, first = random() % count;
    const std::vector<partitions> cuts{partitions(1), partitions(6), partitions({first, 0, count - first})};
    std::atomic<int> wrong{0};
    on_threads(comms, [&](communicator& c) {
      std::mt19937_64 mine(seed() + static_cast<unsigned>(c.rank()));
      std::vector<float> large(count * static_cast<std::size_t>(n)), small(count);
      for (float& x : large) x = static_cast<float>(mine()) / 1e15F;
      for (float& x : small) x = static_cast<float>(mine()) / 1e15F;
      const auto compare = [&](auto&& whole, auto&& make, std::vector<float> out) {
        std::vector<float> want = out;
        whole(want);
        for (const partitions& cut : cuts) {
          partitioned parts = make(out, cut);
          wrong += parts.plan().find("csc") == std::string::npos;
          for (int again = 0; again < 2; ++again) {
            std::fill(out.begin(), out.end(), -1.0F);
            parts.start();
            for (int p = parts.input_parts(); p-- > 0;) parts.ready(p);
            parts.wait();
            wrong += std::memcmp(out.data(), want.data(), out.size() * sizeof(float)) != 0;
          }
        }
      };
      compare([&](auto& out) { c.all_gather(small, out); },
              [&](auto& out, auto& cut) { return c.all_gather_init(small, out, cut); }, large);
      compare([&](auto& out) { c.reduce_scatter(large, out); },
              [&](auto& out, auto& cut) { return c.reduce_scatter_init(large, out, sum, cut); }, small);
      compare([&](auto& out) { c.all_reduce(small, out); },
              [&](auto& out, auto& cut) { return c.all_reduce_init(small, out, sum, cut); }, small);
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE("csc part by part, cancelled, killed, late or never ready") {
  std::mt19937_64 random(seed());
  for (int round = 0; round < 4 * effort; ++round) {
    CAPTURE(round);
    engine_options o = on_card("1x1x5");
    const int mischief = round % 4;
    if (mischief == 1) {
      o.faults.kill_after = static_cast<int>(random() % 60);
      o.faults.kill_rank = 2;
    }
    if (mischief == 2) o.faults = {.seed = seed(), .duplicate = 0.2, .reorder = 0.2, .delay = 0.2};
    if (mischief == 3) o.faults = {.seed = seed(), .drop = 0.02};
    engine e{o};
    auto comms = e.communicators(5);
    std::atomic<int> wrong{0}, good{0}, unexpected{0};
    on_threads(comms, [&](communicator& c) {
      std::mt19937_64 mine(seed() + static_cast<unsigned>(round * 5 + c.rank()));
      std::vector<float> in(10'000, static_cast<float>(c.rank() + 1)), out(in.size());
      partitioned all = c.all_reduce_init(in, out, sum, partitions(5), {.deadline = hang});
      for (int k = 0; k < 8; ++k) {
        std::fill(out.begin(), out.end(), -1.0F);
        all.start();
        std::vector<int> order{0, 1, 2, 3, 4};
        std::shuffle(order.begin(), order.end(), mine);
        for (const int p : order) {
          std::this_thread::sleep_for(std::chrono::microseconds(mine() % 300));
          all.ready(p);
        }
        if (mischief == 0 && mine() % 3 == 0) all.cancel();
        const std::error_code end = all.try_wait();
        good += !end;
        wrong += !end && std::any_of(out.begin(), out.end(), [](float x) { return x != all_sum(5); });
        unexpected += end && end != errc::cancelled && end != errc::actor_lost && end != errc::message_lost;
      }
    });
    CHECK(wrong == 0);
    CHECK(unexpected == 0);
    if (mischief == 2) CHECK(good == 5 * 8);
  }
  engine e{on_card("1x1x3")};
  auto comms = e.communicators(3);
  tally late;
  on_threads(comms, [&](communicator& c) {
    std::vector<float> in(100), out(300);
    partitioned gather = c.all_gather_init(in, out, partitions(4), {.deadline = 1s});  // all have come by then
    gather.start();
    for (int p = 0; p < 4; ++p)
      if (c.rank() != 1 || p != 3) gather.ready(p);
    try {
      gather.wait();
    } catch (const error& why) {
      late.add({false, why.code(), why.what()}, false);
    }
  });
  CHECK(late.errors.size() == 3);
  CHECK(late.only({errc::timed_out}));
  for (const std::string& text : late.texts)
    CHECK_MESSAGE(text.find("part 3 of 4 was not made ready") != std::string::npos, text);
}

TEST_CASE("csc part by part: what does not fit the card goes otherwise, or is refused") {
  engine_options o = on_card("1x1x4");
  o.choreography = "auto";
  o.card.l0 = 64 * 1024;  // the parts of a block have cells of their own
  engine e{o};
  auto comms = e.communicators(4);
  std::vector<float> in(50'000), out(4 * in.size());
  call_options forced;
  forced.choreography = "csc";
  CHECK_THROWS_WITH_AS(static_cast<void>(comms[0].all_gather_init(in, out, partitions(100), forced)),
                       doctest::Contains("bytes of L0, and a rank may take 65536 (engine.card.l0)"), error);
  CHECK(comms[0].all_gather_init(in, out, partitions(100)).plan().find("csc") == std::string::npos);
  CHECK(comms[0]
            .all_gather_init(std::span{in}.first(5000), std::span{out}.first(20'000), partitions(100), forced)
            .plan()
            .find("csc") != std::string::npos);
  engine flat{through_actors()};
  auto apart = flat.communicators(4);
  CHECK_THROWS_WITH_AS(static_cast<void>(apart[0].all_gather_init(in, out, partitions(2), forced)),
                       doctest::Contains("those of ranks on no card go over memory that they share"), error);
}

TEST_CASE("sizes of a card's tiers that it cannot have") {
  for (const auto& [l0, l2] :
       {std::pair{0ul, 8192ul}, {8191ul, 8192ul}, {8192ul, 0ul}, {std::size_t{1} << 33, 8192ul}}) {
    engine_options o = on_card("1x1x4");
    o.card = {l0, l2};
    CHECK_THROWS_WITH_AS(engine{o}, doctest::Contains("must be whole pages of 8192 bytes"), error);
  }
}

// -- callers ----------------------------------------------------------------------------------------------------------

TEST_CASE("a callback that throws harms neither the other callbacks nor the engine") {
  engine e{through_actors()};
  auto comms = e.communicators(2);
  std::vector<float> a(10, 1), b(10, 2);
  std::atomic<int> called{0};
  request first = comms[0].all_reduce_async(a);
  first.then([](std::error_code) { throw std::runtime_error("the caller's own trouble"); });
  first.then([&](std::error_code) { ++called; });
  CHECK_FALSE(finish(comms[1].all_reduce_async(b)).code);
  CHECK_FALSE(finish(first).code);
  for (int k = 0; k < 1000 && called == 0; ++k) std::this_thread::sleep_for(1ms);
  CHECK(called == 1);
  tally t;
  on_threads(comms, [&](communicator& c) { one_all_reduce(c, 10, t); });
  CHECK(t.good == 2);
}

TEST_CASE("a user's operation that throws fails on all ranks with its text, and costs nothing else") {
  engine e{through_actors()};
  auto comms = e.communicators(2);
  op bad;
  bad.kind = op_kind::user;
  bad.function = [](const void*, const void*, void*, std::size_t, datatype, void*) {
    throw std::runtime_error("cannot add");
  };
  tally t;
  on_threads(comms, [&](communicator& c) {
    std::vector<float> data(100, 1);
    t.add(finish(c.all_reduce_async(data, bad)), true);
  });
  CHECK(t.hanging == 0);
  CHECK(t.errors.size() == 2);
  CHECK(t.only({errc::aborted}));
  for (const std::string& text : t.texts) CHECK(text.find("cannot add") != std::string::npos);
  tally after;
  on_threads(comms, [&](communicator& c) { one_all_reduce(c, 10, after); });
  CHECK(after.good == 2);
}

TEST_CASE("deadlines are kept while actors are busy") {
  engine e{through_actors()};
  auto busy = e.communicators(2), late = e.communicators(2);
  op slow;
  slow.kind = op_kind::user;
  slow.function = [](const void* left, const void*, void* out, std::size_t count, datatype type, void*) {
    std::this_thread::sleep_for(300ms);
    if (out != left) std::memcpy(out, left, count * size_of(type));
  };
  std::vector<float> a(10), b(10), c(10);
  request first = busy[0].all_reduce_async(a, slow), second = busy[1].all_reduce_async(b, slow);
  call_options soon;
  soon.deadline = 20ms;
  const outcome o = finish(late[0].all_reduce_async(c, sum, soon));
  CHECK(o.code == errc::timed_out);
  CHECK_FALSE(finish(first).code);
  CHECK_FALSE(finish(second).code);
}

TEST_CASE("deadlines of operations that are long over leave nothing behind") {
  engine e{through_actors()};
  auto comms = e.communicators(2);
  for (communicator& c : comms) c.set_deadline(std::chrono::hours(1));
  on_threads(comms, [&](communicator& c) {
    for (int k = 0; k < 2000; ++k) c.barrier();
  });
  CHECK(caf_system(e).registry().running() < 20);
}

TEST_CASE("an idle engine uses no CPU") {
  engine e{through_actors()};
  auto comms = e.communicators(4);
  tally t;
  on_threads(comms, [&](communicator& c) { one_all_reduce(c, 1000, t); });
  std::vector<float> data(10);
  request waits = comms[0].all_reduce_async(data);  // an operation under way is no reason either
  std::this_thread::sleep_for(50ms);
  const auto used = [] {
    rusage u{};
    getrusage(RUSAGE_SELF, &u);
    return std::chrono::seconds(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           std::chrono::microseconds(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
  };
  const auto before = used();
  std::this_thread::sleep_for(200ms);
  CHECK(used() - before < 20ms);  // a tenth of one core; a thread that polls uses ten times as much
  waits.cancel();
  CHECK(finish(waits).code == errc::cancelled);
}
