// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace troupe {

/// Shutdown as a type: who enters may use what lies behind until he leaves; shut() lets nobody in any more, and
/// wait_until_empty() waits for those inside.
///
/// It has many doorways so that ranks that come and go all the time do not hand one cache line to and fro: whoever uses an
/// own doorway (its rank, say) pays two uncontended atomic additions. Thread-safe.
class gate {
public:
  /// False: closed. @param doorway any number; leave by the same
  bool enter(std::size_t doorway) noexcept {
    if ((at(doorway).fetch_add(1, std::memory_order_acquire) & closed) == 0) [[likely]]
      return true;
    leave(doorway);
    return false;
  }
  void leave(std::size_t doorway) noexcept {
    std::atomic<std::uint32_t>& inside = at(doorway);
    if (inside.fetch_sub(1, std::memory_order_release) == closed + 1) [[unlikely]]
      inside.notify_all();
  }
  void shut() noexcept {
    for (auto& each : doorways_) each.inside.fetch_or(closed, std::memory_order_acq_rel);
  }
  /// @pre shut() was called.
  void wait_until_empty() noexcept {
    for (auto& each : doorways_)
      for (std::uint32_t seen = each.inside.load(std::memory_order_acquire); seen != closed;
           seen = each.inside.load(std::memory_order_acquire))
        each.inside.wait(seen, std::memory_order_acquire);
  }

  class pass {
  public:
    explicit pass(gate& through, std::size_t doorway = 0)
        : through_(through.enter(doorway) ? &through : nullptr), doorway_(doorway) {}
    ~pass() {
      if (through_ != nullptr) through_->leave(doorway_);
    }
    pass(const pass&) = delete;
    pass& operator=(const pass&) = delete;
    explicit operator bool() const noexcept { return through_ != nullptr; }

  private:
    gate* through_;
    std::size_t doorway_;
  };

private:
  static constexpr std::uint32_t closed = std::uint32_t{1} << 31;
  static constexpr std::size_t doorways = 32;
  struct alignas(128) doorway_state {  // two lines: the neighbour line is fetched along
    std::atomic<std::uint32_t> inside{0};
  };
  std::atomic<std::uint32_t>& at(std::size_t doorway) noexcept { return doorways_[doorway % doorways].inside; }

  std::array<doorway_state, doorways> doorways_{};
};

}  // namespace troupe
