// SPDX-License-Identifier: Apache-2.0
// Rows 29 to 32 of the target table: what a reduction costs by its type, its operation and its level of determinism.
//   reductions ops    RANKS BYTES[,BYTES…] [ROUNDS [BUDGET_MS [TYPE,…]]]   sum, avg and pre_mul_sum of every type: all_reduce, reduce_scatter
//   reductions levels RANKS BYTES[,BYTES…] [ROUNDS [BUDGET_MS]]   the four levels, f32 sum: all_reduce, reduce_scatter, reduce
// A thread per rank, blocking calls, out of place. What is compared is measured in turns, another one first each time; medians over the
// rounds; time per call of the slowest rank. One line of JSON for each. Ours alone: no peer has these.

#include "bench/harness/buffers.hpp"
#include "bench/harness/team.hpp"
#include "engine/api/troupe.hpp"

#include <algorithm>
#include <chrono>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace {

using clock_type = std::chrono::steady_clock;
using troupe::datatype;

struct variant {
  troupe::op reduction = troupe::sum;
  troupe::determinism level = troupe::determinism::run_stable;
  bool names_level = false;  ///< else the engine's
};

/// What is compared with each other.
struct contest {
  bench::collective what;
  datatype type;
  std::size_t bytes;  ///< S of nccl-tests
  std::vector<variant> variants;
};

/// 0 or 1 as the type has it: their sums over 8 ranks are exact in every type.
void put(std::byte* to, datatype type, bool one) {
  const auto store = [&](auto value) { std::memcpy(to, &value, sizeof value); };
  switch (type) {
    case datatype::i8:
    case datatype::u8: return store(static_cast<std::uint8_t>(one));
    case datatype::i32:
    case datatype::u32: return store(static_cast<std::uint32_t>(one));
    case datatype::i64:
    case datatype::u64: return store(static_cast<std::uint64_t>(one));
    case datatype::f16: return store(troupe::f16(one ? 1.0F : 0.0F));
    case datatype::bf16: return store(troupe::bf16(one ? 1.0F : 0.0F));
    case datatype::f32: return store(one ? 1.0F : 0.0F);
    case datatype::f64: return store(one ? 1.0 : 0.0);
    case datatype::f8e4m3: return store(troupe::f8e4m3(one ? 1.0F : 0.0F));
    case datatype::f8e5m2: return store(troupe::f8e5m2(one ? 1.0F : 0.0F));
    case datatype::c64: return store(std::complex<float>(one ? 1.0F : 0.0F));
    case datatype::c128: return store(std::complex<double>(one ? 1.0 : 0.0));
  }
}
double get(const std::byte* from, datatype type) {
  const auto load = [&](auto value) {
    std::memcpy(&value, from, sizeof value);
    return value;
  };
  switch (type) {
    case datatype::i8: return load(std::int8_t{});
    case datatype::u8: return load(std::uint8_t{});
    case datatype::i32: return load(std::int32_t{});
    case datatype::u32: return load(std::uint32_t{});
    case datatype::i64: return static_cast<double>(load(std::int64_t{}));
    case datatype::u64: return static_cast<double>(load(std::uint64_t{}));
    case datatype::f16: return static_cast<float>(load(troupe::f16{}));
    case datatype::bf16: return static_cast<float>(load(troupe::bf16{}));
    case datatype::f32: return load(float{});
    case datatype::f64: return load(double{});
    case datatype::f8e4m3: return static_cast<float>(load(troupe::f8e4m3{}));
    case datatype::f8e5m2: return static_cast<float>(load(troupe::f8e5m2{}));
    case datatype::c64: return load(std::complex<float>{}).real();
    case datatype::c128: return load(std::complex<double>{}).real();
  }
  return -1;
}
/// The same at every rank, so that the average is exact in integers too; a third of them are 1.
bool one_at(std::size_t i) { return i % 3 == 0; }

double expected(const troupe::op& reduction, int ranks, bool one) {
  if (!one) return 0;
  return reduction.kind == troupe::op_kind::avg ? 1 : ranks * reduction.scale;
}

