// SPDX-License-Identifier: Apache-2.0
// Operations of the user's own: called with the lower rank's side on the left, in rank order if they do not commute, and folded
// from the left if they are not associative; by every choreography.

#include <doctest/doctest.h>

#include <atomic>
#include <map>

#include "tests/engine/jobs.hpp"

using namespace engine_tests;

namespace {

using word = std::uint64_t;

template <word (*Combine)(word, word)>
void elementwise(const void* left, const void* right, void* out, std::size_t count, datatype type, void* context) {
  if (context)
    static_cast<std::atomic<std::size_t>*>(context)->fetch_add(type == datatype::u64 ? count : 1'000'000'000);
  for (std::size_t i = 0; i < count; ++i) {
    word l = 0, r = 0;
    std::memcpy(&l, static_cast<const std::byte*>(left) + i * sizeof l, sizeof l);
    std::memcpy(&r, static_cast<const std::byte*>(right) + i * sizeof r, sizeof r);
    l = Combine(l, r);
    std::memcpy(static_cast<std::byte*>(out) + i * sizeof l, &l, sizeof l);
  }
}

/// The map x → a·x + b modulo 2³², a in the upper half; first left, then right. Associative, does not commute.
word affine(word l, word r) {
  const word a = (l >> 32) * (r >> 32) & 0xffff'ffff;
  const word b = ((r >> 32) * (l & 0xffff'ffff) + (r & 0xffff'ffff)) & 0xffff'ffff;
  return a << 32 | b;
}
/// Product of 2×2 matrices of 16-bit numbers, row by row.
word matrix(word l, word r) {
  const auto at = [](word m, int i) { return m >> (16 * i) & 0xffff; };
  word out = 0;
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j) {
      const word sum = at(l, 2 * i) * at(r, j) + at(l, 2 * i + 1) * at(r, 2 + j);
      out |= (sum & 0xffff) << (16 * (2 * i + j));
    }
  return out;
}
/// Neither.
word horner(word l, word r) { return l * 31 + r; }
/// Commutes, but is not associative.
word midpoint(word l, word r) { return (l >> 1) + (r >> 1) + 1; }

constexpr collective reductions[] = {collective::all_reduce, collective::reduce_scatter, collective::reduce,
                                     collective::scan, collective::exscan};

struct kind {
  const char* name;
  word (*combine)(word, word);
  troupe::user_function function;
  bool commutative, associative;
};
const kind kinds[] = {
    {"affine", affine, elementwise<affine>, false, true},
    {"matrix", matrix, elementwise<matrix>, false, true},
    {"horner", horner, elementwise<horner>, false, false},
    {"midpoint", midpoint, elementwise<midpoint>, true, false},
};

word contribution_of(std::size_t rank, std::size_t i) { return mix(rank * 1'000'003 + i); }
word folded(const kind& k, std::size_t ranks, std::size_t i) {
  word all = contribution_of(0, i);
  for (std::size_t r = 1; r < ranks; ++r) all = k.combine(all, contribution_of(r, i));
  return all;
}

/// Runs one reduction; number of wrong elements.
std::size_t wrong_elements(std::vector<communicator>& comms, collective what, const kind& k, std::size_t count,
                           bool in_place, rank_t root, const call_options& options, bool v_form = false) {
  const std::size_t n = comms.size();
  const std::size_t total = what == collective::reduce_scatter ? n * count : count;
  std::vector<std::vector<word>> in(n), out(n, std::vector<word>(total));
  const op user = troupe::user_op(k.function, nullptr, k.commutative, k.associative);
  troupe::group together;
  for (std::size_t r = 0; r < n; ++r) {
    for (std::size_t i = 0; i < total; ++i) in[r].push_back(contribution_of(r, i));
    word* to = in_place ? in[r].data() : out[r].data();
    if (what == collective::all_reduce)
      comms[r].all_reduce_async(together, in[r].data(), to, count, datatype::u64, user, options);
    else if (what == collective::reduce)
      comms[r].reduce_async(together, in[r].data(), to, count, datatype::u64, user, root, options);
    else if (what == collective::scan)
      comms[r].scan_async(together, in[r].data(), to, count, datatype::u64, user, options);
    else if (what == collective::exscan)
      comms[r].exscan_async(together, in[r].data(), to, count, datatype::u64, user, options);
    else {
      if (in_place) to += r * count;
      if (v_form)
        comms[r].reduce_scatter_v_async(together, in[r].data(), to,
                                        troupe::block_list{std::vector<std::size_t>(n, count)}, datatype::u64, user,
                                        options);
      else comms[r].reduce_scatter_async(together, in[r].data(), to, count, datatype::u64, user, options);
    }
  }
  together.wait();
  std::size_t wrong = 0;
  for (std::size_t r = 0; r < n; ++r) {
    const std::size_t shift = what == collective::reduce_scatter ? r * count : 0;
    const word* result = in_place ? in[r].data() + shift : out[r].data();
    if (what == collective::reduce && static_cast<std::size_t>(root) != r) continue;
    const std::size_t terms = what == collective::scan ? r + 1 : what == collective::exscan ? r : n;
    for (std::size_t i = 0; i < count; ++i) {
      if (terms > 0) wrong += result[i] != folded(k, terms, shift + i);
      else wrong += result[i] != (in_place ? contribution_of(r, i) : 0);  // exscan leaves it alone
    }
  }
  return wrong;
}

}  // namespace

