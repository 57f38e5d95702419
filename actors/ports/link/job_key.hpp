// SPDX-License-Identifier: Apache-2.0
#pragma once
// The secret of a job: 32 bytes that all its processes have and nobody else. With it two processes prove to each other that they are of
// one job (handshake.hpp). A job whose processes are all on one host may have none.
//
// Where it may be: in memory, in an environment variable, in a file that nobody else can read, on a pipe. Never on a command line or in
// a log: neither error messages nor anything else here repeats what was given as a key.

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace troupe::actors {

/// Bytes that nobody can foretell, from the kernel. Throws errc::unsupported where there are none.
void fill_random(std::span<std::byte> bytes);

/// Thread-safe as a number is. Every copy is overwritten when it ends.
class job_key {
public:
  static constexpr std::size_t size = 32;
  using proof = std::array<std::byte, 32>;

  // -- making one --

  /// None: what it signs, everybody can.
  job_key() = default;
  static job_key random();
  /// 64 hexadecimal digits. Throws errc::bad_config.
  static job_key from_hex(std::string_view text);
  /// A file with 64 hexadecimal digits, and blanks around them, that only its owner can read. Throws errc::bad_config, errc::io.
  static job_key from_file(const std::string& path);

  job_key(const job_key&) = default;
  job_key& operator=(const job_key&) = default;
  ~job_key();

  // -- what it is for --

  bool present() const noexcept { return present_; }
  /// 64 digits, or nothing if there is none. The caller keeps them from others.
  std::string to_hex() const;
  /// HMAC-SHA256 of the parts, one behind the other. Not for hot paths: it allocates.
  proof sign(std::initializer_list<std::span<const std::byte>> parts) const;

private:
  std::array<std::byte, size> bytes_{};
  bool present_ = false;
};

/// In a time that says nothing about where they differ.
bool same(const job_key::proof& a, const job_key::proof& b) noexcept;

}  // namespace troupe::actors
