// SPDX-License-Identifier: Apache-2.0
// The handshake against whoever connects. The first byte says what the others are:
//   0-3  what a stranger sends to an answerer (even) or answers to a caller (odd), with a key (0, 1) or without one (2, 3), in pieces:
//        a byte of length, then so many bytes
//   4-7  a true conversation that is edited on its way: of each four bytes, which message, where, what it is xored with, and how far its
//        bytes come in one piece; with a key (4, 6) or without
// Never may a stranger be done, nor anybody whose conversation was changed where the proofs cover it.
#include "actors/ports/link/handshake.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

using namespace troupe::actors;

namespace {

using bytes = std::vector<std::byte>;
using status = handshake::status;

constexpr handshake_facts calls{.job = 0x1234, .from = 1, .to = 2, .build = 0xabcd, .lane = 5};
constexpr handshake_facts answers{.job = 0x1234, .to = 2, .build = 0xabcd};

const job_key& the_key() {
  static const job_key key = job_key::from_hex("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
  return key;
}

void require(bool holds) {
  if (!holds) std::abort();
}

/// What holds after every piece.
void check(handshake& one, std::size_t taken, std::size_t given) {
  require(taken <= given);
  require(taken == given || one.state() != status::going);
  require((one.state() == status::refused) == !one.why().empty());
  require(one.why().size() < 200);
}

void stranger(unsigned mode, std::span<const std::byte> input) {
  const job_key key = mode < 2 ? the_key() : job_key{};
  handshake one = mode % 2 == 0 ? handshake::answering(answers, key) : handshake::calling(calls, key);
  std::size_t said = one.take_output().size();
  while (!input.empty()) {
    const std::size_t piece = std::min(std::to_integer<std::size_t>(input[0]), input.size() - 1);
    const auto before = one.state();
    const std::size_t taken = one.feed(input.subspan(1, piece));
    check(one, taken, piece);
    require(before == status::going || taken == 0);
    said += one.take_output().size();
    input = input.subspan(1 + piece);
  }
  require(one.state() != status::done);
  require(said <= handshake::answer_bytes);
}

void deliver(const bytes& message, std::size_t piece, handshake& to) {
  for (std::size_t at = 0; at < message.size();) {
    const std::size_t given = std::min(std::max<std::size_t>(piece, 1), message.size() - at);
    const std::size_t taken = to.feed(std::span{message}.subspan(at, given));
    check(to, taken, given);
    if (to.state() != status::going) return;
    at += taken;
  }
}

void conversation(bool keyed, std::span<const std::byte> edits) {
  const job_key key = keyed ? the_key() : job_key{};
  handshake caller = handshake::calling(calls, key), answerer = handshake::answering(answers, key);
  bool changed_before = false, changed_last = false;
  for (unsigned turn = 0; turn < 3; ++turn) {
    handshake& from = turn == 1 ? answerer : caller;
    bytes message = from.take_output();
    const bytes original = message;
    std::size_t piece = message.size();
    for (std::size_t at = 0; at + 4 <= edits.size() && !message.empty(); at += 4) {
      if (std::to_integer<unsigned>(edits[at]) % 3 != turn) continue;
      message[std::to_integer<std::size_t>(edits[at + 1]) % message.size()] ^= edits[at + 2];
      piece = std::to_integer<std::size_t>(edits[at + 3]);
    }
    // Between its version and its proof a confirmation has nothing that anybody reads.
    if (turn < 2) changed_before = changed_before || message != original;
    else
      changed_last = message.size() > 16 && (!std::equal(message.begin(), message.begin() + 10, original.begin()) ||
                                             !std::equal(message.begin() + 16, message.end(), original.begin() + 16));
    deliver(message, piece, turn == 1 ? caller : answerer);
  }
  require((caller.state() == status::done) == !changed_before);
  require((answerer.state() == status::done) == (!changed_before && !changed_last));
  require(answerer.state() != status::done || answerer.lane() == calls.lane);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span<const std::byte> rest{reinterpret_cast<const std::byte*>(data) + 1, size - 1};
  const unsigned mode = data[0] % 8;
  if (mode < 4) stranger(mode, rest);
  else conversation(mode % 2 == 0, rest);
  return 0;
}
