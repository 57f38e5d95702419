// SPDX-License-Identifier: Apache-2.0
// The host's NIC process: its connections, the jobs behind them, and what it is invited to.

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "actors/ports/link/byte_ring.hpp"
#include "actors/ports/nic/nic_between.hpp"
#include "actors/ports/nic/nic_host.hpp"
#include "actors/ports/nic/nic_host_words.hpp"
#include "actors/ports/nic/nic_thread.hpp"
#include "actors/ports/segment/host_segment.hpp"
#include "actors/waiting/napping.hpp"
#include "memory/error.hpp"

namespace troupe::actors {

namespace nic_host {

/// Each has one, and the process may have some more descriptors than that.
constexpr std::size_t most_connections_to_nic = 4096;
/// Until the next try, when no descriptor is left for one who wants to come.
constexpr int pause_ms = 100;
/// Between a process's having met the others and this one's: both wait for the same count.
constexpr std::chrono::seconds most_after_meeting{1};
/// A caller whose socket does not take a whole answer at once does not read its answers.
constexpr int answer_room = sizeof(reply);

class page_memory {
public:
  page_memory() {
    constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    memory_ = descriptor{::memfd_create("troupe-nicd", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
    // All of it now, as a link's.
    const bool made = memory_ && ::posix_fallocate(memory_.get(), 0, sizeof(nic_page)) == 0 &&
                      ::fcntl(memory_.get(), F_ADD_SEALS, seals) == 0;
    void* const at =
        made ? ::mmap(nullptr, sizeof(nic_page), PROT_READ | PROT_WRITE, MAP_SHARED, memory_.get(), 0) : MAP_FAILED;
    if (at == MAP_FAILED) throw error(errc::io, "memory for the NIC process's doorbell: " + text_of_errno(errno));
    page_ = static_cast<nic_page*>(at);
    page_->bell.lie_between_processes();
  }
  ~page_memory() { ::munmap(page_, sizeof(nic_page)); }
  page_memory(const page_memory&) = delete;
  page_memory& operator=(const page_memory&) = delete;
  nic_page& page() const { return *page_; }
  int get() const { return memory_.get(); }

private:
  descriptor memory_;
  nic_page* page_ = nullptr;
};

/// The NIC process, as it knows itself.
class own_nic final : public nic_of_host {
public:
  explicit own_nic(std::shared_ptr<page_memory> in) : nic_of_host(in->page()), in_(std::move(in)) {}
  std::string why_gone() const override { return "this NIC process has ended"; }
  void left(std::uint64_t) noexcept override {}

private:
  std::shared_ptr<page_memory> in_;
};

/// A job's processes on this host.
class job_on_host {
public:
  explicit job_on_host(std::uint32_t processes) : processes_(processes) {}
  ~job_on_host() { end(); }
  job_on_host(const job_on_host&) = delete;
  job_on_host& operator=(const job_on_host&) = delete;

  std::uint32_t processes() const { return processes_; }
  /// A thread of its own waits for the others, who may take long to come.
  void take(descriptor memory) {
    if (memory_ != nullptr) throw error(errc::invalid_argument, "the job has passed its memory already");
    memory_ = host_segment::take(std::move(memory));
    meeting_ = std::thread([this] {
      try {
        const auto until = std::chrono::steady_clock::now() + std::chrono::hours{24};  // abandoned long before
        memory_->meet(processes_, processes_ + 1, until, [this] { return abandoned_.load(); });
        met_.store(true);
      } catch (const std::exception&) {  // the others hear of it from each other
        abandoned_.store(true);
      }
    });
  }
  /// @pre the caller has met the others
  host_segment& memory() const {
    const steady_time until = std::chrono::steady_clock::now() + most_after_meeting;
    const auto over = [&] {
      return memory_ == nullptr || met_.load() || abandoned_.load() || std::chrono::steady_clock::now() >= until;
    };
    nap_until(over, std::chrono::microseconds{50});
    if (!met_.load()) throw error(errc::peer_lost, "a process of the job was lost before all had met");
    return *memory_;
  }
  /// A process of it has ended: one that has not met by now never will.
  void abandon() { abandoned_.store(true); }
  bool abandoned() const { return abandoned_.load(); }

  struct communicator {
    std::shared_ptr<nic_between> what;
    std::set<std::uint32_t> entered, absent;  ///< processes; those that have not entered yet
  };
  std::map<std::uint64_t, communicator> communicators;
  std::set<std::uint32_t> present;
  bool divided = false;  ///< others of its processes on this host have another NIC process

  /// All that it was invited to is over.
  void end() {
    abandon();
    for (auto& [id, c] : communicators) c.what->end();
    communicators.clear();
    if (meeting_.joinable()) meeting_.join();
  }

private:
  const std::uint32_t processes_;
  std::shared_ptr<host_segment> memory_;
  std::atomic<bool> met_{false}, abandoned_{false};
  std::thread meeting_;
};

/// As many as the system lets it have: two a connection.
inline void allow_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// A handle of the process at the other end; −1: the system has none.
inline int open_peer(int socket) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return -1;
  return static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0));
}

struct connection {
  descriptor socket;
  descriptor process;  ///< its end counts, too: a child that it has made may hold the socket open
  std::size_t got = 0;
  word said{};
  std::uint64_t job = 0;
  std::uint32_t number = 0;
  bool greeted = false, passes = false;
};

}  // namespace nic_host

