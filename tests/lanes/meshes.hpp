// SPDX-License-Identifier: Apache-2.0
#pragma once
// Several meshes in one process, what each of them hears, and what lies between them.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

#include "actors/ports/link/mesh.hpp"
#include "actors/ports/link/ucx/ucx_transport.hpp"
#include "tests/certificates.hpp"
#include "tests/patience.hpp"

namespace mesh_tests {

using namespace troupe;
using namespace troupe::actors;

struct listener_of_test final : mesh_receiver {
  bool chunk_arrived(std::uint32_t from, const frame_head& head, chunk&& what) override {
    for (waiting = waits.load(); waits.load();) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    if (head.kind == frame_kind::packet) ++packets;
    if (head.kind == frame_kind::ready) ++readies;
    if (what.announced) {  // it comes behind what was sent in between, so its place in the order is looked at then
      ++announced;
      if (!says_clear) return true;
      frame_head back = head;
      back.to = what.source;
      at.load()->send_clear(from, back, {what.epoch, head.to, what.lane, what.sequence});
      return true;
    }
    if (!reads) return ++chunks, true;
    const auto* const word = reinterpret_cast<const std::byte*>(what.data);
    bool right = what.source == static_cast<rank_t>(from) && reinterpret_cast<std::uintptr_t>(word) % 16 == 0;
    // The rest repeats the first 256: compared at once, which a sanitizer does not watch byte by byte.
    constexpr std::size_t period = 256;
    for (std::size_t i = 0; i < std::min(what.bytes, period); ++i)
      right = right && word[i] == static_cast<std::byte>(i * 7 + what.sequence);
    right = right && (what.bytes <= period || std::memcmp(word, word + period, what.bytes - period) == 0);
    // Those of the first connection come in order, and each one once.
    const bool first = several_lanes ? what.bytes <= most_settled : !is_announced(what.epoch, what.bytes);
    if (first && what.sequence < std::exchange(next[from], what.sequence + 1)) right = false;
    if (!come.insert(std::uint64_t{from} << 32 | what.sequence).second) right = false;
    if (!right) ++wrong;
    bytes += what.bytes;
    const std::lock_guard lock(mutex);
    if (held.size() < 64 && what.bytes <= holds_up_to.load()) held.push_back(std::move(what));  // some are read late
    ++chunks;
    return true;
  }
  bool credit_arrived(std::uint32_t, const frame_head& head, const credit&) override {
    return ++(head.kind == frame_kind::response ? responses : credits), true;
  }
  bool word_arrived(std::uint32_t, const frame_head&, std::span<const std::byte> body) override {
    return ++words, body.size() != 13;
  }
  void process_lost(std::uint32_t process, const std::string& how) override {
    const std::lock_guard lock(mutex);
    lost.push_back(std::to_string(process) + ": " + how);
    ++losses;
  }
  void process_left(std::uint32_t) override { ++lefts; }
  void lanes_changed(std::uint32_t, int open, const std::string& why_not) override {
    const std::lock_guard lock(mutex);
    most_lanes_open = std::max(most_lanes_open.load(), open);
    if (!why_not.empty()) not_opened.push_back(why_not);
  }
  void turned_away(const std::string& who_and_why) override {
    const std::lock_guard lock(mutex);
    strangers.push_back(who_and_why);
    ++turned;
  }

