// SPDX-License-Identifier: Apache-2.0
// Jobs of several processes for as long as you like, with failures, and the memory that each process then has.
//   process_soak MINUTES [PROCESSES, 3 or more, default 4]
// All processes but the last live as long as the program. They join job after job; in each they perform random collectives, sends and splits,
// calls that differ on purpose and deadlines that pass; then the last process ends itself in the middle of a collective, the others shrink, go
// on without it, and leave. A new one takes its place in the next job. Exit code 1 if a result was wrong, a process failed, or one has grown
// since the first job and the first fifth of the time: its heap between jobs by more than 1 KiB, or its resident memory by more than a
// tenth and 8 MiB.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "bench/harness/counted_heap.hpp"
#include "engine/api/troupe.hpp"

namespace {

using clock_type = std::chrono::steady_clock;
using troupe::communicator;
using troupe::errc;

struct soak {
  double minutes = 0;
  int processes = 4;
  pid_t parent = 0;
  clock_type::time_point begun;

  double seconds() const { return std::chrono::duration<double>(clock_type::now() - begun).count(); }
  double limit() const { return minutes * 60; }
};

constexpr int operations_of_a_job = 300, operations_without = 30;

long resident_kib() {
  long pages = 0, resident = 0;
  std::ifstream{"/proc/self/statm"} >> pages >> resident;
  return resident * (::sysconf(_SC_PAGESIZE) / 1024);
}

void expect(bool right, const std::string& what) {
  if (!right) throw std::runtime_error(what);
}

errc code_of(const auto& call) {
  try {
    call();
    return errc::ok;
  } catch (const troupe::error& e) {
    return e.code_value();
  }
}

/// One operation, which the draw says; the same on all ranks.
void perform(communicator& comm, std::mt19937_64& draw) {
  const auto below = [&](std::uint64_t n) { return static_cast<std::size_t>(draw() % n); };
  const auto n = static_cast<std::size_t>(comm.size()), r = static_cast<std::size_t>(comm.rank());
  const std::size_t count = std::size_t{1} << below(17);
  const auto root = static_cast<int>(below(n));
  std::vector<std::int64_t> data(count * n, static_cast<std::int64_t>(r) + 1), all(count * n);
  const auto sum = static_cast<std::int64_t>(n * (n + 1) / 2);
  switch (below(8)) {
    case 0:
    case 1: comm.all_reduce(data, all, troupe::sum); return expect(all.back() == sum, "a wrong all_reduce");
    case 2:
      comm.all_gather(std::vector<std::int64_t>(count, data[0]), all);
      return expect(all.back() == static_cast<std::int64_t>(n) && all.front() == 1, "a wrong all_gather");
    case 3: comm.broadcast(data, root); return expect(data.back() == root + 1, "a wrong broadcast");
    case 4: comm.all_to_all(data, all); return expect(all.back() == static_cast<std::int64_t>(n), "a wrong all_to_all");
    case 5: {
      const int next = static_cast<int>((r + 1) % n), before = static_cast<int>((r + n - 1) % n);
      troupe::request sent = comm.send_async(data, next);
      comm.recv(all, before);
      sent.wait();
      return expect(all.back() == before + 1, "a wrong message");
    }
    case 6: {
      communicator part = comm.split(static_cast<int>(r % 2), comm.rank());
      part.all_reduce(data, troupe::maximum);
      const auto largest = static_cast<std::int64_t>(n - (n - 1 - r) % 2);
      return expect(data.back() == largest, "a wrong part");
    }
    default: {
      const errc code = code_of([&] {
        if (static_cast<int>(r) == root) comm.all_reduce(data, all, troupe::maximum);
        else comm.all_reduce(data, all, troupe::sum);
      });
      expect(code == errc::mismatch, "no mismatch");
      return comm.barrier();
    }
  }
}

/// Whether there is to be another job.
bool do_job(const soak& how, int process, std::uint64_t number, bool more) {
  troupe::engine_options quiet;
  quiet.log_level = "off";
  troupe::engine engine{quiet};
  troupe::join_options where;
  where.rendezvous = "unix:@troupe-soak-" + std::to_string(how.parent) + "-" + std::to_string(number);
  where.process = process;
  where.processes = how.processes;
  communicator comm = engine.join(where);
  std::uint64_t goes_on = more ? 1 : 0;
  comm.broadcast(goes_on, 0);
  std::mt19937_64 draw{number};
  for (int i = 0; i + 1 < operations_of_a_job; ++i) perform(comm, draw);
  // The last process may be gone while others are still in the last operation that it has performed.
  const errc last = code_of([&] { perform(comm, draw); });
  expect(last == errc::ok || (goes_on != 0 && last == errc::peer_lost), "the last operation failed");
  if (goes_on == 0) return false;
  if (process == how.processes - 1) {
    std::vector<double> lost(1 << 18);
    troupe::request never = comm.all_reduce_async(lost, troupe::sum);
    ::kill(::getpid(), SIGKILL);
  }
  draw.seed(number + 1);  // whoever did not finish the last operation has drawn less
  std::vector<double> data(1 << 18);
  while (code_of([&] { comm.all_reduce(data, troupe::sum); }) == errc::ok) {}
  comm = comm.shrink({.deadline = std::chrono::seconds{30}});
  expect(comm.size() == how.processes - 1, "another number of survivors");
  for (int i = 0; i < operations_without; ++i) perform(comm, draw);
  return true;
}

/// The same on a thread of its own: what the library keeps for a thread's next messages ends with it.
bool do_job_and_forget(const soak& how, int process, std::uint64_t number, bool more) {
  std::exception_ptr thrown;
  std::thread job{[&] {
    try {
      more = do_job(how, process, number, more);
    } catch (...) {
      thrown = std::current_exception();
    }
  }};
  job.join();
  if (thrown) std::rethrow_exception(thrown);
  return more;
}

/// A process that stays: prints its memory, and looks at the end whether it has grown.
int stay(const soak& how, int process) {
  long settled = 0, last = 0;
  std::size_t settled_heap = 0, heap = 0;
  double said = -1e9;
  const double every = std::clamp(how.limit() / 20, 5.0, 60.0);
  std::uint64_t number = 0;
  for (bool more = true; more; ++number) {
    more = do_job_and_forget(how, process, number, how.seconds() < how.limit());
    last = resident_kib();
    heap = bench::heap_use();
    if (number == 0 || how.seconds() < how.limit() / 5)
      settled = std::max(settled, last), settled_heap = std::max(settled_heap, heap);
    if (how.seconds() - said < every && more) continue;
    said = how.seconds();
    std::printf("%8.0f s  process %d  %8llu jobs  %8ld KiB resident  %9zu B of heap\n", said, process,
                static_cast<unsigned long long>(number + 1), last, heap);
    std::fflush(stdout);
  }
  const bool resident_grew = last > settled + settled / 10 + 8 * 1024, heap_grew = heap > settled_heap + 1024;
  if (resident_grew) std::printf("process %d has grown from %ld to %ld KiB\n", process, settled, last);
  if (heap_grew) std::printf("process %d: its heap has grown from %zu to %zu B\n", process, settled_heap, heap);
  return resident_grew || heap_grew ? 1 : 0;
}

pid_t start(const auto& body) {
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) std::perror("process_soak: fork"), std::exit(1);
  if (pid > 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  int status = 1;
  try {
    status = body();
  } catch (const std::exception& e) {
    std::printf("process %d: %s\n", static_cast<int>(::getpid()), e.what());
  }
  std::fflush(nullptr);
  ::_exit(status);
}

}  // namespace

int main(int count, char** arguments) {
  soak how;
  if (count >= 2) how.minutes = std::atof(arguments[1]);
  if (count >= 3) how.processes = std::atoi(arguments[2]);
  if (count < 2 || count > 3 || !(how.minutes > 0) || how.processes < 3 || how.processes > 64) {
    std::fprintf(stderr, "usage: process_soak MINUTES [PROCESSES]: minutes above 0, and 3 to 64 processes\n");
    return 2;
  }
  how.parent = ::getpid();
  how.begun = clock_type::now();
  std::vector<pid_t> staying;
  for (int p = 0; p + 1 < how.processes; ++p) staying.push_back(start([&] { return stay(how, p); }));
  // This process makes no engine, so it has one thread when it forks the next victim.
  int worst = 0, status = 0;
  for (std::uint64_t number = 0;; ++number) {
    const pid_t victim = start([&] { return do_job(how, how.processes - 1, number, true) ? 1 : 0; });
    ::waitpid(victim, &status, 0);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) continue;
    worst = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    break;
  }
  for (const pid_t pid : staying) {
    ::waitpid(pid, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  std::printf("%s\n", worst == 0 ? "nothing was wrong, and nothing has grown" : "something was wrong");
  return worst;
}
