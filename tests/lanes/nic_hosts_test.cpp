// SPDX-License-Identifier: Apache-2.0
// NICs of several hosts that perform together: a driver a host and links in memory, in one process and without threads, so that seeds decide what
// happens when. What real processes do with it: tests/processes/offload_test.cpp.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <thread>

#include "actors/ports/nic/nic_hosts.hpp"
#include "actors/ports/nic/nic_thread.hpp"
#include "tests/lanes/ranks_on_threads.hpp"
#include "tests/seed.hpp"

using namespace ranks_test;

namespace {

constexpr picoseconds now{0};

/// Between all hosts: what one sends another arrives in order, and may lie in between for long. Like a socket it reads the payload when it can.
class links {
public:
  explicit links(int hosts) : hosts_(hosts), ways_(static_cast<std::size_t>(hosts * hosts)) {}
  struct sent {
    std::uint64_t communicator;
    rank_t rank;
    epoch_t epoch;
    offload_packet packet;  ///< of one
    std::vector<std::byte> own;
    std::function<bool(offload_packet&&)> bring;
  };
  void send(int from, int to, sent&& what) { way(from, to).push_back(std::move(what)); }
  void let_go(std::uint64_t communicator, rank_t rank, epoch_t epoch) {
    for (auto& way : ways_)
      for (sent& s : way)
        if (s.communicator == communicator && s.rank == rank && s.epoch == epoch && s.own.empty()) own(s);
  }
  bool empty() const {
    return std::ranges::all_of(ways_, [](const auto& w) { return w.empty(); });
  }
  /// Something under way is still to be read from the rank's memory.
  bool refers_to(std::uint64_t communicator, rank_t rank, epoch_t epoch) const {
    return std::ranges::any_of(ways_, [&](const auto& way) {
      return std::ranges::any_of(way, [&](const sent& s) {
        return s.communicator == communicator && s.rank == rank && s.epoch == epoch && s.own.empty() &&
               s.packet.bytes > 0;
      });
    });
  }
  std::size_t waiting(int from, int to) { return way(from, to).size(); }
  /// The next of one of those that have any. False: an impossible message.
  bool bring_one(std::mt19937_64& random) {
    std::vector<std::size_t> full;
    for (std::size_t i = 0; i < ways_.size(); ++i)
      if (!ways_[i].empty()) full.push_back(i);
    return bring(ways_[full[random() % full.size()]]);
  }
  bool bring_all() {
    bool good = true;
    for (auto& way : ways_)
      while (!way.empty()) good = bring(way) && good;
    return good;
  }
  bool bring(int from, int to) { return bring(way(from, to)); }

private:
  using queue = std::deque<sent>;
  queue& way(int from, int to) { return ways_[static_cast<std::size_t>(from * hosts_ + to)]; }
  static void own(sent& s) {
    if (s.packet.lies_at == nullptr || s.packet.bytes == 0) return;
    s.own.assign(s.packet.lies_at, s.packet.lies_at + s.packet.bytes);
    s.packet.lies_at = s.own.data();
  }
  static bool bring(queue& from) {
    sent s = std::move(from.front());
    from.pop_front();
    own(s);
    auto keep = std::make_shared<std::vector<std::byte>>(std::move(s.own));
    if (!keep->empty()) s.packet.lies_at = keep->data(), s.packet.keep = keep;
    return s.bring(std::move(s.packet));
  }
  int hosts_;
  std::vector<queue> ways_;
};

struct world;

/// A communicator: its ranks' memory and what they are told, the other hosts as each one's NIC knows them, and the plan.
struct group {
  group(world& of, std::uint64_t id, std::vector<std::uint32_t> host_of, std::size_t count, const char* choreography);

  int ranks() const { return static_cast<int>(host_of.size()); }
  int host(rank_t r) const { return static_cast<int>(host_of[static_cast<std::size_t>(r)]); }
  nic_posting posting(rank_t r, epoch_t epoch, std::uint64_t fingerprint);
  void post(rank_t r, epoch_t epoch, std::uint64_t fingerprint = 7);
  void recall(rank_t r, epoch_t epoch);
  bool right(epoch_t e) const {
    return std::ranges::all_of(outs.at(e), [&](const auto& o) {
      return std::ranges::all_of(o, [&](std::int32_t x) { return x == ranks() * (ranks() + 1) / 2; });
    });
  }

