// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/mailbox/channel_state.hpp"

#include "protocols/call.hpp"

#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <vector>

using namespace troupe;
using namespace troupe::actors;

namespace {

struct recording : channel_outbox {
  bool deliver(rank_t to, chunk&& what) override {
    what.settled = settles;
    delivered.push_back({to, std::move(what)});
    return settles;
  }
  bool settles = false;
  void give_back(rank_t to, const credit& what) override { credits.push_back({to, what}); }
  void performed(const operation_key& which) override { done.push_back(which); }
  void mismatch(const operation_key& which, rank_t from) override { mismatches.push_back({which, from}); }
  void failed(const operation_key& which, failure_ptr why) override { failures.push_back({which, std::move(why)}); }
  bool transfer(const operation_key&, int, std::byte*, const std::byte*, std::size_t) override {
    return ++transfers, false;
  }

  std::vector<std::pair<operation_key, failure_ptr>> failures;
  std::vector<std::pair<rank_t, chunk>> delivered;
  std::vector<std::pair<rank_t, credit>> credits;
  std::vector<operation_key> done;
  std::vector<std::pair<operation_key, rank_t>> mismatches;
  int transfers = 0;
};

constexpr std::uint64_t print = 42;

/// A program of one lane on 64-bit integers: receives from rank 1 into the output, or sends the input to rank 1, `times` times.
std::shared_ptr<assignment> work(epoch_t epoch, step_kind kind, int times, std::vector<std::int64_t>& memory,
                                 int credits = 2) {
  auto code = std::make_shared<program>();
  code->element_size = 8;
  code->lanes.resize(1);
  for (int k = 0; k < times; ++k) {
    instruction i;
    i.kind = kind;
    (kind == step_kind::recv ? i.from : i.to) = 1;
    if (kind == step_kind::recv_reduce_send) i.from = 1, i.to = 2;
    const location at{static_cast<std::size_t>(k) * 8, self,
                      kind == step_kind::recv ? buffer_kind::output : buffer_kind::input};
    (kind == step_kind::recv ? i.target : i.source) = at;
    i.elements = 1;
    i.score_step = k;
    code->lanes[0].push_back(i);
  }
  if (kind == step_kind::recv_reduce_send) code->slot_bytes = 8;
  auto a = std::make_shared<assignment>();
  a->epoch = epoch;
  a->fingerprint = print;
  a->code = code;
  a->type = datatype::i64;
  a->credits = credits;
  a->lent = std::make_shared<lent_memory>();
  a->memory.input = a->memory.output = reinterpret_cast<std::byte*>(memory.data());
  return a;
}

std::shared_ptr<assignment> pair_work(epoch_t epoch, bool sending, std::vector<std::int64_t>& memory) {
  auto a = work(epoch, sending ? step_kind::send : step_kind::recv, 1, memory);
  a->peer = 1;
  a->sending = sending;
  return a;
}

chunk incoming(epoch_t epoch, std::uint32_t sequence, const std::int64_t& value, std::uint64_t fingerprint = print) {
  return {reinterpret_cast<const std::byte*>(&value), 8, fingerprint, epoch, 1, 0, sequence, {}};
}
credit back(epoch_t epoch, std::uint32_t sequence) { return {epoch, 1, 0, sequence}; }

struct fixture {
  arena memory;
  channel_state state{0, 0, memory};
  recording out;
  std::vector<std::int64_t> buffer = std::vector<std::int64_t>(128, 0);
  const std::array<std::int64_t, 4> values{11, 12, 13, 14};
};

}  // namespace

TEST_CASE_FIXTURE(fixture, "chunks that come before their operation wait, in whatever order they came") {
  state.on_chunk(incoming(0, 2, values[2]), out);
  state.on_chunk(incoming(0, 0, values[0]), out);
  CHECK(state.early_chunks() == 2);
  CHECK(out.credits.empty());  // that is what bounds them
  state.start(work(0, step_kind::recv, 3, buffer), out);
  CHECK(out.credits.size() == 1);
  CHECK(state.early_chunks() == 1);
  state.on_chunk(incoming(0, 1, values[1]), out);
  CHECK(out.done.size() == 1);
  CHECK(buffer[0] == 11);
  CHECK(buffer[1] == 12);
  CHECK(buffer[2] == 13);
  REQUIRE(out.credits.size() == 3);
  for (std::uint32_t k = 0; k < 3; ++k) CHECK(out.credits[k].second.sequence == k);
  CHECK(state.early_chunks() == 0);
  CHECK(state.under_way() == 0);
}

