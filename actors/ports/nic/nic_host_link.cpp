// SPDX-License-Identifier: Apache-2.0
// A process's connection to its host's NIC process.

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "actors/ports/link/byte_ring.hpp"
#include "actors/ports/nic/nic_host.hpp"
#include "actors/ports/nic/nic_host_words.hpp"
#include "actors/ports/segment/host_segment.hpp"
#include "memory/error.hpp"

namespace troupe::actors {

using namespace nic_host;

namespace {

/// Between two looks whether the NIC process goes on.
constexpr std::chrono::milliseconds look_every{1000};

int left_until(steady_time until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

/// Waits until the socket can be read or written. False: not in time.
bool can(int socket, short what, steady_time until) {
  while (true) {
    const int left = left_until(until);
    pollfd p{socket, what, 0};
    if (::poll(&p, 1, left) > 0) return true;
    if (left == 0) return false;
  }
}

enum class told : std::uint8_t { well, ended, late };

template <class T>
told send_whole(int socket, const T& what, steady_time until) {
  const auto* at = reinterpret_cast<const char*>(&what);
  for (std::size_t left = sizeof what; left > 0;) {
    const ssize_t sent = ::send(socket, at, left, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) at += sent, left -= static_cast<std::size_t>(sent);
    else if (errno != EINTR && errno != EAGAIN) return told::ended;
    else if (errno == EAGAIN && !can(socket, POLLOUT, until)) return told::late;
  }
  return told::well;
}

template <class T>
told receive_whole(int socket, T& into, steady_time until) {
  auto* at = reinterpret_cast<char*>(&into);
  for (std::size_t left = sizeof into; left > 0;) {
    const ssize_t got = ::recv(socket, at, left, MSG_DONTWAIT);
    if (got > 0) at += got, left -= static_cast<std::size_t>(got);
    else if (got == 0 || (errno != EINTR && errno != EAGAIN)) return told::ended;
    else if (errno == EAGAIN && !can(socket, POLLIN, until)) return told::late;
  }
  return into.magic == word_magic ? told::well : told::ended;
}

nic_page* map_page(const descriptor& from) {
  constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  struct stat what {};
  const bool fits = ::fstat(from.get(), &what) == 0 && what.st_size == static_cast<off_t>(sizeof(nic_page)) &&
                    (::fcntl(from.get(), F_GET_SEALS) & seals) == seals;
  void* const at =
      fits ? ::mmap(nullptr, sizeof(nic_page), PROT_READ | PROT_WRITE, MAP_SHARED, from.get(), 0) : MAP_FAILED;
  if (at == MAP_FAILED) throw error(errc::io, "what the host's NIC process has passed is no memory for a doorbell");
  return static_cast<nic_page*>(at);
}

/// Half a word, or an answer that nobody has waited for, would be taken for the next one's.
template <class Step>
told ask(int socket, Step&& step) {
  const told how = step();
  if (how != told::well) ::shutdown(socket, SHUT_RDWR);
  return how;
}

/// Throws what the two of them have come to.
void check(told how, const reply& said, const std::string& who) {
  if (how == told::late) throw error(errc::timed_out, who + " does not answer");
  if (how == told::ended) throw error(errc::peer_lost, who + " has ended");
  if (said.refused != 0) throw error(static_cast<errc>(said.code), who + " refuses: " + said.text);
}

}  // namespace

std::string usual_nic_address() { return "unix:@troupe-nicd-" + std::to_string(::geteuid()); }

nic_host_link::nic_host_link(const std::string& address, const enrolment& who, steady_time until,
                             std::chrono::milliseconds silence)
    : address_(address), me_(who), silence_(silence), stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!stop_) throw error(errc::io, "an event for the host's NIC process: " + text_of_errno(errno));
  try {
    socket_ = begin_connect(socket_address::resolve(address).front());
  } catch (const error& e) {
    throw error(errc::peer_lost, "engine.nic is \"" + address +
                                     "\", and no NIC process of this host can be reached there (" + e.what() +
                                     "): start `troupe nicd` first, on each host, or leave engine.nic out");
  }
  if (!is_same_user(socket_.get()))
    throw error(errc::bad_config,
                "the NIC process at " + address + " is another user's: let it listen elsewhere (troupe nicd --listen)");
  word w;
  w.kind = word_kind::hello;
  w.build = me_.build;
  w.job = me_.job;
  w.number = me_.number;
  w.processes = me_.processes;
  reply r;
  told how = send_whole(socket_.get(), w, until);
  if (how == told::well) how = receive_whole(socket_.get(), r, until);
  check(how, r, name());
  pid_ = r.pid;
  descriptor page;
  passed came = passed::nothing_yet;
  while (came == passed::nothing_yet && can(socket_.get(), POLLIN, until))
    came = receive_descriptor(socket_.get(), page);
  check(came == passed::memory ? told::well : came == passed::nothing_yet ? told::late : told::ended, r, name());
  // It holds the other end of the connection, so the number is its own still.
  process_ = descriptor{static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid_), 0))};
  page_ = map_page(page);
}

