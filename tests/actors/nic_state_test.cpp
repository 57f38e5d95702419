// SPDX-License-Identifier: Apache-2.0
#include "actors/elements/nic_state.hpp"
#include "tests/seed.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <tuple>
#include <vector>

using namespace troupe;
using namespace troupe::actors;

namespace {

struct test_memory final : travel_memory {
  arena from;
  bool empty = false;
  std::shared_ptr<scratch_block> buffer(std::size_t bytes) override {
    return empty ? nullptr : std::make_shared<scratch_block>(from.acquire(bytes));
  }
};

std::vector<std::byte> random_bytes(std::size_t count, std::mt19937_64& random) {
  std::vector<std::byte> made(count);
  for (std::byte& b : made) b = static_cast<std::byte>(random());
  return made;
}

chunk chunk_of(const std::vector<std::byte>& bytes, std::uint32_t sequence) {
  chunk c;
  c.data = bytes.data(), c.bytes = bytes.size(), c.source = 3, c.epoch = 7, c.sequence = sequence;
  return c;
}

std::vector<nic_state::packet> packets_of(nic_state& nic, std::size_t bytes) {
  std::vector<nic_state::packet> made;
  nic.cut(bytes, [&](const nic_state::packet& p) { made.push_back(p); });
  return made;
}

}  // namespace

TEST_CASE("nic_state: packets cover a chunk once, in order, and none is larger than a packet") {
  nic_state nic;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, nic_state::packet_bytes - 1, nic_state::packet_bytes,
                                  nic_state::packet_bytes + 1, 3 * nic_state::packet_bytes}) {
    const auto packets = packets_of(nic, bytes);
    CHECK(packets.size() == std::max<std::size_t>(1, (bytes + nic_state::packet_bytes - 1) / nic_state::packet_bytes));
    std::size_t covered = 0;
    for (const auto& p : packets) {
      CHECK(p.name == packets.front().name);
      CHECK(p.offset == covered);
      CHECK(p.bytes <= nic_state::packet_bytes);
      covered += p.bytes;
    }
    CHECK(covered == bytes);
  }
}

TEST_CASE("nic_state: chunks of several NICs come whole, whatever order their packets come in") {
  std::mt19937_64 random(seed());
  test_memory memory;
  nic_state receiver;
  std::vector<std::vector<std::byte>> sent;
  std::vector<std::tuple<std::uint64_t, nic_state::packet, std::size_t>> under_way;  // NIC, packet, chunk
  for (std::uint64_t number = 1; number <= 3; ++number) {
    nic_state sender;  // each counts its transfers from 0
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{5}, 2 * nic_state::packet_bytes + 17}) {
      for (const auto& p : packets_of(sender, bytes)) under_way.emplace_back(number, p, sent.size());
      sent.push_back(random_bytes(bytes, random));
    }
  }
  std::shuffle(under_way.begin(), under_way.end(), random);
  std::vector<int> arrived(sent.size(), 0);
  for (const auto& [number, packet, index] : under_way) {
    const chunk original = chunk_of(sent[index], static_cast<std::uint32_t>(index));
    const auto whole = receiver.join(number, packet, original, memory);
    if (!whole) continue;
    ++arrived[index];
    CHECK(whole->sequence == index);
    CHECK(whole->source == 3);
    CHECK(whole->keep != nullptr);
    if (whole->bytes > 0) CHECK(whole->data != original.data);
    CHECK(std::equal(sent[index].begin(), sent[index].end(), whole->data, whole->data + whole->bytes));
  }
  CHECK(std::all_of(arrived.begin(), arrived.end(), [](int times) { return times == 1; }));
  CHECK(receiver.incomplete() == 0);
}

TEST_CASE("nic_state: a chunk without memory is dropped, and nothing of it is kept") {
  std::mt19937_64 random(seed());
  test_memory memory;
  nic_state sender, receiver;
  const auto bytes = random_bytes(2 * nic_state::packet_bytes, random);
  memory.empty = true;
  const auto packets = packets_of(sender, bytes.size());
  CHECK_FALSE(receiver.join(1, packets[0], chunk_of(bytes, 0), memory));
  memory.empty = false;  // too late for this one: its first packet is gone
  CHECK_FALSE(receiver.join(1, packets[1], chunk_of(bytes, 0), memory));
  CHECK(receiver.incomplete() == 0);
  for (const auto& p : packets_of(sender, 4)) CHECK(receiver.join(1, p, chunk_of(random_bytes(4, random), 1), memory));
}

TEST_CASE("copy_out: a chunk leaves its sender's memory, or stays as it was") {
  std::mt19937_64 random(seed());
  test_memory memory;
  auto bytes = random_bytes(1000, random);
  const auto before = bytes;
  chunk c = chunk_of(bytes, 0);
  memory.empty = true;
  CHECK_FALSE(copy_out(c, memory));
  CHECK(c.data == bytes.data());
  memory.empty = false;
  CHECK(copy_out(c, memory));
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  CHECK(std::equal(before.begin(), before.end(), c.data, c.data + c.bytes));
}
