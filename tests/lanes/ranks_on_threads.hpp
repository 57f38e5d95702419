// SPDX-License-Identifier: Apache-2.0
#pragma once
// A rank table on threads of a test's own, with an agreement on a thread instead of the membership actor; and calls to it.

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "actors/rank/rank_nic_queue.hpp"
#include "actors/rank/rank_table.hpp"
#include "memory/error.hpp"
#include "protocols/agreement/agreement.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/agreement_round.hpp"
#include "protocols/lower/lowering.hpp"

namespace ranks_test {

using namespace troupe;
using namespace troupe::actors;

/// What is posted runs on one thread, in its order.
class errands {
public:
  errands() : thread_([this] { work(); }) {}
  ~errands() { end(); }
  void post(std::function<void()> what) {
    {
      const std::lock_guard lock(mutex_);
      posted_.push_back(std::move(what));
    }
    come_.notify_one();
  }
  /// What is posted already still runs.
  void end() {
    if (!thread_.joinable()) return;
    post(nullptr);
    thread_.join();
  }

private:
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

  std::mutex mutex_;
  std::condition_variable come_;
  std::deque<std::function<void()>> posted_;
  std::thread thread_;
};

/// The ranks of a communicator, a thread for its membership, one that turns ranks, and the attendant's.
class house final : agreement::audience, rank_threads {
public:
  /// @param cores, spin as the table's @param attended false: the attendant never comes
  explicit house(int ranks, int cores = 2, int spin = 100, bool attended = true)
      : attended_(attended),
        ranks_(ranks),
        state_(ranks, "world"),
        table_(options(ranks, cores, spin), memory_, *this,
               [this](rank_t r) { return std::make_unique<mail>(*this, r); }) {}
  ~house() override {
    table_.close();
    if (attendant_.joinable()) attendant_.join();
    turning_.end();
    member_.end();
    nic_.close();
  }
  rank_table& table() { return table_; }
  nic_thread& nic() { return nic_; }
  /// From now on nobody performs what is posted to the NIC, every posting is the last of its operation, and the thread to wake for it is said to sleep there.
  /// The test says how it ends: rank_state::offloaded(). @param bell outlives the house
  void no_nic_but(doorbell& bell) { pretended_ = &bell; }

private:
  static rank_table_options options(int ranks, int cores, int spin) {
    rank_table_options o;
    o.ranks = ranks;
    o.boards = true;
    o.cores = cores;
    o.spin = spin;
    return o;
  }

  struct mail final : rank_outbox {
    mail(house& o, rank_t r) : to(o), rank(r) {}
    void called(epoch_t e, const call& c) override {
      to.member_.post([this, e, c] { to.state_.called(e, rank, c, to); });
    }
    void differs(epoch_t e) override {
      to.member_.post([this, e] { to.state_.differs(e, to); });
    }
    void withdraw(epoch_t e, const call* ahead) override {
      to.member_.post([this, e, what = ahead != nullptr ? std::optional<call>{*ahead} : std::nullopt] {
        to.state_.withdraw(e, rank, to, what);
      });
    }
    void fail(epoch_t e, const std::string& title, failure_ptr why) override {
      to.member_.post([this, e, title, why] { to.state_.fail(e, title, why, to); });
    }
    void stopped(epoch_t e, std::vector<std::string> waits, presence came) override {
      to.member_.post([this, e, waits, came] { to.state_.stopped(e, rank, waits, to, came); });
    }
    void left(epoch_t n, call last, sends_ptr sent) override {
      to.member_.post([this, n, last, sent] { to.state_.left(rank, n, to, last, sent); });
    }
    void quiet() override {}
    void abort(const failure_ptr& why) override {
      to.member_.post([this, why] { to.state_.abort(why, to); });
    }
    void perished() override {}
    bool deliver(rank_t r, int channel, chunk&& c) override {
      to.table_.at(r).post(chunk_message{channel, std::move(c)});
      return false;
    }
    void give_back(rank_t r, int channel, const credit& c) override {
      to.table_.at(r).post(credit_message{channel, c});
    }
    bool shares_parts() const override { return true; }
    void news_of_parts(rank_t r, const std::shared_ptr<operation_parts>& whose) override {
      to.table_.at(r).hear(whose);
    }
    template <class Order>
    void tell(rank_t r, Order what) {
      to.table_.at(r).post(rank_order{std::move(what)});
    }
    void revoke(rank_t r, epoch_t e, const failure_ptr& why) override {
      tell(r, [from = rank, e, why](rank_state& s, rank_outbox& o) { s.revoke(from, e, why, o); });
    }
    void revoked(rank_t r, epoch_t e, bool received) override {
      tell(r, [from = rank, e, received](rank_state& s, rank_outbox& o) { s.revoked(from, e, received, o); });
    }
    void refuse(rank_t r, epoch_t e, bool sending, const failure_ptr& why) override {
      tell(r, [from = rank, e, sending, why](rank_state& s, rank_outbox& o) { s.refused(from, e, sending, why, o); });
    }
    void look_again(rank_t r, bool sending) override {
      tell(r, [from = rank, sending](rank_state& s, rank_outbox& o) { s.look_again(from, sending, o); });
    }
    void inquire(rank_t r, epoch_t e, bool sending, look_t look, bool nobody_else) override {
      tell(r, [from = rank, e, sending, look, nobody_else](rank_state& s, rank_outbox& o) {
        s.inquired(from, e, sending, look, nobody_else, o);
      });
    }
    bool transfer(const operation_key&, int, int, std::byte* target, const std::byte* source,
                  std::size_t bytes) override {
      if (bytes > 0) std::copy_n(source, bytes, target);
      return true;
    }
    bool flush(const operation_key&) override { return false; }
    void post_to_nic(nic_posting&& what) override {
      if (to.pretended_ != nullptr) {
        wakes_nic = true;
        return;
      }
      if (!queue) queue = std::make_shared<rank_nic_queue>(to.nic_, to.at_nic_, to.table_.at(rank), to.alive_);
      what.communicator = 1;
      const auto how = queue->post(what);
      if (how == nic_queue::posted::full) throw error(errc::out_of_memory, "the queue is full");
      wakes_nic = wakes_nic || how == nic_queue::posted::complete;
    }
    doorbell* take_nic_to_wake() noexcept override {
      if (!std::exchange(wakes_nic, false)) return nullptr;
      return to.pretended_ != nullptr ? to.pretended_ : &queue->bell();
    }
    void recall_from_nic(epoch_t epoch) override { queue->recall(1, epoch, rank); }
    steady_time now() const override { return std::chrono::steady_clock::now(); }
    house& to;
    rank_t rank;
    std::shared_ptr<rank_nic_queue> queue;
    bool wakes_nic = false;
  };

