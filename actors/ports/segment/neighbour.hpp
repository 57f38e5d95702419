// SPDX-License-Identifier: Apache-2.0
#pragma once
// Another process of the host, as this one reaches its memory: what lies in the memory that they share is mapped here, too; all else is copied by the
// system (process_vm_readv), from and to the process that has said so at the join, as long as it has not ended (pidfd).

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>
#include <sys/uio.h>

#include "actors/ports/segment/segment_table.hpp"

namespace troupe::actors::segment {

/// Any thread.
class neighbour {
public:
  /// @param here,which this process and the other one, of those in the table @param memory descriptor of all of it, which outlives the object
  /// @param end_lost see lock
  neighbour(table& of, std::uint32_t here, std::uint32_t which, int memory, std::function<void()> end_lost = {})
      : of_(of), here_(here), which_(which), memory_(memory), end_lost_(std::move(end_lost)) {}
  ~neighbour();
  neighbour(const neighbour&) = delete;
  neighbour& operator=(const neighbour&) = delete;

  /// See process_memory.
  bool read(std::byte* to, const std::byte* from, std::size_t bytes) {
    return move(to, const_cast<std::byte*>(from), bytes, &::process_vm_readv);
  }
  bool write(std::byte* to, const std::byte* from, std::size_t bytes) {
    return move(const_cast<std::byte*>(from), to, bytes, &::process_vm_writev);
  }
  /// See process_memory.
  std::byte* near(std::byte* its);
  std::string why_refused() const;

  enum class found : std::uint8_t { it, another, denied };
  /// Whether copies from it are allowed, and it is the one that has said so. `denied`: why is in `errno`.
  found try_it() const;
  /// False also where the system does not say.
  bool has_ended() noexcept;
  void end() noexcept;

private:
  using call = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);
  /// One of its stretches.
  struct view {
    std::uint64_t id, address, at, bytes;
    std::byte* here;  ///< null: not mapped yet
  };

  const place& its() const { return of_.processes[which_]; }
  pid_t pid() const { return static_cast<pid_t>(its().pid); }
  bool is_there();
  bool is_there_lately();
  int handle();
  void note_refusal(int why) noexcept;
  [[noreturn]] void refuse(int why);
  [[noreturn]] void refuse_handle(int why);
  bool move(std::byte* mine, std::byte* its, std::size_t bytes, call how);
  void look_again(std::uint64_t changes);

  table& of_;
  const std::uint32_t here_, which_;
  const int memory_;
  const std::function<void()> end_lost_;
  std::atomic<int> handle_{-1};
  std::atomic<bool> ended_{false};
  std::atomic<std::int64_t> seen_at_{0};  ///< when it was last found to be there: ns of the steady clock
  std::atomic<int> refused_{0};
  std::mutex mutex_;  ///< of the following; held for a look-up, once for a buffer and operation, or a unit of a message
  std::uint64_t seen_ = 0;
  std::vector<view> views_;  ///< by address
};

}  // namespace troupe::actors::segment
