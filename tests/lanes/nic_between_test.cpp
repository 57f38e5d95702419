// SPDX-License-Identifier: Apache-2.0
// One NIC for ranks of several processes: a home's view and another one's on the same memory, in one process and without threads, so that every
// moment can be tried. What real processes do with it: tests/processes/offload_test.cpp.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "actors/ports/nic/nic_between.hpp"
#include "protocols/offload/packed_programs.hpp"
#include "tests/lanes/ranks_on_threads.hpp"
#include "tests/seed.hpp"

using namespace ranks_test;
using namespace std::chrono_literals;

namespace {

/// Rank 0 is at home, all others are in one other process, as both see it. With `home` behind the last rank all are in the other one.
struct two_processes {
  static constexpr std::size_t bytes = std::size_t{1} << 20;
  std::vector<std::byte> memory = std::vector<std::byte>(bytes);
  bool maps = false;  ///< both map all memory; else it is copied
  bool home_ended = false, home_lost = false, other_ended = false, refuses = false;
  int copies = 0, ends = 0;
  std::function<void(std::span<std::byte>)> spoils;  ///< what was copied
  rank_t home = 0;
  doorbell bells[2];
};

class view final : public board_memory, private process_memory {
public:
  view(two_processes& of, bool home) : of_(of), home_(home) {}
  bool between_processes() const noexcept override { return true; }
  bool has_membarrier() const noexcept override { return false; }
  void* root(std::size_t wanted) override {
    void* at = of_.memory.data() + next_;
    std::size_t left = two_processes::bytes - next_;
    at = std::align(alignment, wanted, at, left);
    next_ = two_processes::bytes - left + wanted;
    return at;
  }
  void* take(std::size_t) noexcept override { return nullptr; }
  void give_back(void*) noexcept override {}
  process_memory* peers() noexcept override { return this; }

private:
  bool is_here(rank_t rank) const noexcept override { return (rank == of_.home) == home_; }
  std::byte* near(rank_t, std::byte* its) override { return of_.maps ? its : nullptr; }
  bool shares(const std::byte*) const noexcept override { return of_.maps; }
  std::byte* lend(std::size_t) noexcept override { return nullptr; }
  void take_back(std::byte*) noexcept override {}
  bool read(rank_t, std::byte* to, const std::byte* from, std::size_t n) override { return copy(to, from, n); }
  bool write(rank_t, std::byte* to, const std::byte* from, std::size_t n) override { return copy(to, from, n); }
  bool copy(std::byte* to, const std::byte* from, std::size_t n) {
    if (of_.refuses) throw error(errc::io, "the system copies nothing");
    ++of_.copies;
    if (!of_.other_ended) std::memcpy(to, from, n);
    if (of_.spoils) of_.spoils({to, n});
    return !of_.other_ended;
  }
  std::string why_refused(rank_t) const override { return "the system copies nothing"; }
  bool has_ended(rank_t which) override { return which == of_.home ? of_.home_ended : of_.other_ended; }
  bool is_lost(rank_t which) const noexcept override { return which == of_.home && of_.home_lost; }
  void end(rank_t) override { ++of_.ends; }

  two_processes& of_;
  bool home_;
  std::size_t next_ = 0;
};

/// All-reduces of i32 of ranks of both.
struct job {
  explicit job(int n, std::size_t c = 1000, const char* choreography = "ring")
      : ranks(n), count(c), how(nic_sum_plan(n, c, choreography)) {
    for (rank_t r = 0; r < n; ++r) {
      clients.push_back(std::make_shared<noting_client>());
      in.emplace_back(c, r + 1);
      out.emplace_back(c, -1);
    }
  }
  static nic_between::options options(two_processes& of, bool home, int n) {
    nic_between::options o;
    o.ranks = n;
    o.in = std::make_shared<view>(of, home);
    o.name = 1;
    for (rank_t r = 0; r < n; ++r) o.bells.push_back(&of.bells[r == 0 ? 0 : 1]);
    o.own = &of.bells[home ? 0 : 1];
    return o;
  }
  noting_client& of(rank_t r) { return *clients[static_cast<std::size_t>(r)]; }
  void post(rank_t r, epoch_t epoch, std::uint64_t fingerprint = 7, bool in_place = false) {
    const auto at = static_cast<std::size_t>(r);
    if (in_place) out[at] = in[at];
    nic_posting p = nic_sum_posting(how, r, epoch, fingerprint, in_place ? out[at] : in[at], out[at]);
    if (r == 0) driver.post(clients[at], std::move(p));
    else REQUIRE(other.post(clients[at], p));
  }
  void finish() {
    for (int round = 0; round < 3; ++round) {
      home.serve(driver, picoseconds{0});
      for (picoseconds now{0}; driver.turn(now); now += picoseconds{1000}) {}
      other.serve(elsewhere, picoseconds{0});
    }
  }
  bool right() const {
    return std::ranges::all_of(
        out, [&](const auto& o) { return o == std::vector<std::int32_t>(count, ranks * (ranks + 1) / 2); });
  }
  bool untouched() const {
    return std::ranges::all_of(out, [&](const auto& o) { return o == std::vector<std::int32_t>(count, -1); });
  }

