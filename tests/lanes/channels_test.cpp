// SPDX-License-Identifier: Apache-2.0
// Channels on threads: the claim of the verifier, that conflicting accesses are ordered by messages, held against execution. Every
// channel of every rank runs on a thread of its own and works on the other ranks' memory by reference; messages are delayed,
// reordered and doubled. Each rank reuses its buffers as soon as its own part is performed. Under ThreadSanitizer an access
// that nothing orders is an error; without it wrong results are.

#include "actors/ports/mailbox/channel_state.hpp"
#include "actors/rank/operation.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/lowering.hpp"
#include "tests/protocols/reference.hpp"
#include "tests/seed.hpp"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

using namespace troupe;
using namespace troupe::actors;
using namespace std::chrono_literals;

namespace {

#if defined(__SANITIZE_THREAD__)
constexpr int effort = 2;  // ThreadSanitizer costs about ten times the time
#else
constexpr int effort = 3;
#endif
constexpr auto hang = 60s;  // turns a lost message into a failure; never reached by a right run

/// A thread with a mailbox. What may be reordered overtakes at random.
class worker {
public:
  explicit worker(std::uint64_t seed) : random_(seed), thread_([this] { run(); }) {}
  /// The others may still post; nobody takes it any more.
  void end() {
    if (!thread_.joinable()) return;
    post([this] { ending_ = true; }, false);
    thread_.join();
  }
  void post(std::function<void()> what, bool may_overtake) {
    {
      const std::lock_guard lock(mutex_);
      std::size_t at = queue_.size();
      while (may_overtake && at > 0 && queue_[at - 1].reorderable && random_() % 2 == 0) --at;
      queue_.insert(queue_.begin() + static_cast<std::ptrdiff_t>(at), {std::move(what), may_overtake});
    }
    arrived_.notify_one();
  }

private:
  struct item {
    std::function<void()> what;
    bool reorderable;
  };
  void run() {
    std::minstd_rand pauses(static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(this) >> 6));
    while (!ending_) {
      std::unique_lock lock(mutex_);
      arrived_.wait(lock, [&] { return !queue_.empty(); });
      const item next = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      if (pauses() % 16 == 0) std::this_thread::yield();
      if (pauses() % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(pauses() % 60));
      next.what();
    }
  }

  std::mt19937_64 random_;  // guarded by mutex_
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<item> queue_;
  bool ending_ = false;  // touched by the thread only, but for its start
  std::thread thread_;
};

/// One operation of all ranks.
struct piece {
  std::shared_ptr<plan> how;
  std::vector<std::size_t> counts;  ///< of all blocks, if they differ
  std::vector<reference::user_buffers> users;
};

struct rank_channels {
  rank_channels(int ranks, int channels, std::uint64_t seed)
      : ranks_(ranks), channels_(channels), shelves_(static_cast<std::size_t>(ranks)), spaces_(ranks) {
    for (rank_t r = 0; r < ranks; ++r)
      for (int c = 0; c < channels; ++c) {
        outs_.push_back(std::make_unique<outbox>(*this, r, c, seed));
        states_.push_back(std::make_unique<channel_state>(r, c, memory_));
      }
    for (int w = 0; w < ranks * channels; ++w)
      workers_.push_back(std::make_unique<worker>(seed + static_cast<unsigned>(w)));
    progress_.resize(static_cast<std::size_t>(ranks));
  }
  ~rank_channels() { end(); }

  /// Performs the pieces one after the other; ranks drift apart. Returns the elements that came out wrong.
  std::size_t perform(std::vector<piece>& pieces) {
    pieces_ = &pieces;
    unfinished_ = ranks_;
    for (rank_t r = 0; r < ranks_; ++r) at(r, 0).post([this, r] { begin(r); }, false);
    std::unique_lock lock(mutex_);
    const bool all = finished_.wait_for(lock, hang, [&] { return unfinished_ == 0; });
    lock.unlock();
    if (!all) {
      end();
      FAIL("an operation hangs");
    }
    return wrong_.load();
  }
  std::size_t early_chunks() {
    end();
    std::size_t total = 0;
    for (auto& s : states_) total += s->early_chunks() + s->under_way();
    return total;
  }

private:
  void end() {
    for (auto& w : workers_) w->end();
  }

  struct progress {
    std::size_t piece = 0;
    std::shared_ptr<operation> op;
    std::atomic<int> channels{0};
    progress() = default;
    progress(progress&& o) noexcept : piece(o.piece) {}
  };

