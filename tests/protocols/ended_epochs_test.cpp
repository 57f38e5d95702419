// SPDX-License-Identifier: Apache-2.0
#include "protocols/agreement/ended_epochs.hpp"

#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <random>
#include <string>

#include "tests/seed.hpp"

using namespace troupe;

TEST_CASE("ended epochs: as a map, but for reasons that neighbours share when there are many") {
  std::mt19937_64 random(seed());
  for (int round = 0; round < 200; ++round) {
    ended_epochs ranges;
    std::map<epoch_t, failure_ptr> model;
    for (int i = 0; i < 300; ++i) {
      const epoch_t e = random() % 50;
      switch (random() % 8) {
        case 0: {
          const failure_ptr why = ranges.take(e);
          CHECK(why == (model.contains(e) ? model[e] : nullptr));
          model.erase(e);
          break;
        }
        default: {
          const failure_ptr why = make_failure(errc::timed_out, std::to_string(i));
          ranges.add(e, why);
          model.try_emplace(e, why);
        }
      }
      for (epoch_t k = 0; k < 51; ++k) CHECK(ranges.contains(k) == model.contains(k));
    }
  }
}

TEST_CASE("ended epochs: a million neighbours take the memory of a few") {
  ended_epochs ranges;
  for (epoch_t e = 0; e < 1'000'000; ++e) ranges.add(e, make_failure(errc::timed_out, std::to_string(e)));
  CHECK(ranges.range_count() <= ended_epochs::most_reasons);
  CHECK(ranges.take(0)->text == "0");
  CHECK(ranges.take(999'999)->code == errc::timed_out);
  CHECK_FALSE(ranges.contains(999'999));
  CHECK(ranges.contains(999'998));
}

TEST_CASE("ended epochs: a reason that stands for others says so, and has their error code") {
  ended_epochs ranges;
  for (epoch_t e = 0; e < 1000; ++e)
    ranges.add(e, make_failure(e % 2 == 0 ? errc::timed_out : errc::peer_refused, "operation #" + std::to_string(e)));
  CHECK(ranges.take(1)->text == "operation #1");
  for (const epoch_t e : {998u, 999u}) {
    CAPTURE(e);
    const failure_ptr why = ranges.take(e);
    CHECK(why->code == (e % 2 == 0 ? errc::timed_out : errc::peer_refused));
    CHECK(why->text.find("as many others did, of which the first was: operation #6") != std::string::npos);
  }
}

TEST_CASE("ended epochs: far from each other they share reasons, too; unlike ones become one when they are very many") {
  ended_epochs apart, unlike;
  std::weak_ptr<const failure> last;
  for (epoch_t e = 0; e < 10'000; ++e) {
    const failure_ptr why = make_failure(errc::timed_out, std::to_string(e));
    apart.add(e << bits_below_tag, why);
    last = why;
  }
  CHECK(last.expired());
  CHECK(apart.take(epoch_t{9999} << bits_below_tag)->code == errc::timed_out);
  for (epoch_t e = 0; e < 100'000; ++e)
    unlike.add(e, make_failure(e % 2 == 0 ? errc::timed_out : errc::peer_refused, "no"));
  CHECK(unlike.range_count() <= ended_epochs::most_ranges);
  CHECK(unlike.contains(99'999));
}
