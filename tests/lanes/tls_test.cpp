// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/link/tls.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/socket.h>

#include "actors/ports/link/sockets.hpp"
#include "memory/error.hpp"
#include "tests/certificates.hpp"

namespace tls_test {

using namespace troupe;
using namespace troupe::actors;
using certificate_tests::authority;
using certificate_tests::validity;

namespace {

using bytes = std::vector<std::byte>;

/// Two lines, and the sockets between.
struct two_ends {
  two_ends(const tls_identity::files& one, const tls_identity::files& other,
           std::uint64_t renew_after = tls_line::records_of_key)
      : caller(tls_identity::load(one), tls_line::side::caller, renew_after),
        answerer(tls_identity::load(other), tls_line::side::answerer, renew_after) {
    int both[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both) == 0);
    calls = descriptor{both[0]}, answers = descriptor{both[1]};
  }
  /// Both go on until nothing changes any more.
  void shake() {
    std::byte one{};
    for (int i = 0; i < 6; ++i) {
      last_caller = caller.receive(calls.get(), {&one, 1}, tls_line::reading::looks);
      caller_error = errno;
      last_answerer = answerer.receive(answers.get(), {&one, 1}, tls_line::reading::looks);
      answerer_error = errno;
    }
  }
  tls_line caller, answerer;
  descriptor calls, answers;
  ssize_t last_caller = 0, last_answerer = 0;
  int caller_error = 0, answerer_error = 0;
};

bytes some(std::size_t n, unsigned seed) {
  bytes all(n);
  for (std::size_t i = 0; i < n; ++i) all[i] = static_cast<std::byte>(i * 31 + seed + i / 251);
  return all;
}

/// All of it, in parts of odd lengths; the other end reads meanwhile. What came there.
bytes carry(tls_line& from, int out, tls_line& to, int in, const bytes& what, std::size_t room = 5000) {
  bytes came;
  bytes got(room);
  std::size_t sent = 0;
  while (came.size() < what.size()) {
    if (sent < what.size()) {
      const std::size_t left = what.size() - sent, first = std::min<std::size_t>(left, 64),
                        second = std::min<std::size_t>(left - first, 40'000);
      auto* const at = const_cast<std::byte*>(what.data()) + sent;
      const std::array<iovec, 3> parts{
          {{at, first}, {at + first, second}, {at + first + second, left - first - second}}};
      const std::size_t n = left - first - second > 0 ? 3 : second > 0 ? 2 : 1;
      const ssize_t taken = from.send(out, std::span(parts).first(n));
      if (taken < 0) REQUIRE(errno == EAGAIN);
      else sent += static_cast<std::size_t>(taken);
    } else if (!from.flush(out)) {
      REQUIRE(errno == EAGAIN);
    }
    for (ssize_t n = 0; (n = to.receive(in, got)) > 0;) came.insert(came.end(), got.begin(), got.begin() + n);
    REQUIRE(errno == EAGAIN);
  }
  return came;
}

std::string message_of(const tls_identity::files& from) {
  try {
    tls_identity::load(from);
  } catch (const error& e) {
    return e.code_value() == errc::bad_config ? e.what() : "another error";
  }
  return {};
}

bool has(const std::string& text, const char* part) {
  CAPTURE(text);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("two ends of one authority carry bytes both ways, and share a number that no other connection has") {
  authority all{"an authority"};
  const auto one = all.issue("one"), other = all.issue("other");
  two_ends ends{one, other}, again{one, other};
  ends.shake();
  again.shake();
  CHECK(ends.caller_error == EAGAIN);
  CHECK(ends.answerer_error == EAGAIN);
  CHECK(ends.caller.binding() == ends.answerer.binding());
  CHECK(ends.caller.binding() != again.caller.binding());
  const bytes there = some(1'000'000, 1), back = some(300'001, 2);
  CHECK(carry(ends.caller, ends.calls.get(), ends.answerer, ends.answers.get(), there) == there);
  CHECK(carry(ends.answerer, ends.answers.get(), ends.caller, ends.calls.get(), back, 17) == back);
  CHECK_FALSE(ends.caller.holds_output());
  ends.calls.reset();
  std::byte last{};
  CHECK(ends.answerer.receive(ends.answers.get(), {&last, 1}) == 0);
}

TEST_CASE("what is read with a line's own bytes alone leaves what the system has") {
  authority all{"an authority"};
  two_ends ends{all.issue("one"), all.issue("other")};
  ends.shake();
  const bytes what = some(200, 3);
  const iovec part{const_cast<std::byte*>(what.data()), what.size()};
  REQUIRE(ends.caller.send(ends.calls.get(), {&part, 1}) == 200);
  bytes got(100);
  CHECK(ends.answerer.receive(ends.answers.get(), got, tls_line::reading::finishes) == -1);
  CHECK(errno == EAGAIN);
  CHECK(ends.answerer.receive(ends.answers.get(), got, tls_line::reading::looks) == 100);
  CHECK(ends.answerer.receive(ends.answers.get(), got) == 100);
  CHECK(std::equal(got.begin(), got.end(), what.begin()));
  CHECK(ends.answerer.holds_input());
  CHECK(ends.answerer.receive(ends.answers.get(), got, tls_line::reading::finishes) == 100);
  CHECK(std::equal(got.begin(), got.end(), what.begin() + 100));
  CHECK_FALSE(ends.answerer.holds_input());
}

TEST_CASE("keys are renewed on the way") {
  authority all{"an authority"};
  two_ends ends{all.issue("one"), all.issue("other"), 3};
  ends.shake();
  const bytes there = some(400'000, 4);
  CHECK(carry(ends.caller, ends.calls.get(), ends.answerer, ends.answers.get(), there) == there);
  CHECK(carry(ends.answerer, ends.answers.get(), ends.caller, ends.calls.get(), there) == there);
}

TEST_CASE("one thread sends while another one receives") {
  authority all{"an authority"};
  two_ends ends{all.issue("one"), all.issue("other")};
  ends.shake();
  const bytes there = some(3'000'000, 5), back = some(3'000'000, 6);
  const auto sends = [](tls_line& line, int socket, const bytes& what) {
    for (std::size_t sent = 0; sent < what.size();) {
      const iovec part{const_cast<std::byte*>(what.data()) + sent, what.size() - sent};
      const ssize_t n = line.send(socket, {&part, 1});
      if (n > 0) sent += static_cast<std::size_t>(n);
      else std::this_thread::yield();
    }
    while (!line.flush(socket)) std::this_thread::yield();
  };
  bytes came_there, came_back;
  const auto receives = [](tls_line& line, int socket, std::size_t n, bytes& came) {
    for (bytes got(70'000); came.size() < n;) {
      const ssize_t more = line.receive(socket, got);
      if (more > 0) came.insert(came.end(), got.begin(), got.begin() + more);
      else if (errno != EAGAIN) return;
      else std::this_thread::yield();
    }
  };
  std::vector<std::thread> threads;
  threads.emplace_back([&] { sends(ends.caller, ends.calls.get(), there); });
  threads.emplace_back([&] { sends(ends.answerer, ends.answers.get(), back); });
  threads.emplace_back([&] { receives(ends.answerer, ends.answers.get(), there.size(), came_there); });
  threads.emplace_back([&] { receives(ends.caller, ends.calls.get(), back.size(), came_back); });
  for (std::thread& t : threads) t.join();
  CHECK(came_there == there);
  CHECK(came_back == back);
}

TEST_CASE("a certificate of another authority, or one that is out of date, is refused, and both are told") {
  authority all{"an authority"}, strange{"another authority"};
  const auto right = all.issue("right");
  const auto refused = [&](const tls_identity::files& caller, const tls_identity::files& answerer) {
    two_ends ends{caller, answerer};
    ends.shake();
    CHECK(ends.caller_error == EPROTO);
    CHECK(ends.answerer_error == EPROTO);
    const std::byte x{};
    const iovec part{const_cast<std::byte*>(&x), 1};
    CHECK(ends.caller.send(ends.calls.get(), {&part, 1}) == -1);
    CHECK(ends.answerer.send(ends.answers.get(), {&part, 1}) == -1);
    return std::pair{ends.caller.why(), ends.answerer.why()};
  };
  {
    const auto [caller, answerer] = refused(strange.issue("wrong", all), right);
    CHECK(has(caller, "it refuses this process's certificate: "));
    CHECK(has(caller, "unknown ca"));
    CHECK(has(answerer, "its certificate /CN=wrong is refused: unable to get local issuer certificate"));
  }
  {
    const auto [caller, answerer] = refused(right, strange.issue("wrong", all));
    CHECK(has(caller, "its certificate /CN=wrong is refused"));
    CHECK(has(answerer, "it refuses this process's certificate"));
  }
  {
    const auto [caller, answerer] =
        refused(all.issue("old", validity{-std::chrono::hours{2}, -std::chrono::hours{1}}), right);
    CHECK(has(caller, "certificate expired"));
    CHECK(has(answerer, "its certificate /CN=old is refused: certificate has expired"));
  }
  {
    const auto [caller, answerer] =
        refused(right, all.issue("early", validity{std::chrono::hours{1}, std::chrono::hours{2}}));
    CHECK(has(caller, "its certificate /CN=early is refused: certificate is not yet valid"));
    CHECK(has(answerer, "it refuses this process's certificate"));
  }
}

TEST_CASE("what is no TLS, and what was changed on its way, ends a line") {
  authority all{"an authority"};
  const auto files = all.issue("one");
  SUBCASE("plain bytes to an answerer") {
    two_ends ends{files, files};
    REQUIRE(::send(ends.calls.get(), "hello, are you there?", 21, 0) == 21);
    std::byte one{};
    CHECK(ends.answerer.receive(ends.answers.get(), {&one, 1}) == -1);
    CHECK(errno == EPROTO);
    CHECK(has(ends.answerer.why(), "TLS cannot begin with it: "));
  }
  SUBCASE("who says that it speaks none") {
    two_ends ends{files, files};
    std::byte one{};
    CHECK(ends.caller.receive(ends.calls.get(), {&one, 1}) == -1);
    CHECK(errno == EAGAIN);
    REQUIRE(::send(ends.answers.get(), speaks_no_tls.data(), speaks_no_tls.size(), 0) == 7);
    CHECK(ends.caller.receive(ends.calls.get(), {&one, 1}) == -1);
    CHECK(has(ends.caller.why(), "it speaks no TLS, this process does; all processes of a job need certificates"));
  }
  SUBCASE("a byte that somebody changed") {
    two_ends ends{files, files};
    ends.shake();
    const bytes what = some(300, 7);
    const iovec part{const_cast<std::byte*>(what.data()), what.size()};
    REQUIRE(ends.caller.send(ends.calls.get(), {&part, 1}) == 300);
    std::array<std::byte, 1000> cipher{};
    const ssize_t n = ::recv(ends.answers.get(), cipher.data(), cipher.size(), MSG_DONTWAIT);
    REQUIRE(n > 300);
    CHECK(std::search(cipher.begin(), cipher.end(), what.begin(), what.begin() + 20) == cipher.end());
    cipher[100] ^= std::byte{1};
    REQUIRE(::send(ends.calls.get(), cipher.data(), static_cast<std::size_t>(n), 0) == n);
    std::byte one{};
    CHECK(ends.answerer.receive(ends.answers.get(), {&one, 1}) == -1);
    CHECK(errno == EPROTO);
    CHECK(has(ends.answerer.why(), "what it sent is no TLS of this connection: "));
    CHECK(has(text_of_problem(&ends.answerer, EPROTO), "what it sent"));
  }
}

TEST_CASE("files that are none are named") {
  authority all{"an authority"};
  const auto good = all.issue("good"), other = all.issue("other");
  CHECK(message_of(good).empty());
  CHECK(has(message_of({good.certificate, good.key, {}}), "needs all of engine.tls_certificate"));
  CHECK(has(message_of({"/no/such.pem", good.key, good.authority}), "engine.tls_certificate: /no/such.pem"));
  CHECK(has(message_of({"/no/such.pem", good.key, good.authority}), "No such file or directory"));
  CHECK(has(message_of({good.certificate, good.key, "/no/such.pem"}), "No such file or directory"));
  CHECK(has(message_of({good.certificate, "/no/such.key", good.authority}), "engine.tls_key: /no/such.key"));
  CHECK(has(message_of({good.certificate, other.key, good.authority}), "has no key of the certificate"));
  CHECK(has(message_of({good.certificate, good.key, good.key}), "engine.tls_authority: "));
  std::filesystem::permissions(good.key, std::filesystem::perms::group_read, std::filesystem::perm_options::add);
  CHECK(has(message_of(good), "is open to others than its owner"));
}

}  // namespace tls_test
