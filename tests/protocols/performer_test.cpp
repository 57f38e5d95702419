// SPDX-License-Identifier: Apache-2.0
#include "protocols/perform/performer.hpp"

#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/program/completion.hpp"
#include "protocols/verify/verifier.hpp"
#include "tests/protocols/reference.hpp"
#include "tests/seed.hpp"

#include <doctest/doctest.h>

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <tuple>
#include <vector>

using namespace troupe;

namespace {

#if defined(__SANITIZE_THREAD__)
constexpr int shrink = 4;  // one thread only: nothing is learned from running it all at a tenth of the speed
#else
constexpr int shrink = 1;
#endif

/// All ranks and channels of one operation on one thread. Chunks and credits lie on the way until the scheduler picks them.
class toy {
public:
  /// @param average the verdict on the score, if its steps are to divide
  toy(const score& s, const call_shape& shape, const cutting& cut, int credits, bool any_order, std::uint64_t seed,
      const verdict* average = nullptr)
      : cut_(cut), credits_(credits), random_(seed) {
    for (rank_t r = 0; r < s.ranks; ++r) users_.emplace_back(s, r, shape);
    for (rank_t r = 0; r < s.ranks; ++r) peers_.push_back({users_[index(r)].input(), users_[index(r)].output()});
    for (rank_t r = 0; r < s.ranks; ++r) codes_.push_back(compile(s, r, shape, cut));
    if (average != nullptr) {
      divisor_ = s.ranks;
      for (rank_t r = 0; r < s.ranks; ++r) {
        mark_completing(codes_[index(r)], average->completing[index(r)]);
        codes_[index(r)].sums.divisor = static_cast<std::size_t>(s.ranks);
      }
    }
    l2_.resize(codes_[0].l2_bytes / 8 + 1);
    scratch_.resize(index(s.ranks));
    l0_.resize(index(s.ranks));
    for (rank_t r = 0; r < s.ranks; ++r) {
      const program& code = codes_[index(r)];
      scratch_[index(r)].resize(code.scratch_bytes / 8 + 1);
      l0_[index(r)].resize(code.l0_bytes / 8 + 1);
      const memory_map memory{
          peers_[index(r)].input, peers_[index(r)].output, bytes(scratch_[index(r)]), bytes(l0_[index(r)]), bytes(l2_),
          peers_.data()};
      for (int c = 0; c < cut.channels; ++c) {
        lanes_.emplace_back(code, c, memory, datatype::i64, sum, any_order);
        ports_.push_back({*this, r, c, {}});
      }
    }
  }

  /// Empty when all ends well.
  std::string run() {
    for (std::size_t idle = 0; idle < 2;) {
      bool moved = false;
      for (std::size_t turn = 0; turn < 4 * lanes_.size(); ++turn) moved |= something();
      if (!moved) moved = flush();
      idle = moved ? 0 : idle + 1;
      if (!wrong_.empty()) return wrong_;
    }
    for (const performer& p : lanes_)
      if (!p.performed()) return "stuck: " + to_string(p.waits().at(0));
    if (!flying_.empty()) return "something is still under way";
    for (const auto& u : users_)
      if (u.wrong(divisor_) != 0) return std::to_string(u.wrong(divisor_)) + " elements are wrong";
    return {};
  }

private:
  using link_name = std::tuple<int, rank_t, rank_t, int>;  // channel, from, to, lane
  struct link {
    std::deque<chunk> arrived;
    int under_way = 0;
    std::vector<std::vector<std::int64_t>> slots;
    std::size_t next_slot = 0;
  };
  struct event {
    enum { arrival, credit, transferred } what;
    link_name where;
    chunk carried;
    std::size_t player = 0;
    const std::byte* source = nullptr;
    std::byte* target = nullptr;
    std::size_t bytes = 0;
  };
  struct port {
    toy& all;
    rank_t rank;
    int channel;
    std::vector<bool> busy;

    const chunk* front(int lane, rank_t from) {
      auto& queue = all.links_[{channel, from, rank, lane}].arrived;
      return queue.empty() ? nullptr : &queue.front();
    }
    void consume(int lane, rank_t from) {
      all.links_[{channel, from, rank, lane}].arrived.pop_front();
      all.flying_.push_back({event::credit, {channel, from, rank, lane}, {}, 0, nullptr, nullptr, 0});
    }
    bool can_send(int lane, rank_t to) { return all.links_[{channel, rank, to, lane}].under_way < all.credits_; }
    void send(int lane, rank_t to, const std::byte* data, std::size_t n) {
      REQUIRE(can_send(lane, to));
      ++all.links_[{channel, rank, to, lane}].under_way;
      all.flying_.push_back(
          {event::arrival, {channel, rank, to, lane}, {data, n, 0, 0, rank, 0, 0, {}}, 0, nullptr, nullptr, 0});
    }
    std::byte* slot(int lane, rank_t to, std::size_t n) {
      link& l = all.links_[{channel, rank, to, lane}];
      l.slots.resize(static_cast<std::size_t>(all.credits_));
      auto& mine = l.slots[l.next_slot++ % l.slots.size()];
      mine.resize(n / 8 + 1);
      return all.bytes(mine);
    }
    bool transfer(int lane, std::byte* target, const std::byte* source, std::size_t n) {
      if (all.random_() % 2 == 0) {
        troupe::copy(target, source, n);
        return true;
      }
      all.flying_.push_back(
          {event::transferred, {channel, rank, rank, lane}, {}, all.player(rank, channel), source, target, n});
      return false;
    }
  };

