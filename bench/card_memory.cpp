// SPDX-License-Identifier: Apache-2.0
// The allocator of a card's tiers against jemalloc, mimalloc and std::pmr's pools, each confined to a range of the same size. See --help.
// Time: every call by itself, by the processor's counter where it has one; what reading it costs is in all numbers alike. Asserts nothing.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <memory_resource>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "memory/tiers/tier_heap.hpp"

#if defined(TROUPE_BENCH_JEMALLOC)
#include <jemalloc/jemalloc.h>
#endif
#if defined(TROUPE_BENCH_MIMALLOC)
#include <mimalloc.h>
#endif

namespace {

constexpr const char* help =
    R"(usage: card_memory [--mib N] [--operations N] [--rounds N] [--threads N] [--seed N] [--trace NAME] [--who NAME] [--json FILE]

What allocating on a card's tier costs, and how much of the tier can be used, beside jemalloc, mimalloc and std::pmr's pools. Each has a range of --mib (256)
for itself, which is touched first.
  time    --operations (400000) requests and returns in random order at about half of the range (at most 20 000 blocks), --rounds (5) times; ns a call: median and
          99th percentile of each round, and of those the median. Allocators take turns.
  share   requests (6 of 10) and returns (4 of 10) in random order, until the first request fails: what users hold then, of the range, %.
  threads (2; 1 leaves it out) requests and returns of 64 B to 4 KiB on each, ns a pair, all threads at once.
Traces: step, the tensors of a training step (weights, gradients, activations, work space, of transformer layers); powers, powers of two
from 64 B to 4 MiB; random, 1 B to 2 MiB, each octave alike; small, 1 B to 4 KiB. --trace and --who: that one only.
)";

using steady = std::chrono::steady_clock;

std::size_t mib = 256, operations = 400'000, rounds = 5, threads = 2;
std::uint64_t first_seed = 1;
std::string only_trace, only_who;  // empty: all

std::uint64_t ticks() {
#if defined(__x86_64__)
  unsigned processor;
  return __rdtscp(&processor);
#else
  return static_cast<std::uint64_t>(steady::now().time_since_epoch().count());
#endif
}

double ns_of_tick() {
  const auto begin = steady::now();
  const std::uint64_t first = ticks();
  while (steady::now() - begin < std::chrono::milliseconds{50}) {}
  const std::uint64_t last = ticks();
  return std::chrono::duration<double, std::nano>(steady::now() - begin).count() / static_cast<double>(last - first);
}

/// As card_memory does: heads and marks lie in the tier, each on another page, and with pages of 4 KiB most of a slow call is spent on finding these.
void ask_for_large_pages([[maybe_unused]] void* at, [[maybe_unused]] std::size_t bytes) {
#if defined(MADV_HUGEPAGE)
  ::madvise(at, bytes, MADV_HUGEPAGE);
#endif
}

/// Memory from the system, touched, that allocators may be confined to.
class range {
public:
  range() : bytes_{mib << 20} {
    // mimalloc wants whole segments of 64 MiB at their own multiples.
    whole_ = bytes_ + (std::size_t{64} << 20);
    mapped_ = ::mmap(nullptr, whole_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped_ == MAP_FAILED) std::fprintf(stderr, "card_memory: no memory of %zu MiB\n", mib), std::exit(1);
    const auto at = (reinterpret_cast<std::uintptr_t>(mapped_) + (std::uintptr_t{64} << 20) - 1) >> 26 << 26;
    at_ = reinterpret_cast<std::byte*>(at);
    ask_for_large_pages(at_, bytes_);
    std::memset(at_, 0, bytes_);
  }
  std::byte* at() const { return at_; }
  std::size_t bytes() const { return bytes_; }

private:
  std::size_t bytes_, whole_ = 0;
  void* mapped_ = nullptr;
  std::byte* at_ = nullptr;
};

// -- contenders -----------------------------------------------------------------------------------

class contender {
public:
  virtual ~contender() = default;
  virtual void* take(std::size_t bytes) = 0;  // nullptr: no room
  virtual void give(void* block, std::size_t bytes) = 0;
};

class ours final : public contender {
public:
  explicit ours(const range& of) : heap_{of.at(), of.bytes()} {}
  void* take(std::size_t bytes) override { return heap_.try_allocate(bytes); }
  void give(void* block, std::size_t bytes) override { heap_.deallocate(block, bytes); }

private:
  troupe::tier_heap heap_;
};