TEST_CASE_FIXTURE(fixture, "chunks that come twice are taken once, early and under way") {
  state.on_chunk(incoming(0, 0, values[0]), out);
  state.on_chunk(incoming(0, 0, values[1]), out);
  CHECK(state.early_chunks() == 1);
  state.start(work(0, step_kind::recv, 2, buffer), out);
  CHECK(buffer[0] == 11);
  state.on_chunk(incoming(0, 0, values[1]), out);
  CHECK(state.early_chunks() == 0);
  state.on_chunk(incoming(0, 1, values[1]), out);
  CHECK(out.done.size() == 1);
  CHECK(buffer[1] == 12);
  CHECK(out.credits.size() == 2);
}

TEST_CASE_FIXTURE(fixture, "an operation in the place of another one begins from nothing") {
  std::vector<std::int64_t> other(128, 0);
  state.start(work(0, step_kind::recv, 3, buffer), out);
  for (std::uint32_t k = 0; k < 3; ++k) state.on_chunk(incoming(0, k, values[k]), out);
  CHECK(out.done.size() == 1);
  // From another rank, of which it knows nothing; what the first rank sends is of no step.
  auto from_two = work(1, step_kind::recv, 2, other);
  auto code = std::make_shared<program>(*from_two->code);
  for (instruction& i : code->lanes[0]) i.from = 2;
  from_two->code = code;
  state.start(from_two, out);
  state.on_chunk(incoming(1, 0, values[3]), out);
  chunk first = incoming(1, 0, values[1]), second = incoming(1, 1, values[2]);
  first.source = second.source = 2;
  state.on_chunk(std::move(second), out);
  state.on_chunk(std::move(first), out);
  CHECK(out.done.size() == 2);
  CHECK(other[0] == 12);
  CHECK(other[1] == 13);
  state.stop(collective_key(1));
  // Credits are counted anew, and slots are acquired anew.
  for (epoch_t epoch : {2u, 3u}) {
    out.delivered.clear();
    state.start(work(epoch, step_kind::send, 3, buffer, 2), out);
    CHECK(out.delivered.size() == 2);
    for (std::uint32_t k = 0; k < 3; ++k) state.on_credit(back(epoch, k), out);
    CHECK(out.delivered.size() == 3);
  }
  CHECK(out.done.size() == 4);
  CHECK(state.early_chunks() == 0);
}

TEST_CASE_FIXTURE(fixture, "an operation with more links than are kept, and one with few behind it") {
  constexpr rank_t peers = 100;
  for (epoch_t epoch : {0u, 1u, 2u}) {
    const rank_t those = epoch == 1 ? 1 : peers;
    auto many = work(epoch, step_kind::recv, those, buffer);
    auto code = std::make_shared<program>(*many->code);
    for (rank_t r = 0; r < those; ++r) code->lanes[0][static_cast<std::size_t>(r)].from = r + 1;
    many->code = code;
    state.start(many, out);
    for (rank_t r = those; r-- > 0;) {
      chunk one = incoming(epoch, 0, values[static_cast<std::size_t>(r) % 4]);
      one.source = r + 1;
      state.on_chunk(std::move(one), out);
    }
    CHECK(out.done.size() == epoch + 1);
    for (std::size_t r = 0; r < static_cast<std::size_t>(those); ++r) CHECK(buffer[r] == values[r % 4]);
  }
}

TEST_CASE_FIXTURE(fixture, "an operation that is begun twice is begun once") {
  std::vector<std::int64_t> other(128, 0);
  for (epoch_t epoch : {0u, 1u, 2u}) {
    state.start(work(epoch, step_kind::recv, 1, buffer), out);
    state.start(work(epoch, step_kind::recv, 1, other), out);
    CHECK(state.under_way() == 1);
    state.on_chunk(incoming(epoch, 0, values[epoch]), out);
    CHECK(buffer[0] == values[epoch]);
    CHECK(out.done.size() == epoch + 1);
  }
  CHECK(other[0] == 0);
}