  struct outbox final : channel_outbox {
    outbox(rank_channels& e, rank_t r, int c, std::uint64_t seed)
        : all(e), rank(r), channel(c), random(seed * 31 + static_cast<unsigned>(r * 64 + c)) {}
    bool deliver(rank_t to, chunk&& what) override {
      if (random() % 4 == 0) {
        auto own = std::make_shared<std::vector<std::byte>>(what.data, what.data + what.bytes);
        what.data = own->data();
        what.keep = std::move(own);
        what.settled = true;
      }
      const int copies = random() % 16 == 0 ? 2 : 1;
      for (int i = 0; i < copies; ++i)
        all.at(to, channel)
            .post(
                [e = &all, to, c = channel, chunk_of = what]() mutable {
                  if (chunk_of.epoch < e->out(to, c)->over) return;  // the rank passes on none of those
                  e->state(to, c).on_chunk(chunk{chunk_of}, *e->out(to, c));
                },
                true);
      return what.settled;
    }
    void give_back(rank_t to, const credit& what) override {
      const int copies = random() % 16 == 0 ? 2 : 1;
      for (int i = 0; i < copies; ++i)
        all.at(to, channel)
            .post([e = &all, to, c = channel, what] { e->state(to, c).on_credit(what, *e->out(to, c)); }, true);
    }
    void performed(const operation_key& which) override {
      over = which.epoch + 1;
      all.performed(rank);
    }
    void mismatch(const operation_key&, rank_t) override { ++all.wrong_; }
    void failed(const operation_key&, failure_ptr) override { ++all.wrong_; }
    bool transfer(const operation_key& which, int lane, std::byte* target, const std::byte* source,
                  std::size_t bytes) override {
      if (random() % 2 == 0) {
        troupe::copy(target, source, bytes);
        return true;
      }
      all.at(rank, channel)
          .post(
              [e = &all, r = rank, c = channel, which, lane, target, source, bytes] {
                troupe::copy(target, source, bytes);
                e->state(r, c).transferred(which, lane, *e->out(r, c));
              },
              true);
      return false;
    }
    rank_channels& all;
    rank_t rank;
    int channel;
    std::mt19937_64 random;
    epoch_t over = 0;  ///< operations before it were performed here; on the channel's own thread
  };

  std::size_t index(rank_t r, int c) const { return static_cast<std::size_t>(r * channels_ + c); }
  worker& at(rank_t r, int c) { return *workers_[index(r, c)]; }
  channel_state& state(rank_t r, int c) { return *states_[index(r, c)]; }
  outbox* out(rank_t r, int c) { return outs_[index(r, c)].get(); }

  /// On the thread of channel 0, the rank's own too.
  void begin(rank_t r) {
    progress& mine = progress_[static_cast<std::size_t>(r)];
    if (mine.piece == pieces_->size()) {
      const std::lock_guard lock(mutex_);
      if (--unfinished_ == 0) finished_.notify_all();
      return;
    }
    piece& p = (*pieces_)[mine.piece];
    auto op = std::make_shared<operation>();
    op->epoch = next_epoch_ + static_cast<epoch_t>(mine.piece);
    op->plan = p.how;
    op->what.what = p.how->notes->what;
    op->what.type = datatype::i64;
    op->what.reduction = sum;
    op->what.root = p.how->notes->root;
    op->what.uniform = p.counts.empty();
    op->what.count = op->what.uniform ? p.how->count : 0;
    op->what.counts = p.counts;
    if (!op->what.uniform) op->counts = std::make_shared<const std::vector<std::size_t>>(p.counts);
    op->input = p.users[static_cast<std::size_t>(r)].input();
    op->output = p.users[static_cast<std::size_t>(r)].output();
    mine.op = op;
    const auto what = prepare(*op, r, memory_, spaces_, shelves_[static_cast<std::size_t>(r)]);
    mine.channels.store(what->code->channels);
    for (int c = 0; c < what->code->channels; ++c)
      at(r, c).post([this, r, c, what] { state(r, c).start(what, *out(r, c)); }, false);
  }

  /// On the thread of any channel. The last one does what the caller does: look at the result, use the buffers again.
  void performed(rank_t r) {
    progress& mine = progress_[static_cast<std::size_t>(r)];
    if (mine.channels.fetch_sub(1) != 1) return;
    reference::user_buffers& user = (*pieces_)[mine.piece].users[static_cast<std::size_t>(r)];
    wrong_ += user.wrong();
    user.reuse();
    mine.op->done->complete(nullptr);
    mine.op = nullptr;
    ++mine.piece;
    at(r, 0).post([this, r] { begin(r); }, false);
  }

