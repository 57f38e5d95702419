// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the simulated processes of a host share, as each of them sees it: the region of a communicator, and the host's NIC process.

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/ports/nic/nic_of_host.hpp"
#include "actors/ports/segment/board_memory.hpp"

namespace troupe::simulate {

/// Of a communicator: memory that several processes map.
class shared_region {
public:
  /// The one that each process asks for in that place. The first that asks makes it; zeros.
  void* root(std::size_t place, std::size_t bytes) {
    if (place == roots_.size()) roots_.push_back(memory_.root(bytes));
    return roots_[place];
  }

private:
  heap_memory memory_{false};
  std::vector<void*> roots_;
};

/// A process's view of it.
class region_view final : public board_memory {
public:
  region_view(std::shared_ptr<shared_region> of, std::unique_ptr<process_memory> others)
      : region_(std::move(of)), peers_(std::move(others)) {}
  bool between_processes() const noexcept override { return true; }
  bool has_membarrier() const noexcept override { return false; }
  void* root(std::size_t bytes) override { return region_->root(next_++, bytes); }
  void* take(std::size_t) noexcept override { return nullptr; }
  void give_back(void*) noexcept override {}
  process_memory* peers() noexcept override { return peers_.get(); }

private:
  std::shared_ptr<shared_region> region_;
  std::unique_ptr<process_memory> peers_;
  std::size_t next_ = 0;
};

/// The host's NIC process, as one process, or itself, knows it.
class nicd_link final : public actors::nic_of_host {
public:
  explicit nicd_link(actors::nic_page& page) : nic_of_host(page) {}
  std::string why_gone() const override { return "the host's NIC process has ended"; }
  void left(std::uint64_t) noexcept override {}
  void goes() { gone_.store(true); }
};

}  // namespace troupe::simulate
