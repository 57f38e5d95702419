// SPDX-License-Identifier: Apache-2.0
// The kernels of memory/ against memcpy and a STREAM-like triad in the same run: GB/s (1e9) of bytes that the call must read
// and write at least, i.e. (inputs + outputs) x size; memcpy counts 2 x size, the triad (a = b + s*c, f32) 3 x size.
// With two threads each does one half of the elements.
//
// Usage: kernels [--quick] [--size BYTES] [--type T] [--op O] [--hint by_size|cached|streamed|elsewhere] [--repetitions N] [--json FILE]
// Medians over repetitions; within a size all rows take turns, so that a disturbance hits all alike. Times are the thread's
// processor time (the slower thread's), which leaves out what other programs take of the core. Asserts nothing.

#include "memory/kernels/kernels.hpp"

#include <nlohmann/json.hpp>

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace troupe;

struct settings {
  bool quick = false;
  std::optional<std::size_t> size;
  std::optional<datatype> type;
  std::optional<op_kind> kind;
  store_hint hint = store_hint::by_size;
  int repetitions = 9;
  std::string json;
};

constexpr std::size_t most_inputs = 8, most_outputs = 8;

/// Regions of one large mapping, each a line further into its page than the one before: equal offsets would compete for
/// the same sets of the first-level cache, which no real set of buffers does to this degree.
class regions {
public:
  explicit regions(std::size_t size) : pitch_{(size + 4096 + 4095) / 4096 * 4096 + 64 + 4096} {
    bytes_ = pitch_ * (most_inputs + most_outputs);
    memory_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) std::perror("kernels: mmap"), std::exit(1);
    ::madvise(memory_, bytes_, MADV_HUGEPAGE);
    // 1.0 as f16 in every element: an ordinary number, neither subnormal nor huge, in every type and sum.
    auto* words = static_cast<std::uint16_t*>(memory_);
    std::fill(words, words + bytes_ / 2, std::uint16_t{0x3c00});
  }
  regions(const regions&) = delete;
  regions& operator=(const regions&) = delete;
  ~regions() { ::munmap(memory_, bytes_); }

  std::byte* input(std::size_t k) const { return static_cast<std::byte*>(memory_) + pitch_ * k; }
  std::byte* output(std::size_t m) const { return input(most_inputs + m); }

private:
  std::size_t pitch_;
  std::size_t bytes_ = 0;
  void* memory_ = nullptr;
};

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
__attribute__((optimize("O3"), target_clones("avx512f", "avx2", "default")))
#endif
void triad(float* a, const float* b, const float* c, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) a[i] = b[i] + 3.0f * c[i];
}

/// Work on bytes [begin, end) of every region.
using work = std::function<void(std::size_t begin, std::size_t end)>;

struct row {
  std::string what, type, kind;
  std::size_t inputs = 0, outputs = 0;
  work run;
  std::vector<double> seconds;

  double median() {
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2];
  }
};

double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Seconds of one call, the slower thread's; both start together.
double time_one(const work& run, std::size_t size, unsigned threads, std::size_t calls) {
  std::atomic<unsigned> ready{0};
  std::vector<double> took(threads);
  const auto part = [&](unsigned me) {
    const std::size_t share = size / threads;
    ready.fetch_add(1);
    while (ready.load() < threads) {}
    const double start = thread_seconds();
    for (std::size_t i = 0; i < calls; ++i) run(me * share, (me + 1) * share);
    took[me] = (thread_seconds() - start) / static_cast<double>(calls);
  };
  std::vector<std::thread> others;
  for (unsigned me = 1; me < threads; ++me) others.emplace_back(part, me);
  part(0);
  for (auto& other : others) other.join();
  return *std::max_element(took.begin(), took.end());
}

row reduce_row(const settings& on, const regions& memory, datatype type, op_kind kind, std::size_t k, std::size_t m) {
  std::vector<const std::byte*> in;
  std::vector<std::byte*> out;
  for (std::size_t i = 0; i < k; ++i) in.push_back(memory.input(i));
  for (std::size_t i = 0; i < m; ++i) out.push_back(memory.output(i));
  const auto run = [=, hint = on.hint](std::size_t begin, std::size_t end) {
    const void* from[most_inputs];
    void* to[most_outputs];
    for (std::size_t i = 0; i < k; ++i) from[i] = in[i] + begin;
    for (std::size_t i = 0; i < m; ++i) to[i] = out[i] + begin;
    constexpr double factors[most_inputs] = {2, 2, 2, 2, 2, 2, 2, 2};
    sum_scaling scaling;
    if (kind == op_kind::avg) scaling.divisor = k;
    if (kind == op_kind::pre_mul_sum) scaling.factors = factors;
    reduce_many(type, make_op(kind), {from, k}, {to, m}, (end - begin) / size_of(type), hint, scaling);
  };
  return {"reduce_many", std::string{name(type)}, std::string{name(kind)}, k, m, run, {}};
}