nic_host_link::~nic_host_link() {
  if (watcher_.joinable()) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(stop_.get(), &one, sizeof one);
    watcher_.join();
  }
  if (page_ != nullptr) ::munmap(page_, sizeof *page_);
}

std::string nic_host_link::name() const {
  return "the host's NIC process" +
         (pid_ == 0 ? " at " + address_ : " (troupe nicd, pid " + std::to_string(pid_) + ")");
}

std::string nic_host_link::why_gone() const {
  if (ended_by_us_.load()) return name() + " did not go on for longer than the job's silence, and was ended";
  return name() + " has ended";
}

bool nic_host_link::hung_up() const noexcept {
  pollfd p{socket_.get(), POLLRDHUP, 0};
  return ::poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void nic_host_link::pass(const host_segment& memory, steady_time until) {
  const std::lock_guard lock(mutex_);
  word w;
  w.kind = word_kind::memory;
  reply r;
  const told how = ask(socket_.get(), [&] {
    if (const told sent = send_whole(socket_.get(), w, until); sent != told::well) return sent;
    while (!send_descriptor(socket_.get(), memory.get())) {
      if (errno != EAGAIN) return told::ended;
      if (!can(socket_.get(), POLLOUT, until)) return told::late;
    }
    return receive_whole(socket_.get(), r, until);
  });
  check(how, r, name());
}

bool nic_host_link::enter(std::uint64_t communicator, std::span<const std::uint32_t> process_of, std::uint64_t bytes,
                          steady_time until) {
  word w;
  w.kind = word_kind::enter;
  w.communicator = communicator;
  w.bytes = bytes;
  w.ranks = static_cast<std::uint32_t>(std::min<std::size_t>(process_of.size(), most_ranks));
  std::copy_n(process_of.begin(), w.ranks, w.process_of);
  const std::lock_guard lock(mutex_);
  reply r;
  const told how = ask(socket_.get(), [&] {
    const told sent = send_whole(socket_.get(), w, until);
    return sent == told::well ? receive_whole(socket_.get(), r, until) : sent;
  });
  if (how == told::well && r.refused != 0 && static_cast<errc>(r.code) == errc::peer_lost) return false;
  check(how, r, name());
  return true;
}

/// One that was stopped, and has no room for it any more, counts as gone.
void nic_host_link::left(std::uint64_t communicator) noexcept {
  word w;
  w.kind = word_kind::leave;
  w.communicator = communicator;
  const std::lock_guard lock(mutex_);
  static_cast<void>(ask(socket_.get(), [&] { return send_whole(socket_.get(), w, std::chrono::steady_clock::now()); }));
}

void nic_host_link::watch(doorbell& own, std::shared_ptr<const void> keeps) {
  own_ = &own;
  keeps_own_ = std::move(keeps);
  watcher_ = std::thread([this] { look_on(); });
}

void nic_host_link::end_it() noexcept {
  ended_by_us_.store(true);
  if (process_) ::syscall(SYS_pidfd_send_signal, process_.get(), SIGKILL, nullptr, 0);
}

/// Sleeps until the connection is closed, and looks once a second, which costs some microseconds, whether what is posted is looked at.
void nic_host_link::look_on() {
  std::uint64_t seen = 0;
  steady_time since = std::chrono::steady_clock::now();
  while (true) {
    std::array<pollfd, 2> p{{{socket_.get(), POLLRDHUP, 0}, {stop_.get(), POLLIN, 0}}};
    ::poll(p.data(), p.size(), static_cast<int>(look_every.count()));
    if (p[1].revents != 0) return;
    if (p[0].revents != 0) break;
    const steady_time now = std::chrono::steady_clock::now();
    const std::uint64_t looks = page_->looks.load(std::memory_order_relaxed);
    if (looks != seen || under_way_.load() == 0) seen = looks, since = now;
    else if (now - since > silence_) end_it();
    if (under_way_.load() == 0) continue;
    bell().note();
    bell().wake();
  }
  gone_.store(true);
  own_->note();
  own_->wake();
}

}  // namespace troupe::actors
