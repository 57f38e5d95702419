// SPDX-License-Identifier: Apache-2.0
// Rooted collectives over slots: every form meets every other, only who has a result gets one, and nobody is told of success unless
// all ranks called the same.

#include <doctest/doctest.h>

#include <atomic>
#include <future>
#include <memory>
#include <random>
#include <thread>

#include "tests/engine/small_operations.hpp"

using namespace engine_tests;
using namespace std::chrono_literals;

namespace {

/// One rooted collective on i32 whose result tells every rank's and every element's place.
struct rooted_call {
  collective what = collective::broadcast;
  rank_t root = 0;
  std::size_t count = 0;
  bool in_place = false;
  std::int32_t salt = 0;
  std::vector<std::int32_t> in, out;

  std::int32_t value(int rank, std::size_t i) const { return salt + 1000 * rank + static_cast<std::int32_t>(i % 97); }

  void fill(int rank, int ranks) {
    const auto n = static_cast<std::size_t>(ranks);
    in.resize(what == collective::scatter ? count * n : count);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = value(rank, i);
    out.assign(what == collective::gather ? count * n : count, -1);
    if (in_place) out = in;
  }
  call_description describe() {
    constexpr auto type = datatype::i32;
    const std::int32_t* from = in_place ? out.data() : in.data();
    switch (what) {
      case collective::reduce: return troupe::calls::reduce(from, out.data(), count, type, troupe::sum, root);
      case collective::gather: return troupe::calls::gather(in.data(), out.data(), count, type, root);
      case collective::scatter: return troupe::calls::scatter(in.data(), out.data(), count, type, root);
      default: return troupe::calls::broadcast(from, out.data(), count, type, root);
    }
  }
  bool right(int rank, int ranks) const {
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto block = static_cast<int>(count ? i / count : 0);
      std::int32_t expected = -1;
      if (what == collective::broadcast) expected = value(root, i);
      else if (what == collective::scatter) expected = value(root, static_cast<std::size_t>(rank) * count + i);
      else if (rank != root) expected = in_place ? value(rank, i) : -1;
      else if (what == collective::gather) expected = value(block, i % count);
      else
        for (int q = expected = 0; q < ranks; ++q) expected += value(q, i);
      if (out[i] != expected) return false;
    }
    return true;
  }
};

constexpr collective rooted[] = {collective::broadcast, collective::reduce, collective::gather, collective::scatter};

}  // namespace

TEST_CASE("rooted: every form and root, small and large, in place, between others") {
  for (const char* protocol : {"auto", "ll", "ll128"})
    for (const int workers : {-1, 0})
      for (const int ranks : {1, 2, 3, 5, 7}) {
        CAPTURE(protocol);
        CAPTURE(workers);
        CAPTURE(ranks);
        troupe::engine engine(over(protocol, workers));
        std::atomic<int> wrong{0};
        engine.run(ranks, [&](communicator& c) {
          std::mt19937 mine(static_cast<unsigned>(c.rank()) * 7919u + 3), common(17);
          std::vector<std::unique_ptr<rooted_call>> all;
          std::vector<troupe::request> requests;
          for (int i = 0; i < 300; ++i) {
            auto& one = *all.emplace_back(std::make_unique<rooted_call>());
            one.what = rooted[common() % 4];
            one.root = static_cast<rank_t>(common() % static_cast<unsigned>(ranks));
            one.count = common() % 12 == 0 ? 30000 : common() % 50;
            one.in_place = common() % 2 == 0 && (one.what == collective::reduce || one.what == collective::broadcast);
            one.salt = i;
            one.fill(c.rank(), ranks);
            switch (mine() % 4) {
              case 0: requests.push_back(c.start(one.describe())); break;
              case 1: {
                troupe::group g;
                c.join(g, one.describe());
                g.wait();
                break;
              }
              default: c.run(one.describe());
            }
            if (common() % 9 == 0) {
              std::int32_t sum = 1;
              c.all_reduce(std::span{&sum, 1});
              wrong += sum != ranks;
            }
            if (mine() % 50 == 0) {
              for (auto& r : requests) r.wait();
              requests.clear();
            }
            if (mine() % 100 == 0) std::this_thread::sleep_for(7ms);
          }
          for (auto& r : requests) r.wait();
          for (const auto& one : all) wrong += !one->right(c.rank(), ranks);
        });
        CHECK(wrong == 0);
      }
}

TEST_CASE("rooted: the average and a user's function, where only the root has a result") {
  troupe::op product = troupe::op{};
  product.kind = op_kind::user;
  product.commutative = false;
  product.function = [](const void* a, const void* b, void* out, std::size_t n, datatype, void*) {
    for (std::size_t i = 0; i < n; ++i)
      static_cast<double*>(out)[i] = 10 * static_cast<const double*>(a)[i] + static_cast<const double*>(b)[i];
  };
  for (const auto level : {troupe::determinism::fast, troupe::determinism::run_stable, troupe::determinism::size_stable,
                           troupe::determinism::topology_stable})
    for (const int ranks : {1, 2, 3, 4, 7}) {
      troupe::engine engine(over("ll128"));
      std::atomic<int> wrong{0};
      engine.run(ranks, [&](communicator& c) {
        call_options how;
        how.level = level;
        for (rank_t root = 0; root < ranks; ++root)
          for (int form = 0; form < 2; ++form) {
            const double mine = 1 + c.rank();
            double average = -1, joined = -1;
            double* const to = c.rank() == root ? &average : nullptr;
            const auto description = troupe::calls::reduce(&mine, to, 1, datatype::f64, troupe::average, root, how);
            if (form == 0) c.run(description);
            else c.start(description).wait();
            wrong += average != (c.rank() == root ? (1 + ranks) / 2.0 : -1);
            c.run(troupe::calls::reduce(&mine, c.rank() == root ? &joined : nullptr, 1, datatype::f64, product, root,
                                        how));
            wrong += c.rank() == root && joined < 1;
            if (level == troupe::determinism::topology_stable && c.rank() == root) {
              double fold = 1;
              for (int q = 1; q < ranks; ++q) fold = 10 * fold + (1 + q);
              wrong += joined != fold;
            }
          }
      });
      CAPTURE(ranks);
      CHECK(wrong == 0);
    }
}

