// SPDX-License-Identifier: Apache-2.0
// What two processes can move by sockets, with no protocol at all: each sends and receives as much at the same time, over one TCP
// connection. An all_reduce of two ranks moves that, too (half of it in each of its two steps), and adds.
//   troupe launch -n 2 limit_sockets ADDRESS PORT all_reduce:16777216      ADDRESS: of process 0

#include "bench/harness/team.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

using bench::collective;

void check(bool right, const char* what) {
  if (!right) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

int meet(int process, const char* address, int port) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<std::uint16_t>(port));
  check(inet_pton(AF_INET, address, &at.sin_addr) == 1, "no address");
  const auto* const plain = reinterpret_cast<const sockaddr*>(&at);
  int link = -1;
  if (process == 0) {
    const int door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    check(bind(door, plain, sizeof at) == 0 && listen(door, 1) == 0, "listen");
    pollfd come{door, POLLIN, 0};
    check(poll(&come, 1, 30'000) == 1, "nobody has come");
    link = accept(door, nullptr, nullptr);
    close(door);
  } else {
    for (int tries = 0; tries < 300 && link < 0; ++tries) {
      link = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (connect(link, plain, sizeof at) == 0) break;
      close(link);
      link = -1;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
  check(link >= 0, "the other process");
  const int one = 1;
  setsockopt(link, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  fcntl(link, F_SETFL, O_NONBLOCK);
  return link;
}

class socket_member {
public:
  socket_member(int process, int link) : process_(process), link_(link) {}
  ~socket_member() { close(link_); }
  socket_member(const socket_member&) = delete;
  socket_member& operator=(const socket_member&) = delete;

  int ranks() const { return 2; }
  bool supports(const bench::request_line& r) const {
    return (r.what == collective::all_reduce || r.what == collective::send_recv) && r.lot < 0;
  }
  std::string note() const { return {}; }
  void prepare(const bench::request_line&, const bench::shape& s, std::size_t sets) {
    bytes_ = s.input * sizeof(float);
    // As the other contenders' buffers are checked, so are these: what comes is what a neighbour of a ring sends.
    buffers_.shape_for(collective::send_recv, s, process_, 2, sets);
  }
  void resize(std::size_t count) { bytes_ = count * sizeof(float), buffers_.resize(count); }
  void rewrite() { buffers_.rewrite(); }
  void call(std::size_t set) { exchange(buffers_.input(set), buffers_.output(set), bytes_); }
  double wrong() const { return static_cast<double>(buffers_.wrong()); }
  double largest(double value) {
    double other = 0;
    exchange(&value, &other, sizeof value);
    return std::max(value, other);
  }

private:
  /// Looks again for a while before it sleeps, which is the faster way for small messages.
  void exchange(const void* out, void* in, std::size_t bytes) {
    std::size_t sent = 0, got = 0;
    for (unsigned idle = 0; sent < bytes || got < bytes;) {
      const bool sends = step(sent, bytes, [&](std::size_t at) {
        return send(link_, static_cast<const char*>(out) + at, bytes - at, MSG_NOSIGNAL);
      });
      const bool receives =
          step(got, bytes, [&](std::size_t at) { return recv(link_, static_cast<char*>(in) + at, bytes - at, 0); });
      idle = sends || receives ? 0 : idle + 1;
      if (idle < 200) continue;
      pollfd ready{link_, static_cast<short>((sent < bytes ? POLLOUT : 0) | (got < bytes ? POLLIN : 0)), 0};
      check(poll(&ready, 1, 30'000) == 1, "the other process says nothing");
    }
  }
  template <class Move>
  static bool step(std::size_t& at, std::size_t bytes, Move move) {
    if (at == bytes) return false;
    const ssize_t done = move(at);
    if (done > 0) at += static_cast<std::size_t>(done);
    check(done > 0 || (done < 0 && (errno == EAGAIN || errno == EINTR)), "the connection");
    return done > 0;
  }

  int process_, link_;
  std::size_t bytes_ = 0;
  bench::rank_buffers buffers_;
};

}  // namespace

int main(int argc, char** argv) try {
  const char* const rank = std::getenv("TROUPE_RANK");
  if (argc < 3 || rank == nullptr)
    throw std::runtime_error("usage: troupe launch -n 2 limit_sockets ADDRESS PORT [all_reduce:BYTES …]");
  const int process = std::atoi(rank);
  socket_member m(process, meet(process, argv[1], std::atoi(argv[2])));
  bench::control from(argc - 2, argv + 2, process);
  bench::team alone(1);
  bench::serve(m, 0, alone, &from, "limit-sockets");
} catch (const std::exception& e) {
  std::fprintf(stderr, "limit_sockets: %s\n", e.what());
  return 1;
}
