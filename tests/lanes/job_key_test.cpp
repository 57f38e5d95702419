// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/link/job_key.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <new>
#include <set>
#include <string>

#include <sys/stat.h>
#include <unistd.h>

#include "memory/error.hpp"

using troupe::errc;
using troupe::error;
using troupe::actors::job_key;
using troupe::actors::same;

namespace {

namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span{text}); }

std::string hex_of(const job_key::proof& proof) {
  std::string text;
  for (const std::byte b : proof) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", std::to_integer<unsigned>(b));
    text += two;
  }
  return text;
}

/// Removed at its end.
struct key_file {
  fs::path path = fs::temp_directory_path() / ("troupe_key_test_" + std::to_string(getpid()));
  key_file(const std::string& text, mode_t mode) {
    std::ofstream{path} << text;
    chmod(path.c_str(), mode);
  }
  ~key_file() {
    std::error_code ignored;
    fs::remove(path, ignored);
  }
};

/// What is wrong, with the code; fails if nothing is.
template <class F>
std::string refusal(errc code, F&& made) {
  try {
    made();
  } catch (const error& failure) {
    CHECK(failure.code_value() == code);
    return failure.what();
  }
  FAIL("was not refused");
  return {};
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

const std::string some_key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1F";

}  // namespace

TEST_CASE("a key is 64 digits, and comes back as written") {
  const job_key key = job_key::from_hex(some_key);
  CHECK(key.present());
  CHECK(key.to_hex() == "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
  CHECK_FALSE(job_key{}.present());
  CHECK(job_key{}.to_hex() == "");
}

TEST_CASE("HMAC-SHA256 is that of RFC 4231, in one part or several") {
  // Its test cases 1 to 4 have keys of up to 25 bytes; zeros behind them change nothing, as HMAC pads with zeros.
  const std::string twenty = "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b000000000000000000000000";
  const std::string right = "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7";
  CHECK(hex_of(job_key::from_hex(twenty).sign({bytes_of("Hi There")})) == right);
  CHECK(hex_of(job_key::from_hex(twenty).sign({bytes_of("Hi"), bytes_of(""), bytes_of(" There")})) == right);
  const std::string jefe = "4a65666500000000000000000000000000000000000000000000000000000000";
  CHECK(hex_of(job_key::from_hex(jefe).sign({bytes_of("what do ya want for nothing?")})) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  // No key: HMAC with the empty one (RFC 2104's construction; `openssl mac -digest SHA256 -macopt hexkey: HMAC`).
  CHECK(hex_of(job_key{}.sign({})) == "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST_CASE("proofs are the same only if every byte is") {
  const job_key::proof right = job_key::from_hex(some_key).sign({bytes_of("x")});
  CHECK(same(right, right));
  for (std::size_t i = 0; i < right.size(); ++i) {
    job_key::proof other = right;
    other[i] ^= std::byte{1};
    CHECK_FALSE(same(right, other));
  }
}

TEST_CASE("random keys differ") {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    const job_key key = job_key::random();
    CHECK(key.present());
    seen.insert(key.to_hex());
  }
  CHECK(seen.size() == 100);
}

TEST_CASE("what is no key is refused, and not repeated in the message") {
  const std::string shorter = some_key.substr(1), secret = "5ec2e7" + std::string(57, '4') + "g";
  CHECK(has(refusal(errc::bad_config, [&] { job_key::from_hex(shorter); }), "this one has 63 characters"));
  CHECK(has(refusal(errc::bad_config, [&] { job_key::from_hex(""); }), "this one has 0 characters"));
  const std::string why = refusal(errc::bad_config, [&] { job_key::from_hex(secret); });
  CHECK(has(why, "character 64 of this one is none"));
  CHECK_FALSE(has(why, "5ec2e7"));
  CHECK(has(refusal(errc::bad_config, [&] { job_key::from_hex(std::string(64, '0')); }), "is no secret"));
}

TEST_CASE("a key comes from a file that is its owner's alone") {
  const key_file file{"  " + some_key + "\n", 0600};
  CHECK(job_key::from_file(file.path.string()).to_hex() == job_key::from_hex(some_key).to_hex());
  for (const mode_t open : {0640U, 0604U, 0620U, 0601U, 0644U}) {
    chmod(file.path.c_str(), open);
    const std::string why = refusal(errc::bad_config, [&] { job_key::from_file(file.path.string()); });
    CHECK(has(why, "is open to others"));
    CHECK(has(why, "chmod 600 " + file.path.string()));
  }
  chmod(file.path.c_str(), 0400);
  CHECK(job_key::from_file(file.path.string()).present());
  if (geteuid() != 0) return;  // nobody else can give a file away
  REQUIRE(chown(file.path.c_str(), 12345, 12345) == 0);
  CHECK(has(refusal(errc::bad_config, [&] { job_key::from_file(file.path.string()); }), "belongs to user 12345"));
}

TEST_CASE("files that hold no key") {
  const std::string nowhere = (fs::temp_directory_path() / "troupe_no_such_key").string();
  CHECK(has(refusal(errc::bad_config, [&] { job_key::from_file(nowhere); }), nowhere + " cannot be opened"));
  CHECK(has(refusal(errc::bad_config, [&] { job_key::from_file(fs::temp_directory_path().string()); }),
            "no regular file"));
  {
    const key_file file{some_key + " " + some_key, 0600};
    CHECK(has(refusal(errc::bad_config, [&] { job_key::from_file(file.path.string()); }), "64 hexadecimal digits"));
  }
  {
    const key_file file{std::string(1 << 20, 'a'), 0600};
    CHECK(has(refusal(errc::bad_config, [&] { job_key::from_file(file.path.string()); }), "64 hexadecimal digits"));
  }
  const fs::path fifo = fs::temp_directory_path() / ("troupe_key_fifo_" + std::to_string(getpid()));
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(has(refusal(errc::bad_config, [&] { job_key::from_file(fifo.string()); }), "no regular file"));
  fs::remove(fifo);
}

TEST_CASE("a key that has ended is no longer in memory") {
  alignas(job_key) std::byte room[sizeof(job_key)];
  auto* const key = new (room) job_key{job_key::from_hex(some_key)};
  const auto holds = [&] {
    const std::string text{reinterpret_cast<const char*>(room), sizeof room};
    return has(text, std::string("\x01\x02\x03\x04\x05\x06\x07\x08", 8));
  };
  CHECK(holds());
  key->~job_key();
  CHECK_FALSE(holds());
}
