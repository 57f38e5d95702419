// SPDX-License-Identifier: Apache-2.0
// The system may let a process copy from and to others' memory when it joins, and no more later.

#include <doctest/doctest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/processes/processes.hpp"

using namespace process_tests;
using troupe::communicator;
using troupe::errc;

namespace {

/// As a container's manager may, at any moment. For all threads of the process, and for good. False: not here.
bool forbid_copies() {
  sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog filter{sizeof steps / sizeof *steps, steps};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0;
}

/// How `step`, which was possible before, fails when one process cannot copy any more; the others still can.
std::vector<ended> fails_without_copies(int processes, const std::function<void(communicator&)>& step) {
  return run_processes(processes, [&](const member& m) {
    troupe::engine_options options;
    options.log_level = "off";
    troupe::engine engine(options);
    communicator comm = engine.join(m.how());
    step(comm);
    comm.barrier();
    if (m.process == 0 && !forbid_copies()) m.say("not here");
    try {
      for (auto late = std::chrono::milliseconds{20};; late += std::chrono::milliseconds{20}) {
        // A rank that is late finds messages and copies them itself; for one that sleeps already its peer may copy everything. On a busy machine it takes
        // longer until one is late for sure.
        if (m.process == 0) std::this_thread::sleep_for(late);
        step(comm);
      }
    } catch (const troupe::error& e) {
      m.say((e.code_value() == errc::io ? "io " : "another error ") + std::string{e.what()});
    }
  });
}

void check_refused(const std::vector<ended>& all) {
  CHECK(trouble(all) == "");
  bool told = false;
  for (const ended& e : all) {
    if (!e.said.empty() && e.said.front() == "not here") {
      MESSAGE("system calls cannot be forbidden here");
      return;
    }
    REQUIRE_FALSE(e.said.empty());  // behind the first line: what lanes lacked
    told = told || e.said[0].find("the system copies nothing between this process and process") != std::string::npos;
  }
  CHECK(told);
}

}  // namespace

TEST_CASE("sends fail on both sides when a process may not copy any more") {
  // Longer than what is staged, so that the system has to copy it.
  for (const std::size_t count : {5'000'000u, 8'000'000u})
    check_refused(fails_without_copies(2, [&](communicator& comm) {
      std::vector<int> out(count, comm.rank()), in(count, -1);
      comm.send_recv(out, 1 - comm.rank(), in, 1 - comm.rank());
      if (in != std::vector<int>(count, 1 - comm.rank())) throw std::runtime_error("wrong bytes");
    }));
}

TEST_CASE("collectives fail on all ranks when a process may not copy any more") {
  for (const int processes : {2, 3})
    check_refused(fails_without_copies(processes, [&](communicator& comm) {
      std::vector<int> data(1'000'000, 1);
      comm.all_reduce(data, troupe::sum);
      if (data != std::vector<int>(data.size(), comm.size())) throw std::runtime_error("wrong bytes");
    }));
}

TEST_CASE("parts fail on all ranks when a process may not copy any more") {
  check_refused(fails_without_copies(2, [&](communicator& comm) {
    std::vector<int> in(60'000, comm.rank()), out(120'000, -1);
    troupe::partitioned gather = comm.all_gather_init(in, out, troupe::partitions(3));
    gather.start();
    for (const int p : {2, 0, 1}) gather.ready(p);
    gather.wait();
    if (out.front() != 0 || out.back() != 1) throw std::runtime_error("wrong bytes");
  }));
}

TEST_CASE("where a process may never copy, parts go by frames, as soon as they are ready") {
  const auto ended = run_processes(3, [](const member& m) {
    if (m.process == 1 && !forbid_copies()) m.say("not here");
    troupe::engine engine;
    communicator comm = engine.join(m.how());
    std::vector<int> in(1000), out(3000);
    troupe::partitioned gather =
        comm.all_gather_init(in, out, troupe::partitions(2), {.deadline = std::chrono::seconds{20}});
    for (int round = 0; round < 5; ++round) {
      std::fill(in.begin(), in.end(), 10 * round + comm.rank());
      gather.start();
      gather.ready(1);
      for (int r = 0; r < 3; ++r) {
        const auto part = gather.next_arrived();
        if (!part || *part % 2 != 1) throw std::runtime_error("part 1 of each rank must come, and nothing else");
        if (out[static_cast<std::size_t>(*part) * 500 + 499] != 10 * round + *part / 2)
          throw std::runtime_error("wrong bytes");
      }
      gather.ready(0);
      gather.wait();
    }
  });
  CHECK(trouble(ended) == "");
  for (const auto& e : ended)
    if (!e.said.empty()) MESSAGE("system calls cannot be forbidden here");
}

TEST_CASE("what all map needs no copies") {
  const auto ended = run_processes(3, [](const member& m) {
    troupe::engine engine;
    communicator comm = engine.join(m.how());
    const int n = comm.size(), me = comm.rank();
    if (!forbid_copies()) return m.say("not here");
    for (int round = 0; round < 10; ++round) {
      troupe::vector<int> data(1'000'000, round + me, engine), in(data.size(), -1, engine);
      comm.send_recv(data, (me + 1) % n, in, (me + n - 1) % n);
      if (in.back() != round + (me + n - 1) % n) throw std::runtime_error("a ring's bytes");
      troupe::vector<int> all(3'000'000, -1, engine);
      troupe::partitioned gather = comm.all_gather_init(data, all, troupe::partitions(7));
      gather.start();
      for (int p = 0; p < 7; ++p) gather.ready(p);
      gather.wait();
      for (int r = 0; r < n; ++r)
        if (all[static_cast<std::size_t>(r) * 1'000'000 + 999'999] != round + r)
          throw std::runtime_error("a part's bytes");
      comm.all_reduce(data, troupe::sum);
      if (data.front() != 3 * round + 3 || data.back() != 3 * round + 3) throw std::runtime_error("a wrong sum");
    }
  });
  CHECK(trouble(ended) == "");
  for (const auto& e : ended)
    if (!e.said.empty()) MESSAGE("system calls cannot be forbidden here");
}
