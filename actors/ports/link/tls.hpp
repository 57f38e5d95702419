// SPDX-License-Identifier: Apache-2.0
#pragma once
// TLS on a connection of the link port: version 1.3, a certificate at both ends, each checked against the authority of the job. The handshake of
// the port (handshake.hpp) and all frames travel inside, so a job's key is proved as without.
//
// A line takes the place of ::recv() and ::send() on a socket that somebody else owns and waits for. Bytes that it has encrypted and the system has not
// taken wait in the line, 80 KiB at most: nothing more is taken before they are gone. Bytes that it has received and not decrypted may wait
// there as well, so a caller that stops reading before receive() has returned EAGAIN asks holds_input().

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>
#include <sys/uio.h>

struct ssl_ctx_st;
struct ssl_st;

namespace troupe::actors {

/// A process's own certificate, and what it believes of others'. One for all its connections; any thread.
class tls_identity {
public:
  /// PEM files. `certificate` may be followed in its file by those between it and the authority; `key` is without a passphrase, and open to its
  /// owner only; `authority` holds the certificates that others' must come from.
  struct files {
    std::string certificate, key, authority;
  };
  /// Throws error(bad_config) that names the file.
  static std::shared_ptr<const tls_identity> load(const files& from);
  ~tls_identity();
  tls_identity(const tls_identity&) = delete;
  tls_identity& operator=(const tls_identity&) = delete;
  ssl_ctx_st* get() const { return context_; }

private:
  explicit tls_identity(ssl_ctx_st* context) : context_(context) {}
  ssl_ctx_st* context_;
};

/// One end of a connection. Any thread; what is received has one reader, and what is sent one writer at a time.
class tls_line {
public:
  enum class side : std::uint8_t { caller, answerer };
  /// So many records are sent with a key, then comes another one (RFC 8446, 5.5, allows 2²⁴·⁵).
  static constexpr std::uint64_t records_of_key = std::uint64_t{1} << 23;

  /// Throws error(io) without memory.
  tls_line(std::shared_ptr<const tls_identity> who, side here, std::uint64_t renew_after = records_of_key);
  ~tls_line();
  tls_line(const tls_line&) = delete;
  tls_line& operator=(const tls_line&) = delete;

  enum class reading : std::uint8_t {
    takes,     ///< what the system has, too
    looks,     ///< leaves it, as MSG_PEEK
    finishes,  ///< only what the line holds already
  };
  /// As ::recv(): as many bytes as there are and fit; 0: the other end has closed; −1 with errno: EAGAIN, or what the system says, or EPROTO, of
  /// which why() says more. The first calls shake hands.
  ssize_t receive(int socket, std::span<std::byte> to, reading how = reading::takes);
  /// As ::sendmsg(): how many bytes were taken, some 64 KiB at most; −1 with errno: EAGAIN also while the hands are being shaken, which a receive()
  /// goes on with.
  ssize_t send(int socket, std::span<const iovec> parts);
  /// True: the system has all that was taken. False: errno as send().
  bool flush(int socket);

  bool holds_output() const;
  bool holds_input() const;
  /// A number that both ends know and nobody else does, nor any other connection has. @pre something was received
  std::array<std::byte, 32> binding() const;
  /// A sentence about the other end; empty: nothing has failed.
  std::string why() const;

private:
  friend struct tls_callbacks;
  bool flush_locked(int socket);
  bool encrypt(std::span<const std::byte> record);
  void failed(int result);
  ssize_t end_of(std::size_t done, int problem);
  void look_for_reason();

  std::shared_ptr<const tls_identity> who_;
  const side side_;
  const std::uint64_t renew_after_;
  mutable std::mutex mutex_;
  ssl_st* ssl_ = nullptr;
  int socket_ = -1;  ///< of the call that is under way
  bool from_system_ = true;
  bool shaken_ = false, ended_ = false;
  int problem_ = 0;  ///< errno, for good
  std::uint64_t records_ = 0;
  std::vector<std::byte> out_, record_;
  std::size_t out_done_ = 0;
  std::string why_, refused_;  ///< refused_: of the other's certificate
};

/// As a connection with TLS begins, and none of ours without.
constexpr bool begins_tls(std::byte first) { return first == std::byte{0x16}; }
/// What a process without TLS sends to a caller that begins so: "protocol version", an alert.
inline constexpr std::array speaks_no_tls{std::byte{0x15}, std::byte{3}, std::byte{3}, std::byte{0},
                                          std::byte{2},    std::byte{2}, std::byte{70}};
inline constexpr std::string_view all_or_none =
    "all processes of a job need certificates (engine.tls_certificate), or none";
/// "Connection refused" …; of a line what that says.
std::string text_of_problem(const tls_line* line, int error);

}  // namespace troupe::actors