using namespace nic_host;

struct nic_host_service::hidden {
  hidden(const std::string& address, std::uint64_t of_build, int cores)
      : build(of_build),
        listener(listen_at(unix_address(address))),
        stop(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        memory(std::make_shared<page_memory>()),
        self(std::make_shared<own_nic>(memory)),
        nic(cores, true) {
    if (!stop) throw error(errc::io, "an event for the NIC process: " + text_of_errno(errno));
    nic.sleep_at(memory->page().bell, memory, &memory->page().looks);
    allow_descriptors();
  }
  static socket_address unix_address(const std::string& address) {
    const socket_address where = socket_address::resolve(address).front();
    if (where.family() != AF_UNIX)
      throw error(errc::bad_config,
                  "the NIC process serves this host alone, at a Unix socket: unix:@name, not " + address);
    return where;
  }

  void serve();
  bool accept_all();
  bool read(connection& from);
  bool take(connection& from);
  bool take_memory(connection& from);
  reply answer_to(connection& from);
  void greet(connection& from);
  void enter(const connection& from);
  void leave(const connection& from, std::uint64_t communicator);
  void lose(const connection& which);
  static bool send(const connection& to, const reply& what);

  const std::uint64_t build;
  descriptor listener, stop;
  std::shared_ptr<page_memory> memory;
  std::shared_ptr<own_nic> self;
  nic_thread nic;
  std::vector<std::unique_ptr<connection>> connections;
  std::map<std::uint64_t, std::unique_ptr<job_on_host>> jobs;
};

nic_host_service::nic_host_service(const std::string& address, std::uint64_t build, int cores)
    : address_(address), hidden_(std::make_unique<hidden>(address, build, cores)) {}
nic_host_service::~nic_host_service() = default;
void nic_host_service::serve() { hidden_->serve(); }
void nic_host_service::stop() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(hidden_->stop.get(), &one, sizeof one);
}

void nic_host_service::hidden::serve() {
  std::vector<pollfd> looks;
  for (bool pauses = false;;) {
    const bool full = pauses || connections.size() >= most_connections_to_nic;
    looks.assign({{stop.get(), POLLIN, 0}, {full ? -1 : listener.get(), POLLIN, 0}});
    for (const auto& c : connections) {
      looks.push_back({c->socket.get(), POLLIN, 0});
      looks.push_back({c->process.get(), POLLIN, 0});
    }
    if (::poll(looks.data(), looks.size(), pauses ? pause_ms : -1) < 0) continue;
    if (looks[0].revents != 0) break;
    std::size_t at = 2;
    std::erase_if(connections, [&](const auto& c) {  // each once, in their order
      const bool says = looks[at].revents != 0, ended = looks[at + 1].revents != 0;
      at += 2;
      if ((!says || read(*c)) && !ended) return false;
      lose(*c);
      return true;
    });
    pauses = looks[1].revents != 0 && !accept_all();
  }
  // Closed in this order: what is under way ends before its owners see that nobody goes on with it.
  nic.close();
  jobs.clear();
  connections.clear();
}

