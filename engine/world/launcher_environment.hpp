// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where a process belongs, by what the program that started it has set: which process of how many it is, and where they meet. Nothing
// here sends a message. The first of these that is found counts:
//
//  by hand, troupe launch   TROUPE_JOIN (tcp://host:port, tcp://[v6]:port, unix:@name), TROUPE_RANK, TROUPE_RANKS. TROUPE_JOIN without the
//                           other two says where the processes of one of the following meet. It may also be an invitation of
//                           communicator::grow(); then the numbers are those of the new processes, and one needs none.
//  Open MPI's mpirun        OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE
//  MPICH's mpirun (Hydra)   PMI_RANK, PMI_SIZE, MPI_LOCALNRANKS
//  Slurm's srun             SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS, SLURM_STEP_ID. A batch script has no SLURM_STEP_ID: it
//                           is no process of a job. With --mpi=pmi2 there is a PMI_RANK, too, and no MPI_LOCALNRANKS.
//  torchrun                 RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
//
// TROUPE_KEY (64 hexadecimal digits) or TROUPE_KEY_FILE count for all of them, and so does TROUPE_POD: the groups of hosts that this one is in, from
// the outside in, "rack1/leaf2". Without it a process that srun has started knows the switches above its host, where Slurm has been told them
// (topology/tree, topology/block): SLURM_TOPOLOGY_ADDR is "spine.leaf2.node7" then, and SLURM_TOPOLOGY_ADDR_PATTERN "switch.switch.node".
//
// None but the first gives an address for us. Process 0 listens at one that the others can compute, made from what identifies the job:
//
//              the job's identity                                        all on one host if           the first host
//   Open MPI   OMPI_MCA_orte_precondition_transports (128 random bits),  OMPI_COMM_WORLD_LOCAL_SIZE   that of OMPI_MCA_orte_hnp_uri, where
//              else PMIX_NAMESPACE                                       is all                       mpirun runs
//   MPICH      none is set: who started the session that each process    MPI_LOCALNRANKS is all       none is set: an error
//              is given, which is a host's hydra_pmi_proxy
//   Slurm      SLURM_JOB_ID, SLURM_STEP_ID                               SLURM_STEP_NODELIST has      first of SLURM_STEP_NODELIST
//                                                                        one host
//   torchrun   MASTER_PORT, TORCHELASTIC_RUN_ID,                         LOCAL_WORLD_SIZE is all      MASTER_ADDR
//              TORCHELASTIC_RESTART_COUNT
//
// On one host: unix:@troupe-<user>-<launcher>-<identity>, a name without a file, which ends with its process and is seen in its network
// namespace only. It is no secret: both ends ask the kernel who the other one is (SO_PEERCRED). Over several hosts: tcp, at the first host
// and a port of 20000 … 29999 made from the identity (torchrun: the one behind MASTER_PORT, where its own store listens). If that port
// is taken, if process 0 is not on that host (srun --distribution=arbitrary, an mpirun on a host of its own), or in containers that do
// not share process ids (MPICH), TROUPE_JOIN says another.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/ports/link/job_key.hpp"

namespace troupe {

/// The value of a variable, or null. std::getenv is one.
using environment_lookup = std::function<const char*(const char* name)>;

/// What is not in the environment.
struct process_facts {
  std::uint32_t user = 0;
  std::string
      starter;  ///< who made this process's session: process id and when it began, "1234-567890"; empty if it cannot be known
};
process_facts facts_of_this_process();

struct launched {
  std::string by;          ///< "TROUPE_JOIN", "mpirun (Open MPI)", …: for messages
  std::string rendezvous;  ///< where the processes meet; empty if there is only one
  int process = 0;
  int processes = 1;
  std::string key{};       ///< hexadecimal, as TROUPE_KEY has it, unread; never to be shown
  std::string key_file{};  ///< TROUPE_KEY_FILE
};

/// Nothing if nobody has set anything: a program of one process. Throws errc::bad_config where what is set cannot be followed.
std::optional<launched> launched_by(const environment_lookup& environment, const process_facts& facts);

/// From key or key_file, if there is one. Throws errc::bad_config, errc::io.
actors::job_key key_of(const launched& where);

/// Of "rack1/leaf2": the groups, outermost first; of "/" and of nothing: none. @param who said it, for messages. Throws errc::bad_config.
std::vector<std::string> groups_of_pod(std::string_view pod, const std::string& who);
/// Where a host stands among groups of hosts.
struct named_pod {
  std::vector<std::string> groups;  ///< outermost first
  bool told = false;                ///< by a person, who has to say it of all hosts
};
/// By TROUPE_POD, else by srun. Throws errc::bad_config where TROUPE_POD names none.
named_pod pod_by(const environment_lookup& environment);

/// Whether a variable is one of ours for launchers, and so no key of the configuration.
bool concerns_launchers(std::string_view variable);

}  // namespace troupe