  // -- agreement::audience: the table outlives the membership's thread --
  template <class Order>
  void tell_all(Order what) {
    for (rank_t r = 0; r < ranks_; ++r) table_.at(r).post(rank_order{what});
  }
  void agreed(epoch_t e, const counts_ptr& counts) override {
    tell_all([e, counts](rank_state& s, rank_outbox& o) { s.agreed(e, counts, o); });
  }
  void ask(epoch_t e) override {
    tell_all([e](rank_state& s, rank_outbox& o) { s.asked(e, o); });
  }
  void stop(epoch_t e) override {
    tell_all([e](rank_state& s, rank_outbox& o) { s.stop(e, o); });
  }
  void failed(epoch_t e, const failure_ptr& why) override {
    tell_all([e, why](rank_state& s, rank_outbox& o) { s.failed(e, why, o); });
  }
  void broken(const failure_ptr& why) override { table_.broken(why); }
  void peer_left(rank_t left, const sends_ptr& sent) override {
    tell_all([left, sent](rank_state& s, rank_outbox& o) { s.peer_left(left, sent, o); });
  }
  void peer_lost(rank_t) override {}

  // -- rank_threads --
  void schedule(rank_cell& which) override {
    turning_.post([&which] { which.run(); });
  }
  bool help_one() override { return false; }
  void start_attendant() override {
    if (attended_) attendant_ = std::thread([this] { table_.care().work(); });
  }

  bool attended_;
  int ranks_;
  arena memory_;
  const std::shared_ptr<const int> alive_ = std::make_shared<const int>(0);
  nic_thread nic_{2, true};
  doorbell* pretended_ = nullptr;
  nic_arrivals at_nic_;
  agreement state_;
  rank_table table_;
  std::thread attendant_;
  errands turning_, member_;
};

inline plan_ptr sum_plan(int ranks, std::size_t count) {
  auto p = std::make_shared<plan>();
  p->notes = std::make_shared<const score>(one_cell_per_step(
      lower_syncs(write_score(*find_choreography("one_shot"), flat_setup(collective::all_reduce, ranks)))));
  p->count = count;
  p->work_type = datatype::i32;
  p->port = slots_plan{slot_format::ll128};
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
      with_agreement(write_score(*find_choreography("one_shot"), flat_setup(what, ranks, root)), form).value());
  p->count = count;
  p->work_type = datatype::i32;
  p->port = slots_plan{slot_format::ll128};
  return p;
}