/// std::pmr has nothing under its pools that takes memory back but the system's heap: confined, it is a range that is used up.
template <class Pool>
class pools final : public contender {
public:
  explicit pools(const range& of) : all_{of.at(), of.bytes(), std::pmr::null_memory_resource()}, pool_{&all_} {}
  void* take(std::size_t bytes) override {
    try {
      return pool_.allocate(bytes, 64);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
  void give(void* block, std::size_t bytes) override { pool_.deallocate(block, bytes, 64); }

private:
  std::pmr::monotonic_buffer_resource all_;
  Pool pool_;
};

#if defined(TROUPE_BENCH_JEMALLOC)
/// An arena of its own whose extents come from the range, one behind the other; jemalloc keeps and joins what it has got.
class jemalloc_arena final : public contender {
public:
  explicit jemalloc_arena(const range& of) {
    hooks_.alloc = [](extent_hooks_t* hooks, void* wish, std::size_t bytes, std::size_t align, bool* zero, bool* commit,
                      unsigned) -> void* {
      auto& me = *reinterpret_cast<source*>(hooks);
      const auto at = (reinterpret_cast<std::uintptr_t>(me.next) + align - 1) / align * align;
      if (wish != nullptr || at + bytes > reinterpret_cast<std::uintptr_t>(me.end)) return nullptr;
      me.next = reinterpret_cast<std::byte*>(at + bytes);
      *zero = false;
      *commit = true;
      return reinterpret_cast<void*>(at);
    };
    hooks_.dalloc = [](extent_hooks_t*, void*, std::size_t, bool, unsigned) { return true; };  // no: jemalloc keeps it
    hooks_.split = [](extent_hooks_t*, void*, std::size_t, std::size_t, std::size_t, bool, unsigned) { return false; };
    hooks_.merge = [](extent_hooks_t*, void*, std::size_t, void*, std::size_t, bool, unsigned) { return false; };
    source_ = new source{hooks_, of.at(), of.at() + of.bytes()};  // jemalloc never lets go of an arena's hooks
    extent_hooks_t* hooks = &source_->hooks;
    std::size_t size = sizeof arena_;
    must(mallctl("arenas.create", &arena_, &size, &hooks, sizeof(hooks)));
    // No grown steps: the arena would ask for more than is left.
    const std::string name = "arena." + std::to_string(arena_) + ".retain_grow_limit";
    std::size_t grow = std::size_t{2} << 20;
    must(mallctl(name.c_str(), nullptr, nullptr, &grow, sizeof grow));
    ssize_t never = -1;  // nothing is worth giving back to the system
    must(mallctl(("arena." + std::to_string(arena_) + ".dirty_decay_ms").c_str(), nullptr, nullptr, &never,
                 sizeof never));
    size = sizeof cache_;
    must(mallctl("tcache.create", &cache_, &size, nullptr, 0));
    flags_ = MALLOCX_ARENA(arena_) | MALLOCX_TCACHE(cache_) | MALLOCX_ALIGN(64);
  }
  void* take(std::size_t bytes) override { return mallocx(std::max<std::size_t>(bytes, 1), flags_); }
  void give(void* block, std::size_t bytes) override { sdallocx(block, std::max<std::size_t>(bytes, 1), flags_); }

private:
  struct source {
    extent_hooks_t hooks;
    std::byte *next, *end;
  };
  static void must(int result) {
    if (result != 0) std::fprintf(stderr, "card_memory: mallctl: %s\n", std::strerror(result)), std::exit(1);
  }
  extent_hooks_t hooks_{};
  source* source_ = nullptr;
  unsigned arena_ = 0, cache_ = 0;
  int flags_ = 0;
};
#endif

#if defined(TROUPE_BENCH_MIMALLOC)
class mimalloc_arena final : public contender {
public:
  explicit mimalloc_arena(const range& of) {
    mi_option_set(mi_option_show_errors, 0);
    mi_option_set(mi_option_verbose, 0);
    mi_arena_id_t id;
    // A range of its own, as large: 2.0.9 crashes in memory that it is given (mi_manage_os_memory_ex) once it uses a part of it again.
    if (mi_reserve_os_memory_ex(of.bytes(), true, false, false, &id) != 0)
      std::fprintf(stderr, "card_memory: mimalloc has no range\n"), std::exit(1);
    std::size_t bytes = 0;
    void* const at = mi_arena_area(id, &bytes);
    ask_for_large_pages(at, bytes);
    ::madvise(at, bytes, MADV_POPULATE_WRITE);
    mi_option_set(mi_option_limit_os_alloc, 1);
    heap_ = mi_heap_get_default();
  }
  void* take(std::size_t bytes) override { return mi_heap_malloc_aligned(heap_, bytes, 64); }
  void give(void* block, std::size_t bytes) override { mi_free_size_aligned(block, bytes, 64); }

private:
  mi_heap_t* heap_;  // kept: destroying it would unmap what it was given
};
#endif

struct named_contender {
  std::string name;
  std::function<std::unique_ptr<contender>(const range&)> make;
  bool of_threads;  // may be called by several
};

std::vector<named_contender> contenders() {
  std::vector<named_contender> all;
  all.push_back({"troupe", [](const range& r) { return std::make_unique<ours>(r); }, true});
#if defined(TROUPE_BENCH_JEMALLOC)
  all.push_back({"jemalloc", [](const range& r) { return std::make_unique<jemalloc_arena>(r); }, false});
#endif
#if defined(TROUPE_BENCH_MIMALLOC)
  all.push_back({"mimalloc", [](const range& r) { return std::make_unique<mimalloc_arena>(r); }, false});
#endif
  all.push_back({"pmr_pool",
                 [](const range& r) { return std::make_unique<pools<std::pmr::unsynchronized_pool_resource>>(r); },
                 false});
  all.push_back({"pmr_pool_mt",
                 [](const range& r) { return std::make_unique<pools<std::pmr::synchronized_pool_resource>>(r); },
                 true});
  std::erase_if(all, [](const named_contender& c) { return !only_who.empty() && c.name != only_who; });
  return all;
}

// -- traces ---------------------------------------------------------------------------------------

using random_engine = std::mt19937_64;

/// Tensors of transformer layers (hidden 512, 1024 or 2048, f16 and f32), tokens 128 … 1024: few sizes, often, and not powers of two.
std::size_t step_size(random_engine& random) {
  const std::size_t hidden = std::size_t{512} << random() % 3, tokens = 128 * (1 + random() % 8);
  switch (random() % 8) {
    case 0: return hidden * 4;                  // a layer norm's scale, f32
    case 1: return tokens * 4;                  // losses, positions
    case 2: return tokens * tokens / 8;         // a mask, a bit each
    case 3: return tokens * hidden / 4;         // a tile of activations
    case 4: return tokens * hidden * 2;         // activations, f16
    case 5: return hidden * hidden / 8 * 2;     // a shard of a weight, f16
    case 6: return hidden * hidden / 8 * 4;     // its gradient, f32
    default: return 1000 + random() % 100'000;  // work space
  }
}

struct trace {
  const char* name;
  std::function<std::size_t(random_engine&)> size;
};

const trace traces[] = {
    {"step", step_size},
    {"powers", [](random_engine& r) { return std::size_t{64} << r() % 17; }},
    {"random",
     [](random_engine& r) {
       const std::size_t octave = std::size_t{1} << r() % 21;
       return octave + r() % octave;
     }},
    {"small", [](random_engine& r) { return 1 + r() % 4096; }},
};

struct held {
  void* block;
  std::size_t bytes;
};

struct spent {
  double median = 0, p99 = 0;
  std::size_t failed = 0;
};

double at_share(std::vector<std::uint32_t>& all, double share) {
  const auto nth = all.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(all.size() - 1));
  std::nth_element(all.begin(), nth, all.end());
  return *nth;
}

/// One round: about half of the range is held, requests and returns alternate at random.
spent time_of(contender& who, const trace& what, std::uint64_t seed, double ns) {
  random_engine random{seed};
  std::vector<held> out;
  std::vector<std::uint32_t> taken;
  taken.reserve(operations);
  std::size_t in_use = 0;
  const std::size_t target = (mib << 20) / 2;
  spent result;
  for (std::size_t i = 0; i < operations; ++i) {
    if (out.empty() || (in_use < target && out.size() < 20'000 && random() % 100 < 52)) {
      const std::size_t bytes = what.size(random);
      const std::uint64_t begin = ticks();
      void* const block = who.take(bytes);
      taken.push_back(static_cast<std::uint32_t>(std::min<std::uint64_t>(ticks() - begin, ~0U)));
      if (block == nullptr) {
        ++result.failed;
        continue;
      }
      *static_cast<std::byte*>(block) = std::byte{1};
      out.push_back({block, bytes});
      in_use += bytes;
    } else {
      std::swap(out[random() % out.size()], out.back());
      const held h = out.back();
      out.pop_back();
      in_use -= h.bytes;
      const std::uint64_t begin = ticks();
      who.give(h.block, h.bytes);
      taken.push_back(static_cast<std::uint32_t>(std::min<std::uint64_t>(ticks() - begin, ~0U)));
    }
  }
  for (const held& h : out) who.give(h.block, h.bytes);
  result.median = at_share(taken, 0.5) * ns;
  result.p99 = at_share(taken, 0.99) * ns;
  return result;
}

double share_of(contender& who, const trace& what, std::uint64_t seed) {
  random_engine random{seed};
  std::vector<held> out;
  std::size_t in_use = 0;
  for (;;) {
    if (out.empty() || random() % 10 < 6) {
      const std::size_t bytes = what.size(random);
      void* const block = who.take(bytes);
      if (block == nullptr) break;
      out.push_back({block, bytes});
      in_use += bytes;
    } else {
      std::swap(out[random() % out.size()], out.back());
      who.give(out.back().block, out.back().bytes);
      in_use -= out.back().bytes;
      out.pop_back();
    }
  }
  for (const held& h : out) who.give(h.block, h.bytes);
  return 100.0 * static_cast<double>(in_use) / static_cast<double>(mib << 20);
}

/// ns a pair, of all threads together: wall time times threads by pairs.
double threaded(contender& who) {
  const std::size_t pairs = operations;
  std::vector<std::thread> all;
  const auto begin = steady::now();
  for (std::size_t t = 0; t < threads; ++t)
    all.emplace_back([&, t] {
      random_engine random{t + 1};
      held ring[64]{};
      for (std::size_t i = 0; i < pairs; ++i) {
        held& h = ring[random() % 64];
        if (h.block != nullptr) who.give(h.block, h.bytes);
        h.bytes = 64 + random() % 4033;
        h.block = who.take(h.bytes);
      }
      for (const held& h : ring)
        if (h.block != nullptr) who.give(h.block, h.bytes);
    });
  for (auto& t : all) t.join();
  return std::chrono::duration<double, std::nano>(steady::now() - begin).count() / static_cast<double>(pairs);
}

double median(std::vector<double> of) {
  std::sort(of.begin(), of.end());
  return of[of.size() / 2];
}

struct row {
  std::string trace, who;
  double median, p99, share;
  std::size_t failed;
};

/// What `work` finds with a range and a contender of its own, in a process of its own: jemalloc and mimalloc never let go of a range.
template <class Work>
auto with_fresh(const named_contender& c, Work work) {
  using result_type = decltype(work(std::declval<contender&>()));
  static_assert(std::is_trivially_copyable_v<result_type>);
  result_type result{};
  int ends[2];
  if (::pipe(ends) != 0) std::perror("card_memory: pipe"), std::exit(1);
  const pid_t child = ::fork();
  if (child == 0) {
    const range memory;
    const auto made = c.make(memory);
    result = work(*made);
    ::_exit(::write(ends[1], &result, sizeof result) == static_cast<ssize_t>(sizeof result) ? 0 : 1);
  }
  ::close(ends[1]);
  const bool whole = ::read(ends[0], &result, sizeof result) == static_cast<ssize_t>(sizeof result);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!whole || status != 0)
    std::fprintf(stderr, "card_memory: %s ended without a result\n", c.name.c_str()), std::exit(1);
  return result;
}

std::vector<row> measure(const std::vector<named_contender>& all, double ns) {
  std::vector<row> rows;
  for (const trace& what : traces) {
    if (!only_trace.empty() && only_trace != what.name) continue;
    std::vector<std::vector<double>> medians(all.size()), p99s(all.size()), shares(all.size());
    std::vector<std::size_t> failed(all.size());
    for (std::size_t round = 0; round < rounds; ++round)
      for (std::size_t k = 0; k < all.size(); ++k) {
        const std::size_t c = (k + round) % all.size();
        const spent s = with_fresh(all[c], [&](contender& who) { return time_of(who, what, first_seed + round, ns); });
        medians[c].push_back(s.median);
        p99s[c].push_back(s.p99);
        failed[c] += s.failed;
        shares[c].push_back(
            with_fresh(all[c], [&](contender& who) { return share_of(who, what, first_seed + round); }));
      }
    for (std::size_t c = 0; c < all.size(); ++c) {
      rows.push_back({what.name, all[c].name, median(medians[c]), median(p99s[c]), median(shares[c]), failed[c]});
      const row& r = rows.back();
      std::printf("%-8s %-12s %10.1f %10.1f %9.1f", r.trace.c_str(), r.who.c_str(), r.median, r.p99, r.share);
      if (r.failed > 0) std::printf("   %zu requests failed", r.failed);
      std::printf("\n");
      std::fflush(stdout);
    }
  }
  return rows;
}

void write_json(const char* path, const std::vector<row>& rows,
                const std::vector<std::pair<std::string, double>>& pairs) {
  std::ofstream out(path);
  out << "{\"mib\": " << mib << ", \"operations\": " << operations << ", \"rounds\": " << rounds << ", \"rows\": [";
  for (std::size_t i = 0; i < rows.size(); ++i)
    out << (i ? "," : "") << "\n  {\"trace\": \"" << rows[i].trace << "\", \"who\": \"" << rows[i].who
        << "\", \"median_ns\": " << rows[i].median << ", \"p99_ns\": " << rows[i].p99
        << ", \"share\": " << rows[i].share << ", \"failed\": " << rows[i].failed << "}";
  out << "\n], \"threads\": " << threads << ", \"pairs\": [";
  for (std::size_t i = 0; i < pairs.size(); ++i)
    out << (i ? "," : "") << "\n  {\"who\": \"" << pairs[i].first << "\", \"ns\": " << pairs[i].second << "}";
  out << "\n]}\n";
}

int wrong(const char* what) { return std::fprintf(stderr, "card_memory: %s\n%s", what, help), 2; }

}  // namespace