TEST_CASE_FIXTURE(fixture, "what was announced is taken when it comes, whether the operation had begun or not") {
  for (epoch_t epoch : {0u, 1u}) {
    chunk announced = incoming(epoch, 0, values[0]);
    announced.announced = true;
    announced.data = nullptr;
    if (epoch == 0) state.on_chunk(chunk{announced}, out);
    state.start(work(epoch, step_kind::recv, 2, buffer), out);
    if (epoch == 1) state.on_chunk(chunk{announced}, out);
    state.on_chunk(incoming(epoch, 1, values[1]), out);
    CHECK(state.early_chunks() == 2);
    state.on_chunk(chunk{announced}, out);  // twice
    state.on_chunk(incoming(epoch, 0, values[2]), out);
    CHECK(buffer[0] == 13);
    CHECK(buffer[1] == 12);
    CHECK(out.done.size() == epoch + 1);
    CHECK(state.early_chunks() == 0);
  }
}

TEST_CASE_FIXTURE(fixture, "more early chunks than the buffer holds at first") {
  for (std::uint32_t k = 1000; k-- > 0;) state.on_chunk(incoming(3, k, values[0]), out);
  CHECK(state.early_chunks() == 1000);
  state.stop(collective_key(3));
  CHECK(state.early_chunks() == 0);
}

TEST_CASE_FIXTURE(fixture, "credits: sending stops without them, and goes on in the order of the slots") {
  state.start(work(0, step_kind::send, 5, buffer, 2), out);
  CHECK(out.delivered.size() == 2);
  state.on_credit(back(0, 1), out);  // out of order: slot 0 is still lent
  CHECK(out.delivered.size() == 2);
  state.on_credit(back(0, 1), out);  // twice
  CHECK(out.delivered.size() == 2);
  state.on_credit(back(0, 0), out);
  CHECK(out.delivered.size() == 4);
  state.on_credit(back(0, 0), out);   // an old one again
  state.on_credit(back(0, 70), out);  // never sent
  CHECK(out.delivered.size() == 4);
  for (std::uint32_t k : {2u, 3u, 4u}) {
    CHECK(out.done.empty());
    state.on_credit(back(0, k), out);
  }
  CHECK(out.delivered.size() == 5);
  CHECK(out.done.size() == 1);  // not before the last reader is done
  state.on_credit(back(0, 4), out);
  CHECK(out.done.size() == 1);
}

TEST_CASE_FIXTURE(fixture, "a settled chunk takes no credit, and none is given for it") {
  out.settles = true;
  state.start(work(0, step_kind::send, 5, buffer, 2), out);
  CHECK(out.delivered.size() == 5);
  CHECK(out.done.size() == 1);
  // One that is not settled holds up the slots behind it, as ever.
  state.start(work(1, step_kind::recv_reduce_send, 3, buffer, 2), out);
  out.settles = false;
  state.on_chunk(incoming(1, 0, values[0]), out);
  out.settles = true;
  state.on_chunk(incoming(1, 1, values[1]), out);
  chunk last = incoming(1, 2, values[2]);
  last.settled = true;
  state.on_chunk(std::move(last), out);
  CHECK(out.delivered.size() == 7);
  CHECK(out.done.size() == 1);
  state.on_credit({1, 2, 0, 0}, out);
  CHECK(out.delivered.size() == 8);
  CHECK(out.done.size() == 2);
  CHECK(out.credits.size() == 2);
}

TEST_CASE_FIXTURE(fixture, "64 credits that come back in reverse") {
  state.start(work(0, step_kind::send, 100, buffer, 64), out);
  CHECK(out.delivered.size() == 64);
  for (std::uint32_t k = 64; k-- > 0;) state.on_credit(back(0, k), out);
  CHECK(out.delivered.size() == 100);
  for (std::uint32_t k = 64; k < 100; ++k) state.on_credit(back(0, k), out);
  CHECK(out.done.size() == 1);
}