  static std::size_t index(int r) { return static_cast<std::size_t>(r); }
  std::size_t player(rank_t r, int c) const { return static_cast<std::size_t>(r * cut_.channels + c); }
  static std::byte* bytes(std::vector<std::int64_t>& v) { return reinterpret_cast<std::byte*>(v.data()); }

  bool something() {
    if (random_() % 2 == 0 && !flying_.empty()) return land(random_() % flying_.size());
    const std::size_t who = random_() % lanes_.size();
    const std::size_t before = flying_.size();
    const bool was = lanes_[who].performed();
    if (lanes_[who].advance(ports_[who]) == performer::status::mismatch) wrong_ = "a chunk has the wrong size";
    return before != flying_.size() || was != lanes_[who].performed();
  }
  bool flush() {
    if (!flying_.empty()) return land(random_() % flying_.size());
    bool moved = false;
    for (std::size_t p = 0; p < lanes_.size(); ++p) {
      const bool was = lanes_[p].performed();
      const auto before = flying_.size();
      lanes_[p].advance(ports_[p]);
      moved |= was != lanes_[p].performed() || before != flying_.size();
    }
    return moved;
  }
  /// Arrivals of one link keep their order: the first of that link lands.
  bool land(std::size_t at) {
    if (flying_[at].what == event::arrival)
      for (std::size_t i = 0; i < at; ++i)
        if (flying_[i].what == event::arrival && flying_[i].where == flying_[at].where) {
          at = i;
          break;
        }
    const event e = flying_[at];
    flying_.erase(flying_.begin() + static_cast<std::ptrdiff_t>(at));
    if (e.what == event::arrival) links_[e.where].arrived.push_back(e.carried);
    if (e.what == event::credit) --links_[e.where].under_way;
    if (e.what == event::transferred) {
      troupe::copy(e.target, e.source, e.bytes);
      lanes_[e.player].transferred(std::get<3>(e.where));
    }
    return true;
  }

  cutting cut_;
  int credits_;
  std::int64_t divisor_ = 1;
  std::mt19937_64 random_;
  std::vector<reference::user_buffers> users_;
  std::vector<peer_memory> peers_;
  std::vector<program> codes_;
  std::vector<std::int64_t> l2_;
  std::vector<std::vector<std::int64_t>> scratch_, l0_;
  std::vector<performer> lanes_;
  std::vector<port> ports_;
  std::map<link_name, link> links_;
  std::deque<event> flying_;
  std::string wrong_;
};

bool can_be_in_place(collective c) {
  return c == collective::all_reduce || c == collective::all_gather || c == collective::reduce_scatter ||
         c == collective::all_to_all;
}

}  // namespace

