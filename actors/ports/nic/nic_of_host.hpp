// SPDX-License-Identifier: Apache-2.0
#pragma once
// The NIC process of a host, `troupe nicd`, as those see it who post to it (nic_between.hpp). Any thread.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "actors/waiting/doorbell.hpp"

namespace troupe::actors {

/// In memory that the NIC process and all that it serves map: zeros at first.
struct nic_page {
  alignas(64) doorbell bell;                     ///< where its thread sleeps
  alignas(64) std::atomic<std::uint64_t> looks;  ///< how often it has looked for what was left: whether it goes on
};

class nic_of_host {
public:
  virtual ~nic_of_host() = default;
  nic_of_host(const nic_of_host&) = delete;
  nic_of_host& operator=(const nic_of_host&) = delete;

  doorbell& bell() const noexcept { return page_->bell; }
  /// It performs nothing for this process any more, and has ended or is about to.
  bool gone() const noexcept { return gone_.load(); }
  /// A sentence about that. @pre gone()
  virtual std::string why_gone() const = 0;
  /// Operations that this process has posted, and that are not answered.
  void counts(int more) noexcept { under_way_.fetch_add(more); }
  /// The communicator has ended in this process.
  virtual void left(std::uint64_t communicator) noexcept = 0;

protected:
  nic_of_host() = default;
  explicit nic_of_host(nic_page& page) : page_(&page) {}

  nic_page* page_ = nullptr;
  std::atomic<bool> gone_{false};
  std::atomic<int> under_way_{0};
};

}  // namespace troupe::actors