  int ranks;
  std::size_t count;
  plan_ptr how;
  std::vector<std::shared_ptr<noting_client>> clients;
  std::vector<std::vector<std::int32_t>> in, out;
  two_processes both;
  nic_between home{options(both, true, ranks)}, other{options(both, false, ranks)};
  nic_driver driver, elsewhere;
};

}  // namespace

TEST_CASE("nic between: ranks elsewhere bring no descriptors, and their memory is worked on where it is, or copied") {
  for (const char* choreography : {"ring", "halving_doubling", "double_binary_tree"})
    for (const bool maps : {true, false})
      for (const bool in_place : {false, true}) {
        CAPTURE(choreography);
        CAPTURE(maps);
        job j{4, 50'001, choreography};
        j.both.maps = maps;
        for (epoch_t e = 0; e < 100; ++e) {
          for (auto& o : j.out) std::fill(o.begin(), o.end(), -1);
          for (rank_t k = 0; k < 4; ++k) {
            if (!in_place) CHECK(j.untouched());
            j.post((k + static_cast<rank_t>(e)) % 4, e, 7, in_place);
            j.home.serve(j.driver, picoseconds{0});
            if (k < 3) CHECK_FALSE(j.driver.turn(picoseconds{0}));
          }
          j.finish();
          CHECK(j.right());
        }
        CHECK(j.both.copies == (maps ? 0 : 600));  // of three ranks: an input and an output
        for (rank_t r = 0; r < 4; ++r) {
          REQUIRE(j.of(r).ended.size() == 100);
          for (epoch_t e = 0; e < 100; ++e) CHECK(j.of(r).ended[e] == std::pair<epoch_t, failure_ptr>{e, nullptr});
        }
        CHECK(j.driver.empty());
        CHECK(j.driver.scratch().in_use == 0);
      }
}

TEST_CASE("nic between: another call is told to who made it, and every rank gets its memory back") {
  job j{3};
  j.post(1, 5);
  j.home.serve(j.driver, picoseconds{0});
  j.post(2, 5, 8);
  j.post(0, 5);
  j.finish();
  CHECK(j.of(2).different == std::vector<std::pair<epoch_t, rank_t>>{{5, 1}});
  CHECK(j.of(1).different.empty());
  j.other.recall(5, 1);
  CHECK(j.other.waits());
  j.driver.recall(j.of(0), 1, 5, 0, picoseconds{0});
  j.finish();
  CHECK(j.of(1).free == std::vector<epoch_t>{5});
  CHECK_FALSE(j.other.waits());
  CHECK(j.untouched());
  CHECK(j.driver.empty());
}

TEST_CASE("nic between: a process that has ended leaves the others to recall, one that may not be copied fails them") {
  SUBCASE("ended") {
    job j{3};
    for (rank_t r = 0; r < 3; ++r) j.post(r, 0);
    j.both.other_ended = true;
    j.finish();
    CHECK(j.of(0).ended.empty());  // who is lost is known otherwise
    CHECK(j.driver.under_way() == 0);
    j.driver.recall(j.of(0), 1, 0, 0, picoseconds{0});
    CHECK(j.of(0).free == std::vector<epoch_t>{0});
    j.home.close(j.driver, picoseconds{0});
    CHECK(j.driver.empty());
  }
  SUBCASE("refused") {
    job j{3};
    for (rank_t r = 0; r < 3; ++r) j.post(r, 0);
    j.both.refuses = true;
    j.finish();
    for (rank_t r = 0; r < 3; ++r) {
      REQUIRE(j.of(r).ended.size() == 1);
      REQUIRE(j.of(r).ended[0].second);
      CHECK(j.of(r).ended[0].second->code == errc::io);
      CHECK(j.of(r).ended[0].second->text == "the system copies nothing");
    }
    CHECK(j.driver.empty());
  }
}

TEST_CASE("nic between: memory comes back from a home that closes, has ended, or was stopped, and from no other") {
  const steady_time start{};
  job j{3};
  j.post(0, 0);
  j.post(1, 0);
  j.post(2, 0);
  j.home.serve(j.driver, picoseconds{0});
  j.driver.turn(picoseconds{0});
  j.other.recall(0, 1);
  j.other.look_after(start + 1h);
  CHECK(j.of(1).free.empty());
  SUBCASE("closes") {
    j.home.close(j.driver, picoseconds{0});
    CHECK(j.driver.under_way() == 0);
  }
  SUBCASE("ended") { j.both.home_ended = true; }
  SUBCASE("stopped") {
    j.both.home_lost = true;
    j.other.look_after(start + 2h);
    j.other.look_after(start + 2h + 999ms);
    CHECK(j.both.ends == 0);
    j.other.look_after(start + 2h + 1001ms);
    CHECK(j.both.ends == 1);
    CHECK(j.of(1).free.empty());
    j.both.home_ended = true;
  }
  j.other.look_after(start + 3h);
  CHECK(j.of(1).free == std::vector<epoch_t>{0});
  CHECK_FALSE(j.other.waits());
  j.home.serve(j.driver, picoseconds{0});  // an answer that was late is no second one
  j.other.serve(j.elsewhere, picoseconds{0});
  CHECK(j.of(1).free.size() == 1);
}

TEST_CASE("nic between: whoever posts more than it may is told, and what it recalls has room") {
  job j{2};
  nic_posting p;
  p.rank = 1;
  p.ranks = 2;
  for (p.epoch = 0; p.epoch < 32; ++p.epoch) CHECK(j.other.post(j.clients[1], p));
  CHECK_FALSE(j.other.post(j.clients[1], p));
  for (epoch_t e = 0; e < 32; ++e) j.other.recall(e, 1);
  j.finish();
  CHECK(j.of(1).free.size() == 32);
  CHECK(j.driver.empty());
  CHECK(j.other.post(j.clients[1], p));
}

TEST_CASE("nic between: an input of a few bytes comes with the posting, and is not copied by the system") {
  for (const std::size_t count : {std::size_t{1}, most_inline_bytes / 4, most_inline_bytes / 4 + 1})
    for (const bool maps : {false, true})
      for (const bool in_place : {false, true}) {
        CAPTURE(count);
        CAPTURE(maps);
        CAPTURE(in_place);
        job j{4, count, "recursive_doubling"};
        j.both.maps = maps;
        for (epoch_t e = 0; e < 10; ++e) {
          for (auto& o : j.out) std::fill(o.begin(), o.end(), -1);
          for (rank_t r = 0; r < 4; ++r) j.post(r, e, 7, in_place);
          j.finish();
          CHECK(j.right());
        }
        const int copies_of_rank = count * 4 <= most_inline_bytes ? 1 : 2;  // its output, and its input
        CHECK(j.both.copies == (maps ? 0 : 10 * 3 * copies_of_rank));
      }
}

TEST_CASE("nic between: copies are made in pieces, others are performed meanwhile, and none follows a recall") {
  std::mt19937_64 random(seed());
  int before = 0, between = 0, after = 0;
  for (int round = 0; round < 60; ++round) {
    job j{3, 400'000};
    for (rank_t r = 0; r < 3; ++r) j.post(r, 0);
    j.home.serve(j.driver, picoseconds{0});
    const std::uint64_t turns = random() % 60;
    for (std::uint64_t t = 0; t < turns; ++t) j.driver.turn(picoseconds{0});
    j.other.serve(j.elsewhere, picoseconds{0});
    if (j.of(1).ended.empty()) {
      j.other.recall(0, 1);
      j.home.serve(j.driver, picoseconds{0});
      ++(j.both.copies < 14 ? before : between);
    } else {
      ++after;
    }
    const auto then = j.out;
    const bool recalled = j.of(1).ended.empty();
    j.finish();
    if (recalled) {
      CHECK(j.out == then);
      CHECK(j.of(1).free == std::vector<epoch_t>{0});
      CHECK(j.driver.under_way() == 0);
    } else {
      CHECK(j.right());
    }
  }
  CHECK(before > 0);   // inputs come
  CHECK(between > 0);  // or are there, and outputs go
  CHECK(after > 0);

  job longest{2, 2'000'000};
  for (rank_t r = 0; r < 2; ++r) longest.post(r, 0);
  longest.home.serve(longest.driver, picoseconds{0});
  longest.driver.turn(picoseconds{0});
  job brief{2, 10};
  for (rank_t r = 0; r < 2; ++r) {
    const auto at = static_cast<std::size_t>(r);
    nic_posting p;
    p.communicator = 2;
    p.rank = r;
    p.ranks = 2;
    p.program = brief.how->descriptors_of(r, 10);
    p.memory.input = reinterpret_cast<std::byte*>(brief.in[at].data());
    p.memory.output = reinterpret_cast<std::byte*>(brief.out[at].data());
    p.type = datatype::i32;
    p.reduction = sum;
    longest.driver.post(brief.clients[at], std::move(p));
  }
  for (int t = 0; t < 5; ++t) longest.driver.turn(picoseconds{0});
  CHECK(brief.right());
  CHECK(longest.both.copies < 10);  // of 31
  longest.finish();
  CHECK(longest.right());
}

// -- a home without ranks -------------------------------------------------------------------------------------------------

namespace {

class noted_host final : public nic_of_host {
public:
  noted_host() : nic_of_host(page) {}
  std::string why_gone() const override { return "the host's NIC process has ended"; }
  void left(std::uint64_t communicator) noexcept override { whom = communicator; }
  void go() { gone_.store(true); }
  int under_way() const { return under_way_.load(); }
  nic_page page{};
  std::uint64_t whom = 0;
};

/// All ranks in one process, the home in another one.
struct hosted_job {
  explicit hosted_job(int n, std::size_t c = 1000, const char* choreography = "ring")
      : ranks(n), count(c), how(nic_sum_plan(n, c, choreography)) {
    both.home = n;
    home.emplace(options(true));
    other.emplace(options(false));
    for (rank_t r = 0; r < n; ++r) {
      clients.push_back(std::make_shared<noting_client>());
      in.emplace_back(c, r + 1);
      out.emplace_back(c, -1);
    }
  }
  nic_between::options options(bool at_home) {
    nic_between::options o;
    o.ranks = ranks;
    o.in = std::make_shared<view>(both, at_home);
    o.name = 1;
    o.id = 77;
    o.host = host;
    for (rank_t r = 0; r < ranks; ++r) o.bells.push_back(&both.bells[1]);
    o.own = at_home ? &host->bell() : &both.bells[1];
    return o;
  }
  noting_client& of(rank_t r) { return *clients[static_cast<std::size_t>(r)]; }
  void post(rank_t r, epoch_t epoch, std::uint64_t fingerprint = 7) {
    const auto at = static_cast<std::size_t>(r);
    nic_posting p = nic_sum_posting(how, r, epoch, fingerprint, in[at], out[at]);
    p.input_bytes = p.output_bytes = bytes_told;
    REQUIRE(other->post(clients[at], p));
  }
  void finish() {
    for (int round = 0; round < 3; ++round) {
      home->serve(driver, picoseconds{0});
      for (picoseconds now{0}; driver.turn(now); now += picoseconds{1000}) {}
      other->serve(elsewhere, picoseconds{0});
    }
  }
  bool all_are(int value) const {
    return std::ranges::all_of(out, [&](const auto& o) { return o == std::vector<std::int32_t>(count, value); });
  }

  int ranks;
  std::size_t count;
  std::size_t bytes_told = count * sizeof(std::int32_t);
  plan_ptr how;
  std::vector<std::shared_ptr<noting_client>> clients;
  std::vector<std::vector<std::int32_t>> in, out;
  two_processes both;
  std::shared_ptr<noted_host> host = std::make_shared<noted_host>();
  std::optional<nic_between> home, other;
  nic_driver driver, elsewhere;
};

}  // namespace

TEST_CASE("nic between: a home without ranks reads the descriptors once for a plan and size") {
  for (const char* choreography : {"ring", "halving_doubling", "double_binary_tree"})
    for (const bool maps : {true, false}) {
      CAPTURE(choreography);
      hosted_job j{4, 50'001, choreography};
      j.both.maps = maps;
      CHECK_FALSE(j.home->at_home() == j.other->at_home());
      for (epoch_t e = 0; e < 20; ++e) {
        for (auto& o : j.out) std::fill(o.begin(), o.end(), -1);
        for (rank_t k = 0; k < 4; ++k) {
          CHECK(j.all_are(-1));
          j.post((k + static_cast<rank_t>(e)) % 4, e);
          j.home->serve(j.driver, picoseconds{0});
          if (k < 3) CHECK_FALSE(j.driver.turn(picoseconds{0}));
        }
        CHECK(j.host->under_way() == 4);
        j.finish();
        CHECK(j.all_are(10));
        CHECK(j.host->under_way() == 0);
      }
      CHECK(j.both.copies == 1 + (maps ? 0 : 160));  // the descriptors; of four ranks an input and an output
      CHECK(j.driver.empty());
      CHECK(j.driver.scratch().in_use == 0);
      j.other->end();
      CHECK(j.host->whom == 77);
    }
}

TEST_CASE(
    "nic between: a home without ranks reads the descriptors of eight sizes once, in whatever order they are called") {
  constexpr std::size_t sizes = 8;
  hosted_job j{3};
  j.both.maps = true;
  epoch_t epoch = 0;
  for (int round = 0; round < 3; ++round)
    for (std::size_t k = 0; k < sizes; ++k, ++epoch) {
      const std::size_t count = 100 + 7 * k;
      for (rank_t r = 0; r < 3; ++r) {
        const auto at = static_cast<std::size_t>(r);
        nic_posting p =
            nic_sum_posting(j.how, r, epoch, 7, std::span{j.in[at]}.first(count), std::span{j.out[at]}.first(count));
        p.program = nullptr;  // as a rank posts
        REQUIRE(j.other->post(j.clients[at], p));
      }
      j.finish();
      for (const auto& o : j.out) CHECK(std::all_of(o.begin(), o.begin() + 100, [](std::int32_t x) { return x == 6; }));
    }
  CHECK(j.both.copies == sizes);
  CHECK(j.driver.empty());
}

TEST_CASE("nic between: descriptors that reach beyond what a rank has posted, or are none, fail the operation there") {
  hosted_job j{3};
  j.bytes_told = 8;
  for (rank_t r = 0; r < 3; ++r) j.post(r, 0);
  j.finish();
  for (rank_t r = 0; r < 3; ++r) {
    REQUIRE(j.of(r).ended.size() == 1);
    REQUIRE(j.of(r).ended[0].second);
    CHECK(j.of(r).ended[0].second->text.find("reaches beyond the rank's buffers") != std::string::npos);
  }
  CHECK(j.all_are(-1));
  CHECK(j.driver.empty());
  hosted_job unread{3};
  unread.both.refuses = true;
  for (rank_t r = 0; r < 3; ++r) unread.post(r, 0);
  unread.finish();
  REQUIRE(unread.of(1).ended.size() == 1);
  CHECK(unread.of(1).ended[0].second->text == "the NIC refuses its descriptors: they did not come");
  CHECK(unread.driver.empty());
}

TEST_CASE(
    "nic between: descriptors that no NIC can perform fail the operation with a sentence, and the next one is well") {
  using programs = std::vector<offload::rank_program>;
  const auto said = [](auto change) {
    hosted_job j{3};
    j.both.spoils = [&](std::span<std::byte> copied) {
      auto all = offload::unpack(copied);
      if (!all) return;  // a rank's data
      change(*all);
      const std::vector<std::byte> bytes = offload::pack(*all);
      REQUIRE(bytes.size() == copied.size());
      std::ranges::copy(bytes, copied.begin());
    };
    for (rank_t r = 0; r < 3; ++r) j.post(r, 0);
    j.finish();
    REQUIRE(j.of(2).ended.size() == 1);
    REQUIRE(j.of(2).ended[0].second);
    CHECK(j.all_are(-1));
    CHECK(j.driver.empty());
    return j.of(2).ended[0].second->text;
  };
  const auto has = [](const std::string& text, const char* part) {
    CHECK_MESSAGE(text.find(part) != std::string::npos, text);
  };
  has(said([](programs& all) { all[1].sequences[0].descriptors.back().collective_end = false; }), "CollEndFlag");
  has(said([](programs& all) { all[1].sequences[0].port = 2053; }), "there is no port 2053");
  has(said([](programs& all) { all[1].sequences[0].descriptors[0].own = {}; }), "its own data are no elements");
  has(said([](programs& all) {
        all[1].sequences[0].port = all[0].sequences[0].port;
        for (offload::descriptor& d : all[1].sequences[0].descriptors) d.source_port = all[0].sequences[0].port;
        all[1].sequences[0].descriptors.back().dest_port = all[0].sequences[0].port;
      }),
      "another rank has port");
  has(said([](programs& all) { all[1].sequences[0].descriptors[0].dest_port = 77; }),
      "it sends to a port that nobody has");
  has(said([](programs& all) { all[1].at.node = 5, all[1].sequences[0].descriptors.back().dest_node = 5; }),
      "is on another node");
}

TEST_CASE("nic between: a home without ranks that has ended fails what it has not answered, gives back what was "
          "recalled, and takes no more") {
  hosted_job j{3};
  j.post(0, 0);
  j.post(1, 0);
  j.post(2, 0);
  j.finish();
  j.post(0, 1);
  j.post(1, 1);
  j.other->recall(1, 1);
  j.other->look_after(steady_time{});
  CHECK(j.of(0).ended.size() == 1);  // it is there, and says nothing
  j.both.home_ended = true;
  j.host->go();
  CHECK(j.other->waits());
  j.other->look_after(steady_time{});
  REQUIRE(j.of(0).ended.size() == 2);
  REQUIRE(j.of(0).ended[1].second);
  CHECK(j.of(0).ended[1].second->code == errc::peer_lost);
  CHECK(j.of(0).ended[1].second->text == "the host's NIC process has ended");
  CHECK(j.of(1).ended.size() == 1);
  CHECK(j.of(1).free == std::vector<epoch_t>{1});
  CHECK(j.host->under_way() == 0);
  CHECK_FALSE(j.other->waits());
  nic_posting late;
  late.rank = 2;
  CHECK_THROWS_WITH_AS(j.other->post(j.clients[2], late), "the host's NIC process has ended", error);
}

TEST_CASE("nic between: a home without ranks frees what a process has left behind that has ended") {
  hosted_job j{3, 400'000};
  for (rank_t r = 0; r < 3; ++r) j.post(r, 0);
  j.post(0, 1);
  j.home->serve(j.driver, picoseconds{0});
  j.driver.turn(picoseconds{0});
  CHECK(j.driver.operations() == 2);
  j.home->end();
  CHECK(j.home->has_ended());
  j.home->close(j.driver, picoseconds{0});
  CHECK(j.driver.empty());
  CHECK(j.driver.under_way() == 0);
  CHECK(j.driver.scratch().in_use == 0);
  j.other->recall(0, 2);
  j.other->look_after(steady_time{});
  CHECK(j.of(2).free == std::vector<epoch_t>{0});
}

TEST_CASE("packed descriptors are the same when they are unpacked, and what is cut off or changed is none") {
  for (const char* choreography : {"ring", "halving_doubling", "double_binary_tree"}) {
    const plan_ptr how = nic_sum_plan(5, 1000, choreography);
    const auto first = how->descriptors_of(0, 1000);
    const std::span<const offload::rank_program> all{first.get(), 5};
    std::vector<std::byte> bytes = offload::pack(all);
    const auto back = offload::unpack(bytes);
    REQUIRE(back);
    CHECK(offload::to_json(*back) == offload::to_json(all));
    CHECK(offload::why_not_within((*back)[3], 4000, 4000).empty());
    CHECK_FALSE(offload::why_not_within((*back)[3], 4000, 3999).empty());
    for (std::size_t cut = 0; cut < bytes.size(); cut += 7)
      CHECK_FALSE(offload::unpack(std::span{bytes}.first(cut)).has_value());
    bytes.push_back(std::byte{0});
    CHECK_FALSE(offload::unpack(bytes).has_value());
    std::mt19937_64 random(seed());
    for (int k = 0; k < 2000;
         ++k) {  // the heads, whose counts it must not follow; no more is asked of it than to return
      std::vector<std::byte> other = offload::pack(all);
      other[random() % 64] = static_cast<std::byte>(random());
      static_cast<void>(offload::unpack(other));
    }
  }
}
