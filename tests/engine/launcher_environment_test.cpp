// SPDX-License-Identifier: Apache-2.0
// The environments are those that the launchers of Debian 12 were seen to set, without what nobody looks at.
#include "engine/world/launcher_environment.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

#include "actors/ports/link/rendezvous.hpp"
#include "engine/config/configuration.hpp"
#include "engine/world/job_id.hpp"
#include "memory/error.hpp"

using namespace troupe;

namespace {

using environment = std::map<std::string, std::string>;

constexpr std::uint32_t user = 1000;
const process_facts facts{user, "4711-123456"};
const std::string some_key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

environment operator+(environment base, const environment& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

environment without(environment base, const std::string& name) {
  base.erase(name);
  return base;
}

std::optional<launched> find(const environment& variables) {
  return launched_by(
      [&](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      facts);
}

void check_found(const environment& variables, const std::string& by, int process, int processes,
                 const std::string& rendezvous) {
  const auto here = find(variables);
  REQUIRE(here.has_value());
  CHECK(here->by == by);
  CHECK(here->process == process);
  CHECK(here->processes == processes);
  CHECK(here->rendezvous == rendezvous);
}

/// @param parts of the sentence
void check_refused(const environment& variables, const std::vector<std::string>& parts) {
  try {
    static_cast<void>(find(variables));
  } catch (const error& failure) {
    CHECK(failure.code_value() == errc::bad_config);
    const std::string text = failure.what();
    for (const std::string& part : parts) {
      INFO("\"", text, "\" lacks \"", part, "\"");
      CHECK((text.find(part) != std::string::npos));
    }
    return;
  }
  FAIL("was not refused");
}

const environment by_hand{{"TROUPE_JOIN", "tcp://node1:7000"}, {"TROUPE_RANK", "2"}, {"TROUPE_RANKS", "4"}};
const environment open_mpi{{"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_SIZE", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                           {"OMPI_MCA_orte_precondition_transports", "6f63ac238282a058-e4bd3461a594373f"},
                           {"OMPI_MCA_orte_hnp_uri", "29163520.0;tcp://192.0.2.2:53523;tcp6://[fd00::2]:54895"},
                           {"PMIX_NAMESPACE", "29163521"},
                           {"PMIX_RANK", "1"}};
const environment mpich{
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_FD", "8"}, {"MPI_LOCALNRANKS", "2"}, {"MPI_LOCALRANKID", "1"}};
const environment slurm{{"SLURM_PROCID", "1"},         {"SLURM_NTASKS", "2"},        {"SLURM_STEP_NUM_TASKS", "2"},
                        {"SLURM_STEP_NODELIST", "vm"}, {"SLURM_JOB_ID", "17"},       {"SLURM_STEP_ID", "0"},
                        {"SLURM_NODELIST", "vm"},      {"SLURM_STEP_NUM_NODES", "1"}};
const environment torchrun{{"RANK", "3"},
                           {"WORLD_SIZE", "4"},
                           {"LOCAL_WORLD_SIZE", "4"},
                           {"MASTER_ADDR", "node1"},
                           {"MASTER_PORT", "29500"},
                           {"TORCHELASTIC_RUN_ID", "none"},
                           {"TORCHELASTIC_RESTART_COUNT", "0"}};

}  // namespace

TEST_CASE("nobody has started this process") {
  CHECK_FALSE(find({}).has_value());
  CHECK_FALSE(find({{"TROUPE_JOIN", ""}, {"TROUPE_RANK", ""}, {"RANK", "3"}, {"WORLD_SIZE", "4"}}).has_value());
  CHECK_FALSE(find({{"TROUPE_KEY", some_key}}).has_value());
}

TEST_CASE("by hand") {
  check_found(by_hand, "TROUPE_JOIN", 2, 4, "tcp://node1:7000");
  for (const std::string address :
       {"tcp://[::1]:7000", "tcp://192.0.2.1:1", "tcp://[fe80::1%eth0]:65535", "unix:@mine"})
    check_found(by_hand + environment{{"TROUPE_JOIN", address}}, "TROUPE_JOIN", 2, 4, address);
  check_found({{"TROUPE_RANK", "0"}, {"TROUPE_RANKS", "1"}}, "TROUPE_JOIN", 0, 1, "");
}

TEST_CASE("by hand, half or wrong") {
  check_refused(by_hand + environment{{"TROUPE_RANK", "5"}},
                {"TROUPE_RANK is 5 of TROUPE_RANKS 4; of 4 processes the last is 3"});
  check_refused(by_hand + environment{{"TROUPE_RANK", "4"}}, {"the last is 3"});
  check_refused(by_hand + environment{{"TROUPE_RANK", "1"}, {"TROUPE_RANKS", "1"}}, {"of 1 process the only one is 0"});
  for (const std::string wrong : {"two", "-1", "2x", "0x1", " 1", "99999999999", "1.0"})
    check_refused(by_hand + environment{{"TROUPE_RANK", wrong}},
                  {"TROUPE_RANK is \"" + wrong + "\"", "whole number from 0 on"});
  check_refused(by_hand + environment{{"TROUPE_RANKS", "0"}}, {"TROUPE_RANKS is \"0\"", "whole number from 1 on"});
  check_refused(without(by_hand, "TROUPE_RANK"), {"TROUPE_RANKS is set, and TROUPE_RANK is not"});
  check_refused(without(by_hand, "TROUPE_RANKS"), {"TROUPE_RANK is set, and TROUPE_RANKS is not"});
  check_refused(without(by_hand, "TROUPE_JOIN"), {"TROUPE_JOIN is not", "TROUPE_JOIN=tcp://node1:7000"});
  check_refused({{"TROUPE_JOIN", "tcp://node1:7000"}},
                {"nothing says which process this is", "TROUPE_RANK and TROUPE_RANKS"});
}

TEST_CASE("addresses that are none") {
  for (const std::string wrong :
       {"node1:7000", "http://node1:7000", "tcp://node1", "tcp://:7000", "tcp://::1:7000", "tcp://[::1]",
        "tcp://[::1:7000", "tcp://[]:7000", "tcp://a b:7000", "tcp://a/b:7000", "unix:@", "unix:/tmp/x"})
    check_refused(by_hand + environment{{"TROUPE_JOIN", wrong}},
                  {"TROUPE_JOIN is \"" + wrong + "\"", "tcp://host:port"});
  for (const std::string wrong : {"0", "65536", "x", "", "-1", "7000 "})
    check_refused(by_hand + environment{{"TROUPE_JOIN", "tcp://node1:" + wrong}}, {"its port must be 1 … 65535"});
}

TEST_CASE("keys") {
  CHECK(find(by_hand)->key.empty());
  CHECK_FALSE(key_of(*find(by_hand)).present());
  const auto with_key = find(by_hand + environment{{"TROUPE_KEY", some_key}});
  CHECK(key_of(*with_key).to_hex() == some_key);
  CHECK(key_of(*find(open_mpi + environment{{"TROUPE_KEY", some_key}})).to_hex() == some_key);
  check_refused(by_hand + environment{{"TROUPE_KEY", some_key}, {"TROUPE_KEY_FILE", "key"}}, {"both set"});
  try {
    static_cast<void>(key_of(*find(by_hand + environment{{"TROUPE_KEY", "5ec2e7"}})));
    FAIL("was not refused");
  } catch (const error& failure) {
    const std::string text = failure.what();
    CHECK((text.find("TROUPE_KEY is wrong: a job's key is 64 hexadecimal digits") != std::string::npos));
    CHECK((text.find("5ec2e7") == std::string::npos));
  }
  const auto path = std::filesystem::temp_directory_path() / ("troupe_launcher_key_" + std::to_string(getpid()));
  std::ofstream{path} << some_key << '\n';
  chmod(path.c_str(), 0600);
  CHECK(key_of(*find(by_hand + environment{{"TROUPE_KEY_FILE", path.string()}})).to_hex() == some_key);
  std::filesystem::remove(path);
}

TEST_CASE("Open MPI's mpirun") {
  check_found(open_mpi, "mpirun (Open MPI)", 1, 2, "unix:@troupe-1000-openmpi-6f63ac238282a058-e4bd3461a594373f");
  check_found(without(open_mpi, "OMPI_MCA_orte_precondition_transports"), "mpirun (Open MPI)", 1, 2,
              "unix:@troupe-1000-openmpi-29163521");
  check_found(open_mpi + environment{{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}, "mpirun (Open MPI)",
              0, 1, "");
  // Over two hosts all compute the same, whichever rank they are.
  const environment hosts = open_mpi + environment{{"OMPI_COMM_WORLD_SIZE", "4"}};
  const auto one = find(hosts), other = find(hosts + environment{{"OMPI_COMM_WORLD_RANK", "3"}});
  CHECK(one->rendezvous.starts_with("tcp://192.0.2.2:2"));
  CHECK(one->rendezvous.size() == std::string{"tcp://192.0.2.2:20000"}.size());
  CHECK(one->rendezvous == other->rendezvous);
  const auto another =
      find(hosts + environment{{"OMPI_MCA_orte_precondition_transports", "7f63ac238282a058-e4bd3461a594373f"}});
  CHECK(another->rendezvous != one->rendezvous);
  CHECK(find(hosts + environment{{"OMPI_MCA_orte_hnp_uri", "1.0;tcp://192.0.2.2,198.51.100.7:53523"}})->rendezvous ==
        one->rendezvous);
  check_refused(without(hosts, "OMPI_MCA_orte_hnp_uri"), {"mpirun -x TROUPE_JOIN=tcp://HOST:PORT"});
  check_refused(without(without(open_mpi, "OMPI_MCA_orte_precondition_transports"), "PMIX_NAMESPACE"),
                {"nothing that names the job"});
  check_refused(without(open_mpi, "OMPI_COMM_WORLD_SIZE"),
                {"OMPI_COMM_WORLD_RANK is set, and OMPI_COMM_WORLD_SIZE is not"});
  check_refused(open_mpi + environment{{"OMPI_COMM_WORLD_RANK", "2"}},
                {"OMPI_COMM_WORLD_RANK is 2 of OMPI_COMM_WORLD_SIZE 2"});
  // Open MPI 5: names of any length and with other characters.
  const auto five = find(without(open_mpi, "OMPI_MCA_orte_precondition_transports") +
                         environment{{"PMIX_NAMESPACE", "prterun-" + std::string(200, 'h') + "-1234@1"}});
  CHECK(five->rendezvous.starts_with("unix:@troupe-1000-openmpi-h"));
  CHECK(five->rendezvous.size() < 100);
}

TEST_CASE("MPICH's mpirun") {
  check_found(mpich, "mpirun (MPICH)", 1, 2, "unix:@troupe-1000-mpich-4711-123456");
  check_refused(mpich + environment{{"PMI_SIZE", "4"}},
                {"mpirun (MPICH) started this process as 1 of 4", "mpirun -genv TROUPE_JOIN tcp://HOST:PORT"});
  check_found(mpich + environment{{"PMI_SIZE", "4"}, {"TROUPE_JOIN", "tcp://node1:7000"}}, "mpirun (MPICH)", 1, 4,
              "tcp://node1:7000");
  check_refused(without(mpich, "PMI_SIZE"), {"PMI_RANK is set, and PMI_SIZE is not"});
  check_found({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}, "mpirun (MPICH)", 0, 1, "");
  try {
    static_cast<void>(launched_by(
        [](const char* name) {
          const auto found = mpich.find(name);
          return found == mpich.end() ? nullptr : found->second.c_str();
        },
        {user, ""}));
    FAIL("was not refused");
  } catch (const error& failure) {
    CHECK((std::string{failure.what()}.find("nothing that names the job") != std::string::npos));
  }
}

TEST_CASE("Slurm's srun") {
  check_found(slurm, "srun (Slurm)", 1, 2, "unix:@troupe-1000-slurm-17.0");
  // srun -n 2 of a job with four tasks
  check_found(slurm + environment{{"SLURM_NTASKS", "4"}}, "srun (Slurm)", 1, 2, "unix:@troupe-1000-slurm-17.0");
  check_found(without(slurm, "SLURM_STEP_NUM_TASKS"), "srun (Slurm)", 1, 2, "unix:@troupe-1000-slurm-17.0");
  const environment hosts = slurm + environment{{"SLURM_STEP_NUM_TASKS", "64"}, {"SLURM_PROCID", "63"}};
  const auto first = [&](const std::string& list) {
    const std::string address = find(hosts + environment{{"SLURM_STEP_NODELIST", list}})->rendezvous;
    CHECK(address.starts_with("tcp://"));
    return address.substr(6, address.rfind(':') - 6);
  };
  CHECK(first("n[01-03,7],other") == "n01");
  CHECK(first("n[7,01-03]") == "n7");
  CHECK(first("n[1-2]-ib") == "n1-ib");
  CHECK(first("r[1-2]n[10-20]") == "r1n10");
  CHECK(first("a,b") == "a");
  CHECK(first("login,n[1-2]") == "login");
  check_refused(hosts + environment{{"SLURM_STEP_NODELIST", "n[1-2"}}, {"SLURM_STEP_NODELIST is \"n[1-2\""});
  check_refused(without(hosts, "SLURM_STEP_NODELIST"), {"names no first host"});
  check_refused(without(without(slurm, "SLURM_STEP_NUM_TASKS"), "SLURM_NTASKS"),
                {"neither SLURM_STEP_NUM_TASKS nor SLURM_NTASKS"});
  const std::string one = find(hosts + environment{{"SLURM_STEP_NODELIST", "a,b"}})->rendezvous;
  CHECK(find(hosts + environment{{"SLURM_STEP_NODELIST", "a,b"}, {"SLURM_PROCID", "0"}})->rendezvous == one);
  CHECK(find(hosts + environment{{"SLURM_STEP_NODELIST", "a,b"}, {"SLURM_STEP_ID", "1"}})->rendezvous != one);
}

TEST_CASE("a batch script of Slurm is no process of a job") {
  CHECK_FALSE(find({{"SLURM_JOB_ID", "3"}, {"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "0"}}).has_value());
  CHECK_FALSE(find({{"SLURM_JOB_ID", "3"}, {"SLURM_NTASKS", "2"}}).has_value());  // nor salloc's shell
}

TEST_CASE("one launcher inside another") {
  // srun --mpi=pmi2 speaks PMI, too.
  check_found(slurm + environment{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_JOBID", "17.0"}}, "srun (Slurm)", 1, 2,
              "unix:@troupe-1000-slurm-17.0");
  // mpirun of MPICH starts its proxies with srun, a task on every host.
  check_found(mpich + slurm + environment{{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}, "mpirun (MPICH)", 1, 2,
              "unix:@troupe-1000-mpich-4711-123456");
  check_found(mpich + slurm, "mpirun (MPICH)", 1, 2, "unix:@troupe-1000-mpich-4711-123456");
  check_found(open_mpi + environment{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_ID", "3"}},
              "mpirun (Open MPI)", 1, 2, "unix:@troupe-1000-openmpi-6f63ac238282a058-e4bd3461a594373f");
  check_found(open_mpi + mpich + slurm + torchrun + by_hand, "TROUPE_JOIN", 2, 4, "tcp://node1:7000");
}

TEST_CASE("torchrun") {
  check_found(torchrun, "torchrun", 3, 4, "unix:@troupe-1000-torchrun-29500-none-0");
  check_found(torchrun + environment{{"WORLD_SIZE", "8"}}, "torchrun", 3, 8, "tcp://node1:29501");
  check_found(torchrun + environment{{"WORLD_SIZE", "8"}, {"MASTER_PORT", "65535"}}, "torchrun", 3, 8,
              "tcp://node1:65534");
  check_found(torchrun + environment{{"WORLD_SIZE", "8"}, {"MASTER_ADDR", "fd00::1"}}, "torchrun", 3, 8,
              "tcp://[fd00::1]:29501");
  check_refused(torchrun + environment{{"MASTER_PORT", "x"}}, {"MASTER_PORT is \"x\""});
  check_refused(torchrun + environment{{"MASTER_PORT", "70000"}}, {"MASTER_PORT is 70000"});
  check_refused(torchrun + environment{{"RANK", "4"}}, {"RANK is 4 of WORLD_SIZE 4"});
}

namespace {
named_pod pod(const environment& variables) {
  return pod_by([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}
using names = std::vector<std::string>;
}  // namespace

TEST_CASE("the groups of hosts that this one is in: by hand, or by what srun says of the network") {
  CHECK(pod({}).groups.empty());
  CHECK_FALSE(pod({}).told);
  CHECK(pod({{"TROUPE_POD", "rack1/leaf2"}}).groups == names{"rack1", "leaf2"});
  CHECK(pod({{"TROUPE_POD", "rack1/leaf2"}}).told);
  CHECK(pod({{"TROUPE_POD", "a/b/c/d/e"}}).groups.size() == actors::most_groups);
  for (const std::string wrong : {"a//b", "/a", "a/", "a b", "a/b/c/d/e/f", "\n"}) {
    CAPTURE(wrong);
    try {
      static_cast<void>(pod({{"TROUPE_POD", wrong}}));
      FAIL("was not refused");
    } catch (const error& failure) {
      CHECK(failure.code_value() == errc::bad_config);
      CHECK(std::string{failure.what()}.find("TROUPE_POD is \"" + wrong + "\"") == 0);
    }
  }

  const environment tree{{"SLURM_TOPOLOGY_ADDR", "spine.leaf2.node7"},
                         {"SLURM_TOPOLOGY_ADDR_PATTERN", "switch.switch.node"}};
  CHECK(pod(slurm + tree).groups == names{"spine", "leaf2"});
  CHECK_FALSE(pod(slurm + tree).told);
  CHECK(pod(slurm + tree + environment{{"TROUPE_JOIN", "tcp://node1:7000"}}).groups == names{"spine", "leaf2"});
  CHECK(pod(slurm + tree + environment{{"TROUPE_POD", "mine"}}).groups == names{"mine"});
  CHECK(pod(slurm + tree + environment{{"TROUPE_POD", "/"}}).groups.empty());
  // Without a network of switches Slurm names the host alone.
  CHECK(pod(slurm + environment{{"SLURM_TOPOLOGY_ADDR", "node7"}, {"SLURM_TOPOLOGY_ADDR_PATTERN", "node"}})
            .groups.empty());
  CHECK(pod(slurm +
            environment{{"SLURM_TOPOLOGY_ADDR", "b3.node.with.dots"}, {"SLURM_TOPOLOGY_ADDR_PATTERN", "block.node"}})
            .groups == names{"b3"});
  CHECK(pod(slurm + environment{{"SLURM_TOPOLOGY_ADDR", "a.b.c.d.e.f.n"},
                                {"SLURM_TOPOLOGY_ADDR_PATTERN", "switch.switch.switch.switch.switch.switch.node"}})
            .groups == names{"b", "c", "d", "e", "f"});
  // A batch script, and what other launchers start in a job of Slurm.
  CHECK(pod(without(slurm, "SLURM_STEP_ID") + tree).groups.empty());
  CHECK(pod(slurm + tree + by_hand).groups.empty());
  CHECK(pod(slurm + tree + open_mpi).groups.empty());
  CHECK(pod(slurm + tree + mpich).groups.empty());
}

TEST_CASE("what a launcher sets is no mistake of a configuration") {
  configuration config;
  const std::vector<std::string> set{"TROUPE_JOIN=tcp://node1:7000", "TROUPE_RANK=0", "TROUPE_RANKS=4",
                                     "TROUPE_KEY=" + some_key, "TROUPE_KEY_FILE=key"};
  CHECK_NOTHROW(config.add_environment(set));
  for (const std::string& variable : set) CHECK(concerns_launchers(variable.substr(0, variable.find('='))));
  CHECK_FALSE(concerns_launchers("TROUPE_CONFIG"));
}

TEST_CASE("the process that started this session is known, and stays the same") {
  const process_facts here = facts_of_this_process(), again = facts_of_this_process();
  CHECK(here.user == geteuid());
  CHECK(here.starter == again.starter);
  if (!here.starter.empty()) CHECK((here.starter.find('-') != std::string::npos));
}

TEST_CASE("an invitation is a place to meet; who comes alone needs no number, and none of whoever started it") {
  const auto invitation = [](std::uint32_t fresh) {
    return text_of_invitation(serve_id({.listen = "tcp://127.0.0.1:0"}, "", 3, fresh, nullptr).id);
  };
  const std::string one = invitation(1), two = invitation(2);
  const environment numbers{{"TROUPE_RANK", "1"}, {"TROUPE_RANKS", "2"}};
  const environment torchrun{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}};
  check_found({{"TROUPE_JOIN", one}}, "TROUPE_JOIN", 0, 1, one);
  check_found(torchrun + environment{{"TROUPE_JOIN", one}}, "TROUPE_JOIN", 0, 1, one);
  check_found(numbers + environment{{"TROUPE_JOIN", one}}, "TROUPE_JOIN", 1, 2, one);  // which the join refuses
  check_found(torchrun + environment{{"TROUPE_JOIN", two}}, "torchrun", 1, 2, two);
  check_found(numbers + environment{{"TROUPE_JOIN", two}}, "TROUPE_JOIN", 1, 2, two);
  check_refused({{"TROUPE_JOIN", two}}, {"TROUPE_RANK and TROUPE_RANKS"});
  check_refused({{"TROUPE_JOIN", one.substr(0, 100)}}, {"no invitation of communicator::grow()", "not all of it"});

  const meeting m = meeting_of_invitation(two);
  CHECK(m.before == 3);
  CHECK(m.fresh == 2);
  CHECK(m.rendezvous.starts_with("tcp://127.0.0.1:"));
  const job_id begins = make_id({.listen = "tcp://127.0.0.1:0", .serve_for = std::chrono::milliseconds{0}});
  check_refused({{"TROUPE_JOIN", text_of_invitation(begins)}}, {"of a job that begins"});
}
