// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/launch/nic_process.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors/ports/link/job_key.hpp"
#include "memory/error.hpp"

namespace troupe::launch {

namespace {

/// A name that nobody else has.
std::string new_address() {
  std::uint64_t number = 0;
  actors::fill_random(std::as_writable_bytes(std::span(&number, 1)));
  return "unix:@troupe-nicd-" + std::to_string(getpid()) + "-" + std::to_string(number);
}

[[noreturn]] void become(const std::string& program, const std::string& address, int out, pid_t launcher,
                         const held_signals& signals) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(1);  // it has ended before that
  dup2(out, STDOUT_FILENO);
  if (const int null = open("/dev/null", O_RDONLY); null >= 0) dup2(null, STDIN_FILENO);
  signals.give_back();
  execl(program.c_str(), "troupe", "nicd", "--listen", address.c_str(), nullptr);
  _exit(127);
}

/// It reports that it listens, or ends.
bool listens(int pipe) {
  std::string line;
  for (char c = 0; line.find('\n') == std::string::npos;) {
    const ssize_t got = read(pipe, &c, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got != 1) return false;
    line += c;
  }
  return line.starts_with("listens at ");
}

}  // namespace

nic_process::nic_process(const std::string& program, const held_signals& signals) : address_(new_address()) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    throw error(errc::io, std::string{"a pipe to troupe nicd cannot be made: "} + std::strerror(errno));
  const owned_descriptor from{ends[0]};
  owned_descriptor to{ends[1]};
  const pid_t launcher = getpid();
  std::fflush(nullptr);
  pid_ = fork();
  if (pid_ < 0) throw error(errc::io, std::string{"troupe nicd cannot be started: "} + std::strerror(errno));
  if (pid_ == 0) become(program, address_, to.get(), launcher, signals);
  to.reset();
  if (listens(from.get())) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  throw error(errc::io, "troupe nicd has ended before it listened");
}

/// One that has ended before was reaped with the job's processes.
nic_process::~nic_process() {
  pid_t ended = 0;
  do ended = waitpid(pid_, nullptr, WNOHANG);
  while (ended < 0 && errno == EINTR);
  if (ended != 0) return;
  kill(pid_, SIGKILL);  // nobody is left whom it serves
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {}
}

}  // namespace troupe::launch
