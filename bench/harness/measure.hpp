#pragma once
// The measuring loop. One source for every contender: peers, limits and Troupe.

#include "bench/harness/buffers.hpp"
#include "bench/harness/point.hpp"

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstdio>
#include <string>

namespace bench {

/// What the driver asks for.
struct request_line {
  collective what{};
  std::size_t bytes = 0;
  double budget_ms = 20;  ///< time of the timed calls, about
  bool fresh = false;     ///< new input values before every call, at every size
  bool check = true;
  std::string choreography, protocol;  ///< ours only: forced; empty: chosen
  bool rotate = false;                 ///< broadcast, reduce: call k has root k mod n; else 0
};

/// One member of a contender: a process or a thread that drives one rank or more. All members make the same calls in the same order.
template <class M>
concept member = requires(M m, const request_line& r, const shape& s, std::size_t set, double d) {
  { m.ranks() } -> std::convertible_to<int>;
  { m.supports(r.what, r.bytes) } -> std::convertible_to<bool>;
  m.prepare(r, s, set);                          ///< buffers for `set` sets; plans; collective
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

/// Collective over the members. First an untimed, checked call; then twice as many calls until they take a quarter of the budget
/// (which warms up); then the timed ones.
template <member M>
result measure(M& m, const request_line& r) {
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
  const double budget = r.budget_ms / 1000;
  std::size_t calls = 1;
  double each = 0, least = 1e9;
  for (;; calls *= 2) {
    const double seconds = m.largest(timed(m, calls, out.sets, renew));
    each = std::max(seconds / static_cast<double>(calls), 1e-9);
    least = std::min(least, each);
    if (seconds >= budget / 4 || calls >= (std::size_t{1} << 24)) break;
  }
  // One preemption while warming up must not shorten the timed part; nor one lucky pair of calls draw it out.
  out.calls =
      std::max({std::size_t{3}, out.sets, static_cast<std::size_t>(std::min(budget / least, 10 * budget / each))});
  out.us = m.largest(timed(m, out.calls, out.sets, renew)) / static_cast<double>(out.calls) * 1e6;
  return out;
}

/// One line of JSON; what the driver reads.
inline std::string describe(const char* contender, int ranks, const request_line& r, const result& x,
                            const std::string& note) {
  const shape s = shape_of(r.what, r.bytes, ranks);
  char text[512];
  std::snprintf(text, sizeof text,
                "{\"contender\":\"%s\",\"ranks\":%d,\"collective\":\"%s\",\"bytes\":%zu,\"count\":%zu,\"type\":\"f32\","
                "\"us\":%.6g,\"calls\":%zu,\"sets\":%zu,\"wrong\":%.0f,\"note\":\"%s\"}",
                contender, ranks, std::string(name(r.what)).c_str(), size_of_shape(s), s.count, x.us, x.calls, x.sets,
                x.wrong, note.c_str());
  return text;
}

}  // namespace bench
