// SPDX-License-Identifier: Apache-2.0
#pragma once
// What two processes say first on a new connection: who they are, and a proof that both have the job's key. Nothing else is parsed
// before. Three messages of fixed size, so nothing that a stranger writes makes anybody allocate, loop or wait for more:
//
//   hello    caller → answerer   72 bytes: what it is (version, byte order, word size, build), job, from, to, nonce
//   answer   answerer → caller  104 bytes: what it is, job, nonce, proof; or what the caller is refused for
//   confirm  caller → answerer   48 bytes: proof
//
//   proof of the answerer = HMAC(key, "troupe answers" | hello | answer up to its proof)
//   proof of the caller   = HMAC(key, "troupe confirms" | hello | answer)
//
// The proofs cover both nonces, so that neither recorded bytes nor those of another connection are right, and a tag that says whose proof
// it is, so that nobody's own bytes can be sent back to him. On a connection with TLS (tls.hpp) both proofs cover at their end 32 bytes that only
// its two ends know, so that nobody passes on what a process of the job has proved on another one.
// The first 16 bytes are laid out the same in every version:
//
//   0  8  "TROUPE\r\n"         10  1  word size: bytes of a pointer
//   8  1  which message        11  1  hello: bit 0 whether it has a key, bits 1 to 7 the lane; answer: refusal; confirm: 0
//   9  1  version: 1           12  4  0x01020304 in the writer's byte order; confirm: 0
//
//   hello:  16 8 build   24 8 job   32 4 from   36 4 to    40 32 nonce
//   answer: 16 8 build   24 8 job   32 4 which process answers   36 1 whether it has a key, 3 zeros   40 32 nonce   72 32 proof
//   confirm: 16 32 proof
//
// A caller that does not begin with these 8 bytes gets no answer, except an alert if it begins TLS (RFC 8446, 6). Other refusals name their reason, unless the key is wrong.
// A plain state: no socket, no clock (who is slow is the caller's to drop), one thread at a time.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "actors/ports/link/job_key.hpp"
#include "actors/ports/link/transport.hpp"

namespace troupe::actors {

/// The number of a job's rendezvous service, where a process's stands.
inline constexpr std::uint32_t rendezvous_process = 0xffffffff;

struct handshake_facts {
  std::uint64_t job = 0;                  ///< 0: not known yet, which only the rendezvous service accepts
  std::uint32_t from = 0;                 ///< the caller; the answerer is told
  std::uint32_t to = rendezvous_process;  ///< the answerer
  std::uint64_t build = 0;                ///< equal in processes that understand each other's frames
  std::uint8_t lane = 0;                  ///< which of the caller's connections to the answerer it is, up to 127
};

class handshake {
public:
  // -- constructors --

  /// Has its first output at once.
  static handshake calling(const handshake_facts& facts, const job_key& key);
  /// @param facts from is ignored
  static handshake answering(const handshake_facts& facts, const job_key& key);

  // -- bytes --

  /// What is to be sent now; also after a refusal, before the connection is closed.
  std::vector<std::byte> take_output();
  /// What was received, in pieces of any size. Returns how many bytes it took: all, unless it is done or refused; what comes behind them
  /// belongs to whatever follows the handshake.
  std::size_t feed(std::span<const std::byte> bytes);
  /// What the proofs cover, too: tls_line::binding(). Before the first bytes are fed.
  void bind(std::span<const std::byte> line) { line_.assign(line.begin(), line.end()); }
  /// Of an answerer: the caller is refused, because it should speak TLS.
  void refuse_plain() { wants_tls_ = true; }

  // -- what came of it --

  enum class status { going, done, refused };
  status state() const noexcept { return state_; }
  /// Of a refusal: a sentence that names what both sides said.
  const std::string& why() const noexcept { return why_; }
  /// The process at the other end; a caller's word for it counts from `done` on.
  std::uint32_t peer() const noexcept { return peer_; }
  /// Which of the caller's connections it is; of an answerer it counts from `done` on.
  std::uint8_t lane() const noexcept { return facts_.lane; }
  /// Of this connection's line, where a transport carries its frames: a process without the job's key cannot know them. @pre done
  line_names names_of_line() const;
  /// Whose job both are; a caller that did not know it learns it. Counts from `done` on.
  std::uint64_t job() const noexcept { return facts_.job; }

  static constexpr std::size_t hello_bytes = 72, answer_bytes = 104, confirm_bytes = 48;

private:
  enum class role { caller, answerer };
  enum class refusal : std::uint8_t {
    none,
    version,
    byte_order,
    word_size,
    build,
    key_missing,
    key_unwanted,
    job,
    address,
    tls_missing
  };

  handshake(role which, const handshake_facts& facts, const job_key& key);

  std::size_t expected() const noexcept;
  bool take_prefix();
  void take_hello();
  void take_answer();
  void take_confirm();
  refusal about_hello() const;
  void write_answer(refusal code);
  bool recognise(std::span<const std::byte> theirs, const job_key::proof& right);
  void refuse(std::string sentence);
  std::string sentence_of(refusal code, std::span<const std::byte> theirs) const;
  job_key::proof answer_proof() const;
  job_key::proof confirm_proof() const;

  role role_;
  status state_ = status::going;
  handshake_facts facts_;
  job_key key_;
  std::uint32_t peer_;
  std::string why_;
  std::array<std::byte, hello_bytes> hello_{};
  std::array<std::byte, answer_bytes> answer_{};
  std::array<std::byte, answer_bytes> received_{};  ///< the message that is being received
  std::size_t length_ = 0;                          ///< of it
  bool answered_ = false;                           ///< the answerer waits for the confirmation
  bool wants_tls_ = false;
  std::vector<std::byte> line_;
  std::vector<std::byte> output_;
};

}  // namespace troupe::actors
