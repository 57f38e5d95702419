// SPDX-License-Identifier: Apache-2.0
#pragma once
// For who waits for something that is no operation's.

#include <array>

#include "engine/api/communicator.hpp"
#include "memory/error.hpp"

namespace troupe {

/// Until it goes out of scope it is done as soon as the communicator has ended: it receives what nobody sends.
class end_of_communicator {
public:
  explicit end_of_communicator(communicator& of) : end_(of.recv_async(never_, of.rank())) {}
  ~end_of_communicator() {
    end_.cancel();
    static_cast<void>(end_.try_wait());
  }
  end_of_communicator(const end_of_communicator&) = delete;
  end_of_communicator& operator=(const end_of_communicator&) = delete;
  bool came() const noexcept { return end_.done(); }
  [[noreturn]] void raise() {
    end_.wait();
    throw error(errc::aborted, "the communicator has ended");
  }

private:
  std::array<char, 1> never_{};
  request end_;
};

}  // namespace troupe
