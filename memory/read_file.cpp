// SPDX-License-Identifier: Apache-2.0
#include "memory/read_file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

namespace troupe {

namespace {

constexpr int patience_ms = 10'000;
constexpr std::size_t block_bytes = std::size_t{1} << 20;

class descriptor {
public:
  // Without O_NONBLOCK, opening a FIFO waits for its writer.
  explicit descriptor(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  int get() const { return fd_; }

private:
  int fd_;
};

/// Empty: there is something to read, or an end.
std::string wait_for_bytes(int fd) {
  pollfd one{fd, POLLIN, 0};
  while (true) {
    const int found = poll(&one, 1, patience_ms);
    if (found > 0) return {};
    if (found == 0) return "nobody has written to it for " + std::to_string(patience_ms / 1000) + " seconds";
    if (errno != EINTR) return std::strerror(errno);
  }
}

std::string too_long(std::size_t most) { return "it is longer than " + std::to_string(most >> 20) + " MiB"; }

/// Blocks: a text that grows is in two places at once whenever it moves, and may have room for twice as much.
std::string read_blocks(std::vector<std::string>& blocks, int fd, std::size_t most) {
  std::array<char, 64 * 1024> buffer;
  std::size_t total = 0;
  while (true) {
    if (std::string why = wait_for_bytes(fd); !why.empty()) return why;
    const ssize_t got = read(fd, buffer.data(), std::min(buffer.size(), most + 1 - total));
    if (got == 0) return {};
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return std::strerror(errno);
    const auto bytes = static_cast<std::size_t>(got);
    if ((total += bytes) > most) return too_long(most);
    if (blocks.empty() || blocks.back().size() + bytes > blocks.back().capacity())
      blocks.emplace_back().reserve(total < block_bytes ? buffer.size() : block_bytes);
    blocks.back().append(buffer.data(), bytes);
  }
}

std::string joined(std::vector<std::string>& blocks) {
  if (blocks.size() == 1) return std::move(blocks.front());
  std::size_t total = 0;
  for (const std::string& block : blocks) total += block.size();
  std::string text;
  text.reserve(total);
  for (std::string& block : blocks) {
    text += block;
    std::string{}.swap(block);
  }
  return text;
}

}  // namespace

file_text read_file(const std::string& path, std::size_t most) {
  const descriptor file{path};
  struct stat what {};
  if (file.get() < 0 || fstat(file.get(), &what) != 0) return {{}, std::strerror(errno)};
  if (S_ISDIR(what.st_mode)) return {{}, "it is a folder"};
  if (S_ISREG(what.st_mode) && static_cast<std::uintmax_t>(what.st_size) > most) return {{}, too_long(most)};
  const bool device = S_ISCHR(what.st_mode) && isatty(file.get()) == 0;
  std::vector<std::string> blocks;
  std::string problem = read_blocks(blocks, file.get(), device ? std::min(most, most_device_bytes) : most);
  if (!problem.empty()) return {{}, std::move(problem)};
  return {joined(blocks), {}};
}

}  // namespace troupe
