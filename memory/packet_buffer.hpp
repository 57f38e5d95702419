// SPDX-License-Identifier: Apache-2.0
// The hash packet buffer of the NIC offload design: packets wait here, in whatever order they arrived, until the
// operation that needs them asks for them by name.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

namespace troupe {

/// The key of a packet: of which job (operation), from which node (rank), on which lane (virtual processor), which step.
struct packet_key {
  std::uint64_t job = 0;
  std::uint32_t node = 0;
  std::uint32_t lane = 0;
  std::uint32_t sequence = 0;

  friend constexpr auto operator<=>(const packet_key&, const packet_key&) = default;
};

/// Three rounds of the murmur3 finaliser (A. Appleby, public domain): keys differ in few low bits, slots must not.
constexpr std::uint64_t hash_of(const packet_key& key) {
  const auto mix = [](std::uint64_t word) {
    word = (word ^ (word >> 33)) * 0xff51'afd7'ed55'8ccdULL;
    word = (word ^ (word >> 33)) * 0xc4ce'b9fe'1a85'ec53ULL;
    return word ^ (word >> 33);
  };
  const std::uint64_t low = (std::uint64_t{key.lane} << 32) | key.sequence;
  return mix(mix(mix(key.job) + key.node) + low);
}

struct packet_buffer_statistics {
  std::size_t capacity = 0;    // packets the credits should be sized for: 100 %
  std::size_t limit = 0;       // capacity + reserve: put() refuses beyond
  std::size_t size = 0;        // packets waiting now
  std::size_t high_water = 0;  // most packets that were ever there, those that are being read among them
  std::size_t refused = 0;     // put() calls that found the buffer full
  double fill = 0;             // occupied() / capacity; above 1 the reserve is in use
  double average_fill = 0;     // mean of the fill right after each successful put()
};

/// Open addressing with linear probing and a bitmap of valid entries. 10 % of the buffer is a reserve beyond the
/// nominal capacity, for packets that were under way when credits ran out. A removal shifts the rest of its cluster
/// back (D. Knuth, TAOCP 3, 6.4, algorithm R), so there are no tombstones and the buffer does not degrade with use.
/// At least an eighth of the slots stays empty, which bounds probing.
///
/// Memory is allocated once, on construction. Values are owned, and moved by put(), take() and removals; pointers from
/// find() are valid until the next put() or removal. Not thread-safe: it belongs to one actor.
template <class Value>
class packet_buffer {
  static_assert(std::is_nothrow_move_constructible_v<Value> && std::is_nothrow_destructible_v<Value>,
                "a packet is moved while the table is being changed, which must not fail halfway");

public:
  // -- constructors -------------------------------------------------------------------------------

  /// @param capacity nominal number of packets, at least 1 (0 counts as 1).
  explicit packet_buffer(std::size_t capacity)
      : capacity_{std::max<std::size_t>(capacity, 1)},
        limit_{capacity_ + (capacity_ + 8) / 9},
        mask_{std::bit_ceil(limit_ + limit_ / 7 + 1) - 1},
        valid_{std::make_unique<std::uint64_t[]>(mask_ / 64 + 1)},
        entries_{std::make_unique<storage[]>(mask_ + 1)} {}

  packet_buffer(packet_buffer&& other) noexcept
      : capacity_{other.capacity_},
        limit_{std::exchange(other.limit_, 0)},
        mask_{std::exchange(other.mask_, 0)},
        valid_{std::move(other.valid_)},
        entries_{std::move(other.entries_)},
        size_{std::exchange(other.size_, 0)},
        reading_{std::exchange(other.reading_, 0)},
        high_water_{other.high_water_},
        refused_{other.refused_},
        puts_{other.puts_},
        sum_of_sizes_{other.sum_of_sizes_} {}

  packet_buffer& operator=(packet_buffer&&) = delete;
  ~packet_buffer() { clear(); }

  // -- packets ------------------------------------------------------------------------------------

  /// Stores a packet. False, with `value` untouched, when the buffer is full or the key is present already (contains()
  /// tells which): the sender keeps the packet, nothing is lost or overwritten.
  [[nodiscard]] bool put(const packet_key& key, Value&& value) {
    if (limit_ == 0) return false;
    const std::size_t slot = probe(key);
    if (is_valid(slot)) return false;
    if (occupied() == limit_) {
      ++refused_;
      return false;
    }
    ::new (static_cast<void*>(&entries_[slot])) entry{key, std::move(value)};
    set_valid(slot);
    ++size_;
    high_water_ = std::max(high_water_, occupied());
    ++puts_;
    sum_of_sizes_ += static_cast<double>(occupied());
    return true;
  }

  /// Removes and returns the packet; nothing if it has not arrived yet.
  [[nodiscard]] std::optional<Value> take(const packet_key& key) {
    if (size_ == 0) return std::nullopt;
    const std::size_t slot = probe(key);
    if (!is_valid(slot)) return std::nullopt;
    std::optional<Value> value{std::move(at(slot).value)};
    erase(slot);
    return value;
  }

