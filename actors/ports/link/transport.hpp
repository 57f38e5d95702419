// SPDX-License-Identifier: Apache-2.0
#pragma once
// What carries frames between hosts in place of sockets. A connection is made as ever, by a socket and its handshake; from then on
// the socket tells of its end alone, and single bytes against the frames, and a line of the transport takes the place of the system's calls on it.
//
// Lines carry bytes, in order. The holder of a line's mutex (mesh.hpp) sends; the reader calls progress(), and receives. Neither waits for the
// other end: what is sent is copied, or has left, when send() returns, and what has come waits in the transport's memory. So buffers can be let go
// of at any moment, as everything above expects, also while the other process is stopped.

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>
#include <sys/uio.h>

namespace troupe::actors {

/// Both ends of a connection know them from its handshake, and nobody else does (handshake::line_names()): what comes without is no frame of it.
struct line_names {
  using name = std::array<std::byte, 16>;
  name here, there;  ///< of what comes, and of what is sent
};

/// One end of a connection. Any thread; what is received has one reader, and what is sent one writer at a time.
class transport_line {
public:
  virtual ~transport_line() = default;
  /// As ::sendmsg(): how many bytes were taken; −1 with errno: EAGAIN where too much is under way, EPROTO, of which why() says more.
  virtual ssize_t send(std::span<const iovec> parts) = 0;
  /// As ::recv(): as many bytes as there are and fit; −1 with errno likewise.
  virtual ssize_t receive(std::span<std::byte> to) = 0;
  /// Bytes, or an error that receive() tells.
  virtual bool has_input() const = 0;
  /// The next send() takes something, or tells an error.
  virtual bool has_room() const = 0;
  /// Not all that was taken has left: somebody has to call progress().
  virtual bool is_under_way() const = 0;
  /// A sentence about the other end; empty: nothing has failed.
  virtual std::string why() const = 0;
};

/// A process's end of all its lines. Any thread; lines may outlive it.
class transport {
public:
  virtual ~transport() = default;
  /// By which others reach it. Travels in the roster, to processes that have proved to be of the job.
  virtual std::vector<std::byte> address() const = 0;
  /// Throws error(io): there is no way to there.
  virtual std::shared_ptr<transport_line> line_to(std::span<const std::byte> address, const line_names& names) = 0;
  /// Takes what has come, and goes on with what is under way, until lines hold so much that they should be read first. One thread at a time.
  virtual void progress() = 0;
  /// From now on bell() becomes readable when progress() has something to do. False: it has already, or will have when lines have been read. For
  /// what lines hold already nobody rings: ask has_input().
  virtual bool fall_asleep() = 0;
  /// A descriptor that can be waited for.
  virtual int bell() const = 0;
};

}  // namespace troupe::actors
