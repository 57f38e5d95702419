// SPDX-License-Identifier: Apache-2.0
// Uploads and downloads by the same scores in an engine and in virtual time: every ring segment and PCIe link carries as many bytes.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "engine/api/engine.hpp"
#include "engine/tools/study/study.hpp"

namespace host_copies_test {

using namespace troupe;

namespace {

using carried = std::map<std::string, std::uint64_t>;

bool joins(const std::string& element) { return element.starts_with("ring ") || element.starts_with("pcie "); }

constexpr std::size_t bytes = 8 * 5 * 8192;

carried in_engine(const std::string& places, collective what, const std::string& by) {
  engine_options o;
  o.layout = places;
  o.protocol = "simple";
  o.choreography = by;
  o.channels = 1;
  o.trace_routes = true;
  engine e{o};
  auto comms = e.communicators(5);
  std::vector<std::thread> threads;
  for (communicator& c : comms)
    threads.emplace_back([&c, what] {
      if (what == collective::broadcast) {
        std::vector<std::byte> data(bytes);
        c.broadcast(data, 4);
      } else {
        std::vector<std::byte> own(bytes / 5), all(bytes);
        c.gather(own, all, 4);
      }
    });
  for (std::thread& t : threads) t.join();
  carried all;
  for (const element_traffic& of : e.traffic())
    if (joins(of.element) && of.bytes > 0) all[of.element] = of.bytes;
  return all;
}

carried in_virtual_time(const std::string& places, collective what, const std::string& by) {
  configuration c;
  c.add_text("[study]\npreset = \"machine\"\nlayout = \"" + places + "\"\nroot = 4\ncollective = \"" +
                 std::string{name(what)} + "\"\nchoreography = \"" + by +
                 "\"\ntype = \"u8\"\npayload = \"real\"\nsizes = " + std::to_string(bytes) + "\n",
             "study.toml");
  const study_result r = run_study(read_study(c));
  const study_row& row = r.rows.at(0);
  CHECK(row.wrong == 0);
  carried all;
  for (std::size_t e = 0; e < row.outcome.use.size(); ++e)
    if (joins(r.on->elements[e].name) && row.outcome.use[e].bytes > 0)
      all[r.on->elements[e].name] = row.outcome.use[e].bytes;
  return all;
}

}  // namespace

TEST_CASE("host and card: one score, as many bytes on every link in an engine and in virtual time") {
  for (const char* places : {"1x1x4+host", "1x2x2+host"})
    for (const collective what : {collective::broadcast, collective::gather})
      for (const char* by : {"one_copy", "each_a_copy"}) {
        if (std::string{places} == "1x2x2+host" && std::string{by} == "one_copy") continue;  // of one card
        CAPTURE(places);
        CAPTURE(by);
        const carried real = in_engine(places, what, by);
        CHECK(real == in_virtual_time(places, what, by));
        CHECK_FALSE(real.empty());
      }
}

}  // namespace host_copies_test
