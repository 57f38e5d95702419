// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/link/frames.hpp"
#include "actors/ports/link/stripes.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

using namespace troupe;
using namespace troupe::actors;

namespace {

call some_call() {
  call c;
  c.what = collective::all_gather;
  c.uniform = false;
  c.type = datatype::c128;
  c.reduction = pre_mul_sum(0.1);
  c.reduction.type_mark = 77;
  c.count = std::size_t{1} << 40;
  c.offload = true;
  c.choreography = "ring";
  c.counts = {0, 7, std::size_t{1} << 33};
  c.outcome_of = ended_call{9, errc::timed_out};
  c.history = 11;
  auto report = std::make_shared<call_report>();
  report->planned = "ring over 2 channels";
  report->earlier = {{3, "broadcast", 17}};
  c.report = std::move(report);
  return c;
}

std::vector<std::byte> cut(std::vector<std::byte> bytes, std::size_t at) {
  bytes.resize(at);
  return bytes;
}

/// Cut anywhere, or with a byte behind it, it is no word; with any byte changed it is one or none, and never more than its bytes.
template <class Word, class Read>
void survives(const Word& word, Read&& read) {
  const std::vector<std::byte> bytes = to_wire(word);
  const auto again = read(bytes);
  REQUIRE(again);
  CHECK(to_wire(*again) == bytes);
  for (std::size_t at = 0; at < bytes.size(); ++at) CHECK_FALSE(read(cut(bytes, at)));
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{0});
  CHECK_FALSE(read(longer));
  for (std::size_t at = 0; at < bytes.size(); ++at)
    for (const int value : {0, 1, 127, 255}) {
      std::vector<std::byte> other = bytes;
      other[at] = static_cast<std::byte>(value);
      if (const auto read_all = read(other)) CHECK(to_wire(*read_all) == other);
    }
}

}  // namespace

TEST_CASE("what processes say to each other comes out as it went in, and nothing else does") {
  const failure_ptr why = make_failure(errc::peer_lost, "process 3 was lost");
  const auto home = [](const auto& b) { return home_word_from(b); };
  survives(home_word{called_message{5, 2, some_call()}}, home);
  const auto call_again = home(to_wire(home_word{called_message{5, 2, some_call()}}));
  REQUIRE(call_again);
  // Ranks whose calls differ in these get a mismatch.
  CHECK(std::get<called_message>(*call_again).what.offload);
  CHECK(std::get<called_message>(*call_again).what.reduction.type_mark == 77);
  survives(home_word{withdraw_message{5, 2, some_call()}}, home);
  survives(home_word{withdraw_message{5, 2, std::nullopt}}, home);
  survives(home_word{fail_message{5, "all_reduce", why}}, home);
  survives(home_word{stopped_message{5, 2, {"lane 1", ""}, {some_call(), true, true}}}, home);
  survives(home_word{left_message{2, 77, call{}, std::make_shared<std::vector<sends_made>>(2)}}, home);
  survives(home_word{abort_message{why}}, home);
  const auto ranks = [](const auto& b) { return ranks_word_from(b); };
  survives(ranks_word{agreed_message{5, std::make_shared<const std::vector<std::size_t>>(3, 8)}}, ranks);
  survives(ranks_word{agreed_message{5, nullptr}}, ranks);
  survives(ranks_word{failed_message{5, why}}, ranks);
  survives(ranks_word{dissolved_message{}}, ranks);
  survives(pair_word{pair_word::kind::refuse, 1, 4, true, why, 6, true},
           [](const auto& b) { return pair_word_from(b); });
  const auto process = [](const auto& b) { return process_word_from(b); };
  survives(process_word{beat_word{}}, process);
  survives(process_word{lost_word{4, "it closed a connection"}}, process);
  survives(process_word{gave_up_word{4, 1}}, process);
  survives(process_word{revoke_word{4, "its input is broken"}}, process);
  survives(process_word{shrink_word{2, {survivors_word::kind::ready, 1, 3, {4, 5}, {0, 1, 4}}}}, process);
}