TEST_CASE_FIXTURE(fixture, "slots: a result is not overwritten while a peer may read it, also after a stop") {
  auto what = work(0, step_kind::recv_reduce_send, 6, buffer, 2);
  what->reduction = sum;
  const auto operation_keeps = what->lent;
  buffer = {1, 2, 3, 4, 5, 6};
  what->memory.input = reinterpret_cast<std::byte*>(buffer.data());
  state.start(what, out);
  what.reset();
  state.on_chunk(incoming(0, 0, values[0]), out);
  state.on_chunk(incoming(0, 1, values[1]), out);
  state.on_chunk(incoming(0, 2, values[2]), out);
  REQUIRE(out.delivered.size() == 2);
  const auto value_of = [](const chunk& c) { return *reinterpret_cast<const std::int64_t*>(c.data); };
  CHECK(value_of(out.delivered[0].second) == 12);
  CHECK(value_of(out.delivered[1].second) == 14);
  const auto stopped = state.stop(collective_key(0));
  REQUIRE(stopped.size() == 1);
  CHECK(stopped[0].why == lane_wait::reason::credit);
  // The peers have not stopped yet: they still read what they were sent. (Others acquire memory meanwhile.)
  std::vector<scratch_block> others;
  for (int k = 0; k < 8; ++k) {
    others.push_back(memory.acquire(16));
    others.back().as<std::int64_t>()[0] = -1;
    others.back().as<std::int64_t>()[1] = -1;
  }
  CHECK(value_of(out.delivered[0].second) == 12);
  CHECK(value_of(out.delivered[1].second) == 14);
}

TEST_CASE_FIXTURE(fixture, "stop drops an operation and what waits for it") {
  SUBCASE("under way") {
    state.start(work(0, step_kind::recv, 3, buffer), out);
    state.on_chunk(incoming(0, 1, values[0]), out);
    const auto waits = state.stop(collective_key(0));
    REQUIRE(waits.size() == 1);
    CHECK(to_string(waits[0]) == "lane 0 step 0 waits for a chunk from rank 1");
    CHECK(state.early_chunks() == 0);
  }
  SUBCASE("not started") {
    state.on_chunk(incoming(0, 1, values[0]), out);
    CHECK(state.stop(collective_key(0)).empty());
    CHECK(state.early_chunks() == 0);
  }
  CHECK(buffer[0] == 0);
  state.on_credit(back(0, 0), out);  // nobody's
  state.transferred(collective_key(0), 0, out);
  CHECK(state.under_way() == 0);
  state.start(work(1, step_kind::recv, 1, buffer), out);
  state.on_chunk(incoming(1, 0, values[3]), out);
  CHECK(out.done == std::vector{collective_key(1)});
}

TEST_CASE_FIXTURE(fixture, "stop while waiting only for credits says so") {
  state.start(work(0, step_kind::send, 1, buffer), out);
  const auto waits = state.stop(collective_key(0));
  REQUIRE(waits.size() == 1);
  CHECK(waits[0].why == lane_wait::reason::credit);
  CHECK(waits[0].peer == 1);
}

TEST_CASE_FIXTURE(fixture, "epochs pass 2^32, and any number of them that went over slots") {
  for (const epoch_t last : {(epoch_t{1} << 32) - 1, epoch_t{1} << 40, epoch_t{1} << 62}) {
    const std::size_t done = out.done.size();
    state.on_chunk(incoming(last, 0, values[0]), out);      // early, although nothing was heard of those before it
    state.on_chunk(incoming(last + 1, 0, values[1]), out);  // of the operation after it
    CHECK(state.early_chunks() == 2);
    state.start(work(last, step_kind::recv, 1, buffer), out);
    CHECK(buffer[0] == 11);
    CHECK(state.early_chunks() == 1);
    state.start(work(last + 1, step_kind::recv, 1, buffer), out);
    CHECK(out.done.size() == done + 2);
    CHECK(buffer[0] == 12);
    CHECK(state.early_chunks() == 0);
  }
}

