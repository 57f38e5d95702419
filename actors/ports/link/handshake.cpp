// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/link/handshake.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "actors/ports/link/tls.hpp"

namespace troupe::actors {

namespace {

constexpr std::string_view magic = "TROUPE\r\n";  // what converts ends of lines on the way shows
constexpr std::byte hello_kind{1}, answer_kind{2}, confirm_kind{3};
constexpr std::byte this_version{1};
constexpr std::byte this_word{sizeof(void*)};
constexpr std::uint32_t order_mark = 0x01020304;

// Where things stand in the messages; see the header.
constexpr std::size_t kind_at = 8, version_at = 9, word_at = 10, flag_at = 11, order_at = 12, prefix_bytes = 16;
constexpr std::size_t build_at = 16, job_at = 24, nonce_at = 40, nonce_bytes = 32;
constexpr std::size_t hello_from_at = 32, hello_to_at = 36;
constexpr std::size_t answer_from_at = 32, answer_keyed_at = 36, answer_proof_at = 72, confirm_proof_at = 16;

static_assert(nonce_at + nonce_bytes == handshake::hello_bytes);
static_assert(nonce_at + nonce_bytes == answer_proof_at);
static_assert(answer_proof_at + sizeof(job_key::proof) == handshake::answer_bytes);
static_assert(confirm_proof_at + sizeof(job_key::proof) == handshake::confirm_bytes);

template <class T>
void put(std::span<std::byte> message, std::size_t at, T value) {
  std::memcpy(message.subspan(at, sizeof value).data(), &value, sizeof value);
}

template <class T>
T get(std::span<const std::byte> message, std::size_t at) {
  T value;
  std::memcpy(&value, message.subspan(at, sizeof value).data(), sizeof value);
  return value;
}

std::span<const std::byte> tag(std::string_view text) { return std::as_bytes(std::span{text}); }

void put_prefix(std::span<std::byte> message, std::byte kind) {
  std::memcpy(message.data(), magic.data(), magic.size());
  message[kind_at] = kind;
  message[version_at] = this_version;
  message[word_at] = this_word;
  put(message, order_at, order_mark);
}

std::string hex(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::string number(std::byte value) { return std::to_string(std::to_integer<unsigned>(value)); }

std::string process(std::uint32_t number) {
  return number == rendezvous_process ? "the rendezvous service" : "process " + std::to_string(number);
}

std::string bits(std::byte word) { return std::to_string(std::to_integer<unsigned>(word) * 8U) + " bits"; }

/// Of a mark in the byte order of its writer.
std::string byte_order(std::span<const std::byte> message) {
  const std::span<const std::byte> mark = message.subspan(order_at, 4);
  const auto is = [&](std::array<int, 4> bytes) {
    return std::equal(bytes.begin(), bytes.end(), mark.begin(),
                      [](int a, std::byte b) { return a == std::to_integer<int>(b); });
  };
  return is({4, 3, 2, 1}) ? "little-endian" : is({1, 2, 3, 4}) ? "big-endian" : "in a byte order of its own";
}

constexpr const char* this_byte_order = std::endian::native == std::endian::little ? "little-endian" : "big-endian";
constexpr const char* other_end = "the process at the other end ";

}  // namespace

// -- constructors --

handshake::handshake(role which, const handshake_facts& facts, const job_key& key)
    : role_(which), facts_(facts), key_(key), peer_(facts.to) {}

handshake handshake::calling(const handshake_facts& facts, const job_key& key) {
  handshake made{role::caller, facts, key};
  put_prefix(made.hello_, hello_kind);
  made.hello_[flag_at] = static_cast<std::byte>(static_cast<unsigned>(facts.lane) << 1U | (key.present() ? 1U : 0U));
  put(made.hello_, build_at, facts.build);
  put(made.hello_, job_at, facts.job);
  put(made.hello_, hello_from_at, facts.from);
  put(made.hello_, hello_to_at, facts.to);
  fill_random(std::span{made.hello_}.subspan(nonce_at, nonce_bytes));
  made.output_.assign(made.hello_.begin(), made.hello_.end());
  return made;
}

handshake handshake::answering(const handshake_facts& facts, const job_key& key) {
  handshake made{role::answerer, facts, key};
  made.peer_ = rendezvous_process;  // until somebody says otherwise
  return made;
}

// -- bytes --

std::vector<std::byte> handshake::take_output() { return std::exchange(output_, {}); }

std::size_t handshake::expected() const noexcept {
  if (role_ == role::caller) return answer_bytes;
  return answered_ ? confirm_bytes : hello_bytes;
}

std::size_t handshake::feed(std::span<const std::byte> bytes) {
  std::size_t taken = 0;
  while (state_ == status::going && taken < bytes.size()) {
    // The prefix first: another version's messages may have another length, and a caller that is no process of ours is refused at its first wrong byte.
    const std::size_t until = length_ < prefix_bytes ? prefix_bytes : expected();
    const std::size_t some = std::min(until - length_, bytes.size() - taken);
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(taken), some,
                received_.begin() + static_cast<std::ptrdiff_t>(length_));
    taken += some;
    length_ += some;
    if (length_ <= prefix_bytes && !take_prefix()) break;
    if (length_ < expected()) continue;
    length_ = 0;
    if (role_ == role::caller) take_answer();
    else if (!answered_) take_hello();
    else take_confirm();
  }
  return taken;
}

// -- messages --

/// Whether what has come of the prefix can be one.
bool handshake::take_prefix() {
  const std::size_t read = std::min(length_, magic.size());
  if (std::memcmp(received_.data(), magic.data(), read) != 0) {
    if (role_ == role::caller) {
      refuse("what answers at the other end is no process of Troupe");
    } else if (answered_ || !begins_tls(received_.front())) {
      refuse("what called is no process of Troupe");
    } else {
      refuse("what called speaks TLS, this process does not; " + std::string{all_or_none});
      output_.assign(speaks_no_tls.begin(), speaks_no_tls.end());
    }
    return false;
  }
  if (length_ < prefix_bytes) return true;
  const std::byte kind = role_ == role::caller ? answer_kind : answered_ ? confirm_kind : hello_kind;
  if (received_[kind_at] != kind) {
    refuse(std::string{other_end} + "sent message " + number(received_[kind_at]) + " of a handshake where " +
           number(kind) + " should have come");
    return false;
  }
  if (received_[version_at] == this_version) return true;
  refuse(sentence_of(refusal::version, received_));
  if (role_ == role::answerer && !answered_) write_answer(refusal::version);
  return false;
}

void handshake::take_hello() {
  std::copy_n(received_.begin(), hello_bytes, hello_.begin());
  const refusal code = about_hello();
  if (code != refusal::none) {
    refuse(sentence_of(code, received_));
    write_answer(code);
    return;
  }
  peer_ = get<std::uint32_t>(hello_, hello_from_at);
  facts_.lane = std::to_integer<std::uint8_t>(hello_[flag_at] >> 1);
  answered_ = true;
  write_answer(refusal::none);
}

handshake::refusal handshake::about_hello() const {
  if (get<std::uint32_t>(hello_, order_at) != order_mark) return refusal::byte_order;
  if (hello_[word_at] != this_word) return refusal::word_size;
  if (get<std::uint64_t>(hello_, build_at) != facts_.build) return refusal::build;
  if (wants_tls_) return refusal::tls_missing;
  if ((hello_[flag_at] & std::byte{1}) != std::byte{key_.present()})
    return key_.present() ? refusal::key_missing : refusal::key_unwanted;
  const auto job = get<std::uint64_t>(hello_, job_at);
  if (job != facts_.job && (job != 0 || facts_.to != rendezvous_process)) return refusal::job;
  if (get<std::uint32_t>(hello_, hello_to_at) != facts_.to) return refusal::address;
  // A rendezvous is one connection.
  if (facts_.to == rendezvous_process && hello_[flag_at] > std::byte{1}) return refusal::address;
  return refusal::none;
}

void handshake::write_answer(refusal code) {
  put_prefix(answer_, answer_kind);
  answer_[flag_at] = static_cast<std::byte>(code);
  put(answer_, build_at, facts_.build);
  put(answer_, job_at, facts_.job);
  put(answer_, answer_from_at, facts_.to);
  answer_[answer_keyed_at] = std::byte{key_.present()};
  if (code == refusal::none) {
    fill_random(std::span{answer_}.subspan(nonce_at, nonce_bytes));
    const job_key::proof proof = answer_proof();
    std::copy(proof.begin(), proof.end(), answer_.begin() + answer_proof_at);
  }
  output_.insert(output_.end(), answer_.begin(), answer_.end());
}

void handshake::take_answer() {
  answer_ = received_;
  const auto code = std::to_integer<unsigned>(answer_[flag_at]);
  if (code > static_cast<unsigned>(refusal::tls_missing))
    return refuse(std::string{other_end} + "refuses this one for a reason that this one does not know (" +
                  std::to_string(code) + ")");
  if (code != 0) return refuse(sentence_of(static_cast<refusal>(code), answer_));
  // An answer that has no complaint must agree all the same; what it says counts only if the proof is right.
  if (get<std::uint32_t>(answer_, order_at) != order_mark) return refuse(sentence_of(refusal::byte_order, answer_));
  if (answer_[word_at] != this_word) return refuse(sentence_of(refusal::word_size, answer_));
  if (get<std::uint64_t>(answer_, build_at) != facts_.build) return refuse(sentence_of(refusal::build, answer_));
  const auto job = get<std::uint64_t>(answer_, job_at);
  if (facts_.job != 0 && job != facts_.job) return refuse(sentence_of(refusal::job, answer_));
  if (get<std::uint32_t>(answer_, answer_from_at) != facts_.to) return refuse(sentence_of(refusal::address, answer_));
  if (!recognise(std::span{answer_}.subspan(answer_proof_at), answer_proof())) return;
  facts_.job = job;
  const job_key::proof proof = confirm_proof();
  std::array<std::byte, confirm_bytes> confirm{};
  put_prefix(confirm, confirm_kind);
  std::copy(proof.begin(), proof.end(), confirm.begin() + confirm_proof_at);
  output_.insert(output_.end(), confirm.begin(), confirm.end());
  state_ = status::done;
}

void handshake::take_confirm() {
  if (recognise(std::span{received_}.subspan(confirm_proof_at, sizeof(job_key::proof)), confirm_proof()))
    state_ = status::done;
}

// -- proofs and refusals --

job_key::proof handshake::answer_proof() const {
  return key_.sign({tag("troupe answers"), hello_, std::span{answer_}.first(answer_proof_at), line_});
}

job_key::proof handshake::confirm_proof() const { return key_.sign({tag("troupe confirms"), hello_, answer_, line_}); }

line_names handshake::names_of_line() const {
  const job_key::proof both = key_.sign({tag("troupe carries"), hello_, answer_, line_});
  line_names names{};
  const bool answers = role_ == role::answerer;
  std::copy_n(both.begin(), names.here.size(), (answers ? names.here : names.there).begin());
  std::copy_n(both.begin() + sizeof names.here, names.there.size(), (answers ? names.there : names.here).begin());
  return names;
}

bool handshake::recognise(std::span<const std::byte> theirs, const job_key::proof& right) {
  job_key::proof given;
  std::copy_n(theirs.begin(), given.size(), given.begin());
  if (same(given, right)) return true;
  refuse(std::string{other_end} +
         (key_.present() ? "does not have this job's key" : "does not know what was said on this connection"));
  return false;
}

void handshake::refuse(std::string sentence) {
  state_ = status::refused;
  why_ = std::move(sentence);
}

/// @param theirs the other end's message, of which only the prefix counts where version, byte order or word size differ
std::string handshake::sentence_of(refusal code, std::span<const std::byte> theirs) const {
  const std::string them = other_end;
  const bool calling = role_ == role::caller;
  switch (code) {
    case refusal::none: break;
    case refusal::version:
      return them + "speaks version " + number(theirs[version_at]) + " of the protocol, this one version " +
             number(this_version) + "; start the same build everywhere";
    case refusal::byte_order: return them + "is " + byte_order(theirs) + ", this one " + this_byte_order;
    case refusal::word_size: return them + "has words of " + bits(theirs[word_at]) + ", this one of " + bits(this_word);
    case refusal::build:
      return them + "was built as " + hex(get<std::uint64_t>(theirs, build_at)) + ", this one as " + hex(facts_.build) +
             "; start the same build everywhere";
    case refusal::key_missing:  // on the side that answers
    case refusal::key_unwanted:
      return (code == refusal::key_missing) != calling
                 ? them + "has no key, this one has one; give all processes the same key"
                 : them + "has a key, this one has none; give all processes the same key";
    case refusal::job: {
      const auto job = get<std::uint64_t>(theirs, job_at);
      return them + (job == 0 ? std::string{"does not say of which job it is"} : "is of job " + hex(job)) +
             ", this one " + (facts_.job == 0 ? std::string{"does not say so"} : "of job " + hex(facts_.job));
    }
    case refusal::tls_missing:
      return them + (calling ? "speaks TLS, this one does not; " : "speaks no TLS, this one does; ") +
             std::string{all_or_none};
    case refusal::address:
      if (calling)
        return process(facts_.to) + " was called, and " + process(get<std::uint32_t>(theirs, answer_from_at)) +
               " answered";
      return process(get<std::uint32_t>(theirs, hello_from_at)) + " called " +
             process(get<std::uint32_t>(theirs, hello_to_at)) + ", and this is " + process(facts_.to);
  }
  return them + "refuses this one";
}

}  // namespace troupe::actors
