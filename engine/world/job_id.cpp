// SPDX-License-Identifier: Apache-2.0
#include "engine/world/job_id.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include <netinet/in.h>

#include "actors/ports/link/rendezvous.hpp"
#include "actors/ports/link/sockets.hpp"
#include "engine/world/join.hpp"
#include "engine/world/tls.hpp"
#include "memory/error.hpp"
#include "memory/word_hash.hpp"

namespace troupe {

namespace {

/// One address: family 4 or 6, the port, the address.
struct packed_address {
  std::uint8_t family = 0;
  std::array<std::uint8_t, 2> port{};
  std::array<std::uint8_t, 16> address{};
};
static_assert(sizeof(packed_address) == 19);
constexpr std::size_t most_addresses = 3;

/// The 128 bytes. All in the maker's byte order: another one is refused at the handshake anyway.
struct packed_id {
  std::array<char, 8> magic{'T', 'R', 'O', 'U', 'P', 'E', 'I', 'D'};
  std::uint64_t build = 0;
  std::array<std::uint8_t, 32> key{};
  std::array<packed_address, most_addresses> addresses{};
  std::array<std::uint8_t, 4> before{}, fresh{};  ///< of an invitation
  std::array<std::uint8_t, 7> unused{};
  std::uint64_t check = 0;  ///< of what comes before
};
static_assert(sizeof(packed_id) == sizeof(job_id) && std::is_trivially_copyable_v<packed_id>);

std::uint64_t check_of(const packed_id& id) {
  std::array<std::uint64_t, sizeof(packed_id) / 8> words{};
  std::memcpy(words.data(), &id, sizeof id);
  word_hash h;
  for (std::size_t i = 0; i + 1 < words.size(); ++i) h.add(words[i]);
  return h.state;
}

packed_address pack(const actors::socket_address& at) {
  packed_address p;
  const std::uint16_t port = at.port();
  std::memcpy(p.port.data(), &port, sizeof port);
  if (at.family() == AF_INET6) {
    p.family = 6;
    std::memcpy(p.address.data(), &reinterpret_cast<const sockaddr_in6*>(at.get())->sin6_addr, 16);
  } else {
    p.family = 4;
    std::memcpy(p.address.data(), &reinterpret_cast<const sockaddr_in*>(at.get())->sin_addr, 4);
  }
  return p;
}

actors::socket_address unpack(const packed_address& p) {
  std::uint16_t port = 0;
  std::memcpy(&port, p.port.data(), sizeof port);
  if (p.family == 6) {
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    std::memcpy(&six.sin6_addr, p.address.data(), 16);
    return actors::socket_address::of(reinterpret_cast<const sockaddr*>(&six), sizeof six).with_port(port);
  }
  sockaddr_in four{};
  four.sin_family = AF_INET;
  std::memcpy(&four.sin_addr, p.address.data(), 4);
  return actors::socket_address::of(reinterpret_cast<const sockaddr*>(&four), sizeof four).with_port(port);
}

std::array<std::uint8_t, 32> bytes_of(const actors::job_key& key) {
  std::array<std::uint8_t, 32> bytes{};
  const std::string hex = key.to_hex();
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::uint8_t>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  return bytes;
}

std::string hex_of(std::span<const std::uint8_t> bytes) {
  static constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t b : bytes) {
    text += digits[b >> 4];
    text += digits[b & 15];
  }
  return text;
}

/// What this process serves in the background. Never destroyed: their threads end with the process, whatever it does at its end.
class services {
public:
  static services& of_process() {
    static services& all = *new services;  // NOLINT(bugprone-unhandled-exception-at-new): without it there is no id
    return all;
  }
  void add(std::unique_ptr<actors::rendezvous_service> one) {
    const std::lock_guard lock(mutex_);
    std::erase_if(all_, [](const auto& s) { return s->over(); });
    all_.push_back(std::move(one));
  }

private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<actors::rendezvous_service>> all_;
};

/// Where the others reach a service that listens at `own`.
std::vector<actors::socket_address> reached_at(const actors::socket_address& own,
                                               const std::vector<actors::socket_address>& host) {
  if (!own.is_any()) return {own};
  std::vector<actors::socket_address> all;
  for (const actors::socket_address& a : host)
    if (all.size() < most_addresses && (own.family() == AF_INET6 || a.family() == AF_INET))
      all.push_back(a.with_port(own.port()));
  return all;
}

}  // namespace

job_id make_id(const id_options& options) {
  served_id made = serve_id(options, interfaces_of_environment(), 0, 0, tls_of(options));
  serve_in_background(std::move(made.service));
  return made.id;
}

void serve_in_background(std::unique_ptr<actors::rendezvous_service> one) {
  services::of_process().add(std::move(one));
}

