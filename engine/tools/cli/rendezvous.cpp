// SPDX-License-Identifier: Apache-2.0
// troupe rendezvous
#include "engine/tools/cli/cli.hpp"

#include <cstdlib>
#include <iostream>
#include <memory>
#include <mutex>

#include "actors/ports/link/rendezvous.hpp"
#include "actors/ports/link/sockets.hpp"
#include "engine/world/join.hpp"
#include "engine/world/launcher_environment.hpp"
#include "memory/error.hpp"

namespace troupe::cli {

namespace rendezvous_command {
namespace {

constexpr const char* footer = R"(Examples:
  troupe rendezvous --listen unix:@jobs
  troupe rendezvous --listen tcp://10.0.0.1:5600 --key-file job.key
  troupe rendezvous --listen tcp://127.0.0.1:0 --ranks 4 --once

Processes that are started with TROUPE_JOIN set to that address, with their TROUPE_RANK and TROUPE_RANKS, find each other here; none of
them has to be first, nor to serve. It serves one job after the other until it is interrupted: when all processes of one have come, or were
refused, the next may come. Processes of two jobs must not come at the same time; give each an address of its own.

It says on standard output where it listens, and a line for each job. Beyond loopback it needs a key (openssl rand -hex 32 > job.key), the
same as in TROUPE_KEY or TROUPE_KEY_FILE of the processes. Where their engines have certificates, it needs them in the environment, too:
TROUPE_ENGINE_TLS_CERTIFICATE, TROUPE_ENGINE_TLS_KEY, TROUPE_ENGINE_TLS_AUTHORITY.)";

constexpr int most_ranks = 65536;

struct arguments {
  std::string listen, key_file;
  int ranks = 0;
  bool once = false;
};

actors::job_key find_key(const arguments& a) {
  launched said;
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody here changes it
    return value == nullptr ? std::string{} : value;
  };
  said.key_file = !a.key_file.empty() ? a.key_file : variable("TROUPE_KEY_FILE");
  if (said.key_file.empty()) said.key = variable("TROUPE_KEY");
  return key_of(said);
}

/// The job that is being served, for whoever interrupts.
class present_job {
public:
  /// Serves one. False: interrupted.
  bool serve(const std::string& listen, const arguments& a, const actors::job_key& key, std::string& address) {
    {
      const std::lock_guard lock(mutex_);
      if (interrupted_) return false;
      service_ = std::make_unique<actors::rendezvous_service>(listen, static_cast<std::uint32_t>(a.ranks), key,
                                                              build_of_links(), tls_of_environment());
    }
    if (address.empty()) std::cout << "listens at " << service_->address() << std::endl;
    address = service_->address();
    service_->wait();
    if (service_->done()) report();
    const std::lock_guard lock(mutex_);
    service_.reset();
    return !interrupted_;
  }
  void interrupt() {
    const std::lock_guard lock(mutex_);
    interrupted_ = true;
    if (service_) service_->ask_to_stop();
  }

private:
  void report() {
    std::cout << "job " << ++jobs_ << ": ";
    if (!service_->refused().empty()) std::cout << "refused: " << service_->refused() << std::endl;
    else std::cout << service_->came() << (service_->came() == 1 ? " process" : " processes") << std::endl;
  }
  std::mutex mutex_;
  std::unique_ptr<actors::rendezvous_service>
      service_;  ///< written by the serving thread, read by the interrupting one
  bool interrupted_ = false;
  int jobs_ = 0;
};

int run(const arguments& a) {
  if (a.ranks < 0 || a.ranks > most_ranks)
    usage_error("--ranks: there can be 1 … " + std::to_string(most_ranks) + " processes");
  const actors::job_key key = find_key(a);
  present_job job;
  const interrupt_guard guard([&] { job.interrupt(); });
  std::string address;
  while (job.serve(address.empty() ? a.listen : address, a, key, address))
    if (a.once) return exit_ok;
  return exit_interrupted;
}

}  // namespace
}  // namespace rendezvous_command

void add_rendezvous(command program, action& chosen) {
  using namespace rendezvous_command;
  auto a = std::make_shared<arguments>();
  const command sub = program.add_command("rendezvous", "serve the place where processes of a job meet (TROUPE_JOIN)");
  sub.add_option("--listen", a->listen, "tcp://host:port, tcp://[v6]:port or unix:@name; port 0: any")
      .required()
      .type_name("ADDRESS");
  sub.add_option("--ranks", a->ranks, "processes of a job, as TROUPE_RANKS says; 0: what the first one says")
      .type_name("N")
      .shows_default();
  sub.add_option("--key-file", a->key_file,
                 "file with the job's key, 64 hexadecimal digits; the default is TROUPE_KEY_FILE's, or TROUPE_KEY")
      .type_name("FILE");
  sub.add_flag("--once", a->once, "end when all processes of a job have come, or were refused");
  sub.footer(footer);
  sub.when_named([a, &chosen] { chosen = [a] { return run(*a); }; });
}

}  // namespace troupe::cli
