// SPDX-License-Identifier: Apache-2.0
#pragma once
// A soak: ranks on threads perform mixed operations, many of which fail on purpose, and look now and then whether the heap has grown. What
// is called follows from the seed and the operation's number alone, so all ranks call the same in the same order; one of them at a
// time goes wrong.
//
// The calls are of a bounded kind (sizes, roots, lists of counts), so that after a warm-up every cache has what it will ever have.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "engine/api/troupe.hpp"
#include "engine/tools/simulate/dice.hpp"

namespace bench::soak {

struct options {
  int ranks = 4;
  std::uint64_t operations = 1'000'000;
  std::uint64_t warm_up = 300'000;  ///< of them, before the first look that counts
  int looks = 24;                   ///< after the warm-up
  std::uint64_t seed = 1;
  std::string offload = "never";  ///< as engine.offload
  std::string only;  ///< this kind of operation alone, to find out which one leaves something behind; empty: all
};

struct look {
  std::uint64_t operations = 0;
  std::ptrdiff_t heap = 0;  ///< bytes
  double seconds = 0;       ///< since the begin
};

struct result {
  std::vector<look> looks;                     ///< the first is at the end of the warm-up
  std::map<std::string, std::uint64_t> ends;   ///< of all ranks' operations, by how they ended
  std::map<std::string, std::uint64_t> kinds;  ///< operations by kind
  std::uint64_t wrong = 0;                     ///< results
  /// From the least of the first third of the looks to the least of the last third: what the engine's own threads keep for their next messages comes and
  /// goes from look to look, what is lost stays in all of them.
  std::ptrdiff_t grown() const {
    if (looks.empty()) return 0;
    const auto third = static_cast<std::ptrdiff_t>(std::max<std::size_t>(1, looks.size() / 3));
    const auto least = [](auto begin, auto end) {
      return std::min_element(begin, end, [](const look& a, const look& b) { return a.heap < b.heap; })->heap;
    };
    return least(looks.end() - third, looks.end()) - least(looks.begin(), looks.begin() + third);
  }
  /// The smallest step: what is kept for the next operations is taken once, a leak grows in all of them.
  std::ptrdiff_t least_step() const {
    std::ptrdiff_t least = looks.size() < 2 ? 0 : looks[1].heap - looks[0].heap;
    for (std::size_t i = 2; i < looks.size(); ++i) least = std::min(least, looks[i].heap - looks[i - 1].heap);
    return least;
  }
};

/// The same numbers on every rank for the same operation.
class draw {
public:
  draw(std::uint64_t seed, std::uint64_t operation)
      : state_(troupe::simulate::mix(seed ^ troupe::simulate::mix(operation))) {}
  std::uint64_t below(std::uint64_t n) { return (state_ = troupe::simulate::mix(state_)) % n; }
  template <class T, std::size_t N>
  T of(const std::array<T, N>& list) {
    return list[below(N)];
  }

private:
  std::uint64_t state_;
};

class member {
public:
  member(troupe::communicator& world, const options& how, result& all, std::mutex& lock)
      : c_(world), how_(how), all_(all), lock_(lock), n_(static_cast<std::size_t>(world.size())) {
    in_.resize(largest * n_);
    out_.resize(largest * n_ * n_);
    again_ = c_.all_reduce_init(std::span<const float>{in_}.first(16), std::span<float>{out_}.first(16));
  }
  ~member() {
    const std::lock_guard guard(lock_);
    for (const auto& [name, times] : ends_) all_.ends[name] += times;
    all_.wrong += wrong_;
    if (c_.rank() == 0) all_.kinds = kinds_;
  }
  member(const member&) = delete;
  member& operator=(const member&) = delete;

  /// As much under way at once as may ever be, and more: what is kept of that for the next ones is there before the first look.
  void fill() {
    constexpr std::size_t at_once = 4;
    std::vector<std::vector<float>> outs(6 * at_once, std::vector<float>(largest * n_));
    std::vector<troupe::request> all;
    const auto in = std::span<const float>{in_}.first(largest);
    for (std::size_t i = 0; i < at_once; ++i) {
      const auto out = [&](std::size_t which) { return std::span{outs[6 * i + which]}; };
      all.push_back(c_.all_reduce_async(in, out(0).first(largest)));
      all.push_back(c_.reduce_async(in, out(1).first(largest), troupe::sum, 0));
      all.push_back(c_.all_gather_async(in, out(2)));
      all.push_back(c_.reduce_scatter_async(std::span<const float>{in_}, out(3).first(largest)));
      all.push_back(c_.scan_async(in, out(4).first(largest)));
      all.push_back(c_.exscan_async(in, out(5).first(largest)));
    }
    for (troupe::request& r : all) r.wait();
    // A part that a rank lets go late lies beside the next one.
    std::vector<troupe::communicator> parts;
    for (std::size_t i = 0; i < at_once; ++i) {
      parts.push_back(c_.duplicate());
      parts.push_back(c_.split(c_.rank() % 2, c_.rank()));
    }
  }