TEST_CASE("all choreographies, in random orders: what the verifier passes ends, with exact results") {
  std::mt19937_64 random(seed());
  std::size_t performed = 0, refused = 0, with_one_credit = 0, averages = 0;
  for (const choreography* by : all_choreographies())
    for (const collective what : by->collectives)
      for (const int ranks : {1, 2, 3, 4, 5, 8})
        for (int kind = 0; kind < 4; ++kind) {
          if (random() % shrink != 0) continue;
          setup on =
              flat_setup(what, ranks, static_cast<rank_t>(random() % static_cast<unsigned>(ranks)),
                         (kind & 1) != 0 && can_be_in_place(what), (kind & 2) == 0 || !reference::has_blocks(what));
          if (ranks % 2 == 0 && random() % 2 == 0) on.placement = layout::grid(2, ranks / 2);
          on.through_scratch = random() % 2 == 0;
          if (what == collective::all_to_all && !on.uniform) on.in_place = false;  // such calls are staged
          if (!refusal(*by, on).empty()) continue;
          const score s = one_cell_per_step(lower_syncs(write_score(*by, on)));
          for (const int credits : {1, 2, 8}) {
            const cutting cut{1 + static_cast<int>(random() % 3), 1 + static_cast<int>(random() % 3),
                              1 + static_cast<int>(random() % 2)};
            const verdict v = verify(s, {credits, cut.slices, cut.slices_per_step});
            if (!v.ok()) {
              ++refused;
              continue;
            }
            std::vector<std::size_t> counts;
            call_shape shape;
            shape.count = std::array<std::size_t, 6>{0, 1, 2, 7, 65, 300}[random() % 6];
            shape.element_size = 8;
            if (!on.uniform) {
              for (std::int64_t b = 0; b < block_count(what, ranks); ++b)
                counts.push_back(random() % 3 == 0 ? 0 : random() % 40);
              shape.counts = counts;
            }
            const std::uint64_t order = random();
            CAPTURE(reference::title(s));
            CAPTURE(credits);
            CAPTURE(cut.channels);
            CAPTURE(cut.slices);
            CAPTURE(cut.slices_per_step);
            CAPTURE(shape.count);
            call described;
            described.what = what;
            described.reduction = average;
            const bool divides = random() % 2 == 0 && divides_in_steps(described, ranks, v);
            CAPTURE(divides);
            CHECK(toy(s, shape, cut, credits, random() % 2 == 0, order, divides ? &v : nullptr).run() == "");
            averages += divides;
            ++performed;
            with_one_credit += credits == 1;
          }
        }
  CHECK(performed > 500 / shrink);
  CHECK(with_one_credit > 0);
  CHECK(averages > 0);
  CHECK(refused < performed);
}

// -- single transitions -----------------------------------------------------------------------------------------------

namespace {

/// A port by hand: chunks by source.
struct hand_port {
  std::map<rank_t, chunk> waiting;
  std::vector<rank_t> consumed;
  std::vector<std::vector<std::int64_t>> sent;
  int credits = 1;
  std::int64_t slot_memory[8] = {};

  const chunk* front(int, rank_t from) { return waiting.contains(from) ? &waiting[from] : nullptr; }
  void consume(int, rank_t from) {
    waiting.erase(from);
    consumed.push_back(from);
  }
  bool can_send(int, rank_t) { return credits > 0; }
  void send(int, rank_t, const std::byte* data, std::size_t n) {
    --credits;
    const auto* first = reinterpret_cast<const std::int64_t*>(data);
    sent.emplace_back(first, first + n / 8);
  }
  std::byte* slot(int, rank_t, std::size_t) { return reinterpret_cast<std::byte*>(slot_memory); }
  bool transfer(int, std::byte*, const std::byte*, std::size_t) { return false; }

  void put(rank_t from, const std::vector<std::int64_t>& values) {
    waiting[from] = {reinterpret_cast<const std::byte*>(values.data()), values.size() * 8, 0, 0, from, 0, 0, {}};
  }
};

program one_lane(std::vector<instruction> code) {
  program p;
  p.lanes = {std::move(code)};
  p.element_size = 8;
  return p;
}

instruction receive_into(step_kind kind, rank_t from, std::size_t elements, std::uint16_t fan = 0) {
  instruction i;
  i.kind = kind;
  i.from = from;
  i.elements = elements;
  i.fan = fan;
  i.target = {0, self, buffer_kind::output};
  i.source = {0, self, buffer_kind::input};
  i.score_step = from;
  return i;
}

struct buffers {
  std::vector<std::int64_t> in = std::vector<std::int64_t>(4, 10), out = std::vector<std::int64_t>(4, 100);
  memory_map map() { return {reinterpret_cast<std::byte*>(in.data()), reinterpret_cast<std::byte*>(out.data())}; }
};

}  // namespace

TEST_CASE("a chunk of another size is a mismatch, and nothing is written") {
  for (const step_kind kind : {step_kind::recv, step_kind::recv_reduce, step_kind::recv_reduce_copy}) {
    buffers b;
    hand_port port;
    const std::vector<std::int64_t> five(5, 1);
    port.put(3, five);
    const program code = one_lane({receive_into(kind, 3, 4)});
    performer p{code, 0, b.map(), datatype::i64, sum, false};
    CHECK(p.advance(port) == performer::status::mismatch);
    CHECK(b.out == std::vector<std::int64_t>(4, 100));
    CHECK(port.consumed.empty());
  }
}

