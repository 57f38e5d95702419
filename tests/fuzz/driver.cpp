// SPDX-License-Identifier: Apache-2.0
// A fuzz target without libFuzzer: replays the corpus, then mutations of it from a seed. Blind (nothing tells it what an input reached),
// but the same everywhere and repeatable.
//
//   fuzz_NAME [-runs=N] [-seed=N] FILE_OR_FOLDER...
//
// The seed is -seed, else TROUPE_TEST_SEED, else random; it is printed. An input that ends the process is left as fuzz_crash_<pid>;
// to run it alone: fuzz_NAME -runs=0 fuzz_crash_<pid>
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

namespace fs = std::filesystem;
using input = std::vector<std::uint8_t>;

constexpr std::size_t longest = 4096;

// What a signal's handler may look at.
input current;
std::array<char, 64> crash_file{};

extern "C" void keep_input(int signal) {
  const int file = open(crash_file.data(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file >= 0 && write(file, current.data(), current.size()) >= 0) {
    static_cast<void>(!write(STDERR_FILENO, "the input is kept as ", 21));
    static_cast<void>(!write(STDERR_FILENO, crash_file.data(), std::strlen(crash_file.data())));
    static_cast<void>(!write(STDERR_FILENO, "\n", 1));
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

std::uint64_t number_of(std::string_view what, const char* text) {
  char* end = nullptr;
  const std::uint64_t value = std::strtoull(text, &end, 0);
  if (*text < '0' || *text > '9' || *end != '\0') {
    std::fprintf(stderr, "%s is '%s', which is no number\n", std::string{what}.c_str(), text);
    std::exit(2);
  }
  return value;
}

std::uint64_t usual_seed() {
  if (const char* text = std::getenv("TROUPE_TEST_SEED"); text != nullptr && *text != '\0')
    return number_of("TROUPE_TEST_SEED", text);
  std::random_device entropy;
  return (std::uint64_t{entropy()} << 32) | entropy();
}

void add(std::vector<input>& corpus, const fs::path& path) {
  if (fs::is_directory(path)) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator{path}) files.push_back(entry.path());
    std::sort(files.begin(), files.end());  // a folder's own order is another one on every machine
    for (const fs::path& file : files) add(corpus, file);
    return;
  }
  std::ifstream file{path, std::ios::binary};
  if (!file) {
    std::fprintf(stderr, "%s cannot be read\n", path.c_str());
    std::exit(2);
  }
  corpus.emplace_back(std::istreambuf_iterator<char>{file}, std::istreambuf_iterator<char>{});
}

void run(input bytes) {
  current = std::move(bytes);
  // A copy of exactly this size, so that AddressSanitizer sees who reads beyond it.
  const input exact{current};
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

class mutator {
public:
  mutator(std::uint64_t seed, const std::vector<input>& corpus) : random_(seed), corpus_(corpus) {}

  input next() {
    input bytes = corpus_[below(corpus_.size())];
    for (std::size_t changes = std::size_t{1} << below(5); changes > 0; --changes) change(bytes);
    bytes.resize(std::min(bytes.size(), longest));
    return bytes;
  }

private:
  std::size_t below(std::size_t end) { return static_cast<std::size_t>(random_() % end); }
  std::uint8_t byte() {
    static constexpr std::array<std::uint8_t, 8> telling{0, 1, 2, 0x7f, 0x80, 0xfe, 0xff, '\n'};
    return below(2) == 0 ? telling[below(telling.size())] : static_cast<std::uint8_t>(random_());
  }
  void change(input& bytes) {
    const std::size_t at = below(bytes.size() + 1);
    const auto here = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    switch (below(6)) {
      case 0: bytes.insert(here, byte()); break;
      case 1: bytes.insert(here, below(64), byte()); break;
      case 2: bytes.resize(at); break;
      case 3: {  // the end of another
        const input& other = corpus_[below(corpus_.size())];
        bytes.resize(at);
        bytes.insert(bytes.end(), other.begin() + static_cast<std::ptrdiff_t>(below(other.size() + 1)), other.end());
        break;
      }
      case 4:
        if (at < bytes.size()) bytes[at] = byte();
        break;
      default:
        if (at < bytes.size()) bytes[at] ^= static_cast<std::uint8_t>(1U << below(8));
    }
  }

  std::mt19937_64 random_;
  const std::vector<input>& corpus_;
};

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t runs = 20000, seed = usual_seed();
  std::vector<input> corpus;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word.starts_with("-runs=")) runs = number_of("-runs", argv[i] + 6);
    else if (word.starts_with("-seed=")) seed = number_of("-seed", argv[i] + 6);
    else add(corpus, argv[i]);
  }
  if (corpus.empty()) corpus.emplace_back();
  std::snprintf(crash_file.data(), crash_file.size(), "fuzz_crash_%d", static_cast<int>(getpid()));
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, keep_input);
  std::printf("seed: TROUPE_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  for (const input& bytes : corpus) run(bytes);
  mutator mutate{seed, corpus};
  for (std::uint64_t i = 0; i < runs; ++i) run(mutate.next());
  std::printf("%zu inputs of the corpus and %llu mutations of them: all right\n", corpus.size(),
              static_cast<unsigned long long>(runs));
}
