// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where a board lies: in the memory of one process, or in a region that the processes of a host map (host_segment.hpp).
//
// A board's *roots* are asked for when it is made, in the same order in every process, which finds the same memory there: zeros at first, so zero
// is what all that lies in a root begins with. The rest is taken on demand by the process that needs it first, and found by the others through a
// relative pointer (relative.hpp). Nothing is given back before the board ends.

#include <chrono>
#include <cstddef>
#include <memory_resource>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "actors/ports/segment/copy_costs.hpp"
#include "actors/waiting/napping.hpp"
#include "memory/error.hpp"
#include "protocols/collective.hpp"

namespace troupe {

/// What a board's ranks in other processes have in memory of their own, which the system copies from and to (process_vm_readv). Any thread.
class process_memory {
public:
  virtual ~process_memory() = default;
  process_memory(const process_memory&) = delete;
  process_memory& operator=(const process_memory&) = delete;

  /// The rank is in this process: no copy is needed.
  virtual bool is_here(rank_t rank) const noexcept = 0;
  /// The same in all processes. If nothing else is known, all is staged.
  virtual const copy_costs& costs() const noexcept {
    static const copy_costs staging_is_free;
    return staging_is_free;
  }
  /// Where this process finds what the rank has at `its`: in memory that both map. Null: only the system reaches it.
  virtual std::byte* near(rank_t of, std::byte* its) = 0;
  /// What lies at `mine`, of this process, the others find there.
  virtual bool shares(const std::byte* mine) const noexcept = 0;
  /// Such memory, of the caller; zeros. Null: there is none.
  virtual std::byte* lend(std::size_t bytes) noexcept = 0;
  virtual void take_back(std::byte* lent) noexcept = 0;
  /// Copies from and to the rank's memory. False: its process has ended, and nothing is said of `to`. Throws error(io): the system forbids it, or
  /// there is no such memory.
  virtual bool read(rank_t of, std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  virtual bool write(rank_t of, std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  /// Why the last copy that was not possible was not; after an error.
  virtual std::string why_refused(rank_t of) const = 0;
  virtual bool has_ended(rank_t which) = 0;
  /// Its process counts as lost: nothing was heard of it for longer than the job's silence, or it has ended.
  virtual bool is_lost(rank_t which) const noexcept = 0;
  /// Ends the rank's process, which was stopped while it was copying: it must not go on where it was.
  virtual void end(rank_t which) = 0;

protected:
  process_memory() = default;
};

/// Waits until `done()`: until `which` does not touch any more what this rank takes back. It does so for a millisecond at most, if it runs. One that
/// has ended touches nothing. One that counts as lost and still touches it was stopped there, and is ended: it must not go on where it was. A process
/// that only this one has lost, and that runs, is done long before. @param others null: it is here
template <class Done>
void wait_for_touching(process_memory* others, rank_t which, Done&& done) {
  using clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds most{1};
  const bool far = others != nullptr && !others->is_here(which);
  clock::time_point until{};
  for (int looks = 0; !done(); ++looks) {
    give_way();
    if (!far || looks % 64 != 0) continue;
    if (others->has_ended(which)) return;
    if (!others->is_lost(which)) continue;
    if (until == clock::time_point{}) until = clock::now() + most;
    else if (clock::now() >= until) others->end(which);
  }
}

class board_memory {
public:
  static constexpr std::size_t alignment = 128;  ///< of all that is taken

  virtual ~board_memory() = default;
  board_memory(const board_memory&) = delete;
  board_memory& operator=(const board_memory&) = delete;

  /// Several processes map it.
  virtual bool between_processes() const noexcept = 0;
  /// Sleepers at a board in it order themselves and their writers alone (slot_board.hpp); the same in all processes.
  virtual bool has_membarrier() const noexcept = 0;
  /// Zeros. The thread that makes the board. Throws error(out_of_memory).
  virtual void* root(std::size_t bytes) = 0;
  /// Zeros; null: there is no more. Any thread.
  virtual void* take(std::size_t bytes) noexcept = 0;
  /// The same, of what need not be used soon: it lies with its like, so that the pages of all that are not touched before.
  virtual void* take_for_later(std::size_t bytes) noexcept { return take(bytes); }
  /// Nobody was told of it: another one was faster. Any thread.
  virtual void give_back(void* what) noexcept = 0;

  /// Null: all ranks are in this process, or the system lets none reach another's memory.
  virtual process_memory* peers() noexcept { return nullptr; }

  template <class T>
  T* roots(std::size_t count) {
    static_assert(alignof(T) <= alignment);
    return static_cast<T*>(root(count * sizeof(T)));
  }
  /// What `at` points to, made if there is none. `no_memory(bytes)` throws.
  template <class T, class Pointer, class NoMemory, class... Arguments>
  T& lay_down(Pointer& at, NoMemory&& no_memory, Arguments&&... arguments) {
    static_assert(alignof(T) <= alignment && std::is_trivially_destructible_v<T>);
    if (T* const found = at.load(std::memory_order_acquire)) return *found;
    void* const room = take(sizeof(T));
    if (room == nullptr) no_memory(sizeof(T));
    T* const made = new (room) T(std::forward<Arguments>(arguments)...);
    T* const first = at.publish(made);
    if (first == nullptr) return *made;
    give_back(room);
    return *first;
  }

protected:
  board_memory() = default;
};

/// Of one process. The little that most boards take comes from the heap; further pieces lie on pages that the system has not given before they are
/// written to. Of a board of many ranks hardly anything ever is, and a page that is new costs more than the message on it.
class heap_memory final : public board_memory {
public:
  /// @param membarrier false: do without, as on a system that has none (tests) @param roots where they lie, which outlives it; null: on the heap, too
  explicit heap_memory(bool membarrier = true, std::pmr::memory_resource* roots = nullptr)
      : membarrier_(membarrier), roots_(roots) {}
  ~heap_memory() override;
  bool between_processes() const noexcept override { return false; }
  bool has_membarrier() const noexcept override;
  void* root(std::size_t bytes) override;
  void* take(std::size_t bytes) noexcept override { return take_from(soon_, bytes); }
  void* take_for_later(std::size_t bytes) noexcept override { return take_from(later_, bytes); }
  void give_back(void*) noexcept override {}  // at most as much as is laid down once (slot_board::most_bytes())

private:
  struct shelf {
    std::byte* rest = nullptr;  ///< of its last piece …
    std::size_t left = 0;       ///< … and its bytes
  };
  struct piece {
    void* at;
    std::size_t mapped;  ///< 0: it is from the heap
  };
  void* take_from(shelf& which, std::size_t bytes) noexcept;
  bool add_piece(shelf& to, std::size_t least) noexcept;

  bool membarrier_;
  std::pmr::memory_resource* roots_;
  std::mutex mutex_;  // when something is laid down, once
  std::vector<piece> pieces_;
  shelf soon_, later_;
};

}  // namespace troupe
