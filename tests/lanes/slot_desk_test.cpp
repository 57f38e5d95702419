// The desk of a communicator on threads of the test's own, with an agreement on a thread instead of the membership actor.

#include "actors/slot_desk.hpp"

#include "memory/error.hpp"
#include "protocols/agreement.hpp"
#include "protocols/agreement_round.hpp"
#include "protocols/choreography.hpp"
#include "protocols/lowering.hpp"

#include <doctest/doctest.h>

#include <deque>
#include <functional>
#include <thread>

using namespace troupe;
using namespace troupe::actors;
using namespace std::chrono_literals;

namespace {

/// A membership on a thread, and the attendant's thread.
class office final : agreement::audience {
 public:
  explicit office(int ranks) : ranks_(ranks), state_(ranks, "world"), desk_(ranks, true, 2, 100, std::make_unique<mail>(*this)) {
    member_ = std::thread([this] { work(); });
  }
  ~office() {
    desk_.close();
    if (attendant_.joinable()) attendant_.join();
    post(nullptr);
    member_.join();
  }
  slot_desk& desk() { return desk_; }

 private:
  struct mail final : slot_desk::outbox {
    explicit mail(office& o) : to(o) {}
    void called(epoch_t e, rank_t r, const call& c) override {
      to.post([this, e, r, c] { to.state_.called(e, r, c, to); });
    }
    void withdraw(epoch_t e, rank_t r) override {
      to.post([this, e, r] { to.state_.withdraw(e, r); });
    }
    void fail(epoch_t e, const std::string& title, const failure_ptr& why) override {
      to.post([this, e, title, why] { to.state_.fail(e, title, why, to); });
    }
    void leave(rank_t r, epoch_t n) override {
      to.post([this, r, n] { to.state_.left(r, n, to); });
    }
    void start_attendant() override {
      to.attendant_ = std::thread([this] { to.desk_.attend(); });
    }
    office& to;
  };

  void agreed(epoch_t, const counts_ptr&) override {}
  void stop(epoch_t e) override {
    post([this, e] {
      for (rank_t r = 0; r < ranks_; ++r) state_.stopped(e, r, {}, *this);
    });
  }
  void failed(epoch_t e, const failure_ptr& why) override { desk_.failed(e, why); }
  void broken(const failure_ptr& why) override { desk_.broken(why); }
  void peer_left(rank_t) override {}
  void peer_lost(rank_t) override {}

  void post(std::function<void()> what) {
    {
      const std::lock_guard lock(mutex_);
      posted_.push_back(std::move(what));
    }
    come_.notify_one();
  }
  void work() {
    while (true) {
      std::function<void()> next;
      {
        std::unique_lock lock(mutex_);
        come_.wait(lock, [&] { return !posted_.empty(); });
        next = std::move(posted_.front());
        posted_.pop_front();
      }
      if (!next) return;
      next();
    }
  }

  int ranks_;
  std::mutex mutex_;
  std::condition_variable come_;
  std::deque<std::function<void()>> posted_;
  agreement state_;
  slot_desk desk_;
  std::thread member_, attendant_;
};

plan_ptr sum_plan(int ranks, std::size_t count) {
  auto p = std::make_shared<plan>();
  p->notes = std::make_shared<const score>(
      one_cell_per_step(lower_syncs(write_score(*find_choreography("one_shot"), flat_stage(collective::all_reduce, ranks)))));
  p->count = count;
  p->work_type = datatype::i32;
  p->slots = slot_format::ll128;
  return p;
}

call sum_call(std::size_t count) {
  call c;
  c.what = collective::all_reduce;
  c.type = datatype::i32;
  c.count = count;
  return c;
}

plan_ptr rooted_plan(collective what, int ranks, rank_t root, std::size_t count, agreement_form form) {
  auto p = std::make_shared<plan>();
  p->notes = std::make_shared<const score>(
      with_agreement(write_score(*find_choreography("one_shot"), flat_stage(what, ranks, root)), form).value());
  p->count = count;
  p->work_type = datatype::i32;
  p->slots = slot_format::ll128;
  return p;
}

call call_of(const plan& how) {
  call c = sum_call(how.count);
  c.what = how.notes->what;
  c.root = how.notes->root;
  return c;
}

void wait_for(const completion_ptr& done) {
  parker place;
  if (!done->enter(place)) return;
  while (!done->done()) place.park(no_deadline);
  done->leave(place);
}

failure_ptr run(slot_desk& desk, rank_t rank, const plan_ptr& how, const std::int32_t* in, std::int32_t* out,
                std::optional<std::chrono::nanoseconds> deadline = std::nullopt) {
  const call what = call_of(*how);
  auto turn = desk.begin_again(rank, what);
  if (!turn) turn = desk.begin(rank, what, how);
  if (turn) {
    const auto result = desk.perform(turn, in, out, deadline);
    if (!result.still_to_do) return result.why;
    wait_for(result.still_to_do->done);
    return result.still_to_do->done->why();
  }
  auto op = std::make_shared<operation>();
  op->what = what;
  op->plan = how;
  op->input = in;
  op->output = out;
  op->deadline = deadline;
  const completion_ptr done = op->done;
  desk.submit(rank, std::move(op));
  wait_for(done);
  return done->why();
}

completion_ptr start(slot_desk& desk, rank_t rank, const plan_ptr& how, const std::int32_t* in, std::int32_t* out) {
  auto op = std::make_shared<operation>();
  op->what = call_of(*how);
  op->plan = how;
  op->input = in;
  op->output = out;
  const completion_ptr done = op->done;
  desk.submit(rank, std::move(op));
  return done;
}

}  // namespace

