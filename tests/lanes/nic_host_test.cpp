// SPDX-License-Identifier: Apache-2.0
// A process's connection to its host's NIC process, with both in this one.
#include "actors/ports/nic/nic_host.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "memory/error.hpp"

using namespace std::chrono_literals;
using namespace troupe;
using namespace troupe::actors;

namespace {

constexpr std::uint64_t build = 5;

class service_here {
public:
  service_here() : serving_([this] { service_.serve(); }) {}
  ~service_here() {
    service_.stop();
    serving_.join();
  }
  std::string address() const { return service_.address(); }

private:
  nic_host_service service_{"unix:@nic-host-test-" + std::to_string(::getpid()), build, 2};
  std::thread serving_;
};

steady_time soon() { return std::chrono::steady_clock::now() + 60s; }

}  // namespace

TEST_CASE("the NIC process goes on with a process that names one that has ended") {
  service_here service;
  nic_host_link mine{service.address(), {build, 77, 0, 3}, soon(), 60s};
  constexpr std::array<std::uint32_t, 2> with_one_that_has_ended{0, 2};
  { const nic_host_link its{service.address(), {build, 77, 2, 3}, soon(), 60s}; }
  std::this_thread::sleep_for(100ms);  // until the service knows
  // It was refused, and the connection closed: every other communicator of the process lost its NIC with that.
  for (std::uint64_t communicator = 1; communicator < 4; ++communicator)
    CHECK_FALSE(mine.enter(communicator, with_one_that_has_ended, 4096, soon()));
  CHECK_FALSE(mine.hung_up());
}

TEST_CASE("the NIC process refuses who is there already, and another build") {
  service_here service;
  nic_host_link mine{service.address(), {build, 78, 0, 2}, soon(), 60s};
  CHECK_THROWS_WITH_AS(nic_host_link(service.address(), {build, 78, 0, 2}, soon(), 60s),
                       doctest::Contains("are of several hosts by name; give them one TROUPE_HOST"), error);
  CHECK_THROWS_AS(nic_host_link(service.address(), {build + 1, 78, 1, 2}, soon(), 60s), const error&);
  CHECK_FALSE(mine.hung_up());
}