std::vector<row> make_rows(const settings& on, const regions& memory) {
  std::vector<row> rows;
  std::byte* const to = memory.output(0);
  const std::byte* const from = memory.input(0);
  rows.push_back({"memcpy", "-", "-", 1, 1, [=](auto b, auto e) { std::memcpy(to + b, from + b, e - b); }, {}});
  const auto floats = [](const std::byte* p) { return reinterpret_cast<const float*>(p); };
  rows.push_back({"triad",
                  "f32",
                  "-",
                  2,
                  1,
                  [=, second = memory.input(1)](auto b, auto e) {
                    triad(reinterpret_cast<float*>(to + b), floats(from + b), floats(second + b), (e - b) / 4);
                  },
                  {}});
  rows.push_back({"copy",
                  "-",
                  "-",
                  1,
                  1,
                  [=, hint = on.hint](auto b, auto e) { troupe::copy(to + b, from + b, e - b, hint); },
                  {}});
  for (datatype type : all_datatypes) {
    if (on.type && type != *on.type) continue;
    for (op_kind kind :
         {op_kind::sum, op_kind::avg, op_kind::pre_mul_sum, op_kind::prod, op_kind::max, op_kind::lor, op_kind::bxor}) {
      if ((on.kind && kind != *on.kind) || !supports(type, kind)) continue;
      for (std::size_t k : {2U, 4U, 8U})
        for (std::size_t m : {1U, 2U, 8U}) {
          const bool main = type == datatype::f32 && kind == op_kind::sum;
          const bool adds = kind == op_kind::sum || kind == op_kind::avg || kind == op_kind::pre_mul_sum;
          const bool corner = adds && ((k == 2 && m == 1) || (k == 8 && m != 2));
          if (!on.type && !main && !corner && !(k == 2 && m == 1 && !on.quick)) continue;
          rows.push_back(reduce_row(on, memory, type, kind, k, m));
        }
    }
  }
  return rows;
}

void measure(const settings& on, std::size_t size, unsigned threads, nlohmann::json& results) {
  const regions memory{size};
  std::vector<row> rows = make_rows(on, memory);
  for (int repetition = 0; repetition <= on.repetitions; ++repetition)
    for (row& one : rows) {
      // About a megabyte a turn, so that a small call is not lost in the clock's resolution.
      const std::size_t calls = std::max<std::size_t>(1, (std::size_t{4} << 20) / (size * (one.inputs + one.outputs)));
      const double seconds = time_one(one.run, size, threads, calls);
      if (repetition > 0) one.seconds.push_back(seconds);  // the first turn warms up
    }
  const auto rate = [&](row& one) {
    return static_cast<double>(size * (one.inputs + one.outputs)) / one.median() / 1e9;
  };
  const double of_memcpy = rate(rows[0]), of_triad = rate(rows[1]);
  for (row& one : rows) {
    const double gbps = rate(one);
    std::printf("%10zu %3u  %-12s %-7s %-11s %3zu %3zu %12.3f %9.2f %9.2f %9.2f\n", size, threads, one.what.c_str(),
                one.type.c_str(), one.kind.c_str(), one.inputs, one.outputs, one.median() * 1e6, gbps, gbps / of_memcpy,
                gbps / of_triad);
    results.push_back({{"size", size},
                       {"threads", threads},
                       {"kernel", one.what},
                       {"type", one.type},
                       {"op", one.kind},
                       {"inputs", one.inputs},
                       {"outputs", one.outputs},
                       {"us", one.median() * 1e6},
                       {"gbps", gbps},
                       {"of_memcpy", gbps / of_memcpy},
                       {"of_triad", gbps / of_triad}});
  }
  std::fflush(stdout);
}

[[noreturn]] void usage(const std::string& problem) {
  std::fprintf(stderr,
               "kernels: %s\nusage: kernels [--quick] [--size BYTES] [--type T] [--op O] "
               "[--hint by_size|cached|streamed|elsewhere] [--repetitions N] [--json FILE]\n",
               problem.c_str());
  std::exit(2);
}

settings parse(int argc, char** argv) {
  settings on;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--quick") {
      on.quick = true;
      continue;
    }
    if (i + 1 >= argc) usage(option + ": unknown, or its value is missing");
    const std::string value = argv[++i];
    if (option == "--size") on.size = std::strtoull(value.c_str(), nullptr, 10);
    else if (option == "--type") on.type = parse_datatype(value);
    else if (option == "--op") on.kind = parse_op(value);
    else if (option == "--repetitions") on.repetitions = std::max(1, std::atoi(value.c_str()));
    else if (option == "--json") on.json = value;
    else if (option == "--hint" && value == "cached") on.hint = store_hint::cached;
    else if (option == "--hint" && value == "streamed") on.hint = store_hint::streamed;
    else if (option == "--hint" && value == "elsewhere") on.hint = store_hint::elsewhere;
    else if (option != "--hint" || value != "by_size") usage(option + " " + value + ": not understood");
    if ((option == "--type" && !on.type) || (option == "--op" && !on.kind) || (option == "--size" && on.size < 64u))
      usage(option + " " + value + ": not understood");
  }
  return on;
}

}  // namespace

int main(int argc, char** argv) {
  const settings on = parse(argc, argv);
  nlohmann::json results = nlohmann::json::array();
  std::printf("# vector code: %s\n", kernel_instruction_set());
  std::printf("%10s %3s  %-12s %-7s %-11s %3s %3s %12s %9s %9s %9s\n", "size (B)", "thr", "kernel", "type", "op", "in",
              "out", "time (us)", "GB/s", "/memcpy", "/triad");
  std::vector<std::size_t> sizes{std::size_t{4} << 10, std::size_t{256} << 10, std::size_t{4} << 20,
                                 std::size_t{64} << 20};
  if (on.size) sizes = {*on.size / 64 * 64};
  for (std::size_t size : sizes)
    for (unsigned threads : {1u, 2u}) measure(on, size, threads, results);
  if (!on.json.empty())
    std::ofstream{on.json} << nlohmann::json{{"instruction_set", kernel_instruction_set()}, {"rows", results}}.dump(2)
                           << '\n';
}