TEST_CASE_FIXTURE(fixture, "another fingerprint, or another size, is told once, and nothing more happens") {
  state.start(work(0, step_kind::recv, 2, buffer), out);
  SUBCASE("fingerprint") { state.on_chunk(incoming(0, 0, values[0], 43), out); }
  SUBCASE("size") {
    chunk c = incoming(0, 0, values[0]);
    c.bytes = 4;
    state.on_chunk(std::move(c), out);
  }
  REQUIRE(out.mismatches.size() == 1);
  CHECK(out.mismatches[0].second == 1);
  state.on_chunk(incoming(0, 1, values[1]), out);
  CHECK(out.mismatches.size() == 1);
  CHECK(buffer[0] == 0);
  CHECK(out.credits.empty());
  state.stop(collective_key(0));
  CHECK(state.early_chunks() == 0);
}

TEST_CASE_FIXTURE(fixture, "transfers: started once, and one that ends after the stop is nobody's") {
  state.start(work(0, step_kind::dma_get, 1, buffer), out);
  CHECK(out.transfers == 1);
  SUBCASE("ends") {
    state.transferred(collective_key(0), 0, out);
    CHECK(out.done.size() == 1);
  }
  SUBCASE("stopped") {
    CHECK(state.stop(collective_key(0)).at(0).why == lane_wait::reason::transfer);
    state.transferred(collective_key(0), 0, out);
    CHECK(out.done.empty());
  }
}

TEST_CASE_FIXTURE(fixture, "sends and receives of one epoch number are told apart by peer and direction") {
  const epoch_t e = point_to_point;
  std::vector<std::int64_t> other(8, 5);
  state.start(pair_work(e, true, other), out);
  REQUIRE(out.delivered.size() == 1);
  state.start(pair_work(e, false, buffer), out);
  chunk from_two = incoming(e, 0, values[3]);
  from_two.source = 2;
  state.on_chunk(std::move(from_two), out);  // rank 2's send, that we have not called recv for
  CHECK(state.early_chunks() == 1);
  state.on_chunk(incoming(e, 0, values[0]), out);
  CHECK(buffer[0] == 11);
  CHECK(out.done.size() == 1);
  state.stop({e, 1, false});
  CHECK(state.early_chunks() == 1);  // rank 2's is another matter
  state.on_credit(back(e, 0), out);
  CHECK(out.done.size() == 2);
}

TEST_CASE_FIXTURE(fixture, "stopping one receive leaves the others' chunks, also those of the same number") {
  const epoch_t e = point_to_point;
  chunk from_two = incoming(e, 0, values[3]);
  from_two.source = 2;
  state.on_chunk(std::move(from_two), out);
  state.on_chunk(incoming(e, 0, values[0]), out);
  state.on_chunk(incoming(e + 1, 0, values[1]), out);
  state.stop({e + 1, 1, false});  // before it was called, and out of order
  CHECK(state.early_chunks() == 2);
  state.stop({e, 1, true});  // a send of that number
  CHECK(state.early_chunks() == 2);
  state.start(pair_work(e, false, buffer), out);
  CHECK(buffer[0] == 11);
  CHECK(state.early_chunks() == 1);
  state.stop({e, 2, false});
  CHECK(state.early_chunks() == 0);
  state.on_chunk(incoming(e + 2, 0, values[2]), out);
  state.start(pair_work(e + 2, false, buffer), out);
  CHECK(buffer[0] == 13);
}

namespace {

/// A channel whose peers are far away.
struct far_away final : recording {
  bool offer_place(const expected_chunk& what) override {
    offered.push_back(what);
    return true;
  }
  void withdraw_place(const expected_chunk& what) override { withdrawn.push_back(what); }
  void clear(rank_t to, const credit& what) override { cleared.push_back({to, what}); }
  std::vector<expected_chunk> offered, withdrawn;
  std::vector<std::pair<rank_t, credit>> cleared;
};

struct far_fixture {
  arena memory;
  channel_state state{0, 0, memory, 8};
  far_away out;
  std::vector<std::int64_t> buffer = std::vector<std::int64_t>(128, 0);
  const std::array<std::int64_t, 4> values{11, 12, 13, 14};
  static chunk announced(epoch_t epoch, std::uint32_t sequence, std::size_t bytes = 8) {
    return {nullptr, bytes, print, epoch, 1, 0, sequence, {}, true};
  }
};

}  // namespace

