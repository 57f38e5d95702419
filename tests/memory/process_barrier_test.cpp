// SPDX-License-Identifier: Apache-2.0
// A barrier that the system refuses after it has worked, in a process of its own, which a seccomp filter keeps from making one.
#include "memory/process_barrier.hpp"
#include "memory/tiers/tier_heap.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <thread>
#include <vector>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace troupe;

namespace {

constexpr int right = 0, wrong = 1, cannot_be_tried = 77;

/// From now on, in every thread of this process. False: there are no filters here.
bool forbid_membarrier() {
  sock_filter steps[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                         BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{std::size(steps), steps};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

int collect_without_a_barrier() {
  std::vector<std::byte> range(1 << 20);
  tier_heap heap{range.data(), range.size()};
  std::atomic<int> phase{0};
  std::thread other{[&] {
    heap.deallocate(heap.allocate(100));
    phase = 1;
    phase.notify_all();
    phase.wait(1);
  }};
  phase.wait(0);
  const std::size_t kept = heap.use().kept;
  bool well = kept > 0;
  const bool forbidden = forbid_membarrier();
  heap.collect();
  well = well && heap.use().kept == kept;  // who knows whether the other one is at it
  well = well && !process_barrier(barrier_of::this_process) && !process_barrier_works(barrier_of::this_process);
  heap.deallocate(heap.allocate(100));
  phase = 2;
  phase.notify_all();
  other.join();  // which gives back itself
  // Threads that come from now on pass without a barrier's help, so what it keeps can be had.
  tier_heap later{range.data(), range.size()};
  later.deallocate(later.allocate(100));
  well = well && later.use().kept > 0;
  later.collect();
  well = well && later.use().kept == 0 && later.fault() == nullptr;
  return !forbidden ? cannot_be_tried : well ? right : wrong;
}

}  // namespace

TEST_CASE("where the system refuses a barrier, what other threads keep is not touched") {
  if (!process_barrier_works(barrier_of::this_process)) return;  // nobody relies on one
  CHECK(process_barrier(barrier_of::this_process));
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(collect_without_a_barrier());
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == cannot_be_tried) {
    MESSAGE("skipped: no system call can be forbidden here");
    return;
  }
  CHECK(WEXITSTATUS(status) == right);
}