/// An all-reduce on all ranks' buffers.
inline plan_ptr direct_sum_plan(int ranks, std::size_t count) {
  auto p = std::make_shared<plan>();
  p->notes = std::make_shared<const score>(
      lower_syncs(write_score(*find_choreography("fused"), flat_setup(collective::all_reduce, ranks))));
  p->count = count;
  p->work_type = datatype::i32;
  p->port = direct_plan{};
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

/// The same all-reduce by messages.
inline plan_ptr mailbox_sum_plan(int ranks, std::size_t count, const char* choreography = "recursive_doubling") {
  auto p = std::make_shared<plan>();
  p->notes = std::make_shared<const score>(one_cell_per_step(
      lower_syncs(write_score(*find_choreography(choreography), flat_setup(collective::all_reduce, ranks)))));
  p->count = count;
  p->work_type = datatype::i32;
  p->port = mailbox_plan{.agrees = true};
  return p;
}

/// Notes what a NIC tells a rank.
struct noting_client final : nic_client {
  void performed(epoch_t epoch, failure_ptr why) override { ended.emplace_back(epoch, std::move(why)); }
  void differs(epoch_t epoch, rank_t from) override { different.emplace_back(epoch, from); }
  void let_go(epoch_t epoch) override { free.push_back(epoch); }
  std::vector<std::pair<epoch_t, failure_ptr>> ended;
  std::vector<std::pair<epoch_t, rank_t>> different;
  std::vector<epoch_t> free;
};

/// The same all-reduce by the NIC.
/// @param nodes by rank whose NIC performs for it; empty: one for all
inline plan_ptr nic_sum_plan(int ranks, std::size_t count, const char* choreography = "ring",
                             std::vector<std::uint32_t> nodes = {}) {
  auto p = std::make_shared<plan>();
  p->notes = std::make_shared<const score>(
      lower_syncs(write_score(*find_choreography(choreography), flat_setup(collective::all_reduce, ranks))));
  p->count = count;
  p->work_type = datatype::i32;
  p->port = nic_plan{8, nic_packet_bytes, std::move(nodes), {}};
  return p;
}
/// Rank r's part of one. @param in of it, and what comes of all, of `count` elements
inline nic_posting nic_sum_posting(const plan_ptr& how, rank_t r, epoch_t epoch, std::uint64_t fingerprint,
                                   std::span<std::int32_t> in, std::span<std::int32_t> out) {
  nic_posting p;
  p.communicator = 1;
  p.epoch = epoch;
  p.rank = r;
  p.ranks = how->notes->ranks;
  p.fingerprint = fingerprint;
  p.how = how;
  p.elements = out.size();
  p.program = how->descriptors_of(r, out.size());
  p.memory.input = reinterpret_cast<std::byte*>(in.data());
  p.memory.output = reinterpret_cast<std::byte*>(out.data());
  p.input_bytes = p.output_bytes = out.size_bytes();
  p.type = datatype::i32;
  p.reduction = sum;
  return p;
}

inline operation_ptr make_operation(const plan_ptr& how, const std::int32_t* in, std::int32_t* out,
                                    std::optional<std::chrono::nanoseconds> deadline, const op& reduction) {
  auto made = std::make_shared<operation>();
  made->what = call_of(*how);
  made->what.reduction = reduction;
  made->plan = how;
  made->input = in;
  made->output = out;
  made->deadline = deadline;
  return made;
}

inline operation_ptr begin(rank_table& table, rank_t rank, const plan_ptr& how, const std::int32_t* in,
                           std::int32_t* out, std::optional<std::chrono::nanoseconds> deadline = std::nullopt,
                           const op& reduction = sum) {
  auto made = make_operation(how, in, out, deadline, reduction);
  table.at(rank).submit(made);
  return made;
}

inline completion_ptr start(rank_table& table, rank_t rank, const plan_ptr& how, const std::int32_t* in,
                            std::int32_t* out, std::optional<std::chrono::nanoseconds> deadline = std::nullopt,
                            const op& reduction = sum) {
  return begin(table, rank, how, in, out, deadline, reduction)->done;
}

/// Waits for what takes long. @pre rank_cell::call_end::later
inline failure_ptr end_of_rest(rank_cell& of) {
  const auto rest = of.take_rest();
  if (!rest.still_to_do) return rest.why;
  of.help(*rest.still_to_do->done, no_deadline);
  wait_for(rest.still_to_do->done);
  return rest.still_to_do->done->why();
}

/// Blocking, as a communicator does it.
inline failure_ptr run(rank_table& table, rank_t rank, const plan_ptr& how, const std::int32_t* in, std::int32_t* out,
                       std::optional<std::chrono::nanoseconds> deadline = std::nullopt, const op& reduction = sum) {
  call what = call_of(*how);
  what.reduction = reduction;
  rank_cell& mine = table.at(rank);
  using enum rank_cell::call_end;
  auto end = not_begun;
  if (how->on_board()) {
    end = mine.perform_again(what, std::nullopt, {in, out}, deadline);
    if (end == not_begun) end = mine.perform(what, how, {in, out}, deadline);
  }
  if (end == performed) return nullptr;
  if (end == later) return end_of_rest(mine);
  const completion_ptr done = start(table, rank, how, in, out, deadline, reduction);
  mine.help(*done, no_deadline);
  wait_for(done);
  return done->why();
}

}  // namespace ranks_test
