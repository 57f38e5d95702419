// SPDX-License-Identifier: Apache-2.0
// Real launchers start the program, whose processes then join by themselves. Each is skipped with a message where it is not installed.

#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/engine/program.hpp"
#include "tests/processes/hosts.hpp"
#include "tests/processes/processes.hpp"

using namespace process_tests;
using namespace troupe_program;

namespace {

bool have(const std::string& tool) {
  if (system_does("command -v " + tool)) return true;
  MESSAGE("skipped: there is no " << tool << " here");
  return false;
}

/// Small: one size of one collective, checked.
const std::string bench = "bench -b 64 -e 64 -n 2 -w 1";

/// One table of one job, right to the last byte, whoever has started it.
void check_job(const outcome& o, int ranks) {
  CAPTURE(o.out);
  CAPTURE(o.err);
  CHECK(o.code == 0);
  const std::string said = "# troupe " + std::to_string(ranks) + " ranks, a process each";
  const auto at = o.out.find(said);
  REQUIRE((at != std::string::npos));
  CHECK((o.out.find("# troupe ", at + 1) == std::string::npos));
  std::size_t rows = 0;
  for (const auto& row : rows_of(o.out)) {
    REQUIRE(row.size() >= 13);
    CHECK(row[8] == "0");
    CHECK(row[12] == "0");
    ++rows;
  }
  CHECK(rows == 1);
}

/// Processes that this test keeps running, each with a group of its own.
class background {
public:
  ~background() {
    for (auto pid = pids_.rbegin(); pid != pids_.rend(); ++pid) end(*pid);
  }
  void start(const std::string& command) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::setpgid(0, 0);
      ::execl("/bin/sh", "sh", "-c", ("exec " + command).c_str(), nullptr);
      ::_exit(127);
    }
    ::setpgid(pid, pid);
    pids_.push_back(pid);
  }

