// SPDX-License-Identifier: Apache-2.0
// A checked_call (what the boards remember) against a call_identity (what plan caches and fingerprints tell calls by): two calls that the second tells
// apart are never one to the first. Each field of a call has a line here: the bindings below do not compile when there is one more.

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "actors/ports/checked_calls.hpp"

using namespace troupe;

namespace {

/// Where the value of a field comes from, when a description is looked up on the boards.
enum class origin {
  caller,    ///< checked_call has it, or repeatable() leaves the call to the check
  follows,   ///< from the options, the engine or the buffers, after the check: the caller's value is overwritten
  elsewhere  ///< no description that a board is asked for has it
};

struct variation {
  std::string field;
  origin from;
  std::function<void(call&)> vary;
};

std::vector<variation> variations() {
  {
    const call c;
    [[maybe_unused]] const auto& [what, uniform, in_place, type, reduction, root, count, level, protocol, agreement,
                                  offload, purpose, choreography, counts, receive_counts, pieces, pieces_mark,
                                  outcome_of, history, report] = c;
    [[maybe_unused]] const auto& [kind, scale, function, context, commutative, associative, name, type_mark] =
        c.reduction;
  }
  using enum origin;
  return {
      {"what", caller, [](call& c) { c.what = collective::all_reduce; }},
      {"uniform", caller, [](call& c) { c.uniform = false; }},
      {"in_place", follows, [](call& c) { c.in_place = true; }},
      {"type", caller, [](call& c) { c.type = datatype::f64; }},
      {"reduction.kind", caller, [](call& c) { c.reduction.kind = op_kind::max; }},
      {"reduction.kind user", caller, [](call& c) { c.reduction.kind = op_kind::user; }},
      {"reduction.scale", caller, [](call& c) { c.reduction.scale = 2; }},
      {"reduction.commutative", caller, [](call& c) { c.reduction.commutative = false; }},
      {"reduction.associative", caller, [](call& c) { c.reduction.associative = false; }},
      {"root", caller, [](call& c) { c.root = 1; }},
      {"count", caller, [](call& c) { c.count = 9; }},
      {"level", follows, [](call& c) { c.level = determinism::fast; }},
      {"protocol", follows, [](call& c) { c.protocol = message_protocol::nic; }},
      {"agreement", follows, [](call& c) { c.agreement = agreement_time::eager; }},
      {"offload", follows, [](call& c) { c.offload = true; }},
      {"purpose", caller, [](call& c) { c.purpose = call_purpose::duplicate; }},
      {"choreography", follows, [](call& c) { c.choreography = "ring"; }},
      {"pieces", elsewhere, [](call& c) { partition_call(c, 2, {}); }},
      {"outcome_of", caller, [](call& c) { c.outcome_of = ended_call{}; }},
  };
}

call_description description() {
  static std::array<float, 16> memory{};
  call_description d;
  d.what.what = collective::reduce;
  d.what.type = datatype::f32;
  d.what.count = 8;
  d.input = memory.data();
  d.output = memory.data() + 8;
  return d;
}

}  // namespace

TEST_CASE("what tells calls apart for plans and peers does so for the boards, or is not the caller's") {
  const call_description base = description();
  const auto words = actors::repeatable(base);
  REQUIRE(words);
  for (const variation& v : variations()) {
    CAPTURE(v.field);
    call_description other = base;
    v.vary(other.what);
    const bool apart = !(identity_of(other.what) == identity_of(base.what));
    const auto others = actors::repeatable(other);
    const bool told = !others || !(*others == *words);
    if (v.from == origin::caller) CHECK(told);
    else CHECK(apart);  // else it would need no line
  }
}

TEST_CASE("every option but the deadline leaves a call to the check, since it changes what is called") {
  {
    const call_options o;
    [[maybe_unused]] const auto& [deadline, level, choreography, protocol, tag, agreement] = o;
  }
  const auto left_to_the_check = [](auto&& set) {
    call_description d = description();
    set(d.options);
    return !actors::repeatable(d);
  };
  CHECK_FALSE(left_to_the_check([](call_options& o) { o.deadline = std::chrono::seconds{1}; }));
  CHECK(left_to_the_check([](call_options& o) { o.level = determinism::fast; }));
  CHECK(left_to_the_check([](call_options& o) { o.choreography = "ring"; }));
  CHECK(left_to_the_check([](call_options& o) { o.protocol = message_protocol::nic; }));
  CHECK(left_to_the_check([](call_options& o) { o.tag = 1; }));
  CHECK(left_to_the_check([](call_options& o) { o.agreement = agreement_time::eager; }));
}

TEST_CASE("a plain call and its description are remembered by the same words") {
  const call_description d = description();
  plain_call c;
  c.what = d.what.what;
  c.type = d.what.type;
  c.count = d.what.count;
  c.input = d.input;
  c.output = d.output;
  c.root = 3;
  c.reduction = make_op(op_kind::max);
  const auto plain = actors::repeatable(c);
  const auto described = actors::repeatable(static_cast<call_description>(c));
  REQUIRE(plain);
  REQUIRE(described);
  CHECK(*plain == *described);
}
