// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/link/byte_ring.hpp"

#include <cerrno>
#include <new>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/error.hpp"

namespace troupe::actors {

namespace {

constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

[[noreturn]] void fail(const char* what, int error) {
  throw troupe::error(errc::io, std::string{what} + ": " + text_of_errno(error));
}

}  // namespace

byte_ring::segment* byte_ring::map(int memory) {
  void* const at = ::mmap(nullptr, sizeof(segment), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (at == MAP_FAILED) fail("memory that two processes share cannot be mapped", errno);
  return static_cast<segment*>(at);  // fresh memory is zero, which is what its atomics begin with
}

byte_ring byte_ring::make() {
  descriptor memory{::memfd_create("troupe-link", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  if (!memory) fail("memory that two processes share cannot be made", errno);
  // All of it now: where there is none left at the first touch, the system would end the process.
  if (const int problem = ::posix_fallocate(memory.get(), 0, sizeof(segment)); problem != 0)
    fail("memory that two processes share cannot be made", problem);
  if (::fcntl(memory.get(), F_ADD_SEALS, seals) != 0) fail("memory that two processes share cannot be made", errno);
  segment* const shared = map(memory.get());
  return {std::move(memory), shared};
}

byte_ring byte_ring::take(descriptor from) {
  struct stat what {};
  const bool fits = ::fstat(from.get(), &what) == 0 && what.st_size == static_cast<off_t>(sizeof(segment));
  // Sealed: a process that could shrink the memory could end the one that reads it.
  if (!fits || (::fcntl(from.get(), F_GET_SEALS) & seals) != seals)
    throw error(errc::io, "what was passed is no memory for a link");
  return {descriptor{}, map(from.get())};  // what is mapped stays
}

byte_ring::~byte_ring() {
  if (shared_ != nullptr) ::munmap(shared_, sizeof(segment));
}

namespace {
constexpr std::byte without_memory{0x73};
}

bool send_descriptor(int socket, int what) {
  std::byte one = what >= 0 ? carries_descriptor : without_memory;
  iovec part{&one, 1};
  alignas(cmsghdr) std::byte room[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (what >= 0) {
    message.msg_control = room;
    message.msg_controllen = sizeof room;
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof what);
    std::memcpy(CMSG_DATA(head), &what, sizeof what);
  }
  ssize_t sent = -1;
  do sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (sent < 0 && errno == EINTR);
  return sent == 1;
}

ssize_t receive_some(int socket, std::span<std::byte> to, descriptor& passed, bool& dropped) {
  iovec part{to.data(), to.size()};
  alignas(cmsghdr) std::byte room[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  ssize_t got = -1;
  do got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  dropped = got > 0 && (message.msg_flags & MSG_CTRUNC) != 0;
  const cmsghdr* const head = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  // There is room for two, because of the alignment; the second would be nobody's.
  for (std::size_t at = CMSG_LEN(0);
       head != nullptr && head->cmsg_type == SCM_RIGHTS && at + sizeof(int) <= head->cmsg_len; at += sizeof(int)) {
    int what = -1;
    std::memcpy(&what, reinterpret_cast<const std::byte*>(head) + at, sizeof what);
    descriptor one{what};
    if (!passed) passed = std::move(one);
  }
  return got;
}

passed receive_descriptor(int socket, descriptor& what) {
  std::byte one{};
  bool dropped = false;
  const ssize_t got = receive_some(socket, {&one, 1}, what, dropped);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return passed::nothing_yet;
  if (got != 1) return passed::ended;
  if (what) return one == carries_descriptor ? passed::memory : passed::ended;
  if (one == without_memory) return passed::no_memory;
  return one == carries_descriptor && dropped ? passed::lost_on_the_way : passed::ended;
}

}  // namespace troupe::actors
