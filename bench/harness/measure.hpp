// SPDX-License-Identifier: Apache-2.0
#pragma once
// The measuring loop. One source for every contender: peers, limits and Troupe.

#include "bench/harness/buffers.hpp"
#include "bench/harness/point.hpp"

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace bench {

/// What the driver asks for.
struct request_line {
  collective what{};
  std::size_t bytes = 0;
  double budget_ms = 20;  ///< time of the timed calls, about
  bool fresh = false;     ///< new input values before every call, at every size
  bool check = true;
  std::string choreography, protocol;  ///< ours only: forced; empty: chosen
  bool rotate = false;                 ///< calls with a root: call k has root k mod n; else 0
  uneven counts = uneven::same;        ///< v-forms
  int lot = -1;                        ///< all_reduce of sizes not seen before: see measure_unseen
};

/// One member of a contender: a process or a thread that drives one rank or more. All members make the same calls in the same order.
template <class M>
concept member = requires(M m, const request_line& r, const shape& s, std::size_t set, double d) {
  { m.ranks() } -> std::convertible_to<int>;
  { m.supports(r) } -> std::convertible_to<bool>;
  m.prepare(r, s, set);                          ///< buffers for `set` sets; plans; collective
  m.resize(set);                                 ///< all_reduce: elements of the calls to come; at most the shape's
  m.rewrite();                                   ///< this member's inputs
  m.call(set);                                   ///< the operation on this set of buffers, complete on return
  { m.wrong() } -> std::convertible_to<double>;  ///< of this member, after rewrite() and call(0)
  { m.largest(d) } -> std::same_as<double>;      ///< over all members; also a barrier
  { m.note() } -> std::convertible_to<std::string>;
};

struct result {
  double us = 0;  ///< per call, of the slowest member
  double wrong = 0;
  std::size_t calls = 0;
  std::size_t sets = 1;
  double seen_us = 0, heap_per_size = 0;  ///< measure_unseen only
};

/// Sets of buffers to go round: none needed when all ranks' buffers fit the cache together, else four caches' worth.
inline std::size_t sets_for(const shape& s, int ranks, bool fresh) {
  const std::size_t footprint = sizeof(float) * (s.input + s.output) * static_cast<std::size_t>(ranks);
  static const std::size_t cache = cache_bytes();
  if (footprint <= cache) return fresh ? std::max<std::size_t>(1, std::min<std::size_t>(16, cache / 2 / footprint)) : 1;
  return std::max<std::size_t>(1, (4 * cache + footprint - 1) / footprint);
}

/// Seconds that `calls` calls take this member. With `renew`, the inputs are rewritten each time all sets have been used once;
/// that and the barriers around it are not timed. The barrier before it: where members share cores, one that is back already must
/// not take from the others, whose time still runs, the core for its rewriting.
template <member M>
double timed(M& m, std::size_t calls, std::size_t sets, bool renew) {
  using clock = std::chrono::steady_clock;
  std::chrono::duration<double> total{};
  for (std::size_t begun = 0; begun < calls;) {
    const std::size_t batch = renew ? std::min(sets, calls - begun) : calls;
    if (renew) m.rewrite();
    m.largest(0);
    const auto start = clock::now();
    for (std::size_t i = 0; i < batch; ++i) m.call(renew ? i : 0);
    total += clock::now() - start;
    begun += batch;
    if (renew) m.largest(0);
  }
  return total.count();
}

/// Bytes that this process has from malloc and has not given back.
inline double heap_bytes() {
  const auto info = mallinfo2();
  return static_cast<double>(info.uordblks) + static_cast<double>(info.hblkhd);
}

/// The sizes of one lot: elements around those of `bytes`, up to a quarter more or less. Lots share no size.
inline constexpr int unseen_lots = 8;
inline std::vector<std::size_t> unseen_sizes(std::size_t bytes, int lot) {
  const std::size_t around = bytes / sizeof(float), window = around / 2, in_lot = window / unseen_lots;
  constexpr std::size_t stride = 389;  // a prime that divides no power of two: visits every size once, in no order
  std::vector<std::size_t> sizes;
  for (std::size_t i = 0; i < in_lot; ++i)
    sizes.push_back(around - window / 2 + (static_cast<std::size_t>(lot) * in_lot + i) * stride % window);
  return sizes;
}

/// all_reduce with another size in every call. `us`: sizes that this process has not met before, if each lot is asked for once;
/// `seen_us`: the same once more. Heap: of this process, so of all ranks where they are threads. Collective over the members.
template <member M>
result measure_unseen(M& m, const request_line& r) {
  const std::size_t around = r.bytes / sizeof(float);
  if (r.what != collective::all_reduce || r.lot >= unseen_lots || around < 64 || (around & (around - 1)) != 0)
    throw std::runtime_error("lot: needs all_reduce of a power of two of bytes, 256 or more, and a lot of 0 … 7");
  const auto sizes = unseen_sizes(r.bytes, r.lot);
  m.prepare(r, shape_of(r.what, 2 * r.bytes, m.ranks()), 1);
  m.rewrite();
  result out;
  const auto pass = [&](const std::vector<std::size_t>& counts) {
    using clock = std::chrono::steady_clock;
    m.largest(0);
    const auto start = clock::now();
    for (const std::size_t count : counts) m.resize(count), m.call(0);
    const double took = std::chrono::duration<double>(clock::now() - start).count();
    return m.largest(took) / static_cast<double>(counts.size()) * 1e6;
  };
  // Sizes on both sides of the lots': threads, buffers and choreographies are there, only the size is new.
  std::vector<std::size_t> others;
  for (int i = 0; i < 32; ++i) others.push_back(i % 2 == 0 ? around * 5 / 8 : around * 11 / 8);
  pass(others);
  const double before = heap_bytes();
  out.us = pass(sizes);
  out.heap_per_size = (heap_bytes() - before) / static_cast<double>(sizes.size());
  std::vector<double> again;
  for (int i = 0; i < 3; ++i) again.push_back(pass(sizes));
  std::sort(again.begin(), again.end());
  out.seen_us = again[1];
  out.calls = sizes.size();
  m.rewrite();
  m.largest(0);
  m.call(0);
  if (r.check) out.wrong = m.largest(m.wrong());
  return out;
}

/// Collective over the members. First an untimed, checked call, and one from each other root, since first calls are not what is
/// timed here; then 1, 2, 4 … calls until so many take a quarter of the budget, and each no more than a fifth less than each of those before (which warms
/// up: memory that several processes touch for the first time takes dozens of calls), for ten budgets at most; then the timed ones.
template <member M>
result measure(M& m, const request_line& r) {
  if (r.lot >= 0) return measure_unseen(m, r);
  const shape s = shape_of(r.what, r.bytes, m.ranks());
  result out;
  out.sets = sets_for(s, m.ranks(), r.fresh);
  const bool renew = out.sets > 1 || r.fresh ||
                     sizeof(float) * (s.input + s.output) * static_cast<std::size_t>(m.ranks()) > cache_bytes();
  m.prepare(r, s, out.sets);
  m.rewrite();
  m.largest(0);
  m.call(0);
  if (r.check) out.wrong = m.largest(m.wrong());
  for (int root = 1; r.rotate && has_root(r.what) && root < m.ranks(); ++root) m.call(0);
  const double budget = r.budget_ms / 1000;
  std::size_t calls = 1;
  double each = std::numeric_limits<double>::infinity(), least = 1e9, spent = 0;
  for (;; calls *= 2) {
    const double seconds = m.largest(timed(m, calls, out.sets, renew)), before = each;
    spent += seconds;
    each = std::max(seconds / static_cast<double>(calls), 1e-9);
    least = std::min(least, each);
    const bool settled = each > 0.8 * before;
    if ((seconds >= budget / 4 && settled) || spent >= 10 * budget || calls >= (std::size_t{1} << 24)) break;
  }
  // One preemption while warming up must not shorten the timed part; nor one lucky pair of calls draw it out.
  out.calls =
      std::max({std::size_t{3}, out.sets, static_cast<std::size_t>(std::min(budget / least, 10 * budget / each))});
  out.us = m.largest(timed(m, out.calls, out.sets, renew)) / static_cast<double>(out.calls) * 1e6;
  out.us /= operations_in(r.what);
  if (r.check && r.counts != uneven::same) {  // the first call's counts were right; so must be those of the last
    m.rewrite();
    m.largest(0);
    m.call(0);
    out.wrong += m.largest(m.wrong());
  }
  return out;
}

/// One line of JSON; what the driver reads.
inline std::string describe(const char* contender, int ranks, const request_line& r, const result& x,
                            const std::string& note) {
  const shape s = shape_of(r.what, r.bytes, ranks);
  char text[512], unseen[96] = "";
  if (r.lot >= 0)
    std::snprintf(unseen, sizeof unseen, ",\"seen_us\":%.6g,\"heap_per_size\":%.6g", x.seen_us, x.heap_per_size);
  std::snprintf(text, sizeof text,
                "{\"contender\":\"%s\",\"ranks\":%d,\"collective\":\"%s\",\"bytes\":%zu,\"count\":%zu,\"type\":\"f32\","
                "\"us\":%.6g,\"calls\":%zu,\"sets\":%zu,\"wrong\":%.0f,\"note\":\"%s\"%s}",
                contender, ranks, std::string(name(r.what)).c_str(), size_of_shape(s), s.count, x.us, x.calls, x.sets,
                x.wrong, note.c_str(), unseen);
  return text;
}

}  // namespace bench