/// False: somebody wants to come, and there is no descriptor for it.
bool nic_host_service::hidden::accept_all() {
  std::string why;
  while (connections.size() < most_connections_to_nic) {
    descriptor came = accept_from(listener.get(), why);
    if (!came) return why.empty();
    if (!is_same_user(came.get())) continue;
    connections.push_back(std::make_unique<connection>());
    connections.back()->process = descriptor{open_peer(came.get())};
    connections.back()->socket = std::move(came);
  }
  return true;
}

/// False: it has ended, or says what makes no sense.
bool nic_host_service::hidden::read(connection& from) {
  while (true) {
    if (from.passes) {
      if (!take_memory(from)) return false;
      if (from.passes) return true;  // not here yet
    }
    auto* const at = reinterpret_cast<char*>(&from.said) + from.got;
    const ssize_t got = ::recv(from.socket.get(), at, sizeof from.said - from.got, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return true;
    if (got <= 0) return false;
    from.got += static_cast<std::size_t>(got);
    if (from.got < sizeof from.said) continue;
    from.got = 0;
    if (from.said.magic != nic_host::word_magic || !take(from)) return false;
  }
}

bool nic_host_service::hidden::take(connection& from) {
  if (from.said.kind == word_kind::leave) {
    leave(from, from.said.communicator);
    return true;
  }
  if (from.said.kind == word_kind::memory) {
    from.passes = from.greeted;
    return from.greeted;
  }
  const bool hello = from.said.kind == word_kind::hello;
  const reply said = answer_to(from);
  if (!send(from, said)) return false;
  // Of a communicator whose process has ended there is nothing to perform; what else the process has with this one goes on.
  if (said.refused != 0) return !hello && static_cast<errc>(said.code) == errc::peer_lost;
  return !hello || send_descriptor(from.socket.get(), memory->get());
}

reply nic_host_service::hidden::answer_to(connection& from) {
  reply r;
  r.pid = ::getpid();
  try {
    if (from.said.kind == word_kind::hello) greet(from);
    else if (from.said.kind == word_kind::enter) enter(from);
    else throw error(errc::invalid_argument, "it knows no such word");
  } catch (const error& e) {
    r.refuse(static_cast<int>(e.code_value()), e.what());
  } catch (const std::exception& e) {
    r.refuse(static_cast<int>(errc::out_of_memory), e.what());
  }
  return r;
}

bool nic_host_service::hidden::send(const connection& to, const reply& what) {
  return ::send(to.socket.get(), &what, sizeof what, MSG_NOSIGNAL | MSG_DONTWAIT) == answer_room;
}

void nic_host_service::hidden::greet(connection& from) {
  const word& w = from.said;
  if (w.build != build)
    throw error(errc::bad_config,
                "it is of another version of Troupe than the process: start `troupe nicd` of the same one");
  if (from.greeted || w.processes < 2 || w.number >= w.processes)
    throw error(errc::invalid_argument,
                "process " + std::to_string(w.number) + " of " + std::to_string(w.processes) + " is none of several");
  auto& job = jobs[w.job];
  if (!job) job = std::make_unique<job_on_host>(w.processes);
  // Processes are numbered host by host, so those of two hosts by name have the same numbers.
  if (job->processes() != w.processes || !job->present.insert(w.number).second)
    throw error(errc::invalid_argument,
                "it serves one host, and has process " + std::to_string(w.number) +
                    " of a host of this job already: the job's processes on this machine are of several hosts by name; "
                    "give them one TROUPE_HOST, or leave out --nicd and engine.nic");
  from.job = w.job;
  from.number = w.number;
  from.greeted = true;
}

/// False: what comes is none.
bool nic_host_service::hidden::take_memory(connection& from) {
  descriptor passed_on;
  const passed came = receive_descriptor(from.socket.get(), passed_on);
  if (came == passed::nothing_yet) return true;
  from.passes = false;
  reply r;
  try {
    if (came != passed::memory) throw error(errc::io, "the job's memory was lost on its way");
    jobs.at(from.job)->take(std::move(passed_on));
  } catch (const error& e) {
    r.refuse(static_cast<int>(e.code_value()), e.what());
  } catch (const std::exception& e) {
    r.refuse(static_cast<int>(errc::out_of_memory), e.what());
  }
  return send(from, r) && r.refused == 0;
}

void nic_host_service::hidden::enter(const connection& from) {
  const word& w = from.said;
  if (!from.greeted) throw error(errc::invalid_argument, "who enters a communicator has said hello before");
  job_on_host& job = *jobs.at(from.job);
  if (const auto known = job.communicators.find(w.communicator); known != job.communicators.end()) {
    if (known->second.absent.erase(from.number) == 0)
      throw error(errc::invalid_argument, "the process has entered the communicator before, or has no rank of it");
    known->second.entered.insert(from.number);
    return;
  }
  std::vector<std::uint32_t> places(w.process_of, w.process_of + std::min(w.ranks, nic_host::most_ranks));
  const auto beyond = [&](std::uint32_t p) { return p >= job.processes() || !job.present.contains(p); };
  // All have met when one enters, and none can have met that has not said hello somewhere. The others of those here hear the same.
  job.divided = job.divided || (!job.abandoned() && std::ranges::any_of(places, beyond));
  if (job.divided)
    throw error(
        errc::bad_config,
        "other processes of the job on this host have none, or another one; engine.nic must be the same in all");
  if (places.size() < 2 || std::ranges::any_of(places, beyond))
    throw error(errc::peer_lost, "a process of the communicator has ended, or is none of this host");
  job_on_host::communicator made;
  for (const std::uint32_t p : places) made.absent.insert(p);
  if (made.absent.erase(from.number) == 0) throw error(errc::invalid_argument, "the process has no rank of it");
  made.entered.insert(from.number);
  host_segment& in = job.memory();
  nic_between::options how;
  how.ranks = static_cast<int>(places.size());
  for (const std::uint32_t p : places) how.bells.push_back(&in.nic_bell_of(p));
  places.push_back(job.processes());
  how.in = in.attach(w.communicator, std::move(places), w.bytes);
  if (how.in == nullptr || how.in->peers() == nullptr)
    throw error(errc::out_of_memory, "there is no memory for the communicator between the processes of this host");
  how.host = self;
  how.own = &memory->page().bell;
  how.name = nic.next_communicator();
  made.what = std::make_shared<nic_between>(std::move(how));
  nic.serve(made.what);
  job.communicators.emplace(w.communicator, std::move(made));
}

/// With the last it is given back.
void nic_host_service::hidden::leave(const connection& from, std::uint64_t communicator) {
  const auto job = from.greeted ? jobs.find(from.job) : jobs.end();
  if (job == jobs.end()) return;
  const auto at = job->second->communicators.find(communicator);
  if (at == job->second->communicators.end()) return;
  at->second.entered.erase(from.number);
  if (!at->second.entered.empty() || !at->second.absent.empty()) return;
  at->second.what->end();
  job->second->communicators.erase(at);
}

/// The communicators that it was in are over, and the job with its last process.
void nic_host_service::hidden::lose(const connection& which) {
  if (!which.greeted) return;
  const auto at = jobs.find(which.job);
  job_on_host& job = *at->second;
  job.present.erase(which.number);
  job.abandon();
  std::erase_if(job.communicators, [&](const auto& each) {
    const auto& c = each.second;
    if (!c.entered.contains(which.number) && !c.absent.contains(which.number)) return false;
    c.what->end();
    return true;
  });
  if (job.present.empty()) jobs.erase(at);
}

}  // namespace troupe::actors
