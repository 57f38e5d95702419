// SPDX-License-Identifier: Apache-2.0
#include "engine/world/whereabouts.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "actors/ports/link/sockets.hpp"
#include "engine/world/launcher_environment.hpp"
#include "memory/error.hpp"

namespace troupe {

whereabouts find_grown(const meeting& m, std::uint32_t process) {
  whereabouts w;
  w.rendezvous = m.rendezvous;
  w.process = process;
  w.processes = m.before + m.fresh;
  w.key = actors::job_key::from_hex(m.key);
  w.served = true;
  w.one_host = m.one_host;
  w.first_new = m.before;
  return w;
}

namespace {

/// The place that an invitation gives to new process `number` of `count`; −1: nobody has said which or how many.
whereabouts find_invited(const std::string& invitation, int number, int count) {
  const meeting m = meeting_of_invitation(invitation);
  const auto fresh = static_cast<int>(m.fresh);
  if (fresh > 1 && (number < 0 || count < 0))
    throw error(errc::bad_config,
                "join: the invitation is for " + std::to_string(fresh) +
                    " new processes, and nobody says which of them this one is; set TROUPE_RANK (0 … " +
                    std::to_string(fresh - 1) + ") and TROUPE_RANKS, or start them by a launcher");
  if (count >= 0 && count != fresh)
    throw error(errc::bad_config, "join: the invitation is for " + std::to_string(fresh) + " new process" +
                                      (fresh == 1 ? "" : "es") + ", but this one is said to be one of " +
                                      std::to_string(count));
  if (number >= fresh)
    throw error(errc::bad_config, "join: there is no new process " + std::to_string(number) + " of " +
                                      std::to_string(fresh) + "; numbers begin with 0");
  return find_grown(m, m.before + static_cast<std::uint32_t>(std::max(number, 0)));
}

}  // namespace

whereabouts find_job(const join_options& options) {
  std::optional<launched> by;
  const bool alone = is_invitation(options.rendezvous) && meeting_of_invitation(options.rendezvous).fresh == 1;
  if (!alone && (options.rendezvous.empty() || options.process < 0 || options.processes <= 0 || options.key.empty()))
    by = launched_by(
        [](const char* name) -> const char* {
          return std::getenv(name);
        },  // NOLINT(concurrency-mt-unsafe): nobody here changes it
        facts_of_this_process());
  whereabouts w;
  w.rendezvous = !options.rendezvous.empty() ? options.rendezvous : by ? by->rendezvous : std::string{};
  const int process = options.process >= 0 ? options.process : by ? by->process : -1;
  const int processes = options.processes > 0 ? options.processes : by ? by->processes : -1;
  if (is_invitation(w.rendezvous)) return find_invited(w.rendezvous, process, processes);
  if (process < 0 || processes < 0 || (w.rendezvous.empty() && processes > 1))
    throw error(
        errc::bad_config,
        "join: nobody says which job this process belongs to; start it by troupe launch -n N PROGRAM, by mpirun, "
        "srun or torchrun, or set TROUPE_JOIN (tcp://host:port), TROUPE_RANK and TROUPE_RANKS");
  if (process >= processes)
    throw error(errc::bad_config, "join: there is no process " + std::to_string(process) + " in a job of " +
                                      std::to_string(processes) + "; numbers begin with 0");
  if (w.rendezvous.empty()) w.rendezvous = "tcp://127.0.0.1:0";
  w.process = static_cast<std::uint32_t>(process);
  w.processes = static_cast<std::uint32_t>(processes);
  if (!options.key.empty()) w.key = actors::job_key::from_hex(options.key);
  else if (by) w.key = key_of(*by);
  w.one_host = actors::socket_address::resolve(w.rendezvous).front().is_local();
  return w;
}

whereabouts find_job(const job_id& which, int ranks, int rank) {
  if (ranks < 1 || rank < 0 || rank >= ranks)
    throw error(errc::invalid_argument, "there is no rank " + std::to_string(rank) + " in a job of " +
                                            std::to_string(ranks) + "; numbers begin with 0");
  const meeting m = meeting_of(which);
  whereabouts w;
  w.rendezvous = m.rendezvous;
  w.process = static_cast<std::uint32_t>(rank);
  w.processes = static_cast<std::uint32_t>(ranks);
  w.key = actors::job_key::from_hex(m.key);
  w.served = true;
  w.one_host = m.one_host;
  return w;
}

}  // namespace troupe
