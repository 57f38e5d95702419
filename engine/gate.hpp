#pragma once

#include <atomic>
#include <cstdint>

namespace troupe {

/// Shutdown as a type: who enters may use what lies behind until he leaves; close() lets nobody in any more and waits for those
/// inside. Cost of entering and leaving: one atomic addition each. Thread-safe.
class gate {
 public:
  /// False: closed.
  bool enter() noexcept {
    if ((state_.fetch_add(1, std::memory_order_acquire) & closed) == 0) return true;
    leave();
    return false;
  }
  void leave() noexcept {
    if (state_.fetch_sub(1, std::memory_order_release) == closed + 1) state_.notify_all();
  }
  void shut() noexcept { state_.fetch_or(closed, std::memory_order_acq_rel); }
  /// @pre shut() was called.
  void wait_until_empty() noexcept {
    for (std::uint32_t seen = state_.load(std::memory_order_acquire); seen != closed;
         seen = state_.load(std::memory_order_acquire))
      state_.wait(seen, std::memory_order_acquire);
  }

  class pass {
   public:
    explicit pass(gate& through) : through_(through.enter() ? &through : nullptr) {}
    ~pass() {
      if (through_ != nullptr) through_->leave();
    }
    pass(const pass&) = delete;
    pass& operator=(const pass&) = delete;
    explicit operator bool() const noexcept { return through_ != nullptr; }

   private:
    gate* through_;
  };

 private:
  static constexpr std::uint32_t closed = std::uint32_t{1} << 31;
  std::atomic<std::uint32_t> state_{0};
};

}  // namespace troupe
