// SPDX-License-Identifier: Apache-2.0
// Which elements have ended, as operations that begin ask while elements end. No CAF: also under ThreadSanitizer.

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "actors/elements/ended_elements.hpp"

namespace ended_elements_list_test {

using namespace troupe;
using actors::ended_elements;

TEST_CASE("ended elements: those that have ended, and no others") {
  for (const std::size_t count : {std::size_t{1}, std::size_t{64}, std::size_t{65}, std::size_t{1000}}) {
    CAPTURE(count);
    ended_elements all{count};
    CHECK_FALSE(all.any());
    for (element_id e = 0; e < count; ++e) CHECK_FALSE(all.contains(e));
    for (element_id e = count - 1; e < count; e -= 3) {
      all.end(e);
      all.end(e);
      CHECK(all.any());
    }
    for (element_id e = 0; e < count; ++e) CHECK(all.contains(e) == ((count - 1 - e) % 3 == 0));
  }
}

TEST_CASE("ended elements: several end at once while others ask; what was told is seen, and stays") {
  constexpr int enders = 3, askers = 2;
  constexpr std::size_t each = 2000;
  for (int round = 0; round < 20; ++round) {
    ended_elements all{enders * each};
    std::vector<std::atomic<std::size_t>> told(enders);  // so many of an ender's elements have ended
    std::vector<int> news(enders * each, 0);             // plain memory that is written before an element ends
    std::atomic<int> wrong{0}, here{0};
    const auto wait_for_all = [&] {
      here.fetch_add(1);
      while (here.load() < enders + askers) std::this_thread::yield();
    };
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < enders; ++t)
      threads.emplace_back([&, t] {
        wait_for_all();
        for (std::size_t k = 0; k < each; ++k) {
          news[t * each + k] = 1;
          all.end(t * each + k);
          told[t].store(k + 1, std::memory_order_release);
        }
      });
    for (int a = 0; a < askers; ++a)
      threads.emplace_back([&] {
        std::vector<bool> seen(enders * each);
        wait_for_all();
        for (std::size_t ended = 0; ended < enders * each;) {
          ended = 0;
          for (std::size_t t = 0; t < enders; ++t) {
            const std::size_t known = told[t].load(std::memory_order_acquire);
            wrong += known > 0 && !all.any();
            for (std::size_t k = 0; k < each; ++k) {
              const bool now = all.contains(t * each + k);
              wrong += !now && (k < known || seen[t * each + k]);
              wrong += now && news[t * each + k] != 1;
              seen[t * each + k] = now;
              ended += now ? 1 : 0;
            }
          }
        }
      });
    for (std::thread& t : threads) t.join();
    CHECK(wrong == 0);
  }
}

}  // namespace ended_elements_list_test
