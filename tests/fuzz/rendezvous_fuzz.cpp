// SPDX-License-Identifier: Apache-2.0
// What is said at a rendezvous behind the handshake, as a process of the same job might send it that has gone wrong. The first byte says what the others are:
//   even  what a process sends to the service: messages in pieces, a byte of length before each, then so many bytes
//   odd   what the service sends to process 1 of 3, likewise
// Whatever is accepted must come out again as the same bytes, and can be: a place in the job, or processes whose ranks follow each other.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "actors/ports/link/rendezvous_words.hpp"

using namespace troupe::actors;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void must_come_out_again(const auto& word, const std::vector<std::byte>& body) {
  const std::vector<std::byte> again = to_wire(word);
  require(again.size() == body.size() && std::memcmp(again.data(), body.data(), body.size()) == 0);
}

void take_enrolment(const std::vector<std::byte>& body) {
  const std::optional<enrolment> e = enrolment_from(body);
  if (!e) return;
  must_come_out_again(*e, body);
  if (!why_no_enrolment(*e, 1, 0).empty()) return;
  require(e->process == 1 && e->processes > 1 && e->processes <= most_processes);
  require(e->place.ranks > 0 && e->place.ranks <= most_ranks_of_job);
}

void take_answer(const std::vector<std::byte>& body) {
  const std::optional<rendezvous_answer> a = rendezvous_answer_from(body);
  if (!a) return;
  must_come_out_again(*a, body);
  enrolment mine;
  mine.process = 1;
  mine.processes = 3;
  mine.costs = {1.0, 2.0};
  if (!a->complete || !why_no_roster(a->all, mine).empty()) return;
  require(a->all.processes.size() == 3 && a->all.costs.size() == 2);
  std::uint64_t ranks = 0;
  for (const process_place& p : a->all.processes) {
    require(p.first_rank == ranks && p.ranks > 0 && p.groups.size() <= most_groups);
    ranks += p.ranks;
  }
  require(a->all.ranks() == ranks && ranks <= most_ranks_of_job);
  for (std::uint32_t p = 0; p < 3; ++p) {
    require(first_of_host(a->all, p) <= p);
    require(!name_of(a->all, p).empty());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::span<const std::byte> rest{reinterpret_cast<const std::byte*>(data) + 1, size - 1};
  const bool to_service = data[0] % 2 == 0;
  const std::uint32_t most = to_service ? most_enrolment : most_message;
  message_reader reader;
  while (!rest.empty()) {
    const std::size_t piece = std::min(std::to_integer<std::size_t>(rest[0]), rest.size() - 1);
    reader.add(rest.subspan(1, piece));
    rest = rest.subspan(1 + piece);
    while (const auto body = reader.next(most)) {
      require(body->size() <= most && !reader.too_long());
      if (to_service) take_enrolment(*body);
      else take_answer(*body);
    }
    require(reader.held() <= size);
  }
  return 0;
}
