// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/link/tls.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "actors/ports/link/sockets.hpp"
#include "memory/error.hpp"

namespace troupe::actors {

namespace {

constexpr std::size_t record_bytes = SSL3_RT_MAX_PLAIN_LENGTH;
/// Bytes that wait for the system at most, but for one record.
constexpr std::size_t most_waiting = 64 * 1024;
/// Bytes that the system is asked for at once.
constexpr std::size_t read_ahead = 64 * 1024;

/// Of this thread's last failure.
std::string reason_of_library() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  if (ERR_GET_LIB(code) == ERR_LIB_SYS) return text_of_errno(ERR_GET_REASON(code));
  const char* const text = code == 0 ? nullptr : ERR_reason_error_string(code);
  return text == nullptr ? "no reason is given" : text;
}

[[noreturn]] void refuse(const char* setting, const std::string& file, const std::string& why) {
  throw error(errc::bad_config, std::string{"engine.tls_"} + setting + ": " + file + " " + why);
}

/// The private key is nobody else's.
void check_owner(const std::string& file) {
  struct stat is {};
  if (::stat(file.c_str(), &is) != 0) refuse("key", file, "cannot be read: " + text_of_errno(errno));
  if ((is.st_mode & 077U) != 0) refuse("key", file, "is open to others than its owner; chmod 600 " + file);
}

}  // namespace

/// The functions that the library calls.
struct tls_callbacks {
  static tls_line& line_of(BIO* b) { return *static_cast<tls_line*>(BIO_get_data(b)); }

  /// Everything is taken; flush() gives it to the system.
  static int write(BIO* b, const char* from, int bytes) {
    tls_line& line = line_of(b);
    const auto* const data = reinterpret_cast<const std::byte*>(from);
    try {
      line.out_.insert(line.out_.end(), data, data + bytes);
    } catch (const std::bad_alloc&) {
      line.problem_ = ENOMEM;
      return -1;
    }
    return bytes;
  }

  static int read(BIO* b, char* to, int room) {
    tls_line& line = line_of(b);
    BIO_clear_retry_flags(b);
    if (!line.from_system_) return BIO_set_retry_read(b), -1;
    ssize_t got = -1;
    do got = ::recv(line.socket_, to, static_cast<std::size_t>(room), MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got == 0) line.ended_ = true;
    else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) BIO_set_retry_read(b);
    else if (got < 0) line.problem_ = errno;
    return static_cast<int>(got);
  }

  static long control(BIO* b, int what, long, void*) {
    if (what == BIO_CTRL_EOF) return line_of(b).ended_ ? 1 : 0;
    return what == BIO_CTRL_FLUSH ? 1 : 0;
  }

  static const BIO_METHOD* method() {
    static BIO_METHOD* const made = [] {
      BIO_METHOD* const m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "troupe line");
      if (m != nullptr) {
        BIO_meth_set_write(m, write);
        BIO_meth_set_read(m, read);
        BIO_meth_set_ctrl(m, control);
      }
      return m;
    }();
    return made;
  }

  /// Notes of whose certificate what is wrong; the library refuses it.
  static int verify(int right, X509_STORE_CTX* chain) {
    if (right == 1) return 1;
    const auto* const ssl = static_cast<SSL*>(X509_STORE_CTX_get_ex_data(chain, SSL_get_ex_data_X509_STORE_CTX_idx()));
    auto* const line = static_cast<tls_line*>(SSL_get_app_data(ssl));
    std::array<char, 120> subject{};
    if (X509* const which = X509_STORE_CTX_get_current_cert(chain); which != nullptr)
      X509_NAME_oneline(X509_get_subject_name(which), subject.data(), static_cast<int>(subject.size()));
    try {
      if (line->refused_.empty())
        line->refused_ = "its certificate " + std::string{subject.data()} +
                         " is refused: " + X509_verify_cert_error_string(X509_STORE_CTX_get_error(chain));
    } catch (const std::bad_alloc&) {
      return 0;  // refused all the same
    }
    return 0;
  }
};

// -- who this process is ------------------------------------------------------------------------------------------------