TEST_CASE_FIXTURE(far_fixture, "a lane that waits offers its place once, and what comes there is not copied") {
  state.start(work(0, step_kind::recv, 2, buffer), out);
  REQUIRE(out.offered.size() == 1);
  CHECK(out.offered[0].place == reinterpret_cast<std::byte*>(&buffer[0]));
  CHECK(out.offered[0].bytes == 8);
  CHECK(out.offered[0].fingerprint == print);
  state.on_chunk(incoming(0, 1, values[1]), out);  // another one moves nothing
  CHECK(out.offered.size() == 1);
  buffer[0] = 99;  // received there
  state.on_chunk(incoming(0, 0, buffer[0]), out);
  CHECK(buffer[0] == 99);
  CHECK(buffer[1] == 12);
  CHECK(out.withdrawn.empty());
  CHECK(out.done.size() == 1);
}

TEST_CASE_FIXTURE(far_fixture, "what comes elsewhere after its place was offered withdraws that") {
  state.start(work(0, step_kind::recv, 1, buffer), out);
  state.on_chunk(incoming(0, 0, values[0]), out);
  REQUIRE(out.withdrawn.size() == 1);
  CHECK(out.withdrawn[0].sequence == 0);
  CHECK(out.withdrawn[0].source == 1);
  CHECK(buffer[0] == 11);
}

TEST_CASE_FIXTURE(far_fixture,
                  "what was announced is cleared when a step waits for it, once, in the order of the program") {
  state.on_chunk(announced(0, 1), out);
  state.on_chunk(announced(0, 0), out);
  CHECK(out.cleared.empty());
  state.start(work(0, step_kind::recv, 2, buffer), out);
  REQUIRE(out.cleared.size() == 1);
  CHECK(out.cleared[0].first == 1);
  CHECK(out.cleared[0].second.sequence == 0);
  CHECK(out.cleared[0].second.source == 0);
  state.on_chunk(announced(0, 0), out);  // twice
  CHECK(out.cleared.size() == 1);
  state.on_chunk(incoming(0, 0, values[0]), out);
  REQUIRE(out.cleared.size() == 2);
  CHECK(out.credits.size() == 1);
  state.on_chunk(incoming(0, 1, values[1]), out);
  CHECK(out.done.size() == 1);
  CHECK(buffer[1] == 12);
  CHECK(state.early_chunks() == 0);
}

TEST_CASE_FIXTURE(far_fixture,
                  "an announcement of another length or of another call is a mismatch, and nothing is cleared") {
  state.start(work(0, step_kind::recv, 1, buffer), out);
  SUBCASE("length") { state.on_chunk(announced(0, 0, 16), out); }
  SUBCASE("call") {
    chunk other = announced(0, 0);
    other.fingerprint = 1;
    state.on_chunk(std::move(other), out);
  }
  CHECK(out.mismatches.size() == 1);
  CHECK(out.cleared.empty());
}

// Found by `troupe simulate --seed 4493 --ranks 2-16 --operations 20`.
TEST_CASE_FIXTURE(far_fixture, "an announced chunk stays one where a buffer that was full has room again") {
  for (std::uint32_t s = 0; s < 100; ++s) state.on_chunk(incoming(5, s, values[0]), out);
  state.on_chunk(announced(0, 0), out);  // behind the first buffer, which is full
  state.stop(collective_key(5));
  CHECK(state.early_chunks() == 1);
  SUBCASE("its bytes come") { state.on_chunk(incoming(0, 0, values[0]), out); }
  SUBCASE("it is announced twice") { state.on_chunk(announced(0, 0), out); }
  CHECK(state.early_chunks() == 1);
  state.start(work(0, step_kind::recv, 1, buffer), out);
  if (out.done.empty()) state.on_chunk(incoming(0, 0, values[0]), out);
  CHECK(out.done.size() == 1);
  CHECK(buffer[0] == 11);
  CHECK(state.early_chunks() == 0);
}