  world& all;
  std::uint64_t id;
  std::vector<std::uint32_t> host_of;
  std::size_t count;
  plan_ptr how;
  std::vector<std::shared_ptr<noting_client>> clients;
  std::map<epoch_t, std::vector<std::vector<std::int32_t>>> ins, outs;  ///< of its own for each operation
  std::vector<std::shared_ptr<nic_hosts>> at;                           ///< by host
};

struct world {
  explicit world(int n, std::size_t scratch = nic_driver::default_scratch) : hosts(n), between(n) {
    for (int h = 0; h < n; ++h) drivers.push_back(std::make_unique<nic_driver>(nic_config(), scratch));
  }
  nic_driver& driver(int host) { return *drivers[static_cast<std::size_t>(host)]; }
  group& add(std::vector<std::uint32_t> host_of, std::size_t count, const char* choreography = "ring") {
    groups.push_back(std::make_unique<group>(*this, groups.size() + 1, std::move(host_of), count, choreography));
    return *groups.back();
  }
  /// One host does what it can do. A rank that is told of an end has its memory back.
  void turn(int host);
  void finish() {
    do {
      CHECK(between.bring_all());
      for (int h = 0; h < hosts; ++h) turn(h);
    } while (!between.empty());
  }
  bool empty() const {
    return std::ranges::all_of(drivers,
                               [](const auto& d) { return d->empty() && d->nic().statistics().sequences == 0; });
  }

  int hosts;
  links between;
  std::vector<std::unique_ptr<nic_driver>> drivers;
  std::vector<std::unique_ptr<group>> groups;
};

void world::turn(int host) {
  for (const auto& g : groups) g->at[static_cast<std::size_t>(host)]->serve(driver(host), now);
  while (driver(host).turn(now)) {}
  for (const auto& g : groups)
    for (rank_t r = 0; r < g->ranks(); ++r)
      for (const auto& [epoch, why] : g->clients[static_cast<std::size_t>(r)]->ended)
        CHECK_FALSE(between.refers_to(g->id, r, epoch));
}

class wire final : public nic_wire {
public:
  wire(group& of, int here) : of_(of), here_(here) {}
  void send(int host, epoch_t epoch, const offload_packet& what) override {
    of_.all.between.send(here_, host, {of_.id, what.rank, epoch, what, {}, [this, host, epoch](offload_packet&& p) {
                                         p.job = {};
                                         return there(host).came(here_, epoch, std::move(p));
                                       }});
  }
  void send(int host, epoch_t epoch, const offload_response& what) override {
    of_.all.between.send(here_, host, {of_.id, -1, epoch, {}, {}, [this, host, epoch, what](offload_packet&&) {
                                         return there(host).came(here_, epoch, what);
                                       }});
  }
  void send_ready(int host, epoch_t epoch, std::uint64_t fingerprint) override {
    of_.all.between.send(here_, host, {of_.id, -1, epoch, {}, {}, [this, host, epoch, fingerprint](offload_packet&&) {
                                         return there(host).came_ready(here_, epoch, fingerprint);
                                       }});
  }
  void let_go(rank_t rank, epoch_t epoch) override { of_.all.between.let_go(of_.id, rank, epoch); }

private:
  nic_hosts& there(int host) { return *of_.at[static_cast<std::size_t>(host)]; }
  group& of_;
  int here_;
};

group::group(world& of, std::uint64_t number, std::vector<std::uint32_t> where, std::size_t c, const char* choreography)
    : all(of), id(number), host_of(std::move(where)), count(c) {
  how = nic_sum_plan(ranks(), c, choreography, host_of);
  for (rank_t r = 0; r < ranks(); ++r) clients.push_back(std::make_shared<noting_client>());
  for (int h = 0; h < all.hosts; ++h) {
    nic_hosts::options o;
    o.hosts = all.hosts;
    o.here = h;
    o.host_of.assign(host_of.begin(), host_of.end());
    o.name = id;
    o.wire = std::make_unique<wire>(*this, h);
    o.ring = [] {};
    at.push_back(std::make_shared<nic_hosts>(std::move(o)));
  }
}

nic_posting group::posting(rank_t r, epoch_t epoch, std::uint64_t fingerprint) {
  const auto i = static_cast<std::size_t>(r);
  auto& in = ins[epoch];
  auto& out = outs[epoch];
  in.resize(host_of.size());
  out.resize(host_of.size());
  in[i].assign(count, r + 1);
  out[i].assign(count, -1);
  nic_posting p = nic_sum_posting(how, r, epoch, fingerprint, in[i], out[i]);
  p.communicator = id;
  p.across = at[static_cast<std::size_t>(host(r))].get();
  p.ranks_here = p.across->ranks();
  return p;
}

void group::post(rank_t r, epoch_t epoch, std::uint64_t fingerprint) {
  all.driver(host(r)).post(clients[static_cast<std::size_t>(r)], posting(r, epoch, fingerprint));
}

void group::recall(rank_t r, epoch_t epoch) {
  all.driver(host(r)).recall(*clients[static_cast<std::size_t>(r)], id, epoch, r, now);
  CHECK_FALSE(all.between.refers_to(id, r, epoch));
}

std::vector<std::uint32_t> one_behind_the_other(int hosts, int each) {
  std::vector<std::uint32_t> of;
  for (int r = 0; r < hosts * each; ++r) of.push_back(static_cast<std::uint32_t>(r / each));
  return of;
}

}  // namespace