  /// The others are not to wait for what this one does not call.
  void give_up() { c_.abort("a rank of the soak has given up"); }

  void perform(std::uint64_t operation) {
    draw d{how_.seed, operation};
    odd_ = static_cast<int>(d.below(n_));
    root_ = static_cast<int>(d.below(n_));
    count_ = d.of(std::array<std::size_t, 6>{1, 2, 16, 100, 1000, largest});
    for (std::size_t i = 0; i < count_; ++i) in_[i] = static_cast<float>(i % 3);
    struct kind {
      std::uint64_t weight;
      const char* name;
      void (member::*act)(draw&);
    };
    static constexpr kind kinds[] = {{380, "blocking", &member::blocking},
                                     {150, "asynchronous", &member::asynchronous},
                                     {100, "v-form", &member::v_form},
                                     {80, "send and receive", &member::pair},
                                     {50, "group", &member::in_group},
                                     {50, "persistent", &member::persistent},
                                     {50, "rooted, ahead", &member::rooted},
                                     {30, "mismatch", &member::mismatch},
                                     {20, "refused", &member::refused},
                                     {25, "cancelled", &member::cancelled},
                                     {20, "deadline", &member::deadline},
                                     {10, "function throws", &member::throwing},
                                     {10, "send times out", &member::late_pair},
                                     {10, "outcome", &member::outcome},
                                     {10, "split", &member::split},
                                     {5, "aborted", &member::aborted}};
    const auto weight_of = [&](const kind& k) { return how_.only.empty() || how_.only == k.name ? k.weight : 0; };
    std::uint64_t all = 0;
    for (const kind& k : kinds) all += weight_of(k);
    if (all == 0) throw std::invalid_argument("there is no kind of operation called '" + how_.only + "'");
    std::uint64_t at = d.below(all);
    for (const kind& k : kinds) {
      if (at < weight_of(k)) {
        ++kinds_[k.name];
        return (this->*k.act)(d);
      }
      at -= weight_of(k);
    }
  }

private:
  static constexpr std::size_t largest = 20'000;  ///< elements: beyond the slots

  bool odd() const { return c_.rank() == odd_; }

  /// True: performed.
  bool attempt(const std::function<void()>& body) {
    try {
      body();
      ++ends_["performed"];
      return true;
    } catch (const troupe::error& e) {
      ++ends_[e.code().message()];
      return false;
    }
  }

  /// Longer than the shortest deadline.
  static void linger() { std::this_thread::sleep_for(std::chrono::microseconds{100}); }

  /// Whatever has no root and moves little enough.
  void uniform(draw& d, const std::function<void(troupe::call_description)>& begin) {
    using troupe::datatype;
    namespace calls = troupe::calls;
    float* const out = out_.data();
    switch (d.below(8)) {
      case 0: return begin(calls::barrier());
      case 1: return begin(calls::all_gather(in_.data(), out, count_, datatype::f32));
      case 2: return begin(calls::reduce_scatter(in_.data(), out, count_, datatype::f32));
      case 3: return begin(calls::all_to_all(in_.data(), out, count_, datatype::f32));
      case 4: return begin(calls::scan(in_.data(), out, count_, datatype::f32));
      case 5: return begin(calls::all_reduce(in_.data(), out, count_, datatype::f32, troupe::average));
      default: return begin(calls::all_reduce(in_.data(), out, count_, datatype::f32));
    }
  }
  void check_sum() { check(troupe::collective::all_reduce, n_, count_); }
  /// All inputs are the same. @param times that every element comes in, where sums are asked for: how many ranks @param few elements of a block
  void check(troupe::collective what, std::size_t times, std::size_t few) {
    using enum troupe::collective;
    const auto me = static_cast<std::size_t>(c_.rank());
    const auto is = [&](std::size_t at, std::size_t from, std::size_t sum) {
      for (std::size_t i = 0; i < few; ++i) wrong_ += out_[at + i] != static_cast<float>(sum) * in_[from + i];
    };
    if (what == all_reduce) return is(0, 0, times);
    if (what == reduce_scatter) return is(0, me * few, times);
    if (what == scan) return is(0, 0, me + 1);
    if (what == scatter) return is(0, me * few, 1);
    if (what == reduce && c_.rank() == root_) return is(0, 0, times);
    if (what == all_gather || (what == gather && c_.rank() == root_))
      for (std::size_t r = 0; r < n_; ++r) is(r * few, 0, 1);
    if (what == all_to_all)
      for (std::size_t r = 0; r < n_; ++r) is(r * few, me * few, 1);
  }
  void check(const troupe::call& what) {
    check(what.what, what.reduction.kind == troupe::op_kind::avg ? 1 : n_, what.count);
  }