TEST_CASE("a failure that says nothing is no failure") {
  CHECK_FALSE(home_word_from(to_wire(home_word{fail_message{5, "all_reduce", nullptr}})));
  CHECK_FALSE(home_word_from(to_wire(home_word{abort_message{nullptr}})));
  CHECK_FALSE(ranks_word_from(to_wire(ranks_word{broken_message{nullptr}})));
  CHECK_FALSE(pair_word_from(to_wire(pair_word{pair_word::kind::revoke, 1, 4, true, nullptr, 6, true, {}})));
  CHECK(pair_word_from(to_wire(pair_word{pair_word::kind::revoked, 1, 4, true, nullptr, 6, true, {}})));
}

TEST_CASE("a list cannot be longer than its bytes") {
  std::vector<std::byte> bytes = to_wire(home_word{stopped_message{5, 2, {}, {}}});
  const auto is = [&](std::size_t at) { return home_word_from(bytes).has_value() && at < bytes.size(); };
  REQUIRE(is(0));
  // The number of waits stands behind the index (4), the epoch (8) and the rank (4).
  for (std::size_t i = 16; i < 24; ++i) bytes[i] = std::byte{0xff};
  CHECK_FALSE(home_word_from(bytes));
}

TEST_CASE("heads that cannot be are told") {
  frame_head head;
  head.kind = frame_kind::chunk;
  head.bytes = sizeof(chunk_body);
  CHECK(why_no_frame(head, 0).empty());
  CHECK(why_no_frame(head, 1) == "frame 0 instead of 1");
  head.bytes = sizeof(chunk_body) - 1;
  CHECK(why_no_frame(head, 0).find("a frame of 31 bytes where from 32 to ") == 0);
  for (const auto& [kind, bytes] :
       {std::pair{frame_kind::credit, sizeof(credit_body)}, std::pair{frame_kind::clear, sizeof(credit_body)},
        std::pair{frame_kind::response, sizeof(credit_body)}, std::pair{frame_kind::ready, sizeof(chunk_body)},
        std::pair{frame_kind::announce, sizeof(announce_body)}, std::pair{frame_kind::freed, sizeof(freed_body)}}) {
    head.kind = kind;
    for (const std::size_t other : {bytes - 1, bytes + 1}) {
      head.bytes = other;
      CHECK_FALSE(why_no_frame(head, 0).empty());
    }
    head.bytes = bytes;
    CHECK(why_no_frame(head, 0).empty());
  }
  head.kind = frame_kind::packet;
  for (const std::size_t bytes : {sizeof(chunk_body) - 1, sizeof(chunk_body) + most_packet_bytes + 1}) {
    head.bytes = bytes;
    CHECK_FALSE(why_no_frame(head, 0).empty());
  }
  for (const std::size_t bytes : {sizeof(chunk_body), sizeof(chunk_body) + most_packet_bytes}) {
    head.bytes = bytes;
    CHECK(why_no_frame(head, 0).empty());
  }
  head.kind = frame_kind::home;
  head.bytes = most_word_bytes + 1;
  CHECK_FALSE(why_no_frame(head, 0).empty());
  head.kind = static_cast<frame_kind>(200);
  CHECK(why_no_frame(head, 0) == "a frame of unknown kind 200");
}