std::shared_ptr<const tls_identity> tls_identity::load(const files& from) {
  if (from.certificate.empty() || from.key.empty() || from.authority.empty())
    throw error(errc::bad_config, "TLS needs all of engine.tls_certificate, engine.tls_key and engine.tls_authority");
  ERR_clear_error();
  const std::shared_ptr<tls_identity> made{new tls_identity{SSL_CTX_new(TLS_method())}};
  SSL_CTX* const c = made->context_;
  if (c == nullptr) throw error(errc::io, "TLS cannot be used: " + reason_of_library());
  SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION);
  SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(c, 0);
  SSL_CTX_set_read_ahead(c, 1);
  SSL_CTX_set_default_read_buffer_len(c, read_ahead);
  SSL_CTX_set_mode(c, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_verify(c, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, tls_callbacks::verify);
  SSL_CTX_set_default_passwd_cb(c, [](char*, int, int, void*) { return 0; });  // nobody is asked at a terminal
  if (SSL_CTX_use_certificate_chain_file(c, from.certificate.c_str()) != 1)
    refuse("certificate", from.certificate, "has no certificate that can be used: " + reason_of_library());
  check_owner(from.key);
  if (SSL_CTX_use_PrivateKey_file(c, from.key.c_str(), SSL_FILETYPE_PEM) != 1)
    refuse("key", from.key, "has no key of the certificate " + from.certificate + ": " + reason_of_library());
  if (SSL_CTX_load_verify_file(c, from.authority.c_str()) != 1)
    refuse("authority", from.authority, "has no certificates that can be used: " + reason_of_library());
  return made;
}

tls_identity::~tls_identity() { SSL_CTX_free(context_); }

// -- a line -------------------------------------------------------------------------------------------------------------

tls_line::tls_line(std::shared_ptr<const tls_identity> who, side here, std::uint64_t renew_after)
    : who_(std::move(who)), side_(here), renew_after_(renew_after) {
  record_.reserve(record_bytes);
  BIO* const ends = tls_callbacks::method() == nullptr ? nullptr : BIO_new(tls_callbacks::method());
  ssl_ = ends == nullptr ? nullptr : SSL_new(who_->get());
  if (ssl_ == nullptr) {
    BIO_free(ends);
    throw error(errc::io, "TLS cannot begin: " + reason_of_library());
  }
  BIO_set_data(ends, this);
  BIO_set_init(ends, 1);
  SSL_set_bio(ssl_, ends, ends);
  SSL_set_app_data(ssl_, this);
  if (side_ == side::caller) SSL_set_connect_state(ssl_);
  else SSL_set_accept_state(ssl_);
}

tls_line::~tls_line() { SSL_free(ssl_); }

ssize_t tls_line::receive(int socket, std::span<std::byte> to, reading how) {
  const std::lock_guard lock(mutex_);
  socket_ = socket;
  from_system_ = how != reading::finishes;
  std::size_t got = 0;
  while (got < to.size() && why_.empty()) {
    std::size_t some = 0;
    ERR_clear_error();
    const int result = how == reading::looks ? SSL_peek_ex(ssl_, to.data(), to.size(), &some)
                                             : SSL_read_ex(ssl_, to.data() + got, to.size() - got, &some);
    if (result != 1) {
      failed(result);
      break;
    }
    shaken_ = true;
    got += some;
    if (how == reading::looks) break;
  }
  from_system_ = true;
  const int before = problem_;
  // This shakes hands, refuses, or answers: the next send finds out whether it has got there.
  if (!flush_locked(socket) && errno != EAGAIN && problem_ == 0) problem_ = errno;
  return end_of(got, before);
}

/// The result of a call. @param problem the system's errno, if nothing is left to read
ssize_t tls_line::end_of(std::size_t done, int problem) {
  if (done > 0) return static_cast<ssize_t>(done);
  if (!why_.empty()) return errno = EPROTO, -1;
  if (problem != 0) return errno = problem, -1;
  if (ended_) return 0;
  return errno = EAGAIN, -1;
}

ssize_t tls_line::send(int socket, std::span<const iovec> parts) {
  const std::lock_guard lock(mutex_);
  if (!flush_locked(socket)) return -1;
  std::size_t taken = 0;
  std::size_t at = 0, behind = 0;  // part, and bytes of it that were taken
  while (at < parts.size() && out_.size() < most_waiting) {
    const auto* const from = static_cast<const std::byte*>(parts[at].iov_base);
    std::span<const std::byte> record{from + behind, std::min(parts[at].iov_len - behind, record_bytes)};
    std::size_t last = at, end = behind + record.size();
    if (record.size() < record_bytes && at + 1 < parts.size()) {  // one record of several short parts
      record_.assign(record.begin(), record.end());
      while (record_.size() < record_bytes && last + 1 < parts.size()) {
        const auto* const next = static_cast<const std::byte*>(parts[++last].iov_base);
        end = std::min(parts[last].iov_len, record_bytes - record_.size());
        record_.insert(record_.end(), next, next + end);
      }
      record = record_;
    }
    if (!encrypt(record)) break;
    taken += record.size();
    const bool whole = end == parts[last].iov_len;
    at = whole ? last + 1 : last;
    behind = whole ? 0 : end;
  }
  const bool gone = flush_locked(socket);
  if (taken > 0) return static_cast<ssize_t>(taken);
  if (gone) errno = EAGAIN;  // the hands are not shaken yet
  return -1;
}

