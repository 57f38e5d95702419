// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/link/rendezvous_words.hpp"

#include <cstring>

#include "actors/ports/link/wire.hpp"

namespace troupe::actors {

static void describe(auto& wire, process_place& p) {
  wire(p.host, p.host_key, p.machine_key, p.pid, p.first_rank, p.ranks, p.cores, p.cpus, p.addresses, p.groups,
       p.told_groups, p.carrier);
}
static void describe(auto& wire, roster& r) { wire(r.job, r.processes, r.costs); }
static void describe(auto& wire, enrolment& e) { wire(e.process, e.processes, e.place, e.settings, e.costs); }
static void describe(auto& wire, departure& d) { wire(d.process, d.who_and_how); }
static void describe(auto& wire, rendezvous_answer& a) {
  wire(a.missing, a.gone, a.turned_away, a.refused, a.complete, a.all);
}

namespace {

std::vector<std::byte> bytes_of(const auto& what) {
  std::vector<std::byte> body;
  wire_writer{body}(what);
  return body;
}

template <class Word>
std::optional<Word> word_from(std::span<const std::byte> body) {
  Word word;
  wire_reader wire{body};
  wire(word);
  if (!wire.complete()) return std::nullopt;
  return word;
}

}  // namespace

std::vector<std::byte> to_wire(const enrolment& what) { return bytes_of(what); }
std::vector<std::byte> to_wire(const rendezvous_answer& what) { return bytes_of(what); }
std::optional<enrolment> enrolment_from(std::span<const std::byte> body) { return word_from<enrolment>(body); }
std::optional<rendezvous_answer> rendezvous_answer_from(std::span<const std::byte> body) {
  return word_from<rendezvous_answer>(body);
}

std::string why_no_enrolment(const enrolment& what, std::uint32_t peer, std::uint32_t all) {
  if (what.process != peer) return "it did not say who it is";
  if (all > 0 && what.processes != all)
    return "process " + std::to_string(what.process) + " is one of " + std::to_string(what.processes) +
           ", but this job has " + std::to_string(all) + " processes";
  if (what.processes > most_processes)
    return "a job has at most " + std::to_string(most_processes) + " processes, not " + std::to_string(what.processes);
  if (what.process >= what.processes)
    return "there is no process " + std::to_string(what.process) + " in a job of " + std::to_string(what.processes);
  if (what.place.ranks == 0 || what.place.ranks > most_ranks_of_job)
    return "process " + std::to_string(what.process) + " cannot have " + std::to_string(what.place.ranks) + " ranks";
  return {};
}

std::string why_no_roster(const roster& all, const enrolment& mine) {
  if (all.processes.size() != mine.processes)
    return "a job of " + std::to_string(all.processes.size()) + " processes instead of " +
           std::to_string(mine.processes);
  std::uint64_t ranks = 0;
  for (std::size_t p = 0; p < all.processes.size(); ++p) {
    const process_place& place = all.processes[p];
    if (place.first_rank != ranks || place.ranks == 0)
      return std::to_string(place.ranks) + " ranks from " + std::to_string(place.first_rank) + " on for process " +
             std::to_string(p) + ", behind " + std::to_string(ranks) + " others";
    if ((ranks += place.ranks) > most_ranks_of_job) return "more ranks than a job has";
  }
  if (all.costs.size() != mine.costs.size()) return std::to_string(all.costs.size()) + " costs";
  return trouble_with_groups(all);
}

std::optional<std::vector<std::byte>> message_reader::next(std::uint32_t most) {
  std::uint32_t bytes = 0;
  if (too_long_ || bytes_.size() < sizeof bytes) return std::nullopt;
  std::memcpy(&bytes, bytes_.data(), sizeof bytes);
  too_long_ = bytes > most;
  if (too_long_ || bytes_.size() < sizeof bytes + bytes) return std::nullopt;
  const auto from = bytes_.begin() + sizeof bytes;
  std::vector<std::byte> body(from, from + bytes);
  bytes_.erase(bytes_.begin(), from + bytes);
  return body;
}

}  // namespace troupe::actors