  std::atomic<int> packets{0}, readies{0}, responses{0};  ///< of NICs
  std::atomic<int> chunks{0}, credits{0}, words{0}, wrong{0}, losses{0}, lefts{0}, turned{0};
  std::atomic<std::size_t> bytes{0};
  std::array<std::uint32_t, 8> next{};
  std::set<std::uint64_t> come;
  std::atomic<mesh*> at{nullptr};
  std::atomic<int> announced{0};
  bool says_clear = true, several_lanes = false;
  std::atomic<bool> waits{false}, waiting{false};         ///< whoever reads, before the next chunk is taken
  std::atomic<bool> reads{true};                          ///< false: by then its memory may be somebody else's again
  std::atomic<std::size_t> holds_up_to{~std::size_t{0}};  ///< bytes of a chunk
  std::mutex mutex;
  std::vector<chunk> held;
  std::vector<std::string> lost, strangers, not_opened;
  std::atomic<int> most_lanes_open{1};
};

enum class between : std::uint8_t { sockets, tls, memory_of_both, ucx };

/// The identity of each process, if it has one.
using identities = std::vector<std::shared_ptr<const tls_identity>>;
inline identities of_one_authority(std::uint32_t n) {
  certificate_tests::authority all{"an authority"};
  identities made;
  for (std::uint32_t p = 0; p < n; ++p) made.push_back(tls_identity::load(all.issue("process " + std::to_string(p))));
  return made;
}

constexpr std::chrono::milliseconds usual_silence{patience * 3000};

struct meshes_of_test {
  /// @param made of the processes so many have a mesh; the others' doors stay shut
  /// @param who with TLS; empty: of one authority
  /// @param called_at where the others call a door
  /// @param lanes of each process to others; those that are not named have one
  meshes_of_test(between way, std::uint32_t n, std::chrono::milliseconds silence = usual_silence,
                 std::uint32_t made = ~std::uint32_t{0}, identities who = {},
                 const std::function<std::string(const std::string& door)>& called_at = {},
                 std::vector<int> lanes = {}) {
    lanes.resize(n, 1);
    static std::atomic<int> number{0};
    const bool local = way == between::memory_of_both;
    if (way == between::tls && who.empty()) who = of_one_authority(n);
    who.resize(n);
    roster all;
    all.job = 42;
    std::vector<std::shared_ptr<transport>> carriers(n);
    if (way == between::ucx) std::ranges::generate(carriers, make_ucx_transport);
    for (std::uint32_t p = 0; p < n; ++p) {
      const std::string name = "unix:@troupe-mesh-test-" + std::to_string(::getpid()) + "-" + std::to_string(number++);
      doors.push_back(listen_at(socket_address::resolve(local ? name : "tcp://127.0.0.1:0").front()));
      process_place place;
      place.host = "here";
      place.pid = 1000 + p;
      place.first_rank = p;
      place.ranks = 1;
      place.addresses = {socket_address::own(doors.back().get()).to_string()};
      addresses.push_back(place.addresses.front());
      if (carriers[p]) place.carrier = carriers[p]->address();
      if (called_at) place.addresses.front() = called_at(place.addresses.front());
      all.processes.push_back(place);
    }
    mesh_options options;
    options.silence = silence;
    options.build = 7;
    for (std::uint32_t p = 0; p < std::min(n, made); ++p) {
      heard.push_back(std::make_unique<listener_of_test>());
      options.tls = who[p];
      options.carrier = std::move(carriers[p]);
      options.lanes = lanes[p];
      heard.back()->several_lanes = std::ranges::max(lanes) > 1;
      std::vector<descriptor> door;
      door.push_back(std::move(doors[p]));
      each.push_back(std::make_unique<mesh>(options, all, p, job_key{}, std::move(door), memory, *heard.back()));
      heard.back()->at = each.back().get();
    }
  }
  ~meshes_of_test() {
    std::vector<std::thread> leaving;
    for (auto& m : each)
      if (m) leaving.emplace_back([&m] { m->leave(); });
    for (std::thread& t : leaving) t.join();
  }
  /// Nobody has heard a wrong byte, or lost anybody; else it says whom, and how.
  bool went_well() const {
    bool well = true;
    for (std::size_t p = 0; p < heard.size(); ++p) {
      const std::lock_guard lock(heard[p]->mutex);
      for (const std::string& whom : heard[p]->lost) MESSAGE("process " << p << " has lost " << whom);
      well = well && heard[p]->wrong.load() == 0 && heard[p]->lost.empty();
    }
    return well;
  }
  arena memory;
  std::vector<std::string> addresses;
  std::vector<descriptor> doors;
  std::vector<std::unique_ptr<listener_of_test>> heard;
  std::vector<std::unique_ptr<mesh>> each;
};

/// Runs the case three times: over sockets alone, open and with TLS, and over memory that both ends map.
inline between every_way_of_lanes() {
  between way = between::sockets;
  SUBCASE("sockets") {}
  SUBCASE("TLS") { way = between::tls; }
  SUBCASE("memory of both") { way = between::memory_of_both; }
  return way;
}
/// It is built; and ThreadSanitizer, which does not see UCX's locks, does not take them for missing.
inline bool ucx_can_be() {
#ifdef __SANITIZE_THREAD__
  return false;
#else
  return !ucx_version().empty();
#endif
}
inline bool skipped_without_ucx() {
  const bool skipped = !ucx_can_be();
  if (skipped) MESSAGE("skipped: built without UCX (libucx-dev), or with ThreadSanitizer");
  return skipped;
}
/// And once more over UCX, where it can be.
inline between every_way() {
  between way = every_way_of_lanes();
  if (ucx_can_be()) {
    SUBCASE("UCX") { way = between::ucx; }
  }
  return way;
}

template <class Enough>
bool comes(Enough&& enough) {
  const auto until = std::chrono::steady_clock::now() + patience * std::chrono::seconds{30};
  while (!enough()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return true;
}

inline std::vector<std::byte> payload(std::size_t bytes, std::uint32_t sequence) {
  std::vector<std::byte> made(bytes);
  for (std::size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>(i * 7 + sequence);
  return made;
}

/// From rank 0.
inline chunk some_chunk(const std::vector<std::byte>& data, epoch_t epoch, std::uint32_t sequence) {
  chunk c;
  c.data = data.data();
  c.bytes = data.size();
  c.source = 0;
  c.epoch = epoch;
  c.sequence = sequence;
  return c;
}

/// Passes on what those who call it and a door say, and does to it what the test wants.
class passages {
public:
  enum class treatment : std::uint8_t {
    passes_on,
    closes,  ///< at once
    mutes    ///< takes it, and passes nothing on
  };
  static constexpr std::size_t never = ~std::size_t{0};
  /// @param changes_at which byte of each end of each passage is changed; `never`: none
  explicit passages(const std::string& door, std::size_t changes_at = never)
      : door_(socket_address::resolve(door).front()),
        listener_(listen_at(socket_address::resolve("tcp://127.0.0.1:0").front())),
        changes_at_(changes_at),
        thread_([this] { work(); }) {}
  ~passages() {
    over_.store(true);
    thread_.join();
  }
  passages(const passages&) = delete;
  passages& operator=(const passages&) = delete;
  std::string address() const { return socket_address::own(listener_.get()).to_string(); }
  /// Those that begin from now on.
  void treat(treatment how) { treatment_.store(how); }
  /// Bytes towards the door, of each passage that ever was.
  std::vector<std::size_t> passed() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::size_t> all;
    for (const passage& p : all_) all.push_back(p.passed[0]);
    return all;
  }
  /// That passage ends when so many more bytes have passed towards the door.
  void cut(std::size_t which, std::size_t after) {
    const std::lock_guard lock(mutex_);
    all_.at(which).ends_at = all_.at(which).passed[0] + after;
  }

private:
  struct passage {
    descriptor from, to;
    std::array<std::size_t, 2> passed{};
    std::size_t ends_at = never;
    treatment how = treatment::passes_on;
    bool open = true;
  };
  void work() {
    std::vector<std::byte> some(64 * 1024);
    for (std::string why; !over_.load(); std::this_thread::sleep_for(std::chrono::microseconds{200})) {
      while (descriptor s = accept_from(listener_.get(), why)) begin(std::move(s));
      const std::lock_guard lock(mutex_);
      for (passage& p : all_)
        if (p.how == treatment::passes_on)
          for (const bool there : {true, false}) pass_on(p, there, some);
    }
  }
  void begin(descriptor s) {
    passage p{std::move(s), {}};
    p.how = treatment_.load();
    if (p.how == treatment::passes_on) p.to = begin_connect(door_);
    else if (p.how == treatment::closes) p.open = false, p.from.reset();
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
    const std::lock_guard lock(mutex_);
    all_.push_back(std::move(p));
  }
  void pass_on(passage& p, bool there, std::vector<std::byte>& some) const {
    const int from = there ? p.from.get() : p.to.get(), to = there ? p.to.get() : p.from.get();
    const ssize_t n = p.open ? ::recv(from, some.data(), some.size(), MSG_DONTWAIT) : -1;
    if (n == 0) return end(p);
    if (n < 0) return;
    const auto bytes = static_cast<std::size_t>(n);
    std::size_t& before = p.passed[there ? 0 : 1];
    if (before <= changes_at_ && changes_at_ < before + bytes) some[changes_at_ - before] ^= std::byte{4};
    before += bytes;
    for (std::size_t sent = 0; sent < bytes && !over_.load();) {
      const ssize_t more = ::send(to, some.data() + sent, bytes - sent, MSG_NOSIGNAL);
      if (more > 0) sent += static_cast<std::size_t>(more);
      else if (errno != EAGAIN) break;
    }
    if (p.passed[0] >= p.ends_at) end(p);
  }
  static void end(passage& p) { p.open = false, p.from.reset(), p.to.reset(); }

  socket_address door_;
  descriptor listener_;
  std::size_t changes_at_;
  std::atomic<bool> over_{false};
  std::atomic<treatment> treatment_{treatment::passes_on};
  mutable std::mutex mutex_;
  std::vector<passage> all_;
  std::thread thread_;
};

}  // namespace mesh_tests
