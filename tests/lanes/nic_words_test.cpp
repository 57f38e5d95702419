// SPDX-License-Identifier: Apache-2.0
// The queue from a rank to the NIC of its process.

#include "actors/ports/nic/nic_words.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <memory>
#include <vector>

using namespace troupe;
using namespace troupe::actors;

TEST_CASE("NIC: a queue that ends lets go of what the NIC has not read") {
  const auto referred = std::make_shared<const std::vector<std::size_t>>(std::size_t{3});
  {
    nic_words words;
    nic_posting what;
    what.counts = referred;
    for (epoch_t epoch = 0; epoch < 3; ++epoch) {
      what.epoch = epoch;
      REQUIRE(words.post(what));
    }
    words.recall(what.communicator, 0, what.rank);
    CHECK(referred.use_count() == 1 + 1 + 3);
  }
  CHECK(referred.use_count() == 1);
}
