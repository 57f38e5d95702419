// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/launch/supervisor.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/tools/launch/lines.hpp"
#include "engine/tools/launch/sink.hpp"
#include "memory/error.hpp"

namespace troupe::launch {

namespace {

using clock = std::chrono::steady_clock;

struct stream {
  owned_descriptor from;
  line_stream lines;
  sink* to;
};

struct process {
  const command* what;
  bool greeted;  ///< what it writes is its program's
  pid_t pid;
  owned_descriptor in;
  std::string input;  ///< still to be written to `in`
  std::array<stream, 2> streams;
  std::string before_greeting{};
};

class supervisor {
public:
  supervisor(const supervision& how, const held_signals& signals, const guardian& guard)
      : how_(how), signals_(signals), guard_(guard) {}

  int run(const std::vector<command>& commands) {
    start_all(commands);
    while (!running_.empty() || !later_.empty() || ((out_.waiting() || err_.waiting()) && !given_up_)) {
      start_later();
      turn();
    }
    if (problem_) throw error(*problem_);
    return status();
  }

private:
  // -- beginning --

  void start_all(const std::vector<command>& commands) {
    std::vector<child> starting;
    std::vector<const command*> of;
    std::size_t checked = 0;
    try {
      for (const command& each : commands) {
        if (each.remote()) {
          later_.push_back(&each);
          continue;
        }
        starting.push_back(start(each, input_of(each), signals_));
        take(each, starting.back());
        of.push_back(&each);
        // The first one shows whether there is such a program; the others are executed side by side.
        if (starting.size() == 1 && !check(each, starting[checked++])) return;
      }
      for (; checked < starting.size(); ++checked)
        if (!check(*of[checked], starting[checked])) return;
    } catch (const error& failure) {
      problem_ = failure;
      signal_all(SIGKILL);
    }
  }

  /// A host lets only few connections be without a login at a time (sshd's MaxStartups), so that its processes are started one behind the other.
  void start_later() {
    const auto logging_in = [&](const std::string& host) {
      return std::count_if(running_.begin(), running_.end(),
                           [&](const process& p) { return !p.greeted && p.what->host == host; });
    };
    try {
      for (auto next = later_.begin(); next != later_.end();) {
        const command& what = **next;
        if (logging_in(what.host) >= most_logins) {
          ++next;
          continue;
        }
        child started = start(what, input_of(what), signals_);
        take(what, started);
        next = later_.erase(next);
        if (!check(what, started)) return;
      }
    } catch (const error& failure) {
      problem_ = failure;
      signal_all(SIGKILL);
    }
  }

  /// A terminal is read for process 0, which has a process group of its own and could not; other input it may have itself.
  input_from input_of(const command& what) {
    if (what.remote()) return input_from::pipe;
    if (what.rank != 0) return input_from::nothing;
    input_ = isatty(STDIN_FILENO) == 1;
    return input_ ? input_from::pipe : input_from::ours;
  }

  void take(const command& what, child& started) {
    guard_.watch(started.pid);
    const std::string prefix = how_.prefix ? "[" + std::to_string(what.rank) + "] " : std::string{};
    running_.push_back({&what,
                        !what.remote(),
                        started.pid,
                        std::move(started.in),
                        what.first_input,
                        {stream{std::move(started.out), line_stream{prefix}, &out_},
                         stream{std::move(started.err), line_stream{prefix}, &err_}}});
  }

  /// Whether the program could be executed. If not, the job ends.
  bool check(const command& what, child& started) {
    const int why = wait_for_program(started);
    if (why == 0) return true;
    if (!first_failure_) {
      first_failure_ = why == ENOENT || why == ENOTDIR ? 127 : 126;
      say(what.words[0] + " cannot be started: " + std::strerror(why) +
          (what.directory.empty() ? "" : " (in " + what.directory + ")"));
    }
    signal_all(SIGKILL);
    return false;
  }

  // -- the loop --

  /// Waits for something, and does what is to be done about it.
  void turn() {
    polled_.clear();
    polled_.push_back({signals_.descriptor(), POLLIN, 0});
    polled_.push_back({input_ && !running_.empty() && running_[0].input.empty() ? STDIN_FILENO : -1, POLLIN, 0});
    for (const sink* each : {&out_, &err_}) polled_.push_back({each->waiting() ? each->descriptor() : -1, POLLOUT, 0});
    for (const process& each : running_) {
      polled_.push_back({each.input.empty() ? -1 : each.in.get(), POLLOUT, 0});
      for (const stream& s : each.streams) polled_.push_back({s.to->full() ? -1 : s.from.get(), POLLIN, 0});
    }
    if (poll(polled_.data(), polled_.size(), timeout()) < 0 && errno != EINTR)
      throw error(errc::io, std::string{"poll: "} + std::strerror(errno));
    // Their streams first: signals may take processes away.
    std::size_t at = first_process;
    for (process& each : running_) {
      if (polled_[at++].revents != 0) write_input(each);
      for (stream& s : each.streams)
        if (polled_[at++].revents != 0) pass_on(each, s);
    }
    if (polled_[1].revents != 0) read_input();
    while (const int signal = signals_.take()) on_signal(signal);
    if (deadline_ && clock::now() >= *deadline_) on_deadline();
    out_.write_some();
    err_.write_some();
    if (out_.broken() || err_.broken()) close_broken();
  }

