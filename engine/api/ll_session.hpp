// SPDX-License-Identifier: Apache-2.0
#pragma once
// The lowest latency between ranks that share memory: elements of a few bytes, stored straight into the peers' buffers (NCCL's LL-A2A; docs/ll_session.md).

#include <algorithm>
#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "memory/export.hpp"
#include "protocols/collective.hpp"
#include "protocols/program/ll_slots.hpp"

namespace troupe {

class communicator;

struct ll_options {
  std::size_t elements = 32;                           ///< that a rank may receive in an epoch
  std::size_t element_bytes = 16;                      ///< of the largest
  std::size_t blocks = 1;                              ///< sessions at a time
  std::optional<std::chrono::nanoseconds> deadline{};  ///< of every wait; empty: the communicator's

  static constexpr std::size_t most_bytes = std::size_t{1} << 24;
};

/// A type that elements may have: their bytes travel.
template <class T>
concept ll_element = std::is_trivially_copyable_v<T> && std::default_initializable<T> && !std::is_pointer_v<T>;

/// The buffers of all ranks, blocks · (1 + 2 · elements · ⌈element_bytes / 8⌉) · 16 bytes each, and how the ranks find each other's. Lives as long as it or
/// a session of it.
class TROUPE_API ll_handle {
public:
  /// Collective, with the same options. Throws error: unsupported (the ranks are not of one host), invalid_argument, mismatch, peer_refused,
  /// out_of_memory, and what a duplicate() throws.
  explicit ll_handle(communicator& comm, const ll_options& options = {});

  const ll_options& options() const noexcept;  ///< @pre it was not moved from
  /// Of a rank's buffer.
  static constexpr std::size_t bytes(const ll_options& options) {
    return ll_shape{options.elements, options.element_bytes, options.blocks}.bytes();
  }

private:
  friend class ll_session;
  struct inside;
  std::shared_ptr<inside> what_;
};

/// One rank's part, epoch by epoch:
///   troupe::ll_handle handle{comm, {.elements = 8, .element_bytes = 8}};
///   troupe::ll_session session{comm, handle};
///   for (;;) {
///     for (int r = 0; r < comm.size(); ++r) session.send(r, me, counts[r]);     // element `me` of rank r
///     session.recv_unrolled<std::uint64_t>(0, from_all);                          // elements 0, 1, …
///     session.end_epoch();
///   }
/// In an epoch an element of a rank is written by one rank, once, and may be received as often as one likes, until end_epoch(). All ranks end the same
/// epochs, and a session that is opened later at the same block goes on with the next one.
///
/// A rank waits for a slow one only by receiving from it: in every epoch a rank receives from each rank that it sends to in the next, so that it is never more
/// than one epoch ahead of it. Where a rank is overtaken all the same, its recv is an error (mismatch); it never gets what belongs to another epoch.
///
/// A rank that has received an element sees what its sender did before. One thread at a time uses the sessions of a rank's handle; threads that want sessions of
/// their own make handles of their own. Must not be used inside a callback.
/// A recv throws error: timed_out with the ranks that are in another epoch; peer_lost, communicator_aborted, revoked, engine_closed as any call (of the handle's own copy of the
/// communicator, which ends when its processes or the engine do); rank_missing when all others wait, too, or have let their handles go. Then, as after any error, the
/// other ranks' epochs may be elsewhere: make a new handle.
class TROUPE_API ll_session {
public:
  /// @param comm what the handle was made with @param block < blocks. Throws error(invalid_argument): it is another one, or this rank has a session there.
  ll_session(const communicator& comm, const ll_handle& handle, std::size_t block = 0);
  /// With a handle of its own. Collective.
  explicit ll_session(communicator& comm, const ll_options& options = {});
  ~ll_session();
  ll_session(const ll_session&) = delete;
  ll_session& operator=(const ll_session&) = delete;