  /// As take(), but the packet's place stays occupied until end_reading(): its reader is not done with it.
  [[nodiscard]] std::optional<Value> begin_reading(const packet_key& key) {
    auto value = take(key);
    reading_ += value.has_value();
    return value;
  }
  /// @pre a begin_reading() that has given something, for each
  void end_reading() noexcept { --reading_; }

  [[nodiscard]] Value* find(const packet_key& key) {
    if (size_ == 0) return nullptr;
    const std::size_t slot = probe(key);
    return is_valid(slot) ? &at(slot).value : nullptr;
  }

  [[nodiscard]] bool contains(const packet_key& key) { return find(key) != nullptr; }

  /// Removes every packet of a job, when its operation is aborted; consume(key, Value&&) sees each one first, in no
  /// particular order, and must neither throw nor touch this buffer. Returns how many there were. Cost: all slots.
  template <class Consumer>
  std::size_t remove_job(std::uint64_t job, Consumer consume) {
    const std::size_t before = size_;
    // Erasing a slot may move a later entry into it, so the slot is looked at again. Entries that wrap round from the
    // first slots to the last have been looked at already; seeing them twice does no harm.
    for (std::size_t slot = 0; size_ > 0 && slot <= mask_;) {
      if (is_valid(slot) && at(slot).key.job == job) {
        consume(std::as_const(at(slot).key), std::move(at(slot).value));
        erase(slot);
      } else {
        ++slot;
      }
    }
    return before - size_;
  }

  std::size_t remove_job(std::uint64_t job) {
    return remove_job(job, [](const packet_key&, Value&&) {});
  }

  void clear() noexcept {
    for (std::size_t slot = 0; size_ > 0; ++slot) {
      if (!is_valid(slot)) continue;
      destroy(slot);
      --size_;
    }
  }

  // -- fill ---------------------------------------------------------------------------------------

  std::size_t size() const noexcept { return size_; }
  /// Places that no other packet can have: of those that wait, and of those that are being read.
  std::size_t occupied() const noexcept { return size_ + reading_; }
  bool empty() const noexcept { return size_ == 0; }
  std::size_t capacity() const noexcept { return capacity_; }
  /// Capacity plus reserve: the most packets it ever holds.
  std::size_t limit() const noexcept { return limit_; }

  packet_buffer_statistics statistics() const {
    const auto whole = static_cast<double>(capacity_);
    return {capacity_,
            limit_,
            size_,
            high_water_,
            refused_,
            static_cast<double>(occupied()) / whole,
            puts_ == 0 ? 0.0 : sum_of_sizes_ / static_cast<double>(puts_) / whole};
  }

private:
  struct entry {
    packet_key key;
    Value value;
  };
  struct alignas(entry) storage {
    std::byte bytes[sizeof(entry)];
  };

  entry& at(std::size_t slot) { return *std::launder(reinterpret_cast<entry*>(&entries_[slot])); }
  bool is_valid(std::size_t slot) const { return (valid_[slot / 64] >> (slot % 64)) & 1u; }
  void set_valid(std::size_t slot) { valid_[slot / 64] |= std::uint64_t{1} << (slot % 64); }
  std::size_t home(const packet_key& key) const { return static_cast<std::size_t>(hash_of(key)) & mask_; }

  /// The slot that holds the key, or the free slot where it would go. Ends because some slots are always free.
  std::size_t probe(const packet_key& key) {
    std::size_t slot = home(key);
    while (is_valid(slot) && at(slot).key != key) slot = (slot + 1) & mask_;
    return slot;
  }

  void destroy(std::size_t slot) noexcept {
    at(slot).~entry();
    valid_[slot / 64] &= ~(std::uint64_t{1} << (slot % 64));
  }

  void erase(std::size_t hole) noexcept {
    destroy(hole);
    --size_;
    for (std::size_t slot = (hole + 1) & mask_; is_valid(slot); slot = (slot + 1) & mask_) {
      // An entry may fill the hole unless its home lies behind the hole (cyclically in (hole, slot]).
      const std::size_t from_home = (slot - home(at(slot).key)) & mask_;
      if (from_home < ((slot - hole) & mask_)) continue;
      ::new (static_cast<void*>(&entries_[hole])) entry{std::move(at(slot))};
      set_valid(hole);
      destroy(slot);
      hole = slot;
    }
  }

  std::size_t capacity_;
  std::size_t limit_;
  std::size_t mask_;
  std::unique_ptr<std::uint64_t[]> valid_;
  std::unique_ptr<storage[]> entries_;
  std::size_t size_ = 0, reading_ = 0;
  std::size_t high_water_ = 0;
  std::size_t refused_ = 0;
  std::size_t puts_ = 0;
  double sum_of_sizes_ = 0;
};

}  // namespace troupe
