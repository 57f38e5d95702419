#pragma once
// A desk on threads of a test's own, with an agreement on a thread instead of the membership actor; and calls to it.

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "actors/rank/slot_desk.hpp"
#include "memory/error.hpp"
#include "protocols/agreement/agreement.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/agreement_round.hpp"
#include "protocols/lower/lowering.hpp"

namespace desk_test {

using namespace troupe;
using namespace troupe::actors;

/// A membership on a thread, and the attendant's thread.
class office final : agreement::audience {
public:
  /// @param cores, spin as the desk's
  explicit office(int ranks, int cores = 2, int spin = 100)
      : ranks_(ranks), state_(ranks, "world"), desk_(ranks, true, cores, spin, std::make_unique<mail>(*this)) {
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

inline plan_ptr sum_plan(int ranks, std::size_t count) {
  auto p = std::make_shared<plan>();
  p->notes = std::make_shared<const score>(one_cell_per_step(
      lower_syncs(write_score(*find_choreography("one_shot"), flat_stage(collective::all_reduce, ranks)))));
  p->count = count;
  p->work_type = datatype::i32;
  p->slots = slot_format::ll128;
  return p;
}

inline call sum_call(std::size_t count) {
  call c;
  c.what = collective::all_reduce;
  c.type = datatype::i32;
  c.count = count;
  return c;
}

inline plan_ptr rooted_plan(collective what, int ranks, rank_t root, std::size_t count, agreement_form form) {
  auto p = std::make_shared<plan>();
  p->notes = std::make_shared<const score>(
      with_agreement(write_score(*find_choreography("one_shot"), flat_stage(what, ranks, root)), form).value());
  p->count = count;
  p->work_type = datatype::i32;
  p->slots = slot_format::ll128;
  return p;
}

/// An all-reduce on all ranks' buffers.
inline plan_ptr direct_plan(int ranks, std::size_t count) {
  auto p = std::make_shared<plan>();
  p->notes = std::make_shared<const score>(
      lower_syncs(write_score(*find_choreography("fused"), flat_stage(collective::all_reduce, ranks))));
  p->count = count;
  p->work_type = datatype::i32;
  p->slots = slot_format::ll128;
  p->direct = true;
  return p;
}

inline call call_of(const plan& how) {
  call c = sum_call(how.count);
  c.what = how.notes->what;
  c.root = how.notes->root;
  return c;
}

inline void wait_for(const completion_ptr& done) {
  parker place;
  if (!done->enter(place)) return;
  while (!done->done()) place.park(no_deadline);
  done->leave(place);
}

inline failure_ptr run(slot_desk& desk, rank_t rank, const plan_ptr& how, const std::int32_t* in, std::int32_t* out,
                       std::optional<std::chrono::nanoseconds> deadline = std::nullopt, op reduction = sum) {
  call what = call_of(*how);
  what.reduction = reduction;
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

inline completion_ptr start(slot_desk& desk, rank_t rank, const plan_ptr& how, const std::int32_t* in,
                            std::int32_t* out, std::optional<std::chrono::nanoseconds> deadline = std::nullopt,
                            op reduction = sum) {
  auto op = std::make_shared<operation>();
  op->what = call_of(*how);
  op->what.reduction = reduction;
  op->plan = how;
  op->input = in;
  op->output = out;
  op->deadline = deadline;
  const completion_ptr done = op->done;
  desk.submit(rank, std::move(op));
  return done;
}

}  // namespace desk_test
