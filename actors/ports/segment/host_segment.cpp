// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/segment/host_segment.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <set>
#include <string>
#include <utility>

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/ports/link/job_key.hpp"
#include "actors/ports/segment/neighbour.hpp"
#include "actors/ports/segment/segment_table.hpp"
#include "actors/ports/slots/slot_board.hpp"
#include "actors/waiting/napping.hpp"

namespace troupe::actors {

using namespace segment;

namespace {

constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
/// Of the memory's numbers; only pages that are written to take any of it. Less where processes may not have such files (`ulimit -f`).
constexpr std::uint64_t most_whole = std::uint64_t{1} << 46;
}  // namespace

/// As mapped in this process; detached with it, if it could be made. The region's first word, which all share, counts how much is taken.
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
  const copy_costs& costs() const noexcept override { return of_->shared_->costs; }
  bool shares(const std::byte* mine) const noexcept override { return of_->lies_here(mine); }
  std::byte* lend(std::size_t bytes) noexcept override {
    try {
      return of_->lend(bytes);
    } catch (const std::exception&) {  // a process that was stopped holds the lock, or there is no memory
      return nullptr;
    }
  }
  void take_back(std::byte* lent) noexcept override { of_->take_back(lent); }
  std::byte* near(rank_t of, std::byte* its) override { return is_here(of) ? its : process_of(of).near(its); }
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

host_segment::host_segment(descriptor memory, table* shared)
    : memory_(std::move(memory)), shared_(shared), lost_(most_processes), end_lost_([this] { end_lost(); }) {}

table* host_segment::map_table(int memory) {
  void* const at = ::mmap(nullptr, sizeof(table), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (at == MAP_FAILED) fail("cannot be mapped", errno);
  return static_cast<table*>(at);
}

std::shared_ptr<host_segment> host_segment::make(const copy_costs& costs) {
  // Beyond its limit a file does not grow: the process ends.
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  const std::uint64_t whole = std::min<std::uint64_t>(most_whole, limit.rlim_cur) / page * page;
  if (whole < up_to_page(sizeof(table))) fail("would be larger than the process's files may be (ulimit -f)", EFBIG);
  descriptor memory{::memfd_create("troupe-boards", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  if (!memory || ::ftruncate(memory.get(), static_cast<off_t>(whole)) != 0 ||
      ::fcntl(memory.get(), F_ADD_SEALS, seals) != 0)
    fail("cannot be made", errno);
  table* const shared = map_table(memory.get());
  std::shared_ptr<host_segment> made{new host_segment{std::move(memory), shared}};
  pthread_mutexattr_t how;
  ::pthread_mutexattr_init(&how);
  ::pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
  const int problem = ::pthread_mutex_init(&shared->mutex, &how);
  ::pthread_mutexattr_destroy(&how);
  if (problem != 0) fail("cannot be locked", problem);
  shared->whole = whole;
  shared->next = up_to_page(sizeof(table));
  shared->membarrier = slots_have_global_membarrier() ? 1 : 0;
  shared->costs = costs;
  shared->magic = magic;
  return made;
}

std::shared_ptr<host_segment> host_segment::take(descriptor from) {
  struct stat what {};
  const bool fits = ::fstat(from.get(), &what) == 0 && what.st_size >= static_cast<off_t>(sizeof(table)) &&
                    static_cast<std::uint64_t>(what.st_size) % page == 0;
  // Sealed: a process that could shrink the memory could end the one that reads it.
  if (!fits || (::fcntl(from.get(), F_GET_SEALS) & seals) != seals)
    throw error(errc::io, "what was passed is no memory for boards");
  table* const shared = map_table(from.get());
  std::shared_ptr<host_segment> taken{new host_segment{std::move(from), shared}};
  if (shared->magic != magic || shared->whole != static_cast<std::uint64_t>(what.st_size))
    throw error(errc::io, "what was passed is no memory for boards");
  if (shared->membarrier != 0 && !slots_have_global_membarrier())
    throw error(errc::io,
                "the system call membarrier is forbidden to this process and allowed to others of its host: allow it "
                "to all of a job, or to none");
  return taken;
}

host_segment::~host_segment() { ::munmap(shared_, sizeof(table)); }

// -- processes --------------------------------------------------------------------------------------------------------------

void host_segment::meet(std::uint32_t here, std::uint32_t processes, std::chrono::steady_clock::time_point until,
                        const std::function<bool()>& alone) {
  using namespace std::chrono;
  if (processes > most_processes)
    throw error(errc::unsupported, "join: " + std::to_string(processes) + " processes on one host; at most " +
                                       std::to_string(most_processes) + " share its memory");
  const auto wait_for_all = [&](const std::atomic<std::uint32_t>& count, const char* what) {
    // Once in a process's life, and most have come by then.
    const auto have_come = [&] {
      if (count.load() >= processes) return true;
      if (alone())
        throw error(errc::peer_lost, std::string{"join: a process of this host was lost before it had "} + what);
      if (steady_clock::now() >= until)
        throw error(errc::timed_out, "join: of " + std::to_string(processes) + " processes of this host only " +
                                         std::to_string(count.load()) + " have " + what);
      return false;
    };
    nap_until(have_come, microseconds{20}, milliseconds{1});
  };
  here_ = here;
  fill_random(std::as_writable_bytes(std::span(&nonce_, 1)));
  place& mine = shared_->processes[here];
  mine.pid = ::getpid();
  mine.nonce_at = reinterpret_cast<std::uint64_t>(&nonce_);
  mine.nonce = nonce_;
  mine.nic.lie_between_processes();
  shared_->came.fetch_add(1);
  wait_for_all(shared_->came, "mapped its memory");
  for (std::uint32_t p = 0; p < processes; ++p) {
    neighbours_.push_back(p == here ? nullptr
                                    : std::make_unique<neighbour>(*shared_, here, p, memory_.get(), end_lost_));
    if (p != here && shared_->denied.load() == 0 && neighbours_.back()->try_it() != neighbour::found::it)
      shared_->denied.store(1);
  }
  shared_->tried.fetch_add(1);
  wait_for_all(shared_->tried, "tried to read the others' memory");
}

doorbell& host_segment::nic_bell_of(std::uint32_t process) noexcept { return shared_->processes[process].nic; }

bool host_segment::copies() const noexcept { return !neighbours_.empty() && shared_->denied.load() == 0; }

// -- the lock ---------------------------------------------------------------------------------------------------------------

lock host_segment::lock_table() const { return {*shared_, here_, end_lost_}; }

void host_segment::end_lost() const noexcept {
  for (std::size_t p = 0; p < neighbours_.size(); ++p)
    if (neighbours_[p] != nullptr && lost_[p].load(std::memory_order_relaxed) &&
        shared_->processes[p].locking.load(std::memory_order_relaxed) != 0)
      neighbours_[p]->end();
}

// -- regions ----------------------------------------------------------------------------------------------------------------

/// One that is free, or new, with a place if there was room. Null: all are in use. @pre locked
stretch* host_segment::find_free(std::size_t bytes, std::size_t most) {
  stretch *free = nullptr, *fits = nullptr;
  for (std::uint32_t i = 0; i < shared_->stretches; ++i) {
    stretch& s = shared_->of[i];
    if (s.id != 0) continue;
    if (s.bytes == 0) free = &s;
    else if (s.bytes >= bytes && s.bytes <= most && (fits == nullptr || s.bytes < fits->bytes)) fits = &s;
  }
  if (fits != nullptr) return fits;
  fits = free;
  if (fits == nullptr && shared_->stretches < most_stretches) fits = &shared_->of[shared_->stretches++];
  if (fits == nullptr || bytes > shared_->whole - shared_->next) return fits;
  fits->at = shared_->next;
  shared_->next += bytes;
  fits->bytes = bytes;
  return fits;
}

/// Null: all are in use. @pre locked
stretch* host_segment::find_or_make(std::uint64_t id, std::uint32_t processes, std::size_t bytes) {
  for (std::uint32_t i = 0; i < shared_->stretches; ++i)
    if (stretch& s = shared_->of[i]; s.id == id && s.owner == 0) return &s;
  stretch* const made = find_free(bytes, shared_->whole);
  if (made == nullptr) return nullptr;
  made->left = processes;
  std::atomic_signal_fence(std::memory_order_seq_cst);  // for a process that takes the lock over
  made->id = id;
  return made;
}

std::shared_ptr<board_memory> host_segment::attach(std::uint64_t id, std::vector<std::uint32_t> processes,
                                                   std::size_t bytes) {
  // A little more, for the word that counts. A length that could never fit is refused alike by all.
  if (id == 0 || bytes > shared_->whole / 4) return nullptr;
  const std::uint64_t wanted = up_to_page(bytes + board_memory::alignment);
  std::uint64_t at = 0, size = 0;
  std::uint32_t which = 0;
  {
    const std::set<std::uint32_t> different(processes.begin(), processes.end());
    const lock mine = lock_table();
    const stretch* const found = find_or_make(id, static_cast<std::uint32_t>(different.size()), wanted);
    if (found == nullptr)
      throw error(errc::out_of_memory, "there are " + std::to_string(most_stretches) +
                                           " communicators and buffers between the processes of this host already: let "
                                           "some go");
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

/// The last one's pages go back to the system, so the next user of the place finds zeros.
void host_segment::detach(std::uint32_t which) noexcept {
  try {
    const lock mine = lock_table();
    stretch& s = shared_->of[which];
    if (s.left == 0 || --s.left > 0) return;
    give_back(s);
  } catch (const error&) {  // nor here
  }
}

/// @pre locked, and nobody uses it
void host_segment::give_back(stretch& what) noexcept {
  if (what.owner != 0) {
    const std::uint32_t owner = std::exchange(what.owner, nobody);
    shared_->processes[owner - 1].changes.fetch_add(1, std::memory_order_release);
  }
  if (what.bytes != 0 && ::fallocate(memory_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                     static_cast<off_t>(what.at), static_cast<off_t>(what.bytes)) != 0)
    return;  // it stays as it is, and nobody's
  what.id = 0;
  what.owner = 0;
}

// -- callers' data ----------------------------------------------------------------------------------------------------------

namespace {
/// Four sizes an octave, so that places are used again.
std::uint64_t up_to_class(std::uint64_t bytes) {
  const std::uint64_t pages = up_to_page(bytes) / page;
  const std::uint64_t step = std::bit_floor(std::max<std::uint64_t>(4, pages)) / 4;
  return (pages + step - 1) / step * step * page;
}
}  // namespace

std::byte* host_segment::lend(std::size_t bytes) {
  if (neighbours_.empty() || bytes == 0 || bytes > shared_->whole / 4) return nullptr;
  const std::uint64_t wanted = up_to_class(bytes);
  const lock mine = lock_table();
  // Data that find no room here go without; the last places are kept for communicators, which cannot.
  const auto used = [](const stretch& s) { return s.id != 0; };
  if (std::count_if(shared_->of, shared_->of + shared_->stretches, used) >= most_lent) return nullptr;
  stretch* const free = find_free(wanted, 2 * wanted);
  if (free == nullptr || free->bytes == 0) return nullptr;
  void* const at = ::mmap(nullptr, free->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory_.get(),
                          static_cast<off_t>(free->at));
  if (at == MAP_FAILED) return nullptr;
  try {
    const std::lock_guard guard(own_mutex_);
    own_[reinterpret_cast<std::uint64_t>(at)] = free->bytes;
  } catch (...) {
    ::munmap(at, free->bytes);
    throw;
  }
  // Where the system has no large pages for it, it works as well.
  ::madvise(at, free->bytes, MADV_HUGEPAGE);
  free->left = 1;
  free->address = reinterpret_cast<std::uint64_t>(at);
  free->owner = here_ + 1;
  std::atomic_signal_fence(std::memory_order_seq_cst);  // for a process that takes the lock over
  free->id = ++shared_->lent;
  shared_->processes[here_].changes.fetch_add(1, std::memory_order_release);
  return static_cast<std::byte*>(at);
}

void host_segment::take_back(std::byte* what) noexcept {
  try {
    const lock mine = lock_table();
    const auto address = reinterpret_cast<std::uint64_t>(what);
    for (std::uint32_t i = 0; i < shared_->stretches; ++i) {
      stretch& s = shared_->of[i];
      if (s.id == 0 || s.owner != here_ + 1 || s.address != address) continue;
      // Before its address is anything else's, which the others would look for here.
      const std::size_t bytes = s.bytes;
      {
        const std::lock_guard guard(own_mutex_);
        own_.erase(address);
      }
      give_back(s);
      ::munmap(what, bytes);
      return;
    }
  } catch (const error&) {  // it stays until the job has ended
  }
}

bool host_segment::lies_here(const std::byte* what) const noexcept {
  const auto address = reinterpret_cast<std::uint64_t>(what);
  const std::lock_guard guard(own_mutex_);
  const auto behind = own_.upper_bound(address);
  if (behind == own_.begin()) return false;
  const auto& [begin, bytes] = *std::prev(behind);
  return address - begin < bytes;
}

std::uint32_t host_segment::regions() const {
  const lock mine = lock_table();
  std::uint32_t used = 0;
  for (std::uint32_t i = 0; i < shared_->stretches; ++i)
    if (shared_->of[i].id != 0) ++used;
  return used;
}

}  // namespace troupe::actors
