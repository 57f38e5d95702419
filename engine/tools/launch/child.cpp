// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/launch/child.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <tuple>
#include <utility>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "memory/error.hpp"

namespace troupe::launch {

namespace {

[[noreturn]] void fail(const std::string& what) { throw error(errc::io, what + ": " + std::strerror(errno)); }

/// {to read, to write}
std::pair<owned_descriptor, owned_descriptor> make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    fail("a pipe cannot be made (`ulimit -n` says how many descriptors there may be)");
  return {owned_descriptor{ends[0]}, owned_descriptor{ends[1]}};
}

void make_non_blocking(const owned_descriptor& d) { fcntl(d.get(), F_SETFL, O_NONBLOCK); }

std::vector<char*> pointers_of(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

/// What a process gets from us, ready before fork: between fork and exec nothing may allocate or lock, as other threads may have been at it.
struct inheritance {
  std::vector<char*> words, environment;
  const char* directory;     ///< null: this one
  int in, out, err, report;  ///< −1: the launcher's
  pid_t launcher;
};

[[noreturn]] void become(const inheritance& has, const held_signals& signals) {
  setpgid(0, 0);
  // The launcher may be killed without a word.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != has.launcher) _exit(127);
  bool ready = has.in < 0 || dup2(has.in, STDIN_FILENO) >= 0;
  if (has.out >= 0) ready = ready && dup2(has.out, STDOUT_FILENO) >= 0 && dup2(has.err, STDERR_FILENO) >= 0;
  else signal(SIGTTOU, SIG_IGN);  // it is in the background of the terminal that it writes to
  ready = ready && (has.directory == nullptr || chdir(has.directory) == 0);
  signals.give_back();
  if (ready) execvpe(has.words[0], has.words.data(), has.environment.data());
  const int why = errno;
  static_cast<void>(!write(has.report, &why, sizeof why));
  _exit(127);
}

}  // namespace

void owned_descriptor::reset(int number) noexcept {
  if (number_ >= 0) close(number_);
  number_ = number;
}

// -- signals --

held_signals::held_signals() {
  // A stream that was closed by our caller would give its number to a pipe.
  for (int null = open("/dev/null", O_RDWR); null >= 0; null = open("/dev/null", O_RDWR))
    if (null > STDERR_FILENO) {
      close(null);
      break;
    }
  sigset_t held;
  sigemptyset(&held);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD}) sigaddset(&held, signal);
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &pipe_before_);
  sigaction(SIGTTIN, &ignore, &input_before_);  // reading a terminal in the background then fails instead
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &usual,
            &child_before_);  // ignored, the system would take processes away before we have looked at them
  getrlimit(RLIMIT_NOFILE, &descriptors_before_);
  const rlimit all{descriptors_before_.rlim_max, descriptors_before_.rlim_max};
  setrlimit(RLIMIT_NOFILE, &all);
  pthread_sigmask(SIG_BLOCK, &held, &before_);
  descriptor_.reset(signalfd(-1, &held, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!descriptor_.open()) fail("signals cannot be read");
}

int held_signals::take() const {
  signalfd_siginfo info{};
  return read(descriptor_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

void held_signals::give_back() const noexcept {
  sigaction(SIGPIPE, &pipe_before_, nullptr);
  sigaction(SIGTTIN, &input_before_, nullptr);
  sigaction(SIGCHLD, &child_before_, nullptr);
  setrlimit(RLIMIT_NOFILE, &descriptors_before_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

// -- processes --

child start(const command& what, input_from input, const held_signals& signals) {
  owned_descriptor out_here, out_there, err_here, err_there;
  if (!what.has_our_streams) {
    std::tie(out_here, out_there) = make_pipe();
    std::tie(err_here, err_there) = make_pipe();
  }
  auto [report_here, report_there] = make_pipe();
  owned_descriptor in_here, in_there;
  if (input == input_from::pipe) std::tie(in_there, in_here) = make_pipe();
  if (input == input_from::nothing) in_there.reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const inheritance has{pointers_of(what.words),
                        pointers_of(what.environment),
                        what.directory.empty() ? nullptr : what.directory.c_str(),
                        in_there.get(),
                        out_there.get(),
                        err_there.get(),
                        report_there.get(),
                        getpid()};
  const pid_t pid = fork();
  if (pid < 0) fail("process " + std::to_string(what.rank) + " cannot be started");
  if (pid == 0) become(has, signals);
  setpgid(pid, pid);  // also here: whichever of the two comes first
  child made;
  made.pid = pid;
  made.in = std::move(in_here);
  made.out = std::move(out_here);
  made.err = std::move(err_here);
  made.report = std::move(report_here);
  for (const owned_descriptor* each : {&made.in, &made.out, &made.err})
    if (each->open()) make_non_blocking(*each);
  return made;
}

int wait_for_program(child& of) {
  int why = 0;
  ssize_t got = 0;
  while ((got = read(of.report.get(), &why, sizeof why)) < 0 && errno == EINTR) {}
  of.report.reset();
  return got == sizeof why ? why : 0;
}

}  // namespace troupe::launch