TEST_CASE("every choreography that offers a reduction honours the order of the ranks") {
  std::map<std::string, int> ran;
  for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 13}) {
    troupe::engine_options placed;
    if (ranks == 6) placed.layout = "2x3";
    troupe::engine engine{placed};
    auto comms = engine.communicators(ranks);
    for (const collective what : reductions)
      for (const std::string& choreography : offering(what))
        for (const kind& k : kinds)
          for (const bool in_place : {false, true}) {
            call_options options;
            options.choreography = choreography;
            INFO(name(what) << " by " << choreography << " on " << ranks << " ranks, " << k.name
                            << (in_place ? ", in place" : ""));
            try {
              CHECK(wrong_elements(comms, what, k, 61, in_place, ranks / 2, options) == 0);
              ran[choreography + ' ' + std::string{name(what)}] |= k.commutative ? 2 : 1;
            } catch (const troupe::error& e) {
              INFO(e.what());
              CHECK(e.code_value() == errc::unsupported);
            }
          }
  }
  // Each of them did it for some rank count, on servers or without.
  for (const collective what : reductions)
    for (const std::string& choreography : offering(what)) {
      INFO(choreography << ' ' << name(what));
      CHECK(ran[choreography + ' ' + std::string{name(what)}] == 3);
    }
}

TEST_CASE("and on a machine with several servers, where hierarchies do it too") {
  troupe::engine_options o;
  o.layout = "2x3";
  troupe::engine engine(o);
  auto comms = engine.communicators(6);
  int hierarchical = 0;
  for (const collective what : reductions)
    for (const std::string& choreography : offering(what))
      for (const kind& k : kinds) {
        call_options options;
        options.choreography = choreography;
        INFO(name(what) << " by " << choreography << ", " << k.name);
        try {
          CHECK(wrong_elements(comms, what, k, 40, false, 4, options) == 0);
          hierarchical += choreography.find("hierarchical") != std::string::npos;
        } catch (const troupe::error& e) {
          INFO(e.what());
          CHECK(e.code_value() == errc::unsupported);
        }
      }
  CHECK(hierarchical > 0);
}