  /// Stores it as an element of `peer`, which may be this rank. Never waits.
  template <ll_element T>
  void send(rank_t peer, std::size_t element, const T& data) {
    send_bytes(peer, element, &data, sizeof(T));
  }
  /// The same, to all ranks, this one among them.
  template <ll_element T>
  void bcast(std::size_t element, const T& data) {
    bcast_bytes(element, &data, sizeof(T));
  }
  /// Waits for it.
  template <ll_element T>
  T recv(std::size_t element) {
    T value;
    recv_unrolled<T>(element, {&value, 1});
    return value;
  }
  /// Elements start, start + stride, …, as many as there is room for: several are looked at before the first is waited for.
  template <ll_element T>
  void recv_unrolled(std::size_t start, std::type_identity_t<std::span<T>> into, std::size_t stride = 1) {
    check_elements(start, into.size(), stride, sizeof(T));
    for (std::size_t i = 0; i < into.size(); i += unroll)
      read(start + i * stride, stride, into.subspan(i, std::min(unroll, into.size() - i)));
  }
  /// reduce(… reduce(to_sum(first), to_sum(second)) …), in that order: what has come is added in registers, never stored. The sum may be wider than what travels:
  ///   double all = session.recv_reduce<float>(0, n, 1, [](float x) { return double{x}; }, std::plus<>{});
  /// @param count at least 1
  template <ll_element T, class ToSum, class Reduce>
  auto recv_reduce(std::size_t start, std::size_t count, std::size_t stride, ToSum&& to_sum, Reduce&& reduce) {
    check_elements(start, count, stride, sizeof(T));
    if (count == 0) refuse_nothing();
    T first;
    read<T>(start, stride, {&first, 1});
    auto sum = to_sum(first);
    for (std::size_t i = 1; i < count; i += unroll) {
      std::array<T, unroll> some;
      const std::size_t n = std::min(unroll, count - i);
      read<T>(start + i * stride, stride, {some.data(), n});
      for (std::size_t j = 0; j < n; ++j) sum = reduce(std::move(sum), to_sum(some[j]));
    }
    return sum;
  }
  /// The next epoch. Never waits.
  void end_epoch();

  /// 2 … 2³² − 1.
  std::uint32_t epoch() const noexcept { return epoch_; }
  std::size_t block() const noexcept { return block_; }

private:
  static constexpr std::size_t unroll = 8;

  ll_session(std::shared_ptr<ll_handle::inside> what, std::size_t block);
  void check_elements(std::size_t start, std::size_t count, std::size_t stride, std::size_t bytes) const {
    const bool fits = bytes <= element_bytes_ && stride > 0 &&
                      (count == 0 || (start < elements_ && (count - 1) <= (elements_ - 1 - start) / stride));
    if (!fits) [[unlikely]]
      refuse_elements(start, count, stride, bytes);
  }
  /// @pre checked; at most `unroll`
  template <class T>
  void read(std::size_t start, std::size_t stride, std::span<T> into) {
    // A rank that is two epochs ahead may overwrite what has come before it is read: the next wait finds that.
    while (!read_now(start, stride, into)) wait(start, into.size(), stride, sizeof(T));
  }
  template <class T>
  bool read_now(std::size_t start, std::size_t stride, std::span<T> into) const {
    bool all = true;
    for (std::size_t i = 0; i < into.size(); ++i)
      all &= ll::load_value(region_ + (start + i * stride) * ll_shape::slot_words, elements_, epoch_, into[i]);
    return all;
  }
  void send_bytes(rank_t peer, std::size_t element, const void* data, std::size_t bytes);
  void bcast_bytes(std::size_t element, const void* data, std::size_t bytes);
  /// @pre some have not come
  void wait(std::size_t start, std::size_t count, std::size_t stride, std::size_t bytes);
  [[noreturn]] void refuse_elements(std::size_t start, std::size_t count, std::size_t stride, std::size_t bytes) const;
  [[noreturn]] void refuse_nothing() const;

  std::shared_ptr<ll_handle::inside> what_;
  std::size_t block_ = 0;
  const ll::word* region_ = nullptr;  ///< of this rank's buffer, of the epoch
  std::size_t elements_ = 0, element_bytes_ = 0;
  std::uint32_t epoch_ = 0;
};

}  // namespace troupe