private:
  static void end(pid_t pid) {
    ::kill(-pid, SIGTERM);
    for (int i = 0; i < 300; ++i, ::usleep(10'000))
      if (::waitpid(pid, nullptr, WNOHANG) == pid) break;
    ::kill(-pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  std::vector<pid_t> pids_;
};

bool becomes_true(const std::string& command, std::chrono::seconds within) {
  for (const auto until = std::chrono::steady_clock::now() + within; std::chrono::steady_clock::now() < until;
       ::usleep(50'000))
    if (system_does(command)) return true;
  return false;
}

}  // namespace

TEST_CASE("launchers: mpirun of Open MPI") {
  if (!have("mpirun.openmpi")) return;
  const std::string mpirun =
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun.openmpi --oversubscribe -n ";
  check_job(run(bench, mpirun + "3"), 3);
  const outcome wrong = run(bench + " --processes 5", mpirun + "2");
  CHECK(wrong.code == 2);
  check_says(wrong.err, "--processes 5: this is one of 2 processes already, by mpirun (Open MPI)");
  const auto once = wrong.err.find("this is one of");
  CHECK((wrong.err.find("this is one of", once + 1) == std::string::npos));  // process 0 alone has said it
}

TEST_CASE("launchers: mpirun of MPICH") {
  if (!have("mpirun.mpich")) return;
  check_job(run(bench, "mpirun.mpich -n 3"), 3);
}

TEST_CASE("launchers: srun of a Slurm that is brought up here") {
  for (const char* tool : {"munged", "slurmctld", "slurmd", "srun"})
    if (!have(tool)) return;
  if (::geteuid() != 0) {
    MESSAGE("skipped: a Slurm of one's own needs root");
    return;
  }
  const std::string at = (folder() / "slurm").string();
  fs::create_directories(at + "/spool");
  fs::create_directories(at + "/state");
  fs::permissions(at, fs::perms::owner_all | fs::perms::group_read | fs::perms::group_exec | fs::perms::others_read |
                          fs::perms::others_exec);
  REQUIRE(system_does("head -c 1024 /dev/urandom > " + at + "/key && chmod 400 " + at + "/key"));
  const std::string port = std::to_string(20000 + 2 * (::getpid() % 5000));
  const std::string next = std::to_string(std::stoi(port) + 1);
  const std::string conf =
      write("slurm/slurm.conf",
            "ClusterName=test\nSlurmctldHost=localhost\nSlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\n"
            "CredType=cred/munge\nMpiDefault=none\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n"
            "JobAcctGatherType=jobacct_gather/none\nSwitchType=switch/none\nReturnToService=2\n"
            "SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nAuthInfo=socket=" +
                at + "/munge\nSlurmctldPort=" + port + "\nSlurmdPort=" + next + "\nSlurmctldPidFile=" + at +
                "/ctld.pid\nSlurmdPidFile=" + at + "/d.pid\nSlurmdSpoolDir=" + at + "/spool\nStateSaveLocation=" + at +
                "/state\nSlurmctldLogFile=" + at + "/ctld.log\nSlurmdLogFile=" + at +
                "/d.log\nNodeName=here NodeHostname=localhost NodeAddr=127.0.0.1 CPUs=2 "
                "State=UNKNOWN\nTopologyPlugin=topology/tree\nPartitionName=all Nodes=here Default=YES "
                "OverSubscribe=FORCE:8 State=UP\n");
  write("slurm/topology.conf", "SwitchName=leaf Nodes=here\nSwitchName=spine Switches=leaf\n");
  background daemons;
  daemons.start("munged --force --foreground --socket=" + at + "/munge --key-file=" + at + "/key --pid-file=" + at +
                "/munge.pid --log-file=" + at + "/munge.log --seed-file=" + at + "/seed >" + at + "/munge.out 2>&1");
  bool up = becomes_true("test -S " + at + "/munge", std::chrono::seconds{5});
  daemons.start("env SLURM_CONF=" + conf + " slurmctld -D >" + at + "/ctld.out 2>&1");
  daemons.start("env SLURM_CONF=" + conf + " slurmd -D -N here >" + at + "/d.out 2>&1");
  up = up && becomes_true("SLURM_CONF=" + conf + " sinfo -h -o %T | grep -q idle", std::chrono::seconds{15});
  if (!up) {
    MESSAGE("skipped: no Slurm comes up here: " << contents(at + "/ctld.out") << contents(at + "/d.out")
                                                << contents(at + "/munge.out"));
    return;
  }
  // A time of its own, as srun waits for resources without end.
  const std::string srun = "SLURM_CONF=" + conf + " timeout 30 srun -n 3 --overcommit ";
  check_job(run(bench, srun), 3);
  // The network as a join reads it (engine/world/launcher_environment.hpp).
  CHECK(system_does(srun + "sh -c 'test \"$SLURM_TOPOLOGY_ADDR $SLURM_TOPOLOGY_ADDR_PATTERN\" = "
                           "\"spine.leaf.here switch.switch.node\"'"));
}

TEST_CASE("launchers: torchrun of PyTorch") {
  const std::string module = "/usr/bin/python3 -m torch.distributed.run";
  if (!system_does(module + " --help")) {
    MESSAGE("skipped: there is no torchrun here (Debian: python3-torch)");
    return;
  }
  // Process 1's output goes to a file: with Python 3.11 the torchrun of PyTorch 1.13 fails where nobody's does.
  const std::string common = " -r 1:1 -t 1:1 --log_dir " + (folder() / "torch").string() + " --no_python";
  check_job(run(bench, module + " --standalone --nproc_per_node 3" + common), 3);
  // Two agents, as on two hosts: the processes meet beside their store.
  const auto agent = [&](int node) {
    return module + " --nnodes 2 --node_rank " + std::to_string(node) + " --master_addr 127.0.0.1 --master_port " +
           std::to_string(20000 + ::getpid() % 10000) + " --nproc_per_node 2" + common;
  };
  background other;
  other.start("timeout 60 " + agent(1) + " '" TROUPE_PROGRAM "' " + bench + " >/dev/null 2>&1");
  check_job(run(bench, "timeout 60 " + agent(0)), 4);
}

TEST_CASE("launchers: the environments of srun and torchrun, without them") {
  const std::string out = (folder() / "out").string();
  const auto both = [&](const std::string& all, const std::string& number) {
    std::string line;
    for (const char* process : {"1", "0"})
      line += all + " " + number + "=" + process + " '" TROUPE_PROGRAM "' " + bench + " " +
              (*process == '1' ? "& other=$!; " : ">'" + out + "'; code=$?; wait $other && exit $code");
    const int status = std::system(("exec 2>'" + out + ".err'; " + line).c_str());
    return outcome{WIFEXITED(status) ? WEXITSTATUS(status) : -1, contents(out), contents(out + ".err")};
  };
  const std::string number = std::to_string(::getpid());
  check_job(both("SLURM_JOB_ID=" + number + " SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST=here",
                 "SLURM_PROCID"),
            2);
  check_job(both("WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" +
                     std::to_string(20000 + ::getpid() % 10000) + " TORCHELASTIC_RUN_ID=" + number,
                 "RANK"),
            2);
}

TEST_CASE("launchers: troupe launch over sshd, on hosts of their own") {
  for (const char* tool : {"ssh", "ssh-keygen", "/usr/sbin/sshd"})
    if (!have(tool)) return;
  const hosts_of_test hosts{2};
  if (!hosts.ready()) return;
  const std::string at = (folder() / "ssh").string();
  fs::create_directories(at);
  for (const char* name : {"host", "user"})
    REQUIRE(system_does("ssh-keygen -q -t ed25519 -N '' -f " + at + "/" + name));
  const bool made = !fs::exists("/run/sshd") && fs::create_directory("/run/sshd");  // where sshd insists on one
  background daemons;
  daemons.start(hosts.on(1, "/usr/sbin/sshd -D -e -f /dev/null -p 2222 -h " + at +
                                "/host -o ListenAddress=10.213.7.2 -o PidFile=none -o StrictModes=no -o UsePAM=no "
                                "-o PermitRootLogin=yes -o AuthorizedKeysFile=" +
                                at + "/user.pub >" + at + "/log 2>&1"));
  const std::string options = "-T -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o "
                              "LogLevel=ERROR -i " +
                              at + "/user -p 2222 root@10.213.7.2";
  if (becomes_true(hosts.on(0, "ssh " + options + " true"), std::chrono::seconds{5})) {
    std::string command = "\"ssh\"";
    std::istringstream words{options};
    for (std::string word; words >> word;) command += ", \"" + word + "\"";
    const std::string file =
        write("ssh/hosts.toml", "[[host]]\naddress = \"10.213.7.1\"\ncommand = []\n[[host]]\naddress = "
                                "\"10.213.7.2\"\nslots = 2\ncommand = [" +
                                    command + "]\n");
    const std::string here = "ip netns exec " + hosts.name(0);
    check_job(run("launch --no-prefix --hosts '" + file + "' '" TROUPE_PROGRAM "' " + bench, here), 3);
    const std::string workload =
        write("ssh/hosts_run.toml", "[workload]\nhosts = \"hosts.toml\"\niterations = 2\n[[workload.run]]\n"
                                    "collective = \"all_reduce\"\nsizes = [64]\n");
    check_job(run("run '" + workload + "'", here), 3);
  } else {
    MESSAGE("skipped: nobody can log in at an sshd here: " << contents(at + "/log"));
  }
  if (made) fs::remove("/run/sshd");
}