/// The buffers of one rank: as many sets as exceed the last-level cache with those of the others, if one does.
class rank_memory {
public:
  void shape_for(const contest& c, int rank, int ranks) {
    const auto n = static_cast<std::size_t>(ranks);
    type_ = c.type, rank_ = rank, ranks_ = ranks, what_ = c.what;
    const std::size_t size = troupe::size_of(c.type);
    in_count_ = std::max<std::size_t>(c.bytes / size / n, 1) * n;
    count_ = what_ == bench::collective::reduce_scatter ? in_count_ / n : in_count_;
    stride_ = (in_count_ * size + 4095) / 4096 * 4096 + 256;
    const std::size_t footprint = 2 * stride_ * n, cache = bench::cache_bytes();
    sets_ = footprint <= cache ? 1 : (4 * cache + footprint - 1) / footprint;
    base_ = arena_.at_least(2 * stride_ * sets_);
    for (std::size_t set = 0; set < sets_; ++set)
      for (std::size_t i = 0; i < in_count_; ++i) put(input(set) + i * size, c.type, one_at(i));
  }
  std::byte* input(std::size_t set) const { return base_ + set % sets_ * 2 * stride_; }
  std::byte* output(std::size_t set) const { return input(set) + stride_; }
  std::size_t count() const { return count_; }
  void spoil() { std::memset(output(0), 0x55, count_ * troupe::size_of(type_)); }
  double wrong(const variant& v) const {
    if (what_ == bench::collective::reduce && rank_ != 0) return 0;
    const std::size_t size = troupe::size_of(type_);
    const std::size_t from = count_ == in_count_ ? 0 : count_ * static_cast<std::size_t>(rank_);
    double bad = 0;
    for (std::size_t i = 0; i < count_; ++i)
      bad += get(output(0) + i * size, type_) != expected(v.reduction, ranks_, one_at(from + i)) ? 1 : 0;
    return bad;
  }

private:
  bench::arena arena_;
  std::byte* base_ = nullptr;
  datatype type_{};
  bench::collective what_{};
  int rank_ = 0, ranks_ = 1;
  std::size_t in_count_ = 1, count_ = 1, stride_ = 0, sets_ = 1;
};

class rank_member {
public:
  rank_member(troupe::communicator& c, bench::team& all, int rounds, double budget_ms)
      : c_(c), all_(all), rounds_(rounds), budget_(budget_ms / 1000) {}

  /// Threads take some 100 ms to find their cores; what is measured first would be slower than the rest by far.
  void settle(const contest& what) {
    memory_.shape_for(what, c_.rank(), c_.size());
    for (double seconds = 0; seconds < 0.25;) seconds += timed(what, what.variants.front(), 8);
  }

  void run(const contest& what) {
    memory_.shape_for(what, c_.rank(), c_.size());
    const std::size_t n = what.variants.size();
    std::vector<std::vector<double>> us(n);
    std::vector<double> wrong(n);
    std::vector<std::size_t> calls(n);
    for (std::size_t v = 0; v < n; ++v) {
      memory_.spoil();
      all_.largest(c_.rank(), 0);
      call(what, what.variants[v], 0);
      wrong[v] = all_.largest(c_.rank(), memory_.wrong(what.variants[v]));
      calls[v] = enough_calls(what, what.variants[v]);
    }
    for (int round = 0; round < rounds_; ++round)
      for (std::size_t k = 0; k < n; ++k) {
        const std::size_t v = (k + static_cast<std::size_t>(round)) % n;
        us[v].push_back(timed(what, what.variants[v], calls[v]) / static_cast<double>(calls[v]) * 1e6);
      }
    if (c_.rank() != 0) return;
    for (std::size_t v = 0; v < n; ++v) print(what, what.variants[v], us[v], wrong[v]);
  }

private:
  void call(const contest& what, const variant& v, std::size_t set) {
    troupe::call_options how;
    if (v.names_level) how.level = v.level;
    const std::byte* in = memory_.input(set);
    std::byte* out = memory_.output(set);
    if (what.what == bench::collective::reduce_scatter)
      return c_.reduce_scatter(in, out, memory_.count(), what.type, v.reduction, how);
    if (what.what == bench::collective::reduce)
      return c_.reduce(in, out, memory_.count(), what.type, v.reduction, 0, how);
    c_.all_reduce(in, out, memory_.count(), what.type, v.reduction, how);
  }
  /// Seconds of the slowest rank.
  double timed(const contest& what, const variant& v, std::size_t calls) {
    all_.largest(c_.rank(), 0);
    const auto begin = clock_type::now();
    for (std::size_t i = 0; i < calls; ++i) call(what, v, i);
    return all_.largest(c_.rank(), std::chrono::duration<double>(clock_type::now() - begin).count());
  }
  std::size_t enough_calls(const contest& what, const variant& v) {
    std::size_t calls = 1;
    double seconds = timed(what, v, calls);
    while (seconds < budget_ / 4) calls *= 2, seconds = timed(what, v, calls);
    return std::max<std::size_t>(2, static_cast<std::size_t>(static_cast<double>(calls) * budget_ / seconds));
  }
  void print(const contest& what, const variant& v, std::vector<double> us, double wrong) const {
    const std::vector<double> all = us;
    std::sort(us.begin(), us.end());
    std::string each;
    for (const double x : all) {
      if (!each.empty()) each += ',';
      each += std::to_string(x);
    }
    std::printf("{\"collective\":\"%s\",\"ranks\":%d,\"bytes\":%zu,\"type\":\"%s\",\"redop\":\"%s\",\"level\":\"%s\","
                "\"us\":%.6g,"
                "\"us_all\":[%s],\"wrong\":%.0f}\n",
                std::string(bench::name(what.what)).c_str(), c_.size(), what.bytes,
                std::string(troupe::name(what.type)).c_str(), std::string(troupe::name(v.reduction.kind)).c_str(),
                v.names_level ? std::string(troupe::name(v.level)).c_str() : "", us[us.size() / 2], each.c_str(),
                wrong);
    std::fflush(stdout);
  }