TEST_CASE("a receive that also sends takes nothing before it has a credit") {
  for (const step_kind kind :
       {step_kind::recv_copy_send, step_kind::recv_reduce_send, step_kind::recv_reduce_copy_send}) {
    buffers b;
    hand_port port;
    port.credits = 0;
    const std::vector<std::int64_t> ones(4, 1);
    port.put(3, ones);
    instruction i = receive_into(kind, 3, 4);
    i.to = 5;
    const program code = one_lane({i});
    performer p{code, 0, b.map(), datatype::i64, sum, false};
    CHECK(p.advance(port) == performer::status::waiting);
    REQUIRE(p.waits().size() == 1);
    CHECK(to_string(p.waits()[0]) == "lane 0 step 3 waits for a credit from rank 5");
    CHECK(port.consumed.empty());
    port.credits = 1;
    CHECK(p.advance(port) == performer::status::performed);
    CHECK(p.waits().empty());
    REQUIRE(port.sent.size() == 1);
    CHECK(port.sent[0] == std::vector<std::int64_t>(4, kind == step_kind::recv_copy_send ? 1 : 11));
    if (kind == step_kind::recv_reduce_send) CHECK(b.out == std::vector<std::int64_t>(4, 100));
    CHECK(b.in == std::vector<std::int64_t>(4, 10));
  }
}

TEST_CASE("fans: in order of arrival when any order will do, as written otherwise") {
  for (const bool any_order : {false, true}) {
    buffers b;
    hand_port port;
    std::vector<instruction> code;
    for (rank_t from = 1; from <= 6; ++from)
      code.push_back(receive_into(step_kind::recv_reduce, from, 4, from <= 4 ? 1 : 2));
    const program all = one_lane(code);
    performer p{all, 0, b.map(), datatype::i64, sum, any_order};
    const std::vector<std::int64_t> ones(4, 1);
    const std::vector<rank_t> arrivals{5, 4, 2, 1, 6, 3};
    for (const rank_t from : arrivals) {
      port.put(from, ones);
      CHECK((p.advance(port) == performer::status::performed) == (from == 3));
    }
    CHECK(port.consumed == (any_order ? std::vector<rank_t>{4, 2, 1, 3, 5, 6} : std::vector<rank_t>{1, 2, 3, 4, 5, 6}));
    CHECK(b.out == std::vector<std::int64_t>(4, 106));
  }
}

TEST_CASE("fans keep their order when the operation is not commutative") {
  buffers b;
  hand_port port;
  const program code =
      one_lane({receive_into(step_kind::recv_reduce, 1, 4, 1), receive_into(step_kind::recv_reduce, 2, 4, 1)});
  op reduction = sum;
  reduction.commutative = false;
  performer p{code, 0, b.map(), datatype::i64, reduction, true};
  const std::vector<std::int64_t> ones(4, 1);
  port.put(2, ones);
  p.advance(port);
  CHECK(port.consumed.empty());
}

TEST_CASE("a fan of more than 64 members") {
  buffers b;
  hand_port port;
  std::vector<instruction> code;
  for (rank_t from = 0; from < 150; ++from) code.push_back(receive_into(step_kind::recv_reduce, from, 4, 1));
  const program all = one_lane(code);
  performer p{all, 0, b.map(), datatype::i64, sum, true};
  const std::vector<std::int64_t> ones(4, 1);
  auto status = performer::status::waiting;
  for (rank_t from = 149; from >= 0; --from) {
    port.put(from, ones);
    status = p.advance(port);
  }
  CHECK(status == performer::status::performed);
  CHECK(b.out == std::vector<std::int64_t>(4, 250));
}

TEST_CASE("a transfer is started once, and waited for") {
  buffers b;
  struct counting : hand_port {
    int transfers = 0;
    bool transfer(int, std::byte*, const std::byte*, std::size_t) { return ++transfers, false; }
  } port;
  instruction i = receive_into(step_kind::dma_get, -1, 4);
  const program code = one_lane({i, i});
  performer p{code, 0, b.map(), datatype::i64, sum, false};
  for (int k = 0; k < 3; ++k) CHECK(p.advance(port) == performer::status::waiting);
  CHECK(port.transfers == 1);
  CHECK(to_string(p.waits().at(0)) == "lane 0 waits for its DMA engine");
  p.transferred(0);
  CHECK(p.advance(port) == performer::status::waiting);
  CHECK(port.transfers == 2);
  p.transferred(0);
  CHECK(p.advance(port) == performer::status::performed);
}

TEST_CASE("lanes wait for each other's steps") {
  buffers b;
  hand_port port;
  program code;
  code.element_size = 8;
  code.lanes_per_channel = 2;
  instruction copy = receive_into(step_kind::copy, -1, 4);
  copy.after_lane = 1;
  copy.after_index = 0;
  code.lanes = {{copy}, {receive_into(step_kind::recv, 7, 4)}};
  performer p{code, 0, b.map(), datatype::i64, sum, false};
  CHECK(p.advance(port) == performer::status::waiting);
  CHECK(p.waits().size() == 2);
  const std::vector<std::int64_t> ones(4, 1);
  port.put(7, ones);
  CHECK(p.advance(port) == performer::status::performed);
  CHECK(b.out == b.in);  // the copy came after the receive
}