TEST_CASE("stripes that cannot be are told") {
  frame_head head;
  head.kind = frame_kind::stripe;
  for (const std::uint64_t bytes : {sizeof(stripe_body), sizeof(stripe_body) + stripe_bytes + 1}) {
    head.bytes = bytes;
    CHECK_FALSE(why_no_frame(head, 0).empty());
  }
  const auto can_be = [&](std::uint64_t of, std::uint64_t offset, std::uint64_t bytes, std::uint32_t settled = 0) {
    head.bytes = sizeof(stripe_body) + bytes;
    stripe_body body;
    body.bytes = of, body.offset = offset, body.name.settled = settled;
    return why_no_frame(head, 0).empty() && why_no_stripe(head, body).empty();
  };
  constexpr std::uint64_t one = stripe_bytes, gib = std::uint64_t{1} << 30;
  CHECK(can_be(one + 1, 0, one));
  CHECK(can_be(one + 1, one, 1));
  CHECK(can_be(2 * one, one, one));
  CHECK(can_be(most_chunk_bytes, most_chunk_bytes - one, one));
  CHECK_FALSE(can_be(one, 0, one));  // would not be in stripes
  CHECK_FALSE(can_be(most_chunk_bytes + 1, 0, one));
  CHECK_FALSE(can_be(2 * one, 1, one - 1));
  CHECK_FALSE(can_be(2 * one, 2 * one, one));
  CHECK_FALSE(can_be(2 * one, 8 * gib * gib, one));
  CHECK_FALSE(can_be(2 * one, one, one - 1));
  CHECK_FALSE(can_be(one + 5, one, 6));
  CHECK_FALSE(can_be(2 * one, 0, one, 1));
  head.bytes = sizeof(stripe_body) + 7;
  stripe_body body;
  body.bytes = 2 * one;
  CHECK(why_no_stripe(head, body) == "a stripe of 7 bytes at 0 of a chunk of 524288");
}

TEST_CASE("what may come on any lane: stripes, words of processes, and chunks that are too long to be settled") {
  const auto may = [](frame_kind kind, std::size_t bytes) {
    frame_head head;
    head.kind = kind;
    head.bytes = bytes;
    return goes_on_any_lane(head);
  };
  CHECK(may(frame_kind::stripe, sizeof(stripe_body) + 1));
  CHECK(may(frame_kind::process, 8));
  CHECK(may(frame_kind::chunk, sizeof(chunk_body) + most_settled + 1));
  CHECK_FALSE(may(frame_kind::chunk, sizeof(chunk_body) + most_settled));
  for (const frame_kind kind : {frame_kind::credit, frame_kind::announce, frame_kind::clear, frame_kind::freed,
                                frame_kind::packet, frame_kind::response, frame_kind::ready})
    CHECK_FALSE(may(kind, sizeof(chunk_body) + most_settled + 1));
}

TEST_CASE("a call whose function has a name that no function can have is no word") {
  call what = some_call();
  what.reduction.name = op_name{"mine"};
  std::vector<std::byte> bytes = to_wire(home_word{called_message{5, 2, what}});
  const auto home = [&] { return home_word_from(bytes); };
  REQUIRE(home());
  const std::string_view name = "mine";
  const auto at = std::search(bytes.begin(), bytes.end(), name.begin(), name.end(),
                              [](std::byte a, char b) { return std::to_integer<char>(a) == b; });
  REQUIRE(at != bytes.end());
  *at = std::byte{0};
  CHECK_FALSE(home());
}

TEST_CASE("a chunk is complete when each of its stripes has come once, in any order") {
  for (const std::uint64_t stripes : {2u, 3u, 63u, 64u, 65u, 200u}) {
    CAPTURE(stripes);
    stripe_set all{(stripes - 1) * stripe_bytes + 5};
    std::uint64_t at = 0;
    for (std::uint64_t i = 0; i < stripes; ++i) {
      at = i % 2 == 0 ? i / 2 : stripes - 1 - i / 2;  // from both ends
      CHECK(all.begin(at * stripe_bytes));
      CHECK_FALSE(all.begin(at * stripe_bytes));
      CHECK(all.finish(at * stripe_bytes) == (i == stripes - 1));
    }
  }
}

TEST_CASE("lengths beyond four thousand million bytes fit every field") {
  static_assert(sizeof(frame_head::bytes) == 8 && sizeof(announce_body::bytes) == 8 && sizeof(chunk::bytes) == 8 &&
                sizeof(expected_chunk::bytes) == 8);
  frame_head head;
  head.kind = frame_kind::chunk;
  head.bytes = most_chunk_bytes + sizeof(chunk_body);
  CHECK(why_no_frame(head, 0).empty());
  CHECK(padded(head.bytes) == head.bytes);
  ++head.bytes;
  CHECK_FALSE(why_no_frame(head, 0).empty());
  CHECK(padded((std::uint64_t{1} << 32) + 1) == (std::uint64_t{1} << 32) + 16);
}
