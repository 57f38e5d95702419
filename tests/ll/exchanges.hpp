// SPDX-License-Identifier: Apache-2.0
#pragma once
// What ranks of threads and of processes do alike with sessions of LL-A2A.

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/api/troupe.hpp"

namespace ll_tests {

inline void expect(bool right, const std::string& what) {
  if (!right) throw std::runtime_error("wrong: " + what);
}

/// What rank `from` tells rank `to` in exchange `which`.
inline std::uint64_t word(std::uint64_t which, int from, int to) {
  return (which * 1'000'003 + static_cast<std::uint64_t>(from)) * 1'000'003 + static_cast<std::uint64_t>(to);
}

/// Each to each. @pre elements of 8 bytes, at least one for each rank
inline void one_exchange(troupe::ll_session& session, const troupe::communicator& comm, std::uint64_t which) {
  for (int r = 0; r < comm.size(); ++r)
    session.send(r, static_cast<std::size_t>(comm.rank()), word(which, comm.rank(), r));
  for (int r = 0; r < comm.size(); ++r)
    expect(session.recv<std::uint64_t>(static_cast<std::size_t>(r)) == word(which, r, comm.rank()), "a word");
  session.end_epoch();
}

template <std::size_t Words>
struct record {
  std::array<std::uint64_t, Words> of;
  bool operator==(const record&) const = default;
};

/// The same by elements of several units, in one of three ways.
template <std::size_t Words>
void exchange_records(troupe::ll_session& session, const troupe::communicator& comm, std::uint64_t which, int how) {
  const int n = comm.size(), me = comm.rank();
  const auto made = [&](int from, int to) {
    record<Words> all;
    for (std::size_t i = 0; i < Words; ++i) all.of[i] = word(which + 1'000'000 * i, from, to);
    return all;
  };
  if (how == 0)
    for (int r = 0; r < n; ++r) session.send(r, static_cast<std::size_t>(me), made(me, r));
  else session.bcast(static_cast<std::size_t>(me), made(me, 0));
  const auto right = [&](int from) { return made(from, how == 0 ? me : 0); };
  if (how == 2) {
    const auto first = session.recv_reduce<record<Words>>(
        0, static_cast<std::size_t>(n), 1, [](const record<Words>& r) { return r.of[0]; }, std::plus<>{});
    std::uint64_t sum = 0;
    for (int r = 0; r < n; ++r) sum += right(r).of[0];
    expect(first == sum, "a sum");
  }
  std::vector<record<Words>> came(static_cast<std::size_t>(n));
  session.recv_unrolled<record<Words>>(0, came);
  for (int r = 0; r < n; ++r) expect(came[static_cast<std::size_t>(r)] == right(r), "a record");
  session.end_epoch();
}

inline void random_exchanges(troupe::communicator& comm, std::uint64_t drawn, int epochs) {
  std::mt19937_64 random{drawn};
  const auto n = static_cast<std::size_t>(comm.size());
  for (int handles = 0; handles < 3; ++handles) {
    troupe::ll_handle handle{comm, {.elements = n + random() % 3, .element_bytes = 24, .blocks = 1 + random() % 2}};
    troupe::ll_session session{comm, handle, random() % handle.options().blocks};
    for (int e = 0; e < epochs; ++e) {
      const std::uint64_t which = random();
      switch (random() % 3) {
        case 0: exchange_records<1>(session, comm, which, static_cast<int>(random() % 3)); break;
        case 1: exchange_records<2>(session, comm, which, static_cast<int>(random() % 3)); break;
        default: exchange_records<3>(session, comm, which, static_cast<int>(random() % 3)); break;
      }
    }
  }
}

}  // namespace ll_tests
