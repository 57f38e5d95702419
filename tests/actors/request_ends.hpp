// SPDX-License-Identifier: Apache-2.0
#pragma once
// How requests ended on all ranks, of which each is driven by a thread, when some element ended.

#include <algorithm>
#include <chrono>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/api/troupe.hpp"

namespace troupe::request_ends {

constexpr std::chrono::seconds hang{30};  ///< turns a hang into a failure; never reached by a right run

inline void on_threads(std::vector<communicator>& comms, const std::function<void(communicator&)>& body) {
  std::vector<std::thread> threads;
  for (communicator& c : comms) threads.emplace_back([&] { body(c); });
  for (std::thread& t : threads) t.join();
}

/// Thread-safe but for names() and the members, which are for when all threads are through.
struct ends {
  std::mutex mutex;
  int good = 0, wrong = 0, hanging = 0;
  std::set<errc> codes;
  std::set<std::string> texts;

  /// @param right whether what came is, if it ended well
  void add(request& r, const std::function<bool()>& right) {
    bool in_time = true;
    try {
      in_time = r.wait_for(hang);
    } catch (const error&) {}
    const std::lock_guard lock(mutex);
    if (!in_time) ++hanging;
    else if (r.status()) codes.insert(static_cast<errc>(r.status().value())), texts.insert(r.message());
    else if (right()) ++good;
    else ++wrong;
  }
  bool names(const std::string& what) const {
    return !texts.empty() &&
           std::ranges::all_of(texts, [&](const std::string& text) { return text.find(what) != std::string::npos; });
  }
};

}  // namespace troupe::request_ends