  void blocking(draw& d) {
    uniform(d, [&](troupe::call_description what) {
      if (attempt([&] { c_.run(what); })) check(what.what);
    });
  }
  void asynchronous(draw& d) {
    uniform(d, [&](troupe::call_description what) {
      if (attempt([&] { c_.start(what).wait(); })) check(what.what);
    });
  }
  void v_form(draw& d) {
    std::vector<std::size_t> counts(n_);
    const std::uint64_t list = d.below(4);
    for (std::size_t r = 0; r < n_; ++r) counts[r] = (list * 7 + r * 13) % 40;
    const std::span<float> mine = std::span{in_}.first(counts[static_cast<std::size_t>(c_.rank())]);
    const bool all = d.below(2) == 0;
    const bool performed = attempt([&] {
      if (all) c_.all_gather_v(mine, out_, troupe::block_list{counts});
      else c_.gather_v(mine, out_, troupe::block_list{counts}, root_);
    });
    if (!performed || (!all && c_.rank() != root_)) return;
    auto at = out_.begin();
    for (const std::size_t n : counts)
      for (std::size_t i = 0; i < n; ++i) wrong_ += *at++ != in_[i];
  }
  void pair(draw&) {
    const int n = static_cast<int>(n_), me = c_.rank();
    const bool performed = attempt([&] {
      c_.send_recv(std::span<const float>{in_}.first(count_), (me + 1) % n, std::span{out_}.first(count_),
                   (me + n - 1) % n);
    });
    if (performed) check(troupe::collective::all_reduce, 1, count_);
  }
  void in_group(draw& d) {
    troupe::group together;
    std::vector<troupe::request> all;
    for (int i = 0; i < 3; ++i)
      uniform(d, [&](troupe::call_description what) { all.push_back(c_.join(together, std::move(what))); });
    attempt([&] { together.wait(); });
  }
  void persistent(draw& d) {
    count_ = 16;
    for (std::size_t i = 0; i < count_; ++i) in_[i] = static_cast<float>(i % 3);
    if (d.below(2) == 0) attempt([&] { again_.run(); });
    else attempt([&] { again_.start().wait(); });
    check_sum();
  }
  void rooted(draw& d) {
    using troupe::datatype;
    const std::size_t few = std::min<std::size_t>(count_, 16);
    using enum troupe::collective;
    for (int i = 0; i < 10; ++i) {
      const auto what = d.of(std::array{broadcast, reduce, gather, scatter});
      if (what == broadcast && c_.rank() == root_) std::copy_n(in_.begin(), few, out_.begin());
      const bool performed = attempt([&] {
        if (what == broadcast) c_.broadcast(std::span{out_}.first(few), root_);
        else if (what == reduce) c_.reduce(in_.data(), out_.data(), few, datatype::f32, troupe::sum, root_);
        else if (what == gather) c_.gather(in_.data(), out_.data(), few, datatype::f32, root_);
        else c_.scatter(in_.data(), out_.data(), few, datatype::f32, root_);
      });
      if (performed) check(what == broadcast ? all_reduce : what, what == broadcast ? 1 : n_, few);
    }
  }
  void mismatch(draw&) {
    attempt([&] { c_.all_reduce(in_.data(), out_.data(), odd() ? count_ + 1 : count_, troupe::datatype::f32); });
  }
  void refused(draw&) {
    attempt([&] { c_.all_reduce(odd() ? nullptr : in_.data(), out_.data(), count_, troupe::datatype::f32); });
  }
  void cancelled(draw& d) {
    uniform(d, [&](troupe::call_description what) {
      const bool performed = attempt([&] {
        troupe::request r = c_.start(what);
        if (odd()) r.cancel();
        r.wait();
      });
      if (performed) check(what.what);
    });
  }
  void deadline(draw& d) {
    uniform(d, [&](troupe::call_description what) {
      if (odd()) what.options.deadline = std::chrono::microseconds{1};
      if (c_.rank() == (odd_ + 1) % c_.size()) linger();
      if (attempt([&] { c_.run(what); })) check(what.what);
    });
  }
  void throwing(draw&) {
    static const troupe::op bad = troupe::user_op([](const void*, const void*, void*, std::size_t, troupe::datatype,
                                                     void*) { throw std::runtime_error("it does not add up"); });
    attempt([&] { c_.all_reduce(in_.data(), out_.data(), count_, troupe::datatype::f32, bad); });
  }
  void late_pair(draw&) {
    const int n = static_cast<int>(n_), peer = (odd_ + 1) % n;
    if (n < 2) return;
    troupe::call_options hasty;
    hasty.deadline = std::chrono::microseconds{1};
    if (odd()) attempt([&] { c_.send_async(std::span<const float>{in_}.first(count_), peer, hasty).wait(); });
    if (c_.rank() == peer) linger();
    if (c_.rank() == peer) attempt([&] { c_.recv(std::span{out_}.first(count_), odd_); });
  }
  void outcome(draw& d) {
    uniform(d, [&](troupe::call_description what) {
      troupe::request r = c_.start(std::move(what));
      if (odd() && d.below(2) == 0) r.cancel();
      attempt([&] {
        const auto told = c_.outcome(r);
        wrong_ += told.all_succeeded() && r.status();
      });
    });
  }
  void split(draw& d) {
    troupe::communicator part = d.below(2) == 0 ? c_.split(c_.rank() % 2, c_.rank()) : c_.duplicate();
    attempt([&] { part.all_reduce(std::span{out_}.first(4)); });
  }
  void aborted(draw&) {
    troupe::communicator part = c_.duplicate();
    if (odd()) part.abort("of the soak");
    attempt([&] { part.barrier(); });
  }

