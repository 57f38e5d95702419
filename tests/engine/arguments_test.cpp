// SPDX-License-Identifier: Apache-2.0
// What a caller may hand to an operation besides ranges of numbers: single objects, bool, char, std::byte, halves, complex numbers,
// structures; functions as reductions; options in braces.

#include <doctest/doctest.h>

#include <troupe.hpp>

#include <array>
#include <chrono>
#include <complex>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

namespace arguments_test {

using namespace troupe;
using namespace std::chrono_literals;

namespace {

constexpr int ranks = 3;

struct sample {
  double value;
  std::int32_t from;
  char mark;
  bool operator==(const sample&) const = default;
};
enum class color : std::uint16_t { red, green = 700 };

float larger(float a, float b) { return a > b ? a : b; }

template <class F>
std::error_code code_of(F&& f) {
  try {
    f();
  } catch (const error& e) {
    return e.code();
  }
  return {};
}

}  // namespace

TEST_CASE("single objects") {
  engine{}.run(ranks, [](communicator& comm) {
    double x = comm.rank() + 1;
    comm.all_reduce(x);
    CHECK(x == 6);
    int largest = 0;
    const int mine = comm.rank();
    comm.all_reduce(mine, largest, maximum);
    CHECK(largest == ranks - 1);
    std::vector<int> all(ranks);
    comm.all_gather(comm.rank(), all);
    CHECK(all == std::vector{0, 1, 2});
    color c = comm.rank() == 1 ? color::green : color::red;
    comm.broadcast(c, 1);
    CHECK(c == color::green);
    std::int64_t next = -1;
    comm.send_recv(std::int64_t{comm.rank()}, (comm.rank() + 1) % ranks, next, (comm.rank() + ranks - 1) % ranks);
    CHECK(next == (comm.rank() + ranks - 1) % ranks);
  });
}

TEST_CASE("bool, char, std::byte and text") {
  engine{}.run(ranks, [](communicator& comm) {
    bool all_true = comm.rank() != 1;
    comm.all_reduce(all_true, land);
    CHECK_FALSE(all_true);
    bool any_true = comm.rank() == 1;
    comm.all_reduce(any_true, std::logical_or<>{});
    CHECK(any_true);
    CHECK(code_of([&] { comm.all_reduce(any_true, sum); }) == errc::unsupported);
    std::array<std::byte, 3> bits{};
    bits[static_cast<std::size_t>(comm.rank())] = std::byte{0x81};
    comm.all_reduce(bits, bor);
    CHECK(bits == std::array{std::byte{0x81}, std::byte{0x81}, std::byte{0x81}});
    CHECK(code_of([&] { comm.all_reduce(bits, maximum); }) == errc::unsupported);
    std::string text = comm.rank() == 2 ? "troupe" : "______";
    comm.broadcast(text, 2);
    CHECK(text == "troupe");
    char letter = static_cast<char>('a' + comm.rank());
    comm.all_reduce(letter, maximum);
    CHECK(letter == 'c');
  });
}

TEST_CASE("objects are never cut: structures in every collective that does not reduce") {
  engine{}.run(ranks, [](communicator& comm) {
    const auto r = static_cast<std::size_t>(comm.rank());
    const auto of = [](std::size_t from, std::size_t to) {
      return sample{static_cast<double>(from) + 0.5, static_cast<std::int32_t>(to), static_cast<char>('a' + from)};
    };
    std::vector<sample> in, out(ranks);
    for (std::size_t to = 0; to < ranks; ++to) in.push_back(of(r, to));
    comm.all_to_all(in, out);
    for (std::size_t from = 0; from < ranks; ++from) CHECK(out[from] == of(from, r));
    comm.all_gather(in[0], out);
    for (std::size_t from = 0; from < ranks; ++from) CHECK(out[from] == of(from, 0));
    sample mine{};
    comm.scatter(in, mine, 1);
    CHECK(mine == of(1, r));
    std::vector<sample> some(r + 1, of(r, r)), all(6);
    comm.all_gather_v(some, all, block_list{{1, 2, 3}});
    CHECK(all[0] == of(0, 0));
    CHECK(all[2] == of(1, 1));
    CHECK(all[5] == of(2, 2));
    // Their bytes could be divided among the ranks, the objects cannot.
    std::vector<std::array<char, 3>> two(2);
    CHECK(code_of([&] { comm.all_to_all(two, two); }) == errc::invalid_argument);
    CHECK(code_of([&] {
            comm.all_gather_v(some, all, block_list{{1, 2, std::size_t{1} << 62}});
          }) == errc::size_overflow);
  });
}

TEST_CASE("complex numbers") {
  engine{}.run(ranks, [](communicator& comm) {
    std::vector<std::complex<double>> z(5, {1.0 * comm.rank(), 2});
    comm.all_reduce(z);
    CHECK(z == std::vector<std::complex<double>>(5, {3, 6}));
    comm.all_reduce(z, average);
    CHECK(z == std::vector<std::complex<double>>(5, {3, 6}));
    comm.all_reduce(z, std::multiplies<>{});
    const std::complex<double> one{3, 6};
    CHECK(z == std::vector<std::complex<double>>(5, one * one * one));
    std::complex<float> y{1, static_cast<float>(comm.rank())}, conjugates{};
    comm.all_reduce(y, conjugates, [](std::complex<float> a, std::complex<float> b) { return std::conj(a) + b; });
    CHECK(conjugates == std::complex<float>{3, 1});  // conj(conj(1) + 1 + i) + 1 + 2i
    // By the sum of two elements each, as before.
    std::complex<int> pair{1, comm.rank()};
    comm.all_reduce(pair);
    CHECK(pair == std::complex<int>{3, 3});
    for (const op& none : {minimum, maximum, land, lor, band, bor, bxor})
      CHECK(code_of([&] { comm.all_reduce(z, none); }) == errc::unsupported_type);
    CHECK(code_of([&] { comm.all_reduce(pair, prod); }) == errc::unsupported);
  });
}

#if defined(__FLT16_MANT_DIG__)
TEST_CASE("_Float16") {
  engine{}.run(ranks, [](communicator& comm) {
    std::vector<_Float16> h(100, static_cast<_Float16>(comm.rank() + 1));
    comm.all_reduce(h);
    for (const _Float16 x : h) CHECK(static_cast<float>(x) == 6);
  });
}
#endif

TEST_CASE("functions as reductions") {
  engine{}.run(ranks, [](communicator& comm) {
    const auto start = static_cast<float>(comm.rank() + 1);
    std::vector<float> v(100, start), w(100);
    comm.all_reduce(v, w, std::plus<>{});
    CHECK(w == std::vector<float>(100, 6));
    comm.all_reduce(v, w, [](float a, float b) { return a * b; });
    CHECK(w == std::vector<float>(100, 6));
    comm.all_reduce(v, w, commutative([](float a, float b) { return a > b ? a : b; }));
    CHECK(w == std::vector<float>(100, 3));
    // Not commutative unless marked so: the left one, in rank order.
    comm.all_reduce(v, w, [](float a, float) { return a; });
    CHECK(w == std::vector<float>(100, 1));
    comm.reduce(
        v, w, [](float, float b) { return b; }, 0);
    if (comm.rank() == 0) CHECK(w == std::vector<float>(100, 3));
    const float weight = 2;
    const auto with_state = [&weight](float a, float b) { return a + b + weight; };
    comm.all_reduce(v, w, with_state);
    CHECK(w == std::vector<float>(100, 10));
    auto later = comm.all_reduce_async(v, w, with_state);
    later.wait();
    CHECK(w == std::vector<float>(100, 10));
    float x = 9 - start;
    comm.scan(x, larger);  // a function, and a pointer to one
    CHECK(x == 8);
    x = start;
    comm.scan(x, &larger);
    CHECK(x == start);
  });
}

TEST_CASE("options in braces, in every form") {
  engine e;
  auto comms = e.communicators(1);
  communicator& comm = comms[0];
  std::vector<int> v(4, 7);
  comm.all_reduce(v, sum, {.deadline = 1s});
  comm.all_reduce(v, {.deadline = 1s});
  comm.barrier({.deadline = 1s});
  comm.barrier({1s});
  comm.barrier_async({1s}).wait();
  comm.all_reduce(v, sum, {1s});
  comm.all_reduce_async(v, sum, {.deadline = 1s}).wait();
  group all;
  comm.all_reduce_async(all, v, sum, {.deadline = 1s});
  comm.broadcast_async(all, v, 0, {.level = determinism::topology_stable});
  all.wait();
  comm.all_reduce_init(v, v, sum, {.deadline = 1s}).run();
  CHECK(v == std::vector<int>(4, 7));
  CHECK(code_of([&] { comm.all_reduce(v, sum, {.choreography = "no such"}); }));
}

}  // namespace arguments_test