  int timeout() const {
    if (!deadline_) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - clock::now()).count();
    return static_cast<int>(std::clamp<long long>(left, 0, 60'000));
  }

  // -- streams --

  /// Up to a pipe's content; false at its end.
  static bool pass_on(process& of, stream& s) {
    static thread_local std::array<char, std::size_t{64} << 10> bytes;
    const ssize_t got = s.from.open() ? read(s.from.get(), bytes.data(), bytes.size()) : 0;
    if (got > 0) {
      const std::string_view text{bytes.data(), static_cast<std::size_t>(got)};
      if (of.greeted || &s != &of.streams[0]) s.lines.feed(text, s.to->queue());
      else wait_for_greeting(of, text);
      return true;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (s.from.open()) s.lines.finish(s.to->queue());
    s.from.reset();
    return false;
  }

  /// Lines that a login writes before are passed on as well.
  static void wait_for_greeting(process& of, std::string_view text) {
    of.before_greeting += text;
    const auto at = of.before_greeting.find(greeting);
    of.greeted = at != std::string::npos || of.before_greeting.size() > line_stream::longest;
    if (!of.greeted) return;
    if (at != std::string::npos) of.before_greeting.erase(at, greeting.size());
    stream& s = of.streams[0];
    s.lines.feed(std::exchange(of.before_greeting, {}), s.to->queue());
  }

  static void write_input(process& to) {
    const ssize_t done = to.in.open() ? write(to.in.get(), to.input.data(), to.input.size()) : -1;
    if (done >= 0) to.input.erase(0, static_cast<std::size_t>(done));
    else if (!to.in.open() || (errno != EAGAIN && errno != EINTR)) {
      to.in.reset();  // it reads no more
      to.input.clear();
    }
  }

  /// From our terminal to process 0.
  void read_input() {
    process& to = running_[0];
    std::array<char, 4096> bytes{};
    const ssize_t got = to.what->rank == 0 && to.in.open() ? read(STDIN_FILENO, bytes.data(), bytes.size()) : 0;
    if (got < 0 && errno == EINTR) return;
    if (got > 0) {
      to.input.assign(bytes.data(), static_cast<std::size_t>(got));
      return write_input(to);
    }
    input_ = false;
    if (to.what->rank == 0) to.in.reset();
  }

  /// Nobody reads what they write: they are told as they would be without us, by SIGPIPE. Of a full disk only we know, so we say it.
  void close_broken() {
    if (unwritten(out_) && !std::exchange(said_unwritten_, true))
      say(std::string{"standard output cannot be written: "} + std::strerror(out_.why()));
    for (process& each : running_)
      for (stream& s : each.streams)
        if (s.to->broken()) s.from.reset();
    for (sink* each : {&out_, &err_})
      if (each->broken()) each->drop();
  }

  /// For another reason than that nobody reads it.
  static bool unwritten(const sink& s) { return s.broken() && s.why() != EPIPE; }

  // -- signals and ends --

  void on_signal(int signal) {
    if (signal == SIGCHLD) return reap();
    if (signal == SIGUSR1 || signal == SIGUSR2) return signal_all(signal);
    if (running_.empty()) given_up_ = true;  // only our own output is left, and nobody reads it
    if (interrupted_ != 0) {
      // A sender that signals us and then our group, as timeout(1) does, has sent one signal.
      if (clock::now() - interrupted_at_ > std::chrono::milliseconds{500}) signal_all(SIGKILL);
      return;
    }
    interrupted_ = signal;
    interrupted_at_ = clock::now();
    signal_all(signal);
    asked_ = true;
    deadline_ = clock::now() + mercy();
  }

  void on_deadline() {
    deadline_ = clock::now() + mercy();
    if (asked_) {
      given_up_ = running_.empty();  // after an interrupt nobody waits for a reader
      return signal_all(SIGKILL);
    }
    say("the others have not ended; ending them");
    asked_ = true;
    signal_all(SIGTERM);
  }

  std::chrono::milliseconds mercy() const { return std::max(how_.grace, std::chrono::milliseconds{1000}); }

  void signal_all(int signal) {
    // Processes that have not begun do not begin any more.
    if (signal != SIGUSR1 && signal != SIGUSR2) later_.clear();
    for (process& each : running_) {
      if (!each.what->remote()) {
        kill(-each.pid, signal);
      } else if (signal == SIGKILL) {
        each.in.reset();  // which is KILL there
        kill(-each.pid, SIGKILL);
      } else if (each.in.open() && each.input.size() < 4096) {
        each.input += std::string{sigabbrev_np(signal)} + "\n";
        write_input(each);
      }
    }
  }

  void reap() {
    for (;;) {
      siginfo_t info{};
      // Looked at, not yet taken: until then nobody else can get its number, which is its group's.
      if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
      kill(-info.si_pid, SIGKILL);
      guard_.forget(info.si_pid);
      int ended = 0;
      waitpid(info.si_pid, &ended, 0);
      const auto found =
          std::find_if(running_.begin(), running_.end(), [&](const process& p) { return p.pid == info.si_pid; });
      if (found == running_.end()) continue;
      for (stream& s : found->streams) {
        while (pass_on(*found, s)) {}
        if (&s == found->streams.data()) s.lines.feed(std::exchange(found->before_greeting, {}), s.to->queue());
        s.lines.finish(s.to->queue());  // somebody else may hold the pipe
      }
      if (found->what->rank == 0) input_ = false;
      const command* const what = found->what;
      running_.erase(found);
      on_end(*what, ended);
      if (running_.empty() && interrupted_ == 0) deadline_.reset();  // whoever reads our output may take his time
    }
  }

  void on_end(const command& what, int ended) {
    const bool killed = WIFSIGNALED(ended);
    const int code = killed ? 128 + WTERMSIG(ended) : WEXITSTATUS(ended);
    // A process that a signal ended on another host comes back as 128 + its number (commands.cpp).
    const int signal = killed ? WTERMSIG(ended) : what.remote() && code > 128 ? code - 128 : 0;
    if (code == 0 || first_failure_ || problem_ || is_ours(signal)) return;
    first_failure_ = code;
    if (interrupted_ != 0) return;
    const bool piped = killed && WTERMSIG(ended) == SIGPIPE;
    const bool unread = piped && what.has_our_streams;  // as without a launcher: no word
    // That nobody reads any more is no news, and why we cannot write was said.
    if (!(piped && (out_.broken() || err_.broken())) && (how_.say_status || (killed && !unread))) say_end(what, ended);
    if (how_.keep_going) return;
    later_.clear();
    if (!running_.empty()) deadline_ = clock::now() + how_.grace;
  }

  /// It was passed on, or is what we send after an interrupt: no failure of the process.
  bool is_ours(int signal) const { return interrupted_ != 0 && (signal == interrupted_ || signal == SIGKILL); }

  void say_end(const command& what, int ended) {
    const bool killed = WIFSIGNALED(ended);
    const char* const name = killed ? sigdescr_np(WTERMSIG(ended)) : nullptr;
    say("process " + std::to_string(what.rank) + (what.remote() ? " on " + what.host : std::string{}) +
        (killed ? " was ended by signal " + std::to_string(WTERMSIG(ended)) +
                      (name != nullptr ? " (" + std::string{name} + ")" : "")
                : " ended with exit status " + std::to_string(WEXITSTATUS(ended))));
  }

  int status() const {
    const bool failed_to_write = unwritten(out_) || unwritten(err_);
    if (first_failure_ && !(failed_to_write && *first_failure_ == 128 + SIGPIPE)) return *first_failure_;
    if (interrupted_ != 0) return 128 + (interrupted_ == SIGTERM ? SIGINT : interrupted_);  // as every command has it
    return failed_to_write ? 3 : 0;
  }

  void say(const std::string& sentence) { err_.queue() += how_.speaker + ": " + sentence + "\n"; }

  static constexpr std::size_t first_process = 4;  // of what is polled
  static constexpr int most_logins = 8;            // of a host at a time

  const supervision& how_;
  const held_signals& signals_;
  const guardian& guard_;
  std::vector<process> running_;
  std::vector<const command*> later_;  ///< on other hosts, until there is room for their logins
  std::vector<pollfd> polled_;
  sink out_{STDOUT_FILENO}, err_{STDERR_FILENO};
  bool said_unwritten_ = false;
  bool input_ = false;  ///< our terminal is read
  int interrupted_ = 0;
  clock::time_point interrupted_at_;
  bool asked_ = false;  ///< they have been asked to end, and are killed next
  bool given_up_ = false;
  std::optional<clock::time_point> deadline_;
  std::optional<int> first_failure_;
  std::optional<error> problem_;
};

}  // namespace

int supervise(const std::vector<command>& commands, const supervision& how, const held_signals& signals,
              const guardian& guard) {
  return supervisor{how, signals, guard}.run(commands);
}

}  // namespace troupe::launch