  troupe::communicator& c_;
  const options& how_;
  result& all_;
  std::mutex& lock_;
  std::size_t n_;
  std::vector<float> in_, out_;
  troupe::persistent again_;
  int odd_ = 0, root_ = 0;
  std::size_t count_ = 1;
  std::uint64_t wrong_ = 0;
  std::map<std::string, std::uint64_t> ends_, kinds_;
};

/// What was said and not yet heard is memory, too: looks until it stays as it is. What was lost would, at once.
/// @param quiet for how long. A membership that has watched operations is there until its next look is due.
inline std::ptrdiff_t settled_heap(const std::function<std::ptrdiff_t()>& heap, std::chrono::milliseconds quiet) {
  constexpr std::chrono::milliseconds between{50};
  constexpr int most_looks = 100;
  const auto enough = std::max<std::int64_t>(1, quiet / between);
  std::ptrdiff_t now = heap();
  std::int64_t same = 0;
  for (int looks = 0; looks < most_looks && same < enough; ++looks) {
    std::this_thread::sleep_for(between);
    const std::ptrdiff_t before = std::exchange(now, heap());
    same = now == before ? same + 1 : 0;
  }
  return now;
}

/// Each member on a thread of its own, until all have done it. The first exception is thrown again.
template <class Body>
void on_threads(const std::vector<std::unique_ptr<member>>& members, const Body& body) {
  std::mutex lock;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (const auto& one : members)
    threads.emplace_back([&, me = one.get()] {
      try {
        body(*me);
      } catch (...) {
        const std::lock_guard guard(lock);
        if (!first) first = std::current_exception();
        me->give_up();
      }
    });
  for (std::thread& t : threads) t.join();
  if (first) std::rethrow_exception(first);
}

/// The heap is looked at where nothing but what was lost can differ: the ranks' threads, which keep messages for their next ones, have ended; and the
/// operations before every look are the same, so what is remembered of the last calls of each kind is, too.
inline constexpr std::uint64_t same_before_looks = 1000;

/// @param heap bytes in use now. @param told after every look, if given
inline result run(const options& how, const std::function<std::ptrdiff_t()>& heap,
                  const std::function<void(const look&)>& told = {}) {
  result all;
  all.looks.reserve(static_cast<std::size_t>(how.looks) + 1);
  std::mutex lock;
  const auto begun = std::chrono::steady_clock::now();
  const std::uint64_t after = how.operations - how.warm_up;
  troupe::engine_options quiet;
  quiet.log_level = "off";
  quiet.offload = how.offload;
  troupe::engine engine{quiet};
  std::vector<troupe::communicator> comms = engine.communicators(how.ranks);
  std::vector<std::unique_ptr<member>> members;
  for (troupe::communicator& c : comms) members.push_back(std::make_unique<member>(c, how, all, lock));
  on_threads(members, [](member& me) { me.fill(); });
  // With a NIC many have; without, hardly one. A look is due within a second (between_looks of membership.cpp).
  const std::chrono::milliseconds quiet_time{how.offload == "never" ? 50 : 1200};
  std::uint64_t done = 0;
  for (int looks = 0; looks <= how.looks; ++looks) {
    const std::uint64_t until =
        how.warm_up + after * static_cast<std::uint64_t>(looks) / static_cast<std::uint64_t>(how.looks);
    on_threads(members, [&](member& me) {
      for (std::uint64_t i = done; i < until; ++i) me.perform(i);
      for (std::uint64_t i = 0; i < same_before_looks; ++i) me.perform(~i);
    });
    done = until;
    const std::ptrdiff_t settled = settled_heap(heap, quiet_time);
    const std::chrono::duration<double> since = std::chrono::steady_clock::now() - begun;
    all.looks.push_back({done, settled, since.count()});
    if (told) told(all.looks.back());
  }
  members.clear();
  return all;
}

}  // namespace bench::soak