served_id serve_id(const id_options& options, const std::string& interfaces, std::uint32_t before, std::uint32_t fresh,
                   std::shared_ptr<const actors::tls_identity> tls) {
  const auto host = actors::addresses_of_host(interfaces);
  std::string listen = options.listen;
  if (listen.empty()) {
    const bool v6 = std::any_of(host.begin(), host.end(), [](const auto& a) { return a.family() == AF_INET6; });
    listen = host.empty() ? "tcp://127.0.0.1:0" : v6 ? "tcp://[::]:0" : "tcp://0.0.0.0:0";
  }
  if (const auto at = actors::socket_address::resolve(listen).front(); at.family() == AF_UNIX)
    throw error(errc::bad_config,
                "make_id: " + listen + " does not fit into an id; listen at tcp://127.0.0.1:0 instead");
  const actors::job_key key = actors::job_key::random();
  constexpr std::chrono::hours longest{24 * 365};  // more would not fit into a clock
  const auto until = std::chrono::steady_clock::now() +
                     std::clamp<std::chrono::milliseconds>(options.serve_for, std::chrono::milliseconds{0}, longest);
  auto service = std::make_unique<actors::rendezvous_service>(listen, before + fresh, key, build_of_links(),
                                                              std::move(tls), until);
  packed_id id;
  id.build = build_of_links();
  id.key = bytes_of(key);
  std::memcpy(id.before.data(), &before, sizeof before);
  std::memcpy(id.fresh.data(), &fresh, sizeof fresh);
  const auto own = actors::socket_address::resolve(service->address()).front();
  std::size_t count = 0;
  for (const auto& at : reached_at(own, host)) id.addresses[count++] = pack(at);
  if (count == 0) throw error(errc::io, "make_id: nobody could reach " + service->address() + " from outside");
  id.check = check_of(id);
  served_id made{{}, std::move(service)};
  std::memcpy(made.id.bytes.data(), &id, sizeof id);
  return made;
}

meeting meeting_of(const job_id& which) {
  packed_id id;
  std::memcpy(static_cast<void*>(&id), which.bytes.data(), sizeof id);
  if (id.magic != packed_id{}.magic || id.check != check_of(id))
    throw error(errc::invalid_argument, "these 128 bytes are no id of make_id(), or not all of them arrived");
  if (id.build != build_of_links())
    throw error(errc::mismatch, "the id was made by another build of Troupe; all processes of a job need the same");
  meeting m;
  m.key = hex_of(id.key);
  std::memcpy(&m.before, id.before.data(), sizeof m.before);
  std::memcpy(&m.fresh, id.fresh.data(), sizeof m.fresh);
  m.one_host = true;
  for (const packed_address& p : id.addresses) {
    if (p.family == 0) continue;
    const actors::socket_address at = unpack(p);
    m.one_host = m.one_host && at.is_local();
    m.rendezvous += (m.rendezvous.empty() ? "" : ",") + at.to_string();
  }
  return m;
}

// -- invitations ------------------------------------------------------------------------------------------------------

namespace {
constexpr std::string_view invitation = "grow:";
}

std::string text_of_invitation(const job_id& which) {
  std::array<std::uint8_t, sizeof which> bytes{};
  std::memcpy(bytes.data(), which.bytes.data(), sizeof which);
  return std::string{invitation} + hex_of(bytes);
}

bool is_invitation(std::string_view text) { return text.starts_with(invitation); }

meeting meeting_of_invitation(std::string_view text) {
  const std::string_view hex = text.substr(std::min(invitation.size(), text.size()));
  job_id id;
  bool whole = is_invitation(text) && hex.size() == 2 * sizeof id;
  for (std::size_t i = 0; whole && i < sizeof id; ++i) {
    std::uint8_t byte = 0;
    const char* const from = hex.data() + 2 * i;
    const auto [end, problem] = std::from_chars(from, from + 2, byte, 16);
    whole = problem == std::errc{} && end == from + 2;
    id.bytes[i] = std::byte{byte};
  }
  if (whole) {
    packed_id packed;
    std::memcpy(static_cast<void*>(&packed), id.bytes.data(), sizeof id);
    whole = packed.magic == packed_id{}.magic && packed.check == check_of(packed);
  }
  if (!whole)
    throw error(errc::bad_config, "this is no invitation of communicator::grow(), or not all of it arrived: it is \"" +
                                      std::string{invitation} + "\" and " + std::to_string(2 * sizeof id) +
                                      " hexadecimal digits");
  meeting m = meeting_of(id);
  if (m.fresh == 0 || m.before == 0)
    throw error(errc::bad_config, "this is the id of a job that begins, no invitation of communicator::grow()");
  return m;
}

}  // namespace troupe
