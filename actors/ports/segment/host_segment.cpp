// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/segment/host_segment.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <set>
#include <string>
#include <thread>

#include <fcntl.h>
#include <linux/falloc.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "actors/ports/link/job_key.hpp"
#include "actors/ports/slots/slot_board.hpp"

namespace troupe::actors {

namespace {

constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr std::uint64_t magic = 0x31746e656d676573;  // "segment1"
/// Of the memory's numbers; only pages that are written to take any of it. Less where processes may not have such files (`ulimit -f`).
constexpr std::uint64_t most_whole = std::uint64_t{1} << 46;
constexpr std::uint64_t page = 64 * 1024;  ///< as large as any system's
/// A region is changed in microseconds. Whoever holds the lock for so long was stopped.
constexpr std::time_t most_locked_seconds = 10;

constexpr std::uint64_t up_to_page(std::uint64_t bytes) { return (bytes + page - 1) / page * page; }

[[noreturn]] void fail(const char* what, int error) {
  throw troupe::error(errc::io,
                      std::string{"the memory that processes of a host share "} + what + ": " + text_of_errno(error));
}

}  // namespace

struct host_segment::entry {
  std::uint64_t id;         ///< 0: free, though it may have a place; written last
  std::uint64_t at, bytes;  ///< 0: there was no room, which all find
  std::uint32_t left;       ///< processes that have not given it back
};

/// What a process says of itself when it comes.
struct host_segment::place {
  std::int64_t pid;
  std::uint64_t nonce_at, nonce;
};

struct host_segment::head {
  std::uint64_t magic;
  std::atomic<std::uint32_t> came, tried, denied;
  std::uint64_t whole;
  std::uint64_t next;  ///< where no region has been yet
  pthread_mutex_t mutex;
  std::uint32_t entries;  ///< that were ever in use
  std::uint32_t membarrier;
  place processes[most_processes];
  entry of[most_regions];
};

/// Another process. Any thread.
class host_segment::neighbour {
public:
  explicit neighbour(const place& at) : at_(at) {}
  ~neighbour() {
    if (const int fd = handle_.load(); fd >= 0) ::close(fd);
  }
  neighbour(const neighbour&) = delete;
  neighbour& operator=(const neighbour&) = delete;

  /// See process_memory.
  bool read(std::byte* to, const std::byte* from, std::size_t bytes) {
    return move(to, const_cast<std::byte*>(from), bytes, &::process_vm_readv);
  }
  bool write(std::byte* to, const std::byte* from, std::size_t bytes) {
    return move(const_cast<std::byte*>(from), to, bytes, &::process_vm_writev);
  }
  std::string why_refused() const {
    const int why = refused_.load(std::memory_order_relaxed);
    return "the system copies nothing between this process and process " + std::to_string(at_.pid) +
           (why == 0 ? ", as that has found" : ": " + text_of_errno(why));
  }
  enum class found : std::uint8_t { it, another, denied };
  /// Whether copies from it are allowed, and it is the one that has said so. `denied`: why is in `errno`.
  found try_it() const {
    std::uint64_t read = 0;
    iovec mine{&read, sizeof read}, its{};
    its.iov_base = reinterpret_cast<void*>(at_.nonce_at);  // NOLINT(performance-no-int-to-ptr): the other process's
    its.iov_len = sizeof read;
    const ssize_t moved = ::process_vm_readv(pid(), &mine, 1, &its, 1, 0);
    if (moved < 0 && errno != ESRCH && errno != EFAULT) return found::denied;
    return moved == static_cast<ssize_t>(sizeof read) && read == at_.nonce ? found::it : found::another;
  }
  /// False also where the system does not say.
  bool has_ended() noexcept {
    try {
      return !is_there();
    } catch (const error&) {
      return false;
    }
  }
  void end() noexcept {
    if (!has_ended() && handle_.load() >= 0) ::syscall(SYS_pidfd_send_signal, handle_.load(), SIGKILL, nullptr, 0);
  }

private:
  using call = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);