TEST_CASE("blocking and asynchronous operations of several threads keep their order and their sums") {
  for (const int ranks : {2, 4}) {
    office o(ranks);
    const auto how = sum_plan(ranks, 3);
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (rank_t r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] {
        constexpr std::size_t rounds = 600;
        std::vector<std::array<std::int32_t, 3>> in(rounds), out(rounds);
        std::vector<completion_ptr> open;
        for (std::size_t i = 0; i < rounds; ++i) {
          in[i].fill(static_cast<std::int32_t>(i) * (r + 1));
          if ((i * 7 + static_cast<std::size_t>(r)) % 5 == 0) open.push_back(start(o.desk(), r, how, in[i].data(), out[i].data()));
          else if (run(o.desk(), r, how, in[i].data(), out[i].data())) ++wrong;
          if (i % 200 == 100 + static_cast<std::size_t>(r)) std::this_thread::sleep_for(8ms);
        }
        for (const auto& done : open) {
          wait_for(done);
          if (done->why()) ++wrong;
        }
        for (std::size_t i = 0; i < rounds; ++i)
          for (const std::int32_t x : out[i]) wrong += x != static_cast<std::int32_t>(i) * ranks * (ranks + 1) / 2;
      });
    for (auto& t : threads) t.join();
    CHECK(wrong == 0);
  }
}

TEST_CASE("rooted operations whose root moves on, among others that come again and again") {
  for (const agreement_form form : agreement_forms)
    for (const int ranks : {2, 3}) {
      office o(ranks);
      const auto sums = sum_plan(ranks, 3);
      std::vector<plan_ptr> broadcasts, reductions;
      for (rank_t root = 0; root < ranks; ++root) {
        broadcasts.push_back(rooted_plan(collective::broadcast, ranks, root, 3, form));
        reductions.push_back(rooted_plan(collective::reduce, ranks, root, 3, form));
      }
      std::atomic<int> wrong{0};
      std::vector<std::thread> threads;
      for (rank_t r = 0; r < ranks; ++r)
        threads.emplace_back([&, r] {
          constexpr int rounds = 600;
          std::vector<std::array<std::int32_t, 3>> in(rounds), out(rounds);
          std::vector<completion_ptr> open;
          for (int i = 0; i < rounds; ++i) {
            const auto at = static_cast<std::size_t>(i), root = at % static_cast<std::size_t>(ranks);
            const auto& how = i % 7 == 0 ? sums : i % 3 == 0 ? reductions[root] : broadcasts[root];
            in[at].fill(i * (r + 1));
            out[at].fill(-1);
            if ((i * 7 + r) % 5 == 0) open.push_back(start(o.desk(), r, how, in[at].data(), out[at].data()));
            else if (run(o.desk(), r, how, in[at].data(), out[at].data())) ++wrong;
          }
          for (const auto& done : open) {
            wait_for(done);
            if (done->why()) ++wrong;
          }
          for (int i = 0; i < rounds; ++i) {
            const int root = i % ranks, sum = i * ranks * (ranks + 1) / 2;
            const bool adds = i % 7 == 0 || i % 3 == 0, has = i % 7 == 0 || i % 3 != 0 || r == root;
            for (const std::int32_t x : out[static_cast<std::size_t>(i)]) wrong += x != (!has ? -1 : adds ? sum : i * (root + 1));
          }
        });
      for (auto& t : threads) t.join();
      CAPTURE(name(form));
      CAPTURE(ranks);
      CHECK(wrong == 0);
    }
}

