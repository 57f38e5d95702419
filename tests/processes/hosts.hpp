// SPDX-License-Identifier: Apache-2.0
#pragma once
// Hosts that are network namespaces joined by a bridge. Needs root and ip(8); whoever uses them is skipped with a message without.

#include <doctest/doctest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

namespace process_tests {

inline bool system_does(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

/// Host h has the addresses 10.213.7.(h + 1) and fd13:7::(h + 1).
class hosts_of_test {
public:
  explicit hosts_of_test(int hosts) : hosts_(hosts), prefix_("tt" + std::to_string(::getpid() % 100000)) {
    ready_ = ::geteuid() == 0 && system_does("ip netns add " + bridge()) &&
             system_does(inside(bridge(), "ip link add name sw0 type bridge")) &&
             system_does(inside(bridge(), "ip link set dev sw0 up"));
    for (int h = 0; h < hosts && ready_; ++h) {
      const std::string n = std::to_string(h), at = std::to_string(h + 1), in_bridge = " -n " + bridge() + " ";
      ready_ =
          system_does("ip netns add " + name(h)) &&
          system_does("ip link add name e0 netns " + name(h) + " type veth peer name p" + n + " netns " + bridge()) &&
          system_does("ip" + in_bridge + "link set dev p" + n + " master sw0 up") &&
          system_does("ip -n " + name(h) + " addr add 10.213.7." + at + "/24 dev e0") &&
          system_does("ip -n " + name(h) + " addr add fd13:7::" + at + "/64 dev e0 nodad") &&
          system_does("ip -n " + name(h) + " link set dev e0 up") &&
          system_does("ip -n " + name(h) + " link set dev lo up");
    }
    if (!ready_) MESSAGE("skipped: network namespaces cannot be made here (root, and the package iproute2)");
  }
  ~hosts_of_test() {
    for (int h = 0; h < hosts_; ++h) system_does("ip netns del " + name(h));
    system_does("ip netns del " + bridge());
  }
  bool ready() const { return ready_; }
  std::string name(int host) const { return prefix_ + "h" + std::to_string(host); }
  /// Runs a command on that host, in a shell's words.
  std::string on(int host, const std::string& command) const { return inside(name(host), command); }
  /// The calling process is on that host from now on, and sees that one's interfaces under /sys, where the system lets it: UCX looks for them there,
  /// and nothing else does.
  void enter(int host) const {
    const int ns = ::open(("/run/netns/" + name(host)).c_str(), O_RDONLY | O_CLOEXEC);
    if (ns < 0 || ::setns(ns, CLONE_NEWNET) != 0) throw std::runtime_error("a host of the test cannot be entered");
    ::close(ns);
    if (::unshare(CLONE_NEWNS) == 0 && ::mount("", "/", nullptr, MS_SLAVE | MS_REC, nullptr) == 0)
      static_cast<void>(::mount("sysfs", "/sys", "sysfs", 0, nullptr));
  }
  void link(int host, bool up) const {
    system_does("ip -n " + bridge() + " link set dev p" + std::to_string(host) + (up ? " up" : " down"));
  }

private:
  std::string bridge() const { return prefix_ + "b"; }
  static std::string inside(const std::string& where, const std::string& command) {
    return "ip netns exec " + where + " " + command;
  }
  int hosts_;
  std::string prefix_;
  bool ready_ = false;
};

}  // namespace process_tests
