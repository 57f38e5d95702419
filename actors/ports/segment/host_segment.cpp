// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/segment/host_segment.hpp"

#include <atomic>
#include <cerrno>
#include <ctime>
#include <string>

#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/ports/slots/slot_board.hpp"

namespace troupe::actors {

namespace {

constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr std::uint64_t magic = 0x31746e656d676573;  // "segment1"
/// Of the memory's numbers; only pages that are written to take any of it.
constexpr std::uint64_t whole = std::uint64_t{1} << 40;
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

struct host_segment::head {
  std::uint64_t magic;
  std::uint64_t next;  ///< where no region has been yet
  pthread_mutex_t mutex;
  std::uint32_t entries;  ///< that were ever in use
  std::uint32_t membarrier;
  entry of[most_regions];
};

class host_segment::lock {
public:
  explicit lock(head& of) : of_(of) {
    timespec until{};
    ::clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += most_locked_seconds;
    const int result = ::pthread_mutex_clocklock(&of.mutex, CLOCK_MONOTONIC, &until);
    if (result == EOWNERDEAD) ::pthread_mutex_consistent(&of.mutex);
    else if (result != 0) fail("is locked by a process that does not go on", result);
  }
  ~lock() { ::pthread_mutex_unlock(&of_.mutex); }
  lock(const lock&) = delete;
  lock& operator=(const lock&) = delete;

private:
  head& of_;
};

/// As mapped in this process. What is taken is counted up in the region's first word, which all share.
class host_segment::region final : public board_memory {
public:
  region(std::shared_ptr<host_segment> of, std::uint32_t which, std::uint64_t at, std::size_t bytes)
      : of_(std::move(of)), which_(which), bytes_(bytes), next_root_(alignment) {
    void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, of_->memory_.get(),
                                static_cast<off_t>(at));
    if (mapped == MAP_FAILED) {
      const int why = errno;
      of_->detach(which_);
      fail("cannot be mapped", why);
    }
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

private:
  static std::size_t padded(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }
  std::atomic<std::size_t>& taken() noexcept { return *reinterpret_cast<std::atomic<std::size_t>*>(begin_); }

  std::shared_ptr<host_segment> of_;
  std::uint32_t which_;
  std::byte* begin_ = nullptr;
  std::size_t bytes_, next_root_;
};

// -- the memory -------------------------------------------------------------------------------------------------------------

host_segment::head* host_segment::map_head(int memory) {
  void* const at = ::mmap(nullptr, sizeof(head), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (at == MAP_FAILED) fail("cannot be mapped", errno);
  return static_cast<head*>(at);
}

std::shared_ptr<host_segment> host_segment::make() {
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
  shared->next = up_to_page(sizeof(head));
  shared->membarrier = slots_have_global_membarrier() ? 1 : 0;
  shared->magic = magic;
  return made;
}

std::shared_ptr<host_segment> host_segment::take(descriptor from) {
  struct stat what {};
  const bool fits = ::fstat(from.get(), &what) == 0 && what.st_size == static_cast<off_t>(whole);
  // Who could shrink it could end the process that looks into it.
  if (!fits || (::fcntl(from.get(), F_GET_SEALS) & seals) != seals)
    throw error(errc::io, "what was passed is no memory for boards");
  head* const shared = map_head(from.get());
  std::shared_ptr<host_segment> taken{new host_segment{std::move(from), shared}};
  if (shared->magic != magic) throw error(errc::io, "what was passed is no memory for boards");
  if (shared->membarrier != 0 && !slots_have_global_membarrier())
    throw error(errc::io,
                "the system call membarrier is forbidden to this process and allowed to others of its host: allow it "
                "to all of a job, or to none");
  return taken;
}

host_segment::~host_segment() { ::munmap(shared_, sizeof(head)); }

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
    if (bytes <= whole - shared_->next) {
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

std::shared_ptr<board_memory> host_segment::attach(std::uint64_t id, std::uint32_t processes, std::size_t bytes) {
  // A little more, for the word that counts. What could never fit is refused alike by all.
  if (id == 0 || bytes > whole / 4) return nullptr;
  const std::uint64_t wanted = up_to_page(bytes + board_memory::alignment);
  std::uint64_t at = 0, size = 0;
  std::uint32_t which = 0;
  {
    const lock mine{*shared_};
    const entry* const found = find_or_make(id, processes, wanted);
    if (found == nullptr)
      throw error(errc::out_of_memory, "there are " + std::to_string(most_regions) +
                                           " communicators between the processes of this host already: let some go");
    which = static_cast<std::uint32_t>(found - shared_->of);
    at = found->at;
    size = found->bytes;
  }
  if (size != 0) return std::make_shared<region>(shared_from_this(), which, at, size);
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