/// False: the hands are not shaken yet, or it has failed.
bool tls_line::encrypt(std::span<const std::byte> record) {
  if (!why_.empty() || problem_ != 0) return false;
  ERR_clear_error();
  if (records_ >= renew_after_) {
    if (SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) != 1) return failed(0), false;
    records_ = 0;
  }
  std::size_t written = 0;
  const int result = SSL_write_ex(ssl_, record.data(), record.size(), &written);
  if (result != 1) return failed(result), false;
  shaken_ = true;
  ++records_;
  return true;
}

/// Keeps the reason for which the library's last call has failed, if it has.
void tls_line::failed(int result) {
  switch (SSL_get_error(ssl_, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: shaken_ = SSL_is_init_finished(ssl_) == 1; return;
    case SSL_ERROR_ZERO_RETURN: ended_ = true; return;
    default: break;
  }
  if (problem_ != 0) return;
  const unsigned long code = ERR_peek_error();
  const int reason = ERR_GET_REASON(code);
  constexpr int first_alert = SSL_AD_REASON_OFFSET;
  if (!refused_.empty()) {
    why_ = refused_;
  } else if (ended_) {
    return;
  } else if (code != 0 && ERR_GET_LIB(code) == ERR_LIB_SSL && reason >= first_alert) {
    const int alert = reason - first_alert;
    const bool of_certificate = (alert >= SSL_AD_BAD_CERTIFICATE && alert <= SSL_AD_CERTIFICATE_UNKNOWN) ||
                                alert == SSL_AD_UNKNOWN_CA || alert == SSL_AD_ACCESS_DENIED ||
                                alert == SSL_AD_CERTIFICATE_REQUIRED;
    if (!shaken_ && alert == SSL_AD_PROTOCOL_VERSION)
      why_ = "it speaks no TLS, this process does; " + std::string{all_or_none};
    else
      why_ = (of_certificate ? "it refuses this process's certificate: " : "it has ended TLS: ") + reason_of_library();
  } else if (code != 0 && ERR_GET_LIB(code) == ERR_LIB_SSL && reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) {
    why_ = "it has no certificate";
  } else {
    why_ =
        (shaken_ ? "what it sent is no TLS of this connection: " : "TLS cannot begin with it: ") + reason_of_library();
  }
  ERR_clear_error();
}

bool tls_line::flush(int socket) {
  const std::lock_guard lock(mutex_);
  return flush_locked(socket);
}

bool tls_line::flush_locked(int socket) {
  socket_ = socket;
  while (out_done_ < out_.size()) {
    const ssize_t taken = ::send(socket, out_.data() + out_done_, out_.size() - out_done_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (taken < 0 && errno == EINTR) continue;
    if (taken < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return errno = EAGAIN, false;
    if (taken < 0) {
      const int problem = errno;
      look_for_reason();
      problem_ = problem;
      return errno = why_.empty() ? problem : EPROTO, false;
    }
    out_done_ += static_cast<std::size_t>(taken);
  }
  out_.clear();
  out_done_ = 0;
  if (!why_.empty()) return errno = EPROTO, false;
  if (problem_ != 0) return errno = problem_, false;
  return true;
}

/// Nothing gets there any more: it may have said why.
void tls_line::look_for_reason() {
  if (!why_.empty() || problem_ != 0) return;
  std::byte one{};
  std::size_t some = 0;
  ERR_clear_error();
  if (const int result = SSL_peek_ex(ssl_, &one, 1, &some); result != 1) failed(result);
}

bool tls_line::holds_output() const {
  const std::lock_guard lock(mutex_);
  return out_done_ < out_.size();
}

bool tls_line::holds_input() const {
  const std::lock_guard lock(mutex_);
  return SSL_has_pending(ssl_) == 1;
}

std::array<std::byte, 32> tls_line::binding() const {
  static constexpr char label[] = "EXPERIMENTAL troupe";
  const std::lock_guard lock(mutex_);
  std::array<std::byte, 32> number{};
  if (SSL_export_keying_material(ssl_, reinterpret_cast<unsigned char*>(number.data()), number.size(), label,
                                 sizeof label - 1, nullptr, 0, 0) != 1)
    throw error(errc::io, "TLS has no number for a connection: " + reason_of_library());
  return number;
}

std::string tls_line::why() const {
  const std::lock_guard lock(mutex_);
  return why_;
}

std::string text_of_problem(const tls_line* line, int error) {
  if (line != nullptr && error == EPROTO)
    if (std::string why = line->why(); !why.empty()) return why;
  return text_of_errno(error);
}

}  // namespace troupe::actors
