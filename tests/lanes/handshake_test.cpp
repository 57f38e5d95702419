// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/link/handshake.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/seed.hpp"

using namespace troupe::actors;

namespace {

using bytes = std::vector<std::byte>;
using status = handshake::status;

const job_key the_key = job_key::random();
constexpr handshake_facts one_calls{.job = 0x1234, .from = 1, .to = 2, .build = 0xabcd};
constexpr handshake_facts two_answers{.job = 0x1234, .to = 2, .build = 0xabcd};

/// Everything that either side has to say, until both are silent; in pieces of `piece` bytes. Returns all that was said, by turns.
std::vector<bytes> talk(handshake& caller, handshake& answerer, std::size_t piece = 1 << 20) {
  std::vector<bytes> said;
  const auto pass_on = [&](handshake& from, handshake& to) {
    const bytes out = from.take_output();
    if (!out.empty()) said.push_back(out);
    std::size_t at = 0;
    while (at < out.size()) {
      const std::size_t taken = to.feed(std::span{out}.subspan(at, std::min(piece, out.size() - at)));
      if (taken == 0) break;
      at += taken;
    }
    return !out.empty();
  };
  while (pass_on(caller, answerer) || pass_on(answerer, caller)) {}
  return said;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void check_says(const handshake& which, const std::string& sentence) {
  CHECK((which.state() == status::refused));
  CHECK(which.why() == sentence);
}

/// Both refuse; what each says.
void check_refusal(const handshake_facts& calls, const handshake_facts& answers, const std::string& caller_says,
                   const std::string& answerer_says) {
  handshake caller = handshake::calling(calls, the_key), answerer = handshake::answering(answers, the_key);
  talk(caller, answerer);
  check_says(caller, caller_says);
  check_says(answerer, answerer_says);
}

/// A hello with a byte changed by the way.
bytes hello_with(std::initializer_list<std::pair<std::size_t, int>> changes, const handshake_facts& facts = one_calls) {
  bytes hello = handshake::calling(facts, the_key).take_output();
  for (const auto& [at, value] : changes) hello[at] = static_cast<std::byte>(value);
  return hello;
}

/// What the answerer and the caller say when the hello was changed by the way: the caller gets the answer to the changed one.
std::pair<std::string, std::string> after_change(std::initializer_list<std::pair<std::size_t, int>> changes) {
  handshake caller = handshake::calling(one_calls, the_key), answerer = handshake::answering(two_answers, the_key);
  bytes hello = caller.take_output();
  for (const auto& [at, value] : changes) hello[at] = static_cast<std::byte>(value);
  answerer.feed(hello);
  caller.feed(answerer.take_output());
  CHECK((answerer.state() == status::refused));
  CHECK((caller.state() == status::refused));
  return {answerer.why(), caller.why()};
}

}  // namespace

TEST_CASE("two processes with one key recognise each other") {
  for (const std::size_t piece :
       {std::size_t{1} << 20, std::size_t{1}, std::size_t{7}, std::size_t{16}, std::size_t{71}}) {
    CAPTURE(piece);
    handshake caller = handshake::calling(one_calls, the_key), answerer = handshake::answering(two_answers, the_key);
    const auto said = talk(caller, answerer, piece);
    CHECK((caller.state() == status::done));
    CHECK((answerer.state() == status::done));
    CHECK(caller.peer() == 2);
    CHECK(answerer.peer() == 1);
    CHECK(caller.job() == 0x1234);
    REQUIRE(said.size() == 3);
    CHECK(said[0].size() == handshake::hello_bytes);
    CHECK(said[1].size() == handshake::answer_bytes);
    CHECK(said[2].size() == handshake::confirm_bytes);
  }
}

TEST_CASE("two processes without a key do, too") {
  handshake caller = handshake::calling(one_calls, {}), answerer = handshake::answering(two_answers, {});
  talk(caller, answerer);
  CHECK((caller.state() == status::done));
  CHECK((answerer.state() == status::done));
}

TEST_CASE("which lane it is the answerer is told, with a key and without, and a rendezvous has but one") {
  for (const job_key& key : {the_key, job_key{}})
    for (const int lane : {0, 1, 15, 127}) {
      handshake_facts facts = one_calls;
      facts.lane = static_cast<std::uint8_t>(lane);
      handshake caller = handshake::calling(facts, key), answerer = handshake::answering(two_answers, key);
      const auto said = talk(caller, answerer);
      CHECK((answerer.state() == status::done));
      CHECK(answerer.lane() == lane);
      CHECK(said[0][11] == static_cast<std::byte>(2 * lane + (key.present() ? 1 : 0)));
    }
  handshake_facts third = one_calls, service = two_answers;
  third.lane = 3;
  third.to = service.to = rendezvous_process;
  handshake caller = handshake::calling(third, the_key), answerer = handshake::answering(service, the_key);
  talk(caller, answerer);
  CHECK((answerer.state() == status::refused));
  CHECK((caller.state() == status::refused));
}

TEST_CASE("the key is never said, and no nonce comes twice") {
  bytes before;
  for (int i = 0; i < 10; ++i) {
    handshake caller = handshake::calling(one_calls, the_key), answerer = handshake::answering(two_answers, the_key);
    bytes all;
    for (const bytes& each : talk(caller, answerer)) all.insert(all.end(), each.begin(), each.end());
    std::string text, key;
    for (const std::byte b : all) text += static_cast<char>(b);
    const std::string hex = the_key.to_hex();
    for (std::size_t at = 0; at < hex.size(); at += 2)
      key += static_cast<char>(std::stoi(hex.substr(at, 2), nullptr, 16));
    CHECK_FALSE(has(text, key.substr(0, 8)));
    CHECK_FALSE(has(text, hex.substr(0, 8)));
    const auto nonces = [](const bytes& b) {
      bytes both{b.begin() + 40, b.begin() + 72};
      both.insert(both.end(), b.begin() + 72 + 40, b.begin() + 72 + 72);
      return both;
    };
    if (!before.empty()) {
      const bytes now = nonces(all), then = nonces(before);
      CHECK_FALSE(std::equal(now.begin(), now.begin() + 32, then.begin()));
      CHECK_FALSE(std::equal(now.begin() + 32, now.end(), then.begin() + 32));
    }
    before = all;
  }
}

TEST_CASE("another build, job or address is refused by name, on both sides") {
  handshake_facts other = two_answers;
  other.build = 0x99;
  check_refusal(
      one_calls, other,
      "the process at the other end was built as 0000000000000099, this one as 000000000000abcd; start the same "
      "build everywhere",
      "the process at the other end was built as 000000000000abcd, this one as 0000000000000099; start the same "
      "build everywhere");
  other = two_answers;
  other.job = 0x77;
  check_refusal(one_calls, other,
                "the process at the other end is of job 0000000000000077, this one of job 0000000000001234",
                "the process at the other end is of job 0000000000001234, this one of job 0000000000000077");
  other = two_answers;
  other.to = 3;
  check_refusal(one_calls, other, "process 2 was called, and process 3 answered",
                "process 1 called process 2, and this is process 3");
  other.to = rendezvous_process;
  check_refusal(one_calls, other, "process 2 was called, and the rendezvous service answered",
                "process 1 called process 2, and this is the rendezvous service");
}

TEST_CASE("another version, byte order or word size is refused by name, on both sides") {
  auto [answerer, caller] = after_change({{9, 7}});
  CHECK(answerer == "the process at the other end speaks version 7 of the protocol, this one version 1; start the same "
                    "build everywhere");
  CHECK(has(caller, "speaks version 1"));  // the caller is told; its own hello said 1 before it was changed
  std::tie(answerer, caller) = after_change({{12, 1}, {13, 2}, {14, 3}, {15, 4}});
  CHECK(answerer == "the process at the other end is big-endian, this one little-endian");
  std::tie(answerer, caller) = after_change({{12, 9}});
  CHECK(answerer == "the process at the other end is in a byte order of its own, this one little-endian");
  std::tie(answerer, caller) = after_change({{10, 4}});
  CHECK(answerer == "the process at the other end has words of 32 bits, this one of 64 bits");
}

TEST_CASE("a caller tells what another version, byte order or word size answered") {
  const auto says = [](std::initializer_list<std::pair<std::size_t, int>> changes) {
    handshake caller = handshake::calling(one_calls, the_key), answerer = handshake::answering(two_answers, the_key);
    answerer.feed(caller.take_output());
    bytes answer = answerer.take_output();
    for (const auto& [at, value] : changes) answer[at] = static_cast<std::byte>(value);
    caller.feed(answer);
    CHECK((caller.state() == status::refused));
    CHECK(caller.take_output().empty());
    return caller.why();
  };
  CHECK(has(says({{9, 2}}), "speaks version 2 of the protocol, this one version 1"));
  CHECK(has(says({{12, 1}, {13, 2}, {14, 3}, {15, 4}}), "is big-endian, this one little-endian"));
  CHECK(has(says({{11, 2}, {12, 1}, {13, 2}, {14, 3}, {15, 4}}), "is big-endian, this one little-endian"));
  CHECK(has(says({{10, 4}}), "has words of 32 bits, this one of 64 bits"));
  CHECK(has(says({{11, 200}}), "for a reason that this one does not know (200)"));
  CHECK(has(says({{16, 1}}), "was built as 000000000000ab01, this one as 000000000000abcd"));
  CHECK(has(says({{24, 1}}), "is of job 0000000000001201, this one of job 0000000000001234"));
  CHECK(has(says({{32, 9}}), "process 2 was called, and process 9 answered"));
  CHECK(has(says({{0, 'H'}}), "is no process of Troupe"));
  CHECK(has(says({{8, 1}}), "sent message 1 of a handshake where 2 should have come"));
}

TEST_CASE("only the rendezvous service accepts a caller that does not know its job") {
  handshake_facts new_here = one_calls;
  new_here.job = 0;
  check_refusal(new_here, two_answers,
                "the process at the other end is of job 0000000000001234, this one does not say so",
                "the process at the other end does not say of which job it is, this one of job 0000000000001234");
  new_here.to = rendezvous_process;
  handshake_facts service = two_answers;
  service.to = rendezvous_process;
  handshake caller = handshake::calling(new_here, the_key), answerer = handshake::answering(service, the_key);
  talk(caller, answerer);
  CHECK((caller.state() == status::done));
  CHECK((answerer.state() == status::done));
  CHECK(caller.job() == 0x1234);
  CHECK(answerer.peer() == 1);
  new_here.job = 0x4321;
  check_refusal(new_here, service,
                "the process at the other end is of job 0000000000001234, this one of job 0000000000004321",
                "the process at the other end is of job 0000000000004321, this one of job 0000000000001234");
}

TEST_CASE("a key on one side only is told as that") {
  {
    handshake caller = handshake::calling(one_calls, {}), answerer = handshake::answering(two_answers, the_key);
    talk(caller, answerer);
    check_says(caller, "the process at the other end has a key, this one has none; give all processes the same key");
    check_says(answerer, "the process at the other end has no key, this one has one; give all processes the same key");
  }
  handshake caller = handshake::calling(one_calls, the_key), answerer = handshake::answering(two_answers, {});
  talk(caller, answerer);
  check_says(caller, "the process at the other end has no key, this one has one; give all processes the same key");
  check_says(answerer, "the process at the other end has a key, this one has none; give all processes the same key");
}

TEST_CASE("the wrong key proves nothing, whoever has it") {
  const job_key wrong = job_key::random();
  {  // an answerer: the caller notices, and never says its own proof
    handshake caller = handshake::calling(one_calls, the_key), answerer = handshake::answering(two_answers, wrong);
    const auto said = talk(caller, answerer);
    check_says(caller, "the process at the other end does not have this job's key");
    CHECK((answerer.state() == status::going));
    CHECK(said.size() == 2);
  }
  // A caller that does not mind the answer: its confirmation is made with its own key, over what was really said.
  handshake caller = handshake::calling(one_calls, wrong), answerer = handshake::answering(two_answers, the_key);
  const bytes hello = caller.take_output();
  answerer.feed(hello);
  const bytes answer = answerer.take_output();
  const std::string role = "troupe confirms";
  const auto confirm_with = [&](const job_key& key) {
    bytes confirm{answer.begin(), answer.begin() + 16};
    confirm[8] = std::byte{3};
    const auto proof = key.sign({std::as_bytes(std::span{role}), hello, answer});
    confirm.insert(confirm.end(), proof.begin(), proof.end());
    return confirm;
  };
  handshake same_answerer = answerer;
  answerer.feed(confirm_with(wrong));
  check_says(answerer, "the process at the other end does not have this job's key");
  same_answerer.feed(confirm_with(the_key));  // which shows that the one above lacked nothing but the key
  CHECK((same_answerer.state() == status::done));
}

TEST_CASE("a caller without the key does not get in by saying that it has none, or by sending proofs back") {
  handshake caller = handshake::calling(one_calls, the_key), answerer = handshake::answering(two_answers, the_key);
  answerer.feed(caller.take_output());
  const bytes answer = answerer.take_output();
  bytes confirm{answer.begin(), answer.begin() + 16};
  confirm[8] = std::byte{3};
  confirm.insert(confirm.end(), answer.begin() + 72, answer.end());  // the answerer's own proof
  answerer.feed(confirm);
  check_says(answerer, "the process at the other end does not have this job's key");
}

TEST_CASE("recorded bytes are worth nothing later") {
  handshake caller = handshake::calling(one_calls, the_key), answerer = handshake::answering(two_answers, the_key);
  const auto said = talk(caller, answerer);
  REQUIRE(said.size() == 3);
  handshake again = handshake::answering(two_answers, the_key);
  again.feed(said[0]);
  CHECK((again.state() == status::going));
  again.feed(said[2]);
  check_says(again, "the process at the other end does not have this job's key");
  handshake new_caller = handshake::calling(one_calls, the_key);
  new_caller.feed(said[1]);
  check_says(new_caller, "the process at the other end does not have this job's key");
}

TEST_CASE("any changed bit is noticed") {
  for (std::size_t which = 0; which < 3; ++which) {
    const std::size_t length =
        std::array{handshake::hello_bytes, handshake::answer_bytes, handshake::confirm_bytes}[which];
    for (std::size_t bit = 0; bit < 8 * length; ++bit) {
      // Of a confirmation's head only magic, kind and version are looked at: all of it is said before the proof, which covers the others.
      if (which == 2 && bit >= 8 * 10 && bit < 8 * 16) continue;
      handshake caller = handshake::calling(one_calls, the_key), answerer = handshake::answering(two_answers, the_key);
      std::size_t at = 0;
      const auto changed = [&](bytes message) {
        if (at++ == which) message[bit / 8] ^= std::byte{1} << (bit % 8);
        return message;
      };
      answerer.feed(changed(caller.take_output()));
      caller.feed(changed(answerer.take_output()));
      answerer.feed(changed(caller.take_output()));
      CAPTURE(which);
      CAPTURE(bit);
      CHECK((answerer.state() != status::done));
      CHECK_FALSE((caller.state() == status::done && which < 2));
    }
  }
}

TEST_CASE("what comes behind a handshake is left alone") {
  handshake caller = handshake::calling(one_calls, the_key), answerer = handshake::answering(two_answers, the_key);
  answerer.feed(caller.take_output());
  bytes answer = answerer.take_output();
  answer.resize(answer.size() + 50);
  CHECK(caller.feed(answer) == handshake::answer_bytes);
  bytes confirm = caller.take_output();
  confirm.resize(confirm.size() + 99);
  CHECK(answerer.feed(confirm) == handshake::confirm_bytes);
  CHECK((answerer.state() == status::done));
  CHECK(answerer.feed(confirm) == 0);
}

TEST_CASE("strangers get no answer, and are known by their first wrong byte") {
  const std::string get = "GET / HTTP/1.1\r\n\r\n";
  handshake answerer = handshake::answering(two_answers, the_key);
  CHECK(answerer.feed(std::as_bytes(std::span{get}.first(1))) == 1);
  check_says(answerer, "what called is no process of Troupe");
  CHECK(answerer.take_output().empty());
  CHECK(answerer.feed(std::as_bytes(std::span{get})) == 0);

  std::mt19937_64 random{seed()};
  for (int i = 0; i < 2000; ++i) {
    bytes garbage(random() % 300);
    for (std::byte& b : garbage) b = static_cast<std::byte>(random());
    if (!garbage.empty()) garbage[0] = std::byte{0x80};
    handshake any = i % 2 == 0 ? handshake::answering(two_answers, the_key) : handshake::calling(one_calls, the_key);
    static_cast<void>(any.take_output());
    any.feed(garbage);
    CHECK((any.state() == (garbage.empty() ? status::going : status::refused)));
    CHECK(any.take_output().empty());
  }
}

TEST_CASE("a truncated message is waited for, and nothing is said meanwhile") {
  const bytes hello = hello_with({});
  for (std::size_t length = 0; length < hello.size(); ++length) {
    handshake answerer = handshake::answering(two_answers, the_key);
    CHECK(answerer.feed(std::span{hello}.first(length)) == length);
    CHECK((answerer.state() == status::going));
    CHECK(answerer.take_output().empty());
  }
}

TEST_CASE("another version is refused by its first 16 bytes, whatever its length") {
  const bytes hello = hello_with({{9, 2}});
  handshake answerer = handshake::answering(two_answers, the_key);
  CHECK(answerer.feed(hello) == 16);
  CHECK((answerer.state() == status::refused));
  CHECK(answerer.take_output().size() == handshake::answer_bytes);
}

TEST_CASE("proofs are of the line that they were made for") {
  const bytes one(32, std::byte{1}), other(32, std::byte{2});
  const auto ends = [&](const bytes& callers, const bytes& answerers) {
    handshake caller = handshake::calling(one_calls, the_key), answerer = handshake::answering(two_answers, the_key);
    caller.bind(callers);
    answerer.bind(answerers);
    talk(caller, answerer);
    return std::pair{caller.state(), answerer.state()};
  };
  CHECK((ends(one, one) == std::pair{status::done, status::done}));
  // A third party that passes bytes on between two lines gets neither to believe the other.
  CHECK((ends(one, other) == std::pair{status::refused, status::going}));
  CHECK((ends(one, {}) == std::pair{status::refused, status::going}));
}

TEST_CASE("who should speak TLS and does not is told, and who does where it should not is told in TLS") {
  handshake caller = handshake::calling(one_calls, the_key), answerer = handshake::answering(two_answers, the_key);
  answerer.refuse_plain();
  talk(caller, answerer);
  check_says(caller, "the process at the other end speaks TLS, this one does not; all processes of a job need "
                     "certificates (engine.tls_certificate), or none");
  check_says(answerer, "the process at the other end speaks no TLS, this one does; all processes of a job need "
                       "certificates (engine.tls_certificate), or none");
  handshake plain = handshake::answering(two_answers, the_key);
  plain.feed(bytes{std::byte{0x16}, std::byte{3}, std::byte{1}});
  check_says(plain, "what called speaks TLS, this process does not; all processes of a job need certificates "
                    "(engine.tls_certificate), or none");
  CHECK(plain.take_output() ==
        bytes{std::byte{21}, std::byte{3}, std::byte{3}, std::byte{0}, std::byte{2}, std::byte{2}, std::byte{70}});
}