TEST_CASE("whatever the planner chooses, the size, and how the message is cut") {
  for (const std::size_t chunk : {0u, 512u}) {
    troupe::engine_options o;
    o.chunk_bytes = chunk;
    o.channels = chunk ? 2 : 0;
    troupe::engine engine(o);
    for (const int ranks : {2, 5, 8}) {
      auto comms = engine.communicators(ranks);
      for (const kind& k : kinds)
        for (const std::size_t count : {0u, 1u, 1000u, 20'011u}) {
          INFO(k.name << " of " << count << " on " << ranks);
          CHECK(wrong_elements(comms, collective::all_reduce, k, count, false, 0, {}) == 0);
          CHECK(wrong_elements(comms, collective::reduce_scatter, k, count, true, 0, {}) == 0);
          CHECK(wrong_elements(comms, collective::reduce_scatter, k, count, false, 0, {}, true) == 0);
          CHECK(wrong_elements(comms, collective::reduce, k, count, false, ranks - 1, {}) == 0);
          CHECK(wrong_elements(comms, collective::scan, k, count, false, 0, {}) == 0);
          CHECK(wrong_elements(comms, collective::scan, k, count, true, 0, {}) == 0);
          CHECK(wrong_elements(comms, collective::exscan, k, count, false, 0, {}) == 0);
          CHECK(wrong_elements(comms, collective::exscan, k, count, true, 0, {}) == 0);
        }
    }
  }
}

TEST_CASE("the declaration matters: an operation that says it commutes may be called in another order") {
  // Else the tests above might pass because nothing ever reorders.
  troupe::engine engine;
  auto comms = engine.communicators(8);
  kind lie = kinds[0];
  lie.commutative = true;
  std::size_t reordered = 0;
  for (const std::string& choreography : offering(collective::all_reduce)) {
    call_options options;
    options.choreography = choreography;
    try {
      reordered += wrong_elements(comms, collective::all_reduce, lie, 64, false, 0, options) > 0;
    } catch (const troupe::error&) {}
  }
  CHECK(reordered > 0);
}

TEST_CASE("the context reaches the function, and every element is combined n − 1 times") {
  troupe::engine engine;
  std::atomic<std::size_t> combined{0};
  auto comms = engine.communicators(4);
  call_options options;
  options.choreography = "ring";
  std::vector<std::vector<word>> data(4, std::vector<word>(100, 1));
  troupe::group together;
  for (std::size_t r = 0; r < 4; ++r)
    comms[r].all_reduce_async(together, data[r], troupe::user_op(elementwise<affine>, &combined), options);
  together.wait();
  CHECK(combined == 300);
}

TEST_CASE("ranks whose operations have other names disagree, and both names are told") {
  troupe::engine engine;
  auto comms = engine.communicators(2);
  std::vector<int> a(3, 1), b(3, 2);
  const auto larger = [](int l, int r) { return l > r ? l : r; };
  const auto code = [&](auto left, auto right, std::initializer_list<const char*> parts) {
    troupe::group together;
    comms[0].all_reduce_async(together, a, left);
    comms[1].all_reduce_async(together, b, right);
    try {
      together.wait();
    } catch (const troupe::error& e) {
      const std::string text = e.what();
      for (const std::string part : parts) CHECK_MESSAGE(text.find(part) != std::string::npos, text);
      return e.code_value();
    }
    return errc::ok;
  };
  using troupe::commutative, troupe::named;
  CHECK(code(named("larger", larger), named("smaller", larger), {"user \"larger\"", "user \"smaller\""}) ==
        errc::mismatch);
  CHECK(code(named("larger", larger), larger,
             {"rank 0: all_reduce(count 3, i32, user \"larger\" (not commutative)",
              "rank 1: all_reduce(count 3, i32, user (not commutative)"}) == errc::mismatch);
  CHECK(code(commutative(named("larger", larger)), named("larger", larger), {"(not commutative)"}) == errc::mismatch);
  CHECK(code(commutative(named("larger", larger)), named("larger", commutative(larger)), {}) == errc::ok);
  CHECK(a == std::vector<int>(3, 2));
  CHECK(b == std::vector<int>(3, 2));
  CHECK(code(named("plus", std::plus<>{}), std::plus<>{}, {}) == errc::ok);
}

TEST_CASE("an operation's name is short and printable") {
  const auto add = [](int l, int r) { return l + r; };
  for (const std::string& wrong :
       {std::string{}, std::string(32, 'a'), std::string{"a\nb"}, std::string{"\xc3\xa9"}, std::string{"a\0b", 3}})
    CHECK_THROWS_WITH_AS(troupe::named(wrong, add), doctest::Contains("1 to 31 printable"), troupe::error);
  const op longest = troupe::named(std::string(31, 'z'), troupe::user_op(elementwise<affine>));
  CHECK(longest.name.view() == std::string(31, 'z'));
  CHECK(troupe::named("sum of mine", troupe::sum) == troupe::sum);
}

TEST_CASE("ranks that declare different properties disagree") {
  troupe::engine engine;
  auto comms = engine.communicators(2);
  std::vector<word> a(3), b(3);
  troupe::group together;
  comms[0].all_reduce_async(together, a, troupe::user_op(elementwise<affine>, nullptr, false));
  comms[1].all_reduce_async(together, b, troupe::user_op(elementwise<affine>, nullptr, true));
  CHECK_THROWS_WITH_AS(together.wait(), doctest::Contains("not commutative"), troupe::error);
}
