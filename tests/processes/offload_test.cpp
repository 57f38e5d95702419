// SPDX-License-Identifier: Apache-2.0
// Collectives between the processes of a host, performed by the NIC of rank 0's. `test_processes_offloaded` runs other tests of this folder so, too.

#include <doctest/doctest.h>

#include <array>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include <unistd.h>

#include "tests/processes/processes.hpp"

using namespace process_tests;
using troupe::communicator;

namespace {

void expect(bool right, const std::string& what) {
  if (!right) throw std::runtime_error(what);
}

troupe::engine_options offloading() {
  troupe::engine_options o;
  o.offload = "always";
  o.log_level = "debug";  // says what is offloaded
  return o;
}

/// Each of them was planned for the NIC, in every process.
void check_offloaded(const std::vector<ended>& all, const std::vector<std::string>& collectives) {
  for (const ended& e : all)
    for (const std::string& what : collectives) {
      CAPTURE(what);
      bool found = false;
      for (std::size_t at = 0; (at = e.log.find(what, at)) != std::string::npos; ++at)
        found = found || e.log.substr(at, e.log.find('\n', at) - at).find(": offloaded, ") != std::string::npos;
      CHECK_MESSAGE(found, e.log);
    }
}

std::vector<float> given(int rank, std::size_t count) {
  std::vector<float> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = static_cast<float>(i % 97) * 0.37F + static_cast<float>(rank) * 1.1F;
  return all;
}

/// What a call gives on all ranks, in any memory.
template <class Allocator>
void call_all(communicator& comm, std::size_t count, std::vector<float>& results, const Allocator& memory) {
  const std::vector<float> values = given(comm.rank(), count);
  std::vector<float, Allocator> in(values.begin(), values.end(), memory), out(count, -1.F, memory);
  comm.all_reduce(in, out, troupe::sum);
  results.insert(results.end(), out.begin(), out.end());
  if (comm.rank() == 1) out.assign(in.begin(), in.end());
  comm.broadcast(out, 1);
  results.insert(results.end(), out.begin(), out.end());
  comm.all_reduce(in, troupe::maximum);  // in place
  results.insert(results.end(), in.begin(), in.end());
}

}  // namespace

TEST_CASE("the NIC of a process performs for two, on whatever memory they have, and every run gives the same bytes") {
  const auto all = run_processes(2, [](const member& m) {
    troupe::engine e{offloading()};
    communicator comm = e.join(m.how());
    for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{300'001}}) {
      std::vector<float> ordinary, again, shared;
      call_all(comm, count, ordinary, std::allocator<float>{});
      call_all(comm, count, again, std::allocator<float>{});
      call_all(comm, count, shared, std::pmr::polymorphic_allocator<float>{e.memory().get()});
      const auto same = [&](const std::vector<float>& a) {
        return a.size() == ordinary.size() && std::memcmp(a.data(), ordinary.data(), a.size() * sizeof(float)) == 0;
      };
      expect(same(again) && same(shared), "other bytes");
      const std::vector<float> a = given(0, count), b = given(1, count);
      for (std::size_t i = 0; i < count; ++i) {
        expect(ordinary[i] == a[i] + b[i], "the sum");
        expect(ordinary[count + i] == b[i], "the broadcast");
        expect(ordinary[2 * count + i] == std::max(a[i], b[i]), "the maximum");
      }
    }
  });
  CHECK(trouble(all) == "");
  check_offloaded(all, {"all_reduce", "broadcast"});
}