TEST_CASE("one thread performs for all ranks at once") {
  office o(4);
  const auto how = sum_plan(4, 2);
  std::array<std::array<std::int32_t, 2>, 4> in{}, out{};
  for (std::int32_t round = 1; round < 50; ++round) {
    std::vector<completion_ptr> all;
    slot_desk::gathering together;
    for (rank_t r = 0; r < 4; ++r) {
      in[static_cast<std::size_t>(r)].fill(round);
      all.push_back(start(o.desk(), r, how, in[static_cast<std::size_t>(r)].data(), out[static_cast<std::size_t>(r)].data()));
    }
    CHECK_FALSE(all[3]->done());
    together.drive();
    for (const auto& one : all) CHECK(one->done());
    for (const auto& one : out) CHECK(one == std::array{4 * round, 4 * round});
  }
}

TEST_CASE("a deadline ends it on every rank, also on one that comes later; the next one succeeds") {
  office o(2);
  const auto how = sum_plan(2, 1);
  std::int32_t one = 1, a = 0, b = 0;
  for (int round = 0; round < 3; ++round) {
    const failure_ptr first = run(o.desk(), 0, how, &one, &a, 5ms);
    REQUIRE(first);
    CHECK(first->code == errc::timed_out);
    CHECK(run(o.desk(), 1, how, &one, &b) == first);
    std::thread other([&] { CHECK_FALSE(run(o.desk(), 1, how, &one, &b)); });
    CHECK_FALSE(run(o.desk(), 0, how, &one, &a));
    other.join();
    CHECK(a == 2);
    CHECK(b == 2);
    a = b = 0;
  }
}

TEST_CASE("different calls get the table; numbers of operations elsewhere are left out") {
  office o(2);
  const auto how = sum_plan(2, 1), other = sum_plan(2, 2);
  std::array<std::int32_t, 2> in{1, 1}, a{}, b{};
  operation elsewhere, after;
  std::thread peer([&] {
    operation mine;
    o.desk().number(1, mine);
    const failure_ptr why = run(o.desk(), 1, other, in.data(), b.data());
    CHECK((why && why->code == errc::mismatch));
    CHECK_FALSE(run(o.desk(), 1, how, in.data(), b.data()));
  });
  o.desk().number(0, elsewhere);
  const failure_ptr why = run(o.desk(), 0, how, in.data(), a.data());
  CHECK((why && why->code == errc::mismatch));
  CHECK_FALSE(run(o.desk(), 0, how, in.data(), a.data()));
  peer.join();
  CHECK(a[0] == 2);
  o.desk().number(0, after);
  CHECK(elsewhere.epoch == 0);
  CHECK(elsewhere.follows == 0);
  CHECK(after.epoch == 3);
  CHECK(after.follows == 1);
}

TEST_CASE("a rank leaves when its operations are over, and is then missed") {
  office o(2);
  const auto how = sum_plan(2, 1);
  std::int32_t one = 1, a = 0, b = 0;
  const completion_ptr first = start(o.desk(), 0, how, &one, &a);
  o.desk().leave(0);
  CHECK_FALSE(run(o.desk(), 1, how, &one, &b));
  wait_for(first);
  CHECK_FALSE(first->why());
  const failure_ptr why = run(o.desk(), 1, how, &one, &b);
  REQUIRE(why);
  CHECK(why->code == errc::rank_missing);
}

TEST_CASE("what is broken or closed fails at once, in every form") {
  for (const bool closed : {false, true}) {
    office o(2);
    const auto how = sum_plan(2, 1);
    std::int32_t one = 1, a = 0, b = 0;
    const completion_ptr first = start(o.desk(), 0, how, &one, &a);
    failure_ptr blocked;
    std::thread caller([&] { blocked = run(o.desk(), 0, how, &one, &b); });
    std::this_thread::sleep_for(1ms);
    if (closed) o.desk().close();
    else o.desk().broken(make_failure(errc::communicator_aborted, "enough"));
    caller.join();
    wait_for(first);
    CHECK(first->why());
    CHECK(blocked);
    CHECK(run(o.desk(), 1, how, &one, &b));
    const completion_ptr late = start(o.desk(), 1, how, &one, &b);
    wait_for(late);
    CHECK(late->why());
  }
}

TEST_CASE("whether it stands still is asked twice") {
  office o(2);
  const auto how = sum_plan(2, 1);
  std::int32_t one = 1, a = 0, b = 0;
  CHECK(o.desk().stands_still());
  const completion_ptr first = start(o.desk(), 0, how, &one, &a);
  while (!o.desk().stands_still()) std::this_thread::sleep_for(1ms);
  CHECK_FALSE(first->done());
  CHECK_FALSE(run(o.desk(), 1, how, &one, &b));
  wait_for(first);
}
