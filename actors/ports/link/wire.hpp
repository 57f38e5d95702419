// SPDX-License-Identifier: Apache-2.0
#pragma once
// Values as bytes between processes: little-endian, fixed widths, texts and lists behind their length. One function describes a
// structure for both directions: `void describe(auto& wire, S& s) { wire(s.a, s.b); }`.
//
// Arriving bytes are read without trust: a reader that comes to the end, or meets a length or number that cannot be, is `bad` from then
// on and yields zeros; it never reads outside its bytes, nor allocates more than they could describe.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace troupe::actors {

static_assert(sizeof(std::size_t) == 8, "sizes travel as 64 bits");

/// Enumerations say how many values they have, so that a reader can refuse others: `constexpr E last_of(E)`.
template <class E>
concept wire_enum = std::is_enum_v<E> && requires(E e) {
  last_of(e);
};

class wire_writer {
public:
  explicit wire_writer(std::vector<std::byte>& to) : to_(to) {}

  template <class... T>
  void operator()(const T&... values) {
    (put(values), ...);
  }

private:
  void raw(const void* data, std::size_t bytes) {
    const auto* from = static_cast<const std::byte*>(data);
    to_.insert(to_.end(), from, from + bytes);
  }
  template <class T>
  void put(const T& value) {
    if constexpr (std::is_same_v<T, bool>) put(static_cast<std::uint8_t>(value));
    else if constexpr (std::is_enum_v<T>) put(static_cast<std::uint32_t>(value));
    else if constexpr (std::is_arithmetic_v<T>) raw(&value, sizeof value);
    else describe(*this, const_cast<T&>(value));  // which reads only, on this side
  }
  void put(const std::string& text) {
    put(static_cast<std::uint64_t>(text.size()));
    raw(text.data(), text.size());
  }
  void put(const std::vector<std::byte>& bytes) {
    put(static_cast<std::uint64_t>(bytes.size()));
    raw(bytes.data(), bytes.size());
  }
  template <class T>
  void put(const std::vector<T>& list) {
    put(static_cast<std::uint64_t>(list.size()));
    for (const T& each : list) put(each);
  }
  template <class T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <class T>
  void put(const std::shared_ptr<const T>& value) {
    put(value != nullptr);
    if (value) put(*value);
  }

  std::vector<std::byte>& to_;
};

class wire_reader {
public:
  explicit wire_reader(std::span<const std::byte> from) : from_(from) {}

  template <class... T>
  void operator()(T&... values) {
    (take(values), ...);
  }
  bool bad() const noexcept { return bad_; }
  /// What was read is nothing that a writer writes.
  void refuse() noexcept { bad_ = true; }
  /// Everything was read, and was right.
  bool complete() const noexcept { return !bad_ && from_.empty(); }

private:
  bool raw(void* to, std::size_t bytes) {
    if (bad_ || from_.size() < bytes) {
      bad_ = true;
      return false;
    }
    if (bytes > 0) std::memcpy(to, from_.data(), bytes);
    from_ = from_.subspan(bytes);
    return true;
  }
  /// Of a list; 0 if there cannot be as many, at a byte each.
  std::size_t length() {
    std::uint64_t n = 0;
    take(n);
    if (n > from_.size()) bad_ = true;
    return bad_ ? 0 : static_cast<std::size_t>(n);
  }
  template <class T>
  void take(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      std::uint8_t v = 0;
      take(v);
      if (v > 1) bad_ = true;
      value = v == 1;
    } else if constexpr (std::is_enum_v<T>) {
      static_assert(wire_enum<T>, "say last_of() of this enumeration");
      std::uint32_t v = 0;
      take(v);
      if (v > static_cast<std::uint32_t>(last_of(T{}))) bad_ = true;
      value = static_cast<T>(bad_ ? 0 : v);
    } else if constexpr (std::is_arithmetic_v<T>) {
      if (!raw(&value, sizeof value)) value = T{};
    } else {
      describe(*this, value);
    }
  }
  void take(std::string& text) {
    text.resize(length());
    raw(text.data(), text.size());
  }
  void take(std::vector<std::byte>& bytes) {
    bytes.resize(length());
    raw(bytes.data(), bytes.size());
  }
  template <class T>
  void take(std::vector<T>& list) {
    list.clear();
    const std::size_t n = length();
    for (std::size_t i = 0; i < n && !bad_; ++i) take(list.emplace_back());
  }
  template <class T>
  void take(std::optional<T>& value) {
    bool is = false;
    take(is);
    value.reset();
    if (is && !bad_) take(value.emplace());
  }
  template <class T>
  void take(std::shared_ptr<const T>& value) {
    bool is = false;
    take(is);
    value.reset();
    if (!is || bad_) return;
    auto made = std::make_shared<T>();
    take(*made);
    value = std::move(made);
  }

  std::span<const std::byte> from_;
  bool bad_ = false;
};

}  // namespace troupe::actors