namespace {
troupe::engine_options strictly(const char* protocol) {
  auto o = over(protocol);
  o.agreement = troupe::agreement_time::strict;
  return o;
}
}  // namespace

TEST_CASE("rooted: one rank calls something else, and every rank is told what each called") {
  for (const char* protocol : {"ll128", "ll"})
    for (const int ranks : {2, 3, 5, 8}) {
      troupe::engine engine(strictly(protocol));
      for (const collective what : rooted)
        for (int difference = 0; difference < 5; ++difference)
          for (const int odd : {0, ranks - 1})
            for (const bool async : {false, true}) {
              CAPTURE(name(what));
              CAPTURE(ranks);
              CAPTURE(difference);
              CAPTURE(odd);
              std::vector<seen> all(static_cast<std::size_t>(ranks));
              std::atomic<int> after{0};
              engine.run(ranks, [&](communicator& c) {
                rooted_call one;
                one.what = what;
                one.count = 3;
                one.root = ranks / 2;
                const bool differs = c.rank() == odd;
                if (differs && difference == 0) one.root = (one.root + 1) % ranks;
                if (differs && difference == 1) one.count = 4;
                if (differs && difference == 2)
                  one.what = what == collective::gather ? collective::scatter : collective::gather;
                if (differs && difference == 4) one.count = 100'000;
                one.fill(c.rank(), ranks);
                all[static_cast<std::size_t>(c.rank())] = error_of([&] {
                  const auto description = differs && difference == 3 ? troupe::calls::barrier() : one.describe();
                  if (async) c.start(description).wait();
                  else c.run(description);
                });
                std::int32_t sum = 1;
                c.all_reduce(std::span{&sum, 1});
                after += sum == ranks;
              });
              CHECK(after == ranks);
              for (const seen& one : all) {
                INFO(one.text);
                CHECK(one.code == errc::mismatch);
                CHECK(one.text == all[0].text);
                CHECK(contains(one.text, std::string{name(what)} + "(count 3"));
                CHECK((contains(one.text, "rank " + std::to_string(odd)) ||
                       contains(one.text, "–" + std::to_string(odd))));
              }
            }
    }
}

TEST_CASE("rooted: who is missing, a deadline, a cancellation and an abort") {
  for (const collective what : rooted)
    for (const rank_t root : {0, 1, 2})
      for (const rank_t missing : {0, 1, 2}) {
        CAPTURE(name(what));
        CAPTURE(root);
        CAPTURE(missing);
        troupe::engine engine(strictly("ll128"));
        std::vector<seen> all(3), later(3);
        std::atomic<bool> passed{false};  // the deadline
        engine.run(3, [&](communicator& c) {
          const auto r = static_cast<std::size_t>(c.rank());
          rooted_call one;
          one.what = what, one.root = root, one.count = 2;
          one.fill(c.rank(), 3);
          auto description = one.describe();
          const bool first = c.rank() == (missing + 1) % 3;
          if (first) description.options.deadline = 10ms;
          while (c.rank() == missing && !passed.load()) std::this_thread::sleep_for(1ms);
          all[r] = error_of([&] {
            if (first || c.rank() == missing) c.run(description);
            else c.start(description).wait();
          });
          if (first) passed.store(true);
          auto again = c.start(one.describe());
          if (first) again.cancel();
          // A rank that has performed it before keeps its result.
          later[r] = error_of([&] { again.wait(); });
          c.barrier();
          if (c.rank() == missing) return;
          all[r].text += '|' + error_of([&] { c.run(one.describe()); }).text;
        });
        for (const seen& one : all) CHECK(one.code == errc::timed_out);
        const auto cancelled = std::find_if(later.begin(), later.end(), [](const seen& s) { return !s.text.empty(); });
        for (const seen& one : later) {
          if (one.code == errc::ok) continue;
          CHECK(one.code == errc::cancelled);
          CHECK(one.text == cancelled->text);
        }
        for (rank_t r = 0; r < 3; ++r)
          if (r != missing) CHECK(contains(all[static_cast<std::size_t>(r)].text, "|"));
        for (rank_t r = 0; r < 3; ++r)
          if (r != missing)
            CHECK(contains(all[static_cast<std::size_t>(r)].text, "rank " + std::to_string(missing) + " left"));
      }
  troupe::engine engine(strictly("ll128"));
  auto comms = engine.communicators(3);
  rooted_call one[3];
  for (rank_t r = 0; r < 3; ++r) one[r].count = 2, one[r].root = 1, one[r].fill(r, 3);
  auto waits = comms[0].start(one[0].describe());
  auto blocked = std::async(std::launch::async, [&] { return error_of([&] { comms[1].run(one[1].describe()); }); });
  std::this_thread::sleep_for(2ms);
  comms[2].abort("enough");
  CHECK(blocked.get().code == errc::communicator_aborted);
  CHECK(error_of([&] { waits.wait(); }).code == errc::communicator_aborted);
}
