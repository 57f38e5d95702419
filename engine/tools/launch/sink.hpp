// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <string>

#include <poll.h>
#include <unistd.h>

namespace troupe::launch {

/// Of our standard output or error: what is still to be written. Written only as far as it does not block, so that signals are
/// seen to while nobody reads.
class sink {
public:
  /// Beyond it, the processes' pipes are left to fill up.
  static constexpr std::size_t most = std::size_t{1} << 20;

  explicit sink(int descriptor) : descriptor_(descriptor) {}

  std::string& queue() { return queue_; }
  bool waiting() const { return queue_.size() > written_; }
  bool full() const { return queue_.size() - written_ >= most; }
  bool broken() const { return broken_; }
  int why() const { return why_; }
  int descriptor() const { return descriptor_; }
  void drop() {
    queue_.clear();
    written_ = 0;
  }

  void write_some() {
    while (waiting() && !broken_) {
      pollfd ready{descriptor_, POLLOUT, 0};
      if (poll(&ready, 1, 0) <= 0) return;
      // So much a pipe takes without blocking, once it says that it is ready.
      const std::size_t length = std::min<std::size_t>(queue_.size() - written_, 4096);
      const ssize_t done = write(descriptor_, queue_.data() + written_, length);
      if (done < 0 && (errno == EINTR || errno == EAGAIN)) return;
      if (done < 0) {
        broken_ = true;
        why_ = errno;
        break;
      }
      written_ += static_cast<std::size_t>(done);
    }
    if (!waiting() || broken_) drop();
    if (written_ > most) {
      queue_.erase(0, written_);
      written_ = 0;
    }
  }

private:
  int descriptor_;
  std::string queue_;
  std::size_t written_ = 0;
  bool broken_ = false;
  int why_ = 0;
};

}  // namespace troupe::launch
