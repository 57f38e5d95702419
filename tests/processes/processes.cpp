// SPDX-License-Identifier: Apache-2.0
#include "tests/processes/processes.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <sstream>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace process_tests {

namespace {

using clock = std::chrono::steady_clock;

struct child {
  pid_t pid = 0;
  int said = -1, log = -1;
  std::string said_text, log_text;
  bool over = false;
  int status = 0;
};

/// What has come through a pipe; closes it at its end.
void drain(int& from, std::string& into) {
  for (std::array<char, 4096> some{}; from >= 0;) {
    const ssize_t got = ::read(from, some.data(), some.size());
    if (got > 0) {
      into.append(some.data(), static_cast<std::size_t>(got));
      continue;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    ::close(from);
    from = -1;
  }
}

[[noreturn]] void be_child(const member& mine, const std::function<void(const member&)>& body) {
  int status = 0;
  try {
    body(mine);
  } catch (const std::exception& e) {
    mine.say(std::string{"threw: "} + e.what());
    status = 1;
  }
  std::fflush(nullptr);
  ::_exit(status);
}

child start(const member& who, const std::function<void(const member&)>& body) {
  std::array<int, 2> said{}, log{};
  if (::pipe(said.data()) != 0 || ::pipe(log.data()) != 0) std::abort();
  child c;
  c.pid = ::fork();
  if (c.pid == 0) {
    ::dup2(log[1], STDERR_FILENO);
    ::dup2(log[1], STDOUT_FILENO);
    member mine = who;
    mine.out = said[1];
    be_child(mine, body);
  }
  ::close(said[1]);
  ::close(log[1]);
  c.said = said[0];
  c.log = log[0];
  for (const int fd : {c.said, c.log}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
  return c;
}

class running {
public:
  running(std::vector<child>& all, clock::time_point until) : all_(all), until_(until) {}

  std::size_t lines() const {
    std::size_t n = 0;
    for (const child& c : all_)
      for (const char letter : c.said_text) n += letter == '\n' ? 1 : 0;
    return n;
  }
  bool look() {
    bool any = false;
    for (child& c : all_) {
      drain(c.said, c.said_text);
      drain(c.log, c.log_text);
      if (!c.over && ::waitpid(c.pid, &c.status, WNOHANG) == c.pid) c.over = true;
      any = any || !c.over;
    }
    return any;
  }
  template <class Enough>
  bool until(Enough&& enough) {
    while (!enough()) {
      if (clock::now() > until_) return false;
      ::poll(nullptr, 0, 2);
    }
    return true;
  }

private:
  std::vector<child>& all_;
  clock::time_point until_;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream in{text};
  for (std::string line; std::getline(in, line);) all.push_back(line);
  return all;
}

}  // namespace

troupe::join_options member::how() const {
  troupe::join_options o;
  o.rendezvous = rendezvous;
  o.process = process;
  o.processes = processes;
  return o;
}

void member::say(const std::string& line) const {
  const std::string text = line + "\n";
  [[maybe_unused]] const ssize_t ignored = ::write(out, text.data(), text.size());
}

std::string new_rendezvous() {
  static int number = 0;
  return "unix:@troupe-test-" + std::to_string(::getpid()) + "-" + std::to_string(number++);
}

std::vector<ended> run_processes(int processes, const std::function<void(const member&)>& body,
                                 const std::function<void(job_control&)>& meanwhile, std::chrono::seconds limit) {
  const std::string rendezvous = new_rendezvous();
  std::vector<child> all;
  std::fflush(nullptr);
  for (int p = 0; p < processes; ++p) all.push_back(start({p, processes, rendezvous}, body));
  running job{all, clock::now() + limit};
  if (meanwhile) {
    job_control control;
    control.rendezvous = rendezvous;
    for (const child& c : all) control.pids.push_back(c.pid);
    control.wait_for_lines = [&](std::size_t lines) {
      job.until([&] {
        const bool any = job.look();
        return job.lines() >= lines || !any;
      });
    };
    meanwhile(control);
  }
  const bool in_time = job.until([&] { return !job.look(); });
  std::vector<ended> result;
  for (child& c : all) {
    ended e;
    if (!in_time && !c.over) {
      e.late = true;
      ::kill(c.pid, SIGKILL);
      ::waitpid(c.pid, &c.status, 0);
    }
    if (WIFEXITED(c.status)) e.exit = WEXITSTATUS(c.status);
    if (WIFSIGNALED(c.status)) e.signal = WTERMSIG(c.status);
    drain(c.said, c.said_text);
    drain(c.log, c.log_text);
    for (const int fd : {c.said, c.log})
      if (fd >= 0) ::close(fd);
    e.said = lines_of(c.said_text);
    e.log = c.log_text;
    result.push_back(std::move(e));
  }
  return result;
}

std::string trouble(const std::vector<ended>& all, std::optional<std::size_t> killed) {
  std::string text;
  for (std::size_t p = 0; p < all.size(); ++p) {
    const ended& e = all[p];
    if (p == killed || (e.exit == 0 && !e.late)) continue;
    text += "process " + std::to_string(p) +
            (e.late          ? " did not end"
             : e.signal != 0 ? " was ended by signal " + std::to_string(e.signal)
                             : " ended with status " + std::to_string(e.exit)) +
            "\n";
    for (const std::string& line : e.said) text += "  said: " + line + "\n";
    if (!e.log.empty()) text += "  log: " + e.log + "\n";
  }
  return text;
}

}  // namespace process_tests
