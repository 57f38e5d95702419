// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/link/job_key.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "memory/error.hpp"

namespace troupe::actors {

namespace {

constexpr std::size_t digits = 2 * job_key::size;

int value_of(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

bool blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

[[noreturn]] void file_error(errc code, const std::string& path, const std::string& rest) {
  throw error(code, "the key file " + path + " " + rest);
}

struct descriptor {
  int number;
  ~descriptor() {
    if (number >= 0) close(number);
  }
};

/// Read access to the file is the key, and write access replaces it: both must be the owner's alone.
void check_private(const std::string& path, int file) {
  struct stat is {};
  if (fstat(file, &is) != 0) file_error(errc::io, path, std::string{"cannot be looked at: "} + std::strerror(errno));
  if (!S_ISREG(is.st_mode)) file_error(errc::bad_config, path, "is no regular file");
  if (is.st_uid != geteuid() && is.st_uid != 0)
    file_error(errc::bad_config, path,
               "belongs to user " + std::to_string(is.st_uid) + ", who knows the key then; make one of your own");
  if ((is.st_mode & 077U) != 0) {
    char mode[8];
    std::snprintf(mode, sizeof mode, "0%03o", static_cast<unsigned>(is.st_mode) & 0777U);
    file_error(errc::bad_config, path,
               "is open to others than its owner (mode " + std::string{mode} + "); make a new key, and chmod 600 " +
                   path);
  }
}

/// Overwritten when it ends: the key as text. A byte more than needed shows that there is more.
struct text_buffer {
  std::array<char, 4096> bytes{};
  std::size_t length = 0;
  ~text_buffer() { OPENSSL_cleanse(bytes.data(), bytes.size()); }
};

void read_all(const std::string& path, int file, text_buffer& into) {
  while (into.length < into.bytes.size()) {
    const ssize_t got = read(file, into.bytes.data() + into.length, into.bytes.size() - into.length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) file_error(errc::io, path, std::string{"cannot be read: "} + std::strerror(errno));
    if (got == 0) return;
    into.length += static_cast<std::size_t>(got);
  }
}

}  // namespace

void fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = getrandom(bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw error(errc::unsupported, std::string{"the system gives no random bytes: "} + std::strerror(errno));
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

job_key job_key::random() {
  job_key key;
  fill_random(key.bytes_);
  key.present_ = true;
  return key;
}

job_key job_key::from_hex(std::string_view text) {
  if (text.size() != digits)
    throw error(errc::bad_config, "a job's key is 64 hexadecimal digits; this one has " + std::to_string(text.size()) +
                                      " characters (openssl rand -hex 32 makes one)");
  job_key key;
  for (std::size_t i = 0; i < size; ++i) {
    const int high = value_of(text[2 * i]), low = value_of(text[2 * i + 1]);
    if (high < 0 || low < 0)
      throw error(errc::bad_config, "a job's key is 64 hexadecimal digits; character " +
                                        std::to_string(2 * i + (high < 0 ? 1 : 2)) + " of this one is none");
    key.bytes_[i] = static_cast<std::byte>(high * 16 + low);
  }
  // HMAC pads its key with zeros: these would sign as no key does.
  if (std::all_of(key.bytes_.begin(), key.bytes_.end(), [](std::byte b) { return b == std::byte{0}; }))
    throw error(errc::bad_config, "a job's key of nothing but zeros is no secret (openssl rand -hex 32 makes one)");
  key.present_ = true;
  return key;
}

job_key job_key::from_file(const std::string& path) {
  // Non-blocking: a pipe without a writer is refused instead of waited for.
  const descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  if (file.number < 0) {
    const bool is_named_wrong = errno == ENOENT || errno == ENOTDIR || errno == EACCES || errno == ELOOP;
    file_error(is_named_wrong ? errc::bad_config : errc::io, path,
               std::string{"cannot be opened: "} + std::strerror(errno));
  }
  check_private(path, file.number);
  text_buffer text;
  read_all(path, file.number, text);
  std::string_view key{text.bytes.data(), text.length};
  while (!key.empty() && blank(key.front())) key.remove_prefix(1);
  while (!key.empty() && blank(key.back())) key.remove_suffix(1);
  try {
    return from_hex(key);
  } catch (const error& failure) {
    file_error(errc::bad_config, path, std::string{"is wrong: "} + failure.what());
  }
}

job_key::~job_key() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

std::string job_key::to_hex() const {
  std::string text;
  if (!present_) return text;
  text.reserve(digits);
  for (const std::byte b : bytes_)
    for (const unsigned half : {std::to_integer<unsigned>(b) >> 4U, std::to_integer<unsigned>(b) & 15U})
      text += "0123456789abcdef"[half];
  return text;
}

job_key::proof job_key::sign(std::initializer_list<std::span<const std::byte>> parts) const {
  const auto bytes_of = [](const std::byte* p) { return reinterpret_cast<const unsigned char*>(p); };
  const std::unique_ptr<EVP_MAC, decltype(&EVP_MAC_free)> hmac{EVP_MAC_fetch(nullptr, OSSL_MAC_NAME_HMAC, nullptr),
                                                               EVP_MAC_free};
  const std::unique_ptr<EVP_MAC_CTX, decltype(&EVP_MAC_CTX_free)> context{hmac ? EVP_MAC_CTX_new(hmac.get()) : nullptr,
                                                                          EVP_MAC_CTX_free};
  char digest[] = "SHA256";
  const OSSL_PARAM how[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                            OSSL_PARAM_construct_end()};
  bool done = context != nullptr && EVP_MAC_init(context.get(), bytes_of(bytes_.data()), bytes_.size(), how) == 1;
  for (const auto part : parts) done = done && EVP_MAC_update(context.get(), bytes_of(part.data()), part.size()) == 1;
  proof made{};
  std::size_t length = 0;
  done = done && EVP_MAC_final(context.get(), reinterpret_cast<unsigned char*>(made.data()), &length, made.size()) == 1;
  if (!done || length != made.size()) throw error(errc::unsupported, "OpenSSL here has no HMAC with SHA-256");
  return made;
}

bool same(const job_key::proof& a, const job_key::proof& b) noexcept {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace troupe::actors
