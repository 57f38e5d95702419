// SPDX-License-Identifier: Apache-2.0
#pragma once
// Certificates that are made when a test runs, so that none of them is ever out of date but those that are to be.

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include "actors/ports/link/tls.hpp"

namespace certificate_tests {

struct evp_free {
  void operator()(EVP_PKEY* k) const { EVP_PKEY_free(k); }
};
struct x509_free {
  void operator()(X509* c) const { X509_free(c); }
};
struct bio_free {
  void operator()(BIO* b) const { BIO_free(b); }
};
using evp_key = std::unique_ptr<EVP_PKEY, evp_free>;
using certificate = std::unique_ptr<X509, x509_free>;
using memory_bio = std::unique_ptr<BIO, bio_free>;

inline void need(bool done, const char* what) {
  if (!done) throw std::runtime_error(what);
}
inline std::string text_of(BIO* from) {
  char* data = nullptr;
  const long bytes = BIO_get_mem_data(from, &data);
  return {data, static_cast<std::size_t>(bytes)};
}

/// How long something is valid, from now.
struct validity {
  std::chrono::seconds from = -std::chrono::hours{1}, until = std::chrono::hours{1};
};

/// A directory of its own, with files that only their owner can read; gone with it.
class folder {
public:
  folder() {
    std::string name = (std::filesystem::temp_directory_path() / "troupe-certificates-XXXXXX").string();
    need(::mkdtemp(name.data()) != nullptr, "no directory");
    where_ = name;
  }
  ~folder() {
    std::error_code ignored;
    if (owner_ == ::getpid()) std::filesystem::remove_all(where_, ignored);
  }
  folder(const folder&) = delete;
  folder& operator=(const folder&) = delete;
  std::string write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = where_ / name;
    std::ofstream{file} << text;
    std::filesystem::permissions(file, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    return file.string();
  }

  const std::filesystem::path& path() const { return where_; }

private:
  std::filesystem::path where_;
  pid_t owner_ = ::getpid();
};

/// Issues certificates, and has files with them.
class authority {
public:
  explicit authority(const std::string& name)
      : name_(name), key_(EVP_EC_gen("P-256")), own_(make(name, *key_, {}, true)) {}

  /// Files of a process that has one of this authority's certificates and believes in it.
  troupe::actors::tls_identity::files issue(const std::string& name, validity when = {}) {
    return issue(name, *this, when);
  }
  /// Believes in another one.
  troupe::actors::tls_identity::files issue(const std::string& name, const authority& believes, validity when = {}) {
    const evp_key key{EVP_EC_gen("P-256")};
    need(key != nullptr, "no key");
    const certificate made = make(name, *key, when, false);
    const memory_bio out{BIO_new(BIO_s_mem())};
    need(PEM_write_bio_PrivateKey(out.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1, "no key's text");
    return {files_->write(name + ".pem", pem_of(*made)), files_->write(name + ".key", text_of(out.get())),
            files_->write(name + ".authority.pem", pem_of(*believes.own_))};
  }

private:
  static std::string pem_of(X509& what) {
    const memory_bio out{BIO_new(BIO_s_mem())};
    need(PEM_write_bio_X509(out.get(), &what) == 1, "no certificate's text");
    return text_of(out.get());
  }

  certificate make(const std::string& name, EVP_PKEY& key, validity when, bool issues) {
    certificate c{X509_new()};
    need(c != nullptr && key_ != nullptr, "no certificate");
    X509_set_version(c.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(c.get()), ++serial_);
    X509_gmtime_adj(X509_getm_notBefore(c.get()), static_cast<long>(when.from.count()));
    X509_gmtime_adj(X509_getm_notAfter(c.get()), static_cast<long>(when.until.count()));
    X509_set_pubkey(c.get(), &key);
    const auto named = [](X509_NAME* who, const std::string& as) {
      X509_NAME_add_entry_by_txt(who, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(as.c_str()), -1, -1,
                                 0);
    };
    named(X509_get_subject_name(c.get()), name);
    named(const_cast<X509_NAME*>(X509_get_issuer_name(c.get())), name_);
    if (issues) {
      X509_EXTENSION* const ca = X509V3_EXT_conf_nid(nullptr, nullptr, NID_basic_constraints, "critical,CA:TRUE");
      need(ca != nullptr && X509_add_ext(c.get(), ca, -1) == 1, "no authority");
      X509_EXTENSION_free(ca);
    }
    need(X509_sign(c.get(), key_.get(), EVP_sha256()) > 0, "no signature");
    return c;
  }

  std::shared_ptr<folder> files_ = std::make_shared<folder>();
  long serial_ = 0;
  std::string name_;
  evp_key key_;
  certificate own_;
};

}  // namespace certificate_tests
