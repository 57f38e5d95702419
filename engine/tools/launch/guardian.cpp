// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/launch/guardian.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <set>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory/error.hpp"

namespace troupe::launch {

namespace {

/// Until the launcher is gone. Signals stay blocked, as the launcher has them: those of a terminal go to a session that this is not in.
[[noreturn]] void guard(int pipe) {
  setsid();
  prctl(PR_SET_NAME, "troupe guardian");
  // Nobody who waits for the end of the launcher's output is to wait for us.
  if (const int null = open("/dev/null", O_RDWR); null >= 0)
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, stream);
  std::set<pid_t> groups;
  pid_t told = 0;
  for (;;) {
    const ssize_t got = read(pipe, &told, sizeof told);  // whole: so little is written at once
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof told) break;
    if (told > 0) groups.insert(told);
    else groups.erase(-told);
  }
  for (const pid_t group : groups) kill(-group, SIGKILL);
  _exit(0);
}

}  // namespace

guardian::guardian() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    throw error(errc::io, std::string{"a pipe cannot be made: "} + std::strerror(errno));
  pipe_.reset(ends[1]);
  const owned_descriptor to_read{ends[0]};
  process_ = fork();
  if (process_ < 0) throw error(errc::io, std::string{"no process can be started: "} + std::strerror(errno));
  if (process_ != 0) return;
  pipe_.reset();
  guard(to_read.get());
}

guardian::~guardian() {
  pipe_.reset();
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {}
}

void guardian::tell(pid_t group) const noexcept {
  while (write(pipe_.get(), &group, sizeof group) < 0 && errno == EINTR) {}
}

}  // namespace troupe::launch