int main(int argc, char** argv) {
  const char* json = nullptr;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--help") return std::fputs(help, stdout), 0;
    if (++i == argc) return wrong("an option lacks its value, or is none");
    char* end = nullptr;
    const std::uint64_t number = std::strtoull(argv[i], &end, 10);
    if (option == "--json") {
      json = argv[i];
      continue;
    }
    if (option == "--trace" || option == "--who") {
      (option == "--trace" ? only_trace : only_who) = argv[i];
      continue;
    }
    if (*end != '\0' || number == 0) return wrong("a value is no number above 0");
    if (option == "--mib") mib = number;
    else if (option == "--operations") operations = number;
    else if (option == "--rounds") rounds = number;
    else if (option == "--threads") threads = number;
    else if (option == "--seed") first_seed = number;
    else return wrong(("there is no option " + option).c_str());
  }
  mib = (mib + 63) / 64 * 64;  // mimalloc's segments
  const double ns = ns_of_tick();
  const auto all = contenders();
  const bool known = only_trace.empty() || std::any_of(std::begin(traces), std::end(traces),
                                                       [](const trace& t) { return only_trace == t.name; });
  if (all.empty() || !known) return wrong("there is no such trace, or nobody of that name");
  std::printf("%-8s %-12s %10s %10s %9s   (%zu MiB)\n", "# trace", "who", "median ns", "p99 ns", "share %", mib);
  const auto rows = measure(all, ns);
  std::vector<std::pair<std::string, double>> pairs;
  for (const auto& c : all) {
    // jemalloc's explicit cache and mimalloc's heap belong to one thread; std's unsynchronised pool, too.
    if (threads < 2 || !c.of_threads) continue;
    std::vector<double> times;
    for (std::size_t r = 0; r < rounds; ++r) times.push_back(with_fresh(c, threaded));
    pairs.emplace_back(c.name, median(times));
    std::printf("%zu threads, a pair: %-12s %8.1f ns\n", threads, c.name.c_str(), pairs.back().second);
  }
  if (json != nullptr) write_json(json, rows, pairs);
}
