// SPDX-License-Identifier: Apache-2.0
// A million mixed operations, one in seven of which fails on purpose, and the heap after each part of them.
//   soak [--operations N] [--ranks N] [--seed N] [--only KIND] [--offload HOW] [--most-bytes N] [--json FILE]
// Exit code 1 if the heap has grown by more than --most-bytes (1024) since the warm-up, or a result was wrong.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "bench/harness/counted_heap.hpp"
#include "bench/harness/soak.hpp"

namespace {

[[noreturn]] void refuse(const std::string& sentence) {
  std::fprintf(stderr, "soak: %s\n", sentence.c_str());
  std::exit(2);
}

}  // namespace

int main(int count, char** arguments) {
  bench::soak::options how;
  std::ptrdiff_t most_bytes = 1024;
  std::string json;
  for (int i = 1; i < count; i += 2) {
    const std::string key = arguments[i];
    if (i + 1 == count) refuse(key + " needs a value");
    const char* const text = arguments[i + 1];
    char* end = nullptr;
    if (key == "--only") {
      how.only = text;
      continue;
    }
    if (key == "--offload") {
      how.offload = text;
      continue;
    }
    const unsigned long long value = std::strtoull(text, &end, 10);
    if (key == "--json") {
      json = text;
      continue;
    }
    if (end == text || *end != '\0') refuse(key + " " + text + ": not a number");
    if (key == "--operations") how.operations = value, how.warm_up = value * 3 / 10;
    else if (key == "--ranks" && value >= 2 && value <= 64) how.ranks = static_cast<int>(value);
    else if (key == "--seed") how.seed = value;
    else if (key == "--most-bytes") most_bytes = static_cast<std::ptrdiff_t>(value);
    else
      refuse(key + " " + text +
             ": there are --operations, --ranks (2 to 64), --seed, --only, --offload, --most-bytes and --json");
  }
  std::printf("%12s %14s %10s\n", "operations", "heap (B)", "s");
  const auto all = bench::soak::run(
      how, [] { return static_cast<std::ptrdiff_t>(bench::heap_use()); },
      [](const bench::soak::look& l) {
        std::printf("%12llu %14td %10.1f\n", static_cast<unsigned long long>(l.operations), l.heap, l.seconds);
        std::fflush(stdout);
      });
  std::printf("\nby kind:\n");
  for (const auto& [name, times] : all.kinds)
    std::printf("  %-24s %llu\n", name.c_str(), static_cast<unsigned long long>(times));
  std::printf("how the ranks' operations ended:\n");
  for (const auto& [name, times] : all.ends)
    std::printf("  %-32s %llu\n", name.c_str(), static_cast<unsigned long long>(times));
  const bool good = all.grown() <= most_bytes && all.wrong == 0;
  std::printf("\nheap grown since the warm-up: %td B; wrong results: %llu\n", all.grown(),
              static_cast<unsigned long long>(all.wrong));
  if (!json.empty()) {
    std::ofstream file(json);
    file << "{\"operations\": " << how.operations << ", \"ranks\": " << how.ranks << ", \"seed\": " << how.seed
         << ", \"grown_bytes\": " << all.grown() << ", \"wrong\": " << all.wrong << ", \"looks\": [";
    for (std::size_t i = 0; i < all.looks.size(); ++i)
      file << (i == 0 ? "" : ", ") << "{\"operations\": " << all.looks[i].operations
           << ", \"heap\": " << all.looks[i].heap << ", \"seconds\": " << all.looks[i].seconds << "}";
    const auto write = [&](const char* key, const std::map<std::string, std::uint64_t>& of) {
      file << ", \"" << key << "\": {";
      for (auto at = of.begin(); at != of.end(); ++at)
        file << (at == of.begin() ? "" : ", ") << '"' << at->first << "\": " << at->second;
      file << '}';
    };
    file << ']';
    write("kinds", all.kinds);
    write("ends", all.ends);
    file << "}\n";
    if (!file.flush()) refuse(json + ": cannot be written");
  }
  return good ? 0 : 1;
}