  troupe::communicator& c_;
  bench::team& all_;
  int rounds_;
  double budget_;
  rank_memory memory_;
};

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    parts.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

std::vector<contest> contests_of(std::string_view mode, const std::vector<std::string>& sizes,
                                 const std::vector<datatype>& types) {
  using bench::collective;
  std::vector<contest> found;
  for (const std::string& size : sizes) {
    const std::size_t bytes = std::strtoull(size.c_str(), nullptr, 10);
    if (bytes == 0) throw std::runtime_error("not a size: '" + size + "'");
    if (mode == "levels") {
      std::vector<variant> levels;
      for (const auto level : {troupe::determinism::fast, troupe::determinism::run_stable,
                               troupe::determinism::size_stable, troupe::determinism::topology_stable})
        levels.push_back({troupe::sum, level, true});
      for (const auto what : {collective::all_reduce, collective::reduce_scatter, collective::reduce})
        found.push_back({what, datatype::f32, bytes, levels});
      continue;
    }
    for (const auto what : {collective::all_reduce, collective::reduce_scatter})
      for (const datatype type : types)
        found.push_back({what, type, bytes, {{troupe::sum}, {troupe::average}, {troupe::pre_mul_sum(2)}}});
  }
  return found;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string_view mode = argc > 3 ? argv[1] : "";
  const int ranks = argc > 3 ? std::atoi(argv[2]) : 0;
  const int rounds = argc > 4 ? std::atoi(argv[4]) : 5;
  const double budget_ms = argc > 5 ? std::atof(argv[5]) : 6;
  if ((mode != "ops" && mode != "levels") || ranks < 1 || ranks > 8 || rounds < 1 || !(budget_ms > 0)) {
    std::fprintf(stderr,
                 "usage: reductions ops|levels RANKS BYTES[,BYTES…] [ROUNDS [BUDGET_MS [TYPE,…]]], with 1 … 8 ranks\n");
    return 2;
  }
  std::vector<datatype> types(troupe::all_datatypes.begin(), troupe::all_datatypes.end());
  if (argc > 6) {
    types.clear();
    for (const std::string& name : parts_of(argv[6])) {
      const auto parsed = troupe::parse_datatype(name);
      if (!parsed) throw std::runtime_error("no type is called '" + name + "'");
      types.push_back(*parsed);
    }
  }
  const auto contests = contests_of(mode, parts_of(argv[3]), types);
  troupe::engine engine;
  bench::team all(ranks);
  engine.run(ranks, [&](troupe::communicator& c) {
    rank_member m(c, all, rounds, budget_ms);
    m.settle(contests.front());
    for (const contest& each : contests) m.run(each);
  });
} catch (const std::exception& e) {
  std::fprintf(stderr, "reductions: %s\n", e.what());
  return 1;
}
