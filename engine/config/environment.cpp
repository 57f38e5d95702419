// SPDX-License-Identifier: Apache-2.0
// What an engine takes from its process's environment where its program says nothing.
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include "engine/config/configuration.hpp"
#include "engine/world/launcher_environment.hpp"

namespace troupe {

namespace {

/// The variables that may concern an engine; those of [workload] and [study] are the program's.
std::vector<std::string> variables_of_engines() {
  std::vector<std::string> found;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable)
    if (const std::string_view text = *variable; text.starts_with("TROUPE_") && !text.starts_with("TROUPE_WORKLOAD_") &&
                                                 !text.starts_with("TROUPE_STUDY_") &&
                                                 !concerns_launchers(text.substr(0, text.find('='))))
      found.emplace_back(text);
  return found;
}

template <class Struct, class Member>
void take(Struct& into, const Struct& from, Member Struct::*member) {
  static const Struct usual{};
  if (into.*member == usual.*member) into.*member = from.*member;
}

/// What `into` leaves at its default, from `said`.
void fill(engine_options& into, const engine_options& said) {
  const auto all = [&](auto... members) { (take(into, said, members), ...); };
  using o = engine_options;
  all(&o::layout, &o::nic_ports, &o::choreography, &o::planner, &o::hccl, &o::nccl, &o::protocol, &o::tuning,
      &o::channels, &o::chunk_bytes, &o::slices_per_step, &o::credits, &o::streams, &o::through_scratch,
      &o::scratch_bytes, &o::level, &o::agreement, &o::offload, &o::nic, &o::stages, &o::deadline, &o::workers,
      &o::spin, &o::trace_routes, &o::record, &o::tls_certificate, &o::tls_key, &o::tls_authority, &o::lanes,
      &o::transport, &o::log_level);
  using f = fault_options;
  const auto faults = [&](auto... members) { (take(into.faults, said.faults, members), ...); };
  faults(&f::seed, &f::drop, &f::duplicate, &f::reorder, &f::delay, &f::longest_delay, &f::kill_after, &f::kill_rank);
  take(into.card, said.card, &card_sizes::l0);
  take(into.card, said.card, &card_sizes::l2);
  into.choreography_of.insert(said.choreography_of.begin(), said.choreography_of.end());
  into.score_files.insert(said.score_files.begin(), said.score_files.end());
  into.choreography_libraries.insert(said.choreography_libraries.begin(), said.choreography_libraries.end());
}

}  // namespace

std::string config_file_of_environment() {
  const char* const file = std::getenv("TROUPE_CONFIG");  // NOLINT(concurrency-mt-unsafe): nobody here changes it
  return file == nullptr ? std::string{} : file;
}

engine_options with_environment(engine_options options) {
  if (!options.environment) return options;
  options.environment = false;
  const std::vector<std::string> variables = variables_of_engines();
  if (variables.empty()) return options;  // an engine is cheap: no schema is read for nothing
  configuration said;
  if (const std::string file = config_file_of_environment(); !file.empty()) said.add_file(file);
  said.add_environment(variables);
  // A variable may name a score of the program's.
  for (const auto& [name, file] : options.score_files) said.set("engine.score_files." + name, file);
  fill(options, said.engine());
  return options;
}

}  // namespace troupe
