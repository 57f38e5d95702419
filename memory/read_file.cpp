// SPDX-License-Identifier: Apache-2.0
#include "memory/read_file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

namespace troupe {

namespace {

constexpr int patience_ms = 10'000;

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

std::string read_into(std::string& text, int fd, std::size_t most) {
  std::array<char, 64 * 1024> buffer;
  while (true) {
    if (std::string why = wait_for_bytes(fd); !why.empty()) return why;
    const ssize_t got = read(fd, buffer.data(), std::min(buffer.size(), most + 1 - text.size()));
    if (got == 0) return {};
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return std::strerror(errno);
    text.append(buffer.data(), static_cast<std::size_t>(got));
    if (text.size() > most) return "it is longer than " + std::to_string(most >> 20) + " MiB";
  }
}

}  // namespace

file_text read_file(const std::string& path, std::size_t most) {
  const descriptor file{path};
  struct stat what {};
  if (file.get() < 0 || fstat(file.get(), &what) != 0) return {{}, std::strerror(errno)};
  if (S_ISDIR(what.st_mode)) return {{}, "it is a folder"};
  file_text made;
  made.problem = read_into(made.text, file.get(), most);
  if (!made.problem.empty()) made.text.clear();
  return made;
}

}  // namespace troupe
