// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/segment/neighbour.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace troupe::actors::segment {

neighbour::~neighbour() {
  if (const int fd = handle_.load(); fd >= 0) ::close(fd);
  for (const view& v : views_)
    if (v.here != nullptr) ::munmap(v.here, v.bytes);
}

// -- whether it is there ------------------------------------------------------------------------------------------------------

neighbour::found neighbour::try_it() const {
  std::uint64_t read = 0;
  iovec mine{&read, sizeof read}, there{};
  there.iov_base = reinterpret_cast<void*>(its().nonce_at);  // NOLINT(performance-no-int-to-ptr): the other process's
  there.iov_len = sizeof read;
  const ssize_t moved = ::process_vm_readv(pid(), &mine, 1, &there, 1, 0);
  if (moved < 0 && errno != ESRCH && errno != EFAULT) return found::denied;
  return moved == static_cast<ssize_t>(sizeof read) && read == its().nonce ? found::it : found::another;
}

bool neighbour::has_ended() noexcept {
  try {
    return !is_there();
  } catch (const error&) {
    return false;
  }
}

void neighbour::end() noexcept {
  if (!has_ended() && handle_.load() >= 0) ::syscall(SYS_pidfd_send_signal, handle_.load(), SIGKILL, nullptr, 0);
}

bool neighbour::is_there() {
  if (ended_.load(std::memory_order_relaxed)) return false;
  pollfd look{handle(), POLLIN, 0};
  int ready = look.fd < 0 ? 1 : -1;
  while (ready < 0) {
    ready = ::poll(&look, 1, 0);
    if (ready < 0 && errno != EINTR) fail("needs to know whether a process has ended", errno);
  }
  if (ready > 0) ended_.store(true, std::memory_order_relaxed);
  return ready == 0;
}

/// A question to the system costs as much as copying 4 KiB. In so short a time no number of a process becomes another one's.
bool neighbour::is_there_lately() {
  constexpr std::chrono::nanoseconds lately = std::chrono::microseconds{50};
  const std::int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
  if (now - seen_at_.load(std::memory_order_relaxed) < lately.count()) return !ended_.load(std::memory_order_relaxed);
  if (!is_there()) return false;
  seen_at_.store(now, std::memory_order_relaxed);
  return true;
}

/// Made at the first copy: most processes never need one. −1: it has ended.
int neighbour::handle() {
  int fd = handle_.load(std::memory_order_acquire);
  if (fd >= 0) return fd;
  const descriptor made{static_cast<int>(::syscall(SYS_pidfd_open, pid(), 0))};
  if (!made && errno != ESRCH) refuse_handle(errno);
  const found who = made ? try_it() : found::another;
  // It let itself be read at the join, and has changed its mind since, or the system has.
  if (who == found::denied) refuse(errno);
  if (who == found::another) return -1;
  const int kept = ::fcntl(made.get(), F_DUPFD_CLOEXEC, 0);
  if (kept < 0) refuse_handle(errno);
  if (handle_.compare_exchange_strong(fd, kept, std::memory_order_acq_rel)) return kept;
  ::close(kept);
  return fd;
}

// -- copies -------------------------------------------------------------------------------------------------------------------

std::string neighbour::why_refused() const {
  const int here = refused_.load(std::memory_order_relaxed), there = its().refused.load(std::memory_order_relaxed);
  const std::string why = here != 0 ? ": " + text_of_errno(here) : there != 0 ? ": " + text_of_errno(there) : "";
  return "the system copies nothing between this process and process " + std::to_string(its().pid) +
         (here == 0 ? ", as that has found" : "") + why;
}

/// The others read it, too: they only see that this process has stopped.
void neighbour::note_refusal(int why) noexcept {
  refused_.store(why, std::memory_order_relaxed);
  of_.processes[here_].refused.store(why, std::memory_order_relaxed);
}

void neighbour::refuse(int why) {
  note_refusal(why);
  throw error(errc::io, why_refused());
}

void neighbour::refuse_handle(int why) {
  note_refusal(why);
  fail("needs a handle of another process", why);
}

bool neighbour::move(std::byte* mine, std::byte* its, std::size_t bytes, call how) {
  if (!is_there_lately()) return false;
  while (bytes > 0) {
    iovec here{mine, bytes}, there{its, bytes};
    const ssize_t moved = how(pid(), &here, 1, &there, 1, 0);
    if (moved <= 0) {
      const int why = moved < 0 ? errno : EFAULT;
      if (why == EINTR) continue;
      // Of who is ending the memory goes first.
      if (why == ESRCH) ended_.store(true, std::memory_order_relaxed);
      if (why == ESRCH || !is_there()) return false;
      refuse(why);
    }
    mine += moved, its += moved, bytes -= static_cast<std::size_t>(moved);
  }
  return true;
}

// -- what is mapped -----------------------------------------------------------------------------------------------------------

std::byte* neighbour::near(std::byte* its_address) {
  const std::uint64_t changes = its().changes.load(std::memory_order_acquire);
  if (changes == 0) return nullptr;  // it has never had any
  const std::lock_guard guard(mutex_);
  if (changes != seen_) look_again(changes);
  const auto address = reinterpret_cast<std::uint64_t>(its_address);
  const auto behind = std::upper_bound(views_.begin(), views_.end(), address,
                                       [](std::uint64_t a, const view& v) { return a < v.address; });
  if (behind == views_.begin()) return nullptr;
  view& v = *std::prev(behind);
  if (address - v.address >= v.bytes) return nullptr;
  if (v.here == nullptr) {
    void* const mapped =
        ::mmap(nullptr, v.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory_, static_cast<off_t>(v.at));
    if (mapped == MAP_FAILED) return nullptr;  // then the system copies
    ::madvise(mapped, v.bytes, MADV_HUGEPAGE);
    v.here = static_cast<std::byte*>(mapped);
  }
  return v.here + (address - v.address);
}

/// A stretch that is gone was its owner's again before: nobody works on it.
void neighbour::look_again(std::uint64_t changes) {
  std::vector<view> now;
  {
    const lock mine{of_, here_, end_lost_};
    for (std::uint32_t i = 0; i < of_.stretches; ++i)
      if (const stretch& s = of_.of[i]; s.id != 0 && s.owner == which_ + 1)
        now.push_back({s.id, s.address, s.at, s.bytes, nullptr});
  }
  std::ranges::sort(now, {}, &view::address);
  for (view& old : views_) {
    const auto same = std::ranges::find(now, old.id, &view::id);
    if (same != now.end()) same->here = old.here;
    else if (old.here != nullptr) ::munmap(old.here, old.bytes);
  }
  views_ = std::move(now);
  seen_ = changes;
}

}  // namespace troupe::actors::segment