  pid_t pid() const { return static_cast<pid_t>(at_.pid); }
  bool is_there() {
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
  /// Made at the first copy: most processes never need one. −1: it has ended.
  int handle() {
    int fd = handle_.load(std::memory_order_acquire);
    if (fd >= 0) return fd;
    const descriptor made{static_cast<int>(::syscall(SYS_pidfd_open, pid(), 0))};
    if (!made && errno != ESRCH) fail("needs a handle of another process", errno);
    const found who = made ? try_it() : found::another;
    // It let itself be read at the join, and has changed its mind since, or the system has.
    if (who == found::denied) refuse(errno);
    if (who == found::another) return -1;
    const int kept = ::fcntl(made.get(), F_DUPFD_CLOEXEC, 0);
    if (kept < 0) fail("needs a handle of another process", errno);
    if (handle_.compare_exchange_strong(fd, kept, std::memory_order_acq_rel)) return kept;
    ::close(kept);
    return fd;
  }
  [[noreturn]] void refuse(int why) {
    refused_.store(why, std::memory_order_relaxed);
    throw error(errc::io, why_refused());
  }
  bool move(std::byte* mine, std::byte* its, std::size_t bytes, call how) {
    if (!is_there()) return false;
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

  const place at_;
  std::atomic<int> handle_{-1};
  std::atomic<bool> ended_{false};
  std::atomic<int> refused_{0};
};

class host_segment::lock {
public:
  explicit lock(head& of) : of_(of) {
    timespec until{};
    ::clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += most_locked_seconds;
#if defined(TROUPE_SLOTS_UNDER_TSAN)  // which does not see the other call
    const int result = ::pthread_mutex_lock(&of.mutex);
#else
    const int result = ::pthread_mutex_clocklock(&of.mutex, CLOCK_MONOTONIC, &until);
#endif
    if (result == EOWNERDEAD) ::pthread_mutex_consistent(&of.mutex);
    else if (result != 0) fail("is locked by a process that does not go on", result);
  }
  ~lock() { ::pthread_mutex_unlock(&of_.mutex); }
  lock(const lock&) = delete;
  lock& operator=(const lock&) = delete;

private:
  head& of_;
};

/// As mapped in this process; detached with it, if it could be made. What is taken is counted up in the region's first word, which all share.
class host_segment::region final : public board_memory, private process_memory {
public:
  region(std::shared_ptr<host_segment> of, std::uint32_t which, std::uint64_t at, std::size_t bytes,
         std::vector<std::uint32_t> processes)
      : of_(std::move(of)), which_(which), bytes_(bytes), next_root_(alignment), process_of_(std::move(processes)) {
    void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, of_->memory_.get(),
                                static_cast<off_t>(at));
    if (mapped == MAP_FAILED) fail("cannot be mapped", errno);
    begin_ = static_cast<std::byte*>(mapped);
  }
  ~region() override {
    ::munmap(begin_, bytes_);
    of_->detach(which_);
  }

  bool between_processes() const noexcept override { return true; }
  bool has_membarrier() const noexcept override { return of_->shared_->membarrier != 0; }
  void* root(std::size_t bytes) override {
    std::byte* const at = begin_ + next_root_;
    next_root_ += padded(bytes);
    if (next_root_ > bytes_) throw error(errc::out_of_memory, "a communicator's boards do not fit into their region");
    return at;
  }
  void* take(std::size_t bytes) noexcept override {
    const std::size_t room = bytes_ - next_root_, wanted = padded(bytes);
    std::size_t used = taken().load(std::memory_order_relaxed);
    do
      if (wanted > room - used) return nullptr;
    while (!taken().compare_exchange_weak(used, used + wanted, std::memory_order_relaxed));
    return begin_ + next_root_ + used;
  }
  /// Others may have taken more meanwhile; regions are so large that it may stay.
  void give_back(void*) noexcept override {}
  process_memory* peers() noexcept override { return of_->copies() ? this : nullptr; }

private:
  neighbour& process_of(rank_t rank) const { return *of_->neighbours_[process_of_[static_cast<std::size_t>(rank)]]; }
  bool is_here(rank_t rank) const noexcept override {
    return process_of_[static_cast<std::size_t>(rank)] == of_->here_;
  }
  bool read(rank_t of, std::byte* to, const std::byte* from, std::size_t bytes) override {
    return process_of(of).read(to, from, bytes);
  }
  bool write(rank_t of, std::byte* to, const std::byte* from, std::size_t bytes) override {
    return process_of(of).write(to, from, bytes);
  }
  std::string why_refused(rank_t of) const override { return process_of(of).why_refused(); }
  bool has_ended(rank_t which) override { return !is_here(which) && process_of(which).has_ended(); }
  bool is_lost(rank_t which) const noexcept override {
    return of_->lost_[process_of_[static_cast<std::size_t>(which)]].load(std::memory_order_relaxed);
  }
  void end(rank_t which) override { process_of(which).end(); }

  static std::size_t padded(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }
  std::atomic<std::size_t>& taken() noexcept { return *reinterpret_cast<std::atomic<std::size_t>*>(begin_); }

  std::shared_ptr<host_segment> of_;
  std::uint32_t which_;
  std::byte* begin_ = nullptr;
  std::size_t bytes_, next_root_;
  std::vector<std::uint32_t> process_of_;  ///< by rank
};

// -- the memory -------------------------------------------------------------------------------------------------------------

host_segment::host_segment(descriptor memory, head* shared) : memory_(std::move(memory)), shared_(shared) {}

host_segment::head* host_segment::map_head(int memory) {
  void* const at = ::mmap(nullptr, sizeof(head), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (at == MAP_FAILED) fail("cannot be mapped", errno);
  return static_cast<head*>(at);
}

std::shared_ptr<host_segment> host_segment::make() {
  // Beyond its limit a file does not grow: the process ends.
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  const std::uint64_t whole = std::min<std::uint64_t>(most_whole, limit.rlim_cur) / page * page;
  if (whole < up_to_page(sizeof(head))) fail("would be larger than the process's files may be (ulimit -f)", EFBIG);
  descriptor memory{::memfd_create("troupe-boards", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  if (!memory || ::ftruncate(memory.get(), static_cast<off_t>(whole)) != 0 ||
      ::fcntl(memory.get(), F_ADD_SEALS, seals) != 0)
    fail("cannot be made", errno);
  head* const shared = map_head(memory.get());
  std::shared_ptr<host_segment> made{new host_segment{std::move(memory), shared}};
  pthread_mutexattr_t how;
  ::pthread_mutexattr_init(&how);
  ::pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
  const int problem = ::pthread_mutex_init(&shared->mutex, &how);
  ::pthread_mutexattr_destroy(&how);
  if (problem != 0) fail("cannot be locked", problem);
  shared->whole = whole;
  shared->next = up_to_page(sizeof(head));
  shared->membarrier = slots_have_global_membarrier() ? 1 : 0;
  shared->magic = magic;
  return made;
}

std::shared_ptr<host_segment> host_segment::take(descriptor from) {
  struct stat what {};
  const bool fits =
      ::fstat(from.get(), &what) == 0 && what.st_size >= static_cast<off_t>(sizeof(head)) && what.st_size % page == 0;
  // Who could shrink it could end the process that looks into it.
  if (!fits || (::fcntl(from.get(), F_GET_SEALS) & seals) != seals)
    throw error(errc::io, "what was passed is no memory for boards");
  head* const shared = map_head(from.get());
  std::shared_ptr<host_segment> taken{new host_segment{std::move(from), shared}};
  if (shared->magic != magic || shared->whole != static_cast<std::uint64_t>(what.st_size))
    throw error(errc::io, "what was passed is no memory for boards");
  if (shared->membarrier != 0 && !slots_have_global_membarrier())
    throw error(errc::io,
                "the system call membarrier is forbidden to this process and allowed to others of its host: allow it "
                "to all of a job, or to none");
  return taken;
}

host_segment::~host_segment() { ::munmap(shared_, sizeof(head)); }

// -- processes --------------------------------------------------------------------------------------------------------------

void host_segment::meet(std::uint32_t here, std::uint32_t processes, std::chrono::steady_clock::time_point until,
                        const std::function<bool()>& alone) {
  using namespace std::chrono;
  if (processes > most_processes)
    throw error(errc::unsupported, "join: " + std::to_string(processes) + " processes on one host; at most " +
                                       std::to_string(most_processes) + " share its memory");
  const auto wait_for_all = [&](const std::atomic<std::uint32_t>& count, const char* what) {
    // Once in a process's life, and most have come by then.
    for (microseconds nap{20}; count.load() < processes; nap = std::min(2 * nap, microseconds{1000})) {
      if (alone())
        throw error(errc::peer_lost, std::string{"join: a process of this host was lost before it had "} + what);
      if (steady_clock::now() >= until)
        throw error(errc::timed_out, "join: of " + std::to_string(processes) + " processes of this host only " +
                                         std::to_string(count.load()) + " have " + what);
      std::this_thread::sleep_for(nap);
    }
  };
  here_ = here;
  fill_random(std::as_writable_bytes(std::span(&nonce_, 1)));
  shared_->processes[here] = {::getpid(), reinterpret_cast<std::uint64_t>(&nonce_), nonce_};
  shared_->came.fetch_add(1);
  wait_for_all(shared_->came, "mapped its memory");
  for (std::uint32_t p = 0; p < processes; ++p) {
    neighbours_.push_back(p == here ? nullptr : std::make_unique<neighbour>(shared_->processes[p]));
    if (p != here && shared_->denied.load() == 0 && neighbours_.back()->try_it() != neighbour::found::it)
      shared_->denied.store(1);
  }
  shared_->tried.fetch_add(1);
  wait_for_all(shared_->tried, "tried to read the others' memory");
}

bool host_segment::copies() const noexcept { return !neighbours_.empty() && shared_->denied.load() == 0; }

// -- regions ----------------------------------------------------------------------------------------------------------------

/// Null: all entries are in use. @pre locked
host_segment::entry* host_segment::find_or_make(std::uint64_t id, std::uint32_t processes, std::size_t bytes) {
  entry *free = nullptr, *fits = nullptr;
  for (std::uint32_t i = 0; i < shared_->entries; ++i) {
    entry& e = shared_->of[i];
    if (e.id == id) return &e;
    if (e.id != 0) continue;
    if (e.bytes == 0) free = &e;
    else if (e.bytes >= bytes && (fits == nullptr || e.bytes < fits->bytes)) fits = &e;
  }
  if (fits == nullptr) {
    fits = free;
    if (fits == nullptr && shared_->entries < most_regions) fits = &shared_->of[shared_->entries++];
    if (fits == nullptr) return nullptr;
    if (bytes <= shared_->whole - shared_->next) {
      fits->at = shared_->next;
      shared_->next += bytes;
      fits->bytes = bytes;
    }
  }
  fits->left = processes;
  std::atomic_signal_fence(std::memory_order_seq_cst);  // for whoever takes the lock over
  fits->id = id;
  return fits;
}

std::shared_ptr<board_memory> host_segment::attach(std::uint64_t id, std::vector<std::uint32_t> processes,
                                                   std::size_t bytes) {
  // A little more, for the word that counts. What could never fit is refused alike by all.
  if (id == 0 || bytes > shared_->whole / 4) return nullptr;
  const std::uint64_t wanted = up_to_page(bytes + board_memory::alignment);
  std::uint64_t at = 0, size = 0;
  std::uint32_t which = 0;
  {
    const std::set<std::uint32_t> different(processes.begin(), processes.end());
    const lock mine{*shared_};
    const entry* const found = find_or_make(id, static_cast<std::uint32_t>(different.size()), wanted);
    if (found == nullptr)
      throw error(errc::out_of_memory, "there are " + std::to_string(most_regions) +
                                           " communicators between the processes of this host already: let some go");
    which = static_cast<std::uint32_t>(found - shared_->of);
    at = found->at;
    size = found->bytes;
  }
  try {
    if (size != 0) return std::make_shared<region>(shared_from_this(), which, at, size, std::move(processes));
  } catch (...) {
    detach(which);
    throw;
  }
  detach(which);
  return nullptr;
}

/// The last one's pages go back to the system, so whoever has the place next finds zeros.
void host_segment::detach(std::uint32_t which) noexcept {
  try {
    const lock mine{*shared_};
    entry& e = shared_->of[which];
    if (e.left == 0 || --e.left > 0) return;
    if (e.bytes != 0 && ::fallocate(memory_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(e.at),
                                    static_cast<off_t>(e.bytes)) != 0)
      return;  // it stays as it is, and nobody's
    e.id = 0;
  } catch (const error&) {  // nor here
  }
}

std::uint32_t host_segment::regions() const {
  const lock mine{*shared_};
  std::uint32_t used = 0;
  for (std::uint32_t i = 0; i < shared_->entries; ++i)
    if (shared_->of[i].id != 0) ++used;
  return used;
}

}  // namespace troupe::actors