  int ranks_, channels_;
  std::vector<program_shelf> shelves_;  ///< by rank
  arena memory_;
  shared_spaces spaces_;
  std::vector<std::unique_ptr<channel_state>> states_;
  std::vector<std::unique_ptr<outbox>> outs_;
  std::vector<progress> progress_;
  std::vector<piece>* pieces_ = nullptr;
  epoch_t next_epoch_ = 0;
  std::atomic<std::size_t> wrong_{0};
  std::mutex mutex_;
  std::condition_variable finished_;
  int unfinished_ = 0;
  std::vector<std::unique_ptr<worker>> workers_;  // last: their threads use all of the above
};

bool can_be_in_place(collective c) {
  return c == collective::all_reduce || c == collective::all_gather || c == collective::reduce_scatter ||
         c == collective::all_to_all;
}

/// A call of this choreography, if it offers one that verifies with these limits.
bool add_piece(const choreography& by, setup on, std::mt19937_64& random, int channels, std::vector<piece>& to) {
  if (!refusal(by, on).empty()) return false;
  const cutting cut{1 + static_cast<int>(random() % static_cast<unsigned>(channels)),
                    1 + static_cast<int>(random() % 3)};
  score s = one_cell_per_step(lower_syncs(write_score(by, on)));
  const int credits = std::array{1, 2, 3, 8}[random() % 4];
  auto v = std::make_shared<verdict>(verify(s, {credits, std::min(cut.slices, 3)}));
  if (!v->ok() && credits < 8) v = std::make_shared<verdict>(verify(s, {8, std::min(cut.slices, 3)}));
  if (!v->ok()) return false;
  piece p;
  p.how = std::make_shared<plan>();
  p.how->choreography = std::string{by.name};
  p.how->count = std::array<std::size_t, 6>{0, 1, 5, 64, 1000, 5003}[random() % 6];
  if (!on.uniform)
    for (std::int64_t b = 0; b < block_count(on.what, on.ranks); ++b)
      p.counts.push_back(random() % 4 == 0 ? 0 : random() % 700);
  p.how->port = mailbox_plan{cut, verify(s, {credits, std::min(cut.slices, 3)}).ok() ? credits : 8, random() % 2 == 0};
  p.how->verified = v;
  p.how->work_type = datatype::i64;
  p.how->notes = std::make_shared<const score>(std::move(s));
  call_shape shape = p.how->shape();
  shape.counts = p.counts;  // stays where it is when the piece moves
  for (rank_t r = 0; r < on.ranks; ++r) p.users.emplace_back(*p.how->notes, r, shape);
  to.push_back(std::move(p));
  return true;
}

setup setup_for(collective what, int ranks, std::mt19937_64& random) {
  setup on = flat_setup(what, ranks, static_cast<rank_t>(random() % static_cast<unsigned>(ranks)),
                        can_be_in_place(what) && random() % 2 == 0, !reference::has_blocks(what) || random() % 4 != 0);
  if (what == collective::all_to_all && !on.uniform) on.in_place = false;  // such calls are staged
  if (ranks % 2 == 0) on.placement = layout::grid(2, ranks / 2);
  on.through_scratch = random() % 2 == 0;
  on.streams = 1 + static_cast<int>(random() % 4);
  return on;
}

}  // namespace

TEST_CASE("every choreography on threads: right results, no unordered access, nothing left behind") {
  for (const choreography* by : all_choreographies())
    for (const int ranks : {2, 3, 4, 6}) {
      CAPTURE(by->name);
      CAPTURE(ranks);
      std::mt19937_64 random(seed() + static_cast<unsigned>(ranks));
      const int channels = 1 + ranks % 2;
      std::vector<piece> pieces;
      for (int repeat = 0; repeat < effort; ++repeat)
        for (const collective what : by->collectives)
          add_piece(*by, setup_for(what, ranks, random), random, channels, pieces);
      if (pieces.empty()) continue;
      rank_channels all(ranks, channels, random());
      CHECK(all.perform(pieces) == 0);
      CHECK(all.early_chunks() == 0);
    }
}

TEST_CASE("operations of many kinds one after the other") {
  for (int round = 0; round < 2 * effort; ++round) {
    std::mt19937_64 random(seed() + 77u * static_cast<unsigned>(round));
    const int ranks = 2 + static_cast<int>(random() % 6);
    const int channels = 1 + static_cast<int>(random() % 3);
    std::vector<piece> pieces;
    while (pieces.size() < 20) {
      const auto& by = *all_choreographies()[random() % all_choreographies().size()];
      add_piece(by, setup_for(by.collectives[random() % by.collectives.size()], ranks, random), random, channels,
                pieces);
    }
    rank_channels all(ranks, channels, random());
    CHECK(all.perform(pieces) == 0);
    CHECK(all.early_chunks() == 0);
  }
}