namespace {
/// Receives from ranks 1, 2, … one after the other, each but the first early.
std::shared_ptr<assignment> from_many(int peers, std::vector<std::int64_t>& memory) {
  auto a = work(0, step_kind::recv, peers, memory);
  auto code = std::make_shared<program>(*a->code);
  for (int k = 0; k < peers; ++k) {
    code->lanes[0][static_cast<std::size_t>(k)].from = k + 1;
    code->lanes[0][static_cast<std::size_t>(k)].early = k > 0;
  }
  a->code = code;
  return a;
}
chunk of(rank_t source, chunk&& what) {
  what.source = source;
  return std::move(what);
}
}  // namespace

TEST_CASE_FIXTURE(far_fixture, "early receives have their places at once, eight peers at a time, whoever comes first") {
  state.start(from_many(10, buffer), out);
  REQUIRE(out.offered.size() == 8);
  for (std::size_t k = 0; k < 8; ++k) {
    CHECK(out.offered[k].source == static_cast<rank_t>(k) + 1);
    CHECK(out.offered[k].place == reinterpret_cast<std::byte*>(&buffer[k]));
  }
  buffer[4] = 15;  // received there, before its turn
  state.on_chunk(of(5, incoming(0, 0, buffer[4])), out);
  state.on_chunk(of(8, incoming(0, 0, values[3])), out);  // elsewhere: it was on its way
  CHECK(out.credits.empty());
  CHECK(out.withdrawn.empty());
  state.on_chunk(of(1, incoming(0, 0, values[0])), out);
  CHECK(out.offered.size() == 9);  // one more comes in reach
  state.on_chunk(of(2, incoming(0, 0, values[1])), out);
  CHECK(out.offered.size() == 10);
  for (const rank_t r : {10, 3, 4, 9, 7, 6}) state.on_chunk(of(r, incoming(0, 0, values[2])), out);
  CHECK(out.done.size() == 1);
  CHECK(out.offered.size() == 10);
  CHECK(out.credits.size() == 10);
  CHECK(out.withdrawn.size() == 9);  // of all that came elsewhere
  CHECK(buffer[4] == 15);
  CHECK(buffer[7] == 14);
  CHECK(buffer[8] == 13);
  CHECK(state.early_chunks() == 0);
}

TEST_CASE_FIXTURE(far_fixture, "what several peers have announced is cleared at once, each once") {
  for (const rank_t r : {3, 2}) state.on_chunk(of(r, announced(0, 0)), out);
  state.start(from_many(4, buffer), out);
  REQUIRE(out.cleared.size() == 2);
  CHECK(out.cleared[0].first == 2);
  CHECK(out.cleared[1].first == 3);
  state.on_chunk(of(1, announced(0, 0)), out);
  state.on_chunk(of(4, announced(0, 0)), out);
  CHECK(out.cleared.size() == 4);
  for (const rank_t r : {4, 3, 2, 1}) state.on_chunk(of(r, incoming(0, 0, values[0])), out);
  CHECK(out.cleared.size() == 4);
  CHECK(out.done.size() == 1);
}

TEST_CASE_FIXTURE(far_fixture, "an early chunk of another length or of another call is a mismatch, of its sender") {
  state.start(from_many(3, buffer), out);
  SUBCASE("length") { state.on_chunk(of(3, announced(0, 0, 16)), out); }
  SUBCASE("call") { state.on_chunk(of(3, incoming(0, 0, values[0], 1)), out); }
  REQUIRE(out.mismatches.size() == 1);
  CHECK(out.mismatches[0].second == 3);
  CHECK(out.cleared.empty());
}

TEST_CASE_FIXTURE(fixture, "short receives are not looked for before their turn") {
  state.start(from_many(3, buffer), out);
  state.on_chunk(of(3, incoming(0, 0, values[0], 1)), out);  // another call's: found when its turn comes
  CHECK(out.mismatches.empty());
  state.on_chunk(of(1, incoming(0, 0, values[0])), out);
  CHECK(out.mismatches.empty());
  state.on_chunk(of(2, incoming(0, 0, values[0])), out);
  CHECK(out.mismatches.size() == 1);
}

TEST_CASE_FIXTURE(far_fixture, "a step that combines has no place to offer, but clears") {
  state.start(work(0, step_kind::recv_reduce_send, 1, buffer), out);
  CHECK(out.offered.empty());
  state.on_chunk(announced(0, 0), out);
  CHECK(out.cleared.size() == 1);
}