TEST_CASE("nic hosts: NICs of several hosts perform together, with packets between them and none lost or sent twice") {
  for (const char* choreography : {"ring", "halving_doubling", "double_binary_tree", "recursive_doubling"})
    for (const int hosts : {2, 4})
      for (const int each : {1, 2}) {
        CAPTURE(choreography);
        CAPTURE(hosts);
        world w{hosts};
        group& g = w.add(one_behind_the_other(hosts, each), 100'003, choreography);
        for (epoch_t e = 0; e < 3; ++e) {
          for (rank_t r = 0; r < g.ranks(); ++r) {
            g.post((r + static_cast<rank_t>(e)) % g.ranks(), e);
            for (int h = 0; h < hosts; ++h) w.turn(h);
          }
          w.finish();
          CHECK(g.right(e));
        }
        for (const auto& c : g.clients) {
          CHECK(c->ended.size() == 3);
          CHECK(std::ranges::none_of(c->ended, [](const auto& end) { return end.second != nullptr; }));
        }
        CHECK(w.empty());
        if (hosts == 2)
          for (const auto& d : w.drivers) CHECK(d->nic().statistics().again == 0);
      }
}

TEST_CASE("nic hosts: nothing is sent to a host before it is ready, and then for the same call only") {
  world w{2};
  group& g = w.add(one_behind_the_other(2, 1), 10'000);
  g.post(0, 0);
  w.turn(0);
  CHECK(w.between.waiting(0, 1) == 1);  // that it is ready
  CHECK(w.between.waiting(1, 0) == 0);
  CHECK(w.between.bring_all());
  w.turn(1);
  g.post(1, 0, 8);  // another call
  w.turn(1);
  CHECK(g.clients[1]->different == std::vector<std::pair<epoch_t, rank_t>>{{0, 0}});
  CHECK(w.between.bring_all());
  w.turn(0);
  CHECK(g.clients[0]->different == std::vector<std::pair<epoch_t, rank_t>>{{0, 1}});
  for (rank_t r = 0; r < 2; ++r) {
    g.recall(r, 0);
    CHECK(g.outs[0][static_cast<std::size_t>(r)] == std::vector<std::int32_t>(10'000, -1));
    CHECK(g.clients[static_cast<std::size_t>(r)]->free == std::vector<epoch_t>{0});
  }
  w.finish();
  for (rank_t r = 0; r < 2; ++r) g.post(r, 1);
  w.finish();
  CHECK(g.right(1));
  CHECK(w.empty());
}

TEST_CASE(
    "nic hosts: who begins late asks for what came before, and words of calls that are never made are forgotten") {
  world w{3};
  group& g = w.add(one_behind_the_other(3, 1), 60'000, "one_shot");  // four packets each
  for (rank_t r = 0; r < 3; ++r) g.post(r, 0);
  for (int h = 0; h < 3; ++h) w.turn(h);
  // Host 1 hears of all, host 0 not of host 2.
  CHECK(w.between.bring(0, 1));
  CHECK(w.between.bring(2, 1));
  w.turn(1);
  CHECK(w.between.waiting(1, 0) == 5);
  for (int i = 0; i < 3; ++i) CHECK(w.between.bring(1, 0));
  w.turn(0);
  // From there on the link to it is the slowest, so what was sent twice is still under way when all has been taken.
  const auto quiet = [&] {
    for (int h = 0; h < 3; ++h) w.turn(h);
    int others = 0;
    for (int way = 0; way < 9; ++way)
      for (; way != 3 && w.between.waiting(way / 3, way % 3) > 0; ++others) CHECK(w.between.bring(way / 3, way % 3));
    return others == 0;
  };
  for (bool nothing = quiet(); !nothing || g.clients[1]->ended.empty(); nothing = quiet())
    if (nothing) CHECK(w.between.bring(1, 0));
  CHECK(w.between.waiting(1, 0) > 0);
  w.finish();
  CHECK(g.right(0));
  CHECK(w.drivers[1]->nic().statistics().again > 0);
  // Host 2 never calls number 1.
  g.post(0, 1);
  g.post(1, 1);
  w.finish();
  g.recall(0, 1);
  g.recall(1, 1);
  CHECK_FALSE(w.driver(2).empty());
  for (rank_t r = 0; r < 3; ++r) g.post(r, 2);
  w.finish();
  CHECK(g.right(2));
  CHECK(w.empty());
}

TEST_CASE("nic hosts: hosts that have room for different operations do not wait for each other for ever") {
  // Of two communicators the hosts' ranks call in another order, and there is scratch for one operation.
  world w{2, 1};
  std::vector<group*> g;
  for (int i = 0; i < 20; ++i) g.push_back(&w.add(one_behind_the_other(2, 2), 50'000, "halving_doubling"));
  for (int i = 0; i < 20; ++i)
    for (epoch_t e = 0; e < 3; ++e)
      for (const rank_t r : {0, 1}) g[static_cast<std::size_t>(i)]->post(r, e);
  w.turn(0);
  for (int i = 19; i >= 0; --i)
    for (epoch_t e = 0; e < 3; ++e)
      for (const rank_t r : {2, 3}) g[static_cast<std::size_t>(i)]->post(r, e);
  w.finish();
  for (const group* each : g)
    for (epoch_t e = 0; e < 3; ++e) CHECK(each->right(e));
  CHECK(w.empty());
}

TEST_CASE("nic hosts: operations of one communicator are under way beside each other, however many came before") {
  world w{2};
  group& g = w.add(one_behind_the_other(2, 1), 10);
  for (epoch_t e = 0; e < 2 * offload::most_jobs; ++e) {
    for (rank_t r = 0; r < 2; ++r) g.post(r, e);
    w.finish();
    g.outs.clear();
    for (auto& c : g.clients) c->ended.clear();
  }
  constexpr epoch_t next = 2 * offload::most_jobs;
  for (epoch_t e = next; e < next + 32; ++e) g.post(0, e);
  w.turn(0);
  CHECK(w.driver(0).under_way() == 32);
  for (epoch_t e = next; e < next + 32; ++e) g.post(1, e);
  w.finish();
  for (epoch_t e = next; e < next + 32; ++e) CHECK(g.right(e));
}

TEST_CASE("nic hosts: more communicators at once than a NIC has names for fail with a sentence, and the others go on") {
  world w{2};
  constexpr int many = 300;
  std::vector<group*> g;
  for (int i = 0; i < many; ++i) g.push_back(&w.add(one_behind_the_other(2, 1), 10));
  for (int i = 0; i < many; ++i) g[static_cast<std::size_t>(i)]->post(0, 0);
  w.turn(0);
  for (int i = many - 1; i >= 0; --i) g[static_cast<std::size_t>(i)]->post(1, 0);
  w.turn(1);
  int failed = 0;
  for (group* each : g)
    for (const rank_t r : {0, 1}) {
      const auto& ended = each->clients[static_cast<std::size_t>(r)]->ended;
      if (ended.empty()) continue;
      ++failed;
      CHECK(ended.front().second->text.find("224 operations between hosts at once") != std::string::npos);
      each->recall(1 - r, 0);  // as its rank does when it hears of that
    }
  CHECK(failed == 2 * (many - nic_driver::most_between_hosts));
  w.finish();
  int well = 0;
  for (const group* each : g) well += each->right(0) ? 1 : 0;
  CHECK(well == many - failed);
  for (group* each : g) {
    for (const rank_t r : {0, 1}) each->post(r, 1);
    w.finish();
    CHECK(each->right(1));
  }
  CHECK(w.empty());
}

TEST_CASE(
    "nic hosts: in whatever order things happen, and whatever is recalled, results are right and memory is let go") {
  std::mt19937_64 seeds(seed());
  constexpr const char* choreographies[] = {"ring", "halving_doubling", "double_binary_tree", "recursive_doubling",
                                            "one_shot"};
  for (int round = 0; round < 150; ++round) {
    const std::uint64_t drawn = seeds();
    CAPTURE(drawn);
    std::mt19937_64 random(drawn);
    const auto below = [&](std::size_t end) { return static_cast<std::size_t>(random() % end); };
    world w{2 + static_cast<int>(below(3)), below(2) == 0 ? 1 : nic_driver::default_scratch};
    constexpr epoch_t epochs = 4;
    const int groups = 1 + static_cast<int>(below(3));
    for (int i = 0; i < groups; ++i) {
      auto hosts = one_behind_the_other(w.hosts, 1 + static_cast<int>(below(2)));
      std::shuffle(hosts.begin() + 1, hosts.end(), random);
      w.add(hosts, below(3) == 0 ? 200'000 : below(3000), choreographies[below(std::size(choreographies))]);
    }
    // What each rank does next, and what is recalled: an operation as a whole, of whoever has posted it, and nobody posts it then.
    std::map<std::pair<group*, rank_t>, epoch_t> next;
    std::map<std::pair<group*, epoch_t>, bool> over;
    std::map<std::pair<group*, epoch_t>, std::vector<rank_t>> posted;
    for (const auto& g : w.groups)
      for (rank_t r = 0; r < g->ranks(); ++r) next[{g.get(), r}] = 0;
    const auto done = [&] { return std::ranges::all_of(next, [](const auto& n) { return n.second == epochs; }); };
    for (int step = 0; step < 100'000 && !done(); ++step) {
      const std::size_t what = below(8);
      group* const g = w.groups[below(w.groups.size())].get();
      const auto r = static_cast<rank_t>(below(static_cast<std::size_t>(g->ranks())));
      if (what < 2) {
        epoch_t& e = next.at({g, r});
        if (e == epochs) continue;
        if (!over[{g, e}]) g->post(r, e), posted[{g, e}].push_back(r);
        ++e;
      } else if (what < 5 && !w.between.empty()) {
        CHECK(w.between.bring_one(random));
      } else if (what == 7 && below(20) == 0) {
        const auto e = static_cast<epoch_t>(below(epochs));
        bool ended = false;  // on any rank: then none of its operations is recalled here
        for (const auto& c : g->clients)
          for (const auto& [epoch, why] : c->ended) ended = ended || epoch == e;
        if (ended || over[{g, e}]) continue;
        over[{g, e}] = true;
        for (const rank_t who : posted[{g, e}]) {
          g->recall(who, e);
          const auto i = static_cast<std::size_t>(who);
          std::ranges::fill(g->ins[e][i], 1 << 20);  // theirs again
          std::ranges::fill(g->outs[e][i], 1 << 20);
        }
      } else {
        w.turn(static_cast<int>(below(static_cast<std::size_t>(w.hosts))));
      }
    }
    w.finish();
    for (const auto& g : w.groups)
      for (epoch_t e = 0; e < epochs; ++e) {
        CAPTURE(e);
        if (!over[{g.get(), e}]) CHECK(g->right(e));
        else
          for (const auto& o : g->outs[e]) CHECK(std::ranges::all_of(o, [](std::int32_t x) { return x == 1 << 20; }));
      }
    for (const auto& g : w.groups)  // what was recalled by all leaves words behind until the next one that all call
      for (rank_t r = 0; r < g->ranks(); ++r) g->post(r, epochs);
    w.finish();
    for (const auto& g : w.groups) CHECK(g->right(epochs));
    CHECK(w.empty());
  }
}

namespace {

/// A rank's queue whose owner waits for the end of each operation.
class waited_queue final : public nic_queue {
public:
  using nic_queue::nic_queue;
  void performed(epoch_t, failure_ptr why) override {
    if (why) failed.fetch_add(1);
    ended.fetch_add(1);
    ended.notify_all();
  }
  void differs(epoch_t, rank_t) override { failed.fetch_add(1); }
  void let_go(epoch_t) override {}
  std::atomic<int> ended{0}, failed{0};
};

/// Brings everything at once, on the thread that sends it.
class short_wire final : public nic_wire {
public:
  short_wire(int here, std::shared_ptr<nic_hosts> (&at)[2]) : here_(here), at_(at) {}
  void send(int host, epoch_t epoch, const offload_packet& what) override {
    offload_packet p = what;
    p.job = {};
    auto keep = std::make_shared<std::vector<std::byte>>(what.lies_at, what.lies_at + what.bytes);
    if (what.bytes > 0) p.lies_at = keep->data(), p.keep = keep;
    at_[host]->came(here_, epoch, std::move(p));
  }
  void send(int host, epoch_t epoch, const offload_response& what) override { at_[host]->came(here_, epoch, what); }
  void send_ready(int host, epoch_t epoch, std::uint64_t fingerprint) override {
    at_[host]->came_ready(here_, epoch, fingerprint);
  }
  void let_go(rank_t, epoch_t) override {}

private:
  int here_;
  std::shared_ptr<nic_hosts> (&at_)[2];
};

}  // namespace

TEST_CASE("nic hosts: two NICs' threads perform what threads of two hosts post, and end with it") {
  constexpr int each = 2, rounds = 200;
  constexpr std::size_t count = 20'000;
  const plan_ptr how = nic_sum_plan(2 * each, count, "halving_doubling", one_behind_the_other(2, each));
  std::shared_ptr<nic_hosts> at[2];
  nic_arrivals arrivals[2];
  nic_thread nics[2]{{4, true}, {1, false}};
  for (int h = 0; h < 2; ++h) {
    nic_hosts::options o;
    o.hosts = 2;
    o.here = h;
    o.host_of = {0, 0, 1, 1};
    o.name = 1;
    o.wire = std::make_unique<short_wire>(h, at);
    o.ring = [&nics, h] { nics[h].ring(); };
    at[h] = std::make_shared<nic_hosts>(std::move(o));
  }
  for (int h = 0; h < 2; ++h) nics[h].serve(at[h]);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (rank_t r = 0; r < 2 * each; ++r)
    threads.emplace_back([&, r] {
      const int h = r / each;
      const auto queue = std::make_shared<waited_queue>(nics[h], arrivals[h]);
      std::vector<std::int32_t> in(count, r + 1), out(count);
      for (int i = 0; i < rounds; ++i) {
        std::ranges::fill(out, -1);
        nic_posting p = nic_sum_posting(how, r, static_cast<epoch_t>(i), 7, in, out);
        p.across = at[h].get();
        p.ranks_here = each;
        if (queue->post(p) == nic_queue::posted::complete) queue->bell().wake();
        for (int seen = i; seen == i; seen = queue->ended.load()) queue->ended.wait(i);
        wrong += out != std::vector<std::int32_t>(count, 10);
      }
      wrong += queue->failed.load();
    });
  for (auto& t : threads) t.join();
  CHECK(wrong == 0);
  for (int h = 0; h < 2; ++h) at[h]->end();
  for (nic_thread& n : nics) n.close();
}
